"""The rewrite, compact and collect_garbage functions on the events under `events/`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.simulator.cloudwatch import ALARM, OK, Metrics, alarms_of, state

import inlay
import inlay.errors
from inlay.errors import InvalidRequest
from inlay.plan.maintain import compaction

from . import conftest
from .conftest import BUCKET, EVENTS, ORDERS, Functions, event, from_queue


def fill(functions: Functions, table: str) -> inlay.Table:
    made = inlay.create(
        f"memory://{BUCKET}/tables/{table}", pq.read_schema(pa.BufferReader(ORDERS))
    )
    made.append(pq.read_table(pa.BufferReader(ORDERS)))
    return made


@pytest.mark.parametrize("name", ["rewrite.queue", "rewrite.schedule"])
def test_rewrite_turns_markers_into_absence(functions: Functions, name: str) -> None:
    functions.fill_orders()
    functions.replay("delete.where")
    (functions.round if name == "rewrite.schedule" else functions.replay)(name)
    assert functions.rows() == 90
    assert functions.orders().inspect.tombstones().num_rows == 0


@pytest.mark.parametrize("name", ["compact.schedule", "compact.one_table"])
def test_compact_packs_small_files(functions: Functions, name: str) -> None:
    functions.fill_orders()
    functions.orders().append(pq.read_table(pa.BufferReader(ORDERS)))
    (functions.round if name == "compact.schedule" else functions.replay)(name)
    assert functions.orders().inspect.files().num_rows == 1
    assert functions.rows() == 200


@pytest.mark.parametrize("name", ["collect_garbage.schedule", "collect_garbage.one_table"])
def test_collect_garbage_keeps_what_is_young(functions: Functions, name: str) -> None:
    functions.fill_orders()
    functions.store.put("tables/orders/data/2020/01/01/00/orphan.parquet", ORDERS)
    run = functions.round if name == "collect_garbage.schedule" else functions.replay
    told = run(name)
    assert told["orders"]["collect_garbage"]["objects"] == 0
    assert functions.rows() == 100


def test_collect_garbage_deletes_what_nothing_has_needed_for_the_grace(
    functions: Functions,
) -> None:
    functions.fill_orders()
    functions.orders().append(pq.read_table(pa.BufferReader(ORDERS)))
    functions.round("compact.schedule")
    deleted = []
    for _ in range(3):  # the packed files: expire from history, then outlast their grace, then go
        told = functions.round("collect_garbage.schedule")
        deleted.append(told["orders"]["collect_garbage"]["objects"])
        functions.clock.pass_days(8)
    assert deleted[:2] == [0, 0]
    assert deleted[2] >= 2
    assert functions.rows() == 200


def test_an_event_may_shorten_the_grace(functions: Functions) -> None:
    functions.fill_orders()
    functions.store.put("tables/orders/data/2020/01/01/00/orphan.parquet", ORDERS)
    functions.clock.pass_days(1)
    told = functions.invoke("collect_garbage", {"table": "orders", "grace_days": 0.5})
    assert told["orders"]["collect_garbage"]["objects"] == 1


def test_a_tables_own_grace_comes_before_the_deployments(functions: Functions) -> None:
    functions.create_orders(**{"gc.grace_days": "30"})
    functions.store.put("tables/orders/data/2020/01/01/00/orphan.parquet", ORDERS)
    functions.clock.pass_days(8)
    told = functions.round("collect_garbage.schedule")
    assert told["orders"]["collect_garbage"]["objects"] == 0


def test_an_erasure_ends_with_a_receipt_that_names_nothing(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INLAY_RETENTION_DAYS", "dead letters=14;function logs=30")
    functions.create_orders()
    functions.land()
    functions.replay("ingest.normal")
    functions.clock.pass_days(0.1)
    functions.replay("delete.erase")
    functions.replay("rewrite.queue")
    receipts: list[str] = []
    for _ in range(6):
        functions.clock.pass_days(0.05)
        functions.round("collect_garbage.erasures")
        receipts = [o.key for o in functions.store.list("tables/orders/erasure/")]
        if receipts:
            break
    assert len(receipts) == 1
    body = functions.store.get(receipts[0]).body.decode()
    assert "predicate_hmac_sha256" in body
    reach = {each["what"]: each["until_us"] for each in json.loads(body)["out_of_reach"]}
    dated = {name for name, until in reach.items() if until}
    assert dated == {"dead letters", "function logs", "messages in queues"}
    # Which columns were searched, which of them for a value too short to know, and nothing more of the
    # condition.
    look = json.loads(body)["look"]
    assert look["columns"] == look["open_columns"] == ["customer_id"]
    assert body.count("customer_id") == 2
    assert list(functions.store.list("ingest/")) == []
    assert functions.orders().snapshot.erasures == ()
    assert functions.rows() == 90


def test_between_collections_only_tables_with_an_erasure_are_touched(
    functions: Functions,
) -> None:
    functions.fill_orders()
    functions.store.put("tables/orders/data/2020/01/01/00/orphan.parquet", ORDERS)
    functions.clock.pass_days(30)
    assert functions.round("collect_garbage.erasures") == {}
    assert functions.store.get("tables/orders/data/2020/01/01/00/orphan.parquet").body == ORDERS


def test_a_dry_run_only_looks(functions: Functions) -> None:
    functions.fill_orders()
    version = functions.orders().version
    functions.invoke("collect_garbage", {"table": "orders", "grace_days": 0, "dry_run": True})
    functions.invoke("compact", {"table": "orders", "dry_run": True})
    assert functions.orders().version == version


@pytest.mark.parametrize("name", ["compact.malformed", "collect_garbage.malformed"])
def test_a_name_that_leaves_the_tables_is_refused(functions: Functions, name: str) -> None:
    with pytest.raises(inlay.errors.InvalidRequest, match="not a valid table name"):
        functions.replay(name)


def test_a_malformed_hint_is_buried(functions: Functions) -> None:
    assert functions.replay("rewrite.malformed") == {"batchItemFailures": []}
    assert functions.queues.errors == ["InvalidRequest"]


def test_the_rewrite_queue_opens_no_erasure_and_deletes_from_the_named_table_alone(
    functions: Functions,
) -> None:
    functions.fill_orders()
    before = functions.orders().version
    assert functions.replay("rewrite.refused") == {"batchItemFailures": []}
    assert functions.queues.errors == ["InvalidRequest", "InvalidRequest"]
    assert functions.orders().version == before
    assert functions.orders().snapshot.erasures == ()


NO_ERASURES = [
    (function, body)
    for function in ("rewrite", "compact", "publish", "collect_garbage", "ingest")
    for asked in [{"table": "orders", "where": "TRUE", "mode": "erase", "id": "case-7"}]
    for body in [
        asked,
        {"table": "orders", "delete": asked},
        {"delete": asked},
        {"Records": [asked]},
    ]
]


@pytest.mark.parametrize(("function", "body"), NO_ERASURES, ids=str)
def test_no_queue_but_that_of_deletes_and_erasures_opens_one(
    functions: Functions, function: str, body: dict[str, object]
) -> None:
    functions.fill_orders()
    [record] = event("rewrite.queue")["Records"]
    batch = {"Records": [{**record, "body": json.dumps(body)}]}
    functions.invoke(function, batch)
    assert functions.queues.errors == ["InvalidRequest"]
    assert functions.orders().snapshot.erasures == ()
    assert functions.rows() == 100


def test_every_event_file_is_replayed_by_a_test() -> None:
    told = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    unused = [
        path.stem
        for path in EVENTS.glob("*.*.json")
        if path.stem not in told
        and not any(f'{before}{path.stem.split(".")[1]}"' in told for before in ('"', "}."))
    ]
    assert unused == []
    assert all(event(path.stem) is not None for path in EVENTS.glob("*.json"))


def test_a_backlog_that_outgrew_the_function_is_handed_over_to_spark(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions.create_orders(**{"compact.handover_bytes": 1})
    for _ in range(3):
        functions.orders().append(pq.read_table(pa.BufferReader(ORDERS)))
    size = sum(functions.orders().inspect.files()["bytes"].to_pylist())
    functions.replay("compact.one_table")
    assert functions.queues.bodies("handover") == []
    functions.orders().append(pq.read_table(pa.BufferReader(ORDERS)))
    functions.orders().append(pq.read_table(pa.BufferReader(ORDERS)))
    monkeypatch.setattr(compaction, "SECONDS_PER_MIB", 1e9)
    told = functions.replay("compact.one_table")["orders"]
    assert (told["units"], told["left"]) == (0, 1)
    [body] = functions.queues.bodies("handover")
    assert json.loads(body) == {
        "table": f"memory://{BUCKET}/tables/orders",
        "left_units": 1,
        "left_bytes": told["left_bytes"],
    }
    assert 0 < told["left_bytes"] < 2 * size
    assert functions.rows() == 500


def test_a_file_that_does_not_fit_an_invocation_goes_on_in_the_next(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inlay.plan.surgery.SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(conftest.LambdaContext, "get_remaining_time_in_millis", lambda _: 0)
    functions.create_orders(**{"write.row_group_rows": 20})
    table = functions.orders()
    table.append(pq.read_table(pa.BufferReader(ORDERS)))
    ids = table.scan(columns=["order_id"]).to_arrow()["order_id"].to_pylist()
    table.delete(keys={"order_id": ids[::10]})
    assert functions.rows() == 90

    where = "order_id IS NOT NULL"
    message = json.dumps({"table": "orders", "where": where})
    invocations = 0
    while message:
        functions.queues.sent.clear()
        body = event("rewrite.queue")
        body["Records"][0]["body"] = message
        assert functions.invoke("rewrite", body) == {"batchItemFailures": []}
        invocations += 1
        assert functions.rows() == 90 and functions.queues.dead == []
        [message] = functions.queues.bodies("rewrite") or [""]
        assert not message or json.loads(message)["where"] == where
    assert invocations == 5  # a row group each, for there was no time at all
    assert functions.orders().inspect.tombstones().num_rows == 0
    assert sum(functions.orders().inspect.files()["rows"].to_pylist()) == 90


def test_an_erasure_that_waits_says_for_what_and_how_long(
    functions: Functions, log: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    """A landed file that no event brought in keeps it open: each round warns, its age is an alarm."""
    functions.create_orders()
    functions.land()
    functions.replay("ingest.normal")
    functions.land("ingest/orders/pending.parquet")
    functions.set_variable("POWERTOOLS_METRICS_NAMESPACE", "Inlay/local")
    functions.clock.pass_days(0.1)
    functions.replay("delete.erase")
    functions.replay("rewrite.queue")
    functions.clock.pass_days(4)
    functions.round("collect_garbage.erasures")
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    [warning] = [each for each in lines if each["message"] == "an erasure waits"]
    assert warning["level"] == "WARNING"
    assert (warning["table"], warning["what"]) == ("orders", "landing")
    assert warning["name_of_it"] == "ingest/orders/pending.parquet"
    assert "not ingested yet" in warning["reason"]
    assert "customer_id" not in json.dumps(lines)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [age] = [each["OldestErasureDays"][0] for each in told if "OldestErasureDays" in each]
    assert 3.9 < age < 4.2
    assert [1] in [each.get("ErasuresWaitingForLanding") for each in told]
    metrics = Metrics()
    for line in told:
        metrics.put_embedded(line, 0.0)
    alarm = alarms_of(EVENTS.parent / "template.yaml", stack="local")["ErasureAgeAlarm"]
    assert state(alarm, metrics, 0.0) == ALARM
    assert state(alarm, Metrics(), 0.0) == OK  # without an open erasure nothing is written

    functions.store.delete(["ingest/orders/pending.parquet"])
    for _ in range(6):
        functions.clock.pass_days(0.05)
        functions.round("collect_garbage.erasures")
    capsys.readouterr()
    functions.round("collect_garbage.erasures")
    assert "OldestErasureDays" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("function", "asked"),
    [
        ("collect_garbage", {"table": "orders", "dryrun": True}),
        ("collect_garbage", {"table": "orders", "grace": 30}),
        ("collect_garbage", {"tabel": "orders", "dry_run": True}),
        ("collect_garbage", {"table": "orders", "landing_only": True, "dry_run": True}),
        ("compact", {"table": "orders", "grace_days": 1}),
        ("compact", {"table": "orders", "dryRun": True}),
        ("rewrite", {"table": "orders", "dry_run": True}),
        ("rewrite", {"table": "orders", "where": "order_id = 1"}),
        ("rewrite", {"erasures_only": True}),
        ("publish", {"table": "orders", "dry_run": True}),
        ("publish", {"tables": ["orders"]}),
    ],
)
def test_what_a_function_would_not_heed_is_refused(
    functions: Functions, function: str, asked: dict[str, Any]
) -> None:
    functions.fill_orders()
    functions.orders().delete("order_id = 1")
    version = functions.orders().version
    with pytest.raises(InvalidRequest):
        functions.invoke(function, asked)
    assert functions.orders().version == version
    assert functions.queues.sent == []


def test_a_hint_that_is_misspelt_is_a_dead_letter(functions: Functions) -> None:
    """Not a hint for the whole table."""
    functions.fill_orders()
    functions.orders().delete("order_id = 1")
    version = functions.orders().version
    functions.invoke("rewrite", from_queue({"table": "orders", "Where": "order_id = 2"}))
    assert functions.orders().version == version
    assert len(functions.queues.bodies("dead-letters")) == 1

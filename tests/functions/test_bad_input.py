"""Events that nobody should send: typed, counted, harmless to neighbours; each a file in `events/`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pipelines.compact import handed_over

from inlay.errors import InvalidRequest
from inlay.functions import messages, validation
from inlay.storage.memory import NULL_VERSION

from .conftest import BUCKET, ORDERS, Functions, event, few, landing_message
from .test_handover import Queue

DONE: dict[str, Any] = {"batchItemFailures": []}
MAINTENANCE = ["rewrite", "compact", "publish", "collect_garbage"]


def failures(capsys: pytest.CaptureFixture[str]) -> float:
    """How often the metric of bad input was written."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return sum(sum(each.get("FailedInput", [])) for each in lines)


def test_an_event_of_another_bucket_is_refused_and_its_neighbour_ingested(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    functions.create_orders()
    functions.land()
    functions.store.at("somebody-elses").put("ingest/orders/orders.parquet", few(7))
    assert functions.replay("ingest.another_bucket") == DONE
    assert functions.queues.errors == ["InvalidRequest"]
    assert failures(capsys) == 1
    assert functions.rows() == 100


def test_a_pointer_of_another_bucket_publishes_nothing(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    functions.create_orders(**{"publish.format": "v3"})
    sent = event("publish.another_bucket")
    assert functions.invoke("publish", {"Records": sent["Records"][:1]}) == DONE
    assert functions.queues.errors == ["InvalidRequest"]
    assert failures(capsys) == 1
    assert functions.orders().inspect.publication().version is None  # type: ignore[union-attr]
    assert functions.invoke("publish", sent) == DONE
    assert functions.orders().inspect.publication().behind == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("key", ["elsewhere/tables/orders", "tables/a/b", "tables"])
def test_a_pointer_that_is_no_tables_is_passed_over(functions: Functions, key: str) -> None:
    functions.create_orders(**{"publish.format": "v3"})
    sent = event("publish.pointer")
    sent["Records"][0]["body"] = sent["Records"][0]["body"].replace("tables/orders", key)
    assert functions.invoke("publish", sent) == DONE
    assert functions.queues.sent == []
    assert functions.orders().inspect.publication().version is None  # type: ignore[union-attr]


@pytest.mark.parametrize("first", ["with", "without"])
def test_an_event_without_a_version_id_is_of_the_version_that_is_there(
    functions: Functions, first: str
) -> None:
    """In a versioned bucket, its content counts once with the event that names the version, in any order,
    and stays counted when the object is overwritten."""
    functions.create_orders()
    functions.store.enable_versioning()
    named = landing_message(functions, ORDERS)
    unnamed = event("ingest.no_version")
    for sent in (named, unnamed) if first == "with" else (unnamed, named):
        assert functions.invoke("ingest", sent) == DONE
    assert functions.rows() == 100
    second = landing_message(functions, few(10))
    for sent in (unnamed, second, named, unnamed):
        functions.invoke("ingest", sent)
    assert functions.rows() == 110
    assert functions.queues.sent == []
    third = landing_message(
        functions, ORDERS
    )  # the same bytes in a version of their own are another content
    functions.invoke("ingest", third)
    assert functions.rows() == 210


def test_without_versions_an_event_is_known_by_its_etag(functions: Functions) -> None:
    functions.create_orders()
    functions.land()
    for _ in range(2):
        functions.replay("ingest.no_version")
    assert functions.rows() == 100
    assert {v.version_id for v in functions.store.list_versions("ingest/")} == {NULL_VERSION}


def test_hop_counters_that_overflow_are_refused_and_their_neighbour_rewritten(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    functions.fill_orders()
    functions.orders().delete("customer_id = 7")
    assert functions.replay("rewrite.hops") == DONE
    assert functions.queues.errors == ["InvalidRequest"] * 7
    assert failures(capsys) == 7
    assert functions.orders().inspect.tombstones().num_rows == 0


@pytest.mark.parametrize("function", MAINTENANCE)
@pytest.mark.parametrize("when", ["schedule_ahead", "schedule_behind"])
def test_a_schedules_clock_is_not_believed(functions: Functions, function: str, when: str) -> None:
    """Its event is of another day than the store's: what is done is the same."""
    functions.create_orders(**{"publish.format": "v3"})
    for _ in range(2):
        functions.land()
        functions.replay("ingest.normal")
        functions.land(body=few(10))
        functions.invoke("ingest", landing_message(functions, few(10)))
    functions.orders().delete("customer_id = 7")
    functions.store.put("tables/orders/data/2020/01/01/00/orphan.parquet", ORDERS)
    rows = functions.rows()
    functions.replay(f"{function}.{when}")
    first = functions.queues.bodies("rounds")
    functions.queues.sent.clear()
    functions.replay(f"{function}.schedule")
    assert functions.queues.bodies("rounds") == first == ['{"table": "orders"}']
    functions.round(f"{function}.{when}")
    assert functions.rows() == rows
    # Young garbage stays, whatever day the schedule says it is.
    assert functions.store.get("tables/orders/data/2020/01/01/00/orphan.parquet").body == ORDERS


@pytest.mark.parametrize(
    ("name", "buried"), [("ingest", 4), ("delete", 5), ("rewrite", 5), ("publish", 5)]
)
def test_records_of_another_kind_are_buried_and_the_messages_dealt_with(
    functions: Functions, name: str, buried: int, capsys: pytest.CaptureFixture[str]
) -> None:
    functions.create_orders(**{"publish.format": "v3"})
    functions.land()
    functions.replay("ingest.normal")
    version = functions.orders().version
    if name == "ingest":
        functions.land(body=few(10))
        body = json.dumps(landing_message(functions, few(10))["Records"][0]["body"])
        sent = json.dumps(event("ingest.mixed"))
        told_of = json.dumps(event("ingest.normal")["Records"][0]["body"])
        sent = sent.replace(told_of, body)
        assert functions.invoke("ingest", json.loads(sent)) == DONE
    else:
        if name == "rewrite":
            functions.orders().delete("customer_id = 7")
            version += 1
        assert functions.replay(f"{name}.mixed") == DONE
    assert functions.queues.errors == ["InvalidRequest"] * buried
    assert failures(capsys) == buried
    if name == "publish":
        assert functions.orders().inspect.publication().behind == 0  # type: ignore[union-attr]
    else:
        assert functions.orders().version == version + 1
    assert not any("hello" in str(each["MessageAttributes"]) for each in functions.queues.sent)


def test_a_body_of_mixed_kinds_is_refused_whole_and_its_neighbour_ingested(
    functions: Functions,
) -> None:
    functions.create_orders()
    functions.land()
    assert functions.replay("ingest.mixed_body") == DONE
    assert functions.queues.errors == ["InvalidRequest"]
    assert functions.rows() == 100


@pytest.mark.parametrize("function", ["compact", "collect_garbage"])
def test_a_round_takes_a_table_and_nothing_else(
    functions: Functions, function: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever may send to the queue can cause no more than a schedule does: no grace of zero days."""
    functions.fill_orders()
    functions.orders().append(functions.orders().scan().to_arrow())
    functions.store.put("tables/orders/data/2020/01/01/00/orphan.parquet", ORDERS)
    functions.clock.pass_days(1)
    assert functions.replay(f"{function}.round_malformed") == DONE
    assert functions.queues.errors == ["InvalidRequest"] * 4
    assert failures(capsys) == 4
    assert functions.store.get("tables/orders/data/2020/01/01/00/orphan.parquet").body == ORDERS
    if function == "compact":
        assert functions.orders().inspect.files().num_rows == 1


@pytest.mark.parametrize("function", MAINTENANCE)
def test_a_table_of_a_round_that_is_gone_is_buried(functions: Functions, function: str) -> None:
    assert functions.replay(f"{function}.round") == DONE
    assert functions.queues.errors == ["TableNotFound"]


def test_handovers_of_other_places_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    under = [f"s3://{BUCKET}/tables/"]
    for name, bad in (("handover.normal", 0), ("handover.malformed", 7)):
        bodies = [record["body"] for record in event(name)["Records"]]
        queue = Queue(*bodies)
        refused: list[Any] = []
        found = list(handed_over(queue, "url", under=under, refused=refused.append))
        assert found == [f"s3://{BUCKET}/tables/orders"]
        assert len(refused) == len(queue.dead) == bad


def test_a_batch_without_a_message_is_done(functions: Functions) -> None:
    assert messages.process([], None, lambda _: None) == DONE


@pytest.mark.parametrize("name", ["delete.newer", "rewrite.newer", "collect_garbage.round_newer"])
def test_a_message_of_a_later_version_is_retried_and_taken_after_the_upgrade(
    functions: Functions, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During an upgrade functions of two versions take messages from one queue."""
    functions.fill_orders()
    with pytest.raises(Exception, match="All records failed"):
        functions.replay(name)
    assert functions.queues.dead == []
    assert functions.rows() == 100
    [record] = event(name)["Records"]
    known = {
        k: v for k, v in json.loads(record["body"]).items() if k in ("v", "id", "table", "where")
    }
    monkeypatch.setattr(validation, "MESSAGE_VERSION", 2)
    functions.invoke(name.split(".")[0], {"Records": [{**record, "body": json.dumps(known)}]})
    assert functions.queues.dead == []
    assert functions.rows() == (90 if name.startswith("delete") else 100)


@pytest.mark.parametrize("version", [0, -1, True, "2", 1.5, None])
def test_a_version_that_is_none_is_a_dead_letter(functions: Functions, version: object) -> None:
    functions.fill_orders()
    asked = {"v": version, "table": "orders", "where": "customer_id = 7"}
    [record] = event("delete.where")["Records"]
    functions.invoke("delete", {"Records": [{**record, "body": json.dumps(asked)}]})
    assert functions.queues.errors == ["InvalidRequest"]


def test_a_message_of_version_1_may_say_so(functions: Functions) -> None:
    functions.fill_orders()
    asked = {"v": 1, "table": "orders", "where": "customer_id = 7"}
    [record] = event("delete.where")["Records"]
    functions.invoke("delete", {"Records": [{**record, "body": json.dumps(asked)}]})
    assert functions.rows() == 90


@pytest.mark.parametrize("member", ["grace_days", "life_seconds", "clock_margin_seconds"])
@pytest.mark.parametrize("seconds", [float("inf"), 1e300])
def test_a_time_beyond_counting_is_refused(
    functions: Functions, member: str, seconds: float
) -> None:
    """JSON as Python reads it has Infinity, and numbers that no duration holds."""
    functions.fill_orders()
    with pytest.raises(InvalidRequest, match="cannot be"):
        functions.invoke("collect_garbage", {"table": "orders", member: seconds})

"""Change files land in any order, as their producers write them, and the table shows the newest record of
each key: through the function, the library and the command line alike."""

from __future__ import annotations

import io
import itertools
import json
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.functions.conftest import BUCKET, Functions, fresh, from_queue, landing_message
from typer.testing import CliRunner

import inlay
from inlay.cli.app import app
from inlay.errors import InvalidRequest
from inlay.format.properties import CHANGE_PRESETS
from inlay.ops.erase.request import erase_status
from inlay.ops.write.ingest import Duplicate, Ingested, Rejected
from inlay.plan.change_records import PRESETS

from .streams import Record, expected, table_of

CASES = Path(__file__).parents[1] / "cases" / "changes"
URI = f"memory://{BUCKET}/tables/accounts"
ACCOUNTS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("amount", pa.int64()),
        ("on", pa.date32()),
        ("lsn", pa.int64()),
    ]
)
KEYED = pa.schema([("id", pa.int64()), ("value", pa.string()), ("lsn", pa.int64())])
OF_DMS = {"changes.operations": "dms"}
PRODUCERS: dict[str, dict[str, str]] = {
    "dms.csv": {**OF_DMS, "ingest.columns": "Op,lsn,id,amount,on"},
    "dms-named.csv": OF_DMS,
    "debezium-schema.json": {"changes.operations": "debezium"},
    "debezium.json": {"changes.operations": "debezium"},
    "debezium-flat.json": {"changes.operations": "debezium-flat"},
    "kafka-connect.json": {"changes.operations": "kafka-connect"},
}


def create(schema: pa.Schema, uri: str = URI, **properties: str) -> inlay.Table:
    how = {"ingest.formats": "parquet,csv,json", "ingest.as": "changes", "changes.order": "lsn"}
    return inlay.create(uri, schema, primary_key="id", properties={**how, **properties})


def lines_of(name: str) -> list[str]:
    return (CASES / name).read_text().splitlines(keepends=True)


@pytest.fixture
def functions() -> Iterator[Functions]:
    with fresh() as made:
        yield made


@pytest.mark.parametrize("name", sorted(PRODUCERS))
@pytest.mark.parametrize("whole", [True, False])
def test_files_of_producers_land_as_they_document_them(
    functions: Functions, name: str, whole: bool
) -> None:
    create(ACCOUNTS, **PRODUCERS[name])
    head = lines_of(name)[:1] if name == "dms-named.csv" else []
    lines = lines_of(name)[len(head) :]
    parts = [lines] if whole else [[line] for line in reversed(lines)]
    for number, part in enumerate(parts):
        body = "".join([*head, *part]).encode()
        functions.invoke(
            "ingest", landing_message(functions, body, f"ingest/accounts/{number}-{name}")
        )
    assert functions.queues.dead == []
    assert inlay.open(URI).scan().to_arrow().to_pylist() == [
        {"id": 1, "amount": 15, "on": date(2026, 11, 26), "lsn": 3}
    ]


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def enveloped(records: Sequence[Record]) -> list[dict[str, Any]]:
    def image(record: Record) -> dict[str, Any]:
        return {"id": record[1], "value": record[2]}

    return [
        {
            "before": image(r) if r[0] == "d" else None,
            "after": None if r[0] == "d" else image(r),
            "source": {"lsn": r[3]},
            "op": r[0],
        }
        for r in records
    ]


def json_of(values: Sequence[Any]) -> bytes:
    return "\n".join(map(json.dumps, values)).encode()


def csv_of(records: Sequence[Record]) -> bytes:
    lines = ["op,id,value,lsn", *(f"{o},{i},{v},{n}" for o, i, v, n in records)]
    return "\n".join(lines).encode()


IMAGE = pa.struct([("id", pa.int64()), ("value", pa.string())])
ENVELOPE = pa.schema(
    [
        ("before", IMAGE),
        ("after", IMAGE),
        ("source", pa.struct([("lsn", pa.int64())])),
        ("op", pa.string()),
    ]
)
FORMS = {
    "plain.parquet": lambda records: parquet(table_of(records)),
    "plain.csv": csv_of,
    "plain.json": lambda records: json_of(table_of(records).to_pylist()),
    "debezium.json": lambda records: json_of(enveloped(records)),
    "debezium.parquet": lambda records: parquet(
        pa.Table.from_pylist(enveloped(records), schema=ENVELOPE)
    ),
}


@st.composite
def streams(draw: st.DrawFn) -> list[list[Record]]:
    """Records of a few keys, each with an order of its own, shuffled and cut."""
    drawn = draw(
        st.lists(st.tuples(st.sampled_from("cud"), st.integers(1, 4)), min_size=1, max_size=12)
    )
    records = [(op, key, f"v{n}", n) for n, (op, key) in enumerate(drawn)]
    shuffled = draw(st.permutations(records))
    cuts = sorted(draw(st.lists(st.integers(0, len(records)), max_size=3)))
    bounds = itertools.pairwise([0, *cuts, len(records)])
    return [shuffled[low:high] for low, high in bounds if low < high]


@settings(max_examples=8, deadline=None)
@given(batches=streams(), form=st.sampled_from(sorted(FORMS)), again=st.data())
def test_a_stream_gives_the_same_rows_through_every_way_in(
    batches: list[list[Record]], form: str, again: Any
) -> None:
    operations = "debezium" if form.startswith("debezium") else "common"
    with fresh() as functions:
        ways = ("function", "library", "cli", "message")
        for way in ways:
            create(KEYED, f"memory://{BUCKET}/tables/{way}", **{"changes.operations": operations})
        messages = [
            landing_message(functions, FORMS[form](batch), f"ingest/function/{n}-{form}")
            for n, batch in enumerate(batches)
        ]
        repeated = again.draw(st.lists(st.sampled_from(messages), max_size=3))
        for message in again.draw(st.permutations([*messages, *repeated])):
            functions.invoke("ingest", message)
        assert functions.queues.dead == []
        records = enveloped if operations == "debezium" else lambda r: table_of(r).to_pylist()
        for n, batch in enumerate(batches):
            asked = {"table": "message", "id": f"batch-{n}", "changes": records(batch)}
            functions.invoke("delete", from_queue(asked, asked, queue="DeleteQueue"))
        assert functions.queues.dead == []
        t = inlay.open(f"memory://{BUCKET}/tables/library")
        for batch in batches:
            t.apply_changes(table_of(batch), order="lsn", op="op")
        with tempfile.TemporaryDirectory() as folder:
            for n, batch in enumerate(batches):
                path = Path(folder) / f"{n}-{form}"
                path.write_bytes(FORMS[form](batch))
                given = ["--order", "lsn", "--operations", operations]
                done = CliRunner().invoke(
                    app, ["apply-changes", f"memory://{BUCKET}/tables/cli", str(path), *given]
                )
                assert done.exit_code == 0, done.output
        for way in ways:
            rows = inlay.open(f"memory://{BUCKET}/tables/{way}").scan().to_arrow().to_pylist()
            assert {r["id"]: (r["value"], r["lsn"]) for r in rows} == expected(batches), way
            assert len({r["id"] for r in rows}) == len(rows)


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("a.json", b'{"op": "t", "id": 1, "lsn": 1}', "operation that is not known"),
        ("a.csv", b"op,id,lsn\nx,1,1\n", "operation that is not known"),
        (
            "a.json",
            b'{"op": "c", "id": 1, "lsn": 1}\n{"op": "c", "id": 2, "value": "x", "lsn": 2}',
            "lack",
        ),
        ("a.json", b'{"op": "c", "id": 1, "lsn": 1, "more": 2}', "more"),
        ("a.json", b"null", "is not an object"),
        ("a.csv", b"op,id\nc,1\n", "lsn"),
    ],
)
def test_what_is_not_known_of_a_change_file_is_refused_by_name(
    functions: Functions, name: str, body: bytes, said: str
) -> None:
    t = create(KEYED, **{"changes.operations": "common"})
    functions.store.put(f"ingest/accounts/{name}", body)
    [outcome] = t.ingest([f"memory://{BUCKET}/ingest/accounts/{name}"]).outcomes
    assert isinstance(outcome, Rejected) and said in str(outcome.error)
    t.refresh()
    assert t.scan().to_arrow().num_rows == 0


ROW = {"before": None, "after": {"id": 1, "value": "a"}, "source": {"lsn": 3}, "op": "c"}
FLAT = {"id": 1, "value": "a", "lsn": 3, "__deleted": "false"}
HEARTBEAT = {"ts_ms": 1764000000000}
BOUNDARY = {"status": "END", "id": "571", "ts_ms": 1, "event_count": 2, "data_collections": []}
OF_SCHEMA = {
    "source": {"lsn": 5},
    "ts_ms": 1,
    "databaseName": "d",
    "ddl": "ALTER",
    "tableChanges": [],
}
# Of Debezium and others, as they document them: what stands beside changes of rows.
BESIDE: list[tuple[str, Any, str]] = [
    *(
        (preset, HEARTBEAT, "heartbeat")
        for preset in ("debezium", "debezium-flat", "kafka-connect")
    ),
    *((preset, BOUNDARY, "boundary of a transaction") for preset in ("debezium", "debezium-flat")),
    *((preset, OF_SCHEMA, "change of a schema") for preset in ("debezium", "debezium-flat")),
    ("debezium", {"schema": None, "payload": HEARTBEAT}, "heartbeat"),
    (
        "debezium",
        {"op": "m", "source": {"lsn": 4}, "message": {"prefix": "x"}},
        "message of the log",
    ),
    ("debezium", {**ROW, "after": None, "op": "t"}, "To truncate, delete"),
    ("debezium", FLAT, "has no 'op'"),
    ("kafka-connect", None, "does not say of which key"),
    ("canal", {"data": [{"id": "1"}], "type": "INSERT"}, "has its rows in 'data'"),
    ("canal", {"data": {"id": 1}, "type": "insert", "xid": 7}, "has its rows in 'data'"),
]


@pytest.mark.parametrize(("preset", "beside", "said"), BESIDE)
def test_what_is_no_change_of_a_row_is_refused_by_name_or_left_out_and_counted(
    functions: Functions, preset: str, beside: Any, said: str
) -> None:
    rows = {"debezium": ROW, "canal": {"id": 1, "value": "a", "lsn": 3, "type": "INSERT"}}
    t = create(KEYED, **{"changes.operations": preset})
    key = "ingest/accounts/a.json"
    functions.store.put(key, json_of([rows.get(preset, FLAT), beside]))
    [refused] = t.ingest([f"memory://{BUCKET}/{key}"]).outcomes
    assert isinstance(refused, Rejected) and said in str(refused.error)
    t.set_properties(**{"ingest.bad_lines": 1})
    [done] = t.ingest([f"memory://{BUCKET}/{key}"]).outcomes
    assert isinstance(done, Ingested) and done.refused == 1
    assert t.refresh().scan().to_arrow().to_pylist() == [{"id": 1, "value": "a", "lsn": 3}]
    [listed] = [o.key for o in functions.store.list("ingest/accounts/_refused/")]
    assert said in functions.store.get(listed).body.decode()


@pytest.mark.parametrize("preset", ["debezium", "debezium-flat"])
def test_the_null_behind_a_delete_says_nothing_more(functions: Functions, preset: str) -> None:
    t = create(KEYED, **{"changes.operations": preset})
    row = ROW if preset == "debezium" else {**FLAT, "__op": "c"}
    gone = {**ROW, "before": {"id": 1}, "after": None, "op": "d", "source": {"lsn": 4}}
    if preset == "debezium-flat":
        gone = {**FLAT, "lsn": 4, "__deleted": "true", "__op": "d"}
    functions.store.put("ingest/accounts/a.json", json_of([row, gone, None]))
    [done] = t.ingest([f"memory://{BUCKET}/ingest/accounts/a.json"]).outcomes
    assert isinstance(done, Ingested) and done.changes is not None
    assert (done.changes.records, done.changes.late, t.refresh().count()) == (2, 0, 0)


@pytest.mark.parametrize(
    ("preset", "body", "said"),
    [
        ("dms", b"id,value,lsn\n1,a,1\n", "IncludeOpForFullLoad"),
        ("debezium-flat", b"id,value,lsn,__op\n1,a,1,c\n", "changes.op=__op"),
    ],
)
def test_files_without_their_operations_are_refused_with_what_to_set(
    functions: Functions, preset: str, body: bytes, said: str
) -> None:
    t = create(KEYED, **{"changes.operations": preset})
    functions.store.put("ingest/accounts/a.csv", body)
    uri = f"memory://{BUCKET}/ingest/accounts/a.csv"
    [refused] = t.ingest([uri]).outcomes
    assert isinstance(refused, Rejected) and said in str(refused.error.next_step)
    if preset == "debezium-flat":
        t.set_properties(**{"changes.operations": "common", "changes.op": "__op"})
        assert isinstance(t.ingest([uri]).outcomes[0], Ingested)


@pytest.mark.parametrize("form", ["debezium.json", "debezium.parquet"])
def test_a_value_that_the_producer_left_out_is_refused(functions: Functions, form: str) -> None:
    """An unchanged large value of PostgreSQL; of a delete only the key counts."""
    t = create(KEYED, **{"changes.operations": "debezium"})
    unknown = "__debezium_unavailable_value"
    for op, name in (("u", "a"), ("d", "b")):
        functions.store.put(f"ingest/accounts/{name}-{form}", FORMS[form]([(op, 1, unknown, 1)]))
    uris = [f"memory://{BUCKET}/ingest/accounts/{name}-{form}" for name in "ab"]
    refused, done = t.ingest(uris).outcomes
    assert isinstance(refused, Rejected) and "'value'" in str(refused.error)
    assert isinstance(done, Ingested)


def test_a_long_file_is_applied_in_slices_once(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inlay.ops.write.landed_changes.SLICE_BYTES", 1)
    monkeypatch.setattr("inlay.ops.write.landed_changes.BATCH_ROWS", 3)
    t = create(KEYED, **{"changes.operations": "common"})
    records = [("c" if n < 20 else "d", n % 20, f"v{n}", n) for n in range(30)]
    functions.store.put("ingest/accounts/a.parquet", FORMS["plain.parquet"](records))
    uri = f"memory://{BUCKET}/ingest/accounts/a.parquet"
    [done] = t.ingest([uri]).outcomes
    assert isinstance(done, Ingested) and done.changes is not None
    assert (done.changes.records, done.changes.inserted, done.changes.deleted) == (30, 20, 10)
    t.refresh()
    assert sorted(t.scan().to_arrow().column("id").to_pylist()) == [*range(10, 20)]
    version = t.version
    assert isinstance(t.ingest([uri]).outcomes[0], Duplicate)
    t.refresh()
    assert t.version == version


def test_a_table_that_says_no_order_refuses_its_files(functions: Functions) -> None:
    inlay.create(URI, KEYED, primary_key="id", properties={"ingest.as": "changes"})
    functions.store.put("ingest/accounts/a.parquet", FORMS["plain.parquet"]([("c", 1, "x", 1)]))
    [outcome] = inlay.open(URI).ingest([f"memory://{BUCKET}/ingest/accounts/a.parquet"]).outcomes
    assert isinstance(outcome, Rejected) and isinstance(outcome.error, InvalidRequest)
    assert "changes.order" in str(outcome.error)


@pytest.mark.parametrize(
    ("form", "op"), [("debezium.json", "c"), ("debezium.json", "d"), ("plain.parquet", "c")]
)
def test_an_erasure_waits_for_a_change_file_with_the_person(
    functions: Functions, form: str, op: str
) -> None:
    """Whose rows come in marked, also where the file only deletes them."""
    operations = "debezium" if form.startswith("debezium") else "common"
    t = create(KEYED, **{"changes.operations": operations})
    functions.store.put(f"ingest/accounts/{form}", FORMS[form]([(op, 7, "Xanthippe", 1)]))
    functions.store.put(f"ingest/accounts/other-{form}", FORMS[form]([("c", 8, "Socrates", 1)]))
    functions.clock.pass_days(0.001)
    t.delete("value = 'Xanthippe'", mode="erase", request_id="case-1")
    t.refresh()
    [status] = erase_status(t._ctx, landing="ingest/accounts/")
    assert [w.name for w in status.waiting] == [f"ingest/accounts/{form}"]
    functions.clock.pass_days(0.001)
    outcomes = t.ingest(
        [f"memory://{BUCKET}/ingest/accounts/{n}{form}" for n in ("", "other-")]
    ).outcomes
    assert all(isinstance(outcome, Ingested) for outcome in outcomes), outcomes
    t.refresh()
    assert t.scan().to_arrow().column("value").to_pylist() == ["Socrates"]


def test_the_property_names_every_preset() -> None:
    assert set(CHANGE_PRESETS) == set(PRESETS)

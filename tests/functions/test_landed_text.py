"""CSV and JSON files that land: each content becomes its rows once, or is refused with a reason; of records
that are refused one by one nothing is lost."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidRequest, SchemaMismatch, UnreadableFile, UnsupportedFile
from inlay.ops.write.ingest import Duplicate, Ingested, Rejected
from inlay.storage.base import Got

from .conftest import BUCKET, Functions, fresh, landing_message

URI = f"memory://{BUCKET}/tables/people"
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("n", pa.int8())]
)
Record = tuple[str | int | None, str | None, Any]


def create(**properties: object) -> inlay.Table:
    formats = {"ingest.formats": "parquet,csv,json", **properties}
    return inlay.create(URI, SCHEMA, primary_key="id", properties=formats)


def shown() -> list[Record]:
    rows = inlay.open(URI).scan().to_arrow().to_pylist()
    return [(row["id"], row["name"], row["n"]) for row in rows]


def csv(records: Sequence[Record], apart: str = ",") -> bytes:
    def cell(value: Any) -> str:
        return "" if value is None else '"' + str(value).replace('"', '""') + '"'

    lines = [apart.join(SCHEMA.names), *(apart.join(map(cell, record)) for record in records)]
    return "\n".join(lines).encode()


def json_lines(records: Sequence[Record]) -> bytes:
    named = [dict(zip(SCHEMA.names, record, strict=True)) for record in records]
    return "\n".join(json.dumps(record) for record in named).encode()


def zstd(body: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(body)
    return bytes(sink.getvalue())


FORMS = {
    "csv": csv,
    "csv.gz": lambda records: gzip.compress(csv(records)),
    "tsv": lambda records: csv(records, "\t"),
    "jsonl": json_lines,
    "ndjson.zst": lambda records: zstd(json_lines(records)),
}
GOOD = st.tuples(
    st.integers(-(2**63), 2**63 - 1), st.text("aZ é\"',;\n", max_size=5), st.integers(-128, 127)
)
# No id, one that is no number, an n that its type does not hold.
BAD = st.sampled_from([(None, "who", 1), ("x", "who", 1), (1, "who", 128), (1, "who", "1.5")])


@settings(max_examples=25, deadline=None)
@given(data=st.data(), budget=st.sampled_from([0, 1, 3]))
def test_every_record_is_a_row_or_listed_or_its_file_is_refused(data: Any, budget: int) -> None:
    """Whatever is delivered, in any order and as often as it may be: the table has the good records of the
    files within their budget, once, the lists have the others, and the rest are dead letters."""
    with fresh() as functions:
        create(**{"ingest.bad_lines": budget})
        messages, rows, refused, dead = [], [], [], set()
        for number in range(data.draw(st.integers(1, 4))):
            form = data.draw(st.sampled_from(sorted(FORMS)))
            records = data.draw(st.lists(st.one_of(GOOD, GOOD, GOOD, BAD), min_size=1, max_size=8))
            key = f"ingest/people/{number}.{form}"
            message = landing_message(functions, FORMS[form](records), key)
            messages.append(message)
            bad = [place for place, r in enumerate(records, 1) if _is_bad(r)]
            if len(bad) > budget:
                dead.add(message["Records"][0]["messageId"])
            else:
                rows += [r for r in records if not _is_bad(r)]
                refused += [(f"{number}.{form}", place) for place in bad]
        again = data.draw(st.lists(st.sampled_from(messages), max_size=3))
        for message in data.draw(st.permutations([*messages, *again])):
            functions.invoke("ingest", message)
        assert sorted(shown()) == sorted(rows)
        found = list(listed(functions))
        assert sorted((name, place) for name, place, _ in found) == sorted(refused)
        assert all("who" in str(record) for _, _, record in found)
        assert bool(functions.queues.dead) == bool(dead)


def _is_bad(record: Record) -> bool:
    return record[0] in (None, "x") or record[2] in (128, "1.5")


def listed(functions: Functions) -> list[tuple[str, int, Any]]:
    found = []
    for info in functions.store.list("ingest/people/_refused/"):
        name = info.key.rpartition("/")[2].rsplit(".", 2)[0]
        for line in functions.store.get(info.key).body.decode().splitlines():  # type: ignore[union-attr]
            each = json.loads(line)
            assert each["reason"]
            found.append((name, each.get("row") or each["object"], each["record"]))
    return found


REFUSED = [
    ("a.csv", b"id,name\n1,x\nq,y\n", UnreadableFile, "row 2: column 'id' is no int64"),
    ("a.csv", b"id,name\n1,x,2\n", UnreadableFile, "line 2 has 3 fields"),
    ("a.csv", b'id,name\n1,"x\n', UnreadableFile, "a quote is not closed"),
    ("a.csv", b"id,name,other\n1,x,2\n", SchemaMismatch, "lacks: 'other'"),
    ("a.csv", b"name\nx\n", SchemaMismatch, "'id'"),
    ("a.csv", b"id,name\n1,caf\xe9\n", UnreadableFile, "invalid UTF8"),
    ("a.csv.gz", gzip.compress(csv([(1, "x", 1)] * 99), mtime=0)[:-9], UnreadableFile, "Truncated"),
    (
        "a.csv.gz",
        gzip.compress(b"id\n" + b"1\n" * 2**21, mtime=0),
        UnsupportedFile,
        "ingest.text_bytes",
    ),
    ("a.json", b'{"id": 1} {"id": 2', UnreadableFile, "does not parse"),
    ("a.json", b'{"id": 1, "x": 2}', SchemaMismatch, "lacks: 'x'"),
    ("a.jsonl", b'{"id": 1.5}', UnreadableFile, "object 1: 'id' is no int64"),
]


@pytest.mark.parametrize(("name", "body", "error", "said"), REFUSED)
def test_a_text_that_does_not_fit_is_refused_whole_with_its_place(
    functions: Functions, name: str, body: bytes, error: type[Exception], said: str
) -> None:
    t = create(**{"ingest.text_bytes": 2**20})
    functions.store.put(f"ingest/people/{name}", body)
    [outcome] = t.ingest([f"memory://{BUCKET}/ingest/people/{name}"]).outcomes
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, error)
    assert said in str(outcome.error)
    assert not shown()


def test_texts_are_read_as_the_properties_say(functions: Functions) -> None:
    t = inlay.create(
        URI,
        pa.schema([("id", pa.int64()), ("at", pa.date32()), ("region", pa.string())]),
        properties={
            "ingest.formats": "parquet,csv",
            "ingest.columns": "id,at",
            "ingest.delimiter": ";",
            "ingest.null": "NULL,\\N",
            "ingest.encoding": "cp1252",
            "ingest.date_formats": "at=%d.%m.%Y",
            "ingest.folders": "text",
        },
    )
    functions.store.put("ingest/people/region=eu/a.csv", b"1;31.01.2026\n2;NULL\n\\N;1.2.2026\n")
    [outcome] = t.ingest([f"memory://{BUCKET}/ingest/people/region=eu/a.csv"]).outcomes
    assert isinstance(outcome, Ingested), outcome
    t.refresh()
    assert t.scan().to_arrow().cast(
        pa.schema([(n, pa.string()) for n in t.schema.names])
    ).to_pylist() == [
        {"id": "1", "at": "2026-01-31", "region": "eu"},
        {"id": "2", "at": None, "region": "eu"},
        {"id": None, "at": "2026-02-01", "region": "eu"},
    ]


def test_a_table_takes_no_texts_unless_it_says_so(functions: Functions) -> None:
    inlay.create(URI, SCHEMA)
    functions.invoke(
        "ingest", landing_message(functions, csv([(1, "x", 1)]), "ingest/people/a.csv")
    )
    assert functions.queues.errors == ["UnreadableFile"]
    t = inlay.open(URI)
    with pytest.raises(InvalidRequest, match=r"ingest\.formats"):
        t.set_properties(**{"ingest.formats": "csv,avro"})
    t.set_properties(**{"ingest.formats": "parquet,csv"})
    functions.invoke(
        "ingest", landing_message(functions, csv([(1, "x", 1)]), "ingest/people/a.csv")
    )
    assert shown() == [(1, "x", 1)]


def test_a_long_text_is_fetched_in_pieces_and_held_to_its_content(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inlay.ops.write.landed_text.FETCHED_BYTES", 10_000)
    t = create()
    records: list[Record] = [(n, "x" * 50, n % 100) for n in range(5_000)]
    functions.store.put("ingest/people/a.jsonl", json_lines(records))
    uri = f"memory://{BUCKET}/ingest/people/a.jsonl"
    assert isinstance(t.ingest([uri]).outcomes[0], Ingested)
    assert sorted(shown()) == sorted(records)
    assert isinstance(t.ingest([uri]).outcomes[0], Duplicate)


def test_a_text_cannot_be_adopted(functions: Functions) -> None:
    t = create()
    functions.store.put("ingest/people/a.csv", csv([(1, "x", 1)]))
    [outcome] = t.ingest([f"memory://{BUCKET}/ingest/people/a.csv"], adopt=True).outcomes
    assert isinstance(outcome, Rejected) and "adopted" in str(outcome.error)


def test_a_property_says_what_an_overwrite_does(functions: Functions) -> None:
    with pytest.raises(InvalidRequest, match=r"compacted.*changes"):
        create(**{"ingest.overwrite": "replace"})
    t = create(**{"ingest.overwrite": "add"})
    for n in (1, 2):
        functions.invoke(
            "ingest", landing_message(functions, csv([(n, "x", 1)]), "ingest/people/a.csv")
        )
    t.refresh()
    assert sorted(shown()) == [(1, "x", 1), (2, "x", 1)]


def test_a_list_of_refused_records_is_no_news(functions: Functions) -> None:
    """Its own event comes to the function, which takes JSON."""
    create(**{"ingest.bad_lines": 5})
    body = b'{"id": 1, "name": "a"}\n{"id": "x", "name": "b"}\n'
    functions.invoke("ingest", landing_message(functions, body, "ingest/people/a.json"))
    [listed] = functions.store.list("ingest/people/_refused/")
    got = functions.store.get(listed.key)
    assert isinstance(got, Got)
    functions.invoke("ingest", landing_message(functions, got.body, listed.key))
    assert functions.queues.dead == [] and inlay.open(URI).count() == 1
    assert len(list(functions.store.list("ingest/people/"))) == 2

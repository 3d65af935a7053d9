"""Erased from files whose writers name a value where no row has it: categories, ENUMs, attributes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay.ops.maintain.rewrite_file as rewriting
from inlay.errors import UnsupportedFile
from inlay.format.predicate import Comparison, Literal, Predicate
from inlay.format.schema import Primitive
from inlay.ops.context import InlineExecutor
from inlay.ops.metadata.load import load_entries, load_pointer
from inlay.ops.schema.create import create
from inlay.ops.write.ingest import Rejected
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.read.describe import entry_of, parse_object_footer
from inlay.parquet.read.ranges import Objects
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection
from inlay.parquet.surgery.residue import unused_entries
from inlay.plan.scan import FileTask
from inlay.plan.surgery import choose
from inlay.storage.base import Location
from inlay.storage.memory import MemoryStore

from ..surgery import checker, engines, surgeon
from . import categories
from .oracle import Secret, find
from .people import People, in_memory

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("email", pa.string())])
PERSON = categories.PERSON
# The pointer's bounds are the first 16 characters.
SECRETS = (Secret(PERSON), Secret(PERSON[:16]))


def table_of(*bodies: bytes, properties: dict[str, str] | None = None) -> People:
    people = in_memory(5)
    create(people.ctx, SCHEMA, properties=properties or {})
    for n, body in enumerate(bodies):
        people.time.sleep(1)
        people.store.put(f"ingest/people/{n}.parquet", body)
        people.ingest(Location("memory", "b", f"ingest/people/{n}.parquet"))
    return people


def is_person(who: str = PERSON) -> Predicate:
    return Comparison(2, "=", Literal(Primitive("string"), who))


def objects(people: People) -> list[bytes]:
    loaded = load_pointer(people.ctx)
    files = load_entries(people.ctx, loaded.state).files()
    return [people.store.get(people.ctx.key(f.key)).body for f in files]


def emails(body: bytes) -> list[Any]:
    table = pq.read_table(io.BytesIO(body), columns=["id", "email"])
    return sorted(zip(table["id"].to_pylist(), table["email"].to_pylist(), strict=True))


def force(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are rewritten whole; these tests want both ways."""

    def chosen(*args: Any, **options: Any) -> Any:
        return choose(*args, **{**options, "strategy": way})

    monkeypatch.setattr(rewriting, "choose", chosen)


@pytest.mark.parametrize("way", ["surgery", "rewrite"])
@pytest.mark.parametrize("has_person", [True, False], ids=["a row", "no row"])
@pytest.mark.parametrize("name", [*categories.WRITERS, "attributes"])
def test_nothing_is_left_of_a_person_in_any_row_group(
    name: str, has_person: bool, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(way, monkeypatch)
    writer = categories.WRITERS.get(name, categories.with_attributes)
    body = writer(has_person)
    people = table_of(body)
    expected = [row for row in emails(body) if row[1] != PERSON]
    people.erase(is_person())
    result = people.finish()
    assert result.receipts
    assert find(people.store, *SECRETS) == []
    [left] = objects(people)
    assert emails(left) == expected
    assert checker.kinds(left) <= checker.kinds(body)
    path = tmp_path / "left.parquet"
    path.write_bytes(left)
    for reader in engines.READERS.values():
        found = reader(path)
        assert found.num_rows == len(expected)
        seen = sorted(str(value).strip("'") for value in found["email"].to_pylist())
        assert seen == sorted(str(value) for _, value in expected)


@pytest.mark.parametrize("way", ["surgery", "rewrite"])
@pytest.mark.parametrize("name", categories.WRITERS)
def test_what_her_row_had_in_other_columns_leaves_every_row_group(
    name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The condition names her row by its key; her e-mail is in the dictionaries of other groups."""
    force(way, monkeypatch)
    body = categories.WRITERS[name](True)
    people = table_of(body)
    people.erase(Comparison(1, "=", Literal(Primitive("int64"), 0)))
    assert people.finish().receipts
    assert find(people.store, *SECRETS) == []
    [left] = objects(people)
    assert emails(left) == emails(body)[1:]


def test_dictionaries_within_lists_and_maps_are_no_exception() -> None:
    tags = pa.array([[PERSON], None, [], ["b", None]] * 10 + [["a", "b"]] * 40)
    coded = tags.values.dictionary_encode()
    offsets = tags.offsets
    lists = pa.ListArray.from_arrays(offsets, coded, mask=tags.is_null())
    pairs = pa.array([[("k", i)] for i in range(80)], pa.map_(pa.string(), pa.int64()))
    table = pa.table({"id": range(80), "tags": lists, "pairs": pairs})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=40)
    found = unused(sink.getvalue(), pa.schema([("id", pa.int64())]), extra_columns=True)
    assert list(found) == [(0, "tags.list.element"), (1, "tags.list.element")]


ENTRIES = "ingest.unused_dictionary_entries"


@pytest.mark.parametrize("name", categories.WRITERS)
def test_a_table_may_write_such_files_again_when_they_come(name: str) -> None:
    body = categories.WRITERS[name](True)
    [left] = objects(table_of(body, properties={ENTRIES: "reencode"}))
    [same] = objects(table_of(body, properties={"erasure.promised": "yes"}))
    assert emails(left) == emails(same) == emails(body)
    assert list(unused(same)) == []
    assert objects(table_of(body)) == [body]
    # The only row of hers is the first.
    footer = pq.read_metadata(io.BytesIO(left))
    assert left.count(PERSON.encode()) <= 3 and footer.num_rows == len(emails(body))
    assert list(unused(left)) == []
    assert {column for _, column in unused(body)} == {"email"}


def test_a_table_may_refuse_such_files_by_name() -> None:
    people = table_of(properties={ENTRIES: "refuse"})
    people.store.put("ingest/people/x.parquet", categories.by_polars(True))
    for adopt in (False, True):
        [outcome] = people.ingest(
            Location("memory", "b", "ingest/people/x.parquet"), adopt=adopt
        ).outcomes
        assert isinstance(outcome, Rejected) and isinstance(outcome.error, UnsupportedFile)
        assert "column email" in outcome.error.message


@pytest.mark.parametrize("policy", ["reencode", "refuse"])
def test_files_without_such_entries_are_copied_by_the_server(policy: str) -> None:
    sink = io.BytesIO()
    table = pa.table({"id": range(200), "email": categories.emails(200, has_person=True)})
    pq.write_table(table, sink, row_group_size=50)
    [left] = objects(table_of(sink.getvalue(), properties={ENTRIES: policy}))
    assert left == sink.getvalue()


def unused(body: bytes, arrow: pa.Schema = SCHEMA, **options: Any) -> Any:
    store = MemoryStore("b")
    store.put("x", body)
    described = parse_object_footer(body, size=len(body))
    schema = schema_from_arrow(arrow)
    entry, _ = entry_of(
        described, key="x", size=len(body), schema=schema, stats_columns=(), **options
    )
    objects, task = Objects(store, ""), FileTask(file=entry, schema=schema)
    opened = Reader(objects, InlineExecutor()).open(task, Projection(schema=schema, columns=()))
    return unused_entries(opened, InlineExecutor())


def test_fastparquet_reads_right_rows_after_one_group_of_a_category_was_cut(tmp_path: Path) -> None:
    """It takes the dictionary of one row group for that of all, where pandas' metadata says category."""
    for name in ("pandas", "fastparquet"):
        body = categories.WRITERS[name](True)
        footer = decode_footer(body, file_size=len(body))
        keep = [n % 3 != 0 for n in range(50)]
        _, new = surgeon.operate(body, {1: keep})
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(new)
        expected = [e for n, (_, e) in enumerate(emails(body)) if n // 50 != 1 or keep[n % 50]]
        assert footer.num_rows == 200
        found = engines.by_fastparquet(path)["email"].to_pylist()
        assert [text.strip("'") for text in found] == expected
        assert pd.read_parquet(path)["email"].astype(str).tolist() == expected

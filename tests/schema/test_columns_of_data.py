"""Data with additional columns, for tables that accept them (`schema.evolve`)."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.schema.conftest import again, rows_of, table_of

import inlay
from inlay.errors import SchemaMismatch
from inlay.ops.write.append import IngestSource
from inlay.ops.write.ingest import Ingested, Rejected, ingest
from inlay.storage.base import Location

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int32())]))])


def growing() -> inlay.Table:
    return table_of(SCHEMA, properties={"schema.evolve": "add"})


def landed(table: inlay.Table, name: str, rows: pa.Table) -> IngestSource:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    store = table._ctx.store
    store.put(f"in/{name}", sink.getvalue())
    return IngestSource(Location("memory", store.bucket, f"in/{name}"))


def test_by_default_data_with_other_columns_is_refused() -> None:
    table = table_of(SCHEMA)
    with pytest.raises(SchemaMismatch, match="the table lacks: 'n'"):
        table.append(pa.table({"id": [1], "n": [2]}))


@pytest.mark.parametrize("as_stream", [False, True])
def test_an_append_adds_the_columns_it_brings_at_any_depth(as_stream: bool) -> None:
    table = growing()
    table.append(pa.table({"id": [1]}))
    data: Any = pa.Table.from_pylist([{"id": 2, "n": 0.5, "s": {"x": 1, "y": "q"}}])
    table.append(data.to_reader() if as_stream else data)
    assert rows_of(table) == [
        {"id": 1, "s": None, "n": None},
        {"id": 2, "s": {"x": 1, "y": "q"}, "n": 0.5},
    ]


def test_required_columns_of_data_become_optional_ones() -> None:
    table = growing()
    schema = pa.schema([("id", pa.int64()), pa.field("n", pa.int8(), nullable=False)])
    table.append(pa.table({"id": [1], "n": pa.array([1], pa.int8())}, schema=schema))
    assert table.schema.field("n").nullable


def test_two_writers_that_bring_columns_both_get_them() -> None:
    table = growing()
    other = again(table)
    table.append(pa.table({"id": [1], "n": [2]}))
    other.append(pa.table({"id": [2], "n": [3], "m": ["x"]}))
    assert rows_of(other) == [
        {"id": 1, "s": None, "n": 2, "m": None},
        {"id": 2, "s": None, "n": 3, "m": "x"},
    ]


def test_ingest_adds_columns_of_files_that_fit_and_of_no_others() -> None:
    table = growing()
    sources = [
        landed(table, "plain", pa.table({"id": [1]})),
        landed(table, "wider", pa.table({"id": [2], "n": [5]})),
        landed(table, "unfit", pa.table({"id": ["two"], "poison": [1]})),
        landed(table, "other", pa.table({"id": [3], "n": ["text"], "m": [1]})),
    ]
    outcomes = ingest(table._ctx, sources).outcomes
    assert [type(o) for o in outcomes] == [Ingested, Ingested, Rejected, Rejected]
    table.refresh()
    assert "poison" not in table.schema.names
    assert [(row["id"], row["n"]) for row in rows_of(table)] == [(1, None), (2, 5)]


def test_a_type_no_table_can_hold_rejects_its_file_alone() -> None:
    table = growing()
    sources = [
        landed(table, "odd", pa.table({"id": [1], "d": pa.array([1], pa.float16())})),
        landed(table, "fine", pa.table({"id": [2], "n": [5]})),
    ]
    outcomes = ingest(table._ctx, sources).outcomes
    assert [type(o) for o in outcomes] == [Rejected, Ingested]


def test_the_index_of_a_pandas_frame_is_named_as_what_it_is() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [1, 2, 3]})
    with pytest.raises(SchemaMismatch, match="a column that the table lacks") as caught:
        table_of(pa.schema([("id", pa.int64())])).append(frame[frame.id > 1])
    assert "reset_index(drop=True)" in caught.value.next_step

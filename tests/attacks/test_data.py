"""Data that does not fit is refused, never cut to size without a word."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.table import Table

INNER = pa.struct([("a", pa.int32())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("s", INNER),
        ("l", pa.list_(INNER)),
        ("m", pa.map_(pa.string(), INNER)),
    ]
)
WIDER = pa.struct([("a", pa.int32()), ("b", pa.int32())])


@pytest.fixture
def table() -> Table:
    return inlay.create(f"memory://attacks/{uuid.uuid4().hex}", SCHEMA, primary_key="id")


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (("s", pa.array([{"a": 1, "b": 2}], WIDER)), "s.b"),
        (("l", pa.array([[{"a": 1, "b": 2}]], pa.list_(WIDER))), "l.element.b"),
        (("l", pa.array([[{"a": 1, "b": 2}]], pa.large_list(WIDER))), "l.element.b"),
        (("m", pa.array([[("k", {"a": 1, "b": 2})]], pa.map_(pa.string(), WIDER))), "m.value.b"),
    ],
    ids=["struct", "list", "large list", "map"],
)
def test_a_nested_field_the_table_lacks(
    table: Table, column: tuple[str, pa.Array], named: str
) -> None:
    data = pa.table({"id": [1], column[0]: column[1]})
    for write in (table.append, table.upsert):
        with pytest.raises(SchemaMismatch, match=named):
            write(data)
    assert inlay.open(table.uri).version == 1


def test_two_columns_of_one_name(table: Table) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    for write in (table.append, table.upsert):
        with pytest.raises(SchemaMismatch, match="the same name"):
            write(twice)


def test_a_nested_field_the_data_lacks_is_null(table: Table) -> None:
    wide = inlay.create(f"{table.uri}-wide", pa.schema([("s", WIDER)]))
    wide.append(pa.table({"s": pa.array([{"a": 1}], INNER)}))
    assert wide.scan().to_arrow()["s"].to_pylist() == [{"a": 1, "b": None}]


@pytest.mark.parametrize("sort_by", [[], ["t"]])
def test_a_value_that_parquet_has_no_place_for(table: Table, sort_by: list[str]) -> None:
    schema = pa.schema([("id", pa.int64()), ("t", pa.timestamp("s"))])
    far = inlay.create(f"{table.uri}-far-{len(sort_by)}", schema, sort_by=sort_by)
    rows = pa.table({"id": [1, 2], "t": pa.array([0, 2**60], pa.timestamp("s"))})
    with pytest.raises(InvalidRequest, match="cannot be written as Parquet"):
        far.append(rows)
    assert inlay.open(far.uri).version == 1
    far.append(rows.slice(0, 1))
    assert far.count() == 1

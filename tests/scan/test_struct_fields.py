"""Fields of structs: their own chunks are read, and the rows are those of the whole struct."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.format.entry import Marker, Where
from inlay.format.predicate import Comparison, Literal
from inlay.format.schema import Primitive
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.read.data_file import chunk_range
from inlay.parquet.read.selection import PredicateFilter, Projection, narrowed
from inlay.parquet.read.statistics import cut_to, locate_columns
from inlay.plan.scan import FileTask

ROWS = 20_000
STRUCT = pa.struct(
    [
        ("a", pa.int64()),
        ("big", pa.string()),
        ("n", pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ]
)


def row(n: int) -> dict[str, Any] | None:
    inner = None if n % 5 == 0 else {"x": n, "y": os.urandom(32).hex()}
    return None if n % 7 == 0 else {"a": n, "big": os.urandom(32).hex(), "n": inner}


TABLE = pa.table(
    {"id": pa.array(range(ROWS)), "s": pa.array([row(n) for n in range(ROWS)], STRUCT)}
)
SCHEMA = schema_from_arrow(TABLE.schema)
IDS = {".".join(path): field.id for path, field in SCHEMA.walk()}


@pytest.fixture
def task(lake: Any) -> FileTask:
    [entry] = lake.write(TABLE, compression="none", row_group_rows=ROWS, row_group_bytes=1 << 30)
    lake.store.reads.clear()
    return FileTask(file=entry, schema=SCHEMA)


def chunk(lake: Any, task: FileTask, *paths: str) -> int:
    group = pq.read_metadata(pa.BufferReader(lake.body(task.file.key))).row_group(0)
    columns = [group.column(n) for n in range(group.num_columns)]
    return sum(chunk_range(c).length for c in columns if c.path_in_schema in paths)


def over(path: str, value: int) -> Comparison:
    return Comparison(IDS[path], ">", Literal(Primitive("int64"), value))


def test_a_field_costs_its_own_chunk(lake: Any, task: FileTask) -> None:
    projection = Projection(schema=SCHEMA, columns=(IDS["s"],), fields=frozenset([IDS["s.a"]]))
    batches = list(lake.reader.rows([task], projection))
    found = pa.Table.from_batches(batches).column("s")
    assert found.type.num_fields == 1
    assert pa.compute.struct_field(found, [0]).equals(pa.compute.struct_field(TABLE["s"], [0]))
    assert lake.store.bytes_read == chunk(lake, task, "s.a") + task.file.footer_size


def test_a_condition_on_a_field_reads_its_chunk_and_no_other(lake: Any, task: FileTask) -> None:
    projection = Projection(schema=SCHEMA, columns=(), where=PredicateFilter(over("s.n.x", 1_000)))
    [(_, rows)] = lake.reader.counts([task], projection)
    assert rows == sum(n > 1_000 and n % 35 and n % 5 != 0 and n % 7 != 0 for n in range(ROWS))
    least = chunk(lake, task, "s.n.x") + task.file.footer_size
    assert least <= lake.store.bytes_read < least + chunk(lake, task, "s.a")


def test_a_struct_is_cut_to_the_leaves_that_are_used_unless_one_of_them_is_missing() -> None:
    """Then, and where it has lists, all of its leaves say where it is NULL."""
    listed = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.int64()))])
    whole = pa.schema([("id", pa.int64()), ("s", STRUCT), ("z", listed)])
    schema = schema_from_arrow(whole)

    def leaves(fields: list[str], file: pa.Schema = whole) -> dict[str, list[int]]:
        used = frozenset(
            i for i in schema.fields_by_id if ".".join(schema.path_of(i) or ()) in fields
        )
        cut = narrowed(Projection(schema=schema, columns=(), fields=used), ())
        found = cut_to(locate_columns(file, schema), cut.schema)
        return {schema.fields_by_id[i].name: list(top.leaves) for i, top in found.tops.items()}

    everything = {"id": [0], "s": [1, 2, 3, 4], "z": [5, 6]}
    assert leaves(["id", "s", "z"]) == everything
    assert leaves(["s.a"]) == everything | {"s": [1]}
    assert leaves(["s.n.y", "s.big"]) == everything | {"s": [2, 4]}
    assert leaves(["z.a"]) == everything | {"z": [5]}
    assert leaves(["z.a", "z.l"]) == leaves(["z.l"]) == everything
    older = pa.schema(
        [("id", pa.int64()), ("s", pa.struct([("a", pa.int64()), ("b", pa.int64())]))]
    )
    assert leaves(["s.a"], older) == {"id": [0], "s": [1]}
    assert leaves(["s.a", "s.big"], older) == {"id": [0], "s": [1, 2]}


def test_a_delete_that_looks_at_another_field_reads_that_too(lake: Any, task: FileTask) -> None:
    marker = Marker(id="m", body=Where(over("s.n.x", 1_000)), file=task.file.key)
    hit = FileTask(file=task.file, schema=SCHEMA, markers=(marker,))
    projection = Projection(schema=SCHEMA, columns=(IDS["s"],), fields=frozenset([IDS["s.a"]]))
    batches = list(lake.reader.rows([hit], projection))
    values = pa.compute.struct_field(pa.Table.from_batches(batches).column("s"), "a").to_pylist()
    kept = [n for n in range(ROWS) if not (n > 1_000 and n % 5 and n % 7)]
    assert values == [n if n % 7 else None for n in kept]
    assert lake.store.bytes_read < chunk(lake, task, "s.big")


PATHS = ["id", "s", "s.a", "s.big", "s.n", "s.n.x", "s.n.y"]
VALUES = st.none() | st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(0, 9),
        "big": st.none() | st.sampled_from("xyz"),
        "n": st.none()
        | st.fixed_dictionaries(
            {"x": st.none() | st.integers(0, 9), "y": st.none() | st.sampled_from("xyz")}
        ),
    }
)
WHERE = st.sampled_from(
    [
        "TRUE",
        "s.a > 4",
        "s.n.x = 3",
        "s IS NULL",
        "s.n IS NOT NULL",
        "s.a + s.n.x > 6",
        "s.big = 'x'",
    ]
)


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = None if value is None else value[part]
    return value


@settings(max_examples=60, deadline=None)
@given(
    st.lists(VALUES, min_size=1, max_size=20),
    st.lists(st.sampled_from(PATHS), min_size=1, max_size=3, unique=True),
    WHERE,
    WHERE,
    st.booleans(),
)
def test_fields_are_those_of_the_whole_rows(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[Any],
    columns: list[str],
    where: str,
    gone: str,
    evolved: bool,
) -> None:
    place = Path(tmp_path_factory.mktemp("t")) / "t"
    t = inlay.create(str(place), TABLE.schema)
    t.append(pa.table({"id": range(len(values)), "s": pa.array(values, STRUCT)}))
    if gone != "TRUE":
        t.delete(gone)
    if evolved:
        t.alter(rename={"s": "r"})
        t.alter(rename={"r": "s"})
    whole = t.scan(where=where).to_arrow().to_pylist()
    assert t.scan(columns=columns, where=where).to_arrow().to_pylist() == [
        {path: at(found, path) for path in columns} for found in whole
    ]
    assert t.scan(columns=columns, where=where).count() == len(whole)
    first = t.scan(where=where, order_by="id", limit=3).to_arrow().to_pylist()
    assert t.scan(columns=columns, where=where, order_by="id", limit=3).to_arrow().to_pylist() == [
        {path: at(found, path) for path in columns} for found in first
    ]


def test_a_projection_is_the_same_one_unless_a_file_has_values_in_its_partition() -> None:
    """It keeps what was calculated for it; else its schema is the file's, and nothing else of it."""
    schema = schema_from_arrow(pa.schema([("id", pa.int64()), ("day", pa.date32())]))
    with_values = schema_from_arrow(pa.schema([("id", pa.int64())]))
    projection = Projection(schema=schema, columns=(1,), position=True)
    plain, partitioned = Mock(), Mock()
    plain.with_values.return_value = schema
    partitioned.with_values.return_value = with_values
    assert projection.of(plain) is projection
    assert projection.of(partitioned) == replace(projection, schema=with_values)

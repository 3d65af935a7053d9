"""Names of columns are read in one way wherever they are asked for."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay.cli.options import split_names
from inlay.errors import InlayError
from inlay.format.partition import Transform
from inlay.format.schema import Field, Primitive, Schema, Struct, split_path
from inlay.format.snapshot import PartitionField, PartitionSpec
from inlay.parse.grammar import quote_path
from inlay.parse.partitioning import partition_fields, spec_text

ODD = [
    "a b",
    "",
    " ts",
    "ts",
    'q"x',
    "x.y",
    "Case",
    "case",
    "a,b",
    "day(ts)",
    "select",
    "é",
    "=",
    "'",
]
SCHEMA = pa.schema([(name, pa.int64()) for name in ODD])


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def a_table(**options: object) -> inlay.Table:
    return inlay.create(f"memory://{uuid.uuid4().hex}/t", SCHEMA, **options)  # type: ignore[arg-type]


def altered(table: inlay.Table, **options: object) -> inlay.Table:
    table.alter(**options)  # type: ignore[arg-type]
    return table


# Where a name is given, and the name of the column that was taken for it.
ID = {name: n + 1 for n, name in enumerate(ODD)}
PLACES: dict[str, Callable[[str], object]] = {
    "columns": lambda n: ID[a_table().scan(columns=[n]).schema.names[0]],
    "primary_key": lambda n: a_table(primary_key=[n]).snapshot.primary_key[0],
    "sort_by": lambda n: a_table(sort_by=[n]).snapshot.sort_by[0],
    "partition_by": lambda n: a_table(partition_by=[n]).snapshot.spec.fields[0].source,
    "bucket": lambda n: (
        a_table(partition_by=[f"bucket(4, {quoted_once(n)})"]).snapshot.spec.fields[0].source
    ),
    "alter key": lambda n: altered(a_table(), primary_key=[n]).snapshot.primary_key[0],
    "comment": lambda n: next(
        f.id for f in altered(a_table(), comment={n: "x"}).snapshot.schema.fields if f.doc
    ),
    "update": lambda n: updated(n),
    "upsert": lambda n: upserted(n),
    "command": lambda n: ID[a_table().scan(columns=split_names([quoted_once(n)])).schema.names[0]],
}


def quoted_once(name: str) -> str:
    return name if name.startswith('"') and name.endswith('"') else quoted(name)


def updated(name: str) -> int:
    table = a_table()
    table.append(pa.table([[0]] * len(ODD), schema=SCHEMA))
    table.refresh().update({name: "7"})
    [row] = table.refresh().scan().to_arrow().to_pylist()
    return next(ID[column] for column, value in row.items() if value == 7)


def upserted(name: str) -> int:
    table = a_table()
    table.append(pa.table([[n] for n in range(len(ODD))], schema=SCHEMA))
    one = pa.table([[n + 100] for n in range(len(ODD))], schema=SCHEMA)
    # Replaced by the column that is the same in both.
    for at, column in enumerate(ODD):
        same = one.set_column(at, column, pa.array([at]))
        table.upsert(same, on=[name])
        if table.refresh().count() == 1:
            return ID[column]
        table.delete(f"{quoted(column)} = {at} AND {quoted(ODD[at - 1])} > 99")
        table.refresh()
    raise AssertionError("no column was matched on")


@pytest.mark.parametrize("place", PLACES)
def test_a_name_is_exact_or_quoted_wherever_it_is_given(place: str) -> None:
    for name in ODD:
        # day(ts) is a transform where there is a column ts.
        if place not in ("bucket", "command") and (place, name) != ("partition_by", "day(ts)"):
            assert PLACES[place](name) == ID[name], name
        assert PLACES[place](quoted(name)) == ID[name], quoted(name)


def test_sql_reads_a_column_without_a_name() -> None:
    table = a_table()
    table.append(pa.table([[n] for n in range(len(ODD))], schema=SCHEMA))
    for n, name in enumerate(ODD):
        assert table.refresh().count(where=f"{quoted(name)} = {n}") == 1
        assert table.scan(order_by=quoted(name), limit=1).to_arrow().num_rows == 1


# An update takes a bare name in any case, as SQL does.
@pytest.mark.parametrize("place", [p for p in PLACES if p not in ("command", "update")])
def test_another_case_is_said_to_be_one(place: str) -> None:
    with pytest.raises(InlayError, match=r"'select'\? The case of names counts here"):
        PLACES[place](quoted("SELECT") if place == "bucket" else "SELECT")


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(st.lists(NAMES, min_size=1, max_size=4, unique=True), st.integers(0, 3))
def test_every_path_is_named_by_its_quoted_form(names: list[str], at: int) -> None:
    kind = Primitive("int64")
    fields = tuple(Field(n + 10, name, kind) for n, name in enumerate(names))
    schema = Schema(0, (*(Field(n + 1, name, kind) for n, name in enumerate(names)),))
    nested = Schema(0, (Field(1, names[0], Struct(fields)),))
    name = names[at % len(names)]
    assert schema.path_named(name) == (name,)
    if schema.column(quoted(name)) is None:
        assert schema.path_named(quoted(name)) == (name,)
    path = (names[0], name)
    assert split_path(".".join(map(quoted, path))) == path
    assert nested.path_named(".".join(map(quoted, path))) == path
    assert split_path(quote_path(path)) == path


@given(
    st.lists(NAMES, min_size=1, max_size=4, unique=True), st.sampled_from(["identity", "bucket"])
)
def test_a_spec_is_read_back_from_its_text(names: list[str], transform: str) -> None:
    schema = Schema(
        0, tuple(Field(n + 1, name, Primitive("int64")) for n, name in enumerate(names))
    )
    width = 4 if transform == "bucket" else 0
    for field in schema.fields:
        made = str(Transform(transform, width))  # type: ignore[arg-type]
        spec = PartitionSpec(1, (PartitionField(field.id, made, "x"),))
        text = spec_text(spec, schema)
        [found] = partition_fields(text, schema)
        assert (found.source, found.transform) == (field.id, made), text

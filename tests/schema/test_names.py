"""Names of columns are read in one way wherever they are asked for."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.cli.columns import _column as added_column
from inlay.cli.options import assignments, split_names, split_partitions
from inlay.errors import InlayError
from inlay.format.partition import Transform
from inlay.format.predicate import Comparison
from inlay.format.properties import Properties
from inlay.format.schema import Field, Primitive, Schema, Struct, listed_names, split_path
from inlay.format.snapshot import PartitionField, PartitionSpec, Snapshot
from inlay.ops.data import _bloom_columns
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.read.scan import checked_columns
from inlay.ops.read.top_n import parse_order
from inlay.ops.schema.alter import evolution_of, parse_path
from inlay.ops.schema.create import _column_ids
from inlay.ops.write.apply_changes import _order_names
from inlay.ops.write.ingest import Rejected
from inlay.ops.write.keyed_rows import key_names
from inlay.parse.condition import parse_condition
from inlay.parse.grammar import quote_path
from inlay.parse.partitioning import partition_fields, spec_text
from inlay.parse.setters import parse_assignments
from inlay.plan.maintain.order import order_of
from inlay.plan.metadata.state import State
from inlay.plan.schema_evolution import field_at, key_after

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


def rows_named(name: str) -> pa.Table:
    return pa.table({name: [1], "at": [1]})


def landed(table: inlay.Table, rows: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    table._ctx.store.put("landed.parquet", sink.getvalue().to_pybytes())
    [outcome] = table.ingest([f"memory://{table._ctx.store.bucket}/landed.parquet"]).outcomes
    if isinstance(outcome, Rejected):
        raise outcome.error


DATA: dict[str, Callable[[inlay.Table], object]] = {
    "append": lambda t: t.append(rows_named("ID")),
    "upsert": lambda t: t.upsert(rows_named("ID")),
    "overwrite": lambda t: t.overwrite(rows_named("ID")),
    "ingest": lambda t: landed(t, rows_named("ID")),
    "changes": lambda t: t.apply_changes(rows_named("ID"), order="at"),
    "order of changes": lambda t: t.apply_changes(rows_named("id"), order="Id"),
    "delete by keys": lambda t: t.delete(keys={"Id": [1]}),
    "erase by keys": lambda t: t.delete(keys={"Id": [1]}, mode="erase"),
    "a default": lambda t: t.alter(defaults={"Id": 1}),
}


@pytest.mark.parametrize("way", sorted(DATA))
def test_data_with_names_in_another_case_is_said_to_be_one(way: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64())])
    table = inlay.create(f"memory://{uuid.uuid4().hex}/t", schema, primary_key="id")
    table.append(rows_named("id"))
    with pytest.raises(InlayError, match=r"'id'\? The case of names counts here"):
        DATA[way](inlay.open(table.uri))


def test_a_nested_name_is_said_with_its_path_and_a_name_that_is_given_is_no_hint() -> None:
    place = pa.struct([("Zip", pa.string())])
    schema = pa.schema([("id", pa.int64()), ("place", place)])
    table = inlay.create(f"memory://{uuid.uuid4().hex}/t", schema)
    with pytest.raises(InlayError, match=r"Did you mean 'place\.Zip'\?"):
        table.append(pa.table({"id": [1], "place": [{"zip": "x"}]}))
    with pytest.raises(InlayError, match="Drop them from the data"):
        table.append(pa.table({"id": [1], "ID": [1]}))


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


# Names that are easily taken for others: twins by case, by blanks, by quotes; words and signs of SQL.
TRICKY = st.sampled_from(
    ["ts", " ts", "ts ", "\tts", "TS", '"ts"', '" ts"', "day(ts)", "identity(ts)", "a.b", '"a"."b"']
) | st.sampled_from(
    ["a", "b", "a,b", "a=b", "", '""', '"', "NULL", "select", "ts DESC", "ts NULLS FIRST", "ſ", "S"]
)
TRICKY |= st.text(" \"tsTS.,()'", max_size=5)


def one_of(places: tuple[int, ...]) -> int:
    [place] = places
    return place


def ordered_by(asked: str | list[str], schema: Schema) -> int:
    [key] = parse_order(asked, schema)
    return key.field_id


def clustered_by(text: str, schema: Schema) -> int:
    properties = {"compact.columns": text, "compact.strategy": "sort"}
    order = order_of(snapshot_of(schema, **properties))
    assert order is not None
    return one_of(order.columns)


def partitioned(texts: list[str], schema: Schema) -> int:
    [field] = partition_fields(texts, schema)
    return field.source


def assigned(names: dict[str, str], schema: Schema) -> int:
    [made] = parse_assignments(names, schema)
    return made.field_id


def by_evolution(kind: str, asked: Any, schema: Schema) -> int:
    found = evolution_of(schema, **{kind: asked})
    [path] = {
        "drop": found.drop,
        "optional": found.optional,
        "order": found.order,
        "comment": tuple(path for path, _ in found.comment),
        "rename": tuple(path for path, _ in found.rename),
    }[kind]
    return field_at(schema, path).id


def compared(schema: Schema, where: str) -> int:
    predicate = parse_condition(where, schema).predicate
    return one_of(tuple(p.field_id for p in [predicate] if isinstance(p, Comparison)))


def id_in(names: Sequence[str], schema: Schema) -> int:
    return schema.fields[schema.names.index(one_of(tuple(names)))].id


def snapshot_of(schema: Schema, **properties: str) -> Snapshot:
    return replace(EMPTY.snapshot, schemas=(schema,), schema_id=schema.id, properties=properties)


def loaded(schema: Schema) -> LoadedTable:
    return replace(EMPTY._loaded, state=State(snapshot_of(schema)))


EMPTY = inlay.create(f"memory://{uuid.uuid4().hex}/t", SCHEMA)

# Where a name is asked for by itself: its exact name or one in double quotes, case and blanks count.
EXACT: dict[str, Callable[[str, Schema], int]] = {
    "key": lambda n, s: one_of(_column_ids(s, [n], "primary_key", "t")),
    "later key": lambda n, s: one_of(key_after(s, [n])),
    "columns": lambda n, s: s.fields[s.names.index(one_of(checked_columns([n], s)))].id,
    "columns, paths": lambda n, s: (
        s.fields[s.names.index(one_of(checked_columns([n], s, paths=True)))].id
    ),
    "partition": lambda n, s: partitioned([n], s),
    **{
        kind: lambda n, s, kind=kind: by_evolution(kind, [n], s)
        for kind in ("drop", "optional", "order")
    },
    "comment": lambda n, s: by_evolution("comment", {n: "x"}, s),
    "rename": lambda n, s: by_evolution("rename", {n: "x"}, s),
    "matched on": lambda n, s: id_in(key_names(EMPTY._ctx, loaded(s), [n], "upsert"), s),
    "changes": lambda n, s: id_in(_order_names(EMPTY._ctx, s, [n], []), s),
}
# Where a text lists names or begins with one: blanks around it are no part of it, unless in quotes.
LISTED: dict[str, Callable[[str, Schema], int]] = {
    "--columns": lambda n, s: EXACT["columns"](one_of(tuple(split_names([n]))), s),
    "--partition-by": lambda n, s: partitioned(list(split_partitions([n])), s),
    "property": clustered_by,
    "filters": lambda n, s: one_of(
        _bloom_columns(snapshot_of(s), Properties({"write.bloom_filters": one_of(listed_names(n))}))
    ),
    "--comment": lambda n, s: by_evolution("comment", assignments([n + "=x"], "x"), s),
    "--add": lambda n, s: field_at(s, parse_path(added_column(n + " int")[0], s)).id,
}
# SQL: a bare name in any case, if only one column has it.
SQL: dict[str, Callable[[str, Schema], int]] = {
    "where": lambda n, s: compared(s, f"{n} = 1"),
    "order_by": ordered_by,
    "order_by, listed": lambda n, s: ordered_by([n], s),
    "update": lambda n, s: assigned({n: "1"}, s),
    "--set": lambda n, s: assigned(assignments([n + "=1"], "--set"), s),
}


def readings(text: str, schema: Schema, place: str) -> set[str]:
    """The columns that `text` may stand for at a place; it may also be refused."""
    listed = (place in LISTED and place not in ("--comment", "--add")) or place == "order_by"
    bare = text if place in EXACT else text.strip(", \t" if listed else None)
    if place in ("--comment", "--set") and '"' not in bare:
        bare = bare.partition("=")[0].strip()
    in_text = place in LISTED or place in ("where", "--set")
    exact = {bare if in_text else text} & set(schema.names)
    exact = exact if place != "where" or '"' not in bare else set()  # there quotes are SQL's
    [*path] = split_path(bare) or ()
    said = exact or {bare, *path[:1]} if len(path) == 1 else exact or {bare}
    # A transform, or an order, of what is named.
    for inner in (bare[4:-1], bare[9:-1], bare.removesuffix("DESC").removesuffix("NULLS FIRST")):
        if inner != bare and ("artition" in place or (place in SQL and not exact)):
            said |= {inner.strip(), *((split_path(inner.strip()) or ())[:1])}
    if place in SQL:
        folded = {name.casefold() for name in (*said, text)}
        said |= {name for name in schema.names if name.casefold() in folded}
    return said & set(schema.names)


@settings(derandomize=True)  # `readings` errs where one sign has two meanings: a "," as a name, say
@given(st.lists(TRICKY, min_size=1, max_size=5, unique=True), TRICKY, st.booleans())
def test_every_place_takes_the_column_that_is_named_or_none(
    names: list[str], text: str, in_quotes: bool
) -> None:
    kind = Primitive("int64")
    schema = Schema(0, tuple(Field(n, name, kind) for n, name in enumerate(names, 1)))
    asked = quoted(text) if in_quotes else text
    for place, take in {**EXACT, **LISTED, **SQL}.items():
        allowed = readings(asked, schema, place)
        try:
            taken = schema.names[take(asked, schema) - 1]
        except (InlayError, ValueError):
            # Refused; but a column is always named by its quoted form, and in most places exactly.
            must = (in_quotes and schema.column(asked) is None) or (
                place in EXACT and "(" not in text
            )
            assert not (must and (text if in_quotes else asked) in schema.names), (place, asked)
        else:
            assert taken in allowed, (place, asked, taken, allowed)


# -- names that Arrow reads as paths --------------------------------------------------------------


@pytest.mark.parametrize("name", [".", ".a", ".a.b", "[0]", "..a"])
def test_a_name_that_begins_with_a_dot_is_no_path(name: str) -> None:
    """Arrow takes `.a` for the column `a` where it groups and sorts by names."""
    rows = pa.table({name: [3, 1, 2, 2], "a": [1, 1, 2, 3], "v": [7, 8, 9, 10]})
    table = inlay.create(
        f"memory://dots/{uuid.uuid4().hex}", rows.schema, primary_key=[name, "a"], sort_by=[name]
    )
    table.append(rows)
    assert table.scan().to_arrow()[name].to_pylist() == [1, 2, 2, 3]
    table.upsert(pa.table({name: [2, 2], "a": [2, 4], "v": [90, 91]}))
    table.apply_changes(pa.table({name: [5], "a": [4], "v": [1]}), order="v")
    # One pair of keys for each value of "a" would miss the second.
    table.delete(keys=pa.table({name: [2, 2, 2], "a": [2, 3, 3]}))
    table.delete(keys=pa.table({name: [1, 3], "a": [1, 1]}))
    table.refresh()
    assert sorted(table.scan(columns=[name, "a"]).to_arrow().to_pylist(), key=str) == [
        {name: 2, "a": 4},
        {name: 5, "a": 4},
    ]
    table.append(rows)
    table.maintain.compact()
    table.refresh()
    assert table.scan(columns=[name]).to_arrow()[name].to_pylist() == [1, 2, 2, 2, 3, 5]


def test_fields_of_an_envelope_are_told_by_place() -> None:
    rows = pa.array(
        [{".id": 1, "id": 7, "seq": 1}],
        pa.struct([(".id", pa.int64()), ("id", pa.int64()), ("seq", pa.int64())]),
    )
    table = inlay.create(
        f"memory://dots/{uuid.uuid4().hex}", pa.schema(list(rows.type)), primary_key=[".id"]
    )
    table.apply_changes(
        pa.table({"op": ["c"], "before": pa.nulls(1, rows.type), "after": rows}),
        order="seq",
        operations="debezium",
    )
    assert table.scan().to_arrow().to_pylist() == [{".id": 1, "id": 7, "seq": 1}]

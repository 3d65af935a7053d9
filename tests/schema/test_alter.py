"""What an alter does, in requests and in metadata, and what it refuses."""

from __future__ import annotations

import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.history.histories import tiny_segments
from tests.schema.conftest import again, rows_of, table_of

import inlay
from inlay.errors import (
    ConcurrentChange,
    InvalidPredicate,
    InvalidRequest,
    SchemaMismatch,
    UnsupportedType,
)
from inlay.plan.schema_evolution import differences

PEOPLE = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("name", pa.string()),
        ("born", pa.date32()),
        ("place", pa.struct([pa.field("city", pa.string()), ("zip", pa.int16())])),
        ("lines", pa.list_(pa.struct([("qty", pa.int8())]))),
        ("marks", pa.map_(pa.string(), pa.struct([("n", pa.int32())]))),
    ]
)


def people(**options: Any) -> inlay.Table:
    table = table_of(PEOPLE, primary_key="id", **options)
    table.append(
        pa.Table.from_pylist(
            [
                {
                    "id": 1,
                    "name": "Ada",
                    "born": date(1815, 12, 10),
                    "place": {"city": "London", "zip": 7},
                    "lines": [{"qty": 1}, None],
                    "marks": [("a", {"n": 1}), ("b", None)],
                },
                {"id": 2, "name": None, "born": None, "place": None, "lines": None, "marks": None},
            ],
            schema=PEOPLE,
        )
    )
    return table


# -- what it does ---------------------------------------------------------------------------------


def test_an_alter_is_two_writes_and_touches_no_file() -> None:
    table = people()
    files = table.inspect.entries()[0]
    result = table.alter(add={"email": pa.string()}, drop=["lines"], rename={"name": "nom"})
    assert result.usage.requests == {"put": 2}
    assert [f.key for f in table.inspect.entries()[0]] == [f.key for f in files]


def test_one_alter_takes_names_as_they_were_and_orders_what_it_made() -> None:
    table = people()
    table.alter(
        drop=["born"],
        rename={"name": "id2", "place.city": "town"},
        widen={"id": pa.int64(), "place.zip": pa.int32()},
        add={"born": pa.string()},
        order=["born", "id2", "place.zip"],
    )
    assert table.schema.names == ["born", "id2", "id", "place", "lines", "marks"]
    assert [f.name for f in table.schema.field("place").type] == ["zip", "town"]
    first = rows_of(table)[0]
    assert (first["born"], first["id2"], first["place"]) == (
        None,
        "Ada",
        {"zip": 7, "town": "London"},
    )


def test_fields_within_lists_and_maps_change_as_columns_do() -> None:
    table = people()
    table.alter(
        add={"lines.element.price": pa.float64(), "marks.value.why": pa.string()},
        defaults={"lines.element.price": 0.5},
        widen={"lines.element.qty": pa.int64()},
        rename={"marks.value.n": "times"},
    )
    first = rows_of(table)[0]
    assert first["lines"] == [{"qty": 1, "price": 0.5}, None]
    assert first["marks"] == [("a", {"times": 1, "why": None}), ("b", None)]


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (pa.bool_(), False),
        (pa.int8(), -1),
        (pa.uint64(), 2**64 - 1),
        (pa.float32(), 0.5),
        (pa.decimal128(9, 2), Decimal("1.50")),
        (pa.decimal256(60, 2), Decimal("1" + "0" * 40 + ".25")),
        (pa.string(), "none given, and longer than a bound in metadata"),
        (pa.binary(), b"\0\xff"),
        (pa.binary(2), b"ab"),
        (pa.date32(), date(2026, 1, 31)),
        (pa.time64("us"), time(12, 30)),
        (pa.timestamp("ms"), datetime(2026, 1, 31, 12)),
        (pa.timestamp("s", "UTC"), datetime.fromisoformat("2026-01-31T12:00:00+00:00")),
    ],
    ids=str,
)
def test_rows_that_are_there_have_the_default(kind: pa.DataType, default: Any) -> None:
    table = people()
    table.alter(add={"x": pa.field("x", kind, nullable=False)}, defaults={"x": default})
    for found in (table, again(table)):  # from memory, and from the pointer's bytes
        assert [row["x"] for row in rows_of(found, columns=["x"])] == [default, default]
        assert found.count(where="x IS NULL") == 0
    table.append(pa.table({"id": pa.array([3], pa.int32())}))  # data may leave it out
    table.maintain.compact()
    assert [row["x"] for row in rows_of(table)] == [default] * 3
    assert table.maintain.verify(depth="pages").findings == ()


def test_columns_are_given_as_text_and_refused_at_their_place() -> None:
    table, same = people(), people()
    table.alter(add={"qty": "int not null default -1", "place.at": "date"}, widen={"id": "bigint"})
    same.alter(
        add={"qty": pa.field("qty", pa.int32(), nullable=False), "place.at": pa.date32()},
        widen={"id": pa.int64()},
        defaults={"qty": -1},
    )
    assert table.schema.equals(same.schema) and rows_of(table) == rows_of(same)
    for text in ("bigint, y int", "int not", "int default name", "int default", "nothing", ""):
        with pytest.raises((InvalidRequest, InvalidPredicate)):
            table.alter(add={"x": text})
    made = inlay.create("memory://texts/t", "id bigint not null, name string", primary_key="id")
    assert made.schema.equals(
        pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    )
    with pytest.raises(InvalidPredicate):
        inlay.create("memory://texts/u", "id bigint not")


def test_a_column_comes_with_its_comment() -> None:
    t = people()
    kind = pa.struct([pa.field("zip", pa.string())])
    t.alter(add={"n": pa.int32(), "home": kind}, comment={"n": "seven"})
    t.alter(add={"home.town": pa.string()}, comment={"home.town": "of birth", "n": ""})
    docs = {".".join(path): field.doc for path, field in t.snapshot.schema.walk() if field.doc}
    assert docs == {"home.town": "of birth"}
    with pytest.raises(InvalidRequest, match="no column 'm'"):
        t.alter(add={"o": pa.int32()}, comment={"m": "not there"})


def test_nan_is_a_default_like_any_other() -> None:
    table = people()
    table.alter(add={"x": pa.float64()}, defaults={"x": math.nan})
    assert again(table).count(where="x > 5") == 2  # NaN is above every number
    assert table.count(where="x = 5") == 0
    for where in ("x = :nan", "x >= :nan", "x IN (1, :nan)"):
        assert table.count(where=where, params={"nan": math.nan}) == 2, where
    assert table.count(where="x <> :nan", params={"nan": math.nan}) == 0


def test_files_without_a_column_are_pruned_by_its_default() -> None:
    table = people()
    table.alter(add={"state": pa.string()}, defaults={"state": "new"})
    table.append(pa.table({"id": pa.array([3], pa.int32()), "state": ["old"]}))
    assert [row["id"] for row in rows_of(table, where="state = 'new'")] == [1, 2]
    plan = table.scan(where="state = 'old'").plan
    assert (plan.files, plan.pruned) == (2, 1)
    assert table.scan(where="state = 'neither'").plan.pruned == 2
    assert table.scan(where="state = 'new'").plan.tasks[0].whole


def test_a_default_within_a_struct_is_null_where_the_struct_is() -> None:
    table = people()
    table.alter(add={"place.land": pa.string()}, defaults={"place.land": "UK"})
    assert [row["place"] for row in rows_of(table)] == [
        {"city": "London", "zip": 7, "land": "UK"},
        None,
    ]
    assert table.count(where="place.land = 'UK'") == 1
    assert table.count(where="place.land IS NULL") == 1
    assert table.scan(where="place.land = 'DE'").plan.pruned == 1


def test_a_name_that_is_used_again_never_shows_old_data() -> None:
    table = people()
    table.alter(drop=["name"])
    table.alter(add={"name": pa.string()})
    assert [row["name"] for row in rows_of(table)] == [None, None]
    assert table.count(where="name = 'Ada'") == 0
    table.alter(rename={"name": "nom"}, add={"name": pa.int8()})
    assert table.schema.field("name").type == pa.int8()
    assert rows_of(again(table, version=2))[0]["name"] == "Ada"


@pytest.mark.parametrize("at_once", [True, False])
def test_a_name_that_is_used_again_within_a_column_never_shows_old_data(at_once: bool) -> None:
    pair = pa.struct([("a", pa.int64()), ("b", pa.bool_())])
    columns = {"s": pair, "l": pa.list_(pair), "m": pa.map_(pa.string(), pair)}
    old, new = {"a": 1, "b": True}, {"a": 1, "b": None}
    values = {"s": [old], "l": [[old]], "m": [[("k", old)]]}
    table = table_of(pa.schema(columns))
    table.append(pa.table(values, pa.schema(columns)))
    paths = ["s.b", "l.element.b", "m.value.b"]
    added = dict.fromkeys(paths, pa.bool_())
    if at_once:
        table.alter(drop=paths, add=added)
    else:
        table.alter(drop=paths)
        table.alter(add=added)
    expected = {"s": new, "l": [new], "m": [("k", new)]}
    assert rows_of(table) == [expected]
    assert table.count(where="s.b IS NULL") == 1


def test_ids_are_never_given_twice() -> None:
    table = people()
    table.alter(add={"x": pa.struct([("y", pa.int8())])})
    last = table.snapshot.last_field_id
    table.alter(drop=["x"])
    table.alter(add={"x": pa.int8()})
    assert table.snapshot.schema.fields[-1].id == last + 1


def test_a_delete_written_before_a_column_was_widened_goes_on_deleting() -> None:
    """Predicates, ranges and key files hold values of the type the column had."""
    table = people()
    table.append(
        pa.table(
            {"id": pa.array([3, 4, 5], pa.int32()), "born": [date(2000, 1, n) for n in (1, 2, 3)]}
        )
    )
    table.delete("born = DATE '2000-01-01'")
    table.delete(keys={"born": [date(2000, 1, 2)], "id": [4]})
    table.delete("id >= 5")
    table.alter(widen={"born": pa.timestamp("ns"), "id": pa.int64()})
    assert [row["id"] for row in rows_of(again(table))] == [1, 2]
    table.append(
        pa.table({"id": [6], "born": pa.array([datetime(2000, 1, 1)], pa.timestamp("us"))})
    )
    found = rows_of(table, where="born >= TIMESTAMP '2000-01-01 00:00:00'")
    assert [row["id"] for row in found] == [6]
    table.maintain.rewrite()
    assert sorted(row["id"] for row in rows_of(again(table))) == [1, 2, 6]
    assert table.maintain.verify(depth="pages").findings == ()


def test_files_are_pruned_by_the_bounds_they_had_before_a_widening() -> None:
    table = people()
    for year in (1900, 2000):
        table.append(pa.table({"id": pa.array([year], pa.int32()), "born": [date(year, 6, 1)]}))
    table.alter(widen={"born": pa.timestamp("us")})
    for found in (table, again(table)):
        plan = found.scan(where="born = TIMESTAMP '2000-06-01 00:00:00'").plan
        assert (plan.files, len(plan.tasks)) == (3, 1)
        assert found.count(where="born < TIMESTAMP '1900-06-01 00:00:01'") == 2


def test_nothing_to_change_is_no_commit() -> None:
    table = people()
    assert not table.alter().committed
    assert not table.alter(order=["id"]).committed
    assert not table.alter(widen={"id": pa.int32()}).committed


def test_the_same_request_changes_the_schema_once() -> None:
    table = people()
    assert table.alter(add={"x": pa.int8()}, request_id="r").committed
    table.alter(drop=["x"])
    assert not table.alter(add={"x": pa.int8()}, request_id="r").committed
    assert "x" not in table.schema.names


# -- what it refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"drop": ["id"]}, "part of the primary key"),
        ({"drop": ["nam"]}, "Did you mean name"),
        ({"drop": PEOPLE.names}, "no columns left"),
        ({"drop": ["place.city", "place.zip"]}, "Drop the struct itself"),
        ({"drop": ["lines.element"]}, "Drop or rename 'lines'"),
        ({"drop": ["name", "name"]}, "named twice"),
        ({"drop": ["name"], "rename": {"name": "x"}}, "both dropped and changed"),
        ({"drop": "name"}, "takes a list"),
        ({"rename": {"name": "ID"}}, "ignore case"),
        ({"rename": {"name": "id"}}, "already"),
        ({"rename": {"name": ""}}, "is not a name of a column"),
        ({"rename": {"name": "_pos"}}, "every scan has"),
        ({"rename": {"place.city": "name.city"}}, "cannot move a column"),
        ({"rename": {"marks.key": "k"}}, "map's key"),
        ({"rename": {"marks.value": "v"}}, "has no name"),
        ({"add": {"name": pa.int8()}}, "already"),
        ({"add": {"Name": pa.int8()}}, "ignore case"),
        ({"add": {"x": pa.field("x", pa.int8(), nullable=False)}}, "required and has no default"),
        ({"add": {"name.x": pa.int8()}}, "is not a struct"),
        ({"add": {"a.b": pa.int8()}}, 'written in quotes: "a.b"'),
        ({"add": {"x": pa.null()}}, "cannot hold"),
        ({"add": {"x": 7}}, "cannot be an int"),
        ({"add": {"x" * 300: pa.int8()}}, "255 bytes"),
        ({"add": {"x\ny": pa.int8()}}, "not a valid column name"),
        ({"add": {"x": pa.int8()}, "defaults": {"x": 300}}, "is not a value of type int8"),
        ({"add": {"x": pa.list_(pa.int8())}, "defaults": {"x": [1]}}, "cannot have a default"),
        ({"defaults": {"name": "x"}}, "cannot be changed"),
        ({"widen": {"id": pa.int16()}}, "is narrower"),
        ({"widen": {"id": pa.float64()}}, "cannot hold every int32 exactly"),
        ({"widen": {"name": pa.binary()}}, "cannot hold every string exactly"),
        ({"widen": {"born": pa.timestamp("us", "UTC")}}, "cannot hold every date exactly"),
        ({"widen": {"place": pa.int8()}}, "only values can be widened"),
        ({"widen": {"id": pa.list_(pa.int8())}}, "cannot be widened"),
        ({"optional": ["marks.key"]}, "never NULL"),
        ({"order": ["id", "id"]}, "named twice"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:60],
)
def test_what_is_refused_says_why_and_changes_nothing(change: dict[str, Any], words: str) -> None:
    table = people()
    version = table.version
    with pytest.raises((InvalidRequest, UnsupportedType)) as caught:
        table.alter(**change)
    assert words in str(caught.value)
    assert again(table).version == version


def test_columns_of_keys_order_partitions_deletes_and_erasures_are_not_dropped() -> None:
    table = people(sort_by="name")
    with pytest.raises(InvalidRequest, match="sort order"):
        table.alter(drop=["name"])
    table.delete("born > DATE '2000-01-01' OR place.zip = 8")
    for path in ("born", "place", "place.zip"):
        with pytest.raises(InvalidRequest, match=r"not applied yet uses it.*inlay rewrite"):
            table.alter(drop=[path])
    table.alter(drop=["place.city"])
    table.maintain.rewrite()
    table.alter(drop=["born"])
    table.delete("place.zip = 7", mode="erase")
    with pytest.raises(InvalidRequest, match=r"open erasure.*receipt"):
        table.alter(drop=["place"])


def test_a_column_of_a_delete_by_keys_is_not_dropped() -> None:
    table = people()
    table.delete(keys={"name": ["Ada"], "born": [date(1815, 12, 10)]})
    with pytest.raises(InvalidRequest, match="not applied yet"):
        table.alter(drop=["born"])


@pytest.mark.parametrize("stats_columns", [0, 10])
def test_a_type_that_does_not_reach_the_values_is_refused(stats_columns: int) -> None:
    """Nanoseconds end in the year 2262: whether a column fits is seen in statistics, else in the data."""
    table = people(properties={"stats.columns": stats_columns})
    table.append(pa.table({"id": pa.array([3], pa.int32()), "born": [date(2300, 1, 1)]}))
    with pytest.raises(InvalidRequest, match=r"outside the range of"):
        table.alter(widen={"born": pa.timestamp("ns")})
    table.alter(widen={"born": pa.timestamp("us")})
    assert rows_of(table, where="id = 3")[0]["born"] == datetime(2300, 1, 1)
    table.delete("id = 3", mode="rewrite")
    table.alter(widen={"born": pa.timestamp("ns")})
    assert rows_of(table)[0]["born"] == datetime(1815, 12, 10)


# -- beside others --------------------------------------------------------------------------------


def test_an_equal_change_that_lands_second_is_done_already() -> None:
    table = people()
    other = again(table)
    change = {"add": {"x": pa.struct([("y", pa.int8())])}, "rename": {"name": "nom"}}
    assert table.alter(**change).committed
    assert not other.alter(**change).committed
    assert other.version == table.version
    assert other.schema == table.schema


@pytest.mark.parametrize(
    "change",
    [
        {"add": {"y": pa.int8()}},
        {"add": {"x": pa.int16()}},
        {"drop": ["name"]},
        {"order": ["name"]},
    ],
    ids=str,
)
def test_any_other_change_that_lands_second_is_refused(change: dict[str, Any]) -> None:
    table = people()
    other = again(table)
    table.alter(add={"x": pa.int8()})
    with pytest.raises(ConcurrentChange, match=r"refresh\(\)"):
        other.alter(**change)


def test_a_drop_after_a_delete_of_the_column_is_refused() -> None:
    table = people()
    other = again(table)
    table.delete("name = 'Bob' OR id = 2")
    with pytest.raises(InvalidRequest, match="not applied yet"):
        other.alter(drop=["name"])


@pytest.mark.parametrize("how", [{"where": "name = 'Ada'"}, {"keys": {"name": ["Ada"]}}], ids=str)
@pytest.mark.parametrize("reused", [False, True])
def test_a_delete_after_a_drop_of_the_column_is_refused(how: dict[str, Any], reused: bool) -> None:
    """It would delete nothing, and its caller would believe that it did, or the rows of another column."""
    table = people()
    other = again(table)
    table.alter(drop=["name"])
    if reused:
        table.alter(add={"name": pa.string()}, defaults={"name": "Ada"})
    with pytest.raises(ConcurrentChange):
        other.delete(**how)
    assert table.refresh().count() == 2


def test_an_upsert_beside_a_change_of_the_schema_mixes_up_no_columns() -> None:
    table = people()
    other = again(table)
    table.alter(rename={"name": "nom"}, add={"name": pa.string()}, order=["name"])
    late = pa.table({"id": pa.array([1], pa.int32()), "name": ["Eve"]})
    other.upsert(late)
    found = rows_of(table.refresh(), where="id = 1")
    assert [(row["name"], row["nom"]) for row in found] == [(None, "Eve")]


def test_an_erasure_after_a_drop_of_the_column_is_refused() -> None:
    table = people()
    other = again(table)
    table.alter(drop=["name"])
    with pytest.raises(ConcurrentChange, match="was dropped"):
        other.delete("name = 'Ada'", mode="erase")


def test_an_append_planned_before_a_change_keeps_the_schema_it_was_written_under() -> None:
    table = people()
    other = again(table)
    table.alter(
        drop=["name"],
        widen={"id": pa.int64()},
        add={"name": pa.string(), "n": pa.field("n", pa.int8(), nullable=False)},
        defaults={"n": 7},
    )
    other.append(pa.table({"id": pa.array([3], pa.int32()), "name": ["Eve"]}))
    table.refresh()
    assert [(r["id"], r["name"], r["n"]) for r in rows_of(table, where="id = 3")] == [(3, None, 7)]
    assert table.maintain.verify(depth="pages").findings == ()


def test_an_append_that_the_new_type_does_not_reach_is_refused() -> None:
    table = people()
    other = again(table)
    table.alter(widen={"born": pa.timestamp("ns")})
    late = pa.table({"id": pa.array([3], pa.int32()), "born": [date(2300, 1, 1)]})
    with pytest.raises((ConcurrentChange, SchemaMismatch)):
        other.append(late)
    assert table.refresh().count() == 2


@pytest.mark.parametrize("mode", ["tombstone", "vector", "rewrite", "surgery"])
def test_an_update_of_a_column_that_was_widened_meanwhile_is_refused(mode: str) -> None:
    """Its value is one of the narrow type: taken for one of the wide type it would be another."""
    table = people()
    other = again(table)
    table.alter(widen={"born": pa.timestamp("us")})
    with pytest.raises(ConcurrentChange, match=r"refresh\(\)"):
        other.update({"born": "DATE '1990-01-01'"}, where="id = 1", mode=mode)
    other.refresh().update({"born": "DATE '1990-01-01'"}, where="id = 1", mode=mode)
    assert rows_of(other, where="id = 1")[0]["born"] == datetime(1990, 1, 1)


def test_an_update_of_other_columns_goes_on() -> None:
    table = people()
    other = again(table)
    table.alter(add={"x": pa.int8()}, defaults={"x": 5})
    other.update({"name": "'Eve'"}, where="id = 2")
    assert [(r["name"], r["x"]) for r in rows_of(other)] == [("Ada", 5), ("Eve", 5)]


@pytest.mark.parametrize("mode", ["vector", "surgery", "rewrite"])
def test_deletes_of_rows_go_on_over_a_change(mode: str) -> None:
    table = people()
    other = again(table)
    table.alter(widen={"id": pa.int64()}, rename={"name": "nom"})
    other.delete("name = 'Ada' AND id = 1", mode=mode)
    assert [row["id"] for row in rows_of(table.refresh())] == [2]


@pytest.mark.parametrize("change", [{"drop": ["marks"]}, {"widen": {"born": pa.timestamp("us")}}])
def test_a_change_that_looks_at_entries_finds_those_below_nodes(change: Any) -> None:
    with tiny_segments():
        table = people()
        rows = table.scan().to_arrow()
        for _ in range(24):
            table.append(rows)
            table.delete("id = 2", mode="vector")
        nodes = [s for s in table.inspect.segments().to_pylist() if s["level"] == 1]
        assert {"files", "markers"} <= {s["tier"] for s in nodes}
        assert again(table).alter(**change).committed


# -- telling of it --------------------------------------------------------------------------------


def test_differences_name_what_was_changed() -> None:
    table = people()
    before = table.snapshot.schema
    table.alter(
        drop=["lines"],
        rename={"name": "nom"},
        widen={"place.zip": pa.int32()},
        add={"x": pa.field("x", pa.int8(), nullable=False)},
        defaults={"x": 1},
        optional=["id"],
        order=["nom"],
    )
    assert differences(before, table.snapshot.schema) == (
        "drop lines",
        "rename name to nom",
        "make id optional",
        "widen place.zip from int16 to int32",
        "add x int8 not null default 1",
        "order nom, id, born, place, marks, x",
    )

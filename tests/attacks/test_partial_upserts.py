"""Upserts that say nothing of some columns, and those that say two things of one key."""

from __future__ import annotations

import math
import uuid
from datetime import date

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InvalidRequest, SchemaMismatch

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("mail", pa.string())]
)


def location() -> str:
    return f"memory://attacks/{uuid.uuid4().hex}"


def people() -> inlay.Table:
    t = inlay.create(location(), SCHEMA, primary_key="id")
    rows = {"id": [1, 2, 3], "name": ["Ada", "Bob", None], "mail": ["a@x", "b@x", None]}
    t.append(pa.table(rows, schema=SCHEMA))
    return t


def rows_of(t: inlay.Table) -> list[tuple[object, ...]]:
    found = t.scan().to_arrow().sort_by("id")
    return list(zip(*found.to_pydict().values(), strict=True))


def test_columns_that_the_data_lacks_keep_their_values() -> None:
    t = people()
    done = t.upsert(pa.table({"id": [2, 4], "name": ["Bea", "Dee"]}))
    assert rows_of(t) == [(1, "Ada", "a@x"), (2, "Bea", "b@x"), (3, None, None), (4, "Dee", None)]
    assert (done.added_rows, done.deleted_rows) == (2, 1)


def test_a_column_that_is_given_as_null_becomes_null() -> None:
    t = people()
    t.upsert(pa.table({"id": [2], "mail": pa.array([None], pa.string())}))
    assert rows_of(t)[1] == (2, "Bob", None)


def test_new_rows_have_the_default_of_what_the_data_lacks() -> None:
    t = people()
    t.alter(add={"visits": pa.field("visits", pa.int64(), nullable=False)}, defaults={"visits": 7})
    t.upsert(pa.table({"id": [1, 9], "name": ["Ada", "Ivy"]}))
    assert rows_of(t)[0] == (1, "Ada", "a@x", 7)
    assert rows_of(t)[-1] == (9, "Ivy", None, 7)


def test_a_new_row_that_lacks_a_required_value_is_refused_and_nothing_changes() -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("n", pa.int64(), nullable=False),
            ("s", pa.string()),
        ]
    )
    t = inlay.create(location(), schema, primary_key="id")
    t.append(pa.table({"id": [1], "n": [5], "s": ["x"]}, schema=schema))
    t.upsert(pa.table({"id": [1], "s": ["y"]}))
    assert rows_of(t) == [(1, 5, "y")]
    with pytest.raises(SchemaMismatch, match="n"):
        t.upsert(pa.table({"id": [1, 2], "s": ["z", "z"]}))
    assert rows_of(t) == [(1, 5, "y")]


def test_each_row_of_a_key_that_the_table_has_twice_keeps_its_own_values() -> None:
    t = people()
    t.append(pa.table({"id": [2], "name": ["Bob"], "mail": ["other@x"]}, schema=SCHEMA))
    t.upsert(pa.table({"id": [2], "name": ["Bea"]}))
    assert sorted(r for r in rows_of(t) if r[0] == 2) == [(2, "Bea", "b@x"), (2, "Bea", "other@x")]


def test_rows_with_a_null_key_are_inserted() -> None:
    schema = pa.schema([("k", pa.int64()), ("a", pa.string()), ("b", pa.string())])
    t = inlay.create(location(), schema, primary_key="k")
    t.append(pa.table({"k": [None, 1], "a": ["p", "q"], "b": ["r", "s"]}, schema=schema))
    t.upsert(pa.table({"k": pa.array([None, None], pa.int64()), "a": ["x", "y"]}))
    found = sorted(map(str, t.scan().to_arrow().to_pylist()))
    assert len(found) == 4
    assert sum("'x'" in r or "'y'" in r for r in found) == 2


def test_a_row_that_changed_meanwhile_is_read_again() -> None:
    t = people()
    stale = inlay.open(t.uri)
    t.update({"mail": "'new@x'"}, where="id = 2")
    stale.upsert(pa.table({"id": [2], "name": ["Bea"]}))
    assert rows_of(stale)[1] == (2, "Bea", "new@x")


def test_a_nested_column_is_given_whole_or_not_at_all() -> None:
    kind = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("s", kind), ("l", pa.list_(kind))])
    t = inlay.create(location(), schema, primary_key="id")
    t.append(
        pa.table({"id": [1], "s": [{"x": 1, "y": 2}], "l": [[{"x": 1, "y": 2}]]}, schema=schema)
    )
    less = pa.struct([("x", pa.int64())])
    for name, column in (
        ("s", pa.array([{"x": 9}], less)),
        ("l", pa.array([[{"x": 9}]], pa.list_(less))),
    ):
        with pytest.raises(SchemaMismatch, match="y"):
            t.upsert(pa.table({"id": [1], name: column}))
    t.upsert(
        pa.table(
            {
                "id": [1],
                "s": pa.array(
                    [{"y": 3, "x": None}], pa.struct([("y", pa.int64()), ("x", pa.int64())])
                ),
            }
        )
    )
    assert t.scan().to_arrow().to_pylist() == [
        {"id": 1, "s": {"x": None, "y": 3}, "l": [{"x": 1, "y": 2}]}
    ]


def test_two_rows_of_one_key_are_refused_by_name_and_count() -> None:
    t = people()
    before = rows_of(t)
    data = pa.table(
        {"id": [7, 8, 7, 7, 8, 9], "name": list("abcdef"), "mail": [None] * 6}, schema=SCHEMA
    )
    with pytest.raises(InvalidRequest, match=r"5 rows for 2 keys of id") as caught:
        t.upsert(data)
    assert "on_duplicate" in str(caught.value)
    assert rows_of(t) == before
    done = t.upsert(data, on_duplicate="last")
    assert done.added_rows == 3
    assert [(r[0], r[1]) for r in rows_of(t)[3:]] == [(7, "d"), (8, "e"), (9, "f")]


@pytest.mark.parametrize(
    ("kind", "values", "last"),
    [
        (pa.int64(), [5, None, 9, 9, 2], 3),
        (pa.float64(), [5.0, math.nan, math.inf, None, -0.0], 1),
        (pa.float64(), [0.0, -0.0, -1.0, None, None], 1),
        (pa.string(), ["b", "é", "z", None, "a"], 1),
        (pa.date32(), [date(2020, 1, 1), date(2020, 1, 3), date(2020, 1, 2), None, None], 1),
        (pa.bool_(), [True, False, None, False, False], 0),
        (pa.decimal128(9, 2), [None, None, None, None, None], 4),
    ],
)
def test_order_decides_which_row_is_the_last(
    kind: pa.DataType, values: list[object], last: int
) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", kind), ("n", pa.int64())])
    t = inlay.create(location(), schema, primary_key="id")
    data = pa.table({"id": [1] * 5, "at": values, "n": range(5)}, schema=schema)
    t.upsert(data, on_duplicate="last", order="at")
    assert t.scan().to_arrow()["n"].to_pylist() == [last]


def test_options_that_make_no_sense_are_refused() -> None:
    t = people()
    data = pa.table({"id": [1], "name": ["x"]})
    with pytest.raises(InvalidRequest, match="on_duplicate"):
        t.upsert(data, on_duplicate="first")
    with pytest.raises(InvalidRequest, match="order"):
        t.upsert(data, order="name")
    with pytest.raises(SchemaMismatch, match="mail"):
        t.upsert(data, on_duplicate="last", order="mail")

"""Expressions of pyarrow and Polars where rows are changed: they select what their own library selects."""

from __future__ import annotations

import itertools
import math
import operator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions

import inlay
from inlay.errors import InvalidPredicate
from inlay.format.predicate import predicate_from_json, predicate_to_json
from inlay.ops.read.polars_predicate import predicate_of as of_polars
from inlay.parquet.arrow.evaluate import columns_of, evaluate
from inlay.parquet.arrow.expression_predicate import predicate_of as of_arrow
from inlay.parquet.arrow.types import schema_from_arrow

NUMBER = itertools.count()
MOMENT = datetime(2020, 1, 1, 0, 0, 0, 5)
# For each column its type, values of rows and literals.
COLUMNS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "small": (pa.int8(), [-128, -1, 0, 5, 127], [5, 0, 127, 128, -129, pa.scalar(5, pa.int8())]),
    "long": (
        pa.int64(),
        [-(2**63), 0, 5, 2**53, 2**53 + 1, 2**63 - 1],
        [5, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), pa.scalar(5, pa.uint8())],
    ),
    "unsigned": (
        pa.uint64(),
        [0, 5, 2**53 + 1, 2**63 - 1],
        [5, 2**53, pa.scalar(5, pa.uint64()), pa.scalar(2**63, pa.uint64())],
    ),
    "double": (
        pa.float64(),
        [-math.inf, -0.0, 0.0, 0.1, 5.0, 2.0**53, math.inf, math.nan],
        [0.0, -0.0, 0.1, 5, 5.0, 2**53, math.inf, -math.inf],
    ),
    "float": (pa.float32(), [-0.0, 0.5, 1.5, 2.0**24, math.inf, math.nan], [0.5, 1.5, 0, 2**24]),
    "price": (
        pa.decimal128(9, 2),
        [Decimal("-0.01"), Decimal("5.00"), Decimal("5.01")],
        [Decimal("5"), Decimal("5.005"), Decimal("5.01")],
    ),
    "text": (pa.string(), ["", "a", "a%", "ab", "\U0001f600", "z"], ["a", "a%", "", "\ue000"]),
    "raw": (pa.binary(), [b"", b"a", b"\xff"], [b"a", b""]),
    "flag": (pa.bool_(), [True, False], [True, False]),
    "day": (pa.date32(), [date(1969, 12, 31), date(2020, 1, 1)], [date(2020, 1, 1)]),
    "at": (
        pa.timestamp("us"),
        [datetime(1900, 1, 1), MOMENT],
        [MOMENT, pa.scalar(1577836800000005500, pa.timestamp("ns"))],
    ),
    "seen": (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=UTC)], [MOMENT.replace(tzinfo=UTC)]),
    "clock": (pa.time64("us"), [time(0), time(1, 2, 3)], [time(1, 2, 3)]),
}
ARROW = pa.schema([(name, kind) for name, (kind, _, _) in COLUMNS.items()])
SCHEMA = schema_from_arrow(ARROW)
COMPARE = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
rows = st.lists(
    st.fixed_dictionaries(
        {name: st.none() | st.sampled_from(values) for name, (_, values, _) in COLUMNS.items()}
    ),
    min_size=1,
    max_size=8,
)


@st.composite
def arrow_atoms(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from(list(COLUMNS)))
    column, literals = pc.field(name), COLUMNS[name][2]
    match draw(st.integers(0, 6)):
        case 0:
            return column.is_null(nan_is_null=draw(st.booleans()))
        case 1:
            return column.is_valid()
        case 2 if name == "text":
            return pc.starts_with(column, draw(st.sampled_from(literals)))
        case 2 if name == "flag":
            return column
        case 3:
            plain = [v for v in literals if type(v) is type(literals[0])]
            return column.isin(draw(st.lists(st.sampled_from([*plain, None]), max_size=3)))
        case 4:  # the literal on the left
            return draw(st.sampled_from([pc.less, pc.greater_equal, pc.equal]))(
                pc.scalar(draw(st.sampled_from(literals))), column
            )
        case _:
            return draw(st.sampled_from(COMPARE))(
                column, pc.scalar(draw(st.sampled_from(literals)))
            )


@st.composite
def polars_atoms(draw: st.DrawFn) -> pl.Expr:
    name = draw(st.sampled_from([n for n in COLUMNS if n not in ("price", "raw", "clock")]))
    column = pl.col(name)
    literals = [v for v in COLUMNS[name][2] if not isinstance(v, pa.Scalar)]
    match draw(st.integers(0, 7)):
        case 0:
            return column.is_null()
        case 1:
            return column.is_not_null()
        case 2 if name == "text":
            return column.str.starts_with(draw(st.sampled_from(literals)))
        case 2 if name == "flag":
            return column
        case 2 if name in ("double", "float"):
            return draw(st.sampled_from([column.is_nan(), column.is_not_nan()]))
        case 3:
            plain = [v for v in literals if type(v) is type(literals[0])]
            chosen = draw(st.lists(st.sampled_from([*plain, None]), min_size=1, max_size=3))
            return column.is_in(chosen, nulls_equal=draw(st.booleans()))
        case 4:
            low, high = draw(st.tuples(*[st.sampled_from(literals)] * 2))
            closed = draw(st.sampled_from(["both", "left", "right", "none"]))
            return column.is_between(pl.lit(low), pl.lit(high), closed=closed)
        case 5:
            return draw(st.sampled_from(COMPARE))(pl.lit(draw(st.sampled_from(literals))), column)
        case _:
            return draw(st.sampled_from(COMPARE))(column, draw(st.sampled_from(literals)))


def joined(atoms: st.SearchStrategy) -> st.SearchStrategy:
    return st.recursive(
        atoms,
        lambda parts: (
            st.tuples(parts, parts).map(lambda p: p[0] & p[1])
            | st.tuples(parts, parts).map(lambda p: p[0] | p[1])
            | parts.map(operator.invert)
        ),
        max_leaves=4,
    )


def truth(predicate: Any, batch: pa.RecordBatch) -> list[bool | None]:
    kept = predicate_from_json(predicate_to_json(predicate))
    return evaluate(kept, batch, columns_of(SCHEMA)).to_pylist()


@given(rows, joined(arrow_atoms()))
def test_a_pyarrow_expression_means_what_arrow_makes_of_it(found: list[dict], asked: Any) -> None:
    batch = pa.RecordBatch.from_pylist(found, ARROW)
    try:
        predicate = of_arrow(asked, SCHEMA)
    except InvalidPredicate as error:
        assert "form" in error.message
        return
    source = Declaration("table_source", TableSourceNodeOptions(pa.Table.from_batches([batch])))
    project = Declaration("project", ProjectNodeOptions([asked], ["hit"]))
    try:
        plan = Declaration.from_sequence([source, project])
        expected = plan.to_table(use_threads=False)["hit"].to_pylist()
    except (pa.ArrowException, TypeError):
        return  # Arrow has no answer, where numbers are compared that one type does not hold
    assert truth(predicate, batch) == expected


@given(rows, joined(polars_atoms()))
def test_a_polars_expression_means_what_polars_makes_of_it(found: list[dict], asked: Any) -> None:
    batch = pa.RecordBatch.from_pylist(found, ARROW)
    try:
        predicate = of_polars(asked, SCHEMA)
    except InvalidPredicate as error:
        assert "form" in error.message
        return
    expected = pl.from_arrow(pa.table(batch)).select(asked.alias("hit"))["hit"].to_list()
    assert truth(predicate, batch) == expected


ROWS = [{"id": n, "mass": float(n), "name": f"n{n}"} for n in range(6)] + [
    {"id": 6, "mass": math.nan, "name": None}
]


def new_table() -> inlay.Table:
    data = pa.Table.from_pylist(ROWS)
    return inlay.create(f"memory://expressions-{next(NUMBER)}/t", data, primary_key="id")


def ids(t: inlay.Table) -> list[int]:
    return t.scan(columns=["id"]).to_arrow()["id"].to_pylist()


@pytest.mark.parametrize("column", [pc.field, pl.col])
def test_expressions_delete_update_overwrite_and_erase(column: Any) -> None:
    t = new_table()
    assert t.delete(column("id") == 0).requests <= 2  # kept, as a text's condition is
    assert ids(t) == [1, 2, 3, 4, 5, 6]
    t.update({"mass": 40}, where=(column("id") > 3) & column("name").is_null().__invert__())
    found = t.scan(where=column("mass") == 40.0, columns=["id"]).to_arrow()
    assert sorted(found["id"].to_pylist()) == [4, 5]
    again = {"id": [1], "mass": [7.0], "name": ["x"]}
    t.overwrite(pa.table(again), where=column("id") < 3)
    assert sorted(ids(t)) == [1, 3, 4, 5, 6]
    t.delete(column("name") == "x", mode="erase")
    assert sorted(ids(t)) == [3, 4, 5, 6]
    # NaN is in Arrow no number, and in Polars the greatest.
    t.delete(column("mass") > 3)
    assert sorted(ids(t)) == ([3, 6] if column is pc.field else [3])


@pytest.mark.parametrize(
    "asked",
    [
        pc.field("id") + 1 > 5,
        pc.field("id") == pc.field("mass"),
        pc.field("mass") == math.nan,
        pc.field("name"),
        pc.field("nothing") == 1,
        pl.col("id") + 1 > 5,
        pl.col("id") == pl.col("mass"),
        pl.col("mass") == math.nan,
        pl.col("name"),
        pl.col("nothing") == 1,
        pl.col("id").sum() > 5,
    ],
    ids=str,
)
def test_what_cannot_be_kept_is_refused_and_nothing_is_deleted(asked: Any) -> None:
    t = new_table()
    with pytest.raises(InvalidPredicate) as raised:
        t.delete(asked)
    assert raised.value.next_step
    assert t.refresh().count() == len(ROWS)

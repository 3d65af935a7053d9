"""NaN: SQL's meaning and pyarrow's, each the same whether statistics prune or not."""

from __future__ import annotations

import math
import uuid

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay

VALUES = st.sampled_from([None, math.nan, -math.inf, -1.0, -0.0, 0.0, 99.5, 100.0, 101.0, math.inf])
KERNELS = {
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    "=": pc.equal,
    "!=": pc.not_equal,
}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from(list(KERNELS)),
    st.sampled_from([-1.0, 0.0, 100.0, 1e300]),
    st.booleans(),
)
def test_each_meaning_is_the_same_with_and_without_pruning(
    files: list[list[float | None]], op: str, literal: float, deleting: bool
) -> None:
    t = inlay.create(f"memory://nan/{uuid.uuid4().hex}", pa.schema([("x", pa.float64())]))
    for values in files:
        t.append(pa.table({"x": pa.array(values, pa.float64())}))
    rows = pa.table({"x": pa.array([v for values in files for v in values], pa.float64())})
    by_sql = duckdb.sql(f"SELECT x FROM rows WHERE x {op} {literal}").to_arrow_table()["x"]
    by_arrow = rows.filter(pc.fill_null(KERNELS[op](rows["x"], literal), False))["x"]
    found = t.scan(where=f"x {op} {literal}").to_arrow()["x"]
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, by_sql.to_pylist()))
    expression = KERNELS[op](pc.field("x"), pc.scalar(literal))
    found = t.scan(where=expression).to_arrow()["x"]
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, by_arrow.to_pylist()))
    assert t.count(where=f"x {op} {literal}") == len(by_sql)
    if deleting:
        t.delete(f"x {op} {literal}")
        assert t.count() == rows.num_rows - len(by_sql)


@pytest.mark.parametrize("where", ["x > 100", "x >= 100", "x != 5", "NOT x < 100"])
def test_nan_is_the_greatest(where: str) -> None:
    t = inlay.create(f"memory://nan/{uuid.uuid4().hex}", pa.schema([("x", pa.float64())]))
    t.append(pa.table({"x": [math.nan]}))
    assert t.count(where=where) == 1

"""Spark's filters as predicates: selecting what Spark would, NULLs included."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as ds

from inlay.format.predicate import TRUE
from inlay.parquet.arrow.evaluate import columns_of, selected
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.spark.filters import predicate_of

ROWS = pa.RecordBatch.from_pydict(
    {
        "n": pa.array([1, 2, None, 4], pa.int32()),
        "s": pa.array(["a%c", "abc", None, "_\\x"]),
        "d": pa.array([date(2020, 1, 1), date(2020, 1, 2), None, date(1960, 5, 5)]),
        "t": pa.array(
            [datetime(2020, 1, 1, tzinfo=UTC), None, None, datetime(1960, 1, 1, tzinfo=UTC)],
            pa.timestamp("us", "UTC"),
        ),
        "m": pa.array([Decimal("1.50"), Decimal("2.00"), None, Decimal("-1.00")]),
        "f": pa.array([float("nan"), 1.0, None, -0.0]),
        "p": pa.array([{"q": 1}, {"q": None}, None, {"q": 4}]),
    }
)
SCHEMA = schema_from_arrow(ROWS.schema)


def rows_of(*filters: Any) -> list[int]:
    predicate = predicate_of(filters, SCHEMA)
    hits = selected(predicate, ROWS, columns_of(SCHEMA)).to_pylist()
    return [row for row, hit in enumerate(hits) if hit]


@pytest.mark.parametrize(
    ("pushed", "rows"),
    [
        (ds.EqualTo(("n",), 2), [1]),
        (ds.Not(ds.EqualTo(("n",), 2)), [0, 3]),
        (ds.EqualNullSafe(("n",), None), [2]),
        (ds.EqualNullSafe(("n",), 2), [1]),
        (ds.Not(ds.EqualNullSafe(("n",), 2)), [0, 2, 3]),
        (ds.GreaterThan(("n",), 1), [1, 3]),
        (ds.LessThanOrEqual(("n",), 2), [0, 1]),
        (ds.In(("n",), (4, None, 1)), [0, 3]),
        (ds.In(("n",), (None,)), []),
        (ds.IsNull(("n",)), [2]),
        (ds.IsNotNull(("n",)), [0, 1, 3]),
        (ds.StringStartsWith(("s",), "a%"), [0]),
        (ds.StringContains(("s",), "\\"), [3]),
        (ds.StringEndsWith(("s",), "c"), [0, 1]),
        (ds.Not(ds.StringStartsWith(("s",), "_")), [0, 1]),
        (ds.LessThan(("d",), date(2020, 1, 2)), [0, 3]),
        (ds.GreaterThanOrEqual(("t",), datetime(2020, 1, 1, tzinfo=UTC)), [0]),
        (ds.EqualTo(("m",), Decimal("1.5")), [0]),
        (ds.EqualTo(("f",), float("nan")), [0]),
        (ds.EqualTo(("f",), 0.0), [3]),
        (ds.GreaterThan(("f",), 5.0), [0]),
        (ds.EqualTo(("p", "q"), 4), [3]),
    ],
)
def test_a_filter_selects_what_spark_would(pushed: Any, rows: list[int]) -> None:
    assert rows_of(pushed) == rows


def test_filters_are_joined_by_and() -> None:
    assert rows_of(ds.IsNotNull(("n",)), ds.GreaterThan(("n",), 1), ds.LessThan(("n",), 4)) == [1]


@pytest.mark.parametrize(
    "pushed",
    [
        ds.EqualTo(("n",), 2**40),  # no int32
        ds.EqualTo(("m",), Decimal("1.501")),
        ds.IsNull(("p",)),  # a struct
        ds.EqualTo(("missing",), 1),
        ds.Not(ds.EqualTo(("n",), 2**40)),
    ],
)
def test_a_filter_without_a_counterpart_is_left_to_spark(pushed: Any) -> None:
    assert predicate_of([pushed], SCHEMA) == TRUE

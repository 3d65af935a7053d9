"""What the statistics of a column chunk are taken for, where they are wrong or say little."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlay.format.entry import ColumnStats
from inlay.format.schema import Primitive
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.footer.fields import Meta, Stats
from inlay.parquet.footer.footer import decode_footer, trailer
from inlay.parquet.footer.thrift import encode_struct
from inlay.parquet.read.describe import entry_of, parse_object_footer

LONG = Primitive("int64")


def described(values: list[int | None], stats: dict[int, Any] | None) -> ColumnStats:
    """The statistics in the entry of a file of these values whose footer says `stats`."""
    table = pa.table({"n": pa.array(values, pa.int64())})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    body = sink.getvalue()
    footer = decode_footer(body, file_size=len(body))
    meta = footer.row_groups[0].column(0).meta
    if stats is None:
        meta.pop(Meta.STATISTICS)
    else:
        meta[Meta.STATISTICS] = stats
    thrift = encode_struct(footer.tree)
    body = body[: footer.start] + thrift + trailer(len(thrift))
    schema = schema_from_arrow(table.schema)
    found = parse_object_footer(body, size=len(body))
    entry, _ = entry_of(found, key="k", size=len(body), schema=schema, stats_columns=(1,))
    return entry.stats[1]


def bounds(low: int, high: int) -> dict[int, Any]:
    return {
        Stats.MIN: low.to_bytes(8, "little", signed=True),
        Stats.MAX: high.to_bytes(8, "little", signed=True),
    }


@pytest.mark.parametrize("nulls", [-1, 4, 2**40])
def test_an_impossible_count_of_nulls_is_unknown(nulls: int) -> None:
    found = described([1, None, 3], {**bounds(1, 3), Stats.NULLS: nulls})
    assert found == ColumnStats(1, 3, None, True, False, LONG)


@pytest.mark.parametrize("nulls", [0, 1, 2])
def test_a_possible_count_of_nulls_is_taken_as_it_is(nulls: int) -> None:
    found = described([1, None, 3], {**bounds(1, 3), Stats.NULLS: nulls})
    assert found == ColumnStats(1, 3, nulls, True, False, LONG)


def test_without_a_count_of_nulls_it_is_unknown() -> None:
    """Not 0: `IS NULL` would leave the file out."""
    assert described([1, None, 3], bounds(1, 3)).null_count is None
    assert described([1, None, 3], bounds(1, 3)).lower == 1


def test_nothing_but_nulls_has_no_bounds_and_no_nan() -> None:
    found = described([None, None], {Stats.NULLS: 2})
    assert found == ColumnStats(None, None, 2, True, False, LONG)


def test_a_count_without_bounds_is_kept() -> None:
    assert described([1, None, 3], {Stats.NULLS: 1}) == ColumnStats(
        None, None, 1, True, False, LONG
    )


def test_without_statistics_nothing_is_known() -> None:
    assert described([1, None, 3], None) == ColumnStats(None, None, None, True, False, LONG)


def test_a_chunk_without_values_is_known_whole() -> None:
    table = pa.table({"n": pa.array([], pa.int64())})
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue()
    found = parse_object_footer(body, size=len(body))
    schema = schema_from_arrow(table.schema)
    entry, _ = entry_of(found, key="k", size=len(body), schema=schema, stats_columns=(1,))
    assert entry.rows == 0 and entry.stats.get(1, ColumnStats(null_count=0)).null_count == 0


def test_bounds_that_contradict_each_other_are_unknown() -> None:
    found = described([1, 2, 3], {**bounds(3, 1), Stats.NULLS: 0})
    assert (found.lower, found.upper, found.null_count) == (None, None, 0)
    found = described([3, 3], {**bounds(3, 3), Stats.NULLS: 0})
    assert (found.lower, found.upper) == (3, 3)

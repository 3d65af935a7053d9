"""Which of several rows of a key counts: the last of them, or the one with the greatest order.

Promise: `ranks` compares as `plan.change_records.rank` does, and of equal ranks the later row counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidRequest


def ranks(order: Iterable[pa.ChunkedArray], deletes: Any, rows: int) -> pa.Array:
    """A number for each of `rows` rows, in the order of their arrival: the greatest of a key counts. No two
    are equal. `deletes`: which are deletes; None: none."""
    columns: dict[str, Any] = {}
    for place, values in enumerate(order):
        if pa.types.is_nested(values.type):
            raise InvalidRequest(f"records cannot be ordered by a column of type {values.type}")
        is_nan = pc.is_nan(values) if pa.types.is_floating(values.type) else pc.is_null(values)
        # 0 for NULL, 1 for a value, 2 for NaN: Arrow would put NULL and NaN on one side.
        columns[f"kind{place}"] = pc.if_else(pc.is_null(values), 0, pc.if_else(is_nan, 2, 1))
        columns[f"value{place}"] = values
    if deletes is not None:
        columns["delete"] = pc.if_else(deletes, 1, 0)
    numbers = pa.arange(0, rows)
    if not columns:
        return numbers
    columns["arrival"] = numbers
    by = pa.table(columns)
    in_order = pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names])
    return pc.sort_indices(in_order).cast(pa.int64())  # the permutation's inverse


def newest(codes: Any, by_rank: pa.Array) -> pa.BooleanArray:
    """Which rows have the greatest rank of their key, given as codes; a row without a code always has."""
    table = pa.table({"key": codes, "rank": by_rank})
    groups = table.group_by("key", use_threads=False).aggregate([("rank", "max")])
    greatest = groups.filter(pc.is_valid(groups["key"]))["rank_max"].combine_chunks()
    unkeyed = pc.is_null(codes)
    if isinstance(unkeyed, pa.ChunkedArray):
        unkeyed = unkeyed.combine_chunks()
    return pc.or_(pc.is_in(by_rank, value_set=greatest), unkeyed)

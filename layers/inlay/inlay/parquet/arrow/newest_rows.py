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
        # NULL first: Arrow puts it last, after NaN, which is after every other value.
        columns[f"known{place}"] = pc.is_valid(values)
        columns[f"value{place}"] = values
    if deletes is not None:
        columns["delete"] = deletes
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

"""Rows as multisets: the difference of two multisets of rows.

Promise: exact for every type. Rows are compared by their bits (so NaN equals itself, and -0.0 is not 0.0),
NULL equals NULL. No hash stands for a value: columns are coded as integers, equal where the values are, and
codes are compared.

`difference_in_order` is for a file and its 1:1 rewrite, whose rows kept their order: it streams. `Multiset`
takes rows in any order, and holds those that have no counterpart yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from inlay.parquet.arrow.pieces import take_rows
from inlay.parquet.arrow.types import to_scalar

# Rows gathered before they are netted: two batches as read from files.
NET_ROWS = 262_144
# Rows that are compared at once; if they are all equal nothing more is done with them.
WINDOW_ROWS = 8_192

_CODE = pa.int64()


def difference_in_order(
    rows: Iterable[pa.RecordBatch], kept: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[tuple[int, pa.Table]]:
    """(-1, rows that are not among `kept`) and (1, rows of `kept` that are not among `rows`).

    `kept` should be `rows` with some left out, in the same order: then each row of it matches the first
    equal one that is left, and skipped rows are removed ones. Otherwise the two results would be larger
    than necessary, but still turn `rows` into `kept`.
    """
    left, right = _Window(rows, schema), _Window(kept, schema)
    while left.fill() and right.fill():
        count = min(left.held.num_rows, right.held.num_rows, WINDOW_ROWS)
        ours, theirs = left.held.slice(0, WINDOW_ROWS), right.held.slice(0, WINDOW_ROWS)
        if _same_bits(ours.slice(0, count), theirs.slice(0, count)):
            left.drop(count)
            right.drop(count)
            continue
        removed, at, met = _passed_over(ours, theirs)
        if removed:
            yield -1, left.held.take(pa.array(removed, _CODE))
        left.drop(at)
        right.drop(met)
    while left.fill():
        yield -1, left.take_all()
    while right.fill():
        yield 1, right.take_all()


def _passed_over(rows: pa.Table, kept: pa.Table) -> tuple[list[int], int, int]:
    """Which of `rows` are not among `kept`, up to the end of either, and how far that is in each."""
    codes = row_codes(pa.concat_tables([rows, kept])).to_pylist()
    ours, theirs = codes[: rows.num_rows], codes[rows.num_rows :]
    removed: list[int] = []
    at = met = 0
    while at < len(ours) and met < len(theirs):
        if ours[at] == theirs[met]:
            met += 1
        else:
            removed.append(at)
        at += 1
    return removed, at, met


def _same_bits(left: pa.Table, right: pa.Table) -> bool:
    """Whether all rows are certainly equal; False may also mean that a quick check cannot decide."""
    for ours, theirs in zip(left.columns, right.columns, strict=True):
        kind = ours.type
        if kinds.is_floating(kind):
            ours, theirs = _bits(ours), _bits(theirs)
        elif "float" in str(kind) or "double" in str(kind):
            return False  # floats in a nested column, which Arrow compares by value
        if not ours.equals(theirs):
            return False
    return True


class _Window:
    """The unread rows of a stream, one batch at a time."""

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = iter(batches)
        self.held: pa.Table = schema.empty_table()

    def fill(self) -> bool:
        """Whether a row is left; reads more when none is held."""
        while not self.held.num_rows:
            batch = next(self._batches, None)
            if batch is None:
                return False
            self.held = pa.Table.from_batches([batch], schema=self.held.schema)
        return True

    def drop(self, rows: int) -> None:
        self.held = self.held.slice(rows)

    def take_all(self) -> pa.Table:
        batches = self.held
        self.held = batches.slice(batches.num_rows)
        return batches


class Multiset:
    """Rows that were added (sign 1) and removed (sign -1): equal ones cancel, in whatever order they
    come."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._tables: list[pa.Table] = []
        self._counts: list[pa.Int64Array] = []
        self._not_netted = 0

    def add(self, sign: int, rows: pa.Table) -> None:
        """More rows, each `sign` times."""
        if not rows.num_rows:
            return
        self._tables.append(rows)
        self._counts.append(pa.repeat(to_scalar(sign, _CODE), rows.num_rows))
        self._not_netted += rows.num_rows
        # Netting costs as much as is held: it pays once as much again has been added.
        if self._not_netted >= max(
            NET_ROWS, sum(t.num_rows for t in self._tables) - self._not_netted
        ):
            self._net()

    def result(self) -> tuple[pa.Table, pa.Table]:
        """(rows removed, rows added): no row is in both."""
        self._net()
        if not self._tables:
            return self._schema.empty_table(), self._schema.empty_table()
        [rows], [counts] = self._tables, self._counts
        return _repeated(rows, pc.negate(counts)), _repeated(rows, counts)

    def _net(self) -> None:
        if not self._tables:
            return
        rows = pa.concat_tables(self._tables)
        table = pa.table(
            {
                "code": row_codes(rows),
                "count": pa.concat_arrays(self._counts),
                "row": pa.arange(0, rows.num_rows),
            }
        )
        sums = table.group_by("code", use_threads=False).aggregate(
            [("count", "sum"), ("row", "min")]
        )
        sums = sums.filter(pc.not_equal(sums["count_sum"], 0))
        self._tables = [_taken(rows, sums["row_min"].combine_chunks())] if sums.num_rows else []
        self._counts = [sums["count_sum"].combine_chunks()] if sums.num_rows else []
        self._not_netted = 0


def _repeated(rows: pa.Table, counts: pa.Int64Array) -> pa.Table:
    """Each row as often as its count; not at all below 1."""
    times = counts.to_pylist()
    return _taken(rows, pa.array([at for at, n in enumerate(times) for _ in range(n)], _CODE))


def _taken(rows: pa.Table, places: pa.Int64Array) -> pa.Table:
    batches = take_rows(rows, places, at_a_time=max(1, len(places)))
    return pa.Table.from_batches(batches, schema=rows.schema)


# -- rows as integers -----------------------------------------------------------------------------


def row_codes(rows: pa.Table) -> pa.Int64Array:
    """One integer for each row, equal exactly where the rows are equal."""
    return _coded([_codes(column) for column in rows.columns], rows.num_rows)


def _coded(columns: Sequence[pa.Int64Array], rows: int) -> pa.Int64Array:
    """Several codes of each row as one. Codes are dense, hence below the number of rows, which is far
    below 2^31: the pair of two fits."""
    codes = pa.repeat(to_scalar(0, _CODE), rows)
    for column in columns:
        pair = pc.add(pc.multiply(codes, to_scalar(rows + 1, _CODE)), column)
        codes = pair.dictionary_encode(null_encoding="encode").indices.cast(_CODE)
    return codes


def _codes(column: pa.ChunkedArray) -> pa.Int64Array:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _codes(pa.chunked_array([c.storage for c in column.chunks], kind.storage_type))
    if kinds.is_dictionary(kind):
        return _codes(column.cast(kind.value_type))
    if kinds.is_map(kind):
        pair = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
        return _codes(column.cast(pa.list_(pair)))
    if kinds.is_struct(kind):
        children = [_codes(child) for child in column.flatten()]
        return _coded([_codes(column.is_valid()), *children], len(column))
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return _list_codes(column)
    if kinds.is_floating(kind):
        column = _bits(column)
    is_view = kinds.is_string_view(kind) or kinds.is_binary_view(kind)
    if is_view or kinds.is_string(kind) or kinds.is_binary(kind):
        # The distinct ones of all chunks become one array.
        column = column.cast(pa.large_binary())
    # All chunks share one dictionary.
    coded = column.dictionary_encode(null_encoding="encode")
    return pa.concat_arrays([pa.array([], _CODE), *(c.indices.cast(_CODE) for c in coded.chunks)])


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats as integers of the same bits."""
    kind = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[column.type.bit_width]
    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)


def _list_codes(column: pa.ChunkedArray) -> pa.Int64Array:
    items = _codes(pc.list_flatten(column)).to_pylist()
    lengths = pc.list_value_length(column).to_pylist()
    starts = accumulate((n or 0 for n in lengths), initial=0)
    known: dict[tuple[int, ...] | None, int] = {}
    columns = [
        known.setdefault(None if n is None else tuple(items[at : at + n]), len(known))
        for at, n in zip(starts, lengths, strict=False)
    ]
    return pa.array(columns, _CODE)

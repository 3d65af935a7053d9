"""Batches cut by what they decode to, before anything in them is decoded, and texts in narrow offsets.

Promise: `pieces` gives the rows of a batch in their order, at most `PIECE_BYTES` of decoded values at a
time; one row that takes more is a piece of its own. What is done with a piece takes memory for a piece,
whatever the batch shares between its rows: dictionaries, views and list views repeat bytes that are stored
once.

Arrow counts the bytes of texts and the elements of lists in 32 bits. Beyond them some of its functions
fail, and some wrap without an error (casts from views, `repeat`, `replace_substring`), which gives other
rows. So nothing casts, decodes or takes more than a piece; `narrow`, `repeated` and `take_rows` make 32-bit
bytes of 64-bit or shared ones, and raise `pa.ArrowCapacityError` for what does not fit.

A slice counts as its own rows: where they start in what they are cut from is of no account.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from inlay.parquet.arrow.functions import pc
from inlay.parquet.arrow.types import is_list, pairs_of, running_sums, to_array, to_scalar

# As much as the writer holds. Far below what 32 bits address, so that a piece may grow on the way.
PIECE_BYTES = 256 * 1024 * 1024
# The most bytes that Arrow puts behind 32-bit offsets.
OFFSETS_END = 2**31 - 2
# A page of Parquet counts its bytes in 31 bits, before and after it is compressed: with the lengths and
# levels beside the values, and what compression adds to bytes that it cannot make fewer.
PAGE_END = 2**31 - 16 * 1024 * 1024
# An offset of a text or a list.
_OFFSET_BYTES = 4

_Result = TypeVar("_Result")
# The bytes of each row: one number where all are alike.
_RowBytes: TypeAlias = int | Any  # an Int64Array


# -- cutting --------------------------------------------------------------------------------------


def pieces(batch: pa.RecordBatch, *, row_bytes: int = 0) -> Iterator[pa.RecordBatch]:
    """The batch in pieces, at least one. `row_bytes` are what each row gets besides."""
    rows = batch.num_rows
    if rows < 2 or sum(map(bytes_at_most, batch.columns)) + rows * row_bytes <= PIECE_BYTES:
        yield batch
        return
    for start, end in _cuts(_added(_sizes_of(batch), row_bytes), rows):
        yield batch.slice(start, end - start)


def is_one_piece(batch: pa.RecordBatch) -> bool:
    """Whether this is sure without a look at each column, of a batch of the types that tables have: none of
    them decodes to more than 16 times its buffers (an element of a list of booleans)."""
    return bool(16 * batch.get_total_buffer_size() <= PIECE_BYTES)


def _cuts(sizes: _RowBytes, rows: int) -> Iterator[tuple[int, int]]:
    """(start, end) of pieces of rows of these sizes."""
    sums = _ends(sizes, rows)
    ends = memoryview(sums.buffers()[1]).cast("q")[sums.offset : sums.offset + len(sums)]
    start = 0
    while start < rows:
        end = max(start + 1, bisect_right(ends, ends[start] + PIECE_BYTES, start) - 1)
        yield start, end
        start = end


def halved(
    batch: pa.RecordBatch,
    work: Callable[[pa.RecordBatch], _Result],
    failing: tuple[type[Exception], ...],
) -> Iterator[_Result]:
    """The results of `work` for the batch, or for its halves where it fails for more than one row: for
    work whose results cannot be sized before. In at most twice the time, until a row fails alone."""
    try:
        done = work(batch)
    except failing:
        if batch.num_rows < 2:
            raise
        middle = batch.num_rows // 2
        yield from halved(batch.slice(0, middle), work, failing)
        yield from halved(batch.slice(middle), work, failing)
        return
    yield done


# -- sizes ----------------------------------------------------------------------------------------


def bytes_at_most(array: pa.Array) -> int:
    """A bound of the decoded bytes of all rows, in constant time but for views and what lists share."""
    kind, rows = array.type, len(array)
    if not rows:
        return 0
    if isinstance(array, pa.ExtensionArray):
        return bytes_at_most(array.storage)
    if pa.types.is_dictionary(kind):
        sizes = bytes_of_rows(array.dictionary)
        return rows * (sizes if isinstance(sizes, int) else int(pc.max(sizes).as_py() or 0))
    if pa.types.is_struct(kind):
        return sum(bytes_at_most(array.field(at)) for at in range(kind.num_fields))
    if pa.types.is_fixed_size_list(kind):
        return bytes_at_most(_elements(array)) + rows * int(kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        inner = _elements(array)
        return bytes_at_most(inner) + len(inner) + rows * _OFFSET_BYTES
    if _is_text(kind):
        first, last = _range(array)
        return int(last - first + rows * _OFFSET_BYTES)
    sizes = bytes_of_rows(array)
    return sizes * rows if isinstance(sizes, int) else int(pc.sum(sizes).as_py() or 0)


def bytes_of_rows(array: pa.Array) -> _RowBytes:
    """The decoded bytes of each row; an element of a list takes one at least."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return bytes_of_rows(array.storage)
    if pa.types.is_dictionary(kind):
        sizes = bytes_of_rows(array.dictionary)
        return sizes if isinstance(sizes, int) else _known(sizes.take(array.indices))
    if pa.types.is_struct(kind):
        total: _RowBytes = 0
        for at in range(kind.num_fields):
            total = _added(total, bytes_of_rows(array.field(at)))
        return total
    if _is_text(kind):
        return _added(_known(pc.binary_length(array)), _OFFSET_BYTES)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _added(_view_lengths(array), _OFFSET_BYTES)
    if is_list(kind) or pa.types.is_map(kind):
        return _bytes_of_lists(array)
    try:
        return -(-kind.bit_width // 8)
    except ValueError:  # nulls, and types that no table has
        return 0


def _bytes_of_lists(array: pa.Array) -> _RowBytes:
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        inner = _added(bytes_of_rows(_elements(array)), 1)
        if isinstance(inner, int):
            return inner * kind.list_size
        size = to_scalar(kind.list_size, pa.int64())
        starts = pc.multiply(pa.arange(0, len(array)), size)
        ends = pc.add(starts, size)
    else:
        values = array.keys if pa.types.is_map(kind) else array.values
        inner = _added(bytes_of_rows(values), 1)
        if pa.types.is_map(kind):
            inner = _added(inner, bytes_of_rows(array.items))
        lengths = _known(pc.list_value_length(_as_list(array)))
        if isinstance(inner, int):
            return _added(pc.multiply(lengths, to_scalar(inner, pa.int64())), _OFFSET_BYTES)
        starts = array.offsets.cast(pa.int64()).slice(0, len(array))
        if array.null_count:  # those of a NULL view may be anywhere
            starts = pc.if_else(array.is_valid(), starts, to_scalar(0, pa.int64()))
        ends = pc.add(starts, lengths)
    sums = _ends(inner, len(inner))
    return _added(pc.subtract(sums.take(ends), sums.take(starts)), _OFFSET_BYTES)


def _elements(array: pa.Array) -> pa.Array:
    """What the rows of a list that shares nothing hold, also those of NULL rows. Of a map, as structs."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        return array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    values = _as_list(array).values
    return values.slice(first, last - first)


def _as_list(array: pa.Array) -> pa.Array:
    return pairs_of(array) if pa.types.is_map(array.type) else array


def _is_text(kind: pa.DataType) -> bool:
    narrow_ = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return bool(narrow_ or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _view_lengths(array: pa.Array) -> pa.Int64Array:
    """Arrow has no function for it: the length is the first of a view's four words."""
    if not len(array):
        return to_array([], pa.int64())
    words = pa.Array.from_buffers(
        pa.int32(), 4 * len(array), [None, array.buffers()[1]], offset=4 * array.offset
    )
    lengths = pc.list_element(pa.FixedSizeListArray.from_arrays(words, 4), 0).cast(pa.int64())
    if array.null_count:
        lengths = pc.if_else(array.is_valid(), lengths, to_scalar(0, pa.int64()))
    return lengths


def _known(lengths: pa.Array) -> pa.Int64Array:
    return lengths.cast(pa.int64()).fill_null(to_scalar(0, pa.int64()))


def _added(left: _RowBytes, right: _RowBytes) -> _RowBytes:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    # pyarrow's own conversion of a number imports pandas (`to_array`).
    return pc.add(*(to_scalar(n, pa.int64()) if isinstance(n, int) else n for n in (left, right)))


def _ends(sizes: _RowBytes, rows: int) -> pa.Int64Array:
    """Where each row begins if all are laid out one after the other, and where the last ends."""
    if isinstance(sizes, int):
        sizes = pa.repeat(to_scalar(sizes, pa.int64()), rows)
    return running_sums(sizes)


def _offsets(array: pa.Array) -> pa.Array:
    """The offsets of the texts of an array, one more than it has rows."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    kind = pa.int64() if wide else pa.int32()
    return pa.Array.from_buffers(
        kind, len(array) + 1, [None, array.buffers()[1]], offset=array.offset
    )


def _range(array: pa.Array) -> tuple[int, int]:
    """Where the bytes of texts begin and end; at least one row."""
    offsets = _offsets(array)
    return offsets[0].as_py(), offsets[len(array)].as_py()


# -- 32-bit results -------------------------------------------------------------------------------


def narrow(array: pa.Array) -> pa.Array:
    """Texts or bytes of any layout as `pa.string()` or `pa.binary()`, others as they are. The bytes of
    large ones are shared, not copied."""
    kind = array.type
    is_text = pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    plain = pa.string() if is_text else pa.binary()
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        _check(pc.sum(_view_lengths(array)).as_py() or 0)
        # Arrow follows a view wherever it points, out of its memory too. Whether bytes are text is another
        # question, for `conform`, which names the value.
        array.view(pa.binary_view()).validate(full=True)
        return array.cast(plain)
    if not (pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)):
        return array
    if not len(array):
        return pa.array([], plain)
    first, last = _range(array)
    if last - first > OFFSETS_END:
        _check(pc.sum(pc.binary_length(array)).as_py() or 0)
        array = array.take(pa.arange(0, len(array)))  # without the bytes of NULL rows
        first, last = _range(array)
    _check(last - first)
    starts = pc.subtract(_offsets(array), first).cast(pa.int32())
    validity = array.is_valid().buffers()[1] if array.null_count else None
    held = array.buffers()[2] or pa.py_buffer(b"")
    if first < 0 or last < first or last > held.size:
        raise pa.ArrowInvalid("offsets beyond the bytes of an array")
    body = held.slice(first, last - first)
    buffers = [validity, starts.buffers()[1], body]
    return pa.Array.from_buffers(plain, len(array), buffers, array.null_count)


def lies_within(array: pa.Array) -> bool:
    """Whether the offsets of texts ascend, and end within their bytes."""
    if not len(array):
        return True
    offsets, body = _offsets(array), array.buffers()[2]
    first, last = _range(array)
    ascending = pc.all(
        pc.less_equal(offsets.slice(0, len(array)), offsets.slice(1)), min_count=0
    ).as_py()
    return bool(first >= 0 and ascending and last <= (body.size if body is not None else 0))


def repeated(value: pa.Scalar, rows: int) -> pa.Array:
    """`pa.repeat`, which wraps offsets without an error."""
    size = len(value.as_buffer()) if _is_text(value.type) and value.is_valid else 0
    _check(rows * size)
    return pa.repeat(value, rows)


def take_rows(table: pa.Table, rows: pa.Array, *, at_a_time: int) -> Iterator[pa.RecordBatch]:
    """Rows of a table by their numbers, none of them NULL, in pieces of at most `at_a_time` rows.

    Batch by batch: what is taken of a table of several joins all of it first, which fails beyond 2 GiB of
    text, and copies it each time below."""
    batches = table.to_batches()
    if not batches:
        return
    sizes = pa.concat_arrays([_sizes_of(batch) for batch in batches])
    for start in range(0, len(rows), at_a_time):
        some = rows.slice(start, at_a_time).cast(pa.int64())
        for first, end in _cuts(sizes.take(some), len(some)):
            yield _taken(batches, some.slice(first, end - first))


def distinct_rows(table: pa.Table) -> pa.Table:
    """Each row once. By the places of columns: Arrow reads a name that begins with a dot as a path, and
    would group by another column."""
    return table.group_by(list(range(table.num_columns)), use_threads=False).aggregate([])


def _sizes_of(batch: pa.RecordBatch) -> pa.Int64Array:
    total: _RowBytes = 0
    for column in batch.columns:
        total = _added(total, bytes_of_rows(column))
    return (
        pa.repeat(to_scalar(total, pa.int64()), batch.num_rows) if isinstance(total, int) else total
    )


def _taken(batches: list[pa.RecordBatch], rows: pa.Int64Array) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0].take(rows)
    parts, places, first = [], [], 0
    for batch in batches:
        here = pc.subtract(rows, first)
        inside = pc.and_(pc.greater_equal(here, 0), pc.less(here, batch.num_rows))
        if inside.true_count:
            parts.append(batch.take(here.filter(inside)))
            places.append(pc.indices_nonzero(inside))
        first += batch.num_rows
    if len(parts) == 1:
        return parts[0]
    return pa.concat_batches(parts).take(pc.sort_indices(pa.concat_arrays(places)))


def _check(size: int) -> None:
    if size > OFFSETS_END:
        raise pa.ArrowCapacityError("more bytes than 32-bit offsets address")

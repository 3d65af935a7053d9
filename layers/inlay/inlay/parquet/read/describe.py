"""Describe: the entry of a Parquet object, from its own footer.

Promise: an object that passes here can be read as the table's schema: it is Parquet, whole, not encrypted,
its row groups are within it and its columns fit. Others are refused by a typed error with the reason; pages
are not decoded (that would read the object).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.errors import ObjectGone, UnreadableFile
from inlay.format.entry import ColumnStats, DataFile
from inlay.format.partition import Partition, Transform, parse_transform, partition_of
from inlay.format.schema import Primitive, Schema, Value
from inlay.format.snapshot import PartitionSpec
from inlay.parquet.arrow.fits import check_fits, check_parquet_types
from inlay.parquet.arrow.types import fields_below, plain_type
from inlay.parquet.arrow.words import words_of
from inlay.parquet.footer.fields import Meta, Physical, Sizes, Stats
from inlay.parquet.footer.footer import (
    WIDTHS,
    ColumnChunk,
    Footer,
    Leaf,
    RowGroup,
    decode_footer,
    footer_length,
    parse_metadata,
    refuse_elsewhere,
    too_short,
)
from inlay.parquet.footer.thrift import unpack
from inlay.parquet.footer.writers import Writer, faults_of
from inlay.parquet.read.data_file import FooterOf, reading
from inlay.parquet.read.statistics import (
    entry_of_file,
    locate_columns,
    recorded_stats,
    total_rows,
    whole_stats,
)
from inlay.record import Record, replace
from inlay.storage.base import Got, Location, Missing, ObjectStore, version_of

# Enough for the footer of nearly every file.
TAIL_BYTES = 64 * 1024
# Of a file: the totals of a table of many files still fit in 63 bits.
MAX_ROWS = 2**48


class Described(Record):
    """A footer in both forms: Inlay's own, with offsets, and Arrow's, with types."""

    footer: Footer
    metadata: pq.FileMetaData
    arrow: pa.Schema

    @property
    def rows(self) -> int:
        # Not the footer's total: some writers leave that at 0.
        return total_rows(self.metadata)

    def footer_of(self, got: Got) -> FooterOf:
        """For later reads of the object that `got` is of: its footer, and all of it if it is here."""
        whole = len(got.body) == got.size
        tail = got.body if whole else got.body[-self.footer.length :]
        return FooterOf(self.metadata, tail, got.size, got.etag)


def parse_object_footer(tail: bytes, *, size: int) -> Described:
    """Decode the footer at the end of `tail`, the last bytes of an object of `size` bytes.

    Raises `UnreadableFile` or `UnsupportedFile`."""
    footer = decode_footer(tail, file_size=size)
    _check_chunks(footer)
    try:
        parsed = pq.ParquetFile(pa.BufferReader(tail[-footer.length :]))
        metadata = parse_metadata(tail, file_size=size)
        arrow = parsed.schema_arrow
        for _, field in fields_below(arrow):
            # Raises for a time zone that is not text: pyarrow decodes it on access.
            getattr(plain_type(field.type), "tz", None)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnreadableFile(f"the footer cannot be parsed: {words_of(error)}") from error
    # A group without rows may be nowhere: pyarrow writes no page of it without a dictionary.
    for group in (g for g in footer.row_groups if g.num_rows):
        for chunk in group.columns:
            if not 0 < chunk.start <= chunk.end <= footer.start:
                raise UnreadableFile(
                    "a column chunk is outside the file: it was cut short or damaged"
                )
    if total_rows(metadata) > MAX_ROWS:
        raise UnreadableFile("its footer has more rows than a file can have")
    return Described(footer, metadata, arrow)


def _check_chunks(footer: Footer) -> None:
    """Raises `UnreadableFile` if a chunk's metadata contradicts its column, `UnsupportedFile` if it is in
    another file: pyarrow would take what is at its offsets in this one."""
    for group in footer.row_groups:
        for leaf in footer.leaves:
            refuse_elsewhere(group.column(leaf.index))
            fault = _chunk_fault(leaf, group.column(leaf.index))
            if fault:
                raise UnreadableFile(f"column {'.'.join(leaf.path)!a}: {fault}")
    for leaf, _ in too_short(footer):
        if leaf.type in WIDTHS:
            raise UnreadableFile(
                f"the statistics of column {'.'.join(leaf.path)!a} are shorter than a value of it"
            )


def _chunk_fault(leaf: Leaf, chunk: ColumnChunk) -> str | None:
    if chunk.meta[Meta.TYPE] != leaf.type:
        return "a chunk has another type than the column"
    sizes_struct = chunk.meta.get(Meta.SIZES)
    if sizes_struct is None:
        return None
    sizes = unpack(sizes_struct)
    for key, level in (
        (Sizes.REPETITION_LEVELS, leaf.repetition_level),
        (Sizes.DEFINITION_LEVELS, leaf.definition_level),
    ):
        # Empty if the writer did not count.
        if key in sizes and len(sizes[key]) not in (0, level + 1):
            return f"a histogram of {len(sizes[key])} levels, of {level + 1}"
    if Sizes.TEXT_BYTES in sizes and leaf.type is not Physical.BYTE_ARRAY:
        return "a length of texts, though its values are not texts"
    return None


def entry_of(
    described: Described,
    *,
    key: str,
    size: int,
    schema: Schema,
    stats_columns: Sequence[int],
    extra_columns: bool = False,
    without_nulls: Collection[int] = (),
) -> tuple[DataFile, frozenset[int]]:
    """The entry of an object whose columns fit `schema`, and the ids of those that fit only if the footer's
    statistics of them are true. Raises `SchemaMismatch`, for columns that the table lacks unless
    `extra_columns`, and `UnsupportedType`. `without_nulls`: fields of which the caller sees to it that no
    row is NULL, where the footer does not count them."""
    with reading(key):
        columns = locate_columns(described.arrow, schema)
        # Columns the file does not have are useful as well: they are all NULL.
        known = {*columns.leaves, *stats_columns}
        whole = whole_stats(described.metadata, columns, schema, known)
        entry = entry_of_file(
            described.metadata,
            key=key,
            size=size,
            schema=schema,
            stats_columns=(),
            footer_size=described.footer.length,
        )
    located = [leaf for top in columns.tops.values() for leaf in top.leaves]
    check_parquet_types(described.metadata.schema, located)

    def evidence(field_id: int) -> ColumnStats | None:
        stats = whole.get(field_id)
        if field_id in without_nulls and (stats is None or stats.null_count is None):
            return replace(stats or ColumnStats(), null_count=0)
        return stats

    unproven = check_fits(described.arrow, schema, evidence=evidence, extra_columns=extra_columns)
    stats = recorded_stats({i: whole[i] for i in stats_columns if i in whole})
    return replace(entry, stats=stats), unproven


def doubted_lists(footer: Footer) -> frozenset[str]:
    """The top-level columns whose lists may have levels that no reader can tell, by what is known of the
    writer: of DuckDB's arrays of n elements that are NULL, n are counted in the chunk and as NULL. Their
    pages show whether they have (`ops.read.check_pages.check_lists`)."""
    if not faults_of(Writer.of(footer.created_by), "levels"):
        return frozenset()
    return frozenset(
        leaf.path[0]
        for leaf in footer.leaves
        if leaf.repetition_level
        and any(_may_be_null_arrays(leaf, group) for group in footer.row_groups)
    )


def _may_be_null_arrays(leaf: Leaf, group: RowGroup) -> bool:
    chunk, rows = group.column(leaf.index), group.num_rows
    is_even = leaf.repetition_level > 1 or (chunk.num_values > rows and not chunk.num_values % rows)
    return rows > 0 and is_even and (chunk.statistics or {}).get(Stats.NULLS) != 0


def partition_in(described: Described, schema: Schema, spec: PartitionSpec) -> Partition | None:
    """The only partition of `spec` that all rows of an object are in, by its footer; None when there are
    several, or the footer does not show it."""
    with reading(""):
        columns = locate_columns(described.arrow, schema)
        sources = {field.source for field in spec.fields}
        stats = whole_stats(described.metadata, columns, schema, sources)
    return partition_from_stats(spec, schema, stats, described.rows)


def partition_from_stats(
    spec: PartitionSpec, schema: Schema, stats: Mapping[int, ColumnStats], rows: int
) -> Partition | None:
    """The only partition of `spec` that all rows of a file are in, from bounds of its columns in the types
    of `schema`; None when there are several or it is unknown."""
    values: list[Value | None] = []
    for field in spec.fields:
        kind, known = schema.types.get(field.source), stats.get(field.source)
        if kind is None or known is None:
            return None
        if known.null_count == rows:
            values.append(None)
            continue
        value = _one_partition(parse_transform(field.transform), kind, known)
        if value is None:
            return None
        values.append(value)
    return tuple(values)


def _one_partition(transform: Transform, kind: Primitive, stats: ColumnStats) -> Value | None:
    unsure_of_nan = kind.is_float and stats.has_nan is not False
    if stats.null_count != 0 or unsure_of_nan or stats.lower is None or stats.upper is None:
        return None
    if transform.name == "bucket" and stats.lower != stats.upper:
        return None
    # The other transforms are monotone: a value between two values of one partition is in it, too.
    first, last = (partition_of(transform, kind, v) for v in (stats.lower, stats.upper))
    return first if first == last else None


def read_tail(store: ObjectStore, location: Location) -> Got:
    """The end of an object of `store` with all of its footer: one request for nearly every file, two for
    the others.

    Raises `ObjectGone`, also when the object changes in between."""
    tail = store.get_suffix(location.key, TAIL_BYTES, **version_of(location))
    if isinstance(tail, Missing):
        raise ObjectGone(f"{location.uri} no longer exists", key=location.key)
    needed = footer_length(tail.body)
    if needed <= len(tail.body) or needed > tail.size:
        return tail
    longer = store.get_suffix(location.key, needed, **version_of(location))
    if isinstance(longer, Missing) or longer.etag != tail.etag:
        raise ObjectGone(f"{location.uri} changed while it was read", key=location.key)
    return longer

"""Checks of data files and marker objects against their entries in the metadata.

Promise: findings are returned as (kind, message) of `plan.verify`; damage is found, not raised. An
unavailable store still raises. One request a file for its footer, one a marker object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inlay.errors import (
    CorruptTable,
    InlayError,
    NewerFormat,
    ObjectGone,
    SnapshotGone,
    SourceChanged,
    UnreadableFile,
    UnsupportedFile,
)
from inlay.format.entry import ColumnStats, DataFile, Keys, Vector
from inlay.format.predicate import Comparison, Literal, Or, Predicate
from inlay.format.schema import Schema
from inlay.parquet.arrow.evaluate import selected
from inlay.parquet.footer.footer import footer_length, parse_metadata
from inlay.parquet.read.data_file import chunk_range, reading
from inlay.parquet.read.deleted_rows import load_keys, load_vector
from inlay.parquet.read.ranges import Objects, fetch, fetch_tail
from inlay.parquet.read.statistics import locate_columns, total_rows, whole_stats
from inlay.plan.pruning.partitions import with_partition_values
from inlay.plan.pruning.prune import in_type
from inlay.plan.verify import column_of, contradictions
from inlay.record import replace
from inlay.storage.base import ByteRange

Problem = tuple[str, str]

DAMAGE = (
    CorruptTable,
    NewerFormat,
    ObjectGone,
    SnapshotGone,
    SourceChanged,
    UnreadableFile,
    UnsupportedFile,
)


def check_footer(objects: Objects, entry: DataFile, schema: Schema) -> list[Problem]:
    """A data file's footer against its entry. `schema` is the one the entry records."""
    try:
        return list(_footer_problems(objects, entry, schema))
    except DAMAGE as error:
        return [problem_of(error, "file")]


def _footer_problems(objects: Objects, entry: DataFile, schema: Schema) -> Iterator[Problem]:
    source = objects.source(entry.key, entry.size, entry.etag)
    tail, _ = fetch_tail(source, max(entry.footer_size, 8), entry.size)
    length = footer_length(tail)
    if length != entry.footer_size:
        yield (
            "file_contradicts",
            f"the footer has {length} bytes, the entry says {entry.footer_size}",
        )
        return
    with reading(entry.key):
        metadata = parse_metadata(tail, file_size=entry.size)
        arrow = metadata.schema.to_arrow_schema()
    stated = (total_rows(metadata), metadata.num_row_groups)
    if stated != (entry.rows, entry.row_groups):
        yield (
            "file_contradicts",
            f"the footer says {stated[0]} rows in {stated[1]} row groups, the entry {entry.rows} in "
            f"{entry.row_groups}",
        )
    chunks = (
        metadata.row_group(group).column(column)
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    )
    places = map(chunk_range, chunks)
    if any(place is not None and place.end > entry.size - length for place in places):
        yield "file_unreadable", "a column chunk is outside the file"
    columns = locate_columns(arrow, schema)
    schema = with_partition_values(schema, schema, entry.partition)
    for field_id, actual in whole_stats(metadata, columns, schema, entry.stats).items():
        name, kind = column_of(schema, field_id)
        # A bound that the file's writer truncated is not a value: the entry's may be narrower.
        if kind is not None and actual.exact:
            for what in contradictions(entry.stats[field_id], actual, kind):
                yield "statistics_wrong", f"column {name}: {what}"


class Judge:
    """Compares the values of one column with its statistics, batch by batch."""

    def __init__(self, field_id: int, stats: ColumnStats, schema: Schema) -> None:
        self.field_id = field_id
        self.stats = stats
        self.name, kind = column_of(schema, field_id)
        self.nulls = self.outside = 0
        outside: list[Predicate] = []
        if kind is not None and stats.lower is not None:
            outside.append(Comparison(field_id, "<", Literal(kind, stats.lower)))
        if kind is not None and stats.upper is not None:
            outside.append(Comparison(field_id, ">", Literal(kind, stats.upper)))
        self.predicate = Or(tuple(outside)) if outside else None

    def look(self, batch: pa.RecordBatch, columns: Mapping[int, tuple[int, ...]]) -> None:
        path = columns.get(self.field_id)
        if path is None or len(path) > 1:
            return  # a field inside a struct: its NULLs are not those of the statistics
        column = batch.column(path[0])
        self.nulls += column.null_count
        if self.predicate is None:
            return
        outside = selected(self.predicate, batch, dict(columns))
        if pa.types.is_floating(column.type) and self.stats.has_nan is not False:
            # NaN is above every bound, and bounds do not cover it.
            outside = pc.and_(outside, pc.invert(pc.is_nan(column).fill_null(False)))
        self.outside += outside.true_count

    def verdict(self) -> Iterator[str]:
        if self.outside:
            yield f"column {self.name}: {self.outside} values are outside the bounds"
        if self.stats.null_count not in (None, self.nulls):
            yield (
                f"column {self.name}: {self.nulls} NULLs exist, the statistics say "
                f"{self.stats.null_count}"
            )


# -- marker objects -------------------------------------------------------------------------------


def check_vector(objects: Objects, vector: Vector, file_rows: int | None) -> list[Problem]:
    """A deletion vector decodes, has the cardinality of its entry and marks existing rows."""
    # If the file's entry is not known, as many rows as a vector can mark.
    rows = 1 << 63 if file_rows is None else file_rows
    try:
        load_vector(objects, vector, rows)
    except DAMAGE as error:
        return [problem_of(error, "marker")]
    return []


def check_keys(objects: Objects, keys: Keys, schema: Schema) -> list[Problem]:
    """A file of keys is readable and agrees with its entry."""
    try:
        body = fetch(objects.source(keys.key, keys.size), ByteRange(0, keys.size))
        with reading(keys.key):
            table = pq.ParquetFile(pa.BufferReader(body)).read(use_threads=False)
        if table.num_rows != keys.rows:
            detail = f"holds {table.num_rows} keys, its entry says {keys.rows}"
            return [("marker_contradicts", detail)]
        loaded = load_keys(objects, keys, schema)
    except DAMAGE as error:
        return [problem_of(error, "marker")]
    batch = pa.RecordBatch.from_arrays(
        list(loaded.columns), [str(field_id) for field_id in loaded.field_ids]
    )
    places = {field_id: (n,) for n, field_id in enumerate(loaded.field_ids)}
    problems: list[Problem] = []
    for field_id, stats in keys.stats.items():
        kind = column_of(schema, field_id)[1]
        if stats.kind is not None and kind is not None:
            stats = in_type(stats, stats.kind, kind)  # widened since the keys were written
        judge = Judge(field_id, replace(stats, null_count=None), schema)
        judge.look(batch, places)
        problems += [("marker_contradicts", what) for what in judge.verdict()]
    return problems


def problem_of(error: InlayError, what: str) -> Problem:
    match error:
        case ObjectGone() | SnapshotGone():
            return f"{what}_missing", error.message
        case SourceChanged():
            return f"{what}_changed", error.message
        case _:  # whatever keeps it from being read
            return f"{what}_unreadable", error.message

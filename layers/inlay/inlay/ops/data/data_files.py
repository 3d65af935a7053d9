"""Write: rows into data files the way the table's properties say.

Promise: every operation that makes data files makes them here, so that an appended, an updated and a
compacted file differ in their rows only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from inlay.errors import InvalidRequest
from inlay.format import keys
from inlay.format.entry import DataFile
from inlay.format.properties import Properties
from inlay.format.schema import Schema
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.parquet.arrow.conform import check_names, conform
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.write.writer import Layout, Target, write_files
from inlay.plan.pruning.partitions import current_spec


def layout_of(snapshot: Snapshot) -> Layout:
    """File and row-group sizes, codec, sort order and statistics of the table."""
    properties = Properties(snapshot.properties)
    target = properties.number("write.target_file_bytes")
    return Layout(
        target_file_bytes=target,
        row_group_rows=properties.number("write.row_group_rows"),
        # A file ends with a row group, so none may be far larger than a file. Rows encode to about a
        # third of what they take in memory.
        row_group_bytes=min(properties.number("write.row_group_bytes"), 3 * target),
        compression=properties.text("write.compression"),
        sort_by=snapshot.sort_by,
        stats_columns=snapshot.stats_columns,
        spec=current_spec(snapshot),
    )


def target_of(ctx: Context, time_us: int) -> Target:
    """New data files under the hour of `time_us`, the store's clock."""
    return Target(ctx.objects, lambda: keys.data_key(time_us, ctx.new_id()), ctx.executor)


def write_batches(
    ctx: Context, snapshot: Snapshot, batches: Iterable[pa.RecordBatch], *, time_us: int
) -> Iterator[DataFile]:
    """Data files of batches that are laid out as the snapshot's schema."""
    return write_files(target_of(ctx, time_us), batches, snapshot.schema, layout_of(snapshot))


def write_data(ctx: Context, snapshot: Snapshot, data: Any, *, time_us: int) -> Iterator[DataFile]:
    """Data files of whatever speaks Arrow. Raises `SchemaMismatch` before the first is written when
    the data's schema does not fit."""
    reader = reader_of(data)
    rows = Declared.of(snapshot).checked(fitted(reader, snapshot.schema))
    return write_batches(ctx, snapshot, rows, time_us=time_us)


def fitted(reader: pa.RecordBatchReader, schema: Schema) -> Iterator[pa.RecordBatch]:
    """The reader's batches as rows of `schema`, matched by name; values that would be changed by the
    column's type are refused."""
    recorded = recorded_as(reader.schema, schema)
    return (conform(batch, recorded, schema, by_value=True) for batch in reader)


def recorded_as(arrow: pa.Schema, schema: Schema) -> Schema:
    """The schema under which data given by name is read: the table's own. Raises `SchemaMismatch` for
    columns and nested fields the table does not have, which would be dropped without a word."""
    check_names(arrow, schema)
    return schema


_FROM: tuple[tuple[type, Callable[[Any], pa.RecordBatchReader]], ...] = (
    (pa.RecordBatchReader, lambda d: d),
    (pa.RecordBatch, lambda d: pa.RecordBatchReader.from_batches(d.schema, [d])),
    (pa.Table, lambda d: d.to_reader()),
)


def reader_of(data: Any) -> pa.RecordBatchReader:
    """A reader over a pyarrow Table, RecordBatch or RecordBatchReader, or anything with
    `__arrow_c_stream__` (Polars, DuckDB, pandas, ADBC …)."""
    for kind, convert in _FROM:
        if isinstance(data, kind):
            return convert(data)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    raise InvalidRequest(
        f"cannot read rows from {type(data).__name__}",
        next_step="Give a pyarrow Table or RecordBatchReader, or anything with __arrow_c_stream__",
    )

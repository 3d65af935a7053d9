"""The data files that a commit refers to.

Promise: every operation writes data files through this module, in the layout that the table's properties
define, so appended, updated and compacted files differ only in their rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from inlay.errors import InvalidRequest
from inlay.format import keys
from inlay.format.entry import DataFile
from inlay.format.properties import Properties
from inlay.format.schema import Schema, listed_names
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.parquet.arrow.conform import check_names, conformed
from inlay.parquet.arrow.declared import Declared, checked_orders
from inlay.parquet.write.writer import Layout, Target, write_files

# Less than this is done before a bar could be read.
REPORT_ROWS = 250_000


def layout_of(snapshot: Snapshot) -> Layout:
    """File and row-group sizes, codec, sort order and statistics of the table."""
    properties = snapshot.settings
    target = properties.number("write.target_file_bytes")
    return Layout(
        target_file_bytes=target,
        row_group_rows=properties.number("write.row_group_rows"),
        # A file ends with a row group, so none may be larger than a file.
        row_group_bytes=min(properties.number("write.row_group_bytes"), target),
        compression=properties.text("write.compression"),
        sort_by=snapshot.sort_by,
        stats_columns=snapshot.stats_columns,
        bloom_columns=_bloom_columns(snapshot, properties),
        spec=snapshot.spec,
    )


def _bloom_columns(snapshot: Snapshot, properties: Properties) -> tuple[int, ...]:
    """The columns of `write.bloom_filters`. Of a key the column that files are sorted by first needs none:
    bounds find its values."""
    columns = properties.text("write.bloom_filters")
    if columns == "key":
        return tuple(i for i in snapshot.primary_key if i not in snapshot.sort_by[:1])
    names = {snapshot.column_named(name) for name in listed_names(columns)}
    return tuple(field.id for field in snapshot.schema.fields if field in names)


def target_of(ctx: Context, time_us: int) -> Target:
    """New data files under the hour of `time_us`, the store's clock."""

    def new_key() -> str:
        ctx.upload_begins()
        return keys.data_key(time_us, ctx.new_id())

    return Target(ctx.store, ctx.key, new_key, ctx.executor, before_retry=ctx.back_off)


def write_batches(
    ctx: Context,
    snapshot: Snapshot,
    batches: Iterable[pa.RecordBatch],
    *,
    time_us: int,
) -> Iterator[DataFile]:
    """Data files of batches that are laid out as the snapshot's schema."""
    target = target_of(ctx, time_us)
    return write_files(target, batches, snapshot.schema, layout_of(snapshot))


def _reported(ctx: Context, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; how many rows came so far is reported, unless these are few."""
    done = reported = 0
    try:
        for batch in batches:
            yield batch
            done += batch.num_rows
            if done - reported >= REPORT_ROWS:
                reported = done
                ctx.progress("rows written", done, None)
    finally:
        if reported:
            ctx.progress("rows written", done, done)


def write_data(
    ctx: Context,
    snapshot: Snapshot,
    data: Any,
    *,
    time_us: int,
    only: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]] = iter,
) -> Iterator[DataFile]:
    """Data files of any Arrow data. `only` checks the rows, in the table's types. Raises `SchemaMismatch`
    before the first is written when the data's schema does not fit."""
    reader = reader_of(data)
    Declared.of(snapshot).check_meaning(reader.schema)
    # Columns and nested fields that the table does not have would otherwise be dropped silently.
    check_names(reader.schema, snapshot.schema)
    ordered = checked_orders(snapshot, reader)
    return write_rows(
        ctx, snapshot, ordered, time_us=time_us, only=lambda rows: _reported(ctx, only(rows))
    )


def write_rows(
    ctx: Context,
    snapshot: Snapshot,
    batches: Iterable[pa.RecordBatch],
    *,
    time_us: int,
    only: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]] = iter,
) -> Iterator[DataFile]:
    """Data files of batches whose columns have the table's names. Values that a column's type would change
    are refused. `only` checks the rows, in the table's types."""
    schema = snapshot.schema
    fitted = conformed(batches, schema, schema, by_value=True)
    rows = only(Declared.of(snapshot).checked(fitted))
    return write_batches(ctx, snapshot, rows, time_us=time_us)


def check_fits(arrow: pa.Schema, schema: Schema) -> None:
    """Raises `SchemaMismatch` where no data of this Arrow schema can be rows of a table, whatever values it
    has."""
    check_names(arrow, schema)
    nothing = pa.RecordBatch.from_pylist([], schema=arrow)
    list(conformed([nothing], schema, schema, by_value=True))


# How pyarrow names the column of a pandas frame that it cannot convert.
_CONVERTED = re.compile(r"Conversion failed for column (.+) with type ")
_OF_A_FILE = (
    "Give create, append, upsert and overwrite a file as a pathlib.Path; in a shell: inlay append"
)
# What people give first.
_STEPS = {
    "LazyFrame": "Run it first: frame.collect()",
    "Series": "Give a table with the column's name: series.to_frame()",
    # Without a schema, Arrow takes the columns of the first row only.
    "list": "Give pa.Table.from_pylist(rows, schema=…)",
    "dict": "Give pa.table(columns)",
    "str": _OF_A_FILE,
    "PosixPath": _OF_A_FILE,
}


def _no_columns(data: Any, error: Exception) -> InvalidRequest:
    """For data that its own library cannot give as Arrow. The error's first words may quote a value."""
    name = type(data).__name__
    matches = (_CONVERTED.search(str(part)) for part in error.args)
    column = next((match[1] for match in matches if match is not None), None)
    if column is not None:
        return InvalidRequest(
            f"column {column!r} of the {name} has values of several types, or of one that Arrow lacks",
            next_step=f"Give it one: frame.astype({{{column!r}: …}}), for example 'string'",
        )
    if name == "Series" or "non-struct" in str(error):
        return InvalidRequest(
            f"cannot read rows from one column ({name})",
            next_step="Give a table with the column's name: series.to_frame(), pa.table({…: column})",
        )
    return InvalidRequest(
        f"the {name} cannot be read as Arrow: {type(error).__name__}",
        next_step="pa.table(data) shows why: each column needs a name of its own and one type",
    )


def reader_of(data: Any) -> pa.RecordBatchReader:
    """A reader over a pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, or anything with
    `__arrow_c_stream__` (Polars, DuckDB, pandas, ADBC …)."""
    match data:
        case pa.RecordBatchReader():
            return data
        case pa.RecordBatch():
            return pa.RecordBatchReader.from_batches(data.schema, [data])
        case _ if hasattr(
            data, "to_reader"
        ):  # of Arrow and of ours: errors met on the way keep their type
            return data.to_reader()
        case _ if hasattr(data, "__arrow_c_stream__"):
            return _imported(data)
        case _ if type(data).__module__.startswith("pyarrow._dataset"):
            scanner = data.scanner() if hasattr(data, "scanner") else data
            return scanner.to_reader()
        case _:
            raise InvalidRequest(
                f"cannot read rows from {type(data).__name__}",
                next_step=_STEPS.get(
                    type(data).__name__,
                    "Give a pyarrow Table or RecordBatchReader, or anything with __arrow_c_stream__",
                ),
            )


def _imported(data: Any) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise _no_columns(data, error) from error

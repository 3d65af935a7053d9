"""Delete: removes rows in one commit, with the cheapest kind of marker.

Promise: the rows for which the predicate is TRUE (or whose key is listed) are gone, and no row inserted
after the commit is; a redelivered request changes nothing. A table-wide marker deletes from the version
that its commit follows; a delete that reads rows deletes what it read, and under `isolation=serializable`
reads again when files that may match were added meanwhile.

`tombstone` reads no data: only the marker is written, with at most three requests after the pointer is
read. It hits what a scan by its condition shows. `vector` reads the filter columns of files that may match
and marks row positions; `surgery` and `rewrite` remove the rows from the files at once. These leave out no
file because of another writer's statistics.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.errors import InvalidPredicate, InvalidRequest, SchemaMismatch
from inlay.format import keys as object_keys
from inlay.format.entry import KeyRange, Keys, Marker, RowGroups, Where
from inlay.format.expression import Condition
from inlay.format.predicate import And, Comparison, In, Predicate, predicate_to_json
from inlay.format.properties import DELETE_MODES, DeleteMode
from inlay.format.schema import Field, Primitive, Schema, Value
from inlay.ops.commit.driver import (
    Committed,
    Planned,
    Skipped,
    already_applied,
    check_same_schema,
    commit_planned,
    current_base,
    recent_base,
)
from inlay.ops.commit.group import Uploads, archive_beside
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable
from inlay.parquet.arrow.conform import conformed
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.arrow.pieces import distinct_rows
from inlay.parquet.arrow.types import schema_to_arrow, to_physical
from inlay.plan.change import (
    AddMarkers,
    Change,
    Request,
)
from inlay.record import replace

if TYPE_CHECKING:
    from inlay.plan.surgery import Strategy

# A marker is in the pointer at every commit until it rolls: at most 10 KB (docs/FORMAT.md, section 8).
MAX_PREDICATE_BYTES = 8 * 1024
# Of a marker object (docs/FORMAT.md, section 8).
MAX_MARKER_OBJECT_BYTES = 32 * 1024 * 1024
# Keys that are sorted together: one Arrow array holds twice as many bytes.
PART_BYTES = 1024 * 1024 * 1024
# Up to this many keys become an IN list.
INLINE_KEYS = 64


def delete(
    ctx: Context,
    condition: Condition | Predicate,
    *,
    mode: str | None = None,
    file: str | None = None,
    base: LoadedTable | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """Delete the rows for which the condition is TRUE, in the whole table or in one data file. One that
    calculates cannot be kept: the rows that it finds are marked, where the mode is `tombstone`."""
    condition = condition if isinstance(condition, Condition) else Condition(condition)
    predicate = condition.predicate
    loaded = recent_base(ctx, base)
    chosen = mode_of(loaded, condition, mode, "delete.mode")
    if loaded is base and (file is not None or chosen != "tombstone"):
        loaded = current_base(ctx, base)
    loaded, before = already_applied(ctx, loaded, request)
    if before is not None:
        return before
    if file is not None:
        from inlay.ops.metadata.find_file import load_file  # most deletes are of the whole table

        loaded = replace(loaded, state=load_file(ctx, loaded.state, file))
        if file not in loaded.state.loaded_file_keys():
            raise InvalidRequest(
                f"no such file: {file}",
                next_step="`t.inspect.files()` lists the live files; a rewrite may have replaced it",
                table=ctx.uri,
            )
    strategy: Strategy | None = None
    match chosen:
        case "tombstone":
            marker = marker_of(ctx, loaded, predicate, file=file)
            return commit_markers(ctx, loaded, request, lambda _: [marker])
        case "vector":
            pass
        case "surgery" | "rewrite":
            strategy = chosen
    from inlay.ops.write.delete_rows import RowDelete  # most deletes are markers

    by_rows = RowDelete(ctx, condition, strategy, file, request)
    return commit_planned(ctx, loaded, by_rows.plan)


def mode_of(loaded: LoadedTable, condition: Condition, given: str | None, name: str) -> DeleteMode:
    """The mode that is `given`, or the table's property `name`. A condition that calculates cannot be kept:
    the rows that it finds are marked."""
    mode = known_mode(given or loaded.snapshot.settings.text(name), name)
    return "vector" if mode == "tombstone" and condition.calculated is not None else mode


def known_mode(text: str, name: str) -> DeleteMode:
    """The mode of this name; `name` is the property of a table that says it. Raises `InvalidRequest`."""
    mode = next((mode for mode in DELETE_MODES if mode == text), None)
    if mode is None:
        known = (*DELETE_MODES, *(["erase"] if name == "delete.mode" else []))
        raise InvalidRequest(
            f"unknown mode {text!r}",
            next_step=f"It is one of {', '.join(known)}",
        )
    return mode


def delete_keys(
    ctx: Context,
    keys: pa.Table,
    *,
    base: LoadedTable | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """Deletes the rows whose columns equal a row of `keys` (named as the table's columns). NULL equals
    nothing. Constant time except for writing the keys."""
    loaded, before = already_applied(ctx, recent_base(ctx, base), request)
    if before is not None:
        return before
    bound = loaded

    def markers_on(uploads: Uploads) -> list[Marker]:
        check_same_schema(ctx, bound, uploads.base)
        return list(key_markers(uploads.ctx, uploads.base, keys))

    return commit_markers(ctx, loaded, request, markers_on, keys.nbytes)


def marker_of(
    ctx: Context, loaded: LoadedTable, predicate: Predicate, *, file: str | None = None
) -> Marker:
    """The marker of a constant-time delete. Raises `InvalidPredicate` for one that is too large."""
    size = stored_bytes(predicate)
    if size > MAX_PREDICATE_BYTES:
        raise InvalidPredicate(
            f"the predicate takes {size} bytes, more than the {MAX_PREDICATE_BYTES} of a marker",
            is_plain=True,
            next_step="Delete by `keys=` (a table of key values), or split the predicate",
            table=ctx.uri,
        )
    key = loaded.snapshot.primary_key
    # Readers can use a range of the leading key column without evaluating a predicate.
    body = (_as_range(predicate, key[0]) if key else None) or Where(predicate)
    return Marker(id=ctx.new_id(), body=body, file=file)


def _as_range(predicate: Predicate, field_id: int) -> KeyRange | None:
    """The predicate as one range of `field_id`, if it is exactly that."""
    parts = predicate.parts if isinstance(predicate, And) else (predicate,)
    key_range = KeyRange(field_id)
    for part in parts:
        narrowed = _narrow(key_range, part)
        if narrowed is None:
            return None
        key_range = narrowed
    return key_range if key_range != KeyRange(field_id) else None


def _narrow(key_range: KeyRange, part: Predicate) -> KeyRange | None:
    if not isinstance(part, Comparison) or part.field_id != key_range.field_id:
        return None
    if part.literal.type.is_float:
        # An open side of a range includes NaN on one side only; a predicate is unambiguous.
        return None
    value: Value = part.literal.value
    free_below, free_above = key_range.lower is None, key_range.upper is None
    key_range = replace(key_range, kind=part.literal.type)
    match part.op:
        case "=" if free_below and free_above:
            return replace(key_range, lower=value, upper=value)
        case ">" | ">=" if free_below:
            return replace(key_range, lower=value, lower_inclusive=part.op == ">=")
        case "<" | "<=" if free_above:
            return replace(key_range, upper=value, upper_inclusive=part.op == "<=")
        case _:  # not one range: stored as a predicate
            return None


def stored_bytes(predicate: Predicate) -> int:
    stored = json.dumps(predicate_to_json(predicate), ensure_ascii=False, separators=(",", ":"))
    return len(stored.encode("utf-8"))


def key_markers(ctx: Context, loaded: LoadedTable, keys: pa.Table) -> Iterator[Marker]:
    """Markers for a table of keys: an IN list for a few, else Parquet objects of at most 32 MB."""
    schema = loaded.snapshot.schema
    try:
        if len(set(keys.column_names)) < len(keys.column_names):
            raise SchemaMismatch(f"the keys name a column twice: {keys.column_names}")
        fields = [key_field(schema, name) for name in keys.column_names]
        if not fields:
            raise SchemaMismatch("the keys have no columns")
        # As rows are taken: a key that a cast would change would delete rows that nobody named.
        columns = Schema(
            schema.id, tuple(replace(column, nullable=True, default=None) for column, _ in fields)
        )
        Declared.of(loaded.snapshot, columns).check_meaning(keys.schema)
        batches = list(conformed(keys.to_batches(), columns, columns, by_value=True))
    except SchemaMismatch as error:
        raise error.about(table=ctx.uri) from None
    arrow = schema_to_arrow(columns)
    parts = [
        distinct_rows(pa.Table.from_batches(part, schema=arrow).drop_null())
        for part in _parts(batches)
    ]
    distinct = [part for part in parts if part.num_rows]
    if not distinct:
        return
    if len(distinct) == len(fields) == 1 and distinct[0].num_rows <= INLINE_KEYS:
        [(column, kind)] = fields
        values = {to_physical(v, kind) for v in distinct[0].column(0)}
        listed = In(column.id, kind, tuple(v for v in values if v is not None))
        if not kind.is_float and stored_bytes(listed) <= MAX_PREDICATE_BYTES:
            yield marker_of(ctx, loaded, listed)
            return
    ids = tuple(column.id for column, _ in fields)
    for part in distinct:
        part = part.sort_by([(place, "ascending") for place in range(part.num_columns)])
        # Objects that stay within the bound even if nothing compresses.
        rows = max(1, part.num_rows * MAX_MARKER_OBJECT_BYTES // (2 * part.nbytes))
        for start in range(0, part.num_rows, rows):
            yield _write_keys(ctx, loaded, ids, part.slice(start, rows))


def key_field(schema: Schema, name: str) -> tuple[Field, Primitive]:
    """The column of keys, and its type. Raises `SchemaMismatch` for one that is not primitive."""
    column = schema.column(name)
    if column is None or not isinstance(column.type, Primitive):
        raise SchemaMismatch(
            f"the keys have a column {name!r}, which is not a primitive column of this table",
            next_step=schema.other_case(name) or f"The columns are: {', '.join(schema.names)}",
        )
    return column, column.type


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches whose distinct keys become one array. A key that is in two parts deletes what it would in
    one."""
    part: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if part and size + batch.nbytes > PART_BYTES:
            yield part
            part, size = [], 0
        part.append(batch)
        size += batch.nbytes
    if part:
        yield part


def _write_keys(
    ctx: Context, loaded: LoadedTable, field_ids: tuple[int, ...], keys: pa.Table
) -> Marker:
    from inlay.parquet.read.statistics import locate_columns, recorded_stats, whole_stats

    sink = io.BytesIO()
    encodings = _differences(keys.schema)
    others = [name for name in keys.schema.names if name not in encodings]
    pq.write_table(keys, sink, compression="zstd", use_dictionary=others, column_encoding=encodings)
    data = sink.getvalue()
    key = object_keys.tombstone_key(loaded.date_us, ctx.new_id(), "del")
    ctx.upload_begins()
    ctx.write_once(key, data)
    schema = loaded.snapshot.schema
    metadata = pq.read_metadata(pa.BufferReader(data))
    columns = locate_columns(keys.schema, schema)
    stats = recorded_stats(whole_stats(metadata, columns, schema, field_ids))
    body = Keys(field_ids, key, len(data), keys.num_rows, stats, schema.id)
    return Marker(id=ctx.new_id(), body=body)


def _differences(schema: pa.Schema) -> dict[str, str]:
    """The columns of sorted distinct keys that are stored by their differences: numbers and times, and the
    texts that come first. For others a dictionary is smaller. 100,000 keys of lineitem take a third."""
    values = {}
    for place, column in enumerate(schema):
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
            values[column.name] = "DELTA_BINARY_PACKED"
        elif place == 0 and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            values[column.name] = "DELTA_BYTE_ARRAY"
    return values


def commit_markers(
    ctx: Context,
    loaded: LoadedTable,
    request: Request | None,
    markers_on: Callable[[Uploads], Sequence[Marker]],
    upload_bytes: int = 0,
) -> Committed | Skipped:
    planned: list[Change] = []

    def plan(base: LoadedTable) -> Planned:
        with archive_beside(ctx, base, upload_bytes) as uploads:
            markers = tuple(markers_on(uploads))
        objects = any(m.object_key is not None for m in markers)
        change = Change(
            operation="delete",
            request=request,
            uploaded_us=base.date_us if objects else None,
            deleted_rows=None,
            updates=(AddMarkers(markers),),
        )
        planned.append(change)
        return Planned(change, uploads.base)

    result = commit_planned(ctx, loaded, plan)
    if isinstance(result, Skipped) and result.version is None and planned[-1].markers:
        # No file of this base can match; files may have been added since it was read.
        newest = current_base(ctx, result.loaded)
        if newest.etag != result.loaded.etag:
            return commit_planned(ctx, newest, plan)
    return result


def delete_row_groups(
    ctx: Context,
    file: str,
    ordinals: Sequence[int],
    *,
    base: LoadedTable | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """Deletes whole row groups of one data file, by ordinal from 0. Reads no data."""
    loaded, before = already_applied(ctx, current_base(ctx, base), request)
    if before is not None:
        return before
    from inlay.ops.metadata.find_file import load_file

    loaded = replace(loaded, state=load_file(ctx, loaded.state, file))
    entry = next((f for f in loaded.state.loaded_files() if f.key == file), None)
    groups = tuple(sorted(set(ordinals)))
    if entry is None or not groups or not 0 <= groups[0] <= groups[-1] < entry.row_groups:
        raise InvalidRequest(
            f"no such row groups: {list(ordinals)} of {file}",
            next_step="`t.inspect.files()` lists the live files and how many row groups each has",
            table=ctx.uri,
        )
    marker = Marker(id=ctx.new_id(), body=RowGroups(groups), file=file)
    return commit_markers(ctx, loaded, request, lambda _: [marker])

"""Create: a table's first snapshot, and how its new files are partitioned.

Promise: at most one of any number of racing creators wins; the others get `TableExists`. Nothing is created
over the remains of another table: archives with the names that the new table's would get are refused,
because they may be all that is left of a table whose pointer was lost. Rows that a table begins with are in
its first version: whoever sees the table sees all of them.

Another partitioning changes no file and no query's answer. Files of earlier specs stay as they are until
compaction rewrites them; each is pruned by the spec it was written under.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from inlay.errors import (
    AccessDenied,
    CorruptTable,
    ForeignArchives,
    InlayError,
    InvalidRequest,
    TableExists,
    a_type,
)
from inlay.format.entry import DataFile
from inlay.format.keys import (
    ARCHIVES,
    DATA,
    MEMORY,
    POINTER,
    PUBLISHED,
    SEGMENTS,
    TOMBSTONES,
    archive_version,
    is_collected,
    is_foreign,
)
from inlay.format.properties import check_named_columns, check_properties, with_arrow_types
from inlay.format.schema import Primitive, Schema
from inlay.format.snapshot import UNPARTITIONED, Commit, PartitionSpec, Snapshot
from inlay.lazy import LazyModule
from inlay.ops.commit import register
from inlay.ops.commit.driver import (
    Committed,
    Skipped,
    WrittenSegments,
    already_applied,
    commit,
    expect_committed,
    recent_base,
    write_segment,
)
from inlay.ops.context import Context
from inlay.ops.data import reader_of, write_data
from inlay.ops.metadata.load import LoadedTable
from inlay.parquet.arrow.declared import declarations, ordered_columns
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.plan.change import AddFiles, Change, Proposal, Request, SetPartitioning
from inlay.plan.commit.apply import apply, seal
from inlay.plan.metadata.state import State, choose_stats_columns
from inlay.record import replace
from inlay.storage.base import Head

if TYPE_CHECKING:
    from inlay.parse import partitioning
else:  # most tables are not partitioned
    partitioning = LazyModule("inlay.parse.partitioning")

CREATE = "create"
# Objects of one page of a listing.
_MANY = 1_000


def create(
    ctx: Context,
    schema: Any,
    *,
    primary_key: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    properties: Mapping[str, object] | None = None,
) -> LoadedTable:
    """Creates the table at `ctx.root`, version 1: empty, or with the rows of any Arrow data (`ops.data`) in
    place of a schema.

    Raises `TableExists`, and `ForeignArchives` if only the pointer of an earlier table is gone.
    """
    rows = None if isinstance(schema, pa.Schema) else _first_rows(ctx, schema)
    base = unmade(
        ctx,
        schema if rows is None else rows.schema,
        primary_key=primary_key,
        sort_by=sort_by,
        partition_by=partition_by,
        properties=properties,
    )
    files: tuple[DataFile, ...] = ()
    if rows is not None:
        snapshot = base.snapshot
        if ordered_columns(snapshot):
            from inlay.ops.schema.categories import with_first_orders  # few tables have such

            snapshot, rows = with_first_orders(ctx, snapshot, rows)
            base = replace(base, state=State(snapshot))
        files = tuple(write_data(ctx, snapshot, rows, time_us=base.date_us))
    return first_version(ctx, base, Change(operation=CREATE, updates=(AddFiles(files),)))


def unmade(
    ctx: Context,
    schema: pa.Schema,
    *,
    primary_key: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    properties: Mapping[str, object] | None = None,
) -> LoadedTable:
    """A table without rows that is in no store: version 0, which `first_version` begins. Raises as
    `create`."""
    checked = check_properties(properties or {})
    typed = _first_schema(ctx, schema)
    check_named_columns(checked, typed)
    key_ids = _column_ids(typed, primary_key, "primary_key", ctx.uri)
    sort_ids = _column_ids(typed, sort_by, "sort_by", ctx.uri)
    fields = partitioning.partition_fields(partition_by, typed) if partition_by else ()
    specs = (UNPARTITIONED, PartitionSpec(1, fields)) if fields else (UNPARTITIONED,)
    date_us = check_free(ctx)
    snapshot = Snapshot(
        table_id=ctx.new_id(),
        version=0,
        commit=Commit(id=ctx.new_id(), operation=CREATE),
        schemas=(typed,),
        schema_id=typed.id,
        last_field_id=typed.max_id(),
        primary_key=key_ids,
        sort_by=sort_ids,
        specs=specs,
        spec_id=specs[-1].id,
        stats_columns=choose_stats_columns(
            typed, key_ids, sort_ids, checked, partitioned_by=tuple(f.source for f in fields)
        ),
        properties=with_arrow_types(checked, declarations(schema, typed)),
    )
    return LoadedTable(State(snapshot), "", b"", date_us, ctx.clock.monotonic())


def _first_rows(ctx: Context, data: Any) -> pa.Table | pa.RecordBatchReader:
    """The rows that a table begins with. Raises `InvalidRequest` for what is neither rows nor a schema."""
    if isinstance(data, Mapping | Sequence):
        raise InvalidRequest(
            f"a schema cannot be {a_type(data)}",
            next_step="Give a pyarrow.Schema, a text of columns, or rows: a table, reader or "
            "dataset of pyarrow, a frame",
            table=ctx.uri,
        )
    return data if isinstance(data, pa.Table) else reader_of(data)


def _first_schema(ctx: Context, arrow: pa.Schema) -> Schema:
    """The first schema of a table with these columns. Raises `InvalidRequest`, `UnsupportedType`, and
    `SchemaMismatch` for two of one name."""
    schema = schema_from_arrow(arrow)
    if not schema.fields:
        raise InvalidRequest(
            "a table needs at least one column",
            next_step="Give its schema, as by --schema or --like of `inlay create`",
            table=ctx.uri,
        )
    return schema


def first_version(ctx: Context, base: LoadedTable, change: Change) -> LoadedTable:
    """The table that `change` makes of `base`, which is of version 0 and in no store. Everything is stored
    first, then the pointer, by one PUT that fails where there is one."""
    if change.added or change.request is not None or change.events:
        written = WrittenSegments(ctx.new_id())
        outcome = apply(base.state, change, commit_id=ctx.new_id(), name=written.name)
        if not isinstance(outcome, Proposal):
            raise CorruptTable(f"the table cannot be planned: {outcome}", table=ctx.uri)
        proposal = outcome
    else:
        proposal = Proposal(replace(base.snapshot, version=1), ())
    dates = ctx.map(lambda s: write_segment(ctx, s.id, s.data), proposal.segments)
    date_us = max([base.date_us, *dates])
    loaded = register.create(ctx, seal(proposal, date_us=date_us, previous_us=0))
    if loaded is None:
        raise TableExists(f"there already is a table at {ctx.uri}", table=ctx.uri)
    return loaded


def check_free(ctx: Context, *, is_begun: bool = False) -> int:
    """The store's date at which there was no table at `ctx.root`, nor the remains of one, nor, unless an
    engine has written files for it (`is_begun`), anything of others in the folders that the table's garbage
    collection would empty. Raises `TableExists`, `ForeignArchives`; `InvalidRequest` for a place within
    another table, and for a disk's root, whose every folder would be the table's to collect."""
    if ctx.store.scheme == "file" and os.path.normpath("/" + ctx.root).strip("/") == "":
        raise InvalidRequest(
            f"{ctx.uri} is the root of the disk, not a place for a table",
            next_step="Name a folder: file:///data/people. (Is a variable in the path empty?)",
            table=ctx.uri,
        )
    _check_around(ctx)
    # Before the pointer is read: archives that exist while no pointer does are not a racing creator's.
    there = _objects_at(ctx)
    # The store's clock, not this host's: the 404 for an absent pointer has a Date like any answer.
    now = ctx.store.head(ctx.key(POINTER))
    if isinstance(now, Head):
        raise TableExists(f"there already is a table at {ctx.uri}", table=ctx.uri)
    archive = next((key for key in there if archive_version(key) is not None), None)
    if archive is not None:
        raise ForeignArchives(
            f"{ctx.uri} has no pointer, but archives of an earlier table: {ctx.key(archive)}",
            next_step="`inlay repair` rebuilds that table from them; if it is no longer needed, delete "
            f"everything under {ctx.uri}/ and create the table then",
            table=ctx.uri,
            key=ctx.key(archive),
        )
    foreign = None if is_begun else next(filter(is_foreign, there), None)
    if foreign is not None:
        folder = foreign.rpartition("/")[0]
        raise InvalidRequest(
            f"{ctx.uri}/{folder}/ has objects of others ({foreign}), which the table's garbage collection "
            "would delete: the folder would be its own",
            next_step="Choose another place, such as a new folder beside it, or move them; "
            "inlay.adopt (`inlay adopt`) makes a table of Parquet files where they are",
            table=ctx.uri,
            key=ctx.key(foreign),
        )
    return now.date_us


def _check_around(ctx: Context) -> None:
    """Raises `InvalidRequest` for a place in a folder that another table's garbage collection empties. A
    place where the caller may not look for such a table is not refused."""
    folders = ctx.root.split("/")
    for at in range(len(folders)):
        if not is_collected("/".join((*folders[at:], POINTER))):
            continue
        around = "/".join((*folders[:at], POINTER))
        try:
            is_table = isinstance(ctx.store.head(around), Head)
        except AccessDenied:
            continue
        if is_table:
            raise InvalidRequest(
                f"{ctx.uri} is in the folder {folders[at]}/ of another table, whose garbage collection "
                "would delete it",
                next_step="Choose a place beside that table",
                table=ctx.uri,
                key=around,
            )


def _objects_at(ctx: Context) -> Sequence[str]:
    """Objects under `ctx.root`, by their keys in it: all, or where there are many some of each folder that
    a table has. One listing where there are few."""
    own = (ARCHIVES + "v", SEGMENTS, DATA, TOMBSTONES, f"{MEMORY}/", PUBLISHED)
    for folders in (("",), own):
        listed = [islice(ctx.store.list(ctx.key(folder)), _MANY) for folder in folders]
        keys = [ctx.relative(info.key) for infos in listed for info in infos]
        if len(keys) < _MANY:
            break
    return keys


def _column_ids(schema: Schema, names: Sequence[str], what: str, table: str) -> tuple[int, ...]:
    ids: list[int] = []
    for name in names:
        column = schema.column_named(name)
        if column is None or not isinstance(column.type, Primitive):
            raise InvalidRequest(
                f"{what} names {name!r}, which is not a primitive column",
                next_step=schema.other_case(name) or f"The columns are: {', '.join(schema.names)}",
                table=table,
            )
        ids.append(column.id)
    return tuple(ids)


def set_partitioning(
    ctx: Context,
    texts: Sequence[str],
    *,
    base: LoadedTable | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """Partitions new files by `texts` (`parse.partitioning`); none: not at all. Raises `ConcurrentChange`
    when the partitioning is no longer that of `base`, unless it is the requested one."""
    loaded, before = already_applied(ctx, recent_base(ctx, base), request)
    if before is not None:
        return before
    snapshot = loaded.snapshot
    try:
        fields = partitioning.partition_fields(texts, snapshot.schema)
    except InlayError as error:
        raise error.about(table=ctx.uri) from None
    edit = SetPartitioning(planned_on=snapshot.spec_id, fields=fields)
    change = Change(operation="set_partitioning", request=request, updates=(edit,))
    return expect_committed(ctx, commit(ctx, change, base=loaded))

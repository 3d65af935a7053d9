"""Create: a table's first snapshot, and how its new files are partitioned.

Promise: at most one of any number of racing creators wins; the others get `TableExists`. Nothing is created
over the remains of another table: archives with the names that the new table's would get are refused,
because they may be all that is left of a table whose pointer was lost.

Another partitioning changes no file and no query's answer. Files of earlier specs stay as they are until
compaction rewrites them; each is pruned by the spec it was written under.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from inlay.errors import ForeignArchives, InlayError, InvalidRequest, TableExists, a_type
from inlay.format.keys import ARCHIVES, POINTER
from inlay.format.properties import check_properties, with_arrow_types
from inlay.format.schema import Primitive, Schema
from inlay.format.snapshot import UNPARTITIONED, Commit, PartitionSpec, Snapshot
from inlay.ops.commit import register
from inlay.ops.commit.driver import (
    Committed,
    Skipped,
    already_applied,
    commit,
    expect_committed,
    recent_base,
)
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable
from inlay.parquet.arrow.declared import declarations
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parse.partitioning import partition_fields, spec_text
from inlay.plan.change import Change, Request, SetPartitioning
from inlay.plan.metadata.state import choose_stats_columns
from inlay.storage.base import Head

CREATE = "create"


def create(
    ctx: Context,
    schema: pa.Schema,
    *,
    primary_key: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    properties: Mapping[str, object] | None = None,
) -> LoadedTable:
    """Creates the table at `ctx.root`, version 1, empty.

    Raises `TableExists`, and `ForeignArchives` if only the pointer of an earlier table is gone.
    """
    if not isinstance(schema, pa.Schema):
        raise InvalidRequest(
            f"a schema cannot be {a_type(schema)}",
            next_step="Give a pyarrow.Schema: a table or reader of pyarrow has it as `.schema`, a frame by "
            "`pa.table(frame).schema`",
            table=ctx.uri,
        )
    checked = check_properties(properties or {})
    typed = schema_from_arrow(schema, schema_id=0)
    if not typed.fields:
        raise InvalidRequest(
            "a table needs at least one column",
            next_step="Give its schema, as by --schema or --like of `inlay create`",
            table=ctx.uri,
        )
    twice = {n for n in typed.names if typed.names.count(n) > 1}
    if twice:
        raise InvalidRequest(f"columns named twice: {sorted(twice)}", table=ctx.uri)
    key_ids = _column_ids(typed, primary_key, "primary_key", ctx.uri)
    sort_ids = _column_ids(typed, sort_by, "sort_by", ctx.uri)
    fields = partition_fields(partition_by, typed)
    specs = (UNPARTITIONED, PartitionSpec(1, fields)) if fields else (UNPARTITIONED,)
    date_us = check_free(ctx)
    table_id = ctx.new_id()
    snapshot = Snapshot(
        table_id=table_id,
        version=1,
        commit=Commit(id=ctx.new_id(), operation=CREATE, time_us=date_us),
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
        time_index=((1, date_us),),
    )
    loaded = register.create(ctx, snapshot)
    if loaded is None:
        raise TableExists(f"there already is a table at {ctx.uri}", table=ctx.uri)
    return loaded


def check_free(ctx: Context) -> int:
    """The store's date at which there was no table at `ctx.root`, nor the remains of one. Raises
    `TableExists`, `ForeignArchives`."""
    # Before the pointer is read: archives that exist while no pointer does are not a racing creator's.
    left = next(iter(ctx.store.list(ctx.key(ARCHIVES + "v"))), None)
    # The store's clock, not this host's: the 404 for an absent pointer has a Date like any answer.
    now = ctx.store.head(ctx.key(POINTER))
    if isinstance(now, Head):
        raise TableExists(f"there already is a table at {ctx.uri}", table=ctx.uri)
    if left is not None:
        raise ForeignArchives(
            f"{ctx.uri} has no pointer, but archives of an earlier table: {left.key}",
            next_step="`inlay repair` rebuilds that table from them; if it is no longer needed, delete "
            f"everything under {ctx.uri}/ and create the table then",
            table=ctx.uri,
            key=left.key,
        )
    return now.date_us


def _column_ids(schema: Schema, names: Sequence[str], what: str, table: str) -> tuple[int, ...]:
    found: list[int] = []
    for name in names:
        column = schema.column_named(name)
        if column is None or not isinstance(column.type, Primitive):
            raise InvalidRequest(
                f"{what} names {name!r}, which is not a primitive column",
                next_step=schema.other_case(name) or f"The columns are: {', '.join(schema.names)}",
                table=table,
            )
        found.append(column.id)
    return tuple(found)


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
        fields = partition_fields(texts, snapshot.schema)
    except InlayError as error:
        raise error.about(table=ctx.uri) from None
    edit = SetPartitioning(planned_on=snapshot.spec_id, fields=fields)
    change = Change(operation="set_partitioning", request=request, updates=(edit,))
    return expect_committed(ctx, commit(ctx, change, base=loaded))


def partitioning(snapshot: Snapshot) -> tuple[str, ...]:
    """The table's partitioning, as text: `("day(ts)", "bucket(16, id)")`."""
    return spec_text(snapshot.spec, snapshot.schema)

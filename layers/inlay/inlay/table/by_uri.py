"""Tables by their URI: which there are, others taken over, dropping, and checks without opening."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from inlay import arguments
from inlay.format.keys import POINTER
from inlay.ops.context import Context
from inlay.storage.base import Head
from inlay.storage.open import below
from inlay.table import Table, connect

if TYPE_CHECKING:
    from inlay.ops.drop import Dropped
    from inlay.ops.verify.repair import Repaired
    from inlay.ops.verify.table import Verified

# How far below a prefix `tables` looks for tables.
_TABLES_DEPTH = 3


@arguments.checked
def adopt(
    source: str | os.PathLike[str],
    into: str | os.PathLike[str],
    *,
    copy: bool = False,
    adopt_from: str | Sequence[str] = (),
    properties: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
    context: Context | None = None,
) -> Table:
    """The newest version of an Iceberg or Delta table, or a folder of Parquet files, as a new table at
    `into`, its files used where they are; with `copy` they are copied on the server.

    `source` is the table's folder, or a metadata file of Iceberg (`…/metadata/….metadata.json`). Columns
    that only folders (`year=2024/part-0.parquet`) or metadata have make a table of format version 2, but
    with `copy` (docs/ADOPT.md).
    `adopt_from` are patterns of `bucket/key` for files outside the source's folder. Without `copy` the
    files stay the source's: its VACUUM or expire_snapshots would take rows away here, and a warning says
    so. Raises `TableExists`, `UnsupportedTable` (what cannot be carried, by name), `NotGranted`.
    """
    from inlay.ops.adopt.adopt import adopt as run

    ctx = context or connect(into, storage_options=storage_options)
    done = run(
        ctx,
        arguments.location(source),
        copy=copy,
        adopt_from=arguments.texts(adopt_from, "adopt_from"),
        properties=properties,
    )
    for note in done.notes:
        warnings.warn(f"adopting {source}: {note}", stacklevel=3)
    return Table(ctx, done.loaded)


def exists(uri: str | os.PathLike[str], *, context: Context | None = None) -> bool:
    """Whether there is a table at `uri` (one HEAD). Says nothing about its health."""
    ctx = context or connect(uri)
    return isinstance(ctx.store.head(ctx.key(POINTER)), Head)


def tables(prefix: str | os.PathLike[str], *, context: Context | None = None) -> list[str]:
    """The URIs of the tables below `prefix`: one LIST and, for each folder, one HEAD. Folders without a
    table are looked into, three levels deep."""
    ctx = context or connect(prefix)
    uris: list[str] = []
    folders = [f"{ctx.root}/" if ctx.root else ""]
    for _ in range(_TABLES_DEPTH):
        within = [prefix for folder in folders for prefix in ctx.store.list_prefixes(folder)]
        are_tables = list(
            ctx.map(lambda prefix: isinstance(ctx.store.head(prefix + POINTER), Head), within)
        )
        roots = [prefix for prefix, is_table in zip(within, are_tables, strict=True) if is_table]
        uris += [below(ctx.uri, root[len(ctx.root) :].strip("/")) for root in roots]
        folders = [
            prefix for prefix, is_table in zip(within, are_tables, strict=True) if not is_table
        ]
    return sorted(uris)


def drop(
    uri: str | os.PathLike[str],
    *,
    grace: timedelta | None = None,
    dry_run: bool = False,
    context: Context | None = None,
) -> Dropped:
    """Drop a table: at once nobody can open it, and the same call after `grace` (7 days unless given)
    deletes its objects; until then `inlay repair` brings it back. `grace=timedelta(0)` does both at once.

    Raises `TableNotFound`, `RefHeld` for a legal hold, `InvalidRequest` while an erasure is under way.
    """
    from inlay.ops.drop import GRACE_SECONDS
    from inlay.ops.drop import drop as run

    seconds = arguments.seconds(grace, "grace")
    ctx = context or connect(uri)
    return run(ctx, grace_seconds=GRACE_SECONDS if seconds is None else seconds, dry_run=dry_run)


@arguments.checked
def verify(
    uri: str | os.PathLike[str],
    *,
    depth: str = "footers",
    max_versions: int | None = None,
    context: Context | None = None,
) -> Verified:
    """What `Table.maintain.verify` says, also of a table that cannot be opened."""
    from inlay.ops.verify.table import verify as run
    from inlay.plan.verify import MAX_VERSIONS

    most = MAX_VERSIONS if max_versions is None else max_versions
    return run(context or connect(uri), depth=depth, max_versions=most)


def repair(
    uri: str | os.PathLike[str], *, dry_run: bool = True, context: Context | None = None
) -> Repaired:
    """Mend what can be mended safely, also of a table that cannot be opened: a lost or damaged pointer,
    archives, totals, dangling markers; a table that was dropped comes back. A dry run by default: the
    result says what would be done and what would be lost. Deletes nothing.

    Raises `TableNotFound`, `ForeignArchives`, `NewerFormat`, `ConcurrentChange`.
    """
    from inlay.ops.verify.repair import repair as run

    return run(context or connect(uri), dry_run=dry_run)

"""Copy: the rows of one version of a table as a new table at another place.

Promise: the new table has exactly the rows of that version, the columns with their ids, the key, partitions
and settings; nothing of the source is needed afterwards, or touched. It is created by one PUT, last: a
process killed before leaves objects that nothing refers to, and no table. What the source no longer shows
does not come along: a file under any delete is written again with its live rows alone, and so no
deleted row and no row under erasure is in the copy. Files without deletes are copied on the server, where
the new table's store has them, pinned to what was looked at; elsewhere they are written again, too.

There is no clone, two tables over one object. Each table's collection and each erasure decide by one
pointer, its own, which objects are needed and which are gone: no swap of one pointer can hold both, so a
clone could lose files to its source's collection, or show rows that a receipt of its source says are gone.

What can go wrong: the version expires, and collection takes its files, while they are copied:
`SnapshotGone`, and no table. A tag keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from inlay.format import keys
from inlay.format.entry import DataFile
from inlay.format.properties import ARROW_CATEGORIES, ARROW_TYPES, REMEMBERED, settings
from inlay.format.snapshot import Commit, Snapshot
from inlay.ops.context import Context
from inlay.ops.data import copy_object, write_batches
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.schema.create import check_free, first_version
from inlay.parquet.read.reader import read_file
from inlay.parquet.read.selection import Wanted
from inlay.plan.change import AddFiles, Change, Request
from inlay.plan.maintain.compaction import live_tasks
from inlay.plan.metadata.state import State
from inlay.plan.scan import FileTask
from inlay.storage.base import Head, Location

COPY = "copy"
_FORGETS = (
    "what change streams remember of deletes stays with the source: a record that is older than a delete "
    "and comes to the copy counts there"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The new table. Of its files, `copied` are the source's, copied on the server, `written` were made of
    live rows. `notes` say what did not come along."""

    loaded: LoadedTable
    source_version: int
    copied: int
    written: int
    rows: int
    bytes: int
    notes: tuple[str, ...] = ()


def copy(source: Context, state: State, into: Context) -> Copied:
    """The rows of `state`, all of whose entries are loaded, as a new table at `into`. Raises `TableExists`,
    `SnapshotGone`."""
    date_us = check_free(into)
    snapshot = state.snapshot
    tasks = tuple(live_tasks(state, state.files(), state.markers()).values())
    base = _empty(into, snapshot, tasks, date_us)

    def copied(task: FileTask) -> DataFile | None:
        return None if task.markers else _copied(source, into, task.file, date_us)

    found = list(into.map(copied, tasks))
    taken = [entry for entry in found if entry is not None]
    made: list[DataFile] = []
    for task, entry in zip(tasks, found, strict=True):
        if entry is None:  # one at a time: they are read
            made += _written(source, into, base, task)
    files = (*taken, *(entry for entry in made if entry.rows))
    # Statistics of the key were compared with the rows before the source had that key.
    added = AddFiles(files, compared=frozenset(snapshot.primary_key))
    loaded = first_version(into, base, Change(operation=COPY, updates=(added,)))
    return Copied(
        loaded=loaded,
        source_version=snapshot.version,
        copied=len(taken),
        written=len(files) - len(taken),
        rows=sum(entry.rows for entry in files),
        bytes=sum(entry.size for entry in files),
        notes=(_FORGETS,) if REMEMBERED in snapshot.properties else (),
    )


def _empty(
    ctx: Context, source: Snapshot, tasks: tuple[FileTask, ...], date_us: int
) -> LoadedTable:
    """The table before its first version: the schemas that its files name, the current one among them."""
    schemas = {source.schema.id: source.schema} | {task.schema.id: task.schema for task in tasks}
    kept = {ARROW_TYPES, ARROW_CATEGORIES} & source.properties.keys()
    made = Snapshot(
        table_id=ctx.new_id(),
        version=0,
        commit=Commit(id=ctx.new_id(), operation=COPY),
        schemas=tuple(schemas[n] for n in sorted(schemas)),
        schema_id=source.schema.id,
        last_field_id=source.last_field_id,
        primary_key=source.primary_key,
        sort_by=source.sort_by,
        specs=source.specs,
        spec_id=source.spec_id,
        stats_columns=source.stats_columns,
        properties=settings(source.properties) | {name: source.properties[name] for name in kept},
    )
    return LoadedTable(State(made), "", b"", date_us, ctx.clock.monotonic())


def _copied(source: Context, into: Context, entry: DataFile, date_us: int) -> DataFile | None:
    """None where the new table's store does not see the file that was committed: it is another kind of
    store, or another server."""
    named = source.objects.source(entry.key)  # of an adopted file only where its place is granted
    at = Location(named.store.scheme, named.store.bucket, named.key)
    if at.scheme != into.store.scheme:
        return None
    store = into.store if at.bucket == into.store.bucket else into.store.at(at.bucket)
    found = store.head(at.key)
    if not isinstance(found, Head) or found.info.size != entry.size:
        return None
    if entry.etag not in (None, found.info.etag):
        return None
    key = keys.data_key(date_us, into.new_id())
    copy_object(into, at, into.key(key), size=entry.size, etag=found.info.etag)
    # What another writer made stays told apart.
    event = Request.of(f"{at.uri}@{found.info.etag}").token if entry.is_foreign else None
    return replace(
        entry,
        key=key,
        sequence=None,
        adopted=False,
        etag=None,
        event=event,
        origin=None,
        own=entry.own and event is not None,
        arrived=None,
        cluster=None,
        data_change=True,
    )


def _written(
    source: Context, into: Context, base: LoadedTable, task: FileTask
) -> Iterator[DataFile]:
    schema = base.snapshot.schema
    wanted = Wanted(schema=schema, columns=tuple(field.id for field in schema.fields))
    rows = read_file(source.objects, task, wanted, source.executor)
    return iter(write_batches(into, base.snapshot, rows, time_us=base.date_us))

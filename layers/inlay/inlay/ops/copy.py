"""Copy: the rows of one version of a table as a new table at another place.

Promise: the new table has exactly the rows of that version, the columns with their ids, the key, partitions
and settings; nothing of the source is needed afterwards, or touched. It is created by one PUT, last: a
process killed before leaves objects that nothing refers to, and no table. What the source no longer shows
does not come along: a file under any delete is written again with its live rows alone, and so no
deleted row and no row under erasure is in the copy. Files without deletes are copied on the server, where
the new table's store has them, pinned to what was looked at; elsewhere they are written again, too.

A copy that was killed goes on where it stopped. What it began is told by an object (`keys.COPY_BEGUN`): a
random id, and a digest of all that is to be copied, so only the same version of the same table goes on.
The key of a copied file follows from that id and the file; of a file that was written again a leaf of
entries, named in the same way, says what was made of it. What is there is not sent again. The notes go
when the table is there; they are named as segments, so that collection takes what is left.

What can go wrong: the version expires, and collection takes its files, while they are copied:
`SnapshotGone`, and no table. A tag keeps it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from uuid import UUID, uuid5

from inlay.errors import InlayError, InvalidRequest, KeyTaken
from inlay.format import keys
from inlay.format.entry import DataFile, Types
from inlay.format.leaves import decode_files, encode_files
from inlay.format.properties import (
    ARROW_CATEGORIES,
    ARROW_TYPES,
    REMEMBERED,
    columns_of,
    settings,
)
from inlay.format.snapshot import Commit, Snapshot
from inlay.ops.commit.driver import write_segment
from inlay.ops.context import Context
from inlay.ops.data import write_batches
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.schema.create import check_free, first_version
from inlay.ops.server_copy import copy_object
from inlay.parquet.read.selection import Projection
from inlay.parse.grammar import quote_path
from inlay.plan.change import AddFiles, Change, Request
from inlay.plan.maintain.compaction import live_tasks
from inlay.plan.metadata.state import State
from inlay.plan.scan import FileTask
from inlay.record import Record, field, replace
from inlay.storage.base import Got, Head, Location

COPY = "copy"
FORGETS = (
    "what change streams remember of deletes stays with the source: a record that is older than a delete "
    "and comes to the copy counts there"
)


class Copied(Record, kw_only=True):
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
    `SnapshotGone`; `InvalidRequest` where a copy of something else was begun."""
    date_us = check_free(into)
    snapshot = state.snapshot
    tasks = tuple(live_tasks(state, state.files(), state.markers()).values())
    base = empty(into, snapshot, tasks, date_us, COPY)
    begun = _begin(into, snapshot, tasks)

    def copied(task: FileTask) -> DataFile | None:
        return None if task.markers else _copied(source, into, begun, task, snapshot)

    entries = list(into.map(copied, tasks))
    taken = [entry for entry in entries if entry is not None]
    rest = [task for task, entry in zip(tasks, entries, strict=True) if entry is None]
    made: list[DataFile] = []
    for task in rest:  # one at a time: they are read
        made += _written_once(source, into, base, begun, task)
    files = (*taken, *(entry for entry in made if entry.rows))
    loaded = with_files(into, base, files, COPY)
    with suppress(InlayError):  # collection takes them, too
        notes = (keys.COPY_BEGUN, *(keys.segment_key(begun.name(task)) for task in rest))
        into.store.delete(list(map(into.key, notes)))
    return Copied(
        loaded=loaded,
        source_version=snapshot.version,
        copied=len(taken),
        written=len(files) - len(taken),
        rows=sum(entry.rows for entry in files),
        bytes=sum(entry.size for entry in files),
        notes=(FORGETS,) if REMEMBERED in snapshot.properties else (),
    )


def with_files(ctx: Context, base: LoadedTable, files: Iterable[DataFile], why: str) -> LoadedTable:
    """The new table, by one PUT."""
    # Statistics of the key were compared with the rows before the source had that key.
    added = AddFiles(tuple(files), compared=frozenset(base.snapshot.primary_key))
    return first_version(ctx, base, Change(operation=why, updates=(added,)))


# -- what was begun -------------------------------------------------------------------------------


class _Begun(Record):
    """The id of a copy, and by key the sizes of what earlier tries have left."""

    id: UUID
    there: Mapping[str, int] = field(default_factory=dict)

    def name(self, task: FileTask) -> str:
        """Of what is made of a file: as random as the id, and the same in each try."""
        return str(uuid5(self.id, _what(task)))


def _what(task: FileTask) -> str:
    return "\n".join([task.file.key, str(task.schema.id), *sorted(m.id for m in task.markers)])


def _begin(ctx: Context, snapshot: Snapshot, tasks: tuple[FileTask, ...]) -> _Begun:
    named = [snapshot.table_id, str(snapshot.version), *sorted(map(_what, tasks))]
    plan = hashlib.sha256("\n".join(named).encode()).hexdigest()
    begun = ctx.new_id()
    made = {"id": begun, "plan": plan, "version": snapshot.version}
    with suppress(KeyTaken):
        ctx.write_once(keys.COPY_BEGUN, json.dumps(made).encode())
        return _Begun(UUID(begun))
    answer = ctx.store.get(ctx.key(keys.COPY_BEGUN))
    if not isinstance(answer, Got):
        raise KeyTaken(
            "the copy that was begun here has just been removed", key=ctx.key(keys.COPY_BEGUN)
        )
    note = json.loads(answer.body)
    if note["plan"] != plan:
        raise InvalidRequest(
            f"a copy of version {note['version']} was begun at {ctx.uri}, and this is another one",
            next_step=f"Copy that version to go on with it (--version {note['version']}), or remove what "
            f"is under {ctx.uri}/ to begin anew",
            table=ctx.uri,
        )
    listed = (
        info for prefix in (keys.DATA, keys.SEGMENTS) for info in ctx.store.list(ctx.key(prefix))
    )
    return _Begun(UUID(note["id"]), {ctx.relative(info.key): info.size for info in listed})


# -- files ----------------------------------------------------------------------------------------


def empty(
    ctx: Context, source: Snapshot, tasks: tuple[FileTask, ...], date_us: int, why: str
) -> LoadedTable:
    """The table before its first version: the schemas that its files name, the current one among them."""
    schemas = {source.schema.id: source.schema} | {task.schema.id: task.schema for task in tasks}
    kept = {ARROW_TYPES, ARROW_CATEGORIES} & source.properties.keys()
    made = Snapshot(
        table_id=ctx.new_id(),
        version=0,
        commit=Commit(id=ctx.new_id(), operation=why),
        schemas=tuple(schemas[n] for n in sorted(schemas)),
        schema_id=source.schema.id,
        last_field_id=source.last_field_id,
        primary_key=source.primary_key,
        sort_by=source.sort_by,
        specs=source.specs,
        spec_id=source.spec_id,
        stats_columns=source.stats_columns,
        properties={
            name: _of_now(source, name, text) for name, text in settings(source.properties).items()
        }
        | {name: source.properties[name] for name in kept},
    )
    return LoadedTable(State(made), "", b"", date_us, ctx.clock.monotonic())


def _of_now(source: Snapshot, name: str, text: str) -> str:
    """The value of a property, its columns by the names that they have now: the new table knows no others.
    A column that was dropped stays as it is named."""
    columns = columns_of(name, text)
    fields = [(column, source.column_named(column)) for column in columns]
    named = [c if field is None else quote_path((field.name,)) for c, field in fields]
    return ", ".join(named) if columns else text


def seen(source: Context, into: Context, entry: DataFile) -> tuple[Location, str] | None:
    """Where the file that was committed is, and its ETag. None where the new table's store does not see
    it: it is another kind of store, or another server."""
    named = source.objects.source(entry.key)  # of an adopted file only where its place is granted
    at = Location(named.store.scheme, named.store.bucket, named.key)
    if at.scheme != into.store.scheme:
        return None
    object_there = into.store_at(at.bucket).head(at.key)
    if not isinstance(object_there, Head) or object_there.info.size != entry.size:
        return None
    return (
        None if entry.etag not in (None, object_there.info.etag) else (at, object_there.info.etag)
    )


def of_another_table(entry: DataFile, at: Location, etag: str) -> DataFile:
    """The entry without what it says of its table."""
    # What another writer made stays told apart.
    event = Request.of(f"{at.uri}@{etag}").token if entry.is_foreign else None
    return replace(
        entry,
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


def _copied(
    source: Context, into: Context, begun: _Begun, task: FileTask, snapshot: Snapshot
) -> DataFile | None:
    entry = task.file
    object_there = seen(source, into, entry)
    if object_there is None:
        return None
    at, etag = object_there
    key = keys.data_key(snapshot.commit.time_us, begun.name(task))
    if begun.there.get(key) != entry.size:
        copy_object(into, at, into.key(key), size=entry.size, etag=etag)
    return replace(of_another_table(entry, at, etag), key=key)


def _written_once(
    source: Context, into: Context, base: LoadedTable, begun: _Begun, task: FileTask
) -> Sequence[DataFile]:
    """`written`, unless an earlier try has done so."""
    name = begun.name(task)
    key = keys.segment_key(name)
    if key in begun.there:
        answer = into.store.get(into.key(key))
        if isinstance(answer, Got):
            return decode_files(answer.body, key=into.key(key))
    made = written(source, into, base, task)
    if made:
        # Whoever else goes on with this copy has written the same rows; either entries do.
        with suppress(KeyTaken):
            write_segment(into, name, encode_files(made, Types(base.snapshot.schemas)))
    return made


def written(
    source: Context, into: Context, base: LoadedTable, task: FileTask
) -> Sequence[DataFile]:
    """The live rows of a file, as files of the new table."""
    schema = base.snapshot.schema
    projection = Projection(schema=schema, columns=tuple(f.id for f in schema.fields))
    rows = source.reader.rows([task], projection)
    return tuple(write_batches(into, base.snapshot, rows, time_us=base.date_us))

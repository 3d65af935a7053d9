"""Clone: a new table over the same files, with an id of its own.

Promise: the clone shows the rows of one version, costs no copy of a file without deletes, and never loses
one to its source. A legal hold on that version keeps the files: a held tag of the source, `clone-<id of
the clone>`, committed before the clone exists. From then on

- collection, compaction and expiry of the source leave these files, and it cannot be dropped (`RefHeld`);
- **an erasure of the source that may concern the version is refused** by the name of the hold, and one that
  was opened before it stays open: no receipt of the source can claim what the clone still shows;
- the clone never deletes them: for it they are files adopted in place. Its own erasure takes the rows out
  of the clone, and its receipt names the originals as out of reach.

Files under deletes are written again with their live rows: what the source no longer shows is in no clone.

::

    look     the files are there, and seen by the clone's store; files under deletes are written again
    hold     the tag, which requires that the version is still kept: the files are there, and stay
    create   one PUT. A process killed before leaves perhaps a held tag, and no table
    tidy     holds that other clones to this place left are lifted: none of them can come to be any more

Whoever drops a clone lifts the hold: nothing in the clone can be relied on to say that it is gone.
"""

from __future__ import annotations

from inlay.errors import InvalidRequest, TableExists, VersionNotFound
from inlay.format.entry import DataFile
from inlay.format.properties import REMEMBERED
from inlay.format.snapshot import Note, Ref, Snapshot, note_of
from inlay.ops import refs
from inlay.ops.context import Context
from inlay.ops.copy import FORGETS, Copied, empty, of_another_table, seen, with_files, written
from inlay.ops.metadata.load import load_version
from inlay.ops.schema.create import check_free
from inlay.plan.change import Change, SetRefs
from inlay.plan.maintain.compaction import live_tasks
from inlay.plan.metadata.state import State
from inlay.plan.scan import FileTask
from inlay.record import replace

CLONE = "clone"
_HOLD = "clone-"


def clone(source: Context, state: State, at: Ref, into: Context) -> Copied:
    """The rows of `state`, which is the content of `at` and has all entries loaded, as a new table at
    `into`. Raises `TableExists`, `VersionNotFound`, `InvalidRequest`."""
    date_us = check_free(into)
    snapshot = state.snapshot
    tasks = tuple(live_tasks(state, state.files(), state.markers()).values())
    shared = tuple(task for task in tasks if not task.markers)
    base = empty(into, snapshot, tasks, date_us, CLONE)
    taken = list(into.map(lambda task: _adopted(source, into, task), shared))
    rest = (task for task in tasks if task.markers)
    made = [entry for task in rest for entry in written(source, into, base, task) if entry.rows]
    files = (*taken, *made)
    name = f"{_HOLD}{base.snapshot.table_id}"
    said = f"cloned to {into.uri}"
    held = refs.tag(replace(source, note=Note(said)), name, at, hold=True).loaded.pointer
    try:
        loaded = with_files(into, base, files, CLONE)
    except TableExists:  # after any other error the clone may be there
        _lift(source, [name])
        raise
    _lift(source, [n for n in _holds(held) if n != name and _noted(source, held, n) == said])
    kept = f"the tag {name!r} of {source.uri} is held for as long as the clone needs its files"
    return Copied(
        loaded=loaded,
        source_version=snapshot.version,
        copied=len(taken),
        written=len(made),
        rows=sum(entry.rows for entry in files),
        bytes=sum(entry.size for entry in files),
        notes=(kept, FORGETS) if REMEMBERED in snapshot.properties else (kept,),
    )


def _holds(table: Snapshot) -> dict[str, Ref]:
    return {n: ref for n, ref in table.refs.items() if n.startswith(_HOLD) and ref.hold}


def _noted(source: Context, table: Snapshot, name: str) -> str | None:
    """What the commit of the hold said; None where its version has expired."""
    try:
        return note_of(load_version(source, table, table.refs[name].since)).message
    except VersionNotFound:
        return None


def _lift(source: Context, names: list[str]) -> None:
    """Drops the holds of clones that are not there and never will be; another process may have."""

    def change(table: Snapshot) -> Change | None:
        left = {n: ref for n, ref in _holds(table).items() if n in names}
        if not left:
            return None
        return Change(operation="drop_ref", updates=(SetRefs(dict.fromkeys(left), left),))

    if names:
        refs.edit_refs(source, change)


def _adopted(source: Context, into: Context, task: FileTask) -> DataFile:
    entry = task.file
    object_there = seen(source, into, entry)
    if object_there is None:
        raise InvalidRequest(
            f"a clone at {into.uri} cannot read the files of {source.uri}",
            next_step="Clone to a place in the same store, or make a copy: inlay copy",
            table=source.uri,
            key=entry.key,
        )
    at, etag = object_there
    return replace(
        of_another_table(entry, at, etag), key=at.uri, adopted=True, event=None, etag=etag
    )

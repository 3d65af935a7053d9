"""Settle: every delete becomes at most one vector for each file.

Promise: the rows of the table are the same before and after, for every reader; afterwards each live file
has no delete, or exactly one vector, in a Puffin object whose footer names the file by its full URI, and no
other delete can hit it. Scans read one small range in place of evaluating predicates, and Iceberg shares
the blob. Files named in `stamp` get a copy whose footer has the table's field ids
(`parquet.surgery.stamp`).

A settled file keeps its name and gets the sequence of the version that was read (docs/FORMAT.md, section
8): every delete up to that version is in its vector. Where those deletes go by the same commit, its entry
stays as it is. Files that an open erasure concerns are rewritten first, as it would: afterwards its markers
hit none, and those that stay are for files made of older objects, which come with a marker of their own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pyroaring import BitMap64

from inlay.errors import InlayError, Unpublishable
from inlay.format import keys
from inlay.format.entry import DataFile, Marker, Vector
from inlay.format.snapshot import Snapshot
from inlay.iceberg.metadata import engines_id, engines_note, removed_ids
from inlay.ops.commit.driver import Committed, commit_or_skip
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.maintain.rewrite import rewrite_erased
from inlay.ops.maintain.units import Budget, Run, idle_in, table_wide, with_entries
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.publish.files import is_of_the_file
from inlay.ops.row_markers import puffin_markers
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.read.describe import read_tail
from inlay.parquet.surgery.stamp import stamp_object, stamped
from inlay.plan.change import Change, DropMarkers, ReplaceFiles, Unit
from inlay.plan.erasure import unclean_files
from inlay.plan.maintain.compaction import live_tasks
from inlay.plan.metadata.state import State
from inlay.plan.positions import PositionMap
from inlay.plan.scan import FileTask
from inlay.record import Record, replace
from inlay.storage.base import Location

# Of one commit: what was read for it is lost if it is killed before. A delete that hits more is dropped by
# a later commit, and until then the files are restamped, which moves their entries.
COMMIT_FILES = 4_096
COMMIT_BYTES = 32 * 2**30
# Rounds that leave no fewer files than before: others may delete faster than this settles.
MAX_ROUNDS = 8
# Of files that are rewritten for a publication: what a function with fifteen minutes can do.
REWRITE_BYTES = 4 * 2**30


class Settled(Record):
    """`loaded` is the table afterwards."""

    loaded: LoadedTable
    commits: int = 0
    files: int = 0

    @property
    def version(self) -> int:
        return self.loaded.snapshot.version


def is_settled(markers: Iterable[Marker]) -> bool:
    """Whether every delete is a vector, and the only one of its file; but for those of erasures, which
    count by the files that they still concern."""
    others = [m for m in markers if m.erasure is None]
    vectors = {m.file for m in others if isinstance(m.body, Vector)}
    return len(vectors) == len(others)


def asks_for_rows(snapshot: Snapshot) -> bool:
    """Whether an open erasure may still have rows to remove: which files it concerns takes every entry."""
    return any(e.predicate is not None for e in snapshot.erasures)


def settle(
    ctx: Context,
    loaded: LoadedTable,
    *,
    stamp: Collection[str] = (),
    rewrite_vectors: Collection[str] = (),
) -> Settled:
    """Settles the whole table. Files of `stamp` get the table's field ids; the vectors of files of
    `rewrite_vectors` are rewritten. Raises `Unpublishable` for a file that cannot be rewritten for an
    erasure, or has no room in this run, and when others keep deleting."""
    commits = files = 0
    stamp, rewrite_vectors = set(stamp), set(rewrite_vectors)
    rounds, fewest = 0, math.inf
    while rounds < MAX_ROUNDS:
        loaded = with_entries(ctx, loaded)
        if asks_for_rows(loaded.snapshot) and is_concerned(loaded.state):
            run = _rewritten(ctx, loaded)
            loaded, commits, files = run.loaded, commits + run.commits, files + len(run.done)
            rounds += 1
            continue
        works = list(_plan(loaded.state, stamp, rewrite_vectors))
        idle = () if works else idle_in(loaded.state)
        if not works and not idle:
            return Settled(loaded, commits, files)
        rounds = 0 if len(works) < fewest else rounds + 1
        fewest = min(fewest, len(works))
        batch = _batch(works)
        units = tuple(_units(ctx, loaded, batch, stamp))
        change = Change(
            operation="rewrite",
            uploaded_us=loaded.date_us if units else None,
            deleted_rows=0,
            updates=(ReplaceFiles(units), DropMarkers(idle or table_wide(loaded.state))),
            # What an engine committed keeps its name: the rows are the same.
            note=engines_note(
                engines_id(loaded.snapshot, ctx.branch), removed_ids(loaded.snapshot)
            ),
        )
        outcome = commit_or_skip(ctx, change, base=loaded)
        loaded = outcome.loaded
        if isinstance(outcome, Committed):
            commits += 1
            files += len(units) - len(outcome.skipped)
            done = {key for u in units if u not in outcome.skipped for key in u.inputs}
            stamp -= done
            rewrite_vectors -= done
        elif not batch:
            return Settled(loaded, commits, files)
    raise Unpublishable(
        f"deletes arrive faster than they are settled ({MAX_ROUNDS} rounds)", table=ctx.uri
    )


def is_concerned(state: State) -> bool:
    """Whether an open erasure may still remove rows of a file; every entry is loaded."""
    return any(unclean_files(state, state.snapshot.erasures).values())


def _rewritten(ctx: Context, loaded: LoadedTable) -> Run:
    """The table with the files rewritten that open erasures concern."""
    budget = Budget(max_bytes=REWRITE_BYTES, held_bytes=lambda work: work.held_bytes)
    run = rewrite_erased(ctx, loaded, budget)
    if run.failures:
        failure = run.failures[0]
        raise Unpublishable(
            f"an erasure is in progress, and {failure.key} cannot be rewritten for it: "
            f"{failure.error.message}",
            next_step=failure.error.next_step,
            table=ctx.uri,
            version=run.loaded.snapshot.version,
        )
    if run.left:
        raise Unpublishable(
            f"an erasure is in progress, and has {run.left} more files to rewrite",
            next_step="Publish again: each time rewrites more of them, as `inlay rewrite` does",
            table=ctx.uri,
            version=run.loaded.snapshot.version,
        )
    return run


class _Work(Record):
    entry: DataFile
    task: FileTask | None  # None: no row of the file is live


def _plan(
    state: State, stamp: Collection[str], rewrite_vectors: Collection[str]
) -> Iterator[_Work]:
    entries = tuple(state.files())
    tasks = live_tasks(state, entries, state.markers())
    for entry in entries:
        task = tasks.get(entry.key)
        if task is None:
            if entry.rows:
                yield _Work(entry, None)
            continue
        is_named = entry.key in stamp or entry.key in rewrite_vectors
        vectors = [m for m in task.markers if isinstance(m.body, Vector)]
        if is_named or (task.markers and not len(vectors) == len(task.markers) == 1):
            yield _Work(entry, task)


def _batch(works: Sequence[_Work]) -> Sequence[_Work]:
    """Those of one commit."""
    size = 0
    for n, work in enumerate(works[:COMMIT_FILES]):
        size += work.entry.size
        if n and size > COMMIT_BYTES:
            return works[:n]
    return works[:COMMIT_FILES]


def _units(
    ctx: Context, loaded: LoadedTable, works: Sequence[_Work], stamp: Collection[str]
) -> Iterator[Unit]:
    version = loaded.snapshot.version

    def output_of(work: _Work) -> tuple[DataFile, PositionMap | None]:
        is_stamped = work.entry.key in stamp and work.task is not None
        return stamped_copy(ctx, loaded, work.entry) if is_stamped else (work.entry, None)

    keys_of = [w.entry.key for w in works]
    outputs = dict(zip(keys_of, ctx.map(output_of, works), strict=True))
    deleted = _deleted(ctx, loaded, [w.task for w in works if w.task and w.task.markers])
    rows = {w.entry.key: w.entry.rows for w in works}
    named = {outputs[key][0].key: gone for key, gone in deleted.items() if len(gone) < rows[key]}
    vectors = {m.file: m for m in puffin_markers(ctx, loaded, named)}
    for work in works:
        entry = work.entry
        gone_here = deleted.get(entry.key)
        if work.task is None or (gone_here is not None and len(gone_here) == entry.rows):
            yield Unit((entry.key,), (), version)
            continue
        output, positions = outputs[entry.key]
        vector = vectors.get(output.key)
        yield Unit(
            (entry.key,),
            (replace(output, sequence=version, data_change=False),),
            version,
            positions,
            frozenset(m.id for m in work.task.markers if m.file is not None),
            carried=() if vector is None else (vector,),
        )


def _deleted(
    ctx: Context, loaded: LoadedTable, tasks: Sequence[FileTask]
) -> Mapping[str, BitMap64]:
    """By key, the positions of each file that any delete hits; reads the columns that the deletes need, of
    several files at once. Raises `Unpublishable` for a file that cannot be read."""
    deleted = {t.file.key: BitMap64() for t in tasks}
    for task in tasks:
        deleted[task.file.key].add_range(0, task.file.rows)
    try:
        for task, live in ctx.reader.positions(tasks, loaded.snapshot.schema):
            deleted[task.file.key] -= live
    except InlayError as error:
        if not is_of_the_file(error):
            raise
        raise Unpublishable(
            f"the deletes of a file cannot be settled: {error.message}",
            next_step=error.next_step,
            key=error.key,
            table=ctx.uri,
        ) from error
    return {key: gone for key, gone in deleted.items() if gone}


def stamped_copy(
    ctx: Context, loaded: LoadedTable, entry: DataFile
) -> tuple[DataFile, PositionMap | None]:
    """A copy of a file with the field ids of its recorded schema."""
    source = ctx.objects.source(entry.key, entry.size, entry.etag)
    location = Location(source.store.scheme, source.store.bucket, source.key)
    got = read_tail(source.store, location)
    old = decode_footer(got.body, file_size=got.size)
    schema = loaded.snapshot.schema_by_id(entry.schema_id)
    new = stamped(old, schema, foreign=entry.is_foreign)
    if new is old:
        return entry, None
    key = keys.data_key(loaded.date_us, ctx.new_id())
    done = stamp_object(
        ctx.store,
        location,
        ctx.key(key),
        etag=got.etag,
        old=old,
        new=new,
        executor=InlineExecutor(),  # this is itself a task of the executor
        before_retry=ctx.back_off,
    )
    positions = PositionMap.of([g.num_rows for g in old.row_groups], {})
    output = replace(
        entry,
        key=key,
        size=done.size,
        footer_size=done.footer_size,
        origin=entry.key,
        own=not entry.is_foreign,
    )
    return output, positions

"""Rewrite: removes deleted rows from files.

Promise: the rows of the table are the same before and after, for every reader; afterwards the rewritten
files hold no deleted row, and their entries have the sequence of the version they were planned on, so that
no applied marker is applied again and none that was committed meanwhile is lost.

Each file is rewritten on its own (`ops.maintain.rewrite_file`), small ones concurrently, and committed as a
unit (`ops.maintain.units`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from pyroaring import BitMap64

from inlay.format.entry import DataFile
from inlay.format.predicate import Predicate
from inlay.ops.commit.base import recent_base
from inlay.ops.commit.driver import Committed, commit
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.maintain.partial_surgery import NO_LIMITS, ResourceLimits
from inlay.ops.maintain.rewrite_file import check_strategy, dropped, look, rewrite_task
from inlay.ops.maintain.rewrite_file import rewrite_file as rewrite_file
from inlay.ops.maintain.units import (
    Budget,
    Done,
    Failure,
    Run,
    Work,
    run_units,
    runs_alone,
    with_entries,
)
from inlay.ops.metadata.load import LoadedTable
from inlay.parquet.read.reader import read_positions
from inlay.parquet.surgery.assemble import WINDOW_BYTES
from inlay.plan.change import Change, DropMarkers, PackMetadata
from inlay.plan.maintain.compaction import idle_markers, live_tasks
from inlay.plan.metadata.state import State
from inlay.plan.pruning.evidence import Evidence
from inlay.plan.pruning.prune import all_match, may_match
from inlay.plan.scan.scan import FileTask
from inlay.plan.surgery.positions import PositionMap
from inlay.plan.surgery.strategy import Choice, Strategy

# A group as read, decoded, filtered and written: values take about twice their bytes in the file.
GROUP_FORMS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteResult:
    """`version` is the table's after the run. `left` files with deletes were out of the budget, or done in
    part, `skipped` kept being changed by others, `failures` cannot be read. `choices` explains how each
    file was treated; for a dry run nothing else is set."""

    version: int
    commit_id: str | None = None
    commits: int = 0
    files: int = 0
    surgery: int = 0
    rewritten: int = 0
    restamped: int = 0
    dropped: int = 0
    removed_rows: int = 0
    removed_markers: int = 0
    input_bytes: int = 0
    written_bytes: int = 0
    left: int = 0
    skipped: int = 0
    failures: tuple[Failure, ...] = ()
    choices: tuple[tuple[str, Choice], ...] = ()


@dataclass(frozen=True, slots=True)
class FileWork:
    """A file to remove deleted rows from."""

    task: FileTask | None  # None: no row of the file is live
    entry: DataFile

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.entry.key,)

    @property
    def bytes(self) -> int:
        return self.entry.size if self.task is not None else 0

    @property
    def held_bytes(self) -> int:
        """The approximate memory for rewriting it: one row group in all its forms, and the bytes that wait
        to be sent."""
        group = self.bytes // max(self.entry.row_groups, 1)
        return GROUP_FORMS * group + min(self.bytes, WINDOW_BYTES)

    def context(self, ctx: Context) -> Context:
        """`ctx` for a file that may be rewritten concurrently, in a task of the executor: it must not wait
        for other tasks."""
        if runs_alone(self.held_bytes):
            return ctx
        return replace(ctx, executor=InlineExecutor())


def rewrite(
    ctx: Context,
    *,
    base: LoadedTable | None = None,
    where: Predicate | None = None,
    max_bytes: int | None = None,
    deadline_seconds: float | None = None,
    memory_bytes: int | None = None,
    strategy: Strategy = "auto",
    dry_run: bool = False,
) -> RewriteResult:
    """Applies the delete markers to the files they may hit: all, or those that may hold a row for which
    `where` is TRUE. Then drops the markers that can hit nothing any more. Files with a row group that does
    not fit `memory_bytes` are left, as failures."""
    check_strategy(strategy)
    loaded = with_entries(ctx, recent_base(ctx, base))
    choices: list[tuple[str, Choice]] = []
    plan = partial(plan_rewrite, where=where)

    def perform(now: LoadedTable, work: Work) -> Done:
        assert isinstance(work, FileWork)
        limits = ResourceLimits(budget.deadline, memory_bytes)
        own = work.context(ctx)
        choice, done = carry_out_file(own, now, work, strategy=strategy, limits=limits)
        if choice is not None:
            choices.append((work.entry.key, choice))
        return done

    if dry_run:
        for work in plan(loaded.state, frozenset(f.key for f in loaded.state.files())):
            if work.task is not None:
                choices.append((work.entry.key, look(ctx, loaded, work.task, strategy).choice))
        return RewriteResult(version=loaded.snapshot.version, choices=tuple(choices))
    budget = Budget(
        max_bytes=max_bytes,
        deadline=None if deadline_seconds is None else ctx.clock.monotonic() + deadline_seconds,
        held_bytes=lambda work: work.held_bytes,
    )
    run = run_units(
        ctx,
        loaded,
        operation="rewrite",
        plan=plan,
        perform=perform,
        idle=table_wide,
        budget=budget,
    )
    drop_idle(ctx, run, "rewrite")
    return _result(run, choices)


def plan_rewrite(
    state: State, only: frozenset[str], *, where: Predicate | None = None
) -> list[FileWork]:
    """The files of `only` that markers may hit, first those without a live row."""
    evidence = Evidence.of_snapshot(state.snapshot)
    entries = [
        f
        for f in state.files()
        if f.key in only and (where is None or may_match(where, evidence.of(f), max(f.rows, 1)))
    ]
    tasks = live_tasks(state, entries, state.markers())
    dead = [FileWork(None, f) for f in entries if f.key not in tasks]
    return dead + [FileWork(t, t.file) for t in tasks.values() if t.markers]


def drop_idle(ctx: Context, run: Run, operation: str, *, metadata: bool = False) -> None:
    """Commits without the markers that can hit no file any more; with `metadata`, merges segments."""
    state = run.loaded.state
    markers = tuple(state.markers())
    idle = idle_markers(live_tasks(state, state.files(), markers).values(), markers, ())
    if not idle and not metadata:
        return
    packed = (PackMetadata(),) if metadata else ()
    change = Change(operation=operation, updates=(DropMarkers(idle), *packed))
    outcome = commit(ctx, change, base=run.loaded)
    if isinstance(outcome, Committed):
        run.committed(outcome)


def table_wide(state: State) -> tuple[str, ...]:
    """Candidates for dropping: the commit drops those that can hit nothing once its units are in."""
    return tuple(m.id for m in state.markers() if m.file is None and m.erasure is None)


def _result(run: Run, choices: Iterable[tuple[str, Choice]]) -> RewriteResult:
    methods = [d.method for d in run.done]
    return RewriteResult(
        version=run.loaded.snapshot.version,
        commit_id=run.loaded.snapshot.commit.id if run.commits else None,
        commits=run.commits,
        files=len(run.done),
        surgery=methods.count("surgery"),
        rewritten=methods.count("rewrite"),
        restamped=methods.count("restamp"),
        dropped=methods.count("drop"),
        removed_rows=sum(d.removed_rows for d in run.done),
        removed_markers=run.removed_markers,
        input_bytes=sum(d.read_bytes for d in run.done),
        written_bytes=sum(d.written_bytes for d in run.done),
        left=run.left,
        skipped=run.skipped,
        failures=tuple(run.failures),
        choices=tuple(choices),
    )


def carry_out_file(
    ctx: Context,
    loaded: LoadedTable,
    work: FileWork,
    *,
    strategy: Strategy = "auto",
    limits: ResourceLimits = NO_LIMITS,
) -> tuple[Choice | None, Done]:
    """Rewrites, restamps or drops one file; counts the rows of open erasures that it removes."""
    if work.task is None:
        choice, done = None, dropped(loaded, work.entry)
    else:
        choice, done = rewrite_task(ctx, loaded, work.task, strategy=strategy, limits=limits)
    if work.task is not None and not done.removed_rows:
        return choice, done  # no erasure lost a row by it: nothing to read again
    went = None if done.whole else done.unit.positions
    erased = tuple(count_erased(ctx, loaded, work.entry, work.task, went))
    return choice, replace(done, unit=replace(done.unit, erased=erased))


def count_erased(
    ctx: Context,
    loaded: LoadedTable,
    entry: DataFile,
    task: FileTask | None,
    went: PositionMap | None = None,
) -> Iterator[tuple[str, int, int]]:
    """(erasure, 1 if no row of it is left, its rows that this file loses), including those hidden by other
    deletes. `task` None: no row of the file is live. `went`: the new positions of its rows, if not all
    groups were processed."""
    schema = loaded.snapshot.schema
    for erasure in loaded.snapshot.erasures:
        predicate = erasure.predicate
        if predicate is None:
            continue
        if task is None:
            older = (entry.sequence or 0) < erasure.opened_version
            known = Evidence.of_snapshot(loaded.snapshot).of(entry)
            whole = older and all_match(predicate, known, entry.rows)
            rows, left = (entry.rows if whole else 0), 0
        elif any(m.erasure == erasure.id for m in task.markers):
            looked = FileTask(
                file=entry, schema=task.schema, predicate=predicate, by_rows=entry.is_foreign
            )
            found = read_positions(ctx.objects, [looked], schema, ctx.executor)
            positions = BitMap64().union(*(positions for _, positions in found))
            left = len(went.moved(positions)) if went is not None else 0
            rows = len(positions) - left
        else:
            continue  # newer than the erasure: its rows were inserted after it
        if rows:
            yield erasure.id, int(not left), rows

"""Units: maintenance in parts that commit or fail alone.

Promise: units start in the planned order, within a budget of bytes, time and memory, several at once where
memory allows; what was done is committed even if the rest is not; a unit that conflicts with another writer
is planned again on the new version, a bounded number of times; files added meanwhile are not included, so a
run ends however busy the table is.

Commits hold many units, up to `COMMIT_BYTES` of input: a commit costs three requests, a crash costs the
units not yet committed (their objects are then orphans, for garbage collection).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from typing import Any, Protocol, TypeVar

from inlay.errors import ErrorKind, InlayError
from inlay.format.snapshot import Tier
from inlay.ops.commit.driver import Committed, commit_or_skip
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.metadata.load import LoadedTable, load_entries
from inlay.ops.task_runner import TaskRunner
from inlay.plan.change import Change, DropMarkers, ReplaceFiles, Unit
from inlay.plan.maintain.compaction import idle_markers, live_tasks
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import marker_may_hit
from inlay.plan.surgery import Choice
from inlay.record import Mutable, Record, field, replace

# Input of the units of one commit: what a crash may cost.
COMMIT_BYTES = 2 * 2**30
# ... and their number: a commit names every input and output.
COMMIT_UNITS = 256
# Memory of the units that run at once: with Python, pyarrow and a commit's metadata it fits the smallest
# Lambda that this runs in, of 512 MB.
HELD_BYTES = 128 * 2**20
# Units of one commit for each task of other processes that runs at once: enough that uneven ones leave no
# slot idle for long.
UNITS_PER_SLOT = 4
# Attempts for one file in a run when others keep changing it.
MAX_TRIES = 3


class Work(Protocol):
    """A piece of work, planned: what it reads."""

    @property
    def inputs(self) -> tuple[str, ...]: ...

    @property
    def bytes(self) -> int: ...


W = TypeVar("W", bound=Work)


class Done(Record, kw_only=True):
    """A unit that is done and waits for its commit. `whole` False: time ran out, and the rest of the work
    is on its output. `choice`: why a file was treated as it was."""

    unit: Unit
    whole: bool = True
    method: str
    choice: Choice | None = None
    removed_rows: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


# Carries one unit out; also in another process.
Perform = Callable[[Context, LoadedTable, W], Done]


class Failure(Record):
    """A file that could not be rewritten; the others were."""

    key: str
    error: InlayError


class Budget(Record, kw_only=True):
    """`deadline` by the context's monotonic clock: after it no unit but the first begins, and none that
    takes longer than what is left. `seconds` estimates a unit; unknown by default. `held_bytes` is its
    memory; by default all of it, so that each unit runs alone."""

    max_bytes: int | None = None
    deadline: float | None = None
    seconds: Callable[[Any], float] = lambda work: 0.0
    held_bytes: Callable[[Any], int] = lambda work: HELD_BYTES

    def is_over(self, ctx: Context) -> bool:
        return self.deadline is not None and ctx.clock.monotonic() >= self.deadline

    def has_time(self, ctx: Context, work: Work) -> bool:
        takes = self.seconds(work)
        return not takes or self.deadline is None or ctx.clock.monotonic() + takes < self.deadline


class Run(Mutable):
    """The result of a run: `done` were committed, `left` units (that would read `left_bytes`) were not
    begun or not finished, `skipped` were given up because others kept changing their files."""

    loaded: LoadedTable
    done: list[Done] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    commits: int = 0
    removed_markers: int = 0
    left: int = 0
    left_bytes: int = 0
    skipped: int = 0
    input_bytes: int = 0

    def leave(self, works: Sequence[Work]) -> None:
        begun = [f for d in self.done if not d.whole for f in d.unit.outputs]
        self.left = len(works) + len(begun)
        self.left_bytes = sum(w.bytes for w in works) + sum(f.size for f in begun)

    def committed(self, outcome: Committed) -> None:
        self.commits += 1
        self.removed_markers += outcome.loaded.snapshot.commit.removed_markers
        self.loaded = outcome.loaded


def run_units(
    ctx: Context,
    loaded: LoadedTable,
    *,
    operation: str,
    plan: Callable[[State, frozenset[str]], Sequence[W]],
    perform: Perform[W],
    idle: Callable[[State], tuple[str, ...]],
    budget: Budget,
    runner: TaskRunner | None = None,
) -> Run:
    """Runs what `plan` finds in a state, restricted to the given files, best first. `idle` names markers
    that the same commits try to drop. `loaded` must hold every entry. With a `runner` its processes carry
    the units out, those of a commit at once whatever they read, and `perform` pickles."""
    most_bytes, most_units = COMMIT_BYTES, COMMIT_UNITS
    if runner is not None:
        most_bytes, most_units = sys.maxsize, min(most_units, UNITS_PER_SLOT * runner.slots)
    run = Run(loaded)
    known = frozenset(f.key for f in loaded.state.files())
    tries: Counter[str] = Counter()
    while True:
        works = [
            w
            for w in plan(run.loaded.state, known)
            if all(tries[key] < MAX_TRIES for key in w.inputs)
        ]
        in_time = [w for w in works if budget.has_time(ctx, w)]
        batch = _affordable(in_time, run, budget, most_bytes, most_units)
        if not batch:
            run.leave(works)
            return run
        carried_out: list[Done] = []
        begun: set[tuple[str, ...]] = set()
        try:
            for work, outcome in _outcomes(ctx, run.loaded, perform, batch, budget, runner):
                begun.add(work.inputs)
                if isinstance(outcome, Failure):
                    # Not again in this run: the object itself is the problem. What was to be done with the
                    # files beside it is planned again without it.
                    run.failures.append(outcome)
                    bad = at_fault(work, outcome.error)
                    known = known.difference(bad)
                    tries.update(dict.fromkeys(bad, MAX_TRIES))
                    continue
                tries.update(work.inputs)
                carried_out.append(outcome)
                run.input_bytes += work.bytes
                at = len(run.done) + len(carried_out)
                ctx.progress(operation, at, len(run.done) + len(works))
        finally:
            # Also when the store failed in between: finished work need not be repeated.
            if carried_out:
                _commit(ctx, run, operation, carried_out, idle)
        if budget.is_over(ctx):
            run.leave([w for w in works if w.inputs not in begun])
            return run


def _outcomes(
    ctx: Context,
    loaded: LoadedTable,
    perform: Perform[W],
    batch: list[W],
    budget: Budget,
    runner: TaskRunner | None,
) -> Iterator[tuple[W, Done | Failure]]:
    """Carries the works of `batch` out until the time is over, but those begun and the first that is
    done."""
    is_one_done = False
    while batch and not (is_one_done and budget.is_over(ctx)):
        if runner is None:
            wave = _at_once(ctx, loaded, perform, batch, budget)
        else:
            wave = _elsewhere(loaded, perform, batch, runner)
        for work, outcome in wave:
            is_one_done = is_one_done or isinstance(outcome, Done)
            yield work, outcome


def _at_once(
    ctx: Context,
    loaded: LoadedTable,
    perform: Perform[W],
    batch: list[W],
    budget: Budget,
) -> Iterator[tuple[W, Done | Failure]]:
    """Takes as many works from the head of `batch` as fit and runs them. An error that is not one file's
    own is raised after the outcomes of all that were begun with it."""
    wave: list[W] = []
    room = HELD_BYTES
    most = 1 if budget.is_over(ctx) else ctx.parallel
    while batch and len(wave) < most:
        if not budget.has_time(ctx, batch[0]):
            batch.pop(0)  # a smaller one may still fit
            continue
        held = budget.held_bytes(batch[0])
        room -= HELD_BYTES if runs_alone(held) else held
        if wave and room < 0:
            break
        wave.append(batch.pop(0))
    if len(wave) == 1:
        # Not as a task of the executor, which is then free for the unit's own requests.
        own = own_context(ctx, budget.held_bytes(wave[0]))
        yield wave[0], _try(own, perform, loaded, wave[0])
        return
    own = own_context(ctx, 0)
    futures = [ctx.executor.submit(_try, own, perform, loaded, work) for work in wave]
    wait(futures)
    failed = [future for future in futures if future.exception() is not None]
    for work, future in zip(wave, futures, strict=True):
        if future not in failed:
            yield work, future.result()
    for future in failed:
        future.result()


def runs_alone(held_bytes: int) -> bool:
    """Whether a unit that needs so much memory never runs beside another."""
    return held_bytes > HELD_BYTES // 2


def own_context(ctx: Context, held_bytes: int) -> Context:
    """`ctx` for a unit that may run beside others, in a task of the executor: it must not wait for other
    tasks."""
    return ctx if runs_alone(held_bytes) else replace(ctx, executor=InlineExecutor())


class _UnitTask(Record):
    """A unit for another process, with the entries that it needs."""

    perform: Perform[Any]
    loaded: LoadedTable
    work: Work

    def run(self, ctx: Context) -> Done | Failure:
        return _try(ctx, self.perform, self.loaded, self.work)


def _elsewhere(
    loaded: LoadedTable, perform: Perform[W], batch: list[W], runner: TaskRunner
) -> Iterator[tuple[W, Done | Failure]]:
    wave = tuple(batch)
    batch.clear()
    tables = reduced(loaded, wave)
    tasks = [_UnitTask(perform, own, work) for own, work in zip(tables, wave, strict=True)]
    yield from zip(wave, runner.run(tasks), strict=True)


def reduced(loaded: LoadedTable, works: Sequence[Work]) -> Iterator[LoadedTable]:
    """For each work its files, and the deletes that may hit them: a task never gets all of a table's
    entries. Planning a unit of work on this gives the same as on the whole."""
    base = loaded.without_entries()
    evidence = Evidence.of_snapshot(loaded.snapshot)
    files = {f.key: f for f in loaded.state.files()}
    markers = tuple(loaded.state.markers())
    for work in works:
        own = tuple(files[key] for key in work.inputs)
        hits = tuple(m for m in markers if any(marker_may_hit(m, f, evidence) for f in own))
        snapshot = replace(base.snapshot, files=Tier((), own), markers=Tier((), hits))
        yield replace(base, state=State(snapshot))


def _try(ctx: Context, perform: Perform[W], loaded: LoadedTable, work: W) -> Done | Failure:
    """Records a failure, which affects no other file."""
    try:
        return perform(ctx, loaded, work)
    except InlayError as error:
        if error.kind not in (ErrorKind.INPUT, ErrorKind.REBASE):
            raise
        return Failure(at_fault(work, error)[0], error)


def at_fault(work: Work, error: InlayError) -> tuple[str, ...]:
    """The inputs that a unit failed by: the one that the error names; else it may be any of them."""
    return (error.key,) if error.key in work.inputs else work.inputs


def _affordable(
    works: Sequence[W], run: Run, budget: Budget, most_bytes: int, most_units: int
) -> list[W]:
    affordable: list[W] = []
    size = 0
    for work in works:
        spent = run.input_bytes + size
        if budget.max_bytes is not None and spent and spent + work.bytes > budget.max_bytes:
            continue
        if affordable and (size + work.bytes > most_bytes or len(affordable) >= most_units):
            break
        affordable.append(work)
        size += work.bytes
    return affordable


def _commit(
    ctx: Context,
    run: Run,
    operation: str,
    carried_out: list[Done],
    idle: Callable[[State], tuple[str, ...]],
) -> None:
    writes = any(d.written_bytes for d in carried_out)
    change = Change(
        operation=operation,
        uploaded_us=run.loaded.date_us if writes else None,
        deleted_rows=0,
        updates=(
            ReplaceFiles(tuple(d.unit for d in carried_out)),
            DropMarkers(idle(run.loaded.state)),
        ),
    )
    # Skipped where an erasure was opened meanwhile: whatever was read before it must be read again.
    outcome = commit_or_skip(ctx, change, base=run.loaded)
    if isinstance(outcome, Committed):
        run.committed(outcome)
        run.done += [d for d in carried_out if d.unit not in outcome.skipped]
        run.skipped += len(outcome.skipped)
    else:
        run.skipped += len(carried_out)
    run.loaded = with_entries(ctx, outcome.loaded)


def table_wide(state: State) -> tuple[str, ...]:
    """Candidates for dropping: the commit drops those that can hit nothing once its units are in."""
    return tuple(m.id for m in state.markers() if m.file is None and m.erasure is None)


def idle_in(state: State) -> tuple[str, ...]:
    """The markers that can hit no file any more."""
    markers = tuple(state.markers())
    return tuple(idle_markers(live_tasks(state, state.files(), markers).values(), markers, ()))


def with_entries(ctx: Context, loaded: LoadedTable) -> LoadedTable:
    """`loaded` with every file and marker entry loaded."""
    return replace(loaded, state=load_entries(ctx, loaded.state))

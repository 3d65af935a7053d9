"""Maintenance of large tables: the driver plans and commits, executors do the work.

Promise: units, plans and commits are those of `ops.maintain.compact`, `ops.maintain.rewrite` and
`ops.erase.request`; only where a unit runs differs. Work is done in waves, one commit each: a crash costs a
wave, a unit that fails or conflicts with another writer costs itself, and the next run finds what is left.
Only entries go to the driver. What change streams remember of deletes (`ops.write.memory`) is small: the
driver itself does the same for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING

from inlay.engine import Context, parse_predicate
from inlay.engine import advance_erasures as advance_here
from inlay.engine import compact as compact_here
from inlay.engine import rewrite as rewrite_here
from inlay.errors import ErrorKind, InlayError, RefNotFound
from inlay.format.predicate import Predicate
from inlay.format.snapshot import Tier
from inlay.ops.erase.request import contents_to_clean, is_dropped
from inlay.ops.maintain.compact import carry_out, unit_bytes_for
from inlay.ops.maintain.rewrite import (
    FileWork,
    carry_out_file,
    drop_idle,
    plan_erased,
    plan_rewrite,
)
from inlay.ops.maintain.units import (
    COMMIT_UNITS,
    MAX_TRIES,
    Budget,
    Done,
    Failure,
    Run,
    Work,
    at_fault,
    run_units,
    table_wide,
    with_entries,
)
from inlay.ops.metadata.load import LoadedTable, load_again
from inlay.ops.metadata.memory import has_memory, memory_context
from inlay.plan.maintain.compaction import CompactionUnit, plan_compaction, worth_merging
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import marker_may_hit
from inlay.plan.surgery import Strategy
from inlay.progress import Progress, no_progress
from inlay.spark.connect import connect, load_writable, without_entries
from inlay.spark.context import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Units of a wave for each task slot: enough that uneven ones leave no slot idle for long.
UNITS_PER_SLOT = 4

CarryOut = Callable[[Context, LoadedTable, Work], Done]
# The work that a state needs in these files, best first.
Plan = Callable[[State, frozenset[str]], Sequence[Work]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceResult:
    """`units` were committed, in `commits`; `skipped` kept being changed by others, `failures` cannot be
    read."""

    version: int
    commits: int
    units: int
    input_files: int
    output_files: int
    removed_rows: int
    removed_markers: int
    read_bytes: int
    written_bytes: int
    skipped: int
    failures: tuple[Failure, ...]


def compact(
    spark: SparkSession,
    uri: str,
    *,
    target_bytes: int | None = None,
    small_bytes: int | None = None,
    task_memory_bytes: int | None = None,
    progress: Progress = no_progress,
) -> MaintenanceResult:
    """Packs small files, sorts rows across files and applies deletes, like `t.maintain.compact`. No task
    takes a unit that needs more than `task_memory_bytes` of Python memory."""
    context_of(spark, "compact")
    ctx, loaded = _open(uri, progress)
    plan = partial(
        plan_compaction,
        target_bytes=target_bytes,
        small_bytes=small_bytes,
        unit_bytes=unit_bytes_for(task_memory_bytes),
    )
    waves = _Waves(spark, uri, partial(_carry_out_unit, target_bytes=target_bytes))
    run = waves.run(ctx, loaded, "compact", lambda state, only: plan(state, only=only).units)
    drop_idle(ctx, run, "compact", metadata=worth_merging(run.loaded.snapshot))
    if ctx.branch is None and has_memory(run.loaded.snapshot):
        compact_here(memory_context(ctx))
    return _result(run)


def materialize_deletes(
    spark: SparkSession,
    uri: str,
    *,
    where: str | None = None,
    strategy: Strategy = "auto",
    progress: Progress = no_progress,
) -> MaintenanceResult:
    """Removes deleted rows from files, like `t.maintain.rewrite`: from all files, or from those that
    may hold a row for which `where` (SQL text) is TRUE."""
    context_of(spark, "materialize_deletes")
    ctx, loaded = _open(uri, progress)
    predicate: Predicate | None = None
    if where is not None:
        predicate = parse_predicate(where, loaded.snapshot.schema)
    waves = _Waves(spark, uri, partial(_carry_out_file, strategy=strategy))
    run = waves.run(ctx, loaded, "rewrite", partial(plan_rewrite, where=predicate))
    drop_idle(ctx, run, "rewrite")
    if ctx.branch is None and has_memory(run.loaded.snapshot):
        rewrite_here(memory_context(ctx))
    return _result(run)


def advance_erasures(
    spark: SparkSession, uri: str, *, progress: Progress = no_progress
) -> MaintenanceResult:
    """Rewrites the files that hold rows of open erasures: main's, then those of every branch and tag. Only
    `collect_garbage` deletes what is then left of them, and writes the receipt."""
    context_of(spark, "advance_erasures")
    ctx, loaded = _open(uri, progress)
    main = load_again(replace(ctx, branch=None), loaded)
    total = _result(Run(main))
    if has_memory(main.snapshot):
        advance_here(memory_context(ctx))
    for own, loaded in contents_to_clean(ctx, main):
        # A file may be in several contents: attempts are counted for each.
        waves = _Waves(spark, uri, partial(_carry_out_file, strategy="auto"))
        try:
            run = waves.run(own, with_entries(own, loaded), "erase", plan_erased)
        except RefNotFound:
            if not is_dropped(own):
                raise
            continue
        total = _together(total, _result(run))
    return total


def _together(one: MaintenanceResult, other: MaintenanceResult) -> MaintenanceResult:
    sums = {f.name: getattr(one, f.name) + getattr(other, f.name) for f in fields(one)}
    return replace(other, **{**sums, "version": max(one.version, other.version)})


def _open(uri: str, progress: Progress) -> tuple[Context, LoadedTable]:
    ctx, loaded = load_writable(uri)
    ctx = replace(ctx, progress=progress)
    return ctx, with_entries(ctx, loaded)


def _result(run: Run) -> MaintenanceResult:
    return MaintenanceResult(
        version=run.loaded.snapshot.version,
        commits=run.commits,
        units=len(run.done),
        input_files=sum(len(d.unit.inputs) for d in run.done),
        output_files=sum(len(d.unit.outputs) for d in run.done),
        removed_rows=sum(d.removed_rows for d in run.done),
        removed_markers=run.removed_markers,
        read_bytes=sum(d.read_bytes for d in run.done),
        written_bytes=sum(d.written_bytes for d in run.done),
        skipped=run.skipped,
        failures=tuple(run.failures),
    )


# -- on the driver --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _InWave:
    """Work that runs with its whole wave. It counts no bytes, so that a wave is one commit whatever it
    reads: the number of slots bounds its size."""

    work: Work
    bytes: int = 0

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.work.inputs


class _Waves:
    """Cuts plans into waves and runs each as one Spark job, when its first unit is requested."""

    def __init__(self, spark: SparkSession, uri: str, carry_out: CarryOut) -> None:
        self._spark = spark
        self._carry_out = partial(_on_executor, uri, carry_out)
        self._size = min(COMMIT_UNITS, UNITS_PER_SLOT * spark.sparkContext.defaultParallelism)
        self._tries: Counter[str] = Counter()
        self._wave: list[_InWave] = []
        self._done: dict[tuple[str, ...], Done | InlayError] = {}

    def run(self, ctx: Context, loaded: LoadedTable, operation: str, plan: Plan) -> Run:
        """All the work that `plan` finds, wave after wave."""
        return run_units(
            ctx,
            loaded,
            operation=operation,
            plan=lambda state, only: self._next(plan(state, only)),
            perform=self._perform,
            idle=table_wide,
            budget=Budget(),
        )

    def _next(self, works: Sequence[Work]) -> list[Work]:
        # Work that failed often enough would otherwise be at the head of every following wave.
        fresh = [w for w in works if all(self._tries[key] < MAX_TRIES for key in w.inputs)]
        self._wave = [_InWave(work) for work in fresh[: self._size]]
        self._done = {}
        return list(self._wave)

    def _perform(self, loaded: LoadedTable, work: Work) -> Done:
        if not self._done:
            jobs = [
                (part, w.work)
                for part, w in zip(reduced(loaded, self._wave), self._wave, strict=True)
            ]
            for wave_work in self._wave:
                self._tries.update(wave_work.inputs)
            found = (
                self._spark.sparkContext.parallelize(jobs, len(jobs)).map(self._carry_out).collect()
            )
            self._done = {w.inputs: done for w, done in zip(self._wave, found, strict=True)}
        done = self._done[work.inputs]
        if isinstance(done, InlayError):
            # As in `run_units`: the object is the problem, and this run does not try it again.
            self._tries.subtract(work.inputs)
            self._tries.update(dict.fromkeys(at_fault(work, done), MAX_TRIES))
            raise done
        return done


def reduced(loaded: LoadedTable, works: Sequence[Work]) -> Iterator[LoadedTable]:
    """For each work its files, and the deletes that may hit them: a task never gets all of a table's
    entries. Planning a unit of work on this gives the same as on the whole."""
    base = without_entries(loaded)
    evidence = Evidence.of_snapshot(loaded.snapshot)
    files = {f.key: f for f in loaded.state.files()}
    markers = tuple(loaded.state.markers())
    for work in works:
        own = tuple(files[key] for key in work.inputs)
        hits = tuple(m for m in markers if any(marker_may_hit(m, f, evidence) for f in own))
        snapshot = replace(base.snapshot, files=Tier((), own), markers=Tier((), hits))
        yield replace(base, state=State(snapshot))


# -- on the executors -----------------------------------------------------------------------------


def _on_executor(uri: str, carry_out: CarryOut, job: tuple[LoadedTable, Work]) -> Done | InlayError:
    """Errors of the file itself are returned as values: Spark would retry them in vain, and then fail the
    wave."""
    try:
        return carry_out(connect(uri), *job)
    except InlayError as error:
        if error.kind in (ErrorKind.INPUT, ErrorKind.REBASE):
            return error
        raise


def _carry_out_unit(
    ctx: Context, loaded: LoadedTable, work: Work, *, target_bytes: int | None
) -> Done:
    assert isinstance(work, CompactionUnit)
    return carry_out(ctx, loaded, work, target_bytes)


def _carry_out_file(ctx: Context, loaded: LoadedTable, work: Work, *, strategy: Strategy) -> Done:
    assert isinstance(work, FileWork)
    return carry_out_file(ctx, loaded, work, strategy=strategy)[1]

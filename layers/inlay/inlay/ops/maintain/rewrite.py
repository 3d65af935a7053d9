"""Rewrite: removes deleted rows from files.

Promise: the rows of the table are the same before and after, for every reader; afterwards the rewritten
files hold no deleted row, and their entries have the sequence of the version they were planned on, so that
no applied marker is applied again and none that was committed meanwhile is lost.

Each file is rewritten on its own (`ops.maintain.rewrite_file`), small ones concurrently, and committed as a
unit (`ops.maintain.units`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from inlay.arguments import one_of
from inlay.format.entry import DataFile
from inlay.format.predicate import Comparison, Predicate, field_ids
from inlay.format.schema import Primitive
from inlay.notebook import Shown
from inlay.ops.commit.driver import Committed, commit, recent_base
from inlay.ops.context import Context
from inlay.ops.maintain.rewrite_file import (
    NO_LIMITS,
    ResourceLimits,
    decide_rows,
    dropped,
    rewrite_task,
)
from inlay.ops.maintain.units import (
    Budget,
    Done,
    Failure,
    Run,
    idle_in,
    run_units,
    table_wide,
    with_entries,
)
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.metadata.memory import has_memory, memory_context
from inlay.ops.task_runner import TaskRunner
from inlay.parquet.arrow.evaluate import Columns, column_at, columns_of, comparable, selected
from inlay.parquet.arrow.types import to_array
from inlay.parquet.read.selection import Projection, subschema, top_columns
from inlay.parquet.surgery.new_object import WINDOW_BYTES
from inlay.plan.change import Change, DropMarkers, PackMetadata
from inlay.plan.erasure import unclean_files
from inlay.plan.maintain.compaction import live_tasks
from inlay.plan.metadata.state import State
from inlay.plan.positions import PositionMap
from inlay.plan.pruning.literals import any_of
from inlay.plan.pruning.prune import Evidence, all_match, may_match
from inlay.plan.scan import FileTask
from inlay.plan.surgery import STRATEGIES, Choice, Strategy
from inlay.record import Record, replace
from inlay.storage.base import ByteRange, Got, Missing, ObjectStore, Refused
from inlay.storage.wrapped import WrappedStore

# A group as read, decoded, filtered and written: values take about twice their bytes in the file.
GROUP_FORMS = 6


class RewriteResult(Record, Shown, kw_only=True):
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


class FileWork(Record):
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
        """The approximate memory for rewriting it: one row group in all its forms, the bytes that were read
        ahead, and those that wait to be sent."""
        group = self.bytes // max(self.entry.row_groups, 1)
        return GROUP_FORMS * group + 2 * min(self.bytes, WINDOW_BYTES)


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
    runner: TaskRunner | None = None,
) -> RewriteResult:
    """Applies the delete markers to the files they may hit: all, or those that may hold a row for which
    `where` is TRUE. Then drops the markers that can hit nothing any more. Files with a row group that does
    not fit `memory_bytes` are left, as failures. With a `runner` its processes rewrite the files."""
    one_of(strategy, "strategy", STRATEGIES)
    loaded = with_entries(ctx, recent_base(ctx, base))
    loaded.refuse_handed_over(ctx)
    plan = partial(plan_rewrite, where=where)
    if dry_run:
        choices: list[tuple[str, Choice]] = []
        for work in plan(loaded.state, frozenset(f.key for f in loaded.state.files())):
            if work.task is not None:
                decided = decide_rows(ctx, loaded, work.task, strategy, all_costs=True)
                choices.append((work.entry.key, decided.choice))
        return RewriteResult(version=loaded.snapshot.version, choices=tuple(choices))
    budget = Budget(
        max_bytes=max_bytes,
        deadline=None if deadline_seconds is None else ctx.clock.monotonic() + deadline_seconds,
        held_bytes=lambda work: work.held_bytes,
    )
    # Another process has another clock.
    limits = ResourceLimits(budget.deadline if runner is None else None, memory_bytes)
    run = run_units(
        ctx,
        loaded,
        operation="rewrite",
        plan=plan,
        perform=partial(carry_out_file, strategy=strategy, limits=limits),
        idle=table_wide,
        budget=budget,
        runner=runner,
    )
    drop_idle(ctx, run, "rewrite")
    if ctx.branch is None and has_memory(run.loaded.snapshot):
        rewrite(memory_context(ctx), memory_bytes=memory_bytes)
    return _result(run)


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


def rewrite_erased(
    ctx: Context,
    loaded: LoadedTable,
    budget: Budget,
    limits: ResourceLimits = NO_LIMITS,
    runner: TaskRunner | None = None,
) -> Run:
    """Rewrites the files of one content that open erasures concern; all entries of `loaded` are loaded."""
    return run_units(
        ctx,
        loaded,
        operation="erase",
        plan=plan_erased,
        perform=partial(carry_out_file, limits=limits),
        idle=table_wide,
        budget=budget,
        runner=runner,
    )


def plan_erased(state: State, only: frozenset[str]) -> Sequence[FileWork]:
    """The files that open erasures concern, each with every delete that may hit it: after the first phase
    for deletes that came since."""
    by_erasure = unclean_files(state, state.snapshot.erasures)
    unclean = {key: f for files in by_erasure.values() for key, f in files.items() if key in only}
    tasks = live_tasks(state, unclean.values(), state.markers())
    return [FileWork(tasks.get(key), entry) for key, entry in unclean.items()]


def drop_idle(ctx: Context, run: Run, operation: str, *, metadata: bool = False) -> None:
    """Commits without the markers that can hit no file any more; with `metadata`, merges segments."""
    idle = idle_in(run.loaded.state)
    if not idle and not metadata:
        return
    packed = (PackMetadata(),) if metadata else ()
    change = Change(operation=operation, updates=(DropMarkers(idle), *packed))
    outcome = commit(ctx, change, base=run.loaded)
    if isinstance(outcome, Committed):
        run.committed(outcome)


def _result(run: Run) -> RewriteResult:
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
        choices=tuple((d.unit.inputs[0], d.choice) for d in run.done if d.choice is not None),
    )


def carry_out_file(
    ctx: Context,
    loaded: LoadedTable,
    work: FileWork,
    *,
    strategy: Strategy = "auto",
    limits: ResourceLimits = NO_LIMITS,
) -> Done:
    """Rewrites, restamps or drops one file; counts the rows of open erasures that it removes."""
    done, judging = dropped(loaded, work.entry), ctx
    if work.task is not None:
        if any(m.erasure is not None for m in work.task.markers):
            remembered = _RememberedRanges(ctx.store)
            judging = replace(ctx, store=remembered)
            # All columns of all rows are no more than passing through.
            ctx = replace(ctx, store=remembered.as_it_is())
        choice, done = rewrite_task(
            ctx, loaded, work.task, strategy=strategy, limits=limits, judging=judging
        )
        done = replace(done, choice=choice)
        if not done.removed_rows:
            return done  # no erasure lost a row by it: nothing to read again
    went = None if done.whole else done.unit.positions
    erased = tuple(count_erased(judging, loaded, work.entry, work.task, went))
    return replace(done, unit=replace(done.unit, erased=erased))


# What a file's ranges may take to be remembered: 20 row groups of 1 million integers, and then some.
REMEMBERED_BYTES = 64 << 20


class _RememberedRanges(WrappedStore):
    """A store that answers a range from what it has answered before: an erasure judges a file by columns
    whose dictionaries it searches afterwards, and of which it then counts rows."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._left = REMEMBERED_BYTES
        self._answers: dict[tuple[str, str | None], list[tuple[int, Got]]] = {}

    def as_it_is(self) -> _RememberedRanges:
        """The same memory, to which nothing is added."""
        other = _RememberedRanges(self.inner)
        other._left, other._answers = 0, self._answers
        return other

    def get(
        self, key: str, *, byte_range: ByteRange | None = None, **options: Any
    ) -> Got | Missing | Refused:
        if byte_range is None:
            return self.inner.get(key, **options)
        known = self._answers.setdefault((key, options.get("version_id")), [])
        for start, got in known:
            inside = start <= byte_range.start and byte_range.end <= start + len(got.body)
            if inside and options.get("if_match") in (None, got.etag):
                return replace(
                    got, body=got.body[byte_range.start - start : byte_range.end - start]
                )
        answer = self.inner.get(key, byte_range=byte_range, **options)
        if isinstance(answer, Got) and len(answer.body) <= self._left:
            self._left -= len(answer.body)
            known.append((byte_range.start, answer))
        return answer


def count_erased(
    ctx: Context,
    loaded: LoadedTable,
    entry: DataFile,
    task: FileTask | None,
    went: PositionMap | None = None,
) -> Iterator[tuple[str, int, int]]:
    """(erasure, 1 if no row of it is left, its rows that this file loses), including those hidden by other
    deletes. `task` None: no row of the file is live. `went`: the new positions of its rows, if not all
    groups were processed. The columns that the erasures ask for are read once for all of them."""
    erasing = [(e, e.predicate) for e in loaded.snapshot.erasures if e.predicate is not None]
    if task is None:
        known = Evidence.of_snapshot(loaded.snapshot).trusted(entry)
        for erasure, predicate in erasing:
            older = (entry.sequence or 0) < erasure.opened_version
            if older and entry.rows and all_match(predicate, known, entry.rows):
                yield erasure.id, 1, entry.rows
        return
    # A file that is newer than an erasure has rows that were inserted after it.
    marked = {m.erasure for m in task.markers}
    erasing = [(e, p) for e, p in erasing if e.id in marked]
    if not erasing:
        return
    # Hidden by deletes or not: without the markers.
    rows_of_any = FileTask(
        file=task.file,
        schema=task.schema,
        predicate=any_of([p for _, p in erasing]),
        by_rows=task.file.is_foreign,
    )
    schema = loaded.snapshot.schema
    tops = top_columns(schema, {i for _, predicate in erasing for i in field_ids(predicate)})
    projection = Projection(schema=schema, columns=tops, position=True)
    columns = columns_of(subschema(schema, tops))
    counts = dict.fromkeys((e.id for e, _ in erasing), 0)
    stay: set[str] = set()
    conditions = [(erasure.id, predicate) for erasure, predicate in erasing]
    batches = ctx.reader.rows([rows_of_any], projection)
    for batch in _joined(batches) if len(conditions) > 1 else batches:
        positions = batch.column(len(tops))
        for name, hit in _hit_by_each(conditions, batch, columns):
            removed = len(hit)
            if went is not None:
                remaining = len(went.moved(BitMap64(positions.take(hit).to_pylist())))
                removed -= remaining
                stay |= {name} if remaining else set()
            counts[name] += removed
    for name, rows in counts.items():
        if rows:
            yield name, int(name not in stay), rows


# Rows of several erasures that are looked at together.
_JOINED_ROWS = 65_536


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: each is held to every erasure's condition."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if waiting and rows + batch.num_rows > _JOINED_ROWS:
            yield pa.concat_batches(waiting)
            waiting, rows = [], 0
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
    if waiting:
        yield pa.concat_batches(waiting)


def _hit_by_each(
    conditions: Sequence[tuple[str, Predicate]], batch: pa.RecordBatch, columns: Columns
) -> Iterator[tuple[str, pa.Array]]:
    """(name, ordinals of the rows that its condition selects), where there are any. A thousand conditions
    on the value of one column are looked up in it, not evaluated."""
    rows_of: dict[tuple[int, Primitive], dict[object, list[int]]] = {}
    for name, predicate in conditions:
        match predicate:
            case Comparison(field_id, "=", literal) if _is_plain(literal.type):
                column = field_id, literal.type
                if column not in rows_of:
                    rows_of[column] = _rows_by_value(field_id, literal.type, batch, columns)
                rows = rows_of[column].get(literal.value)
                if rows:
                    yield name, to_array(rows, pa.int64())
            case _:  # is evaluated
                hit = selected(predicate, batch, columns)
                if hit.true_count:
                    yield name, pc.indices_nonzero(hit)


def _is_plain(kind: Primitive) -> bool:
    """Whether equal values are equal objects of Python."""
    return kind.family in ("integer", "text")


def _rows_by_value(
    field_id: int, kind: Primitive, batch: pa.RecordBatch, columns: Columns
) -> dict[object, list[int]]:
    path = columns.get(field_id)
    held = None if path is None else comparable(column_at(path, batch), kind)
    rows: dict[object, list[int]] = defaultdict(list)
    if held is not None:
        values, indices = held
        for at, value in enumerate(values if indices is None else values.take(indices)):
            rows[value.as_py()].append(at)
    return rows

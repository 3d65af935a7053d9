"""Compact: fewer, fuller, ordered files without deleted rows; metadata ordered, too.

Promise: every reader sees the same rows before and after. Work is done in units, each of which commits or
fails alone beside other writers, the best first, within the caller's limits of bytes and time; the next run
finds what is left. The ledger of requests is not changed.

`plan.maintain.compaction` decides what is worth doing; this module runs `pack` and `cluster` units, `fold`
units are file rewrites (`ops.maintain.rewrite`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from inlay.errors import ConcurrentChange, InvalidRequest
from inlay.format.entry import DataFile
from inlay.notebook import Shown
from inlay.ops.commit.driver import Committed, commit, recent_base
from inlay.ops.context import Context
from inlay.ops.data import layout_of, target_of
from inlay.ops.maintain.rewrite import FileWork, carry_out_file, count_erased, drop_idle
from inlay.ops.maintain.units import Budget, Done, Failure, Run, run_units, table_wide, with_entries
from inlay.ops.metadata.load import LoadedTable, load_leaves, load_nodes, load_pointer
from inlay.ops.metadata.memory import has_memory, memory_context
from inlay.ops.task_runner import TaskRunner
from inlay.parquet.read.selection import Projection
from inlay.parquet.write.writer import write_files
from inlay.plan.change import Change, ClusterLeaves, Unit
from inlay.plan.maintain.compaction import (
    CompactionPlan,
    CompactionUnit,
    live_tasks,
    plan_compaction,
    worth_merging,
)
from inlay.plan.maintain.leaf_overlap import deepest_overlap, would_part
from inlay.plan.maintain.order import order_of
from inlay.plan.metadata.state import State
from inlay.plan.scan import FileTask
from inlay.record import Record, replace


class MetadataResult(Record, kw_only=True):
    """`steps` were committed, `leaves` rewritten; `depth` is the most leaves that still share one value of
    the key, and `loaded` the table afterwards. Where the files themselves overlap the depth stays:
    `compact.strategy` separates those."""

    loaded: LoadedTable
    steps: int = 0
    leaves: int = 0
    bytes: int = 0
    depth: int = 0


def cluster_metadata(
    ctx: Context, *, base: LoadedTable | None = None, budget: Budget | None = None
) -> MetadataResult:
    """Takes leaves where most overlap, sorts their entries by key, and commits, until few overlap or the
    budget is used up: `max_bytes` of leaves read and rewritten, and the deadline, after which no step
    begins. A table without partition, sort or key columns has nothing to cluster by.

    Entries of files are packed by key again, so that a query opens few leaves. No file is changed and no
    row changes; each step is one commit beside other writers, and the next run finds what is left.
    `plan.maintain.leaf_overlap` selects the leaves of a step.
    """
    budget = budget or Budget()
    loaded = base if base is not None else load_pointer(ctx)
    result = MetadataResult(loaded=loaded)
    while True:
        loaded = replace(loaded, state=load_nodes(ctx, loaded.state))
        depth, overlapping = deepest_overlap(loaded.state)
        size = sum(leaf.size for leaf in overlapping)
        dear = budget.max_bytes is not None and result.bytes + size > budget.max_bytes
        is_over = not overlapping or budget.is_over(ctx) or dear
        if not is_over:
            loaded = replace(loaded, state=load_leaves(ctx, loaded.state, overlapping))
        if is_over or not would_part(loaded.state, overlapping):
            return replace(result, loaded=loaded, depth=depth)
        change = Change(
            operation="compact",
            updates=(ClusterLeaves(frozenset(leaf.id for leaf in overlapping)),),
        )
        outcome = commit(ctx, change, base=loaded)
        loaded = outcome.loaded
        if not isinstance(outcome, Committed):
            return replace(result, loaded=loaded, depth=depth)
        result = replace(
            result,
            steps=result.steps + 1,
            leaves=result.leaves + len(overlapping),
            bytes=result.bytes + size,
        )


# Memory for sorting a unit, per byte of its files: rows decode to about four times their size, and exist
# twice while they are sorted.
MEMORY_PER_BYTE = 10
# Memory of a file's entry, with the statistics of ten columns.
MEMORY_PER_FILE = 4_000


class CompactResult(Record, Shown, kw_only=True):
    """`units` were committed, `left` (that would read `left_bytes`) were out of the budget, `skipped` kept
    being changed by others, `failures` cannot be read. `hand_over`: more than `compact.handover_bytes` is
    left, work for Spark. For a dry run only `version` and `plan` are set."""

    version: int
    commit_id: str | None = None
    commits: int = 0
    units: int = 0
    input_files: int = 0
    output_files: int = 0
    removed_rows: int = 0
    removed_markers: int = 0
    input_bytes: int = 0
    written_bytes: int = 0
    merged_metadata: bool = False
    left: int = 0
    left_bytes: int = 0
    hand_over: bool = False
    skipped: int = 0
    failures: tuple[Failure, ...] = ()
    plan: CompactionPlan | None = None


def compact(
    ctx: Context,
    *,
    base: LoadedTable | None = None,
    max_bytes: int | None = None,
    deadline_seconds: float | None = None,
    memory_bytes: int | None = None,
    target_bytes: int | None = None,
    small_bytes: int | None = None,
    dry_run: bool = False,
    runner: TaskRunner | None = None,
) -> CompactResult:
    """Packs files smaller than `small_bytes` into files of `target_bytes` (by default the table's
    properties), clusters as `compact.strategy` says, applies deletes to files, drops markers that cover
    nothing.

    `max_bytes` bounds what is read; no unit is begun that would not end within `deadline_seconds`, and none
    is planned that needs more than `memory_bytes`: if a table has too many files to plan for, only its
    metadata is put in order. With a `runner` it is the memory of each of its processes, which carry the
    units out, and this one plans for any number of files.
    """
    deadline = None if deadline_seconds is None else ctx.clock.monotonic() + deadline_seconds
    loaded = recent_base(ctx, base)
    loaded.refuse_handed_over(ctx)
    # Units are planned from the entries of all files.
    entry_bytes = loaded.snapshot.totals.files * MEMORY_PER_FILE
    own_bytes = memory_bytes if runner is None else None
    if not dry_run and own_bytes is not None and entry_bytes > own_bytes // 2:
        return _hand_over(ctx, loaded, deadline)
    loaded = with_entries(ctx, loaded)
    plan = partial(
        plan_compaction,
        target_bytes=target_bytes,
        small_bytes=small_bytes,
        unit_bytes=None if memory_bytes is None else memory_bytes // MEMORY_PER_BYTE,
    )
    if dry_run:
        whole = plan(loaded.state, max_bytes=max_bytes)
        return CompactResult(version=loaded.snapshot.version, plan=whole)
    run = run_units(
        ctx,
        loaded,
        operation="compact",
        plan=lambda state, only: plan(state, only=only).units,
        perform=partial(carry_out, target_bytes=target_bytes),
        idle=table_wide,
        budget=Budget(max_bytes=max_bytes, deadline=deadline, seconds=lambda work: work.seconds),
        runner=runner,
    )
    merge = worth_merging(run.loaded.snapshot)
    drop_idle(ctx, run, "compact", metadata=merge)
    ordered = cluster_metadata(ctx, base=run.loaded, budget=Budget(deadline=deadline))
    if ctx.branch is None and has_memory(ordered.loaded.snapshot):
        left = None if deadline is None else max(0.0, deadline - ctx.clock.monotonic())
        compact(memory_context(ctx), deadline_seconds=left, memory_bytes=memory_bytes)
    return _result(run, ordered, merged=merge)


def _result(run: Run, ordered: MetadataResult, *, merged: bool) -> CompactResult:
    """What the units and the metadata that was put `ordered` after them come to."""
    last, commits = ordered.loaded.snapshot, run.commits + ordered.steps
    return CompactResult(
        version=last.version,
        commit_id=last.commit.id if commits else None,
        commits=commits,
        units=len(run.done),
        input_files=sum(len(d.unit.inputs) for d in run.done),
        output_files=sum(len(d.unit.outputs) for d in run.done),
        removed_rows=sum(d.removed_rows for d in run.done),
        removed_markers=run.removed_markers,
        input_bytes=sum(d.read_bytes for d in run.done),
        written_bytes=sum(d.written_bytes for d in run.done),
        merged_metadata=merged or ordered.steps > 0,
        left=run.left,
        left_bytes=run.left_bytes,
        hand_over=run.left_bytes > run.loaded.snapshot.settings.number("compact.handover_bytes"),
        skipped=run.skipped,
        failures=tuple(run.failures),
    )


def repack(ctx: Context, loaded: LoadedTable, keys: Collection[str], *, max_bytes: int) -> Run:
    """Writes each of these files again as the table's types are stored today, without its deleted rows.
    Reads at most about `max_bytes`; what is left is in the result."""

    def plan(state: State, only: frozenset[str]) -> list[CompactionUnit]:
        tasks = live_tasks(state, [f for f in state.files() if f.key in keys], state.markers())
        return [
            CompactionUnit("pack", (key,), t.file.size, 0.0, t.file.rows)
            for key, t in tasks.items()
        ]

    return run_units(
        ctx,
        with_entries(ctx, loaded),
        operation="compact",
        plan=plan,
        perform=carry_out,
        idle=lambda state: (),
        budget=Budget(max_bytes=max_bytes),
    )


def _hand_over(ctx: Context, loaded: LoadedTable, deadline: float | None) -> CompactResult:
    """For a table with too many files to plan: put its metadata in order."""
    ordered = cluster_metadata(ctx, base=loaded, budget=Budget(deadline=deadline))
    result, totals = _result(Run(loaded), ordered, merged=False), ordered.loaded.snapshot.totals
    return replace(result, left=totals.files, left_bytes=totals.bytes, hand_over=True)


def carry_out(
    ctx: Context, loaded: LoadedTable, unit: CompactionUnit, target_bytes: int | None = None
) -> Done:
    """Writes the outputs of one unit of a plan made on `loaded`; another process may do this."""
    inputs = set(unit.inputs)
    entries = [f for f in loaded.state.files() if f.key in inputs]
    tasks = live_tasks(loaded.state, entries, loaded.state.markers())
    match unit.kind:
        case "drop" | "fold":
            work = FileWork(tasks.get(unit.inputs[0]), entries[0])
            return carry_out_file(ctx, loaded, work)
        case "pack":
            order, sort_by = None, loaded.snapshot.sort_by
            clusters = {f.cluster for f in entries}
            cluster = clusters.pop() if len(clusters) == 1 else None
        case "cluster":
            order = order_of(loaded.snapshot)
            if order is None:
                raise ConcurrentChange("clustering was switched off meanwhile", table=ctx.uri)
            # The rows are in order across files: sorting within a file would undo a z-order.
            sort_by = () if order.interleaves else order.columns
            cluster = ctx.random.getrandbits(31)
    # In the order of the plan: neighbours by sort column stay neighbours.
    ordered = [tasks[key] for key in unit.inputs if key in tasks]
    schema = loaded.snapshot.schema
    projection = Projection(schema=schema, columns=tuple(f.id for f in schema.fields))
    rows = ctx.reader.rows(ordered, projection)
    batches = rows
    if order is not None:
        from inlay.ops.maintain.in_order import in_order  # few tables are clustered

        batches = in_order(rows, order, schema)
    try:
        outputs = tuple(write_run(ctx, loaded, batches, cluster, sort_by, target_bytes))
    except InvalidRequest as error:
        raise error.about(key=_unwritable(ctx, ordered, projection)) from None
    return Done(
        unit=Unit(
            inputs=unit.inputs,
            outputs=outputs,
            version=loaded.snapshot.version,
            applied=frozenset(m.id for t in ordered for m in t.markers if m.file is not None),
            erased=tuple(e for t in ordered for e in count_erased(ctx, loaded, t.file, t)),
        ),
        method=unit.kind,
        removed_rows=sum(f.rows for f in entries) - sum(f.rows for f in outputs),
        read_bytes=sum(f.size for f in entries),
        written_bytes=sum(f.size for f in outputs),
    )


def write_run(
    ctx: Context,
    loaded: LoadedTable,
    batches: Iterable[pa.RecordBatch],
    run: int | None,
    sort_by: tuple[int, ...] = (),
    target_bytes: int | None = None,
) -> Iterator[DataFile]:
    """Files of rows that are in the table already, as one run of its clustering (None: none)."""
    target = target_of(ctx, loaded.date_us)
    layout = replace(layout_of(loaded.snapshot), sort_by=sort_by)
    if target_bytes is not None:
        layout = replace(layout, target_file_bytes=target_bytes)
    for file in write_files(target, batches, loaded.snapshot.schema, layout):
        yield replace(file, sequence=loaded.snapshot.version, data_change=False, cluster=run)


def _unwritable(ctx: Context, tasks: Sequence[FileTask], projection: Projection) -> str | None:
    """The first file with values that their columns do not have, as only other writers leave them."""
    for task in tasks:
        try:
            for batch in ctx.reader.rows([task], projection):
                batch.validate(full=True)
        except pa.ArrowInvalid:
            return task.file.key
    return None

"""The plan of a scan: the segments it needs are loaded, and tell which files are read, under which deletes.

Promise: the plan of `plan.scan`, from the segments that may match alone. Imports no Arrow: a process that
asks only what metadata tells, such as the count of a table, does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inlay.format.entry import DataFile
from inlay.format.predicate import TRUE, Predicate
from inlay.format.snapshot import Segment
from inlay.ops.context import Context
from inlay.ops.metadata.load import needed, resolve
from inlay.parquet.footer.thrift import without_gc
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import Evidence, may_match
from inlay.plan.scan import ScanPlan, leaf_candidates, plan_scan
from inlay.record import replace

MayMatch = Callable[[Sequence[Segment]], Sequence[bool]]


def load_plan(
    ctx: Context,
    state: State,
    predicate: Predicate = TRUE,
    evidence: Evidence | None = None,
    may_match: MayMatch | None = None,
) -> ScanPlan:
    """What a scan of `state` for `predicate` reads; `may_match` says which segments may have files of it,
    where that is not the predicate's alone to say."""
    may = may_match or matching(predicate)
    state, _ = resolve(ctx, state, lambda s: needed(s.missing_files(may), s.missing_markers()))
    evidence = evidence or Evidence.of_snapshot(state.snapshot)
    with without_gc():
        opened = state.open_files(may)
        files: list[DataFile] = []
        left_out = opened.left_out
        for leaf in opened.leaves:
            candidates, others = leaf_candidates(leaf, state.contents.files[leaf.id], predicate)
            files += candidates
            left_out += others
        files += state.snapshot.files.inline
        plan = plan_scan(files, list(state.markers()), predicate, evidence=evidence)
    return replace(plan, files=plan.files + left_out, pruned=plan.pruned + left_out)


def matching(predicate: Predicate) -> MayMatch:
    """Which segments may have rows of `predicate`, by their statistics."""
    return lambda segments: [may_match(predicate, s.stats, s.rows) for s in segments]

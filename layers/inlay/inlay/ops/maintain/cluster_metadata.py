"""Cluster metadata: pack the entries of files by key again, so that a query opens few leaves.

Promise: no file is changed and no row changes; each step is one commit beside other writers, and the next
run finds what is left. `plan.metadata.overlap` selects the leaves of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inlay.format.snapshot import Segment
from inlay.ops.commit.driver import Committed, commit
from inlay.ops.context import Context
from inlay.ops.maintain.units import Budget
from inlay.ops.metadata.load import LoadedTable, load_pointer, load_segments
from inlay.plan.change import Change, ClusterLeaves, NeedSegments
from inlay.plan.metadata.overlap import deepest_overlap, would_part
from inlay.plan.metadata.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResult:
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
    begins. A table without partition, sort or key columns has nothing to cluster by."""
    budget = budget or Budget()
    loaded = base if base is not None else load_pointer(ctx)
    result = MetadataResult(loaded=loaded)
    while True:
        loaded = replace(loaded, state=_with_nodes(ctx, loaded.state))
        depth, taken = deepest_overlap(loaded.state)
        size = sum(leaf.size for leaf in taken)
        dear = budget.max_bytes is not None and result.bytes + size > budget.max_bytes
        if not taken or budget.is_over(ctx) or dear:
            return replace(result, loaded=loaded, depth=depth)
        loaded = replace(loaded, state=_with_leaves(ctx, loaded.state, taken))
        if not would_part(loaded.state, taken):
            return replace(result, loaded=loaded, depth=depth)
        change = Change(
            operation="compact", updates=(ClusterLeaves(frozenset(leaf.id for leaf in taken)),)
        )
        outcome = commit(ctx, change, base=loaded)
        loaded = outcome.loaded
        if not isinstance(outcome, Committed):
            return replace(result, loaded=loaded, depth=depth)
        result = replace(
            result,
            steps=result.steps + 1,
            leaves=result.leaves + len(taken),
            bytes=result.bytes + size,
        )


def _with_leaves(ctx: Context, state: State, leaves: Sequence[Segment]) -> State:
    missing = tuple(leaf for leaf in leaves if leaf.id not in state.contents.files)
    return load_segments(ctx, state, NeedSegments(files=missing)) if missing else state


def _with_nodes(ctx: Context, state: State) -> State:
    """`state` with all nodes of files loaded, and no leaf."""
    closed = state.open_files().closed
    return load_segments(ctx, state, NeedSegments(files=closed)) if closed else state

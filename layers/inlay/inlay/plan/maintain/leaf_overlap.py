"""Which leaves of file entries to pack by key, so that a query by key opens fewer of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inlay.format.snapshot import Segment, Snapshot
from inlay.plan.maintain.order import span_of
from inlay.plan.metadata.state import State, live_entries
from inlay.plan.pruning.prune import Evidence

# Overlapping leaves that are not worth more work: those that still grow are among them.
DEPTH = 3
# Leaves of one step, some 3 MB: what one commit reads, holds and writes.
MAX_LEAVES = 32


def cluster_column(snapshot: Snapshot) -> int | None:
    """The column by which leaves are ordered; None when the table has no order."""
    split = [field.source for field in snapshot.spec.fields]
    return next(iter((*split, *snapshot.sort_by, *snapshot.primary_key)), None)


def deepest_overlap(state: State) -> tuple[int, tuple[Segment, ...]]:
    """(the most leaves that share one value, those to pack next; none when there are few). Every node must
    be loaded.

    Leaves of file entries overlap in the order of the key. A step takes leaves that share a value of the
    first column that their references bound, at most MAX_LEAVES of them, and only where more than DEPTH do;
    after their entries are packed by key, they no longer overlap. So an unordered table becomes one where a
    query by key opens a few leaves, in about log₃₂(leaves) passes over its metadata. Where the files
    themselves overlap, packing their entries would not separate them: such leaves are skipped
    (`would_part`), so that the work terminates.
    """
    column = cluster_column(state.snapshot)
    if column is None:
        return 0, ()
    leaves = state.open_files().leaves
    evidence = Evidence.of_snapshot(state.snapshot)
    deepest = _deepest([span_of(evidence.of_reference(leaf).get(column)) for leaf in leaves])
    if len(deepest) <= DEPTH:
        return len(deepest), ()
    return len(deepest), tuple(leaves[n] for n in sorted(deepest))[:MAX_LEAVES]


def would_part(state: State, segments: Sequence[Segment]) -> bool:
    """Whether packing the entries of these loaded leaves by key would leave clearly fewer of them sharing
    one value."""
    column = cluster_column(state.snapshot)
    if column is None:
        return False
    evidence = Evidence.of_snapshot(state.snapshot)
    spans: list[tuple[Any, Any]] = []
    for leaf in segments:
        for _, entry in live_entries(leaf, state.contents.files[leaf.id]):
            span = span_of(evidence.column(entry, column))
            if span is None:
                return False
            spans.append(span)
    spans.sort()
    pieces = [
        spans[len(spans) * n // len(segments) : len(spans) * (n + 1) // len(segments)]
        for n in range(len(segments))
    ]
    packed = [(piece[0][0], max(high for _, high in piece)) for piece in pieces if piece]
    return len(_deepest(packed)) * 2 <= len(segments)


def _deepest(spans: Sequence[tuple[Any, Any] | None]) -> frozenset[int]:
    """The spans that share the value where most do. Spans of a single value do not count: packing does not
    make them narrower."""
    events: list[tuple[Any, bool, int]] = []
    for n, span in enumerate(spans):
        if span is not None and span[0] != span[1]:
            events += [(span[0], False, n), (span[1], True, n)]
    # Where one ends and another begins, both are open.
    events.sort(key=lambda event: (event[0], event[1]))
    open_: set[int] = set()
    deepest: frozenset[int] = frozenset()
    for _, is_end, n in events:
        if is_end:
            open_.discard(n)
            continue
        open_.add(n)
        if len(open_) > len(deepest):
            deepest = frozenset(open_)
    return deepest

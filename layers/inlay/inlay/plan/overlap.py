"""Overlap: which leaves of file entries lie over one another in the order of the key.

Promise: a step takes leaves that share a value of the first column their references bound, at most
MAX_LEAVES of them, and only where more than DEPTH do; once it has packed their entries by key, they lie
beside one another. So a table without order becomes one of which a query by key opens a few leaves, in
about log₃₂(leaves) passes over its metadata.
"""

from __future__ import annotations

from inlay.format.schema import Value
from inlay.format.snapshot import Segment, Snapshot
from inlay.format.values import order_key
from inlay.plan.partitions import current_spec
from inlay.plan.state import State

# Leaves over one value that are not worth more work: the ones that still grow are among them.
DEPTH = 3
# Leaves of one step, some 3 MB: what is read, held and written by one commit.
MAX_LEAVES = 32


def cluster_column(snapshot: Snapshot) -> int | None:
    """The column that leaves are told apart by; None when the table has no order."""
    split = [field.source for field in current_spec(snapshot).fields]
    return next(iter((*split, *snapshot.sort_by, *snapshot.primary_key)), None)


def deepest_overlap(state: State) -> tuple[int, tuple[Segment, ...]]:
    """(how many leaves lie over one value at most, those to pack next; none when it is few). Every node
    must be loaded."""
    column = cluster_column(state.snapshot)
    if column is None:
        return 0, ()
    events: list[tuple[object, bool, int]] = []
    leaves = state.open_files().leaves
    for n, leaf in enumerate(leaves):
        lower, upper = _span(leaf, column)
        if lower is not None and upper is not None:
            events.append((order_key(lower), False, n))
            events.append((order_key(upper), True, n))
    events.sort(key=lambda event: (event[0], event[1]))
    open_: set[int] = set()
    most: tuple[int, frozenset[int]] = (0, frozenset())
    for _, is_end, n in events:
        if is_end:
            open_.discard(n)
            continue
        open_.add(n)
        if len(open_) > most[0]:
            most = len(open_), frozenset(open_)
    depth, deepest = most
    if depth <= DEPTH:
        return depth, ()
    # The widest first: they lie over most others.
    return depth, tuple(leaves[n] for n in sorted(deepest))[:MAX_LEAVES]


def _span(leaf: Segment, column: int) -> tuple[Value | None, Value | None]:
    stats = leaf.stats.get(column)
    return (None, None) if stats is None else (stats.lower, stats.upper)

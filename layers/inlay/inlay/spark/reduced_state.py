"""The part of a table that a task needs: never all of its entries.

Promise: planning a unit of work on the reduced state gives the same as on the whole one. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from inlay.format.snapshot import Ledger, Tier
from inlay.ops.maintain.units import Work
from inlay.ops.metadata.load import LoadedTable
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import marker_may_hit


def without_entries(loaded: LoadedTable) -> LoadedTable:
    """The table's schemas and settings, without files, deletes and ledger."""
    snapshot = replace(
        loaded.snapshot, files=Tier(), markers=Tier(), ledger=Ledger(), time_index=()
    )
    return replace(loaded, state=State(snapshot), raw=b"")


def reduced(loaded: LoadedTable, works: Sequence[Work]) -> Iterator[LoadedTable]:
    """For each work its files, and the deletes that may hit them."""
    base = without_entries(loaded)
    evidence = Evidence.of_snapshot(loaded.snapshot)
    files = {f.key: f for f in loaded.state.files()}
    markers = tuple(loaded.state.markers())
    for work in works:
        own = tuple(files[key] for key in work.inputs)
        hits = tuple(m for m in markers if any(marker_may_hit(m, f, evidence) for f in own))
        snapshot = replace(base.snapshot, files=Tier((), own), markers=Tier((), hits))
        yield replace(base, state=State(snapshot))

"""Segments of the metadata tree, as an Arrow table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from inlay.format.schema import Schema
from inlay.format.snapshot import Segment
from inlay.ops.context import Context
from inlay.ops.inspect.columns import BOUNDS, COUNT, TIME, Column, bounds_by_name, table_of
from inlay.ops.metadata.load import load_segments
from inlay.plan.change import NeedSegments
from inlay.plan.metadata.state import State
from inlay.plan.metadata.tree import open_tree, under


@dataclass(frozen=True, slots=True)
class _Run:
    """A segment, or the inline entries of a tier (`segment` None: `inline` of them). `parent` is the node
    that refers to it."""

    tier: str
    place: int
    segment: Segment | None
    schema: Schema
    inline: int = 0
    parent: str | None = None

    def get(self, name: str) -> Any:
        return None if self.segment is None else getattr(self.segment, name)

    @property
    def entries(self) -> int:
        return self.inline if self.segment is None else self.segment.count

    @property
    def dead(self) -> int:
        return 0 if self.segment is None else self.segment.count - self.segment.live


SEGMENTS: tuple[Column[_Run], ...] = (
    Column("tier", pa.string(), "files, markers or ledger", lambda r: r.tier),
    Column(
        "level",
        COUNT,
        "0: a leaf, of entries; 1: a node, of references to leaves",
        lambda r: 0 if r.segment is None else r.segment.level,
    ),
    Column("parent", pa.string(), "id of the node that refers to it", lambda r: r.parent),
    Column("place", COUNT, "0 is the oldest run of its tier", lambda r: r.place),
    Column(
        "id",
        pa.string(),
        "segment id; null: the entries that are inline in the snapshot",
        lambda r: r.get("id"),
    ),
    Column(
        "entries",
        COUNT,
        "entries, dead ones included; of a node all that are under it",
        lambda r: r.entries,
    ),
    Column(
        "dead",
        COUNT,
        "entries that are no longer live",
        lambda r: r.dead,
    ),
    Column("object_bytes", COUNT, "bytes of the segment's object", lambda r: r.get("size")),
    Column(
        "sequence",
        COUNT,
        "sequence of entries that have none of their own",
        lambda r: r.get("sequence"),
    ),
    Column(
        "rows",
        COUNT,
        "rows of the data files in it",
        lambda r: r.get("rows") if r.tier == "files" else None,
    ),
    Column(
        "data_bytes",
        COUNT,
        "bytes of the data files in it",
        lambda r: r.get("bytes") if r.tier == "files" else None,
    ),
    Column("first", TIME, "least commit time of its ledger records", lambda r: r.get("first_us")),
    Column("last", TIME, "greatest commit time of its ledger records", lambda r: r.get("last_us")),
    Column(
        "bounds",
        BOUNDS,
        "bounds over all its entries, by which it is skipped",
        lambda r: None if r.segment is None else bounds_by_name(r.segment.stats, r.schema),
    ),
)


def load_tree(ctx: Context, state: State) -> State:
    """`state` with the nodes of all three tiers loaded, and no more leaves than before."""
    nodes = state.contents.nodes
    files, markers, ledger = (
        open_tree(tier.segments, nodes).closed
        for tier in (state.snapshot.files, state.snapshot.markers, state.snapshot.ledger.records)
    )
    need = NeedSegments(files=files, markers=markers, ledger=ledger)
    return load_segments(ctx, state, need) if files or markers or ledger else state


def segments_table(state: State) -> pa.Table:
    """One row for each segment of the three tiers, oldest first, each node before its leaves, and one
    for what is inline. All nodes must be loaded."""
    snapshot, nodes = state.snapshot, state.contents.nodes
    runs: list[_Run] = []
    for tier, segments, inline in (
        ("files", snapshot.files.segments, len(snapshot.files.inline)),
        ("markers", snapshot.markers.segments, len(snapshot.markers.inline)),
        ("ledger", snapshot.ledger.records.segments, len(snapshot.ledger.records.inline)),
    ):
        found: list[tuple[Segment | None, str | None]] = []
        for top in segments:
            leaves = under(top, nodes[top.id]) if top.level else ()
            found += [(top, None), *((leaf, top.id) for leaf in leaves)]
        runs += [
            _Run(tier, place, segment, snapshot.schema, parent=parent)
            for place, (segment, parent) in enumerate(found)
        ]
        runs.append(_Run(tier, len(found), None, snapshot.schema, inline))
    return table_of(SEGMENTS, runs)

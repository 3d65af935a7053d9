"""A snapshot: the whole state of a table at one version.

Promise: a snapshot is a frozen value, and with the immutable segments it refers to it says everything
about one version: which files are live, which deletes hide rows of them, which requests were already
applied, and how old an uploaded object may be to be committed. The pointer's body *is* a snapshot
(docs/FORMAT.md, section 5).

Entries live in two tiers: the newest *inline*, the older ones in *segments*. A segment never changes;
what dies in it is said by a bitmap of ordinals in its reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

from pyroaring import FrozenBitMap

from inlay.format.entry import ColumnStats, DataFile, Marker
from inlay.format.predicate import Predicate
from inlay.format.schema import Schema

# Frozen: what is written as 1 is read for ever (tests/golden/v1). Version 0 was the format while it grew.
FORMAT_VERSION = 1
# Bytes a pointer may have on the wire before inline entries roll into a segment. Every commit writes
# the pointer once and archives the one before: twice this is the fixed metadata cost of a commit.
POINTER_TARGET_BYTES = 4_600
# Entries of one leaf. 1,024 data files with ten columns of statistics are 50 to 110 KB.
SEGMENT_MAX_ENTRIES = 1_024
# Markers of one leaf, some 25 bytes each: a scan reads every leaf of markers, so they are few.
MARKERS_MAX_ENTRIES = 4_096
# Records of one leaf of the ledger, 12 to 16 bytes each.
LEDGER_MAX_RECORDS = 16_384
# References of one node, 50 to 80 bytes each: a million files have one or two nodes.
NODE_MAX_LEAVES = 1_024
# Bytes of schemas, compressed, that a pointer carries; more are kept apart.
SCHEMAS_INLINE_BYTES = 2_048
# Objects of schemas that a snapshot refers to: beyond, all schemas go into one again.
MAX_SCHEMA_OBJECTS = 8
# Names that point at versions, in the pointer (docs/design/design.md, section 2).
MAX_REFS = 64
# Points of the time index in each block of versions: an as-of read finds one more digit of the version, in
# this base, with each hop, so that any of a million versions is found in six requests.
TIME_INDEX_FANOUT = 16

NO_DEAD = FrozenBitMap()

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A reference to an immutable segment; `dead` are the ordinals of its entries that are no longer
    live.

    At `level` 0 it is a leaf of `count` entries. At level 1 it is a node of references to leaves:
    `count` and `dead` are then about all entries under it, one leaf after the other, and `settled` of
    them are dead by the references in the node itself.

    `sequence` is the sequence of every entry that has none of its own, and for ledger records the
    version that applied them; a node has the greatest of its leaves. So a bulk commit can write its
    leaves before it knows which version it will become, and a rebase writes none again. `first_us` …
    `last_us` is the span of commit times of ledger records. `stats` bounds the columns of all entries,
    so that a reader can skip the segment.
    """

    id: str
    count: int
    size: int
    dead: FrozenBitMap = NO_DEAD
    sequence: int | None = None
    rows: int = 0
    bytes: int = 0
    first_us: int | None = None
    last_us: int | None = None
    stats: Mapping[int, ColumnStats] = field(default_factory=dict)
    schema_id: int = 0  # whose types `stats` have
    level: int = 0
    settled: int = 0

    @property
    def live(self) -> int:
        return self.count - self.settled - len(self.dead)


@dataclass(frozen=True, slots=True)
class Tier(Generic[T]):
    """Entries of one kind: segments from oldest to newest, then the newest entries inline."""

    segments: tuple[Segment, ...] = ()
    inline: tuple[T, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One event or request that has been applied.

    `id` is the 12-byte digest of its identity, `body` that of its content when a reused id with
    another content must be told (requests), `version` the version that applied it and `time_us` that
    version's commit time (None, None while it is being committed).
    """

    id: bytes
    body: bytes | None = None
    version: int | None = None
    time_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What has been applied. Nothing older than `horizon_us` is remembered: a request from before it
    is refused, because whether it was applied can no longer be known."""

    records: Tier[LedgerRecord] = field(default_factory=Tier)
    horizon_us: int = 0
    # Streaming queries never expire: query id → last batch id.
    streams: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Who made a version. `id` is unique for ever: a writer finds its own commit by it."""

    id: str
    operation: str
    time_us: int = 0
    request: str | None = None
    branch: str | None = None  # whose content it changed (None: main's)
    added_files: int = 0
    removed_files: int = 0
    added_rows: int | None = 0
    removed_rows: int | None = 0
    added_bytes: int = 0
    added_markers: int = 0
    removed_markers: int = 0


@dataclass(frozen=True, slots=True)
class Boundary:
    """Objects whose upload started before `time_us` (the store's clock) may be deleted when they are
    unreachable, so no commit may add them. Set by GC and erasure at `version`; None: see `observed`."""

    version: int = 0
    time_us: int | None = 0


@dataclass(frozen=True, slots=True)
class Expiration:
    """Versions up to `through` were expired at `time_us`; GC roots until the grace has passed. None:
    see `observed`."""

    through: int
    time_us: int | None


@dataclass(frozen=True, slots=True)
class HeadObject:
    """An immutable object that holds the content of a ref (`format.content`)."""

    id: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A tag or a branch: a name for a content, held against expiry. `hold` is a legal hold.

    The content is main's at `version`, or, with a `head`, that of the commit `version` as the head has
    it. `base` is the version of main that a branch was made from, or last made even with; 0 for none
    that could be compared with. `since` is the version that gave the ref a content which does not
    follow from the one before: what was planned on that is planned again.
    """

    kind: Literal["tag", "branch"]
    version: int
    hold: bool = False
    head: HeadObject | None = None
    base: int = 0
    since: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """An erasure that is under way (docs/FORMAT.md, "Erasure"). `phase`: see `plan.erasure`.

    `predicate` is personal data itself: once no file holds a row for it, it is None, and `digest`, its
    HMAC, stands for it in the receipt. `objects` and `rows` were rewritten and removed, `deleted`
    objects deleted. `phase_version` is the version that entered the phase; `opened_us` and `swept_us`
    are the times of the commits that opened it and that told of the first sweep (0 while they are being
    committed).
    """

    id: str
    predicate: Predicate | None
    text: str
    phase: str
    opened_version: int
    opened_us: int
    swept_us: int | None = None
    objects: int = 0
    rows: int = 0
    deleted: int = 0
    digest: str | None = None
    phase_version: int = 0


@dataclass(frozen=True, slots=True)
class SchemaObject:
    """Schemas that are kept apart, because the pointer would carry them at every commit: those with
    `ids`, in the immutable object `id` of `size` bytes."""

    id: str
    size: int
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One partition value: `transform` of column `source`; specs live with the table for ever."""

    source: int
    transform: str
    name: str


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    id: int
    fields: tuple[PartitionField, ...] = ()


@dataclass(frozen=True, slots=True)
class Totals:
    """Over all live entries; `rows` are physical rows, deleted ones included."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    markers: int = 0


UNPARTITIONED = PartitionSpec(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One version of a table, whole."""

    table_id: str
    version: int
    commit: Commit
    schemas: tuple[Schema, ...]
    schema_id: int
    last_field_id: int
    schema_objects: tuple[
        SchemaObject, ...
    ] = ()  # where those of `schemas` are that are kept apart
    specs: tuple[PartitionSpec, ...] = (UNPARTITIONED,)
    spec_id: int = 0
    primary_key: tuple[int, ...] = ()
    sort_by: tuple[int, ...] = ()
    stats_columns: tuple[int, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    refs: Mapping[str, Ref] = field(default_factory=dict)
    files: Tier[DataFile] = field(default_factory=Tier)
    markers: Tier[Marker] = field(default_factory=Tier)
    ledger: Ledger = field(default_factory=Ledger)
    erasures: tuple[Erasure, ...] = ()
    boundary: Boundary = field(default_factory=Boundary)
    expired: tuple[Expiration, ...] = ()
    time_index: tuple[tuple[int, int], ...] = ()  # (version, commit time), ascending, sparse
    totals: Totals = field(default_factory=Totals)
    # Versions that last changed the content's rows or columns, and that last replaced it whole.
    changed: int = 0
    replaced: int = 0

    @property
    def schema(self) -> Schema:
        return self.schema_by_id(self.schema_id)

    def schema_by_id(self, schema_id: int) -> Schema:
        return next(s for s in self.schemas if s.id == schema_id)

    @property
    def schemas_apart(self) -> frozenset[int]:
        return frozenset(i for found in self.schema_objects for i in found.ids)

    @property
    def oldest_version(self) -> int:
        """The oldest version that can still be opened (refs may hold older ones)."""
        return max((e.through + 1 for e in self.expired), default=1)


def observed(snapshot: Snapshot, seen_us: int) -> Snapshot:
    """The snapshot, read at `seen_us` by the store's clock, with its open times filled in.

    "From now on" cannot be said by the commit that says it: a writer may stall between choosing a time
    and landing the swap, for longer than any grace period, and what it wrote would then have been true
    for days before anybody could see it. So a commit leaves such times open, and whoever reads it knows
    a time at which it had surely landed: the next commit writes that down.
    """
    boundary = snapshot.boundary
    if boundary.time_us is not None and all(e.time_us is not None for e in snapshot.expired):
        return snapshot
    return replace(
        snapshot,
        boundary=Boundary(boundary.version, seen_us) if boundary.time_us is None else boundary,
        expired=tuple(
            Expiration(e.through, seen_us) if e.time_us is None else e for e in snapshot.expired
        ),
    )


def thin_time_index(
    points: tuple[tuple[int, int], ...], newest: int
) -> tuple[tuple[int, int], ...]:
    """The points to keep: of the block of 16 versions that `newest` is in all, of its block of 256 every
    16th, and so on. From the end of any block one hop tells in which sixteenth of it a time lies.

    >>> [v for v, _ in thin_time_index(tuple((v, v) for v in range(1, 564)), 563)]
    [256, 512, 528, 544, 560, 561, 562, 563]
    """

    def kept(version: int) -> bool:
        step = 1
        while version // (step * TIME_INDEX_FANOUT) != newest // (step * TIME_INDEX_FANOUT):
            step *= TIME_INDEX_FANOUT
        return version % step == 0

    return tuple(point for point in sorted(set(points)) if kept(point[0]))

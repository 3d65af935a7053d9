"""Roots: which objects of a table are needed and which are garbage; which versions expire.

Promise: an object is garbage only if it is of a kind that this library writes once and never changes, no
root needs it, and it is older than the boundary, so that no commit can ever add it again
(`plan.commit.apply`, Stale). Never garbage: the pointer, receipts, objects of unknown kinds (they are
reported), and adopted files, which do not belong to the table, wherever they are.

Roots are the current snapshot; every version that is retained, expired less than the grace ago or named by
a ref; and versions that a ref named less than the grace ago, because a reader may still be using their
files. The heads of branches and tags are roots as well, except in versions that only a ref keeps.

Retention: a version expires only if neither its age *nor* the minimum count keeps it; the current version
never expires. The table stays readable as of any time within the kept age, so the newest version older than
that age is kept too: it was current when that age began.

An expired version stays a root of garbage collection until its grace has passed (docs/FORMAT.md,
section 11), and for as long as a ref names it.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyroaring import BitMap, FrozenBitMap

from inlay.format.keys import (
    ObjectKind,
    archive_version,
    classify,
    is_committed_elsewhere,
    segment_key,
)
from inlay.format.snapshot import Segment, Snapshot
from inlay.plan.metadata.state import Contents, Nodes, under
from inlay.plan.refs import held_versions
from inlay.record import Mutable, Record, field, replace


class ExpiryPlan(Record):
    """Versions `first` … `through` expire, except `held`, which a ref keeps readable."""

    first: int
    through: int
    held: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return self.through - self.first + 1 - len(self.held)


def plan_expiry(
    snapshot: Snapshot, *, newest_old: int | None, min_versions: int
) -> ExpiryPlan | None:
    """What to expire, or None.

    `newest_old` is the newest version committed before the age to keep, None when all are younger.
    `min_versions` counts the current version.
    """
    if newest_old is None:
        return None
    through = min(newest_old - 1, snapshot.version - max(min_versions, 1))
    first = snapshot.oldest_version
    if through < first:
        return None
    held = {version for version in held_versions(snapshot) if first <= version <= through}
    return ExpiryPlan(first, through, tuple(sorted(held)))


def expired_before(snapshot: Snapshot, *, before_us: int) -> int:
    """The newest version that expired before `before_us`: its objects, and those of all earlier versions,
    are kept by refs only. 0 when there is none."""
    return max(
        (e.through for e in snapshot.expired if e.time_us is not None and e.time_us < before_us),
        default=0,
    )


# How far an object's LastModified may be behind the `Date` of the answers before its upload. AWS documents
# nothing; both come from hosts whose clocks agree within milliseconds, and signatures are refused beyond 15
# minutes. A minute is far above anything observed, and delays the deletion of orphans by a minute.
CLOCK_MARGIN_SECONDS = 60.0
# How long decisions of transactions are kept. Who makes one that late is told that nothing was committed.
DECISIONS_KEPT_US = 24 * 3_600 * 1_000_000

# Names of unknown objects that a result carries; all are counted.
MAX_NAMES = 100


class Reachable(Mutable):
    """What a set of roots needs, added one snapshot at a time.

    Two roots share nearly all of their segments, so a segment is loaded once for all of them: an entry of
    it is needed unless it is dead in every root that refers to the segment.
    """

    keys: set[str] = field(default_factory=set)
    files: dict[str, Segment] = field(default_factory=dict)
    markers: dict[str, Segment] = field(default_factory=dict)
    ledger: dict[str, Segment] = field(default_factory=dict)
    nodes: dict[str, Segment] = field(default_factory=dict)
    # Of a node: the set that its leaves belong to.
    _leaves_of: dict[str, dict[str, Segment]] = field(default_factory=dict)
    _dead: dict[str, BitMap] = field(default_factory=dict)

    def add(self, snapshot: Snapshot) -> None:
        self._share(snapshot.files.segments, self.files)
        self._share(snapshot.markers.segments, self.markers)
        # A writer that still plans on an old version reads its ledger, too.
        self._share(snapshot.ledger.records.segments, self.ledger)
        self.keys.update(segment_key(o.id) for o in snapshot.schema_objects)
        self.keys.update(f.key for f in snapshot.files.inline)
        self.keys.update(m.object_key for m in snapshot.markers.inline if m.object_key)

    def open(self, nodes: Nodes) -> None:
        """Adds the leaves of the nodes, once every root has been added."""
        for node in self.nodes.values():
            node = replace(node, dead=FrozenBitMap(self._dead[node.id]))
            self._share(under(node, nodes[node.id]), self._leaves_of[node.id])

    def _share(self, segments: Iterable[Segment], leaves: dict[str, Segment]) -> None:
        for segment in segments:
            if segment.level:
                self.nodes[segment.id] = segment
                self._leaves_of[segment.id] = leaves
            else:
                leaves[segment.id] = segment
            dead = self._dead.get(segment.id)
            if dead is None:
                self._dead[segment.id] = BitMap(segment.dead)
            else:
                dead &= segment.dead

    def live(self, segment: Segment) -> FrozenBitMap:
        """Ordinals of a segment that some root needs."""
        return FrozenBitMap(range(segment.count)) - self._dead[segment.id]

    def resolve(self, contents: Contents) -> frozenset[str]:
        """Every object needed, by its key relative to the table root (adopted files by their URI).
        `contents` must hold every segment of `files` and `markers`, and the nodes have been opened."""
        resolved = set(self.keys)
        segments = (*self.nodes, *self.files, *self.markers, *self.ledger)
        resolved.update(segment_key(i) for i in segments)
        for segment in self.files.values():
            files = contents.files[segment.id]
            resolved.update(files[n].key for n in self.live(segment))
        for segment in self.markers.values():
            markers = contents.markers[segment.id]
            resolved.update(key for n in self.live(segment) if (key := markers[n].object_key))
        return frozenset(resolved)


class Listed(Record):
    """An object as the store's listing shows it, its key relative to the table root."""

    key: str
    size: int
    modified_us: int


class Tally(Record):
    objects: int = 0
    bytes: int = 0


class ListingFacts(Record):
    """What a listing shows about the table besides its garbage: the highest version with an archive (0:
    none), the LastModified of the pointer (0: not seen) and of the newest object; the key of table metadata
    that another catalog has committed here, empty if there is none."""

    newest_archive: int = 0
    pointer_us: int = 0
    newest_us: int = 0
    foreign: str = ""
    # Decisions of transactions (`ops.transaction`), with the LastModified of each.
    decisions: tuple[tuple[str, int], ...] = ()

    def __or__(self, other: ListingFacts) -> ListingFacts:
        return ListingFacts(
            max(self.newest_archive, other.newest_archive),
            max(self.pointer_us, other.pointer_us),
            max(self.newest_us, other.newest_us),
            max(self.foreign, other.foreign),
            (*self.decisions, *other.decisions),
        )


def cutoff_with_margin(boundary_us: int, margin_us: int) -> int:
    """The LastModified below which an object was certainly uploaded before the boundary.

    A writer may commit what it began to upload at a `Date` from the boundary on. LastModified comes from
    another clock, and may be earlier than that `Date` by the margin.
    """
    return max(boundary_us - margin_us, 0)


def clock_fault(
    seen: ListingFacts, *, committed_us: int, now_us: int | None, margin_us: int
) -> str | None:
    """Evidence that `Date` and LastModified are further apart than the margin, if there is any: the pointer
    was written at `committed_us` or later, and nothing that was listed can be from after `now_us`."""
    second = 1_000_000  # both have a resolution of one second
    if seen.pointer_us and seen.pointer_us + margin_us + second < committed_us:
        behind = (committed_us - seen.pointer_us) / second
        return f"the pointer's LastModified is {behind:.0f} s before the Date of the commit in it"
    if now_us is not None and seen.newest_us > now_us + margin_us + second:
        ahead = (seen.newest_us - now_us) / second
        return f"an object's LastModified is {ahead:.0f} s after the Date of a later answer"
    return None


class GarbagePlan(Record):
    """`doomed` may be deleted, `unknown` is not Inlay's: at most MAX_NAMES names of `unknown_count`.
    `young` counts what is unreachable, but not certainly from before the boundary."""

    doomed: tuple[Listed, ...]
    unknown: tuple[str, ...] = ()
    unknown_count: int = 0
    young: int = 0
    seen: ListingFacts = field(default_factory=ListingFacts)


def tallied(items: Iterable[Listed]) -> dict[str, Tally]:
    """How many there are of each kind of object."""
    tallies: dict[str, Tally] = {}
    for item in items:
        kind = classify(item.key).value
        before = tallies.get(kind, Tally())
        tallies[kind] = Tally(before.objects + 1, before.bytes + item.size)
    return tallies


def plan_garbage(
    objects: Iterable[Listed],
    needed: frozenset[str],
    *,
    before_us: int,
    gone_through: int,
    kept_versions: frozenset[int],
) -> GarbagePlan:
    """The objects to delete.

    Archives of versions up to `gone_through` are deleted, except `kept_versions` (refs). Only objects
    modified before `before_us` (`cutoff_with_margin` of the boundary) are deleted: strictly before, because
    S3 truncates to seconds.
    """
    doomed: list[Listed] = []
    unknown: list[str] = []
    unknown_count = young = newest_archive = pointer_us = newest_us = 0
    foreign = ""
    decisions: list[tuple[str, int]] = []
    for item in objects:
        newest_us = max(newest_us, item.modified_us)
        match classify(item.key):
            case ObjectKind.POINTER:
                pointer_us = item.modified_us
                continue
            case ObjectKind.RECEIPT | ObjectKind.MEMORY:
                continue  # the memory is a table, and its garbage is its own
            case ObjectKind.DECISION:
                decisions.append((item.key, item.modified_us))  # other tables may need it
                continue
            case ObjectKind.UNKNOWN:
                unknown_count += 1
                if is_committed_elsewhere(item.key):
                    foreign = max(foreign, item.key)
                if len(unknown) < MAX_NAMES:
                    unknown.append(item.key)
                continue
            case ObjectKind.ARCHIVE:
                version = archive_version(item.key)
                newest_archive = max(newest_archive, version or 0)
                is_needed = version is None or version > gone_through or version in kept_versions
            case ObjectKind.SEGMENT | ObjectKind.DATA | ObjectKind.TOMBSTONE | ObjectKind.PUBLISHED:
                is_needed = item.key in needed
        if is_needed:
            continue
        if item.modified_us < before_us:
            doomed.append(item)
        else:
            young += 1
    seen = ListingFacts(newest_archive, pointer_us, newest_us, foreign, tuple(decisions))
    return GarbagePlan(tuple(doomed), tuple(unknown), unknown_count, young, seen)

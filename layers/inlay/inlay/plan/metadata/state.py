"""State: a snapshot together with the content of the segments loaded so far, its ledger, its tree.

Promise: entries read through here are *resolved* (sequence and time filled in from the segment's reference)
and live (dead ordinals left out), in commit order: segments oldest first, then inline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

from pyroaring import BitMap, FrozenBitMap

from inlay.format.entry import BODY_BYTES, DataFile, LedgerRecord, Marker
from inlay.format.file_entries import FileEntries
from inlay.format.properties import LEDGER_SALT, Properties
from inlay.format.schema import Primitive, Schema
from inlay.format.snapshot import Content, HeadObject, Segment, Snapshot, Totals
from inlay.plan.answers import AlreadyApplied, NeedSegments, RequestRefused, SegmentKind
from inlay.record import Record, field, replace

if TYPE_CHECKING:
    from inlay.plan.change import Request


def choose_stats_columns(
    schema: Schema,
    primary_key: tuple[int, ...],
    sort_by: tuple[int, ...],
    properties: Mapping[str, str],
    *,
    partitioned_by: tuple[int, ...] = (),
) -> tuple[int, ...]:
    """Field ids: the sort columns, the key, the sources of partitions, then the first columns, up to
    `stats.columns`.

    Those with statistics in the entries of files are the same for the same schema, key, order and
    properties, at creation and at every change of the property.
    """
    plain = (f.id for f in schema.fields if isinstance(f.type, Primitive))
    columns = [*sort_by, *primary_key, *partitioned_by, *plain]
    return tuple(dict.fromkeys(columns))[: Properties(properties).number("stats.columns")]


# How far a sender's clock may run ahead of the store's before a ledger lookup by time misses.
CLOCK_SKEW_US = 15 * 60 * 1_000_000
DAY_US = 86_400_000_000


def look_up(
    state: State, request: Request | None, events: Sequence[Request] = ()
) -> frozenset[bytes] | NeedSegments | RequestRefused | AlreadyApplied:
    """Ids of the change's events that were applied before, or why there is nothing left to do.

    No event and no request id is applied twice within the ledger's horizon, and none from before the
    horizon is applied at all. This is checked again on every rebase: otherwise two functions with the same
    event would both append.
    """
    requests = [r for r in (request, *events) if r is not None]
    if not requests:
        return frozenset()
    ledger = state.snapshot.ledger
    too_old = [r for r in requests if r.time_us is not None and r.time_us < ledger.horizon_us]
    opened = _opened(state, requests)
    missing = [s for s in opened.leaves if s.id not in state.contents.ledger]
    if opened.closed or missing:
        return NeedSegments(ledger=(*opened.closed, *missing))
    applied = _applied(state, opened.leaves, {r.id for r in requests})
    # Checked first: what is in the ledger was applied, however old it is.
    if request is not None and request.id in applied:
        before = applied[request.id]
        if not _is_same_content(state.snapshot, before, request):
            return RequestRefused(
                f"request id {request.text!r} was used before, at version "
                f"{before.version}, with another content",
                "reused",
            )
        return AlreadyApplied(before.version)
    if any(r.id not in applied for r in too_old):
        return RequestRefused(
            "the request is older than this table's ledger reaches back", "too_old"
        )
    duplicates = frozenset(r.id for r in events if r.id in applied)
    if events and len(duplicates) == len({r.id for r in events}):
        newest = max((v for i in duplicates if (v := applied[i].version)), default=None)
        return AlreadyApplied(newest, duplicates)
    return duplicates


class LedgerSalt(Record):
    """The salt of request digests, from version `since` on. Digests of versions before `plain_before` have
    none (a library without salts wrote them); those in between had one that is lost, and cannot be compared
    with anything.

    The content of a request may be personal data, and a plain digest of it can be found by trial: a
    telephone number in seconds. So its digest is salted, and an erasure replaces the salt when it forgets
    its predicate. The old salt goes with the versions that had it; digests made with it are then as good as
    random, whichever segment they are in, and no ledger needs to be rewritten.
    """

    text: str
    since: int
    plain_before: int

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> LedgerSalt | None:
        salt = properties.get(LEDGER_SALT)
        if salt is None:
            return None
        text, since, plain_before = salt.split(":")
        return cls(text, int(since), int(plain_before))

    @property
    def as_property(self) -> str:
        return f"{self.text}:{self.since}:{self.plain_before}"

    def digest(self, body: bytes) -> bytes:
        return blake2b(body, digest_size=BODY_BYTES, key=self.text.encode("ascii")).digest()


def _is_same_content(snapshot: Snapshot, before: LedgerRecord, request: Request) -> bool:
    """Whether a request with an id applied before asks for the same, as far as that is known."""
    if before.body is None or request.body is None:
        return True
    salt, version = LedgerSalt.of(snapshot.properties), before.version or 0
    if salt is None or version < salt.plain_before:
        return before.body == request.body
    if version < salt.since:
        return True
    return before.body in (salt.digest(request.body), request.body)


def forgotten_before(snapshot: Snapshot) -> int:
    """Records from before this time need not be kept. A request made at or after the horizon set by
    `horizon` was applied later than this, even if its sender's clock runs ahead."""
    return _cutoff(snapshot) - CLOCK_SKEW_US


def horizon(snapshot: Snapshot) -> int:
    """Requests made before this time are refused, once something may have been forgotten: it follows the
    clock from the first record that is old enough, however large the segment it is in."""
    ledger = snapshot.ledger
    cutoff = _cutoff(snapshot)
    begins = min(
        (s.first_us for s in ledger.records.segments if s.first_us is not None), default=None
    )
    is_due = begins is not None and begins < cutoff
    return max(ledger.horizon_us, cutoff) if is_due else ledger.horizon_us


def _cutoff(snapshot: Snapshot) -> int:
    days = snapshot.settings.number("ledger.days")
    return snapshot.commit.time_us - days * DAY_US


def _opened(state: State, requests: Sequence[Request]) -> Opened:
    """The leaves that may hold one of these requests: a request is applied after it was made."""
    records, nodes = state.snapshot.ledger.records.segments, state.contents.nodes
    times = [r.time_us for r in requests if r.time_us is not None and not r.may_be_older]
    if len(times) < len(requests):
        return open_tree(records, nodes)
    since_us = min(times) - CLOCK_SKEW_US
    return open_tree(
        records, nodes, lambda leaves: [s.last_us is None or s.last_us >= since_us for s in leaves]
    )


def _applied(state: State, leaves: Sequence[Segment], ids: set[bytes]) -> dict[bytes, LedgerRecord]:
    records = {r.id: r for r in state.snapshot.ledger.records.inline if r.id in ids}
    for leaf in leaves:
        entries = state.contents.ledger[leaf.id]
        records |= {r.id: resolved_record(leaf, r) for r in entries if r.id in ids}
    return records


Nodes = Mapping[str, tuple[Segment, ...]]
SegmentFilter = Callable[[Sequence[Segment]], Sequence[bool]]


class Opened(Record):
    """Leaves in the order of the tier, nodes that are not loaded, and the number of live entries under what
    was not selected."""

    leaves: tuple[Segment, ...]
    closed: tuple[Segment, ...]
    left_out: int = 0


def open_tree(
    segments: Sequence[Segment], nodes: Nodes, select: SegmentFilter | None = None
) -> Opened:
    """The leaves under these references. `select` chooses nodes and leaves.

    Nodes hold references to leaves. Leaves alone are given, each with all its dead entries, whichever
    reference records them; entries marked dead in a leaf are recorded in the reference of the snapshot that
    leads to it. So no node is rewritten because an entry died.
    """
    leaves: list[Segment] = []
    closed: list[Segment] = []
    left_out = 0

    def keep(below: Sequence[Segment]) -> Iterator[Segment]:
        nonlocal left_out
        for segment, is_selected in zip(
            below, select(below) if select else [True] * len(below), strict=True
        ):
            if is_selected:
                yield segment
            else:
                left_out += segment.live

    for top in keep(segments):
        if top.level == 0:
            leaves.append(top)
        elif top.id in nodes:
            leaves.extend(keep(list(under(top, nodes[top.id]))))
        else:
            closed.append(top)
    return Opened(tuple(leaves), tuple(closed), left_out)


def under(node: Segment, leaves: Iterable[Segment]) -> Iterator[Segment]:
    """The leaves of a node that have a live entry, with the entries that died since it was written."""
    for offset, leaf in _with_offsets(leaves):
        ordinals = FrozenBitMap(range(offset, offset + leaf.count))
        died = node.dead & ordinals if node.dead else node.dead
        if died:
            leaf = replace(leaf, dead=leaf.dead | died.shift(-offset))
        if leaf.live:
            yield leaf


def mark_dead(
    segments: Iterable[Segment], nodes: Nodes, dead: Mapping[str, Iterable[int]]
) -> tuple[Segment, ...]:
    """The references with more ordinals dead (by leaf id), without those that have no live entry left."""
    marked: list[Segment] = []
    for top in segments:
        more = BitMap(dead.get(top.id, ()))
        for offset, leaf in _with_offsets(nodes.get(top.id, ()) if dead else ()):
            if leaf.id in dead:
                more |= BitMap(dead[leaf.id]).shift(offset)
        if more:
            all_dead = BitMap(top.dead) | more
            all_dead.run_optimize()
            top = replace(top, dead=FrozenBitMap(all_dead))
        if top.live > 0:
            marked.append(top)
    return tuple(marked)


def _with_offsets(leaves: Iterable[Segment]) -> Iterator[tuple[int, Segment]]:
    offset = 0
    for leaf in leaves:
        yield offset, leaf
        offset += leaf.count


T = TypeVar("T")
E = TypeVar("E", bound=DataFile | Marker)


class Contents(Record):
    """Decoded leaves by segment id, and nodes. They never change, so this may be shared and kept."""

    files: Mapping[str, Sequence[DataFile]] = field(default_factory=dict)
    markers: Mapping[str, tuple[Marker, ...]] = field(default_factory=dict)
    ledger: Mapping[str, tuple[LedgerRecord, ...]] = field(default_factory=dict)
    nodes: Nodes = field(default_factory=dict)


class State(Record):
    snapshot: Snapshot
    contents: Contents = field(default_factory=Contents)

    def open_files(self, select: SegmentFilter | None = None) -> Opened:
        return open_tree(self.snapshot.files.segments, self.contents.nodes, select)

    def open_markers(self, select: SegmentFilter | None = None) -> Opened:
        return open_tree(self.snapshot.markers.segments, self.contents.nodes, select)

    def missing_files(self, select: SegmentFilter | None = None) -> tuple[Segment, ...]:
        """Nodes and leaves of file entries that are selected and not loaded yet. Loading nodes may add
        more."""
        return _missing(self.open_files(select), self.contents.files)

    def missing_markers(self, select: SegmentFilter | None = None) -> tuple[Segment, ...]:
        return _missing(self.open_markers(select), self.contents.markers)

    def missing_records(self) -> tuple[Segment, ...]:
        opened = open_tree(self.snapshot.ledger.records.segments, self.contents.nodes)
        return _missing(opened, self.contents.ledger)

    def files(self) -> Iterator[DataFile]:
        """Every live file; all segments must be loaded."""
        return self._all(self.missing_files(), self.loaded_files())

    def markers(self) -> Iterator[Marker]:
        """Every live marker; all segments must be loaded. A marker of a file may outlive its file."""
        return self._all(self.missing_markers(), self.loaded_markers())

    def loaded_files(self) -> Iterator[DataFile]:
        """The live files of the loaded leaves, and the inline ones."""
        for leaf in self.open_files().leaves:
            for _, entry in live_entries(leaf, self.contents.files.get(leaf.id, ())):
                yield entry
        yield from self.snapshot.files.inline

    def loaded_file_keys(self) -> set[str]:
        """Those of `loaded_files`."""
        loaded = {f.key for f in self.snapshot.files.inline}
        for leaf in self.open_files().leaves:
            keys = _column(self.contents.files.get(leaf.id, ()), "key")
            loaded.update(key for n, key in enumerate(keys) if n not in leaf.dead)
        return loaded

    def loaded_markers(self) -> Iterator[Marker]:
        for leaf in self.open_markers().leaves:
            for _, entry in live_entries(leaf, self.contents.markers.get(leaf.id, ())):
                yield entry
        yield from self.snapshot.markers.inline

    @staticmethod
    def _all(missing: tuple[Segment, ...], entries: Iterator[T]) -> Iterator[T]:
        if missing:
            raise LookupError(f"{len(missing)} segments of this state are not loaded")
        return entries


def _missing(opened: Opened, loaded: Mapping[str, object]) -> tuple[Segment, ...]:
    return (*opened.closed, *(leaf for leaf in opened.leaves if leaf.id not in loaded))


def live_entries(segment: Segment, entries: Sequence[E]) -> Iterator[tuple[int, E]]:
    """(ordinal, entry) of the live entries of a segment, sequences filled in."""
    sequence = segment.sequence
    for ordinal in range(len(entries)):
        if ordinal in segment.dead:
            continue
        if isinstance(entries, FileEntries):
            yield ordinal, entries.resolved(ordinal, sequence)  # type: ignore[misc]  # then E is DataFile
            continue
        entry = entries[ordinal]
        known = entry.sequence is not None
        yield ordinal, entry if known else replace(entry, sequence=sequence)


def resolved_record(leaf: Segment, record: LedgerRecord) -> LedgerRecord:
    """With the version and time it takes from its leaf."""
    if record.version is not None:
        return record
    return replace(record, version=leaf.sequence, time_us=leaf.last_us)


def ledger_records(leaf: Segment, entries: tuple[LedgerRecord, ...]) -> Iterator[LedgerRecord]:
    return (resolved_record(leaf, entry) for entry in entries)


def count_totals(files: Iterable[DataFile], markers: Iterable[Marker]) -> Totals:
    entries = list(files)
    return Totals(
        files=len(entries),
        rows=sum(f.rows for f in entries),
        bytes=sum(f.size for f in entries),
        markers=sum(1 for _ in markers),
    )


def segment_fault(
    table: Snapshot, kind: SegmentKind, segment: Segment, entries: Sequence[Any], size: int
) -> str:
    """What contradicts the reference to a segment; empty when nothing does.

    Objects are checked against their references: a segment, head or archive that was replaced by another,
    or written by hand, is detected as far as its reference describes it: its size and sums, and the schemas
    and specs that its entries name. A digest inside the object cannot show this: it fits the wrong object,
    too.
    """
    held = sum(leaf.count for leaf in entries) if kind == "nodes" else len(entries)
    if held != segment.count:
        return f"holds {held} entries, its reference says {segment.count}"
    if size != segment.size:
        return f"has {size} bytes, its reference says {segment.size}"
    if kind == "nodes" and any(leaf.level >= segment.level for leaf in entries):
        return "refers to nodes like itself"
    if kind == "files":
        sums = sum(_column(entries, "rows")), sum(_column(entries, "size"))
    elif kind == "nodes":
        sums = sum(s.rows for s in entries), sum(s.bytes for s in entries)
    else:
        sums = segment.rows, segment.bytes
    if sums != (segment.rows, segment.bytes):
        return f"holds {sums[0]} rows in {sums[1]} bytes, its reference says otherwise"
    return _unknown(table, entries) if kind == "files" else ""


def head_fault(table: Snapshot, head: HeadObject, content: Content, size: int) -> str:
    """What contradicts the reference to the head of a branch or tag."""
    if size != head.size:
        return f"has {size} bytes, its reference says {head.size}"
    if content.version > table.version:
        return f"is of version {content.version}, and the table at {table.version}"
    if all(s.id != content.schema_id for s in table.schemas):
        return f"names schema {content.schema_id}, which the table does not have"
    if all(s.id != content.spec_id for s in table.specs):
        return f"names partition spec {content.spec_id}, which the table does not have"
    return _unknown(table, content.files.inline)


def _column(entries: Sequence[DataFile], name: str) -> Sequence[Any]:
    if isinstance(entries, FileEntries):
        return entries.column(name)
    return [getattr(entry, name) for entry in entries]


def _unknown(table: Snapshot, entries: Sequence[DataFile]) -> str:
    schemas, specs = {s.id for s in table.schemas}, {s.id for s in table.specs}
    if isinstance(entries, FileEntries):
        ids = set(entries.column("schema")), {spec or 0 for spec in entries.column("spec")}
        if ids[0] <= schemas and ids[1] <= specs:
            return ""
    for entry in entries:
        if entry.schema_id not in schemas:
            return f"names schema {entry.schema_id} for {entry.key}, which the table does not have"
        if entry.spec_id not in specs:
            return f"names spec {entry.spec_id} for {entry.key}, which the table does not have"
    return ""

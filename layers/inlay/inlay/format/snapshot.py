"""A snapshot: the whole state of a table at one version, with what a branch has of its own.

Promise: a snapshot is a frozen value. With the immutable segments it refers to, it states everything about
one version: which files are live, which deletes apply to them, which requests were already applied, and how
old an uploaded object may be to be committed. The pointer's body *is* a snapshot (docs/FORMAT.md,
section 5).

Entries are in two tiers: the newest *inline*, older ones in *segments*. A segment never changes; a bitmap
of ordinals in its reference marks the entries that are no longer live.

A snapshot is one content, which each branch has of its own, and what belongs to the table whatever the
branch (version, schemas, ledger, refs, erasures, boundary, …). The pointer holds main's content; a branch
that was written to has its content in an immutable *head*. `with_content` combines the two into a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

from pyroaring import FrozenBitMap

from inlay.errors import InvalidRequest, a_type
from inlay.format.entry import ColumnStats, DataFile, LedgerRecord, Marker
from inlay.format.predicate import Predicate
from inlay.format.properties import COMMIT_NOTE, NOTED_VERSIONS, Properties
from inlay.format.schema import Field, Schema
from inlay.record import Record, field, replace

# Frozen: version 1 stays readable for ever (tests/golden/v1). Version 0 was the format in development.
FORMAT_VERSION = 1
# That of a snapshot whose files leave columns to their partitions (docs/FORMAT.md, section 15).
PARTITION_VALUES = 2
# Size of a pointer at which inline entries roll into a segment. Every commit writes the pointer once and
# archives the one before: twice this is the fixed metadata cost of a commit.
POINTER_TARGET_BYTES = 4_600
# Entries of one leaf. 1,024 data files with ten columns of statistics are 50 to 110 KB.
SEGMENT_MAX_ENTRIES = 1_024
# Markers of one leaf, some 25 bytes each: a scan reads every leaf of markers, so there should be few.
MARKERS_MAX_ENTRIES = 4_096
# Records of one leaf of the ledger, 12 to 16 bytes each.
LEDGER_MAX_RECORDS = 16_384
# References of one node, 50 to 80 bytes each: a million files have one or two nodes.
NODE_MAX_LEAVES = 1_024
# Bytes of schemas, compressed, that a pointer carries; beyond, they are stored separately.
SCHEMAS_INLINE_BYTES = 2_048
# Schema objects that a snapshot refers to; beyond, all schemas are merged into one object.
MAX_SCHEMA_OBJECTS = 8
# Tags and branches, in the pointer (docs/FORMAT.md, section 5).
MAX_REFS = 64
# Points of the time index in each block of versions: each hop of an as-of read finds one more digit of the
# version, in this base, so any of a million versions is found in six requests.
TIME_INDEX_FANOUT = 16

NO_DEAD = FrozenBitMap()

T = TypeVar("T")


class Segment(Record, kw_only=True):
    """A reference to an immutable segment; `dead` are the ordinals of its entries that are no longer
    live.

    At `level` 0 it is a leaf of `count` entries. At level 1 it is a node of references to leaves: `count`
    and `dead` then cover all entries under it, one leaf after the other; `settled` of them are dead
    according to the references in the node itself.

    `sequence` is the sequence of every entry without one of its own, and for ledger records the version
    that applied them; a node has the greatest of its leaves. This lets a bulk commit write its leaves
    before it knows its version, and a rebase reuse them. `first_us` … `last_us` is the span of commit
    times of ledger records. `stats` bounds the columns of all entries, so that a reader can skip the
    segment.
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
    schema_id: int = 0  # the schema whose types `stats` has
    level: int = 0
    settled: int = 0

    @property
    def live(self) -> int:
        return self.count - self.settled - len(self.dead)


class Tier(Record, Generic[T]):
    """Entries of one kind: segments from oldest to newest, then the newest entries inline."""

    segments: tuple[Segment, ...] = ()
    inline: tuple[T, ...] = ()


class Ledger(Record, kw_only=True):
    """What has been applied. Nothing older than `horizon_us` is remembered: an older request is refused,
    because it is no longer known whether it was applied."""

    records: Tier[LedgerRecord] = field(default_factory=Tier)
    horizon_us: int = 0
    # Streaming queries never expire: query id → last batch id.
    streams: Mapping[str, int] = field(default_factory=dict)


class Commit(Record, kw_only=True):
    """Who made a version. `id` is unique for ever: a writer recognises its own commit by it."""

    id: str
    operation: str
    time_us: int = 0
    request: str | None = None
    branch: str | None = None  # the branch whose content it changed (None: main)
    added_files: int = 0
    removed_files: int = 0
    added_rows: int | None = 0
    removed_rows: int | None = 0
    added_bytes: int = 0
    added_markers: int = 0
    removed_markers: int = 0


class Boundary(Record):
    """Objects whose upload started before `time_us` (the store's clock) may be deleted when unreachable,
    so no commit may add them. Set by GC and erasure at `version`; None: see `with_open_times`."""

    version: int = 0
    time_us: int | None = 0


class Expiration(Record):
    """Versions up to `through` were expired at `time_us`; they are GC roots until the grace has passed.
    None: see `with_open_times`."""

    through: int
    time_us: int | None


class HeadObject(Record):
    """An immutable object that holds the content of a ref (`format.snapshot`)."""

    id: str
    size: int


RefKind = Literal["tag", "branch"]


class Ref(Record, kw_only=True):
    """A tag or a branch: a name for a content, protected from expiry. `hold` is a legal hold.

    The content is main's at `version` or, with a `head`, that of the commit `version` as stored in the
    head. `base` is the version of main that a branch was created from or last merged with; 0 if no
    version can be compared with. `since` is the version that gave the ref content unrelated to the
    content before: what was planned on the latter is planned again.
    """

    kind: RefKind
    version: int
    hold: bool = False
    head: HeadObject | None = None
    base: int = 0
    since: int = 0

    @property
    def is_branch(self) -> bool:
        """Whether it takes commits; a tag stays what it is."""
        match self.kind:
            case "branch":
                return True
            case "tag":
                return False


Phase = Literal["rewrite", "purge", "sweep"]


class Erasure(Record, kw_only=True):
    """An erasure in progress (docs/FORMAT.md, "Erasure"). `phase`: see `plan.erasure`.

    `predicate` is itself personal data: once no file holds a row it selects, it is None, and `digest`,
    its HMAC, replaces it in the receipt. `objects` were rewritten, `rows` removed, `deleted` objects
    deleted. `phase_version` is the version that entered the phase; `opened_us` and `swept_us` are the
    times of the commits that opened it and that recorded the first sweep (0 while they are being
    committed).
    """

    id: str
    predicate: Predicate | None
    text: str
    phase: Phase
    opened_version: int
    opened_us: int
    swept_us: int | None = None
    objects: int = 0
    rows: int = 0
    deleted: int = 0
    digest: str | None = None
    phase_version: int = 0


class SchemaObject(Record):
    """Schemas stored separately, so that the pointer need not carry them at every commit: those with
    `ids`, in the immutable object `id` of `size` bytes."""

    id: str
    size: int
    ids: tuple[int, ...]


class PartitionField(Record):
    """One partition value: `transform` of column `source`; specs stay with the table for ever."""

    source: int
    transform: str
    name: str


class PartitionSpec(Record):
    id: int
    fields: tuple[PartitionField, ...] = ()


class Totals(Record):
    """Sums over all live entries; `rows` are physical rows, deleted ones included."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    markers: int = 0

    def __add__(self, added: Totals) -> Totals:
        return Totals(
            self.files + added.files,
            self.rows + added.rows,
            self.bytes + added.bytes,
            self.markers + added.markers,
        )

    def __neg__(self) -> Totals:
        return Totals(-self.files, -self.rows, -self.bytes, -self.markers)


UNPARTITIONED = PartitionSpec(0)


class Content(Record, kw_only=True):
    """Which rows exist and how they are stored. `version` is the commit that made this content; `changed`
    and `replaced` are the versions that last changed its rows or columns, and that last replaced it as a
    whole."""

    version: int
    schema_id: int
    spec_id: int = 0
    primary_key: tuple[int, ...] = ()
    sort_by: tuple[int, ...] = ()
    stats_columns: tuple[int, ...] = ()
    files: Tier[DataFile] = field(default_factory=Tier)
    markers: Tier[Marker] = field(default_factory=Tier)
    totals: Totals = field(default_factory=Totals)
    changed: int = 0
    replaced: int = 0


class Snapshot(Content, kw_only=True):
    """One version of a table, whole: a content, and what the table has beside it."""

    table_id: str
    commit: Commit
    schemas: tuple[Schema, ...]
    last_field_id: int
    schema_objects: tuple[SchemaObject, ...] = ()  # where the schemas are that are not in `schemas`
    specs: tuple[PartitionSpec, ...] = (UNPARTITIONED,)
    properties: Mapping[str, str] = field(default_factory=dict)
    refs: Mapping[str, Ref] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    erasures: tuple[Erasure, ...] = ()
    boundary: Boundary = field(default_factory=Boundary)
    expired: tuple[Expiration, ...] = ()
    time_index: tuple[tuple[int, int], ...] = ()  # (version, commit time), ascending, sparse

    @property
    def settings(self) -> Properties:
        """The table's properties, typed, with their defaults."""
        return Properties(self.properties)

    @property
    def spec(self) -> PartitionSpec:
        """How new files are partitioned."""
        return next(spec for spec in self.specs if spec.id == self.spec_id)

    @property
    def schema(self) -> Schema:
        return self.schema_by_id(self.schema_id)

    def schema_by_id(self, schema_id: int) -> Schema:
        return next(s for s in self.schemas if s.id == schema_id)

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns of the primary key."""
        fields = self.schema.fields_by_id
        return tuple(fields[field_id].name for field_id in self.primary_key)

    def column_named(self, text: str) -> Field | None:
        """The column that a property names: by its name, else by one that it had before."""
        for schema in (self.schema, *reversed(self.schemas)):
            field = schema.column_named(text)
            if field is not None and (now := self.schema.by_id(field.id)) is not None:
                return now
        return None

    @property
    def separate_schemas(self) -> frozenset[int]:
        return frozenset(i for stored in self.schema_objects for i in stored.ids)

    @property
    def oldest_version(self) -> int:
        """The oldest version that can still be opened (refs may keep older ones)."""
        return max((e.through + 1 for e in self.expired), default=1)


def with_open_times(snapshot: Snapshot, seen_us: int) -> Snapshot:
    """The snapshot, read at `seen_us` by the store's clock, with its open times filled in.

    A commit cannot state its own time as "from now on": a writer may stall between choosing a time and
    landing the swap, for longer than any grace period, and the statement would then have been true for
    days before anyone could read it. So a commit leaves such times open; a reader knows a time at which
    the commit had certainly landed, and the next commit records that time.
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
    """The points to keep: all of the block of 16 versions that contains `newest`, every 16th of its block
    of 256, and so on. From the end of any block, one hop finds the sixteenth of it that contains a time.

    >>> [v for v, _ in thin_time_index(tuple((v, v) for v in range(1, 564)), 563)]
    [256, 512, 528, 544, 560, 561, 562, 563]
    """

    def kept(version: int) -> bool:
        step = 1
        while version // (step * TIME_INDEX_FANOUT) != newest // (step * TIME_INDEX_FANOUT):
            step *= TIME_INDEX_FANOUT
        return version % step == 0

    return tuple(point for point in sorted(set(points)) if kept(point[0]))


def members_of(content: Content) -> dict[str, Any]:
    """What a content consists of, by name; of a snapshot nothing else."""
    return {name: getattr(content, name) for name in Content.__struct_fields__}


def content_of(snapshot: Snapshot) -> Content:
    """The content of a snapshot, without the table."""
    return Content(**members_of(snapshot))


def with_content(table: Snapshot, content: Content) -> Snapshot:
    """`table` with `content` in place of its own, at the version that it has."""
    return replace(table, **{**members_of(content), "version": table.version})


# Of a note as JSON, in UTF-8. It is written twice, with the pointer and in its archive.
MAX_NOTE_BYTES = 2_048
# As many as a publication shows: publishers are rarely further behind.
MAX_NOTED_VERSIONS = 8


class Note(Record):
    """A message and metadata that the author attaches to a commit. It is part of its version: committed by
    the same swap or not at all, read with the version at no cost, and gone when the version expires. It is
    a property of the snapshot (docs/FORMAT.md, section 5) that names its version, so a library
    without notes may carry it on: it stays the note of that version only."""

    message: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    is_sought: bool = False  # later versions say that this one has a note (`noted_versions`)


def make_note(message: object = None, metadata: object = None) -> Note | None:
    """A note of what a caller gives; None where that is nothing. Values are kept as text. Raises
    `InvalidRequest`."""
    if message is not None and not isinstance(message, str):
        raise InvalidRequest(f"a message is text, not {a_type(message)}")
    note = Note(message or None, _texts(metadata))
    if note == Note():
        return None
    try:
        size = len(_encoded(note, 0).encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidRequest("a message cannot contain an unpaired surrogate") from None
    if size > MAX_NOTE_BYTES:
        raise InvalidRequest(
            f"message and metadata of a commit take {size} bytes, more than {MAX_NOTE_BYTES}",
            next_step="Store the text elsewhere, and its location here",
        )
    return note


def _texts(metadata: object) -> dict[str, str]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidRequest(
            f"metadata cannot be {a_type(metadata)}",
            next_step='Give names and texts: {"job": "17"}',
        )
    for name, value in metadata.items():
        if not isinstance(name, str) or not name or not isinstance(value, str | int | float):
            raise InvalidRequest(
                f"metadata {str(name)[:50]!r} is not a name with a text",
                next_step='Give names and texts: {"job": "17"}',
            )
    return {name: str(value) for name, value in metadata.items()}


def _encoded(note: Note, version: int) -> str:
    body: dict[str, Any] = {"version": version}
    if note.message is not None:
        body["message"] = note.message
    if note.metadata:
        body["metadata"] = dict(note.metadata)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def with_note(properties: Mapping[str, str], note: Note | None, version: int) -> Mapping[str, str]:
    """The properties of `version` with this note, and with none of an earlier version."""
    if note is not None:
        noted = {**properties, COMMIT_NOTE: _encoded(note, version)}
        if note.is_sought:
            before = properties.get(NOTED_VERSIONS, "").split()
            noted[NOTED_VERSIONS] = " ".join([*before, str(version)][-MAX_NOTED_VERSIONS:])
        return noted
    if COMMIT_NOTE not in properties:
        return properties
    return {name: value for name, value in properties.items() if name != COMMIT_NOTE}


def noted_versions(snapshot: Snapshot) -> tuple[int, ...]:
    """The last versions with a note that `is_sought`, the oldest first."""
    listed = snapshot.properties.get(NOTED_VERSIONS, "").split()
    return tuple(int(text) for text in listed if text.isascii() and text.isdecimal())


def note_of(snapshot: Snapshot) -> Note:
    """The note of this very version; an empty one where there is none, or where it cannot be read."""
    try:
        body = json.loads(snapshot.properties.get(COMMIT_NOTE) or "{}")
        if body.get("version") != snapshot.version:
            return Note()
        message, metadata = body.get("message"), body.get("metadata", {})
        texts = {str(name): str(value) for name, value in metadata.items()}
    except (ValueError, AttributeError, RecursionError):
        return Note()
    return Note(message if isinstance(message, str) else None, texts)

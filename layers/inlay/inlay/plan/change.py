"""Changes: what a writer wants, as a value that can be planned again on any base.

Promise: a change holds no state of the base it was first planned on but what it *read*, so a loser of
the race applies the same value to the new base. `plan.commit.apply` decides what becomes of it.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

from inlay.format.content import Content
from inlay.format.entry import DataFile, Marker
from inlay.format.predicate import Predicate
from inlay.format.snapshot import Erasure, PartitionField, Ref, Segment, Snapshot
from inlay.plan.schema_evolution import Evolution
from inlay.plan.surgery.positions import PositionMap

# In a planned ref: the version of the commit that will write it.
THIS_VERSION = -1
# What a segment holds: entries of one tier, or references to such segments.
Kind = Literal["files", "markers", "ledger", "nodes"]

# 96 bits: ten million ids in the ledger collide with a probability of about 1e-15.
IDENTITY_BYTES = 12
BODY_BYTES = 8


@dataclass(frozen=True, slots=True)
class Request:
    """An event or request as the ledger knows it. `time_us` is when it was made, by the clock of
    whoever sent it (S3's eventTime, the queue's sent time); None when unknown."""

    id: bytes
    body: bytes | None = None
    time_us: int | None = None
    text: str = ""

    @staticmethod
    def of(identity: str, *, body: str | None = None, time_us: int | None = None) -> Request:
        return Request(
            id=blake2b(identity.encode("utf-8"), digest_size=IDENTITY_BYTES).digest(),
            body=None
            if body is None
            else blake2b(body.encode("utf-8"), digest_size=BODY_BYTES).digest(),
            time_us=time_us,
            text=identity,
        )

    @property
    def token(self) -> str:
        """The id as text: what a data file's entry says of the event it came from."""
        return urlsafe_b64encode(self.id).decode("ascii")


@dataclass(frozen=True, slots=True)
class Reads:
    """What the rows of this change were derived from: re-validated on every rebase.

    `predicate` selected the rows that were read (None: every row), as of `version`; `files` are the
    keys of the files they were found in.
    """

    predicate: Predicate | None
    version: int
    files: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of maintenance: `inputs` become `outputs`, same rows but for the deletes applied.

    Planned on `version`, having applied every marker that could hit an input then (`applied_all`) or
    only some. With `positions` (1:1 rewrites) row markers that landed meanwhile are remapped; without,
    the unit is given up when an input gained markers. Units fail one by one.
    """

    inputs: tuple[str, ...]
    outputs: tuple[DataFile, ...]
    version: int
    positions: PositionMap | None = None
    applied: frozenset[str] = frozenset()  # ids of the file markers that are now absent rows
    # ... but for rows of an output that were not come to: these name it, and are in the place of those.
    carried: tuple[Marker, ...] = ()
    # (erasure, objects that lost the last row of it here, rows of it that were removed here)
    erased: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaEdit:
    """`evolution` of the schema with id `planned_on`. Its result and the ids of new fields come from the
    base. `proven` are files that were read to see that they fit."""

    planned_on: int
    evolution: Evolution
    proven: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SpecEdit:
    """The table is partitioned by `fields` from now on; planned on the spec with id `planned_on`."""

    planned_on: int
    fields: tuple[PartitionField, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Changes of the snapshot that are about no file or marker."""

    properties: Mapping[str, str | None] = field(default_factory=dict)  # None removes
    schema: SchemaEdit | None = None
    spec: SpecEdit | None = None
    boundary_us: int | None = None
    boundary_at_commit: bool = False  # erasure: whatever began before this commit landed
    expire_through: int | None = None
    forget_expired_before_us: int | None = None
    erasures: tuple[Erasure, ...] = ()  # opened or moved on
    erasure_phase: str | None = None  # ... from this phase; None: they must not be open
    close_erasures: tuple[str, ...] = ()
    searched: frozenset[str] | None = None  # files that the last look opened; None: it was not one
    leaves_deletes: bool = False  # of phase purge: what came since is not waited for any more
    expire_all: bool = False  # every version before this commit; branches lose what they came from
    refs: Mapping[str, Ref | None] = field(default_factory=dict)
    refs_were: Mapping[str, Ref | None] = field(default_factory=dict)  # when this was planned
    content: Content | None = None  # instead of that of the base
    source: Ref | None = (
        None  # what holds `content`, or what new refs are to hold, until the commit
    )
    shape: Content | None = (
        None  # whose columns and layout the content takes over, without its files
    )
    changed_was: int | None = None  # the content's `changed` that this was planned on
    stream: tuple[str, int] | None = None
    recount: bool = False  # repair: totals from the live entries, not from the base's totals

    @property
    def forgotten(self) -> tuple[str, ...]:
        """Erasures whose markers go with this: they have no predicate any more."""
        without = (e.id for e in self.erasures if e.predicate is None)
        return (*without, *self.close_erasures)

    @property
    def ends_rewriting(self) -> bool:
        return any(e.predicate is None for e in self.erasures)


NO_EDIT = Edit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One proposed commit. `uploaded_us` is the store's time *before* the first upload of any object
    this change adds: a commit holding objects from before the GC boundary is stale."""

    operation: str
    uploaded_us: int | None = None
    request: Request | None = None
    events: tuple[Request, ...] = ()
    add: tuple[DataFile, ...] = ()
    add_markers: tuple[Marker, ...] = ()
    remove: tuple[str, ...] = ()  # files whose every live row is deleted by this change
    units: tuple[Unit, ...] = ()
    drop_markers: tuple[str, ...] = ()
    reads: Reads | None = None
    planned: int | None = (
        None  # the version whose rows it was planned on, where `reads` does not say
    )
    deleted_rows: int | None = 0  # exact when the op counted them, None when unknown
    compact_metadata: bool = False
    forget_contents: bool = (
        False  # what the ledger says of requests can be told by no digest any more
    )
    recluster: frozenset[str] = frozenset()  # leaves of file entries to be packed by key
    # Files that were made from other objects: when those were uploaded. An erasure looks at it.
    sources_us: Mapping[str, int] = field(default_factory=dict)
    whole: bool = False  # all units or none: a delete is never half done
    edit: Edit = NO_EDIT


# -- outcomes of `plan.commit.apply` ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A segment to write before the swap; `entries` are what it decodes to."""

    id: str
    data: bytes
    kind: Kind | Literal["schemas"]
    entries: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A snapshot to swap in, once `segments` are written. Its commit time is set by `seal`."""

    snapshot: Snapshot
    segments: tuple[NewSegment, ...]
    duplicates: frozenset[bytes] = frozenset()  # events that had been applied before
    skipped: tuple[Unit, ...] = ()  # units another commit got in the way of


@dataclass(frozen=True, slots=True)
class NeedSegments:
    """The plan depends on the content of these segments: load them and ask again."""

    files: tuple[Segment, ...] = ()
    markers: tuple[Segment, ...] = ()
    ledger: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """Everything asked for was applied before; `version` is where, when the ledger says."""

    version: int | None
    duplicates: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Nothing to commit."""

    skipped: tuple[Unit, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Cannot be applied to this base. `gone` names files that were read or marked and are no longer
    live: whoever planned may plan again for what replaced them."""

    reason: str
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Stale:
    """Holds objects that GC may delete: they must be uploaded anew."""

    boundary_us: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The request can never be applied: too old for the ledger, or its id came with another body."""

    reason: str
    kind: str  # "too_old" | "reused"


Outcome = Proposal | NeedSegments | AlreadyApplied | Unchanged | Conflict | Stale | Refused

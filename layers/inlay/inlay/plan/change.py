"""Changes: what a writer wants to commit, as a value that can be planned again on any base.

Promise: a change holds no state of the base it was first planned on except what it *read*, so a writer that
lost the race applies the same value to the new base. It consists of *requirements*, which
`plan.commit.conflicts` checks against that base, and *updates*, from which `plan.commit.draft` builds the
next snapshot. Both unions are closed: the type checker names every function that a new member concerns.
`plan.commit.apply` decides the outcome.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from inlay.errors import InvalidRequest, a_type
from inlay.format.entry import BODY_BYTES, IDENTITY_BYTES, DataFile, Marker
from inlay.format.predicate import Predicate
from inlay.format.snapshot import (
    Boundary,
    Content,
    Erasure,
    Note,
    PartitionField,
    Ref,
    Snapshot,
)
from inlay.plan.answers import AlreadyApplied as AlreadyApplied
from inlay.plan.answers import Conflict as Conflict
from inlay.plan.answers import NeedSegments as NeedSegments
from inlay.plan.answers import RequestRefused as RequestRefused
from inlay.plan.answers import SegmentKind as SegmentKind
from inlay.plan.positions import PositionMap
from inlay.record import Record, field

if TYPE_CHECKING:
    from inlay.plan.schema_evolution import Evolution


class Request(Record):
    """An event or request as stored in the ledger. `time_us` is when it was made, by the sender's clock
    (S3's eventTime, the queue's sent time); None when unknown. `may_be_older`: that is only when it was
    sent last, so it may have been applied long before."""

    id: bytes
    body: bytes | None = None
    time_us: int | None = None
    text: str = ""
    may_be_older: bool = False

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

    @staticmethod
    def named(identity: str | None, body: str | None) -> Request | None:
        """The request that a caller named, if it named one. Raises `InvalidRequest`."""
        if identity is None:
            return None
        if not isinstance(identity, str):
            raise InvalidRequest(f"a request id is text, not {a_type(identity)}")
        if not identity.strip():
            raise InvalidRequest("a request id cannot be empty")
        try:
            return Request.of(identity, body=body)
        except UnicodeEncodeError:
            raise InvalidRequest("a request id cannot contain an unpaired surrogate") from None

    @property
    def token(self) -> str:
        """The id as text: a data file's entry names the event that added it."""
        return urlsafe_b64encode(self.id).decode("ascii")


# -- requirements: what must hold on the base, whichever it is -------------------------------------


class Reads(Record):
    """The rows that this change was derived from have not changed.

    `predicate` selected the rows that were read (None: every row), as of `version`; `files` are the
    keys of the files they were found in.
    """

    predicate: Predicate | None
    version: int
    files: frozenset[str] = frozenset()


class NoNewColumns(Record):
    """The table has no column, and no field of one, but `fields`: rows that replace others have a value for
    each."""

    fields: frozenset[int]


class SameContent(Record):
    """No restore, merge or fast-forward has replaced the content since `version`."""

    version: int


class SameMain(Record):
    """No row or column of main has changed since `Snapshot.changed` was `changed`."""

    changed: int


class Retained(Record):
    """The content of `source` is kept, by a ref or by its version, until the commit takes it over."""

    source: Ref


class OnlyRefs(Record):
    """There are no other refs, and none is under a legal hold: each was searched for what an erasure
    names."""

    refs: Mapping[str, Ref]


class OnlyHolds(Record):
    """No other ref is under a legal hold: each of these was searched for what an erasure names."""

    refs: Mapping[str, Ref]


class OnlyFiles(Record):
    """No other file is live: each was searched for what an erasure names."""

    keys: frozenset[str]


class AllClean(Record):
    """No file holds rows, or rows hidden by deletes, of the erasures that the change advances."""


class SameProperty(Record):
    """The property is what its new value was made from; None: it is not set."""

    name: str
    value: str | None


class SameSchema(Record):
    """The columns, with their types, are those that the change was planned on."""

    schema_id: int


Requirement = (
    Reads
    | NoNewColumns
    | SameContent
    | SameMain
    | Retained
    | OnlyRefs
    | OnlyHolds
    | OnlyFiles
    | AllClean
    | SameProperty
    | SameSchema
)


# -- updates: what a change does to rows and entries ------------------------------------------------


class Unit(Record):
    """A piece of maintenance: `inputs` become `outputs`, with the same rows except those deletes remove.

    Planned on `version`, having applied every marker that could hit an input then (`applied_all`) or only
    some. With `positions` (1:1 rewrites) row markers committed meanwhile are remapped; without, the unit is
    given up when an input gained markers. Units fail one by one.
    """

    inputs: tuple[str, ...]
    outputs: tuple[DataFile, ...]
    version: int
    positions: PositionMap | None = None
    applied: frozenset[str] = frozenset()  # ids of the file markers that are now absent rows
    # Markers re-created for output rows that the rewrite did not reach; they replace those in `applied`.
    carried: tuple[Marker, ...] = ()
    # (erasure, objects that lost the last row of it here, rows of it that were removed here)
    erased: tuple[tuple[str, int, int], ...] = ()


class AddFiles(Record):
    """`sources_us`: when the objects that files were made from were uploaded, by key of the file, for open
    erasures. `compared`: the columns of other writers' files whose statistics were compared with the rows;
    the key must be among them (`plan.pruning.compared`)."""

    files: tuple[DataFile, ...]
    sources_us: Mapping[str, int] = field(default_factory=dict)
    compared: frozenset[int] = frozenset()


class AddMarkers(Record):
    """A marker of a file requires that the file is live, unless the same change adds it."""

    markers: tuple[Marker, ...]


class RemoveFiles(Record):
    """Files without a live row; they must be live entries."""

    keys: tuple[str, ...]


class ReplaceFiles(Record):
    """`whole`: all units or none, because a delete is never half done."""

    units: tuple[Unit, ...]
    whole: bool = False


class DropMarkers(Record):
    """Markers that hit nothing any more. Those that still may are kept."""

    ids: tuple[str, ...]


class PackMetadata(Record):
    """Leaves that are not full, or hold dead entries, are rewritten."""


class ClusterLeaves(Record):
    """The entries of these leaves of files are packed by key."""

    leaves: frozenset[str]


# Unconditional updates require nothing of the base by themselves.
_UnconditionalOfRows = DropMarkers | PackMetadata | ClusterLeaves
RowUpdate = AddFiles | AddMarkers | RemoveFiles | ReplaceFiles | _UnconditionalOfRows


# -- updates: what a change does to the rest of the snapshot ----------------------------------------


class SetProperties(Record):
    properties: Mapping[str, str | None]  # None removes


class AlterSchema(Record):
    """`evolution` of the schema with id `planned_on`, which must be current. Its result and the ids of new
    fields come from the base. `proven` are files that were read to check that they fit; `compared` are
    those whose statistics of the new key were found true (`plan.pruning.compared`)."""

    planned_on: int
    evolution: Evolution
    proven: frozenset[str] = frozenset()
    compared: frozenset[str] = frozenset()


class SetPartitioning(Record):
    """The table is partitioned by `fields` from now on; `planned_on`, the id of a spec, must be current."""

    planned_on: int
    fields: tuple[PartitionField, ...]


class MoveBoundary(Record):
    """Nothing uploaded before `time_us` may be committed any more; None: before this commit."""

    time_us: int | None


class ExpireThrough(Record):
    version: int


class ExpireAll(Record):
    """Every version before this commit; branches lose their common version."""


class ForgetExpirations(Record):
    """Expirations from before `before_us` are dropped, except what still says which versions are gone."""

    before_us: int


class OpenErasure(Record):
    """No erasure with its id may be open."""

    erasure: Erasure


class HandOver(Record):
    """Another catalog has the table from now on, as it was published in `version`; None: taken back. No
    erasure may be open."""

    version: int | None


class MoveErasures(Record):
    """Erasures advance to the phase that they have here; in the base they must be in `leaves`. The markers
    of one without a predicate are removed."""

    erasures: tuple[Erasure, ...]
    leaves: str


class NextReceipts(Record):
    """The property of the chain of receipts: what it was when the next ones were written, and with them;
    and the boundary that the run had moved before. A run that moved it since may have written over them."""

    was: str | None
    becomes: str
    boundary: Boundary


class CloseErasures(Record):
    """They must be in phase `leaves`, and are removed with their markers; the chain must be as it was."""

    ids: tuple[str, ...]
    leaves: str
    chain: NextReceipts | None = None


class ForgetContents(Record):
    """Digests no longer identify the contents of past requests."""


class SetRefs(Record):
    """Refs by name, None to drop; `were` is their state when this was planned, which must not have
    changed."""

    refs: Mapping[str, Ref | None]
    were: Mapping[str, Ref | None]


class ReplaceContent(Record):
    """`content` in place of the base's."""

    content: Content


class TakeLayout(Record):
    """The columns and the layout of `content`, without its files."""

    content: Content


class AdvanceStream(Record):
    """The last batch of a streaming query that is in the table."""

    query: str
    batch: int


class RecountTotals(Record):
    """Repair: totals from the live entries, not from the base's totals."""


_UnconditionalOfTable = (
    SetProperties
    | MoveBoundary
    | ExpireThrough
    | ExpireAll
    | ForgetExpirations
    | ForgetContents
    | ReplaceContent
    | TakeLayout
    | AdvanceStream
    | RecountTotals
)
TableUpdate = (
    AlterSchema
    | SetPartitioning
    | OpenErasure
    | HandOver
    | MoveErasures
    | CloseErasures
    | SetRefs
    | _UnconditionalOfTable
)
Unconditional = _UnconditionalOfRows | _UnconditionalOfTable
Update = RowUpdate | TableUpdate
U = TypeVar("U", bound=Update)
R = TypeVar("R", bound=Requirement)


class Change(Record, kw_only=True):
    """One proposed commit: who requested it (`request`, `events`), what must hold (`requires`), what it
    does (`updates`, in any order).

    What was asked before is answered, and events that are known are left out; but `objects`, which others
    wrote and this change brings as files, must be new: else it is refused as a whole. The ledger remembers
    all of them.

    `uploaded_us` is the store's time *before* the first upload of any object this change adds: a commit
    with objects from before the GC boundary is stale. `deleted_rows` is the count for the history: exact
    when the operation counted them, None when unknown. `note` is what the author says of the commit.
    """

    operation: str
    updates: tuple[Update, ...] = ()
    requires: tuple[Requirement, ...] = ()
    request: Request | None = None
    events: tuple[Request, ...] = ()
    objects: tuple[Request, ...] = ()
    uploaded_us: int | None = None
    deleted_rows: int | None = 0
    note: Note | None = None

    def of(self, kind: type[U]) -> tuple[U, ...]:
        """The updates of one kind."""
        return tuple(u for u in self.updates if isinstance(u, kind))

    @property
    def added(self) -> tuple[DataFile, ...]:
        return tuple(f for u in self.of(AddFiles) for f in u.files)

    @property
    def markers(self) -> tuple[Marker, ...]:
        return tuple(m for u in self.of(AddMarkers) for m in u.markers)

    @property
    def removed(self) -> tuple[str, ...]:
        return tuple(key for u in self.of(RemoveFiles) for key in u.keys)

    @property
    def units(self) -> tuple[Unit, ...]:
        return tuple(unit for u in self.of(ReplaceFiles) for unit in u.units)

    @property
    def dropped(self) -> frozenset[str]:
        return frozenset(i for u in self.of(DropMarkers) for i in u.ids)

    @property
    def reads(self) -> Reads | None:
        return next((r for r in self.requires if isinstance(r, Reads)), None)

    @property
    def forgotten(self) -> tuple[str, ...]:
        """Erasures without a predicate, whose markers are removed by this change."""
        moved = (e for u in self.of(MoveErasures) for e in u.erasures)
        closed = (i for u in self.of(CloseErasures) for i in u.ids)
        return (*(e.id for e in moved if e.predicate is None), *closed)


# -- outcomes of `plan.commit.apply` ---------------------------------------------------------------------


class NewSegment(Record):
    """A segment to write before the swap; `entries` are what it decodes to."""

    id: str
    data: bytes
    kind: SegmentKind | Literal["schemas"]
    entries: tuple[Any, ...]


class Proposal(Record):
    """A snapshot to swap in, once `segments` are written. Its commit time is set by `seal`."""

    snapshot: Snapshot
    segments: tuple[NewSegment, ...]
    duplicates: frozenset[bytes] = frozenset()  # events that were applied before
    skipped: tuple[Unit, ...] = ()  # units that conflict with another commit


class Unchanged(Record):
    """Nothing to commit."""

    skipped: tuple[Unit, ...] = ()


class Stale(Record):
    """Holds objects that GC may delete: they must be uploaded again."""


class HandedOver(Record):
    """Another catalog has the table."""


_NotDue = AlreadyApplied | Unchanged | Conflict | Stale | RequestRefused | HandedOver
Outcome = Proposal | NeedSegments | _NotDue

"""Entries: what a snapshot states about data files and delete markers.

Promise: frozen values; equal entries mean the same. A file or marker object is named by its key *relative
to the table root*, so a table can be moved; an adopted data file keeps its absolute URI, because it does
not belong to the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inlay.format.predicate import Predicate
from inlay.format.schema import Primitive, Value


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Bounds of one column in one file, over its non-null, non-NaN values.

    `lower` <= every value <= `upper`; None means unknown. `exact` False: a bound may have been truncated
    or widened; it still bounds, but need not be a value of the column. `null_count` and `has_nan` None
    mean unknown; NaN sorts above every number and is outside the bounds. `kind` is the type of the
    bounds, since the column may have been widened later; None is the type they are compared with.
    `sure`, of a reference: this library wrote all files under it.
    """

    lower: Value | None = None
    upper: Value | None = None
    null_count: int | None = None
    exact: bool = True
    has_nan: bool | None = None
    kind: Primitive | None = field(default=None, compare=False, repr=False)
    sure: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # What no reader accepts is never written: by one such number a table could not be opened.
        if self.null_count is not None and self.null_count < 0:
            raise ValueError("a column with a negative number of nulls")


# The origin of a file that was made of an adopted one, once an erasure has removed that one's key.
FORGOTTEN = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One live data file.

    `sequence` is the version that committed the file, None only while it is being committed. A
    table-wide marker with sequence S applies to files with sequence < S.
    """

    key: str
    size: int
    footer_size: int  # thrift footer + 8: one suffix GET of this many bytes reads it whole
    rows: int
    row_groups: int
    schema_id: int
    sequence: int | None = None
    spec_id: int = 0
    partition: tuple[Value | None, ...] = ()
    stats: Mapping[int, ColumnStats] = field(default_factory=dict)
    etag: str | None = None  # set for adopted files: reads are pinned to it
    adopted: bool = False
    event: str | None = None  # identity of the event or request that added it
    data_change: bool = True  # False for outputs of maintenance: change readers skip it
    origin: str | None = None  # key of the file that this one rewrites 1:1, or FORGOTTEN
    arrived: int | None = None  # outputs of maintenance: version that added their newest rows
    cluster: int | None = None  # shared by the files that one unit of clustering wrote in one order
    own: bool = False  # this library wrote every byte, although `event` or `origin` is set

    def __post_init__(self) -> None:
        if min(self.size, self.footer_size, self.rows, self.row_groups) < 0:
            raise ValueError("a data file with a negative size or number of rows")

    @property
    def is_foreign(self) -> bool:
        """Whether its bytes and footer may come from another writer: it was ingested or adopted, or made
        from such a file by surgery, which keeps what it need not change. Known from the table's own
        metadata: the file's `created_by` is not evidence. (Versions of this library without `own` left only
        `origin` on what surgery made.)"""
        came = self.event is not None or self.origin is not None
        return self.adopted or (came and not self.own)

    @property
    def newest_rows(self) -> int:
        """The version that added the newest of these rows to the table."""
        return self.arrived or self.sequence or 0

    @property
    def where(self) -> str:
        return self.key


# -- markers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Whole row groups of one file, by ordinal from 0."""

    ordinals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows whose `field_id` is in a range; None is unbounded. NULL and NaN keys are never inside a
    bounded side (NaN sorts above every number, so it is inside when `upper` is None). `kind` is the type
    of the column when the range was written; None is its current type."""

    field_id: int
    lower: Value | None = None
    upper: Value | None = None
    lower_inclusive: bool = True
    upper_inclusive: bool = True
    kind: Primitive | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Where:
    """Rows for which the predicate is TRUE."""

    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Keys:
    """Equality delete: rows whose `field_ids`, in order, equal a row of the Parquet object `key`.
    A NULL equals nothing. `stats` bounds the keys, in the types of schema `schema_id` (None: the newest
    one)."""

    field_ids: tuple[int, ...]
    key: str
    size: int
    rows: int
    stats: Mapping[int, ColumnStats] = field(default_factory=dict)
    schema_id: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Vector:
    """Row positions of one file, as a `deletion-vector-v1` blob at bytes offset … offset+length of the
    Puffin object `key`."""

    key: str
    offset: int
    length: int
    rows: int


@dataclass(frozen=True, slots=True)
class Rows:
    """A few row positions of one file, ascending, in the marker itself."""

    positions: tuple[int, ...]


MarkerBody = RowGroups | KeyRange | Where | Keys | Vector | Rows

# Bodies that name positions, and therefore must name a file.
POSITIONAL = (RowGroups, Vector, Rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """One delete. `file` None applies to the whole table, to files with sequence < `sequence`. Otherwise
    it applies to that file only, whatever its sequence: files never change, so the rows are the same."""

    id: str
    body: MarkerBody
    file: str | None = None
    sequence: int | None = None
    erasure: str | None = None  # the erasure this marker belongs to

    @property
    def object_key(self) -> str | None:
        """The marker object that this entry refers to, if any."""
        return self.body.key if isinstance(self.body, Keys | Vector) else None


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One event or request that has been applied.

    `id` is the 12-byte digest of its identity; `body` is the digest of its content, for requests, where
    an id reused with other content must be detected. `version` applied it at commit time `time_us` (both
    None while it is being committed).
    """

    id: bytes
    body: bytes | None = None
    version: int | None = None
    time_us: int | None = None

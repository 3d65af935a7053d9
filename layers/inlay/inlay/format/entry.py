"""Entries: what a snapshot says about data files and delete markers.

Promise: values only, all frozen; two equal entries mean the same thing. A file or marker object is
named by its key *relative to the table root*, so a table may be moved; an adopted data file keeps its
absolute URI, because it is not ours to move or delete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inlay.format.predicate import Predicate
from inlay.format.schema import Primitive, Value


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Bounds of one column in one file, over its non-null, non-NaN values.

    `lower` <= every value <= `upper`; None means unknown. `exact` False means a bound may have been
    truncated or widened: it still bounds, but is not itself a value of the column. `null_count` None is
    unknown. `has_nan` None is unknown; NaN sorts above every number and is outside the bounds.
    `kind` is the type whose physical form the bounds have: a column may have been widened since. None
    is the type of whatever they are compared with.
    """

    lower: Value | None = None
    upper: Value | None = None
    null_count: int | None = None
    exact: bool = True
    has_nan: bool | None = None
    kind: Primitive | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One live data file.

    `sequence` is the version that committed it; None only while it is being committed, then it is
    that commit's version. A table-wide marker with sequence S hits files with sequence < S.
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
    event: str | None = None  # identity of the event or request that brought it
    data_change: bool = True  # False for outputs of maintenance: readers of changes skip it
    origin: str | None = None  # key of the file this is a 1:1 rewrite of
    arrived: int | None = None  # outputs of maintenance: version in which their newest rows came
    cluster: int | None = None  # files written in one order by one unit of clustering share it
    own: bool = False  # every byte is this library's, although `event` or `origin` is set

    @property
    def is_foreign(self) -> bool:
        """Whether bytes of it, and what its footer says of them, may be another writer's: it was ingested
        or adopted, or made of such a file by surgery, which takes over what it need not touch. Told by
        the table's own metadata, never by the file: `created_by` says whatever its writer likes. (Versions
        of this library without `own` left `origin` alone on what surgery made.)"""
        came = self.event is not None or self.origin is not None
        return self.adopted or (came and not self.own)

    @property
    def newest_rows(self) -> int:
        """The version in which the newest of these rows came into the table."""
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
    """Rows whose `field_id` lies in a range; None is unbounded. NULL and NaN keys are never inside
    a bounded side (NaN is above every number, so it is inside when `upper` is None). `kind` is the type
    the column had when the range was written; None is the one it has."""

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
    A NULL equals nothing. `stats` bounds the keys, in the types of schema `schema_id` (None: of the
    newest)."""

    field_ids: tuple[int, ...]
    key: str
    size: int
    rows: int
    stats: Mapping[int, ColumnStats] = field(default_factory=dict)
    schema_id: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Vector:
    """Row positions of one file as a `deletion-vector-v1` blob at bytes offset … offset+length of the
    Puffin object `key`."""

    key: str
    offset: int
    length: int
    rows: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Few row positions of one file, in the marker itself, ascending."""

    positions: tuple[int, ...]


MarkerBody = RowGroups | KeyRange | Where | Keys | Vector | Rows

# Bodies that name positions and so must name a file.
POSITIONAL = (RowGroups, Vector, Rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """One delete. `file` None: the whole table, files with sequence < `sequence`. Otherwise that file
    only, whatever its sequence (files never change, so the marker saw these very rows)."""

    id: str
    body: MarkerBody
    file: str | None = None
    sequence: int | None = None
    erasure: str | None = None  # the erasure this marker belongs to

    @property
    def object_key(self) -> str | None:
        """The marker object this entry needs, if any."""
        return self.body.key if isinstance(self.body, Keys | Vector) else None

"""Entries: what a snapshot states about data files, delete markers and applied requests, and their JSON.

Promise: frozen values; equal entries mean the same. A file or marker object is named by its key *relative
to the table root*, so a table can be moved; an adopted data file keeps its absolute URI, because it does
not belong to the table.

Their JSON is exact in both directions: arrays, because there are many of them, with the positions that
docs/FORMAT.md, sections 7 to 9, defines; trailing nulls are cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, assert_never

from inlay.errors import CorruptTable, NewerFormat
from inlay.format.predicate import Predicate, predicate_from_json, predicate_to_json
from inlay.format.schema import Primitive, Schema, Value, parse_primitive
from inlay.format.values import (
    as_count,
    as_text,
    bytes_from_text,
    bytes_to_text,
    decode_value,
    encode_value,
    optional,
    pad,
    trim,
)
from inlay.record import Record, aside, field


@aside("kind", "sure")
class ColumnStats(Record):
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
    kind: Primitive | None = None
    sure: bool = False

    def __post_init__(self) -> None:
        # What no reader accepts is never written: by one such number a table could not be opened.
        if self.null_count is not None and self.null_count < 0:
            raise ValueError("a column with a negative number of nulls")


# The origin of a file that was made of an adopted one, once an erasure has removed that one's key.
FORGOTTEN = ""


class DataFile(Record, kw_only=True, dict=True):
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


# -- markers --------------------------------------------------------------------------------------


class RowGroups(Record):
    """Whole row groups of one file, by ordinal from 0."""

    ordinals: tuple[int, ...]


@aside("kind")
class KeyRange(Record):
    """Rows whose `field_id` is in a range; None is unbounded. NULL and NaN keys are never inside a
    bounded side (NaN sorts above every number, so it is inside when `upper` is None). `kind` is the type
    of the column when the range was written; None is its current type."""

    field_id: int
    lower: Value | None = None
    upper: Value | None = None
    lower_inclusive: bool = True
    upper_inclusive: bool = True
    kind: Primitive | None = None


class Where(Record):
    """Rows for which the predicate is TRUE."""

    predicate: Predicate


@aside("schema_id")
class Keys(Record):
    """Equality delete: rows whose `field_ids`, in order, equal a row of the Parquet object `key`.
    A NULL equals nothing. `stats` bounds the keys, in the types of schema `schema_id` (None: the newest
    one)."""

    field_ids: tuple[int, ...]
    key: str
    size: int
    rows: int
    stats: Mapping[int, ColumnStats] = field(default_factory=dict)
    schema_id: int | None = None


class Vector(Record):
    """Row positions of one file, as a `deletion-vector-v1` blob at bytes offset … offset+length of the
    Puffin object `key`."""

    key: str
    offset: int
    length: int
    rows: int


class Rows(Record):
    """A few row positions of one file, ascending, in the marker itself."""

    positions: tuple[int, ...]


MarkerBody = RowGroups | KeyRange | Where | Keys | Vector | Rows


class Marker(Record, kw_only=True):
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
        match self.body:
            case Keys(key=key) | Vector(key=key):
                return key
            case RowGroups() | KeyRange() | Where() | Rows():
                return None

    @property
    def is_positional(self) -> bool:
        """Whether it names positions of rows, and therefore must name a file."""
        match self.body:
            case RowGroups() | Vector() | Rows():
                return True
            case KeyRange() | Where() | Keys():
                return False

    @property
    def object_bytes(self) -> int | None:
        """How many bytes of that object are this marker's."""
        match self.body:
            case Keys(size=size):
                return size
            case Vector(length=length):
                return length
            case RowGroups() | KeyRange() | Where() | Rows():
                return None


# Of digests. 96 bits: ten million ids in the ledger collide with a probability of about 1e-15.
IDENTITY_BYTES = 12
BODY_BYTES = 8


class LedgerRecord(Record):
    """One event or request that has been applied.

    `id` is the 12-byte digest of its identity; `body` is the digest of its content, for requests, where
    an id reused with other content must be detected. `version` applied it at commit time `time_us` (both
    None while it is being committed).
    """

    id: bytes
    body: bytes | None = None
    version: int | None = None
    time_us: int | None = None


_INEXACT, _HAS_NAN, _NO_NAN, _SURE = 1, 2, 4, 8
# Readers ignore flags that they do not know.
ADOPTED, NO_DATA_CHANGE, OWN = 1, 2, 4


class Types:
    """The type of each field under each schema, by which values are encoded and decoded. A schema is only
    searched when an entry refers to it."""

    def __init__(self, schemas: tuple[Schema, ...]) -> None:
        self._schemas = {schema.id: schema for schema in schemas}
        self.newest = max(self._schemas, default=0)

    def of(self, schema_id: int, field_id: int) -> Primitive:
        """The type of a leaf field; for dropped columns, from any schema that has it."""
        schema = self._schemas.get(schema_id)
        kind = None if schema is None else schema.types.get(field_id)
        if kind is None:
            with_it = (s for s in self._schemas.values() if field_id in s.types)
            kind = next((s.types[field_id] for s in with_it), None)
        if kind is None:
            raise CorruptTable(f"an entry names field {field_id}, which no schema has")
        return kind


# The members of a file's entry, in the order of its JSON (docs/FORMAT.md, section 7).
FILE_MEMBERS = (
    *("key", "size", "footer", "rows", "groups", "schema", "sequence", "stats", "flags"),
    *("event", "origin", "etag", "spec", "partition", "arrived", "cluster"),
)


def _file_flags(entry: DataFile) -> int | None:
    set_ = (
        ADOPTED if entry.adopted else 0,
        0 if entry.data_change else NO_DATA_CHANGE,
        OWN if entry.own else 0,
    )
    return sum(set_) or None


def file_to_json(entry: DataFile, types: Types) -> list[Any]:
    """Made once for an entry, as those in a pointer are written again with each commit: nobody may change
    it. It stays beside the fields, which alone are what `replace` copies."""
    encoded: list[Any] | None = entry.__dict__.get("encoded")
    if encoded is None:
        body = file_values(entry)
        body.insert(FILE_MEMBERS.index("stats"), stats_to_json(entry.stats, entry.schema_id, types))
        encoded = entry.__dict__["encoded"] = trim(body)
    return encoded


def file_values(entry: DataFile) -> list[Any]:
    """The values of an entry, its statistics apart, in the order of its JSON."""
    return [
        entry.key,
        entry.size,
        entry.footer_size,
        entry.rows,
        entry.row_groups,
        entry.schema_id,
        entry.sequence,
        _file_flags(entry),
        entry.event,
        entry.origin,
        entry.etag,
        entry.spec_id or None,
        list(map(plain_value, entry.partition)) or None,
        entry.arrived,
        entry.cluster,
    ]


def file_from_json(
    body: list[Any], types: Types, known: Mapping[str, DataFile] = MappingProxyType({})
) -> DataFile:
    """The entry; that of `known`, by key, where it has the same JSON under the same schemas."""
    entry = known.get(body[0])
    if entry is not None and file_to_json(entry, types) == body:
        return entry
    values = dict(zip(FILE_MEMBERS, pad(body, len(FILE_MEMBERS)), strict=True))
    as_text(values["key"])
    for name in ("size", "footer", "rows", "groups", "schema"):
        as_count(values[name])
    for name in ("sequence", "arrived", "cluster"):
        optional(as_count, values[name])
    for name in ("event", "origin", "etag"):
        optional(as_text, values[name])
    for value in values["partition"] or ():
        plain_value(value)
    return file_of(values, stats_from_json(values["stats"] or {}, values["schema"], types))


def file_of(values: Mapping[str, Any], stats: Mapping[int, ColumnStats]) -> DataFile:
    """The entry with these values, by the names of its members; they have been checked."""
    flags = values["flags"] or 0
    return DataFile(
        key=values["key"],
        size=values["size"],
        footer_size=values["footer"],
        rows=values["rows"],
        row_groups=values["groups"],
        schema_id=values["schema"],
        sequence=values["sequence"],
        spec_id=values["spec"] or 0,
        partition=tuple(values["partition"] or ()),
        stats=stats,
        etag=values["etag"],
        adopted=bool(flags & ADOPTED),
        event=values["event"],
        data_change=not flags & NO_DATA_CHANGE,
        origin=values["origin"],
        arrived=values["arrived"],
        cluster=values["cluster"],
        own=bool(flags & OWN),
    )


def marker_to_json(marker: Marker, types: Types) -> list[Any]:
    match marker.body:
        case RowGroups(ordinals):
            kind, body = "row_groups", list[Any](ordinals)
        case KeyRange(field_id, lower, upper, lower_inclusive, upper_inclusive, written):
            of = written or types.of(types.newest, field_id)
            bounds = (None if b is None else encode_value(of, b) for b in (lower, upper))
            kind, body = "range", [field_id, str(of), *bounds, lower_inclusive, upper_inclusive]
        case Where(predicate):
            kind, body = "where", predicate_to_json(predicate)
        case Keys(field_ids, key, size, rows, stats, written_under):
            schema_id = types.newest if written_under is None else written_under
            bounded = stats_to_json(stats, schema_id, types)
            kind, body = "keys", [list(field_ids), key, size, rows, schema_id, bounded]
        case Vector(key, offset, length, rows):
            kind, body = "vector", [key, offset, length, rows]
        case Rows(positions):
            kind, body = "rows", list(positions)
        case _:
            assert_never(marker.body)
    return trim([marker.id, kind, body, marker.sequence, marker.file, marker.erasure])


def marker_from_json(members: list[Any], types: Types) -> Marker:
    marker_id, kind, body, sequence, file, erasure = pad(members, 6)
    return Marker(
        id=as_text(marker_id),
        body=_body_from_json(kind, body, types),
        sequence=optional(as_count, sequence),
        file=optional(as_text, file),
        erasure=optional(as_text, erasure),
    )


def _body_from_json(kind: str, body: Any, types: Types) -> MarkerBody:
    match kind:
        case "row_groups":
            return RowGroups(tuple(as_count(n) for n in body))
        case "range":
            field_id, type_text, lower, upper, lower_inclusive, upper_inclusive = body
            value_type = parse_primitive(type_text)
            return KeyRange(
                as_count(field_id),
                optional(partial(decode_value, value_type), lower),
                optional(partial(decode_value, value_type), upper),
                bool(lower_inclusive),
                bool(upper_inclusive),
                value_type,
            )
        case "where":
            return Where(predicate_from_json(body))
        case "keys":
            field_ids, key, size, rows, schema_id, stats = body
            return Keys(
                tuple(as_count(n) for n in field_ids),
                as_text(key),
                as_count(size),
                as_count(rows),
                stats_from_json(stats or {}, as_count(schema_id), types),
                as_count(schema_id),
            )
        case "vector":
            key, offset, length, rows = body
            return Vector(as_text(key), as_count(offset), as_count(length), as_count(rows))
        case "rows":
            return Rows(tuple(as_count(n) for n in body))
        case _:
            raise NewerFormat(f"a delete marker of an unknown kind {kind!r}")


def record_to_json(record: LedgerRecord) -> list[Any]:
    return trim(
        [
            bytes_to_text(record.id),
            record.version,
            record.time_us,
            optional(bytes_to_text, record.body),
        ]
    )


def record_from_json(members: list[Any]) -> LedgerRecord:
    record_id, version, time_us, body = pad(members, 4)
    return LedgerRecord(
        id=bytes_from_text(record_id),
        body=optional(bytes_from_text, body),
        version=optional(as_count, version),
        time_us=optional(as_count, time_us),
    )


def stats_to_json(
    stats: Mapping[int, ColumnStats], schema_id: int, types: Types
) -> dict[str, list[Any]] | None:
    columns: dict[str, list[Any]] = {}
    for field_id in sorted(stats):
        column = stats[field_id]
        kind = types.of(schema_id, field_id)
        lower, upper = column.lower, column.upper
        columns[str(field_id)] = trim(
            [
                None if lower is None else encode_value(kind, lower),
                None if upper is None else encode_value(kind, upper),
                column.null_count,
                flags_of(column) or None,
            ]
        )
    return columns or None


def stats_from_json(
    columns: dict[str, list[Any]], schema_id: int, types: Types
) -> dict[int, ColumnStats]:
    stats: dict[int, ColumnStats] = {}
    for name, column in columns.items():
        field_id = int(name)
        kind = types.of(schema_id, field_id)
        lower, upper, null_count, flags = pad(column, 4)
        stats[field_id] = stats_of(
            optional(partial(decode_value, kind), lower),
            optional(partial(decode_value, kind), upper),
            optional(as_count, null_count),
            flags or 0,
            kind,
        )
    return stats


def flags_of(column: ColumnStats) -> int:
    flags = (0 if column.exact else _INEXACT) | (_SURE if column.sure else 0)
    return flags | {None: 0, True: _HAS_NAN, False: _NO_NAN}[column.has_nan]


def stats_of(
    lower: Value | None, upper: Value | None, null_count: int | None, flags: int, kind: Primitive
) -> ColumnStats:
    has_nan = True if flags & _HAS_NAN else False if flags & _NO_NAN else None
    exact, sure = not flags & _INEXACT, bool(flags & _SURE)
    return ColumnStats(lower, upper, null_count, exact, has_nan, kind, sure)


def plain_value(value: Any) -> Any:
    """Partition values are already JSON values (`format.partition`), or null."""
    if value is not None and not isinstance(value, int | float | str):
        raise TypeError(f"a partition value must be a number or text, not {type(value).__name__}")
    return value

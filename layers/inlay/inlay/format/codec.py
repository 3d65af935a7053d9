"""Snapshots and segments to bytes and back.

Promise: `decode(encode(x)) == x`, equal values give equal bytes, and anything that is not exactly what
docs/FORMAT.md describes raises `CorruptTable` or `NewerFormat` naming the object. Dicts live here
and nowhere else.

The pointer is an object with names, for people; entries are arrays, because there are many: trailing
nulls are cut.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from pyroaring import FrozenBitMap

from inlay.errors import CorruptTable, InlayError, NewerFormat
from inlay.format.entry import (
    ColumnStats,
    DataFile,
    KeyRange,
    Keys,
    Marker,
    MarkerBody,
    RowGroups,
    Rows,
    Vector,
    Where,
)
from inlay.format.frame import decode_frame, encode_frame
from inlay.format.predicate_json import predicate_from_json, predicate_to_json
from inlay.format.schema import (
    Primitive,
    Schema,
    Value,
    parse_primitive,
    schema_from_json,
    schema_to_json,
)
from inlay.format.snapshot import (
    NO_DEAD,
    Boundary,
    Commit,
    Erasure,
    Expiration,
    Ledger,
    LedgerRecord,
    PartitionField,
    PartitionSpec,
    Ref,
    Segment,
    Snapshot,
    Tier,
    Totals,
)
from inlay.format.values import decode_value, encode_value

T = TypeVar("T")

_INEXACT, _HAS_NAN, _NO_NAN = 1, 2, 4
_ADOPTED, _NO_DATA_CHANGE = 1, 2
_COMMIT_COUNTS = (
    "added_files",
    "removed_files",
    "added_rows",
    "removed_rows",
    "added_bytes",
    "added_markers",
    "removed_markers",
)
_KEYS = frozenset(
    (
        *("table", "version", "commit", "schemas", "schema", "last_field_id", "specs", "spec"),
        *("primary_key", "sort_by", "stats_columns", "properties", "refs", "files", "markers"),
        *("ledger", "erasures", "boundary", "expired", "time_index", "totals"),
    )
)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    types = Types(snapshot.schemas)
    body: dict[str, Any] = {
        "table": snapshot.table_id,
        "version": snapshot.version,
        "commit": _commit_to_json(snapshot.commit),
        "schemas": [schema_to_json(s) for s in snapshot.schemas],
        "schema": snapshot.schema_id,
        "last_field_id": snapshot.last_field_id,
        "specs": [_spec_to_json(s) for s in snapshot.specs],
        "spec": snapshot.spec_id,
        "primary_key": list(snapshot.primary_key),
        "sort_by": list(snapshot.sort_by),
        "stats_columns": list(snapshot.stats_columns),
        "properties": dict(sorted(snapshot.properties.items())),
        "refs": {name: _ref_to_json(ref) for name, ref in sorted(snapshot.refs.items())},
        "files": _tier_to_json(snapshot.files, lambda f: file_to_json(f, types), types),
        "markers": _tier_to_json(snapshot.markers, lambda m: marker_to_json(m, types), types),
        "ledger": {
            **_tier_to_json(snapshot.ledger.records, record_to_json, types),
            "horizon_us": snapshot.ledger.horizon_us,
            "streams": dict(sorted(snapshot.ledger.streams.items())),
        },
        "erasures": [_erasure_to_json(e) for e in snapshot.erasures],
        "boundary": [snapshot.boundary.version, snapshot.boundary.time_us],
        "expired": [[e.through, e.time_us] for e in snapshot.expired],
        "time_index": [list(point) for point in snapshot.time_index],
        "totals": [
            snapshot.totals.files,
            snapshot.totals.rows,
            snapshot.totals.bytes,
            snapshot.totals.markers,
        ],
    }
    return encode_frame("snapshot", body)


def decode_snapshot(data: bytes, *, key: str) -> Snapshot:
    body = decode_frame("snapshot", data, key=key)
    unknown = body.keys() - _KEYS
    if unknown:
        raise NewerFormat(f"{key} has parts this library does not know: {sorted(unknown)}", key=key)
    return _guarded(key, lambda: _snapshot_from_json(body))


def _snapshot_from_json(body: dict[str, Any]) -> Snapshot:
    schemas = tuple(schema_from_json(s) for s in body["schemas"])
    types = Types(schemas)
    ledger = body["ledger"]
    boundary_version, boundary_us = body["boundary"]
    files, rows, data_bytes, markers = body["totals"]
    snapshot = Snapshot(
        table_id=_text(body["table"]),
        version=_count(body["version"]),
        commit=_commit_from_json(body["commit"]),
        schemas=schemas,
        schema_id=_count(body["schema"]),
        last_field_id=_count(body["last_field_id"]),
        specs=tuple(_spec_from_json(s) for s in body["specs"]),
        spec_id=_count(body["spec"]),
        primary_key=tuple(_count(i) for i in body["primary_key"]),
        sort_by=tuple(_count(i) for i in body["sort_by"]),
        stats_columns=tuple(_count(i) for i in body["stats_columns"]),
        properties={_text(k): _text(v) for k, v in body["properties"].items()},
        refs={name: _ref_from_json(ref) for name, ref in body["refs"].items()},
        files=_tier_from_json(body["files"], lambda f: file_from_json(f, types), types),
        markers=_tier_from_json(body["markers"], lambda m: marker_from_json(m, types), types),
        ledger=Ledger(
            records=_tier_from_json(ledger, record_from_json, types),
            horizon_us=_count(ledger["horizon_us"]),
            streams={_text(k): int(v) for k, v in ledger["streams"].items()},
        ),
        erasures=tuple(_erasure_from_json(e) for e in body["erasures"]),
        boundary=Boundary(_count(boundary_version), _optional(_count, boundary_us)),
        expired=tuple(Expiration(_count(t), _optional(_count, us)) for t, us in body["expired"]),
        time_index=tuple((_count(v), _count(us)) for v, us in body["time_index"]),
        totals=Totals(_count(files), _count(rows), _count(data_bytes), _count(markers)),
    )
    if snapshot.version < 1 or all(s.id != snapshot.schema_id for s in schemas):
        raise CorruptTable("the snapshot names a version or schema that cannot be")
    return snapshot


# -- segments -------------------------------------------------------------------------------------


def encode_files(entries: tuple[DataFile, ...], types: Types) -> bytes:
    return encode_frame("files", {"entries": [file_to_json(e, types) for e in entries]})


def decode_files(data: bytes, *, key: str, types: Types) -> tuple[DataFile, ...]:
    body = decode_frame("files", data, key=key)
    return _guarded(key, lambda: tuple(file_from_json(e, types) for e in body["entries"]))


def encode_markers(entries: tuple[Marker, ...], types: Types) -> bytes:
    return encode_frame("markers", {"entries": [marker_to_json(e, types) for e in entries]})


def decode_markers(data: bytes, *, key: str, types: Types) -> tuple[Marker, ...]:
    body = decode_frame("markers", data, key=key)
    return _guarded(key, lambda: tuple(marker_from_json(e, types) for e in body["entries"]))


def encode_ledger(entries: tuple[LedgerRecord, ...]) -> bytes:
    return encode_frame("ledger", {"entries": [record_to_json(e) for e in entries]})


def decode_ledger(data: bytes, *, key: str) -> tuple[LedgerRecord, ...]:
    body = decode_frame("ledger", data, key=key)
    return _guarded(key, lambda: tuple(record_from_json(e) for e in body["entries"]))


class Types:
    """Which type a field has under which schema: what values are encoded and decoded by."""

    def __init__(self, schemas: tuple[Schema, ...]) -> None:
        self._by_schema: dict[int, dict[int, Primitive]] = {
            schema.id: {
                field.id: field.type
                for _, field in schema.walk()
                if isinstance(field.type, Primitive)
            }
            for schema in schemas
        }
        self.newest = max(self._by_schema, default=0)

    def of(self, schema_id: int, field_id: int) -> Primitive:
        """The type of a leaf field; falls back to any schema that has it (dropped columns)."""
        found = self._by_schema.get(schema_id, {}).get(field_id)
        if found is None:
            found = next((t[field_id] for t in self._by_schema.values() if field_id in t), None)
        if found is None:
            raise CorruptTable(f"an entry speaks of field {field_id}, which no schema has")
        return found


# -- entries --------------------------------------------------------------------------------------


def file_to_json(entry: DataFile, types: Types) -> list[Any]:
    flags = (_ADOPTED if entry.adopted else 0) | (0 if entry.data_change else _NO_DATA_CHANGE)
    return _trim(
        [
            entry.key,
            entry.size,
            entry.footer_size,
            entry.rows,
            entry.row_groups,
            entry.schema_id,
            entry.sequence,
            _stats_to_json(entry.stats, entry.schema_id, types),
            flags or None,
            entry.event,
            entry.origin,
            entry.etag,
            entry.spec_id or None,
            [_plain(v) for v in entry.partition] or None,
            entry.arrived,
        ]
    )


def file_from_json(found: list[Any], types: Types) -> DataFile:
    (
        key, size, footer_size, rows, row_groups, schema_id, sequence, stats, flags, event, origin,
        etag, spec_id, partition, arrived,
    ) = _pad(found, 15)  # fmt: skip
    return DataFile(
        key=_text(key),
        size=_count(size),
        footer_size=_count(footer_size),
        rows=_count(rows),
        row_groups=_count(row_groups),
        schema_id=_count(schema_id),
        sequence=_optional(_count, sequence),
        stats=_stats_from_json(stats or {}, schema_id, types),
        adopted=bool((flags or 0) & _ADOPTED),
        data_change=not (flags or 0) & _NO_DATA_CHANGE,
        event=_optional(_text, event),
        origin=_optional(_text, origin),
        etag=_optional(_text, etag),
        spec_id=spec_id or 0,
        partition=tuple(_from_plain(v) for v in partition or ()),
        arrived=_optional(_count, arrived),
    )


def marker_to_json(marker: Marker, types: Types) -> list[Any]:
    kind, body = _body_to_json(marker.body, types)
    return _trim([marker.id, kind, body, marker.sequence, marker.file, marker.erasure])


def marker_from_json(found: list[Any], types: Types) -> Marker:
    marker_id, kind, body, sequence, file, erasure = _pad(found, 6)
    return Marker(
        id=_text(marker_id),
        body=_body_from_json(kind, body, types),
        sequence=_optional(_count, sequence),
        file=_optional(_text, file),
        erasure=_optional(_text, erasure),
    )


def _body_to_json(body: MarkerBody, types: Types) -> tuple[str, Any]:
    match body:
        case RowGroups(ordinals):
            return "row_groups", list(ordinals)
        case KeyRange(field_id, lower, upper, lower_inclusive, upper_inclusive):
            kind = types.of(types.newest, field_id)
            return "range", [
                field_id,
                str(kind),
                _optional(partial(encode_value, kind), lower),
                _optional(partial(encode_value, kind), upper),
                lower_inclusive,
                upper_inclusive,
            ]
        case Where(predicate):
            return "where", predicate_to_json(predicate)
        case Keys(field_ids, key, size, rows, stats):
            return "keys", [
                list(field_ids), key, size, rows, types.newest,
                _stats_to_json(stats, types.newest, types),
            ]  # fmt: skip
        case Vector(key, offset, length, rows):
            return "vector", [key, offset, length, rows]
        case Rows(positions):
            return "rows", list(positions)


def _body_from_json(kind: str, body: Any, types: Types) -> MarkerBody:
    match kind:
        case "row_groups":
            return RowGroups(tuple(_count(n) for n in body))
        case "range":
            field_id, type_text, lower, upper, lower_inclusive, upper_inclusive = body
            value_type = parse_primitive(type_text)
            return KeyRange(
                _count(field_id),
                _optional(partial(decode_value, value_type), lower),
                _optional(partial(decode_value, value_type), upper),
                bool(lower_inclusive),
                bool(upper_inclusive),
            )
        case "where":
            return Where(predicate_from_json(body))
        case "keys":
            field_ids, key, size, rows, schema_id, stats = body
            return Keys(
                tuple(_count(n) for n in field_ids),
                _text(key),
                _count(size),
                _count(rows),
                _stats_from_json(stats or {}, schema_id, types),
            )
        case "vector":
            key, offset, length, rows = body
            return Vector(_text(key), _count(offset), _count(length), _count(rows))
        case "rows":
            return Rows(tuple(_count(n) for n in body))
        case _:
            raise NewerFormat(f"a delete marker of an unknown kind {kind!r}")


def record_to_json(record: LedgerRecord) -> list[Any]:
    return _trim(
        [
            _bytes_to_text(record.id),
            record.version,
            record.time_us,
            _optional(_bytes_to_text, record.body),
        ]
    )


def record_from_json(found: list[Any]) -> LedgerRecord:
    record_id, version, time_us, body = _pad(found, 4)
    return LedgerRecord(
        id=_bytes_from_text(record_id),
        body=_optional(_bytes_from_text, body),
        version=_optional(_count, version),
        time_us=_optional(_count, time_us),
    )


def _stats_to_json(
    stats: Mapping[int, ColumnStats], schema_id: int, types: Types
) -> dict[str, list[Any]] | None:
    found: dict[str, list[Any]] = {}
    for field_id in sorted(stats):
        column = stats[field_id]
        kind = types.of(schema_id, field_id)
        flags = 0 if column.exact else _INEXACT
        flags |= {None: 0, True: _HAS_NAN, False: _NO_NAN}[column.has_nan]
        found[str(field_id)] = _trim(
            [
                _optional(partial(encode_value, kind), column.lower),
                _optional(partial(encode_value, kind), column.upper),
                column.null_count,
                flags or None,
            ]
        )
    return found or None


def _stats_from_json(
    found: dict[str, list[Any]], schema_id: int, types: Types
) -> dict[int, ColumnStats]:
    stats: dict[int, ColumnStats] = {}
    for name, column in found.items():
        field_id = int(name)
        kind = types.of(schema_id, field_id)
        lower, upper, null_count, flags = _pad(column, 4)
        flags = flags or 0
        stats[field_id] = ColumnStats(
            lower=_optional(partial(decode_value, kind), lower),
            upper=_optional(partial(decode_value, kind), upper),
            null_count=_optional(_count, null_count),
            exact=not flags & _INEXACT,
            has_nan=True if flags & _HAS_NAN else False if flags & _NO_NAN else None,
        )
    return stats


# -- parts of a snapshot --------------------------------------------------------------------------


def _tier_to_json(tier: Tier[T], entry: Callable[[T], Any], types: Types) -> dict[str, Any]:
    return {
        "segments": [_segment_to_json(s, types) for s in tier.segments],
        "inline": [entry(e) for e in tier.inline],
    }


def _tier_from_json(found: dict[str, Any], entry: Callable[[Any], T], types: Types) -> Tier[T]:
    return Tier(
        tuple(_segment_from_json(s, types) for s in found["segments"]),
        tuple(entry(e) for e in found["inline"]),
    )


def _segment_to_json(segment: Segment, types: Types) -> list[Any]:
    return _trim(
        [
            segment.id,
            segment.count,
            segment.size,
            _bytes_to_text(segment.dead.serialize()) if segment.dead else None,
            segment.sequence,
            segment.rows or None,
            segment.bytes or None,
            segment.first_us,
            segment.last_us,
            _stats_to_json(segment.stats, segment.schema_id, types),
            segment.schema_id or None,
        ]
    )


def _segment_from_json(found: list[Any], types: Types) -> Segment:
    segment_id, count, size, dead, sequence, rows, data_bytes, first, last, stats, schema_id = _pad(
        found, 11
    )
    return Segment(
        id=_text(segment_id),
        count=_count(count),
        size=_count(size),
        dead=NO_DEAD if dead is None else FrozenBitMap.deserialize(_bytes_from_text(dead)),
        sequence=_optional(_count, sequence),
        rows=rows or 0,
        bytes=data_bytes or 0,
        first_us=_optional(_count, first),
        last_us=_optional(_count, last),
        stats=_stats_from_json(stats or {}, schema_id or 0, types),
        schema_id=schema_id or 0,
    )


def _commit_to_json(commit: Commit) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": commit.id,
        "operation": commit.operation,
        "time_us": commit.time_us,
    }
    if commit.request is not None:
        found["request"] = commit.request
    # Null counts are said (a constant-time delete does not know its rows), zeroes are not.
    found |= {n: getattr(commit, n) for n in _COMMIT_COUNTS if getattr(commit, n) != 0}
    return found


def _commit_from_json(found: dict[str, Any]) -> Commit:
    return Commit(
        id=_text(found["id"]),
        operation=_text(found["operation"]),
        time_us=_count(found["time_us"]),
        request=_optional(_text, found.get("request")),
        **{n: _optional(_count, found.get(n, 0)) for n in _COMMIT_COUNTS},  # type: ignore[arg-type]
    )


def _erasure_to_json(erasure: Erasure) -> dict[str, Any]:
    return {
        "id": erasure.id,
        "predicate": _optional(predicate_to_json, erasure.predicate),
        "text": erasure.text,
        "phase": erasure.phase,
        "opened_version": erasure.opened_version,
        "opened_us": erasure.opened_us,
        "swept_us": erasure.swept_us,
        "objects": erasure.objects,
        "rows": erasure.rows,
        "deleted": erasure.deleted,
        "digest": erasure.digest,
    }


def _erasure_from_json(found: dict[str, Any]) -> Erasure:
    return Erasure(
        id=_text(found["id"]),
        predicate=_optional(predicate_from_json, found["predicate"]),
        text=_text(found["text"]),
        phase=_text(found["phase"]),
        opened_version=_count(found["opened_version"]),
        opened_us=_count(found["opened_us"]),
        swept_us=_optional(_count, found["swept_us"]),
        objects=_count(found["objects"]),
        rows=_count(found["rows"]),
        deleted=_count(found["deleted"]),
        digest=_optional(_text, found["digest"]),
    )


def _ref_to_json(ref: Ref) -> dict[str, Any]:
    return {"kind": ref.kind, "version": ref.version} | ({"hold": True} if ref.hold else {})


def _ref_from_json(found: dict[str, Any]) -> Ref:
    if found["kind"] not in ("tag", "branch"):
        raise NewerFormat(f"a ref of an unknown kind {found['kind']!r}")
    return Ref(kind=found["kind"], version=_count(found["version"]), hold=found.get("hold", False))


def _spec_to_json(spec: PartitionSpec) -> dict[str, Any]:
    return {"id": spec.id, "fields": [[f.source, f.transform, f.name] for f in spec.fields]}


def _spec_from_json(found: dict[str, Any]) -> PartitionSpec:
    return PartitionSpec(
        _count(found["id"]),
        tuple(PartitionField(_count(s), _text(t), _text(n)) for s, t, n in found["fields"]),
    )


# -- plain values ---------------------------------------------------------------------------------


def _guarded(key: str, decode: Callable[[], T]) -> T:
    """A well-formed frame whose content is not what it should be is corrupt, whatever broke."""
    try:
        return decode()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CorruptTable(f"{key} does not hold what the format says: {error}", key=key) from error
    except NewerFormat as error:
        raise error.about(key=key) from error
    except InlayError as error:
        raise CorruptTable(f"{key}: {error.message}", key=key) from error


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError(f"expected text, found {type(found).__name__}")
    return found


def _count(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise TypeError(f"expected a count, found {str(found)[:40]!r}")
    return found


def _optional(decode: Callable[[Any], T], found: Any) -> T | None:
    return None if found is None else decode(found)


def _trim(values: list[Any]) -> list[Any]:
    while values and values[-1] is None:
        values.pop()
    return values


def _pad(values: Any, length: int) -> list[Any]:
    if not isinstance(values, list) or len(values) > length:
        raise TypeError(f"expected a list of at most {length}")
    return values + [None] * (length - len(values))


def _bytes_to_text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def _bytes_from_text(value: str) -> bytes:
    return base64.urlsafe_b64decode(_text(value) + "=" * (-len(value) % 4))


def _plain(value: Value | None) -> Any:
    """Partition values are ints and strings (a transform's result), or null."""
    if value is not None and not isinstance(value, int | str):
        raise TypeError(f"a partition value must be an integer or text, not {type(value).__name__}")
    return value


def _from_plain(value: Any) -> Value | None:
    _plain(value)
    return value  # type: ignore[no-any-return]

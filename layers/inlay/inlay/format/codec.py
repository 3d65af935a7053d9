"""Snapshots to bytes and back (`format.leaves`: segments).

Promise: `decode(encode(x)) == x`, equal values give equal bytes, and anything that is not exactly what
docs/FORMAT.md describes raises `CorruptTable` or `NewerFormat` naming the object. Dicts live here and in
`entry_json`, and nowhere else. The pointer is an object with names, for people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from pyroaring import FrozenBitMap

from inlay.errors import CorruptTable, NewerFormat
from inlay.format.content import Content
from inlay.format.entry_json import (
    Types,
    file_from_json,
    file_to_json,
    marker_from_json,
    marker_to_json,
    record_from_json,
    record_to_json,
    stats_from_json,
    stats_to_json,
)
from inlay.format.frame import decode_frame, encode_frame, guarded
from inlay.format.json_values import (
    as_count,
    as_text,
    bytes_from_text,
    bytes_to_text,
    optional,
    pad,
    trim,
)
from inlay.format.predicate_json import predicate_from_json, predicate_to_json
from inlay.format.schema import Schema
from inlay.format.schema_json import schema_from_json, schema_to_json
from inlay.format.snapshot import (
    NO_DEAD,
    Boundary,
    Commit,
    Erasure,
    Expiration,
    HeadObject,
    Ledger,
    PartitionField,
    PartitionSpec,
    Ref,
    SchemaObject,
    Segment,
    Snapshot,
    Tier,
    Totals,
)

T = TypeVar("T")
# Loads the schemas that are stored in separate objects.
SchemaLoader = Callable[[SchemaObject], tuple[Schema, ...]]

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
        *("changed", "replaced", "schema_objects"),
    )
)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    types = Types(snapshot.schemas)
    apart = snapshot.separate_schemas
    body: dict[str, Any] = {
        "table": snapshot.table_id,
        "version": snapshot.version,
        "commit": _commit_to_json(snapshot.commit),
        "schemas": [schema_to_json(s) for s in snapshot.schemas if s.id not in apart],
        "schema": snapshot.schema_id,
        "last_field_id": snapshot.last_field_id,
        "specs": [
            {"id": spec.id, "fields": [[f.source, f.transform, f.name] for f in spec.fields]}
            for spec in snapshot.specs
        ],
        "spec": snapshot.spec_id,
        "primary_key": list(snapshot.primary_key),
        "sort_by": list(snapshot.sort_by),
        "stats_columns": list(snapshot.stats_columns),
        "properties": dict(sorted(snapshot.properties.items())),
        "refs": {name: _ref_to_json(ref) for name, ref in sorted(snapshot.refs.items())},
        "files": _tier_to_json(snapshot.files, partial(file_to_json, types=types), types),
        "markers": _tier_to_json(snapshot.markers, partial(marker_to_json, types=types), types),
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
        "changed": snapshot.changed,
        "replaced": snapshot.replaced,
    }
    if snapshot.schema_objects:
        body["schema_objects"] = [[o.id, o.size, list(o.ids)] for o in snapshot.schema_objects]
    return encode_frame("snapshot", body)


def no_separate_schemas(found: SchemaObject) -> tuple[Schema, ...]:
    """For snapshots known to carry all their schemas."""
    raise CorruptTable(f"the schemas {found.ids} are stored separately, in {found.id}")


def decode_snapshot(
    data: bytes, *, key: str, apart: SchemaLoader = no_separate_schemas
) -> Snapshot:
    """`apart` loads the schemas that the snapshot does not carry itself."""
    body = decode_frame("snapshot", data, key=key)
    unknown = body.keys() - _KEYS
    if unknown:
        raise NewerFormat(f"{key} has parts this library does not know: {sorted(unknown)}", key=key)
    objects = guarded(key, lambda: _schema_objects(body.get("schema_objects", ())))
    # Outside the guard: damage in such an object is not damage in this one.
    others = [schema for found in objects for schema in apart(found)]
    return guarded(key, lambda: _snapshot_from_json(body, objects, others))


def encode_schemas(schemas: Iterable[Schema]) -> bytes:
    return encode_frame("schemas", {"schemas": [schema_to_json(s) for s in schemas]})


def decode_schemas(data: bytes, found: SchemaObject, *, key: str) -> tuple[Schema, ...]:
    """The schemas in the object that a snapshot refers to as `found`."""
    body = decode_frame("schemas", data, key=key)
    schemas = guarded(key, lambda: tuple(schema_from_json(s) for s in body["schemas"]))
    if tuple(s.id for s in schemas) != found.ids or len(data) != found.size:
        raise CorruptTable(f"{key} holds other schemas than the snapshot states", key=key)
    return schemas


def _schema_objects(found: Any) -> tuple[SchemaObject, ...]:
    return tuple(
        SchemaObject(as_text(i), as_count(size), tuple(as_count(n) for n in ids))
        for i, size, ids in found
    )


def _snapshot_from_json(
    body: dict[str, Any], objects: tuple[SchemaObject, ...], others: list[Schema]
) -> Snapshot:
    carried = [schema_from_json(s) for s in body["schemas"]]
    schemas = tuple(sorted((*others, *carried), key=lambda s: s.id))
    if len({s.id for s in schemas}) < len(schemas):
        raise CorruptTable("the snapshot has a schema twice")
    types = Types(schemas)
    ledger = body["ledger"]
    boundary_version, boundary_us = body["boundary"]
    files, rows, data_bytes, markers = body["totals"]
    snapshot = Snapshot(
        table_id=as_text(body["table"]),
        version=as_count(body["version"]),
        commit=_commit_from_json(body["commit"]),
        schemas=schemas,
        schema_id=as_count(body["schema"]),
        last_field_id=as_count(body["last_field_id"]),
        schema_objects=objects,
        specs=tuple(_spec_from_json(s) for s in body["specs"]),
        spec_id=as_count(body["spec"]),
        primary_key=tuple(as_count(i) for i in body["primary_key"]),
        sort_by=tuple(as_count(i) for i in body["sort_by"]),
        stats_columns=tuple(as_count(i) for i in body["stats_columns"]),
        properties={as_text(k): as_text(v) for k, v in body["properties"].items()},
        refs={name: _ref_from_json(ref) for name, ref in body["refs"].items()},
        files=_tier_from_json(body["files"], partial(file_from_json, types=types), types),
        markers=_tier_from_json(body["markers"], partial(marker_from_json, types=types), types),
        ledger=Ledger(
            records=_tier_from_json(ledger, record_from_json, types),
            horizon_us=as_count(ledger["horizon_us"]),
            streams={as_text(k): int(v) for k, v in ledger["streams"].items()},
        ),
        erasures=tuple(_erasure_from_json(e) for e in body["erasures"]),
        boundary=Boundary(as_count(boundary_version), optional(as_count, boundary_us)),
        expired=tuple(Expiration(as_count(t), optional(as_count, us)) for t, us in body["expired"]),
        time_index=tuple((as_count(v), as_count(us)) for v, us in body["time_index"]),
        totals=Totals(as_count(files), as_count(rows), as_count(data_bytes), as_count(markers)),
        changed=as_count(body["changed"]),
        replaced=as_count(body["replaced"]),
    )
    if snapshot.version < 1 or all(s.id != snapshot.schema_id for s in schemas):
        raise CorruptTable("the snapshot names an impossible version or schema")
    known = {s.id for s in schemas}, {s.id for s in snapshot.specs}
    named = [(snapshot.schema_id, snapshot.spec_id)]
    named += [(f.schema_id, f.spec_id) for f in snapshot.files.inline]
    if not all(schema in known[0] and spec in known[1] for schema, spec in named):
        raise CorruptTable("the snapshot names a schema or partition spec that it does not contain")
    return snapshot


def encode_head(content: Content, types: Types) -> bytes:
    """The content of a ref, encoded as the immutable object that its head refers to."""
    totals = content.totals
    body = {
        "version": content.version,
        "schema": content.schema_id,
        "spec": content.spec_id,
        "primary_key": list(content.primary_key),
        "sort_by": list(content.sort_by),
        "stats_columns": list(content.stats_columns),
        "files": _tier_to_json(content.files, partial(file_to_json, types=types), types),
        "markers": _tier_to_json(content.markers, partial(marker_to_json, types=types), types),
        "totals": [totals.files, totals.rows, totals.bytes, totals.markers],
        "changed": content.changed,
        "replaced": content.replaced,
    }
    return encode_frame("head", body)


def decode_head(data: bytes, *, key: str, types: Types) -> Content:
    body = decode_frame("head", data, key=key)
    return guarded(key, lambda: _content_from_json(body, types))


def _content_from_json(body: dict[str, Any], types: Types) -> Content:
    files, rows, data_bytes, markers = body["totals"]
    return Content(
        version=as_count(body["version"]),
        schema_id=as_count(body["schema"]),
        spec_id=as_count(body["spec"]),
        primary_key=tuple(as_count(i) for i in body["primary_key"]),
        sort_by=tuple(as_count(i) for i in body["sort_by"]),
        stats_columns=tuple(as_count(i) for i in body["stats_columns"]),
        files=_tier_from_json(body["files"], partial(file_from_json, types=types), types),
        markers=_tier_from_json(body["markers"], partial(marker_from_json, types=types), types),
        totals=Totals(as_count(files), as_count(rows), as_count(data_bytes), as_count(markers)),
        changed=as_count(body["changed"]),
        replaced=as_count(body["replaced"]),
    )


def _tier_to_json(tier: Tier[T], entry: Callable[[T], Any], types: Types) -> dict[str, Any]:
    return {
        "segments": [_segment_to_json(s, types) for s in tier.segments],
        "inline": list(map(entry, tier.inline)),
    }


def _tier_from_json(found: dict[str, Any], entry: Callable[[Any], T], types: Types) -> Tier[T]:
    return Tier(
        tuple(_segment_from_json(s, types) for s in found["segments"]),
        tuple(map(entry, found["inline"])),
    )


def _segment_to_json(segment: Segment, types: Types) -> list[Any]:
    return trim(
        [
            segment.id,
            segment.count,
            segment.size,
            bytes_to_text(segment.dead.serialize()) if segment.dead else None,
            segment.sequence,
            segment.rows or None,
            segment.bytes or None,
            segment.first_us,
            segment.last_us,
            stats_to_json(segment.stats, segment.schema_id, types),
            segment.schema_id or None,
            segment.level or None,
            segment.settled or None,
        ]
    )


def _segment_from_json(found: list[Any], types: Types) -> Segment:
    (
        segment_id, count, size, dead, sequence, rows, data_bytes, first, last, stats, schema_id,
        level, settled,
    ) = pad(found, 13)  # fmt: skip
    if level not in (None, 1):
        raise NewerFormat(f"a reference of level {level}")
    return Segment(
        id=as_text(segment_id),
        count=as_count(count),
        size=as_count(size),
        dead=NO_DEAD if dead is None else FrozenBitMap.deserialize(bytes_from_text(dead)),
        sequence=optional(as_count, sequence),
        rows=rows or 0,
        bytes=data_bytes or 0,
        first_us=optional(as_count, first),
        last_us=optional(as_count, last),
        stats=stats_from_json(stats or {}, schema_id or 0, types),
        schema_id=schema_id or 0,
        level=level or 0,
        settled=optional(as_count, settled) or 0,
    )


def _commit_to_json(commit: Commit) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": commit.id,
        "operation": commit.operation,
        "time_us": commit.time_us,
    }
    if commit.request is not None:
        found["request"] = commit.request
    if commit.branch is not None:
        found["branch"] = commit.branch
    # Null counts are written (a constant-time delete does not know its rows), zeroes are not.
    found |= {n: getattr(commit, n) for n in _COMMIT_COUNTS if getattr(commit, n) != 0}
    return found


def _commit_from_json(found: dict[str, Any]) -> Commit:
    return Commit(
        id=as_text(found["id"]),
        operation=as_text(found["operation"]),
        time_us=as_count(found["time_us"]),
        request=optional(as_text, found.get("request")),
        branch=optional(as_text, found.get("branch")),
        **{n: optional(as_count, found.get(n, 0)) for n in _COMMIT_COUNTS},  # type: ignore[arg-type]
    )


def _erasure_to_json(erasure: Erasure) -> dict[str, Any]:
    return {
        "id": erasure.id,
        "predicate": optional(predicate_to_json, erasure.predicate),
        "text": erasure.text,
        "phase": erasure.phase,
        "opened_version": erasure.opened_version,
        "opened_us": erasure.opened_us,
        "swept_us": erasure.swept_us,
        "objects": erasure.objects,
        "rows": erasure.rows,
        "deleted": erasure.deleted,
        "digest": erasure.digest,
        "phase_version": erasure.phase_version,
    }


def _erasure_from_json(found: dict[str, Any]) -> Erasure:
    return Erasure(
        id=as_text(found["id"]),
        predicate=optional(predicate_from_json, found["predicate"]),
        text=as_text(found["text"]),
        phase=as_text(found["phase"]),
        opened_version=as_count(found["opened_version"]),
        opened_us=as_count(found["opened_us"]),
        swept_us=optional(as_count, found["swept_us"]),
        objects=as_count(found["objects"]),
        rows=as_count(found["rows"]),
        deleted=as_count(found["deleted"]),
        digest=optional(as_text, found["digest"]),
        phase_version=as_count(found["phase_version"]),
    )


def _ref_to_json(ref: Ref) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": ref.kind, "version": ref.version}
    if ref.hold:
        found["hold"] = True
    if ref.head is not None:
        found["head"] = [ref.head.id, ref.head.size]
    return found | {n: getattr(ref, n) for n in ("base", "since") if getattr(ref, n)}


def _ref_from_json(found: dict[str, Any]) -> Ref:
    if found["kind"] not in ("tag", "branch"):
        raise NewerFormat(f"a ref of an unknown kind {found['kind']!r}")
    head = found.get("head")
    return Ref(
        kind=found["kind"],
        version=as_count(found["version"]),
        hold=found.get("hold", False),
        head=None if head is None else HeadObject(as_text(head[0]), as_count(head[1])),
        base=as_count(found.get("base", 0)),
        since=as_count(found.get("since", 0)),
    )


def _spec_from_json(found: dict[str, Any]) -> PartitionSpec:
    return PartitionSpec(
        as_count(found["id"]),
        tuple(PartitionField(as_count(s), as_text(t), as_text(n)) for s, t, n in found["fields"]),
    )

"""Metadata objects to bytes and back: the frame around each, schemas, and the snapshot that a pointer, an
archive or a head holds. Leaves and nodes are in `format.leaves`.

Promise: `decode(encode(x)) == x`, equal values give equal bytes, and anything that is not exactly what
docs/FORMAT.md describes raises `CorruptTable` or `NewerFormat` naming the object. The pointer is an
object with names, for people.

docs/FORMAT.md, section 4, has the frame; one that was cut short or edited is refused as a whole.

Schemas are exact in both directions. A schema that could make a reader confuse columns (a duplicate id or
name), or with parts this library does not know, is refused: reading on would give wrong rows.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar, get_args

from pyroaring import FrozenBitMap

from inlay.errors import CorruptTable, InlayError, InvalidRequest, NewerFormat
from inlay.format.entry import (
    ColumnStats,
    DataFile,
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
from inlay.format.predicate import predicate_from_json, predicate_to_json
from inlay.format.schema import (
    Field,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    parse_primitive,
)
from inlay.format.snapshot import (
    FORMAT_VERSION,
    NO_DEAD,
    PARTITION_VALUES,
    Boundary,
    Commit,
    Content,
    Erasure,
    Expiration,
    HeadObject,
    Ledger,
    PartitionField,
    PartitionSpec,
    Ref,
    RefKind,
    SchemaObject,
    Segment,
    Snapshot,
    Tier,
    Totals,
    members_of,
)
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

# Small tables stay readable as text; beyond this, compression is worth more.
PLAIN_MAX_BYTES = 2_048
# No valid metadata object is larger; a decompression bomb is refused before it fills memory.
MAX_FRAME_BYTES = 256 * 1024 * 1024
# How the pointer of a table begins that is prepared for a transaction (`format.transaction`). It is never
# compressed: it mostly consists of frames that are.
PREPARED = b'{"inlay":2,"kind":"prepared",'
# Compressed texts up to this size are parsed before their digest is checked, so that an error says more.
EASY_BYTES = 1024 * 1024
_PIECE_BYTES = 64 * 1024

T = TypeVar("T")

# Kinds that are stored by name, not by column.
_OBJECTS = ("snapshot", "head", "erasure")
_GZIP_MAGIC = b"\x1f\x8b"
_DIGEST_BYTES = 8
_TAIL_BYTES = len(',"digest":""}\n') + 2 * _DIGEST_BYTES
_VERSION = re.compile(rb'\{"inlay":(\d{1,9})[,}]')


def encode_frame(
    kind: str,
    body: dict[str, Any],
    *,
    plain_bytes: int = PLAIN_MAX_BYTES,
    version: int = FORMAT_VERSION,
) -> bytes:
    """An object of `kind` ("snapshot", "files", …) as bytes, compressed if larger than `plain_bytes`.
    Raises `InvalidRequest` where a text in it cannot be UTF-8."""
    text = json.dumps(
        {"inlay": version, "kind": kind, **body},
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
    )
    try:
        head = text[:-1].encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequest("half of a surrogate pair is in a text: it is no character") from None
    plain = head + _ending(_digest(head))
    if len(plain) <= plain_bytes:
        return plain
    # Columns of numbers gain from Huffman codes; the short matches that digits have by chance cost more
    # than they save.
    strategy = zlib.Z_DEFAULT_STRATEGY if kind in _OBJECTS else zlib.Z_FILTERED
    packer = zlib.compressobj(6, zlib.DEFLATED, 31, zlib.DEF_MEM_LEVEL, strategy)
    return packer.compress(plain) + packer.flush()


def decode_frame(
    kind: str,
    data: bytes,
    *,
    key: str,
    parts: Collection[str] | None = None,
    version: int = FORMAT_VERSION,
) -> dict[str, Any]:
    """The body of the frame stored at `key`, of a format version up to `version`.

    Raises `CorruptTable` for anything that is not a whole, unedited frame of this kind, `NewerFormat`
    for one written by a later version of the format, or with others than these `parts`.
    """
    plain = _inflate(data, key) if data[:2] == _GZIP_MAGIC else data
    head, tail = plain[:-_TAIL_BYTES], plain[-_TAIL_BYTES:]
    try:
        body = json.loads(plain)
    except (ValueError, RecursionError) as error:
        raise CorruptTable(
            f"{key} is not whole JSON: it was cut short or edited", key=key
        ) from error
    if not isinstance(body, dict) or not isinstance(body.get("inlay"), int):
        raise CorruptTable(f"{key} is not an object of an Inlay table", key=key)
    # The version is checked first: a later format may have another digest or other kinds.
    if body["inlay"] > version:
        raise _newer(key, body["inlay"])
    if body["inlay"] < 1:
        raise CorruptTable(
            f"{key} has format version {body['inlay']}, from before the format was frozen",
            key=key,
            next_step="Read the table with the library that wrote it, and write its rows to a new table",
        )
    if tail != _ending(_digest(head)):
        raise _damaged(key)
    if body.get("kind") != kind:
        raise CorruptTable(f"{key} is a {body.get('kind')!r}, expected a {kind!r}", key=key)
    for name in ("inlay", "kind", "digest"):
        del body[name]
    unknown = () if parts is None else body.keys() - parts
    if unknown:
        raise NewerFormat(f"{key} has parts this library does not know: {sorted(unknown)}", key=key)
    return body


def _digest(head: bytes) -> str:
    return blake2b(head, digest_size=_DIGEST_BYTES).hexdigest()


def _inflate(data: bytes, key: str) -> bytes:
    """The text of a compressed frame. It is inflated piece by piece first; one larger than `EASY_BYTES` is
    kept only if its digest is right: a decompression bomb costs time but no memory."""
    size = _check_pieces(data, key)
    try:
        return zlib.decompress(data, wbits=31, bufsize=max(size, 1))
    except zlib.error as error:
        raise CorruptTable(f"{key} is damaged gzip", key=key) from error


def _check_pieces(data: bytes, key: str) -> int:
    """The size of the text. Raises `CorruptTable` or `NewerFormat` unless it is small or ends in the
    digest of everything before it."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    opening, held, size = b"", b"", 0
    inflater = zlib.decompressobj(wbits=31)
    rest = data
    try:
        while not inflater.eof and (rest or size == 0):
            piece = inflater.decompress(rest, _PIECE_BYTES)
            if not piece and not inflater.eof and not inflater.unconsumed_tail:
                break  # cut short
            rest = inflater.unconsumed_tail
            size += len(piece)
            if size > MAX_FRAME_BYTES:
                break
            opening = opening or piece[:100]
            held += piece
            digest.update(held[:-_TAIL_BYTES])
            held = held[-_TAIL_BYTES:]
    except zlib.error as error:
        raise CorruptTable(f"{key} is damaged gzip", key=key) from error
    if not inflater.eof or inflater.unused_data:
        raise CorruptTable(
            f"{key} was cut short, is too large or has extra bytes at its end", key=key
        )
    if size <= EASY_BYTES or held == _ending(digest.hexdigest()):
        return size
    if (match := _VERSION.match(opening)) and int(match[1]) > FORMAT_VERSION:
        raise _newer(key, int(match[1]))
    raise _damaged(key)


def _ending(digest: str) -> bytes:
    return f',"digest":"{digest}"}}\n'.encode("ascii")


def _newer(key: str, version: int) -> NewerFormat:
    return NewerFormat(
        f"{key} has format version {version}; this library reads up to {FORMAT_VERSION}", key=key
    )


def _damaged(key: str) -> CorruptTable:
    return CorruptTable(
        f"{key} does not match its own digest: it was edited or damaged",
        key=key,
        next_step="Restore the object from a backup or an earlier object version",
    )


def guarded(key: str, decode: Callable[[], T]) -> T:
    """Turns any failure to decode a well-formed frame into `CorruptTable`."""
    try:
        return decode()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CorruptTable(
            f"{key} does not hold what the format requires: {error}", key=key
        ) from error
    except NewerFormat as error:
        raise error.about(key=key) from error
    except InlayError as error:
        raise CorruptTable(f"{key}: {error.message}", key=key) from error


_FIELD = frozenset(("id", "name", "type", "required", "doc", "default", "partition"))
_SCHEMA = frozenset(("id", "fields", "version"))


def schema_to_json(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"id": schema.id, "fields": list(map(_field_to_json, schema.fields))}
    if schema.version != 1:
        body["version"] = schema.version
    return body


def schema_from_json(body: dict[str, Any]) -> Schema:
    _known(body, _SCHEMA, "a schema")
    fields = _fields_from_json(body["fields"])
    schema = Schema(as_count(body["id"]), fields, as_count(body.get("version", 1)))
    every = [field for _, field in schema.walk()]
    if len({field.id for field in every}) < len(every):
        raise CorruptTable(f"schema {schema.id} has a field id twice")
    placed = [field for field in every if field.in_partition is not None]
    tops = list(schema.in_partition.values())
    if placed != tops or not all(isinstance(field.type, Primitive) for field in tops):
        raise CorruptTable(f"schema {schema.id} has a nested column in a partition")
    return schema


def version_of(schemas: Iterable[Schema]) -> int:
    """The format version of what has these schemas."""
    return PARTITION_VALUES if any(schema.in_partition for schema in schemas) else FORMAT_VERSION


def _field_to_json(field: Field) -> dict[str, Any]:
    match field.type:
        case Primitive():
            kind: Any = str(field.type)
        case Struct(fields):
            kind = {"struct": list(map(_field_to_json, fields))}
        case ListOf(element):
            kind = {"list": _field_to_json(element)}
        case MapOf(key, value):
            kind = {"map": [_field_to_json(key), _field_to_json(value)]}
    body: dict[str, Any] = {"id": field.id, "name": field.name, "type": kind}
    if not field.nullable:
        body["required"] = True
    if field.doc:
        body["doc"] = field.doc
    if field.default is not None and isinstance(field.type, Primitive):
        body["default"] = encode_value(field.type, field.default)
    if field.in_partition is not None:
        body["partition"] = field.in_partition
    return body


def _field_from_json(body: dict[str, Any]) -> Field:
    _known(body, _FIELD, "a field")
    kind = _type_from_json(body["type"])
    default = body.get("default")
    if default is not None and not isinstance(kind, Primitive):
        raise CorruptTable("a field that is not a primitive has a default")
    return Field(
        id=as_count(body["id"]),
        name=as_text(body["name"]),
        type=kind,
        nullable=not body.get("required", False),
        doc=as_text(body.get("doc", "")),
        default=decode_value(kind, default)
        if default is not None and isinstance(kind, Primitive)
        else None,
        in_partition=optional(as_count, body.get("partition")),
    )


def _fields_from_json(bodies: list[Any]) -> tuple[Field, ...]:
    fields = tuple(_field_from_json(f) for f in bodies)
    if len({f.name for f in fields}) < len(fields):
        raise CorruptTable("two sibling columns have the same name")
    return fields


def _type_from_json(body: Any) -> Type:
    if isinstance(body, str):
        return parse_primitive(body)
    if isinstance(body, dict) and len(body) == 1:
        if "struct" in body:
            return Struct(_fields_from_json(body["struct"]))
        if "list" in body:
            return ListOf(_field_from_json(body["list"]))
        if "map" in body:
            key, value = body["map"]
            return MapOf(_field_from_json(key), _field_from_json(value))
    raise CorruptTable(f"not a type: {str(body)[:80]}")


def _known(body: dict[str, Any], members: Collection[str], what: str) -> None:
    unknown = body.keys() - members
    if unknown:
        raise NewerFormat(f"{what} has members this library does not know: {sorted(unknown)}")


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
# The members of a snapshot, in their order.
_SNAPSHOT = (
    *("table", "version", "commit", "schemas", "schema", "last_field_id", "specs", "spec"),
    *("primary_key", "sort_by", "stats_columns", "properties", "refs", "files", "markers"),
    *("ledger", "erasures", "boundary", "expired", "time_index", "totals"),
    *("changed", "replaced", "schema_objects"),
)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    types = Types(snapshot.schemas)
    apart = snapshot.separate_schemas
    body: dict[str, Any] = {
        **_content_to_json(snapshot),
        "files": _tier_to_json(snapshot.files, partial(file_to_json, types=types), types),
        "markers": _tier_to_json(snapshot.markers, partial(marker_to_json, types=types), types),
        "table": snapshot.table_id,
        "commit": _commit_to_json(snapshot.commit),
        "schemas": [schema_to_json(s) for s in snapshot.schemas if s.id not in apart],
        "last_field_id": snapshot.last_field_id,
        "specs": [
            {"id": spec.id, "fields": [[f.source, f.transform, f.name] for f in spec.fields]}
            for spec in snapshot.specs
        ],
        "properties": dict(sorted(snapshot.properties.items())),
        "refs": {name: _ref_to_json(ref) for name, ref in sorted(snapshot.refs.items())},
        "ledger": {
            **_tier_to_json(snapshot.ledger.records, record_to_json, types),
            "horizon_us": snapshot.ledger.horizon_us,
            "streams": dict(sorted(snapshot.ledger.streams.items())),
        },
        "erasures": [_erasure_to_json(e) for e in snapshot.erasures],
        "boundary": [snapshot.boundary.version, snapshot.boundary.time_us],
        "expired": [[e.through, e.time_us] for e in snapshot.expired],
        "time_index": [list(point) for point in snapshot.time_index],
    }
    if snapshot.schema_objects:
        body["schema_objects"] = [[o.id, o.size, list(o.ids)] for o in snapshot.schema_objects]
    in_order = {name: body[name] for name in _SNAPSHOT if name in body}
    return encode_frame("snapshot", in_order, version=version_of(snapshot.schemas))


def no_separate_schemas(stored: SchemaObject) -> tuple[Schema, ...]:
    """For snapshots known to carry all their schemas."""
    raise CorruptTable(f"the schemas {stored.ids} are stored separately, in {stored.id}")


def decode_snapshot(
    data: bytes,
    *,
    key: str,
    apart: SchemaLoader = no_separate_schemas,
    before: Snapshot | None = None,
) -> Snapshot:
    """`apart` loads the schemas that the snapshot does not carry itself. `before` is an earlier one of the
    same table: what has not changed since is taken from it."""
    body = decode_frame("snapshot", data, key=key, parts=_SNAPSHOT, version=PARTITION_VALUES)
    objects = guarded(
        key,
        lambda: tuple(
            SchemaObject(as_text(i), as_count(size), tuple(map(as_count, ids)))
            for i, size, ids in body.get("schema_objects", ())
        ),
    )
    # Outside the guard: damage in such an object is not damage in this one.
    others = [schema for stored in objects for schema in apart(stored)]
    return guarded(key, lambda: _snapshot_from_json(body, objects, others, before))


def encode_schemas(schemas: Iterable[Schema]) -> bytes:
    schemas = tuple(schemas)
    body = {"schemas": [schema_to_json(s) for s in schemas]}
    return encode_frame("schemas", body, version=version_of(schemas))


def decode_schemas(data: bytes, stored: SchemaObject, *, key: str) -> tuple[Schema, ...]:
    """The schemas in the object that a snapshot refers to as `stored`."""
    body = decode_frame("schemas", data, key=key, version=PARTITION_VALUES)
    schemas = guarded(key, lambda: tuple(schema_from_json(s) for s in body["schemas"]))
    if tuple(s.id for s in schemas) != stored.ids or len(data) != stored.size:
        raise CorruptTable(f"{key} holds other schemas than the snapshot states", key=key)
    return schemas


def _snapshot_from_json(
    body: dict[str, Any],
    objects: tuple[SchemaObject, ...],
    others: list[Schema],
    before: Snapshot | None,
) -> Snapshot:
    carried = [schema_from_json(s) for s in body["schemas"]]
    schemas = tuple(sorted((*others, *carried), key=lambda s: s.id))
    if len({s.id for s in schemas}) < len(schemas):
        raise CorruptTable("the snapshot has a schema twice")
    types = Types(schemas)
    ledger = body["ledger"]
    boundary_version, boundary_us = body["boundary"]
    alike = before is not None and before.schemas == schemas
    entries = before.files.inline if before is not None and alike else ()
    content = _content_from_json(body, types, {entry.key: entry for entry in entries})
    snapshot = Snapshot(
        **members_of(content),
        table_id=as_text(body["table"]),
        commit=_commit_from_json(body["commit"]),
        schemas=schemas,
        last_field_id=as_count(body["last_field_id"]),
        schema_objects=objects,
        specs=tuple(_spec_from_json(s) for s in body["specs"]),
        properties={as_text(k): as_text(v) for k, v in body["properties"].items()},
        refs={name: _ref_from_json(ref) for name, ref in body["refs"].items()},
        ledger=Ledger(
            records=_tier_from_json(ledger, record_from_json, types),
            horizon_us=as_count(ledger["horizon_us"]),
            streams={as_text(k): int(v) for k, v in ledger["streams"].items()},
        ),
        erasures=tuple(_erasure_from_json(e) for e in body["erasures"]),
        boundary=Boundary(as_count(boundary_version), optional(as_count, boundary_us)),
        expired=tuple(Expiration(as_count(t), optional(as_count, us)) for t, us in body["expired"]),
        time_index=tuple((as_count(v), as_count(us)) for v, us in body["time_index"]),
    )
    if snapshot.version < 1 or all(s.id != snapshot.schema_id for s in schemas):
        raise CorruptTable("the snapshot names an impossible version or schema")
    known = {s.id for s in schemas}, {s.id for s in snapshot.specs}
    named_ids = [(snapshot.schema_id, snapshot.spec_id)]
    named_ids += [(f.schema_id, f.spec_id) for f in snapshot.files.inline]
    if not all(schema in known[0] and spec in known[1] for schema, spec in named_ids):
        raise CorruptTable("the snapshot names a schema or partition spec that it does not contain")
    return snapshot


def encode_head(content: Content, types: Types) -> bytes:
    """The content of a ref, encoded as the immutable object that its head refers to."""
    body = {
        **_content_to_json(content),
        "files": _tier_to_json(content.files, partial(file_to_json, types=types), types),
        "markers": _tier_to_json(content.markers, partial(marker_to_json, types=types), types),
    }
    return encode_frame("head", {name: body[name] for name in _SNAPSHOT if name in body})


def decode_head(data: bytes, *, key: str, types: Types) -> Content:
    body = decode_frame("head", data, key=key)
    return guarded(key, lambda: _content_from_json(body, types, {}))


def _content_to_json(content: Content) -> dict[str, Any]:
    """But for its tiers."""
    totals = content.totals
    return {
        "version": content.version,
        "schema": content.schema_id,
        "spec": content.spec_id,
        "primary_key": list(content.primary_key),
        "sort_by": list(content.sort_by),
        "stats_columns": list(content.stats_columns),
        "totals": [totals.files, totals.rows, totals.bytes, totals.markers],
        "changed": content.changed,
        "replaced": content.replaced,
    }


def _content_from_json(
    body: dict[str, Any], types: Types, known: Mapping[str, DataFile]
) -> Content:
    files, rows, data_bytes, markers = body["totals"]
    return Content(
        version=as_count(body["version"]),
        schema_id=as_count(body["schema"]),
        spec_id=as_count(body["spec"]),
        primary_key=tuple(map(as_count, body["primary_key"])),
        sort_by=tuple(map(as_count, body["sort_by"])),
        stats_columns=tuple(map(as_count, body["stats_columns"])),
        files=_tier_from_json(
            body["files"], partial(file_from_json, types=types, known=known), types
        ),
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


def _tier_from_json(body: dict[str, Any], entry: Callable[[Any], T], types: Types) -> Tier[T]:
    return Tier(
        tuple(_segment_from_json(s, types) for s in body["segments"]),
        tuple(map(entry, body["inline"])),
    )


# The members of a reference to a segment, in the order of its JSON (docs/FORMAT.md, section 5).
SEGMENT_MEMBERS = (
    *("id", "entries", "size", "dead", "sequence", "rows", "bytes", "first", "last"),
    *("stats", "schema", "level", "settled"),
)


def segment_values(segment: Segment) -> dict[str, Any]:
    """Those of a reference, but for its statistics."""
    return {
        "id": segment.id,
        "entries": segment.count,
        "size": segment.size,
        "dead": bytes_to_text(segment.dead.serialize()) if segment.dead else None,
        "sequence": segment.sequence,
        "rows": segment.rows or None,
        "bytes": segment.bytes or None,
        "first": segment.first_us,
        "last": segment.last_us,
        "schema": segment.schema_id or None,
        "level": segment.level or None,
        "settled": segment.settled or None,
    }


def segment_of(values: Mapping[str, Any], stats: Mapping[int, ColumnStats]) -> Segment:
    """The inverse. Values have been checked; level and number of settled entries may be left out."""
    dead = values["dead"]
    return Segment(
        id=values["id"],
        count=values["entries"],
        size=values["size"],
        dead=NO_DEAD if dead is None else FrozenBitMap.deserialize(bytes_from_text(dead)),
        sequence=values["sequence"],
        rows=values["rows"] or 0,
        bytes=values["bytes"] or 0,
        first_us=values["first"],
        last_us=values["last"],
        stats=stats,
        schema_id=values["schema"] or 0,
        level=values.get("level") or 0,
        settled=values.get("settled") or 0,
    )


def _segment_to_json(segment: Segment, types: Types) -> list[Any]:
    stats = stats_to_json(segment.stats, segment.schema_id, types)
    values = {**segment_values(segment), "stats": stats}
    return trim([values[name] for name in SEGMENT_MEMBERS])


def _segment_from_json(body: list[Any], types: Types) -> Segment:
    values = dict(zip(SEGMENT_MEMBERS, pad(body, len(SEGMENT_MEMBERS)), strict=True))
    if values["level"] not in (None, 1):
        raise NewerFormat(f"a reference of level {values['level']}")
    as_text(values["id"])
    for name in ("entries", "size"):
        as_count(values[name])
    for name in ("sequence", "first", "last", "settled"):
        optional(as_count, values[name])
    return segment_of(values, stats_from_json(values["stats"] or {}, values["schema"] or 0, types))


def _commit_to_json(commit: Commit) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": commit.id,
        "operation": commit.operation,
        "time_us": commit.time_us,
    }
    if commit.request is not None:
        body["request"] = commit.request
    if commit.branch is not None:
        body["branch"] = commit.branch
    # Null counts are written (a constant-time delete does not know its rows), zeroes are not.
    body |= {n: getattr(commit, n) for n in _COMMIT_COUNTS if getattr(commit, n) != 0}
    return body


def _commit_from_json(body: dict[str, Any]) -> Commit:
    return Commit(
        id=as_text(body["id"]),
        operation=as_text(body["operation"]),
        time_us=as_count(body["time_us"]),
        request=optional(as_text, body.get("request")),
        branch=optional(as_text, body.get("branch")),
        **{n: optional(as_count, body.get(n, 0)) for n in _COMMIT_COUNTS},  # type: ignore[arg-type]
    )


# The members of an erasure, and how each is checked.
_ERASURE: Mapping[str, Callable[[Any], Any]] = {
    "id": as_text,
    "predicate": partial(optional, predicate_from_json),
    "text": as_text,
    "phase": as_text,
    "opened_version": as_count,
    "opened_us": as_count,
    "swept_us": partial(optional, as_count),
    "objects": as_count,
    "rows": as_count,
    "deleted": as_count,
    "digest": partial(optional, as_text),
    "phase_version": as_count,
}


def _erasure_to_json(erasure: Erasure) -> dict[str, Any]:
    members = {name: getattr(erasure, name) for name in _ERASURE}
    return {**members, "predicate": optional(predicate_to_json, erasure.predicate)}


def _erasure_from_json(body: dict[str, Any]) -> Erasure:
    return Erasure(**{name: read(body[name]) for name, read in _ERASURE.items()})


def _ref_to_json(ref: Ref) -> dict[str, Any]:
    body: dict[str, Any] = {"kind": ref.kind, "version": ref.version}
    if ref.hold:
        body["hold"] = True
    if ref.head is not None:
        body["head"] = [ref.head.id, ref.head.size]
    return body | {n: getattr(ref, n) for n in ("base", "since") if getattr(ref, n)}


def _ref_from_json(body: dict[str, Any]) -> Ref:
    if body["kind"] not in get_args(RefKind):
        raise NewerFormat(f"a ref of an unknown kind {body['kind']!r}")
    head = body.get("head")
    return Ref(
        kind=body["kind"],
        version=as_count(body["version"]),
        hold=body.get("hold", False),
        head=None if head is None else HeadObject(as_text(head[0]), as_count(head[1])),
        base=as_count(body.get("base", 0)),
        since=as_count(body.get("since", 0)),
    )


def _spec_from_json(body: dict[str, Any]) -> PartitionSpec:
    return PartitionSpec(
        as_count(body["id"]),
        tuple(PartitionField(as_count(s), as_text(t), as_text(n)) for s, t, n in body["fields"]),
    )

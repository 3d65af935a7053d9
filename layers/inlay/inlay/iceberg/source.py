"""An Iceberg table of any writer, in Inlay's terms: columns, partition specs, live files and deletes.

Promise: what is returned means to Inlay exactly what it means to Iceberg (specification, versions 1 to 3);
what Inlay cannot express is refused by name (`UnsupportedTable`), damaged metadata is `CorruptTable`. Pure:
bytes in, values out. Nothing here trusts a number of the metadata beyond its bounds: depth, counts and
sizes are limited, and paths are only passed on.

Field ids stay what they are, so a column keeps its identity under every name it ever had.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from inlay.errors import CorruptTable, InlayError, InvalidRequest, UnsupportedTable
from inlay.format.partition import (
    MAX_FIELDS,
    Transform,
    Written,
    parse_transform,
    result_type,
    written,
)
from inlay.format.schema import Field, Primitive, Schema, Type, Value
from inlay.format.snapshot import PartitionField
from inlay.format.values import EXACT, decode_value, physical, to_float32
from inlay.iceberg.manifest import DATA, Manifest, Read, decode_manifest
from inlay.plan.foreign_columns import MAX_DEPTH, ForeignColumns, Part, Path
from inlay.record import Record, field

VERSIONS = (1, 2, 3)


class SourceSpec(Record):
    """A partition spec. `fields` are Inlay's; None where it cannot be one, for `reason`. `kept` are, for
    each of them, its place among the source's fields, its transform and the type of its source."""

    id: int
    count: int  # fields in the source, void ones included
    fields: tuple[PartitionField, ...] | None
    kept: tuple[tuple[int, Transform, Primitive], ...] = ()
    identity: tuple[tuple[int, int], ...] = ()  # (place, source) of each identity field
    partitioned: bool = False
    reason: str = ""
    decimals: tuple[int, ...] = ()  # places whose values are decimals, as bytes

    def values(self, record: Mapping[str, Any]) -> tuple[Written | None, ...]:
        """A file's partition as Inlay writes it, from its record in a manifest."""
        raw = self.raw(record)
        return tuple(_partition_value(raw[at], how, kind) for at, how, kind in self.kept)

    def constant(self, raw: Any, kind: Type) -> Value | None:
        """The value of a column that an identity field names, in every row of a file."""
        if not isinstance(kind, Primitive):
            raise UnsupportedTable("a partition field is of a nested column")
        raw_value = _partition_value(raw, Transform("identity"), kind)
        if isinstance(raw, float) and kind.is_float:
            return raw  # its partition is that of 0.0, a row keeps the sign of -0.0
        return None if raw_value is None else decode_value(kind, raw_value)

    def raw(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        values = tuple(record.values())
        if len(values) != self.count:
            raise CorruptTable(
                f"a manifest has {len(values)} partition values, spec {self.id} has {self.count} fields"
            )
        return values


class SourceTable(Record, kw_only=True):
    """Table metadata. `names` are by field id the names that files without ids may use (None: the table has
    no name mapping); `snapshot_id` and `manifest_list` are None for a table without rows."""

    schema: Schema
    last_field_id: int
    uuids: tuple[int, ...]
    key: tuple[int, ...]
    names: Mapping[int, tuple[str, ...]] | None
    specs: Mapping[int, SourceSpec]
    spec_id: int
    snapshot_id: int | None = None
    manifest_list: str | None = None
    notes: tuple[str, ...] = ()


def read_metadata(data: bytes) -> SourceTable:
    """The content of a metadata file. Raises `UnsupportedTable`, `CorruptTable`."""
    try:
        body = json.loads(data)
        return _table(body)
    except InlayError:
        raise
    except (
        *(ValueError, KeyError, IndexError, TypeError, AttributeError),
        *(RecursionError, StopIteration, OverflowError),
    ) as error:
        raise CorruptTable(
            f"Iceberg's table metadata cannot be read: {type(error).__name__} {str(error)[:80]}",
            next_step="Name the newest metadata file of the table, *.metadata.json",
        ) from None


def _table(body: Mapping[str, Any]) -> SourceTable:
    version = int(body["format-version"])
    if version not in VERSIONS:
        raise UnsupportedTable(f"the table has Iceberg's format version {version}, not 1, 2 or 3")
    properties = body.get("properties") or {}
    if body.get("encryption-keys") or "encryption.key-id" in properties:
        raise _encrypted()
    schemas = body.get("schemas") or [body["schema"]]
    current = body.get("current-schema-id", schemas[0].get("schema-id", 0))
    chosen = next(s for s in schemas if s.get("schema-id", 0) == current)
    columns = _Columns()
    schema = Schema(0, columns.fields(chosen["fields"], ()))
    ids = [f.id for _, f in schema.walk()]
    last = int(body["last-column-id"])
    if len(set(ids)) < len(ids) or max(ids, default=0) > last or min(ids, default=1) < 1:
        raise CorruptTable("Iceberg's schema has a field id twice, or beyond its last one")
    if not schema.fields:
        raise UnsupportedTable("the table has no columns")
    key = tuple(chosen.get("identifier-field-ids") or ())
    top = {f.id for f in schema.fields if isinstance(f.type, Primitive)}
    notes = list(columns.notes)
    if not set(key) <= top:
        notes.append("the identifier is within a nested column: the table has no primary key")
        key = ()
    mapping = properties.get("schema.name-mapping.default")
    listed = body.get("partition-specs")
    if listed is None:
        listed = [{"spec-id": 0, "fields": body.get("partition-spec") or []}]
    specs = {int(s["spec-id"]): _spec(s, schema) for s in listed}
    spec_id = int(body.get("default-spec-id", 0))
    snapshot = _current_snapshot(body)
    if snapshot is not None and snapshot.get("key-id"):
        raise _encrypted()
    if snapshot is not None and "manifest-list" not in snapshot:
        raise UnsupportedTable(
            "the snapshot lists its manifests in itself, as only the first writers did",
            next_step="Commit to the table with a current writer of Iceberg, then adopt it",
        )
    if version >= 3:
        notes.append("row ids stay behind: rows have no lineage in Inlay")
    reason = specs[spec_id].reason
    if reason:
        notes.append(f"the table is not partitioned: {reason}")
    return SourceTable(
        schema=schema,
        last_field_id=last,
        uuids=tuple(columns.uuids),
        key=key,
        names=None if mapping is None else dict(_mapped(json.loads(mapping), 0)),
        specs=specs,
        spec_id=spec_id,
        snapshot_id=None if snapshot is None else int(snapshot["snapshot-id"]),
        manifest_list=None if snapshot is None else str(snapshot["manifest-list"]),
        notes=tuple(notes),
    )


def _current_snapshot(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    current = body.get("current-snapshot-id")
    if current is None or current == -1:
        return None
    for snapshot in body.get("snapshots") or ():
        if snapshot["snapshot-id"] == current:
            return dict(snapshot)
    raise CorruptTable("Iceberg's metadata lacks the snapshot that it says is current")


def _encrypted() -> UnsupportedTable:
    return UnsupportedTable(
        "the table is encrypted",
        next_step="Copy it to a table without encryption by an engine that has its keys",
    )


# -- columns --------------------------------------------------------------------------------------

_SIMPLE = {
    "boolean": Primitive("bool"),
    "int": Primitive("int32"),
    "long": Primitive("int64"),
    "float": Primitive("float"),
    "double": Primitive("double"),
    "date": Primitive("date"),
    "time": Primitive("time", unit="us"),
    "timestamp": Primitive("timestamp", unit="us"),
    "timestamptz": Primitive("timestamptz", unit="us"),
    "timestamp_ns": Primitive("timestamp", unit="ns"),
    "timestamptz_ns": Primitive("timestamptz", unit="ns"),
    "string": Primitive("string"),
    "uuid": Primitive("fixed", precision=16),
    "binary": Primitive("binary"),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_FIXED = re.compile(r"fixed\[\s*(\d{1,9})\s*\]")


class _Columns(ForeignColumns):
    """`uuids` are the fields that hold UUIDs."""

    source = "Iceberg"
    list_type = "list"

    def __init__(self) -> None:
        super().__init__()
        self.uuids: list[int] = []

    def field(self, body: Mapping[str, Any], path: Path) -> Field:
        kind = self.type_of(body["type"], path, int(body["id"]))
        default = body.get("initial-default")
        if default != body.get("write-default", default):
            self.notes.append(
                f"column {'.'.join(path)!r}: Iceberg's write-default differs from its initial-default, "
                "which is the one that Inlay takes over"
            )
        value: Value | None = None
        if default is not None:
            if not isinstance(kind, Primitive):
                raise UnsupportedTable(
                    f"column {'.'.join(path)!r} is nested and has a default",
                    next_step="Rewrite the source's data files, so that all of them have the column",
                )
            value = json_value(kind, default, is_uuid=body["type"] == "uuid")
        return Field(
            int(body["id"]),
            str(body["name"]),
            kind,
            nullable=not body.get("required", False),
            doc=str(body.get("doc") or ""),
            default=value,
        )

    def part(self, body: Mapping[str, Any], name: Part, path: Path) -> Field:
        field_id = int(body[f"{name}-id"])
        kind = self.type_of(body[name], (*path, name), field_id)
        nullable = name != "key" and not body.get(f"{name}-required", False)
        return Field(field_id, name, kind, nullable=nullable)

    def leaf(self, name: str, field_id: int) -> Primitive | None:
        if name == "uuid":
            self.uuids.append(field_id)
        return primitive(name)


def primitive(name: str) -> Primitive | None:
    """Inlay's type for one of Iceberg's; None where there is none."""
    if (simple := _SIMPLE.get(name)) is not None:
        return simple
    if match := _DECIMAL.fullmatch(name):
        precision, scale = int(match[1]), int(match[2])
        return Primitive("decimal", precision, scale) if 0 < precision <= 38 >= scale else None
    if match := _FIXED.fullmatch(name):
        return Primitive("fixed", int(match[1])) if int(match[1]) else None
    return None


# -- single values --------------------------------------------------------------------------------

_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")
_PER_SECOND = {"us": 1_000_000, "ns": 1_000_000_000}


def json_value(kind: Primitive, body: Any, *, is_uuid: bool = False) -> Value:
    """A default in the JSON single-value form (appendix D). Raises `CorruptTable`."""
    try:
        value = body
        match kind.family:
            case "decimal":
                value = Decimal(body)
            case "bytes":
                value = bytes.fromhex(body.replace("-", "") if is_uuid else body)
            case "date":
                value = (date.fromisoformat(body) - date(1970, 1, 1)).days
            case "time":
                value = _of_day(body, kind.unit)
            case "timestamp":
                day, _, rest = body.partition("T")
                if kind.name == "timestamptz":
                    rest, zoned = re.subn(r"(Z|[+-]00:00)$", "", rest)
                    if not zoned:
                        raise ValueError
                days = (date.fromisoformat(day) - date(1970, 1, 1)).days
                value = days * 86_400 * _PER_SECOND[kind.unit] + _of_day(rest, kind.unit)
            case "float":
                value = to_float32(float(body)) if kind.name == "float" else float(body)
            case "bool" | "integer" | "text":
                pass  # as JSON has it
        return physical(kind, value)
    except (ValueError, TypeError, AttributeError, InvalidOperation, InvalidRequest):
        raise CorruptTable(f"Iceberg's metadata has a default that is no {kind}") from None


def _of_day(text: str, unit: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3] or 0)
    fraction = int((match[4] or "").ljust(9, "0")) // (1_000_000_000 // _PER_SECOND[unit])
    return (hours * 3600 + minutes * 60 + seconds) * _PER_SECOND[unit] + fraction


def _partition_value(raw: Any, transform: Transform, source: Primitive) -> Written | None:
    if raw is None:
        return None
    kind = result_type(transform, source)
    assert kind is not None
    try:
        value = raw
        if kind.family == "decimal":
            unscaled = (
                int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
            )
            value = Decimal(unscaled).scaleb(-kind.scale, EXACT)
        elif kind.family == "bytes":
            value = bytes(raw)
        return written(kind, physical(kind, value))
    except (ValueError, TypeError, ArithmeticError, InvalidRequest):
        raise CorruptTable(f"a manifest has a partition value that is no {kind}") from None


# -- partition specs ------------------------------------------------------------------------------


def _spec(body: Mapping[str, Any], schema: Schema) -> SourceSpec:
    listed = list(body["fields"])
    columns = {f.id: f for f in schema.fields}
    fields: list[PartitionField] = []
    kept: list[tuple[int, Transform, Primitive]] = []
    identity: list[tuple[int, int]] = []
    decimals: list[int] = []
    reason = ""
    for at, listed_field in enumerate(listed):
        name, text = str(listed_field["name"]), str(listed_field["transform"])
        if text == "void":
            continue
        if "source-id" not in listed_field:
            reason = f"partition field {name!r} is of several columns"
            continue
        source = int(listed_field["source-id"])
        column = columns.get(source)
        if text == "identity":
            identity.append((at, source))
        if column is not None and str(column.type).startswith("decimal"):
            decimals.append(at)  # the number of a bucket is an integer, never bytes
        if column is None or not isinstance(column.type, Primitive):
            reason = f"partition field {name!r} is of a nested or dropped column"
            continue
        try:
            transform = parse_transform(text)
        except InlayError:
            reason = f"Inlay lacks the transform {text[:40]!r} of partition field {name!r}"
            continue
        if result_type(transform, column.type) is None:
            reason = f"Inlay has no {text} of {column.type} (partition field {name!r})"
            continue
        if any((f.source, f.transform) == (source, text) for f in fields):
            continue  # the same values once more
        fields.append(PartitionField(source, text, name))
        kept.append((at, transform, column.type))
    if len(fields) > MAX_FIELDS:
        reason = f"a spec has more than {MAX_FIELDS} fields"
    partitioned = any(listed_field["transform"] != "void" for listed_field in listed)
    usable = not reason
    return SourceSpec(
        int(body["spec-id"]),
        len(listed),
        tuple(fields) if usable else None,
        tuple(kept) if usable else (),
        tuple(identity),
        partitioned,
        reason,
        tuple(decimals),
    )


def _mapped(bodies: Any, depth: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    if depth > MAX_DEPTH:
        raise CorruptTable("Iceberg's name mapping is nested too deeply")
    for body in bodies:
        if body.get("field-id") is not None:
            yield int(body["field-id"]), tuple(str(n) for n in body["names"])
        yield from _mapped(body.get("fields") or (), depth + 1)


# -- manifests ------------------------------------------------------------------------------------


class SourceFile(Record, kw_only=True):
    """A live file of a manifest: data, or deletes."""

    path: str
    size: int
    rows: int
    content: int
    file_format: str
    sequence: int
    spec: SourceSpec
    raw: tuple[Any, ...]  # its partition, as the source has it
    partition: tuple[Written | None, ...] = ()
    referenced: str | None = None
    offset: int | None = None
    length: int | None = None
    equality_ids: tuple[int, ...] = field(default=())

    @property
    def place(self) -> tuple[int, tuple[Any, ...]]:
        """Its spec and partition, equal where Iceberg's are: NaN to NaN, -0.0 not to 0.0, and decimals in
        any number of bytes, which grows when the column is widened."""

        def exact(at: int, value: Any) -> Any:
            if isinstance(value, bytes) and at in self.spec.decimals:
                return int.from_bytes(value, "big", signed=True)
            return repr(value) if isinstance(value, float) else value

        return self.spec.id, tuple(exact(at, value) for at, value in enumerate(self.raw))


def read_manifest(data: bytes, manifest: Manifest, table: SourceTable) -> Iterator[SourceFile]:
    """The live files of a manifest. Raises `UnsupportedTable`, `CorruptTable`."""
    spec = table.specs.get(manifest.spec_id)
    if spec is None:
        raise CorruptTable(
            f"a manifest is of partition spec {manifest.spec_id}, which is not there"
        )
    for read in decode_manifest(data, manifest):
        yield _source_file(read, spec, manifest)


def _source_file(read: Read, spec: SourceSpec, manifest: Manifest) -> SourceFile:
    entry, record = read.entry, read.record
    if record.get("key_metadata"):
        raise _encrypted()
    numbers = (entry.size, entry.rows, entry.sequence, entry.offset or 0, entry.length or 0)
    if any(type(n) is not int or n < 0 for n in numbers) or not isinstance(entry.path, str):
        raise CorruptTable("a manifest has an entry with a negative size, or without a path")
    if (entry.content == DATA) != (manifest.content == DATA):
        raise CorruptTable("a manifest has data files among deletes, or deletes among data files")
    partition = record.get("partition") or {}
    return SourceFile(
        path=entry.path,
        size=entry.size,
        rows=entry.rows,
        content=entry.content,
        file_format=str(entry.file_format).upper(),
        sequence=entry.sequence,
        spec=spec,
        raw=spec.raw(partition),
        partition=spec.values(partition),
        referenced=entry.referenced,
        offset=entry.offset,
        length=entry.length,
        equality_ids=tuple(record.get("equality_ids") or ()),
    )

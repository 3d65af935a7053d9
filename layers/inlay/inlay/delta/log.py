"""A Delta table's log in Inlay's terms: columns, live files, deletion vectors.

Promise: what is returned means to Inlay exactly what it means to Delta (PROTOCOL.md of delta-io/delta,
reader versions 1 to 3); a reader feature that is not known here is refused by name, as the protocol asks.
Pure: actions in, values out. Paths are only decoded; whoever opens them decides what may be read.

Columns have the ids of the column mapping where there is one, so they keep them over renames; else they are
numbered. Columns within lists and maps have none in Delta, and are numbered after all others.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from base64 import b85decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, time
from decimal import Decimal
from itertools import count
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from inlay.errors import CorruptTable, InlayError, InvalidRequest, UnsupportedTable
from inlay.format.partition import MAX_FIELDS, Written, written
from inlay.format.schema import Field, Primitive, Schema, Value
from inlay.format.snapshot import UNPARTITIONED, PartitionField, PartitionSpec
from inlay.format.values import physical, to_float32
from inlay.plan.foreign_columns import MAX_DEPTH, ForeignColumns, Part, Path
from inlay.record import Record, field

LOG = "_delta_log/"
# What a reader has to know. Type widening is checked with each file: what Inlay does not widen is refused.
KNOWN_FEATURES = frozenset(
    (
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    )
)
# Writers of the table keep these promises; Inlay does not know of them.
_PROMISES = re.compile(r"delta\.(constraints\..+|enableRowTracking|enableChangeDataFeed)")
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
# By UUID: the checkpoint's own actions, which name sidecars with the files (v2Checkpoint).
_BY_UUID = re.compile(
    r"(\d{20})\.checkpoint\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.(?:json|parquet)"
)
SIDECARS = "_sidecars/"
# Z85 (ZeroMQ RFC 32) and the alphabet that Python decodes.
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85 = bytes.maketrans(_Z85, _B85)


# -- which objects --------------------------------------------------------------------------------


class LogFiles(Record):
    """What to read, by name below the log's folder: parts of a checkpoint, then the commits after it."""

    version: int
    checkpoint: tuple[str, ...]
    commits: tuple[str, ...]


def choose_files(names: Iterable[str]) -> LogFiles:
    """The newest version of a log whose folder lists `names`. Raises `CorruptTable` for a gap."""
    commits: dict[int, str] = {}
    parts: dict[tuple[int, int], dict[int, str]] = {}
    for name in names:
        if match := _COMMIT.fullmatch(name):
            commits[int(match[1])] = name
        elif match := _CHECKPOINT.fullmatch(name):
            of = int(match[3] or 1)
            parts.setdefault((int(match[1]), of), {})[int(match[2] or 1)] = name
        elif match := _BY_UUID.fullmatch(name):
            # Several of one version say the same.
            parts.setdefault((int(match[1]), 1), {}).setdefault(1, name)
    whole = [(v, of) for (v, of), numbers in parts.items() if set(numbers) == set(range(1, of + 1))]
    if not commits and not whole:
        raise CorruptTable("the Delta log has neither a commit nor a whole checkpoint")
    start, of = max(whole, default=(-1, 0))
    newest = max([start, *commits])
    versions = range(start + 1, newest + 1)
    gap = next((v for v in versions if v not in commits), None)
    if gap is not None:
        raise CorruptTable(
            f"the Delta log lacks version {gap}",
            next_step="Write a checkpoint of the table by an engine, then adopt it",
        )
    chosen = parts.get((start, of), {})
    return LogFiles(
        newest, tuple(chosen[n] for n in sorted(chosen)), tuple(commits[v] for v in versions)
    )


def parse_commit(data: bytes) -> Iterator[Mapping[str, Any]]:
    """The actions of a commit. Raises `CorruptTable`."""
    try:
        for line in data.splitlines():
            if line.strip():
                action = json.loads(line)
                if not isinstance(action, dict):
                    raise ValueError("not an action")
                yield action
    except (ValueError, RecursionError) as error:
        raise CorruptTable(f"a commit of the Delta log cannot be read: {str(error)[:80]}") from None


# -- replay ---------------------------------------------------------------------------------------


class VectorPlace(Record):
    """Where a deletion vector is: `inline` has its frame, or `path` and `offset`. `length` is the frame's,
    as `format.puffin.decode_vector` reads it: Delta's frame is Iceberg's."""

    cardinality: int
    length: int
    inline: bytes | None = None
    path: str = ""
    offset: int = 0


class Added(Record):
    """A live data file. `path` is decoded, relative to the table's folder or absolute."""

    path: str
    size: int
    partition: Mapping[str, str | None] = field(default_factory=dict)
    vector: VectorPlace | None = None


class Replay:
    """The state of a table after the actions so far, given in order. A file's action is decoded when it is
    asked for: of files that were removed since, nothing but the name has to be readable."""

    def __init__(self) -> None:
        self.protocol: Mapping[str, Any] | None = None
        self.metadata: Mapping[str, Any] | None = None
        # What was added, and by which object of the log.
        self.files: dict[tuple[str, str], tuple[Mapping[str, Any], str]] = {}
        self.sidecars: list[str] = []  # of a checkpoint: paths of further parts of it

    def live(self) -> Iterator[Added]:
        """The files of the table. Raises `CorruptTable` and `UnsupportedTable`, which name the object of
        the log."""
        for body, origin in self.files.values():
            with _reading(origin):
                yield _added(body)

    def commit(self, actions: Iterable[Mapping[str, Any]], origin: str = "") -> None:
        """The actions of one commit, whose order means nothing. Raises `CorruptTable` where it would."""
        changed: set[tuple[str, str]] = set()
        for action in actions:
            self.apply(action, origin)
            for kind in ("add", "remove"):
                if (file := action.get(kind)) is not None:
                    name = _name(file)
                    if name in changed:
                        raise CorruptTable(
                            f"a commit of the Delta log changes one file twice: {name[0][:200]}",
                            next_step="Compact the source by an engine, then adopt it",
                        )
                    changed.add(name)

    def apply(self, action: Mapping[str, Any], origin: str = "") -> None:
        with _reading(origin):
            if (body := action.get("protocol")) is not None:
                self.protocol = body
            if (body := action.get("metaData")) is not None:
                self.metadata = body
            if (body := action.get("sidecar")) is not None:
                self.sidecars.append(str(body["path"]))
            if (body := action.get("remove")) is not None:
                self.files.pop(_name(body), None)
            if (body := action.get("add")) is not None:
                self.files[_name(body)] = {k: body.get(k) for k in _OF_ADD}, origin


_OF_ADD = ("path", "size", "partitionValues", "deletionVector")


@contextmanager
def _reading(origin: str) -> Iterator[None]:
    """Errors are about an action in this object of the log."""
    try:
        yield
    except InlayError as error:
        raise (error.about(key=LOG + origin) if origin else error) from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptTable(
            f"the Delta log has an action that cannot be read: {type(error).__name__}",
            key=LOG + origin if origin else None,
        ) from None


def _name(body: Mapping[str, Any]) -> tuple[str, str]:
    """What identifies a file in the log: its path and its vector."""
    vector = body.get("deletionVector")
    if not vector:
        return unquote(body["path"]), ""
    offset = vector.get("offset")
    return unquote(body["path"]), f"{vector['storageType']}{vector['pathOrInlineDv']}@{offset}"


def _added(body: Mapping[str, Any]) -> Added:
    size = int(body["size"])
    if size < 0 or not isinstance(body["path"], str):
        raise ValueError("size")
    vector = body.get("deletionVector")
    return Added(
        unquote(body["path"]),
        size,
        dict(body.get("partitionValues") or {}),
        _vector(vector) if vector else None,
    )


def _vector(named: Mapping[str, Any]) -> VectorPlace:
    kind, text = named["storageType"], named["pathOrInlineDv"]
    size, rows = int(named["sizeInBytes"]), int(named["cardinality"])
    offset = int(named.get("offset") or 0)
    if size < 0 or rows < 0 or offset < 0:
        raise ValueError("vector")
    framed = size + 8
    if kind == "i":
        body = _z85(text)[:size]
        if len(body) < size:
            raise ValueError("vector")
        frame = struct.pack(">I", size) + body + struct.pack(">I", zlib.crc32(body))
        return VectorPlace(rows, framed, frame)
    if kind == "u":
        prefix, coded = text[:-20], text[-20:]
        name = f"deletion_vector_{UUID(bytes=_z85(coded))}.bin"
        return VectorPlace(rows, framed, None, f"{prefix}/{name}" if prefix else name, offset)
    if kind == "p":
        return VectorPlace(rows, framed, None, unquote(text), offset)
    raise UnsupportedTable(
        f"a deletion vector is stored in a way not known here: {str(kind)[:10]!r}"
    )


def _z85(text: str) -> bytes:
    return b85decode(text.encode("ascii").translate(_TO_B85))


# -- the table ------------------------------------------------------------------------------------


class DeltaTable(Record, kw_only=True):
    """`names` are what columns are called in files, by id; None: they are found there by id alone.
    `partitions` are ids of partition columns by their name in `Added.partition`; `spec` is by them."""

    schema: Schema
    last_field_id: int
    by_id: bool
    names: Mapping[int, tuple[str, ...]] | None
    partitions: Mapping[str, int]
    spec: PartitionSpec
    notes: tuple[str, ...]

    def constants(self, file: Added) -> Iterator[tuple[int, Value | None]]:
        """The values of partition columns in every row of a file, by id."""
        for name, field_id in self.partitions.items():
            if name not in file.partition:
                raise CorruptTable(
                    f"a file of the Delta log has no value of partition column {name!r}"
                )
            text = file.partition[name]
            kind = self._kind(field_id)
            if text == "" and kind.name in ("string", "binary"):
                raise _read_differently(kind)  # NULL to the protocol, empty to delta-rs
            yield field_id, _partition_value(kind, text) if text else None

    def partition(self, constants: Mapping[int, Value | None]) -> tuple[Written | None, ...]:
        values = [(self._kind(f.source), constants[f.source]) for f in self.spec.fields]
        return tuple(None if value is None else written(kind, value) for kind, value in values)

    def _kind(self, field_id: int) -> Primitive:
        kind = next(f.type for f in self.schema.fields if f.id == field_id)
        assert isinstance(kind, Primitive)
        return kind


def table_of_log(replay: Replay) -> DeltaTable:
    """The table of a replayed log. Raises `UnsupportedTable`, `CorruptTable`."""
    protocol, metadata = replay.protocol, replay.metadata
    if protocol is None or metadata is None:
        raise CorruptTable("the Delta log has no protocol or no metadata")
    try:
        _check_protocol(protocol)
        return _described(metadata, protocol)
    except InlayError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptTable(
            f"Delta's metadata cannot be read: {type(error).__name__} {str(error)[:80]}"
        ) from None


def _check_protocol(protocol: Mapping[str, Any]) -> None:
    version = int(protocol["minReaderVersion"])
    if version not in (1, 2, 3):
        raise UnsupportedTable(f"the table needs a reader of Delta of version {version}")
    features = frozenset(protocol.get("readerFeatures") or ())
    unknown = sorted(features - KNOWN_FEATURES)
    if unknown:
        raise UnsupportedTable(
            f"the table needs a reader with features that Inlay lacks: {', '.join(map(str, unknown))}",
            next_step="Drop them in the source (ALTER TABLE … DROP FEATURE), or copy its rows",
        )


def _described(metadata: Mapping[str, Any], protocol: Mapping[str, Any]) -> DeltaTable:
    if (metadata.get("format") or {}).get("provider", "parquet") != "parquet":
        raise UnsupportedTable("the table's files are not Parquet")
    configuration = dict(metadata.get("configuration") or {})
    mode = configuration.get("delta.columnMapping.mode", "none")
    if mode not in ("none", "name", "id"):
        raise UnsupportedTable(f"the table maps its columns by {mode[:20]!r}")
    is_second = int(protocol["minReaderVersion"]) == 2
    # Where the protocol does not let a table map its columns, readers differ over the property.
    may_map = is_second or "columnMapping" in (protocol.get("readerFeatures") or ())
    if mode != "none" and not may_map:
        raise UnsupportedTable(
            "the table says that it maps its columns, and its protocol does not: engines differ in that",
            next_step="Raise the source's protocol (reader feature columnMapping), then adopt it",
        )
    body = json.loads(metadata["schemaString"])
    given = int(configuration.get("delta.columnMapping.maxColumnId") or 0)
    columns = _Columns(mode, body, given)
    schema = Schema(0, columns.fields(body["fields"], ()))
    ids = [f.id for _, f in schema.walk()]
    if len(set(ids)) < len(ids) or min(ids, default=0) < 1:
        raise CorruptTable("Delta's schema has a column id twice, or below 1")
    top = {f.name: f.id for f in schema.fields}
    physical = {
        name: columns.physical[top[name]] for name in metadata.get("partitionColumns") or ()
    }
    kept = sorted(name for name in configuration if _PROMISES.fullmatch(name))
    notes = list(columns.notes)
    if kept:
        notes.append(f"not taken over: {', '.join(kept)}")
    return DeltaTable(
        schema=schema,
        last_field_id=max([*ids, columns.last]),
        by_id=mode == "id",
        names=None if mode == "id" else {i: (n,) for i, n in columns.physical.items()},
        partitions={physical[name]: top[name] for name in physical},
        spec=_spec(schema, [top[name] for name in physical]),
        notes=tuple(notes),
    )


def _spec(schema: Schema, partitioned_by: Sequence[int]) -> PartitionSpec:
    fields = {f.id: f for f in schema.fields}
    for field_id in partitioned_by:
        if not isinstance(fields[field_id].type, Primitive):
            raise CorruptTable("a Delta table is partitioned by a nested column")
    if not partitioned_by:
        return UNPARTITIONED
    if len(partitioned_by) > MAX_FIELDS:
        raise UnsupportedTable(f"the table is partitioned by more than {MAX_FIELDS} columns")
    return PartitionSpec(
        1, tuple(PartitionField(i, "identity", fields[i].name) for i in partitioned_by)
    )


# As writers spell values: Python's own parsers take more (other digits, underscores, days of weeks).
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(Z?)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NO_NUMBER = re.compile(r"[+-]?inf(inity)?|nan", re.IGNORECASE)


def _partition_value(kind: Primitive, text: str) -> Value:
    """A partition value as the log states it. Raises `UnsupportedTable` for one that engines read
    differently."""
    try:
        match kind.family:
            case "text":
                return text
            case "bool":
                return {"true": True, "false": False}[text]
            case "decimal":
                return physical(kind, Decimal(_spelled(_NUMBER, text)))
            case "date":
                return _days(text)
            case "timestamp":
                match = _INSTANT.fullmatch(text)
                # An instant without a zone is in the reader's zone.
                if match is None or bool(match[4]) != (kind.name == "timestamptz"):
                    raise ValueError
                of_day = time.fromisoformat(match[2])
                seconds = of_day.hour * 3600 + of_day.minute * 60 + of_day.second
                seconds += _days(match[1]) * 86_400
                return seconds * 1_000_000 + int((match[3] or "").ljust(6, "0"))
            case "float":
                if not _NO_NUMBER.fullmatch(text):
                    _spelled(_NUMBER, text)
                value = float(text)
                return physical(kind, to_float32(value) if kind.name == "float" else value)
            case "bytes" | "time":
                raise ValueError
            case "integer":
                return physical(kind, int(_spelled(_WHOLE, text)))
    except (ValueError, KeyError, ArithmeticError, InvalidRequest):
        raise _read_differently(kind) from None


def _spelled(form: re.Pattern[str], text: str) -> str:
    if not form.fullmatch(text):
        raise ValueError
    return text


def _days(text: str) -> int:
    return (date.fromisoformat(_spelled(_DATE, text)) - date(1970, 1, 1)).days


def _read_differently(kind: Primitive) -> UnsupportedTable:
    return UnsupportedTable(
        f"a partition value of type {kind} is in the log in a form that engines read differently",
        next_step="Copy the rows by an engine, and adopt or append the copy",
    )


_SIMPLE = {
    "string": Primitive("string"),
    "long": Primitive("int64"),
    "integer": Primitive("int32"),
    "short": Primitive("int16"),
    "byte": Primitive("int8"),
    "float": Primitive("float"),
    "double": Primitive("double"),
    "boolean": Primitive("bool"),
    "binary": Primitive("binary"),
    "date": Primitive("date"),
    "timestamp": Primitive("timestamptz", unit="us"),
    "timestamp_ntz": Primitive("timestamp", unit="us"),
}
# Digits before the point that a whole number may need.
_DIGITS = {"int8": 3, "int16": 5, "int32": 10, "int64": 20}


def cast_by_readers(stored: Primitive, target: Primitive) -> bool:
    """Whether Delta's readers cast a file's column to the table's where Inlay does not widen it: whole
    numbers to double and decimal, by type widening, and times without a zone, which are UTC."""
    match target.name:
        case "double":
            return stored.name in ("int8", "int16", "int32")
        case "decimal":
            digits = _DIGITS.get(stored.name)
            return digits is not None and target.precision - target.scale >= digits
        case "timestamptz":
            return (
                stored.name == "timestamp" and stored.unit in ("ms", "us") and target.unit == "us"
            )
        case _:  # no other cast is known
            return False


# In data files too, by writers of change data; it has no field id, and is no column.
CHANGE_TYPE = "_change_type"
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_ID, _NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"


class _Columns(ForeignColumns):
    """`physical` are their names in files, by id. `given`: the greatest id that any column had; files have
    those of dropped ones."""

    source = "Delta"
    list_type = "array"

    def __init__(self, mode: str, root: Mapping[str, Any], given: int) -> None:
        super().__init__()
        self.mapped = mode != "none"
        self.physical: dict[int, str] = {}
        mapped = [int(f["metadata"][_ID]) for f in _struct_fields(root, 0)] if self.mapped else []
        self.last = max([*mapped, given]) if self.mapped else 0
        self.ids = count(self.last + 1)

    def _next(self) -> int:
        self.last = next(self.ids)
        return self.last

    def field(self, body: Mapping[str, Any], path: Path) -> Field:
        metadata = body.get("metadata") or {}
        field_id = int(metadata[_ID]) if self.mapped else self._next()
        self.physical[field_id] = str(metadata[_NAME]) if self.mapped else str(body["name"])
        for what in ("delta.generationExpression", "CURRENT_DEFAULT", "delta.invariants"):
            if what in metadata:
                self.notes.append(f"column {'.'.join(path)!r}: {what} is not taken over")
        return Field(
            field_id,
            str(body["name"]),
            self.type_of(body["type"], path, field_id),
            nullable=bool(body.get("nullable", True)),
            doc=str(metadata.get("comment") or ""),
        )

    def part(self, body: Mapping[str, Any], name: Part, path: Path) -> Field:
        field_id = self._next()
        kind = self.type_of(body[f"{name}Type"], (*path, name), field_id)
        contains_null = {"element": "containsNull", "value": "valueContainsNull"}
        nullable = name != "key" and bool(body.get(contains_null[name], True))
        return Field(field_id, name, kind, nullable=nullable)

    def leaf(self, name: str, field_id: int) -> Primitive | None:
        if match := _DECIMAL.fullmatch(name):
            precision, scale = int(match[1]), int(match[2])
            fits = 0 < precision <= 38 and scale <= precision
            return Primitive("decimal", precision, scale) if fits else None
        return _SIMPLE.get(name)


def _struct_fields(body: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """Every field of a struct within a type, at any depth."""
    if depth > MAX_DEPTH:
        raise UnsupportedTable("the table's columns are nested too deeply")
    if not isinstance(body, dict):
        return
    for child in body.get("fields") or ():
        yield child
        yield from _struct_fields(child["type"], depth + 1)
    for inner in ("elementType", "keyType", "valueType"):
        yield from _struct_fields(body.get(inner), depth + 1)

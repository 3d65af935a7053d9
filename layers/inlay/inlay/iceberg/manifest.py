"""Manifests and manifest lists: the files of a published snapshot.

Promise: what is written here is Iceberg's format (specification, "Manifests" and "Manifest Lists"),
including field ids; what is read back suffices to publish the next snapshot without reading a data file
again. An entry of a file that was published before keeps its snapshot, sequence number and first row id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inlay.errors import CorruptTable
from inlay.format.schema import Value
from inlay.iceberg.avro import decode_avro, encode_avro
from inlay.iceberg.schema import Bounds, Spec, summaries
from inlay.record import Record, field

EXISTING, ADDED, DELETED = 0, 1, 2
DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2


class Entry(Record, kw_only=True):
    """A data file, or the deletes of one, in a published snapshot. `snapshot_id` and `sequence` are those
    of the snapshot that added it; 0: this one. `partition` are values as in Inlay's entries."""

    path: str
    size: int
    rows: int
    content: int = DATA
    file_format: str = "PARQUET"
    partition: tuple[Value | None, ...] = ()
    bounds: Mapping[int, Bounds] = field(default_factory=dict)
    snapshot_id: int = 0
    sequence: int = 0
    first_row_id: int | None = None
    referenced: str | None = None  # the data file that these deletes apply to
    offset: int | None = None  # of a deletion vector in its Puffin file
    length: int | None = None

    @property
    def stored(self) -> int:
        """Its bytes, as summaries of snapshots count them: of a Puffin file those of its vector."""
        return self.size if self.length is None else self.length


class Manifest(Record, kw_only=True):
    """A manifest as described in its list."""

    path: str
    size: int
    spec_id: int
    content: int  # 0: data, 1: deletes
    sequence: int
    min_sequence: int
    snapshot_id: int
    added: int = 0
    existing: int = 0
    added_rows: int = 0
    existing_rows: int = 0
    partitions: tuple[Mapping[str, Any], ...] = ()
    first_row_id: int | None = None
    encrypted: bool = False


def _map(key_id: int, value_id: int, value: str) -> dict[str, Any]:
    """Iceberg's maps with keys other than text: arrays of pairs."""
    return {
        "type": "array",
        "logicalType": "map",
        "items": {
            "type": "record",
            "name": f"k{key_id}_v{value_id}",
            "fields": [
                {"name": "key", "type": "int", "field-id": key_id},
                {"name": "value", "type": value, "field-id": value_id},
            ],
        },
    }


def _f(name: str, field_id: int, kind: Any, *, optional: bool = False) -> dict[str, Any]:
    if optional:
        return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}
    return {"name": name, "type": kind, "field-id": field_id}


def _entry_schema(spec: Spec, format_version: int) -> dict[str, Any]:
    data_file = [
        _f("content", 134, "int"),
        _f("file_path", 100, "string"),
        _f("file_format", 101, "string"),
        _f("partition", 102, spec.avro_record()),
        _f("record_count", 103, "long"),
        _f("file_size_in_bytes", 104, "long"),
        _f("column_sizes", 108, _map(117, 118, "long"), optional=True),
        _f("value_counts", 109, _map(119, 120, "long"), optional=True),
        _f("null_value_counts", 110, _map(121, 122, "long"), optional=True),
        _f("nan_value_counts", 137, _map(138, 139, "long"), optional=True),
        _f("lower_bounds", 125, _map(126, 127, "bytes"), optional=True),
        _f("upper_bounds", 128, _map(129, 130, "bytes"), optional=True),
        _f("sort_order_id", 140, "int", optional=True),
        _f("referenced_data_file", 143, "string", optional=True),
    ]
    if format_version >= 3:
        data_file += [
            _f("first_row_id", 142, "long", optional=True),
            _f("content_offset", 144, "long", optional=True),
            _f("content_size_in_bytes", 145, "long", optional=True),
        ]
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _f("status", 0, "int"),
            _f("snapshot_id", 1, "long", optional=True),
            _f("sequence_number", 3, "long", optional=True),
            _f("file_sequence_number", 4, "long", optional=True),
            _f("data_file", 2, {"type": "record", "name": "r2", "fields": data_file}),
        ],
    }


_LIST_FIELDS = [
    _f("manifest_path", 500, "string"),
    _f("manifest_length", 501, "long"),
    _f("partition_spec_id", 502, "int"),
    _f("content", 517, "int"),
    _f("sequence_number", 515, "long"),
    _f("min_sequence_number", 516, "long"),
    _f("added_snapshot_id", 503, "long"),
    _f("added_files_count", 504, "int"),
    _f("existing_files_count", 505, "int"),
    _f("deleted_files_count", 506, "int"),
    _f("added_rows_count", 512, "long"),
    _f("existing_rows_count", 513, "long"),
    _f("deleted_rows_count", 514, "long"),
    _f(
        "partitions",
        507,
        {
            "type": "array",
            "element-id": 508,
            "items": {
                "type": "record",
                "name": "r508",
                "fields": [
                    _f("contains_null", 509, "boolean"),
                    _f("contains_nan", 518, "boolean", optional=True),
                    _f("lower_bound", 510, "bytes", optional=True),
                    _f("upper_bound", 511, "bytes", optional=True),
                ],
            },
        },
        optional=True,
    ),
]
_FIRST_ROW_ID = _f("first_row_id", 520, "long", optional=True)


def _pairs(values: Mapping[int, Any]) -> list[dict[str, Any]] | None:
    # Statistics that a commit has at hand are in the order of its columns, those read back by field id.
    return [{"key": k, "value": v} for k, v in sorted(values.items())] or None


def _bounds_record(entry: Entry) -> dict[str, Any]:
    known = entry.bounds.items()
    nulls = {i: b.nulls for i, b in known if b.nulls is not None}
    return {
        # Not known, and not null either: pyiceberg's inspection fails on null.
        "column_sizes": [],
        "value_counts": _pairs(dict.fromkeys(nulls, entry.rows)),
        "null_value_counts": _pairs(nulls),
        "nan_value_counts": _pairs({i: b.nans for i, b in known if b.nans is not None}),
        "lower_bounds": _pairs({i: b.lower for i, b in known if b.lower is not None}),
        "upper_bounds": _pairs({i: b.upper for i, b in known if b.upper is not None}),
    }


def encode_manifest(
    entries: Sequence[Entry],
    *,
    path: str,
    spec: Spec,
    schema: Mapping[str, Any],
    content: int,
    version: int,
    snapshot_id: int,
    format_version: int,
    sync: bytes,
) -> tuple[bytes, Manifest]:
    """The manifest of `entries`, all of `spec`, and its description for the list of `snapshot_id`, which is
    published as `version`."""
    data = encode_avro(
        _entry_schema(spec, format_version),
        (_entry_record(entry, spec, version, snapshot_id) for entry in entries),
        metadata={
            "schema": json.dumps(schema, separators=(",", ":")),
            "schema-id": str(schema["schema-id"]),
            "partition-spec": json.dumps(spec.fields_json(), separators=(",", ":")),
            "partition-spec-id": str(spec.id),
            "format-version": str(format_version),
            "content": "deletes" if content else "data",
        },
        sync=sync,
    )
    new = [e for e in entries if not e.snapshot_id]
    old = [e for e in entries if e.snapshot_id]
    return data, Manifest(
        path=path,
        size=len(data),
        spec_id=spec.id,
        content=content,
        sequence=version,
        min_sequence=min((e.sequence or version for e in entries), default=version),
        snapshot_id=snapshot_id,
        added=len(new),
        existing=len(old),
        added_rows=sum(e.rows for e in new),
        existing_rows=sum(e.rows for e in old),
        partitions=tuple(summaries(spec, [e.partition for e in entries])),
    )


def _entry_record(entry: Entry, spec: Spec, version: int, snapshot_id: int) -> dict[str, Any]:
    return {
        "status": EXISTING if entry.snapshot_id else ADDED,
        "snapshot_id": entry.snapshot_id or snapshot_id,
        "sequence_number": entry.sequence or version,
        "file_sequence_number": entry.sequence or version,
        "data_file": {
            "content": entry.content,
            "file_path": entry.path,
            "file_format": entry.file_format,
            "partition": spec.values(entry.partition),
            "record_count": entry.rows,
            "file_size_in_bytes": entry.size,
            "referenced_data_file": entry.referenced,
            "first_row_id": entry.first_row_id,
            "content_offset": entry.offset,
            "content_size_in_bytes": entry.length,
            **_bounds_record(entry),
        },
    }


def encode_list(
    manifests: Iterable[Manifest],
    *,
    version: int,
    snapshot_id: int,
    parent: int | None,
    first_row_id: int | None,
    format_version: int,
    sync: bytes,
) -> bytes:
    """The manifest list of `snapshot_id`, which is published as `version`."""

    def record(m: Manifest) -> dict[str, Any]:
        return {
            "manifest_path": m.path,
            "manifest_length": m.size,
            "partition_spec_id": m.spec_id,
            "content": m.content,
            "sequence_number": m.sequence,
            "min_sequence_number": m.min_sequence,
            "added_snapshot_id": m.snapshot_id,
            "added_files_count": m.added,
            "existing_files_count": m.existing,
            "deleted_files_count": 0,
            "added_rows_count": m.added_rows,
            "existing_rows_count": m.existing_rows,
            "deleted_rows_count": 0,
            "partitions": list(m.partitions),
            "first_row_id": m.first_row_id,
        }

    fields = [*_LIST_FIELDS, _FIRST_ROW_ID] if format_version >= 3 else _LIST_FIELDS
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(version),
        "format-version": str(format_version),
    }
    if format_version >= 3:
        metadata["first-row-id"] = str(first_row_id)
    return encode_avro(
        {"type": "record", "name": "manifest_file", "fields": fields},
        map(record, manifests),
        metadata=metadata,
        sync=sync,
    )


def decode_list(data: bytes) -> tuple[Manifest, ...]:
    """A manifest list of any writer. Raises `CorruptTable`."""
    try:
        return tuple(
            Manifest(
                path=r["manifest_path"],
                size=r["manifest_length"],
                spec_id=r["partition_spec_id"],
                content=r.get("content") or 0,
                sequence=r.get("sequence_number") or 0,
                min_sequence=r.get("min_sequence_number") or 0,
                snapshot_id=r["added_snapshot_id"],
                added=_count(r, "added", "files"),
                existing=_count(r, "existing", "files"),
                added_rows=_count(r, "added", "rows"),
                existing_rows=_count(r, "existing", "rows"),
                partitions=tuple(r.get("partitions") or ()),
                first_row_id=r.get("first_row_id"),
                encrypted=bool(r.get("key_metadata")),
            )
            for r in decode_avro(data).records
        )
    except (KeyError, TypeError) as error:
        raise CorruptTable(f"a manifest list lacks {error}") from None


def _count(record: Mapping[str, Any], status: str, what: str) -> int:
    # Names of version 1.
    return record.get(f"{status}_{what}_count") or record.get(f"{status}_data_{what}_count") or 0


class Read(Record):
    """A live entry of a manifest: `record` is the data file's, inherited values included."""

    entry: Entry
    record: Mapping[str, Any]


def decode_manifest(data: bytes, manifest: Manifest) -> tuple[Read, ...]:
    """The live entries of a manifest, with what they inherit from its list. Raises `CorruptTable`."""
    entries: list[Read] = []
    next_row = manifest.first_row_id
    try:
        for record in decode_avro(data).records:
            if record["status"] == DELETED:
                continue
            file = record["data_file"]
            sequence = record.get("sequence_number")
            first_row_id = file.get("first_row_id")
            if first_row_id is None and next_row is not None and not manifest.content:
                first_row_id = next_row
                next_row += file["record_count"]
            snapshot_id = record.get("snapshot_id")
            entries.append(
                Read(
                    Entry(
                        path=file["file_path"],
                        size=file["file_size_in_bytes"],
                        rows=file["record_count"],
                        content=file.get("content") or DATA,
                        file_format=file["file_format"],
                        snapshot_id=manifest.snapshot_id if snapshot_id is None else snapshot_id,
                        sequence=manifest.sequence if sequence is None else sequence,
                        first_row_id=first_row_id,
                        referenced=file.get("referenced_data_file"),
                        offset=file.get("content_offset"),
                        length=file.get("content_size_in_bytes"),
                    ),
                    file,
                )
            )
    except (KeyError, TypeError) as error:
        raise CorruptTable(f"a manifest lacks {error}") from None
    return tuple(entries)

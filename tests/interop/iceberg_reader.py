"""A reader of Iceberg tables of plain columns on this disk, by the specification alone: an oracle.

It knows nothing of Inlay's metadata. It finds columns by field ids, applies deletion vectors and position
deletes, fills in initial defaults, and checks on the way what the specification promises: that bounds
bound, that a file is there once with one vector at most, that counts, sizes and totals are right.
"""

from __future__ import annotations

import json
import struct
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.format.puffin import decode_footer, decode_vector
from inlay.iceberg.avro import decode_avro


def local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def load(metadata: str) -> Any:
    return json.loads(local(metadata).read_text())


def current_of(metadata: Any) -> Any:
    now = metadata["current-snapshot-id"]
    return next(s for s in metadata["snapshots"] if s["snapshot-id"] == now)


def manifests_of(snapshot: Any) -> list[dict[str, Any]]:
    return list(decode_avro(local(snapshot["manifest-list"]).read_bytes()).records)


def entries_of(snapshot: Any) -> list[tuple[int, int, dict[str, Any]]]:
    """(content, data sequence, data file) of each live entry."""
    found = []
    for manifest in manifests_of(snapshot):
        data = local(manifest["manifest_path"]).read_bytes()
        assert len(data) == manifest["manifest_length"]
        records = decode_avro(data).records
        added = [r for r in records if r["status"] == 1]
        assert len(added) == manifest["added_files_count"]
        assert len(records) == len(added) + manifest["existing_files_count"]
        for record in records:
            assert record["status"] in (0, 1)
            assert record["sequence_number"] >= manifest["min_sequence_number"]
            found.append((manifest["content"], record["sequence_number"], record["data_file"]))
    return found


def read_table(metadata_uri: str) -> list[dict[str, Any]]:
    metadata = load(metadata_uri)
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    for snapshot in metadata["snapshots"]:
        _check_totals(snapshot)
    entries = entries_of(current_of(metadata))
    deletes: dict[str, tuple[int, set[int]]] = {}
    for content, sequence, file in entries:
        if content:
            name = file["referenced_data_file"]
            assert name not in deletes, "two vectors for one file"
            deletes[name] = (sequence, _positions(file, name))
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    for content, sequence, file in entries:
        path = file["file_path"]
        if content:
            continue
        assert path not in seen, "a file twice"
        seen.add(path)
        assert local(path).stat().st_size == file["file_size_in_bytes"]
        found = _rows(local(path), schema["fields"])
        assert len(found) == file["record_count"]
        _check_bounds(file, schema["fields"], found)
        deleted_at, gone = deletes.get(path, (0, set()))
        assert not gone or deleted_at >= sequence, "the vector would not apply"
        rows += [row for at, row in enumerate(found) if at not in gone]
    return rows


def _check_totals(snapshot: Any) -> None:
    """What the summary says of all that the snapshot has: engines estimate and register by it."""
    totals = dict.fromkeys(("records", "data-files", "files-size"), 0)
    totals |= dict.fromkeys(("delete-files", "position-deletes", "equality-deletes"), 0)
    for content, _, file in entries_of(snapshot):
        totals["delete-files" if content else "data-files"] += 1
        totals["position-deletes" if content else "records"] += file["record_count"]
        own = file.get("content_size_in_bytes")
        totals["files-size"] += file["file_size_in_bytes"] if own is None else own
    summary = snapshot["summary"]
    said = {k[6:]: int(v) for k, v in summary.items() if k.startswith("total-")}
    assert said == totals, summary


def _check_bounds(
    file: dict[str, Any], fields: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> None:
    """Engines skip files by these: every value is within them, and as many are NULL as they state."""
    lower, upper, nulls = (
        {pair["key"]: pair["value"] for pair in file[name] or ()}
        for name in ("lower_bounds", "upper_bounds", "null_value_counts")
    )
    for field in fields:
        values = [row[field["name"]] for row in rows]
        known = [v for v in values if v is not None]
        at = field["id"]
        if at in nulls:
            assert nulls[at] == len(values) - len(known), field
        if at in lower:
            assert all(v >= _decoded(field["type"], lower[at]) for v in known), field
        if at in upper:
            assert all(v <= _decoded(field["type"], upper[at]) for v in known), field


def _decoded(kind: str, value: bytes) -> Any:
    match kind:
        case "int" | "date":
            assert len(value) == 4
            number = int.from_bytes(value, "little", signed=True)
            return number if kind == "int" else date(1970, 1, 1) + timedelta(days=number)
        case "long":
            assert len(value) == 8
            return int.from_bytes(value, "little", signed=True)
        case "float":
            return struct.unpack("<f", value)[0]
        case "double":
            return struct.unpack("<d", value)[0]
        case "string":
            return value.decode()
    raise AssertionError(kind)


def _positions(file: dict[str, Any], name: str) -> set[int]:
    body = local(file["file_path"]).read_bytes()
    assert len(body) == file["file_size_in_bytes"]
    if file["file_format"] == "PARQUET":
        table = pq.read_table(pa.BufferReader(body))
        assert set(table["file_path"].to_pylist()) == {name}
        return set(table["pos"].to_pylist())
    at, length = file["content_offset"], file["content_size_in_bytes"]
    [blob] = [b for b in decode_footer(body) if (b.offset, b.length) == (at, length)]
    assert blob.data_file == name, "pyiceberg would pass over it without a word"
    positions = set(decode_vector(body[at : at + length]))
    assert len(positions) == file["record_count"] == blob.cardinality
    return positions


def _rows(path: Path, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    file = pq.ParquetFile(path)
    by_id: dict[int, int] = {}
    for at, column in enumerate(file.schema_arrow):
        by_id[int(column.metadata[b"PARQUET:field_id"])] = at
    table = file.read()
    columns: dict[str, list[Any]] = {}
    for field in fields:
        at = by_id.get(field["id"])
        columns[field["name"]] = (
            [field.get("initial-default")] * table.num_rows
            if at is None
            else table.column(at).to_pylist()
        )
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

"""Adds to an Iceberg table what pyiceberg does not write: deletes by position, vector and equal keys,
format version 3, and columns with a default. Each call writes a snapshot of its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from inlay.format.puffin import encode_puffin
from inlay.iceberg.avro import decode_avro, encode_avro
from inlay.iceberg.manifest import Manifest, decode_list, encode_list

Metadata = dict[str, Any]
_SYNC = bytes(range(16))


def on_disk(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


class Iceberg:
    """The table whose newest metadata file is `metadata`."""

    def __init__(self, metadata: str) -> None:
        self.metadata = metadata
        self.found: Metadata = json.loads(on_disk(metadata).read_text())
        self.root = on_disk(metadata).parent.parent
        self.names = 0

    # -- what is there ------------------------------------------------------------------------

    @property
    def snapshot(self) -> Metadata:
        wanted = self.found["current-snapshot-id"]
        return next(s for s in self.found["snapshots"] if s["snapshot-id"] == wanted)

    def data_files(self) -> list[tuple[Metadata, Any, int]]:
        """(data file, the Avro type of its partition, id of its spec) of each live one."""
        found = []
        for manifest in decode_list(on_disk(self.snapshot["manifest-list"]).read_bytes()):
            if manifest.content:
                continue
            avro = decode_avro(on_disk(manifest.path).read_bytes())
            schema = json.loads(avro.metadata["avro.schema"])
            entry = next(f for f in schema["fields"] if f["name"] == "data_file")["type"]
            kind = next(f for f in entry["fields"] if f["name"] == "partition")["type"]
            for record in avro.records:
                if record["status"] != 2:
                    found.append((record["data_file"], kind, manifest.spec_id))
        return found

    def edit_files(self, edit: Callable[[Metadata], None]) -> None:
        """Changes the records of data files where their manifests are."""
        for manifest in decode_list(on_disk(self.snapshot["manifest-list"]).read_bytes()):
            path = on_disk(manifest.path)
            avro = decode_avro(path.read_bytes())
            for record in avro.records:
                edit(record["data_file"])
            own = {k: v for k, v in avro.metadata.items() if not k.startswith("avro.")}
            schema = json.loads(avro.metadata["avro.schema"])
            path.write_bytes(encode_avro(schema, avro.records, metadata=own, sync=_SYNC))

    # -- what is changed ----------------------------------------------------------------------

    def write(self) -> str:
        """The changed metadata as a new file."""
        self.names += 1
        path = self.root / "metadata" / f"{900 + self.names:05}-{uuid.uuid4()}.metadata.json"
        path.write_text(json.dumps(self.found))
        self.metadata = f"file://{path}"
        return self.metadata

    def upgrade(self, version: int) -> None:
        if self.found["format-version"] == 1:
            self.found.setdefault("last-sequence-number", 0)
            for snapshot in self.found["snapshots"]:
                snapshot.setdefault("sequence-number", 0)
        self.found["format-version"] = version
        if version >= 3:
            self.found.setdefault("next-row-id", 10_000)
            for snapshot in self.found["snapshots"]:
                snapshot |= {"first-row-id": 0, "added-rows": 0}

    def add_column(self, field: Metadata) -> None:
        """A column with an initial default, in a new schema."""
        now = next(
            s for s in self.found["schemas"] if s["schema-id"] == self.found["current-schema-id"]
        )
        field_id = self.found["last-column-id"] + 1
        new = max(s["schema-id"] for s in self.found["schemas"]) + 1
        self.found["schemas"].append(
            {**now, "schema-id": new, "fields": [*now["fields"], {**field, "id": field_id}]}
        )
        self.found |= {"last-column-id": field_id, "current-schema-id": new}

    def add_deletes(
        self, deletes: Sequence[tuple[Metadata, Any, int]], operation: str = "delete"
    ) -> None:
        """A snapshot with the files, of deletes or of rows, each with the partition type and spec of a data
        file."""
        sequence = self.found["last-sequence-number"] + 1
        snapshot_id = 7_000 + sequence
        manifests = list(decode_list(on_disk(self.snapshot["manifest-list"]).read_bytes()))
        for record, kind, spec_id in deletes:
            path = self.root / "metadata" / f"deletes-{uuid.uuid4()}.avro"
            path.write_bytes(self._manifest(record, kind, spec_id, sequence, snapshot_id))
            manifests.append(
                Manifest(
                    path=f"file://{path}",
                    size=path.stat().st_size,
                    spec_id=spec_id,
                    content=min(record["content"], 1),
                    sequence=sequence,
                    min_sequence=sequence,
                    snapshot_id=snapshot_id,
                    added=1,
                    added_rows=record["record_count"],
                )
            )
        listed = self.root / "metadata" / f"snap-{uuid.uuid4()}.avro"
        listed.write_bytes(
            encode_list(
                manifests,
                version=sequence,
                snapshot_id=snapshot_id,
                parent=None,
                first_row_id=0,
                format_version=self.found["format-version"],
                sync=_SYNC,
            )
        )
        before = self.snapshot
        self.found["snapshots"].append(
            {
                **before,
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": before["snapshot-id"],
                "sequence-number": sequence,
                "manifest-list": f"file://{listed}",
                "schema-id": self.found["current-schema-id"],
                "summary": {"operation": operation},
            }
        )
        self.found |= {"current-snapshot-id": snapshot_id, "last-sequence-number": sequence}
        self.found["refs"] = {"main": {"snapshot-id": snapshot_id, "type": "branch"}}

    def _manifest(
        self, record: Metadata, kind: Any, spec_id: int, sequence: int, snapshot_id: int
    ) -> bytes:
        def some(name: str, number: int, of: Any) -> Metadata:
            return {"name": name, "type": ["null", of], "default": None, "field-id": number}

        def one(name: str, number: int, of: Any) -> Metadata:
            return {"name": name, "type": of, "field-id": number}

        file = [
            one("content", 134, "int"),
            one("file_path", 100, "string"),
            one("file_format", 101, "string"),
            one("partition", 102, kind),
            one("record_count", 103, "long"),
            one("file_size_in_bytes", 104, "long"),
            some("equality_ids", 135, {"type": "array", "items": "int", "element-id": 136}),
            some("referenced_data_file", 143, "string"),
            some("content_offset", 144, "long"),
            some("content_size_in_bytes", 145, "long"),
        ]
        schema = {
            "type": "record",
            "name": "manifest_entry",
            "fields": [
                one("status", 0, "int"),
                some("snapshot_id", 1, "long"),
                some("sequence_number", 3, "long"),
                some("file_sequence_number", 4, "long"),
                one("data_file", 2, {"type": "record", "name": "r2", "fields": file}),
            ],
        }
        spec = next(s for s in self.found["partition-specs"] if s["spec-id"] == spec_id)
        metadata = {
            "schema": json.dumps(self.found["schemas"][-1]),
            "partition-spec": json.dumps(spec["fields"]),
            "partition-spec-id": str(spec_id),
            "format-version": str(self.found["format-version"]),
            "content": "deletes" if record["content"] else "data",
        }
        entry = {
            "status": 1,
            "snapshot_id": snapshot_id,
            "sequence_number": sequence,
            "file_sequence_number": sequence,
            "data_file": record,
        }
        return encode_avro(schema, [entry], metadata=metadata, sync=_SYNC)

    # -- files of deletes ---------------------------------------------------------------------

    def positions(self, rows: Mapping[str, Sequence[int]], like: Metadata) -> Metadata:
        """A file of position deletes, by data file."""
        pairs = sorted((path, at) for path, positions in rows.items() for at in positions)
        schema = pa.schema(
            [
                pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
                pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
            ]
        )
        return self._parquet(
            pa.table([[p for p, _ in pairs], [at for _, at in pairs]], schema=schema), like, 1
        )

    def keys(self, rows: pa.Table, ids: Sequence[int], like: Metadata) -> Metadata:
        """A file of equality deletes by the columns of `rows`, whose field ids are `ids`."""
        fields = [
            f.with_metadata({"PARQUET:field_id": str(i)})
            for f, i in zip(rows.schema, ids, strict=True)
        ]
        return self._parquet(rows.cast(pa.schema(fields)), like, 2) | {"equality_ids": list(ids)}

    def rows(self, rows: pa.Table, ids: Sequence[int], like: Metadata) -> Metadata:
        """A file of rows, whose columns have these field ids."""
        fields = [
            f.with_metadata({"PARQUET:field_id": str(i)})
            for f, i in zip(rows.schema, ids, strict=True)
        ]
        return self._parquet(rows.cast(pa.schema(fields)), like, 0)

    def _parquet(self, rows: pa.Table, like: Metadata, content: int) -> Metadata:
        path = self.root / "data" / f"deletes-{uuid.uuid4()}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path)
        return {
            "content": content,
            "file_path": f"file://{path}",
            "file_format": "PARQUET",
            "partition": like["partition"],
            "record_count": rows.num_rows,
            "file_size_in_bytes": path.stat().st_size,
        }

    def vectors(
        self, rows: Mapping[str, Sequence[int]], like: Mapping[str, Metadata]
    ) -> list[Metadata]:
        """Deletion vectors, all in one Puffin object."""
        data, blobs = encode_puffin([(p, BitMap64(at)) for p, at in rows.items()])
        path = self.root / "data" / f"vectors-{uuid.uuid4()}.puffin"
        path.write_bytes(data)
        return [
            {
                "content": 1,
                "file_path": f"file://{path}",
                "file_format": "PUFFIN",
                "partition": like[name]["partition"],
                "record_count": len(at),
                "file_size_in_bytes": len(data),
                "referenced_data_file": name,
                "content_offset": blob.offset,
                "content_size_in_bytes": blob.length,
            }
            for (name, at), blob in zip(rows.items(), blobs, strict=True)
        ]

"""Reads an Iceberg table as it is to be adopted: metadata, manifests, deletes.

Promise: the rows of `Foreign` are those that Iceberg's own readers return of the current snapshot. A delete
applies by Iceberg's rules (specification, "Scan Planning"): a vector to the file it names; positions to
files of the same partition that are not newer; equal keys to files of the same partition, or of the whole
table, that are older. Requests: the metadata file (and the hint), the list, one for each manifest, one for
each object of deletes. Data files are not touched here.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from inlay.errors import CorruptTable, UnreadableFile, UnsupportedTable
from inlay.format.partition import MAX_SPECS
from inlay.format.puffin import decode_vector
from inlay.format.schema import Primitive
from inlay.format.snapshot import UNPARTITIONED, PartitionSpec
from inlay.iceberg.avro import inflate
from inlay.iceberg.manifest import DATA, EQUALITY_DELETES, Manifest, decode_list
from inlay.iceberg.source import SourceFile, SourceTable, read_manifest, read_metadata
from inlay.ops.adopt.foreign import (
    MAX_FILES,
    MAX_MARKERS,
    Foreign,
    ForeignFile,
    KeyDelete,
    Naming,
    PositionCount,
    Sources,
    field_id_of,
)
from inlay.parquet.arrow.types import arrow_primitive

HINT = "metadata/version-hint.text"
MAX_HINT_DIGITS = 18
# Versions that a hint may be behind, each a request.
MAX_BEHIND = 1_000
MAX_METADATA_BYTES = 64 * 1024 * 1024
# Iceberg's writers begin a new manifest at 8 MB.
MAX_MANIFEST_BYTES = 64 * 1024 * 1024
# Of one file of deletes; it is held whole while it is read.
MAX_DELETES_BYTES = 256 * 1024 * 1024
# Manifests that are fetched ahead of the one being read.
AHEAD_BYTES = 64 * 1024 * 1024
_MERGE = "Compact the source first (rewrite_data_files with delete-file-threshold=1), then adopt it"


def find_metadata(sources: Sources) -> str | None:
    """The URI of the newest metadata file in a table's folder; None if it is none of Iceberg. As Iceberg's
    own writers find it (`HadoopTableOperations`): they commit by writing the file with the next number, and
    the hint may be behind."""
    hint = sources.find(HINT, 64, "the version hint")
    if hint is None:
        return None
    text = hint.decode("ascii", "replace").strip()
    if not text.isdecimal() or len(text) > MAX_HINT_DIGITS:
        raise CorruptTable("the version hint is not a number", key=f"{sources.root.uri}/{HINT}")
    version, newest = int(text), None
    for later in range(version, version + 1 + MAX_BEHIND):
        metadata = _numbered(sources, later)
        if metadata is None and newest is not None:
            return newest
        if metadata is None:
            fault = f"the version hint names version {version}, which has no metadata file"
            break
        newest = metadata
    else:
        fault = f"the version hint is more than {MAX_BEHIND} versions behind"
    raise CorruptTable(
        fault,
        key=f"{sources.root.uri}/{HINT}",
        next_step="Name the newest metadata file of the table, *.metadata.json",
    )


def _numbered(sources: Sources, version: int) -> str | None:
    """The metadata file of this number, compressed or not."""
    names = {f"v{version}.metadata.json", f"v{version}.gz.metadata.json"}
    names.add(f"v{version}.metadata.json.gz")  # as the first writers called it
    at = sources.source(sources.uri(f"metadata/v{version}."))
    for info in at.store.list(at.key):
        name = info.key.rpartition("/")[2]
        if name in names:
            return sources.uri(f"metadata/{name}")
    return None


def read_iceberg(sources: Sources, metadata: str) -> Foreign:
    """The table whose metadata file is at the URI `metadata`."""
    data = sources.read(metadata, MAX_METADATA_BYTES, "the metadata file")
    if data[:2] == b"\x1f\x8b":
        data = inflate(data, 31, MAX_METADATA_BYTES, "the metadata file")
    return foreign_of(sources, read_metadata(data))


def foreign_of(sources: Sources, table: SourceTable) -> Foreign:
    """The table of this metadata."""
    manifests = _manifests(sources, table)
    files = tuple(entries_of(sources, table, [m for m in manifests if m.content == DATA]))
    deletes = tuple(entries_of(sources, table, [m for m in manifests if m.content != DATA]))
    by_path = files_by_path(files)
    specs, spec_ids = _specs(table)
    applied = Deletes(sources, table, by_path)
    return Foreign(
        kind="Iceberg",
        version="none" if table.snapshot_id is None else str(table.snapshot_id),
        schema=table.schema,
        last_field_id=table.last_field_id,
        naming=Naming(True, table.names),
        files=tuple(foreign_file(sources, f, table, spec_ids) for f in files),
        specs=specs,
        spec_id=spec_ids.get(table.spec_id, 0),
        primary_key=table.key,
        declared=dict.fromkeys(table.uuids, "extension:arrow.uuid:"),
        positions=applied.positions(deletes),
        keys=tuple(applied.keys([d for d in deletes if d.content == EQUALITY_DELETES])),
        notes=table.notes,
    )


def files_by_path(files: Sequence[SourceFile]) -> dict[str, SourceFile]:
    """Data files by their paths. Raises `UnsupportedTable`."""
    for file in files:
        if file.file_format != "PARQUET":
            raise UnsupportedTable(
                f"the table has data files in {file.file_format[:20]}: {file.path[:200]}",
                next_step="Rewrite them as Parquet (write.format.default=parquet, rewrite_data_files)",
            )
    by_path = {f.path: f for f in files}
    if len(by_path) < len(files):
        raise UnsupportedTable(
            "the table has a data file twice, and so each of its rows",
            next_step="Rewrite the source's data files",
        )
    return by_path


def _manifests(sources: Sources, table: SourceTable) -> tuple[Manifest, ...]:
    if table.manifest_list is None:
        return ()
    return read_list(sources, table.manifest_list)


def read_list(sources: Sources, path: str) -> tuple[Manifest, ...]:
    """The manifests of a snapshot, by the path of their list."""
    manifests = decode_list(
        sources.read(sources.uri(path), MAX_MANIFEST_BYTES, "the manifest list")
    )
    if any(m.encrypted for m in manifests):
        raise UnsupportedTable("the table's manifests are encrypted")
    return manifests


def entries_of(
    sources: Sources, table: SourceTable, manifests: Sequence[Manifest]
) -> Iterator[SourceFile]:
    """The live files of manifests; a few are fetched ahead."""

    def fetch(manifest: Manifest) -> bytes:
        return sources.read(sources.uri(manifest.path), MAX_MANIFEST_BYTES, "a manifest")

    count = 0
    for group in _within(manifests, AHEAD_BYTES):
        for manifest, data in zip(group, sources.ctx.map(fetch, group), strict=True):
            for entry in read_manifest(data, manifest, table):
                count += 1
                if count > MAX_FILES:
                    raise UnsupportedTable(
                        f"the table has more than {MAX_FILES} files", next_step=_MERGE
                    )
                yield entry


def _within(manifests: Sequence[Manifest], limit: int) -> Iterator[list[Manifest]]:
    group: list[Manifest] = []
    size = 0
    for manifest in manifests:
        if group and size + manifest.size > limit:
            yield group
            group, size = [], 0
        group.append(manifest)
        size += max(0, manifest.size)
    if group:
        yield group


def _specs(table: SourceTable) -> tuple[tuple[PartitionSpec, ...], dict[int, int]]:
    """Inlay's specs, and which of them each of the source's is."""
    specs = [UNPARTITIONED]
    ids: dict[int, int] = {}
    for source in table.specs.values():
        fields = source.fields or ()
        same = next((s.id for s in specs if s.fields == fields), None)
        if same is None and len(specs) < MAX_SPECS:
            same = len(specs)
            specs.append(PartitionSpec(same, fields))
        ids[source.id] = same or 0
    return tuple(specs), ids


def foreign_file(
    sources: Sources, file: SourceFile, table: SourceTable, spec_ids: dict[int, int]
) -> ForeignFile:
    spec_id = spec_ids[file.spec.id]
    known = {f.id: f for f in table.schema.fields}
    constants = {
        source: file.spec.constant(file.raw[at], known[source].type)
        for at, source in file.spec.identity
        if source in known and (file.raw[at] is not None or known[source].default is not None)
    }
    return ForeignFile(
        uri=sources.uri(file.path),
        size=file.size,
        rows=file.rows,
        spec_id=spec_id,
        partition=file.partition if spec_id else (),
        constants=constants,
    )


class Deletes:
    """What the delete files of a snapshot do to its data files."""

    def __init__(self, sources: Sources, table: SourceTable, files: dict[str, SourceFile]) -> None:
        self.sources = sources
        self.table = table
        self.files = files
        self.counted = PositionCount()

    # -- by position --------------------------------------------------------------------------

    def positions(self, deletes: Iterable[SourceFile]) -> dict[str, BitMap64]:
        positions: dict[str, BitMap64] = {}
        by_position = [d for d in deletes if d.content != EQUALITY_DELETES]
        vectors = [d for d in by_position if d.file_format == "PUFFIN"]
        positions.update(self._vectors(vectors))
        # A vector holds every earlier delete by position of its file.
        whole = frozenset(positions)
        for delete in by_position:
            if delete.file_format == "PUFFIN":
                continue
            self._check_parquet(delete)
            if delete.referenced is not None and delete.referenced not in self.files:
                continue
            for path, rows in self._position_file(delete):
                if path not in whole:
                    positions[path] = positions[path] | rows if path in positions else rows
        return {self.sources.uri(path): rows for path, rows in positions.items() if len(rows)}

    def _vectors(self, vectors: Sequence[SourceFile]) -> Iterator[tuple[str, BitMap64]]:
        by_object: dict[str, list[SourceFile]] = defaultdict(list)
        seen: set[str] = set()
        for vector in vectors:
            data = self.files.get(vector.referenced or "")
            if not vector.referenced or vector.offset is None or not vector.length:
                raise CorruptTable("a deletion vector in a manifest lacks its file or its place")
            if vector.length > MAX_DELETES_BYTES:
                raise UnsupportedTable(f"a deletion vector has {vector.length} bytes")
            if data is None or data.sequence > vector.sequence:
                continue
            self._check_partition(vector, data)
            if vector.referenced in seen:
                raise CorruptTable("a data file has two deletion vectors", key=vector.referenced)
            seen.add(vector.referenced)
            by_object[vector.path].append(vector)

        def fetch(item: tuple[str, list[SourceFile]]) -> list[tuple[str, BitMap64]]:
            uri, listed = self.sources.uri(item[0]), item[1]
            blobs = self.sources.read_blobs(uri, [(v.offset or 0, v.length or 0) for v in listed])
            made = []
            for vector, blob in zip(listed, blobs, strict=True):
                data = self.files[vector.referenced or ""]
                rows = decode_vector(blob, file_rows=data.rows)
                if len(rows) != vector.rows:
                    raise CorruptTable(
                        "a deletion vector does not have the stated number of rows", key=uri
                    )
                made.append((data.path, rows))
            return made

        for made in self.sources.ctx.map(fetch, by_object.items()):
            for path, rows in made:
                self.counted.add(len(rows))
                yield path, rows

    def _position_file(self, delete: SourceFile) -> Iterator[tuple[str, BitMap64]]:
        uri = self.sources.uri(delete.path)
        body = self.sources.read(uri, MAX_DELETES_BYTES, "a file of position deletes")
        by_path: dict[str, BitMap64] = {}
        rows = 0
        try:
            file = pq.ParquetFile(pa.BufferReader(body))
            for batch in file.iter_batches(columns=["file_path", "pos"]):
                rows += batch.num_rows
                paths = batch.column("file_path").dictionary_encode()
                codes = paths.indices.to_numpy(zero_copy_only=False)
                at = batch.column("pos").to_numpy(zero_copy_only=False)
                for code, path in enumerate(paths.dictionary.to_pylist()):
                    if path in self.files:
                        by_path.setdefault(path, BitMap64()).update(at[codes == code].tolist())
        except (
            pa.ArrowException,
            KeyError,
            OSError,
            ValueError,
            OverflowError,
            TypeError,
        ) as error:
            raise UnreadableFile(
                f"a file of position deletes cannot be read: {str(error).partition(chr(10))[0][:100]}",
                key=uri,
            ) from None
        self._check_rows(delete, rows, uri)
        for path, positions in by_path.items():
            data = self.files[path]
            if data.sequence > delete.sequence:
                continue
            self._check_partition(delete, data)
            if positions.max() >= data.rows:
                raise CorruptTable("a position delete is beyond the end of its file", key=uri)
            self.counted.add(len(positions))
            yield path, positions

    def _check_partition(self, delete: SourceFile, data: SourceFile) -> None:
        if data.place != delete.place:
            raise UnsupportedTable(
                "deletes by position are of another partition than the data file that they name: engines "
                "treat them differently",
                key=self.sources.uri(delete.path),
                next_step=_MERGE,
            )

    def _check_parquet(self, delete: SourceFile) -> None:
        if delete.file_format != "PARQUET":
            raise UnsupportedTable(
                f"the table has deletes in {delete.file_format[:20]} files", next_step=_MERGE
            )

    def _check_rows(self, delete: SourceFile, rows: int, uri: str) -> None:
        if rows != delete.rows:
            raise CorruptTable(
                f"a file of deletes has {rows} rows, its manifest says {delete.rows}", key=uri
            )

    # -- by equal keys ------------------------------------------------------------------------

    def keys(self, deletes: Sequence[SourceFile]) -> Iterator[KeyDelete]:
        markers = 0
        for delete in deletes:
            self._check_parquet(delete)
            hit = tuple(
                self.sources.uri(data.path)
                for data in self.files.values()
                if data.sequence < delete.sequence
                and (not delete.spec.partitioned or data.place == delete.place)
            )
            if not hit:
                continue
            markers += len(hit)
            if markers > MAX_MARKERS:
                raise UnsupportedTable(
                    f"its deletes by equal keys concern more than {MAX_MARKERS} files",
                    next_step=_MERGE,
                )
            yield KeyDelete(self._key_file(delete), hit)

    def _key_file(self, delete: SourceFile) -> pa.Table:
        columns = {f.id: f for f in self.table.schema.fields}
        uri = self.sources.uri(delete.path)
        types: list[tuple[str, Primitive]] = []
        for field_id in delete.equality_ids:
            field = columns.get(field_id)
            if field is None or not isinstance(field.type, Primitive):
                raise UnsupportedTable(
                    f"an equality delete is by column {field_id}, which is nested or was dropped",
                    next_step=_MERGE,
                )
            if field.type.is_float:
                raise UnsupportedTable(
                    f"an equality delete is by column {field.name!r} of type {field.type}: engines differ "
                    "in how NaN and zeros compare",
                    next_step=_MERGE,
                )
            types.append((field.name, field.type))
        if not types:
            raise CorruptTable("an equality delete has no columns", key=uri)
        body = self.sources.read(uri, MAX_DELETES_BYTES, "a file of equality deletes")
        try:
            file = pq.ParquetFile(io.BytesIO(body))
            places = {field_id_of(field): n for n, field in enumerate(file.schema_arrow)}
            names = [file.schema_arrow.names[places[i]] for i in delete.equality_ids]
            table = file.read(columns=names).select(names)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise UnreadableFile(
                f"a file of equality deletes cannot be read: {str(error).partition(chr(10))[0][:100]}",
                key=uri,
            ) from None
        except KeyError:
            raise UnsupportedTable(
                "a file of equality deletes lacks one of its columns by field id",
                key=uri,
                next_step=_MERGE,
            ) from None
        self._check_rows(delete, table.num_rows, uri)
        return self._typed(table, types, uri)

    def _typed(self, table: pa.Table, types: Sequence[tuple[str, Primitive]], uri: str) -> pa.Table:
        columns = []
        for (name, kind), column in zip(types, table.columns, strict=True):
            if isinstance(column.type, pa.BaseExtensionType):
                column = pa.chunked_array(
                    [c.storage for c in column.chunks], column.type.storage_type
                )
            try:
                columns.append(column.cast(arrow_primitive(kind)))
            except pa.ArrowException:
                raise UnsupportedTable(
                    f"an equality delete has other values of column {name!r} than the column can have",
                    key=uri,
                    next_step=_MERGE,
                ) from None
        return pa.table(columns, names=[name for name, _ in types])

"""Reads a Delta table as it is to be adopted: log, checkpoint, deletion vectors.

Promise: the rows of `Foreign` are those that Delta's own readers return of the newest version. Requests: a
listing of the log from its last checkpoint on, one for each part or sidecar of it and each commit after it,
one for each object of vectors. Data files are not touched here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from inlay.delta.log import (
    CHANGE_TYPE,
    LOG,
    SIDECARS,
    Added,
    DeltaTable,
    Replay,
    VectorPlace,
    cast_by_readers,
    choose_files,
    parse_commit,
    table_of_log,
)
from inlay.errors import CorruptTable, UnreadableFile, UnsupportedTable
from inlay.format.puffin import decode_vector
from inlay.format.snapshot import UNPARTITIONED
from inlay.ops.adopt.foreign import MAX_FILES, Foreign, ForeignFile, Naming, PositionCount, Sources

_LAST = "_last_checkpoint"
MAX_COMMIT_BYTES = 256 * 1024 * 1024
# A part of a checkpoint; Delta's writers cut them at a few hundred MB.
MAX_CHECKPOINT_BYTES = 512 * 1024 * 1024
# Versions since the last checkpoint: writers make one every 10 or 100.
MAX_COMMITS = 100_000
_COLUMNS = (
    "sidecar.path",
    "protocol",
    "metaData",
    "add.path",
    "add.size",
    "add.partitionValues",
    "add.deletionVector",
)


def has_log(sources: Sources) -> bool:
    return any(True for _ in _listed(sources, None))


def read_delta(sources: Sources) -> Foreign:
    """The table in the folder of `sources`, at its newest version."""
    chosen = choose_files(_listed(sources, _last_checkpoint(sources)))
    if len(chosen.commits) > MAX_COMMITS:
        raise UnsupportedTable(
            f"the table has more than {MAX_COMMITS} commits since its last checkpoint",
            next_step="Write a checkpoint of it",
        )
    replay = Replay()

    def fetch(name: str) -> bytes:
        limit = MAX_CHECKPOINT_BYTES if name.endswith(".parquet") else MAX_COMMIT_BYTES
        return sources.read(sources.uri(LOG + name), limit, "a part of the Delta log")

    for name in chosen.checkpoint:  # one at a time: they are large
        _replay_checkpoint(replay, fetch(name), name)
    for path in map(unquote, replay.sidecars):
        # A name in the folder of sidecars, or a path of its own.
        uri = sources.uri(path if "/" in path else LOG + SIDECARS + path)
        _replay_checkpoint(replay, sources.read(uri, MAX_CHECKPOINT_BYTES, "a sidecar"), path)
    fetched = sources.ctx.map(fetch, chosen.commits)
    for name, data in zip(chosen.commits, fetched, strict=True):
        replay.commit(parse_commit(data), name)
        _check_count(replay)
    table = table_of_log(replay)
    files = tuple(replay.live())
    return Foreign(
        kind="Delta",
        version=str(chosen.version),
        schema=table.schema,
        last_field_id=table.last_field_id,
        naming=Naming(table.by_id, table.names, inner_ids=False, no_column=CHANGE_TYPE),
        files=tuple(_foreign(sources, f, table) for f in files),
        specs=tuple({s.id: s for s in (UNPARTITIONED, table.spec)}.values()),
        spec_id=table.spec.id,
        positions=dict(_positions(sources, files)),
        notes=table.notes,
        casts=cast_by_readers,
    )


def _check_count(replay: Replay) -> None:
    if len(replay.files) > MAX_FILES:
        raise UnsupportedTable(f"the table has more than {MAX_FILES} files", next_step="Compact it")


def _last_checkpoint(sources: Sources) -> int | None:
    note = sources.find(LOG + _LAST, 64 * 1024, "the note of the last checkpoint")
    if note is None:
        return None
    try:
        version = json.loads(note)["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # a hint only: the listing shows what there is
    return version if type(version) is int and 0 <= version < 10**20 else None


def _listed(sources: Sources, since: int | None) -> Iterator[str]:
    """Names in the log's folder, from a version on."""
    at = sources.source(sources.uri(LOG + "0"))
    prefix = at.key[:-1]
    after = None if since is None else f"{prefix}{since:020}"
    items = at.store.list(prefix, start_after=after)
    return (info.key.removeprefix(prefix) for info in items)


def _replay_checkpoint(replay: Replay, data: bytes, name: str) -> None:
    if name.endswith(".json"):
        for action in parse_commit(data):
            replay.apply(action, name)
        return
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        for batch in file.iter_batches(batch_size=4_096, columns=list(_COLUMNS)):
            for row in batch.to_pylist():
                replay.apply(_action(row), name)
            _check_count(replay)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise UnreadableFile(
            f"a checkpoint of the Delta log cannot be read: {str(error).partition(chr(10))[0][:100]}",
            key=name,
        ) from None


def _action(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of a checkpoint as the action it stands for: maps come as pairs."""
    members = {name: value for name, value in row.items() if value is not None}
    add = members.get("add")
    if add is not None:
        if add.get("path") is None:
            del members["add"]
        else:
            members["add"] = {**add, "partitionValues": dict(add.get("partitionValues") or ())}
    if (members.get("sidecar") or {"path": ""})["path"] is None:
        del members["sidecar"]
    metadata = members.get("metaData")
    if metadata is not None:
        configuration = dict(metadata.get("configuration") or ())
        members["metaData"] = {**metadata, "configuration": configuration}
    return members


def _foreign(sources: Sources, file: Added, table: DeltaTable) -> ForeignFile:
    constants = dict(table.constants(file))
    return ForeignFile(
        uri=sources.uri(file.path),
        size=file.size,
        rows=None,
        spec_id=table.spec.id,
        partition=table.partition(constants),
        # A column that is not there reads as NULL.
        constants={i: value for i, value in constants.items() if value is not None},
    )


def _positions(sources: Sources, files: tuple[Added, ...]) -> Iterator[tuple[str, BitMap64]]:
    counted = PositionCount()
    by_object: dict[str, list[tuple[Added, VectorPlace]]] = defaultdict(list)
    for file in files:
        vector = file.vector
        if vector is None:
            continue
        if vector.inline is not None:
            yield _decoded(sources, file, vector, vector.inline, counted)
        else:
            by_object[vector.path].append((file, vector))

    def fetch(item: tuple[str, list[tuple[Added, VectorPlace]]]) -> list[bytes]:
        return sources.read_blobs(sources.uri(item[0]), [(v.offset, v.length) for _, v in item[1]])

    fetched = sources.ctx.map(fetch, by_object.items())
    for listed, blobs in zip(by_object.values(), fetched, strict=True):
        for (file, vector), blob in zip(listed, blobs, strict=True):
            yield _decoded(sources, file, vector, blob, counted)


def _decoded(
    sources: Sources, file: Added, vector: VectorPlace, blob: bytes, counted: PositionCount
) -> tuple[str, BitMap64]:
    rows = decode_vector(blob)
    if len(rows) != vector.cardinality:
        raise CorruptTable(
            "a deletion vector does not have the stated number of rows", key=file.path
        )
    counted.add(len(rows))
    return sources.uri(file.path), rows

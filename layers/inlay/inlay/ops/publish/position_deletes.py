"""Position deletes of Iceberg version 2: a vector as a Parquet object of its own.

Promise: the object has the positions of the vector, in order, under the columns and field ids of the
specification ("Position Delete Files"). Its name follows from the vector's location, so it is written once
however often it is published.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.format import keys
from inlay.format.entry import DataFile, Marker, Vector
from inlay.iceberg.manifest import Entry
from inlay.iceberg.schema import Bounds
from inlay.ops.context import Context
from inlay.parquet.read.deleted_rows import load_vector

_FILE_PATH, _POS = 2147483546, 2147483545
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(_FILE_PATH)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_POS)}),
    ]
)


def write_position_deletes(
    ctx: Context, marker: Marker, file: DataFile, entry: Entry, known: Mapping[str, Entry]
) -> Entry:
    """`entry`, which is of the vector, as one of the object with the same positions. `known` are entries of
    objects written before, by their path."""
    vector = marker.body
    assert isinstance(vector, Vector) and entry.referenced is not None
    place = f"{vector.key}#{vector.offset}#{entry.referenced}"
    name = f"p-{blake2b(place.encode(), digest_size=16).hexdigest()}.parquet"
    key = keys.published_key(name)
    path = entry.referenced.encode()
    entry = replace(
        entry,
        path=ctx.location(key),
        file_format="PARQUET",
        offset=None,
        length=None,
        bounds={_FILE_PATH: Bounds(path, path, 0)},
    )
    before = known.get(entry.path)
    if before is not None:
        return replace(
            entry, size=before.size, snapshot_id=before.snapshot_id, sequence=before.sequence
        )
    positions = pa.array(load_vector(ctx.objects, vector, file.rows), pa.int64())
    paths = pa.repeat(pa.scalar(entry.referenced), len(positions))
    sink = io.BytesIO()
    pq.write_table(pa.table([paths, positions], schema=_SCHEMA), sink, compression="zstd")
    ctx.write_once(key, sink.getvalue())
    return replace(entry, size=len(sink.getvalue()))

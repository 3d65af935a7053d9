"""Markers of rows by their positions in a file: inline, or as deletion vectors in Puffin objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyroaring import BitMap64

from inlay.format import keys
from inlay.format.entry import Marker, Rows, Vector
from inlay.format.properties import is_published
from inlay.format.puffin import encode_puffin
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable

# Few positions are cheaper in the marker than as an object: 64 take about 250 bytes of JSON.
INLINE_POSITIONS = 64
# docs/FORMAT.md, section 8.
MAX_OBJECT_BYTES = 32 * 1024 * 1024
# The name of a data file is at most 1,024 bytes long; twice that where its letters are escaped.
FOOTER_BYTES = 2_400


def vector_markers(
    ctx: Context, loaded: LoadedTable, positions: Mapping[str, BitMap64]
) -> Iterator[Marker]:
    """Row markers: in the marker itself when few, else one Puffin object for all files. Other engines read
    only Puffin objects, so a published table has all of them there.

    They name exactly the given positions. A Puffin object's footer names each data file by its full URI,
    because Iceberg's readers compare it: pyiceberg silently skips a vector with a relative name. (Inlay's
    own readers use the offset in the marker, so a table may be moved.)
    """
    few = 0 if is_published(loaded.snapshot.properties) else INLINE_POSITIONS
    large = {k: p for k, p in positions.items() if len(p) > few}
    for file, rows in positions.items():
        if file not in large:
            yield Marker(id=ctx.new_id(), body=Rows(tuple(rows)), file=file)
    yield from puffin_markers(ctx, loaded, large)


def puffin_markers(
    ctx: Context, loaded: LoadedTable, positions: Mapping[str, BitMap64]
) -> Iterator[Marker]:
    """Vectors in new Puffin objects of at most 32 MB. For a published table, one object each: DuckDB 1.5
    mixes up the vectors of files that share an object (duckdb-iceberg, pull request 1182)."""
    if is_published(loaded.snapshot.properties):
        alone = [{file: rows} for file, rows in positions.items()]
        for written in ctx.map(lambda one: _write_vectors(ctx, loaded, one), alone):
            yield from written
        return
    together: dict[str, BitMap64] = {}
    size = 0
    for file, rows in positions.items():
        size += _bytes_at_most(rows)
        if together and size > MAX_OBJECT_BYTES:
            yield from _write_vectors(ctx, loaded, together)
            together, size = {}, _bytes_at_most(rows)
        together[file] = rows
    if together:
        yield from _write_vectors(ctx, loaded, together)


def _bytes_at_most(rows: BitMap64) -> int:
    """Of a vector and its part of the footer. Roaring stores each 65,536 positions as an array of two
    bytes each, or as 8 KiB (`format.puffin`), after a few bytes of header."""
    containers = 1 + (rows.max() >> 16 if rows else 0)
    return FOOTER_BYTES + min(2 * len(rows), 8_192 * containers) + 16 * min(len(rows), containers)


def _write_vectors(
    ctx: Context, loaded: LoadedTable, positions: Mapping[str, BitMap64]
) -> list[Marker]:
    key = keys.tombstone_key(loaded.date_us, ctx.new_id(), "puffin")
    data, blobs = encode_puffin([(ctx.location(file), rows) for file, rows in positions.items()])
    ctx.upload_begins()
    ctx.write_once(key, data)
    return [
        Marker(
            id=ctx.new_id(),
            body=Vector(key, blob.offset, blob.length, len(positions[file])),
            file=file,
        )
        for file, blob in zip(positions, blobs, strict=True)
    ]

"""Files as other engines see them: checked before they are published, deletion vectors as version 2 has
them.

Promise: a data file passes when each of its columns has the table's field id and is laid out in a way that
every reader of Iceberg reads as the column's type; a vector passes when its Puffin footer names its data
file by the URI in the table metadata. Failures are reported by name, with whether stamping, or rewriting
the file or the vector, corrects them. One request for each object, once in its life, or once more where a
column was widened: what was published before is known.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.errors import ErrorKind, InlayError, UnsupportedFile
from inlay.format import keys
from inlay.format.entry import DataFile, Marker, Vector
from inlay.format.puffin import decode_footer as decode_puffin
from inlay.format.schema import Primitive, Schema
from inlay.format.snapshot import Snapshot
from inlay.iceberg.manifest import Entry
from inlay.iceberg.schema import Bounds, ends_early, iceberg_type
from inlay.ops.context import Context
from inlay.parquet.footer.fields import Converted, Element, Logical, Physical
from inlay.parquet.footer.footer import Footer, decode_footer
from inlay.parquet.footer.thrift import nested, unpack
from inlay.parquet.read.deleted_rows import load_vector
from inlay.parquet.read.describe import read_tail
from inlay.parquet.surgery.stamp import stamped
from inlay.record import Record, replace
from inlay.storage.base import Location, Missing

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
    """`entry`, of a vector, as the entry of a Parquet object with the same positions. `known` are entries
    of objects written before, by their path.

    The position deletes of Iceberg version 2. The object has the positions of the vector, in order, under
    the columns and field ids of the specification ("Position Delete Files"). Its name follows from the
    vector's location, so it is written once however often it is published.
    """
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


# The footer of a Puffin object of ten thousand vectors is some 2 MB; most have a few.
PUFFIN_TAIL_BYTES = 64 * 1024
# "Reserved Field IDs" in Iceberg's specification.
RESERVED_IDS = 2_147_483_447


class Verdict(Record):
    """`stamp`: the field ids are not the table's; `repack`: a column is laid out in a way that some engine
    would misread; `reason`: it cannot be published. None of them: it passes."""

    stamp: bool = False
    repack: bool = False
    reason: str = ""


def check_files(
    ctx: Context, snapshot: Snapshot, entries: Iterable[DataFile]
) -> Mapping[str, Verdict]:
    """By key, the files that do not pass."""
    retired = _Retired.of(snapshot)

    def judge(entry: DataFile) -> tuple[str, Verdict]:
        return entry.key, _judge(ctx, snapshot, entry, retired)

    return {key: v for key, v in ctx.map(judge, entries) if v != Verdict()}


class _Retired(Record):
    """Field ids that no column has or will ever get: those that an adopted table had dropped before. They
    may be billions."""

    last: int
    used: frozenset[int]

    @staticmethod
    def of(snapshot: Snapshot) -> _Retired:
        ids = (field.id for schema in snapshot.schemas for _, field in schema.walk())
        return _Retired(snapshot.last_field_id, frozenset(ids))

    def __contains__(self, field_id: object) -> bool:
        return (
            isinstance(field_id, int) and 1 <= field_id <= self.last and field_id not in self.used
        )


def _judge(ctx: Context, snapshot: Snapshot, entry: DataFile, retired: _Retired) -> Verdict:
    if entry.adopted and ends_early(entry.key):
        return Verdict(reason="it is adopted, and engines end a location at its # or ?")
    try:
        source = ctx.objects.source(entry.key, entry.size, entry.etag)
        with source.asking():
            got = read_tail(
                source.store, Location(source.store.scheme, source.store.bucket, source.key)
            )
        if entry.etag is not None and got.etag != entry.etag:
            return Verdict(reason="it is adopted, and its object has changed")
        footer = decode_footer(got.body, file_size=got.size)
        recorded = snapshot.schema_by_id(entry.schema_id)
        wrong = _wrong_layouts(footer, recorded, snapshot.schema)
        if wrong and entry.adopted:
            return Verdict(
                reason=f"it is adopted in place, and {wrong}: ingest it, or adopt its table, with copy"
            )
        if wrong:
            return Verdict(repack=True)
        foreign = entry.is_foreign and not entry.adopted
        same = footer is stamped(
            footer,
            recorded,
            views=entry.adopted,
            foreign=foreign,
            retired=retired if entry.adopted else (),
        )
    except UnsupportedFile as error:
        return Verdict(reason=error.message) if entry.adopted else Verdict(repack=True)
    except InlayError as error:
        if not is_of_the_file(error):
            raise
        return Verdict(reason=error.message)
    if same:
        return Verdict()
    if entry.adopted:
        # Iceberg Java writes `_row_id` when it compacts; readers prefer it to the row ids that the
        # publication gives.
        ids = (element.get(Element.FIELD_ID) for element in footer.schema)
        if any(isinstance(field_id, int) and field_id >= RESERVED_IDS for field_id in ids):
            why = "has row ids of the table it comes from"
        else:
            why = "lacks the table's field ids"
        return Verdict(
            reason=f"it is adopted in place and {why}: ingest it, or adopt its table, with copy"
        )
    return Verdict(stamp=True)


def is_of_the_file(error: InlayError) -> bool:
    """Whether a file itself is the obstacle, not credentials that have expired or a server that fails."""
    return error.kind in (ErrorKind.INPUT, ErrorKind.REBASE)


def _wrong_layouts(footer: Footer, recorded: Schema, current: Schema) -> str:
    """Why some engine would misread a column of the file; empty when none would."""
    # By the path in the schema; the middle group of lists and maps has any name.
    by_path, paths = dict(recorded.walk()), _table_paths(footer.schema)
    for leaf in footer.leaves:
        field = by_path.get(paths[leaf.element])
        kind = None if field is None else current.types.get(field.id)
        if field is None or kind is None:
            continue
        element = footer.schema[leaf.element]
        if not _fits(kind, leaf.type, leaf.type_length, element):
            return f"column {field.name!r} is stored in a way that engines may not read as {kind}"
    return ""


def _table_paths(elements: Sequence[Mapping[int, object]]) -> dict[int, tuple[str, ...]]:
    """By element of a footer's schema its path in the table's: without the repeated groups of lists and
    maps, whose fields are `element`, `key` and `value`."""
    paths: dict[int, tuple[str, ...]] = {}
    # For each group that the next element may be in: how many of its fields are to come, its path, its
    # first field and their number where it is repeated.
    groups: list[tuple[int, tuple[str, ...], int, int]] = [(len(elements), (), 0, 0)]
    for at, element in enumerate(elements[1:], 1):
        while not groups[-1][0]:
            groups.pop()
        remaining, path, first, siblings = groups.pop()
        groups.append((remaining - 1, path, first, siblings))
        count = element.get(Element.CHILDREN, 0)
        name = element[Element.NAME]
        assert isinstance(count, int) and isinstance(name, bytes)
        if element.get(Element.REPETITION) == 2:
            paths[at] = path
            groups.append((count, path, at + 1, count))
            continue
        word = name.decode("utf-8", "surrogateescape")
        if siblings:
            word = "element" if siblings == 1 else "key" if at == first else "value"
        paths[at] = (*path, word)
        groups.append((count, paths[at], 0, 0))
    return paths


_PLAIN_INTS = (None, 15, 16, 17, 18, Converted.UINT_8, Converted.UINT_16)


def _fits(
    kind: Primitive, stored: Physical, length: int | None, element: Mapping[int, object]
) -> bool:
    converted = element.get(Element.CONVERTED)
    logical = element.get(Element.LOGICAL)
    keys = set(logical) if isinstance(logical, dict) else set()
    match iceberg_type(kind):
        case "boolean":
            return stored == Physical.BOOLEAN
        case "int":
            return stored == Physical.INT32 and converted in _PLAIN_INTS
        case "long":
            return stored in (Physical.INT32, Physical.INT64) and converted in _PLAIN_INTS
        case "float":
            return stored == Physical.FLOAT
        case "double":
            return stored in (Physical.FLOAT, Physical.DOUBLE)
        case "string":
            return stored == Physical.BYTE_ARRAY and (
                converted == Converted.UTF8 or keys == {Logical.STRING}
            )
        case "binary":
            return stored == Physical.BYTE_ARRAY and converted is None and not keys
        case "date":
            return stored == Physical.INT32 and converted == Converted.DATE
        case "time":
            return stored == Physical.INT64 and (
                converted == Converted.TIME_MICROS or _is_micros(logical, Logical.TIME)
            )
        case "timestamp" | "timestamptz":
            return stored == Physical.INT64 and (
                converted == Converted.TIMESTAMP_MICROS or _is_micros(logical, Logical.TIMESTAMP)
            )
        case str(name) if name.startswith("decimal"):
            return (converted == Converted.DECIMAL or Logical.DECIMAL in keys) and (
                element.get(Element.SCALE) == kind.scale
            )
        case str(name) if name.startswith("fixed"):
            return (
                stored == Physical.FIXED_LEN_BYTE_ARRAY
                and length == kind.precision
                and converted is None
                and not keys
            )
        case _:  # Iceberg has no such type
            return False


# parquet.thrift: the unit of TIME and TIMESTAMP, and MICROS of the units.
_UNIT, _MICROS = nested(2), nested(2)


def _is_micros(logical: object, kind: int) -> bool:
    if not isinstance(logical, dict) or kind not in logical:
        return False
    unit = unpack(logical[kind]).get(_UNIT)
    return unit is not None and _MICROS in unpack(unit)


# -- vectors --------------------------------------------------------------------------------------


def puffin_sizes(ctx: Context, markers: Iterable[Marker]) -> Mapping[str, int]:
    """By marker id the size of its Puffin object, for vectors that every other reader finds: the only one
    in its object (`data`), under the URI of its data file."""
    by_object: dict[str, list[Marker]] = {}
    for marker in markers:
        assert isinstance(marker.body, Vector)
        by_object.setdefault(marker.body.key, []).append(marker)

    def look(item: tuple[str, list[Marker]]) -> dict[str, int]:
        key, of_object = item
        got = ctx.store.get_suffix(ctx.key(key), PUFFIN_TAIL_BYTES)
        if isinstance(got, Missing):
            return {}
        try:
            blobs = decode_puffin(got.body)
        except InlayError:
            whole = ctx.store.get_suffix(ctx.key(key), got.size)
            if isinstance(whole, Missing):
                return {}
            try:
                blobs = decode_puffin(whole.body)
            except InlayError:
                return {}
        if len(blobs) != 1:
            return {}
        named = {(b.offset, b.length, b.data_file) for b in blobs}
        sizes_by_id: dict[str, int] = {}
        for marker in of_object:
            body = marker.body
            assert isinstance(body, Vector) and marker.file is not None
            if (body.offset, body.length, ctx.location(marker.file)) in named:
                sizes_by_id[marker.id] = got.size
        return sizes_by_id

    sizes: dict[str, int] = {}
    for of_object_sizes in ctx.map(look, by_object.items()):
        sizes |= of_object_sizes
    return sizes

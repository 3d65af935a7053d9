"""Leaves and nodes, the objects that entries roll into: to bytes and back.

Promise: `decode(encode(x)) == x`, equal values give equal bytes, and anything that is not exactly what
docs/FORMAT.md describes raises `CorruptTable` or `NewerFormat` naming the object. Entries are stored by
column (`format.columns`): neighbours differ little, and what all share is written once. A leaf of data
files states the type of each bound, so it can be read without a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, groupby, repeat
from typing import Any, TypeVar

from inlay.format import columns
from inlay.format.codec import (
    SEGMENT_MEMBERS,
    decode_frame,
    encode_frame,
    guarded,
    segment_of,
    segment_values,
)
from inlay.format.entry import (
    BODY_BYTES,
    FILE_MEMBERS,
    IDENTITY_BYTES,
    ColumnStats,
    DataFile,
    LedgerRecord,
    Marker,
    Types,
    file_values,
    flags_of,
    marker_from_json,
    marker_to_json,
    plain_value,
)
from inlay.format.file_entries import FileEntries, StatsColumn, packed
from inlay.format.schema import Primitive, parse_primitive
from inlay.format.snapshot import Segment
from inlay.format.values import as_count, bytes_from_text, bytes_to_text, pad

T = TypeVar("T")

# No valid leaf or node holds more: a constant column must not expand into unbounded memory.
MAX_ENTRIES = 1 << 20

# How the values of a column are written and read.
_Column = tuple[Callable[[Sequence[Any]], Any], Callable[[Any, int], Sequence[Any]]]
_TEXTS: _Column = (columns.texts, columns.read_texts)
_VALUES: _Column = (columns.column, columns.read_column)
_COUNTS: _Column = (columns.numbers, lambda body, count: packed(columns.read_counts(body, count)))
_ALWAYS = ("key", "size", "footer", "rows", "groups", "schema")
_TEXT_MEMBERS = ("key", "event", "origin", "etag")
_FILE_COLUMNS = {
    name: _VALUES if name == "partition" else _TEXTS if name in _TEXT_MEMBERS else _COUNTS
    for name in FILE_MEMBERS
    if name != "stats"
}
_MARKER_COLUMNS = {
    "id": _TEXTS,
    "what": _TEXTS,
    "body": _VALUES,
    "sequence": _COUNTS,
    "file": _TEXTS,
    "erasure": _TEXTS,
}
_FILES = frozenset(("count", *FILE_MEMBERS))
_MARKERS = frozenset(("count", *_MARKER_COLUMNS))
_LEDGER = frozenset(("count", "ids", "versions", "times", "runs", "bodies"))
_REFERENCE_COLUMNS = {
    name: _TEXTS if name in ("id", "dead") else _COUNTS
    for name in SEGMENT_MEMBERS
    if name not in ("stats", "level", "settled")
}
_REFERENCES = frozenset(("count", "stats", *_REFERENCE_COLUMNS))


# -- data files -----------------------------------------------------------------------------------


def encode_files(entries: Sequence[DataFile], types: Types) -> bytes:
    body = _columns_to_json(_FILE_COLUMNS, map(file_values, entries))
    body["stats"] = _stats_to_json(
        [f.stats for f in entries], [f.schema_id for f in entries], types
    )
    return _encode("files", len(entries), body)


def decode_files(data: bytes, *, key: str) -> FileEntries:
    return _decode("files", data, key, _FILES, _files_from_json)


def _files_from_json(body: Mapping[str, Any], count: int) -> FileEntries:
    members = _columns_from_json(_FILE_COLUMNS, body, count)
    for name in _ALWAYS:
        columns.read_all(members[name])
    for partition in members["partition"]:
        for value in partition or ():
            plain_value(value)
    return FileEntries(members, _stats_columns(body.get("stats"), count), count)


# -- markers --------------------------------------------------------------------------------------


def encode_markers(entries: Sequence[Marker], types: Types) -> bytes:
    rows = (pad(marker_to_json(m, types), len(_MARKER_COLUMNS)) for m in entries)
    return _encode("markers", len(entries), _columns_to_json(_MARKER_COLUMNS, rows))


def decode_markers(data: bytes, *, key: str, types: Types) -> tuple[Marker, ...]:
    def read(body: Mapping[str, Any], count: int) -> tuple[Marker, ...]:
        members = _columns_from_json(_MARKER_COLUMNS, body, count)
        rows = zip(*members.values(), strict=True)
        return tuple(marker_from_json(list(row), types) for row in rows)

    return _decode("markers", data, key, _MARKERS, read)


# -- ledger ---------------------------------------------------------------------------------------


def encode_ledger(entries: Sequence[LedgerRecord]) -> bytes:
    """Digests are random and cannot be compressed. They are stored together as one text, and everything
    the records of one version share is stored once for them all."""
    for record in entries:
        if len(record.id) != IDENTITY_BYTES or len(record.body or bytes(BODY_BYTES)) != BODY_BYTES:
            raise ValueError("a digest in the ledger does not have the length of the format")
    by_version = groupby(entries, key=lambda record: (record.version, record.time_us))
    runs = [(*shared, len(list(records))) for shared, records in by_version]
    bodies = [(n, r.body) for n, r in enumerate(entries) if r.body is not None]
    body = {
        "ids": bytes_to_text(b"".join(r.id for r in entries)),
        "versions": columns.numbers([version for version, _, _ in runs]),
        "times": columns.numbers([time_us for _, time_us, _ in runs]),
        "runs": [many for _, _, many in runs],
        "bodies": None
        if not bodies
        else [
            columns.numbers([n for n, _ in bodies]),
            bytes_to_text(b"".join(b for _, b in bodies)),
        ],
    }
    return _encode("ledger", len(entries), body)


def decode_ledger(data: bytes, *, key: str) -> tuple[LedgerRecord, ...]:
    return _decode("ledger", data, key, _LEDGER, _ledger_from_json)


def _ledger_from_json(body: Mapping[str, Any], count: int) -> tuple[LedgerRecord, ...]:
    ids = _digests(body["ids"], count, IDENTITY_BYTES)
    runs = [as_count(many) for many in body["runs"]]
    if sum(runs) != count:
        raise ValueError("the runs of versions do not add up to the number of records")
    versions = columns.read_counts(body.get("versions"), len(runs))
    times = columns.read_counts(body.get("times"), len(runs))
    bodies: dict[int, bytes] = {}
    if body.get("bodies") is not None:
        places, digests = body["bodies"]
        text = bytes_from_text(digests)
        where = columns.read_all(columns.read_counts(places, len(text) // BODY_BYTES))
        bodies = dict(zip(where, _digests(digests, len(where), BODY_BYTES), strict=True))
        if len(bodies) < len(where) or max(bodies, default=0) >= count:
            raise ValueError("there are bodies of records that do not exist")
    stamped = chain.from_iterable(
        repeat((version, time_us), many)
        for version, time_us, many in zip(versions, times, runs, strict=True)
    )
    return tuple(
        LedgerRecord(id_, bodies.get(n), version, time_us)
        for n, (id_, (version, time_us)) in enumerate(zip(ids, stamped, strict=True))
    )


def _digests(text: Any, count: int, width: int) -> list[bytes]:
    digests = bytes_from_text(text)
    if len(digests) != count * width:
        raise ValueError(f"{len(digests)} bytes are not {count} digests of {width}")
    return [digests[at : at + width] for at in range(0, len(digests), width)]


# -- references -----------------------------------------------------------------------------------


def encode_references(leaves: Sequence[Segment], types: Types) -> bytes:
    """A node: references to leaves."""
    rows = map(segment_values, leaves)
    values = ([row[name] for name in _REFERENCE_COLUMNS] for row in rows)
    body = _columns_to_json(_REFERENCE_COLUMNS, values)
    body["stats"] = _stats_to_json([s.stats for s in leaves], [s.schema_id for s in leaves], types)
    in_order = {name: body.get(name) for name in SEGMENT_MEMBERS}
    return _encode("references", len(leaves), in_order)


def decode_references(data: bytes, *, key: str) -> tuple[Segment, ...]:
    return _decode("references", data, key, _REFERENCES, _references_from_json)


def _references_from_json(body: Mapping[str, Any], count: int) -> tuple[Segment, ...]:
    members = _columns_from_json(_REFERENCE_COLUMNS, body, count)
    for name in ("id", "entries", "size"):
        columns.read_all(members[name])
    stats = _stats_from_json(body.get("stats"), count)
    rows = zip(*members.values(), strict=True)
    return tuple(
        segment_of(dict(zip(members, row, strict=True)), known)
        for row, known in zip(rows, stats, strict=True)
    )


# -- statistics -----------------------------------------------------------------------------------


def _stats_to_json(
    all_stats: Sequence[Mapping[int, ColumnStats]], schema_ids: Sequence[int], types: Types
) -> list[Any] | None:
    """One array for each column and type: `[field id, type, lower, upper, null counts, flags]`. An entry
    without flags has no statistics of the column."""
    per_column: dict[tuple[int, str], tuple[Primitive, list[ColumnStats | None]]] = {}
    for ordinal, (stats, schema_id) in enumerate(zip(all_stats, schema_ids, strict=True)):
        for field_id, column in stats.items():
            kind = column.kind or types.of(schema_id, field_id)
            place = (field_id, str(kind))
            if place not in per_column:
                per_column[place] = kind, [None] * len(all_stats)
            per_column[place][1][ordinal] = column
    made: list[Any] = []
    for (field_id, kind_text), (kind, stats_) in sorted(per_column.items()):
        lower, upper = columns.bounds(
            kind,
            [None if c is None else c.lower for c in stats_],
            [None if c is None else c.upper for c in stats_],
        )
        nulls = columns.numbers([None if c is None else c.null_count for c in stats_])
        flags = columns.numbers([None if c is None else flags_of(c) for c in stats_])
        made.append([field_id, kind_text, lower, upper, nulls, flags])
    return made or None


def _stats_columns(bodies: Any, count: int) -> list[StatsColumn]:
    made: list[StatsColumn] = []
    for field_id, kind_text, lower, upper, null_counts, flag_column in bodies or ():
        kind = parse_primitive(kind_text)
        lowers, uppers = columns.read_bounds(kind, lower, upper, count)
        nulls = columns.read_counts(null_counts, count)
        flags = columns.read_counts(flag_column, count)
        made.append(
            StatsColumn(
                as_count(field_id),
                kind,
                packed(lowers) if kind.is_integer or kind.is_temporal else lowers,
                packed(uppers) if kind.is_integer or kind.is_temporal else uppers,
                packed(nulls),
                packed(flags),
            )
        )
    return made


def _stats_from_json(bodies: Any, count: int) -> Sequence[Mapping[int, ColumnStats]]:
    made: list[dict[int, ColumnStats]] = [{} for _ in range(count)]
    for column in _stats_columns(bodies, count):
        for n, into in enumerate(made):
            stats = column.of(n)
            if stats is not None:
                into[column.field_id] = stats
    return made


# -- columns and frames --------------------------------------------------------------------------


def _columns_to_json(
    written_as: Mapping[str, _Column], rows: Iterable[Sequence[Any]]
) -> dict[str, Any]:
    """Each column by its name; none at all where there is no row."""
    by_column = zip(written_as.items(), zip(*rows, strict=True), strict=False)
    return {name: write(values) for (name, (write, _)), values in by_column}


def _columns_from_json(
    written_as: Mapping[str, _Column], body: Mapping[str, Any], count: int
) -> dict[str, Sequence[Any]]:
    return {name: read(body.get(name), count) for name, (_, read) in written_as.items()}


def _encode(kind: str, count: int, body: Mapping[str, Any]) -> bytes:
    members = {name: value for name, value in body.items() if value is not None}
    return encode_frame(kind, {"count": count, **members})


def _decode(
    kind: str,
    data: bytes,
    key: str,
    known: frozenset[str],
    read: Callable[[Mapping[str, Any], int], T],
) -> T:
    body = decode_frame(kind, data, key=key, parts=known)

    def decode() -> T:
        count = as_count(body["count"])
        if count > MAX_ENTRIES:
            raise ValueError(f"{count} entries exceed what an object may hold")
        return read(body, count)

    return guarded(key, decode)

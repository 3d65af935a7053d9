"""Which columns of a Parquet file another reader gives exactly as this library's does.

Promise: a column listed here has exactly the types, nesting and nullability of the table's schema in the
file, in a form that both readers read as the same values. A column that either reader would convert, guess
or rebase (narrower integers, INT96, legacy lists, dates of old Spark versions, optional columns where the
table has required ones) is left out, and so is one that the other cannot decode, or whose writer is known
for wrong statistics, by which it might leave out rows.

The file's footer decides, not the table's metadata alone: ingested files were written by others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.parquet as pq

from inlay.format.schema import Field, ListOf, MapOf, Primitive, Struct
from inlay.parquet.read.data_file import OpenFile
from inlay.parquet.read.old_times import shifts_dates
from inlay.parquet.read.statistics import has_known_faults
from inlay.record import Record

_UNITS = {"ms": "milliseconds", "us": "microseconds"}


class ReaderSupport(Record):
    """What another reader of Parquet reads. `physical`: of a type of the format the type of Parquet in
    which both read the same values, "" for none (decimals go by their digits); it pickles."""

    physical: Callable[[Primitive], str]
    codecs: frozenset[str]
    encodings: frozenset[str]


def exact_columns(reader: ReaderSupport, file: OpenFile) -> frozenset[int]:
    """Ids of the top-level columns of the file's recorded schema that `reader` reads exactly."""
    spelled = Counter(name.lower() for name in file.arrow.names)
    # Arrow reads them as they are.
    rebased = shifts_dates(file.metadata.metadata or {})
    return frozenset(
        field.id
        for field in file.task.schema.fields
        # Other readers may ignore case in names.
        if spelled[field.name.lower()] == 1 and _is_exact(reader, file, field, rebased)
    )


def _is_exact(reader: ReaderSupport, file: OpenFile, field: Field, rebased: bool) -> bool:
    place = file.columns.tops.get(field.id)
    if place is None:
        return False
    expected = list(_leaves(field, (), 0, 0))
    return len(expected) == len(place.leaves) and all(
        _fits(reader, file, leaf, *expects, rebased)
        for leaf, expects in zip(place.leaves, expected, strict=True)
    )


def _leaves(
    field: Field, path: tuple[str, ...], definition: int, repetition: int
) -> Iterator[tuple[str, Primitive, int, int]]:
    """The leaves of a field in the current rules of the Parquet format: path, type, levels."""
    path = (*path, field.name)
    definition += field.nullable
    match field.type:
        case Primitive():
            yield ".".join(path), field.type, definition, repetition
        case Struct(fields):
            for child in fields:
                yield from _leaves(child, path, definition, repetition)
        case ListOf(element):
            yield from _leaves(element, (*path, "list"), definition + 1, repetition + 1)
        case MapOf(key, value):
            for side in (key, value):
                yield from _leaves(side, (*path, "key_value"), definition + 1, repetition + 1)


def _fits(
    reader: ReaderSupport,
    file: OpenFile,
    leaf: int,
    path: str,
    kind: Primitive,
    definition: int,
    repetition: int,
    rebased: bool,
) -> bool:
    column = file.metadata.schema.column(leaf)
    levels = (column.max_definition_level, column.max_repetition_level)
    if column.path != path or levels != (definition, repetition):
        return False
    if kind.is_temporal and rebased:
        return False
    if has_known_faults(file.metadata, leaf):
        return False  # the other might leave out rows by them
    return _has_type(reader, column, kind) and _is_decodable(reader, file.metadata, leaf)


def _has_type(reader: ReaderSupport, column: pq.ColumnSchema, kind: Primitive) -> bool:
    logical: dict[str, Any] = json.loads(column.logical_type.to_json())
    name = logical["Type"]
    if kind.name == "decimal":
        return name == "Decimal" and (logical["precision"], logical["scale"]) == (
            kind.precision,
            kind.scale,
        )
    if column.physical_type != reader.physical(kind):
        return False
    match kind.name:
        case "int8" | "int16" | "int32" | "int64":
            plain = name == "None" and kind.name in ("int32", "int64")
            bits = int(kind.name[3:])
            return plain or (
                name == "Int" and (logical["bitWidth"], logical["isSigned"]) == (bits, True)
            )
        case "string" | "date":
            return bool(name == kind.name.capitalize())
        case "timestamp" | "timestamptz":
            return name == "Timestamp" and (
                (logical["isAdjustedToUTC"], logical["timeUnit"])
                == (kind.name == "timestamptz", _UNITS.get(kind.unit))
            )
        case _:  # of the others, those that have a `physical` type are plain
            return bool(name == "None")


def _is_decodable(reader: ReaderSupport, metadata: pq.FileMetaData, leaf: int) -> bool:
    # A writer treats all its row groups alike; if one differed, the other would report it and stop.
    if not metadata.num_row_groups:
        return True
    chunk = metadata.row_group(0).column(leaf)
    return chunk.compression in reader.codecs and reader.encodings.issuperset(chunk.encodings)

"""Finds a table's columns in a Parquet file.

Promise: a field of the table is found in the file by *name under the schema the file's entry records*, so a
name that is reused later never reads old data (the rule of `parquet.arrow.conform`). Field ids inside the
file are not used: files of others have ids of other tables.

Pure but for Arrow's schema values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from inlay.format.schema import Field, Primitive, Schema, Struct


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A top-level column of a file: its ordinal and its leaves (column chunks)."""

    ordinal: int
    leaves: Sequence[int]


@dataclass(frozen=True, slots=True)
class FileColumns:
    """`tops`: field id of a top-level column → its place. `leaves`: field id of a primitive, reached
    through structs only → its leaf, which is what has statistics. Absent means that the file does not have
    the field: every row of it is NULL."""

    tops: Mapping[int, FileColumn] = field(default_factory=dict)
    leaves: Mapping[int, int] = field(default_factory=dict)


def locate_columns(file: pa.Schema, recorded: Schema) -> FileColumns:
    """The places of the fields of `recorded` in a file whose Arrow schema is `file`."""
    tops: dict[int, FileColumn] = {}
    leaves: dict[int, int] = {}
    columns = list(file)
    kinds = [column.type for column in columns]
    firsts = _first_leaves(0, kinds)
    for found, ordinal in _match(columns, recorded.fields):
        first, end = firsts[ordinal], firsts[ordinal + 1]
        tops[found.id] = FileColumn(ordinal, range(first, end))
        _locate_leaves(found, kinds[ordinal], end - first, first, leaves)
    return FileColumns(tops, leaves)


def cut_to(columns: FileColumns, wanted: Schema) -> FileColumns:
    """`columns` with only the leaves of structs that `wanted` has. A struct that lacks one of them in the
    file keeps all: a leaf has to say where the struct is NULL."""
    tops = dict(columns.tops)
    for top in wanted.fields:
        if top.id not in tops or not isinstance(top.type, Struct):
            continue
        ids = _flat_ids(top)
        if ids is not None and all(each in columns.leaves for each in ids):
            leaves = tuple(sorted(columns.leaves[each] for each in ids))
            tops[top.id] = FileColumn(tops[top.id].ordinal, leaves)
    return FileColumns(tops, columns.leaves)


def _flat_ids(of: Field) -> list[int] | None:
    """Ids of the primitives of a struct; None where it has lists or maps."""
    if isinstance(of.type, Primitive):
        return [of.id]
    if not isinstance(of.type, Struct):
        return None
    found = [_flat_ids(child) for child in of.type.fields]
    return None if None in found else [each for ids in found if ids for each in ids]


def leaf_count(kind: pa.DataType) -> int:
    """The number of column chunks of a value of this type.

    >>> leaf_count(pa.struct([("a", pa.int64()), ("b", pa.map_(pa.string(), pa.int8()))]))
    3
    """
    if isinstance(kind, pa.BaseExtensionType):
        return leaf_count(kind.storage_type)
    fields = kind.num_fields
    if not fields:  # of nearly every column
        return leaf_count(kind.value_type) if pa.types.is_dictionary(kind) else 1
    return sum(leaf_count(kind.field(n).type) for n in range(fields))


def _match(columns: Sequence[pa.Field], fields: Sequence[Field]) -> list[tuple[Field, int]]:
    by_name = {column.name: ordinal for ordinal, column in enumerate(columns)}
    return [(f, by_name[f.name]) for f in fields if f.name in by_name]


def _first_leaves(first: int, kinds: Sequence[pa.DataType]) -> list[int]:
    """The first leaf of each, and the one after the last."""
    found = [first]
    for kind in kinds:
        first += leaf_count(kind)
        found.append(first)
    return found


def _locate_leaves(
    found: Field, kind: pa.DataType, count: int, first: int, into: dict[int, int]
) -> None:
    if isinstance(found.type, Primitive) and count == 1 and not pa.types.is_nested(kind):
        into[found.id] = first
    elif isinstance(found.type, Struct) and pa.types.is_struct(kind):
        children = [kind.field(n) for n in range(kind.num_fields)]
        firsts = _first_leaves(first, [child.type for child in children])
        for wanted, ordinal in _match(children, found.type.fields):
            count = firsts[ordinal + 1] - firsts[ordinal]
            _locate_leaves(wanted, children[ordinal].type, count, firsts[ordinal], into)

"""An adopted table lives on: whatever a table of Inlay may do, over the files of another writer."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from inlay.format.schema import Primitive
from inlay.format.values import physical
from inlay.parquet.arrow.evaluate import columns_of, selected
from inlay.parse.condition import parse_predicate
from inlay.parse.show import format_value
from inlay.table import Table

from .shapes import Shape

OPERATORS = ("=", "<", "<=", ">", ">=", "!=")


class SecondLife(Shape):
    """The steps of `Shape` on a table that was adopted. What it never had it gets: columns, partitions."""

    def __init__(self, table: Table, folder: Path, seed: int) -> None:
        self.adopted = table
        super().__init__(folder, seed)
        self.next_id = 1_000  # the sources number their rows from 0

    def create(self) -> Table:
        self.root = Path(self.adopted.uri.removeprefix("file://"))
        return self.adopted

    def value(self, kind: pa.DataType, nullable: bool) -> Any:
        if isinstance(kind, pa.BaseExtensionType):
            return self.value(kind.storage_type, nullable)
        if pa.types.is_fixed_size_binary(kind):
            return self.random.randbytes(kind.byte_width)
        return super().value(kind, nullable)

    def rows(self, count: int | None = None) -> pa.Table:
        """Rows of the table's columns, whatever their types, numbered on."""
        count = self.random.randint(1, self.most) if count is None else count
        first, self.next_id = self.next_id, self.next_id + count
        schema, arrays = self.table.schema, []
        for field in schema:
            extension = isinstance(field.type, pa.BaseExtensionType)
            kind = field.type.storage_type if extension else field.type
            values = (
                list(range(first, first + count))
                if field.name == "id"
                else [self.value(field.type, field.nullable) for _ in range(count)]
            )
            found = pa.array(values, kind)
            arrays.append(pa.ExtensionArray.from_storage(field.type, found) if extension else found)
        return pa.Table.from_arrays(arrays, schema=schema)


def _stored(kind: pa.DataType) -> pa.DataType:
    """The Arrow type whose values are those of literals: days and units of time as numbers."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


def check_filters(table: Table, pick: random.Random, log: object) -> int:
    """That conditions, by which files and row groups are left out, select what they select of all rows."""
    schema = table.snapshot.schema
    whole = table.scan().to_arrow().combine_chunks()
    asked = 0
    for at, field in enumerate(schema.fields):
        if not isinstance(field.type, Primitive) or not whole.num_rows:
            continue
        column = whole.column(at)
        values = [v for v in column.cast(_stored(column.type)).to_pylist() if v is not None]
        name = '"' + field.name.replace('"', '""') + '"'
        texts = [f"{name} IS NULL", f"{name} IS NOT NULL"]
        for value in pick.sample(values, min(2, len(values))):
            literal = format_value(field.type, physical(field.type, value))
            texts += [f"{name} {op} {literal}" for op in pick.sample(OPERATORS, 3)]
        [batch] = whole.to_batches(max_chunksize=whole.num_rows)
        for text in texts:
            wanted = selected(parse_predicate(text, schema), batch, columns_of(schema))
            found = table.scan(where=text).to_arrow()
            expected = whole.filter(wanted)
            assert _multiset(found) == _multiset(expected), (text, log)
            asked += 1
    return asked


def _multiset(rows: pa.Table) -> list[str]:
    return sorted(map(str, rows.to_pylist()))

"""A caller's rows held as a whole, in layouts that Arrow can calculate with."""

from __future__ import annotations

import pyarrow as pa

from inlay.parquet.arrow.conform import check_whole, runs_refused
from inlay.parquet.arrow.pieces import pieces
from inlay.parquet.arrow.types import fields_below, inner_fields, is_list, nested_as, with_inner


def held(reader: pa.RecordBatchReader) -> pa.Table:
    """A caller's rows, all of them, in chunks that Arrow can decode, filter, take and compare: cut
    (`parquet.arrow.pieces`), and with large layouts in place of views, which have none of these. Raises
    SchemaMismatch for data that breaks Arrow's own rules, and for runs, which have none either."""
    for path, column in fields_below(reader.schema):
        if pa.types.is_run_end_encoded(column.type):
            raise runs_refused(path)
    cut: list[pa.RecordBatch] = []
    for batch in reader:
        try:
            cut += pieces(batch)
        except (pa.ArrowInvalid, pa.ArrowIndexError):
            check_whole(batch)
            raise
    table = pa.Table.from_batches(cut, reader.schema)
    for at, column in enumerate(reader.schema):
        kind = without_view(column.type)
        if not kind.equals(column.type):
            for batch in cut:
                check_whole(batch.select([at]))
            chunks = pa.chunked_array(map(_without_views, table.column(at).chunks), kind)
            table = table.set_column(at, column.with_type(kind), chunks)
    return table


def _without_views(array: pa.Array) -> pa.Array:
    """Within lists rebuilt: Arrow's cast of list views with NULL or empty rows gives wrong offsets."""
    plain = without_view(array.type)
    if plain.equals(array.type):
        return array
    if not inner_fields(plain):
        return array.cast(plain)
    return nested_as(array, plain, lambda inner, _: _without_views(inner))


def without_view(kind: pa.DataType) -> pa.DataType:
    """The type with the large layouts, which hold as much, in place of views."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    plain = with_inner(kind, lambda field: field.with_type(without_view(field.type)))
    if plain is kind or not is_list(kind) or pa.types.is_fixed_size_list(kind):
        return plain
    return pa.large_list(plain.value_field)

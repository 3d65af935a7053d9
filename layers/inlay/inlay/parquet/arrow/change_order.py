"""What records of a change stream mean, on Arrow columns.

Promise: `classify` takes each record for what `Operations.meaning` says of its value
(`plan.change_records`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.plan.change_records import Operations


def classify(
    records: pa.Table, operations: Operations, *, table: str | None = None
) -> tuple[Any, Any]:
    """Which records give a row, and which delete one; the others say nothing that counts. Raises
    `InvalidRequest` where one has no meaning."""
    if operations.optional and operations.column not in records.column_names:
        every = pa.repeat(pa.scalar(True), records.num_rows)
        return every, pc.invert(every)
    column = _column(records, operations.column, table, operations.absent)
    if operations.tombstones:
        gone = pc.is_null(column)
        return pc.invert(gone), gone
    column = _plain(column)
    if not (_is_text(column.type) or pa.types.is_boolean(column.type)):
        raise SchemaMismatch(
            f"the operations in {operations.column!r} are of type {column.type}, and not texts",
            next_step="Name the column of the operations, or give delete_when= as a condition",
            table=table,
        )
    texts = column.cast(pa.string())
    counts = {one["values"]: one["counts"] for one in pc.value_counts(texts).to_pylist()}
    known = {value: operations.meaning(value) for value in counts}
    operations.refuse(
        {v: counts[v] for v, meaning in known.items() if meaning is None}, table=table
    )

    def which(*, deletes: bool) -> Any:
        values = [
            v for v, meaning in known.items() if meaning in Operations.meanings(deletes=deletes)
        ]
        return pc.is_in(texts, value_set=pa.array(values, pa.string()))

    rows, gone = which(deletes=False), which(deletes=True)
    if operations.flag is not None:
        flagged = _flags(_column(records, operations.flag, table), operations.flag, table)
        gone = pc.and_(gone, pc.invert(flagged))
    return rows, gone


def check_known(rows: pa.Table, operations: Operations, *, table: str | None = None) -> None:
    """Raises `InvalidRequest` where a producer left out a value of a row: written, it would stand in place
    of the one that the table has."""
    if operations.left_out is None:
        return
    unknown = {
        name: pc.sum(pc.equal(column, operations.left_out)).as_py() or 0
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if _is_text(column.type)
    }
    operations.refuse_left_out(unknown, table=table)


def unpacked(
    records: pa.Table, operations: Operations, columns: Iterable[str], keys: Sequence[str]
) -> pa.Table:
    """Records whose rows are in the structs of an envelope, as plain columns: of a delete the row before
    it. Beside them these `columns` of the table, if a struct of `sources` or the record itself has them. A
    row that is not there, or has others of these `keys` than before, gets an operation that is refused."""
    if operations.envelope is None:
        return records
    before, after = (_struct(records, name) for name in operations.envelope)
    if after is None:
        return records
    old = {} if before is None else _fields(before)
    new = _fields(after)
    operation = _column(records, operations.column, None)
    if _is_text(_plain(operation).type):
        operation = _plain(operation).cast(pa.string())
        is_row = pc.is_in(operation, value_set=pa.array(sorted(operations.rows)))
        operation = pc.if_else(pc.and_(is_row, pc.is_null(after)), operations.NO_ROW, operation)
        for key in (key for key in keys if key in old and key in new):
            differs = pc.fill_null(pc.not_equal(_plain(old[key]), _plain(new[key])), False)
            operation = pc.if_else(pc.and_(is_row, differs), operations.OTHER_KEY, operation)
    own: dict[str, Any] = {operations.column: operation}
    for name, values in new.items():
        own[name] = pc.if_else(pc.is_null(after), old[name], values) if name in old else values
    parts = [_struct(records, name) for name in operations.sources]
    beside = [_fields(part) for part in parts if part is not None]
    plain = dict(zip(records.column_names, records.columns, strict=True))
    for name in columns:
        place = next((one for one in (plain, *beside) if name in one), None)
        if name not in own and place is not None:
            own[name] = place[name]
    return pa.table(own)


def _struct(records: pa.Table, name: str) -> pa.ChunkedArray | None:
    if name not in records.column_names or not pa.types.is_struct(records.column(name).type):
        return None
    return records.column(name)


def _fields(struct: pa.ChunkedArray) -> dict[str, Any]:
    """The columns of a struct, NULL where it is NULL."""
    kind = struct.type
    names = [kind.field(n).name for n in range(kind.num_fields)]
    return {name: pc.struct_field(struct, [n]) for n, name in enumerate(names)}


def _column(records: pa.Table, name: str, table: str | None, absent: str = "") -> pa.ChunkedArray:
    if records.schema.names.count(name) != 1:
        raise SchemaMismatch(
            f"the data has no column {name!r}, which says what each record does",
            next_step=f"{absent}{'. ' if absent else ''}Its columns are: "
            f"{', '.join(records.schema.names)[:500]}",
            table=table,
        )
    return records.column(name)


def _flags(column: pa.ChunkedArray, name: str, table: str | None) -> Any:
    if _is_text(column.type):
        column = pc.utf8_lower(column.cast(pa.string()))
        if not pc.all(pc.is_in(column, value_set=pa.array(["true", "false"])), min_count=0).as_py():
            raise InvalidRequest(f"{name} has other values than true and false", table=table)
        return pc.equal(column, "true")
    if not pa.types.is_boolean(column.type) or column.null_count:
        raise InvalidRequest(f"{name} has other values than true and false", table=table)
    return column


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def concatenated(parts: Sequence[pa.ChunkedArray], kind: pa.DataType | None) -> pa.ChunkedArray:
    """Columns of one type (None: the first's), one after another."""
    kind = parts[0].type if kind is None else kind
    chunks = [chunk.cast(kind) for part in parts for chunk in part.chunks]
    return pa.chunked_array(chunks, type=kind)

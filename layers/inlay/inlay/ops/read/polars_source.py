"""A table as a Polars LazyFrame, so that only what a query needs is read.

Promise: the rows are those of a scan, deletes applied. Polars applies its predicate itself; the part of it
that is understood here is only used to prune. What is not understood costs bytes, never rows.

Ordered categories of texts are an `Enum`, which compares by their order, as the table does not: so nothing
is pruned by them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from inlay.errors import SchemaMismatch
from inlay.format.binding import Day, Flag, Moment, Number, Text, Written, compare_with, is_in
from inlay.format.predicate import TRUE, And, IsNull, Like, Not, Operator, Or, Predicate, quote_like
from inlay.format.schema import Primitive, Schema
from inlay.ops.read.dataset import MakeScan

if TYPE_CHECKING:
    import polars as pl


def lazy_frame(make_scan: MakeScan, schema: Schema) -> pl.LazyFrame:
    """A LazyFrame that reads the columns, rows and first rows that its query asks for."""
    import polars as pl
    from polars.io.plugins import register_io_source

    whole = make_scan()
    enums = {name: pl.Enum(entries) for name, entries in whole.text_orders.items()}
    plain = Schema(
        schema.id, tuple(f for f in schema.fields if f.name not in enums), schema.version
    )

    def source(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        names = whole.schema.names if with_columns is None else with_columns
        needed = dict.fromkeys(names)
        if predicate is not None:
            needed.update(dict.fromkeys(predicate.meta.root_names()))
        scan = make_scan(
            columns=list(needed) or [whole.schema.names[0]],
            where=TRUE if predicate is None else implied(predicate, plain),
            limit=n_rows if predicate is None else None,
            eager=n_rows is None,
        )
        left = n_rows
        for batch in scan.to_reader():
            frame = _as_enums(pa.Table.from_batches([batch]), enums)
            if predicate is not None:
                frame = frame.filter(predicate)
            if names:
                frame = frame.select(names)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame
            if left == 0:
                return

    # Not empty_table(), which cannot make arrays of every type.
    empty = _as_enums(pa.Table.from_batches([], whole.schema), enums)
    return register_io_source(source, schema=empty.schema)


def _as_enums(rows: pa.Table, enums: Mapping[str, pl.Enum]) -> pl.DataFrame:
    import polars as pl

    frame = cast("pl.DataFrame", pl.from_arrow(rows))
    for name in enums.keys() & set(frame.columns):
        try:
            frame = frame.with_columns(pl.col(name).cast(pl.String).cast(enums[name]))
        except pl.exceptions.InvalidOperationError:
            raise SchemaMismatch(
                f"column {name!r} has a value that is none of its ordered categories, which Polars' Enum "
                "cannot hold",
                next_step="Append rows whose ordered category lists it in its place, or read by "
                "pl.from_arrow(t.scan())",
            ) from None
    return frame


# -- what a predicate of Polars implies -----------------------------------------------------------

# A longer predicate is not looked at: it would take several times its size to read.
_MAX_BYTES = 4 * 1024 * 1024
# Whole numbers that a double holds.
_EXACT = 2**53

_OPERATORS: dict[str, Operator] = {
    "Eq": "=",
    "NotEq": "!=",
    "Lt": "<",
    "LtEq": "<=",
    "Gt": ">",
    "GtEq": ">=",
}
_TURNED: dict[Operator, Operator] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ENDS: dict[str, tuple[Operator, Operator]] = {
    "Both": (">=", "<="),
    "Left": (">=", "<"),
    "Right": (">", "<="),
    "None": (">", "<"),
}
_UNITS = {
    "Nanoseconds": ("ns", 1),
    "Microseconds": ("us", 1_000),
    "Milliseconds": ("ms", 1_000_000),
}
_NAMES = {
    "bool": "Boolean",
    "double": "Float64",
    "string_view": "String",
    "large_string": "String",
}
_ARROW_UNITS = {unit: name for name, (unit, _) in _UNITS.items()}


def implied(predicate: pl.Expr, schema: Schema) -> Predicate:
    """A condition that is TRUE for every row for which a Polars predicate is; TRUE if it is not understood.
    The text form of Polars expressions is internal to Polars, so nothing relies on it."""
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if len(predicate.meta.serialize()) > _MAX_BYTES:
                return TRUE
            node = json.loads(predicate.meta.serialize(format="json"))
        return _implied(node, schema) or TRUE
    except Exception:
        return TRUE


def _implied(node: Any, schema: Schema) -> Predicate | None:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            parts = tuple(p for p in (_implied(left, schema), _implied(right, schema)) if p)
            return And(parts) if parts else None
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            one, other = _implied(left, schema), _implied(right, schema)
            return Or((one, other)) if one and other else None
        case {"BinaryExpr": {"left": left, "op": op, "right": {"Literal": literal}}}:
            return _compared(left, _OPERATORS.get(op), literal, schema)
        case {"BinaryExpr": {"left": {"Literal": literal}, "op": op, "right": right}}:
            known = _OPERATORS.get(op)
            return _compared(right, _TURNED.get(known, known) if known else None, literal, schema)
        case {"Function": {"input": [column, *others], "function": function}}:
            return _of_function(column, others, function, schema)
        case _:  # Polars filters again
            return None


def _of_function(column: Any, others: Any, function: Any, schema: Schema) -> Predicate | None:
    field = schema.column(column["Column"])
    if field is None or not isinstance(field.type, Primitive):
        return None
    match function, others:
        case {"Boolean": "IsNull"}, []:
            return IsNull(field.id)
        case {"Boolean": "IsNotNull"}, []:
            return Not(IsNull(field.id))
        case {"Boolean": {"IsBetween": {"closed": closed}}}, [low, high]:
            above, below = _ENDS[closed]
            one = _compared(column, above, low["Literal"], schema)
            other = _compared(column, below, high["Literal"], schema)
            parts = tuple(part for part in (one, other) if part is not None)
            return And(parts) if parts else None
        case {"Boolean": {"IsIn": {"nulls_equal": nulls_equal}}}, [{"Literal": values}]:
            found = _one_of(field.id, field.type, values)
            return Or((found, IsNull(field.id))) if found and nulls_equal else found
        case {"StringExpr": "StartsWith"}, [{"Literal": prefix}]:
            written = _written(field.type, prefix)
            if not isinstance(written, Text):
                return None
            return Like(field.id, quote_like(written.value) + "%")
        case _:  # Polars filters again
            return None


def _compared(column: Any, op: Operator | None, literal: Any, schema: Schema) -> Predicate | None:
    match column:
        case {"Column": name}:
            as_double = False
        case {"Cast": {"expr": {"Column": name}, "dtype": {"Literal": "Float64"}}}:
            as_double = True
        case _:  # Polars filters again
            return None
    field = schema.column(name)
    if op is None or field is None or not isinstance(field.type, Primitive):
        return None
    written = _as_double(field.type, literal) if as_double else _written(field.type, literal)
    return None if written is None else compare_with(field.id, field.type, op, written)


def _as_double(kind: Primitive, literal: Any) -> Written | None:
    """A double that whole numbers are compared with, as doubles: those beyond `_EXACT` are rounded, but not
    past one that is within it."""
    match literal:
        case {"Scalar": {"Float64": float(number)}} if kind.is_integer and abs(number) < _EXACT:
            return Number(Decimal(number))
    return None


def _written(kind: Primitive, literal: Any) -> Written | None:
    """The literal, if Polars and this library compare it with the column alike."""
    [(_, value)] = literal.items()
    [(of, plain)] = value.items()
    return _of_type(kind, of, plain)


def _of_type(kind: Primitive, of: str, plain: Any) -> Written | None:
    whole = of.startswith(("Int", "UInt")) and isinstance(plain, int)
    match kind.name, of, plain:
        case _, _, int(number) if kind.is_integer and whole:
            return Number(Decimal(number))
        case "double", _, int(number) if whole and abs(number) <= _EXACT:
            return Number(Decimal(number))
        case "double", "Float" | "Float64", float(number):
            return Number(Decimal(number))
        case "string", "String" | "StringOwned", str(text):
            return Text(text)
        case "bool", "Boolean", bool(flag):
            return Flag(flag)
        case "date", "Date", int(days):
            return Day(days)
        # In another unit, Polars may have rounded one of the two.
        case "timestamp", "Datetime", [int(count), unit, None] if _UNITS[unit][0] == kind.unit:
            return Moment(count * _UNITS[unit][1], zoned=False)
        case "timestamptz", "Datetime", [int(count), unit, zone] if zone is not None:
            if _UNITS[unit][0] == kind.unit:
                return Moment(count * _UNITS[unit][1], zoned=True)
    return None


def _one_of(field_id: int, kind: Primitive, literal: Any) -> Predicate | None:
    """`field IN (…)` of a list, which Polars writes as an Arrow stream of one column."""
    [(_, value)] = literal.items()
    stream = bytes(value["List"] if isinstance(value, dict) else value)
    values = pa.ipc.open_stream(stream).read_all().column(0)
    # A NULL in the list equals no value.
    written = [_of_type(kind, *plain) for plain in _plain(values.drop_null())]
    return None if None in written else is_in(field_id, kind, written)


def _plain(values: pa.ChunkedArray) -> Iterator[tuple[str, Any]]:
    """The values as Polars writes single ones."""
    of = values.type
    if pa.types.is_integer(of):
        yield from (("Int", value) for value in values.to_pylist())
    elif pa.types.is_timestamp(of):
        counts = values.cast(pa.int64()).to_pylist()
        yield from (("Datetime", [count, _ARROW_UNITS[of.unit], of.tz]) for count in counts)
    elif pa.types.is_date32(of):
        yield from (("Date", days) for days in values.cast(pa.int32()).to_pylist())
    else:
        name = _NAMES.get(str(of), str(of))
        yield from ((name, value) for value in values.to_pylist())

"""A Polars expression as a predicate of the format: exactly, or what it implies.

Promise: `predicate_of` is TRUE, FALSE and NULL for the rows for which Polars' own evaluation is; what has
no such predicate is refused. `implied` is TRUE wherever Polars' predicate is, and serves to prune: what is
not understood costs bytes, never rows.

Of what an expression is made, Polars tells only in a serialised form that is its own, and may change with
any version. A delete does not rely on it: from what is read there, the expression is built anew by Polars'
public functions, and unless that one is the given one, it is refused.
"""

from __future__ import annotations

import json
import operator
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from inlay.errors import InvalidPredicate
from inlay.format.binding import Day, Flag, Moment, Number, Text, Written, compare_with, is_in
from inlay.format.predicate import (
    TRUE,
    And,
    Comparison,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    check_bounds,
    quote_like,
)
from inlay.format.schema import Field, Primitive, Schema
from inlay.format.values import WHOLE, to_float32

if TYPE_CHECKING:
    import polars as pl

# A longer predicate is not looked at: it would take several times its size to read.
_MAX_BYTES = 4 * 1024 * 1024
_EPOCH = datetime(1970, 1, 1)

_OPERATORS: dict[str, Operator] = {
    "Eq": "=",
    "NotEq": "!=",
    "Lt": "<",
    "LtEq": "<=",
    "Gt": ">",
    "GtEq": ">=",
}
_JOINED: dict[str, type[And] | type[Or]] = {
    "And": And,
    "LogicalAnd": And,
    "Or": Or,
    "LogicalOr": Or,
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
    "string": "String",
    "large_string": "String",
}
_ARROW_UNITS = {unit: name for name, (unit, _) in _UNITS.items()}
_STEP = (
    "Compare columns with literals of their type, by ==, <, is_between, is_in, is_null and "
    "str.starts_with, or write SQL text"
)


def predicate_of(expression: pl.Expr, schema: Schema) -> Predicate:
    """The predicate for which the format selects the rows that Polars does. Raises `InvalidPredicate`."""
    predicate = None
    try:
        node = _node(expression)
        predicate = None if node is None else _exact(node, schema)
        same = predicate is not None and _form(_built(node)) == _form(expression)
    except Exception:  # another form than is known here
        same = False
    if predicate is None or not same:
        raise InvalidPredicate(
            "this Polars expression has no form that can be kept as a condition", next_step=_STEP
        )
    return check_bounds(predicate)


def implied(predicate: pl.Expr, schema: Schema) -> Predicate:
    """A condition that is TRUE wherever a Polars predicate is; TRUE if it is not understood."""
    try:
        node = _node(predicate)
        return (None if node is None else _implied(node, schema)) or TRUE
    except Exception:
        return TRUE


def _node(expression: pl.Expr) -> Any:
    if len(_form(expression)) > _MAX_BYTES:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(expression.meta.serialize(format="json"))


def _form(expression: pl.Expr) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bytes(expression.meta.serialize())


# -- meaning --------------------------------------------------------------------------------------


def _implied(node: Any, schema: Schema) -> Predicate | None:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            parts = tuple(p for p in (_implied(left, schema), _implied(right, schema)) if p)
            return And(parts) if parts else None
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            one, other = _implied(left, schema), _implied(right, schema)
            return Or((one, other)) if one and other else None
        case _:  # whatever else is meant exactly, or follows
            return _exact(node, schema) or _as_doubles(node, schema)


def _exact(node: Any, schema: Schema) -> Predicate | None:
    """None for what is not understood."""
    match node:
        case {"Column": _}:  # of type bool
            field = _field(node, schema)
            if field is None or field[1].name != "bool":
                return None
            return Comparison(field[0].id, "=", Literal(field[1], True))
        case {"BinaryExpr": {"left": left, "op": op, "right": right}} if op in _JOINED:
            one, other = _exact(left, schema), _exact(right, schema)
            return None if one is None or other is None else _JOINED[op]((one, other))
        case {"BinaryExpr": {"left": left, "op": op, "right": {"Literal": literal}}}:
            return _compared(left, _OPERATORS.get(op), literal, schema)
        case {"BinaryExpr": {"left": {"Literal": literal}, "op": op, "right": right}}:
            known = _OPERATORS.get(op)
            return _compared(right, _TURNED.get(known, known) if known else None, literal, schema)
        case {"Function": {"input": [part], "function": {"Boolean": "Not"}}}:
            compared = _exact(part, schema)
            return None if compared is None else Not(compared)
        case {"Function": {"input": [column, *others], "function": function}}:
            field = _field(column, schema)
            return None if field is None else _of_function(*field, column, others, function, schema)
        case _:  # not understood: refused, or not pruned by
            return None


def _field(node: Any, schema: Schema) -> tuple[Field, Primitive] | None:
    field = schema.column(node["Column"]) if "Column" in node else None
    return None if field is None or not isinstance(field.type, Primitive) else (field, field.type)


def _of_function(
    field: Field, kind: Primitive, column: Any, others: Any, function: Any, schema: Schema
) -> Predicate | None:
    match function, others:
        case {"Boolean": "IsNull"}, []:
            return IsNull(field.id)
        case {"Boolean": "IsNotNull"}, []:
            return Not(IsNull(field.id))
        case {"Boolean": "IsNan" | "IsNotNan" as asked}, [] if kind.is_float:
            op: Operator = "=" if asked == "IsNan" else "!="
            return Comparison(field.id, op, Literal(kind, float("nan")))
        case {"Boolean": {"IsBetween": {"closed": closed}}}, [low, high]:
            above, below = _ENDS[closed]
            one = _compared(column, above, low["Literal"], schema)
            other = _compared(column, below, high["Literal"], schema)
            return None if one is None or other is None else And((one, other))
        case {"Boolean": {"IsIn": {"nulls_equal": nulls_equal}}}, [{"Literal": values}]:
            return _one_of(field.id, kind, values, nulls_equal)
        case {"StringExpr": "StartsWith"}, [{"Literal": prefix}]:
            written = _written(kind, prefix)
            if not isinstance(written, Text):
                return None
            return Like(field.id, quote_like(written.value) + "%")
        case _:  # not understood: refused, or not pruned by
            return None


def _compared(column: Any, op: Operator | None, literal: Any, schema: Schema) -> Predicate | None:
    field = _field(column, schema)
    if op is None or field is None:
        return None
    written = _written(field[1], literal)
    return None if written is None else compare_with(field[0].id, field[1], op, written)


def _as_doubles(node: Any, schema: Schema) -> Predicate | None:
    """What follows where whole numbers are compared as doubles: those beyond 2**53 are rounded, but not
    past one that is within it."""
    match node:
        case {
            "BinaryExpr": {
                "left": {"Cast": {"expr": column, "dtype": {"Literal": "Float64"}}},
                "op": op,
                "right": {"Literal": {"Scalar": {"Float64": float(number)}}},
            }
        } if op in _OPERATORS and abs(number) < WHOLE["double"]:
            field = _field(column, schema)
            if field is not None and field[1].is_integer:
                written = Number(Decimal(number))
                return compare_with(field[0].id, field[1], _OPERATORS[op], written)
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
        case "double" | "float" as name, _, int(number) if whole and abs(number) <= WHOLE[name]:
            return Number(Decimal(number))
        case "double", "Float" | "Float64", float(number):
            return Number(Decimal(number))
        case "float", "Float" | "Float64", float(number) if to_float32(number) == number:
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


def _one_of(field_id: int, kind: Primitive, literal: Any, nulls_equal: bool) -> Predicate | None:
    """`is_in` of a list. A NULL in it equals no value, or, with `nulls_equal`, NULL."""
    values = _listed(literal)
    written = [_of_type(kind, *plain) for plain in _plain(values.drop_null())]
    if None in written:
        return None
    predicate = is_in(field_id, kind, written)
    if not nulls_equal:
        return predicate
    if values.null_count:
        return Or((predicate, IsNull(field_id)))
    return And((predicate, Not(IsNull(field_id))))


def _listed(literal: Any) -> pa.ChunkedArray:
    """A list, which Polars writes as an Arrow stream of one column."""
    [(_, value)] = literal.items()
    stream = bytes(value["List"] if isinstance(value, dict) else value)
    values = pa.ipc.open_stream(stream).read_all().column(0)
    # Arrow does not filter views.
    return values.cast(pa.string()) if values.type == pa.string_view() else values


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


# -- form -----------------------------------------------------------------------------------------

_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtEq": operator.le,
    "Gt": operator.gt,
    "GtEq": operator.ge,
    "And": operator.and_,
    "Or": operator.or_,
}


def _built(node: Any) -> pl.Expr:
    """The expression that the node stands for, by Polars' public functions."""
    import polars as pl

    match node:
        case {"Column": name}:
            return pl.col(name)
        case {"BinaryExpr": {"left": left, "op": op, "right": right}}:
            return cast("pl.Expr", _PYTHON[op](_built(left), _built(right)))
        case {"Function": {"input": [first, *others], "function": function}}:
            return _built_call(_built(first), others, function)
        case {"Literal": {"Dyn": {"Int": value} | {"Float": value}}}:
            return pl.lit(value)
        case {"Literal": {"Scalar": {"String": value} | {"Boolean": value}}}:
            return pl.lit(value)
        case {"Literal": {"Scalar": {"Date": days}}}:
            return pl.lit(date.fromordinal(_EPOCH.toordinal() + days))
        case {"Literal": {"Scalar": {"Datetime": [count, unit, zone]}}}:
            name, nanos = _UNITS[unit]
            naive = _EPOCH + timedelta(microseconds=count * nanos // 1_000)
            moment = naive if zone is None else naive.replace(tzinfo=UTC)
            return pl.lit(moment, dtype=pl.Datetime(name, zone and "UTC"))
        case {"Literal": {"Scalar": scalar}}:
            [(of, value)] = scalar.items()
            return pl.lit(value, dtype=getattr(pl, of))
        case _:
            raise ValueError(node)


def _built_call(first: pl.Expr, others: list[Any], function: Any) -> pl.Expr:
    import polars as pl

    match function, others:
        case {"Boolean": {"IsBetween": {"closed": closed}}}, [low, high]:
            return first.is_between(_built(low), _built(high), closed=closed.lower())
        case {"Boolean": {"IsIn": {"nulls_equal": nulls_equal}}}, [{"Literal": literal}]:
            values: Any = pl.from_arrow(_listed(literal))
            listed = values if "Series" in literal else values.to_list()
            return first.is_in(listed, nulls_equal=nulls_equal)
        case {"Boolean": str(name)}, []:
            return cast("pl.Expr", _FLAGS[name](first))
        case {"StringExpr": "StartsWith"}, [prefix]:
            return first.str.starts_with(_built(prefix))
        case _:
            raise ValueError(function)


_FLAGS: dict[str, Callable[[Any], Any]] = {
    "Not": operator.methodcaller("not_"),
    "IsNull": operator.methodcaller("is_null"),
    "IsNotNull": operator.methodcaller("is_not_null"),
    "IsNan": operator.methodcaller("is_nan"),
    "IsNotNan": operator.methodcaller("is_not_nan"),
}

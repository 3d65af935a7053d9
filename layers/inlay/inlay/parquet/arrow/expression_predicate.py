"""A pyarrow expression as a predicate of the format, so that a delete can keep it.

Promise: the predicate is TRUE, FALSE and NULL for the rows for which Arrow's own evaluation is; what has no
such predicate is refused by name. Arrow compares NaN as neither equal nor ordered; the format takes it as
the greatest number: so a comparison that would find it says that it does not.

Of what an expression is made, pyarrow tells only in the form by which it pickles expressions, which no
document describes. Nothing relies on that form: from what is read there, the expression is built anew by
pyarrow's public functions, and unless that one equals the given one, this is refused.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidPredicate, InvalidRequest
from inlay.format.binding import (
    Clock,
    Day,
    Flag,
    Moment,
    Number,
    Octets,
    Text,
    Written,
    compare_with,
    is_in,
)
from inlay.format.predicate import (
    And,
    Comparison,
    Constant,
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
from inlay.format.values import WHOLE, is_nan, nanos_per_step, to_float32
from inlay.parquet.arrow.types import primitive_from_arrow, to_physical
from inlay.record import Record

_PART = re.compile(
    r"^(call|nested_field_ref|field_ref|literal|options|end): '(.*?)'$", re.MULTILINE | re.DOTALL
)
_COMPARED: dict[str, tuple[Operator, Operator, Callable[[Any, Any], Any]]] = {
    # The operator, the one that means the same with its sides exchanged, and Python's.
    "equal": ("=", "=", operator.eq),
    "not_equal": ("!=", "!=", operator.ne),
    "less": ("<", ">", operator.lt),
    "less_equal": ("<=", ">=", operator.le),
    "greater": (">", "<", operator.gt),
    "greater_equal": (">=", "<=", operator.ge),
}
_JOINED: dict[str, tuple[type[And] | type[Or], Callable[[Any, Any], Any]]] = {
    "and_kleene": (And, operator.and_),
    "or_kleene": (Or, operator.or_),
}


class _Part(Record):
    """A part of an expression, built anew, and what it is."""

    built: pc.Expression
    said: Predicate | Field | pa.Scalar


def predicate_of(expression: pc.Expression, schema: Schema) -> Predicate:
    """The predicate for which the format selects the rows that Arrow does. Raises `InvalidPredicate`."""
    pickled = pa.ipc.open_file(expression.__reduce__()[1][0]).read_all()
    text = pickled.schema.to_string(show_schema_metadata=True, truncate_metadata=False)
    stack: list[_Part | str] = []
    values: dict[int, pa.Scalar] = {}  # by the place in the stack of a call's options
    try:
        path: list[str] = []
        open_arguments = 0
        for kind, value in _PART.findall(text.partition("-- schema metadata --\n")[2]):
            match kind:
                case "nested_field_ref":
                    path, open_arguments = [], int(value)
                case "field_ref":
                    path.append(value)
                    open_arguments = max(open_arguments - 1, 0)
                    if not open_arguments:
                        stack.append(_column(path, schema))
                        path = []
                case "literal":
                    scalar = pickled.column(int(value))[0]
                    stack.append(_Part(pc.scalar(scalar), scalar))
                case "options":
                    values[len(stack)] = pickled.column(int(value))[0]
                case "call":
                    stack.append(value)
                case _:  # the end of a call
                    options = values.pop(len(stack), None)
                    start = len(stack) - 1 - stack[::-1].index(value)
                    arguments = [part for part in stack[start + 1 :] if isinstance(part, _Part)]
                    stack[start:] = [_applied(value, arguments, options)]
        [read] = stack
        assert isinstance(read, _Part)
        predicate = check_bounds(_condition(read))
        same = read.built.equals(expression)
    except InvalidPredicate:
        raise
    except (pa.ArrowException, InvalidRequest, LookupError, ValueError, TypeError, AssertionError):
        same = False
    if not same:
        raise _refused("this expression")
    return predicate


def _refused(what: str, step: str = "") -> InvalidPredicate:
    return InvalidPredicate(
        f"{what} has no form that can be kept as a condition",
        next_step=step
        or "Compare columns with literals, by ==, <, isin, is_null and starts_with, or write SQL text",
    )


def _column(path: list[str], schema: Schema) -> _Part:
    field = schema.resolve(tuple(path))
    if field is None:
        raise InvalidPredicate(
            f"the table has no column {'.'.join(path)[:80]!r}",
            next_step=f"The columns are: {', '.join(schema.names)[:300]}",
        )
    return _Part(pc.field(*path), field)


def _condition(part: _Part) -> Predicate:
    said = part.said
    if isinstance(said, Predicate):
        return said
    if isinstance(said, Field) and isinstance(said.type, Primitive) and said.type.name == "bool":
        return Comparison(said.id, "=", Literal(said.type, True))
    if isinstance(said, pa.BooleanScalar):
        return Constant(said.as_py())
    raise _refused("a value that is no condition")


def _applied(function: str, arguments: list[_Part], options: Any) -> _Part:
    built = [part.built for part in arguments]
    match function, [part.said for part in arguments]:
        case _, [Field() as field, pa.Scalar() as value] if function in _COMPARED:
            op, _, python = _COMPARED[function]
            return _Part(python(*built), _compared(field, op, value))
        case _, [pa.Scalar() as value, Field() as field] if function in _COMPARED:
            _, op, _ = _COMPARED[function]
            call: Any = getattr(pc, function)
            return _Part(call(*built), _compared(field, op, value))
        case _, [_, _] if function in _JOINED:
            joined, python = _JOINED[function]
            parts: list[Predicate] = []
            for part in map(_condition, arguments):
                parts.extend(part.parts if isinstance(part, joined) else (part,))
            return _Part(python(*built), joined(tuple(parts)))
        case "invert", [_]:
            return _Part(~built[0], Not(_condition(arguments[0])))
        case "is_valid", [Field(id=field_id)]:
            return _Part(built[0].is_valid(), Not(IsNull(field_id)))
        case "is_null", [Field(id=field_id, type=kind)]:
            nan_too = options["nan_is_null"].as_py()
            predicate: Predicate = IsNull(field_id)
            if nan_too and isinstance(kind, Primitive) and kind.is_float:
                predicate = Or((predicate, Comparison(field_id, "=", Literal(kind, float("nan")))))
            return _Part(built[0].is_null(nan_is_null=nan_too), predicate)
        case "is_in", [Field() as field]:
            values = options["value_set"].values
            return _Part(built[0].isin(values), _among(field, values))
        case "starts_with", [Field(id=field_id, type=Primitive("string"))]:
            prefix = options["pattern"].as_py()
            like = Like(field_id, quote_like(prefix) + "%")
            return _Part(pc.starts_with(built[0], prefix), like)
        case _:  # whatever else Arrow can calculate
            raise _refused(f"{function[:80]} of such arguments")


def _compared(field: Field, op: Operator, value: pa.Scalar) -> Predicate:
    if not value.is_valid:
        return Constant(None)
    kind, written = _written(field, value)
    compared = compare_with(field.id, kind, op, written)
    if kind.is_float and op in (">", ">="):  # which NaN is not in Arrow
        return And((compared, Comparison(field.id, "!=", Literal(kind, float("nan")))))
    return compared


def _among(field: Field, values: pa.Array) -> Predicate:
    """Arrow's `is_in` is never NULL, and NULL is among values of which one is NULL."""
    written = [_written(field, value) for value in values.drop_null()]
    if any(kind.is_float and said == Number(Decimal(0)) for kind, said in written):
        raise _refused(
            "isin with a zero, of which Arrow tells +0.0 from -0.0,", "Write == 0.0 beside it"
        )
    predicate: Predicate = Constant(False)
    if written:
        predicate = is_in(field.id, written[0][0], [said for _, said in written])
    if values.null_count:
        return Or((predicate, IsNull(field.id)))
    return And((predicate, Not(IsNull(field.id))))


def _written(field: Field, value: pa.Scalar) -> tuple[Primitive, Written]:
    """A literal that Arrow compares with the column as the format does."""
    kind, of = field.type, primitive_from_arrow(value.type)
    if isinstance(kind, Primitive) and of is not None:
        plain: Any = to_physical(value, of)
        match of.family, kind.family:
            case "integer" | "decimal", "integer" | "decimal":
                return kind, Number(Decimal(plain))
            case "integer", "float" if abs(plain) <= WHOLE[kind.name]:
                return kind, Number(Decimal(plain))
            case "float", "float" if not is_nan(plain) and (
                kind.name == "double" or to_float32(plain) == plain
            ):
                return kind, Number(Decimal(plain))
            case "text", "text":
                return kind, Text(plain)
            case "bytes", "bytes":
                return kind, Octets(plain)
            case "bool", "bool":
                return kind, Flag(plain)
            case "date", "date":
                return kind, Day(plain)
            case "time", "time":
                return kind, Clock(plain * nanos_per_step(of))
            case "timestamp", "timestamp" if of.name == kind.name:
                return kind, Moment(plain * nanos_per_step(of), zoned=kind.name == "timestamptz")
    raise _refused(
        f"column {field.name[:80]!r}, of type {str(kind)[:80]}, beside this {value.type}",
        "Give the literal its type, which holds it exactly: pa.scalar(value, type), not NaN",
    )

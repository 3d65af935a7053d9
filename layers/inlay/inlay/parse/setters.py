"""The values of an update, bound to a schema.

Promise: `{"status": "'closed'", "balance": "balance - 10"}` becomes assignments whose values have the types
of their columns, or is refused with the position: a literal must fit exactly, a column must widen to the
column it is assigned to, arithmetic accepts numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from inlay.errors import InlayError, InvalidPredicate
from inlay.format.assignment import (
    Arithmetic,
    ArithmeticOperator,
    Assigned,
    Assignment,
    Assignments,
    ColumnValue,
    Expression,
    NumberValue,
    Operand,
)
from inlay.format.binding import Number, Text, Written, neighbours
from inlay.format.schema import Field, Primitive, Schema, Value
from inlay.format.widening import widens
from inlay.parse.grammar import parse_text
from inlay.parse.names import resolve
from inlay.parse.syntax import Calculation, Given, Name, Syntax
from inlay.parse.where import read_as


def parse_assignments(texts: Mapping[str, str], schema: Schema) -> Assignments:
    """Column names to value texts, as assignments on `schema`. Raises InvalidPredicate."""
    if not isinstance(texts, Mapping):
        raise InvalidPredicate(
            f"assignments cannot be a {type(texts).__name__}",
            next_step='Give columns with values as SQL: {"status": "\'closed\'"}',
        )
    if not texts:
        raise InvalidPredicate("an update without assignments", next_step="Name a column to set")
    found: dict[int, Assignment] = {}
    for name, text in texts.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise InvalidPredicate(
                f"the value of column {str(name)[:100]!r} is a {type(text).__name__}, not SQL text",
                next_step="Write NULL, 5, 'a text' or an expression over columns, as a string",
            )
        if schema.column(name) is None and "." in name and schema.resolve(tuple(name.split("."))):
            raise InvalidPredicate(
                f"{name[:100]!r} is a field of a struct, which cannot be set on its own",
                next_step="Upsert rows with the whole struct",
            )
        column = schema.column(name) or resolve(Name(((name, False),), 0), schema, name)
        if column.id in found:
            raise InvalidPredicate(f"column {column.name!r} is assigned twice")
        expression = _Setter(text, schema, column).expression(parse_text(text))
        found[column.id] = Assignment(column.id, expression)
    return tuple(found.values())


class _Setter:
    """One value text, the schema it reads from and the column it is assigned to."""

    def __init__(self, text: str, schema: Schema, column: Field) -> None:
        self.text = text
        self.schema = schema
        self.column = column

    def expression(self, node: Syntax) -> Expression:
        kind = self.column.type
        match node:
            case Given(None) if not self.column.nullable:
                raise self.error(
                    node, f"column {self.column.name!r} is required and cannot become NULL"
                )
            case Given(None):
                return Assigned(None)
            case Given(written) if isinstance(kind, Primitive) and written is not None:
                return Assigned(self.constant(node, kind, written))
            case Name():
                return ColumnValue(self.assignable(node).id)
            case Calculation() if isinstance(kind, Primitive) and kind.is_numeric:
                return self.arithmetic(node)
            case Calculation():
                raise self.error(node, f"arithmetic cannot give a value for {self.column.name!r}")
            case _:
                raise self.error(
                    node, "an assignment is a literal, NULL, a column or arithmetic on them"
                )

    def constant(self, node: Given, kind: Primitive, written: Written) -> Value:
        try:
            if isinstance(written, Text) and kind.is_temporal:
                written = read_as(kind, written.value)
            near = neighbours(kind, written)
        except InlayError as error:
            message = error.message.replace("be compared with a column", "be assigned to a column")
            message = f"{message} ({self.column.name!r})"
            raise self.error(node, message, error.next_step) from None
        except ValueError as error:
            raise self.error(node, f"this string is not a {kind.name}: {error}") from None
        if not near.exact or near.below is None:
            raise self.error(
                node, f"this value does not fit column {self.column.name!r} of type {kind}"
            )
        if isinstance(near.below, float) and near.below == 0 and isinstance(written, Number):
            # A comparison treats both zeros as equal; a column keeps the one assigned.
            return math.copysign(0.0, written.value)
        return near.below

    def assignable(self, node: Name) -> Field:
        """A column whose values this one can hold."""
        field = resolve(node, self.schema, self.text)
        kind = self.column.type
        same = field.type == kind
        leaves = isinstance(field.type, Primitive) and isinstance(kind, Primitive)
        if not same and not (leaves and widens(cast(Primitive, field.type), cast(Primitive, kind))):
            raise self.error(
                node,
                f"column {field.name!r} of type {_called(field)} cannot be assigned to "
                f"{self.column.name!r} of type {_called(self.column)}",
            )
        return field

    def arithmetic(self, node: Calculation) -> Arithmetic:
        op = cast(ArithmeticOperator, node.op)
        if op == "/" and not cast(Primitive, self.column.type).is_float:
            raise self.error(
                node,
                f"a quotient is a floating-point number, which {self.column.name!r} is not",
                "Multiply by the inverse, or assign to a double column",
            )
        return Arithmetic(op, self.operand(node.left), self.operand(node.right))

    def operand(self, node: Syntax) -> Operand:
        match node:
            case Calculation():
                return self.arithmetic(node)
            case Given(Number(value)) if value.is_finite():
                return NumberValue(value)
            case Name():
                field = resolve(node, self.schema, self.text)
                kind, target = field.type, cast(Primitive, self.column.type)
                if not isinstance(kind, Primitive) or not kind.is_numeric:
                    raise self.error(node, f"column {field.name!r} is not a number")
                if kind.is_float and not target.is_float:
                    raise self.error(
                        node,
                        f"column {field.name!r} is floating: the result would not be exact in "
                        f"{self.column.name!r} of type {target}",
                    )
                return ColumnValue(field.id)
            case _:
                raise self.error(node, "arithmetic accepts columns and numbers only")

    def error(self, node: Syntax, message: str, next_step: str = "") -> InvalidPredicate:
        return InvalidPredicate(message, text=self.text, position=node.at, next_step=next_step)


def _called(field: Field) -> str:
    return str(field.type) if isinstance(field.type, Primitive) else type(field.type).__name__

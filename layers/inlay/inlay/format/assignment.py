"""What an update sets: per column a constant, another column, or arithmetic on both.

Promise: an assignment is bound to field ids and typed literals, like a predicate, and checked against the
schema: a value of another type than the column's is refused. Assignments are not stored: an update ends
when it is committed, so there is no JSON form.

Arithmetic is exact on integers and decimals and IEEE double where a floating column takes part.
NULL in, NULL out.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal as OneOf

from inlay.format.schema import Value

ArithmeticOperator = OneOf["+", "-", "*", "/"]


@dataclass(frozen=True, slots=True)
class Assigned:
    """A constant of the type of the column it is assigned to; None is NULL."""

    value: Value | None


@dataclass(frozen=True, slots=True)
class ColumnValue:
    field_id: int


@dataclass(frozen=True, slots=True)
class NumberValue:
    """A number inside arithmetic, as written."""

    value: Decimal


@dataclass(frozen=True, slots=True)
class Arithmetic:
    op: ArithmeticOperator
    left: Operand
    right: Operand


Operand = ColumnValue | NumberValue | Arithmetic
Expression = Assigned | ColumnValue | Arithmetic


@dataclass(frozen=True, slots=True)
class Assignment:
    """`field_id` is a top-level column."""

    field_id: int
    expression: Expression


Assignments = tuple[Assignment, ...]


def fields_of(assignments: Assignments) -> frozenset[int]:
    """The fields assigned to, and the fields read to compute their values."""
    found: set[int] = set()
    pending: list[Expression | Operand] = []
    for assignment in assignments:
        found.add(assignment.field_id)
        pending.append(assignment.expression)
    while pending:
        match pending.pop():
            case ColumnValue(field_id):
                found.add(field_id)
            case Arithmetic(_, left, right):
                pending += (left, right)
            case _:
                pass
    return frozenset(found)

"""What is calculated from a row: conditions beyond the predicates of the format, and what an update sets.

Promise: bound to field ids and typed literals like a predicate, and checked against the schema. Not
durable: it ends with the scan or update, so it has no JSON form; what is stored (delete markers) is always
a `Predicate`.

A calculated condition comes with the predicate that it implies: every row that it selects makes that one
TRUE, so files are pruned by it.

Numbers are exact (integers of any size, decimals) until a floating column, a quotient or a floating
function takes part; then they are doubles. NULL in, NULL out, but for the functions that ask for NULL.
docs/SQL.md has the functions.
"""

from __future__ import annotations

from inlay.format.predicate import Predicate, field_ids
from inlay.format.schema import Primitive, Type, Value
from inlay.record import Record


class Column(Record):
    """A column, or a field of a struct."""

    field_id: int
    type: Type


class Constant(Record):
    """A literal in physical form; numbers are decimals, as written. NULL has no type."""

    value: Value | None
    type: Type | None


class Test(Record):
    """A condition of the format's own grammar."""

    predicate: Predicate

    @property
    def type(self) -> Type:
        return Primitive("bool")


class Apply(Record):
    """A function or an operator of values. `detail` is its part that does not depend on the row: a unit, a
    pattern, a key."""

    function: str
    arguments: tuple[Expression, ...]
    type: Type | None
    detail: object = None


Expression = Column | Constant | Test | Apply


class Condition(Record):
    """Rows for which `predicate` is TRUE and, unless it is None, `calculated` too. `text` is the SQL
    text; `timed`: it depends on the time at which it was read."""

    predicate: Predicate
    calculated: Expression | None = None
    text: str = ""
    timed: bool = False


class Assigned(Record):
    """A constant of the type of the column it is assigned to; None is NULL."""

    value: Value | None


class Assignment(Record):
    """`field_id` is a column, or a field of a struct."""

    field_id: int
    expression: Assigned | Expression


Assignments = tuple[Assignment, ...]


def looked_at(expression: Expression) -> frozenset[int]:
    """Ids of the fields that an expression looks at."""
    match expression:
        case Column(field_id):
            return frozenset((field_id,))
        case Test(predicate):
            return field_ids(predicate)
        case Apply(_, arguments):
            return frozenset[int]().union(*map(looked_at, arguments))
        case Constant():
            return frozenset()


def fields_of(assignments: Assignments) -> frozenset[int]:
    """Fields that are assigned to, and those that their values are made of."""
    ids = {assignment.field_id for assignment in assignments}
    for assignment in assignments:
        if not isinstance(assignment.expression, Assigned):
            ids |= looked_at(assignment.expression)
    return frozenset(ids)

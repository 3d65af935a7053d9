"""The values of an update, bound to a schema.

Promise: `{"status": "'closed'", "address.zip": "upper(zip)"}` becomes assignments whose values have the
types of what they are assigned to, or is refused at its place: a literal must fit exactly, a column must
widen to the one it is assigned to, exact numbers go into exact columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from inlay.errors import InlayError, InvalidPredicate, InvalidRequest, a_type
from inlay.format.binding import Number, Text, Written, neighbours
from inlay.format.expression import Assigned, Assignment, Assignments, Column, Expression
from inlay.format.schema import Field, Primitive, Schema, Value, split_path
from inlay.format.values import widens
from inlay.parse.grammar import errors_in, parse_text, refused, resolve, spelled
from inlay.parse.syntax import Calculation, Given, Name, Span, Syntax
from inlay.parse.values import Values, written_of
from inlay.parse.where import ConstantFolder, read_as


def parse_assignments(
    texts: Mapping[str, Any],
    schema: Schema,
    *,
    now: Callable[[], int] | None = None,
    values: Values | None = None,
) -> Assignments:
    """Column names to value texts as assignments on `schema`, with the time from `now`. What is no text is
    the value itself, and so is a `Literal`. A name may be the path of a struct's field. Raises
    InvalidPredicate."""
    if not isinstance(texts, Mapping):
        raise InvalidPredicate(
            f"assignments cannot be {a_type(texts)}",
            next_step='Give columns with values as SQL: {"status": "\'closed\'"}',
        )
    if not texts:
        raise InvalidPredicate("an update without assignments", next_step="Name a column to set")
    assignments: dict[int, Assignment] = {}
    for name, text in texts.items():
        if not isinstance(name, str):
            raise InvalidPredicate(f"the name of a column is a text, not {a_type(name)}")
        path = schema.path_named(name)
        target = None if path is None else schema.resolve(path)
        if target is None:
            quoted = '"' in name
            parts = tuple((part, quoted) for part in split_path(name) or name.split("."))
            with errors_in(name):
                target = resolve(Name(parts, 0), schema)
        if target.id in assignments:
            raise InvalidPredicate(f"column {name!r} is assigned twice")
        _check_apart(target, assignments, schema)
        with errors_in(text if isinstance(text, str) else "?"):
            value = _value(name, text, schema, now, values)
            assignments[target.id] = Assignment(target.id, _assigned(value, target, schema))
    return tuple(assignments.values())


def _value(
    name: str, text: Any, schema: Schema, now: Callable[[], int] | None, values: Values | None
) -> Syntax:
    if isinstance(text, str):
        return ConstantFolder(schema, now).fold(parse_text(text, values))
    try:
        return Given(written_of(text), 0)
    except InvalidRequest as error:
        raise InvalidPredicate(
            f"the value of column {name[:100]!r}: {error.message}", next_step=error.next_step
        ) from None


def _check_apart(target: Field, assigned: Mapping[int, Assignment], schema: Schema) -> None:
    """A struct and a field of it are not assigned together."""
    path = schema.path_of(target.id) or ()
    for field_id in assigned:
        other = schema.path_of(field_id) or ()
        shared = min(len(path), len(other))
        if path[:shared] == other[:shared]:
            raise InvalidPredicate(
                f"{'.'.join(path)!r} and {'.'.join(other)!r} are assigned together",
                next_step="Assign the whole struct, or its fields",
            )


def _assigned(node: Syntax, column: Field, schema: Schema) -> Assigned | Expression:
    kind = column.type
    match node:
        case Given(None) if not column.nullable:
            raise refused(node, f"column {column.name!r} is required and cannot become NULL")
        case Given(None):
            return Assigned(None)
        case Given(Span()):
            raise refused(node, "an interval is not a value", "Write at + INTERVAL '1 day'")
        case Given(written) if isinstance(kind, Primitive) and written is not None:
            return Assigned(_constant(node, column, kind, written))
        case Given():
            raise refused(
                node,
                f"a literal cannot be assigned to {column.name!r}, which is nested",
                "Assign a column of its type, NULL, or the fields of a struct one by one",
            )
        case _:  # the calculator knows every kind
            from inlay.parse.calculate import Calculator

            expression = Calculator(schema).expression(node)
            _check(node, column, expression)
            return expression


def _constant(node: Given, column: Field, kind: Primitive, written: Written | Span) -> Value:
    assert not isinstance(written, Span)
    if isinstance(written, Text) and kind.is_temporal:
        written = read_as(kind, written.value, node)
    try:
        near = neighbours(kind, written)
    except InlayError as error:
        message = error.message.replace("be compared with a column", "be assigned to a column")
        message = f"{message} ({column.name!r})"
        raise refused(node, message, error.next_step) from None
    if not near.exact or near.below is None:
        raise refused(node, f"this value does not fit column {column.name!r} of type {kind}")
    if isinstance(near.below, float) and near.below == 0 and isinstance(written, Number):
        # To a comparison the zeros are one; a column keeps the one it is given.
        return math.copysign(0.0, written.value)
    return near.below


def _check(node: Syntax, column: Field, expression: Expression) -> None:
    """Raises where the column cannot hold values of the expression's type."""
    kind, given = column.type, expression.type
    if given is None or given == kind:
        return
    if isinstance(kind, Primitive) and isinstance(given, Primitive):
        if isinstance(expression, Column):
            if widens(given, kind):
                return
        elif _holds(kind, given):
            return
    named, target = _called(given), _called(kind)
    if isinstance(node, Calculation) and node.op == "/" and _is_exact(kind):
        raise refused(
            node,
            f"a quotient is a floating number, which {column.name!r} is not",
            f"CAST(round(…) AS {kind}), or assign to a double column",
        )
    if isinstance(given, Primitive) and given.is_float and _is_exact(kind):
        raise refused(
            node,
            f"the value is floating: it would not be exact in {column.name!r} of type {target}",
            f"CAST(… AS {kind}) rounds it",
        )
    what = f"column {spelled(node)!r}" if isinstance(node, Name) else "a value"
    raise refused(
        node,
        f"{what} of type {named} cannot be assigned to {column.name!r} of type {target}",
        f"CAST(… AS {kind})" if isinstance(kind, Primitive) else "",
    )


def _holds(kind: Primitive, given: Primitive) -> bool:
    """Whether calculated values of `given` go into a column of `kind`, each as far as it fits exactly."""
    if kind.is_float:
        return given.is_numeric
    if _is_exact(kind):
        return _is_exact(given)
    if kind.name in ("timestamp", "timestamptz"):
        return given.name in (kind.name, "date")
    return given.name == kind.name or {given.name, kind.name} == {"fixed", "binary"}


def _is_exact(kind: object) -> bool:
    return isinstance(kind, Primitive) and kind.is_numeric and not kind.is_float


def _called(kind: object) -> str:
    return str(kind) if isinstance(kind, Primitive) else type(kind).__name__

"""Conditions: the text of one, or a tree of the format, as what rows are asked.

Promise: a condition that is a predicate is bound as one; any other calculates (`parse.calculate`), and has
the predicate that it implies, so that files are left out by it all the same.
"""

from __future__ import annotations

from collections.abc import Callable

from inlay.errors import InvalidPredicate, InvalidRequest
from inlay.format.expression import Condition
from inlay.format.predicate import TRUE, Predicate, check_bounds
from inlay.format.schema import Schema
from inlay.parse.grammar import errors_in, parse_text
from inlay.parse.values import Values
from inlay.parse.where import Binder, ConstantFolder, is_plain


def parse_condition(
    text: str,
    schema: Schema,
    *,
    now: Callable[[], int] | None = None,
    values: Values | None = None,
) -> Condition:
    """A WHERE text as a condition on `schema`; `now` gives microseconds since 1970, and is called
    only if the text uses the time; `values` are what `?` and `:name` stand for. Raises InvalidPredicate,
    pointing at the place."""
    with errors_in(text):
        folder = ConstantFolder(schema, now)
        root = folder.fold(parse_text(text, values))
        if is_plain(root, schema):
            predicate = check_bounds(Binder(schema).condition(root))
            return Condition(predicate, None, text, folder.timed)
        from inlay.parse.calculate import calculated  # most conditions are predicates

        predicate, whole = calculated(root, schema)
        return Condition(predicate, whole, text, folder.timed)


def condition_of(
    where: str | Predicate | None,
    schema: Schema,
    now: Callable[[], int],
    values: Values | None = None,
) -> Condition:
    """A condition to change rows by: SQL text or the format's own tree. `now` is the clock of `now()`,
    `values` are what `?` and `:name` stand for."""
    if where is None:
        return Condition(TRUE)
    if isinstance(where, str):
        return parse_condition(where, schema, now=now, values=values)
    if isinstance(where, Predicate):
        return Condition(where)
    raise InvalidRequest(
        f"a condition cannot be a {type(where).__module__}.{type(where).__qualname__} here",
        next_step="Write it as SQL text: \"id = 1 AND name LIKE 'a%'\"",
    )


def parse_predicate(text: str, schema: Schema, values: Values | None = None) -> Predicate:
    """A WHERE text as a predicate that can be stored; `values` as in `condition_of`. Raises
    InvalidPredicate, pointing at the place."""
    condition = parse_condition(text, schema, values=values)
    if condition.calculated is not None:
        raise InvalidPredicate(
            "this condition calculates, and only columns compared with literals are allowed here",
            text=text,
            next_step="Compare columns with literals only, or find the rows first and give their keys",
        )
    return condition.predicate

"""Deletes: which marker says a delete best.

Promise: the marker means exactly the predicate it was made of. A delete by key that bounds the leading
primary key column becomes a range, which readers and later tools can reason about without a predicate;
everything else stays a predicate.
"""

from __future__ import annotations

from dataclasses import replace

from inlay.format.entry import KeyRange, MarkerBody, Where
from inlay.format.predicate import And, Comparison, Predicate
from inlay.format.schema import Value


def marker_body(predicate: Predicate, primary_key: tuple[int, ...]) -> MarkerBody:
    """The body of a table-wide marker for `predicate`."""
    found = as_range(predicate, primary_key[0]) if primary_key else None
    return found if found is not None else Where(predicate)


def as_range(predicate: Predicate, field_id: int) -> KeyRange | None:
    """The predicate as one range of `field_id`, when it is nothing but that."""
    parts = predicate.parts if isinstance(predicate, And) else (predicate,)
    found = KeyRange(field_id)
    for part in parts:
        narrowed = _narrow(found, part)
        if narrowed is None:
            return None
        found = narrowed
    return found if found != KeyRange(field_id) else None


def _narrow(found: KeyRange, part: Predicate) -> KeyRange | None:
    if not isinstance(part, Comparison) or part.field_id != found.field_id:
        return None
    if part.literal.type.is_float:
        # An open side of a range lets NaN in on one side only; a predicate says it without doubt.
        return None
    value: Value = part.literal.value
    free_below, free_above = found.lower is None, found.upper is None
    found = replace(found, kind=part.literal.type)
    match part.op:
        case "=" if free_below and free_above:
            return replace(found, lower=value, upper=value)
        case ">" | ">=" if free_below:
            return replace(found, lower=value, lower_inclusive=part.op == ">=")
        case "<" | "<=" if free_above:
            return replace(found, upper=value, upper_inclusive=part.op == "<=")
        case _:
            return None

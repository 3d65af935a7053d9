"""What JSON that anybody may have written has to look like before its members are used.

Promise: a value that `fits` a shape can be read by that shape without a further check; nothing raises. A
shape is one of

    str, dict            of that type
    None                 null
    range(n, m)          an integer in it; true and false are none
    (a, b)               either
    [a]                  a list of any length, each of that shape
    Row(a, b)            a list of exactly these, and whatever follows them where it is `open`
    Map(a)               an object with whatever names, each of that shape
    {"a": x, "b?": y}    an object with these members, the second of which may be missing; others are free
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inlay.record import Record

COUNT = range(2**63)
# Microseconds up to the year 9999, where dates end.
TIME = range(253_402_300_800_000_000)


class Row(Record):
    """A list of members in their places."""

    members: tuple[Any, ...]
    open: bool = False

    @classmethod
    def of(cls, *members: Any, open: bool = False) -> Row:
        return cls(members, open)


class Map(Record):
    """An object whose names are data."""

    each: Any


def fits(value: Any, shape: Any) -> bool:
    """Whether a value from `json.loads` has this shape.

    >>> fits({"n": 1, "more": []}, {"n": COUNT, "what?": str})
    True
    >>> fits({"n": True}, {"n": COUNT})
    False
    """
    match shape:
        case None:
            return value is None
        case range():
            return type(value) is int and value in shape
        case tuple():
            return any(fits(value, member) for member in shape)
        case [member]:
            return isinstance(value, list) and all(fits(v, member) for v in value)
        case Row(members, is_open):
            if not isinstance(value, list) or len(value) < len(members):
                return False
            fitting = all(fits(v, member) for v, member in zip(value, members, strict=False))
            return fitting and (is_open or len(value) == len(members))
        case Map(member):
            return isinstance(value, dict) and all(fits(v, member) for v in value.values())
        case Mapping():
            return isinstance(value, dict) and all(_has(value, *member) for member in shape.items())
        case _:  # a type: what it is not, does not fit
            return isinstance(value, shape)


def _has(value: Mapping[str, Any], name: str, shape: Any) -> bool:
    member = name.removesuffix("?")
    return fits(value[member], shape) if member in value else name.endswith("?")

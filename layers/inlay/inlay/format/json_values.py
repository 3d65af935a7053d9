"""Plain JSON values of entries, type-checked when read.

Promise: what passes has the requested type; everything else raises `TypeError` or `ValueError`,
which the codec turns into `CorruptTable` naming the object.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

# Counts, sizes, versions and times: no valid one is larger, and Arrow accepts no more.
MAX_COUNT = 2**63 - 1


def as_text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError(f"expected text, found {type(found).__name__}")
    return found


def as_count(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= MAX_COUNT:
        raise TypeError(f"expected a count, found {str(found)[:40]!r}")
    return found


def optional(decode: Callable[[Any], T], found: Any) -> T | None:
    return None if found is None else decode(found)


def trim(values: list[Any]) -> list[Any]:
    while values and values[-1] is None:
        values.pop()
    return values


def pad(values: Any, length: int) -> list[Any]:
    if not isinstance(values, list) or len(values) > length:
        raise TypeError(f"expected a list of at most {length}")
    return values + [None] * (length - len(values))


def bytes_to_text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def bytes_from_text(value: str) -> bytes:
    return base64.urlsafe_b64decode(as_text(value) + "=" * (-len(value) % 4))

"""Arguments: what callers pass to a table, checked before anything is read or written.

Promise: an argument of the wrong type is an `InvalidRequest` that names it, never an internal error and
never a guess. Functions here know nothing of a table's state.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from inlay.errors import InvalidRequest, a_type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def location(uri: str | os.PathLike[str]) -> str:
    """A URI or local path as text."""
    if isinstance(uri, str | os.PathLike):
        path = os.fspath(uri)
        if isinstance(path, str):
            return path
    raise InvalidRequest(
        f"a location cannot be {a_type(uri)}",
        next_step="Give s3://bucket/key, file:///path, memory://name/key or a local path",
    )


def names(value: str | Sequence[str], argument: str) -> tuple[str, ...]:
    """One column name or several."""
    found = (value,) if isinstance(value, str) else _listed(value, argument)
    for name in found:
        if not isinstance(name, str):
            raise InvalidRequest(f"{argument} must be names of columns, not {a_type(name)}")
    if len(set(found)) < len(found):
        raise InvalidRequest(f"{argument} names a column twice: {', '.join(found)}")
    return found


def _listed(value: Iterable[Any], argument: str) -> tuple[Any, ...]:
    try:
        return tuple(value)
    except TypeError:
        raise InvalidRequest(f"{argument} cannot be {a_type(value)}") from None


def ordinals(value: Sequence[int]) -> tuple[int, ...]:
    """Ordinals of row groups, from 0. Integers only: they are written into the table's metadata."""
    listed = () if isinstance(value, str | bytes) else _listed(value, "ordinals")
    if not listed:
        raise InvalidRequest("no row groups are given", next_step="Give ordinals from 0: [0, 3]")
    return tuple(whole_number(each, "an ordinal") for each in listed)


def whole_number(value: Any, argument: str) -> int:
    """A Python int from any integer type (NumPy's, for example), but not from a bool or a float."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise InvalidRequest(f"{argument} must be a whole number, not {str(value)[:50]!r}")


def time_us(value: datetime | date | str) -> int:
    """Microseconds since 1970; a time without a zone is UTC, a date its midnight."""
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise InvalidRequest(
            f"as_of cannot be {a_type(value)}",
            next_step="Give a datetime, or text such as 2026-01-31T12:00:00Z",
        )
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return (value - _EPOCH) // timedelta(microseconds=1)


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"not a time: {text[:100]!r}", next_step="Write it as 2026-01-31T12:00:00Z"
        ) from None


def seconds(value: timedelta | None, argument: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, timedelta):
        raise InvalidRequest(
            f"{argument} cannot be {a_type(value)}", next_step="Give a datetime.timedelta"
        )
    return value.total_seconds()

"""Arguments: what callers pass to a table, checked before anything is read or written.

Promise: an argument of the wrong type is an `InvalidRequest` that names it, never an internal error and
never a guess. Functions here know nothing of a table's state.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import wraps
from numbers import Real
from typing import Any, TypeVar

from inlay.errors import InvalidRequest, a_type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Called = TypeVar("_Called", bound=Callable[..., Any])
_Group = TypeVar("_Group", bound=type)


def checked(called: _Called) -> _Called:
    """The function, which takes only what its annotations say of arguments that are numbers, texts,
    bytes or mappings by name; of others it says itself what they may be."""
    code, notes = called.__code__, called.__annotations__
    rules = {name: _RULES[note] for name, note in notes.items() if note in _RULES}
    positional = code.co_varnames[: code.co_argcount]

    @wraps(called)
    def checking(*args: Any, **named: Any) -> Any:
        for name, value in (*zip(positional, args, strict=False), *named.items()):
            if name in rules:
                rules[name](value, name)
        return called(*args, **named)

    return checking  # type: ignore[return-value]


def all_checked(group: _Group) -> _Group:
    """The class, all of whose public methods are `checked`."""
    for name, method in list(vars(group).items()):
        if callable(method) and not name.startswith("_"):
            setattr(group, name, checked(method))
    return group


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
    listed = _listed(value, argument)
    for name in listed:
        if not isinstance(name, str):
            raise InvalidRequest(f"{argument} must be names of columns, not {a_type(name)}")
    if len(set(listed)) < len(listed):
        raise InvalidRequest(f"{argument} names a column twice: {', '.join(listed)}")
    return listed


def texts(value: str | Sequence[str], argument: str) -> tuple[str, ...]:
    """One text or several: a text is never a sequence of its characters."""
    listed = _listed(value, argument)
    for text in listed:
        _text(text, argument)
    return listed


def _listed(value: Any, argument: str) -> tuple[Any, ...]:
    if isinstance(value, str):
        return (value,)
    try:
        return tuple(value)
    except TypeError:
        raise InvalidRequest(f"{argument} cannot be {a_type(value)}") from None


def ordinals(value: Sequence[int]) -> tuple[int, ...]:
    """Ordinals of row groups, from 0. Integers only: they are written into the table's metadata."""
    listed = () if isinstance(value, str | bytes) else _listed(value, "ordinals")
    if not listed:
        raise InvalidRequest("no row groups are given", next_step="Give ordinals from 0: [0, 3]")
    return tuple(whole_number(ordinal, "an ordinal") for ordinal in listed)


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


def one_of(value: object, argument: str, choices: Collection[str]) -> None:
    """Raises `InvalidRequest` for a value that is none of the choices."""
    if value not in choices:
        raise InvalidRequest(
            f"{argument} cannot be {str(value)[:50]!r}",
            next_step=f"It is one of {', '.join(choices)}",
        )


def _number(value: Any, argument: str) -> None:
    # NaN is neither less nor more than any bound.
    if isinstance(value, bool) or not isinstance(value, Real) or value != value:
        raise InvalidRequest(f"{argument} must be a number, not {str(value)[:50]!r}")


def _text(value: Any, argument: str) -> None:
    if not isinstance(value, str):
        raise InvalidRequest(f"{argument} must be a text, not {a_type(value)}")


def _bytes(value: Any, argument: str) -> None:
    if not isinstance(value, bytes):
        raise InvalidRequest(f"{argument} must be bytes, not {a_type(value)}")


def _named(value: Any, argument: str) -> None:
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{argument} must be a dict of names and values, not {a_type(value)}")


def _or_none(rule: Callable[[Any, str], object]) -> Callable[[Any, str], object]:
    return lambda value, argument: None if value is None else rule(value, argument)


# By the text of an annotation.
_PLAIN: dict[str, Callable[[Any, str], object]] = {
    "int": whole_number,
    "float": _number,
    "str": _text,
    "bytes": _bytes,
    "Mapping[str, object]": _named,
}
_RULES = _PLAIN | {f"{note} | None": _or_none(rule) for note, rule in _PLAIN.items()}

"""Columns: many values of one kind as one JSON value, for leaves of about a thousand entries.

Promise: exact in both directions, and deterministic. The reader of a column states how many values it must
have; anything else raises `TypeError` or `ValueError`, which the codec turns into `CorruptTable`.
docs/FORMAT.md, "Columns", has their forms.

Where possible a column is checked as a whole: reading a leaf must not call a function for each of its
twenty thousand bounds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, TypeVar, overload

from inlay.errors import InvalidRequest
from inlay.format.schema import Primitive, Value
from inlay.format.values import EXACT, MAX_COUNT, as_text, decode_value, encode_value, integer_range

T = TypeVar("T")


# -- writing --------------------------------------------------------------------------------------


def column(values: Sequence[Any]) -> Any:
    """Plain JSON values (null for none)."""
    if all(v is None for v in values):
        return None
    return {"all": values[0]} if _are_one(values) else list(values)


def _are_one(values: Sequence[Any]) -> bool:
    first = values[0]
    if isinstance(first, int | str):
        return all(type(v) is type(first) and v == first for v in values)
    # 1 == True and 0.0 == -0.0 in Python, not in JSON.
    text = json.dumps(first)
    return all(json.dumps(v) == text for v in values)


def numbers(values: Sequence[int | None]) -> Any:
    """Whole numbers, as values or as steps, whichever is shorter."""
    plain = column(values)
    return _shortest([plain, {"steps": _steps(values)}]) if isinstance(plain, list) else plain


def texts(values: Sequence[str | None]) -> Any:
    plain = column(values)
    known = [v for v in values if v is not None]
    if not isinstance(plain, list) or len(known) < 2:
        return plain
    prefix = _shared_prefix(known)
    rest = [v[len(prefix) :] for v in known]
    suffix = _shared_prefix([v[::-1] for v in rest])[::-1]
    if not prefix and not suffix:
        return plain
    end = len(suffix)
    between = [None if v is None else v[len(prefix) : len(v) - end] for v in values]
    return {"around": [prefix, suffix], "texts": between}


def _shared_prefix(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)  # a prefix these two share, all share
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first[:same]


def bounds(
    kind: Primitive, lowers: Sequence[Value | None], uppers: Sequence[Value | None]
) -> tuple[Any, Any]:
    """Lower and upper bounds of a column of data, in one type."""
    if not _is_whole(kind):
        lower, upper = (
            [None if v is None else encode_value(kind, v) for v in b] for b in (lowers, uppers)
        )
        return column(lower), column(upper)
    low, high = _to_whole(kind, lowers), _to_whole(kind, uppers)
    upper = numbers(high)
    if isinstance(upper, list | dict) and "all" not in upper:
        above = [
            None if b is None else b if a is None else b - a for a, b in zip(low, high, strict=True)
        ]
        upper = _shortest([upper, {"above": above}])
    return numbers(low), upper


def _steps(values: Sequence[int | None]) -> list[int | None]:
    steps: list[int | None] = []
    before = 0
    for value in values:
        steps.append(None if value is None else value - before)
        before = before if value is None else value
    return steps


def _shortest(candidates: Sequence[Any]) -> Any:
    return min(candidates, key=lambda c: len(json.dumps(c, separators=(",", ":"))))


def _is_whole(kind: Primitive) -> bool:
    return kind.name == "decimal" or integer_range(kind) is not None


def _to_whole(kind: Primitive, values: Sequence[Value | None]) -> Sequence[int | None]:
    """Raises `InvalidRequest` for one that is not of the type, which no reader would accept."""
    if kind.name == "decimal":
        values = [None if v is None else int(v.scaleb(kind.scale, EXACT)) for v in values]  # type: ignore[union-attr]
    if not _are_values(kind, values):  # type: ignore[arg-type]
        raise InvalidRequest(f"a bound is not a value of type {kind}")
    return values  # type: ignore[return-value]


def _are_values(kind: Primitive, whole: Sequence[int | None]) -> bool:
    """Whether whole numbers are physical values of a type, a decimal's without its scale."""
    limits = (1 - 10**kind.precision, 10**kind.precision - 1)
    if kind.name != "decimal":
        limits = integer_range(kind) or limits
    known = _known(whole)
    return not known or limits[0] <= min(known) <= max(known) <= limits[1]


# -- reading --------------------------------------------------------------------------------------


def read_column(body: Any, count: int) -> Sequence[Any]:
    """Plain JSON values, not yet checked."""
    match body:
        case None:
            return [None] * count
        case {"all": value} if len(body) == 1:
            return [value] * count
        case list() if len(body) == count:
            return body
    raise ValueError(f"a column does not have {count} values")


def _is_alike(body: Any) -> bool:
    """Whether all entries have one value, which is then checked once."""
    return isinstance(body, dict) and body.keys() == {"all"}


def read_numbers(body: Any, count: int) -> Sequence[int | None]:
    """Whole numbers, of either sign."""
    if _is_alike(body):
        return [*_whole([body["all"]])] * count
    if isinstance(body, dict) and body.keys() == {"steps"}:
        steps = _whole(read_column(body["steps"], count))
        if None not in steps:
            return list(accumulate(steps))
        sums = accumulate(s or 0 for s in steps)
        return [None if s is None else n for s, n in zip(steps, sums, strict=True)]
    return _whole(read_column(body, count))


def read_counts(body: Any, count: int) -> Sequence[int | None]:
    if _is_alike(body):
        return [*read_counts([body["all"]], 1)] * count
    values = read_numbers(body, count)
    known = _known(values)
    if known and not 0 <= min(known) <= max(known) <= MAX_COUNT:
        raise TypeError("expected counts")
    return values


def read_texts(body: Any, count: int) -> Sequence[str | None]:
    if isinstance(body, dict) and body.keys() == {"around", "texts"}:
        prefix, suffix = (as_text(part) for part in body["around"])
        inner = read_texts(body["texts"], count)
        return [None if v is None else f"{prefix}{v}{suffix}" for v in inner]
    values = read_column(body, count)
    if not set(map(type, values)) <= {str, type(None)}:
        raise TypeError("expected texts")
    return values


def read_all(values: Sequence[T | None]) -> Sequence[T]:
    """A column in which every entry must have a value."""
    if None in values:
        raise TypeError("an entry lacks a value it must have")
    return values  # type: ignore[return-value]


def read_bounds(
    kind: Primitive, lower: Any, upper: Any, count: int
) -> tuple[Sequence[Value | None], Sequence[Value | None]]:
    if not _is_whole(kind):
        return _decoded(kind, read_column(lower, count)), _decoded(kind, read_column(upper, count))
    low = read_numbers(lower, count)
    if isinstance(upper, dict) and upper.keys() == {"above"}:
        above = read_numbers(upper["above"], count)
        high: Sequence[int | None] = [
            None if b is None else b + (a or 0) for a, b in zip(low, above, strict=True)
        ]
    else:
        high = read_numbers(upper, count)
    return _from_whole(kind, low, lower), _from_whole(kind, high, upper)


def _known(values: Sequence[int | None]) -> Sequence[int]:
    """Those that are not None: mostly all, which is quicker to see than to copy."""
    return [v for v in values if v is not None] if None in values else values  # type: ignore[return-value]


def _whole(values: Sequence[Any]) -> Sequence[int | None]:
    if not set(map(type, values)) <= {int, type(None)}:
        raise TypeError("expected whole numbers")
    return values


def _from_whole(kind: Primitive, values: Sequence[int | None], body: Any) -> Sequence[Value | None]:
    if not _are_values(kind, values[:1] if _is_alike(body) else values):
        raise ValueError(f"a bound is not a value of type {kind}")
    return Decimals(values, kind.scale) if kind.name == "decimal" else values


class Decimals(Sequence[Decimal | None]):
    """Whole numbers as decimals of a scale, each made when it is asked for."""

    __slots__ = ("_scale", "_unscaled")

    def __init__(self, unscaled: Sequence[int | None], scale: int) -> None:
        self._unscaled = unscaled
        self._scale = scale

    def __len__(self) -> int:
        return len(self._unscaled)

    @overload
    def __getitem__(self, n: int) -> Decimal | None: ...

    @overload
    def __getitem__(self, n: slice) -> list[Decimal | None]: ...

    def __getitem__(self, n: int | slice) -> Decimal | list[Decimal | None] | None:
        if isinstance(n, slice):
            return [self[at] for at in range(*n.indices(len(self)))]
        unscaled = self._unscaled[n]
        return None if unscaled is None else Decimal(unscaled).scaleb(-self._scale, EXACT)


def _decoded(kind: Primitive, values: Sequence[Any]) -> Sequence[Value | None]:
    """Values of types other than whole numbers; common types are checked as a whole."""
    kinds = {type(v) for v in values} - {type(None)}
    if kind.name == "double" and kinds <= {float}:
        return values
    if kind.name == "string" and kinds <= {str}:
        "".join(v for v in values if v is not None).encode()  # rejects surrogates
        return values
    return [None if v is None else decode_value(kind, v) for v in values]

"""JSON that loses nothing when it is parsed.

Promise: what Python's parser would change silently is a `ValueError`. Of two equal names in one object it
keeps the last, it rounds a number with more digits than a double holds, and it accepts NaN and Infinity,
which are not JSON (RFC 8259). The errors repeat nothing of the text.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any


class InexactJson(ValueError):
    """JSON that cannot be taken as it is written."""


def decode_json(text: str) -> Any:
    """The value of a text. Raises `ValueError`: `InexactJson`, `json.JSONDecodeError`; `RecursionError`."""
    return json.loads(
        text,
        object_pairs_hook=named_once,
        parse_float=_exact,
        parse_int=_whole,
        parse_constant=_no_number,
    )


def named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `object_pairs_hook`: an object as a dict. Raises `InexactJson`."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise InexactJson("an object has one name twice")
    return members


def _exact(text: str) -> float:
    number = float(text)
    try:
        is_exact = Decimal(text) == Decimal(repr(number))
    except InvalidOperation:
        is_exact = False
    if not is_exact:
        raise InexactJson("a number has more digits than a double holds: write it as a text")
    return number


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # Python takes no more than some thousand digits
        raise InexactJson("a number has too many digits") from None


def _no_number(text: str) -> float:
    raise InexactJson(f"{text} is not a JSON value")

"""Durations as people write them."""

from __future__ import annotations

import re
from datetime import timedelta

from inlay.errors import InvalidRequest

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(?P<count>[0-9]{1,6})(?P<unit>[smhdw])")


def parse_duration(text: str) -> timedelta:
    """
    >>> parse_duration("7d")
    datetime.timedelta(days=7)
    >>> parse_duration("0")
    datetime.timedelta(0)
    """
    if text == "0":
        return timedelta(0)
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            f"{text[:40]!r} is not a duration", next_step="Write it as 30s, 15m, 12h, 7d, 2w or 0"
        )
    return timedelta(**{_UNITS[match["unit"]]: int(match["count"])})

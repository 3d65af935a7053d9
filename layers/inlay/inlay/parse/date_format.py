"""Formats of dates and times, as strptime's and strftime's: what a text must look like.

Promise: a format is checked before a value is read, and what it has that is not known here is refused by
name. It has a year, a month and a day once each, and of the time of day no part without those above it; so
each text that it fits names one date or moment. Names of months and days are English, in any case; blanks
may be several.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from inlay.errors import InvalidRequest
from inlay.record import Record

MONTHS = [
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def _one_of(name: str, words: Sequence[str]) -> str:
    return f"(?P<{name}>(?i:{'|'.join(words)}))"


_TWO = "[0-9]{1,2}"
_CODES = {
    "Y": "(?P<Y>[0-9]{4})",
    "y": "(?P<y>[0-9]{2})",
    "m": f"(?P<m>{_TWO})",
    "b": _one_of("b", [name[:3] for name in MONTHS]),
    "B": _one_of("b", MONTHS),
    "d": f"(?P<d>{_TWO})",
    "a": _one_of("a", [name[:3] for name in DAYS]),
    "A": _one_of("a", DAYS),
    "H": f"(?P<H>{_TWO})",
    "I": f"(?P<I>{_TWO})",
    "p": _one_of("p", ["am", "pm"]),
    "M": f"(?P<M>{_TWO})",
    "S": f"(?P<S>{_TWO})",
    "f": "(?P<f>[0-9]{1,9})",
    "z": "(?P<z>[Zz]|[+-][0-9]{2}:?[0-9]{2})",
    "%": "%",
}
_SHORT = {"F": "%Y-%m-%d", "T": "%H:%M:%S"}
# What cannot be read without the other.
_NEEDS = (("I", "p"), ("p", "I"), ("M", "HI"), ("S", "M"), ("f", "S"), ("z", "HI"))
_EXAMPLE = "For example %d.%m.%Y, %Y/%m/%d %H:%M:%S or %b %d %Y"


def pieces(text: str) -> list[tuple[str, str]]:
    """The format's directives, without their %, and the texts between them: one of each pair is empty.

    Raises `InvalidRequest` for a directive that is not known."""
    expanded = re.sub("%(.)", lambda match: _SHORT.get(match[1], match[0]), text, flags=re.DOTALL)
    tokens = [
        (code[1:], literal) for code, literal in re.findall(r"(%.?)|([^%]+)", expanded, re.DOTALL)
    ]
    for code, literal in tokens:
        if not literal and code not in _CODES:
            raise InvalidRequest(
                f"a format of dates has no %{code}: {text[:80]!r}",
                next_step=f"It has {', '.join('%' + c for c in (*_CODES, *_SHORT))}",
            )
    return tokens


class DateFormat(Record):
    """A format to read by. `pattern` is a regular expression of RE2 with a group for each of `parts`."""

    text: str
    pattern: str
    parts: frozenset[str]

    @property
    def is_timed(self) -> bool:
        return not self.parts.isdisjoint("HI")

    @property
    def is_zoned(self) -> bool:
        return "z" in self.parts

    @classmethod
    def parse(cls, text: str) -> DateFormat:
        """Raises `InvalidRequest`."""
        pattern, parts = "", set[str]()
        for code, literal in pieces(text):
            if literal:
                pattern += re.sub(r"(\\ )+", " +", re.escape(literal))
                continue
            part = code.lower() if code in "AB" else code
            if part in parts:
                raise InvalidRequest(f"a format of dates has two of %{code}: {text[:80]!r}")
            pattern += _CODES[code]
            parts |= {part} - {"%"}
        for needs, words in (("Yy", "a year"), ("mb", "a month"), ("d", "a day")):
            if len(parts & set(needs)) != 1:
                said = " or ".join("%" + c for c in needs)
                raise InvalidRequest(
                    f"a format of dates has {words} once, as {said}: {text[:80]!r}",
                    next_step=_EXAMPLE,
                )
        if {"H", "I"} <= parts:
            raise InvalidRequest(f"a format of dates has %H or %I, not both: {text[:80]!r}")
        for part, others in _NEEDS:
            if part in parts and parts.isdisjoint(others):
                said = " or ".join("%" + c for c in others)
                raise InvalidRequest(
                    f"a format of dates has %{part} with {said} only: {text[:80]!r}",
                    next_step=_EXAMPLE,
                )
        return cls(text, f"^{pattern}$", frozenset(parts))

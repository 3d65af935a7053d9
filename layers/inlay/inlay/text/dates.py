"""Dates and times in another form than ISO's, by a format as strptime's.

Promise: a format is checked before a file is read, and what it has that is not read here is refused by
name. A value is taken exactly or refused at its row: each is written anew in ISO's form and read as that
is, so that no 30th of February, 24th hour or day of the week that the date does not fall on passes. A
format for one column is the only one that its values may have; beside one for all columns, dates in ISO's
form are read as well. Names of months and days are English, in any case; blanks may be several.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidRequest
from inlay.text.refused import Misread
from inlay.text.types import from_texts

_MONTH_NAMES = [
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
]
_MONTHS = [name[:3] for name in _MONTH_NAMES]
_DAY_NAMES = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_DAYS = [name[:3] for name in _DAY_NAMES]
_HOURS = ["12", *(f"{hour:02}" for hour in range(1, 12))]


def _one_of(name: str, words: Sequence[str]) -> str:
    return f"(?P<{name}>(?i:{'|'.join(words)}))"


_TWO = "[0-9]{1,2}"
_CODES = {
    "Y": "(?P<Y>[0-9]{4})",
    "y": "(?P<y>[0-9]{2})",
    "m": f"(?P<m>{_TWO})",
    "b": _one_of("b", _MONTHS),
    "B": _one_of("b", _MONTH_NAMES),
    "d": f"(?P<d>{_TWO})",
    "a": _one_of("a", _DAYS),
    "A": _one_of("a", _DAY_NAMES),
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


@dataclass(frozen=True, slots=True)
class DateFormat:
    """`alone`: whether values in ISO's form are refused."""

    text: str
    pattern: str
    parts: frozenset[str]
    alone: bool

    @classmethod
    def parse(cls, text: str, *, alone: bool) -> DateFormat:
        """Raises `InvalidRequest`."""
        pattern, parts = "", set[str]()
        for code, literal in re.findall(r"(%.?)|([^%]+)", _expanded(text), re.DOTALL):
            if literal:
                pattern += re.sub(r"(\\ )+", " +", re.escape(literal))
                continue
            known = _CODES.get(code[1:])
            if known is None:
                raise InvalidRequest(
                    f"a format of dates has no {code}: {text[:80]!r}",
                    next_step=f"It has {', '.join('%' + c for c in (*_CODES, *_SHORT))}",
                )
            part = code[1:].lower() if code in ("%A", "%B") else code[1:]
            if part in parts:
                raise InvalidRequest(f"a format of dates has two of {code}: {text[:80]!r}")
            pattern += known
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
        return cls(text, f"^{pattern}$", frozenset(parts), alone)

    def type_of(self, values: pa.ChunkedArray) -> pa.DataType | None:
        """The type of a column of these texts, where all are in this format. Raises Misread."""
        texts = pc.utf8_trim_whitespace(values)
        some = pc.and_(pc.is_valid(texts), pc.not_equal(texts, ""))
        if not self.alone:
            matches = pc.match_substring_regex(texts.filter(some), self.pattern)
            if not len(matches) or not pc.all(matches).as_py():
                return None
        kind: pa.DataType = pa.date32()
        if not self.parts.isdisjoint("HI"):
            kind = pa.timestamp("us", "UTC" if "z" in self.parts else None)
        self.read(values.combine_chunks(), kind)
        return kind

    def read(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Texts as dates or timestamps. Raises Misread."""
        texts = pc.utf8_trim_whitespace(values)
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
        matches = pc.match_substring_regex(texts, self.pattern)
        iso, wrong_day = self._in_iso(pc.extract_regex(texts, self.pattern))
        if pa.types.is_date(kind):  # exact where the time is midnight's
            iso = pc.replace_substring_regex(iso, r"^(.{10}) 00:00:00(\.0+)?$", r"\1")
        if self.alone:
            other = pc.indices_nonzero(pc.invert(matches))
            if len(other):
                raise Misread(other[0].as_py(), f"is not written as {self.text!r}")
        else:
            iso = pc.if_else(matches, iso, texts)
        try:
            made = from_texts(iso, kind)
        except Misread as error:
            raise Misread(error.row, f"{error.what} written as {self.text!r}") from None
        if wrong_day is not None and len(rows := pc.indices_nonzero(wrong_day)):
            raise Misread(rows[0].as_py(), "is on another day of the week")
        return made

    def _in_iso(self, found: pa.Array) -> tuple[pa.Array, pa.Array | None]:
        """As ISO writes them, and which of them name a day of the week that they are not on."""
        part = {name: pc.struct_field(found, [name]) for name in self.parts}
        if "y" in part:  # as POSIX has it
            old = pc.greater_equal(part["y"], "69")
            part["Y"] = _joined("", pc.if_else(old, "19", "20"), part["y"])
        if "b" in part:
            short = pc.utf8_slice_codeunits(pc.utf8_lower(part["b"]), 0, 3)
            month = pc.add(pc.index_in(short, value_set=pa.array(_MONTHS)), 1)
            part["m"] = month.cast(pa.string())
        day = _joined("-", part["Y"], _two(part["m"]), _two(part["d"]))
        wrong = None
        if "a" in part:
            short = pc.utf8_slice_codeunits(pc.utf8_lower(part["a"]), 0, 3)
            named = pc.index_in(short, value_set=pa.array(_DAYS))
            falls = pc.day_of_week(from_texts(day, pa.date32()))
            wrong = pc.not_equal(named.cast(pa.int64()), falls)
        if "I" in part:  # an hour of 0, or past 12, becomes one that ISO has not
            hour = pc.index_in(_two(part["I"]), value_set=pa.array(_HOURS))
            hour = pc.if_else(pc.is_null(hour), 99, hour)
            after = pc.equal(pc.utf8_lower(part["p"]), "pm")
            part["H"] = pc.add(hour, pc.if_else(after, 12, 0)).cast(pa.string())
        if "H" not in part:
            return day, wrong
        clock = [_two(part[name]) if name in part else pa.scalar("00") for name in "HMS"]
        moment = _joined(" ", day, _joined(":", *clock))
        if "f" in part:
            moment = _joined(".", moment, part["f"])
        return (_joined("", moment, part["z"]) if "z" in part else moment), wrong


def _expanded(text: str) -> str:
    return re.sub("%(.)", lambda found: _SHORT.get(found[1], found[0]), text, flags=re.DOTALL)


def _joined(between: str, *texts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*texts, between)


def _two(digits: pa.Array) -> pa.Array:
    return pc.utf8_lpad(digits, width=2, padding="0")


@dataclass(frozen=True, slots=True)
class DateFormats:
    """The formats of a file's columns: `general` of those of dates and timestamps that have none of their
    own."""

    general: DateFormat | None = None
    own: tuple[tuple[str, DateFormat], ...] = ()

    @classmethod
    def parse(cls, given: Sequence[str]) -> DateFormats:
        """`%Y/%m/%d`, or `at=%Y/%m/%d` for one column. Raises `InvalidRequest`."""
        general: DateFormat | None = None
        own: dict[str, DateFormat] = {}
        for text in given:
            name, equals, rest = text.partition("=")
            if equals and "%" not in name:
                if name.strip() in own:
                    raise InvalidRequest(f"column {name.strip()[:80]!r} has two formats of dates")
                own[name.strip()] = DateFormat.parse(rest, alone=True)
            elif general is not None:
                raise InvalidRequest(
                    "two formats of dates: which of them a value has would be a guess",
                    next_step="Name the column of each: --date-format at=%d.%m.%Y",
                )
            else:
                general = DateFormat.parse(text, alone=False)
        return cls(general, tuple(own.items()))

    def of(self, name: str) -> DateFormat | None:
        return dict(self.own).get(name, self.general)

    def reads(self, name: str, kind: pa.DataType) -> DateFormat | None:
        """The format in which a column of this type is read, if not in ISO's."""
        return self.of(name) if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else None

    def check(self, path: str, columns: pa.Schema) -> None:
        """Raises `InvalidRequest` for a format of a column that is none of dates."""
        for name, form in self.own:
            if name not in columns.names:
                raise InvalidRequest(
                    f"{path} has no column {name[:80]!r}, whose dates have a format"
                )
            if self.reads(name, columns.field(name).type) is None:
                raise InvalidRequest(
                    f"column {name[:80]!r} is {columns.field(name).type}, and has no dates to be read "
                    f"as {form.text!r}"
                )


ISO = DateFormats()

"""Free text that may hold values of rows: those that a condition selects, however they are written down.

Under a condition that names no value: `Mentions.may_select` is True if a number, date, time or word of the
text satisfies the condition on one of `columns`. These are the columns whose values `literals.texts_of`
does not list completely: under a range, NOT, a short LIKE, or with values too short to be searched for. It
only says where to look: in what program text means, `7` may be an age or a count.

The text is read as it is, with the escapes of JSON or URLs resolved, and decoded as a whole from Base64 or
hexadecimal digits. Values in it are: numbers that are not part of a word or of a version (`2.2.3`),
dates and times in ISO 8601, UUIDs and hexadecimal digits for bytes, words (what is between white space,
quotes, brackets and `,;:=/&?|<>\\`), texts in JSON, and the text as a whole. Truth values are not read:
`true` says nothing about a row. A text too long to be read counts as one that has a value.

Under a condition that names values: `names_any` is True if a text is in the bytes as they are, or in what
they stand for: with the escapes of JSON (also escaped again) or of URLs resolved, as UTF-16, as hexadecimal
digits, as Base64 of either alphabet, and in any of these within Base64. Not found: compressed or encrypted
text, and another case or form of Unicode, which is another value.

The bytes are decoded, not the texts encoded: a thousand texts are searched at the price of one decoding.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, assert_never
from urllib.parse import unquote_to_bytes

from inlay.format.entry import ColumnStats
from inlay.format.predicate import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    field_ids,
    walk,
)
from inlay.format.schema import Primitive, Value
from inlay.plan.pruning.literals import EPOCH, PER_SECOND, condition_on, plainly, texts_of
from inlay.plan.pruning.prune import may_match
from inlay.record import Record

# JSON within JSON escapes the escapes.
_ESCAPE = re.compile(rb"\\+(?:u[0-9a-fA-F]{4}(?:\\+u[0-9a-fA-F]{4})*|[\"/])")
_UNIT = re.compile(rb"u([0-9a-fA-F]{4})")
# Shorter runs stand for fewer than four characters (`literals.MIN_TEXT`).
_HEX = re.compile(rb"(?:[0-9a-fA-F]{2}){4,}")
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{6,}")
_STANDARD = bytes.maketrans(b"-_", b"+/")
# Files of one writer have the same few pairs: of a thousand files each is decoded once.
_REMEMBERED_READINGS = 16
_MAX_REMEMBERED_BYTES = 16 * 1024


def names_any(value: bytes, texts: Collection[str]) -> bool:
    """Whether a value contains one of `texts`.

    >>> names_any(b"mail=ada%40example.com", ["ada@example.com"])
    True
    >>> names_any("ada@example.com".encode("utf-16"), ["ada@example.com"])
    True
    >>> names_any(b"Ada@example.com", ["ada@example.com"])
    False
    """
    if not value or not texts:
        return False
    readings = (
        _remembered(value) if len(value) <= _MAX_REMEMBERED_BYTES else tuple(_readings(value))
    )
    needles = [text.encode("utf-8", "surrogatepass") for text in texts]
    # Of a thousand texts few are in any form: all forms at once first. What is there may cross a border.
    joined = b"\n".join(readings)
    present = [text for text in needles if text in joined]
    return any(text in form for form in readings for text in present)


@lru_cache(_REMEMBERED_READINGS)
def _remembered(value: bytes) -> tuple[bytes, ...]:
    return tuple(_readings(value))


def _readings(value: bytes) -> Iterator[bytes]:
    for form in (value, *_decoded(value)):
        yield from spelled_out(form)
        yield from _narrowed(form)


def spelled_out(form: bytes) -> Iterator[bytes]:
    """A text as it is, and with the escapes of JSON, or of URLs, resolved."""
    yield form
    if b"\\" in form:
        yield _unescaped(form)
    if b"%" in form:
        yield unquote_to_bytes(form)


def _decoded(value: bytes) -> Iterator[bytes]:
    """What runs of digits stand for; each run apart from the others."""
    digits = b"\n".join(bytes.fromhex(run.decode()) for run in _HEX.findall(value))
    if digits:
        yield digits
    # What precedes the text may be Base64, too: any of four places may be the beginning of a group.
    runs = [run.translate(_STANDARD) for run in _BASE64.findall(value)]
    for skipped in range(4 if runs else 0):
        yield b"\n".join(_whole_groups(run[skipped:]) for run in runs)


def _whole_groups(run: bytes) -> bytes:
    # One digit over stands for no byte.
    run = run[:-1] if len(run) % 4 == 1 else run
    return b64decode(run + b"=" * (-len(run) % 4))


def _narrowed(form: bytes) -> Iterator[bytes]:
    """As UTF-16 in either order of bytes, beginning at either place."""
    for start in (0, 1):
        cut = form[start : len(form) - (len(form) - start) % 2]
        for order in ("utf-16-le", "utf-16-be"):
            yield cut.decode(order, "replace").encode("utf-8", "replace")


def _unescaped(data: bytes) -> bytes:
    """With JSON's escapes of characters, quotes and slashes replaced, wherever they are: what is around
    them need not be JSON."""

    def plain(match: re.Match[bytes]) -> bytes:
        units = b"".join(bytes.fromhex(u.decode()) for u in _UNIT.findall(match[0]))
        if not units:
            return match[0][-1:]
        return units.decode("utf-16-be", "surrogatepass").encode("utf-8", "surrogatepass")

    return _ESCAPE.sub(plain, data)


_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])(?:(?<!\d)[-+])?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")
_INSIDE = re.compile(r"[A-Za-z0-9_]|\.\d")
_MOMENT = re.compile(
    r"(?<!\d)(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)\s?(Z|[-+]\d\d:?\d\d)?)?(?!\d)"
)
_CLOCK = re.compile(r"(?<!\d)(?<!\d:)\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?![\d:])")
_DIGITS = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{2}(?:-?[0-9a-fA-F]{2}){0,63}(?![0-9A-Za-z])")
_WORD = re.compile(r"[^\s\"'`,;:=/&?|<>(){}\[\]\\]+")
# No column holds longer numbers, and Python takes long to read them.
_MAX_DIGITS = 400
# Files of one writer have the same few pairs.
_REMEMBERED = 64
# Longer texts are not read but named: a million words take seconds.
MAX_TEXT_BYTES = 256 * 1024

# The smallest and the largest value that a piece of text may stand for: a date is a day of moments.
_Span = tuple[Value, Value]


class Mentions(Record):
    """`columns` are the field ids, each with the type and the condition on it."""

    columns: tuple[tuple[int, Primitive, Predicate], ...] = ()

    @staticmethod
    @lru_cache(4)  # called for each file: 3 ms for a thousand values
    def of(predicate: Predicate) -> Mentions:
        """
        >>> from inlay.format.predicate import Literal
        >>> ada, old = Like(1, "ada@%"), Comparison(2, ">", Literal(Primitive("int32"), 99))
        >>> [field_id for field_id, _, _ in Mentions.of(And((ada, old))).columns]
        [2]
        """
        return Mentions(tuple(_open_columns(plainly(predicate))))

    def __bool__(self) -> bool:
        return bool(self.columns)

    def may_select(self, text: bytes) -> bool:
        if not self.columns or not text:
            return False
        return len(text) > MAX_TEXT_BYTES or _may_select(self, text)


@lru_cache(_REMEMBERED)
def _may_select(mentions: Mentions, text: bytes) -> bool:
    forms = [form.decode("utf-8", "replace") for form in dict.fromkeys(_forms(text))]
    return any(
        may_match(condition, {field_id: ColumnStats(low, high, null_count=0, has_nan=False)}, 1)
        for field_id, kind, condition in mentions.columns
        for low, high in dict.fromkeys(span for form in forms for span in _spans(kind, form))
    )


def _forms(text: bytes) -> Iterator[bytes]:
    yield from spelled_out(text)
    for decoded in (partial(b64decode, validate=True), bytes.fromhex):
        with suppress(ValueError):
            content = decoded(text.decode("ascii").strip().replace("-", "+").replace("_", "/"))
            content.decode("utf-8")
            yield content


def _open_columns(predicate: Predicate) -> Iterator[tuple[int, Primitive, Predicate]]:
    for field_id in sorted(field_ids(predicate)):
        condition = condition_on(predicate, field_id)
        if condition is not None and not _is_listed(condition):
            kind = next(_kinds(condition), None)
            if kind is not None:
                yield field_id, kind, condition


def _is_listed(condition: Predicate) -> bool:
    """Whether every value that the condition allows has one of `texts_of`."""
    match condition:
        case And(parts):
            return any(map(_is_listed, parts))
        case Or(parts):
            return all(map(_is_listed, parts))
        case Like() | Comparison(_, "="):
            return bool(texts_of(condition))
        case In(field_id, kind, values):
            return all(texts_of(In(field_id, kind, (value,))) for value in values)
        case _:  # then every text is looked at
            return False


def _kinds(condition: Predicate) -> Iterator[Primitive]:
    for node in walk(condition):
        match node:
            case Comparison(_, _, literal):
                yield literal.type
            case In(_, kind, _):
                yield kind
            case Like():
                yield Primitive("string")
            case IsNull() | Constant() | And() | Or() | Not():
                pass  # without a literal, or `walk` comes to their parts
            case _:
                assert_never(node)


# -- what a text may stand for --------------------------------------------------------------------


def _spans(kind: Primitive, text: str) -> Iterator[_Span]:
    match kind.family:
        case "text":
            for word in _words(text):
                yield word, word
        case "date":
            for day, _, _ in _MOMENT.findall(text):
                with suppress(ValueError):
                    days = date.fromisoformat(day).toordinal() - EPOCH.toordinal()
                    yield days, days
        case "timestamp":
            yield from _moments(kind, text)
        case "time":
            for clock in _CLOCK.findall(text):
                with suppress(ValueError):
                    yield _units(kind, timedelta(0), clock)
        case "bytes":
            for digits in _DIGITS.findall(text):
                with suppress(ValueError):
                    raw = bytes.fromhex(digits.replace("-", ""))
                    yield raw, raw
            for word in _words(text):
                raw = word.encode("utf-8", "surrogatepass")
                yield raw, raw
        case "bool":
            return
        case "integer" | "float" | "decimal":
            for number in _numbers(text):
                value = _as(kind, number)
                if value is not None:
                    yield value, value


def _words(text: str) -> Iterator[str]:
    yield text
    yield from _WORD.findall(text)
    if text.lstrip()[:1] in ('"', "[", "{"):
        with suppress(ValueError, RecursionError):
            yield from _texts(json.loads(text))


def _texts(node: Any) -> Iterator[str]:
    match node:
        case str():
            yield node
        case list():
            for item in node:
                yield from _texts(item)
        case dict():
            for key, item in node.items():
                yield key
                yield from _texts(item)
        case _:  # a number, a boolean or null
            return


def _numbers(text: str) -> Iterator[Decimal]:
    for match in _NUMBER.finditer(text):
        if len(match[0]) <= _MAX_DIGITS and not _INSIDE.match(text, match.end()):
            yield Decimal(match[0])
            if match[0][0] == "-":
                yield Decimal(match[0][1:])  # a hyphen before a number: `5-9`


def _as(kind: Primitive, number: Decimal) -> Value | None:
    if kind.is_float:
        return float(number)
    if not kind.is_integer:
        return number
    # An exponent may stand for more digits than there is memory for.
    return int(number) if number.adjusted() < 20 and number == int(number) else None


def _moments(kind: Primitive, text: str) -> Iterator[_Span]:
    for day, clock, zone in _MOMENT.findall(text):
        with suppress(ValueError, OverflowError):
            since = datetime.fromisoformat(day) - EPOCH
            if kind.name == "timestamptz" and zone not in ("", "Z"):
                shift = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
                since += -shift if zone[0] == "+" else shift
            yield _units(kind, since, clock)


def _units(kind: Primitive, since: timedelta, clock: str) -> _Span:
    """The first and the last moment, in the column's unit, that a day and a time of it stand for."""
    per = PER_SECOND[kind.unit]
    seconds = since.days * 86_400 + since.seconds
    if not clock:
        return seconds * per, (seconds + 86_400) * per - 1
    whole, _, fraction = clock.partition(".")
    hours, minutes, *rest = map(int, whole.split(":"))
    if hours > 23 or minutes > 59 or (rest and rest[0] > 59):
        raise ValueError(clock)
    start = (seconds + hours * 3600 + minutes * 60 + (rest[0] if rest else 0)) * 10**9
    start += int(fraction.ljust(9, "0")) if fraction else 0
    length = 10 ** (9 - len(fraction)) if fraction else 10**9 if rest else 60 * 10**9
    return start * per // 10**9, (start + length - 1) * per // 10**9

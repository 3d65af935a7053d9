"""What a text may stand for, form by form: an erasure names what it cannot rule out, and nothing else."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from datetime import date
from decimal import Decimal

import pytest

from inlay.format.predicate import And, Comparison, In, Like, Literal, Not, Or, Predicate
from inlay.format.schema import Primitive
from inlay.plan.pruning import mentions as mentions_module
from inlay.plan.pruning.literals import EPOCH
from inlay.plan.pruning.mentions import MAX_TEXT_BYTES, Mentions, names_any, spelled_out

TEXT = "Ada Lovelace"
# Bytes, whether TEXT is in them.
SPELLINGS: list[tuple[bytes, bool]] = [
    (b"", False),
    (TEXT.encode(), True),
    (b"Ada", False),
    (b"mail=Ada%20Lovelace", True),
    (b"mail=Ada\\u0020Lovelace", True),
    (b"mail=\\u0041\\u0064\\u0061 Lovelace", True),
    (b'{"a": "{\\\\"b\\\\": \\\\"Ada Lovelace\\\\"}"}', True),
    (TEXT.encode().hex().encode(), True),
    (b"0" + TEXT.encode().hex().encode(), False),
    (b"x" + TEXT.encode().hex().upper().encode() + b"x", True),
    *((b64encode(b"z" * n + TEXT.encode()), True) for n in range(7)),
    *((b64encode(TEXT.encode() + b"z" * n).rstrip(b"="), True) for n in range(7)),
    *((b"q" * n + b64encode(TEXT.encode()), True) for n in range(1, 6)),
    *((b64encode(TEXT.encode()) + b"q" * n, True) for n in range(1, 4)),
    (urlsafe_b64encode(b"Ada Lovelace?>?>"), True),
    (b64encode(b"Ada Lovelace?>?>"), True),
    *(
        (b"z" * n + TEXT.encode(order), True)
        for n in range(3)
        for order in ("utf-16-le", "utf-16-be")
    ),
    (b64encode(TEXT.encode("utf-16-le")), True),
]


@pytest.mark.parametrize(("value", "is_there"), SPELLINGS)
def test_a_text_is_found_in_each_spelling(value: bytes, is_there: bool) -> None:
    assert names_any(value, [TEXT]) is is_there
    assert names_any(value, []) is False
    assert names_any(value, ["Bob", TEXT]) is is_there and not names_any(value, ["Bob"])


def test_a_text_is_within_one_reading_of_a_value() -> None:
    """What ends in one and goes on in another is nowhere."""
    value = b"Ada!"
    first = value.decode("utf-16-le")
    assert names_any(value, [TEXT, first]) and not names_any(value, [f"Ada!\n{first}"])
    assert names_any(value, [f"Ada!\n{first}", "Ada!"])


@pytest.mark.parametrize("size", [16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1])
def test_long_values_are_read_like_short_ones(size: int) -> None:
    text = TEXT.encode()
    mentions_module._remembered.cache_clear()
    assert names_any(text.rjust(size, b"."), [TEXT]) and not names_any(b"." * size, [TEXT])
    held = mentions_module._remembered.cache_info().currsize
    assert held == (2 if size <= 16 * 1024 else 0), "only short ones are remembered"


def test_escapes_are_resolved_where_they_are() -> None:
    assert list(spelled_out(b"a")) == [b"a"]
    assert list(spelled_out(b"a\\/b")) == [b"a\\/b", b"a/b"]
    assert list(spelled_out(b'\\\\"')) == [b'\\\\"', b'"']
    assert list(spelled_out(b"%41")) == [b"%41", b"A"]
    assert list(spelled_out(b"\\ud83d\\ude00")) == [b"\\ud83d\\ude00", "😀".encode()]


INT, DOUBLE, DATE = Primitive("int64"), Primitive("double"), Primitive("date")
DECIMAL = Primitive("decimal", precision=38, scale=2)
STAMP, ZONED = Primitive("timestamp", unit="us"), Primitive("timestamptz", unit="us")
NANOS, TIME = Primitive("timestamp", unit="ns"), Primitive("time", unit="us")
STRING, BINARY = Primitive("string"), Primitive("binary")
DAY = (
    date(2024, 2, 29) - EPOCH.date() if hasattr(EPOCH, "date") else date(2024, 2, 29) - EPOCH
).days
DAY_US = DAY * 86_400 * 10**6


def between(kind: Primitive, low: object, high: object) -> Predicate:
    """Open on both sides of what is asked: no list of texts stands for it."""
    return And((Comparison(1, ">=", Literal(kind, low)), Comparison(1, "<=", Literal(kind, high))))


def seen(kind: Primitive, low: object, high: object, text: str) -> bool:
    return Mentions.of(between(kind, low, high)).may_select(text.encode())


US = 10**6
# The type, a text, and the first and the last value that it stands for.
SPANS: list[tuple[Primitive, str, int, int]] = [
    (INT, "17", 17, 17),
    (INT, "n=17;", 17, 17),
    (INT, "5-9", 9, 9),
    (INT, "-9", -9, -9),
    (INT, "-9", 9, 9),
    (INT, "1.7e1", 17, 17),
    (INT, "9" * 18, 10**18 - 1, 10**18 - 1),
    (INT, str(2**62), 2**62, 2**62),
    (DATE, "2024-02-29", DAY, DAY),
    (DATE, "on 2024-02-29T10:00 or so", DAY, DAY),
    (STAMP, "2024-02-29", DAY_US, DAY_US + 86_400 * US - 1),
    (STAMP, "2024-02-29 10:20", DAY_US + 37_200 * US, DAY_US + 37_260 * US - 1),
    (STAMP, "2024-02-29T10:20:30", DAY_US + 37_230 * US, DAY_US + 37_231 * US - 1),
    (
        STAMP,
        "2024-02-29T10:20:30.5",
        DAY_US + 37_230 * US + 500_000,
        DAY_US + 37_230 * US + 599_999,
    ),
    (STAMP, "2024-02-29T23:59:59", DAY_US + 86_399 * US, DAY_US + 86_400 * US - 1),
    (STAMP, "2024-02-29T10:20:30+02:00", DAY_US + 37_230 * US, DAY_US + 37_231 * US - 1),
    (ZONED, "2024-02-29T10:20:30Z", DAY_US + 37_230 * US, DAY_US + 37_231 * US - 1),
    (ZONED, "2024-02-29T10:20:30+02:15", DAY_US + 29_130 * US, DAY_US + 29_131 * US - 1),
    (ZONED, "2024-02-29T10:20:30-1215", DAY_US + 81_330 * US, DAY_US + 81_331 * US - 1),
    (
        NANOS,
        "2024-02-29T10:20:30.123456789",
        (DAY_US + 37_230 * US) * 1_000 + 123_456_789,
        (DAY_US + 37_230 * US) * 1_000 + 123_456_789,
    ),
    (TIME, "at 10:20", 37_200 * US, 37_260 * US - 1),
    (TIME, "10:20:30.25", 37_230 * US + 250_000, 37_230 * US + 259_999),
    (TIME, "23:59:59", 86_399 * US, 86_400 * US - 1),
]


@pytest.mark.parametrize(("kind", "text", "first", "last"), SPANS)
def test_a_text_stands_for_these_values_and_no_others(
    kind: Primitive, text: str, first: int, last: int
) -> None:
    assert seen(kind, first, first + 1, text) and seen(kind, last - 1, last, text)
    assert seen(kind, first - 1, first, text) and seen(kind, last, last + 1, text)
    if text != "-9":  # which is also 9, after a hyphen
        assert not seen(kind, last + 1, last + 2, text)
    if text not in ("5-9", "-9"):
        assert not seen(kind, first - 2, first - 1, text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (INT, "a17"),
        (INT, "17a"),
        (INT, "17.5"),
        (INT, "1.17.2"),
        (INT, "9" * 401),
        (INT, "1e300"),
        (DATE, "2023-02-29"),
        (STAMP, "2024-02-30"),
        (TIME, "24:00"),
        (TIME, "23:60"),
        (TIME, "23:59:60"),
        (STAMP, "2024-02-29T24:00"),
        (DECIMAL, "x"),
        (BINARY, ""),
    ],
)
def test_what_is_no_value_is_none(kind: Primitive, text: str) -> None:
    low, high = {DECIMAL: (Decimal(-(10**30)), Decimal(10**30)), BINARY: (b"", b"\xff" * 9)}.get(
        kind, (-(2**62), 2**62)
    )
    assert not seen(kind, low, high, text)


def test_numbers_with_as_many_digits_as_a_column_holds_are_read() -> None:
    assert seen(DECIMAL, Decimal("1.0"), Decimal("1.2"), "1." + "1" * 398)
    assert not seen(DECIMAL, Decimal("1.0"), Decimal("1.2"), "1." + "1" * 399)
    assert seen(DOUBLE, 9.5e20, 1.5e21, "1e21") and not seen(INT, 0, 2**62, "1e21")


def test_numbers_beyond_every_column_are_none() -> None:
    more = Mentions.of(Comparison(1, ">", Literal(INT, 5)))
    assert more.may_select(b"1" + b"0" * 18) and not more.may_select(b"1" + b"0" * 20)
    above = Mentions.of(Comparison(1, ">", Literal(DOUBLE, 5.0)))
    assert above.may_select(b"5.5") and not above.may_select(b"1"), "a text is no NaN"


def test_words_of_json_and_bytes_are_values() -> None:
    assert seen(STRING, "b c", "b d", '{"k": ["a", "b cc"]}')
    assert seen(STRING, "kk", "kl", '{"kk": 1}') and seen(STRING, "a b", "a c", '  "a bb"')
    assert seen(STRING, "word", "wore", "x=word;y") and not seen(STRING, "zz", "zzz", "x=word;y")
    assert seen(BINARY, b"\x0a\x0b", b"\x0a\x0c", "0a-0b") and seen(BINARY, b"wa", b"wb", "x wa")
    assert not seen(BINARY, b"\xf0", b"\xf1", "0a-0b")


def test_a_text_is_read_in_base_64_and_digits_where_all_of_it_is() -> None:
    assert seen(INT, 17, 17 + 1, b64encode(b"n = 17").decode())
    assert seen(INT, 17, 17 + 1, b"n = 17".hex())
    assert not seen(INT, 17, 18, "!" + b64encode(b"n = 17").decode() + "!")


def test_long_texts_are_named_and_not_read() -> None:
    asked = Mentions.of(between(INT, 17, 18))
    assert asked.may_select(b"x" * (MAX_TEXT_BYTES + 1))
    assert not asked.may_select(b"x" * MAX_TEXT_BYTES) and not asked.may_select(b"")
    assert not Mentions.of(Comparison(1, "=", Literal(STRING, "Ada Lovelace"))).may_select(b"Ada")


def test_only_columns_whose_values_are_not_listed_are_looked_for() -> None:
    def columns(predicate: Predicate) -> list[int]:
        return [field_id for field_id, _, _ in Mentions.of(predicate).columns]

    open_, listed = Like(1, "%@%"), Comparison(1, "=", Literal(STRING, "ada@example.com"))
    assert columns(open_) == [1] and columns(listed) == []
    assert columns(And((open_, listed))) == [] and columns(Or((open_, listed))) == [1]
    both = In(1, STRING, ("ada@example.com", "eve@example.com"))
    assert columns(both) == [] and columns(In(1, STRING, ("a", "ada@example.com"))) == [1]
    assert columns(Or((both, listed))) == [] and columns(Not(listed)) == [1]
    other = Comparison(2, ">", Literal(INT, 5))
    assert columns(And((listed, other))) == [2] and columns(And((open_, other))) == [1, 2]

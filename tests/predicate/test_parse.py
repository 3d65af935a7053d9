"""WHERE texts: what they mean, and errors that point at the place."""

from __future__ import annotations

import time

import predicate_oracle as oracle
import predicate_strategies as some
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.errors import InvalidPredicate
from inlay.format.predicate import And, Comparison, Constant, IsNull, Like, Literal, Not, Or
from inlay.format.schema import Field, ListOf, Primitive, Schema, Struct, parse_primitive
from inlay.parse import MAX_TEXT, format_predicate, parse_condition, parse_predicate
from inlay.parse.times import (
    read_clock,
    read_day,
    read_moment,
    write_clock,
    write_day,
    write_moment,
)

SCHEMA = Schema(
    0,
    (
        Field(1, "id", Primitive("int64")),
        Field(2, "Name", Primitive("string")),
        Field(3, "price", parse_primitive("decimal(9,2)")),
        Field(4, "score", Primitive("double")),
        Field(5, "date", Primitive("date")),
        Field(6, "at", parse_primitive("timestamp(us)")),
        Field(7, "seen", parse_primitive("timestamptz(ms)")),
        Field(8, "ok", Primitive("bool")),
        Field(9, "raw", Primitive("binary")),
        Field(
            10,
            "address",
            Struct((Field(11, "City", Primitive("string")), Field(12, "zip", Primitive("int32")))),
        ),
        Field(13, "tags", ListOf(Field(14, "element", Primitive("string")))),
        Field(15, "a.b", Primitive("int64")),
        Field(16, "time", parse_primitive("time(us)")),
        Field(17, "Odd name", Primitive("int64")),
        Field(18, "twin", Primitive("int64")),
        Field(19, "TWIN", Primitive("int64")),
        Field(20, "in", Primitive("int64")),
    ),
)


def parse(text):
    return parse_predicate(text, SCHEMA)


def compare(name, op, value):
    field = next(f for _, f in SCHEMA.walk() if f.name == name)
    return Comparison(field.id, op, Literal(field.type, value))


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("id = 1", compare("id", "=", 1)),
        ("id == 1", compare("id", "=", 1)),
        ("id <> 1", compare("id", "!=", 1)),
        ("id != 1", compare("id", "!=", 1)),
        ("id = +1", compare("id", "=", 1)),
        ("1 < id", compare("id", ">", 1)),
        ("-5 >= id", compare("id", "<=", -5)),
        ("id = - - 5", compare("id", "=", 5)),
        ("ID = 1", compare("id", "=", 1)),
        ("name = 'it''s'", compare("Name", "=", "it's")),
        ("\"Name\" = 'x'", compare("Name", "=", "x")),
        ('"Odd name" = 1', compare("Odd name", "=", 1)),
        ('"in" = 1', compare("in", "=", 1)),
        ("twin = 1", Comparison(18, "=", Literal(Primitive("int64"), 1))),
        ("TWIN = 1", Comparison(19, "=", Literal(Primitive("int64"), 1))),
        ("address.city = 'x'", compare("City", "=", "x")),
        ("address.\"City\" = 'x'", compare("City", "=", "x")),
        ("a.b = 1", compare("a.b", "=", 1)),
        ("date = '1970-01-02'", compare("date", "=", 1)),
        ("date = DATE '1970-01-02'", compare("date", "=", 1)),
        ("at = date '1970-01-02'", compare("at", "=", 86_400_000_000)),
        ("at = '1970-01-01T00:00:01.5'", compare("at", "=", 1_500_000)),
        ("at = TIMESTAMP '1970-01-01 00:00'", compare("at", "=", 0)),
        ("seen = TIMESTAMP '1970-01-01 01:00:00+01:00'", compare("seen", "=", 0)),
        ("seen = '1970-01-01 00:00:01'", compare("seen", "=", 1000)),
        ("seen = TIMESTAMPTZ '1970-01-01 00:00:01'", compare("seen", "=", 1000)),
        ("seen = '1969-12-31T19:00:00-0500'", compare("seen", "=", 0)),
        ("time = '00:00:01.000001'", compare("time", "=", 1_000_001)),
        ("time = TIME '00:01'", compare("time", "=", 60_000_000)),
        ("raw = X'00fF'", compare("raw", "=", b"\x00\xff")),
        ("raw = BINARY '00fF'", compare("raw", "=", b"\x00\xff")),
        ("score = 1e3", compare("score", "=", 1000.0)),
        ("score = .5", compare("score", "=", 0.5)),
        ("score = DOUBLE '-Infinity'", compare("score", "=", float("-inf"))),
        ("score = -0.0", compare("score", "=", 0.0)),
        ("ok", compare("ok", "=", True)),
        ("NOT ok", Not(compare("ok", "=", True))),
        ("ok = FALSE", compare("ok", "=", False)),
        ("ok IS TRUE", And((Not(IsNull(8)), compare("ok", "=", True)))),
        ("ok IS NOT FALSE", Not(And((Not(IsNull(8)), compare("ok", "=", False))))),
        ("TRUE", Constant(True)),
        ("null", Constant(None)),
        ("id = NULL", Constant(None)),
        ("NULL = id", Constant(None)),
        ("id IN (NULL)", Constant(None)),
        ("id BETWEEN 1 AND NULL", And((compare("id", ">=", 1), Constant(None)))),
        ("tags IS NULL", IsNull(13)),
        ("address is not null", Not(IsNull(10))),
        ("id between 1 and 2", And((compare("id", ">=", 1), compare("id", "<=", 2)))),
        ("id not between 1 and 2", Not(And((compare("id", ">=", 1), compare("id", "<=", 2))))),
        ("name like 'a\\_%'", Like(2, "a\\_%")),
        ("name like 'a!_%' escape '!'", Like(2, "a\\_%")),
        ("name like 'a!!' escape '!'", Like(2, "a!")),
        ("name like 'a\\%' escape ''", Like(2, "a\\\\%")),
        ("name not like NULL", Not(Constant(None))),
        (
            "id = 1 OR id = 2 AND NOT id = 3",
            Or(
                (
                    compare("id", "=", 1),
                    And((compare("id", "=", 2), Not(compare("id", "=", 3)))),
                )
            ),
        ),
        ("((id)) = (1)", compare("id", "=", 1)),
        ("\n id\t=\n1 ", compare("id", "=", 1)),
    ],
)
def test_texts_mean_what_sql_says(text, same_as):
    assert parse(text) == same_as


def test_nan_is_a_literal_of_double():
    found = parse("score = DOUBLE 'NaN'")
    assert repr(found) == repr(compare("score", "=", float("nan")))


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("id = ", 4, "the text ends"),
        ("id = 'x", 5, "not closed"),
        ('"id = 1', 0, "not closed"),
        ("id = 12abc", 5, "not a number"),
        ("id = 1 id", 7, "does not fit"),
        ("id = 1;", 6, "';'"),
        ("id = 1 -- why", 7, "'-'"),
        ("id = --1", 5, "'-'"),
        ("`id` = 1", 0, "'`'"),
        ("id = 1 /* why */", 7, "'/'"),
        ("id in ()", 7, "does not fit"),
        ("(id = 1", 0, "not closed"),
        ("id = 1)", 6, "does not fit"),
        ("", None, "empty"),
        ("  \n ", None, "empty"),
        ("nmae = 'x'", 0, "no column 'nmae'"),
        ("id = 1 AND address.ctiy = 'x'", 11, "address.City"),
        ("id.x = 1", 0, "not a struct"),
        ("tags.element = 'x'", 0, "not a struct"),
        ('"ID" = 1', 0, "no column"),
        ("Twin = 1", 0, "is ambiguous"),
        ("id = 'x'", 5, "a string cannot be compared"),
        ("name = 3", 7, "a number cannot be compared"),
        ("id IN (1, 'x', 2)", 10, "a string cannot be compared"),
        ("date = 'x'", 7, "not a date"),
        ("date = '2026-02-29'", 7, "leap"),
        ("date = DATE '2026-13-01'", 7, "does not exist"),
        ("at = TIMESTAMP '2026-01-01 24:00:00'", 5, "does not exist"),
        ("at = TIMESTAMP '2026-01-01 00:00:00Z'", 15, "timestamp"),
        ("at = '2026-01-01 00:00:00.0000000001'", 5, "not a timestamp"),
        ("date = FOO 'x'", 7, "not a type"),
        ("raw = X'0'", 6, "hex"),
        ("raw = 'x'", 6, "a string cannot be compared"),
        ("name LIKE 5", 10, "string literal"),
        ("id LIKE '5'", 3, "string column"),
        ("name LIKE 'a\\'", 10, "backslash"),
        ("name LIKE 'a!' ESCAPE '!'", 10, "ESCAPE"),
        ("name LIKE 'a' ESCAPE 'xy'", 5, "one character"),
        ("id", 0, "not a condition"),
        ("5", 0, "not a condition"),
        ("tags = 'x'", 0, "nested"),
        ("address = 1", 0, "nested"),
        ("id IS TRUE", 3, "boolean"),
        ("1e99999999999999999999 = id", 0, "exponent"),
    ],
)
def test_errors_point_at_the_place(text, at, says):
    with pytest.raises(InvalidPredicate, match=says) as caught:
        parse(text)
    error = caught.value
    assert error.position == at
    if at is not None:
        *_, line, caret = str(error).splitlines()
        assert line.strip() in text
        assert caret.strip() == "^"


def test_literals_stay_out_of_messages_and_log_fields():
    for text in ("id = 'secret' 'secret'", "id = 'secret'", "name = 'secret", "id LIKE 'secret'"):
        with pytest.raises(InvalidPredicate) as caught:
            parse(text)
        assert "secret" not in str(caught.value.fields())


@pytest.mark.parametrize("text", ['name = "x"', 'name IN ("x")', 'name BETWEEN "a" AND "b"'])
def test_double_quotes_around_a_string_are_explained(text):
    with pytest.raises(InvalidPredicate, match="single quotes"):
        parse(text)


def test_a_near_name_is_suggested():
    with pytest.raises(InvalidPredicate) as caught:
        parse("prise = 1")
    assert "Did you mean price?" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000 + "ok" + ")" * 100_000,
        "(" * 30_000 + "ok" + ")" * 30_000,
        "(" * 30_000,
        "NOT " * 16_000 + "ok",
        "id = " + "- " * 30_000 + "id",
        "id = " + "1+" * 30_000 + "1",
        "x" * 1_000_000,
        "id IN (" + "1," * 500_000 + "1)",
        "'" * 65_535,
    ],
    ids=lambda text: f"{text[:12]}…{len(text)}",
)
def test_hostile_texts_are_refused_quickly(text):
    started = time.process_time()
    with pytest.raises(InvalidPredicate) as caught:
        parse(text)
    assert time.process_time() - started < 5
    assert len(str(caught.value)) < 1_000


def test_parentheses_within_the_bound_are_fine():
    assert parse("(" * 150 + "ok" + ")" * 150) == parse("ok")
    assert parse("name = '" + "(" * 500 + "'") == compare("Name", "=", "(" * 500)


def test_the_bound_on_text_leaves_room_for_long_lists():
    text = f"id IN ({', '.join(str(n) for n in range(8_000))})"
    assert len(text) <= MAX_TEXT
    assert len(parse(text).values) == 8_000


@given(some.tables(max_rows=3))
@settings(deadline=None, max_examples=120)
def test_a_printed_predicate_means_the_same(table):
    _, rows, predicate = table
    text = format_predicate(predicate, some.SCHEMA)
    back = parse_predicate(text, some.SCHEMA)
    for row in rows:
        assert oracle.truth(back, row) is oracle.truth(predicate, row)
    again = format_predicate(back, some.SCHEMA)
    assert repr(parse_predicate(again, some.SCHEMA)) == repr(back)


def test_odd_names_are_printed_so_that_they_parse():
    for name in ('"Odd name" = 1', '"in" = 1', '"a.b" = 1', "address.City = 'x'"):
        assert format_predicate(parse(name), SCHEMA) == name


def test_a_dropped_column_is_still_printed():
    assert format_predicate(IsNull(99), SCHEMA) == '"#99" IS NULL'


@given(st.integers(-(2**31), 2**31 - 1))
@settings(deadline=None)
def test_every_day_has_a_text(days):
    assert read_day(write_day(days)).value == days


@given(st.integers(-(2**63), 2**63 - 1).map(lambda s: s * 10**9) | st.integers(-(2**63), 2**63))
@settings(deadline=None)
def test_every_moment_has_a_text(nanos):
    for zoned in (True, False):
        moment = read_moment(write_moment(nanos, zoned=zoned))
        assert (moment.value, moment.zoned) == (nanos, zoned)


@given(st.integers(0, 86_400 * 10**9 - 1))
@settings(deadline=None)
def test_every_time_of_day_has_a_text(nanos):
    assert read_clock(write_clock(nanos)).value == nanos


def test_dates_are_those_of_the_calendar():
    import datetime

    epoch = datetime.date(1970, 1, 1)
    for days in range(-719_162, 2_932_897, 997):
        assert write_day(days) == (epoch + datetime.timedelta(days)).isoformat()


@pytest.mark.parametrize(
    "text",
    [
        "lower(name) = 'x'",
        "id = twin",
        "id + 1 = 2",
        "1 = 1",
        "(id = 1) = TRUE",
        "id IN (1, twin)",
    ],
)
def test_what_cannot_be_kept_is_refused_in_words(text):
    with pytest.raises(InvalidPredicate, match="this condition calculates") as caught:
        parse(text)
    assert caught.value.next_step


def test_a_day_and_a_half_after_a_date_is_no_date():
    with pytest.raises(InvalidPredicate, match="not a number but a date"):
        parse("date = DATE '2026-01-31' + 1.5")


def test_a_constant_of_more_digits_than_any_number_has_is_not_calculated_ahead():
    longest = "9" * 76
    assert parse(f"id = {longest} + 0") == parse(f"id = {longest}")
    with pytest.raises(InvalidPredicate, match="this condition calculates"):
        parse(f"id = {longest} * 10")


def test_the_time_is_not_known_where_conditions_are_kept_for_later():
    with pytest.raises(InvalidPredicate, match="NOW is not known here"):
        parse("seen < now()")


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("id = 1 + 1", "id = 2"),
        ("id = 2 * 3 - 1", "id = 5"),
        ("date = DATE '2026-01-31' + 1", "date = '2026-02-01'"),
        ("date = DATE '2026-02-01' - 1.0", "date = '2026-01-31'"),
        ("id = DATE '2026-02-01' - DATE '2026-01-31'", "id = 1"),
        ("date >= date_trunc('month', DATE '2026-01-31')", "date >= '2026-01-01'"),
        ("at = DATE '2026-01-31' + INTERVAL '1 month'", "at = '2026-02-28'"),
        ("at >= date_trunc('week', TIMESTAMP '2026-01-31 10:00')", "at >= '2026-01-26'"),
        ("id = CAST(2.5 AS INT)", "id = 3"),
        ("date = CAST('2026-01-31' AS DATE)", "date = '2026-01-31'"),
        ("year(at) = 2026", "at >= '2026-01-01' AND at < '2027-01-01'"),
        ("year(date) <> 2026", "NOT (date >= '2026-01-01' AND date < '2027-01-01')"),
        ("year(seen) > 2026", "seen >= '2027-01-01'"),
        ("year(at) <= 2026", "at < '2027-01-01'"),
        ("CAST(at AS DATE) = '2026-01-31'", "at >= '2026-01-31' AND at < '2026-02-01'"),
        ("at::date < '2026-01-31'", "at < '2026-01-31'"),
        ("date_trunc('month', at) = '2026-01-01'", "at >= '2026-01-01' AND at < '2026-02-01'"),
        ("date_trunc('month', at) = '2026-01-02'", "at IS NULL AND NULL"),
        ("date_trunc('month', at) > '2026-01-02'", "at >= '2026-02-01'"),
        ("date_trunc('month', at) >= '2026-01-02'", "at >= '2026-02-01'"),
        ("date_trunc('month', at) < '2026-01-02'", "at < '2026-02-01'"),
        (
            "date_trunc('hour', at) BETWEEN '2026-01-01' AND '2026-01-02'",
            "at >= '2026-01-01' AND at < '2026-01-02 01:00'",
        ),
    ],
)
def test_what_amounts_to_a_plain_condition_is_one(text, same_as):
    assert parse(text) == parse(same_as)


NESTED = {
    "functions": lambda n: "id > " + "abs(" * n + "id" + ")" * n,
    "cases": lambda n: "id > " + "CASE WHEN ok THEN " * n + "id" + " END" * n,
    "signs": lambda n: "id > " + "- " * n + "id",
    "sums": lambda n: "id > " + " + ".join(["id"] * n),
    "conditions": lambda n: "(ok OR " * n + "id + 1 > id" + ")" * n,
}


@pytest.mark.parametrize("form", NESTED)
@pytest.mark.parametrize("frames", [0, 400, 800])
def test_what_is_nested_too_deeply_for_the_stack_is_refused(form: str, frames: int) -> None:
    """Whoever calls may be deep in calls itself."""

    def called(below: int) -> None:
        for levels in () if below else (20, 100, 180, 199):
            try:
                parse_condition(NESTED[form](levels), SCHEMA)
            except InvalidPredicate as error:
                assert "nested" in error.message and "Flatten" in error.next_step
        if below:
            called(below - 1)

    called(frames)

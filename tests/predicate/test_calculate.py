"""Calculated conditions and values: each row as DuckDB has it, each error in words."""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from decimal import ROUND_HALF_UP, Decimal, localcontext

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidPredicate
from inlay.format.predicate import TRUE
from inlay.parquet.arrow.calculate import CalculatedFilter, NotCalculable, calculate
from inlay.parquet.arrow.evaluate import columns_of, selected
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parse import format_predicate, parse_condition
from inlay.parse.calculate import Calculator, implied, literal_start
from inlay.parse.grammar import parse_text
from inlay.parse.where import ConstantFolder

ARROW = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.int32()),
        ("price", pa.decimal128(9, 2)),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("name", pa.string()),
        ("other", pa.string()),
        ("ok", pa.bool_()),
        ("d", pa.date32()),
        ("at", pa.timestamp("us")),
        ("seen", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("s", pa.struct([("n", pa.int64()), ("t", pa.string())])),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)
SCHEMA = schema_from_arrow(ARROW)
NOW = int(dt.datetime(2026, 2, 3, 4, 5, 6, tzinfo=dt.UTC).timestamp() * 1_000_000)

MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
TEXTS = st.text(st.sampled_from("abAB é\nß_%12-"), max_size=6)
VALUES = {
    "a": st.integers(-20, 20),
    "b": st.integers(-(2**31), 2**31 - 1),
    "price": st.decimals(-999, 999, places=2),
    "x": st.sampled_from([0.0, -0.0, 1.5, -2.5, 1e300, math.nan, math.inf, 0.1]),
    "y": st.floats(-1000, 1000, width=32) | st.just(math.nan),
    "name": TEXTS,
    "other": TEXTS,
    "ok": st.booleans(),
    "d": st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)),
    "at": MOMENTS,
    "seen": MOMENTS.map(lambda t: t.replace(tzinfo=dt.UTC)),
    "tags": st.lists(st.none() | st.sampled_from(["a", "b", "c"]), max_size=3),
    "s": st.fixed_dictionaries({"n": st.none() | st.integers(-5, 5), "t": st.none() | TEXTS}),
    "m": st.dictionaries(st.sampled_from(["k", "l"]), st.none() | st.integers(-5, 5)).map(
        lambda held: list(held.items())
    ),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | some for name, some in VALUES.items()}),
    min_size=1,
    max_size=8,
)


# -- random expressions, as texts that mean the same to both ------------------------------------------

WHOLE = st.deferred(
    lambda: (
        st.sampled_from(["a", "b", "s.n", "m['k']", "1", "-3", "7"])
        | st.tuples(WHOLE, st.sampled_from("+-*"), st.sampled_from(["a", "2", "-1"])).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        )
        | WHOLE.map(lambda t: f"abs({t})")
        | WHOLE.map(lambda t: f"({t} % 7)")
        | TEXT.map(lambda t: f"length({t})")
        | st.tuples(
            st.sampled_from(["year", "month", "day", "quarter", "dayofweek", "dayofyear", "week"]),
            st.sampled_from(["d", "at", "seen"]),
        ).map(lambda t: f"{t[0]}({t[1]})")
        | st.tuples(
            st.sampled_from(["hour", "minute", "second"]), st.sampled_from(["at", "seen"])
        ).map(lambda t: f"{t[0]}({t[1]})")
        | st.just("length(tags)")
        | st.just("(d - DATE '2000-01-01')")
        | st.tuples(WHOLE, WHOLE).map(lambda t: f"coalesce({t[0]}, {t[1]})")
        | st.tuples(CONDITION, WHOLE, WHOLE).map(
            lambda t: f"CASE WHEN {t[0]} THEN {t[1]} ELSE {t[2]} END"
        )
        | EXACT.map(lambda t: f"CAST({t} AS BIGINT)")
        | TEXT.map(lambda t: f"strpos({t}, 'b')")
        | st.just("position('a' IN name)")
        | st.tuples(st.sampled_from(["greatest", "least"]), WHOLE, WHOLE).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        )
        | st.tuples(CONDITION, WHOLE).map(lambda t: f"if({t[0]}, {t[1]}, a)")
        | st.sampled_from(["date_part('month', at)", "EXTRACT('day' FROM d)"])
    )
)
EXACT = st.deferred(
    lambda: (
        st.sampled_from(["price", "1.5", "-0.25"])
        | st.tuples(st.just("price"), st.sampled_from("+-*"), st.sampled_from(["a", "0.5"])).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        )
        | st.sampled_from(["round(price)", "round(price, 1)", "floor(price)", "ceil(price)"])
        | st.sampled_from(["CAST(a AS DECIMAL(12,3))", "abs(price)"])
    )
)
FLOATING = st.deferred(
    lambda: (
        st.sampled_from(["greatest(x, y)", "least(y, a, x)", "sqrt(abs(y))", "power(y, 2)"])
        | st.sampled_from(["x", "y", "CAST(a AS DOUBLE)", "round(y)", "floor(x)", "ceil(y)"])
        | st.tuples(
            st.sampled_from(["x", "y"]),
            st.sampled_from("+-*/"),
            st.sampled_from(["x", "y", "a", "2"]),
        ).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        | st.tuples(st.sampled_from(["a", "x"])).map(lambda t: f"({t[0]} / 4)")
    )
)
TEXT = st.deferred(
    lambda: (
        st.sampled_from(["name", "other", "s.t", "tags[1]", "tags[-1]", "'aB'", "''"])
        | st.tuples(st.sampled_from(["lower", "upper", "ltrim", "rtrim", "trim"]), TEXT).map(
            lambda t: f"{t[0]}({t[1]})"
        )
        | st.tuples(TEXT, TEXT).map(lambda t: f"({t[0]} || {t[1]})")
        | st.tuples(TEXT, st.integers(0, 4), st.integers(0, 4)).map(
            lambda t: f"substr({t[0]}, {t[1]}, {t[2]})"
        )
        | st.tuples(TEXT, st.sampled_from(["'a'", "'b'"])).map(
            lambda t: f"replace({t[0]}, {t[1]}, 'xy')"
        )
        | st.tuples(TEXT, TEXT).map(lambda t: f"nullif({t[0]}, {t[1]})")
        | WHOLE.map(lambda t: f"CAST({t} AS VARCHAR)")
        | st.sampled_from([f"CAST({t} AS VARCHAR)" for t in ("d", "at", "seen", "at::time")])
        | st.tuples(st.sampled_from(["left", "right"]), TEXT, st.integers(-4, 4)).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        )
        | st.tuples(TEXT, TEXT).map(lambda t: f"greatest({t[0]}, {t[1]})")
        | st.just("CAST(ok AS VARCHAR)")
    )
)
TIME = st.sampled_from(
    [
        "d",
        "at",
        "date_trunc('month', at)",
        "date_trunc('week', at)",
        "date_trunc('quarter', d)",
        "date_trunc('hour', at)",
        "CAST(at AS DATE)",
        "CAST(seen AS DATE)",
        "(d + 3)",
        "(at + INTERVAL '36 hours')",
        "(d - INTERVAL '2 days')",
        "(at + INTERVAL '1 month')",
        "(d - INTERVAL '13 months')",
        "(at - INTERVAL '1 year 40 days 3 hours')",
        "CAST(CAST(seen AS VARCHAR) AS TIMESTAMPTZ)::timestamp",
        "greatest(d, at)",
        "TIMESTAMP '2000-01-01 12:00:00'",
        "DATE '1999-12-31'",
    ]
)
OPERATOR = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def compared(values):
    return st.tuples(values, OPERATOR, values).map(lambda t: f"({t[0]} {t[1]} {t[2]})")


NULLABLE = st.tuples(st.sampled_from(["", "NOT "]), st.sampled_from(["NULL", ""]))
REGULAR = st.lists(
    st.sampled_from(
        ["a", "b", "B", "^", "$", ".", "a*", "b?", "ab", "[a-b]", "(a|b)", "é", "%", "\\d", "-"]
    ),
    max_size=4,
).map("".join)

LEAF = st.deferred(
    lambda: (
        compared(WHOLE)
        | compared(EXACT)
        | compared(FLOATING)
        | compared(TEXT)
        | compared(TIME)
        | st.tuples(FLOATING, OPERATOR, WHOLE).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        | st.tuples(TEXT, st.sampled_from(["LIKE", "NOT LIKE", "ILIKE"]), TEXTS).map(
            lambda t: "({} {} '{}' ESCAPE '')".format(t[0], t[1], t[2].replace("'", "''"))
        )
        | st.tuples(
            WHOLE | TEXT | TIME | st.sampled_from(["price", "x", "ok", "NULL"]), NULLABLE
        ).map(lambda t: f"({t[0]} IS {t[1][0]}DISTINCT FROM {t[1][1] or t[0]})")
        | st.sampled_from(["(seen + INTERVAL '1 month' > TIMESTAMPTZ '2000-01-01')", "isnan(x)"])
        | st.tuples(TEXT, REGULAR).map(lambda t: f"regexp_matches({t[0]}, '{t[1]}')")
        | st.tuples(TEXT, REGULAR).map(lambda t: f"regexp_matches({t[0]}, '{t[1]}', 'i')")
        | st.tuples(TEXT, st.sampled_from(["SIMILAR TO", "NOT SIMILAR TO"]), REGULAR).map(
            lambda t: f"({t[0]} {t[1]} '{t[2]}')"
        )
        | st.tuples(TEXT, st.sampled_from(["starts_with", "ends_with", "contains"])).map(
            lambda t: f"{t[1]}({t[0]}, 'a')"
        )
        | st.tuples(TEXT).map(lambda t: f"({t[0]} IN ('a', 'ab', other))")
        | st.tuples(WHOLE).map(lambda t: f"({t[0]} NOT IN (1, NULL, a))")
        | st.tuples(WHOLE, WHOLE, WHOLE).map(lambda t: f"({t[0]} BETWEEN {t[1]} AND {t[2]})")
        | (WHOLE | TEXT | FLOATING).map(lambda t: f"({t} IS NULL)")
        | st.sampled_from(["ok", "(ok IS NOT TRUE)", "list_contains(tags, 'b')", "a > 3"])
        | st.sampled_from(["year(at) >= 2000", "date_trunc('month', d) = DATE '2000-01-01'"])
    )
)
CONDITION = st.deferred(
    lambda: (
        LEAF
        | st.tuples(CONDITION, st.sampled_from(["AND", "OR"]), CONDITION).map(
            lambda t: f"(({t[0]}) {t[1]} ({t[2]}))"
        )
        | CONDITION.map(lambda t: f"(NOT ({t}))")
        | CONDITION.map(lambda t: f"(({t}) IS TRUE)")
    )
)


@pytest.fixture(scope="module")
def connection():
    found = duckdb.connect()
    found.execute("SET threads = 1; SET TimeZone = 'UTC'")
    yield found
    found.close()


def table_of(rows) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=ARROW)


def whole(text):
    """The text's value as one expression, without what is split off for pruning."""
    calculator = Calculator(SCHEMA)
    return calculator.condition(ConstantFolder(SCHEMA, lambda: NOW).fold(parse_text(text)))


def ours(text, table):
    batch = table.combine_chunks().to_batches()[0]
    return calculate(whole(text), batch, columns_of(SCHEMA)).to_pylist()


def value_of(text, table):
    """Of an expression of any type."""
    node = Calculator(SCHEMA).expression(ConstantFolder(SCHEMA, lambda: NOW).fold(parse_text(text)))
    return calculate(node, table.combine_chunks().to_batches()[0], columns_of(SCHEMA)).to_pylist()


def theirs(connection, text, table):
    connection.register("held", table)
    text = re.sub(r"\bat\b", '"at"', text)  # a keyword there
    return [row for (row,) in connection.execute(f"SELECT {text} FROM held").fetchall()]


@given(ROWS, CONDITION)
@settings(deadline=None, max_examples=100)
def test_duckdb_gives_each_row_the_same(connection, rows, text):
    table = table_of(rows)
    try:
        expected = theirs(connection, text, table)
    except (duckdb.OutOfRangeException, duckdb.ConversionException, duckdb.InvalidInputException):
        return  # 64 bits are not enough there
    assert ours(text, table) == expected, text


@given(ROWS, CONDITION, st.sampled_from(["vector", "surgery", "rewrite"]))
@settings(deadline=None, max_examples=30)
def test_a_table_gives_and_deletes_the_same_rows(connection, rows, text, mode):
    """Whatever the condition looks at, no column included: a scan, a count, the first rows, a delete."""
    held = table_of(rows).append_column("place", pa.array(range(len(rows)), pa.int64()))
    try:
        found = theirs(connection, text, held)
    except (duckdb.OutOfRangeException, duckdb.ConversionException, duckdb.InvalidInputException):
        return
    expected = [n for n, hit in enumerate(found) if hit]
    t = inlay.create(f"memory://b/{uuid.uuid4()}", held.schema)
    for part in (held.slice(0, len(rows) // 2), held.slice(len(rows) // 2)):
        t.append(part)
    assert t.scan(where=text, columns=["place"]).to_arrow()["place"].to_pylist() == expected, text
    assert t.count(where=text) == len(expected), text
    first = t.scan(where=text, columns=["place"], order_by="place DESC", limit=2).to_arrow()
    assert first["place"].to_pylist() == expected[::-1][:2], text
    assert (t.delete(text, mode=mode).deleted_rows or 0) == len(expected), text
    left = t.scan(columns=["place"]).to_arrow()["place"].to_pylist()
    assert sorted(left) == [n for n in range(len(rows)) if n not in expected], text
    assert t.count() == len(left)


@given(ROWS, CONDITION)
@settings(deadline=None, max_examples=80)
def test_what_prunes_is_true_of_every_row_that_is_selected(rows, text):
    batch = table_of(rows).combine_chunks().to_batches()[0]
    found = parse_condition(text, SCHEMA, now=lambda: NOW)
    if found.calculated is None:
        return
    chosen = CalculatedFilter(found.calculated).selected(batch, SCHEMA).to_pylist()
    may = selected(found.predicate, batch, columns_of(SCHEMA)).to_pylist()
    assert all(may[at] for at, hit in enumerate(chosen) if hit)
    assert chosen == [bool(each) for each in ours(text, table_of(rows))]


ONE = table_of(
    [
        {
            "a": 9223372036854775807,
            "b": -5,
            "price": Decimal("2.50"),
            "x": math.nan,
            "y": 2.5,
            "name": "Ada",
            "tags": ["a", None],
            "d": dt.date(2026, 1, 31),
            "at": dt.datetime(2026, 1, 31, 12),
            "seen": dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC),
            "m": [("k", 1)],
        }
    ]
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + 1 = 9223372036854775808", True),  # exact, where 64 bits end
        ("a * a > a", True),
        ("-a - 2 < 0", True),
        ("b % 3 = -2", True),
        ("mod(b, 3) = -2", True),
        ("x = x AND x > 1e308", True),
        ("x <> x", False),
        ("round(2.5) = 3 AND round(-2.5) = -3 AND round(25, -1) = 30", True),
        ("CAST(2.5 AS INT) = 3 AND CAST(y AS INT) = 2", True),
        ("1 / 0 > 1e308", True),
        ("y / 0 = DOUBLE 'Infinity'", True),
        ("now() = TIMESTAMPTZ '2026-02-03 04:05:06'", True),
        ("current_date = DATE '2026-02-03' AND today() = current_date", True),
        ("seen >= now() - INTERVAL '1 month'", True),
        ("seen < date_trunc('month', now())", True),
        ("DATE '2026-01-31' + INTERVAL 1 MONTH = DATE '2026-02-28'", True),
        ("EXTRACT(year FROM at) = 2026 AND EXTRACT(dow FROM at) = 6", True),
        ("tags[2] IS NULL AND tags[3] IS NULL AND tags[0] IS NULL", True),
        ("m['z'] IS NULL AND m['k'] = 1", True),
        ("concat(name, NULL, '!') = 'Ada!'", True),
        ("name || NULL IS NULL", True),
        ("CASE name WHEN 'Ada' THEN 1 ELSE 2 END = 1", True),
        ("CASE WHEN b = 0 THEN a % b ELSE 0 END = 0", True),
        ("y::int = 2 AND name::text = 'Ada'", True),
        ("CAST('12' AS INT) = 12 AND CAST(' 1.5 ' AS DOUBLE) = 1.5", True),
        ("ifnull(s.n, 0) = 0", True),
        ("NOT -b = -5", True),
        ("at > DATE '2026-01-31'", True),
        ("seen::timestamp = at", True),
        ("CAST(at::time AS VARCHAR) = '12:00:00' AND y::double precision = 2.5", True),
        ("CAST(at AS TIMESTAMP WITH TIME ZONE) = seen", True),
        ("CASE WHEN TRUE THEN at::timestamp ELSE at END = at", True),
        (
            "x IS NOT DISTINCT FROM x AND a IS DISTINCT FROM NULL AND s.n IS NOT DISTINCT FROM NULL",
            True,
        ),
        ("b IS DISTINCT FROM 5.5 AND NULL IS DISTINCT FROM b", True),
        ("at + INTERVAL '1 month' = TIMESTAMP '2026-02-28 12:00:00'", True),
        ("d - INTERVAL '23 months' = DATE '2024-02-29'", True),
        ("name SIMILAR TO 'A.a' AND NOT name SIMILAR TO 'd'", True),
        ("regexp_matches(name, 'd') AND regexp_matches(name, '^aD', 'i')", True),
        ("regexp_full_match(name, 'Ada|B')", True),
        ("CAST(seen AS VARCHAR) = '2026-01-31 12:00:00+00'", True),
        ("CAST('2026-01-31 13:00:00+01' AS TIMESTAMPTZ) = seen", True),
        ("CAST(CAST(at AS VARCHAR) || '+01' AS TIMESTAMPTZ) < seen", True),
        ("CAST(y AS DECIMAL(3, 0)) = 3 AND CAST(-y AS DECIMAL(3, 0)) = -3", True),
        ("CAST(DOUBLE '2.4999999999999996' AS DECIMAL(3, 0)) = 2", True),
        ("name || '%' LIKE 'Ada\\%' AND NOT name || 'x' LIKE 'Ada\\%'", True),
        ("name || '\\x' LIKE 'Ada\\%' ESCAPE '' AND NOT name LIKE 'Ada\\\\'", True),
        ("left(name, -1) = 'Ad' AND right(name, 1) = 'a' AND right(name, 0) = ''", True),
    ],
)
def test_values_that_are_easily_got_wrong(text, value):
    assert ours(text, ONE) == [value]


@pytest.mark.parametrize(
    "text",
    [
        "a % (b + 5) = 1",
        "CAST(a AS INT) = 1",
        "CAST(name AS INT) = 1",
        "CAST(x AS BIGINT) = 1",
        "CAST(price AS DECIMAL(2,2)) = 1",
        "CAST(name AS DATE) = d",
        "CAST('yes' || name AS BOOLEAN)",
        "a * a * a * a * a = 1",
        "sqrt(b) = 1",
        "ln(b + 5) = 1",
        "d + INTERVAL '9999999 months' > d",
        "CAST(name AS TIMESTAMPTZ) = seen",
        "CAST(name AS TIME) = TIME '12:00'",
        "CAST(y * 1e300 AS FLOAT) > 0",
        "CAST('1e300' || left(name, 0) AS FLOAT) > 0",
    ],
)
def test_what_a_row_does_not_allow_is_refused_without_its_value(text):
    with pytest.raises(NotCalculable) as caught:
        ours(text, ONE)
    assert "Ada" not in str(caught.value) and "9223" not in str(caught.value)


@given(
    st.floats(-1e17, 1e17)
    | st.tuples(st.integers(-(10**6), 10**6), st.integers(0, 12)).map(lambda t: t[0] / 2 ** t[1])
    | st.tuples(st.integers(-2000, 2000), st.sampled_from([-math.inf, math.inf])).map(
        lambda t: math.nextafter((t[0] + 0.5) / 100, t[1])
    ),
    st.integers(0, 10),
)
def test_doubles_become_decimals_half_away_from_zero(number, scale):
    with localcontext(prec=100):
        exact = Decimal(number).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    cast = f"CAST(x AS DECIMAL(38, {scale}))"
    assert value_of(cast, table_of([{"x": number}])) == [exact]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e39])
def test_doubles_that_are_no_decimal_are_refused(number):
    with pytest.raises(NotCalculable):
        value_of("CAST(x AS DECIMAL(38, 0))", table_of([{"x": number}]))


def test_rows_that_are_left_out_first_do_not_fail():
    zero = table_of([{"a": 4, "b": 0}, {"a": 4, "b": 3}, {"a": None, "b": 0}])
    assert ours("b <> 0 AND a % b = 1", zero) == [False, True, False]
    assert ours("b = 0 OR a % b = 1", zero) == [True, True, True]
    batch = zero.combine_chunks().to_batches()[0]
    found = parse_condition("a % b = 1 AND b > 0", SCHEMA)  # in whichever order
    assert CalculatedFilter(found.calculated).selected(batch, SCHEMA).to_pylist() == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("text", "at", "says", "step"),
    [
        ("lowr(name) = 'x'", 0, "there is no function LOWR", "Did you mean LOWER?"),
        ("frobnicate(name) = 'x'", 0, "no function FROBNICATE", "docs/SQL.md"),
        ("sum(a) > 1", 0, "over many rows", "DuckDB"),
        ("count(*) > 1", 0, "over many rows", "DuckDB"),
        ("name + 1 = 2", 0, "not a number but a string", "||"),
        ("name || a = 'x'", 8, "joins texts", ""),
        ("x % 2 = 0", 2, "whole numbers", "floor"),
        ("name = a", 7, "a string and an int64", "CAST"),
        ("at = seen", 5, "a timestamp and a timestamptz", "as UTC"),
        ("a = INTERVAL '1 day'", 13, "a literal", ""),
        ("at > INTERVAL 'soon'", 5, "INTERVAL '7 days'", ""),
        ("a IN (SELECT 1)", 6, "subqueries", "keys="),
        ("name SIMILAR 'x'", 13, "TO and a regular", ""),
        ("CASE WHEN ok THEN 1 ELSE 'a' END = 1", 25, "not compared or mixed", "CAST"),
        ("CASE WHEN ok THEN 1 = 1", None, "END", ""),
        ("CAST(a AS FOO) = 1", 10, "no such type", "bigint"),
        ("CAST(x AS VARCHAR) = 'x'", 0, "cannot be CAST", ""),
        ("CAST(a) = 1", 6, "AS and a type", ""),
        ("substr(name, a) = 'x'", 13, "whole number", ""),
        ("name LIKE other", 10, "a pattern is a text", "CONTAINS"),
        ("tags['a'] = 'x'", 5, "whole number", "x[1]"),
        ("a[1] = 1", 1, "only lists and maps", ""),
        ("tags = tags", 5, "as a whole", "elements"),
        ("year(name) = 1", 5, "this is a string", "CAST"),
        ("length(a) = 1", 7, "no length", ""),
        ("lower(name, name) = 'x'", 0, "takes 1 argument, not 2", ""),
        ("a AN b = 2", 2, "does not fit", "Did you mean AND?"),
        ("a = 1, b = 2", 5, "does not fit", "IN (1, 2)"),
        ("a = b = 1", 6, "cannot be compared again", "parentheses"),
        ("date_trunc('fortnight', at) = at", 11, "no such unit", "week"),
        ("s.N = 1 AND s.q = 1", 12, "no column 's.q'", "Did you mean s."),
        ("a + 1", 2, "not a condition", ""),
        ("m[name] = 1", 2, "a key is a literal", "m['key']"),
        ("name = zebra", 7, "no column 'zebra'", "a text is in single quotes"),
    ],
)
def test_errors_are_words_with_the_next_step(text, at, says, step):
    with pytest.raises(InvalidPredicate) as caught:
        parse_condition(text, SCHEMA, now=lambda: NOW)
    error = caught.value
    assert says in error.message and step in error.next_step
    assert at is None or error.position == at
    assert "expected" not in str(error) and "Token" not in str(error)


@pytest.mark.parametrize("word", ["case", "when", "end", "interval", "cast", "date", "ilike", "as"])
def test_words_of_expressions_may_be_columns(word):
    schema = schema_from_arrow(pa.schema([(word, pa.int64()), ("b", pa.int64())]))
    for text in (f"{word} = 1", f"{word} + 1 = b", f"{word} IN (1, 2)", f"b = {word}"):
        assert parse_condition(text, schema) is not None
    batch = pa.record_batch({word: [1, 5], "b": [0, 0]})
    found = parse_condition(f"CASE WHEN {word} = 1 THEN b ELSE 7 END = 0", schema)
    if word != "when":
        chosen = CalculatedFilter(found.calculated).selected(batch, schema)
        assert chosen.to_pylist() == [True, False]


# -- in a table ---------------------------------------------------------------------------------------


@pytest.fixture
def people(tmp_path):
    table = inlay.create(
        tmp_path / "people",
        pa.schema(
            [
                ("id", pa.int64()),
                ("name", pa.string()),
                ("at", pa.timestamp("us", "UTC")),
                ("home", pa.struct([("zip", pa.string()), ("n", pa.int32())])),
            ]
        ),
    )
    for first in (0, 100):
        table.append(
            pa.table(
                {
                    "id": range(first, first + 100),
                    "name": ["Ada", "bob", None, "x"] * 25,
                    "at": [dt.datetime(2024 + first // 100, 1, 1 + n % 28) for n in range(100)],
                    "home": [{"zip": "8000", "n": 1}, None] * 50,
                },
                schema=table.schema,
            )
        )
    return table


def test_calculated_conditions_prune_by_what_they_imply(people):
    explained = people.scan(where="id < 50 AND lower(name) = 'ada'").explain()
    assert (explained.files, explained.files_read) == (2, 1)
    assert people.scan(where="(id < 5 AND lower(name) = 'ada') OR id = 7").explain().files_read == 1
    assert people.scan(where="year(at) = 2025").explain().files_read == 1
    assert people.count(where="id < 50 AND lower(name) = 'ada'") == 13
    assert people.count(where="upper(name) = 'BOB' AND id % 2 = 1") == 50


def test_calculated_deletes_mark_what_they_find_and_say_so(people):
    done = people.delete("lower(name) = 'ada' AND id < 50")
    assert (done.deleted_rows, done.added_markers) == (13, 1)
    assert "mode=vector" in done.note
    assert people.count() == 187
    assert people.inspect.tombstones()["kind"].to_pylist() == ["rows"]
    plain = people.delete("year(at) = 2025")  # a range: kept, in constant time
    assert plain.deleted_rows is None and not plain.note
    for mode in ("tombstone", "erase"):
        with pytest.raises(InvalidPredicate, match="cannot be kept"):
            people.delete("lower(name) = 'bob'", mode=mode)
    for mode in ("surgery", "rewrite"):
        assert not people.delete("lower(name) = 'bob' AND id < 10", mode=mode).note
    assert people.count(where="name = 'bob'") == 25 - 3


def test_deleted_rows_fail_nothing(people):
    people.append(pa.table({"id": [1000], "name": ["7"]}))
    assert people.count(where="id = 1000 AND CAST(name AS INT) = 7") == 1
    with pytest.raises(InvalidPredicate, match="CAST to int32"):
        people.count(where="CAST(name AS INT) = 7")
    people.delete("id = 1")
    people.delete("id BETWEEN 0 AND 199", mode="vector")
    assert people.count(where="CAST(name AS INT) = 7") == 1


def test_updates_calculate_and_reach_into_structs(people):
    people.update({"home.zip": "'CH-' || home.zip", "name": "upper(name)"}, where="id % 100 = 0")
    people.update({"home.n": "coalesce(home.n, 0) + 1"}, where="id IN (0, 1)")
    rows = people.scan(where="id < 2", columns=["id", "name", "home.zip", "home.n"]).to_arrow()
    assert rows.sort_by("id").to_pylist() == [
        {"id": 0, "name": "ADA", "home.zip": "CH-8000", "home.n": 2},
        {"id": 1, "name": "bob", "home.zip": None, "home.n": 1},
    ]
    with pytest.raises(InvalidPredicate, match="assigned together"):
        people.update({"home": "NULL", "home.zip": "'x'"})
    with pytest.raises(InvalidPredicate, match="Did you mean home"):
        people.update({"home.zp": "'x'"})


def test_a_repeated_request_is_known_though_now_has_moved(people):
    first = people.delete("at < now() - INTERVAL '1 day' AND id < 3", request_id="a")
    again = people.delete("at < now() - INTERVAL '1 day' AND id < 3", request_id="a")
    assert first.committed and not again.committed


def test_feeds_take_calculated_conditions(people):
    people.delete("id = 0")
    changes = people.changes(1, where="lower(name) = 'ada' AND id < 10").to_arrow()
    assert changes["_change_type"].to_pylist() == ["insert"] * 3 + ["delete"]


def test_implied_conditions_are_those_of_all_ways():
    found = parse_condition(
        "(a = 1 OR b + 1 = 2) AND (a < 5 OR b = 2 AND lower(name) = 'x')", SCHEMA
    )
    assert implied(found.calculated) == found.predicate
    assert "Or" in repr(found.predicate)


def test_a_scan_that_asks_for_the_time_is_pickled_with_it(people):
    import pickle

    scan = people.scan(where="at < now() AND lower(name) = 'ada' AND id < 50")
    again = pickle.loads(pickle.dumps(scan))
    assert again.to_arrow().equals(scan.to_arrow()) and again.count() == 13
    assert str(again.explain()) == str(scan.explain())
    assert again._where == scan._where


@pytest.mark.parametrize(
    ("pattern", "whole", "start"),
    [
        ("^ab", False, "ab"),
        ("ab", False, ""),
        ("ab", True, "ab"),
        ("^ab*", False, "a"),
        ("^ab{2}", False, "a"),
        ("^ab|c", False, ""),
        ("^(ab)", False, ""),
        ("^(?i)ab", False, ""),
        ("^a.c", False, "a"),
    ],
)
def test_a_regular_expression_prunes_by_what_it_begins_with(pattern, whole, start):
    assert literal_start(pattern, whole=whole) == start
    function = "regexp_full_match" if whole else "regexp_matches"
    found = parse_condition(f"{function}(name, '{pattern}')", SCHEMA, now=lambda: NOW)
    assert (found.predicate != TRUE) == bool(start)


def test_is_distinct_from_a_literal_is_of_the_frozen_grammar():
    for text, shown in (
        ("a IS NOT DISTINCT FROM 5", "a IS NOT NULL AND a = 5"),
        ("5 IS DISTINCT FROM a", "NOT (a IS NOT NULL AND a = 5)"),
        ("a IS NOT DISTINCT FROM NULL", "a IS NULL"),
        ("a IS DISTINCT FROM NULL", "a IS NOT NULL"),
    ):
        found = parse_condition(text, SCHEMA)
        assert found.calculated is None
        assert format_predicate(found.predicate, SCHEMA) == shown


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("name ~ 'a'", "regexp_matches"),
        ("regexp_matches(name, '(?=a)')", "RE2"),
        ("regexp_matches(name, '(')", "RE2"),
        ("regexp_matches(name, 'a', 'x')", "options"),
        ("regexp_matches(a, 'a')", "takes a string"),
        ("tags IS DISTINCT FROM tags", "nested"),
        ("a && b", "AND"),
    ],
)
def test_what_is_not_there_is_refused_with_what_to_write(text, word):
    with pytest.raises(InvalidPredicate, match=word):
        parse_condition(text, SCHEMA, now=lambda: NOW)

"""Update values: typed at the text, exact over the rows."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from inlay.errors import InvalidPredicate, SchemaMismatch
from inlay.parquet.arrow.assignments import assign
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parse import parse_assignments

BATCH = pa.record_batch(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "big": pa.array([2**62, None, -(2**63)], pa.int64()),
        "price": pa.array([Decimal("1.50"), None, Decimal("-3.25")], pa.decimal128(9, 2)),
        "score": pa.array([1.5, None, float("nan")]),
        "ratio": pa.array([0.5, 0.25, None], pa.float32()),
        "name": pa.array(["a", None, "c"]),
        "other": pa.array(["x", "y", None]),
        "day": pa.array([0, 1, None], pa.date32()),
        "at": pa.array([0, 1, None], pa.timestamp("ms")),
        "fine": pa.array([0, 1, None], pa.timestamp("us")),
        "tags": pa.array([["a"], None, []], pa.list_(pa.string())),
    },
    schema=pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            ("big", pa.int64()),
            ("price", pa.decimal128(9, 2)),
            ("score", pa.float64()),
            ("ratio", pa.float32()),
            ("name", pa.string()),
            ("other", pa.string()),
            ("day", pa.date32()),
            ("at", pa.timestamp("ms")),
            ("fine", pa.timestamp("us")),
            ("tags", pa.list_(pa.string())),
        ]
    ),
)
SCHEMA = schema_from_arrow(BATCH.schema)


def after(**texts):
    found = assign(parse_assignments(texts, SCHEMA), BATCH, SCHEMA)
    found.validate(full=True)
    assert found.schema == BATCH.schema
    changed = [found.column(name.lower()).to_pylist() for name in texts]
    return changed[0] if len(changed) == 1 else changed


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("name", "'it''s'", ["it's"] * 3),
        ("name", "NULL", [None] * 3),
        ("name", "other", ["x", "y", None]),
        ("NAME", "'x'", ["x"] * 3),
        ("id", "7", [7] * 3),
        ("id", "id + 1", [2, 3, 4]),
        ("id", "-id * 2", [-2, -4, -6]),
        ("id", "10 - (id - 1)", [10, 9, 8]),
        ("id", "id * 1.0", [1, 2, 3]),
        ("big", "id", [1, 2, 3]),
        ("big", "big - 1 + 1", [2**62, None, -(2**63)]),
        ("price", "price - 0.5", [Decimal("1.00"), None, Decimal("-3.75")]),
        ("price", "price * 2 + id", [Decimal("4.00"), None, Decimal("-3.50")]),
        ("price", "3", [Decimal("3.00")] * 3),
        ("score", "score / 2", [0.75, None, None]),
        ("score", "price + id", [2.5, None, -0.25]),
        ("score", "ratio", [0.5, 0.25, None]),
        ("ratio", "0.1", [0.10000000149011612] * 3),
        ("fine", "at", None),
        ("day", "'1970-01-03'", None),
        ("tags", "NULL", [None] * 3),
        ("tags", "tags", [["a"], None, []]),
    ],
)
def test_values_are_calculated(name, text, expected):
    found = after(**{name: text})
    if name == "score":
        found = [None if v is None or v != v else v for v in found]
    if expected is not None:
        assert found == expected


def test_temporal_values_keep_their_meaning():
    batch = assign(parse_assignments({"fine": "at", "day": "'1970-01-03'"}, SCHEMA), BATCH, SCHEMA)
    assert batch.column("fine").cast(pa.int64()).to_pylist() == [0, 1000, None]
    assert batch.column("day").cast(pa.int32()).to_pylist() == [2, 2, 2]


def test_all_values_are_taken_from_the_rows_as_they_were():
    assert after(name="other", other="name") == [["x", "y", None], ["a", None, "c"]]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("nmae", "1", "no column 'nmae'"),
        ("id", "NULL", "required"),
        ("id", "3000000000", "does not fit"),
        ("id", "1.5", "does not fit"),
        ("id", "'1'", "cannot be assigned"),
        ("name", "1", "cannot be assigned"),
        ("id", "big", "int64"),
        ("price", "score", "floating"),
        ("price", "price * score", "floating"),
        ("price", "price / 2", "quotient"),
        ("name", "name + 'x'", "arithmetic"),
        ("id", "id + name", "not a number"),
        ("id", "id + 'x'", "not a number"),
        ("id", "id = 1", "of type bool"),
        ("day", "'1970-02-30'", "not a date"),
        ("tags", "'x'", "is nested"),
        ("id", "id +", "the text ends"),
        ("id", "nope + 1", "no column 'nope'"),
        ("price", "price * 1" + "0" * 80, "floating"),
        ("id", "length(tags) / 2", "quotient"),
        ("name", "upper(id)", "takes a string"),
        ("day", "at", "cannot be assigned"),
    ],
)
def test_values_that_cannot_be_are_refused_at_their_place(name, text, says):
    with pytest.raises(InvalidPredicate, match=says):
        parse_assignments({name: text}, SCHEMA)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("id", "id * 2000000000"),
        ("id", "id * 0.5"),
        ("big", "big + big"),
        ("big", "big - 1"),
        ("price", "price * 0.001"),
        ("price", "price * 99999999"),
        ("price", "price * 1" + "0" * 70),
    ],
)
def test_results_the_column_cannot_hold_are_refused(name, text):
    with pytest.raises(SchemaMismatch, match=name):
        after(**{name: text})


def test_null_from_arithmetic_is_refused_for_a_required_column():
    with pytest.raises(SchemaMismatch, match="NULL for column 'id'"):
        after(id="id + big * 0")


def test_a_column_is_assigned_once():
    with pytest.raises(InvalidPredicate, match="twice"):
        parse_assignments({"name": "'a'", "NAME": "'b'"}, SCHEMA)


def test_an_update_needs_an_assignment():
    with pytest.raises(InvalidPredicate, match="without"):
        parse_assignments({}, SCHEMA)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("score", "-0.0", -0.0),
        ("ratio", "-0.0", -0.0),
        ("score", "-(0.0)", -0.0),
        ("score", "-0", -0.0),
        ("score", "-1e-400", -0.0),
        ("score", "- -0.0", 0.0),
        ("score", "+0.0", 0.0),
        ("score", "0.0", 0.0),
        ("score", "0 - 0.0", 0.0),
        ("score", "score * -0.0", -0.0),
        ("score", "-(id * 0.0 * score)", -0.0),
        ("price", "-0.00", Decimal("0.00")),
        ("big", "-0.0", 0),
        ("big", "-9223372036854775808", -(2**63)),
        ("big", "-(9223372036854775807) - 1", -(2**63)),
        ("price", "-9999999.99", Decimal("-9999999.99")),
        ("score", "-4.9e-324", -5e-324),
        ("score", "-1.7976931348623157e308", -1.7976931348623157e308),
        ("ratio", "-3.4028234663852886e38", -3.4028234663852886e38),
    ],
)
def test_signs_and_ends_of_types_are_kept(name, text, expected):
    found = after(**{name: text})[0]
    # repr distinguishes -0.0 from 0.0.
    assert repr(found) == repr(expected)


def test_the_opposite_of_zero_keeps_its_sign():
    zeros = pa.record_batch({"x": [0.0, -0.0, 1.0, float("inf"), None]})
    schema = schema_from_arrow(zeros.schema)
    found = assign(parse_assignments({"x": "-x"}, schema), zeros, schema)
    assert repr(found.column(0).to_pylist()) == "[-0.0, 0.0, -1.0, -inf, None]"

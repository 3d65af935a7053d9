"""Random columns, rows and predicates: few distinct values, so that conditions hit."""

from __future__ import annotations

from decimal import Decimal
from functools import cache

import pyarrow as pa
from hypothesis import strategies as st

from inlay.format.predicate import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    quote_like,
)
from inlay.format.schema import Field, Primitive, Schema, parse_primitive
from inlay.format.values import EXACT, integer_range, physical, to_float32
from inlay.parquet.arrow.types import schema_to_arrow, to_arrow_array

NAMES = """
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float double decimal(9,2)
    decimal(38,0) decimal(50,3) string binary fixed(2) date time(ms) time(us) time(ns)
    timestamp(s) timestamp(ms) timestamp(us) timestamp(ns)
    timestamptz(s) timestamptz(ms) timestamptz(us) timestamptz(ns)
"""
TYPES = [parse_primitive(name) for name in NAMES.split()]

OPERATORS = ["=", "!=", "<", "<=", ">", ">="]
ALPHABET = "ab%_\\\n.é\ud7ff\ue000😀\x00"
texts = st.text(ALPHABET, max_size=5)
floats = st.sampled_from([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5, -1.5, 0.1])


@cache
def values(kind: Primitive) -> st.SearchStrategy:
    match kind.name:
        case "bool":
            return st.booleans()
        case "float":
            return (floats | st.floats(width=32)).map(to_float32)
        case "double":
            return floats | st.floats()
        case "decimal":
            most = 10**kind.precision - 1
            numbers = st.integers(-3, 3) | st.integers(-most, most)
            return numbers.map(lambda n: physical(kind, Decimal(n).scaleb(-kind.scale, EXACT)))
        case "string":
            return texts
        case "binary":
            return st.binary(max_size=3)
        case "fixed":
            return st.binary(min_size=kind.precision, max_size=kind.precision)
        case _:
            least, greatest = integer_range(kind)
            near = st.integers(max(least, -3), 3)
            return near | st.integers(least, greatest)


def corners(kind: Primitive) -> list:
    """A few values of a type, among them the first, the last and the odd ones."""
    match kind.name:
        case "bool":
            return [False, True]
        case "float" | "double":
            return [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan")]
        case "decimal":
            most = Decimal(10**kind.precision - 1).scaleb(-kind.scale, EXACT)
            return [physical(kind, v) for v in (Decimal(0), Decimal(1), most, most.copy_negate())]
        case "string":
            return ["", "a", "ab", "b\n", "\ud7ff", "\ue000", "😀"]
        case "binary":
            return [b"", b"a", b"a\0", b"\xff"]
        case "fixed":
            return [b"\0\0", b"a\0", b"\xff\xff"]
        case _:
            least, greatest = integer_range(kind)
            return sorted({least, greatest, 0, 1})


SCHEMA = Schema(0, tuple(Field(at + 1, f"c{at + 1}", kind) for at, kind in enumerate(TYPES)))
patterns = st.lists(st.sampled_from(["%", "_"]) | texts.map(quote_like), max_size=4).map("".join)


@cache
def conditions(field: Field) -> st.SearchStrategy[Predicate]:
    kind, pool = field.type, values(field.type)
    comparisons = st.builds(
        lambda op, value: Comparison(field.id, op, Literal(kind, value)),
        st.sampled_from(OPERATORS),
        pool,
    )
    lists = st.lists(pool, min_size=1, max_size=4).map(lambda found: made_in(field, found))
    options = [comparisons, comparisons, lists, st.just(IsNull(field.id))]
    if kind.name == "string":
        options.append(patterns.map(lambda pattern: Like(field.id, pattern)))
    return st.one_of(options)


def made_in(field: Field, found: list) -> In:
    """In any order and with repetitions: `In` is to hold them as the format wants them."""
    return In(field.id, field.type, tuple(found))


def predicates(fields: list[Field]) -> st.SearchStrategy[Predicate]:
    leaves = st.one_of(
        *map(conditions, fields),
        st.sampled_from([None, True, False]).map(Constant),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
            inner.map(Not),
        ),
        max_leaves=6,
    )


def columns(field: Field, rows: int) -> st.SearchStrategy[list]:
    return st.lists(st.none() | values(field.type), min_size=rows, max_size=rows)


@st.composite
def tables(draw, *, types=TYPES, max_rows=8):
    """(fields, rows as dicts by field id, predicate over the fields)"""
    fields = draw(
        st.lists(
            st.sampled_from([f for f in SCHEMA.fields if f.type in types]),
            min_size=1,
            max_size=3,
            unique=True,
        )
    )
    count = draw(st.integers(0, max_rows))
    found = {field.id: draw(columns(field, count)) for field in fields}
    rows = [{field_id: column[at] for field_id, column in found.items()} for at in range(count)]
    return fields, rows, draw(predicates(fields))


def to_batch(fields: list[Field], rows: list[dict]) -> pa.RecordBatch:
    schema = schema_to_arrow(Schema(0, tuple(fields)))
    arrays = [to_arrow_array(f.type, [row[f.id] for row in rows]) for f in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

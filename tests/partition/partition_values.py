"""Types, transforms and values that partitions have to cope with, the awkward ones first."""

from __future__ import annotations

import math
from decimal import Context, Decimal

from hypothesis import strategies as st

from inlay.format.partition import Transform, parse_transform, result_type
from inlay.format.schema import Primitive, Value, parse_primitive
from inlay.format.values import integer_range

KINDS = tuple(
    parse_primitive(text)
    for text in (
        "bool", "int8", "int32", "int64", "uint8", "uint64", "float", "double", "decimal(5,2)",
        "decimal(38,0)", "decimal(60,3)", "string", "binary", "fixed(3)", "date", "time(ms)",
        "time(us)", "time(ns)", "timestamp(s)", "timestamp(ms)", "timestamp(us)", "timestamp(ns)",
        "timestamptz(us)",
    )
)  # fmt: skip
TRANSFORMS = tuple(
    parse_transform(text)
    for text in (
        "identity", "year", "month", "day", "hour", "bucket[1]", "bucket[5]", "bucket[2147483647]",
        "truncate[1]", "truncate[3]", "truncate[10]", "truncate[2147483647]",
    )
)  # fmt: skip
PAIRS: tuple[tuple[Transform, Primitive], ...] = tuple(
    (transform, kind)
    for transform in TRANSFORMS
    for kind in KINDS
    if result_type(transform, kind) is not None
)
WIDE = Context(prec=100)


def values(kind: Primitive) -> st.SearchStrategy[Value]:
    """Values of a type: near each other, near its ends, before 1970, or any."""
    limits = integer_range(kind)
    if limits is not None:
        low, high = limits
        edges = [low, low + 1, low + 7, high - 7, high - 1, high, 0, 1, 9, 10, 86_399, 86_400, -1]
        near = st.integers(max(low, -30), min(high, 30))
        inside = st.sampled_from([v for v in edges if low <= v <= high])
        days = st.integers(max(low, -200_000_000_000), min(high, 200_000_000_000))
        return near | inside | days | st.integers(low, high)
    match kind.name:
        case "bool":
            return st.booleans()
        case "float" | "double":
            odd = st.sampled_from([math.nan, 0.0, -0.0, 1.5, -2.25, math.inf, -math.inf])
            return odd | st.floats(width=32 if kind.name == "float" else 64)
        case "decimal":
            most = 10**kind.precision - 1
            whole = st.integers(-30, 30) | st.integers(-most, most) | st.sampled_from([most, -most])
            return whole.map(lambda n: WIDE.scaleb(Decimal(n), -kind.scale))
        case "string":
            few = st.text("ab\U0010ffffé\U0001f600", max_size=6)
            return few | st.text(max_size=12)
        case "fixed":
            few_bytes = st.sampled_from([b"\0\0\0", b"\xff\xff\xff", b"abc", b"abd"])
            return few_bytes | st.binary(min_size=3, max_size=3)
        case _:
            return st.lists(st.sampled_from([b"\0", b"\xff", b"a"]), max_size=5).map(b"".join)

"""The condition that rows with one of some keys fulfil: as narrow as their list, and never too narrow."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from inlay.format.predicate import FALSE, And, Comparison, In, IsNull, Literal, Or, Predicate
from inlay.format.schema import Field, Primitive, Schema
from inlay.ops.write.old_rows import LISTED_KEYS, keys_predicate

LONG, DOUBLE = Primitive("int64"), Primitive("double")
SCHEMA = Schema(0, (Field(1, "a", LONG), Field(2, "x", DOUBLE)))


def asked(nulls: Any = "distinct", **columns: Any) -> Predicate:
    arrays = {
        name: pa.array(values, pa.int64() if name == "a" else pa.float64())
        for name, values in columns.items()
    }
    return keys_predicate(pa.table(arrays), [*columns], SCHEMA, nulls)


def test_keys_are_listed_and_null_is_one_where_it_equals_itself() -> None:
    listed = In(1, LONG, (1, 3))
    assert asked(a=[3, 1, 3]) == asked("equal", a=[3, 1, 3]) == And((listed,))
    assert asked(a=[3, None, 1]) == And((listed,)), "a key that nothing equals"
    assert asked("equal", a=[3, None, 1]) == And((Or((IsNull(1), listed)),))
    for none in ([], [None]):
        assert asked(a=none) == FALSE
    assert asked("equal", a=[]) == FALSE and asked("equal", a=[None]) == And((IsNull(1),))
    numbers = In(2, DOUBLE, (0.0, 1.5))
    assert asked(a=[3, 1], x=[1.5, 0.0]) == And((listed, numbers))
    assert asked(x=[-0.0, 0.0, 1.5]) == And((numbers,)), "zero is one key, whatever its sign"
    assert asked(a=[None], x=[1.5]) == asked(x=[1.5], a=[None]) == FALSE
    assert asked("equal", a=[None], x=[1.5]) == And((IsNull(1), In(2, DOUBLE, (1.5,))))


def test_of_many_keys_the_bounds_are_asked() -> None:
    """But for numbers that may be NaN, which no bounds hold."""
    most = list(range(LISTED_KEYS))
    assert asked(a=most) == And((In(1, LONG, tuple(most)),))
    bounds = tuple(
        Comparison(1, op, Literal(LONG, n)) for op, n in ((">=", 0), ("<=", LISTED_KEYS))
    )
    many = [*most, LISTED_KEYS]
    assert asked(a=many[::-1]) == And(bounds)
    assert asked("equal", a=[*many, None]) == And((Or((IsNull(1), And(bounds))),))
    assert asked(a=[*many, None]) == And(bounds)
    assert asked(x=[*map(float, most), *map(float, most)]) == And((In(2, DOUBLE, tuple(most)),))
    assert asked(x=[*map(float, most), math.nan]) == And(())
    assert asked(a=many, x=[*map(float, most), math.nan]) == And(bounds)
    assert asked(a=[1] * len(many), x=[*map(float, many)]) == And((In(1, LONG, (1,)),))

"""The statistics that a rewritten column chunk gets: what was computed from the rows that stay, as far as
the file had it, and as exact as the file says its bounds are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inlay.parquet.footer.fields import Converted, Element, File, Logical, Order, Physical, Stats
from inlay.parquet.footer.thrift import nested
from inlay.parquet.surgery.row_group import _statistics, has_known_order

NOW = {
    Stats.MIN: b"b",
    Stats.MAX: b"y",
    Stats.NULLS: 3,
    Stats.MIN_EXACT: True,
    Stats.MAX_EXACT: True,
}


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("most", [False, True])
def test_bounds_are_as_exact_as_the_file_says_of_the_others(least: bool, most: bool) -> None:
    """An engine may take exact bounds of one row group for the whole file's."""
    was = {Stats.MIN: b"a", Stats.MAX: b"z", Stats.MIN_EXACT: least, Stats.MAX_EXACT: most}
    found = _statistics(was, NOW)
    expected = {Stats.MIN: b"b", Stats.MAX: b"y", Stats.MIN_EXACT: least, Stats.MAX_EXACT: most}
    assert found == expected


def test_what_the_file_does_not_say_is_not_said_of_the_new_rows() -> None:
    assert _statistics({Stats.MIN: b"a"}, NOW) == {Stats.MIN: b"b"}
    assert _statistics({Stats.NULLS: 9}, NOW) == {Stats.NULLS: 3}
    # Exactness of a bound that is not there says nothing.
    assert _statistics({Stats.NULLS: 9, Stats.MAX_EXACT: True}, NOW) == {Stats.NULLS: 3}


def test_what_was_not_computed_is_not_kept() -> None:
    """It is of the rows that were removed."""
    was = {Stats.MIN: b"a", Stats.MAX: b"z", Stats.MAX_EXACT: True, Stats.DISTINCT: 4}
    assert _statistics(was, {Stats.NULLS: 0}) == {}
    assert _statistics(was, {Stats.MIN: b"b"}) == {Stats.MIN: b"b"}


def known(
    physical: Physical,
    element: dict[int, Any],
    *,
    length: int = 0,
    orders: Any = None,
    index: int = 0,
) -> bool:
    footer: Any = SimpleNamespace(
        schema=[element], tree={} if orders is None else {File.ORDERS: orders}
    )
    leaf: Any = SimpleNamespace(type=physical, type_length=length, element=0, index=index)
    return has_known_order(footer, leaf)


DECIMAL = {Element.CONVERTED: Converted.DECIMAL}


@pytest.mark.parametrize(
    ("physical", "length", "expected"),
    [
        (Physical.FIXED_LEN_BYTE_ARRAY, 0, False),
        (Physical.FIXED_LEN_BYTE_ARRAY, 1, True),
        (Physical.FIXED_LEN_BYTE_ARRAY, 32, True),
        (Physical.FIXED_LEN_BYTE_ARRAY, 33, False),
        (Physical.BYTE_ARRAY, 0, False),
        (Physical.INT32, 0, True),
        (Physical.INT64, 0, True),
    ],
)
def test_decimals_are_ordered_where_they_are_read_as_such(
    physical: Physical, length: int, expected: bool
) -> None:
    assert known(physical, DECIMAL, length=length) is expected


def test_only_orders_that_are_known_are_followed() -> None:
    by_type, other = {Order.BY_TYPE: {}}, {9: {}}
    assert known(Physical.INT64, {}, orders=[by_type])
    assert not known(Physical.INT64, {}, orders=[other])
    assert known(Physical.INT64, {}, orders=[other, by_type], index=1)
    assert not known(Physical.INT64, {}, orders=[by_type, other], index=1)
    assert known(Physical.INT64, {}, orders=[other], index=1)  # of this column nothing is said
    assert not known(Physical.INT96, {})
    assert not known(Physical.INT64, {Element.CONVERTED: Converted.INTERVAL})


@pytest.mark.parametrize("number", range(1, 31))
def test_only_types_whose_order_is_known_get_bounds(number: int) -> None:
    """Geometries, variants, NULL columns and types that do not exist yet get none (parquet.thrift,
    LogicalType)."""
    ordered = {
        "STRING": 1, "ENUM": 4, "DECIMAL": 5, "DATE": 6, "TIME": 7, "TIMESTAMP": 8, "INTEGER": 10,
        "JSON": 12, "BSON": 13, "UUID": 14, "FLOAT16": 15,
    }  # fmt: skip
    element = {Element.LOGICAL: {nested(number): {}}}
    fixed = number in (ordered["DECIMAL"], ordered["UUID"], ordered["FLOAT16"])
    physical = Physical.FIXED_LEN_BYTE_ARRAY if fixed else Physical.BYTE_ARRAY
    assert known(physical, element, length=16) is (number in ordered.values())


def test_a_type_that_is_not_named_is_ordered_as_it_is_stored() -> None:
    assert known(Physical.BYTE_ARRAY, {Element.LOGICAL: {}})
    assert known(Physical.BYTE_ARRAY, {})
    assert not known(Physical.INT96, {Element.LOGICAL: {Logical.TIMESTAMP: {}}})

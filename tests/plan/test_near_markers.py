"""A quick look at bounds says which markers are compared with a file: too many perhaps, never too few."""

from __future__ import annotations

import math
from dataclasses import replace

from inlay.format.entry import ColumnStats, KeyRange, Keys, Marker, Where
from inlay.format.predicate import Comparison, Literal
from inlay.format.schema import Primitive
from inlay.plan.scan import _Nearby

DOUBLE = Primitive("double")
NUMBERS = ColumnStats(1.0, 9.0, null_count=0, has_nan=False)


def relations(*markers: Marker, stats: ColumnStats = NUMBERS) -> dict[str, str]:
    return {m.id: relation for m, relation in _Nearby(markers).of({1: stats})}


def test_ranges_are_apart_overlap_or_cover() -> None:
    found = relations(
        Marker(id="below", body=KeyRange(1, None, 0.5)),
        Marker(id="above", body=KeyRange(1, 9.5, None)),
        Marker(id="within", body=KeyRange(1, 2.0, 3.0)),
        Marker(id="left", body=KeyRange(1, None, 3.0)),
        Marker(id="right", body=KeyRange(1, 3.0, None)),
        Marker(id="all", body=KeyRange(1, 0.5, 9.5)),
        Marker(id="shared", body=KeyRange(1, 1.0, 9.5)),
        Marker(id="shared above", body=KeyRange(1, 0.5, 9.0)),
        Marker(id="touches the end", body=KeyRange(1, 9.0, 20.0)),
        Marker(id="touches the start", body=KeyRange(1, -5.0, 1.0)),
    )
    assert found == {
        "within": "overlaps",
        "left": "overlaps",
        "right": "overlaps",
        "all": "covers",
        "shared": "unknown",
        "shared above": "unknown",
        "touches the end": "unknown",
        "touches the start": "unknown",
    }


def test_a_file_of_which_too_little_is_known_is_near_to_all() -> None:
    far = Marker(id="far", body=KeyRange(1, 20.0, 30.0, kind=DOUBLE))
    assert relations(far) == {}
    assert relations(far, stats=replace(NUMBERS, has_nan=None)) == {"far": "unknown"}
    assert relations(far, stats=replace(NUMBERS, upper=None)) == {"far": "unknown"}
    assert relations(far, stats=replace(NUMBERS, lower=None)) == {"far": "unknown"}
    seconds, micros = (Primitive("timestamp", unit=unit) for unit in ("ms", "us"))
    later = Marker(id="later", body=KeyRange(1, 5_000, 6_000, kind=micros))
    assert relations(later, stats=ColumnStats(1, 9, 0, kind=seconds)) == {"later": "unknown"}
    assert relations(later, stats=ColumnStats(1, 9, 0, kind=micros)) == {}


def test_a_nan_bounds_nothing() -> None:
    nan = math.nan
    found = relations(
        Marker(id="lower", body=KeyRange(1, nan, 20.0)),
        Marker(id="upper", body=KeyRange(1, 0.5, nan)),
        Marker(id="far", body=KeyRange(1, 20.0, nan)),
        Marker(id="equal", body=Where(Comparison(1, "=", Literal(DOUBLE, nan)))),
    )
    assert found == dict.fromkeys(("lower", "upper", "far", "equal"), "unknown")


def test_keys_are_near_by_their_bounds_where_these_are_known() -> None:
    def keys(ids: tuple[int, ...], stats: dict[int, ColumnStats]) -> Keys:
        return Keys(ids, "keys.parquet", 10, 2, stats)

    found = relations(
        Marker(id="near", body=keys((1,), {1: ColumnStats(2.0, 3.0, kind=DOUBLE)})),
        Marker(id="apart", body=keys((1, 2), {1: ColumnStats(20.0, 30.0)})),
        Marker(id="unbounded", body=keys((1,), {})),
        Marker(id="by the second", body=keys((2, 1), {1: ColumnStats(20.0, 30.0)})),
    )
    assert found == {"near": "unknown", "unbounded": "unknown", "by the second": "unknown"}


def test_an_erasure_asks_more_than_bounds() -> None:
    far = Where(Comparison(1, ">", Literal(DOUBLE, 20.0)))
    found = relations(Marker(id="deletes", body=far), Marker(id="erases", body=far, erasure="e"))
    assert found == {"erases": "unknown"}


def test_they_keep_their_order() -> None:
    markers = [
        Marker(id="a", body=KeyRange(1, 2.0, 3.0)),
        Marker(id="b", body=KeyRange(2, 2, 3)),
        Marker(id="c", body=KeyRange(1, 2.0, 3.0), erasure="e"),
        Marker(id="d", body=KeyRange(1, 0.5, 9.5)),
    ]
    assert list(relations(*markers)) == ["a", "b", "c", "d"]
    of_two = [markers[0], markers[1], markers[3]]
    assert list(relations(*of_two)) == ["a", "b", "d"]

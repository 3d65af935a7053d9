"""Entries as they are written, value by value (docs/FORMAT.md, section 7), and what is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from inlay.errors import CorruptTable, NewerFormat
from inlay.format.entry import (
    ColumnStats,
    DataFile,
    KeyRange,
    Keys,
    LedgerRecord,
    Marker,
    RowGroups,
    Rows,
    Types,
    Vector,
    Where,
    file_from_json,
    file_to_json,
    flags_of,
    marker_from_json,
    marker_to_json,
    plain_value,
    record_from_json,
    record_to_json,
    stats_from_json,
    stats_of,
    stats_to_json,
)
from inlay.format.predicate import IsNull
from inlay.format.schema import Field, Primitive, Schema

LONG, DOUBLE = Primitive("int64"), Primitive("double")
OLD = Schema(0, (Field(1, "id", Primitive("int32")), Field(3, "gone", DOUBLE)))
TYPES = Types((OLD, Schema(4, (Field(1, "id", LONG), Field(2, "x", DOUBLE)))))
PLAIN = DataFile(key="k", size=1, footer_size=2, rows=3, row_groups=4, schema_id=4)


@pytest.mark.parametrize(
    ("change", "written"),
    [
        ({}, ["k", 1, 2, 3, 4, 4]),
        ({"sequence": 7}, ["k", 1, 2, 3, 4, 4, 7]),
        ({"sequence": 0}, ["k", 1, 2, 3, 4, 4, 0]),
        (
            {"stats": {1: ColumnStats(5, 6, 0, kind=LONG)}},
            ["k", 1, 2, 3, 4, 4, None, {"1": [5, 6, 0]}],
        ),
        ({"adopted": True}, ["k", 1, 2, 3, 4, 4, None, None, 1]),
        ({"data_change": False}, ["k", 1, 2, 3, 4, 4, None, None, 2]),
        ({"own": True}, ["k", 1, 2, 3, 4, 4, None, None, 4]),
        ({"adopted": True, "own": True, "data_change": False}, ["k", 1, 2, 3, 4, 4, None, None, 7]),
        ({"event": "e"}, ["k", 1, 2, 3, 4, 4, None, None, None, "e"]),
        ({"origin": "o", "etag": "t"}, ["k", 1, 2, 3, 4, 4, *[None] * 4, "o", "t"]),
        (
            {"spec_id": 2, "partition": (None, 5)},
            ["k", 1, 2, 3, 4, 4, *[None] * 6, 2, [None, 5]],
        ),
        ({"arrived": 5, "cluster": 6}, ["k", 1, 2, 3, 4, 4, *[None] * 8, 5, 6]),
    ],
    ids=str,
)
def test_a_file_is_written_as_a_list_without_what_it_lacks_at_the_end(
    change: dict[str, Any], written: list[Any]
) -> None:
    entry = replace(PLAIN, **change)
    assert file_to_json(entry, TYPES) == written
    assert file_from_json(written, TYPES) == entry
    assert file_from_json(written, TYPES, {"k": entry}) is entry
    other = replace(PLAIN, rows=99)
    assert file_from_json(written, TYPES, {"k": other}) == entry


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        *itertools.product((0, 9, 10, 11), (5,)),
        *itertools.product((1, 2, 3, 4, 5, 6, 14, 15), (-1, "1", True)),
        (13, [[]]),
    ],
)
def test_a_file_with_another_kind_of_value_is_refused(place: int, wrong: Any) -> None:
    body: list[Any] = ["k", 1, 2, 3, 4, 4, *[None] * 10]
    body[place] = wrong
    with pytest.raises(TypeError):
        file_from_json(body, TYPES)
    with pytest.raises(TypeError):
        file_from_json([*body[:6], *[None] * 11], TYPES)


@pytest.mark.parametrize(
    ("body", "kind", "written"),
    [
        (RowGroups((0, 2)), "row_groups", [0, 2]),
        (KeyRange(1, 5, None, kind=LONG), "range", [1, "int64", 5, None, True, True]),
        (KeyRange(1, 5, 6, False, True), "range", [1, "int64", 5, 6, False, True]),
        (KeyRange(1, 5, 6, True, False), "range", [1, "int64", 5, 6, True, False]),
        (Where(IsNull(2)), "where", ["null", 2]),
        (Keys((1, 2), "k", 9, 8, {}, 0), "keys", [[1, 2], "k", 9, 8, 0, None]),
        (
            Keys((1,), "k", 9, 8, {1: ColumnStats(5, 6, 0, kind=LONG)}),
            "keys",
            [[1], "k", 9, 8, 4, {"1": [5, 6, 0]}],
        ),
        (Vector("v", 4, 5, 6), "vector", ["v", 4, 5, 6]),
        (Rows((1, 5)), "rows", [1, 5]),
    ],
    ids=str,
)
def test_a_marker_is_written_with_its_kind(body: Any, kind: str, written: Any) -> None:
    plain = Marker(id="m", body=body)
    assert marker_to_json(plain, TYPES) == ["m", kind, written]
    assert marker_from_json(["m", kind, written], TYPES) == plain
    full = Marker(id="m", body=body, sequence=3, file="f", erasure="e")
    assert marker_to_json(full, TYPES) == ["m", kind, written, 3, "f", "e"]
    assert marker_from_json(["m", kind, written, 3, "f", "e"], TYPES) == full
    is_object = isinstance(body, Keys | Vector)
    assert plain.object_key == (body.key if is_object else None)
    sizes = {Keys: 9, Vector: 5}
    assert plain.object_bytes == sizes.get(type(body))
    assert plain.is_positional is isinstance(body, RowGroups | Vector | Rows)


def test_a_marker_of_a_kind_to_come_stops_the_reader() -> None:
    with pytest.raises(NewerFormat):
        marker_from_json(["m", "other", []], TYPES)
    with pytest.raises(TypeError):
        marker_from_json(["m", "rows", [], None, None, None, None], TYPES)


@pytest.mark.parametrize(
    ("column", "written"),
    [
        (ColumnStats(), []),
        (ColumnStats(5.0), [5.0]),
        (ColumnStats(None, 6.0), [None, 6.0]),
        (ColumnStats(null_count=0), [None, None, 0]),
        (ColumnStats(exact=False), [None, None, None, 1]),
        (ColumnStats(has_nan=True), [None, None, None, 2]),
        (ColumnStats(has_nan=False), [None, None, None, 4]),
        (ColumnStats(sure=True), [None, None, None, 8]),
        (ColumnStats(exact=False, has_nan=True, sure=True), [None, None, None, 11]),
    ],
    ids=str,
)
def test_statistics_are_written_by_field_in_the_type_of_the_schema(
    column: ColumnStats, written: list[Any]
) -> None:
    assert stats_to_json({2: column}, 4, TYPES) == {"2": written}
    kept = replace(column, kind=DOUBLE)
    assert stats_from_json({"2": written}, 4, TYPES) == {2: kept}
    again = stats_of(column.lower, column.upper, column.null_count, flags_of(column), DOUBLE)
    assert again == kept
    assert stats_to_json({}, 4, TYPES) is None


def test_a_field_has_the_type_of_its_schema_or_of_any_that_has_it() -> None:
    assert [TYPES.of(n, 1).name for n in (0, 4, 9)] == ["int32", "int64", "int32"]
    assert [TYPES.of(n, 3) for n in (0, 4)] == [DOUBLE, DOUBLE] and TYPES.newest == 4
    assert Types(()).newest == 0
    with pytest.raises(CorruptTable, match="field 7"):
        TYPES.of(4, 7)


@pytest.mark.parametrize(
    ("record", "written"),
    [
        (LedgerRecord(id=b"abc"), ["YWJj"]),
        (LedgerRecord(id=b"abc", version=5, time_us=6), ["YWJj", 5, 6]),
        (LedgerRecord(id=b"abc", body=b"\xff"), ["YWJj", None, None, "_w"]),
    ],
    ids=str,
)
def test_a_record_is_written_as_a_list(record: LedgerRecord, written: list[Any]) -> None:
    assert record_to_json(record) == written and record_from_json(written) == record


def test_a_file_is_anothers_if_it_was_taken_in_and_not_written_again() -> None:
    for adopted, own, event, origin in itertools.product(
        [False, True], [False, True], [None, "e"], [None, "o"]
    ):
        entry = replace(PLAIN, adopted=adopted, own=own, event=event, origin=origin)
        expected = adopted or (not own and bool(event or origin))
        assert entry.is_foreign is expected
    for arrived, sequence, newest in ((None, None, 0), (None, 5, 5), (3, 5, 3), (3, None, 3)):
        assert replace(PLAIN, arrived=arrived, sequence=sequence).newest_rows == newest


@pytest.mark.parametrize("value", [None, 1, 1.5, "a", True])
def test_values_of_partitions_are_those_of_json(value: Any) -> None:
    assert plain_value(value) is value
    with pytest.raises(TypeError):
        plain_value([value])


@pytest.mark.parametrize("member", ["size", "footer_size", "rows", "row_groups"])
def test_a_file_may_be_empty_and_has_less_than_nothing_of_nothing(member: str) -> None:
    assert getattr(replace(PLAIN, **{member: 0}), member) == 0
    with pytest.raises(ValueError, match="negative"):
        replace(PLAIN, **{member: -1})


def test_what_statistics_say_of_themselves_survives_in_flags() -> None:
    for exact, sure, has_nan in itertools.product(
        [False, True], [False, True], [None, False, True]
    ):
        column = ColumnStats(1.0, 2.0, 0, exact, has_nan, DOUBLE, sure)
        read = stats_of(1.0, 2.0, 0, flags_of(column), DOUBLE)
        assert (read, read.sure) == (column, sure)


def test_a_marker_that_names_no_schema_is_of_the_newest() -> None:
    """Whatever the order in which they are listed."""
    for schemas in itertools.permutations((OLD, Schema(4, (Field(1, "id", LONG),)))):
        types = Types(schemas)
        assert types.newest == 4
        marker = Marker(id="m", body=KeyRange(1, 2**40))
        assert marker_to_json(marker, types)[2][1] == "int64"
    assert Types(()).newest == 0

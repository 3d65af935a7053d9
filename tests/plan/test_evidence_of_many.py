"""What is known of many files together, in the types of the newest of them, and whose word it is."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from inlay.format.entry import ColumnStats, DataFile
from inlay.format.schema import Field, Primitive, Schema
from inlay.plan.pruning.prune import Evidence, combined_stats

INT, LONG = Primitive("int32"), Primitive("int64")
OLD = Schema(1, (Field(1, "n", INT), Field(2, "f", Primitive("float"))))
NEW = Schema(2, (Field(1, "n", LONG), Field(2, "f", Primitive("double"))))
EVIDENCE = Evidence(NEW, (OLD, NEW), ())


def entry(schema: Schema, low: int, high: int, **options: object) -> DataFile:
    stats = {
        1: ColumnStats(low, high, 0),
        2: ColumnStats(float(low), float(high), 0, has_nan=False),
    }
    made = DataFile(
        key=f"data/{low}",
        size=9,
        footer_size=9,
        rows=5,
        row_groups=1,
        schema_id=schema.id,
        stats=stats,
    )
    return replace(made, **options)  # type: ignore[arg-type]


def test_bounds_of_files_from_before_a_wider_type_are_of_the_wider_type() -> None:
    found = EVIDENCE.column(entry(OLD, 3, 7), 1)
    assert found is not None
    assert (found.lower, found.upper, found.kind) == (3, 7, LONG)
    found = EVIDENCE.column(entry(NEW, 3, 7), 2)
    assert found is not None and found.kind == Primitive("double")


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_reference_to_several_files_is_in_the_types_of_the_newest(newest_first: bool) -> None:
    files = [entry(OLD, 3, 7), entry(NEW, 2**40, 2**41)]
    schema_id, stats = EVIDENCE.of_files(files[::-1] if newest_first else files, [1, 2])
    assert schema_id == NEW.id and stats.keys() == {1, 2}
    assert (stats[1].lower, stats[1].upper, stats[1].kind) == (3, 2**41, LONG)
    only_old = EVIDENCE.of_files(files[:1], [1])
    assert only_old[0] == OLD.id and only_old[1][1].kind == INT


def test_bounds_over_files_of_other_writers_are_not_exact() -> None:
    """Versions of this library that do not know `sure` go by `exact`."""
    for first, second in itertools.product([False, True], repeat=2):
        files = [entry(NEW, 3, 7, adopted=first), entry(NEW, 8, 9, adopted=second)]
        _, stats = EVIDENCE.of_files(files, [1])
        assert stats[1].exact is not (first or second)
        assert (stats[1].lower, stats[1].upper) == (3, 9)


def test_many_are_sure_or_exact_where_each_is() -> None:
    for name, first, second in itertools.product(("sure", "exact"), [False, True], [False, True]):
        parts = [
            (ColumnStats(1, 2, 0, kind=LONG), first),
            (ColumnStats(4, 9, 0, kind=LONG), second),
        ]
        made = [({1: replace(stats, **{name: said})}, 5) for stats, said in parts]
        [found] = combined_stats(made).values()
        assert getattr(found, name) is (first and second)
        assert (found.lower, found.upper, found.null_count) == (1, 9, 0)


def test_many_have_nan_where_one_has_and_lack_it_where_each_lacks_it() -> None:
    for first, second in itertools.product([True, False, None], repeat=2):
        parts = [({1: ColumnStats(1.0, 2.0, 0, has_nan=has)}, 5) for has in (first, second)]
        [found] = combined_stats(parts).values()
        either, neither = first or second, first is False and second is False
        assert found.has_nan is (True if either else False if neither else None)


def test_parts_of_only_nulls_need_no_bounds_and_unknown_ones_take_them() -> None:
    known, nulls = ColumnStats(3, 4, 1), ColumnStats(None, None, 5)
    for parts in ([(known, 9), (nulls, 5)], [(nulls, 5), (known, 9)]):
        [found] = combined_stats(({1: s}, rows) for s, rows in parts).values()
        assert (found.lower, found.upper, found.null_count) == (3, 4, 6)
    for unknown in (ColumnStats(None, 9, 0), ColumnStats(1, None, None), ColumnStats()):
        for parts in ([(known, 9), (unknown, 5)], [(unknown, 5), (known, 9)]):
            [found] = combined_stats(({1: s}, rows) for s, rows in parts).values()
            assert found.lower == (1 if unknown.lower == 1 else None)
            assert found.upper == (9 if unknown.upper == 9 else None)
            assert found.null_count == (1 if unknown.null_count == 0 else None)
    assert combined_stats([({1: known}, 9), ({}, 0)]) == {1: known}
    assert combined_stats([({1: known}, 9), ({}, 1)]) == {} == combined_stats([])

"""What metadata proves about one file: whose word it is, and what holds for columns that the file lacks or
the table has no more."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from tests.maintenance.bench import new_bench

from inlay.format.entry import ColumnStats, DataFile, KeyRange, Keys, Marker, Rows, Where
from inlay.format.predicate import And, Comparison, Constant, In, Literal, Not, Or
from inlay.format.schema import Field, Primitive, Schema, Struct
from inlay.format.snapshot import PartitionField, PartitionSpec, Segment
from inlay.plan.pruning.compared import compared_columns, uncompared
from inlay.plan.pruning.prune import (
    Absent,
    Evidence,
    absent_column,
    all_match,
    coverage,
    for_content,
    keys_may_match,
    may_match,
)
from inlay.plan.scan import FileTask, marker_may_hit, plan_scan, reference_may_hit

INT, LONG, TEXT, DOUBLE = (Primitive(name) for name in ("int32", "int64", "string", "double"))
A = Field(1, "a", LONG)
OLD = Schema(0, (A,))
WITHIN = Schema(1, (A, Field(5, "s", Struct((Field(6, "n", LONG),)))))
NEW = Schema(
    2,
    (
        A,
        Field(2, "b", LONG, default=7),
        Field(3, "x", DOUBLE, default=math.nan),
        Field(4, "plain", TEXT),
        Field(5, "s", Struct((Field(6, "n", LONG), Field(7, "m", TEXT, default="q")))),
    ),
)
ROWS = 5


def file(schema: Schema = OLD, **options: Any) -> DataFile:
    plain = {"size": 9, "footer_size": 9, "rows": ROWS, "row_groups": 1}
    known = {"stats": {1: ColumnStats(0, 9, 0)}, "schema_id": schema.id, "sequence": 3}
    return DataFile(**{"key": "f", **plain, **known, **options})


def test_a_file_has_null_or_the_default_of_a_column_that_came_later() -> None:
    evidence = Evidence(NEW, (OLD, WITHIN))

    def known(schema: Schema, field_id: int) -> ColumnStats | None:
        return evidence.column(file(schema), field_id)

    assert known(OLD, 2) == ColumnStats(7, 7, 0, has_nan=False, kind=LONG)
    nan = known(OLD, 3)
    assert nan == ColumnStats(null_count=0, has_nan=True, kind=DOUBLE), "it is in no bounds"
    assert known(OLD, 4) == ColumnStats(null_count=ROWS, has_nan=False, kind=TEXT)
    # A struct that is missing is NULL as a whole; in one that is there the default holds where it is not.
    assert known(OLD, 7) == ColumnStats(null_count=ROWS, has_nan=False, kind=TEXT)
    assert known(WITHIN, 7) == ColumnStats("q", "q", None, has_nan=False, kind=TEXT)
    assert known(NEW, 4) is known(NEW, 7) is None, "it may have any value"
    assert [evidence.lower(file(OLD), field_id) for field_id in (1, 2, 4)] == [0, 7, None]
    assert evidence.lower(file(NEW), 4) is None
    assert absent_column(NEW, 5, lambda field: field.id == 1) == Absent(None, None)
    assert absent_column(NEW, 7, lambda field: field.id != 7) == Absent("q", TEXT, within=True)
    assert absent_column(NEW, 7, lambda field: True) is None


def test_statistics_of_a_column_that_was_dropped_stay_as_they_were_recorded() -> None:
    """Deletes may name it still."""
    evidence = Evidence(Schema(4, ()), (OLD,))
    recorded = file()
    assert evidence.column(recorded, 1) is recorded.stats[1]
    of_struct = file(WITHIN, stats={5: ColumnStats(null_count=2)})
    assert Evidence(NEW, (WITHIN,)).column(of_struct, 5) is of_struct.stats[5]
    # In another schema than the table's, if asked.
    found = evidence.column(recorded, 1, OLD)
    assert found == replace(recorded.stats[1], kind=LONG)


def test_a_condition_within_a_struct_that_a_file_has_is_not_decided_by_the_default() -> None:
    """The struct may be NULL; where the file lacks it as a whole, it is."""
    schemas = [OLD, WITHIN, NEW]
    asked = Comparison(7, "=", Literal(TEXT, "q"))
    assert for_content(asked, OLD.id, schemas) == Constant(None)
    assert for_content(asked, WITHIN.id, schemas) == asked == for_content(asked, NEW.id, schemas)
    assert for_content(Comparison(7, "=", Literal(TEXT, "r")), OLD.id, schemas) == Constant(None)


def test_what_others_wrote_is_not_trusted_file_by_file() -> None:
    by_a = PartitionSpec(1, (PartitionField(1, "identity", "a"),))
    evidence = Evidence(OLD, (), [by_a])
    ours, theirs, more = file(), file(key="g", event="e"), file(key="h", adopted=True)
    for _ in range(2):
        for entry in (ours, theirs, more, theirs, ours):
            known = evidence.trusted(entry)
            assert (known.get(1) is None) is entry.is_foreign
            assert known.get(1) == evidence.trusted(entry).get(1)
        stored = file(key="i", event="e", stats={}, schema_id=9)
        other = Evidence(OLD, [Schema(9, (replace(A, in_partition=0),))])
        for value in (4, 5):
            column = other.trusted(replace(stored, partition=(value,)))[1]
            assert (column.lower, column.upper) == (value, value), "values that are there alone"
    assert evidence.trusted(theirs) is evidence.trusted(theirs), "made once for all erasures"
    of_partition = file(event="e", spec_id=1, partition=(4,))
    assert evidence.of(of_partition)[1].upper == 4 and evidence.trusted(of_partition).get(1) is None


def test_statistics_of_a_key_are_compared_once_in_files_of_others() -> None:
    plain = new_bench().load().snapshot
    plain = replace(plain, schemas=(NEW,), schema_id=NEW.id, primary_key=(2, 4))
    for setting, columns in (
        (None, (2, 4)),
        ("all", (1, 2, 3, 4, 6, 7)),
        ("key", (2, 4)),
        ("none", ()),
    ):
        properties = {} if setting is None else {"ingest.check_statistics": setting}
        snapshot = replace(plain, properties=properties)
        assert compared_columns(snapshot) == columns
        for entry, key, compared, expected in (
            (file(event="e"), (2, 4), (), (2, 4)),
            (file(event="e"), (2, 4), (4, 1), (2,)),
            (file(event="e"), (2, 4), (4, 2), ()),
            (file(), (2, 4), (), ()),
        ):
            due = () if setting == "none" else expected
            assert uncompared(snapshot, entry, key, compared) == due


def test_what_is_known_of_a_file_lists_its_statistics_and_partition() -> None:
    by_b = PartitionSpec(1, (PartitionField(2, "identity", "b"),))
    evidence = Evidence(NEW, (), [by_b])
    for spec_id, listed in ((0, {1}), (1, {1, 2})):
        known = evidence.of(file(NEW, spec_id=spec_id, partition=(4,) if spec_id else ()))
        assert set(known) == listed and len(known) == len(listed)
        assert 4 not in known and (known.get(2) is not None) is (spec_id == 1)


def reference(stats: dict[int, ColumnStats], schema: Schema = OLD, rows: int = 10) -> Segment:
    return Segment(id="s", count=2, size=9, rows=rows, stats=stats, schema_id=schema.id)


NARROW = Schema(0, (Field(1, "a", INT),))
WIDER = Schema(1, (Field(1, "a", LONG), Field(2, "b", LONG)))


def test_a_reference_is_in_the_types_of_the_newest_below_it() -> None:
    evidence = Evidence(WIDER, (NARROW, WIDER))
    old, new = (
        reference({1: ColumnStats(1, 5, 0)}, NARROW),
        reference({1: ColumnStats(3, 2**40, 0, kind=LONG), 2: ColumnStats(1, 2, 0)}, WIDER),
    )
    for references in ([old, new], [new, old]):
        schema_id, stats = evidence.of_references(references)
        assert schema_id == WIDER.id
        assert stats == {1: ColumnStats(1, 2**40, 0, kind=LONG)}, "what each of them bounds"
    assert evidence.of_references([old]) == (NARROW.id, {1: ColumnStats(1, 5, 0, kind=INT)})
    # A type that is given counts, else that of the schema it is asked in.
    of_int = reference({1: ColumnStats(1, 5, 0, kind=INT), 9: ColumnStats(1, 5, 0)}, NARROW)
    assert evidence.of_reference(of_int) == {1: ColumnStats(1, 5, 0, kind=LONG)}
    assert evidence.of_reference(of_int, NARROW) == {1: ColumnStats(1, 5, 0, kind=INT)}
    text = Evidence(Schema(2, (Field(1, "a", TEXT),)), (NARROW,))
    assert text.of_reference(of_int) == {1: ColumnStats(null_count=0, kind=TEXT)}


@pytest.mark.parametrize(
    ("low", "high", "kept"), [(0, 9, True), (0, None, True), (None, 9, True), (None, None, False)]
)
def test_a_reference_has_columns_with_a_bound_alone(
    low: int | None, high: int | None, kept: bool
) -> None:
    evidence = Evidence(OLD)
    stats = {1: ColumnStats(low, high, 0, kind=LONG)}
    _, of_files = evidence.of_files([file(stats=stats), file(key="g", stats=stats)], [1])
    _, of_references = evidence.of_references([reference(stats), reference(stats)])
    assert of_files == of_references == (stats if kept else {})


@pytest.mark.parametrize("foreign", [(), ("f",), ("g",), ("f", "g")])
def test_a_reference_is_sure_if_no_file_below_it_is_anothers(foreign: tuple[str, ...]) -> None:
    files = [file(key=key, event="e" if key in foreign else None) for key in "fg"]
    _, stats = Evidence(OLD).of_files(files, [1])
    assert stats[1].sure is stats[1].exact is (not foreign)


# -- deletes ----------------------------------------------------------------------------------------


def is_(op: Any, value: Any) -> Comparison:
    return Comparison(1, op, Literal(LONG, value))


def test_a_delete_may_hit_files_under_a_reference_unless_bounds_are_apart() -> None:
    evidence = Evidence(OLD)
    known = reference({1: ColumnStats(0, 9, 0, kind=LONG)})

    def keys(low: int, high: int) -> Keys:
        return Keys((1,), "k", 1, 5, {1: ColumnStats(low, high, 0, kind=LONG)})

    for body, hits in (
        (KeyRange(1, 5, 6), True),
        (KeyRange(1, 10, None), False),
        (Where(is_("=", 9)), True),
        (Where(is_(">", 9)), False),
        (keys(9, 20), True),
        (keys(10, 20), False),
        (Rows((1,)), True),
        (KeyRange(77, 5, 6), True),  # of a column that the schema lacks nothing is known
    ):
        marker = Marker(id="m", body=body, sequence=9)
        assert reference_may_hit(marker, known, evidence) is hits, body
        assert reference_may_hit(marker, reference({}), evidence)
        assert marker_may_hit(marker, file(), evidence) is hits, body


def test_an_erasure_leaves_out_no_file_because_of_anothers_statistics() -> None:
    evidence = Evidence(OLD)
    for erasure, event, hits in (
        (None, None, False),
        (None, "e", False),
        ("x", None, False),
        ("x", "e", True),
    ):
        far = Marker(id="m", body=Where(is_(">", 9)), sequence=9, erasure=erasure)
        entry = file(event=event)
        assert marker_may_hit(far, entry, evidence) is hits
        [task] = plan_scan([entry], [far], evidence=evidence).tasks
        assert bool(task.markers) is hits
        [task] = plan_scan(
            [entry], [far, replace(far, body=Rows((1,)), file="f", erasure=None)], evidence=evidence
        ).tasks
        assert task.decides_by_rows is hits


def test_a_condition_that_statistics_decide_is_asked_again_of_rows_that_others_wrote() -> None:
    """Their statistics may leave the file out, and never stand for its rows."""
    evidence = Evidence(OLD)
    sure, part = is_(">=", 0), is_(">", 5)
    for event, by_rows, asked, rest in (
        (None, False, sure, Constant(True)),
        (None, False, part, part),
        ("e", False, sure, sure),
        ("e", True, sure, sure),
        ("e", False, part, part),
    ):
        [task] = plan_scan([file(event=event)], [], asked, evidence=evidence, by_rows=by_rows).tasks
        assert task.predicate == rest, (event, by_rows, asked)


def test_a_task_reads_what_its_file_lacks_from_the_partition() -> None:
    in_partition = Schema(1, (replace(A, in_partition=0), Field(2, "b", LONG)))
    plain = FileTask(file=file(partition=(4,)), schema=OLD)
    assert plain.with_values(NEW) is NEW
    found = replace(plain, schema=in_partition).with_values(NEW)
    assert found == replace(NEW, fields=(replace(A, default=4), *NEW.fields[1:]))


def test_numbers_and_nan_are_looked_for_together() -> None:
    """The last of a list is NaN, where it has one: the others are numbers like any."""
    nan = math.nan

    def decided(low: float, high: float, has_nan: bool | None, values: tuple[float, ...]) -> str:
        known = {1: ColumnStats(low, high, 0, has_nan=has_nan, kind=DOUBLE)}
        return coverage(In(1, DOUBLE, values), known, 3)

    for values, without, with_nan in (
        ((1.0, nan), "some", "some"),
        ((nan,), "none", "some"),
        ((0.0, nan), "none", "some"),
        ((0.0, 2.0, nan), "some", "some"),
        ((0.0, 3.0), "none", "none"),
        ((1.0, 2.0), "some", "some"),
    ):
        assert decided(1.0, 2.0, False, values) == without, values
        for has_nan in (True, None):
            assert decided(1.0, 2.0, has_nan, values) == with_nan, values
    # Of one number, and NaN perhaps.
    for values, without, with_nan in (
        ((1.0,), "all", "some"),
        ((1.0, nan), "all", "all"),
        ((1.0, 2.0), "all", "some"),
        ((2.0, nan), "none", "some"),
        ((2.0,), "none", "none"),
    ):
        assert decided(1.0, 1.0, False, values) == without, values
        for has_nan in (True, None):
            assert decided(1.0, 1.0, has_nan, values) == with_nan, values


def test_nothing_equals_a_key_where_there_are_no_rows_or_no_keys() -> None:
    known = {1: ColumnStats(0, 9, 0)}
    for keys, rows, may in ((1, 1, True), (0, 1, False), (1, 0, False), (2, 3, True)):
        listed = Keys((1,), "k", 1, keys, {1: ColumnStats(5, 6, 0)})
        assert keys_may_match(listed, known, rows) is may, (keys, rows)


def test_keys_that_may_be_nan_meet_rows_that_may_be() -> None:
    """However little else is known; a lower bound alone says that both are numbers of that kind."""
    nan, plain = (ColumnStats(20.0, None, 0, has_nan=has, kind=DOUBLE) for has in (None, False))
    for of_keys, of_rows, may in ((nan, nan, True), (plain, nan, False), (nan, plain, False)):
        rows = replace(of_rows, lower=None, upper=10.0)
        listed = Keys((1,), "k", 1, 3, {1: of_keys})
        assert keys_may_match(listed, {1: rows}, 3) is may


def test_three_valued_logic_joins_what_each_part_can_be() -> None:
    """Of parts that can only be TRUE, FALSE or NULL, and of one that may be any."""
    schema: dict[str, Any] = {"true": Constant(True), "false": Constant(False)}
    schema |= {"null": Constant(None), "any": Comparison(1, ">", Literal(LONG, 5))}
    stats = {1: ColumnStats(0, 9, 1)}
    values: dict[str, tuple[bool | None, ...]] = {
        "true": (True,),
        "false": (False,),
        "null": (None,),
        "any": (True, False, None),
    }
    for a, b in itertools.product(schema, repeat=2):
        results = {
            False if False in (x, y) else None if None in (x, y) else True
            for x in values[a]
            for y in values[b]
        }
        both = And((schema[a], schema[b]))
        turned = Or((Not(schema[a]), Not(schema[b])))
        assert may_match(both, stats, 4) is (True in results), (a, b)
        assert all_match(both, stats, 4) is (results == {True}), (a, b)
        for negated in (Not(both), turned):
            assert may_match(negated, stats, 4) is (False in results), (a, b)
            assert all_match(negated, stats, 4) is (results == {False}), (a, b)

"""Planning is quick, its values travel, and a task can be cut without losing a row."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from typing import Any

from inlay.format.entry import (
    ColumnStats,
    DataFile,
    KeyRange,
    Keys,
    Marker,
    RowGroups,
    Rows,
    Vector,
    Where,
)
from inlay.format.predicate import TRUE, And, Comparison, IsNull, Literal, Not, Operator, Or
from inlay.format.schema import Field, Primitive, Schema
from inlay.format.snapshot import PartitionField, PartitionSpec
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import FileTask, marker_may_hit, plan_scan, residual

LONG, DOUBLE = Primitive("int64"), Primitive("double")
SCHEMA = Schema(
    0, (Field(1, "id", LONG), Field(2, "x", DOUBLE), Field(3, "day", Primitive("date")))
)
FILE = DataFile(
    key="f",
    size=1000,
    footer_size=100,
    rows=10,
    row_groups=4,
    schema_id=0,
    sequence=3,
    stats={1: ColumnStats(10, 19, 0), 2: ColumnStats(0.0, 1.0, 0)},
)


def is_(field: int, op: Operator, value: Any, kind: Primitive = LONG) -> Comparison:
    return Comparison(field, op, Literal(kind, value))


def plan(files: Any, markers: Any = (), predicate: Any = TRUE, **known: Any) -> Any:
    return plan_scan(files, markers, predicate, evidence=Evidence(SCHEMA, **known))


def gone(body: Any, **options: Any) -> Marker:
    return Marker(**{"id": "m", "body": body, "sequence": 9, **options})


def test_what_statistics_settle_is_not_asked_again() -> None:
    [task] = plan([FILE], predicate=And((is_(1, ">=", 10), is_(1, "<", 15)))).tasks
    assert task.predicate == is_(1, "<", 15)
    [task] = plan([FILE], predicate=is_(1, ">=", 10)).tasks
    assert task.predicate == TRUE and task.whole


def test_only_deletes_that_can_hit_are_attached() -> None:
    far, near = gone(KeyRange(1, 20, 30)), gone(KeyRange(1, 15, 30))
    [task] = plan([FILE], [far, near]).tasks
    assert task.markers == (near,)
    old, of_another = gone(KeyRange(1, 15, 30), sequence=3), gone(Rows((1,)), file="g")
    [task] = plan([FILE], [old, of_another]).tasks
    assert task.markers == ()


def test_nan_is_above_every_bound() -> None:
    # Whether `x` has a NaN is unknown, and NaN is above 5: the delete may hit.
    above = gone(Where(is_(2, ">", 5.0, DOUBLE)))
    [task] = plan([FILE], [above]).tasks
    assert task.markers == (above,)
    sure = replace(FILE, stats={2: ColumnStats(0.0, 1.0, 0, has_nan=False)})
    [task] = plan([sure], [above]).tasks
    assert task.markers == ()


def test_files_deleted_whole_are_not_read() -> None:
    for body, options in (
        (KeyRange(1, 10, 19), {}),
        (Where(is_(1, ">=", 10)), {}),
        (RowGroups((0, 1, 2, 3)), {"file": "f"}),
        (Rows(tuple(range(10))), {"file": "f"}),
    ):
        found = plan([FILE], [gone(body, **options)])
        assert (found.tasks, found.deleted) == ((), 1), body
    for body, options in (
        (KeyRange(1, 10, 18), {}),
        (Where(is_(2, ">=", 0.5, DOUBLE)), {}),
        (RowGroups((0, 1, 2)), {"file": "f"}),
        (Rows(tuple(range(9))), {"file": "f"}),
    ):
        found = plan([FILE], [gone(body, **options)])
        assert (len(found.tasks), found.deleted) == (1, 0), body


def test_a_column_the_file_was_written_without_is_null() -> None:
    old = Schema(7, SCHEMA.fields[:1])
    entry = replace(FILE, schema_id=7)
    schemas = (SCHEMA, old)
    assert plan([entry], predicate=is_(3, "=", 5, Primitive("date")), schemas=schemas).pruned == 1
    [task] = plan([entry], predicate=IsNull(3), schemas=schemas).tasks
    assert task.predicate == TRUE and task.schema == old


def test_partition_values_prune() -> None:
    spec = PartitionSpec(2, (PartitionField(3, "identity", "day"),))
    entry = replace(FILE, spec_id=2, partition=(100,))
    specs = (spec,)
    day = Primitive("date")
    assert plan([entry], predicate=is_(3, "=", 99, day), specs=specs).pruned == 1
    [task] = plan([entry], predicate=is_(3, "=", 100, day), specs=specs).tasks
    assert task.predicate == TRUE
    null = replace(entry, partition=(None,))
    assert plan([null], predicate=is_(3, "=", 99, day), specs=specs).pruned == 1
    # Of a spec that is not known nothing is concluded.
    assert plan([entry], predicate=is_(3, "=", 99, day)).pruned == 0


def test_a_task_pickles() -> None:
    [task] = plan([FILE], [gone(KeyRange(1, 15, 30))], is_(1, "<", 15)).tasks
    assert pickle.loads(pickle.dumps(task)) == task


def test_many_deletes_times_many_files_are_planned_in_time() -> None:
    files = [
        replace(FILE, key=str(n), stats={1: ColumnStats(n * 100, n * 100 + 99, 0)})
        for n in range(2000)
    ]
    markers = [gone(KeyRange(1, n * 1000, n * 1000 + 50), id=str(n)) for n in range(200)]
    started = time.process_time()
    found = plan(files, markers)
    assert found.markers == 200 and len(found.tasks) == 2000
    # 400,000 pairs: 0.1 s, where asking each exactly took 8.
    assert time.process_time() - started < 2


def test_a_range_applies_to_a_file_exactly_if_its_bounds_meet_it() -> None:
    """Of a file with the values 10 to 19: ranges around, within, touching, open or not, one and many."""
    ends = [None, 8, 9, 10, 11, 14, 18, 19, 20, 21]
    ranges = [
        KeyRange(1, low, high, lower_in, upper_in)
        for low in ends
        for high in ends
        for lower_in in (True, False)
        for upper_in in (True, False)
        if low is None or high is None or low < high or (low == high and lower_in and upper_in)
    ]
    alone = {}
    for body in ranges:
        meets = [_within(n, body) for n in range(10, 20)]
        found = plan([FILE], [gone(body)])
        # Between two values no integer lies, and that the bounds do not say.
        touches = [_within(n / 2, body) for n in range(20, 39)]
        assert bool(found.deleted) == (all(meets) and all(touches)), body
        applied = [len(task.markers) for task in found.tasks]
        alone[id(body)] = applied == [1]
        assert applied == ([] if found.deleted else [any(touches)]), body
    together = [gone(body, id=str(n)) for n, body in enumerate(ranges)]
    few = [m for m in together if not all(_within(n, m.body) for n in range(10, 20))]
    [task] = plan([FILE], few).tasks
    assert [m.id for m in task.markers] == [m.id for m in few if alone[id(m.body)]]
    later = [replace(m, sequence=3) for m in few]  # the file came with them, or after
    [task] = plan([FILE], later).tasks
    assert task.markers == ()


def _within(value: float, body: KeyRange) -> bool:
    low, high = body.lower, body.upper
    above = low is None or value > low or (body.lower_inclusive and value == low)
    below = high is None or value < high or (body.upper_inclusive and value == high)
    return bool(above and below)


def test_deletes_of_a_file_are_in_the_order_of_the_table() -> None:
    """Whatever they are found by: ranges of two columns, conditions, deletes of the file."""
    bodies = [
        KeyRange(1, 12, 13),
        KeyRange(2, 0.25, 0.5),
        Where(IsNull(3)),
        KeyRange(1, 14, 15),
        KeyRange(2, 0.5, 0.75),
    ]
    markers = [gone(body, id=str(n)) for n, body in enumerate(bodies)]
    [task] = plan([FILE], markers).tasks
    assert [m.id for m in task.markers] == ["0", "1", "2", "3", "4"]
    [task] = plan([FILE], markers[::-1]).tasks
    assert [m.id for m in task.markers] == ["4", "3", "2", "1", "0"]


def test_only_what_others_wrote_is_judged_by_its_rows_and_only_if_asked() -> None:
    landed = replace(FILE, event="landed")
    for file, by_rows, expected in (
        (FILE, False, False),
        (FILE, True, False),
        (landed, False, False),
        (landed, True, True),
    ):
        [task] = plan_scan([file], (), evidence=Evidence(SCHEMA), by_rows=by_rows).tasks
        assert task.by_rows is expected
    beyond = is_(1, ">", 50)
    assert plan_scan([landed], (), beyond, evidence=Evidence(SCHEMA)).tasks == ()
    [task] = plan_scan([landed], (), beyond, evidence=Evidence(SCHEMA), by_rows=True).tasks
    assert task.predicate == beyond
    assert plan_scan([FILE], (), beyond, evidence=Evidence(SCHEMA), by_rows=True).tasks == ()


def test_ranges_of_two_columns_are_in_the_order_of_the_table() -> None:
    bodies = [KeyRange(1, 12, 13), KeyRange(2, 0.25, 0.5), KeyRange(1, 14, 15)]
    markers = [gone(body, id=str(n)) for n, body in enumerate(bodies)]
    [task] = plan([FILE], markers).tasks
    assert [m.id for m in task.markers] == ["0", "1", "2"]


def test_a_range_from_before_a_column_became_a_time_is_compared_as_one() -> None:
    """A day of the marker, microseconds in the table, days in the file."""
    day, moment = Primitive("date"), Primitive("timestamp", unit="us")
    old = Schema(0, (Field(1, "at", day),))
    new = Schema(1, (Field(1, "at", moment),))
    file = replace(FILE, stats={1: ColumnStats(10, 19, 0)})
    evidence = Evidence(new, (old,))
    us = 86_400_000_000

    def applied(body: KeyRange) -> int | str:
        found = plan_scan([file], [gone(body)], evidence=evidence)
        return "all" if found.deleted else len(found.tasks[0].markers)

    for kind, step in ((day, 1), (moment, us), (None, us)):
        assert applied(KeyRange(1, 12 * step, 14 * step, kind=kind)) == 1
        assert applied(KeyRange(1, 30 * step, 40 * step, kind=kind)) == 0
        assert applied(KeyRange(1, 2 * step, 4 * step, kind=kind)) == 0
        assert applied(KeyRange(1, 10 * step, 19 * step, kind=kind)) == "all"


def test_keys_apply_where_their_bounds_meet_the_files_or_are_unknown() -> None:
    def keys(low: int | None, high: int | None) -> Keys:
        stats = {} if low is None else {1: ColumnStats(low, high, 0, kind=LONG)}
        return Keys((1,), "k", 1, 5, stats)

    for low, high, expected in ((None, None, 1), (19, 30, 1), (0, 10, 1), (20, 30, 0), (0, 9, 0)):
        [task] = plan([FILE], [gone(keys(low, high))]).tasks
        assert len(task.markers) == expected, (low, high)


def test_deletes_of_a_file_take_it_whole_only_if_they_name_every_row() -> None:
    for body, whole in (
        (Rows(tuple(range(10))), True),
        (Rows(tuple(range(9))), False),
        (RowGroups((0, 1, 2, 3)), True),
        (RowGroups((0, 1, 2, 2)), False),
        (RowGroups((0, 1, 2)), False),
        (Vector("v", 0, 1, 10), True),
        (Vector("v", 0, 1, 9), False),
    ):
        found = plan([FILE], [gone(body, file="f")])
        assert (found.deleted, len(found.tasks)) == ((1, 0) if whole else (0, 1)), body
        other = plan([FILE], [gone(body, file="g")])
        assert (other.deleted, other.tasks[0].markers) == (0, ())


def test_only_an_erasure_of_what_others_wrote_is_decided_by_rows() -> None:
    erasing = gone(Where(is_(1, ">", 11)), erasure="e")
    plain = gone(Where(is_(1, ">", 11)))
    landed = replace(FILE, event="landed")
    for file, marker, expected in (
        (FILE, plain, False),
        (FILE, erasing, False),
        (landed, plain, False),
        (landed, erasing, True),
    ):
        [task] = plan([file], [marker]).tasks
        assert task.decides_by_rows is expected


def test_a_task_knows_its_rows_where_one_delete_by_position_counts_them() -> None:
    deleted: dict[Any, int | None] = {
        (): 10,
        (Rows((1, 4)),): 8,
        (Rows((1, 4, 4)),): 8,
        (Vector("v", 0, 1, 3),): 7,
        (Rows((1,)), Rows((2,))): None,
        (Vector("v", 0, 1, 3), Rows((2,))): None,
        (KeyRange(1, 12, 13),): None,
        (RowGroups((1,)),): None,
    }
    for bodies, rows in deleted.items():
        markers = tuple(gone(body, file="f") for body in bodies)
        task = FileTask(file=FILE, schema=SCHEMA, markers=markers)
        assert task.live_rows == rows and task.whole is (not bodies), bodies
        for part in (
            replace(task, only=(gone(Rows((1,))),)),
            replace(task, predicate=IsNull(1)),
            replace(task, row_groups=(0,)),
            replace(task, row_groups=()),
        ):
            assert part.live_rows is None and not part.whole
    known, unknown = (FileTask(file=FILE, schema=SCHEMA, row_groups=g) for g in (None, (0,)))
    found = plan([FILE, replace(FILE, key="g")], [gone(Rows((1,)), file="f")])
    assert (found.live_rows, found.rows, found.bytes, found.markers) == (19, 20, 2000, 1)
    assert (found.files, found.pruned, found.deleted) == (2, 0, 0)
    assert replace(found, tasks=(known, unknown)).live_rows is None
    assert replace(found, tasks=(known, known)).live_rows == 20
    same = gone(KeyRange(1, 12, 13))
    assert plan([FILE, replace(FILE, key="g")], [same]).markers == 1


def test_rows_at_positions_are_all_or_those_alone() -> None:
    task = FileTask(file=FILE, schema=SCHEMA, markers=(gone(Rows((9,))),), predicate=IsNull(1))
    some = task.at(range(9))
    [only] = some.only
    assert only.body == Rows(tuple(range(9))) and only.file == "f"
    assert (some.markers, some.predicate) == ((), TRUE)
    assert task.at(range(10)).whole


def test_what_deletes_rows_of_a_task_is_told_by_kind() -> None:
    keys, where = Keys((1,), "k", 1, 5, {}), is_(1, ">", 5)
    by_range = And((is_(1, ">=", 2), is_(1, "<=", 3)))
    for bodies, expected in (
        ((), ((), (), False)),
        ((keys,), ((), (keys,), False)),
        ((Where(where),), ((where,), (), False)),
        ((KeyRange(1, 2, 3), Where(where)), ((by_range, where), (), False)),
        ((Rows((1,)),), ((), (), True)),
        ((Where(where), RowGroups((1,))), ((where,), (), True)),
        ((Where(where), keys, Vector("v", 0, 1, 3)), ((where,), (keys,), True)),
        ((Where(where), keys), ((where,), (keys,), False)),
    ):
        task = FileTask(file=FILE, schema=SCHEMA, markers=tuple(map(gone, bodies)))
        assert task.deletes(SCHEMA) == expected, bodies


def test_what_is_left_of_a_condition_are_the_parts_that_rows_can_fail() -> None:
    known = {1: ColumnStats(10, 19, 0)}
    sure, unsure, other = is_(1, ">=", 10), is_(1, "<", 15), is_(1, ">", 12)
    assert residual(sure, known, 10) == TRUE and residual(unsure, known, 10) == unsure
    assert residual(And((sure, unsure)), known, 10) == unsure
    assert residual(And((sure, unsure, other)), known, 10) == And((unsure, other))
    assert residual(And((sure, sure)), known, 10) == TRUE
    assert residual(Not(And((unsure, other))), known, 10) == Not(And((unsure, other)))
    assert residual(Or((unsure, other)), known, 10) == Or((unsure, other))


def test_a_marker_of_a_file_hits_it_and_one_of_the_table_what_is_older() -> None:
    evidence = Evidence(SCHEMA)
    for sequence, entry_sequence, hits in (
        (3, 3, False),
        (4, 3, True),
        (2, 3, False),
        (None, 3, True),
        (1, None, True),
    ):
        marker = gone(KeyRange(1, 12, 13), sequence=sequence)
        entry = replace(FILE, sequence=entry_sequence)
        assert marker_may_hit(marker, entry, evidence) is hits
        found = plan([entry], [marker]).tasks
        assert bool(found[0].markers) is hits, (sequence, entry_sequence)
        assert marker_may_hit(replace(marker, file="f"), entry, evidence)
        assert not marker_may_hit(replace(marker, file="g"), entry, evidence)


def test_a_file_without_rows_has_nothing_to_read() -> None:
    empty = replace(FILE, rows=0, stats={})
    for markers in ([], [gone(KeyRange(1, 12, 13))]):
        found = plan([empty], markers)
        assert (found.tasks, found.files, found.pruned) == ((), 1, 1)

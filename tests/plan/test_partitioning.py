"""How a table's partitioning changes, and what the partition of a file says that its rows do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.maintenance.bench import new_bench

from inlay.errors import CorruptTable
from inlay.format.entry import ColumnStats, DataFile
from inlay.format.partition import MAX_SPECS, parse_transform
from inlay.format.predicate import Like
from inlay.format.schema import Field, Primitive, Schema, Struct
from inlay.format.snapshot import PartitionField, PartitionSpec, Snapshot
from inlay.plan.change import SetPartitioning
from inlay.plan.pruning.partitions import (
    PartitionFact,
    applies_to,
    has_partitioning,
    repartitioned,
    spans_partitions,
    validate_spec,
    value_in,
    with_partition_values,
)
from inlay.plan.pruning.prune import Evidence, may_match

INT, LONG, TEXT = Primitive("int32"), Primitive("int64"), Primitive("string")
DAY, MOMENT = Primitive("date"), Primitive("timestamp", unit="us")
BY_ID, BY_DAY = PartitionField(1, "bucket[4]", "id"), PartitionField(2, "day", "day")
BY_HOUR = PartitionField(2, "hour", "hour")
SCHEMA = Schema(0, (Field(1, "id", LONG), Field(2, "at", MOMENT), Field(3, "name", TEXT)))


def spec(id_: int, *fields: PartitionField) -> PartitionSpec:
    return PartitionSpec(id_, fields)


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    plain = new_bench().load().snapshot
    specs = (spec(0), spec(3, BY_ID), spec(7, BY_ID, BY_DAY), spec(5, BY_DAY))
    return replace(plain, schemas=(SCHEMA,), schema_id=0, specs=specs, spec_id=3)


def test_columns_of_a_partitioning_are_there_and_of_types_that_it_takes() -> None:
    date = Schema(0, (Field(1, "id", LONG), Field(2, "at", DAY)))
    for fields, schema, applies in (
        ((), SCHEMA, True),
        ((BY_ID,), SCHEMA, True),
        ((BY_ID, BY_HOUR), SCHEMA, True),
        ((BY_ID, BY_DAY), date, True),
        ((BY_HOUR,), date, False),
        ((BY_ID, BY_HOUR), date, False),
        ((BY_HOUR, BY_ID), date, False),
        ((PartitionField(9, "identity", "gone"),), SCHEMA, False),
        ((BY_ID, PartitionField(9, "identity", "gone")), SCHEMA, False),
    ):
        assert applies_to(fields, schema) is applies, fields


def test_a_partitioning_that_the_table_had_is_taken_up_again(snapshot: Snapshot) -> None:
    for fields, spec_id in (((), 0), ((BY_ID,), 3), ((BY_ID, BY_DAY), 7), ((BY_DAY,), 5)):
        edit = SetPartitioning(3, fields)
        assert has_partitioning(snapshot, edit) is (spec_id == 3)
        assert validate_spec(snapshot, edit) is None
        assert repartitioned(snapshot, edit) == replace(snapshot, spec_id=spec_id)
    edit = SetPartitioning(3, (BY_DAY, BY_ID))
    assert not has_partitioning(snapshot, edit)
    new = repartitioned(snapshot, edit)
    assert (new.spec_id, new.specs) == (8, (*snapshot.specs, spec(8, BY_DAY, BY_ID)))


def test_a_partitioning_is_refused_where_another_commit_changed_what_it_rests_on(
    snapshot: Snapshot,
) -> None:
    def why(base: Snapshot, planned_on: int, *fields: PartitionField) -> str | None:
        conflict = validate_spec(base, SetPartitioning(planned_on, fields))
        return None if conflict is None else conflict.reason

    assert "in another way by another commit" in (why(snapshot, 0, BY_ID) or "")
    gone = PartitionField(9, "identity", "gone")
    assert "was dropped or has another type" in (why(snapshot, 3, BY_ID, gone) or "")
    # As many as a table may have; one that it has is none more.
    specs = tuple(spec(n, *snapshot.specs[1].fields[: n % 2]) for n in range(MAX_SPECS))
    full = replace(snapshot, specs=specs, spec_id=0)
    assert "which is the maximum" in (why(full, 0, BY_DAY) or "")
    assert why(full, 0, BY_ID) is None
    assert why(replace(full, specs=specs[:-1]), 0, BY_DAY) is None


def file(**options: Any) -> DataFile:
    plain = {"size": 9, "footer_size": 9, "rows": 5, "row_groups": 1, "schema_id": 0}
    return DataFile(key="a", **{**plain, **options})


def test_a_file_spans_partitions_if_its_spec_has_some_and_it_is_in_none() -> None:
    specs = [spec(0), spec(1, BY_ID), spec(2, BY_ID, BY_DAY)]
    for spec_id, partition, spans in (
        (0, (), False),
        (1, (), True),
        (2, (), True),
        (1, (3,), False),
        (2, (None, None), False),
        (9, (), False),
    ):
        entry = file(spec_id=spec_id, partition=partition)
        assert spans_partitions(entry, specs) is spans
        assert spans_partitions(entry, specs[::-1]) is spans
        assert spans_partitions(entry, iter(specs)) is spans


def test_a_column_that_is_in_the_partition_alone_has_its_value_as_default() -> None:
    """In the type that the column has now; other columns stay as they are."""
    recorded = Schema(
        0,
        (
            Field(1, "id", INT, in_partition=1),
            Field(2, "b", TEXT, in_partition=0),
            Field(3, "c", INT),
        ),
    )
    now = Schema(
        1,
        (
            Field(1, "id", LONG, default=9),
            Field(2, "b", TEXT),
            Field(3, "c", LONG, default=8),
            Field(4, "s", Struct((Field(5, "x", INT),))),
        ),
    )
    found = with_partition_values(now, recorded, ("text", 7))
    assert [field.default for field in found.fields] == [7, "text", 8, None]
    assert [field.type for field in found.fields] == [field.type for field in now.fields]
    assert all(field.in_partition is None for field in found.fields)
    nulls = with_partition_values(now, recorded, (None, None))
    assert [field.default for field in nulls.fields] == [None, None, 8, None]
    as_recorded = with_partition_values(recorded, recorded, ("text", 7))
    assert [field.default for field in as_recorded.fields] == [7, "text", None]
    days = Schema(0, (Field(1, "at", DAY, in_partition=0),))
    moments = Schema(1, (Field(1, "at", MOMENT),))
    [at] = with_partition_values(moments, days, (2,)).fields
    assert at.default == 2 * 86_400 * 10**6, "in microseconds"


def test_a_partition_without_a_value_for_a_column_that_the_file_lacks_is_corrupt() -> None:
    field = Field(1, "id", INT, in_partition=1)
    assert value_in(field, ("x", 7)) == 7 and value_in(field, ("x", None)) is None
    for partition in ((), ("x",)):
        with pytest.raises(CorruptTable, match="has no value for it"):
            value_in(field, partition)


def test_a_text_starts_as_every_partition_value_of_it_allows() -> None:
    """By two fields on one column, of which one alone rules a prefix out."""
    by_bucket, by_text = PartitionField(3, "bucket[4]", "b"), PartitionField(3, "truncate[1]", "t")
    for fields, partition in (((by_bucket, by_text), (1, "a")), ((by_text, by_bucket), ("a", 1))):
        entry = file(spec_id=1, partition=partition, stats={3: ColumnStats(None, None, 0)})
        evidence = Evidence(SCHEMA, (), [spec(1, *fields)])
        known = evidence.of(entry)
        assert may_match(Like(3, "a%"), known, 5)
        facts = [f.admits_prefix("b") for f in known[3].facts]  # type: ignore[attr-defined]
        assert sorted(facts) == [False, True]
        without_bounds = {3: replace(known[3], lower=None, upper=None)}
        assert not may_match(Like(3, "b%"), without_bounds, 5)
        assert may_match(Like(3, "a%"), without_bounds, 5)
    bucket = PartitionFact(parse_transform("bucket[4]"), TEXT, 1)
    assert bucket.admits_prefix("b")

"""Pruning by partition: never wrong, and as sharp as the transform allows."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import predicate_oracle as oracle
import predicate_strategies as some
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_values import TRANSFORMS

from inlay.format.entry import ColumnStats, DataFile, Keys, Marker
from inlay.format.partition import Partition, parse_transform, partition_of, result_type
from inlay.format.predicate import Comparison, IsNull, Literal
from inlay.format.schema import Field, Primitive, Schema, parse_primitive
from inlay.format.snapshot import PartitionField, PartitionSpec
from inlay.format.values import is_nan, order_key
from inlay.ops.maintain.rewrite_file import partition_for_output
from inlay.parquet.read.describe import partition_from_stats
from inlay.parse import parse_predicate
from inlay.plan.pruning.partitions import PartitionFact, with_partition
from inlay.plan.pruning.prune import Evidence, all_match, may_match
from inlay.plan.scan import marker_may_hit, plan_scan

Row = dict[int, Any]


def file(partition: Partition, **options: Any) -> DataFile:
    plain: dict[str, Any] = {
        "key": f"{partition}", "size": 1000, "footer_size": 100, "rows": 10, "row_groups": 1,
        "schema_id": 0, "sequence": 1, "spec_id": 1, "partition": partition,
    }  # fmt: skip
    return DataFile(**{**plain, **options})


def true_stats(field: Field, column: list[Any]) -> ColumnStats:
    kind = field.type
    assert isinstance(kind, Primitive)
    numbers = sorted((v for v in column if v is not None and not is_nan(v)), key=order_key)
    return ColumnStats(
        numbers[0] if numbers else None,
        numbers[-1] if numbers else None,
        column.count(None),
        has_nan=any(map(is_nan, column)) if kind.is_float else False,
        kind=kind,
    )


@st.composite
def specs(draw: Any, fields: list[Field]) -> PartitionSpec:
    options = [
        PartitionField(f.id, str(t), f"{f.name}_{t}")
        for f in fields
        for t in TRANSFORMS
        if isinstance(f.type, Primitive) and result_type(t, f.type) is not None
    ]
    chosen = draw(st.lists(st.sampled_from(options), min_size=1, max_size=3, unique=True))
    return PartitionSpec(1, tuple(chosen))


def partitions(spec: PartitionSpec, schema: Schema, rows: list[Row]) -> dict[Partition, list[Row]]:
    found: dict[Partition, list[Row]] = defaultdict(list)
    for row in rows:
        values = []
        for field in spec.fields:
            kind = schema.by_id(field.source).type  # type: ignore[union-attr]
            assert isinstance(kind, Primitive)
            values.append(partition_of(parse_transform(field.transform), kind, row[field.source]))
        found[tuple(values)].append(row)
    return found


@settings(deadline=None, max_examples=250)
@given(data=st.data())
def test_pruning_never_contradicts_the_rows(data: st.DataObject) -> None:
    fields, rows, predicate = data.draw(some.tables())
    schema = Schema(0, tuple(fields))
    spec = data.draw(specs(fields))
    evidence = Evidence(schema, specs=(spec,))
    with_stats = data.draw(st.booleans())
    for partition, inside in partitions(spec, schema, rows).items():
        stats = {f.id: true_stats(f, [row[f.id] for row in inside]) for f in fields}
        entry = file(partition, rows=len(inside), stats=stats if with_stats else {})
        found = [oracle.truth(predicate, row) is True for row in inside]
        assert may_match(predicate, evidence.of(entry), entry.rows) or not any(found)
        assert not all_match(predicate, evidence.of(entry), entry.rows) or all(found)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_partition_derived_from_statistics_is_that_of_every_row(data: st.DataObject) -> None:
    fields, rows, _ = data.draw(some.tables(max_rows=3))
    schema = Schema(0, tuple(fields))
    spec = data.draw(specs(fields))
    stats = {f.id: true_stats(f, [row[f.id] for row in rows]) for f in fields}
    told = partition_from_stats(spec, schema, stats, len(rows)) if rows else None
    assert told is None or set(partitions(spec, schema, rows)) == {told}


@pytest.mark.parametrize(
    ("stats", "partition"),
    [
        (ColumnStats(0.5, 0.5, 0, has_nan=False), (0.5,)),
        (ColumnStats(0.5, 0.5, 0, has_nan=True), None),
        (ColumnStats(0.5, 0.5, 0), None),
        (ColumnStats(0.5, 0.5, 1, has_nan=False), None),
        (ColumnStats(0.5, 0.5, None, has_nan=False), None),
        (ColumnStats(0.5, None, 0, has_nan=False), None),
        (ColumnStats(null_count=9, has_nan=False), (None,)),
        (ColumnStats(null_count=8, has_nan=True), None),
    ],
)
def test_statistics_give_a_partition_only_where_they_are_certain(
    stats: ColumnStats, partition: Partition | None
) -> None:
    schema = Schema(0, (Field(1, "x", Primitive("double")),))
    spec = PartitionSpec(1, (PartitionField(1, "identity", "x"),))
    assert partition_from_stats(spec, schema, {1: stats}, 9) == partition


def test_bounds_in_one_bucket_say_nothing_of_values_between() -> None:
    twin = next(n for n in range(35, 1000) if _bucket(n) == _bucket(34))
    spec = spec_of("bucket(100, id)")
    for upper, partition in ((34, (_bucket(34),)), (twin, None)):
        stats = {1: ColumnStats(34, upper, 0)}
        assert partition_from_stats(spec, SCHEMA, stats, 9) == partition


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_keys_that_equal_a_row_reach_its_file(data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(some.SCHEMA.fields))
    schema = Schema(0, (field,))
    spec = data.draw(specs([field]))
    rows = [{field.id: v} for v in data.draw(some.columns(field, 3))]
    keys = data.draw(some.columns(field, 2))
    body = Keys((field.id,), "k", 1, 2, {field.id: true_stats(field, keys)})
    marker = Marker(id="m", body=body, sequence=9)
    evidence = Evidence(schema, specs=(spec,))
    for partition, inside in partitions(spec, schema, rows).items():
        equal = any(
            row[field.id] is not None and key is not None
            and oracle.three_way(row[field.id], key) == 0
            for row in inside for key in keys
        )  # fmt: skip
        assert marker_may_hit(marker, file(partition, rows=len(inside)), evidence) or not equal


# -- as sharp as it can be ------------------------------------------------------------------------

DAY = 86_400_000_000
SCHEMA = Schema(
    0,
    tuple(
        Field(n, name, parse_primitive(kind))
        for n, (name, kind) in enumerate(
            {
                "id": "int64", "ts": "timestamp(us)", "at": "timestamptz(us)", "d": "date",
                "name": "string", "price": "decimal(9,2)", "x": "double", "raw": "binary",
            }.items(), 1,
        )
    ),
)  # fmt: skip


def spec_of(*texts: str) -> PartitionSpec:
    from inlay.parse.partitioning import partition_fields

    return PartitionSpec(1, partition_fields(texts, SCHEMA))


def read(spec: PartitionSpec, values: list[Any], where: str) -> list[Any]:
    """The partitions whose files are read; no file has statistics."""
    files = [file(v if isinstance(v, tuple) else (v,)) for v in values]
    predicate = parse_predicate(where, SCHEMA)
    plan = plan_scan(files, (), predicate, evidence=Evidence(SCHEMA, specs=(spec,)))
    return [
        v.partition if len(v.partition) > 1 else v.partition[0]
        for v in (t.file for t in plan.tasks)
    ]


FIRST = (date(2024, 2, 28) - date(1970, 1, 1)).days
DAYS = [None, -2, -1, 0, FIRST, FIRST + 1, FIRST + 2]


@pytest.mark.parametrize(
    ("where", "days"),
    [
        ("ts = TIMESTAMP '2024-02-29 12:00:00'", [FIRST + 1]),
        ("ts < TIMESTAMP '2024-02-29 00:00:00'", [-2, -1, 0, FIRST]),
        ("ts <= TIMESTAMP '2024-02-29 00:00:00'", [-2, -1, 0, FIRST, FIRST + 1]),
        ("ts >= TIMESTAMP '2024-02-29 00:00:00'", [FIRST + 1, FIRST + 2]),
        ("ts > TIMESTAMP '2024-02-28 23:59:59.999999'", [FIRST + 1, FIRST + 2]),
        ("ts < TIMESTAMP '1970-01-01 00:00:00'", [-2, -1]),
        ("ts < TIMESTAMP '1969-12-31 00:00:00'", [-2]),
        ("ts IS NULL", [None]),
        ("ts IS NOT NULL", [-2, -1, 0, FIRST, FIRST + 1, FIRST + 2]),
        ("ts = TIMESTAMP '2024-02-29 12:00:00' OR ts IS NULL", [None, FIRST + 1]),
        ("NOT (ts < TIMESTAMP '2024-02-29 00:00:00')", [FIRST + 1, FIRST + 2]),
        ("ts BETWEEN TIMESTAMP '1969-12-31 01:00:00' AND TIMESTAMP '1970-01-01 00:00:00'", [-1, 0]),
    ],
)
def test_days_are_pruned_by_range(where: str, days: list[int | None]) -> None:
    assert read(spec_of("day(ts)"), DAYS, where) == days


def test_years_months_and_hours_are_pruned_by_range() -> None:
    after = "ts >= TIMESTAMP '2024-03-01 00:00:00'"
    assert read(spec_of("year(ts)"), [-1, 53, 54, 55], after) == [54, 55]
    assert read(spec_of("month(ts)"), [-1, 648, 649, 650, 651], after) == [650, 651]
    before_epoch = "ts < TIMESTAMP '1969-12-31 23:00:00'"
    assert read(spec_of("hour(ts)"), [-3, -2, -1, 0], before_epoch) == [-3, -2]
    assert read(spec_of("month(d)"), [-2, -1, 0], "d = DATE '1969-12-31'") == [-1]


def test_a_timestamp_with_a_zone_is_an_instant() -> None:
    # 23:30 in New York is half past three on the next day in UTC.
    where = "at = TIMESTAMP '2024-02-28 23:30:00-04:00'"
    assert read(spec_of("day(at)"), [FIRST, FIRST + 1], where) == [FIRST + 1]


def test_buckets_are_pruned_by_equality_and_lists() -> None:
    spec, all_of_them = spec_of("bucket(100, id)"), [None, *range(100)]
    assert read(spec, all_of_them, "id = 34") == [79]
    buckets = sorted({_bucket(n) for n in (1, 34, 99)})
    assert read(spec, all_of_them, "id IN (1, 34, 99)") == buckets and len(buckets) == 3
    assert read(spec, all_of_them, "id = 34 AND id = 35") == []
    assert read(spec, all_of_them, "id > 34") == list(range(100))
    assert read(spec, all_of_them, "id IS NULL") == [None]
    assert read(spec_of("bucket(100, name)"), list(range(100)), "name = 'iceberg'") == [89]
    assert read(spec_of("bucket(100, name)"), list(range(100)), "name LIKE 'iceberg'") == [89]


def _bucket(value: int) -> Any:
    return partition_of(parse_transform("bucket[100]"), Primitive("int64"), value)


def test_what_a_bucket_rules_out_makes_an_inequality_sure() -> None:
    plan = plan_scan(
        [file((79,)), file((80,))],
        (),
        parse_predicate("id != 34", SCHEMA),
        evidence=Evidence(SCHEMA, specs=(spec_of("bucket(100, id)"),)),
    )
    assert [task.whole for task in plan.tasks] == [False, True]


def test_truncated_texts_are_pruned_by_prefix_and_range() -> None:
    spec, values = spec_of("truncate(3, name)"), [None, "", "ab", "abc", "abd", "b\U0001f600é"]
    for where, found in (
        ("name = 'abcd'", ["abc"]),
        ("name = 'ab'", ["ab"]),
        ("name IN ('ab', 'abdx')", ["ab", "abd"]),
        ("name LIKE 'abd%'", ["abd"]),
        ("name LIKE 'ab%'", ["ab", "abc", "abd"]),
        ("name LIKE 'abcx%'", ["abc"]),
        ("name LIKE 'b\U0001f600éx%'", ["b\U0001f600é"]),
        ("name < 'ab'", [""]),
        ("name < 'abc'", ["", "ab"]),
        ("name > 'abz'", ["b\U0001f600é"]),
        ("name >= 'abd'", ["abd", "b\U0001f600é"]),
        ("name IS NULL", [None]),
    ):
        # The bound of a prefix is the next prefix, so one file more may be read there.
        extra = set(read(spec, values, where)) - set(found)
        assert set(found) <= set(read(spec, values, where)), where
        assert extra <= ({"abc"} if ">= 'abd'" in where else set()), where


def test_truncated_numbers_and_bytes_are_pruned_by_range() -> None:
    assert read(spec_of("truncate(10, id)"), [-20, -10, 0, 10], "id = -1") == [-10]
    assert read(spec_of("truncate(10, id)"), [-20, -10, 0, 10], "id < -10") == [-20]
    assert read(spec_of("truncate(10, id)"), [-20, -10, 0, 10], "id > 9") == [10]
    prices = ["-1.00", "0.00", "1.00"]
    assert read(spec_of("truncate(100, price)"), prices, "price = -0.01") == ["-1.00"]
    assert read(spec_of("truncate(100, price)"), prices, "price >= 1") == ["1.00"]
    spec = spec_of("truncate(1, raw)")
    assert read(spec, ["AA", "YQ", "_w"], "raw >= X'6200'") == ["_w"]


def test_identity_knows_nan_from_numbers() -> None:
    spec, values = spec_of("x"), [None, 0.0, 1.5, "NaN"]
    assert read(spec, values, "x = 1.5") == [1.5]
    assert read(spec, values, "x = -0.0") == [0.0]
    assert read(spec, values, "x IN (0, 1.5)") == [0.0, 1.5]
    assert read(spec, values, "x > 1") == [1.5, "NaN"]  # NaN is above every number
    assert read(spec, values, "x IS NULL") == [None]
    evidence = Evidence(SCHEMA, specs=(spec,))
    nan = Comparison(7, "=", Literal(Primitive("double"), math.nan))
    assert [may_match(nan, evidence.of(file((v,))), 10) for v in values] == [
        False,
        False,
        False,
        True,
    ]


def test_several_fields_prune_together() -> None:
    spec = spec_of("day(ts)", "bucket(4, id)", "truncate(2, name)")
    values = [(d, b, n) for d in (0, 1) for b in range(4) for n in ("aa", "ab")]
    where = "ts < TIMESTAMP '1970-01-02 00:00:00' AND id = 34 AND name LIKE 'ab%'"
    assert read(spec, values, where) == [(0, 3, "ab")]


def test_files_of_an_unknown_or_other_spec_are_read() -> None:
    evidence = Evidence(SCHEMA, specs=(spec_of("day(ts)"),))
    where = parse_predicate("ts = TIMESTAMP '2024-02-29 12:00:00'", SCHEMA)
    for entry in (file((), spec_id=0), file((), spec_id=1), file((5,), spec_id=7)):
        assert may_match(where, evidence.of(entry), 10)


def test_statistics_and_partition_are_both_used() -> None:
    evidence = Evidence(SCHEMA, specs=(spec_of("day(ts)"),))
    bounds = ColumnStats(5 * DAY + 10, 5 * DAY + 20, 0)
    entry = file((5,), stats={2: bounds})
    at = lambda op, us: Comparison(2, op, Literal(Primitive("timestamp", unit="us"), us))  # noqa: E731
    assert not may_match(at("<", 5 * DAY + 10), evidence.of(entry), 10)
    assert all_match(at("<", 6 * DAY), evidence.of(file((5,))), 10)
    assert not all_match(at("<", 5 * DAY + 15), evidence.of(entry), 10)


# -- columns that were widened --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "transform", "value", "literal", "reads"),
    [
        ("int32", "int64", "bucket[100]", 79, 34, [True, False]),
        ("decimal(9,2)", "decimal(18,2)", "bucket[100]", 59, Decimal("14.20"), [True, False]),
        ("int32", "int64", "truncate[10]", 30, 34, [True, False]),
        # Another scale has other digits, and so another hash.
        ("decimal(9,2)", "decimal(18,3)", "bucket[100]", 59, Decimal("14.200"), [True, True]),
        ("date", "timestamp(us)", "day", 5, 5 * DAY, [True, False]),
        # A date hashes as its days, a timestamp as its microseconds: of these nothing is concluded.
        ("date", "timestamp(us)", "bucket[100]", 7, 5 * DAY, [True, True]),
    ],
)
def test_files_from_before_a_widening_are_pruned_soundly(
    old: str, new: str, transform: str, value: Any, literal: Any, reads: list[bool]
) -> None:
    before = Schema(0, (Field(1, "c", parse_primitive(old)),))
    after = Schema(1, (Field(1, "c", parse_primitive(new)),))
    spec = PartitionSpec(1, (PartitionField(1, transform, "c"),))
    evidence = Evidence(after, (before,), (spec,))
    where = Comparison(1, "=", Literal(parse_primitive(new), literal))
    entries = [file((value,)), file((value + 10,))]
    assert [may_match(where, evidence.of(e), 10) for e in entries] == reads


def test_a_rewritten_file_keeps_its_partition_only_where_it_means_the_same() -> None:
    def carried(old: str, new: str, value: Any) -> tuple[int, Partition]:
        before, after = (
            Schema(n, (Field(1, "c", parse_primitive(kind)),)) for n, kind in enumerate((old, new))
        )
        spec = PartitionSpec(1, (PartitionField(1, "identity", "c"),))
        return partition_for_output(file((value,)), before, after, (spec,))

    assert carried("int32", "int64", 5) == (1, (5,))
    assert carried("decimal(5,2)", "decimal(9,2)", "1.00") == (1, ("1.00",))
    assert carried("decimal(5,2)", "decimal(9,3)", "1.00") == (1, ())
    assert carried("date", "timestamp(us)", 5) == (1, ())


def test_the_null_partition_has_only_nulls() -> None:
    evidence = Evidence(SCHEMA, specs=(spec_of("bucket(4, id)"),))
    assert all_match(IsNull(1), evidence.of(file((None,))), 10)
    assert not may_match(IsNull(1), evidence.of(file((3,))), 10)


# -- what one partition value says ------------------------------------------------------------------


def bucket_of(kind: Primitive, value: Any) -> PartitionFact:
    transform = parse_transform("bucket[2147483647]")
    number = partition_of(transform, kind, value)
    assert number is not None
    return PartitionFact(transform, kind, number)


@pytest.mark.parametrize(
    ("of", "asked", "alike"),
    [
        ("int8", "int64", True),
        ("int64", "uint8", True),
        ("int8", "decimal(9,0)", False),
        ("decimal(9,0)", "int8", False),
        ("decimal(5,2)", "decimal(38,2)", True),
        ("decimal(5,2)", "decimal(38,3)", False),
        ("timestamp(s)", "timestamp(ns)", True),
        ("date", "timestamp(ns)", False),
        ("time(ms)", "timestamp(ms)", False),
        ("fixed(3)", "binary", True),
        ("binary", "string", False),
        ("string", "binary", False),
    ],
)
def test_a_bucket_rules_out_values_of_types_that_hash_alike(
    of: str, asked: str, alike: bool
) -> None:
    """Of others nothing is known: a bucket of an integer is no bucket of a date."""
    values: dict[str, tuple[Any, Any]] = {
        "decimal": (Decimal("1"), Decimal("2")),
        "fixed": (b"abc", b"abd"),
        "binary": (b"abc", b"abd"),
        "string": ("abc", "abd"),
    }
    source, kind = parse_primitive(of), parse_primitive(asked)
    here, elsewhere = values.get(source.name, (1, 2))
    fact = bucket_of(source, here)
    if source.name == "timestamp":  # one second in nanoseconds
        assert fact.admits_any(kind, (10**9,)) and not fact.admits_any(kind, (10**9 + 10**3,))
        return
    same, other = values.get(kind.name, (1, 2))
    assert fact.admits_any(source, (elsewhere, here)) and not fact.admits_any(source, (elsewhere,))
    assert fact.admits_any(kind, (same,))
    assert fact.admits_any(kind, (other,)) is not alike
    assert fact.admits_any(kind, (other, same))


@pytest.mark.parametrize(
    ("transform", "value", "prefix", "admits"),
    [
        ("identity", "abc", "ab", True),
        ("identity", "abc", "b", False),
        ("truncate[2]", "ab", "abc", True),
        ("truncate[2]", "ab", "a", True),
        ("truncate[2]", "ab", "b", False),
        ("truncate[2]", "ab", "ac", False),
        ("bucket[4]", 3, "b", True),
    ],
)
def test_a_partition_of_a_text_rules_out_prefixes(
    transform: str, value: Any, prefix: str, admits: bool
) -> None:
    fact = PartitionFact(parse_transform(transform), Primitive("string"), value)
    assert fact.admits_prefix(prefix) is admits


def test_a_column_in_a_partition_is_within_both_bounds_and_exact_if_it_is_one_value() -> None:
    kind, schema = Primitive("int64"), Schema(0, (Field(1, "a", Primitive("int64")),))

    def narrowed(transform: str, value: Any, stats: ColumnStats) -> ColumnStats:
        spec = PartitionSpec(1, (PartitionField(1, transform, "p"),))
        return with_partition(stats, file((value,)), schema, spec, 1)

    def bounds(stats: ColumnStats) -> Any:
        return stats.lower, stats.upper, stats.exact

    known = ColumnStats(12, 15, 3, exact=True, has_nan=True, kind=kind)
    found = narrowed("truncate[10]", 10, known)
    assert bounds(found) == (12, 15, True) and (found.null_count, found.has_nan) == (0, False)
    assert bounds(narrowed("truncate[10]", 10, replace(known, exact=False))) == (12, 15, False)
    assert bounds(narrowed("truncate[10]", 10, replace(known, upper=25))) == (12, 19, False)
    assert bounds(narrowed("truncate[10]", 10, replace(known, lower=5))) == (10, 15, False)
    assert bounds(narrowed("truncate[10]", 10, ColumnStats())) == (10, 19, False)
    assert bounds(narrowed("identity", 13, replace(known, exact=False))) == (13, 13, True)
    assert bounds(narrowed("bucket[4]", 3, known)) == (12, 15, True)
    null = narrowed("bucket[4]", None, known)
    assert bounds(null) == (None, None, True) and (null.null_count, null.has_nan) == (10, False)
    # A file of no single partition, and a column that the spec does not have, say nothing more.
    two = PartitionSpec(
        1, (PartitionField(1, "identity", "p"), PartitionField(1, "bucket[4]", "b"))
    )
    assert with_partition(known, file((13,)), schema, two, 1) is known
    assert with_partition(known, file((13,)), schema, PartitionSpec(1, two.fields[:1]), 2) is known


def test_a_nan_partition_has_no_bounds() -> None:
    schema = Schema(0, (Field(1, "a", Primitive("double")),))
    spec = PartitionSpec(1, (PartitionField(1, "identity", "p"),))
    found = with_partition(ColumnStats(0.0, 1.0, 5), file(("NaN",)), schema, spec, 1)
    assert (found.lower, found.upper, found.null_count, found.has_nan) == (None, None, 0, True)


@pytest.mark.parametrize(
    ("kind", "known", "partition"),
    [
        ("int64", ColumnStats(10, 19, 0), (10,)),
        ("int64", ColumnStats(10, 20, 0), None),
        ("int64", ColumnStats(10, 19, 1), None),
        ("int64", ColumnStats(10, 19), None),
        ("int64", ColumnStats(None, None, 10), (None,)),
        ("int64", ColumnStats(10, None, 0), None),
        ("int64", ColumnStats(None, 19, 0), None),
        ("string", ColumnStats("abcdefghij", "abcdefghijz", 0), ("abcdefghij",)),
    ],
)
def test_statistics_put_a_file_into_the_one_partition_of_all_its_rows(
    kind: str, known: ColumnStats, partition: Any
) -> None:
    schema = Schema(0, (Field(1, "a", parse_primitive(kind)),))
    spec = PartitionSpec(1, (PartitionField(1, "truncate[10]", "p"),))
    assert partition_from_stats(spec, schema, {1: known}, 10) == partition
    assert partition_from_stats(spec, schema, {}, 10) is None
    both = PartitionSpec(1, (*spec.fields, PartitionField(1, "bucket[4]", "b")))
    found = partition_from_stats(both, schema, {1: known}, 10)
    assert found == ((None, None) if partition == (None,) else None)


@pytest.mark.parametrize(("has_nan", "partition"), [(False, (0.5,)), (True, None), (None, None)])
def test_a_file_with_a_nan_is_in_no_partition_of_numbers(
    has_nan: bool | None, partition: Any
) -> None:
    schema = Schema(0, (Field(1, "a", Primitive("double")),))
    spec = PartitionSpec(1, (PartitionField(1, "identity", "p"),))
    known = {1: ColumnStats(0.5, 0.5, 0, has_nan=has_nan)}
    assert partition_from_stats(spec, schema, known, 10) == partition
    bucket = PartitionSpec(1, (PartitionField(1, "bucket[4]", "p"),))
    integers = Schema(0, (Field(1, "a", Primitive("int64")),))
    assert partition_from_stats(bucket, integers, {1: ColumnStats(7, 7, 0)}, 10) is not None

"""Change records become the state they describe, however they arrive; DuckDB does the same by SQL."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.tiers import in_short

import inlay
from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.ops.commit.driver import commit
from inlay.ops.write.recent_rows import RecentRows
from inlay.spark.merge import merge
from inlay.spark.merge_sink import MergeSink

from .conftest import sorted_rows

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
    ]
)
RECORD = "op string, id bigint, status string, seq bigint"


def records(spark: Any, *rows: tuple[str, int | None, str | None, int]) -> Any:
    return spark.createDataFrame(list(rows), RECORD)


@pytest.fixture
def orders(new_table: NewTable) -> inlay.Table:
    rows = {"id": [1, 2, 3], "status": ["new"] * 3, "seq": [10, 10, 10]}
    return new_table(pa.table(rows, schema=SCHEMA), primary_key="id")


def state(table: inlay.Table) -> list[tuple[int, str, int]]:
    rows = sorted_rows(table.refresh().scan().to_arrow(), "id")
    return [(row["id"], row["status"], row["seq"]) for row in rows]


def test_inserts_updates_and_deletes_are_one_commit(spark: Any, orders: inlay.Table) -> None:
    changes = records(
        spark, ("U", 1, "paid", 11), ("D", 2, None, 12), ("I", 4, "new", 13), ("D", 9, None, 14)
    )
    result = merge(changes, orders.uri, order="seq")
    assert state(orders) == [(1, "paid", 11), (3, "new", 10), (4, "new", 13)]
    assert (result.version, result.keys, result.rows, result.deleted_keys) == (3, 4, 2, 2)


def test_late_and_duplicate_records_change_nothing(spark: Any, orders: inlay.Table) -> None:
    changes = records(
        spark,
        ("U", 1, "shipped", 12),
        ("U", 1, "paid", 11),
        ("U", 1, "shipped", 12),
        ("U", 2, "older than the row", 9),
        ("D", 3, None, 10),
    )
    result = merge(changes, orders.uri, order="seq")
    # Of one order the delete counts over the row.
    assert state(orders) == [(1, "shipped", 12), (2, "new", 10)]
    assert (result.records, result.keys, result.late) == (5, 3, 1)
    # What comes again arrives later than what is there: a row is written again, and one stays deleted.
    again = merge(changes, orders.uri, order="seq")
    assert (again.late, again.rows) == (1, 1)
    assert state(orders) == [(1, "shipped", 12), (2, "new", 10)]


def test_a_record_older_than_a_remembered_delete_stays_deleted(
    spark: Any, orders: inlay.Table
) -> None:
    gone = [("D", 1, None, 20), ("D", 2, None, 20), ("D", 9, None, 20)]
    assert merge(records(spark, *gone), orders.uri, order="seq").deleted_keys == 3
    late = [("U", 1, "late", 19), ("U", 2, "newer", 21), ("I", 5, "new", 19), ("I", 9, "late", 20)]
    assert merge(records(spark, *late), orders.uri, order="seq").late == 2
    assert state(orders) == [(2, "newer", 21), (3, "new", 10), (5, "new", 19)]
    # It is the memory of `apply_changes`, in both directions.
    brought = pa.table({"id": [1, 3], "status": ["late", "paid"], "seq": [19, 11]}, schema=SCHEMA)
    done = orders.refresh().apply_changes(brought, order="seq")
    assert (done.late, done.updated) == (1, 1)
    rows = pa.table({"op": ["D"], "id": [3], "status": [None], "seq": [30]})
    orders.refresh().apply_changes(rows, order="seq", op="op")
    assert merge(records(spark, ("U", 3, "late", 29)), orders.uri, order="seq").late == 1
    assert [row[0] for row in state(orders)] == [2, 5]
    # What comes again is known, and no commit.
    again = merge(records(spark, *gone), orders.uri, order="seq")
    assert (again.committed, inlay.open(f"{orders.uri}/changes").count()) == (False, 4)


@pytest.mark.parametrize("key", in_short([1, 9], [1]))
def test_a_delete_that_is_committed_beside_an_older_row_counts(
    spark: Any, orders: inlay.Table, monkeypatch: pytest.MonkeyPatch, key: int
) -> None:
    """Of a key that the table has, and of one that it lacks, of which no marker tells."""

    def beside(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        merge(records(spark, ("D", key, None, 20)), orders.uri, order="seq")
        return commit(*args, **options)

    monkeypatch.setattr("inlay.ops.commit.driver.commit", beside)
    assert merge(records(spark, ("U", key, "late", 17)), orders.uri, order="seq").late == 1
    assert key not in [row[0] for row in state(orders)]


def test_a_merge_that_died_after_it_remembered_is_repeated(
    spark: Any, orders: inlay.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    gone = records(spark, ("D", 1, None, 20), ("D", 9, None, 20))
    monkeypatch.setattr("inlay.ops.commit.driver.commit", killed)
    with pytest.raises(KeyboardInterrupt):
        merge(gone, orders.uri, order="seq")
    monkeypatch.undo()
    assert [row[0] for row in state(orders)] == [1, 2, 3]
    assert merge(gone, orders.uri, order="seq").committed
    assert merge(records(spark, ("U", 9, "late", 1)), orders.uri, order="seq").late == 1
    assert [row[0] for row in state(orders)] == [2, 3]


def test_a_batch_of_a_query_is_merged_once(spark: Any, orders: inlay.Table) -> None:
    assert merge(
        records(spark, ("D", 1, None, 20)), orders.uri, order="seq", batch=("q", 7)
    ).committed
    revived = records(spark, ("I", 1, "again", 21))
    known = merge(revived, orders.uri, order="seq", batch=("q", 7))
    assert (known.committed, known.applied_before) == (False, True)
    for before in (False, True):
        done = merge(revived, orders.uri, order="seq", request_id="night 1")
        assert done.applied_before == before
        assert done.committed != before
    assert merge(revived, orders.uri, order="seq", batch=("q", 8)).committed
    assert state(orders)[0] == (1, "again", 21)


def test_a_random_history_ends_as_duckdb_says(spark: Any, orders: inlay.Table) -> None:
    chance = random.Random(7)
    history = [
        (chance.choice("IUUD"), chance.randrange(60), f"status {n}", 100 + n) for n in range(400)
    ]
    for start in range(0, 400, 200):
        batch = history[start : start + 200]
        shuffled = chance.sample(batch, len(batch)) + chance.sample(batch, 50)
        merge(records(spark, *shuffled), orders.uri, order="seq")
    log = pa.table(
        dict(zip(("op", "id", "status", "seq"), zip(*history, strict=True), strict=True))
    )
    assert log.num_rows
    expected = duckdb.sql(
        """SELECT id, status, seq FROM (
             SELECT * FROM log
             UNION ALL SELECT 'I', unnest([1, 2, 3]), 'new', 10
           ) QUALIFY row_number() OVER (PARTITION BY id ORDER BY seq DESC) = 1 AND op <> 'D'
           ORDER BY id"""
    ).fetchall()
    assert state(orders) == expected


def test_a_row_without_an_order_is_older_than_any_and_replaced(
    spark: Any, new_table: NewTable
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("seq", pa.int64())])
    table = new_table(
        pa.table({"id": [1, 2, 3], "seq": [None, None, 5]}, schema=schema), primary_key="id"
    )
    changes = [("U", 1, 1), ("U", 2, None), ("U", 3, None), ("D", 4, None)]
    frame = spark.createDataFrame(changes, "op string, id bigint, seq bigint")
    assert merge(frame, table.uri, order="seq").late == 1
    rows = sorted_rows(table.refresh().scan().to_arrow(), "id")
    assert [(row["id"], row["seq"]) for row in rows] == [(1, 1), (2, None), (3, 5)]
    again = spark.createDataFrame([("I", 4, None), ("D", 1, 2)], frame.schema)
    assert merge(again, table.uri, order="seq").late == 1
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [2, 3]


def test_no_name_is_too_strange(spark: Any, new_table: NewTable) -> None:
    schema = pa.schema([pa.field("a.b", pa.int64(), nullable=False), ("`", pa.int64())])
    table = new_table(pa.table({"a.b": [1, 2], "`": [0, 0]}, schema=schema), primary_key="a.b")
    changes = [(1, 1, "U"), (2, 1, "D"), (9, 2, "I")]
    frame = spark.createDataFrame(changes, "`a.b` bigint, ```` bigint, `O.p` string")
    merge(frame, table.uri, order="`", op="o.p")
    assert sorted(map(str, table.refresh().scan().to_arrow().to_pylist())) == [
        "{'a.b': 1, '`': 1}",
        "{'a.b': 9, '`': 2}",
    ]


@pytest.mark.parametrize("name", ["__inlay_rank", "__inlay_deleted", "__INLAY_has"])
def test_a_column_named_as_those_of_a_merge_is_refused(
    spark: Any, new_table: NewTable, name: str
) -> None:
    """Its values would be replaced, and lost."""
    rows = pa.table({"id": [1], "seq": [1], name: ["x"]})
    table = new_table(rows, primary_key="id")
    frame = spark.createDataFrame([(1, 2, "y")], ["id", "seq", name])
    with pytest.raises(InvalidRequest, match=f"the column '{name}' has a name that merges use"):
        merge(frame, table.uri, order="seq", op=None)
    assert table.refresh().scan().to_arrow().to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    ("changes", "options", "error", "complaint"),
    [
        ([("U", None, "x", 11)], {"order": "seq"}, InvalidRequest, "no key"),
        ([("U", 1, "x", 11)], {"order": "time"}, SchemaMismatch, "no column 'time'"),
        ([("U", 1, "x", 11)], {"order": "seq", "op": "kind"}, SchemaMismatch, "no column 'kind'"),
        ([("U", 1, "x", 11)], {"order": "id"}, InvalidRequest, "is a key"),
    ],
)
def test_records_that_cannot_be_merged_are_refused(
    spark: Any,
    orders: inlay.Table,
    changes: list[Any],
    options: dict[str, str],
    error: type[Exception],
    complaint: str,
) -> None:
    with pytest.raises(error, match=complaint):
        merge(records(spark, *changes), orders.uri, **options)
    assert orders.refresh().version == 2


# -- which record counts --------------------------------------------------------------------------


@pytest.mark.parametrize("order", [7, None])
def test_of_equal_orders_the_delete_counts_for_any_cut(
    spark: Any, new_table: NewTable, order: int | None
) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), ("status", pa.string()), ("seq", pa.int64())])
    row, gone, more = ("I", 1, "a", order), ("D", 1, None, order), ("U", 1, "b", order)
    for batches in ([(row, gone)], [(gone, row)], [(row,), (gone,)], [(gone,), (row,)]):
        table = new_table(schema, primary_key="id")
        for batch in batches:
            frame = records(spark, *batch)
            merge(frame, table.uri, order="seq")
        assert table.refresh().count() == 0, batches
    for batches in ([(row, more)], [(row,), (more,)]):  # of two rows the one that comes later
        table = new_table(schema, primary_key="id")
        for batch in batches:
            merge(records(spark, *batch), table.uri, order="seq")
        assert [row[1] for row in state(table)] == ["b"], batches


def test_several_columns_order_from_the_first(spark: Any, new_table: NewTable) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.float64()), ("seq", pa.int64())])
    table = new_table(schema, primary_key="id")
    nan = float("nan")
    for at, seq in [
        (1.0, 9),
        (2.0, None),
        (2.0, 1),
        (1.5, 8),
        (None, 99),
        (nan, 0),
        (nan, 2),
        (3.0, 7),
    ]:
        frame = spark.createDataFrame([(1, at, seq)], "id bigint, at double, seq bigint")
        merge(frame, table.uri, order=["at", "seq"], op=None)
    assert str(table.refresh().scan().to_arrow().to_pylist()) == "[{'id': 1, 'at': nan, 'seq': 2}]"


# `tests/plan/test_change_records.py` judges all values; here two go through Spark, the others once more.
ONCE_MORE = [
    pytest.param(value, marks=pytest.mark.wide) for value in ("delete_", "truncate", "", "x")
]


@pytest.mark.parametrize("value", ["DELETE ", None, *ONCE_MORE])
def test_unknown_operations_are_refused_and_counted(
    spark: Any, orders: inlay.Table, value: str | None
) -> None:
    changes = records(spark, ("U", 1, "paid", 11), (value, 2, None, 12), (value, 3, None, 12))
    with pytest.raises(InvalidRequest, match="2 change records have an operation") as raised:
        merge(changes, orders.uri, order="seq")
    assert (repr(value) if value is not None else "NULL") in str(raised.value)
    assert orders.refresh().version == 2


def test_operations_are_those_of_the_producer(spark: Any, orders: inlay.Table) -> None:
    def go(kind: str, rows: list[tuple[Any, ...]], **options: Any) -> Any:
        ddl = f"{kind}, id bigint, status string, seq bigint"
        return merge(spark.createDataFrame(rows, ddl), orders.uri, order="seq", **options)

    halves = [("DELETE", True, 1, "new", 11), ("INSERT", True, 1, "paid", 11)]
    gone = ("DELETE", False, 2, None, 11)
    flagged = "`metadata$action` string, `METADATA$ISUPDATE` boolean"
    result = go(flagged, [*halves, gone], operations="snowflake")
    assert (result.records, state(orders)) == (2, [(1, "paid", 11), (3, "new", 10)])
    go("__deleted boolean", [(True, 1, None, 12), (False, 3, "x", 12)], operations="debezium-flat")
    assert state(orders) == [(3, "x", 12)]
    go("what string", [("gone", 3, None, 13), ("U", 4, "y", 13)], op="what", deletes=["gone"])
    assert state(orders) == [(4, "y", 13)]
    named = {"rows": ["new"], "deletes": ["gone"]}
    go("op string", [("gone", 4, None, 14), ("new", 5, "z", 14)], operations=named)
    assert state(orders) == [(5, "z", 14)]
    with pytest.raises(InvalidRequest, match="'D' in 1"):
        go("op string", [("D", 5, None, 15)], operations=named)


def test_records_of_debezium_are_taken_apart_as_the_library_does(
    spark: Any, orders: inlay.Table, new_table: NewTable
) -> None:
    """The row before a delete counts, and the order is in `source`."""
    row = pa.struct([("id", pa.int64()), ("status", pa.string())])
    source = pa.struct([("seq", pa.int64()), ("db", pa.string())])
    names = pa.schema([("op", pa.string()), ("before", row), ("after", row), ("source", source)])
    old, new = {"id": 1, "status": "new"}, {"id": 1, "status": "paid"}
    at = [{"seq": seq, "db": "d"} for seq in (11, 12, 13, 9)]
    changes = [
        {"op": "u", "before": old, "after": new, "source": at[0]},
        {"op": "d", "before": {"id": 2, "status": "new"}, "after": None, "source": at[1]},
        {"op": "c", "before": None, "after": {"id": 4, "status": "x"}, "source": at[2]},
        {"op": "d", "before": {"id": 3, "status": "new"}, "after": None, "source": at[3]},
    ]
    rows = pa.Table.from_pylist(changes, schema=names)
    twin = new_table(orders.scan().to_arrow(), primary_key="id")
    twin.apply_changes(rows, order="seq", operations="debezium")
    merge(spark.createDataFrame(rows), orders.uri, order="seq", operations="debezium")
    assert state(orders) == state(twin) == [(1, "paid", 11), (3, "new", 10), (4, "x", 13)]
    other = {"op": "u", "before": {"id": 4, "status": "x"}, "after": {"id": 5}, "source": at[2]}
    for record, why in ((other, "a change of the key"), ({**other, "after": None}, "no row after")):
        refused = spark.createDataFrame(pa.Table.from_pylist([record], schema=names))
        with pytest.raises(InvalidRequest, match=why):
            merge(refused, orders.uri, order="seq", operations="debezium")


def test_a_value_that_the_producer_left_out_is_refused(spark: Any, orders: inlay.Table) -> None:
    absent = "__debezium_unavailable_value"
    ddl = "__deleted boolean, id bigint, status string, seq bigint"
    changes = spark.createDataFrame([(False, 1, absent, 12), (True, 2, absent, 12)], ddl)
    with pytest.raises(
        InvalidRequest, match="1 change records do not know their value of 'status'"
    ):
        merge(changes, orders.uri, order="seq", operations="debezium-flat")
    assert orders.refresh().version == 2


# -- columns --------------------------------------------------------------------------------------


@pytest.fixture
def wide(new_table: NewTable) -> inlay.Table:
    """A table with columns that older records lack."""
    schema = pa.schema(
        [
            *SCHEMA,
            ("note", pa.string()),
            ("big", pa.uint64()),
            ("m", pa.map_(pa.string(), pa.int8())),
        ]
    )
    rows = [
        {
            "id": n,
            "status": "new",
            "seq": 10,
            "note": f"note {n}",
            "big": 2**64 - n,
            "m": [("k", n)],
        }
        for n in (1, 2, 3)
    ]
    table = new_table(pa.Table.from_pylist(rows, schema=schema), primary_key="id")
    table.alter(add={"level": pa.int32()}, defaults={"level": 5})
    return table.refresh()


def test_columns_that_records_lack_keep_their_values(spark: Any, wide: inlay.Table) -> None:
    changes = records(spark, ("U", 1, "paid", 11), ("U", 2, "late", 9), ("I", 4, "x", 1))
    merge(changes, wide.uri, order="seq")
    rows = {row["id"]: row for row in wide.refresh().scan().to_arrow().to_pylist()}
    assert (rows[1]["status"], rows[1]["note"], rows[1]["big"]) == ("paid", "note 1", 2**64 - 1)
    assert (rows[1]["m"], rows[1]["level"]) == ([("k", 1)], 5)
    assert rows[2]["status"] == "new"
    assert (rows[4]["note"], rows[4]["m"], rows[4]["level"]) == (None, None, 5)


def test_values_that_others_delete_meanwhile_are_not_brought_back(
    spark: Any, wide: inlay.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beside(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        inlay.open(wide.uri).delete("id = 1")
        return commit(*args, **options)

    monkeypatch.setattr("inlay.ops.commit.driver.commit", beside)
    merge(records(spark, ("U", 1, "paid", 11)), wide.uri, order="seq")
    [row] = wide.refresh().scan(where="id = 1").to_arrow().to_pylist()
    assert (row["status"], row["note"]) == ("paid", None)


def test_columns_that_the_table_lacks_are_refused_or_added(spark: Any, orders: inlay.Table) -> None:
    frame = records(spark, ("U", 1, "paid", 11)).selectExpr("*", "array('x') AS tags")
    with pytest.raises(SchemaMismatch, match="the table lacks: 'tags'"):
        merge(frame, orders.uri, order="seq")
    orders.set_properties(schema__evolve="add")
    merge(frame, orders.uri, order="seq")
    rows = sorted_rows(orders.refresh().scan().to_arrow(), "id")
    assert [row["tags"] for row in rows] == [["x"], None, None]
    assert orders.refresh().schema.field("tags").type.value_field.nullable


@pytest.mark.parametrize(
    ("ddl", "row", "complaint"),
    [
        ("op string, id string, status string, seq bigint", ("U", "1", "x", 11), "'id' is string"),
        ("op string, id bigint, status bigint, seq bigint", ("U", 1, 5, 11), "'status' is int64"),
        ("op string, id bigint, status string, seq string", ("U", 1, "x", "a"), "'seq' is string"),
        (
            "op string, id bigint, status string, seq bigint",
            ("U", 1, None, 11),
            "'status' holds null",
        ),
        ("op int, id bigint, status string, seq bigint", (1, 1, "x", 11), "'op' are of type int"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_type(
    spark: Any, orders: inlay.Table, ddl: str, row: tuple[Any, ...], complaint: str
) -> None:
    with pytest.raises(SchemaMismatch, match=complaint):
        merge(spark.createDataFrame([row], ddl), orders.uri, order="seq")
    assert orders.refresh().version == 2


# -- where rows are that were written lately ------------------------------------------------------


def kinds(table: inlay.Table) -> set[str]:
    """Bodies of the delete markers the table has."""
    return {type(marker.body).__name__ for marker in table.refresh().inspect.entries()[1]}


@pytest.fixture
def sparse(new_table: NewTable) -> inlay.Table:
    """Keys that no file is wholly covered by, so that markers stay to be looked at."""
    data = {"id": range(300), "status": ["new"] * 300, "seq": [0] * 300}
    return new_table(pa.table(data, schema=SCHEMA), primary_key="id")


def changes(spark: Any, seq: int, *ids: int, op: str = "U") -> Any:
    return records(spark, *((op, i, f"at {seq}", seq) for i in ids))


def test_what_a_stream_wrote_lately_it_deletes_by_position(spark: Any, sparse: inlay.Table) -> None:
    recent = RecentRows()
    first = merge(changes(spark, 1, 5, 6, 7, 8), sparse.uri, order="seq", recent=recent)
    assert (first.located, kinds(sparse)) == (0, {"Where"})
    second = merge(changes(spark, 2, 5, 6), sparse.uri, order="seq", recent=recent)
    assert (second.located, kinds(sparse)) == (2, {"Where", "Rows"})
    # 7 is in the first file, 5 in the second, 9 in none.
    third = merge(changes(spark, 3, 5, 7, 9, op="D"), sparse.uri, order="seq", recent=recent)
    assert (third.located, third.deleted_keys) == (2, 3)
    left = {row[0]: row[2] for row in state(sparse)}
    assert len(left) == 297
    assert (left[6], left[8], left[10]) == (2, 1, 0)


def test_a_row_that_somebody_else_brought_empties_the_map(spark: Any, sparse: inlay.Table) -> None:
    recent = RecentRows()
    merge(changes(spark, 1, 5), sparse.uri, order="seq", recent=recent)
    rows = {"id": [5], "status": ["theirs"], "seq": [1]}
    sparse.refresh().append(pa.table(rows, schema=SCHEMA))
    result = merge(changes(spark, 2, 5), sparse.uri, order="seq", recent=recent)
    assert result.located == 0
    assert [row for row in state(sparse) if row[0] == 5] == [(5, "at 2", 2)]
    assert merge(changes(spark, 3, 5), sparse.uri, order="seq", recent=recent).located == 1


def test_a_row_that_came_beside_a_merge_of_other_keys_is_seen_by_the_next(
    spark: Any, sparse: inlay.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    recent = RecentRows()
    merge(changes(spark, 1, 5), sparse.uri, order="seq", recent=recent)

    def beside(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        rows = {"id": [5], "status": ["theirs"], "seq": [1]}
        inlay.open(sparse.uri).append(pa.table(rows, schema=SCHEMA))
        return commit(*args, **options)

    monkeypatch.setattr("inlay.ops.commit.driver.commit", beside)
    merge(changes(spark, 2, 200), sparse.uri, order="seq", recent=recent)
    merge(changes(spark, 3, 5), sparse.uri, order="seq", recent=recent)
    assert [row for row in state(sparse) if row[0] == 5] == [(5, "at 3", 3)]


def test_an_older_file_that_compaction_left_is_looked_at_no_more(
    spark: Any, new_table: NewTable
) -> None:
    """The row of a key may have gone with a newer file: here its position would be that of a dead row."""
    table = new_table(SCHEMA, primary_key="id")
    recent = RecentRows()
    merge(changes(spark, 1, *range(300)), table.uri, order="seq", recent=recent)
    merge(changes(spark, 2, 5, 6), table.uri, order="seq", recent=recent)
    merge(changes(spark, 3, 7), table.uri, order="seq", recent=recent)
    large = max(table.refresh().inspect.files()["bytes"].to_pylist())
    assert table.maintain.compact(small_bytes=large).units == 1
    merge(changes(spark, 4, 5), table.uri, order="seq", recent=recent)
    merge(changes(spark, 4, 6, op="D"), table.uri, order="seq", recent=recent)
    rows = state(table)
    assert len(rows) == 299
    assert [row for row in rows if row[0] in (5, 6)] == [(5, "at 4", 4)]


def test_a_file_that_the_stream_has_emptied_takes_no_other_from_the_map(
    spark: Any, sparse: inlay.Table
) -> None:
    recent = RecentRows()
    for seq, ids in enumerate([(5, 6), (7,), (7,)], start=1):
        merge(changes(spark, seq, *ids), sparse.uri, order="seq", recent=recent)
    assert merge(changes(spark, 9, 5, 7), sparse.uri, order="seq", recent=recent).located == 2


def test_a_file_that_others_have_deleted_from_is_looked_at_no_more(
    spark: Any, sparse: inlay.Table
) -> None:
    recent = RecentRows()
    merge(changes(spark, 1, 5), sparse.uri, order="seq", recent=recent)
    merge(changes(spark, 2, 200), sparse.uri, order="seq", recent=recent)
    sparse.refresh().delete("id = 5")
    result = merge(changes(spark, 3, 5, 200), sparse.uri, order="seq", recent=recent)
    assert result.located == 1
    assert [row for row in state(sparse) if row[0] in (5, 200)] == [
        (5, "at 3", 3),
        (200, "at 3", 3),
    ]


def test_a_file_that_was_compacted_meanwhile_is_looked_at_no_more(
    spark: Any, sparse: inlay.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    recent = RecentRows()
    merge(changes(spark, 1, 5, 6), sparse.uri, order="seq", recent=recent)

    def beside(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        inlay.open(sparse.uri).maintain.compact(small_bytes=1 << 30)
        return commit(*args, **options)

    monkeypatch.setattr("inlay.ops.commit.driver.commit", beside)
    result = merge(changes(spark, 2, 5), sparse.uri, order="seq", recent=recent)
    assert result.located == 0
    assert [row for row in state(sparse) if row[0] in (5, 6)] == [(5, "at 2", 2), (6, "at 1", 1)]


def test_the_map_is_bounded(spark: Any, sparse: inlay.Table, monkeypatch: Any) -> None:
    monkeypatch.setattr("inlay.ops.write.recent_rows.MAX_ROWS", 3)
    recent = RecentRows()
    for seq, ids in enumerate([(5, 6), (7, 8)], start=1):
        merge(changes(spark, seq, *ids), sparse.uri, order="seq", recent=recent)
    assert [file.rows for file in recent.files] == [2]
    assert merge(changes(spark, 9, 5, 7), sparse.uri, order="seq", recent=recent).located == 1
    assert len(state(sparse)) == 300


def test_keys_of_several_columns_are_located(spark: Any, new_table: NewTable) -> None:
    table = new_table(SCHEMA)
    recent = RecentRows()
    options = {"order": "seq", "on": ["status", "id"], "op": None, "recent": recent}
    rows = [("a", 1), ("b", 1), ("a", 2)]
    for seq in (1, 2):
        frame = spark.createDataFrame(
            [(name, number, seq) for name, number in rows], "status string, id bigint, seq bigint"
        )
        located = merge(frame, table.uri, **options).located
    assert located == 3
    assert kinds(table) == set()  # the first file went as a whole
    assert sorted(state(table)) == [(1, "a", 2), (1, "b", 2), (2, "a", 2)]


def test_random_merges_with_and_without_the_map_give_the_same_table(
    spark: Any, new_table: NewTable
) -> None:
    chance = random.Random(4)
    one, other = new_table(SCHEMA, primary_key="id"), new_table(SCHEMA, primary_key="id")
    recent = RecentRows()
    located = 0
    for seq in range(6):
        batch = [
            (chance.choice("UUUD"), i, "s", seq * 10 + chance.randrange(12))
            for i in chance.sample(range(40), 20)
        ]
        if seq == 3:
            one.refresh().maintain.compact(small_bytes=1 << 30)
        located += merge(records(spark, *batch), one.uri, order="seq", recent=recent).located
        merge(records(spark, *batch), other.uri, order="seq")
    assert located
    assert state(one) == state(other)


def test_a_stream_merges_each_batch_once_and_goes_on_after_a_restart(
    spark: Any, sparse: inlay.Table, tmp_path: Path
) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    located = []
    for seq in (1, 2, 3):
        line = f'{{"op": "U", "id": 5, "status": "s", "seq": {seq}}}\n'
        (landing / f"{seq}.json").write_text(line)
        os.utime(landing / f"{seq}.json", (seq, seq))  # Spark takes the oldest first
        if seq == 2:
            continue
        # A new sink each time: the map starts empty.
        sink = MergeSink(sparse.uri, order="seq")
        stream = spark.readStream.schema(RECORD).option("maxFilesPerTrigger", 1).json(str(landing))
        stream.writeStream.foreachBatch(sink).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        ).trigger(availableNow=True).start().awaitTermination()
        located.append([result.located for result in sink.results])
    assert located == [[0], [0, 1]]
    assert [row for row in state(sparse) if row[0] == 5] == [(5, "s", 3)]


def test_keys_are_those_of_the_table_whatever_the_records_collation(
    spark: Any, new_table: NewTable
) -> None:
    schema = pa.schema([("k", pa.string()), ("s", pa.string()), ("seq", pa.int64())])
    table = new_table(pa.table({"k": ["a", "A"], "s": ["1", "2"], "seq": [1, 1]}, schema=schema))
    changes = spark.sql(
        """SELECT k COLLATE UTF8_LCASE AS k, s, seq, op FROM VALUES
           ('a', 'x', 2L, 'U'), ('A', 'y', 3L, 'U'), ('B', 'z', 3L, 'U'), ('b', 'w', 4L, 'U')
           AS t(k, s, seq, op)"""
    )
    merge(changes, table.uri, order="seq", on=["k"])
    found = table.refresh().scan().to_arrow().to_pylist()
    assert {row["k"]: row["s"] for row in found} == {"a": "x", "A": "y", "B": "z", "b": "w"}

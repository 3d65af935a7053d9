"""Change records become the state they describe, however they arrive; DuckDB does the same by SQL."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import inlay
from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.spark.merge import merge

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
    assert state(orders) == [(1, "shipped", 12), (2, "new", 10), (3, "new", 10)]
    assert (result.records, result.keys, result.late) == (5, 3, 2)
    again = merge(changes, orders.uri, order="seq")
    assert not again.committed
    assert again.late == 3


def test_a_record_older_than_a_logged_delete_stays_deleted(spark: Any, orders: inlay.Table) -> None:
    log = f"{orders.uri} deleted"
    options = {"order": "seq", "deleted_log": log}
    merge(records(spark, ("D", 1, None, 20), ("D", 2, None, 20)), orders.uri, **options)
    late = records(spark, ("U", 1, "late", 19), ("U", 2, "newer", 21), ("I", 5, "new", 19))
    assert merge(late, orders.uri, **options).late == 1
    assert state(orders) == [(2, "newer", 21), (3, "new", 10), (5, "new", 19)]
    # A merge that died after logging its deletes is repeated.
    inlay.open(log).append(pa.table({"id": [3], "seq": [30]}))
    merge(records(spark, ("D", 3, None, 30)), orders.uri, **options)
    assert [row[0] for row in state(orders)] == [2, 5]


def test_a_batch_of_a_query_is_merged_once(spark: Any, orders: inlay.Table) -> None:
    assert merge(
        records(spark, ("D", 1, None, 20)), orders.uri, order="seq", batch=("q", 7)
    ).committed
    revived = records(spark, ("I", 1, "again", 21))
    assert not merge(revived, orders.uri, order="seq", batch=("q", 7)).committed
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

"""Threads of a program: Spark has no active session in them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.spark import append, read, session
from inlay.spark.merge import merge

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

TEN = pa.table({"id": range(10), "seq": [1] * 10})
# A thread starts without an active session; each verb gets threads of its own.
THREADS = 3


def in_threads(do: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(do, range(THREADS)))


def test_tables_are_read_in_threads(spark: Any, new_table: NewTable) -> None:
    table = new_table(TEN)
    assert in_threads(lambda n: read(spark, table.uri, native="never").count()) == [10] * THREADS


def test_tables_are_appended_to_in_threads(spark: Any, new_table: NewTable) -> None:
    for options in ({}, {"partition_by": ["bucket(2, id)"]}):
        table = new_table(TEN.schema, **options)

        def add(number: int, uri: str = table.uri) -> int:
            rows = spark.range(10 * number, 10 * number + 10).selectExpr("id", "1L AS seq")
            return append(rows, uri).added_rows

        assert in_threads(add) == [10] * THREADS
        found = table.refresh().scan().to_arrow().column("id").to_pylist()
        assert sorted(found) == list(range(10 * THREADS))


def test_deletes_are_remembered_in_threads(spark: Any, new_table: NewTable) -> None:
    tables = [new_table(TEN, primary_key="id") for _ in range(THREADS)]

    def apply(number: int) -> int:
        gone = spark.range(3).selectExpr("id", "2L AS seq", "'D' AS op")
        uri = tables[number].uri
        return merge(gone, uri, order="seq").deleted_keys

    assert in_threads(apply) == [3] * THREADS
    assert [inlay.open(f"{table.uri}/changes").count() for table in tables] == [3] * THREADS


def test_a_thread_gets_the_session_that_there_is_as_it_is(spark: Any, new_table: NewTable) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert all(found is spark for found in in_threads(lambda n: session()))
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    # After that, Spark finds the format in it, too.
    new = new_table(TEN.schema)

    def write(number: int) -> None:
        rows = session().range(number, number + 1).selectExpr("id", "1L AS seq")
        rows.write.format("inlay").mode("append").save(new.uri)

    in_threads(write)
    assert new.refresh().count() == THREADS

"""`inlay.spark.transaction`: DataFrames go into several tables by one commit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InvalidRequest
from inlay.format.codec import PREPARED
from inlay.format.keys import POINTER
from inlay.spark import transaction

ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])


def content(table: inlay.Table) -> dict[int, int]:
    return {r["id"]: r["n"] for r in inlay.open(table.uri).scan().to_arrow().to_pylist()}


def rows(spark: Any, *pairs: tuple[int, int]) -> Any:
    return spark.createDataFrame(list(pairs), "id bigint not null, n bigint").coalesce(1)


def test_an_append_and_a_merge_are_one_commit_once_or_nothing(spark, new_table) -> None:
    orders, lines, parted = (
        new_table(pa.table([[1, 2], [10, 20]], schema=ORDERS), primary_key="id", **more)
        for more in ({}, {}, {"partition_by": "bucket(2, id)"})
    )
    with pytest.raises(ZeroDivisionError), transaction() as tx:
        tx.append(rows(spark, (3, 30)), orders.uri)
        tx.merge(rows(spark, (1 // 0, 1)), lines.uri, order="n", op=None)
    with pytest.raises(InvalidRequest, match="partitioned") as refused, transaction() as tx:
        tx.append(rows(spark, (3, 30)), orders.uri)
        tx.append(rows(spark, (3, 30)), parted.uri)
    assert "Merge them with op=None" in refused.value.next_step
    assert content(orders) == content(lines) == {1: 10, 2: 20}
    for _ in range(2):
        with transaction(request_id="load") as tx:
            done = tx.append(rows(spark, (3, 30)), orders.uri)
            merged = tx.merge(rows(spark, (2, 21), (4, 40)), lines.uri, order="n", op=None)
            if done.committed:
                # Others that commit meanwhile are gone on from: the merge is planned again.
                inlay.open(lines.uri).upsert(pa.table([[2], [22]], schema=ORDERS))
        assert (done.added_rows, merged.keys) == (1, 2)
        assert content(orders) == {1: 10, 2: 20, 3: 30}
        assert content(lines) == {1: 10, 2: 22, 4: 40}
        if _ == 0:
            body = lines._ctx.store.get(lines._ctx.key(POINTER)).body
            assert body.startswith(PREPARED)
    assert [r.applied_before for r in tx.results] == [True, True]
    with transaction() as tx:  # as the refusal says
        tx.append(rows(spark, (5, 50)), orders.uri)
        tx.merge(rows(spark, (3, 30)), parted.uri, order="n", op=None)
    assert (content(orders)[5], content(parted)) == (50, {1: 10, 2: 20, 3: 30})
    assert inlay.open(orders.uri).maintain.verify().ok

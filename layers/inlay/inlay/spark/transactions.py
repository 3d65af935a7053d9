"""Transactions of Spark: DataFrames that go into several tables by one commit.

Promise: as `inlay.transaction`, of appends and merges: executors write and plan, the driver commits, all
tables at once or none. A job that is repeated with its `request_id` changes nothing.

::

    with inlay.spark.transaction(request_id="load 2026-11-26") as tx:
        tx.append(orders, "s3://lake/tables/orders")
        tx.merge(lines, "s3://lake/tables/lineitem", order="seq")
    tx.versions

What a table gets before its rows (columns that `schema.evolve` adds) is no part of it: a merge that would
add some is refused, an append adds them in a commit of its own, as it does alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import inlay
from inlay.spark.connect import connect
from inlay.spark.context import context_of
from inlay.spark.merge import MergeResult, merge
from inlay.spark.native_append import append

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from inlay import WriteResult


class Transaction:
    """See `transaction`."""

    def __init__(self, tx: Any) -> None:
        self._tx = tx

    def append(self, frame: DataFrame, uri: str, **options: Any) -> WriteResult:
        """As `inlay.spark.append`. Rows that only the source can write (`docs/SPARK.md`) are refused: it
        commits them itself. `merge` takes them, with `op=None`."""

        context_of(frame.sparkSession, "transaction")

        def run(_: inlay.Table, hold: Any) -> WriteResult:
            return append(frame, uri, hold=hold, **options)

        # Spark has written the files: they are not kept for another plan.
        done: WriteResult = self._tx.planned(_opened(uri), run, does="append", again=False)
        return done

    def merge(self, changes: DataFrame, uri: str, **options: Any) -> MergeResult:
        """As `pipelines.merge`: change records, of each key the newest one counts."""

        context_of(changes.sparkSession, "transaction")

        def run(_: inlay.Table, hold: Any) -> MergeResult:
            return merge(changes, uri, hold=hold, **options)

        done: MergeResult = self._tx.planned(_opened(uri), run, does="merge")
        return done

    @property
    def versions(self) -> dict[str, int]:
        """The version that each table has, by its URI."""
        versions: dict[str, int] = self._tx.versions
        return versions

    @property
    def results(self) -> tuple[WriteResult, ...]:
        results: tuple[WriteResult, ...] = self._tx.results
        return results


def _opened(uri: str) -> inlay.Table:
    return inlay.open(uri, context=connect(uri))


@contextmanager
def transaction(*, request_id: str | None = None) -> Iterator[Transaction]:
    """Appends and merges of DataFrames to several tables in one commit: each gets one version, or none
    does. Raises what `inlay.transaction` raises."""
    with inlay.transaction(request_id=request_id) as tx:
        yield Transaction(tx)

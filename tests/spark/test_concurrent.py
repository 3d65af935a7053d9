"""Appends, deletes and erasures go on while Spark packs and clusters a table."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.spark.cluster import cluster
from inlay.spark.maintenance import advance_erasures, compact

pytestmark = pytest.mark.spark

FILES = 12
ROWS = 100
WRITES = 12


def rows(start: int) -> pa.Table:
    return pa.table({"id": range(start, start + ROWS), "half": [i / 2 for i in range(ROWS)]})


class Writer(threading.Thread):
    """Appends, deletes of every kind and erasures, one after the other, each kept in `live`."""

    def __init__(self, uri: str, live: set[int]) -> None:
        super().__init__()
        self.uri, self.live = uri, live
        self.erased: set[int] = set()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for n in range(WRITES):
                self._write(n)
        except BaseException as error:
            self.failure = error

    def _write(self, n: int) -> None:
        table = inlay.open(self.uri)
        new, old = 10_000 + n * ROWS, n * ROWS
        table.append(rows(new))
        self.live |= set(range(new, new + ROWS))
        mode = ("tombstone", "vector", "erase")[n % 3]
        gone = {i for i in self.live if i % ROWS == n}
        table.refresh()
        table.delete(f"id IN ({', '.join(map(str, sorted(gone)))})", mode=mode)
        table.delete(f"id BETWEEN {old} AND {old + 9}")
        self.live -= gone | set(range(old, old + 10))
        if mode == "erase":
            self.erased |= gone


def test_writers_go_on_while_spark_compacts_and_clusters(
    spark: Any, new_table: Callable[..., inlay.Table]
) -> None:
    order = {"compact.strategy": "sort", "compact.columns": "half"}
    small = {"write.target_file_bytes": 4_096, "write.row_group_rows": 50, **order}
    table = new_table(rows(0).schema, primary_key="id", properties=small)
    for n in range(FILES):
        table.append(rows(n * ROWS))
    writer = Writer(table.uri, set(range(FILES * ROWS)))
    writer.start()
    beside: list[int] = []
    while writer.is_alive():
        before = table.refresh().version
        done = (compact(spark, table.uri), cluster(spark, table.uri))
        own = done[0].commits + done[1].slices
        beside.append(table.refresh().version - before - own)
    writer.join()
    assert writer.failure is None
    assert sum(beside) > WRITES  # versions of the writer while maintenance ran
    assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == sorted(writer.live)
    advance_erasures(spark, table.uri)
    compact(spark, table.uri)
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == sorted(writer.live)
    # The objects of writers that lost a race stay until garbage is collected.
    assert {f.kind for f in table.maintain.verify(depth="pages").findings} <= {"orphans"}
    folder = Path(table.uri.removeprefix("file://"))
    for entry in table.inspect.entries()[0]:
        assert not writer.erased & set(pq.read_table(folder / entry.key)["id"].to_pylist())

"""A stream of a table beside random commits: each row once, whatever happens to the files meanwhile.

The reader of the stream is run as Spark runs it, without Spark.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.errors import MergeConflict, RefExists
from inlay.spark.connect import load_snapshot
from inlay.spark.options import read_options
from inlay.spark.stream import InlayStreamReader
from inlay.spark.types import spark_schema

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]
# A row by its key and by the commit that wrote it: a row that is written again is another one.
Row = tuple[int, int]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("written", pa.int64())])
OPERATIONS = (
    *("append",) * 6,
    *("read",) * 3,
    *("upsert", "update", "tombstone", "vector", "rewrite", "erase", "drop"),
    *("compact", "branch", "merge") * 2,
)
COMMITS = 40
# 1 and 7 find rows of an open erasure where versions are read without its deletes; 2 and 36 find rows that
# come twice where files that a branch had compacted are taken for new ones.
SEEDS = (1, 2, 7, 36)


class Stream:
    """A query that is stopped after each micro-batch."""

    def __init__(self, table: inlay.Table, chance: random.Random) -> None:
        self.uri, self.chance = table.uri, chance
        self.offset: dict[str, Any] | None = None
        self.seen: Counter[Row] = Counter()

    def batch(self) -> bool:
        """One micro-batch, of any size; False when there is nothing new."""
        snapshot = load_snapshot(self.uri)
        limits = ({}, {"maxFilesPerTrigger": "2"}, {"maxBytesPerTrigger": "1"})
        options = read_options({"path": self.uri, **self.chance.choice(limits)})
        reader = InlayStreamReader(options, snapshot, spark_schema(snapshot.schema))
        start = self.offset or reader.initialOffset()
        end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
        self.offset = end
        if start == end:
            return False
        for part in reader.partitions(start, end):
            for rows in reader.read(part):
                self.seen.update(found(rows))
        return True


def found(rows: Any) -> list[Row]:
    return list(zip(rows["id"].to_pylist(), rows["written"].to_pylist(), strict=True))


class Writer:
    """Commits on main and on a branch; `erased`: the last commit before the erasure of a key."""

    def __init__(self, table: inlay.Table, chance: random.Random) -> None:
        self.table, self.chance = table, chance
        self.keys = self.commits = 0
        self.erased: dict[int, int] = {}

    def rows(self, keys: list[int]) -> pa.Table:
        self.commits += 1
        written = [self.commits] * len(keys)
        return pa.table({"id": keys, "written": written}, schema=SCHEMA)

    def do(self, operation: str) -> None:
        main, chance = self.table.refresh(), self.chance
        refs = ["main", *main.snapshot.refs]
        target = inlay.open(main.uri, ref=chance.choice(refs))
        key = chance.randrange(self.keys) if self.keys else 0
        match operation:
            case "append":
                new = range(self.keys, self.keys + chance.randint(1, 5))
                target.append(self.rows(list(new)))
                self.keys += len(new)
            case "upsert" if self.keys:
                target.upsert(self.rows([key]))
            case "update":
                self.commits += 1
                target.update({"written": str(self.commits)}, where=f"id IN ({key}, {key + 3})")
            case "tombstone" | "vector" | "rewrite":
                target.delete(f"id = {key}", mode=operation)
            case "erase":
                main.delete(f"id = {key}", mode="erase")
                self.erased[key] = self.commits
            case "compact":
                target.maintain.compact(small_bytes=1 << 30)
            case "branch":
                main.refs.branch("side")
            case "merge" if len(refs) > 1:
                main.refs.merge("side")
            case "drop" if len(refs) > 1:
                main.refs.drop("side")


@pytest.mark.parametrize("partition_by", [(), ("bucket(3, id)",)])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_has_each_row_of_main_once_and_none_that_is_erased(
    new_table: NewTable, seed: int, partition_by: tuple[str, ...]
) -> None:
    chance = random.Random(seed)
    table = new_table(SCHEMA, primary_key="id", partition_by=partition_by)
    writer, stream = Writer(table, chance), Stream(table, chance)
    ever: set[Row] = set()

    def read_on(*, to_the_end: bool) -> None:
        before = Counter(stream.seen)
        while stream.batch() and to_the_end:
            pass
        for key, written in stream.seen - before:
            assert written > writer.erased.get(key, -1), "a row that is being erased"

    for _ in range(COMMITS):
        operation = chance.choice(OPERATIONS)
        if operation == "read":
            read_on(to_the_end=False)
            continue
        try:
            writer.do(operation)
        except (MergeConflict, RefExists):
            continue
        ever.update(found(table.refresh().scan().to_arrow()))
    read_on(to_the_end=True)
    assert set(found(table.refresh().scan().to_arrow())) <= set(stream.seen) <= ever
    assert max(stream.seen.values()) == 1

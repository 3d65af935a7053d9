"""A table of numbered rows on a memory store, whose clock and requests are at hand."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pyarrow as pa

import inlay
from inlay.ops.context import Context, InlineExecutor
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import MeteredStore
from inlay.table import Table

from ..clock import Clock

SCHEMA = pa.schema([("id", pa.int64()), ("mark", pa.int64())])


def rows(ids: Iterable[int], mark: int = 0) -> pa.Table:
    ids = list(ids)
    return pa.table({"id": ids, "mark": [mark] * len(ids)}, schema=SCHEMA)


class Place:
    def __init__(self, **properties: object) -> None:
        self.time = Clock()
        self.store = MemoryStore("b", now_us=self.time.now_us)
        self.table = inlay.create(
            "memory://b/tables/t",
            SCHEMA,
            primary_key="id",
            properties={"write.row_group_rows": 4, **properties},
            context=self.context(),
        )

    def context(self) -> Context:
        """Of another process."""
        return Context(
            store=MeteredStore(self.store),
            root="tables/t",
            uri="memory://b/tables/t",
            executor=InlineExecutor(),
            clock=self.time,
            random=random.Random(self.time.now_us() + random.randrange(1 << 40)),
        )

    def open(self, **what: object) -> Table:
        self.time.sleep(1)
        return inlay.open("memory://b/tables/t", context=self.context(), **what)


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())

"""Random histories of a table: everything that changes rows, columns, files or partitions."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import inlay
from inlay.errors import ErrorKind, InlayError, InvalidRequest
from inlay.ops.erase.request import advance_erasures

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int32()), ("s", pa.string()), ("d", pa.date32())])
SPECS = (
    (),
    ("bucket(3, id)",),
    ("month(d)",),
    ("truncate(2, s)",),
    ("id",),
    ("month(d)", "bucket(2, s)"),
)
DAY = date(2024, 1, 1)


class History:
    """One table and what may happen to it; the same seed makes the same history."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.root = root / f"t{seed}"
        self.landing = root / f"in{seed}"
        self.landing.mkdir()
        self.next_id = 0
        self.names = 0
        self.log: list[str] = []
        self.table = self.create()
        self.steps: tuple[Callable[[], Any], ...] = (
            self.append,
            self.append,
            self.ingest,
            self.delete,
            self.delete,
            self.delete_keys,
            self.delete_row_group,
            self.update,
            self.upsert,
            self.add,
            self.drop,
            self.rename,
            self.widen,
            self.partition,
            self.compact,
            self.rewrite,
            self.restore,
            self.merge,
            self.erase,
        )

    def create(self) -> inlay.Table:
        return inlay.create(
            f"file://{self.root}",
            SCHEMA,
            primary_key="id",
            partition_by=self.random.choice(SPECS),
            properties={"write.row_group_rows": "40", "publish.format": "v3"},
        )

    def step(self) -> None:
        todo = self.random.choice(self.steps)
        self.log.append(todo.__name__)
        try:
            todo()
        except InlayError as error:
            # A refusal by the table is not a step; a broken promise is.
            assert error.kind in (ErrorKind.INPUT, ErrorKind.REBASE), self.log
            self.log[-1] += f" ({type(error).__name__})"
        self.table.refresh()

    # -- rows ---------------------------------------------------------------------------------

    def rows(self, count: int | None = None) -> pa.Table:
        count = self.random.randint(1, 120) if count is None else count
        first, self.next_id = self.next_id, self.next_id + count
        pick = self.random
        made: dict[str, pa.Array] = {}
        for field in self.table.schema:
            values: list[Any] = []
            for n in range(first, first + count):
                if field.name == "id":
                    values.append(n)
                elif field.nullable and pick.random() < 0.1:
                    values.append(None)
                elif pa.types.is_integer(field.type):
                    values.append(pick.randint(-50, 50))
                elif pa.types.is_floating(field.type):
                    values.append(pick.choice([0.5, -0.0, 1e9, float("nan")]))
                elif pa.types.is_date(field.type):
                    values.append(DAY + timedelta(days=pick.randint(0, 100)))
                else:
                    values.append(pick.choice(["", "ab", "abc", "é", "zz"]))
            made[field.name] = pa.array(values, field.type)
        return pa.table(made, schema=self.table.schema)

    def condition(self) -> str:
        low = self.random.randint(0, max(1, self.next_id))
        high = low + self.random.randint(0, 40)
        choices = [f"id BETWEEN {low} AND {high}", f"id = {low}"]
        if "a" in self.table.schema.names:
            choices.append(f"a > {self.random.randint(20, 60)}")
        if "s" in self.table.schema.names:
            choices.append("s = 'zz' OR s IS NULL")
        return self.random.choice(choices)

    def append(self) -> None:
        self.table.append(self.rows())

    def ingest(self) -> None:
        self.land(self.landed())

    def landed(self) -> pa.Table:
        """Rows of another writer: with the ids of another table, or with none."""
        rows = self.rows()
        ids = list(range(1, rows.num_columns + 1))
        self.random.shuffle(ids)
        if self.random.random() < 0.6:
            fields = [
                f.with_metadata({"PARQUET:field_id": str(i)})
                for f, i in zip(rows.schema, ids, strict=True)
            ]
            rows = rows.cast(pa.schema(fields))
        return rows

    def land(self, rows: pa.Table) -> None:
        path = self.landing / f"{self.next_id}.parquet"
        pq.write_table(rows, path)
        if self.random.random() < 0.3:
            os.utime(path, (1, 1))  # before any erasure that is still open
        keep = self.random.random() < 0.3
        if keep:
            self.table.set_properties(ingest__field_ids="keep")
        self.table.ingest([f"file://{path}"])
        if keep:
            self.table.set_properties(ingest__field_ids=None)

    def delete(self) -> None:
        mode = self.random.choice(["tombstone", "tombstone", "vector", "vector", "surgery"])
        self.table.delete(self.condition(), mode=mode)

    def delete_keys(self) -> None:
        picked = self.random.sample(range(max(1, self.next_id)), min(self.next_id, 70))
        self.table.delete(keys={"id": picked})

    def delete_row_group(self) -> None:
        files, _ = self.table.inspect.entries()
        if files:
            self.table.maintain.delete_row_groups(self.random.choice(files).key, [0])

    def update(self) -> None:
        name = self.random.choice([n for n in self.table.schema.names if n != "id"] or ["id"])
        self.table.update({name: "NULL"}, where=self.condition())

    def upsert(self) -> None:
        self.next_id = max(0, self.next_id - self.random.randint(0, 20))
        self.table.upsert(self.rows(10))

    # -- columns ------------------------------------------------------------------------------

    def add(self) -> None:
        # Names come back: a column that was dropped must not.
        name = self.random.choice(["a", "s", "x", "y"])
        kind = self.random.choice([pa.int32(), pa.string(), pa.float32()])
        if self.random.random() < 0.4 and kind == pa.int32():
            field = pa.field(name, kind, nullable=False)
            self.table.alter(add={name: field}, defaults={name: 7})
        else:
            self.table.alter(add={name: kind})

    def drop(self) -> None:
        self.table.alter(drop=[self.random.choice(["a", "s", "x", "y"])])

    def rename(self) -> None:
        self.names += 1
        name = self.random.choice(["a", "s", "x", "y"])
        self.table.alter(rename={name: self.random.choice(["a", "s", "x", "y"])})

    def widen(self) -> None:
        for field in self.table.schema:
            if field.type in (pa.int32(), pa.float32()):
                wider = pa.int64() if field.type == pa.int32() else pa.float64()
                self.table.alter(widen={field.name: wider})
                return

    def partition(self) -> None:
        self.table.set_partitioning(*self.random.choice(SPECS))

    # -- maintenance and going back -----------------------------------------------------------

    def compact(self) -> None:
        self.table.maintain.compact()

    def rewrite(self) -> None:
        self.table.maintain.rewrite()

    def restore(self) -> None:
        oldest = self.table.snapshot.oldest_version
        self.table.refs.restore(version=self.random.randint(oldest, self.table.version))

    def merge(self) -> None:
        name = f"b{self.table.version}"
        branch = self.table.refs.branch(name)
        try:
            branch.append(self.rows(20))
            branch.delete(self.condition(), mode=self.random.choice(["tombstone", "vector"]))
            self.table.refs.merge(name)
        finally:
            self.table.refs.drop(name)

    def erase(self) -> None:
        """It may be left open, before or after its files are rewritten."""
        self.table.delete(self.condition(), mode="erase")
        if self.random.random() < 0.4:
            return
        advance_erasures(self.table._ctx)
        self.table.refresh()
        if self.random.random() < 0.4:
            return
        done = self.table.maintain.collect_garbage(
            grace=timedelta(0), life_seconds=0, clock_margin_seconds=0
        )
        if not done.receipts:
            raise InvalidRequest(f"the erasure waits: {done.waiting}")

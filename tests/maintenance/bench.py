"""A small table in memory, and a clock that the tests move."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from inlay.format.predicate import Comparison, In, Literal, Predicate
from inlay.format.schema import Primitive
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.metadata.load import LoadedTable, load_entries, load_pointer, load_version
from inlay.ops.schema.create import create
from inlay.ops.write.append import append
from inlay.ops.write.delete import delete
from inlay.parquet.read.selection import Projection
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import plan_scan
from inlay.storage.memory import MemoryStore

from ..again import again
from ..clock import Clock

DAY = 86_400
INT64 = Primitive("int64")


@dataclass
class Bench:
    """One table and what tests do with it. Each step takes a second of the store's time."""

    time: Clock
    store: Any
    ctx: Context
    next_id: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> Bench:
        time, ctx = again(self.time, self.ctx)
        return replace(self, time=time, store=ctx.store, ctx=ctx, extra=dict(self.extra))

    def append(self, rows: int, *, start: int | None = None, value: str = "v") -> LoadedTable:
        self.time.sleep(1)
        first = self.next_id if start is None else start
        if start is None:
            self.next_id += rows
        ids = list(range(first, first + rows))
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "name": pa.array([f"{value}{i}" for i in ids], pa.string()),
            }
        )
        return append(self.ctx, table).loaded

    def delete(self, predicate: Predicate, **options: Any) -> LoadedTable:
        self.time.sleep(1)
        return delete(self.ctx, predicate, **options).loaded

    def load(self) -> LoadedTable:
        loaded = load_pointer(self.ctx)
        return LoadedTable(
            load_entries(self.ctx, loaded.state),
            loaded.etag,
            loaded.raw,
            loaded.date_us,
            loaded.read_at,
        )

    def rows(self, version: int | None = None) -> list[tuple[int, str]]:
        """Every live row, in the order files and rows have."""
        current = load_pointer(self.ctx).snapshot
        snapshot = current if version is None else load_version(self.ctx, current, version)
        state = load_entries(self.ctx, State(snapshot))
        plan = plan_scan(
            state.files(),
            state.markers(),
            evidence=Evidence.of_snapshot(snapshot),
        )
        projection = Projection(
            schema=snapshot.schema, columns=tuple(f.id for f in snapshot.schema.fields)
        )
        found: list[tuple[int, str]] = []
        for batch in self.ctx.reader.rows(plan.tasks, projection):
            found += [tuple(r.values()) for r in batch.to_pylist()]
        return found

    def ids(self, version: int | None = None) -> list[int]:
        return [row[0] for row in self.rows(version)]

    def keys(self, prefix: str = "") -> list[str]:
        root = self.ctx.root + "/"
        return [o.key.removeprefix(root) for o in self.store.list(root + prefix)]


def id_is(*ids: int) -> Predicate:
    if len(ids) == 1:
        return Comparison(1, "=", Literal(INT64, ids[0]))
    return In(1, INT64, tuple(sorted(ids)))


def id_below(limit: int) -> Predicate:
    return Comparison(1, "<", Literal(INT64, limit))


def positions(bench: Bench, predicate: Predicate) -> dict[str, Any]:
    loaded, ctx = bench.load(), bench.ctx
    evidence = Evidence.of_snapshot(loaded.snapshot)
    files, markers = loaded.state.loaded_files(), loaded.state.markers()
    tasks = plan_scan(files, markers, predicate, evidence=evidence, by_rows=True).tasks
    found = ctx.reader.positions(tasks, loaded.snapshot.schema)
    return {task.file.key: at for task, at in found}


def new_bench(
    *,
    store: Any = None,
    properties: Iterable[tuple[str, object]] = (),
    sort_by: tuple[str, ...] = (),
) -> Bench:
    time = Clock()
    store = MemoryStore("b", now_us=time.now_us) if store is None else store
    ctx = Context(
        store=store,
        root="tables/t",
        uri="memory://b/tables/t",
        executor=InlineExecutor(),
        clock=time,
        random=random.Random(7),
    )
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
    create(ctx, schema, primary_key=["id"], sort_by=sort_by, properties=dict(properties))
    return Bench(time, store, ctx)

"""A table of people, one of whom wants to be forgotten; every value of theirs is a secret."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.format.predicate import Comparison, Literal, Predicate
from inlay.format.schema import Primitive
from inlay.ops.collect_garbage import CollectResult, collect_garbage
from inlay.ops.commit.driver import commit
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.erase.request import advance_erasures, open_erasure
from inlay.ops.metadata.load import load_entries, load_pointer
from inlay.ops.schema.create import create
from inlay.ops.write.append import IngestSource, append
from inlay.ops.write.delete import delete
from inlay.ops.write.ingest import ingest
from inlay.parquet.read.selection import Projection
from inlay.plan.change import Change, Request, SetProperties
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import plan_scan
from inlay.storage.base import Location
from inlay.storage.memory import MemoryStore

from ..again import again
from ..clock import Clock
from .oracle import Secret, find

# The person to be forgotten: a key beyond and below all others, so that it is every file's bound.
WHO = 0x7ACE_D0C5_5EC2_E7F1
NAME = "zz-Xanthippe-7d1f"
CITY = "Qeqertarsuatsiaat"
NOTE = "note-4be1c0ffee"
SECRETS = (Secret(WHO), Secret(NAME), Secret(CITY), Secret(NOTE))
KEY = b"kept outside the bucket"

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("city", pa.string()),
        pa.field("visits", pa.list_(pa.struct([("note", pa.string()), ("at", pa.int64())]))),
    ]
)


def rows(ids: list[int]) -> pa.Table:
    """The person's row where `ids` has WHO."""
    secret = [i == WHO for i in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [NAME if s else f"name {i}" for i, s in zip(ids, secret, strict=True)],
            "city": [CITY if s else f"city {i % 3}" for i, s in zip(ids, secret, strict=True)],
            "visits": pa.array(
                [
                    [{"note": NOTE if s else f"n{i}", "at": i}, {"note": None, "at": None}]
                    for i, s in zip(ids, secret, strict=True)
                ],
                SCHEMA.field("visits").type,
            ),
        },
        schema=SCHEMA,
    )


def is_who(who: int = WHO) -> Predicate:
    return Comparison(1, "=", Literal(Primitive("int64"), who))


def is_named(name: str = NAME) -> Predicate:
    return Comparison(2, "=", Literal(Primitive("string"), name))


@dataclass
class People:
    time: Clock
    store: Any
    ctx: Context

    def append(self, *ids: int) -> None:
        self.time.sleep(1)
        append(self.ctx, rows(list(ids)))

    def land(self, name: str, *ids: int) -> Location:
        """Put a Parquet object into the landing zone."""
        self.time.sleep(1)
        sink = io.BytesIO()
        pq.write_table(rows(list(ids)), sink, row_group_size=3)
        self.store.put(f"ingest/people/{name}", sink.getvalue())
        return Location("memory", "b", f"ingest/people/{name}")

    def ingest(
        self, location: Location, *, adopt: bool = False, version_id: str | None = None
    ) -> Any:
        self.time.sleep(1)
        return ingest(self.ctx, [IngestSource(location, version_id=version_id)], adopt=adopt)

    def delete(self, predicate: Predicate, **options: Any) -> None:
        self.time.sleep(1)
        delete(self.ctx, predicate, **options)

    def erase(self, predicate: Predicate | None = None, request: str = "case-1") -> Any:
        self.time.sleep(1)
        asked = predicate or is_who()
        return open_erasure(self.ctx, asked, request=Request.of(request, body=str(asked)))

    def advance(self) -> Any:
        self.time.sleep(1)
        return advance_erasures(self.ctx)

    def collect(self, **options: Any) -> CollectResult:
        self.time.sleep(1)
        options = {"life_seconds": 900, "hmac_key": KEY, "landing": "ingest/people/", **options}
        return collect_garbage(self.ctx, **options)

    def finish(self) -> CollectResult:
        """Everything an erasure takes, as the functions would call it."""
        self.advance()
        result = self.collect()
        for _ in range(3):
            if result.receipts:
                return result
            self.time.sleep(1000)
            result = self.collect()
        return result

    def ids(self) -> list[int]:
        loaded = load_pointer(self.ctx)
        snapshot = loaded.snapshot
        state = load_entries(self.ctx, loaded.state)
        plan = plan_scan(
            state.files(),
            state.markers(),
            evidence=Evidence.of_snapshot(snapshot),
        )
        projection = Projection(schema=snapshot.schema, columns=(1,))
        batches = self.ctx.reader.rows(plan.tasks, projection)
        return sorted(i for batch in batches for i in batch.column(0).to_pylist())

    def found(self, *secrets: Secret) -> list[str]:
        return find(self.store, *(secrets or SECRETS))

    @property
    def snapshot(self) -> Any:
        return load_pointer(self.ctx).snapshot

    def copy(self) -> People:
        time, ctx = again(self.time, self.ctx)
        return People(time, ctx.store, ctx)

    def on(self, store: Any) -> People:
        """The same table through another store, by another process."""
        ctx = replace(self.ctx, store=store, random=random.Random(len(str(store)) + 99))
        return replace(self, store=self.store, ctx=ctx)


def touch(ctx: Context) -> None:
    """A commit that changes nothing that matters."""

    commit(ctx, Change(operation="touch", updates=(SetProperties({"my.owner": ctx.new_id()}),)))


def in_memory(seed: int, *, versioned: bool = False) -> People:
    """A bucket in memory and a process on it, without a table."""
    time = Clock()
    store = MemoryStore("b", now_us=time.now_us)
    if versioned:
        store.enable_versioning()
    ctx = Context(
        store=store,
        root="tables/people",
        uri="memory://b/tables/people",
        executor=InlineExecutor(),
        clock=time,
        random=random.Random(seed),
    )
    return People(time, store, ctx)


def new_people(
    schema: pa.Schema = SCHEMA,
    *,
    primary_key: Sequence[str] = ("id",),
    row_group_rows: int | None = 4,
    versioned: bool = False,
) -> People:
    """An empty table in memory; row groups of a few rows, or of the default size (None)."""
    people = in_memory(11, versioned=versioned)
    properties = {} if row_group_rows is None else {"write.row_group_rows": row_group_rows}
    create(people.ctx, schema, primary_key=primary_key, properties=properties)
    return people


def ids_with(*more: int, start: int = 0, count: int = 10) -> Iterator[int]:
    yield from range(start, start + count)
    yield from more

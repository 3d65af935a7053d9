"""A table on a memory store, seen by a process whose requests go wrong at will."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from tests.simulator.faults import FaultyStore, Plan, Sent, all_goes_well

from inlay.format import keys
from inlay.format.entry import ColumnStats, DataFile
from inlay.ops.commit.driver import Committed, commit
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.metadata.load import LoadedTable, load_entries, load_pointer
from inlay.ops.schema.create import create
from inlay.plan.change import AddFiles, Change
from inlay.storage.memory import MemoryStore

ROOT = "tables/t"
POINTER = f"{ROOT}/{keys.POINTER}"


class FakeClock:
    """Nobody waits; time passes by what was asked for, and a little with each wait."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def now_us(self) -> int:
        return int(self.now * 1_000_000)

    def sleep(self, seconds: float) -> None:
        self.now += seconds + 0.5


@dataclass
class World:
    """The store, and processes on it."""

    store: MemoryStore
    ctx: Context  # a process without faults
    now_us: list[int]  # the store's clock
    sent: list[tuple[str, str]] = field(default_factory=list)  # by `faulty`, relative to the table
    bodies: list[tuple[str, bytes]] = field(default_factory=list)  # that `faulty` put

    def faulty(self, plan: Plan = all_goes_well, before: Callable[[Sent], None] | None = None):
        """A process whose requests meet the fates of `plan`; `before` runs ahead of each."""

        def note(sent: Sent) -> None:
            self.sent.append((sent.verb, sent.key.removeprefix(f"{ROOT}/")))
            if before is not None:
                before(sent)

        return context(_Noting(FaultyStore(self.store, plan, before=note), self.bodies))

    def pointer(self) -> LoadedTable:
        return load_pointer(self.ctx)

    def files(self) -> list[str]:
        return sorted(f.key for f in load_entries(self.ctx, self.pointer().state).files())

    def append(self, key: str, **more: Any) -> LoadedTable:
        """Somebody else commits."""
        done = commit(self.ctx, append_of(key, **more))
        assert isinstance(done, Committed)
        return done.loaded


class _Noting:
    def __init__(self, inner: FaultyStore, bodies: list[tuple[str, bytes]]) -> None:
        self._inner, self._bodies = inner, bodies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, key: str, body: bytes, **how: Any) -> Any:
        self._bodies.append((key.removeprefix(f"{ROOT}/"), bytes(body)))
        return self._inner.put(key, body, **how)


def context(store: Any, seed: int | None = None) -> Context:
    """A process on the table, with randomness of its own."""
    return Context(
        store=store,
        root=ROOT,
        uri=f"memory://b/{ROOT}",
        executor=InlineExecutor(),
        clock=FakeClock(),
        random=random.Random(random.randrange(10**9) if seed is None else seed),
    )


def file(key: str, rows: int = 10) -> DataFile:
    stats = {1: ColumnStats(lower=0, upper=rows - 1, null_count=0)}
    return DataFile(
        key=key, size=100, footer_size=50, rows=rows, row_groups=1, schema_id=0, stats=stats
    )


def append_of(*names: str, **more: Any) -> Change:
    return Change(operation="append", **more, updates=(AddFiles(tuple(file(n) for n in names)),))


def at(verb: str, key: str, do: Callable[[], object], *, nth: int = 1) -> Callable[[Sent], None]:
    """A hook: `do` just before the nth request of this verb and key."""
    left = [nth]

    def hook(sent: Sent) -> None:
        if (sent.verb, sent.key) == (verb, key):
            left[0] -= 1
            if left[0] == 0:
                do()

    return hook


@pytest.fixture
def world() -> World:
    now_us = [1_780_000_000_000_000]
    store = MemoryStore("b", now_us=lambda: now_us[0])
    ctx = context(store)
    create(ctx, pa.schema([("id", pa.int64())]), primary_key=["id"])
    return World(store, ctx, now_us)

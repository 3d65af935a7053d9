"""Copies and clones whose every request fails, is lost, doubled or the last: the same call goes on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from tests.simulator.fates import CALM, World
from tests.simulator.faults import Fate, Killed
from tests.simulator.scheduler import Scheduler, SimulatedClock

from inlay.errors import ErrorKind, InlayError, TableExists, TableNotFound
from inlay.format import keys
from inlay.format.snapshot import Ref
from inlay.ops.clone import clone
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.copy import Copied, copy
from inlay.ops.metadata.load import load_entries, load_pointer
from inlay.ops.read.scan import Scan
from inlay.ops.schema.create import create
from inlay.ops.verify.table import verify
from inlay.ops.write.append import append
from inlay.ops.write.delete import delete
from inlay.parse import parse_predicate
from inlay.storage.memory import MemoryRegion, MemoryStore

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string())])
START_US = 1_780_000_000_000_000
TRIES = 12


@dataclass
class Place:
    """A table of three files without deletes and one with, and where it is copied to."""

    planned: dict[int, Fate] = field(default_factory=dict)
    like: Place | None = None

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(random.Random(1), start_us=START_US)
        now = lambda: self.scheduler.now_us  # noqa: E731
        self.region = MemoryRegion(now) if self.like is None else self.like.region.copy(now)
        self.world = World(self.scheduler, random.Random(1), CALM, self._seen)
        self.written: list[tuple[str, str]] = []
        self.processes = 100
        if self.like is None:
            self.fill()

    def fill(self) -> None:
        source = self.context("t")
        create(source, SCHEMA, primary_key=["id"])
        for n in range(4):
            ids = range(5 * n, 5 * n + 5)
            append(source, pa.table({"id": ids, "word": [f"w{i}" for i in ids]}))
        delete(
            source, parse_predicate("id = 17", load_pointer(source).snapshot.schema), mode="vector"
        )
        self.written.clear()

    def _seen(self, verb: str, key: str) -> None:
        self.written.append((verb, key))

    def context(self, name: str) -> Context:
        self.processes += 1
        return Context(
            store=self.world.process(MemoryStore("sim", region=self.region)),
            root=f"tables/{name}",
            uri=f"memory://sim/tables/{name}",
            executor=InlineExecutor(),
            clock=SimulatedClock(self.scheduler),
            random=random.Random(self.processes),
        )

    def rows(self, name: str) -> list[int]:
        ctx = self.context(name)
        state = load_entries(ctx, load_pointer(ctx).state)
        return sorted(Scan(ctx, state).to_arrow()["id"].to_pylist())

    def run(self, act: Callable[[Context, Context], Copied]) -> tuple[Copied | None, int]:
        """Until it is done by one process or another; also how many ended before. None: an earlier one
        had done it without learning so."""
        self.world.planned = {("main", n): fate for n, fate in self.planned.items()}
        self.world.counts.clear()
        self.world.possible.clear()
        ended = 0
        done: list[Copied | None] = []

        def work() -> None:
            nonlocal ended
            for _ in range(TRIES):
                try:
                    done.append(act(self.context("t"), self.context("copy")))
                    return
                except Killed:
                    ended += 1
                except TableExists:
                    assert ended  # nobody else makes it
                    done.append(None)
                    return
                except InlayError as error:
                    assert error.kind in (ErrorKind.RETRY, ErrorKind.REBASE), error
                    ended += 1
                self.check_whole_or_absent()

        self.scheduler.spawn("main", work)
        self.scheduler.run()
        assert done, "not done after many tries"
        return done[0], ended

    def check_whole_or_absent(self) -> None:
        planned, self.world.planned = self.world.planned, {}
        self.world.spared.add("main")
        counts = dict(self.world.counts)
        try:
            assert self.rows("copy") == RIGHT
        except TableNotFound:
            pass
        finally:
            self.world.planned = planned
            self.world.counts.clear()
            self.world.counts.update(counts)

    def land(self) -> None:
        while self.world.in_flight:
            self.world.land_one()


RIGHT = [n for n in range(20) if n != 17]


def copied(source: Context, into: Context) -> Copied:
    return copy(source, load_entries(source, load_pointer(source).state), into)


def cloned(source: Context, into: Context) -> Copied:
    loaded = load_pointer(source)
    at = Ref(kind="tag", version=loaded.snapshot.version)
    return clone(source, load_entries(source, loaded.state), at, into)


@pytest.mark.parametrize("act", [copied, cloned])
def test_whatever_becomes_of_any_request_there_is_one_whole_table(act) -> None:
    begun, calm = Place(), Place()
    calm.run(act)
    requests = [calm.world.possible["main", n] for n in range(1, calm.world.counts["main"] + 1)]
    assert len(requests) > 12
    for number, possible in enumerate(requests, start=1):
        for fate in (each for each in possible if each is not Fate.DONE):
            place = Place({number: fate}, like=begun)
            place.run(act)
            place.world.planned = {}
            place.land()
            assert place.rows("copy") == RIGHT, (number, fate)
            assert place.rows("t") == RIGHT
            ctx = place.context("copy")
            assert not verify(ctx).errors, (number, fate)
            if act is cloned:  # by one hold, whoever was killed before
                held = {f"clone-{load_pointer(ctx).snapshot.table_id}"}
                assert load_pointer(place.context("t")).snapshot.refs.keys() == held, (number, fate)
            # Nothing that it needs is garbage, here or there.
            place.scheduler.now_us += 30 * 86_400_000_000
            collect_garbage(place.context("t" if act is cloned else "copy"))
            assert place.rows("copy") == RIGHT


def test_a_killed_copy_sends_nothing_again_that_is_there() -> None:
    begun, calm = Place(), Place()
    calm.run(copied)
    count = calm.world.counts["main"]
    for number in range(1, count + 1):
        place = Place({number: Fate.KILLED_AFTER}, like=begun)
        _, ended = place.run(copied)
        assert ended == 1
        sent = Counter((verb, key) for verb, key in place.written if "/data/" in key)
        by_verb = Counter(verb for verb, _ in place.written if "/data/" in _)
        assert max(sent.values()) == 1  # no file twice
        assert by_verb["copy"] == 3
        # One file is written again where its process died between the rows and the note about them.
        assert by_verb["put"] in (1, 2)


@pytest.mark.parametrize("kill_at", [3, 6, 9])
def test_another_version_does_not_go_on_with_what_was_begun(kill_at: int) -> None:
    """Else rows that were deleted in between would be left in objects of the copy."""
    place = Place({kill_at: Fate.KILLED_AFTER})
    loaded = load_pointer(place.context("t"))
    said: list[str] = []

    def act(source: Context, into: Context) -> Copied:
        if place.processes > begun + 2:  # the second try
            delete(source, parse_predicate("id = 3", loaded.snapshot.schema), mode="rewrite")
            try:
                copied(source, into)
            except InlayError as error:
                assert error.kind is ErrorKind.INPUT
                said.append(str(error))
        return copy(source, load_entries(source, loaded.state), into)

    begun = place.processes
    place.run(act)
    assert place.rows("copy") == RIGHT and place.rows("t") == [n for n in RIGHT if n != 3]
    assert "--version 6" in said[0]


def test_the_notes_of_a_copy_go_with_it() -> None:
    place = Place()
    place.run(copied)
    ctx = place.context("copy")
    left = [info.key for info in ctx.store.list(ctx.key(keys.SEGMENTS))]
    assert left == []

"""Who wins again and again leaves turns to others: when it reads the pointer, and when it does not."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from inlay.ops.commit.driver import CONTENDED_SECONDS, MAX_UNREAD
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.ops.write.append import append

ROWS = pa.table({"id": pa.array([1], pa.int64())})
READ = ("get", "_latest_manifest")


def reads(world, count: int, before: Callable[[int, float], float] = lambda n, now: now):
    """Which of `count` appends in a row read the pointer first; `before` returns the time for each."""
    ctx = world.faulty()
    base: LoadedTable = load_pointer(ctx)
    found = []
    for n in range(count):
        ctx.clock.now = before(n, ctx.clock.now)
        world.sent.clear()
        base = append(ctx, ROWS, base=base).loaded
        found.append(READ in world.sent)
    return found


def test_a_writer_alone_reads_the_pointer_once_in_so_many_commits(world):
    found = reads(world, 2 * MAX_UNREAD + 2)
    assert [n for n, read in enumerate(found) if read] == [MAX_UNREAD, 2 * MAX_UNREAD]


def test_one_who_writes_now_and_then_reads_nothing(world):
    """Nobody waits for him."""
    found = reads(world, 2 * MAX_UNREAD + 2, before=lambda n, now: now + CONTENDED_SECONDS)
    assert not any(found)


def test_one_who_finds_anothers_commit_by_a_read_goes_on_reading_for_a_while(world):
    def before(n: int, now: float) -> float:
        if n == MAX_UNREAD:
            world.append("another")
        if n == MAX_UNREAD + 2:
            return now + CONTENDED_SECONDS / 2
        return now + CONTENDED_SECONDS if n == MAX_UNREAD + 3 else now

    found = reads(world, MAX_UNREAD + 5, before)
    last = MAX_UNREAD + 2
    assert [n for n, read in enumerate(found) if read] == [MAX_UNREAD, MAX_UNREAD + 1, last]

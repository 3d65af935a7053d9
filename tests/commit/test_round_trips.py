"""What of a write goes out at once, and what another writer in the way costs."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.simulator.faults import Fate, FaultyStore, Sent

from inlay.errors import SchemaMismatch, StoreUnavailable
from inlay.ops.commit.driver import Committed
from inlay.ops.commit.group import with_archive_begun
from inlay.ops.commit.register import RACED_SWAPS
from inlay.ops.context import Context, SystemClock, Workers
from inlay.ops.metadata.load import load_pointer
from inlay.ops.schema.create import create
from inlay.ops.write.append import append
from inlay.storage.memory import MemoryStore
from inlay.storage.write_once import MAX_TRIES

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
# Only there to end what would otherwise wait for ever.
SECONDS = 60.0


def threaded(store: Any) -> Context:
    return Context(
        store=store, root="t", uri="memory://b/t", executor=Workers(4), clock=SystemClock()
    )


def kind_of(key: str) -> str:
    return key.removeprefix("t/").partition("/")[0]


def test_a_warm_append_sends_its_data_beside_the_archive_and_then_the_pointer() -> None:
    store = MemoryStore("b")
    base = create(threaded(store), ROWS.schema)
    sent: list[str] = []
    both = threading.Barrier(2)

    def meet(request: Sent) -> None:
        sent.append(f"{request.verb} {kind_of(request.key)}")
        if len(sent) <= 2:
            both.wait(SECONDS)  # passes only when the other request is on its way as well

    ctx = threaded(FaultyStore(store, before=meet))
    assert isinstance(append(ctx, ROWS, base=base), Committed)
    assert sorted(sent[:2]) == ["put data", "put manifest"]
    assert sent[2:] == ["put _latest_manifest"]


def test_what_has_a_base_of_its_own_is_archived_by_one_of_many_threads() -> None:
    store = MemoryStore("b")
    sent: list[str] = []
    ctx = threaded(FaultyStore(store, before=lambda s: sent.append(s.verb)))
    base = create(ctx, ROWS.schema)
    sent.clear()
    found = [with_archive_begun(replace(ctx, branch=None), base) for _ in range(3)]
    assert [f.archiving.result().was_there for f in found if f.archiving] == [False] * 3
    assert sent == ["put"]


def test_an_archive_that_could_not_be_begun_is_begun_again() -> None:
    store = MemoryStore("b")
    base = create(threaded(store), ROWS.schema)
    fates = iter([Fate.UNSENT] * MAX_TRIES)
    ctx = threaded(FaultyStore(store, lambda sent: next(fates, Fate.DONE)))
    with pytest.raises(StoreUnavailable):
        found = with_archive_begun(ctx, base)
        assert found.archiving is not None
        found.archiving.result()
    again = with_archive_begun(ctx, base)
    assert again.archiving is not None
    assert not again.archiving.result().was_there


def test_rows_that_do_not_fit_are_refused_before_anything_is_sent() -> None:
    store = MemoryStore("b")
    sent: list[str] = []
    ctx = threaded(FaultyStore(store, before=lambda s: sent.append(s.verb)))
    base = create(ctx, ROWS.schema)
    sent.clear()
    with pytest.raises(SchemaMismatch):
        append(ctx, pa.table({"other": [1]}), base=base)
    with pytest.raises(SchemaMismatch):
        append(ctx, pa.table({"id": ["no number"]}), base=base)
    assert sent == []


def test_whoever_won_a_race_reads_the_pointer_before_the_next() -> None:
    store = MemoryStore("b")
    ctx = threaded(store)
    base = create(ctx, ROWS.schema)
    append(threaded(store), ROWS, base=base)
    sent: list[str] = []
    mine = threaded(FaultyStore(store, before=lambda s: sent.append(s.verb)))
    won = append(mine, ROWS, base=base)
    assert isinstance(won, Committed)
    assert won.attempts == 2
    # Data and the archive that is there; the pointer; the archive of what it says; the swap.
    assert sorted(sent[:2]) == ["put", "put"]
    assert sent[2:] == ["get", "put", "put"]
    sent.clear()
    again = append(mine, ROWS, base=won.loaded)
    assert isinstance(again, Committed)
    assert again.attempts == 1
    assert sent[0] == "get"
    assert sorted(sent[1:]) == ["put", "put", "put"]
    assert load_pointer(ctx).snapshot.totals.rows == 9


@pytest.mark.parametrize("refused", range(RACED_SWAPS + 3))
def test_a_swap_that_meets_another_under_way_is_sent_again_at_once(refused: int) -> None:
    """S3 answers 409 while it carries out another swap. A few times nothing but the swap is sent; then the
    pointer is read, as after any doubt."""
    store = MemoryStore("b")
    base = create(threaded(store), ROWS.schema)
    sent: list[str] = []

    def fate(request: Sent) -> Fate:
        sent.append(f"{request.verb} {kind_of(request.key)}")
        meets = sent.count("put _latest_manifest") <= refused
        return Fate.RACE if meets and sent[-1] == "put _latest_manifest" else Fate.DONE

    committed = append(threaded(FaultyStore(store, fate)), ROWS, base=base)
    assert isinstance(committed, Committed)
    assert committed.attempts == 1
    swaps = ["put _latest_manifest"] * (refused + 1)
    if refused > RACED_SWAPS:
        swaps.insert(1 + RACED_SWAPS, "get _latest_manifest")
    assert sent[2:] == swaps
    assert load_pointer(threaded(store)).snapshot.totals.rows == ROWS.num_rows


def test_a_swap_that_another_won_meanwhile_is_not_sent_on_its_base() -> None:
    """Refused in passing, then by the ETag: the loser goes on from the winner's version."""
    store = MemoryStore("b")
    base = create(threaded(store), ROWS.schema)
    sent: list[str] = []

    def fate(request: Sent) -> Fate:
        sent.append(f"{request.verb} {kind_of(request.key)}")
        if request.verb == "get" or sent.count("put _latest_manifest") != 1:
            return Fate.DONE
        if not request.key.endswith("_latest_manifest"):
            return Fate.DONE
        append(threaded(store), ROWS, base=base)
        return Fate.RACE

    committed = append(threaded(FaultyStore(store, fate)), ROWS, base=base)
    assert isinstance(committed, Committed)
    assert committed.attempts == 2
    assert sent[2:] == [
        *["put _latest_manifest"] * 2,
        "get _latest_manifest",
        "put manifest",
        "put _latest_manifest",
    ]
    assert load_pointer(threaded(store)).snapshot.totals.rows == 2 * ROWS.num_rows

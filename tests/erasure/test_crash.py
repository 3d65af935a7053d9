"""An erasure ends though its process dies at any request, or an answer is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from inlay.errors import RetryError
from inlay.ops.erase.receipt import verify_receipt
from inlay.ops.maintain.compact import compact
from inlay.storage.faults import Fate, FaultyStore, Killed, Sent

from .people import WHO, People, ids_with, is_named, new_people

KEPT = [*range(10), *range(20, 30), *range(40, 50)]


def _prepared(versioned: bool) -> People:
    people = new_people(versioned=versioned)
    people.append(*ids_with(WHO))
    people.ingest(people.land("a.parquet", *ids_with(WHO, start=20)))
    people.delete(is_named())
    people.append(*ids_with(WHO, start=40))
    upload = people.store.create_multipart("tables/people/data/2026/11/20/16/part.parquet")
    people.store.upload_part(
        "tables/people/data/2026/11/20/16/part.parquet", upload, 1, str(WHO).encode()
    )
    return people


def _process(people: People, store: object, seed: int) -> People:
    """Another process at work on the same table: its own store, randomness and memory."""
    ctx = replace(
        people.ctx,
        store=store,  # type: ignore[arg-type]
        random=random.Random(seed),
        cache=type(people.ctx.cache)(),
    )
    return replace(people, ctx=ctx)


def _script(process: People) -> None:
    """What the functions do, one after another; the delete message is delivered again each time."""
    process.erase()
    process.advance()
    for _ in range(4):
        process.collect()
        process.time.sleep(1000)


def _requests(versioned: bool) -> int:
    numbers: list[int] = []

    def count(sent: Sent) -> Fate:
        numbers.append(sent.number)
        return Fate.DONE

    people = _prepared(versioned)
    _script(_process(people, FaultyStore(people.store, count), 1))
    assert people.found() == []
    return numbers[-1]


def _strikes(number: int, fate: Fate) -> Callable[[Sent], Fate]:
    return lambda sent: fate if sent.number == number and fate in sent.possible else Fate.DONE


def _holds(people: People) -> None:
    assert people.found() == []
    assert people.ids() == KEPT
    assert people.snapshot.erasures == ()
    assert [o.key for o in people.store.list("tables/people/erasure/")] == [
        "tables/people/erasure/case-1.json"
    ]
    checked = verify_receipt(people.ctx, "case-1")
    assert (checked.problems, checked.still_gone > 0) == ((), True)
    assert list(people.store.list("ingest/")) == []


def _strike_all(versioned: bool, fates: tuple[Fate, ...], stride: int) -> None:
    for number in range(1, _requests(versioned) + 1, stride):
        for fate in fates:
            people = _prepared(versioned)
            struck = _process(people, FaultyStore(people.store, _strikes(number, fate)), 1)
            try:
                _script(struck)
            except (Killed, RetryError):
                # The platform starts another process; the queue delivers its messages again.
                _script(_process(people, people.store, 2))
            _holds(people)


def test_it_ends_after_a_crash_at_some_requests() -> None:
    _strike_all(False, (Fate.KILLED_AFTER,), stride=9)


def test_it_ends_after_answers_were_lost_or_refused() -> None:
    _strike_all(True, (Fate.LOST, Fate.REFUSED), stride=13)


@pytest.mark.slow
@pytest.mark.parametrize("versioned", [False, True])
def test_it_ends_after_a_crash_at_any_request(versioned: bool) -> None:
    _strike_all(versioned, (Fate.KILLED_BEFORE, Fate.KILLED_AFTER), stride=1)


@pytest.mark.slow
@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("fate", [Fate.UNSENT, Fate.LOST, Fate.RACE, Fate.REFUSED])
def test_it_ends_whatever_answer_is_lost(fate: Fate, versioned: bool) -> None:
    _strike_all(versioned, (fate,), stride=1)


def test_it_ends_beside_compaction_and_ingestion_after_a_crash() -> None:
    for number in range(2, _requests(False), 17):
        people = _prepared(False)
        struck = _process(people, FaultyStore(people.store, _strikes(number, Fate.KILLED_AFTER)), 1)
        try:
            struck.erase()
            compact(struck.ctx)
            struck.advance()
            struck.append(*ids_with(start=60))
            struck.collect()
        except Killed:
            pass
        survivor = _process(people, people.store, 2)
        compact(survivor.ctx)
        _script(survivor)
        assert people.found() == []
        assert [i for i in people.ids() if i < 60] == KEPT

"""Two operations at once, at every order of their requests (`tests.simulator.interleavings`)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from tests.simulator.interleavings import Pair, Start, explore, pairs, run, schedules, switches
from tests.simulator.pairs import OPERATIONS
from tests.simulator.simulation import memoized
from tests.tiers import in_short

from inlay.ops.commit import register as register_module
from inlay.ops.metadata.load import load_pointer

# One of each row of the conflict matrix: `make test` has seconds, `make interleavings` runs them all.
FEW = ("append", "delete range", "delete rows", "update vector", "rewrite", "compact")
SAMPLE = [f"{a} × {b}" for a, b in itertools.combinations_with_replacement(FEW, 2)]
SAMPLE += [f"{a} × {b}" for a in FEW for b in ("restore", "merge", "partial upsert")]
SAMPLE += ["partial upsert × partial upsert"]
# Each operation beside itself, and beside one that takes rows away.
SHORT = {f"{a} × {a}" for a in (*FEW, "partial upsert")}
SHORT |= {f"delete rows × {b}" for b in (*FEW, "restore", "merge")}
SHORT |= {"append × delete rows", "append × partial upsert", "delete range × delete rows"}


def looked_at(found):
    assert found.schedules > 2
    assert found.violations == [], "\n".join(
        f"{v}\npython -m tests.simulator.interleavings --replay '{found.pair}: {taken}'"
        for taken, v in found.violations[:3]
    )


@pytest.mark.parametrize("name", in_short(SAMPLE, SHORT))
def test_two_at_once_come_out_as_one_after_the_other(name):
    """One switch: the other runs to its end at each request of the one, both ways round."""
    looked_at(explore(Pair(name), preemptions=1, full=0))


def test_a_request_that_is_delivered_to_two_at_once_is_applied_once():
    looked_at(explore(Pair("append twice"), full=0))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("pair", pairs(), ids=str)
def test_every_pair_at_one_switch(pair):
    looked_at(explore(pair, preemptions=1, full=0))


@pytest.mark.parametrize("name", ["tag", "restore", "merge", "set partitioning"])
def test_what_works_on_history_has_work_to_do(name):
    """Else every order of its requests would be fine."""
    with memoized():
        start = Start.of(Pair(f"append × {name}"))
        assert run(start, (), only=1).commits == 1


def test_each_schedule_is_run_once_and_none_is_left_out():
    with memoized():
        start = Start.of(Pair("append × delete range"))
        alone = [run(start, (), only=n).requests[n] for n in (0, 1)]
        outcomes = list(schedules(start, 1))
    taken = [o.taken for o in outcomes]
    assert len(set(taken)) == len(taken)
    assert all(switches(t) <= 1 for t in taken)
    # Whoever begins is stopped before one of its requests, or never.
    assert len(taken) == sum(n + 1 for n in alone)


def test_a_schedule_replays_exactly():
    with memoized():
        start = Start.of(Pair("delete rows × update vector"))
        first = run(start, (0, 0, 1, 1, 0))
        assert run(start, first.taken) == first
        assert first.taken[:5] == (0, 0, 1, 1, 0)


def test_a_pointer_written_without_its_condition_is_found_out(monkeypatch):
    monkeypatch.setattr(register_module, "IfMatch", lambda etag: None)
    # Which looks for it already when the table is created.
    monkeypatch.setattr(register_module, "_check_condition", lambda ctx, data: None)
    assert explore(Pair("append × append"), preemptions=1, full=0).violations


def test_a_loser_that_uploads_again_is_found_out(monkeypatch):
    def wasteful(sim, number):
        append = OPERATIONS["append"](sim, number)

        def run(ctx, request):
            before = load_pointer(ctx).snapshot.version
            done = append.run(ctx, request)
            if done.loaded.snapshot.version > before + 1:
                ctx.store.put(ctx.key(f"data/{number}-again.parquet"), b"")
            return done

        return replace(append, run=run)

    monkeypatch.setitem(OPERATIONS, "wasteful", wasteful)
    found = explore(Pair("wasteful × append"), preemptions=1, full=0)
    assert {violation for _, violation in found.violations} == {
        "wasteful uploaded 1 objects again because of append"
    }

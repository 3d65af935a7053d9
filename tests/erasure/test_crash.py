"""An erasure ends though its process dies at any request, or an answer is lost."""

from __future__ import annotations

import pytest
from tests.simulator.faults import Fate, FaultyStore, Killed

import inlay.plan.surgery as strategy
from inlay.format.predicate import Or
from inlay.format.snapshot import Ref
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.ops.maintain.compact import compact
from inlay.ops.refs import branch
from inlay.plan.change import Request
from inlay.storage.base import Location

from .crashes import Scene, process_on, run_functions, strikes
from .oracle import guess
from .people import NAME, WHO, People, ids_with, is_named, is_who, new_people
from .test_gaps import file_with, with_gap
from .test_guesses import guesses
from .test_last_look import category
from .test_receipt import named_like_her

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


PLAIN = Scene(_prepared, run_functions, _holds)


def test_it_ends_after_a_crash_at_some_requests() -> None:
    PLAIN.strike(False, (Fate.KILLED_AFTER,), stride=9)


def test_it_ends_after_answers_were_lost_or_refused() -> None:
    PLAIN.strike(True, (Fate.LOST, Fate.TWICE), stride=13)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("versioned", [False, True])
def test_it_ends_after_a_crash_at_any_request(versioned: bool) -> None:
    PLAIN.strike(versioned, (Fate.KILLED_BEFORE, Fate.KILLED_AFTER), stride=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("fate", [Fate.UNSENT, Fate.LOST, Fate.RACE, Fate.TWICE])
def test_it_ends_whatever_answer_is_lost(fate: Fate, versioned: bool) -> None:
    PLAIN.strike(versioned, (fate,), stride=1)


def test_it_ends_beside_compaction_and_ingestion_after_a_crash() -> None:
    for number in range(2, PLAIN.requests(False), 17):
        people = _prepared(False)
        struck = process_on(
            people, FaultyStore(people.store, strikes(number, Fate.KILLED_AFTER)), 1
        )
        try:
            struck.erase()
            compact(struck.ctx)
            struck.advance()
            struck.append(*ids_with(start=60))
            struck.collect()
        except Killed:
            pass
        survivor = process_on(people, people.store, 2)
        compact(survivor.ctx)
        run_functions(survivor)
        assert people.found() == []
        assert [i for i in people.ids() if i < 60] == KEPT


# -- everything at once ---------------------------------------------------------------------------


def _crowded(versioned: bool) -> People:
    """Two persons, a branch, a file of another writer with a whole category, one that statistics of a name
    cannot rule out."""
    people = new_people(versioned=versioned)
    people.append(*ids_with(WHO))
    people.time.sleep(1)
    body = category(*range(20, 29))
    people.store.put("ingest/people/c.parquet", body, metadata={"of": NAME})
    people.ingest(Location("memory", "b", "ingest/people/c.parquet"))
    branch(people.ctx, "b", Ref(kind="tag", version=people.snapshot.version))
    named_like_her(people)
    people.append(*ids_with(WHO, start=40))
    return people


def _crowded_script(process: People) -> None:
    """Both are asked for; while they are in phase `purge`, a delete names the person."""
    process.erase(is_who(), "case-1")
    process.erase(is_named(), "case-2")
    process.advance()
    process.collect()
    late = Request.of("late", body=str(is_named()))
    process.delete(is_named(), request=late)
    for _ in range(5):
        process.time.sleep(1000)
        process.advance()
        process.collect()


def _crowded_holds(people: People) -> None:
    assert people.found() == []
    assert guess(people.store, guesses()) == []
    assert people.ids() == [*range(10), *range(20, 29), *range(40, 50), 900, 901]
    assert people.snapshot.erasures == ()
    for name in ("case-1", "case-2"):
        assert verify_receipt(people.ctx, name).problems == ()


CROWDED = Scene(_crowded, _crowded_script, _crowded_holds)


def test_erasures_together_and_late_deletes_survive_crashes_at_some_requests() -> None:
    CROWDED.strike(True, (Fate.KILLED_AFTER,), stride=41)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("fate", [Fate.KILLED_BEFORE, Fate.KILLED_AFTER, Fate.LOST, Fate.TWICE])
def test_erasures_together_and_late_deletes_survive_crashes_at_any_request(
    fate: Fate, versioned: bool
) -> None:
    CROWDED.strike(versioned, (fate,), stride=1)


# -- files of other writers, cut by surgery -------------------------------------------------------


@pytest.fixture
def surgery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of small files."""
    monkeypatch.setattr(strategy, "SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(strategy, "rewrite_cost", lambda *_: strategy.Cost(10_000))


def _foreign(versioned: bool) -> People:
    """An adopted file with her row and an old footer that names her, a landed one that only names her."""
    people = new_people(versioned=versioned)
    people.time.sleep(1)
    gap = with_gap(file_with(*ids_with(WHO, start=20, count=9)), "within a group", NAME.encode())
    people.store.put("else/a.parquet", with_gap(gap, "before the footer", NAME.encode()))
    people.ingest(Location("memory", "b", "else/a.parquet"), adopt=True)
    people.time.sleep(1)
    named = with_gap(category(*range(30, 36)), "before all", NAME.encode())
    people.store.put("ingest/people/c.parquet", named)
    people.ingest(Location("memory", "b", "ingest/people/c.parquet"))
    return people


def _foreign_script(process: People) -> None:
    process.erase(Or((is_who(), is_named())))
    process.advance()
    for _ in range(4):
        process.collect()
        process.time.sleep(1000)


def _foreign_holds(people: People) -> None:
    # An object of somebody else's stays where it is.
    assert [f for f in people.found() if "else/" not in f.split(" (")[0]] == []
    assert people.ids() == [*range(20, 29), *range(30, 36)]
    assert people.snapshot.erasures == ()
    assert all(f.is_foreign for f in people.snapshot.files.inline)
    assert verify_receipt(people.ctx, "case-1").problems == ()


FOREIGN = Scene(_foreign, _foreign_script, _foreign_holds)


@pytest.mark.usefixtures("surgery")
def test_surgery_of_others_files_ends_after_crashes_at_some_requests() -> None:
    FOREIGN.strike(True, (Fate.KILLED_AFTER,), stride=17)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("surgery")
@pytest.mark.parametrize("versioned", [False, True])
def test_surgery_of_others_files_ends_after_crashes_at_any_request(versioned: bool) -> None:
    FOREIGN.strike(versioned, (Fate.KILLED_BEFORE, Fate.KILLED_AFTER), stride=1)

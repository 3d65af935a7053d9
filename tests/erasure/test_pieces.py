"""An erasure whose files do not fit one invocation goes on group by group, and leaves nothing either."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulator.faults import Fate, FaultyStore, Killed, Sent

from inlay.format.codec import decode_frame
from inlay.format.snapshot import Ref
from inlay.ops.erase.request import AdvanceResult, advance_erasures
from inlay.ops.refs import branch, tag
from inlay.ops.verify.table import verify
from inlay.parquet.surgery import new_object as judge

from .crashes import process_on
from .people import WHO, People, is_named, new_people

GROUP_SECONDS = 10.0
EDIT = judge.edit_group
# Four rows to a group: the person is in six of seven, twice in one.
IDS = [
    WHO,
    1,
    2,
    3,
    4,
    WHO,
    WHO,
    7,
    8,
    9,
    10,
    11,
    *(n for i in range(20, 32, 3) for n in (i, WHO, i + 1, i + 2)),
]
KEPT = sorted(i for i in IDS if i != WHO)


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> People:
    return prepared(monkeypatch)


def prepared(monkeypatch: pytest.MonkeyPatch) -> People:
    """The person in many groups of one file of main, of a branch and of a tag, hidden by an older delete on
    main; rewriting a group takes `GROUP_SECONDS`."""
    people = new_people()

    def slow(*args: Any, **options: Any) -> Any:
        people.time.sleep(GROUP_SECONDS)
        return EDIT(*args, **options)

    monkeypatch.setattr(judge, "edit_group", slow)
    monkeypatch.setattr("inlay.plan.surgery.SMALL_FILE_BYTES", 0)
    people.append(*IDS)
    here = Ref(kind="tag", version=people.snapshot.version)
    branch(people.ctx, "work", here)
    tag(people.ctx, "release", here)
    people.delete(is_named(), mode="vector")
    return people


def advance(people: People, seconds: float = 15) -> AdvanceResult:
    """One invocation; with 15 seconds there is time for one group of each file that is begun."""
    people.time.sleep(1)
    return advance_erasures(people.ctx, deadline_seconds=seconds)


def finish(people: People, seconds: float = 15) -> dict[str, Any]:
    """Everything to its end; what the receipt says."""
    while True:
        begun = people.time.seconds
        result = advance(people, seconds)
        # The first piece of a file takes whatever time it takes, and no second is begun late.
        assert people.time.seconds - begun <= seconds + 2 * GROUP_SECONDS
        assert people.ids() == KEPT and not result.failures
        if not result.left:
            break
        assert people.collect().receipts == ()
        waiting = [w for e in result.erasures for w in e.waiting]
        assert [w for w in waiting if w.what == "file"]
    [key] = people.finish().receipts
    return decode_frame("erasure", people.store.get(people.ctx.key(key)).body, key=key)


def is_clean(people: People) -> None:
    assert people.found() == []
    assert people.ids() == KEPT
    assert people.snapshot.erasures == ()
    assert verify(people.ctx, depth="pages").errors == ()


def test_group_by_group_it_ends_as_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    receipts = []
    for seconds in (15, 10_000):
        people = prepared(monkeypatch)
        people.erase()
        receipts.append(finish(people, seconds))
        is_clean(people)
    in_pieces, at_once = receipts
    for name in ("rewritten_objects", "removed_rows", "predicate_hmac_sha256"):
        assert in_pieces[name] == at_once[name]
    assert at_once["rewritten_objects"] == 3
    assert at_once["removed_rows"] == 3 * IDS.count(WHO)


def test_it_ends_though_a_process_died_at_any_request_of_a_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number, struck = 1, True
    while struck:
        people = prepared(monkeypatch)
        people.erase()
        advance(people)

        def plan(sent: Sent, at: int = number) -> Fate:
            return Fate.KILLED_AFTER if sent.number == at else Fate.DONE

        try:
            advance(process_on(people, FaultyStore(people.store, plan), 1))
            struck = False
        except Killed:
            pass
        finish(process_on(people, people.store, 2))
        is_clean(people)
        number += 7
    assert number > 12


def test_rows_of_the_person_that_come_back_into_the_file_between_pieces_stay(
    people: People,
) -> None:
    people.erase()
    assert advance(people).left
    people.append(WHO)  # a new row, after the erasure
    while advance(people).left:
        pass
    assert people.ids() == sorted([*KEPT, WHO])


def test_time_that_is_over_is_over_for_branches_too(people: People) -> None:
    people.erase()
    result = advance(people, 5)
    # One group of main; the branch and the tag wait, and are not forgotten.
    assert (result.files, result.left) == (1, 3)
    assert {w.reason for e in result.erasures for w in e.waiting if w.what == "file"} == {
        "it has to be rewritten",
        "it has to be rewritten (for release)",
        "it has to be rewritten (for work)",
    }


@pytest.mark.parametrize("memory_bytes", [100, None], ids=["told", "the machine's"])
def test_a_group_that_does_not_fit_the_memory_keeps_the_erasure_open_and_is_named(
    people: People, memory_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.erase()
    people.time.sleep(1)
    with monkeypatch.context() as small:
        if memory_bytes is None:
            small.setattr("os.sysconf", lambda name: 10)
        result = advance_erasures(people.ctx, memory_bytes=memory_bytes)
    assert result.failures and result.files == 0
    [erasure] = result.erasures
    assert any("MiB of memory" in waiting.reason for waiting in erasure.waiting)
    assert people.collect().receipts == ()
    people.time.sleep(1)
    finish(people)
    is_clean(people)

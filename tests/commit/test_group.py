"""Group commit: the result that each of several appends sharing a swap gets, and what the table then
holds."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.simulator.faults import Fate, Killed, once

import inlay
from inlay.errors import InlayError, OutcomeUnknown, RequestReused, StaleUpload
from inlay.format import keys
from inlay.ops.commit.driver import Committed, Skipped, commit
from inlay.ops.commit.group import (
    CommitQueue,
    commit_all,
    commit_together,
    may_join,
    merge,
    only_appends,
)
from inlay.ops.context import Shared
from inlay.ops.metadata.load import load_pointer
from inlay.plan.change import AdvanceStream, Change, MoveBoundary, RemoveFiles, Request
from inlay.plan.metadata.state import LedgerSalt

from .conftest import POINTER, append_of, at

ROW = pa.table({"id": pa.array([1], pa.int64())})


def request(name: str, **more) -> Request:
    return Request.of(name, **more)


def three() -> list[Change]:
    return [append_of(name, request=request(name)) for name in "abc"]


# -- one commit of several ------------------------------------------------------------------------


def test_several_appends_are_one_version_by_one_swap(world):
    base = world.pointer()
    done = commit_all(world.faulty(), three(), base=base)
    assert [d.loaded.snapshot.version for d in done] == [2, 2, 2]
    assert world.files() == ["a", "b", "c"]
    assert [key for _, key in world.sent] == [keys.archive_key(1), keys.POINTER]


def test_each_is_remembered_under_its_own_request_and_content(world):
    changes = [append_of(n, request=request(n, body=f"of {n}")) for n in "abc"]
    commit_all(world.ctx, changes, base=world.pointer())
    for change in changes:
        again = commit(world.ctx, change)
        assert isinstance(again, Skipped)
        assert again.version == 2
    with pytest.raises(RequestReused):
        commit(world.ctx, append_of("d", request=request("b", body="of another")))
    assert world.files() == ["a", "b", "c"]


def test_each_gets_its_own_share(world):
    changes = [append_of("a", request=request("a")), append_of("b", "c")]
    one, two = commit_all(world.ctx, changes, base=world.pointer())
    assert (one.share.added_files, one.share.added_rows, one.share.request) == (1, 10, "a")
    assert (two.share.added_files, two.share.added_rows, two.share.request) == (2, 20, None)
    assert world.pointer().snapshot.commit.added_rows == 30


def test_a_duplicate_takes_itself_out_and_nobody_else(world):
    world.append("earlier", request=request("b"))
    a, b, c = commit_all(world.ctx, three(), base=world.pointer())
    assert isinstance(a, Committed)
    assert isinstance(b, Skipped)
    assert isinstance(c, Committed)
    assert b.version == 2
    assert world.files() == ["a", "c", "earlier"]


def test_what_another_process_applies_during_the_race_is_not_applied_again(world):
    meanwhile = at("put", POINTER, lambda: world.append("theirs", request=request("b")))
    a, b, c = commit_all(world.faulty(before=meanwhile), three(), base=world.pointer())
    assert (a.attempts, c.attempts) == (2, 2)
    assert isinstance(b, Skipped)
    assert world.files() == ["a", "c", "theirs"]


def test_when_all_were_applied_before_nothing_is_committed(world):
    commit_all(world.ctx, three(), base=world.pointer())
    again = commit_all(world.faulty(), three(), base=world.pointer())
    assert [r.version for r in again] == [2, 2, 2]
    assert world.sent == []


def test_a_stale_upload_takes_itself_out_and_nobody_else(world):
    old = world.pointer().date_us
    boundary = MoveBoundary(old + 1)
    commit(world.ctx, Change(operation="collect_garbage", updates=(boundary,)))
    changes = [append_of("a", uploaded_us=old), append_of("b", uploaded_us=old + 1)]
    one, two = commit_all(world.ctx, changes, base=world.pointer())
    assert isinstance(one, StaleUpload)
    assert isinstance(two, Committed)
    assert world.files() == ["b"]


def test_a_swap_whose_answer_was_lost_is_found_for_all(world):
    ctx = world.faulty(once(Fate.LOST, verb="put", key=POINTER))
    done = commit_all(ctx, three(), base=world.pointer())
    assert all(isinstance(d, Committed) for d in done)
    assert world.files() == ["a", "b", "c"]


def test_events_of_a_batch_are_distinguished(world):
    world.append("earlier", events=(request("e1"),))
    changes = [
        Change(operation="ingest", events=(request("e1"), request("e2"))),
        Change(operation="ingest", events=(request("e3"),)),
    ]
    one, two = commit_all(world.ctx, changes, base=world.pointer())
    assert one.duplicates == {request("e1").id}
    assert two.duplicates == frozenset()


def test_a_content_is_salted_also_beside_events_that_have_none(world):
    """Without a salt whoever guesses it finds it in the ledger."""
    first = request("a", body="a guess")
    commit_all(
        world.ctx,
        [append_of("a", request=first), append_of("b", events=(request("e"),))],
        base=world.pointer(),
    )
    snapshot = world.pointer().snapshot
    [record] = [r for r in snapshot.ledger.records.inline if r.id == first.id]
    salt = LedgerSalt.of(snapshot.properties)
    assert salt is not None and first.body is not None
    assert record.body == salt.digest(first.body) != first.body


# -- who may share --------------------------------------------------------------------------------


def test_only_what_adds_files_shares():
    assert only_appends(append_of("a", request=request("a"), uploaded_us=1))
    assert not only_appends(Change(operation="delete", updates=(RemoveFiles(("a",)),)))
    append = append_of("a")
    moved_on = (*append.updates, AdvanceStream("q", 1))
    assert not only_appends(replace(append, updates=moved_on))


def test_twins_and_other_operations_do_not_join():
    assert may_join([append_of("a", request=request("a"))], append_of("b", request=request("b")))
    assert not may_join(
        [append_of("a", request=request("a"))], append_of("b", request=request("a"))
    )
    assert not may_join([append_of("a")], Change(operation="ingest", events=(request("e"),)))


def test_a_merged_change_is_as_old_as_its_oldest_upload():
    merged = merge([append_of("a", uploaded_us=7), append_of("b"), append_of("c", uploaded_us=5)])
    assert merged.uploaded_us == 5
    assert [f.key for f in merged.added] == ["a", "b", "c"]


# -- threads --------------------------------------------------------------------------------------


class Threads:
    """Threads that commit while the first of them is held up in its swap, until all others wait."""

    def __init__(self, world, waiting: int) -> None:
        self.held = at("put", POINTER, lambda: self._until(waiting))
        self.world = world
        self.told: dict[str, object] = {}
        self.shared = Shared()
        self.base = world.pointer()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def _until(self, waiting: int) -> None:
        for _ in range(20_000):
            if len(self.shared.one(CommitQueue)._queue.get().waiting) == waiting:
                return
            threading.Event().wait(0.001)
        raise AssertionError("the others never came")

    def start(self, name: str, change: Change, ctx) -> None:
        def run() -> None:
            try:
                told: object = commit_together(
                    replace(ctx, shared=self.shared), change, base=self.base
                )
            except (InlayError, Killed) as error:
                told = error
            with self._lock:
                self.told[name] = told

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def led_by(self, name: str, change: Change, ctx) -> None:
        self.start(name, change, ctx)
        for _ in range(20_000):
            if self.world.sent:
                return
            threading.Event().wait(0.001)

    def join(self) -> dict[str, object]:
        for each in self._threads:
            each.join(30)
            assert not each.is_alive()
        return self.told


def test_appends_that_come_while_another_commits_share_the_next_swap(world):
    threads = Threads(world, waiting=5)
    ctx = world.faulty(before=threads.held)
    threads.led_by("first", append_of("first"), ctx)
    for n in range(5):
        threads.start(str(n), append_of(f"f{n}", request=request(str(n))), ctx)
    told = threads.join()
    versions = {name: done.loaded.snapshot.version for name, done in told.items()}
    assert versions == {"first": 2, **{str(n): 3 for n in range(5)}}
    assert world.sent.count(("put", keys.POINTER)) == 2
    assert ("get", keys.POINTER) not in world.sent, "the second turn knows what the first one left"
    assert world.files() == ["f0", "f1", "f2", "f3", "f4", "first"]


def test_of_twins_in_one_process_one_is_applied_and_the_other_is_skipped(world):
    threads = Threads(world, waiting=2)
    ctx = world.faulty(before=threads.held)
    threads.led_by("first", append_of("first"), ctx)
    threads.start("one", append_of("x", request=request("r")), ctx)
    threads.start("two", append_of("y", request=request("r")), ctx)
    told = threads.join()
    kinds = sorted(type(told[name]).__name__ for name in ("one", "two"))
    assert kinds == ["Committed", "Skipped"]
    assert len(world.files()) == 2


def test_when_the_committing_thread_dies_the_others_get_an_unknown_outcome(world):
    threads = Threads(world, waiting=3)
    plain = world.faulty(before=threads.held)
    dying = world.faulty(once(Fate.KILLED_AFTER, verb="put", key=POINTER))
    threads.led_by("first", append_of("first"), plain)
    for name in "abc":
        threads.start(name, append_of(name, request=request(name)), dying)
    told = threads.join()
    assert sorted(type(told[name]).__name__ for name in "abc") == [
        "Killed",
        "OutcomeUnknown",
        "OutcomeUnknown",
    ]
    again = commit_together(
        replace(world.ctx, shared=threads.shared), three()[0], base=threads.base
    )
    assert isinstance(again, Skipped)
    assert world.files() == ["a", "b", "c", "first"]


def test_an_error_of_the_commit_reaches_every_thread_as_its_own(world):
    threads = Threads(world, waiting=2)

    def never(sent):
        is_swap = (sent.verb, sent.key) == ("put", POINTER)
        return Fate.UNSENT if is_swap else Fate.DONE

    ctx = world.faulty(never, before=threads.held)
    threads.led_by("first", append_of("first"), ctx)
    for name in "ab":
        threads.start(name, append_of(name), ctx)
    told = threads.join()
    assert all(isinstance(error, OutcomeUnknown) for error in told.values())
    assert len({id(error) for error in told.values()}) == 3
    assert world.files() == []


def test_a_table_opened_again_after_a_rollback_can_be_written(world):
    first = world.pointer()
    commit_together(world.ctx, append_of("a"), base=first)
    commit_together(world.ctx, append_of("b"), base=world.pointer())
    world.store.put(POINTER, first.raw)
    for n in (1, 2):
        world.store.delete([f"{world.ctx.root}/{keys.archive_key(n)}"])
    world.ctx.clock.now += 1
    done = commit_together(world.ctx, append_of("c"), base=load_pointer(world.ctx))
    assert isinstance(done, Committed)
    assert world.files() == ["c"]


def test_tables_opened_apart_share_their_turns():
    uri = "memory://group-of-one-process/t"
    inlay.create(uri, ROW.schema)
    one, two = inlay.open(uri), inlay.open(uri)
    one.append(ROW)
    result = two.append(ROW)
    assert result.attempts == 1, "it went on from what the other had left"
    assert dict(result.usage.requests) == {"put": 3}
    assert inlay.open(uri).count() == 2
    elsewhere = inlay.create("memory://group-of-one-process/other", ROW.schema)
    assert elsewhere._ctx.shared is not one._ctx.shared


# -- turns ----------------------------------------------------------------------------------------


def take(turns, item, *, work, fits):
    """The answer to `item`; `work` gets the items of a turn and what was kept, and returns both."""
    with turns.turn(item, fits=fits) as turn:
        if turn.items:
            turn.answers, turn.kept = work(turn.items, turn.kept)
    return turn.answers[0]


def test_a_thread_alone_works_at_once():
    turns: CommitQueue[int, int, int] = CommitQueue()
    seen: list[object] = []

    def work(items, kept):
        seen.append((list(items), kept))
        return [i * 10 for i in items], sum(items)

    assert [take(turns, i, work=work, fits=lambda *_: True) for i in (1, 2)] == [10, 20]
    assert seen == [([1], None), ([2], 1)]


def test_a_failed_turn_keeps_nothing_and_ends():
    turns: CommitQueue[int, int, int] = CommitQueue()

    def fail(items, kept):
        raise ValueError

    take(turns, 1, work=lambda items, kept: (items, 1), fits=lambda *_: True)
    with pytest.raises(ValueError):
        take(turns, 2, work=fail, fits=lambda *_: True)
    kept_by = []
    take(
        turns, 3, work=lambda items, kept: (kept_by.append(kept) or items, 1), fits=lambda *_: True
    )
    assert kept_by == [None]


def test_turns_are_taken_in_order_each_by_one_thread_and_never_two_at_a_time():
    turns: CommitQueue[int, int, None] = CommitQueue()
    lock, inside, workers, served = threading.Lock(), [0], [], []

    def work(items, kept):
        with lock:
            inside[0] += 1
            assert inside[0] == 1
        workers.append(threading.current_thread())
        served.extend(items)
        with lock:
            inside[0] -= 1
        return [-i for i in items], None

    def run(n: int) -> None:
        assert take(turns, n, work=work, fits=lambda items, _: len(items) < 3) == -n

    threads = [threading.Thread(target=run, args=(n,)) for n in range(40)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert sorted(served) == list(range(40))
    assert len(workers) == len(set(workers)), "a thread worked for others after its own was done"


def test_an_interrupted_waiter_does_not_keep_the_others_waiting(monkeypatch):
    turns: CommitQueue[str, str, None] = CommitQueue()
    entered, let_go, told = threading.Event(), threading.Event(), []

    def work(items, kept):
        if items[0] == "leader":
            entered.set()
            let_go.wait(30)
        return items, None

    def run(name: str) -> None:
        told.append(take(turns, name, work=work, fits=lambda *_: False))

    leader = threading.Thread(target=run, args=("leader",))
    leader.start()
    entered.wait(30)

    here, wait = threading.current_thread(), threading.Event.wait

    def interrupted(event, timeout=None):
        if threading.current_thread() is here:
            raise KeyboardInterrupt
        return wait(event, timeout)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            take(turns, "interrupted", work=work, fits=lambda *_: False)
    last = threading.Thread(target=run, args=("last",))
    last.start()
    let_go.set()
    leader.join(30)
    last.join(30)
    assert sorted(told) == ["last", "leader"]


def test_one_interrupted_at_its_turn_leaves_the_turn_to_the_next(monkeypatch):
    turns: CommitQueue[str, str, None] = CommitQueue()

    def interrupted(event, timeout=None):
        raise KeyboardInterrupt

    def work(items, kept):
        return items, None

    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            take(turns, "interrupted", work=work, fits=lambda *_: True)
    told: list[str] = []
    after = threading.Thread(
        target=lambda: told.append(take(turns, "after", work=work, fits=lambda *_: True)),
        daemon=True,
    )
    after.start()
    after.join(10)
    assert told == ["after"]


def test_what_could_not_be_begun_keeps_no_thread_waiting():
    """An executor that is shut down takes no task: who shares the work is not kept, and the next begins."""
    queue = CommitQueue()
    done = ThreadPoolExecutor(1)
    done.shutdown()
    with pytest.raises(RuntimeError):
        queue.beside("key", lambda: 1, executor=done, unless=lambda kept: False)
    with ThreadPoolExecutor(1) as pool:
        begun = queue.beside("key", lambda: 2, executor=pool, unless=lambda kept: False)
        assert begun is not None
        assert begun.result(60) == 2

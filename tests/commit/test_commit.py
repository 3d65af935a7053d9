"""The commit protocol's single promises (docs/FORMAT.md, "Commit"), one sentence each."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.clock import Clock
from tests.simulator.faults import Fate, FaultyStore, Killed, Sent, once

import inlay
from inlay.errors import (
    CommitContention,
    OutcomeUnknown,
    RequestReused,
    StaleUpload,
    StoreUnavailable,
    TableExists,
    TableReplaced,
)
from inlay.format import keys
from inlay.format.codec import decode_snapshot, encode_snapshot
from inlay.ops.commit import driver as commit_module
from inlay.ops.commit import register
from inlay.ops.commit.driver import Committed, Skipped, WrittenSegments, commit
from inlay.ops.context import Context, InlineExecutor, connect
from inlay.ops.schema.create import create
from inlay.plan.change import Change, MoveBoundary, Request, SetProperties
from inlay.plan.commit import apply as apply_module
from inlay.storage.base import Got
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import MeteredStore, WrappedStore

from .conftest import POINTER, ROOT, append_of, at, context

ARCHIVE_1 = keys.archive_key(1)
ROW = pa.table({"id": pa.array([1], pa.int64())})


def the_swap(fate):
    return once(fate, verb="put", key=POINTER)


# -- looking --------------------------------------------------------------------------------------


def test_a_swap_whose_answer_was_lost_is_found_in_the_pointer(world):
    done = commit(world.faulty(the_swap(Fate.LOST)), append_of("a"))
    assert isinstance(done, Committed)
    assert done.loaded.snapshot.version == 2
    assert done.loaded.etag == world.pointer().etag
    assert world.files() == ["a"]
    assert world.sent.count(("put", keys.POINTER)) == 1


def test_a_swap_whose_answer_was_lost_is_found_in_the_archive_when_others_went_on(world):
    def others() -> None:
        world.append("b")
        world.append("c")

    # The first GET is the load, the second the look.
    ctx = world.faulty(the_swap(Fate.LOST), at("get", POINTER, others, nth=2))
    done = commit(ctx, append_of("a"))
    assert isinstance(done, Committed)
    assert done.loaded.snapshot.version == 2
    assert world.files() == ["a", "b", "c"]
    assert ("get", keys.archive_key(2)) in world.sent


def test_a_base_that_others_have_gone_on_from_is_rebased_not_believed(world):
    ctx = world.faulty(the_swap(Fate.LOST), at("get", POINTER, lambda: world.append("b"), nth=2))
    first = commit(ctx, append_of("a"))
    second = commit(ctx, append_of("c"), base=first.loaded)
    assert isinstance(second, Committed)
    assert world.files() == ["a", "b", "c"]


def test_a_refusal_of_ones_own_success_is_not_believed(world):
    done = commit(world.faulty(the_swap(Fate.TWICE)), append_of("a"))
    assert isinstance(done, Committed)
    assert done.attempts == 1
    assert world.pointer().snapshot.version == 2
    assert world.files() == ["a"]


@pytest.mark.parametrize("fate", [Fate.UNSENT, Fate.RACE])
def test_on_an_unchanged_pointer_the_same_bytes_are_swapped_again(world, fate):
    done = commit(world.faulty(the_swap(fate)), append_of("a"))
    assert isinstance(done, Committed)
    assert done.attempts == 1
    swaps = [body for key, body in world.bodies if key == keys.POINTER]
    assert len(swaps) == 2
    assert swaps[0] == swaps[1]
    assert world.sent.count(("put", ARCHIVE_1)) == 1
    assert world.files() == ["a"]


def test_a_swap_that_never_arrives_is_given_up_as_unknown(world):
    def never(sent):
        return Fate.UNSENT if (sent.verb, sent.key) == ("put", POINTER) else Fate.DONE

    with pytest.raises(OutcomeUnknown):
        commit(world.faulty(never), append_of("a"))
    assert world.sent.count(("put", keys.POINTER)) == register.MAX_SWAPS
    assert world.pointer().snapshot.version == 1


def test_without_swap_and_look_the_outcome_is_unknown(world):
    def silent(sent):
        return Fate.LOST if sent.number > 2 else Fate.DONE  # GET, archive, then nothing

    with pytest.raises(OutcomeUnknown) as told:
        commit(world.faulty(silent), append_of("a"))
    assert "request id" in str(told.value)
    assert world.files() == ["a"]  # and so it is: only nobody could say


def test_a_commit_that_expired_before_the_look_is_unknown(world):
    def others() -> None:
        world.append("b")
        world.append("c")
        world.store.delete([f"{ROOT}/{keys.archive_key(2)}"])

    ctx = world.faulty(the_swap(Fate.LOST), at("get", POINTER, others, nth=2))
    with pytest.raises(OutcomeUnknown):
        commit(ctx, append_of("a"))
    assert world.files() == ["a", "b", "c"]


# -- stopping -------------------------------------------------------------------------------------


def test_a_table_that_is_gone_stops_the_commit(world):
    ctx = world.faulty(before=at("put", POINTER, lambda: world.store.delete([POINTER])))
    with pytest.raises(TableReplaced):
        commit(ctx, append_of("a"))


def test_another_table_at_the_same_place_stops_the_commit(world):
    def replaced() -> None:
        world.store.delete([o.key for o in world.store.list(ROOT)])
        create(world.ctx, pa.schema([("id", pa.int64())]))

    with pytest.raises(TableReplaced):
        commit(world.faulty(before=at("put", POINTER, replaced)), append_of("a"))
    assert world.files() == []


def test_a_pointer_that_was_rolled_back_stops_the_commit(world):
    first = world.pointer()
    base = world.append("a")

    def rolled_back() -> None:
        world.store.put(POINTER, first.raw)

    with pytest.raises(TableReplaced):
        commit(world.faulty(before=at("put", POINTER, rolled_back)), append_of("b"), base=base)
    assert world.pointer().snapshot.version == 1


def test_a_commit_that_always_loses_ends_with_an_error(world, monkeypatch):
    monkeypatch.setattr(commit_module, "MAX_ATTEMPTS", 12)
    monkeypatch.setattr(commit_module, "MAX_SECONDS", 10)
    others = iter(range(10_000))

    def always(sent):
        if (sent.verb, sent.key) == ("put", POINTER):
            world.append(f"other-{next(others)}")

    with pytest.raises(CommitContention):
        commit(world.faulty(before=always), append_of("a"))
    tries = world.sent.count(("put", keys.POINTER))
    assert commit_module.MAX_ATTEMPTS <= tries <= 4 * commit_module.MAX_ATTEMPTS
    assert "a" not in world.files()


# -- the archive ----------------------------------------------------------------------------------


def test_the_base_is_archived_byte_for_byte_before_the_swap(world):
    base = world.pointer().raw
    archived = []

    def look() -> None:
        found = world.store.get(f"{ROOT}/{ARCHIVE_1}")
        archived.append(found.body if isinstance(found, Got) else None)

    commit(world.faulty(before=at("put", POINTER, look)), append_of("a"))
    assert archived == [base]


def test_an_archive_that_a_racer_wrote_first_is_fine(world):
    world.store.put(f"{ROOT}/{ARCHIVE_1}", world.pointer().raw)
    assert isinstance(commit(world.faulty(), append_of("a")), Committed)
    assert world.files() == ["a"]


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNSENT, Fate.TWICE, Fate.RACE])
def test_an_archive_that_goes_wrong_is_written_again(world, fate):
    base = world.pointer().raw
    ctx = world.faulty(once(fate, verb="put", key=f"{ROOT}/{ARCHIVE_1}"))
    assert isinstance(commit(ctx, append_of("a")), Committed)
    assert world.store.get(f"{ROOT}/{ARCHIVE_1}").body == base


def test_a_death_between_archive_and_swap_leaves_the_table_as_it_was(world):
    before = world.pointer().raw
    with pytest.raises(Killed):
        commit(world.faulty(the_swap(Fate.KILLED_BEFORE)), append_of("a"))
    assert world.pointer().raw == before
    world.append("b")
    assert world.files() == ["b"]


# -- rebasing -------------------------------------------------------------------------------------


def test_a_loser_goes_on_from_what_the_winner_left(world):
    ctx = world.faulty(before=at("put", POINTER, lambda: world.append("b")))
    done = commit(ctx, append_of("a"))
    assert isinstance(done, Committed)
    assert (done.attempts, done.loaded.snapshot.version) == (2, 3)
    assert world.files() == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "planned"),
    [
        (append_of("a"), [1, 3]),
        (Change(operation="set_properties", updates=(SetProperties({"a": "b"}),)), [1, 2, 3]),
    ],
    ids=["an append", "what may conflict"],
)
def test_who_has_lost_a_race_plans_an_append_once_another_is_won(
    world, monkeypatch, change, planned
):
    """What may conflict is planned first: if it does, its archive would only stand in the way of others."""
    bases = []

    def planning(state, **how):
        if how["change"] is change:
            bases.append(state.snapshot.version)
        return apply_module.apply(state, **how)

    first, second = (
        at("put", f"{ROOT}/{keys.archive_key(version)}", lambda: world.append(uuid.uuid4().hex))
        for version in (1, 2)
    )

    def overtaken(sent):
        first(sent)
        second(sent)

    monkeypatch.setattr(commit_module, "apply", planning)
    done = commit(world.faulty(before=overtaken), change)
    assert (done.attempts, done.loaded.snapshot.version) == (3, 4)
    assert bases == planned


def test_a_request_that_another_applied_meanwhile_is_not_applied_again(world):
    request = Request.of("r1")
    ctx = world.faulty(before=at("put", POINTER, lambda: world.append("b", request=request)))
    done = commit(ctx, append_of("a", request=request))
    assert isinstance(done, Skipped)
    assert done.version == 2
    assert world.files() == ["b"]


def test_a_request_id_with_another_content_is_refused(world):
    world.append("b", request=Request.of("r1", body="one"))
    with pytest.raises(RequestReused):
        commit(world.ctx, append_of("a", request=Request.of("r1", body="two")))


# Random names, so that they do not compress into a pointer.
MANY = tuple(uuid.uuid4().hex for _ in range(400))


MANY_EVENTS = Change(operation="ingest", events=tuple(Request.of(name) for name in MANY))


def segments_put(world):
    return [key for key, _ in world.bodies if key.startswith(keys.SEGMENTS)]


def ledger_segments(loaded):
    return {keys.segment_key(s.id) for s in loaded.snapshot.ledger.records.segments}


def others_go_on(world):
    commit(world.ctx, Change(operation="set_properties", updates=(SetProperties({"a": "b"}),)))


def test_a_loser_keeps_the_segments_that_come_out_the_same(world):
    ctx = world.faulty(before=at("put", POINTER, lambda: others_go_on(world)))
    done = commit(ctx, MANY_EVENTS)
    assert done.attempts == 2
    written = segments_put(world)
    assert len(written) >= 1
    assert sorted(ledger_segments(done.loaded)) == sorted(written)
    assert commit(world.ctx, MANY_EVENTS).duplicates == {r.id for r in MANY_EVENTS.events}


def test_segments_older_than_the_boundary_are_written_again(world):
    def collect() -> None:
        world.now_us[0] += 3600 * 1_000_000
        boundary = world.now_us[0] - 1_000_000
        commit(world.ctx, Change(operation="collect_garbage", updates=(MoveBoundary(boundary),)))

    done = commit(world.faulty(before=at("put", POINTER, collect)), MANY_EVENTS)
    assert done.attempts == 2
    used, written = ledger_segments(done.loaded), segments_put(world)
    assert len(written) == 2 * len(used)
    assert used == set(written[len(used) :]), "a segment that GC may take is referred to"


@pytest.mark.parametrize(
    ("boundary_us", "kept"), [(10, True), (11, False), (20, False), (30, False), (31, False)]
)
def test_segments_of_several_attempts_are_written_again_as_soon_as_one_is_stale(
    world, boundary_us, kept
):
    """GC may take that one, and which of them the next attempt refers to is not known yet."""
    written = WrittenSegments("salt")
    names = {written.name(data): date_us for data, date_us in ((b"a", 10), (b"b", 20), (b"c", 30))}
    written.dates_us.update(names)
    written.forget_stale(world.ctx, boundary_us)
    assert written.dates_us == (names if kept else {})
    assert ({written.name(data) for data in (b"a", b"b", b"c")} == set(names)) is kept


def test_files_uploaded_before_the_boundary_are_stale(world):
    uploaded = world.pointer().date_us

    def collect() -> None:
        boundary = uploaded + 1
        commit(world.ctx, Change(operation="collect_garbage", updates=(MoveBoundary(boundary),)))

    with pytest.raises(StaleUpload):
        commit(
            world.faulty(before=at("put", POINTER, collect)), append_of("a", uploaded_us=uploaded)
        )
    assert world.files() == []


@pytest.mark.parametrize("earlier", [50, 100])
def test_the_boundary_does_not_go_back(world, earlier):
    """Two collectors at once: what one may have deleted, the other's commit must not admit."""
    for boundary in (100, earlier):
        commit(world.ctx, Change(operation="collect_garbage", updates=(MoveBoundary(boundary),)))
        assert world.pointer().snapshot.boundary.time_us == 100
    commit(world.ctx, Change(operation="collect_garbage", updates=(MoveBoundary(101),)))
    assert world.pointer().snapshot.boundary.time_us == 101


def test_the_new_events_of_a_batch_are_remembered_and_the_others_once(world):
    known, new = Request.of("known"), Request.of("new")
    world.append("a", events=(known,))
    done = commit(world.ctx, Change(operation="ingest", events=(known, new)))
    assert isinstance(done, Committed) and done.duplicates == {known.id}
    records = world.pointer().snapshot.ledger.records.inline
    assert sorted(r.id for r in records) == sorted([known.id, new.id])
    assert commit(world.ctx, Change(operation="ingest", events=(new,))).duplicates == {new.id}


def test_commit_times_rise_although_the_stores_clock_stands_still(world):
    first = world.append("a").snapshot.commit.time_us
    assert world.append("b").snapshot.commit.time_us == first + 1


# -- creating -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.TWICE, Fate.UNSENT, Fate.RACE])
def test_a_create_whose_answer_goes_wrong_is_found(world, fate):
    world.store.delete([POINTER])
    loaded = create(world.faulty(the_swap(fate)), pa.schema([("id", pa.int64())]))
    assert loaded.etag == world.pointer().etag
    assert loaded.snapshot.table_id == world.pointer().snapshot.table_id


def test_a_create_over_a_table_is_refused(world):
    snapshot = decode_snapshot(world.pointer().raw, key=POINTER)
    assert register.create(world.ctx, replace(snapshot, table_id="another")) is None
    with pytest.raises(TableExists):
        create(world.ctx, pa.schema([("id", pa.int64())]))


def test_of_racing_creators_one_wins():
    store = MemoryStore("b")
    start = threading.Barrier(8)
    won, lost = [], []

    def race() -> None:
        sent: list[str] = []

        def together(request: Sent) -> None:
            sent.append(request.verb)
            if request.verb == "put" and sent.count("put") == 1:
                start.wait(20)

        ctx = context(FaultyStore(store, before=together))
        try:
            won.append(create(ctx, pa.schema([("id", pa.int64())])).snapshot.table_id)
        except TableExists:
            lost.append(1)

    threads = [threading.Thread(target=race) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert (len(won), len(lost)) == (1, 7)
    found = store.get(POINTER)
    assert decode_snapshot(found.body, key=POINTER).table_id == won[0]


# -- what it costs --------------------------------------------------------------------------------


@pytest.fixture
def metered():
    store = MeteredStore(MemoryStore("b"))
    ctx = Context(store=store, root=ROOT, uri="memory://b/t", executor=InlineExecutor())
    table = inlay.create(ctx.uri, ROW.schema, context=ctx)
    return table, ctx


def used(ctx, do):
    before = ctx.store.usage()
    do()
    return dict((ctx.store.usage() - before).requests)


def test_opening_is_one_get(metered):
    _, ctx = metered
    assert used(ctx, lambda: inlay.open(ctx.uri, context=ctx)) == {"get": 1}


def test_a_warm_append_is_three_puts(metered):
    table, ctx = metered
    table.append(ROW)
    assert used(ctx, lambda: table.append(ROW)) == {"put": 3}
    assert used(ctx, lambda: table.append(ROW, request_id="r1")) == {"put": 3}


def test_a_warm_delete_by_tombstone_is_two_puts(metered):
    table, ctx = metered
    table.append(pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
    assert used(ctx, lambda: table.delete("id = 2", mode="tombstone")) == {"put": 2}


def test_an_append_that_was_applied_before_costs_nothing(metered):
    table, ctx = metered
    table.append(ROW, request_id="r1")
    assert used(ctx, lambda: table.append(ROW, request_id="r1")) == {}


def test_a_lost_race_costs_one_get_and_two_puts(world):
    base = world.pointer()
    ctx = world.faulty(before=at("put", POINTER, lambda: world.append("b")))
    assert isinstance(commit(ctx, append_of("a"), base=base), Committed)
    verbs = [verb for verb, _ in world.sent]
    assert sorted(verbs) == ["get", "put", "put", "put", "put"]


def test_a_pointer_stays_small_however_much_one_commit_adds(world):
    base = world.append(*MANY[:1])
    done = commit(world.ctx, append_of(*MANY[1:]), base=base)
    assert len(done.loaded.raw) <= apply_module.POINTER_TARGET_BYTES
    assert encode_snapshot(done.loaded.snapshot) == done.loaded.raw


def test_a_table_that_could_not_be_created_says_what_the_store_said():
    """A server without room answers 500 to whatever is sent: the cause is the store's to mend."""

    class Full(WrappedStore):
        def put(self, key, body, **options):
            raise StoreUnavailable("S3 answered 500 InternalError: no free volumes left")

    ctx = replace(connect("memory://full/t"), clock=Clock(0.0))
    ctx = replace(ctx, store=Full(ctx.store))
    with pytest.raises(OutcomeUnknown, match="in 6 tries: S3 answered 500 InternalError: no free"):
        inlay.create(ctx.uri, pa.schema([("id", pa.int64())]), context=ctx)

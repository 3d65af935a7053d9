"""Several tables in one commit, as users call it; and everything that meets a table that is prepared."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from tests.transaction.conftest import SCHEMA, content, leave_prepared, rows

import inlay
from inlay.errors import (
    ConcurrentChange,
    CorruptTable,
    InvalidRequest,
    NotAllowed,
    OutcomeUnknown,
    RequestReused,
    TableHandedOver,
    TableReplaced,
)
from inlay.format import keys
from inlay.format.codec import PREPARED
from inlay.ops.hand_over import hand_over
from inlay.ops.metadata.needed_decisions import needed_decisions
from inlay.ops.transaction import MAX_TABLES
from inlay.ops.verify.repair import repair

START = {1: 10, 2: 20}
AFTER = {1: 10, 2: 20, 3: 30}


def pointer(table: inlay.Table) -> bytes:
    return table._ctx.store.get(table._ctx.key(keys.POINTER)).body


def decisions(table: inlay.Table) -> list[str]:
    root = table._ctx.key("")
    listed = table._ctx.store.list(table._ctx.key(keys.DECISIONS))
    return [info.key[len(root) :] for info in listed]


# -- what it does -----------------------------------------------------------------------------------


def test_every_verb_in_one_commit(tables):
    a, b, c = tables
    with inlay.transaction() as tx:
        planned = tx.upsert(a, rows((1, 11), (4, 40)))
        tx.delete(b, "id = 1")
        tx.update(c, {"n": "n + 1"}, where="id = 2")
        assert content(a) == content(b) == content(c) == START
    assert planned.version == 3
    assert (content(a), content(b), content(c)) == ({1: 11, 2: 20, 4: 40}, {2: 20}, {1: 10, 2: 21})
    assert tx.versions == {t.uri: 3 for t in tables}
    assert [r.operation for r in tx.results] == ["upsert", "delete", "update"]
    assert [len(t) for t in tables] == [3, 1, 2]  # the handles have moved on
    with inlay.transaction() as tx:
        tx.overwrite(a, rows((9, 90)))
        tx.apply_changes(b, rows((2, 22)), order="n")
        tx.append(c, rows((3, 30)))
    assert (content(a), content(b), content(c)) == ({9: 90}, {2: 22}, {1: 10, 2: 21, 3: 30})
    for table in tables:
        assert table.maintain.verify(depth="pages").ok
        assert table.inspect.history().to_pylist()[0]["version"] == 4


def test_nothing_of_a_block_that_raises(tables):
    a, b, _ = tables
    with pytest.raises(ZeroDivisionError), inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.append(b, rows((1 // 0, 30)))
    assert content(a) == content(b) == START
    with pytest.raises(InvalidRequest, match="has ended"):
        tx.append(a, rows((3, 30)))


@pytest.mark.parametrize("mode", ["tombstone", "vector", "surgery", "rewrite"])
def test_deletes_of_each_mode(tables, mode):
    a, b, _ = tables
    with inlay.transaction() as tx:
        tx.delete(a, "id = 1", mode=mode)
        tx.append(b, rows((3, 30)))
    assert (content(a), content(b)) == ({2: 20}, AFTER)


def test_a_request_is_applied_once(tables):
    a, b, _ = tables
    for _ in range(2):
        with inlay.transaction(request_id="order-1") as tx:
            tx.append(a, rows((3, 30)))
            tx.append(b, rows((3, 30)))
    assert [r.applied_before for r in tx.results] == [True, True]
    assert (tx.versions, content(a), content(b)) == ({a.uri: 3, b.uri: 3}, AFTER, AFTER)
    with pytest.raises(RequestReused), inlay.transaction(request_id="order-1") as tx:
        tx.append(a, rows((3, 30)))
        tx.append(b, rows((3, 30), (4, 40)))
    assert (content(a), content(b)) == (AFTER, AFTER)


def test_a_request_that_did_less_the_second_time_is_known(tables):
    """The delete finds nothing any more; rows that it would find have come to the other table."""
    a, b, _ = tables
    with inlay.transaction(request_id="r") as tx:
        tx.delete(a, "id = 1")
        tx.delete(b, "id = 7")
    b.append(rows((7, 70)))
    for table in (a, b):
        table.refresh()
    with inlay.transaction(request_id="r") as tx:
        tx.delete(a, "id = 1")
        tx.delete(b, "id = 7")
    assert (content(a), content(b)) == ({2: 20}, {**START, 7: 70})


def test_others_that_commit_meanwhile_are_gone_on_from(tables):
    a, b, _ = tables
    with inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.update(b, {"n": "n + 1"})
        inlay.open(a.uri).append(rows((5, 50)))
        inlay.open(b.uri).update({"n": "n * 2"})
    assert (content(a), content(b)) == ({**AFTER, 5: 50}, {1: 21, 2: 41})


def test_what_is_read_must_still_be_so(tables):
    a, b, _ = tables
    with inlay.transaction() as tx:
        tx.append(b, rows((3, len(tx.read(a)))))
    assert content(b) == {**START, 3: 2}
    assert a.refresh().version == 2  # it has no new version
    a.append(rows((4, 40)))
    with pytest.raises(ConcurrentChange, match="since this"), inlay.transaction() as tx:
        tx.append(b, rows((4, len(tx.read(a)))))
        inlay.open(a.uri).append(rows((5, 50)))
    assert content(b) == {**START, 3: 2}


def test_read_and_changed(tables):
    a, b, _ = tables
    with inlay.transaction() as tx:
        seen = tx.read(a)
        tx.upsert(a, rows((1, 10 + len(seen))))
        tx.append(b, rows((3, 30)))
    assert (content(a), content(b)) == ({1: 12, 2: 20}, AFTER)


def test_one_table_alone_is_a_commit_like_any_other(tables):
    a, b, _ = tables
    with inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.delete(b, "id = 9")
    assert content(a) == AFTER
    assert not pointer(a).startswith(PREPARED)
    assert [r.committed for r in tx.results] == [True, False]
    with inlay.transaction():
        pass


def test_writes_are_counted(tables):
    """2k + 1 besides data, and the next commit on each is two, as ever."""
    before = sum(t.usage.requests.get("put", 0) for t in tables)
    with inlay.transaction() as tx:
        for table in tables:
            tx.append(table, rows((3, 30)))
    puts = sum(t.usage.requests.get("put", 0) for t in tables) - before
    assert puts == 3 + 2 * 3 + 1
    assert [t.delete("id = 3").requests for t in tables] == [2, 2, 2]


# -- who meets a table that is prepared -----------------------------------------------------------


@pytest.mark.parametrize("decided", [True, False, None])
def test_readers_see_what_was_decided_and_never_wait(tables, monkeypatch, decided):
    a, b, c = tables
    leave_prepared([a, b], monkeypatch, decided=decided)
    monkeypatch.setattr("inlay.ops.context.SystemClock.sleep", None)
    for table in (a, b):
        assert pointer(table).startswith(PREPARED)
        assert content(table) == (AFTER if decided else START)
        assert inlay.open(table.uri).maintain.verify(depth="pages").ok
    found = inlay.snapshot([a, b.uri, c])
    assert [t.version for t in found] == ([3, 3, 2] if decided else [2, 2, 2])


@pytest.mark.parametrize("decided", [True, False])
def test_after_the_decision_nobody_waits(tables, monkeypatch, decided):
    a, b, _ = tables
    leave_prepared([a, b], monkeypatch, decided=decided)
    monkeypatch.setattr("inlay.ops.commit.driver.SETTLE_SECONDS", None)
    assert a.append(rows((5, 50))).version == (4 if decided else 3)
    assert content(a) == {**(AFTER if decided else START), 5: 50}
    assert not pointer(a).startswith(PREPARED)
    assert content(b) == (AFTER if decided else START)


OPERATIONS = {
    "append": lambda t: t.append(rows((5, 50))),
    "delete": lambda t: t.delete("id = 1"),
    "upsert": lambda t: t.upsert(rows((1, 11))),
    "alter": lambda t: t.alter(add={"x": pa.int64()}),
    "set_properties": lambda t: t.set_properties(history__days=1),
    "tag": lambda t: t.refs.tag("now"),
    "branch": lambda t: t.refs.branch("b"),
    "restore": lambda t: t.refs.restore(version=1),
    "expire": lambda t: t.maintain.expire(days=0, min_versions=1),
    "collect": lambda t: t.maintain.collect_garbage(),
    "compact": lambda t: t.maintain.compact(),
    "erase": lambda t: t.delete("id = 1", mode="erase", request_id="e"),
    "publish": lambda t: t.publish(format="v3"),
    "repair": lambda t: t.maintain.repair(dry_run=False),
    "drop": lambda t: inlay.drop(t.uri),
    "transaction": lambda t: _append_alone(t),
}


def _append_alone(table):
    with inlay.transaction() as tx:
        tx.append(table, rows((5, 50)))


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("decided", [True, False, None])
def test_each_operation_on_a_table_that_is_prepared(tables, monkeypatch, in_no_time, name, decided):
    """Of a transaction that nobody has decided it makes the end; the other table agrees, always."""
    a, b, _ = tables
    leave_prepared([a, b], monkeypatch, decided=decided)
    OPERATIONS[name](inlay.open(a.uri))
    assert content(b) == (AFTER if decided else START)
    assert inlay.open(b.uri).maintain.verify().ok
    b.append(rows((5, 50)))
    assert content(b) == {**(AFTER if decided else START), 5: 50}
    if name == "drop":
        repair(a._ctx, dry_run=False)
    elif name not in ("restore",):
        there = content(a)
        assert (3 in there) == bool(decided)
    assert inlay.open(a.uri).maintain.verify().ok


def test_a_coordinator_that_was_overtaken_begins_again(tables, monkeypatch, in_no_time):
    """Somebody aborts it between its last swap and its decision."""
    a, b, _ = tables
    from inlay.ops import transaction as module

    real, once = module.decide, []

    def slow(ctx, transaction, *, committed):
        if committed and not once:
            once.append(1)
            inlay.open(a.uri).append(rows((5, 50)))
        return real(ctx, transaction, committed=committed)

    monkeypatch.setattr(module, "decide", slow)
    with inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.append(b, rows((3, 30)))
    assert (content(a), content(b)) == ({**AFTER, 5: 50}, AFTER)
    assert [r.attempts for r in tx.results] == [2, 2]


def test_who_was_suspended_for_a_day_does_not_know(tables, monkeypatch):
    a, b, _ = tables
    monkeypatch.setattr("inlay.ops.transaction.DECISIONS_KEPT_US", -(10**9))
    with pytest.raises(OutcomeUnknown, match="suspended"), inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.append(b, rows((3, 30)))


def test_decisions_are_kept_as_long_as_a_table_needs_them(tables, monkeypatch):
    a, b, _ = tables
    leave_prepared([a, b], monkeypatch, decided=True)
    [key] = decisions(a)
    monkeypatch.setattr("inlay.ops.collect_garbage.DECISIONS_KEPT_US", -120 * 1_000_000)
    collect = lambda t: inlay.open(t.uri).maintain.collect_garbage()  # noqa: E731
    collect(a)  # ends the frame of this one
    assert not pointer(a).startswith(PREPARED)
    assert list(needed_decisions(a._ctx, [key])) == [key]
    collect(b)
    assert not pointer(b).startswith(PREPARED)
    assert content(a) == content(b) == AFTER
    found = collect(a)
    assert (found.kinds["decision"].objects, decisions(a)) == (1, [])


def test_a_decision_of_a_table_that_is_dropped_stays_while_another_needs_it(tables, monkeypatch):
    a, b, _ = tables
    leave_prepared([a, b], monkeypatch, decided=True)
    done = inlay.drop(a.uri, grace=timedelta(0))
    assert done.deleted
    assert len(done.kept) == 1
    assert content(b) == AFTER
    b.append(rows((5, 50)))
    again = inlay.create(a.uri, SCHEMA)
    assert list(needed_decisions(again._ctx, decisions(again))) == []


def test_an_aborted_frame_is_gone_once_its_rows_are_erased(tables, monkeypatch, in_no_time):
    a, b, _ = tables
    leave_prepared([a, b], monkeypatch, decided=False)
    inlay.open(a.uri).delete("id = 3", mode="erase", request_id="e")
    assert not pointer(a).startswith(PREPARED)


def test_a_lost_pointer_is_repaired_to_what_was_decided(tables, monkeypatch):
    a, b, _ = tables
    leave_prepared([a, b], monkeypatch, decided=None)
    body = pointer(a)
    a._ctx.store.delete([a._ctx.key(keys.POINTER)])
    assert repair(a._ctx, dry_run=False).ok
    assert content(a) == START
    assert body.startswith(PREPARED)


# -- what cannot take part ------------------------------------------------------------------------


def test_a_table_takes_part_once(tables):
    a = tables[0]
    other = inlay.open(a.uri)
    with pytest.raises(InvalidRequest, match="takes part twice"), inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.append(other, rows((4, 40)))
    with pytest.raises(InvalidRequest, match="takes part already"), inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.read(other)
    assert content(a) == START


def test_tables_in_other_stores(tables, tmp_path):
    other = inlay.create(str(tmp_path / "t"), SCHEMA)
    with pytest.raises(InvalidRequest, match="different stores"), inlay.transaction() as tx:
        tx.append(tables[0], rows((3, 30)))
        tx.append(other, rows((3, 30)))
    assert content(other) == {}


def test_tables_in_two_buckets(tables):
    other = inlay.create(f"{tables[0].uri.replace('memory://', 'memory://other-')}", SCHEMA)
    with inlay.transaction() as tx:
        tx.append(tables[0], rows((3, 30)))
        tx.append(other, rows((3, 30)))
    assert (content(tables[0]), content(other)) == (AFTER, {3: 30})
    with inlay.transaction() as tx:
        tx.append(tables[0], rows((4, 40)))
        tx.append(other, rows((4, 40)))
    assert content(other) == {3: 30, 4: 40}


def test_a_table_that_is_denied_version_2(tables):
    a, b, _ = tables
    b.set_properties(format__max_version=1)
    with pytest.raises(NotAllowed, match=r"format\.max_version"), inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.append(b, rows((3, 30)))
    assert content(a) == START
    assert not pointer(a).startswith(PREPARED)


def test_versions_tags_and_branches(tables):
    a, _, _ = tables
    a.refs.branch("b")
    with pytest.raises(InvalidRequest, match="in the past"), inlay.transaction() as tx:
        tx.append(inlay.open(a.uri, version=1), rows((3, 30)))
    with pytest.raises(InvalidRequest, match="the branch 'b'"), inlay.transaction() as tx:
        tx.append(inlay.open(a.uri, ref="b"), rows((3, 30)))


def test_what_is_no_table_and_what_is_not_for_it(tables):
    a, _, _ = tables
    with inlay.transaction() as tx:
        with pytest.raises(InvalidRequest, match="not a str"):
            tx.append(a.uri, rows((3, 30)))
        with pytest.raises(InvalidRequest, match="the request id"):
            tx.append(a, rows((3, 30)), request_id="r")
    with pytest.raises(InvalidRequest):
        inlay.snapshot(a.uri)
    with pytest.raises(InvalidRequest):
        inlay.snapshot([])


def test_more_than_one_commit_on_a_table(tables):
    a, b, _ = tables
    b.set_properties(schema__evolve="add")
    wider = rows((3, 30)).append_column("x", pa.array([1]))
    with pytest.raises(InvalidRequest, match="more than one commit"), inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.append(b, wider)
    assert content(a) == START


def test_a_table_that_disappears_or_is_replaced(tables):
    a, b, _ = tables
    with pytest.raises(TableReplaced), inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.append(b, rows((3, 30)))
        inlay.drop(b.uri, grace=timedelta(0))
        inlay.create(b.uri, SCHEMA)
    assert content(a) == START
    assert content(b) == {}


def test_a_table_that_was_handed_over(tables):
    a, b, _ = tables
    b.publish(format="v3")
    hand_over(b._ctx)
    with pytest.raises(TableHandedOver), inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.append(b, rows((3, 30)))
    assert content(a) == START


def test_more_tables_than_can_take_part():
    place = "memory://tx-many/tables"
    many = [inlay.create(f"{place}/{n}", SCHEMA) for n in range(MAX_TABLES + 1)]
    with inlay.transaction() as tx:
        for table in many[:MAX_TABLES]:
            tx.append(table, rows((3, 30)))
    assert {t.version for t in many[:MAX_TABLES]} == {2}
    with pytest.raises(InvalidRequest, match="at most 100"), inlay.transaction() as tx:
        for table in many:
            tx.append(table, rows((4, 40)))
    assert {t.refresh().version for t in many[:MAX_TABLES]} == {2}


def test_a_decision_that_is_deleted_by_hand(tables, monkeypatch, in_no_time):
    """All go back together while none has gone on; what was prepared is then aborted."""
    a, b, _ = tables
    leave_prepared([a, b], monkeypatch, decided=True)
    a._ctx.store.delete([a._ctx.key(key) for key in decisions(a)])
    assert inlay.open(a.uri, context=replace(a._ctx, cache=type(a._ctx.cache)())).version == 2
    b.append(rows((5, 50)))
    assert (content(a), content(b)) == (START, {**START, 5: 50})


def test_a_decision_that_is_deleted_after_one_table_went_on_is_noticed(
    tables, monkeypatch, in_no_time
):
    """Nobody takes the transaction for one that never was; repair writes the decision again."""
    a, b, c = tables
    leave_prepared([a, b], monkeypatch, decided=True)
    inlay.open(b.uri).append(rows((5, 50)))
    inlay.open(b.uri).append(rows((6, 60)))
    a._ctx.store.delete([a._ctx.key(key) for key in decisions(a)])
    for wrong in (
        lambda: inlay.open(a.uri).append(rows((7, 70))),
        lambda: inlay.snapshot([a.uri, c.uri]),
        lambda: inlay.open(a.uri).maintain.collect_garbage(),
    ):
        with pytest.raises(CorruptTable, match="decision of a transaction") as refused:
            wrong()
        assert b.uri in str(refused.value)
        assert "repair" in refused.value.next_step
    assert [f.kind for f in inlay.verify(a.uri).errors] == ["decision_missing"]
    [mend] = inlay.repair(a.uri, dry_run=True).mends
    assert mend.kind == "decision_missing"
    assert decisions(a) == []
    assert inlay.repair(a.uri, dry_run=False).ok
    assert (content(a), content(b)) == (AFTER, {**AFTER, 5: 50, 6: 60})
    inlay.open(a.uri).append(rows((7, 70)))
    assert inlay.verify(a.uri).ok


def test_a_table_that_went_on_by_itself_is_no_evidence(tables, monkeypatch, in_no_time):
    """It was prepared for nothing: others came first."""
    a, b, _ = tables
    leave_prepared([a, b], monkeypatch, decided=None)
    inlay.open(b.uri).append(rows((5, 50)))  # aborts it
    [key] = decisions(a)
    a._ctx.store.delete([a._ctx.key(key)])
    inlay.open(a.uri).append(rows((5, 50)))
    assert content(a) == content(b) == {**START, 5: 50}


def test_who_waits_for_a_dead_coordinator_looks_often_and_ends_it_when_its_time_is_over(
    tables, monkeypatch
):
    a, b, _ = tables
    leave_prepared([a, b], monkeypatch)
    slept = []

    class OfThisProcess:
        """The store's clock hardly moves meanwhile."""

        def monotonic(self):
            return sum(slept)

        def sleep(self, seconds):
            slept.append(seconds)

    inlay.table.Table(replace(a._ctx, clock=OfThisProcess()), a._loaded).append(rows((5, 50)))
    assert content(a) == {**START, 5: 50} and content(b) == START
    assert min(slept) >= 0 and max(slept) <= 0.2
    assert 9.0 < sum(slept) < 10.2

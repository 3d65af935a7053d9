"""Erasures of tables that have branches and tags: the rows go from each, and each goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulator.faults import Fate

import inlay
from inlay.errors import InvalidRequest, MergeConflict
from inlay.format.snapshot import Ref
from inlay.ops.metadata.load import load_pointer
from inlay.ops.refs import branch, drop, merge, restore, set_hold, tag
from inlay.ops.schema.alter import alter, evolution_of
from inlay.ops.verify.table import verify
from inlay.ops.write.append import append
from inlay.ops.write.delete import delete
from inlay.plan.change import ExpireAll

from .crashes import Scene, run_functions
from .people import WHO, People, ids_with, is_named, is_who, new_people, rows


def _here(people: People) -> Ref:
    return Ref(kind="tag", version=people.snapshot.version)


def _on(people: People, name: str | None) -> People:
    return replace(people, ctx=replace(people.ctx, branch=name))


def _branched(*, versioned: bool = False) -> People:
    """The person in files of main alone, of a branch alone, of both and of a tag, and hidden by deletes
    of one of them."""
    people = new_people(versioned=versioned)
    people.append(*ids_with(WHO))
    people.append(*ids_with(WHO, start=20))
    tag(people.ctx, "release", _here(people))
    branch(people.ctx, "fresh", _here(people))
    branch(people.ctx, "work", _here(people))
    work = _on(people, "work")
    work.append(*ids_with(WHO, start=40))
    work.delete(is_named())
    work.append(*ids_with(WHO, start=60))
    people.append(*ids_with(WHO, start=80))
    delete(people.ctx, is_who(2))
    return people


EXPECTED = {
    None: [0, 1, *range(3, 10), *range(20, 30), *range(80, 90)],
    "release": [*range(10), *range(20, 30)],
    "fresh": [*range(10), *range(20, 30)],
    "work": [*range(10), *range(20, 30), *range(40, 50), *range(60, 70)],
}


def _are_clean(people: People) -> None:
    for name, expected in EXPECTED.items():
        assert _on(people, name).ids() == expected, name
    assert people.found() == []
    assert people.snapshot.erasures == ()
    assert verify(people.ctx, depth="pages").errors == ()


@pytest.mark.parametrize("versioned", [False, True])
def test_no_byte_is_left_on_any_branch_or_tag(versioned: bool) -> None:
    people = _branched(versioned=versioned)
    people.erase()
    assert people.finish().receipts
    _are_clean(people)


def test_from_its_opening_nobody_sees_the_rows_on_any_branch_or_tag() -> None:
    people = _branched()
    people.erase()
    for name, expected in EXPECTED.items():
        assert _on(people, name).ids() == expected, name


def test_rows_that_a_branch_gets_after_the_opening_stay() -> None:
    people = _branched()
    people.erase()
    _on(people, "work").append(WHO, 100)
    people.finish()
    assert WHO in _on(people, "work").ids()
    assert WHO not in people.ids()


def test_branches_go_on_but_are_merged_no_more() -> None:
    people = _branched()
    people.erase()
    people.finish()
    work = _on(people, "work")
    work.append(100)
    with pytest.raises(MergeConflict, match="rows were erased"):
        merge(people.ctx, "work")
    restore(people.ctx, people.snapshot.refs["work"], name="work")
    assert people.ids() == work.ids() == [*EXPECTED["work"], 100]
    work.append(101)
    merge(people.ctx, "work")
    assert people.ids() == [*EXPECTED["work"], 100, 101]


def test_what_is_restored_or_merged_meanwhile_brings_no_row_back() -> None:
    people = _branched()
    release = people.snapshot.refs["release"]
    people.erase()
    merge(people.ctx, "work")
    assert WHO not in people.ids()
    people.advance()
    restore(people.ctx, release)
    assert people.ids() == EXPECTED["release"]
    branch(people.ctx, "again", release)
    assert people.finish().receipts
    assert people.found() == []
    assert people.ids() == _on(people, "again").ids() == EXPECTED["release"]


def test_an_old_object_that_a_branch_ingests_late_is_cleaned() -> None:
    people = _branched()
    landed = people.land("a.parquet", *ids_with(WHO, start=200))
    people.erase()
    people.advance()
    _on(people, "work").ingest(landed)
    assert WHO not in _on(people, "work").ids()
    assert people.collect().receipts == ()
    people.finish()
    assert people.snapshot.erasures == ()
    assert people.found() == []


def test_a_file_that_a_branch_adopted_where_it_landed_is_not_deleted_with_the_landing_zone() -> (
    None
):
    people = _branched()
    landed = people.land("a.parquet", *ids_with(start=200))
    _on(people, "work").ingest(landed, adopt=True)
    people.erase()
    people.finish()
    assert _on(people, "work").ids() == [*EXPECTED["work"], *range(200, 210)]


@pytest.mark.parametrize("name", ["release", "court"])
def test_a_held_tag_refuses_the_erasure_before_anything_happens(name: str) -> None:
    people = _branched()
    if name == "release":
        set_hold(people.ctx, "release", True)
    else:
        tag(people.ctx, "court", people.snapshot.refs["work"], hold=True)
    before = people.snapshot
    with pytest.raises(InvalidRequest, match=f"legal hold '{name}'"):
        people.erase()
    assert people.snapshot == before
    set_hold(people.ctx, name, False)
    people.erase()
    assert people.finish().receipts
    assert people.found() == []


def test_a_tag_made_with_the_last_look_keeps_the_predicate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at all refs and the commit that forgets the predicate."""
    from inlay.ops.erase import finish as sweep

    people = _branched()
    people.erase()
    people.advance()
    opened = people.snapshot.erasures[0].opened_version
    real = sweep.commit

    def commit(ctx, change, *, base=None):
        if change.of(ExpireAll) and "late" not in people.snapshot.refs:
            tag(people.ctx, "late", Ref(kind="tag", version=opened - 1))
        return real(ctx, change, base=base)

    monkeypatch.setattr(sweep, "commit", commit)
    people.collect()
    assert people.snapshot.erasures[0].predicate is not None
    assert people.finish().receipts
    assert people.found() == []
    assert WHO not in _on(people, "late").ids()


def test_a_branch_that_dropped_the_column_asked_for_refuses_the_erasure() -> None:
    people = new_people()
    people.append(*ids_with(WHO))
    branch(people.ctx, "work", _here(people))
    work = _on(people, "work")
    edit = evolution_of(load_pointer(work.ctx).snapshot.schema, drop=["name"])
    alter(work.ctx, edit)
    with pytest.raises(InvalidRequest, match="'work' has dropped a column"):
        people.erase(is_named())
    assert people.snapshot.erasures == ()
    people.erase()
    assert people.finish().receipts
    assert people.found() == []


# -- crashes --------------------------------------------------------------------------------------


BRANCHED = Scene(lambda versioned: _branched(versioned=versioned), run_functions, _are_clean)


def test_it_ends_on_every_branch_after_a_crash_at_some_requests() -> None:
    BRANCHED.strike(False, (Fate.KILLED_AFTER,), stride=151, first=40)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fate", [Fate.KILLED_BEFORE, Fate.KILLED_AFTER, Fate.LOST])
def test_it_ends_on_every_branch_after_a_crash_at_any_request(fate: Fate) -> None:
    BRANCHED.strike(True, (fate,), stride=1)


def test_dropped_branches_leave_no_byte_either() -> None:
    people = _branched()
    people.erase()
    drop(people.ctx, "work")
    people.finish()
    assert people.found() == []
    assert load_pointer(people.ctx).snapshot.erasures == ()


def test_the_branch_is_written_to_while_it_is_cleaned() -> None:
    people = _branched()
    people.erase()
    people.advance()
    append(_on(people, "work").ctx, rows([300]))
    people.finish()
    assert people.found() == []
    assert _on(people, "work").ids() == [*EXPECTED["work"], 300]


def test_a_table_rewrites_and_collects_until_nothing_waits() -> None:
    """`t.maintain` is enough, where branches and tags hold files that main has no more."""
    people = _branched()
    people.erase()
    t = inlay.open(people.ctx.uri, context=people.ctx)
    assert t.maintain.rewrite(dry_run=True).files == 0
    done = t.maintain.rewrite()
    assert done.files > len(t.inspect.files()) and done.removed_rows
    assert not any(w.what == "file" for e in t.inspect.erasures() for w in e.waiting)
    while t.inspect.erasures():
        people.time.sleep(1000)
        t.maintain.rewrite()
        t.maintain.collect_garbage(life_seconds=900, landing="ingest/people/")
    assert people.found() == [] and WHO not in people.ids()

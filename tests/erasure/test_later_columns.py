"""Erasures by a column that was added later: older contents are asked what their rows hold of it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidRequest
from inlay.format.predicate import And, Comparison, IsNull, Literal, Not, Or, Predicate
from inlay.format.schema import Primitive
from inlay.format.snapshot import Ref
from inlay.ops.metadata.load import load_past, load_pointer, load_seen
from inlay.ops.refs import branch, restore, tag
from inlay.ops.schema.alter import alter, evolution_of
from inlay.ops.verify.table import verify
from inlay.ops.write.append import append
from inlay.parse import parse_predicate
from inlay.plan.metadata.state import State

from .people import NAME, WHO, People, new_people, rows

SECRET = Literal(Primitive("string"), NAME)


def _grown(default: str | None = None) -> tuple[People, int, int]:
    """(people, the version before the column was added, the column's field id): a tag and a branch are of
    that version, and the person came after it."""
    people = new_people()
    people.append(1, 2)
    version = people.snapshot.version
    tag(people.ctx, "old", Ref(kind="tag", version=version))
    branch(people.ctx, "work", Ref(kind="tag", version=version))
    schema = load_pointer(people.ctx).snapshot.schema
    given_ = {} if default is None else {"defaults": {"alias": default}}
    alter(people.ctx, evolution_of(schema, add={"alias": pa.string()}, **given_))
    more = rows([WHO, 30]).append_column("alias", pa.array([NAME, "somebody"]))
    people.time.sleep(1)
    append(people.ctx, more)
    field = load_pointer(people.ctx).snapshot.schema.column("alias")
    assert field is not None
    return people, version, field.id


def _on(people: People, name: str | None) -> People:
    return replace(people, ctx=replace(people.ctx, branch=name))


def _conditions(alias: int) -> dict[str, Predicate]:
    is_secret = Comparison(alias, "=", SECRET)
    return {
        "equal": is_secret,
        "not null": And(
            (Not(IsNull(alias)), Comparison(alias, "!=", replace(SECRET, value="somebody")))
        ),
        "or": Or((is_secret, Comparison(alias, ">", replace(SECRET, value="zzz")))),
        "with a key": And((is_secret, Comparison(1, ">", Literal(Primitive("int64"), 100)))),
    }


@pytest.mark.parametrize("asked", ["equal", "not null", "or", "with a key"])
def test_rows_from_before_the_column_stay_everywhere(asked: str) -> None:
    people, version, alias = _grown()
    people.erase(_conditions(alias)[asked])
    table = load_pointer(people.ctx).snapshot
    then = State(load_seen(people.ctx, table, version)).snapshot
    assert then.totals.markers == 0
    for name, expected in {None: [1, 2, 30], "old": [1, 2], "work": [1, 2]}.items():
        assert _on(people, name).ids() == expected, name
    assert people.finish().receipts
    for name, expected in {None: [1, 2, 30], "old": [1, 2], "work": [1, 2]}.items():
        assert _on(people, name).ids() == expected, name
    assert people.found() == []
    assert verify(people.ctx, depth="pages").errors == ()


def test_an_erasure_is_shown_once_in_a_branch_of_before_it_at_a_version_of_after_it() -> None:
    people, _, _ = _grown()
    people.erase(Comparison(1, "=", Literal(Primitive("int64"), WHO)))
    opened = people.snapshot.version
    people.append(9)
    work = replace(people.ctx, branch="work")
    seen = load_seen(work, load_pointer(people.ctx).pointer, opened)
    assert seen.totals.markers == len(seen.markers.inline) == 1
    for ctx in (people.ctx, work):
        table = load_pointer(ctx).pointer
        for version in range(opened - 2, table.version + 1):
            past = load_past(ctx, version=version, as_of_us=0)
            assert past == load_seen(ctx, table, version), version
            assert past == load_past(ctx, version=None, as_of_us=past.commit.time_us)


def test_going_back_before_the_column_meanwhile_loses_nothing() -> None:
    people, version, alias = _grown()
    people.erase(_conditions(alias)["equal"])
    restore(people.ctx, Ref(kind="tag", version=version))
    assert people.ids() == [1, 2]
    people.append(9)
    assert people.finish().receipts
    assert people.ids() == [1, 2, 9]
    assert people.found() == []
    assert verify(people.ctx, depth="pages").errors == ()


def test_rows_that_have_the_default_go_everywhere() -> None:
    people, _, alias = _grown(default=NAME)
    people.erase(_conditions(alias)["equal"])
    for name, expected in {None: [30], "old": [], "work": []}.items():
        assert _on(people, name).ids() == expected, name
    assert people.finish().receipts
    for name, expected in {None: [30], "old": [], "work": []}.items():
        assert _on(people, name).ids() == expected, name


def test_a_branch_with_columns_of_its_own_that_lacks_the_one_asked_for_refuses() -> None:
    people, _, alias = _grown()
    work = _on(people, "work")
    schema = load_pointer(work.ctx).snapshot.schema
    alter(work.ctx, evolution_of(schema, add={"other": pa.int64()}))
    with pytest.raises(InvalidRequest, match="'work' has dropped a column"):
        people.erase(_conditions(alias)["equal"])
    assert work.ids() == [1, 2]


def test_a_version_that_had_dropped_the_column_is_not_gone_back_to_meanwhile() -> None:
    people, _, alias = _grown()
    t = inlay.open(people.ctx.uri, context=people.ctx)
    before = t.version
    t.alter(drop=["alias"])
    without = t.version
    t.refs.restore(version=before)
    people.erase(_conditions(alias)["equal"])
    t.refresh()
    for go_back in (lambda: t.refs.restore(version=without), lambda: t.refs.tag("then", without)):
        with pytest.raises(InvalidRequest, match="lacks a column that an open erasure needs"):
            go_back()
    assert people.finish().receipts
    assert people.found() == []


@settings(deadline=None)
@given(st.data())
def test_a_condition_selects_the_same_rows_before_the_column_as_after(data: st.DataObject) -> None:
    """Old rows seen at the old version, and the same rows under the new columns."""
    default = data.draw(st.sampled_from([None, 5, 7]))
    leaves = st.sampled_from(
        [
            "c = 5",
            "c <> 5",
            "c > 6",
            "c IS NULL",
            "c IN (5, 6)",
            "id = 1",
            "id > 1",
            "s.x = 5",
            "s.x IS NULL",
        ]
    )
    where = data.draw(
        st.recursive(
            leaves,
            lambda inner: st.one_of(
                st.tuples(inner, inner).map(lambda p: f"({p[0]} AND {p[1]})"),
                st.tuples(inner, inner).map(lambda p: f"({p[0]} OR {p[1]})"),
                inner.map(lambda p: f"NOT ({p})"),
            ),
            max_leaves=5,
        )
    )
    people = new_people()
    t = inlay.open(people.ctx.uri, context=people.ctx)
    t.append(rows([1, 2, 3]))
    version = t.version
    inner = pa.struct([("x", pa.int64())])
    t.alter(add={"c": pa.int64(), "s": inner}, defaults={} if default is None else {"c": default})
    kept = set(t.scan(columns=["id"]).to_arrow()["id"].to_pylist())
    gone = set(t.scan(columns=["id"], where=where).to_arrow()["id"].to_pylist())
    people.erase(parse_predicate(where, t.snapshot.schema))
    then = inlay.open(people.ctx.uri, context=people.ctx, version=version)
    assert set(then.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == kept - gone

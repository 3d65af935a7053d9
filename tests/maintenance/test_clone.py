"""A clone reads its source's files: nothing that happens to either table takes a row from the other, and no
receipt claims gone what the other one shows."""

from __future__ import annotations

import itertools
import warnings
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.maintenance.test_copy import STEPS, do, new_table, shown
from tests.maintenance.test_copy_under_faults import RIGHT, Place
from tests.maintenance.test_copy_under_faults import cloned as cloned_once

import inlay
from inlay.errors import InvalidRequest, RefHeld, TableExists
from inlay.format.predicate import TRUE
from inlay.ops import refs
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.maintain.expire import DAY_US, expire
from inlay.ops.metadata.load import load_pointer
from inlay.ops.write.delete import delete

NUMBER = itertools.count()


def cloned(t: inlay.Table, where: str | Path | None = None) -> inlay.Table:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = t.clone_to(where or f"memory://clones-{next(NUMBER)}/c")
    assert f"clone-{made.snapshot.table_id}" in str(said[0].message)
    return made


def tidied(t: inlay.Table) -> None:
    t.refresh()
    t.maintain.rewrite()
    t.maintain.compact(small_bytes=1 << 30)
    t.maintain.expire(days=0, min_versions=1)
    t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)


def objects(t: inlay.Table) -> set[str]:
    return {info.key for info in t._ctx.store.list(t._ctx.key("data/"))}


@settings(max_examples=10)
@given(
    st.lists(st.sampled_from([s for s in STEPS if s != "erase"]), max_size=3),
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([s for s in STEPS if s != "erase"])), max_size=4
    ),
)
def test_a_clone_and_its_source_live_apart(before: list, after: list) -> None:
    t = new_table()
    for n, step in enumerate(before):
        do(t, step, n)
    expected = shown(t)
    c = cloned(t)
    assert shown(c) == expected and c.snapshot.table_id != t.snapshot.table_id
    assert c.schema == t.schema and c.version == 1
    for n, (here, step) in enumerate(after, start=4):
        one, other = (t, c) if here else (c, t)
        kept = shown(other)
        do(one, step, n)
        tidied(one)
        assert shown(inlay.open(other.uri)) == kept
        tidied(other)
        assert shown(inlay.open(other.uri)) == kept
    assert not inlay.open(c.uri).maintain.verify(depth="pages").errors


def test_a_clone_shares_the_files_and_needs_the_hold() -> None:
    t = new_table()
    files = objects(t)
    c = cloned(t)
    assert objects(c) == set() and c.snapshot.totals.files == len(files)
    t.delete("TRUE", mode="rewrite")
    tidied(t)
    assert files <= objects(t) and t.count() == 0 and inlay.open(c.uri).count() == 20
    [name] = list(t.snapshot.refs)
    with pytest.raises(RefHeld):
        t.refs.drop(name)
    with pytest.raises(RefHeld):
        inlay.drop(t.uri)
    assert t.inspect.history().column("message")[0].as_py() in (f"cloned to {c.uri}", None)


@pytest.mark.parametrize("lifted", [False, True])
def test_collection_leaves_what_a_clone_needs_until_the_hold_is_lifted(lifted: bool) -> None:
    place = Place()
    place.run(cloned_once)
    t = place.context("t")
    if lifted:
        [name] = load_pointer(t).snapshot.refs
        refs.set_hold(t, name, False)
        refs.drop(t, name)
    delete(t, TRUE, mode="rewrite")
    place.scheduler.now_us += 30 * DAY_US
    for ctx in (t, place.context("copy"), t):
        expire(ctx, days=0, min_versions=1)
        place.scheduler.now_us += 30 * DAY_US
        collect_garbage(ctx)
    left = [info.key for info in t.store.list(t.key("data/"))]
    assert len(left) == (0 if lifted else 4) and place.rows("t") == []
    if not lifted:
        assert place.rows("copy") == RIGHT


def test_an_erasure_of_what_a_clone_may_show_is_refused_by_name() -> None:
    t = new_table()
    stale = inlay.open(t.uri)
    c = cloned(t)
    for handle in (stale, t.refresh()):
        with pytest.raises(InvalidRequest, match=f"hold 'clone-{c.snapshot.table_id}'"):
            handle.delete("id = 3", mode="erase", request_id="case-0")
    with pytest.raises(InvalidRequest, match=f"hold 'clone-{c.snapshot.table_id}'"):
        t.delete("id = 3", mode="erase", request_id="case-1")
    t.append(pa.table({"id": [900], "word": ["x"], "at": [{"x": 1.0}]}, schema=t.schema))
    t.delete("id = 900", mode="erase", request_id="case-2")  # younger than the clone
    # The clone's own: the rows go from the clone, and the originals are named.
    c.delete("id = 3", mode="erase", request_id="case-3")
    c.refresh()
    c.maintain.rewrite()
    assert 3 not in c.scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert 3 in t.scan(columns=["id"]).to_arrow()["id"].to_pylist()
    c.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert inlay.open(t.uri).count() >= 20


def test_of_a_past_version_and_of_a_tag(tmp_path: Path) -> None:
    t = inlay.create(tmp_path / "t", pa.table({"id": [1, 2]}), primary_key="id")
    t.refs.tag("then")
    t.append(pa.table({"id": [3]}))
    t.delete("id = 1")
    for n, past in enumerate((inlay.open(t.uri, ref="then"), inlay.open(t.uri, version=1))):
        assert cloned(past, tmp_path / f"c{n}").count() == 2
    assert sorted(cloned(t, tmp_path / "c").to_pandas()["id"]) == [2, 3]
    # A file under a delete is written again: its deleted row is in no object of the clone's own.
    assert [f.name for f in (tmp_path / "c" / "data").rglob("*.parquet")]
    with pytest.raises(TableExists):
        t.refresh().clone_to(tmp_path / "c")
    assert len(t.refresh().snapshot.refs) == 4


def test_only_in_the_same_store(tmp_path: Path) -> None:
    t = new_table()
    with pytest.raises(InvalidRequest, match="cannot read the files"):
        t.clone_to(tmp_path / "c")
    assert not t.refresh().snapshot.refs and not inlay.exists(tmp_path / "c")

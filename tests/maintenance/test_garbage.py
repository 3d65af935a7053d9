"""Garbage collection deletes what nothing needs, and only that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import inlay.ops.collect_garbage as module
from inlay.errors import (
    ClocksDisagree,
    CorruptTable,
    ErrorKind,
    InvalidRequest,
    StaleUpload,
    VersionNotFound,
)
from inlay.format import keys
from inlay.format.snapshot import Ref
from inlay.ops.cache import ObjectCache
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.commit.driver import Committed, commit, expect_committed
from inlay.ops.context import Context
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.metadata.load import load_pointer, load_version
from inlay.plan.change import AddFiles, Change, RemoveFiles, SetRefs
from inlay.plan.commit import apply
from inlay.storage.wrapped import Asked, MeteredStore, WrappedStore

from .bench import DAY, Bench, id_below, id_is, new_bench


def test_nothing_is_deleted_from_a_table_whose_history_is_kept(bench: Bench) -> None:
    _churn(bench)
    bench.time.sleep(30 * DAY)
    before = bench.keys()
    result = collect_garbage(bench.ctx)
    assert result.objects == 0 and result.commit_id is None
    assert bench.keys() == before


def test_expired_versions_and_what_only_they_needed_go_after_the_grace(bench: Bench) -> None:
    _churn(bench)
    rows = bench.rows()
    bench.time.sleep(8 * DAY)
    expired = expire(bench.ctx)
    assert expired.expired > 0
    assert collect_garbage(bench.ctx).objects == 0  # the grace has only begun
    bench.time.sleep(8 * DAY)
    result = collect_garbage(bench.ctx)
    assert result.kinds["data"].objects == 3
    assert result.kinds["archive"].objects == expired.expired
    assert bench.rows() == rows
    assert len(bench.keys("data/")) == 1
    assert collect_garbage(bench.ctx).objects == 0


def test_every_version_that_may_still_be_opened_can_be_read_after_collection(bench: Bench) -> None:
    for n in range(12):
        bench.append(5)
        if n % 3 == 2:
            bench.delete(id_is(5 * n))
            compact(bench.ctx)
        bench.time.sleep(2 * DAY)
    current = bench.load().snapshot
    seen = {v: bench.rows(v) for v in range(1, current.version + 1)}
    expire(bench.ctx, days=9)
    collect_garbage(bench.ctx)  # the grace begins when this has seen the expiry
    bench.time.sleep(8 * DAY)
    assert collect_garbage(bench.ctx).objects > 0
    oldest = bench.load().snapshot.oldest_version
    assert 1 < oldest < current.version
    assert {v: bench.rows(v) for v in range(oldest, current.version + 1)} == {
        v: rows for v, rows in seen.items() if v >= oldest
    }


def test_a_dry_run_deletes_and_commits_nothing(bench: Bench) -> None:
    _orphan(bench, "a")
    bench.time.sleep(8 * DAY)
    before = bench.keys()
    result = collect_garbage(bench.ctx, dry_run=True)
    assert (result.objects, result.bytes, result.dry_run) == (1, 6, True)
    assert bench.keys() == before


def test_orphans_wait_for_their_grace(bench: Bench) -> None:
    _orphan(bench, "a")
    bench.time.sleep(6 * DAY)
    result = collect_garbage(bench.ctx)
    assert (result.objects, result.young) == (0, 1)
    bench.time.sleep(2 * DAY)
    assert collect_garbage(bench.ctx).objects == 1


def test_a_writer_that_stalled_past_the_boundary_is_refused(bench: Bench) -> None:
    loaded = bench.append(5)
    [entry] = loaded.snapshot.files.inline
    stalled = Change(
        operation="append",
        uploaded_us=bench.time.now_us(),
        updates=(AddFiles((replace(entry, key=_orphan(bench, "stalled"), sequence=None),)),),
    )
    bench.time.sleep(8 * DAY)
    collect_garbage(bench.ctx)
    with pytest.raises(StaleUpload):
        commit(bench.ctx, stalled, base=loaded)


def test_what_is_committed_between_the_look_and_the_boundary_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = bench.append(5)
    [entry] = loaded.snapshot.files.inline
    late = _orphan(bench, "late")
    _orphan(bench, "dead")
    uploaded_us = bench.time.now_us()
    bench.time.sleep(8 * DAY)
    real = module.commit

    def racing(ctx: Context, change: Change, **options: object) -> object:
        monkeypatch.setattr(module, "commit", real)
        late_entry = replace(entry, key=late, sequence=None)
        commit(
            bench.ctx,
            Change(operation="append", uploaded_us=uploaded_us, updates=(AddFiles((late_entry,)),)),
        )
        return real(ctx, change, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "commit", racing)
    result = collect_garbage(bench.ctx)
    assert result.objects == 1
    assert late in bench.keys("data/")


def test_tagged_versions_outlive_their_expiry(bench: Bench) -> None:
    _churn(bench)
    _tag(bench, "audit", 3)
    rows = bench.rows(3)
    bench.time.sleep(8 * DAY)
    expired = expire(bench.ctx)
    assert expired.held == (3,)
    collect_garbage(bench.ctx)
    bench.time.sleep(8 * DAY)
    collect_garbage(bench.ctx)
    assert bench.rows(3) == rows
    with pytest.raises(VersionNotFound):
        bench.rows(4)


def test_a_tag_that_was_just_lost_still_protects_its_readers(bench: Bench) -> None:
    _keep_only_by_a_tag(bench)
    _tag(bench, "audit", None)
    kept = bench.keys("data/")
    _orphan(bench, "x")
    bench.time.sleep(1 * DAY)
    collect_garbage(bench.ctx, grace_seconds=DAY * 2)
    assert set(kept) <= set(bench.keys("data/"))
    bench.time.sleep(8 * DAY)
    collect_garbage(bench.ctx)
    assert len(bench.keys("data/")) == 1


def test_what_a_lost_tag_kept_may_be_gone_and_the_next_run_goes_on(bench: Bench) -> None:
    """One run collects with a short grace, the next with a long one still counts the tag."""
    _keep_only_by_a_tag(bench)
    _tag(bench, "audit", None)
    bench.time.sleep(1 * DAY)
    assert collect_garbage(bench.ctx, grace_seconds=DAY / 2).kinds["archive"].objects == 1
    key = _orphan(bench, "x")
    bench.time.sleep(1 * DAY)
    rows = bench.rows()
    assert collect_garbage(bench.ctx, grace_seconds=4 * DAY).objects == 0
    bench.time.sleep(4 * DAY)
    collect_garbage(bench.ctx, grace_seconds=4 * DAY)
    assert key not in bench.keys("data/")
    assert bench.rows() == rows


def test_a_missing_archive_that_a_tag_names_stops_everything(bench: Bench) -> None:
    _keep_only_by_a_tag(bench)
    bench.store.delete([bench.ctx.key(keys.archive_key(3))])
    _orphan(bench, "x")
    bench.time.sleep(8 * DAY)
    before = bench.keys()
    with pytest.raises(CorruptTable, match="version 3"):
        collect_garbage(bench.ctx)
    assert bench.keys() == before


def test_foreign_objects_are_reported_and_left(bench: Bench) -> None:
    bench.store.put(bench.ctx.key("notes.txt"), b"mine")
    bench.store.put(bench.ctx.key("erasure/receipt.json"), b"{}")
    _orphan(bench, "a")
    bench.time.sleep(8 * DAY)
    result = collect_garbage(bench.ctx)
    assert result.unknown == ("notes.txt",)
    assert {"notes.txt", "erasure/receipt.json", keys.POINTER} <= set(bench.keys())


def test_an_adopted_file_inside_the_table_prefix_is_kept(bench: Bench) -> None:
    loaded = bench.append(5)
    [entry] = loaded.snapshot.files.inline
    body = bench.store.get(bench.ctx.key(entry.key)).body
    bench.store.put(bench.ctx.key("data/theirs.parquet"), body)
    uri = "memory://b/tables/t/data/theirs.parquet"
    theirs = replace(entry, key=uri, adopted=True, sequence=None)
    compared = frozenset(loaded.snapshot.primary_key)
    change = Change(operation="ingest", updates=(AddFiles((theirs,), compared=compared),))
    expect_committed(bench.ctx, commit(bench.ctx, change))
    _orphan(bench, "a")
    bench.time.sleep(8 * DAY)
    assert collect_garbage(bench.ctx).objects == 1
    assert len(bench.ids()) == 10


def test_stale_uploads_are_aborted_and_fresh_ones_left(bench: Bench) -> None:
    old = bench.store.create_multipart(bench.ctx.key("data/old.parquet"))
    bench.time.sleep(8 * DAY)
    new = bench.store.create_multipart(bench.ctx.key("data/new.parquet"))
    assert collect_garbage(bench.ctx).uploads == 1
    assert [u.upload_id for u in bench.store.list_uploads("")] == [new] != [old]


def test_a_missing_archive_of_a_retained_version_stops_everything(bench: Bench) -> None:
    _churn(bench)
    _orphan(bench, "a")
    bench.time.sleep(8 * DAY)
    bench.store.delete([bench.ctx.key(keys.archive_key(2))])
    before = bench.keys()
    with pytest.raises(CorruptTable, match="version 2"):
        collect_garbage(bench.ctx)
    assert bench.keys() == before


class Named(WrappedStore):
    """Counts requests by verb, and by the folder or object of the table that the first key names."""

    def __init__(self, inner: Any, prefix: str) -> None:
        super().__init__(inner)
        self.prefix = prefix
        self.asked = Counter[tuple[str, str]]()

    def _ask(self, asked: Asked, send: Callable[[], Any]) -> Any:
        folder, slash, _ = asked.key.removeprefix(self.prefix).partition("/")
        self.asked[asked.verb, folder + slash] += 1
        return send()


# What garbage collection asks for besides pages of 1,000 keys, deletes of 1,000, and a version for each
# one that is retained, which alone says what it needs:
FIXED = {
    (
        "get",
        "_latest_manifest",
    ): 2,  # the base; and that it was not put back once the boundary is archived
    ("list_uploads", ""): 1,  # uploads that never ended
    (
        "put",
        "manifest/",
    ): 2,  # archives: of the base, as of every commit; of the boundary, before deletes
    (
        "put",
        "_latest_manifest",
    ): 1,  # the boundary, without which a writer may commit what is deleted
}


@pytest.mark.parametrize("history", [False, True], ids=["orphans", "orphans-and-history"])
def test_five_thousand_orphans_take_pages_deletes_versions_and_six_requests(
    bench: Bench, history: bool
) -> None:
    bench.append(5)
    for n in range(5_000):
        _orphan(bench, f"{n:05d}")
    if history:
        bench.time.sleep(8 * DAY)
        expire(bench.ctx, days=0)
        bench.append(5)  # writes down that the expiry was seen
    bench.time.sleep(8 * DAY)
    before = len(bench.keys())
    store = Named(bench.store, bench.ctx.key(""))
    result = collect_garbage(replace(bench.ctx, store=store))
    assert result.kinds["data"].objects == 5_000
    pages, deletes = -(-before // 1_000), -(-result.objects // 1_000)
    retained = result.roots - 2  # the base and the boundary are at hand
    assert (pages, deletes, retained) == ((6, 6, 2) if history else (6, 5, 1))
    expected = Counter(FIXED)
    expected["list", ""] += pages
    expected["get", "manifest/"] += retained
    expected["delete", "data/"] += 5
    expected["delete", "manifest/"] += deletes - 5
    assert store.asked == +expected
    assert store.asked.total() == (20 if history else 18)


def test_history_expires_by_age_and_count(bench: Bench) -> None:
    for _ in range(9):
        bench.append(1)
        bench.time.sleep(DAY)
    current = bench.load().snapshot
    assert expire(bench.ctx, days=100).expired == 0
    assert expire(bench.ctx, days=0, min_versions=50).expired == 0
    assert expire(bench.ctx, days=999_999).expired == 0
    for days in (-1, 1e6, float("nan"), float("inf"), "9"):
        with pytest.raises(InvalidRequest, match="cannot keep versions"):
            expire(bench.ctx, days=days)  # type: ignore[arg-type]
    dry = expire(bench.ctx, days=3, dry_run=True)
    assert bench.load().snapshot.version == current.version
    done = expire(bench.ctx, days=3)
    assert (done.first, done.through) == (dry.first, dry.through)
    assert done.through is not None
    # As of three days ago can still be read.
    cutoff = bench.load().date_us - 3 * DAY * 1_000_000
    oldest = load_version(bench.ctx, load_pointer(bench.ctx).snapshot, done.through + 1)
    assert oldest.commit.time_us <= cutoff
    with pytest.raises(VersionNotFound):
        bench.rows(done.through)


def test_the_newest_gone_expiration_is_remembered_so_that_old_archives_are_not_looked_for() -> None:
    bench = new_bench()
    for _ in range(3):
        _churn(bench)
        bench.time.sleep(8 * DAY)
        expire(bench.ctx)
        collect_garbage(bench.ctx)
        bench.time.sleep(8 * DAY)
        collect_garbage(bench.ctx)
    current = bench.load().snapshot
    assert len(current.expired) <= 2
    metered = MeteredStore(bench.store)
    result = collect_garbage(replace(bench.ctx, store=metered), dry_run=True)
    assert result.roots == metered.usage().requests["get"]


def _churn(bench: Bench) -> None:
    """Some files, a delete, and a compaction that leaves one file."""
    bench.append(5)
    bench.append(5)
    bench.append(5)
    bench.delete(id_is(bench.next_id - 2))
    compact(bench.ctx, small_bytes=1 << 30)


def _orphan(bench: Bench, name: str) -> str:
    key = f"data/2026/11/20/16/{name}.parquet"
    bench.store.put(bench.ctx.key(key), b"orphan")
    return key


def _keep_only_by_a_tag(bench: Bench) -> None:
    """Version 3 has expired longer ago than the grace, and is tagged."""
    _churn(bench)
    _tag(bench, "audit", 3)
    bench.time.sleep(8 * DAY)
    expire(bench.ctx)
    collect_garbage(bench.ctx)
    bench.time.sleep(8 * DAY)
    collect_garbage(bench.ctx)


def _tag(bench: Bench, name: str, version: int | None) -> None:
    ref = None if version is None else Ref(kind="tag", version=version)
    commit(bench.ctx, Change(operation="tag", updates=(SetRefs({name: ref}, {}),)))


def test_an_object_of_the_boundarys_own_second_is_kept(bench: Bench) -> None:
    """The store gives whole seconds: a writer of that very second is not refused."""
    _orphan(bench, "older")
    bench.time.sleep(1)
    key = _orphan(bench, "same")
    result = collect_garbage(bench.ctx, grace_seconds=0, clock_margin_seconds=0)
    assert (result.objects, result.young) == (1, 1)
    assert key in bench.keys("data/")


def test_an_entry_of_a_shared_segment_that_only_an_older_version_needs_is_kept() -> None:
    bench = _with_a_segment()
    before = bench.load().snapshot.version
    rows = bench.rows()
    segment = bench.load().snapshot.files.segments[0]
    victim = bench.load().state.contents.files[segment.id][0]
    commit(bench.ctx, Change(operation="delete", updates=(RemoveFiles((victim.key,)),)))
    assert bench.load().snapshot.files.segments[0].dead
    _orphan(bench, "a")
    bench.time.sleep(8 * DAY)
    assert collect_garbage(bench.ctx).kinds.keys() == {"data"}
    assert victim.key in bench.keys("data/")
    assert bench.rows(before) == rows


def test_archives_that_are_gone_already_cost_no_request_each() -> None:
    bench = new_bench()
    for _ in range(30):
        bench.append(1)
    expire(bench.ctx, days=0)
    for _ in range(2):
        bench.time.sleep(2)
        collect_garbage(bench.ctx, grace_seconds=0, clock_margin_seconds=0)
    metered = MeteredStore(bench.store)
    collect_garbage(replace(bench.ctx, store=metered), dry_run=True)
    assert metered.usage().total <= 8


def _with_a_segment() -> Bench:
    """Of a few files, which a pointer of a kilobyte has no room for."""
    bench = new_bench()
    with pytest.MonkeyPatch.context() as lower:
        lower.setattr(apply, "POINTER_TARGET_BYTES", 1_000)
        lower.setattr(apply, "INLINE_MIN_BYTES", 0)
        while not bench.load().snapshot.files.segments:
            bench.append(1)
    return bench


@pytest.mark.parametrize("tagged", [True, False])
def test_a_missing_segment_of_an_expired_version_stops_everything_if_a_tag_names_it(
    tagged: bool,
) -> None:
    bench = _with_a_segment()
    old = bench.load().snapshot
    if tagged:
        _tag(bench, "audit", old.version)
    bench.delete(id_below(bench.next_id))
    bench.time.sleep(8 * DAY)
    bench.append(1)
    expire(bench.ctx)
    bench.store.delete([bench.ctx.key(keys.segment_key(s.id)) for s in old.files.segments])
    orphan = _orphan(bench, "x")
    bench.time.sleep(1 * DAY)
    before = bench.keys()
    afresh = replace(bench.ctx, cache=ObjectCache())
    if tagged:
        with pytest.raises(CorruptTable, match=old.files.segments[0].id):
            collect_garbage(afresh, grace_seconds=DAY / 2)
        assert bench.keys() == before
    else:
        collect_garbage(afresh, grace_seconds=DAY / 2)
        assert orphan not in bench.keys("data/")


def test_a_missing_segment_of_what_a_lost_tag_kept_is_no_damage() -> None:
    """Another run deletes archive and segments in no order: this one may see the first alone."""
    bench = _with_a_segment()
    old = bench.load().snapshot
    _tag(bench, "audit", old.version)
    bench.delete(id_below(bench.next_id))
    bench.time.sleep(8 * DAY)
    bench.append(1)
    expire(bench.ctx)
    collect_garbage(bench.ctx)
    bench.time.sleep(8 * DAY)
    collect_garbage(bench.ctx)
    orphan = _orphan(bench, "x")
    bench.time.sleep(3 * DAY)
    _tag(bench, "audit", None)
    bench.store.delete([bench.ctx.key(keys.segment_key(s.id)) for s in old.files.segments])
    collect_garbage(replace(bench.ctx, cache=ObjectCache()), grace_seconds=2 * DAY)
    assert orphan not in bench.keys("data/")


# -- the store's two clocks -----------------------------------------------------------------------


def _lagging(seconds: float) -> Bench:
    """A table on a store whose LastModified is behind its Date."""
    bench = new_bench()
    bench.store._region.behind_us = int(seconds * 1_000_000)
    return bench


@pytest.mark.parametrize("behind", [0, 3, 59])
def test_what_a_writer_may_still_commit_is_kept_however_old_it_looks(behind: float) -> None:
    """It began its upload at the Date that is the boundary: rule 3 lets it commit."""
    bench = _lagging(behind)
    bench.append(1)
    _orphan(bench, "litter")
    bench.time.sleep(200)
    uploaded_us = bench.load().date_us
    key = _orphan(bench, "written")
    bench.time.sleep(5)
    assert collect_garbage(bench.ctx, grace_seconds=5).objects == 1
    loaded = bench.load()
    assert loaded.snapshot.boundary.time_us == uploaded_us
    added = replace(next(iter(loaded.state.files())), key=key, sequence=None)
    done = commit(
        bench.ctx,
        Change(operation="append", uploaded_us=uploaded_us, updates=(AddFiles((added,)),)),
    )
    assert isinstance(done, Committed)
    assert key in bench.keys("data/")


def test_what_is_older_than_grace_and_margin_goes() -> None:
    bench = _lagging(59)
    bench.append(1)
    _orphan(bench, "old")
    bench.time.sleep(4)
    assert collect_garbage(bench.ctx, grace_seconds=3).objects == 0
    bench.time.sleep(60)
    assert collect_garbage(bench.ctx, grace_seconds=3).objects == 1


@pytest.mark.parametrize("behind", [63, 3600, -120])
def test_clocks_that_contradict_each_other_delete_nothing(behind: float) -> None:
    bench = _lagging(behind)
    bench.append(1)
    key = _orphan(bench, "old")
    bench.time.sleep(1000)
    bench.append(1)
    with pytest.raises(ClocksDisagree) as told:
        collect_garbage(bench.ctx, grace_seconds=0)
    assert told.value.kind is ErrorKind.PAGE and str(abs(int(behind)))[:2] in str(told.value)
    assert key in bench.keys("data/")
    collect_garbage(bench.ctx, grace_seconds=0, clock_margin_seconds=abs(behind))
    assert key not in bench.keys("data/")


@pytest.mark.parametrize("back_seconds", [30, 7_200])
def test_a_clock_that_is_set_back_costs_time_and_no_rows(bench: Bench, back_seconds: int) -> None:
    bench.append(1)
    _orphan(bench, "old")
    bench.time.sleep(1_000)
    assert collect_garbage(bench.ctx, grace_seconds=0).objects == 1
    bench.time.sleep(-back_seconds)
    with pytest.raises(StaleUpload) as told:
        bench.append(2)
    assert told.value.kind is ErrorKind.RETRY
    bench.delete(id_is(0))  # a tombstone uploads nothing
    key = _orphan(bench, "new")
    if back_seconds > 60:
        with pytest.raises(ClocksDisagree):
            collect_garbage(bench.ctx, grace_seconds=0)
    else:
        collect_garbage(bench.ctx, grace_seconds=0)
    assert key in bench.keys("data/")
    bench.time.sleep(back_seconds)
    bench.append(2)
    bench.time.sleep(1_000)
    assert collect_garbage(bench.ctx, grace_seconds=0).objects >= 1
    assert bench.ids() == [3, 4]


def test_a_margin_is_zero_or_more(bench: Bench) -> None:
    with pytest.raises(InvalidRequest):
        collect_garbage(bench.ctx, clock_margin_seconds=-1)

"""Repair repairs what can be repaired without guessing, and nothing else."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.maintenance.bench import Bench
from tests.verify.damage import (
    PLANTS,
    body,
    garble,
    inline_files,
    overwrite,
    pointer,
    remove,
    rich,
)

import inlay
from inlay.errors import (
    ConcurrentChange,
    InlayError,
    InputError,
    StaleUpload,
    StoreUnavailable,
    TableNotFound,
    TableReplaced,
)
from inlay.format import keys
from inlay.ops.commit.driver import commit
from inlay.ops.context import Context
from inlay.ops.verify.mend_pointer import legible_version, newest_state, rebuild
from inlay.ops.verify.repair import repair
from inlay.ops.verify.table import BrokenPointer, read_pointer, verify
from inlay.ops.write.append import append
from inlay.plan.change import AddFiles, Change, PackMetadata, Request
from inlay.storage.wrapped import WrappedStore


def lose_pointer(bench: Bench) -> None:
    remove(bench, keys.POINTER)


def damage_pointer(bench: Bench) -> None:
    overwrite(bench, keys.POINTER, body(bench, keys.POINTER)[:-9])


@pytest.mark.parametrize("damage", [lose_pointer, damage_pointer])
def test_a_table_that_cannot_be_opened_is_repaired_by_its_uri(damage: Any) -> None:
    bench = rich()
    damage(bench)
    uri = bench.ctx.uri
    with pytest.raises(InputError if damage is lose_pointer else InlayError):
        inlay.open(uri, context=bench.ctx)
    assert not inlay.verify(uri, depth="metadata", context=bench.ctx).ok
    assert inlay.repair(uri, context=bench.ctx).dry_run
    assert not inlay.verify(uri, depth="metadata", context=bench.ctx).ok
    assert inlay.repair(uri, dry_run=False, context=bench.ctx).ok
    assert inlay.open(uri, context=bench.ctx).maintain.verify().ok


@pytest.mark.parametrize("damage", [lose_pointer, damage_pointer])
def test_a_pointer_is_rebuilt_from_the_newest_archive(damage: Any) -> None:
    bench = rich()
    newest = pointer(bench).version
    rows = bench.rows(newest - 1)
    damage(bench)
    result = repair(bench.ctx, dry_run=False)
    assert [m.key for m in result.mends] == [keys.POINTER]
    assert result.mends[0].lost and f"version {newest}" in result.mends[0].lost
    assert result.ok and result.version == newest
    assert bench.rows() == rows
    assert pointer(bench).commit.operation == "repair"
    assert verify(bench.ctx, depth="pages").errors == ()


def test_a_dry_run_is_the_default_and_writes_nothing() -> None:
    for name in ("pointer_missing", "archive_differs", "totals_wrong", "dangling_marker"):
        bench = rich()
        PLANTS[name](bench)
        before = {o.key: o.etag for o in bench.store.list("")}
        result = repair(bench.ctx)
        assert result.dry_run and len(result.mends) == 1, name
        assert {o.key: o.etag for o in bench.store.list("")} == before


def test_a_healthy_table_needs_no_mending() -> None:
    bench = rich()
    before = pointer(bench).version
    assert repair(bench.ctx, dry_run=False).mends == ()
    assert pointer(bench).version == before


def test_nothing_is_lost_when_a_writer_had_archived_the_pointer_and_crashed() -> None:
    bench = rich()
    rows, newest = bench.rows(), pointer(bench).version
    overwrite(bench, keys.archive_key(newest), body(bench, keys.POINTER))
    damage_pointer(bench)
    result = repair(bench.ctx, dry_run=False)
    assert bench.rows() == rows
    assert result.version == newest + 1


@pytest.mark.parametrize("damage", [lose_pointer, damage_pointer])
def test_in_a_bucket_with_versioning_nothing_is_lost(damage: Any) -> None:
    bench = rich(versioning=True)
    rows, newest = bench.rows(), pointer(bench).version
    damage(bench)
    result = repair(bench.ctx, dry_run=False)
    assert result.mends[0].lost is None
    assert result.version == newest + 1
    assert bench.rows() == rows == bench.rows(newest)
    assert verify(bench.ctx, depth="pages").errors == ()


def test_the_lost_commit_can_be_sent_again_under_its_request_id() -> None:
    bench = rich()
    more = pa.table({"id": pa.array([900]), "name": ["again"]})
    append(bench.ctx, more, request=Request.of("the last one"))
    lose_pointer(bench)
    repair(bench.ctx, dry_run=False)
    assert 900 not in bench.ids()
    for _ in range(2):
        append(bench.ctx, more, request=Request.of("the last one"))
    assert bench.ids().count(900) == 1


def test_a_writer_from_before_the_damage_must_upload_again() -> None:
    """What the lost commits knew of deleted objects is gone: the boundary moves to now."""
    bench = rich()
    old = bench.load()
    lose_pointer(bench)
    bench.time.sleep(60)
    repair(bench.ctx, dry_run=False)
    entry = inline_files(bench)[0]
    change = Change(operation="append", uploaded_us=old.date_us, updates=(AddFiles((entry,)),))
    with pytest.raises(StaleUpload):
        commit(bench.ctx, change)


def test_the_rebuilt_pointer_never_has_the_bytes_of_an_earlier_one() -> None:
    bench = rich()
    earlier = {body(bench, k) for k in bench.keys("manifest/v")} | {body(bench, keys.POINTER)}
    stalled = bench.load()
    lose_pointer(bench)
    repair(bench.ctx, dry_run=False)
    assert body(bench, keys.POINTER) not in earlier
    after = body(bench, keys.POINTER)
    with pytest.raises(TableReplaced):  # its ETag was of no use
        commit(bench.ctx, Change(operation="noop", updates=(PackMetadata(),)), base=stalled)
    assert body(bench, keys.POINTER) == after


def test_a_repair_that_comes_second_changes_nothing() -> None:
    bench = rich()
    damage_pointer(bench)
    seen = read_pointer(bench.ctx)
    assert isinstance(seen, BrokenPointer)
    source = newest_state(bench.ctx, seen)
    assert source is not None
    repair(bench.ctx, dry_run=False)
    bench.append(1)
    after = body(bench, keys.POINTER)
    with pytest.raises(ConcurrentChange):
        rebuild(bench.ctx, seen, source)
    assert body(bench, keys.POINTER) == after


def test_a_pointer_is_not_rebuilt_from_an_archive_that_is_not_the_newest() -> None:
    bench = rich()
    newest = pointer(bench).version
    garble(bench, keys.archive_key(newest - 1))
    lose_pointer(bench)
    result = repair(bench.ctx, dry_run=False)
    assert not result.ok and result.mends == ()
    assert "backup" in result.refused[0].next_step
    assert isinstance(read_pointer(bench.ctx), BrokenPointer)


def cut_short(bench: Bench, key: str) -> None:
    overwrite(bench, key, body(bench, key)[:-9])


@pytest.mark.parametrize("damage", [remove, cut_short])
def test_what_is_refused_says_which_version_the_bucket_keeps(damage: Any) -> None:
    bench = rich(versioning=True)
    key = inline_files(bench)[0].key
    damage(bench, key)
    [lost] = [f for f in repair(bench.ctx, dry_run=False).refused if f.key == key]
    [*_, kept] = [v for v in bench.store.list_versions(bench.ctx.key(key)) if not v.marker]
    assert kept.version_id in lost.next_step and "backup" not in lost.next_step
    old = bench.store.get(bench.ctx.key(key), version_id=kept.version_id)
    overwrite(bench, key, old.body)
    assert verify(bench.ctx, depth="pages").errors == ()


def test_where_the_bucket_keeps_none_a_backup_is_advised() -> None:
    bench = rich()
    remove(bench, inline_files(bench)[0].key)
    archive = keys.archive_key(pointer(bench).version - 1)
    remove(bench, archive)
    steps = {f.key: f.next_step for f in repair(bench.ctx, dry_run=False).refused}
    assert len(steps) == 2 and all("backup" in step for step in steps.values())
    assert "inlay repair" not in steps[archive]


def test_where_there_is_nothing_there_is_nothing_to_repair() -> None:
    bench = rich()
    bench.store.delete([o.key for o in bench.store.list("")])
    with pytest.raises(TableNotFound):
        repair(bench.ctx)


def test_damaged_bytes_may_still_show_their_version() -> None:
    bench = rich()
    raw = body(bench, keys.POINTER)
    assert raw[:2] == b"\x1f\x8b"
    assert legible_version(raw[:-30]) == pointer(bench).version
    assert legible_version(b"rubbish") is None


# -- archives, totals, markers --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["archive_missing", "archive_corrupt"])
def test_an_archive_comes_back_from_the_versions_that_the_bucket_keeps(name: str) -> None:
    bench = rich(versioning=True)
    rows = bench.rows(3)
    PLANTS[name](bench)
    result = repair(bench.ctx, dry_run=False)
    assert result.ok and [m.kind for m in result.mends] == [name]
    assert bench.rows(3) == rows


def test_an_archive_whose_versions_are_gone_comes_back_from_those_of_the_pointer() -> None:
    bench = rich(versioning=True)
    before, key = body(bench, keys.archive_key(3)), bench.ctx.key(keys.archive_key(3))
    bench.store.delete_versions([(v.key, v.version_id) for v in bench.store.list_versions(key)])
    assert repair(bench.ctx, dry_run=False).ok
    assert body(bench, keys.archive_key(3)) == before


@pytest.mark.parametrize("name", ["archive_missing", "archive_corrupt"])
def test_without_versions_a_lost_archive_is_refused(name: str) -> None:
    bench = rich()
    PLANTS[name](bench)
    for dry_run in (True, False):
        result = repair(bench.ctx, dry_run=dry_run)
        assert not result.ok and result.mends == ()
        assert [f.kind for f in result.refused] == [name]


def test_a_wrong_archive_of_the_current_version_is_written_from_the_pointer() -> None:
    """The next commit would take it for its own, and version N would be lost."""
    bench = rich()
    PLANTS["archive_differs"](bench)
    rows, version = bench.rows(), pointer(bench).version
    assert repair(bench.ctx, dry_run=False).ok
    bench.append(1)
    assert bench.rows(version) == rows


@pytest.mark.parametrize("name", ["totals_wrong", "dangling_marker"])
def test_totals_and_markers_are_mended_by_one_commit(name: str) -> None:
    bench = rich()
    PLANTS[name](bench)
    before, rows = pointer(bench).version, bench.rows()
    result = repair(bench.ctx, dry_run=False)
    assert [m.kind for m in result.mends] == [name]
    assert pointer(bench).version == before + 1
    assert bench.rows() == rows
    assert verify(bench.ctx, depth="pages").findings == ()


@pytest.mark.parametrize(
    "name", ["file_missing", "segment_missing", "marker_missing", "entry_twice"]
)
def test_what_cannot_be_mended_is_refused_and_left_alone(name: str) -> None:
    bench = rich()
    PLANTS[name](bench)
    before = {o.key: o.etag for o in bench.store.list("") if "data/" in o.key}
    result = repair(bench.ctx, dry_run=False)
    assert not result.ok
    assert name in {f.kind for f in result.refused}
    assert {o.key: o.etag for o in bench.store.list("") if "data/" in o.key} == before


# -- crashes --------------------------------------------------------------------------------------


class Cut(WrappedStore):
    """A store whose n-th write fails: before it is done, or with its answer lost."""

    def __init__(self, inner: Any, at: int, *, done: bool) -> None:
        super().__init__(inner)
        self.left, self.done = at, done

    def put(self, *args: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left != 0:
            return super().put(*args, **options)
        if self.done:
            super().put(*args, **options)
        raise StoreUnavailable("cut")


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("versioning", [True, False])
@pytest.mark.parametrize("damage", [lose_pointer, damage_pointer])
def test_a_repair_that_meets_a_fault_at_any_write_ends_as_if_it_had_not(
    damage: Any, versioning: bool, done: bool
) -> None:
    for at in range(1, 4):
        bench = rich(versioning=versioning)
        newest = pointer(bench).version
        rows = bench.rows(newest if versioning else newest - 1)
        damage(bench)
        cut = Context(**{**_fields(bench.ctx), "store": Cut(bench.store, at, done=done)})
        try:
            repair(cut, dry_run=False)
        except InlayError:
            repair(bench.ctx, dry_run=False)
        assert bench.rows() == rows
        assert pointer(bench).version == newest + versioning
        assert verify(bench.ctx).errors == ()


def _fields(ctx: Context) -> dict[str, Any]:
    return {name: getattr(ctx, name) for name in ctx.__slots__}

"""Verify finds each kind of damage, names the object and the next step, and finds nothing in health."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.maintenance.bench import DAY, Bench, id_below, id_is, new_bench
from tests.verify.damage import PLANTS, edit_file, inline_files, overwrite, pointer, remove, rich

import inlay
from inlay.errors import InvalidRequest, TableNotFound
from inlay.format import keys
from inlay.format.predicate import TRUE
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.context import Context
from inlay.ops.erase.request import open_erasure
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.maintain.rewrite import rewrite
from inlay.ops.verify.table import DEPTHS, verify
from inlay.ops.write.append import IngestSource
from inlay.ops.write.delete import delete
from inlay.ops.write.ingest import ingest
from inlay.plan.verify import MAX_PER_KIND, RULES
from inlay.storage.base import Location
from inlay.storage.wrapped import WrappedStore


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_healthy_table_has_no_findings(depth: str) -> None:
    bench = rich()
    found = verify(bench.ctx, depth=depth)
    assert found.findings == ()
    assert found.ok
    assert found.version == found.versions == pointer(bench).version
    assert found.files == 16
    assert found.markers == 7
    assert found.segments > 2


def test_the_rich_table_has_segments_of_everything_and_markers_of_every_kind() -> None:
    """Else the test above would say little."""
    snapshot = pointer(rich())
    assert snapshot.files.segments and snapshot.files.inline
    assert snapshot.markers.segments and snapshot.markers.inline
    assert snapshot.ledger.records.segments
    state = rich().load().state
    kinds = {type(m.body).__name__ for m in state.markers()}
    assert kinds >= {"Rows", "KeyRange", "Keys", "RowGroups", "Vector"}


def test_a_table_is_healthy_after_every_kind_of_maintenance() -> None:
    bench = rich()
    steps = (
        lambda: rewrite(bench.ctx),
        lambda: compact(bench.ctx),
        lambda: expire(bench.ctx, days=0, min_versions=2),
        lambda: collect_garbage(bench.ctx),
        lambda: (bench.time.sleep(8 * DAY), collect_garbage(bench.ctx)),
        lambda: open_erasure(bench.ctx, id_is(31)),
    )
    for step in steps:
        step()
        bench.time.sleep(2)
        found = verify(bench.ctx, depth="pages")
        assert found.findings == (), step


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_damage_is_found_and_named(name: str) -> None:
    bench = rich()
    key = PLANTS[name](bench)
    kind = name.partition("__")[0]
    found = verify(bench.ctx, depth="pages")
    assert kind in found.counts, found.findings
    about = [f for f in found.findings if f.kind == kind]
    assert key is None or key in {f.key for f in about}
    assert all(f.next_step and f.message for f in about)
    assert found.ok is not any(f.severity.value == "error" for f in found.findings)


def test_every_kind_of_finding_is_planted_by_some_test() -> None:
    # The latter is of several tables: tests/transaction/test_transactions.py.
    here = {"versions_not_checked", "decision_missing"}
    assert {name.partition("__")[0] for name in PLANTS} | here == set(RULES)


def test_a_severity_equals_the_word_that_the_command_prints() -> None:
    """Else `finding.severity == "error"` would be false for each, in silence."""
    assert {severity for severity, _ in RULES.values()} == {"error", "warning", "note"}


def test_keys_of_a_column_dropped_since_are_no_damage() -> None:
    """An older version holds them, and reads them by its own schema."""
    table = inlay.create(
        "memory://verify/dropped", pa.schema([("id", pa.int32()), ("a", pa.int8())])
    )
    table.append(pa.table({"id": pa.array([1, 2], pa.int32()), "a": pa.array([0, 1], pa.int8())}))
    keys_given = pa.table(
        {"id": pa.array(range(300), pa.int32()), "a": pa.array([0] * 300, pa.int8())}
    )
    table.delete(keys=keys_given)
    assert any(m.object_key for m in table.inspect.entries()[1])
    table.maintain.rewrite()
    table.alter(widen={"id": pa.int64()}, drop=["a"])
    assert table.maintain.verify(depth="pages").findings == ()


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("x", pa.int64())]), pa.map_(pa.string(), pa.int64())]
)
def test_a_delete_by_whether_a_nested_column_is_null_is_no_damage(kind: pa.DataType) -> None:
    """Such a column has no values of its own, but is NULL or not."""
    t = inlay.create(
        f"memory://nested/{uuid.uuid4().hex}", pa.schema([("id", pa.int64()), ("n", kind)])
    )
    t.append(pa.table({"id": [1, 2]}))
    t.delete("n IS NOT NULL OR id > 1", mode="tombstone")
    assert t.maintain.verify().findings == ()


def test_damage_of_one_object_is_one_error() -> None:
    """A report in which every damage shows up five times is not read."""
    for name in ("file_missing", "file_unreadable", "marker_missing", "statistics_wrong__by_nulls"):
        bench = rich()
        PLANTS[name](bench)
        assert len(verify(bench.ctx, depth="footers").errors) == 1, name


def test_a_lost_file_can_be_let_go_of() -> None:
    """What the finding advises works."""
    bench = rich()
    lost = inline_files(bench)[0]
    remove(bench, lost.key)
    delete(bench.ctx, TRUE, mode="tombstone", file=lost.key)
    compact(bench.ctx)
    assert len(bench.rows()) > 0
    (found,) = verify(bench.ctx).errors
    assert "only older versions" in found.message


def test_values_that_only_pages_show_are_found_by_reading_pages() -> None:
    """A file without statistics: only its rows can contradict the entry."""
    bench = new_bench()
    bench.append(10)
    entry = inline_files(bench)[0]
    sink = io.BytesIO()
    rows = pa.table({"id": pa.array([1, 2, 99]), "name": pa.array(["a", "b", None])})
    pq.write_table(rows, sink, write_statistics=False)
    data = sink.getvalue()
    overwrite(bench, entry.key, data)
    edit_file(
        bench,
        size=len(data),
        footer_size=int.from_bytes(data[-8:-4], "little") + 8,
        rows=3,
        stats={1: replace(entry.stats[1], lower=1, upper=98), 2: replace(entry.stats[2])},
    )
    assert verify(bench.ctx, depth="footers").errors == ()
    found = verify(bench.ctx, depth="pages").errors
    assert [(f.kind, f.key) for f in found] == [("statistics_wrong", entry.key)] * 3
    assert any("column id: 1 values are outside" in f.message for f in found)


def test_no_finding_repeats_a_value_of_a_row() -> None:
    bench = new_bench()
    bench.append(3, value="secret-")
    stats = inline_files(bench)[0].stats
    edit_file(bench, stats={**stats, 2: replace(stats[2], upper="secret-0")})
    (found,) = verify(bench.ctx).errors
    assert "secret" not in str(found)


def test_what_is_being_written_is_no_orphan() -> None:
    bench = rich()
    overwrite(bench, "data/1970/01/01/00/new.parquet", b"being written")
    assert verify(bench.ctx).orphans == {}


def test_objects_of_versions_expired_within_the_grace_are_no_orphans() -> None:
    bench = rich()
    compact(bench.ctx)
    expire(bench.ctx, days=0, min_versions=1)
    bench.time.sleep(2)
    assert verify(bench.ctx).orphans == {}


def test_orphans_are_reported_by_kind_with_their_bytes() -> None:
    bench = rich()
    for n in range(3):
        overwrite(bench, f"data/1970/01/01/00/{n}.parquet", b"12345")
    overwrite(bench, "manifest/segments/none", b"123")
    bench.time.sleep(2)
    found = verify(bench.ctx).orphans
    assert {k: (t.objects, t.bytes) for k, t in found.items()} == {
        "data": (3, 15),
        "segment": (1, 3),
    }


def test_only_the_newest_versions_are_looked_at_when_asked() -> None:
    bench = rich()
    found = verify(bench.ctx, max_versions=4)
    assert found.versions == 5  # and the current one
    assert found.counts == {"versions_not_checked": 1, "orphans_unknown": 1}


def test_findings_of_one_kind_are_bounded_and_all_counted() -> None:
    bench = new_bench()
    for _ in range(MAX_PER_KIND + 20):
        bench.append(1)
    bench.store.delete([bench.ctx.key(k) for k in bench.keys("data/")])
    found = verify(bench.ctx)
    assert found.counts["file_missing"] == MAX_PER_KIND + 20
    assert len(found.findings) == MAX_PER_KIND


def test_an_adopted_file_that_was_written_over_is_found() -> None:
    bench = new_bench()
    bench.store.put("in/a.parquet", _parquet(3))
    ingest(bench.ctx, [IngestSource(Location("memory", "b", "in/a.parquet"))], adopt=True)
    assert verify(bench.ctx, depth="pages").findings == ()
    other = _parquet(3, first=50)
    bench.store.put("in/a.parquet", other)
    assert [f.kind for f in verify(bench.ctx).errors] == ["file_changed"]
    bench.store.delete(["in/a.parquet"])
    assert [f.kind for f in verify(bench.ctx).errors] == ["file_missing"]


def _parquet(rows: int, first: int = 0) -> bytes:
    sink = io.BytesIO()
    ids = pa.array(range(first, first + rows), pa.int64())
    pq.write_table(pa.table({"id": ids, "name": ["x"] * rows}), sink)
    return sink.getvalue()


class Busy(WrappedStore):
    """A store on which others do something when it is listed; `times` says how often."""

    def __init__(self, bench: Bench, act: Callable[[], object], times: int) -> None:
        super().__init__(bench.store)
        self.bench, self.act, self.times = bench, act, times

    def list(self, prefix: str, **more: Any) -> Any:
        if self.times:
            self.times -= 1
            self.act()
        return super().list(prefix, **more)

    def context(self) -> Context:
        facts = {name: getattr(self.bench.ctx, name) for name in self.bench.ctx.__slots__}
        return Context(**{**facts, "store": self})


def test_commits_that_land_meanwhile_are_no_damage() -> None:
    bench = rich()
    busy = Busy(bench, lambda: [bench.append(1) for _ in range(3)], times=99)
    found = verify(busy.context(), depth="pages")
    assert found.findings == ()
    assert busy.times == 98, "one walk was enough"


def test_what_expires_and_is_collected_meanwhile_is_no_damage() -> None:
    bench = rich()
    compact(bench.ctx)

    def collect() -> None:
        expire(bench.ctx, days=0, min_versions=1)
        for _ in range(2):
            bench.time.sleep(8 * DAY)
            collect_garbage(bench.ctx)

    before = len(bench.keys("data/"))
    found = verify(Busy(bench, collect, times=1).context())
    assert len(bench.keys("data/")) < before
    assert found.errors == ()


def test_verify_writes_nothing() -> None:
    bench = rich()
    before = {o.key: (o.etag, o.modified_us) for o in bench.store.list("")}
    verify(bench.ctx, depth="pages")
    assert {o.key: (o.etag, o.modified_us) for o in bench.store.list("")} == before


def test_where_there_is_no_table_it_says_so() -> None:
    bench = new_bench()
    bench.store.delete([bench.ctx.key(keys.POINTER)])
    with pytest.raises(TableNotFound):
        verify(bench.ctx)


def test_an_unknown_depth_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="depth"):
        verify(new_bench().ctx, depth="deep")


def test_a_table_forwards_to_verify() -> None:
    t = inlay.create("memory://verify/t", pa.schema([("id", pa.int64())]))
    t.append(pa.table({"id": [1, 2]}))
    t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert t.maintain.verify(depth="pages").ok
    assert t.delete(id_below(2)).committed

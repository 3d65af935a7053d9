"""Metadata costs the same at any size: requests and bytes, counted at the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.metadata.tables import Table

from inlay.format.entry import DataFile, KeyRange, Marker
from inlay.format.snapshot import LEDGER_MAX_RECORDS
from inlay.ops.commit.driver import Committed, Conflicted, commit, known_requests
from inlay.ops.maintain.compact import cluster_metadata
from inlay.ops.maintain.units import Budget
from inlay.ops.metadata.load import load_matching, load_pointer
from inlay.ops.read.scan import Scan
from inlay.parse import parse_predicate
from inlay.plan.change import AddFiles, AddMarkers, Change, Reads, RemoveFiles, Request
from inlay.plan.commit import apply
from inlay.plan.maintain.leaf_overlap import DEPTH

SIZE = 20_000


def in_order(table: Table, count: int) -> tuple[DataFile, ...]:
    return tuple(table.file(low=10 * (table.made + 1)) for _ in range(count))


@pytest.fixture(scope="module")
def grown() -> Table:
    """Files in order of the key, a thousand a commit; leaves of them are under a node."""
    table = Table()
    for _ in range(SIZE // 1_000):
        table.commit(Change(operation="append", updates=(AddFiles(in_order(table, 1_000)),)))
    with pytest.MonkeyPatch.context() as lower:
        lower.setattr(apply, "POINTER_TARGET_BYTES", 1)
        lower.setattr(apply, "INLINE_MIN_BYTES", 1)
        table.commit(Change(operation="append", updates=(AddFiles(in_order(table, 1)),)))
    assert any(s.level for s in table.loaded.snapshot.files.segments)
    return table


@pytest.fixture
def table(grown: Table) -> Iterator[Table]:
    """From a cold start."""
    grown.forget()
    yield grown


def test_opening_is_one_small_get(table: Table) -> None:
    before = table.store.usage()
    load_pointer(table.fresh())
    used = table.used(before)
    assert dict(used.requests) == {"get": 1} and used.bytes_down <= 4_600


def test_an_append_of_a_thousand_files_writes_a_leaf_an_archive_and_the_pointer(
    table: Table,
) -> None:
    before, commits = table.store.usage(), 24
    for _ in range(commits):
        table.commit(Change(operation="append", updates=(AddFiles(in_order(table, 1_000)),)))
    used = table.used(before)
    assert used.requests["put"] <= commits * 3 + 3 and used.requests.get("get", 0) <= 3
    assert used.bytes_up / commits <= 10_000 + 100 * 1_000


def test_an_append_of_one_file_is_two_puts_and_a_little(table: Table) -> None:
    before, commits = table.store.usage(), 200
    for n in range(commits):
        event = Request.of(f"single {n}")
        table.commit(
            Change(operation="ingest", events=(event,), updates=(AddFiles(in_order(table, 1)),))
        )
    used = table.used(before)
    assert used.total / commits <= 2.3 and used.bytes_up / commits <= 10_100


def test_a_cold_append_reads_the_pointer_and_seldom_a_leaf(table: Table) -> None:
    before, commits = table.store.usage(), 150
    for _ in range(commits):
        table.forget()
        table.commit(Change(operation="append", updates=(AddFiles(in_order(table, 1)),)))
    assert table.used(before).total / commits <= 3.3


def test_a_delete_by_range_reads_nothing_and_writes_two_small_objects(table: Table) -> None:
    before = table.store.usage()
    marker = Marker(id="m", body=KeyRange(1, 55_555, 55_556))
    table.commit(Change(operation="delete", updates=(AddMarkers((marker,)),)))
    used = table.used(before)
    assert dict(used.requests) == {"put": 2} and used.bytes_up <= 10_000


def test_a_query_by_key_opens_one_leaf(table: Table) -> None:
    before = table.store.usage()
    plan = Scan(table.ctx, table.loaded.state, where="k = 100001").plan
    used = table.used(before)
    assert len(plan.tasks) == 1 and plan.files == table.loaded.snapshot.totals.files
    markers = len(table.loaded.snapshot.markers.segments)
    assert used.requests["get"] <= 2 + markers and used.bytes_down <= 150_000


def test_an_arrow_expression_opens_as_few_leaves(table: Table) -> None:
    import pyarrow.compute as pc

    before = table.store.usage()
    Scan(table.ctx, table.loaded.state, where=pc.field("k") == 100_001).plan.tasks  # noqa: B018
    assert table.used(before).requests["get"] <= 3


def test_replacing_a_file_loads_the_leaf_it_is_in_and_rewrites_no_node(table: Table) -> None:
    [task] = Scan(table.ctx, table.loaded.state, where="k = 50001").plan.tasks
    nodes = {s.id for s in table.loaded.snapshot.files.segments if s.level}
    scan = Scan(table.ctx, table.loaded.state, where="k = 50001")
    before = table.store.usage()
    change = Change(
        operation="update",
        updates=(RemoveFiles((task.file.key,)),),
        requires=(Reads(None, table.loaded.snapshot.version, frozenset((task.file.key,))),),
    )
    done = commit(table.ctx, change, base=table.loaded)
    table.loaded = done.loaded
    assert nodes <= {s.id for s in done.loaded.snapshot.files.segments}
    assert table.used(before).requests["put"] == 2
    assert scan.plan.tasks, "the snapshot from before is as it was"


def test_a_rebase_looks_only_into_what_came_since(table: Table) -> None:
    where = parse_predicate("k = 70001", table.loaded.snapshot.schema)
    state = load_matching(table.ctx, table.loaded.state, where)
    base = replace(table.loaded, state=state)
    [task] = Scan(table.ctx, state, where=where).plan.tasks
    reads = Reads(where, base.snapshot.version, frozenset((task.file.key,)))
    # Another writer lands a thousand files elsewhere, then one that may matter.
    table.commit(Change(operation="append", updates=(AddFiles(in_order(table, 1_000)),)))
    before = table.store.usage()
    change = Change(operation="update", updates=(RemoveFiles((task.file.key,)),), requires=(reads,))
    moved = commit(table.ctx, change, base=base)
    assert isinstance(moved, Committed) and moved.attempts == 2
    # The look at the pointer after the lost race, and nothing else: the bounds of what came rule it out.
    assert table.used(before).requests["get"] <= 2
    table.loaded = moved.loaded
    table.commit(Change(operation="append", updates=(AddFiles((table.file(low=70_000),)),)))
    late = commit(table.ctx, replace(change, updates=(AddFiles(in_order(table, 1)),)), base=base)
    assert isinstance(late, Conflicted)
    table.loaded = late.loaded


def test_a_table_in_no_order_is_clustered_in_steps_and_then_opens_few_leaves() -> None:
    table = Table()
    for _ in range(8):
        table.commit(Change(operation="append", updates=(AddFiles(table.files(1_000)),)))
    asked = f"k = {table.file().stats[1].lower}"
    keys = {f.key for f in table.load().files()}
    one = cluster_metadata(table.fresh(), budget=Budget(max_bytes=10))
    assert one.steps == 0 and one.depth >= 8 > DEPTH
    done = cluster_metadata(table.fresh())
    assert done.steps >= 1 and done.depth <= DEPTH
    assert {f.key for f in table.load().files()} == keys and list(table.unsound()) == []
    table.forget()
    before = table.store.usage()
    Scan(table.ctx, table.loaded.state, where=asked).plan.tasks  # noqa: B018
    assert table.used(before).requests["get"] <= 1 + DEPTH


# -- the ledger -----------------------------------------------------------------------------------


def test_recent_events_are_found_in_the_newest_leaves() -> None:
    at = 1_790_000_000_000_000
    table = Table(now_us=lambda: at)
    batch: list[Request] = []
    for n in range(50):
        at += 1_800_000_000
        batch = [Request.of(f"{n}/{i}", time_us=at) for i in range(1_000)]
        table.commit(Change(operation="ingest", events=tuple(batch)))
    stored = sum(s.size for s in table.loaded.snapshot.ledger.records.segments)
    assert stored <= 50_000 * 20
    assert len(table.loaded.snapshot.ledger.records.segments) <= 50_000 // LEDGER_MAX_RECORDS + 4
    table.forget()
    before = table.store.usage()
    loaded, known = known_requests(table.ctx, table.loaded, batch)
    assert len(known) == 1_000 and table.used(before).total <= 3
    before = table.store.usage()
    assert len(known_requests(table.ctx, loaded, batch)[1]) == 1_000
    assert table.used(before).total == 0


def test_thousands_of_pending_deletes_are_read_in_a_few_requests() -> None:
    table = Table()
    for _ in range(3):
        table.commit(Change(operation="append", updates=(AddFiles(in_order(table, 1_000)),)))
    for n in range(30):  # by processes that have read nothing yet
        table.forget()
        ranges = [KeyRange(1, low, low + 3) for low in range(10 + n, 30_000, 300)]
        markers = tuple(Marker(id=table.ctx.new_id(), body=body) for body in ranges)
        table.commit(Change(operation="delete", updates=(AddMarkers(markers),)))
    assert table.loaded.snapshot.totals.markers > 2_900
    before, ctx = table.store.usage(), table.fresh()
    assert Scan(ctx, load_pointer(ctx).state, where="k = 15001").plan.tasks
    used = table.used(before)
    assert used.total <= 6 and used.bytes_down <= 1_000_000

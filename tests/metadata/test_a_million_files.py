"""A million files: one node of references, of whose leaves only those that are asked for are made."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tests.metadata.tables import Table

from inlay.format import keys
from inlay.format.codec import encode_snapshot
from inlay.format.entry import ColumnStats, KeyRange, Marker
from inlay.format.snapshot import SEGMENT_MAX_ENTRIES, Segment, Tier, Totals
from inlay.ops.metadata.load import load_matching, load_pointer
from inlay.ops.read.scan import Scan
from inlay.parse import parse_predicate
from inlay.plan.change import AddFiles, AddMarkers, Change, RemoveFiles
from inlay.plan.commit.apply import _Files
from inlay.plan.metadata.leaves import Writer

LEAVES = 977
WIDTH = 10 * SEGMENT_MAX_ENTRIES
ASKED = 500


@pytest.fixture(scope="module")
def table() -> Table:
    made = Table()
    base = made.loaded.snapshot
    packing = _Files(made.loaded.state, base)
    writer = Writer(1, lambda data: made.ctx.new_id())
    start = ASKED * WIDTH
    entries = [
        replace(made.file(low=start + 10 * n), sequence=1) for n in range(SEGMENT_MAX_ENTRIES)
    ]
    [real] = writer.leaves(packing, entries)
    leaves = [real if n == ASKED else like(made, real, n) for n in range(LEAVES)]
    nodes = writer.nodes(packing, leaves)
    for segment in writer.written:
        made.store.put(made.ctx.key(keys.segment_key(segment.id)), segment.data)
    files = LEAVES * SEGMENT_MAX_ENTRIES
    snapshot = replace(
        base,
        files=Tier(tuple(nodes), ()),
        totals=Totals(files, sum(s.rows for s in leaves), sum(s.bytes for s in leaves), 0),
    )
    made.store.put(made.ctx.key(keys.POINTER), encode_snapshot(snapshot))
    made.forget()
    assert made.loaded.snapshot.totals.files > 1_000_000
    return made


def like(table: Table, leaf: Segment, place: int) -> Segment:
    low = place * WIDTH
    size = leaf.size + table.rng.randrange(999)
    bounds = ColumnStats(low, low + WIDTH - 1, 0, kind=leaf.stats[1].kind)
    return replace(leaf, id=table.ctx.new_id(), size=size, stats={1: bounds})


def test_a_cold_query_by_key_reads_the_pointer_a_node_and_a_leaf(table: Table) -> None:
    took = []
    for _ in range(3):  # each with nothing in a cache; the quickest is the least disturbed
        before, began = table.store.usage(), time.process_time()
        ctx = table.fresh()
        plan = Scan(ctx, load_pointer(ctx).state, where=f"k = {ASKED * WIDTH + 5_005}").plan
        took.append(time.process_time() - began)
        used = table.used(before)
        assert len(plan.tasks) == 1 and plan.files > 1_000_000
        assert dict(used.requests) == {"get": 3} and used.bytes_down <= 200_000
    assert min(took) < 0.6, "150 ms on a quiet machine"


def test_appends_stay_small_and_few(table: Table) -> None:
    table.forget()
    before, commits = table.store.usage(), 150
    for _ in range(commits):
        table.forget()
        table.commit(Change(operation="append", updates=(AddFiles(table.files(1)),)))
    used = table.used(before)
    assert used.total / commits <= 3.3 and used.bytes_up / commits <= 10_100


def test_appends_of_a_thousand_files_rewrite_the_node_seldom(table: Table) -> None:
    before, commits = table.store.usage(), 16
    for _ in range(commits):
        table.commit(Change(operation="append", updates=(AddFiles(table.files(1_000)),)))
    used = table.used(before)
    assert used.total / commits <= 3.3 and used.bytes_up / commits <= 110_000


def test_deletes_by_range_read_nothing(table: Table) -> None:
    table.forget()
    before = table.store.usage()
    marker = Marker(id="m", body=KeyRange(1, 7, 8))
    table.commit(Change(operation="delete", updates=(AddMarkers((marker,)),)))
    assert dict(table.used(before).requests) == {"put": 2}


def test_a_file_is_replaced_by_its_leaf_and_the_pointer(table: Table) -> None:
    table.forget()
    low = ASKED * WIDTH + 6_005
    scan = Scan(table.ctx, table.loaded.state, where=f"k = {low}")
    key = next(t.file.key for t in scan.plan.tasks if t.file.stats[1].lower == low - 5)
    where = parse_predicate(f"k = {low}", table.loaded.snapshot.schema)
    table.loaded = replace(table.loaded, state=load_matching(table.ctx, table.loaded.state, where))
    before = table.store.usage()
    table.commit(Change(operation="delete", updates=(RemoveFiles((key,)),)))
    used = table.used(before)
    assert dict(used.requests) == {"put": 2} and used.bytes_up <= 10_000

"""The pointer stays small, and commits stay cheap, whatever the table looks like."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from inlay.format.entry import ColumnStats, DataFile, KeyRange, Marker
from inlay.ops.commit.driver import Committed, commit
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.metadata.load import load_entries, load_pointer
from inlay.ops.schema.create import create
from inlay.plan.change import AddFiles, AddMarkers, Change, PackMetadata, RemoveFiles, Request
from inlay.plan.commit import apply as fit_module
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import MeteredStore


def table(columns: int) -> tuple[Context, MeteredStore, object]:
    store = MeteredStore(MemoryStore())
    ctx = Context(
        store=store,
        root="t",
        uri="memory://m/t",
        executor=InlineExecutor(),
        random=random.Random(1),
    )
    schema = pa.schema([(f"column_{n}_of_a_table", pa.int64()) for n in range(columns)])
    return ctx, store, create(ctx, schema, primary_key=["column_0_of_a_table"])


def file(number: int, columns: int = 10) -> DataFile:
    rng = random.Random(number)
    stats = {
        n: ColumnStats(lower=rng.randrange(10**9), upper=10**9 + rng.randrange(10**9), null_count=0)
        for n in range(1, min(columns, 10) + 1)
    }
    key = f"data/2026/11/20/16/{rng.getrandbits(128):032x}.parquet"
    return DataFile(
        key=key, size=10**6, footer_size=900, rows=1000, row_groups=1, schema_id=0, stats=stats
    )


@pytest.mark.parametrize(
    "columns", [16, *(pytest.param(n, marks=pytest.mark.wide) for n in (1, 100))]
)
def test_small_appends_cost_two_puts_ten_kilobytes_and_hundred_bytes_a_file(columns):
    ctx, store, loaded = table(columns)
    before, commits = store.usage(), 400
    for n in range(commits):
        done = commit(
            ctx,
            Change(
                operation="append",
                events=(Request.of(f"e{n}"),),
                updates=(AddFiles((file(n, columns),)),),
            ),
            base=loaded,
        )
        assert isinstance(done, Committed)
        loaded = done.loaded
    used = store.usage() - before
    assert used.bytes_up / commits <= 10_000 + 100
    assert used.total / commits <= 2 + 0.3
    fresh = load_entries(ctx, load_pointer(ctx).state)
    assert [f.sequence for f in fresh.files()] == list(range(2, commits + 2))


def test_a_very_wide_schema_does_not_make_every_commit_roll_a_segment():
    ctx, store, loaded = table(3000)
    before = store.usage()
    for n in range(60):
        loaded = commit(
            ctx, Change(operation="append", updates=(AddFiles((file(n),)),)), base=loaded
        ).loaded
    assert (store.usage() - before).total / 60 <= 2.3


def test_a_commit_of_many_files_writes_them_into_segments_before_it_knows_its_version():
    ctx, _, loaded = table(3)
    many = tuple(file(n, 3) for n in range(5000))
    after = commit(ctx, Change(operation="append", updates=(AddFiles(many),)), base=loaded).loaded
    assert after.snapshot.files.inline == ()
    state = load_entries(ctx, load_pointer(ctx).state)
    assert {f.sequence for f in state.files()} == {2}
    assert {f.key for f in state.files()} == {f.key for f in many}
    lowers = [f.stats[1].lower for f in state.files()]
    assert lowers == sorted(lowers), "packed by key, so that a query by key needs one leaf"
    assert len(after.raw) < 4_600


def test_a_range_delete_of_a_large_table_is_two_small_puts():
    ctx, store, loaded = table(3)
    many = tuple(file(n, 3) for n in range(5000))
    loaded = commit(ctx, Change(operation="append", updates=(AddFiles(many),)), base=loaded).loaded
    loaded = load_pointer(ctx)  # cold: nothing of the segments is known
    before = store.usage()
    marker = Marker(id="m", body=KeyRange(1, 5 * 10**8, 10**9))
    commit(ctx, Change(operation="delete", updates=(AddMarkers((marker,)),)), base=loaded)
    used = store.usage() - before
    assert dict(used.requests) == {"put": 2} and used.bytes_up <= 10_000


def test_a_bulk_commit_that_loses_the_race_writes_no_segment_of_its_own_again():
    ctx, store, base = table(3)
    base = commit(
        ctx, Change(operation="append", updates=(AddFiles((file(9001, 3),)),)), base=base
    ).loaded
    commit(ctx, Change(operation="append", updates=(AddFiles((file(9000, 3),)),)), base=base)
    before = store.usage()
    many = tuple(file(n, 3) for n in range(5000))
    events = tuple(Request.of(f"e{n}") for n in range(5000))
    change = Change(operation="ingest", events=events, updates=(AddFiles(many),))
    after = commit(ctx, change, base=base).loaded
    puts = (store.usage() - before).requests["put"]
    # 5 leaves of files, 1 of the ledger, and what was inline before on each of the two bases; then an
    # archive and a swap, twice.
    assert puts <= 6 + 2 + 4
    state = load_entries(ctx, load_pointer(ctx).state)
    assert {f.sequence for f in state.files() if f.key in {m.key for m in many}} == {4}
    assert after.snapshot.totals.files == 5002


@pytest.mark.parametrize("target", [1_000, 1_500, 2_000, 3_000])
def test_tidying_metadata_asks_for_nothing_that_it_has_just_written_itself(monkeypatch, target):
    """What is tidied into a leaf may have to make room again in the same plan (found by the simulator,
    seed 468 of the historians)."""
    ctx, _, _ = table(3)
    monkeypatch.setattr(fit_module, "POINTER_TARGET_BYTES", target)
    monkeypatch.setattr(fit_module, "INLINE_MIN_BYTES", 200)
    for n in range(40):
        change = Change(operation="append", updates=(AddFiles((file(n, 3),)),))
        if n % 3 == 2:
            gone = RemoveFiles((file(n - 2, 3).key,))
            updates = (*change.updates, gone, PackMetadata())
            change = replace(change, operation="compact", updates=updates)
        assert isinstance(commit(ctx, change, base=load_pointer(ctx)), Committed)
    state = load_entries(ctx, load_pointer(ctx).state)
    left = {file(n, 3).key for n in range(40) if n % 3 or n == 39}
    assert {f.key for f in state.files()} == left

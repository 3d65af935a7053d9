"""A file whose surgery does not fit one invocation is cut group by group, over as many as it takes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.simulator.faults import Fate, FaultyStore, Killed, Sent

from inlay.errors import UnsupportedFile
from inlay.format.entry import DataFile, Marker, RowGroups, Rows, Vector, Where
from inlay.format.predicate import Predicate
from inlay.ops import row_markers
from inlay.ops.commit.driver import commit
from inlay.ops.maintain import rewrite_file as pieces
from inlay.ops.maintain.rewrite import RewriteResult, rewrite
from inlay.ops.write.append import append
from inlay.ops.write.delete import delete
from inlay.parquet.surgery import new_object as judge
from inlay.plan.change import AddMarkers, Change
from inlay.plan.surgery import Cost, Touched, choose
from inlay.storage.wrapped import MeteredStore

from ..clock import Clock
from ..maintenance.bench import Bench, id_is, new_bench

GROUPS, GROUP_ROWS = 12, 6
GROUP_SECONDS = 10.0
# Of every group a row, of some all of them.
GONE = sorted({*range(0, GROUPS * GROUP_ROWS, GROUP_ROWS), *range(12, 18), 71})


@dataclass
class Surgeon:
    """Makes rewriting a row group take `GROUP_SECONDS`, and counts the groups of each invocation."""

    time: Clock
    groups: int = 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.time.sleep(GROUP_SECONDS)
        self.groups += 1
        return EDIT(*args, **options)


EDIT = judge.edit_group


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    yield _bench(monkeypatch)


def _bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = new_bench(properties=[("write.row_group_rows", GROUP_ROWS)])
    bench.extra["surgeon"] = Surgeon(bench.time)
    monkeypatch.setattr(judge, "edit_group", bench.extra["surgeon"])
    bench.append(GROUPS * GROUP_ROWS)
    return bench


def invoke(bench: Bench, groups: float, **options: Any) -> tuple[RewriteResult, int]:
    """One invocation with time for so many groups; how many it wrote."""
    surgeon = bench.extra["surgeon"]
    before = surgeon.groups
    options = {"strategy": "surgery", "deadline_seconds": (groups + 0.5) * GROUP_SECONDS, **options}
    result = rewrite(bench.ctx, **options)
    return result, surgeon.groups - before


def by_predicate(bench: Bench) -> None:
    bench.delete(id_is(*GONE))


def by_vector(bench: Bench) -> None:
    bench.delete(id_is(*GONE), mode="vector")


def by_few_positions(bench: Bench) -> None:
    _mark(bench, Rows(tuple(GONE)))


def by_a_predicate_on_the_file(bench: Bench) -> None:
    _mark(bench, Where(id_is(*GONE)))


def by_everything_at_once(bench: Bench) -> None:
    _mark(bench, RowGroups((2,)))
    bench.delete(id_is(*GONE[:4]), mode="vector")
    _mark(bench, Where(id_is(*GONE[3:8])))
    bench.delete(id_is(*GONE[6:]))


def _mark(bench: Bench, body: Any) -> None:
    bench.time.sleep(1)
    [entry] = bench.load().state.files()
    marker = Marker(id=bench.ctx.new_id(), body=body, file=entry.key)
    commit(bench.ctx, Change(operation="delete", updates=(AddMarkers((marker,)),)))


WAYS = [
    by_predicate,
    by_vector,
    by_few_positions,
    by_a_predicate_on_the_file,
    by_everything_at_once,
]


@pytest.mark.parametrize("inline", [1, 64])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_it_goes_on_where_time_ended_and_no_reader_sees_a_difference(
    way: Any, groups: int, inline: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_markers, "INLINE_POSITIONS", inline)
    bench = _bench(monkeypatch)
    way(bench)
    before = bench.rows()
    assert [row[0] for row in before] == [i for i in range(GROUPS * GROUP_ROWS) if i not in GONE]
    removed, invocations = 0, 0
    while True:
        result, wrote = invoke(bench, groups)
        invocations += 1
        removed += result.removed_rows
        assert wrote <= groups and result.files == 1 and not result.failures
        assert bench.rows() == before
        if not result.left:
            break
        assert result.left == 1
        # No reader, and no erasure, may take what is left for done.
        assert list(bench.load().state.markers())
    assert invocations == -(-(GROUPS - 1) // groups)  # one group goes without being read
    assert removed == len(GONE)
    state = bench.load().state
    assert list(state.markers()) == []
    assert sum(f.rows for f in state.files()) == len(before)


def test_in_pieces_it_becomes_what_it_becomes_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for groups in (1, 100):
        bench = _bench(monkeypatch)
        by_everything_at_once(bench)
        while invoke(bench, groups)[0].left:
            pass
        [entry] = bench.load().state.files()
        made.append((bench.rows(), replace(entry, key="", origin=None, sequence=0)))
    # Sizes differ by nothing: untouched groups are copied, edited ones are written alike.
    assert made[0] == made[1]


def test_deletes_that_land_between_pieces_and_within_one_are_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_few_positions(bench)
    gone = set(GONE)

    def land(row: int, mode: str) -> None:
        gone.add(row)
        bench.delete(id_is(row), mode=mode)

    invoke(bench, 2)
    land(1, "vector")  # of a group that is done, then of one that is not
    land(50, "vector")
    invoke(bench, 2)
    land(2, "tombstone")
    surgeon = bench.extra["surgeon"]
    strike = surgeon.groups + 1

    class During(Surgeon):
        def __call__(self, *args: Any, **options: Any) -> Any:
            if self.groups == strike:
                land(69, "vector")
            return super().__call__(*args, **options)

    bench.extra["surgeon"] = During(bench.time, surgeon.groups)
    monkeypatch.setattr(judge, "edit_group", bench.extra["surgeon"])
    while invoke(bench, 2)[0].left:
        assert bench.ids() == [i for i in range(GROUPS * GROUP_ROWS) if i not in gone]
    assert 69 in gone
    while invoke(bench, 2)[0].files:
        pass
    assert bench.ids() == [i for i in range(GROUPS * GROUP_ROWS) if i not in gone]
    assert list(bench.load().state.markers()) == []


def test_a_crash_at_any_request_costs_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_markers, "INLINE_POSITIONS", 1)
    number, struck = 1, True
    while struck:
        bench = _bench(monkeypatch)
        by_everything_at_once(bench)
        before = bench.rows()
        invoke(bench, 2)

        def plan(sent: Sent, at: int = number) -> Fate:
            return Fate.KILLED_AFTER if sent.number == at else Fate.DONE

        dying = replace(bench, ctx=_process(bench, FaultyStore(bench.store, plan), 3))
        try:
            invoke(dying, 2)
            struck = False
        except Killed:
            pass
        assert bench.rows() == before
        survivor = replace(bench, ctx=_process(bench, bench.store, 4))
        pieces = 0
        while invoke(survivor, 2)[0].left:
            assert survivor.rows() == before
            pieces += 1
        assert survivor.rows() == before and pieces <= 5
        assert list(survivor.load().state.markers()) == []
        number += 1
    assert number > 8  # each request of an invocation was struck


def _process(bench: Bench, store: Any, seed: int) -> Any:
    cache = type(bench.ctx.cache)()
    return replace(bench.ctx, store=store, random=random.Random(seed), cache=cache)


def test_the_first_group_is_done_however_little_time_there_is(bench: Bench) -> None:
    by_predicate(bench)
    result, wrote = invoke(bench, 0, deadline_seconds=0)
    assert (wrote, result.left, result.commits) == (1, 1, 1)


def test_where_the_whole_file_does_not_fit_surgery_is_done_instead(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_predicate(bench)
    [entry] = bench.load().state.files()
    touched = Touched(groups=11, emptied=1, kept_share=0.8)
    large, cut = replace(entry, size=2**30), Cost(requests=5_000, recoded_bytes=2**30)
    for seconds_left, method in ((None, "rewrite"), (3600.0, "rewrite"), (10.0, "surgery")):
        choice = choose(large, touched, surgery=cut, seconds_left=seconds_left)
        assert choice.method == method
    assert choice.reason.endswith("as many as time allows, since the whole file takes 47.1 s")
    assert choose(large, touched, surgery="no", seconds_left=10.0).method == "rewrite"
    assert choose(entry, touched, surgery=cut, seconds_left=0.0).method == "rewrite"  # small

    monkeypatch.setattr("inlay.plan.surgery.SMALL_FILE_BYTES", 0)
    result, wrote = invoke(bench, 0, strategy="auto")
    assert (result.surgery, result.left, wrote) == (1, 1, 1)
    # On request it is rewritten as a whole, whatever the time.
    assert rewrite(bench.ctx, strategy="rewrite", deadline_seconds=0).rewritten == 1


@pytest.mark.parametrize("strategy", ["surgery", "rewrite"])
def test_a_group_that_does_not_fit_the_memory_is_refused_and_costs_only_its_file(
    bench: Bench, strategy: Any
) -> None:
    bench.append(2, start=1_000)
    bench.delete(id_is(*GONE, 1_000))
    before = sorted(bench.rows())
    large, small = sorted(bench.load().state.files(), key=lambda f: -f.rows)
    held = [pieces.VALUE_FORMS * _group_bytes(bench, f) for f in (large, small)]
    memory_bytes = int(sum(held) / 2 / pieces.GROUP_SHARE)  # between the two
    result = rewrite(bench.ctx, strategy=strategy, memory_bytes=memory_bytes)
    [failure] = result.failures
    assert (failure.key, result.files, result.left) == (large.key, 1, 0)
    assert isinstance(failure.error, UnsupportedFile) and "of memory" in failure.error.message
    assert sorted(bench.rows()) == before and large in list(bench.load().state.files())
    assert rewrite(bench.ctx, strategy=strategy, memory_bytes=2**30).failures == ()
    assert sorted(bench.rows()) == before


def _group_bytes(bench: Bench, entry: DataFile) -> int:
    body = bench.store.get(bench.ctx.key(entry.key)).body
    return int(pq.read_metadata(pa.BufferReader(body)).row_group(0).total_byte_size)


def test_a_delete_that_takes_rows_out_at_once_is_never_half_done(bench: Bench) -> None:
    delete(bench.ctx, id_is(*GONE), mode="surgery")
    assert bench.extra["surgeon"].groups == GROUPS - 1
    assert bench.ids() == [i for i in range(GROUPS * GROUP_ROWS) if i not in GONE]


def test_each_piece_moves_its_own_groups_and_no_others() -> None:
    rows = 24_000
    bench = new_bench(properties=[("write.row_group_rows", rows // 8)])
    surgeon = bench.extra["surgeon"] = Surgeon(bench.time)
    dice = random.Random(5)
    table = {
        "id": pa.array(range(rows), pa.int64()),
        "name": pa.array([dice.randbytes(1_000).hex() for _ in range(rows)]),
    }
    append(bench.ctx, pa.table(table))
    [entry] = bench.load().state.files()
    group = entry.size // 8
    assert group > 2.9 * 2**20
    bench.delete(_every(rows, 400))
    before = bench.ids()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "edit_group", surgeon)
        spent = []
        left = 1
        while left:
            store = MeteredStore(bench.store)
            mine = replace(bench, ctx=_process(bench, store, len(spent)))
            result, wrote = invoke(mine, 1)
            usage = store.usage()
            spent.append((usage.total, usage.bytes_down, usage.bytes_up))
            assert wrote == 1
            left = result.left
    assert len(spent) == 8
    assert bench.ids() == before
    assert list(bench.load().state.markers()) == []
    requests, down, up = (max(each) for each in zip(*spent, strict=True))
    # The metadata, the column that is looked at (small), the upload and the commit. Of neighbours 5 MiB
    # are borrowed, S3's smallest part.
    assert requests <= 25
    assert down <= group + 5 * 2**20
    assert up <= group + 5 * 2**20


def _every(rows: int, step: int) -> Predicate:
    return id_is(*range(3, rows, step))


def test_a_vector_is_moved_to_the_output_by_an_object_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_markers, "INLINE_POSITIONS", 1)
    bench = _bench(monkeypatch)
    by_vector(bench)
    [was] = bench.load().state.markers()
    invoke(bench, 2)
    [now] = bench.load().state.markers()
    [entry] = bench.load().state.files()
    assert isinstance(was.body, Vector) and isinstance(now.body, Vector)
    assert (now.id, now.sequence, now.file) == (was.id, was.sequence, entry.key)
    assert now.body.key != was.body.key and now.body.rows < was.body.rows

"""Ranges of an object as a file: few requests, exact bytes, one content."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.errors import ObjectGone, SourceChanged
from inlay.ops.cache import ObjectCache
from inlay.ops.context import InlineExecutor
from inlay.parquet.read.ranges import GAP_BYTES, NETWORK, RangeFile, merge_ranges
from inlay.storage.base import ByteRange

BODY = bytes(n % 251 for n in range(1000))
RANGES = st.lists(
    st.tuples(st.integers(0, 999), st.integers(1, 300)).map(
        lambda p: ByteRange(p[0], min(1000, p[0] + p[1]))
    ),
    max_size=12,
)


@settings(deadline=None)
@given(ranges=RANGES, gap=st.integers(0, 200), most=st.integers(1, 400))
def test_merged_ranges_cover_all_and_no_gap_above_the_bound(
    ranges: list[ByteRange], gap: int, most: int
) -> None:
    merged = merge_ranges(ranges, gap=gap, most=most)
    wanted = {n for r in ranges for n in range(r.start, r.end)}
    got = [n for r in merged for n in range(r.start, r.end)]
    assert sorted(set(got)) == got and wanted <= set(got)
    assert all(r.length <= most for r in merged)
    extra = sorted(set(got) - wanted)
    runs = [n for n in extra if n - 1 not in set(extra)]
    for start in runs:
        end = start
        while end in set(extra):
            end += 1
        assert end - start <= gap


@settings(deadline=None)
@given(ranges=RANGES, reads=RANGES, data=st.data())
def test_a_range_file_reads_like_the_object(
    new_lake: Any, ranges: list[ByteRange], reads: list[ByteRange], data: st.DataObject
) -> None:
    lake = new_lake()
    lake.put("o", BODY)
    file = RangeFile(lake.objects.source("o", len(BODY)), len(BODY))
    for part in (ranges[::2], ranges[1::2]):
        file.prefetch(part, InlineExecutor())
    for found in ranges:
        file.seek(found.start)
        assert file.read(found.length) == BODY[found.start : found.end]
    assert file.unplanned == 0
    for found in reads:
        file.seek(found.start - 1000, 2) if data.draw(st.booleans()) else file.seek(found.start)
        assert file.read(found.length) == BODY[found.start : found.end]
        assert file.tell() == found.end


def test_what_was_fetched_is_not_asked_for_again(lake: Any) -> None:
    lake.put("o", BODY)
    file = RangeFile(lake.objects.source("o", len(BODY)), len(BODY))
    file.prefetch([ByteRange(0, 100), ByteRange(120, 130)], InlineExecutor())
    assert [(r.start, r.end) for r in lake.store.reads] == [(0, 130)]
    file.prefetch([ByteRange(50, 110)], InlineExecutor())
    assert len(lake.store.reads) == 1


def test_a_read_outside_of_the_plan_is_counted(lake: Any) -> None:
    lake.put("o", BODY)
    file = RangeFile(lake.objects.source("o", len(BODY)), len(BODY))
    file.seek(10)
    assert file.read(5) == BODY[10:15]
    assert file.unplanned == 1
    assert file.read(0) == b"" and file.tell() == 15 and file.unplanned == 1


def test_a_long_range_is_fetched_in_pieces_and_read_as_one(lake: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(merge_ranges.__kwdefaults__, "most", 100)
    lake.put("o", BODY)
    file = RangeFile(lake.objects.source("o", len(BODY)), len(BODY))
    file.prefetch([ByteRange(0, 950)], InlineExecutor())
    assert len(lake.store.reads) == 10
    assert file.read(950) == BODY[:950] and file.unplanned == 0


def test_another_content_under_the_same_key_is_refused(lake: Any) -> None:
    lake.put("o", BODY)
    etag = lake.store.head("tables/t/o").info.etag
    source = lake.objects.source("o", len(BODY), etag)
    lake.put("o", BODY[::-1])
    with pytest.raises(SourceChanged, match="o"):
        RangeFile(source, len(BODY)).read(10)
    unpinned = lake.objects.source("o", len(BODY) + 1)
    with pytest.raises(SourceChanged):
        RangeFile(unpinned, len(BODY)).read(10)


def test_a_file_of_another_scheme_is_refused(lake: Any) -> None:
    with pytest.raises(ObjectGone, match="s3://"):
        lake.objects.source("s3://elsewhere/key")


def test_the_cache_forgets_the_least_recently_used() -> None:
    cache = ObjectCache(limit_bytes=10)
    cache.put("a", 1, 4)
    cache.put("b", 2, 4)
    assert cache.get("a") == 1
    cache.put("c", 3, 4)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
    cache.put("huge", 4, 11)
    assert cache.get("huge") is None and cache.get("a") == 1
    cache.put("a", 5, 1)
    assert cache.held_bytes == 5


def test_gaps_are_bridged_while_that_takes_less_time() -> None:
    """Among all ways to join neighbours that leave no connection free, the fastest by the model: every
    subset of the gaps is tried."""
    dice = random.Random(7)
    for _ in range(60):
        at, places = 0, []
        for _ in range(dice.randrange(1, 9)):
            at += dice.randrange(GAP_BYTES + 1, 2 * NETWORK.gap_bytes)
            places.append(ByteRange(at, at := at + dice.randrange(1, 50_000)))
        connections = dice.choice([1, 2, 3, 8])
        least = min(connections, len(places))
        ways = (
            _sizes(places, cut) for cut in itertools.product([True, False], repeat=len(places) - 1)
        )
        best = min(_seconds(way, connections) for way in ways if len(way) >= least)
        found = merge_ranges(places, connections=connections)
        taken = _seconds([r.length for r in found], connections)
        assert taken == pytest.approx(best)
        assert len(found) >= least


def test_near_ranges_are_one_request_while_one_connection_brings_what_is_between() -> None:
    """In the time that Python takes for another request."""
    for gap, requests in ((GAP_BYTES, 1), (GAP_BYTES + 1, 2)):
        found = merge_ranges([ByteRange(0, 10), ByteRange(10 + gap, 20 + gap)], connections=2)
        assert len(found) == requests
    assert GAP_BYTES / NETWORK.stream_bytes_a_second == pytest.approx(NETWORK.request_seconds)


def _seconds(sizes: list[int], connections: int) -> float:
    """The time for requests of `sizes` bytes over some of the connections, all of which are busy."""
    waits = max(1.0, len(sizes) / connections) * NETWORK.latency_seconds
    computed = len(sizes) * NETWORK.request_seconds
    share = connections / NETWORK.connections
    return waits + (computed + sum(sizes) / NETWORK.bytes_a_second) / share


def _sizes(places: list[ByteRange], cut: tuple[bool, ...]) -> list[int]:
    sizes, start = [], places[0].start
    for left, right, ends in zip(places, places[1:], cut, strict=False):
        if ends:
            sizes.append(left.end - start)
            start = right.start
    return [*sizes, places[-1].end - start]


def test_a_connection_for_each_range_leaves_long_gaps() -> None:
    far = [ByteRange(n * 10**5, n * 10**5 + 10) for n in range(15)]
    assert merge_ranges(far) == merge_ranges(far, connections=15) == tuple(far)
    assert len(merge_ranges(far, connections=14)) == 1  # all gaps are alike

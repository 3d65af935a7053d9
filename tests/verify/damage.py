"""A table with something of everything, and ways to damage it behind the library's back."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from tests.maintenance.bench import DAY, Bench, id_below, id_is, new_bench

from inlay.format import keys
from inlay.format.codec import decode_snapshot, encode_snapshot
from inlay.format.entry import DataFile, KeyRange, Keys, Marker, Rows, Vector
from inlay.format.snapshot import Snapshot, Tier
from inlay.ops.commit.driver import commit
from inlay.ops.publish.publish import publish
from inlay.ops.write.append import IngestSource, append
from inlay.ops.write.delete import delete_keys, delete_row_groups
from inlay.ops.write.ingest import ingest
from inlay.parquet.footer.fields import OffsetIndex, PageLocation
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.footer.thrift import decode_struct, encode_struct
from inlay.plan.change import Change, Request, SetProperties
from inlay.plan.commit import apply as apply_module
from inlay.storage.base import Got, Location
from inlay.storage.memory import MemoryStore


def rich(*, versioning: bool = False) -> Bench:
    """Files and markers of every kind, in segments and inline, and a ledger with a segment."""
    return _rich(versioning).copy()


@cache
def _rich(versioning: bool) -> Bench:
    bench = new_bench()
    if versioning:
        store: MemoryStore = bench.store
        store.enable_versioning()
    with (
        patch.object(apply_module, "POINTER_TARGET_BYTES", 1_000),
        patch.object(apply_module, "INLINE_MIN_BYTES", 0, create=True),
    ):
        for n in range(12):
            rows = pa.table({"id": pa.array(range(10 * n, 10 * n + 10)), "name": ["n"] * 10})
            bench.time.sleep(1)
            append(bench.ctx, rows, request=Request.of(f"request-{n}"))
        bench.delete(id_is(3, 4), mode="vector")
        bench.delete(id_below(2))
    bench.next_id = 120
    for _ in range(3):
        bench.append(10)
    bench.append(200)
    bench.delete(id_is(*range(160, 260)), mode="vector")
    bench.delete(id_is(125), mode="vector")
    bench.delete(id_is(12))
    delete_keys(bench.ctx, pa.table({"id": pa.array(range(40, 110))}))
    delete_row_groups(bench.ctx, inline_files(bench)[-1].key, [0])
    bench.time.sleep(5)
    return bench


# -- looking --------------------------------------------------------------------------------------


def pointer(bench: Bench) -> Snapshot:
    return decode_snapshot(body(bench, keys.POINTER), key=keys.POINTER)


def body(bench: Bench, key: str) -> bytes:
    got = bench.store.get(bench.ctx.key(key))
    assert isinstance(got, Got)
    return got.body


def inline_files(bench: Bench) -> tuple[DataFile, ...]:
    return pointer(bench).files.inline


def marker_object(bench: Bench, suffix: str) -> str:
    return next(k for k in bench.keys("tombstone/") if k.endswith(suffix))


def vector(bench: Bench) -> Marker:
    return next(m for m in bench.load().state.markers() if isinstance(m.body, Vector))


# -- damaging -------------------------------------------------------------------------------------


def overwrite(bench: Bench, key: str, data: bytes) -> None:
    bench.store.put(bench.ctx.key(key), data)


def remove(bench: Bench, key: str) -> None:
    bench.store.delete([bench.ctx.key(key)])


def garble(bench: Bench, key: str) -> None:
    """Other bytes, as many as before."""
    overwrite(bench, key, bytes(len(body(bench, key))))


def edit_pointer(bench: Bench, **changes: Any) -> None:
    overwrite(bench, keys.POINTER, encode_snapshot(replace(pointer(bench), **changes)))


def edit_file(bench: Bench, **changes: Any) -> str:
    """Change the last inline entry; its key."""
    tier = pointer(bench).files
    *others, last = tier.inline
    edit_pointer(bench, files=Tier(tier.segments, (*others, replace(last, **changes))))
    return last.key


def add_marker(bench: Bench, **facts: Any) -> None:
    tier = pointer(bench).markers
    marker = Marker(id="planted", sequence=2, **facts)
    totals = pointer(bench).totals
    edit_pointer(
        bench,
        markers=Tier(tier.segments, (*tier.inline, marker)),
        totals=replace(totals, markers=totals.markers + 1),
    )


Plant = Callable[[Bench], str | None]
PLANTS: dict[str, Plant] = {}


def plants(function: Plant) -> Plant:
    """The function's name, up to "__", is the kind of finding; it returns the key that must be named."""
    PLANTS[function.__name__] = function
    return function


@plants
def pointer_missing(bench: Bench) -> str:
    remove(bench, keys.POINTER)
    return keys.POINTER


@plants
def pointer_corrupt(bench: Bench) -> str:
    overwrite(bench, keys.POINTER, body(bench, keys.POINTER)[:-9])
    return keys.POINTER


@plants
def pointer_behind(bench: Bench) -> str:
    newest = pointer(bench).version
    overwrite(bench, keys.POINTER, body(bench, keys.archive_key(newest - 2)))
    return keys.archive_key(newest - 1)


@plants
def archive_missing(bench: Bench) -> str:
    remove(bench, keys.archive_key(3))
    return keys.archive_key(3)


@plants
def archive_corrupt(bench: Bench) -> str:
    garble(bench, keys.archive_key(3))
    return keys.archive_key(3)


@plants
def archive_corrupt__by_another_version(bench: Bench) -> str:
    overwrite(bench, keys.archive_key(3), body(bench, keys.archive_key(4)))
    return keys.archive_key(3)


@plants
def archive_corrupt__by_another_table(bench: Bench) -> str:
    key = keys.archive_key(3)
    other = replace(decode_snapshot(body(bench, key), key=key), table_id="another")
    overwrite(bench, key, encode_snapshot(other))
    return key


@plants
def archive_differs(bench: Bench) -> str:
    key = keys.archive_key(pointer(bench).version)
    overwrite(bench, key, body(bench, keys.archive_key(3)))
    return key


@plants
def history_contradicts__by_times(bench: Bench) -> str:
    key = keys.archive_key(3)
    found = decode_snapshot(body(bench, key), key=key)
    late = replace(found.commit, time_us=pointer(bench).commit.time_us)
    overwrite(bench, key, encode_snapshot(replace(found, commit=late)))
    return key


@plants
def history_contradicts__by_time_index(bench: Bench) -> str:
    (version, time_us), *others = pointer(bench).time_index
    edit_pointer(bench, time_index=((version, time_us + 1), *others))
    return keys.POINTER


def first_segment(bench: Bench) -> str:
    return keys.segment_key(pointer(bench).files.segments[0].id)


@plants
def segment_missing(bench: Bench) -> str:
    key = first_segment(bench)
    remove(bench, key)
    return key


@plants
def segment_missing__of_the_ledger(bench: Bench) -> str:
    key = keys.segment_key(pointer(bench).ledger.records.segments[0].id)
    remove(bench, key)
    return key


@plants
def segment_corrupt(bench: Bench) -> str:
    key = first_segment(bench)
    garble(bench, key)
    return key


@plants
def segment_corrupt__by_its_count(bench: Bench) -> str:
    tier = pointer(bench).files
    first = replace(tier.segments[0], count=tier.segments[0].count + 1)
    edit_pointer(bench, files=Tier((first, *tier.segments[1:]), tier.inline))
    return keys.segment_key(first.id)


@plants
def segment_contradicts__by_its_rows(bench: Bench) -> str:
    tier = pointer(bench).files
    first = replace(tier.segments[0], rows=1)
    edit_pointer(bench, files=Tier((first, *tier.segments[1:]), tier.inline))
    return keys.segment_key(first.id)


@plants
def segment_contradicts__by_its_bounds(bench: Bench) -> str:
    tier = pointer(bench).files
    first = tier.segments[0]
    (field_id, stats), *_ = first.stats.items()
    first = replace(first, stats={field_id: replace(stats, upper=stats.lower)})
    edit_pointer(bench, files=Tier((first, *tier.segments[1:]), tier.inline))
    return keys.segment_key(first.id)


@plants
def entry_twice(bench: Bench) -> str:
    tier = pointer(bench).files
    edit_pointer(bench, files=Tier(tier.segments, (*tier.inline, tier.inline[0])))
    return tier.inline[0].key


@plants
def sequence_wrong(bench: Bench) -> str:
    return edit_file(bench, sequence=pointer(bench).version + 1)


@plants
def file_missing(bench: Bench) -> str:
    key = inline_files(bench)[0].key
    remove(bench, key)
    return key


@plants
def file_missing__that_a_segment_names(bench: Bench) -> str:
    inline = {f.key for f in inline_files(bench)}
    key = next(k for k in bench.keys("data/") if k not in inline)
    remove(bench, key)
    return key


@plants
def file_changed(bench: Bench) -> str:
    key = inline_files(bench)[0].key
    overwrite(bench, key, body(bench, key) + b"x")
    return key


@plants
def file_unreadable(bench: Bench) -> str:
    key = inline_files(bench)[0].key
    garble(bench, key)
    return key


@plants
def file_unreadable__in_its_pages(bench: Bench) -> str:
    entry = inline_files(bench)[0]
    found = body(bench, entry.key)
    pages = len(found) - entry.footer_size - 4
    overwrite(bench, entry.key, found[:4] + b"\xff" * pages + found[4 + pages :])
    return entry.key


@plants
def file_contradicts(bench: Bench) -> str:
    return edit_file(bench, rows=11)


@plants
def file_contradicts__by_its_footer_size(bench: Bench) -> str:
    return edit_file(bench, footer_size=inline_files(bench)[-1].footer_size - 1)


@plants
def statistics_wrong__by_a_bound(bench: Bench) -> str:
    stats = inline_files(bench)[-1].stats
    return edit_file(bench, stats={**stats, 1: replace(stats[1], upper=stats[1].lower)})


@plants
def statistics_wrong__by_nulls(bench: Bench) -> str:
    stats = inline_files(bench)[-1].stats
    return edit_file(bench, stats={**stats, 1: replace(stats[1], null_count=1)})


@plants
def pointer_corrupt__by_a_spec_it_does_not_have(bench: Bench) -> str:
    edit_file(bench, spec_id=7)
    return keys.POINTER


@plants
def partition_wrong(bench: Bench) -> str:
    return edit_file(bench, partition=(5,))


@plants
def marker_missing(bench: Bench) -> str:
    key = marker_object(bench, ".del")
    remove(bench, key)
    return key


@plants
def marker_changed(bench: Bench) -> str:
    key = marker_object(bench, ".del")
    overwrite(bench, key, body(bench, key) + b"x")
    return key


@plants
def marker_unreadable(bench: Bench) -> str:
    key = marker_object(bench, ".del")
    garble(bench, key)
    return key


@plants
def marker_unreadable__as_a_vector(bench: Bench) -> str:
    key = marker_object(bench, ".puffin")
    garble(bench, key)
    return key


@plants
def marker_missing__as_a_vector(bench: Bench) -> str:
    key = marker_object(bench, ".puffin")
    remove(bench, key)
    return key


@plants
def marker_unreadable__by_its_cardinality(bench: Bench) -> str:
    found = vector(bench)
    assert isinstance(found.body, Vector)
    add_marker(bench, file=found.file, body=replace(found.body, rows=7))
    return found.body.key


@plants
def marker_unreadable__by_positions_beyond_its_file(bench: Bench) -> str:
    found = vector(bench)
    small = next(f for f in inline_files(bench) if f.rows == 10)
    add_marker(bench, file=small.key, body=found.body)
    return found.object_key or ""


@plants
def marker_contradicts__by_the_bounds_of_its_keys(bench: Bench) -> str:
    tier = pointer(bench).markers
    found = next(m for m in tier.inline if isinstance(m.body, Keys))
    stats = {i: replace(s, upper=s.lower) for i, s in found.body.stats.items()}
    narrow = replace(found, body=replace(found.body, stats=stats))
    inline = tuple(narrow if m is found else m for m in tier.inline)
    edit_pointer(bench, markers=Tier(tier.segments, inline))
    return found.body.key


@plants
def marker_contradicts__by_an_unknown_field(bench: Bench) -> None:
    add_marker(bench, body=KeyRange(1))
    tier = pointer(bench).markers
    last = replace(tier.inline[-1], body=Keys((99,), "tombstone/none", 5, 1))
    edit_pointer(bench, markers=Tier(tier.segments, (*tier.inline[:-1], last)))


@plants
def marker_contradicts(bench: Bench) -> None:
    add_marker(bench, file=inline_files(bench)[0].key, body=Rows((5, 10)))


@plants
def marker_contradicts__without_a_file(bench: Bench) -> None:
    add_marker(bench, body=Rows((5,)))


@plants
def page_index_wrong(bench: Bench) -> str:
    """Of another writer's file: pages from the third on begin a row later than they do."""
    sink = io.BytesIO()
    rows = pa.table({"id": pa.array(range(900, 6900)), "name": ["x"] * 6000})
    pq.write_table(rows, sink, write_page_index=True, use_dictionary=False, max_rows_per_page=1000)
    whole = sink.getvalue()
    [group] = decode_footer(whole, file_size=len(whole)).row_groups
    start, end = group.column(0).offset_index  # type: ignore[misc]
    tree, _ = decode_struct(whole, start)
    for page in tree[OffsetIndex.PAGES][2:]:
        page[PageLocation.FIRST_ROW] += 1
    index = encode_struct(tree)
    assert len(index) == end - start
    bench.store.put("landed/y.parquet", whole[:start] + index + whole[end:])
    bench.time.sleep(1)
    ingest(
        bench.ctx,
        [IngestSource(Location(bench.store.scheme, bench.store.bucket, "landed/y.parquet"))],
    )
    return inline_files(bench)[-1].key


@plants
def unused_entries(bench: Bench) -> str:
    names = pa.DictionaryArray.from_arrays([0, 0, 1], ["a", "b", "nobody"])
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([900, 901, 902]), "name": names}), sink)
    bench.store.put("landed/x.parquet", sink.getvalue())
    bench.time.sleep(1)
    ingest(
        bench.ctx,
        [IngestSource(Location(bench.store.scheme, bench.store.bucket, "landed/x.parquet"))],
    )
    return inline_files(bench)[-1].key


@plants
def totals_wrong(bench: Bench) -> str:
    edit_pointer(bench, totals=replace(pointer(bench).totals, rows=1))
    return keys.POINTER


@plants
def foreign_commit(bench: Bench) -> str:
    published = SetProperties({"publish.format": "v3"})
    commit(bench.ctx, Change(operation="set_properties", updates=(published,)))
    publish(bench.ctx)
    key = keys.published_metadata_key(pointer(bench).version + 1)
    overwrite(bench, key, b"{}")
    return key


@plants
def publication_corrupt(bench: Bench) -> str:
    overwrite(bench, keys.PUBLISHED_POINTER, b"{}")
    return keys.PUBLISHED_POINTER


@plants
def dangling_marker(bench: Bench) -> None:
    add_marker(bench, file="data/1970/01/01/00/none.parquet", body=Rows((5,)))


@plants
def orphans(bench: Bench) -> None:
    overwrite(bench, "data/1970/01/01/00/none.parquet", b"orphan")
    bench.time.sleep(2)


@plants
def orphans_unknown(bench: Bench) -> None:
    remove(bench, keys.archive_key(3))


@plants
def unknown_objects(bench: Bench) -> None:
    overwrite(bench, "notes.txt", b"mine")


@plants
def stale_uploads(bench: Bench) -> None:
    bench.store.create_multipart(bench.ctx.key("data/1970/01/01/00/none.parquet"))
    bench.time.sleep(30 * DAY)

"""The meter: one count for each request S3 would see."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from inlay.storage.base import IF_ABSENT, MIN_PART_BYTES, ByteRange, Location, Written
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import MeteredStore, Usage


def test_requests_and_bytes_of_reads_and_writes() -> None:
    store = MeteredStore(MemoryStore())
    store.put("k", b"12345")
    store.put("k", b"refused", condition=IF_ABSENT)  # sent all the same
    store.get("k")
    store.get("k", byte_range=ByteRange(1, 3))
    store.get_suffix("k", 2)
    store.get("gone")
    store.head("k")
    usage = store.usage()
    assert usage.requests == {"put": 2, "get": 4, "head": 1}
    assert (usage.bytes_up, usage.bytes_down, usage.total) == (12, 9, 7)


def test_a_difference_is_what_one_operation_cost() -> None:
    store = MeteredStore(MemoryStore())
    store.put("a", b"1")
    before = store.usage()
    store.get("a")
    assert store.usage() - before == Usage({"get": 1}, 0, 1)
    assert before == Usage({"put": 1}, 1, 0)  # a snapshot stays what it was
    assert before + (store.usage() - before) == store.usage()


def test_pages_and_batches_count_each() -> None:
    store = MeteredStore(MemoryStore())
    keys = [f"k{n:05d}" for n in range(2_001)]
    for key in keys[:1_000]:
        store.inner.put(key, b"")
    assert len(list(store.list(""))) == 1_000
    assert store.usage().requests == {"list": 1}
    for key in keys[1_000:]:
        store.inner.put(key, b"")
    before = store.usage()
    list(store.list(""))
    list(store.list_prefixes(""))
    list(store.list_versions(""))
    assert (store.usage() - before).requests == {"list": 4, "list_versions": 3}
    before = store.usage()
    store.delete(keys)
    store.delete([])
    store.delete_versions((key, "null") for key in keys[:5])
    assert (store.usage() - before).requests == {"delete": 4}


def test_multipart_counts_each_request() -> None:
    store = MeteredStore(MemoryStore("b"))
    source = store.put("src", b"x" * (MIN_PART_BYTES + 1))
    assert isinstance(source, Written)
    before = store.usage()
    upload = store.create_multipart("dst")
    part = store.upload_part("dst", upload, 1, memoryview(b"1234"))
    store.upload_part_copy(
        "dst",
        upload,
        2,
        source=Location("memory", "b", "src"),
        byte_range=ByteRange(0, 10),
        if_source_match=source.etag,
    )
    list(store.list_uploads(""))
    store.complete_multipart("dst", upload, [part])
    store.abort_multipart("dst", upload)
    store.copy(Location("memory", "b", "src"), "copied")
    used = store.usage() - before
    assert used.requests == {
        "create_multipart": 1,
        "upload_part": 1,
        "upload_part_copy": 1,
        "list_uploads": 1,
        "complete_multipart": 1,
        "abort_multipart": 1,
        "copy": 1,
    }
    assert (used.bytes_up, used.bytes_down) == (4, 0)


def test_buckets_and_threads_share_a_meter() -> None:
    store = MeteredStore(MemoryStore())
    other = store.at("other")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: other.put(f"k{n}", b"xx"), range(400)))
    assert store.usage() == Usage({"put": 400}, 800, 0)

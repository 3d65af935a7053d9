"""`INLAY_CACHE_DIR`: what scans keep between processes spares requests and changes no answer."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidRequest, SnapshotGone
from inlay.ops.cache import FOLDER_VARIABLE
from inlay.ops.read import disk_cache as cache
from inlay.ops.read.disk_cache import BYTES_VARIABLE, MAX_AGE_DAYS, DiskCache
from inlay.parquet.read.ranges import Kept
from inlay.storage.open import open_store

ROWS = 20_000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the cache, which is asked for."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    cache._cache_of.cache_clear()
    yield tmp_path / "cache"
    cache._cache_of.cache_clear()


def kept_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("??/*"))


def rows(first: int, count: int = ROWS) -> pa.Table:
    made = random.Random(first)
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "name": pa.array([f"n{made.getrandbits(60)}" for _ in range(count)]),
        }
    )


def made(**options: object) -> inlay.Table:
    """Four files too large to come whole, under a vector, keys and a condition."""
    uri = f"memory://{uuid.uuid4().hex}/t"
    table = inlay.create(uri, rows(0, 1).schema, primary_key=["id"], **options)  # type: ignore[arg-type]
    for n in range(4):
        table.append(rows(n * ROWS))
    table.delete(keys={"id": list(range(0, 2 * ROWS, 3))})
    table.delete("id % 10 = 1", mode="vector")
    table.delete("name LIKE 'n11%'")
    return table


def as_new(table: inlay.Table) -> inlay.Table:
    """The table as another process opens it: nothing in memory."""
    return inlay.open(table.uri)


def requests(table: inlay.Table, read: Callable[[inlay.Table], object]) -> tuple[int, object]:
    opened = as_new(table)
    before = opened.usage
    found = read(opened)
    return (opened.usage - before).total, found


READS: dict[str, Callable[[inlay.Table], object]] = {
    "all": lambda t: t.scan().to_arrow(),
    "one column": lambda t: t.scan(columns=["id"]).to_arrow(),
    "a row": lambda t: t.scan(where="id = 20012").to_arrow(),
    "some rows": lambda t: t.scan(where="id % 1000 = 1 AND name > 'n5'").to_arrow(),
    "top": lambda t: t.scan(order_by="name", limit=7).to_arrow(),
    "limit": lambda t: t.scan(limit=3).to_arrow(),
    "count": lambda t: t.count(),
    "count where": lambda t: t.count(where="name > 'n5'"),
    "dataset": lambda t: t.to_dataset().to_table(),
}


@pytest.mark.parametrize("name", READS)
def test_a_second_process_reads_the_same_with_fewer_requests(name, folder, monkeypatch):
    table = made()
    monkeypatch.delenv(FOLDER_VARIABLE)
    without, truth = requests(table, READS[name])
    assert not folder.exists()
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    first, found = requests(table, READS[name])
    assert (first, found) == (without, truth), "the first time it costs no request more"
    second, found = requests(table, READS[name])
    assert found == truth
    # What comes whole with its footer is one request anyway.
    assert second < first or (name == "all" and second == first - 1)


def test_footers_and_markers_are_not_requested_again(folder):
    table = made()
    # Four footers, the object of keys, four vectors.
    first, _ = requests(table, READS["one column"])
    second, _ = requests(table, READS["one column"])
    assert len(kept_files(folder)) == 9
    assert first - second == 9


def test_another_process_uses_it(folder):
    uri = f"file://{folder.parent}/t"
    inlay.create(uri, rows(0, 1).schema).append(rows(0))
    inlay.open(uri).scan(columns=["id"]).to_arrow()
    assert not folder.exists(), "a table on a disk is not kept on one"
    script = (
        "import os, inlay.ops.read.disk_cache as d; from inlay.parquet.read.ranges import Kept;"
        "c = d.disk_cache(); assert c.get('a') == Kept('e', b'body'), c.get('a'); print('ok')"
    )
    found = cache.disk_cache()
    assert found is not None
    found.put("a", Kept("e", b"body"))
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stdout == "ok\n", ran.stderr


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    match how:
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "empty":
            path.write_bytes(b"")
        case "flipped":
            middle = len(content) - 5
            path.write_bytes(
                content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
            )
        case "folder":
            path.unlink()
            path.mkdir()
        case "larger than memory":  # a sparse file
            os.truncate(path, 1 << 42)
        case "unreadable":
            path.unlink()
            path.symlink_to(path.parent / "nothing")


@pytest.mark.parametrize(
    "how", ["cut", "empty", "flipped", "folder", "unreadable", "mixed up", "larger than memory"]
)
def test_what_is_not_what_was_written_is_not_used(how, folder):
    table = made()
    first, truth = requests(table, READS["some rows"])
    if how == "mixed up":
        files = kept_files(folder)
        bodies = [file.read_bytes() for file in files]
        for file, body in zip(files, [*bodies[1:], bodies[0]], strict=True):
            file.write_bytes(body)
    else:
        for file in kept_files(folder):
            damage(file, how)
    again, found = requests(table, READS["some rows"])
    assert (again, found) == (first, truth)


def written_as(path: Path, rest: bytes) -> None:
    """As a file of the cache whose digest is right."""
    path.write_bytes(blake2b(rest, digest_size=32).digest() + rest)


SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "etag", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
# Of the right shape but for a value: another name, an ETag that is none.
NEARLY = st.fixed_dictionaries(
    {"name": st.just("a") | SHAPES, "etag": st.sampled_from(["", "\ud800", "a\n", "é"]) | SHAPES}
).filter(lambda says: not (isinstance(says["etag"], str) and says["etag"].isalnum()))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=30)
    | (SHAPES | NEARLY).map(lambda says: json.dumps(says).encode() + b"\nbody")
    | st.just(b"[" * 200_000)
    | st.just(b'{"name": ' + b"9" * 5_000 + b"}\n")
)
def test_a_file_of_another_form_is_as_none(tmp_path_factory, rest):
    kept = DiskCache(tmp_path_factory.getbasetemp() / "forms")
    kept.put("a", Kept("e", b"body"))
    [file] = kept_files(kept.folder)
    written_as(file, rest)
    assert kept.get("a") is None
    assert kept_files(kept.folder) == [], "it is not asked again"
    kept.put("a", Kept("e", b"body"))
    assert kept.get("a") == Kept("e", b"body")


@pytest.mark.parametrize("says", [b"null", b"[]", b'"name"', b"3", b"{}", b'{"name": "x"}'])
def test_a_scan_reads_what_files_of_another_form_do_not_give(says, folder):
    table = made()
    first, truth = requests(table, READS["some rows"])
    for file in kept_files(folder):
        written_as(file, says + b"\n" + file.read_bytes())
    assert requests(table, READS["some rows"]) == (first, truth)


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("how", ["another ETag", "no footer"])
def test_an_entry_that_does_not_fit_is_dropped_and_read_again(how, memory, folder):
    """As after a bucket was copied back or replicated: the same bytes under other ETags."""
    table = made()
    read = READS["some rows"]
    right = read(as_new(table))
    disk, opened = DiskCache(folder), as_new(table)
    if memory:
        read(opened)
    for entry in opened.inspect.files().to_pylist():
        name = f"{table.uri}/{entry['key']}"
        kept = disk.get(name)
        assert kept is not None
        if how == "another ETag":
            disk.put(name, Kept("another", kept.body))
        else:
            disk.put(name, Kept(kept.etag, bytes(len(kept.body))))
    assert read(opened) == right
    assert read(as_new(table)) == right


def test_an_unwritable_folder_costs_requests_only(folder, monkeypatch):
    table = made()
    assert requests(table, READS["all"])[1] == as_new(table).scan().to_arrow()

    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    for file in kept_files(folder):
        file.unlink()
    monkeypatch.setattr(cache.tempfile, "mkstemp", full)
    first, truth = requests(table, READS["all"])
    assert requests(table, READS["all"]) == (first, truth)
    assert kept_files(folder) == []


def test_no_table_that_promises_erasure_is_kept(folder):
    table = made(properties={"erasure.promised": "yes"})
    READS["all"](as_new(table))
    assert kept_files(folder) == []


def test_nor_are_versions_from_before_the_promise(folder):
    table = made()
    before = table.version
    table.set_properties(erasure__promised="yes")
    for opened in (as_new(table), inlay.open(table.uri, version=before)):
        for read in READS.values():
            read(opened)
    assert kept_files(folder) == []


def test_adopted_files_are_not_kept(folder):
    bucket = uuid.uuid4().hex
    store, _ = open_store(f"memory://{bucket}/t")
    sink = pa.BufferOutputStream()
    pq.write_table(rows(0), sink)
    store.put("elsewhere/a.parquet", sink.getvalue().to_pybytes())
    table = inlay.create(f"memory://{bucket}/t", rows(0, 1).schema)
    table.ingest([f"memory://{bucket}/elsewhere/a.parquet"], adopt=True)
    assert as_new(table).scan().to_arrow().num_rows == ROWS
    assert kept_files(folder) == []


def test_only_scans_ask_it(folder, monkeypatch):
    """What commits, erases and verifies sees what the store has."""

    def asked(*args: object) -> None:
        raise AssertionError("the cache was asked")

    table = made()
    READS["all"](as_new(table))
    monkeypatch.setattr(DiskCache, "get", asked)
    monkeypatch.setattr(DiskCache, "put", asked)
    opened = as_new(table)
    opened.update({"name": "'x'"}, where="id = 8")
    opened.upsert(rows(1, 2))
    opened.delete("id = 10", mode="surgery")
    opened.maintain.rewrite()
    opened.maintain.compact()
    assert opened.maintain.verify(depth="pages").findings == ()
    opened.delete("id = 11", mode="erase")
    opened.maintain.collect_garbage()
    with pytest.raises(AssertionError, match="was asked"):
        opened.scan().to_arrow()


def test_a_version_that_is_gone_stays_gone(folder):
    table = made()
    old = as_new(table)
    old.scan(columns=["id"]).to_arrow()
    context = inlay.connect(table.uri)
    gone = [info.key for info in context.store.list(context.key("data/"))]
    context.store.delete(gone)
    with pytest.raises(SnapshotGone):
        as_new(table).scan(columns=["id"]).to_arrow()


# -- the folder ---------------------------------------------------------------------------------


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in kept_files(folder))


def test_it_holds_no_more_than_its_bound_and_the_last_read(tmp_path):
    limit = 64 * 1024
    cache = DiskCache(tmp_path / "c", limit)
    body = bytes(1_000)
    cache.put("wanted", Kept("e", body))
    for n in range(500):
        cache.put(f"object {n}", Kept("e", body))
        assert size_of(cache.folder) <= limit
        time.sleep(0.0005)  # the file system's clock ticks
        assert cache.get("wanted") is not None, n
    assert cache.get("object 0") is None
    assert size_of(cache.folder) > limit // 2
    cache.put("large", Kept("e", bytes(limit)))
    assert cache.get("large") is None


def test_several_threads_stay_within_it(tmp_path):
    limit = 64 * 1024
    caches = [DiskCache(tmp_path / "c", limit) for _ in range(4)]

    def fill(number: int) -> None:
        for n in range(200):
            caches[number].put(f"{number}/{n}", Kept("e", bytes(900)))

    threads = [threading.Thread(target=fill, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert size_of(tmp_path / "c") <= limit + 3 * limit // 16


def test_nothing_outlives_its_age(tmp_path):
    cache = DiskCache(tmp_path / "c")
    cache.put("a", Kept("e", b"1"))
    cache.put("b", Kept("e", b"2"))
    old = time.time() - MAX_AGE_DAYS * 86_400 - 60
    left_behind = kept_files(cache.folder)[0].parent / "killed.tmp"
    left_behind.write_bytes(b"x")
    os.utime(left_behind, (old, old))
    for file in kept_files(cache.folder):
        os.utime(file, (time.time(), old))  # read a moment ago, written long ago
    assert cache.get("a") is None
    DiskCache(cache.folder).put("c", Kept("e", b"3"))
    assert len(kept_files(cache.folder)) == 1


def test_reading_does_not_make_it_younger(tmp_path):
    cache = DiskCache(tmp_path / "c")
    cache.put("a", Kept("e", b"1"))
    [file] = kept_files(cache.folder)
    written = time.time() - 86_400
    os.utime(file, (written, written))
    assert cache.get("a") == Kept("e", b"1")
    assert file.stat().st_mtime == pytest.approx(written)


def test_only_its_owner_reads_or_writes_it(tmp_path):
    cache = DiskCache(tmp_path / "c")
    cache.put("a", Kept("e", b"1"))
    assert cache.folder.stat().st_mode & 0o077 == 0
    assert kept_files(cache.folder)[0].stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("how", ["writable by all", "a file", "cannot be made"])
def test_a_folder_that_cannot_be_believed_is_refused(how, folder, monkeypatch):
    match how:
        case "writable by all":
            folder.mkdir()
            folder.chmod(0o777)
        case "a file":
            folder.write_bytes(b"")
        case "cannot be made":
            folder.parent.joinpath("file").write_bytes(b"")
            monkeypatch.setenv(FOLDER_VARIABLE, str(folder.parent / "file" / "below"))
    table = made()
    with pytest.raises(InvalidRequest, match=FOLDER_VARIABLE):
        as_new(table).scan().to_arrow()


@pytest.mark.parametrize("bytes_text", ["1 GiB", "-1", "1e9", "\u0663"])
def test_a_bound_that_is_no_number_is_refused(bytes_text, folder, monkeypatch):
    monkeypatch.setenv(BYTES_VARIABLE, bytes_text)
    table = made()
    with pytest.raises(InvalidRequest, match=BYTES_VARIABLE):
        as_new(table).scan().to_arrow()


def test_no_bytes_keep_nothing(folder, monkeypatch):
    monkeypatch.setenv(BYTES_VARIABLE, "0")
    READS["all"](as_new(made()))
    assert kept_files(folder) == []

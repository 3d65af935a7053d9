"""What only a directory has to get right: other processes, other people's files, crashes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from inlay.errors import AccessDenied, InvalidRequest, StoreUnavailable
from inlay.storage import files
from inlay.storage.base import Got, Head, IfMatch, Location, Missing, Refused, Written
from inlay.storage.directory import DirectoryStore
from inlay.storage.files import typed
from inlay.storage.open import open_store


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


ADD_TO_COUNTER = """
import sys
from inlay.storage.base import Got, IfMatch, Written
from inlay.storage.directory import DirectoryStore
from inlay.storage.files import typed

store, done = DirectoryStore(sys.argv[1]), 0
while done < 50:
    current = store.get("t/counter")
    assert isinstance(current, Got)
    body = str(int(current.body) + 1).encode()
    done += isinstance(store.put("t/counter", body, condition=IfMatch(current.etag)), Written)
"""


def test_no_increment_is_lost_between_processes(store: DirectoryStore, tmp_path: Path) -> None:
    store.put("t/counter", b"0")
    racers = [
        subprocess.Popen([sys.executable, "-c", ADD_TO_COUNTER, str(tmp_path)]) for _ in range(3)
    ]
    assert [racer.wait(timeout=120) for racer in racers] == [0, 0, 0]
    answer = store.get("t/counter")
    assert isinstance(answer, Got)
    assert answer.body == b"150"
    assert names(tmp_path / "t") == ["counter"]


CREATE = """
import sys
from inlay.storage.base import IF_ABSENT, Written
from inlay.storage.directory import DirectoryStore
from inlay.storage.files import typed

store = DirectoryStore(sys.argv[1])
won = [n for n in range(100)
       if isinstance(store.put(f"new/folder-{n % 7}/{n}", b"x", condition=IF_ABSENT), Written)]
print(len(won))
"""


def test_each_name_is_created_by_one_process(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen([sys.executable, "-c", CREATE, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    won = [int(racer.communicate(timeout=120)[0]) for racer in racers]
    assert sum(won) == 100


def test_an_etag_differs_even_when_the_clock_stands_still(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, now_us=lambda: 1_700_000_000_000_000)
    etags = []
    for n in range(100):
        written = store.put("k", f"{n:03d}".encode())
        assert isinstance(written, Written)
        etags.append(written.etag)
    assert len(set(etags)) == 100


def test_an_edit_in_place_changes_the_etag(store: DirectoryStore, tmp_path: Path) -> None:
    written = store.put("landing/file", b"before")
    assert isinstance(written, Written)
    with (tmp_path / "landing/file").open("r+b") as file:
        file.write(b"after!")
    assert isinstance(store.get("landing/file", if_match=written.etag), Refused)
    assert isinstance(store.put("landing/file", b"x", condition=IfMatch(written.etag)), Refused)
    copied = store.copy(Location("file", "", "landing/file"), "dst", if_source_match=written.etag)
    assert isinstance(copied, Refused)


def test_files_of_other_people_are_objects(store: DirectoryStore, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/by hand.csv").write_bytes(b"1,2")
    (info,) = store.list("in/")
    head = store.head("in/by hand.csv")
    assert isinstance(head, Head)
    assert (info.key, info.size, info.etag) == ("in/by hand.csv", 3, head.info.etag)


def test_what_is_no_regular_file_is_no_object(store: DirectoryStore, tmp_path: Path) -> None:
    (tmp_path / "t/sub").mkdir(parents=True)
    os.mkfifo(tmp_path / "t/pipe")
    (tmp_path / "t/circle").symlink_to(tmp_path)
    (tmp_path / "t/broken").symlink_to(tmp_path / "nowhere")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/t/\xff")).write_bytes(b"name is not UTF-8")
    (tmp_path / "t/real").write_bytes(b"x")
    assert [info.key for info in store.list("")] == ["t/real"]
    assert isinstance(store.get("t/pipe"), Missing)
    assert isinstance(store.get("t/sub"), Missing)


def test_no_key_leaves_the_root(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"s")
    (tmp_path / "root/a").mkdir(parents=True)
    store = DirectoryStore(tmp_path / "root")
    for key in ("../secret", "a/../../secret", "/etc/passwd", "a/./../../secret", "a\0b"):
        with pytest.raises(InvalidRequest):
            store.get(key)
        with pytest.raises(InvalidRequest):
            store.put(key, b"x")
        with pytest.raises(InvalidRequest):
            store.copy(Location("file", "", key), "stolen")
        with pytest.raises(InvalidRequest):
            store.create_multipart(key)
    for prefix in ("../", "a/../../", "/etc/"):
        with pytest.raises(InvalidRequest):
            list(store.list(prefix))
        with pytest.raises(InvalidRequest):
            list(store.list_uploads(prefix))
    upload = store.create_multipart("k")
    store.abort_multipart("k", f"../{upload}")
    assert [each.upload_id for each in store.list_uploads("")] == [upload]


def test_hidden_names_are_the_stores_own(store: DirectoryStore) -> None:
    store.put("t/k", b"x", metadata={"a": "b"})
    store.create_multipart("t/k")
    assert [info.key for info in store.list("")] == ["t/k"]
    assert list(store.list_prefixes("t/")) == []
    with pytest.raises(InvalidRequest):
        store.get("t/.inlay-meta-x")


def test_metadata_goes_with_its_object(store: DirectoryStore, tmp_path: Path) -> None:
    store.put("k", b"x", metadata={"a": "b"})
    store.put("k", b"y")
    head = store.head("k")
    assert isinstance(head, Head)
    assert head.info.metadata == {}
    store.put("k", b"z", metadata={"c": "d"})
    store.delete(["k"])
    assert names(tmp_path) == []


def test_a_write_cut_off_by_a_crash_is_found_among_the_uploads(
    store: DirectoryStore, tmp_path: Path
) -> None:
    store.put("t/k", b"x")
    # What a process killed between writing and renaming leaves, and one between a Complete and
    # the removal of its parts.
    (tmp_path / f"t/.inlay-tmp-{'a' * 32}").write_bytes(b"rows")
    (tmp_path / f"t/.inlay-upload-{'b' * 32}").mkdir()
    (tmp_path / f"t/.inlay-upload-{'b' * 32}/part-00001").write_bytes(b"rows")
    assert [info.key for info in store.list("")] == ["t/k"]
    found = list(store.list_uploads("t/"))
    assert sorted(each.upload_id for each in found) == ["a" * 32, "b" * 32]
    for each in found:
        store.abort_multipart(each.key, each.upload_id)
    assert names(tmp_path / "t") == ["k"]


def test_a_refused_write_leaves_nothing_behind(store: DirectoryStore, tmp_path: Path) -> None:
    store.put("k", b"x")
    assert isinstance(store.put("k", b"y", condition=IfMatch("stale")), Refused)
    with pytest.raises(InvalidRequest):
        store.put("k/below", b"y")
    assert names(tmp_path) == ["k"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_a_folder_without_permission_is_denied(store: DirectoryStore, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(AccessDenied):
        store.put("locked/k", b"x")


def test_a_full_file_system_says_so() -> None:
    with pytest.raises(StoreUnavailable, match="no space left") as raised, typed("k"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert raised.value.next_step == "Free space, then try again"


def test_a_file_system_that_is_read_only_says_so() -> None:
    with pytest.raises(AccessDenied, match="read-only") as raised, typed("k"):
        raise OSError(errno.EROFS, "Read-only file system")
    assert "reading works" in raised.value.next_step


def test_too_long_a_name_says_so(store: DirectoryStore) -> None:
    with pytest.raises(InvalidRequest, match="too long"):
        store.put("n" * 300, b"x")


def test_a_table_root_is_found_by_uri_and_by_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, key = open_store(f"file://{tmp_path}/tables/t/")
    store.put(f"{key}/k", b"by uri")
    monkeypatch.chdir(tmp_path)
    for path in (f"{tmp_path}/tables/t", "tables/t", "./tables/x/../t/"):
        other, other_key = open_store(path)
        answer = other.get(f"{other_key}/k")
        assert isinstance(answer, Got)
        assert answer.body == b"by uri"


def test_an_upload_that_a_newer_library_began_goes_on(
    store: DirectoryStore, tmp_path: Path
) -> None:
    upload = store.create_multipart("t/large")
    [manifest] = [p for p in tmp_path.rglob("*") if p.is_file() and b"started_us" in p.read_bytes()]
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "later": [1]}))
    assert [each.key for each in store.list_uploads("t/")] == ["t/large"]
    part = store.upload_part("t/large", upload, 1, b"part")
    assert isinstance(store.complete_multipart("t/large", upload, [part]), Written)
    answer = store.get("t/large")
    assert isinstance(answer, Got) and answer.body == b"part"


def folders(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_dir())


def test_a_folder_named_by_a_value_goes_with_its_last_object(
    store: DirectoryStore, tmp_path: Path
) -> None:
    for key in ("t/data/s=x/n=1/a", "t/data/s=x/n=2/b", "t/data/s=y/c", "t/data/2026/d"):
        store.put(key, b"", metadata={"k": "v"})
    store.delete(["t/data/s=x/n=1/a", "t/data/2026/d", "t/data/s=z/none"])
    kept = ["t", "t/data", "t/data/2026"]
    assert folders(tmp_path) == [*kept, "t/data/s=x", "t/data/s=x/n=2", "t/data/s=y"]
    upload = store.create_multipart("t/data/s=x/n=2/e")
    store.delete(["t/data/s=x/n=2/b"])
    assert "t/data/s=x/n=2" in folders(tmp_path), "an upload is in it"
    store.abort_multipart("t/data/s=x/n=2/e", upload)
    store.delete(["t/data/s=y/c"])
    assert folders(tmp_path) == kept


@pytest.mark.parametrize("begins", ["create", "start"])
def test_a_folder_that_goes_while_a_write_begins_is_made_again(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    store.put("data/s=x/a", b"a")
    begin, gone = getattr(files, begins), []

    def after_the_last_object(*arguments: Any) -> Any:
        if not gone:
            gone.append(True)
            store.delete(["data/s=x/a"])
        return begin(*arguments)

    monkeypatch.setattr(files, begins, after_the_last_object)
    if begins == "create":
        store.put("data/s=x/b", b"b")
    else:
        upload = store.create_multipart("data/s=x/b")
        part = store.upload_part("data/s=x/b", upload, 1, b"b")
        store.complete_multipart("data/s=x/b", upload, [part])
    assert gone and [o.key for o in store.list("")] == ["data/s=x/b"]


def test_no_write_is_lost_to_who_deletes_the_last_object_of_a_folder(tmp_path: Path) -> None:
    def write_and_delete(writer: int) -> int:
        own, lost = DirectoryStore(tmp_path), 0
        for n in range(200):
            key = f"data/s=x/n={n % 3}/{writer}-{n}"
            own.put(key, b"x")
            lost += not isinstance(own.get(key), Got)
            own.delete([key])
        return lost

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(write_and_delete, range(4))) == 0
    assert folders(tmp_path) == ["data"]

"""Where a table may be: garbage collection deletes nobody else's object, and no table within another."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.engine import open_store
from inlay.errors import AccessDenied, InvalidRequest
from inlay.storage.memory import MemoryStore

ROWS = pa.table({"id": [1]})
FOLDERS = (
    "data",
    "tombstone",
    "changes",
    "manifest",
    "manifest/segments",
    "metadata",
    "erasure",
    "x",
)
NAMES = (
    "raw.csv",
    "a.avro",
    "2026/11/27/12/part-0.parquet",
    "00000-0-5f.parquet",
    "_latest_manifest",
    "a/b",
)
NOW = {"life_seconds": 0, "clock_margin_seconds": 0}


def file_of(root: Path, name: str) -> Path:
    """A file that is older than every grace."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(ROWS, path)
    os.utime(path, (10**9, 10**9))
    return path


@pytest.mark.parametrize("seed", range(60))
def test_objects_of_others_stay_or_there_is_no_table(tmp_path: Path, seed: int) -> None:
    r = random.Random(seed)
    root = tmp_path / "t"
    others = {
        file_of(root, f"{r.choice(FOLDERS)}/{r.choice(NAMES)}") for _ in range(r.randint(1, 3))
    }
    if r.random() < 0.2:
        others |= {
            file_of(root, f"a/{n}") for n in range(1_001)
        }  # more than one page, before `data/`
    elsewhere = inlay.create(str(tmp_path / "elsewhere"), ROWS, properties={"gc.grace_days": 0})
    created: dict[str, Callable[[str], object]] = {
        "create": lambda uri: inlay.create(uri, ROWS, properties={"gc.grace_days": 0}),
        "copy": elsewhere.copy_to,
        "clone": elsewhere.clone_to,
    }
    try:
        created[r.choice(list(created))](str(root))
    except InvalidRequest as error:
        assert "objects of others" in error.message and error.next_step
        assert {path.relative_to(root).parts[0] for path in others} & set(FOLDERS[:-2])
    else:
        inlay.open(str(root)).maintain.collect_garbage(**NOW)
    assert not [path for path in others if not path.exists()]


@pytest.mark.parametrize("inner", ["data", "data/people", "tombstone/a/b", "manifest/segments/x"])
def test_no_table_is_in_a_folder_that_another_empties(inner: str) -> None:
    uri = f"memory://places/{inner}"
    inlay.create(uri, ROWS)  # beside, there is none around it
    outer = inlay.create(f"memory://places/outer/{inner}", ROWS)
    inlay.create(f"{outer.uri}/x", ROWS)
    with pytest.raises(InvalidRequest, match=r"in the folder .* of another table"):
        inlay.create(f"{outer.uri}/{inner}", ROWS)


def test_whoever_may_not_look_around_may_create(monkeypatch: pytest.MonkeyPatch) -> None:
    head = MemoryStore.head

    def denied(self: MemoryStore, key: str) -> object:
        if key == "_latest_manifest":
            raise AccessDenied("not yours")
        return head(self, key)

    monkeypatch.setattr(MemoryStore, "head", denied)
    assert inlay.create("memory://denied/data/people", ROWS).count() == 1


def test_a_creation_that_failed_is_repeated(tmp_path: Path) -> None:
    """Files that it had written are garbage of the table that is there in the end."""
    t = inlay.create(str(tmp_path / "t"), ROWS)
    store, root = open_store(t.uri)
    for info in list(store.list(root)):
        if "/data/" not in info.key:
            store.delete([info.key])
    assert inlay.create(t.uri, ROWS).count() == 1


def test_a_file_of_another_table_is_not_adopted_but_copied(tmp_path: Path) -> None:
    """That table's next garbage collection would take it, and rows that it has deleted would come back."""
    rows = pa.table({"id": [1, 2]})
    inlay.create(tmp_path / "theirs", rows)
    [file] = (tmp_path / "theirs/data").rglob("*.parquet")
    into = inlay.create(tmp_path / "ours", rows.schema)
    [outcome] = into.ingest([file.as_uri()], adopt=True).outcomes
    assert outcome.state == "rejected" and "which deletes it when" in str(outcome.error)
    copied = inlay.create(tmp_path / "copied", rows.schema)
    [outcome] = copied.ingest([file.as_uri()]).outcomes
    assert outcome.state == "ingested"
    # Of a table that is no more it is a file like any other.
    (tmp_path / "theirs/_latest_manifest").unlink()
    [outcome] = into.ingest([file.as_uri()], adopt=True).outcomes
    assert outcome.state == "ingested"

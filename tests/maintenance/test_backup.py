"""The drill of docs/BACKUP.md: replicate, lose, restore."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InlayError
from inlay.format.keys import POINTER


def ids(place: Path) -> list[int]:
    return sorted(inlay.open(place).scan().to_arrow()["id"].to_pylist())


def objects_of(place: Path) -> list[Path]:
    return sorted(p for p in place.rglob("*") if p.is_file() and p.name != POINTER)


def test_a_replica_shows_a_version_whole_or_the_one_before(tmp_path: Path) -> None:
    source, replica = tmp_path / "t", tmp_path / "replica"
    t = inlay.create(source, pa.table({"id": [1]}), primary_key="id")
    for n in range(2, 5):
        before = ids(replica) if replica.exists() else None
        pointer = (source / POINTER).read_bytes()  # read first
        t.append(pa.table({"id": [n]}))  # committed while it is copied
        t.delete(f"id = {n - 1}", mode="rewrite")
        for made in objects_of(source):
            there = replica / made.relative_to(source)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(made, there)
            if before is not None:  # at each moment
                assert ids(replica) == before
        (replica / POINTER).write_bytes(pointer)  # put last
        assert ids(replica) == [n - 1]


def test_a_pointer_of_the_past_is_the_table_of_the_past(tmp_path: Path) -> None:
    place = tmp_path / "t"
    t = inlay.create(place, pa.table({"id": [1, 2]}), primary_key="id")
    t.append(pa.table({"id": [3]}))
    versions = {p: p.read_bytes() for p in (*objects_of(place), place / POINTER)}
    t.delete("id < 3", mode="rewrite")
    t.append(pa.table({"id": [4]}))
    for lost in objects_of(place):  # what a collection would have taken
        if lost in versions and "data" in lost.parts:
            lost.unlink()
    # Objects first, the pointer last.
    for path, body in versions.items():
        if path.name != POINTER and not path.exists():
            path.write_bytes(body)
    (place / POINTER).write_bytes(versions[place / POINTER])
    assert ids(place) == [1, 2, 3]
    # A process that has seen more does not write over it.
    with pytest.raises(InlayError):
        t.append(pa.table({"id": [5]}))
    assert ids(place) == [1, 2, 3]


def test_a_copy_is_a_backup_that_outlives_its_source(tmp_path: Path) -> None:
    t = inlay.create(tmp_path / "t", pa.table({"id": [1, 2]}), primary_key="id")
    t.copy_to(tmp_path / "backup")
    shutil.rmtree(tmp_path / "t")
    inlay.open(tmp_path / "backup").copy_to(tmp_path / "t")
    assert ids(tmp_path / "t") == [1, 2]

"""Garbage collected by executors is what the function collects."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.format.keys import POINTER
from inlay.ops.collect_garbage import CollectResult
from inlay.ops.maintain import garbage_ranges
from inlay.spark.garbage import collect_garbage

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]


@pytest.fixture
def littered(new_table: NewTable) -> inlay.Table:
    """A table with expired versions, files that only they need, orphans and a stranger's object."""
    table = new_table(pa.schema([pa.field("id", pa.int64(), nullable=False)]), primary_key="id")
    for start in range(0, 60, 10):
        table.append(pa.table({"id": pa.array(range(start, start + 10), pa.int64())}))
    table.delete(keys=pa.table({"id": pa.array(range(1, 60, 3), pa.int64())}))
    table.maintain.compact(small_bytes=1 << 30)
    table.append(pa.table({"id": pa.array([100], pa.int64())}))
    table.maintain.expire(days=0, min_versions=1)
    root = Path(table.uri.removeprefix("file://"))
    for name in ("data/2020/01/02/03/a.parquet", "data/2020/01/02/03/b.parquet", "data/1.parquet"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"orphan")
    (root / "stranger").write_bytes(b"")
    return table


def told(result: CollectResult) -> tuple[object, ...]:
    kinds = {kind: tally.objects for kind, tally in result.kinds.items()}
    return (result.objects, kinds, result.young, result.unknown_count, result.unknown)


def folder(table: inlay.Table) -> Path:
    return Path(table.uri.removeprefix("file://"))


def names(table: inlay.Table) -> set[str]:
    root = folder(table)
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


def twin_of(table: inlay.Table, place: Path) -> inlay.Table:
    """The same table elsewhere; in both all objects but the pointer are a month old: a pointer older than
    the commit in it would be clocks that disagree."""
    shutil.copytree(folder(table), place)
    for root in (folder(table), place):
        for path in root.rglob("*"):
            if path.name != POINTER:
                os.utime(path, (path.stat().st_mtime - 30 * 86_400,) * 2)
    return inlay.open(f"file://{place}")


def test_executors_delete_what_the_function_deletes(
    spark: Any, littered: inlay.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_ranges, "NEEDED_PER_RANGE", 1)  # a range or two for each object
    other = twin_of(littered, tmp_path / "twin")
    rows = littered.refresh().scan().to_arrow().sort_by("id")
    grace = timedelta(seconds=0)
    deleted = 0
    # The first run sees the expiry, the next begins when its grace, of no time, is over.
    for _ in range(2):
        dry = collect_garbage(
            spark, littered.uri, grace_seconds=0, clock_margin_seconds=0, dry_run=True
        )
        assert told(dry) == told(
            other.refresh().maintain.collect_garbage(grace=grace, dry_run=True)
        )
        by_spark = collect_garbage(spark, littered.uri, grace_seconds=0, clock_margin_seconds=0)
        assert told(by_spark) == told(other.refresh().maintain.collect_garbage(grace=grace))
        assert not by_spark.failures
        deleted += by_spark.objects
        assert {n for n in names(littered) if "segments" not in n} == {
            n for n in names(other) if "segments" not in n
        }
    assert deleted >= 3 + 6  # orphans, and files that only expired versions need
    assert littered.refresh().scan().to_arrow().sort_by("id") == rows
    assert {"stranger", "_latest_manifest"} <= names(littered)
    assert littered.maintain.verify().ok


def test_a_collection_that_was_killed_leaves_the_rest_to_the_next(
    spark: Any, littered: inlay.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_ranges, "RANGES_PER_SLOT", 1)
    twin_of(littered, tmp_path / "twin")
    seen: list[str] = []

    def killed(what: str, done: int, total: int | None) -> None:
        seen.append(what)
        if what == "delete" and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect_garbage(
            spark, littered.uri, grace_seconds=0, clock_margin_seconds=0, progress=killed
        )
    left = collect_garbage(
        spark, littered.uri, grace_seconds=0, clock_margin_seconds=0, dry_run=True
    ).objects
    assert "list" in seen
    assert (
        collect_garbage(spark, littered.uri, grace_seconds=0, clock_margin_seconds=0).objects
        == left
    )
    assert littered.refresh().maintain.verify().ok

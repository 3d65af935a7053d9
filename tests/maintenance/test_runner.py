"""Units and ranges that other processes carry out: what they leave is what this process leaves."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.format.keys import POINTER
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.erase.request import advance_erasures
from inlay.ops.maintain import garbage_ranges
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.rewrite import rewrite

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


class Elsewhere:
    """Runs what pickles, and keeps how many tasks came at once."""

    slots = 1

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.waves: list[int] = []

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        self.waves.append(len(tasks))
        ctx = inlay.connect(self._uri)
        return [pickle.loads(pickle.dumps(t.run(ctx))) for t in pickle.loads(pickle.dumps(tasks))]


def scattered(uri: str) -> inlay.Table:
    """Nine files with deletes of several kinds, one of which is to be erased."""
    table = inlay.create(uri, SCHEMA, primary_key="id")
    for start in range(0, 900, 100):
        ids = range(start, start + 100)
        rows = {"id": ids, "name": [f"n{i % 9}" for i in ids]}
        table.append(pa.table(rows, schema=SCHEMA))
    table.delete("id BETWEEN 190 AND 310")
    table.delete("name = 'n3'")
    table.delete("id IN (7, 293, 811)", mode="erase")
    return table


@pytest.fixture
def both(tmp_path: Path) -> tuple[inlay.Table, inlay.Table, Elsewhere]:
    here, there = (scattered(f"file://{tmp_path}/{name}") for name in ("here", "there"))
    return here, there, Elsewhere(there.uri)


def shape(table: inlay.Table) -> tuple[list[Any], list[int]]:
    table.refresh()
    files = table.inspect.files().column("rows").to_pylist()
    return table.scan().to_arrow().sort_by("id").to_pylist(), sorted(files)


@pytest.mark.parametrize("verb", [compact, rewrite, advance_erasures])
def test_units_elsewhere_leave_what_units_here_leave(both: Any, verb: Any) -> None:
    here, there, runner = both
    done, expected = verb(inlay.connect(there.uri), runner=runner), verb(inlay.connect(here.uri))
    assert shape(there) == shape(here)
    assert (done.removed_rows, done.written_bytes > 0) == (expected.removed_rows, True)
    assert not done.failures and there.maintain.verify().ok
    assert sum(runner.waves) and max(runner.waves) <= 4 * runner.slots


def test_what_cannot_be_read_elsewhere_costs_only_itself(both: Any) -> None:
    _, there, runner = both
    ctx = inlay.connect(there.uri)
    broken = there.inspect.files().column("key").to_pylist()[0]
    body = ctx.store.get(ctx.key(broken)).body
    ctx.store.put(ctx.key(broken), body[:50] + bytes(len(body) - 50))
    result = rewrite(ctx, runner=runner)
    assert [failure.key for failure in result.failures] == [broken]
    assert result.files == 7  # the eighth had no row left


def test_garbage_is_listed_and_deleted_by_ranges(
    both: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_ranges, "NEEDED_PER_RANGE", 1)
    here, there, runner = both
    told = []
    for table, by in ((here, None), (there, runner)):
        root = Path(table.uri.removeprefix("file://"))
        for name in ("data/2020/01/02/03/a.parquet", "data/2020/01/02/04/b.parquet", "stranger"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(b"nobody's")
        for path in root.rglob("*"):
            if path.name != POINTER:  # older than the commit in it, clocks would disagree
                os.utime(path, (path.stat().st_mtime - 30 * 86_400,) * 2)
        ctx = inlay.connect(table.uri)
        result = collect_garbage(ctx, runner=by, grace_seconds=0, clock_margin_seconds=0)
        told.append((result.objects, result.kinds, result.unknown, result.young))
        names = {path.name for path in root.rglob("*")}
        assert "stranger" in names and not names & {"a.parquet", "b.parquet"}
    assert told[0] == told[1] and told[0][0] >= 2
    assert len(runner.waves) > 2

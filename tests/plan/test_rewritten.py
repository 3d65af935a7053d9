"""What a delete that removes rows from files has written is used again on a later base, or made again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64
from tests.maintenance.bench import new_bench

from inlay.format.entry import DataFile, KeyRange, Marker, Rows
from inlay.format.snapshot import Boundary, Tier
from inlay.ops.commit.driver import Committed, Skipped
from inlay.ops.maintain import rewrite_file
from inlay.ops.write.delete_rows import rewritten
from inlay.ops.write.upsert import upsert
from inlay.plan.change import Request
from inlay.plan.metadata.state import State

FILE = DataFile(key="a", size=9, footer_size=9, rows=5, row_groups=1, schema_id=0, sequence=3)
ON_A, ON_B = (Marker(id=k, body=Rows((1,)), file=k, sequence=5) for k in "ab")
OF_TABLE = Marker(id="t", body=KeyRange(1, upper=5), sequence=5)


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({}, False),
        ({"markers": (OF_TABLE, ON_B)}, False),
        ({"markers": (ON_A,)}, True),
        ({"entry": replace(FILE, sequence=4)}, True),
        ({"boundary_us": 0}, False),
        ({"boundary_us": 1}, True),
    ],
    ids=str,
)
def test_a_file_is_written_again_only_where_it_or_its_deletes_changed(
    change: dict[str, Any], again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or where garbage collection may take what was written."""
    bench = new_bench()
    loaded = bench.load()
    tasks: list[Any] = []

    def rewrite(ctx: Any, base: Any, task: Any, *, strategy: str, extra: Any) -> Any:
        tasks.append((task.file, [m.id for m in task.markers], set(extra), strategy))
        return None, SimpleNamespace(unit=len(tasks))

    monkeypatch.setattr(rewrite_file, "rewrite_task", rewrite)

    def on(entry: DataFile = FILE, markers: Any = (), boundary_us: int = 0) -> list[Any]:
        snapshot = replace(
            loaded.snapshot,
            files=Tier((), (entry,)),
            markers=Tier((), tuple(markers)),
            boundary=Boundary(1, loaded.date_us + boundary_us),
        )
        base = replace(loaded, state=State(snapshot))
        return rewritten(bench.ctx, base, {"a": BitMap64([2])}, "rewrite", made)

    made: dict[str, Any] = {}
    [first] = on()
    assert first.unit == 1 and tasks == [(FILE, [], {2}, "rewrite")]
    [second] = on(**change)
    assert second.unit == (2 if again else 1)
    if change.get("markers") == (ON_A,):
        assert tasks[1][1] == ["a"]


@pytest.mark.parametrize("asked", [False, True])
def test_an_upsert_of_no_rows_is_a_commit_only_where_its_request_is_to_be_remembered(
    asked: bool,
) -> None:
    bench = new_bench()
    before = bench.load().snapshot
    nothing = pa.table({"id": pa.array([], pa.int64()), "name": pa.array([], pa.string())})
    request = Request.of("r") if asked else None
    found = upsert(bench.ctx, nothing, on=["id"], request=request)
    assert isinstance(found, Committed if asked else Skipped)
    assert bench.load().snapshot.version == before.version + asked

"""Verification finds rows outside their partition."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.ops import data as write


def test_rows_outside_of_their_partition_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    t = inlay.create(
        f"memory://verify/{uuid.uuid4().hex}",
        pa.schema([("id", pa.int64())]),
        partition_by=["bucket(4, id)", "truncate(10, id)"],
    )
    t.append(pa.table({"id": range(40)}))
    assert t.maintain.verify(depth="pages").findings == ()

    before = len(t.inspect.entries()[0])

    def misplaced(*args: Any, **options: Any) -> Any:
        for entry in written(*args, **options):
            yield replace(entry, partition=(entry.partition[0], 20))

    written = write.write_files
    monkeypatch.setattr(write, "write_files", misplaced)
    t.append(pa.table({"id": range(40, 44)}))
    found = t.maintain.verify(depth="pages").errors
    assert {f.kind for f in found} == {"partition_wrong"}
    assert len(found) == len(t.inspect.entries()[0]) - before
    assert "rows are not of its partition" in found[0].message


def test_a_file_may_lack_a_column_of_an_older_partitioning() -> None:
    rows = pa.table({"id": [1, 2], "region": ["eu", "eu"]})
    t = inlay.create(f"memory://verify/{uuid.uuid4().hex}", rows.schema, partition_by=["region"])
    t.append(rows)
    t.set_partitioning()
    t.alter(drop=["region"])
    t.delete("id = 1", mode="vector")
    t.maintain.rewrite(strategy="rewrite")
    assert t.maintain.verify(depth="pages").findings == ()

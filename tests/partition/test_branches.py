"""Partitionings of branches, and of versions that are restored."""

from __future__ import annotations

import uuid

import pyarrow as pa

import inlay

SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string())])


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": ids, "region": [("eu", "us")[n % 2] for n in ids]}, schema=SCHEMA)


def table() -> inlay.Table:
    t = inlay.create(f"memory://branches/{uuid.uuid4().hex}", SCHEMA, partition_by=["region"])
    t.append(rows(0, 10))
    return t


def test_a_branch_is_partitioned_on_its_own_and_main_keeps_its_own() -> None:
    t = table()
    b = t.refs.branch("try")
    b.set_partitioning("bucket(4, id)")
    b.append(rows(10, 20))
    t.refresh()
    assert (t.partitioning, b.partitioning) == (("region",), ("bucket(4, id)",))
    assert len(t.inspect.entries()[0]) == 2 and b.scan(where="id = 15").explain().files_read <= 3
    t.set_partitioning("truncate(10, id)")
    t.append(rows(100, 20))
    b.refresh()
    b.append(rows(200, 4))
    assert {s.id for s in t.refresh().snapshot.specs} == {0, 1, 2, 3}
    assert sorted(b.refresh().scan().to_arrow()["id"].to_pylist()) == [*range(30), *range(200, 204)]
    assert b.partitioning == ("bucket(4, id)",) and t.partitioning == ("truncate(10, id)",)
    assert t.maintain.verify(depth="pages").findings == ()


def test_a_fast_forward_brings_the_partitioning_along() -> None:
    t = table()
    b = t.refs.branch("try")
    b.set_partitioning("bucket(4, id)")
    b.append(rows(10, 20))
    t.refs.fast_forward("try")
    t.refresh()
    assert t.partitioning == ("bucket(4, id)",)
    assert t.scan(where="id = 15").explain().files_read <= 3
    assert t.maintain.verify(depth="pages").findings == ()


def test_a_merge_brings_files_with_the_partitions_they_have() -> None:
    t = table()
    b = t.refs.branch("try")
    b.set_partitioning("bucket(4, id)")
    b.append(rows(10, 20))
    t.append(rows(100, 10))
    t.refresh()
    t.refs.merge("try")
    t.refresh()
    ids = sorted(t.scan(columns=["id"]).to_arrow()["id"].to_pylist())
    assert ids == [*range(30), *range(100, 110)]
    assert t.partitioning == ("bucket(4, id)",), "main had not changed it"
    assert {f.spec_id for f in t.inspect.entries()[0]} == {1, 2}
    assert t.maintain.verify(depth="pages").findings == ()


def test_restoring_a_version_restores_its_partitioning_and_forgets_none() -> None:
    t = table()
    version = t.version
    t.set_partitioning("bucket(4, id)")
    t.append(rows(10, 20))
    t.refs.restore(version=version)
    assert t.partitioning == ("region",) and len(t.snapshot.specs) == 3
    t.append(rows(50, 4))
    assert {f.spec_id for f in t.inspect.entries()[0]} == {1}
    t.set_partitioning("bucket(4, id)")
    assert t.snapshot.spec_id == 2

"""What many processes do in parts, and one commits or plans, is what one process does."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

import inlay
from inlay.engine import parse_predicate
from inlay.errors import ConcurrentChange, InvalidRequest
from inlay.ops.feed_parts import FeedParts
from inlay.ops.maintain.cluster_slices import ClusterPlan
from inlay.ops.metadata.load import load_entries, load_pointer
from inlay.ops.read.in_parts import ScanParts
from inlay.ops.write.in_parts import PartedWrite
from inlay.ops.write.parted_change import PartedChange
from inlay.plan.change import Request

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("part", pa.string())])


def rows(*ids: int, part: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "part": [part] * len(ids)}, schema=SCHEMA)


def new(tmp_path: Any, **options: Any) -> inlay.Table:
    return inlay.create(f"file://{tmp_path}/t", SCHEMA, primary_key="id", **options)


def ids(table: inlay.Table) -> list[int]:
    found: list[int] = table.refresh().scan().to_arrow().column("id").to_pylist()
    return sorted(found)


def write(table: inlay.Table, *parts: pa.Table, **options: Any) -> tuple[PartedWrite, list[Any]]:
    """The files of parts that other processes wrote."""
    ctx = inlay.connect(table.uri)
    job = PartedWrite(table=load_pointer(ctx).without_entries(), **options)
    sent = pickle.dumps(job)
    return job, [f for p in parts for f in pickle.loads(sent).write(ctx, p.to_batches())]


def test_parts_are_there_once(tmp_path: Any) -> None:
    table = new(tmp_path)
    job, files = write(table, rows(1, 2), rows(3), request=Request.of("load"))
    for _ in range(2):
        job.commit(inlay.connect(table.uri), files)
    assert ids(table) == [1, 2, 3]
    told = job.committed(inlay.connect(table.uri))
    assert (told.committed, told.added_rows, told.version) == (True, 3, table.version)


@pytest.mark.parametrize("way", ["appended", "by condition", "by partition", "of a stream"])
def test_a_commit_that_is_repeated_changes_nothing(tmp_path: Any, way: str) -> None:
    """As by a second driver of one job, which began before the first had committed."""
    table = new(tmp_path, partition_by="part")
    table.append(pa.concat_tables([rows(1, 2), rows(3, part="b")]))
    true = inlay.engine.PredicateBuilder().constant(True)
    options: dict[str, dict[str, Any]] = {
        "appended": {},
        "by condition": {
            "replaces": inlay.engine.parse_predicate("id < 10", table.snapshot.schema)
        },
        "by partition": {"replaces": true, "by_partition": True},
        "of a stream": {"stream": ("query", 7)},
    }
    first, files = write(table, rows(4, 5), request=Request.of("job"), **options[way])
    second, others = write(table, rows(4, 5), request=Request.of("job"), **options[way])
    first.commit(inlay.connect(table.uri), files)
    expected = ids(table)
    for job, again in ((first, files), (second, others)):
        job.commit(inlay.connect(table.uri), again)
        assert ids(table) == expected


def test_nothing_is_a_commit_only_where_that_is_kept(tmp_path: Any) -> None:
    table = new(tmp_path)
    for keeps, version in ((False, 1), (True, 2)):
        job, _ = write(table, request=Request.of(f"empty {keeps}"), keeps_empty=keeps)
        job.commit(inlay.connect(table.uri), [])
        assert table.refresh().version == version


def test_an_overwrite_replaces_what_was_there_when_it_began(tmp_path: Any) -> None:
    table = new(tmp_path)
    table.append(rows(1, 2))
    where = inlay.engine.parse_predicate("id < 10", table.snapshot.schema)
    job, files = write(table, rows(3), request=Request.of("o"), replaces=where)
    with pytest.raises(InvalidRequest, match="not one of those"):
        job.write(inlay.connect(table.uri), rows(11).to_batches())
    late, later = write(table, rows(4), request=Request.of("late"), replaces=where)
    job.commit(inlay.connect(table.uri), files)
    assert ids(table) == [3]
    with pytest.raises(ConcurrentChange):
        late.commit(inlay.connect(table.uri), later)
    assert ids(table) == [3]


def test_an_overwrite_replaces_the_partitions_that_it_writes_to(tmp_path: Any) -> None:
    table = new(tmp_path, partition_by="part")
    table.append(pa.concat_tables([rows(1, 2), rows(3, part="b")]))
    true = inlay.engine.PredicateBuilder().constant(True)
    told = {"replaces": true, "by_partition": True}
    job, files = write(table, rows(4), request=Request.of("p"), **told)
    late, later = write(table, rows(5), request=Request.of("q"), **told)
    job.commit(inlay.connect(table.uri), files)
    assert ids(table) == [3, 4]
    with pytest.raises(ConcurrentChange):
        late.commit(inlay.connect(table.uri), later)


def test_files_of_another_writer_are_taken_over_once(tmp_path: Any) -> None:
    table = new(tmp_path)
    ctx = inlay.connect(table.uri)
    loaded = load_pointer(ctx)
    job = PartedWrite(table=loaded.without_entries(), request=Request.of("theirs"))
    table.append(rows(1))
    [key] = table.inspect.files().column("key").to_pylist()
    folder = job.folder(ctx)
    ctx.store.put(ctx.key(f"{folder}part-0.parquet"), ctx.store.get(ctx.key(key)).body)
    ctx.store.put(ctx.key(f"{folder}_SUCCESS"), b"")
    for _ in range(2):
        told = job.take_over(ctx, folder, base=loaded)
    assert told.applied_before and ids(table) == [1, 1]


@pytest.fixture
def lived(tmp_path: Any) -> inlay.Table:
    table = new(tmp_path)
    table.append(rows(1, 2, 3))
    table.upsert(rows(2, 9, part="new"))
    table.delete("id = 1")
    table.maintain.compact(small_bytes=1 << 30)
    table.append(rows(20, 21))
    return table


def test_changes_read_in_parts_are_the_changes(lived: inlay.Table) -> None:
    ctx = inlay.connect(lived.uri)
    schema = FeedParts.schema_of(lived.snapshot, 1)
    feed = FeedParts(
        schema=schema,
        ids=tuple(f.id for f in schema.fields),
        key=lived.snapshot.primary_key,
    )
    steps = feed.steps(ctx, 1, lived.version)
    parts = pickle.loads(pickle.dumps([part for step in steps for part in step.parts(ctx)]))
    found = [row for part in parts for batch in part.read(ctx) for row in batch.to_pylist()]
    expected = lived.changes(1).to_arrow().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert all(task.file.stats == {} for part in parts for task in part.tasks)


def test_rows_that_versions_add_are_those_of_their_files(lived: inlay.Table) -> None:
    ctx = inlay.connect(lived.uri)
    schema = lived.snapshot.schema
    feed = FeedParts(schema=schema, ids=tuple(f.id for f in schema.fields))
    current = load_pointer(ctx)
    added = [feed.added(ctx, current, version) for version in range(2, lived.version + 2)]
    # What a compaction wrote was there before, and a version that is yet to come adds nothing.
    assert [sum(task.file.rows for task in tasks) for tasks in added] == [3, 2, 0, 0, 2, 0]
    live = feed.added(ctx, current, lived.version, live=True)
    assert sum(task.file.rows for task in live) == 5


def test_a_slice_that_others_order_is_one_run(tmp_path: Any) -> None:
    table = new(tmp_path, properties={"compact.strategy": "sort", "compact.columns": "id"})
    for start in range(5):
        table.append(rows(*range(start, 500, 5)))
    ctx = inlay.connect(table.uri)
    plan = ClusterPlan.of(ctx, load_pointer(ctx), slice_bytes=1 << 30)
    assert ([len(one) for one in plan.slices], plan.others) == ([5], 0)
    writer = pickle.loads(pickle.dumps(plan.writer(ctx)))
    ordered = table.scan().to_arrow().sort_by("id")
    outputs = [
        f for half in (ordered[:250], ordered[250:]) for f in writer.write(ctx, half.to_batches())
    ]
    assert plan.commit(ctx, plan.slices[0], outputs) == (True, table.refresh().version)
    assert ids(table) == list(range(500))
    assert table.inspect.files().num_rows == 2
    assert ClusterPlan.of(ctx, load_pointer(ctx), slice_bytes=1 << 30).slices == ()
    # Somebody else has changed the files meanwhile.
    assert plan.commit(ctx, plan.slices[0], outputs)[0] is False
    assert ids(table) == list(range(500))


def test_a_scan_in_parts_is_the_scan(lived: inlay.Table) -> None:
    ctx = inlay.connect(lived.uri)
    snapshot = ScanParts.snapshot(ctx)
    schema = snapshot.schema
    scan = ScanParts(schema=schema, ids=tuple(f.id for f in schema.fields), placed=True)
    where = parse_predicate("id < 21", schema)
    tasks = pickle.loads(pickle.dumps(ScanParts.plan(ctx, snapshot, where)))
    read = pickle.loads(pickle.dumps(scan)).read
    found = [row for task in tasks for batch in read(ctx, [task]) for row in batch.to_pylist()]
    columns = [*schema.names, *ScanParts.PLACE]
    asked = lived.scan(where="id < 21", columns=columns).to_arrow().to_pylist()
    assert found == asked and len(found) == ScanParts.count(ctx, snapshot, where) == 4
    first = ScanParts.snapshot(ctx, version=2)
    assert ScanParts.count(ctx, first) == 3
    assert ScanParts.snapshot(ctx, as_of_us=first.commit.time_us).version == 2


def test_rows_that_others_find_are_replaced_once(lived: inlay.Table) -> None:
    ctx = inlay.connect(lived.uri)
    begun = load_pointer(ctx)
    where = parse_predicate("id >= 20", lived.snapshot.schema)
    versions = []

    def find(change: PartedChange) -> PartedChange:
        """The rows from 20 on, a hundred later; another writer adds one meanwhile."""
        versions.append(change.snapshot.version)
        schema = change.snapshot.schema
        scan = ScanParts(schema=schema, ids=tuple(f.id for f in schema.fields), placed=True)
        gone: dict[str, BitMap64] = {}
        new = []
        for task in change.tasks(where):
            for row in pa.Table.from_batches(scan.read(ctx, [task])).to_pylist():
                gone.setdefault(row["_file"], BitMap64()).add(row["_pos"])
                new.append(row["id"] + 100)
        if len(versions) == 1:
            lived.append(rows(30))
        return change.replacing(gone, change.writer.write(ctx, rows(*new).to_batches()))

    request = Request.of("later")
    for applied_before in (False, True):
        done = PartedChange.commit(ctx, load_pointer(ctx), find, request=request, plans=5)
        assert (done.applied_before, done.version) == (applied_before, begun.snapshot.version + 2)
    assert versions == [begun.snapshot.version, begun.snapshot.version + 1]
    assert ids(lived) == [2, 3, 9, 120, 121, 130]
    # Files that lose all of their rows go as a whole.
    markers = load_entries(ctx, load_pointer(ctx).state).markers()
    assert not [marker for marker in markers if marker.is_positional]

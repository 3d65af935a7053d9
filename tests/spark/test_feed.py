"""The change feed in Spark: what `Table.changes` returns, by batch and as a stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay

from .streams import run_to_end

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
Change = tuple[int, str, int, str]


def rows(*ids: int, name: str = "n") -> pa.Table:
    return pa.table({"id": list(ids), "name": [name] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def lived(new_table: NewTable) -> inlay.Table:
    """Versions: 2 append, 3 append, 4 tombstone, 5 surgery, 6 compaction, 7 update, 8 upsert."""
    t = new_table(rows(1, 2, 3, 4), primary_key="id")
    t.append(rows(5, 6, 7))
    t.delete("id = 2")
    t.delete("id = 6", mode="surgery")
    t.maintain.compact(small_bytes=1 << 30)
    t.update({"name": "'u'"}, where="id = 3")
    t.upsert(rows(4, 9, name="up"))
    return t


def told(t: inlay.Table, since: int) -> list[Change]:
    return changes(t.changes(since).to_arrow().to_pylist())


def changes(found: list[dict[str, Any]]) -> list[Change]:
    return sorted(
        (row["_commit_version"], row["_change_type"], row["id"], row["name"]) for row in found
    )


def test_a_batch_is_what_the_table_reports(spark: Any, lived: inlay.Table) -> None:
    reader = spark.read.format("inlay").option("changeFeed", "true")
    frame = reader.option("startVersion", 3).load(lived.uri)
    # Spark hands times out without a zone.
    found = frame.selectExpr("*", "unix_micros(_commit_timestamp) us").collect()
    assert changes([row.asDict() for row in found]) == told(lived, 2)
    times = {v["version"]: v["time"] for v in lived.inspect.history().to_pylist()}
    assert all(r.us == round(times[r["_commit_version"]].timestamp() * 1e6) for r in found)


def test_its_columns_are_found_in_any_case(spark: Any, lived: inlay.Table) -> None:
    reader = spark.read.format("inlay").options(changeFeed="true", startVersion=3, columns="ID")
    found = reader.load(lived.uri).select("_change_type", "id").collect()
    assert sorted(found) == sorted((kind, n) for _, kind, n, _ in told(lived, 2))


def test_a_batch_ends_with_the_version_that_is_asked_for(spark: Any, lived: inlay.Table) -> None:
    reader = spark.read.format("inlay").options(changeFeed="true", startVersion=3, version=5)
    found = changes([row.asDict() for row in reader.load(lived.uri).collect()])
    assert found == [change for change in told(lived, 2) if change[0] <= 5]
    assert {version for version, *_ in found} == {3, 4, 5}


def test_a_stream_reports_existing_rows_and_then_each_change_once(
    spark: Any, lived: inlay.Table, tmp_path: Path
) -> None:
    def follow(**options: Any) -> list[Change]:
        found: list[dict[str, Any]] = []

        def collect(batch: Any, batch_id: int) -> None:
            found.extend(row.asDict() for row in batch.collect())

        run_to_end(
            spark.readStream.format("inlay")
            .options(changeFeed="true", **options)
            .load(lived.uri)
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        return changes(found)

    there = follow()
    assert {kind for _, kind, _, _ in there} == {"insert"}
    assert [(i, n) for _, _, i, n in there] == sorted(
        (r["id"], r["name"]) for r in lived.scan().to_arrow().to_pylist()
    )
    before = lived.version
    lived.delete("id = 1")
    lived.maintain.compact(small_bytes=1 << 30)
    lived.append(rows(20))
    assert follow() == told(lived, before)
    assert follow() == []


def test_a_stream_can_start_at_a_version_and_take_little_at_a_time(
    spark: Any, lived: inlay.Table, tmp_path: Path
) -> None:
    batches: list[list[Change]] = []

    def collect(batch: Any, batch_id: int) -> None:
        batches.append(changes([row.asDict() for row in batch.collect()]))

    run_to_end(
        spark.readStream.format("inlay")
        .options(changeFeed="true", startVersion=2, maxFilesPerTrigger=1)
        .load(lived.uri)
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    assert sorted(c for batch in batches for c in batch) == told(lived, 1)
    assert max(len({version for version, *_ in batch}) for batch in batches) == 1


def test_changes_over_a_restore_past_a_widening(
    spark: Any, new_table: NewTable, tmp_path: Path
) -> None:
    narrow = pa.schema([pa.field("id", pa.int32()), ("name", pa.string())])
    t = new_table(rows(1, 2).cast(narrow))
    before = t.version
    t.alter(widen={"id": pa.int64()})
    t.append(rows(2**40, name="far"))
    t.refs.restore(version=before)
    assert t.schema.field("id").type == pa.int32()

    reader = spark.read.format("inlay").option("changeFeed", "true")
    found = reader.option("startVersion", 1).load(t.uri).collect()
    assert changes([row.asDict() for row in found]) == told(t, 0)
    assert ("insert", 2**40) in {(r["_change_type"], r["id"]) for r in found}

    batches: list[dict[str, Any]] = []
    run_to_end(
        spark.readStream.format("inlay")
        .options(changeFeed="true")
        .load(t.uri)
        .writeStream.foreachBatch(
            lambda batch, _: batches.extend(row.asDict() for row in batch.collect())
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    assert [(kind, i) for _, kind, i, _ in changes(batches)] == [("insert", 1), ("insert", 2)]

"""Streaming into a table: every micro-batch once, whatever is repeated."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import inlay
from inlay.errors import InvalidRequest, TableReplaced
from inlay.format.codec import encode_snapshot
from inlay.format.keys import POINTER
from inlay.format.snapshot import Tier
from inlay.ops.commit import driver
from inlay.spark.merge_sink import MergeSink
from inlay.spark.options import write_options
from inlay.spark.sink import InlayStreamWriter, commit_batch
from inlay.spark.types import spark_schema
from inlay.storage.directory import DirectoryStore, system_now_us

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
WEEKS_US = 10 * 7 * 86_400 * 1_000_000


class Landing:
    """A folder of JSON files that a query reads, one file a batch, into a table: as it is, or merged."""

    def __init__(self, spark: Any, folder: Path, table: inlay.Table, *, merges: bool) -> None:
        self.spark, self.folder, self.table, self.merges = spark, folder, table, merges
        self.checkpoint = folder / "checkpoint"
        self.files = 0
        (folder / "in").mkdir()

    def drop(self, *ids: int) -> None:
        lines = "".join(f'{{"id": {i}, "name": "n{i}"}}\n' for i in ids)
        (self.folder / "in" / f"{self.files}.json").write_text(lines)
        self.files += 1

    def run(self) -> None:
        """Everything there is, then stop."""
        rows = (
            self.spark.readStream.schema("id bigint, name string")
            .option("maxFilesPerTrigger", 1)
            .json(str(self.folder / "in"))
        )
        if self.merges:
            sink = MergeSink(self.table.uri, order="name", op=None)
            writer, target = rows.writeStream.foreachBatch(sink), ()
        else:
            writer, target = rows.writeStream.format("inlay"), (self.table.uri,)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start(*target)
        query.awaitTermination()
        self.table.refresh()

    def forget_last_commit(self) -> None:
        """As a driver that died after the table's commit and before its own checkpoint."""
        commits = self.checkpoint / "commits"
        last = max((p for p in commits.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture(params=["append", pytest.param("merge", marks=pytest.mark.wide)])
def landing(
    spark: Any, tmp_path: Path, new_table: NewTable, request: pytest.FixtureRequest
) -> Landing:
    table = new_table(SCHEMA, primary_key="id")
    return Landing(spark, tmp_path, table, merges=request.param == "merge")


def ids(table: inlay.Table) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())


def forget_requests(table: inlay.Table) -> None:
    snapshot = table.refresh().snapshot
    assert snapshot.ledger.records.inline
    ledger = replace(snapshot.ledger, records=Tier(), horizon_us=snapshot.commit.time_us)
    pointer = Path(table.uri.removeprefix("file://")) / POINTER
    pointer.write_bytes(encode_snapshot(replace(snapshot, ledger=ledger)))


def test_a_query_killed_before_its_checkpoint_adds_its_batch_once(landing: Landing) -> None:
    landing.drop(1, 2)
    landing.drop(3)
    landing.run()
    assert ids(landing.table) == [1, 2, 3]
    assert landing.table.version == 3  # one commit for each batch
    landing.forget_last_commit()
    landing.drop(4)
    landing.run()
    assert ids(landing.table) == [1, 2, 3, 4]
    assert landing.table.version == 4


def test_a_query_that_was_killed_and_started_again_weeks_later_adds_its_batch_once(
    landing: Landing,
) -> None:
    landing.drop(1, 2)
    landing.run()
    landing.forget_last_commit()
    # By then the ledger has forgotten the requests, and others have written.
    forget_requests(landing.table)
    later = DirectoryStore(now_us=lambda: system_now_us() + WEEKS_US)
    ctx = replace(inlay.connect(landing.table.uri), store=later)
    table = inlay.open(landing.table.uri, context=ctx)
    table.append(pa.table({"id": [100], "name": ["z"]}, schema=SCHEMA))
    landing.drop(3)
    landing.run()
    assert ids(landing.table) == [1, 2, 3, 100]
    assert landing.table.version == 4  # what was repeated made none


def test_a_merge_that_died_between_its_data_and_its_commit_is_made_once(
    spark: Any, tmp_path: Path, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(spark, tmp_path, new_table(SCHEMA, primary_key="id"), merges=True)
    landing.drop(1, 2)

    def dies(*_: Any, **__: Any) -> Any:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(driver, "commit", dies)
        with pytest.raises(Exception, match="killed"):
            landing.run()
    assert ids(landing.table.refresh()) == []
    landing.run()
    assert ids(landing.table) == [1, 2]


def test_rows_are_written_after_an_erasure(landing: Landing, spark: Any) -> None:
    """Which leaves the time of its boundary open until the next commit."""
    landing.drop(1, 2)
    landing.run()
    landing.table.delete("id = 1", mode="erase")
    landing.drop(3)
    landing.run()
    assert ids(landing.table) == [2, 3]
    landing.table.delete("id = 2", mode="erase")
    rows = spark.createDataFrame([(4, "x")], "id long, name string")
    rows.write.format("inlay").mode("append").save(landing.table.uri)
    assert ids(landing.table.refresh()) == [3, 4]


def test_a_batch_is_known_after_the_ledger_forgot_its_request(new_table: NewTable) -> None:
    table = new_table(pa.table({"id": [1], "name": ["a"]}, schema=SCHEMA))
    [file] = table.inspect.entries()[0]
    started_us = table.snapshot.commit.time_us
    copies = [replace(file, key=f"{file.key}{n}") for n in range(3)]
    assert commit_batch(table.uri, table.snapshot, "q", 0, (copies[0],), started_us)
    assert commit_batch(table.uri, table.snapshot, "q", 1, (copies[1],), started_us)
    table.refresh()
    assert dict(table.snapshot.ledger.streams) == {"q": 1}
    # Its request may have left the ledger: the last batch alone shows it.
    assert not commit_batch(table.uri, table.snapshot, "q", 1, (copies[2],), started_us)
    assert commit_batch(table.uri, table.snapshot, "another query", 0, (copies[2],), started_us)


def test_a_checkpoint_that_was_put_back_takes_no_new_rows_for_old_ones(landing: Landing) -> None:
    landing.drop(1)
    landing.run()
    older = landing.checkpoint.with_name("older")
    shutil.copytree(landing.checkpoint, older)
    landing.drop(2)
    landing.drop(3)
    landing.run()
    shutil.rmtree(landing.checkpoint)
    older.rename(landing.checkpoint)
    (landing.folder / "in" / "1.json").unlink()
    (landing.folder / "in" / "2.json").unlink()
    landing.drop(4)
    with pytest.raises(Exception, match="its checkpoint is older than the table"):
        landing.run()
    assert ids(landing.table.refresh()) == [1, 2, 3]


def test_a_second_merge_of_a_batch_into_the_same_table_is_refused(
    spark: Any, tmp_path: Path, new_table: NewTable
) -> None:
    table, other = new_table(SCHEMA, primary_key="id"), new_table(SCHEMA, primary_key="id")
    (tmp_path / "in").mkdir()
    sinks = [MergeSink(found.uri, order="name", op=None) for found in (table, other, table)]

    def each(records: Any, batch: int) -> None:
        for number, sink in enumerate(sinks):
            sink(records.where(f"id % 2 = {number % 2}"), batch)

    def run(function: Any) -> None:
        rows = spark.readStream.schema("id bigint, name string").json(str(tmp_path / "in"))
        query = rows.writeStream.foreachBatch(function).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "point")).start().awaitTermination()

    (tmp_path / "in" / "0.json").write_text('{"id": 0, "name": "a"}\n{"id": 1, "name": "b"}\n')
    with pytest.raises(Exception, match=r"was merged into .* already"):
        run(each)
    sinks.pop()
    run(each)  # the same batch: what was merged is left alone
    (tmp_path / "in" / "1.json").write_text('{"id": 2, "name": "a"}\n{"id": 3, "name": "b"}\n')
    run(each)
    assert (ids(table.refresh()), ids(other.refresh())) == ([0, 2], [1, 3])


def test_rows_that_do_not_fit_fail_the_query_and_not_the_table(
    spark: Any, tmp_path: Path, new_table: NewTable
) -> None:
    table = new_table(SCHEMA)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": "one"}\n')
    rows = spark.readStream.schema("id string").json(str(tmp_path / "in"))
    query = (
        rows.writeStream.format("inlay")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(table.uri)
    )
    with pytest.raises(Exception, match="column 'id' is string in the data"):
        query.awaitTermination()
    assert table.refresh().version == 1


@pytest.mark.parametrize(
    ("mode", "complaint"),
    [("update", "does not support Update mode"), ("complete", "only appends")],
)
def test_a_stream_that_would_replace_rows_is_refused(
    spark: Any, tmp_path: Path, new_table: NewTable, mode: str, complaint: str
) -> None:
    table = new_table(pa.schema([("name", pa.string()), ("n", pa.int64())]))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 0, "name": "a"}')
    rows = spark.readStream.schema("id bigint, name string").json(str(tmp_path / "in"))
    counts = rows.groupBy("name").agg({"id": "count"}).toDF("name", "n")
    query = counts.writeStream.outputMode(mode).format("inlay").trigger(availableNow=True)
    with pytest.raises(Exception, match=complaint):
        query.option("checkpointLocation", str(tmp_path / "point")).start(
            table.uri
        ).awaitTermination()
    assert table.refresh().version == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"replaceWhere": "id = 1"}, "only appends"),
        ({"partitionOverwriteMode": "dynamic"}, "only appends"),
        ({"requestId": "r"}, "known by their query"),
        ({"mergeSchema": "true"}, "neither creates nor alters"),
        ({"primaryKey": "id"}, "neither creates nor alters"),
    ],
)
def test_what_a_stream_does_not_do_is_refused(options: dict[str, str], complaint: str) -> None:
    asked = write_options({"path": "file:///nowhere", **options})
    with pytest.raises(InvalidRequest, match=complaint):
        InlayStreamWriter(asked, StructType(), overwrite=False)


def test_a_stream_with_a_tables_id_writes_into_no_other(new_table: NewTable) -> None:
    table = new_table(SCHEMA)
    schema = spark_schema(table.snapshot.schema)
    asked = write_options({"path": table.uri, "tableId": "another"})
    with pytest.raises(TableReplaced):
        InlayStreamWriter(asked, schema, overwrite=False).write(iter(()))

"""What was begun on a table that is then removed and created again never reaches the new one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pipelines.bulk_load as bulk_load
import pyarrow as pa
import pytest

import inlay
from inlay.errors import TableReplaced
from inlay.ops.write.recent_rows import RecentRows
from inlay.spark import (
    InlayTable,
    append,
    cluster,
    dml,
    executors,
    maintenance,
    native_append,
    read,
)
from inlay.spark import merge as merging
from inlay.spark.connect import load_snapshot
from inlay.spark.feed import feed_columns, feed_schema
from inlay.spark.feed_stream import InlayFeedStream
from inlay.spark.merge import merge
from inlay.spark.options import read_options, write_options
from inlay.spark.sink import commit_batch
from inlay.spark.stream import InlayStreamReader
from inlay.spark.types import spark_schema
from inlay.spark.writer import InlayWriter, plan_write

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]
Hook = Callable[..., None]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("seq", pa.int64())])
OURS = "id bigint, seq bigint"


class Lived:
    """A table with deletes and small files, and whatever takes its place."""

    def __init__(self, new_table: NewTable) -> None:
        self.table = new_table(SCHEMA, primary_key="id", sort_by="id")
        self.fill(self.table, 0)

    @property
    def uri(self) -> str:
        return self.table.uri

    def fill(self, table: inlay.Table, start: int) -> None:
        for n in range(start, start + 4):
            table.append(pa.table({"id": [n, n + 100], "seq": [1, 1]}, SCHEMA))
        table.delete(f"id = {start}")

    def replace(self) -> None:
        shutil.rmtree(self.uri.removeprefix("file://"))
        self.new = inlay.create(self.uri, SCHEMA, primary_key="id", sort_by="id")
        self.fill(self.new, 1000)

    def is_untouched(self) -> bool:
        version = self.new.version
        return self.new.refresh().version == version and self.new.count() == 7


@pytest.fixture
def lived(new_table: NewTable) -> Lived:
    return Lived(new_table)


@contextmanager
def refused(lived: Lived) -> Iterator[None]:
    """Inlay's own error, or Spark's with it."""
    with pytest.raises(Exception) as caught:
        yield
    assert isinstance(caught.value, TableReplaced) or "TableReplaced" in str(caught.value)
    assert lived.is_untouched()


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch, lived: Lived) -> Hook:
    """Replaces the table after the first call of a function."""

    def hook(owner: Any, name: str) -> None:
        original = getattr(owner, name)
        calls: list[None] = []

        def call(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            if not calls:
                calls.append(None)
                lived.replace()
            return found

        monkeypatch.setattr(owner, name, call)

    return hook


def rows(spark: Any, *ids: int) -> Any:
    return spark.createDataFrame([(n, 2) for n in ids], OURS)


def test_a_write_by_the_source(lived: Lived) -> None:
    options = write_options({"path": lived.uri})
    _, job = plan_write(options, spark_schema(lived.table.snapshot.schema), overwrite=False)
    writer = InlayWriter(job)
    written = writer.write(iter([pa.record_batch({"id": [7], "seq": [7]})]))
    lived.replace()
    with refused(lived):
        writer.commit([written])


@pytest.mark.parametrize("step", ["_write", "plan_write"])
@pytest.mark.parametrize("native", ["auto", "never"])
def test_an_append(spark: Any, lived: Lived, after: Hook, native: Any, step: str) -> None:
    if (native, step) == ("never", "_write"):
        pytest.skip("Spark's own writer does not run")
    after(native_append, step)
    with refused(lived):
        append(rows(spark, 7), lived.uri, native=native)


def test_a_load_in_parts(spark: Any, lived: Lived, after: Hook, tmp_path: Path) -> None:
    rows(spark, 7, 8).repartition(2).write.parquet(str(tmp_path / "source"))
    after(bulk_load, "append")
    arguments = ["--table", lived.uri, "--source", str(tmp_path / "source"), "--part-files", "1"]
    assert bulk_load.main([*arguments, "--format", "parquet", "--request-id", "r"]) != 0
    assert lived.is_untouched()


CHANGES: dict[str, Callable[[InlayTable, Any], Any]] = {
    "update": lambda table, _: table.update({"seq": "seq + 1"}),
    "delete": lambda table, _: table.delete("id > 1"),
    "merge": lambda table, new: (
        table.alias("t").merge(new, "t.id = id2").whenMatchedUpdate(set={"seq": "seq2"}).execute()
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_by_sql_in_python(spark: Any, lived: Lived, after: Hook, name: str) -> None:
    new = rows(spark, 1, 1001).toDF("id2", "seq2")
    opened = InlayTable(spark, lived.uri)
    after(dml, "_write")
    with refused(lived):
        CHANGES[name](opened, new)
    with refused(lived):  # from now on it is another table
        CHANGES[name](opened, new)
    with refused(lived):
        opened.toDF()


def test_a_merge_of_records(spark: Any, lived: Lived, after: Hook) -> None:
    after(merging, "_write")
    with refused(lived):
        merge(rows(spark, 1, 1001), lived.uri, order="seq", op=None)


def test_a_stream_of_merges(spark: Any, lived: Lived) -> None:
    recent = RecentRows()
    merge(rows(spark, 1), lived.uri, order="seq", op=None, batch=("q", 0), recent=recent)
    lived.replace()
    with refused(lived):
        merge(rows(spark, 2), lived.uri, order="seq", op=None, batch=("q", 1), recent=recent)


def test_a_micro_batch(lived: Lived) -> None:
    [file] = lived.table.inspect.entries()[0][:1]
    begun = lived.table.snapshot
    lived.replace()
    with refused(lived):
        commit_batch(lived.uri, begun, "q", 0, (file,), begun.commit.time_us)


@pytest.mark.parametrize("verb", ["compact", "materialize_deletes"])
def test_maintenance(spark: Any, lived: Lived, after: Hook, verb: str) -> None:
    after(executors.Executors, "run")
    with refused(lived):
        getattr(maintenance, verb)(spark, lived.uri)


def test_an_order(spark: Any, lived: Lived, after: Hook) -> None:
    after(cluster, "_write")
    with refused(lived):
        cluster.cluster(spark, lived.uri)


def test_a_dataframe(spark: Any, lived: Lived) -> None:
    native, source = read(spark, lived.uri), spark.read.format("inlay").load(lived.uri)
    lived.replace()
    with pytest.raises(Exception, match=r"does not exist|FileNotFound|FILE_NOT_EXIST"):
        native.collect()
    with refused(lived):
        source.collect()


def streams(uri: str) -> Iterator[Any]:
    snapshot = load_snapshot(uri)
    options = read_options({"path": uri})
    yield InlayStreamReader(options, snapshot, spark_schema(snapshot.schema))
    asked = feed_schema(feed_columns(options, snapshot), None)
    yield InlayFeedStream(options, snapshot, asked)


def test_a_stream_of_rows_or_changes(lived: Lived) -> None:
    for stream in streams(lived.uri):
        start = json.loads(json.dumps(stream.initialOffset()))
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        assert stream.partitions(start, end)
    [*begun] = streams(lived.uri)
    lived.replace()
    for stream in begun:
        with refused(lived):
            stream.latestOffset(start, stream.getDefaultReadLimit())
    for stream in streams(lived.uri):
        with refused(lived):
            stream.latestOffset(start, stream.getDefaultReadLimit())
        with refused(lived):
            stream.partitions(start, end)

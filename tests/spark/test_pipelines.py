"""The jobs, as they are called."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipelines import (
    bulk_load,
    collect_garbage,
    compact,
    job,
    materialize_deletes,
    merge,
    publish,
    retention,
)
from pipelines.compact import handed_over

import inlay

from .conftest import rows

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]


@pytest.fixture
def call(
    spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """Runs a job's `main` in the session of the tests; what it prints on stdout."""
    monkeypatch.setattr(job, "_session", lambda asked: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)

    def run(main: Callable[[list[str]], int], *arguments: str) -> dict[str, Any]:
        assert main(list(arguments)) == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told

    return run


def test_a_bulk_load_creates_a_sorted_table_once(
    call: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    ids = [n * 7 % 1000 for n in range(1000)]
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), tmp_path / "dump.parquet")
    uri = f"file://{tmp_path}/table"
    arguments = ("--table", uri, "--source", str(tmp_path / "dump.parquet"), "--create")
    arguments += ("--sort-by", "id", "--files", "4", "--request-id", "dump 1")
    assert call(bulk_load.main, *arguments, "--dry-run")["schema"] == "struct<id:bigint>"
    first = call(bulk_load.main, *arguments)
    assert (first["committed"], first["rows"], first["files"]) == (True, 1000, 4)
    assert call(bulk_load.main, *arguments)["committed"] is False
    table = inlay.open(uri)
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == sorted(ids)
    bounds = sorted((f.stats[1].lower, f.stats[1].upper) for f in table.inspect.entries()[0])
    assert all(left[1] < right[0] for left, right in pairwise(bounds))


def test_a_load_in_parts_goes_on_where_it_was_killed(
    call: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dump").mkdir()
    for n in range(5):
        rows = pa.table({"id": pa.array(range(n * 10, n * 10 + 10), pa.int64())})
        pq.write_table(rows, tmp_path / "dump" / f"{n}.parquet")
    uri = f"file://{tmp_path}/table"
    arguments = ("--table", uri, "--source", str(tmp_path / "dump"), "--create")
    arguments += ("--request-id", "dump", "--part-files", "2", "--sort-by", "id")
    assert call(bulk_load.main, *arguments, "--dry-run")["parts"] == 3
    load = bulk_load._load

    def killed(*parts: Any) -> None:
        if inlay.open(uri).version == 3:
            raise KeyboardInterrupt
        load(*parts)

    monkeypatch.setattr(bulk_load, "_load", killed)
    with pytest.raises(KeyboardInterrupt):
        call(bulk_load.main, *arguments)
    assert inlay.open(uri).count() == 40
    monkeypatch.setattr(bulk_load, "_load", load)
    told = call(bulk_load.main, *arguments)
    assert (told["parts"], told["parts_loaded"], told["rows"]) == (3, 1, 10)
    assert inlay.open(uri).count() == 50
    assert call(bulk_load.main, *arguments)["committed"] is False


def test_retention_deletes_what_is_older_once_a_day(
    call: Callable[..., dict[str, Any]], new_table: NewTable
) -> None:
    now = datetime.now(UTC)
    ages = [0, 1, 5, 29, 31, 40, 400]
    times = [now - timedelta(days=age) for age in ages]
    schema = pa.schema([("age", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    table = new_table(schema)
    table.append(pa.table({"age": [*ages, -1], "at": [*times, None]}, schema=schema))
    table.append(pa.table({"age": [400], "at": [times[-1]]}, schema=schema))
    arguments = ("--table", table.uri, "--column", "at", "--days", "30")
    told = call(retention.main, *arguments, "--dry-run")
    assert (told["files_wholly_older"], told["files_partly_older"]) == (1, 1)
    assert table.refresh().version == 3
    told = call(retention.main, *arguments)
    assert (told["committed"], told["deleted_files"]) == (True, 1)
    left = table.refresh().scan().to_arrow().column("age").to_pylist()
    assert sorted(left) == [-1, 0, 1, 5, 29]
    again = call(retention.main, *arguments, "--materialize", "--metrics", "Lake")
    assert (again["committed"], again["removed_rows"]) == (False, 3)
    [metrics] = again["_aws"]["CloudWatchMetrics"]
    assert {"Name": "seconds", "Unit": "Seconds"} in metrics["Metrics"]
    assert (again["job"], again["table"]) == ("retention", table.uri)
    assert table.refresh().inspect.tombstones().num_rows == 0


def test_retention_needs_a_column_of_times(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(job, "_session", lambda asked: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    table = new_table(pa.table({"id": [1]}))
    assert retention.main(["--table", table.uri, "--column", "id", "--days", "30"]) == 1
    assert "'id' is int64, not a date or time" in capsys.readouterr().err


def test_garbage_is_collected_by_a_job(
    call: Callable[..., dict[str, Any]], new_table: NewTable
) -> None:
    table = new_table(pa.table({"id": [1]}))
    orphan = Path(table.uri.removeprefix("file://")) / "data" / "orphan.parquet"
    orphan.write_bytes(b"orphan")
    os.utime(orphan, (0, 0))
    told = call(collect_garbage.main, "--table", table.uri, "--dry-run")
    assert (told["objects"], told["kinds"]) == (1, {"data": 1})
    assert call(collect_garbage.main, "--table", table.uri, "--grace-days", "1")["objects"] == 1
    assert not orphan.exists()


@pytest.mark.parametrize("name", sorted(p.stem for p in Path(job.__file__).parent.glob("*.py")))
def test_help_teaches(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"pipelines.{name}")
    if not hasattr(module, "main") or name in ("orders_demo", "orders_sql"):  # demonstrations
        pytest.skip("not a job")
    with pytest.raises(SystemExit):
        module.main(["--help"])
    told = capsys.readouterr().out
    assert f"python -m pipelines.{name}" in told
    assert "--dry-run" in told and "killed" in told  # and what then


def test_maintenance_jobs_say_what_they_would_do_and_do_it(
    call: Callable[..., dict[str, Any]], new_table: NewTable
) -> None:
    table = new_table(pa.table({"id": pa.array(range(100), pa.int64())}))
    table.append(pa.table({"id": pa.array(range(100, 200), pa.int64())}))
    table.delete("id < 10")
    told = call(materialize_deletes.main, "--table", table.uri, "--dry-run")
    assert (told["files"], told["files_with_deletes"]) == (2, 1)
    assert table.refresh().version == 4
    told = call(materialize_deletes.main, "--table", table.uri)
    assert (told["removed_rows"], told["removed_markers"]) == (10, 1)
    told = call(compact.main, "--table", table.uri, "--dry-run")
    assert told["units"] == {"pack": 1}
    assert call(compact.main, "--table", table.uri)["output_files"] == 1
    assert table.refresh().count() == 190


def test_a_change_stream_is_merged_batch_by_batch_across_runs(
    call: Callable[..., dict[str, Any]], new_table: NewTable, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("status", pa.string()), ("seq", pa.int64())])
    table = new_table(schema, primary_key="id")
    landing = tmp_path / "changes"
    landing.mkdir()
    arguments = ("--table", table.uri, "--source", str(landing), "--order", "seq")
    arguments += ("--schema", "op string, id bigint, status string, seq bigint")
    arguments += ("--checkpoint", str(tmp_path / "checkpoint"), "--max-files", "1")
    # Files of one second come in any order.

    def drop(name: str, *records: dict[str, Any]) -> None:
        (landing / name).write_text("".join(json.dumps(record) + "\n" for record in records))

    drop("0.json", {"op": "I", "id": 1, "status": "new", "seq": 1}, {"op": "I", "id": 2, "seq": 2})
    drop("1.json", {"op": "U", "id": 1, "status": "paid", "seq": 3}, {"op": "D", "id": 2, "seq": 4})
    told = call(merge.main, *arguments)
    assert (told["batches"], told["committed"]) == (2, 2)
    assert table.refresh().scan().to_arrow().to_pylist() == [{"id": 1, "status": "paid", "seq": 3}]
    drop("2.json", {"op": "D", "id": 1, "seq": 5})
    assert call(merge.main, *arguments)["deleted_keys"] == 1
    assert table.refresh().count() == 0


def test_records_that_cannot_be_merged_end_the_job_with_the_reason(
    call: Callable[..., dict[str, Any]],
    new_table: NewTable,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    schema = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("note", pa.string())])
    rows = {"id": [1, 2], "seq": [1, 1], "note": ["a", "b"]}
    table = new_table(pa.table(rows, schema=schema), primary_key="id")
    landing = tmp_path / "changes"
    landing.mkdir()
    records = [{"type": "UPDATE", "id": 1, "seq": 2}, {"type": "REMOVE", "id": 2, "seq": 2}]
    (landing / "0.json").write_text("".join(json.dumps(record) + "\n" for record in records))
    arguments = ["--table", table.uri, "--source", str(landing), "--order", "seq"]
    arguments += ["--schema", "type string, id bigint, seq bigint"]
    for more in ([], ["--checkpoint", str(tmp_path / "checkpoint")]):
        assert merge.main([*arguments, *more, "--operations", "canal"]) == 1
        said = capsys.readouterr().err
        assert "1 change records have an operation that is not known: 'REMOVE' in 1" in said
        assert "Traceback" not in said
    assert table.refresh().version == 2
    known = ("--op", "type", "--rows", "UPDATE", "--deletes", "REMOVE")
    assert call(merge.main, *arguments, *known)["deleted_keys"] == 1
    assert table.refresh().scan().to_arrow().to_pylist() == [{"id": 1, "seq": 2, "note": "a"}]


def test_a_missing_table_ends_a_job_with_the_next_step(
    spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "_session", lambda asked: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    assert compact.main(["--table", "file:///tmp/inlay-nowhere"]) == 1
    assert "TableNotFound" in capsys.readouterr().err


class _Queue:
    """Messages as SQS hands them out."""

    def __init__(self, *tables: str) -> None:
        self.waiting = [{"Body": json.dumps({"table": t}), "ReceiptHandle": t} for t in tables]
        self.deleted: list[str] = []

    def receive_message(self, **_: object) -> dict[str, object]:
        return {"Messages": self.waiting[:1]} if self.waiting else {}

    def delete_message(self, *, QueueUrl: str, ReceiptHandle: str) -> None:  # noqa: N803
        self.deleted.append(ReceiptHandle)
        self.waiting.pop(0)


def test_handed_over_tables_are_taken_once_and_leave_the_queue_when_done() -> None:
    queue = _Queue("a", "b", "a")
    taken = handed_over(queue, "url")
    assert next(taken) == "a"
    assert queue.deleted == []  # a job that dies here leaves it to the next
    assert list(taken) == ["b"]
    assert queue.deleted == ["a", "b", "a"]


def test_a_load_is_published_to_main_in_one_step(
    call: Callable[..., dict[str, Any]], new_table: Callable[..., inlay.Table], tmp_path: Path
) -> None:
    table = new_table(rows(0), properties={"compact.small_file_bytes": 1 << 20})
    for part in range(3):
        pq.write_table(rows(1_000 * (part + 1)), tmp_path / f"{part}.parquet")
    load = ("--table", table.uri, "--source", str(tmp_path), "--branch", "load-1")
    with pytest.raises(AssertionError):
        call(publish.main, *load, "--check", "id = 1001")
    table.refresh()
    assert table.count() == 400  # main has seen nothing of it
    assert inlay.open(table.uri, ref="load-1").count() == 1_600
    told = call(publish.main, *load, "--check", "id < 0")
    assert told["rows"] == 1_600
    assert table.refresh().inspect.refs()["name"].to_pylist() == ["main"]
    assert table.inspect.files().num_rows == 1
    again = call(publish.main, *load)
    assert (again["published"], again["rows"]) == (False, 1_600)
    # The next night: the same branch and folder, another file. Only the loaded rows are checked.
    for part in range(3):
        (tmp_path / f"{part}.parquet").unlink()
    pq.write_table(rows(9_000, 10), tmp_path / "0.parquet")
    told = call(
        publish.main, *load, "--check", "id < 9000", "--select", "id, concat(name, ', ') name"
    )
    assert (told["published"], told["rows"]) == (True, 1_610)
    assert table.refresh().count(where="name = 'name 1, '") == 1


def test_a_branch_that_holds_another_load_is_not_published_with_it(
    call: Callable[..., dict[str, Any]],
    new_table: Callable[..., inlay.Table],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = new_table(rows(0))
    pq.write_table(rows(1_000, 10), tmp_path / "0.parquet")
    load = ("--table", table.uri, "--source", str(tmp_path), "--branch", "nightly")
    assert (
        publish.main([*load, "--check", "id = 1001"]) == 1
    )  # as if killed: it stays on the branch
    pq.write_table(rows(2_000, 10), tmp_path / "1.parquet")
    assert publish.main(list(load)) == 1
    assert "holds something else" in capsys.readouterr().err
    table.refresh().refs.drop("nightly")
    # LoadedTable before, but never published: it is loaded again.
    (tmp_path / "1.parquet").unlink()
    assert call(publish.main, *load)["rows"] == 410


def test_a_branch_and_a_tag_are_read_by_name(
    spark: Any, new_table: Callable[..., inlay.Table]
) -> None:
    table = new_table(rows(0))
    table.refs.tag("before")
    branch = table.refs.branch("next")
    branch.append(rows(1_000))
    branch.delete("id < 10")
    table.delete("id = 399")

    def counted(**options: str) -> int:
        return int(spark.read.format("inlay").options(**options).load(table.uri).count())

    assert (counted(), counted(ref="before"), counted(ref="next")) == (399, 400, 790)
    assert inlay.spark.read(spark, table.uri, ref="next", where="id < 20").count() == 10
    writer = spark.createDataFrame([], "id bigint").write.format("inlay").mode("append")
    with pytest.raises(Exception, match="cannot be written to"):
        writer.option("ref", "before").save(table.uri)

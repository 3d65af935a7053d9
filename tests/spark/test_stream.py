"""A table as a stream: each added row once, maintenance and deletes notwithstanding."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.tiers import in_short

import inlay
from inlay.errors import InvalidRequest, VersionNotFound
from inlay.spark.connect import at_ref, load_snapshot
from inlay.spark.feed import feed_schema
from inlay.spark.feed_stream import InlayFeedStream
from inlay.spark.options import read_options
from inlay.spark.stream import InlayStreamReader
from inlay.spark.types import spark_schema

from .streams import run_to_end

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])

FEED = {"changeFeed": "true"}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "name": [f"n{i}" for i in ids]}, schema=SCHEMA)


@pytest.fixture
def follow(spark: Any, tmp_path: Path) -> Callable[..., list[list[int]]]:
    """`follow(table, **options)`: the ids of each micro-batch that is new since the last call."""

    def run(table: inlay.Table, **options: Any) -> list[list[int]]:
        batches: list[list[int]] = []

        def collect(batch: Any, batch_id: int) -> None:
            batches.append(sorted(row.id for row in batch.collect()))

        run_to_end(
            spark.readStream.format("inlay")
            .options(**options)
            .load(table.uri)
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        return [batch for batch in batches if batch]

    return run


def test_first_what_there_is_then_what_is_added(
    follow: Callable[..., list[list[int]]], new_table: NewTable
) -> None:
    table = new_table(rows(1, 2, 3), primary_key="id")
    table.delete("id = 2")
    assert follow(table) == [[1, 3]]
    assert follow(table) == []
    table.append(rows(4))
    table.append(rows(5, 6))
    table.delete("id = 5")  # not told: its row was added
    table.maintain.compact()
    table.upsert(rows(1))
    assert follow(table) == [[1, 4, 5, 6]]
    table.maintain.compact()
    assert follow(table) == []


def test_a_batch_takes_no_more_files_than_allowed(
    follow: Callable[..., list[list[int]]], new_table: NewTable
) -> None:
    table = new_table(rows(0))
    for start in range(1, 6):
        table.append(rows(start))
    assert follow(table, maxFilesPerTrigger=4) == [[0, 1, 2, 3], [4, 5]]
    for start in range(6, 9):
        table.append(rows(start))
    # A file larger than the limit is a separate batch.
    assert follow(table, maxBytesPerTrigger=1) == [[6], [7], [8]]


def test_a_stream_starts_at_a_version_or_a_time(
    follow: Callable[..., list[list[int]]], new_table: NewTable, tmp_path: Path
) -> None:
    table = new_table(rows(0))
    table.append(rows(1))
    table.append(rows(2))
    assert follow(table, startVersion=3) == [[1, 2]]
    times = {row["version"]: row["time"] for row in table.inspect.history().to_pylist()}
    (tmp_path / "checkpoint").rename(tmp_path / "another query")
    assert follow(table, startTime=times[3].isoformat(), where="id < 9") == [[2]]


def test_a_fixed_version_is_no_stream(
    follow: Callable[..., list[list[int]]], new_table: NewTable
) -> None:
    with pytest.raises(Exception, match="no fixed version"):
        follow(new_table(rows(0)), version=2)


@pytest.mark.parametrize("option", in_short([{}, FEED], [{}]))
def test_what_is_published_from_a_branch_is_reported_once(
    follow: Callable[..., list[list[int]]], new_table: NewTable, option: dict[str, str]
) -> None:
    table = new_table(rows(1, 2), primary_key="id")
    assert follow(table, **option) == [[1, 2]]
    branch = table.refs.branch("load")
    branch.append(rows(3))
    branch.append(rows(4, 5))
    branch.delete("id = 5")
    branch.maintain.compact(small_bytes=1 << 30)  # its one file has the rows 1 and 2 as well
    assert branch.refresh().inspect.files().num_rows == 1
    assert follow(table, **option) == []  # main has seen nothing of it
    table.refresh().refs.merge("load")
    assert follow(table, **option) == [[3, 4]]
    table.append(rows(6))
    assert follow(table, **option) == [[6]]


def test_rows_that_a_merge_of_a_branch_brings_are_reported_without_the_deleted(
    follow: Callable[..., list[list[int]]], new_table: NewTable
) -> None:
    table = new_table(rows(1, 2), primary_key="id")
    branch = table.refs.branch("load")
    branch.append(rows(3, 4))
    branch.delete("id = 3")
    table.append(rows(5))
    assert follow(table) == [[1, 2, 5]]
    table.refresh().refs.merge("load")
    assert follow(table) == [[4]]


def test_a_restore_reports_the_rows_that_are_back(
    follow: Callable[..., list[list[int]]], new_table: NewTable
) -> None:
    table = new_table(rows(1, 2), primary_key="id")
    before = table.append(rows(3)).version
    table.delete("id = 3")
    assert follow(table) == [[1, 2]]
    table.refs.restore(version=before)
    assert follow(table) == [[3]]


@pytest.mark.parametrize("option", in_short([{}, FEED], [{}]))
def test_a_branch_is_a_stream_of_its_own(
    follow: Callable[..., list[list[int]]], new_table: NewTable, option: dict[str, str]
) -> None:
    table = new_table(rows(1), primary_key="id")
    branch = table.refs.branch("next")
    branch.append(rows(2))
    assert follow(table, ref="next", **option) == [[1, 2]]
    table.refresh().append(rows(3))  # on main
    branch.refresh().append(rows(4))
    assert follow(table, ref="next", **option) == [[4]]


@pytest.mark.parametrize("option", in_short([{}, FEED], [{}]))
def test_a_query_does_not_go_on_with_another_branch(
    follow: Callable[..., list[list[int]]], new_table: NewTable, option: dict[str, str]
) -> None:
    """What the other one has, and this one had not, is in versions that the query has passed."""
    table = new_table(rows(1), primary_key="id")
    table.refs.branch("next").append(rows(2))
    table.refresh().append(rows(3))
    assert follow(table, **option) == [[1, 3]]
    with pytest.raises(Exception, match=r"has read 'main' of .*, and is now to read 'next'"):
        follow(table, ref="next", **option)
    table.append(rows(4))
    assert follow(table, **option) == [[4]]


def test_a_tag_is_no_stream(follow: Callable[..., list[list[int]]], new_table: NewTable) -> None:
    table = new_table(rows(1))
    table.refs.tag("then")
    with pytest.raises(Exception, match="the tag 'then' never changes"):
        follow(table, ref="then")


class Query:
    """A query that is stopped after each micro-batch, and may go on with other options."""

    def __init__(self, table: inlay.Table) -> None:
        self.uri = table.uri
        self.offset: dict[str, Any] | None = None

    def batches(self, **options: str) -> Iterator[list[int]]:
        """The ids of each micro-batch, until there is nothing new."""
        while True:
            snapshot = load_snapshot(at_ref(self.uri, options.get("ref")))
            asked = spark_schema(snapshot.schema)
            stream = InlayStreamReader(read_options({"path": self.uri, **options}), snapshot, asked)
            start = self.offset or stream.initialOffset()
            end = stream.latestOffset(start, stream.getDefaultReadLimit())
            if start == end:
                return
            self.offset = json.loads(json.dumps(end))
            parts = stream.partitions(start, self.offset)
            assert parts == stream.partitions(start, end)
            yield sorted(
                n for part in parts for found in stream.read(part) for n in found["id"].to_pylist()
            )


def test_a_query_that_was_stopped_within_a_version_goes_on_with_another_condition(
    new_table: NewTable,
) -> None:
    for after, expected in (("id >= 0", [[4, 5]]), ("id >= 5", [[5]]), ("id < 4", [])):
        table = new_table(rows(0))
        for n in range(1, 6):
            table.append(rows(n))
        query = Query(table)
        assert next(query.batches(where="id >= 2", maxFilesPerTrigger="2")) == [2, 3]
        assert [batch for batch in query.batches(where=after) if batch] == expected
        # The files of a commit, in whatever order.
        table = new_table(SCHEMA, partition_by=["id"])
        query = Query(table)
        assert [batch for batch in query.batches() if batch] == []
        table.append(rows(0, 1, 2, 3, 4, 5))
        seen = next(query.batches(where="id >= 2", maxFilesPerTrigger="2"))
        left = [n for batch in query.batches(where=after, maxFilesPerTrigger="1") for n in batch]
        assert len(seen) == 2 and not set(seen) & set(left)
        wanted = table.refresh().scan(where=f"id >= 2 AND {after}").to_arrow()["id"].to_pylist()
        assert set(wanted) <= {*seen, *left}


def test_an_erasure_hides_rows_from_a_query_and_no_others(new_table: NewTable) -> None:
    table = new_table(rows(0), primary_key="id")
    for n in range(1, 5):
        table.append(rows(n))
    query = Query(table)
    limited = query.batches(maxFilesPerTrigger="2")
    assert next(limited) == [0, 1]
    table.delete("id IN (0, 3)", mode="erase")
    assert [batch for batch in limited if batch] == [[2, 4]]


def test_an_erasure_hides_rows_of_versions_that_a_query_has_not_read(new_table: NewTable) -> None:
    table = new_table(rows(0), primary_key="id")
    query = Query(table)
    assert list(query.batches()) == [[0]]
    table.append(rows(1, 2, 3))
    table.append(rows(4))
    table.maintain.compact(small_bytes=1 << 30)
    table.delete("id = 2")  # is not reported
    table.delete("id IN (1, 4)", mode="erase")
    assert [batch for batch in query.batches(maxFilesPerTrigger="1") if batch] == [[2, 3]]


def test_what_a_branch_brings_is_read_in_parts(new_table: NewTable) -> None:
    table = new_table(rows(1, 2), primary_key="id")
    query = Query(table)
    assert list(query.batches()) == [[1, 2]]
    branch = table.refs.branch("load")
    branch.append(rows(3))
    branch.maintain.compact(small_bytes=1 << 30)  # its one file is compared with the one of main
    for n in range(4, 7):
        branch.append(rows(n))
    table.refresh().refs.merge("load")
    assert next(query.batches(maxFilesPerTrigger="1")) == [3]
    assert next(query.batches(maxFilesPerTrigger="1", where="id > 1")) == [4]
    table.delete("id = 4", mode="erase")
    assert [batch for batch in query.batches(maxFilesPerTrigger="1") if batch] == [[5], [6]]


def test_a_merge_of_a_branch_that_was_compacted_adds_its_own_rows(new_table: NewTable) -> None:
    table = new_table(rows(1, 2), primary_key="id")
    query = Query(table)
    branch = table.refs.branch("load")
    branch.append(rows(3))
    branch.maintain.compact(small_bytes=1 << 30)
    branch.refresh().append(rows(4))
    table.refresh().append(rows(5))  # so main cannot just become what the branch is
    assert list(query.batches()) == [[1, 2, 5]]
    table.refs.merge("load")
    assert list(query.batches()) == [[3, 4]]


def test_a_query_that_was_stopped_within_a_version_does_not_go_on_with_changes(
    follow: Callable[..., list[list[int]]], new_table: NewTable
) -> None:
    table = new_table(rows(1))
    table.append(rows(2))
    query = Query(table)
    assert next(query.batches(maxFilesPerTrigger="1")) == [1]
    options = read_options({"path": table.uri, "changeFeed": "true"})
    snapshot = load_snapshot(table.uri)
    stream = InlayFeedStream(options, snapshot, feed_schema(snapshot.schema, None))
    assert query.offset is not None
    with pytest.raises(InvalidRequest, match="within a version whose rows it read"):
        stream.latestOffset(query.offset, stream.getDefaultReadLimit())
    assert list(query.batches()) == [[2]]
    assert stream.latestOffset(query.offset, stream.getDefaultReadLimit())["version"] == 3


def test_a_branch_that_was_made_again_is_another_one(new_table: NewTable) -> None:
    table = new_table(rows(1), primary_key="id")
    table.refs.branch("next").append(rows(2))
    query = Query(table)
    assert list(query.batches(ref="next")) == [[1, 2]]
    table.refresh().refs.drop("next")
    table.refresh().append(rows(3))
    table.refs.branch("next").append(rows(4))
    with pytest.raises(VersionNotFound, match=r"branch 'next' of .* did not exist at version"):
        next(query.batches(ref="next"))

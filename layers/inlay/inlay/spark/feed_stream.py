"""Streams of a table's versions, and that of its change feed.

Promise: a stream of the feed starts with all existing rows, as inserts of its first version, followed by
the changes of each later version, each once; it reads whole versions, so a version is never visible in
part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from inlay.engine import LoadedTable, Snapshot, load_pointer
from inlay.errors import InvalidRequest
from inlay.spark.connect import bound, connect
from inlay.spark.errors_in_words import in_words
from inlay.spark.feed import FeedReader, checked_offset, first_version
from inlay.spark.options import ReadOptions


@in_words
class VersionStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A stream of a table's versions: how much it reads at a time, and where it ends."""

    def __init__(self, options: ReadOptions, snapshot: Snapshot) -> None:
        if options.version is not None or options.as_of_us is not None:
            raise InvalidRequest(
                "a stream has no fixed version",
                next_step="Set its start with startVersion or startTime",
            )
        self._options = options
        self._table_id = snapshot.table_id
        self._until: int | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name; so below
        if self._options.max_files is not None:
            return ReadMaxFiles(self._options.max_files)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends with the version that is current now, however much is added while it runs."""
        self._until = self._newest().snapshot.version

    def _newest(self) -> LoadedTable:
        return load_pointer(bound(self._options.uri, self._table_id))


def is_over(limit: ReadLimit, files: int, size: int) -> bool:
    """Whether so many files, or bytes, are more than a micro-batch is to read."""
    over_files = isinstance(limit, ReadMaxFiles) and files > limit.max_files
    return over_files or (isinstance(limit, ReadMaxBytes) and size > limit.max_bytes)


@in_words
class InlayFeedStream(VersionStream):
    """Offsets are `{"table": id, "ref": branch, "version": v, "first": …}`: read up to version v;
    `first`: the rows of v are still to be read."""

    def __init__(self, options: ReadOptions, snapshot: Snapshot, asked: st.StructType) -> None:
        super().__init__(options, snapshot)
        self._feed = FeedReader(options, snapshot, asked)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        options = self._options
        if options.start_version is not None or options.start_us is not None:
            return self._offset(first_version(options) - 1)
        return self._offset(self._newest().snapshot.version, first=True)

    def _offset(self, version: int, *, first: bool = False) -> dict[str, Any]:
        ref = connect(self._options.uri).ref
        return {"table": self._table_id, "ref": ref, "version": version, "first": first}

    def _checked(self, offset: dict[str, Any]) -> dict[str, Any]:
        checked = checked_offset(offset, self._table_id, self._options.uri)
        if checked.get("after"):
            raise InvalidRequest(
                "the stream was stopped within a version whose rows it read: changes come by whole ones",
                next_step="Let it end that version without changeFeed, or start a new query",
            )
        return checked

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """As far as `limit` allows, at least one version that changed rows."""
        until = self._newest().snapshot.version if self._until is None else self._until
        start = self._checked(start)
        if start["first"]:
            return self._offset(start["version"])
        if isinstance(limit, ReadAllAvailable) or start["version"] >= until:
            return self._offset(max(until, start["version"]))
        files = size = 0
        end = start["version"]
        for step in self._feed.steps(start["version"], until):
            files += len(step.tasks)
            size += sum(task.file.size for task in step.tasks)
            if end > start["version"] and is_over(limit, files, size):
                return self._offset(end)
            end = step.version
        return self._offset(until)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        start, end = self._checked(start), self._checked(end)
        there = [self._feed.rows_there(start["version"])] if start["first"] else []
        later: Iterable[Any] = ()
        if start["version"] < end["version"]:
            later = self._feed.steps(start["version"], end["version"])
        return self._feed.partitions([*there, *later])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._feed.read(partition)

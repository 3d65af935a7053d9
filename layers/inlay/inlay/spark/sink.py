"""The streaming sink: each micro-batch is one commit, exactly once.

Promise: a micro-batch is in the table once, however often and whenever Spark repeats it: the table keeps
the last batch of each query for good, in the same commit as its rows. A query killed between its data, its
commit and its checkpoint continues where it was.

Spark makes a new writer for the commit, in a separate process, so everything that the commit needs comes
with the tasks' messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from inlay.engine import DataFile, PartedWrite, Request, Snapshot, load_pointer
from inlay.errors import InvalidRequest, TableReplaced
from inlay.spark.connect import bound, load_writable
from inlay.spark.errors_in_words import in_words
from inlay.spark.options import WriteOptions
from inlay.spark.types import named_as_in
from inlay.spark.writer import QUERY_ID, check_fits_table, is_applied


@dataclass(frozen=True)
class BatchFiles(WriterCommitMessage):  # type: ignore[misc]  # pyspark is untyped here
    """What one attempt of one task wrote for a micro-batch; `started_us` is the store's clock before it
    uploaded anything, and `snapshot` what it read then, without entries."""

    snapshot: Snapshot
    query: str
    started_us: int
    files: tuple[DataFile, ...]


@in_words
class InlayStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # as above
    def __init__(self, options: WriteOptions, data: StructType, *, overwrite: bool) -> None:
        if overwrite or options.replace_where is not None or options.partitions is not None:
            raise InvalidRequest(
                "a stream only appends",
                next_step='Use outputMode("append"), or MergeSink for rows that replace others',
            )
        if options.request_id is not None:
            raise InvalidRequest(
                "a stream's micro-batches are known by their query", next_step="Leave requestId out"
            )
        if options.merge_schema or any(
            (options.primary_key, options.sort_by, options.partition_by)
        ):
            raise InvalidRequest(
                "a stream neither creates nor alters its table",
                next_step="Do it before the stream starts: inlay.create(…), Table.alter(add=…)",
            )
        self._uri = options.uri
        self._table_id = options.table_id
        self._data = data

    # -- on the executors ---------------------------------------------------------------------

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchFiles:
        # Read for each batch: a query runs for weeks, and an upload must be younger than the table's
        # garbage collection boundary when it is committed.
        ctx, loaded = load_writable(self._uri, self._table_id)
        snapshot = loaded.snapshot
        schema = snapshot.schema
        check_fits_table(self._data, schema)
        names = named_as_in(schema, self._data.names)
        named = (batch.rename_columns(names) for batch in iterator)
        files = PartedWrite(table=loaded).write(ctx, named)
        query = TaskContext.get().getLocalProperty(QUERY_ID)
        return BatchFiles(loaded.without_entries().snapshot, query, loaded.date_us, files)

    # -- on the driver ------------------------------------------------------------------------

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        batches = [m for m in messages if isinstance(m, BatchFiles)]
        files = tuple(file for message in batches for file in message.files)
        if files:
            first = min(batches, key=lambda message: message.started_us)
            if len({message.snapshot.table_id for message in batches}) > 1:
                raise TableReplaced(f"{self._uri} was replaced meanwhile", table=self._uri)
            commit_batch(self._uri, first.snapshot, first.query, batchId, files, first.started_us)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing was committed; garbage collection deletes what was written."""


def commit_batch(
    uri: str,
    before: Snapshot,
    query: str,
    batch: int,
    files: tuple[DataFile, ...],
    started_us: int,
) -> bool:
    """Commits the files of a query's micro-batch, which were written for the table of this snapshot, from
    `started_us` on, when it was read; False when it was committed before. Raises `TableReplaced`."""
    ctx = bound(uri, before.table_id)
    loaded = load_pointer(ctx, before=before)
    if is_applied(loaded.snapshot, query, batch):
        return False
    write = PartedWrite(
        table=replace(loaded, date_us=started_us),
        # The last batch is kept for good; the ledger is checked as well, on every rebase, so that a second
        # driver of the same query cannot commit in between.
        request=Request.of(f"stream {query} batch {batch}"),
        stream=(query, batch),
    )
    write.commit(ctx, files, base=loaded)
    return True

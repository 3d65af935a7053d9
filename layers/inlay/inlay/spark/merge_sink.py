"""Merging as the sink of a stream.

    records.writeStream.foreachBatch(MergeSink(uri, order="seq")).option(…).start()

Promise: each micro-batch is merged in one commit, exactly once, even if the query is killed at any point
and restarted. Rows that this process wrote recently are replaced by position, which costs readers less than
keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.utils import is_remote

from inlay.engine import RecentRows
from inlay.errors import InlayError, InvalidRequest
from inlay.spark.context import context_of
from inlay.spark.merge import MergeResult, merge
from inlay.spark.writer import QUERY_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# The local property that identifies a run of a query: Spark makes it the group of its jobs.
_RUN_ID = "spark.jobGroup.id"
# The local property, of the thread of a run, with the micro-batch that was merged into a table last.
_MERGED = "inlay.merged "


class MergeSink:
    """Takes the arguments of `merge`. Each result is kept in `results` and passed to `on_result`; what
    ended the query, if it was a merge, is in `error`: Spark's own exception has only its text.

    A query merges into a table once in a micro-batch: a second time would be taken for a repetition, and is
    refused (`InvalidRequest`).
    """

    def __init__(
        self,
        uri: str,
        *,
        order: str | Sequence[str],
        on: Sequence[str] = (),
        op: str | None = "op",
        operations: str | Mapping[str, Sequence[str]] | None = None,
        deletes: Sequence[str] | None = None,
        on_result: Callable[[int, MergeResult], None] = lambda batch, result: None,
    ) -> None:
        if is_remote():
            raise InvalidRequest(
                "MergeSink does not run through Spark Connect: its memory is in this process",
                next_step="Start the stream in a session on the cluster, as pipelines.merge does",
            )
        self.results: list[MergeResult] = []
        self.error: InlayError | None = None
        self._uri = uri
        self._order = order
        self._on = on
        self._op = op
        self._operations = operations
        self._deletes = deletes
        self._on_result = on_result
        self._recent = RecentRows()

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        context = context_of(records.sparkSession, "MergeSink")
        query, run = map(context.getLocalProperty, (QUERY_ID, _RUN_ID))
        merged = f"run {run} batch {batch_id}"
        if context.getLocalProperty(_MERGED + self._uri) == merged:
            raise InvalidRequest(
                f"this micro-batch was merged into {self._uri} already, by a sink of the same query",
                next_step="Unite the records before they are merged, or give each sink a query of its own",
                table=self._uri,
            )
        try:
            result = merge(
                records,
                self._uri,
                order=self._order,
                on=self._on,
                op=self._op,
                operations=self._operations,
                deletes=self._deletes,
                batch=(query, batch_id),
                recent=self._recent,
            )
        except InlayError as error:
            self.error = error
            raise
        context.setLocalProperty(_MERGED + self._uri, merged)
        self.results.append(result)
        self._on_result(batch_id, result)

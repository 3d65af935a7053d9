"""Writing a table from Spark: executors write data files, the driver commits them all at once.

Promise: the rows of a DataFrame are in the table once or not at all, however often tasks are retried or
run twice: an attempt's files have names of their own, Spark names one attempt of each task to the
driver, and one commit under one request id adds the files of these. Files of failed attempts are
unreachable and garbage collection takes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from inlay.errors import InvalidRequest
from inlay.format.entry import DataFile
from inlay.format.predicate import TRUE, Predicate
from inlay.format.schema import Schema
from inlay.ops.commit.driver import commit, expect_committed
from inlay.ops.commit.idempotency import already_applied
from inlay.ops.data.data_files import layout_of, recorded_as, target_of
from inlay.ops.metadata.load import load_pointer
from inlay.ops.write.delete import marker_of
from inlay.parquet.arrow.conform import conform
from inlay.parquet.write.writer import Layout, write_files
from inlay.parse import parse_predicate
from inlay.plan.change import Change, Reads, Request
from inlay.spark.connect import connect, load_writable
from inlay.spark.options import WriteOptions
from inlay.spark.types import arrow_for


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """One DataFrame being written: what executors and the driver's commit need to know.

    `started_us` is the store's clock before anything was uploaded; `replaces` the rows that are taken
    out by the same commit, as of `version`; `done` says that this request was applied before.
    """

    uri: str
    schema: Schema
    layout: Layout
    request: Request
    version: int
    started_us: int
    replaces: Predicate | None = None
    named: bool = False  # the request id is the user's
    done: bool = False


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark is untyped here
    """The files one attempt of one task wrote."""

    files: tuple[DataFile, ...]


def plan_write(options: WriteOptions, data: StructType, *, overwrite: bool) -> WriteJob:
    """Check that the rows can fit and load what writing them takes. Raises `SchemaMismatch`."""
    if options.replace_where is not None and not overwrite:
        raise InvalidRequest(
            "replaceWhere replaces rows, append does not", next_step='Use mode("overwrite")'
        )
    ctx, loaded = load_writable(options.uri)
    snapshot = loaded.snapshot
    check_fits_table(data, snapshot.schema)
    replaces = None
    if overwrite:
        where = options.replace_where
        replaces = TRUE if where is None else parse_predicate(where, snapshot.schema)
    identity = options.request_id or str(uuid.uuid4())
    request = Request.of(identity, body=f"spark:{overwrite}:{replaces}")
    loaded, before = already_applied(ctx, loaded, request)
    return WriteJob(
        uri=options.uri,
        schema=snapshot.schema,
        layout=layout_of(snapshot),
        request=request,
        version=snapshot.version,
        started_us=loaded.date_us,
        replaces=replaces,
        named=options.request_id is not None,
        done=before is not None,
    )


def check_fits_table(data: StructType, schema: Schema) -> None:
    """Raises `SchemaMismatch` unless rows of this Spark schema can be rows of the table. Whether each
    value of a wider column fits is seen when it is written, and so is a null in a required one."""
    arrow = arrow_for(data)
    recorded = recorded_as(arrow, schema)
    conform(pa.RecordBatch.from_pylist([], schema=arrow), recorded, schema, by_value=True)


class InlayWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is untyped here
    def __init__(self, job: WriteJob) -> None:
        self._job = job

    # -- on the executors ---------------------------------------------------------------------

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        job = self._job
        if job.done:
            return Written(())
        ctx = connect(job.uri)
        rows = (conform(batch, job.schema, job.schema, by_value=True) for batch in iterator)
        target = target_of(ctx, job.started_us)
        return Written(tuple(write_files(target, rows, job.schema, job.layout)))

    # -- on the driver ------------------------------------------------------------------------

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        job = self._job
        files = tuple(f for m in messages if isinstance(m, Written) for f in m.files)
        nothing = not files and job.replaces is None and not job.named
        if job.done or nothing:
            return
        ctx = connect(job.uri)
        loaded = load_pointer(ctx)
        change = Change(
            operation="append",
            request=job.request,
            add=files,
            uploaded_us=job.started_us,
        )
        if job.replaces is not None:
            change = Change(
                operation="overwrite",
                request=job.request,
                add=files,
                # The new rows bear the commit's own sequence, so its marker misses them.
                add_markers=(marker_of(ctx, loaded, job.replaces),),
                uploaded_us=job.started_us,
                deleted_rows=None,
                # Rows that arrived while this job ran were not meant by whoever started it.
                reads=Reads(job.replaces, job.version),
            )
        expect_committed(ctx, commit(ctx, change, base=loaded))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing was committed, so nothing has to be undone; Spark cannot name all that was written,
        and deleting is `collect_garbage`'s alone."""

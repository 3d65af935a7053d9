"""Writing a table from Spark: executors write data files, the driver commits them all at once.

Promise: the rows of a DataFrame are in the table once or not at all, however often tasks are retried or run
twice: the files of each attempt have unique names, Spark reports one attempt of each task to the driver,
and one commit under one request id adds their files. Files of failed attempts are unreachable, and garbage
collection deletes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructField, StructType

import inlay
from inlay.engine import (
    Context,
    Request,
    Schema,
    Snapshot,
    already_applied,
    load_pointer,
    parse_predicate,
)
from inlay.errors import (
    ConcurrentChange,
    InvalidRequest,
    SchemaMismatch,
    TableExists,
    TableNotFound,
)
from inlay.format.entry import DataFile
from inlay.format.predicate import TRUE, Predicate
from inlay.ops.commit.driver import commit, commit_planned, expect_committed
from inlay.ops.data import check_fits, write_rows
from inlay.ops.metadata.load import LoadedTable, load_entries
from inlay.ops.write.delete import marker_of
from inlay.parquet.arrow.evaluate import columns_of, selected
from inlay.plan.change import AddFiles, AddMarkers, Change, Reads, RemoveFiles
from inlay.plan.metadata.state import State
from inlay.spark.connect import bound, connect, load_writable, place, ref_of, without_entries
from inlay.spark.options import WriteOptions, replaces_partitions
from inlay.spark.types import arrow_for, arrow_for_new, check_written, named_as_in, nullable

# The local property that identifies the query of a micro-batch's tasks.
QUERY_ID = "sql.streaming.queryId"
# Begins the request ids that `append` gives in place of the user's, to find its commit again.
OWN_REQUEST = "append "


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """One DataFrame being written: what executors and the driver's commit need to know.

    `started_us` is the store's clock before anything was uploaded; `replaces` selects the rows that the
    same commit removes, as of `version`; `done`: the version at which this request was applied before.
    """

    uri: str
    table_id: str
    snapshot: Snapshot  # without its entries
    request: Request
    version: int
    started_us: int
    names: tuple[str, ...] = ()  # the data's columns, as the table spells them
    replaces: Predicate | None = None
    by_partition: bool = False  # the commit replaces the partitions that are written to
    named: bool = False  # the request id is the user's
    done: int | None = None


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark is untyped here
    """The files one attempt of one task wrote."""

    files: tuple[DataFile, ...]


def plan_write(
    options: WriteOptions, data: StructType, *, overwrite: bool
) -> tuple[LoadedTable, WriteJob]:
    """Checks that the rows can fit, and loads what writing them needs. Raises `SchemaMismatch`."""
    if options.replace_where is not None and not overwrite:
        raise InvalidRequest(
            "replaceWhere replaces rows, append does not", next_step='Use mode("overwrite")'
        )
    ctx, loaded = _open_for(options, data)
    snapshot = loaded.snapshot
    check_fits_table(data, snapshot.schema)
    replaces = None
    by_partition = False
    if overwrite:
        where = options.replace_where
        replaces = TRUE if where is None else parse_predicate(where, snapshot.schema)
        by_partition = _by_partition(options, snapshot)
        if by_partition:
            replaced_files(load_entries(ctx, loaded.state), (), since=snapshot.version)
    identity = options.request_id or str(uuid.uuid4())
    request = append_request(identity)
    if overwrite:
        kind = "partitions" if by_partition else replaces
        request = Request.of(identity, body=f"spark:True:{kind}")
    loaded, before = already_applied(ctx, loaded, request)
    return loaded, WriteJob(
        uri=options.uri,
        table_id=snapshot.table_id,
        snapshot=without_entries(loaded).snapshot,
        request=request,
        version=snapshot.version,
        started_us=loaded.date_us,
        names=tuple(named_as_in(snapshot.schema, data.names)),
        replaces=replaces,
        by_partition=by_partition,
        named=not identity.startswith(OWN_REQUEST) and options.request_id is not None,
        done=None if before is None else before.version or loaded.snapshot.version,
    )


def _open_for(options: WriteOptions, data: StructType) -> tuple[Context, LoadedTable]:
    """The table, with the columns of the data. It is created, or altered, by a separate commit before the
    data is written: if the write then fails, an empty table, or an empty column, is left."""
    try:
        ctx, loaded = load_writable(options.uri, options.table_id)
    except TableNotFound:
        if options.table_id is not None:
            raise
        with suppress(TableExists):  # by another writer meanwhile
            inlay.create(
                place(options.uri),
                arrow_for_new(_as_nullable(data, options.primary_key)),
                primary_key=options.primary_key,
                sort_by=options.sort_by,
                partition_by=options.partition_by,
            )
        return load_writable(options.uri)
    if not options.merge_schema:
        return ctx, loaded
    schema = loaded.snapshot.schema
    names = named_as_in(schema, data.names)
    missing = [n for n, name in enumerate(names) if schema.column(name) is None]
    if missing:
        columns = arrow_for_new(_as_nullable(StructType([data[n] for n in missing]), ()))
        inlay.open(place(options.uri), ref=ref_of(options.uri)).alter(add=columns)
    return load_writable(options.uri, loaded.snapshot.table_id)


def _as_nullable(data: StructType, keys: Sequence[str]) -> StructType:
    """The columns that a new table gets: at every level NULL is allowed, but in keys that have none. That
    these rows have none (a literal, a `coalesce`) is no promise for the rows to come."""
    return StructType(
        [field if field.name in keys else _nullable_field(field) for field in data.fields]
    )


def _nullable_field(field: StructField) -> StructField:
    return StructField(field.name, nullable(field.dataType), True, field.metadata)


def append_request(identity: str) -> Request:
    """The ledger's identity of an append from Spark."""
    return Request.of(identity, body="spark:False:None")


def _by_partition(options: WriteOptions, snapshot: Snapshot) -> bool:
    """Whether an overwrite replaces whole partitions. A session's `partitionOverwriteMode` is not passed to
    a Python source, so where it could make a difference the write itself must set it."""
    by_partition = replaces_partitions(options.partitions)
    if options.replace_where is not None:
        if by_partition:
            raise InvalidRequest(
                "replaceWhere and partitionOverwriteMode=dynamic both define what is replaced",
                next_step="Give one of them",
            )
        return False
    spec = next(s for s in snapshot.specs if s.id == snapshot.spec_id)
    if not spec.fields:
        return False  # without partitions, all rows are in the only one
    if by_partition is None:
        raise InvalidRequest(
            "the table is partitioned, and an overwrite could replace all its rows or only the partitions "
            "that are written to",
            next_step='Choose one: .option("partitionOverwriteMode", "static") or "dynamic", or select the '
            'rows by .option("replaceWhere", …)',
        )
    return by_partition


def replaced_files(state: State, files: Sequence[DataFile], *, since: int) -> tuple[str, ...]:
    """Keys of the live files in the partitions of these new files. Raises `ConcurrentChange` when rows were
    added to one of them after version `since`, `InvalidRequest` when a file may be in several
    partitions."""
    spec_id = state.snapshot.spec_id
    partitions = {file.partition for file in files}
    live = list(state.files())
    if any(file.spec_id != spec_id for file in live):
        raise InvalidRequest(
            "files of an earlier partitioning may hold rows of any partition",
            next_step="Repartition them (pipelines.cluster), or select the rows by replaceWhere",
        )
    found = [file for file in live if file.partition in partitions]
    if any(file.newest_rows > since for file in found):
        raise ConcurrentChange("rows were added meanwhile to a partition that is being replaced")
    return tuple(file.key for file in found)


def is_applied(snapshot: Snapshot, query: str, batch: int) -> bool:
    """Whether the table has a query's micro-batch. Spark repeats none but the last: one before it is of a
    checkpoint that was put back, where other rows have its number, or of a second driver. Raises
    `InvalidRequest`, because those rows would be taken for repeated ones."""
    last = snapshot.ledger.streams.get(query, -1)
    if last > batch:
        raise InvalidRequest(
            f"the table has micro-batch {last} of the query {query}, which is at {batch}: its checkpoint "
            "is older than the table, or it runs twice",
            next_step="Start it with a new checkpoint, at the first rows that the table lacks",
        )
    return last == batch


def check_fits_table(data: StructType, schema: Schema) -> None:
    """Raises `SchemaMismatch` unless rows of this Spark schema can be rows of the table, `UnsupportedType`
    for types that no table has. Whether each value of a wider column fits is checked when it is written,
    and so is a null in a required one. Columns are found by name, as in Spark: in any case if that is
    unambiguous."""
    if not data.names:
        raise SchemaMismatch(
            "the data has no columns", next_step="Select those that the table is to get"
        )
    check_written(data)
    arrow = _renamed(arrow_for(data), named_as_in(schema, data.names))
    check_fits(arrow, schema)


def _renamed(arrow: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([field.with_name(name) for field, name in zip(arrow, names, strict=True)])


def _refuse_catalog_tables() -> None:
    """Raises `InvalidRequest` in a task of `saveAsTable` or `CREATE TABLE … AS SELECT`, whose table nobody
    could read: Spark's catalog keeps none of the options with its location.

    Spark does not inform the writer. But it runs such a write as a query within that of the command, which
    it otherwise does only for micro-batches.
    """
    context = TaskContext.get()
    if context is None:
        return
    query, command = map(
        context.getLocalProperty, ("spark.sql.execution.id", "spark.sql.execution.root.id")
    )
    of_stream = context.getLocalProperty(QUERY_ID) is not None
    if query != command and command is not None and not of_stream:
        raise InvalidRequest(
            "a table of Spark's catalog cannot be Inlay's: the catalog would not keep its location",
            next_step='Write with .save("s3://…") instead of saveAsTable, and give it a name in SQL with '
            "inlay.spark.view(spark, name, uri)",
        )


def _within(rows: Iterable[pa.RecordBatch], job: WriteJob) -> Iterator[pa.RecordBatch]:
    """The rows, each of which the predicate of an overwrite selects: one that it does not would be there
    twice after the next run."""
    replaces = job.replaces
    columns = columns_of(job.snapshot.schema)
    for batch in rows:
        if replaces is not None and selected(replaces, batch, columns).false_count:
            raise InvalidRequest(
                "a row of the data is not one of those that replaceWhere replaces, and the next such "
                "overwrite would leave it",
                next_step="Filter the DataFrame by the same condition, or append those rows",
            )
        yield batch


class InlayWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is untyped here
    def __init__(self, job: WriteJob) -> None:
        self._job = job

    # -- on the executors ---------------------------------------------------------------------

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        job = self._job
        if job.done is not None:
            return Written(())
        ctx = connect(job.uri)
        _refuse_catalog_tables()
        names = list(job.names)
        named = (batch.rename_columns(names) for batch in iterator)
        within = partial(_within, job=job)
        files = write_rows(ctx, job.snapshot, named, time_us=job.started_us, only=within)
        return Written(tuple(files))

    # -- on the driver ------------------------------------------------------------------------

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        job = self._job
        files = tuple(f for m in messages if isinstance(m, Written) for f in m.files)
        nothing = not files and job.replaces is None and not job.named
        if job.done is not None or nothing:
            return
        ctx = bound(job.uri, job.table_id)
        loaded = load_pointer(ctx, before=job.snapshot)
        if job.by_partition:
            commit_planned(ctx, loaded, lambda base: self._replacing(ctx, base, files))
            return
        change = Change(
            operation="append",
            request=job.request,
            uploaded_us=job.started_us,
            updates=(AddFiles(files),),
        )
        if job.replaces is not None:
            change = Change(
                operation="overwrite",
                request=job.request,
                uploaded_us=job.started_us,
                deleted_rows=None,
                # The new rows have the commit's own sequence, so its marker does not hit them.
                updates=(
                    AddFiles(files),
                    AddMarkers((marker_of(ctx, loaded, job.replaces),)),
                ),
                # Rows that arrived while this job ran were not meant to be replaced.
                requires=(Reads(job.replaces, job.version),),
            )
        expect_committed(ctx, commit(ctx, change, base=loaded))

    def _replacing(self, ctx: Context, base: LoadedTable, files: tuple[DataFile, ...]) -> Change:
        job = self._job
        state = load_entries(ctx, base.state)
        return Change(
            operation="overwrite",
            request=job.request,
            uploaded_us=job.started_us,
            deleted_rows=None,
            updates=(
                AddFiles(files),
                RemoveFiles(replaced_files(state, files, since=job.version)),
            ),
            # Rows added to other partitions meanwhile only cause another plan.
            requires=(Reads(TRUE, base.snapshot.version),),
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing was committed, so nothing has to be undone. Spark cannot name all that was written, and
        only `collect_garbage` deletes."""

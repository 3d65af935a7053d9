"""Writing a table from Spark: executors write data files, the driver commits them all at once.

Promise: the rows of a DataFrame are in the table once or not at all, however often tasks are retried or run
twice: the files of each attempt have unique names, Spark reports one attempt of each task to the driver,
and one commit under one request id adds their files. Files of failed attempts are unreachable, and garbage
collection deletes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructField, StructType

import inlay
from inlay.engine import (
    Context,
    DataFile,
    LoadedTable,
    PartedWrite,
    Predicate,
    Request,
    Schema,
    Snapshot,
    parse_predicate,
)
from inlay.errors import InvalidRequest, SchemaMismatch, TableExists, TableNotFound
from inlay.spark.conditions import TRUE
from inlay.spark.connect import bound, connect, load_writable, place, ref_of
from inlay.spark.errors_in_words import in_words
from inlay.spark.options import WriteOptions, replaces_partitions
from inlay.spark.types import arrow_for, arrow_for_new, check_written, named_as_in, nullable

# The local property that identifies the query of a micro-batch's tasks.
QUERY_ID = "sql.streaming.queryId"
# Begins the request ids that `append` gives in place of the user's, to find its commit again.
OWN_REQUEST = "append "


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """One DataFrame being written: what executors and the driver's commit need to know.

    `names` are the data's columns, as the table spells them; `done`: the version at which the request was
    applied before.
    """

    uri: str
    table_id: str
    write: PartedWrite
    names: tuple[str, ...]
    done: int | None


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
    replaces: Predicate | None = None
    by_partition = False
    if overwrite:
        where = options.replace_where
        replaces = TRUE if where is None else parse_predicate(where, snapshot.schema)
        by_partition = _by_partition(options, snapshot)
    identity = options.request_id or str(uuid.uuid4())
    request = append_request(identity)
    if overwrite:
        kind = "partitions" if by_partition else replaces
        request = Request.of(identity, body=f"spark:True:{kind}")
    write = PartedWrite(
        table=loaded.without_entries(),
        request=request,
        replaces=replaces,
        by_partition=by_partition,
        keeps_empty=not identity.startswith(OWN_REQUEST) and options.request_id is not None,
    )
    write.check(ctx, loaded)
    loaded, done = write.applied(ctx, loaded)
    return loaded, WriteJob(
        uri=options.uri,
        table_id=snapshot.table_id,
        write=write,
        names=tuple(named_as_in(snapshot.schema, data.names)),
        done=done,
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
        [
            f if f.name in keys else StructField(f.name, nullable(f.dataType), True, f.metadata)
            for f in data.fields
        ]
    )


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
    PartedWrite.check_fits(arrow, schema)


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


@in_words
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
        return Written(job.write.write(ctx, (batch.rename_columns(names) for batch in iterator)))

    # -- on the driver ------------------------------------------------------------------------

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        job = self._job
        if job.done is None:
            files = tuple(f for m in messages if isinstance(m, Written) for f in m.files)
            job.write.commit(bound(job.uri, job.table_id), files)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing was committed, so nothing has to be undone. Spark cannot name all that was written, and
        only `collect_garbage` deletes."""

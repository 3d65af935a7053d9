"""Append by Spark's own Parquet writer, where that writes what the table means; else by the source.

Promise: the rows of a DataFrame are in the table once or not at all, and read back the same whichever way
they went. Executors write with Spark's writer, so no row crosses from the JVM to Python; the driver looks
at the footers, has the store copy the files to keys of the table's own, and commits all of them at once.
Until then they stand under `data/`, where garbage collection and erasures find what a killed job leaves.

The files count as another writer's (`DataFile.is_foreign`): an erasure judges their rows, not their bounds.
"""

from __future__ import annotations

import json
import operator
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyspark

from inlay import WriteResult
from inlay.engine import POINTER, PartedWrite, Primitive, Schema, Snapshot
from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.spark.catalyst import items, kind_of
from inlay.spark.conditions import (
    attribute,
    check_frame,
    column_of,
    default_of,
    expression_of,
    plan_of,
)
from inlay.spark.connect import at_ref, bound
from inlay.spark.context import activate, java_class, to_seq
from inlay.spark.native import V1_SOURCES, Native, hadoop_place, hadoop_root, may_be_native
from inlay.spark.options import WriteOptions
from inlay.spark.releases import release_of
from inlay.spark.types import has_twins, named_as_in, spark_leaf, spark_schema
from inlay.spark.writer import OWN_REQUEST, WriteJob, plan_write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "none": "uncompressed"}
# What the session says of Parquet is for its other files: these decide which values stand in the file.
_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.output.committer.class": (
        "org.apache.parquet.hadoop.ParquetOutputCommitter"
    ),
    V1_SOURCES: "parquet",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
}
# A class that would commit a task's files in place of the one above.
_COMMITTER = "spark.sql.sources.outputCommitterClass"
# What a task says of such text, within Spark's words: of nested text, and Spark's own of other text.
_NOT_TEXT = re.compile(r"column '[^\n]*' has text that is not UTF-8")
# What a task says of a value that the table's type does not have.
_NO_VALUE = re.compile(r"column '[^\n]*' has a value in the data that [^\n]* does not have")
# Where Spark has met a NULL that `_required` forbids.
_NULL_IN = re.compile(r"non-nullable field: \n(.*?)\nIf the schema", re.DOTALL)
_NOT_TEXT_OF_SPARK = "[INVALID_UTF8_STRING]"
_OPTIONS = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # The second version moves files of a task one by one: one that dies meanwhile leaves rows twice.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "parquet.page.write-checksum.enabled": "true",
}


def append(
    frame: DataFrame,
    uri: str,
    *,
    ref: str | None = None,
    request_id: str | None = None,
    table_id: str | None = None,
    native: Native = "auto",
    hold: Any = None,
) -> WriteResult:
    """Append a DataFrame's rows in one commit. `ref` is a branch; with a `request_id` it is done once,
    however often and with whichever rows it is asked for (then `applied_before`), and without one a
    DataFrame without rows commits nothing; with a `table_id` only to the table of this id
    (`TableReplaced`).

    Columns are matched by name, in any case; nullable ones may be missing. Spark's own Parquet writer
    writes, or the source where `why_by_source` says so and with `native="never"`; the rows are the same.
    Raises `SchemaMismatch`: before anything is written for columns that do not fit, and after it, with
    nothing committed, for a NULL in a column that the table requires. `hold` takes the commit for a
    transaction (`inlay.spark.transaction`).
    """
    check_frame(frame, "append")
    by_spark = may_be_native(native)
    uri = at_ref(uri, ref)
    identity = request_id or f"{OWN_REQUEST}{uuid.uuid4()}"
    options = WriteOptions(uri=uri, request_id=identity, table_id=table_id)
    loaded, job = plan_write(options, frame.schema, overwrite=False)
    ctx = replace(bound(uri, job.table_id), hold=hold)
    if job.done is not None:
        return WriteResult(
            operation="append", committed=False, version=job.done, applied_before=True
        )
    root = None
    if by_spark and not _why_by_source(frame, loaded.snapshot):
        root = hadoop_root(frame.sparkSession, uri, POINTER)
    if root is None and hold is not None:
        raise InvalidRequest(
            "these rows are written by the source, which commits them itself: not in a transaction "
            f"({why_by_source(frame, uri, loaded.snapshot) or 'native=' + repr(native)})",
            next_step="Merge them with op=None, or append to this table alone",
            table=ctx.uri,
        )
    if root is None:
        activate(frame.sparkSession)
        writer = frame.write.format("inlay").mode("append").option("tableId", job.table_id)
        writer.option("requestId", identity).save(uri)
        return source_result(job)
    folder = job.write.folder(ctx)
    try:
        _write(frame, f"{root}/{folder}", loaded.snapshot)
        return job.write.take_over(ctx, folder, base=loaded)
    finally:
        there, system = hadoop_place(frame.sparkSession, f"{root}/{folder}")
        system.delete(there, True)


def why_by_source(frame: DataFrame, uri: str, snapshot: Snapshot) -> str:
    """Why Spark's own writer cannot write these rows as this table's, in words; "" where it can."""
    why = _why_by_source(frame, snapshot)
    if not why and hadoop_root(frame.sparkSession, uri, POINTER) is None:
        return "Spark has no access to the table's folder"
    return why


def _why_by_source(frame: DataFrame, snapshot: Snapshot) -> str:
    if getattr(frame.sparkSession, "sparkContext", None) is None:
        return "Spark Connect"
    if snapshot.spec.fields:
        return "the table is partitioned"
    if has_twins(snapshot.schema):
        return "two names differ by case alone"
    if PartedWrite.checks_values(snapshot):
        return "the table has columns whose values are checked one by one"
    if _is_observed(frame):
        return (
            "Spark would report what it observes of the DataFrame to a session of the writer's own"
        )
    if not _has_same_types(frame.schema, snapshot.schema):
        return "Spark would write other types than the table's"
    return ""


def _is_observed(frame: Any) -> bool:
    plan = plan_of(frame)
    if release_of(pyspark.__version__) < (4, 1):
        # Here no pattern of the plan's tree says it.
        pending = [plan]
        while pending:
            node = pending.pop()
            if kind_of(node) == "CollectMetrics":
                return True
            pending += items(node.children())
        return False
    patterns = java_class(frame.sparkSession, "org.apache.spark.sql.catalyst.trees.TreePattern")
    return bool(plan.containsPattern(patterns.COLLECT_METRICS()))


def _has_same_types(given: StructType, schema: Schema) -> bool:
    """Whether Spark writes each column as the table's type. Nested values must also be required where the
    table's are; a NULL in a column itself is looked for when it is written."""
    if not all(map(_is_written, schema.types.values())):
        return False
    columns = {field.name: field.dataType for field in spark_schema(schema)}
    names = named_as_in(schema, given.names)
    return all(
        columns[name] == field.dataType or _keeps_values(field.dataType, columns[name])
        for name, field in zip(names, given.fields, strict=True)
    )


def _keeps_values(given: DataType, target: DataType) -> bool:
    """Whether Spark's cast keeps each value or fails, as the source's does."""
    from pyspark.sql import types as st

    match given, target:
        case st.IntegralType(), st.IntegralType():
            return True
        case st.DecimalType(), st.DecimalType():
            return bool(given.scale <= target.scale)  # to a smaller one Spark rounds
        case st.FloatType(), st.DoubleType():
            return True
        case _:  # the source knows
            return False


def _is_written(kind: Primitive) -> bool:
    """Whether Spark's writer has this type, and no other one for the same values."""
    return spark_leaf(kind).written and kind.unit in ("", "us")


def source_result(job: WriteJob) -> WriteResult:
    """What the source has committed, found by its request."""
    return job.write.committed(bound(job.uri, job.table_id))


def _write(frame: DataFrame, folder: str, snapshot: Snapshot) -> None:
    spark: Any = frame.sparkSession
    properties = snapshot.settings
    schema = snapshot.schema
    # A session of its own: the caller's settings stay, for its other threads too.
    session = spark._jsparkSession.cloneSession()
    for name, value in _SETTINGS.items():
        session.conf().set(name, value)
    session.conf().unset(_COMMITTER)
    options = {
        **_OPTIONS,
        "compression": _CODECS[properties.text("write.compression")],
        "parquet.block.size": str(properties.number("write.row_group_bytes")),
        "parquet.block.row.count.limit": str(properties.number("write.row_group_rows")),
    }
    # The optimizer computes values as well, where it can.
    with _translated(schema):
        rows: Any = _as_optional(frame.select(*_columns(frame, schema)), schema, session)
        if snapshot.sort_by:
            by_id = {field.id: attribute(rows, field.name) for field in schema.fields}
            rows = rows.sortWithinPartitions(*(by_id[field_id] for field_id in snapshot.sort_by))
        writer = _in_session(rows, session).write()
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.mode("append").parquet(folder)


@contextmanager
def _translated(schema: Schema) -> Iterator[None]:
    """Raises `SchemaMismatch` for Spark's errors about values that the table does not take."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        if (no_value := _NO_VALUE.search(str(error))) is not None:
            raise SchemaMismatch(
                no_value[0], next_step="Correct it, or give the column a wider type"
            ) from error
        if (wrong := _has_no_text(str(error), schema)) is not None:
            raise SchemaMismatch(
                wrong,
                next_step="Repair it by make_valid_utf8(column), or make the column binary",
            ) from error
        if "NOT_NULL_ASSERT_VIOLATION" not in str(error):
            raise
        required = [field.name for field in schema.fields if not field.nullable]
        named = _NULL_IN.search(str(error))
        if named is not None and named[1] in required:
            where = f"in column {named[1]!r}"
        else:
            where = f"in one of the columns {', '.join(required)[:500]}"
        raise SchemaMismatch(
            f"the data has a NULL {where}, which the table requires",
            next_step="Fill it or filter such rows out, or make the column nullable: "
            "inlay.open(uri).alter(optional=[…])",
        ) from error


def _has_no_text(error: str, schema: Schema) -> str | None:
    """What is wrong, if it is text that is not UTF-8."""
    if (wrong := _NOT_TEXT.search(error)) is not None:
        return wrong[0]
    if _NOT_TEXT_OF_SPARK not in error:
        return None
    texts = [field.name for field in schema.fields if field.type == Primitive("string")]
    if len(texts) == 1:
        return f"column {texts[0]!r} has text that is not UTF-8"
    return f"one of the columns {', '.join(texts)[:500]} has text that is not UTF-8"


def _columns(frame: DataFrame, schema: Schema) -> Iterator[Any]:
    """The table's columns out of the frame's. Values of those that it requires are checked to be no NULL.
    Spark takes any bytes for text, and other readers of the file do not."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    given = dict(zip(named_as_in(schema, frame.columns), frame.schema.fields, strict=True))
    for field, target in zip(schema.fields, spark_schema(schema), strict=True):
        source = given.get(field.name)
        if source is None:
            column = default_of(field, target.dataType)
        else:
            column = attribute(frame, source.name)
            if source.dataType != target.dataType:
                fitting = column.try_cast(target.dataType)
                kind = target.dataType.simpleString()
                why = f"column {field.name!r} has a value in the data that {kind} does not have"
                lost = f.when(column.isNotNull(), f.raise_error(f.lit(why)))
                column = f.coalesce(fitting, lost)
            elif isinstance(target.dataType, StringType):
                # One call, and no CASE: compiled code of many columns stays small enough to be fast.
                column = f.validate_utf8(column)
            elif (wrong := _is_no_text(column, target.dataType)) is not None:
                why = f"column {field.name!r} has text that is not UTF-8"
                column = f.when(wrong, f.raise_error(f.lit(why))).otherwise(column)
            if not field.nullable:
                column = _required(frame, column, source.name)
        yield column.alias(field.name)


def _in_session(rows: Any, session: Any) -> Any:
    """The rows as a JVM DataFrame of this session."""
    datasets = java_class(rows.sparkSession, "org.apache.spark.sql.classic.Dataset")
    return datasets.ofRows(session, plan_of(rows))


def _as_optional(rows: Any, schema: Schema, session: Any) -> Any:
    """The same rows. Spark writes a column that it knows to have no NULL, which it often finds only when it
    optimizes, as a required one: another Parquet type than the table's. Such columns get a CASE."""
    from pyspark.sql import functions as f

    execution = _in_session(rows, session).queryExecution()
    plans = [execution.analyzed(), execution.optimizedPlan()]
    known = [{field["name"] for field in _fields(p) if not field["nullable"]} for p in plans]
    strict = {x.name for x in schema.fields if x.nullable and any(x.name in k for k in known)}
    if not strict:
        return rows

    def column(name: str) -> Any:
        value = attribute(rows, name)
        # True of every row, which the optimizer does not know.
        return f.when(f.spark_partition_id() >= 0, value).alias(name) if name in strict else value

    return rows.select(*map(column, schema.names))


def _fields(plan: Any) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(plan.schema().json())["fields"]
    return fields


def _is_no_text(value: Any, kind: DataType) -> Any:
    """Whether a value has text, at any level, that is not UTF-8; None for a type without text."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as st

    def among(values: Any, inner: DataType) -> Any:
        def is_wrong(element: Any) -> Any:
            return _is_no_text(element, inner)

        return None if is_wrong(f.lit(None)) is None else f.exists(values, is_wrong)

    match kind:
        case st.StringType():
            parts = [~f.is_valid_utf8(value)]
        case st.StructType():
            parts = [_is_no_text(value.getField(part.name), part.dataType) for part in kind]
        case st.ArrayType():
            parts = [among(value, kind.elementType)]
        case st.MapType():
            keys, values = f.map_keys(value), f.map_values(value)
            parts = [among(keys, kind.keyType), among(values, kind.valueType)]
        case _:  # no other type of Spark holds text
            parts = []
    wrong = [f.coalesce(part, f.lit(False)) for part in parts if part is not None]
    return reduce(operator.or_, wrong) if wrong else None


def _required(frame: Any, value: Any, name: str) -> Any:
    """A value that is checked to be no NULL when it is written."""
    spark = frame.sparkSession
    checks = java_class(spark, "org.apache.spark.sql.catalyst.expressions.objects.AssertNotNull")
    return column_of(spark, checks(expression_of(spark, value), to_seq(spark, [name])))

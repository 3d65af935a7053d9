"""Merge: applies change records (insert, update, delete) to the table, in one commit.

Promise: after the commit each key has the row of its newest record, or none if that is a delete. Records
may arrive late, twice and in any order: `order` determines which is newer, among the records and against
the row of the table, by the rule of change records (`Operations`), which also says what an operation
means. Deletes are remembered (`PartedMerge.memory`), by this function and by `Table.apply_changes` alike,
so that a record that arrives later than a newer delete of its key is late; also beside another merge.

::

    known     records with an operation that is not known end the merge
    newest    of the records of each key, the one that counts
    late      left out, when the table's row is newer, or a remembered delete as new or newer
    remember  key and order of the deletes: a merge that fails after this is repeated and finds them
    write     executors write the rows; for existing keys they find the position of the row, if it was
              written recently (`recent`), else they write the keys as delete markers
    commit    both at once: the marker applies only to rows of earlier commits

Executors do everything but the commit; only entries, counts and the lowest and highest key go to the
driver.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from inlay.engine import (
    Context,
    Operations,
    PartedMerge,
    RecentRows,
    Request,
    Schema,
    load_pointer,
)
from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.spark.api import read
from inlay.spark.batches import collect_pickled, pickled_batch
from inlay.spark.change_records import (
    ARRIVAL,
    MEANING,
    classified,
    count_known,
    operations_in,
    spelled_in,
    unpacked,
    which,
)
from inlay.spark.conditions import check_frame, check_names, in_sql, quoted
from inlay.spark.connect import bound, check_writable, connect
from inlay.spark.context import activate
from inlay.spark.types import (
    arrow_for,
    arrow_for_new,
    check_written,
    named_as_in,
    nullable,
)
from inlay.spark.writer import OWN_REQUEST, append_request, is_applied

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


# A merge whose rows others changed meanwhile is planned again this often.
MAX_PLANS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """`committed` False: the batch was `applied_before`, or had nothing new. `records` is the number given,
    `keys` the distinct keys; `late` keys were older than the table's; of the keys that the table had,
    `located` were deleted by position."""

    committed: bool
    version: int
    records: int = 0
    keys: int = 0
    late: int = 0
    rows: int = 0
    deleted_keys: int = 0
    located: int = 0
    applied_before: bool = False


def merge(
    changes: DataFrame,
    uri: str,
    *,
    order: str | Sequence[str],
    on: Sequence[str] = (),
    op: str | None = "op",
    operations: str | Mapping[str, Sequence[str]] | None = None,
    deletes: Sequence[str] | None = None,
    request_id: str | None = None,
    batch: tuple[str, int] | None = None,
    recent: RecentRows | None = None,
    hold: Any = None,
) -> MergeResult:
    """Merges change records into the table.

    `on` are the key columns (default: the primary key); `order` is a column, or several from the first, of
    the records and of the table. `op` is the column that says what a record does (None: all are rows), in
    the values of `operations`: a producer's name, or {"rows": […], "deletes": […]} (default: the letters
    and words of all producers); `deletes` are other values for a delete. Any other value refuses the
    records (`InvalidRequest`), and nothing is merged.

    Columns that the records lack keep their values; those that the table lacks are refused, or added where
    its property `schema.evolve` says so. `request_id`, or `batch` (query id, batch id) of a streaming
    query, makes the merge idempotent. `recent` is kept from merge to merge of one stream: rows that it
    wrote recently are then deleted by position. `hold` takes the commit for a transaction
    (`inlay.spark.transaction`).
    """
    check_frame(changes, "merge")
    known = None if op is None else operations_in(op, operations, deletes)
    by = [order] if isinstance(order, str) else list(order)
    ctx = replace(bound(uri, None if recent is None else recent.table_id), hold=hold)
    if ctx.branch is not None:
        raise InvalidRequest(
            "change records cannot be merged into a branch: what they delete is remembered for the table",
            next_step="Merge them into main, or use InlayTable.merge on the branch",
            table=ctx.uri,
        )
    result = MergeResult(committed=False, version=0)

    def carry_out_on(merge: PartedMerge) -> bool:
        nonlocal result
        check_writable(ctx, merge.table)
        snapshot = merge.snapshot
        before = batch is not None and is_applied(snapshot, *batch)
        result = MergeResult(committed=False, version=snapshot.version, applied_before=before)
        if before:
            return False
        records = records_of(merge, changes, on, by, known)
        merge.begin(records.keys, records.order, records.kept)
        summary, parts = carry_out(records, uri, merge)
        is_ready = merge.ready(parts, summary.where)
        result = MergeResult(
            committed=False,
            version=snapshot.version,
            records=summary.records,
            keys=summary.keys,
            late=summary.keys - merge.written,
            rows=merge.rows,
            deleted_keys=merge.deleted,
            located=merge.located,
        )
        return is_ready

    loaded = load_pointer(ctx, carried=None if recent is None else recent.contents)
    if loaded.snapshot.settings.adds_columns:
        data = _brought(changes, known, loaded.snapshot.schema)
        loaded = PartedMerge.admit_columns(ctx, loaded, data)
    done = PartedMerge.commit(
        ctx,
        loaded,
        carry_out_on,
        request=_request(request_id, batch),
        stream=batch,
        recent=recent,
        plans=MAX_PLANS,
    )
    return replace(
        result,
        committed=done.committed,
        version=done.version,
        applied_before=result.applied_before or done.applied_before,
    )


def _request(request_id: str | None, batch: tuple[str, int] | None) -> Request | None:
    if batch is not None:
        return Request.of(f"stream {batch[0]} batch {batch[1]}")
    return None if request_id is None else Request.of(request_id, body="merge")


# -- the records ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Records:
    """Change records with the table's names. `given` are the table's columns that they have, `kept` those
    that they lack."""

    frame: DataFrame
    keys: list[str]
    order: list[str]
    operations: Operations | None
    given: list[str]
    kept: list[str]


def records_of(
    merge: PartedMerge,
    changes: DataFrame,
    on: Sequence[str],
    order: Sequence[str],
    operations: Operations | None,
) -> Records:
    """Raises `SchemaMismatch`, `InvalidRequest` and `UnsupportedType` for records that cannot be merged
    into the table, whatever their values."""
    schema = merge.snapshot.schema
    keys = list(merge.key_names(named_as_in(schema, on)))
    frame = _plain(changes, operations, schema, keys)
    by = named_as_in(schema, order)
    operations = spelled_in(frame.columns, operations)
    _check(frame, schema, keys, by, operations)
    data = _data(frame.schema, operations, schema)
    check_written(data)
    given = merge.given(arrow_for(data), [*keys, *by])
    kept = [name for name in schema.names if name not in given]
    return Records(frame, keys, by, operations, list(given), kept)


def _brought(changes: DataFrame, operations: Operations | None, schema: Schema) -> pa.Schema:
    """The columns of the records, as a table would get them."""
    frame = _plain(changes, operations, schema)
    data = _data(frame.schema, spelled_in(frame.columns, operations), schema)
    return arrow_for_new(nullable(data))


def _data(given: StructType, operations: Operations | None, schema: Schema) -> StructType:
    """The columns of rows, without those that only say what a record does."""
    from pyspark.sql.types import StructType

    own = () if operations is None else operations.columns
    return StructType([f for f in given if f.name in schema.names or f.name not in own])


def _plain(
    changes: DataFrame, operations: Operations | None, schema: Schema, keys: Sequence[str] = ()
) -> DataFrame:
    """The records with plain columns, named as the table's are."""
    rows = unpacked(changes, operations, schema.names, keys)
    check_names(schema.names, rows.columns)
    return _without_collation(rows.toDF(*named_as_in(schema, rows.columns)))


def _without_collation(changes: DataFrame) -> DataFrame:
    """Texts as the table compares them: by a collation of the records' "a" may be "A"."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import CharType, StringType, VarcharType

    plain = StringType()
    return changes.select(
        *(
            f.col(quoted(field.name)).cast(plain).alias(field.name)
            if isinstance(field.dataType, (StringType, CharType, VarcharType))
            and field.dataType != plain
            else f.col(quoted(field.name))
            for field in changes.schema
        )
    )


def _check(
    changes: DataFrame,
    schema: Schema,
    keys: list[str],
    order: list[str],
    operations: Operations | None,
) -> None:
    for name in (*keys, *order):
        if name not in schema.names:
            raise SchemaMismatch(
                f"the table has no column {name!r}",
                next_step="Key and order are columns of the table: the order of a row that is there "
                "decides which records are late",
            )
    for name in order:
        if name in keys:
            raise InvalidRequest(f"{name!r} is a key and cannot be the order of its records")
    asked = () if operations is None else (operations.column, operations.flag)
    missing = [name for name in (*keys, *order, *asked) if name and name not in changes.columns]
    if missing:
        raise SchemaMismatch(
            f"the change records have no column {missing[0]!r}",
            next_step=f"They have: {', '.join(changes.columns)}",
        )
    if operations is not None and not operations.tombstones:
        kind = changes.schema[operations.column].dataType.simpleString()
        if kind not in ("string", "boolean"):
            raise SchemaMismatch(
                f"the operations in {operations.column!r} are of type {kind}, and not texts",
                next_step="Name the column that says what each record does by op=, or None: all are rows",
            )


# -- on Spark -------------------------------------------------------------------------------------


def carry_out(records: Records, uri: str, merge: PartedMerge) -> tuple[RecordSummary, list[Any]]:
    """The jobs of a merge: they compare the records with the table, and write. With what each task wrote
    (`MergeWriter.write`)."""
    marked = classified(records.frame, records.operations)
    number = count_known(marked, records.operations, uri)
    latest = newest(marked, records).persist()
    timely = latest
    try:
        summary = summarise(latest, records.keys, number)
        timely = without_late(latest, records, summary, uri, merge).persist()
        if summary.deletes:
            remember(timely, records, summary, merge)
        return summary, _write(timely, uri, records, summary, merge)
    finally:
        timely.unpersist()
        latest.unpersist()


def _write(
    timely: DataFrame, uri: str, records: Records, summary: RecordSummary, merge: PartedMerge
) -> list[Any]:
    names = [*records.given, *records.kept, DELETED, REPLACES]
    # Few tasks make few markers. Not by `coalesce`: these few would then do the join with the table, too.
    rows = timely.select(*map(quoted, names)).repartition(
        task_count(summary.keys), *map(quoted, records.keys)
    )
    write = partial(_write_part, uri, merge.writer().write, names)
    # Spark takes no strange names where it hands rows to Python.
    plain = rows.toDF(*(f"c{place}" for place in range(len(names))))
    return collect_pickled(plain, write)


# -- on the executors -----------------------------------------------------------------------------


def _write_part(
    uri: str,
    write: Callable[[Context, Iterator[pa.RecordBatch]], object],
    names: list[str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    named = (batch.rename_columns(names) for batch in batches)
    yield pickled_batch(write(connect(uri), named))


# -- the records, as DataFrames -------------------------------------------------------------------

# Records that one task merges: its keys are held in memory, and become one marker object.
TASK_ROWS = 1_000_000

# Columns added for the merge: whether a record deletes, and whether the table has its key.
DELETED, REPLACES = PartedMerge.FLAGS
_HAS = "__inlay_has"
_GONE = "__inlay_gone"
_IS_NEW = "__inlay_new"
_KEPT = "__inlay_kept"


@dataclass(frozen=True, slots=True)
class RecordSummary:
    """What one pass over the records found. `bounds` of each key column, as SQL; None where it has none."""

    records: int
    keys: int
    deletes: int
    bounds: tuple[tuple[str, str] | None, ...]

    def where(self, columns: Sequence[str]) -> str | None:
        """A condition that holds for the keys, which are in these columns, from the first."""
        conditions = [
            f"{in_sql(column)} BETWEEN {bound[0]} AND {bound[1]}"
            for column, bound in zip(columns, self.bounds, strict=False)
            if bound is not None
        ]
        return " AND ".join(conditions) or None


def newest(marked: DataFrame, records: Records) -> DataFrame:
    """The record of each key that counts, by the rule of change records."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    gone = which(deletes=True)
    flagged = marked.where(which(deletes=False) | gone).withColumn(DELETED, gone)
    latest = Window.partitionBy(*map(quoted, records.keys)).orderBy(
        *(f.col(quoted(name)).desc_nulls_last() for name in records.order),
        f.col(DELETED).desc(),
        f.col(ARRIVAL).desc(),
    )
    return (
        flagged.withColumn("__inlay_rank", f.row_number().over(latest))
        .where("__inlay_rank = 1")
        .drop("__inlay_rank", ARRIVAL, MEANING)
    )


def summarise(newest: DataFrame, keys: list[str], records: int) -> RecordSummary:
    """The number of keys and their ranges; refuses records without a key."""
    from pyspark.sql import functions as f

    no_key = f.count_if(f.greatest(*[f.col(quoted(key)).isNull() for key in keys], f.lit(False)))
    extremes = [of(quoted(key)) for key in keys for of in (f.min, f.max)]
    counts = newest.agg(f.count("*"), f.count_if(DELETED), no_key, *extremes).collect()[0]
    if counts[2]:
        raise InvalidRequest(
            f"{counts[2]} change records have no key", next_step=f"Give each one {', '.join(keys)}"
        )
    ends = list(map(_literal, counts[3:]))
    bounds = tuple(
        None if low is None or high is None else (low, high)
        for low, high in zip(ends[::2], ends[1::2], strict=True)
    )
    return RecordSummary(records, counts[0], counts[1], bounds)


def _literal(value: Any) -> str | None:
    """SQL text of a key, for the types that are worth bounding."""
    match value:
        case bool() | datetime():
            return None
        case int():
            return str(value)
        case str():
            return "'" + value.replace("'", "''") + "'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case _:  # not worth bounding
            return None


def remember(
    timely: DataFrame, records: Records, summary: RecordSummary, merge: PartedMerge
) -> None:
    """Writes key and order of the deletes that are not remembered yet. Writing one twice does no harm."""
    from pyspark.sql import functions as f

    memory = merge.memory
    memory.make()
    request = f"{OWN_REQUEST}{uuid.uuid4()}"
    columns = [*records.keys, *records.order]
    renamed = [
        f.col(quoted(name)).alias(own) for name, own in zip(columns, memory.columns, strict=True)
    ]
    new = timely.where(f.col(DELETED) & f.col(_IS_NEW)).coalesce(task_count(summary.deletes))
    at = f.timestamp_micros(f.lit(merge.table.date_us))
    rows = new.select(*renamed, at.alias(memory.AT))
    activate(rows.sparkSession)
    rows.write.format("inlay").mode("append").option("requestId", request).save(memory.uri)
    memory.added(append_request(request))


def without_late(
    newest: DataFrame, records: Records, summary: RecordSummary, uri: str, merge: PartedMerge
) -> DataFrame:
    """Only records that count over the table's row of their key and, rows, over a remembered delete. Reads
    key and order, and what records lack, of the files that may hold such keys."""
    from pyspark.sql import functions as f

    keys, order, kept = records.keys, records.order, records.kept

    def newest_of(rows: DataFrame, name: str, kept: Sequence[str]) -> DataFrame:
        # The key is not enforced: of several rows of one key the newest counts. In a struct, because a row
        # may exist with the order NULL, which is older than any other.
        rank = _struct(order)
        there = [f.max(rank).alias(name)]
        if kept:
            there.append(f.max_by(_struct(kept), rank).alias(_KEPT))
        return rows.groupBy(*map(quoted, keys)).agg(*there)

    def rows_of(table: str, columns: Sequence[str], version: int) -> DataFrame:
        where = summary.where(columns)
        return read(newest.sparkSession, table, columns=columns, where=where, version=version)

    def is_above(name: str, *, or_equal: bool) -> Column:
        above = f.lit(or_equal)
        for place, column in reversed(list(enumerate(order))):
            ours, theirs = f.col(quoted(column)), f.col(name)[f"c{place}"]
            greater = f.coalesce(ours > theirs, theirs.isNull() & ours.isNotNull())
            above = greater | (ours.eqNullSafe(theirs) & above)
        return f.col(name).isNull() | above

    there = rows_of(uri, [*keys, *order, *kept], merge.snapshot.version)
    joined = newest.join(newest_of(there, _HAS, kept), on=keys, how="left")
    # Of two rows, or of a row and a delete, of one order the one that arrives now counts over the row.
    counts = is_above(_HAS, or_equal=True)
    if not merge.remembers:
        joined = joined.withColumn(_IS_NEW, f.lit(True))
    else:
        memory = merge.memory
        known = rows_of(memory.uri, memory.columns, memory.version).toDF(*keys, *order)
        joined = joined.join(newest_of(known, _GONE, ()), on=keys, how="left")
        joined = joined.withColumn(_IS_NEW, is_above(_GONE, or_equal=False))
        counts &= f.col(DELETED) | f.col(_IS_NEW)
    for place, name in enumerate(kept):
        joined = joined.withColumn(name, f.col(_KEPT)[f"c{place}"])
    names = [*records.given, *kept, DELETED, REPLACES, _IS_NEW]
    timely = joined.where(counts).withColumn(REPLACES, f.col(_HAS).isNotNull())
    return timely.select(*map(quoted, names))


def _struct(names: Sequence[str]) -> Column:
    from pyspark.sql import functions as f

    return f.struct(*(f.col(quoted(name)).alias(f"c{n}") for n, name in enumerate(names)))


def task_count(rows: int) -> int:
    return max(1, -(-rows // TASK_ROWS))

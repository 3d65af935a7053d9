"""Merge: applies change records (insert, update, delete) to the table, in one commit.

Promise: after the commit each key has the row of its newest record, or none if that is a delete. Records
may arrive late, twice and in any order: `order` determines which is newer, among the records and against
the row of the table. A deleted row leaves nothing to compare with: where a record may arrive later than a
newer delete of its key, give `deleted_log`, a table in which merges keep key and order of deletes.

::

    newest    of the records of each key, the one of the highest order
    log       its deletes, before anything else: a merge that fails here is repeated and finds them
    late      left out, when the table's row, or a logged delete, is as new or newer
    write     executors write the rows; for existing keys they find the position of the row, if it was
              written recently (`recent`), else they write the keys as delete markers
    commit    both at once: the marker applies only to rows of earlier commits

Executors do everything but the commit; only entries, counts and the lowest and highest key go to the
driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from inlay.errors import InvalidRequest, SchemaMismatch, TableExists
from inlay.format.entry import DataFile, Marker
from inlay.format.predicate import Predicate
from inlay.format.schema import Schema
from inlay.ops.commit.driver import Committed, Planned, Skipped, commit_planned
from inlay.ops.data import layout_of, target_of, vector_markers
from inlay.ops.metadata.load import LoadedTable, load_entries, load_pointer
from inlay.ops.schema.create import create
from inlay.ops.write.delete import key_markers
from inlay.parquet.arrow.conform import conformed
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parquet.write.writer import write_files
from inlay.parse import parse_predicate
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    AdvanceStream,
    Change,
    Reads,
    RemoveFiles,
    Request,
)
from inlay.spark.api import read
from inlay.spark.batches import collect_pickled, pickled_batch
from inlay.spark.conditions import check_names, quoted
from inlay.spark.connect import bound, check_writable, connect, without_entries
from inlay.spark.context import activate
from inlay.spark.recent_rows import Recent, find_positions
from inlay.spark.sink import is_applied
from inlay.spark.types import named_as_in, spelled

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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


@dataclass(frozen=True, slots=True)
class _Part:
    """What one task wrote."""

    files: tuple[DataFile, ...]
    markers: tuple[Marker, ...]
    located: Mapping[str, BitMap64]
    records: int
    deleted: int


def merge(
    changes: DataFrame,
    uri: str,
    *,
    order: str,
    on: Sequence[str] = (),
    op: str | None = "op",
    deletes: Sequence[str] = ("D", "d", "delete"),
    request_id: str | None = None,
    batch: tuple[str, int] | None = None,
    deleted_log: str | None = None,
    recent: Recent | None = None,
) -> MergeResult:
    """Merges change records into the table.

    `on` are the key columns (default: the primary key); `order` is a column of the records and of the
    table; `op` is the column with the kind of a record: one of `deletes`, anything else is a row (None: all
    are rows). Columns the table lacks are ignored. `request_id`, or `batch` (query id, batch id) of a
    streaming query, makes the merge idempotent. `deleted_log` is the URI of a table, created when missing;
    it holds keys of deleted rows until they are deleted from it too, so an erasure must cover it as well.
    `recent` is kept from merge to merge of one stream: rows that it wrote recently are then deleted by
    position.
    """
    ctx = bound(uri, None if recent is None else recent.table_id)
    result = MergeResult(committed=False, version=0)
    change = Change(operation="merge")

    def plan(loaded: LoadedTable) -> Planned | None:
        nonlocal result, change
        check_writable(ctx, loaded)
        if recent is not None:
            loaded = replace(loaded, state=load_entries(ctx, loaded.state))
        snapshot = loaded.snapshot
        known = batch is not None and is_applied(snapshot, *batch)
        result = MergeResult(committed=False, version=snapshot.version, applied_before=known)
        if known:
            return None
        names = snapshot.schema
        check_names(names.names, changes.columns)
        given = _without_collation(changes.toDF(*named_as_in(names, changes.columns)))
        keys = named_as_in(names, _keys(loaded, on))
        [by] = named_as_in(names, [order])
        kind = op and (spelled(op, given.columns) or op)
        _check(given, loaded, keys, by, kind)
        files = () if recent is None else recent.look(loaded.state)
        latest = newest(given, keys, by, kind, deletes).persist()
        try:
            found = summarise(given, latest, keys)
            if deleted_log is not None:
                log_deletes(latest, deleted_log, loaded, [*keys, by], found)
            timely = without_late(latest, loaded, keys, by, found, uri, deleted_log)
            parts = _write(timely, uri, loaded, keys, found, files)
        finally:
            latest.unpersist()
        written = sum(part.records for part in parts)
        gone, marked = _replaced(parts, files)
        reads: Predicate | None = None
        if found.where is not None:
            reads = parse_predicate(found.where, snapshot.schema)
        added = tuple(file for part in parts for file in part.files)
        result = MergeResult(
            committed=False,
            version=snapshot.version,
            records=found.records,
            keys=found.keys,
            late=found.keys - written,
            rows=sum(file.rows for file in added),
            deleted_keys=sum(part.deleted for part in parts),
            located=sum(len(rows) for part in parts for rows in part.located.values()),
        )
        request = _request(request_id, batch)
        if not written and request is None:
            return None
        change = Change(
            operation="merge",
            request=request,
            updates=(
                AddFiles(added),
                AddMarkers(
                    (
                        *(marker for part in parts for marker in part.markers),
                        *vector_markers(ctx, loaded, marked),
                    )
                ),
                RemoveFiles(gone),
                *(() if batch is None else (AdvanceStream(*batch),)),
            ),
            uploaded_us=loaded.date_us,
            deleted_rows=None,
            # Which records are late was said by rows of this version.
            requires=(Reads(reads, snapshot.version),),
        )
        return Planned(change, loaded)

    loaded = load_pointer(ctx, carried=None if recent is None else recent.contents)
    outcome = commit_planned(ctx, loaded, plan, plans=MAX_PLANS)
    committed = isinstance(outcome, Committed)
    if recent is not None and committed:
        recent.add(change.added, change.markers, change.removed)
    return replace(
        result,
        committed=committed,
        version=outcome.loaded.snapshot.version,
        applied_before=result.applied_before
        or (isinstance(outcome, Skipped) and outcome.applied_before),
    )


def _keys(loaded: LoadedTable, on: Sequence[str]) -> list[str]:
    snapshot = loaded.snapshot
    keys = list(on) or [f.name for f in snapshot.schema.fields if f.id in snapshot.primary_key]
    if not keys:
        raise InvalidRequest("merge needs `on`: the table has no primary key")
    return keys


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
    changes: DataFrame, loaded: LoadedTable, keys: list[str], order: str, op: str | None
) -> None:
    names = loaded.snapshot.schema.names
    for name in (*keys, order):
        if name not in names:
            raise SchemaMismatch(
                f"the table has no column {name!r}",
                next_step="Key and order are columns of the table: the order of a row that is there "
                "decides which records are late",
            )
    if order in keys:
        raise InvalidRequest(f"{order!r} is a key and cannot be the order of its records")
    missing = [name for name in (*keys, order, op) if name and name not in changes.columns]
    if missing:
        raise SchemaMismatch(
            f"the change records have no column {missing[0]!r}",
            next_step=f"They have: {', '.join(changes.columns)}",
        )


def _request(request_id: str | None, batch: tuple[str, int] | None) -> Request | None:
    if batch is not None:
        return Request.of(f"stream {batch[0]} batch {batch[1]}")
    return None if request_id is None else Request.of(request_id, body="merge")


# -- on Spark -------------------------------------------------------------------------------------


def _write(
    records: DataFrame,
    uri: str,
    loaded: LoadedTable,
    keys: list[str],
    found: RecordSummary,
    recent: Sequence[DataFile],
) -> list[_Part]:
    names = [name for name in loaded.snapshot.schema.names if name in records.columns]
    names += [DELETED, REPLACES]
    # Few tasks make few markers. Not by `coalesce`: these few would then do the join with the table, too.
    rows = records.select(*map(quoted, names)).repartition(
        task_count(found.keys), *map(quoted, keys)
    )
    write = partial(_write_part, uri, without_entries(loaded), keys, names, recent)
    # Spark takes no strange names where it hands rows to Python.
    plain = rows.toDF(*(f"c{place}" for place in range(len(names))))
    return collect_pickled(plain, write)


def _replaced(
    parts: Sequence[_Part], files: Sequence[DataFile]
) -> tuple[tuple[str, ...], dict[str, BitMap64]]:
    """(files that lose all their rows, the rows that others lose), of what tasks have located."""
    marked: dict[str, BitMap64] = {}
    for part in parts:
        for key, rows in part.located.items():
            marked[key] = marked.get(key, BitMap64()) | rows
    sizes = {file.key: file.rows for file in files}
    gone = tuple(key for key, rows in marked.items() if len(rows) == sizes[key])
    return gone, {key: rows for key, rows in marked.items() if key not in gone}


# -- on the executors -----------------------------------------------------------------------------


def _write_part(
    uri: str,
    loaded: LoadedTable,
    keys: list[str],
    names: list[str],
    recent: Sequence[DataFile],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write a task's rows, and the keys whose rows in the table they replace."""
    ctx = connect(uri)
    snapshot = loaded.snapshot
    schema = snapshot.schema
    replaced: list[pa.RecordBatch] = []
    records = deleted = 0

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal records, deleted
        for unnamed in batches:
            batch = unnamed.rename_columns(names)
            gone = batch.column(DELETED)
            records += batch.num_rows
            deleted += gone.true_count
            replaced.append(batch.filter(batch.column(REPLACES)).select(keys))
            # A delete record may lack what the table requires of a row.
            kept = batch.filter(pc.invert(gone)).drop_columns([DELETED, REPLACES])
            yield kept

    target = target_of(ctx, loaded.date_us)
    fitted = conformed(rows(), schema, schema, by_value=True)
    checked = Declared.of(snapshot).checked(fitted)
    files = tuple(write_files(target, checked, schema, layout_of(snapshot)))
    markers: tuple[Marker, ...] = ()
    located: dict[str, BitMap64] = {}
    if any(batch.num_rows for batch in replaced):
        gone = pa.Table.from_batches(replaced)
        if recent:
            located, gone = find_positions(ctx, schema, recent, gone)
        markers = tuple(key_markers(ctx, loaded, gone))
    yield pickled_batch(_Part(files, markers, located, records, deleted))


# -- the records, as DataFrames -------------------------------------------------------------------

# Records that one task merges: its keys are held in memory, and become one marker object.
TASK_ROWS = 1_000_000

# Columns added for the merge: whether a record deletes, and whether the table has its key.
DELETED = "__inlay_deleted"
REPLACES = "__inlay_replaces"
_HAS = "__inlay_has"
_GONE = "__inlay_gone"


@dataclass(frozen=True, slots=True)
class RecordSummary:
    """What one pass over the records found."""

    records: int
    keys: int
    deletes: int
    where: str | None


def newest(
    changes: DataFrame, keys: list[str], order: str, op: str | None, deletes: Sequence[str]
) -> DataFrame:
    """One record of each key: the newest (NULL is older than any order); of equally new ones, a delete if
    there is one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    is_delete = f.lit(False) if op is None else f.col(quoted(op)).isin(*deletes)
    flagged = changes.withColumn(DELETED, f.coalesce(is_delete, f.lit(False)))
    latest = Window.partitionBy(*map(quoted, keys)).orderBy(
        f.col(quoted(order)).desc_nulls_last(), f.col(DELETED).desc()
    )
    return (
        flagged.withColumn("__inlay_rank", f.row_number().over(latest))
        .where("__inlay_rank = 1")
        .drop("__inlay_rank")
    )


def summarise(changes: DataFrame, newest: DataFrame, keys: list[str]) -> RecordSummary:
    """The number of records and the range of their keys; refuses records without a key."""
    from pyspark.sql import functions as f

    no_key = f.count_if(f.greatest(*[f.col(quoted(key)).isNull() for key in keys], f.lit(False)))
    first = f.col(quoted(keys[0]))
    found = newest.agg(
        f.count("*"), f.count_if(DELETED), no_key, f.min(first), f.max(first)
    ).collect()[0]
    if found[2]:
        raise InvalidRequest(
            f"{found[2]} change records have no key", next_step=f"Give each one {', '.join(keys)}"
        )
    low, high = _literal(found[3]), _literal(found[4])
    where = None if low is None or high is None else f"{_in_sql(keys[0])} BETWEEN {low} AND {high}"
    return RecordSummary(changes.count(), found[0], found[1], where)


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


def _in_sql(name: str) -> str:
    """A name, quoted for the library's SQL."""
    return '"' + name.replace('"', '""') + '"'


def log_deletes(
    newest: DataFrame, log: str, loaded: LoadedTable, columns: list[str], found: RecordSummary
) -> None:
    """Appends key and order of the deleting records. Logging one twice does no harm."""
    fields = [field for field in loaded.snapshot.schema.fields if field.name in columns]
    with suppress(TableExists):
        schema = schema_to_arrow(Schema(0, tuple(fields)), with_ids=False)
        create(connect(log), schema, sort_by=columns[:1])
    if found.deletes:
        gone = (
            newest.where(DELETED).select(*map(quoted, columns)).coalesce(task_count(found.deletes))
        )
        activate(gone.sparkSession)
        gone.write.format("inlay").mode("append").save(log)


def without_late(
    newest: DataFrame,
    loaded: LoadedTable,
    keys: list[str],
    order: str,
    found: RecordSummary,
    uri: str,
    log: str | None,
) -> DataFrame:
    """Only records newer than the table's row of their key or, for rows, than a logged delete. Reads key
    and order of the files that may hold such keys."""
    from pyspark.sql import functions as f

    def newest_of(table: str, name: str, version: int | None = None) -> DataFrame:
        rows = read(
            newest.sparkSession, table, columns=[*keys, order], where=found.where, version=version
        )
        # The key is not enforced: of several rows of one key the newest counts. In a struct, because a row
        # may exist with the order NULL, which is older than any other.
        there = f.struct(f.max(quoted(order)).alias("order")).alias(name)
        return rows.groupBy(*map(quoted, keys)).agg(there)

    def is_after(name: str) -> Column:
        ours, theirs = f.col(quoted(order)), f.col(name)["order"]
        return f.col(name).isNull() | (ours > theirs) | (theirs.isNull() & ours.isNotNull())

    has = newest_of(uri, _HAS, loaded.snapshot.version)
    joined = newest.join(has, on=keys, how="left")
    is_newer = is_after(_HAS)
    if log is not None:
        joined = joined.join(newest_of(log, _GONE), on=keys, how="left")
        is_newer &= f.col(DELETED) | is_after(_GONE)
    return joined.where(is_newer).withColumn(REPLACES, f.col(_HAS).isNotNull())


def task_count(rows: int) -> int:
    return max(1, -(-rows // TASK_ROWS))

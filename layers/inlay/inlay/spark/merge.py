"""Merge: change records (insert, update, delete) become the state they describe, in one commit.

Promise: after the commit each key has the row of its newest record, or none if that is a delete. Records
may come late, twice and in any order: `order` tells which is newer, among the records and against the
row the table has. A deleted row leaves nothing to compare with: where a record may come later than a
newer delete of its key, give `deleted_log`, a table in which merges keep key and order of deletes.

::

    newest    of the records of each key, the one of the highest order
    log       its deletes, before anything else: a merge that dies here is repeated and finds them
    late      left out, when the table's row, or a logged delete, is as new or newer
    write     executors write the rows; for keys that are there they find the place of the row, if it
              was written lately (`recent`), else they write them as delete markers
    commit    both at once: the marker hits only rows of earlier commits

Executors do all of it but the commit; only entries come to the driver.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from inlay.errors import ConcurrentChange, InvalidRequest, SchemaMismatch, TableExists
from inlay.format.entry import DataFile, Marker
from inlay.format.predicate import Predicate
from inlay.format.schema import Schema
from inlay.ops.commit import Committed, Conflicted, commit
from inlay.ops.create import create
from inlay.ops.delete import key_markers
from inlay.ops.load import Loaded, load_entries, load_pointer
from inlay.ops.vectors import vector_markers
from inlay.ops.write import layout_of, target_of
from inlay.parquet.conform import conform
from inlay.parquet.types import schema_to_arrow
from inlay.parquet.writer import write_files
from inlay.parse import parse_predicate
from inlay.plan.change import NO_EDIT, Change, Edit, Reads, Request
from inlay.spark.api import read
from inlay.spark.connect import check_writable, connect
from inlay.spark.recent import Recent, locate
from inlay.spark.slim import bare

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Records that one task merges: its keys are held in memory, and become one marker object.
TASK_ROWS = 1_000_000
# A merge whose rows others changed meanwhile is planned again this often.
MAX_PLANS = 5

# Columns of the records while they are merged.
_DELETED = "__inlay_deleted"
_HAS = "__inlay_has"
_GONE = "__inlay_gone"
_REPLACES = "__inlay_replaces"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """`committed` False: the batch was in the table already, or had nothing new. `records` are those
    given, `keys` distinct; `late` keys were older than what the table has; of the keys that the table had,
    `located` were deleted by position."""

    committed: bool
    version: int
    records: int = 0
    keys: int = 0
    late: int = 0
    rows: int = 0
    deleted_keys: int = 0
    located: int = 0


@dataclass(frozen=True, slots=True)
class _Batch:
    """What one look at the records told."""

    records: int
    keys: int
    deletes: int
    where: str | None


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
    """Merge change records into the table.

    `on` are the key columns (default: the primary key); `order` is a column of the records and of the
    table; `op` the column that says what a record is: one of `deletes`, anything else brings a row
    (None: they all do).
    Columns the table lacks are ignored. `request_id`, or `batch` (query id, batch id) of a streaming
    query, makes it once-only. `deleted_log` is the URI of a table, created when missing; it holds keys
    of deleted rows until they are deleted from it too, so an erasure must name it as well. `recent` is
    kept from merge to merge of one stream: rows that it wrote lately are then deleted by position.
    """
    ctx = connect(uri)
    for _ in range(MAX_PLANS):
        loaded = load_pointer(ctx, carried=None if recent is None else recent.contents)
        check_writable(ctx, loaded)
        if recent is not None:
            loaded = replace(loaded, state=load_entries(ctx, loaded.state))
        snapshot = loaded.snapshot
        if batch is not None and snapshot.ledger.streams.get(batch[0], -1) >= batch[1]:
            return MergeResult(committed=False, version=snapshot.version)
        keys = _keys(loaded, on)
        _check(changes, loaded, keys, order, op)
        files = () if recent is None else recent.look(loaded.state)
        newest = _newest(changes, keys, order, op, deletes).persist()
        try:
            found = _look(changes, newest, keys)
            if deleted_log is not None:
                _log_deletes(newest, deleted_log, loaded, [*keys, order], found)
            fresh = _without_late(newest, loaded, keys, order, found, uri, deleted_log)
            parts = _write(fresh, uri, loaded, keys, found, files)
        finally:
            newest.unpersist()
        written = sum(part.records for part in parts)
        gone, marked = _replaced(parts, files)
        reads: Predicate | None = None
        if found.where is not None:
            reads = parse_predicate(found.where, snapshot.schema)
        change = Change(
            operation="merge",
            request=_request(request_id, batch),
            add=tuple(file for part in parts for file in part.files),
            add_markers=(
                *(marker for part in parts for marker in part.markers),
                *vector_markers(ctx, loaded, marked),
            ),
            remove=gone,
            uploaded_us=loaded.date_us,
            deleted_rows=None,
            # Which records are late was told by rows of this version.
            reads=Reads(reads, snapshot.version),
            edit=NO_EDIT if batch is None else Edit(stream=batch),
        )
        told = MergeResult(
            committed=False,
            version=snapshot.version,
            records=found.records,
            keys=found.keys,
            late=found.keys - written,
            rows=sum(file.rows for file in change.add),
            deleted_keys=sum(part.deleted for part in parts),
            located=sum(len(rows) for part in parts for rows in part.located.values()),
        )
        if not written and change.request is None:
            return told
        outcome = commit(ctx, change, base=loaded)
        if not isinstance(outcome, Conflicted):
            committed = isinstance(outcome, Committed)
            if recent is not None and committed:
                recent.add(change.add)
            return replace(told, committed=committed, version=outcome.loaded.snapshot.version)
    raise ConcurrentChange(
        f"rows of the keys to merge changed {MAX_PLANS} times meanwhile", table=uri
    )


def _keys(loaded: Loaded, on: Sequence[str]) -> list[str]:
    snapshot = loaded.snapshot
    keys = list(on) or [f.name for f in snapshot.schema.fields if f.id in snapshot.primary_key]
    if not keys:
        raise InvalidRequest("merge needs `on`: the table has no primary key")
    return keys


def _check(changes: DataFrame, loaded: Loaded, keys: list[str], order: str, op: str | None) -> None:
    names = loaded.snapshot.schema.names
    for name in (*keys, order):
        if name not in names:
            raise SchemaMismatch(
                f"the table has no column {name!r}",
                next_step="Key and order are columns of the table: the order of a row that is there "
                "tells which records are late",
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


def _newest(
    changes: DataFrame, keys: list[str], order: str, op: str | None, deletes: Sequence[str]
) -> DataFrame:
    """One record of each key: the newest; of equally new ones a delete."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    is_delete = f.lit(False) if op is None else f.col(op).isin(*deletes)
    flagged = changes.withColumn(_DELETED, f.coalesce(is_delete, f.lit(False)))
    latest = Window.partitionBy(*keys).orderBy(
        f.col(order).desc_nulls_last(), f.col(_DELETED).desc()
    )
    return (
        flagged.withColumn("__inlay_rank", f.row_number().over(latest))
        .where("__inlay_rank = 1")
        .drop("__inlay_rank")
    )


def _look(changes: DataFrame, newest: DataFrame, keys: list[str]) -> _Batch:
    """How many there are, and between which keys; refuses records without a key."""
    from pyspark.sql import functions as f

    no_key = f.count_if(f.greatest(*[f.col(key).isNull() for key in keys], f.lit(False)))
    first = f.col(keys[0])
    told = newest.agg(
        f.count("*"), f.count_if(_DELETED), no_key, f.min(first), f.max(first)
    ).collect()[0]
    if told[2]:
        raise InvalidRequest(
            f"{told[2]} change records have no key", next_step=f"Give each one {', '.join(keys)}"
        )
    low, high = _literal(told[3]), _literal(told[4])
    where = None if low is None or high is None else f"{_quoted(keys[0])} BETWEEN {low} AND {high}"
    return _Batch(changes.count(), told[0], told[1], where)


def _literal(value: Any) -> str | None:
    """SQL text of a key, of the types that bounds are worth having of."""
    match value:
        case bool() | datetime():
            return None
        case int():
            return str(value)
        case str():
            return "'" + value.replace("'", "''") + "'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _log_deletes(
    newest: DataFrame, log: str, loaded: Loaded, columns: list[str], found: _Batch
) -> None:
    """Append key and order of the records that delete. Logged twice is as good as once."""
    fields = [field for field in loaded.snapshot.schema.fields if field.name in columns]
    with suppress(TableExists):
        schema = schema_to_arrow(Schema(0, tuple(fields)), with_ids=False)
        create(connect(log), schema, sort_by=columns[:1])
    if found.deletes:
        gone = newest.where(_DELETED).select(*columns).coalesce(_tasks(found.deletes))
        gone.write.format("inlay").mode("append").save(log)


def _without_late(
    newest: DataFrame,
    loaded: Loaded,
    keys: list[str],
    order: str,
    found: _Batch,
    uri: str,
    log: str | None,
) -> DataFrame:
    """Only records that are newer than the table's row of their key, and rows only if newer than a
    logged delete. Reads key and order of the files that may hold such keys."""
    from pyspark.sql import functions as f

    def newest_of(table: str, name: str, version: int | None = None) -> DataFrame:
        rows = read(
            newest.sparkSession, table, columns=[*keys, order], where=found.where, version=version
        )
        # The key is not enforced: of several rows of one key the newest counts.
        return rows.groupBy(*keys).agg(f.max(order).alias(name))

    has = newest_of(uri, _HAS, loaded.snapshot.version)
    joined = newest.join(has, on=keys, how="left")
    is_newer = f.col(_HAS).isNull() | (f.col(order) > f.col(_HAS))
    if log is not None:
        joined = joined.join(newest_of(log, _GONE), on=keys, how="left")
        is_newer &= f.col(_DELETED) | f.col(_GONE).isNull() | (f.col(order) > f.col(_GONE))
    return joined.where(is_newer).withColumn(_REPLACES, f.col(_HAS).isNotNull())


def _tasks(rows: int) -> int:
    return max(1, -(-rows // TASK_ROWS))


def _write(
    records: DataFrame,
    uri: str,
    loaded: Loaded,
    keys: list[str],
    found: _Batch,
    recent: Sequence[DataFile],
) -> list[_Part]:
    names = loaded.snapshot.schema.names
    columns = [name for name in names if name in records.columns]
    # All records of a key are one by now, so any distribution will do; few tasks make few markers.
    rows = records.select(*columns, _DELETED, _REPLACES).coalesce(_tasks(found.keys))
    write = partial(_write_part, uri, bare(loaded), keys, recent)
    return [pickle.loads(row[0]) for row in rows.mapInArrow(write, "part binary").collect()]


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
    loaded: Loaded,
    keys: list[str],
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
        for batch in batches:
            gone = batch.column(_DELETED)
            records += batch.num_rows
            deleted += gone.true_count
            replaced.append(batch.filter(batch.column(_REPLACES)).select(keys))
            # A delete record may lack what the table requires of a row.
            kept = batch.filter(pc.invert(gone)).drop_columns([_DELETED, _REPLACES])
            yield conform(kept, schema, schema, by_value=True)

    target = target_of(ctx, loaded.date_us)
    files = tuple(write_files(target, rows(), schema, layout_of(snapshot)))
    markers: tuple[Marker, ...] = ()
    located: dict[str, BitMap64] = {}
    if any(batch.num_rows for batch in replaced):
        gone = pa.Table.from_batches(replaced)
        if recent:
            located, gone = locate(ctx, schema, recent, gone)
        markers = tuple(key_markers(ctx, loaded, gone))
    part = _Part(files, markers, located, records, deleted)
    yield pa.record_batch({"part": [pickle.dumps(part)]})

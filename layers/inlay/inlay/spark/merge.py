"""Merge: applies change records (insert, update, delete) to the table, in one commit.

Promise: after the commit each key has the row of its newest record, or none if that is a delete. Records
may arrive late, twice and in any order: `order` determines which is newer, among the records and against
the row of the table, by the rule of `plan.change_records`, which also says what an operation means. Deletes
are remembered (`ops.write.memory`), by this function and by `Table.apply_changes` alike, so that a record
that arrives later than a newer delete of its key is late; also beside another merge.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from inlay.engine import (
    Context,
    Request,
    Schema,
    Snapshot,
    load_pointer,
    parse_predicate,
)
from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.format.entry import DataFile, Marker
from inlay.format.properties import REMEMBERED
from inlay.ops.commit.driver import Committed, Planned, Skipped, commit_planned
from inlay.ops.data import check_fits, vector_markers, write_rows
from inlay.ops.metadata.load import LoadedTable, load_entries
from inlay.ops.metadata.memory import AT
from inlay.ops.schema.alter import admit_columns
from inlay.ops.write.delete import key_markers
from inlay.ops.write.keyed_rows import given_columns, key_names
from inlay.ops.write.memory import Memory
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    AdvanceStream,
    Change,
    Reads,
    RemoveFiles,
    SameProperty,
    SetProperties,
)
from inlay.plan.change_records import Operations
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import plan_scan
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
from inlay.spark.conditions import TRUE, check_names, quoted
from inlay.spark.connect import bound, check_writable, connect
from inlay.spark.context import activate
from inlay.spark.recent_rows import Recent, find_positions
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


@dataclass(frozen=True, slots=True)
class _Part:
    """What one task wrote."""

    files: tuple[DataFile, ...]
    markers: tuple[Marker, ...]
    located: Mapping[str, BitMap64]
    records: int
    deleted: int
    replaced: int  # keys that the table had


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
    recent: Recent | None = None,
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
    change = Change(operation="merge")
    judged: _Judged | None = None

    def plan(loaded: LoadedTable) -> Planned | None:
        nonlocal result, change, judged
        check_writable(ctx, loaded)
        snapshot = loaded.snapshot
        if judged is not None and judged.holds(loaded):
            # The jobs need not run again.
            change = judged.change(snapshot)
            result = replace(result, version=snapshot.version)
            return Planned(change, loaded)
        before = batch is not None and is_applied(snapshot, *batch)
        result = MergeResult(committed=False, version=snapshot.version, applied_before=before)
        if before:
            return None
        records = records_of(ctx, changes, loaded, on, by, known)
        if recent is not None or records.kept:
            loaded = replace(loaded, state=load_entries(ctx, loaded.state))
        files = () if recent is None else recent.look(loaded.state)
        memory = _memory(ctx, records, loaded)
        remembered = snapshot.properties.get(REMEMBERED)
        if remembered is not None:
            # After the table: what is remembered by now includes every delete that the table shows.
            memory.open()
        summary, parts = carry_out(records, uri, loaded, memory, files)
        written = sum(part.records for part in parts)
        gone, marked = _replaced(parts, files)
        added = tuple(file for part in parts for file in part.files)
        result = MergeResult(
            committed=False,
            version=snapshot.version,
            records=summary.records,
            keys=summary.keys,
            late=summary.keys - written,
            rows=sum(file.rows for file in added),
            deleted_keys=sum(part.deleted for part in parts),
            located=sum(len(rows) for part in parts for rows in part.located.values()),
        )
        request = _request(request_id, batch)
        deleted = any(part.deleted for part in parts)
        is_known = not deleted or memory.head == remembered
        if is_known and not added and not any(part.replaced for part in parts) and request is None:
            return None
        judged = _Judged(
            memory,
            loaded,
            summary.where(memory.columns),
            deleted,
            Change(
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
                requires=(_reads(loaded, records, summary),),
            ),
        )
        change = judged.change(snapshot)
        return Planned(change, loaded)

    loaded = load_pointer(ctx, carried=None if recent is None else recent.contents)
    loaded = _with_columns(ctx, loaded, changes, known)
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


@dataclass(slots=True)
class _Judged:
    """What the jobs of a merge have made. Which records are late was said by rows of the version `on`, and
    by what was remembered then of keys in `where`."""

    memory: Memory
    on: LoadedTable
    where: str | None
    deleted: bool
    made: Change
    tried: str | None = None

    def change(self, snapshot: Snapshot) -> Change:
        """To be committed on this snapshot or a later one with the same deletes."""
        self.tried = snapshot.properties.get(REMEMBERED)
        head = (SetProperties({REMEMBERED: self.memory.head}),) if self.deleted else ()
        return replace(
            self.made,
            updates=(*self.made.updates, *head),
            requires=(*self.made.requires, SameProperty(REMEMBERED, self.tried)),
        )

    def holds(self, now: LoadedTable) -> bool:
        """Whether others have only remembered deletes since, and none of these keys."""
        snapshot = now.snapshot
        remembered = snapshot.properties.get(REMEMBERED)
        if remembered in (None, self.tried) or snapshot.schema_id != self.on.snapshot.schema_id:
            return False
        # After the table, as when records are judged.
        return self.memory.is_known(self.where)


def _request(request_id: str | None, batch: tuple[str, int] | None) -> Request | None:
    if batch is not None:
        return Request.of(f"stream {batch[0]} batch {batch[1]}")
    return None if request_id is None else Request.of(request_id, body="merge")


def _memory(ctx: Context, records: Records, loaded: LoadedTable) -> Memory:
    fields = {field.name: field for field in loaded.snapshot.schema.fields}
    return Memory(ctx, [fields[n] for n in records.keys], [fields[n] for n in records.order])


def _reads(loaded: LoadedTable, records: Records, summary: RecordSummary) -> Reads:
    """The rows that records were compared with. Where values of theirs are kept, none may have been deleted
    since, either: the new row would bring them back."""
    snapshot = loaded.snapshot
    where = summary.where(records.keys)
    predicate = None if where is None else parse_predicate(where, snapshot.schema)
    files: frozenset[str] = frozenset()
    if records.kept:
        evidence = Evidence.of_snapshot(snapshot)
        entries, markers = loaded.state.files(), loaded.state.markers()
        plan = plan_scan(entries, markers, predicate or TRUE, evidence=evidence)
        files = frozenset(task.file.key for task in plan.tasks)
    return Reads(predicate, snapshot.version, files)


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
    ctx: Context,
    changes: DataFrame,
    loaded: LoadedTable,
    on: Sequence[str],
    order: Sequence[str],
    operations: Operations | None,
) -> Records:
    """Raises `SchemaMismatch`, `InvalidRequest` and `UnsupportedType` for records that cannot be merged
    into the table, whatever their values."""
    schema = loaded.snapshot.schema
    frame = _plain(changes, operations, schema)
    keys = list(key_names(ctx, loaded, named_as_in(schema, on), "merge"))
    by = named_as_in(schema, order)
    operations = spelled_in(frame.columns, operations)
    _check(frame, loaded, keys, by, operations)
    data = _data(frame.schema, operations, schema)
    check_written(data)
    arrow = arrow_for(data)
    given = given_columns(ctx, arrow, schema, [*keys, *by], "merge")
    check_fits(arrow, given)
    kept = [name for name in schema.names if name not in given.names]
    return Records(frame, keys, by, operations, list(given.names), kept)


def _with_columns(
    ctx: Context, loaded: LoadedTable, changes: DataFrame, operations: Operations | None
) -> LoadedTable:
    """The table with columns that the records have, if it is to get them: by a commit of its own."""
    snapshot = loaded.snapshot
    if not snapshot.settings.adds_columns:
        return loaded
    frame = _plain(changes, operations, snapshot.schema)
    data = _data(frame.schema, spelled_in(frame.columns, operations), snapshot.schema)
    return admit_columns(ctx, loaded, [arrow_for_new(nullable(data))])


def _data(given: StructType, operations: Operations | None, schema: Schema) -> StructType:
    """The columns of rows, without those that only say what a record does."""
    from pyspark.sql.types import StructType

    own = () if operations is None else operations.columns
    return StructType([f for f in given if f.name in schema.names or f.name not in own])


def _plain(changes: DataFrame, operations: Operations | None, schema: Schema) -> DataFrame:
    """The records with plain columns, named as the table's are."""
    rows = unpacked(changes, operations, schema.names)
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
    loaded: LoadedTable,
    keys: list[str],
    order: list[str],
    operations: Operations | None,
) -> None:
    names = loaded.snapshot.schema.names
    for name in (*keys, *order):
        if name not in names:
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


def carry_out(
    records: Records,
    uri: str,
    loaded: LoadedTable,
    memory: Memory,
    recent: Sequence[DataFile],
) -> tuple[RecordSummary, list[_Part]]:
    """The jobs of a merge: they compare the records with the table, and write."""
    marked = classified(records.frame, records.operations)
    number = count_known(marked, records.operations, uri)
    latest = newest(marked, records).persist()
    timely = latest
    try:
        summary = summarise(latest, records.keys, number)
        timely = without_late(latest, loaded, records, summary, uri, memory).persist()
        if summary.deletes:
            remember(timely, memory, records, summary, loaded.date_us)
        return summary, _write(timely, uri, loaded, records, summary, recent)
    finally:
        timely.unpersist()
        latest.unpersist()


def _write(
    timely: DataFrame,
    uri: str,
    loaded: LoadedTable,
    records: Records,
    summary: RecordSummary,
    recent: Sequence[DataFile],
) -> list[_Part]:
    names = [*records.given, *records.kept, DELETED, REPLACES]
    # Few tasks make few markers. Not by `coalesce`: these few would then do the join with the table, too.
    rows = timely.select(*map(quoted, names)).repartition(
        task_count(summary.keys), *map(quoted, records.keys)
    )
    write = partial(
        write_part, uri, loaded.without_entries(), records.keys, names, records.kept, recent
    )
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


def write_part(
    uri: str,
    loaded: LoadedTable,
    keys: list[str],
    names: list[str],
    kept: list[str],
    recent: Sequence[DataFile],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write a task's rows, and the keys whose rows in the table they replace. In columns of `kept` only
    these have values, those of the replaced row; new rows have the table's defaults."""
    ctx = connect(uri)
    schema = loaded.snapshot.schema
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
            new = batch.filter(pc.invert(gone))
            is_old = new.column(REPLACES) if kept else pa.repeat(pa.scalar(False), new.num_rows)
            for some, unknown in ((is_old, []), (pc.invert(is_old), kept)):
                made = new.filter(some).drop_columns([DELETED, REPLACES, *unknown])
                if made.num_rows:
                    yield made

    files = tuple(write_rows(ctx, loaded.snapshot, rows(), time_us=loaded.date_us))
    markers: tuple[Marker, ...] = ()
    located: dict[str, BitMap64] = {}
    if any(batch.num_rows for batch in replaced):
        gone = pa.Table.from_batches(replaced)
        if recent:
            located, gone = find_positions(ctx, schema, recent, gone)
        markers = tuple(key_markers(ctx, loaded, gone))
    there = sum(batch.num_rows for batch in replaced)
    yield pickled_batch(_Part(files, markers, located, records, deleted, there))


# -- the records, as DataFrames -------------------------------------------------------------------

# Records that one task merges: its keys are held in memory, and become one marker object.
TASK_ROWS = 1_000_000

# Columns added for the merge: whether a record deletes, and whether the table has its key.
DELETED = "__inlay_deleted"
REPLACES = "__inlay_replaces"
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
        found = [
            f"{_in_sql(column)} BETWEEN {bound[0]} AND {bound[1]}"
            for column, bound in zip(columns, self.bounds, strict=False)
            if bound is not None
        ]
        return " AND ".join(found) or None


def newest(marked: DataFrame, records: Records) -> DataFrame:
    """The record of each key that counts, by the rule of `plan.change_records`."""
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
    found = newest.agg(f.count("*"), f.count_if(DELETED), no_key, *extremes).collect()[0]
    if found[2]:
        raise InvalidRequest(
            f"{found[2]} change records have no key", next_step=f"Give each one {', '.join(keys)}"
        )
    ends = list(map(_literal, found[3:]))
    bounds = tuple(
        None if low is None or high is None else (low, high)
        for low, high in zip(ends[::2], ends[1::2], strict=True)
    )
    return RecordSummary(records, found[0], found[1], bounds)


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


def remember(
    timely: DataFrame, memory: Memory, records: Records, summary: RecordSummary, at_us: int
) -> None:
    """Writes key and order of the deletes that are not remembered yet. Writing one twice does no harm."""
    from pyspark.sql import functions as f

    memory.make()
    request = f"{OWN_REQUEST}{uuid.uuid4()}"
    columns = [*records.keys, *records.order]
    renamed = [
        f.col(quoted(name)).alias(own) for name, own in zip(columns, memory.columns, strict=True)
    ]
    new = timely.where(f.col(DELETED) & f.col(_IS_NEW)).coalesce(task_count(summary.deletes))
    rows = new.select(*renamed, f.timestamp_micros(f.lit(at_us)).alias(AT))
    activate(rows.sparkSession)
    rows.write.format("inlay").mode("append").option("requestId", request).save(memory.uri)
    memory.added(append_request(request))


def without_late(
    newest: DataFrame,
    loaded: LoadedTable,
    records: Records,
    summary: RecordSummary,
    uri: str,
    memory: Memory,
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

    there = rows_of(uri, [*keys, *order, *kept], loaded.snapshot.version)
    joined = newest.join(newest_of(there, _HAS, kept), on=keys, how="left")
    # Of two rows, or of a row and a delete, of one order the one that arrives now counts over the row.
    counts = is_above(_HAS, or_equal=True)
    if loaded.snapshot.properties.get(REMEMBERED) is None:
        joined = joined.withColumn(_IS_NEW, f.lit(True))
    else:
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

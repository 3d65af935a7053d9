"""Change records as DataFrames: the newest of each key, and whether it is newer than the table's row.

Promise: each key keeps one record, the one of the highest order (NULL is older than any), and keeps it only
if the table's row of that key, or its logged delete, is older. Only counts and the lowest and highest key
go to the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from inlay.errors import InvalidRequest, TableExists
from inlay.format.schema import Schema
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.schema.create import create
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.spark.api import read
from inlay.spark.conditions import quoted
from inlay.spark.connect import connect
from inlay.spark.context import activate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
    """One record of each key: the newest; of equally new ones, a delete if there is one."""
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
        case _:
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
        gone = newest.where(DELETED).select(*map(quoted, columns)).coalesce(tasks(found.deletes))
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


def tasks(rows: int) -> int:
    return max(1, -(-rows // TASK_ROWS))

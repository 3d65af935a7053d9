"""Change records as Spark has them: what each does, by the rule of `Operations`.

Promise: the frame stays one plan, of which `count_known` makes one pass (another if it refuses). Envelopes
are taken apart, values that a producer left out are refused, and operations mean what they mean to
`Table.apply_changes`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inlay.engine import Operations
from inlay.errors import InvalidRequest
from inlay.spark.conditions import quoted
from inlay.spark.types import spelled

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Columns that records get on their way: the order of their arrival, and what they do.
ARRIVAL = "__inlay_arrival"
MEANING = "__inlay_meaning"
# Unknown operations that are counted one by one.
MAX_UNKNOWN = 1_000


def operations_in(
    op: str,
    operations: str | Mapping[str, Sequence[str]] | None,
    deletes: Sequence[str] | None = None,
) -> Operations:
    """What the values of the column `op` mean. Raises `InvalidRequest`."""
    if deletes is not None and operations is not None:
        raise InvalidRequest(
            "operations and deletes both say which records delete",
            next_step='Give one of them: operations={"rows": […], "deletes": […]}',
        )
    common = Operations.of(None)
    if deletes is not None:
        rows = sorted(common.rows - set(deletes))
        return Operations.of({"rows": rows, "deletes": deletes}, column=op)
    meanings = Operations.of(operations)
    # A producer's name also names its column, unless the caller has another one.
    return (
        meanings if operations is not None and op == common.column else replace(meanings, column=op)
    )


def spelled_in(columns: Sequence[str], operations: Operations | None) -> Operations | None:
    """With the names of the data's columns, in whatever case they are asked for."""
    if operations is None:
        return None
    flag = operations.flag
    return replace(
        operations,
        column=spelled(operations.column, columns) or operations.column,
        flag=flag and (spelled(flag, columns) or flag),
    )


def unpacked(
    changes: DataFrame,
    operations: Operations | None,
    columns: Sequence[str],
    keys: Sequence[str] = (),
) -> DataFrame:
    """Records whose rows are in the structs of an envelope, as plain columns: what
    `parquet.arrow.change_order.unpacked` does to Arrow's."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    kinds = {field.name: field.dataType for field in changes.schema}

    def fields(name: str) -> dict[str, Column]:
        kind = kinds.get(name)
        names = kind.fieldNames() if isinstance(kind, StructType) else ()
        return {field: f.col(quoted(name)).getField(field) for field in names}

    if operations is None or operations.envelope is None:
        return changes
    before, after = map(fields, operations.envelope)
    if not after:
        return changes
    is_gone = f.col(quoted(operations.envelope[1])).isNull()
    op = spelled(operations.column, changes.columns)
    own = {}
    if op is not None:
        value = f.col(quoted(op)).cast("string")
        differs = [before[key] != after[key] for key in keys if key in before and key in after]
        other_key = f.coalesce(functools.reduce(operator.or_, differs, f.lit(False)), f.lit(False))
        is_row = value.isin(*sorted(operations.rows))
        own[op] = (
            f.when(is_row & is_gone, operations.NO_ROW)
            .when(is_row & other_key, operations.OTHER_KEY)
            .otherwise(value)
        )
    for name, value in after.items():
        own[name] = f.when(is_gone, before[name]).otherwise(value) if name in before else value
    plain = {name: f.col(quoted(name)) for name in kinds}
    for beside in (plain, *map(fields, operations.sources)):
        for name in columns:
            if name in beside and name not in own:
                own[name] = beside[name]
    return changes.select(*(value.alias(name) for name, value in own.items()))


def classified(frame: DataFrame, operations: Operations | None) -> DataFrame:
    """The records, in the order of their arrival (`ARRIVAL`), with what each is by `Operations.meaning`;
    NULL where it is refused."""
    from pyspark.sql import functions as f

    marked = frame.withColumn(ARRIVAL, f.monotonically_increasing_id())
    if operations is None:
        return marked.withColumn(MEANING, f.lit("row"))
    value = f.col(quoted(operations.column))
    if operations.tombstones:
        return marked.withColumn(MEANING, f.when(value.isNull(), "delete").otherwise("row"))
    text = value.cast("string")

    def among(values: frozenset[str]) -> Column:
        return text.isin(*sorted(values)) if values else f.lit(False)

    is_half = f.lit(False)
    meaning: Any = f
    if operations.flag is not None:
        flag = f.lower(f.col(quoted(operations.flag)).cast("string"))
        is_half = among(operations.deletes) & (flag == "true")
        unclear = ~f.coalesce(flag.isin("true", "false"), f.lit(False))
        meaning = meaning.when(unclear, f.lit(None))
    meaning = meaning.when(is_half | among(operations.before), "before")
    meaning = meaning.when(among(operations.deletes), "delete").when(among(operations.rows), "row")
    return marked.withColumn(MEANING, meaning)


def which(*, deletes: bool) -> Column:
    """The marked records that delete a row, or that give one."""
    from pyspark.sql import functions as f

    return f.col(MEANING).isin(*Operations.meanings(deletes=deletes))


def count_known(marked: DataFrame, operations: Operations | None, uri: str) -> int:
    """The number of records, without the old halves of updates. Raises `InvalidRequest` for operations
    without a meaning, and for values that the producer left out, before anything is written."""
    from pyspark.sql import functions as f

    gives, meaning = which(deletes=False), f.col(MEANING)
    left_out = None if operations is None else operations.left_out
    texts = [name for name, kind in marked.dtypes if kind == "string" and name != MEANING]
    texts = [] if left_out is None else texts
    absent = [f.count_if(gives & (f.col(quoted(n)) == left_out)) for n in texts]
    counted = marked.agg(
        f.count_if(meaning.isNull()), f.count_if(gives | which(deletes=True)), *absent
    ).collect()[0]
    if counted[0] and operations is not None:
        value = f.col(quoted(operations.column)).cast("string")
        unknown = marked.where(meaning.isNull()).groupBy(value.alias("value")).count()
        most = unknown.orderBy(f.col("count").desc()).limit(MAX_UNKNOWN).collect()
        operations.refuse({row[0]: row[1] for row in most}, table=uri)
    if operations is not None:
        operations.refuse_left_out(dict(zip(texts, counted[2:], strict=True)), table=uri)
    return int(counted[1])

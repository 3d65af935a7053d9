"""INSERT INTO and INSERT OVERWRITE: which column each value of a query goes to, and which rows it replaces.

Promise: Spark's rules. Values go to columns by position, to those listed, or BY NAME; as many as there are
columns, of types that SQL assigns. DEFAULT and columns that are not listed have the column's default.
OVERWRITE replaces all rows, the partitions of `PARTITION (day = …)`, or those that are written to, as
`spark.sql.sources.partitionOverwriteMode` of the session says. One commit has the rows and what they
replace.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from inlay.engine import Field, Primitive, Schema, Snapshot
from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.spark.catalyst import (
    Catalyst,
    check_stored,
    is_default,
    items,
    kind_of,
    resolved,
)
from inlay.spark.conditions import attribute_at, column_of, default_of, in_sql, quoted
from inlay.spark.connect import load_snapshot
from inlay.spark.context import activate
from inlay.spark.dml import DmlResult, InlayTable, assigned_as
from inlay.spark.names import Named, static_values
from inlay.spark.native import POSITION
from inlay.spark.native_append import append, source_result
from inlay.spark.options import WriteOptions
from inlay.spark.types import spark_schema, spelled
from inlay.spark.writer import plan_write

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OUTSIDE = (
    "a row of the query is not one of those that REPLACE WHERE replaces, and the next such statement would "
    "leave it. Filter the query by the same condition, or INSERT those rows"
)
_NEVER = "a position of no row"
_MODE = "spark.sql.sources.partitionOverwriteMode"


def insert(
    spark: Any,
    catalyst: Catalyst,
    target: Named,
    fields: Mapping[str, Any],
    request_id: str | None,
) -> DmlResult:
    """Carries out an `InsertIntoStatement` with these fields, or an `OverwriteByExpression`."""
    if fields.get("ifPartitionNotExists"):
        raise InvalidRequest(
            "INSERT OVERWRITE … IF NOT EXISTS is not served",
            next_step="Leave it out, and look for the partition first",
        )
    if fields.get("withSchemaEvolution"):
        raise InvalidRequest(
            "INSERT WITH SCHEMA EVOLUTION is not served",
            next_step="inlay.open(uri).alter(add={…}), or df.write.format('inlay').option('mergeSchema', "
            "'true')",
        )
    snapshot = load_snapshot(target.uri)
    if "deleteExpr" in fields:
        rows = _rows(spark, catalyst, snapshot, {}, (), fields["query"], fields["isByName"])
        where = catalyst.column(fields["deleteExpr"])
        return _replace_where(spark, target, rows, where, request_id)
    fixed = _fixed(snapshot, static_values(fields["partitionSpec"]))
    columns = items(fields["userSpecifiedCols"])
    rows = _rows(spark, catalyst, snapshot, fixed, columns, fields["query"], fields["byName"])
    criteria = fields.get("replaceCriteriaOpt")
    if criteria is not None and criteria.isDefined():
        where = _where(catalyst, criteria.get())
        return _replace_where(spark, target, rows, where, request_id)
    if fields["overwrite"]:
        return _overwrite(spark, target, rows, snapshot, fixed, request_id)
    done = append(rows, target.uri, request_id=request_id)
    return DmlResult(
        committed=done.committed,
        version=done.version,
        inserted=done.added_rows or 0,
        applied_before=done.applied_before,
    )


# -- which value goes to which column -------------------------------------------------------------


def _fixed(snapshot: Snapshot, given: Mapping[str, str | None]) -> dict[str, str | None]:
    """The partition columns that the statement names, each with its value, or None: the rows have it."""
    schema = snapshot.schema
    by_id = {field.source for field in snapshot.spec.fields if field.transform == "identity"}
    partitions = [field.name for field in schema.fields if field.id in by_id]
    values = {}
    for name, value in given.items():
        column = spelled(name, partitions)
        if column is None:
            raise SchemaMismatch(
                f"PARTITION ({name[:100]}): the table is not partitioned by this column itself",
                next_step=f"It is by {', '.join(partitions)[:300] or 'no column'}; choose other rows by "
                "INSERT INTO … REPLACE WHERE …",
            )
        values[column] = value
    return values


def _rows(
    spark: Any,
    catalyst: Catalyst,
    snapshot: Snapshot,
    fixed: Mapping[str, str | None],
    columns: Sequence[str],
    query: Any,
    by_name: bool,
) -> DataFrame:
    """The query's rows as the table's."""
    schema = snapshot.schema
    static = {name: value for name, value in fixed.items() if value is not None}
    names = [name for name in schema.names if name not in static]
    if columns:
        names = [_column(name, names) for name in columns]
    frame = catalyst.frame(_with_defaults(catalyst, query, names, schema))
    if by_name:
        names = [_column(name, names) for name in frame.columns]
    elif len(frame.columns) != len(names):
        raise SchemaMismatch(
            f"the query has {len(frame.columns)} columns, and {len(names)} get values: "
            f"{', '.join(names)[:300]}",
            next_step="List the columns that get values, INSERT INTO t (a, b), or write BY NAME",
        )
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidRequest(
            f"the column {twice[0][:100]!r} gets two values", next_step="Name each column once"
        )
    kinds = {field.name: field.dataType for field in spark_schema(schema)}
    selected = []
    values = resolved(frame, [attribute_at(frame, n) for n in range(len(names))])
    for name, value in zip(names, values, strict=True):
        check_stored(spark, value, kinds[name], name, by_position=not by_name)
        new = assigned_as(column_of(spark, value), kinds[name], spark)
        selected.append(new.alias(name))
    for name, text in static.items():
        new = assigned_as(catalyst.column(catalyst.literal(text)), kinds[name], spark)
        selected.append(new.alias(name))
    return frame.select(*selected)


def _column(name: str, names: Sequence[str]) -> str:
    column = spelled(name, names)
    if column is None:
        raise SchemaMismatch(
            f"the table has no column {name[:100]!r} that takes a value here",
            next_step=f"It has: {', '.join(names)[:500]}",
        )
    return column


def _with_defaults(catalyst: Catalyst, query: Any, names: Sequence[str], schema: Schema) -> Any:
    """The query of VALUES with each DEFAULT as the value that it stands for."""
    if kind_of(query) != "UnresolvedInlineTable":
        return query
    kinds = {field.name: field.dataType for field in spark_schema(schema)}
    outputs = []
    for row in map(items, items(query.rows())):
        new = list(row)
        for place, value in enumerate(row):
            if is_default(value) and place < len(names):
                field = schema.column(names[place])
                assert field is not None
                new[place] = catalyst.expression(default_of(field, kinds[field.name]))
        outputs.append(catalyst.seq(new))
    return query.copy(query.names(), catalyst.seq(outputs))


# -- which rows they replace ----------------------------------------------------------------------


def _overwrite(
    spark: Any,
    target: Named,
    rows: DataFrame,
    snapshot: Snapshot,
    fixed: Mapping[str, str | None],
    request_id: str | None,
) -> DmlResult:
    dynamic = spark.conf.get(_MODE).lower() == "dynamic" and bool(snapshot.spec.fields)
    static = {name: value for name, value in fixed.items() if value is not None}
    where = None
    if static and (not dynamic or len(static) == len(snapshot.spec.fields)):
        where, dynamic = _selects(spark, static, snapshot.schema), False
    identity = request_id or f"sql {uuid.uuid4()}"
    options = WriteOptions(
        uri=target.uri,
        request_id=identity,
        table_id=snapshot.table_id,
        replace_where=where,
        partitions=None if where is not None else "dynamic" if dynamic else "static",
    )
    _, job = plan_write(options, rows.schema, overwrite=True)
    if job.done is not None:
        return DmlResult(committed=False, version=job.done, applied_before=True)
    activate(spark)
    writer = rows.write.format("inlay").mode("overwrite").option("requestId", identity)
    writer = writer.option("tableId", snapshot.table_id)
    if where is not None:
        writer = writer.option("replaceWhere", where)
    else:
        writer = writer.option("partitionOverwriteMode", options.partitions)
    writer.save(target.uri)
    done = source_result(job)
    return DmlResult(
        committed=done.committed, version=done.version, deleted=None, inserted=done.added_rows or 0
    )


def _selects(spark: Any, static: Mapping[str, str | None], schema: Schema) -> str:
    """The rows of these partitions, as a condition of this library's."""
    kinds = {field.name: field.dataType for field in spark_schema(schema)}
    from pyspark.sql import functions as f

    names = list(static)
    casts = [
        assigned_as(f.lit(static[name]), kinds[name], spark).alias(f"v{n}")
        for n, name in enumerate(names)
    ]
    values = spark.range(1).select(*casts).toArrow().to_pylist()[0].values()
    parts = []
    for name, value in zip(names, values, strict=True):
        field = schema.column(name)
        assert field is not None
        parts.append(f"{in_sql(name)} = {_literal(field, value)}")
    return " AND ".join(parts)


def _literal(field: Field, value: Any) -> str:
    kind = field.type.name if isinstance(field.type, Primitive) else ""
    match kind:
        case "string":
            return "'" + str(value).replace("'", "''") + "'"
        case "date":
            return f"DATE '{value.isoformat()}'"
        case "bool":
            return "TRUE" if value else "FALSE"
        case _ if isinstance(value, (int, Decimal)):
            return str(value)
        case _:  # the set of types is open
            raise InvalidRequest(
                f"INSERT OVERWRITE … PARTITION ({field.name}): the column is {field.type}",
                next_step="INSERT INTO … REPLACE WHERE … replaces its rows",
            )


def _where(catalyst: Catalyst, criteria: Any) -> Column:
    if kind_of(criteria) != "InsertReplaceWhere":
        raise InvalidRequest(
            "of INSERT INTO … REPLACE only WHERE is served",
            next_step="MERGE INTO … ON … replaces rows by the columns that they share with the query",
        )
    return catalyst.column(criteria.cond())


def _replace_where(
    spark: Any, target: Named, rows: DataFrame, where: Column, request_id: str | None
) -> DmlResult:
    """The rows that the condition selects go, those of the query come, all of which it selects, as in the
    source's overwrite: a merge in which nothing matches."""
    from pyspark.sql import functions as f

    refused = f.raise_error(f.lit(_OUTSIDE)).cast("boolean")
    rows = rows.alias(target.name).where(f.when(where, f.lit(True)).otherwise(refused))
    # Equal to no position of a row, and no constant: Spark would compare all rows with all for one.
    rows = rows.withColumn(_NEVER, f.lit(-1) - f.spark_partition_id())
    table = InlayTable(spark, target.location, ref=target.ref).alias(target.name).strictly()
    values = {quoted(n): f.col(quoted(n)) for n in rows.columns if n != _NEVER}
    merge = table.merge(rows, f.col(POSITION) == f.col(quoted(_NEVER)))
    merge = merge.whenNotMatchedInsert(values=values)
    return merge.whenNotMatchedBySourceDelete(where).execute(request_id=request_id)

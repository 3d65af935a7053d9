"""CREATE TABLE of SQL, for tables whose provider is `inlay`.

Promise: the table has the columns, partitions, properties and comments of the statement, or the statement
is refused and there is none. With AS SELECT the rows follow in a commit of their own, after the query was
analysed: if it fails while it runs, an empty table is left. A name is then a temporary view of the table,
by `view`: Spark's own catalog cannot hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import inlay
from inlay.errors import InvalidRequest
from inlay.spark.catalyst import Catalyst, entries, fields_of, items, kind_of, value_of
from inlay.spark.dml import DmlResult
from inlay.spark.names import check_place
from inlay.spark.native_append import append
from inlay.spark.table_function import FUNCTION, view
from inlay.spark.types import arrow_for_new, nullable

CREATIONS = (
    "CreateTable",
    "CreateTableAsSelect",
    "ReplaceTable",
    "ReplaceTableAsSelect",
)
# Spark's names of partition transforms, and Inlay's.
_TRANSFORMS = {
    "bucket": "bucket",
    "day": "day",
    "days": "day",
    "hour": "hour",
    "hours": "hour",
    "identity": "identity",
    "month": "month",
    "months": "month",
    "truncate": "truncate",
    "year": "year",
    "years": "year",
}
_OPTIONS = ("primaryKey", "sortBy", "path")
_UNSERVED = ("generationExpression", "identityColumnSpec", "defaultValue")


def create_table(
    spark: Any, catalyst: Catalyst, kind: str, plan: Any, request_id: str | None
) -> DmlResult | None:
    """Carries out a statement that creates a table; None if the table is not Inlay's."""
    fields = fields_of(plan)
    name = fields["name"]
    if kind_of(name) != "UnresolvedIdentifier":
        return None
    parts = items(name.nameParts())
    spec = fields["tableSpec"]
    by_location = len(parts) == 2 and parts[0].lower() == FUNCTION
    provider = value_of(spec.provider())
    if not by_location and (provider is None or provider.lower() != FUNCTION):
        if (place := value_of(spec.location())) is not None:
            check_place(place, "LOCATION" if provider is None else f"USING {provider}")
        return None
    options = _options(spec)
    primary_key = _primary_key(spec) or _names(options, "primaryKey")
    location = value_of(spec.location()) or options.get("path")
    if by_location:
        location = location or parts[1]
    if location is None or (not by_location and len(parts) != 1):
        raise InvalidRequest(
            "CREATE TABLE says no place for the table, or a name in a catalog, which cannot hold it",
            next_step=f"CREATE TABLE name USING {FUNCTION} LOCATION 's3://bucket/tables/name', or CREATE "
            f"TABLE {FUNCTION}.`s3://bucket/tables/name`",
        )
    if request_id is not None:
        raise InvalidRequest(
            "CREATE TABLE takes no request_id", next_step="Write IF NOT EXISTS, and INSERT with one"
        )
    name_of_view = None if by_location else parts[0]
    if inlay.exists(location):
        return _there(spark, fields, location, name_of_view)
    if kind.startswith("Replace") and not fields["orCreate"]:
        raise InvalidRequest(
            f"REPLACE TABLE: there is no table at {location}", next_step="CREATE TABLE"
        )
    if kind.endswith("AsSelect"):
        rows = catalyst.frame(fields["query"])
        schema = nullable(rows.schema)
        comments: dict[str, str] = {}
    else:
        rows = None
        schema, comments = _columns(catalyst, fields["columns"])
    table = inlay.create(
        location,
        arrow_for_new(schema),
        primary_key=primary_key,
        sort_by=_names(options, "sortBy"),
        partition_by=[_partition(part) for part in items(fields["partitioning"])],
        properties=entries(spec.properties()),
    )
    if comments:
        table.alter(comment=comments)
    if name_of_view is not None:
        view(spark, name_of_view, location)
    if rows is None:
        return DmlResult(committed=True, version=table.refresh().version)
    done = append(rows, location, table_id=table.snapshot.table_id)
    return DmlResult(committed=True, version=done.version, inserted=done.added_rows or 0)


def _there(spark: Any, fields: dict[str, Any], location: str, name: str | None) -> DmlResult:
    if not fields.get("ignoreIfExists"):
        raise InvalidRequest(
            f"there is a table at {location}, and replacing one keeps its columns and its history",
            next_step="INSERT OVERWRITE replaces its rows; inlay.drop(uri) removes it",
        )
    if name is not None:
        view(spark, name, location)
    version = inlay.open(location).version
    return DmlResult(committed=False, version=version)


def _options(spec: Any) -> dict[str, str]:
    for part, instead in (
        ("comment", "Leave COMMENT of the table out; columns have comments"),
        ("serde", "Leave ROW FORMAT and STORED AS out: files are Parquet"),
        ("collation", "Leave DEFAULT COLLATION out: a table compares bytes"),
    ):
        value = fields_of(spec).get(part)
        if value is not None and value.isDefined():
            raise InvalidRequest(
                f"CREATE TABLE … USING {FUNCTION} has no {part}", next_step=instead
            )
    given = {}
    for pair in items(spec.optionExpression().options()):
        known = {name.lower(): name for name in _OPTIONS}
        name = known.get(pair._1().lower())
        if name is None:
            raise InvalidRequest(
                f"unknown option {pair._1()[:100]!r} of CREATE TABLE",
                next_step=f"OPTIONS has {', '.join(_OPTIONS)}; properties of the table are TBLPROPERTIES",
            )
        given[name] = str(pair._2().eval(None).toString())
    return given


def _primary_key(spec: Any) -> list[str]:
    """The columns of PRIMARY KEY, which Spark, too, takes for a promise that is not enforced."""
    key: list[str] = []
    given = fields_of(spec).get("constraints")  # since 4.1
    for constraint in [] if given is None else items(given):
        if kind_of(constraint) != "PrimaryKeyConstraint":
            raise InvalidRequest(
                "CREATE TABLE has a constraint that is no PRIMARY KEY, and tables hold no others",
                next_step="Leave it out, and check the rows before the append",
            )
        key = items(constraint.columns())
    return key


def _names(options: dict[str, str], name: str) -> list[str]:
    return [part.strip() for part in options.get(name, "").split(",") if part.strip()]


def _columns(catalyst: Catalyst, columns: Any) -> tuple[Any, dict[str, str]]:
    from pyspark.sql.types import StructField, StructType, _parse_datatype_json_string

    types, comments = [], {}
    for column in items(columns):
        fields = fields_of(column)
        for unserved in _UNSERVED:
            given = fields.get(unserved)
            if given is not None and given.isDefined():
                raise InvalidRequest(
                    f"the column {column.name()[:100]!r} has a default or is generated",
                    next_step="Leave it out; compute such values in the query",
                )
        kind = _parse_datatype_json_string(column.dataType().json())
        types.append(StructField(column.name(), kind, column.nullable()))
        if (comment := value_of(column.comment())) is not None:
            comments[column.name()] = comment
    if not types:
        raise InvalidRequest(
            "CREATE TABLE names no columns", next_step="Name them, or write AS SELECT"
        )
    return StructType(types), comments


def _partition(transform: Any) -> str:
    name = _TRANSFORMS.get(transform.name().lower())
    if name is None:
        raise InvalidRequest(
            f"PARTITIONED BY {transform.toString()[:100]}: Inlay has no such transform",
            next_step="Use a column, year, month, day, hour, bucket(n, column) or truncate(n, column); for "
            "CLUSTER BY the option sortBy",
        )
    arguments: Sequence[str] = [
        ".".join(part.fieldNames()) if kind_of(part) == "FieldReference" else str(part.toString())
        for part in transform.arguments()
    ]
    # As in Inlay the number comes first; Spark has it there for bucket alone.
    ordered = sorted(arguments, key=lambda text: not text.isdigit())
    return ordered[0] if name == "identity" else f"{name}({', '.join(ordered)})"

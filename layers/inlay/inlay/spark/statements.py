"""SQL's statements about Inlay tables: `inlay.spark.sql`.

::

    sql(spark, "MERGE INTO people t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * …")
    sql(spark, "DELETE FROM people WHERE day < :day", args={"day": date(2026, 1, 1)}, request_id="…")
    sql(spark, "SELECT * FROM people VERSION AS OF 12")

Promise: a statement means what it means to Spark: its parser makes the plan, its analyser resolves names,
conditions, subqueries and parameters, and the plan becomes calls of `InlayTable`, `append` and the source.
A statement about no Inlay table goes to `spark.sql` as it is. What is not served is refused by name
(`InvalidRequest`, `UnsupportedType`), with the call that does it. Nothing of the session is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.spark.catalyst import (
    Arguments,
    Catalyst,
    fields_of,
    is_default,
    items,
    kind_of,
    value_of,
)
from inlay.spark.conditions import default_of, quoted
from inlay.spark.connect import load_snapshot
from inlay.spark.creations import CREATIONS, create_table
from inlay.spark.dml import DmlResult, InlayTable, Merge
from inlay.spark.inserts import insert
from inlay.spark.names import Named, find_named, is_there
from inlay.spark.options import METADATA
from inlay.spark.refusals import refuse_command, refuse_error, refuse_pipeline, refuse_text
from inlay.spark.table_function import FUNCTION, register_function
from inlay.spark.types import spark_schema, spelled

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from inlay.engine import Schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A relation that a statement writes to, in Spark's own words.
_WRITTEN = "__required_write_privileges__"
_SHAPE = (
    "committed boolean, version long, applied_before boolean, updated long, deleted long, "
    "inserted long, read_files long"
)


def sql(
    spark: SparkSession, text: str, args: Arguments = None, *, request_id: str | None = None
) -> DataFrame:
    """Runs one statement. Of a change it returns one row: `committed`, `version`, `applied_before`, and the
    rows `updated`, `deleted` and `inserted` (NULL where they are not counted); of others what Spark
    returns. `args` are values for `:name` or `?`, bound as in `spark.sql`. With a `request_id` a change is
    made once."""
    catalyst = Catalyst(spark)
    try:
        with register_function(spark).unwrapped():
            return _Statements(spark, catalyst, request_id).run(text, args)
    except Exception as error:
        refuse_error(error)
        raise


class _Statements:
    def __init__(self, spark: Any, catalyst: Catalyst, request_id: str | None) -> None:
        self._spark = spark
        self._catalyst = catalyst
        self._request_id = request_id
        self._writes: list[Any] = []  # the relations that a statement writes to, at every level
        self._is_kept = False  # whether the statement makes a view that outlives the session

    def run(self, text: str, args: Arguments) -> DataFrame:
        from pyspark.errors import ParseException

        try:
            plan = self._catalyst.statement(text, args)
        except ParseException:
            refuse_text(text)
            raise
        if (history := self._history(plan)) is not None:
            return history
        refuse_pipeline(kind_of(plan))
        self._is_kept = kind_of(plan) == "CreateView"
        read = self._catalyst.transformed(plan, self._table_read)
        done = self._change(read)
        if done is not None:
            return self._told(done)
        if any(self._target(relation) is not None for relation in self._writes):
            raise InvalidRequest(
                "a script, an INSERT into several tables or an EXECUTE IMMEDIATE changes an Inlay table",
                next_step="Give inlay.spark.sql each of its statements by itself",
            )
        refuse_command(self._spark, self._catalyst, read)
        if self._request_id is not None:
            raise InvalidRequest(
                "the statement changes no Inlay table, so it cannot be done once by a request_id",
                next_step="Leave request_id out, or name a table as docs/SPARK.md says",
            )
        if read.fastEquals(plan):
            given = dict(args) if isinstance(args, Mapping) else list(args or ())
            return self._spark.sql(text, given or None)
        return self._catalyst.frame(read)

    def _change(self, plan: Any) -> DmlResult | None:
        kind = kind_of(plan)
        if kind in CREATIONS:
            return create_table(self._spark, self._catalyst, kind, plan, self._request_id)
        fields = fields_of(plan)
        match kind:
            case "MergeIntoTable" if (target := self._target(plan.targetTable())) is not None:
                return self._merge(target, fields)
            case "UpdateTable" if (target := self._target(plan.table())) is not None:
                return self._update(target, plan)
            case "DeleteFromTable" if (target := self._target(plan.table())) is not None:
                table = self._table(target)
                return table.delete(
                    self._catalyst.column(plan.condition()), request_id=self._request_id
                )
            case "InsertIntoStatement" if (target := self._target(plan.table())) is not None:
                return insert(self._spark, self._catalyst, target, fields, self._request_id)
            case "OverwriteByExpression" if (target := self._target(plan.table())) is not None:
                # INSERT INTO … REPLACE WHERE, as releases before 4.2 parse it.
                return insert(self._spark, self._catalyst, target, fields, self._request_id)
            case "TruncateTable" if (target := self._target(plan.table())) is not None:
                return self._table(target).delete(request_id=self._request_id)
            case _:  # the set of Spark's statements is open
                return None

    def _told(self, done: DmlResult) -> DataFrame:
        row = (
            done.committed,
            done.version,
            done.applied_before,
            done.updated,
            done.deleted,
            done.inserted,
            done.read_files,
        )
        return self._spark.createDataFrame([row], _SHAPE)

    # -- tables -------------------------------------------------------------------------------

    def _target(self, plan: Any) -> Named | None:
        """The table that a statement changes; None for one of Spark's own."""
        alias = None
        while kind_of(plan) == "SubqueryAlias":
            alias = alias or plan.alias()
            plan = plan.child()
        if kind_of(plan) not in ("UnresolvedRelation", "UnresolvedTable"):
            raise InvalidRequest(
                "what the statement changes is a query, not a table",
                next_step=f"Name a view of a table, or {FUNCTION}.`s3://bucket/tables/name`",
            )
        parts = items(plan.multipartIdentifier())
        table = find_named(self._spark, self._catalyst, parts)
        if table is None:
            if len(parts) == 1 and is_there(self._spark, parts):
                self._refuse_query(parts[0])
            return None
        return replace(table.to_write(), name=alias or table.name)

    def _refuse_query(self, name: str) -> None:
        catalog = self._catalyst.session.sessionState().catalog()
        if catalog.getRawTempView(name).isDefined():
            raise InvalidRequest(
                f"{name[:100]!r} is a view of a query or of another source, not of an Inlay table",
                next_step=f"Make one of the table: view(spark, {name[:100]!r}, 's3://…')",
            )

    def _table(self, target: Named) -> InlayTable:
        table = InlayTable(self._spark, target.location, ref=target.ref)
        return table.alias(target.name).strictly()

    def _table_read(self, node: Any) -> Any:
        """A table that a query names by its location, or of the past, as a call of the table function."""
        match kind_of(node):
            case "InsertIntoStatement":
                self._writes.append(node.table())
                return node
            case "SingleStatement" if kind_of(node.parsedPlan()) == "InsertIntoStatement":
                # Of a script: its children are those of the statement, not the statement.
                self._writes.append(node.parsedPlan().table())
                return node
            case "UnresolvedRelation" if node.options().containsKey(_WRITTEN):
                self._writes.append(node)
                return node
            case "UnresolvedExecuteImmediate" if node.sqlStmtStr().foldable():
                inner = self._catalyst.statement(str(node.sqlStmtStr().eval(None).toString()), None)
                self._catalyst.transformed(inner, self._table_read)
                return node
            case "UnresolvedTableValuedFunction" if self._is_kept and FUNCTION in items(
                node.name()
            ):
                raise _of_lasting_view()
            case "UnresolvedTableValuedFunction" if items(node.name()) == ["table_changes"]:
                raise InvalidRequest(
                    "table_changes is no function of Inlay's",
                    next_step="spark.read.format('inlay').option('changeFeed', 'true')"
                    ".option('startVersion', 2).load(uri)",
                )
            case "PlanWithUnresolvedIdentifier" if node.identifierExpr().foldable():
                name = str(node.identifierExpr().eval(None).toString())
                parts = self._catalyst.seq(self._catalyst.names_in(name))
                return self._table_read(node.planBuilder().apply(parts, node.children()))
            case "UnresolvedRelation" if node.isStreaming():
                return self._stream(node)
            case "UnresolvedRelation":
                parts = items(node.multipartIdentifier())
                if self._is_kept and find_named(self._spark, self._catalyst, parts) is not None:
                    raise _of_lasting_view()
                if len(parts) < 2:
                    return node
                if (named := find_named(self._spark, self._catalyst, parts)) is not None:
                    return self._read(named, {})
                return self._metadata(parts) or node
            case "RelationTimeTravel" if kind_of(node.relation()) == "UnresolvedRelation":
                parts = items(node.relation().multipartIdentifier())
                table = find_named(self._spark, self._catalyst, parts)
                return node if table is None else self._past(table, node)
            case _:  # the set of Spark's plans is open
                return node

    def _stream(self, node: Any) -> Any:
        """Of `STREAM people`: the rows that are added to a table, as `readStream` has them."""
        named = find_named(self._spark, self._catalyst, items(node.multipartIdentifier()))
        if named is None:
            return node
        named = named.to_write()  # a version of the past gets no rows
        reader = self._spark.readStream.format(FUNCTION)
        if named.ref is not None:
            reader = reader.option("ref", named.ref)
        return reader.load(named.location)._jdf.queryExecution().analyzed()

    def _past(self, named: Named, node: Any) -> Any:
        from pyspark.sql import functions

        if named.why_fixed:
            raise InvalidRequest(
                f"{named.name[:100]!r} {named.why_fixed}, so it has no other versions",
                next_step=f"Query a view of the whole table, or {FUNCTION}({named.location!r}, …)",
            )
        time, version = value_of(node.timestamp()), value_of(node.version())
        if time is not None:
            cast = self._catalyst.cast(time, "timestamp")
            if not (cast.resolved() and cast.foldable()):
                # `now() - INTERVAL 1 HOUR`: only the analyser makes an operation of times of it.
                micros = functions.unix_micros(self._catalyst.column(cast))
                micros_of_time = self._spark.range(1).select(micros).first()[0]
                if micros_of_time is None:
                    raise InvalidRequest("TIMESTAMP AS OF has no time", next_step="Give one")
                cast = self._catalyst.literal(EPOCH + timedelta(microseconds=micros_of_time))
            return self._read(named, {"as_of": cast})
        if version.isdigit():
            return self._read(named, {"version": self._catalyst.literal(int(version))})
        return self._read(replace(named, ref=version), {})

    def _read(self, named: Named, asked: dict[str, Any]) -> Any:
        if named.ref is not None:
            asked = {**asked, "ref": self._catalyst.literal(named.ref)}
        location = self._catalyst.literal(named.location)
        return self._catalyst.function(FUNCTION, [location], asked)

    def _metadata(self, parts: list[str]) -> Any:
        """Of `people.files`, as Iceberg spells it; None where it is something else."""
        named = find_named(self._spark, self._catalyst, parts[:-1])
        if named is None or is_there(self._spark, parts):
            return None
        kind = parts[-1].lower()
        if kind not in METADATA:
            raise InvalidRequest(
                f"{named.name[:100]!r} has no table {kind[:100]!r}",
                next_step=f"It has {', '.join(sorted(METADATA))}, and its refs: "
                f"{named.name[:100]} VERSION AS OF 'tag or branch'",
            )
        return self._told_of(named, kind)._jdf.queryExecution().analyzed()

    def _told_of(self, named: Named, kind: str) -> DataFrame:
        reader = self._spark.read.format(FUNCTION).option("table", kind)
        if named.ref is not None:
            reader = reader.option("ref", named.ref)
        return reader.load(named.location)

    def _history(self, plan: Any) -> DataFrame | None:
        """Of `DESCRIBE HISTORY people`, which Spark's grammar takes for a column of a table HISTORY."""
        if kind_of(plan) != "DescribeColumn" or kind_of(plan.relation()) != "UnresolvedTableOrView":
            return None
        described = [part.lower() for part in items(plan.relation().multipartIdentifier())]
        if described not in (["history"], ["detail"]):
            return None
        if self._spark.catalog.tableExists(described[0]):
            return None
        named = find_named(self._spark, self._catalyst, items(plan.column().nameParts()))
        if named is None:
            return None
        if described == ["detail"]:
            raise InvalidRequest(
                "DESCRIBE DETAIL is not served in SQL",
                next_step="DESCRIBE, SELECT * FROM people.snapshots or people.files, and "
                "inlay.open(uri).partitioning and .properties",
            )
        return self._told_of(named, "history")

    # -- changes ------------------------------------------------------------------------------

    def _update(self, target: Named, plan: Any) -> DmlResult:
        schema = load_snapshot(target.uri).schema
        condition = value_of(plan.condition())
        return self._table(target).update(
            self._assignments(plan.assignments(), schema),
            None if condition is None else self._catalyst.column(condition),
            request_id=self._request_id,
        )

    def _merge(self, target: Named, fields: dict[str, Any]) -> DmlResult:
        if fields.get("withSchemaEvolution"):
            raise InvalidRequest(
                "MERGE WITH SCHEMA EVOLUTION adds no columns",
                next_step="Add them first: inlay.open(uri).alter(add={…}); then MERGE without it",
            )
        schema = load_snapshot(target.uri).schema
        source = self._catalyst.frame(fields["sourceTable"])
        merge = self._table(target).merge(source, self._catalyst.column(fields["mergeCondition"]))
        for kind in ("matchedActions", "notMatchedActions", "notMatchedBySourceActions"):
            for action in items(fields[kind]):
                merge = self._clause(merge, kind, action, source, schema)
        return merge.execute(request_id=self._request_id)

    def _clause(
        self, merge: Merge, kind: str, action: Any, source: DataFrame, schema: Schema
    ) -> Merge:
        condition = value_of(action.condition())
        where = None if condition is None else self._catalyst.column(condition)
        by_source = kind == "notMatchedBySourceActions"
        match kind_of(action):
            case "DeleteAction" if by_source:
                return merge.whenNotMatchedBySourceDelete(where)
            case "DeleteAction":
                return merge.whenMatchedDelete(where)
            case "UpdateAction" if by_source:
                given = self._assignments(action.assignments(), schema)
                return merge.whenNotMatchedBySourceUpdate(where, set=given)
            case "UpdateAction":
                given = self._assignments(action.assignments(), schema)
                return merge.whenMatchedUpdate(where, set=given)
            case "UpdateStarAction":
                _check_all(source, schema)
                return merge.whenMatchedUpdateAll(where)
            case "InsertAction":
                given = self._assignments(action.assignments(), schema)
                return merge.whenNotMatchedInsert(where, values=given)
            case "InsertStarAction":
                _check_all(source, schema)
                return merge.whenNotMatchedInsertAll(where)
            case other:  # the set of Spark's clauses is open
                raise InvalidRequest(
                    f"MERGE with {other} is not served",
                    next_step="Write UPDATE, DELETE, INSERT clauses",
                )

    def _assignments(self, assignments: Any, schema: Schema) -> dict[str, Column]:
        kinds = {field.name: field.dataType for field in spark_schema(schema)}
        given: dict[str, Column] = {}
        for assignment in items(assignments):
            key, value = assignment.key(), assignment.value()
            name = ".".join(map(quoted, items(key.nameParts())))
            if is_default(value):
                column = spelled(items(key.nameParts())[-1], schema.names)
                if column is None:
                    raise SchemaMismatch(f"the table has no column {name[:100]}")
                field = schema.column(column)
                assert field is not None
                new = default_of(field, kinds[column])
            else:
                new = self._catalyst.column(value)
            if name in given:
                raise InvalidRequest(
                    f"the column {name[:100]} gets two values", next_step="Name each column once"
                )
            given[name] = new
        return given


def _of_lasting_view() -> InvalidRequest:
    return InvalidRequest(
        "a view that outlives the session cannot read an Inlay table: Spark's catalog holds no table of a "
        "Python source",
        next_step="CREATE TEMPORARY VIEW in each session, or views(spark, prefix)",
    )


def _check_all(source: DataFrame, schema: Schema) -> None:
    """`*` takes every column of the table, from the source's of its name. As in Spark, one that the source
    lacks is an error, and one that the table lacks is left out."""
    for name in schema.names:
        if spelled(name, source.columns) is None:
            raise SchemaMismatch(
                f"* takes all columns of the table, and the source has no {name[:100]!r}",
                next_step=f"Name the columns; the source has {', '.join(source.columns)[:400]}",
            )

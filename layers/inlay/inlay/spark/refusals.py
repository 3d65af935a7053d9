"""Statements about Inlay tables that Spark's SQL, Delta's or Iceberg's have and `inlay.spark.sql` has not.

Promise: each is refused by its name, with the call that does it. One about another table is Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from inlay.errors import InvalidRequest
from inlay.spark.catalyst import Catalyst, entries, fields_of, items, kind_of, value_of
from inlay.spark.names import check_place, find_named
from inlay.spark.table_function import FUNCTION

# Commands by the name of Spark's plan: what each is called, and Inlay's way.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "AddColumns": ("ALTER TABLE … ADD COLUMNS", "inlay.open(uri).alter(add={'a': pa.int64()})"),
    "DropColumns": ("ALTER TABLE … DROP COLUMNS", "inlay.open(uri).alter(drop=['a'])"),
    "RenameColumn": ("ALTER TABLE … RENAME COLUMN", "inlay.open(uri).alter(rename={'a': 'b'})"),
    "AlterColumn": ("ALTER TABLE … ALTER COLUMN", "inlay.open(uri).alter(widen=…, comment=…)"),
    "AlterColumns": ("ALTER TABLE … ALTER COLUMN", "inlay.open(uri).alter(widen=…, comment=…)"),
    "ReplaceColumns": ("ALTER TABLE … REPLACE COLUMNS", "inlay.open(uri).alter(add=…, drop=…)"),
    "SetTableProperties": ("SET TBLPROPERTIES", "inlay.open(uri).set_properties({…})"),
    "UnsetTableProperties": ("UNSET TBLPROPERTIES", "inlay.open(uri).set_properties({…: None})"),
    "ShowTableProperties": ("SHOW TBLPROPERTIES", "inlay.open(uri).properties"),
    "AlterTableClusterBy": ("ALTER TABLE … CLUSTER BY", "the job pipelines.cluster"),
    "AddPartitions": ("ADD PARTITION", "INSERT: partitions come with their rows"),
    "DropPartitions": ("DROP PARTITION", "DELETE FROM … WHERE the partition's columns"),
    "RenamePartitions": ("RENAME PARTITION", "UPDATE … SET the partition's column"),
    "RepairTable": ("MSCK REPAIR TABLE", "nothing: the table knows its files"),
    "RecoverPartitions": ("RECOVER PARTITIONS", "nothing: the table knows its files"),
    "ShowPartitions": (
        "SHOW PARTITIONS",
        "spark.read.format('inlay').option('table', 'partitions').load(uri)",
    ),
    "TruncatePartition": ("TRUNCATE … PARTITION", "DELETE FROM … WHERE the partition's columns"),
    "DropTable": ("DROP TABLE", "DROP VIEW for the name, inlay.drop(uri) for the table"),
    "RenameTable": (
        "ALTER TABLE … RENAME TO",
        "view(spark, 'other', uri): names are the session's",
    ),
    "SetTableLocation": ("SET LOCATION", "view(spark, 'name', uri) of the other place"),
    "AnalyzeTable": ("ANALYZE TABLE", "nothing: files carry their statistics"),
    "AnalyzeColumn": ("ANALYZE TABLE", "nothing: files carry their statistics"),
    "SetTableSerDeProperties": ("SET SERDEPROPERTIES", "nothing: files are Parquet"),
    "LoadData": ("LOAD DATA", "inlay.open(uri).ingest(files)"),
    "ShowCreateTable": ("SHOW CREATE TABLE", "DESCRIBE, and inlay.open(uri).properties"),
    "AddConstraint": ("ADD CONSTRAINT", "a check before the append: tables hold none"),
    "AddCheckConstraint": ("ADD CONSTRAINT", "a check before the append: tables hold none"),
    "DropConstraint": ("DROP CONSTRAINT", "nothing: tables hold no constraints"),
    "CommentOnTable": ("COMMENT ON TABLE", "inlay.open(uri).set_properties({'comment': '…'})"),
    "CreateIndex": ("CREATE INDEX", "the property write.bloom_filters, or a sorted table"),
}
# Commands of declarative pipelines, which Spark takes from a pipeline's files alone.
_OF_PIPELINES = (
    "a pipeline's file, which spark-pipelines runs (pipelines/declarative); here writeStream, MergeSink, "
    "or CREATE TEMPORARY VIEW, which is the newest at each query"
)
_PIPELINES: Mapping[str, str] = {
    "CreateStreamingTable": "CREATE STREAMING TABLE",
    "CreateStreamingTableAsSelect": "CREATE STREAMING TABLE",
    "CreateMaterializedViewAsSelect": "CREATE MATERIALIZED VIEW",
    "CreateFlowCommand": "CREATE FLOW",
}
# Formats of other products, of which a session may know none.
_FORMATS = ("delta", "iceberg", "hudi")
_NOT_FOUND = re.compile(rf"\[DATA_SOURCE_NOT_FOUND\][^:]*: ({'|'.join(_FORMATS)})\.", re.IGNORECASE)
# Columns that a query of other products' tables may name without their being columns of them.
_PLACES = "SELECT * FROM name.files, or name.partitions: a row's place is no column"
_CHANGES = ".option('changeFeed', 'true').option('startVersion', n) of spark.read.format('inlay')"
_KEYS = "the key: rows have no numbers of their own"
HIDDEN: Mapping[str, str] = {
    **dict.fromkeys(("_file", "_pos", "_metadata", "_partition", "_spec_id", "_deleted"), _PLACES),
    **dict.fromkeys(("__inlay_file", "__inlay_position"), _PLACES),
    **dict.fromkeys(("_change_type", "_commit_version", "_commit_timestamp"), _CHANGES),
    **dict.fromkeys(("_row_id", "_last_updated_sequence_number"), _KEYS),
}
# Words that Spark's grammar does not know, first in a statement of Delta's or Iceberg's.
WORDS: Mapping[str, str] = {
    "OPTIMIZE": "inlay.open(uri).maintain.compact(), or the jobs pipelines.compact and pipelines.cluster",
    "VACUUM": "inlay.open(uri).maintain.collect_garbage(), or the job pipelines.collect_garbage",
    "RESTORE": "inlay.open(uri).refs.restore(version)",
    "REORG": "inlay.open(uri).maintain.compact(), or the job pipelines.materialize_deletes",
    "CONVERT": "inlay.adopt(…)",
    "COPY": "inlay.open(uri).ingest(files)",
    "UPSERT": "MERGE INTO, or inlay.open(uri).upsert(rows)",
    "GENERATE": "inlay.open(uri).publish()",
    "FSCK": "inlay.open(uri).maintain.verify()",
    "UNDROP": "inlay.open(uri).refs.restore(version) for rows; inlay.drop(uri) is final",
    **dict.fromkeys(
        ("APPLY", "AUTO"), "MergeSink(uri, order=…), or inlay.open(uri).apply_changes(…)"
    ),
    **dict.fromkeys(("COMMIT", "ROLLBACK", "START"), "with inlay.spark.transaction() as tx: …"),
    **dict.fromkeys(("GRANT", "REVOKE"), "the bucket's rules: tables have no users"),
}
# Methods of Delta's `DeltaTable` and of its merges that ours have not.
_CREATED = "inlay.create(uri, schema), or CREATE TABLE … USING inlay LOCATION …"
_CLONED = "inlay.open(uri).refs.branch(name), with at=version for an earlier one"
_CLAUSES = (
    "whenMatchedUpdate(condition, set={…}), …Delete, whenNotMatchedInsert(…), of SQL or Columns"
)
_ONE_VERSION = "nothing: the format has one version for all of a table"
OF_TABLES: Mapping[str, str] = {
    "append": "inlay.spark.append(df, uri)",
    "updateExpr": "update({'name': \"'a'\"}, \"id = 7\"), of SQL or Columns",
    "history": "sql(spark, 'DESCRIBE HISTORY …') or inlay.open(uri).inspect.history()",
    "detail": "inlay.open(uri) has schema, partitioning, properties and inspect.files()",
    "vacuum": WORDS["VACUUM"],
    "optimize": WORDS["OPTIMIZE"],
    "restoreToVersion": WORDS["RESTORE"],
    "restoreToTimestamp": "inlay.open(uri).refs.restore(version), of inspect.history()",
    "generate": WORDS["GENERATE"],
    "clone": _CLONED,
    "cloneAtVersion": _CLONED,
    "cloneAtTimestamp": _CLONED,
    "upgradeTableProtocol": _ONE_VERSION,
    "addFeatureSupport": _ONE_VERSION,
    "dropFeatureSupport": _ONE_VERSION,
    "isDeltaTable": "inlay.exists(uri)",
    "create": _CREATED,
    "createIfNotExists": _CREATED,
    "createOrReplace": _CREATED,
    "replace": _CREATED,
    "columnBuilder": _CREATED,
    "convertToDelta": "inlay.adopt(…)",
}
OF_MERGES: Mapping[str, str] = {
    # Scala's, in which a clause's action is a method of its own.
    "whenMatched": _CLAUSES,
    "whenMatchedUpdateExpr": _CLAUSES,
    "whenNotMatched": _CLAUSES,
    "whenNotMatchedInsertExpr": _CLAUSES,
    "whenNotMatchedBySource": _CLAUSES,
    "whenNotMatchedBySourceUpdateExpr": _CLAUSES,
    "withSchemaEvolution": "inlay.open(uri).alter(add={…}) before the merge",
    "whenNotMatchedBySourceUpdateAll": "whenNotMatchedBySourceUpdate(set={…})",
}


class _NamesTheWay(type):
    _instead: Mapping[str, str]

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            instead = cls._instead.get(name)
            told = "" if instead is None else f". Inlay's way: {instead}"
            raise AttributeError(f"{cls.__name__!r} has no attribute {name!r}{told}")


class NamesTheWay(metaclass=_NamesTheWay):
    """A class whose missing methods, and missing constructors, tell what there is instead."""

    _instead: Mapping[str, str] = {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return _NamesTheWay.__getattr__(type(self), name)


_PROCEDURES = (
    "inlay.open(uri).maintain has compact, expire, collect_garbage, rewrite; .refs has restore"
)
_MERGE = "MERGE INTO … USING … ON … WHEN [NOT] MATCHED THEN …"
_JOINED = f"{_MERGE}, or WHERE … IN (SELECT …)"
_REFS = (
    "inlay.open(uri) has refs.tag, refs.branch, refs.drop, set_partitioning, alter(primary_key=…) and "
    "set_properties({'compact.columns': …})"
)
# Statements of other systems that begin with a word of Spark's grammar: a pattern, whose groups name the
# statement, and Inlay's way. Texts are left out, and what stands in parentheses is an ellipsis.
_PHRASES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"\A\s*{pattern}", re.DOTALL | re.IGNORECASE), instead)
    for pattern, instead in (
        (
            r"(CREATE)\b.*\b(CLONE)\b",
            "inlay.open(uri).refs.branch(name), or CREATE TABLE … AS SELECT",
        ),
        (r"(DELETE)\s+FROM\b.*\b(USING)\b", _JOINED),
        (r"(UPDATE)\b.*\bSET\b.*\b(FROM)\b", _JOINED),
        (r"(UPDATE|DELETE)\b.*\b(JOIN)\b", _JOINED),
        (
            r"(UPDATE|DELETE)\b.*\b(ORDER\s+BY|LIMIT)\b",
            "WHERE key IN (SELECT key … ORDER BY … LIMIT n)",
        ),
        (
            r"(INSERT|UPDATE|DELETE|MERGE)\b.*\b(RETURNING)\b",
            "a SELECT of the rows before or after; the statement returns how many they are",
        ),
        (r"(INSERT)\s+(OR\s+\w+|IGNORE)\b", _MERGE),
        (r"(INSERT)\b.*\b(ON\s+(?:CONFLICT|DUPLICATE))\b", _MERGE),
        (r"(REPLACE)\s+(INTO)\b", f"{_MERGE}, or inlay.open(uri).upsert(rows)"),
        (
            r"(MERGE)\b.*\b(USING\s+\w+)\s+…",
            "USING (SELECT * FROM inlay('s3://…')) s",
        ),
        (
            r"(MERGE)\b.*\b(USING\s*….*…)\s*ON\b",
            "USING (SELECT * FROM VALUES (…) AS v(a, b)) s: names of columns stand inside",
        ),
        (r"(MERGE)\b.*\bSET\s+(\*\s+EXCEPT)\b", "SET a = s.a, b = s.b: the columns by name"),
        (r"(MERGE)\b.*\b(DO\s+NOTHING)\b", "nothing: rows for which no clause applies stay"),
        (r"(BEGIN)\s*(?:;|TRAN\w*|WORK|\Z)", "with inlay.spark.transaction() as tx: …"),
        (r"(DESC(?:RIBE)?\s+HISTORY)\b.*\b(LIMIT)\b", 'sql(spark, "DESCRIBE HISTORY …").limit(n)'),
        (
            r"(DESC(?:RIBE)?\s+(?:HISTORY|DETAIL))\s+(x)",
            f"DESCRIBE HISTORY {FUNCTION}.`s3://bucket/tables/name`",
        ),
        (
            r"(?:\w+)\b[^;]*\b(VERSION\s+AS\s+OF\s+[:?]\w*)",
            f"{FUNCTION}('s3://bucket/tables/name', version => :v), or the number itself",
        ),
        (r"(ALTER\s+TABLE)\b.*\b(CHANGE)\b", "inlay.open(uri).alter(rename=…, widen=…, comment=…)"),
        (r"(ALTER\s+TABLE)\b.*\b(COMPACT)\b", "inlay.open(uri).maintain.compact()"),
        (
            r"(ALTER\s+TABLE)\b.*\b(EXECUTE\s+\w+)\b",
            f"inlay.open(uri).maintain.compact(); {_PROCEDURES}",
        ),
        (r"(ALTER\s+TABLE)\b.*\b(SET\s+OWNER)\b", "the bucket's rules: tables have no owner"),
        (
            r"(ALTER\s+TABLE)\b.*\b((?:ADD|DROP)\s+FEATURE)\b",
            "nothing: the format has one version for all of a table",
        ),
        (
            r"(ALTER\s+TABLE)\b.*\b((?:CREATE|DROP|REPLACE)\s+(?:OR\s+REPLACE\s+)?(?:TAG|BRANCH)"
            r"|WRITE\s+(?:ORDERED|UNORDERED|DISTRIBUTED|LOCALLY)|(?:ADD|DROP|REPLACE)\s+PARTITION\s+FIELD"
            r"|CLUSTER\s+BY|ADD\s+CONSTRAINT|(?:SET|DROP)\s+IDENTIFIER\s+FIELDS)\b",
            _REFS,
        ),
        (
            r"(CREATE|REFRESH|DROP|ALTER)\b.*?\b((?:STREAMING|LIVE)\s+TABLE|MATERIALIZED\s+VIEW)\b",
            _OF_PIPELINES,
        ),
        (r"(\w+)\b[^;]*(;)\s*\w", "each statement by itself"),
    )
)
_TEXT = re.compile(r"'[^']*'")
_WITHIN = re.compile(r"\([^()]*\)")
_FIRST = re.compile(r"\A(?:\s|--[^\n]*\n|/\*.*?\*/)*([A-Za-z]+)", re.DOTALL)


def refuse_text(text: str) -> None:
    """Raises `InvalidRequest` for a statement that Spark's parser does not know and others' do."""
    first = _FIRST.match(text)
    if first is None:
        return
    word = first[1].upper()
    if word in WORDS:
        raise InvalidRequest(
            f"{word} is no statement of Spark's SQL", next_step=f"For an Inlay table: {WORDS[word]}"
        )
    outside = _TEXT.sub("x", text[first.start(1) :])
    while (less := _WITHIN.sub(" … ", outside)) != outside:
        outside = less
    for pattern, instead in _PHRASES:
        if (phrase := pattern.match(outside)) is not None:
            name = " … ".join(" ".join(part.upper().split()) for part in phrase.groups())
            raise InvalidRequest(
                f"{name} is no statement of Spark's SQL", next_step=f"For an Inlay table: {instead}"
            )


def refuse_error(error: Exception) -> None:
    """Raises `InvalidRequest` for what Spark says of a name that other products know."""
    from pyspark.errors import AnalysisException

    if (unknown := _NOT_FOUND.search(str(error))) is not None:
        raise InvalidRequest(
            f"this session has no format {unknown[1]}",
            next_step=f"Inlay's way: USING {FUNCTION} LOCATION 's3://…', {FUNCTION}.`s3://…`",
        ) from None
    if not isinstance(error, AnalysisException):
        return
    if str(error.getCondition()).startswith("UNRESOLVED_COLUMN"):
        name = str(error.getMessageParameters().get("objectName"))
        for part in re.findall(r"`([^`]+)`", name):
            if (instead := HIDDEN.get(part.lower())) is not None:
                raise InvalidRequest(
                    f"{part} is no column of an Inlay table", next_step=f"Inlay's way: {instead}"
                ) from None


def refuse_pipeline(kind: str) -> None:
    """Raises `InvalidRequest` for a command of declarative pipelines."""
    if (name := _PIPELINES.get(kind)) is not None:
        raise InvalidRequest(
            f"{name} runs in no session", next_step=f"Inlay's way: {_OF_PIPELINES}"
        )


def refuse_command(spark: Any, catalyst: Catalyst, plan: Any) -> None:
    """Raises `InvalidRequest` for a command about an Inlay table that is not served."""
    kind = kind_of(plan)
    if kind == "ExplainCommand":
        kind = kind_of(plan.logicalPlan())
        if kind in ("MergeIntoTable", "UpdateTable", "DeleteFromTable", "InsertIntoStatement"):
            target = fields_of(plan.logicalPlan()).get("targetTable") or plan.logicalPlan().table()
            while kind_of(target) == "SubqueryAlias":
                target = target.child()
            if _is_named(spark, catalyst, target):
                raise InvalidRequest(
                    "a change of an Inlay table is several jobs, and EXPLAIN shows one plan",
                    next_step="explain(spark, uri) says how the table is read",
                )
        return
    if kind == "Call":
        procedure = items(plan.child().nameParts())
        catalog = spark.conf.get(f"spark.sql.catalog.{procedure[0]}", None)
        if len(procedure) < 2 or catalog is None:
            raise InvalidRequest(
                f"there is no procedure {'.'.join(procedure)[:100]!r}", next_step=_PROCEDURES
            )
        return
    if kind in ("CreateTableLike", "CreateTableLikeCommand"):
        fields = fields_of(plan)
        provider = value_of(fields["provider"])
        if provider is not None:
            is_asked = provider.lower() == FUNCTION
        elif kind == "CreateTableLike":
            is_asked = any(_is_named(spark, catalyst, child) for child in items(plan.children()))
        else:
            of_source = items(fields["sourceTable"].nameParts())
            is_asked = find_named(spark, catalyst, of_source) is not None
        if is_asked:
            raise InvalidRequest(
                "CREATE TABLE … LIKE makes no Inlay table",
                next_step=f"CREATE TABLE … USING {FUNCTION} LOCATION '…' AS SELECT * FROM … WHERE false",
            )
        return
    if kind in ("InsertIntoDir", "CreateTempViewUsing"):
        _check_folder(kind, fields_of(plan))
    if kind not in COMMANDS:
        return
    for child in items(plan.children()):
        if _is_named(spark, catalyst, child):
            name, instead = COMMANDS[kind]
            raise InvalidRequest(f"{name} is not served in SQL", next_step=instead)


def _check_folder(kind: str, fields: Mapping[str, Any]) -> None:
    """A statement that reads or replaces a folder of files."""
    if kind == "CreateTempViewUsing":
        options = {name.lower(): value for name, value in entries(fields["options"]).items()}
        if fields["provider"].lower() != FUNCTION and "path" in options:
            check_place(options["path"], f"USING {fields['provider']}")
        return
    place = value_of(fields["storage"].locationUri())
    if place is not None:
        check_place(str(place.toString()), "INSERT OVERWRITE DIRECTORY")
    if str(value_of(fields["provider"])).lower() == FUNCTION:
        raise InvalidRequest(
            "INSERT OVERWRITE DIRECTORY makes no Inlay table",
            next_step=f"CREATE TABLE {FUNCTION}.`s3://…` AS SELECT …",
        )


def _is_named(spark: Any, catalyst: Catalyst, node: Any) -> bool:
    match kind_of(node):
        case "UnresolvedTable" | "UnresolvedTableOrView" | "UnresolvedRelation":
            parts = items(node.multipartIdentifier())
        case "UnresolvedIdentifier":
            parts = items(node.nameParts())
        case "Filter":  # the condition of a constraint
            return _is_named(spark, catalyst, node.child())
        case _:  # the set of Spark's plans is open
            return False
    return find_named(spark, catalyst, parts) is not None

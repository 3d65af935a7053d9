"""SQL's UPDATE, DELETE and MERGE, in Python: Spark has no such statements for Python sources.

::

    events = InlayTable(spark, "s3://bucket/tables/events")
    events.update({"status": "'closed'"}, "day < DATE '2026-01-01'")
    (
        events.alias("t").merge(changes.alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.op = 'D'")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll("s.op <> 'D'")
        .execute(request_id="2026-01-31")
    )

Promise: conditions and values are Spark's, with Spark's meaning, evaluated on executors against one version
of the table. If others change or add affected rows meanwhile, they are evaluated again, so the one commit
is consistent with the version it follows. For each row the first clause of its kind whose condition is TRUE
applies. If several rows of the source would change one row of the table, the operation is refused and
nothing changes. With `request_id` it is done once.

Rows are deleted by position (vectors), and new rows are written to new files. Only entries and positions go
to the driver. Of an update Spark reads what its condition and its values look at; what it does not assign,
the tasks that write take from the rows that they replace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from inlay.engine import (
    Context,
    DataFile,
    FileTask,
    PartedChange,
    PartedWrite,
    Request,
    ScanParts,
    Schema,
)
from inlay.errors import CorruptTable, InvalidRequest, SchemaMismatch
from inlay.spark.affected_files import affected_by, files_matched
from inlay.spark.api import read
from inlay.spark.batches import collect_pickled, pickled_batch, pickled_tasks, read_pickled
from inlay.spark.catalyst import Catalyst, ansi_cast, check_stored, items, kind_of, resolved
from inlay.spark.conditions import (
    PREDICATES,
    TRUE,
    attributes,
    check_frame,
    check_names,
    column_as,
    column_named,
    column_of,
    default_of,
    expression_of,
    filtered,
    frame_of,
    plan_of,
    projected,
    quoted,
    renamed,
)
from inlay.spark.connect import at_ref, check_writable, connect, load_writable
from inlay.spark.context import to_seq
from inlay.spark.names import find_named
from inlay.spark.native import FILE, POSITION, file_name, native_frames, split, united
from inlay.spark.options import PARTITION_BYTES
from inlay.spark.refusals import OF_MERGES, OF_TABLES, NamesTheWay
from inlay.spark.types import arrow_for, spark_schema, spelled, to_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

# A change whose rows others changed meanwhile is evaluated again this often.
MAX_PLANS = 5
# What Spark reckons for a file beside its bytes, when it puts files into partitions.
_OPENING_BYTES = 4 * 1024 * 1024
# Bytes of a table that cost less to read than a pass over the keys of the source.
KEYS_BYTES = PARTITION_BYTES
# Bytes of a table from which its rows are looked up in a small source before both are sorted for the join.
LOOKUP_BYTES = 16 * 1024 * 1024

# Rows of an update whose other columns are read together, and the bytes of what is known of them.
COMPLETED_ROWS = 1_000_000
COMPLETED_BYTES = 64 * 1024 * 1024

# Added columns: whether the source has a row, and which clause applies.
_SOURCE = "__inlay_source"
_CLAUSE = "__inlay_clause"

ClauseKind = Literal["matched", "not matched", "not matched by source"]
Action = Literal["update", "delete", "insert"]
Values = Mapping[str, "str | Column"]


@dataclass(frozen=True, slots=True)
class _Clause:
    """`values` None: all columns, from those of the same name in the source."""

    kind: ClauseKind
    action: Action
    condition: Any = None
    values: Values | None = None

    @property
    def writes(self) -> bool:
        match self.action:
            case "update" | "insert":
                return True
            case "delete":
                return False

    @property
    def unmatched(self) -> tuple[bool, bool]:
        """Whether it is about rows without a match: of the source, of the table."""
        match self.kind:
            case "matched":
                return False, False
            case "not matched":
                return True, False
            case "not matched by source":
                return False, True


def _unmatched(clauses: Sequence[_Clause]) -> tuple[bool, bool]:
    """Whether some clause is about rows without a match: of the source, of the table."""
    return any(c.unmatched[0] for c in clauses), any(c.unmatched[1] for c in clauses)


@dataclass(frozen=True, slots=True, kw_only=True)
class DmlResult:
    """`committed` False: there was nothing to do, or this request was `applied_before`. The counts are
    rows, by what happened to them (None: not counted); `read_files` are the files of the table that could
    have such rows."""

    committed: bool
    version: int
    read_files: int = 0
    updated: int = 0
    deleted: int | None = 0
    inserted: int = 0
    applied_before: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    """What one task did: files written, rows of existing files to delete, rows that were matched and stay,
    and counts by clause."""

    files: tuple[DataFile, ...]
    gone: Mapping[str, BitMap64]
    kept: Mapping[str, BitMap64]
    counts: Mapping[int, int]
    twice: bool  # a row of the table was matched more than once


class _MergeSource:
    """The rows that a merge brings."""

    def __init__(self, frame: DataFrame | None) -> None:
        self.frame = frame
        self._is_kept = False

    def kept(self) -> DataFrame:
        """For a look at the keys before the join: both must see the same rows, which a source that is
        evaluated twice does not promise. A lost executor then ends the merge with an error."""
        assert self.frame is not None
        if not self._is_kept:
            self.frame = self.frame.localCheckpoint(eager=False)
            self._is_kept = True
        return self.frame

    def again(self) -> DataFrame:
        """The same rows and names, as columns of another side."""
        kept: Any = self.kept()
        return frame_of(kept.sparkSession, plan_of(kept).newInstance())

    def release(self) -> None:
        """Gives back the memory of the rows that are kept. Spark does so when Java's collector has found
        that nobody needs them, and it has to look through them until then."""
        if self._is_kept:
            plan_of(self.frame).rdd().unpersist(False)


class InlayTable(NamesTheWay):
    """The table at `uri`, or a branch of it, for changes from Spark. Raises `TableReplaced` when another
    one has taken its place."""

    _instead = OF_TABLES

    def __init__(self, spark: SparkSession, uri: str, *, ref: str | None = None) -> None:
        self._spark = spark
        self._uri = at_ref(uri, ref)
        self._alias: str | None = None
        self._is_strict = False
        _, loaded = load_writable(self._uri)  # raises here if the table does not exist
        self._table_id = loaded.snapshot.table_id

    @classmethod
    def forPath(cls, spark: SparkSession, path: str) -> InlayTable:  # noqa: N802 - as `DeltaTable`'s
        return cls(spark, path)

    @classmethod
    def forName(cls, spark: SparkSession, name: str) -> InlayTable:  # noqa: N802
        """The table of a view (`inlay.spark.view`), by the rules of `inlay.spark.sql`."""
        catalyst = Catalyst(spark)
        named = find_named(spark, catalyst, catalyst.names_in(name))
        if named is None:
            raise InvalidRequest(
                f"{name[:100]!r} is no view of an Inlay table",
                next_step="InlayTable(spark, uri), or first view(spark, 'name', uri)",
            )
        return cls(spark, named.to_write().location, ref=named.ref)

    def alias(self, name: str) -> InlayTable:
        """Sets the name of the table's rows in conditions."""
        named = copy(self)
        named._alias = name
        return named

    def strictly(self) -> InlayTable:
        """By the rules of SQL's statements (`inlay.spark.sql`): a value of another type is assigned where
        SQL assigns it, and several rows of the source that match one row of the table are refused even
        where at most one of them meets a clause's condition."""
        strict = copy(self)
        strict._is_strict = True
        return strict

    def toDF(self) -> DataFrame:  # noqa: N802 - as Spark's own names; so below
        """The newest version, as `read` reads it."""
        load_writable(self._uri, self._table_id)
        frame = read(self._spark, self._uri)
        return frame if self._alias is None else frame.alias(self._alias)

    def update(
        self, set: Values, condition: Any = None, *, request_id: str | None = None
    ) -> DmlResult:
        """Sets columns of the rows for which `condition` is TRUE (None: all) to SQL expressions or
        Columns."""
        if not isinstance(set, Mapping):
            raise InvalidRequest(
                "update gets the new values first, by column, and then the condition",
                next_step='Write update({"status": "\'closed\'"}, "id = 7")',
            )
        clause = _Clause("not matched by source", "update", condition, set)
        return self._run(None, None, [clause], request_id)

    def delete(self, condition: Any = None, *, request_id: str | None = None) -> DmlResult:
        """Deletes the rows for which `condition` is TRUE (None: all). `Table.delete` does it in constant
        time, with the SQL of this package."""
        clause = _Clause("not matched by source", "delete", condition)
        return self._run(None, None, [clause], request_id)

    def merge(self, source: DataFrame, condition: Any) -> Merge:
        """Merges the rows of `source`: those that match a row of the table by `condition`, and the
        others."""
        check_frame(source, "InlayTable.merge")
        return Merge(partial(self._run, source, condition))

    def _run(
        self,
        source: DataFrame | None,
        condition: Any,
        clauses: Sequence[_Clause],
        request_id: str | None,
    ) -> DmlResult:
        request = None
        if request_id is not None:
            shape = [(c.kind, c.action, str(c.condition), str(c.values)) for c in clauses]
            request = Request.of(request_id, body=f"dml:{condition}:{shape}")
        ctx, loaded = load_writable(self._uri, self._table_id)
        result = DmlResult(committed=False, version=loaded.snapshot.version)
        rows_of = _MergeSource(source)

        from pyspark.sql import functions

        def find(change: PartedChange) -> PartedChange | None:
            nonlocal result
            check_writable(ctx, change.table)
            schema = change.snapshot.schema
            check_names(schema.names, () if source is None else source.columns)
            tasks = self._reached(change, rows_of, condition, clauses)
            target, files = self._target(tasks, schema)
            if source is not None and _is_looked_up(rows_of, tasks, condition, clauses):
                # Spark broadcasts no source whose own rows are kept, too: it would sort all of the table.
                few = functions.broadcast(rows_of.again())
                target = target.join(few, _column(condition), "left_semi")
            values = [_values(clause, schema, self._alias) for clause in clauses]
            strict = self._is_strict
            given = schema.names
            if source is None and len(files) == len(tasks):
                given = tuple(name for name in given if name in (values[0] or ()))
            rows = _actions(
                target, rows_of.frame, condition, clauses, values, schema, strict, given
            )
            rows = _in_tasks(rows, tasks, source, clauses)
            parts = _write(rows, self._uri, change.writer, clauses, given, files)
            gone = _gone(self._uri, parts, clauses)
            added = [file for part in parts for file in part.files]
            result = _result(parts, clauses, read_files=len(tasks), gone=_number(gone))
            if request is None and not added and not result.deleted:
                return None
            return change.replacing(gone, added)

        try:
            done = PartedChange.commit(ctx, loaded, find, request=request, plans=MAX_PLANS)
        finally:
            rows_of.release()
        return replace(
            result,
            committed=done.committed,
            version=done.version,
            applied_before=done.applied_before,
        )

    def _reached(
        self,
        change: PartedChange,
        source: _MergeSource,
        condition: Any,
        clauses: Sequence[_Clause],
    ) -> Sequence[FileTask]:
        """The files that may have rows which a clause changes, or which a row of the source matches."""
        schema = change.snapshot.schema
        # The table without its rows: Spark analyses conditions on it.
        empty = self._spark.createDataFrame([], _placed(schema))
        empty = empty if self._alias is None else empty.alias(self._alias)
        own = [c.condition for c in clauses if c.unmatched[1]]
        alone = PREDICATES.constant(False)
        if any(own_condition is None for own_condition in own):
            alone = TRUE
        elif own:
            hit = [affected_by(empty.where(_column(c)), schema).predicate for c in own]
            alone = PREDICATES.any_of(hit)
        joined = None
        if source.frame is not None and alone != TRUE:
            joined = affected_by(empty.join(source.frame, _column(condition), "inner"), schema)

        if joined is None:
            return change.tasks(alone)
        tasks = change.tasks(PREDICATES.any_of([joined.predicate, alone]))
        if not joined.keys or sum(task.file.size for task in tasks) <= KEYS_BYTES:
            return tasks
        matched = files_matched(source.kept(), joined, tasks, change)
        files = {task.file.key for task in (*matched, *change.tasks(alone))}
        return [task for task in tasks if task.file.key in files]

    def _target(
        self, tasks: Sequence[FileTask], schema: Schema
    ) -> tuple[DataFrame, Mapping[str, FileTask]]:
        """The live rows of these files, each with its file and position; and the files that are not called
        by their keys, by what they are called. Files that Spark reads exactly are read by it, so that only
        columns that the change needs are, and no row goes through Python that it does not change."""
        ids = tuple(field.id for field in schema.fields)
        parts = split(self._spark, self._uri, tasks, schema, ids, TRUE, placed=True)
        frames = native_frames(self._spark, self._uri, parts, schema, ids, TRUE, placed=True)
        shape = _placed(schema)
        if parts.rest or not frames:
            pickled = pickled_tasks(self._spark, parts.rest, "update, delete and merge")
            read_part = partial(_read_part, self._uri, schema)
            # Spark refuses unusual column names in rows that it passes to Python.
            others = pickled.mapInArrow(read_part, _plain(shape))
            # A union has the names of its first part.
            frames.append(others if frames else others.toDF(*shape.names))
        rows = united(frames)
        files = {file_name(task): task for task in parts.native}
        return (rows if self._alias is None else rows.alias(self._alias)), files


class Merge(NamesTheWay):
    """The clauses of a MERGE, named as in `DeltaTable`; `execute` runs it."""

    _instead = OF_MERGES

    def __init__(self, run: Callable[[Sequence[_Clause], str | None], DmlResult]) -> None:
        self._run = run
        self._clauses: list[_Clause] = []

    def _with(self, clause: _Clause) -> Merge:
        merge = Merge(self._run)
        merge._clauses = [*self._clauses, clause]
        return merge

    def whenMatchedUpdate(  # noqa: N802
        self, condition: Any = None, set: Values | None = None
    ) -> Merge:
        return self._with(_Clause("matched", "update", condition, _named(set)))

    def whenMatchedUpdateAll(self, condition: Any = None) -> Merge:  # noqa: N802
        """Sets every column of the table that the source has."""
        return self._with(_Clause("matched", "update", condition))

    def whenMatchedDelete(self, condition: Any = None) -> Merge:  # noqa: N802
        return self._with(_Clause("matched", "delete", condition))

    def whenNotMatchedInsert(  # noqa: N802
        self, condition: Any = None, values: Values | None = None
    ) -> Merge:
        """Columns that are not named have their default, else NULL."""
        return self._with(_Clause("not matched", "insert", condition, _named(values)))

    def whenNotMatchedInsertAll(self, condition: Any = None) -> Merge:  # noqa: N802
        return self._with(_Clause("not matched", "insert", condition))

    def whenNotMatchedBySourceUpdate(  # noqa: N802
        self, condition: Any = None, set: Values | None = None
    ) -> Merge:
        return self._with(_Clause("not matched by source", "update", condition, _named(set)))

    def whenNotMatchedBySourceDelete(self, condition: Any = None) -> Merge:  # noqa: N802
        return self._with(_Clause("not matched by source", "delete", condition))

    def execute(self, *, request_id: str | None = None) -> DmlResult:
        if not self._clauses:
            raise InvalidRequest(
                "the merge has no clause",
                next_step="Add whenMatched…, whenNotMatched… or whenNotMatchedBySource…",
            )
        return self._run(self._clauses, request_id)


def _named(given: Any) -> Values:
    """A clause's values, as Delta's methods take them: the second argument, after the condition."""
    if isinstance(given, Mapping):
        return given
    raise InvalidRequest(
        "a clause gets the new values by column, after its condition",
        next_step="whenMatchedUpdate(set={'name': 's.name'}); whenMatchedUpdateAll() sets all columns",
    )


# -- what is to be done, in Spark -----------------------------------------------------------------


def _actions(
    target: DataFrame,
    source: DataFrame | None,
    condition: Any,
    clauses: Sequence[_Clause],
    values: Sequence[Values | None],
    schema: Schema,
    strict: bool,
    names: Sequence[str],
) -> DataFrame:
    """The affected rows: clause, file, position, and the new values of the columns `names`. Names in a
    clause are those of the rows that it is about: the source's where the table has no match, the table's
    where the source has none."""
    from pyspark.sql import functions as f

    spark: Any = target.sparkSession
    rows = target
    if source is not None:
        how = {
            (False, False): "inner",
            (True, False): "right",
            (False, True): "left",
            (True, True): "full",
        }[_unmatched(clauses)]
        on = f.expr(condition) if isinstance(condition, str) else condition
        # Columns are added to the joined rows only, so that they cannot clash with names of either side.
        rows = target.join(source.select("*", f.lit(True).alias(_SOURCE)), on, how)
    has_source = "false" if source is None else f"{_SOURCE} IS NOT NULL"
    matched = column_as(spark, f"{FILE} IS NOT NULL AND {has_source}")
    of_kind: dict[tuple[bool, bool], tuple[Any, Any]] = {
        (False, False): (rows, matched),
        (True, False): (source, column_as(spark, f"{FILE} IS NULL")),
        (False, True): (target, column_as(spark, f"NOT {has_source}")),
    }
    asked = spark_schema(schema)
    assigning = _Assigning(target, source, schema, strict)
    applies: list[Any] = []
    assigned: list[Mapping[str, _Value]] = []
    for number, clause in enumerate(clauses):
        side, own = of_kind[clause.unmatched]
        condition, given = assigning.by(clause, side, values[number])
        applies.append(own if condition is None else own & condition)
        assigned.append(given)
    if strict and source is not None and not _only_deletes(clauses):
        # Whichever clause applies, two rows of the source for one of the table are one too many.
        applies.append(matched)
    plan = plan_of(rows)
    is_sole = len(applies) == 1
    if is_sole:
        # A condition that only chooses rows is computed once for each.
        plan = filtered(spark, applies[0], plan)
        which = renamed(f.lit(0), _CLAUSE)
    else:
        chosen: Any = f
        for number, is_it in enumerate(applies):
            chosen = chosen.when(is_it, f.lit(number))
        added = expression_of(spark, renamed(chosen.otherwise(f.lit(None)).cast("int"), _CLAUSE))
        plan = projected(spark, plan.output().appended(added), plan)
        plan = filtered(spark, column_as(spark, f"{_CLAUSE} IS NOT NULL"), plan)
        which = column_named(spark, _CLAUSE)
    is_clause = [column_as(spark, f"{_CLAUSE} = {number}") for number in range(len(clauses))]
    named = [which, column_named(spark, FILE), column_named(spark, POSITION)]
    for place, name in enumerate(names):
        ways = [given.get(name) for given in assigned]
        value = _by_clause(spark, ways, is_clause, asked[name].dataType, is_sole)
        named.append(renamed(value, f"c{place}"))
    columns = to_seq(spark, (expression_of(spark, column) for column in named))
    return frame_of(spark, projected(spark, columns, plan))


@dataclass(frozen=True, slots=True)
class _Value:
    """One of Spark's expressions; `is_plain` if it is a column of the wanted type."""

    expression: Any
    is_plain: bool = False


class _Assigning:
    """What clauses give to the columns of a table; if `strict` only what SQL assigns to them."""

    def __init__(self, target: Any, source: Any, schema: Schema, strict: bool) -> None:
        self._target = target
        self._source = source
        self._schema = schema
        self._asked = spark_schema(schema)
        self._strict = strict

    def by(
        self, clause: _Clause, side: Any, given: Values | None
    ) -> tuple[Any, Mapping[str, _Value]]:
        """A clause's condition, if it has one, and the value of each column, none for a delete; names mean
        what they mean on its side. `given` None: all columns that the source has."""
        own = [] if clause.condition is None else [clause.condition]
        named = {} if given is None else given
        expressions = resolved(side, list(map(_column, [*named.values(), *own])))
        applies = column_of(side.sparkSession, expressions.pop()) if own else None
        match clause.action:
            case "delete":
                return applies, {}
            case "update":
                others = self._kept
            case "insert":
                others = self._defaults
        if given is None:
            values = self._alike
        else:
            values = dict(zip(named, map(_Value, expressions), strict=True))
        if self._strict:
            for name, value in values.items():
                check_stored(side.sparkSession, value.expression, self._asked[name].dataType, name)
        missing = [name for name in self._schema.names if name not in values]
        return applies, {**others(missing), **values}

    @cached_property
    def _alike(self) -> dict[str, _Value]:
        """The source's columns of the table's names."""
        names = {name: spelled(name, self._source.columns) for name in self._schema.names}
        same = {name: own for name, own in names.items() if own is not None}
        if not same:
            raise SchemaMismatch("the source has none of the table's columns")
        kinds = {field.name: field.dataType for field in self._source.schema}
        columns = zip(same.items(), attributes(self._source, same.values()), strict=True)
        return {
            name: _Value(value, kinds[own] == self._asked[name].dataType)
            for (name, own), value in columns
        }

    def _kept(self, names: Sequence[str]) -> dict[str, _Value]:
        columns = attributes(self._target, names)
        return {name: _Value(value, True) for name, value in zip(names, columns, strict=True)}

    def _defaults(self, names: Sequence[str]) -> dict[str, _Value]:
        spark = self._target.sparkSession
        fields = (field for field in self._schema.fields if field.name in names)
        defaults = {f.name: default_of(f, self._asked[f.name].dataType) for f in fields}
        return {name: _Value(expression_of(spark, value)) for name, value in defaults.items()}


def _by_clause(
    spark: Any,
    values: Sequence[_Value | None],
    applies: Sequence[Any],
    kind: DataType,
    is_sole: bool,
) -> Any:
    """The value of the clause that applies, as the type of a column. Without a CASE where it makes no
    difference: Spark compiles one for each of many columns."""
    from pyspark.sql import functions as f

    given = [(value, own) for value, own in zip(values, applies, strict=True) if value is not None]
    if not given:
        return f.lit(None).cast(kind)
    first = given[0][0]
    is_same = all(value == first for value, _ in given)
    if is_same and (is_sole or first.is_plain):
        column = column_of(spark, first.expression)
        return column if first.is_plain else assigned_as(column, kind, spark)
    case: Any = f
    for value, own in given:
        column = column_of(spark, value.expression)
        case = case.when(own, column if value.is_plain else assigned_as(column, kind, spark))
    return case


def _column(given: Any) -> Any:
    from pyspark.sql import functions as f

    return f.expr(given) if isinstance(given, str) else given


def _is_looked_up(
    source: _MergeSource, tasks: Sequence[FileTask], condition: Any, clauses: Sequence[_Clause]
) -> bool:
    """Whether most rows of the table are better left out before the join: those without a match do not
    count, those of the source do, and Spark takes the source for small."""
    if _unmatched(clauses) != (True, False):
        return False
    if sum(task.file.size for task in tasks) < LOOKUP_BYTES:
        return False
    frame: Any = source.frame
    session = frame.sparkSession._jsparkSession
    if not _is_by_name(expression_of(frame.sparkSession, _column(condition))):
        return False
    conf = session.sessionState().conf()
    size = frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    return int(str(size)) <= int(conf.autoBroadcastJoinThreshold())


def _is_by_name(expression: Any) -> bool:
    """Whether it has no column of a certain DataFrame (`source["id"]`)."""
    return kind_of(expression) != "AttributeReference" and all(
        map(_is_by_name, items(expression.children()))
    )


def _only_deletes(clauses: Sequence[_Clause]) -> bool:
    """Whether it makes no difference how often a row is matched."""
    matched = [c for c in clauses if not any(c.unmatched)]
    # A Column compares to a Column.
    return not matched or (
        len(matched) == 1 and not matched[0].writes and matched[0].condition is None
    )


def assigned_as(value: Any, kind: DataType, spark: Any) -> Any:
    """A value as the column's type. One that does not fit is an error, also where the session's casts give
    NULL or another number (`spark.sql.ansi.enabled` false)."""
    java_type = spark._jsparkSession.parseDataType(kind.json())
    return column_of(spark, ansi_cast(spark, expression_of(spark, value), java_type))


def _values(clause: _Clause, schema: Schema, alias: str | None) -> dict[str, Any] | None:
    """The values that a clause gives to the table's columns; None for all columns of the source."""
    if not clause.writes:
        return {}
    if clause.values is None:
        return None
    given: dict[str, Any] = {}
    for name, value in clause.values.items():
        column = _assigned_to(name, schema, alias)
        if column in given:
            raise InvalidRequest(
                f"the column {column[:100]!r} gets two values", next_step="Name each column once"
            )
        given[column] = value
    return given


def _assigned_to(name: str, schema: Schema, alias: str | None) -> str:
    """The column that an assignment names: as it is, in backticks, or after the table's alias."""
    if (column := spelled(name, schema.names)) is not None:
        return column
    parts = _name_parts(name)
    if len(parts) > 1 and alias is not None and parts[0].lower() == alias.lower():
        parts = parts[1:]
    column = spelled(parts[0], schema.names)
    if column is None:
        raise SchemaMismatch(
            f"the table has no column {name[:100]!r}",
            next_step=f"It has: {', '.join(schema.names)[:500]}",
        )
    if len(parts) > 1:
        raise InvalidRequest(
            f"{name[:100]!r} is a part of the column {column[:100]!r}, and columns are set as a whole",
            next_step=f"Set {column!r} to f.col({quoted(column)!r}).withField({parts[1]!r}, …)",
        )
    return column


def _name_parts(name: str) -> list[str]:
    """`t.a` and ``t.`a.b` `` in their parts, in Spark's notation; a name that is none is one part."""
    from pyspark import SparkContext
    from pyspark.errors import AnalysisException

    jvm: Any = SparkContext._jvm
    attribute = jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
    try:
        parts = attribute.parseAttributeName(name)
    except AnalysisException:
        return [name]
    return [parts.apply(place) for place in range(parts.length())]


def _in_tasks(
    rows: Any, tasks: Sequence[FileTask], source: DataFrame | None, clauses: Sequence[_Clause]
) -> DataFrame:
    """The affected rows in partitions that are large enough for a file each, however few the rows are."""
    spark = rows.sparkSession
    if source is not None:
        moved: DataFrame = rows.hint("rebalance")
        return moved
    size = sum(max(task.file.size, _OPENING_BYTES) for task in tasks)
    is_large = size > PARTITION_BYTES * spark.sparkContext.defaultParallelism
    # In few partitions they are as they are read, where nothing else moves them; and else by their file.
    if is_large and any(clause.writes for clause in clauses):
        rows = rows.hint("rebalance", column_named(spark, FILE))
    return rows


def _write(
    rows: DataFrame,
    uri: str,
    writer: PartedWrite,
    clauses: Sequence[_Clause],
    given: Sequence[str],
    files: Mapping[str, FileTask],
) -> list[_Part]:
    writing = [number for number, clause in enumerate(clauses) if clause.writes]
    # Who writes whole rows, or none, need not know the files.
    is_partial = bool(writing) and len(given) < len(writer.table.snapshot.schema.names)
    others = files if is_partial else {}
    write = partial(_write_part, uri, writer, writing, len(clauses), given, others)
    return [
        replace(part, gone=_by_key(part.gone, files), kept=_by_key(part.kept, files))
        for part in collect_pickled(rows, write)
    ]


def _by_key(rows: Mapping[str, BitMap64], files: Mapping[str, FileTask]) -> dict[str, BitMap64]:
    # A key is no name: it has folders.
    return {
        files[file].file.key if file in files else file: positions
        for file, positions in rows.items()
    }


def _gone(uri: str, parts: Sequence[_Part], clauses: Sequence[_Clause]) -> Mapping[str, BitMap64]:
    """The rows that go, by file."""
    gone = _together(part.gone for part in parts)
    matched = _together((gone, *(part.kept for part in parts)))
    seen = sum(_number(part.gone) + _number(part.kept) for part in parts)
    twice = any(part.twice for part in parts) or seen > _number(matched)
    if twice and not _only_deletes(clauses):
        raise InvalidRequest(
            "several rows of the source match one row of the table (MERGE_CARDINALITY_VIOLATION)",
            next_step="Keep one row of the source for each key, the newest for instance",
            table=uri,
        )
    return gone


def _together(maps: Iterable[Mapping[str, BitMap64]]) -> dict[str, BitMap64]:
    whole: dict[str, BitMap64] = {}
    for positions in maps:
        for key, rows in positions.items():
            whole[key] = whole.get(key, BitMap64()) | rows
    return whole


def _number(positions: Mapping[str, BitMap64]) -> int:
    return sum(map(len, positions.values()))


def _result(
    parts: Sequence[_Part], clauses: Sequence[_Clause], *, read_files: int, gone: int
) -> DmlResult:
    """The counts of a change by which so many rows are gone."""
    updated = inserted = 0
    counts = (item for part in parts for item in part.counts.items())
    for number, rows in counts:
        if number >= len(clauses):  # those that were only matched
            continue
        match clauses[number].action:
            case "update":
                updated += rows
            case "insert":
                inserted += rows
            case "delete":  # rows, and not matches: several rows of the source may delete one
                pass
    return DmlResult(
        committed=False,
        version=0,
        read_files=read_files,
        updated=updated,
        deleted=gone - updated,
        inserted=inserted,
    )


def _placed(schema: Schema) -> StructType:
    shape = spark_schema(schema)
    return shape.add(FILE, "string", nullable=False).add(POSITION, "long", nullable=False)


def _plain(shape: StructType) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField(f"c{place}", field.dataType, field.nullable)
            for place, field in enumerate(shape)
        ]
    )


# -- on the executors -----------------------------------------------------------------------------


def _read_part(
    uri: str, schema: Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    ctx = connect(uri)
    ids = tuple(field.id for field in schema.fields)
    scan = ScanParts(schema=schema, ids=ids, placed=True)
    arrow = arrow_for(_plain(_placed(schema)))
    width = len(ids)
    for piece in read_pickled(ctx, batches, scan):
        position, file = piece.columns[width:]
        columns = [*piece.columns[:width], file.cast(pa.string()), position.cast(pa.int64())]
        yield to_spark(pa.RecordBatch.from_arrays(columns, names=arrow.names), arrow)


def _write_part(
    uri: str,
    writer: PartedWrite,
    writing: Sequence[int],
    keep: int,
    given: Sequence[str],
    files: Mapping[str, FileTask],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Writes a task's new rows, those of the clauses `writing`, and records the positions of the rows that
    they replace. `keep`: a row of the source matches, and no clause applies to it. The rows have the
    columns `given`; the others are those of the rows that they replace, in `files` by their names."""
    ctx = connect(uri)
    schema = writer.table.snapshot.schema
    written = pa.array(writing, pa.int32())
    gone: dict[str, BitMap64] = {}
    kept: dict[str, BitMap64] = {}
    counts: dict[int, int] = {}
    noted = 0

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal noted
        for batch in batches:
            clause, file, position = batch.columns[:3]
            for row in pc.value_counts(clause).to_pylist():
                counts[row["values"]] = counts.get(row["values"], 0) + row["counts"]
            is_kept = pc.equal(clause, pa.scalar(keep, pa.int32()))
            for key in pc.unique(file.drop_null()).to_pylist():
                of_file = pc.equal(file, key)
                for places_of, chosen in ((kept, is_kept), (gone, pc.invert(is_kept))):
                    places = position.filter(pc.and_(of_file, chosen))
                    if len(places):
                        noted += len(places)
                        places_of.setdefault(key, BitMap64()).update(places.to_pylist())
            yield batch.filter(pc.is_in(clause, value_set=written))

    added = writer.write(ctx, _completed(ctx, schema, given, files, rows()))
    twice = noted > _number(_together((gone, kept)))
    yield pickled_batch(_Part(added, gone, kept, counts, twice))


def _completed(
    ctx: Context,
    schema: Schema,
    given: Sequence[str],
    files: Mapping[str, FileTask],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The new rows with all columns. Those that lack some come nearly in the order of the rows that they
    replace, so that many of these are read at once."""
    if len(given) == len(schema.names):
        for batch in batches:
            yield pa.RecordBatch.from_arrays(batch.columns[3:], names=given)
        return
    others = [field for field in schema.fields if field.name not in given]
    scan = ScanParts(schema=schema, ids=tuple(field.id for field in others))
    named = [*given, *(field.name for field in others)]
    order = [named.index(name) for name in schema.names]
    for batch in _in_chunks(batches):
        file = batch.column(1).dictionary_encode()
        places = pa.table([file.indices, batch.column(2)], names=["file", "position"])
        rows = batch.take(
            pc.sort_indices(places, [(name, "ascending") for name in places.schema.names])
        )
        tasks, start = [], 0
        for run in pc.value_counts(rows.column(1)).to_pylist():
            positions = rows.column(2).slice(start, run["counts"])
            tasks.append(files[run["values"]].at(positions.to_pylist()))
            start += run["counts"]
        start = 0
        for piece in scan.read(ctx, tasks):
            columns = [*rows.slice(start, piece.num_rows).columns[3:], *piece.columns]
            start += piece.num_rows
            yield pa.RecordBatch.from_arrays([columns[n] for n in order], names=schema.names)
        if start != rows.num_rows:
            raise CorruptTable("a data file has other rows than Spark has read in it")


def _in_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= COMPLETED_ROWS or size >= COMPLETED_BYTES:
            yield pa.concat_batches(held)
            held, rows, size = [], 0, 0
    if rows:
        yield pa.concat_batches(held)

"""Spark's plans and expressions, read and rebuilt from Python.

Promise: what a statement means is said by Spark's own parser, and by its own rules for WITH and for
parameters; nothing here looks at a statement's text. A node is Spark's JVM object, known by the names of
its class and fields, which a release may move or add to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.spark.conditions import column_of, expression_of, frame_of, plan_of
from inlay.spark.context import CalledBack, context_of, java_class, to_seq

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# A column that a change adds to rows, among columns as Spark prints them: the table has none of this name.
_OWN = re.compile(r"[{ ](__inlay_\w+)#")
Arguments = Mapping[str, Any] | Sequence[Any] | None


class Catalyst:
    """What one session's parser and analyser offer. Raises `InvalidRequest` for Spark Connect."""

    def __init__(self, spark: SparkSession) -> None:
        context_of(spark, "inlay.spark.sql")
        self._spark: Any = spark
        self.session: Any = spark._jsparkSession
        self._jvm: Any = spark._jvm
        self.parser: Any = self.session.sessionState().sqlParser()

    def statement(self, text: str, args: Arguments) -> Any:
        """The plan of a statement, with its WITH and its parameters in their places. Raises Spark's
        `ParseException`."""
        rules = self._jvm.org.apache.spark.sql.catalyst.analysis
        plan = rules.CTESubstitution.apply(self.parser.parsePlan(text))
        if not args:
            return plan
        if isinstance(args, Mapping):
            names = self.seq(list(args))
            plan = rules.NameParameterizedQuery(plan, names, self._literals(list(args.values())))
        else:
            plan = rules.PosParameterizedQuery(plan, self._literals(args))
        return rules.BindParameters.apply(plan)

    def _literals(self, values: Sequence[Any]) -> Any:
        """Values as the expressions that Spark binds."""
        from pyspark.sql import functions as f

        row = self._spark.range(1).select(*(f.lit(v).alias(f"a{n}") for n, v in enumerate(values)))
        expressions = items(row._jdf.queryExecution().analyzed().projectList())
        return self.seq([alias.child() for alias in expressions])

    def seq(self, values: Sequence[Any]) -> Any:
        return to_seq(self._spark, values)

    def frame(self, plan: Any) -> DataFrame:
        return frame_of(self._spark, plan)

    def column(self, expression: Any) -> Column:
        return column_of(self._spark, expression)

    def expression(self, column: Column) -> Any:
        return expression_of(self._spark, column)

    def names_in(self, text: str) -> tuple[str, ...]:
        """The parts of a name with dots and backticks."""
        return tuple(items(self.parser.parseMultipartIdentifier(text)))

    def transformed(self, plan: Any, rule: Callable[[Any], Any]) -> Any:
        """The plan with each node, those of subqueries too, as the rule returns it."""
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self._spark.sparkContext._gateway)
        given = _Rule(rule)
        with given.unwrapped():
            return plan.transformDownWithSubqueries(given)

    def function(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """The plan of a call of a table function."""
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        by_name = [
            catalyst.expressions.NamedArgumentExpression(key, value) for key, value in named.items()
        ]
        given = self.seq([*arguments, *by_name])
        return catalyst.analysis.UnresolvedTableValuedFunction(self.seq([name]), given, False)

    def literal(self, value: Any) -> Any:
        """Raises `InvalidRequest` for what is no value of Spark's."""
        return self._literals([value]).apply(0)

    def cast(self, expression: Any, kind: str) -> Any:
        """An ANSI cast to a type, in Spark's words for it, in the session's time zone."""
        return ansi_cast(self._spark, expression, self.parser.parseDataType(kind))


class _Rule(CalledBack):
    """Spark's partial function of a node."""

    def __init__(self, rule: Callable[[Any], Any]) -> None:
        self._rule = rule

    # Scala's names.
    def applyOrElse(self, node: Any, default: Any) -> Any:  # noqa: N802
        return self.apply(node)

    def apply(self, node: Any) -> Any:
        with self.noting():
            return self._rule(node)

    def isDefinedAt(self, node: Any) -> bool:  # noqa: N802
        return True

    class Java:
        implements = ("scala.PartialFunction",)


def kind_of(node: Any) -> str:
    return str(node.getClass().getSimpleName()).removesuffix("$")


def fields_of(node: Any) -> dict[str, Any]:
    """A node's fields by name. What a release lacks is not in it."""
    return {node.productElementName(n): node.productElement(n) for n in range(node.productArity())}


def items(sequence: Any) -> list[Any]:
    return [sequence.apply(n) for n in range(sequence.length())]


def entries(mapping: Any) -> dict[str, Any]:
    """A Scala map from text."""
    return {pair._1(): pair._2() for pair in items(mapping.toSeq())}


def value_of(option: Any) -> Any:
    """What a Scala Option holds, or None."""
    return option.get() if option.isDefined() else None


def is_default(expression: Any) -> bool:
    """Whether this is the word DEFAULT."""
    if kind_of(expression) != "UnresolvedAttribute":
        return False
    parts: Sequence[str] = items(expression.nameParts())
    return [part.upper() for part in parts] == ["DEFAULT"]


# -- expressions, resolved -------------------------------------------------------------------------


def ansi_cast(spark: Any, expression: Any, kind: Any) -> Any:
    """The expression as one of Spark's types, in the session's time zone. A value that does not fit is an
    error."""
    expressions = "org.apache.spark.sql.catalyst.expressions."
    zone = java_class(spark, "scala.Option").apply(spark.conf.get("spark.sql.session.timeZone"))
    ansi = java_class(spark, expressions + "EvalMode").ANSI()
    return java_class(spark, expressions + "Cast")(expression, kind, zone, ansi)


def resolved(frame: DataFrame, columns: Sequence[Column]) -> list[Any]:
    """The columns as expressions over this frame's own: names mean what they mean there, wherever the
    expressions are used afterwards. Raises Spark's `AnalysisException`, and `InvalidRequest` for what is
    more than an expression on one row (an aggregate, a window)."""
    if not columns:
        return []
    shown = [column.alias(f"__inlay_value_{n}") for n, column in enumerate(columns)]
    plan = plan_of(frame.select(*shown))
    if kind_of(plan) == "Project":
        output = plan_of(frame).outputSet()
        # A window is computed below, and only named here.
        aliases = [named for named in items(plan.projectList()) if kind_of(named) == "Alias"]
        expressions = [alias.child() for alias in aliases]
        referred = [expression.references() for expression in expressions]
        if own := _OWN.search(" ".join(columns.toString() for columns in referred)):
            raise InvalidRequest(
                f"{own[1]} is no column of the table's, but of changes on their way",
                next_step="SELECT * FROM name.files shows a table's files",
            )
        if len(expressions) == len(columns) and all(r.subsetOf(output) for r in referred):
            return expressions
    raise InvalidRequest(
        "a condition or value is made of more than one row (an aggregate, a window, a generator)",
        next_step="Compute it in the source, or in a subquery",
    )


def check_stored(
    spark: Any, expression: Any, kind: Any, name: str, *, by_position: bool = False
) -> None:
    """Raises `SchemaMismatch` where SQL does not assign a value of this type to the column, by the
    session's `spark.sql.storeAssignmentPolicy`; like Spark's own tables, in another policy than STRICT by
    ANSI's."""
    given = expression.dataType()
    to = spark._jsparkSession.parseDataType(kind.json())
    casts = java_class(spark, "org.apache.spark.sql.catalyst.expressions.Cast")
    strict = spark.conf.get("spark.sql.storeAssignmentPolicy").upper() == "STRICT"
    fits = casts.canUpCast(given, to) if strict else casts.canANSIStoreAssign(given, to)
    if not fits:
        raise SchemaMismatch(
            f"SQL assigns no {given.simpleString()[:200]} to the column {name[:100]!r}, which is "
            f"{to.simpleString()[:200]}",
            next_step=f"Write CAST(… AS {to.sql()[:200]})",
        )
    names = _names_within(given)  # none in an untyped NULL
    if not by_position and names and names != _names_within(to):
        raise SchemaMismatch(
            f"the fields within {name[:100]!r} have other names than those of the value, or another order",
            next_step="Build it with named_struct(…) in the table's order",
        )


def _names_within(kind: Any) -> list[str]:
    """The fields' names at every level, in order."""
    match kind_of(kind):
        case "StructType":
            fields = list(kind.fields())
            inner = [name for field in fields for name in _names_within(field.dataType())]
            return [field.name().lower() for field in fields] + inner
        case "ArrayType":
            return _names_within(kind.elementType())
        case "MapType":
            return _names_within(kind.keyType()) + _names_within(kind.valueType())
        case _:  # the set of Spark's types is open
            return []

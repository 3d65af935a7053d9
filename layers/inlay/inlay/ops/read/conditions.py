"""What callers give as a condition: SQL text, a predicate, an expression of pyarrow or Polars.

Promise: one function binds them for all that changes rows, so that a condition selects the same rows
everywhere. An expression becomes a predicate that selects exactly what its own library selects, or is
refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from inlay.format.expression import Condition
from inlay.format.predicate import Predicate
from inlay.format.schema import Schema
from inlay.format.snapshot import Snapshot
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.arrow.functions import pc
from inlay.parquet.read.selection import RowFilter
from inlay.parse import Values, condition_of


def is_polars(where: Any) -> bool:
    """Whether it is an expression of Polars, which is imported if it is."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(where, polars.Expr)


def polars_predicate(where: Any, snapshot: Snapshot, schema: Schema | None = None) -> Predicate:
    """On the snapshot's columns, or on those of another schema of the table. Raises `InvalidPredicate`."""
    from inlay.ops.read import polars_predicate

    schema = schema or snapshot.schema
    # Ordered categories are an Enum in Polars, which compares by their order.
    ordered = Declared.of(snapshot, schema).text_orders
    plain = Schema(
        schema.id, tuple(f for f in schema.fields if f.name not in ordered), schema.version
    )
    return polars_predicate.predicate_of(where, plain)


def bound(
    where: Any, snapshot: Snapshot, now: Callable[[], int], values: Values | None = None
) -> Condition:
    """A condition to change rows by; see `inlay.parse.condition.condition_of`. Raises `InvalidPredicate`,
    `InvalidRequest`."""
    if isinstance(where, pc.Expression):
        from inlay.parquet.arrow.expression_predicate import predicate_of  # most give SQL

        return Condition(predicate_of(where, snapshot.schema))
    if is_polars(where):
        return Condition(polars_predicate(where, snapshot))
    return condition_of(where, snapshot.schema, now, values)


def filter_of(condition: Condition) -> RowFilter | None:
    """What is asked of rows beside the condition's predicate."""
    if condition.calculated is None:
        return None
    from inlay.parquet.arrow.calculate import CalculatedFilter  # most conditions are predicates

    return CalculatedFilter(condition.calculated)

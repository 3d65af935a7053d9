"""Which table a name in a statement means.

Promise: a name is Inlay's if it is

    inlay.`s3://bucket/tables/events`     the location itself
    events                                a temporary view that is all of one table: by `view`, by
                                          `SELECT * FROM inlay('…')`, or `USING inlay OPTIONS (path '…')`
    events.branch_b, events.tag_t         a branch or tag of it, as Iceberg spells it

and nothing else is: a view that selects, joins or renames is a query, and every other name is Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from inlay import exists
from inlay.errors import InlayError, InvalidRequest
from inlay.spark.catalyst import Catalyst, entries, items, kind_of, value_of
from inlay.spark.conditions import quoted
from inlay.spark.connect import at_ref
from inlay.spark.table_function import FUNCTION, called

# The options of a view `USING inlay` with which it is still all of one table, to write to.
_OF_TABLES = frozenset({"path", "ref", "partitionoverwritemode"})
# A branch or tag behind a table's name, and a version behind its location, as Iceberg and Delta spell them.
_OF_REFS = re.compile(r"(?:branch|tag)_(.+)")
_AT_VERSION = re.compile(r"(.*)@v(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """`name` is what the rows are called where a statement gives no alias; `why_fixed` says what is wrong
    with writing to it, "" where nothing is."""

    name: str
    location: str
    ref: str | None = None
    why_fixed: str = ""

    @property
    def uri(self) -> str:
        return at_ref(self.location, self.ref)

    def to_write(self) -> Named:
        """Raises `InvalidRequest` for what can only be read."""
        if self.why_fixed:
            raise InvalidRequest(
                f"{self.name[:100]!r} {self.why_fixed}, and cannot be written to",
                next_step=f"Make a view of the whole table: view(spark, 'name', {self.location!r})",
            )
        return self


def find_named(spark: Any, catalyst: Catalyst, parts: Sequence[str]) -> Named | None:
    """The table of this name; None if the name is not Inlay's."""
    by_place = len(parts) == 2 and parts[0].lower() == FUNCTION
    # A catalog of the session's own comes first.
    if by_place and spark.conf.get(f"spark.sql.catalog.{parts[0]}", None) is None:
        if (versioned := _AT_VERSION.fullmatch(parts[1])) is not None:
            place, version = versioned.groups()
            raise InvalidRequest(
                f"{parts[1][:200]!r} is no location of a table",
                next_step=f"{FUNCTION}.`{place[:200]}` VERSION AS OF {version}",
            )
        return Named(name=parts[1], location=parts[1])
    if len(parts) > 1 and (of := _OF_REFS.fullmatch(parts[-1])) is not None:
        named = find_named(spark, catalyst, parts[:-1])
        return named and (None if is_there(spark, parts) else replace(named, ref=of[1]))
    if len(parts) == 2:
        check_place(parts[1], ".".join(map(quoted, parts)))
    if len(parts) != 1:
        return None
    view = value_of(catalyst.session.sessionState().catalog().getRawTempView(parts[0]))
    if view is None:
        return None
    text = value_of(view.tableMeta().viewText())
    return _of_text(catalyst, parts[0], view, text) if text else _of_source(parts[0], view)


def check_place(place: str, typed: str) -> None:
    """Raises `InvalidRequest` where a table is at a place that Spark would take for a folder of files: it
    would read deleted rows, and an overwrite would delete the table."""
    is_table = False
    with suppress(InlayError):  # it is no place that this library reaches
        is_table = "/" in place and exists(place)
    if is_table:
        raise InvalidRequest(
            f"{typed[:200]}: there is an Inlay table, and no folder of files",
            next_step=f"{FUNCTION}.`{place[:200]}` in SQL, or format({FUNCTION!r})",
        )


def is_there(spark: Any, parts: Sequence[str]) -> bool:
    """Whether this is a table or view of Spark's."""
    return bool(spark.catalog._jcatalog.tableExists(".".join(map(quoted, parts))))


def _of_text(catalyst: Catalyst, name: str, view: Any, text: str) -> Named | None:
    plan = catalyst.parser.parsePlan(text)
    call = plan.child() if kind_of(plan) == "Project" else plan
    if kind_of(call) != "UnresolvedTableValuedFunction":
        return None
    if [part.lower() for part in items(call.name())] != [FUNCTION]:
        return None
    location, asked = called(items(call.functionArgs()))
    ref = asked.get("ref")
    why = ""
    if asked.keys() & {"version", "as_of"}:
        why = "is a view of an earlier version"
    metadata = view.tableMeta()
    selected = kind_of(plan) == "Project" and [kind_of(c) for c in items(plan.projectList())]
    if selected not in (False, ["UnresolvedStar"]) or (
        items(metadata.viewQueryColumnNames()) != [f.name() for f in metadata.schema().fields()]
    ):
        why = "is a view that chooses or renames columns"
    return Named(name=name, location=location, ref=None if ref is None else str(ref), why_fixed=why)


def _of_source(name: str, view: Any) -> Named | None:
    plan = value_of(view.plan())
    if plan is None or kind_of(plan) != "DataSourceV2Relation" or plan.table().name() != FUNCTION:
        return None
    options = {k.lower(): v for k, v in dict(plan.options().asCaseSensitiveMap()).items()}
    others = options.keys() - _OF_TABLES
    why = f"is a view with the option {sorted(others)[0]!r}" if others else ""
    return Named(name=name, location=options["path"], ref=options.get("ref"), why_fixed=why)


def static_values(spec: Any) -> dict[str, str | None]:
    """The partitions that `PARTITION (day = '…', hour)` gives, None for those that the rows give."""
    return {name: value_of(value) for name, value in entries(spec).items()}

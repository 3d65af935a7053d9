"""A pyarrow expression as a row filter.

Promise: selects the rows for which Arrow's own filter would be true, and prunes only where Arrow's own
simplification, under the guarantee of the statistics, finds the expression unsatisfiable. Arrow's rules
apply, not those of the format's predicates: for example, NaN compares false. Where Arrow cannot simplify
it, nothing is pruned; where it cannot evaluate it on a row, InvalidPredicate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from operator import and_
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidPredicate
from inlay.format.entry import ColumnStats
from inlay.format.schema import Primitive, Schema
from inlay.parquet.arrow.types import schema_to_arrow, to_arrow_scalar, to_scalar
from inlay.record import Record

# How Arrow writes an expression as text.
_CALLS = re.compile(r"([a-z0-9_]+)\(")
_ARITHMETIC = re.compile(r" [-+*/] ")
_NEVER_NAN = frozenset({"invert", "is_in", "is_null", "is_valid", "true_unless_null"})


class ExpressionFilter(Record, dict=True):
    """`expression` refers to columns by their names in `schema`, the snapshot's."""

    expression: pc.Expression
    schema: Schema

    def check(self) -> None:
        """Raises InvalidPredicate where the expression does not fit the schema."""
        error = self._fault(schema_to_arrow(self.schema, with_ids=False))
        if error is not None:
            raise InvalidPredicate(
                f"the expression does not fit the table: {str(error).splitlines()[0][:300]}",
                next_step=f"The columns are: {', '.join(self.schema.names)[:300]}",
            )

    def _fault(self, arrow: pa.Schema) -> Exception | None:
        try:
            arrow.empty_table().filter(self.expression)
        except (pa.ArrowException, TypeError) as error:
            return error
        return None

    @cached_property
    def fields(self) -> frozenset[int]:
        # An expression does not expose its fields; but without such a column it does not bind.
        arrow = schema_to_arrow(self.schema, with_ids=False)
        return frozenset(
            field.id
            for ordinal, field in enumerate(self.schema.fields)
            if self._fault(arrow.remove(ordinal)) is not None
        )

    @property
    def of_live_rows(self) -> bool:
        return True

    @property
    def prunes(self) -> bool:
        return True

    def coverage(
        self, stats: Mapping[int, ColumnStats], rows: int
    ) -> Literal["none", "some", "all"]:
        return "some" if self.may_match([(stats, rows)])[0] else "none"

    def may_match(self, parts: Sequence[tuple[Mapping[int, ColumnStats], int]]) -> list[bool]:
        """For each part (statistics and number of rows) whether it may hold a selected row."""
        # Arrow simplifies an expression under a guarantee only when it chooses fragments.
        import pyarrow.dataset as ds
        from pyarrow.fs import LocalFileSystem

        form, nowhere = ds.ParquetFileFormat(), LocalFileSystem()
        fragments = [
            form.make_fragment(
                str(n), filesystem=nowhere, partition_expression=self._guarantee(stats, rows)
            )
            for n, (stats, rows) in enumerate(parts)
        ]
        arrow = schema_to_arrow(self.schema, with_ids=False)
        dataset = ds.FileSystemDataset(fragments, arrow, form, nowhere)
        try:
            remaining = {
                fragment.path for fragment in dataset.get_fragments(filter=self.expression)
            }
        except pa.ArrowException:
            # A bound that the type of the expression's own values does not hold.
            return [True] * len(parts)
        return [str(n) in remaining for n in range(len(parts))]

    @cached_property
    def _may_hold_nan(self) -> bool:
        """Whether a literal is NaN, or may be calculated to be: Arrow takes every value within bounds to be
        less than NaN, and `~(x < NaN)` to be false."""
        text = str(self.expression).lower()
        called = set(_CALLS.findall(text))
        return "nan" in text or not called <= _NEVER_NAN or bool(_ARITHMETIC.search(text))

    def _guarantee(self, stats: Mapping[int, ColumnStats], rows: int) -> pc.Expression:
        known: list[pc.Expression] = []
        for field in self.schema.fields:
            bounds = stats.get(field.id)
            if field.id in self.fields and bounds is not None and isinstance(field.type, Primitive):
                if field.type.is_float and self._may_hold_nan and bounds.null_count != rows:
                    continue
                known.extend(_known(field.name, field.type, bounds, rows))
        return reduce(and_, known, pc.scalar(True))

    def selected(self, batch: pa.RecordBatch, schema: Schema) -> pa.BooleanArray:
        """Which rows of a batch laid out as `schema` are selected."""
        from pyarrow.acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions

        plan = Declaration.from_sequence(
            [
                Declaration("table_source", TableSourceNodeOptions(pa.Table.from_batches([batch]))),
                Declaration("project", ProjectNodeOptions([self.expression], ["keep"])),
            ]
        )
        try:
            keep = plan.to_table(use_threads=False).column(0).combine_chunks()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # Arrow's own words may hold a value of the row.
            raise InvalidPredicate(
                "Arrow cannot evaluate the expression on a row",
                next_step="Give literals the type of their column, as pa.scalar(5, pa.uint64()), and leave "
                "out rows on which it has no result",
            ) from None
        return pc.fill_null(keep, to_scalar(False, pa.bool_()))


def _known(name: str, kind: Primitive, stats: ColumnStats, rows: int) -> list[pc.Expression]:
    field: Any = pc.field(name)
    if stats.null_count == rows:
        return [field.is_null()]
    if kind.is_float and stats.has_nan is not False:
        return []  # a NaN is outside the bounds
    known = []
    if stats.lower is not None:
        known.append(field >= to_arrow_scalar(kind, stats.lower))
    if stats.upper is not None:
        known.append(field <= to_arrow_scalar(kind, stats.upper))
    # The form that Arrow understands: each bound separately, or NULL.
    return known if stats.null_count == 0 else [bound | field.is_null() for bound in known]

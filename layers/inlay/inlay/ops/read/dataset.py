"""Tables in the forms of other engines, so that only what a query needs is read.

Promise: the rows are those of a scan, deletes applied. `TableDataset` is a pyarrow Dataset for code that
uses columns, a filter and batches (DuckDB, Ibis); filters keep pyarrow's meaning, and DuckDB passes only
those that mean the same to both. `lazy_frame` is a Polars LazyFrame: Polars applies its predicate itself,
and the part of it that this library understands is only used to prune.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from inlay.errors import InvalidPredicate, InvalidRequest
from inlay.format.binding import Day, Flag, Moment, Number, Text, Written, compare_with
from inlay.format.predicate import TRUE, And, Operator, Or, Predicate
from inlay.format.schema import Primitive, Schema
from inlay.ops.read.scan import Scan

if TYPE_CHECKING:
    import polars as pl

MakeScan = Callable[..., Scan]


class TableDataset(ds.Dataset):  # type: ignore[misc]
    """A snapshot as a pyarrow Dataset. `make_scan` takes `columns`, `where`, `limit` and `eager`."""

    # The base class's own state is never created: every method that reads is overridden here.
    def __init__(self, make_scan: MakeScan) -> None:
        self._make_scan = make_scan
        self._schema = make_scan().schema

    def __reduce__(self) -> Any:
        return TableDataset, (self._make_scan,)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def partition_expression(self) -> pc.Expression:
        return pc.scalar(True)

    def scanner(
        self, columns: Any = None, filter: pc.Expression | None = None, **_: Any
    ) -> TableScanner:
        return TableScanner(self, columns, filter)

    def to_table(self, **options: Any) -> pa.Table:
        return self.scanner(**options).to_table()

    def to_batches(self, **options: Any) -> Iterator[pa.RecordBatch]:
        return self.scanner(**options).to_batches()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        return self.scanner(**options).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:
        return self.scanner(filter=filter).count_rows()

    def filter(self, expression: pc.Expression) -> TableDataset:
        make = self._make_scan

        def filtered(**options: Any) -> Scan:
            where = options.pop("where", None)
            return make(where=expression if where is None else expression & where, **options)

        return TableDataset(filtered)

    def get_fragments(self, filter: Any = None) -> Iterator[Any]:
        raise _not_of_files("fragments")

    def replace_schema(self, schema: pa.Schema) -> TableDataset:
        raise _not_of_files("another schema")

    def __repr__(self) -> str:
        return f"<TableDataset of {self._make_scan()!r}>"


def _not_of_files(what: str) -> InvalidRequest:
    return InvalidRequest(
        f"a table's dataset has no {what}: its files contain deleted rows",
        next_step="Read it by scanner(), to_batches() or to_table()",
    )


class TableScanner(ds.Scanner):  # type: ignore[misc]
    """One read of a `TableDataset`."""

    def __init__(self, dataset: TableDataset, columns: Any, filter: pc.Expression | None) -> None:
        if isinstance(columns, dict):
            raise InvalidRequest(
                "columns that are calculated cannot be read from a table",
                next_step="Request columns, and calculate on the result",
            )
        self._dataset = dataset
        self._names = list(dataset.schema.names if columns is None else columns)
        self._filter = filter

    @property
    def dataset_schema(self) -> pa.Schema:
        return self._dataset.schema

    @property
    def projected_schema(self) -> pa.Schema:
        return pa.schema([self._dataset.schema.field(name) for name in self._names])

    def _scan(self, **options: Any) -> Scan:
        # Without a column the receiver of the batches could not count rows.
        names = self._names or [self._dataset.schema.names[0]]
        return self._dataset._make_scan(columns=names, where=self._filter, eager=False, **options)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        try:
            scan = self._scan()
        except InvalidPredicate:
            # The filter is in the declared types of the columns, for example uuid.
            whole = self._dataset._make_scan(eager=False).to_reader()
            for batch in whole:
                kept = pa.Table.from_batches([batch]).filter(self._filter)
                yield from kept.select(self._names).to_batches()
            return
        for batch in scan.to_reader():
            yield batch if self._names else batch.select([])

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(list(self.to_batches()), schema=self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        return self._scan(limit=num_rows).to_arrow().select(self._names)

    def count_rows(self) -> int:
        return self._scan().count()


# -- Polars ---------------------------------------------------------------------------------------


def lazy_frame(make_scan: MakeScan, schema: Schema) -> pl.LazyFrame:
    """A LazyFrame that reads the columns, rows and first rows that its query asks for."""
    import polars as pl
    from polars.io.plugins import register_io_source

    whole = make_scan()

    def source(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        names = whole.schema.names if with_columns is None else with_columns
        needed = dict.fromkeys(names)
        if predicate is not None:
            needed.update(dict.fromkeys(predicate.meta.root_names()))
        scan = make_scan(
            columns=list(needed) or [whole.schema.names[0]],
            where=TRUE if predicate is None else implied(predicate, schema),
            limit=n_rows if predicate is None else None,
            eager=n_rows is None,
        )
        left = n_rows
        for batch in scan.to_reader():
            frame = cast("pl.DataFrame", pl.from_arrow(pa.Table.from_batches([batch])))
            if predicate is not None:
                frame = frame.filter(predicate)
            if names:
                frame = frame.select(names)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame
            if left == 0:
                return

    # Not empty_table(), which cannot make arrays of every type.
    empty = cast("pl.DataFrame", pl.from_arrow(pa.Table.from_batches([], whole.schema)))
    return register_io_source(source, schema=empty.schema)


_POLARS: dict[str, Operator] = {
    "Eq": "=",
    "NotEq": "!=",
    "Lt": "<",
    "LtEq": "<=",
    "Gt": ">",
    "GtEq": ">=",
}
_TURNED: dict[Operator, Operator] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_UNIT_NANOS = {"Nanoseconds": 1, "Microseconds": 1_000, "Milliseconds": 1_000_000}
# Whole numbers that a double holds.
_EXACT = 2**53


def implied(predicate: pl.Expr, schema: Schema) -> Predicate:
    """A condition that is TRUE for every row for which a Polars predicate is; TRUE if it is not understood.
    The text form of Polars expressions is internal to Polars, so nothing relies on it."""
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _implied(json.loads(predicate.meta.serialize(format="json")), schema) or TRUE
    except Exception:
        return TRUE


def _implied(node: Any, schema: Schema) -> Predicate | None:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            parts = tuple(p for p in (_implied(left, schema), _implied(right, schema)) if p)
            return And(parts) if parts else None
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            one, other = _implied(left, schema), _implied(right, schema)
            return Or((one, other)) if one and other else None
        case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": {"Literal": literal}}}:
            return _compared(name, _POLARS.get(op), literal, schema)
        case {"BinaryExpr": {"left": {"Literal": literal}, "op": op, "right": {"Column": name}}}:
            known = _POLARS.get(op)
            return _compared(name, _TURNED.get(known, known) if known else None, literal, schema)
    return None


def _compared(name: str, op: Operator | None, literal: Any, schema: Schema) -> Predicate | None:
    field = schema.column(name)
    if op is None or field is None or not isinstance(field.type, Primitive):
        return None
    written = _written(field.type, literal)
    return None if written is None else compare_with(field.id, field.type, op, written)


def _written(kind: Primitive, literal: Any) -> Written | None:
    """The literal, if Polars and this library compare it with the column alike."""
    [(_, value)] = literal.items()
    [(of, plain)] = value.items()
    whole = of.startswith(("Int", "UInt")) and isinstance(plain, int)
    match kind.name, of, plain:
        case _, _, int(number) if kind.is_integer and whole:
            return Number(Decimal(number))
        case "double", _, int(number) if whole and abs(number) <= _EXACT:
            return Number(Decimal(number))
        case "double", "Float" | "Float64", float(number):
            return Number(Decimal(number))
        case "string", "String" | "StringOwned", str(text):
            return Text(text)
        case "bool", "Boolean", bool(flag):
            return Flag(flag)
        case "date", "Date", int(days):
            return Day(days)
        case "timestamp", "Datetime", [int(count), unit, None]:
            return Moment(count * _UNIT_NANOS[unit], zoned=False)
    return None

"""A table as a pyarrow Dataset, so that only what a query needs is read.

Promise: the rows are those of a scan, deletes applied. For code that uses columns, a filter and batches
(DuckDB, Ibis); filters keep pyarrow's meaning, and DuckDB passes only those that mean the same to both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from inlay.errors import InvalidPredicate, InvalidRequest
from inlay.ops.read.scan import Scan

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

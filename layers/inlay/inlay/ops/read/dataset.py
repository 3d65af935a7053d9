"""A table as a pyarrow Dataset, so that only what a query needs is read.

Promise: the rows are those of a scan, deletes applied. For code that uses columns, a filter and batches
(DuckDB, DataFusion, Ibis); filters keep pyarrow's meaning, and DuckDB passes only those that mean the same
to both. Code that reads a dataset past its methods, in Arrow's C++ (`Scanner.from_dataset`, a union, the
right side of a join), gets an error that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs

from inlay.errors import InvalidPredicate, InvalidRequest
from inlay.ops.read.scan import Scan

MakeScan = Callable[..., Scan]


def _refuse(*_: Any, **__: Any) -> Any:
    raise InvalidRequest(
        "a table cannot be read by Arrow's C++ datasets: its files contain deleted rows",
        next_step="Read it by to_table(), to_batches() or scanner() of t.to_dataset()",
    )


# A file system on which nothing can be read.
_NoFiles = type(
    "_NoFiles",
    (fs.FileSystemHandler,),
    dict.fromkeys(fs.FileSystemHandler.__abstractmethods__, _refuse)
    | {"get_type_name": lambda _: "inlay", "normalize_path": lambda _, path: path},
)


class TableDataset(ds.UnionDataset):  # type: ignore[misc]
    """A snapshot as a pyarrow Dataset. `make_scan` takes `columns`, `where`, `limit` and `eager`."""

    def __init__(self, make_scan: MakeScan) -> None:
        self._make_scan = make_scan
        self._schema = make_scan().schema
        # What C++ sees of it. Without a state of its own it would follow a null pointer.
        files, kind = fs.PyFileSystem(_NoFiles()), ds.IpcFileFormat()
        nothing = [kind.make_fragment("table", filesystem=files)]
        super().__init__(
            self._schema, [ds.FileSystemDataset(nothing, self._schema, kind, filesystem=files)]
        )

    def __reduce__(self) -> Any:
        return TableDataset, (self._make_scan,)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def partition_expression(self) -> pc.Expression:
        return pc.scalar(True)

    @property
    def children(self) -> list[ds.Dataset]:
        return []

    def scanner(
        self, columns: Any = None, filter: pc.Expression | None = None, **options: Any
    ) -> Any:
        """A `TableScanner`; given `use_threads`, Arrow's own scanner over the same rows, which reads once
        and ahead: `pyarrow.dataset.write_dataset` calls it so and hands the result to C++."""
        scanner = self._read(columns, filter)
        return ds.Scanner.from_batches(scanner) if "use_threads" in options else scanner

    def _read(
        self, columns: Any = None, filter: pc.Expression | None = None, **_: Any
    ) -> TableScanner:
        return TableScanner(self, columns, filter)

    def to_table(self, *positional: Any, **options: Any) -> pa.Table:
        return self._read(*positional, **options).to_table()

    def to_batches(self, *positional: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        return self._read(*positional, **options).to_batches()

    def head(self, num_rows: int, *positional: Any, **options: Any) -> pa.Table:
        return self._read(*positional, **options).head(num_rows)

    def take(self, indices: Any, *positional: Any, **options: Any) -> pa.Table:
        return self._read(*positional, **options).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:
        return self._read(filter=filter).count_rows()

    def filter(self, expression: pc.Expression) -> TableDataset:
        make = self._make_scan

        def filtered(**options: Any) -> Scan:
            where = options.pop("where", None)
            return make(where=expression if where is None else expression & where, **options)

        return TableDataset(filtered)

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        return ds.InMemoryDataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: Any, *positional: Any, **options: Any) -> ds.InMemoryDataset:
        right = _in_memory(right_dataset)
        return ds.InMemoryDataset(self.to_table().join(right, *positional, **options))

    def join_asof(self, right_dataset: Any, *positional: Any, **options: Any) -> ds.InMemoryDataset:
        right = _in_memory(right_dataset)
        return ds.InMemoryDataset(self.to_table().join_asof(right, *positional, **options))

    def get_fragments(self, filter: Any = None) -> Iterator[TableFragment]:
        """One, the whole table: a file by itself contains deleted rows."""
        yield TableFragment(self)

    def replace_schema(self, schema: pa.Schema) -> TableDataset:
        if schema == self._schema:
            return self
        raise InvalidRequest(
            "a table's dataset has no other schema than the table's",
            next_step="Cast what is read: to_table().cast(schema)",
        )

    def __repr__(self) -> str:
        return f"<TableDataset of {self._make_scan()!r}>"


def _in_memory(side: Any) -> Any:
    return side.to_table() if isinstance(side, ds.Dataset) else side


class TableFragment:
    """The rows of a `TableDataset`, for engines that read a dataset by its fragments (DataFusion)."""

    def __init__(self, dataset: TableDataset) -> None:
        self._dataset = dataset

    @property
    def physical_schema(self) -> pa.Schema:
        return self._dataset.schema

    @property
    def partition_expression(self) -> pc.Expression:
        return self._dataset.partition_expression

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> TableScanner:
        dataset = self._dataset if schema is None else self._dataset.replace_schema(schema)
        return dataset._read(**options)

    def to_batches(
        self, schema: pa.Schema | None = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        return self.scanner(schema, **options).to_batches()

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        return self.scanner(schema, **options).to_table()

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:
        return self._dataset.count_rows(filter)


class TableScanner:
    """One read of a `TableDataset`, with the methods of pyarrow's Scanner."""

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

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def take(self, indices: Any) -> pa.Table:
        return self.to_table().take(indices)

    def head(self, num_rows: int) -> pa.Table:
        return self._scan(limit=num_rows).to_arrow().select(self._names)

    def count_rows(self) -> int:
        return self._scan().count()

"""Rows that are read again on each use, in every Arrow form.

Promise: a subclass defines the batches; every other form (a table, pandas, Polars, Arrow's own protocol,
and so DuckDB) is made of these, with the same rows.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from inlay.errors import InvalidRequest


class ArrowStream(ABC):
    """Rows of `schema`; the batches of a scan have at most 131,072."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema: ...

    @abstractmethod
    def _batches(self) -> Iterator[pa.RecordBatch]: ...

    def to_reader(self) -> pa.RecordBatchReader:
        """A stream of batches. Each call reads again."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def to_arrow(self) -> pa.Table:
        """All rows as one table."""
        return pa.Table.from_batches(list(self._batches()), schema=self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """All rows as a pandas DataFrame; `options` go to pyarrow's `Table.to_pandas`."""
        needed("pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> Any:
        """All rows as a Polars DataFrame."""
        return needed("polars").from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()


def needed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InvalidRequest(
            f"this needs {module}, which is not installed",
            next_step=f"pip install {module}, or use to_arrow()",
        ) from None

"""Data files that another engine's own reader of Parquet reads: which columns it may, and what it must know
of their deleted rows.

Promise: with what is said here another reader gives the rows and values that a scan gives, or is not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from inlay.errors import InlayError
from inlay.format.entry import Keys
from inlay.format.schema import Schema
from inlay.ops.context import Context
from inlay.parquet.read.deleted_rows import load_keys, load_words
from inlay.parquet.read.exact_columns import ReaderSupport, exact_columns
from inlay.plan.scan import FileTask


@dataclass(frozen=True, slots=True)
class OtherReader(ReaderSupport):
    """What the other reader gives exactly of a file, by what it supports."""

    def exact(self, ctx: Context, task: FileTask) -> tuple[frozenset[int], tuple[int, ...]]:
        """The columns of a file that it reads exactly, and the rows of each row group: none of a broken
        file, of which reading it here says what is wrong. One request for the footer."""
        # Its deletes are not asked for.
        task = replace(task, markers=())
        try:
            file = ctx.reader.open(task)
            groups = range(file.metadata.num_row_groups)
            rows = tuple(file.metadata.row_group(n).num_rows for n in groups)
            return exact_columns(self, file), rows
        except InlayError:
            return frozenset(), ()

    @staticmethod
    def deleted_keys(
        ctx: Context, schema: Schema, among: tuple[int, ...], key: str, size: int, rows: int
    ) -> Sequence[pa.Array]:
        """The keys in the object `key`, an array for each column in `among`, in the types of `schema`."""
        return load_keys(ctx.objects, Keys(among, key, size, rows), schema).columns

    @staticmethod
    def deleted_places(ctx: Context, task: FileTask, group_rows: Sequence[int]) -> pa.Int64Array:
        """The rows that are deleted by position, as a bitmap: bit `n % 64` of number `n // 64` is row n."""
        return load_words(ctx.objects, task, group_rows)

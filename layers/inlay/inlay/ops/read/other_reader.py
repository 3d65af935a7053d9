"""Data files that another engine's own reader of Parquet reads: which columns it may, and what it must know
of their deleted rows.

Promise: with what is said here another reader gives the rows and values that a scan gives, or is not asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyroaring import BitMap64

from inlay.errors import InlayError
from inlay.format.entry import Keys
from inlay.format.schema import Field, Primitive, Schema, Type, fields_within
from inlay.ops.context import Context
from inlay.parquet.arrow.types import positions_array
from inlay.parquet.read.deleted_rows import combine_markers, load_keys, marker_jobs, marks_at
from inlay.parquet.read.exact_columns import ReaderSupport, exact_columns
from inlay.plan.scan import FileTask
from inlay.record import replace


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
        """The rows that are deleted by position, as a bitmap: bit `n % 64` of number `n // 64` is row n.
        `group_rows` are the rows of each row group of the file."""
        markers = [marker for marker in task.markers if marker.is_positional]
        jobs = marker_jobs(ctx.objects, markers, task.schema, task.file.rows)
        deletes = combine_markers(markers, [job() for job in jobs], task.schema, ctx.objects.cache)
        bitmap = BitMap64(deletes.positions or ())
        start = 0
        for ordinal, rows in enumerate(group_rows):
            if ordinal in deletes.groups:
                bitmap.add_range(start, start + rows)
            start += rows
        numbers = -(-start // 64)
        bits = marks_at(positions_array(bitmap), 64 * numbers).is_valid()
        return pa.Array.from_buffers(pa.int64(), numbers, [None, bits.buffers()[1]])

    @staticmethod
    def has_as_it_is(task: FileTask, field: Field) -> bool:
        """Whether the file has this column of the table: the same values, by the same names."""
        return same_column(task.schema.by_id(field.id), field)


def same_column(recorded: Field | None, field: Field) -> bool:
    """Whether a file's column is the table's: its values, and the names by which they are found."""
    if recorded is None or recorded.in_partition is not None:
        return False
    same = (recorded.id, recorded.name, recorded.nullable) == (field.id, field.name, field.nullable)
    return same and _same_type(recorded.type, field.type)


def _same_type(recorded: Type, kind: Type) -> bool:
    old, new = fields_within(recorded), fields_within(kind)
    if isinstance(kind, Primitive) or type(recorded) is not type(kind):
        return recorded == kind
    return len(old) == len(new) and all(map(same_column, old, new))

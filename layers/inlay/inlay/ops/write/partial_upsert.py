"""Upserts of rows that lack columns of the table: its rows of these keys are read, and keep their values.

Promise: what was read is validated on every rebase, as for an update.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from inlay.format.schema import Field, Schema
from inlay.ops.commit.driver import Planned
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.write.keyed_rows import Keys, NullKeys, write_rows_and_markers
from inlay.ops.write.old_rows import keys_predicate, read_matching
from inlay.parquet.arrow.conform import conformed
from inlay.parquet.arrow.pieces import take_rows
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.plan.change import AddFiles, AddMarkers, Change, Reads, Request
from inlay.record import Mutable


class _Merge(Mutable):
    """Rows of the data with the values of the table's rows of the same keys in the columns it lacks."""

    rows: pa.Table
    names: tuple[str, ...]
    kept: tuple[Field, ...]
    schema: Schema
    nulls: NullKeys
    files: set[str]
    replaced: int = 0

    def batches(self, old: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """`old` are batches of the key columns, those in `kept`, and the file, in this order."""
        keys = Keys([self.rows.column(name) for name in self.names], self.nulls)
        # Which row has each code: a code is in one row only, and nulls are sorted to the end.
        row_of = pc.sort_indices(keys.codes).cast(pa.int64())
        matched = [pa.array([], pa.int64())]
        arrow = schema_to_arrow(self.schema)
        for batch in old:
            columns, file = batch.columns[:-1], batch.columns[-1]
            codes = keys.find(columns[: len(self.names)])
            is_there = pc.is_valid(codes)
            if not pc.any(is_there).as_py():
                continue
            at = row_of.take(codes.filter(is_there))
            self.files.add(file[0].as_py())
            self.replaced += len(at)
            matched.append(pc.unique(at))
            old_rows = [column.filter(is_there) for column in columns[len(self.names) :]]
            done = 0
            for new in take_rows(self.rows, at, at_a_time=len(at)):
                values = dict(zip(new.schema.names, new.columns, strict=True))
                for field, column in zip(self.kept, old_rows, strict=True):
                    values[field.name] = column.slice(done, new.num_rows)
                done += new.num_rows
                yield pa.RecordBatch.from_arrays(
                    [values[name] for name in arrow.names], schema=arrow
                )
        numbers = pa.array(range(self.rows.num_rows), pa.int64())
        replaced_rows = pc.is_in(numbers, value_set=pa.concat_arrays(matched))
        new = self.rows.filter(pc.invert(replaced_rows))
        yield from conformed(new.to_batches(), self.schema, self.schema)


def plan_partial(
    ctx: Context,
    loaded: LoadedTable,
    rows: pa.Table,
    names: tuple[str, ...],
    kept: tuple[Field, ...],
    nulls: NullKeys,
    request: Request | None,
) -> Planned:
    snapshot = loaded.snapshot
    schema = snapshot.schema
    predicate = keys_predicate(rows, names, schema, nulls)
    ids = {field.name: field.id for field in schema.fields}
    columns = (*(ids[name] for name in names), *(field.id for field in kept))
    loaded, old = read_matching(ctx, loaded, predicate, columns)
    merge = _Merge(rows, names, kept, schema, nulls, set())
    keys, size = rows.select(list(names)), rows.nbytes
    # Now: what the change says of the old rows is known when they have been read.
    added, markers, loaded = write_rows_and_markers(
        ctx, loaded, merge.batches(old), keys, nulls, upload_bytes=size
    )
    change = Change(
        operation="upsert",
        request=request,
        uploaded_us=loaded.date_us,
        deleted_rows=merge.replaced,
        updates=(
            AddFiles(added),
            AddMarkers(markers),
        ),
        requires=(Reads(predicate, snapshot.version, frozenset(merge.files)),),
    )
    return Planned(change, loaded)

"""The rows of a step of the change feed, as batches.

Promise: first the rows that a step removed, then those it added, each with its change type; in an update,
rows whose primary key is on both sides are reported as pre-image and post-image. Reads only what the step's
units name, so any process can read a step, or some of its units.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from inlay.format.schema import Schema
from inlay.ops.context import Context
from inlay.parquet.arrow.conform import conform
from inlay.parquet.arrow.literals import to_scalar
from inlay.parquet.arrow.multiset import Multiset, difference_in_order
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parquet.read.deleted_rows import KeySet, key_set
from inlay.parquet.read.reader import BATCH_ROWS, Ahead, Wanted, read_tasks
from inlay.parquet.read.selection import RowFilter, subschema
from inlay.plan.feed.feed import FeedUnit, Step
from inlay.plan.scan.scan import FileTask

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = (
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
)
INSERT, DELETE = "insert", "delete"
PREIMAGE, POSTIMAGE = "update_preimage", "update_postimage"

SAID = (
    pa.field(CHANGE_TYPE, pa.string(), nullable=False),
    pa.field(COMMIT_VERSION, pa.int64(), nullable=False),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC"), nullable=False),
)


@dataclass(frozen=True, kw_only=True)
class FeedRows:
    """The form of the rows: columns `ids` of `schema`, for rows that `where` selects. `key` is the table's
    primary key, by which updates are paired; () for none."""

    ctx: Context
    schema: Schema
    ids: tuple[int, ...]
    key: tuple[int, ...] = ()
    where: RowFilter | None = None
    ahead: Ahead = field(default_factory=Ahead)

    @property
    def rows_schema(self) -> pa.Schema:
        return _arrow(self.schema, self.ids)

    def batches(self, step: Step) -> Iterator[pa.RecordBatch]:
        """The changes of the step, row by row."""
        for sign, rows, paired in self._labelled(step):
            yield from self.said(rows, kinds(sign, rows, paired), step.version, step.time_us)

    def signed(self, step: Step) -> Iterator[tuple[int, pa.Table]]:
        """(-1, rows removed), then (1, rows added), without the columns of the change."""
        return _StepReader(self.ctx, step, self.schema, self.ids, self.where, self.ahead).rows()

    def said(
        self, rows: pa.Table, kinds: pa.Array, version: int, time_us: int
    ) -> Iterator[pa.RecordBatch]:
        """Rows with the three columns of the change."""
        said = (
            kinds,
            pa.repeat(to_scalar(version, SAID[1].type), rows.num_rows),
            pa.repeat(to_scalar(time_us, SAID[2].type), rows.num_rows),
        )
        schema = pa.schema([*self.rows_schema, *SAID])
        columns = [*rows.columns[: len(self.ids)], *said]
        yield from pa.Table.from_arrays(columns, schema=schema).to_batches(BATCH_ROWS)

    def pairs(self, step: Step) -> bool:
        """Whether rows of the step are paired: then all its units must be read together."""
        tops = {f.id for f in self.schema.fields}
        return step.updates and bool(self.key) and tops.issuperset(self.key)

    def _labelled(self, step: Step) -> Iterator[tuple[int, pa.Table, pa.Array | None]]:
        """(sign, rows, which of them are one side of an update)."""
        if not self.pairs(step):
            for sign, rows in self.signed(step):
                yield sign, rows, None
            return
        keys = self._keys(step)
        ids = (*self.ids, *(i for i in self.key if i not in self.ids))
        places = [ids.index(i) for i in self.key]
        for sign, rows in replace(self, ids=ids).signed(step):
            for batch in rows.to_batches(BATCH_ROWS):
                paired = keys[-sign].matches([batch.column(at) for at in places])
                yield sign, pa.Table.from_batches([batch]), paired

    def _keys(self, step: Step) -> dict[int, KeySet]:
        """The primary keys of the rows that a step removed (-1) and added (1)."""
        found: dict[int, list[pa.Table]] = {-1: [], 1: []}
        for sign, rows in replace(self, ids=self.key).signed(step):
            found[sign].append(rows)
        empty = _arrow(self.schema, self.key).empty_table()
        return {
            sign: key_set(self.key, pa.concat_tables([empty, *rows]).combine_chunks().columns)
            for sign, rows in found.items()
        }


def kinds(sign: int, rows: pa.Table, paired: pa.Array | None = None) -> pa.Array:
    """The change type of each row."""
    alone, in_pair = (DELETE, PREIMAGE) if sign < 0 else (INSERT, POSTIMAGE)
    if paired is None:
        return pa.repeat(alone, rows.num_rows)
    return pc.if_else(paired, in_pair, alone)


def _arrow(schema: Schema, ids: Iterable[int]) -> pa.Schema:
    return schema_to_arrow(subschema(schema, ids), with_ids=False)


@dataclass(frozen=True)
class _StepReader:
    """Reads the rows of a step, as columns `ids` of `schema`."""

    ctx: Context
    step: Step
    schema: Schema
    ids: tuple[int, ...]
    where: RowFilter | None = None
    ahead: Ahead = field(default_factory=Ahead)

    def rows(self) -> Iterator[tuple[int, pa.Table]]:
        """(-1, rows removed), then (1, rows added)."""
        units = self.step.units
        yield from self._tables(-1, [t for u in units if not u.after for t in u.before])
        late: list[pa.Table] = []
        for unit in units:
            if unit.before and unit.after:
                for sign, rows in self._compared(unit):
                    if sign < 0:
                        yield sign, rows
                    else:
                        late.append(rows)
        for rows in late:
            yield 1, rows
        yield from self._tables(1, [t for u in units if not u.before for t in u.after])

    def _compared(self, unit: FeedUnit) -> Iterator[tuple[int, pa.Table]]:
        if unit.in_order:
            old, new = unit.before, unit.after
            swapped = old[0].file.origin == new[0].file.key
            whole, kept = (new, old) if swapped else (old, new)
            found = difference_in_order(self._read(whole), self._read(kept), self._arrow)
            yield from ((-sign if swapped else sign, rows) for sign, rows in found)
            return
        changed = Multiset(self._arrow)
        for sign, tasks in ((-1, unit.before), (1, unit.after)):
            for _, rows in self._tables(sign, tasks):
                changed.add(sign, rows)
        gone, come = changed.result()
        yield -1, gone
        yield 1, come

    def _tables(self, sign: int, tasks: Sequence[FileTask]) -> Iterator[tuple[int, pa.Table]]:
        for batch in self._read(tasks):
            yield sign, pa.Table.from_batches([batch])

    def _read(self, tasks: Sequence[FileTask]) -> Iterator[pa.RecordBatch]:
        read_as = self.step.schema
        wanted = Wanted(schema=read_as, columns=self.ids, where=self.where)
        shown, read = subschema(self.schema, self.ids), subschema(read_as, self.ids)
        reading = read_tasks(self.ctx.objects, tasks, wanted, self.ctx.executor, ahead=self.ahead)
        for batch in reading:
            if batch.num_rows:
                # Nested fields that only deletes need are removed again.
                yield batch if shown.fields == read.fields else conform(batch, read, shown)

    @property
    def _arrow(self) -> pa.Schema:
        return _arrow(self.schema, self.ids)

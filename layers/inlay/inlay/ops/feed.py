"""Changes: the rows that were added and removed between two versions, as Arrow.

Promise: the rows of `since` less those told as removed, plus those told as added, are exactly the rows
of `to`, as multisets, for each version on the way and for all together; whatever compaction, rewriting
or expiry did meanwhile is not told, because it changed no row. The same holds for the rows that a filter
selects, and for the columns asked for.

Nothing is fetched before rows are asked for. A file is read as a stream, within `read_ahead_bytes`; what
is held besides are the keys of one update, the rows of replaced files that could not be told by order,
and, where changes are netted, those that have not cancelled yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidRequest, RefNotFound, VersionNotFound
from inlay.format.predicate import Predicate
from inlay.format.schema import Schema
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.ops.load import load_seen, load_segments, retain
from inlay.ops.scan import checked_columns, needed, row_filter
from inlay.parquet.conform import conform
from inlay.parquet.expression import ExpressionFilter
from inlay.parquet.mask import KeySet, key_set
from inlay.parquet.multiset import Multiset, difference_in_order
from inlay.parquet.reader import BATCH_ROWS, READ_AHEAD_BYTES, Ahead, Wanted, read_tasks
from inlay.parquet.types import schema_to_arrow
from inlay.parquet.wanted import subschema
from inlay.plan.feed import FeedUnit, NeedMore, Step, keeps_rows, plan_step
from inlay.plan.refs import held_versions
from inlay.plan.scan import FileTask
from inlay.plan.state import State

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = (
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
)
INSERT, DELETE = "insert", "delete"
PREIMAGE, POSTIMAGE = "update_preimage", "update_postimage"

_SAID = (
    pa.field(CHANGE_TYPE, pa.string(), nullable=False),
    pa.field(COMMIT_VERSION, pa.int64(), nullable=False),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC"), nullable=False),
)


class Changes:
    """Changes of rows after version `since`, up to and with `to`; to be read once or many times.

    The columns are those asked for, of the table as it is at `to`, then `_change_type` (`insert`,
    `delete`, or `update_preimage` and `update_postimage` where an update or upsert put a row in the
    place of one of the same primary key), `_commit_version` and `_commit_timestamp`. Versions come in
    order, in each what was removed before what was added. With `where`, rows are told that enter and
    leave what the filter selects. With `net`, rows that came and went cancel, and what is left bears the
    last version.

    Raises `VersionNotFound` for versions that have expired, `InvalidRequest`, `InvalidPredicate`.
    """

    def __init__(
        self,
        ctx: Context,
        current: Snapshot,
        to: Snapshot,
        since: int,
        *,
        columns: Iterable[str] | None = None,
        where: str | Predicate | pc.Expression | None = None,
        net: bool = False,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
    ) -> None:
        self._ctx = ctx
        self._current = current
        self._to = to
        self._since = since
        self._net = net
        self._columns = checked_columns(columns, to.schema)
        self._predicate, self._expression = row_filter(where, to.schema)
        self._read_ahead_bytes = read_ahead_bytes
        self._check()

    def _check(self) -> None:
        if not 0 <= self._since <= self._to.version:
            raise InvalidRequest(
                f"there are no changes from version {self._since} to version {self._to.version}",
                next_step="Give a version from 0 (before the first) to that of the table",
                table=self._ctx.uri,
            )
        taken = [f.name for f in _SAID if f.name in self._columns]
        if taken:
            raise InvalidRequest(
                f"the table has a column {taken[0]!r}, which a change feed uses itself",
                next_step="Name other columns=, or rename the column",
                table=self._ctx.uri,
            )
        first, oldest = max(self._since, 1), self._current.oldest_version
        if self._since < self._to.version and first < oldest and not self._spans:
            raise VersionNotFound(
                f"changes since version {self._since} of {self._ctx.uri} can no longer be told: the "
                f"versions before {oldest} have expired",
                next_step=f"Start from version {oldest}, or from a scan of the table",
                table=self._ctx.uri,
                version=first,
            )

    @property
    def _spans(self) -> bool:
        """Whether the two ends are compared at once: a ref holds the first, and what lies between has
        expired. What came and went meanwhile is then not seen, so only net changes can be told so."""
        held = self._since in held_versions(self._current)
        return self._net and held and self._since < self._current.oldest_version

    # -- the plan -----------------------------------------------------------------------------

    def steps(self) -> Iterator[Step]:
        """What each version did to rows; versions that changed none are left out. Values that pickle."""
        if self._since == self._to.version:
            return
        snapshots = self._snapshots()
        before = State(next(snapshots)) if self._since else None
        for snapshot in snapshots:
            after = State(snapshot, retain(before.contents if before else None, snapshot))
            if before is None or self._spans or not keeps_rows(before.snapshot, snapshot):
                step, after = self._plan(before, after)
                if step.units:
                    yield step
            before = State(snapshot, retain(after.contents, snapshot))

    def _snapshots(self) -> Iterator[Snapshot]:
        first, last = max(self._since, 1), self._to.version
        versions: Sequence[int] = (first, last) if self._spans else range(first, last + 1)
        return self._ctx.map(self._snapshot, versions)

    def _snapshot(self, version: int) -> Snapshot:
        if version == self._to.version:
            return self._to
        try:
            return load_seen(self._ctx, self._current, version)
        except RefNotFound:
            raise VersionNotFound(
                f"branch {self._ctx.branch!r} of {self._ctx.uri} did not exist at version {version}",
                next_step="Start from the version that began it (`refs()` and `history()` tell)",
                table=self._ctx.uri,
                version=version,
            ) from None

    def _plan(self, before: State | None, after: State) -> tuple[Step, State]:
        """The step, and the later state with the segments that were loaded for it."""
        while True:
            found = plan_step(before, after, self._to.schema, self._predicate)
            if not isinstance(found, NeedMore):
                return found, after
            if before is not None and (found.before.files or found.before.markers):
                before = load_segments(self._ctx, before, found.before)
                after = State(after.snapshot, before.contents)
            else:
                after = load_segments(self._ctx, after, found.after)
                before = before and State(before.snapshot, after.contents)

    # -- rows ---------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the changes."""
        return pa.schema([*self._rows_schema, *_SAID])

    @cached_property
    def _rows_schema(self) -> pa.Schema:
        return _arrow(self._to.schema, self._ids)

    @cached_property
    def _ids(self) -> tuple[int, ...]:
        ids = {f.name: f.id for f in self._to.schema.fields}
        return tuple(ids[name] for name in self._columns)

    def to_reader(self) -> pa.RecordBatchReader:
        """A stream of batches. Each call reads anew."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def to_arrow(self) -> pa.Table:
        """All changes as one table."""
        return pa.Table.from_batches(list(self._batches()), schema=self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """All changes as a pandas DataFrame; `options` go to pyarrow's `Table.to_pandas`."""
        needed("pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> Any:
        """All changes as a Polars DataFrame."""
        return needed("polars").from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        return f"<Changes of {self._ctx.uri}: versions {self._since + 1} to {self._to.version}>"

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._net:
            yield from self._netted()
            return
        for step in self.steps():
            for sign, rows, paired in self._labelled(step):
                yield from self._said(rows, _kinds(sign, rows, paired), step.version, step.time_us)

    def _netted(self) -> Iterator[pa.RecordBatch]:
        heap = Multiset(self._rows_schema)
        for step in self.steps():
            for sign, rows in self._reader(step, self._ids).rows():
                heap.add(sign, rows)
        for sign, rows in zip((-1, 1), heap.result(), strict=True):
            kinds = _kinds(sign, rows, None)
            yield from self._said(rows, kinds, self._to.version, self._to.commit.time_us)

    def _said(
        self, rows: pa.Table, kinds: pa.Array, version: int, time_us: int
    ) -> Iterator[pa.RecordBatch]:
        said = (
            kinds,
            pa.repeat(pa.scalar(version, _SAID[1].type), rows.num_rows),
            pa.repeat(pa.scalar(time_us, _SAID[2].type), rows.num_rows),
        )
        columns = [*rows.columns[: len(self._columns)], *said]
        yield from pa.Table.from_arrays(columns, schema=self.schema).to_batches(BATCH_ROWS)

    def _reader(self, step: Step, ids: tuple[int, ...]) -> _StepReader:
        ahead = Ahead(budget_bytes=self._read_ahead_bytes, parallel=self._ctx.parallel)
        return _StepReader(self._ctx, step, self._to.schema, ids, self._expression, ahead)

    def _labelled(self, step: Step) -> Iterator[tuple[int, pa.Table, pa.Array | None]]:
        """(sign, rows, which of them are one side of an update)."""
        key = self._to.primary_key
        tops = {f.id for f in self._to.schema.fields}
        if not step.updates or not key or not tops.issuperset(key):
            for sign, rows in self._reader(step, self._ids).rows():
                yield sign, rows, None
            return
        keys = self._keys(step)
        ids = (*self._ids, *(i for i in key if i not in self._ids))
        places = [ids.index(i) for i in key]
        for sign, rows in self._reader(step, ids).rows():
            for batch in rows.to_batches(BATCH_ROWS):
                paired = keys[-sign].matches([batch.column(at) for at in places])
                yield sign, pa.Table.from_batches([batch]), paired

    def _keys(self, step: Step) -> dict[int, KeySet]:
        """The primary keys of the rows that a step removed (-1) and added (1)."""
        key = self._to.primary_key
        found: dict[int, list[pa.Table]] = {-1: [], 1: []}
        for sign, rows in self._reader(step, key).rows():
            found[sign].append(rows)
        empty = _arrow(self._to.schema, key).empty_table()
        return {
            sign: key_set(key, pa.concat_tables([empty, *rows]).combine_chunks().columns)
            for sign, rows in found.items()
        }


def _kinds(sign: int, rows: pa.Table, paired: pa.Array | None) -> pa.Array:
    alone, in_pair = (DELETE, PREIMAGE) if sign < 0 else (INSERT, POSTIMAGE)
    if paired is None:
        return pa.repeat(alone, rows.num_rows)
    return pc.if_else(paired, in_pair, alone)


def _arrow(schema: Schema, ids: Iterable[int]) -> pa.Schema:
    return schema_to_arrow(subschema(schema, ids), with_ids=False)


# -- one step -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _StepReader:
    """Reads what a step says, as columns `ids` of `schema`."""

    ctx: Context
    step: Step
    schema: Schema
    ids: tuple[int, ...]
    where: ExpressionFilter | None = None
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
        heap = Multiset(self._arrow)
        for sign, tasks in ((-1, unit.before), (1, unit.after)):
            for _, rows in self._tables(sign, tasks):
                heap.add(sign, rows)
        gone, come = heap.result()
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
                # Nested fields that only deletes look at are left out again.
                yield batch if shown.fields == read.fields else conform(batch, read, shown)

    @property
    def _arrow(self) -> pa.Schema:
        return _arrow(self.schema, self.ids)

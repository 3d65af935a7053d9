"""The change feed: the rows that were added and removed between two versions, as Arrow.

Promise of `Changes`: the rows of `since` less those reported as removed, plus those reported as added, are
exactly the rows of `to`, as multisets, for each version in between and for all together; compaction,
rewriting and expiry are not reported, because they change no row. The same holds for the rows that a filter
selects, and for the requested columns.

Nothing is read before rows are requested. A file is read as a stream, within `read_ahead_bytes`; besides
that, memory holds the keys of one update, the rows of replaced files that could not be compared in order,
and, for net changes, those that have not cancelled yet.

The batches of a step have first the rows that a step removed, then those it added, each with its change
type; in an update, rows whose primary key is on both sides are reported as pre-image and post-image. Reads
only what the step's units name, so any process can read a step, or some of its units.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidRequest, NeedsMemory, RefNotFound, VersionNotFound
from inlay.format.predicate import TRUE, Predicate
from inlay.format.schema import Schema
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.ops.metadata.load import Pinned, load_seen, load_segments, retain
from inlay.ops.read.check_pages import read_pages
from inlay.ops.read.scan import (
    UNUSABLE,
    ArrowStream,
    Damaged,
    DamagedFile,
    checked_columns,
    row_filter,
)
from inlay.parquet.arrow.conform import conformed
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.arrow.multiset import Multiset, difference_in_order
from inlay.parquet.arrow.types import schema_to_arrow, to_scalar
from inlay.parquet.read.decode import BATCH_ROWS
from inlay.parquet.read.deleted_rows import KeySet, key_set
from inlay.parquet.read.reader import READ_AHEAD_BYTES, Ahead, Reader
from inlay.parquet.read.selection import Projection, RowFilter, subschema
from inlay.plan.feed import FeedUnit, NeedMore, Step, keeps_rows, plan_step, reported_schema
from inlay.plan.metadata.state import State
from inlay.plan.refs import held_versions
from inlay.plan.scan import FileTask
from inlay.record import Record, field, replace

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


class FeedRows(Record, dict=True, kw_only=True):
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
        yield from self._tables(step, -1, [t for u in step.units if not u.after for t in u.before])
        late: list[pa.Table] = []
        for unit in step.units:
            if unit.before and unit.after:
                for sign, rows in self._compared(step, unit):
                    if sign < 0:
                        yield sign, rows
                    else:
                        late.append(rows)
        for rows in late:
            yield 1, rows
        yield from self._tables(step, 1, [t for u in step.units if not u.before for t in u.after])

    def _compared(self, step: Step, unit: FeedUnit) -> Iterator[tuple[int, pa.Table]]:
        if unit.in_order:
            old, new = unit.before, unit.after
            swapped = old[0].file.origin == new[0].file.key
            whole, kept = (
                self._read(step, side) for side in ((new, old) if swapped else (old, new))
            )
            for sign, rows in difference_in_order(whole, kept, self.rows_schema):
                yield -sign if swapped else sign, rows
            return
        changed = Multiset(self.rows_schema)
        for sign, tasks in ((-1, unit.before), (1, unit.after)):
            for _, rows in self._tables(step, sign, tasks):
                changed.add(sign, rows)
        gone, come = changed.result()
        yield -1, gone
        yield 1, come

    def _tables(
        self, step: Step, sign: int, tasks: Sequence[FileTask]
    ) -> Iterator[tuple[int, pa.Table]]:
        for batch in self._read(step, tasks):
            yield sign, pa.Table.from_batches([batch])

    def _read(self, step: Step, tasks: Sequence[FileTask]) -> Iterator[pa.RecordBatch]:
        projection = Projection(schema=step.schema, columns=self.ids, where=self.where)
        shown, read = subschema(self.schema, self.ids), subschema(step.schema, self.ids)
        reading = Reader(self.ctx.objects, self.ctx.executor, self.ahead).rows(tasks, projection)
        rows = (batch for batch in reading if batch.num_rows)
        # Nested fields that only deletes need are removed again.
        yield from rows if shown.fields == read.fields else conformed(rows, read, shown)

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
        keys: dict[int, list[pa.Table]] = {-1: [], 1: []}
        for sign, rows in replace(self, ids=self.key).signed(step):
            keys[sign].append(rows)
        empty = _arrow(self.schema, self.key).empty_table()
        return {
            sign: key_set(self.key, pa.concat_tables([empty, *rows]).combine_chunks().columns)
            for sign, rows in keys.items()
        }


def kinds(sign: int, rows: pa.Table, paired: pa.Array | None = None) -> pa.Array:
    """The change type of each row."""
    alone, in_pair = (DELETE, PREIMAGE) if sign < 0 else (INSERT, POSTIMAGE)
    if paired is None:
        return pa.repeat(alone, rows.num_rows)
    return pc.if_else(paired, in_pair, alone)


def _arrow(schema: Schema, ids: Iterable[int]) -> pa.Schema:
    return schema_to_arrow(subschema(schema, ids), with_ids=False)


class Changes(ArrowStream):
    """Changes of rows after version `since`, up to and including `to`; can be read any number of times.

    The columns are the requested ones, of the table as of `to` (wider, if a restore in between narrowed
    them), then `_change_type` (`insert`, `delete`, or `update_preimage` and `update_postimage` where an
    update or upsert replaced a row by one of the same primary key), `_commit_version` and
    `_commit_timestamp`. Versions come in order, in each the removed rows before the added ones. With
    `where`, rows are reported that enter or leave the selection. With `net`, rows that were added and
    removed again cancel; the rest carry the number of the last version. With `on_damaged` "skip" each file
    that is named is first read whole, once more: one that cannot be is left out of all versions, as if it
    had never been there, and reported in `damaged` and as a warning.

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
        on_damaged: str = "raise",
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        pinned: Pinned | None = None,
    ) -> None:
        self._damaged = Damaged(on_damaged)
        self._pinned = pinned
        self._ctx = ctx
        self._current = current
        self._to = to
        self._since = since
        self._net = net
        self._reported = reported_schema(to, since)
        self._declared = Declared.of(current, self._reported)
        self._columns = checked_columns(columns, self._reported)
        self._where = row_filter(where, current, ctx.clock.now_us, self._reported)
        self._read_ahead_bytes = read_ahead_bytes
        self._check()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._pinned is None:
            raise InvalidRequest("only a feed that a table has made can be pickled")
        asked = {
            "columns": self._columns,
            "where": self._where.asked,
            "net": self._net,
            "on_damaged": self._damaged.on_damaged,
            "read_ahead_bytes": self._read_ahead_bytes,
        }
        return _of_pinned, (self._pinned, self._to.version, self._since, asked)

    def _check(self) -> None:
        if not 0 <= self._since <= self._to.version:
            raise InvalidRequest(
                f"there are no changes from version {self._since} to version {self._to.version}",
                next_step="Give a version from 0 (before the first) to that of the table",
                table=self._ctx.uri,
            )
        taken = [f.name for f in SAID if f.name in self._columns]
        if taken:
            raise InvalidRequest(
                f"the table has a column {taken[0]!r}, which a change feed uses itself",
                next_step="Request other columns=, or rename the column",
                table=self._ctx.uri,
            )
        first, oldest = max(self._since, 1), self._current.oldest_version
        if self._since < self._to.version and first < oldest and not self._spans:
            raise VersionNotFound(
                f"changes since version {self._since} of {self._ctx.uri} are no longer available: the "
                f"versions before {oldest} have expired",
                next_step=f"Start from version {oldest}, or from a scan of the table",
                table=self._ctx.uri,
                version=first,
            )

    @property
    def _spans(self) -> bool:
        """Whether the two ends are compared directly: a ref holds the first, and the versions in between
        have expired. Rows added and removed in between are then not seen, so only net changes are
        possible."""
        held = self._since in held_versions(self._current)
        return self._net and held and self._since < self._current.oldest_version

    def steps(self) -> Iterator[Step]:
        """The row changes of each version, without versions that changed none. Values that pickle."""
        return plan_steps(
            self._ctx,
            self._current,
            self._since,
            self._to,
            schema=self._reported,
            predicate=self._where.predicate,
            at_once=self._spans,
        )

    @property
    def damaged(self) -> tuple[DamagedFile, ...]:
        """The files that were left out so far, as reading met them (`on_damaged="skip"`)."""
        return tuple(self._damaged.files.values())

    def _readable(self, steps: Iterator[Step]) -> Iterator[Step]:
        """The steps without damaged files. A file is judged by all of its pages: what one version needs of
        it can be sound where another's is not, and rows would go that never came."""
        usable: dict[str, bool] = {}

        def is_usable(task: FileTask) -> bool:
            if task.file.key not in usable:
                try:
                    whole = FileTask(file=task.file, schema=task.schema, int96=task.int96)
                    read_pages(self._ctx.reader, whole)
                except NeedsMemory:
                    raise
                except UNUSABLE as error:
                    self._damaged.leave_out(task.file, error)
                    usable[task.file.key] = False
                else:
                    usable[task.file.key] = True
            return usable[task.file.key]

        for step in steps:
            sides = ((filter(is_usable, u.before), filter(is_usable, u.after)) for u in step.units)
            units = (FeedUnit(tuple(before), tuple(after)) for before, after in sides)
            yield replace(step, units=tuple(u for u in units if u.before or u.after))

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the changes."""
        return pa.schema([*self._declared.schema_of(self._rows.rows_schema), *SAID])

    @cached_property
    def _rows(self) -> FeedRows:
        ids = {f.name: f.id for f in self._reported.fields}
        return FeedRows(
            ctx=self._ctx,
            schema=self._reported,
            ids=tuple(ids[name] for name in self._columns),
            key=self._to.primary_key,
            where=self._where.filter,
            ahead=Ahead(budget_bytes=self._read_ahead_bytes, parallel=self._ctx.parallel),
        )

    def __repr__(self) -> str:
        return f"<Changes of {self._ctx.uri}: versions {self._since + 1} to {self._to.version}>"

    def _batches(self) -> Iterator[pa.RecordBatch]:
        return self._declared.batches(self._plain_batches(), self.schema)

    def _plain_batches(self) -> Iterator[pa.RecordBatch]:
        steps = self._readable(self.steps()) if self._damaged.skips else self.steps()
        if not self._net:
            for step in steps:
                yield from self._rows.batches(step)
            return
        changed = Multiset(self._rows.rows_schema)
        for step in steps:
            for sign, rows in self._rows.signed(step):
                changed.add(sign, rows)
        version, time_us = self._to.version, self._to.commit.time_us
        for sign, rows in zip((-1, 1), changed.result(), strict=True):
            yield from self._rows.said(rows, kinds(sign, rows), version, time_us)


# -- steps ----------------------------------------------------------------------------------------


def _of_pinned(pinned: Pinned, to: int, since: int, asked: dict[str, Any]) -> Changes:
    loaded, at = pinned.load()
    shown = loaded.snapshot if at is None else at
    if to != shown.version:
        shown = load_seen(pinned.context, loaded.pointer, to)
    return Changes(pinned.context, loaded.pointer, shown, since, **asked, pinned=pinned)


def plan_steps(
    ctx: Context,
    table: Snapshot,
    since: int,
    to: Snapshot,
    *,
    schema: Schema,
    predicate: Predicate = TRUE,
    at_once: bool = False,
) -> Iterator[Step]:
    """The row changes of each version after `since` (0: the empty table), up to and including `to`, in
    `schema`, without versions that changed none. `table` is the pointer's snapshot. `at_once` compares the
    two ends as if they were adjacent."""
    if since == to.version:
        return
    first = max(since, 1)
    versions: Sequence[int] = (first, to.version) if at_once else range(first, to.version + 1)
    snapshots = ctx.map(lambda v: to if v == to.version else seen_at(ctx, table, v), versions)
    before = State(next(snapshots)) if since else None
    for snapshot in snapshots:
        after = State(snapshot, retain(before.contents if before else None, snapshot))
        if before is None or at_once or not keeps_rows(before.snapshot, snapshot, schema):
            step, after = _plan(ctx, before, after, schema, predicate)
            if step.units:
                yield step
        before = State(snapshot, retain(after.contents, snapshot))


def seen_at(ctx: Context, table: Snapshot, version: int) -> Snapshot:
    """As `load_seen`. Raises `VersionNotFound` for a branch that is younger than the version."""
    try:
        return load_seen(ctx, table, version)
    except RefNotFound:
        raise VersionNotFound(
            f"branch {ctx.branch!r} of {ctx.uri} did not exist at version {version}",
            next_step="Start from the version that began it (`t.inspect.history()` shows it)",
            table=ctx.uri,
            version=version,
        ) from None


def _plan(
    ctx: Context, before: State | None, after: State, schema: Schema, predicate: Predicate
) -> tuple[Step, State]:
    """The step, and the later state with the segments that were loaded for it."""
    while True:
        step = plan_step(before, after, schema, predicate)
        if not isinstance(step, NeedMore):
            return step, after
        if before is not None and (step.before.files or step.before.markers):
            before = load_segments(ctx, before, step.before)
            after = State(after.snapshot, before.contents)
        else:
            after = load_segments(ctx, after, step.after)
            before = before and State(before.snapshot, after.contents)

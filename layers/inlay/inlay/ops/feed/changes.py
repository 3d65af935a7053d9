"""Changes: the rows that were added and removed between two versions, as Arrow.

Promise: the rows of `since` less those reported as removed, plus those reported as added, are exactly the
rows of `to`, as multisets, for each version in between and for all together; compaction, rewriting and
expiry are not reported, because they change no row. The same holds for the rows that a filter selects, and
for the requested columns.

Nothing is read before rows are requested. A file is read as a stream, within `read_ahead_bytes`; besides
that, memory holds the keys of one update, the rows of replaced files that could not be compared in order,
and, for net changes, those that have not cancelled yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidRequest, RefNotFound, VersionNotFound
from inlay.format.predicate import TRUE, Predicate
from inlay.format.schema import Schema
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.ops.feed.rows import SAID, FeedRows, kinds
from inlay.ops.metadata.load import load_seen, load_segments, retain
from inlay.ops.metadata.pinned import Pinned
from inlay.ops.read.scan import checked_columns, row_filter
from inlay.ops.read.stream import ArrowStream
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.arrow.multiset import Multiset
from inlay.parquet.read.reader import READ_AHEAD_BYTES, Ahead
from inlay.plan.feed.feed import NeedMore, Step, keeps_rows, plan_step
from inlay.plan.feed.schema import reported_schema
from inlay.plan.metadata.state import State
from inlay.plan.refs.refs import held_versions


class Changes(ArrowStream):
    """Changes of rows after version `since`, up to and including `to`; can be read any number of times.

    The columns are the requested ones, of the table as of `to` (wider, if a restore in between narrowed
    them), then `_change_type` (`insert`, `delete`, or `update_preimage` and `update_postimage` where an
    update or upsert replaced a row by one of the same primary key), `_commit_version` and
    `_commit_timestamp`. Versions come in order, in each the removed rows before the added ones. With
    `where`, rows are reported that enter or leave the selection. With `net`, rows that were added and
    removed again cancel, and the others have the last version.

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
        pinned: Pinned | None = None,
    ) -> None:
        self._pinned = pinned
        self._ctx = ctx
        self._current = current
        self._to = to
        self._since = since
        self._net = net
        self._told = reported_schema(to, since)
        self._declared = Declared.of(current, self._told)
        self._columns = checked_columns(columns, self._told)
        self._where = row_filter(where, self._told, ctx.clock.now_us)
        self._read_ahead_bytes = read_ahead_bytes
        self._check()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._pinned is None:
            raise InvalidRequest("only a feed that a table has made can be pickled")
        asked = {
            "columns": self._columns,
            "where": self._where.asked,
            "net": self._net,
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
            schema=self._told,
            predicate=self._where.predicate,
            at_once=self._spans,
        )

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the changes."""
        return pa.schema([*self._declared.schema_of(self._rows.rows_schema), *SAID])

    @cached_property
    def _rows(self) -> FeedRows:
        ids = {f.name: f.id for f in self._told.fields}
        return FeedRows(
            ctx=self._ctx,
            schema=self._told,
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
        if self._net:
            yield from self._netted()
            return
        for step in self.steps():
            yield from self._rows.batches(step)

    def _netted(self) -> Iterator[pa.RecordBatch]:
        changed = Multiset(self._rows.rows_schema)
        for step in self.steps():
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
            next_step="Start from the version that began it (`refs()` and `history()` show it)",
            table=ctx.uri,
            version=version,
        ) from None


def _plan(
    ctx: Context, before: State | None, after: State, schema: Schema, predicate: Predicate
) -> tuple[Step, State]:
    """The step, and the later state with the segments that were loaded for it."""
    while True:
        found = plan_step(before, after, schema, predicate)
        if not isinstance(found, NeedMore):
            return found, after
        if before is not None and (found.before.files or found.before.markers):
            before = load_segments(ctx, before, found.before)
            after = State(after.snapshot, before.contents)
        else:
            after = load_segments(ctx, after, found.after)
            before = before and State(before.snapshot, after.contents)

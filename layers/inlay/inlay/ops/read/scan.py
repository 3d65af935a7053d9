"""Scan: the rows of one snapshot, as Arrow.

Promise: a scan is of the snapshot it was made from, however often it is read and whatever is committed
meanwhile; rows come in the order of files and, in them, of rows. Nothing is fetched before rows are
asked for, and no more is read ahead than `read_ahead_bytes` (or one row group). Whatever takes an Arrow
stream takes a scan: DuckDB, Polars, pandas, `pa.table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidRequest
from inlay.format.entry import DataFile, Marker
from inlay.format.predicate import TRUE, Predicate
from inlay.format.schema import Schema
from inlay.format.snapshot import Segment
from inlay.ops.context import Context
from inlay.ops.metadata.load import load_segments
from inlay.ops.metadata.pinned import Pinned
from inlay.ops.read.stream import ArrowStream
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.arrow.expression import ExpressionFilter
from inlay.parquet.read.reader import (
    FILE_COLUMN,
    POSITION_COLUMN,
    READ_AHEAD_BYTES,
    Ahead,
    Wanted,
    count_rows,
    read_tasks,
)
from inlay.parquet.read.selection import subschema
from inlay.parse import format_predicate, parse_predicate
from inlay.plan.change import NeedSegments
from inlay.plan.metadata.state import State
from inlay.plan.pruning.evidence import Evidence
from inlay.plan.scan.scan import FileTask, ScanPlan, leaf_candidates, plan_scan, segment_may_match

_HIDDEN = (POSITION_COLUMN, FILE_COLUMN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What a scan will read: of `files` live ones, `pruned` cannot match and `deleted` are deleted
    whole; from the others (`files_read`) at most `rows` rows and `bytes` bytes are read, under
    `markers` deletes."""

    files: int
    pruned: int
    deleted: int
    files_read: int
    rows: int
    bytes: int
    markers: int
    columns: tuple[str, ...]
    where: str | None
    limit: int | None

    def __str__(self) -> str:
        lines = [
            f"files    {self.files_read} of {self.files} "
            f"({self.pruned} cannot match, {self.deleted} deleted whole)",
            f"rows     at most {self.rows:,}",
            f"bytes    at most {self.bytes:,}, less what columns and row groups spare",
            f"deletes  {self.markers}",
            f"columns  {', '.join(self.columns)}",
        ]
        if self.where is not None:
            lines.append(f"where    {self.where}")
        if self.limit is not None:
            lines.append(f"limit    {self.limit}")
        return "\n".join(lines)


class Scan(ArrowStream):
    """Rows of one snapshot, to be read once or many times.

    `state` is the snapshot; segments of it that are not loaded are, as far as they can match.
    `columns` are top-level names (None: all), with `_file` and `_pos` for where a row is stored.
    `where` is SQL text, a bound predicate or a pyarrow expression. Raises InvalidRequest for a column
    the table does not have and InvalidPredicate for a filter that does not fit.
    """

    def __init__(
        self,
        ctx: Context,
        state: State,
        *,
        columns: Iterable[str] | None = None,
        where: str | Predicate | pc.Expression | None = None,
        limit: int | None = None,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        eager: bool = True,
        pinned: Pinned | None = None,
    ) -> None:
        if limit is not None and not isinstance(limit, int):
            raise InvalidRequest(f"a limit is a whole number, not {str(limit)[:50]!r}")
        if limit is not None and limit < 0:
            raise InvalidRequest(f"a limit of {limit} rows", next_step="Give 0 or more")
        self._ctx = ctx
        self._state = state
        self._schema = state.snapshot.schema
        self._evidence = Evidence.of_snapshot(state.snapshot)
        self._columns = checked_columns(columns, self._schema, hidden=_HIDDEN)
        self._limit = limit
        self._read_ahead_bytes = read_ahead_bytes
        self._eager = eager  # False: who reads may stop early, so reading ahead starts small
        self._predicate, self._expression = row_filter(where, self._schema)
        self._declared = Declared.of(state.snapshot, subschema(self._schema, self._wanted.columns))
        self._plan: ScanPlan | None = None
        self._pinned = pinned

    def __reduce__(self) -> tuple[Any, ...]:
        if self._pinned is None:
            raise InvalidRequest("only a scan that a table has made can be pickled")
        asked = {
            "columns": self._columns,
            "where": self._predicate if self._expression is None else self._expression.expression,
            "limit": self._limit,
            "read_ahead_bytes": self._read_ahead_bytes,
        }
        return _of_pinned, (self._pinned, asked)

    # -- the plan -----------------------------------------------------------------------------

    @property
    def plan(self) -> ScanPlan:
        """Which files are read, under which deletes. Loads the segments that are needed for it, once."""
        # Not a cached_property: Python 3.11's holds one lock for all instances while it computes, and
        # this one makes requests.
        if self._plan is None:
            self._plan = self._make_plan()
        return self._plan

    def _make_plan(self) -> ScanPlan:
        files, skipped, markers = self._entries()
        found = plan_scan(
            files,
            markers,
            self._predicate,
            evidence=self._evidence,
        )
        found = replace(found, files=found.files + skipped, pruned=found.pruned + skipped)
        if self._expression is None or not found.tasks:
            return found
        known = [(self._evidence.of(task.file), task.file.rows) for task in found.tasks]
        may = self._expression.may_match(known)
        tasks = tuple(task for task, hit in zip(found.tasks, may, strict=True) if hit)
        return replace(found, tasks=tasks, pruned=found.pruned + may.count(False))

    def _entries(self) -> tuple[list[DataFile], int, list[Marker]]:
        """The live files of all segments that can match, how many the others have, the deletes."""
        state = self._state
        while True:  # twice at most: nodes, then leaves
            need = NeedSegments(state.missing_files(self._may_match), state.missing_markers())
            if not need.files and not need.markers:
                break
            state = load_segments(self._ctx, state, need)
        opened = state.open_files(self._may_match)
        loaded = state.contents.files
        files: list[DataFile] = []
        left_out = opened.left_out
        for leaf in opened.leaves:
            found, others = leaf_candidates(leaf, loaded[leaf.id], self._predicate)
            files += found
            left_out += others
        return [*files, *state.snapshot.files.inline], left_out, list(state.markers())

    def _may_match(self, segments: Sequence[Segment]) -> Sequence[bool]:
        if self._expression is not None:
            known = [(self._evidence.of_reference(s), s.rows) for s in segments]
            return self._expression.may_match(known) if known else []
        return [segment_may_match(s, self._predicate) for s in segments]

    def explain(self) -> Explained:
        """What will be read, from metadata alone. `print` shows it as text."""
        plan = self.plan
        return Explained(
            files=plan.files,
            pruned=plan.pruned,
            deleted=plan.deleted,
            files_read=len(plan.tasks),
            rows=plan.rows,
            bytes=plan.bytes,
            markers=plan.markers,
            columns=self._columns,
            where=self._where_text(),
            limit=self._limit,
        )

    def _where_text(self) -> str | None:
        if self._expression is not None:
            return str(self._expression.expression)
        return None if self._predicate == TRUE else format_predicate(self._predicate, self._schema)

    # -- rows ---------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        result = self._wanted.result
        plain = pa.schema([result.field(name) for name in self._columns])
        return self._declared.schema_of(plain)

    @property
    def _wanted(self) -> Wanted:
        ids = {f.name: f.id for f in self._schema.fields}
        return Wanted(
            schema=self._schema,
            columns=tuple(ids[name] for name in self._columns if name in ids),
            where=self._expression,
            position=POSITION_COLUMN in self._columns and POSITION_COLUMN not in ids,
            file=FILE_COLUMN in self._columns and FILE_COLUMN not in ids,
        )

    def _batches(self) -> Iterator[pa.RecordBatch]:
        return self._declared.batches(self._plain_batches(), self.schema)

    def _plain_batches(self) -> Iterator[pa.RecordBatch]:
        left = self._limit
        if left == 0:
            return
        reading = self._read(self._wanted)
        try:
            for batch in reading:
                if left is not None and batch.num_rows >= left:
                    yield batch.slice(0, left).select(self._columns)
                    return
                left = None if left is None else left - batch.num_rows
                yield batch.select(self._columns)
        finally:
            reading.close()

    def _read(self, wanted: Wanted) -> Any:
        ahead = Ahead(budget_bytes=self._read_ahead_bytes, parallel=self._ctx.parallel)
        if self._limit is not None:
            # Who wants few rows shall not pay for many: start with one row group, double from there.
            ahead = replace(ahead, first=1, unit_bytes=0)
            wanted = replace(wanted, limit=self._limit)
        elif not self._eager:
            ahead = replace(ahead, first=1)
        return read_tasks(self._ctx.objects, self._tasks(), wanted, self._ctx.executor, ahead=ahead)

    def _tasks(self) -> Sequence[FileTask]:
        """The plan's tasks, cut where whole files alone give as many rows as are wanted."""
        if self._limit is None or self._expression is not None:
            return self.plan.tasks
        sure = 0
        for n, task in enumerate(self.plan.tasks):
            if sure >= self._limit:
                return self.plan.tasks[:n]
            sure += task.file.rows if task.whole else 0
        return self.plan.tasks

    def count(self) -> int:
        """How many rows there are: by metadata where no delete and no filter is in the way, else by
        reading only the columns these look at."""
        judged, found = [], 0
        for task in self.plan.tasks:
            rows = task.live_rows if self._expression is None else None
            found += rows or 0
            if rows is None:
                judged.append(task)
        ahead = Ahead(budget_bytes=self._read_ahead_bytes, parallel=self._ctx.parallel)
        ctx = self._ctx
        counts = count_rows(ctx.objects, judged, self._wanted, ctx.executor, ahead=ahead)
        found += sum(rows for _, rows in counts)
        return found if self._limit is None else min(found, self._limit)

    def __repr__(self) -> str:
        return f"<Scan of {self._ctx.uri}: {', '.join(self._columns)}>"


def _of_pinned(pinned: Pinned, asked: dict[str, Any]) -> Scan:
    loaded, at = pinned.load()
    state = loaded.state if at is None else State(at)
    return Scan(pinned.context, state, **asked, pinned=pinned)


def row_filter(
    where: str | Predicate | pc.Expression | None, schema: Schema
) -> tuple[Predicate, ExpressionFilter | None]:
    """What `where` asks of rows: a predicate, and an expression of pyarrow's where it is one."""
    if where is None:
        return TRUE, None
    if isinstance(where, str):
        return parse_predicate(where, schema), None
    if isinstance(where, pc.Expression):
        expression = ExpressionFilter(where, schema)
        expression.check()
        return TRUE, expression
    if isinstance(where, Predicate):
        return where, None
    raise InvalidRequest(
        f"where cannot be a {type(where).__name__}",
        next_step="Give SQL text or a pyarrow expression",
    )


def checked_columns(
    columns: Iterable[str] | None, schema: Schema, *, hidden: Sequence[str] = ()
) -> tuple[str, ...]:
    """The columns asked for, by name (None: all of the table's); `hidden` ones can be asked for too."""
    if columns is None:
        return schema.names
    if isinstance(columns, str):
        raise InvalidRequest("columns is one text", next_step=f"Give a list: [{columns!r}]")
    if not isinstance(columns, Iterable):
        raise InvalidRequest(f"columns cannot be a {type(columns).__name__}")
    asked = tuple(columns)
    unknown = [name for name in asked if name not in (*schema.names, *hidden)]
    if unknown and isinstance(unknown[0], str) and schema.resolve(tuple(unknown[0].split("."))):
        raise InvalidRequest(
            f"{unknown[0][:100]!r} is a field of a struct: whole columns can be asked for",
            next_step=f"Ask for {unknown[0].partition('.')[0]!r}, and take the field from it",
        )
    if unknown:
        raise InvalidRequest(
            f"the table has no column {str(unknown[0])[:100]!r}",
            next_step=f"It has: {', '.join(schema.names)[:500]}",
        )
    if not asked:
        raise InvalidRequest(
            "no column is asked for", next_step="Name at least one, or use count()"
        )
    if len(set(asked)) < len(asked):
        raise InvalidRequest("a column is asked for twice", next_step="Name each column once")
    return asked

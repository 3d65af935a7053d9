"""Scan: the rows of one snapshot, as Arrow.

Promise: a scan is of the snapshot it was made from, however often it is read and whatever is committed
meanwhile; rows come in the order of files and, within them, of rows. Nothing is read before rows are
requested, and at most `read_ahead_bytes` (or one row group) is read ahead. Anything that accepts an Arrow
stream accepts a scan: DuckDB, Polars, pandas, `pa.table`.

A stream: rows that are read again on each use, in every Arrow form. A subclass defines the batches; every
other form (a table, pandas, Polars, Arrow's own protocol, and so DuckDB) is made of these, with the same
rows.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from inlay.errors import (
    InlayError,
    InvalidRequest,
    NeedsMemory,
    SourceChanged,
    UnreadableFile,
    UnsupportedFile,
    a_type,
)
from inlay.format.entry import DataFile
from inlay.format.expression import Condition
from inlay.format.predicate import TRUE, Predicate
from inlay.format.schema import Schema
from inlay.format.snapshot import Segment, Snapshot
from inlay.notebook import Shown
from inlay.ops.cache import FOLDER_VARIABLE
from inlay.ops.context import Context
from inlay.ops.metadata.load import Pinned
from inlay.ops.read.conditions import filter_of, is_polars, polars_predicate
from inlay.ops.read.plan import load_plan, matching
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.arrow.evaluate import column_at
from inlay.parquet.arrow.functions import pc
from inlay.parquet.read.ranges import Objects
from inlay.parquet.read.reader import READ_AHEAD_BYTES, Ahead, ByTask, Reader
from inlay.parquet.read.selection import (
    FILE_COLUMN,
    POSITION_COLUMN,
    Projection,
    RowFilter,
    subschema,
)
from inlay.parse import format_predicate, parse_condition
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import FileTask, ScanPlan
from inlay.record import Record, replace

if TYPE_CHECKING:
    from inlay.ops.read.top_n import OrderKey


class ArrowStream(ABC):
    """Rows of `schema`; the batches of a scan have at most 131,072."""

    _declared: Declared

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
        from inlay.ops.read.frames import installed

        installed("pandas")
        return self.to_arrow().to_pandas(**options)

    @property
    def text_orders(self) -> dict[str, tuple[str, ...]]:
        """By column the entries of ordered categories of texts, in their order."""
        return self._declared.text_orders

    def to_polars(self) -> Any:
        """All rows as a Polars DataFrame; an ordered category of texts is an `Enum`. Raises
        `SchemaMismatch` for a value that is none of its entries."""
        from inlay.ops.read.frames import as_enums

        return as_enums(self.to_arrow(), self.text_orders)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()


_HIDDEN = (POSITION_COLUMN, FILE_COLUMN)
ON_DAMAGED = ("raise", "skip")
# A file that is gone is no damaged one: where its version has expired, all are.
UNUSABLE = (UnreadableFile, UnsupportedFile, SourceChanged)


class DamagedFile(Record):
    """A file that cannot be read, and was left out of a scan or a change feed with all of its rows: as many
    as metadata says, deleted ones included."""

    key: str
    rows: int
    error: InlayError


class Damaged:
    """What reading does about damaged files, by `on_damaged`: `skips` them or not, and which it left out,
    each once and with a warning."""

    def __init__(self, on_damaged: str) -> None:
        if on_damaged not in ON_DAMAGED:
            raise InvalidRequest(
                f"on_damaged cannot be {str(on_damaged)[:50]!r}",
                next_step=f"It is one of {', '.join(ON_DAMAGED)}",
            )
        self.on_damaged = on_damaged
        self.skips = on_damaged == "skip"
        self.files: dict[str, DamagedFile] = {}

    def leave_out(self, file: DataFile, error: InlayError) -> None:
        if file.key in self.files:
            return
        self.files[file.key] = DamagedFile(file.key, file.rows, error)
        warnings.warn(
            f"a damaged file is left out, with {file.rows:,} rows: {file.key} ({error.message})",
            stacklevel=2,
        )


class Explained(Record, Shown, kw_only=True):
    """What a scan will read: of `files` live ones, `pruned` cannot match and `deleted` are deleted as a
    whole; from the others (`files_read`) at most `rows` rows and `bytes` bytes are read, under `markers`
    deletes. Files that are damaged are among them: no file is opened for this."""

    files: int
    pruned: int
    deleted: int
    files_read: int
    rows: int
    bytes: int
    markers: int
    columns: tuple[str, ...]
    where: str | None
    order_by: tuple[str, ...]
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
        if self.order_by:
            lines.append(f"order    {', '.join(self.order_by)}")
        if self.limit is not None:
            lines.append(f"limit    {self.limit}")
        return "\n".join(lines)


class Scan(ArrowStream):
    """Rows of one snapshot; can be read any number of times.

    `state` is the snapshot; segments that are not loaded are loaded as far as they can match.
    `columns` are names (None: all of the table's), or paths of fields of structs (`address.zip`, which
    is then the column's name), with `_file` and `_pos` for the place of a row.
    `where` is SQL text, a bound predicate or an expression of pyarrow or Polars. `order_by` (see
    `ops.read.top_n`) gives the first `limit` rows of an order instead of the scan's own. `newest`: the
    table as it is now, where the snapshot is of the past. `plan`: what is read, where that is loaded.
    `on_damaged` "skip" leaves out files that cannot be read, or that are not what was written, each as a
    whole (its rows are held until the last is read), and reports them in `damaged` and as warnings. Raises
    InvalidRequest for a column the table does not have and InvalidPredicate for a filter that does not fit.
    """

    def __init__(
        self,
        ctx: Context,
        state: State,
        *,
        columns: Iterable[str] | None = None,
        where: str | Predicate | Condition | pc.Expression | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        on_damaged: str = "raise",
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        eager: bool = True,
        pinned: Pinned | None = None,
        newest: Snapshot | None = None,
        plan: ScanPlan | None = None,
    ) -> None:
        if limit is not None and not isinstance(limit, int):
            raise InvalidRequest(f"a limit is a whole number, not {str(limit)[:50]!r}")
        if limit is not None and limit < 0:
            raise InvalidRequest(f"a limit of {limit} rows", next_step="Give 0 or more")
        if order_by is not None and limit is None:
            raise InvalidRequest(
                "order_by needs a limit: a scan does not hold all rows to sort them",
                next_step="Give limit=, or sort what comes: scan.to_arrow().sort_by(…)",
            )
        self._damaged = Damaged(on_damaged)
        self._ctx = ctx
        self._state = state
        self._schema = state.snapshot.schema
        self._evidence = Evidence.of_snapshot(state.snapshot)
        self._columns = checked_columns(columns, self._schema, hidden=_HIDDEN, paths=True)
        self._order_by = order_by
        self._order = () if order_by is None else _parsed(order_by, self._schema)
        self._limit = limit
        self._read_ahead_bytes = read_ahead_bytes
        self._eager = eager  # False: the reader may stop early, so reading ahead starts small
        self._where = row_filter(where, state.snapshot, ctx.clock.now_us)
        self._predicate, self._filter = self._where.predicate, self._where.filter
        self._projection = self._asked_for()
        self._declared = Declared.of(
            state.snapshot, subschema(self._schema, self._projection.columns)
        )
        self._plan = plan
        self._pinned = pinned
        self._newest = newest

    def __reduce__(self) -> tuple[Any, ...]:
        if self._pinned is None:
            raise InvalidRequest("only a scan that a table has made can be pickled")
        options = {
            "columns": self._columns,
            "where": self._where.asked,
            "order_by": self._order_by,
            "limit": self._limit,
            "on_damaged": self._damaged.on_damaged,
            "read_ahead_bytes": self._read_ahead_bytes,
        }
        return _of_pinned, (self._pinned, options)

    @property
    def plan(self) -> ScanPlan:
        """Which files are read, under which deletes. Loads the segments needed for it, once."""
        # Not a cached_property: Python 3.11's holds one lock for all instances while it computes, and this
        # one makes requests.
        if self._plan is not None:
            return self._plan
        plan = load_plan(self._ctx, self._state, self._predicate, self._evidence, self._may_match)
        if self._filter is not None and plan.tasks:
            known = [(self._evidence.of(task.file), task.file.rows) for task in plan.tasks]
            may = self._filter.may_match(known)
            tasks = tuple(task for task, hit in zip(plan.tasks, may, strict=True) if hit)
            plan = replace(plan, tasks=tasks, pruned=plan.pruned + may.count(False))
        self._plan = plan
        return plan

    def _may_match(self, segments: Sequence[Segment]) -> Sequence[bool]:
        by_predicate = matching(self._predicate)(segments)
        if self._filter is None or not segments:
            return by_predicate
        known = [(self._evidence.of_reference(s), s.rows) for s in segments]
        by_filter = self._filter.may_match(known)
        return [one and other for one, other in zip(by_predicate, by_filter, strict=True)]

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
            order_by=tuple(
                ".".join(self._schema.path_of(key.field_id) or ())
                + (" DESC" if key.descending else "")
                + (" NULLS FIRST" if key.nulls_first else "")
                for key in self._order
            ),
            limit=self._limit,
        )

    def _where_text(self) -> str | None:
        if self._filter is not None:
            return self._where.text or str(self._where.asked)
        return None if self._predicate == TRUE else format_predicate(self._predicate, self._schema)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        result = self._declared.schema_of(self._projection.result)
        return pa.schema([self._place(name, result)[0] for name in self._columns])

    def _path(self, name: str) -> tuple[str, ...]:
        """The column that an asked one is read from, and the fields of structs that lead to it."""
        if "." not in name:
            return (name,)
        whole = self._schema.column(name) is not None or name in _HIDDEN
        return (name,) if whole else tuple(name.split("."))

    def _place(self, name: str, schema: pa.Schema) -> tuple[pa.Field, tuple[int, ...]]:
        """The Arrow field of an asked column, and where it is in batches of `schema`."""
        first, *path = self._path(name)
        field = schema.field(first)
        nullable, places = field.nullable, [schema.get_field_index(first)]
        for part in path:
            places.append(field.type.get_field_index(part))
            field = field.type.field(places[-1])
            nullable = nullable or field.nullable
        return field.with_name(name).with_nullable(nullable), tuple(places)

    def _picked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns asked for, of a batch of the columns that were read."""
        if all(len(self._path(name)) == 1 for name in self._columns):
            return batch.select(self._columns)
        placed = [self._place(name, batch.schema) for name in self._columns]
        arrays = [column_at(places, batch) for _, places in placed]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field for field, _ in placed]))

    def _asked_for(self) -> Projection:
        ids = {f.name: f.id for f in self._schema.fields}
        paths = [self._path(name) for name in self._columns]
        sources = dict.fromkeys(path[0] for path in paths)
        nested = (self._schema.resolve(path) for path in paths if len(path) > 1)
        whole = (ids[path[0]] for path in paths if len(path) == 1 and path[0] in ids)
        return Projection(
            schema=self._schema,
            columns=tuple(ids[name] for name in sources if name in ids),
            fields=frozenset((*whole, *(field.id for field in nested if field is not None))),
            where=self._filter,
            position=POSITION_COLUMN in self._columns and POSITION_COLUMN not in ids,
            file=FILE_COLUMN in self._columns and FILE_COLUMN not in ids,
        )

    def _batches(self) -> Iterator[pa.RecordBatch]:
        return self._declared.batches(self._plain_batches(), self.schema)

    def _plain_batches(self) -> Iterator[pa.RecordBatch]:
        remaining = self._limit
        if remaining == 0:
            return
        ctx, projection = self._ctx, self._projection
        tasks: Sequence[FileTask] = self.plan.tasks
        ahead = Ahead(budget_bytes=self._read_ahead_bytes, parallel=ctx.parallel)
        if self._order and remaining is not None:
            yield from map(self._picked, self._first(tasks, projection, remaining, ahead))
            return
        if remaining is not None:
            # A reader of few rows must not pay for many: start with one row group, and double.
            ahead = replace(ahead, first=1, unit_bytes=0)
            projection = replace(projection, limit=remaining)
            tasks = tasks if self._damaged.skips else self._enough(tasks, remaining)
        elif not self._eager:
            ahead = replace(ahead, first=1)
        read = self._sound if self._damaged.skips else self._read
        reading = read(tasks, projection, ahead)
        current, files_read = None, 0
        try:
            for task, batches in reading:
                if task is not current:
                    # Which file is read is reported where there are several.
                    if files_read:
                        ctx.progress("files read", files_read, len(tasks))
                    current, files_read = task, files_read + 1
                for batch in batches:
                    if remaining is not None and batch.num_rows >= remaining:
                        yield self._picked(batch.slice(0, remaining))
                        return
                    remaining = None if remaining is None else remaining - batch.num_rows
                    yield self._picked(batch)
        finally:
            if files_read > 1:
                ctx.progress("files read", len(tasks), len(tasks))
            reading.close()  # type: ignore[attr-defined]

    def _reader(self, ahead: Ahead) -> Reader:
        return Reader(self._objects(), self._ctx.executor, ahead)

    def _read(self, tasks: Sequence[FileTask], projection: Projection, ahead: Ahead) -> ByTask:
        return self._reader(ahead).by_task(tasks, projection)

    def _sound(self, tasks: Sequence[FileTask], projection: Projection, ahead: Ahead) -> ByTask:
        """Of the files that can be read as a whole: the rows of one are held until its last is there."""
        waiting = list(tasks)
        alone = False
        while waiting:
            reading = self._read(waiting[:1] if alone else waiting, projection, ahead)
            current: FileTask | None = None
            held: list[pa.RecordBatch] = []
            try:
                for task, batches in reading:
                    if current is not None and task is not current:
                        waiting = _after(current, waiting)
                        yield current, held
                        held = []
                    current = task
                    held = [*held, *batches]
            except UNUSABLE as error:
                # A file that has no name in the error shows by itself.
                unnamed = waiting[0] if alone else None
                bad = self._left_out(error, waiting, unnamed)
                if bad is None and error.key is not None:
                    raise
                alone = bad is None
                if bad is not None:
                    waiting = [task for task in waiting if task is not bad]
                continue
            finally:
                reading.close()  # type: ignore[attr-defined]
            if current is not None:
                yield current, held
            del waiting[: 1 if alone else len(waiting)]
            alone = False

    def _first(
        self, tasks: Sequence[FileTask], projection: Projection, limit: int, ahead: Ahead
    ) -> Iterable[pa.RecordBatch]:
        from inlay.ops.read.top_n import first_rows

        def first(of: Sequence[FileTask]) -> Iterable[pa.RecordBatch]:
            whole = replace(projection, fields=None)
            reader = self._reader(ahead)
            return first_rows(reader, of, whole, self._order, limit, self._evidence)

        waiting = list(tasks)
        while self._damaged.skips:  # ends: a file fewer each time
            try:
                return list(first(waiting))
            except UNUSABLE as error:
                bad = self._left_out(error, waiting)
                if bad is None:
                    raise
                waiting = [task for task in waiting if task is not bad]
        return first(waiting)

    def _left_out(
        self, error: InlayError, tasks: Sequence[FileTask], unnamed: FileTask | None = None
    ) -> FileTask | None:
        """The task whose file `error` is of, and is reported; None if it is of none of them. What only
        another machine can read is not damaged."""
        if isinstance(error, NeedsMemory):
            return None
        bad = next((t for t in tasks if t.file.key == error.key), unnamed)
        if bad is None or error.key not in (None, bad.file.key):
            return None
        self._damaged.leave_out(bad.file, error)
        return bad

    @property
    def damaged(self) -> tuple[DamagedFile, ...]:
        """The files that were left out so far, as reading met them (`on_damaged="skip"`)."""
        return tuple(self._damaged.files.values())

    def _objects(self) -> Objects:
        """The table's objects, also as this machine's disk keeps them where the environment asks for that:
        not of a table whose rows will have to be erased, nor of one that is on a disk itself, nor where a
        file is left out for what the store has."""
        objects = self._ctx.objects
        newest = self._newest or self._state.snapshot
        promised = newest.settings.text("erasure.promised") == "yes"
        on_disk = objects.store.scheme == "file"
        if promised or on_disk or self._damaged.skips or not os.environ.get(FOLDER_VARIABLE):
            return objects
        from inlay.ops.read.disk_cache import disk_cache  # only where the environment asks for it

        return replace(objects, disk=disk_cache())

    def _enough(self, tasks: Sequence[FileTask], limit: int) -> Sequence[FileTask]:
        """The tasks, cut where whole files alone give `limit` rows."""
        sure = 0
        for n, task in enumerate(tasks if self._filter is None else ()):
            if sure >= limit:
                return tasks[:n]
            sure += task.file.rows if task.whole else 0
        return tasks

    def count(self) -> int:
        """How many rows there are: by metadata where no delete and no filter is in the way, else by
        reading only the columns these look at. With `on_damaged="skip"` by reading."""
        if self._damaged.skips:
            return sum(batch.num_rows for batch in self._plain_batches())
        judged, total = [], 0
        for task in self.plan.tasks:
            rows = task.live_rows if self._filter is None else None
            total += rows or 0
            if rows is None:
                judged.append(task)
        ahead = Ahead(budget_bytes=self._read_ahead_bytes, parallel=self._ctx.parallel)
        counts = self._reader(ahead).counts(judged, self._projection)
        total += sum(rows for _, rows in counts)
        return total if self._limit is None else min(total, self._limit)

    def __repr__(self) -> str:
        return f"<Scan of {self._ctx.uri}: {', '.join(self._columns)}>"


def _parsed(order_by: str | Sequence[str], schema: Schema) -> tuple[OrderKey, ...]:
    from inlay.ops.read.top_n import parse_order  # most scans ask for no order

    return parse_order(order_by, schema)


def _after(task: FileTask, tasks: Sequence[FileTask]) -> list[FileTask]:
    at = next(n for n, other in enumerate(tasks) if other is task)
    return list(tasks[at + 1 :])


def _of_pinned(pinned: Pinned, options: dict[str, Any]) -> Scan:
    loaded, at = pinned.load()
    state = loaded.state if at is None else State(at)
    return Scan(pinned.context, state, **options, pinned=pinned, newest=loaded.pointer)


class Where(Record):
    """What is asked of rows: a predicate and, where one does not say it all, a filter. `asked` is
    what was given, in a form that asks the same of another process at another time."""

    predicate: Predicate
    filter: RowFilter | None
    asked: Predicate | Condition | pc.Expression
    text: str = ""


def row_filter(
    where: Any,
    snapshot: Snapshot,
    now: Callable[[], int],
    schema: Schema | None = None,
) -> Where:
    """The filter `where`, checked and bound to the snapshot's columns, or to those of another schema of the
    table; `now` is the clock of `now()`."""
    schema = schema or snapshot.schema
    if where is None:
        return Where(TRUE, None, TRUE)
    if is_polars(where):
        where = polars_predicate(where, snapshot, schema)
    if isinstance(where, str):
        where = parse_condition(where, schema, now=now)
    if isinstance(where, Condition):
        return Where(where.predicate, filter_of(where), where, where.text)
    if isinstance(where, pc.Expression):
        from inlay.parquet.arrow.expression import ExpressionFilter

        expression = ExpressionFilter(where, schema)
        expression.check()
        return Where(TRUE, expression, where)
    if isinstance(where, Predicate):
        return Where(where, None, where)
    raise InvalidRequest(
        f"where cannot be {a_type(where)}",
        next_step="Give SQL text, or an expression of pyarrow or Polars",
    )


def _near(name: str, schema: Schema) -> str:
    known = [".".join(path) for path, _ in schema.walk()]
    if step := schema.other_case(name):
        return step
    near = get_close_matches(name[:80], known, n=1)
    return f"Did you mean {near[0]!r}?" if near else ""


def _as_named(name: Any, schema: Schema, paths: bool) -> Any:
    """A name in double quotes without these; a path of fields with dots."""
    path = schema.path_named(name) if isinstance(name, str) and '"' in name else None
    if path is None or (len(path) > 1 and (not paths or any("." in part for part in path))):
        return name
    return ".".join(path)


def _is_field(name: object, schema: Schema) -> bool:
    return isinstance(name, str) and schema.resolve(tuple(name.split("."))) is not None


def checked_columns(
    columns: Iterable[str] | None,
    schema: Schema,
    *,
    hidden: Sequence[str] = (),
    paths: bool = False,
) -> tuple[str, ...]:
    """The requested columns by name (None: all of the table's); `hidden` ones can be requested too, and
    with `paths` fields of structs."""
    if columns is None:
        return schema.names
    if isinstance(columns, str):
        raise InvalidRequest("columns is one text", next_step=f"Give a list: [{columns!r}]")
    if not isinstance(columns, Iterable):
        raise InvalidRequest(f"columns cannot be {a_type(columns)}")
    names = tuple(_as_named(name, schema, paths) for name in columns)
    known = {*schema.names, *hidden}
    unknown = [name for name in names if not isinstance(name, str) or name not in known]
    if paths:
        unknown = [name for name in unknown if not _is_field(name, schema)]
    if unknown and _is_field(unknown[0], schema):
        raise InvalidRequest(
            f"{unknown[0][:100]!r} is a field of a struct: only whole columns can be requested",
            next_step=f"Request {unknown[0].partition('.')[0]!r}, and take the field from it",
        )
    if unknown:
        raise InvalidRequest(
            f"the table has no column {str(unknown[0])[:100]!r}",
            next_step=_near(str(unknown[0]), schema) or f"It has: {', '.join(schema.names)[:500]}",
        )
    if not names:
        raise InvalidRequest(
            "no column is requested", next_step="Name at least one, or use count()"
        )
    if len(set(names)) < len(names):
        raise InvalidRequest("a column is requested twice", next_step="Name each column once")
    return names

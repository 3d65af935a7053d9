"""The first rows in an order: what `scan(order_by=…, limit=…)` gives.

Promise: the rows, and their order, are those that a stable sort of the whole scan puts first. NaN is
greater than every number, -0.0 equals 0.0, texts compare by code points; NULLs come last in either
direction unless asked for first; rows with equal keys stay in the order of the scan.

First only the columns of the order are read; at the end the others, of the rows that are left alone.

Of few rows, the bounds of files and then of pages mostly tell a value that enough rows are as good as:
whatever is as good is read at once, with all columns where that is no more pages than rows. If too few rows
are, something was promised that is not so (a row is gone, a bound is wide), and the search is made without:
no answer relies on a promise.

Otherwise the files are read first whose bounds promise most. Once there are as many rows as asked for, the
last of them bounds what can still come before it. That bound is a condition like any other: what it
excludes by statistics or page index (files, row groups, pages) is not read. Holds as many rows of the
order's columns as asked for, and a batch.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidRequest, a_type
from inlay.format.entry import ColumnStats
from inlay.format.predicate import TRUE, And, Comparison, IsNull, Literal, Or, Predicate
from inlay.format.schema import Primitive, Schema, Value, listed_names, split_path
from inlay.format.values import order_key
from inlay.parquet.arrow.evaluate import column_at, columns_of, selected
from inlay.parquet.arrow.pieces import take_rows
from inlay.parquet.arrow.types import to_physical, to_scalar
from inlay.parquet.read.decode import BATCH_ROWS, bounds_within
from inlay.parquet.read.deleted_rows import normalised
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection, subschema, top_columns
from inlay.parse.grammar import errors_in, resolve
from inlay.parse.syntax import Name
from inlay.plan.pruning.promise import may_be_as_good, promised
from inlay.plan.pruning.prune import Evidence, may_match
from inlay.plan.scan import FileTask
from inlay.record import Record, replace

# Rows that are compared at a time: the first of them bound the others, most of which then need no sorting.
PIECE_ROWS = 4096
# Of at most so many rows bounds are asked, and no more files or pages opened for them than one each and
# these: many rows that are equal in the order are found by reading on.
PROMISED_ROWS = 1_000
MORE_FILES = 16
MORE_PAGES = 16

_KEY = re.compile(
    r"\s*(?P<name>.+?)(?:\s+(?P<way>ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?\s*",
    re.IGNORECASE | re.DOTALL,
)


class OrderKey(Record):
    """A column, or a field of a struct, that rows are ordered by."""

    field_id: int
    kind: Primitive
    descending: bool = False
    nulls_first: bool = False


def parse_order(order_by: str | Sequence[str], schema: Schema) -> tuple[OrderKey, ...]:
    """Keys from `"price DESC, id"`, or from a list of such: names as in SQL, each with ASC or DESC and with
    NULLS FIRST or NULLS LAST. Raises `InvalidRequest`."""
    if isinstance(order_by, str):
        texts = [order_by] if schema.column(order_by) else list(listed_names(order_by))
    elif isinstance(order_by, Sequence) and all(isinstance(name, str) for name in order_by):
        texts = list(order_by)
    else:
        raise InvalidRequest(
            f"order_by cannot be {a_type(order_by)}", next_step='Give text: "price DESC, id"'
        )
    keys = tuple(_key(text, schema) for text in texts)
    if not keys:
        raise InvalidRequest("order_by names no column", next_step='Give one: "price DESC"')
    if len({key.field_id for key in keys}) < len(keys):
        raise InvalidRequest("order_by names a column twice", next_step="Name each column once")
    return keys


def _key(text: str, schema: Schema) -> OrderKey:
    match = _KEY.fullmatch(text)
    exact = schema.column(text)
    if exact is None and match is None:
        raise InvalidRequest("order_by has an empty part", next_step='Give: "price DESC, id"')
    if exact is not None or match is None:
        field, way, nulls = exact, None, None
    else:
        name, way, nulls = match["name"], match["way"], match["nulls"]
        quoted = '"' in name
        parts = tuple((part, quoted) for part in split_path(name) or (name,))
        with errors_in(text):
            field = schema.column(name) or resolve(Name(parts, match.start("name")), schema)
    assert field is not None
    if not isinstance(field.type, Primitive):
        raise InvalidRequest(
            f"rows cannot be ordered by {field.name[:100]!r}, which is nested",
            next_step=f"Order by a field of it: {field.name[:100]}.…",
        )
    return OrderKey(
        field.id,
        field.type,
        descending=(way or "").upper() == "DESC",
        nulls_first=(nulls or "").upper() == "FIRST",
    )


def first_rows(
    reader: Reader,
    tasks: Sequence[FileTask],
    projection: Projection,
    order: Sequence[OrderKey],
    limit: int,
    evidence: Evidence,
) -> Iterator[pa.RecordBatch]:
    """The first `limit` rows of `tasks` in `order`, laid out as `projection.result`."""
    columns = top_columns(projection.schema, (key.field_id for key in order))
    looked_at = replace(projection, columns=columns, position=True, file=False, index=True)
    if limit <= PROMISED_ROWS and projection.where is None:
        others = tuple(column for column in projection.columns if column not in columns)
        everything = replace(looked_at, columns=(*columns, *others))
        best = _promised_rows(reader, tasks, looked_at, everything, order, limit, evidence)
        if best is not None:
            yield from _completed(best, reader, tasks, projection)
            return
    best = _Best(order, limit, looked_at)
    ordinals = {task.file.key: n for n, task in enumerate(tasks)}
    for wave in _waves(tasks, order[0], limit, evidence):
        # A generator: each task gets the bound of the moment at which it is begun.
        narrowed = (task for n in wave if (task := best.narrowed(tasks[n], evidence)) is not None)
        for task, batches in reader.by_task(narrowed, looked_at):
            best.add(ordinals[task.file.key], batches)
    if best.rows is not None:
        yield from _completed(best, reader, tasks, projection)


def _promised_rows(
    reader: Reader,
    tasks: Sequence[FileTask],
    looked_at: Projection,
    everything: Projection,
    order: Sequence[OrderKey],
    limit: int,
    evidence: Evidence,
) -> _Best | None:
    """The best rows, by what bounds promise; None where they promise too little, or it did not hold. Of no
    more pages than rows are wanted, `everything` is read at once: mostly each has one of them."""
    key = order[0]
    known = [evidence.of(task.file).get(key.field_id) for task in tasks]
    if key.nulls_first and any(stats is None or stats.null_count != 0 for stats in known):
        return None  # rows without a value come before all that bounds tell of
    of_files = [
        (stats, task.file.rows, n)
        for n, (stats, task) in enumerate(zip(known, tasks, strict=True))
        if stats is not None and task.whole
    ]
    bound = _Bound.promised(of_files, limit, order)
    if bound is None:
        return None
    picked = [
        n
        for n, task in enumerate(tasks)
        if may_match(bound.of(n), evidence.of(task.file), task.file.rows)
    ]
    if len(picked) > limit + MORE_FILES:
        return None
    narrowed = [_under(bound.of(n), tasks[n]) for n in picked]
    files = list(reader.opened(narrowed, looked_at))
    of_pages = [
        (stats, rows, n)
        for n, file in zip(picked, files, strict=True)
        for stats, rows in bounds_within(file, looked_at, key.field_id)
    ]
    closer = _Bound.promised([page for page in of_pages if tasks[page[2]].whole], limit, order)
    if closer is not None and closer.is_within(bound):
        bound = closer
    pages = sum(bound.may_hold(stats, n) for stats, _, n in of_pages)
    if pages > limit + MORE_PAGES:
        return None
    projection = everything if pages <= limit else looked_at
    best = _Best(order, limit, projection)
    narrowed = [_under(bound.of(n), tasks[n]) for n in picked]
    opened = (replace(file, task=task) for file, task in zip(files, narrowed, strict=True))
    ordinals = {task.file.key: n for n, task in enumerate(tasks)}
    for task, batches in reader.of_opened(opened, projection, len(files)):
        best.add(ordinals[task.file.key], batches)
    return best if best.rows is not None and best.rows.num_rows == limit else None


class _Bound(Record):
    """Before which rows the last of the first ones is: those with `value`, or before it, in the tasks up to
    `last`, and those before it in the others. Rows that are equal stay in the order of the tasks, so that
    enough of them need no more."""

    key: OrderKey
    value: Value
    last: int

    @staticmethod
    def promised(
        spans: Iterable[tuple[ColumnStats, int, int]], limit: int, order: Sequence[OrderKey]
    ) -> _Bound | None:
        """By bounds of files or pages, their rows, and the ordinals of their tasks."""
        bound = promised(spans, limit, descending=order[0].descending)
        if bound is None:
            return None
        value, last = bound
        # Another key may put rows of a later task first.
        return _Bound(order[0], value, last if len(order) == 1 else sys.maxsize)

    def of(self, task: int) -> Predicate:
        """Selects the rows of a task that may be among the first."""
        return _no_later_than(self.value, self.key, earlier=task > self.last)

    def may_hold(self, stats: ColumnStats, task: int) -> bool:
        descending = self.key.descending
        return may_be_as_good(stats, self.value, descending=descending, better=task > self.last)

    def is_within(self, other: _Bound) -> bool:
        """Whether it selects no row that `other` does not."""
        mine, theirs = order_key(self.value), order_key(other.value)
        if mine == theirs:
            return self.last <= other.last
        return bool(mine > theirs) is self.key.descending


def _under(bound: Predicate, task: FileTask) -> FileTask:
    """The task without the rows that `bound` excludes."""
    parts = (task.predicate, bound)
    return replace(task, predicate=bound if task.predicate == TRUE else And(parts))


def _no_later_than(value: Value, key: OrderKey, *, earlier: bool = False) -> Predicate:
    """Selects each row that may come before one with `value`, or is equal to it (`earlier`: only the
    former)."""
    op = (">" if key.descending else "<") + ("" if earlier else "=")
    comparison = Comparison(key.field_id, op, Literal(key.kind, value))  # type: ignore[arg-type]
    return Or((IsNull(key.field_id), comparison)) if key.nulls_first else comparison


def _waves(
    tasks: Sequence[FileTask], key: OrderKey, limit: int, evidence: Evidence
) -> Iterator[list[int]]:
    """Ordinals of tasks, those that promise most first: as many as may suffice, then the others."""
    known, unknown = [], []
    for n, task in enumerate(tasks):
        column = evidence.of(task.file).get(key.field_id)
        bound = None if column is None else column.upper if key.descending else column.lower
        if bound is None or column is None:
            unknown.append(n)
        else:
            known.append((column.null_count != 0, order_key(bound), n))
    known.sort(key=lambda item: item[1], reverse=key.descending)
    if key.nulls_first:
        known.sort(key=lambda item: not item[0])
    ranked = [*(n for _, _, n in known), *unknown]
    rows = first = 0
    while rows < limit and first < len(ranked):
        rows += tasks[ranked[first]].file.rows
        first += 1
    yield ranked[:first]
    yield ranked[first:]


class _Best:
    """The best rows so far: the projection's columns, the row's position, the task's ordinal."""

    def __init__(self, order: Sequence[OrderKey], limit: int, projection: Projection) -> None:
        self.rows: pa.Table | None = None
        self.columns = projection.columns
        self._order = order
        self._limit = limit
        self._paths = columns_of(subschema(projection.schema, projection.columns))
        self._bound: Predicate = TRUE

    def narrowed(self, task: FileTask, evidence: Evidence) -> FileTask | None:
        """The task without rows that cannot be among the best any more; None if that is all of them."""
        if self._bound == TRUE:
            return task
        if not may_match(self._bound, evidence.of(task.file), task.file.rows):
            return None
        return _under(self._bound, task)

    def add(self, ordinal: int, batches: Sequence[pa.RecordBatch]) -> None:
        step = max(PIECE_ROWS, self._limit)
        for batch in batches:
            for start in range(0, batch.num_rows, step):
                piece = batch.slice(start, step)
                if self._bound != TRUE:
                    piece = piece.filter(selected(self._bound, piece, self._paths))
                if not piece.num_rows:
                    continue
                where_from = pa.repeat(to_scalar(ordinal, pa.int64()), piece.num_rows)
                more = pa.Table.from_batches([piece]).append_column("", where_from)
                rows = more if self.rows is None else pa.concat_tables([self.rows, more])
                self.rows = rows.take(self._sorted(rows).slice(0, self._limit)).combine_chunks()
                if self.rows.num_rows == self._limit:
                    self._bound = self._no_later_than_last()

    def _sorted(self, rows: pa.Table) -> pa.UInt64Array:
        columns: list[pa.ChunkedArray] = []
        ways: list[str] = []
        [batch] = rows.combine_chunks().to_batches()
        for key in self._order:
            values = column_at(self._paths[key.field_id], batch)
            way = "descending" if key.descending else "ascending"
            columns.append(values.is_null().cast(pa.int8()))
            ways.append("descending" if key.nulls_first else "ascending")
            if key.kind.is_float:
                # Arrow puts NaN last in either direction.
                values = normalised(values)
                columns.append(pc.is_nan(values).fill_null(_FALSE).cast(pa.int8()))
                ways.append(way)
            columns.append(values)
            ways.append(way)
        # Where the row is: the ordinal of its task, its position in the file.
        columns += [batch.column(batch.num_columns - 1), batch.column(batch.num_columns - 2)]
        ways += ["ascending", "ascending"]
        names = [str(n) for n in range(len(columns))]
        return pc.sort_indices(
            pa.table(columns, names=names), sort_keys=list(zip(names, ways, strict=True))
        )

    def _no_later_than_last(self) -> Predicate:
        """Selects each row that may come before the last of the best, or is equal to it."""
        assert self.rows is not None
        key = self._order[0]
        [last] = self.rows.slice(self._limit - 1).combine_chunks().to_batches()
        try:
            value = to_physical(column_at(self._paths[key.field_id], last)[0], key.kind)
        except InvalidRequest:
            return TRUE  # text of another writer that is not UTF-8: no literal, and nothing is left out
        if value is None:
            return IsNull(key.field_id) if key.nulls_first else TRUE
        return _no_later_than(value, key)


_FALSE = to_scalar(False, pa.bool_())


def _completed(
    best: _Best, reader: Reader, tasks: Sequence[FileTask], projection: Projection
) -> Iterator[pa.RecordBatch]:
    """The rows with all columns of the result."""
    assert best.rows is not None
    *values, positions, ordinals = best.rows.columns
    columns = dict(zip(best.columns, values, strict=True))
    others = tuple(column for column in projection.columns if column not in columns)
    remainder = replace(projection, columns=others, where=None)
    hidden: list[pa.ChunkedArray] = []
    if others or projection.position or projection.file:
        places = pa.table([ordinals, positions], names=["task", "position"])
        order = pc.sort_indices(
            places, sort_keys=[(name, "ascending") for name in places.schema.names]
        )
        of_task: dict[int, list[int]] = defaultdict(list)
        for n, position in zip(
            ordinals.take(order).to_pylist(), positions.take(order).to_pylist(), strict=True
        ):
            of_task[n].append(position)
        picked = [tasks[n].at(rows_of) for n, rows_of in of_task.items()]
        as_read = pa.Table.from_batches(reader.rows(picked, remainder), schema=remainder.result)
        inverse = pc.sort_indices(order)
        ordered = take_rows(as_read, inverse, at_a_time=BATCH_ROWS)
        read = pa.Table.from_batches(ordered, schema=remainder.result)
        columns |= dict(zip(others, read.columns, strict=False))
        hidden = read.columns[len(others) :]
    arrays = [*(columns[column] for column in projection.columns), *hidden]
    yield from pa.Table.from_arrays(arrays, schema=projection.result).to_batches(BATCH_ROWS)

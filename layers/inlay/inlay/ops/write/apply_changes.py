"""Apply changes: the inserts, updates and deletes of a change stream, in the order of their events.

Promise: after the commit the table shows for each key the record with the greatest rank that was ever
applied to it (`plan.change_records`), and no row where that is a delete: for any cut of the stream into
batches, any repetition, and any reordering for as long as deletes are remembered (`changes.remember_days`).
One commit for all of a batch; with a request id exactly once. It holds side by side with other change
streams, and beside maintenance.

::

    newest     of the records of a key, the one that counts
    read       key and order of the rows that have one of the keys, what is remembered of deletes
    compare    records that are older than what is there are late, and left out
    remember   key and order of the deletes (`ops.write.memory`)
    commit     the rows, and a marker that deletes the rows they replace; it requires that what was read is
               the same: no row that may have such a key was added or deleted, no delete remembered

With `delete_to` a delete sets a column in place of removing the row: the row is the memory then.

Columns that the data lacks keep the values of the key's newest row. Where the table has several rows of a
key, all are replaced by one. Rows that are deleted or inserted by other operations are outside of the
stream: a key that `delete` has removed comes back with the next record of it, however old.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from inlay.arguments import one_of
from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.format.expression import Condition, looked_at
from inlay.format.predicate import Predicate, field_ids
from inlay.format.properties import REMEMBERED
from inlay.format.schema import Field, Primitive, Schema, listed_names
from inlay.format.snapshot import Snapshot
from inlay.ops.commit.driver import (
    Committed,
    Planned,
    Skipped,
    WriteResult,
    already_applied,
    check_same_schema,
    commit_planned,
    current_base,
)
from inlay.ops.context import Context
from inlay.ops.data import reader_of
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.schema.admit import admit_rows
from inlay.ops.write.keyed_rows import (
    NULL_KEYS,
    Keys,
    NullKeys,
    equates_nulls,
    given_columns,
    key_names,
    note_of_nulls,
    write_rows_and_markers,
)
from inlay.ops.write.memory import Memory
from inlay.ops.write.old_rows import keys_predicate, read_matching
from inlay.parquet.arrow.calculate import calculate
from inlay.parquet.arrow.change_order import (
    check_known,
    classify,
    concatenated,
    unpacked,
)
from inlay.parquet.arrow.conform import conformed
from inlay.parquet.arrow.declared import Declared, checked_orders
from inlay.parquet.arrow.evaluate import columns_of, evaluate
from inlay.parquet.arrow.newest_rows import newest, ranks
from inlay.parquet.arrow.pieces import take_rows
from inlay.parquet.arrow.types import schema_from_arrow, schema_to_arrow
from inlay.parquet.arrow.whole_rows import held
from inlay.parse import condition_of
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    Change,
    Reads,
    Request,
    Requirement,
    SameProperty,
    SetProperties,
    Update,
)
from inlay.plan.change_records import Operations
from inlay.record import LATER, Mutable, Record, field, replace

# Rows of the table that are looked through at once.
SEARCHED_BYTES = 32 * 2**20
# In the history, as of Spark's `merge`: a change feed reports its rows as updates.
OPERATION = "merge"


class ChangeCounts(Record, kw_only=True):
    """`records` that were given, without the old halves of updates. Of the records that count for their key
    in the batch: `inserted` rows of new keys, `updated` keys, `deleted` keys that the table had, and `late`
    ones, older than what the table has or remembers."""

    records: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    late: int = 0


class ChangesResult(WriteResult, kw_only=True):
    """A write, and what became of the records. Those that are neither counted here nor `late` were
    superseded by others of the batch."""

    records: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    late: int = 0


def changes_result(write: WriteResult, counts: ChangeCounts) -> ChangesResult:
    of_write = {name: getattr(write, name) for name in WriteResult.__struct_fields__}
    if counts.late:
        were = "record was" if counts.late == 1 else "records were"
        late = f"{counts.late:,} {were} late, and left out: there are newer rows or deletes of their keys"
        of_write["note"] = "; ".join(filter(None, [late, write.note]))
    return ChangesResult(**of_write, **asdict(counts))


class Applied(Record):
    outcome: Committed | Skipped
    counts: ChangeCounts = field(default_factory=ChangeCounts)


class Rules(Record, kw_only=True):
    """How records are read. `order`: columns that say which record is newer, from the first. `operations`
    or `delete_when`, a condition on the data's columns, say which records are deletes; without both, none.
    `delete_to` is the column that a delete sets."""

    order: tuple[str, ...]
    operations: Operations | None = None
    delete_when: str | None = None
    delete_to: str | None = None
    on: tuple[str, ...] = ()
    nulls: NullKeys | Literal["refuse"] = "refuse"

    @classmethod
    def of_table(cls, snapshot: Snapshot) -> Rules:
        """Those of the properties `changes.*`. Raises `InvalidRequest`."""
        properties = snapshot.settings

        def named(name: str) -> str:
            field = snapshot.column_named(name)
            return name if field is None else field.name

        order = tuple(map(named, listed_names(properties.text("changes.order"))))
        operations, op = properties.text("changes.operations"), properties.text("changes.op")
        delete_when = properties.text("changes.delete_when")
        if not order:
            raise InvalidRequest(
                "the table says of no column that changes are ordered by it",
                next_step="Set changes.order: inlay set TABLE changes.order=lsn",
            )
        if delete_when and (operations or op):
            raise InvalidRequest(
                "changes.delete_when says what is a delete, and so does changes.operations or changes.op",
                next_step="Remove one of them",
            )
        has_operations = bool(operations or op)
        return cls(
            order=order,
            operations=Operations.of(operations or None, column=op or None)
            if has_operations
            else None,
            delete_when=delete_when or None,
            delete_to=named(properties.text("changes.delete_to")) or None,
        )


def apply_changes(
    ctx: Context,
    data: Any,
    rules: Rules,
    *,
    base: LoadedTable | None = None,
    request: Request | None = None,
    events: tuple[Request, ...] = (),
    landed_us: int | None = None,
) -> Applied:
    """Applies change records; `events` are other names of the request, `landed_us` is when records that
    landed did. Raises `InvalidRequest`, `SchemaMismatch`, `ConcurrentChange`."""
    one_of(rules.nulls, "nulls", (*NULL_KEYS, "refuse"))
    if ctx.branch is not None:
        raise InvalidRequest(
            "a change stream cannot be applied to a branch: what it deletes is remembered for the table",
            next_step="Apply it to main, or use upsert() and delete(keys=…) on the branch",
            table=ctx.uri,
        )
    loaded, before = already_applied(ctx, current_base(ctx, base), request)
    if before is not None:
        return Applied(before)
    records = held(reader_of(data))
    records, is_delete = _without_operations(ctx, records, rules, loaded.snapshot)
    loaded, records = admit_rows(ctx, loaded, records)
    batch = _Batch.of(ctx, loaded, records, is_delete, rules)
    if batch.is_empty and request is None:
        return Applied(Skipped(loaded))
    requests = _Named(request, events, landed_us)
    outcome = commit_planned(ctx, loaded, partial(_plan, ctx, loaded, batch, requests))
    if isinstance(outcome, Committed) and not equates_nulls(batch.nulls):
        outcome = replace(outcome, note=note_of_nulls(batch.rows.select(list(batch.names))))
    return Applied(outcome, batch.counts)


# -- the records ----------------------------------------------------------------------------------


def _without_operations(
    ctx: Context, records: pa.Table, rules: Rules, snapshot: Snapshot
) -> tuple[pa.Table, pa.ChunkedArray]:
    """The records that count, without the columns that only say what they do; and which are deletes."""
    operations, schema = rules.operations, snapshot.schema
    keys = rules.on or snapshot.key_names
    if operations is None:
        gone, asked = _where(ctx, records, rules.delete_when)
        only_asked = asked.difference(schema.names)
        return records.select([n for n in records.column_names if n not in only_asked]), gone
    records = unpacked(records, operations, schema.names, keys)
    rows, gone = classify(records, operations, table=ctx.uri)
    kept = pc.or_(rows, gone)
    check_known(records.filter(rows), operations, table=ctx.uri)
    own = operations.columns.difference(schema.names)
    columns = [name for name in records.column_names if name not in own]
    gone = gone if isinstance(gone, pa.ChunkedArray) else pa.chunked_array([gone])
    return records.filter(kept).select(columns), gone.filter(kept)


def _where(
    ctx: Context, records: pa.Table, text: str | None
) -> tuple[pa.ChunkedArray, frozenset[str]]:
    """Which records the condition selects, and the columns that it reads."""
    if text is None:
        none = pa.chunked_array([pa.repeat(pa.scalar(False), records.num_rows)])
        return none, frozenset()
    schema = schema_from_arrow(records.schema)
    condition = condition_of(text, schema, ctx.clock.now_us)
    truths = [_truth(condition, batch, schema) for batch in records.to_batches()]
    gone = pa.chunked_array(truths, type=pa.bool_())
    if gone.null_count:
        raise InvalidRequest(
            f"delete_when is neither TRUE nor FALSE for {gone.null_count:,} change records. Nothing of the "
            "batch was applied",
            next_step="Give them a value, or say what NULL is: \"coalesce(op, 'u') = 'd'\"",
            table=ctx.uri,
        )
    ids = field_ids(condition.predicate)
    if condition.calculated is not None:
        ids |= looked_at(condition.calculated)
    paths = (schema.path_of(field_id) for field_id in ids)
    return gone, frozenset(path[0] for path in paths if path)


def _truth(condition: Condition, batch: pa.RecordBatch, schema: Schema) -> pa.Array:
    if condition.calculated is None:
        return evaluate(condition.predicate, batch, columns_of(schema))
    return calculate(condition.calculated, batch, columns_of(schema)).cast(pa.bool_())


class _Batch(Mutable):
    """The newest record of each key: `rows`, with the table's columns that the data has, then `deletes`,
    with key and order only. `keys`, `order` and `codes` are of both, in this order."""

    names: tuple[str, ...]
    order_names: tuple[str, ...]
    rows: pa.Table
    deletes: pa.Table
    given: Schema
    nulls: NullKeys
    delete_to: Field | None
    keys: pa.Table = LATER
    codes: Keys = LATER
    counts: ChangeCounts = field(default_factory=ChangeCounts)

    @property
    def is_empty(self) -> bool:
        return not self.rows.num_rows and not self.deletes.num_rows

    @property
    def is_delete(self) -> pa.Array:
        gone = [False] * self.rows.num_rows + [True] * self.deletes.num_rows
        return pa.array(gone, pa.bool_())

    def lacking(self, schema: Schema) -> tuple[str, ...]:
        """The table's columns that the data lacks."""
        return tuple(name for name in schema.names if self.given.column(name) is None)

    def column(self, name: str) -> pa.ChunkedArray:
        rows, deletes = self.rows.column(name), self.deletes.column(name)
        return concatenated([rows, deletes], rows.type)

    @classmethod
    def of(
        cls,
        ctx: Context,
        loaded: LoadedTable,
        records: pa.Table,
        gone: pa.ChunkedArray,
        rules: Rules,
    ) -> _Batch:
        schema = loaded.snapshot.schema
        names = key_names(ctx, loaded, rules.on, "apply_changes")
        order = _order_names(ctx, schema, rules.order, names)
        given = given_columns(ctx, records.schema, schema, (*names, *order), "apply_changes")
        declared = Declared.of(loaded.snapshot)
        declared.check_meaning(records.schema)
        rows = records.filter(pc.invert(gone))
        ordered = checked_orders(loaded.snapshot, rows.to_reader())
        made = list(conformed(ordered, schema, given, by_value=True))
        for one in made:
            declared.check(one)
        # A delete may lack what the table requires of a row.
        bare = [
            replace(f, nullable=True, default=None)
            for f in given.fields
            if f.name in (*names, *order)
        ]
        loose = Schema(schema.id, tuple(bare), schema.version)
        deleted = records.filter(gone).select([f.name for f in bare])
        batch = cls(
            names,
            order,
            pa.Table.from_batches(made, schema=schema_to_arrow(given)),
            pa.Table.from_batches(
                conformed(deleted.to_batches(), loose, loose, by_value=True),
                schema=schema_to_arrow(loose),
            ),
            given,
            "distinct" if rules.nulls == "refuse" else rules.nulls,
            _flag_of(ctx, schema, given, rules.delete_to),
        )
        batch._learn_keys()
        no_key = batch.codes.codes.null_count
        if no_key and rules.nulls == "refuse":
            raise InvalidRequest(
                f"{no_key:,} change records have a NULL in their key. Nothing of the batch was applied",
                next_step=f"Give each one {', '.join(names)}, or say what a NULL is: "
                'nulls="equal", or "distinct" to insert each such row',
                table=ctx.uri,
            )
        by_rank = ranks(map(batch.column, order), batch.is_delete, len(batch.keys))
        count = newest(batch.codes.codes, by_rank)
        split = batch.rows.num_rows
        batch.rows = batch.rows.filter(count.slice(0, split))
        batch.deletes = batch.deletes.filter(count.slice(split))
        batch.counts = ChangeCounts(records=records.num_rows)
        batch._learn_keys()
        return batch

    def _learn_keys(self) -> None:
        self.keys = pa.table({name: self.column(name) for name in self.names})
        self.codes = Keys([self.keys.column(name) for name in self.names], self.nulls)


def _order_names(
    ctx: Context, schema: Schema, order: Sequence[str], names: Sequence[str]
) -> tuple[str, ...]:
    columns = ((name, schema.column_named(name)) for name in order)
    order = [name if column is None else column.name for name, column in columns]
    missing = [name for name in order if name not in schema.names]
    if missing or not order:
        raise SchemaMismatch(
            f"the table has no column {missing[0]!r} to order changes by"
            if missing
            else "changes need an order",
            next_step=(schema.other_case(missing[0]) if missing else "")
            or 'Name columns of the table, as in order="lsn": what is in it is compared with what comes. '
            "`t.alter(add=…)` adds one",
            table=ctx.uri,
        )
    in_key = [name for name in order if name in names]
    nested = [
        n for n in order if not isinstance(getattr(schema.column(n), "type", None), Primitive)
    ]
    if in_key or nested or len(set(order)) < len(order):
        raise InvalidRequest(
            f"changes cannot be ordered by {', '.join(order)}",
            next_step="Name each column once, none that is nested, and none of the key: all records of a "
            "key have the same",
            table=ctx.uri,
        )
    return tuple(order)


def _flag_of(ctx: Context, schema: Schema, given: Schema, name: str | None) -> Field | None:
    """The column that a delete sets."""
    if name is None:
        return None
    column = schema.column_named(name)
    kind = getattr(column, "type", None)
    is_flag = isinstance(kind, Primitive) and kind.name in ("bool", "timestamp", "timestamptz")
    if column is None or not is_flag:
        raise SchemaMismatch(
            f"a delete cannot set {name!r}, which is no boolean or timestamp of the table",
            next_step='Add one: t.alter(add={"deleted": pa.bool_()})',
            table=ctx.uri,
        )
    if column.name in given.names:
        raise SchemaMismatch(
            f"the data has the column {column.name!r}, which deletes set",
            next_step="Leave it out of the data",
            table=ctx.uri,
        )
    return column


class _Named(Record):
    """What a commit is remembered by, and when its records landed."""

    request: Request | None
    events: tuple[Request, ...]
    landed_us: int | None


# -- on a base ------------------------------------------------------------------------------------


def _plan(
    ctx: Context,
    bound: LoadedTable,
    batch: _Batch,
    named: _Named,
    loaded: LoadedTable,
) -> Planned | None:
    check_same_schema(ctx, bound, loaded)
    snapshot, schema = loaded.snapshot, loaded.snapshot.schema
    soft = batch.delete_to is not None
    predicate = keys_predicate(batch.keys, batch.names, schema, batch.nulls)
    loaded, existing = _rows_there(ctx, loaded, batch, predicate)
    by_name = {f.name: f for f in schema.fields}
    keys, order = ([by_name[n] for n in names] for names in (batch.names, batch.order_names))
    memory = Memory(ctx, keys, order)
    # After the table: what is remembered by now includes every delete that the table shows.
    remembered = snapshot.properties.get(REMEMBERED)
    known: pa.Table | None = None
    if remembered is not None and not soft and not batch.is_empty:
        known = memory.read(batch.keys, batch.codes, batch.nulls)
    verdict = _compare(batch, existing, known)
    rows = batch.rows.filter(verdict.rows)
    deletes = batch.deletes.filter(verdict.deletes)
    counts = ChangeCounts(
        records=batch.counts.records,
        inserted=rows.num_rows - verdict.updated,
        updated=verdict.updated,
        deleted=verdict.deleted,
        late=len(batch.keys) - rows.num_rows - deletes.num_rows,
    )
    batch.counts = counts
    updates: list[Update] = []
    requires: list[Requirement] = [Reads(predicate, snapshot.version, existing.files)]
    if not soft:
        if deletes.num_rows:
            unknown = deletes.filter(verdict.to_remember)
            if unknown.num_rows:
                columns = [*batch.names, *batch.order_names]
                memory.add(unknown.select(columns), loaded.date_us)
            updates.append(SetProperties({REMEMBERED: memory.head}))
        requires.append(SameProperty(REMEMBERED, remembered))
    hit = batch.keys.filter(verdict.replaced)
    if soft:
        is_done = not rows.num_rows and not deletes.num_rows
    else:
        # Repeated deletes, of which the table knows.
        is_known = not deletes.num_rows or memory.head == remembered
        is_done = not rows.num_rows and not hit.num_rows and is_known
    if is_done and named.request is None:
        return None
    written = _new_rows(batch, verdict, existing, loaded)
    added, markers, loaded = write_rows_and_markers(
        ctx, loaded, written, hit, batch.nulls, upload_bytes=rows.nbytes + hit.nbytes
    )
    landed = (
        {} if named.landed_us is None else dict.fromkeys((f.key for f in added), named.landed_us)
    )
    updates += [AddFiles(added, landed), AddMarkers(markers)]
    change = Change(
        operation=OPERATION,
        request=named.request,
        events=named.events,
        uploaded_us=loaded.date_us,
        deleted_rows=verdict.old_rows,
        updates=tuple(updates),
        requires=tuple(requires),
    )
    return Planned(change, loaded)


class _There(Record):
    """The table's rows of the batch's keys: their codes, the columns that were read, the files they are
    in."""

    codes: pa.Array
    rows: pa.Table
    files: frozenset[str]


def _rows_there(
    ctx: Context, loaded: LoadedTable, batch: _Batch, predicate: Predicate
) -> tuple[LoadedTable, _There]:
    schema = loaded.snapshot.schema
    # A delete that sets a column keeps all others.
    kept = set(schema.names) if batch.delete_to is not None else set(batch.lacking(schema))
    own = (*batch.names, *batch.order_names)
    names = [*own, *(name for name in schema.names if name in kept.difference(own))]
    ids = {f.name: f.id for f in schema.fields}
    loaded, batches = read_matching(ctx, loaded, predicate, [ids[name] for name in names])
    kinds = schema_to_arrow(schema, with_ids=False)
    result = pa.schema([kinds.field(name) for name in names])
    tables: list[pa.Table] = []
    places: list[pa.Array] = [pa.array([], pa.int64())]
    files: set[str] = set()
    for part in _together(batches):
        codes = batch.codes.find(part.columns[: len(batch.names)])
        is_there = pc.is_valid(codes)
        if codes.null_count == len(codes):
            continue
        some = part.filter(is_there)
        files.update(pc.unique(some.column(some.num_columns - 1).cast(pa.string())).to_pylist())
        tables.append(pa.table(some.columns[:-1], schema=result))
        places += pc.drop_null(codes).chunks
    rows = pa.concat_tables(tables) if tables else result.empty_table()
    return loaded, _There(pa.concat_arrays(places), rows, frozenset(files))


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Several batches at once: each search of keys begins by hashing all that are looked for."""
    part: list[pa.RecordBatch] = []
    for one in batches:
        part.append(one)
        if sum(batch.nbytes for batch in part) >= SEARCHED_BYTES:
            yield pa.Table.from_batches(part)
            part = []
    if part:
        yield pa.Table.from_batches(part)


class _Verdict(Record):
    """Masks: of the batch's `rows` and `deletes` those that count; of both together those that count and
    whose key has rows there; of the deletes that count those to remember. `newest_of` has for each code
    (`code`) the `place` of the newest row there; `old_rows` is how many rows there are replaced."""

    rows: pa.BooleanArray
    deletes: pa.BooleanArray
    replaced: pa.BooleanArray
    to_remember: pa.BooleanArray
    newest_of: pa.Table
    updated: int
    deleted: int
    old_rows: int


def _compare(batch: _Batch, existing: _There, known: pa.Table | None) -> _Verdict:
    """What counts, of what is remembered, what is there and what comes: in this order they arrived."""
    split = batch.rows.num_rows
    own = batch.codes.codes.combine_chunks()
    known_codes = pa.array([], pa.int64()) if known is None else known["code"].combine_chunks()
    codes = pa.concat_arrays([known_codes, existing.codes, own])
    incoming = len(codes) - len(own)
    order = [
        concatenated(
            [
                *([] if known is None else [known.column(f"order{place}")]),
                existing.rows.column(name),
                batch.column(name),
            ],
            batch.rows.schema.field(name).type,
        )
        for place, name in enumerate(batch.order_names)
    ]
    gone = pa.concat_arrays(
        [
            pa.repeat(pa.scalar(True), len(known_codes)),
            _set_by_delete(batch, existing),
            batch.is_delete,
        ]
    )
    by_rank = ranks(order, gone, len(codes))
    counts = newest(codes, by_rank).slice(incoming)
    replaced = pc.and_(counts, pc.is_in(own, value_set=existing.codes, skip_nulls=True))
    hit = own.filter(replaced)
    places = pa.table({"code": existing.codes, "place": _numbers(len(existing.codes))})
    newest_there = newest(existing.codes, by_rank.slice(len(known_codes), len(existing.codes)))
    deletes = counts.slice(split)
    return _Verdict(
        rows=counts.slice(0, split),
        deletes=deletes,
        replaced=replaced,
        to_remember=_unknown(order, gone, codes, len(known_codes), incoming)
        .slice(split)
        .filter(deletes),
        newest_of=places.filter(newest_there),
        updated=replaced.slice(0, split).true_count,
        deleted=replaced.slice(split).true_count,
        old_rows=pc.is_in(existing.codes, value_set=hit).true_count,
    )


def _unknown(
    order: Sequence[pa.ChunkedArray], gone: pa.Array, codes: pa.Array, known: int, incoming: int
) -> pa.BooleanArray:
    """Which incoming records are above what is remembered of their key. That counts as the later one here:
    a delete that comes again, perhaps because its commit failed, is not remembered twice."""
    moved = [
        pa.chunked_array(
            [*values.slice(incoming).chunks, *values.slice(0, known).chunks], values.type
        )
        for values in order
    ]
    both = pa.concat_arrays([codes.slice(incoming), codes.slice(0, known)])
    deletes = pa.concat_arrays([gone.slice(incoming), gone.slice(0, known)])
    return newest(both, ranks(moved, deletes, len(both))).slice(0, len(codes) - incoming)


def _set_by_delete(batch: _Batch, existing: _There) -> pa.Array:
    """Which rows there are deletes: those whose column a delete has set."""
    if batch.delete_to is None:
        return pa.repeat(pa.scalar(False), len(existing.codes))
    values = concatenated([existing.rows.column(batch.delete_to.name)], None).combine_chunks()
    return values.fill_null(False) if pa.types.is_boolean(values.type) else values.is_valid()


# -- new rows -------------------------------------------------------------------------------------


def _new_rows(
    batch: _Batch, verdict: _Verdict, existing: _There, loaded: LoadedTable
) -> Iterator[pa.RecordBatch]:
    """The rows to write: of records that count, with what their key had in columns that they lack."""
    schema = loaded.snapshot.schema
    own, split = batch.codes.codes.combine_chunks(), batch.rows.num_rows
    rows = batch.rows.filter(verdict.rows)
    at = _places(own.slice(0, split).filter(verdict.rows), verdict)
    is_new = at.is_null()
    lives = _flag(batch, rows.num_rows, None)
    new = {**_columns(rows), **lives}
    yield from _conformed(pa.table(new).filter(is_new), schema)
    old = existing.rows.select([name for name in existing.rows.column_names if name not in new])
    changed = pa.table(new).filter(pc.invert(is_new))
    yield from _beside(old, at.drop_null(), changed, schema)
    if batch.delete_to is None:
        return
    deletes = batch.deletes.filter(verdict.deletes)
    at = _places(own.slice(split).filter(verdict.deletes), verdict)
    is_new = at.is_null()
    set_ = {**_columns(deletes), **_flag(batch, deletes.num_rows, loaded.date_us)}
    yield from _conformed(pa.table(set_).filter(is_new), schema)
    changed = pa.table(set_).filter(pc.invert(is_new))
    yield from _beside(existing.rows, at.drop_null(), changed, schema)


def _beside(
    old: pa.Table, at: pa.Array, changed: pa.Table, schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Rows with the columns of `changed`, and what the rows `at` of `old` have in others."""
    if not old.num_columns:
        yield from _conformed(changed, schema)
        return
    start = 0
    for some in take_rows(old, at, at_a_time=max(1, len(at))):
        own = changed.slice(start, some.num_rows)
        start += some.num_rows
        columns = dict(zip(some.schema.names, some.columns, strict=True))
        yield from _conformed(pa.table({**columns, **_columns(own)}), schema)


def _places(codes: pa.Array, verdict: _Verdict) -> pa.Array:
    """Where the newest row of each code is; null where there is none."""
    newest_of = verdict.newest_of.combine_chunks()
    index = pc.index_in(codes, value_set=newest_of["code"].combine_chunks(), skip_nulls=True)
    return newest_of["place"].combine_chunks().take(index)


def _flag(batch: _Batch, rows: int, deleted_us: int | None) -> dict[str, pa.ChunkedArray]:
    """The column that a delete sets, of rows that were deleted at this time, or live."""
    flag = batch.delete_to
    if flag is None:
        return {}
    kind = schema_to_arrow(Schema(0, (flag,)), with_ids=False).field(0).type
    if pa.types.is_boolean(kind):
        value = pa.scalar(deleted_us is not None, kind)
    else:
        value = pa.scalar(deleted_us, pa.timestamp("us", kind.tz)).cast(kind)
    return {flag.name: pa.chunked_array([pa.repeat(value, rows)])}


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _conformed(table: pa.Table, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Rows of the schema; columns that the table lacks have their default, else NULL."""
    fields = {f.name: f for f in schema.fields}
    there = Schema(schema.id, tuple(fields[name] for name in table.column_names), schema.version)
    yield from conformed(filter(len, table.to_batches()), there, schema)


def _numbers(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())

"""Rewrites one file without its deleted rows, in the cheapest way.

Promise: the returned unit has the rows of the file except the deleted ones, in their order, with the map of
their positions; the file itself is not changed. By row-group surgery where few groups are affected and the
layout allows it, else as a whole; a file that turns out to hold no deleted row is only restamped, one
without live rows only dropped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap, BitMap64

from inlay.errors import InvalidRequest, SourceChanged, UnreadableFile, UnsupportedFile
from inlay.format import keys
from inlay.format.entry import DataFile, KeyRange, Keys, Marker, RowGroups, Rows, Vector, Where
from inlay.format.partition import Partition
from inlay.format.schema import Schema
from inlay.format.snapshot import UNPARTITIONED, PartitionField, PartitionSpec
from inlay.ops.context import Clock, Context
from inlay.ops.data import layout_of, target_of
from inlay.ops.maintain.units import Done
from inlay.ops.metadata.load import LoadedTable
from inlay.parquet.arrow.types import positions_array
from inlay.parquet.footer.footer import Footer, parse_metadata
from inlay.parquet.read.data_file import OpenFile, plan_groups
from inlay.parquet.read.deleted_rows import load_vector
from inlay.parquet.read.reader import Ahead, Reader
from inlay.parquet.read.selection import Projection, top_columns
from inlay.parquet.read.statistics import entry_of_file
from inlay.parquet.surgery.key_values import geo_pair
from inlay.parquet.surgery.new_object import WINDOW_BYTES
from inlay.parquet.surgery.residue import find_residue, unused_entries
from inlay.parquet.surgery.surgery import plan_edit, rewrite_object
from inlay.parquet.write.writer import write_files
from inlay.plan.change import Unit
from inlay.plan.positions import PositionMap, narrow
from inlay.plan.pruning.literals import any_of, texts_of
from inlay.plan.scan import FileTask, marker_predicate
from inlay.plan.surgery import Choice, Cost, Strategy, Touched, choose
from inlay.record import Mutable, Record, replace
from inlay.storage.base import Location

# Memory that surgery and a whole rewrite need for a row group, measured: up to three times its values.
VALUE_FORMS = 3
# ... out of this share of the available memory; the rest is for Python, pyarrow and the metadata.
GROUP_SHARE = 0.75


class ResourceLimits(Record):
    """The limits of an invocation: time until `deadline` (of the context's clock; None: no limit) and
    memory (None: the machine's)."""

    deadline: float | None = None
    memory_bytes: int | None = None

    def must_hold(self, group_bytes: int) -> None:
        """Raises `UnsupportedFile` where a row group of so many bytes, uncompressed, does not fit: the
        platform would kill the process each time, and no other file would be processed."""
        takes = VALUE_FORMS * group_bytes
        memory = self.memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if takes > GROUP_SHARE * memory:
            raise UnsupportedFile(
                f"a row group takes about {takes >> 20} MiB of memory to rewrite, and there are "
                f"{memory >> 20} MiB",
                next_step="Run `inlay rewrite` or the Spark job where there is more",
            )


NO_LIMITS = ResourceLimits()


class GroupTimer(Mutable):
    """Whether one more row group fits before `deadline` (None: always), judging by the slowest so far.
    Asked before each group but the first, so that every invocation makes progress."""

    clock: Clock
    deadline: float | None
    slowest: float = 0.0
    last: float = 0.0

    def __post_init__(self) -> None:
        self.last = self.clock.monotonic()

    def goes_on(self) -> bool:
        now = self.clock.monotonic()
        self.slowest, self.last = max(self.slowest, now - self.last), now
        return self.deadline is None or now + self.slowest < self.deadline


def markers_for_output(
    ctx: Context, loaded: LoadedTable, task: FileTask, positions: PositionMap, output: str
) -> Iterator[Marker]:
    """The deletes that name the file, as far as they still hit rows of `output`. They keep their ids and
    sequences, by which an erasure recognises those older than itself."""
    for marker in task.markers:
        if marker.file is None:
            continue
        match marker.body:
            case RowGroups():
                continue  # whole groups are dropped without being read, whatever the time
            case Rows(listed):
                rows = positions.moved(BitMap64(listed))
            case Vector() as vector:
                rows = positions.moved(load_vector(ctx.objects, vector, task.file.rows))
            case KeyRange() | Where() | Keys():
                yield replace(marker, file=output)
                continue
        if rows:
            from inlay.ops.row_markers import vector_markers  # few files are done in part

            [moved] = vector_markers(ctx, loaded, {output: rows})
            yield replace(marker, body=moved.body, file=output)


# A file that is rewritten one to one stays one file, however large.
_NO_TARGET = 1 << 62


class RowDecision(Record):
    """What is left of a file: `kept` positions out of row groups of `group_rows` rows. `footer`, if surgery
    is possible. `has_extra`: not only markers delete rows of it. `group_bytes` is the largest group that
    will be rewritten, uncompressed. `recode` are row groups that name erased values outside their rows,
    `texts` the values that the file's key-values may name."""

    kept: BitMap
    group_rows: tuple[int, ...]
    group_bytes: int
    etag: str
    choice: Choice
    footer: Footer | None = None
    has_extra: bool = False
    recode: frozenset[int] = frozenset()
    texts: frozenset[str] = frozenset()


def kept_in_groups(kept: BitMap, group_rows: Sequence[int]) -> dict[int, BitMap]:
    """Of each row group that loses rows, those that stay, counted from its first."""
    kept_rows: dict[int, BitMap] = {}
    start = 0
    for ordinal, rows in enumerate(group_rows):
        inside = kept & BitMap(range(start, start + rows))
        if len(inside) < rows:
            kept_rows[ordinal] = inside.shift(-start)
        start += rows
    return kept_rows


def rewrite_task(
    ctx: Context,
    loaded: LoadedTable,
    task: FileTask,
    *,
    strategy: Strategy = "auto",
    extra: BitMap64 | None = None,
    limits: ResourceLimits = NO_LIMITS,
    judging: Context | None = None,
) -> tuple[Choice, Done]:
    """Decides about the rows of a file, chooses the method, applies it: by surgery as far as time allows,
    but at least one row group. `judging` is the context for what decides. Raises `UnsupportedFile` when
    there is not enough memory."""
    looked = decide_rows(judging or ctx, loaded, task, strategy, extra, limits)
    choice, entry = looked.choice, task.file
    limits.must_hold(looked.group_bytes)
    match choice.method:
        case "drop":
            return choice, dropped(loaded, entry)
        case "restamp":
            return choice, _restamped(loaded, task)
        case "surgery":
            try:
                made = _by_surgery(ctx, loaded, task, looked, limits.deadline)
            except UnsupportedFile as error:
                reason = (
                    f"surgery is not possible here ({error.message}): the whole file is written"
                )
                choice = replace(choice, method="rewrite", reason=reason, no_surgery=error.message)
                made = _as_a_whole(ctx, loaded, task, looked)
        case "rewrite" | "tombstone":
            try:
                made = _as_a_whole(ctx, loaded, task, looked)
            except InvalidRequest as error:
                # A value of another writer that its column's type does not have. Surgery copies its bytes,
                # or keeps them bit for bit.
                if strategy == "rewrite" or looked.footer is None:
                    raise
                reason = (
                    f"it cannot be written as a whole ({error.message}): surgery is done instead"
                )
                choice = replace(choice, method="surgery", reason=reason)
                made = _by_surgery(ctx, loaded, task, looked, limits.deadline)
    assert made.whole or extra is None, "a delete is never half done"
    return choice, _done(ctx, loaded, task, choice, made, data_change=extra is not None)


def _done(
    ctx: Context,
    loaded: LoadedTable,
    task: FileTask,
    choice: Choice,
    made: _Made,
    *,
    data_change: bool,
) -> Done:
    """The unit that puts the new file in the place of the task's, with what still deletes rows of it."""
    entry, output, positions, whole = task.file, made.output, made.positions, made.whole
    snapshot = loaded.snapshot
    written_under = snapshot.schema_by_id(output.schema_id)
    spec_id, partition = partition_for_output(entry, task.schema, written_under, snapshot.specs)
    output = replace(
        output,
        # Every marker of the planned version that may hit the file was applied, or will be.
        sequence=snapshot.version if whole else entry.sequence,
        spec_id=spec_id,
        partition=partition,
        data_change=data_change,
        origin=entry.key,
    )
    carried: tuple[Marker, ...] = ()
    if not whole:
        carried = tuple(markers_for_output(ctx, loaded, task, positions, output.key))
    unit = Unit(
        inputs=(entry.key,),
        outputs=(output,),
        version=snapshot.version,
        positions=positions,
        applied=_of_file(task),
        carried=carried,
    )
    return Done(
        unit=unit,
        whole=whole,
        method=choice.method,
        removed_rows=entry.rows - positions.new_rows,
        read_bytes=entry.size,
        written_bytes=output.size,
    )


def decide_rows(
    ctx: Context,
    loaded: LoadedTable,
    task: FileTask,
    strategy: Strategy,
    extra: BitMap64 | None = None,
    limits: ResourceLimits = NO_LIMITS,
    *,
    all_costs: bool = False,
) -> RowDecision:
    """Which rows stay: reads the footer and the columns that the deletes need. `all_costs`: also what ways
    would cost that are not considered. Raises `UnsupportedFile` before it decodes what does not fit into
    memory."""
    schema = loaded.snapshot.schema
    opened = ctx.reader.open(task, Projection(schema=schema, columns=()))
    judged_by = top_columns(schema, opened.deletes.fields)
    groups = [opened.metadata.row_group(n) for n in range(opened.metadata.num_row_groups)]
    judged_bytes = (
        sum(chunk.total_uncompressed_size for chunk in opened.chunks(n, judged_by))
        for n in range(len(groups))
    )
    limits.must_hold(max(judged_bytes, default=0))
    group_rows = tuple(group.num_rows for group in groups)
    kept = BitMap()
    for _, positions in ctx.reader.positions([task], schema):
        kept |= narrow(positions)
    if extra is not None:
        kept -= narrow(extra)
    assert opened.source.etag is not None  # an open file is pinned
    kept_rows = kept_in_groups(kept, group_rows)
    touched = [n for n, rows in kept_rows.items() if rows]
    emptied = [n for n, rows in kept_rows.items() if not rows]
    share = len(kept) / sum(group_rows) if kept else 0.0
    recode, texts = _residue(ctx, opened, touched, emptied, schema)
    touched = sorted({*touched, *recode})
    footer, surgery = None, None
    # Where every row group is written again, surgery spares nothing, and takes a Python object for each
    # part of the footer: of 5,000 columns, three times as long as writing the rows. It is for what is kept
    # bit for bit, and for what has to be done in steps.
    spares = len(touched) < len(groups) or task.file.is_foreign
    is_asked = strategy == "surgery" or limits.deadline is not None
    if (touched or texts or (emptied and kept)) and (spares or is_asked or all_costs):
        footer, surgery = _plan_surgery(opened, touched, emptied)
    choice = choose(
        task.file,
        Touched(max(len(touched) + len(emptied), bool(texts)), len(emptied), share),
        surgery=surgery,
        tombstone=_tombstone_cost(opened, schema),
        strategy=strategy,
        seconds_left=None if limits.deadline is None else limits.deadline - ctx.clock.monotonic(),
        everything=not spares,
    )
    rewritten = {"surgery": touched, "rewrite": range(len(group_rows))}.get(choice.method, ())
    group_bytes = max((groups[n].total_byte_size for n in rewritten), default=0)
    etag = opened.source.etag
    return RowDecision(
        kept, group_rows, group_bytes, etag, choice, footer, extra is not None, recode, texts
    )


def _residue(
    ctx: Context,
    opened: OpenFile,
    touched: Sequence[int],
    emptied: Sequence[int],
    schema: Schema,
) -> tuple[frozenset[int], frozenset[str]]:
    """The row groups that may name erased values outside their rows, and the values that the file's
    key-values may name. Only other writers leave such: this library's files have no dictionary entries
    without a row.

    In any file those are values that the condition selects. In a file that is written again it is every
    dictionary entry without a row, in any column: it may have been an erased row's. (A file made by surgery
    may have lost such rows already, when there was no time for all its groups.)
    """
    task = opened.task
    erasing = [m for m in task.markers if m.erasure is not None]
    predicates = [p for m in erasing if (p := marker_predicate(m, schema)) is not None]
    groups = set(range(task.file.row_groups)) - set(emptied)
    if not groups or not predicates or not task.file.is_foreign:
        return frozenset(), frozenset()
    asked_for = any_of(predicates)  # many erasures share one search
    try:
        residues = find_residue(opened, asked_for, ctx.executor)
        recode = residues.row_groups & groups
        certain = any(r.certain for r in residues.residues)
        # Also where only something beside the rows goes: what has an origin was searched in all columns.
        if touched or emptied or certain or task.file.origin is not None:
            others = groups - recode - set(touched)
            recode |= {group for group, _ in unused_entries(opened, ctx.executor, others)}
    except (UnsupportedFile, UnreadableFile):
        # What cannot be searched is rewritten, as a whole where surgery is not possible.
        return frozenset(groups), texts_of(asked_for)
    return recode, texts_of(asked_for) if certain else frozenset()


def _plan_surgery(
    opened: OpenFile, touched: Sequence[int], emptied: Sequence[int]
) -> tuple[Footer | None, Cost | str]:
    """The footer and the cost of surgery, or why it is not possible."""
    try:
        footer = opened.decoded()
        copies = opened.source.store.copies_ranges
        cost = plan_edit(footer, touched=touched, dropped=emptied, copies=copies)
        return footer, cost
    except (UnsupportedFile, UnreadableFile) as error:
        return None, error.message


def _tombstone_cost(opened: OpenFile, schema: Schema) -> Cost:
    """What a scan reads of the file only to decide which rows are deleted, if it needs no other column than
    those the markers name."""
    groups = [
        opened.chunks(group.ordinal, top_columns(schema, group.deletes.fields))
        for group in plan_groups(opened, Projection(schema=schema, columns=()))
        if group.deletes.fields
    ]
    objects = [m.object_bytes for m in opened.task.markers if m.object_bytes is not None]
    looked_at = sum(chunk.total_compressed_size for chunks in groups for chunk in chunks)
    return Cost(requests=len(groups) + len(objects), read_bytes=looked_at + sum(objects))


class _Made(Record):
    """A new file, where the rows of the old one are in it, and whether all that go are gone."""

    output: DataFile
    positions: PositionMap
    whole: bool = True


def _by_surgery(
    ctx: Context, loaded: LoadedTable, task: FileTask, looked: RowDecision, deadline: float | None
) -> _Made:
    """Rewrites the affected row groups; the store copies everything else. The new file has the old one's
    physical schema, so its entry keeps the schema it was recorded under.

    Always with the rules of an erasure: no byte of a removed row stays in the gaps of a file, so a later
    erasure of rows deleted long ago finds nothing to search for.

    Surgery that takes too long for one invocation is continued in another (partial surgery): a file of
    which only some row groups were rewritten in time is complete for every reader. Rows of the other groups
    stay under their deletes: table-wide ones because the output keeps its input's sequence, those that name
    the file because `markers_for_output` moves them to the output. The next invocation sees an ordinary
    file, needs no knowledge of earlier work, and repeats none of it.
    """
    entry = task.file
    kept = kept_in_groups(looked.kept, looked.group_rows)
    kept |= {n: BitMap(range(looked.group_rows[n])) for n in looked.recode - kept.keys()}
    source = ctx.objects.source(entry.key, entry.size, entry.etag)
    key = keys.data_key(loaded.date_us, ctx.new_id())
    assert looked.footer is not None  # by which surgery was planned
    outcome = rewrite_object(
        ctx.store,
        Location(source.store.scheme, source.store.bucket, source.key),
        ctx.key(key),
        etag=looked.etag,
        size=entry.size,
        footer=looked.footer,
        kept=kept,
        texts=looked.texts,
        executor=ctx.executor,
        goes_on=GroupTimer(ctx.clock, deadline).goes_on,
        before_retry=ctx.back_off,
    )
    metadata = parse_metadata(outcome.end, file_size=outcome.size)
    # New statistics: old bounds would still bound, but may be values of removed rows.
    entry = entry_of_file(
        metadata,
        key=key,
        size=outcome.size,
        footer_size=len(outcome.end),
        schema=task.with_values(task.schema),
        stats_columns=loaded.snapshot.stats_columns,
    )
    # Its origin is the input's, and its unchanged parts are still their writer's.
    entry = replace(entry, event=task.file.event, own=not task.file.is_foreign)
    return _Made(entry, outcome.positions, not outcome.unfinished)


def _as_a_whole(ctx: Context, loaded: LoadedTable, task: FileTask, looked: RowDecision) -> _Made:
    """Writes the rows that stay as one new file, in the same order, under the current schema."""
    schema = loaded.snapshot.schema
    tree = {} if looked.footer is None else looked.footer.tree
    described = geo_pair(tree, schema.names, looked.texts)
    # Sorting would break the position map; the rows keep the file's own order, and its partition, which may
    # be of an older spec.
    layout = replace(
        layout_of(loaded.snapshot),
        sort_by=(),
        spec=UNPARTITIONED,
        target_file_bytes=_NO_TARGET,
        key_values=described,
    )
    target, file = target_of(ctx, loaded.date_us), task.file
    known = None if file.is_foreign else (file.size - file.footer_size) / max(1, file.rows)
    [output] = write_files(
        target, _kept_rows(ctx, task, looked, schema), schema, layout, row_bytes=known
    )
    if output.rows != len(looked.kept):
        raise SourceChanged(
            f"{len(looked.kept)} rows should stay, {output.rows} were read", key=task.file.key
        )
    # What another writer says of a file is searched by the next erasure, too.
    rows = looked.group_rows
    positions = PositionMap.of(rows, kept_in_groups(looked.kept, rows))
    return _Made(replace(output, own=not described), positions)


# Several files may be rewritten at once, and each is written as slowly as one core encodes.
_AHEAD = Ahead(budget_bytes=WINDOW_BYTES)


def _kept_rows(
    ctx: Context, task: FileTask, looked: RowDecision, schema: Schema
) -> Iterator[pa.RecordBatch]:
    columns = tuple(f.id for f in schema.fields)
    projection = Projection(schema=schema, columns=columns, position=looked.has_extra)
    for batch in Reader(ctx.objects, ctx.executor, _AHEAD).rows([task], projection):
        if not looked.has_extra or not batch.num_rows:
            yield batch
            continue
        # Rows that only this commit deletes.
        at = batch.column(len(columns))
        span = BitMap(range(at[0].as_py(), at[-1].as_py() + 1))
        stays = positions_array(looked.kept & span)
        rows = batch.select(range(len(columns)))
        yield rows.filter(pc.is_in(at, value_set=stays))


def _restamped(loaded: LoadedTable, task: FileTask) -> Done:
    """No row of the file is hit: its entry records so by its sequence. Its rows do not become newer by that
    (the commit records when they were added)."""
    entry = replace(task.file, sequence=loaded.snapshot.version, data_change=False)
    unit = Unit((entry.key,), (entry,), loaded.snapshot.version, None, _of_file(task))
    return Done(unit=unit, method="restamp", read_bytes=entry.footer_size)


def dropped(loaded: LoadedTable, entry: DataFile) -> Done:
    """No row of the file is live."""
    unit = Unit((entry.key,), (), loaded.snapshot.version)
    return Done(unit=unit, method="drop", removed_rows=entry.rows)


def _of_file(task: FileTask) -> frozenset[str]:
    return frozenset(m.id for m in task.markers if m.file is not None)


def partition_for_output(
    entry: DataFile, old: Schema, new: Schema, specs: Iterable[PartitionSpec]
) -> tuple[int, Partition]:
    """Spec and partition of a file that holds rows of `entry`, recorded under schema `new`: no values where
    those written under `old` would mean something else."""
    spec = next((s for s in specs if s.id == entry.spec_id), UNPARTITIONED)
    same = old.id == new.id or all(_means_the_same(f, old, new) for f in spec.fields)
    return entry.spec_id, entry.partition if same else ()


def _means_the_same(field: PartitionField, old: Schema, new: Schema) -> bool:
    was, now = old.types.get(field.source), new.types.get(field.source)
    if was is None or now is None:
        return False
    integers = was.is_integer and now.is_integer
    decimals = was.name == now.name == "decimal" and was.scale == now.scale
    return was == now or integers or decimals

"""Advice: what one query costs and why, and what maintenance would gain, both in words.

Promise: planning is used wherever it gives the answer: a query is planned like a scan, maintenance like a
compaction. Estimates (files after, seconds) are marked as such.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from inlay.errors import InvalidRequest
from inlay.format.entry import DataFile
from inlay.format.predicate import TRUE, And, Predicate, field_ids
from inlay.format.schema import Schema
from inlay.ops.inspect.layout import Axis
from inlay.parse import format_predicate
from inlay.parse.grammar import quote_path
from inlay.plan.maintain.compaction import CompactionPlan, CompactionUnit, plan_compaction
from inlay.plan.maintain.order import order_of
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import Evidence, may_match
from inlay.plan.scan import ScanPlan
from inlay.record import Record

Facts = Mapping[str, object]


class Condition(Record, kw_only=True):
    """One part of a query's filter, and what it does on its own: `spares` files, because of `why`.
    `column` is one it looks at, "" for none."""

    text: str
    column: str
    spares: int
    why: str


class Query(Record, kw_only=True):
    """What a query with this filter reads, according to metadata: at most `rows` and `bytes`, less what row
    groups and columns save."""

    where: str
    files: int
    pruned: int
    deleted: int
    read: int
    rows: int
    bytes: int
    deletes: int
    conditions: tuple[Condition, ...]


class Work(Record, kw_only=True):
    """Units of compaction of one kind, together."""

    kind: str
    units: int
    files: int
    bytes: int
    rows: int
    files_after: int


class Maintenance(Record, kw_only=True):
    """What compaction would do now, and the result. `seconds` are of one worker; `query_files` are those
    the query reads now and afterwards."""

    works: tuple[Work, ...]
    idle_markers: int
    merges_metadata: bool
    files: int
    files_after: int
    deleted_rows: int
    seconds: float
    query_files: tuple[int, int] | None


# -- a query --------------------------------------------------------------------------------------


def explain_query(
    state: State,
    files: Sequence[DataFile],
    predicate: Predicate,
    plan: ScanPlan,
    calculated: str = "",
) -> Query:
    """`calculated` is the text of a condition that implies `predicate` and asks for more."""
    snapshot = state.snapshot
    evidence = Evidence.of_snapshot(snapshot)
    parts = predicate.parts if isinstance(predicate, And) else (predicate,)
    conditions = [_condition(p, files, evidence, snapshot.schema) for p in parts if p != TRUE]
    if calculated:
        why = "it calculates, and statistics say nothing of the rest"
        conditions.append(Condition(text=calculated, column="", spares=plan.pruned, why=why))
    return Query(
        where=calculated or format_predicate(predicate, snapshot.schema),
        files=plan.files,
        pruned=plan.pruned,
        deleted=plan.deleted,
        read=len(plan.tasks),
        rows=plan.rows,
        bytes=plan.bytes,
        deletes=plan.markers,
        conditions=tuple(conditions),
    )


def _condition(
    part: Predicate, files: Sequence[DataFile], evidence: Evidence, schema: Schema
) -> Condition:
    spares = sum(not may_match(part, evidence.of(f), f.rows) for f in files)
    looked_at = field_ids(part)
    bare: Counter[str] = Counter()
    for entry in files:
        stats = evidence.of(entry)
        for field_id in looked_at:
            if field_id not in stats:
                bare[".".join(schema.path_of(field_id) or (str(field_id),))] += 1
    if not files:
        why = "there are no files"
    elif bare:
        name, count = bare.most_common(1)[0]
        why = f"{count:,} of {len(files):,} files have no statistics of {name} (stats.columns)"
    elif spares == len(files):
        why = "no file can hold such a row"
    elif spares or len(files) == 1:
        left = len(files) - spares
        why = f"{_counted(left, 'file')} {'has' if left == 1 else 'have'} bounds that include such values"
    else:
        why = "every file has bounds that hold such values: rows are not in order of it"
    columns = sorted(path[0] for i in looked_at if (path := schema.path_of(i)) is not None)
    column = columns[0] if columns else ""
    return Condition(text=format_predicate(part, schema), column=column, spares=spares, why=why)


# -- maintenance ----------------------------------------------------------------------------------


def plan_or_nothing(state: State) -> CompactionPlan:
    try:
        return plan_compaction(state)
    except InvalidRequest:  # compact.columns may name a column that was dropped
        return CompactionPlan(())


def _files_after(unit: CompactionUnit, target_bytes: int) -> tuple[int, int]:
    """The files that a unit leaves, and how many of these a lookup opens."""
    files = min(max(1, round(unit.bytes / target_bytes)), len(unit.inputs))
    match unit.kind:
        case "drop":
            return 0, 0
        case "pack" | "fold":
            return files, files
        case "cluster":  # rows that were in many files are in one
            return files, 1


def plan_care(
    state: State,
    plan: CompactionPlan,
    files: Sequence[DataFile],
    deleted: int,
    read: frozenset[str] | None,
) -> Maintenance:
    target = state.snapshot.settings.number("write.target_file_bytes")
    works: dict[str, Work] = {}
    saved = 0
    for unit in plan.units:
        after, opened = _files_after(unit, target)
        now = works.get(
            unit.kind, Work(kind=unit.kind, units=0, files=0, bytes=0, rows=0, files_after=0)
        )
        works[unit.kind] = Work(
            kind=unit.kind,
            units=now.units + 1,
            files=now.files + len(unit.inputs),
            bytes=now.bytes + unit.bytes,
            rows=now.rows + unit.rows,
            files_after=now.files_after + after,
        )
        hit = 0 if read is None else sum(key in read for key in unit.inputs)
        saved += max(0, hit - opened)
    replaced = sum(w.files - w.files_after for w in works.values())
    return Maintenance(
        works=tuple(works.values()),
        idle_markers=len(plan.idle),
        merges_metadata=plan.metadata,
        files=len(files),
        files_after=len(files) - replaced,
        deleted_rows=deleted,
        seconds=sum(unit.seconds for unit in plan.units),
        query_files=None if read is None else (len(read), len(read) - saved),
    )


# -- in words -------------------------------------------------------------------------------------

# A lookup that opens fewer files than this is not worth a finding.
DEEP = 4
# A share of files, rows or entries that is worth one.
MUCH = 0.2
# Versions that count as new.
RECENT = 20


class Finding(Record):
    """One answer to "why is it slow": what is seen, why it is so, and the command that changes it ("" for
    none). TABLE stands for the table's URI in `command`."""

    what: str
    why: str = ""
    command: str = ""


def findings_of(
    state: State,
    axes: Sequence[Axis],
    files: Sequence[DataFile],
    tombstones: Sequence[Facts],
    query: Query | None,
    maintenance: Maintenance,
) -> Iterator[Finding]:
    """What costs queries most, in that order."""
    if not files:
        yield Finding("The table has no data files.")
        return
    if query is not None:
        yield _of_query(query, _ordered_by(state))
    deep = _depth(state, axes, files)
    if deep is not None:
        yield deep
    replaced = maintenance.files - maintenance.files_after
    if replaced > max(1, MUCH * len(files)):
        yield Finding(
            f"{_counted(len(files), 'file')} could be {maintenance.files_after:,}.",
            "Many are small, and each costs every full scan two requests.",
            "inlay compact TABLE",
        )
    evaluated = [m for m in tombstones if m["file"] is None and m["files_hit"]]
    if evaluated:
        worst = evaluated[0]
        yield Finding(
            f"Readers apply {_counted(len(evaluated), 'delete')} to rows as they read.",
            f"The widest is on {_counted(int(str(worst['files_hit'])), 'file')}: {worst['where']}",
            "inlay rewrite TABLE",
        )
    share = maintenance.deleted_rows / max(1, state.snapshot.totals.rows)
    if share >= MUCH:
        yield Finding(
            f"At least {share:.0%} of the stored rows are deleted.",
            "They are still read and then left out.",
            "inlay rewrite TABLE",
        )
    if maintenance.idle_markers:
        yield Finding(
            f"Compaction would drop {_counted(maintenance.idle_markers, 'delete marker')}.",
            "They make the pointer larger, which every reader fetches.",
            "inlay compact TABLE",
        )
    if maintenance.merges_metadata:
        yield Finding(
            "Metadata segments are worth merging.",
            "Many small commits have left many small ones.",
            "inlay compact TABLE",
        )
    if not maintenance.works and not maintenance.idle_markers and not maintenance.merges_metadata:
        yield Finding("There is nothing for compaction to do.")


def _ordered_by(state: State) -> str:
    """The column that compaction puts files in order of first; "" where there is none."""
    try:
        order = order_of(state.snapshot)
    except InvalidRequest:  # compact.columns may name a column that was dropped
        return ""
    return ".".join(state.snapshot.schema.path_of(order.columns[0]) or ()) if order else ""


def _of_query(query: Query, ordered_by: str) -> Finding:
    """The query's cost, and which of its conditions spares least."""
    what = (
        f"The query reads {query.read:,} of {_counted(query.files, 'file')}: "
        f"at most {_counted(query.rows, 'row')}, with {_counted(query.deletes, 'delete')} to apply."
    )
    if query.read <= max(1, MUCH * query.files) or not query.conditions:
        return Finding(what)
    worst = min(query.conditions, key=lambda condition: condition.spares)
    why = f"{worst.text} alone spares {worst.spares:,}: {worst.why}."
    if not worst.column:
        return Finding(what, why)
    if worst.column == ordered_by:
        return Finding(what, why, "inlay compact TABLE")
    return Finding(what, why, f"inlay set TABLE compact.columns={_named(worst.column)}")


def _named(column: str) -> str:
    """The name as a shell and the property take it."""
    return column if column.isidentifier() else shlex.quote(quote_path((column,)))


def _depth(state: State, axes: Sequence[Axis], files: Sequence[DataFile]) -> Finding | None:
    for axis in axes[:1]:
        if axis.mean_depth < DEEP or axis.mean_depth <= MUCH / 2 * len(files):
            return None
        what = (
            f"A lookup of one value of {axis.column} opens {axis.mean_depth:,.0f} of "
            f"{_counted(len(files), 'file')} on average."
        )
        if not _ordered_by(state):
            why = (
                f"Nothing keeps files in order of {axis.column}: each holds values from everywhere."
            )
            return Finding(what, why, f"inlay set TABLE compact.columns={_named(axis.column)}")
        newest = max(f.newest_rows for f in files)
        recent = sum(f.newest_rows > newest - RECENT for f in files)
        why = (
            f"Each commit writes files over the whole range of {axis.column}, and compaction has not "
            f"ordered them yet: {recent:,} came within {RECENT} versions of the newest."
        )
        return Finding(what, why, "inlay compact TABLE")
    return None


def _counted(count: int, one: str) -> str:
    return f"{count:,} {one}" + ("" if count == 1 else "s")

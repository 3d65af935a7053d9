"""Row groups: which of a file are read, and which are read together.

Promise: a row group is left out only when statistics and positions prove that no row of it is selected;
what they decide for all of its rows is not evaluated again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.format.entry import ColumnStats
from inlay.format.predicate import TRUE
from inlay.format.schema import Schema
from inlay.parquet.footer.decoded_size import check_memory, chunk_bytes
from inlay.parquet.read.data_file import OpenFile
from inlay.parquet.read.deleted_rows import NO_DELETES, GroupDeletes
from inlay.parquet.read.selection import PredicateFilter, RowFilter, Wanted, top_columns
from inlay.parquet.read.statistics import Leaf, absent_fields, group_stats, leaves_of
from inlay.plan.pruning.absent_columns import Absent

# Units that fit the budget side by side, so that one is fetched while another is decoded.
UNITS_IN_BUDGET = 4
# Chunks with fewer values are not checked for the length of their texts: they take little memory.
MANY_VALUES = 10_000
# The size of a decoded value, when the footer does not show it because of a dictionary; others take 8.
_DECODED_BYTES = {"BYTE_ARRAY": 24, "FIXED_LEN_BYTE_ARRAY": 16}


@dataclass(frozen=True, slots=True)
class Group:
    """A row group that may have rows to give, and what must be asked of them: that `filters` select
    them, that `deletes` delete none of them, that `only`, unless None, would delete each of them. `stats`
    and `leaves` are of the columns that `filters` look at, as far as these may be believed; `fields` and
    their top-level columns `judged_by` are what filters and deletes look at."""

    ordinal: int
    first_row: int
    rows: int
    filters: tuple[RowFilter, ...]
    deletes: GroupDeletes
    only: GroupDeletes | None
    stats: Mapping[int, ColumnStats]
    leaves: Mapping[int, Leaf]
    fields: frozenset[int]
    judged_by: tuple[int, ...]

    @property
    def is_picked(self) -> bool:
        """Whether few of its rows may be selected: then single pages are worth finding."""
        return bool(self.filters) or self.only is not None


def plan_groups(file: OpenFile, wanted: Wanted) -> Iterator[Group]:
    """The row groups of a task that may have a selected row, in file order."""
    task = file.task
    filters: list[RowFilter] = []
    if task.predicate != TRUE:
        filters.append(PredicateFilter(task.predicate))
    if wanted.where is not None:
        if wanted.where.fields:
            filters.append(wanted.where)
        elif not _selects_all(wanted.where):
            return
    only = (file.only or NO_DELETES).fields
    fields = file.deletes.fields.union(only, *(f.fields for f in filters))
    known = leaves_of(file.metadata, file.columns, wanted.schema, fields)
    leaves = Leaves({} if task.by_rows else known, {} if task.decides_by_rows else known)
    absent = absent_fields(file.columns, wanted.schema, fields)
    chosen = None if task.row_groups is None else frozenset(task.row_groups)
    first_row = 0
    for ordinal in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(ordinal).num_rows
        if rows and (chosen is None or ordinal in chosen):
            group = _plan_group(file, wanted, filters, leaves, absent, ordinal, first_row, rows)
            if group is not None:
                yield group
        first_row += rows


def _selects_all(found: RowFilter) -> bool:
    """Whether a filter that looks at no column, such as 1 = 2, selects every row or none. Where nothing is
    read for a filter, no row would ask it."""
    any_row = pa.record_batch([pa.nulls(1)], names=[""])
    return bool(found.selected(any_row, Schema(0, ()))[0].as_py())


@dataclass(frozen=True, slots=True)
class Leaves:
    """The columns whose statistics filters use, and those that deletes use."""

    of_filters: Mapping[int, Leaf]
    of_deletes: Mapping[int, Leaf]


def _plan_group(
    file: OpenFile,
    wanted: Wanted,
    filters: Sequence[RowFilter],
    leaves: Leaves,
    absent: Mapping[int, Absent],
    ordinal: int,
    first_row: int,
    rows: int,
) -> Group | None:
    """None when statistics and positions alone prove that no row of it is selected. Another writer's are no
    proof that all rows are."""
    foreign = file.task.file.is_foreign
    of_filters = stats = group_stats(file.metadata, ordinal, leaves.of_filters, absent)
    left = []
    for found in filters:
        settled = found.settle(stats, rows)
        if settled == "none":
            return None
        if settled == "some" or foreign:
            left.append(found)
    if leaves.of_deletes is not leaves.of_filters:
        stats = group_stats(file.metadata, ordinal, leaves.of_deletes, absent)
    sure = group_stats(file.metadata, ordinal, {}, absent) if foreign else stats
    deletes = file.deletes.of_group(ordinal, first_row, rows, stats, sure)
    if deletes is None:
        return None
    only: GroupDeletes | None = None
    if file.only is not None:
        only = file.only.of_group(ordinal, first_row, rows, stats, sure)
        if only is not None and not only.any:
            return None
    asked: list[RowFilter | GroupDeletes] = [*left, deletes, *([] if only is None else [only])]
    fields = frozenset[int]().union(*(each.fields for each in asked))
    return Group(
        ordinal,
        first_row,
        rows,
        tuple(left),
        deletes,
        only,
        of_filters,
        leaves.of_filters,
        fields,
        judged_by=top_columns(wanted.schema, fields),
    )


def _may_repeat_texts(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether a dictionary may hide the length of the values; then Inlay's own decoder is used, which reads
    what Arrow does not expose of a footer."""
    stored: int = chunk.total_uncompressed_size
    return bool(
        chunk.physical_type == "BYTE_ARRAY"
        and chunk.has_dictionary_page
        and chunk.num_values >= MANY_VALUES
        and stored < 8 * chunk.num_values
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """Groups that are read together, and the memory they will take: `stored_bytes` once fetched, with what
    they are judged by, and `decoded_bytes` besides."""

    groups: tuple[Group, ...]
    stored_bytes: int
    decoded_bytes: int


def in_units(
    file: OpenFile, wanted: Wanted, *, unit_bytes: int, budget_bytes: int
) -> Iterator[Piece]:
    """Adjacent groups in runs of about `unit_bytes`: each takes at most a part of the budget, however well
    the groups are compressed (or one group)."""
    most = budget_bytes // UNITS_IN_BUDGET
    run: list[Group] = []
    stored = cost = judged = 0
    for group in plan_groups(file, wanted):
        tops = (*wanted.columns, *group.judged_by)
        chunks = file.chunks(group.ordinal, tops)
        stored_here = sum(c.total_compressed_size for c in chunks)
        decoded_here = _decoded(chunks)
        if any(_may_repeat_texts(c) for c in chunks) and file.footer is not None:
            columns = file.footer.row_groups[group.ordinal].columns
            decoded = sum(chunk_bytes(columns[leaf]) for leaf in file.leaves(tops))
            decoded_here = max(decoded_here, decoded)
        check_memory(decoded_here, key=file.task.file.key)
        cost_here = stored_here + decoded_here
        if run and (stored + stored_here > unit_bytes or cost + cost_here > most):
            yield Piece(tuple(run), stored + judged, cost - stored - judged)
            run, stored, cost, judged = [], 0, 0, 0
        run.append(group)
        stored += stored_here
        cost += cost_here
        if group.fields:
            looked_at = file.chunks(group.ordinal, group.judged_by)
            judged += min(_decoded(looked_at), decoded_here)
    if run:
        yield Piece(tuple(run), stored + judged, cost - stored - judged)


def _decoded(chunks: Iterable[pq.ColumnChunkMetaData]) -> int:
    """Bytes of column chunks once decoded, by their footer."""
    return sum(
        max(c.total_uncompressed_size, c.num_values * _DECODED_BYTES.get(c.physical_type, 8))
        for c in chunks
    )

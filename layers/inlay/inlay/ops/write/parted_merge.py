"""A merge of change records that other processes compare with the table, and write.

Promise: as of `ops.write.apply_changes`. Deletes are remembered (`ops.write.memory`) by both alike, so that
a record that arrives later than a newer delete of its key is late; also beside another merge. What others
add or delete between the keys of the records makes the merge begin again, on the newer version; where they
have only remembered deletes of other keys, what was written is committed as it is.

The rows of existing keys are deleted by position where this stream wrote them recently (`RecentRows`), else
by their keys: such a marker applies only to rows of earlier commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from inlay.format.entry import DataFile, Marker
from inlay.format.predicate import TRUE
from inlay.format.properties import REMEMBERED
from inlay.format.snapshot import Snapshot
from inlay.ops.commit.driver import (
    Committed,
    Planned,
    WriteResult,
    commit_planned,
    write_result,
)
from inlay.ops.context import Context
from inlay.ops.data import check_fits
from inlay.ops.metadata.load import LoadedTable, load_entries
from inlay.ops.schema.alter import admit_columns
from inlay.ops.write.delete import key_markers
from inlay.ops.write.delete_rows import by_vectors
from inlay.ops.write.in_parts import PartedWrite
from inlay.ops.write.keyed_rows import given_columns, key_names
from inlay.ops.write.memory import Memory
from inlay.ops.write.parted_change import united
from inlay.ops.write.recent_rows import RecentRows, find_positions
from inlay.parse import parse_predicate
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    AdvanceStream,
    Change,
    Reads,
    Request,
    SameProperty,
    SetProperties,
)
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import plan_scan
from inlay.record import Record, replace

# The condition that holds for the keys of the records, as SQL, where these are in the given columns.
WhereOf = Callable[[Sequence[str]], str | None]


class MergedPart(Record):
    """What one task wrote."""

    files: tuple[DataFile, ...]
    markers: tuple[Marker, ...]
    located: Mapping[str, BitMap64]
    records: int
    deleted: int
    replaced: int  # keys that the table had


class MergeWriter(Record, kw_only=True):
    """What a process that writes needs to know; it pickles. Records have the table's columns, but for
    those of `kept` in which it lacks values, and those of `FLAGS`."""

    rows: PartedWrite
    keys: tuple[str, ...]
    kept: tuple[str, ...]
    recent: tuple[DataFile, ...]

    def write(self, ctx: Context, records: Iterable[pa.RecordBatch]) -> MergedPart:
        """Writes the rows, and the keys whose rows in the table they replace. In columns of `kept` only
        these have values, those of the replaced row; new rows have the table's defaults."""
        deletes, replaces = PartedMerge.FLAGS
        there: list[pa.RecordBatch] = []
        number = deleted = 0

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal number, deleted
            for batch in records:
                gone = batch.column(deletes)
                number += batch.num_rows
                deleted += gone.true_count
                there.append(batch.filter(batch.column(replaces)).select(list(self.keys)))
                # A delete record may lack what the table requires of a row.
                new = batch.filter(pc.invert(gone))
                is_old = pa.repeat(pa.scalar(False), new.num_rows)
                if self.kept:
                    is_old = new.column(replaces)
                for some, unknown in ((is_old, ()), (pc.invert(is_old), self.kept)):
                    made = new.filter(some).drop_columns([deletes, replaces, *unknown])
                    if made.num_rows:
                        yield made

        files = self.rows.write(ctx, rows())
        replaced = sum(batch.num_rows for batch in there)
        markers: tuple[Marker, ...] = ()
        located: dict[str, BitMap64] = {}
        if replaced:
            table = self.rows.table
            keys = pa.Table.from_batches(there)
            if self.recent:
                located, keys = find_positions(ctx, table.snapshot.schema, self.recent, keys)
            markers = tuple(key_markers(ctx, table, keys))
        return MergedPart(files, markers, located, number, deleted, replaced)


class PartedMerge:
    """A merge on one version: `begin` it, then let others compare and write, then say that it is `ready`.
    `FLAGS` are columns of what they write: whether a record deletes, and whether the table has its key."""

    FLAGS: ClassVar = ("__inlay_deleted", "__inlay_replaces")

    def __init__(
        self,
        ctx: Context,
        table: LoadedTable,
        *,
        request: Request | None = None,
        stream: tuple[str, int] | None = None,
        recent: RecentRows | None = None,
    ) -> None:
        self.table = table
        self._ctx = ctx
        self._request = request
        self._stream = stream
        self._recent = recent
        self._keys: tuple[str, ...] = ()
        self._kept: tuple[str, ...] = ()
        self._files: tuple[DataFile, ...] = ()
        self._parts: Sequence[MergedPart] = ()
        self._memory: Memory | None = None
        self._where: WhereOf = _of_any
        self._made: Change | None = None
        self._tried: str | None = None  # what is remembered, as of the last try to commit

    @property
    def snapshot(self) -> Snapshot:
        return self.table.snapshot

    # -- what is merged -----------------------------------------------------------------------

    @staticmethod
    def admit_columns(ctx: Context, loaded: LoadedTable, data: pa.Schema) -> LoadedTable:
        """The table with the columns that data brings, if it is to get them: by a commit of its own."""
        return admit_columns(ctx, loaded, [data])

    def key_names(self, on: Sequence[str]) -> tuple[str, ...]:
        """The columns of `on`, by default those of the primary key. Raises `InvalidRequest` and
        `SchemaMismatch`."""
        return key_names(self._ctx, self.table, on, "merge")

    def given(self, data: pa.Schema, needed: Sequence[str]) -> tuple[str, ...]:
        """The table's columns that the records have, among them those that are `needed`. Raises
        `SchemaMismatch` for data that cannot be merged, whatever its values."""
        given = given_columns(self._ctx, data, self.snapshot.schema, needed, "merge")
        check_fits(data, given)
        return given.names

    def begin(self, keys: Sequence[str], order: Sequence[str], kept: Sequence[str]) -> None:
        """By these columns; those of `kept` keep their values."""
        self._keys, self._kept = tuple(keys), tuple(kept)
        if self._recent is not None or kept:
            self.table = replace(self.table, state=load_entries(self._ctx, self.table.state))
        if self._recent is not None:
            self._files = self._recent.look(self.table.state)
        fields = {field.name: field for field in self.snapshot.schema.fields}
        self._memory = Memory(self._ctx, [fields[n] for n in keys], [fields[n] for n in order])
        if self.remembers:
            # After the table: what is remembered by now includes every delete that the table shows.
            self._memory.open()

    @property
    def memory(self) -> Memory:
        assert self._memory is not None
        return self._memory

    @property
    def remembers(self) -> bool:
        """Whether there are deletes that records are to be compared with, in `memory`."""
        return REMEMBERED in self.snapshot.properties

    def writer(self) -> MergeWriter:
        rows = PartedWrite(table=self.table.without_entries())
        return MergeWriter(rows=rows, keys=self._keys, kept=self._kept, recent=self._files)

    # -- what was done ------------------------------------------------------------------------

    @property
    def written(self) -> int:
        """Records that counted."""
        return sum(part.records for part in self._parts)

    @property
    def rows(self) -> int:
        return sum(file.rows for part in self._parts for file in part.files)

    @property
    def deleted(self) -> int:
        return sum(part.deleted for part in self._parts)

    @property
    def located(self) -> int:
        return sum(len(rows) for part in self._parts for rows in part.located.values())

    def ready(self, parts: Sequence[MergedPart], where: WhereOf) -> bool:
        """What tasks have written, for records between these bounds; False: that is nothing."""
        self._parts, self._where = parts, where
        files = tuple(file for part in parts for file in part.files)
        is_known = not self.deleted or self.memory.head == self.snapshot.properties.get(REMEMBERED)
        is_nothing = is_known and not files and not any(part.replaced for part in parts)
        if is_nothing and self._request is None:
            return False
        gone = united([part.located for part in parts])
        emptied, marked = by_vectors(self._ctx, self.table, gone)
        by_key = (marker for part in parts for marker in part.markers)
        self._made = Change(
            operation="merge",
            request=self._request,
            updates=(
                AddFiles(files),
                AddMarkers((*by_key, *marked.markers)),
                emptied,
                *(() if self._stream is None else (AdvanceStream(*self._stream),)),
            ),
            uploaded_us=self.table.date_us,
            deleted_rows=None,
            requires=(self._reads(),),
        )
        return True

    def _reads(self) -> Reads:
        """The rows that records were compared with. Where values of theirs are kept, none may have been
        deleted since, either: the new row would bring them back."""
        snapshot, state = self.snapshot, self.table.state
        where = self._where(self._keys)
        predicate = None if where is None else parse_predicate(where, snapshot.schema)
        files: frozenset[str] = frozenset()
        if self._kept:
            evidence = Evidence.of_snapshot(snapshot)
            plan = plan_scan(state.files(), state.markers(), predicate or TRUE, evidence=evidence)
            files = frozenset(task.file.key for task in plan.tasks)
        return Reads(predicate, snapshot.version, files)

    def change(self, snapshot: Snapshot) -> Change:
        """To be committed on this snapshot or a later one with the same deletes."""
        assert self._made is not None
        self._tried = snapshot.properties.get(REMEMBERED)
        head = (SetProperties({REMEMBERED: self.memory.head}),) if self.deleted else ()
        return replace(
            self._made,
            updates=(*self._made.updates, *head),
            requires=(*self._made.requires, SameProperty(REMEMBERED, self._tried)),
        )

    def holds(self, now: LoadedTable) -> bool:
        """Whether others have only remembered deletes since, and none of these keys, and the files of this
        merge are still safe from garbage collection."""
        snapshot = now.snapshot
        if self.table.date_us < (snapshot.boundary.time_us or 0):
            return False
        remembered = snapshot.properties.get(REMEMBERED)
        if remembered in (None, self._tried) or snapshot.schema_id != self.snapshot.schema_id:
            return False
        # After the table, as when records are judged.
        return self.memory.is_known(self._where(self.memory.columns))

    # -- the commit ---------------------------------------------------------------------------

    @classmethod
    def commit(
        cls,
        ctx: Context,
        loaded: LoadedTable,
        carry_out: Callable[[PartedMerge], bool],
        *,
        request: Request | None,
        stream: tuple[str, int] | None,
        recent: RecentRows | None,
        plans: int,
    ) -> WriteResult:
        """Commits what `carry_out` has made `ready` (False: nothing is to be done), which is called at most
        `plans` times. `stream` is the micro-batch of a query, which the table keeps for good. `recent`
        learns what was committed."""
        last: PartedMerge | None = None
        change = Change(operation="merge")

        def plan(now: LoadedTable) -> Planned | None:
            nonlocal last, change
            if last is None or not last.holds(now):
                last = cls(ctx, now, request=request, stream=stream, recent=recent)
                if not carry_out(last):
                    last = None
                    return None
                now = last.table
            change = last.change(now.snapshot)
            return Planned(change, now)

        outcome = commit_planned(ctx, loaded, plan, plans=plans)
        if recent is not None and isinstance(outcome, Committed):
            recent.add(change.added, change.markers, change.removed)
        return write_result("merge", outcome)


def _of_any(columns: Sequence[str]) -> str | None:
    return None

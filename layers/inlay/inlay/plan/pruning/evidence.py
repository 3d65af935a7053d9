"""Evidence: what metadata proves about the rows of a file, for pruning and for deletes by metadata.

Promise: code that needs to know what a predicate or delete can do to a file uses this, never `entry.stats`:
those are of the schema that the entry records, and do not cover the file's partition. A field's statistics
are computed on demand; most files are ruled out by one or two fields. Another writer's statistics may leave
a file out of a scan. Code that concludes from statistics that rows match, or that must miss no row, such as
an erasure, uses `trusted`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from inlay.format.entry import ColumnStats, DataFile
from inlay.format.schema import Primitive, Schema, Value
from inlay.format.snapshot import PartitionSpec, Segment, Snapshot
from inlay.format.values import truncate_lower, truncate_upper
from inlay.format.widening import widened, widens
from inlay.plan.pruning.absent_columns import Absent, absent
from inlay.plan.pruning.partitions import with_partition
from inlay.plan.pruning.prune import Stats, combined_stats

# Characters or bytes of a bound in a reference: there are many references, and some are in the pointer.
REFERENCE_TEXT = 16
# Bytes of a fixed-width bound: digests have up to 64.
MAX_FIXED_BOUND = 64
# No partition spec has this id.
_NO_SPEC = -1


class Evidence:
    """Evidence for the files of one table. Predicates and markers are bound to `schema`; statistics of
    columns widened since are converted to its types."""

    def __init__(
        self, schema: Schema, schemas: Iterable[Schema] = (), specs: Iterable[PartitionSpec] = ()
    ) -> None:
        self.schema = schema
        self.schemas: Mapping[int, Schema] = {s.id: s for s in (*schemas, schema)}
        self._absent: dict[tuple[int, int, int], Absent | None] = {}
        self._specs = {spec.id: spec for spec in specs if spec.fields}
        self._sources = {i: {f.source for f in spec.fields} for i, spec in self._specs.items()}

    @staticmethod
    def of_snapshot(snapshot: Snapshot) -> Evidence:
        return Evidence(snapshot.schema, snapshot.schemas, snapshot.specs)

    def of(self, entry: DataFile) -> Stats:
        """What is known about a file's columns, by field id."""
        return _Known(self, entry)

    def trusted(self, entry: DataFile) -> Stats:
        """What is known without relying on another writer's footer: for a foreign file no bounds, no null
        counts, and not its partition, which was derived from them."""
        if entry.is_foreign:
            entry = replace(entry, stats={}, spec_id=_NO_SPEC, partition=())
        return self.of(entry)

    def column(
        self, entry: DataFile, field_id: int, schema: Schema | None = None
    ) -> ColumnStats | None:
        """What is known about a column, in the type it has in `schema` (default: the table's)."""
        schema = schema or self.schema
        found = entry.stats.get(field_id)
        spec = self._specs.get(entry.spec_id)
        if spec is not None and field_id in self._sources[spec.id]:
            recorded = self.schemas[entry.schema_id]
            found = with_partition(found or ColumnStats(), entry, recorded, spec, field_id)
        if found is None:
            # Written before the column was added: NULL in each row, or the default.
            lacks = self._lacks(entry.schema_id, field_id, schema)
            return None if lacks is None else lacks.stats(entry.rows)
        was = self.schemas[entry.schema_id].types.get(field_id)
        now = schema.types.get(field_id)
        return found if was is None or now is None else in_type(found, was, now)

    def _lacks(self, schema_id: int, field_id: int, schema: Schema) -> Absent | None:
        place = (schema_id, schema.id, field_id)
        if place not in self._absent:
            has = self.schemas[schema_id].fields_by_id
            self._absent[place] = absent(schema, field_id, lambda field: field.id in has)
        return self._absent[place]

    def of_files(
        self, entries: Sequence[DataFile], columns: Iterable[int]
    ) -> tuple[int, dict[int, ColumnStats]]:
        """(schema id, bounds in its types) of columns over the rows of many files, for a reference to all
        of them. A column that one of them does not bound has none."""
        newest = self.schemas[max(e.schema_id for e in entries)]
        wanted = [i for i in columns if i in newest.types]

        def known(entry: DataFile) -> dict[int, ColumnStats]:
            found = ((i, self.column(entry, i, newest)) for i in wanted)
            return {
                # So that versions of this library without `sure` do not rely on it.
                i: replace(column, exact=False) if entry.is_foreign else column
                for i, column in found
                if column is not None
            }

        found = combined_stats((known(e), e.rows) for e in entries)
        sure = not any(entry.is_foreign for entry in entries)
        return newest.id, {
            i: replace(shortened(c, REFERENCE_TEXT), sure=sure)
            for i, c in found.items()
            if _bounds(c)
        }

    def of_references(self, references: Sequence[Segment]) -> tuple[int, dict[int, ColumnStats]]:
        """The same over everything under many references."""
        newest = max(s.schema_id for s in references)
        found = combined_stats((self._of_reference(s, newest), s.rows) for s in references)
        return newest, {i: c for i, c in found.items() if _bounds(c)}

    def of_reference(self, reference: Segment) -> Stats:
        """What is known about the columns of all files under a reference."""
        return self._of_reference(reference, self.schema.id)

    def _of_reference(self, reference: Segment, schema_id: int) -> dict[int, ColumnStats]:
        types = self.schemas[schema_id].types
        typed = ((i, c, types.get(i)) for i, c in reference.stats.items())
        return {i: in_type(c, c.kind or now, now) for i, c, now in typed if now is not None}

    def lower(self, entry: DataFile, field_id: int) -> Value | None:
        """The lower bound of a column, in the type it has in `schema`."""
        column = self.column(entry, field_id)
        return None if column is None else column.lower

    def listed(self, entry: DataFile) -> set[int]:
        return set(entry.stats) | self._sources.get(entry.spec_id, set())


def trusted_under(reference: Segment) -> Stats:
    """What is known of all files under a reference without relying on another writer's footer. Of one that
    an older version of this library wrote, nothing: it does not say whose files it covers."""
    return {field_id: column for field_id, column in reference.stats.items() if column.sure}


def in_type(column: ColumnStats, source: Primitive, target: Primitive) -> ColumnStats:
    """In the type `target`; unknown unless `target` is the same or wider."""
    if source == target:
        return column if column.kind == target else replace(column, kind=target)
    if not widens(source, target):
        return ColumnStats(null_count=column.null_count, has_nan=column.has_nan, kind=target)
    lower, upper = (
        None if bound is None else widened(bound, source, target)
        for bound in (column.lower, column.upper)
    )
    return replace(column, lower=lower, upper=upper, kind=target)


def _bounds(column: ColumnStats) -> bool:
    return column.lower is not None or column.upper is not None


def shortened(column: ColumnStats, length: int) -> ColumnStats:
    """With bounds of at most `length` code points or bytes. Fixed-width bounds stay whole or are dropped: a
    part of one is not a value of its type, and the metadata could not be read."""
    lower, upper = column.lower, column.upper
    if column.kind is not None and column.kind.name == "fixed":
        fits = all(not isinstance(b, bytes) or len(b) <= MAX_FIXED_BOUND for b in (lower, upper))
        return column if fits else replace(column, lower=None, upper=None)
    if isinstance(lower, str | bytes):
        lower = truncate_lower(lower, length)
    if isinstance(upper, str | bytes):
        upper = truncate_upper(upper, length)
    same = (lower, upper) == (column.lower, column.upper)
    return column if same else replace(column, lower=lower, upper=upper, exact=False)


class _Known(Mapping[int, ColumnStats]):
    """A file's evidence as a mapping. Columns that the file was written without can be looked up, but are
    not listed: there is no limit to them."""

    __slots__ = ("_entry", "_evidence", "_found")

    def __init__(self, evidence: Evidence, entry: DataFile) -> None:
        self._evidence = evidence
        self._entry = entry
        self._found: dict[int, ColumnStats | None] = {}

    def __getitem__(self, field_id: int) -> ColumnStats:
        if field_id not in self._found:
            self._found[field_id] = self._evidence.column(self._entry, field_id)
        found = self._found[field_id]
        if found is None:
            raise KeyError(field_id)
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._evidence.listed(self._entry))

    def __len__(self) -> int:
        return len(self._evidence.listed(self._entry))

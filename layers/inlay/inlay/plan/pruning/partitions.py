"""Partitions: what the partition of a file proves about its rows.

Promise: a partition value holds for every row of the file, so pruning by it is never wrong. A file
without partition values, though its spec has fields, is in no single partition: nothing is concluded.

Partition values are interpreted under the spec *and* the schema that the file's entry records; both stay
with the table for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from inlay.errors import CorruptTable
from inlay.format.entry import ColumnStats, DataFile
from inlay.format.partition import (
    MAX_SPECS,
    Partition,
    Transform,
    decode_partition,
    parse_transform,
    partition_of,
    result_type,
    values_of,
)
from inlay.format.schema import Field, Primitive, Schema, Value
from inlay.format.snapshot import PartitionField, PartitionSpec, Snapshot
from inlay.format.values import is_nan, order_key, widened
from inlay.plan.answers import Conflict
from inlay.record import Record, replace

if TYPE_CHECKING:
    from inlay.plan.change import SetPartitioning

GroupKey = tuple[int, Partition]


def group_key(entry: DataFile) -> GroupKey:
    """Files with equal keys may be packed together without losing pruning."""
    return entry.spec_id, entry.partition


def spans_partitions(entry: DataFile, specs: Iterable[PartitionSpec]) -> bool:
    """Whether a file may hold rows of several partitions of its own spec."""
    return not entry.partition and any(s.id == entry.spec_id and s.fields for s in specs)


# -- changing the spec ----------------------------------------------------------------------------


def has_partitioning(snapshot: Snapshot, edit: SetPartitioning) -> bool:
    """Whether there is nothing to change, or another commit made the same change."""
    return snapshot.spec.fields == edit.fields


def validate_spec(snapshot: Snapshot, edit: SetPartitioning) -> Conflict | None:
    """Why the table cannot be partitioned this way. Existing files stay as they are in any case."""
    if edit.planned_on != snapshot.spec_id:
        return Conflict("the table was partitioned in another way by another commit")
    if not applies_to(edit.fields, snapshot.schema):
        return Conflict("a column of the requested partitioning was dropped or has another type")
    known = any(spec.fields == edit.fields for spec in snapshot.specs)
    if not known and len(snapshot.specs) >= MAX_SPECS:
        return Conflict(f"the table has been partitioned in {MAX_SPECS} ways, which is the maximum")
    return None


def repartitioned(snapshot: Snapshot, edit: SetPartitioning) -> Snapshot:
    """The snapshot under the requested spec: one it had before, or a new one."""
    same = next((spec for spec in snapshot.specs if spec.fields == edit.fields), None)
    if same is not None:
        return replace(snapshot, spec_id=same.id)
    spec = PartitionSpec(max(spec.id for spec in snapshot.specs) + 1, edit.fields)
    return replace(snapshot, specs=(*snapshot.specs, spec), spec_id=spec.id)


def applies_to(fields: tuple[PartitionField, ...], schema: Schema) -> bool:
    """Whether the columns of a spec exist, with types that its transforms accept."""
    return all(
        (kind := schema.types.get(field.source)) is not None
        and result_type(parse_transform(field.transform), kind) is not None
        for field in fields
    )


# -- what a partition value says ------------------------------------------------------------------


def value_in(field: Field, partition: Partition) -> Value | None:
    """The value of a column that a file lacks, from its entry's partition; in the field's type. Raises
    `CorruptTable` where there is none."""
    assert field.in_partition is not None and isinstance(field.type, Primitive)
    if field.in_partition >= len(partition):
        raise CorruptTable(
            f"the partition of a file that lacks column {field.name!r} has no value for it"
        )
    return decode_partition(Transform("identity"), field.type, partition[field.in_partition])


def with_partition_values(schema: Schema, recorded: Schema, partition: Partition) -> Schema:
    """`schema` as a file recorded under `recorded` is read by: what its partition says of columns that the
    file lacks, as their default. So whatever treats a missing column is right for these as well."""

    def valued(field: Field) -> Field:
        was = recorded.in_partition.get(field.id)
        if was is None or not isinstance(was.type, Primitive):
            return field
        value = value_in(was, partition)
        if value is not None:
            assert isinstance(field.type, Primitive)
            value = widened(value, was.type, field.type)
        return replace(field, default=value, in_partition=None)

    return replace(schema, fields=tuple(map(valued, schema.fields)))


class PartitionFact(Record):
    """Every value of a column, none NULL, has this partition value (as written)."""

    transform: Transform
    source: Primitive
    value: Value

    def admits_any(self, kind: Primitive, values: tuple[Value, ...]) -> bool:
        """False only when no value of the column is one of these. `kind` may be wider than the type the
        file was partitioned under."""
        comparable = kind == self.source or (
            self.transform.name == "bucket" and _hash_alike(kind, self.source)
        )
        return not comparable or self.value in _partitions(self.transform, kind, values)

    def admits_prefix(self, prefix: str) -> bool:
        """False only when no value of the column, a text, starts with the prefix."""
        if not isinstance(self.value, str):  # a bucket
            return True
        return self.value.startswith(prefix) or prefix.startswith(self.value)


def _hash_alike(a: Primitive, b: Primitive) -> bool:
    """Whether equal values of these types are in the same bucket."""
    return (
        (a.is_integer and b.is_integer)
        or (a.name == b.name and a.scale == b.scale)
        or a.family == b.family == "bytes"
    )


# The same few literals are tested for each file that bounds do not rule out.
@lru_cache(maxsize=256)
def _partitions(
    transform: Transform, kind: Primitive, values: tuple[Value, ...]
) -> frozenset[Value | None]:
    return frozenset(partition_of(transform, kind, value) for value in values)


class PartitionedStats(ColumnStats):
    """Statistics of a column in one partition: besides bounds, which single values can occur."""

    facts: tuple[PartitionFact, ...] = ()


def with_partition(
    stats: ColumnStats, entry: DataFile, recorded: Schema, spec: PartitionSpec, field_id: int
) -> ColumnStats:
    """`stats` of a field of a file, narrowed by its partition; in the types of `recorded`."""
    kind = recorded.types.get(field_id)
    if kind is None or len(entry.partition) != len(spec.fields):
        return stats
    for field, value in zip(spec.fields, entry.partition, strict=True):
        if field.source == field_id:
            transform = parse_transform(field.transform)
            if value is None:
                return ColumnStats(null_count=entry.rows, has_nan=False, kind=kind)
            stats = _narrowed(stats, PartitionFact(transform, kind, value))
    return stats


def _narrowed(stats: ColumnStats, fact: PartitionFact) -> ColumnStats:
    decoded = decode_partition(fact.transform, fact.source, fact.value)
    if decoded is None:
        return stats
    facts = (*stats.facts, fact) if isinstance(stats, PartitionedStats) else (fact,)
    if is_nan(decoded):
        # Bounds do not cover NaN, so there are none.
        return PartitionedStats(null_count=0, has_nan=True, kind=fact.source, facts=facts)
    bounds = values_of(fact.transform, fact.source, decoded)
    lowers = [v for v in (stats.lower, bounds.lower) if v is not None]
    uppers = [v for v in (stats.upper, bounds.upper) if v is not None]
    lower = max(lowers, key=order_key, default=None)
    upper = min(uppers, key=order_key, default=None)
    kept = (lower, upper) == (stats.lower, stats.upper)
    return PartitionedStats(
        lower=lower,
        upper=upper,
        null_count=0,
        exact=fact.transform.name == "identity" or (kept and stats.exact),
        has_nan=False,
        kind=fact.source,
        facts=facts,
    )

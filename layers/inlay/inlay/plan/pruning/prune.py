"""What metadata alone proves about a predicate on the rows of a file: whether it can be TRUE for one,
whether it must be.

Promise: `may_match` is False only when certainly no row is TRUE, and `all_match` True only when certainly
every row is. Whatever is unknown (a missing bound, null count or NaN flag, a column without statistics)
counts as possible.

For each node of the predicate the possible results (TRUE, FALSE, NULL) over the rows are computed; And, Or
and Not combine those of their parts by three-valued logic. Columns are treated as independent, so the
answer may be too wide, never too narrow.

Bounds cover values that are neither NULL nor NaN; NaN, which is above every number, is handled separately.
A truncated bound (`exact` False) still bounds; no bound is used as a value.

A column may have been widened since the file or the predicate was written. Numbers, texts and bytes of both
types compare directly; dates and timestamps are compared in nanoseconds (`_alike`).

Absent columns, in a file that was written without them: the statistics given here are those of the rows as
read (by `parquet.arrow.conform`): the field's default in each row, NULL where it has none or where its
struct is NULL.

`Evidence` is what metadata proves about the rows of a file, for pruning and for deletes by metadata: code
that needs to know what a predicate or delete can do to a file uses this, never `entry.stats`: those are of
the schema that the entry records, and do not cover the file's partition. A field's statistics are computed
on demand; most files are ruled out by one or two fields. Another writer's statistics may leave a file out
of a scan. Code that concludes from statistics that rows match, or that must miss no row, such as an
erasure, uses `trusted`.

Added columns, under a condition on rows written before: where a column was added later, its part of the
condition has the value of the rows: the column's default, or NULL. A column that was dropped stays in the
condition: files may hold its values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal as OneOf

from inlay.format.entry import ColumnStats, DataFile, KeyRange, Keys
from inlay.format.predicate import (
    NEGATED,
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    field_ids,
    like_exact,
    like_prefix,
    mapped,
)
from inlay.format.schema import Field, Primitive, Schema, Value, fields_within
from inlay.format.snapshot import PartitionSpec, Segment, Snapshot
from inlay.format.values import (
    compare,
    is_nan,
    nanos_per_step,
    order_key,
    truncate_lower,
    truncate_upper,
    widened,
    widens,
)
from inlay.plan.pruning.partitions import PartitionedStats, value_in, with_partition
from inlay.record import Record, replace

Stats = Mapping[int, ColumnStats]

_UNKNOWN = ColumnStats()


class _Outcomes(Record):
    """The possible results over some rows; True that is not certain is only possible."""

    true: bool
    false: bool
    null: bool


Coverage = OneOf["none", "some", "all"]


def coverage(predicate: Predicate, stats: Stats, rows: int) -> Coverage:
    """How many of these rows match: "none" where not `may_match`, "all" where `all_match`."""
    if rows == 0:
        return "none"
    outcomes = _outcomes(predicate, stats, rows)
    if not outcomes.true:
        return "none"
    return "some" if outcomes.false or outcomes.null else "all"


def may_match(predicate: Predicate, stats: Stats, rows: int) -> bool:
    """False only when no row of these `rows` can make the predicate TRUE."""
    return rows > 0 and _outcomes(predicate, stats, rows).true


def all_match(predicate: Predicate, stats: Stats, rows: int) -> bool:
    """True only when each of these `rows` makes the predicate TRUE (also when there are none)."""
    outcomes = _outcomes(predicate, stats, rows)
    return rows == 0 or not (outcomes.false or outcomes.null)


def denied_by(
    field_id: int, kind: Primitive, column: ColumnStats, rows: int
) -> Iterator[Predicate]:
    """The conditions that no row of a file fulfils by the statistics of a column, so that scans leave the
    file out: a row for which one is TRUE proves the statistics wrong. A count of some NULLs leaves nothing
    out; a count above the number of rows is wrong in any case."""
    nulls = column.null_count
    if nulls is not None and nulls >= rows:
        yield Not(IsNull(field_id))
    if nulls == 0 or (nulls is not None and nulls > rows):
        yield IsNull(field_id)
    if nulls == rows:
        return
    if column.lower is not None:
        yield Comparison(field_id, "<", Literal(kind, column.lower))
    if column.upper is not None:
        above = Comparison(field_id, ">", Literal(kind, column.upper))
        nan = Literal(kind, float("nan"))  # above every number, and outside the bounds
        yield And((above, Comparison(field_id, "<", nan))) if kind.is_float else above


def range_predicate(body: KeyRange, kind: Primitive) -> Predicate:
    """The rows a key range marks; without any bound, the rows whose key is not NULL."""
    lower, upper = body.lower, body.upper
    closed = body.lower_inclusive and body.upper_inclusive
    if closed and lower is not None and upper is not None and compare(kind, lower, upper) == 0:
        # Not two inequalities: a bucket can only test single values.
        return Comparison(body.field_id, "=", Literal(kind, lower))
    parts: list[Predicate] = []
    if body.lower is not None:
        op: Operator = ">=" if body.lower_inclusive else ">"
        parts.append(Comparison(body.field_id, op, Literal(kind, body.lower)))
    if body.upper is not None:
        op = "<=" if body.upper_inclusive else "<"
        parts.append(Comparison(body.field_id, op, Literal(kind, body.upper)))
    if not parts:
        return Not(IsNull(body.field_id))
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def keys_may_match(keys: Keys, stats: Stats, rows: int) -> bool:
    """False only when no row can equal a key: in some column the value ranges do not meet."""
    return (
        rows > 0
        and keys.rows > 0
        and all(
            _may_meet(keys.stats.get(id_, _UNKNOWN), keys.rows, stats.get(id_, _UNKNOWN), rows)
            for id_ in keys.field_ids
        )
    )


def combined_stats(parts: Iterable[tuple[Stats, int]]) -> dict[int, ColumnStats]:
    """Statistics that hold for the rows of all parts (each with its number of rows) together.

    A column is kept if every part with rows has it, in one type.
    """
    union: dict[int, ColumnStats] | None = None
    total = 0
    for stats, rows in parts:
        if rows == 0:
            continue
        if union is None:
            union = dict(stats)
        else:
            union = {
                field_id: _union(column, total, stats[field_id], rows)
                for field_id, column in union.items()
                if field_id in stats and stats[field_id].kind == column.kind
            }
        total += rows
    return union or {}


# -- one node -------------------------------------------------------------------------------------


def _outcomes(node: Predicate, stats: Stats, rows: int) -> _Outcomes:
    match node:
        case And(parts):
            return _all([_outcomes(part, stats, rows) for part in parts])
        case Or(parts):
            return _not(_all([_not(_outcomes(part, stats, rows)) for part in parts]))
        case Not(part):
            return _not(_outcomes(part, stats, rows))
        case Constant(value):
            return _Outcomes(value is True, value is False, value is None)
        case IsNull(field_id):
            nulls = stats.get(field_id, _UNKNOWN).null_count
            return _Outcomes(nulls != 0, nulls is None or nulls < rows, False)
        case Comparison(field_id, op, literal):
            column = stats.get(field_id, _UNKNOWN)
            true = _some_value(column, op, literal)
            return _of_values(column, rows, true, _some_value(column, NEGATED[op], literal))
        case In(field_id, kind, values):
            column = stats.get(field_id, _UNKNOWN)
            return _of_values(column, rows, *_in(column, kind, values))
        case Like(field_id, pattern):
            column = stats.get(field_id, _UNKNOWN)
            return _of_values(column, rows, *_like(column, pattern))


def _alike(
    column: ColumnStats, kind: Primitive, values: tuple[Value, ...]
) -> tuple[ColumnStats, tuple[Value, ...]]:
    """Bounds and values of `kind` in a form that can be compared."""
    if column.kind is None or column.kind == kind or not kind.is_temporal:
        return column, values
    in_kind = nanos_per_step(kind)
    return in_nanos(column), tuple(v * in_kind for v in values if isinstance(v, int))


def in_nanos(column: ColumnStats) -> ColumnStats:
    """The bounds of a date or timestamp column in nanoseconds; any other column unchanged."""
    if column.kind is None or not column.kind.is_temporal:
        return column
    steps = nanos_per_step(column.kind)
    lower = column.lower * steps if isinstance(column.lower, int) else None
    upper = column.upper * steps if isinstance(column.upper, int) else None
    return replace(column, lower=lower, upper=upper, kind=None)


def _not(outcomes: _Outcomes) -> _Outcomes:
    return _Outcomes(outcomes.false, outcomes.true, outcomes.null)


def _all(parts: list[_Outcomes]) -> _Outcomes:
    """AND: TRUE needs every part TRUE, FALSE one part FALSE, NULL no part FALSE and one NULL."""
    never_false = all(p.true or p.null for p in parts)
    return _Outcomes(
        true=all(p.true for p in parts),
        false=any(p.false for p in parts),
        null=never_false and any(p.null for p in parts),
    )


def _of_values(column: ColumnStats, rows: int, true: bool, false: bool) -> _Outcomes:
    """The possible results of a condition on one column, where `true` and `false` are those of its
    values."""
    has_values = column.null_count is None or column.null_count < rows
    return _Outcomes(has_values and true, has_values and false, column.null_count != 0)


def _some_value(column: ColumnStats, op: Operator, literal: Literal) -> bool:
    """Whether some non-null value of the column can compare this way."""
    kind, sought = literal.type, literal.value
    may_have_nan = kind.is_float and column.has_nan is not False
    # NaN equals itself and is above every other number.
    if may_have_nan and op in (("=", "<=", ">=") if is_nan(sought) else ("!=", ">", ">=")):
        return True
    bounds, (value,) = _alike(column, kind, (sought,))
    low = None if bounds.lower is None else compare(kind, bounds.lower, value)
    high = None if bounds.upper is None else compare(kind, bounds.upper, value)
    if is_nan(sought):
        low = high = -1  # every number is below NaN, bounded or not
    match op:
        case "=":
            inside = (low is None or low <= 0) and (high is None or high >= 0)
            return inside and _admits(column, kind, (sought,))
        case "!=":
            return not (low == 0 and high == 0)
        case "<":
            return low is None or low < 0
        case "<=":
            return low is None or low <= 0
        case ">":
            return high is None or high > 0
        case ">=":
            return high is None or high >= 0


def _admits(column: ColumnStats, kind: Primitive, values: tuple[Value, ...]) -> bool:
    """False only when the partition rules out each of these values."""
    facts = column.facts if isinstance(column, PartitionedStats) else ()
    return all(fact.admits_any(kind, values) for fact in facts)


def _in(column: ColumnStats, kind: Primitive, values: tuple[Value, ...]) -> tuple[bool, bool]:
    may_have_nan = kind.is_float and column.has_nan is not False
    takes_nan = is_nan(values[-1])  # values are sorted, NaN is last
    bounds, numbers = _alike(column, kind, values[:-1] if takes_nan else values)
    low = bounds.lower
    at = 0 if low is None else bisect_left(numbers, order_key(low), key=order_key)
    inside = at < len(numbers) and (
        bounds.upper is None or compare(kind, numbers[at], bounds.upper) <= 0
    )
    one_value = (
        column.lower is not None
        and column.upper is not None
        and compare(kind, column.lower, column.upper) == 0
    )
    true = (inside or (may_have_nan and takes_nan)) and _admits(column, kind, values)
    false = not (one_value and inside) or (may_have_nan and not takes_nan)
    return true, false


def _like(column: ColumnStats, pattern: str) -> tuple[bool, bool]:
    lower, upper = column.lower, column.upper
    low = lower if isinstance(lower, str) else None
    high = upper if isinstance(upper, str) else None
    exact = like_exact(pattern)
    if exact is not None:
        inside = (low is None or low <= exact) and (high is None or exact <= high)
        inside = inside and _admits(column, Primitive("string"), (exact,))
        return inside, not (low == high == exact)
    prefix, all_with_prefix = like_prefix(pattern)
    # Strings with a prefix are adjacent in the order: comparing as many characters is enough.
    inside = (low is None or low[: len(prefix)] <= prefix) and (high is None or prefix <= high)
    if isinstance(column, PartitionedStats):
        inside = inside and all(fact.admits_prefix(prefix) for fact in column.facts)
    covered = not prefix or (
        low is not None and high is not None and low.startswith(prefix) and high.startswith(prefix)
    )
    return inside, not (all_with_prefix and covered)


# -- two columns ----------------------------------------------------------------------------------


def _may_meet(left: ColumnStats, left_rows: int, right: ColumnStats, right_rows: int) -> bool:
    if left.null_count == left_rows or right.null_count == right_rows:
        return False  # NULL equals nothing
    if left.kind != right.kind and left.kind is not None and right.kind is not None:
        left, right = in_nanos(left), in_nanos(right)
    both_may_have_nan = left.has_nan is not False and right.has_nan is not False
    bounds = (left.lower, left.upper, right.lower, right.upper)
    if both_may_have_nan and any(isinstance(bound, float) for bound in bounds):
        return True
    return not (_below(left.upper, right.lower) or _below(right.upper, left.lower))


def _below(upper: Value | None, lower: Value | None) -> bool:
    return upper is not None and lower is not None and upper < lower  # type: ignore[operator]


def _union(a: ColumnStats, a_rows: int, b: ColumnStats, b_rows: int) -> ColumnStats:
    nulls = None if a.null_count is None or b.null_count is None else a.null_count + b.null_count
    if a.has_nan or b.has_nan:
        has_nan: bool | None = True
    else:
        has_nan = False if a.has_nan is False and b.has_nan is False else None
    if a.null_count == a_rows:
        bounds = b  # a part of only nulls has no bounds and needs none
    elif b.null_count == b_rows:
        bounds = a
    else:
        bounds = ColumnStats(
            lower=_pick(min, a.lower, b.lower),
            upper=_pick(max, a.upper, b.upper),
        )
    exact = a.exact and b.exact
    sure = a.sure and b.sure
    return ColumnStats(bounds.lower, bounds.upper, nulls, exact, has_nan, a.kind, sure)


def _pick(choose: Callable[..., Value], a: Value | None, b: Value | None) -> Value | None:
    return None if a is None or b is None else choose(a, b)


IsThere = Callable[[Field], bool]


class Absent(Record):
    """`value` None: NULL in each row. `within`: the field is in a struct that may be NULL itself."""

    value: Value | None = None
    kind: Primitive | None = None
    within: bool = False

    def stats(self, rows: int) -> ColumnStats:
        if self.value is None:
            return ColumnStats(null_count=rows, has_nan=False, kind=self.kind)
        nulls = None if self.within else 0
        if is_nan(self.value):
            return ColumnStats(null_count=nulls, has_nan=True, kind=self.kind)
        return ColumnStats(self.value, self.value, nulls, has_nan=False, kind=self.kind)


def absent_column(schema: Schema, field_id: int, is_there: IsThere) -> Absent | None:
    """What a file has instead of a field of `schema`; None when it has the field, or that is unknown."""
    chain = chain_of(schema.fields, field_id)
    first = next((field for field in chain if not is_there(field)), None)
    if first is None:
        return None
    kind = chain[-1].type if isinstance(chain[-1].type, Primitive) else None
    # A missing struct is NULL as a whole, whatever the defaults of its fields.
    default = first.default if first.id == field_id else None
    return Absent(default, kind, within=len(chain) > 1)


def chain_of(fields: Iterable[Field], field_id: int) -> tuple[Field, ...]:
    """The structs that contain the field, and the field; empty when it is not among `fields`."""
    for field in fields:
        if field.id == field_id:
            return (field,)
        inner = chain_of(fields_within(field.type), field_id)
        if inner:
            return (field, *inner)
    return ()


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
        self._trusted: tuple[DataFile, Stats] | None = None
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
        if not entry.is_foreign:
            return self.of(entry)
        last = self._trusted  # a thousand erasures ask of one file after the other
        if last is None or last[0] is not entry:
            # Its partition stays for the columns that have their values there alone.
            bare = replace(entry, stats={}, spec_id=_NO_SPEC)
            last = self._trusted = (entry, self.of(bare))
        return last[1]

    def column(
        self, entry: DataFile, field_id: int, schema: Schema | None = None
    ) -> ColumnStats | None:
        """What is known about a column, in the type it has in `schema` (default: the table's)."""
        schema = schema or self.schema
        stats = entry.stats.get(field_id)
        spec = self._specs.get(entry.spec_id)
        recorded = self.schemas[entry.schema_id]
        if field_id in recorded.in_partition:
            field = recorded.in_partition[field_id]
            assert isinstance(field.type, Primitive)
            stats = Absent(value_in(field, entry.partition), field.type).stats(entry.rows)
        elif spec is not None and field_id in self._sources[spec.id]:
            stats = with_partition(stats or ColumnStats(), entry, recorded, spec, field_id)
        if stats is None:
            # Written before the column was added: NULL in each row, or the default.
            lacks = self._lacks(entry.schema_id, field_id, schema)
            return None if lacks is None else lacks.stats(entry.rows)
        was, now = recorded.types.get(field_id), schema.types.get(field_id)
        return stats if was is None or now is None else in_type(stats, was, now)

    def _lacks(self, schema_id: int, field_id: int, schema: Schema) -> Absent | None:
        place = (schema_id, schema.id, field_id)
        if place not in self._absent:
            has = self.schemas[schema_id].fields_by_id
            self._absent[place] = absent_column(schema, field_id, lambda field: field.id in has)
        return self._absent[place]

    def of_files(
        self, entries: Sequence[DataFile], columns: Iterable[int]
    ) -> tuple[int, dict[int, ColumnStats]]:
        """(schema id, bounds in its types) of columns over the rows of many files, for a reference to all
        of them. A column that one of them does not bound has none."""
        newest = self.schemas[max(e.schema_id for e in entries)]
        fields = [i for i in columns if i in newest.types]

        def known(entry: DataFile) -> dict[int, ColumnStats]:
            stats = ((i, self.column(entry, i, newest)) for i in fields)
            return {
                # So that versions of this library without `sure` do not rely on it.
                i: replace(column, exact=False) if entry.is_foreign else column
                for i, column in stats
                if column is not None
            }

        stats = combined_stats((known(e), e.rows) for e in entries)
        sure = not any(entry.is_foreign for entry in entries)
        return newest.id, {
            i: replace(shortened(c, REFERENCE_TEXT), sure=sure)
            for i, c in stats.items()
            if _bounds(c)
        }

    def of_references(self, references: Sequence[Segment]) -> tuple[int, dict[int, ColumnStats]]:
        """The same over everything under many references."""
        newest = max(s.schema_id for s in references)
        schema = self.schemas[newest]
        stats = combined_stats((self.of_reference(s, schema), s.rows) for s in references)
        return newest, {i: c for i, c in stats.items() if _bounds(c)}

    def of_reference(self, reference: Segment, schema: Schema | None = None) -> Stats:
        """What is known about the columns of all files under a reference, in the types of `schema`
        (default: the table's)."""
        types = (schema or self.schema).types
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
    if column.kind is not None and column.kind.row.arguments == "length":
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
        stats = self._found[field_id]
        if stats is None:
            raise KeyError(field_id)
        return stats

    def __iter__(self) -> Iterator[int]:
        return iter(self._evidence.listed(self._entry))

    def __len__(self) -> int:
        return len(self._evidence.listed(self._entry))


def was_added_later(field_id: int, schema_id: int, schemas: Sequence[Schema]) -> bool:
    """Whether content under this schema was made before any schema had the field. For a branch with a
    schema of its own this may be false although its files never had the field."""
    return not any(s.by_id(field_id) for s in schemas if s.id <= schema_id)


def lacks_columns_of(predicate: Predicate, schema_id: int, schemas: Sequence[Schema]) -> bool:
    """Whether content under this schema has dropped a column of the condition: its files may hold values
    that no query of that content can select."""
    [schema] = (s for s in schemas if s.id == schema_id)
    return any(
        schema.by_id(i) is None and not was_added_later(i, schema_id, schemas)
        for i in field_ids(predicate)
    )


def for_content(predicate: Predicate, schema_id: int, schemas: Sequence[Schema]) -> Predicate:
    """`predicate` as it applies to the rows of content under this schema."""
    later = [i for i in field_ids(predicate) if was_added_later(i, schema_id, schemas)]
    if not later:
        return predicate
    known_ids = {i for s in schemas if s.id <= schema_id for i in s.fields_by_id}
    stats = {}
    for field_id in later:
        newest = next((s for s in reversed(schemas) if s.by_id(field_id)), None)
        absent = newest and absent_column(newest, field_id, lambda field: field.id in known_ids)
        if absent:
            stats[field_id] = absent.stats(1)
    return mapped(predicate, lambda node: _settled(node, stats))


def _settled(node: Predicate, stats: Stats) -> Predicate:
    """The constant that a condition is where it can only have one result."""
    if not field_ids(node) <= stats.keys():
        return node
    possible = _outcomes(node, stats, 1)
    results = {True: possible.true, False: possible.false, None: possible.null}
    settled = [result for result, may_be in results.items() if may_be]
    return Constant(settled[0]) if len(settled) == 1 else node

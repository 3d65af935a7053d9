"""Every row that is live and wanted, and no other: against a model in plain Python.

The model holds rows as dictionaries and knows nothing of files, Arrow or statistics. Files have random
row groups and are recorded under an old schema (other names, fewer columns, narrower types) or the new
one; deletes are of every kind; filters and projections are random.
"""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from inlay.format.entry import (
    ColumnStats,
    KeyRange,
    Keys,
    Marker,
    RowGroups,
    Rows,
    Vector,
    Where,
)
from inlay.format.predicate import (
    TRUE,
    And,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
)
from inlay.format.schema import Field, Primitive, Schema, Struct
from inlay.format.values import order_key
from inlay.ops.read.top_n import OrderKey, first_rows
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parquet.read.selection import Projection
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import FileTask

INT, LONG, DOUBLE = Primitive("int32"), Primitive("int64"), Primitive("double")
STRING, TIME = Primitive("string"), Primitive("timestamp", unit="us")

# The table once had `id` as a 32-bit integer, `word` under the name `text`, no `when` and no child `y`;
# the name `text` was given to another column since.
OLD = Schema(
    0,
    (
        Field(1, "id", INT),
        Field(2, "f", DOUBLE),
        Field(3, "text", STRING),
        Field(4, "s", Struct((Field(5, "x", INT),))),
    ),
)
NEW = Schema(
    1,
    (
        Field(7, "when", TIME),
        Field(3, "word", STRING),
        Field(1, "id", LONG),
        Field(4, "s", Struct((Field(5, "x", INT), Field(6, "y", DOUBLE)))),
        Field(2, "f", DOUBLE),
        Field(8, "text", STRING),
    ),
)
LEAVES = {1: LONG, 2: DOUBLE, 3: STRING, 5: INT, 6: DOUBLE, 7: TIME, 8: STRING}
PATHS = {i: NEW.path_of(i) for i in LEAVES}

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int32": st.integers(-3, 6),
    "int64": st.integers(-3, 6),
    "double": st.sampled_from([math.nan, -0.0, 0.0, 1.5, -2.0, math.inf, 3.0]),
    "string": st.sampled_from(["", "a", "ab", "abc", "b", "é", "z\nz", "x" * 20 + "1"]),
    "timestamp": st.integers(-3, 6),
}


def value_of(kind: Primitive) -> st.SearchStrategy[Any]:
    return VALUES[kind.name]


def row_of(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    def field(found: Field) -> st.SearchStrategy[Any]:
        if isinstance(found.type, Struct):
            return st.none() | st.fixed_dictionaries({f.name: field(f) for f in found.type.fields})
        assert isinstance(found.type, Primitive)
        return st.none() | value_of(found.type)

    return st.fixed_dictionaries({f.name: field(f) for f in schema.fields})


# -- the model ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelRow:
    file: int
    position: int
    values: dict[int, Any]  # by field id of a leaf


def as_new(row: dict[str, Any], recorded: Schema) -> dict[int, Any]:
    """A written row's values by leaf field id."""
    found: dict[int, Any] = dict.fromkeys(LEAVES)
    for path, field in recorded.walk():
        if field.id in LEAVES:
            value: Any = row
            for name in path:
                value = None if value is None else value.get(name)
            found[field.id] = value
    return found


def truth(node: Any, row: dict[int, Any]) -> bool | None:
    match node:
        case And(parts):
            found = [truth(p, row) for p in parts]
            return False if False in found else None if None in found else True
        case Or(parts):
            found = [truth(p, row) for p in parts]
            return True if True in found else None if None in found else False
        case Not(part):
            inner = truth(part, row)
            return None if inner is None else not inner
        case IsNull(field_id):
            return row[field_id] is None
        case Comparison(field_id, op, literal):
            if row[field_id] is None:
                return None
            left, right = order_key(row[field_id]), order_key(literal.value)
            return {
                "=": left == right,
                "!=": left != right,
                "<": left < right,
                "<=": left <= right,
                ">": left > right,
                ">=": left >= right,
            }[op]
        case In(field_id, _, values):
            if row[field_id] is None:
                return None
            return order_key(row[field_id]) in [order_key(v) for v in values]
        case Like(field_id, pattern):
            value = row[field_id]
            return None if value is None else value.startswith(pattern.rstrip("%"))
    return node.value  # type: ignore[no-any-return]


def deletes(marker: Marker, row: ModelRow, sequences: list[int], groups: list[list[int]]) -> bool:
    hits_file = (
        sequences[row.file] < (marker.sequence or 0)
        if marker.file is None
        else marker.file == str(row.file)
    )
    if not hits_file:
        return False
    match marker.body:
        case RowGroups(ordinals):
            return groups[row.file][row.position] in ordinals
        case Rows(positions):
            return row.position in positions
        case Where(predicate):
            return truth(predicate, row.values) is True
        case KeyRange(field_id, lower, upper, lower_inclusive, upper_inclusive):
            value = row.values[field_id]
            if value is None:
                return False
            at = order_key(value)
            if lower is not None and not (
                at > order_key(lower) or (lower_inclusive and at == order_key(lower))
            ):
                return False
            return upper is None or bool(
                at < order_key(upper) or (upper_inclusive and at == order_key(upper))
            )
    raise AssertionError(marker)


# -- strategies -----------------------------------------------------------------------------------


@st.composite
def literals(draw: Any, field_id: int) -> Literal:
    kind = LEAVES[field_id]
    return Literal(kind, draw(value_of(kind)))


@st.composite
def conditions(draw: Any) -> Any:
    field_id = draw(st.sampled_from(sorted(LEAVES)))
    kind = LEAVES[field_id]
    match draw(st.integers(0, 5)):
        case 0:
            return IsNull(field_id)
        case 1:
            values = draw(st.lists(value_of(kind), min_size=1, max_size=4))
            unique = {order_key(v): v for v in values}
            return In(field_id, kind, tuple(unique[k] for k in sorted(unique)))
        case 2 if kind == STRING:
            return Like(field_id, draw(st.sampled_from(["a%", "ab%", "%", "x%"])))
        case _:
            op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
            return Comparison(field_id, op, draw(literals(field_id)))


PREDICATES = st.recursive(
    conditions(),
    lambda inner: st.one_of(
        st.builds(lambda a, b: And((a, b)), inner, inner),
        st.builds(lambda a, b: Or((a, b)), inner, inner),
        st.builds(Not, inner),
    ),
    max_leaves=4,
)


@st.composite
def key_ranges(draw: Any) -> KeyRange:
    field_id = draw(st.sampled_from(sorted(LEAVES)))
    bound = st.none() | value_of(LEAVES[field_id])
    return KeyRange(field_id, draw(bound), draw(bound), draw(st.booleans()), draw(st.booleans()))


def key_file(columns: list[tuple[int, list[Any]]]) -> bytes:
    kinds = {INT: pa.int32(), LONG: pa.int64(), DOUBLE: pa.float64(), STRING: pa.string()}
    kinds[TIME] = pa.timestamp("us")
    sink = io.BytesIO()
    arrays = [pa.array(values, kinds[LEAVES[i]]) for i, values in columns]
    pq.write_table(pa.table(arrays, names=[str(i) for i, _ in columns]), sink)
    return sink.getvalue()


def written(
    rows: list[dict[str, Any]], schema: Schema, group_rows: int, *, bloom: bool, **options: Any
) -> bytes:
    sink = io.BytesIO()
    if bloom:
        named = [f.name for f in schema.fields if f.type in (INT, LONG, STRING)]
        options["bloom_filter_options"] = {name: {"ndv": 20, "fpp": 0.01} for name in named}
    table = pa.Table.from_pylist(rows, schema=schema_to_arrow(schema))
    pq.write_table(table, sink, row_group_size=group_rows, write_batch_size=1, **options)
    return sink.getvalue()


OPTIONS = st.fixed_dictionaries(
    {
        "write_statistics": st.booleans(),
        "write_page_index": st.booleans(),
        "use_dictionary": st.booleans(),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "max_rows_per_page": st.integers(1, 3),
        "compression": st.sampled_from(["zstd", "none"]),
        "bloom": st.booleans(),
    }
)


@contextmanager
def by_pages(along: bool, index: bool, bloom: bool, whole: bool) -> Iterator[None]:
    """These files are tiny: without this each is one request, and no page is read singly. Other columns
    come `along` with a filter's, the page `index` with the footer; `bloom` filters are asked; chunks come
    `whole`, of which only pages are decoded."""
    with (
        mock.patch("inlay.parquet.read.decode.ALONG_BYTES", 1e9 if along else 0),
        mock.patch("inlay.parquet.read.decode.BLOOM_WORTH_BYTES", 0 if bloom else 1e9),
        mock.patch(
            "inlay.parquet.read.data_file.index_bytes",
            lambda entry, schema: 1_000_000 if index else 0,
        ),
        mock.patch("inlay.parquet.read.ranges.SMALL_OBJECT_BYTES", 0),
        mock.patch("inlay.parquet.read.single_pages.MIN_CHUNK_BYTES", 0),
        mock.patch("inlay.parquet.read.single_pages.MAX_PART", 0 if whole else 1e9),
        mock.patch("inlay.parquet.read.single_pages.MAX_DECODED_PART", 1e9),
        mock.patch("inlay.parquet.read.decode.may_be_sparse", lambda keep: True),
    ):
        yield


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return order_key(left) == order_key(right)
    return bool(left == right)


def nested(values: dict[int, Any], columns: list[str], recorded: Schema, row: Any) -> Any:
    """A model row as `to_pylist` shows it."""
    found: dict[str, Any] = {}
    for name in columns:
        field = NEW.column(name)
        assert field is not None
        if isinstance(field.type, Struct):
            there = row.get(name) is not None
            child = {f.name: values[f.id] for f in field.type.fields}
            found[name] = child if there else None
        else:
            found[name] = values[field.id]
    return found


def in_order(rows: list[ModelRow], order: list[OrderKey]) -> list[ModelRow]:
    """A stable sort for each key, the last one first."""
    for key in reversed(order):
        nulls = [r for r in rows if r.values[key.field_id] is None]
        values = [r for r in rows if r.values[key.field_id] is not None]
        # Python's sort keeps the order of equals in reverse as well.
        values.sort(key=lambda r: order_key(r.values[key.field_id]), reverse=key.descending)
        rows = nulls + values if key.nulls_first else values + nulls
    return rows


@st.composite
def orders(draw: Any) -> list[OrderKey]:
    fields = draw(st.lists(st.sampled_from(sorted(LEAVES)), min_size=1, max_size=3, unique=True))
    return [OrderKey(i, LEAVES[i], draw(st.booleans()), draw(st.booleans())) for i in fields]


# -- the test -------------------------------------------------------------------------------------


@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_scan_gives_the_rows_of_the_model(new_lake: Any, data: st.DataObject) -> None:
    draw = data.draw
    lake = new_lake()
    files, sequences, groups, rows = [], [], [], []
    raw: dict[tuple[int, int], Any] = {}
    recorded_of: list[Schema] = []
    for n in range(draw(st.integers(1, 3))):
        recorded = draw(st.sampled_from([OLD, NEW]))
        content = draw(st.lists(row_of(recorded), min_size=1, max_size=12))
        group_rows = draw(st.integers(1, 6))
        body = written(content, recorded, group_rows, **draw(OPTIONS))
        entry = lake.adopt(body, recorded, key=str(n))
        if draw(st.booleans()):
            entry = replace(entry, event="landed")  # what its writer says of pages is not relied on
        if draw(st.booleans()):
            entry = replace(entry, stats={i: wider(known) for i, known in entry.stats.items()})
        sequence = draw(st.integers(1, 4))
        files.append(_at(entry, sequence))
        sequences.append(sequence)
        groups.append([position // group_rows for position in range(len(content))])
        recorded_of.append(recorded)
        for position, row in enumerate(content):
            rows.append(ModelRow(n, position, as_new(row, recorded)))
            raw[n, position] = row
    markers, gone = [], set()
    for n in range(draw(st.integers(0, 4))):
        marker, hit = draw(marker_for(lake, n, len(files), rows, sequences, groups))
        markers.append(marker)
        gone |= hit
        event(type(marker.body).__name__)
    predicate = draw(st.just(TRUE) | PREDICATES)
    names = draw(st.lists(st.sampled_from(NEW.names), unique=True, max_size=4))

    def shown(chosen: list[ModelRow]) -> list[dict[str, Any]]:
        return [
            {
                **nested(r.values, names, recorded_of[r.file], raw[r.file, r.position]),
                "_pos": r.position,
                "_file": str(r.file),
            }
            for r in chosen
        ]

    live = [
        r for r in rows if (r.file, r.position) not in gone and truth(predicate, r.values) is True
    ]
    expected = shown(live)
    options = {"predicate": predicate, "schemas": [OLD]}
    found = lake.read(files, NEW, markers, columns=names, position=True, **options)
    assert same(plain(found), expected)
    with by_pages(*(draw(st.booleans()) for _ in range(4))):
        sparse = lake.read(files, NEW, markers, columns=names, position=True, **options)
    assert same(plain(sparse), expected)
    # Without hidden columns, and by pieces of row groups, it is the same.
    if names:
        again = lake.read(files, NEW, markers, columns=names, **options)
        assert same(plain(again), plain(found.drop_columns(["_pos", "_file"])))
    assert lake.read(files, NEW, markers, columns=[], **options) == len(expected)
    plan = lake.plan(files, NEW, markers, **options)
    order, limit = draw(orders()), draw(st.integers(1, 8))
    projection = Projection(
        schema=NEW,
        columns=tuple(NEW.column(name).id for name in names),  # type: ignore[union-attr]
        position=True,
        file=True,
    )
    evidence = Evidence(NEW, [OLD])
    paged = by_pages(*(draw(st.booleans()) for _ in range(4)))
    with paged, mock.patch("inlay.ops.read.top_n.PIECE_ROWS", draw(st.integers(1, 4))):
        batches = list(first_rows(lake.reader, plan.tasks, projection, order, limit, evidence))
    first = pa.Table.from_batches(batches, schema=projection.result)
    assert same(plain(first), shown(in_order(live, order)[:limit]))
    pieces = [replace(task, row_groups=(n,)) for task in plan.tasks for n in groups_of(task)]
    assert sum(_count(lake, piece) for piece in pieces) == len(expected)


def wider(known: ColumnStats) -> ColumnStats:
    """Bounds as after rows are gone: they say they are values of the column, and no row has these."""
    lower, upper = known.lower, known.upper
    if isinstance(lower, str) and isinstance(upper, str):
        return replace(known, lower="", upper=upper + "~")
    if isinstance(lower, int | float) and isinstance(upper, int | float):
        return replace(known, lower=lower - 2, upper=upper + 2)
    return known


def groups_of(task: FileTask) -> Sequence[int]:
    return range(task.file.row_groups) if task.row_groups is None else task.row_groups


def plain(table: pa.Table) -> list[dict[str, Any]]:
    at = table.schema.get_field_index("when")
    if at >= 0:
        table = table.set_column(at, "when", table.column(at).cast(pa.int64()))
    return table.to_pylist()


def _at(entry: Any, sequence: int) -> Any:
    return replace(entry, sequence=sequence)


def _count(lake: Any, task: Any) -> int:

    from inlay.parquet.read.selection import Projection

    projection = Projection(schema=NEW, columns=())
    return sum(b.num_rows for b in lake.reader.rows([task], projection))


@st.composite
def marker_for(
    draw: Any,
    lake: Any,
    n: int,
    files: int,
    rows: list[ModelRow],
    sequences: list[int],
    groups: list[list[int]],
) -> tuple[Marker, set[tuple[int, int]]]:
    """A marker, and the rows it deletes by the model."""
    file = draw(st.integers(0, files - 1))
    in_file = [r for r in rows if r.file == file]
    sequence = draw(st.integers(1, 5))
    kind = draw(st.sampled_from(["groups", "rows", "vector", "where", "range", "keys"]))
    positions = st.sets(st.integers(0, len(in_file) - 1), min_size=1)
    of_file = {"file": str(file), "sequence": sequence}
    anywhere = of_file if draw(st.booleans()) else {"sequence": sequence}
    match kind:
        case "groups":
            ordinals = draw(st.sets(st.sampled_from(groups[file]), min_size=1))
            body: Any = RowGroups(tuple(sorted(ordinals)))
            marker = Marker(id=str(n), body=body, **of_file)
        case "rows":
            marker = Marker(id=str(n), body=Rows(tuple(sorted(draw(positions)))), **of_file)
        case "vector":
            hit = draw(positions)
            # Another file's vector is before it: only its own bytes may be read.
            key, blobs = lake.puffin([("other", BitMap64([7])), (str(file), BitMap64(hit))])
            body = Vector(key, blobs[1].offset, blobs[1].length, len(hit))
            marker = Marker(id=str(n), body=body, **of_file)
            return marker, {(file, position) for position in hit}
        case "where":
            marker = Marker(id=str(n), body=Where(draw(PREDICATES)), **anywhere)
        case "range":
            marker = Marker(id=str(n), body=draw(key_ranges()), **anywhere)
        case _:
            return draw(keys_marker(lake, n, rows, sequences, sequence))
    hits = {(r.file, r.position) for r in rows if deletes(marker, r, sequences, groups)}
    return marker, hits


@st.composite
def keys_marker(
    draw: Any, lake: Any, n: int, rows: list[ModelRow], sequences: list[int], sequence: int
) -> tuple[Marker, set[tuple[int, int]]]:
    fields = draw(st.lists(st.sampled_from(sorted(LEAVES)), min_size=1, max_size=3, unique=True))
    a_key = st.tuples(*(st.none() | value_of(LEAVES[i]) for i in fields))
    keys = draw(st.lists(a_key, min_size=1, max_size=8))
    columns = [(i, [key[at] for key in keys]) for at, i in enumerate(fields)]
    body, name = key_file(columns), f"tombstone/{n}.del"
    lake.put(name, body)
    bounded = draw(st.booleans())
    stats = {i: bounds(values) for i, values in columns} if bounded else {}
    marker = Marker(
        id=str(n),
        body=Keys(tuple(fields), name, len(body), len(keys), stats),
        sequence=sequence,
    )
    wanted = {tuple(order_key(v) for v in key) for key in keys if None not in key}
    hits = {
        (r.file, r.position)
        for r in rows
        if sequences[r.file] < sequence
        and all(r.values[i] is not None for i in fields)
        and tuple(order_key(r.values[i]) for i in fields) in wanted
    }
    return marker, hits


def bounds(values: list[Any]) -> ColumnStats:
    known = [v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]
    nan = any(isinstance(v, float) and math.isnan(v) for v in values)
    least = functools.reduce(min, known) if known else None
    most = functools.reduce(max, known) if known else None
    return ColumnStats(least, most, values.count(None), has_nan=nan)

"""Arrow schemas and batches against the table's: what fits, what widens, what is refused by name."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from inlay.errors import InvalidRequest, SchemaMismatch, UnsupportedType
from inlay.format.entry import ColumnStats
from inlay.format.schema import Field, ListOf, MapOf, Primitive, Schema, Struct, parse_primitive
from inlay.parquet.arrow.conform import conformed
from inlay.parquet.arrow.fits import check_fits
from inlay.parquet.arrow.types import (
    FIELD_ID,
    schema_from_arrow,
    schema_to_arrow,
    to_arrow_scalar,
    to_physical,
)


def column(kind, *, nullable=True, id_=1, name="x"):
    kind = parse_primitive(kind) if isinstance(kind, str) else kind
    return Field(id_, name, kind, nullable)


def conform(batch, recorded, target, **options):
    """Of a small batch, one."""
    [made] = conformed([batch], recorded, target, **options)
    return made


def schema(*fields):
    return Schema(0, fields)


def one(arrow_type, **metadata):
    return pa.schema([pa.field("x", arrow_type, **metadata)])


NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field(
            "place",
            pa.struct([pa.field("city", pa.string(), nullable=False), pa.field("zip", pa.int16())]),
        ),
        pa.field("tags", pa.list_(pa.field("item", pa.struct([pa.field("k", pa.int8())])))),
        pa.field("props", pa.map_(pa.string(), pa.list_(pa.int32()))),
    ]
)
ROWS = [
    {
        "id": 1,
        "place": {"city": "a", "zip": 5},
        "tags": [{"k": 1}, None],
        "props": [("p", [1]), ("q", None)],
    },
    {"id": 2, "place": None, "tags": None, "props": None},
    {"id": 3, "place": {"city": "c", "zip": None}, "tags": [], "props": []},
]


# -- schemas --------------------------------------------------------------------------------------


def test_ids_are_given_depth_first():
    found = schema_from_arrow(NESTED)
    assert [(".".join(path), f.id) for path, f in found.walk()] == [
        ("id", 1),
        ("place", 2),
        ("place.city", 3),
        ("place.zip", 4),
        ("tags", 5),
        ("tags.element", 6),
        ("tags.element.k", 7),
        ("props", 8),
        ("props.key", 9),
        ("props.value", 10),
        ("props.value.element", 11),
    ]


def test_a_schema_survives_arrow_and_parquet():
    found = schema_from_arrow(NESTED)
    arrow = schema_to_arrow(found)
    assert schema_from_arrow(arrow) == found
    assert arrow.field("id").metadata == {FIELD_ID: b"1"}
    assert schema_to_arrow(found, with_ids=False).field("id").metadata is None
    buffer = io.BytesIO()
    pq.write_table(arrow.empty_table(), buffer)
    read = pq.read_schema(buffer)
    assert schema_from_arrow(read) == found
    assert read.field("place").type.field("zip").metadata[FIELD_ID] == b"4"


@pytest.mark.parametrize(
    ("arrow", "kind"),
    [
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.binary_view(), "binary"),
        (pa.binary(16), "fixed(16)"),
        (pa.uuid(), "fixed(16)"),
        (pa.date64(), "date"),
        (pa.time32("s"), "time(ms)"),
        (pa.timestamp("us", "Europe/Berlin"), "timestamptz(us)"),
        (pa.decimal32(5, 2), "decimal(5,2)"),
        (pa.decimal256(60, 2), "decimal(60,2)"),
    ],
    ids=str,
)
def test_encodings_of_a_type_are_that_type(arrow, kind):
    (found,) = schema_from_arrow(one(arrow)).fields
    assert str(found.type) == kind


@pytest.mark.parametrize(
    "arrow",
    [
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.null(),
        pa.sparse_union([pa.field("a", pa.int8())]),
        pa.struct([]),
        pa.run_end_encoded(pa.int32(), pa.int8()),
        pa.decimal128(5, -2),
        pa.decimal128(5, 7),
    ],
    ids=str,
)
def test_types_nobody_can_hold_are_refused_by_column_with_a_way_out(arrow):
    nested = pa.schema([pa.field("outer", pa.struct([pa.field("inner", arrow)]))])
    with pytest.raises(UnsupportedType, match=r"outer\.inner") as caught:
        schema_from_arrow(nested)
    assert caught.value.next_step


@pytest.mark.parametrize("wrap", [lambda a: a, lambda a: pa.StructArray.from_arrays([a], ["y"])])
def test_runs_are_refused_with_what_decodes_them(wrap):
    """Arrow does not cast them."""
    runs = wrap(pc.run_end_encode(pa.array(["a", "a", "b"])))
    plain = wrap(pa.array(["a", "a", "b"]))
    schema = schema_from_arrow(one(plain.type))
    data = pa.RecordBatch.from_arrays([runs], names=[schema.fields[0].name])
    with pytest.raises(SchemaMismatch) as refused:
        list(conformed([data], schema, schema, by_value=True))
    assert "run_end_decode" in refused.value.next_step


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(SchemaMismatch, match="'x'"):
        schema_from_arrow(pa.schema([("x", pa.int8()), ("y", pa.int8()), ("x", pa.int8())]))


def test_endless_nesting_is_refused():
    kind = pa.int8()
    for _ in range(500):
        kind = pa.list_(kind)
    with pytest.raises(UnsupportedType, match="nested deeper"):
        schema_from_arrow(one(kind))


# -- at the door ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrow", "kind"),
    [
        (pa.int8(), "int64"),
        (pa.uint32(), "int64"),
        (pa.uint8(), "uint16"),
        (pa.float32(), "double"),
        (pa.decimal128(9, 2), "decimal(12,3)"),
        (pa.timestamp("ms"), "timestamp(us)"),
        (pa.date32(), "timestamp(us)"),
        (pa.timestamp("ms", "Asia/Tokyo"), "timestamptz(us)"),
        (pa.time32("ms"), "time(ns)"),
        (pa.dictionary(pa.int32(), pa.large_string()), "string"),
        (pa.binary(4), "binary"),
        (pa.null(), "string"),
    ],
    ids=str,
)
def test_a_file_that_widens_fits(arrow, kind):
    check_fits(one(arrow), schema(column(kind)))


@pytest.mark.parametrize(
    ("arrow", "kind"),
    [
        (pa.int64(), "int32"),
        (pa.uint32(), "int32"),
        (pa.int8(), "uint8"),
        (pa.int32(), "double"),
        (pa.float64(), "float"),
        (pa.decimal128(9, 3), "decimal(9,2)"),
        (pa.decimal128(9, 2), "decimal(9,3)"),
        (pa.timestamp("us"), "timestamp(ms)"),
        (pa.timestamp("us"), "timestamp(ns)"),
        (pa.timestamp("us"), "timestamptz(us)"),
        (pa.timestamp("us", "UTC"), "timestamp(us)"),
        (pa.string(), "binary"),
        (pa.binary(), "string"),
        (pa.date32(), "timestamp(ns)"),
        (pa.date32(), "timestamptz(us)"),
        (pa.list_(pa.int8()), "string"),
        (pa.struct([("a", pa.int8())]), "int8"),
    ],
    ids=str,
)
def test_a_file_that_would_lose_values_is_refused_with_both_types(arrow, kind):
    with pytest.raises(SchemaMismatch) as caught:
        check_fits(one(arrow), schema(column(kind)))
    text = str(caught.value)
    assert "'x'" in text and str(arrow) in text and caught.value.next_step


def test_a_missing_nullable_column_fits_and_a_missing_required_one_does_not():
    table = schema(column("int8"), column("int8", id_=2, name="y"))
    check_fits(one(pa.int8()), table)
    with pytest.raises(SchemaMismatch, match="lacks column 'y'"):
        check_fits(
            one(pa.int8()), schema(column("int8"), column("int8", id_=2, name="y", nullable=False))
        )


def test_an_extra_column_is_refused_unless_allowed():
    wide = pa.schema([("x", pa.int8()), ("s", pa.struct([("a", pa.int8())])), ("z", pa.int8())])
    table = schema(column("int8"), Field(2, "s", Struct((Field(3, "a", Primitive("int8")),))))
    with pytest.raises(SchemaMismatch, match="'z'"):
        check_fits(wide, table)
    check_fits(wide, table, extra_columns=True)
    inner = pa.schema([("s", pa.struct([("a", pa.int8()), ("b", pa.int8())]))])
    with pytest.raises(SchemaMismatch, match=r"'s\.b'"):
        check_fits(inner, table)


def test_nullable_fits_required_only_with_evidence_of_no_nulls():
    table = schema(column("int8", nullable=False))
    with pytest.raises(SchemaMismatch, match="may hold nulls"):
        check_fits(one(pa.int8()), table)
    for count, fits in ((0, True), (1, False), (None, False)):

        def evidence(_, count=count):
            return ColumnStats(null_count=count)

        if fits:
            check_fits(one(pa.int8()), table, evidence=evidence)
        else:
            with pytest.raises(SchemaMismatch):
                check_fits(one(pa.int8()), table, evidence=evidence)


def test_nanoseconds_take_coarser_units_only_within_their_years():
    table = schema(column("timestamp(ns)"))
    near = ColumnStats(0, 10**18)  # bounds are in nanoseconds, the unit of the column
    far = ColumnStats(0, 10**20)
    check_fits(one(pa.timestamp("us")), table, evidence=lambda _: near)
    with pytest.raises(SchemaMismatch):
        check_fits(one(pa.timestamp("us")), table, evidence=lambda _: far)


# -- batches --------------------------------------------------------------------------------------


def evolved(field, **types):
    """Every field renamed, some widened, a new nullable child in each struct."""
    kind = types.get(field.name, field.type)
    match kind:
        case Struct(fields):
            grown = Field(field.id + 100, "new", Primitive("string"))
            kind = Struct((*(evolved(f, **types) for f in reversed(fields)), grown))
        case ListOf(element):
            kind = ListOf(evolved(element, **types))
        case MapOf(key, value):
            kind = MapOf(evolved(key, **types), evolved(value, **types))
    return Field(field.id, field.name + "_now", kind, field.nullable)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_batches_follow_ids_through_renames_reordering_and_widening(start):
    recorded = schema_from_arrow(NESTED)
    wide = {"zip": Primitive("int64"), "k": Primitive("int32")}
    target = Schema(1, tuple(evolved(f, **wide) for f in reversed(recorded.fields)))
    batch = pa.RecordBatch.from_pylist(ROWS, schema=NESTED).slice(start)
    found = conform(batch, recorded, target)
    found.validate(full=True)
    assert found.schema.equals(schema_to_arrow(target), check_metadata=True)

    def now(row):
        place = row["place"] and {
            "zip_now": row["place"]["zip"],
            "city_now": row["place"]["city"],
            "new": None,
        }
        tags = row["tags"] and [t and {"k_now": t["k"], "new": None} for t in row["tags"]]
        return {
            "props_now": row["props"],
            "tags_now": tags,
            "place_now": place,
            "id_now": row["id"],
        }

    assert found.to_pylist() == [now(row) for row in ROWS[start:]]


@pytest.mark.parametrize(
    ("arrow", "values"),
    [
        (pa.list_(pa.int8()), [[1, 2], None, [], [3]]),
        (pa.large_list(pa.string_view()), [["a"], None, [], ["b", None]]),
        (pa.list_view(pa.int8()), [[1, 2], None, [], [3]]),
        (pa.large_list_view(pa.int8()), [[1, 2], None, [], [3]]),
        (pa.list_(pa.int8(), 2), [[1, 2], None, [3, None]]),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), [["a"], None, ["b", "a"]]),
        (pa.map_(pa.string(), pa.list_view(pa.int8())), [[("a", [1])], None, [("b", None)]]),
        (pa.struct([("a", pa.list_view(pa.int8()))]), [{"a": [1]}, None, {"a": None}]),
        (pa.list_(pa.list_(pa.map_(pa.int8(), pa.int8()))), [[[[(1, 2)]], None], None, [[]]]),
    ],
    ids=str,
)
def test_every_layout_of_lists_is_conformed_whole_and_sliced(arrow, values):
    array = pa.array(values, arrow)
    table = schema_from_arrow(one(arrow))
    for start in range(len(values)):
        batch = pa.record_batch({"x": array.slice(start)})
        found = conform(batch, table, table)
        found.validate(full=True)
        assert found.column(0).to_pylist() == values[start:]


def test_conformed_batches_with_null_structs_can_be_written():
    """Required children under null parents must not become nulls."""
    recorded = schema_from_arrow(NESTED)
    added = Field(50, "late", Struct((Field(51, "a", Primitive("int8"), nullable=False),)))
    target = Schema(1, (*recorded.fields, added))
    batch = conform(pa.RecordBatch.from_pylist(ROWS, schema=NESTED), recorded, target)
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_batches([batch]), buffer)
    assert pq.read_table(buffer).to_pylist() == [{**row, "late": None} for row in ROWS]


def test_a_name_used_again_does_not_read_old_data():
    recorded = schema(column("int64", id_=1, name="code"))
    target = schema(column("string", id_=2, name="code"))
    found = conform(pa.record_batch({"code": [1, 2]}), recorded, target)
    assert found.to_pylist() == [{"code": None}] * 2


def test_ids_inside_a_file_are_not_believed():
    foreign = pa.schema(
        [
            pa.field("a", pa.int64(), metadata={FIELD_ID: "2"}),
            pa.field("b", pa.int64(), metadata={FIELD_ID: "1"}),
        ]
    )
    batch = pa.RecordBatch.from_pylist([{"a": 1, "b": 2}], schema=foreign)
    table = schema(column("int64", name="a"), column("int64", id_=2, name="b"))
    assert conform(batch, table, table).to_pylist() == [{"a": 1, "b": 2}]


def test_nulls_in_a_required_column_are_refused():
    table = schema(column("int64", nullable=False))
    with pytest.raises(SchemaMismatch, match="holds nulls"):
        conform(pa.record_batch({"x": [1, None]}), table, table)


def test_narrowing_is_by_value_only_on_request():
    table = schema(column("int8"))
    small, large = pa.record_batch({"x": [1, None]}), pa.record_batch({"x": [1, 300]})
    assert conform(small, table, table, by_value=True).to_pylist() == [{"x": 1}, {"x": None}]
    with pytest.raises(SchemaMismatch):
        conform(small, table, table)
    with pytest.raises(SchemaMismatch):
        conform(large, table, table, by_value=True)


def test_by_value_never_rounds():
    cases = (
        ("decimal(9,2)", pa.array([Decimal("1.005")])),
        ("timestamp(ms)", pa.array([1], pa.timestamp("us"))),
        ("double", pa.array([2**53 + 1])),
        ("int8", pa.array([1.5])),
        ("timestamptz(us)", pa.array([1], pa.timestamp("us"))),
        ("string", pa.array([1])),
    )
    for kind, array in cases:
        table = schema(column(kind))
        with pytest.raises(SchemaMismatch):
            conform(pa.record_batch({"x": array}), table, table, by_value=True)


def test_seconds_come_back_from_parquets_milliseconds():
    table = schema(column("timestamp(s)"))
    batch = pa.record_batch({"x": pa.array([5_000, None], pa.timestamp("ms"))})
    assert conform(batch, table, table).column(0).cast(pa.int64()).to_pylist() == [5, None]


# -- single values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (3, "int8", 3),
        (3.0, "int8", 3),
        (pa.scalar(3, pa.uint64()), "int8", 3),
        (3, "decimal(4,2)", Decimal("3.00")),
        (pa.scalar(Decimal("1.5")), "decimal(4,2)", Decimal("1.50")),
        (1, "double", 1.0),
        (0.1, "float", 0.10000000149011612),
        ("x", "string", "x"),
        (pa.scalar("x", pa.string_view()), "string", "x"),
        (pa.array(["x"]).dictionary_encode()[0], "string", "x"),
        (b"ab", "fixed(2)", b"ab"),
        (True, "bool", True),
        (dt.date(1970, 1, 2), "date", 1),
        (dt.datetime(1970, 1, 2), "date", 1),
        (dt.time(0, 0, 1), "time(us)", 1_000_000),
        (dt.datetime(1970, 1, 1, 0, 0, 1), "timestamp(ns)", 1_000_000_000),
        (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "timestamptz(ms)", 0),
        (pa.scalar(5, pa.timestamp("ns")), "timestamp(ns)", 5),
        (7, "timestamp(us)", 7),
        (None, "int8", None),
        (pa.scalar(None, pa.int8()), "int64", None),
    ],
    ids=str,
)
def test_values_become_physical_without_loss(value, kind, expected):
    found = to_physical(value, parse_primitive(kind))
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (300, "int8"),
        (3.5, "int8"),
        (True, "int8"),
        (1, "bool"),
        (Decimal("1.005"), "decimal(4,2)"),
        (0.1, "decimal(4,2)"),
        (2**53 + 1, "double"),
        (1, "string"),
        ("x", "binary"),
        (b"abc", "fixed(2)"),
        (dt.datetime(1970, 1, 2, 12), "date"),
        (dt.datetime(1970, 1, 1, 0, 0, 0, 1), "timestamp(ms)"),
        (dt.datetime(1970, 1, 1), "timestamptz(us)"),
        (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "timestamp(us)"),
        ([], "int8"),
        ("2020-01-01", "date"),
        pytest.param(object(), "string", id="an object"),
    ],
    ids=str,
)
def test_values_that_would_lose_something_are_refused(value, kind):
    with pytest.raises(InvalidRequest):
        to_physical(value, parse_primitive(kind))


def test_physical_values_are_scalars_of_the_columns_type():
    kind = parse_primitive("timestamptz(ns)")
    assert to_arrow_scalar(kind, 5).type == pa.timestamp("ns", "UTC")
    assert to_physical(to_arrow_scalar(kind, 5), kind) == 5


@pytest.mark.parametrize("at", [0, 1, 150, 299])
@pytest.mark.parametrize("start", [0, 1, 40])
def test_much_text_is_looked_at_to_its_last_value_from_where_a_slice_begins(at, start):
    """Above 256 KiB ASCII is told without validation."""
    values = [b"a" * 2000] * 300
    values[at] = b"a" * 1998 + b"\xc3\xff"
    body = pa.array(values, pa.binary())
    offsets = pa.py_buffer(bytes(body.buffers()[1]))
    text = pa.Array.from_buffers(pa.string(), 300, [None, offsets, body.buffers()[2]])[start:]
    target = schema(column("string"))
    if at < start:
        conform(pa.record_batch({"x": text}), target, target, by_value=True)
        return
    with pytest.raises(SchemaMismatch, match=f"not UTF-8: value {at - start} of a batch of"):
        conform(pa.record_batch({"x": text}), target, target, by_value=True)
    values[at] = "é".encode() * 1000
    whole = pa.array(values, pa.binary()).cast(pa.string())[start:]
    assert conform(pa.record_batch({"x": whole}), target, target, by_value=True)["x"].equals(whole)

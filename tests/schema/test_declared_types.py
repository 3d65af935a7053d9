"""Every Arrow type: kept and given back, or refused. docs/TYPES.md is made of this."""

# ruff: noqa: E501 - lines of that page

from __future__ import annotations

import io
import math
import tempfile
import uuid
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidRequest, SchemaMismatch, UnsupportedType
from inlay.format.schema import ListOf, MapOf, Primitive, Struct
from inlay.ops.write.ingest import Rejected
from inlay.parquet.arrow.fits import check_parquet_types
from inlay.storage.open import open_store

PAGE = Path(__file__).parents[2] / "docs" / "TYPES.md"
AT = datetime(2013, 1, 1, 10, 0, 0, 123456)
VECTOR = pa.list_(pa.float32(), 2)
VARIANT = pa.struct(
    [pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)]
)


def tensor(rows: list[Any]) -> pa.Array:
    kind = pa.fixed_shape_tensor(pa.float32(), [2, 2])
    return pa.ExtensionArray.from_storage(kind, pa.array(rows, kind.storage_type))


def storage(kind: pa.DataType, rows: list[Any]) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, pa.array(rows, kind.storage_type))


KEPT: dict[str, pa.Array] = {
    "bool": pa.array([True, None]),
    **{
        name: pa.array([1, None], getattr(pa, name)())
        for name in ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    },
    "float16": pa.array([1.5, None], pa.float16()),
    "float32": pa.array([1.5, None], pa.float32()),
    "float64": pa.array([math.inf, None]),
    "decimal32(9, 2)": pa.array([Decimal("1.50"), None], pa.decimal32(9, 2)),
    "decimal64(18, 2)": pa.array([Decimal("1.50"), None], pa.decimal64(18, 2)),
    "decimal128(38, 2)": pa.array([Decimal("1.50"), None], pa.decimal128(38, 2)),
    "decimal256(76, 2)": pa.array([Decimal("1.50"), None], pa.decimal256(76, 2)),
    "decimal256(9, 2)": pa.array([Decimal("1.50"), None], pa.decimal256(9, 2)),
    "string": pa.array(["é", None]),
    "large_string": pa.array(["é", None], pa.large_string()),
    "string_view": pa.array(["é", None], pa.string_view()),
    "binary": pa.array([b"x", None]),
    "large_binary": pa.array([b"x", None], pa.large_binary()),
    "binary_view": pa.array([b"x", None], pa.binary_view()),
    "fixed_size_binary[2]": pa.array([b"xy", None], pa.binary(2)),
    "date32": pa.array([date(2013, 1, 1), None]),
    "date64": pa.array([date(2013, 1, 1), None], pa.date64()),
    "time32[s]": pa.array([time(10), None], pa.time32("s")),
    "time32[ms]": pa.array([time(10), None], pa.time32("ms")),
    "time64[us]": pa.array([time(10), None], pa.time64("us")),
    "time64[ns]": pa.array([time(10), None], pa.time64("ns")),
    "timestamp[s]": pa.array([AT.replace(microsecond=0), None], pa.timestamp("s")),
    "timestamp[ms]": pa.array([AT.replace(microsecond=0), None], pa.timestamp("ms")),
    "timestamp[us]": pa.array([AT, None], pa.timestamp("us")),
    "timestamp[ns]": pa.array([1, None], pa.timestamp("ns")),
    "timestamp[us, tz=UTC]": pa.array([AT, None], pa.timestamp("us", "UTC")),
    "timestamp[us, tz=America/New_York]": pa.array(
        [AT, None], pa.timestamp("us", "America/New_York")
    ),
    "timestamp[ns, tz=+05:30]": pa.array([1, None], pa.timestamp("ns", "+05:30")),
    "list<int64>": pa.array([[1, None], None]),
    "large_list<int64>": pa.array([[1, None], None], pa.large_list(pa.int64())),
    "list_view<int64>": pa.array([[1, None], None], pa.list_view(pa.int64())),
    "large_list_view<int64>": pa.array([[1, None], None], pa.large_list_view(pa.int64())),
    "fixed_size_list<float>[2]": pa.array([[1.0, 2.0], None, [3.0, None]], VECTOR),
    "fixed_size_list<float16>[2]": pa.array([[1.0, 2.0], None], pa.list_(pa.float16(), 2)),
    "struct<a: int64, b: dictionary>": pa.array(
        [{"a": 1, "b": "x"}, None],
        pa.struct([("a", pa.int64()), ("b", pa.dictionary(pa.int32(), pa.string()))]),
    ),
    "map<string, timestamp[us, tz=Europe/Zurich]>": pa.array(
        [[("a", AT)], None], pa.map_(pa.string(), pa.timestamp("us", "Europe/Zurich"))
    ),
    "map<string, int64>, keys sorted": pa.array(
        [[("a", 1)], None], pa.map_(pa.string(), pa.int64(), keys_sorted=True)
    ),
    "dictionary<int32, string>": pa.array(["x", None, "x"]).dictionary_encode(),
    "dictionary<int8, string>, ordered": pa.array(
        ["x", None], pa.dictionary(pa.int8(), pa.string(), ordered=True)
    ),
    "dictionary<int32, large_string>": pa.array(["x", None], pa.large_string()).dictionary_encode(),
    "dictionary<int32, int64>": pa.array([7, None]).dictionary_encode(),
    "arrow.uuid": storage(pa.uuid(), [uuid.UUID(int=7).bytes, None]),
    "arrow.json": storage(pa.json_(), ['{"a": 1}', None]),
    "arrow.bool8": storage(pa.bool8(), [1, None]),
    "arrow.opaque (of another system)": storage(
        pa.opaque(pa.binary(), "box", "postgres"), [b"x", None]
    ),
    "arrow.fixed_shape_tensor": tensor([[1.0, 2.0, 3.0, 4.0], None]),
}
REFUSED = {
    "null": pa.null(),
    "duration[us]": pa.duration("us"),
    "month_day_nano_interval": pa.month_day_nano_interval(),
    "decimal128(5, -2)": pa.decimal128(5, -2),
    "struct<> without fields": pa.struct([]),
    "fixed_size_binary[0]": pa.binary(0),
    "dense_union": pa.dense_union([pa.field("a", pa.int64())]),
    "run_end_encoded": pa.run_end_encoded(pa.int32(), pa.int64()),
}
# Of a type that no process has registered there is the storage, with metadata on the field.
MARKED = {
    "geoarrow.wkb (geometry as WKB)": (pa.binary(), b"geoarrow.wkb", b'{"crs": "EPSG:4326"}'),
    "arrow.parquet.variant": (VARIANT, b"arrow.parquet.variant", b""),
}


def create(schema: pa.Schema, **options: Any) -> inlay.Table:
    return inlay.create(f"memory://types/{uuid.uuid4().hex}", schema, **options)


@pytest.mark.parametrize("name", KEPT)
def test_a_type_comes_back_whatever_is_done_to_the_table(name: str) -> None:
    values = KEPT[name]
    schema = pa.schema([("id", pa.int64()), pa.field("x", values.type), ("n", pa.int64())])
    t = create(schema, primary_key="id")
    rows = pa.table(
        [pa.array(range(len(values))), values, pa.nulls(len(values), pa.int64())], schema=schema
    )
    assert t.schema.equals(schema)
    t.append(rows)
    t.append(rows.to_reader())
    t.update({"n": "id"}, where="id >= 0")
    t.upsert(pa.table({"id": [0], "n": [9]}))
    t.alter(rename={"x": "y"})
    t.maintain.compact()
    found = t.scan(columns=["id", "y"]).to_arrow()
    assert found.schema.field("y").type == values.type
    assert t.schema.field("y").type == values.type
    expected = [each for value in values.to_pylist() for each in (value, value)]
    order = sorted(range(found.num_rows), key=lambda at: found["id"][at].as_py())
    shown = [found["y"].to_pylist()[at] for at in order]
    assert repr(shown) == repr(expected) or shown == expected
    changed = t.changes(0, columns=["y"])
    assert changed.schema.field("y").type == values.type
    assert changed.to_arrow().num_rows
    assert inlay.open(t.uri).schema.field("y").type == values.type
    # A table like this one, and a column like this in another.
    assert create(t.schema).schema.equals(t.schema)
    other = create(pa.schema([("id", pa.int64())]))
    other.alter(add={"s": pa.struct([pa.field("v", values.type)])})
    other.alter(add={"x": values.type, "s.w": values.type})
    assert other.schema.field("x").type == values.type
    assert other.schema.field("s").type == pa.struct([("v", values.type), ("w", values.type)])


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_kept_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedType, match="'x'"):
        create(pa.schema([("x", REFUSED[name])]))


def with_interval(what: str = "INTERVAL '1 month'") -> io.BytesIO:
    connection, folder = duckdb.connect(), tempfile.mkdtemp()
    path = Path(folder) / "x.parquet"
    connection.execute(f"COPY (SELECT 1::BIGINT AS id, {what} AS x) TO '{path}' (FORMAT parquet)")
    return io.BytesIO(path.read_bytes())


@pytest.mark.parametrize(
    "what", ["INTERVAL '1 month'", "[INTERVAL '1 month']", "{'a': INTERVAL '1 month'}"]
)
@pytest.mark.parametrize("extend", [False, True])
@pytest.mark.parametrize("adopt", [False, True])
def test_an_interval_of_parquet_is_refused_where_a_file_comes(
    what: str, extend: bool, adopt: bool
) -> None:
    """pyarrow gives 12 bytes, which looks like any fixed(12)."""
    body = with_interval(what)
    schema = pa.schema([("id", pa.int64())]) if extend else pq.read_schema(body)
    t = create(schema, properties={"schema.evolve": "add"} if extend else None)
    landed = f"memory://types/{uuid.uuid4().hex}.parquet"
    store, key = open_store(landed)
    store.put(key, body.getvalue())
    [outcome] = t.ingest([landed], adopt=adopt).outcomes
    assert isinstance(outcome, Rejected) and isinstance(outcome.error, UnsupportedType)
    assert "'x" in outcome.error.message and inlay.open(t.uri).version == 1


@pytest.mark.parametrize("name", MARKED)
def test_an_extension_that_nobody_has_registered_keeps_its_mark(name: str) -> None:
    kind, mark, meta = MARKED[name]
    metadata = {b"ARROW:extension:name": mark, b"ARROW:extension:metadata": meta}
    t = create(pa.schema([pa.field("x", kind, metadata=metadata)]))
    rows = [{"metadata": b"m", "value": b"v"}, None] if pa.types.is_struct(kind) else [b"x", None]
    t.append(pa.table([pa.array(rows, kind)], names=["x"]))
    for found in (t.schema.field("x"), t.scan().to_arrow().schema.field("x")):
        if isinstance(found.type, pa.BaseExtensionType):  # a later pyarrow knows it
            assert found.type.extension_name.encode() == mark
        else:
            assert found.metadata == metadata


MEANINGS: dict[str, tuple[bytes, bytes, bytes]] = {
    "another frequency": (b"pandas.period", b'{"freq": "M"}', b'{"freq": "D"}'),
    "another projection": (b"geoarrow.wkb", b'{"crs": "EPSG:4326"}', b'{"crs": "EPSG:3857"}'),
    "parameters that are no JSON": (b"acme.unit", b"metre", b"foot"),
}


def marked(values: pa.Array, name: bytes, meta: bytes) -> pa.Table:
    metadata = {b"ARROW:extension:name": name, b"ARROW:extension:metadata": meta}
    field = pa.field("x", values.type, metadata=metadata)
    return pa.table([pa.array([1]), values], schema=pa.schema([("id", pa.int64()), field]))


@pytest.mark.parametrize("name", MEANINGS)
def test_what_is_stored_alike_and_means_something_else_is_refused_at_every_door(
    name: str, tmp_path: Path
) -> None:
    """2020-01-01 came back as 3491-11 from a column of months."""
    mark, own, other = MEANINGS[name]
    values = pa.array([b"1"]) if b"geo" in mark else pa.array([18262])
    right, wrong = marked(values, mark, own), marked(values, mark, other)
    t = inlay.create(tmp_path / "t", right.schema, primary_key="id")
    doors = [t.append, t.upsert]
    if not pa.types.is_binary(values.type):
        doors.append(lambda rows: t.delete(keys=rows.select(["x"])))
    for door in doors:
        with pytest.raises(SchemaMismatch, match="mean different things"):
            door(wrong)
    for rows, taken in ((wrong, False), (right, True)):
        pq.write_table(rows, tmp_path / "a.parquet")
        [outcome] = t.ingest([(tmp_path / "a.parquet").as_uri()]).outcomes
        assert (type(outcome).__name__ == "Ingested") is taken
    spaced = own.replace(b": ", b":")  # the same parameters, written otherwise
    plain = pa.table({"id": [1], "x": values})  # what the caller says is of the column's type
    for rows in (right, marked(values, mark, spaced), plain):
        t.upsert(rows)
    other_type = marked(values, b"acme.other", own)
    with pytest.raises(SchemaMismatch, match=r"acme\.other"):
        t.append(other_type)
    assert t.count() == 1


def test_what_is_nested_keeps_its_meaning_too() -> None:
    def rows(shape: list[int]) -> pa.Table:
        kind = pa.fixed_shape_tensor(pa.int32(), shape)
        values = pa.ExtensionArray.from_storage(kind, pa.array([[1, 2, 3, 4]], kind.storage_type))
        return pa.table({"s": pa.StructArray.from_arrays([values], ["t"])})

    t = create(rows([2, 2]).schema)
    t.append(rows([2, 2]))
    with pytest.raises(SchemaMismatch, match="mean different things"):
        t.append(rows([4]))
    assert t.count() == 1


def test_comments_are_kept() -> None:
    field = pa.field("x", pa.int64(), metadata={"comment": "what it is"})
    assert create(pa.schema([field])).schema.field("x").metadata == {b"comment": b"what it is"}


# -- values that a declared type does not take ----------------------------------------------------

BREAKING = {
    "a vector of another length": (VECTOR, pa.array([[1.0, 2.0, 3.0]], pa.list_(pa.float32()))),
    "a vector of another fixed length": (VECTOR, pa.array([[1.0] * 3], pa.list_(pa.float32(), 3))),
    "digits that a half lacks": (pa.float16(), pa.array([1.1], pa.float32())),
    "a part of a second": (pa.time32("s"), pa.array([time(0, 0, 0, 5000)], pa.time32("ms"))),
    "within a struct": (
        pa.struct([("v", VECTOR)]),
        pa.array([{"v": [1.0]}], pa.struct([("v", pa.list_(pa.float32()))])),
    ),
    "a time in a date": (pa.date64(), pa.array([1], pa.int64()).view(pa.date64())),
}


@pytest.mark.parametrize("name", BREAKING)
def test_values_that_do_not_fit_are_refused_at_every_door(name: str, tmp_path: Path) -> None:
    kind, values = BREAKING[name]
    t = create(pa.schema([("id", pa.int64()), ("x", kind), ("y", values.type)]), primary_key="id")
    bad = pa.table({"id": [1], "x": values})
    for write in (t.append, t.upsert):
        with pytest.raises(SchemaMismatch, match="'x'"):
            write(bad)
    assert t.count() == 0


def test_a_landed_file_whose_vectors_nobody_has_measured_is_refused(tmp_path: Path) -> None:
    t = inlay.create(tmp_path / "t", pa.schema([("x", VECTOR)]))
    for kind, taken in ((pa.list_(pa.float32()), False), (VECTOR, True)):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"x": pa.array([[1.0, 2.0]], kind)}), path)
        [outcome] = t.ingest([path.as_uri()]).outcomes
        assert (type(outcome).__name__ == "Ingested") is taken
    assert t.scan().to_arrow()["x"].to_pylist() == [[1.0, 2.0]]


def test_more_distinct_values_than_an_index_takes_are_given_back_in_pieces() -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    t = create(pa.schema([("x", kind)]))
    t.append(pa.table({"x": [str(n) for n in range(1000)]}))
    found = t.scan().to_arrow()
    assert found.schema.field("x").type == kind
    assert found["x"].to_pylist() == [str(n) for n in range(1000)]


def test_a_declaration_can_be_removed_but_not_set() -> None:
    t = create(pa.schema([("x", VECTOR)]))
    with pytest.raises(InvalidRequest):
        t.set_properties(arrow__types="{}")
    assert not t.properties
    t.set_properties(arrow__types=None)
    assert t.schema.field("x").type == pa.list_(pa.float32())


def test_a_widened_column_leaves_its_declaration_behind() -> None:
    schema = pa.schema(
        [("d", pa.decimal32(9, 2)), ("t", pa.timestamp("ms", "Asia/Tokyo")), ("h", pa.float16())]
    )
    t = create(schema)
    t.append(
        pa.table(
            {"d": [Decimal("1.50")], "t": [AT.replace(microsecond=0)], "h": [1.5]}, schema=schema
        )
    )
    t.alter(widen={"d": pa.decimal128(20, 2), "t": pa.timestamp("us", "UTC"), "h": pa.float64()})
    assert t.schema.types == [pa.decimal128(20, 2), pa.timestamp("us", "Asia/Tokyo"), pa.float64()]
    assert t.scan().to_arrow().num_rows == 1


def test_columns_that_data_brings_are_declared_as_it_says() -> None:
    t = create(pa.schema([("id", pa.int64())]), properties={"schema.evolve": "add"})
    values = pa.array(["x"]).dictionary_encode()
    t.append(pa.table({"id": [1], "c": values, "v": pa.array([[1.0, 2.0]], VECTOR)}))
    assert t.schema.field("c").type == values.type
    assert t.scan().to_arrow().schema.field("v").type == VECTOR


def test_branches_tags_and_old_versions_have_their_types(tmp_path: Path) -> None:
    t = create(pa.schema([("x", VECTOR)]))
    t.append(pa.table({"x": pa.array([[1.0, 2.0]], VECTOR)}))
    t.refs.tag("before")
    b = t.refs.branch("b")
    b.alter(add={"z": pa.timestamp("us", "Asia/Tokyo")})
    t.refresh().alter(add={"y": pa.uuid()}, drop=["x"])
    assert b.refresh().schema.types == [VECTOR, pa.timestamp("us", "Asia/Tokyo")]
    assert inlay.open(t.uri, ref="before").schema.types == [VECTOR]
    assert inlay.open(t.uri, version=2).scan().to_arrow().schema.types == [VECTOR]
    t.refresh().refs.restore(ref="before")
    assert t.schema.types == [VECTOR]


LEAVES = st.sampled_from(
    [array.type for array in KEPT.values() if not pa.types.is_nested(array.type)]
)


def nested(kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        kinds.map(pa.list_),
        kinds.map(pa.large_list),
        st.tuples(kinds, st.integers(0, 3)).map(lambda k: pa.list_(*k)),
        kinds.map(lambda k: pa.struct([("a", k), ("b", pa.int64())])),
        kinds.map(lambda k: pa.map_(pa.string(), k)),
        st.sampled_from(
            [pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int16(), pa.int64())]
        ),
    )


@example([pa.dictionary(pa.int8(), pa.string(), ordered=True), pa.list_(pa.list_(pa.uuid()))])
@settings(deadline=None, max_examples=80)
@given(st.lists(st.recursive(LEAVES, nested, max_leaves=3), min_size=1, max_size=3))
def test_whatever_is_nested_in_whatever_comes_back_or_is_refused(kinds: list[pa.DataType]) -> None:
    schema = pa.schema([(f"c{n}", kind) for n, kind in enumerate(kinds)])
    try:
        t = create(schema)
    except UnsupportedType:
        return
    assert t.schema.equals(schema)
    nulls = pa.table(
        [pa.nulls(3, plain.type) for plain in create(schema).scan().to_arrow().schema],
        schema=schema,
    )
    t.append(nulls)
    assert t.scan().to_arrow().equals(nulls)


# -- the page -------------------------------------------------------------------------------------


def stored(field: Any) -> str:
    match field.type:
        case Primitive():
            return str(field.type)
        case Struct(fields):
            return f"struct<{', '.join(f'{f.name}: {stored(f)}' for f in fields)}>"
        case ListOf(element):
            return f"list<{stored(element)}>"
        case MapOf(key, value):
            return f"map<{stored(key)}, {stored(value)}>"
    raise AssertionError(field)


def page() -> str:
    lines = [
        "# Arrow types and the types of a table",
        "",
        "`tests/schema/test_declared_types.py` makes this page: it writes each type, changes the table and reads it back.",
        "The format's own types are few ([FORMAT.md](FORMAT.md)); the rest of an Arrow type is kept beside the schema in",
        "the property `arrow.types`, and `t.schema`, scans and change feeds restore it. Libraries that do not know the",
        "property, and Spark, read the stored type.",
        "",
        "| Arrow type | stored as |",
        "|---|---|",
    ]
    for name, values in KEPT.items():
        [field] = create(pa.schema([("x", values.type)])).snapshot.schema.fields
        lines.append(f"| `{name}` | `{stored(field)}` |")
    for name, (kind, _, _) in MARKED.items():
        [field] = create(pa.schema([("x", kind)])).snapshot.schema.fields
        lines.append(
            f"| `{name}`, where it is not registered: its storage and its metadata | `{stored(field)}` |"
        )
    lines += [
        "",
        "Refused when a table is created, with the next step:",
        "",
        "| Arrow type | next step |",
        "|---|---|",
    ]
    for name, kind in REFUSED.items():
        with pytest.raises(UnsupportedType) as caught:
            create(pa.schema([("x", kind)]))
        lines.append(f"| `{name}` | {caught.value.next_step} |")
    with pytest.raises(UnsupportedType) as caught:
        check_parquet_types(pq.ParquetFile(with_interval()).schema)
    lines += [
        f"| `INTERVAL` of a Parquet file, as DuckDB writes it | {caught.value.next_step} |",
        "",
        "- Values that a declared type cannot hold (a list of another length in a vector, digits beyond a half float or",
        "  a second) are refused by `append`, `update` and `upsert`. A Parquet file whose own types do not prove its",
        "  values is refused by `ingest`: append its rows.",
        "- Data of another extension type than its column's, or of the same with other parameters (a period of days for",
        "  months, another projection), is refused by every writer; data of the storage type is taken for the column's.",
        "- An **ordered** dictionary (an ordered category of pandas, Polars' `Enum`, an ordered factor of R) comes back with",
        "  all its entries in their order, those that no row has among them. The order is learnt from the dictionaries of",
        "  rows that `append` and `upsert` take, at any depth, in one commit before theirs (property `arrow.categories`, 16 KiB",
        "  for all columns); and of texts in landed Parquet files of Arrow's C++ library (pyarrow, pandas, R) that have Arrow's",
        "  schema, from the dictionary page of each row group, a request for each group of a large file. Data may list a part of",
        "  it, or more entries where their place is clear; another order is refused by column. Values that come by other ways",
        "  (plain text, SQL, Spark) and are no entries follow after them. Other writers list entries as rows have them (Polars,",
        "  arrow-rs), and Parquet keeps no dictionary of numbers: from such files nothing is learnt. Where the table has rows and",
        "  knows no order, the dictionary is not called ordered; an append without rows tells it:",
        "  `t.append(pa.Table.from_pandas(frame[:0]))`.",
        "  Conditions and `order_by` compare the values, not their place. An [erasure](ERASURE.md) drops the entries that no row has.",
        "- Another dictionary's values (pandas' unordered category, Polars' `Categorical`, DuckDB's `ENUM`, which Arrow has",
        "  as unordered) are those of the rows that were read, in their order; a scan makes a dictionary for each batch. An",
        "  index type too narrow for a batch's distinct values makes smaller batches.",
        "- The comment of a column (`comment` in the metadata of an Arrow field) is kept. Other metadata of fields and",
        "  schemas is not, pandas' index among it.",
        "- A column that is widened loses what does not fit its new type; zones stay. `t.set_properties(arrow__types=None)`",
        "  goes back to the stored types.",
        "",
    ]
    return "\n".join(lines)


def test_the_page_says_what_is_so() -> None:
    made = page()
    if not PAGE.exists() or PAGE.read_text() != made:
        PAGE.write_text(made)
        raise AssertionError("docs/TYPES.md was out of date and has been written again: look at it")

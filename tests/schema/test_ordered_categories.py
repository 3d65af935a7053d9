"""Ordered categories keep their order and the entries that no row has."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from decimal import Decimal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import SchemaMismatch
from inlay.format.properties import ARROW_CATEGORIES
from inlay.ops.write.ingest import Ingested, Rejected
from inlay.parquet.arrow.categories import merged

SIZES = ["small", "medium", "large", "huge"]
INDEX = pa.int8()


def ordered(values, entries=SIZES, index=INDEX):
    at = {entry: n for n, entry in enumerate(entries)}
    indices = pa.array([None if v is None else at[v] for v in values], index)
    return pa.DictionaryArray.from_arrays(indices, pa.array(entries), ordered=True)


def table_of(data: pa.Table | pa.Schema, **options) -> inlay.Table:
    schema = data if isinstance(data, pa.Schema) else data.schema
    return inlay.create(f"memory://categories/{uuid.uuid4().hex}", schema, **options)


def column(table: inlay.Table, name: str = "size") -> pa.ChunkedArray:
    return table.scan().to_arrow()[name]


def orders(table: inlay.Table, name: str = "size") -> set[tuple]:
    return {tuple(chunk.dictionary.to_pylist()) for chunk in column(table, name).chunks}


def test_a_pandas_category_comes_back_as_it_was():
    given = pd.Categorical(["small", "large", None, "medium"], categories=SIZES, ordered=True)
    frame = pd.DataFrame({"size": given})
    table = table_of(pa.Schema.from_pandas(frame))
    table.append(frame)
    back = table.scan().to_arrow().to_pandas()
    pd.testing.assert_frame_equal(back, frame)
    assert back["size"].max() == "large" and (back["size"] < "large").sum() == 2
    assert list(back["size"].sort_values().dropna()) == ["small", "medium", "large"]


def test_an_enum_of_polars_comes_back_in_its_order():
    frame = pl.DataFrame({"size": pl.Series(["large", "small"], dtype=pl.Enum(SIZES))})
    table = table_of(frame.to_arrow().schema)
    table.append(frame)
    table.append(frame.lazy().collect())
    assert orders(table) == {tuple(SIZES)}
    back = pl.from_arrow(table.scan().to_arrow())
    assert back["size"].cast(pl.Enum(SIZES)).to_list() == ["large", "small"] * 2
    for rows in (table.scan(), table.changes(1)):
        frame = rows.to_polars()
        assert frame["size"].dtype == pl.Enum(SIZES) and frame["size"].max() == "large"


@pytest.mark.parametrize("kind", ["pandas", "polars", "table", "stream", "nested"])
def test_a_table_that_begins_with_rows_has_their_order(kind):
    entries = pa.DictionaryArray.from_arrays(pa.array([2, 0], pa.int8()), SIZES, ordered=True)
    rows = pa.table({"size": entries})
    if kind == "nested":
        rows = pa.table(
            {"size": pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), entries)}
        )
    given = {
        "pandas": rows.to_pandas,
        "polars": lambda: pl.DataFrame(
            {"size": pl.Series(["large", "small"], dtype=pl.Enum(SIZES))}
        ),
        "stream": rows.to_reader,
    }.get(kind, lambda: rows)()
    table = inlay.create(f"memory://categories/{uuid.uuid4().hex}", given)
    assert table.version == 1
    found = column(table) if kind != "nested" else table.scan().to_arrow()["size"].combine_chunks()
    if kind == "nested":
        assert found.values.dictionary.to_pylist() == SIZES and found.type.value_type.ordered
        return
    assert found.type.ordered and orders(table) == {tuple(SIZES)}
    assert found.to_pylist() == ["large", "small"]
    with pytest.raises(SchemaMismatch, match="another order"):
        other = entries.dictionary.take(pa.array([1, 0, 2, 3]))
        table.append(pa.table({"size": pa.DictionaryArray.from_arrays([0], other, ordered=True)}))


def test_a_lazy_frame_has_the_enum_and_prunes_nothing_by_its_order():
    """By text "large" comes first: pruning by that would lose rows that are greater in the order."""
    frame = pl.DataFrame({"id": range(4), "size": pl.Series(SIZES, dtype=pl.Enum(SIZES))})
    table = table_of(frame.to_arrow().schema)
    for row in frame.iter_slices(1):
        table.append(row)
    lazy = table.to_lazy()
    assert lazy.collect_schema()["size"] == pl.Enum(SIZES)
    assert lazy.collect()["size"].max() == "huge"
    for entry in SIZES:
        for wanted in (
            pl.col("size") > entry,
            pl.col("size") <= entry,
            pl.col("size") == entry,
            (pl.col("size") >= entry) & (pl.col("id") > 1),
        ):
            found = lazy.filter(wanted).sort("id").collect()
            assert found.equals(frame.filter(wanted)), entry
    table.append(pa.table({"id": [9], "size": ["odd"]}))
    assert table.to_lazy().select("id").collect().height == 5
    with pytest.raises(Exception, match="none of its ordered categories"):
        table.to_lazy().collect()


def test_an_enum_of_duckdb_is_not_ordered_in_arrow_and_comes_back_so():
    con = duckdb.connect()
    con.execute("CREATE TYPE s AS ENUM ('small', 'medium', 'large')")
    data = con.sql("SELECT unnest(['large', 'small'])::s AS size").to_arrow_table()
    table = table_of(data)
    table.append(data)
    assert not column(table).type.ordered and column(table).to_pylist() == ["large", "small"]


ENTRIES = {
    "string": SIZES,
    "int64": [3, 1, 2],
    "int8": [5, -1, 0],
    "double": [2.5, 0.5, 1.5],
    "date": [dt.date(2020, 1, 2), dt.date(2019, 1, 1)],
    "timestamp": [dt.datetime(2020, 1, 2), dt.datetime(2019, 1, 1)],
    "decimal": [Decimal("2.50"), Decimal("-1.00")],
    "binary": [b"z", b"a\x00"],
}
TYPES = {
    "string": [pa.string(), pa.large_string(), pa.string_view()],
    "int64": [pa.int64()],
    "int8": [pa.int8()],
    "double": [pa.float64()],
    "date": [pa.date32()],
    "timestamp": [pa.timestamp("us"), pa.timestamp("ns", "Europe/Zurich")],
    "decimal": [pa.decimal128(9, 2)],
    "binary": [pa.binary()],
}


@pytest.mark.parametrize(
    "kind", [(name, kind) for name, kinds in TYPES.items() for kind in kinds], ids=str
)
@pytest.mark.parametrize("nested", ["plain", "struct", "list", "map"])
def test_orders_of_every_type_at_every_depth(kind, nested):
    name, value_type = kind
    entries = pa.array(ENTRIES[name], value_type)
    drawn = random.Random(str(kind))
    picks = [None if drawn.random() < 0.2 else drawn.randrange(len(entries)) for _ in range(12)]
    array = pa.DictionaryArray.from_arrays(pa.array(picks, pa.int8()), entries, ordered=True)
    offsets = pa.array(range(13), pa.int32())
    match nested:
        case "struct":
            array = pa.StructArray.from_arrays([array], ["v"])
        case "list":
            array = pa.ListArray.from_arrays(offsets, array)
        case "map":
            array = pa.MapArray.from_arrays(offsets, pa.array(["k"] * 12), array)
    data = pa.table({"v": array})
    try:
        table = table_of(data)
    except inlay.errors.UnsupportedType:
        pytest.skip("Arrow cannot make such a dictionary")
    for start in (0, 5):
        table.append(data.slice(start))
    found = table.scan().to_arrow()["v"]
    assert found.to_pylist() == data["v"].to_pylist() + data["v"].to_pylist()[5:]
    for chunk in found.chunks:
        match nested:
            case "struct":
                chunk = chunk.field(0)
            case "list":
                chunk = chunk.flatten()
            case "map":
                chunk = chunk.items
        assert chunk.type.ordered and chunk.dictionary.to_pylist() == entries.to_pylist()


def test_more_entries_are_taken_where_the_order_says_their_place():
    table = table_of(pa.table({"size": ordered(["small"])}))
    table.append(pa.table({"size": ordered(["large"], ["small", "large"])}))
    table.append(pa.table({"size": ordered(["medium"], SIZES)}))
    table.append(pa.table({"size": ordered(["huge"], ["small", "huge"])}))
    assert orders(table) == {tuple(SIZES)}


@pytest.mark.parametrize("entries", [["large", "small"], ["small", "tiny", "large", "medium"]])
@pytest.mark.parametrize("way", ["append", "upsert", "stream"])
def test_another_order_is_refused_and_nothing_is_written(entries, way):
    table = table_of(pa.table({"size": ordered(["small"])}), primary_key=["size"])
    table.append(pa.table({"size": ordered(["small", "large"])}))
    version = table.refresh().version
    data = pa.table({"size": ordered(entries, entries)})
    with pytest.raises(SchemaMismatch, match="'size' has its categories in another order"):
        if way == "upsert":
            table.upsert(data)
        elif way == "stream":
            first = pa.table({"size": ordered(["medium"])}).to_batches()
            batches = [*first, *data.to_batches()]
            table.append(pa.RecordBatchReader.from_batches(data.schema, batches))
        else:
            table.append(data)
    assert table.refresh().version == version


def test_values_that_are_no_entries_follow_after_them():
    table = table_of(pa.table({"size": ordered(["small"])}))
    table.append(pa.table({"size": ordered(["small", "large"])}))
    table.append(pa.table({"size": ["odd", "medium", None, "even"]}))
    found = column(table)
    assert found.to_pylist() == ["small", "large", "odd", "medium", None, "even"]
    for chunk in found.chunks:
        assert chunk.dictionary.to_pylist()[:4] == SIZES


def test_rows_whose_order_nobody_said_are_not_called_ordered():
    table = table_of(pa.table({"size": ordered(["small"])}))
    assert table.schema.field("size").type.ordered
    table.append(pa.table({"size": ["small", "large"]}))
    assert not table.refresh().schema.field("size").type.ordered
    assert not column(table).type.ordered
    table.append(pa.table({"size": ordered(["huge"])}))
    assert column(table).type.ordered and orders(table) == {tuple(SIZES)}


@pytest.mark.parametrize("form", ["table", "batch", "reader", "pandas", "polars", "upsert"])
def test_data_without_rows_says_the_order_of_rows_that_came_otherwise(form, tmp_path):
    """A file without Arrow's schema says nothing of an order."""
    frame = pd.DataFrame({"size": pd.Categorical(["huge", "small"], SIZES, ordered=True)})
    frame.to_parquet(tmp_path / "landed.parquet", store_schema=False)
    schema = pa.Schema.from_pandas(frame).remove_metadata()
    table = inlay.create(tmp_path / "table", schema, primary_key="size")
    table.ingest([(tmp_path / "landed.parquet").as_uri()])
    assert not column(table.refresh()).type.ordered
    none = pa.table({"size": ordered([])})
    data = {
        "table": none,
        "batch": pa.RecordBatch.from_arrays([ordered([])], schema=none.schema),
        "reader": pa.RecordBatchReader.from_batches(
            none.schema, [pa.RecordBatch.from_arrays([ordered([])], schema=none.schema)]
        ),
        "pandas": pa.Table.from_pandas(frame.iloc[:0]),
        "polars": pl.DataFrame(schema={"size": pl.Enum(SIZES)}),
        "upsert": none,
    }[form]
    (table.upsert if form == "upsert" else table.append)(data)
    assert orders(table.refresh()) == {tuple(SIZES)}
    assert column(table).type.ordered and column(table).to_pylist() == ["huge", "small"]


def test_orders_survive_a_rename_and_every_writer():
    table = table_of(pa.table({"id": [1], "size": ordered(["small"])}), primary_key=["id"])
    table.append(pa.table({"id": [1, 2], "size": ordered(["small", "huge"])}))
    table.alter(rename={"size": "fit"})
    table.update({"fit": "'large'"}, where="id = 2")
    table.upsert(pa.table({"id": [3], "fit": ordered(["medium"])}))
    table.maintain.compact()
    found = table.refresh().scan(order_by="id", limit=9).to_arrow()["fit"]
    assert found.to_pylist() == ["small", "large", "medium"]
    assert {tuple(c.dictionary.to_pylist()) for c in found.chunks} == {tuple(SIZES)}


WIDER = {
    "days to ns": (pa.array([dt.date(2020, 1, 1), dt.date(2019, 1, 1)]), pa.timestamp("ns")),
    "days to us": (pa.array([dt.date(1, 1, 1), dt.date(2019, 1, 1)]), pa.timestamp("us")),
    "ms to us": (pa.array([5, 3], pa.timestamp("ms")), pa.timestamp("us")),
    "ms to ns": (pa.array([5, 3], pa.time32("ms")), pa.time64("ns")),
    "digits": (
        pa.array([Decimal("3.1"), Decimal("1.1")], pa.decimal128(4, 1)),
        pa.decimal128(9, 3),
    ),
    "float": (pa.array([3.1, float("nan"), -0.0], pa.float32()), pa.float64()),
    "int": (pa.array([3, -1], pa.int8()), pa.int64()),
}


@pytest.mark.parametrize("name", WIDER)
@pytest.mark.parametrize("nested", [False, True])
def test_orders_are_as_wide_as_their_column(name, nested):
    entries, wider = WIDER[name]
    array = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), entries, ordered=True)
    data = pa.table({"v": pa.StructArray.from_arrays([array], ["x"]) if nested else array})
    table = table_of(data)
    table.append(data)
    before = table.version
    table.alter(widen={"v.x" if nested else "v": wider})
    table.append(data)  # its order is the one that the table has

    def dictionaries(found: pa.ChunkedArray) -> list[list]:
        chunks = [chunk.field(0) if nested else chunk for chunk in found.chunks]
        assert all(chunk.type.ordered for chunk in chunks)
        return [chunk.dictionary for chunk in chunks]

    expected = entries.cast(wider)
    for found in (column(table, "v"), table.changes(before - 2).to_arrow()["v"]):
        assert dictionaries(found) and all(str(d) == str(expected) for d in dictionaries(found))
    old = column(inlay.open(table.uri, version=before), "v")
    assert all(str(d) == str(entries) for d in dictionaries(old))


@pytest.mark.parametrize("name", WIDER)
def test_an_order_that_comes_while_its_column_widens_is_as_wide(name):
    """What the handle of before commits first is the order: days would be read as microseconds."""
    entries, wider = WIDER[name]
    array = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), entries, ordered=True)
    data = pa.table({"v": array})
    table = table_of(data)
    before = inlay.open(table.uri)
    table.alter(widen={"v": wider})
    before.append(data)
    [chunk] = column(table.refresh(), "v").chunks
    assert str(chunk.dictionary) == str(entries.cast(wider))


def test_an_entry_that_a_wider_column_cannot_hold_is_left_out():
    days = [dt.date(1, 1, 1), dt.date(2019, 1, 1)]
    table = table_of(pa.table({"v": ordered(days[1:], days)}))
    table.append(pa.table({"v": ordered(days[1:], days)}))
    table.alter(widen={"v": pa.timestamp("ns")})
    [chunk] = column(table, "v").chunks
    assert chunk.dictionary.to_pylist() == [dt.datetime(2019, 1, 1)]


def test_racing_first_orders_are_joined(monkeypatch):
    """Two writers that know no order: the second's is planned again on the first's."""
    table = table_of(pa.table({"size": ordered(["small"])}))
    other = inlay.open(table.uri)
    table.append(pa.table({"size": ordered(["small"], ["small", "huge"])}))
    other.append(pa.table({"size": ordered(["medium"], SIZES)}))
    assert orders(table.refresh()) == {tuple(SIZES)}
    with pytest.raises(SchemaMismatch):
        inlay.open(table.uri).append(pa.table({"size": ordered(["huge"], ["huge", "small"])}))


def test_an_order_too_large_for_the_metadata_or_the_index_is_refused():
    table = table_of(pa.table({"size": ordered(["small"])}))
    many = [f"entry {n}" for n in range(2000)]
    with pytest.raises(SchemaMismatch, match="more than 16 KiB"):
        table_of(pa.table({"size": ordered(["small"], index=pa.int32())})).append(
            pa.table({"size": ordered(many[:5], many, pa.int32())})
        )
    with pytest.raises(SchemaMismatch, match="more categories than its dictionary's index"):
        table.append(pa.table({"size": ordered(many[:5], many[:200], pa.int16())}))
    assert ARROW_CATEGORIES not in table.refresh().snapshot.properties


def test_merged_keeps_both_orders():
    for seed in range(300):
        drawn = random.Random(seed)
        known = tuple(drawn.sample("abcdef", drawn.randrange(6)))
        given = tuple(drawn.sample("abcdef", drawn.randrange(6)))
        both = merged(known, given)
        if both is None:
            each_has_more = set(known) - set(given) and set(given) - set(known)
            contradict = [e for e in known if e in given] != [e for e in given if e in known]
            assert each_has_more or contradict
        else:
            assert tuple(e for e in both if e in known) == known
            assert tuple(e for e in both if e in given) == given


def test_the_property_is_the_librarys_own():
    table = table_of(pa.table({"size": ordered(["small"])}))
    table.append(pa.table({"size": ordered(["small"])}))
    with pytest.raises(inlay.errors.InvalidRequest, match="maintained by the library"):
        table.set_properties(arrow__categories="{}")
    table.set_properties(arrow__categories=None)
    assert not table.refresh().schema.field("size").type.ordered


def landed(path, data: pa.Table, **options) -> str:
    pq.write_table(data, path, **options)
    return path.as_uri()


def ingested(table: inlay.Table, uri: str) -> object:
    [outcome] = table.ingest([uri]).outcomes
    table.refresh()
    return outcome


def requests(table: inlay.Table, uri: str) -> dict[str, int]:
    before = table.usage
    ingested(table, uri)
    return dict((table.usage - before).requests)


@pytest.mark.parametrize("rows", [2, 400_000])
def test_a_landed_file_brings_its_order(tmp_path, rows):
    """Small objects come whole with their footer; of large ones the dictionary pages are read."""
    fresh = pa.array(range(rows)) if rows > 2 else pa.array([1, 2])
    size = ordered(["large", "small"] * (rows // 2))
    kinds = {
        "size": size,
        "list": pa.ListArray.from_arrays(pa.array([0, *range(1, rows + 1)], pa.int32()), size),
        "inner": pa.StructArray.from_arrays([size], ["x"]),
        "id": fresh,
    }
    data = pa.table(kinds)
    table = inlay.create((tmp_path / "t").as_uri(), data.schema)
    uri = landed(tmp_path / "a.parquet", data, row_group_size=150_000)
    assert isinstance(ingested(table, uri), Ingested)
    assert orders(table) == {tuple(SIZES)}
    back = table.scan().to_arrow()
    assert {c.values.dictionary.to_pylist() == SIZES for c in back["list"].chunks} == {True}
    assert {c.field(0).dictionary.to_pylist() == SIZES for c in back["inner"].chunks} == {True}
    assert back.to_pandas()["size"].max() == "large"
    # More entries extend the order; a contradiction is refused, and changes nothing.
    more = pa.table({"size": ordered(["huge"], ["tiny", *SIZES])})
    assert isinstance(ingested(table, landed(tmp_path / "b.parquet", more)), Ingested)
    assert orders(table) == {("tiny", *SIZES)}
    wrong = pa.table({"size": ordered(["huge"], ["huge", "small"])})
    refused = ingested(table, landed(tmp_path / "c.parquet", wrong))
    assert isinstance(refused, Rejected) and isinstance(refused.error, SchemaMismatch)
    assert orders(table) == {("tiny", *SIZES)} and table.count() == rows + 1


def test_landed_files_without_an_order_cost_and_say_nothing(tmp_path):
    plain = pa.table({"size": pa.array(["large", "huge"] * 200_000), "id": range(400_000)})
    table = inlay.create(
        (tmp_path / "t").as_uri(), pa.schema([("size", ordered([]).type), ("id", pa.int64())])
    )
    texts = inlay.create((tmp_path / "u").as_uri(), plain.schema)
    uri = landed(tmp_path / "a.parquet", plain)
    asked = requests(table, uri)
    assert asked == requests(texts, uri)
    assert ARROW_CATEGORIES not in table.properties
    # Others list the entries of a dictionary as rows have them.
    other = landed(
        tmp_path / "b.parquet", plain.set_column(0, "size", ordered(["huge", "small"] * 200_000))
    )
    path = tmp_path / "b.parquet"
    path.write_bytes(path.read_bytes().replace(b"parquet-cpp-arrow", b"parquet-rs-arrow!"))
    ingested(table, other)
    assert ARROW_CATEGORIES not in table.properties


def test_a_dictionary_that_grows_and_one_without_entries_of_its_rows(tmp_path):
    """Every row group has a dictionary of its own; one that is full goes on in plain pages."""
    schema = pa.schema([("size", pa.dictionary(pa.int16(), pa.string(), ordered=True))])
    table = inlay.create((tmp_path / "t").as_uri(), schema)
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, schema, dictionary_pagesize_limit=64) as writer:
        for entries in (SIZES[:2], SIZES[:3], SIZES):
            rows = ordered([entries[-1]], entries, pa.int16())
            writer.write_table(pa.table({"size": rows}))
    assert isinstance(ingested(table, path.as_uri()), Ingested)
    assert orders(table) == {tuple(SIZES)}
    assert column(table).to_pylist() == ["medium", "large", "huge"]

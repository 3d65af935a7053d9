"""Files that DuckDB, Polars, Spark, Impala and old Arrow wrote: same rows, and statistics that hold."""

from __future__ import annotations

import datetime as dt
import io
import re
import struct
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import InlayError
from inlay.format.predicate import Comparison, Literal
from inlay.format.schema import Primitive, Schema
from inlay.format.values import compare
from inlay.ops.write.ingest import Ingested, Rejected
from inlay.parquet.arrow.conform import conformed as rows_of_table
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.footer.fields import Chunk, File, Group
from inlay.parquet.footer.footer import decode_footer, end_of_file

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "parquet-testing"


def rows(count: int = 5000) -> pa.Table:
    days = [dt.date(1969, 12, 1) + dt.timedelta(days=n % 90) for n in range(count)]
    times = [dt.datetime(1969, 1, 1) + dt.timedelta(hours=n, microseconds=n) for n in range(count)]
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "small": pa.array([n % 200 for n in range(count)], pa.uint8()),
            "big": pa.array([2**63 + n for n in range(count)], pa.uint64()),
            "word": pa.array([f"wörd {n % 50}" if n % 7 else None for n in range(count)]),
            "x": pa.array([n / 3 if n % 9 else None for n in range(count)]),
            "price": pa.array([Decimal(n - 100) / 100 for n in range(count)], pa.decimal128(9, 2)),
            "long_price": pa.array(
                [Decimal(n - 9) / 10**6 for n in range(count)], pa.decimal128(30, 6)
            ),
            "day": pa.array(days, pa.date32()),
            "at": pa.array(times, pa.timestamp("us")),
            "ok": pa.array([None if n % 5 == 0 else n % 2 == 0 for n in range(count)]),
            "raw": pa.array([bytes([n % 256, 255]) for n in range(count)], pa.binary()),
            "tags": pa.array([[str(n)] * (n % 3) if n % 4 else None for n in range(count)]),
            "s": pa.array([{"a": n, "b": {"c": str(n)}} if n % 6 else None for n in range(count)]),
        }
    )


def by_duckdb(table: pa.Table, path: Path) -> None:
    connection = duckdb.connect()
    connection.register("source", table)
    connection.execute(
        f"COPY (SELECT * FROM source) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)"
    )


def by_polars(table: pa.Table, path: Path) -> None:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(path, row_group_size=2048)


def by_arrow(**options: Any) -> Any:
    def write(table: pa.Table, path: Path) -> None:
        pq.write_table(table, path, row_group_size=2048, **options)

    return write


def with_dictionaries(table: pa.Table, path: Path) -> None:
    at = table.schema.get_field_index("word")
    encoded = table.set_column(at, "word", table["word"].dictionary_encode())
    pq.write_table(encoded, path, row_group_size=2048)


def with_large_types(table: pa.Table, path: Path) -> None:
    large = {
        "word": pa.large_string(),
        "raw": pa.large_binary(),
        "tags": pa.large_list(pa.string()),
    }
    for name, kind in large.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table[name].cast(kind))
    pq.write_table(table, path, row_group_size=2048)


WRITERS = {
    "duckdb": by_duckdb,
    "polars": by_polars,
    "arrow": by_arrow(),
    "arrow-old": by_arrow(version="1.0", data_page_version="1.0", compression="snappy"),
    "arrow-v2-pages": by_arrow(data_page_version="2.0", compression="gzip"),
    "arrow-int-decimals": by_arrow(store_decimal_as_integer=True),
    "arrow-no-stats": by_arrow(write_statistics=False),
    "arrow-no-schema": by_arrow(store_schema=False),
    "dictionaries": with_dictionaries,
    "large-types": with_large_types,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_rows_and_pruning_do_not_depend_on_the_writer(
    lake: Any, tmp_path: Path, writer: str
) -> None:
    table = rows()
    path = tmp_path / "f.parquet"
    WRITERS[writer](table, path)
    # As ingest and create do: the table's schema comes from the file.
    schema = schema_from_arrow(pq.read_schema(path))
    file = lake.adopt(path.read_bytes(), schema)
    assert all_stats_hold(lake, file, schema)
    found = lake.read([file], schema)
    assert as_plain(found) == as_plain(table)
    for name in ("id", "small", "big", "word", "x", "price", "long_price", "day", "at", "raw"):
        field = schema.column(name)
        assert field is not None and isinstance(field.type, Primitive)
        value = physical(found[name][3001])
        if value is None:
            continue
        equal = Comparison(field.id, "=", Literal(field.type, value))
        hits = lake.read([file], schema, predicate=equal, columns=["id"])
        expected = found.filter(pc.equal(found[name], found[name][3001])).select(["id"])
        assert hits["id"].to_pylist() == expected["id"].to_pylist(), name


def as_plain(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist()


def physical(scalar: pa.Scalar) -> Any:
    if pa.types.is_temporal(scalar.type):
        return scalar.value
    return scalar.as_py()


def all_stats_hold(lake: Any, file: Any, schema: Schema) -> bool:
    """Every bound in the entry bounds every value there is."""
    body = pq.read_table(pa.BufferReader(lake.body(file.key)))
    table = pa.Table.from_batches(list(rows_of_table(body.to_batches(), schema, schema)))
    for field in schema.fields:
        stats = file.stats.get(field.id)
        if stats is None or not isinstance(field.type, Primitive):
            continue
        values = [physical(v) for v in table[field.name] if v.is_valid]
        assert stats.null_count in (None, table[field.name].null_count), field.name
        for value in values:
            assert stats.lower is None or compare(field.type, stats.lower, value) <= 0, field.name
            assert stats.upper is None or compare(field.type, stats.upper, value) >= 0, field.name
    return True


def test_known_writers_give_bounds_for_what_has_an_order(lake: Any, tmp_path: Path) -> None:
    table = rows()
    for writer in ("duckdb", "polars", "arrow", "arrow-int-decimals"):
        path = tmp_path / f"{writer}.parquet"
        WRITERS[writer](table, path)
        schema = schema_from_arrow(pq.read_schema(path))
        file = lake.adopt(path.read_bytes(), schema)
        for name in ("id", "small", "big", "word", "x", "price", "long_price", "day", "at"):
            field = schema.column(name)
            assert field is not None
            stats = file.stats[field.id]
            assert stats.lower is not None and stats.upper is not None, (writer, name)


def test_int96_times_are_read_and_have_no_bounds(lake: Any) -> None:
    table = pa.table({"at": pa.array([dt.datetime(1960, 1, 1), None, dt.datetime(2020, 1, 1)])})
    sink = io.BytesIO()
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True)
    schema = schema_from_arrow(pq.read_schema(pa.BufferReader(sink.getvalue())))
    file = lake.adopt(sink.getvalue(), schema)
    assert file.stats[1].lower is None and file.stats[1].upper is None
    found = lake.read([file], schema)
    assert found["at"].cast(pa.timestamp("us")).to_pylist() == table["at"].to_pylist()


NEAR = (dt.datetime(2024, 2, 29, 1, 2, 3, 456_789), None, dt.datetime(1960, 1, 1, 13, 0, 0, 1))
FAR = (*NEAR, dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(1, 1, 1, 0, 0, 0, 1))


@pytest.mark.parametrize(
    ("kind", "values", "why"),
    [
        (pa.timestamp("us", "UTC"), FAR, ""),
        (pa.timestamp("us"), FAR, ""),
        (pa.timestamp("ns", "UTC"), NEAR, ""),
        (pa.timestamp("ns"), NEAR, ""),
        # Arrow reads 1816 in the last: what does not fit wraps around.
        (pa.timestamp("ns"), FAR, "an INT96 time beyond the years"),
        (pa.timestamp("ns", "UTC"), FAR, "an INT96 time beyond the years"),
        (pa.timestamp("ms"), NEAR, "is timestamp.ns. in the data"),
    ],
)
@pytest.mark.parametrize("partitioned", [False, True])
def test_int96_times_that_are_ingested_are_exact_or_refused(
    tmp_path: Path, kind: Any, values: Any, why: str, partitioned: bool
) -> None:
    rows = pa.table({"id": range(len(values)), "at": pa.array(values, pa.timestamp("us"))})
    path = tmp_path / "landed.parquet"
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True, row_group_size=2)
    spec = {"partition_by": ["id"]} if partitioned else {}
    table = inlay.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("at", kind)]), **spec)
    [outcome] = table.ingest([path]).outcomes
    if why:
        assert isinstance(outcome, Rejected) and re.search(why, str(outcome.error))
        assert outcome.error.next_step and table.count() == 0
        return
    assert isinstance(outcome, Ingested)
    found = table.scan().to_arrow().sort_by("id")
    assert found["at"].type == kind
    assert found["at"].cast(pa.timestamp("us")).to_pylist() == list(values)


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("ns")])
def test_int96_times_of_an_adopted_or_large_object_are_checked_too(
    tmp_path: Path, kind: Any
) -> None:
    """They stay where they are: a column that cannot read them so is refused."""
    rows = pa.table({"at": pa.array(NEAR, pa.timestamp("us"))})
    near, far = tmp_path / "near.parquet", tmp_path / "far.parquet"
    pq.write_table(rows, near, use_deprecated_int96_timestamps=True)
    rows = pa.table({"at": pa.array(FAR, pa.timestamp("us"))})
    pq.write_table(rows, far, use_deprecated_int96_timestamps=True)
    table = inlay.create(tmp_path / "t", pa.schema([("at", kind)]))
    adopted, rejected = table.ingest([near, far], adopt=True).outcomes
    assert isinstance(rejected, Rejected) and "INT96" in str(rejected.error)
    assert isinstance(adopted, Ingested if kind == pa.timestamp("ns") else Rejected)
    table.set_properties(ingest__split_bytes=1)
    large_path = tmp_path / "large.parquet"
    large_path.write_bytes(near.read_bytes())
    [large] = table.ingest([large_path]).outcomes
    assert isinstance(large, Ingested if kind == pa.timestamp("ns") else Rejected)


def test_int96_times_within_a_list_are_no_times_of_a_plain_column(tmp_path: Path) -> None:
    table = inlay.create(tmp_path / "t", pa.schema([("at", pa.timestamp("us"))]))
    times = pa.array([[dt.datetime(2020, 1, 1)]], pa.list_(pa.timestamp("ns")))
    path = tmp_path / "list.parquet"
    pq.write_table(pa.table({"at": times}), path, use_deprecated_int96_timestamps=True)
    [outcome] = table.ingest([path]).outcomes
    assert isinstance(outcome, Rejected)
    assert "timestamp[us] in the table" in str(outcome.error)


def test_int96_times_of_two_units_in_one_file_are_refused(tmp_path: Path) -> None:
    rows = pa.table({name: pa.array(NEAR, pa.timestamp("us")) for name in "ab"})
    pq.write_table(rows, tmp_path / "f.parquet", use_deprecated_int96_timestamps=True)
    kinds = pa.schema([("a", pa.timestamp("us")), ("b", pa.timestamp("ns"))])
    table = inlay.create(tmp_path / "t", kinds)
    [outcome] = table.ingest([tmp_path / "f.parquet"]).outcomes
    assert isinstance(outcome, Rejected) and "'a', 'b'" in str(outcome.error)
    assert outcome.error.next_step


SPARK = "org.apache.spark."
OLD_DATE, OLD_TIME = dt.date(1582, 10, 14), dt.datetime(1899, 12, 31, 23, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "kind", [pa.date32(), *(pa.timestamp(unit, "UTC") for unit in ("ms", "us", "ns"))]
)
def test_old_calendars_are_refused_for_times_that_python_has_no_value_for(
    tmp_path: Path, kind: Any
) -> None:
    number = pa.int32() if kind == pa.date32() else pa.int64()
    table_kind = pa.timestamp("us", "UTC") if kind == pa.timestamp("ms", "UTC") else kind
    for place, (value, refused) in enumerate([(-(2**30), True), (2**30, False)]):
        scale = 1 if kind == pa.date32() else 2**22 if kind.unit == "ms" else 2**32
        count = value * scale + 1
        rows = pa.table({"c": pa.array([count, None], number).cast(kind)})
        path = tmp_path / f"{place}.parquet"
        marked = rows.replace_schema_metadata({SPARK + "version": "2.4.8"})
        pq.write_table(marked, path)
        table = inlay.create(tmp_path / f"in-{place}", pa.schema([("c", table_kind)]))
        [outcome] = table.ingest([path]).outcomes
        if refused:
            assert isinstance(outcome, Rejected) and "'c' has an old" in str(outcome.error)
        else:
            assert isinstance(outcome, Ingested)


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize(
    ("marks", "refused"),
    [
        ({SPARK + "version": "2.4.8"}, True),
        ({SPARK + "sql.parquet.row.metadata": "{}"}, True),  # before 2.4.6
        ({SPARK + "version": "3.5.1", SPARK + "legacyDateTime": ""}, True),
        ({"writer.date.proleptic": "false"}, True),  # Hive
        ({SPARK + "version": "3.5.1", SPARK + "sql.parquet.row.metadata": "{}"}, False),
        ({"writer.date.proleptic": "true"}, False),
        ({}, False),
    ],
)
def test_days_of_another_calendar_are_ingested_as_all_readers_take_them_or_refused(
    tmp_path: Path, marks: dict[str, str], refused: bool, adopt: bool
) -> None:
    old = pa.table(
        {
            "d": pa.array([None, OLD_DATE]),
            "t": pa.array([None, dt.datetime(2024, 1, 1)], pa.timestamp("us", "UTC")),
            "s": pa.array([{"t": None}, {"t": OLD_TIME}]),
            "m": pa.array(
                [None, [("k", OLD_TIME)]], pa.map_(pa.string(), pa.timestamp("us", "UTC"))
            ),
            "n": pa.array([None, OLD_TIME.replace(tzinfo=None)], pa.timestamp("us")),
        }
    )
    for names, says in (
        (["d"], "'d' has an old date"),
        (["t", "s"], "'s.t' has an old time"),
        (["m"], "'m.value' has an old time"),
        (["t", "n"], ""),  # times without a zone are nobody's local ones
    ):
        rows = old.select(names)
        path = tmp_path / f"{'-'.join(names)}.parquet"
        pq.write_table(rows.replace_schema_metadata(marks), path)
        table = inlay.create(tmp_path / "-".join(["in", *names]), rows.schema)
        [outcome] = table.ingest([path], adopt=adopt).outcomes
        if refused and says:
            assert isinstance(outcome, Rejected) and says in str(outcome.error)
            assert outcome.error.next_step and table.count() == 0
        else:
            assert isinstance(outcome, Ingested)
            assert table.scan().to_arrow().to_pylist() == rows.to_pylist()


def test_the_first_days_of_the_calendar_are_everybodys(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "d": pa.array([dt.date(1582, 10, 15)]),
            "t": pa.array([dt.datetime(1900, 1, 1)], pa.timestamp("us", "UTC")),
        }
    ).replace_schema_metadata({SPARK + "version": "2.4.8"})
    pq.write_table(rows, tmp_path / "f.parquet")
    table = inlay.create(tmp_path / "t", rows.schema)
    assert isinstance(table.ingest([tmp_path / "f.parquet"]).outcomes[0], Ingested)


def test_int96_times_that_an_old_spark_shifts_are_refused_where_they_are_ingested(
    tmp_path: Path,
) -> None:
    rows = pa.table({"at": pa.array([dt.datetime(1874, 1, 1)], pa.timestamp("us"))})
    rows = rows.replace_schema_metadata({SPARK + "version": "3.0.1"})
    pq.write_table(rows, tmp_path / "f.parquet", use_deprecated_int96_timestamps=True)
    table = inlay.create(tmp_path / "t", pa.schema([("at", pa.timestamp("ns"))]))
    [outcome] = table.ingest([tmp_path / "f.parquet"]).outcomes
    assert isinstance(outcome, Rejected) and "which the old writer" in str(outcome.error)


@pytest.mark.parametrize("stored", [(0, -1), (0, 2**31 - 1), (2 * 86_400 * 10**9, 2_440_588)])
def test_int96_that_is_no_time_is_refused(tmp_path: Path, stored: tuple[int, int]) -> None:
    """Nanoseconds beyond a day, days that no calendar has: readers differ in what these are."""
    path = tmp_path / "f.parquet"
    rows = pa.table({"at": pa.array([dt.datetime(2001, 2, 3)] * 9, pa.timestamp("us"))})
    pq.write_table(
        rows,
        path,
        use_deprecated_int96_timestamps=True,
        use_dictionary=False,
        compression="none",
        data_page_version="1.0",
    )
    body = path.read_bytes()
    days = (dt.date(2001, 2, 3) - dt.date(1970, 1, 1)).days + 2_440_588
    assert body.count(struct.pack("<qi", 0, days)) == 9
    path.write_bytes(body.replace(struct.pack("<qi", 0, days), struct.pack("<qi", *stored)))
    table = inlay.create(tmp_path / "t", pa.schema([("at", pa.timestamp("us", "UTC"))]))
    [outcome] = table.ingest([path]).outcomes
    assert isinstance(outcome, Rejected) and "column 'at' has an INT96 time" in str(outcome.error)


def test_field_ids_of_another_system_are_not_ours(lake: Any) -> None:
    # Iceberg numbers columns too: the ids say another order than the table's, the names do not.
    ids = pa.schema(
        [
            pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "2"}),
            pa.field("b", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        ]
    )
    sink = io.BytesIO()
    pq.write_table(pa.table([[1], [2]], schema=ids), sink)
    schema = schema_from_arrow(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    file = lake.adopt(sink.getvalue(), schema)
    assert lake.read([file], schema).to_pylist() == [{"a": 1, "b": 2}]
    assert file.stats[1].lower == 1


@pytest.mark.parametrize("adopt", [False, True])
def test_a_column_in_another_file_is_refused_and_not_read_from_this_one(
    tmp_path: Path, adopt: bool
) -> None:
    """pyarrow ignores where such a chunk says that it is, and gives what is at its offsets here."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2], "b": [3, 4]}), sink)
    body = sink.getvalue()
    footer = decode_footer(body, file_size=len(body))

    def naming(file: bytes) -> Path:
        footer.tree[File.GROUPS][0][Group.COLUMNS][1][Chunk.FILE_PATH] = file
        path = tmp_path / f"{file.decode() or 'here'}.parquet"
        path.write_bytes(body[: footer.start] + end_of_file(footer.tree))
        return path

    table = inlay.create(tmp_path / "t", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    elsewhere, here = table.ingest([naming(b"elsewhere"), naming(b"")], adopt=adopt).outcomes
    assert isinstance(elsewhere, Rejected) and "in another file" in str(elsewhere.error)
    assert isinstance(here, Ingested)  # some writers leave the name empty
    assert inlay.open(table.uri).scan().to_arrow()["b"].to_pylist() == [3, 4]


def test_names_with_dots_and_slashes_are_columns_like_others(lake: Any) -> None:
    table = pa.table(
        {
            "a.b": pa.array([1, 2], pa.int64()),
            "a": pa.array([{"b": 8}, {"b": 9}], pa.struct([("b", pa.int64())])),
            "c/d é": ["x", "y"],
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    schema = schema_from_arrow(table.schema)
    file = lake.adopt(sink.getvalue(), schema)
    for name in table.column_names:
        assert lake.read([file], schema, columns=[name]).to_pylist() == (
            table.select([name]).to_pylist()
        )
    dotted = schema.column("a.b")
    assert dotted is not None
    one = Comparison(dotted.id, "=", Literal(Primitive("int64"), 1))
    assert lake.read([file], schema, columns=["a"], predicate=one).to_pylist() == [{"a": {"b": 8}}]


def test_wider_columns_of_the_table_read_narrower_files(lake: Any) -> None:
    sink = io.BytesIO()
    narrow = pa.table(
        {"n": pa.array([1, 300], pa.int16()), "x": pa.array([0.5, 1.1], pa.float32())}
    )
    pq.write_table(narrow, sink)
    recorded = schema_from_arrow(narrow.schema)
    wide = schema_from_arrow(pa.schema([("n", pa.int64()), ("x", pa.float64())]))
    wide = replace(wide, id=1)
    file = lake.adopt(sink.getvalue(), recorded)
    above = Comparison(2, ">", Literal(Primitive("double"), 1.0))
    found = lake.read([file], wide, predicate=above, schemas=[recorded])
    assert found.to_pylist() == [{"n": 300, "x": pytest.approx(1.1)}]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="../shared/data is not here")
@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.parquet")), ids=lambda p: p.stem)
def test_samples_read_as_pyarrow_reads_them(lake: Any, path: Path) -> None:
    try:
        expected = pq.read_table(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError):
        expected = None
    schema = schema_from_arrow(pq.read_schema(path))
    file = lake.adopt(path.read_bytes(), schema)
    if expected is None:
        with pytest.raises(InlayError, match=file.key):
            lake.read([file], schema)
        return
    found = lake.read([file], schema)
    assert all_stats_hold(lake, file, schema)
    assert found.num_rows == expected.num_rows
    assert found.to_pylist() == conformed(expected, schema).to_pylist()


def conformed(table: pa.Table, schema: Schema) -> pa.Table:
    return pa.Table.from_batches(list(rows_of_table(table.to_batches(), schema, schema)))


@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("nested", [False, True])
def test_categories_in_encodings_that_pyarrow_does_not_read_as_such(
    tmp_path: Path, encoding: str, nested: bool
) -> None:
    """pyarrow writes such files, and refuses to read them."""
    names = pa.array(["ada", "bob"]).dictionary_encode().take(pa.array([0, 1, 0]))
    column = pa.StructArray.from_arrays([names], ["name"]) if nested else names
    rows = pa.table({"id": pa.array([1, 2, 3]), "who": column})
    path = {"who.name" if nested else "who": encoding}
    pq.write_table(rows, tmp_path / "x.parquet", use_dictionary=False, column_encoding=path)
    with pytest.raises((OSError, NotImplementedError)):
        pq.read_table(tmp_path / "x.parquet")
    kind = pa.struct([("name", pa.string())]) if nested else pa.string()
    t = inlay.create(f"file://{tmp_path}/t", pa.schema([("id", pa.int64()), ("who", kind)]))
    assert t.ingest([f"file://{tmp_path}/x.parquet"]).write.committed
    t.delete("id = 2", mode="surgery")
    wanted = [{"name": "ada"}] * 2 if nested else ["ada"] * 2
    assert t.scan().to_arrow()["who"].to_pylist() == wanted

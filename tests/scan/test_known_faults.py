"""What writers are known to state wrongly is unknown, wherever their statistics are read."""

from __future__ import annotations

import io
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay.parquet.footer.fields import File, Meta, Stats
from inlay.parquet.footer.footer import decode_footer, end_of_file
from inlay.parquet.footer.writers import (
    FAULTS,
    Fault,
    Stored,
    Writer,
    Wrong,
    faults_of,
    is_doubted,
)

OTHERS = Path(__file__).parents[2].parent / "shared/data/parquet-others/h2oai_group_small.parquet"
ROWS = 4


def by(body: bytes, writer: str | None, bound: bytes, nulls: int = 0) -> bytes:
    """The file as `writer` would have written it, with one false value as both bounds of its column."""
    footer = decode_footer(body, file_size=len(body))
    for group in footer.row_groups:
        group.column(0).meta[Meta.STATISTICS] = {
            Stats.NULLS: nulls, Stats.MIN: bound, Stats.MAX: bound,
        }  # fmt: skip
    if writer is None:
        del footer.tree[File.CREATED_BY]
    else:
        footer.tree[File.CREATED_BY] = writer.encode()
    return body[: footer.start] + end_of_file(footer.tree)


# A column of each kind: its values, a condition that selects the ROWS that are no NULLs, and bounds that
# exclude them.
VALUES: dict[str, tuple[pa.Array, str, bytes]] = {
    "text": (pa.array(["m"] * ROWS + [None]), "x = 'm'", b"a"),
    "decimal": (
        pa.array([Decimal("-5.00")] * ROWS + [None], pa.decimal128(25, 2)),
        "x = -5.00",
        (100).to_bytes(11, "big"),
    ),
    "float": (pa.array([1.5] * ROWS + [None]), "x = 1.5", bytes(8)),
    "unsigned": (pa.array([7] * ROWS + [None], pa.uint32()), "x = 7", (3).to_bytes(4, "little")),
    "dictionary": (pa.array(["m"] * ROWS + [None]).dictionary_encode(), "x = 'm'", b"a"),
    "integer": (pa.array([7] * ROWS + [None]), "x = 7", (3).to_bytes(8, "little")),
}
STORED = {
    "text": Stored("BYTE_ARRAY"),
    "decimal": Stored("FIXED_LEN_BYTE_ARRAY", decimal=True),
    "float": Stored("DOUBLE"),
    "unsigned": Stored("INT32", unsigned=True),
    "dictionary": Stored("BYTE_ARRAY", dictionary=True),
    "integer": Stored("INT64"),
}


def written(kind: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": VALUES[kind][0]}), sink)
    return sink.getvalue()


def named(fault: Fault, version: tuple[int, ...] | None) -> str | None:
    if fault.writer == "":
        return None
    name = {"*": "anything", "github.com/": "github.com/parquet-go/parquet-go"}.get(
        fault.writer, fault.writer
    )
    return name if version is None else f"{name} version {'.'.join(map(str, version))} (build 1)"


def ingested(body: bytes, *, adopt: bool) -> inlay.Table:
    root = f"memory://{uuid.uuid4().hex}"
    table = inlay.create(f"{root}/t", pq.read_schema(io.BytesIO(body)).remove_metadata())
    table._ctx.store.put("in/x.parquet", body)
    [outcome] = table.ingest([f"{root}/in/x.parquet"], adopt=adopt).outcomes
    assert type(outcome).__name__ == "Ingested", outcome
    table.refresh()
    return table


def older(version: tuple[int, ...]) -> tuple[int, ...]:
    *head, last = version
    return (*head, last - 1, 9) if last else older(tuple(head))


CASES = [
    (fault, kind)
    for fault in FAULTS
    for kind, stored in STORED.items()
    if fault.of(stored) and fault.wrong & {"bounds", "nulls"}
]


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize(("fault", "kind"), CASES, ids=lambda v: getattr(v, "source", v))
def test_a_known_fault_hides_no_row(fault: Fault, kind: str, adopt: bool) -> None:
    _, condition, bound = VALUES[kind]
    versions = [None, (0, 1)] if fault.before is None else [None, older(fault.before)]
    if fault.writer == "":
        versions = [None]
    for version in versions:
        table = ingested(by(written(kind), named(fault, version), bound), adopt=adopt)
        if "bounds" in fault.wrong:
            assert table.count(where=condition) == ROWS
            assert table.scan(where=condition).to_arrow().num_rows == ROWS
        if "nulls" in fault.wrong:
            assert table.count(where="x IS NULL") == 1
            table.delete("x IS NULL")
            table.refresh()
            assert table.count() == ROWS
    if fault.before is not None and len(faults_of(Writer(fault.writer), "bounds")) == 1:
        table = ingested(by(written(kind), named(fault, fault.before), bound), adopt=adopt)
        assert table.count(where=condition) == 0, "a later version is gone by"


# Of each row of the table a file that only it doubts: what the file says of its writer, how the column is
# stored, what is wrong. Written by hand: a row that is lost fails here.
KNOWN: list[tuple[str | None, Stored, Wrong]] = [
    ("parquet-mr version 1.7.0 (build 1)", Stored("BYTE_ARRAY"), "bounds"),
    (None, Stored("BYTE_ARRAY"), "bounds"),
    ("parquet-mr version 1.9.0 (build 1)", Stored("DOUBLE"), "bounds"),
    ("parquet-cpp version 1.4.0", Stored("FLOAT"), "bounds"),
    ("impala version 2.11.0-SNAPSHOT (build 1)", Stored("DOUBLE"), "bounds"),
    ("github.com/segmentio/parquet-go version 0.0.0(build )", Stored("DOUBLE"), "bounds"),
    ("parquet-cpp version 1.5.1", Stored("FIXED_LEN_BYTE_ARRAY", decimal=True), "bounds"),
    ("parquet-cpp-arrow version 3.0.0", Stored("FIXED_LEN_BYTE_ARRAY", decimal=True), "bounds"),
    ("parquet-rs version 13.0.0", Stored("INT32", unsigned=True), "bounds"),
    ("parquet-rs version 54.0.0", Stored("BYTE_ARRAY", decimal=True), "bounds"),
    ("Polars (python) version 2.0.9", Stored("FIXED_LEN_BYTE_ARRAY", decimal=True), "bounds"),
    ("ClickHouse v25.7.1.1", Stored("FIXED_LEN_BYTE_ARRAY", decimal=True), "bounds"),
    ("parquet-rs version 5.1.0", Stored("BYTE_ARRAY"), "bounds"),
    ("DuckDB version v2.0.0", Stored("INT96"), "bounds"),
    ("parquet-cpp version 1.5.1", Stored("BYTE_ARRAY", dictionary=True), "nulls"),
    ("parquet-cpp-arrow version 4.0.1", Stored("BYTE_ARRAY", dictionary=True), "nulls"),
    ("Arrow2 - Native Rust implementation of Arrow", Stored("INT64"), "nulls"),
    ("parquet-go version 0.11.0", Stored("INT64"), "nulls"),
    ("parquet-mr version 1.2.8", Stored("INT64"), "sizes"),
    ("DuckDB version v2.0.0", Stored("FLOAT"), "levels"),
]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known[0]} {known[1].physical}")
def test_what_is_known_of_a_writer_is_doubted(known: tuple[str | None, Stored, Wrong]) -> None:
    created_by, stored, wrong = known
    assert is_doubted(Writer.of(created_by), wrong, stored)


def test_each_row_of_the_table_is_one_that_a_file_here_needs() -> None:
    alone = []
    for created_by, stored, wrong in KNOWN:
        writer = Writer.of(created_by)
        doubting = [f for f in FAULTS if f.has(writer, wrong) and f.of(stored)]
        alone += doubting if len(doubting) == 1 else []
    assert [f.source for f in FAULTS if f not in alone] == []


def test_each_kind_of_column_and_fault_is_tried() -> None:
    assert {kind for _, kind in CASES} >= {"text", "decimal", "float", "unsigned", "dictionary"}
    tried = {fault for fault, _ in CASES}
    assert {f.writer for f in FAULTS if f not in tried and f.wrong & {"bounds", "nulls"}} <= {
        "*",  # INT96, of which Arrow shows no bounds
        "parquet-rs",  # decimals of any length
    }


def test_what_no_writer_is_known_for_is_gone_by() -> None:
    for kind in ("integer", "text", "float"):
        _, condition, bound = VALUES[kind]
        table = ingested(by(written(kind), "parquet-mr version 1.13.1", bound), adopt=True)
        assert table.count(where=condition) == 0


def test_only_dictionaries_of_arrow_are_doubted() -> None:
    """By the schema that Arrow left beside; without one, any text."""
    _, condition, bound = VALUES["text"]
    old = "parquet-cpp-arrow version 11.0.0"
    assert ingested(by(written("text"), old, bound), adopt=True).count(where=condition) == 0
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema([("x", pa.string())]), store_schema=False) as writer:
        writer.write_table(pa.table({"x": VALUES["text"][0]}))
    table = ingested(by(sink.getvalue(), old, bound), adopt=True)
    assert table.count(where=condition) == ROWS


def test_int96_has_no_bounds_whoever_wrote_it() -> None:
    assert is_doubted(Writer.of("parquet-rs version 99.0.0"), "bounds", Stored("INT96"))
    sink = io.BytesIO()
    times = pa.array([1, 2], pa.timestamp("ns"))
    pq.write_table(pa.table({"x": times}), sink, use_deprecated_int96_timestamps=True)
    body = by(sink.getvalue(), "parquet-rs version 54.0.0", bytes(12))
    assert ingested(body, adopt=True).count(where="x > TIMESTAMP '1970-01-01 00:00:00'") == 2


def test_the_data_set_that_brought_it_up() -> None:
    if not OTHERS.exists():
        pytest.skip(f"{OTHERS} is not here")
    for adopt in (False, True):
        table = ingested(OTHERS.read_bytes(), adopt=adopt)
        assert table.count(where="id1 IS NULL") == 472
        assert table.count(where="id2 IS NULL") == 483
        table.delete("id1 IS NULL")
        table.refresh()
        assert table.count(where="id1 IS NULL") == 0
        assert table.scan(columns=["id1"]).to_arrow()["id1"].null_count == 0
        assert table.count() == 10_001 - 472


def test_sparks_own_reader_is_not_given_such_columns() -> None:
    pytest.importorskip("pyspark")
    from inlay.parquet.read.data_file import OpenFile
    from inlay.parquet.read.exact_columns import exact_columns
    from inlay.parquet.read.selection import Projection
    from inlay.plan.scan import FileTask
    from inlay.spark.native import SPARK_READER

    def opened(writer: str) -> OpenFile:
        table = ingested(by(written("dictionary"), writer, b"a"), adopt=True)
        [entry] = table._loaded.state.loaded_files()
        schema = table.snapshot.schema
        task = FileTask(file=entry, schema=schema)
        ctx = table._ctx
        return ctx.reader.open(task, Projection(schema=schema, columns=()))

    assert exact_columns(SPARK_READER, opened("parquet-cpp-arrow version 4.0.1")) == frozenset()
    assert exact_columns(SPARK_READER, opened("parquet-cpp-arrow version 12.0.0")) == {1}


@given(st.text() | st.from_regex(r"\w+ version \d+(\.\d+)*", fullmatch=True))
def test_whatever_a_writer_calls_itself(text: str) -> None:
    for what in ("bounds", "nulls", "sizes"):
        faults_of(Writer.of(text), what)


def test_names_and_versions() -> None:
    for text, name, version in (
        ("parquet-mr", "parquet-mr", None),
        ("parquet-mr (build abc)", "parquet-mr", None),
        ("parquet-go version latest", "parquet-go", None),
        ("DuckDB version v2.0.0 (build d5)", "duckdb", (2, 0, 0)),
        ("ClickHouse v25.3.2.39", "clickhouse", (25, 3, 2, 39)),
        ("parquet-mr version 1.5.0-cdh5.7.0", "parquet-mr", (1, 5, 0)),
        ("parquet-mr version 1" + "0" * 5_000, "parquet-mr", None),
        ("", "", None),
        (None, "", None),
    ):
        assert Writer.of(text) == Writer(name, version)


def test_each_fault_names_its_source() -> None:
    assert all(any(mark in f.source for mark in ("-", "#")) for f in FAULTS)
    assert len({(f.writer, f.before, f.source) for f in FAULTS}) == len(FAULTS)


def test_doubt_is_of_the_column() -> None:
    old = Writer.of("parquet-cpp-arrow version 3.0.0")
    assert is_doubted(old, "bounds", STORED["decimal"])
    assert is_doubted(old, "nulls", STORED["dictionary"])
    assert not is_doubted(old, "nulls", STORED["decimal"])
    assert not is_doubted(old, "bounds", STORED["integer"])

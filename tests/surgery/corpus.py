"""Parquet files as many writers make them: `sources()` names each with a function that makes its bytes.

Rows are numbered by a column `id` where a writer allows it; values include nulls, NaN, negative zero,
empty and long strings, negative decimals, empty lists and null structs, at the edges of row groups.
"""

from __future__ import annotations

import datetime
import decimal
import io
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

FOREIGN = Path(__file__).parents[3] / "shared" / "data" / "parquet-testing"
GROUP_ROWS = 120
GROUPS = 5
Source = Callable[[], bytes]


def flat(rows: int, seed: int = 1) -> pa.Table:
    dice = random.Random(seed)

    def some(make: Callable[[int], object], nulls: float = 0.15) -> list[object]:
        return [None if dice.random() < nulls else make(at) for at in range(rows)]

    day = datetime.date(2001, 2, 3)
    moment = datetime.datetime(2020, 5, 6, 7, 8, 9, 123456)
    floats = [float("nan"), -0.0, 0.0, 1.5, -2.25, float("inf"), 1e300]
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "flag": pa.array(some(lambda at: at % 3 == 0), pa.bool_()),
            "small": pa.array(some(lambda at: at % 250 - 125), pa.int8()),
            "word": pa.array(some(lambda at: (at * 977) % 65536), pa.uint16()),
            "count": pa.array(some(lambda at: (at * 2654435761) % 2**32), pa.uint32()),
            "big": pa.array(some(lambda at: (at * 11400714819323198485) % 2**64), pa.uint64()),
            "real": pa.array(some(lambda at: dice.choice(floats)), pa.float32()),
            "double": pa.array(some(lambda at: dice.uniform(-1e9, 1e9)), pa.float64()),
            "name": pa.array(some(lambda at: f"name-{at % 17}-ü"), pa.string()),
            "unique": pa.array([f"value {at * 7919:09d}" for at in range(rows)], pa.string()),
            "long": pa.array(some(lambda at: f"{at:05d}" * dice.randrange(40), 0.5), pa.string()),
            "raw": pa.array(some(lambda at: dice.randbytes(at % 5)), pa.binary()),
            "money": pa.array(
                some(lambda at: decimal.Decimal(at * 37 - 9000).scaleb(-2)), pa.decimal128(20, 2)
            ),
            "tiny": pa.array(
                some(lambda at: decimal.Decimal(at % 99 - 49).scaleb(-1)), pa.decimal128(3, 1)
            ),
            "day": pa.array(some(lambda at: day + datetime.timedelta(days=at))),
            "moment": pa.array(
                some(lambda at: moment + datetime.timedelta(seconds=at)), pa.timestamp("us")
            ),
            "instant": pa.array(
                some(lambda at: moment + datetime.timedelta(hours=at)), pa.timestamp("us", "UTC")
            ),
            "nothing": pa.array([None] * rows, pa.int32()),
        }
    )


def nested(rows: int, seed: int = 2) -> pa.Table:
    dice = random.Random(seed)

    def numbers() -> object:
        return dice.choice([None, [], [1], [None], [1, None, 3], list(range(dice.randrange(9)))])

    def record() -> object:
        name = dice.choice([None, "x", "yy"])
        return dice.choice([None, {"n": dice.randrange(9), "s": name, "l": numbers()}])

    struct = pa.struct([("n", pa.int32()), ("s", pa.string()), ("l", pa.list_(pa.int64()))])
    pairs = [dice.choice([None, [], [("a", 1)], [("b", None), ("a", 2)]]) for _ in range(rows)]
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "numbers": pa.array([numbers() for _ in range(rows)], pa.list_(pa.int64())),
            "matrix": pa.array(
                [dice.choice([None, [], [numbers(), numbers()]]) for _ in range(rows)],
                pa.list_(pa.list_(pa.int32())),
            ),
            "record": pa.array([record() for _ in range(rows)], struct),
            "records": pa.array(
                [dice.choice([None, [], [record(), record()]]) for _ in range(rows)],
                pa.list_(struct),
            ),
            "pairs": pa.array(pairs, pa.map_(pa.string(), pa.int32())),
        }
    )


def deeply(rows: int, depth: int, seed: int = 4) -> pa.Table:
    """Lists in structs in maps, over and over, with nothing at every level."""
    dice = random.Random(seed)
    kind: pa.DataType = pa.int32()
    values: list[object] = [dice.choice([None, at]) for at in range(rows)]
    for level in range(depth):
        match level % 3:
            case 0:
                kind = pa.list_(kind)
                values = [dice.choice([None, [], [v], [v], [v, v]]) for v in values]
            case 1:
                kind = pa.struct([("a", kind), ("b", pa.int8())])
                values = [dice.choice([None, {"a": v, "b": 1}, {"a": v}]) for v in values]
            case _:
                kind = pa.map_(pa.string(), kind)
                values = [dice.choice([None, [], [("k", v)], [("k", v)]]) for v in values]
    return pa.table({"id": pa.array(range(rows), pa.int64()), "deep": pa.array(values, kind)})


def required(rows: int) -> pa.Table:
    """Nothing optional, and names that want quoting."""
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "7"}),
            pa.field("a.b", pa.string(), nullable=False),
            pa.field("a", pa.struct([pa.field("b", pa.int32(), nullable=False)]), nullable=False),
            pa.field("", pa.float64(), nullable=False),
            pa.field("f16", pa.float16(), nullable=False),
            pa.field("fixed", pa.binary(5), nullable=False),
        ],
        metadata={"origin": "the corpus"},
    )
    return pa.table(
        [
            pa.array(range(rows)),
            pa.array([f"v{at % 11}" for at in range(rows)]),
            pa.array([{"b": at % 5} for at in range(rows)], schema.field("a").type),
            pa.array([at / 7 for at in range(rows)]),
            pa.array([float(at % 100) - 50 for at in range(rows)], pa.float16()),
            pa.array([b"%05d" % at for at in range(rows)], pa.binary(5)),
        ],
        schema=schema,
    )


def by_pyarrow(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    options = {"row_group_size": GROUP_ROWS, **options}
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def by_duckdb(table: pa.Table, options: str = "") -> bytes:
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as base:
        path = Path(folder) / "x.parquet"
        base.execute("SET threads=1; SET preserve_insertion_order=true")
        base.register("t", table)
        base.execute(f"COPY t TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048{options})")
        return path.read_bytes()


def by_polars(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    options = {"row_group_size": GROUP_ROWS, **options}
    polars.from_arrow(table).write_parquet(sink, **options)
    return sink.getvalue()


def by_datafusion(table: pa.Table, **options: object) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.parquet"
        frame = datafusion.SessionContext().from_arrow(table)
        settings = {"max_row_group_size": GROUP_ROWS, **options}
        frame.write_parquet(str(path), datafusion.ParquetWriterOptions(**settings))
        return path.read_bytes()


def sources() -> Mapping[str, Source]:
    rows = GROUP_ROWS * GROUPS - 37
    plain, deep, strict = flat(rows), nested(rows), required(rows)
    wide = flat(2048 * 4 + 500)
    deltas = {
        "id": "DELTA_BINARY_PACKED",
        "count": "DELTA_BINARY_PACKED",
        "double": "BYTE_STREAM_SPLIT",
        "name": "DELTA_BYTE_ARRAY",
        "unique": "DELTA_LENGTH_BYTE_ARRAY",
        "money": "BYTE_STREAM_SPLIT",
        "flag": "RLE",
    }
    everything = {
        "write_page_index": True,
        "write_page_checksum": True,
        "data_page_size": 400,
        "max_rows_per_page": 32,
        "bloom_filter_options": {
            name: {"ndv": 200, "fpp": 0.01} for name in ("id", "unique", "word", "double", "raw")
        },
    }
    polars_flat = plain.drop_columns(["word"])
    duck_flat = wide.drop_columns(["nothing"])
    found: dict[str, Source] = {
        "pyarrow": lambda: by_pyarrow(plain),
        "pyarrow-v2-zstd-all": lambda: by_pyarrow(
            plain, data_page_version="2.0", compression="zstd", **everything
        ),
        "pyarrow-v1-index-bloom-crc": lambda: by_pyarrow(plain, **everything),
        "pyarrow-deltas": lambda: by_pyarrow(
            plain, use_dictionary=False, column_encoding=deltas, compression="gzip"
        ),
        "pyarrow-deltas-v2-index": lambda: by_pyarrow(
            plain,
            use_dictionary=["name"],
            # DuckDB cannot read split decimals.
            column_encoding={k: v for k, v in deltas.items() if k not in ("name", "money")},
            data_page_version="2.0",
            write_page_index=True,
            compression={"id": "brotli", "name": "lz4", "long": "none"},
        ),
        "pyarrow-version-1": lambda: by_pyarrow(plain, version="1.0", compression="none"),
        "pyarrow-int96": lambda: by_pyarrow(
            plain, use_deprecated_int96_timestamps=True, write_page_index=True
        ),
        "pyarrow-integer-decimals": lambda: by_pyarrow(
            plain, store_decimal_as_integer=True, write_page_index=True
        ),
        "pyarrow-no-statistics": lambda: by_pyarrow(plain, write_statistics=False),
        "pyarrow-nested": lambda: by_pyarrow(deep),
        "pyarrow-nested-v2-index": lambda: by_pyarrow(
            deep,
            data_page_version="2.0",
            write_page_index=True,
            data_page_size=200,
            write_page_checksum=True,
            use_compliant_nested_type=False,
        ),
        "pyarrow-required": lambda: by_pyarrow(
            strict, write_page_index=True, sorting_columns=[pq.SortingColumn(0)]
        ),
        "pyarrow-fallback-index": lambda: by_pyarrow(
            plain.select(["id", "unique", "name"]),
            dictionary_pagesize_limit=500,
            data_page_size=300,
            write_page_index=True,
        ),
        "pyarrow-some-statistics": lambda: by_pyarrow(
            plain, write_statistics=["id", "name"], write_page_index=True
        ),
        "pyarrow-deep": lambda: by_pyarrow(deeply(rows, 10), write_page_index=True),
        "pyarrow-one-group": lambda: by_pyarrow(plain, row_group_size=10_000),
        "pyarrow-empty-groups": lambda: _with_empty_groups(plain),
        "pyarrow-empty-groups-nowhere": lambda: _with_empty_groups(plain, use_dictionary=False),
        "duckdb": lambda: by_duckdb(duck_flat),
        # pyarrow cannot read DuckDB's DELTA_BINARY_PACKED where deltas overflow 32 bits: "count".
        "duckdb-v2-zstd": lambda: by_duckdb(
            duck_flat.drop_columns(["count"]), ", COMPRESSION zstd, PARQUET_VERSION v2"
        ),
        "duckdb-uncompressed": lambda: by_duckdb(duck_flat, ", COMPRESSION uncompressed"),
        "duckdb-bloom": lambda: by_duckdb(
            duck_flat.select(["id", "name", "small"]), ", BLOOM_FILTER_FALSE_POSITIVE_RATIO 0.001"
        ),
        "duckdb-nested": lambda: by_duckdb(nested(2048 * 3 + 11)),
        "polars": lambda: by_polars(polars_flat, statistics="full"),
        "polars-small-pages": lambda: by_polars(
            polars_flat, data_page_size=300, compression="snappy"
        ),
        "polars-uncompressed": lambda: by_polars(polars_flat, compression="uncompressed"),
        "polars-nested": lambda: by_polars(deep.drop_columns(["pairs"])),
        "datafusion": lambda: by_datafusion(plain),
        "datafusion-bloom": lambda: by_datafusion(
            plain,
            bloom_filter_on_write=True,
            bloom_filter_ndv=200,
            data_page_row_count_limit=30,
            write_batch_size=10,
        ),
        "datafusion-v2-delta": lambda: by_datafusion(
            plain.select(["id", "small", "count", "big"]),
            writer_version="2.0",
            dictionary_enabled=False,
            encoding="delta_binary_packed",
            compression="lz4_raw",
        ),
        "datafusion-truncated": lambda: by_datafusion(
            plain,
            statistics_truncate_length=8,
            column_index_truncate_length=4,
            compression="snappy",
        ),
        # DataFusion cuts fixed-width bounds short, and cannot read what it cut: an edited group whose
        # bounds were called exact would conclude that one value is the whole column's.
        "datafusion-truncated-fixed": lambda: by_datafusion(
            strict.select(["id", "fixed"]), statistics_truncate_length=1
        ),
        "datafusion-chunk-statistics": lambda: by_datafusion(
            plain, statistics_enabled="chunk", created_by="somebody else"
        ),
        "datafusion-nested": lambda: by_datafusion(deep, bloom_filter_on_write=True),
    }
    return found


def _with_empty_groups(table: pa.Table, **options: Any) -> bytes:
    """Without a dictionary, pyarrow writes no page of a group without rows, and offset 0."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table.slice(0, 0))
        writer.write_table(table.slice(0, 50))
        writer.write_table(table.slice(0, 0))
        writer.write_table(table.slice(50, 70))
        writer.write_table(table.slice(120, 80))
    return sink.getvalue()


def foreign() -> Mapping[str, Source]:
    return {path.stem: path.read_bytes for path in sorted(FOREIGN.glob("*.parquet"))}

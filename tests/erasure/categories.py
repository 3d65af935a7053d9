"""Files of other writers whose dictionaries, bounds and key-values name values that no row of a group has.

Every file has the columns `id` and `email`; `PERSON` has one row, the first, unless a writer leaves it out,
when only the dictionary (and what the writer derives from it) names her.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb
import fastparquet
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

# Before all others in any order by bytes, so that it is the minimum of a whole dictionary.
PERSON = "aa-erase-me-7f3a@example.org"
OTHERS = [f"person-{n:03d}@example.org" for n in range(40)]
GROUPS = 4
Writer = Callable[[bool], bytes]


def emails(rows: int, *, has_person: bool) -> list[str]:
    found = [OTHERS[n % len(OTHERS)] for n in range(rows)]
    if has_person:
        found[0] = PERSON
    return found


def frame(rows: int, *, has_person: bool) -> pd.DataFrame:
    column = pd.Categorical(emails(rows, has_person=has_person), categories=[PERSON, *OTHERS])
    return pd.DataFrame({"id": range(rows), "email": column})


def by_pandas(has_person: bool) -> bytes:
    sink = io.BytesIO()
    frame(200, has_person=has_person).to_parquet(sink, row_group_size=50)
    return sink.getvalue()


def by_pandas_with_index(has_person: bool) -> bytes:
    sink = io.BytesIO()
    table = pa.Table.from_pandas(frame(200, has_person=has_person))
    bloom = {"email": {"ndv": 50, "fpp": 0.001}}
    options = {"write_page_index": True, "data_page_version": "2.0", "compression": "zstd"}
    pq.write_table(table, sink, row_group_size=50, bloom_filter_options=bloom, **options)
    return sink.getvalue()


def by_fastparquet(has_person: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.parquet"
        fastparquet.write(
            str(path), frame(200, has_person=has_person), row_group_offsets=50, compression="SNAPPY"
        )
        return path.read_bytes()


def by_polars(has_person: bool) -> bytes:
    column = pl.Series(
        "email", emails(200, has_person=has_person), dtype=pl.Enum([PERSON, *OTHERS])
    )
    sink = io.BytesIO()
    pl.DataFrame({"id": range(200), "email": column}).write_parquet(sink, row_group_size=50)
    return sink.getvalue()


def by_duckdb_of_many(has_person: bool) -> bytes:
    """Most values of the ENUM are not used; DuckDB leaves an empty text for each, so it is there often."""
    return by_duckdb(has_person, *(f"nobody-{n}@example.org" for n in range(30)))


def by_duckdb(has_person: bool, *unused: str) -> bytes:
    rows = 2048 * GROUPS
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as base:
        path = Path(folder) / "x.parquet"
        names = ", ".join(f"'{name}'" for name in [PERSON, *unused, *OTHERS])
        base.execute("SET threads=1; SET preserve_insertion_order=true")
        base.execute(f"CREATE TYPE who AS ENUM ({names})")
        base.register(
            "t", pa.table({"id": range(rows), "email": emails(rows, has_person=has_person)})
        )
        base.execute("CREATE TABLE people AS SELECT id, email::who AS email FROM t ORDER BY id")
        base.execute(f"COPY people TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
        return path.read_bytes()


def with_attributes(has_person: bool) -> bytes:
    """What pandas keeps of `df.attrs`, Spark of ML columns, and Arrow of metadata: all name her."""
    data = pd.DataFrame({"id": range(200), "email": emails(200, has_person=has_person)})
    data.attrs = {"requested_by": PERSON}
    table = pa.Table.from_pandas(data)
    field = table.schema.field("email").with_metadata({"example": PERSON})
    spark = {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {
                "name": "email",
                "type": "string",
                "nullable": True,
                "metadata": {"ml_attr": {"type": "nominal", "vals": [PERSON, *OTHERS]}},
            },
        ],
    }
    pairs = {
        **(table.schema.metadata or {}),
        b"org.apache.spark.sql.parquet.row.metadata": json.dumps(spark).encode(),
        b"note": b"made for " + PERSON.encode(),
        b"origin": b"a notebook",
    }
    sink = io.BytesIO()
    schema = table.schema.set(1, field).with_metadata(pairs)
    pq.write_table(table.cast(schema), sink, row_group_size=50)
    return sink.getvalue()


WRITERS: dict[str, Writer] = {
    "pandas": by_pandas,
    "pandas-page-index-bloom": by_pandas_with_index,
    "fastparquet": by_fastparquet,
    "polars-enum": by_polars,
    "duckdb-enum": by_duckdb,
    "duckdb-enum-of-many": by_duckdb_of_many,
}

"""The query table by other libraries, in an environment that has them (`make bench PEERS=1`).

    python peers.py LIBRARY ENDPOINT DATA.parquet QUERIES.json

Each library writes the same 20 parts its own way, with its own defaults, and is asked the same questions:
of a table just opened, and once more. One line of JSON for each; what fails is said on standard error.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from counting_server import CountingServer

FILES = 20
Query = tuple[list[str] | None, str | None, int | None]
# Opens the table; the result answers a query with its number of rows.
Open = Callable[[], Callable[[Query], int]]


def parts(data: pa.Table) -> list[pa.Table]:
    step = -(-data.num_rows // FILES)
    return [data.slice(start, step) for start in range(0, data.num_rows, step)]


def filesystem(endpoint: str) -> Any:
    from pyarrow.fs import S3FileSystem

    return S3FileSystem(
        access_key="bench", secret_key="bench", region="us-east-1", endpoint_override=endpoint
    )


def write_files(data: pa.Table, endpoint: str, name: str) -> list[str]:
    """Plain Parquet files, as pyarrow writes them by default but for zstd."""
    fs = filesystem(endpoint)
    found = []
    for n, part in enumerate(parts(data)):
        found.append(f"bench/{name}/{n:02}.parquet")
        pq.write_table(part, found[-1], filesystem=fs, compression="zstd")
    return found


def expression(where: str) -> Any:
    """The condition as pyarrow's; of the few forms that are asked."""
    import pyarrow.compute as pc

    found = None
    for text in where.split(" AND "):
        name, op, value = text.split(" ", 2)
        literal = value.strip("'") if "'" in value else int(value)
        column = pc.field(name)
        one = {
            "=": column.__eq__,
            "<": column.__lt__,
            ">=": column.__ge__,
            "<=": column.__le__,
        }[op](literal)
        found = one if found is None else found & one
    return found


def by_pyarrow(data: pa.Table, endpoint: str) -> Open:
    import pyarrow.dataset as ds

    write_files(data, endpoint, "pyarrow")

    def opened() -> Callable[[Query], int]:
        dataset = ds.dataset("bench/pyarrow", filesystem=filesystem(endpoint), format="parquet")

        def ask(query: Query) -> int:
            columns, where, limit = query
            chosen = None if where is None else expression(where)
            if limit is not None:
                return int(dataset.head(limit, columns=columns).num_rows)
            return int(dataset.to_table(columns=columns, filter=chosen).num_rows)

        return ask

    return opened


def by_polars(data: pa.Table, endpoint: str) -> Open:
    import polars as pl

    write_files(data, endpoint, "polars")
    options = {
        "aws_endpoint_url": endpoint,
        "aws_access_key_id": "bench",
        "aws_secret_access_key": "bench",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }

    def opened() -> Callable[[Query], int]:
        def ask(query: Query) -> int:
            columns, where, limit = query
            frame = pl.scan_parquet("s3://bench/polars/*.parquet", storage_options=options)
            if where is not None:
                frame = frame.filter(pl.sql_expr(where))
            if columns is not None:
                frame = frame.select(columns)
            if limit is not None:
                frame = frame.head(limit)
            return int(frame.collect().height)

        return ask

    return opened


def sql(table: str, query: Query) -> str:
    columns, where, limit = query
    text = f"SELECT {', '.join(columns or ['*'])} FROM {table}"
    return text + (f" WHERE {where}" if where else "") + (f" LIMIT {limit}" if limit else "")


def by_duckdb(data: pa.Table, endpoint: str) -> Open:
    import duckdb

    write_files(data, endpoint, "duckdb")

    def opened() -> Callable[[Query], int]:
        found = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        try:
            import duckdb_extension_httpfs  # noqa: F401 - brings the extension
            from duckdb_extensions import import_extension

            import_extension("httpfs")
        except ImportError:
            pass
        found.execute("LOAD httpfs")
        host = endpoint.removeprefix("http://")
        for name, value in {
            "s3_endpoint": host,
            "s3_access_key_id": "bench",
            "s3_secret_access_key": "bench",
            "s3_region": "us-east-1",
            "s3_url_style": "path",
            "s3_use_ssl": False,
        }.items():
            shown = f"'{value}'" if isinstance(value, str) else str(value).lower()
            found.execute(f"SET {name}={shown}")

        def ask(query: Query) -> int:
            rows = found.execute(sql("'s3://bench/duckdb/*.parquet'", query)).fetch_arrow_table()
            return int(rows.num_rows)

        return ask

    return opened


def by_deltalake(data: pa.Table, endpoint: str) -> Open:
    from deltalake import DeltaTable, QueryBuilder, write_deltalake

    options = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "conditional_put": "etag",
    }
    for part in parts(data):
        write_deltalake("s3://bench/delta", part, mode="append", storage_options=options)

    def opened() -> Callable[[Query], int]:
        table = DeltaTable("s3://bench/delta", storage_options=options)

        def ask(query: Query) -> int:
            batches = QueryBuilder().register("t", table).execute(sql("t", query))
            return sum(batch.num_rows for batch in batches)

        return ask

    return opened


def by_pyiceberg(data: pa.Table, endpoint: str) -> Open:
    from pyiceberg.catalog.sql import SqlCatalog

    folder = tempfile.mkdtemp()
    settings = {
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": "s3://bench/iceberg",
        "s3.endpoint": endpoint,
        "s3.access-key-id": "bench",
        "s3.secret-access-key": "bench",
        "s3.region": "us-east-1",
    }
    catalog = SqlCatalog("bench", **settings)
    catalog.create_namespace("b")
    table = catalog.create_table("b.lineitem", schema=data.schema)
    for part in parts(data):
        table.append(part)

    def opened() -> Callable[[Query], int]:
        found = SqlCatalog("bench", **settings).load_table("b.lineitem")

        def ask(query: Query) -> int:
            columns, where, limit = query
            scan = found.scan(
                row_filter=where or "true",
                selected_fields=tuple(columns or ("*",)),
                limit=limit,
            )
            return int(scan.to_arrow().num_rows)

        return ask

    return opened


def by_lance(data: pa.Table, endpoint: str) -> Open:
    import lance

    options = {
        "aws_endpoint": endpoint,
        "aws_access_key_id": "bench",
        "aws_secret_access_key": "bench",
        "aws_region": "us-east-1",
        "allow_http": "true",
    }
    for part in parts(data):
        lance.write_dataset(part, "s3://bench/lance", mode="append", storage_options=options)

    def opened() -> Callable[[Query], int]:
        found = lance.dataset("s3://bench/lance", storage_options=options)

        def ask(query: Query) -> int:
            columns, where, limit = query
            return int(found.to_table(columns=columns, filter=where, limit=limit).num_rows)

        return ask

    return opened


LIBRARIES = {
    "pyarrow": by_pyarrow,
    "duckdb": by_duckdb,
    "polars": by_polars,
    "deltalake": by_deltalake,
    "pyiceberg": by_pyiceberg,
    "lance": by_lance,
}


def main(library: str, endpoint: str, path: str, queries: str) -> None:
    data = pq.read_table(path)
    server = CountingServer(endpoint=endpoint)
    os.environ.update(server.env())
    opener = LIBRARIES[library](data, endpoint)
    del data
    opener()([["l_tax"], "l_orderkey = 1", 1])  # type: ignore[arg-type]  # imports are not measured
    for name, query in json.loads(queries).items():
        opened: list[Callable[[Query], int]] = []

        def first(query: Query = query, opened: Any = opened) -> int:
            opened.append(opener())
            return int(opened[0](query))

        try:
            cold = server.measure(first)
            warm = server.measure(lambda query=query, opened=opened: opened[0](query))
        except Exception:
            traceback.print_exc(limit=1)
            continue
        row = {"section": "Queries", "name": name, "first": asdict(cold), "again": asdict(warm)}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

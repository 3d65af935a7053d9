"""Reads published tables with one engine, in a separate environment: run as a program.

`read_by_engine.py ENGINE TABLE OUT [TABLE OUT …]`: all rows of the table as one Arrow IPC file OUT; where
the engine refuses the table, the reason as OUT with ".refused". TABLE is Iceberg's metadata file, or the
folder of a Delta table; DuckDB and pyiceberg take a condition behind it, as `FILE#CONDITION`.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa


def duckdb_with_iceberg(*extensions: str) -> Any:
    """A connection with extensions out of their wheels: nothing is downloaded."""
    import duckdb
    import duckdb_extension_iceberg

    site = Path(duckdb_extension_iceberg.__file__).parent.parent
    con = duckdb.connect()
    for name in extensions:
        [found] = site.glob(f"duckdb_extension_{name}/extensions/*/{name}.duckdb_extension")
        con.execute(f"INSTALL '{found}'")
        con.execute(f"LOAD {name}")
    con.execute("SET TimeZone = 'UTC'")
    return con


def by_duckdb(metadata: str) -> pa.Table:
    con = duckdb_with_iceberg("avro", "iceberg")
    path, _, condition = metadata.removeprefix("file://").partition("#")
    where = f" WHERE {condition}" if condition else ""
    return con.execute(f"SELECT * FROM iceberg_scan('{path}'){where}").to_arrow_table()


def by_pyiceberg(metadata: str) -> pa.Table:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.table import StaticTable

    path, _, condition = metadata.partition("#")
    return StaticTable.from_metadata(path).scan(row_filter=condition or AlwaysTrue()).to_arrow()


def by_polars(metadata: str) -> pa.Table:
    import polars

    return polars.scan_iceberg(metadata).collect().to_arrow()


def by_daft(metadata: str) -> pa.Table:
    import daft
    from pyiceberg.table import StaticTable

    return daft.read_iceberg(StaticTable.from_metadata(metadata)).to_arrow()


def by_datafusion(metadata: str) -> pa.Table:
    import datafusion
    from pyiceberg_core.datafusion import IcebergDataFusionTable

    context = datafusion.SessionContext()
    table = IcebergDataFusionTable(
        identifier=("tables", "t"), metadata_location=metadata, file_io_properties={}
    )
    context.register_table_provider("t", table)
    return context.sql("SELECT * FROM t").to_arrow_table()


def by_clickhouse(metadata: str) -> pa.Table:
    import chdb

    root = metadata.removeprefix("file://").partition("/metadata/")[0]
    os.chdir(Path(root).parent)  # it reads nothing outside of where it runs
    found = chdb.query(f"SELECT * FROM icebergLocal('{root}')", "Arrow")
    return pa.ipc.open_file(pa.BufferReader(found.bytes())).read_all()


@cache
def sail() -> Any:
    """A session of Sail, and its server within this process, which ends with the last reference to it."""
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session, server


def by_sail(metadata: str) -> pa.Table:
    root = metadata.partition("/metadata/")[0]
    session, _ = sail()
    return session.read.format("iceberg").load(root).toArrow()


def by_duckdb_delta(folder: str) -> pa.Table:
    con = duckdb_with_iceberg("delta")
    return con.execute(f"SELECT * FROM delta_scan('{folder}')").to_arrow_table()


def by_deltalake(folder: str) -> pa.Table:
    from deltalake import DeltaTable, QueryBuilder

    found = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT * FROM t")
    return pa.table(found.read_all())


ENGINES: dict[str, Any] = {
    "duckdb": by_duckdb,
    "pyiceberg": by_pyiceberg,
    "polars": by_polars,
    "daft": by_daft,
    "datafusion": by_datafusion,
    "clickhouse": by_clickhouse,
    "sail": by_sail,
    "duckdb_delta": by_duckdb_delta,
    "deltalake": by_deltalake,
}


def main() -> None:
    engine, *rest = sys.argv[1:]
    for metadata, out in zip(rest[::2], rest[1::2], strict=True):
        try:
            rows = ENGINES[engine](metadata)
        except Exception as error:
            Path(out + ".refused").write_text(f"{type(error).__name__}: {error}")
            continue
        with pa.OSFile(out, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # Sail's server outlives its session

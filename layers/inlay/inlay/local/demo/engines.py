"""Other engines, as a program that knows nothing of Inlay: they read and write through a REST catalog.

`python engines.py CATALOG`, in the environment of `make engines`, answers each line of its input, `VERB
ENGINE NAMESPACE.TABLE TEXT`, by a line of JSON. `read`: the one row that the SQL TEXT gives of the table's
rows `t`, as texts, and the version that was read. `write`: DuckDB runs the SQL TEXT (with `{table}`),
pyiceberg creates the table from the Parquet file TEXT. S3 is found by the AWS environment variables.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def duckdb_connection(catalog: str | None = None) -> Any:
    """DuckDB with its extensions out of their wheels: nothing is downloaded."""
    import duckdb

    con = duckdb.connect()
    if catalog is None:
        return con
    import duckdb_extension_iceberg  # type: ignore[import-not-found]

    site = Path(duckdb_extension_iceberg.__file__).parent.parent
    for name in ("avro", "httpfs", "iceberg"):
        [extension] = site.glob(f"duckdb_extension_{name}/extensions/*/{name}.duckdb_extension")
        con.execute(f"INSTALL '{extension}'")
        con.execute(f"LOAD {name}")
    scheme, _, host = os.environ["AWS_ENDPOINT_URL_S3"].partition("://")
    con.execute(
        "CREATE SECRET (TYPE s3, KEY_ID $key, SECRET $secret, REGION $region, ENDPOINT $host, "
        "URL_STYLE 'path', USE_SSL $tls)",
        {
            "key": os.environ["AWS_ACCESS_KEY_ID"],
            "secret": os.environ["AWS_SECRET_ACCESS_KEY"],
            "region": os.environ["AWS_REGION"],
            "host": host,
            "tls": scheme == "https",
        },
    )
    con.execute(
        f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{catalog}', AUTHORIZATION_TYPE 'none')"
    )
    return con


def read_by_duckdb(catalog: str, table: str, sql: str) -> tuple[Any, int]:
    # A new connection each time: a catalog that is attached remembers what it read.
    con = duckdb_connection(catalog)
    row = con.execute(f"SELECT {sql} FROM lake.{table} AS t").fetchone()
    seen = con.execute(
        f"SELECT max(sequence_number) FROM iceberg_snapshots(lake.{table})"
    ).fetchone()
    return row, seen[0]


def write_by_duckdb(catalog: str, table: str, sql: str) -> None:
    duckdb_connection(catalog).execute(sql.replace("{table}", f"lake.{table}"))


def pyiceberg_catalog(catalog: str) -> Any:
    from pyiceberg.catalog.rest import RestCatalog

    return RestCatalog("lake", uri=catalog, **{"s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"]})


def read_by_pyiceberg(catalog: str, table: str, sql: str) -> tuple[Any, int]:
    loaded = pyiceberg_catalog(catalog).load_table(table)
    con = duckdb_connection()
    con.register("t", loaded.scan().to_arrow())
    return con.execute(f"SELECT {sql} FROM t").fetchone(), loaded.current_snapshot().sequence_number


def write_by_pyiceberg(catalog: str, table: str, file: str) -> None:
    import pyarrow.parquet as pq

    rows = pq.read_table(file)
    # pyiceberg 0.12 reads version 3, and cannot write it.
    created = pyiceberg_catalog(catalog).create_table(
        table, rows.schema, properties={"format-version": "2"}
    )
    created.append(rows)


READ = {"duckdb": read_by_duckdb, "pyiceberg": read_by_pyiceberg}
WRITE = {"duckdb": write_by_duckdb, "pyiceberg": write_by_pyiceberg}


def main() -> None:
    (catalog,) = sys.argv[1:]
    for line in sys.stdin:
        verb, engine, table, text = line.rstrip("\n").split(" ", 3)
        answer: dict[str, Any] = {}
        try:
            if verb == "write":
                WRITE[engine](catalog, table, text)
            else:
                row, version = READ[engine](catalog, table, text)
                answer = {"row": [str(value) for value in row], "version": version}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

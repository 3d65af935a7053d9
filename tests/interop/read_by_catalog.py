"""Reads a table through a REST catalog: `read_by_catalog.py ENGINE URI TABLE`; prints how many rows, and
the sum of `id`. Runs in the environment of other engines."""

from __future__ import annotations

import sys
from typing import Any

from read_by_engine import duckdb_with_iceberg


def attached(uri: str) -> Any:
    """A connection of DuckDB in which `lake` is the catalog."""
    con = duckdb_with_iceberg("avro", "httpfs", "iceberg")
    con.execute("SET http_timeout = 600")  # a busy machine: it would send its request again
    con.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{uri}', AUTHORIZATION_TYPE 'none')")
    return con


def main() -> None:
    engine, uri, table = sys.argv[1:]
    if engine == "duckdb":
        con = attached(uri)
        found = con.execute(f"SELECT count(*), sum(id) FROM lake.{table}").fetchone()
        print(*map(int, found))
        return
    from pyiceberg.catalog.rest import RestCatalog

    catalog = RestCatalog("lake", uri=uri)
    namespace = table.partition(".")[0]
    assert (namespace,) in catalog.list_namespaces()
    assert tuple(table.split(".")) in catalog.list_tables(namespace)
    rows = catalog.load_table(table).scan().to_arrow()
    print(rows.num_rows, sum(rows["id"].to_pylist()))


if __name__ == "__main__":
    main()

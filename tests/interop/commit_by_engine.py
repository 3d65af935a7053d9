"""Engines that change or clean a published table, in a separate environment: run as a program.

`commit_by_engine.py ENGINE CATALOG TABLE WHAT`: does WHAT to the table through the REST catalog at CATALOG
and prints "done", or the name of the error and its text. Of pyiceberg, CATALOG may be a folder: the
published metadata file TABLE is then registered in a catalog of its own there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from read_by_catalog import attached

SECRET = "tok-someone"


def row(schema: Any) -> pa.Table:
    return pa.table({"id": [77], "s": [SECRET]}).cast(schema.as_arrow())


def entries(table: Any) -> str:
    found = table.inspect.entries()
    return str(sum(row["record_count"] for row in found["data_file"].to_pylist()))


PYICEBERG: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda catalog, table: table.append(row(table.schema())),
    "upsert": lambda catalog, table: table.upsert(row(table.schema())),
    "delete": lambda catalog, table: table.delete("id = 1"),
    "alter": lambda catalog, table: table.transaction().set_properties(a="b").commit_transaction(),
    "expire": lambda catalog, table: (
        table.maintenance.expire_snapshots()
        .by_ids([s.snapshot_id for s in table.metadata.snapshots[:-1]])
        .commit()
    ),
    "drop": lambda catalog, table: catalog.drop_table(table.name()),
    "purge": lambda catalog, table: catalog.purge_table(table.name()),
    "rename": lambda catalog, table: catalog.rename_table(table.name(), "tables.other"),
    "namespace": lambda catalog, table: catalog.create_namespace("other"),
    "entries": lambda catalog, table: entries(table),
    "keys": lambda catalog, table: sorted(table.schema().identifier_field_names()),
}
DUCKDB = {
    "append": f"INSERT INTO lake.{{}} VALUES (77, '{SECRET}')",
    "delete": "DELETE FROM lake.{} WHERE id = 1",
    "alter": "ALTER TABLE lake.{} ADD COLUMN extra INTEGER",
    "drop": "DROP TABLE lake.{}",
    "create": "CREATE TABLE lake.tables.more AS SELECT 1 AS id",
}


def by_pyiceberg(catalog: str, table: str, what: str) -> object:
    if catalog.startswith("http"):
        from pyiceberg.catalog.rest import RestCatalog

        rest = RestCatalog("lake", uri=catalog)
        return PYICEBERG[what](rest, rest.load_table(table))
    from pyiceberg.catalog.sql import SqlCatalog

    own = SqlCatalog("own", uri=f"sqlite:///{catalog}/own.db", warehouse=f"file://{catalog}")
    own.create_namespace_if_not_exists("n")
    return PYICEBERG[what](own, own.register_table("n.t", table))


def by_duckdb(catalog: str, table: str, what: str) -> object:
    attached(catalog).execute(DUCKDB[what].format(table))
    return None


def main() -> None:
    engine, catalog, table, what = sys.argv[1:]
    work = {"pyiceberg": by_pyiceberg, "duckdb": by_duckdb}[engine]
    try:
        found = work(catalog, table, what)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        return
    print("done" if what not in ("entries", "keys") else found)


if __name__ == "__main__":
    main()

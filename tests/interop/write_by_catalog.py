"""Writes tables through a REST catalog: `write_by_catalog.py URI`. Each line of input is a JSON list, an
engine and what it is to do; each line of output is the answer: rows, or a dictionary with the error. Runs
in the environment of other engines.

["duckdb", "INSERT INTO lake.tables.t VALUES …"]
["pyiceberg", "append", TABLE, [ROW, …], BRANCH = "main"]
["pyiceberg", "upsert", TABLE, [ROW, …]]
["pyiceberg", "branch" | "tag", TABLE, NAME]
["pyiceberg", "rollback" | "expire", TABLE, SNAPSHOT]
["pyiceberg", "delete", TABLE, FILTER]
["pyiceberg", "overwrite", TABLE, [ROW, …], FILTER]
["pyiceberg", "create", TABLE, {COLUMN: TYPE}]
["pyiceberg", "add" | "rename" | "drop", TABLE, COLUMN, …]
["pyiceberg", "scan", TABLE, REF = "main"]
["pyiceberg", "snapshot" | "properties", TABLE]
["polars" | "daft", "append" | "overwrite", TABLE, [ROW, …]]: files of their own writers
["sail", "INSERT INTO lake.tables.t VALUES …"]
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from read_by_catalog import attached


def rows_of(table: Any, given: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(given, schema=table.schema().as_arrow())


class Engines:
    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.catalog = RestCatalog("lake", uri=uri)
        self.duck: Any = None
        self.sails: Any = None

    def duckdb(self, statement: str) -> list[Any]:
        self.duck = self.duck or attached(self.uri)
        try:
            return [list(row) for row in self.duck.execute(statement).fetchall()]
        except Exception:
            self.duck.execute("ROLLBACK") if statement == "COMMIT" else None
            raise

    def polars(self, mode: str, name: str, given: list[dict[str, Any]]) -> Any:
        import polars

        table = self.catalog.load_table(name)
        polars.from_arrow(rows_of(table, given)).lazy().sink_iceberg(table, mode=mode)
        return []

    def daft(self, mode: str, name: str, given: list[dict[str, Any]]) -> Any:
        import daft

        table = self.catalog.load_table(name)
        daft.from_arrow(rows_of(table, given)).write_iceberg(table, mode=mode)
        return []

    def sail(self, statement: str) -> list[Any]:
        if self.sails is None:
            listed = f'[{{type="iceberg-rest", name="lake", uri="{self.uri}"}}]'
            os.environ["SAIL_CATALOG__LIST"] = listed
            from pysail.spark import SparkConnectServer
            from pyspark.sql import SparkSession

            self.server = SparkConnectServer()
            self.server.start()
            at = f"sc://127.0.0.1:{self.server.listening_address[1]}"
            self.sails = SparkSession.builder.remote(at).getOrCreate()
        return [list(row) for row in self.sails.sql(statement).collect()]

    def pyiceberg(self, verb: str, name: str, *given: Any) -> Any:
        if verb == "create":
            types = {k: getattr(pa, v)() for k, v in given[0].items()}
            self.catalog.create_table(name, pa.schema(types.items()))
            return []
        table = self.catalog.load_table(name)
        match verb:
            case "scan":
                return table.scan().use_ref(*(given or ["main"])).to_arrow().to_pylist()
            case "branch" | "tag":
                make = getattr(table.manage_snapshots(), f"create_{verb}")
                make(table.metadata.current_snapshot_id, given[0]).commit()
            case "rollback":
                table.manage_snapshots().rollback_to_snapshot(given[0]).commit()
            case "expire":
                table.maintenance.expire_snapshots().by_id(given[0]).commit()
            case "snapshot":
                return [table.metadata.current_snapshot_id]
            case "properties":
                return [dict(table.properties)]
            case "append":
                table.append(rows_of(table, given[0]), branch=(*given, "main")[1])
            case "upsert":
                table.upsert(rows_of(table, given[0]))
            case "delete":
                table.delete(given[0])
            case "overwrite":
                table.overwrite(rows_of(table, given[0]), overwrite_filter=given[1])
            case "set":
                with table.transaction() as change:
                    change.set_properties(**given[0])
            case _:
                from pyiceberg.types import LongType

                with table.update_schema() as change:
                    match verb:
                        case "add":
                            change.add_column(given[0], LongType())
                        case "rename":
                            change.rename_column(*given)
                        case "drop":
                            change.delete_column(given[0])
        return []


def main() -> None:
    engines = Engines(sys.argv[1])
    for line in sys.stdin:
        engine, *given = json.loads(line)
        try:
            answer: Any = getattr(engines, engine)(*given)
        except Exception as error:  # whatever an engine raises is the answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()

"""The query table by other libraries, in an environment that has them (`make bench PEERS=1`).

    python peers.py LIBRARY ENDPOINT DATA.parquet QUERIES.json SCALE.json

Each library writes the same 20 parts its own way, with its own defaults, and is asked the same questions:
of a table just opened, and once more; then those of tables of other shapes (`shapes.py`). One line of JSON
for each; what fails is said on standard error.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

import shapes
from counting_server import CountingServer, Measured

FILES = 20
# Columns, condition, limit, and a column to order by, the greatest first.
Query = tuple[list[str] | None, str | None, int | None, str | None]
# Opens the table; the result answers a query with its number of rows.
Open = Callable[[], Callable[[Query], int]]


def parts(data: pa.Table) -> list[pa.Table]:
    step = -(-data.num_rows // FILES)
    return [data.slice(start, step) for start in range(0, data.num_rows, step)]


COMPACTION = "Compaction of one large file and 20 small ones"


def uneven(data: pa.Table) -> list[pa.Table]:
    """Five sixths of the rows, and the rest in twenty parts."""
    large = data.num_rows * 5 // 6
    step = -(-(data.num_rows - large) // FILES)
    small = [data.slice(start, step) for start in range(large, data.num_rows, step)]
    return [data.slice(0, large), *small]


def filesystem(endpoint: str) -> Any:
    from pyarrow.fs import S3FileSystem

    return S3FileSystem(
        access_key="bench", secret_key="bench", region="us-east-1", endpoint_override=endpoint
    )


def write_files(pieces: Sequence[pa.Table], endpoint: str, name: str) -> None:
    """Plain Parquet files, as pyarrow writes them by default but for zstd."""
    fs = filesystem(endpoint)
    for n, part in enumerate(pieces):
        path = f"bench/{name}/{n:04}.parquet"
        pq.write_table(part, path, filesystem=fs, compression="zstd")


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


def unordered(query: Query) -> tuple[list[str] | None, str | None, int | None]:
    """What is asked of a library that would read all rows to order them."""
    columns, where, limit, order = query
    if order is not None:
        raise NotImplementedError("an order")
    return columns, where, limit


def by_pyarrow(pieces: Sequence[pa.Table], endpoint: str, name: str = "pyarrow") -> Open:
    import pyarrow.dataset as ds

    write_files(pieces, endpoint, name)

    def opened() -> Callable[[Query], int]:
        dataset = ds.dataset(f"bench/{name}", filesystem=filesystem(endpoint), format="parquet")

        def ask(query: Query) -> int:
            columns, where, limit = unordered(query)
            chosen = None if where is None else expression(where)
            if limit is not None:
                return int(dataset.head(limit, columns=columns).num_rows)
            return int(dataset.to_table(columns=columns, filter=chosen).num_rows)

        return ask

    return opened


def by_polars(pieces: Sequence[pa.Table], endpoint: str, name: str = "polars") -> Open:
    import polars as pl

    write_files(pieces, endpoint, name)
    options = shapes.polars_options(endpoint)

    def opened() -> Callable[[Query], int]:
        def ask(query: Query) -> int:
            columns, where, limit, order = query
            frame = pl.scan_parquet(f"s3://bench/{name}/*.parquet", storage_options=options)
            if where is not None:
                frame = frame.filter(pl.sql_expr(where))
            if order is not None:
                frame = frame.sort(order, descending=True)
            if columns is not None:
                frame = frame.select(columns)
            if limit is not None:
                frame = frame.head(limit)
            return int(frame.collect().height)

        return ask

    return opened


def sql(table: str, query: Query) -> str:
    columns, where, limit, order = query
    text = f"SELECT {', '.join(columns or ['*'])} FROM {table}"
    text += f" WHERE {where}" if where else ""
    text += f" ORDER BY {order} DESC" if order else ""
    return text + (f" LIMIT {limit}" if limit else "")


def by_duckdb(pieces: Sequence[pa.Table], endpoint: str, name: str = "duckdb") -> Open:
    write_files(pieces, endpoint, name)

    def opened() -> Callable[[Query], int]:
        found = shapes.duckdb_connection(endpoint)

        def ask(query: Query) -> int:
            rows = found.execute(sql(f"'s3://bench/{name}/*.parquet'", query)).fetch_arrow_table()
            return int(rows.num_rows)

        return ask

    return opened


def by_deltalake(pieces: Sequence[pa.Table], endpoint: str, name: str = "delta") -> Open:
    from deltalake import DeltaTable, QueryBuilder, write_deltalake

    options = shapes.delta_options(endpoint)
    for part in pieces:
        write_deltalake(f"s3://bench/{name}", part, mode="append", storage_options=options)

    def opened() -> Callable[[Query], int]:
        table = DeltaTable(f"s3://bench/{name}", storage_options=options)

        def ask(query: Query) -> int:
            batches = QueryBuilder().register("t", table).execute(sql("t", query))
            return sum(batch.num_rows for batch in batches)

        return ask

    return opened


@cache
def iceberg_folder() -> str:
    return tempfile.mkdtemp()


def iceberg_catalog(endpoint: str) -> Any:
    """One catalog for the process, opened once more."""
    from pyiceberg.catalog.sql import SqlCatalog

    settings = {
        "uri": f"sqlite:///{iceberg_folder()}/catalog.db",
        "warehouse": "s3://bench/iceberg",
        "s3.endpoint": endpoint,
        "s3.access-key-id": "bench",
        "s3.secret-access-key": "bench",
        "s3.region": "us-east-1",
    }
    return SqlCatalog("bench", **settings)


def by_pyiceberg(pieces: Sequence[pa.Table], endpoint: str, name: str = "lineitem") -> Open:
    catalog = iceberg_catalog(endpoint)
    catalog.create_namespace_if_not_exists("b")
    table = catalog.create_table(f"b.{name}", schema=pieces[0].schema)
    for part in pieces:
        table.append(part)

    def opened() -> Callable[[Query], int]:
        found = iceberg_catalog(endpoint).load_table(f"b.{name}")

        def ask(query: Query) -> int:
            columns, where, limit = unordered(query)
            scan = found.scan(
                row_filter=where or "true",
                selected_fields=tuple(columns or ("*",)),
                limit=limit,
            )
            return int(scan.to_arrow().num_rows)

        return ask

    return opened


def by_lance(pieces: Sequence[pa.Table], endpoint: str, name: str = "lance") -> Open:
    import lance

    options = shapes.lance_options(endpoint)
    for part in pieces:
        lance.write_dataset(part, f"s3://bench/{name}", mode="append", storage_options=options)

    def opened() -> Callable[[Query], int]:
        found = lance.dataset(f"s3://bench/{name}", storage_options=options)

        def ask(query: Query) -> int:
            columns, where, limit = unordered(query)
            return int(found.to_table(columns=columns, filter=where, limit=limit).num_rows)

        return ask

    return opened


def compact_deltalake(data: pa.Table, endpoint: str) -> Callable[[], int]:
    from deltalake import DeltaTable, write_deltalake

    options = shapes.delta_options(endpoint)
    for part in uneven(data):
        write_deltalake("s3://bench/delta-c", part, mode="append", storage_options=options)
    table = DeltaTable("s3://bench/delta-c", storage_options=options)

    def compact() -> int:
        table.optimize.compact()
        return len(table.file_uris())

    return compact


def compact_lance(data: pa.Table, endpoint: str) -> Callable[[], int]:
    import lance

    options = shapes.lance_options(endpoint)
    for part in uneven(data):
        lance.write_dataset(part, "s3://bench/lance-c", mode="append", storage_options=options)
    found = lance.dataset("s3://bench/lance-c", storage_options=options)

    def compact() -> int:
        found.optimize.compact_files()
        return len(found.get_fragments())

    return compact


# pyiceberg has no compaction, the others no tables.
COMPACTIONS = {"deltalake": compact_deltalake, "lance": compact_lance}
LIBRARIES = {
    "pyarrow": by_pyarrow,
    "duckdb": by_duckdb,
    "polars": by_polars,
    "deltalake": by_deltalake,
    "pyiceberg": by_pyiceberg,
    "lance": by_lance,
}


# -- the day of benchmarks/day.py ------------------------------------------------------------------


@dataclass(frozen=True)
class DayPlan:
    """`files` are appended; meanwhile `deletes` remove the rows of the oldest files, one each, and
    `queries` ask for a twentieth of a file that is whole."""

    files: int
    deletes: int
    queries: int
    rows: int = 2_000

    def span(self, file: int) -> tuple[int, int]:
        """The first and last key of a file."""
        return file * self.rows, (file + 1) * self.rows - 1

    def part(self, file: int, rng: random.Random) -> tuple[int, int]:
        first = file * self.rows + rng.randrange(self.rows * 19 // 20)
        return first, first + self.rows // 20 - 1

    def file(self, number: int, *, payload: int = 24, rows: int | None = None) -> pa.Table:
        first = number * self.rows
        bodies = [os.urandom(payload) for _ in range(rows or self.rows)]
        ids = pa.array(range(first, first + len(bodies)), pa.int64())
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("payload", pa.binary())])
        return pa.table([ids, pa.array(bodies, pa.binary())], schema=schema)


@dataclass(frozen=True)
class DayCount:
    """Requests as S3 bills them: PUT, COPY, POST and LIST; GET and HEAD. Deletes are free."""

    writes: float
    reads: float

    @staticmethod
    def of(requests: Mapping[str, int]) -> DayCount:
        reads = sum(n for verb, n in requests.items() if verb.startswith(("Get", "Head")))
        free = sum(n for verb, n in requests.items() if verb.startswith(("Delete", "Abort")))
        return DayCount(sum(requests.values()) - reads - free, reads)


class DayLibrary(Protocol):
    def append(self, data: pa.Table) -> None: ...

    def delete(self, low: int, high: int) -> None: ...

    def query(self, low: int, high: int) -> int:
        """Rows, of a table just opened."""


def day_of_library(
    library: DayLibrary, server: CountingServer, plan: DayPlan
) -> dict[str, list[DayCount]]:
    """Counts of every operation, in order."""
    found: dict[str, list[DayCount]] = {"append": [], "delete": [], "query": []}
    rng = random.Random(5)

    def counted(what: str, action: Callable[[], Any]) -> None:
        server.clear()
        action()
        found.setdefault(what, []).append(DayCount.of(server.usage().requests))

    def query(low: int, high: int) -> None:
        rows = library.query(low, high)
        assert rows == high - low + 1, (rows, low, high)

    deleted = asked = 0
    for n in range(plan.files):
        counted("append", lambda n=n: library.append(plan.file(n)))
        if deleted < (n + 1) * plan.deletes // plan.files:
            span = plan.span(deleted)
            counted("delete", lambda span=span: library.delete(*span))
            deleted += 1
        while asked < (n + 1) * plan.queries // plan.files:
            part = plan.part(rng.randrange(deleted, n + 1), rng)
            counted("query", lambda part=part: query(*part))
            asked += 1
    # 64 MB that nothing compresses.
    whole = plan.file(plan.files, payload=1_024, rows=62_500)
    counted("append of the true size", lambda: library.append(whole))
    return found


def half_means(counts: Sequence[DayCount]) -> tuple[DayCount, DayCount]:
    """Means of the first and of the second half."""
    half = max(1, len(counts) // 2)
    first, second = counts[:half], counts[half:] or counts
    return (
        DayCount(
            sum(c.writes for c in first) / len(first), sum(c.reads for c in first) / len(first)
        ),
        DayCount(
            sum(c.writes for c in second) / len(second), sum(c.reads for c in second) / len(second)
        ),
    )


class DayOfDelta:
    def __init__(self, endpoint: str) -> None:
        self.options = shapes.delta_options(endpoint)

    def append(self, data: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake("s3://bench/delta-day", data, mode="append", storage_options=self.options)

    def delete(self, low: int, high: int) -> None:
        self._open().delete(f"id >= {low} AND id <= {high}")

    def query(self, low: int, high: int) -> int:
        from deltalake import QueryBuilder

        text = f"SELECT * FROM t WHERE id >= {low} AND id <= {high}"
        batches = QueryBuilder().register("t", self._open()).execute(text)
        return sum(batch.num_rows for batch in batches)

    def _open(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable("s3://bench/delta-day", storage_options=self.options)


class DayOfIceberg:
    """The catalog is SQLite, whose requests nobody counts."""

    def __init__(self, endpoint: str) -> None:
        self.catalog = iceberg_catalog(endpoint)
        self.catalog.create_namespace("d")
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("payload", pa.binary())])
        self.table = self.catalog.create_table("d.day", schema=schema)

    def append(self, data: pa.Table) -> None:
        self.table.append(data)

    def delete(self, low: int, high: int) -> None:
        self.table.delete(f"id >= {low} AND id <= {high}")

    def query(self, low: int, high: int) -> int:
        scan = self.catalog.load_table("d.day").scan(row_filter=f"id >= {low} AND id <= {high}")
        return int(scan.to_arrow().num_rows)


def day(library: str, endpoint: str, plan: str) -> None:
    server = CountingServer(endpoint=endpoint)
    kinds: dict[str, type[DayOfDelta | DayOfIceberg]] = {
        "deltalake": DayOfDelta,
        "pyiceberg": DayOfIceberg,
    }
    made: DayLibrary = kinds[library](endpoint)
    found = day_of_library(made, server, DayPlan(**json.loads(plan)))
    print(json.dumps({name: [asdict(each) for each in of] for name, of in found.items()}))


def main(library: str, endpoint: str, path: str, queries: str, scale: str) -> None:
    data = pq.read_table(path)
    server = CountingServer(endpoint=endpoint)
    os.environ.update(server.env())
    by = LIBRARIES[library]
    opener = by(parts(data), endpoint)
    if library in COMPACTIONS:
        show(COMPACTION, "compact", server.measure(COMPACTIONS[library](data, endpoint)))
    opener()([["l_tax"], "l_orderkey = 1", 1, None])  # type: ignore[arg-type]  # imports are not measured
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
        show("Queries", name, cold, warm)
    more = shapes.Scale(**json.loads(scale))
    if more.latency_ms is not None:
        acts = shapes.Shapes(library, server, more, data, shapes.PEER_ACTS.get(library), by)
        for name, used in acts.measured():
            show(shapes.SECTION, name, used)


def show(section: str, name: str, first: Measured, again: Measured | None = None) -> None:
    warm = None if again is None else asdict(again)
    row = {"section": section, "name": name, "first": asdict(first), "again": warm}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--day":
        day(*sys.argv[2:])
    else:
        main(*sys.argv[1:])

"""What each library does with the same tables: Inlay in this environment, the others in one of their own.

    python libraries.py PART LIBRARY ENDPOINT SCALE.json          # as `bench.py` starts it, for each
    python libraries.py --writers LIBRARY ENDPOINT URI WRITERS SECONDS
    python libraries.py --day LIBRARY ENDPOINT PLAN.json

Each writes the tables its own way, with its own defaults, and does what `shapes.py` measures; what it
cannot do is left out. Methods import what they need: no environment has all.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cached_property
from multiprocessing.synchronize import Barrier
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

import shapes
from counting_server import CountingServer
from data import KEY, ORDERS, Query

os.environ.setdefault("LANCE_LOG", "error")  # it warns of each table that it makes
BUCKET = "bench"
Act = Callable[[], Any]
# Answers a query with its number of rows.
Ask = Callable[[Query], int]
ROW = pa.table({"id": pa.array([1], pa.int64())})
# Of pyiceberg, to fill a table.
MOST_COMMITS = 100


def sql(table: str, query: Query) -> str:
    columns, where, limit, order = query
    text = f"SELECT {', '.join(columns or ['*'])} FROM {table}"
    text += f" WHERE {where}" if where else ""
    text += f" ORDER BY {order} DESC" if order else ""
    return text + (f" LIMIT {limit}" if limit else "")


def expression(where: str) -> Any:
    """The condition as pyarrow's; of the few forms that are asked."""
    import pyarrow.compute as pc

    condition = None
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
        condition = one if condition is None else condition & one
    return condition


def put(endpoint: str, key: str, body: bytes) -> None:
    request = urllib.request.Request(f"{endpoint}/{BUCKET}/{key}", body, method="PUT")
    with urllib.request.urlopen(request):
        pass


class Library:
    """One library on the server. What it cannot do raises NotImplementedError, as methods do here."""

    name = ""
    # Where a file that nothing needs would lie in its table.
    orphan = ""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def uri(self, name: str) -> str:
        """Of a table of the benchmarks' bucket, or of another."""
        return name if "://" in name else f"s3://{BUCKET}/{name}"

    def fill(self, pieces: Sequence[pa.Table], name: str) -> None:
        """Write each piece as a file of a table of this name."""
        raise NotImplementedError

    def open(self, name: str) -> Ask:
        raise NotImplementedError

    def fresh(self, name: str, key: int) -> Mapping[str, str]:
        """Programs that count a table, and read a row by its key: nothing else is imported."""
        raise NotImplementedError

    def delete_keys(self, name: str, keys: pa.Table) -> None:
        raise NotImplementedError

    def count(self, name: str) -> int:
        raise NotImplementedError

    def erase(self, name: str, where: str) -> None:
        """Remove rows, and every file that has them."""
        raise NotImplementedError

    def collect(self, name: str) -> None:
        """Remove files that nothing needs, whatever their age."""
        raise NotImplementedError

    def compact(self, name: str) -> int:
        """The number of files afterwards."""
        raise NotImplementedError

    def plan(self, files: int) -> Mapping[str, Callable[[], int]]:
        """Fill a table with entries of files that do not exist; acts that open and plan it, giving the
        number of files to be read."""
        raise NotImplementedError

    def wide(self, name: str, rows: pa.Table) -> Mapping[str, Act]:
        """What else is done to a table of many columns."""
        return {}

    def writer(self, name: str) -> Act:
        """Appends a row to a table that is there."""
        raise NotImplementedError


class Inlay(Library):
    name = "inlay"
    orphan = "data/2020/01/01/00/{}.parquet"

    def fill(self, pieces: Sequence[pa.Table], name: str) -> None:
        import inlay

        names = pieces[0].column_names
        key = [each for each in ("id", *KEY) if each in names]
        has_filter = name == self.name and "l_comment" in names
        table = inlay.create(
            self.uri(name),
            pieces[0].schema,
            primary_key=key,
            sort_by=key[0],
            properties={"write.bloom_filters": "l_comment"} if has_filter else {},
        )
        for piece in pieces:
            table.append(piece)

    def open(self, name: str) -> Ask:
        table = self.table(name)

        def ask(query: Query) -> int:
            columns, where, limit, order = query
            asked: dict[str, Any] = {"columns": columns, "where": where, "limit": limit}
            if order is not None:
                asked["order_by"] = f"{order} DESC"
            return int(table.scan(**asked).to_arrow().num_rows)

        return ask

    def table(self, name: str) -> Any:
        import inlay

        return inlay.open(self.uri(name))

    def fresh(self, name: str, key: int) -> Mapping[str, str]:
        opened = f"import inlay; t = inlay.open({self.uri(name)!r}); "
        return {
            "count": opened + "t.count()",
            "point by key": opened + f"t.scan(where='l_orderkey = {key}').to_arrow()",
        }

    def delete_keys(self, name: str, keys: pa.Table) -> None:
        self.table(name).delete(keys=keys)

    def count(self, name: str) -> int:
        return int(self.table(name).count())

    def erase(self, name: str, where: str) -> None:
        table = self.table(name)
        table.delete(where, mode="surgery")
        table.maintain.expire(days=0)
        self._collect(table)

    def collect(self, name: str) -> None:
        self._collect(self.table(name))

    def _collect(self, table: Any) -> None:
        table.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)

    def compact(self, name: str) -> int:
        table = self.table(name)
        table.maintain.compact()
        return int(table.snapshot.totals.files)

    def plan(self, files: int) -> Mapping[str, Callable[[], int]]:
        import cost
        import inlay

        uri = self.uri("planned")
        table = inlay.create(uri, ORDERS, primary_key="id", sort_by="id")
        table.append(cost.rows(0, cost.SMALL_ROWS))
        cost.fill(table, files, batch=2_000)

        def planned(where: str | None) -> Callable[[], int]:
            return lambda: int(inlay.open(uri).scan(where=where).explain().files_read)

        return {
            "by key": planned(f"id = {files * cost.SMALL_ROWS // 2}"),
            "by another column": planned("customer = -1"),
            "all": planned(None),
        }

    def wide(self, name: str, rows: pa.Table) -> Mapping[str, Act]:
        table, few = self.table(name), rows.slice(0, shapes.FEW)
        return {
            f"upsert of {few.num_rows} rows": lambda: table.upsert(few),
            f"upsert of 2 columns of {few.num_rows} rows": lambda: table.upsert(
                few.select(["id", "c0"])
            ),
            "update of a row": lambda: table.update({"c0": "c0 + 1"}, where="id = 500"),
            "rewrite": lambda: table.maintain.rewrite(),
            "publish": lambda: table.publish(format="v3"),
            "verify": lambda: table.maintain.verify(),
        }


class Files(Library):
    """Plain Parquet files, as pyarrow writes them by default but for zstd."""

    @cached_property
    def filesystem(self) -> Any:
        return self.connect()

    def connect(self) -> Any:
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(
            access_key="bench",
            secret_key="bench",
            region="us-east-1",
            endpoint_override=self.endpoint,
        )

    def fill(self, pieces: Sequence[pa.Table], name: str) -> None:
        for n, piece in enumerate(pieces):
            path = f"{BUCKET}/{name}/{n:04}.parquet"
            pq.write_table(piece, path, filesystem=self.connect(), compression="zstd")


class PyArrow(Files):
    name = "pyarrow"

    def open(self, name: str) -> Ask:
        import pyarrow.dataset as ds

        dataset = ds.dataset(f"{BUCKET}/{name}", filesystem=self.connect(), format="parquet")

        def ask(query: Query) -> int:
            columns, where, limit, order = query
            if order is not None:
                raise NotImplementedError("an order of rows that are not all in memory")
            chosen = None if where is None else expression(where)
            if limit is not None:
                return int(dataset.head(limit, columns=columns).num_rows)
            return int(dataset.to_table(columns=columns, filter=chosen).num_rows)

        return ask

    def fresh(self, name: str, key: int) -> Mapping[str, str]:
        opened = (
            "import pyarrow.dataset as ds; from pyarrow.fs import S3FileSystem; "
            f"fs = S3FileSystem(endpoint_override='{self.endpoint}', access_key='bench', "
            "secret_key='bench', region='us-east-1'); "
            f"t = ds.dataset('{BUCKET}/{name}', filesystem=fs, format='parquet'); "
        )
        return {
            "count": opened + "t.count_rows()",
            "point by key": opened + f"t.to_table(filter=ds.field('l_orderkey') == {key})",
        }

    def erase(self, name: str, where: str) -> None:
        """The file that has them is known; it is written again in its place."""
        path, filesystem = f"{BUCKET}/{name}/0000.parquet", self.connect()
        with pq.ParquetFile(path, filesystem=filesystem) as file:
            groups = [file.read_row_group(n) for n in range(file.num_row_groups)]
        with pq.ParquetWriter(
            path, groups[0].schema, filesystem=filesystem, compression="zstd"
        ) as writer:
            for group in groups:
                writer.write_table(group.filter(~expression(where)))


class Polars(Files):
    name = "polars"

    @property
    def options(self) -> dict[str, str]:
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_access_key_id": "bench",
            "aws_secret_access_key": "bench",
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }

    def open(self, name: str) -> Ask:
        import polars as pl

        def ask(query: Query) -> int:
            columns, where, limit, order = query
            frame = pl.scan_parquet(f"{self.uri(name)}/*.parquet", storage_options=self.options)
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

    def fresh(self, name: str, key: int) -> Mapping[str, str]:
        opened = (
            f"import polars as pl; t = pl.scan_parquet('{self.uri(name)}/*.parquet', "
            f"storage_options={self.options}); "
        )
        return {
            "count": opened + "t.select(pl.len()).collect()",
            "point by key": opened + f"t.filter(pl.col('l_orderkey') == {key}).collect()",
        }


class DuckDB(Files):
    name = "duckdb"

    @property
    def statements(self) -> list[str]:
        settings = {
            "s3_endpoint": f"'{self.endpoint.removeprefix('http://')}'",
            "s3_access_key_id": "'bench'",
            "s3_secret_access_key": "'bench'",
            "s3_region": "'us-east-1'",
            "s3_url_style": "'path'",
            "s3_use_ssl": "false",
        }
        return ["LOAD httpfs", *(f"SET {name}={value}" for name, value in settings.items())]

    def open(self, name: str) -> Ask:
        import duckdb

        connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        try:
            import duckdb_extension_httpfs  # noqa: F401 - brings the extension
            from duckdb_extensions import import_extension

            import_extension("httpfs")
        except ImportError:
            pass
        for statement in self.statements:
            connection.execute(statement)

        def ask(query: Query) -> int:
            text = sql(f"'{self.uri(name)}/*.parquet'", query)
            return int(connection.execute(text).to_arrow_table().num_rows)

        return ask

    def fresh(self, name: str, key: int) -> Mapping[str, str]:
        files = f"'{self.uri(name)}/*.parquet'"
        opened = (
            "import duckdb; t = duckdb.connect(config={'allow_unsigned_extensions': 'true'}); "
            f"[t.execute(s) for s in {self.statements}]; "
        )
        asked = {"count": "count(*)", "point by key": "*"}
        where = {"count": "", "point by key": f" WHERE l_orderkey = {key}"}
        return {
            what: opened + f't.execute("SELECT {asked[what]} FROM {files}{where[what]}").fetchall()'
            for what in asked
        }


class DeltaLake(Library):
    name = "deltalake"
    orphan = "part-00000-{}.parquet"

    @property
    def options(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "conditional_put": "etag",
        }

    def table(self, name: str) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.uri(name), storage_options=self.options)

    def fill(self, pieces: Sequence[pa.Table], name: str) -> None:
        from deltalake import write_deltalake

        for piece in pieces:
            write_deltalake(self.uri(name), piece, mode="append", storage_options=self.options)

    def open(self, name: str) -> Ask:
        from deltalake import QueryBuilder

        table = self.table(name)

        def ask(query: Query) -> int:
            batches = QueryBuilder().register("t", table).execute(sql("t", query))
            return sum(batch.num_rows for batch in batches)

        return ask

    def fresh(self, name: str, key: int) -> Mapping[str, str]:
        opened = (
            "from deltalake import DeltaTable, QueryBuilder; "
            f"t = DeltaTable({self.uri(name)!r}, storage_options={self.options}); "
            "q = QueryBuilder().register('t', t); "
        )
        return {
            "count": opened + "list(q.execute('SELECT count(*) FROM t'))",
            "point by key": opened + f"list(q.execute('SELECT * FROM t WHERE l_orderkey = {key}'))",
        }

    def delete_keys(self, name: str, keys: pa.Table) -> None:
        on = " AND ".join(f"t.{key} = s.{key}" for key in KEY)
        merge = self.table(name).merge(keys, on, source_alias="s", target_alias="t")
        merge.when_matched_delete().execute()

    def count(self, name: str) -> int:
        return self.open(name)((["l_tax"], None, None, None))

    def erase(self, name: str, where: str) -> None:
        table = self.table(name)
        table.delete(where)
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    def collect(self, name: str) -> None:
        self.table(name).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

    def compact(self, name: str) -> int:
        table = self.table(name)
        table.optimize.compact()
        return len(table.file_uris())

    def plan(self, files: int) -> Mapping[str, Callable[[], int]]:
        """A log of one commit, and its checkpoint, as its writer makes one."""
        from deltalake import Schema

        schema = json.loads(Schema.from_arrow(ORDERS).to_json())
        add = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {
                "metaData": {
                    "id": "1b0c1a4e-0000-4000-8000-000000000000",
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps(schema),
                    "partitionColumns": [],
                    "configuration": {},
                    "createdTime": 0,
                }
            },
        ]
        for n in range(files):
            low, high, nulls = shapes.bounds(n)
            stats = {
                "numRecords": shapes.PLANNED_ROWS,
                "minValues": low,
                "maxValues": high,
                "nullCount": nulls,
            }
            action = {
                "path": f"part-{n:08}.parquet",
                "partitionValues": {},
                "size": 200_000,
                "modificationTime": 0,
                "dataChange": True,
                "stats": json.dumps(stats),
            }
            add.append({"add": action})
        log = "\n".join(json.dumps(action) for action in add).encode()
        put(self.endpoint, f"planned/_delta_log/{0:020}.json", log)
        self.table("planned").create_checkpoint()
        return {"all": lambda: len(self.table("planned").file_uris())}

    def writer(self, name: str) -> Act:
        from deltalake import write_deltalake

        return lambda: write_deltalake(
            self.uri(name), ROW, mode="append", storage_options=self.options
        )


class PyIceberg(Library):
    """Its catalog is SQLite in a file, opened anew as its tables are; nobody counts its requests."""

    name = "pyiceberg"

    @cached_property
    def folder(self) -> str:
        return tempfile.mkdtemp()

    def catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        settings = {
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"s3://{BUCKET}/iceberg",
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": "bench",
            "s3.secret-access-key": "bench",
            "s3.region": "us-east-1",
        }
        return SqlCatalog("bench", **settings)

    def create(self, name: str, schema: pa.Schema) -> Any:
        catalog = self.catalog()
        catalog.create_namespace_if_not_exists("b")
        return catalog.create_table(f"b.{name}", schema=schema)

    def table(self, name: str) -> Any:
        return self.catalog().load_table(f"b.{name}")

    def fill(self, pieces: Sequence[pa.Table], name: str) -> None:
        table = self.create(name, pieces[0].schema)
        if len(pieces) <= MOST_COMMITS:
            for piece in pieces:
                table.append(piece)
            return
        # Each commit writes all that were before again: a thousand take minutes.
        Files(self.endpoint).fill(pieces, f"{name}-files")
        paths = [self.uri(f"{name}-files/{n:04}.parquet") for n in range(len(pieces))]
        table.add_files(paths)

    def open(self, name: str) -> Ask:
        table = self.table(name)

        def ask(query: Query) -> int:
            columns, where, limit, order = query
            if order is not None:
                raise NotImplementedError("an order")
            scan = table.scan(
                row_filter=where or "true",
                selected_fields=tuple(columns or ("*",)),
                limit=limit,
            )
            return int(scan.to_arrow().num_rows)

        return ask

    def erase(self, name: str, where: str) -> None:
        """The file stays: this library removes none."""
        self.table(name).delete(where)

    def plan(self, files: int) -> Mapping[str, Callable[[], int]]:
        from pyiceberg.conversions import to_bytes
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        table = self.create("planned", ORDERS)
        fields = {field.name: field for field in table.schema().fields}
        # Whole numbers alone: bounds of the others would need values of their types.
        numbers = [field.name for field in ORDERS if pa.types.is_integer(field.type)]
        with table.transaction() as transaction:
            append = transaction.update_snapshot().fast_append()
            for n in range(files):
                low, high, nulls = shapes.bounds(n)
                ends = [
                    {fields[k].field_id: to_bytes(fields[k].field_type, of[k]) for k in numbers}
                    for of in (low, high)
                ]
                append.append_data_file(
                    DataFile.from_args(
                        content=DataFileContent.DATA,
                        file_path=f"{table.location()}/data/{n:08}.parquet",
                        file_format=FileFormat.PARQUET,
                        partition=Record(),
                        record_count=shapes.PLANNED_ROWS,
                        file_size_in_bytes=200_000,
                        null_value_counts={fields[k].field_id: v for k, v in nulls.items()},
                        lower_bounds=ends[0],
                        upper_bounds=ends[1],
                        split_offsets=[4],
                    )
                )
            append.commit()

        def planned(where: str) -> Callable[[], int]:
            return lambda: len(list(self.table("planned").scan(row_filter=where).plan_files()))

        return {
            "by key": planned(f"id = {files * shapes.PLANNED_ROWS // 2}"),
            "all": planned("true"),
        }


class Lance(Library):
    name = "lance"
    orphan = "data/{}.lance"

    @property
    def options(self) -> dict[str, str]:
        return {
            "aws_endpoint": self.endpoint,
            "aws_access_key_id": "bench",
            "aws_secret_access_key": "bench",
            "aws_region": "us-east-1",
            "allow_http": "true",
        }

    def table(self, name: str) -> Any:
        import lance

        return lance.dataset(self.uri(name), storage_options=self.options)

    def fill(self, pieces: Sequence[pa.Table], name: str) -> None:
        import lance

        for piece in pieces:
            lance.write_dataset(piece, self.uri(name), mode="append", storage_options=self.options)

    def open(self, name: str) -> Ask:
        table = self.table(name)

        def ask(query: Query) -> int:
            from lance.dataset import ColumnOrdering

            columns, where, limit, order = query
            more = {}
            if order is not None:
                more["order_by"] = [ColumnOrdering(column_name=order, ascending=False)]
            rows = table.to_table(columns=columns, filter=where, limit=limit, **more)
            return int(rows.num_rows)

        return ask

    def fresh(self, name: str, key: int) -> Mapping[str, str]:
        opened = (
            f"import lance; t = lance.dataset({self.uri(name)!r}, storage_options={self.options}); "
        )
        return {
            "count": opened + "t.count_rows()",
            "point by key": opened + f"t.to_table(filter='l_orderkey = {key}')",
        }

    def delete_keys(self, name: str, keys: pa.Table) -> None:
        self.table(name).merge_insert(KEY).when_matched_delete().execute(keys)

    def count(self, name: str) -> int:
        return int(self.table(name).count_rows())

    def erase(self, name: str, where: str) -> None:
        table = self.table(name)
        table.delete(where)
        table.optimize.compact_files(materialize_deletions_threshold=0.0)
        self._collect(table)

    def collect(self, name: str) -> None:
        self._collect(self.table(name))

    def _collect(self, table: Any) -> None:
        table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    def compact(self, name: str) -> int:
        table = self.table(name)
        table.optimize.compact_files()
        return len(table.get_fragments())

    def plan(self, files: int) -> Mapping[str, Callable[[], int]]:
        """The fragment of one row, many times; it has no bounds to plan by."""
        import lance

        row = pa.table([pa.nulls(1, field.type) for field in ORDERS], names=ORDERS.names)
        self.fill([row], "planned")
        (one,) = self.table("planned").get_fragments()
        described = one.metadata.to_json()
        fragments = [
            lance.fragment.FragmentMetadata.from_json(json.dumps({**described, "id": n}))
            for n in range(files)
        ]
        overwrite = lance.LanceOperation.Overwrite(row.schema, fragments)
        lance.LanceDataset.commit(self.uri("planned"), overwrite, storage_options=self.options)
        return {"all": lambda: len(self.table("planned").get_fragments())}

    def writer(self, name: str) -> Act:
        import lance

        return lambda: lance.write_dataset(
            ROW, self.uri(name), mode="append", storage_options=self.options
        )


LIBRARIES: dict[str, type[Library]] = {
    each.name: each for each in (Inlay, PyArrow, DuckDB, Polars, DeltaLake, PyIceberg, Lance)
}


# -- many writers (contention.py) ------------------------------------------------------------------


def _append_in_turn(
    library: str, endpoint: str, uri: str, seconds: float, start: Barrier, results: Any
) -> None:
    append = LIBRARIES[library](endpoint).writer(uri)
    append()  # imports and connects
    start.wait()
    took, failed, spent, began = [], 0, time.process_time(), time.monotonic()
    while (before := time.monotonic()) - began < seconds:
        try:
            append()
        except Exception:  # of any kind that the library raises when it gives up
            failed += 1
        else:
            took.append(time.monotonic() - before)
    results.put((took, failed, time.process_time() - spent, time.monotonic() - began))


def writers(library: str, endpoint: str, uri: str, number: str, seconds: str) -> None:
    """Processes that append row after row to one table, all begun together. On standard output a line
    when they begin, and one of their times, failures, CPU and how long it was."""
    LIBRARIES[library](endpoint).fill([ROW], uri)
    spawn = multiprocessing.get_context("spawn")  # their threads do not outlive a fork
    start, results = spawn.Barrier(int(number) + 1), spawn.Queue()
    running = [
        spawn.Process(
            target=_append_in_turn, args=(library, endpoint, uri, float(seconds), start, results)
        )
        for _ in range(int(number))
    ]
    for process in running:
        process.start()
    start.wait()
    print("begun", flush=True)
    ended = [results.get() for _ in running]
    for process in running:
        process.join()
    print(json.dumps(ended), flush=True)


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
        self.options = DeltaLake(endpoint).options

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
        self.catalog = PyIceberg(endpoint).catalog()
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


def main(part: str, library: str, endpoint: str, scale: str) -> None:
    server = CountingServer(endpoint=endpoint)
    os.environ.update(server.env())
    given = shapes.Scale(**json.loads(scale))
    steps = shapes.Steps(LIBRARIES[library](endpoint), server, given)
    for case in steps.of(part):
        print(json.dumps(asdict(case)), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--day":
        day(*sys.argv[2:])
    elif sys.argv[1] == "--writers":
        writers(*sys.argv[2:])
    else:
        main(*sys.argv[1:])

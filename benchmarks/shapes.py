"""Tables of unusual shape, a fresh process, and what is left behind: the same for every library.

    python benchmarks/bench.py --shapes                                # Inlay alone
    python benchmarks/bench.py --shapes --peers                        # beside other libraries
    python benchmarks/bench.py --shapes --columns 500 --tiny 100 --orphans 1100 --rows 90000   # small

What `bench.py` and `peers.py` share, so it imports no library: thousands of columns, files of one row,
files of 60,000 rows, many keys deleted and counted under, objects that nothing needs, and processes that
answer one question from their start. Tables are filled without latency; nothing of that is measured.
Requests, bytes and waves are the server's; CPU and wall those of this process, or of the fresh one.
"""

from __future__ import annotations

import sys
import time
import traceback
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from counting_server import CountingServer, Measured

SECTION = "Other shapes"
KEY = ["l_orderkey", "l_linenumber"]
WIDE_ROWS = 1_000
FEW = 10
# Of smaller files: rows, files.
SMALL_ROWS, SMALL_FILES = 120_000, 2
KEYS_EVERY = 60

Act = Callable[[], Any]
# What a library answers: columns, condition, limit, order.
Ask = Callable[[tuple[list[str] | None, str | None, int | None, str | None]], int]
# Writes each piece as a file of a table of this name, and gives what opens it.
By = Callable[[Sequence[pa.Table], str, str], Callable[[], Ask]]


@dataclass(frozen=True)
class Scale:
    """How much of each; `latency_ms` None: nothing."""

    latency_ms: float | None = None
    columns: int = 5_000
    tiny: int = 1_000
    orphans: int = 5_000


def wide_rows(columns: int) -> pa.Table:
    """A key, then integers, doubles, texts and booleans in turn."""
    dice = np.random.default_rng(1)
    made: dict[str, pa.Array] = {"id": pa.array(np.arange(WIDE_ROWS))}
    kinds: tuple[Callable[[], pa.Array], ...] = (
        lambda: pa.array(dice.integers(0, 1_000, WIDE_ROWS)),
        lambda: pa.array(dice.random(WIDE_ROWS)),
        lambda: pa.array([f"s{n}" for n in dice.integers(0, 100, WIDE_ROWS)]),
        lambda: pa.array(dice.integers(0, 2, WIDE_ROWS).astype(bool)),
    )
    for n in range(columns - 1):
        made[f"c{n}"] = kinds[n % len(kinds)]()
    return pa.table(made)


def tiny_rows(files: int) -> list[pa.Table]:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
    return [
        pa.table({"id": [n], "name": [f"n{n}"], "value": [n / 2]}, schema=schema)
        for n in range(files)
    ]


# -- how the others are reached -------------------------------------------------------------------


def polars_options(endpoint: str) -> dict[str, str]:
    return {
        "aws_endpoint_url": endpoint,
        "aws_access_key_id": "bench",
        "aws_secret_access_key": "bench",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }


def delta_options(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "conditional_put": "etag",
    }


def lance_options(endpoint: str) -> dict[str, str]:
    return {
        "aws_endpoint": endpoint,
        "aws_access_key_id": "bench",
        "aws_secret_access_key": "bench",
        "aws_region": "us-east-1",
        "allow_http": "true",
    }


def duckdb_statements(endpoint: str) -> list[str]:
    settings = {
        "s3_endpoint": f"'{endpoint.removeprefix('http://')}'",
        "s3_access_key_id": "'bench'",
        "s3_secret_access_key": "'bench'",
        "s3_region": "'us-east-1'",
        "s3_url_style": "'path'",
        "s3_use_ssl": "false",
    }
    return ["LOAD httpfs", *(f"SET {name}={value}" for name, value in settings.items())]


def duckdb_connection(endpoint: str) -> Any:
    import duckdb

    found = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    try:
        import duckdb_extension_httpfs  # noqa: F401 - brings the extension
        from duckdb_extensions import import_extension

        import_extension("httpfs")
    except ImportError:
        pass
    for statement in duckdb_statements(endpoint):
        found.execute(statement)
    return found


def fresh_programs(library: str, endpoint: str, key: int) -> tuple[str, str] | None:
    """Programs that count a table, and read a row by its key: nothing else is imported."""
    where = f"l_orderkey = {key}"
    programs = {
        "inlay": (
            "import inlay; t = inlay.open('s3://bench/lineitem'); ",
            "t.count()",
            f"t.scan(where='{where}').to_arrow()",
        ),
        "pyarrow": (
            "import pyarrow.dataset as ds; from pyarrow.fs import S3FileSystem; "
            f"fs = S3FileSystem(endpoint_override='{endpoint}', access_key='bench', "
            "secret_key='bench', region='us-east-1'); "
            "t = ds.dataset('bench/pyarrow', filesystem=fs, format='parquet'); ",
            "t.count_rows()",
            f"t.to_table(filter=ds.field('l_orderkey') == {key})",
        ),
        "polars": (
            "import polars as pl; t = pl.scan_parquet('s3://bench/polars/*.parquet', "
            f"storage_options={polars_options(endpoint)}); ",
            "t.select(pl.len()).collect()",
            f"t.filter(pl.col('l_orderkey') == {key}).collect()",
        ),
        "duckdb": (
            "import duckdb; t = duckdb.connect(config={'allow_unsigned_extensions': 'true'}); "
            f"[t.execute(s) for s in {duckdb_statements(endpoint)}]; ",
            "t.execute(\"SELECT count(*) FROM 's3://bench/duckdb/*.parquet'\").fetchall()",
            f"t.execute(\"SELECT * FROM 's3://bench/duckdb/*.parquet' WHERE {where}\").fetchall()",
        ),
        "deltalake": (
            "from deltalake import DeltaTable, QueryBuilder; "
            f"t = DeltaTable('s3://bench/delta', storage_options={delta_options(endpoint)}); "
            "q = QueryBuilder().register('t', t); ",
            "list(q.execute('SELECT count(*) FROM t'))",
            f"list(q.execute('SELECT * FROM t WHERE {where}'))",
        ),
        "lance": (
            "import lance; "
            f"t = lance.dataset('s3://bench/lance', storage_options={lance_options(endpoint)}); ",
            "t.count_rows()",
            f"t.to_table(filter='{where}')",
        ),
    }
    if library not in programs:
        return None
    opened, count, point = programs[library]
    return opened + count, opened + point


# -- what only tables can do ----------------------------------------------------------------------


@dataclass(frozen=True)
class Acts:
    """Of one library: how the rows of some keys are deleted and those left counted; how what nothing needs
    is removed, and where it would lie. `wide` are further acts on a table of that name, by their names."""

    delete: Callable[[str, pa.Table], Any]
    count: Callable[[str], int]
    collect: Callable[[str], Any]
    orphan: str
    wide: Callable[[str, pa.Table], Mapping[str, Act]] = lambda endpoint, rows: {}


def _delta(endpoint: str) -> Any:
    from deltalake import DeltaTable

    return DeltaTable("s3://bench/delta", storage_options=delta_options(endpoint))


def _delta_delete(endpoint: str, keys: pa.Table) -> None:
    on = " AND ".join(f"t.{name} = s.{name}" for name in KEY)
    merge = _delta(endpoint).merge(keys, on, source_alias="s", target_alias="t")
    merge.when_matched_delete().execute()


def _delta_count(endpoint: str) -> int:
    from deltalake import QueryBuilder

    query = QueryBuilder().register("t", _delta(endpoint)).execute("SELECT l_tax FROM t")
    return sum(batch.num_rows for batch in query)


def _delta_collect(endpoint: str) -> None:
    _delta(endpoint).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def _lance(endpoint: str) -> Any:
    import lance

    return lance.dataset("s3://bench/lance", storage_options=lance_options(endpoint))


def _lance_delete(endpoint: str, keys: pa.Table) -> None:
    _lance(endpoint).merge_insert(KEY).when_matched_delete().execute(keys)


def _lance_collect(endpoint: str) -> None:
    _lance(endpoint).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


def _inlay(name: str = "lineitem") -> Any:
    import inlay

    return inlay.open(f"s3://bench/{name}")


def _inlay_wide(endpoint: str, rows: pa.Table) -> Mapping[str, Act]:
    table, few = _inlay("inlay-wide"), rows.slice(0, FEW)
    return {
        f"upsert of {FEW} rows": lambda: table.upsert(few),
        f"upsert of 2 columns of {FEW} rows": lambda: table.upsert(few.select(["id", "c0"])),
        "update of a row": lambda: table.update({"c0": "c0 + 1"}, where="id = 500"),
        "rewrite": lambda: table.maintain.rewrite(),
        "publish": lambda: table.publish(format="v3"),
        "verify": lambda: table.maintain.verify(),
    }


INLAY_ACTS = Acts(
    delete=lambda endpoint, keys: _inlay().delete(keys=keys),
    count=lambda endpoint: int(_inlay().count()),
    collect=lambda endpoint: _inlay().maintain.collect_garbage(
        grace=timedelta(0), clock_margin_seconds=0
    ),
    orphan="lineitem/data/2020/01/01/00/{}.parquet",
    wide=_inlay_wide,
)
PEER_ACTS = {
    "deltalake": Acts(_delta_delete, _delta_count, _delta_collect, "delta/part-00000-{}.parquet"),
    "lance": Acts(
        _lance_delete,
        lambda at: int(_lance(at).count_rows()),
        _lance_collect,
        "lance/data/{}.lance",
    ),
}


# -- what is measured -----------------------------------------------------------------------------


@dataclass
class Shapes:
    """What one library is asked besides queries; its table of `data` is there. What it cannot do, or what
    fails, is left out, and said on standard error."""

    library: str
    server: CountingServer
    scale: Scale
    data: pa.Table
    acts: Acts | None
    by: By

    def measured(self) -> Iterator[tuple[str, Measured]]:
        for step in (self.fresh, self.small, self.tiny, self.wide, self.keys, self.orphans):
            try:
                yield from step()
            except Exception:
                print(self.library, step.__name__, file=sys.stderr)
                traceback.print_exc(limit=1)
            self.server.set_latency(self.scale.latency_ms or 0)

    def fresh(self) -> Iterator[tuple[str, Measured]]:
        key = self.data["l_orderkey"][self.data.num_rows // 2].as_py()
        programs = fresh_programs(self.library, self.server.endpoint, key)
        for name, program in zip(("count", "point by key"), programs or (), strict=False):
            self.server.measure_process(program)  # compiles it
            yield f"{name}, fresh process", self.server.measure_process(program)

    def small(self) -> Iterator[tuple[str, Measured]]:
        rows = self.data.slice(0, SMALL_ROWS)
        step = -(-rows.num_rows // SMALL_FILES)
        opened = self.filled([rows.slice(n * step, step) for n in range(SMALL_FILES)], "small")
        key = rows["l_orderkey"][min(rows.num_rows - 1, rows.num_rows * 3 // 4 + 1_000)].as_py()
        where = f"l_orderkey = {key}"
        yield (
            f"point by key, {step:,} rows a file",
            self.server.measure(lambda: opened()((None, where, None, None))),
        )

    def tiny(self) -> Iterator[tuple[str, Measured]]:
        opened = self.filled(tiny_rows(self.scale.tiny), "tiny")
        scan = self.server.measure(lambda: opened()((None, None, None, None)))
        yield f"{self.scale.tiny:,} files of a row, scanned", scan

    def wide(self) -> Iterator[tuple[str, Measured]]:
        rows, of = wide_rows(self.scale.columns), f"{self.scale.columns:,} columns"
        opened: list[Callable[[], Ask]] = []
        yield (
            f"{of}: created with {WIDE_ROWS:,} rows",
            self.server.measure(
                lambda: opened.append(self.by([rows], self.server.endpoint, f"{self.library}-wide"))
            ),
        )
        scan = self.server.measure(lambda: opened[0]()((None, None, None, None)))
        yield f"{of}: scanned", scan
        more = {} if self.acts is None else self.acts.wide(self.server.endpoint, rows)
        for name, act in more.items():
            yield f"{of}: {name}", self.server.measure(act)

    def keys(self) -> Iterator[tuple[str, Measured]]:
        if self.acts is None:
            return
        acts, at = self.acts, self.server.endpoint
        keys = self.data.select(KEY).take(pa.array(range(0, self.data.num_rows, KEYS_EVERY)))
        yield (
            f"delete of one key in {KEYS_EVERY}",
            self.server.measure(lambda: acts.delete(at, keys)),
        )
        yield "count under these deletes", self.server.measure(lambda: acts.count(at))

    def orphans(self) -> Iterator[tuple[str, Measured]]:
        if self.acts is None:
            return
        acts, at = self.acts, self.server.endpoint
        self.server.set_latency(0)

        def put(key: str) -> None:
            url = f"{at}/bench/{acts.orphan.format(key)}"
            with urllib.request.urlopen(urllib.request.Request(url, b"orphan", method="PUT")):
                pass

        with ThreadPoolExecutor(8) as workers:
            list(workers.map(put, (str(uuid.uuid4()) for _ in range(self.scale.orphans))))
        time.sleep(
            1
        )  # the store's times are whole seconds, and what is of this one may still be written
        self.server.set_latency(self.scale.latency_ms or 0)
        used = self.server.measure(lambda: acts.collect(at))
        yield f"{self.scale.orphans:,} orphans collected", used

    def filled(self, pieces: Sequence[pa.Table], name: str) -> Callable[[], Ask]:
        self.server.set_latency(0)
        opened = self.by(pieces, self.server.endpoint, f"{self.library}-{name}")
        self.server.set_latency(self.scale.latency_ms or 0)
        return opened

"""DuckDB, Polars, pandas and pyarrow read what a query needs, counted at the server; deletes are exact."""

from __future__ import annotations

import math
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache, reduce
from operator import and_, or_
from pathlib import Path

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidRequest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from counting_server import CountingServer  # noqa: E402

# The shape of nycflights13's flights: as many rows and columns, by month.
ROWS = 336_776
DELETED = "distance = 100"
# What comes with a footer under a filter and not without one: the page index of a file.
PAGE_INDEX = 5_000


def flights() -> pa.Table:
    draw = np.random.default_rng(7)
    day = np.sort(draw.integers(0, 365, ROWS))
    dates = np.datetime64("2013-01-01") + day.astype("timedelta64[D]")
    months = dates.astype("datetime64[M]")
    hour, minute = draw.integers(5, 24, ROWS), draw.integers(0, 60, ROWS)
    delay = np.round(draw.normal(10, 40, ROWS))
    cancelled = draw.random(ROWS) < 0.025
    airports = np.array([f"{chr(65 + n % 26)}{chr(65 + n * 7 % 26)}{n % 10}" for n in range(105)])
    return pa.table(
        {
            "id": np.arange(ROWS),
            "year": np.full(ROWS, 2013, np.int32),
            "month": ((months - np.datetime64("2013-01", "M")).astype(int) + 1).astype(np.int32),
            "day": ((dates - months).astype(int) + 1).astype(np.int32),
            "dep_time": pa.array(hour * 100 + minute, mask=cancelled),
            "sched_dep_time": hour * 100,
            "dep_delay": pa.array(delay, mask=cancelled),
            "arr_time": pa.array((hour + 3) % 24 * 100 + minute, mask=cancelled),
            "sched_arr_time": (hour + 3) % 24 * 100,
            "arr_delay": pa.array(delay + np.round(draw.normal(0, 10, ROWS)), mask=cancelled),
            "carrier": np.array(["UA", "AA", "B6", "DL", "EV", "MQ"])[draw.integers(0, 6, ROWS)],
            "flight": draw.integers(1, 8500, ROWS),
            "tailnum": [f"N{n}" for n in draw.integers(100, 4100, ROWS)],
            "origin": np.array(["EWR", "JFK", "LGA"])[draw.integers(0, 3, ROWS)],
            "dest": airports[draw.integers(0, 105, ROWS)],
            "air_time": pa.array(draw.integers(20, 690, ROWS), mask=cancelled),
            "distance": draw.integers(80, 4983, ROWS),
            "hour": hour,
            "minute": minute,
            "time_hour": pa.array(
                dates.astype("datetime64[us]") + hour.astype("timedelta64[h]"),
                pa.timestamp("us", "UTC"),
            ),
        }
    )


@dataclass
class Served:
    """The table on an S3 server that counts what it sends, and its rows in memory."""

    server: CountingServer
    uri: str
    rows: pa.Table

    def bytes_of(self, query: Callable[[inlay.Table], object]) -> tuple[object, int]:
        """The answer of a query to a table that has just been opened, and the bytes sent for it."""
        t = inlay.open(self.uri)
        self.server.clear()
        found = query(t)
        return found, self.server.usage().bytes_down


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch, CountingServer() as server:
        for name, value in server.env().items():
            patch.setenv(name, value)
        rows = flights()
        t = inlay.create(
            "s3://engines/flights", rows.schema, partition_by="month", primary_key="id"
        )
        t.append(rows)
        t.delete(DELETED)
        yield Served(server, "s3://engines/flights", rows.filter(pc.field("distance") != 100))


@dataclass
class Query:
    """One question in each engine's words. `scan` reads the columns that an engine requests, and no more
    rows than the question is about: what it costs is what the others may cost."""

    scan: Callable[[inlay.Table], object]
    sql: str
    frame: Callable[[pl.LazyFrame], pl.LazyFrame]
    dataset: Callable[[ds.Dataset], pa.Table] | None = None
    files: int = 1


MARCH = (datetime(2013, 3, 1, tzinfo=UTC), datetime(2013, 3, 3, tzinfo=UTC))
KEYS = [200_000, 200_001, 200_003]
QUERIES = {
    "the sum of a month": Query(
        lambda t: t.scan(columns=["distance"], where="month = 2").to_arrow(),
        "SELECT sum(distance) FROM d WHERE month = 2",
        lambda f: f.filter(pl.col("month") == 2).select(pl.col("distance").sum()),
        lambda d: (
            d.to_table(columns=["distance"], filter=pc.field("month") == 2)
            .group_by([])
            .aggregate([("distance", "sum")])
        ),
    ),
    "the count": Query(
        # DuckDB and Polars count the rows of the first column.
        lambda t: t.scan(columns=["id"]).to_arrow(),
        "SELECT count(*) FROM d",
        lambda f: f.select(pl.len()),
        lambda d: pa.table({"n": [d.count_rows()]}),
        files=12,
    ),
    "the count of a month": Query(
        lambda t: t.scan(columns=["id", "month"], where="month = 2").to_arrow(),
        "SELECT count(*) FROM d WHERE month = 2",
        lambda f: f.filter(month=2).select(pl.len()),
        lambda d: pa.table({"n": [d.count_rows(filter=pc.field("month") == 2)]}),
    ),
    "two columns": Query(
        lambda t: t.scan(columns=["origin", "dest"]).to_arrow(),
        "SELECT origin, dest FROM d",
        lambda f: f.select("origin", "dest"),
        lambda d: d.to_table(columns=["origin", "dest"]),
        files=12,
    ),
    "a row by its key": Query(
        lambda t: t.scan(where="id = 200000").to_arrow(),
        "SELECT * FROM d WHERE id = 200000",
        lambda f: f.filter(pl.col("id") == 200_000),
        lambda d: d.to_table(filter=pc.field("id") == 200_000),
    ),
    "rows by their keys": Query(
        lambda t: t.scan(where="id IN (200000, 200001, 200003)").to_arrow(),
        "SELECT * FROM d WHERE id IN (200000, 200001, 200003)",
        lambda f: f.filter(pl.col("id").is_in(KEYS)),
        lambda d: d.to_table(filter=pc.field("id").isin(KEYS)),
    ),
    "a range of keys": Query(
        lambda t: t.scan(columns=["dest"], where="id BETWEEN 1000 AND 1999").to_arrow(),
        "SELECT dest FROM d WHERE id BETWEEN 1000 AND 1999",
        lambda f: f.filter(pl.col("id").is_between(1000, 1999)).select("dest"),
        lambda d: d.to_table(
            columns=["dest"], filter=(pc.field("id") >= 1000) & (pc.field("id") < 2000)
        ),
    ),
    "keys below a fraction": Query(
        lambda t: t.scan(columns=["dest"], where="id < 999.5").to_arrow(),
        "SELECT dest FROM d WHERE id <= 999",
        lambda f: f.filter(pl.col("id") < 999.5).select("dest"),
    ),
    "two days": Query(
        lambda t: t.scan(
            columns=["distance"],
            where="time_hour >= TIMESTAMP '2013-03-01 00:00:00Z'"
            " AND time_hour < TIMESTAMP '2013-03-03 00:00:00Z'",
        ).to_arrow(),
        "SELECT distance FROM d WHERE time_hour >= TIMESTAMPTZ '2013-03-01 00:00:00Z'"
        " AND time_hour < TIMESTAMPTZ '2013-03-03 00:00:00Z'",
        lambda f: f.filter(
            (pl.col("time_hour") >= MARCH[0]) & (pl.col("time_hour") < MARCH[1])
        ).select("distance"),
        lambda d: d.to_table(
            columns=["distance"],
            filter=(pc.field("time_hour") >= MARCH[0]) & (pc.field("time_hour") < MARCH[1]),
        ),
        files=12,
    ),
    "what has not left in a month": Query(
        lambda t: t.scan(columns=["id"], where="dep_time IS NULL AND month = 1").to_arrow(),
        "SELECT id FROM d WHERE dep_time IS NULL AND month = 1",
        lambda f: f.filter(pl.col("dep_time").is_null(), pl.col("month") == 1).select("id"),
        lambda d: d.to_table(
            columns=["id"], filter=pc.field("dep_time").is_null() & (pc.field("month") == 1)
        ),
    ),
    "the ten last": Query(
        # Neither engine passes an order on: they read the columns of every row.
        lambda t: t.scan(columns=["id", "time_hour"]).to_arrow(),
        "SELECT id, time_hour FROM d ORDER BY id DESC LIMIT 10",
        lambda f: f.select("id", "time_hour").sort("id", descending=True).head(10),
        files=12,
    ),
}


def by_duckdb(t: inlay.Table, sql: str) -> list[tuple[object, ...]]:
    return duckdb.connect().register("d", t.to_dataset()).sql(sql).fetchall()


def by_datafusion(t: inlay.Table, sql: str) -> list[tuple[object, ...]]:
    context = datafusion.SessionContext()
    context.register_dataset("d", t.to_dataset())
    return [tuple(row.values()) for row in context.sql(sql).to_pylist()]


def in_order(rows: Iterable[tuple[object, ...]]) -> list[str]:
    """With instants in one spelling: each engine has its own class of time zones."""

    def plain(value: object) -> object:
        return value.astimezone(UTC) if isinstance(value, datetime) else value

    return sorted(repr(tuple(map(plain, row))) for row in rows)


@pytest.mark.parametrize("name", QUERIES)
def test_engines_read_what_a_scan_reads(served: Served, name: str) -> None:
    asked = QUERIES[name]
    wanted = in_order(duckdb.connect().register("d", served.rows).sql(asked.sql).fetchall())
    scanned = served.bytes_of(asked.scan)[1]
    most = 1.05 * scanned + asked.files * PAGE_INDEX
    answers: dict[str, Callable[[inlay.Table], Iterable[tuple[object, ...]]]] = {
        "duckdb": lambda t: by_duckdb(t, asked.sql),
        "polars": lambda t: asked.frame(t.to_lazy()).collect().rows(),
        "datafusion": lambda t: by_datafusion(t, asked.sql),
    }
    if asked.dataset is not None:
        to_table = asked.dataset
        answers["dataset"] = lambda t: pl.from_arrow(to_table(t.to_dataset())).rows()  # type: ignore[union-attr]
    for engine, answer in answers.items():
        found, read = served.bytes_of(answer)
        assert in_order(found) == wanted, engine  # type: ignore[arg-type]
        assert read <= most, (engine, read, scanned)


def test_a_limit_reads_one_file(served: Served) -> None:
    one, scanned = served.bytes_of(lambda t: t.scan(limit=1).to_arrow().num_rows)
    assert one == 1
    answers: dict[str, Callable[[inlay.Table], int]] = {
        "duckdb": lambda t: len(by_duckdb(t, "SELECT * FROM d LIMIT 1")),
        "polars": lambda t: t.to_lazy().head(1).collect().height,
        "dataset": lambda t: t.to_dataset().head(1).num_rows,
    }
    for engine, answer in answers.items():
        found, read = served.bytes_of(answer)
        assert found == 1
        assert read <= 1.1 * scanned, engine  # one takes more rows at a time than the scan
    some, scanned = served.bytes_of(lambda t: t.scan(columns=["dest"], limit=5).to_arrow().num_rows)
    assert some == 5
    sql = "SELECT dest FROM d LIMIT 5"
    found, read = served.bytes_of(lambda t: len(by_duckdb(t, sql)))
    assert found == 5
    assert read <= 1.05 * scanned


def test_the_tables_own_ways_read_less(served: Served) -> None:
    """What docs/TOOLS.md sends a reader to, where an engine does not pass on what it is asked."""
    last, own = served.bytes_of(
        lambda t: t.scan(columns=["id", "time_hour"], order_by="id DESC", limit=10).to_arrow()
    )
    assert last["id"].to_pylist() == served.rows["id"].to_pylist()[:-11:-1]  # type: ignore[index]
    sql = QUERIES["the ten last"].sql
    assert own < served.bytes_of(lambda t: by_duckdb(t, sql))[1] / 8
    count, own = served.bytes_of(lambda t: t.count())
    assert count == served.rows.num_rows
    # The condition of the delete looks at one column.
    assert own <= served.bytes_of(lambda t: t.scan(columns=["distance"]).to_arrow())[1]


def test_a_frame_of_pandas_costs_its_scan(served: Served) -> None:
    pytest.importorskip("pandas")
    where = "month = 2"
    scanned = served.bytes_of(lambda t: t.scan(columns=["distance"], where=where).to_arrow())[1]
    found, read = served.bytes_of(
        lambda t: t.scan(columns=["distance"], where=where).to_pandas()["distance"].sum()
    )
    assert (
        found
        == duckdb.connect()
        .register("d", served.rows)
        .sql(QUERIES["the sum of a month"].sql)
        .fetchall()[0][0]
    )
    assert read == scanned


@pytest.fixture(scope="module")
def table() -> inlay.Table:
    """A small one, for what is not counted."""
    rows = flights().slice(0, 60_000).select(["id", "month", "distance", "tailnum"])
    t = inlay.create(f"memory://engines/{uuid.uuid4().hex}", rows.schema, partition_by="month")
    t.append(rows)
    t.delete(DELETED)
    return t


def test_what_a_dataset_cannot_say_is_refused(table: inlay.Table) -> None:
    d = table.to_dataset()
    with pytest.raises(InvalidRequest):
        d.to_table(columns={"x": pc.field("month")})
    assert d.count_rows() == table.count()
    assert d.filter(pc.field("month") == 2).count_rows() == table.count(where="month = 2")
    assert d.head(3).num_rows == 3
    assert d.to_table(columns=["tailnum"], filter=pc.field("month") > 1).num_rows == table.count(
        where="month > 1"
    )


VALUES = {
    "i": st.none() | st.integers(-3, 3),
    "x": st.none() | st.sampled_from([math.nan, -1.5, 0.0, 2.0, math.inf]),
    "s": st.none() | st.sampled_from(["", "a", "b", "ab"]),
    "d": st.none() | st.sampled_from([date(2013, 1, n) for n in (1, 2, 3)]),
    "b": st.none() | st.booleans(),
    "z": st.none() | st.sampled_from([datetime(2013, 1, 1, n, tzinfo=UTC) for n in (1, 2, 3)]),
    "k": st.none() | st.sampled_from([0, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]),
}
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("b", pa.bool_()),
        ("z", pa.timestamp("us", "UTC")),
        ("k", pa.int64()),
    ]
)


@cache
def atoms() -> list[tuple[str, pl.Expr]]:
    """Not at import: Polars starts its threads for some of them."""
    return [
        ("i > 1", pl.col("i") > 1),
        ("i = -2", pl.col("i") == -2),
        ("i <> 0", pl.col("i") != 0),
        ("x > 1", pl.col("x") > 1),
        ("x <= 2.0", pl.col("x") <= 2.0),
        ("x = 2.0", pl.col("x") == 2.0),
        ("s >= 'ab'", pl.col("s") >= "ab"),
        ("s = ''", pl.col("s") == ""),
        ("d < DATE '2013-01-02'", pl.col("d") < date(2013, 1, 2)),
        ("b", pl.col("b")),
        ("i IS NULL", pl.col("i").is_null()),
        ("s LIKE 'a%'", pl.col("s").str.starts_with("a")),
        ("s LIKE '%\\_b'", pl.col("s").str.starts_with("%_\\")),
        ("i IN (1, 2)", pl.col("i").is_in([1, 2])),
        ("i IN (1, NULL)", pl.col("i").is_in([1, None])),
        ("i NOT IN (1, 2)", ~pl.col("i").is_in([1, 2])),
        ("i IS NULL OR i = 1", pl.col("i").is_in([1, None], nulls_equal=True)),
        ("i IN (NULL)", pl.col("i").is_in([])),
        ("x IN (2, 0)", pl.col("x").is_in([2.0, -0.0, math.nan])),
        ("s IN ('a', '')", pl.col("s").is_in(["a", ""])),
        ("d IN (DATE '2013-01-02')", pl.col("d").is_in([date(2013, 1, 2)])),
        ("i BETWEEN -1 AND 1", pl.col("i").is_between(-1, 1)),
        ("x BETWEEN 0 AND 2", pl.col("x").is_between(0, 2, closed="none")),
        ("s BETWEEN 'a' AND 'b'", pl.col("s").is_between(pl.lit("a"), pl.lit("b"), closed="left")),
        ("s IS NOT NULL", pl.col("s").is_not_null()),
        ("i < 1.5", pl.col("i") < 1.5),
        ("i <> 1.5", pl.col("i") != 1.5),
        ("k >= 9007199254740992", pl.col("k") >= 2.0**53),
        ("k > 9007199254740991", pl.col("k") > 2.0**53 - 1),
        ("k = 9007199254740993", pl.col("k") == 2**53 + 1),
        ("k IN (0, 9007199254740992)", pl.col("k").is_in([0, 2**53])),
        (
            "z > TIMESTAMPTZ '2013-01-01 02:00:00Z'",
            pl.col("z") > datetime(2013, 1, 1, 2, tzinfo=UTC),
        ),
        (
            "z = TIMESTAMPTZ '2013-01-01 02:00:00Z'",
            pl.col("z").is_in([datetime(2013, 1, 1, 2, tzinfo=UTC)]),
        ),
        ("d >= DATE '2013-01-02'", pl.col("d") >= datetime(2013, 1, 1, 12)),
        ("NOT b", ~pl.col("b")),
    ]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=4), min_size=1, max_size=4
    ),
    st.lists(st.deferred(lambda: st.sampled_from(atoms())), min_size=1, max_size=3),
    st.sampled_from(["AND", "OR"]),
    st.sampled_from(["i = 1", "x > 1", "s IS NULL"]),
)
def test_queries_have_the_rows_of_an_ordinary_table(files, chosen, joined, gone) -> None:
    t = inlay.create(f"memory://engines/{uuid.uuid4().hex}", SCHEMA)
    for rows in files:
        t.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    t.delete(gone)
    plain = t.scan().to_arrow()
    ask = duckdb.connect().register("d", t.to_dataset()).register("plain", plain).sql
    where = f" {joined} ".join(f"({text})" for text, _ in chosen)
    query = "SELECT i, x FROM {} WHERE " + where
    found = ask(query.format("d")).fetchall()
    assert sorted(map(repr, found)) == sorted(map(repr, ask(query.format("plain")).fetchall()))
    joining = and_ if joined == "AND" else or_
    predicate = reduce(joining, (expression for _, expression in chosen))
    frame = pl.from_arrow(plain)
    lazy = t.to_lazy().filter(predicate).select("i", "x").collect()
    assert sorted(map(repr, lazy.rows())) == sorted(
        map(repr, frame.filter(predicate).select("i", "x").rows())
    )

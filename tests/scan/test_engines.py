"""DuckDB and Polars read what a query needs, with deletes applied exactly."""

from __future__ import annotations

import math
import uuid
from datetime import date

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidRequest

ROWS = 20_000


def flights() -> inlay.Table:
    rows = range(12 * ROWS)
    schema = pa.schema(
        [
            ("month", pa.int32()),
            ("distance", pa.int64()),
            ("tail", pa.string()),
            ("note", pa.string()),
        ]
    )
    t = inlay.create(f"memory://engines/{uuid.uuid4().hex}", schema, partition_by="month")
    t.append(
        pa.table(
            {
                "month": pa.array([n // ROWS + 1 for n in rows], pa.int32()),
                "distance": [n % 997 for n in rows],
                "tail": [f"N{n * 7919 % 99991}" for n in rows],
                "note": [f"{n * 104729 % 1000003:x}" * 3 for n in rows],
            }
        )
    )
    t.delete("distance = 5")
    return t


def cost(t: inlay.Table, query: object) -> tuple[object, int]:
    before = t.usage
    found = query()  # type: ignore[operator]
    return found, (t.usage - before).bytes_down


@pytest.fixture(scope="module")
def table() -> inlay.Table:
    return flights()


def expected(t: inlay.Table) -> tuple[int, int]:
    by_scan, bytes_down = cost(
        t,
        lambda: pc.sum(
            t.scan(columns=["distance"], where="month = 2").to_arrow()["distance"]
        ).as_py(),
    )
    return by_scan, bytes_down  # type: ignore[return-value]


def test_duckdb_reads_as_little_as_a_scan(table: inlay.Table) -> None:
    wanted, scanned = expected(table)
    whole = cost(table, lambda: table.scan().to_arrow())[1]
    ask = duckdb.connect().register("d", table.to_dataset()).sql
    found, read = cost(table, lambda: ask("SELECT sum(distance) FROM d WHERE month = 2").fetchall())
    assert found == [(wanted,)]
    # The month's own column as well, which is in the file beside the other.
    assert read <= 1.5 * scanned + 10_000
    assert read < whole / 10
    found, read = cost(table, lambda: ask("SELECT * FROM d LIMIT 1").fetchall())
    assert len(found) == 1  # type: ignore[arg-type]
    assert read < whole / 2
    found, read = cost(table, lambda: ask("SELECT count(*) FROM d").fetchall())
    assert found == [(table.count(),)]
    assert read < whole / 4  # the columns that the delete and the count look at


def test_polars_reads_as_little_as_a_scan(table: inlay.Table) -> None:
    wanted, scanned = expected(table)
    whole = cost(table, lambda: table.scan().to_arrow())[1]
    lazy = table.to_lazy()
    query = lazy.filter(pl.col("month") == 2).select(pl.col("distance").sum())
    found, read = cost(table, lambda: query.collect().item())
    assert found == wanted
    assert read <= 1.5 * scanned + 10_000
    found, read = cost(table, lambda: lazy.head(1).collect().height)
    assert found == 1
    assert read < whole / 2
    found, read = cost(table, lambda: lazy.select(pl.len()).collect().item())
    assert found == table.count()
    assert lazy.collect().height == table.count()


def test_what_a_dataset_cannot_say_is_refused(table: inlay.Table) -> None:
    d = table.to_dataset()
    with pytest.raises(InvalidRequest):
        list(d.get_fragments())
    with pytest.raises(InvalidRequest):
        d.to_table(columns={"x": pc.field("month")})
    assert d.count_rows() == table.count()
    assert d.filter(pc.field("month") == 2).count_rows() == table.count(where="month = 2")
    assert d.head(3).num_rows == 3
    assert d.to_table(columns=["tail"], filter=pc.field("month") > 11).num_rows == table.count(
        where="month > 11"
    )


VALUES = {
    "i": st.none() | st.integers(-3, 3),
    "x": st.none() | st.sampled_from([math.nan, -1.5, 0.0, 2.0, math.inf]),
    "s": st.none() | st.sampled_from(["", "a", "b", "ab"]),
    "d": st.none() | st.sampled_from([date(2013, 1, n) for n in (1, 2, 3)]),
    "b": st.none() | st.booleans(),
}
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("b", pa.bool_()),
    ]
)
ATOMS = [
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
]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=4), min_size=1, max_size=4
    ),
    st.lists(st.sampled_from(range(len(ATOMS))), min_size=1, max_size=3),
    st.sampled_from(["AND", "OR"]),
    st.sampled_from(["i = 1", "x > 1", "s IS NULL"]),
)
def test_queries_have_the_rows_of_an_ordinary_table(files, atoms, joined, gone) -> None:
    t = inlay.create(f"memory://engines/{uuid.uuid4().hex}", SCHEMA)
    for rows in files:
        t.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    t.delete(gone)
    plain = t.scan().to_arrow()
    ask = duckdb.connect().register("d", t.to_dataset()).register("plain", plain).sql
    where = f" {joined} ".join(f"({ATOMS[n][0]})" for n in atoms)
    query = "SELECT i, x FROM {} WHERE " + where
    found = ask(query.format("d")).fetchall()
    assert sorted(map(repr, found)) == sorted(map(repr, ask(query.format("plain")).fetchall()))
    predicate = ATOMS[atoms[0]][1]
    for n in atoms[1:]:
        predicate = predicate & ATOMS[n][1] if joined == "AND" else predicate | ATOMS[n][1]
    frame = pl.from_arrow(plain)
    lazy = t.to_lazy().filter(predicate).select("i", "x").collect()
    assert sorted(map(repr, lazy.rows())) == sorted(
        map(repr, frame.filter(predicate).select("i", "x").rows())
    )

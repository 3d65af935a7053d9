"""`inlay.spark.sql`: a notebook against DuckDB, random MERGEs against plain Python, and what is refused."""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as f
from tests.tiers import in_short

import inlay
from inlay.errors import (
    InlayError,
    InvalidRequest,
    RefNotFound,
    SchemaMismatch,
    TableNotFound,
    VersionNotFound,
)
from inlay.spark import sql, view
from inlay.spark.refusals import COMMANDS, WORDS

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

PEOPLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("amount", pa.float64()),
        pa.field("day", pa.date32()),
    ]
)


def people(start: int, number: int) -> pa.Table:
    ids = range(start, start + number)
    return pa.table(
        {
            "id": ids,
            "name": [None if n % 7 == 0 else f"name {n % 5}" for n in ids],
            "amount": [None if n % 11 == 0 else n / 4 for n in ids],
            "day": [datetime.date(2026, 1, 1 + n % 3) for n in ids],
        },
        schema=PEOPLE,
    )


def changes() -> pa.Table:
    ids = [*range(30, 50), None]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [None if n % 4 == 0 else f"new {n}" for n in range(21)],
            "amount": [float(n) for n in range(21)],
            "day": [datetime.date(2026, 2, 1 + n % 2) for n in range(21)],
            "op": ["D" if n % 3 == 0 else None if n % 5 == 0 else "U" for n in range(21)],
        }
    )


@pytest.fixture
def table(spark: Any, new_table: NewTable) -> Iterator[inlay.Table]:
    """Forty people, named `people`, and `changes`, a view of the session."""
    yield from named(spark, new_table(PEOPLE, primary_key="id"))


@pytest.fixture
def by_day(spark: Any, new_table: NewTable) -> Iterator[inlay.Table]:
    """The same in partitions."""
    yield from named(spark, new_table(PEOPLE, primary_key="id", partition_by="day"))


def named(spark: Any, table: inlay.Table) -> Iterator[inlay.Table]:
    table.append(people(0, 25))
    table.append(people(25, 15))
    view(spark, "people", table.uri)
    spark.createDataFrame(changes()).createOrReplaceTempView("changes")
    yield table
    for name in ("people", "changes"):
        spark.catalog.dropTempView(name)


def content(table: inlay.Table) -> list[Any]:
    found = table.refresh().scan().to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


class Judge:
    """DuckDB with the same rows."""

    def __init__(self, table: inlay.Table) -> None:
        self._duckdb = duckdb.connect()
        self._duckdb.register("before", table.refresh().scan().to_arrow())
        self._duckdb.register("changed", changes())
        self._duckdb.execute("CREATE TABLE people AS FROM before")
        self._duckdb.execute("CREATE TABLE changes AS FROM changed")

    def run(self, statement: str) -> None:
        self._duckdb.execute(statement)

    def rows(self) -> list[Any]:
        return sorted(self._duckdb.sql("FROM people").fetchall(), key=repr)


# Each is what a user of Delta or Iceberg types; where DuckDB's spelling differs, that follows.
NOTEBOOK: list[tuple[str, str] | str] = [
    "INSERT INTO people VALUES (100, 'a', 1.5, DATE '2026-03-01'), (101, NULL, NULL, NULL)",
    ("INSERT INTO people VALUES (102, DEFAULT, 2, DATE '2026-03-01')",
     "INSERT INTO people VALUES (102, NULL, 2, DATE '2026-03-01')"),
    "INSERT INTO people (id, name) VALUES (103, 'two columns')",
    ("INSERT INTO people (day, id) SELECT day, id + 200 FROM changes WHERE id IS NOT NULL", ""),
    ("INSERT INTO people BY NAME SELECT 'by name' AS name, 300 AS id",
     "INSERT INTO people BY NAME SELECT 'by name' AS name, 300 AS id"),
    ("INSERT INTO people TABLE people_more", "INSERT INTO people FROM people_more"),
    ("WITH c AS (SELECT * FROM changes WHERE op = 'U') INSERT INTO people "
     "SELECT id + 400, name, amount, day FROM c",
     "INSERT INTO people SELECT id + 400, name, amount, day FROM changes WHERE op = 'U'"),
    ("INSERT INTO people PARTITION (day = '2026-04-01') SELECT id + 500, name, amount FROM changes "
     "WHERE op = 'D'",
     "INSERT INTO people SELECT id + 500, name, amount, DATE '2026-04-01' FROM changes WHERE op = 'D'"),
    "UPDATE people SET name = upper(name) WHERE id % 3 = 0",
    "UPDATE people SET amount = amount + 1, name = 'x' || name WHERE amount > 5 AND name <> 'NAME 1'",
    ("UPDATE people AS p SET p.name = 'aliased' WHERE p.id = 7",
     "UPDATE people SET name = 'aliased' WHERE id = 7"),
    "UPDATE people SET amount = (SELECT max(amount) FROM changes) WHERE id < 3",
    "UPDATE people SET amount = (SELECT max(c.amount) FROM changes c WHERE c.id = people.id) "
    "WHERE id >= 30",
    "UPDATE people SET name = 'listed' WHERE id IN (SELECT id FROM changes WHERE op = 'D')",
    "UPDATE people SET name = 'not listed' WHERE id NOT IN (SELECT id FROM changes WHERE id IS NOT NULL)",
    "UPDATE people SET name = 'never' WHERE id NOT IN (SELECT id FROM changes)",
    "UPDATE people SET name = 'there' WHERE EXISTS (SELECT 1 FROM changes c WHERE c.id = people.id)",
    ("UPDATE people SET name = DEFAULT, amount = DEFAULT WHERE id = 12",
     "UPDATE people SET name = NULL, amount = NULL WHERE id = 12"),
    "UPDATE people SET amount = id",
    "UPDATE people SET day = DATE '2026-05-01' WHERE amount IS NULL",
    ("UPDATE people SET amount = CASE WHEN id > 10 THEN NULL ELSE -amount END WHERE name IS NOT NULL "
     "OR name <=> NULL",
     "UPDATE people SET amount = CASE WHEN id > 10 THEN NULL ELSE -amount END"),
    "DELETE FROM people WHERE id = 4",
    "DELETE FROM people WHERE name = 'name 1' OR amount < 1",
    "DELETE FROM people WHERE day = DATE '2026-01-02'",
    "DELETE FROM people WHERE id IN (SELECT id FROM changes WHERE op IS NULL)",
    "DELETE FROM people WHERE NOT EXISTS (SELECT 1 FROM changes c WHERE c.id = people.id) AND id > 20",
    "DELETE FROM people WHERE amount > (SELECT avg(amount) FROM people)",
    ("DELETE FROM people p WHERE p.id BETWEEN 2 AND 9", "DELETE FROM people WHERE id BETWEEN 2 AND 9"),
    ("WITH c AS (SELECT id FROM changes WHERE op = 'D') DELETE FROM people WHERE id IN (FROM c)",
     "DELETE FROM people WHERE id IN (SELECT id FROM changes WHERE op = 'D')"),
    "DELETE FROM people WHERE CAST(NULL AS BOOLEAN)",
    "DELETE FROM people",
    ("TRUNCATE TABLE people", "DELETE FROM people"),
    ("MERGE INTO people t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
     "WHEN NOT MATCHED AND s.id IS NOT NULL THEN INSERT *",
     "MERGE INTO people t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name, "
     "amount = s.amount, day = s.day WHEN NOT MATCHED AND s.id IS NOT NULL THEN INSERT "
     "(id, name, amount, day) VALUES (s.id, s.name, s.amount, s.day)"),
    "MERGE INTO people t USING changes s ON t.id = s.id WHEN MATCHED AND s.op = 'D' THEN DELETE "
    "WHEN MATCHED AND s.amount > 5 THEN UPDATE SET amount = t.amount + s.amount, name = s.op "
    "WHEN NOT MATCHED AND s.op = 'U' THEN INSERT (id, amount) VALUES (s.id, -s.amount)",
    ("MERGE INTO people USING changes ON people.id = changes.id WHEN MATCHED THEN UPDATE SET name = 'm' "
     "WHEN NOT MATCHED AND id > 45 THEN INSERT (id, name) VALUES (id, concat(name, op))",
     "MERGE INTO people USING changes ON people.id = changes.id WHEN MATCHED THEN UPDATE SET name = 'm' "
     "WHEN NOT MATCHED AND changes.id > 45 THEN INSERT (id, name) VALUES (changes.id, changes.name || "
     "changes.op)"),
    "MERGE INTO people t USING (SELECT id, max(amount) m FROM changes GROUP BY id) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET amount = s.m WHEN NOT MATCHED BY SOURCE AND t.id < 5 THEN DELETE "
    "WHEN NOT MATCHED BY SOURCE AND t.day = DATE '2026-01-01' THEN UPDATE SET name = 'gone'",
    ("WITH c AS (SELECT * FROM changes WHERE op = 'D') MERGE INTO people t USING c ON t.id = c.id "
     "WHEN MATCHED THEN DELETE",
     "DELETE FROM people WHERE id IN (SELECT id FROM changes WHERE op = 'D')"),
    "MERGE INTO people t USING people s ON t.id = s.id + 1 WHEN MATCHED THEN UPDATE SET name = s.name",
    "MERGE INTO people t USING changes s ON t.id = s.id AND s.op = 'U' AND t.amount > 8.5 "
    "WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.id > 35 THEN UPDATE SET amount = 0",
    ("MERGE INTO people t USING (SELECT * FROM VALUES (1, 'v'), (99, 'w') AS v(id, name)) s ON t.id = s.id "
     "WHEN MATCHED THEN UPDATE SET t.name = s.name "
     "WHEN NOT MATCHED THEN INSERT (id, name, day) VALUES (id, name, DEFAULT)",
     "MERGE INTO people t USING (VALUES (1, 'v'), (99, 'w')) AS s(id, name) ON t.id = s.id "
     "WHEN MATCHED THEN UPDATE SET name = s.name "
     "WHEN NOT MATCHED THEN INSERT (id, name, day) VALUES (s.id, s.name, NULL)"),
    "MERGE INTO people t USING changes s ON false WHEN NOT MATCHED AND s.id = 31 "
    "THEN INSERT (id) VALUES (s.id)",
    ("MERGE INTO people t USING changes s ON t.id = s.id WHEN MATCHED AND EXISTS (SELECT 1 FROM changes c "
     "WHERE c.id = t.id AND c.op = 'U') THEN DELETE",
     "DELETE FROM people WHERE id IN (SELECT id FROM changes WHERE op = 'U')"),
    ("INSERT OVERWRITE people SELECT id + 1, name, amount, day FROM people WHERE id < 5",
     "CREATE OR REPLACE TABLE people AS SELECT id + 1 AS id, name, amount, day FROM people WHERE id < 5"),
    ("INSERT OVERWRITE people PARTITION (day = '2026-01-02') SELECT id, 'over', amount FROM changes "
     "WHERE id < 33",
     "DELETE FROM people WHERE day = DATE '2026-01-02'; INSERT INTO people SELECT id, 'over', amount, "
     "DATE '2026-01-02' FROM changes WHERE id < 33"),
    ("INSERT OVERWRITE TABLE people PARTITION (day = '2026-01-03') SELECT 1, 'none', 2.0 WHERE false",
     "DELETE FROM people WHERE day = DATE '2026-01-03'"),
    ("INSERT INTO people REPLACE WHERE amount > 3 SELECT id + 600, name, amount, day FROM changes "
     "WHERE id > 40",
     "DELETE FROM people WHERE amount > 3; INSERT INTO people SELECT id + 600, name, amount, day "
     "FROM changes WHERE id > 40"),
    ("INSERT INTO people SELECT * FROM people VERSION AS OF 2",
     "INSERT INTO people SELECT * FROM before WHERE id < 25"),
    ("INSERT INTO people FROM changes SELECT id, name, amount, day WHERE id IS NOT NULL",
     "INSERT INTO people SELECT id, name, amount, day FROM changes WHERE id IS NOT NULL"),
    ("UPDATE people SET name = 'one' WHERE id = 1 AND day IN (DATE '2026-01-02', NULL)",
     "UPDATE people SET name = 'one' WHERE id = 1"),
    ("DELETE FROM IDENTIFIER('people') WHERE id = 2", "DELETE FROM people WHERE id = 2"),
    ("UPDATE people SET people.name = 'by table' WHERE people.id = 3",
     "UPDATE people SET name = 'by table' WHERE id = 3"),
    ("MERGE INTO people t USING changes s ON t.id = s.id WHEN NOT MATCHED BY TARGET AND s.id = 49 "
     "THEN INSERT (id, name) VALUES (s.id, 'by target')",
     "INSERT INTO people (id, name) VALUES (49, 'by target')"),
    ("INSERT INTO people (id, name) SELECT 900, 'q' UNION ALL SELECT 901, 'r'",
     "INSERT INTO people (id, name) VALUES (900, 'q'), (901, 'r')"),
    ("INSERT INTO people SELECT id + 700, name, amount, day FROM people FOR SYSTEM_VERSION AS OF 2",
     "INSERT INTO people SELECT id + 700, name, amount, day FROM before WHERE id < 25"),
    ("INSERT INTO people SELECT /*+ REPARTITION(2) */ id + 800, name, amount, day FROM changes WHERE "
     "id > 40", "INSERT INTO people SELECT id + 800, name, amount, day FROM changes WHERE id > 40"),
]  # fmt: skip


# Of the forms of each statement one in nine; the others are in the wide tier.
CELLS = in_short(NOTEBOOK, NOTEBOOK[::9])


@pytest.mark.parametrize("statement", CELLS, ids=range(len(NOTEBOOK)))
def test_a_statement_is_that_of_sql(
    spark: Any, request: pytest.FixtureRequest, statement: Any
) -> None:
    ours, theirs = statement if isinstance(statement, tuple) else (statement, statement)
    table: inlay.Table = request.getfixturevalue("by_day" if "PARTITION" in ours else "table")
    judge = Judge(table)
    spark.createDataFrame(people(700, 3)).createOrReplaceTempView("people_more")
    judge._duckdb.register("people_more", people(700, 3))
    [told] = sql(spark, ours).collect()
    judge.run(theirs or ours)
    assert content(table) == judge.rows()
    assert told.committed == ("CAST(NULL" not in ours and "never" not in ours)
    assert told.version == table.version


# -- random MERGEs against what SQL says of them, in plain Python ----------------------------------

# Conditions and values: as Spark's SQL, and as a function of the table's row and the source's.
Row = dict[str, Any]
MATCHED: list[tuple[str, Callable[[Row, Row], bool | None]]] = [
    ("s.op = 'D'", lambda t, s: None if s["op"] is None else s["op"] == "D"),
    ("s.v > t.v", lambda t, s: None if None in (s["v"], t["v"]) else s["v"] > t["v"]),
    ("t.v IS NULL OR s.v < 4", lambda t, s: t["v"] is None or (s["v"] is not None and s["v"] < 4)),
    ("NOT (s.op = 'U')", lambda t, s: None if s["op"] is None else s["op"] != "U"),
]
BY_SOURCE: list[tuple[str, Callable[[Row], bool | None]]] = [
    ("t.v > 5", lambda t: None if t["v"] is None else t["v"] > 5),
    ("t.k % 2 = 0", lambda t: t["k"] % 2 == 0),
    ("v IS NULL", lambda t: t["v"] is None),
]
UNMATCHED: list[tuple[str, Callable[[Row], bool | None]]] = [
    ("s.op <> 'D'", lambda s: None if s["op"] is None else s["op"] != "D"),
    ("v >= 3 AND k IS NOT NULL", lambda s: (s["v"] or 0) >= 3 and s["k"] is not None),
]
Clause = tuple[
    str, str, Any, Any
]  # kind, words, condition, what it makes of the rows: None deletes


def random_merge(draw: random.Random) -> tuple[str, list[Clause]]:
    clauses: list[Clause] = []

    def some(choices: Any, kind: str, actions: list[tuple[str, Any]]) -> None:
        for last in range(draw.randint(0, 3)):
            words, condition = draw.choice(choices)
            if last == 2 or draw.random() < 0.3:
                words, condition = "", lambda *rows: True
            action, makes = draw.choice(actions)
            also = f" AND {words}" if words else ""
            clauses.append((kind, f"WHEN {kind}{also} THEN {action}", condition, makes))
            if not words:
                return  # only the last of a kind may have no condition

    some(MATCHED, "MATCHED", [
        ("DELETE", None),
        ("UPDATE SET v = s.v", lambda t, s: {**t, "v": s["v"]}),
        ("UPDATE SET t.v = t.v + s.v, op = 'both'", lambda t, s: {
            **t, "v": None if None in (t["v"], s["v"]) else t["v"] + s["v"], "op": "both"}),
        ("UPDATE SET *", lambda t, s: dict(s)),
    ])  # fmt: skip
    some(UNMATCHED, "NOT MATCHED", [
        ("INSERT *", lambda s: dict(s)),
        ("INSERT (k, op) VALUES (k, concat(op, '!'))", lambda s: {
            "k": s["k"], "v": None, "op": None if s["op"] is None else s["op"] + "!"}),
    ])  # fmt: skip
    some(BY_SOURCE, "NOT MATCHED BY SOURCE", [
        ("DELETE", None),
        ("UPDATE SET v = t.v + 100", lambda t: {**t, "v": None if t["v"] is None else t["v"] + 100}),
    ])  # fmt: skip
    if not clauses:
        return random_merge(draw)
    return " ".join(words for _, words, _, _ in clauses), clauses


def merged(rows: list[Row], source: list[Row], clauses: list[Clause]) -> list[Row] | None:
    """None: refused, because several rows of the source match one of the table."""

    def first(kind: str, *given: Row) -> Clause | None:
        return next((c for c in clauses if c[0] == kind and c[2](*given)), None)

    matched = [c for c in clauses if c[0] == "MATCHED"]
    only_deletes = [(c[1], c[3]) for c in matched] in ([], [("WHEN MATCHED THEN DELETE", None)])
    made = []
    for row in rows:
        with_it = [s for s in source if s["k"] is not None and s["k"] == row["k"]]
        if len(with_it) > 1 and not only_deletes:
            return None
        clause = (
            first("MATCHED", row, with_it[0]) if with_it else first("NOT MATCHED BY SOURCE", row)
        )
        if clause is None:
            made.append(row)
        elif clause[3] is not None:
            made.append(clause[3](row, with_it[0]) if with_it else clause[3](row))
    keys = {row["k"] for row in rows}
    for s in source:
        clause = None if s["k"] in keys else first("NOT MATCHED", s)
        if clause is not None:
            made.append(clause[3](s))
    return made


@pytest.mark.parametrize("seed", range(8))
def test_random_merges_are_those_of_plain_python(
    spark: Any, new_table: NewTable, seed: int
) -> None:
    draw = random.Random(seed)
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("op", pa.string())])

    def row(key: int | None) -> Row:
        ops = ["D", "U", None]
        return {"k": key, "v": draw.choice([None, *range(9)]), "op": draw.choice(ops)}

    rows = [row(key) for key in range(12)]
    table = new_table(pa.Table.from_pylist(rows[:7], schema=schema))
    table.append(pa.Table.from_pylist(rows[7:], schema=schema))
    view(spark, "targets", table.uri)
    keys = [draw.choice([None, *range(16)]) for _ in range(draw.randint(0, 8))]
    keys = keys if draw.random() < 0.3 else list(dict.fromkeys(keys))
    source = [row(key) for key in keys]
    spark.createDataFrame(pa.Table.from_pylist(source, schema=schema)).createOrReplaceTempView("s")
    words, clauses = random_merge(draw)
    statement = f"MERGE INTO targets t USING s ON t.k = s.k {words}"
    expected = merged(rows, source, clauses)
    if expected is None:
        with pytest.raises(InvalidRequest, match="MERGE_CARDINALITY_VIOLATION"):
            sql(spark, statement)
        expected = rows
    else:
        sql(spark, statement)
    rows = table.refresh().scan().to_arrow().to_pylist()
    assert sorted(map(repr, rows)) == sorted(map(repr, expected)), statement


# -- values, names, versions ----------------------------------------------------------------------


def test_values_are_bound_and_never_pasted(spark: Any, table: inlay.Table) -> None:
    odd = "'; DELETE FROM people --"
    sql(spark, "UPDATE people SET name = :name WHERE id = :id", {"name": odd, "id": 3})
    assert [row[1] for row in content(table) if row[0] == 3] == [odd]
    sql(spark, "DELETE FROM people WHERE name = ? OR id IN (SELECT explode(?))", [odd, [8, 9]])
    left = {row[0] for row in content(table)}
    assert {3, 8, 9}.isdisjoint(left) and len(left) == 37
    sql(
        spark,
        "WITH c AS (SELECT :id AS id) MERGE INTO IDENTIFIER(:t) t USING c ON t.id = c.id "
        "WHEN MATCHED THEN UPDATE SET day = :day WHEN NOT MATCHED THEN INSERT (id, day) VALUES (id, :day)",
        {"id": 3, "t": "people", "day": datetime.date(2026, 7, 1)},
    )
    assert (3, None, None, datetime.date(2026, 7, 1)) in content(table)


def test_a_name_is_a_view_of_a_whole_table_or_its_place(
    spark: Any, table: inlay.Table, new_table: NewTable
) -> None:
    place = f"inlay.`{table.uri}`"
    assert sql(spark, f"DELETE FROM {place} WHERE id = 1").first().deleted == 1
    assert sql(spark, f"SELECT count(*) FROM {place} p").first() == (39,)
    spark.sql(f"CREATE OR REPLACE TEMP VIEW into_it USING inlay OPTIONS (path '{table.uri}')")
    assert sql(spark, "UPDATE into_it SET name = 'x' WHERE into_it.id = 2").first().updated == 1
    branch = table.refresh().refs.branch("next")
    view(spark, "on_branch", table.uri, ref="next")
    sql(spark, "DELETE FROM on_branch")
    assert (branch.refresh().count(), table.refresh().count()) == (0, 39)
    view(spark, "then", table.uri, version=2)
    spark.sql("CREATE OR REPLACE TEMP VIEW some AS SELECT id FROM people")
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW renamed (a, b, c, d) AS SELECT * FROM inlay('{table.uri}')"
    )
    for name, why in (
        ("then", "earlier version"),
        ("some", "a view of a query"),
        ("changes", "a view of a query"),
        ("renamed", "chooses or renames"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            sql(spark, f"DELETE FROM {name}")
    for statement in ("DELETE FROM nowhere", "SELECT * FROM nowhere", "UPDATE nowhere SET a = 1"):
        with pytest.raises(AnalysisException, match="nowhere"):
            sql(spark, statement)
    with pytest.raises(TableNotFound):
        sql(spark, "DELETE FROM inlay.`file:///tmp/inlay-nowhere`")
    assert sql(spark, "SELECT 1 AS a, :b AS b", {"b": 2}).first() == (1, 2)  # Spark's own


def test_versions_times_and_history(spark: Any, table: inlay.Table) -> None:
    table.refresh().refs.tag("begun")
    table.delete("id < 10")
    times = {row["version"]: row["time"] for row in table.inspect.history().to_pylist()}
    count = "SELECT count(*) FROM people"
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for asked, rows in (
            ("VERSION AS OF 2", 25),
            ("VERSION AS OF 3", 40),
            ("VERSION AS OF 'begun'", 40),
            ("FOR VERSION AS OF 2 AS p", 25),
            (f"TIMESTAMP AS OF '{times[2].isoformat()}'", 25),
            ("TIMESTAMP AS OF current_timestamp()", 30),
        ):
            assert sql(spark, f"{count} {asked}").first() == (rows,), asked
        spark.conf.set(
            "spark.sql.session.timeZone", "Asia/Tokyo"
        )  # as Spark takes a time without one
        local = (times[2] + datetime.timedelta(hours=9)).replace(tzinfo=None)
        assert sql(spark, f"{count} TIMESTAMP AS OF '{local}'").first() == (25,)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    hour = (
        f"{count} FOR SYSTEM_TIME AS OF current_timestamp() + INTERVAL 1 SECOND - INTERVAL 1 SECOND"
    )
    assert sql(spark, hour).first() == (30,)
    assert sql(spark, f"{count} FOR SYSTEM_VERSION AS OF 2").first() == (25,)
    files = sql(
        spark, "SELECT count(DISTINCT a.key) FROM people.files a JOIN people.files b USING (key)"
    )
    assert files.first() == (table.refresh().inspect.files().num_rows,)
    joined = sql(
        spark,
        "SELECT count(*) FROM people VERSION AS OF 3 b LEFT ANTI JOIN people a ON a.id = b.id "
        "WHERE b.id IN (SELECT id FROM people VERSION AS OF ?)".replace("?", "2"),
    )
    assert joined.first() == (10,)
    told = sql(spark, "MERGE INTO people t USING (SELECT * FROM people VERSION AS OF 2) s ON t.id = s.id "
                      "WHEN NOT MATCHED THEN INSERT *").first()  # fmt: skip
    assert told.inserted == 10
    for name in ("people", f"inlay.`{table.uri}`"):
        history = sql(spark, f"DESCRIBE HISTORY {name}").collect()
        assert history[0].version == table.refresh().version


def test_a_branch_or_tag_is_named_behind_the_table(spark: Any, table: inlay.Table) -> None:
    table.refs.tag("before")
    table.refs.branch("b")
    sql(spark, "DELETE FROM people WHERE id < 10")
    sql(spark, "UPDATE people.branch_b SET name = 'in b' WHERE id < 5")
    counted = "SELECT count(*), count_if(name = 'in b') FROM people"
    found = [sql(spark, f"{counted}{of}").first() for of in ("", ".tag_before", ".branch_b")]
    assert [tuple(row) for row in found] == [(30, 0), (40, 0), (40, 5)]
    with pytest.raises(InvalidRequest, match="tag"):
        sql(spark, "DELETE FROM people.tag_before")


def test_a_table_is_created_with_its_name(spark: Any, table: inlay.Table, tmp_path: Any) -> None:
    place = f"file://{tmp_path}/created"
    told = sql(
        spark,
        f"CREATE TABLE made USING inlay OPTIONS (primaryKey 'id') PARTITIONED BY (days(at), bucket(4, id)) "
        f"LOCATION '{place}' TBLPROPERTIES ('write.compression' = 'snappy') "
        "AS SELECT id, CAST(day AS TIMESTAMP) AS at, amount FROM people WHERE id < 5",
    ).first()
    made = inlay.open(place)
    assert (told.inserted, made.count()) == (5, 5)
    assert made.partitioning == ("day(at)", "bucket(4, id)")
    assert made.properties["write.compression"] == "snappy"
    assert sql(spark, "DELETE FROM made WHERE id = 1").first().deleted == 1
    again = f"CREATE TABLE IF NOT EXISTS made USING inlay LOCATION '{place}' AS SELECT 1 AS id"
    assert sql(spark, again).first().committed is False
    with pytest.raises(InvalidRequest, match="there is a table"):
        sql(spark, f"CREATE OR REPLACE TABLE made USING inlay LOCATION '{place}' AS SELECT 1 AS id")
    other = f"inlay.`file://{tmp_path}/other`"
    sql(spark, f"CREATE TABLE {other} (id BIGINT NOT NULL COMMENT 'the key', s STRING)")
    sql(spark, f"INSERT INTO {other} VALUES (1, 'a')")
    assert sql(spark, f"SELECT * FROM {other}").collect() == [(1, "a")]
    assert [f.nullable for f in inlay.open(f"file://{tmp_path}/other").schema] == [False, True]
    for statement, why in (
        ("CREATE TABLE x (id INT) USING inlay", "no place"),
        (f"CREATE TABLE x (id INT DEFAULT 3) USING inlay LOCATION '{place}2'", "default or is generated"),
        (f"CREATE TABLE x (id INT) USING inlay COMMENT 'c' LOCATION '{place}2'", "has no comment"),
        (f"CREATE TABLE x USING inlay OPTIONS (nothing 1) LOCATION '{place}2' AS SELECT 1",
         "unknown option"),
        (f"REPLACE TABLE x USING inlay LOCATION '{place}2' AS SELECT 1 AS id", "there is no table"),
    ):  # fmt: skip
        with pytest.raises(InvalidRequest, match=why):
            sql(spark, statement)
    assert not inlay.exists(f"{place}2")


def test_a_partition_is_replaced_as_the_session_says(spark: Any, by_day: inlay.Table) -> None:
    table = by_day
    mode = "spark.sql.sources.partitionOverwriteMode"
    before = spark.conf.get(mode)
    rows = "SELECT id, name, amount, day FROM people WHERE id = 3"
    try:
        spark.conf.set(mode, "dynamic")
        sql(spark, f"INSERT OVERWRITE people {rows}")
        days = {row[3].day for row in content(table)}
        assert (len(content(table)), days) == (1 + 40 - 14, {1, 2, 3})
        spark.conf.set(mode, "static")
        done = sql(spark, f"INSERT OVERWRITE people {rows}", request_id="once").first()
        assert (done.committed, done.inserted, len(content(table))) == (True, 1, 1)
        again = sql(spark, f"INSERT OVERWRITE people {rows}", request_id="once").first()
        assert (again.committed, again.applied_before) == (False, True)
    finally:
        spark.conf.set(mode, before)


def test_a_change_is_made_once_for_a_request(spark: Any, table: inlay.Table) -> None:
    for statement in (
        "INSERT INTO people (id) VALUES (900)",
        "UPDATE people SET amount = amount + 1",
        "DELETE FROM people WHERE id = 3",
        "MERGE INTO people t USING (SELECT 901 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) "
        "VALUES (s.id)",
    ):
        told = [sql(spark, statement, request_id=statement[:20]).first() for _ in range(2)]
        assert [row.committed for row in told] == [True, False]
        assert [row.applied_before for row in told] == [False, True]
    with pytest.raises(InvalidRequest, match="changes no Inlay table"):
        sql(spark, "SELECT 1", request_id="a")


# -- what is refused ------------------------------------------------------------------------------

WRONG: list[tuple[str, type[Exception], str]] = [
    ("INSERT INTO people VALUES (1, 2)", SchemaMismatch, "has 2 columns, and 4 get values"),
    ("INSERT INTO people (id, id) VALUES (1, 2)", InvalidRequest, "gets two values"),
    ("INSERT INTO people (id, nothing) VALUES (1, 2)", SchemaMismatch, "no column 'nothing'"),
    ("INSERT INTO people (id, amount) VALUES (1, 'text')", SchemaMismatch, "assigns no string to"),
    ("INSERT INTO people (id) VALUES (NULL)", SchemaMismatch, "NULL in column 'id'"),
    ("INSERT INTO people BY NAME SELECT 1 AS id, 2 AS other", SchemaMismatch, "no column 'other'"),
    ("INSERT INTO people PARTITION (name = 'a') SELECT 1, 2.0, NULL", SchemaMismatch, "not partitioned by"),
    ("UPDATE people SET amount = 'text'", SchemaMismatch, "assigns no string"),
    ("UPDATE people SET nothing = 1", SchemaMismatch, "no column"),
    ("UPDATE people SET amount = nothing", AnalysisException, "nothing"),
    ("UPDATE people SET id = id * 9223372036854775807", Exception, "(?i)overflow"),
    ("UPDATE people SET amount = sum(amount)", Exception, "(?i)aggregate"),
    ("MERGE INTO people t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
     SchemaMismatch, "the source has no 'name'"),
    ("MERGE INTO people t USING changes s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)",
     AnalysisException, "t.*id"),
    ("MERGE WITH SCHEMA EVOLUTION INTO people t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE "
     "SET *", InvalidRequest, "alter"),
    ("MERGE INTO people t USING (SELECT * FROM VALUES (1, 'a'), (1, 'b') AS v(id, op)) s ON t.id = s.id "
     "WHEN MATCHED AND s.op = 'a' THEN DELETE", InvalidRequest, "MERGE_CARDINALITY_VIOLATION"),
    ("EXPLAIN DELETE FROM people WHERE id = 1", InvalidRequest, "explain"),
    ("CALL system.rewrite_data_files(table => 'people')", InvalidRequest, "compact"),
    ("SELEKT 1", ParseException, "SELEKT"),
    ("DELETE FROM people USING changes WHERE people.id = changes.id", InvalidRequest, "MERGE INTO"),
    ("UPDATE people SET name = (SELECT 'a') FROM changes c WHERE c.id = people.id", InvalidRequest,
     "UPDATE … FROM"),
    ("UPDATE people SET name = 'a' SELEKT (SELECT 1 FROM changes)", ParseException, "SELEKT"),
    ("DESCRIBE DETAIL people", InvalidRequest, "people.files"),
    ("DESCRIBE HISTORY people LIMIT 1", InvalidRequest, r"\.limit\("),
    ("SELECT * FROM table_changes('people', 2)", InvalidRequest, "changeFeed"),
    ("SELECT * FROM people TIMESTAMP AS OF current_timestamp() - INTERVAL 9 YEARS", VersionNotFound,
     "(?i)version"),
    ("SELECT * FROM people VERSION AS OF 99", VersionNotFound, "99"),
    ("BEGIN DELETE FROM people WHERE id = 1; END", InvalidRequest, "by itself"),
    ("BEGIN IF 1 = 1 THEN INSERT INTO people (id) VALUES (1); END IF; END", InvalidRequest, "by itself"),
    ("EXECUTE IMMEDIATE 'UPDATE people SET name = 1'", InvalidRequest, "by itself"),
    ("FROM changes INSERT INTO people (id) SELECT id INSERT INTO people (id) SELECT id + 1", InvalidRequest,
     "by itself"),
    ("CREATE TABLE made_like LIKE people USING inlay LOCATION '/nowhere'", InvalidRequest, "AS SELECT"),
    ("ALTER TABLE people SET IDENTIFIER FIELDS id", InvalidRequest, "primary_key"),
    ("ALTER TABLE people REPLACE PARTITION FIELD day WITH months(day)", InvalidRequest, "set_partitioning"),
    ("ALTER TABLE people ADD CONSTRAINT c CHECK (id > 0)", InvalidRequest, "CONSTRAINT"),
    ("ALTER TABLE people DROP CONSTRAINT c", InvalidRequest, "constraints"),
    ("OPTIMIZE people ZORDER BY (id)", InvalidRequest, "compact"),
    ("-- a comment\nVACUUM people RETAIN 1 HOURS", InvalidRequest, "collect_garbage"),
    ("CREATE TABLE other SHALLOW CLONE people", InvalidRequest, "branch"),
    ("ALTER TABLE people CREATE BRANCH b", InvalidRequest, "refs.tag"),
    ("ALTER TABLE people ADD COLUMNS (a INT)", InvalidRequest, r"alter\(add"),
    ("ALTER TABLE people RENAME COLUMN name TO other", InvalidRequest, r"alter\(rename"),
    ("ALTER TABLE people SET TBLPROPERTIES ('a' = 'b')", InvalidRequest, "set_properties"),
    ("DROP TABLE people", InvalidRequest, r"inlay.drop\("),
    ("SHOW PARTITIONS people", InvalidRequest, "partitions"),
    ("ANALYZE TABLE people COMPUTE STATISTICS", InvalidRequest, "statistics"),
    ("MSCK REPAIR TABLE people", InvalidRequest, "knows its files"),
    ("REPLACE TABLE people USING inlay AS SELECT 1 AS id", InvalidRequest, "LOCATION|INSERT OVERWRITE"),
    ("SHOW TBLPROPERTIES people", InvalidRequest, "properties"),
    ("SHOW CREATE TABLE people", InvalidRequest, "DESCRIBE"),
    ("ALTER TABLE people ALTER COLUMN id TYPE BIGINT", InvalidRequest, "widen"),
    ("ALTER TABLE people DROP COLUMN name", InvalidRequest, "drop="),
    ("ALTER TABLE people CLUSTER BY (day)", InvalidRequest, "pipelines.cluster"),
    ("ALTER TABLE people RENAME TO other", InvalidRequest, "view"),
    ("ALTER TABLE people DROP PARTITION (day = '2026-01-01')", InvalidRequest, "DELETE FROM"),
    ("ALTER TABLE people SET LOCATION '/x'", InvalidRequest, "view"),
    ("ALTER TABLE people WRITE ORDERED BY day", InvalidRequest, "compact.columns"),
    ("TRUNCATE TABLE people PARTITION (day = '2026-01-01')", InvalidRequest, "DELETE FROM"),
    ("LOAD DATA INPATH '/x' INTO TABLE people", InvalidRequest, "ingest"),
    ("COMMENT ON TABLE people IS 'x'", InvalidRequest, "set_properties"),
    ("COPY INTO people FROM '/x' FILEFORMAT = PARQUET", InvalidRequest, "ingest"),
    ("RESTORE TABLE people TO VERSION AS OF 2", InvalidRequest, "refs.restore"),
    ("REORG TABLE people APPLY (PURGE)", InvalidRequest, "compact"),
    ("UPSERT INTO people VALUES (1, 'a', 1, NULL)", InvalidRequest, "upsert"),
    ("CALL spark_catalog.system.expire_snapshots(table => 'people')", InvalidRequest, "expire"),
    ("SELECT * FROM inlay.`/tables/people@v3`", InvalidRequest, "`/tables/people` VERSION AS OF 3"),
    ("SELECT * FROM people.manifests", InvalidRequest, "files"),
    ("MERGE INTO people t USING s ON t.a = s.a WHEN MATCHED THEN SET * EXCEPT (a)", InvalidRequest, "name"),
    ("MERGE INTO people t USING s ON t.id = s.id WHEN MATCHED THEN DO NOTHING", InvalidRequest, "stay"),
    ("BEGIN TRANSACTION", InvalidRequest, "transaction"),
    ("BEGIN; DELETE FROM people; END", InvalidRequest, "transaction"),
    ("COMMIT", InvalidRequest, "transaction"),
    ("GRANT SELECT ON people TO bob", InvalidRequest, "bucket"),
    ("DELETE FROM people WHERE id = 1; SELECT 1", InvalidRequest, "by itself"),
    ("INSERT INTO people.branch_none SELECT * FROM people", RefNotFound, "none"),
]  # fmt: skip


def test_what_is_wrong_or_not_served_is_refused_by_name(spark: Any, table: inlay.Table) -> None:
    before = content(table)
    for statement, kind, why in WRONG:
        with pytest.raises(kind, match=why) as refused:
            sql(spark, statement)
        if isinstance(refused.value, InlayError):
            assert refused.value.next_step or kind is not InvalidRequest, statement
    assert content(table) == before


def test_every_refusal_names_a_way_that_is_there(spark: Any) -> None:
    assert all(name and way for name, way in COMMANDS.values())
    ways = [*(way for _, way in COMMANDS.values()), *WORDS.values()]
    called = [
        found[1] for way in ways for found in re.finditer(r"inlay\.open\(uri\)\.([\w.]+)", way)
    ]
    table = inlay.create("memory://ways/t", pa.schema([("id", pa.int64())]))
    assert len(called) > 10
    assert all(attrgetter(name)(table) is not None for name in called)
    jvm = spark._jvm.org.apache.spark.sql.catalyst.plans.logical
    missing = [name for name in COMMANDS if not isinstance(getattr(jvm, name), JavaClass)]
    assert missing in ([], ["AlterColumn"])  # AlterColumns since 4.0


def test_a_duplicate_name_of_a_source_is_its_sides(spark: Any, table: inlay.Table) -> None:
    """In NOT MATCHED a name is the source's, as in Spark, also where the table has it, too."""
    source = spark.createDataFrame([(950, "mine")], "id long, name string").alias("s")
    target = inlay.spark.InlayTable(spark, table.uri).alias("t")
    merge = target.merge(source, f.col("t.id") == f.col("s.id"))
    merge.whenNotMatchedInsert(values={"id": "id", "name": "name"}).execute()
    assert (950, "mine", None, None) in content(table)

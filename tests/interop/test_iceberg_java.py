"""Spark with Iceberg Java: it reads what is published, what it writes can be adopted, and it writes through
the catalog.

Needs the environment of `make iceberg-java`, or another one like it, whose Python is INLAY_ICEBERG_JAVA.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipelines import orders_sql

import inlay
from inlay.cli.serving import CatalogServer, catalog_of
from inlay.errors import ForeignCommit, Unpublishable
from inlay.table import Table

from .histories import History
from .shapes import Shape
from .test_adopt import _without, adopt
from .test_catalog_chaos import Histories, started
from .test_catalog_writes import Between, Engines, Persons, served
from .test_histories import STEPS, published

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]
PROGRAM = Path(__file__).with_name("by_spark.py")
# What Spark lacks, or Iceberg Java does: a table with one of these is refused by name.
KNOWN = ("does not support time", "UINT_8", "UINT_16")


def python_of_spark() -> str:
    installed = Path(__file__).parents[2] / ".tools" / "iceberg-java" / "bin" / "python"
    python = os.environ.get("INLAY_ICEBERG_JAVA") or str(installed)
    if not Path(python).exists():
        pytest.skip("no Spark with Iceberg Java: run `make iceberg-java`")
    return python


@pytest.fixture(scope="session")
def spark() -> Callable[..., list[Any]]:
    python = python_of_spark()

    def run(what: str, out: Path, *arguments: str) -> list[Any]:
        done = subprocess.run(
            [python, PROGRAM, what, out, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TZ": "UTC"},
        )
        assert not done.returncode, done.stderr[-3_000:]
        found: list[Any] = pickle.loads(out.read_bytes())
        return found

    return run


def plain(value: Any) -> Any:
    match value:
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list() if value and all(isinstance(each, tuple) for each in value):
            return sorted(((k, plain(v)) for k, v in value), key=str)  # a map
        case list():
            return [plain(each) for each in value]
    return value


def multiset(rows: list[dict[str, Any]], names: list[str]) -> list[str]:
    return sorted(str(plain({name: row[name] for name in names})) for row in rows)


def of(table: Table) -> list[str]:
    return multiset(table.scan().to_arrow().to_pylist(), table.schema.names)


@pytest.mark.parametrize("version", ["v3", "v2"])
def test_it_reads_what_scan_reads(
    version: str, tmp_path: Path, spark: Callable[..., list[Any]]
) -> None:
    histories: list[History] = []
    for seed in range(9000, 9012):
        history = History(tmp_path, seed) if seed % 3 == 0 else Shape(tmp_path, seed, version)
        history.table.set_properties(publish__format=version)
        for _ in range(STEPS):
            history.step()
        if version == "v2" and any(f.default is not None for f in _fields(history.table)):
            continue
        published(history)
        histories.append(history)
    found = spark("read", tmp_path / "rows", *(f"file://{h.root}" for h in histories))
    equal = 0
    for history, rows in zip(histories, found, strict=True):
        if isinstance(rows, str):
            assert any(text in rows for text in KNOWN), (rows, history.log)
            continue
        table = history.table.refresh()
        assert multiset(rows, table.schema.names) == of(table), history.log
        equal += 1
    assert equal >= 4


def test_it_reads_columns_that_only_partitions_have(
    tmp_path: Path, spark: Callable[..., list[Any]]
) -> None:
    tables: list[Table] = []
    for version in ("v2", "v3"):
        schema = pa.schema([("id", pa.int64()), ("s", pa.string()), ("y", pa.int32())])
        source = tmp_path / version / "source"
        t = inlay.create(f"file://{source}", schema, partition_by=["s", "y"])
        rows = {"id": [1, 2, 3, 4], "s": ["x", "x", "y", None], "y": [1, 1, None, 7]}
        t.append(pa.table(rows, schema))
        t.publish(format=version)
        made = adopt(_without(source, "s").metadata, tmp_path / version / "table")
        made.delete("id = 2", mode="vector")
        made.publish(format=version)
        tables.append(made.refresh())
    found = spark("read", tmp_path / "rows", *(table.uri for table in tables))
    for table, rows_of_spark in zip(tables, found, strict=True):
        assert multiset(rows_of_spark, table.schema.names) == of(table)


def _fields(table: Table) -> list[Any]:
    return [field for _, field in table.snapshot.schema.walk()]


def test_its_tables_can_be_adopted(tmp_path: Path, spark: Callable[..., list[Any]]) -> None:
    """Versions 2 and 3, with position deletes and deletion vectors, row lineage, columns and partitions
    that change, compaction."""
    seeds = [str(seed) for seed in range(12)]
    found = spark("write", tmp_path / "rows", str(tmp_path / "w"), *seeds)
    deletes = 0
    for seed, (rows, metadata) in zip(seeds, found, strict=True):
        table = inlay.adopt(f"file://{metadata}", f"file://{tmp_path}/in/{seed}")
        assert of(table) == multiset(rows, table.schema.names), seed
        again = inlay.adopt(f"file://{tmp_path}/w/d/t{seed}", f"file://{tmp_path}/hint/{seed}")
        assert of(again) == of(table), seed
        deletes += len(table.inspect.entries()[1])
        assert table.maintain.verify(depth="pages").findings == ()
        table.delete("id % 2 = 0")
        table.append(table.scan(where="id < 9").to_arrow())
        try:
            assert table.publish(format="v3").published
        except Unpublishable as error:  # a compaction under version 3
            assert "has row ids of the table it comes from" in str(error)
            copied = inlay.adopt(f"file://{metadata}", f"file://{tmp_path}/copy/{seed}", copy=True)
            assert copied.publish(format="v3").published
    assert deletes


def objects(root: Path) -> set[str]:
    """Spark's checksums beside files are its own."""
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and p.suffix != ".crc"}


def a_table(root: Path) -> Table:
    """Published, and ahead of that by an append; all of it four days old."""
    table = inlay.create(f"file://{root}", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2, 3]}))
    table.delete("id = 2", mode="vector")
    table.publish()
    table.append(pa.table({"id": [4]}))
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - 4 * 86_400,) * 2)
    return table


def test_its_maintenance_removes_nothing_of_a_published_table(
    tmp_path: Path, spark: Callable[..., list[Any]]
) -> None:
    """What other versions of the table need is an orphan to Iceberg's metadata."""
    root = tmp_path / "w" / "d" / "t"
    table = a_table(root)
    before = objects(root)
    found = spark(
        "sql",
        tmp_path / "rows",
        f"file://{tmp_path}/w",
        "CALL w.system.remove_orphan_files(table => 'd.t')",
        "CALL w.system.expire_snapshots(table => 'd.t', older_than => TIMESTAMP '2100-01-01 00:00:00')",
        "DROP TABLE w.d.t PURGE",
        "SELECT * FROM w.d.t",
    )
    assert all("GC is disabled" in str(refusal) for refusal in found[:3]), found
    assert found[3] == [{"id": 1}, {"id": 3}]
    assert objects(root) == before
    assert table.maintain.verify(depth="pages").findings == ()
    assert table.publish().published


def test_its_maintenance_through_the_catalog_takes_no_object_away(root: Path, sql: Sql) -> None:
    """Of a table with a commit that is not published, and files elsewhere that are to come in."""
    modes = "'format-version' = '2', 'write.delete.mode' = 'merge-on-read'"
    sql(f"CREATE TABLE lake.tables.t (id BIGINT, s STRING) USING iceberg TBLPROPERTIES ({modes})")
    for n in range(3):
        sql(f"INSERT INTO lake.tables.t VALUES ({2 * n}, 'a'), ({2 * n + 1}, 'b')")
    sql("DELETE FROM lake.tables.t WHERE id = 3")
    inlay.open(f"file://{root}/t").append(pa.table({"id": [100], "s": ["native"]}))
    (root.parent / "other").mkdir()
    pq.write_table(pa.table({"id": [7], "s": ["x"]}), root.parent / "other" / "x.parquet")
    call, expected = "CALL lake.system", ids(root)
    far, set_to = "TIMESTAMP '2100-01-01 00:00:00'", "ALTER TABLE lake.tables.t"
    elsewhere = f"source_table => '`parquet`.`{root.parent}/other`'"
    every = "options => map('rewrite-all', 'true')"
    expiring = (
        "'write.metadata.delete-after-commit.enabled' = 'true', 'history.expire.max-age' = '1'"
    )
    for statement, refusal in (
        (f"{call}.remove_orphan_files(table => 'tables.t')", "GC is disabled"),
        (f"{call}.remove_orphan_files(table => 'tables.t', dry_run => true)", "GC is disabled"),
        (f"{call}.expire_snapshots(table => 'tables.t', older_than => {far})", "GC is disabled"),
        (f"{set_to} SET TBLPROPERTIES ('gc.enabled' = 'true')", "Inlay's own"),
        (f"{set_to} UNSET TBLPROPERTIES ('gc.enabled')", "Inlay's own"),
        ("DROP TABLE lake.tables.t PURGE", "GC is disabled"),
        (f"{call}.add_files(table => 'tables.t', {elsewhere})", "outside of data/"),
        (f"{set_to} RENAME TO lake.tables.u", "does not support"),
        (f"{set_to} SET TBLPROPERTIES ({expiring})", None),
        (f"{call}.rewrite_position_delete_files(table => 'tables.t', {every})", None),
        (f"{call}.rewrite_data_files(table => 'tables.t', {every})", None),
        (f"{call}.rewrite_manifests(table => 'tables.t')", None),
        (f"{call}.compute_table_stats(table => 'tables.t')", None),
    ):
        before = objects(root)
        answer = sql.ask(statement)
        if refusal is None:
            assert isinstance(answer, list), (statement, answer)
        else:
            assert refusal in answer["error"], (statement, answer)
        assert set(before) <= set(objects(root)), statement
        assert ids(root) == expected, statement
    check(root)


@pytest.mark.parametrize("form", ["v2", "v3"])
def test_published_metadata_is_registered_and_copied_by_its_procedures(
    root: Path, sql: Sql, form: str
) -> None:
    table = inlay.create(f"file://{root}/t", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    table.append(pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]}))
    table.delete("id = 2", mode="vector")
    table.append(pa.table({"id": [4], "s": ["d"]}))
    table.publish(format=form)
    pointer = json.loads((root / "t" / "metadata" / "latest.json").read_text())
    said = f"metadata_file => '{pointer['metadata-location']}'"
    [registered] = sql(f"CALL lake.system.register_table(table => 'tables.r', {said})")
    assert registered["total_records_count"] == 4 and registered["total_data_files_count"] == 2
    assert ids(root, "r") == [(1, "a"), (3, "c"), (4, "d")]
    location = pointer["metadata"]["location"]
    prefixes = f"source_prefix => '{location}', target_prefix => 'file:/elsewhere'"
    answer = sql.ask(f"CALL lake.system.rewrite_table_path(table => 'tables.t', {prefixes})")
    # Iceberg Java 1.10 fails on vectors, and leaves what it has written.
    assert isinstance(answer, list) == (form == "v2"), answer
    assert [o for o in objects(root / "t") if "copy-table-staging-" in o]
    done = table.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert [o for o in done.unknown if not o.endswith(".crc")] == []
    assert not [o for o in objects(root / "t") if "copy-table-staging-" in o]
    assert [row["id"] for row in sql("SELECT id FROM lake.tables.t ORDER BY id")] == [1, 3, 4]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO w.d.t VALUES (9)",
        "CALL w.system.rewrite_data_files(table => 'd.t')",
        "ALTER TABLE w.d.t SET TBLPROPERTIES ('a' = 'b')",
    ],
)
def test_a_commit_by_its_hadoop_catalog_is_noticed_and_kept(
    statement: str, tmp_path: Path, spark: Callable[..., list[Any]]
) -> None:
    root = tmp_path / "w" / "d" / "t"
    table = a_table(root)
    folder = f"file://{tmp_path}/w"
    [rows] = spark("sql", tmp_path / "rows", folder, statement)
    assert isinstance(rows, list), rows
    before = {path: path.read_bytes() for path in (root / "metadata").iterdir()}
    with pytest.raises(ForeignCommit, match="committed to this table by its path") as refused:
        table.publish()
    with pytest.raises(ForeignCommit):
        table.publish(rebuild=True)
    with pytest.raises(ForeignCommit):
        table.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert {path: path.read_bytes() for path in (root / "metadata").iterdir()} == before
    # Both ways out: keep its rows elsewhere, or give them up.
    theirs = str(refused.value.key)
    kept = inlay.adopt(f"file:///{theirs}", f"file://{tmp_path}/kept", copy=True)
    ids = [1, 3, 9] if statement.startswith("INSERT") else [1, 3]
    assert sorted(kept.scan().to_arrow()["id"].to_pylist()) == ids
    Path(f"/{theirs}").unlink()
    for checksum in root.rglob("*.crc"):  # of files that Spark wrote, and then Inlay
        checksum.unlink()
    assert table.publish().published
    [read] = spark("read", tmp_path / "rows", f"file://{root}")
    assert sorted(row["id"] for row in read) == [1, 3, 4]


# -- through the catalog --------------------------------------------------------------------------


class Sql:
    """Spark on a catalog, in a process of its own."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.process = subprocess.Popen(
            [python_of_spark(), PROGRAM, "rest", uri],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TZ": "UTC"},
        )

    def ask(self, statement: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(statement) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __call__(self, statement: str) -> list[dict[str, Any]]:
        answer = self.ask(statement)
        assert isinstance(answer, list), (statement, answer)
        return answer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tables").mkdir()
    return tmp_path / "tables"


@pytest.fixture
def sql(root: Path) -> Iterator[Sql]:
    python_of_spark()
    with CatalogServer(catalog_of(f"file://{root}", write=True), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        made = Sql(f"http://127.0.0.1:{server.server_port}")
        try:
            yield made
        finally:
            made.process.kill()
            made.process.communicate()
            server.shutdown()
            thread.join()


def ids(root: Path, name: str = "t", ref: str | None = None) -> list[tuple[int, str | None]]:
    table = inlay.open(f"file://{root}/{name}", ref=ref)
    found = table.scan().to_arrow().select(["id", "s"]).to_pylist()
    return sorted((r["id"], r["s"]) for r in found)


def check(root: Path) -> None:
    """Spark leaves checksums beside files, and manifests that it merged."""
    found = inlay.open(f"file://{root}/t").maintain.verify(depth="pages").findings
    assert [f for f in found if f.severity.value != "note"] == []


MODES = ("copy-on-write", "merge-on-read")
LAYOUTS = ("", "PARTITIONED BY (bucket(3, id), truncate(1, s))", "PARTITIONED BY (days(at), s)")


@pytest.fixture
def others(engines_python: Path, sql: Sql) -> Iterator[Engines]:
    """DuckDB and pyiceberg on the same catalog."""
    made = Engines(engines_python, sql.uri)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(8))
def test_it_and_inlay_write_one_table_in_turns(
    root: Path, sql: Sql, others: Engines, seed: int
) -> None:
    """A random history against a model, compared after each step in Spark, in `scan`, in DuckDB and in
    pyiceberg."""
    dice = random.Random(seed)
    mode, form = dice.choice(MODES), dice.choice([2, 3])
    modes = ", ".join(f"'write.{what}.mode' = '{mode}'" for what in ("delete", "update", "merge"))
    sql(
        f"CREATE TABLE lake.tables.t (id BIGINT, s STRING, at TIMESTAMP) USING iceberg "
        f"{LAYOUTS[seed % 3]} TBLPROPERTIES ('format-version' = '{form}', {modes})"
    )
    model: dict[int, str] = {}
    for step in range(16):
        n, table = dice.randint(0, 40), inlay.open(f"file://{root}/t")
        match dice.choice(["insert", "insert", "delete", "update", "merge", "native", "rest"]):
            case "insert":
                sql(
                    f"INSERT INTO lake.tables.t SELECT id, CONCAT('s', id % 3), "
                    f"timestamp_seconds(1700000000 + id * 40000) FROM range({step * 100}, {step * 100 + n})"
                )
                model |= {i: f"s{i % 3}" for i in range(step * 100, step * 100 + n)}
            case "delete":
                sql(f"DELETE FROM lake.tables.t WHERE id % 7 = {n % 7}")
                model = {i: s for i, s in model.items() if i % 7 != n % 7}
            case "update":
                sql(f"UPDATE lake.tables.t SET s = 'u' WHERE id % 5 = {n % 5}")
                model |= {i: "u" for i in model if i % 5 == n % 5}
            case "merge":
                sql(
                    f"MERGE INTO lake.tables.t t USING (SELECT id * 3 AS id FROM range({n})) u "
                    "ON t.id = u.id WHEN MATCHED AND u.id % 2 = 0 THEN DELETE "
                    "WHEN MATCHED THEN UPDATE SET s = 'm' "
                    "WHEN NOT MATCHED THEN INSERT (id, s) VALUES (u.id, 'n')"
                )
                for i in range(0, 3 * n, 3):
                    if i in model and i % 2 == 0:
                        del model[i]
                    else:
                        model[i] = "m" if i in model else "n"
            case "native":
                at = datetime(2026, 1, 1, tzinfo=UTC)
                made = dict.fromkeys(range(step * 100 + 50, step * 100 + 50 + n % 9), "i")
                columns = {"id": list(made), "s": list(made.values()), "at": [at] * len(made)}
                if made:
                    table.append(pa.table(columns, table.schema))
                table.delete(f"id % 11 = {n % 11}")
                model = {i: s for i, s in (model | made).items() if i % 11 != n % 11}
            case _:
                kind = dice.choice(["compact", "theirs", "manifests", "gc"])
                match kind:
                    case "compact":
                        table.maintain.compact()
                    case "theirs":
                        sql(
                            "CALL lake.system.rewrite_data_files(table => 'tables.t', "
                            "options => map('rewrite-all', 'true'))"
                        )
                    case "manifests":
                        sql("CALL lake.system.rewrite_manifests(table => 'tables.t')")
                    case _:
                        table.maintain.collect_garbage()
        expected = sorted(model.items())
        assert ids(root) == expected, (step, seed)
        shown = sql("SELECT id, s FROM lake.tables.t ORDER BY id")
        assert [(r["id"], r["s"]) for r in shown] == expected, (step, seed)
        by_duckdb = others.sql("SELECT id, s FROM lake.tables.t ORDER BY id")
        assert [tuple(row) for row in by_duckdb] == expected, (step, seed)
        read = others("pyiceberg", "scan", "tables.t")
        assert sorted((row["id"], row["s"]) for row in read) == expected, (step, seed)
    check(root)


@pytest.mark.parametrize("seed", range(4))
def test_its_statements_among_others_are_done_once_or_not_at_all(
    tmp_path: Path, engines_python: Path, seed: int
) -> None:
    """Among those of DuckDB and pyiceberg, native writers, compaction, erasure and collection, on a catalog
    to which everything happens (`test_catalog_chaos`); compared after each in all of them."""
    python_of_spark()
    dice, root = random.Random(seed), tmp_path / "tables"
    mode = dice.choice(MODES)
    modes = {f"iceberg.write.{what}.mode": mode for what in ("delete", "update", "merge")}
    chaos = started(root, dice, **modes)
    for uri in served(chaos):  # type: ignore[arg-type]
        spark, engines = Sql(uri), Engines(engines_python, uri)
        Histories(root, chaos, engines, dice, spark.ask).run(14)
        engines.close()
        spark.process.kill()
        spark.process.communicate()


@pytest.mark.parametrize("seed", range(3))
def test_no_byte_that_it_wrote_of_a_person_is_left_after_an_erasure(
    root: Path, engines_python: Path, seed: int
) -> None:
    python_of_spark()
    between = Between(catalog_of(f"file://{root}", write=True))
    for uri in served(between):  # type: ignore[arg-type]
        spark, engines = Sql(uri), Engines(engines_python, uri)
        persons = Persons(root, engines, between, seed, spark.ask)
        for _ in range(14):
            persons.step()
        for checksum in root.rglob("*.crc"):  # of files that Spark wrote to this disk
            checksum.unlink()
        persons.erase()
        engines.close()
        spark.process.kill()
        spark.process.communicate()


def test_its_statements_are_commits_of_the_table(root: Path, sql: Sql) -> None:
    sql(
        "CREATE TABLE lake.tables.t (id INT, s STRING, at TIMESTAMP) USING iceberg "
        "PARTITIONED BY (days(at), bucket(4, id))"
    )
    sql(
        "INSERT INTO lake.tables.t VALUES (1, 'a', TIMESTAMP '2026-01-01 10:00:00'), (2, NULL, NULL)"
    )
    first = inlay.open(f"file://{root}/t").version
    sql("INSERT OVERWRITE lake.tables.t SELECT 5, 'o', TIMESTAMP '2026-03-01 10:00:00'")
    assert ids(root) == [(5, "o")]
    for change in (
        "ADD COLUMN n INT",
        "RENAME COLUMN n TO m",
        "ALTER COLUMN m TYPE BIGINT",
        "ALTER COLUMN id TYPE BIGINT",
        "ALTER COLUMN m AFTER id",
        "ADD PARTITION FIELD truncate(2, s)",
        "DROP PARTITION FIELD bucket(4, id)",
        "DROP COLUMN m",
        "SET TBLPROPERTIES ('a' = 'b')",
    ):
        sql(f"ALTER TABLE lake.tables.t {change}")
    sql("INSERT INTO lake.tables.t VALUES (6, 'p', NULL)")
    assert ids(root) == [(5, "o"), (6, "p")]
    # Branches and tags.
    sql("ALTER TABLE lake.tables.t CREATE TAG g")
    sql("ALTER TABLE lake.tables.t CREATE BRANCH b")
    sql("INSERT INTO lake.tables.t.branch_b VALUES (7, 'b', NULL)")
    sql("DELETE FROM lake.tables.t.branch_b WHERE id = 5")
    sql("INSERT INTO lake.tables.t VALUES (8, 'q', NULL)")
    assert ids(root, ref="b") == [(6, "p"), (7, "b")]
    of_b = sql("SELECT id FROM lake.tables.t VERSION AS OF 'b' ORDER BY id")
    assert of_b == [{"id": 6}, {"id": 7}]
    assert "not an ancestor" in str(
        sql.ask("CALL lake.system.fast_forward('tables.t', 'main', 'b')")
    )
    sql("CALL lake.system.set_current_snapshot(table => 'tables.t', ref => 'g')")
    assert ids(root) == ids(root, ref="g") == [(5, "o"), (6, "p")]
    sql("ALTER TABLE lake.tables.t CREATE BRANCH c")
    sql("INSERT INTO lake.tables.t.branch_c VALUES (9, 'c', NULL)")
    for name in ("BRANCH b", "BRANCH c", "TAG g"):
        sql(f"ALTER TABLE lake.tables.t DROP {name}")
    assert ids(root) == [(5, "o"), (6, "p")]
    [before] = sql("SELECT snapshot_id FROM lake.tables.t.snapshots ORDER BY committed_at LIMIT 1")
    sql(f"CALL lake.system.rollback_to_snapshot('tables.t', {before['snapshot_id']})")
    assert inlay.open(f"file://{root}/t").version > first
    shown = sql("SELECT id, s FROM lake.tables.t ORDER BY id")
    assert [(r["id"], r["s"]) for r in shown] == ids(root)
    # Replaced, and what is refused by name.
    sql("CREATE OR REPLACE TABLE lake.tables.t USING iceberg AS SELECT 7L AS id, 'x' AS s")
    assert ids(root) == [(7, "x")]
    for statement, why in (
        ("ALTER TABLE lake.tables.t WRITE ORDERED BY id", "sort order"),
        ("ALTER TABLE lake.tables.t CREATE TAG h RETAIN 7 DAYS", "kept until it is dropped"),
        ("ALTER TABLE lake.tables.t RENAME TO lake.tables.u", "does not support endpoint"),
        ("CREATE NAMESPACE lake.other", "does not support endpoint"),
        ("CALL lake.system.expire_snapshots('tables.t')", "GC is disabled"),
        ("CALL lake.system.remove_orphan_files('tables.t')", "GC is disabled"),
    ):
        assert why in str(sql.ask(statement)), statement
    check(root)


def test_the_pipeline_of_orders_runs_in_plain_sql(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of its steps compares the orders with DuckDB's, in a scan and in Spark."""
    session = shlex.join([python_of_spark(), str(PROGRAM), "rest"])
    size = ["--scale", "0.001", "--changes", "200", "--keep", str(tmp_path / "kept")]
    orders_sql.main([*size, "--session", session])
    said = capsys.readouterr().out
    assert said.count("checked: ") == orders_sql.LANDINGS + 3, said
    orders = inlay.open(f"file://{tmp_path}/kept/tables/orders")
    assert orders.snapshot.primary_key == (1,)
    by = orders.inspect.history()["operation"].to_pylist()
    assert {"engine", "compact", "erase"} <= set(by)
    for name in ("orders", "order_changes", "lineitem"):
        found = inlay.open(f"file://{tmp_path}/kept/tables/{name}").maintain.verify(depth="pages")
        assert found.errors == ()

"""Spark with Iceberg Java: it reads what is published, and what it writes can be adopted.

Needs a separate environment, which nothing here installs: `pip install 'pyspark==3.5.*'
snowpark-connect-deps-iceberg` into one, its Python as INLAY_ICEBERG_JAVA.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.errors import ForeignCommit, Unpublishable
from inlay.table import Table

from .histories import History
from .shapes import Shape
from .test_histories import STEPS, published

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]
PROGRAM = Path(__file__).with_name("by_spark.py")
# What Spark lacks, or Iceberg Java does: a table with one of these is refused by name.
KNOWN = ("does not support time", "UINT_8", "UINT_16")


@pytest.fixture(scope="session")
def spark() -> Callable[..., list[Any]]:
    python = os.environ.get("INLAY_ICEBERG_JAVA")
    if not python:
        pytest.skip("INLAY_ICEBERG_JAVA names no Python with pyspark 3.5 and Iceberg's jar")

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

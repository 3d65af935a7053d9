"""Streaming into a table: every micro-batch once, whatever is repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.spark.sink import commit_batch

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


class Landing:
    """A folder of JSON files that a query reads, one file a batch, into a table."""

    def __init__(self, spark: Any, folder: Path, table: inlay.Table) -> None:
        self.spark, self.folder, self.table = spark, folder, table
        self.checkpoint = folder / "checkpoint"
        self.files = 0
        (folder / "in").mkdir()

    def drop(self, *ids: int) -> None:
        lines = "".join(f'{{"id": {i}, "name": "n{i}"}}\n' for i in ids)
        (self.folder / "in" / f"{self.files}.json").write_text(lines)
        self.files += 1

    def run(self) -> None:
        """Everything there is, then stop."""
        rows = (
            self.spark.readStream.schema("id bigint, name string")
            .option("maxFilesPerTrigger", 1)
            .json(str(self.folder / "in"))
        )
        query = (
            rows.writeStream.format("inlay")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start(self.table.uri)
        )
        query.awaitTermination()
        self.table.refresh()

    def forget_last_commit(self) -> None:
        """As a driver that died after the table's commit and before its own checkpoint."""
        commits = self.checkpoint / "commits"
        last = max((p for p in commits.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def landing(spark: Any, tmp_path: Path, new_table: NewTable) -> Landing:
    return Landing(spark, tmp_path, new_table(SCHEMA))


def ids(table: inlay.Table) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())


def test_a_query_killed_before_its_checkpoint_adds_its_batch_once(landing: Landing) -> None:
    landing.drop(1, 2)
    landing.drop(3)
    landing.run()
    assert ids(landing.table) == [1, 2, 3]
    assert landing.table.version == 3  # one commit for each batch
    landing.forget_last_commit()
    landing.drop(4)
    landing.run()
    assert ids(landing.table) == [1, 2, 3, 4]
    assert landing.table.version == 4


def test_a_batch_is_known_after_the_ledger_forgot_its_request(new_table: NewTable) -> None:
    table = new_table(pa.table({"id": [1], "name": ["a"]}, schema=SCHEMA))
    [file] = table.entries()[0]
    started_us = table.snapshot.commit.time_us
    copies = [replace(file, key=f"{file.key}{n}") for n in range(3)]
    assert commit_batch(table.uri, "q", 0, (copies[0],), started_us)
    assert commit_batch(table.uri, "q", 1, (copies[1],), started_us)
    table.refresh()
    assert dict(table.snapshot.ledger.streams) == {"q": 1}
    # An old batch, its request long out of the ledger: the last batch alone tells.
    assert not commit_batch(table.uri, "q", 0, (copies[2],), started_us)
    assert commit_batch(table.uri, "another query", 0, (copies[2],), started_us)


def test_rows_that_do_not_fit_fail_the_query_and_not_the_table(
    spark: Any, tmp_path: Path, new_table: NewTable
) -> None:
    table = new_table(SCHEMA)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": "one"}\n')
    rows = spark.readStream.schema("id string").json(str(tmp_path / "in"))
    query = (
        rows.writeStream.format("inlay")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(table.uri)
    )
    with pytest.raises(Exception, match="column 'id' is string in the data"):
        query.awaitTermination()
    assert table.refresh().version == 1

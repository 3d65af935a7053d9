"""One Spark session for the whole run, and tables in a folder that Spark's processes can read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import inlay
from inlay.spark import local_session

if TYPE_CHECKING:
    from inlay.local.s3server import AwsProcess

# 3 files of 4 row groups each.
ROWS_PER_FILE = 400

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="session")
def spark(embedded_aws: AwsProcess) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as environment:
        # Spark's Python processes inherit what the session was started with.
        for name, value in embedded_aws.env().items():
            environment.setenv(name, value)
        session = local_session(app="inlay tests")
    # Task failures are provoked here; their stack traces are not what a reader of the log looks for.
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(params=["pushdown", "no pushdown"])
def either_way(spark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The session with the setting on, then off."""
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, str(request.param == "pushdown").lower())
    yield spark
    spark.conf.set(PUSHDOWN, before)


@pytest.fixture
def new_table(tmp_path: Path) -> Callable[..., inlay.Table]:
    """`new_table(schema or rows, **options of create)`; rows are appended as one file."""
    numbers = itertools.count()

    def create(data: pa.Schema | pa.Table, **options: Any) -> inlay.Table:
        schema = data if isinstance(data, pa.Schema) else data.schema
        table = inlay.create(f"file://{tmp_path}/table {next(numbers)}", schema, **options)
        if isinstance(data, pa.Table):
            table.append(data)
        return table

    return create


def load(spark: Any, table: inlay.Table, **options: Any) -> Any:
    return spark.read.format("inlay").options(**options).load(table.uri)


def sorted_rows(table: pa.Table, *by: str) -> list[dict[str, Any]]:
    return table.sort_by([(name, "ascending") for name in by]).to_pylist()


def rows(start: int, number: int = ROWS_PER_FILE) -> pa.Table:
    ids = range(start, start + number)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([None if i % 7 == 0 else f"name {i % 50}" for i in ids]),
            "amount": pa.array([i / 4 for i in ids], pa.float64()),
        },
        schema=pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("name", pa.string()),
                pa.field("amount", pa.float64()),
            ]
        ),
    )


def three_files(new_table: Callable[..., inlay.Table]) -> inlay.Table:
    table = new_table(
        rows(0).schema, primary_key="id", properties={"write.row_group_rows": ROWS_PER_FILE // 4}
    )
    for start in range(0, 3 * ROWS_PER_FILE, ROWS_PER_FILE):
        table.append(rows(start))
    return table


@pytest.fixture
def with_every_delete(new_table: Callable[..., inlay.Table]) -> inlay.Table:
    """Files from 0, 400 and 800 with a delete of each kind, and a file that came after most of them."""
    table = three_files(new_table)
    first, second, third = table.inspect.files().column("key").to_pylist()
    table.delete("id BETWEEN 10 AND 19")  # a range of the key
    table.delete("name = 'name 3'")  # any predicate, no rows without a name
    table.delete(keys=pa.table({"id": pa.array(range(450, 800, 3), pa.int64())}))  # a file of keys
    table.delete("id IN (401, 402, 403)", mode="vector")  # positions in the marker
    table.delete("amount > 225 AND amount < 260", mode="vector")  # a bitmap in a Puffin file
    table.maintain.delete_row_groups(third, [3])
    table.delete("id = 30", file=first)
    table.delete("id = 420", file=first)  # hits nothing: the row is in the second file
    table.append(rows(10, 5))  # rows that came after the deletes are there again
    table.delete("id = 12", mode="rewrite")
    assert second in table.inspect.files().column("key").to_pylist()
    return table

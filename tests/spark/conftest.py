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
    from inlay.local.aws_process import AwsProcess

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

"""Readers: the same figures of the same table by Arrow, DuckDB and Spark."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

import inlay
from inlay.local.demo.figures import COLUMNS, EXPRESSIONS, SQL, Figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Reader(Protocol):
    @property
    def name(self) -> str: ...

    def read(self, uri: str, version: int) -> Figures:
        """The figures of the table at `uri` as of `version`."""
        ...


class ArrowReader:
    """The library's own scan, added up batch by batch."""

    name = "Arrow"

    def read(self, uri: str, version: int) -> Figures:
        rows, quantity, price, keys = 0, Decimal(0), Decimal(0), 0
        for batch in inlay.open(uri, version=version).scan(columns=COLUMNS).to_reader():
            rows += batch.num_rows
            quantity += pc.sum(batch["l_quantity"]).as_py() or 0
            price += pc.sum(batch["l_extendedprice"]).as_py() or 0
            lines = batch["l_linenumber"].cast(pa.int64())
            keys += pc.sum(pc.add(pc.multiply(batch["l_orderkey"], 8), lines)).as_py() or 0
        return Figures(rows, quantity, price, keys)


class DuckReader:
    """DuckDB, fed by the Arrow stream of a scan."""

    name = "DuckDB"

    def __init__(self) -> None:
        import duckdb

        self._db: Any = duckdb.connect()

    def read(self, uri: str, version: int) -> Figures:
        scan = inlay.open(uri, version=version).scan(columns=COLUMNS)
        self._db.register("lineitem", scan.to_reader())
        (row,) = self._db.execute(f"SELECT {SQL} FROM lineitem").fetchall()
        return Figures.of(row)


class SparkReader:
    """`inlay.spark.read`. The session starts in the background: it takes seconds, and the
    first steps of the demo need none."""

    name = "Spark"

    def __init__(self, log: Path) -> None:
        self._log = log
        self._spark: SparkSession | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._start, name="spark-session", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        try:
            from inlay.spark import local_session

            with _stderr_to(self._log):
                self._spark = local_session(app="inlay local demo")
        except BaseException as error:
            self._error = error

    def read(self, uri: str, version: int) -> Figures:
        self._thread.join()
        if self._spark is None:
            raise RuntimeError("the Spark session did not start") from self._error
        from inlay.spark import read

        frame = read(self._spark, uri, columns=COLUMNS, version=version)
        return Figures.of(frame.selectExpr(*EXPRESSIONS).collect()[0])

    def close(self) -> None:
        self._thread.join()
        if self._spark is not None:
            self._spark.stop()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Processes started meanwhile write their complaints to a file: the JVM greets with several lines
    before Spark can be told to be quiet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ours = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def spark_installed() -> bool:
    return importlib.util.find_spec("pyspark") is not None

"""Readers: the same figures of the same table by Arrow, DuckDB and Spark and, once it is published, by
engines that do not know Inlay, through a catalog."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

import inlay
from inlay.local.demo.figures import COLUMNS, EXPRESSIONS, SQL, Figures
from inlay.local.demo.world import Mismatch

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


class Engines:
    """DuckDB and pyiceberg in an environment of their own (`make engines`), reading and writing through a
    catalog of the published tables under `tables`."""

    def __init__(self, python: Path, tables: str, log: Path) -> None:
        from inlay.cli.serving import CatalogServer, catalog_of

        self._server = CatalogServer(catalog_of(tables, write=True), "127.0.0.1", 0)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log.open("ab")
        self._program = subprocess.Popen(
            [
                *(str(python), "-W", "ignore", str(Path(__file__).with_name("engines.py"))),
                f"http://127.0.0.1:{self._server.server_port}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def read(self, engine: str, uri: str) -> Answer:
        """What `engine` reads of the table at `uri`."""
        answer = self._ask("read", engine, uri, SQL)
        return Answer(Figures.of(answer["row"]), int(answer["version"]))

    def write(self, engine: str, uri: str, text: str) -> None:
        """Have `engine` write to the table at `uri` (see the program)."""
        self._ask("write", engine, uri, text)

    def _ask(self, verb: str, engine: str, uri: str, text: str) -> Any:
        *_, namespace, table = uri.split("/")
        named = f'{namespace}."{table}"' if engine == "duckdb" else f"{namespace}.{table}"
        assert self._program.stdin is not None and self._program.stdout is not None
        self._program.stdin.write(f"{verb} {engine} {named} {text}\n")
        self._program.stdin.flush()
        answer = json.loads(self._program.stdout.readline() or '{"error": "it ended"}')
        if "error" in answer:
            raise Mismatch(f"{engine} cannot {verb} the published table: {answer['error']}")
        return answer

    def close(self) -> None:
        self._program.terminate()
        self._program.wait()
        self._log.close()
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine read, and which version of the table that was."""

    figures: Figures
    version: int


@dataclass(frozen=True, slots=True)
class EngineReader:
    """One of the engines, which reads what is published."""

    engines: Engines
    engine: str
    name: str

    def read(self, uri: str) -> Answer:
        return self.engines.read(self.engine, uri)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Processes started meanwhile write their complaints to a file: the JVM greets with several lines
    before Spark's log level can be set."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ours = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def engines_python(template: Path) -> Path | None:
    """The Python of `make engines`, or of INLAY_ENGINES, if there is one."""
    named = os.environ.get("INLAY_ENGINES")
    python = Path(named) if named else template.parent / ".tools" / "engines" / "bin" / "python"
    return python if python.exists() else None


def spark_installed() -> bool:
    return importlib.util.find_spec("pyspark") is not None

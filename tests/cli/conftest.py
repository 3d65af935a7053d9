"""The command line as a person or a program meets it: stdout, stderr and the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from inlay.cli.app import app


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


@pytest.fixture
def inlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `inlay …` in an empty folder. An exception that is not an exit fails the test."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()

    def run(*arguments: str, code: int = 0) -> Ran:
        result = runner.invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == code, result.stderr or result.stdout
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def people(inlay: Run, tmp_path: Path) -> str:
    """A table of three people."""
    (tmp_path / "people.csv").write_text(
        "id,name,born\n1,Ada,1815-12-10\n2,Bob,1950-01-01\n3,Cy,1990-05-05\n"
    )
    columns = "id bigint not null, name string, born date"
    inlay("create", "people", "--schema", columns, "--primary-key", "id")
    inlay("append", "people", "people.csv")
    return "people"

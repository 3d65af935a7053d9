"""The verbs for tags and branches, as a shell gives them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inlay.cli.app import app


@pytest.fixture
def run(tmp_path: Path):
    table = str(tmp_path / "people")

    def call(verb: str, *more: str, code: int = 0) -> list[dict]:
        done = CliRunner().invoke(app, [verb, table, *more, "--json"])
        assert done.exit_code == code, (verb, done.output, done.exception)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    data = tmp_path / "rows.csv"
    data.write_text("id\n1\n2\n", encoding="utf-8")
    call("create", "--schema", "id bigint")
    call("append", str(data))
    call.data = str(data)  # type: ignore[attr-defined]
    return call


def test_a_branch_is_made_written_read_merged_and_dropped(run) -> None:
    run("branch", "trial")
    run("append", run.data, "--ref", "trial")
    run("delete", "--where", "id = 1", "--ref", "trial")
    assert run("count") == [{"rows": 2, "version": 5}]
    assert run("count", "--ref", "trial")[0]["rows"] == 2
    run("append", run.data)
    run("merge", "trial", "--fast-forward", code=2)
    [done] = run("merge", "trial")
    assert (done["operation"], done["committed"]) == ("merge_branch", True)
    assert run("count")[0]["rows"] == 4
    run("drop-ref", "trial")
    assert [r["name"] for r in run("refs")] == ["main"]
    run("scan", "--ref", "trial", code=2)


def test_a_held_tag_cannot_be_dropped_and_a_table_goes_back_to_it(run) -> None:
    run("tag", "good", "--hold")
    run("delete", "--where", "id = 2")
    run("drop-ref", "good", code=2)
    run("restore", "--ref", "good")
    assert run("count")[0]["rows"] == 2
    run("tag", "good", "--release")
    run("drop-ref", "good")
    run("restore", "--version", "1")
    assert run("count")[0]["rows"] == 0

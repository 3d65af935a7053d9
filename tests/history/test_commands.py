"""`inlay history`, `inlay diff` and `inlay inspect`, as a person and as a program meet them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Run

from inlay import open as open_table


@pytest.fixture
def lived(inlay: Run, people: str) -> str:
    """Versions: 1 create, 2 append, 3 append, 4 delete, 5 compact."""
    inlay("append", people, "people.csv", "--request-id", "second-time")
    inlay("delete", people, "--where", "id = 2")
    inlay("compact", people)
    return people


def test_history_shows_when_what_and_who(inlay: Run, lived: str) -> None:
    open_table(lived).refs.tag("early", 2)
    out = inlay("history", lived).out
    assert "request, branch, refs" in out
    assert "second-time" in out and "[early]" in out
    first = inlay("history", lived, "--json").lines[-1]
    assert (first["version"], first["operation"], first["request"]) == (1, "create", None)


def test_messages_and_metadata_are_kept_with_their_version(inlay: Run, people: str) -> None:
    why = ("-m", "late rows\nof May", "--metadata", "ticket=OPS-7", "--metadata", "job=17")
    inlay("append", people, "people.csv", *why)
    inlay("delete", people, "--where", "id = 2", "--message", "asked for")
    for verb in (
        ("update", people, "--set", "name = 'Z'"),
        ("upsert", people, "people.csv", "--on-duplicate", "last"),
        ("alter", people, "--add", "n int"),
        ("set", people, "my.owner=me"),
        ("partition", people, "bucket(4, id)"),
        ("restore", people, "--version", "2"),
    ):
        inlay(*verb, "-m", f"by {verb[0]}")
    lines = {line["version"]: line for line in inlay("history", people, "--json").lines}
    assert (lines[3]["message"], lines[3]["metadata"]) == (
        "late rows\nof May",
        {"ticket": "OPS-7", "job": "17"},
    )
    assert (lines[2]["message"], lines[2]["metadata"]) == (None, {})
    assert [lines[n]["message"] for n in range(4, 11)] == [
        "asked for",
        *(f"by {v}" for v in ("update", "upsert", "alter", "set", "partition", "restore")),
    ]
    assert "late rows\\nof May; ticket=OPS-7; job=17" in inlay("history", people).out
    assert "“by restore”" in inlay("inspect", people).out
    refused = inlay("append", people, "people.csv", "--metadata", "ticket", code=2)
    assert "NAME=VALUE" in refused.err
    inlay("set", people, "message=x", code=2)
    inlay("set", people, "metadata=", code=2)


def test_a_history_without_messages_has_no_column_of_them(inlay: Run, lived: str) -> None:
    assert "message" not in inlay("history", lived).out


def test_diff_sums_up_by_operation(inlay: Run, lived: str) -> None:
    found = {line["operation"]: line for line in inlay("diff", lived, "2", "--json").lines}
    assert list(found) == ["append", "delete", "compact"]
    append, delete, compact = found.values()
    assert (append["versions"], append["added_rows"], append["added_files"]) == (1, 3, 1)
    assert delete["added_markers"] == 1
    assert (compact["added_files"], compact["removed_files"]) == (1, 2)
    assert compact["removed_bytes"] > compact["added_bytes"] > 0
    assert "+ rows" in inlay("diff", lived, "2").out
    assert "nothing happened" in inlay("diff", lived, "5", "5").err


def test_diff_shows_the_rows(inlay: Run, lived: str, tmp_path: Path) -> None:
    lines = inlay("diff", lived, "2", "--rows", "--columns", "id", "--json").lines
    told = [(line["_commit_version"], line["_change_type"], line["id"]) for line in lines]
    assert sorted(told[:3]) == [(3, "insert", 1), (3, "insert", 2), (3, "insert", 3)]
    assert told[3:] == [(4, "delete", 2), (4, "delete", 2)]
    net = inlay("diff", lived, "2", "--net", "--json").lines
    assert sorted((line["_change_type"], line["id"]) for line in net) == [
        ("delete", 2),
        ("insert", 1),
        ("insert", 3),
    ]
    inlay("diff", lived, "0", "--where", "id = 1", "--output", "changes.parquet")
    assert pq.read_table(tmp_path / "changes.parquet")["id"].to_pylist() == [1, 1]
    header, *_ = inlay("diff", lived, "2", "--rows").out.splitlines()
    assert header.split(",")[-3:] == ["_change_type", "_commit_version", "_commit_timestamp"]


def test_diff_refuses_versions_that_cannot_be_compared(inlay: Run, lived: str) -> None:
    assert "is not before version 2" in inlay("diff", lived, "4", "2", code=2).err
    assert "no version 9" in inlay("diff", lived, "2", "9", code=2).err
    inlay("expire", lived, "--older-than", "0s", "--min-versions", "1")
    assert "have expired" in inlay("diff", lived, "1", "--rows", code=2).err


def test_inspect_prints_a_tree_and_gives_a_program_all_of_it(inlay: Run, lived: str) -> None:
    out = inlay("inspect", lived, "--where", "id = 1").out
    assert "data files  1" in out and "reads 1 of 1 files" in out
    facts = inlay("inspect", lived, "--where", "id = 1", "--json").json
    assert facts["query"]["read"] == 1
    assert facts["table"]["version"] == 5
    old = inlay("inspect", lived, "--version", "3", "--json").json
    assert (old["table"]["version"], old["table"]["files"]) == (3, 2)


def test_inspect_writes_one_page(inlay: Run, lived: str, tmp_path: Path) -> None:
    inlay("inspect", lived, "--html", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert inlay("inspect", lived, "--html", "-").out.startswith("<!doctype html>")
    data = page.split('id="report">')[1].split("</script>")[0]
    assert json.loads(data)["table"]["version"] == 5

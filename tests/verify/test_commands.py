"""`inlay verify` and `inlay repair` as a person or a program meets them."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.conftest import inlay as inlay
from tests.cli.conftest import people as people


def test_verify_says_what_it_looked_at(inlay: Run, people: str) -> None:
    out = inlay("verify", people).out
    assert "people at version 2: looked at 2 versions" in out
    assert "1 file of" in out
    assert "no errors" in out


def test_verify_gives_a_program_everything(inlay: Run, people: str) -> None:
    found = inlay("verify", people, "--depth", "pages", "--json").json
    assert found["ok"] is True
    assert (found["version"], found["files"], found["findings"]) == (2, 1, [])


def test_errors_name_object_and_next_step_and_end_with_70(inlay: Run, people: str) -> None:
    lost = next(Path(people, "data").rglob("*.parquet"))
    lost.unlink()
    key = lost.relative_to(people).as_posix()
    ran = inlay("verify", people, code=70)
    assert "file_missing" in ran.out and key in ran.out and "next: " in ran.out
    assert "1 error" in ran.out
    (found,) = inlay("verify", people, "--json", code=70).json["findings"]
    assert (found["severity"], found["kind"], found["key"]) == ("error", "file_missing", key)


def test_notes_are_no_errors(inlay: Run, people: str) -> None:
    Path(people, "notes.txt").write_text("mine")
    out = inlay("verify", people).out
    assert "unknown_objects" in out and "no errors" in out


def test_a_lost_pointer_is_rebuilt_after_a_dry_run(inlay: Run, people: str) -> None:
    Path(people, "_latest_manifest").unlink()
    inlay("scan", people, code=2)
    assert "pointer_missing" in inlay("verify", people, code=70).out
    dry = inlay("repair", people).out
    assert "would rebuild the pointer on version 1" in dry
    assert "lost  version 2" in dry
    assert not Path(people, "_latest_manifest").exists()
    assert "at version 2" in inlay("repair", people, "--apply").out
    assert inlay("count", people).out.strip() == "0"
    assert "nothing to mend" in inlay("repair", people, "--apply").out


def test_a_repair_that_must_refuse_ends_with_70(inlay: Run, people: str) -> None:
    next(Path(people, "data").rglob("*.parquet")).unlink()
    found = inlay("repair", people, "--json", code=70).json
    assert found["ok"] is False and found["mends"] == []
    assert [f["kind"] for f in found["refused"]] == ["file_missing"]


def test_where_there_is_no_table_the_input_is_wrong(inlay: Run) -> None:
    assert "no table" in inlay("verify", "./nowhere", code=2).err
    assert "no table" in inlay("repair", "./nowhere", code=2).err


def test_an_unknown_depth_is_refused(inlay: Run, people: str) -> None:
    assert "metadata, footers, pages" in inlay("verify", people, "--depth", "deep", code=2).err

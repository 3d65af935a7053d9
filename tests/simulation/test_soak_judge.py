"""The judge of `make soak-commits` finds each way in which a table can differ from the journal."""

from __future__ import annotations

import importlib.util
import io
import json
import random
import subprocess
import sys
from collections import Counter
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "benchmarks/soak_commits.py"
TABLE = "one"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("soak_commits", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["soak_commits"] = module
    spec.loader.exec_module(module)
    return module


soak = load()


def ran(*arguments: str) -> int:
    """The soak's exit code, as a process: its own processes import it by name."""
    return subprocess.run([sys.executable, SOURCE, *arguments], check=False).returncode


class Life:
    """A table as its processes and its historian noted it. Each step is a version."""

    def __init__(self) -> None:
        self.journal: list[dict[str, Any]] = []
        self.versions: list[dict[str, Any]] = []
        self.note("create", None, [])

    def note(self, operation: str, request: str | None, rows: list[list[int]]) -> None:
        version = len(self.versions) + 1
        self.versions.append(
            {
                "uri": "u",
                "table": TABLE,
                "version": version,
                "commit": f"c{version}",
                "operation": operation,
                "request": request,
                "branch": None,
                "oldest": 1,
                "rows": sorted(rows),
            }
        )

    def do(self, kind: str, number: int, rows: list[list[int]], *, told=True, **more: Any) -> None:
        version = len(self.versions) + 1
        asked = {"uri": "u", "request": f"r{version}", "table": TABLE, "base": version - 1}
        asked |= {"kind": kind, "id": number, "value": number, **more}
        self.journal.append(asked | {"about": True})
        if told:
            done = {"committed": True, "version": version, "commit": f"c{version}"}
            self.journal.append(asked | done)
        operation = kind if kind == "restore" else "append"
        self.note(operation, None if kind == "restore" else f"r{version}", rows)

    def judged(self, **more: Any) -> list[str]:
        return soak.judge(deepcopy(self.journal), deepcopy(self.versions), **more)


@pytest.fixture
def life() -> Life:
    """Versions: 2 to 4 append 1, 2, 3; 5 deletes 1; 6 updates 2 to 9; 7 restores 4; 8 appends 4."""
    found = Life()
    found.do("append", 1, [[1, 1]])
    found.do("append", 2, [[1, 1], [2, 2]])
    found.do("append", 3, [[1, 1], [2, 2], [3, 3]], told=False)
    found.do("delete", 1, [[2, 2], [3, 3]])
    found.do("update", 2, [[2, 9], [3, 3]], value=9)
    found.do("restore", 0, [[1, 1], [2, 2], [3, 3]], to=4)
    found.do("append", 4, [[1, 1], [2, 2], [3, 3], [4, 4]])
    return found


def test_what_went_as_it_was_asked_is_right(life):
    kept = {(TABLE, 8): Counter([(1, 1), (2, 2), (3, 3), (4, 4)])}
    assert life.judged(kept=kept) == []


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("change", ["lacks", "has more", "twice"])
def test_a_version_with_other_rows_is_found(life, version, change):
    rows = life.versions[version - 1]["rows"]
    if change == "lacks":
        rows.pop()
    else:
        rows.append(rows[0] if change == "twice" else [77, 77])
    assert any(f"version {version}" in found for found in life.judged())


def test_an_acknowledged_commit_that_another_replaced_is_found(life):
    life.versions[2] |= {"commit": "other", "request": None, "rows": life.versions[1]["rows"]}
    assert any("acknowledged and lost" in found for found in life.judged())
    assert not any(
        "acknowledged and lost" in found for found in life.judged(lost=frozenset(["c3"]))
    )


def test_a_version_that_became_another_is_found_but_for_the_one_an_operator_overwrote(life):
    again = dict(life.versions[7], commit="mended", request=None, operation="repair")
    again["rows"] = life.versions[6]["rows"]
    life.versions.append(again)
    overwritten = {"lost": frozenset(["c8"]), "went_on": {(TABLE, 8): 7}}
    assert any("it was the commit" in found for found in life.judged())
    assert life.judged(**overwritten) == []
    again["rows"] = life.versions[5]["rows"]
    assert any("too many" in found for found in life.judged(**overwritten))


def test_a_request_that_was_applied_twice_is_found(life):
    life.note("append", "r8", life.versions[7]["rows"])
    assert any("applied 2 times" in found for found in life.judged())


def test_acknowledged_rows_are_looked_for_beyond_versions_that_ended_unread(life):
    """Versions 3 to 5 were ended by an erasure before the historian came."""
    del life.versions[2:5]
    for note in life.versions[2:]:
        note["oldest"] = 6
    life.journal = [n for n in life.journal if n["kind"] != "restore"]
    del life.versions[3]  # the restore
    life.versions[3]["rows"] = [[2, 9], [3, 3], [4, 4]]
    assert life.judged() == []
    life.versions[2]["rows"] = [[3, 3]]  # version 6 without the row that version 3 added
    assert any("version 6" in found for found in life.judged())


def test_a_version_that_reads_otherwise_at_the_end_is_found(life):
    kept = {(TABLE, 5): Counter([(2, 2)])}
    assert any("has changed since it was new" in found for found in life.judged(kept=kept))


def test_erased_rows_that_are_there_at_the_end_are_found(life):
    life.do("erase", 3, [[1, 1], [2, 2], [4, 4]])
    assert life.judged(kept={(TABLE, 9): Counter([(1, 1), (2, 2), (4, 4)])}) == []
    back = {(TABLE, 9): Counter([(1, 1), (2, 2), (3, 3), (4, 4)])}
    assert any("erased rows are there" in found for found in life.judged(kept=back))
    life.journal[-1]["table"] = "another"  # the row of another table
    assert not any("erased rows are there" in found for found in life.judged(kept=back))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_store_that_ignores_if_match_is_found_out():
    assert ran("--minutes", "4", "--control") == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_short_soak_finds_nothing_wrong():
    assert ran("--minutes", "2") == 0


def test_what_a_killed_process_was_about_to_restore_is_noted():
    """The judge needs it where the restore landed and its process did not live to note that."""

    class Killed(Exception):
        pass

    class Refs:
        def restore(self, *, version: int) -> None:
            raise Killed

    class Table:
        version = 9
        refs = Refs()

    class Restores(random.Random):
        def random(self) -> float:
            return 0.9  # reads no rows first

        def choice(self, _: Any) -> Any:
            return "restore"

    journal = io.StringIO()
    with pytest.raises(Killed):
        soak.change(Restores(1), Table(), {"request": "r", "table": TABLE}, 1, 0, journal)
    [about] = map(json.loads, journal.getvalue().splitlines())
    assert about["about"] and 6 <= about["to"] <= 8

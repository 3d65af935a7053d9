"""What tests cost, in CPU seconds: the one measure of them that a busy machine does not change much.

    python -m tests.cpu                     # all tests, in files that it keeps as costs.json
    python -m tests.cpu tests/plan          # of these only; the others stay as they were
    python -m tests.cpu -m "not wide and not slow"  # of the short tier
    python -m tests.cpu --one-in 7 -n2      # of each file each seventh test, for all; on two processes

Of the process of the tests and of everything below it, servers and Java included, from `/proc` (Linux).
Kept are seconds by test file and tier; `tests/unit/test_tiers.py` holds that the short tier stays
within its budget.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

KEPT = Path(__file__).with_name("costs.json")
ROOT = Path(__file__).parents[1]


def of_the_tree() -> float:
    """CPU seconds of this process and of all that it has started."""
    spent: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        children[int(fields[1])].append(int(place.name))
        # Its own in user and system mode, and that of children it has waited for.
        spent[int(place.name)] = sum(map(int, fields[11:15]))
    total, left = 0, [os.getpid()]
    while left:
        process = left.pop()
        total += spent.get(process, 0)
        left += children[process]
    return total / os.sysconf("SC_CLK_TCK")


class Recorder:
    """Appends `[test, tier, seconds, tests that it stands for]` to a file, a line each; of several workers,
    too."""

    def __init__(self, place: Path, one_in: int) -> None:
        self._place = place
        self._one_in = one_in
        self._stands_for: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        alike: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
        for item in items:
            alike[file_of(item.nodeid), tier_of(item)].append(item)
        for each in alike.values():
            kept = each[:: self._one_in]
            self._stands_for |= {item.nodeid: len(each) / len(kept) for item in kept}
        items[:] = [item for item in items if item.nodeid in self._stands_for]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = of_the_tree()
        result = yield
        seconds = round(of_the_tree() - before, 2)
        line = json.dumps([item.nodeid, tier_of(item), seconds, self._stands_for[item.nodeid]])
        with self._place.open("a") as file:
            file.write(f"{line}\n")
        return result


def file_of(test: str) -> str:
    return test.partition("::")[0]


def tier_of(item: pytest.Item) -> str:
    return "wide" if item.get_closest_marker("wide") else "short"


def by_file(lines: str) -> dict[str, dict[str, float]]:
    """Seconds by test file and tier."""
    costs: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line in lines.splitlines():
        test, tier, seconds, tests = json.loads(line)
        costs[file_of(test)][tier] += seconds * tests
    return {
        file: {tier: round(seconds, 1) for tier, seconds in sorted(tiers.items())}
        for file, tiers in sorted(costs.items())
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cpu")
    parser.add_argument(
        "--one-in", default="1", help="measure each n-th test of a file for all of them"
    )
    parser.add_argument("-m", default="not slow", help="of these marks, as pytest takes them")
    parser.add_argument("paths", nargs="*", default=["tests"])
    asked, others = parser.parse_known_args()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "cpu.jsonl")
        # Examples as the short tier draws them.
        command = [sys.executable, "-m", "pytest", "-m", asked.m, "--drawn", "0.34"]
        command += ["--cpu", str(lines)]
        command += ["--cpu-one-in", asked.one_in, *others, *asked.paths]
        done = subprocess.run(command, cwd=ROOT, check=False)
        measured = by_file(lines.read_text())
    files = sorted(file for file in {*kept, *measured} if (ROOT / file).exists())
    costs = {file: {**kept.get(file, {}), **measured.get(file, {})} for file in files}
    KEPT.write_text(json.dumps(costs, indent=1) + "\n")
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())

"""Which tests reach which statement, and how long each takes: measured once, kept, and measured again for
test files that changed.

A statement is named by its function and its line from there, so that what was measured outlives edits
elsewhere in the file; of a function that was edited since, the nearest statement before counts. It only
chooses tests: one that is not chosen can make a mutant survive, never die.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from .operators import probed, swap
from .session import ENDED, FAILED, HUNG, Fork, Forks, answers, cpu_seconds

# Without leading underscores, which a class would mangle.
PROBE = "reached_by_a_test_"
ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "layers" / "inlay" / "inlay"
KEPT = ROOT / ".mutants" / "reach.json"
# A file of the package, a function, a statement's line from that of the function.
Place = tuple[str, str, int]


@dataclass
class Reach:
    """By test file: its hash, the files of the package that were looked at, seconds of CPU by test, and by
    place (`file function line`) the tests that reach it, as ordinals among those."""

    by_file: dict[str, dict[str, Any]] = field(default_factory=dict)

    @staticmethod
    def load() -> Reach:
        return Reach(json.loads(KEPT.read_text())) if KEPT.exists() else Reach()

    def keep(self, test_file: str, measured: dict[str, Any]) -> None:
        """With what another session has measured meanwhile."""
        self.by_file |= Reach.load().by_file
        self.by_file[test_file] = measured
        KEPT.parent.mkdir(exist_ok=True)
        new = KEPT.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(self.by_file, separators=(",", ":")))
        new.replace(KEPT)

    def is_measured(self, test_file: str, files: Iterable[str]) -> bool:
        kept = self.by_file.get(test_file)
        return (
            kept is not None
            and kept["hash"] == hash_of(ROOT / test_file)
            and set(files) <= set(kept["files"])
        )

    def tests(self, file: str, function: str, statement: int) -> dict[str, float]:
        """The tests that reach a statement, with their seconds."""
        found: dict[str, float] = {}
        for kept in self.by_file.values():
            places = kept["places"].get(file, {}).get(function, {})
            lines = [int(line) for line in places if int(line) <= statement]
            if lines:
                names = list(kept["seconds"])
                for n in places[str(max(lines))]:
                    found[names[n]] = kept["seconds"][names[n]]
        return found

    def test_files(self, files: Iterable[str]) -> set[str]:
        """Those with a test that reaches one of these files of the package."""
        return {t for t, kept in self.by_file.items() if any(kept["places"].get(f) for f in files)}


def import_all(files: Iterable[str]) -> None:
    """Code can be given to functions that live: some modules are imported only when they are used."""
    for file in files:
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        importlib.import_module(f"inlay.{module}")


def hash_of(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest() if path.exists() else ""


def measure(
    forks: Forks, reach: Reach, sources: Mapping[str, str], jobs: int, say: Callable[[str], None]
) -> None:
    """Runs every collected test file whose kept measurement is old, a fork for each. `sources` are those of
    the package's files that the session has imported."""
    by_test_file: dict[str, list[str]] = defaultdict(list)
    for name in forks.items:
        by_test_file[name.partition("::")[0]].append(name)
    due = {t: names for t, names in by_test_file.items() if not reach.is_measured(t, sources)}
    if not due:
        return
    # Once, in the session: the forks have what it has.
    reached: set[Place] = set()
    as_written = swap(
        code for file in sources for code in _with_probes(file, sources[file], reached)
    )
    starts = []
    for test_file, names in due.items():

        def start(test_file: str = test_file, names: list[str] = names) -> Fork:
            return Fork.start(forks, lambda: _measured(forks, names, sources, reached))

        starts.append((test_file, start))
    for n, (test_file, answer) in enumerate(answers(starts, jobs), 1):
        if answer.startswith((FAILED, ENDED, HUNG)):
            say(f"{test_file} cannot be measured: {answer.decode()}")
            continue
        reach.keep(test_file, {"hash": hash_of(ROOT / test_file), **json.loads(answer)})
        say(f"measured {n} of {len(due)} test files: {test_file}")
    swap(as_written)


def _with_probes(file: str, source: str, reached: set[Place]) -> list[CodeType]:
    """The code of a file's functions that notes in `reached` where it is."""
    probe = f"{PROBE}{hashlib.blake2b(file.encode(), digest_size=4).hexdigest()}"
    setattr(builtins, probe, lambda place: reached.add((file, *place)))
    return probed(source, str(PACKAGE / file), probe)


def _measured(
    forks: Forks, names: Sequence[str], files: Iterable[str], reached: set[Place]
) -> bytes:
    """In a fork, whose functions note in `reached` where they are."""
    reached.clear()
    seconds: dict[str, float] = {}
    bad: set[str] = set()
    places: dict[str, dict[str, dict[int, list[int]]]] = {}

    before = cpu_seconds()

    def report(found: pytest.TestReport) -> None:
        nonlocal before
        name = found.nodeid
        # Not by the clock: how busy the machine is would choose other tests.
        seconds[name] = seconds.get(name, 0.0) + cpu_seconds() - before
        before = cpu_seconds()
        if not found.passed:
            bad.add(name)
        if found.when == "teardown":
            ordinal = list(seconds).index(name)
            if name not in bad:
                for file, function, line in reached:
                    lines = places.setdefault(file, {}).setdefault(function, {})
                    lines.setdefault(line, []).append(ordinal)
            reached.clear()

    forks.reports = report
    forks.run(names, until_failure=False)
    rounded = {name: round(took, 3) for name, took in seconds.items()}
    return json.dumps({"files": list(files), "seconds": rounded, "places": places}).encode()

"""What `make mutants` does, on small sources: which mutants there are, that one is what it says, and that
the reviewed list names mutants that exist."""

from __future__ import annotations

import ast
import builtins
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ..mutants import session
from ..mutants.__main__ import ROOMS, equivalents
from ..mutants.operators import Mutant, mutants_of, mutated, probed, swap
from ..mutants.reach import PACKAGE
from ..mutants.session import (
    Fork,
    Forks,
    _has_polars_threads,
    answers,
    limit_cpu,
)

SOURCE = '''
from functools import lru_cache

LIMIT = 5 < 6  # evaluated at import: no mutant

def below(x: int, y: int = 3) -> bool:
    """Not 3 < 4."""
    if x < y and not x == 7:
        return any(n >= x for n, _ in zip((1, 2), 'ab', strict=True))
    assert x > 0
    return False

class Box:
    @property
    def size(self) -> int:
        return self._size + 1

    @size.setter
    def size(self, value: int) -> None:
        self._size = value - 1

@lru_cache
def cached(x: int) -> int:
    return x * 2

def loud(x: int) -> int:
    if x > 3:
        raise ValueError(f"{x + 1} > 3" + str(x - 1))
    return x

def chosen(x: int) -> str:
    match x:
        case 1:
            return "one"
        case _ if x > 9:
            return "many"
    return ""
'''


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    path = tmp_path / "sample.py"
    path.write_text(SOURCE)
    found = ModuleType("sample")
    exec(compile(SOURCE, str(path), "exec"), found.__dict__)
    found.__file__ = str(path)
    yield found


def put(module: ModuleType, mutant: Mutant) -> None:
    path = str(module.__file__)
    code = mutated(mutant, SOURCE, path)
    assert len(swap([code])) == 1


def named(part: str) -> Mutant:
    [found] = [m for m in mutants_of("sample.py", SOURCE) if part in m.name]
    return found


def test_the_mutants_of_a_source() -> None:
    names = [m.name for m in mutants_of("sample.py", SOURCE)]
    assert len(set(names)) == len(names)
    assert names == [
        "below: if x < y and not x == 7: [And -> Or]",
        "below: if x < y and not x == 7: [Lt -> LtE]",
        "below: if x < y and not x == 7: [not -> ]",
        "below: if x < y and not x == 7: [Eq -> NotEq]",
        "below: if x < y and not x == 7: [7 -> 8]",
        "below: return any(n >= x for n, _ in zip((1, 2), 'ab', strict=True)) [any -> all]",
        "below: return any(n >= x for n, _ in zip((1, 2), 'ab', strict=True)) [GtE -> Gt]",
        "below: return any(n >= x for n, _ in zip((1, 2), 'ab', strict=True)) [1 -> 2]",
        "below: return any(n >= x for n, _ in zip((1, 2), 'ab', strict=True)) [2 -> 3]",
        "below: return False [False -> True]",
        "Box.size: return self._size + 1 [Add -> Sub]",
        "Box.size: return self._size + 1 [1 -> 2]",
        "Box.size#2: self._size = value - 1 [Sub -> Add]",
        "Box.size#2: self._size = value - 1 [1 -> 2]",
        "cached: return x * 2 [Mult -> FloorDiv]",
        "cached: return x * 2 [2 -> 3]",
        "loud: if x > 3: [Gt -> GtE]",
        "loud: if x > 3: [3 -> 4]",
        "chosen: case _ if x > 9: [Gt -> GtE]",
        "chosen: case _ if x > 9: [9 -> 10]",
    ]


@pytest.mark.parametrize(
    ("part", "call", "before", "after"),
    [
        ("[Lt -> LtE]", lambda m: m.below(2, 2), False, True),
        ("[not -> ]", lambda m: m.below(1), True, False),
        ("[any -> all]", lambda m: m.below(2), True, False),
        ("cached: return x * 2 [2 -> 3]", lambda m: m.cached(4), 8, 12),
        ("size: return self._size + 1 [Add", lambda m: _size(m), 9, 7),
        ("size#2: self._size = value - 1 [Sub", lambda m: _size(m), 9, 11),
    ],
)
def test_a_mutant_is_what_its_name_says_in_functions_that_live(
    module: ModuleType, part: str, call: Any, before: Any, after: Any
) -> None:
    assert call(module) == before
    mutants = [m for m in mutants_of("sample.py", SOURCE) if part in m.name]
    put(module, mutants[0])
    assert call(module) == after


def _size(module: ModuleType) -> int:
    box = module.Box()
    box.size = 9
    return int(box.size)


def test_a_mutant_keeps_its_name_when_lines_move() -> None:
    moved = [m.full_name for m in mutants_of("sample.py", "\n\n# more\n" + SOURCE)]
    assert moved == [m.full_name for m in mutants_of("sample.py", SOURCE)]


def test_probes_say_which_statements_are_reached(module: ModuleType) -> None:
    reached: set[tuple[str, int]] = set()
    path = str(module.__file__)
    setattr(builtins, "reached_in_a_sample", reached.add)  # noqa: B010
    as_written = swap(probed(SOURCE, path, "reached_in_a_sample"))
    assert len(as_written) == 6
    assert module.below(9) is False
    statement = named("below: return False [").statement
    assert ("below", statement) in reached
    assert ("below", named("[any -> all]").statement) not in reached
    assert module.below(1) is True
    assert ("below", named("[any -> all]").statement) in reached
    assert _size(module) == 9 and ("Box.size#2", 2) in reached
    assert module.chosen(0) == "" and ("chosen", named("case _ if x > 9: [Gt").statement) in reached
    reached.clear()
    assert len(swap(as_written)) == 6
    assert module.below(9) is False and not reached
    delattr(builtins, "reached_in_a_sample")


@pytest.mark.parametrize("file", ROOMS)
def test_the_rooms_exist_and_their_mutants_have_names_of_their_own(file: str) -> None:
    source = (PACKAGE / file).read_text()
    names = [m.name for m in mutants_of(file, source)]
    assert names and len(set(names)) == len(names)
    assert isinstance(ast.parse(source), ast.Module)


def test_each_equivalent_is_a_mutant_that_exists_and_has_a_reason() -> None:
    """One whose line was changed is to be judged again."""
    listed = equivalents()
    files = {name.partition(" ")[0] for name in listed}
    known = {m.full_name for f in files for m in mutants_of(f, (PACKAGE / f).read_text())}
    assert sorted(listed.keys() - known) == []
    assert all(len(why.split()) >= 5 for why in listed.values())


@dataclass(eq=False)
class Sample(Forks):
    def move_into(self, folder: Path) -> None:
        self.at = folder / "at"


@pytest.mark.parametrize("late", [False, True])
def test_what_a_signal_ends_has_died_and_what_waits_is_undecided(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setattr(session, "WAITING_SECONDS", 0.5)
    forks = Sample(lambda _: 0)

    def work() -> bytes:
        forks.at.write_text("a test")
        if late:
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGXCPU)
        return b"survived"

    fork = Fork.start(forks, work)
    [(_, answer)] = answers([(None, lambda: fork)], 1)
    assert answer == (b"hung: a test" if late else b"ended: by SIGXCPU in a test")
    assert not fork.folder.exists()


@pytest.mark.parametrize("busy", [False, True])
def test_a_fork_waits_only_while_nothing_of_it_could_run(busy: bool) -> None:
    """Its clock stands still while it has, or is queued for, a processor."""
    code = "while True: pass" if busy else "import time; time.sleep(600)"

    def work() -> bytes:
        subprocess.run([sys.executable, "-S", "-c", code], check=False)
        return b""

    fork = Fork.start(Sample(lambda _: 0), work)
    try:
        looks = 0
        while looks < 2 if busy else not fork.waited:
            time.sleep(1.1)
            assert not fork.is_stuck()
            looks += 1
        assert (fork.waited > 0) is not busy
    finally:
        fork.end(b"", answered=False)


def test_a_test_that_runs_without_end_is_ended_by_its_use_of_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "CPU_SECONDS", 0)
    forks = Sample(lambda _: 0)

    def work() -> bytes:
        forks.at.write_text("a test")
        limit_cpu(0.0)
        while True:
            pass

    fork = Fork.start(forks, work)
    [(_, answer)] = answers([(None, lambda: fork)], 1)
    assert answer == b"ended: by SIGXCPU in a test"


def test_forks_end_with_the_run_that_started_them() -> None:
    """Interrupted, or told to end: what they held, such as a lock, is free."""
    fork = Fork.start(Sample(lambda _: 0), lambda: time.sleep(600) or b"")

    def interrupted() -> Fork:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(answers([(None, lambda: fork), (None, interrupted)], 2))
    with pytest.raises(ProcessLookupError):
        os.kill(fork.pid, 0)
    assert not fork.folder.exists()


def test_what_a_fork_says_is_its_answer() -> None:
    said: list[tuple[Callable[[], bytes], bytes]] = [
        (lambda: b"survived", b"survived"),
        (lambda: b"%d" % (1 // 0), b"failed: "),
    ]
    for work, expected in said:
        fork = Fork.start(Sample(lambda _: 0), work)
        [(_, answer)] = answers([(None, lambda fork=fork: fork)], 1)  # type: ignore[misc]
        assert answer.startswith(expected)


@pytest.mark.skipif(not Path("/proc/thread-self").exists(), reason="names of threads are in /proc")
def test_threads_of_polars_are_noticed() -> None:
    found = []

    def named() -> None:
        Path("/proc/thread-self/comm").write_text("polars-0")
        found.append(_has_polars_threads())

    thread = threading.Thread(target=named)
    thread.start()
    thread.join()
    assert found == [True]

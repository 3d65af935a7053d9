"""One collected pytest session, forked for each piece of work: imports and collection are paid once.

Promise: a fork runs the tests that it is given, tears down what they set up, and leaves by `os._exit`; the
session itself never runs a test. Hypothesis keeps no failing examples of mutants and draws the same.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

# Without an answer for so long, and more than so many times as long as its tests took, a fork hangs.
HANGS_SECONDS, HANGS_TIMES = 60.0, 10.0
# What a fork's answer begins with, where its work ended by an exception.
FAILED = b"failed: "
# A mutant may allocate without end.
MEMORY_BYTES = 12 * 2**30


@dataclass(eq=False)
class Forks:
    """A plugin: `work` is called in place of running the tests, with the collected ones by node id."""

    work: Callable[[Forks], int]
    items: dict[str, pytest.Item] = field(default_factory=dict)
    reports: Callable[[pytest.TestReport], None] = lambda report: None
    code: int = 0

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings

        quick = [Phase.explicit, Phase.generate]
        settings.register_profile(
            "mutants", deadline=None, database=None, derandomize=True, phases=quick
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.code = self.work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports(report)

    def move_into(self, folder: Path) -> None:
        """In a fork: temporary files are below its own folder, and nothing is printed."""
        config = next(iter(self.items.values())).config
        factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
        factory._given_basetemp, factory._basetemp = folder / "tmp", None
        tempfile.tempdir = str(folder)
        terminal: Any = config.pluginmanager.getplugin("terminalreporter")
        terminal._tw._file = Path(os.devnull).open("w")  # noqa: SIM115

    def run(self, tests: Sequence[str], *, until_failure: bool) -> bool:
        """In a fork: whether a test failed."""
        failed = False
        before = self.reports

        def note(report: pytest.TestReport) -> None:
            nonlocal failed
            failed |= report.failed
            before(report)

        self.reports = note
        items = [self.items[test] for test in tests]
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failed and until_failure:
                item.session._setupstate.teardown_exact(None)
                break
        return failed


@dataclass(frozen=True)
class Fork:
    """A running fork: `answer` is read from `pipe`, until it ends or `due`."""

    pid: int
    pipe: int
    folder: Path
    due: float

    @staticmethod
    def start(forks: Forks, work: Callable[[], bytes], *, expected_seconds: float) -> Fork:
        reads, writes = os.pipe()
        folder = Path(tempfile.mkdtemp(prefix="mutant-"))
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            os.close(writes)
            due = time.monotonic() + HANGS_SECONDS + HANGS_TIMES * expected_seconds
            return Fork(pid, reads, folder, due)
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
            quiet = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(quiet, standard)
            forks.move_into(folder)
            try:
                answer = work()
            except BaseException:
                answer = FAILED + traceback.format_exc().encode()
            with os.fdopen(writes, "wb") as pipe:
                pipe.write(answer)
        finally:
            os._exit(0)

    def end(self) -> None:
        """Nothing that it started is left."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.pipe)
        shutil.rmtree(self.folder, ignore_errors=True)


def answers(starts: Sequence[tuple[Any, Callable[[], Fork]]], jobs: int) -> Any:
    """(what, answer, None where it hangs or died without one) of each fork, `jobs` at a time."""
    import select

    waiting = list(reversed(starts))
    running: dict[int, tuple[Any, Fork, bytearray]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            what, start = waiting.pop()
            fork = start()
            running[fork.pipe] = what, fork, bytearray()
        ready, _, _ = select.select(list(running), [], [], 1.0)
        for pipe in list(running):
            what, fork, body = running[pipe]
            over = time.monotonic() > fork.due
            if pipe in ready:
                more = os.read(pipe, 2**20)
                body += more
                over = not more
                ended = not more
            else:
                ended = False
            if over:
                del running[pipe]
                fork.end()
                yield what, bytes(body) if ended and body else None


def start_session(work: Callable[[Forks], int], arguments: Sequence[str]) -> int:
    forks = Forks(work)
    code = pytest.main(
        ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments],
        plugins=[forks],
    )
    return forks.code or (0 if code in (0, pytest.ExitCode.NO_TESTS_COLLECTED) else int(code))

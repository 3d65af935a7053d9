"""One collected pytest session, forked for each piece of work: imports and collection are paid once.

Promise: a fork runs the tests that it is given, tears down what they set up, and leaves by `os._exit`; the
session itself never runs a test. Hypothesis keeps no failing examples of mutants and draws the same.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

# Of processor time in one test, and times what the test took when it was measured: more means that it runs
# without end, however busy the machine is.
CPU_SECONDS, CPU_TIMES = 20, 4
UNMEASURED_SECONDS = 150.0
# In one test, while nothing of it could run: neither a busy machine nor slow code. Code that asks again and
# again uses less than this share of a processor.
WAITING_SECONDS, WAITING_SHARE = 120.0, 0.05
# What a fork's answer begins with, where its work ended by an exception; where a signal ended it (of these
# limits, or a crash); and where it waited for too long, with the test.
FAILED, ENDED, HUNG = b"failed: ", b"ended: ", b"hung: "
# A mutant may allocate without end.
MEMORY_BYTES = 12 * 2**30


@dataclass(eq=False)
class Forks:
    """A plugin: `work` is called in place of running the tests, with the collected ones by node id.
    `pool` names the test file whose collection used a pool of threads that no fork has."""

    work: Callable[[Forks], int]
    items: dict[str, pytest.Item] = field(default_factory=dict)
    reports: Callable[[pytest.TestReport], None] = lambda report: None
    code: int = 0
    pool: str = ""
    at: Path = Path(os.devnull)

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings

        quick = [Phase.explicit, Phase.generate]
        settings.register_profile(
            "mutants", deadline=None, database=None, derandomize=True, phases=quick
        )
        settings.load_profile("mutants")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not self.pool and _has_polars_threads():
            self.pool = report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if self.pool:
            raise pytest.UsageError(
                f"collecting {self.pool} has used Polars, whose threads no fork has: every test that uses "
                "it would wait for ever. Use it inside of tests and fixtures only"
            )
        self.items = {item.nodeid: item for item in session.items}
        self.code = self.work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports(report)

    def move_into(self, folder: Path) -> None:
        """In a fork: temporary files are below its own folder, and nothing is printed."""
        self.at = folder / "at"
        config = next(iter(self.items.values())).config
        factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
        factory._given_basetemp, factory._basetemp = folder / "tmp", None
        tempfile.tempdir = str(folder)
        terminal: Any = config.pluginmanager.getplugin("terminalreporter")
        terminal._tw._file = Path(os.devnull).open("w")  # noqa: SIM115

    def run(
        self, tests: Sequence[str], *, until_failure: bool, took: Mapping[str, float] | None = None
    ) -> bool:
        """In a fork: whether a test failed. `took`: seconds of CPU of tests that were measured."""
        failed = False
        before = self.reports

        def note(report: pytest.TestReport) -> None:
            nonlocal failed
            failed |= report.failed
            before(report)

        self.reports = note
        items = [self.items[test] for test in tests]
        for item, following in zip(items, [*items[1:], None], strict=True):
            self.at.write_text(item.nodeid)
            limit_cpu((took or {}).get(item.nodeid, UNMEASURED_SECONDS))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failed and until_failure:
                item.session._setupstate.teardown_exact(None)
                break
        return failed


def limit_cpu(expected_seconds: float) -> None:
    """Ends this process by SIGXCPU when it has used so much more than is expected."""
    more = CPU_SECONDS + CPU_TIMES * expected_seconds
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds() + more) + 1, most))


@dataclass(eq=False)
class Fork:
    """A running fork: its answer is read from `pipe`, until it ends or `is_stuck`. `waited` are the seconds
    in which nothing of its present test could run."""

    pid: int
    pipe: int
    folder: Path
    waited: float = 0.0
    _at: int = 0
    _used: float = 0.0
    _looked: float = field(default_factory=time.monotonic)

    @staticmethod
    def start(forks: Forks, work: Callable[[], bytes]) -> Fork:
        reads, writes = os.pipe()
        folder = Path(tempfile.mkdtemp(prefix="mutant-"))
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            os.setpgid(pid, pid)  # as the fork does: whoever is first
            os.close(writes)
            return Fork(pid, reads, folder)
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
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

    def is_stuck(self) -> bool:
        """Whether its test has waited for too long, by a look at most once a second."""
        since = time.monotonic() - self._looked
        if since < 1.0:
            return False
        self._looked += since
        at = self.folder / "at"
        began = at.stat().st_mtime_ns if at.exists() else 0
        used, could_run = _processes(self.pid)
        grown, self._used = used - self._used, used
        if began != self._at:
            self._at, self.waited = began, 0.0
        elif not could_run and grown < WAITING_SHARE * since:
            self.waited += since
        return self.waited > WAITING_SECONDS

    def end(self, body: bytes, *, answered: bool) -> bytes:
        """Its answer; nothing that it started is left. `answered`: its end of the pipe is closed."""
        status = os.waitpid(self.pid, 0)[1] if answered else 0
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        at = self.folder / "at"
        where = at.read_bytes() if at.exists() else b"before its first test"
        if not answered:
            os.waitpid(self.pid, 0)
            body = HUNG + where
        elif not body:
            by = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else str(status)
            body = ENDED + f"by {by} in ".encode() + where
        os.close(self.pipe)
        shutil.rmtree(self.folder, ignore_errors=True)
        return body


def cpu_seconds() -> float:
    """What this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _processes(group: int) -> tuple[float, bool]:
    """Seconds of CPU that a group of processes has used, and whether one could run: a thread of it has a
    processor, is queued for one, or waits for a disk."""
    ticks, could_run = 0, False
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            # After the name, which may hold anything: state, parent, group, …, ticks as user and system.
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                ticks += int(fields[11]) + int(fields[12])
                for task in stat.parent.glob("task/*/stat"):
                    could_run |= task.read_text().rpartition(")")[2].split()[0] in "RD"
    return ticks / os.sysconf("SC_CLK_TCK"), could_run


def _has_polars_threads() -> bool:
    tasks = Path("/proc/self/task").glob("*/comm")
    return any(re.fullmatch(r"polars-\d+", task.read_text().strip()) for task in tasks)


def answers(
    starts: Sequence[tuple[Any, Callable[[], Fork]]], jobs: int
) -> Iterator[tuple[Any, bytes]]:
    """(what, answer) of each fork, `jobs` at a time. None is left when this ends, in whatever way."""
    import select

    waiting = list(reversed(starts))
    running: dict[int, tuple[Any, Fork, bytearray]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                what, start = waiting.pop()
                fork = start()
                running[fork.pipe] = what, fork, bytearray()
            ready, _, _ = select.select(list(running), [], [], 1.0)
            for pipe in list(running):
                what, fork, body = running[pipe]
                more = os.read(pipe, 2**20) if pipe in ready else None
                body += more or b""
                if more == b"" or fork.is_stuck():
                    del running[pipe]
                    yield what, fork.end(bytes(body), answered=more == b"")
    finally:
        for _, fork, _ in running.values():
            fork.end(b"", answered=False)


def start_session(work: Callable[[Forks], int], arguments: Sequence[str]) -> int:
    forks = Forks(work)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    code = pytest.main(
        ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments],
        plugins=[forks],
    )
    return forks.code or (0 if code in (0, pytest.ExitCode.NO_TESTS_COLLECTED) else int(code))

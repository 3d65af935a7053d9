"""Functions as processes: what comes back, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from inlay.local import end_with_parent
from inlay.local.runtime import FunctionPool
from inlay.local.runtime_api import Failed, Returned

pytestmark = pytest.mark.functions
Start = Callable[..., FunctionPool]


def wait_until(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_handler_sees_its_name_and_the_templates_variables(start_function: Start) -> None:
    answer = start_function().invoke({})
    assert isinstance(answer, Returned)
    assert answer.payload["name"] == "sample"
    assert answer.payload["GIVEN"] == "by the template"


def test_a_handler_does_not_see_this_process_environment(
    start_function: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMETHING_OF_THE_DEVELOPER", "1")
    answer = start_function().invoke({})
    assert isinstance(answer, Returned)
    assert "SOMETHING_OF_THE_DEVELOPER" not in answer.payload


def test_a_warm_process_is_used_again(start_function: Start) -> None:
    pool = start_function(size=3)
    first, second = pool.invoke({}), pool.invoke({})
    assert isinstance(first, Returned) and isinstance(second, Returned)
    assert first.payload["process"] == second.payload["process"]


def test_an_exception_is_an_error_not_an_answer(start_function: Start) -> None:
    assert start_function().invoke({"raise": "boom"}) == Failed("error", "boom", "ValueError")


def test_the_timeout_is_enforced_and_the_next_event_served(start_function: Start) -> None:
    pool = start_function(timeout_seconds=1)
    answer = pool.invoke({"sleep": 30})
    assert isinstance(answer, Failed) and answer.how == "timeout"
    assert isinstance(pool.invoke({}), Returned)


def test_a_process_that_exits_is_replaced(start_function: Start) -> None:
    pool = start_function()
    answer = pool.invoke({"exit": 3})
    assert isinstance(answer, Failed) and answer.how == "exit"
    assert isinstance(pool.invoke({}), Returned)


def test_killing_it_midway_fails_the_event_and_serves_the_next(
    start_function: Start, tmp_path: Path
) -> None:
    pool = start_function()
    pool.invoke({})
    started = tmp_path / "finished"
    answers: list[object] = []
    running = threading.Thread(
        target=lambda: answers.append(pool.invoke({"sleep": 5, "touch": str(started)}))
    )
    running.start()
    wait_until(lambda: (tmp_path / "sample.log").read_bytes().count(b"START") == 2)
    pool.kill()
    running.join()
    assert isinstance(answers[0], Failed)
    assert isinstance(pool.invoke({}), Returned)
    assert not started.exists(), "the killed handler went on"


def test_events_run_side_by_side_up_to_the_size(start_function: Start) -> None:
    pool = start_function(size=2)
    answers: list[object] = []
    threads = [
        threading.Thread(target=lambda: answers.append(pool.invoke({"sleep": 0.3})))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    processes = {a.payload["process"] for a in answers if isinstance(a, Returned)}
    assert len(answers) == 4
    assert len(processes) == 2


def test_closing_leaves_no_process(start_function: Start) -> None:
    pool = start_function()
    answer = pool.invoke({})
    assert isinstance(answer, Returned)
    pool.close()
    assert not alive(answer.payload["process"])
    assert isinstance(pool.invoke({}), Failed)


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_leashed_command_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    # The grandchild leads a separate process group, as a function may do.
    inner = "import os,sys,time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(600)"
    outer = f"""
import subprocess, sys, time
leashed = subprocess.Popen(
    [sys.executable, "-I", {end_with_parent.__file__!r}, sys.executable, "-c", {inner!r}],
    stdin=subprocess.PIPE, start_new_session=True)
time.sleep(600)
"""
    starter = subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    assert alive(pid)
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    wait_until(lambda: not alive(pid))

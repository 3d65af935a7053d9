"""Lambda functions as real processes: AWS's runtime interface client on Lambda's
runtime API (`local/runtime_api.py`).

Promise: `FunctionPool.invoke` runs the handler in a process of its own with the template's
environment and timeout, one event at a time per process, at most `size` processes side by side. What
went wrong is returned, not raised: a handler's error, a timeout, or a process that ended. Whatever
happens, the next invocation finds a working process.

Not as in AWS: memory is not limited, and a process lives until the pool closes.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inlay.local import end_with_parent
from inlay.local.runtime_api import Failed, Invocation, RuntimeApi
from inlay.local.template import ACCOUNT, Function

# What a function may see of this process's environment, as little as Lambda shows.
_INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "TZ",
    "AWS_CA_BUNDLE",
)


class FunctionPool:
    """Up to `size` processes of one function, started as they are needed."""

    def __init__(
        self,
        function: Function,
        *,
        environment: Mapping[str, str],
        log: Path,
        size: int,
    ) -> None:
        self.function = function
        self._environment = environment
        self._log = log
        self._lock = threading.Lock()
        self._processes: list[_Process] = []
        # One token per allowed process; None is a process not started yet. Last in, first out, so
        # that a warm process is taken before another one starts.
        self._free: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(size):
            self._free.put(None)
        self._closed = False

    def invoke(self, event: Any) -> Invocation:
        """Run the handler on `event`; waits while `size` others run."""
        process = self._free.get()
        try:
            if self._closed:
                return Failed("exit", "the local AWS is stopping")
            if process is None or not process.alive:
                process = self._start()
            return process.invoke(event)
        finally:
            self._free.put(process)

    def kill(self) -> None:
        """Kill every process of the function at once, as a failing host would."""
        with self._lock:
            processes = list(self._processes)
        for process in processes:
            process.kill()

    def close(self) -> None:
        """End every process; invocations under way fail."""
        self._closed = True
        self.kill()

    def __enter__(self) -> FunctionPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> _Process:
        process = _start_process(self.function, self._environment, self._log)
        with self._lock:
            self._processes = [process for process in self._processes if process.alive]
            self._processes.append(process)
        if self._closed:  # closed while this one started: nobody else would end it
            process.kill()
        return process


@dataclass(frozen=True, slots=True, eq=False)
class _Process:
    """One function process, on a leash, and the API that it asks for events."""

    leashed: subprocess.Popen[bytes]
    api: RuntimeApi
    timeout_seconds: int
    log: Path

    @property
    def alive(self) -> bool:
        return self.leashed.poll() is None

    def invoke(self, event: Any) -> Invocation:
        request_id = str(uuid.uuid4())
        self._say(f"START RequestId: {request_id} Version: $LATEST")
        begun = time.monotonic()
        outcome = self.api.invoke(
            event, request_id=request_id, timeout_seconds=self.timeout_seconds
        )
        if isinstance(outcome, Failed) and outcome.how != "error":
            self.kill()
            self._say(f"{request_id} {outcome.message}")
        self._say(f"END RequestId: {request_id}")
        took_ms = (time.monotonic() - begun) * 1000
        self._say(f"REPORT RequestId: {request_id} Duration: {took_ms:.2f} ms")
        return outcome

    def kill(self) -> None:
        # The leash itself is spared: it sees its command end, reaps it and follows.
        end_with_parent.kill_session(self.leashed.pid, spare=self.leashed.pid)
        if self.leashed.stdin is not None:
            self.leashed.stdin.close()
        self.leashed.wait()

    def follow(self) -> None:
        """End the API when the process has ended."""
        self.leashed.wait()
        self.api.end()

    def _say(self, line: str) -> None:
        with self.log.open("ab") as output:
            output.write(f"{line}\n".encode())


def _start_process(function: Function, environment: Mapping[str, str], log: Path) -> _Process:
    region = environment.get("AWS_REGION", "us-east-1")
    api = RuntimeApi(f"arn:aws:lambda:{region}:{ACCOUNT}:function:{function.name}")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        leashed = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", end_with_parent.__file__),
                *(sys.executable, "-m", "awslambdaric", function.handler),
            ],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=function.code,
            env={**_environment(function, environment), "AWS_LAMBDA_RUNTIME_API": api.address},
            start_new_session=True,
        )
    process = _Process(leashed, api, function.timeout_seconds, log)
    threading.Thread(target=process.follow, name="process-end", daemon=True).start()
    return process


def _environment(function: Function, own: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        **inherited,
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "_HANDLER": function.handler,
        "AWS_LAMBDA_FUNCTION_TIMEOUT": str(function.timeout_seconds),
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        "LAMBDA_TASK_ROOT": str(function.code),
        "PYTHONPATH": str(function.code),
        "PYTHONDONTWRITEBYTECODE": "1",
        # There is no X-Ray daemon to send to.
        "POWERTOOLS_TRACE_DISABLED": "true",
        **own,
    }

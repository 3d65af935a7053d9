"""Lambda functions as real processes: AWS's runtime interface client under AWS's emulator.

Promise: `FunctionPool.invoke` runs the handler in a process of its own with the template's
environment and timeout, one event at a time per process, at most `size` processes side by side. What
went wrong is returned, not raised: a handler's error, a timeout, or a process that ended. Whatever
happens, the next invocation finds a working process.

Not as in AWS: memory is not limited, and a process lives until the pool closes.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from inlay.errors import InvalidRequest, StoreUnavailable
from inlay.local import end_with_parent
from inlay.local.template import Function

# What a function may see of this process's environment, as little as Lambda shows.
_INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "TZ",
    "AWS_CA_BUNDLE",
)
# The emulator listens within milliseconds; a loaded machine may take a thousand times longer.
_START_SECONDS = 30.0
# A free port may be taken between our look and the emulator's bind.
_START_ATTEMPTS = 5
# The emulator enforces the function's timeout itself; ours only catches an emulator that hangs.
_ANSWER_SLACK_SECONDS = 15.0
_INVOKE_PATH = "/2015-03-31/functions/function/invocations"


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler returned `payload`."""

    payload: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised (`error`), ran out of time (`timeout`) or its process ended (`exit`)."""

    how: Literal["error", "timeout", "exit"]
    message: str
    type: str = ""


Invocation = Returned | Failed


def find_emulator(template: Path) -> Path:
    """The `aws-lambda-rie` binary: `INLAY_RIE`, else the one in the SAM CLI's wheel, in `.tools/sam`
    beside the template or, where Inlay itself was installed from a wheel, in the user's cache. The SAM
    CLI pins much that is not needed here, so it is no dependency."""
    named = os.environ.get("INLAY_RIE")
    if named:
        return Path(named)
    machine = "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64"
    name = f"samcli/local/rapid/aws-lambda-rie-{machine}"
    tools = template.parent / ".tools" / "sam"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inlay" / "sam"
    for found in (*sorted(tools.glob(f"lib/python*/site-packages/{name}")), cache / name):
        if found.is_file():
            return found
    in_checkout = (template.parent / "Makefile").is_file()
    command = f"pip install --no-deps --target {cache} aws-sam-cli"
    raise InvalidRequest(
        f"the Lambda runtime emulator, a part of the SAM CLI, is not in {tools if in_checkout else cache}",
        next_step=f"Run `{'make tools' if in_checkout else command}`, or name an aws-lambda-rie binary in "
        "INLAY_RIE",
    )


class FunctionPool:
    """Up to `size` processes of one function, started as they are needed."""

    def __init__(
        self,
        function: Function,
        *,
        emulator: Path,
        environment: Mapping[str, str],
        log: Path,
        size: int,
    ) -> None:
        self.function = function
        self._emulator = emulator
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
        except StoreUnavailable as error:
            return Failed("exit", str(error))
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
        process = _start_process(self.function, self._emulator, self._environment, self._log)
        with self._lock:
            self._processes = [each for each in self._processes if each.alive]
            self._processes.append(process)
        if self._closed:  # closed while this one started: nobody else would end it
            process.kill()
        return process


@dataclass(frozen=True, slots=True, eq=False)
class _Process:
    """One emulator with one function process under it, on a leash."""

    leashed: subprocess.Popen[bytes]
    port: int
    timeout_seconds: int

    @property
    def alive(self) -> bool:
        return self.leashed.poll() is None

    def invoke(self, event: Any) -> Invocation:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=self.timeout_seconds + _ANSWER_SLACK_SECONDS
        )
        try:
            connection.request("POST", _INVOKE_PATH, body=json.dumps(event))
            answer = connection.getresponse()
            return _read_answer(answer.status, answer.read())
        except (OSError, http.client.HTTPException) as error:
            self.kill()
            return Failed("exit", f"the process ended: {error!r}")
        finally:
            connection.close()

    def kill(self) -> None:
        # The leash itself is spared: it sees its command end, reaps it and follows.
        end_with_parent.kill_session(self.leashed.pid, spare=self.leashed.pid)
        if self.leashed.stdin is not None:
            self.leashed.stdin.close()
        self.leashed.wait()


def _read_answer(status: int, body: bytes) -> Invocation:
    """What the emulator's answer means: errors and timeouts come as 200, exits as 502."""
    text = body.decode(errors="replace")
    if status == 200 and text.startswith("Task timed out after "):
        return Failed("timeout", text)
    try:
        payload = json.loads(text) if text else None
    except ValueError:
        return Failed("error", text)
    named = payload if isinstance(payload, dict) else {}
    if status != 200:
        return Failed("exit", str(named.get("errorMessage", text)), str(named.get("errorType", "")))
    if {"errorMessage", "errorType"} <= named.keys():
        return Failed("error", str(named["errorMessage"]), str(named["errorType"]))
    return Returned(payload)


def _start_process(
    function: Function, emulator: Path, environment: Mapping[str, str], log: Path
) -> _Process:
    for _ in range(_START_ATTEMPTS):
        port, api_port = _free_ports()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            leashed = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", end_with_parent.__file__),
                    *(str(emulator), "--log-level", "error"),
                    *("--runtime-interface-emulator-address", f"127.0.0.1:{port}"),
                    *("--runtime-api-address", f"127.0.0.1:{api_port}"),
                    *(sys.executable, "-m", "awslambdaric", function.handler),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=function.code,
                env=_environment(function, environment),
                start_new_session=True,
            )
        process = _Process(leashed, port, function.timeout_seconds)
        if _listens(port, leashed):
            return process
        process.kill()
    raise StoreUnavailable(
        f"the process of {function.name} did not start", next_step=f"Look at {log}"
    )


def _environment(function: Function, own: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        **inherited,
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_TIMEOUT": str(function.timeout_seconds),
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        "LAMBDA_TASK_ROOT": str(function.code),
        "PYTHONPATH": str(function.code),
        "PYTHONDONTWRITEBYTECODE": "1",
        # There is no X-Ray daemon to send to.
        "POWERTOOLS_TRACE_DISABLED": "true",
        **own,
    }


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def _listens(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Wait until something accepts connections on `port`; False when the process ends first."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.005)
    return False

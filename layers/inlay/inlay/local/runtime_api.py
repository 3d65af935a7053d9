"""Lambda's runtime API (2018-06-01) for one process of a function: where AWS's runtime interface client
asks for the next event, and tells what became of it.

Promise: each call is handed out once and has one outcome: the handler's answer, its error, a timeout, or
the end of the process. The time of a call begins when the process takes it, as in Lambda; until then it may
still be loading.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

# A process loads within a second; a loaded machine may take a hundred times longer.
_START_SECONDS = 120.0
_ROOT = "/2018-06-01/runtime"
_OUTCOME = re.compile(rf"{_ROOT}/invocation/([^/]+)/(response|error)")


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


@dataclass(eq=False, slots=True)
class _Call:
    id: str
    event: bytes
    timeout_seconds: float
    ends: float | None = None  # set when the process takes it
    outcome: Invocation | None = None


@dataclass(eq=False)
class RuntimeApi:
    """The API of one process, at `address`, until `end`."""

    function_arn: str
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _call: _Call | None = None
    _ended: Failed | None = None

    def __post_init__(self) -> None:
        api = self

        class Handler(_Handler):
            runtime = api

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="runtime", daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def invoke(self, event: Any, *, request_id: str, timeout_seconds: float) -> Invocation:
        """Hand `event` to the process and wait for what becomes of it; one call at a time."""
        call = _Call(request_id, json.dumps(event).encode(), timeout_seconds)
        begun = time.monotonic()
        with self._changed:
            self._call = call
            self._changed.notify_all()
            while call.outcome is None and self._ended is None:
                ends = begun + _START_SECONDS if call.ends is None else call.ends
                seconds = ends - time.monotonic()
                if seconds <= 0:
                    call.outcome = Failed(
                        "timeout", f"Task timed out after {timeout_seconds:.2f} seconds"
                    )
                else:
                    self._changed.wait(seconds)
            self._call = None
            self._changed.notify_all()
            return call.outcome or self._ended or Failed("exit", "the process ended")

    def end(self) -> None:
        """The process has ended: whoever waits is told, and the server closes."""
        self._end(Failed("exit", "the process ended"))
        self._server.shutdown()
        self._server.server_close()

    def _end(self, why: Failed) -> None:
        with self._changed:
            self._ended = self._ended or why
            self._changed.notify_all()

    # -- what the process asks and tells ----------------------------------------------------------

    def take(self) -> _Call | None:
        """The next call, as soon as there is one; None at the end."""
        with self._changed:
            while self._ended is None:
                call = self._call
                if call is not None and call.ends is None:
                    call.ends = time.monotonic() + call.timeout_seconds
                    self._changed.notify_all()
                    return call
                self._changed.wait()
            return None

    def tell(self, request_id: str, outcome: Invocation) -> bool:
        """Whether that call waits for it; one that ran out of time does not."""
        with self._changed:
            call = self._call
            if call is None or call.id != request_id or call.outcome is not None:
                return False
            call.outcome = outcome
            self._changed.notify_all()
            return True

    def tell_start_failed(self, why: Failed) -> None:
        self._end(why)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    runtime: RuntimeApi

    def do_GET(self) -> None:
        if self.path != f"{_ROOT}/invocation/next":
            self._answer(404)
            return
        call = self.runtime.take()
        if call is None:
            self._answer(410)
            return
        deadline = time.time() + call.timeout_seconds
        self._answer(
            200,
            call.event,
            {
                "Lambda-Runtime-Aws-Request-Id": call.id,
                "Lambda-Runtime-Deadline-Ms": str(int(deadline * 1000)),
                "Lambda-Runtime-Invoked-Function-Arn": self.runtime.function_arn,
                "Lambda-Runtime-Trace-Id": f"Root=1-{int(deadline):08x}-{uuid.uuid4().hex[:24]}",
            },
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        outcome = _OUTCOME.fullmatch(self.path)
        if outcome is not None:
            known = self.runtime.tell(
                outcome[1], _returned(body) if outcome[2] == "response" else _failed(body)
            )
            self._answer(202 if known else 400, b'{"status":"OK"}' if known else b"{}")
        elif self.path == f"{_ROOT}/init/error":
            failed = _failed(body)
            self.runtime.tell_start_failed(Failed("exit", failed.message, failed.type))
            self._answer(202, b'{"status":"OK"}')
        else:
            self._answer(404)

    def _answer(
        self, status: int, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        # A process that was killed meanwhile reads nothing: its end is told by `RuntimeApi.end`.
        with contextlib.suppress(ConnectionError):
            self.end_headers()
            self.wfile.write(body)
            return
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """The functions' own logs say what happens."""


def _returned(body: bytes) -> Invocation:
    try:
        return Returned(json.loads(body) if body else None)
    except ValueError:
        return Failed("error", body.decode(errors="replace"))


def _failed(body: bytes) -> Failed:
    said = _returned(body)
    named = said.payload if isinstance(said, Returned) and isinstance(said.payload, dict) else {}
    return Failed("error", str(named.get("errorMessage", "")), str(named.get("errorType", "")))

"""Moto's S3 and SQS behind one lock, made to keep S3's promises; and a log of what was asked.

Promise: each request is one step. Moto checks a condition and writes in two, so of two racers both
can win; and its queues lose a message when one is deleted while another arrives. Here everything
happens under one lock, and only waiting happens outside it: the artificial latency, and the long
poll of ReceiveMessage, which is asked again whenever anything changed.
"""

from __future__ import annotations

import io
import itertools
import json
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from moto.server import DomainDispatcherApplication, create_backend_app

from inlay.local import moto_s3, s3_strict
from inlay.local.aws_request import Answer, Environ, Request, s3_error

LOG_PATH: Final = "/_inlay/requests"
# A benchmark makes some ten thousand requests; older ones make room.
LOG_ENTRIES: Final = 200_000
# SQS: a long poll waits at most 20 seconds.
_LONGEST_POLL_SECONDS: Final = 20.0
# Messages also become visible by time alone (delay, visibility timeout), which wakes nobody.
_POLL_AGAIN_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request, as the server saw it; `number` counts from 1 since the server started."""

    number: int
    service: str
    operation: str
    method: str
    bucket: str
    key: str
    status: int
    bytes_in: int
    bytes_out: int


class AwsApp:
    """Answers requests; the server in `s3server` hands them over whole."""

    def __init__(self, services: Iterable[str], *, latency_ms: float = 0.0) -> None:
        self._services = frozenset(services)
        self._latency_seconds = latency_ms / 1_000
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._changed = threading.Condition()
        self._log: deque[LoggedRequest] = deque(maxlen=LOG_ENTRIES)
        self._numbers = itertools.count(1)

    def requests(self, *, after: int = 0) -> Sequence[LoggedRequest]:
        """What was asked since request number `after`, in order of answering."""
        return [each for each in tuple(self._log) if each.number > after]

    def forget_requests(self) -> None:
        self._log.clear()

    def __call__(self, environ: Environ, body: bytes) -> Answer:
        request = Request.of(environ, body)
        if request.path == LOG_PATH:
            return self._answer_log(request)
        answered = self._answer(request)
        self._log.append(
            LoggedRequest(
                next(self._numbers),
                request.service,
                request.operation,
                request.method,
                request.bucket,
                request.key,
                answered.status,
                len(body),
                len(answered.body),
            )
        )
        return answered

    def _answer(self, request: Request) -> Answer:
        if request.service not in self._services:
            words = f"This server has {', '.join(sorted(self._services))}, not {request.service}."
            return s3_error(501, "NotImplemented", words)
        if request.service == "sqs":
            if request.operation == "ReceiveMessage":
                return self._receive(request)
            return self._step(request, self._through_moto)
        if self._latency_seconds:
            time.sleep(self._latency_seconds)
        return self._step(request, lambda each: s3_strict.answer(each, self._through_moto))

    def _step(self, request: Request, answer: s3_strict.Then) -> Answer:
        with self._changed:
            answered = answer(request)
            if request.method not in ("GET", "HEAD"):
                self._changed.notify_all()
        return answered

    def _receive(self, request: Request) -> Answer:
        """Long polling without holding the lock: ask for what is there, wait for a change."""
        asked = request.json
        wait = asked.get("WaitTimeSeconds")
        if wait is None:
            wait = moto_s3.default_wait_seconds(asked.get("QueueUrl", ""), request.scope[1])
        deadline = time.monotonic() + min(float(wait), _LONGEST_POLL_SECONDS)
        body = json.dumps(asked | {"WaitTimeSeconds": 0}).encode()
        at_once = Request(request.method, request.path, request.query, request.environ, body)
        with self._changed:
            while True:  # ends: at the deadline at the latest
                answered = self._through_moto(at_once)
                left = deadline - time.monotonic()
                if answered.status != 200 or b'"Messages"' in answered.body or left <= 0:
                    return answered
                self._changed.wait(min(left, _POLL_AGAIN_SECONDS))

    def _through_moto(self, request: Request) -> Answer:
        environ = dict(request.environ)
        environ["wsgi.input"] = io.BytesIO(request.body)
        environ["CONTENT_LENGTH"] = str(len(request.body))
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        said: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            said[:] = [int(status.partition(" ")[0]), headers]

        body = b"".join(self._moto(environ, start_response))
        return Answer(said[0], dict(said[1]), body)

    def _answer_log(self, request: Request) -> Answer:
        if request.method == "DELETE":
            self.forget_requests()
        found = self.requests(after=int(request.query.get("after", 0)))
        body = json.dumps([asdict(each) for each in found]).encode()
        return Answer(200, {"content-type": "application/json"}, body)

"""The embedded S3 and SQS, and a log of what was asked of them."""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inlay.local.aws_request import Answer, Request, S3Error
from inlay.local.data_dir import DataDir
from inlay.local.s3_rest import S3

if TYPE_CHECKING:
    from inlay.local.queues import Queues

LOG_PATH: Final = "/_inlay/requests"
# A benchmark makes some ten thousand requests; older ones make room.
LOG_ENTRIES: Final = 200_000


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request, as the server saw it; `number` counts from 1 since the server started, `app` is what the
    client calls itself (the SDKs' setting AWS_SDK_UA_APP_ID), if anything."""

    number: int
    service: str
    operation: str
    method: str
    bucket: str
    key: str
    status: int
    bytes_in: int
    bytes_out: int
    app: str = ""


class AwsApp:
    """Answers requests; the server in `s3server` hands them over whole. Each S3 request takes
    `latency_ms` longer; what S3 holds is kept in `data_dir`, if that is given."""

    def __init__(
        self, services: Iterable[str], *, latency_ms: float = 0.0, data_dir: Path | None = None
    ) -> None:
        self._services = frozenset(services)
        self._latency_seconds = latency_ms / 1_000
        self._queues: Queues | None = None
        if "sqs" in self._services:
            from inlay.local.queues import Queues  # brings moto

            self._queues = Queues()
            self._queues.reset()
        self._s3 = S3(notify=self._queues.send if self._queues is not None else None)
        self._kept = DataDir(data_dir, self._s3) if data_dir is not None else None
        self._log: deque[LoggedRequest] = deque(maxlen=LOG_ENTRIES)
        self._numbers = itertools.count(1)

    def close(self) -> None:
        if self._queues is not None:
            self._queues.reset()
        if self._kept is not None:
            self._kept.close()

    def requests(self, *, after: int = 0) -> Sequence[LoggedRequest]:
        """What was asked since request number `after`, in order of answering."""
        return [each for each in tuple(self._log) if each.number > after]

    def forget_requests(self) -> None:
        self._log.clear()

    def __call__(self, request: Request) -> Answer:
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
                len(request.sent),
                0 if request.method == "HEAD" else len(answered.body),
                _app(request.headers.get("user-agent", "")),
            )
        )
        return answered

    def _answer(self, request: Request) -> Answer:
        if request.service not in self._services:
            words = f"This server has {', '.join(sorted(self._services))}, not {request.service}."
            return S3Error(501, "NotImplemented", words).answer
        if request.service == "sqs":
            assert self._queues is not None
            return self._queues(request)
        if self._latency_seconds:
            time.sleep(self._latency_seconds)
        return self._s3(request)

    def _answer_log(self, request: Request) -> Answer:
        if request.method == "DELETE":
            self.forget_requests()
        found = self.requests(after=int(request.query.get("after", 0)))
        body = json.dumps([asdict(each) for each in found]).encode()
        return Answer(200, {"Content-Type": "application/json"}, body)


def _app(user_agent: str) -> str:
    """The application id in an SDK's User-Agent."""
    found = (part[4:] for part in user_agent.split() if part.startswith("app/"))
    return next(found, "")

"""The embedded S3 and SQS, and a log of what was asked of them: an HTTP server on this machine, in this
process or one of its own.

Promise: `EmbeddedAws` is up when its block is entered and gone when it is left. It listens on
127.0.0.1 only. Buckets and queues live in memory and end with it, unless it has a `data_dir`, which keeps
the buckets. Moto's queues belong to the process, so a process runs one server with SQS at a time.
`AwsProcess` promises the same, but it takes no turn of this process's interpreter lock, and any number can
run beside one another. It ends with the block, and with this process however that dies: its standard input
is a pipe from here.

    with EmbeddedAws() as aws:
        boto3.client("s3", endpoint_url=aws.endpoint_url)

`python -m inlay.local.s3server --port 0` prints the URL as one line and serves until SIGTERM, until
its standard input closes (if that is a pipe) or until its parent is gone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from http.client import responses
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from inlay.engine import AwsAnswer, AwsRequest, EmbeddedS3

if TYPE_CHECKING:
    from inlay.local.queues import Queues

HOST: Final = "127.0.0.1"
REGION: Final = "us-east-1"
SERVICES: Final = ("s3", "sqs")
_PARENT_POLL_SECONDS: Final = 1.0
# The process holds nothing that a kill could hurt.
_STOP_SECONDS: Final = 1.0
_LOG_SECONDS: Final = 30.0
# The size line of a chunk of a request.
_LINE_BYTES: Final = 4_096
LOG_PATH: Final = "/_inlay/requests"
# A benchmark makes some ten thousand requests; older ones make room.
LOG_ENTRIES: Final = 200_000
_running = threading.Lock()


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
    """Answers requests, which the server hands over whole. Each S3 request takes
    `latency_ms` longer; what S3 holds is kept in `data_dir`, if that is given. With `swap_ms`, a swap of a
    key takes so long, and others of the same key are refused meanwhile, as S3 does."""

    def __init__(
        self,
        services: Iterable[str],
        *,
        latency_ms: float = 0.0,
        data_dir: Path | None = None,
        swap_ms: float = 0.0,
    ) -> None:
        self._services = frozenset(services)
        self._swap_seconds = swap_ms / 1_000
        self._swapping: set[tuple[str, str]] = set()
        self._swaps = threading.Lock()
        self._latency_seconds = latency_ms / 1_000
        self._queues: Queues | None = None
        if "sqs" in self._services:
            from inlay.local.queues import Queues  # brings moto

            self._queues = Queues()
            self._queues.reset()
        self._s3 = EmbeddedS3(notify=self._queues.send if self._queues is not None else None)
        self._kept = self._s3.keep_in(data_dir) if data_dir is not None else None
        self._log: deque[LoggedRequest] = deque(maxlen=LOG_ENTRIES)
        self._numbers = itertools.count(1)

    def close(self) -> None:
        if self._queues is not None:
            self._queues.reset()
        if self._kept is not None:
            self._kept.close()

    def requests(self, *, after: int = 0) -> Sequence[LoggedRequest]:
        """What was asked since request number `after`, in order of answering."""
        return [request for request in tuple(self._log) if request.number > after]

    def forget_requests(self) -> None:
        self._log.clear()

    def __call__(self, request: AwsRequest) -> AwsAnswer:
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

    def _answer(self, request: AwsRequest) -> AwsAnswer:
        if request.service not in self._services:
            words = f"This server has {', '.join(sorted(self._services))}, not {request.service}."
            return AwsAnswer.error(501, "NotImplemented", words)
        if request.service == "sqs":
            assert self._queues is not None
            return self._queues(request)
        if self._latency_seconds:
            time.sleep(self._latency_seconds)
        if self._swap_seconds and request.method == "PUT" and "if-match" in request.headers:
            return self._swap(request)
        return self._s3(request)

    def _swap(self, request: AwsRequest) -> AwsAnswer:
        name = (request.bucket, request.key)
        with self._swaps:
            if name in self._swapping:
                words = "Another conditional write of this key is under way."
                return AwsAnswer.error(409, "ConditionalRequestConflict", words)
            answered = self._s3(request)
            if answered.status != 200:
                return answered
            self._swapping.add(name)
        time.sleep(self._swap_seconds)
        with self._swaps:
            self._swapping.discard(name)
        return answered

    def _answer_log(self, request: AwsRequest) -> AwsAnswer:
        if request.method == "DELETE":
            self.forget_requests()
        requests = self.requests(after=int(request.query.get("after", 0)))
        body = json.dumps([asdict(request) for request in requests]).encode()
        return AwsAnswer(200, {"Content-Type": "application/json"}, body)


def _app(user_agent: str) -> str:
    """The application id in an SDK's User-Agent."""
    apps = (part[4:] for part in user_agent.split() if part.startswith("app/"))
    return next(apps, "")


def environment(endpoint_url: str) -> Mapping[str, str]:
    """The standard variables of the AWS SDKs for a server at `endpoint_url`."""
    return {
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_ENDPOINT_URL_S3": endpoint_url,
    }


class _Handler(BaseHTTPRequestHandler):
    """Keeps connections open, as S3 does."""

    server: _Server
    protocol_version = "HTTP/1.1"
    # Head and body go out as two writes; they must not wait for each other's acknowledgement.
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        body = self._body()
        if body is None:
            # The client died while it sent. S3 stores nothing of a request that did not arrive whole.
            self.close_connection = True
            return
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        # Any page in a browser of this machine may send a form to its ports.
        if "origin" in headers:
            self._send(AwsAnswer.error(403, "AccessDenied", "a web page sent this"))
            return
        try:
            answer = self.server.aws(AwsRequest(self.command, path, query, headers, body))
        except Exception:  # the server must outlive any fault of its own
            traceback.print_exc()
            words = f"{self.command} {self.path} failed in the embedded server"
            answer = AwsAnswer.error(500, "InternalError", words)
        self._send(answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - http.server's names

    def _body(self) -> bytes | None:
        """All of it, None if the connection ends before."""
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            length = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length)
            return body if len(body) == length else None
        pieces = []
        while line := self.rfile.readline(_LINE_BYTES):
            length = int(line.partition(b";")[0], 16)
            pieces.append(self.rfile.read(length))
            self.rfile.readline(_LINE_BYTES)
            if not length:
                return b"".join(pieces)
        return None

    def _send(self, answer: AwsAnswer) -> None:
        self.send_response(answer.status, responses.get(answer.status, ""))
        sized = False
        for name, value in answer.headers.items():
            lower = name.lower()
            if lower in ("connection", "date", "server", "transfer-encoding"):
                continue
            sized |= lower == "content-length"
            self.send_header(name, value)
        if not sized and answer.status not in (204, 304):
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if answer.body and self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:
        """The access log is in memory, see `EmbeddedAws.requests`."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    # Clients keep connections open: nobody waits for them to end.
    block_on_close = False

    def __init__(self, port: int, aws: AwsApp, host: str) -> None:
        self.aws = aws
        super().__init__((host, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is no fault."""


class EmbeddedAws:
    """S3 and SQS on 127.0.0.1; `port` 0 takes a free one, `latency_ms` delays each S3 request,
    `data_dir` keeps what S3 holds. With another `host`, such as 0.0.0.0, containers of this machine reach
    it, and so does whoever is on its networks: there are no credentials to know."""

    def __init__(
        self,
        services: Sequence[str] = SERVICES,
        *,
        port: int = 0,
        latency_ms: float = 0.0,
        host: str = HOST,
        data_dir: Path | None = None,
        swap_ms: float = 0.0,
    ) -> None:
        unknown = sorted(set(services) - set(SERVICES))
        if unknown:
            raise ValueError(f"no embedded {', '.join(unknown)}; there are {', '.join(SERVICES)}")
        self._services = services
        self._latency_ms = latency_ms
        self._data_dir = data_dir
        self._swap_ms = swap_ms
        self._wanted_port = port
        self._host = host
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> EmbeddedAws:
        alone = "sqs" in self._services
        if alone and not _running.acquire(blocking=False):
            raise RuntimeError("an embedded AWS with queues is already running in this process")
        try:
            app = AwsApp(
                self._services,
                latency_ms=self._latency_ms,
                data_dir=self._data_dir,
                swap_ms=self._swap_ms,
            )
            self._server = _Server(self._wanted_port, app, self._host)
        except BaseException:
            if alone:
                _running.release()
            raise
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="embedded-aws", daemon=True
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.aws.close()
        self._server = self._thread = None
        if "sqs" in self._services:
            _running.release()

    def __enter__(self) -> EmbeddedAws:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def endpoint_url(self) -> str:
        self._running_app  # noqa: B018 - raises when it is not running
        assert self._server is not None
        return f"http://{HOST}:{self._server.server_port}"

    @property
    def _running_app(self) -> AwsApp:
        if self._server is None:
            raise RuntimeError("the embedded AWS is not running")
        return self._server.aws

    def env(self) -> Mapping[str, str]:
        """The variables with which an SDK, here or in another process, finds this server."""
        return environment(self.endpoint_url)

    def requests(self, *, after: int = 0) -> Sequence[LoggedRequest]:
        """What was asked of the server, since request number `after`."""
        return self._running_app.requests(after=after)

    def forget_requests(self) -> None:
        self._running_app.forget_requests()


# -- as a process ---------------------------------------------------------------------------------


class AwsProcess:
    """S3 and SQS on 127.0.0.1, or another `host`, served by a child process."""

    def __init__(
        self,
        services: Sequence[str] = SERVICES,
        *,
        port: int = 0,
        latency_ms: float = 0.0,
        host: str = HOST,
        data_dir: Path | None = None,
        swap_ms: float = 0.0,
    ) -> None:
        self._command = [
            *(sys.executable, "-m", "inlay.local.s3server"),
            *("--services", ",".join(services)),
            *("--port", str(port), "--latency-ms", str(latency_ms), "--host", host),
            *(("--data-dir", str(data_dir)) if data_dir is not None else ()),
            *("--swap-ms", str(swap_ms)),
        ]
        self._child: subprocess.Popen[str] | None = None
        self._url = ""

    def start(self) -> AwsProcess:
        # A group of its own: Ctrl-C at a terminal is for us, who then stop the server in our order.
        child = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        assert child.stdout is not None
        self._child, self._url = child, child.stdout.readline().strip()
        if not self._url:
            raise RuntimeError(f"the embedded AWS did not start, exit code {child.wait()}")
        return self

    def stop(self) -> None:
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()
        self._child = None

    def __enter__(self) -> AwsProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def endpoint_url(self) -> str:
        if self._child is None:
            raise RuntimeError("the embedded AWS is not running")
        return self._url

    def env(self) -> Mapping[str, str]:
        """The variables with which an SDK, here or in another process, finds this server."""
        return environment(self.endpoint_url)

    def requests(self, *, after: int = 0) -> Sequence[LoggedRequest]:
        """What was asked of the server, since request number `after`."""
        return [LoggedRequest(**request) for request in json.loads(self._log("GET", after))]

    def forget_requests(self) -> None:
        self._log("DELETE", 0)

    def _log(self, method: str, after: int) -> bytes:
        url = f"{self.endpoint_url}{LOG_PATH}?after={after}"
        asked = urllib.request.Request(url, method=method)
        with urllib.request.urlopen(asked, timeout=_LOG_SECONDS) as answer:
            body: bytes = answer.read()
        return body


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m inlay.local.s3server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="delay of each S3 request")
    parser.add_argument(
        "--swap-ms", type=float, default=0.0, help="of a swap, while others of its key are refused"
    )
    parser.add_argument("--host", default=HOST, help="0.0.0.0 lets containers in, and others")
    parser.add_argument("--data-dir", type=Path, help="keeps what S3 holds; else it ends with this")
    parser.add_argument("--services", default=",".join(SERVICES), help="of s3 and sqs")
    options = parser.parse_args(arguments)
    done = threading.Event()

    def finish(number: int, frame: FrameType | None) -> None:
        done.set()

    signal.signal(signal.SIGTERM, finish)
    signal.signal(signal.SIGINT, finish)
    for watch in (_watch_input, _watch_parent):
        threading.Thread(target=watch, args=(done,), daemon=True).start()
    services = [name for name in options.services.split(",") if name]
    with EmbeddedAws(
        services,
        port=options.port,
        latency_ms=options.latency_ms,
        host=options.host,
        data_dir=options.data_dir,
        swap_ms=options.swap_ms,
    ) as aws:
        print(aws.endpoint_url, flush=True)
        done.wait()
    return 0


def _watch_input(done: threading.Event) -> None:
    """A pipe that closes means whoever held it is gone; a terminal or /dev/null says nothing."""
    mode = os.fstat(0).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        while os.read(0, 4096):
            pass
        done.set()


def _watch_parent(done: threading.Event) -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    done.set()


if __name__ == "__main__":
    sys.exit(main())

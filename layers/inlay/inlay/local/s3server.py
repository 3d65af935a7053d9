"""The embedded S3 and SQS: an HTTP server on this machine, in this process or one of its own.

Promise: `EmbeddedAws` is up when its block is entered and gone when it is left. It listens on
127.0.0.1 only. Nothing is kept: buckets and queues live in memory and end with it. Moto's state
belongs to the process, so a process runs one at a time.

    with EmbeddedAws() as aws:
        boto3.client("s3", endpoint_url=aws.endpoint_url)

`python -m inlay.local.s3server --port 0` prints the URL as one line and serves until SIGTERM, until
its standard input closes (if that is a pipe) or until its parent is gone.
"""

from __future__ import annotations

import argparse
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from http.client import responses
from types import FrameType, TracebackType
from typing import Any, Final

from moto.server import MotoRequestHandler
from werkzeug.serving import ThreadedWSGIServer

from inlay.local import moto_s3
from inlay.local.aws_app import AwsApp, LoggedRequest
from inlay.local.aws_request import Answer, s3_error

HOST: Final = "127.0.0.1"
REGION: Final = "us-east-1"
SERVICES: Final = ("s3", "sqs")
_PARENT_POLL_SECONDS: Final = 1.0
_running = threading.Lock()


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


class _Handler(MotoRequestHandler):  # type: ignore[misc]
    """Keeps connections open: werkzeug's own handler closes each, and lingers 10 ms over it."""

    protocol_version = "HTTP/1.1"
    # Head and body go out as two writes; they must not wait for each other's acknowledgement.
    disable_nagle_algorithm = True

    def run_wsgi(self) -> None:
        environ = self.environ = self.make_environ()
        if "wsgi.input_terminated" in environ:
            body = environ["wsgi.input"].read()
        else:
            length = int(environ.get("CONTENT_LENGTH") or 0)
            body = self.rfile.read(length)
            if len(body) < length:
                # The client died while it sent. S3 stores nothing of a request that did not arrive whole.
                self.close_connection = True
                return
        try:
            answer = self.server.aws(environ, body)
        except Exception as error:  # the server must outlive any fault of moto's
            print(f"{self.command} {self.path}: {error!r}", file=sys.stderr)
            answer = s3_error(500, "InternalError", repr(error))
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status, responses.get(answer.status, ""))
        sized = False
        for name, value in answer.headers.items():
            lower = name.lower()
            if lower in ("connection", "date", "server", "transfer-encoding"):
                continue
            # Only a HEAD says the length of a body it does not send.
            if lower == "content-length":
                if self.command != "HEAD":
                    continue
                sized = True
            self.send_header(name, value)
        if not sized and answer.status != 204:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if answer.body and self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """The access log is in memory, see `EmbeddedAws.requests`."""


class _Server(ThreadedWSGIServer):
    def __init__(self, port: int, aws: AwsApp, host: str) -> None:
        self.aws = aws
        super().__init__(host, port, _unused, handler=_Handler)


def _unused(environ: Any, start_response: Any) -> Any:
    raise AssertionError("unreachable: the handler calls AwsApp")


class EmbeddedAws:
    """S3 and SQS on 127.0.0.1; `port` 0 takes a free one, `latency_ms` delays each S3 request. With
    another `host`, such as 0.0.0.0, containers of this machine reach it, and so does whoever is on its
    networks: there are no credentials to know."""

    def __init__(
        self,
        services: Sequence[str] = SERVICES,
        *,
        port: int = 0,
        latency_ms: float = 0.0,
        host: str = HOST,
    ) -> None:
        unknown = sorted(set(services) - set(SERVICES))
        if unknown:
            raise ValueError(f"no embedded {', '.join(unknown)}; there are {', '.join(SERVICES)}")
        self._app = AwsApp(services, latency_ms=latency_ms)
        self._wanted_port = port
        self._host = host
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> EmbeddedAws:
        if not _running.acquire(blocking=False):
            raise RuntimeError("an embedded AWS is already running in this process")
        try:
            moto_s3.reset()
            self._server = _Server(self._wanted_port, self._app, self._host)
        except BaseException:
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
        self._server = self._thread = None
        moto_s3.reset()
        _running.release()

    def __enter__(self) -> EmbeddedAws:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def endpoint_url(self) -> str:
        if self._server is None:
            raise RuntimeError("the embedded AWS is not running")
        return f"http://{HOST}:{self._server.port}"

    def env(self) -> Mapping[str, str]:
        """The variables with which an SDK, here or in another process, finds this server."""
        return environment(self.endpoint_url)

    def requests(self, *, after: int = 0) -> Sequence[LoggedRequest]:
        """What was asked of the server, since request number `after`."""
        return self._app.requests(after=after)

    def forget_requests(self) -> None:
        self._app.forget_requests()


# -- as a process ---------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m inlay.local.s3server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="delay of each S3 request")
    parser.add_argument("--host", default=HOST, help="0.0.0.0 lets containers in, and others")
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
        services, port=options.port, latency_ms=options.latency_ms, host=options.host
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

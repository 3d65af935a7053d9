"""The embedded S3 and SQS as a process of its own.

Promise: the same as `EmbeddedAws`, but it takes no turn of this process's interpreter lock, and any
number can run beside one another. It ends with the block, and with this process however that dies:
its standard input is a pipe from here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from inlay.local.s3server import HOST, LOG_PATH, SERVICES, LoggedRequest, environment

# It holds nothing that a kill could hurt.
_STOP_SECONDS: Final = 1.0
_LOG_SECONDS: Final = 30.0


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
    ) -> None:
        self._command = [
            *(sys.executable, "-m", "inlay.local.s3server"),
            *("--services", ",".join(services)),
            *("--port", str(port), "--latency-ms", str(latency_ms), "--host", host),
            *(("--data-dir", str(data_dir)) if data_dir is not None else ()),
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
        return [LoggedRequest(**each) for each in json.loads(self._log("GET", after))]

    def forget_requests(self) -> None:
        self._log("DELETE", 0)

    def _log(self, method: str, after: int) -> bytes:
        url = f"{self.endpoint_url}{LOG_PATH}?after={after}"
        asked = urllib.request.Request(url, method=method)
        with urllib.request.urlopen(asked, timeout=_LOG_SECONDS) as answer:
            body: bytes = answer.read()
        return body

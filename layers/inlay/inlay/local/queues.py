"""SQS by moto, behind one lock.

Promise: each request is one step, because moto's queues lose a message when one is deleted while another
arrives. Only waiting happens outside the lock: a long poll of ReceiveMessage is asked again whenever
anything changed. Moto is used as a server, by its protocol, never through its models; its state
belongs to the process.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from moto.server import DomainDispatcherApplication, create_backend_app

from inlay.engine import AwsAnswer, AwsRequest

# SQS: a long poll waits at most 20 seconds.
_LONGEST_POLL_SECONDS: Final = 20.0
# Messages also become visible by time alone (delay, visibility timeout), which wakes nobody.
_POLL_AGAIN_SECONDS: Final = 0.25
_JSON: Final = "application/x-amz-json-1.0"


class Queues:
    """Answers requests to SQS."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._changed = threading.Condition()

    def __call__(self, request: AwsRequest) -> AwsAnswer:
        if request.operation == "ReceiveMessage":
            return self._receive(request)
        with self._changed:
            answered = self._through_moto(request)
            self._changed.notify_all()
        return answered

    def send(self, arn: str, message: Mapping[str, Any]) -> None:
        """Put a message into the queue of that ARN; it is dropped where there is no such queue."""
        _, _, _, region, account, name = arn.split(":")
        url = f"http://127.0.0.1/{account}/{name}"
        self(_call("SendMessage", region, QueueUrl=url, MessageBody=json.dumps(message)))

    def reset(self) -> None:
        """Forget all queues: moto keeps them for the whole process."""
        with self._changed:
            self._through_moto(
                AwsRequest("POST", "/moto-api/reset", "", {"host": "127.0.0.1"}, b"")
            )

    def _receive(self, request: AwsRequest) -> AwsAnswer:
        """Long polling without holding the lock: ask for what is there, wait for a change."""
        asked = request.json
        body = json.dumps(asked | {"WaitTimeSeconds": 0}).encode()
        at_once = AwsRequest(
            request.method, request.path, request.query_string, request.headers, body
        )
        with self._changed:
            wait = asked.get("WaitTimeSeconds")
            if wait is None:
                wait = self._own_wait(asked.get("QueueUrl", ""), request.scope[1])
            deadline = time.monotonic() + min(float(wait), _LONGEST_POLL_SECONDS)
            while True:  # ends: at the deadline at the latest
                answered = self._through_moto(at_once)
                seconds = deadline - time.monotonic()
                if answered.status != 200 or b'"Messages"' in answered.body or seconds <= 0:
                    return answered
                self._changed.wait(min(seconds, _POLL_AGAIN_SECONDS))

    def _own_wait(self, queue_url: str, region: str) -> float:
        """The queue's own long-poll time."""
        name = "ReceiveMessageWaitTimeSeconds"
        asked = _call("GetQueueAttributes", region, QueueUrl=queue_url, AttributeNames=[name])
        attributes = json.loads(self._through_moto(asked).body or b"{}").get("Attributes") or {}
        return float(attributes.get(name, 0))

    def _through_moto(self, request: AwsRequest) -> AwsAnswer:
        environ = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": "",
            # WSGI takes bytes as Latin-1 text.
            "PATH_INFO": unquote(request.path, "latin-1"),
            "QUERY_STRING": request.query_string,
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_TYPE": request.header("content-type") or "",
            "CONTENT_LENGTH": str(len(request.sent)),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(request.sent),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            **{
                f"HTTP_{name.upper().replace('-', '_')}": value
                for name, value in request.headers.items()
                if name not in ("content-type", "content-length", "transfer-encoding")
            },
        }
        said: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            said[:] = [int(status.partition(" ")[0]), headers]

        body = b"".join(self._moto(environ, start_response))
        return AwsAnswer(said[0], dict(said[1]), body)


def _call(operation: str, region: str, **arguments: Any) -> AwsRequest:
    """A request of our own."""
    credential = f"AWS4-HMAC-SHA256 Credential=local/20260101/{region}/sqs/aws4_request"
    headers = {
        "host": "127.0.0.1",
        "content-type": _JSON,
        "x-amz-target": f"AmazonSQS.{operation}",
        "authorization": f"{credential}, SignedHeaders=host, Signature=none",
    }
    return AwsRequest("POST", "/", "", headers, json.dumps(arguments).encode())

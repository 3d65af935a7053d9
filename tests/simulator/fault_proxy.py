"""A proxy before an S3 that makes the wire go wrong: between a real client and a real server.

Promise: a request that no fault is planned for passes unchanged; one that has a fault meets exactly that.
It listens on 127.0.0.1 only and speaks HTTP/1.1 to any `http://` endpoint.

    with FaultProxy(aws.endpoint_url, lambda request: "reset_after" if request.number == 3 else None) as p:
        S3Store("bucket", endpoint_url=p.endpoint_url)

Each fault is one of the fates that a request can meet (`tests.simulator.faults.Fate`), in one of the ways
in which the wire brings it about:

| fault | fate | the client |
|---|---|---|
| `reset_before` | UNSENT | connection reset |
| `reset_in_body` | UNSENT | connection reset after half of its body was taken |
| `body_lost` | UNSENT | connection reset; the server is given the head, and an empty body |
| `internal_error`, `slow_down` | UNSENT | 500, 503 SlowDown |
| `expired`, `skewed` | UNSENT | 400 ExpiredToken, 403 RequestTimeTooSkewed |
| `not_implemented` | UNSENT | 501, of a server or proxy that does not know the request |
| `not_there` | UNSENT | 404 with a proxy's page; of a HEAD, whose answers have no body, nothing |
| `sign_in` | UNSENT | 302, of a proxy that wants to be signed in to |
| `moved` | RESENT | 307, nothing done: the client sends the request once more |
| `error_in_200` | UNSENT | 200, and then an error, as of S3's copies |
| `conflict` | RACE | 409, of any request |
| `refused` | UNSENT | 412, of a request with a condition that holds |
| `reset_after` | LOST | connection reset, no answer |
| `truncate` | LOST | half of the answer's body, or of its head, then the end |
| `stall` | LOST | half of the answer's body, then nothing for `stall_seconds`, then a reset |
| `late` | LATE | connection reset at once; the server does it after `stall_seconds` |
| `held` | LATE | connection reset at once; the server does it when `deliver` is called |
| `duplicate` | TWICE | the second answer |
| `garbled` | LOST | an answer whose dates and sizes mean nothing |
| `slow` | DONE | the answer in small pieces |
| `old_http` | DONE | the answer as HTTP/1.0, whose server closes after it |
| `weak` | DONE | the ETag made weak, as by a proxy that compresses |
| `late_listing` | DONE | a listing without its last object |
| `other_range` | DONE | of a range: as many bytes from another place of the object, and it says so |
"""

from __future__ import annotations

import contextlib
import re
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

from tests.simulator.faults import Fate

HOST: Final = "127.0.0.1"
Fault = Literal[
    "reset_before",
    "reset_in_body",
    "reset_after",
    "truncate",
    "stall",
    "slow",
    "duplicate",
    "late",
    "held",
    "internal_error",
    "slow_down",
    "conflict",
    "expired",
    "skewed",
    "not_implemented",
    "moved",
    "error_in_200",
    "refused",
    "garbled",
    "old_http",
    "weak",
    "late_listing",
    "body_lost",
    "not_there",
    "sign_in",
    "other_range",
]
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
FATES: Final[Mapping[Fault, Fate]] = {
    "reset_before": Fate.UNSENT,
    "reset_in_body": Fate.UNSENT,
    "reset_after": Fate.LOST,
    "truncate": Fate.LOST,
    "stall": Fate.LOST,
    "slow": Fate.DONE,
    "duplicate": Fate.TWICE,
    "late": Fate.LATE,
    "held": Fate.LATE,
    "internal_error": Fate.UNSENT,
    "slow_down": Fate.UNSENT,
    "conflict": Fate.RACE,
    "expired": Fate.UNSENT,
    "skewed": Fate.UNSENT,
    "not_implemented": Fate.UNSENT,
    "moved": Fate.RESENT,
    "error_in_200": Fate.UNSENT,
    "refused": Fate.UNSENT,
    "garbled": Fate.LOST,
    "old_http": Fate.DONE,
    "weak": Fate.DONE,
    "late_listing": Fate.DONE,
    "body_lost": Fate.UNSENT,
    "not_there": Fate.UNSENT,
    "sign_in": Fate.UNSENT,
    "other_range": Fate.DONE,
}
_ANSWERS: Final[Mapping[str, tuple[int, str, str]]] = {
    "internal_error": (500, "Internal Server Error", "InternalError"),
    "slow_down": (503, "Slow Down", "SlowDown"),
    "conflict": (409, "Conflict", "ConditionalRequestConflict"),
    "expired": (400, "Bad Request", "ExpiredToken"),
    "skewed": (403, "Forbidden", "RequestTimeTooSkewed"),
    "not_implemented": (501, "Not Implemented", "NotImplemented"),
    "moved": (307, "Temporary Redirect", "TemporaryRedirect"),
    "error_in_200": (200, "OK", "InternalError"),
    "refused": (412, "Precondition Failed", "PreconditionFailed"),
    "not_there": (404, "Not Found", ""),
    "sign_in": (302, "Found", ""),
}
# Whose values `garbled` replaces.
_MEANINGFUL: Final = re.compile(rb"(?i)\r\n(date|last-modified|content-range):[^\r]*")
# Objects of tests are small; a larger head is no HTTP.
_HEAD_BYTES: Final = 65_536
_PIECES: Final = 8
_ANSWERED_RANGE: Final = re.compile(rb"(?i)\r\ncontent-range: *bytes (\d+)-(\d+)/(\d+)")
_SERVER_SECONDS: Final = 60.0
_LAST_LISTED: Final = re.compile(rb"(.*)<Contents>.*?</Contents>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Passing:
    """A request on its way; `number` counts from 1."""

    number: int
    method: str
    target: str

    @property
    def is_listing(self) -> bool:
        return self.method == "GET" and "list-type=2" in self.target


Plan = Callable[[Passing], Fault | None]


@dataclass(frozen=True, slots=True)
class _Message:
    head: bytes
    body: bytes

    @property
    def whole(self) -> bytes:
        return self.head + self.body


class _Ended(Exception):
    """The other side has closed."""


class FaultProxy:
    """Serves from `with` on; `plan` is asked once for each request, by several threads. Headers that are
    `dropped` (in lower case) never reach the server: without `if-match` it is a store without that
    condition."""

    def __init__(
        self,
        endpoint_url: str,
        plan: Plan = lambda passing: None,
        *,
        stall_seconds: float = 0.2,
        dropped: Sequence[str] = (),
    ) -> None:
        parts = urlsplit(endpoint_url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"a fault proxy speaks http:// only, not {endpoint_url!r}")
        self.upstream = (parts.hostname, parts.port or 80)
        self.plan = plan
        self.stall_seconds = stall_seconds
        self.dropped = tuple(dropped)
        self.passed: list[Passing] = []
        self.faults: list[Fault] = []  # that were met, in order
        self._held: list[tuple[_Message, str]] = []
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def endpoint_url(self) -> str:
        assert self._server is not None, "the proxy is not running"
        return f"http://{HOST}:{self._server.server_address[1]}"

    def fate_of(self, method: str, target: str) -> tuple[Passing, Fault | None]:
        with self._lock:
            passing = Passing(len(self.passed) + 1, method, target)
            self.passed.append(passing)
        fault = self.plan(passing)
        if fault == "late_listing" and not passing.is_listing:
            fault = None
        if fault == "not_there" and method == "HEAD":
            fault = None
        if fault is not None:
            self.faults.append(fault)
        return passing, fault

    def hold(self, request: _Message, method: str) -> None:
        with self._lock:
            self._held.append((request, method))

    def deliver(self) -> int:
        """Let the requests that were held arrive, in order; how many there were."""
        with self._lock:
            held, self._held = self._held, []
        for request, method in held:
            _ask(self.upstream, request, method)
        return len(held)

    def restart_count(self) -> None:
        """The next request is number 1."""
        with self._lock:
            self.passed.clear()

    def __enter__(self) -> FaultProxy:
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="fault-proxy", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    # Connections are kept open by clients: nobody waits for them to end.
    block_on_close = False
    request_queue_size = 128

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__((HOST, 0), _Connection)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is what this is about."""


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        client: socket.socket = self.request
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        held = b""
        with contextlib.suppress(_Ended, OSError):
            while True:
                held = self._one(client, held)

    def _one(self, client: socket.socket, held: bytes) -> bytes:
        """Serve one request; what was read beyond it."""
        proxy = self.server.proxy
        head, held = _head(client, held)
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        _, fault = proxy.fate_of(method, target)
        if fault == "reset_before":
            raise _reset(client)
        fields = _fields(head)
        if fault == "refused" and not any("if-" in name for name in fields):
            fault = None
        if fault == "other_range" and "range" not in fields:
            fault = None
        if fields.get("expect", "").lower() == "100-continue":
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = re.sub(rb"(?i)\r\nexpect:[^\r]*", b"", head)
        for name in proxy.dropped:
            head = re.sub(rb"(?i)\r\n%s:[^\r]*" % re.escape(name.encode()), b"", head)
        length = int(fields.get("content-length", "0"))
        if fault == "reset_in_body":
            _exactly(client, held, length // 2)
            raise _reset(client)
        body, held = _exactly(client, held, length)
        request = _Message(head, body)
        if fault == "body_lost" and body:
            emptied = re.sub(rb"(?i)\r\ncontent-length:[^\r]*", b"\r\nContent-Length: 0", head)
            _ask(proxy.upstream, _Message(emptied, b""), method)
            raise _reset(client)
        if fault is not None and fault in _ANSWERS:
            client.sendall(_refusal(*_ANSWERS[fault], with_body=method != "HEAD"))
            return held
        if fault == "late":
            _linger(client)
            client.close()
            time.sleep(proxy.stall_seconds)
            _ask(proxy.upstream, request, method)
            raise _Ended
        if fault == "held":
            proxy.hold(request, method)
            raise _reset(client)
        answer = _ask(proxy.upstream, request, method)
        if fault == "duplicate":
            answer = _ask(proxy.upstream, request, method)
        self._answer(client, answer, fault)
        return held

    def _answer(self, client: socket.socket, answer: _Message, fault: Fault | None) -> None:
        if fault == "reset_after":
            raise _reset(client)
        if fault == "late_listing":
            fewer = _LAST_LISTED.sub(rb"\1", answer.body, count=1)
            head = re.sub(
                rb"(?i)\r\ncontent-length:[^\r]*",
                b"\r\nContent-Length: %d" % len(fewer),
                answer.head,
            )
            answer = _Message(head, fewer)
        if fault == "other_range":
            answer = _moved_range(answer)
        if fault == "garbled":
            answer = _Message(_MEANINGFUL.sub(rb"\r\n\1: nothing", answer.head), answer.body)
        if fault == "weak":
            head = re.sub(rb'(?i)\r\netag: *"', b'\r\nETag: W/"', answer.head)
            answer = _Message(head, answer.body)
        if fault == "old_http":
            head = answer.head.replace(b"HTTP/1.1", b"HTTP/1.0", 1)
            client.sendall(head + answer.body)
            client.shutdown(socket.SHUT_WR)
            raise _Ended
        if fault in ("truncate", "stall"):
            # Without a body, the status line alone.
            whole = answer.whole
            cut = len(answer.head) + len(answer.body) // 2
            client.sendall(whole[:cut] if answer.body else whole[: whole.index(b"\r\n") + 2])
            if fault == "truncate":
                client.shutdown(socket.SHUT_RDWR)
                raise _Ended
            time.sleep(self.server.proxy.stall_seconds)
            raise _reset(client)
        if fault == "slow":
            step = max(1, len(answer.whole) // _PIECES)
            for at in range(0, len(answer.whole), step):
                client.sendall(answer.whole[at : at + step])
                time.sleep(self.server.proxy.stall_seconds / _PIECES)
            return
        client.sendall(answer.whole)


def _moved_range(answer: _Message) -> _Message:
    """The answer as if its range began a byte later, or, at the object's end, a byte earlier."""
    said = _ANSWERED_RANGE.search(answer.head)
    if said is None:
        return answer
    first, last, size = map(int, said.groups())
    moved, body = 1, answer.body[1:] + b"?"
    if last + 1 == size:
        moved, body = -1, b"?" + answer.body[:-1]
    now = b"\r\nContent-Range: bytes %d-%d/%d" % (max(first + moved, 0), last + moved, size)
    return _Message(_ANSWERED_RANGE.sub(now, answer.head), body)


def _ask(upstream: tuple[str, int], request: _Message, method: str) -> _Message:
    with socket.create_connection(upstream, _SERVER_SECONDS) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.sendall(request.whole)
        head, held = _head(server, b"")
        while head.startswith(b"HTTP/1.1 1"):
            head, held = _head(server, held)
        status = int(head.split(b" ", 2)[1])
        if method == "HEAD" or status in (204, 304):
            return _Message(head, b"")
        fields = _fields(head)
        if "content-length" in fields:
            body, _ = _exactly(server, held, int(fields["content-length"]))
            return _Message(head, body)
        # Chunked, or until the end: the server is asked to close after this answer.
        return _Message(head, held + _until_end(server, head, held))


def _head(connection: socket.socket, held: bytes) -> tuple[bytes, bytes]:
    while b"\r\n\r\n" not in held:
        if len(held) > _HEAD_BYTES or not (more := connection.recv(65_536)):
            raise _Ended
        held += more
    head, _, rest = held.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def _exactly(connection: socket.socket, held: bytes, length: int) -> tuple[bytes, bytes]:
    pieces, size = [held], len(held)
    while size < length:
        if not (more := connection.recv(1 << 20)):
            raise _Ended
        pieces.append(more)
        size += len(more)
    whole = b"".join(pieces)
    return whole[:length], whole[length:]


def _until_end(connection: socket.socket, head: bytes, held: bytes) -> bytes:
    chunked = _fields(head).get("transfer-encoding", "").lower() == "chunked"
    found = b""
    while not (chunked and (held + found).endswith(b"0\r\n\r\n")):
        if not (more := connection.recv(1 << 20)):
            break
        found += more
    return found


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {
        name.strip().lower(): value.strip()
        for name, colon, value in (line.partition(":") for line in lines)
        if colon
    }


def _linger(connection: socket.socket) -> None:
    """Closing it then resets it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _reset(connection: socket.socket) -> _Ended:
    _linger(connection)
    connection.close()
    return _Ended()


def _refusal(status: int, reason: str, code: str, *, with_body: bool) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>by the fault proxy</Message></Error>".encode()
    if not code:
        body = b"<html><body>the fault proxy</body></html>"
    head = (
        f"HTTP/1.1 {status} {reason}\r\nDate: {formatdate(usegmt=True)}\r\n"
        f"Content-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")

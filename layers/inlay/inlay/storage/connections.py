"""Requests over HTTP/1.1, on connections that are kept.

Python's HTTP clients read the head of an answer as that of an e-mail, and take several times as long for a
small request as the request itself; loading them takes longer than three requests.

Promise: a request is sent once, on a connection that the server has not closed as far as can be seen, and
never redirected. An answer is whole, or `OSError`. An answer of the usual form is read here; every other
(chunked, an end by closing, informational, folded or repeated headers, a long head) by `http.client`, which
is loaded for it, with all its limits and refusals. Headers are by their names in lower case, a repeated
one's values joined by ", ". Thread-safe; belongs to the process that made it.
"""

from __future__ import annotations

import re
import select
import socket
import weakref
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import io
    import ssl

# What is read of an answer at first: a head and a small body.
_BUFFER_BYTES: Final = 1 << 14
# A small body is sent with its head.
_TOGETHER_BYTES: Final = 1 << 14
# What `http.client` takes for the same: printable values, and fewer lines than its limit.
_HEAD: Final = re.compile(
    rb"HTTP/1\.1 ([2-5]\d\d)(?: [\t\x20-\x7e]*)?\r\n"
    rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e]*\r\n){1,90})\r\n"
)
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_WITHOUT_BODY: Final = frozenset({204, 304})
_FOLD: Final = re.compile(r"\r?\n[ \t]+")
_PORTS: Final = {"http": 80, "https": 443}


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Connections:
    """Those to one origin ("https://host:port"). `certificates` is a file of those that are trusted; limits
    are in seconds, `kept` is how many connections are kept while nobody uses them."""

    def __init__(
        self,
        origin: str,
        *,
        certificates: str | None,
        connect_seconds: float,
        read_seconds: float,
        kept: int,
    ) -> None:
        scheme, _, self._host = origin.partition("://")
        name, _, port = self._host.partition(":")
        self._name = name
        self._address = (name.encode("ascii"), int(port or _PORTS[scheme]))
        if port and int(port) == _PORTS[scheme]:
            self._host = name
        self._tls = _tls(certificates) if scheme == "https" else None
        self._connect_seconds, self._read_seconds = connect_seconds, read_seconds
        self._idle: deque[_Connection] = deque(maxlen=kept)
        weakref.finalize(self, _close_all, self._idle)

    def send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        """The answer to a request whose headers say the length of its body. Raises `OSError` where there is
        none, or part of one; `ValueError` for a header that cannot be sent."""
        head = _head(method, target, self._host, headers)
        connection = self._kept() or self._new()
        reusable = False
        try:
            connection.send(head, body)
            answer, reusable = connection.answer(method)
        finally:
            if not reusable or len(self._idle) == self._idle.maxlen:
                connection.close()
            else:
                self._idle.append(connection)
        return answer

    def _kept(self) -> _Connection | None:
        """The connection that was used last and that the server has not closed."""
        while True:  # terminates: each turn takes one away
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_open():
                return connection
            connection.close()

    def _new(self) -> _Connection:
        # As bytes: of a text the system's lookup would encode each name by the rules of other alphabets.
        address: Any = self._address
        wire = socket.create_connection(address, self._connect_seconds)
        try:
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._tls is not None:
                wire = self._tls.wrap_socket(wire, server_hostname=self._name)
            wire.settimeout(self._read_seconds)
        except BaseException:
            wire.close()
            raise
        return _Connection(wire)


class _Connection:
    __slots__ = ("_is_sent", "_poll", "_wire")

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._is_sent = True
        self._poll = select.poll()
        self._poll.register(wire, select.POLLIN)

    def is_open(self) -> bool:
        """Nothing may come without a request: then the server has closed it, or said what nobody asked."""
        return not self._poll.poll(0)

    def close(self) -> None:
        self._wire.close()

    def send(self, head: bytes, body: bytes | None) -> None:
        try:
            if body and len(body) > _TOGETHER_BYTES:
                self._wire.sendall(head)
                self._wire.sendall(body)
            else:
                self._wire.sendall(head + body if body else head)
        except (BrokenPipeError, ConnectionResetError):
            # The server has closed its side; before, it may have said why.
            self._is_sent = False

    def answer(self, method: str) -> tuple[Answer, bool]:
        """The answer, and whether the connection can be used again."""
        reader: io.BufferedReader
        with self._wire.makefile("rb", _BUFFER_BYTES) as reader:  # type: ignore[assignment]
            start = reader.peek()
            if not start:
                raise ConnectionResetError("the connection was closed without an answer")
            usual = _usual(start, method)
            if usual is None:
                answer, reusable = _by_library(reader, method)
            else:
                status, headers, head_bytes, body_bytes = usual
                reader.read(head_bytes)
                body = reader.read(body_bytes) if body_bytes else b""
                if len(body) != body_bytes:
                    raise ConnectionError(
                        f"the answer ended after {len(body)} of {body_bytes} bytes"
                    )
                answer = Answer(status, headers, body)
                # What is behind the answer belongs to no request.
                reusable = len(start) <= head_bytes + body_bytes
        return answer, reusable and self._is_sent


def _close_all(idle: deque[_Connection]) -> None:
    for connection in idle:
        connection.close()


def _head(method: str, target: str, host: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Accept-Encoding: identity"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1:
        raise ValueError("a header has a line break")
    return f"{text}\r\n\r\n".encode("latin-1")


def _usual(start: bytes, method: str) -> tuple[int, dict[str, str], int, int] | None:
    """(status, headers, bytes of the head, bytes of the body) of an answer of the usual form, whose head is
    all there."""
    match = _HEAD.match(start)
    if match is None:
        return None
    status, headers = int(match[1]), {}
    lines = match[2].decode("ascii").split("\r\n")
    lines.pop()  # what is behind the last line's end
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip(" \t")
    if len(headers) != len(lines) or "transfer-encoding" in headers:
        return None
    if headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    if method == "HEAD" or status in _WITHOUT_BODY:
        return status, headers, match.end(), 0
    length = headers.get("content-length", "")
    if _LENGTH.fullmatch(length) is None:
        return None
    return status, headers, match.end(), int(length)


class _Opened:
    """A socket, as `http.client` wants to have it, whose answer has been begun."""

    def __init__(self, reader: io.BufferedReader) -> None:
        self._reader = reader

    def makefile(self, mode: str) -> io.BufferedReader:
        return self._reader


def _by_library(reader: io.BufferedReader, method: str) -> tuple[Answer, bool]:
    from http.client import HTTPException, HTTPResponse

    begun: Any = _Opened(reader)
    response = HTTPResponse(begun, method=method)
    try:
        response.begin()
        body = response.read()
    except HTTPException as error:
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    headers: dict[str, str] = {}
    for name, text in response.getheaders():
        value = _FOLD.sub(" ", text)
        known = headers.get(name.lower())
        headers[name.lower()] = value if known is None else f"{known}, {value}"
    return Answer(response.status, headers, body), not response.will_close


def _tls(certificates: str | None) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context(cafile=certificates)
    context.set_alpn_protocols(["http/1.1"])
    return context

"""Connections read answers as Python's HTTP client does, and are used again only where that is safe."""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import example, given
from hypothesis import strategies as st

from inlay.storage import connections, http_rules
from inlay.storage.connections import Answer, Connections

USUAL = b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: 2\r\n\r\nab'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + USUAL
NO_BODY = b'HTTP/1.1 204 No Content\r\nETag: "x"\r\n\r\n'
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab"
UNSIZED = b"HTTP/1.1 200 OK\r\nServer: s\r\n\r\nab"
OLD = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab"
TWICE = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nX-a: 2\r\nContent-Length: 2\r\n\r\nab"
FOLDED = b"HTTP/1.1 200 OK\r\nX-A: 1\r\n  2\r\nContent-Length: 2\r\n\r\nab"
LONG = b"HTTP/1.1 200 OK\r\nX-A: %s\r\nContent-Length: 2\r\n\r\nab" % (b"a" * 40_000)
WITH_MORE = USUAL + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"


class Server:
    """Each list is of one connection: an answer to each request, after the last one it is closed. `asked`
    has the number of the connection beside each request."""

    def __init__(self, *of_connections: list[bytes], tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[tuple[int, bytes]] = []
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, args=(of_connections,), daemon=True)
        self._thread.start()

    def _accept(self, of_connections: tuple[list[bytes], ...]) -> None:
        for number, answers in enumerate(of_connections):
            try:
                wire, _ = self._listening.accept()
                if self._tls is not None:
                    wire = self._tls.wrap_socket(wire, server_side=True)
            except OSError:
                continue
            with wire, wire.makefile("rb") as reader:
                for answer in answers:
                    head = b"".join(iter(reader.readline, b"\r\n"))
                    length = re.search(rb"content-length: (\d+)", head)
                    body = reader.read(int(length[1])) if length else b""
                    self.asked.append((number, head + body))
                    wire.sendall(answer)

    def close(self) -> None:
        self._listening.close()
        self._thread.join(10)


@contextmanager
def served(*of_connections: list[bytes]) -> Iterator[tuple[Connections, Server]]:
    server = Server(*of_connections)
    try:
        yield to(server.port), server
    finally:
        server.close()


def to(
    port: int, *, origin: str = "http://127.0.0.1", trusted: Path | None = None, **more: Any
) -> Connections:
    settings = {"connect_seconds": 5, "read_seconds": 10, "kept": 4, **more}
    return Connections(f"{origin}:{port}", certificates=trusted and str(trusted), **settings)


def get(line: Connections) -> Answer:
    return line.send("GET", "/b/k", {}, None)


# -- what an answer says --------------------------------------------------------------------------


def by_http_client(raw: bytes, method: str) -> tuple[object, ...] | None:
    """(status, headers, body, whether the connection is kept); None where it refuses the answer."""

    class Wire:
        def makefile(self, mode: str) -> io.BufferedReader:
            return io.BufferedReader(io.BytesIO(raw))

    response = http.client.HTTPResponse(Wire(), method=method)
    try:
        response.begin()
        body = response.read()
    except http.client.HTTPException:
        return None
    said = {name.lower(): value.strip(" \t") for name, value in response.getheaders()}
    return response.status, said, body, not response.will_close


names = st.sampled_from(
    [
        "ETag",
        "content-length",
        "Content-Length",
        "Connection",
        "Transfer-Encoding",
        "X-A",
        "x-a",
        "X A",
        "",
    ]
)
values = st.sampled_from(
    [
        "0",
        "2",
        "3",
        " 2",
        "+2",
        "2, 2",
        "-1",
        "close",
        "keep-alive",
        "Keep-Alive",
        "chunked",
        '"x"',
        "",
    ]
) | st.text(st.characters(max_codepoint=255), max_size=4)
ends = st.sampled_from(["\r\n", "\r\n", "\r\n", "\n", "\r\n "])


@given(
    first=st.sampled_from(
        [
            "HTTP/1.1 200 OK",
            "HTTP/1.1 206 Partial Content",
            "HTTP/1.1 404",
            "HTTP/1.1 204 No Content",
            "HTTP/1.1 304 ",
            "HTTP/1.0 200 OK",
            "HTTP/1.1 100 Continue",
            "HTTP/1.1  200",
            "HTTP/1.1 99 x",
            "HTTP/1.1 200 \xe9",
            "HTTP/2 200 OK",
            "<html>",
            "",
        ]
    ),
    lines=st.lists(st.tuples(names, st.sampled_from([": ", ":", " : "]), values, ends), max_size=5),
    body=st.binary(max_size=4),
    method=st.sampled_from(["GET", "HEAD", "PUT"]),
)
@example("HTTP/1.1 200 OK", [("X-A", ":", "1", "\r\n")] * 99, b"", "HEAD")
@example("HTTP/1.1 200 OK", [("X-A", ":", "1", "\r\n")] * 101, b"", "HEAD")
def test_what_is_read_here_is_what_the_library_reads(
    first: str, lines: list[tuple[str, str, str, str]], body: bytes, method: str
) -> None:
    head = first + "\r\n" + "".join(name + colon + value + end for name, colon, value, end in lines)
    raw = head.encode("latin-1") + b"\r\n" + body
    usual = connections._usual(raw, method)
    if usual is None:
        return  # the library's
    theirs = by_http_client(raw, method)
    status, headers, head_bytes, body_bytes = usual
    ours = raw[head_bytes : head_bytes + body_bytes]
    if len(ours) < body_bytes:
        assert theirs is None
    else:
        assert theirs == (status, headers, ours, True)


@pytest.mark.parametrize("raw", [USUAL, NO_BODY], ids=["usual", "no body"])
def test_the_usual_answers_need_no_library(raw: bytes) -> None:
    assert connections._usual(raw, "GET") is not None


@pytest.mark.parametrize(
    ("raw", "headers", "kept"),
    [
        (USUAL, {"etag": '"x"', "content-length": "2"}, True),
        (CHUNKED, {"transfer-encoding": "chunked"}, True),
        (CONTINUED, {"etag": '"x"', "content-length": "2"}, True),
        (LAST, {"connection": "close", "content-length": "2"}, False),
        (UNSIZED, {"server": "s"}, False),
        (OLD, {"content-length": "2"}, False),
        (TWICE, {"x-a": "1, 2", "content-length": "2"}, True),
        (FOLDED, {"x-a": "1 2", "content-length": "2"}, True),
        (LONG, {"x-a": "a" * 40_000, "content-length": "2"}, True),
        (WITH_MORE, {"etag": '"x"', "content-length": "2"}, False),
    ],
    ids=str.split("usual chunked continued last unsized old twice folded long with_more"),
)
def test_an_answer_of_each_form(raw: bytes, headers: dict[str, str], kept: bool) -> None:
    first = [raw, USUAL] if kept else [raw]
    with served(first, [USUAL]) as (line, server):
        assert get(line) == Answer(200, headers, b"ab")
        assert get(line).body == b"ab"
        assert [number for number, _ in server.asked] == [0, 0 if kept else 1]


def test_a_head_that_comes_in_pieces_and_a_large_body() -> None:
    large = bytes(range(256)) * 4_000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(large)
    with served([head + large, CHUNKED]) as (line, _):
        assert get(line).body == large
        assert get(line).body == b"ab"
    parted = io.BufferedReader(io.BytesIO(USUAL), 10)
    assert connections._by_library(parted, "GET")[0].body == b"ab"


# -- what is none ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        USUAL[:-1],
        USUAL[:20],
        CHUNKED[:-9],
        b"<html>\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: 1\r\n" * 101 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: %s\r\n\r\n" % (b"a" * 70_000),
    ],
    ids=str.split("nothing body head chunk page headers line"),
)
def test_an_answer_that_is_not_whole_is_an_error_and_its_connection_is_closed(raw: bytes) -> None:
    with served([raw], [USUAL]) as (line, server):
        if raw == USUAL[:20]:  # the library takes a head without an end for a whole one
            assert get(line).headers == {}
        else:
            with pytest.raises(OSError):
                get(line)
        assert get(line).body == b"ab"
        assert [number for number, _ in server.asked] == [0, 1]


def test_a_server_that_says_nothing_is_waited_for_as_long_as_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        get(to(silent.getsockname()[1], read_seconds=0.05))


def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    with served([USUAL], [USUAL]) as (line, server):
        get(line)
        (kept,) = line._idle
        assert kept._poll.poll(10_000), "closed after its last answer"
        get(line)
        assert [number for number, _ in server.asked] == [0, 1]


def test_a_server_that_refuses_and_closes_while_a_body_is_sent_is_heard() -> None:
    """As S3 refuses a large upload."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connection = to(listening.getsockname()[1])._new()
        wire, _ = listening.accept()
        wire.sendall(b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n")
        connection._wire.shutdown(socket.SHUT_WR)  # what is sent now meets a broken pipe
        connection.send(b"PUT / HTTP/1.1\r\n\r\n", b"x" * 100_000)
        answer, reusable = connection.answer("PUT")
        assert (answer.status, reusable) == (412, False)
        connection.close()
        wire.close()


# -- what is asked --------------------------------------------------------------------------------


def test_a_request_is_sent_as_it_is() -> None:
    with served([USUAL, USUAL]) as (line, server):
        line.send("PUT", "/b/k?x=1", {"content-length": "3", "x-amz-meta-a": "é"}, b"xyz")
        line.send("PUT", "/b/k", {"content-length": "20000"}, b"x" * 20_000)
    (_, small), (_, large) = server.asked
    assert small == (
        b"PUT /b/k?x=1 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept-Encoding: identity\r\n"
        b"content-length: 3\r\nx-amz-meta-a: \xe9\r\nxyz" % server.port
    )
    assert large.endswith(b"\r\n" + b"x" * 20_000)


@pytest.mark.parametrize("broken", ["a\r\nX-B: 2", "a\n", "\r", "a\r\n"])
def test_a_header_with_a_line_break_is_not_sent(broken: str) -> None:
    with served() as (line, _), pytest.raises(ValueError, match="line break"):
        line.send("GET", "/", {"x-a": broken}, None)
    with served() as (line, _), pytest.raises(ValueError, match="line break"):
        line.send("GET", f"/{broken}", {}, None)


def test_the_schemes_own_port_is_not_in_the_host() -> None:
    def host(origin: str) -> tuple[str, tuple[bytes, int]]:
        line = Connections(origin, certificates=None, connect_seconds=1, read_seconds=1, kept=1)
        return line._host, line._address

    assert host("http://s.example") == ("s.example", (b"s.example", 80))
    assert host("http://s.example:80") == ("s.example", (b"s.example", 80))
    assert host("http://s.example:443") == ("s.example:443", (b"s.example", 443))
    assert host("https://s.example") == ("s.example", (b"s.example", 443))
    assert host("https://s.example:443") == ("s.example", (b"s.example", 443))


def test_no_more_connections_are_kept_than_asked() -> None:
    with served([USUAL], [USUAL, USUAL]) as (_, server):
        for kept, numbers in ((0, [0]), (1, [0, 1, 1])):
            line = to(server.port, kept=kept)
            while len(server.asked) < len(numbers):
                get(line)
            assert [number for number, _ in server.asked] == numbers
            assert len(line._idle) == kept


def test_connections_are_closed_with_what_holds_them() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        line = to(listening.getsockname()[1])
        line._idle.append(line._new())
        wire, _ = listening.accept()
        wire.settimeout(10)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            del line
        assert [each.message for each in warned] == []  # none that a socket was left open
        assert wire.recv(1) == b""
        wire.close()


# -- encryption -----------------------------------------------------------------------------------


def certificate(directory: Path, name: str) -> Path:
    """Of a server of that name, signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = directory / f"{name}.pem"
    path.write_bytes(secret + made.public_bytes(Encoding.PEM))
    return path


@pytest.mark.parametrize("name", ["localhost", "elsewhere.example"])
def test_a_server_must_be_who_it_says_by_the_certificates_that_are_trusted(
    name: str, tmp_path: Path
) -> None:
    of_server, of_others = certificate(tmp_path, name), certificate(tmp_path, "other.example")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(of_server)
    for trusted in (of_server, of_others):
        server = Server([USUAL, USUAL], tls=tls)
        try:
            line = to(server.port, origin="https://localhost", trusted=trusted)
            if trusted == of_server and name == "localhost":
                assert get(line).body == b"ab"
                assert get(line).body == b"ab"
            else:
                with pytest.raises(ssl.SSLCertVerificationError):
                    get(line)
        finally:
            server.close()


# -- dates and loading ----------------------------------------------------------------------------


@given(st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31)))
def test_a_date_is_what_the_library_reads(when: datetime) -> None:
    text = format_datetime(when.replace(tzinfo=UTC, microsecond=0), usegmt=True)
    assert http_rules.http_date(text) == parsedate_to_datetime(text)


@pytest.mark.parametrize(
    "text", ["Friday, 20-Nov-26 16:00:00 GMT", "Fri, 20 Nov 2026 16:00:00 +0100"]
)
def test_other_forms_of_a_date_are_the_librarys(text: str) -> None:
    assert http_rules.http_date(text) == parsedate_to_datetime(text)


@pytest.mark.parametrize("text", ["", "yesterday", "Fri, 32 Nov 2026 16:00:00 GMT"])
def test_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        http_rules.http_date(text)


def test_nothing_of_pythons_http_clients_is_loaded_for_usual_answers() -> None:
    with served([USUAL]) as (_, server):
        program = (
            "import sys; from inlay.storage.connections import Connections; "
            f"line = Connections('http://127.0.0.1:{server.port}', certificates=None, connect_seconds=5, "
            "read_seconds=5, kept=1); line.send('GET', '/', {}, None); "
            "print([n for n in ('http.client', 'urllib3', 'ssl', 'email') if n in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
    assert done.stdout == "[]\n"

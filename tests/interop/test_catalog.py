"""The read-only REST catalog: what it answers, and that engines read through it."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import inlay
from inlay.cli.app import app
from inlay.cli.serving import CatalogServer, catalog_of
from inlay.iceberg.catalog import Catalog


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tables = tmp_path / "tables"
    for name in ("people", "orders"):
        t = inlay.create(f"file://{tables}/{name}", pa.schema([("id", pa.int64())]))
        t.append(pa.table({"id": range(100)}))
        t.delete("id < 10", mode="vector")
    t.publish()
    return tables


@pytest.fixture
def uri(root: Path) -> Iterator[str]:
    with CatalogServer(catalog_of(f"file://{root}"), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_published_tables_alone_are_listed_and_answered(root: Path) -> None:
    catalog = catalog_of(f"file://{root}")

    def ask(path: str, method: str = "GET", query: str = "") -> tuple[int, object]:
        answer = catalog.answer(method, path, query)
        return answer.status, json.loads(answer.body)

    assert ask("/v1/namespaces") == (200, {"namespaces": [["tables"]]})
    listed = ask("/v1/namespaces/tables/tables")
    assert listed == (200, {"identifiers": [{"namespace": ["tables"], "name": "orders"}]})
    pointer = json.loads((root / "orders" / "metadata" / "latest.json").read_text())
    assert ask("/v1/namespaces/tables/tables/orders") == (200, pointer)
    assert ask("/v1/namespaces/tables/tables/people")[0] == 404
    assert ask("/v1/namespaces/tables/tables/%2e%2e")[0] == 404
    assert ask("/v1/namespaces/other/tables/orders")[0] == 404
    assert ask("/v1/namespaces/tables/tables/orders", "POST")[0] == 406
    assert ask("/v2/anything")[0] == 404
    assert ask("/v1/namespaces", query="parent=tables") == (200, {"namespaces": []})
    assert ask("/v1/namespaces", query="parent=") == (200, {"namespaces": [["tables"]]})
    assert ask("/v1/namespaces", query="parent=other")[0] == 404
    inlay.drop(f"file://{root}/orders")
    assert ask("/v1/namespaces/tables/tables") == (200, {"identifiers": []})
    assert ask("/v1/namespaces/tables/tables/orders")[0] == 404


@given(
    names=st.sets(st.text("abé/&=%+ ", min_size=1, max_size=3), max_size=12),
    size=st.integers(1, 5),
)
def test_pages_have_every_table_once_and_read_no_more_than_they_need(
    names: set[str], size: int
) -> None:
    looked = 0

    def published(after: str) -> Iterator[str]:
        nonlocal looked
        for name in sorted(names):
            if name > after:
                looked += 1
                yield name

    catalog = Catalog("tables", published, lambda _: None)
    listed: list[str] = []
    token: str | None = ""
    while token is not None:
        looked = 0
        query = urlencode({"pageToken": token, "pageSize": size})
        answer = json.loads(catalog.answer("GET", "/v1/namespaces/tables/tables", query).body)
        assert len(answer["identifiers"]) <= size and looked <= size + 1
        listed += [each["name"] for each in answer["identifiers"]]
        token = answer.get("next-page-token")
    assert listed == sorted(names)


@pytest.mark.parametrize("size", ["0", "-1", "x", "", "1.5", "9" * 30])
def test_a_page_of_no_size_is_refused(size: str) -> None:
    catalog = Catalog("tables", lambda after: (), lambda _: None)
    answer = catalog.answer("GET", "/v1/namespaces/tables/tables", f"pageSize={size}")
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["type"] == "BadRequestException"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "X"])
def test_what_is_no_read_is_refused_in_the_form_of_the_specification(method: str, uri: str) -> None:
    """Each on a connection that is used again by a client that sends a body."""
    connection = HTTPConnection(uri.removeprefix("http://"))
    for path in ("/v1/namespaces/tables/tables/orders?x=1", "/v1/config", "/nothing"):
        connection.request(method, path, body=b"{}")
        answer = connection.getresponse()
        said = json.loads(answer.read())
        assert (answer.status, said["error"]["code"]) == (406, 406)
        assert answer.version == 11 and answer.getheader("Content-Type") == "application/json"
    connection.request("GET", "/v1/namespaces")
    assert connection.getresponse().read() == b'{"namespaces": [["tables"]]}'
    connection.close()


def test_what_is_no_request_is_refused_in_json(uri: str) -> None:
    host, _, port = uri.removeprefix("http://").partition(":")
    chunks = b"POST /v1/namespaces HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0"
    for sent in (b"nonsense", b"GET / HTTP/9.9", b"GET /" + b"x" * 70_000, chunks):
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(sent + b"\r\n\r\n")
            answer = raw.makefile("rb").read()
        head, _, body = answer.partition(b"\r\n\r\n")
        assert json.loads(body or head)["error"]["type"] == "BadRequestException"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:8181"}, 200),
        ({"Host": "host.docker.internal:8181"}, 200),
        ({"Host": "catalog"}, 200),
        ({"Host": "evil.example:8181"}, 403),  # bound to 127.0.0.1 by who owns the name
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "[evil"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null", "Content-Type": "text/plain"}, 403),
    ],
)
def test_web_pages_do_not_reach_it(headers: dict[str, str], status: int, uri: str) -> None:
    """A browser sends what any page says to ports of its machine, unasked if it looks like a form."""
    for method in ("GET", "HEAD"):
        connection = HTTPConnection(uri.removeprefix("http://"))
        connection.request(method, "/v1/config", headers=headers)
        assert connection.getresponse().status == status
        connection.close()


@pytest.mark.parametrize(
    "carried",
    [
        b"Content-Length: 33\r\n\r\nGET /v1/namespaces HTTP/1.1\r\n\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nGET /v1/namespaces HTTP/1.1\r\n\r\n",
        b"Content-Length: 0\r\nContent-Length: 31\r\n\r\nGET /v1/namespaces HTTP/1.1\r\n\r\n",
    ],
)
def test_what_a_request_carries_is_no_request(carried: bytes, uri: str) -> None:
    host, _, port = uri.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as sent:
        sent.sendall(b"GET /v1/config HTTP/1.1\r\nHost: localhost\r\n" + carried)
        sent.shutdown(socket.SHUT_WR)
        told = b"".join(iter(lambda: sent.recv(65536), b""))
    assert told.count(b"HTTP/1.1 ") == 1


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(uri: str) -> None:
    """As curl does with more than a kilobyte; not with more than a request may have."""
    host, _, port = uri.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as raw:
        lines = raw.makefile("rb")

        def ask(length: int) -> bytes:
            head = f"POST /v1/config HTTP/1.1\r\nContent-Length: {length}\r\nExpect: 100-continue"
            raw.sendall(f"{head}\r\n\r\n".encode())
            return lines.readline()

        for _ in range(2):  # the connection is used again
            assert ask(2) == b"HTTP/1.1 100 Continue\r\n" and lines.readline() == b"\r\n"
            raw.sendall(b"{}")
            head = [*iter(lines.readline, b"\r\n")]
            assert head[0].startswith(b"HTTP/1.1 406")
            [length] = [int(h.split(b":")[1]) for h in head if h.startswith(b"Content-Length")]
            assert json.loads(lines.read(length))["error"]["code"] == 406
        assert ask(2**40).startswith(b"HTTP/1.1 413")
        assert json.loads(lines.read().partition(b"\r\n\r\n")[2])["error"]["code"] == 413


@pytest.mark.parametrize("engine", ["duckdb", "pyiceberg"])
def test_engines_read_through_the_catalog(engine: str, uri: str, engines_python: Path) -> None:
    program = Path(__file__).with_name("read_by_catalog.py")
    done = subprocess.run(
        [engines_python, program, engine, uri, "tables.orders"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["90", str(sum(range(10, 100)))], done.stderr


def test_refs_say_which_version_is_published_and_how_far_it_is_behind(root: Path) -> None:
    def lines(table: str) -> list[dict[str, object]]:
        ran = CliRunner().invoke(app, ["refs", f"file://{root}/{table}", "--json"])
        assert ran.exit_code == 0, ran.output
        return [json.loads(line) for line in ran.stdout.splitlines()]

    published = inlay.open(f"file://{root}/orders").version
    inlay.open(f"file://{root}/orders").append(pa.table({"id": [1]}))
    *_, last = lines("orders")
    assert (last["kind"], last["version"], last["behind"]) == ("published", published, 1)
    assert [each["kind"] for each in lines("people")] == ["branch"]
    shown = CliRunner().invoke(app, ["refs", f"file://{root}/orders"])
    assert "(published)" in shown.stdout

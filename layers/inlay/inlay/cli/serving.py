"""Verb that shows published tables to other engines of this machine: serve."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from inlay.cli.command import Example, verb
from inlay.cli.output import note

if TYPE_CHECKING:
    from inlay.engine import Catalog

PANEL = "Read"
# A connection that asks nothing for so long is closed.
IDLE_SECONDS = 60
# Names that nobody can register (RFC 6761, RFC 6762, ICANN's .internal).
PRIVATE = (".localhost", ".local", ".internal")


def catalog_of(root: str, *, write: bool = False, credentials_role: str | None = None) -> Catalog:
    """The tables under `root`, a folder of tables, as a catalog whose namespace has the folder's name. With
    `credentials_role`, the ARN of a role, engines that ask are lent credentials of one table."""
    from inlay import connect
    from inlay.engine import POINTER, PUBLISHED_POINTER, Context, served_catalog
    from inlay.errors import InvalidRequest

    within = connect(root)
    store, folder = within.store, within.key("")
    namespace = within.root.rpartition("/")[2] or store.bucket
    if not namespace:
        raise InvalidRequest("the root of a disk is not a folder of tables")

    def published(after: str) -> Iterator[str]:
        names = [
            folder_key.removeprefix(folder).strip("/") for folder_key in store.list_prefixes(folder)
        ]
        return (name for name in sorted(names) if name > after and is_published(name))

    def is_published(table: str) -> bool:
        return within.has(f"{table}/{PUBLISHED_POINTER}") and is_open(table)

    def is_open(table: str) -> bool:
        """Not dropped: what was published stays for as long as the drop can be taken back."""
        return within.has(f"{table}/{POINTER}")

    def is_name(table: str) -> bool:
        return bool(table) and "/" not in table and table not in (".", "..")

    def context(table: str) -> Context:
        if not is_name(table):
            raise InvalidRequest(f"{table[:80]!r} is no name of a folder")
        return within.below(table)

    def pointer(table: str) -> bytes | None:
        if not is_name(table):
            return None
        answer = within.get(f"{table}/{PUBLISHED_POINTER}")
        return answer.body if answer is not None and is_open(table) else None

    return served_catalog(
        namespace,
        published,
        pointer,
        context,
        write=write,
        role=credentials_role,
        scheme=store.scheme,
    )


def _is_address(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


class CatalogServer(ThreadingHTTPServer):
    """The catalog behind HTTP; port 0 is one that is free."""

    def __init__(self, catalog: Catalog, host: str, port: int) -> None:
        self.catalog = catalog
        super().__init__((host, port), _Handler)
        self.is_local = ip_address(str(self.server_address[0])).is_loopback

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that has gone
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    server: CatalogServer

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self._is_of_a_page():
            self.send_error(
                HTTPStatus.FORBIDDEN, "a web page sent this, or the Host names another machine"
            )
            return
        body = self._body()  # a GET's as well: it would be taken for the next request
        if body is not None:
            answer = self.server.catalog.answer(self.command, path, query, body, headers)
            self._send(answer.status, answer.body)

    do_GET = do_HEAD = do_POST = do_DELETE = _answer  # noqa: N815 - http.server's names

    def _is_of_a_page(self) -> bool:
        """Whether a browser sent it for a web page, which reaches ports that nobody else does: it has an
        Origin, or its Host is a name of the page's owner, who bound it to this machine's address."""
        if "Origin" in self.headers:
            return True
        try:
            host = urlsplit(f"//{self.headers.get('Host') or 'localhost'}").hostname or ""
        except ValueError:
            return True
        return (
            self.server.is_local
            and "." in host
            and not (host.endswith(PRIVATE) or _is_address(host))
        )

    def _length(self) -> int | None:
        """How many bytes the request carries; None if it was refused."""
        if self.headers.get("Transfer-Encoding"):  # its chunks would be taken for requests
            self.send_error(HTTPStatus.LENGTH_REQUIRED)
            return None
        # Where two differ, a proxy may have gone by the other one.
        length = ",".join(set(self.headers.get_all("Content-Length", ["0"])))
        is_number = length.isascii() and length.isdecimal() and len(length) < 12
        if not is_number or int(length) > self.server.catalog.max_request_bytes:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return None
        return int(length)

    def handle_expect_100(self) -> bool:
        """A client that asks before it sends what it carries."""
        return self._length() is not None and super().handle_expect_100()

    def _body(self) -> bytes | None:
        """What the request carries; None if it was refused."""
        length = self._length()
        if length is None:
            return None
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return None
        return body

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server itself refuses: unknown methods, and what is no request."""
        self.close_connection = True  # a body that was not read would be taken for a request
        catalog = self.server.catalog
        if code == HTTPStatus.NOT_IMPLEMENTED:
            answer = catalog.answer(self.command, self.path)
        else:
            answer = catalog.refusal(code, message or HTTPStatus(code).phrase)
        self._send(answer.status, answer.body)

    def log_message(self, format: str, *args: object) -> None:
        return None


@verb(
    PANEL,
    Example("serve s3://lake/tables", "for DuckDB, pyiceberg, Trino, Spark …"),
    Example("serve s3://lake/tables --write", "and they create, insert, update and delete"),
    Example(
        "serve s3://lake/tables --credentials-role arn:aws:iam::123456789012:role/engines",
        "with credentials of one table for an hour",
    ),
)
def serve(
    root: Annotated[
        str, typer.Argument(metavar="ROOT", help="The folder of tables: s3://bucket/tables.")
    ],
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0: one that is free.")
    ] = 8181,
    write: Annotated[
        bool, typer.Option("--write", help="Take commits. Whoever reaches the port may write.")
    ] = False,
    credentials_role: Annotated[
        str | None,
        typer.Option(
            "--credentials-role",
            metavar="ARN",
            help="Lend engines that ask this role's credentials, limited to one table's objects. Whoever "
            "reaches the port gets them.",
        ),
    ] = None,
) -> None:
    """Serve the published tables of a folder as an Iceberg REST catalog.

    The catalog holds nothing: each answer is the table's published pointer, or a listing. Engines read the
    metadata and data files themselves, with their own credentials or those that they are lent. With --write
    they also create tables, insert, update and delete: each commit of theirs becomes one of the table's.
    """
    catalog = catalog_of(root, write=write, credentials_role=credentials_role)
    with CatalogServer(catalog, host, port) as server:
        doing = "takes commits to" if write else "serves"
        note(f"http://{host}:{server.server_port} {doing} the namespace {catalog.namespace!r}")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return

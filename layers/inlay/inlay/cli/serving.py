"""Verb that shows published tables to other engines of this machine: serve."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Annotated

import typer

from inlay.cli.command import Example, verb
from inlay.cli.output import note

if TYPE_CHECKING:
    from inlay.iceberg.catalog import Catalog

PANEL = "Read"


def catalog_of(root: str) -> Catalog:
    """The tables under `root`, a folder of tables, as a catalog whose namespace has the folder's name."""
    from inlay.errors import InvalidRequest
    from inlay.format import keys
    from inlay.iceberg.catalog import Catalog
    from inlay.storage.base import Got
    from inlay.storage.open import open_store

    store, prefix = open_store(root)
    namespace = prefix.rpartition("/")[2] or store.bucket
    if not namespace:
        raise InvalidRequest("the root of a disk is not a folder of tables")
    folder = f"{prefix}/" if prefix else ""

    def published() -> list[str]:
        names = [found.removeprefix(folder).strip("/") for found in store.list_prefixes(folder)]
        return [name for name in names if pointer(name) is not None]

    def pointer(table: str) -> bytes | None:
        if not table or "/" in table or table in (".", ".."):
            return None
        answer = store.get(f"{folder}{table}/{keys.PUBLISHED_POINTER}")
        return answer.body if isinstance(answer, Got) else None

    return Catalog(namespace, published, pointer)


def server_of(catalog: Catalog, host: str, port: int) -> ThreadingHTTPServer:
    """An HTTP server of `catalog`; port 0 is one that is free."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            found = catalog.answer(self.command, self.path.partition("?")[0])
            self.send_response(found.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(found.body)

        do_GET = do_HEAD = do_POST = do_DELETE = _answer  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: object) -> None:
            return None

    return ThreadingHTTPServer((host, port), Handler)


@verb(PANEL, Example("serve s3://lake/tables", "for DuckDB, pyiceberg, Trino, Spark …"))
def serve(
    root: Annotated[
        str, typer.Argument(metavar="ROOT", help="The folder of tables: s3://bucket/tables.")
    ],
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0: one that is free.")
    ] = 8181,
) -> None:
    """Serve the published tables of a folder as a read-only Iceberg REST catalog.

    The catalog holds nothing: each answer is the table's published pointer, or a listing. Engines read the
    metadata and data files themselves, with their own credentials.
    """
    catalog = catalog_of(root)
    with server_of(catalog, host, port) as server:
        note(f"http://{host}:{server.server_port} serves the namespace {catalog.namespace!r}")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return

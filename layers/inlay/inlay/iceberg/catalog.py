"""A read-only Iceberg REST catalog: the answer to each request.

Promise: the GETs that table readers send are answered according to Iceberg's REST specification
(`rest-catalog-open-api.yaml`): the configuration, which lists only these requests; namespaces; tables; and
a table, whose answer is its published pointer, unchanged. Everything else is an error in the form that
clients understand, so that no client takes the catalog for a writable one.

There is one namespace, which contains every published table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import unquote

ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Catalog:
    """`published` lists the names of published tables, `pointer` reads the published pointer of one."""

    namespace: str
    published: Callable[[], Iterable[str]]
    pointer: Callable[[str], bytes | None]

    def answer(self, method: str, path: str) -> Answer:
        """`path` is without the query."""
        if method not in ("GET", "HEAD"):
            return _error(406, "UnsupportedOperationException", "this catalog is read only")
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["v1", "config"]:
                return _json({"defaults": {}, "overrides": {}, "endpoints": ENDPOINTS})
            case ["v1", "namespaces"]:
                return _json({"namespaces": [[self.namespace]]})
            case ["v1", "namespaces", name, *rest] if name == self.namespace:
                return self._inside(rest)
            case ["v1", "namespaces", name, *_]:
                return _error(404, "NoSuchNamespaceException", f"there is no namespace {name!r}")
            case _:  # whatever else is asked for
                return _no_endpoint()

    def _inside(self, rest: list[str]) -> Answer:
        match rest:
            case []:
                return _json({"namespace": [self.namespace], "properties": {}})
            case ["tables"]:
                names = self.published()
                return _json(
                    {"identifiers": [{"namespace": [self.namespace], "name": n} for n in names]}
                )
            case ["tables", table]:
                found = self.pointer(table)
                if found is None:
                    return _error(404, "NoSuchTableException", f"no table {table!r} is published")
                return Answer(200, found)
            case _:  # whatever else is asked for
                return _no_endpoint()


def _json(body: object) -> Answer:
    return Answer(200, json.dumps(body).encode())


def _no_endpoint() -> Answer:
    return _error(404, "NoSuchEndpointException", "this catalog has no such endpoint")


def _error(status: int, kind: str, message: str) -> Answer:
    body = {"error": {"message": message, "type": kind, "code": status}}
    return Answer(status, json.dumps(body).encode())

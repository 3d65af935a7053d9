"""A read-only Iceberg REST catalog: the answer to each request.

Promise: the GETs that table readers send are answered according to Iceberg's REST specification
(`rest-catalog-open-api.yaml`): the configuration, which lists only these requests; namespaces; tables, page
by page where pages are asked for; and a table, whose answer is its published pointer, unchanged. Everything
else is an error in the form that clients understand, so that no client takes the catalog for a writable
one.

There is one namespace, without others in it, which contains every published table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from urllib.parse import parse_qs, unquote

ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)
# Of a page: more tables than one folder can be asked for.
_SIZE = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Catalog:
    """`published` lists the names of published tables that come after one, in order, and is read only as
    far as a page goes; `pointer` reads the published pointer of one."""

    namespace: str
    published: Callable[[str], Iterable[str]]
    pointer: Callable[[str], bytes | None]

    def answer(self, method: str, path: str, query: str = "") -> Answer:
        if method not in ("GET", "HEAD"):
            return error(406, "UnsupportedOperationException", "this catalog is read only")
        try:
            asked = {k: v[-1] for k, v in parse_qs(query, keep_blank_values=True).items()}
        except ValueError:
            return error(400, "BadRequestException", "the query cannot be read")
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["v1", "config"]:
                return _json({"defaults": {}, "overrides": {}, "endpoints": ENDPOINTS})
            case ["v1", "namespaces"]:
                return self._namespaces(asked.get("parent", ""))
            case ["v1", "namespaces", name, *rest] if name == self.namespace:
                return self._inside(rest, asked)
            case ["v1", "namespaces", name, *_]:
                return _no_namespace(name)
            case _:  # whatever else is asked for
                return _no_endpoint()

    def _namespaces(self, parent: str) -> Answer:
        if parent not in ("", self.namespace):
            return _no_namespace(parent)
        # What is in the one there is: clients go on asking for the namespaces of whatever is answered.
        return _json({"namespaces": [] if parent else [[self.namespace]]})

    def _inside(self, rest: list[str], asked: Mapping[str, str]) -> Answer:
        match rest:
            case []:
                return _json({"namespace": [self.namespace], "properties": {}})
            case ["tables"]:
                return self._tables(asked)
            case ["tables", table]:
                found = self.pointer(table)
                if found is None:
                    return error(404, "NoSuchTableException", f"no table {table!r} is published")
                return Answer(200, found)
            case _:  # whatever else is asked for
                return _no_endpoint()

    def _tables(self, asked: Mapping[str, str]) -> Answer:
        size = asked.get("pageSize")
        if size is not None and not _SIZE.fullmatch(size):
            return error(400, "BadRequestException", f"pageSize {size[:20]!r} is no size of a page")
        # A page's token is the last name that it has.
        names = iter(self.published(asked.get("pageToken", "")))
        page = list(names if size is None else islice(names, int(size)))
        found: dict[str, object] = {
            "identifiers": [{"namespace": [self.namespace], "name": name} for name in page]
        }
        if size is not None and next(names, None) is not None:
            found["next-page-token"] = page[-1]
        return _json(found)


def _json(body: object) -> Answer:
    return Answer(200, json.dumps(body).encode())


def _no_namespace(name: str) -> Answer:
    return error(404, "NoSuchNamespaceException", f"there is no namespace {name!r}")


def _no_endpoint() -> Answer:
    return error(404, "NoSuchEndpointException", "this catalog has no such endpoint")


def error(status: int, kind: str, message: str) -> Answer:
    """An error as the specification says."""
    body = {"error": {"message": message, "type": kind, "code": status}}
    return Answer(status, json.dumps(body).encode())

"""An Iceberg REST catalog: the answer to each request.

Promise: what clients send is answered according to Iceberg's REST specification
(`rest-catalog-open-api.yaml`): the configuration, which lists the requests that are served; namespaces;
tables, page by page where pages are asked for; a table, whose answer is its published pointer; and, where
the catalog is not read only (`writes`), creating, committing, registering and dropping one. A client that
asks for credentials is lent those of the table, where there are any (`credentials`). Everything else is an
error in the form that clients understand, so that no client takes a read-only catalog for a writable one.

There is one namespace, without others in it, which contains every published table. A commit over several
tables is one transaction: all of them have it, or none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Protocol
from urllib.parse import parse_qs, quote, unquote

from inlay.errors import (
    AccessDenied,
    CommitContention,
    ConcurrentChange,
    ErrorKind,
    InlayError,
    InvalidRequest,
    OutcomeUnknown,
    TableExists,
    TableNotFound,
)
from inlay.iceberg.commit import (
    MAX_REQUEST_BYTES,
    CommitRequest,
    checked_key,
    commit_request,
    read_request,
)
from inlay.iceberg.credentials import credentials_answer, with_credentials
from inlay.record import Record

_TABLES = "/v1/{prefix}/namespaces/{namespace}/tables"
ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    f"GET {_TABLES}",
    f"GET {_TABLES}/{{table}}",
)
WRITES = (
    f"POST {_TABLES}",
    f"POST {_TABLES}/{{table}}",
    f"DELETE {_TABLES}/{{table}}",
    f"POST {_TABLES}/{{table}}/metrics",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/transactions/commit",
)
LENDS = f"GET {_TABLES}/{{table}}/credentials"
# The header in which a client says how it may be let at objects, and the way that is served.
_DELEGATION, _LENT = "x-iceberg-access-delegation", "vended-credentials"
# How long a key of a request is remembered, in ISO 8601: `ledger.days` is one at least. A drop is, for the
# grace of seven days in which it can be taken back.
_LIFETIME, KEY_LIFETIME = "idempotency-key-lifetime", "PT24H"
# Of a page: more tables than one folder can be asked for.
_SIZE = re.compile(r"[1-9][0-9]{0,8}")
_CONFLICTS = (ConcurrentChange, CommitContention)


class Answer(Record):
    """`body` is JSON, or empty."""

    status: int
    body: bytes


class Writes(Protocol):
    """What a catalog does to the table of a name. The bytes are the answer to loadTable."""

    def load(self, table: str) -> bytes: ...

    def create(self, table: str, request: Any, key: str | None) -> bytes: ...

    def stage(self, table: str, request: Any) -> bytes: ...

    def commit(self, table: str, request: CommitRequest) -> bytes: ...

    def commit_all(self, tables: Sequence[str], requests: Sequence[CommitRequest]) -> None: ...

    def register(self, table: str, location: str, key: str | None) -> bytes: ...

    def drop(self, table: str, key: str | None) -> None: ...


class Credentials(Protocol):
    """Lends an engine the objects of a table: where they are, and properties of Iceberg's file I/O."""

    def lent(self, table: str) -> tuple[str, Mapping[str, str]]: ...


class Catalog(Record):
    """`published` lists the names of published tables that come after one, in order, and is read only as
    far as a page goes; `pointer` reads the published pointer of one. `writes` None: it is read only;
    `credentials` None: engines have their own."""

    namespace: str
    published: Callable[[str], Iterable[str]]
    pointer: Callable[[str], bytes | None]
    writes: Writes | None = None
    credentials: Credentials | None = None
    max_request_bytes: ClassVar[int] = MAX_REQUEST_BYTES

    @staticmethod
    def refusal(status: int, message: str) -> Answer:
        """Of what is no request."""
        return error(status, "BadRequestException", message)

    def answer(
        self,
        method: str,
        path: str,
        query: str = "",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """`headers` by their names in lower case."""
        if method not in ("GET", "HEAD") and self.writes is None:
            return error(406, "UnsupportedOperationException", "this catalog is read only")
        try:
            asked = {k: v[-1] for k, v in parse_qs(query, keep_blank_values=True).items()}
        except ValueError:
            return error(400, "BadRequestException", "the query cannot be read")
        parts = [unquote(part) for part in path.strip("/").split("/")]
        given = headers or {}
        ways = [way.strip() for way in given.get(_DELEGATION, "").split(",")]
        try:
            if method in ("GET", "HEAD"):
                return self._read(method, parts, asked, lend=_LENT in ways)
            assert self.writes is not None
            key = checked_key(given.get("idempotency-key"))
            return self._write(self.writes, method, parts, body, key, lend=_LENT in ways)
        except InlayError as refused:
            return _refused(refused)

    def _read(
        self, method: str, parts: list[str], asked: Mapping[str, str], *, lend: bool
    ) -> Answer:
        match parts:
            case ["v1", "config"]:
                served = ENDPOINTS if self.writes is None else (*ENDPOINTS, *WRITES)
                if self.credentials is not None:
                    served = (*served, LENDS)
                lifetime = {} if self.writes is None else {_LIFETIME: KEY_LIFETIME}
                return _json({"defaults": {}, "overrides": {}, "endpoints": served, **lifetime})
            case ["v1", "namespaces"]:
                return self._namespaces(asked.get("parent", ""))
            case ["v1", "namespaces", name, *rest] if name == self.namespace:
                answer = self._inside(rest, asked, lend=lend and method == "GET")
                # A client that only asks whether something is there is answered without a body.
                return Answer(204, b"") if method == "HEAD" and answer.status == 200 else answer
            # Iceberg Java asks for `t.snapshots` as a table of the namespace `t`, and then for `t` where it
            # hears that there is no such table.
            case ["v1", "namespaces", _, "tables", table]:
                return _no_table(table)
            case ["v1", "namespaces", _, "views", view]:
                return _no_view(view)
            case ["v1", "namespaces", name, *_]:
                return _no_namespace(name)
            case _:  # whatever else is asked for
                return _no_endpoint()

    def _namespaces(self, parent: str) -> Answer:
        if parent not in ("", self.namespace):
            return _no_namespace(parent)
        # What is in the one there is: clients go on asking for the namespaces of whatever is answered.
        return _json({"namespaces": [] if parent else [[self.namespace]]})

    def _inside(self, rest: list[str], asked: Mapping[str, str], *, lend: bool) -> Answer:
        match rest:
            case []:
                return _json({"namespace": [self.namespace], "properties": {}})
            case ["tables"]:
                return self._tables(asked)
            case ["tables", table]:
                return self._table(table, lend=lend)
            case ["tables", table, "credentials"] if self.credentials is not None:
                if self.pointer(table) is None:
                    return _no_table(table)
                return _json(credentials_answer(*self._lent(self.credentials, table)))
            case ["views"]:
                return _json({"identifiers": []})
            case ["views", view]:
                return _no_view(view)
            case _:  # whatever else is asked for
                return _no_endpoint()

    def _table(self, table: str, *, lend: bool) -> Answer:
        try:
            pointer = self.pointer(table) if self.writes is None else self.writes.load(table)
        except TableNotFound:
            pointer = None
        if pointer is None:
            return _no_table(table)
        return self._made(table, lambda: pointer, lend=lend)

    def _made(self, table: str, make: Callable[[], bytes], *, lend: bool) -> Answer:
        """The answer to loadTable, with credentials: without them nothing is made."""
        if not lend or self.credentials is None:
            return Answer(200, make())
        lent = self._lent(self.credentials, table)
        return Answer(200, with_credentials(make(), *lent))

    def _lent(self, credentials: Credentials, table: str) -> tuple[str, Mapping[str, str]]:
        where, config = credentials.lent(table)
        path = f"v1/namespaces/{quote(self.namespace)}/tables/{quote(table)}/credentials"
        return where, {**config, "client.refresh-credentials-endpoint": path}

    def _tables(self, asked: Mapping[str, str]) -> Answer:
        size = asked.get("pageSize")
        if size is not None and not _SIZE.fullmatch(size):
            return error(400, "BadRequestException", f"pageSize {size[:20]!r} is no size of a page")
        # A page's token is the last name that it has.
        names = iter(self.published(asked.get("pageToken", "")))
        page = list(names if size is None else islice(names, int(size)))
        answer: dict[str, object] = {
            "identifiers": [{"namespace": [self.namespace], "name": name} for name in page]
        }
        if size is not None and next(names, None) is not None:
            answer["next-page-token"] = page[-1]
        return _json(answer)

    # -- writes -------------------------------------------------------------------------------

    def _write(
        self,
        writes: Writes,
        method: str,
        parts: list[str],
        body: bytes,
        key: str | None,
        *,
        lend: bool,
    ) -> Answer:
        match (method, *parts):
            case ("POST", "v1", "transactions", "commit"):
                return self._transaction(writes, body, key)
            case ("POST", "v1", "tables", "rename"):
                return error(
                    406,
                    "UnsupportedOperationException",
                    "a table's name is its folder: it is not renamed. Next: `inlay copy` makes another",
                )
            case ("POST", "v1", "namespaces"):
                return self._create_namespace(read_request(body))
            case (_, "v1", "namespaces", name, *rest) if name == self.namespace:
                return self._write_inside(writes, method, rest, body, key, lend=lend)
            case (_, "v1", "namespaces", name, *_):
                return _no_namespace(name)
            case _:  # whatever else is asked for
                return _no_endpoint()

    def _create_namespace(self, request: Any) -> Answer:
        named = request.get("namespace") if isinstance(request, Mapping) else None
        if named == [self.namespace]:
            return error(
                409, "AlreadyExistsException", f"the namespace {self.namespace!r} is there"
            )
        return error(
            406,
            "UnsupportedOperationException",
            f"this catalog has one namespace, {self.namespace!r}: the folder that it serves. Next: serve "
            "another folder by another catalog",
        )

    def _write_inside(
        self,
        writes: Writes,
        method: str,
        rest: list[str],
        body: bytes,
        key: str | None,
        *,
        lend: bool,
    ) -> Answer:
        match (method, *rest):
            case ("POST", "tables"):
                return self._create(writes, read_request(body), key, lend=lend)
            case ("POST", "register"):
                request = read_request(body)
                table = _name_of(request)
                location = request.get("metadata-location")
                if not isinstance(location, str):
                    raise InvalidRequest("a registration names a metadata-location")
                register = partial(writes.register, table, location, key)
                return self._made(table, register, lend=lend)
            case ("POST", "tables", table, "metrics"):
                # What engines measured is theirs.
                return _no_table(table) if self.pointer(table) is None else Answer(204, b"")
            case ("POST", "tables", table):
                request = read_request(body)
                self._check_identifier(request, table)
                return Answer(200, writes.commit(table, commit_request(request, key)))
            case ("DELETE", "tables", table):
                writes.drop(table, key)
                return Answer(204, b"")
            case ("DELETE", "views", view):
                return _no_view(view)
            case ("POST", "views"):
                return error(406, "UnsupportedOperationException", "this catalog keeps no views")
            case ("POST", "properties") | ("DELETE",):
                return error(
                    406, "UnsupportedOperationException", "a namespace is the folder that is served"
                )
            case _:  # whatever else is asked for
                return _no_endpoint()

    def _check_identifier(self, request: Any, table: str) -> None:
        """A commit may name its table; then it is that of its path."""
        named = request.get("identifier") if isinstance(request, Mapping) else None
        own = {"namespace": [self.namespace], "name": table}
        if named is not None and named != own:
            raise InvalidRequest(
                f"the commit names another table than its path, which is {table[:80]!r}"
            )

    def _create(self, writes: Writes, request: Any, key: str | None, *, lend: bool) -> Answer:
        table = _name_of(request)
        if request.get("stage-create"):
            return self._made(table, partial(writes.stage, table, request), lend=lend)
        return self._made(table, partial(writes.create, table, request, key), lend=lend)

    def _transaction(self, writes: Writes, body: bytes, key: str | None) -> Answer:
        request = read_request(body)
        changes = request.get("table-changes") if isinstance(request, Mapping) else None
        if not isinstance(changes, list) or not changes:
            raise InvalidRequest("a transaction has a list of table-changes")
        named = []
        for change in changes:
            identifier = change.get("identifier") if isinstance(change, Mapping) else None
            if not isinstance(identifier, Mapping):
                raise InvalidRequest("a change of a transaction names its table")
            if identifier.get("namespace") != [self.namespace]:
                return _no_namespace(str(identifier.get("namespace"))[:80])
            named.append(_name_of(identifier))
        requests = [commit_request(change, key) for change in changes]
        writes.commit_all(named, requests)
        return Answer(204, b"")


def _name_of(request: Any) -> str:
    name = request.get("name") if isinstance(request, Mapping) else None
    if not isinstance(name, str) or not name:
        raise InvalidRequest("the request names no table")
    return name


def _refused(refused: InlayError) -> Answer:
    """An error of Inlay in the specification's form, with what to do next."""
    text = refused.message + (f". Next: {refused.next_step}" if refused.next_step else "")
    if isinstance(refused, TableNotFound):
        return error(404, "NoSuchTableException", text)
    if isinstance(refused, TableExists):
        return error(409, "AlreadyExistsException", text)
    if isinstance(refused, _CONFLICTS):
        return error(409, "CommitFailedException", text)
    if isinstance(refused, OutcomeUnknown):
        # Clients look whether their snapshot is there.
        return error(500, "CommitStateUnknownException", text)
    if isinstance(refused, AccessDenied):
        return error(403, "ForbiddenException", text)
    match refused.kind:
        case ErrorKind.RETRY:
            return error(503, "ServiceUnavailableException", text)
        case ErrorKind.REBASE:
            return error(409, "CommitFailedException", text)
        case ErrorKind.INPUT | ErrorKind.PAGE:
            return error(400, "BadRequestException", text)


def _json(body: object) -> Answer:
    return Answer(200, json.dumps(body).encode())


def _no_namespace(name: str) -> Answer:
    return error(404, "NoSuchNamespaceException", f"there is no namespace {name!r}")


def _no_table(name: str) -> Answer:
    return error(404, "NoSuchTableException", f"no table {name!r} is published")


def _no_view(name: str) -> Answer:
    return error(404, "NoSuchViewException", f"there is no view {name!r}")


def _no_endpoint() -> Answer:
    return error(404, "NoSuchEndpointException", "this catalog has no such endpoint")


def error(status: int, kind: str, message: str) -> Answer:
    """An error as the specification says."""
    body = {"error": {"message": message, "type": kind, "code": status}}
    return Answer(status, json.dumps(body).encode())

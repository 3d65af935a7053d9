"""The published tables as an Iceberg REST catalog, behind a function URL that IAM guards.

It holds nothing: each answer is a table's published pointer, or a listing; with `Catalog=readwrite` each
commit of an engine is one of the table's. Engines read and write metadata and data with their own rights,
or with `CatalogCredentials` with those of one table that they are lent.
Nobody is let in without a signed request (`CatalogPolicy`).
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from inlay.engine import POINTER, PUBLISHED_POINTER, Context, served_catalog
from inlay.errors import InvalidRequest
from inlay.functions import settings
from inlay.functions.observe import count, observed
from inlay.functions.tables import TABLES, executor, table_context, table_names
from inlay.functions.validation import check_table_name

_JSON = {"Content-Type": "application/json"}
# Tables that are asked for side by side, before it is known whether a page needs more.
_BATCH = 64


@observed
def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    try:
        path = event["rawPath"]
        method = event["requestContext"]["http"]["method"]
    except (KeyError, TypeError):
        raise InvalidRequest("not a request of a function URL") from None
    role = settings.catalog_role()
    catalog = served_catalog(
        TABLES.rstrip("/"),
        published,
        pointer,
        named_context,
        write=settings.catalog_writes(),
        role=role,
        also=settings.adopted_objects() if role else (),
    )
    answer = catalog.answer(
        str(method),
        str(path),
        str(event.get("rawQueryString") or ""),
        _body(event),
        event.get("headers") or {},
    )
    count(None, {f"Answered{answer.status}": 1})
    return {"statusCode": answer.status, "headers": _JSON, "body": answer.body.decode()}


def _body(event: Mapping[str, Any]) -> bytes:
    body = str(event.get("body") or "")
    if not event.get("isBase64Encoded"):
        return body.encode()
    try:
        return b64decode(body, validate=True)
    except binascii.Error:
        raise InvalidRequest("the request's body is not base64") from None


def published(after: str) -> Iterator[str]:
    """Names of published tables, by a HEAD and a LIST each, some side by side: a pointer is a table's whole
    metadata."""
    names = iter(sorted(name for name in table_names() if name > after))
    while batch := list(islice(names, _BATCH)):
        seen = executor().map(is_published, batch)
        yield from (name for name, is_there in zip(batch, seen, strict=True) if is_there)


def is_published(table: str) -> bool:
    ctx = _context(table)
    return ctx is not None and ctx.has(PUBLISHED_POINTER) and is_open(ctx)


def is_open(ctx: Context) -> bool:
    """Not dropped: what was published stays for as long as the drop can be taken back. By a listing: the
    function may not read the table's own pointer."""
    pointer = ctx.key(POINTER)
    return any(listed.key == pointer for listed in islice(ctx.store.list(pointer), 1))


def pointer(table: str) -> bytes | None:
    """The published pointer of a table, if it has one."""
    ctx = _context(table)
    answer = None if ctx is None else ctx.get(PUBLISHED_POINTER)
    return answer.body if ctx is not None and answer is not None and is_open(ctx) else None


def named_context(table: str) -> Context:
    return table_context(check_table_name(table))


def _context(table: str) -> Context | None:
    try:
        return named_context(table)
    except InvalidRequest:
        return None

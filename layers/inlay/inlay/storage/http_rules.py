"""Rules of a client towards the server of a store: what it sends, and which answers it believes.

Promise: an answer that is of another request, or of none, raises; a collector that believed it would delete
what another table needs. No I/O.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Protocol, TypeVar

from inlay.errors import InvalidRequest, UnsupportedStore
from inlay.storage.rules import broken


def check_endpoint(endpoint: str | None) -> None:
    """Refuse to pickle a store whose endpoint holds credentials."""
    if endpoint and "@" in endpoint.partition("://")[2].partition("/")[0]:
        raise InvalidRequest(
            "the endpoint's URL holds credentials, which are not put into a pickle",
            next_step="Set the endpoint without them",
        )


def kept_by(
    key: str, headers: Mapping[str, str], kept: Iterable[str], store: str
) -> Mapping[str, str]:
    """`headers`, all of which a store of another maker keeps."""
    if lost := sorted(set(headers) - set(kept)):
        raise broken(
            "InvalidArgument",
            f"{store} keeps no {', '.join(lost)} with an object",
            key=key,
            next_step=f"It keeps {', '.join(sorted(kept))}",
        )
    return headers


_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


def check_content_range(asked: str | None, said: str, length: int) -> None:
    """Raises `ValueError` where an answer of `length` bytes, whose `Content-Range` is `said`, is not the
    whole of what the `Range` of its request asks for (RFC 9110, 14.2 and 14.4): a cache or a proxy may
    answer with what it has."""
    answered = _CONTENT_RANGE.fullmatch(said)
    if answered is None:
        raise ValueError(f"its Content-Range is {said[:80]!r}")
    first, last, size = map(int, answered.groups())
    start, end = 0, size
    if asked is not None:
        begins, _, ends = asked.removeprefix("bytes=").partition("-")
        start = int(begins) if begins else max(0, size - int(ends))
        end = min(size, int(ends) + 1) if begins else size
    if (first, last + 1, length) != (start, end, end - start):
        raise ValueError(f"it is {length} bytes, {said[:80]!r}, where {asked} was asked for")


def no_range_copies(key: str, store: str) -> InvalidRequest:
    return broken(
        "NotImplemented",
        f"{store} copies no ranges of objects",
        key=key,
        next_step="Read the range and send it as a part (the store says so: copies_ranges)",
    )


def check_goes_on(place: str, page: object, following: object) -> None:
    """Raises `UnsupportedStore` for a listing that goes on with the page that it has just given, for ever:
    `page` and `following` are where these begin."""
    if page == following:
        raise UnsupportedStore(
            f"{place} answered a listing with a page that is not its last, and does not say where the next "
            "one begins",
            next_step="Look for a proxy that answers in its place; else it is not supported "
            "(docs/STORES.md)",
        )


class _Keyed(Protocol):
    @property
    def key(self) -> str: ...


K = TypeVar("K", bound=_Keyed)


def check_prefix(place: str, prefix: str, key: str) -> None:
    """Raises `UnsupportedStore` for a key that a listing of `prefix` cannot have: a collector would take
    what is another table's for its own."""
    if not key.startswith(prefix):
        raise UnsupportedStore(
            f"{place} lists {key!r} where {prefix!r} was asked for",
            key=key,
            next_step="Look for a proxy that drops the query of a request; else the store is not supported "
            "(docs/STORES.md)",
        )


def in_key_order(place: str, listed: Iterable[K], *, after: str | None = None) -> Iterator[K]:
    """What a store lists, behind `after`. Raises `UnsupportedStore` at the first key that is not behind the
    one before it in UTF-8 bytes (versions and uploads of one key may follow each other): a caller that asks
    for a range of keys, as garbage collection by Spark does, would get keys of another range. Directory
    buckets of S3 Express, and servers that walk folders, list so: "a/" comes before "a-b/" there."""
    last = after
    for item in listed:
        # Text in order of its code points is in order of its UTF-8 bytes.
        if last is not None and item.key < last:
            raise UnsupportedStore(
                f"{place} lists {item.key!r} behind {last!r}, which is greater",
                key=item.key,
                next_step="Move what is not of the table to another prefix if that brings the order back; "
                "else the store is not supported (docs/STORES.md)",
            )
        last = item.key
        yield item


def bare_etag(said: str) -> str:
    """An ETag of a header or a listing, without its quotes. A weak one becomes strong again: proxies that
    compress answers weaken it, and the store behind them knows the strong one only."""
    return said.removeprefix("W/").removeprefix('"').removesuffix('"')


def quoted_etag(etag: str) -> str:
    """An ETag as the headers of a request have it."""
    return f'"{etag}"'


def content_md5(body: bytes) -> str:
    """The header `Content-MD5` of a body (RFC 1864)."""
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
# "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, 5.6.7), as every store writes it.
_HTTP_DATE: Final = re.compile(
    rf"[A-Z][a-z]{{2}}, (\d\d) ({_MONTHS.replace(' ', '|')}) (\d{{4}}) (\d\d):(\d\d):(\d\d) GMT",
    re.ASCII,
)


# The answers of one second say the same, and so do the objects of one.
@lru_cache(maxsize=256)
def http_date(text: str) -> datetime:
    """The moment that a header says. Raises `ValueError` for what is none. Other forms of a date are left
    to the library for e-mails, which is loaded for them."""
    match = _HTTP_DATE.fullmatch(text)
    if match is None:
        from email.utils import parsedate_to_datetime

        return parsedate_to_datetime(text)
    day, month, *rest = match.groups()
    year, hour, minute, second = map(int, rest)
    return datetime(year, _MONTHS.index(month) // 4 + 1, int(day), hour, minute, second, tzinfo=UTC)

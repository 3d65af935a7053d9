"""Requests to stores with a REST protocol of their own: Google Cloud Storage and Azure Blob Storage.

Promise: an answer is what the store said, with the clock it gave (`Date`, never the host's); everything
else is a typed error. A request is sent as often as its caller allows and not once more: neither retries
nor redirects of the HTTP client are on, because a second attempt that nobody counts can turn a write that
landed into one that was refused. No error, log line or pickle holds a credential: what a signer adds to a
request, a query with a signature included, stays in this module.

The makers' SDKs and `obstore` give no `Date` of an answer, without which neither commits nor garbage
collection can be held to the store's clock (docs/FORMAT.md, section 2). urllib3 comes with boto3.
"""

from __future__ import annotations

import json
import logging
import random
import re
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import urllib3

from inlay.errors import AccessDenied, InlayError, InvalidRequest, PageError, StoreUnavailable
from inlay.record import Record
from inlay.storage import http_rules, rules
from inlay.storage.base import ByteRange, DeleteFailure
from inlay.storage.wrapped import PerProcess

# As for S3 (`s3.py`, with the reasons).
MAX_ATTEMPTS: Final = 4
_FIRST_BACKOFF_SECONDS: Final = 0.2
_TIMEOUT: Final = urllib3.Timeout(connect=5, read=60)
_CONNECTIONS: Final = 64
# Deletes are one request each here; so many are in flight.
_DELETES: Final = 16
# A delete of more than this many keys is many requests; fewer are not worth threads.
_FEW: Final = 2
_TRANSIENT: Final = frozenset({408, 429})
_LOG: Final = logging.getLogger("inlay.storage")
_QUERY: Final = re.compile(r"\?\S+")


_pools: PerProcess[dict[str | None, urllib3.PoolManager]] = PerProcess(dict)


def pool(url: str) -> urllib3.PoolManager:
    """The connections of this process to the host of `url`, through the proxy of the environment if any."""
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy is not None and urllib.request.proxy_bypass(parts.hostname or ""):
        proxy = None
    made = _pools.get()
    if (pool := made.get(proxy)) is None:
        settings: dict[str, Any] = {
            "maxsize": _CONNECTIONS,
            "retries": False,
            "timeout": _TIMEOUT,
        }
        new = urllib3.ProxyManager(proxy, **settings) if proxy else urllib3.PoolManager(**settings)
        pool = made.setdefault(proxy, new)
    return pool


class Request(Record):
    """A request without credentials. `path` is encoded, `query` is not."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class Answer(Record):
    """What the store said. `code` and `message` are of an error; `attempt` counts from 1."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    date_us: int
    attempt: int
    code: str = ""
    message: str = ""

    @property
    def done(self) -> bool:
        return self.status < 300

    def json(self) -> Any:
        return json.loads(self.body)


# Adds credentials: the query and headers as they are sent.
Sign = Callable[[Request], tuple[Mapping[str, str], Mapping[str, str]]]
# (code, message) of the body of an error, and of its headers.
Explain = Callable[[bytes, Mapping[str, str]], tuple[str, str]]


class Line(Record):
    """The way to one bucket. `place` names it in errors; `endpoint` may have a path."""

    place: str
    endpoint: str
    sign: Sign
    explain: Explain

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        outcomes: Iterable[int] = (),
        attempts: int = MAX_ATTEMPTS,
        whole: Callable[[Answer], object] = lambda answer: None,
        key: str | None = None,
    ) -> Answer:
        """The answer, if it is a success or one of `outcomes`, sent again after a transient failure while
        `attempts` last. `whole` raises (LookupError, ValueError) if the answer is cut short."""
        request = Request(
            method,
            urlsplit(self.endpoint).path.rstrip("/") + path,
            {name: value for name, value in (query or {}).items() if value is not None},
            headers or {},
            body,
        )
        expected = frozenset(outcomes)
        for attempt in range(1, attempts + 1):
            try:
                answer = self._send(request, attempt)
                if answer.done:
                    whole(answer)
                    return answer
                if answer.status in expected and answer.status not in _TRANSIENT:
                    return answer
                fault = self.unexpected(answer, key)
            except (urllib3.exceptions.HTTPError, OSError, LookupError, ValueError) as error:
                # Without the query: it may be signed.
                words = _QUERY.sub("?…", f"{type(error).__name__}: {error}")
                fault = StoreUnavailable(f"no answer from {self.place}: {words}", key=key)
            if not isinstance(fault, StoreUnavailable) or attempt == attempts:
                raise fault
            seconds = random.uniform(0, _FIRST_BACKOFF_SECONDS * 2 ** (attempt - 1))
            words = fault.message
            _LOG.warning("waiting %.1f s for %s: %s (try %d)", seconds, self.place, words, attempt)
            time.sleep(seconds)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _send(self, request: Request, attempt: int) -> Answer:
        query, headers = self.sign(request)
        parts = urlsplit(self.endpoint)
        url = f"{parts.scheme}://{parts.netloc}{request.path}"
        if query:
            url += f"?{urlencode(query, quote_via=quote, safe='')}"
        sent = request.method in ("PUT", "POST", "PATCH")
        said = pool(url).request(
            request.method,
            url,
            headers={"Accept-Encoding": "identity", **headers},
            body=request.body if sent else None,
            redirect=False,
            decode_content=False,
        )
        head = request.method == "HEAD"
        if not head and said.status in (200, 206) and "transfer-encoding" not in said.headers:
            # Python's HTTP client takes a head that was cut off for a whole one.
            int(said.headers["content-length"])
        # An emulator says "bytes 0--1/0" of an empty object.
        if said.status == 206 and size_of(said.headers):
            http_rules.check_content_range(
                request.headers.get("Range"), said.headers["content-range"], len(said.data)
            )
        date_us = microseconds(http_rules.http_date(said.headers["date"]))
        code, message = self.explain(said.data, said.headers) if said.status >= 300 else ("", "")
        return Answer(said.status, said.headers, said.data, date_us, attempt, code, message)

    def unexpected(self, answer: Answer, key: str | None) -> InlayError:
        """The error for an answer that is not an expected outcome."""
        words = f"{self.place} answered {answer.status} {answer.code}: {answer.message}"
        words = words.rstrip(": ")
        status = answer.status
        if status >= 500 or status in _TRANSIENT or status == 409:
            if status == 501:
                return PageError(words, key=key, next_step="Use a store that docs/STORES.md lists")
            return StoreUnavailable(words, key=key)
        if status in (401, 403):
            return AccessDenied(words, key=key, next_step="Check credentials, roles and the bucket")
        if status == 404:
            return InvalidRequest(
                words, key=key, next_step="Check the name of the bucket and the endpoint"
            )
        if status in (400, 411, 412, 413, 416):
            return InvalidRequest(words, key=key, next_step="Correct the request")
        return PageError(words, key=key, next_step="Look the status up at the store's maker")


def microseconds(when: datetime) -> int:
    """Whole seconds, as stores of all makers show them in headers: a time in a body is cut to them, so that
    it is never behind the `Date` of its answer."""
    return int(when.timestamp()) * 1_000_000


def size_of(headers: Mapping[str, str]) -> int:
    """The size of the whole object in an answer to a GET."""
    said = headers.get("content-range")  # "bytes 0-9/1234"
    return int(said.rpartition("/")[2] if said else headers["content-length"])


def in_range(answer: Answer, key: str, byte_range: ByteRange | None) -> bytes:
    """The body of a GET, cut where the server ignored the range. Raises `UnreadableFile` where nothing of
    the object is in the range, which an emulator may answer with an empty body."""
    if byte_range is None:
        return answer.body
    if size_of(answer.headers) <= byte_range.start:
        raise rules.range_past_end(key, byte_range)
    if answer.status == 200:
        return answer.body[byte_range.start : byte_range.end]
    return answer.body


def no_body(answer: Answer) -> None:
    """Checks a success that has no body. Raises `ValueError` for one with a body: a proxy's page does not
    show that the request was carried out."""
    if answer.body:
        raise ValueError("the answer has a body, which it should not")


def delete_each(
    delete: Callable[[str, str | None], object], items: Sequence[tuple[str, str | None]]
) -> list[DeleteFailure]:
    """`delete` for each (key, version id). What is refused for good is a failure; an unknown outcome is
    raised."""

    def one(item: tuple[str, str | None]) -> DeleteFailure | None:
        try:
            delete(*item)
        except StoreUnavailable:
            raise
        except InlayError as error:
            return DeleteFailure(*item, error.message)
        return None

    if len(items) <= _FEW:
        results = [one(item) for item in items]
    else:
        with ThreadPoolExecutor(min(_DELETES, len(items))) as workers:
            results = list(workers.map(one, items))
    return [result for result in results if result is not None]


def delete_versions(
    delete: Callable[[str, str | None], object],
    versions: Iterable[tuple[str, str]],
    held: Callable[[str], str | None],
) -> list[DeleteFailure]:
    """`delete` for each (key, version id) but those of which `held` says why the store keeps them."""
    free: list[tuple[str, str | None]] = []
    kept: list[DeleteFailure] = []
    for key, version_id in versions:
        if (reason := held(version_id)) is None:
            free.append((key, version_id))
        else:
            kept.append(DeleteFailure(key, version_id, reason))
    return [*kept, *delete_each(delete, free)]

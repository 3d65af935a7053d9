"""A store around another one: all its requests pass through one method.

Promise: a wrapper answers as the store it wraps, and each HTTP request that S3 would see (each page of a
listing, each batch of a delete) goes through `_ask` once, which is all that a wrapper overrides: to count
it, to make it fail (`faults.py`), to observe it.

Verbs: get, head, put, copy, list, delete, create_multipart, upload_part, upload_part_copy,
complete_multipart, abort_multipart, list_uploads, list_versions.

A meter counts requests by verb, and bytes up and down: one count per HTTP request, before it is sent, so
that a failed request counts as well. Bytes are those of bodies, not of headers or listings. An attempt
that the store repeats itself counts once.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from inlay.errors import InvalidRequest
from inlay.record import Mutable, Record, field
from inlay.storage import rules
from inlay.storage.base import (
    Condition,
    DeleteFailure,
    Got,
    Head,
    Location,
    Missing,
    ObjectInfo,
    ObjectStore,
    ObjectVersion,
    Part,
    Refused,
    Upload,
    Written,
)

T = TypeVar("T")

_forks = 0


def current_process() -> int:
    """This process, among those that share memory by descent."""
    return _forks


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class PerProcess(Generic[T]):
    """A value that each process creates on first use. Several threads may call `make` at once; all get the
    value of one of them.

    For what belongs to one process: connections, threads, locks, and what they protect, a meter's counts
    among it. A forked process never waits for a thread that it does not have, never takes a lock that a
    thread of its parent holds, and never uses its parent's sockets: it creates its own. A process is
    identified by the number of forks between it and the first one, not by its id: memory is only inherited
    along that line, while the system may give a grandchild the id of its dead grandparent.
    """

    __slots__ = ("_make", "_values")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: dict[int, T] = {}

    def get(self) -> T:
        value = self._values.get(_forks)
        if value is None:
            # One step under the interpreter's lock: no lock of ours that a fork could leave locked.
            value = self._values.setdefault(_forks, self._make())
        return value


def check_same_process(began: int, what: str) -> None:
    """Raises `InvalidRequest` if something that cannot be used after a fork was forked."""
    if began != _forks:
        raise InvalidRequest(
            f"{what} belongs to the process that this one was forked from",
            next_step="Create it in the process that uses it: open the table there, or start again there",
        )


# AWS: a page of ListObjectsV2, ListObjectVersions or ListMultipartUploads has at most 1,000 items.
LIST_PAGE_ITEMS: Final = 1_000
READS: Final = frozenset({"get", "head", "list", "list_uploads", "list_versions"})


class Asked(Record):
    """A request about to be sent. `key` is the prefix of a listing and the first key of a delete's batch;
    `conditional`: only such a write can be refused."""

    verb: str
    key: str
    bytes_up: int = 0
    conditional: bool = False


class WrappedStore:
    """`inner`, unchanged. A subclass overrides `_ask`, and `at` if it holds more than `inner`. `options`
    are those of `ObjectStore`, passed on as they came."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner: Final = inner

    def _ask(self, asked: Asked, send: Callable[[], T]) -> T:
        """The answer to one request; `send` sends it, and may be called several times."""
        return send()

    @property
    def scheme(self) -> str:
        return self.inner.scheme

    @property
    def bucket(self) -> str:
        return self.inner.bucket

    @property
    def copies_ranges(self) -> bool:
        return self.inner.copies_ranges

    def at(self, bucket: str) -> ObjectStore:
        return type(self)(self.inner.at(bucket))

    def get(self, key: str, **options: Any) -> Got | Missing | Refused:
        return self._ask(Asked("get", key), partial(self.inner.get, key, **options))

    def get_suffix(self, key: str, length: int, **options: Any) -> Got | Missing:
        return self._ask(Asked("get", key), partial(self.inner.get_suffix, key, length, **options))

    def head(self, key: str, **options: Any) -> Head | Missing:
        return self._ask(Asked("head", key), partial(self.inner.head, key, **options))

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._paged("list", prefix, self.inner.list(prefix, start_after=start_after))

    def list_prefixes(self, prefix: str) -> Iterator[str]:
        return self._paged("list", prefix, self.inner.list_prefixes(prefix))

    def put(
        self, key: str, body: bytes | memoryview, *, condition: Condition = None, **options: Any
    ) -> Written | Refused:
        return self._ask(
            Asked("put", key, _size(body), condition is not None),
            partial(self.inner.put, key, body, condition=condition, **options),
        )

    def copy(
        self, source: Location, key: str, *, condition: Condition = None, **options: Any
    ) -> Written | Refused | Missing:
        return self._ask(
            Asked("copy", key, conditional=condition is not None),
            partial(self.inner.copy, source, key, condition=condition, **options),
        )

    def delete(self, keys: Iterable[str]) -> Sequence[DeleteFailure]:
        return self._deleted(keys, lambda key: key, self.inner.delete)

    def create_multipart(self, key: str, **options: Any) -> str:
        return self._ask(
            Asked("create_multipart", key), partial(self.inner.create_multipart, key, **options)
        )

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | memoryview) -> Part:
        return self._ask(
            Asked("upload_part", key, _size(body)),
            partial(self.inner.upload_part, key, upload_id, number, body),
        )

    def upload_part_copy(
        self, key: str, upload_id: str, number: int, **options: Any
    ) -> Part | Refused | Missing:
        return self._ask(
            Asked("upload_part_copy", key),
            partial(self.inner.upload_part_copy, key, upload_id, number, **options),
        )

    def complete_multipart(
        self, key: str, upload_id: str, parts: Sequence[Part], *, condition: Condition = None
    ) -> Written | Refused | Missing:
        return self._ask(
            Asked("complete_multipart", key, conditional=condition is not None),
            partial(self.inner.complete_multipart, key, upload_id, parts, condition=condition),
        )

    def abort_multipart(self, key: str, upload_id: str) -> None:
        self._ask(
            Asked("abort_multipart", key), partial(self.inner.abort_multipart, key, upload_id)
        )

    def list_uploads(self, prefix: str) -> Iterator[Upload]:
        return self._paged("list_uploads", prefix, self.inner.list_uploads(prefix))

    def list_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        return self._paged("list_versions", prefix, self.inner.list_versions(prefix))

    def delete_versions(self, versions: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        return self._deleted(versions, itemgetter(0), self.inner.delete_versions)

    def delete_unchanged(self, objects: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        return self._deleted(objects, itemgetter(0), self.inner.delete_unchanged)

    def _deleted(
        self,
        items: Iterable[T],
        key_of: Callable[[T], str],
        delete: Callable[[Sequence[T]], Sequence[DeleteFailure]],
    ) -> Sequence[DeleteFailure]:
        failures: list[DeleteFailure] = []
        for batch in rules.delete_batches(items):
            failures += self._ask(Asked("delete", key_of(batch[0])), partial(delete, batch))
        return failures

    def _paged(self, verb: str, prefix: str, items: Iterator[T]) -> Iterator[T]:
        """A listing, page by page; an empty one is a page too."""

        def page_from(first: Sequence[T]) -> list[T]:
            return [*first, *itertools.islice(items, LIST_PAGE_ITEMS - len(first))]

        first: list[T] = []
        while True:  # ends with the listing
            page = self._ask(Asked(verb, prefix), partial(page_from, first))
            yield from page
            first = list(itertools.islice(items, 1)) if len(page) == LIST_PAGE_ITEMS else []
            if not first:
                return


def _size(body: bytes | memoryview) -> int:
    return body.nbytes if isinstance(body, memoryview) else len(body)


class Usage(Record):
    """Requests and bytes over some time; subtract an earlier value for the difference."""

    requests: Mapping[str, int]
    bytes_up: int
    bytes_down: int

    @property
    def total(self) -> int:
        """All requests."""
        return sum(self.requests.values())

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            Counter(self.requests) + Counter(other.requests),
            self.bytes_up + other.bytes_up,
            self.bytes_down + other.bytes_down,
        )

    def __sub__(self, earlier: Usage) -> Usage:
        return Usage(
            Counter(self.requests) - Counter(earlier.requests),
            self.bytes_up - earlier.bytes_up,
            self.bytes_down - earlier.bytes_down,
        )


NO_USAGE: Final = Usage({}, 0, 0)


class _Counters(Mutable):
    lock: threading.Lock = field(default_factory=threading.Lock)
    requests: Counter[str] = field(default_factory=Counter)
    bytes_up: int = 0
    bytes_down: int = 0


class Meter:
    """Counters that several stores, and several threads of one process, may share. A forked process
    counts from zero."""

    def __init__(self) -> None:
        self._counters = PerProcess(_Counters)

    def sent(self, verb: str, bytes_up: int = 0) -> None:
        counters = self._counters.get()
        with counters.lock:
            counters.requests[verb] += 1
            counters.bytes_up += bytes_up

    def received(self, bytes_down: int) -> None:
        counters = self._counters.get()
        with counters.lock:
            counters.bytes_down += bytes_down

    def snapshot(self) -> Usage:
        counters = self._counters.get()
        with counters.lock:
            return Usage(dict(counters.requests), counters.bytes_up, counters.bytes_down)


class MeteredStore(WrappedStore):
    """`inner`, counted. Give several stores one meter to count them together."""

    def __init__(self, inner: ObjectStore, meter: Meter | None = None) -> None:
        super().__init__(inner)
        self.meter: Final = meter or Meter()

    def __reduce__(self) -> tuple[object, ...]:
        return MeteredStore, (self.inner,)

    def usage(self) -> Usage:
        """Everything counted so far."""
        return self.meter.snapshot()

    def at(self, bucket: str) -> MeteredStore:
        """Another bucket, counted by the same meter."""
        return MeteredStore(self.inner.at(bucket), self.meter)

    def _ask(self, asked: Asked, send: Callable[[], T]) -> T:
        self.meter.sent(asked.verb, asked.bytes_up)
        answer = send()
        if isinstance(answer, Got):
            self.meter.received(len(answer.body))
        return answer


def usage_of(store: ObjectStore) -> Usage:
    """What a store has counted; nothing if it does not count."""
    return store.usage() if isinstance(store, MeteredStore) else NO_USAGE

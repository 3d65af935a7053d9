"""Counting what a store is asked for: requests by verb, bytes up and down.

Promise: one count per HTTP request that S3 would see (each page of a listing, each batch of a
delete), counted before it is sent, so that a failed request counts as well. Bytes are those of
bodies, not of headers or listings. An attempt the store repeats by itself counts once.

Verbs are the store's own: get, head, put, copy, list, delete, create_multipart, upload_part,
upload_part_copy, complete_multipart, abort_multipart, list_uploads, list_versions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from inlay.storage.base import (
    MAX_DELETE_KEYS,
    ByteRange,
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
from inlay.storage.process import PerProcess

T = TypeVar("T")

# AWS: a page of ListObjectsV2, ListObjectVersions or ListMultipartUploads has at most 1,000 items.
LIST_PAGE_ITEMS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Usage:
    """Requests and bytes over some time; subtract an earlier one for what happened since."""

    requests: Mapping[str, int]
    bytes_up: int
    bytes_down: int

    @property
    def total(self) -> int:
        """All requests."""
        return sum(self.requests.values())

    def __add__(self, other: Usage) -> Usage:
        return _combined(self, other, 1)

    def __sub__(self, earlier: Usage) -> Usage:
        return _combined(self, earlier, -1)


NO_USAGE: Final = Usage({}, 0, 0)


def _combined(one: Usage, other: Usage, sign: int) -> Usage:
    """`one ± other`, without verbs that come to nothing."""
    counts = dict(one.requests)
    for verb, count in other.requests.items():
        counts[verb] = counts.get(verb, 0) + sign * count
    return Usage(
        {verb: count for verb, count in counts.items() if count},
        one.bytes_up + sign * other.bytes_up,
        one.bytes_down + sign * other.bytes_down,
    )


@dataclass(slots=True)
class _Counters:
    lock: threading.Lock = field(default_factory=threading.Lock)
    requests: dict[str, int] = field(default_factory=dict)
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
            counters.requests[verb] = counters.requests.get(verb, 0) + 1
            counters.bytes_up += bytes_up

    def received(self, bytes_down: int) -> None:
        counters = self._counters.get()
        with counters.lock:
            counters.bytes_down += bytes_down

    def snapshot(self) -> Usage:
        counters = self._counters.get()
        with counters.lock:
            return Usage(dict(counters.requests), counters.bytes_up, counters.bytes_down)


class MeteredStore:
    """`inner`, counted. Give several stores one meter to count them together."""

    def __init__(self, inner: ObjectStore, meter: Meter | None = None) -> None:
        self.inner: Final = inner
        self.meter: Final = meter or Meter()

    def __reduce__(self) -> tuple[object, ...]:
        return MeteredStore, (self.inner,)

    def usage(self) -> Usage:
        """Everything counted so far."""
        return self.meter.snapshot()

    @property
    def scheme(self) -> str:
        return self.inner.scheme

    @property
    def bucket(self) -> str:
        return self.inner.bucket

    def at(self, bucket: str) -> MeteredStore:
        """Another bucket, counted by the same meter."""
        return MeteredStore(self.inner.at(bucket), self.meter)

    def get(
        self,
        key: str,
        *,
        byte_range: ByteRange | None = None,
        if_match: str | None = None,
        version_id: str | None = None,
    ) -> Got | Missing | Refused:
        self.meter.sent("get")
        answer = self.inner.get(
            key, byte_range=byte_range, if_match=if_match, version_id=version_id
        )
        if isinstance(answer, Got):
            self.meter.received(len(answer.body))
        return answer

    def get_suffix(self, key: str, length: int, *, version_id: str | None = None) -> Got | Missing:
        self.meter.sent("get")
        pin = {} if version_id is None else {"version_id": version_id}
        answer = self.inner.get_suffix(key, length, **pin)
        if isinstance(answer, Got):
            self.meter.received(len(answer.body))
        return answer

    def head(self, key: str, *, version_id: str | None = None) -> Head | Missing:
        self.meter.sent("head")
        return self.inner.head(key, version_id=version_id)

    def put(
        self,
        key: str,
        body: bytes | memoryview,
        *,
        condition: Condition = None,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Written | Refused:
        self.meter.sent("put", _size(body))
        return self.inner.put(key, body, condition=condition, metadata=metadata, headers=headers)

    def copy(
        self,
        source: Location,
        key: str,
        *,
        if_source_match: str | None = None,
        condition: Condition = None,
        bare: bool = False,
    ) -> Written | Refused | Missing:
        self.meter.sent("copy")
        return self.inner.copy(
            source, key, if_source_match=if_source_match, condition=condition, bare=bare
        )

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._paged("list", self.inner.list(prefix, start_after=start_after))

    def list_prefixes(self, prefix: str) -> Iterator[str]:
        return self._paged("list", self.inner.list_prefixes(prefix))

    def delete(self, keys: Iterable[str]) -> Sequence[DeleteFailure]:
        return self.inner.delete(self._batched(keys))

    def create_multipart(
        self,
        key: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        self.meter.sent("create_multipart")
        return self.inner.create_multipart(key, metadata=metadata, headers=headers)

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | memoryview) -> Part:
        self.meter.sent("upload_part", _size(body))
        return self.inner.upload_part(key, upload_id, number, body)

    def upload_part_copy(
        self,
        key: str,
        upload_id: str,
        number: int,
        *,
        source: Location,
        byte_range: ByteRange,
        if_source_match: str,
    ) -> Part | Refused | Missing:
        self.meter.sent("upload_part_copy")
        return self.inner.upload_part_copy(
            key,
            upload_id,
            number,
            source=source,
            byte_range=byte_range,
            if_source_match=if_source_match,
        )

    def complete_multipart(
        self, key: str, upload_id: str, parts: Sequence[Part]
    ) -> Written | Missing:
        self.meter.sent("complete_multipart")
        return self.inner.complete_multipart(key, upload_id, parts)

    def abort_multipart(self, key: str, upload_id: str) -> None:
        self.meter.sent("abort_multipart")
        self.inner.abort_multipart(key, upload_id)

    def list_uploads(self, prefix: str) -> Iterator[Upload]:
        return self._paged("list_uploads", self.inner.list_uploads(prefix))

    def list_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        return self._paged("list_versions", self.inner.list_versions(prefix))

    def delete_versions(self, versions: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        return self.inner.delete_versions(self._batched(versions))

    def _paged(self, verb: str, items: Iterator[T]) -> Iterator[T]:
        """Count a page before its first item is asked for; an empty listing is one page too."""
        self.meter.sent(verb)
        for position, item in enumerate(items):
            if position and position % LIST_PAGE_ITEMS == 0:
                self.meter.sent(verb)
            yield item

    def _batched(self, items: Iterable[T]) -> Iterator[T]:
        """Count a batch as its first item is handed over."""
        for position, item in enumerate(items):
            if position % MAX_DELETE_KEYS == 0:
                self.meter.sent("delete")
            yield item


def _size(body: bytes | memoryview) -> int:
    return body.nbytes if isinstance(body, memoryview) else len(body)

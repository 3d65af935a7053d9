"""Moto's S3 as it is inside: the only module that reaches into it.

Promise: objects, their bytes by range, and unfinished uploads can be looked at without moto's HTTP
layer, which reads a whole object to answer a range. Nothing here locks; the caller holds the lock
of `aws_app`, which is also what keeps an object's buffer open while it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import ARCHIVE_STORAGE_CLASSES, FakeKey, s3_backends

_STARTED = "inlay_started"


@dataclass(frozen=True, slots=True)
class HeldUpload:
    """An unfinished multipart upload."""

    key: str
    upload_id: str
    started: datetime


@dataclass(frozen=True, slots=True)
class HeldObject:
    """One version of an object that moto holds."""

    held: Any

    @property
    def size(self) -> int:
        size: int = self.held.size
        return size

    @property
    def etag(self) -> str:
        """With its quotes."""
        etag: str = self.held.etag
        return etag

    @property
    def is_archived(self) -> bool:
        return self.held.storage_class in ARCHIVE_STORAGE_CLASSES

    @property
    def headers(self) -> Mapping[str, str]:
        """What a GET of all of it answers with."""
        headers = {str(name): str(value) for name, value in self.held.metadata.items()}
        headers |= {str(name): str(value) for name, value in self.held.response_dict.items()}
        if self.held.version_id != "null":
            headers["x-amz-version-id"] = self.held.version_id
        return headers

    def read(self, start: int, end: int) -> bytes:
        buffer = self.held._value_buffer
        with self.held.lock:
            buffer.seek(start)
            content: bytes = buffer.read(end - start)
        return content


def has_bucket(bucket: str) -> bool:
    return bucket in _backend().buckets


def is_versioned(bucket: str) -> bool:
    versioned: bool = _backend().buckets[bucket].is_versioned
    return versioned


def find(bucket: str, key: str, version_id: str | None = None) -> HeldObject | None:
    """The current version, or one by its id; None for a delete marker and where nothing is."""
    if not has_bucket(bucket):
        return None
    versions = _backend().buckets[bucket].keys.getlist(key, [])
    if version_id is None:
        versions = versions[-1:]
    for version in versions:
        wanted = version_id is None or version.version_id == version_id
        if wanted and isinstance(version, FakeKey):
            return HeldObject(version)
    return None


def uploads(bucket: str) -> Iterator[HeldUpload]:
    for upload_id, upload in _backend().buckets[bucket].multiparts.items():
        yield HeldUpload(upload.key_name, upload_id, _started(upload))


def find_upload(bucket: str, upload_id: str) -> HeldUpload | None:
    if not has_bucket(bucket):
        return None
    upload = _backend().buckets[bucket].multiparts.get(upload_id)
    return None if upload is None else HeldUpload(upload.key_name, upload_id, _started(upload))


def note_start(bucket: str) -> None:
    """Write the time on every upload that has none: moto does not keep when one was started."""
    for upload in _backend().buckets[bucket].multiparts.values():
        _started(upload)


def date_back(bucket: str, key: str, started: datetime) -> None:
    """S3 dates a multipart object by the start of its upload. Its parts, which moto would keep
    beside the whole object, are let go."""
    found = find(bucket, key)
    if found is not None:
        found.held.last_modified = started.replace(tzinfo=None)
        if found.held.multipart is not None:
            found.held.multipart.dispose()
            found.held.multipart = None


def default_wait_seconds(queue_url: str, region: str) -> float:
    """A queue's own long-poll time."""
    from moto.sqs.models import sqs_backends

    queue = sqs_backends[DEFAULT_ACCOUNT_ID][region].queues.get(queue_url.rpartition("/")[2])
    return 0.0 if queue is None else float(queue.receive_message_wait_time_seconds or 0)


def reset() -> None:
    """Forget all buckets and queues: moto keeps them for the whole process."""
    from moto.sqs.models import sqs_backends

    s3_backends.reset()
    sqs_backends.reset()


def _backend() -> Any:
    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]


def _started(upload: Any) -> datetime:
    started: datetime | None = getattr(upload, _STARTED, None)
    if started is None:
        started = datetime.now(UTC)
        setattr(upload, _STARTED, started)
    return started

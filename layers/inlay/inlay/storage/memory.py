"""The reference store: S3's rules, in memory.

Promise: this store answers as S3 does, rule by rule; tests and the simulator run on it, and the conformance
suite compares the other stores with it. One lock per region makes every request a single step. The clock is
an argument, version and upload ids are counted, so a run with the same calls gives the same answers.

Stores on one `MemoryRegion` see each other's buckets and can copy between them. `memory://` URIs share the
region of the process, `PROCESS_REGION`.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from inlay.errors import InvalidRequest
from inlay.record import Mutable, Record, field, replace
from inlay.storage import rules
from inlay.storage.base import (
    NULL_VERSION,
    ByteRange,
    Condition,
    DeleteFailure,
    Got,
    Head,
    Location,
    Missing,
    ObjectInfo,
    ObjectVersion,
    Part,
    Refused,
    Upload,
    Written,
)
from inlay.storage.wrapped import check_same_process, current_process

LIST_PAGE_KEYS = 1_000
DEFAULT_CONTENT_TYPE = "binary/octet-stream"


def system_now_us() -> int:
    return time.time_ns() // 1_000


class Version(Record):
    """One version of a key. `id` is None when it was written without versioning; `serial` is its
    keeper's."""

    body: bytes
    etag: str
    modified_us: int
    id: str | None
    metadata: Mapping[str, str]
    headers: Mapping[str, str]
    marker: bool = False
    serial: int = 0


class Keeper(Protocol):
    """Keeps versions beyond the process; called under the region's lock."""

    def added(self, bucket: str, key: str, version: Version) -> Version:
        """The version as it is kept, with its serial."""
        ...

    def dropped(self, version: Version) -> None: ...


class PendingUpload(Record):
    """An unfinished multipart upload."""

    key: str
    started_us: int
    metadata: Mapping[str, str]
    headers: Mapping[str, str]
    parts: dict[int, tuple[Part, bytes]] = field(default_factory=dict)


class Bucket(Mutable):
    """`versions` holds each key's versions, newest last; `keys` the same keys, sorted. `versioning` is
    "", "Enabled" or "Suspended".

    Sorting `str` by code point is sorting their UTF-8 bytes: the encoding keeps that order.
    """

    name: str
    versions: dict[str, list[Version]] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    uploads: dict[str, PendingUpload] = field(default_factory=dict)
    versioning: str = ""
    keeper: Keeper | None = None

    def copy(self) -> Bucket:
        return Bucket(
            self.name,
            {key: list(held) for key, held in self.versions.items()},
            list(self.keys),
            {name: replace(u, parts=dict(u.parts)) for name, u in self.uploads.items()},
            self.versioning,
        )

    def current(self, key: str) -> Version | None:
        held = self.versions.get(key)
        return held[-1] if held and not held[-1].marker else None

    def refusal(self, key: str, condition: Condition, date_us: int) -> Refused | None:
        """The answer to a write under a condition that does not hold."""
        held = self.current(key)
        return rules.refusal(condition, None if held is None else held.etag, date_us)

    def find(self, key: str, version_id: str | None) -> Version | None:
        if version_id is None:
            return self.current(key)
        for held in self.versions.get(key, ()):
            if (held.id or NULL_VERSION) == version_id and not held.marker:
                return held
        return None

    def add(self, key: str, version: Version) -> None:
        """Puts a version on top. One without an id replaces the one without an id."""
        if self.keeper is not None:
            version = self.keeper.added(self.name, key, version)
        if version.id is None:
            self._take(key, NULL_VERSION)
        held = self.versions.get(key)
        if held is None:
            bisect.insort(self.keys, key)
            held = self.versions[key] = []
        held.append(version)

    def drop(self, key: str, version_id: str) -> Version | None:
        """Remove one version for good, and the key with its last one; what was removed."""
        dropped = self._take(key, version_id)
        if dropped is not None and not self.versions[key]:
            del self.versions[key]
            del self.keys[bisect.bisect_left(self.keys, key)]
        return dropped

    def _take(self, key: str, version_id: str) -> Version | None:
        held = self.versions.get(key, [])
        for at, version in enumerate(held):
            if (version.id or NULL_VERSION) == version_id:
                del held[at]
                if self.keeper is not None:
                    self.keeper.dropped(version)
                return version
        return None

    def tag(self, key: str, version: Version, tags: str) -> None:
        """Give a version other tags."""
        headers = {name: value for name, value in version.headers.items() if name != "Tagging"}
        changed = replace(version, headers=headers | ({"Tagging": tags} if tags else {}))
        if self.keeper is not None:
            self.keeper.dropped(version)
            changed = self.keeper.added(self.name, key, changed)
        held = self.versions[key]
        held[held.index(version)] = changed

    def page(self, prefix: str, after: str | None) -> list[str]:
        """The next keys under `prefix` after `after`, one page at most."""
        at = bisect.bisect_left(self.keys, prefix)
        if after is not None:
            at = max(at, bisect.bisect_right(self.keys, after))
        page_keys = itertools.islice(self.keys, at, at + LIST_PAGE_KEYS)
        return list(itertools.takewhile(lambda key: key.startswith(prefix), page_keys))

    def keys_from(self, prefix: str, first: str | None) -> Iterator[str]:
        """The keys under `prefix` from `first` on. Needs the lock while it runs."""
        at = bisect.bisect_left(self.keys, max(prefix, first or ""))
        for key in itertools.islice(self.keys, at, None):
            if not key.startswith(prefix):
                return
            yield key


class MemoryRegion:
    """Buckets that can copy from one another, one clock and one lock for all.

    Dates are whole seconds, as S3's: `Date` and `LastModified` headers have no fractions. A bucket is
    created when it is first named.
    """

    def __init__(self, now_us: Callable[[], int] = system_now_us, *, behind_us: int = 0) -> None:
        """`behind_us`: how far LastModified is behind the `Date` of answers."""
        self._lock = threading.RLock()
        self._process = current_process()
        self._now_us = now_us
        self.behind_us = behind_us
        self.keeper: Keeper | None = None
        self._buckets: dict[str, Bucket] = {}
        self._next_id = 1

    @property
    def lock(self) -> threading.RLock:
        """A process forked from the creator of the region has only a copy: writes to it would be lost
        silently, so it is not touched."""
        check_same_process(self._process, "a memory:// store")
        return self._lock

    def now_us(self) -> int:
        now = self._now_us()
        return now - now % 1_000_000

    def modified_us(self) -> int:
        """LastModified of what is written now."""
        return self.now_us() - self.behind_us

    def bucket(self, name: str) -> Bucket:
        with self.lock:
            bucket = self._buckets.get(name)
            if bucket is None:
                bucket = self._buckets[name] = Bucket(name)
            bucket.keeper = self.keeper
            return bucket

    def new_id(self, what: str) -> str:
        with self.lock:
            number = self._next_id
            self._next_id += 1
        return f"{what}-{number:08d}"

    def number_from(self, first: int) -> None:
        """Count ids from `first` on."""
        with self.lock:
            self._next_id = first

    def copy(self, now_us: Callable[[], int]) -> MemoryRegion:
        """A new region with a copy of what this one holds."""
        other = MemoryRegion(now_us, behind_us=self.behind_us)
        with self.lock:
            # Ids go on, so that none is given twice among what was copied.
            other._next_id = self._next_id
            for name, held in self._buckets.items():
                other._buckets[name] = held.copy()
        return other

    def forget(self, bucket: str) -> None:
        """Drop a bucket and all it holds."""
        with self.lock:
            self._buckets.pop(bucket, None)


PROCESS_REGION = MemoryRegion()


def _forked() -> None:
    """A forked process starts with an empty region, as a spawned one does."""
    global PROCESS_REGION
    PROCESS_REGION = MemoryRegion()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _of_process(bucket: str) -> MemoryStore:
    return MemoryStore(bucket, region=PROCESS_REGION)


class MemoryStore:
    """One bucket of a region; a store built without a region gets its own."""

    scheme = "memory"
    copies_ranges = True

    def __init__(
        self,
        bucket: str = "memory",
        *,
        region: MemoryRegion | None = None,
        now_us: Callable[[], int] = system_now_us,
    ) -> None:
        self._region = region or MemoryRegion(now_us)
        self._name = bucket

    @property
    def bucket(self) -> str:
        return self._name

    def __reduce__(self) -> tuple[object, ...]:
        if self._region is not PROCESS_REGION:
            raise InvalidRequest(
                "a memory store with a region of its own cannot be pickled",
                next_step="Use s3://, file:/// or memory://",
            )
        return _of_process, (self._name,)

    def at(self, bucket: str) -> MemoryStore:
        return MemoryStore(bucket, region=self._region)

    def enable_versioning(self) -> None:
        """Keeps every version from now on, as S3 does once versioning is enabled."""
        with self._region.lock:
            self._bucket.versioning = "Enabled"

    @property
    def _bucket(self) -> Bucket:
        return self._region.bucket(self._name)

    # -- reads --------------------------------------------------------------------------------

    def get(
        self,
        key: str,
        *,
        byte_range: ByteRange | None = None,
        if_match: str | None = None,
        version_id: str | None = None,
    ) -> Got | Missing | Refused:
        date_us, held = self._find(key, version_id)
        if held is None:
            return Missing(date_us)
        if if_match is not None and held.etag != if_match:
            return Refused("exists", date_us)
        start, end = rules.resolve_range(key, byte_range, len(held.body))
        return _got(held, start, end, date_us)

    def get_suffix(self, key: str, length: int, *, version_id: str | None = None) -> Got | Missing:
        rules.check_suffix_length(length)
        date_us, held = self._find(key, version_id)
        if held is None:
            return Missing(date_us)
        size = len(held.body)
        return _got(held, max(0, size - length), size, date_us)

    def head(self, key: str, *, version_id: str | None = None) -> Head | Missing:
        date_us, held = self._find(key, version_id)
        if held is None:
            return Missing(date_us)
        info = ObjectInfo(
            key,
            len(held.body),
            held.etag,
            held.modified_us,
            held.id,
            dict(held.metadata),
            dict(held.headers),
        )
        return Head(info, date_us)

    def _find(self, key: str, version_id: str | None) -> tuple[int, Version | None]:
        rules.check_key(key)
        with self._region.lock:
            return self._region.now_us(), self._bucket.find(key, version_id)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for key, held in self._held(prefix, start_after):
            newest = held[-1]
            if not newest.marker:
                yield ObjectInfo(key, len(newest.body), newest.etag, newest.modified_us)

    def _held(self, prefix: str, after: str | None) -> Iterator[tuple[str, Sequence[Version]]]:
        """Keys under `prefix` behind `after` with their versions; each page as of when it is reached."""
        while True:  # ends: `after` grows with each page
            with self._region.lock:
                bucket = self._bucket
                page = [(key, tuple(bucket.versions[key])) for key in bucket.page(prefix, after)]
            yield from page
            if not page:
                return
            after, _ = page[-1]

    def list_prefixes(self, prefix: str) -> Iterator[str]:
        last = None
        for info in self.list(prefix):
            head, slash, _ = info.key[len(prefix) :].partition("/")
            if slash and head != last:
                last = head
                yield f"{prefix}{head}/"

    # -- writes -------------------------------------------------------------------------------

    def put(
        self,
        key: str,
        body: bytes | memoryview,
        *,
        condition: Condition = None,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Written | Refused:
        rules.check_key(key)
        rules.check_put_size(key, len(body))
        kept, kept_headers = rules.check_headers(key, metadata, headers)
        content = bytes(body)
        with self._region.lock:
            bucket, date_us = self._bucket, self._region.now_us()
            refused = bucket.refusal(key, condition, date_us)
            if refused is not None:
                return refused
            modified_us, etag = self._region.modified_us(), _md5(content)
            return self._land(bucket, key, content, etag, modified_us, kept, kept_headers)

    def copy(
        self,
        source: Location,
        key: str,
        *,
        if_source_match: str | None = None,
        condition: Condition = None,
        bare: bool = False,
        described: tuple[Mapping[str, str], Mapping[str, str]] | None = None,
    ) -> Written | Refused | Missing:
        """`described` is the metadata and headers of the copy, in place of the source's."""
        rules.check_key(key)
        rules.check_scheme(source, self.scheme, "a memory store")
        with self._region.lock:
            date_us = self._region.now_us()
            held = self._region.bucket(source.bucket).find(source.key, source.version_id)
            if held is None:
                return Missing(date_us)
            if if_source_match is not None and held.etag != if_source_match:
                return Refused("exists", date_us)
            rules.check_copy_size(source.key, len(held.body))
            if described is None and source == Location(self.scheme, self._name, key):
                raise rules.copied_onto_itself(key)
            bucket = self._bucket
            refused = bucket.refusal(key, condition, date_us)
            if refused is not None:
                return refused
            if described is None:
                carried = {k: v for k, v in held.headers.items() if k not in rules.NOT_COPIED}
                described = ({}, {}) if bare else (held.metadata, carried)
            modified_us, etag = self._region.modified_us(), _md5(held.body)
            return self._land(bucket, key, held.body, etag, modified_us, *described)

    def delete(self, keys: Iterable[str]) -> Sequence[DeleteFailure]:
        for batch in rules.delete_batches(keys):
            with self._region.lock:
                for key in batch:
                    self.remove(key)
        return ()

    def delete_unchanged(self, objects: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        for batch in rules.delete_batches(objects):
            with self._region.lock:
                for key, etag in batch:
                    head = self.head(key)
                    if isinstance(head, Head) and head.info.etag == etag:
                        self.remove(key)
        return ()

    def remove(self, key: str, version_id: str | None = None) -> Version | None:
        """Removes a version for good; without an id the object, which in a versioned bucket is hidden by a
        marker. Returns what was removed, or the marker."""
        with self._region.lock:
            bucket = self._bucket
            if version_id is not None or not bucket.versioning:
                return bucket.drop(key, version_id or NULL_VERSION)
            now = self._region.modified_us()
            marker = Version(b"", "", now, self._new_id_in(bucket), {}, {}, marker=True)
            bucket.add(key, marker)
            return marker

    def _new_id_in(self, bucket: Bucket) -> str | None:
        return self._region.new_id("version") if bucket.versioning == "Enabled" else None

    def _land(
        self,
        bucket: Bucket,
        key: str,
        body: bytes,
        etag: str,
        modified_us: int,
        metadata: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> Written:
        version_id = self._new_id_in(bucket)
        kept = {"ContentType": DEFAULT_CONTENT_TYPE} | dict(headers)
        bucket.add(key, Version(body, etag, modified_us, version_id, metadata, kept))
        return Written(etag, self._region.now_us(), version_id)

    # -- multipart ----------------------------------------------------------------------------

    def create_multipart(
        self,
        key: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        rules.check_key(key)
        kept, kept_headers = rules.check_headers(key, metadata, headers)
        with self._region.lock:
            upload_id = self._region.new_id("upload")
            self._bucket.uploads[upload_id] = PendingUpload(
                key, self._region.modified_us(), kept, kept_headers
            )
            return upload_id

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | memoryview) -> Part:
        rules.check_part(key, number, len(body))
        return self._stage(key, upload_id, number, bytes(body))

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
        rules.check_part(key, number, byte_range.length)
        rules.check_scheme(source, self.scheme, "a memory store")
        with self._region.lock:
            date_us = self._region.now_us()
            held = self._region.bucket(source.bucket).find(source.key, source.version_id)
            if held is None:
                return Missing(date_us)
            if held.etag != if_source_match:
                return Refused("exists", date_us)
            rules.check_copy_range(source.key, byte_range, len(held.body))
            return self._stage(key, upload_id, number, held.body[byte_range.start : byte_range.end])

    def complete_multipart(
        self, key: str, upload_id: str, parts: Sequence[Part], *, condition: Condition = None
    ) -> Written | Refused | Missing:
        with self._region.lock:
            bucket = self._bucket
            upload = bucket.uploads.get(upload_id)
            if upload is None or upload.key != key:
                return Missing(self._region.now_us())
            staged = {
                number: rules.StagedPart(part.etag, len(content))
                for number, (part, content) in upload.parts.items()
            }
            rules.check_completion(key, parts, staged)
            refused = bucket.refusal(key, condition, self._region.now_us())
            if refused is not None:
                return refused
            body = b"".join(upload.parts[part.number][1] for part in parts)
            del bucket.uploads[upload_id]
            # S3 dates a multipart object by the *start* of its upload.
            return self._land(
                bucket,
                key,
                body,
                multipart_etag(parts),
                upload.started_us,
                upload.metadata,
                upload.headers,
            )

    def abort_multipart(self, key: str, upload_id: str) -> None:
        with self._region.lock:
            upload = self._bucket.uploads.get(upload_id)
            if upload is not None and upload.key == key:
                del self._bucket.uploads[upload_id]

    def list_uploads(self, prefix: str) -> Iterator[Upload]:
        with self._region.lock:
            uploads = [
                Upload(upload.key, upload_id, upload.started_us)
                for upload_id, upload in self._bucket.uploads.items()
                if upload.key.startswith(prefix)
            ]
        yield from sorted(
            uploads, key=lambda started: (started.key, started.started_us, started.upload_id)
        )

    def _stage(self, key: str, upload_id: str, number: int, body: bytes) -> Part:
        part = Part(number, _md5(body))
        with self._region.lock:
            upload = self._bucket.uploads.get(upload_id)
            if upload is None or upload.key != key:
                raise rules.upload_gone(key, upload_id)
            upload.parts[number] = (part, body)
        return part

    # -- versions -----------------------------------------------------------------------------

    def list_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        for key, held in self._held(prefix, None):
            for version in reversed(held):
                yield ObjectVersion(
                    key,
                    version.id or NULL_VERSION,
                    len(version.body),
                    version.modified_us,
                    is_latest=version is held[-1],
                    marker=version.marker,
                    etag=version.etag,
                )

    def delete_versions(self, versions: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        for batch in rules.delete_batches(versions):
            with self._region.lock:
                for key, version_id in batch:
                    self.remove(key, version_id)
        return ()


def _got(held: Version, start: int, end: int, date_us: int) -> Got:
    return Got(held.body[start:end], len(held.body), held.etag, held.modified_us, date_us, held.id)


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def multipart_etag(parts: Sequence[Part]) -> str:
    """S3's ETag of a multipart object: MD5 of the parts' MD5s, a dash, their number."""
    digests = b"".join(bytes.fromhex(part.etag) for part in parts)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"

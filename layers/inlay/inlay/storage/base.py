"""The requests that Inlay makes of a store.

Promise: every store behaves like S3 where the protocol depends on it: a PUT is atomic and visible at once,
conditions are checked and applied in one step, a listing is complete and in key order (UTF-8 bytes), an
ETag changes whenever the bytes do, and time is the *store's* time. One conformance suite (`tests/store`)
runs on all stores.

A store is rooted at a bucket (or a directory, or a named memory bucket); keys are relative to it and never
begin with a slash. ETags are opaque and written without the quotes of the HTTP header, as in S3's event
messages. Losing a conditional write is an expected outcome and is *returned* (`Refused`); a request whose
outcome is unknown raises `StoreUnavailable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Literal, Protocol

from inlay.record import Record, field

# S3's rules for multipart uploads (AWS: "Amazon S3 multipart upload limits").
MIN_PART_BYTES = 5 * 1024 * 1024
MAX_PART_BYTES = 5 * 1024 * 1024 * 1024
MAX_PARTS = 10_000
# AWS: CopyObject copies at most 5 GiB in one request; larger sources go by UploadPartCopy.
MAX_COPY_BYTES = 5 * 1024 * 1024 * 1024
# AWS: DeleteObjects takes at most 1,000 keys.
MAX_DELETE_KEYS = 1_000
# The id of an object's only version if it was written without versioning.
NULL_VERSION = "null"


class Location(Record):
    """One object anywhere: `scheme` s3, gs, abfss, file or memory; `bucket` "" for file, and with the
    account (`container@host`) on Azure. `version_id` None means its current version; the URI names none."""

    scheme: str
    bucket: str
    key: str
    version_id: str | None = None

    @property
    def uri(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}"


def version_of(location: Location) -> dict[str, str]:
    """The argument that selects the version in `location`, if it has one."""
    return {} if location.version_id is None else {"version_id": location.version_id}


class ByteRange(Record):
    """Bytes `start` … `end - 1` of an object. Never empty: S3 answers 416 to an empty range."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"not a byte range: {self.start}..{self.end}")

    @property
    def length(self) -> int:
        return self.end - self.start


class IfAbsent(Enum):
    """Write only if the key does not exist: `If-None-Match: *`."""

    CONDITION = "If-None-Match: *"


IF_ABSENT = IfAbsent.CONDITION


class IfMatch(Record):
    """Write only over exactly these bytes: `If-Match: <etag>`."""

    etag: str


Condition = IfAbsent | IfMatch | None


class ObjectInfo(Record):
    """The result of a HEAD or an entry of a listing. `modified_us` is the store's clock (for a multipart
    object the time its upload was *started*), microseconds since 1970, whole seconds where the
    dates of answers are."""

    key: str
    size: int
    etag: str
    modified_us: int
    version_id: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    # Headers a server-side rewrite must carry over (content type, encryption, storage class …),
    # named as the boto3 argument that sets them.
    headers: Mapping[str, str] = field(default_factory=dict)
    # It has tags, which are not in `headers`: reading them is a permission of its own.
    unread_tags: bool = False


class Got(Record):
    """The answer to a GET: `body` is the requested range, `size` the whole object's."""

    body: bytes
    size: int
    etag: str
    modified_us: int
    date_us: int
    version_id: str | None = None


class Head(Record):
    """The answer to a HEAD: the object's facts, and the store's clock when it answered."""

    info: ObjectInfo
    date_us: int

    def empty(self) -> Got:
        """The answer to a GET of this object, if it has no bytes."""
        info = self.info
        return Got(b"", 0, info.etag, info.modified_us, self.date_us, info.version_id)


class Missing(Record):
    """No such object; `date_us` is the store's clock."""

    date_us: int


class Written(Record):
    """A successful write."""

    etag: str
    date_us: int
    version_id: str | None = None


class Refused(Record):
    """A conditional write the store declined.

    `exists`  412: the condition did not hold
    `missing` 404: If-Match on a key that does not exist (or copying an object that is gone)
    `race`    409: another conditional write was in flight; the same request may be sent again

    The receiver must still *check*: an SDK that retried a landed PUT reports 412 for it.
    """

    reason: Literal["exists", "missing", "race"]
    date_us: int


class Part(Record):
    """One finished part of a multipart upload; `number` counts from 1."""

    number: int
    etag: str


class Upload(Record):
    """An unfinished multipart upload, as a listing shows it."""

    key: str
    upload_id: str
    started_us: int


class ObjectVersion(Record):
    """One version of a key in a bucket with versioning; `marker` says it is a delete marker, which has
    no ETag."""

    key: str
    version_id: str
    size: int
    modified_us: int
    is_latest: bool
    marker: bool
    etag: str = ""


class DeleteFailure(Record):
    """A key that a batched delete could not remove, with the store's message."""

    key: str
    version_id: str | None
    reason: str


class ObjectStore(Protocol):
    """The requests Inlay makes, one method each.

    All methods raise `StoreUnavailable` when the outcome is unknown and `AccessDenied` on 403.
    Every method is safe to call from several threads.
    """

    @property
    def scheme(self) -> str: ...

    @property
    def bucket(self) -> str:
        """The bucket's name; "" where there are none."""

    @property
    def copies_ranges(self) -> bool:
        """Whether `upload_part_copy` works. Where it does not (`InvalidRequest`), a rewrite of some row
        groups downloads and sends the others."""

    def get(
        self,
        key: str,
        *,
        byte_range: ByteRange | None = None,
        if_match: str | None = None,
        version_id: str | None = None,
    ) -> Got | Missing | Refused:
        """GET one object or a range. A range that reaches past the end is truncated; one that starts past
        it raises `UnreadableFile`. `Refused("exists")` when `if_match` fails.
        """

    def get_suffix(self, key: str, length: int, *, version_id: str | None = None) -> Got | Missing:
        """The last `length` bytes (all of a shorter object) in one GET: used to read a footer."""

    def head(self, key: str, *, version_id: str | None = None) -> Head | Missing:
        """HEAD one object."""

    def put(
        self,
        key: str,
        body: bytes | memoryview,
        *,
        condition: Condition = None,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Written | Refused:
        """PUT one object, atomically, under `condition`."""

    def copy(
        self,
        source: Location,
        key: str,
        *,
        if_source_match: str | None = None,
        condition: Condition = None,
        bare: bool = False,
    ) -> Written | Refused | Missing:
        """Server-side copy of a whole object, of the version that `source` names if any, up to 5 GiB,
        from this or another bucket of the same scheme. `Missing` when the source is gone,
        `Refused("exists")` when `if_source_match` fails.
        User metadata, tags and headers are copied, unless it is `bare`.
        """

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Every object whose key starts with `prefix`, in key order; pages of 1,000 inside. Raises
        `UnsupportedStore` where the server lists in another order."""

    def list_prefixes(self, prefix: str) -> Iterator[str]:
        """The common prefixes one "/" below `prefix`, each ending in "/"."""

    def delete(self, keys: Iterable[str]) -> Sequence[DeleteFailure]:
        """Delete keys in batches of 1,000; a key that is not there counts as deleted."""

    def delete_unchanged(self, objects: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        """Delete (key, ETag) in batches of 1,000, where names keep no versions: a key whose content has
        another ETag by then stays, which is no failure. Compared in one step with the deletion where the
        store does that (docs/STORES.md)."""

    # -- multipart ----------------------------------------------------------------------------

    def create_multipart(
        self,
        key: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Start an upload; returns its id."""

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | memoryview) -> Part:
        """PUT one part; `StaleUpload` when the upload is gone."""

    def upload_part_copy(
        self,
        key: str,
        upload_id: str,
        number: int,
        *,
        source: Location,
        byte_range: ByteRange,
        if_source_match: str,
    ) -> Part | Refused | Missing: ...

    def complete_multipart(
        self, key: str, upload_id: str, parts: Sequence[Part], *, condition: Condition = None
    ) -> Written | Refused | Missing:
        """`Missing` means NoSuchUpload: an earlier Complete may have landed; the caller checks. If a
        condition does not hold the upload stays."""

    def abort_multipart(self, key: str, upload_id: str) -> None: ...

    def list_uploads(self, prefix: str) -> Iterator[Upload]: ...

    # -- versions -----------------------------------------------------------------------------

    def list_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        """Every version and delete marker under `prefix`; for a store without versioning each
        object once, with `version_id` "null" and `is_latest`."""

    def delete_versions(self, versions: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        """Delete (key, version id) pairs for good, in batches of 1,000."""

    def at(self, bucket: str) -> ObjectStore:
        """The same kind of store, same credentials and settings, on another bucket."""

"""S3's rules about a request, as plain checks.

Promise: what S3 would refuse, these refuse, with a typed error naming the key; other stores call them so
that a plan which breaks a rule fails on a laptop and not first in production. No I/O. Numbers come from
AWS: "Amazon S3 multipart upload limits", "Object key names", "Object metadata".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from inlay.errors import InvalidRequest, StaleUpload, UnreadableFile
from inlay.record import Record
from inlay.storage.base import (
    MAX_COPY_BYTES,
    MAX_DELETE_KEYS,
    MAX_PART_BYTES,
    MAX_PARTS,
    MIN_PART_BYTES,
    ByteRange,
    Condition,
    IfAbsent,
    IfMatch,
    Location,
    Part,
    Refused,
)

T = TypeVar("T")

MAX_KEY_BYTES = 1024
# AWS: one PUT takes at most 5 GiB; larger objects go by multipart upload.
MAX_PUT_BYTES = 5 * 1024 * 1024 * 1024
MAX_METADATA_BYTES = 2 * 1024

# The headers a store keeps with an object, by the boto3 argument that sets them both on put_object and
# on create_multipart_upload, so that a server-side rewrite can carry them over.
HEADERS: Final = {
    "BucketKeyEnabled": "x-amz-server-side-encryption-bucket-key-enabled",
    "CacheControl": "cache-control",
    "ContentDisposition": "content-disposition",
    "ContentEncoding": "content-encoding",
    "ContentLanguage": "content-language",
    "ContentType": "content-type",
    "SSEKMSKeyId": "x-amz-server-side-encryption-aws-kms-key-id",
    "ServerSideEncryption": "x-amz-server-side-encryption",
    "StorageClass": "x-amz-storage-class",
    "Tagging": "x-amz-tagging",
    "WebsiteRedirectLocation": "x-amz-website-redirect-location",
}
HEADER_NAMES: Final = frozenset(HEADERS)
# Storage classes whose objects can be read only after they were restored.
ARCHIVES: Final = frozenset({"GLACIER", "DEEP_ARCHIVE"})
# Of these, those that control how the store keeps the object: the others are written by users.
KEEPING_HEADERS = frozenset(
    {"BucketKeyEnabled", "SSEKMSKeyId", "ServerSideEncryption", "StorageClass"}
)
# What CopyObject takes from the *request* and not from the source object.
NOT_COPIED = KEEPING_HEADERS | {"WebsiteRedirectLocation"}


class StagedPart(Record):
    """A part the store holds for an unfinished upload."""

    etag: str
    size: int


def broken(code: str, message: str, *, key: str | None = None, next_step: str) -> InvalidRequest:
    """A rule of S3 that a request breaks, by S3's code."""
    error = InvalidRequest(message, key=key, next_step=next_step)
    error.s3_code = code
    return error


def check_key(key: str) -> None:
    """Refuse a key that no S3 object can have."""
    try:
        length = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        raise broken(
            "InvalidURI",
            f"key {key!r} is not valid Unicode",
            next_step="Use keys that encode as UTF-8",
        ) from None
    if not 1 <= length <= MAX_KEY_BYTES:
        raise broken(
            "KeyTooLongError",
            f"a key has 1 to {MAX_KEY_BYTES} bytes of UTF-8, this one has {length}",
            key=key[:100],
            next_step="Use a shorter key" if length else "Name the object",
        )


def check_headers(
    key: str, metadata: Mapping[str, str] | None, headers: Mapping[str, str] | None
) -> tuple[dict[str, str], dict[str, str]]:
    """(metadata, headers) as the store keeps them: names of metadata become lower case."""
    kept = {name.lower(): value for name, value in (metadata or {}).items()}
    if not all(name.isascii() and value.isascii() for name, value in kept.items()):
        raise broken(
            "InvalidArgument",
            "user metadata must be ASCII",
            key=key,
            next_step="Encode it, for instance as base64",
        )
    if sum(len(name) + len(value) for name, value in kept.items()) > MAX_METADATA_BYTES:
        raise broken(
            "MetadataTooLarge",
            f"user metadata is larger than {MAX_METADATA_BYTES} bytes",
            key=key,
            next_step="Store it in the object, or in one beside it",
        )
    unknown = sorted(set(headers or {}) - HEADER_NAMES)
    if unknown:
        raise broken(
            "InvalidArgument",
            f"unknown object headers {', '.join(unknown)}",
            key=key,
            next_step=f"Use {', '.join(sorted(HEADER_NAMES))}",
        )
    return kept, dict(headers or {})


def check_put_size(key: str, size: int, most: int = MAX_PUT_BYTES) -> None:
    if size > most:
        raise broken(
            "EntityTooLarge",
            f"one PUT takes at most {most} bytes, this body has {size}",
            key=key,
            next_step="Use a multipart upload",
        )


def resolve_range(key: str, byte_range: ByteRange | None, size: int) -> tuple[int, int]:
    """(start, end) of what a GET returns: truncated at the end of the object, refused when past it."""
    if byte_range is None:
        return 0, size
    if byte_range.start >= size:
        raise range_past_end(key, byte_range, size)
    return byte_range.start, min(byte_range.end, size)


def range_past_end(key: str, byte_range: ByteRange, size: int | None = None) -> UnreadableFile:
    holds = "" if size is None else f", the object has {size}"
    return UnreadableFile(f"bytes from {byte_range.start} were requested{holds}", key=key)


def check_suffix_length(length: int) -> None:
    if length < 1:
        raise ValueError(f"a suffix has at least one byte, not {length}")


def delete_batches(items: Iterable[T]) -> Iterator[list[T]]:
    """`items` in batches of one DeleteObjects; never an empty batch."""
    rest = iter(items)
    while batch := list(itertools.islice(rest, MAX_DELETE_KEYS)):
        yield batch


def check_scheme(source: Location, scheme: str, store: str) -> None:
    """Refuse to copy, inside `store`, what is in a store of another kind."""
    if source.scheme != scheme:
        raise InvalidRequest(
            f"{source.uri} cannot be copied inside {store}",
            key=source.key,
            next_step="Read it and PUT it",
        )


def check_copy_size(key: str, size: int) -> None:
    if size > MAX_COPY_BYTES:
        raise broken(
            "InvalidRequest",
            f"one copy request takes at most {MAX_COPY_BYTES} bytes, the source has {size}",
            key=key,
            next_step="Copy it by parts",
        )


def copied_onto_itself(key: str) -> InvalidRequest:
    return broken(
        "InvalidRequest",
        "an object cannot be copied onto itself unchanged",
        key=key,
        next_step="Copy it to another key",
    )


def check_copy_range(source_key: str, byte_range: ByteRange, source_size: int) -> None:
    """S3 copies a range only from a source over 5 MiB, and never one that reaches past its end."""
    if byte_range.end > source_size:
        raise broken(
            "InvalidArgument",
            f"bytes {byte_range.start}..{byte_range.end} reach past the source's {source_size}",
            key=source_key,
            next_step="Plan again on the object as it is now",
        )
    if source_size <= MIN_PART_BYTES:
        raise broken(
            "InvalidRequest",
            f"a range can be copied only from a source over {MIN_PART_BYTES} bytes, "
            f"this one has {source_size}",
            key=source_key,
            next_step="Read the source and PUT it",
        )


def check_part(key: str, number: int, size: int) -> None:
    if not 1 <= number <= MAX_PARTS:
        raise broken(
            "InvalidArgument",
            f"part numbers go from 1 to {MAX_PARTS}, not {number}",
            key=key,
            next_step="Plan larger parts",
        )
    if size > MAX_PART_BYTES:
        raise broken(
            "EntityTooLarge",
            f"a part has at most {MAX_PART_BYTES} bytes, this one has {size}",
            key=key,
            next_step="Plan smaller parts",
        )


def check_part_list(key: str, parts: Sequence[Part]) -> None:
    """Refuse a list of parts that no upload can be completed with."""
    if not parts:
        raise broken(
            "MalformedXML",
            "an upload is completed with at least one part",
            key=key,
            next_step="Abort the upload and PUT an empty object",
        )
    numbers = [part.number for part in parts]
    if any(later <= earlier for earlier, later in itertools.pairwise(numbers)):
        raise broken(
            "InvalidPartOrder",
            "parts must be listed by ascending number",
            key=key,
            next_step="Sort the parts",
        )


def check_completion(key: str, parts: Sequence[Part], staged: Mapping[int, StagedPart]) -> None:
    """Refuse what CompleteMultipartUpload refuses: no parts, wrong order, wrong ETag, too small."""
    check_part_list(key, parts)
    for position, part in enumerate(parts):
        held = staged.get(part.number)
        if held is None or held.etag != part.etag:
            raise broken(
                "InvalidPart",
                f"part {part.number} was never uploaded, or not with ETag {part.etag}",
                key=key,
                next_step="Upload the part again",
            )
        is_last = position == len(parts) - 1
        if held.size < MIN_PART_BYTES and not is_last:
            raise broken(
                "EntityTooSmall",
                f"part {part.number} has {held.size} bytes; all but the last need {MIN_PART_BYTES}",
                key=key,
                next_step="Plan larger parts",
            )


def upload_gone(key: str, upload_id: str) -> StaleUpload:
    """Someone aborted or completed the upload this part is for."""
    return StaleUpload(f"the multipart upload {upload_id} is gone", key=key)


def refusal(condition: Condition, etag: str | None, date_us: int) -> Refused | None:
    """What S3 answers to a write under a condition that does not hold for an object of this ETag; None:
    there is none."""
    match condition:
        case None:
            return None
        case IfAbsent():
            return None if etag is None else Refused("exists", date_us)
        case IfMatch(expected):
            if etag is None:
                return Refused("missing", date_us)
            return None if etag == expected else Refused("exists", date_us)

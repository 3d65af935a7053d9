"""S3's listings: of objects (both versions of the request), of versions, of uploads and of parts.

Promise: a page is cut at the limit, says whether there is more, and the next one goes on exactly behind
it, common prefixes included. Needs the region's lock while it runs.
"""

from __future__ import annotations

import base64
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

from inlay.storage.base import NULL_VERSION, ObjectInfo
from inlay.storage.embedded_s3.request import AwsAnswer, AwsRequest, S3Error
from inlay.storage.embedded_s3.xml import document, iso
from inlay.storage.memory import Bucket, MemoryStore, PendingUpload, Version

OWNER: Final = {"ID": "inlay", "DisplayName": "inlay"}
_PAGE: Final = 1_000
# Sorts after every character of a key, so `prefix + _LAST` skips all keys with that prefix.
_LAST: Final = "\U0010ffff"


def objects(request: AwsRequest, store: MemoryStore, bucket: Bucket) -> AwsAnswer:
    """ListObjects and ListObjectsV2."""
    query = request.query
    second = request.operation == "ListObjectsV2"
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    limit = _limit(request, "max-keys")
    if second:
        token = query.get("continuation-token")
        after = _decoded(token) if token else query.get("start-after", "")
    else:
        after = query.get("marker", "")
    if delimiter and after.endswith(delimiter) and after.startswith(prefix):
        after += _LAST  # a common prefix that was already listed
    entries = list(itertools.islice(_rolled_up(store.list, prefix, delimiter, after), limit + 1))
    page, more = entries[:limit], 0 < limit < len(entries)
    last = page[-1] if page else None
    marker = last.key if isinstance(last, ObjectInfo) else last
    named = _named(request)
    content: dict[str, Any] = {
        "Name": request.bucket,
        "Prefix": named(prefix),
        "Delimiter": named(delimiter) if delimiter else None,
        "MaxKeys": limit,
        "EncodingType": query.get("encoding-type"),
        "IsTruncated": more,
        "Contents": [
            {
                "Key": named(item.key),
                "LastModified": iso(item.modified_us),
                "ETag": f'"{item.etag}"',
                "Size": item.size,
                "StorageClass": _storage_class(bucket.current(item.key)),
                **({"Owner": OWNER} if query.get("fetch-owner") == "true" else {}),
            }
            for item in page
            if isinstance(item, ObjectInfo)
        ],
        "CommonPrefixes": [{"Prefix": named(item)} for item in page if isinstance(item, str)],
    }
    if second:
        content |= {
            "KeyCount": len(page),
            "StartAfter": named(query["start-after"]) if query.get("start-after") else None,
            "ContinuationToken": query.get("continuation-token"),
            "NextContinuationToken": _encoded(marker) if more and marker else None,
        }
    else:
        content |= {
            "Marker": named(query.get("marker", "")),
            "NextMarker": named(marker) if more and marker and delimiter else None,
        }
    return document("ListBucketResult", content)


def versions(request: AwsRequest, bucket: Bucket) -> AwsAnswer:
    """ListObjectVersions."""
    query = request.query
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    limit = _limit(request, "max-keys")
    named = _named(request)
    entries = _versions(
        bucket, prefix, delimiter, query.get("key-marker"), query.get("version-id-marker")
    )
    listed = list(itertools.islice(entries, limit + 1))
    page, more = listed[:limit], 0 < limit < len(listed)
    parts: list[dict[str, Any]] = []
    for version in page:
        if isinstance(version, str):
            parts.append({"CommonPrefixes": {"Prefix": named(version)}})
            continue
        key, held, latest = version
        about: dict[str, Any] = {
            "Key": named(key),
            "VersionId": held.id or NULL_VERSION,
            "IsLatest": latest,
            "LastModified": iso(held.modified_us),
            "Owner": OWNER,
        }
        if held.marker:
            parts.append({"DeleteMarker": about})
            continue
        parts.append(
            {
                "Version": {
                    **about,
                    "ETag": f'"{held.etag}"',
                    "Size": len(held.body),
                    "StorageClass": _storage_class(held),
                }
            }
        )
    head: dict[str, Any] = {
        "Name": request.bucket,
        "Prefix": named(prefix),
        "KeyMarker": named(query.get("key-marker", "")),
        "VersionIdMarker": query.get("version-id-marker", ""),
        "MaxKeys": limit,
        "Delimiter": named(delimiter) if delimiter else None,
        "EncodingType": query.get("encoding-type"),
        "IsTruncated": more,
    }
    if more and page:
        last = page[-1]
        if isinstance(last, str):
            head |= {"NextKeyMarker": named(last)}
        else:
            head |= {
                "NextKeyMarker": named(last[0]),
                "NextVersionIdMarker": last[1].id or NULL_VERSION,
            }
    return document("ListVersionsResult", [head, *parts])


def uploads(request: AwsRequest, store: MemoryStore) -> AwsAnswer:
    """ListMultipartUploads."""
    query = request.query
    prefix = query.get("prefix", "")
    key, upload_id = query.get("key-marker", ""), query.get("upload-id-marker", "")
    limit = _limit(request, "max-uploads")
    named = _named(request)
    pending = list(store.list_uploads(prefix))
    if key:
        at = next((n for n, upload in enumerate(pending) if upload.upload_id == upload_id), None)
        pending = (
            [upload for upload in pending if upload.key > key] if at is None else pending[at + 1 :]
        )
    page = pending[:limit]
    more = 0 < limit < len(pending)
    return document(
        "ListMultipartUploadsResult",
        {
            "Bucket": request.bucket,
            "KeyMarker": named(key),
            "UploadIdMarker": upload_id,
            "Prefix": named(prefix),
            "MaxUploads": limit,
            "EncodingType": query.get("encoding-type"),
            "IsTruncated": more,
            "NextKeyMarker": named(page[-1].key) if more else None,
            "NextUploadIdMarker": page[-1].upload_id if more else None,
            "Upload": [
                {
                    "Key": named(upload.key),
                    "UploadId": upload.upload_id,
                    "Initiated": iso(upload.started_us),
                    "StorageClass": "STANDARD",
                }
                for upload in page
            ],
        },
    )


def parts(request: AwsRequest, upload: PendingUpload) -> AwsAnswer:
    """ListParts."""
    after = int(request.query.get("part-number-marker") or 0)
    limit = _limit(request, "max-parts")
    numbered = [item for item in sorted(upload.parts.items()) if item[0] > after]
    page = numbered[:limit]
    return document(
        "ListPartsResult",
        {
            "Bucket": request.bucket,
            "Key": request.key,
            "UploadId": request.query["uploadId"],
            "PartNumberMarker": after,
            "NextPartNumberMarker": page[-1][0] if page else 0,
            "MaxParts": limit,
            "IsTruncated": 0 < limit < len(numbered),
            "StorageClass": "STANDARD",
            "Part": [
                {
                    "PartNumber": number,
                    "LastModified": iso(upload.started_us),
                    "ETag": f'"{part.etag}"',
                    "Size": len(body),
                }
                for number, (part, body) in page
            ],
        },
    )


def _storage_class(held: Version | None) -> str:
    return "STANDARD" if held is None else held.headers.get("StorageClass", "STANDARD")


def _limit(request: AwsRequest, name: str) -> int:
    try:
        return min(int(request.query.get(name) or _PAGE), _PAGE)
    except ValueError:
        raise S3Error(400, "InvalidArgument", f"{name} is not a number.") from None


def _named(request: AwsRequest) -> Callable[[str], str]:
    """Keys as the listing shows them: `encoding-type=url` is for keys that XML cannot hold."""
    if request.query.get("encoding-type") == "url":
        return functools.partial(quote, safe="/")
    return str


def _encoded(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def _decoded(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token).decode()
    except ValueError:
        raise S3Error(400, "InvalidArgument", "The continuation token is not ours.") from None


def _rolled_up(
    listing: Callable[..., Iterator[ObjectInfo]], prefix: str, delimiter: str, after: str
) -> Iterator[ObjectInfo | str]:
    """Objects, and for those whose key has the delimiter behind the prefix their common prefix, once."""
    while True:  # ends with the listing: `after` grows
        for info in listing(prefix, start_after=after):
            head, rolled_up, _ = info.key[len(prefix) :].partition(delimiter or "\0\0")
            if delimiter and rolled_up:
                common = f"{prefix}{head}{delimiter}"
                yield common
                after = common + _LAST
                break
            yield info
        else:
            return


def _versions(
    bucket: Bucket, prefix: str, delimiter: str, key_marker: str | None, id_marker: str | None
) -> Iterator[tuple[str, Version, bool] | str]:
    """(key, version, whether it is the latest), newest first within a key, behind the markers; and common
    prefixes."""
    last = None
    if delimiter and key_marker and key_marker.endswith(delimiter):
        last = key_marker
    for key in bucket.keys_from(prefix, key_marker):
        head, rolled_up, _ = key[len(prefix) :].partition(delimiter or "\0\0")
        if delimiter and rolled_up:
            common = f"{prefix}{head}{delimiter}"
            if common != last:
                yield common
            last = common
            continue
        held: Sequence[Version] = bucket.versions[key][::-1]
        first = 0
        if key == key_marker:
            at = (n for n, version in enumerate(held) if (version.id or NULL_VERSION) == id_marker)
            first = next(at, len(held)) + 1
        for n in range(first, len(held)):
            yield key, held[n], n == 0

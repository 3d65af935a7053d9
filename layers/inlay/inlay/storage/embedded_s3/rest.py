"""S3 as HTTP: its REST protocol over the memory store.

Promise: what this answers is what the memory store says, so there is one book of S3's rules
(`storage/memory.py`, `storage/rules.py`) for a test that runs in one process and for every client that
speaks S3. Each request is one step, under the region's lock. What is not here is refused by name
(`NotImplemented`), not passed over. Signatures are not checked: there is nothing to protect.

Here: objects with metadata, headers, tags, ranges, conditions (also on copies and completions) and
versions; multipart uploads with copied parts; listings (`s3_listings`); batched deletes; a bucket's
versioning and notifications to SQS queues.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode

from inlay.errors import InvalidRequest, StaleUpload
from inlay.storage import rules
from inlay.storage.base import (
    IF_ABSENT,
    MAX_DELETE_KEYS,
    NULL_VERSION,
    ByteRange,
    Condition,
    IfMatch,
    Location,
    Missing,
    Part,
    Refused,
    Written,
)
from inlay.storage.embedded_s3 import listings
from inlay.storage.embedded_s3.events import (
    Notify,
    Settings,
    event,
    event_of,
    matching,
    parse_rules,
    test_event,
)
from inlay.storage.embedded_s3.request import AwsAnswer, AwsRequest, S3Error
from inlay.storage.embedded_s3.xml import child, children, document, iso, parse, text
from inlay.storage.memory import Bucket, MemoryRegion, MemoryStore, PendingUpload, Version

if TYPE_CHECKING:
    from inlay.storage.embedded_s3.data_dir import DataDir

_METADATA: Final = "x-amz-meta-"
_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")
_COPY_RANGE: Final = re.compile(r"bytes=(\d+)-(\d+)")
_BUCKET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class EmbeddedS3:
    """`notify` sends a message to a queue by its ARN; without it notifications are refused."""

    event_of = staticmethod(event_of)

    def __init__(self, notify: Notify | None = None) -> None:
        self.region: Final = MemoryRegion()
        self.buckets: Final[dict[str, Settings]] = {}
        # Called when buckets or their settings have: for who keeps them.
        self.changed: Callable[[], None] = lambda: None
        self._notify: Final = notify
        self._events: list[tuple[str, Mapping[str, Any]]] = []
        self._operations: Final[Mapping[str, Callable[[AwsRequest], AwsAnswer]]] = {
            "ListBuckets": self._list_buckets,
            "PutBucket": self._create_bucket,
            "HeadBucket": self._head_bucket,
            "DeleteBucket": self._delete_bucket,
            "GetBucket": self._list_objects,
            "ListObjectsV2": self._list_objects,
            "ListObjectVersions": lambda request: listings.versions(
                request, self._bucket(request.bucket)
            ),
            "ListMultipartUploads": lambda request: listings.uploads(request, self._store(request)),
            "GetBucket:location": self._get_location,
            "GetBucket:versioning": self._get_versioning,
            "PutBucket:versioning": self._put_versioning,
            "GetBucket:notification": self._get_notification,
            "PutBucket:notification": self._put_notification,
            "DeleteObjects": self._delete_objects,
            "GetObject": self._get,
            "HeadObject": self._get,
            "PutObject": self._put,
            "CopyObject": self._copy,
            "DeleteObject": self._delete,
            "GetObject:tagging": self._get_tagging,
            "PutObject:tagging": self._put_tagging,
            "DeleteObject:tagging": self._put_tagging,
            "CreateMultipartUpload": self._create_upload,
            "UploadPart": self._upload_part,
            "UploadPartCopy": self._copy_part,
            "ListParts": lambda request: listings.parts(request, self._upload(request)),
            "CompleteMultipartUpload": self._complete,
            "AbortMultipartUpload": self._abort,
        }

    def __call__(self, request: AwsRequest) -> AwsAnswer:
        try:
            operation = self._operations.get(request.operation)
            if operation is None:
                words = f"The embedded S3 has no {request.operation}."
                raise S3Error(501, "NotImplemented", words)
            _ = request.body  # checked before anything is locked
            with self.region.lock:
                answer = operation(request)
                events, self._events = self._events, []
            for arn, message in events:
                assert self._notify is not None
                self._notify(arn, message)
            return answer
        except S3Error as error:
            return error.answer
        except StaleUpload:
            words = "The specified upload does not exist. It may have been aborted or completed."
            return S3Error(404, "NoSuchUpload", words).answer
        except InvalidRequest as error:
            return S3Error(400, error.s3_code or "InvalidRequest", error.message).answer

    # -- buckets ----------------------------------------------------------------------------------

    def keep_in(self, path: Path) -> DataDir:
        """Keeps what it holds in a directory, from before it answers its first request; close that to let
        another have it."""
        from inlay.storage.embedded_s3.data_dir import DataDir

        return DataDir(path, self)

    def _settings(self, bucket: str) -> Settings:
        settings = self.buckets.get(bucket)
        if settings is None:
            raise S3Error(404, "NoSuchBucket", "The specified bucket does not exist")
        return settings

    def _store(self, request: AwsRequest) -> MemoryStore:
        self._settings(request.bucket)
        return MemoryStore(request.bucket, region=self.region)

    def _bucket(self, name: str) -> Bucket:
        self._settings(name)
        return self.region.bucket(name)

    def _list_buckets(self, request: AwsRequest) -> AwsAnswer:
        listed = [
            {"Name": name, "CreationDate": iso(bucket.created_us)}
            for name, bucket in sorted(self.buckets.items())
        ]
        return document(
            "ListAllMyBucketsResult", {"Owner": listings.OWNER, "Buckets": {"Bucket": listed}}
        )

    def _create_bucket(self, request: AwsRequest) -> AwsAnswer:
        if not _BUCKET_NAME.fullmatch(request.bucket):
            raise S3Error(400, "InvalidBucketName", "The specified bucket is not valid.")
        region = text(parse(request.body), "LocationConstraint") if request.body else None
        held = self.buckets.get(request.bucket)
        if held is None:
            now = self.region.now_us()
            self.buckets[request.bucket] = Settings(now, region or "us-east-1")
            self.changed()
        elif region is not None:  # in us-east-1 S3 accepts it again
            words = "Your previous request to create the named bucket succeeded and you own it."
            raise S3Error(409, "BucketAlreadyOwnedByYou", words)
        return AwsAnswer(200, {"Location": f"/{request.bucket}"})

    def _head_bucket(self, request: AwsRequest) -> AwsAnswer:
        return AwsAnswer(200, {"x-amz-bucket-region": self._settings(request.bucket).region})

    def _delete_bucket(self, request: AwsRequest) -> AwsAnswer:
        if self._bucket(request.bucket).keys:
            words = "The bucket you tried to delete is not empty"
            raise S3Error(409, "BucketNotEmpty", words)
        del self.buckets[request.bucket]
        self.region.forget(request.bucket)
        self.changed()
        return AwsAnswer(204)

    def _get_location(self, request: AwsRequest) -> AwsAnswer:
        region = self._settings(request.bucket).region
        return document("LocationConstraint", "" if region == "us-east-1" else region)

    def _get_versioning(self, request: AwsRequest) -> AwsAnswer:
        return document(
            "VersioningConfiguration", {"Status": self._bucket(request.bucket).versioning or None}
        )

    def _put_versioning(self, request: AwsRequest) -> AwsAnswer:
        status = text(parse(request.body), "Status")
        if status not in ("Enabled", "Suspended"):
            raise S3Error(400, "MalformedXML", "The versioning status is Enabled or Suspended.")
        self._bucket(request.bucket).versioning = status
        self.changed()
        return AwsAnswer(200)

    def _get_notification(self, request: AwsRequest) -> AwsAnswer:
        as_set = self._settings(request.bucket).notifications_as_set
        return (
            AwsAnswer(200, {"Content-Type": "application/xml"}, as_set)
            if as_set
            else document("NotificationConfiguration", {})
        )

    def _put_notification(self, request: AwsRequest) -> AwsAnswer:
        settings = self._settings(request.bucket)
        rules = parse_rules(parse(request.body))
        if rules and self._notify is None:
            raise S3Error(501, "NotImplemented", "This server has no queues to notify.")
        settings.notifications, settings.notifications_as_set = rules, request.body
        for rule in rules:
            self._events.append((rule.queue_arn, test_event(request.bucket)))
        self.changed()
        return AwsAnswer(200)

    def _list_objects(self, request: AwsRequest) -> AwsAnswer:
        store = self._store(request)
        return listings.objects(request, store, self._bucket(request.bucket))

    # -- reading ------------------------------------------------------------------------------

    def _find(self, request: AwsRequest) -> Version:
        """The object, or the version, that a request names."""
        bucket, version_id = self._bucket(request.bucket), request.query.get("versionId")
        return self._held(bucket, request.key, version_id)

    def _held(self, bucket: Bucket, key: str, version_id: str | None) -> Version:
        version = bucket.find(key, version_id)
        if version is not None:
            return version
        marker = next(
            (
                held
                for held in reversed(bucket.versions.get(key, ()))
                if held.marker and version_id in (None, held.id or NULL_VERSION)
            ),
            None,
        )
        shown = {"x_amz_delete_marker": "true"} if marker is not None else {}
        if version_id is None:
            raise S3Error(404, "NoSuchKey", "The specified key does not exist.", **shown)
        if marker is not None:
            words = "The specified method is not allowed against this resource."
            raise S3Error(405, "MethodNotAllowed", words, **shown)
        raise S3Error(404, "NoSuchVersion", "The specified version does not exist.")

    def _get(self, request: AwsRequest) -> AwsAnswer:
        held = self._find(request)
        if "partNumber" in request.query:
            raise S3Error(501, "NotImplemented", "The embedded S3 does not read by part number.")
        headers = {
            **_described(held),
            **_version_id(self._bucket(request.bucket), held.id),
            "Accept-Ranges": "bytes",
        }
        _check_read(request, held)
        if _is_same(request, held, ""):
            return AwsAnswer(304, {"ETag": headers["ETag"]})
        if request.method == "GET" and held.headers.get("StorageClass") in rules.ARCHIVES:
            words = "The operation is not valid for the object's storage class"
            raise S3Error(403, "InvalidObjectState", words)
        for name, value in request.query.items():
            if name.startswith("response-"):
                headers[name.removeprefix("response-")] = value
        status, start, end = 200, 0, len(held.body)
        asked = _RANGE.fullmatch(request.header("range") or "")
        if asked is not None and (asked[1] or asked[2]):
            start, end = _asked_range(asked, len(held.body))
            status = 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(held.body)}"
        headers["Content-Length"] = str(end - start)
        if request.method == "HEAD":
            return AwsAnswer(status, headers)
        whole = status == 200
        return AwsAnswer(status, headers, held.body if whole else held.body[start:end])

    def _get_tagging(self, request: AwsRequest) -> AwsAnswer:
        held = self._find(request)
        tags = parse_qsl(held.headers.get("Tagging", ""), keep_blank_values=True)
        return document(
            "Tagging", {"TagSet": {"Tag": [{"Key": name, "Value": value} for name, value in tags]}}
        )

    def _put_tagging(self, request: AwsRequest) -> AwsAnswer:
        held = self._find(request)
        tags = ""
        if request.method == "PUT":
            tag_set = child(parse(request.body), "TagSet")
            tags = urlencode(
                [
                    (text(tag, "Key") or "", text(tag, "Value") or "")
                    for tag in (() if tag_set is None else children(tag_set, "Tag"))
                ]
            )
        self._bucket(request.bucket).tag(request.key, held, tags)
        return AwsAnswer(200 if request.method == "PUT" else 204)

    # -- writing ------------------------------------------------------------------------------

    def _put(self, request: AwsRequest) -> AwsAnswer:
        metadata, headers = _sent_with(request)
        written = self._store(request).put(
            request.key,
            request.body,
            condition=_condition(request),
            metadata=metadata,
            headers=headers,
        )
        if isinstance(written, Refused):
            raise _declined(written)
        self._created(request, "Put", written)
        return AwsAnswer(
            200,
            {
                "ETag": f'"{written.etag}"',
                **_version_id(self._bucket(request.bucket), written.version_id),
                **_encryption(headers),
            },
        )

    def _source(self, request: AwsRequest) -> tuple[Location, Version]:
        """What a copy is of, if its conditions on it hold."""
        assert request.copy_source is not None
        bucket, key, version_id = request.copy_source
        held = self._held(self._bucket(bucket), key, version_id)
        _check_read(request, held, "x-amz-copy-source-")
        if held.headers.get("StorageClass") in rules.ARCHIVES:
            words = "The operation is not valid for the object's storage class"
            raise S3Error(403, "InvalidObjectState", words)
        return Location(MemoryStore.scheme, bucket, key, version_id), held

    def _copy(self, request: AwsRequest) -> AwsAnswer:
        store = self._store(request)
        source, held = self._source(request)
        metadata, headers = _sent_with(request)
        replaces = request.header("x-amz-metadata-directive") == "REPLACE"
        if not replaces:
            metadata = dict(held.metadata)
            own = {name: value for name, value in headers.items() if name in rules.NOT_COPIED}
            headers = {k: v for k, v in held.headers.items() if k not in rules.NOT_COPIED} | own
        if request.header("x-amz-tagging-directive") != "REPLACE":
            headers.pop("Tagging", None)
            headers |= {k: v for k, v in held.headers.items() if k == "Tagging"}
        elif tags := request.header("x-amz-tagging"):
            headers["Tagging"] = tags
        else:
            headers.pop("Tagging", None)
        itself = (source.bucket, source.key, source.version_id) == (
            request.bucket,
            request.key,
            None,
        )
        changes = replaces or set(headers.items()) != set(held.headers.items())
        written = store.copy(
            source,
            request.key,
            condition=_condition(request),
            described=None if itself and not changes else (metadata, headers),
        )
        if isinstance(written, Refused):
            raise _declined(written)
        assert isinstance(written, Written)
        self._created(request, "Copy", written)
        return document(
            "CopyObjectResult",
            {"ETag": f'"{written.etag}"', "LastModified": iso(self.region.modified_us())},
            {
                **_version_id(self._bucket(request.bucket), written.version_id),
                **{
                    f"x-amz-copy-source-{name.removeprefix('x-amz-')}": value
                    for name, value in _version_id(self._bucket(source.bucket), held.id).items()
                },
            },
        )

    def _delete(self, request: AwsRequest) -> AwsAnswer:
        bucket, version_id = self._bucket(request.bucket), request.query.get("versionId")
        if_match = request.header("if-match")
        if if_match is not None:
            held = bucket.find(request.key, version_id)
            if held is None:
                raise S3Error(404, "NoSuchKey", "The specified key does not exist.")
            if if_match != "*" and not _same(if_match, held.etag):
                raise _precondition("If-Match")
        removed = self._remove(request.bucket, request.key, version_id)
        headers = {}
        if removed is not None and bucket.versioning:
            headers["x-amz-version-id"] = removed.id or NULL_VERSION
            if removed.marker:
                headers["x-amz-delete-marker"] = "true"
        return AwsAnswer(204, headers)

    def _remove(self, bucket: str, key: str, version_id: str | None) -> Version | None:
        """What was removed by its id, or the marker that hides the rest."""
        removed = MemoryStore(bucket, region=self.region).remove(key, version_id)
        if removed is not None:
            made = version_id is None and removed.marker
            self._raise_event(
                bucket,
                f"ObjectRemoved:{'DeleteMarkerCreated' if made else 'Delete'}",
                key,
                0,
                "",
                removed.id,
            )
        return removed

    def _delete_objects(self, request: AwsRequest) -> AwsAnswer:
        bucket = self._bucket(request.bucket)
        tree = parse(request.body)
        objects = list(children(tree, "Object"))
        if not 1 <= len(objects) <= MAX_DELETE_KEYS:
            words = "DeleteObjects takes 1 to 1,000 keys."
            raise S3Error(400, "MalformedXML", words)
        quiet = text(tree, "Quiet") == "true"
        deleted: list[dict[str, Any]] = []
        refused: list[dict[str, Any]] = []
        for item in objects:
            key, version_id = text(item, "Key") or "", text(item, "VersionId")
            if (etag := text(item, "ETag")) and self._differs(request.bucket, key, etag):
                words = "At least one of the pre-conditions you specified did not hold"
                refused.append({"Key": key, "Code": "PreconditionFailed", "Message": words})
                continue
            removed = self._remove(request.bucket, key, version_id)
            if quiet:
                continue
            made = removed is not None and removed.marker and bool(bucket.versioning)
            deleted.append(
                {
                    "Key": key,
                    "VersionId": version_id,
                    "DeleteMarker": True if made else None,
                    "DeleteMarkerVersionId": removed.id or NULL_VERSION
                    if made and removed is not None
                    else None,
                }
            )
        return document("DeleteResult", {"Deleted": deleted, "Error": refused})

    def _differs(self, bucket: str, key: str, etag: str) -> bool:
        """Whether the object is there, with another ETag."""
        head = MemoryStore(bucket, region=self.region).head(key)
        return not isinstance(head, Missing) and head.info.etag != etag.strip('"')

    # -- multipart ----------------------------------------------------------------------------

    def _create_upload(self, request: AwsRequest) -> AwsAnswer:
        metadata, headers = _sent_with(request)
        upload_id = self._store(request).create_multipart(
            request.key, metadata=metadata, headers=headers
        )
        content = {"Bucket": request.bucket, "Key": request.key, "UploadId": upload_id}
        return document("InitiateMultipartUploadResult", content, _encryption(headers))

    def _upload_part(self, request: AwsRequest) -> AwsAnswer:
        part = self._store(request).upload_part(
            request.key, request.query["uploadId"], _part_number(request), request.body
        )
        return AwsAnswer(200, {"ETag": f'"{part.etag}"'})

    def _copy_part(self, request: AwsRequest) -> AwsAnswer:
        store, upload_id, number = (
            self._store(request),
            request.query["uploadId"],
            _part_number(request),
        )
        self._upload(request)
        source, held = self._source(request)
        said = request.header("x-amz-copy-source-range")
        if said is None:
            rules.check_copy_size(source.key, len(held.body))
            part: Part | Refused | Missing = store.upload_part(
                request.key, upload_id, number, held.body
            )
        else:
            asked = _COPY_RANGE.fullmatch(said)
            if asked is None or int(asked[1]) > int(asked[2]):
                words = "The x-amz-copy-source-range value is malformed."
                raise S3Error(400, "InvalidArgument", words)
            part = store.upload_part_copy(
                request.key,
                upload_id,
                number,
                source=source,
                byte_range=ByteRange(int(asked[1]), int(asked[2]) + 1),
                if_source_match=held.etag,
            )
        assert isinstance(part, Part)
        return document(
            "CopyPartResult",
            {"ETag": f'"{part.etag}"', "LastModified": iso(self.region.now_us())},
        )

    def _upload(self, request: AwsRequest) -> PendingUpload:
        upload_id = request.query["uploadId"]
        upload = self._bucket(request.bucket).uploads.get(upload_id)
        if upload is None or upload.key != request.key:
            raise rules.upload_gone(request.key, upload_id)
        return upload

    def _complete(self, request: AwsRequest) -> AwsAnswer:
        store = self._store(request)
        parts = [
            Part(int(text(part, "PartNumber") or 0), (text(part, "ETag") or "").strip('"'))
            for part in children(parse(request.body), "Part")
        ]
        done = store.complete_multipart(
            request.key, request.query["uploadId"], parts, condition=_condition(request)
        )
        match done:
            case Missing():
                raise rules.upload_gone(request.key, request.query["uploadId"])
            case Refused():
                raise _declined(done)
            case Written():
                self._created(request, "CompleteMultipartUpload", done)
        return document(
            "CompleteMultipartUploadResult",
            {
                "Location": f"/{request.bucket}/{request.key}",
                "Bucket": request.bucket,
                "Key": request.key,
                "ETag": f'"{done.etag}"',
            },
            _version_id(self._bucket(request.bucket), done.version_id),
        )

    def _abort(self, request: AwsRequest) -> AwsAnswer:
        self._upload(request)
        self._store(request).abort_multipart(request.key, request.query["uploadId"])
        return AwsAnswer(204)

    # -- notifications ------------------------------------------------------------------------

    def _created(self, request: AwsRequest, how: str, written: Written) -> None:
        held = self._bucket(request.bucket).current(request.key)
        size = 0 if held is None else len(held.body)
        name = f"ObjectCreated:{how}"
        self._raise_event(request.bucket, name, request.key, size, written.etag, written.version_id)

    def _raise_event(
        self, bucket: str, name: str, key: str, size: int, etag: str, version_id: str | None
    ) -> None:
        for rule in matching(self._settings(bucket).notifications, name, key):
            message = event(
                bucket,
                key,
                size=size,
                etag=etag,
                at_us=time.time_ns() // 1_000,
                name=name,
                version_id=version_id,
            )
            self._events.append((rule.queue_arn, message))


# -- what a request says --------------------------------------------------------------------------


def _part_number(request: AwsRequest) -> int:
    try:
        return int(request.query.get("partNumber", ""))
    except ValueError:
        raise S3Error(400, "InvalidArgument", "A part has a number.") from None


def _condition(request: AwsRequest) -> Condition:
    if_match, if_none_match = request.header("if-match"), request.header("if-none-match")
    if if_none_match is not None:
        if if_none_match != "*" or if_match is not None:
            words = "A write takes If-None-Match: *, or If-Match with an ETag."
            raise S3Error(501, "NotImplemented", words)
        return IF_ABSENT
    return None if if_match is None else IfMatch(if_match.strip('"'))


def _sent_with(request: AwsRequest) -> tuple[dict[str, str], dict[str, str]]:
    """(metadata, headers) to be kept with an object."""
    metadata = {
        name.removeprefix(_METADATA): value
        for name, value in request.headers.items()
        if name.startswith(_METADATA)
    }
    headers = {
        name: value
        for name, header in rules.HEADERS.items()
        if (value := request.header(header)) is not None
    }
    if "ContentEncoding" in headers:
        said = [coding.strip() for coding in headers["ContentEncoding"].split(",")]
        kept = ",".join(coding for coding in said if coding and coding != "aws-chunked")
        headers = {k: v for k, v in headers.items() if k != "ContentEncoding"}
        headers |= {"ContentEncoding": kept} if kept else {}
    return metadata, headers


def _asked_range(asked: re.Match[str], size: int) -> tuple[int, int]:
    if asked[1]:
        start, end = int(asked[1]), min(int(asked[2]) + 1, size) if asked[2] else size
    else:
        start, end = max(0, size - int(asked[2])), size
    if start >= end:
        words = "The requested range is not satisfiable"
        raise S3Error(416, "InvalidRange", words, Content_Range=f"bytes */{size}")
    return start, end


# -- conditions -----------------------------------------------------------------------------------


def _same(said: str, etag: str) -> bool:
    return etag in (tag.strip().removeprefix("W/").strip('"') for tag in said.split(","))


def _precondition(condition: str) -> S3Error:
    words = f"At least one of the pre-conditions you specified did not hold: {condition}"
    return S3Error(412, "PreconditionFailed", words)


def _declined(refused: Refused) -> S3Error:
    if refused.reason == "missing":
        return S3Error(404, "NoSuchKey", "The specified key does not exist.")
    return _precondition("If-Match or If-None-Match")


def _check_read(request: AwsRequest, held: Version, prefix: str = "") -> None:
    """RFC 9110: If-Match before If-Unmodified-Since. Raises 412."""
    if_match, since = (
        request.header(f"{prefix}if-match"),
        request.header(f"{prefix}if-unmodified-since"),
    )
    if if_match is not None:
        if if_match != "*" and not _same(if_match, held.etag):
            raise _precondition(f"{prefix}If-Match")
    elif since is not None and held.modified_us // 1_000_000 > _seconds(since):
        raise _precondition(f"{prefix}If-Unmodified-Since")
    if prefix and _is_same(request, held, prefix):
        raise _precondition(f"{prefix}If-None-Match")


def _is_same(request: AwsRequest, held: Version, prefix: str) -> bool:
    none_match = request.header(f"{prefix}if-none-match")
    since = request.header(f"{prefix}if-modified-since")
    if none_match is not None:
        return none_match == "*" or _same(none_match, held.etag)
    return since is not None and held.modified_us // 1_000_000 <= _seconds(since)


def _seconds(date: str) -> float:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except ValueError:
        raise S3Error(400, "InvalidArgument", f"{date!r} is not a date.") from None


# -- what an answer says --------------------------------------------------------------------------


def _described(held: Version) -> dict[str, str]:
    headers = {
        "ETag": f'"{held.etag}"',
        "Last-Modified": email.utils.formatdate(held.modified_us // 1_000_000, usegmt=True),
        **{_METADATA + name: value for name, value in held.metadata.items()},
        **{rules.HEADERS[name]: value for name, value in held.headers.items() if name != "Tagging"},
    }
    if tags := parse_qsl(held.headers.get("Tagging", ""), keep_blank_values=True):
        headers["x-amz-tagging-count"] = str(len(tags))
    if headers.get("x-amz-storage-class") == "STANDARD":
        del headers["x-amz-storage-class"]
    return headers


def _version_id(bucket: Bucket, version_id: str | None) -> dict[str, str]:
    """The header of a bucket with versions."""
    return {"x-amz-version-id": version_id or NULL_VERSION} if bucket.versioning else {}


def _encryption(headers: Mapping[str, str]) -> dict[str, str]:
    names = ("ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled")
    return {rules.HEADERS[name]: headers[name] for name in names if name in headers}

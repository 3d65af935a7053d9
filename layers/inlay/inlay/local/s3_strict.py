"""What S3 enforces and moto does not: checked before moto sees a request.

Promise: under the one lock of `aws_app`, these checks and moto's work are a single step, so a
condition holds when the write happens. Covered: conditions on CopyObject, UploadPartCopy and
CompleteMultipartUpload, the order of parts, bounds of a copied range, sources too small to copy a
range of, uploads that are gone, the 1,000 keys of a DeleteObjects. Ranged reads, unfinished uploads
and the dates of multipart objects, which moto answers slowly or wrongly, are answered here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from inlay.local import moto_s3
from inlay.local.aws_request import Answer, Request, s3_error
from inlay.storage.base import MAX_DELETE_KEYS, MIN_PART_BYTES

_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")
_COPY_RANGE: Final = re.compile(r"bytes=(\d+)-(\d+)")
# What makes a GET or HEAD more than reading bytes; moto answers those.
_LEFT_TO_MOTO: Final = ("if-none-match", "if-modified-since", "if-unmodified-since")
_MAX_UPLOADS: Final = 1_000

Then = Callable[[Request], Answer]


def answer(request: Request, moto: Then) -> Answer:
    """Answer an S3 request; call while holding the lock."""
    refused = _refusal(request)
    if refused is not None:
        return refused
    match request.operation:
        case "GetObject" | "HeadObject":
            return _read(request) or moto(request)
        case "ListMultipartUploads" if moto_s3.has_bucket(request.bucket):
            return _list_uploads(request)
        case "CreateMultipartUpload":
            created = moto(request)
            if moto_s3.has_bucket(request.bucket):
                moto_s3.note_start(request.bucket)
            return created
        case "CompleteMultipartUpload":
            return _complete(request, moto)
    return moto(request)


# -- checks ---------------------------------------------------------------------------------------


def _refusal(request: Request) -> Answer | None:
    if request.bucket and not moto_s3.has_bucket(request.bucket):
        return None  # moto says NoSuchBucket, or creates it
    match request.operation:
        case "CopyObject":
            return _source_refusal(request) or _target_refusal(request)
        case "UploadPart" | "ListParts" | "AbortMultipartUpload":
            return _upload_refusal(request)
        case "UploadPartCopy":
            return (
                _upload_refusal(request) or _source_refusal(request) or _copy_range_refusal(request)
            )
        case "CompleteMultipartUpload":
            return (
                _upload_refusal(request) or _target_refusal(request) or _part_order_refusal(request)
            )
        case "DeleteObjects" if request.body.count(b"<Key>") > MAX_DELETE_KEYS:
            return s3_error(400, "MalformedXML", "DeleteObjects takes at most 1,000 keys.")
    return None


def _target_refusal(request: Request) -> Answer | None:
    held = moto_s3.find(request.bucket, request.key)
    if_match = request.header("if-match")
    if if_match is not None:
        if held is None:
            return _no_such_key()
        if not _same(if_match, held.etag):
            return _precondition_failed("If-Match")
    if request.header("if-none-match") == "*" and held is not None:
        return _precondition_failed("If-None-Match")
    return None


def _source_refusal(request: Request) -> Answer | None:
    held = moto_s3.find(*request.copy_source) if request.copy_source else None
    if held is None:
        return _no_such_key()
    if_match = request.header("x-amz-copy-source-if-match")
    if if_match is not None and not _same(if_match, held.etag):
        return _precondition_failed("x-amz-copy-source-If-Match")
    return None


def _copy_range_refusal(request: Request) -> Answer | None:
    said = request.header("x-amz-copy-source-range")
    held = moto_s3.find(*request.copy_source) if request.copy_source else None
    if said is None or held is None:
        return None
    found = _COPY_RANGE.fullmatch(said)
    if found is None or int(found[1]) > int(found[2]):
        return s3_error(400, "InvalidArgument", "The x-amz-copy-source-range value is malformed.")
    if int(found[2]) >= held.size:
        words = f"Range specified is not valid for source object of size: {held.size}"
        return s3_error(400, "InvalidArgument", words)
    if held.size <= MIN_PART_BYTES:
        words = "The specified copy source is smaller than the minimum for a ranged copy."
        return s3_error(400, "InvalidRequest", words)
    return None


def _upload_refusal(request: Request) -> Answer | None:
    found = moto_s3.find_upload(request.bucket, request.query.get("uploadId", ""))
    if found is None or found.key != request.key:
        words = "The specified upload does not exist. It may have been aborted or completed."
        return s3_error(404, "NoSuchUpload", words)
    return None


def _part_order_refusal(request: Request) -> Answer | None:
    try:
        tree = ElementTree.fromstring(request.body)
    except ElementTree.ParseError:
        return s3_error(400, "MalformedXML", "The XML you provided was not well-formed.")
    numbers = [
        int(each.text or 0) for each in tree.iter() if each.tag.rpartition("}")[2] == "PartNumber"
    ]
    if not numbers:
        return s3_error(400, "MalformedXML", "You must specify at least one part.")
    if numbers != sorted(set(numbers)):
        return s3_error(400, "InvalidPartOrder", "The list of parts was not in ascending order.")
    return None


def _same(said: str, etag: str) -> bool:
    return said.strip('"') == etag.strip('"')


def _no_such_key() -> Answer:
    return s3_error(404, "NoSuchKey", "The specified key does not exist.")


def _precondition_failed(condition: str) -> Answer:
    words = f"At least one of the pre-conditions you specified did not hold: {condition}"
    return s3_error(412, "PreconditionFailed", words)


# -- answers --------------------------------------------------------------------------------------


def _read(request: Request) -> Answer | None:
    """The object or a range of it; None leaves the request to moto."""
    held = moto_s3.find(request.bucket, request.key, request.query.get("versionId"))
    plain = not (request.query.keys() - {"versionId", "x-id"})
    if held is None or not plain or any(request.header(name) for name in _LEFT_TO_MOTO):
        return None
    if held.is_archived and request.method == "GET":
        return None
    if_match = request.header("if-match")
    if if_match is not None and not _same(if_match, held.etag):
        return _precondition_failed("If-Match")
    headers = {**held.headers, "accept-ranges": "bytes"}
    asked = _RANGE.fullmatch(request.header("range") or "")
    status, start, end = 200, 0, held.size
    if asked is not None and (asked[1] or asked[2]):
        status = 206
        if asked[1]:
            start = int(asked[1])
            end = min(int(asked[2]) + 1, held.size) if asked[2] else held.size
        else:
            start = max(0, held.size - int(asked[2]))
        if start >= end:
            words = "The requested range is not satisfiable"
            unsatisfied = {"content-range": f"bytes */{held.size}"}
            return s3_error(416, "InvalidRange", words, **unsatisfied)
        headers["content-range"] = f"bytes {start}-{end - 1}/{held.size}"
    headers["content-length"] = str(end - start)
    return Answer(status, headers, held.read(start, end) if request.method == "GET" else b"")


def _complete(request: Request, moto: Then) -> Answer:
    upload = moto_s3.find_upload(request.bucket, request.query.get("uploadId", ""))
    completed = moto(request)
    if upload is None or completed.status != 200:
        return completed
    moto_s3.date_back(request.bucket, request.key, upload.started)
    if moto_s3.is_versioned(request.bucket):
        return completed
    headers = {k: v for k, v in completed.headers.items() if k.lower() != "x-amz-version-id"}
    return Answer(completed.status, headers, completed.body)


def _list_uploads(request: Request) -> Answer:
    prefix = request.query.get("prefix", "")
    marker = request.query.get("key-marker", ""), request.query.get("upload-id-marker", "")
    limit = min(int(request.query.get("max-uploads") or _MAX_UPLOADS), _MAX_UPLOADS)
    found = sorted(
        (each for each in moto_s3.uploads(request.bucket) if each.key.startswith(prefix)),
        key=lambda each: (each.key, each.started, each.upload_id),
    )
    if any(marker):
        behind = [each.key > marker[0] or (each.key, each.upload_id) == marker for each in found]
        first = behind.index(True) if True in behind else len(found)
        found = found[first:]
        if found and (found[0].key, found[0].upload_id) == marker:
            found = found[1:]
    page = found[:limit]
    truncated = len(found) > len(page)
    uploads = "".join(
        f"<Upload><Key>{escape(each.key)}</Key><UploadId>{each.upload_id}</UploadId>"
        f"<Initiated>{each.started.strftime('%Y-%m-%dT%H:%M:%S.000Z')}</Initiated>"
        "<StorageClass>STANDARD</StorageClass></Upload>"
        for each in page
    )
    following = (
        f"<NextKeyMarker>{escape(page[-1].key)}</NextKeyMarker>"
        f"<NextUploadIdMarker>{page[-1].upload_id}</NextUploadIdMarker>"
        if truncated
        else ""
    )
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Bucket>{escape(request.bucket)}</Bucket><Prefix>{escape(prefix)}</Prefix>"
        f"<MaxUploads>{limit}</MaxUploads><IsTruncated>{str(truncated).lower()}</IsTruncated>"
        f"{following}{uploads}</ListMultipartUploadsResult>"
    ).encode()
    return Answer(200, {"content-type": "application/xml"}, body)

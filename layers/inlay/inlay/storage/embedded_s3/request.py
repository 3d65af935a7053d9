"""An HTTP request to S3 or SQS, parsed once, and an answer to one.

Promise: names what AWS would call the request (`GetObject`, `UploadPartCopy`, `ReceiveMessage` …), for
the access log and to dispatch it. A bucket is addressed by path (`/bucket/key`) or by host
(`bucket.localhost`, `bucket.s3.amazonaws.com`). A body that was sent in signed chunks (`aws-chunked`) is
put together again, and its checksums are verified: those of CRC32, SHA-1, SHA-256 and MD5, which Python
computes; CRC32C and CRC64NVME are not checked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

from inlay.record import Record, field, secret

# Bucket settings have an operation for each; one name for all of a kind will do here.
_OBJECT_EXTRAS: Final = (
    "acl",
    "attributes",
    "legal-hold",
    "restore",
    "retention",
    "select",
    "tagging",
    "torrent",
)
_BY_HOST: Final = re.compile(
    r"(?P<bucket>.+)\.(localhost|s3\.localhost|s3[.-][a-z0-9.-]*amazonaws\.com|s3\.amazonaws\.com)"
)
_CHECKSUMS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "content-md5": lambda body: hashlib.md5(body, usedforsecurity=False).digest(),
    "x-amz-checksum-crc32": lambda body: zlib.crc32(body).to_bytes(4, "big"),
    "x-amz-checksum-sha1": lambda body: hashlib.sha1(body, usedforsecurity=False).digest(),
    "x-amz-checksum-sha256": lambda body: hashlib.sha256(body).digest(),
}


class S3Error(Exception):
    """A request that S3 declines, in its words."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers

    @property
    def answer(self) -> AwsAnswer:
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Error><Code>{escape(self.code)}</Code><Message>{escape(str(self))}</Message>"
            "<RequestId>inlay</RequestId><HostId>inlay</HostId></Error>"
        ).encode()
        named = {name.replace("_", "-"): value for name, value in self.headers.items()}
        return AwsAnswer(self.status, {"Content-Type": "application/xml", **named}, body)


class AwsAnswer(Record):
    """`body` as sent; a HEAD answers with the headers of a body it does not have."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @classmethod
    def error(cls, status: int, code: str, words: str) -> AwsAnswer:
        """A request that is declined, in S3's words."""
        return S3Error(status, code, words).answer


@secret("headers", "sent")
class AwsRequest(Record, dict=True):
    """`path` and `query_string` as sent; `headers` by lower-case names; `sent` is all of the body."""

    method: str
    path: str
    query_string: str
    headers: Mapping[str, str]
    sent: bytes

    @cached_property
    def query(self) -> Mapping[str, str]:
        asked = parse_qs(self.query_string, keep_blank_values=True)
        return {name: values[0] for name, values in asked.items()}

    def header(self, name: str) -> str | None:
        return self.headers.get(name)

    @cached_property
    def scope(self) -> tuple[str, str]:
        """(service, region) of the signature; an unsigned request is taken for S3."""
        signed = self.headers.get("authorization", "")
        signed += f" Credential={self.query.get('X-Amz-Credential', '')},"
        credential = re.search(r"Credential=[^/]+/[^/]+/([^/]+)/([^/]+)/", signed)
        if credential is not None:
            return credential[2].lower(), credential[1]
        return ("sqs" if self._target.startswith("AmazonSQS.") else "s3"), "us-east-1"

    @property
    def service(self) -> str:
        return self.scope[0]

    @property
    def _target(self) -> str:
        return self.headers.get("x-amz-target", "")

    @cached_property
    def _place(self) -> tuple[str, str]:
        """(bucket, key); "" where the request is not about one."""
        path = unquote(self.path, errors="surrogateescape")[1:]
        if self.service != "s3":
            return "", ""
        by_host = _BY_HOST.fullmatch(self.headers.get("host", "").partition(":")[0])
        if by_host is not None:
            return by_host["bucket"], path
        bucket, _, key = path.partition("/")
        return bucket, key

    @property
    def bucket(self) -> str:
        return self._place[0]

    @property
    def key(self) -> str:
        return self._place[1]

    @cached_property
    def copy_source(self) -> tuple[str, str, str | None] | None:
        """(bucket, key, version id) of x-amz-copy-source."""
        said = self.header("x-amz-copy-source")
        if said is None:
            return None
        path, _, query = said.partition("?")
        bucket, _, key = unquote(path).lstrip("/").partition("/")
        return bucket, key, parse_qs(query).get("versionId", [None])[0]

    @cached_property
    def body(self) -> bytes:
        """The body without its framing. Raises `S3Error` where a checksum or a length is wrong."""
        body = self.sent
        trailers: Mapping[str, str] = {}
        if self.headers.get("x-amz-content-sha256", "").startswith("STREAMING-"):
            body, trailers = _unchunked(self.sent)
            length = self.headers.get("x-amz-decoded-content-length")
            if length is not None and int(length) != len(body):
                raise S3Error(
                    400, "IncompleteBody", "The body does not have the length it should have."
                )
        for name, digest in _CHECKSUMS.items():
            said = trailers.get(name) or self.headers.get(name)
            if said is not None and base64.b64encode(digest(body)).decode() != said:
                raise S3Error(400, "BadDigest", f"The {name} you specified did not match.")
        return body

    @cached_property
    def operation(self) -> str:
        if self.service != "s3":
            return self._target.rpartition(".")[2] or f"{self.service}:{self.method}"
        return self._of_object() if self.key else self._of_bucket()

    def _of_object(self) -> str:
        query, copies = self.query, self.copy_source is not None
        extra = next((name for name in _OBJECT_EXTRAS if name in query), None)
        if extra is not None:
            return f"{self.method.title()}Object:{extra}"
        match self.method:
            case "GET":
                return "ListParts" if "uploadId" in query else "GetObject"
            case "HEAD":
                return "HeadObject"
            case "PUT" if "uploadId" in query:
                return "UploadPartCopy" if copies else "UploadPart"
            case "PUT":
                return "CopyObject" if copies else "PutObject"
            case "POST" if "uploads" in query:
                return "CreateMultipartUpload"
            case "POST" if "uploadId" in query:
                return "CompleteMultipartUpload"
            case "DELETE":
                return "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
            case _:  # no operation of S3
                return f"{self.method}:object"

    def _of_bucket(self) -> str:
        query = self.query
        match self.method:
            case "GET" if not self.bucket:
                return "ListBuckets"
            case "GET" if "uploads" in query:
                return "ListMultipartUploads"
            case "GET" if "versions" in query:
                return "ListObjectVersions"
            case "GET" if query.get("list-type") == "2":
                return "ListObjectsV2"
            case "POST" if "delete" in query:
                return "DeleteObjects"
        listing = {"prefix", "delimiter", "marker", "encoding-type"}
        setting = next((name for name in query if not query[name] and name not in listing), "")
        return f"{self.method.title()}Bucket:{setting}".rstrip(":")

    @cached_property
    def json(self) -> dict[str, Any]:
        value = json.loads(self.sent or b"{}")
        return value if isinstance(value, dict) else {}


def _unchunked(sent: bytes) -> tuple[bytes, Mapping[str, str]]:
    """(body, trailing headers) of a body in chunks: `length[;chunk-signature=…]`, the bytes, a line end."""
    pieces = []
    at = 0
    while True:  # ends with the chunk of length 0, or raises
        line, line_end, _ = sent[at : at + 1024].partition(b"\r\n")
        try:
            length = int(line.partition(b";")[0], 16)
        except ValueError:
            length = -1
        at += len(line) + 2
        if not line_end or length < 0 or at + length > len(sent):
            raise S3Error(400, "IncompleteBody", "The chunks of the body are not whole.")
        if length == 0:
            break
        pieces.append(sent[at : at + length])
        at += length + 2
    lines = (line.partition(b":") for line in sent[at:].split(b"\r\n"))
    trailers = {name.strip().lower().decode(): value.strip().decode() for name, _, value in lines}
    return b"".join(pieces), trailers

"""An HTTP request to S3 or SQS, parsed once, and an answer to one.

Promise: names what AWS would call the request (`GetObject`, `UploadPartCopy`, `ReceiveMessage` …),
for the access log and for the rules. Path-style addressing only: the endpoint is an IP address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

Environ = dict[str, Any]

# Bucket settings have an operation for each; one name for all of a kind will do here.
_OBJECT_EXTRAS: Final = (
    "acl",
    "attributes",
    "legal-hold",
    "restore",
    "retention",
    "select",
    "tagging",
)


@dataclass(frozen=True)
class Request:
    """`bucket` and `key` are "" where the request is not about one; `body` is all of it."""

    method: str
    path: str
    query: Mapping[str, str]
    environ: Environ = field(repr=False)
    body: bytes = field(repr=False)

    @classmethod
    def of(cls, environ: Environ, body: bytes) -> Request:
        # WSGI hands bytes over as Latin-1 text.
        path = environ.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "surrogateescape")
        asked = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        query = {name: values[0] for name, values in asked.items()}
        return cls(environ["REQUEST_METHOD"], path, query, environ, body)

    def header(self, name: str) -> str | None:
        value = self.environ.get(f"HTTP_{name.upper().replace('-', '_')}")
        return None if value is None else str(value)

    @cached_property
    def scope(self) -> tuple[str, str]:
        """(service, region) of the signature; an unsigned request is taken for S3."""
        found = re.search(
            r"Credential=[^/]+/[^/]+/([^/]+)/([^/]+)/", self.header("authorization") or ""
        )
        if found is not None:
            return found[2].lower(), found[1]
        return ("sqs" if self._target.startswith("AmazonSQS.") else "s3"), "us-east-1"

    @property
    def service(self) -> str:
        return self.scope[0]

    @property
    def _target(self) -> str:
        return self.header("x-amz-target") or ""

    @property
    def bucket(self) -> str:
        return self.path[1:].partition("/")[0] if self.service == "s3" else ""

    @property
    def key(self) -> str:
        return self.path[1:].partition("/")[2] if self.service == "s3" else ""

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
            case "POST":
                return "CompleteMultipartUpload"
            case "DELETE":
                return "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
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
        setting = next((name for name in query if not query[name]), "")
        return f"{self.method.title()}Bucket:{setting}".rstrip(":")

    @cached_property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.body or b"{}")
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` as sent; a HEAD answers with the headers of a body it does not have."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


def s3_error(status: int, code: str, message: str, **headers: str) -> Answer:
    """An error as S3 words it."""
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
        "<RequestId>inlay</RequestId><HostId>inlay</HostId></Error>"
    ).encode()
    return Answer(status, {"content-type": "application/xml", **headers}, body)

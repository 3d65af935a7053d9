"""The requests of scans and commits, sent without the SDK's model of them.

The SDK spends most of a small request on validating, serialising and parsing it by its model. GET,
HEAD, PUT and listings are sent here instead, and signed here.

Promise: where a request goes, and whose it is, is as the SDK has it: in an environment that says all in
plain variables by `s3_environment.py`, without loading the SDK; in every other by what the SDK prepares
(`s3_client.py`), on its connections. `tests/store/test_s3_environment.py` holds that both say the same.

A PUT does not wait for `100 Continue` as the SDK's does: it is one round trip.

A request is sent once; `s3.py` decides about repetition, for the SDK's requests and these alike. Errors are
raised as the SDK raises them, so that they have one meaning. `Elsewhere` is an answer that redirects: the
SDK can follow it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_plus

from botocore.exceptions import ClientError, IncompleteReadError, NoCredentialsError

from inlay.record import Record
from inlay.storage import http_rules, rules
from inlay.storage.connections import Answer
from inlay.storage.s3_errors import check_document, document_of, of_settings
from inlay.storage.s3_signature import Scope, authorization

if TYPE_CHECKING:
    from xml.etree import ElementTree  # a process that reads by key has no use for it

EMPTY_SHA256: Final = hashlib.sha256(b"").hexdigest()


# Codes of a request that reached the wrong region or name (botocore follows the same).
_ELSEWHERE: Final = frozenset(
    {
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "PermanentRedirect",
        "TemporaryRedirect",
    }
)
_REDIRECTS: Final = frozenset({301, 307})  # of S3: others are of a proxy that asks to sign in
# The SDK's names of headers, and the headers.
_ASKED: Final = rules.HEADERS | {
    "ContentMD5": "content-md5",
    "IfMatch": "if-match",
    "IfNoneMatch": "if-none-match",
    "ObjectLockMode": "x-amz-object-lock-mode",
    "ObjectLockRetainUntilDate": "x-amz-object-lock-retain-until-date",
    "Range": "range",
}
_ANSWERED: Final = rules.HEADERS | {
    "ContentRange": "content-range",
    "ETag": "etag",
    "TagCount": "x-amz-tagging-count",
    "VersionId": "x-amz-version-id",
}
_QUERY: Final = {
    "ContinuationToken": "continuation-token",
    "Delimiter": "delimiter",
    "Prefix": "prefix",
    "StartAfter": "start-after",
    "VersionId": "versionId",
}
_METHODS: Final = {
    "get_object": "GET",
    "head_object": "HEAD",
    "list_objects_v2": "GET",
    "put_object": "PUT",
}
# In the path, and what is sent in other ways.
_ELSE: Final = frozenset({"Body", "Key", "Metadata"})
OPERATIONS: Final = frozenset(_METHODS)
_METADATA: Final = "x-amz-meta-"


class Elsewhere(Exception):
    """The bucket is not where the request went."""


# Method, path with the query, headers, body.
Send = Callable[[str, str, Mapping[str, str], bytes | None], Answer]


class DirectLine(Record):
    """How to reach one bucket, as the SDK would. Thread-safe; belongs to the process that found it."""

    send: Send
    credentials: Callable[[], Any]  # access_key, secret_key, token; refreshed when they expire
    host: str
    base_path: str
    user_agent: str
    scope: Scope

    def ask(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request, in the SDK's names of its operation, arguments and fields: those that
        `s3.py` uses. Raises what the SDK raises, or `Elsewhere`."""
        method = _METHODS[operation]
        body = arguments.get("Body", b"")
        headers: dict[str, Any] = {}
        query: list[str] = []
        for name, value in arguments.items():
            if (header := _ASKED.get(name)) is not None:
                headers[header] = str(value).lower() if isinstance(value, bool) else value
            elif (parameter := _QUERY.get(name)) is not None:
                query.append(f"{parameter}={quote(value, safe='-_.~')}")
            else:  # none is left out without a word
                assert name in _ELSE, name
        for name, value in arguments.get("Metadata", {}).items():
            headers[_METADATA + name] = value
        if operation == "list_objects_v2":
            # Encoded, because a key may contain what XML cannot.
            query += ["encoding-type=url", "list-type=2"]
        path = self.base_path
        if "Key" in arguments:
            path += f"/{quote(arguments['Key'], safe='/~')}"
        status, said, content = self._send(
            method, path or "/", "&".join(sorted(query)), headers, body
        )
        if status == 200 and operation == "list_objects_v2" and document_of(content) == "Error":
            status = 500  # as the SDK has it: the error came after the head
        if status >= 300:
            raise _error(operation, status, said, content)
        answer: dict[str, Any] = {
            "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": said}
        }
        if operation == "list_objects_v2":
            return {**answer, **_listing(content)}
        for name, header in _ANSWERED.items():
            if (value := said.get(header)) is not None:
                answer[name] = value
        if operation == "get_object":
            answer["Body"] = content
        if (modified := said.get("last-modified")) is not None:
            answer["LastModified"] = http_rules.http_date(modified)
        if (length := said.get("content-length")) is not None:
            answer["ContentLength"] = int(length)
        if operation == "head_object":
            answer["Metadata"] = {
                name.removeprefix(_METADATA): value
                for name, value in said.items()
                if name.startswith(_METADATA)
            }
        return answer

    def _send(
        self, method: str, path: str, query: str, headers: dict[str, Any], body: bytes
    ) -> Answer:
        credentials = checked(self.credentials)
        timestamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        digest = hashlib.sha256(body).hexdigest() if body else EMPTY_SHA256
        headers["x-amz-content-sha256"] = digest
        headers["x-amz-date"] = timestamp
        if credentials.token:
            headers["x-amz-security-token"] = credentials.token
        signed = authorization(
            method=method,
            path=path,
            query=query,
            headers=headers | {"host": self.host},
            body_sha256=digest,
            timestamp=timestamp,
            scope=self.scope,
            access_key=credentials.access_key,
            secret_key=credentials.secret_key,
        )
        headers["Authorization"] = signed
        headers["User-Agent"] = self.user_agent
        if method == "PUT":
            headers["content-length"] = str(len(body))
        target = f"{path}{'?' if query else ''}{query}"
        return self.send(method, target, headers, body if method == "PUT" else None)


def checked(credentials: Callable[[], Any]) -> Any:
    """Credentials to sign with. Raises the library's errors, whatever the SDK's providers raise."""
    try:
        keys = credentials()
    except Exception as error:
        raise of_settings(error) from error
    if keys is None:
        raise NoCredentialsError
    if not f"{keys.access_key}{keys.secret_key}{keys.token or ''}".isprintable():
        # The connection would refuse the header, in words that show it.
        raise of_settings(
            ValueError("a key or the token has a line break or another control character")
        )
    return keys


# -- answers --------------------------------------------------------------------------------------


def _error(operation: str, status: int, said: Mapping[str, str], content: bytes) -> Exception:
    """The SDK's exception for an answer that is an error; `Elsewhere` for one that redirects."""
    code, message = _words(content)
    # A HEAD has no body with the error; an answer that names another region does.
    no_words = not content and status == 400
    if status in _REDIRECTS or code in _ELSEWHERE or (no_words and operation == "head_object"):
        return Elsewhere()
    answer: Any = {
        "Error": {"Code": code or str(status), "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": said},
    }
    return ClientError(answer, operation)


def _words(content: bytes) -> tuple[str, str]:
    """(S3's code, S3's message) of an error's body; empty if it is not S3's."""
    from xml.etree import ElementTree

    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError:
        return "", ""
    return _field(root, "Code"), _field(root, "Message")


def _listing(content: bytes) -> Mapping[str, Any]:
    from xml.etree import ElementTree

    check_document("ListObjectsV2", content)
    try:
        return _page(ElementTree.fromstring(content))
    except (ElementTree.ParseError, ValueError) as error:
        # Truncated: like an answer that did not arrive.
        raise IncompleteReadError(actual_bytes=len(content), expected_bytes=-1) from error


def _page(root: ElementTree.Element) -> Mapping[str, Any]:
    # Servers of other vendors may not support `encoding-type`.
    encoded = _field(root, "EncodingType") == "url"
    decode = unquote_plus if encoded else str
    page: dict[str, Any] = {
        "IsTruncated": _field(root, "IsTruncated") == "true",
        "Contents": [
            {
                "Key": decode(_field(element, "Key")),
                "Size": int(_field(element, "Size")),
                "ETag": _field(element, "ETag"),
                "LastModified": datetime.fromisoformat(_field(element, "LastModified")),
            }
            for element in _children(root, "Contents")
        ],
        "CommonPrefixes": [
            {"Prefix": decode(_field(element, "Prefix"))}
            for element in _children(root, "CommonPrefixes")
        ],
    }
    if token := _field(root, "NextContinuationToken"):
        page["NextContinuationToken"] = token
    return page


def _children(parent: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    """The children of that name, in any namespace."""
    return (element for element in parent if element.tag.rpartition("}")[2] == name)


def _field(parent: ElementTree.Element, name: str) -> str:
    child = next(_children(parent, name), None)
    return "" if child is None else child.text or ""

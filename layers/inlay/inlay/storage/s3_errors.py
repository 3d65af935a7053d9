"""Errors of S3 and its SDK, as errors of the library.

Promise: every answer and every exception has exactly one meaning here, and the meaning decides who acts:
nobody (try again), the sender, or an operator. Codes are from AWS, "Amazon S3 error responses"; for other
codes of other vendors the HTTP status decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from botocore import exceptions as sdk

from inlay.errors import (
    AccessDenied,
    InlayError,
    InvalidRequest,
    PageError,
    StoreUnavailable,
    UnsupportedStore,
)

if TYPE_CHECKING:
    from botocore.client import BaseClient

# Answers that are outcomes for the caller: missing, a delete marker, in conflict, condition failed, no such
# range. `S3Store` turns them into values.
_OUTCOMES: Final = frozenset({404, 405, 409, 412, 416})

TRANSIENT: Final = frozenset(
    {
        "BandwidthLimitExceeded",
        "InternalError",
        "KMS.DependencyTimeoutException",
        "KMS.KMSInternalException",
        "KMS.ThrottlingException",
        "RequestLimitExceeded",
        "RequestTimeout",  # a 400: the body came too slowly
        "RequestTimeoutException",
        "ServiceUnavailable",
        "SlowDown",
        "TemporaryRedirect",  # a 307 that says no other place
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
GONE: Final = frozenset({"NoSuchKey", "NoSuchVersion"})
_DENIED: Final = frozenset(
    {
        "AccessDenied",
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
_BAD_REQUEST: Final = frozenset(
    {
        "EntityTooLarge",
        "EntityTooSmall",
        "InvalidArgument",
        "InvalidBucketName",
        "InvalidPart",
        "InvalidPartOrder",
        "InvalidRange",
        "InvalidRequest",
        "InvalidStorageClass",
        "InvalidTag",
        "KeyTooLongError",
        "MalformedXML",
        "MetadataTooLarge",
    }
)


def may_be_another_server(status: int, code: str) -> bool:
    """Whether an answer with a body, which any server on the way may give, has no code of S3's: that of a
    proxy whose S3 is not there for a moment ("404 page not found") says nothing about the object."""
    return status in (404, 405, 409) and code in ("", str(status))


def is_outcome(status: int, code: str) -> bool:
    return status in _OUTCOMES and code != "NoSuchBucket"


# The documents that answer a listing or a deletion. The SDK reads any other (a list of objects, from a
# server that does not know `?versions`; a proxy's page) as a list of nothing: what it should have named
# would be taken for gone, by erasures above all.
_DOCUMENTS: Final = {
    "ListObjectsV2": "ListBucketResult",
    "ListObjectVersions": "ListVersionsResult",
    "ListMultipartUploads": "ListMultipartUploadsResult",
    "DeleteObjects": "DeleteResult",
}
_ROOT = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)")


def document_of(content: bytes) -> str | None:
    """The name of an answer's XML document, without its namespace."""
    root = _ROOT.search(content)
    return None if root is None else root[1].decode("ascii")


def check_document(operation: str, content: bytes) -> None:
    """Raises `UnsupportedStore` for a 200 with another document than S3's answer to `operation` (the API's
    name), `ConnectionError` for one without any document."""
    expected, root = _DOCUMENTS[operation], document_of(content)
    if root is None:
        raise ConnectionError("the answer has no document")
    if root != expected:
        raise UnsupportedStore(
            f"{operation} was answered with a document <{root[:40]}> in place of <{expected}>",
            next_step="Check AWS_ENDPOINT_URL_S3, and that no proxy answers in its place; a store that "
            "does not have this request is not supported (docs/STORES.md)",
        )


def check_documents(client: BaseClient) -> None:
    """Lets `check_document` see what the client reads. Repeating it changes nothing."""

    def check(operation_model: Any, response_dict: Mapping[str, Any], **_: Any) -> None:
        if response_dict["status_code"] == 200:
            check_document(operation_model.name, response_dict["body"])

    for operation in _DOCUMENTS:
        name = f"before-parse.s3.{operation}"
        client.meta.events.register(name, check, unique_id=f"inlay-check-{operation}")


# S3 sends a 200 before a large copy or completion is done, so its error may follow in the body. The SDK
# gives all such errors the status 500; the code decides what they mean.
_BEHIND_200: Final = {
    "ConditionalRequestConflict": 409,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
    "NoSuchVersion": 404,
    "PreconditionFailed": 412,
}


def parts_of(error: sdk.ClientError) -> tuple[int, str, str]:
    """(HTTP status, S3's code, S3's message)."""
    said = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code: str = said.get("Code", "")
    if status == 500:
        status = _BEHIND_200.get(code, status)
    return status, code, said.get("Message", "")


def of_answer(status: int, code: str, message: str, bucket: str, key: str | None) -> InlayError:
    """The meaning of an answer that is not the outcome of a condition."""
    words = f"S3 answered {status} {code}: {message}".rstrip(": ")
    if code == "NoSuchBucket":
        return InvalidRequest(
            f"there is no bucket {bucket!r} at this S3",
            key=key,
            next_step="Check the name, the region and AWS_ENDPOINT_URL_S3, or create the bucket",
        )
    # Not about permissions, and like them: what the object holds stays unknown until somebody acts.
    if code == "InvalidObjectState":
        return AccessDenied(
            f"the object is archived (bucket {bucket!r})",
            key=key,
            next_step="Restore it from its Glacier storage class, then send the request again",
        )
    if (
        code.startswith("KMS.") and code not in TRANSIENT
    ):  # denied, disabled, about to be deleted, gone
        return AccessDenied(
            f"{words} (bucket {bucket!r})",
            key=key,
            next_step="Check the state and the policy of the key that encrypts the object",
        )
    if status == 400 and "Server Side Encryption" in message:
        return AccessDenied(
            f"the object is under a key of its producer, SSE-C (bucket {bucket!r})",
            key=key,
            next_step="Let the producer write it without a key of its own, or under the bucket's",
        )
    if code not in _DENIED and (status >= 500 or status in (408, 409, 429) or code in TRANSIENT):
        if status == 501 or code == "NotImplemented":
            return UnsupportedStore(
                f"this S3 lacks a feature that Inlay needs (bucket {bucket!r}): {words}",
                key=key,
                next_step="Use a store with conditional writes, multipart and ranged copies",
            )
        return StoreUnavailable(f"{words} (bucket {bucket!r})", key=key)
    if code == "RequestTimeTooSkewed":
        return AccessDenied(
            f"{words} (bucket {bucket!r})",
            key=key,
            next_step="Set this machine's clock: S3 takes no request signed 15 minutes off",
        )
    if status in (401, 403) or code in _DENIED:
        return AccessDenied(
            f"{words} (bucket {bucket!r})",
            key=key,
            next_step="Check credentials and the policies of bucket and key; without "
            "s3:ListBucket a missing key is answered with 403 too",
        )
    if code in _BAD_REQUEST:
        return InvalidRequest(
            f"{words} (bucket {bucket!r})", key=key, next_step="Correct the request"
        )
    return PageError(
        f"{words} (bucket {bucket!r})",
        key=key,
        next_step="Look the code up in the S3 error responses; for a 400 without a message check the "
        "region and whether the session token has expired, for a redirect the endpoint and the region",
    )


def redirected(bucket: str, key: str | None) -> InlayError:
    """A redirect that leads to another, without an end."""
    return PageError(
        f"S3 redirects, and nowhere that answers (bucket {bucket!r})",
        key=key,
        next_step="Check AWS_ENDPOINT_URL_S3 and the region, and look for a proxy that asks to sign in",
    )


_SIGN_IN: Final = (
    "Set them in the environment, a profile or the role of the function; a session that has ended begins "
    "again with `aws sso login` or `aws login`"
)
# By name: older SDKs, which Lambda's runtimes, Glue and EMR bring, lack the last ones.
_CREDENTIALS: Final = tuple(
    getattr(sdk, name)
    for name in (
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "NoAuthTokenError",
        "TokenRetrievalError",
        "SSOError",
        "ProfileNotFound",
        "LoginError",
    )
    if hasattr(sdk, name)
)


# Codes of the services that credentials come from, which pass.
_BUSY: Final = TRANSIENT | {"ServiceUnavailableException", "InternalServerException"}


def is_answer_to(error: sdk.ClientError, operation: str) -> bool:
    """Whether it is S3's answer. The services that credentials come from answer within the same call: their
    404 (an SSO role that is no longer assigned) is not a missing object."""
    return _bare(error.operation_name) == _bare(operation)


def _bare(operation: str) -> str:
    return operation.replace("_", "").lower()


def of_settings(error: Exception) -> InlayError:
    """The meaning of an error while a client is created or a request signed: from settings, or from the
    files, commands and services that credentials come from. Nothing was sent to S3."""
    about = f"{type(error).__name__}: {error}"
    match error:
        case InlayError():
            return error
        case sdk.ClientError():
            status, code, _ = parts_of(error)
            if status >= 500 or status == 429 or code in _BUSY:
                return StoreUnavailable(f"no AWS credentials now: {error}")
            return AccessDenied(f"no AWS credentials: {error}", next_step=_SIGN_IN)
        case sdk.HTTPClientError() | sdk.ConnectionError():
            return StoreUnavailable(f"no answer where the AWS credentials come from: {about}")
        case _ if isinstance(error, _CREDENTIALS):
            return AccessDenied(f"no AWS credentials: {about}", next_step=_SIGN_IN)
        case _:  # the SDK raises what it likes
            return PageError(
                f"the AWS settings of this environment do not work: {about}",
                next_step="Check AWS_PROFILE and the other AWS_* variables, ~/.aws/config and what it "
                "runs; `aws sts get-caller-identity` uses the same",
            )


def of_exception(error: Exception, bucket: str, key: str | None) -> InlayError:
    """The meaning of a request that got no answer."""
    about = f"{type(error).__name__}: {error} (bucket {bucket!r})"
    match error:
        case sdk.ParamValidationError():
            return InvalidRequest(
                f"the SDK refused the request: {about}", key=key, next_step="Correct the request"
            )
        case _ if isinstance(error, _CREDENTIALS):
            return AccessDenied(f"no AWS credentials: {about}", key=key, next_step=_SIGN_IN)
        case (
            sdk.HTTPClientError()  # timeouts and dropped connections among them
            | sdk.ConnectionError()
            | sdk.IncompleteReadError()
            | sdk.ChecksumError()
            | OSError()
        ):
            return StoreUnavailable(f"no answer from S3: {about}", key=key)
        case _:  # the SDK raises what it likes
            return PageError(
                f"the SDK cannot send the request: {about}",
                key=key,
                next_step="Check the AWS settings of this environment",
            )

"""The signature of a request to S3 (AWS Signature Version 4).

Promise: a pure function: the `Authorization` of a request from its parts and the time, as in AWS,
"Authenticating requests: using the Authorization header". S3's variant: the path is encoded once and not
normalised, and the body's SHA-256 is a header of its own.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from inlay.record import Record

ALGORITHM: Final = "AWS4-HMAC-SHA256"


class Scope(Record):
    """Where a signature holds: the region and the service's signing name."""

    region: str
    service: str


def authorization(
    *,
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body_sha256: str,
    timestamp: str,
    scope: Scope,
    access_key: str,
    secret_key: str,
) -> str:
    """The value of the `Authorization` header.

    `path` and `query` are as sent, the query's pairs in order of their encoded names; `headers` are
    all that are to be signed, names in lower case; `timestamp` is that of `x-amz-date`
    (YYYYMMDDTHHMMSSZ).
    """
    names = sorted(headers)
    signed = ";".join(names)
    lines = "".join([f"{name}:{' '.join(headers[name].split())}\n" for name in names])
    canonical = f"{method}\n{path}\n{query}\n{lines}\n{signed}\n{body_sha256}"
    day = timestamp[:8]
    granted = f"{day}/{scope.region}/{scope.service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = _signing_key(secret_key, day, scope)
    signature = hmac.digest(
        key, f"{ALGORITHM}\n{timestamp}\n{granted}\n{digest}".encode(), "sha256"
    )
    return (
        f"{ALGORITHM} Credential={access_key}/{granted}, SignedHeaders={signed}, "
        f"Signature={signature.hex()}"
    )


# Few at a time: one secret and one day, or two around midnight and where credentials rotate.
@lru_cache(maxsize=16)
def _signing_key(secret_key: str, day: str, scope: Scope) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in (day, scope.region, scope.service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key

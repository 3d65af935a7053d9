"""From a URI to a store and a key.

Promise: `s3://bucket/key`, `file:///path`, `memory://bucket/key` and a plain local path open; all
else is a typed error that shows the form expected. Keys are taken literally: nothing is decoded, so
a key with "%20" in it stays that key. Stores are loaded when first asked for: a Lambda that only
needs S3 does not import the others, a laptop without S3 does not import boto3.
"""

from __future__ import annotations

import os.path
import re
from typing import Final

from inlay.errors import InvalidRequest
from inlay.storage.base import Location, ObjectStore

SCHEMES: Final = ("s3", "file", "memory")
_EXPECTED: Final = "Use s3://bucket/key, file:///path, memory://name/key or a local path"
# What people ask for, refused by its name.
_NOT_YET: Final = {
    "gs": "Google Cloud Storage",
    "gcs": "Google Cloud Storage",
    "az": "Azure Blob Storage",
    "abfs": "Azure Blob Storage",
    "abfss": "Azure Blob Storage",
    "wasbs": "Azure Blob Storage",
    "hdfs": "HDFS",
    "https": "a web server",
}
# RFC 3986, a scheme: at least two characters here, so that "C:\\data" is not taken for one.
_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>/.*|)", re.DOTALL)
# Names of buckets: what botocore takes for one, access point ARNs aside; one of ours in memory.
_BUCKET: Final = {
    "s3": re.compile(r"[a-zA-Z0-9._-]{3,255}"),
    "memory": re.compile(r"[a-zA-Z0-9._-]{1,255}"),
}


def parse_location(uri: str) -> Location:
    """Where `uri` points; the key has no trailing slash, "" is the bucket (or "/") itself.

    >>> parse_location("s3://lake/tables/événements/")
    Location(scheme='s3', bucket='lake', key='tables/événements')
    >>> parse_location("file:///data/tables/t").uri
    'file:///data/tables/t'
    """
    if not uri or "\0" in uri or not _is_unicode(uri):
        raise InvalidRequest(f"{uri[:200]!r} is not a location", next_step=_EXPECTED)
    match = _URI.fullmatch(uri)
    if match is None:
        return Location("file", "", os.path.abspath(uri).strip("/"))  # noqa: PTH100 - keeps symbolic links
    scheme, rest = match["scheme"], match["rest"]
    if scheme in ("s3a", "s3n"):  # what Hadoop calls S3
        scheme = "s3"
    if scheme in _NOT_YET:
        raise InvalidRequest(
            f"tables on {_NOT_YET[scheme]} ({scheme}://) are not supported",
            next_step="Keep the table at s3://…, and publish it as Iceberg for engines elsewhere: "
            "docs/STORES.md has the reasons",
        )
    if scheme not in SCHEMES or not rest.startswith("//"):
        raise InvalidRequest(f"{uri[:200]!r} is not a location Inlay knows", next_step=_EXPECTED)
    bucket, _, key = rest[2:].partition("/")
    if scheme == "file" and bucket:
        raise InvalidRequest(
            f"{uri[:200]!r} names a host",
            next_step=f"Write file:///{bucket}/… with three slashes for an absolute path",
        )
    if scheme in _BUCKET and not _BUCKET[scheme].fullmatch(bucket):
        raise InvalidRequest(f"{uri[:200]!r} has no valid bucket name", next_step=_EXPECTED)
    return Location(scheme, bucket, key.rstrip("/"))


def _is_unicode(text: str) -> bool:
    """Without half a surrogate pair: keys are UTF-8."""
    try:
        return bool(text.encode("utf-8"))
    except UnicodeEncodeError:
        return False


def open_store(uri: str) -> tuple[ObjectStore, str]:
    """The store `uri` is in, and its key there without a trailing slash."""
    location = parse_location(uri)
    return store_at(location), location.key


def store_at(location: Location) -> ObjectStore:
    """The store a location is in. S3 settings come from the standard AWS environment."""
    if location.scheme == "memory":
        from inlay.storage.memory import PROCESS_REGION, MemoryStore

        return MemoryStore(location.bucket, region=PROCESS_REGION)
    if location.scheme == "file":
        from inlay.storage.directory import DirectoryStore

        return DirectoryStore()
    if location.scheme == "s3":
        from inlay.storage.s3 import S3Store

        return S3Store(location.bucket)
    raise InvalidRequest(f"no store for {location.uri!r}", next_step=_EXPECTED)

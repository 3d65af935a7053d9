"""From a URI to a store and a key.

Promise: `s3://bucket/key`, `file:///path`, `memory://bucket/key` and a plain local path open; all else is a
typed error with the expected form. Keys are taken literally: nothing is decoded, so a key with "%20" stays
that key. Stores are imported when first used: a Lambda that only needs S3 does not import the others, a
laptop without S3 does not import boto3.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
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
_OPTIONS: Final = ("endpoint_url", "region")
# RFC 3986, a scheme: at least two characters here, so that "C:\\data" is not taken for one.
_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>/.*|)", re.DOTALL)
# Names of buckets: what botocore takes for one, access point ARNs aside; one of ours in memory.
_BUCKET: Final = {
    "s3": re.compile(r"[a-zA-Z0-9._-]{3,255}"),
    "memory": re.compile(r"[a-zA-Z0-9._-]{1,255}"),
}


def parse_location(uri: str) -> Location:
    """The location of `uri`; the key has no trailing slash, "" is the bucket (or "/") itself.

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


def _checked_options(location: Location, options: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in options.items():
        plain = str(name).lower().removeprefix("aws_")
        if plain not in _OPTIONS or not isinstance(value, str):
            secret = any(word in plain for word in ("key", "secret", "token", "profile"))
            raise InvalidRequest(
                f"storage_options has {str(name)[:40]!r}, which is not taken"
                if plain not in _OPTIONS
                else f"storage_options has {name!r}, which is not a text",
                next_step="Credentials come from the AWS environment (variables, a profile, a role): "
                "tables are pickled without them"
                if secret
                else f"It takes {' and '.join(_OPTIONS)}",
            )
        found[plain] = value
    if found and location.scheme != "s3":
        raise InvalidRequest(
            f"{location.scheme}:// takes no storage_options", next_step="They are for s3://"
        )
    return found


def _is_unicode(text: str) -> bool:
    """Without unpaired surrogates: keys are UTF-8."""
    try:
        return bool(text.encode("utf-8"))
    except UnicodeEncodeError:
        return False


def open_store(uri: str, options: Mapping[str, str] | None = None) -> tuple[ObjectStore, str]:
    """The store `uri` is in, and its key there without a trailing slash."""
    location = parse_location(uri)
    return store_at(location, options), location.key


def store_at(location: Location, options: Mapping[str, str] | None = None) -> ObjectStore:
    """The store a location is in. S3 settings come from the standard AWS environment, but for those in
    `options`: `endpoint_url` and `region`, also as `aws_endpoint_url` and `aws_region`."""
    given = _checked_options(location, options or {})
    if location.scheme == "memory":
        from inlay.storage.memory import PROCESS_REGION, MemoryStore

        return MemoryStore(location.bucket, region=PROCESS_REGION)
    if location.scheme == "file":
        from inlay.storage.directory import DirectoryStore

        return DirectoryStore()
    if location.scheme == "s3":
        from inlay.storage.s3 import S3Store

        return S3Store(
            location.bucket, endpoint_url=given.get("endpoint_url"), region=given.get("region")
        )
    raise InvalidRequest(f"no store for {location.uri!r}", next_step=_EXPECTED)

"""From a URI to a store and a key.

Promise: `s3://bucket/key`, `gs://bucket/key`, `az://container/key`, `abfss://container@host/key`,
`file:///path`, `memory://bucket/key` and a plain local path (`~/` is the home) open; all else is a typed
error with the expected form. What a user gives as `file:///path` (or `file:/path`) is a URI as RFC 8089 and
`Path.as_uri` have it: "%20" is a space. Everywhere else keys are taken literally, so a key with "%20" stays
that key: in the other schemes, in local paths, and in the names that metadata holds (`named_location`).
Stores are imported when first used: a Lambda that only needs S3 does not import the others, a laptop
without S3 does not import botocore.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from inlay.errors import InvalidRequest
from inlay.storage.base import Location, ObjectStore

SCHEMES: Final = ("s3", "gs", "abfss", "file", "memory")
_EXPECTED: Final = (
    "Use s3://bucket/key, gs://bucket/key, az://container/key, file:///path, memory://name/key "
    "or a local path"
)
# Other names of the same stores: Hadoop's, and those of other tools.
_ALIASES: Final = {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "az": "abfss",
    "azure": "abfss",
    "abfs": "abfss",
    "wasb": "abfss",
    "wasbs": "abfss",
}
# Stores that people ask for, refused by name.
_NOT_YET: Final = {"hdfs": "HDFS", "http": "a web server", "https": "a web server"}
# A name that begins so is not a local path: data would be written to this disk instead of to the bucket
# that was meant.
_MEANT: Final = frozenset((*SCHEMES, *_ALIASES, *_NOT_YET, "arn"))
# What each store takes, and the prefix under which other tools know it.
_OPTIONS: Final = {
    "s3": (("endpoint_url", "region", "dialect"), "aws_"),
    "gs": (("endpoint_url",), "google_"),
    "abfss": (("account_name", "endpoint_url"), "azure_storage_"),
}
# RFC 3986, a scheme: at least two characters here, so that "C:\\data" is not taken for one.
_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>/.*|)", re.DOTALL)
# Names of buckets: what botocore takes for one, access point ARNs aside; one of ours in memory.
_BUCKET: Final = {
    "s3": re.compile(r"[a-zA-Z0-9._-]{3,255}"),
    "gs": re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"),
    "abfss": re.compile(r"[a-z0-9$][a-z0-9-]{2,62}(@[a-z0-9]{3,24}(\.[a-z0-9-]+)+)?"),
    "memory": re.compile(r"[a-zA-Z0-9._-]{1,255}"),
}


def parse_location(uri: str) -> Location:
    """The location of `uri`, as a user writes it; the key has no trailing slash, "" is the bucket (or "/")
    itself.

    >>> parse_location("s3://lake/tables/événements/")
    Location(scheme='s3', bucket='lake', key='tables/événements', version_id=None)
    >>> parse_location("file:///my%20data/t")
    Location(scheme='file', bucket='', key='my data/t', version_id=None)
    >>> parse_location("file:/data/t").uri
    'file:///data/t'
    """
    return _parsed(uri, escaped=True)


def named_location(name: str) -> Location:
    """The location of a full name in metadata, this library's (`Location.uri`) or that of a table to adopt:
    nothing in it is escaped.

    >>> named_location(Location("file", "", "100%25").uri).key
    '100%25'
    """
    return _parsed(name, escaped=False)


def below(uri: str, relative: str) -> str:
    """What a user writes for the key `relative` below `uri`.

    >>> below("file:///data/", "my table"), below("/data", "my table")
    ('file:///data/my%20table', '/data/my table')
    """
    return f"{uri.rstrip('/')}/{quote(relative) if _is_escaped(uri) else relative}"


def _is_escaped(uri: str) -> bool:
    match = _URI.fullmatch(uri)
    return match is not None and match["scheme"] == "file"


def _unescaped(uri: str, rest: str) -> str:
    """Raises `InvalidRequest` for bytes that are not UTF-8: no key can have them."""
    try:
        path = unquote_to_bytes(rest).decode("utf-8")
    except UnicodeDecodeError:
        path = "\0"
    if "\0" in path:
        raise InvalidRequest(
            f"{uri[:200]!r} has escapes that are not of UTF-8 text",
            next_step="Write file:///path with escapes of UTF-8; a file of another name must be renamed",
        )
    return path


def _parsed(uri: str, *, escaped: bool) -> Location:
    if not uri or "\0" in uri or not _is_unicode(uri):
        raise InvalidRequest(f"{uri[:200]!r} is not a location", next_step=_EXPECTED)
    match = _URI.fullmatch(uri)
    if match is None:
        name, colon, _ = uri.partition(":")
        if colon and name.lower() in _MEANT:
            raise InvalidRequest(
                f"{uri[:200]!r} looks like a URI but is not one",
                next_step=f"{_EXPECTED}; a file of that name is ./{uri[:200]}",
            )
        if uri == "~" or uri.startswith("~/"):
            uri = os.path.expanduser(uri)  # noqa: PTH111 - as shells do, where quotes kept it from one
        return Location("file", "", os.path.abspath(uri).strip("/"))  # noqa: PTH100 - keeps symbolic links
    scheme, rest = match["scheme"], match["rest"]
    scheme = _ALIASES.get(scheme, scheme)
    if scheme == "file" and rest.startswith("/") and not rest.startswith("//"):
        rest = f"//{rest}"  # file:/data/t, as Spark and Hadoop print it
    if scheme in _NOT_YET:
        raise InvalidRequest(
            f"tables on {_NOT_YET[scheme]} ({scheme}://) are not supported",
            next_step="Keep the table at s3://…, and publish it as Iceberg for engines elsewhere: "
            "docs/STORES.md has the reasons",
        )
    if scheme == "file":
        if not rest.startswith("//"):  # file:/path, as Java and Hadoop write it
            rest = f"//{rest}" if rest else rest
        elif rest.startswith("//localhost/"):
            rest = rest.replace("localhost", "", 1)
        rest = _unescaped(uri, rest) if escaped else rest
    # "file://" and nothing is a variable without a value, not the root of the disk.
    if scheme not in SCHEMES or not rest.startswith("//") or (scheme, rest) == ("file", "//"):
        raise InvalidRequest(f"{uri[:200]!r} is not a location Inlay knows", next_step=_EXPECTED)
    bucket, _, key = rest[2:].partition("/")
    if scheme == "file" and bucket:
        raise InvalidRequest(
            f"{uri[:200]!r} names a host",
            next_step=f"Write file:///{bucket}/… with three slashes for an absolute path",
        )
    if scheme in _BUCKET and not _BUCKET[scheme].fullmatch(bucket):
        raise InvalidRequest(f"{uri[:200]!r} has no valid bucket name", next_step=_EXPECTED)
    if scheme == "abfss":
        from inlay.storage.azure_account import full_name

        bucket = full_name(bucket)
    return Location(scheme, bucket, key.rstrip("/"))


def _checked_options(location: Location, options: Mapping[str, str]) -> dict[str, str]:
    if location.scheme not in _OPTIONS:
        if options:
            raise InvalidRequest(
                f"{location.scheme}:// takes no storage_options",
                next_step="They are for s3://, gs:// and az://",
            )
        return {}
    taken, prefix = _OPTIONS[location.scheme]
    checked: dict[str, str] = {}
    for name, value in options.items():
        plain = str(name).lower().removeprefix(prefix)
        if plain not in taken or not isinstance(value, str):
            secrets = ("key", "secret", "token", "profile", "credential", "connection_string")
            raise InvalidRequest(
                f"storage_options has {str(name)[:40]!r}, which is not taken"
                if plain not in taken
                else f"storage_options has {name!r}, which is not a text",
                next_step="Credentials come from the environment (variables, a profile, a role), as "
                "docs/STORES.md lists them: tables are pickled without them"
                if any(word in plain for word in secrets)
                else f"It takes {', '.join(taken)}",
            )
        checked[plain] = value
    return checked


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
    """The store a location is in. Settings come from the standard environment of its maker, but for those
    in `options`: `endpoint_url`, for S3 also `region` and `dialect` ("ceph" for Ceph's gateway), for Azure
    also `account_name` (and each with the prefix of its maker, as `aws_region`)."""
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
            location.bucket,
            endpoint_url=given.get("endpoint_url"),
            region=given.get("region"),
            dialect=given.get("dialect"),
        )
    if location.scheme == "gs":
        from inlay.storage.gcs import GcsStore

        return GcsStore(location.bucket, endpoint_url=given.get("endpoint_url"))
    if location.scheme == "abfss":
        from inlay.storage.azure import AzureStore

        return AzureStore(
            location.bucket,
            account=given.get("account_name"),
            endpoint_url=given.get("endpoint_url"),
        )
    raise InvalidRequest(f"no store for {location.uri!r}", next_step=_EXPECTED)

"""Object keys: the only place where they are built.

Promise: every key is relative to the table root, and `classify` states what any key under a root is. Ids in
keys are random and never reused, so no key is ever written twice with different bytes; only the pointer is
overwritten (docs/FORMAT.md, "Layout").
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from urllib.parse import quote

POINTER = "_latest_manifest"
ARCHIVES = "manifest/"
SEGMENTS = "manifest/segments/"
# A copy that was begun (`ops.copy`): among the segments, where collection and drop take it.
COPY_BEGUN = SEGMENTS + "copy-begun"
DATA = "data/"
TOMBSTONES = "tombstone/"
RECEIPTS = "erasure/"
# Lists that receipts name. To libraries that do not know them they are unknown objects, which are kept.
EVIDENCE = "evidence/"
# What has become of transactions over several tables, one object for each (`format.transaction`).
DECISIONS = "transaction/"
# Beside the format: the deletes that change streams remember, a table of its own. To libraries that do not
# know it its objects are unknown ones, which are kept.
MEMORY = "changes"
# Beside the format: what other engines read (`inlay.iceberg`). All of it can be generated again.
PUBLISHED = "metadata/"
# What a REST catalog answers to loadTable: the only object that a publication swaps.
PUBLISHED_POINTER = "metadata/latest.json"
VERSION_HINT = "metadata/version-hint.text"

# Of a version in the names of published metadata, and in the hint.
MAX_VERSION_DIGITS = 18

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ARCHIVE = re.compile(r"manifest/v(\d{8,})\.json")
# Also by name: nothing else there was written by an erasure, and a receipt has to list what was not.
_RECEIPT = re.compile(
    r"erasure/[A-Za-z0-9_.~%-]+\.json|evidence/\d{8,}-[a-z]+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json"
)
_DECISION = re.compile(r"transaction/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json")
_NAMED_BY_VERSION = re.compile(r"metadata/(latest\.json|version-hint\.text|v\d+\.metadata\.json)")
# By name, not by folder: anything else in the folder is not ours to delete. Besides what is published, the
# manifests, lists and statistics of commits by other engines: their commits were refused. And the copies of
# metadata that Iceberg Java's `rewrite_table_path` leaves, where nobody names another place for them.
_PUBLISHED = re.compile(
    rf"{_NAMED_BY_VERSION.pattern}|metadata/(inlay-[^/]+|[^/]+\.(avro|stats)|partition-stats-[^/]+"
    r"|copy-table-staging-[0-9a-f-]{36}/.+)"
)
_ID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# What this library writes of what it also deletes.
_WRITTEN = re.compile(
    rf"(data|tombstone)/\d{{4}}(/\d\d){{3}}/{_ID}[./].+|manifest/segments/{_ID}|metadata/inlay-[^/]+"
    rf"|{COPY_BEGUN}|{_NAMED_BY_VERSION.pattern}|{_ARCHIVE.pattern}"
)
# What a catalog writes that takes commits: its client puts it beside the manifests.
_COMMITTED = re.compile(r"metadata/\d+-[0-9a-f-]{36}(\.gz)?\.metadata\.json(\.gz)?")


class ObjectKind(Enum):
    POINTER = "pointer"
    ARCHIVE = "archive"
    SEGMENT = "segment"
    DATA = "data"
    TOMBSTONE = "tombstone"
    RECEIPT = "receipt"
    DECISION = "decision"
    PUBLISHED = "published"
    MEMORY = "memory"
    UNKNOWN = "unknown"


_DELETED = (
    *(ObjectKind.ARCHIVE, ObjectKind.SEGMENT, ObjectKind.DATA, ObjectKind.TOMBSTONE),
    *(ObjectKind.PUBLISHED, ObjectKind.MEMORY),
)


def archive_key(version: int) -> str:
    """
    >>> archive_key(123)
    'manifest/v00000123.json'
    """
    return f"{ARCHIVES}v{version:08d}.json"


def archive_version(key: str) -> int | None:
    """The version that an archive key names; None for any other key."""
    match = _ARCHIVE.fullmatch(key)
    return int(match.group(1)) if match and archive_key(int(match.group(1))) == key else None


def segment_key(segment_id: str) -> str:
    return SEGMENTS + segment_id


def _hour(time_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=time_us)).strftime("%Y/%m/%d/%H")


def data_key(time_us: int, object_id: str) -> str:
    """`time_us` is the store's clock; the hour only spreads and groups keys, nothing depends on it.

    >>> data_key(0, "x")
    'data/1970/01/01/00/x.parquet'
    """
    return f"{DATA}{_hour(time_us)}/{object_id}.parquet"


def unfinished_prefix(time_us: int, object_id: str) -> str:
    """Where a writer that names its files itself puts them, until they are copied to keys of their own.
    They are data that no version names, which garbage collection takes.

    >>> unfinished_prefix(0, "x")
    'data/1970/01/01/00/x/'
    """
    return f"{DATA}{_hour(time_us)}/{object_id}/"


def tombstone_key(time_us: int, object_id: str, suffix: str) -> str:
    """`suffix` is "del" for a Parquet file of keys, "puffin" for row positions."""
    return f"{TOMBSTONES}{_hour(time_us)}/{object_id}.{suffix}"


def receipt_key(erasure_id: str) -> str:
    """Erasure ids are user input: everything but letters, digits, `_.-~` is percent-encoded."""
    return f"{RECEIPTS}{quote(erasure_id, safe='')}.json"


def decision_key(transaction_id: str) -> str:
    return f"{DECISIONS}{transaction_id}.json"


def published_key(name: str) -> str:
    """A manifest, a manifest list or a file of position deletes of a publication."""
    return f"{PUBLISHED}inlay-{name}"


def published_metadata_key(version: int) -> str:
    """The table metadata of a published version, as readers look for it that follow `VERSION_HINT`.

    >>> published_metadata_key(12)
    'metadata/v12.metadata.json'
    """
    return f"{PUBLISHED}v{version}.metadata.json"


def published_version(key: str) -> int | None:
    """The version whose table metadata a key is; None for any other key.

    >>> published_version("metadata/v12.metadata.json"), published_version("metadata/latest.json")
    (12, None)
    """
    number = key.removeprefix(f"{PUBLISHED}v").removesuffix(".metadata.json")
    is_number = number.isascii() and number.isdecimal() and len(number) <= MAX_VERSION_DIGITS
    return int(number) if is_number and key == published_metadata_key(int(number)) else None


def is_named_by_version(key: str) -> bool:
    """Whether a table that is created at the same place later will use the key again; other keys have
    random ids.

    >>> is_named_by_version("manifest/v00000123.json"), is_named_by_version("manifest/segments/x")
    (True, False)
    """
    return classify(key) is ObjectKind.ARCHIVE or _NAMED_BY_VERSION.fullmatch(key) is not None


def is_committed_elsewhere(key: str) -> bool:
    """Whether a key is that of table metadata that another catalog keeps: it has taken commits.

    >>> is_committed_elsewhere("metadata/00001-5f6b3c1e-92a9-4e38-9c6f-0123456789ab.metadata.json")
    True
    """
    return _COMMITTED.fullmatch(key) is not None


def is_collected(key: str) -> bool:
    """Whether garbage collection deletes an object by its folder alone, whatever wrote it.

    >>> is_collected("data/raw.csv"), is_collected("raw.csv")
    (True, False)
    """
    return key.startswith((SEGMENTS, DATA, TOMBSTONES))


def is_foreign(key: str) -> bool:
    """Whether an object is of a kind that garbage collection or `drop` deletes, and named as this library
    names none.

    >>> is_foreign("data/raw.csv"), is_foreign("raw.csv")
    (True, False)
    """
    return classify(key) in _DELETED and _WRITTEN.fullmatch(key) is None


def table_of(key: str) -> str | None:
    """Where the table is whose data file is called so, if a table calls it so.

    >>> table_of("lake/t/data/2026/11/27/17/8eb960fa-22ba-47aa-98f6-6c595f7893da.parquet")
    'lake/t/'
    """
    root, _, rest = key.rpartition(DATA)
    is_of_a_table = key.startswith(DATA) or root.endswith("/")
    return root if is_of_a_table and _WRITTEN.fullmatch(DATA + rest) else None


def classify(key: str) -> ObjectKind:
    if key == POINTER:
        return ObjectKind.POINTER
    if archive_version(key) is not None:
        return ObjectKind.ARCHIVE
    for prefix, kind in (
        (SEGMENTS, ObjectKind.SEGMENT),
        (DATA, ObjectKind.DATA),
        (TOMBSTONES, ObjectKind.TOMBSTONE),
        (f"{MEMORY}/", ObjectKind.MEMORY),
    ):
        if key.startswith(prefix) and len(key) > len(prefix):
            return kind
    if _DECISION.fullmatch(key):
        return ObjectKind.DECISION
    if _RECEIPT.fullmatch(key):
        return ObjectKind.RECEIPT
    return ObjectKind.PUBLISHED if _PUBLISHED.fullmatch(key) else ObjectKind.UNKNOWN

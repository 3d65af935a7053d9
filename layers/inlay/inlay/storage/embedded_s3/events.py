"""S3's event notifications: which queue wants which event, and the message it gets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote_plus
from xml.etree.ElementTree import Element

from inlay.record import Mutable, Record, field
from inlay.storage.base import NULL_VERSION
from inlay.storage.embedded_s3.request import S3Error
from inlay.storage.embedded_s3.xml import child, children, text

# A message for the queue of that ARN.
Notify = Callable[[str, Mapping[str, Any]], None]

_sequence: Final = itertools.count(1)


class Rule(Record):
    """`events` as S3 names them (`s3:ObjectCreated:*`), of keys with this prefix and suffix."""

    queue_arn: str
    events: tuple[str, ...]
    prefix: str = ""
    suffix: str = ""


class Settings(Mutable):
    """What is set on a bucket, beside its versioning."""

    created_us: int
    region: str = "us-east-1"
    notifications: list[Rule] = field(default_factory=list)
    notifications_as_set: bytes = b""


def parse_rules(tree: Element) -> list[Rule]:
    """The rules of a NotificationConfiguration."""
    rules = []
    for element in tree:
        kind = element.tag.rpartition("}")[2]
        if kind != "QueueConfiguration":
            words = f"The embedded S3 notifies queues only, not by a {kind}."
            raise S3Error(501, "NotImplemented", words)
        key = child(element, "Filter", "S3Key")
        limits = {
            (text(rule, "Name") or "").lower(): text(rule, "Value") or ""
            for rule in (() if key is None else children(key, "FilterRule"))
        }
        if unknown := set(limits) - {"prefix", "suffix"}:
            raise S3Error(400, "InvalidArgument", f"filter rule name {unknown.pop()} is unknown")
        events = tuple(element.text or "" for element in children(element, "Event"))
        rules.append(Rule(text(element, "Queue") or "", events, **limits))
    return rules


def matching(rules: Iterable[Rule], name: str, key: str) -> Iterator[Rule]:
    """The rules that want event `name` (`ObjectCreated:Put`) of `key`."""
    for rule in rules:
        matches = any(
            f"s3:{name}" == event or (event.endswith("*") and f"s3:{name}".startswith(event[:-1]))
            for event in rule.events
        )
        if matches and key.startswith(rule.prefix) and key.endswith(rule.suffix):
            yield rule


def event(
    bucket: str,
    key: str,
    *,
    size: int,
    etag: str,
    at_us: int,
    name: str = "ObjectCreated:Put",
    version_id: str | None = None,
) -> Mapping[str, Any]:
    """S3's notification about one object."""
    about = {"key": quote_plus(key), "size": size, "eTag": etag}
    if version_id is not None:
        about["versionId"] = version_id
    return {
        "Records": [
            {
                "eventVersion": "2.1",
                "eventSource": "aws:s3",
                "awsRegion": "us-east-1",
                "eventTime": _iso(at_us),
                "eventName": name,
                "s3": {
                    "s3SchemaVersion": "1.0",
                    "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
                    "object": {**about, "sequencer": f"{next(_sequence):016X}"},
                },
            }
        ]
    }


def event_of(
    bucket: str, key: str, written: Mapping[str, Any], *, version_id: str | None = None
) -> Mapping[str, Any]:
    """The same of an object that a listing or a HEAD of boto3 shows."""
    return event(
        bucket,
        key,
        size=written["Size"] if "Size" in written else written["ContentLength"],
        etag=written["ETag"].strip('"'),
        at_us=int(written["LastModified"].timestamp() * 1_000_000),
        version_id=None if version_id == NULL_VERSION else version_id,
    )


def test_event(bucket: str) -> Mapping[str, Any]:
    """What S3 sends to a queue first."""
    now_us = int(datetime.now(UTC).timestamp() * 1_000_000)
    return {
        "Service": "Amazon S3",
        "Event": "s3:TestEvent",
        "Time": _iso(now_us),
        "Bucket": bucket,
        "RequestId": "inlay",
        "HostId": "inlay",
    }


def _iso(us: int) -> str:
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")[:-4] + "Z"

"""S3 event notifications of new objects, in every form: which object, for which table.

Promise: each form gives the same `IngestSource` for the same object, so its identity does not depend on the
form. Events other than new objects, objects that are no data by their name or size (`format.landing`), and
what tables consist of, which a rule for the whole bucket tells of as well, give nothing. What is not an S3
event at all is refused.

========================  ==================================================  ===============
form                      looks like                                          keys
========================  ==================================================  ===============
S3 notification           {"Records": [{"eventSource": "aws:s3", …}, …]}      URL-encoded
EventBridge               {"source": "aws.s3", "detail-type": "Object …"}     as they are
S3's test of a queue      {"Event": "s3:TestEvent", …}                        none
========================  ==================================================  ===============
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote_plus

from aws_lambda_powertools.utilities.parser import BaseModel, Field

from inlay.engine import IngestSource
from inlay.errors import InvalidRequest
from inlay.functions import settings
from inlay.functions.tables import LANDING, TABLES
from inlay.functions.validation import check_table_name, validated


@dataclass(frozen=True, slots=True)
class Arrival:
    """A new object for a table."""

    table: str
    source: IngestSource


class _Named(BaseModel):
    name: str = Field(min_length=3)


class _NotifiedObject(BaseModel):
    key: str = Field(min_length=1)
    size: int | None = None
    etag: str | None = Field(None, alias="eTag")
    version_id: str | None = Field(None, alias="versionId")


class _NotifiedEntity(BaseModel):
    bucket: _Named
    object: _NotifiedObject


class _Notification(BaseModel):
    """One record of an S3 notification; fields that Inlay does not use may be missing."""

    event_name: str = Field(alias="eventName")
    event_time: datetime = Field(alias="eventTime")
    s3: _NotifiedEntity


class _BridgedObject(BaseModel):
    key: str = Field(min_length=1)
    size: int | None = None
    etag: str | None = None
    version_id: str | None = Field(None, alias="version-id")


class _BridgedDetail(BaseModel):
    bucket: _Named
    object: _BridgedObject


class _Bridged(BaseModel):
    """An S3 event by way of EventBridge."""

    detail_type: str = Field(alias="detail-type")
    time: datetime
    detail: _BridgedDetail


def read_arrivals(body: Any, *, scheme: str = "s3", bucket: str | None = None) -> Sequence[Arrival]:
    """The arrivals in `body`, perhaps none. `scheme` is that of their store. An object in another bucket
    than `bucket` is refused: otherwise a sender of events could name any object that the function may
    read."""
    arrivals = _read(body, scheme)
    for arrival in arrivals:
        location = arrival.source.location
        if bucket is not None and location.bucket != bucket:
            raise InvalidRequest(
                "the object is in a bucket that is not this deployment's",
                key=location.key,
                next_step=f"Copy it to s3://{bucket}/{settings.prefix()}{LANDING}<table>/",
            )
    return arrivals


def _read(body: Any, scheme: str) -> Sequence[Arrival]:
    if isinstance(body, dict):
        if body.get("Event") == "s3:TestEvent":
            return ()
        if body.get("source") == "aws.s3":
            return _of_bridge(body, scheme)
        records = body.get("Records")
        if isinstance(records, list) and records and all(map(_is_notification, records)):
            return [arrival for record in records for arrival in _of_notification(record, scheme)]
    raise InvalidRequest(
        "not an event of S3",
        next_step="Send S3 notifications or EventBridge's 'Object Created' events of the bucket; where "
        "they come through SNS, turn on raw message delivery",
    )


def _is_notification(record: Any) -> bool:
    return isinstance(record, dict) and record.get("eventSource") == "aws:s3"


def _of_notification(record: dict[str, Any], scheme: str) -> Sequence[Arrival]:
    event = validated(_Notification, record)
    # Servers of other makers name it as a configuration does: "s3:ObjectCreated:Put".
    if not event.event_name.removeprefix("s3:").startswith("ObjectCreated:"):
        return ()
    detail = event.s3
    key = unquote_plus(detail.object.key)
    return _arrival(scheme, detail.bucket.name, key, detail.object, event.event_time)


def _of_bridge(body: dict[str, Any], scheme: str) -> Sequence[Arrival]:
    event = validated(_Bridged, body)
    if event.detail_type != "Object Created":
        return ()
    detail = event.detail
    return _arrival(scheme, detail.bucket.name, detail.object.key, detail.object, event.time)


def _arrival(
    scheme: str, bucket: str, key: str, detail: _NotifiedObject | _BridgedObject, at: datetime
) -> Sequence[Arrival]:
    landing = f"{settings.prefix()}{LANDING}"
    table, slash, path = key.removeprefix(landing).partition("/")
    is_landed = key.startswith(landing)
    # Markers are no news wherever they are: consoles and pyarrow make one of the landing zone itself.
    if is_landed and IngestSource.is_ignored(path if slash else table, size=detail.size):
        return ()
    if key.startswith(f"{settings.prefix()}{TABLES}"):
        return ()
    if not is_landed or not slash:
        raise InvalidRequest(
            "the object is not in a table's landing zone",
            key=key,
            next_step=f"Put it under {landing}<table>/",
        )
    check_table_name(table)
    source = IngestSource.of_event(
        scheme, bucket, key, etag=detail.etag, version_id=detail.version_id, at=at
    )
    return (Arrival(table, source),)

"""Reading S3 event notifications: the same object gives the same source, in whatever form it is
reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inlay.errors import InvalidRequest
from inlay.functions.arrivals import Arrival, read_arrivals
from inlay.functions.validation import check_table_name

from .conftest import event

NOON_US = 1_795_176_000_000_000  # 2026-11-20T12:00:00Z


def notified(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = event("ingest.direct_s3")
    body["Records"][0]["s3"]["object"].update(changes)
    return body


def bridged(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = event("ingest.eventbridge")
    body["detail"]["object"].update(changes)
    return body


def one(body: Any) -> Arrival:
    (arrival,) = read_arrivals(body)
    return arrival


def test_a_notification_and_eventbridge_name_one_identity() -> None:
    told, bridge = one(notified()), one(bridged())
    assert told.table == bridge.table == "orders"
    assert told.source.identity == bridge.source.identity
    assert told.source.location.uri == (
        "s3://inlay-123456789012-us-east-1/ingest/orders/orders.parquet"
    )


def test_a_version_id_is_the_identity_where_there_is_one() -> None:
    first = one(notified(versionId="v1")).source.identity
    assert first == one(bridged(**{"version-id": "v1"})).source.identity
    assert first != one(notified(versionId="v2")).source.identity


@pytest.mark.parametrize("version", ["null", "", None])
def test_without_versioning_the_etag_is_the_identity(version: str | None) -> None:
    assert one(notified(versionId=version)).source.identity == one(notified()).source.identity
    assert one(notified(eTag="0" * 32)).source.identity != one(notified()).source.identity


@pytest.mark.parametrize(
    ("told", "key"),
    [
        ("ingest/orders/a+b.parquet", "ingest/orders/a b.parquet"),
        ("ingest%2Forders%2Fa%2Bb.parquet", "ingest/orders/a+b.parquet"),
        ("ingest/orders/100%25.parquet", "ingest/orders/100%.parquet"),
        ("ingest/orders/%C3%A9.parquet", "ingest/orders/é.parquet"),
        ("ingest/orders/../x.parquet", "ingest/orders/../x.parquet"),
    ],
)
def test_notifications_encode_keys_and_eventbridge_does_not(told: str, key: str) -> None:
    assert one(notified(key=told)).source.location.key == key
    assert one(bridged(key=key)).source.location.key == key


def test_the_time_of_the_event_is_in_microseconds() -> None:
    assert one(notified()).source.event_time_us == NOON_US + 123_000
    assert one(bridged()).source.event_time_us == NOON_US


@pytest.mark.parametrize("key", ["tables/orders/data/a.parquet", "tables/orders/_latest_manifest"])
def test_what_tables_consist_of_is_no_news(key: str) -> None:
    """A rule of EventBridge for the whole bucket tells of each object that a commit writes: none of them is
    a dead letter."""
    assert not read_arrivals(notified(key=key))
    assert not read_arrivals(bridged(key=key))


def test_an_event_may_be_named_as_in_a_configuration() -> None:
    body = notified()
    body["Records"][0]["eventName"] = "s3:ObjectCreated:CompleteMultipartUpload"
    assert one(body) == one(notified())
    body["Records"][0]["eventName"] = "s3:ObjectRemoved:Delete"
    assert not read_arrivals(body)


def test_one_message_may_name_several_objects() -> None:
    body = notified()
    body["Records"] += notified(key="ingest/people/p.parquet")["Records"]
    assert [arrival.table for arrival in read_arrivals(body)] == ["orders", "people"]


@pytest.mark.parametrize(
    "path",
    ["", "day=1/", "_SUCCESS", ".part.crc", "_temporary/0/a.parquet", "day=1/.hidden/a.parquet"],
)
def test_what_is_not_meant_as_data_is_no_arrival(path: str) -> None:
    assert list(read_arrivals(notified(key=f"ingest/orders/{path}"))) == []


@pytest.mark.parametrize(
    "name", ["ObjectRemoved:Delete", "ObjectRestore:Completed", "LifecycleExpiration:Delete"]
)
def test_other_events_of_s3_are_no_arrivals(name: str) -> None:
    body = notified()
    body["Records"][0]["eventName"] = name
    assert list(read_arrivals(body)) == []


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "text",
        {},
        {"Records": []},
        {"Records": ["x"]},
        {"Records": [{"eventSource": "aws:sqs"}]},
        {"Records": [{"eventSource": "aws:s3"}]},
        {"source": "aws.s3"},
        {"source": "aws.ec2", "detail-type": "Object Created"},
        notified(key=""),
        {"Type": "Notification", "Message": json.dumps(notified())},  # of SNS, not raw
    ],
)
def test_what_is_not_s3s_news_is_refused(body: Any) -> None:
    with pytest.raises(InvalidRequest):
        read_arrivals(body)


@pytest.mark.parametrize("name", ["orders", "Orders_2", "1", "a.b-c", "_private", "x" * 128])
def test_names_of_tables(name: str) -> None:
    assert check_table_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a..b", ".hidden", "-x", "a/b", "a b", "é", "a\n", "x" * 129]
)
def test_no_names_of_tables(name: str) -> None:
    with pytest.raises(InvalidRequest, match="not a valid table name"):
        check_table_name(name)


@pytest.mark.parametrize(
    "key", ["ingest/", "ingest/_SUCCESS", "ingest/.DS_Store", "ingest/orders/", "ingest/bad..name/"]
)
def test_markers_are_no_news_wherever_they_are(key: str) -> None:
    body = json.loads(event("ingest.normal")["Records"][0]["body"])
    body["Records"][0]["s3"]["object"] |= {"key": key, "size": 0}
    assert list(read_arrivals(body)) == []


def test_an_empty_object_is_no_news_and_an_unknown_size_is_read() -> None:
    body = json.loads(event("ingest.normal")["Records"][0]["body"])
    found = body["Records"][0]["s3"]["object"]
    found["size"] = 0
    assert list(read_arrivals(body)) == []
    del found["size"]
    assert len(read_arrivals(body)) == 1

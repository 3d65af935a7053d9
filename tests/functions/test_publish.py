"""The publish function: soon after each commit, and by schedule."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from inlay.format import keys

from .conftest import ORDERS, Functions, event


def published(functions: Functions) -> Any:
    answer = functions.store.get(f"tables/orders/{keys.PUBLISHED_POINTER}")
    body = getattr(answer, "body", None)
    return None if body is None else json.loads(body)["metadata"]["current-snapshot-id"]


def orders(functions: Functions, **properties: object) -> Any:
    table = functions.create_orders(**properties)
    functions.land()
    functions.replay("ingest.normal")
    return table.refresh()


def test_a_swapped_pointer_is_published_and_a_second_event_changes_nothing(
    functions: Functions,
) -> None:
    table = orders(functions, **{"publish.format": "v3"})
    assert functions.replay("publish.pointer") == {"batchItemFailures": []}
    assert published(functions) == table.version
    before = functions.store.get(f"tables/orders/{keys.PUBLISHED_POINTER}")
    functions.replay("publish.pointer")
    assert functions.store.get(f"tables/orders/{keys.PUBLISHED_POINTER}").etag == before.etag  # type: ignore[union-attr]


def test_a_batch_of_events_makes_one_publication(functions: Functions) -> None:
    table = orders(functions, **{"publish.format": "v3"})
    many = event("publish.pointer")
    many["Records"] = [{**many["Records"][0], "messageId": f"m{n}"} for n in range(5)]
    assert functions.invoke("publish", many) == {"batchItemFailures": []}
    assert published(functions) == table.version


def test_a_table_that_is_not_to_be_published_is_left_alone(functions: Functions) -> None:
    orders(functions)
    functions.replay("publish.pointer")
    functions.round("publish.schedule")
    assert published(functions) is None


def test_the_schedule_finds_what_no_event_named(functions: Functions) -> None:
    table = orders(functions, **{"publish.format": "v3"})
    functions.round("publish.schedule")
    assert published(functions) == table.version
    table.delete("order_id < 10")
    functions.round("publish.schedule")
    assert published(functions) == table.refresh().version


def test_a_table_that_cannot_be_published_keeps_its_last_publication_and_says_so(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    table = orders(functions, **{"publish.format": "v3"})
    functions.replay("publish.pointer")
    before = published(functions)
    table.refresh().alter(add={"big": pa.uint64()})
    assert functions.replay("publish.pointer") == {"batchItemFailures": []}
    assert published(functions) == before
    told = capsys.readouterr().out
    assert '"Unpublishable":[1.0],"VersionsBehind":[1.0]' in told.replace(" ", "")
    found = functions.invoke("publish", {"table": "orders"})
    assert "column 'big'" in found["orders"]["unpublishable"]


def test_a_message_that_is_no_news_goes_to_the_dead_letters(functions: Functions) -> None:
    assert functions.replay("publish.malformed") == {"batchItemFailures": []}
    assert functions.queues.dead == ["no JSON"]


def test_the_age_of_what_is_published_is_a_metric(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    orders(functions, **{"publish.format": "v3"})
    functions.clock.pass_days(0.5)
    functions.replay("publish.pointer")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [lag] = [each["PublishLagSeconds"][0] for each in lines if "PublishLagSeconds" in each]
    assert 43_199 < lag < 43_300


def test_a_file_that_cannot_be_read_makes_a_table_unpublishable_and_no_dead_letters(
    functions: Functions,
) -> None:
    """The owner of an adopted file overwrote it: each commit, and each round, would bury a message."""
    table = orders(functions, **{"publish.format": "v3"})
    functions.store.at("theirs").put("x.parquet", ORDERS)
    table.ingest(["memory://theirs/x.parquet"], adopt=True)
    table.delete("customer_id = 7")
    functions.store.at("theirs").put("x.parquet", b"PAR1 is no more")
    functions.replay("publish.pointer")
    functions.round("publish.schedule")
    assert functions.queues.dead == []
    found = functions.invoke("publish", {"table": "orders"})["orders"]
    assert "the deletes of a file cannot be settled" in found["unpublishable"]

"""Events of what is finished: told at least once under one id, and of no weight for what they tell of."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws

from inlay.functions import completion

from .conftest import BUCKET, Functions, event, few, fresh, landing_message


class Bus:
    """Stands for EventBridge: keeps what was put, and refuses what it would refuse."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.broken: str | None = None

    def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - AWS's name
        assert 0 < len(Entries) <= 10, "EventBridge takes ten entries"
        assert sum(len(json.dumps(each)) for each in Entries) <= 262_144
        if self.broken == "error":
            raise ConnectionError("no route to EventBridge")
        if self.broken == "entries":
            return {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "Throttled"} for _ in Entries]}
        for each in Entries:
            assert each["Source"] == "inlay" and each["EventBusName"] == "done"
            self.told.append((each["DetailType"], json.loads(each["Detail"])))
        return {"FailedEntryCount": 0, "Entries": [{"EventId": "1"} for _ in Entries]}

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [detail for told, detail in self.told if told == kind]


@pytest.fixture
def bus(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> Bus:
    made = Bus()
    monkeypatch.setattr(completion, "events", lambda: made)
    functions.set_variable("INLAY_COMPLETION_BUS", "done")
    return made


def left_of(functions: Functions, batch: dict[str, Any]) -> set[str]:
    """The messages that come again; where it is all of them, the invocation fails."""
    try:
        answer = functions.invoke("ingest", batch)
    except BatchProcessingError:
        return {record["messageId"] for record in batch["Records"]}
    return {each["itemIdentifier"] for each in answer["batchItemFailures"]}


def test_every_content_is_told_once_more_when_its_message_comes_again(
    functions: Functions, bus: Bus
) -> None:
    functions.create_orders()
    batch: dict[str, Any] = {"Records": []}
    for n in range(12):
        message = landing_message(functions, few(n + 1, 1_000 * n), f"ingest/orders/{n}.parquet")
        batch["Records"] += message["Records"]
    functions.invoke("ingest", batch)
    first = bus.of(completion.CONTENT)
    assert [each["rows"] for each in first] == [*range(1, 13)]
    assert {each["table_version"] for each in first} == {functions.orders().version}
    functions.invoke("ingest", batch)
    again = bus.of(completion.CONTENT)[12:]
    assert [each["id"] for each in again] == [each["id"] for each in first]
    assert len({each["id"] for each in first}) == 12
    assert all(each["repeated"] for each in again)


@pytest.mark.parametrize("broken", ["error", "entries"])
def test_what_cannot_be_told_stands_and_its_message_comes_again(
    functions: Functions, bus: Bus, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    functions.create_orders()
    bus.broken = broken
    message = landing_message(functions, few(3))
    for _ in range(2):
        assert left_of(functions, message) == {message["Records"][0]["messageId"]}
        assert functions.rows() == 3
    assert functions.queues.dead == []
    metrics = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(each.get("EventsNotSent", [0])[0] for each in metrics) == 2
    bus.broken = None
    assert left_of(functions, message) == set()
    assert len(bus.of(completion.CONTENT)) == 1 and functions.rows() == 3


@settings(deadline=None, max_examples=30)
@given(refuse=st.lists(st.booleans(), max_size=40), files=st.integers(1, 12))
def test_whatever_eventbridge_refuses_each_content_is_told_before_its_message_is_done(
    refuse: list[bool], files: int
) -> None:
    with fresh() as functions, pytest.MonkeyPatch.context() as patch:
        bus, answers = Bus(), iter(refuse)

        def put_some(Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - AWS's name
            said = []
            for each in Entries:
                if not next(answers, False):
                    bus.put_events([each])
                    said.append({"EventId": "1"})
                else:
                    said.append({"ErrorCode": "Throttled"})
            return {"FailedEntryCount": 0, "Entries": said}

        patch.setattr(completion, "events", lambda: SimpleNamespace(put_events=put_some))
        functions.set_variable("INLAY_COMPLETION_BUS", "done")
        functions.create_orders()
        left: dict[str, Any] = {}
        for n in range(files):
            made = landing_message(functions, few(1, 1_000 * n), f"ingest/orders/{n}.parquet")
            left[f"m{n}"] = {**made["Records"][0], "messageId": f"m{n}"}
        told: set[str] = set()
        for _ in range(len(refuse) + 1):  # each refuses at least one
            again = left_of(functions, {"Records": [*left.values()]})
            uris = {each["uri"] for each in bus.of(completion.CONTENT)}
            told = {f"m{uri.rpartition('/')[2].removesuffix('.parquet')}" for uri in uris}
            assert told >= left.keys() - again
            left = {name: each for name, each in left.items() if name in again}
            if not left:
                break
        assert not left and len(told) == files and functions.rows() == files


def erase(functions: Functions) -> None:
    functions.fill_orders()
    functions.orders().delete(where="order_id = 1", mode="erase", request_id="case-7")


def until_told(functions: Functions, name: str) -> list[str]:
    for _ in range(6):
        functions.round("rewrite.schedule")
        functions.round(name)
        functions.clock.pass_days(0.05)
        receipts = [o.key for o in functions.store.list("tables/orders/erasure/")]
        if receipts:
            return receipts
    raise AssertionError("no receipt")


def test_a_receipt_is_told_and_told_again_by_the_daily_collection(
    functions: Functions, bus: Bus
) -> None:
    erase(functions)
    [receipt] = until_told(functions, "collect_garbage.erasures")
    [first] = bus.of(completion.ERASURE)
    assert first["receipt"] == f"memory://{BUCKET}/{receipt}"
    functions.round("collect_garbage.schedule")
    assert bus.of(completion.ERASURE) == [first, first]
    functions.clock.pass_days(3)
    functions.round("collect_garbage.schedule")
    assert len(bus.of(completion.ERASURE)) == 2


def test_without_a_bus_nothing_is_told(
    functions: Functions, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions.set_variable("INLAY_COMPLETION_BUS", "")
    functions.create_orders()
    functions.invoke("ingest", landing_message(functions, few(3)))
    assert bus.told == []


@mock_aws
def test_eventbridge_takes_them(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    boto3.client("events", region_name="eu-west-1").create_event_bus(Name="done")
    completion.events.cache_clear()
    functions.set_variable("INLAY_COMPLETION_BUS", "done")
    functions.create_orders()
    said: list[Any] = []
    client = completion.events()
    put = client.put_events
    monkeypatch.setattr(client, "put_events", lambda **given: said.append(put(**given)) or said[-1])
    functions.invoke("ingest", landing_message(functions, few(3)))
    completion.events.cache_clear()
    assert [each["FailedEntryCount"] for each in said] == [0]


def test_the_sample_has_the_fields_that_are_told(functions: Functions, bus: Bus) -> None:
    sample = {each["detail-type"]: set(each["detail"]) for each in event("completion")}
    functions.create_orders()
    functions.invoke("ingest", landing_message(functions, few(3)))
    [told] = bus.of(completion.CONTENT)
    assert sample[completion.CONTENT] == {*told, "refused_in"}
    assert sample[completion.ERASURE] == {"id", "table", "receipt"}

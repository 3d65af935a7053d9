"""How the pump reads a function's answer: a message must never be deleted by mistake."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from inlay.local.event_sources import EventSources, failed_messages
from inlay.local.runtime_api import Failed, Invocation, Returned
from inlay.local.template import Schedule

SENT = ["a", "b", "c"]


@pytest.mark.parametrize(
    "payload", [None, {}, {"batchItemFailures": []}, {"batchItemFailures": None}]
)
def test_no_failures_named_means_all_are_done(payload: Any) -> None:
    assert failed_messages(Returned(payload), SENT) == set()


def test_named_failures_come_again() -> None:
    payload = {"batchItemFailures": [{"itemIdentifier": "b"}]}
    assert failed_messages(Returned(payload), SENT) == {"b"}


@pytest.mark.parametrize(
    "payload",
    [
        "done",
        ["a"],
        {"batchItemFailures": [{}]},
        {"batchItemFailures": ["b"]},
        {"batchItemFailures": [{"itemIdentifier": ""}]},
        {"batchItemFailures": [{"itemIdentifier": "another batch's"}]},
    ],
)
def test_a_garbled_answer_brings_all_again(payload: Any) -> None:
    assert failed_messages(Returned(payload), SENT) == set(SENT)


@pytest.mark.parametrize("how", ["error", "timeout", "exit"])
def test_a_failed_invocation_brings_all_again(how: Any) -> None:
    assert failed_messages(Failed(how, "whatever"), SENT) == set(SENT)


def test_a_schedule_that_is_often_due_does_not_keep_the_others_from_running() -> None:
    """However much time is compressed, a schedule waits for its own last run, and for no other's."""
    release, enough = threading.Event(), threading.Event()
    runs: list[str] = []

    def invoke(function: str, event: Any) -> Invocation:
        runs.append(function)
        if function == "slow":
            release.wait()
        elif runs.count("quick") == 5:
            enough.set()
        return Returned(None)

    sources = EventSources(
        sqs=None,  # type: ignore[arg-type]  # there are no queues
        region="us-east-1",
        invoke=invoke,
        sources=[],
        schedules=[Schedule("slow", 60), Schedule("quick", 3600)],
        retry_seconds=0,
        max_concurrency=1,
        schedule_speed=1e6,
    )
    sources.start()
    assert enough.wait(60)
    assert runs.count("slow") == 1 and sources.running_schedules >= 1
    release.set()
    sources.stop()

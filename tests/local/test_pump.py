"""How the pump reads a function's answer: a message must never be deleted by mistake."""

from __future__ import annotations

from typing import Any

import pytest

from inlay.local.event_sources import failed_messages
from inlay.local.runtime import Failed, Returned

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

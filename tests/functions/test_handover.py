"""The queue of tables handed over to Spark: a message of another kind ends no job and opens no other
location."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pipelines.compact import GIVEN_BACK, handed_over, main

UNDER = ["s3://lake/tables/"]
GOOD = "s3://lake/tables/events"


class Queue:
    """SQS with a redrive policy: the fifth receive is the last."""

    def __init__(self, *bodies: str, tries: int = 5) -> None:
        self.waiting = [{"Body": b, "MessageId": str(n)} for n, b in enumerate(bodies)]
        self.hidden: list[dict[str, Any]] = []
        self.received: dict[str, int] = {}
        self.dead: list[str] = []
        self.tries = tries

    def receive_message(self, **_: object) -> dict[str, object]:
        while self.waiting:
            message = self.waiting.pop(0)
            name = message["MessageId"]
            self.received[name] = self.received.get(name, 0) + 1
            if self.received[name] > self.tries:
                self.dead.append(message["Body"])
                continue
            self.hidden.append(message)
            return {"Messages": [{**message, "ReceiptHandle": name}]}
        return {}

    def _take(self, receipt: str) -> dict[str, Any]:
        [message] = [each for each in self.hidden if each["MessageId"] == receipt]
        self.hidden.remove(message)
        return message

    def delete_message(self, *, QueueUrl: str, ReceiptHandle: str) -> None:  # noqa: N803
        self._take(ReceiptHandle)

    def change_message_visibility(self, *, ReceiptHandle: str, **_: object) -> None:  # noqa: N803
        self.waiting.append(self._take(ReceiptHandle))


BAD = [
    "not JSON",
    "[]",
    "{}",
    '{"table": 1}',
    '{"table": "s3://elsewhere/tables/events"}',
    '{"table": "s3://lake/tables/../secrets"}',
    '{"table": "s3://lake/tablesque/events"}',
    '{"table": "s3://lake/tables//events"}',
    '{"table": "file:///etc/passwd"}',
    '{"table": "s3://lake/tables/"}',
    "[" * 100_000,
]


def test_what_is_no_handover_goes_to_the_dead_letters_and_the_others_are_taken() -> None:
    good = json.dumps({"table": GOOD, "left_bytes": 1})
    queue = Queue(*BAD, good)
    refused: list[Any] = []
    assert list(handed_over(queue, "url", under=UNDER, refused=refused.append)) == [GOOD]
    assert sorted(queue.dead) == sorted(BAD)
    assert [each["message"] for each in refused] == [str(n) for n in range(len(BAD))]
    assert "elsewhere" not in json.dumps(refused)


def test_a_queue_without_dead_letters_ends_the_job_all_the_same() -> None:
    queue = Queue("not JSON", tries=10**9)
    assert list(handed_over(queue, "url", under=UNDER)) == []
    assert queue.received == {"0": GIVEN_BACK}


def test_a_queue_needs_the_prefix_of_its_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Session:
        def stop(self) -> None:
            return None

    monkeypatch.setattr("pipelines.job._session", lambda asked: Session())
    assert main(["--queue", "https://sqs.example/1/handover"]) == 1
    assert "--under" in capsys.readouterr().err

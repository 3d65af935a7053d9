"""What drives the functions in AWS: event source mappings and schedules.

Promise: a message is deleted only after the function said that it dealt with it; a batch is never
larger than the mapping allows, nor older than its window; one that fails becomes visible again and
SQS itself moves it to the dead letters after its last try.

Three things differ from AWS on purpose. A failed message comes back after `retry_seconds` instead of
the queue's visibility timeout, which is made for machines that nobody watches. While somebody waits for
the queues to drain, a batch does not wait for its window. And a schedule is not due again while its last
run waits or runs: at `schedule_speed` above 1 work takes as long as ever, so runs would pile up, and
the schedule that is most often due would keep the others' from ever beginning.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from inlay.local.runtime_api import Failed, Invocation
from inlay.local.template import ACCOUNT, EventSource, Schedule

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef

Invoke = Callable[[str, Any], Invocation]

# An idle queue is asked this often. Long polling would hold the embedded server's lock.
_IDLE_SECONDS = 0.2
# SQS hands out and deletes at most ten messages a request.
_SQS_BATCH = 10
# AWS: a batch is handed over before its payload exceeds 6 MB.
_MAX_BATCH_BYTES = 6_000_000


@dataclass(frozen=True, slots=True)
class Attached:
    """A mapping whose queue exists."""

    source: EventSource
    queue_url: str
    queue_arn: str


@dataclass(kw_only=True, eq=False)
class EventSources:
    """Threads that poll the queues and run the schedules until `stop`."""

    sqs: SQSClient
    region: str
    invoke: Invoke
    sources: Sequence[Attached]
    schedules: Sequence[Schedule]
    retry_seconds: float
    max_concurrency: int
    schedule_speed: float
    _stopping: threading.Event = field(default_factory=threading.Event)
    _hurried: int = 0
    _scheduled: set[Schedule] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        for attached in self.sources:
            self._run(partial(self._follow, attached), attached.source.function)
        if self.schedules:
            self._run(self._keep_time, "schedules")

    def stop_taking(self) -> None:
        """Take no further batch and start no further run."""
        self._stopping.set()

    def stop(self) -> None:
        """End the threads; call it after the functions were stopped, so that none is waited for."""
        self.stop_taking()
        for thread in self._threads:
            thread.join()

    @property
    def running_schedules(self) -> int:
        """How many scheduled runs are under way."""
        return len(self._scheduled)

    @contextmanager
    def hurry(self) -> Iterator[None]:
        """Inside, batches do not wait for their windows."""
        with self._lock:
            self._hurried += 1
        try:
            yield
        finally:
            with self._lock:
                self._hurried -= 1

    # -- event source mappings --------------------------------------------------------------------

    def _follow(self, attached: Attached) -> None:
        source = attached.source
        width = max(1, min(source.max_concurrency, self.max_concurrency))
        slots = threading.Semaphore(width)
        with ThreadPoolExecutor(width, thread_name_prefix=source.function) as workers:
            while not self._stopping.is_set():
                if not slots.acquire(timeout=_IDLE_SECONDS):
                    continue
                try:
                    batch = self._gather(attached)
                except (BotoCoreError, ClientError):
                    batch = []  # the server is going away, or will be back
                if not batch:
                    slots.release()
                    self._stopping.wait(_IDLE_SECONDS)
                    continue
                done = workers.submit(self._process, attached, batch)
                done.add_done_callback(lambda _: slots.release())

    def _gather(self, attached: Attached) -> list[MessageTypeDef]:
        """The next batch: full, or as old as its window, or empty."""
        batch: list[MessageTypeDef] = []
        size = 0
        opened = time.monotonic()
        while len(batch) < attached.source.batch_size and size < _MAX_BATCH_BYTES:
            got = self.sqs.receive_message(
                QueueUrl=attached.queue_url,
                MaxNumberOfMessages=min(_SQS_BATCH, attached.source.batch_size - len(batch)),
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
                WaitTimeSeconds=0,
            ).get("Messages", [])
            if got and not batch:
                opened = time.monotonic()
            batch += got
            size += sum(len(message["Body"]) for message in got)
            if got:
                continue
            window_over = time.monotonic() - opened >= attached.source.window_seconds
            if not batch or window_over or self._hurried or self._stopping.is_set():
                break
            self._stopping.wait(_IDLE_SECONDS)
        return batch

    def _process(self, attached: Attached, batch: Sequence[MessageTypeDef]) -> None:
        records = [self._record(attached, message) for message in batch]
        outcome = self.invoke(attached.source.function, {"Records": records})
        failed = failed_messages(outcome, [message["MessageId"] for message in batch])
        if not attached.source.partial_failures and failed:
            failed = {message["MessageId"] for message in batch}
        try:
            self._settle(attached, batch, failed)
        except (BotoCoreError, ClientError):
            return  # what could not be deleted comes again; the functions expect that

    def _settle(
        self, attached: Attached, batch: Sequence[MessageTypeDef], failed: set[str]
    ) -> None:
        for some in _in_tens([message for message in batch if message["MessageId"] not in failed]):
            self.sqs.delete_message_batch(
                QueueUrl=attached.queue_url,
                Entries=[
                    {"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]}
                    for at, message in enumerate(some)
                ],
            )
        for some in _in_tens([message for message in batch if message["MessageId"] in failed]):
            self.sqs.change_message_visibility_batch(
                QueueUrl=attached.queue_url,
                Entries=[
                    {
                        "Id": str(at),
                        "ReceiptHandle": message["ReceiptHandle"],
                        "VisibilityTimeout": round(self.retry_seconds),
                    }
                    for at, message in enumerate(some)
                ],
            )

    def _record(self, attached: Attached, message: MessageTypeDef) -> dict[str, Any]:
        """A received message as Lambda shows it to a function."""
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message.get("Attributes", {}),
            "messageAttributes": {
                name: {"stringValue": value.get("StringValue"), "dataType": value["DataType"]}
                for name, value in message.get("MessageAttributes", {}).items()
            },
            "md5OfBody": message["MD5OfBody"],
            "eventSource": "aws:sqs",
            "eventSourceARN": attached.queue_arn,
            "awsRegion": self.region,
        }

    # -- schedules --------------------------------------------------------------------------------

    def _keep_time(self) -> None:
        due = {
            one: time.monotonic() + one.every_seconds / self.schedule_speed
            for one in self.schedules
        }
        while not self._stopping.wait(max(0.0, min(due.values()) - time.monotonic())):
            for schedule, at in due.items():
                if at <= time.monotonic():
                    due[schedule] = time.monotonic() + schedule.every_seconds / self.schedule_speed
                    with self._lock:
                        is_under_way = schedule in self._scheduled
                        self._scheduled.add(schedule)
                    if not is_under_way:
                        self._run(partial(self._fire, schedule), "scheduled")

    def _fire(self, schedule: Schedule) -> None:
        try:
            self.invoke(schedule.function, scheduled_event(schedule, self.region))
        finally:
            with self._lock:
                self._scheduled.discard(schedule)

    def _run(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=f"event-source-{name}", daemon=True)
        self._threads = [running for running in self._threads if running.is_alive()] + [thread]
        thread.start()


def failed_messages(outcome: Invocation, sent: Sequence[str]) -> set[str]:
    """Which of the messages `sent` are to come again, read as Lambda reads a function's answer.

    No answer and an empty list mean none. An answer that names no id, or one that was not sent,
    means all: deleting a message on a garbled answer would lose it.
    """
    everything = set(sent)
    if isinstance(outcome, Failed):
        return everything
    payload = outcome.payload
    if payload is None:
        return set()
    if not isinstance(payload, dict):
        return everything
    failures = payload.get("batchItemFailures") or []
    try:
        named = {str(failure["itemIdentifier"]) for failure in failures}
    except (TypeError, KeyError):
        return everything
    return named if named <= everything else everything


def scheduled_event(schedule: Schedule, region: str) -> Any:
    """What EventBridge sends when a schedule is due: its input, else an event about itself."""
    if schedule.input is not None:
        return json.loads(schedule.input)
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": ACCOUNT,
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": region,
        "resources": [f"arn:aws:events:{region}:{ACCOUNT}:rule/{schedule.function}"],
        "detail": {},
    }


def _in_tens(messages: Sequence[MessageTypeDef]) -> Iterator[Sequence[MessageTypeDef]]:
    for start in range(0, len(messages), _SQS_BATCH):
        yield messages[start : start + _SQS_BATCH]

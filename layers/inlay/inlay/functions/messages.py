"""Batches of SQS messages: each one done, left for redelivery, or put into the dead letters.

Promise: a message that `process` does not report as failed is done or in the dead letters, so SQS may
delete it; one message's failure, or long run, never prevents the others: those that time does not allow to
begin are handed back to the queue at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from inlay.errors import InlayError, InvalidRequest, StoreUnavailable
from inlay.functions import settings
from inlay.functions.dead_letters import send_to_dead_letters
from inlay.functions.observe import (
    InternalFailure,
    ReportedFailure,
    count,
    function_name,
    logger,
    report_failure,
)
from inlay.functions.validation import without_values
from inlay.functions.verdict import QUEUE_STEP, MessageFate, code_of, fate_of

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

Work = Callable[[SQSRecord], None]

# SQS: entries of one batched request.
_SQS_BATCH = 10

# Kept back for what work does after its deadline: finish the current unit and commit it.
_KEPT_BACK = 0.25

# With less time than this, no further work of a batch is begun: enough for one constant-time delete with
# commit retries against many other writers, and for handing back the rest.
_LEAST_SECONDS = 20.0


class TimeLeft:
    """How much of an invocation's time is left, and whether more work may be begun."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._kept_back = max(_LEAST_SECONDS, self._remaining() * _KEPT_BACK)

    def _remaining(self) -> float:
        return float(self._context.get_remaining_time_in_millis()) / 1_000

    def seconds(self) -> float:
        """How long work may continue before it has to finish."""
        return max(0.0, self._remaining() - self._kept_back)

    def for_more(self) -> bool:
        return self.seconds() > 0


def seconds_left(context: Any) -> float:
    """How long an invocation's only piece of work may continue before it has to finish."""
    return float(context.get_remaining_time_in_millis()) / 1_000 * (1 - _KEPT_BACK)


def is_batch(event: Any) -> bool:
    """Whether SQS delivered `event`."""
    records = event.get("Records") if isinstance(event, dict) else None
    return isinstance(records, list) and any(map(_is_of_sqs, records))


def _is_of_sqs(record: Any) -> bool:
    return isinstance(record, dict) and record.get("eventSource") == "aws:sqs"


def messages_of(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The messages of a batch, first those that were handed back most often, so that none waits for ever or
    uses up its receive count without being begun. Records of another kind, which SQS never delivers, become
    dead letters: no queue would deliver them again. Raises `InvalidRequest` if the event is not a batch."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        raise InvalidRequest(
            "the event is not a batch of SQS messages",
            next_step="Send the request to the function's queue (docs/OPERATE.md)",
        )
    for record in records:
        if not _is_message(record):
            error = InvalidRequest("a record among the messages is not an SQS message")
            report_failure(error, fate=MessageFate.DEAD_LETTER.value, message_id="")
            dead_letter(json.dumps(record), error, message_id="")
    return sorted(filter(_is_message, records), key=_received, reverse=True)


def _is_message(record: Any) -> bool:
    texts = ("messageId", "body")
    return _is_of_sqs(record) and all(isinstance(record.get(name), str) for name in texts)


class NotBegun(ReportedFailure):
    """This invocation had no time for the message, or its budget was used up: nothing is wrong with it."""


def process(
    records: Sequence[Mapping[str, Any]], context: Any, work: Work, *, done: Container[str] = ()
) -> Mapping[str, Any]:
    """Does `work` on each message (`messages_of`); the answer names those to be delivered again.

    The first is always begun, the others while there is time; nothing is left to do for the ids in `done`,
    which no lack of time hands back. When every message of the batch has to be
    delivered again the invocation itself fails, so that the function's alarm detects an unavailable
    store."""
    if not records:
        return {"batchItemFailures": []}
    time_left = TimeLeft(context)
    handed_back: list[SQSRecord] = []
    begun = False

    def handle(record: SQSRecord) -> None:
        nonlocal begun
        if record.message_id in done:
            return
        try:
            if begun and not time_left.for_more():
                raise NotBegun("no time left")
            begun = True
            work(record)
        except NotBegun:
            handed_back.append(record)
            raise
        except Exception as error:
            fate = fate_of(error)
            report_failure(error, fate=fate.value, message_id=record.message_id)
            if not isinstance(error, InlayError):
                raise InternalFailure(type(error).__name__) from None
            match fate:
                case MessageFate.RETRY:
                    raise
                case MessageFate.DEAD_LETTER:
                    dead_letter(
                        record.body,
                        error,
                        message_id=record.message_id,
                        sent_us=sent_time_us(record),
                        source_arn=record.event_source_arn,
                    )

    answer = process_partial_response(
        event={"Records": list(records)},
        record_handler=handle,
        processor=BatchProcessor(event_type=EventType.SQS),
        context=context,
    )
    if handed_back:
        _hand_back(handed_back)
    return cast("Mapping[str, Any]", answer)


def _hand_back(records: Sequence[SQSRecord]) -> None:
    """Makes the messages visible to others now, not when the visibility timeout ends. If that fails, they
    become visible then."""
    count(None, {"HandedBack": len(records)})
    logger.info("handed back", extra={"messages": len(records)})
    queue = settings.source_queue_url(records[0].event_source_arn)
    if queue is None:
        return
    with suppress(Exception):
        for start in range(0, len(records), _SQS_BATCH):
            some = records[start : start + _SQS_BATCH]
            sqs().change_message_visibility_batch(
                QueueUrl=queue,
                Entries=[
                    {"Id": str(at), "ReceiptHandle": message.receipt_handle, "VisibilityTimeout": 0}
                    for at, message in enumerate(some)
                ],
            )


def _received(record: Mapping[str, Any]) -> int:
    try:
        return int(record["attributes"]["ApproximateReceiveCount"])
    except (KeyError, TypeError, ValueError):
        return 0


def dead_letter(
    body: str, error: InlayError, *, message_id: str, sent_us: int = 0, source_arn: str = ""
) -> None:
    """Puts one message into this function's dead letters. What keeps it from there is reported: the log has
    called the message a dead letter."""
    try:
        send_to_dead_letters(
            sqs(),
            settings.dead_letters_url(source_arn),
            body,
            without_values(error),
            sent_us=sent_us,
            function=function_name(),
            message_id=message_id,
        )
    except StoreUnavailable as failure:
        report_failure(failure, fate=MessageFate.RETRY.value, message_id=message_id)
        raise


def notify_rewrite(table: str, where: str | None = None, *, hops: int = 0) -> None:
    """Notifies the rewrite function that a table has something to rewrite: everything, or files that may
    hold a row for which `where` is TRUE. Only a hint: its schedule finds what is lost here. `hops` is how
    often rewriting has notified itself."""
    asked: dict[str, Any] = {"table": table}
    if where is not None:
        asked["where"] = where
    if hops:
        asked["hops"] = hops
    _send(settings.queue_url("rewrite"), asked)


def forward_delete(table: str, request: Mapping[str, Any]) -> None:
    """Forwards a delete request that has to read data to the rewrite function. The request includes its id
    and time, so that it stays the same however often it is forwarded."""
    _send(settings.queue_url("rewrite"), {"table": table, "delete": request})


def send_to_ingest(event: Mapping[str, Any]) -> None:
    """Notifies the ingest function of a landed file."""
    _send(settings.queue_url("ingest"), event)


def hand_over(uri: str, left_units: int, left_bytes: int) -> None:
    """Notifies the operator of Spark that a table's compaction backlog is too large for this function."""
    body = {"table": uri, "left_units": left_units, "left_bytes": left_bytes}
    _send(settings.queue_url("handover"), body)


def _send(queue: str, body: Mapping[str, Any]) -> None:
    with _asking():
        sqs().send_message(QueueUrl=queue, MessageBody=json.dumps(body))


def send_all(queue: str, bodies: Sequence[Mapping[str, Any]]) -> None:
    """Put messages into a queue, ten a request."""
    for start in range(0, len(bodies), _SQS_BATCH):
        entries = [
            {"Id": str(at), "MessageBody": json.dumps(body)}
            for at, body in enumerate(bodies[start : start + _SQS_BATCH])
        ]
        with _asking():
            answer = sqs().send_message_batch(QueueUrl=queue, Entries=entries)  # type: ignore[arg-type]
        if answer.get("Failed"):
            raise StoreUnavailable(f"a queue did not accept {len(answer['Failed'])} messages")


def waiting_at(queue: str) -> int:
    """How many messages of a queue are waiting, according to SQS."""
    with _asking():
        attributes = sqs().get_queue_attributes(
            QueueUrl=queue, AttributeNames=["ApproximateNumberOfMessages"]
        )
    return int(attributes["Attributes"]["ApproximateNumberOfMessages"])


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except Exception as failure:
        raise StoreUnavailable(
            f"a queue refuses a request: {code_of(failure)}", next_step=QUEUE_STEP
        ) from failure


def sent_time_us(record: SQSRecord) -> int:
    """When the message was sent, by SQS's clock; a redelivery keeps it."""
    return int(record.attributes.sent_timestamp or 0) * 1_000


@cache
def sqs() -> SQSClient:
    """The process's SQS client, created when first needed: most invocations need none."""
    import boto3

    # Lambda sets it; the SDK itself only looks at AWS_DEFAULT_REGION.
    return boto3.client("sqs", region_name=os.environ.get("AWS_REGION"))

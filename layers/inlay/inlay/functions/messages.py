"""Batches of SQS messages: each one done, left to come again, or put into the dead letters.

Promise: what `process` does not report as failed is done or buried, so SQS may delete it; one
message's failure never keeps another from being done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from inlay.errors import InlayError
from inlay.functions import settings
from inlay.functions.dead_letters import bury
from inlay.functions.observe import Unexpected, function_name, tell_failure
from inlay.functions.verdict import Fate, fate_of

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

Work = Callable[[SQSRecord], None]


def is_batch(event: Any) -> bool:
    """Whether SQS delivered `event`."""
    records = event.get("Records") if isinstance(event, dict) else None
    return isinstance(records, list) and any(
        isinstance(record, dict) and record.get("eventSource") == "aws:sqs" for record in records
    )


def process(event: Mapping[str, Any], context: Any, work: Work) -> Mapping[str, Any]:
    """Do `work` on each message; the answer names those that are to come again.

    When every message of the batch has to come again the invocation itself fails, so that the
    function's alarm sees a store that is down."""

    def settle(record: SQSRecord) -> None:
        try:
            work(record)
        except Exception as error:
            fate = fate_of(error)
            tell_failure(error, fate=fate.value, message_id=record.message_id)
            if not isinstance(error, InlayError):
                raise Unexpected(type(error).__name__) from None
            if fate is Fate.RETRY:
                raise
            bury_message(record.body, error, message_id=record.message_id)

    answer = process_partial_response(
        event=cast("dict[str, Any]", event),
        record_handler=settle,
        processor=BatchProcessor(event_type=EventType.SQS),
        context=context,
    )
    return cast("Mapping[str, Any]", answer)


def bury_message(body: str, error: InlayError, *, message_id: str) -> None:
    """Put one message into this function's dead letters."""
    bury(
        sqs(),
        settings.dead_letters_url(),
        body,
        error,
        function=function_name(),
        message_id=message_id,
    )


def tell_rewrite(table: str, where: str | None = None) -> None:
    """Tell the rewrite function that a table has something to rewrite: everything, or files that may hold
    a row for which `where` is TRUE. Only a hint: its schedule finds what is lost here."""
    asked = {"table": table} if where is None else {"table": table, "where": where}
    sqs().send_message(QueueUrl=settings.rewrite_queue_url(), MessageBody=json.dumps(asked))


def hand_over(uri: str, left_units: int, left_bytes: int) -> None:
    """Tell whoever runs Spark that a table's backlog of compaction outgrew this function."""
    body = {"table": uri, "left_units": left_units, "left_bytes": left_bytes}
    sqs().send_message(QueueUrl=settings.handover_queue_url(), MessageBody=json.dumps(body))


def sent_time_us(record: SQSRecord) -> int:
    """When the message was sent, by SQS's clock; a redelivery keeps it."""
    return int(record.attributes.sent_timestamp or 0) * 1_000


@cache
def sqs() -> SQSClient:
    """The process's SQS client, made when first needed: most invocations need none."""
    import boto3

    return boto3.client("sqs")

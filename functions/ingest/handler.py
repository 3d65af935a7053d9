"""Files that land under `ingest/<table>/` become rows of the table, once each.

Accepts S3 event notifications in SQS batches, and also directly from S3 or EventBridge.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from inlay.errors import InlayError
from inlay.functions.arrivals import Arrival, read_arrivals
from inlay.functions.ingest_arrivals import failure_of, ingest_arrivals
from inlay.functions.messages import TimeLeft, dead_letter, is_batch, messages_of, process
from inlay.functions.observe import observed, report_failure
from inlay.functions.tables import store
from inlay.functions.validation import parse_json
from inlay.functions.verdict import MessageFate, fate_of


@observed
def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    return _batch(event, context) if is_batch(event) else _direct(event, context)


def _batch(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    """All messages together, one commit for each table; then a result for each message."""
    records = messages_of(event)
    read = {r["messageId"]: _arrivals_or_error(r["body"]) for r in records}
    arrivals = [
        a
        for arrivals_of in read.values()
        if not isinstance(arrivals_of, InlayError)
        for a in arrivals_of
    ]
    outcomes = iter(ingest_arrivals(arrivals, TimeLeft(context)))
    failures = {
        message: arrivals_of
        if isinstance(arrivals_of, InlayError)
        else failure_of(list(islice(outcomes, len(arrivals_of))))
        for message, arrivals_of in read.items()
    }

    def fail(record: SQSRecord) -> None:
        failure = failures[record.message_id]
        assert failure is not None
        raise failure

    done = {message for message, failure in failures.items() if failure is None}
    return process(records, context, fail, done=done)


def _arrivals_or_error(body: str) -> Sequence[Arrival] | InlayError:
    try:
        return _arrivals(parse_json(body))
    except InlayError as error:
        return error


def _arrivals(body: Any) -> Sequence[Arrival]:
    return read_arrivals(body, scheme=store().scheme, bucket=store().bucket)


def _direct(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    """No queue holds this event: the invoker has to repeat what can be repeated."""
    try:
        outcomes = ingest_arrivals(_arrivals(event), TimeLeft(context))
        failure = failure_of(outcomes)
        if failure is not None:
            raise failure
    except InlayError as error:
        fate = fate_of(error)
        request_id = getattr(context, "aws_request_id", "")
        report_failure(error, fate=fate.value, message_id=request_id)
        match fate:
            case MessageFate.RETRY:
                raise
            case MessageFate.DEAD_LETTER:
                dead_letter(json.dumps(event), error, message_id=request_id)
                return {"dead_letter": type(error).__name__}
    return dict(Counter(type(outcome).__name__.lower() for outcome in outcomes))

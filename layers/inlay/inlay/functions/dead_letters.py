"""Dead letters: messages that can never succeed, put aside at once with the reason.

Promise: a dead letter is the message as it was sent, so that it can be sent again as it is once the
cause is mended; its attributes say which function refused it, why, and what to do.

A queue's redrive policy alone would try such a message five times over hours first, and would say
nothing of why. So the function sends it to the dead letters itself and then lets the original be
deleted. Between the two it may crash: the letter is then there twice, which is told by its
`InlayMessageId`, and never lost.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from inlay.errors import InlayError, StoreUnavailable

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

# SQS counts attributes into the message's 1 MiB: a large letter gets a short reason.
_MAX_REASON = 1_000
_MAX_MESSAGE_BYTES = 1_048_576
# What SQS takes in a string: the characters of XML 1.0.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def bury(
    sqs: SQSClient,
    url: str,
    body: str,
    error: InlayError,
    *,
    function: str,
    message_id: str,
    sent_us: int = 0,
) -> None:
    """Send `body` to the dead letters at `url`, with `error` as its reason."""
    reasons = {
        "InlayError": type(error).__name__,
        "InlayReason": error.message,
        "InlayNextStep": error.next_step,
        "InlayTable": error.table or "",
        "InlayKey": error.key or "",
        "InlayFunction": function,
        "InlayMessageId": message_id,
        "InlaySentMicroseconds": str(sent_us) if sent_us else "",
    }
    attributes = {name: _clean(text) for name, text in reasons.items() if _clean(text)}
    if len(body.encode()) + _size(attributes) > _MAX_MESSAGE_BYTES:
        attributes = {"InlayError": attributes["InlayError"]}
    if len(body.encode()) + _size(attributes) > _MAX_MESSAGE_BYTES:
        attributes = {}
    try:
        sqs.send_message(
            QueueUrl=url,
            MessageBody=body,
            MessageAttributes={
                name: {"DataType": "String", "StringValue": text}
                for name, text in attributes.items()
            },
        )
    except Exception as failure:
        raise StoreUnavailable(
            f"the dead letters did not take a message: {type(failure).__name__}"
        ) from failure


def _clean(text: str) -> str:
    return _NOT_XML.sub("�", text)[:_MAX_REASON]


def _size(attributes: dict[str, str]) -> int:
    return sum(len(name) + len("String") + len(text.encode()) for name, text in attributes.items())

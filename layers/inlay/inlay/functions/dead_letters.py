"""Dead letters: messages that can never succeed, set aside at once with the reason.

Promise: a dead letter is the message as it was sent, so that it can be sent again once the cause is
corrected; its attributes state which function refused it, why, and what to do.

A queue's redrive policy alone would retry such a message five times over hours first, and would not record
why. So the function sends it to the dead-letter queue itself and then lets the original be deleted. If it
crashes in between, the letter exists twice, with the same `InlayMessageId`, but is never lost.

`inlay dlq` shows what the letters are about, and values only on request. A letter that is sent again is the
same request: a delete without an id gets that of its first message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import unquote_plus

from inlay.engine import decode_json
from inlay.errors import InlayError, InvalidRequest, StoreUnavailable
from inlay.functions.validation import Mode
from inlay.functions.verdict import QUEUE_STEP, code_of, of_aws

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

# SQS counts attributes into the message's 1 MiB: a large letter gets a short reason.
_MAX_REASON = 1_000
_MAX_MESSAGE_BYTES = 1_048_576
# What SQS takes in a string: the characters of XML 1.0.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def send_to_dead_letters(
    sqs: SQSClient,
    url: str,
    body: str,
    error: InlayError,
    *,
    function: str,
    message_id: str,
    sent_us: int = 0,
) -> None:
    """Sends `body` to the dead-letter queue at `url`, with `error` as its reason."""
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
            f"the dead-letter queue did not accept a message: {code_of(failure)}",
            next_step=QUEUE_STEP,
        ) from failure


def _clean(text: str) -> str:
    return _NOT_XML.sub("�", text)[:_MAX_REASON]


def _size(attributes: dict[str, str]) -> int:
    return sum(len(name) + len("String") + len(text.encode()) for name, text in attributes.items())


# -- looking after them ---------------------------------------------------------------------------

# Long enough to read all of them, short enough that an interrupted listing hides none for long.
_LOOK_SECONDS = 60
_SQS_BATCH = 10
# A table's name, or where it is.
_PLACE = re.compile(r"[A-Za-z0-9_.:/-]{1,1024}")
_TIME = re.compile(r"[0-9TZ.:+-]{1,40}")
_WITHHELD = "…"
# Fields that show what a message is about, as far as they hold what they are for: a sender may have written
# anything there.
_SHOWN: Mapping[str, Callable[[Any], bool]] = {
    "id": lambda said: isinstance(said, str),
    "table": lambda said: isinstance(said, str) and bool(_PLACE.fullmatch(said)),
    "mode": lambda said: said in get_args(Mode),
    "requested_at": lambda said: isinstance(said, str) and bool(_TIME.fullmatch(said)),
    **dict.fromkeys(("hops", "left_units", "left_bytes"), lambda said: isinstance(said, int)),
}


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter; `receipt` is valid for this listing. `reasons` are the function's attributes, none
    if SQS itself gave up."""

    id: str
    body: str
    sent_us: int
    reasons: Mapping[str, str]
    receipt: str

    @property
    def first_sent_us(self) -> int:
        return int(self.reasons.get("SentMicroseconds") or self.sent_us)

    @property
    def why(self) -> Mapping[str, str]:
        """Why it is a dead letter, and what to do."""
        return {
            "error": self.reasons.get("Error", ""),
            "reason": self.reasons.get(
                "Reason", "it failed every time; the function's log says why"
            ),
            "next_step": self.reasons.get("NextStep", ""),
            "function": self.reasons.get("Function", ""),
        }

    @property
    def about(self) -> Mapping[str, Any]:
        """What the message is about, without values: its table, mode and id (`request`), or the objects it
        names."""
        said = _json(self.body)
        if not isinstance(said, dict):
            return {"body": f"{len(self.body)} characters, not a JSON object"}
        shown = _shown_fields(said)
        if isinstance(said.get("delete"), dict):
            shown |= _shown_fields(said["delete"])
        records = said.get("Records")
        objects = [
            unquote_plus(record["s3"]["object"]["key"])  # as S3's events write it
            for record in (records if isinstance(records, list) else ())
            if isinstance(record, dict) and _has_key(record)
        ]
        return {**shown, **({"objects": objects} if objects else {})}


@contextmanager
def connected() -> Iterator[SQSClient]:
    """SQS, configured by the standard AWS environment."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield boto3.client("sqs")
    except (BotoCoreError, ClientError) as error:
        raise of_aws(
            error,
            "SQS refuses the request",
            "Check the queue's URL, the region and the credentials",
        ) from error


def read_letters(sqs: SQSClient, url: str, *, wait_seconds: int = 1) -> Iterator[Letter]:
    """Every letter at `url`, each once. They are hidden from others for a minute: see `release`. SQS itself
    finds all of them only if it is given time. Where reading them takes longer than that minute the first
    ones come again: it ends when as many requests as would hold all of them brought no other."""
    seen: set[str] = set()
    stale = 0
    while stale <= len(seen) // _SQS_BATCH:
        got = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=_SQS_BATCH,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
            VisibilityTimeout=_LOOK_SECONDS,
            WaitTimeSeconds=wait_seconds,
        ).get("Messages", [])
        if not got:
            return
        new = [message for message in got if message["MessageId"] not in seen]
        stale = 0 if new else stale + 1
        for message in new:
            seen.add(message["MessageId"])
            given = message.get("MessageAttributes", {})
            yield Letter(
                id=message["MessageId"],
                body=message["Body"],
                sent_us=int(message.get("Attributes", {}).get("SentTimestamp", 0)) * 1_000,
                reasons={
                    name.removeprefix("Inlay"): value.get("StringValue", "")
                    for name, value in given.items()
                    if name.startswith("Inlay")
                },
                receipt=message["ReceiptHandle"],
            )


def release(sqs: SQSClient, url: str, letters: Sequence[Letter]) -> None:
    """Makes the letters visible to others again."""
    for letter in letters:
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=letter.receipt, VisibilityTimeout=0
        )


def redrive(sqs: SQSClient, letter: Letter, *, source: str, target: str) -> None:
    """Sends the letter to `target` again, and removes it from `source`. In between it may be in both."""
    sqs.send_message(QueueUrl=target, MessageBody=as_sent_before(letter))
    drop(sqs, letter, source=source)


def drop(sqs: SQSClient, letter: Letter, *, source: str) -> None:
    sqs.delete_message(QueueUrl=source, ReceiptHandle=letter.receipt)


def as_sent_before(letter: Letter) -> str:
    """The message, with its original identity: a delete request counts once by its id, else by the id and
    time of its first message, which are written into it."""
    try:
        said = decode_json(letter.body)
    except (ValueError, RecursionError):
        return letter.body  # refused for what a parser would drop: written again it would lack that
    is_delete = isinstance(said, dict) and "table" in said and ("where" in said or "keys" in said)
    if not is_delete or "hops" in said or said.get("id") is not None:
        return letter.body
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=letter.first_sent_us)
    own = {"id": letter.reasons.get("MessageId") or letter.id}
    if said.get("requested_at") is None:
        own["requested_at"] = at.isoformat()
    # As many bytes as it had, and no more: a letter may be as long as a message can be.
    text = json.dumps({**said, **own}, ensure_ascii=False, separators=(",", ":"))
    return _NOT_XML.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def source_queue(sqs: SQSClient, url: str) -> str:
    """The queue whose dead letters are at `url`. Raises `InvalidRequest` unless there is exactly one."""
    urls = sqs.list_dead_letter_source_queues(QueueUrl=url).get("queueUrls", [])
    if len(urls) != 1:
        raise InvalidRequest(
            f"{len(urls)} queues have these dead letters",
            next_step="Set where the letters are to go: --to QUEUE-URL",
        )
    return urls[0]


def _shown_fields(said: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "request" if name == "id" else name: said[name] if holds(said[name]) else _WITHHELD
        for name, holds in _SHOWN.items()
        if name in said
    }


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _has_key(record: Mapping[str, Any]) -> bool:
    try:
        return isinstance(record["s3"]["object"]["key"], str)
    except (KeyError, TypeError):
        return False

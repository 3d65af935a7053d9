"""The fate of a message whose work failed, from the kind of the error.

Promise: an `InlayError` that can succeed later leaves its message in the queue; one that cannot goes to the
dead letters at once, with the reason. Anything else is an internal error: the message stays, and SQS moves
it to the dead letters after its last try.

Of what an AWS service answers only its code is repeated: its messages quote what they were sent.
"""

from __future__ import annotations

import re
from enum import Enum

from inlay.errors import AccessDenied, InlayError, PageError, StoreUnavailable


class MessageFate(Enum):
    RETRY = "retry"
    DEAD_LETTER = "dead letter"


QUEUE_STEP = (
    "Is the queue there, and may this function's role, by its key's policy too, send to it and read its "
    "attributes?"
)
_CODE = re.compile(r"[A-Za-z][A-Za-z.]{0,99}")


def fate_of(error: Exception) -> MessageFate:
    """What to do with the message whose work raised `error`."""
    if not isinstance(error, InlayError):
        return MessageFate.RETRY
    # The next delivery reads the table again.
    return MessageFate.RETRY if error.kind.is_retried else MessageFate.DEAD_LETTER


def code_of(failure: Exception) -> str:
    """What the service calls the failure, such as AccessDenied; else the name of the exception."""
    answer = getattr(failure, "response", None)
    error = answer.get("Error") if isinstance(answer, dict) else None
    code = error.get("Code") if isinstance(error, dict) else None
    named = isinstance(code, str) and _CODE.fullmatch(code)
    return str(code) if named else type(failure).__name__


def of_aws(error: Exception, words: str, next_step: str) -> InlayError:
    """The meaning of what the SDK raises of a service that an operator asks: whether the same again may
    help, which a missing region, no credentials or no right do not."""
    from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

    about = f"{words}: {error}"
    if isinstance(error, (ConnectionError, HTTPClientError)):
        return StoreUnavailable(about, next_step=next_step)
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        busy = status >= 500 or status == 429 or "Throttl" in code_of(error)
        return (StoreUnavailable if busy else AccessDenied)(about, next_step=next_step)
    return PageError(about, next_step=next_step)

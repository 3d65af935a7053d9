"""The fate of a message whose work failed, from the kind of the error.

Promise: an `InlayError` that can succeed later leaves its message in the queue; one that cannot goes to the
dead letters at once, with the reason. Anything else is an internal error: the message stays, and SQS moves
it to the dead letters after its last try.
"""

from __future__ import annotations

from enum import Enum

from inlay.errors import ErrorKind, InlayError


class MessageFate(Enum):
    RETRY = "retry"
    DEAD_LETTER = "dead letter"


FATES = {
    ErrorKind.RETRY: MessageFate.RETRY,
    ErrorKind.REBASE: MessageFate.RETRY,  # the next delivery reads the table again
    ErrorKind.INPUT: MessageFate.DEAD_LETTER,
    ErrorKind.PAGE: MessageFate.DEAD_LETTER,
}


def fate_of(error: Exception) -> MessageFate:
    """What to do with the message whose work raised `error`."""
    return FATES[error.kind] if isinstance(error, InlayError) else MessageFate.RETRY

"""The fate of a message whose work failed, from the kind of the error.

Promise: an `InlayError` that can succeed later leaves its message in the queue; one that cannot goes to the
dead letters at once, with the reason. Anything else is an internal error: the message stays, and SQS moves
it to the dead letters after its last try.
"""

from __future__ import annotations

from enum import Enum

from inlay.errors import InlayError, Kind


class Fate(Enum):
    RETRY = "retry"
    DEAD_LETTER = "dead letter"


FATES = {
    Kind.RETRY: Fate.RETRY,
    Kind.REBASE: Fate.RETRY,  # the next delivery reads the table again
    Kind.INPUT: Fate.DEAD_LETTER,
    Kind.PAGE: Fate.DEAD_LETTER,
}


def fate_of(error: Exception) -> Fate:
    """What to do with the message whose work raised `error`."""
    return FATES[error.kind] if isinstance(error, InlayError) else Fate.RETRY

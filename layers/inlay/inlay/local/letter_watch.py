"""What ends in the dead letters of the local AWS, said as it happens.

Promise: each letter is said once, within a few seconds, without the values in it (`functions.dead_letters`
decides what is shown, as for `inlay dlq`), and stays where it is: it is hidden from others for no longer
than reading takes.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from inlay.cli.values import to_text
from inlay.functions.dead_letters import Letter, read_letters, release

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

_LOOK_SECONDS = 2.0
# The queues say how many letters there are; as many others may have come in their place.
_LOOKS_ANYWAY = 5
# More at once are counted: a thousand bad files must not bury the first one's reason.
_SAID_AT_ONCE = 10
_REMEMBERED = 10_000


class LetterWatch:
    """Says each new letter of `queues` (URLs by name) as a line. Ends with the `with` block."""

    def __init__(
        self, sqs: SQSClient, queues: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self._sqs = sqs
        self._queues = queues
        self._say = say
        self._seen: deque[str] = deque(maxlen=_REMEMBERED)
        self._counts: dict[str, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="letter-watch", daemon=True)

    def __enter__(self) -> LetterWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def look(self, *, anyway: bool = False) -> None:
        """Say what has come since the last look, as far as a queue's count shows it, or in any case."""
        for name, url in self._queues.items():
            count = self._waiting(url)
            if count and (anyway or count != self._counts.get(name)):
                self._read(name, url)
            self._counts[name] = count

    def _follow(self) -> None:
        looks = 0
        while not self._stopping.wait(_LOOK_SECONDS):
            looks += 1
            # The server may be stopping: there is a next look, or an end.
            with contextlib.suppress(BotoCoreError, ClientError):
                self.look(anyway=looks % _LOOKS_ANYWAY == 0)

    def _waiting(self, url: str) -> int:
        found = self._sqs.get_queue_attributes(
            QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"]
        )
        return int(found["Attributes"].get("ApproximateNumberOfMessages", 0))

    def _read(self, name: str, url: str) -> None:
        letters: list[Letter] = []
        try:
            # The embedded SQS finds all that there is at once.
            letters.extend(read_letters(self._sqs, url, wait_seconds=0))
        finally:
            release(self._sqs, url, letters)
        new = [each for each in letters if each.id not in self._seen]
        self._seen.extend(each.id for each in new)
        for letter in new[:_SAID_AT_ONCE]:
            self._say(f"{line(name, letter)}\n  inlay dlq show {url} --id {letter.id}")
        if len(new) > _SAID_AT_ONCE:
            more = len(new) - _SAID_AT_ONCE
            self._say(f"dead letters in {name}: {more} more\n  inlay dlq list {url}")


def line(queue: str, letter: Letter) -> str:
    """The queue, the kind of message, its table or its files, and why it is there."""
    about, why = letter.about, letter.why
    table = about.get("table") or letter.reasons.get("Table")
    objects = about.get("objects", [])
    if objects:
        kind = "landed file " + ", ".join(objects[:3]) + (" …" if len(objects) > 3 else "")
    elif "mode" in about:
        kind = f"{about['mode']} request"
    else:
        kind = "request" if table else "message"
    of = f" for {table}" if table else ""
    error = f"{why['error']}: " if why["error"] else ""
    # A message may hold anything, also what a terminal would obey.
    return to_text(f"dead letter in {queue}: {kind}{of}: {error}{why['reason']}")

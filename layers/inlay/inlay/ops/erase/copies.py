"""Copies of receipts and their lists in another account's bucket, under S3 Object Lock.

Promise: an erasure ends only after its receipt, the pass and every list that they name were put there,
each with a retention; until then it stays open and says why, and the next run tries again. A copy is named
by its content, so that one made again, by another run or after a crash, is the same object; nothing is read
or deleted there, and a role needs `s3:PutObject` and `s3:PutObjectRetention` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Literal

from inlay.errors import InlayError, InvalidRequest
from inlay.format.keys import receipt_key
from inlay.ops.context import Context
from inlay.ops.erase.receipt import decode_receipt
from inlay.plan.erasure import Waiting
from inlay.record import Record
from inlay.storage.base import Got
from inlay.storage.open import open_store

Mode = Literal["GOVERNANCE", "COMPLIANCE"]
MODES: tuple[Mode, ...] = ("GOVERNANCE", "COMPLIANCE")
# S3 keeps an object locked for at most a century.
MAX_DAYS = 36_500
# Where nothing else is said: most documents of data protection are kept for ten years.
DEFAULT_DAYS = 3_650
_DAY_US = 86_400 * 1_000_000


class LockedCopies(Record):
    """Where copies go (`s3://bucket/prefix`), and how long nobody may delete them: in mode COMPLIANCE not
    even the account's owner."""

    uri: str
    mode: Mode
    days: int

    def __post_init__(self) -> None:
        if not self.uri.startswith("s3://"):
            raise InvalidRequest(
                f"copies of receipts go to S3, which has Object Lock, not to {self.uri!r}",
                next_step="Name a bucket that was created with Object Lock: s3://BUCKET/PREFIX",
            )
        if self.mode not in MODES or not 1 <= self.days <= MAX_DAYS:
            raise InvalidRequest(
                f"a retention is {' or '.join(MODES)} for 1 to {MAX_DAYS:,} days, "
                f"not {self.mode!r} for {self.days!r}"
            )

    @staticmethod
    def of_text(uri: str, mode: str | None, days: str | None) -> LockedCopies:
        """From settings. Raises `InvalidRequest`."""
        chosen = next((m for m in MODES if m == (mode or "GOVERNANCE").upper()), None)
        if chosen is None or not (days or "1").isdecimal():
            raise InvalidRequest(
                f"a retention is {' or '.join(MODES)} for 1 to {MAX_DAYS:,} days, not {mode!r} for {days!r}"
            )
        return LockedCopies(uri, chosen, int(days) if days else DEFAULT_DAYS)


def copy_pass(
    ctx: Context, copies: LockedCopies, receipts: Mapping[str, bytes], made_by: str, now_us: int
) -> Waiting | None:
    """Copies these receipts (by erasure) and the lists that they and their pass name; why that failed."""
    objects = {receipt_key(name): data for name, data in receipts.items()}
    lists = dict.fromkeys([made_by, *_lists_of(receipts)])
    try:
        store, prefix = open_store(copies.uri)
        folder = "/".join(part for part in (prefix, ctx.root) if part)
        until_us = now_us + copies.days * _DAY_US
        put_locked = getattr(store, "put_locked", None)  # S3 alone has Object Lock
        assert put_locked is not None, "an s3:// location is S3's"

        def read(key: str) -> tuple[str, bytes]:
            answer = ctx.store.get(ctx.key(key))
            if not isinstance(answer, Got):
                raise InvalidRequest(f"{key} is gone")
            return key, answer.body

        def keep(named_object: tuple[str, bytes]) -> None:
            key, data = named_object
            name = f"{folder}/{key.removesuffix('.json')}.{sha256(data).hexdigest()[:32]}.json"
            # Refused: it is there.
            put_locked(name, data, mode=copies.mode, until_us=until_us)

        objects |= dict(ctx.map(read, lists))
        list(ctx.map(keep, objects.items()))
    except InlayError as error:
        return Waiting("copies", copies.uri, f"{type(error).__name__}: {error.message}")
    return None


def _lists_of(receipts: Mapping[str, bytes]) -> Iterator[str]:
    for name, data in receipts.items():
        body = decode_receipt(data, key=receipt_key(name))
        look = body.get("look")
        for listed in (
            *body["gone"],
            *body["waived"],
            body["left"],
            *([look["list"]] if look else []),
        ):
            yield listed["key"]

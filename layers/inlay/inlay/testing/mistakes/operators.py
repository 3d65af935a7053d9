"""Operators' deeds believed: what is beside a pointer that was moved by hand."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from threading import get_ident
from typing import Any

from inlay.errors import KeyTaken
from inlay.format import keys
from inlay.format.keys import archive_version
from inlay.ops.commit import driver as driver_module
from inlay.ops.metadata import load as load_module
from inlay.ops.verify import repair as repair_module
from inlay.storage.base import Got, IfMatch, Refused, Written
from inlay.storage.faults import FaultyStore
from inlay.testing import scenes
from inlay.testing.mistakes.registry import mutation, swap_in


@mutation(scenes.OPERATED)
def believe_any_archive(stack: ExitStack) -> None:
    """An archive that is there is taken for that of the base."""

    def archive(ctx: Any, loaded: Any, wait: Any) -> int:
        with contextlib.suppress(KeyTaken):
            ctx.write_once(keys.archive_key(loaded.snapshot.version), loaded.raw)
        return int(loaded.date_us)

    swap_in(stack, driver_module, "archive", archive)


@mutation(scenes.OPERATED)
def look_for_no_successor(stack: ExitStack) -> None:
    """The archive of the base is compared; nobody asks whether there is one after it."""

    def archive(ctx: Any, loaded: Any, wait: Any) -> Any:
        try:
            return ctx.write_once(keys.archive_key(loaded.snapshot.version), loaded.raw).date_us
        except KeyTaken:
            return original(ctx, loaded, wait)

    original = swap_in(stack, driver_module, "archive", archive)


@mutation(scenes.RESENT)
def take_what_a_retry_meets_for_ones_own(stack: ExitStack) -> None:
    """A client whose create is refused when it is sent again reads what is there, and is done if that has
    its bytes: as if nobody else wrote these."""
    resent: set[int] = set()

    def resend(self: Any, sent: Any, send: Any) -> Any:
        resent.add(get_ident())
        return again(self, sent, send)

    def put(self: Any, key: str, body: bytes, *, condition: Any = None, **more: Any) -> Any:
        resent.discard(get_ident())
        answer = original(self, key, body, condition=condition, **more)
        is_create = condition is not None and not isinstance(condition, IfMatch)
        if is_create and isinstance(answer, Refused) and get_ident() in resent:
            there = self.inner.get(key)
            if isinstance(there, Got) and there.body == body:
                return Written(there.etag, there.date_us, there.version_id)
        return answer

    again = swap_in(stack, FaultyStore, "_resend", resend)
    original = swap_in(stack, FaultyStore, "put", put)


@mutation(scenes.OPERATED)
def repair_without_an_archive_of_its_own(stack: ExitStack) -> None:
    """A writer who has read the lost version then stores the archive of that number."""

    def put(ctx: Any, relative: str, body: bytes, etag: str | None) -> None:
        if archive_version(relative) is None:
            original(ctx, relative, body, etag)

    original = swap_in(stack, repair_module, "_put", put)


@mutation(scenes.REPLACED)
def take_another_table_for_ones_own(stack: ExitStack) -> None:
    """What is at the place now is taken for the table that was opened."""
    swap_in(stack, load_module, "check_same_table", lambda ctx, found: None)

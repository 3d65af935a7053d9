"""Commits broken: the swap, what is written before it, the ledger; and what an operator who moves the
pointer by hand leaves beside it, believed."""

from __future__ import annotations

import contextlib
import dataclasses
from contextlib import ExitStack
from threading import get_ident
from typing import Any

from tests.simulator import scenes
from tests.simulator.faults import FaultyStore
from tests.simulator.mistakes.registry import mutation, swap_in

from inlay.errors import KeyTaken
from inlay.format import keys
from inlay.format.keys import archive_version
from inlay.format.snapshot import Tier
from inlay.ops.commit import driver as driver_module
from inlay.ops.commit import group as group_module
from inlay.ops.commit import register as register_module
from inlay.ops.commit.register import Lost, Won
from inlay.ops.metadata import load as load_module
from inlay.ops.metadata.load import read_main
from inlay.ops.verify import mend_pointer as mend_module
from inlay.plan.change import Change
from inlay.plan.commit import apply as apply_module
from inlay.plan.commit import draft as draft_module
from inlay.plan.commit.apply import Admitted
from inlay.storage import write_once as write_once_module
from inlay.storage.base import Got, IfMatch, Refused, Written
from inlay.storage.write_once import Stored


@mutation(scenes.UNNAMED)
def believe_every_refusal(stack: ExitStack) -> None:
    """A 412 or a timeout of the swap is taken for a lost race, without a look."""
    swap_in(stack, register_module, "read_outcome", lambda ctx, *_: Lost(read_main(ctx)))


@mutation()
def believe_a_timeout_landed(stack: ExitStack) -> None:
    """No answer is taken for success."""
    landed = lambda ctx, base, mine: Won(base.etag, base.date_us)  # noqa: E731
    swap_in(stack, register_module, "read_outcome", landed)


@mutation(scenes.UNNAMED)
def believe_a_newer_pointer_without_the_archive(stack: ExitStack) -> None:
    """Others have committed since: mine is taken for lost, though theirs may be based on it."""

    def read_outcome(ctx: Any, base: Any, mine: Any) -> Any:
        found = original(ctx, base, mine)
        return Lost(read_main(ctx)) if isinstance(found, Won) and not found.etag else found

    original = swap_in(stack, register_module, "read_outcome", read_outcome)


@mutation()
def drop_if_match(stack: ExitStack) -> None:
    """The pointer is written whatever is there."""
    swap_in(stack, register_module, "IfMatch", lambda etag: None)


@mutation()
def drop_if_none_match(stack: ExitStack) -> None:
    """A table is created over another."""
    swap_in(stack, write_once_module, "IF_ABSENT", None)
    from inlay.ops.schema import create as create_module

    # For as long as the mistake is in: a patch for each call would be taken out in another order by actors
    # that overlap, or never by one that was killed, and stay.
    swap_in(stack, create_module, "Head", type("Never", (), {}))
    swap_in(stack, create_module, "ARCHIVES", "nowhere/")


@mutation()
def skip_the_archive(stack: ExitStack) -> None:
    """The base is not archived before the swap."""
    swap_in(stack, driver_module, "archive", lambda ctx, loaded, wait: loaded.date_us)
    swap_in(stack, group_module, "write_archive", lambda ctx, loaded: Stored("", loaded.date_us))


@mutation()
def skip_the_segments(stack: ExitStack) -> None:
    """The pointer refers to segments that were not written."""

    swap_in(stack, driver_module, "write_segment", lambda ctx, segment_id, data: 0)


@mutation()
def ask_the_ledger_only_once(stack: ExitStack) -> None:
    """On a rebase the ledger is not asked again."""
    asked: dict[int, Any] = {}

    def look_up(state: Any, request: Any, events: Any) -> Any:
        if id(request or events) in asked:
            return frozenset()
        found = original(state, request, events)
        if isinstance(found, frozenset):
            asked[id(request or events)] = request or events  # kept: its id is given to no other
        return found

    original = swap_in(stack, apply_module, "look_up", look_up)


@mutation()
def drop_the_ledger_at_compaction(stack: ExitStack) -> None:
    """Maintenance forgets which requests were applied."""

    def build(self: Any) -> Any:
        snapshot = original(self)
        if snapshot is not None and self.change.operation in ("compact", "rewrite"):
            ledger = dataclasses.replace(snapshot.ledger, records=Tier())
            return dataclasses.replace(snapshot, ledger=ledger)
        return snapshot

    original = swap_in(stack, draft_module.Draft, "build", build)


@mutation()
def forget_to_record_the_request(stack: ExitStack) -> None:
    """A commit leaves its own request out of the ledger."""

    def ledger(self: Any) -> Any:
        change = self.change
        self.change = dataclasses.replace(change, request=None, events=())
        try:
            return original(self)
        finally:
            self.change = change

    original = swap_in(stack, draft_module.Draft, "_ledger", ledger)


@mutation(scenes.GROUPS)
def forget_a_request_of_a_group(stack: ExitStack) -> None:
    """Of the appends that share a swap, one is left out of the ledger."""

    def merge(changes: Any) -> Change:
        found: Change = original(changes)
        return found if len(changes) == 1 else dataclasses.replace(found, events=found.events[1:])

    original = swap_in(stack, group_module, "merge", merge)


@mutation(scenes.STALLED_GROUPS)
def date_a_group_by_its_newest_upload(stack: ExitStack) -> None:
    """The boundary of GC is held against the newest of the group's uploads, not against each."""

    def merge(changes: Any) -> Change:
        found: Change = original(changes)
        uploads = [c.uploaded_us for c in changes if c.uploaded_us is not None]
        return dataclasses.replace(found, uploaded_us=max(uploads, default=None))

    def admit(state: Any, change: Change) -> Any:
        found = ask(state, dataclasses.replace(change, uploaded_us=None))
        return dataclasses.replace(found, change=change) if isinstance(found, Admitted) else found

    original = swap_in(stack, group_module, "merge", merge)
    ask = swap_in(stack, group_module, "admit", admit)


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

    original = swap_in(stack, mend_module, "_put", put)


@mutation(scenes.REPLACED)
def take_another_table_for_ones_own(stack: ExitStack) -> None:
    """What is at the place now is taken for the table that was opened."""
    swap_in(stack, load_module, "check_same_table", lambda ctx, found: None)

"""Commits broken: the swap, what is written before it, the ledger."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any

from inlay.format.snapshot import Tier
from inlay.ops.commit import driver as driver_module
from inlay.ops.commit import group as group_module
from inlay.ops.commit import register as register_module
from inlay.ops.commit.register import Lost, Won
from inlay.ops.metadata.load import read_main
from inlay.plan.change import Change
from inlay.plan.commit import apply as apply_module
from inlay.plan.commit import draft as draft_module
from inlay.plan.commit.apply import Admitted
from inlay.storage import write_once as write_once_module
from inlay.storage.write_once import Stored
from inlay.testing import scenes
from inlay.testing.mistakes.registry import mutation, swap_in


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
    """Others have committed since: mine is taken for lost, though it may lie beneath theirs."""

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

    def ledger(self: Any, records: Any) -> Any:
        return original(self, ())

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

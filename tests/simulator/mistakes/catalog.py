"""The catalog that takes commits broken: what it looks at first, what it rebases, what it says."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any

from tests.simulator import scenes
from tests.simulator.mistakes.registry import mutation, swap_in

from inlay.errors import ConcurrentChange, OutcomeUnknown
from inlay.ops.catalog import commit as commit_module


@mutation(scenes.ENGINES)
def look_at_requirements_before_the_ledger(stack: ExitStack) -> None:
    """Whoever repeats what was done hears that others were first, or that the snapshot is there."""
    swap_in(stack, commit_module, "already_applied", lambda ctx, loaded, named: (loaded, None))
    swap_in(
        stack, commit_module.PublishedNow, "is_of_an_engine", lambda published, snapshot_id: False
    )


@mutation(scenes.ENGINES)
def rebase_what_an_engine_has_read(stack: ExitStack) -> None:
    """An overwrite goes on whatever the table is by then, as an append does."""

    def planned(*args: Any) -> Any:
        change = original(*args)
        return None if change is None else dataclasses.replace(change, requires=())

    original = swap_in(stack, commit_module, "planned", planned)
    swap_in(stack, commit_module, "unmet", lambda *_, **__: "")


@mutation(scenes.ENGINES)
def refuse_what_is_committed_and_not_published(stack: ExitStack) -> None:
    """A publication that fails after the swap is answered by 409."""

    def published_after(*args: Any) -> Any:
        try:
            return original(*args)
        except OutcomeUnknown as error:
            raise ConcurrentChange(error.message) from error

    original = swap_in(stack, commit_module, "published_after", published_after)

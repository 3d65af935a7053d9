"""Publication broken: what other engines are shown, and what is kept for them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from inlay.format import keys
from inlay.ops.maintain import expire as expire_module
from inlay.ops.metadata.publication import Reached
from inlay.ops.publish import publish as publish_module
from inlay.testing import scenes
from inlay.testing.mistakes.registry import mutation, swap_in


@mutation(scenes.PUBLISHED)
def publish_files_without_their_vectors(stack: ExitStack) -> None:
    """Deleted rows are shown: what UniForm does."""

    def none(self: Any, groups: Any) -> None:
        return None

    swap_in(stack, publish_module._Attempt, "_prepare_deletes", none)


@mutation(scenes.PUBLISHED_IN_HASTE)
def publish_whatever_is_there_already(stack: ExitStack) -> None:
    """A publisher that stalled takes the publication back: its swap has no condition."""

    def swap(ctx: Any, found: Any, body: bytes, version: int) -> bool:
        ctx.store.put(ctx.key(keys.PUBLISHED_POINTER), body)
        return True

    swap_in(stack, publish_module, "_swap", swap)


@mutation(scenes.PUBLISHED)
def collect_what_is_published(stack: ExitStack) -> None:
    """Published snapshots are no roots: a reader's manifests and files go while he reads."""
    swap_in(stack, expire_module, "find_reachable", lambda ctx: Reached())


@mutation(scenes.PUBLISHED)
def publish_manifests_of_another_version(stack: ExitStack) -> None:
    """Manifests are taken over by their group although the group has changed: its digest leaves out
    what is inline."""

    def groups(leaves: Any, inline: Any, *rest: Any) -> Any:
        return original(leaves, [""] * bool(inline), *rest)

    original = swap_in(stack, publish_module, "groups_of", groups)

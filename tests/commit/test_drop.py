"""A table is dropped while somebody still commits to it, which nobody should.

What the last look at the pointer finds is refused. A commit between that look and the deletion stands in
the pointer alone, and is gone with it: a condition on a deletion is not a rule that every store keeps.
"""

from __future__ import annotations

import pytest

from inlay.errors import ConcurrentChange, TableNotFound
from inlay.ops.drop import drop
from inlay.ops.verify.repair import repair

from .conftest import POINTER, at


def test_a_commit_before_the_last_look_is_not_dropped(world):
    world.append("file-1")
    late = at("get", POINTER, lambda: world.append("file-2"), nth=2)
    with pytest.raises(ConcurrentChange):
        drop(world.faulty(before=late))
    assert world.files() == ["file-1", "file-2"]


@pytest.mark.parametrize("versioned", [False, True], ids=["plain", "versioned"])
def test_a_commit_after_the_last_look_is_gone_unless_the_bucket_keeps_versions(world, versioned):
    if versioned:
        world.store.enable_versioning()
    world.append("file-1")
    drop(world.faulty(before=at("delete", POINTER, lambda: world.append("file-2"))))
    with pytest.raises(TableNotFound):
        world.pointer()
    repair(world.ctx, dry_run=False)
    assert world.files() == ["file-1", "file-2"][: 1 + versioned]

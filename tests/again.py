"""A table in memory that was made once, again for each test."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from inlay.ops.cache import ObjectCache
from inlay.ops.context import Context, Shared
from inlay.storage.memory import MemoryStore

from .clock import Clock


def again(time: Clock, ctx: Context) -> tuple[Clock, Context]:
    """The same table at the same time, in a store of its own, for a process that has read nothing of it."""
    store, time = ctx.store, replace(time)
    assert isinstance(store, MemoryStore)
    store = MemoryStore(store.bucket, region=store._region.copy(time.now_us))
    own = {"cache": ObjectCache(), "shared": Shared(), "random": copy(ctx.random)}
    return time, replace(ctx, store=store, clock=time, **own)

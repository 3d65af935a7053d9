"""Where the memory of deletes (`ops.write.memory`) is: in a table at `changes` under the table's root.

Promise: it is found by the table's own place, and whether there is one by the table's own pointer: a table
without it costs no request.
"""

from __future__ import annotations

from inlay.format.keys import MEMORY
from inlay.format.properties import REMEMBERED
from inlay.format.snapshot import Snapshot
from inlay.ops.cache import ObjectCache
from inlay.ops.context import Context, Shared
from inlay.record import replace

# Its column that says when a delete was remembered.
AT = "at"


class _Place(Shared):
    """The cache of the memory's immutable objects, and what its contexts share in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = ObjectCache()


def memory_context(ctx: Context) -> Context:
    """The context of the memory of `ctx`'s table."""
    place = ctx.shared.one(_Place)
    return replace(
        ctx,
        root=ctx.key(MEMORY),
        uri=f"{ctx.uri}/{MEMORY}",
        cache=place.cache,
        shared=place,
        branch=None,
        note=None,
        table_id=None,
        hold=None,
    )


def has_memory(snapshot: Snapshot) -> bool:
    return REMEMBERED in snapshot.properties


def column_of(field_id: int) -> str:
    """The memory's column of a field of the table."""
    return f"f{field_id}"

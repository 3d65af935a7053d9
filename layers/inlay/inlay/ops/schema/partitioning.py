"""Partitioning: how new files of a table are partitioned.

Promise: no file is changed and no query gives another answer. Files of earlier specs stay as they are until
compaction rewrites them; each is pruned by the spec it was written under.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlay.errors import InlayError
from inlay.format.snapshot import Snapshot
from inlay.ops.commit.base import already_applied, recent_base
from inlay.ops.commit.driver import Committed, Skipped, commit, expect_committed
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable
from inlay.parse.partitioning import partition_fields, spec_text
from inlay.plan.change import Change, Request, SetPartitioning
from inlay.plan.pruning.partitions import current_spec


def set_partitioning(
    ctx: Context,
    texts: Sequence[str],
    *,
    base: LoadedTable | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """Partitions new files by `texts` (`parse.partitioning`); none: not at all. Raises `ConcurrentChange`
    when the partitioning is no longer that of `base`, unless it is the requested one."""
    loaded, before = already_applied(ctx, recent_base(ctx, base), request)
    if before is not None:
        return before
    snapshot = loaded.snapshot
    try:
        fields = partition_fields(texts, snapshot.schema)
    except InlayError as error:
        raise error.about(table=ctx.uri) from None
    edit = SetPartitioning(planned_on=snapshot.spec_id, fields=fields)
    change = Change(operation="set_partitioning", request=request, updates=(edit,))
    return expect_committed(ctx, commit(ctx, change, base=loaded))


def partitioning(snapshot: Snapshot) -> tuple[str, ...]:
    """The table's partitioning, as text: `("day(ts)", "bucket(16, id)")`."""
    return spec_text(current_spec(snapshot), snapshot.schema)

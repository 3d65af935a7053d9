"""Replan: commit what may have to be planned again, or uploaded again.

Promise: a change that conflicts with what has landed is planned again on the table as it then is, a bounded
number of times and after a wait with jitter, so that an operation beside constant maintenance gets its
turn; one whose objects garbage collection has overtaken is made anew, once. Requests are looked up on
every base (`plan.metadata.ledger`), so nothing is applied twice whatever happened in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from inlay.errors import ConcurrentChange, StaleUpload
from inlay.ops.commit.driver import CommitResult, Committed, Conflicted, Skipped, back_off, commit
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.plan.change import Change

# Plans of one operation on ever new bases.
MAX_PLANS = 20


@dataclass(frozen=True, slots=True)
class Planned:
    """A change with the base as it was loaded for it, so that the commit need not look for the files it
    names."""

    change: Change
    base: LoadedTable


class Commit(Protocol):
    def __call__(self, ctx: Context, change: Change, *, base: LoadedTable) -> CommitResult: ...


def commit_planned(
    ctx: Context,
    base: LoadedTable,
    plan: Callable[[LoadedTable], Change | Planned | None],
    *,
    commit: Commit = commit,
    once: bool = False,
) -> Committed | Skipped:
    """Commit what `plan` says of `base`, or of what the table has become since; None is nothing to do.

    `once`: the data can be read only once, so it cannot be uploaded again. Raises `ConcurrentChange`
    when others kept getting in the way, and what `commit` raises.
    """
    started = ctx.clock.monotonic()
    loaded, overtaken = base, False
    reason = ""
    for attempt in range(1, MAX_PLANS + 1):
        found = plan(loaded)
        if found is None:
            return Skipped(loaded)
        if isinstance(found, Planned):
            change, loaded = found.change, found.base
        else:
            change = found
        try:
            result = commit(ctx, change, base=loaded)
        except StaleUpload:
            if once or overtaken:
                raise
            overtaken = True
            ctx.clock.sleep(1.0)  # store times are whole seconds
            loaded = load_pointer(ctx, carried=loaded.state.contents)
            continue
        if not isinstance(result, Conflicted):
            return result
        loaded, reason = result.loaded, result.conflict.reason
        if once:
            break
        back_off(ctx, attempt, started)
    raise ConcurrentChange(
        f"others got in the way{'' if once else f' {MAX_PLANS} times'}: {reason}",
        table=ctx.uri,
        version=loaded.snapshot.version,
    )

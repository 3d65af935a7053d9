"""A table's garbage as this process lists and deletes it; many do in `ops.maintain.garbage_ranges`.

Promise: `plan.maintain.roots` decides about each object, wherever it is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from inlay.ops.context import Context
from inlay.ops.maintain.expire import Roots, delete_objects, list_objects
from inlay.plan.maintain.roots import GarbagePlan, Listed, ListingFacts, Tally, tallied
from inlay.record import Record, field
from inlay.storage.base import DeleteFailure

# Keys that a dry run and a report carry; the counts are always complete.
MAX_NAMES = 1_000


class Garbage(Record, kw_only=True):
    """Garbage: counts are complete, `keys` names up to 1,000 of it, `unknown` up to 100 unknown objects.
    `failures` could not be deleted."""

    objects: int = 0
    bytes: int = 0
    kinds: Mapping[str, Tally] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    young: int = 0
    unknown: tuple[str, ...] = ()
    unknown_count: int = 0
    seen: ListingFacts = field(default_factory=ListingFacts)
    failures: tuple[DeleteFailure, ...] = ()

    @classmethod
    def of(cls, plan: GarbagePlan, failures: Iterable[DeleteFailure] = ()) -> Garbage:
        return cls(
            objects=len(plan.doomed),
            bytes=sum(item.size for item in plan.doomed),
            kinds=tallied(plan.doomed),
            keys=tuple(item.key for item in plan.doomed[:MAX_NAMES]),
            young=plan.young,
            unknown=plan.unknown,
            unknown_count=plan.unknown_count,
            seen=plan.seen,
            failures=tuple(failures),
        )


class LocalWorker:
    """This process, which keeps the listing between the look and the deletion."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._doomed: tuple[Listed, ...] = ()

    def look(self, roots: Roots, before_us: int) -> Garbage:
        plan = roots.plan(list_objects(self._ctx), before_us)
        self._doomed = plan.doomed
        return Garbage.of(plan)

    def delete(self, roots: Roots, before_us: int, confirm: Callable[[], object]) -> Garbage:
        """Once, before the first deletion, it calls `confirm`, which raises if nothing may be deleted."""
        plan = roots.plan(self._doomed, before_us)
        doomed = [item.key for item in plan.doomed]
        confirm()
        return Garbage.of(plan, delete_objects(self._ctx, doomed, confirmed=True))

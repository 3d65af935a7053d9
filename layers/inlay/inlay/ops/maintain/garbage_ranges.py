"""Garbage that many processes list and delete, each in ranges of keys.

Promise: ranges come in waves: a killed run has deleted the garbage of its finished waves, and the next run
lists only what is left. The process that plans holds the needed keys, but no listed ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import takewhile
from operator import or_
from typing import Any, NamedTuple

from inlay.format.keys import DATA, TOMBSTONES
from inlay.ops.context import Context
from inlay.ops.maintain.expire import Roots, delete_objects
from inlay.ops.maintain.garbage import MAX_NAMES, Garbage
from inlay.ops.task_runner import TaskRunner
from inlay.plan.maintain.roots import MAX_NAMES as MAX_UNKNOWN
from inlay.plan.maintain.roots import Listed, Tally, plan_garbage
from inlay.record import Record, replace

# Ranges of a wave for each task that runs at once, and at most in all: uneven ranges leave no slot idle for
# long.
RANGES_PER_SLOT = 4
MAX_RANGES = 4_000
# Needed keys between two cuts: with about as many unneeded ones, a range takes some dozen list requests.
NEEDED_PER_RANGE = 10_000


class Range(NamedTuple):
    """Keys after `after` up to and including `until` (None: from the first, to the last), relative to the
    table's root, and those of them that are needed."""

    after: str | None
    until: str | None
    needed: frozenset[str]

    def listed(self, ctx: Context) -> Iterator[Listed]:
        until = self.until
        after = None if self.after is None else ctx.key(self.after)
        objects = ctx.store.list(ctx.key(""), start_after=after)
        listed = (Listed(ctx.relative(o.key), o.size, o.modified_us) for o in objects)
        return listed if until is None else takewhile(lambda item: item.key <= until, listed)


class _RangeTask(Record):
    keys: Range
    table_id: str | None
    delete: bool
    rules: Mapping[str, Any]  # of `plan_garbage`

    def run(self, ctx: Context) -> Garbage:
        plan = plan_garbage(self.keys.listed(ctx), self.keys.needed, **self.rules)
        doomed = (item.key for item in plan.doomed if self.delete)
        return Garbage.of(plan, delete_objects(replace(ctx, table_id=self.table_id), doomed))


class RangeWorker:
    """Processes of a runner, each with ranges of the keys. What `look` listed stayed with them: `delete`
    lists again."""

    def __init__(self, ctx: Context, runner: TaskRunner) -> None:
        self._ctx = ctx
        self._runner = runner

    def look(self, roots: Roots, before_us: int) -> Garbage:
        return self._run(roots, before_us, delete=False)

    def delete(self, roots: Roots, before_us: int, confirm: Callable[[], object]) -> Garbage:
        confirm()
        return self._run(roots, before_us, delete=True)

    def _run(self, roots: Roots, before_us: int, *, delete: bool) -> Garbage:
        rules = {
            "before_us": before_us,
            "gone_through": roots.gone_through,
            "kept_versions": frozenset(roots.kept),
        }
        ranges = key_ranges(roots.needed, _cuts(self._ctx, roots.needed))
        tasks = [_RangeTask(keys, roots.ctx.table_id, delete, rules) for keys in ranges]
        size = RANGES_PER_SLOT * self._runner.slots
        what = "delete" if delete else "list"
        parts = [Garbage()]
        for start in range(0, len(tasks), size):
            self._ctx.progress(what, start, len(tasks))
            parts = [_together([*parts, *self._runner.run(tasks[start : start + size])])]
        self._ctx.progress(what, len(tasks), len(tasks))
        return parts[0]


def _cuts(ctx: Context, needed: Iterable[str]) -> list[str]:
    """Where to cut the table's keys: at the days of object keys, and between needed keys."""
    days = [day for kind in (DATA, TOMBSTONES) for day in _days(ctx, kind)]
    cuts = sorted({*days, *sorted(needed)[NEEDED_PER_RANGE::NEEDED_PER_RANGE]})
    step = -(-len(cuts) // MAX_RANGES) or 1
    return cuts[step - 1 :: step]


def _days(ctx: Context, kind: str) -> list[str]:
    folders = [ctx.key(kind)]
    for _ in ("year", "month", "day"):
        below = ctx.map(lambda folder: list(ctx.store.list_prefixes(folder)), folders)
        folders = [folder for some in below for folder in some]
    return [ctx.relative(folder) for folder in folders]


def key_ranges(needed: Iterable[str], cuts: Sequence[str]) -> Iterator[Range]:
    """Every key is in one range, whatever the cuts are."""
    keys = sorted(needed)
    start = 0
    for after, until in zip((None, *cuts), (*cuts, None), strict=True):
        end = len(keys) if until is None else bisect_right(keys, until)
        yield Range(after, until, frozenset(keys[start:end]))
        start = end


def _together(parts: Sequence[Garbage]) -> Garbage:
    kinds: dict[str, Tally] = {}
    for part in parts:
        for kind, tally in part.kinds.items():
            before = kinds.get(kind, Tally())
            kinds[kind] = Tally(before.objects + tally.objects, before.bytes + tally.bytes)
    return Garbage(
        objects=sum(part.objects for part in parts),
        bytes=sum(part.bytes for part in parts),
        kinds=kinds,
        keys=tuple(key for part in parts for key in part.keys)[:MAX_NAMES],
        young=sum(part.young for part in parts),
        unknown=tuple(key for part in parts for key in part.unknown)[:MAX_UNKNOWN],
        unknown_count=sum(part.unknown_count for part in parts),
        seen=reduce(or_, (part.seen for part in parts)),
        failures=tuple(failure for part in parts for failure in part.failures),
    )

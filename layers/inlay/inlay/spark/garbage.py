"""Garbage collection of tables with millions of objects: executors list and delete.

Promise: what is deleted, and the order of check, boundary, roots and deletion, are those of
`ops.collect_garbage`; this module only distributes the listing and deleting. `plan.maintain.roots` decides
about each object in the task that lists it. The driver holds the needed keys, but no listed ones. Key
ranges are processed in waves: a killed run has deleted the garbage of its finished waves, and the next run
lists only what is left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import takewhile
from operator import or_
from typing import TYPE_CHECKING

from inlay import CollectResult
from inlay.engine import CLOCK_MARGIN_SECONDS, LIFE_SECONDS, Context
from inlay.engine import collect_garbage as collect
from inlay.format.keys import DATA, TOMBSTONES
from inlay.ops.collect_garbage import MAX_NAMES, Garbage
from inlay.ops.maintain.expire import Roots, delete_objects
from inlay.plan.maintain.roots import MAX_NAMES as MAX_UNKNOWN
from inlay.plan.maintain.roots import Listed, Tally, plan_garbage
from inlay.progress import Progress, no_progress
from inlay.spark.connect import bound, connect
from inlay.spark.context import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Ranges of a wave for each task slot, and at most in all: uneven ranges leave no slot idle for long.
RANGES_PER_SLOT = 4
MAX_RANGES = 4_000
# Needed keys between two cuts: with about as many unneeded ones, a range takes some dozen list requests.
NEEDED_PER_RANGE = 10_000


def collect_garbage(
    spark: SparkSession,
    uri: str,
    *,
    grace_seconds: float | None = None,
    dry_run: bool = False,
    hmac_key: bytes | None = None,
    life_seconds: float = LIFE_SECONDS,
    clock_margin_seconds: float = CLOCK_MARGIN_SECONDS,
    progress: Progress = no_progress,
) -> CollectResult:
    """Deletes what has been unneeded for the grace, like `t.maintain.collect_garbage`. The sweep of an open
    erasure runs on the driver: it lists the versions of all objects."""
    ctx = connect(uri)
    return collect(
        ctx,
        worker=_Executors(spark, ctx, progress),
        grace_seconds=grace_seconds,
        dry_run=dry_run,
        hmac_key=hmac_key,
        life_seconds=life_seconds,
        clock_margin_seconds=clock_margin_seconds,
    )


@dataclass(frozen=True, slots=True)
class _Range:
    """Keys after `after` up to and including `until` (None: from the first, to the last), relative to the
    table's root, and those of them that are needed."""

    after: str | None
    until: str | None
    needed: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Rules:
    table_id: str | None
    before_us: int
    gone_through: int
    kept: frozenset[int]


class _Executors:
    def __init__(self, spark: SparkSession, ctx: Context, progress: Progress) -> None:
        self._spark = spark
        self._ctx = ctx
        self._progress = progress

    def look(self, roots: Roots, before_us: int) -> Garbage:
        return self._each("list", _list, roots, before_us)

    def delete(self, roots: Roots, before_us: int, confirm: Callable[[], object]) -> Garbage:
        confirm()
        # Listed again: the first listing stayed with its tasks.
        return self._each("delete", _delete, roots, before_us)

    def _each(
        self,
        what: str,
        work: Callable[[str, _Rules, _Range], Garbage],
        roots: Roots,
        before_us: int,
    ) -> Garbage:
        ranges = list(_ranges(roots.needed, _cuts(self._ctx, roots.needed)))
        rules = _Rules(roots.ctx.table_id, before_us, roots.gone_through, frozenset(roots.kept))
        context = context_of(self._spark, "collect_garbage")
        size = RANGES_PER_SLOT * context.defaultParallelism
        found = Garbage()
        for start in range(0, len(ranges), size):
            self._progress(what, start, len(ranges))
            wave = ranges[start : start + size]
            done = context.parallelize(wave, len(wave)).map(partial(work, self._ctx.uri, rules))
            found = _sum([found, *done.collect()])
        self._progress(what, len(ranges), len(ranges))
        return found


# -- on the driver --------------------------------------------------------------------------------


def _cuts(ctx: Context, needed: Iterable[str]) -> list[str]:
    """Where to cut the table's keys: at the days of object keys, and between needed keys."""
    days = [day for kind in (DATA, TOMBSTONES) for day in _days(ctx, kind)]
    cuts = sorted({*days, *sorted(needed)[NEEDED_PER_RANGE::NEEDED_PER_RANGE]})
    step = -(-len(cuts) // MAX_RANGES) or 1
    return cuts[step - 1 :: step]


def _days(ctx: Context, kind: str) -> list[str]:
    folders = [ctx.key(kind)]
    for _ in ("year", "month", "day"):
        folders = [sub for found in ctx.map(_below(ctx), folders) for sub in found]
    root = len(ctx.key(""))
    return [folder[root:] for folder in folders]


def _below(ctx: Context) -> Callable[[str], list[str]]:
    return lambda folder: list(ctx.store.list_prefixes(folder))


def _ranges(needed: Iterable[str], cuts: Sequence[str]) -> Iterator[_Range]:
    """Every key is in one range, whatever the cuts are."""
    keys = sorted(needed)
    start = 0
    for after, until in zip((None, *cuts), (*cuts, None), strict=True):
        end = len(keys) if until is None else bisect_right(keys, until)
        yield _Range(after, until, frozenset(keys[start:end]))
        start = end


def _sum(parts: Sequence[Garbage]) -> Garbage:
    kinds: dict[str, Tally] = {}
    for part in parts:
        for kind, tally in part.kinds.items():
            before = kinds.get(kind, Tally())
            kinds[kind] = Tally(before.objects + tally.objects, before.bytes + tally.bytes)
    counts: Counter[str] = Counter()
    for part in parts:
        for name in ("objects", "bytes", "young", "unknown_count"):
            counts[name] += getattr(part, name)
    return Garbage(
        kinds=kinds,
        keys=tuple(key for part in parts for key in part.keys)[:MAX_NAMES],
        unknown=tuple(key for part in parts for key in part.unknown)[:MAX_UNKNOWN],
        seen=reduce(or_, (part.seen for part in parts)),
        failures=tuple(failure for part in parts for failure in part.failures),
        **counts,
    )


# -- on the executors -----------------------------------------------------------------------------


def _list(uri: str, rules: _Rules, keys: _Range) -> Garbage:
    return _judged(connect(uri), rules, keys, delete=False)


def _delete(uri: str, rules: _Rules, keys: _Range) -> Garbage:
    return _judged(bound(uri, rules.table_id), rules, keys, delete=True)


def _judged(ctx: Context, rules: _Rules, keys: _Range, *, delete: bool) -> Garbage:
    plan = plan_garbage(
        _listed(ctx, keys),
        keys.needed,
        before_us=rules.before_us,
        gone_through=rules.gone_through,
        kept_versions=rules.kept,
    )
    if not delete:
        return Garbage.of(plan)
    return Garbage.of(plan, delete_objects(ctx, (item.key for item in plan.doomed)))


def _listed(ctx: Context, keys: _Range) -> Iterator[Listed]:
    root = ctx.key("")
    after = None if keys.after is None else root + keys.after
    found = ctx.store.list(root, start_after=after)
    listed = (Listed(o.key[len(root) :], o.size, o.modified_us) for o in found)
    until = keys.until
    return listed if until is None else takewhile(lambda item: item.key <= until, listed)

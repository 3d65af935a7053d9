"""The steps, in order: what is done, and what must hold afterwards besides the figures.

A step acts on the world and on its truth. `act` is what is timed and metered; it may return a check,
which runs afterwards and returns a remark for the reader.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import inlay
from inlay.errors import VersionNotFound
from inlay.local.demo.readers import ArrowReader
from inlay.local.demo.world import Mismatch, World

Check = Callable[[], str]

CONDITION = "l_shipmode = 'AIR' AND l_discount >= 0.05 AND l_shipdate < DATE '1995-01-01'"
LISTED_ORDERS = 500
# Versions that stay when the old ones expire at the end.
KEPT_VERSIONS = 3
# The store tells time in whole seconds; what is to be older must be older by one.
TICK_SECONDS = 1.1


@dataclass(frozen=True, slots=True)
class Step:
    title: str
    about: str
    act: Callable[[World], Check | None]


def land(world: World) -> Check:
    world.land(world.sources[:-1])
    versions = world.open().version - 1
    files = len(world.sources) - 1
    return lambda: f"{files} files landed, {files} events, {_times(versions, 'commit')}"


def tell_again(world: World) -> Check:
    before = world.open().version
    for source in [*reversed(world.sources[:-1])] * 2:
        world.tell_again(source)
    world.stack.drain()

    def check() -> str:
        after = world.open().version
        if after != before:
            raise Mismatch(f"duplicate events made versions {before + 1} to {after}")
        return f"{2 * (len(world.sources) - 1)} events, no commit"

    return check


def delete_range(world: World) -> Check:
    (first,), (last,) = world.truth.orders(0.10), world.truth.orders(0.25)
    where = f"l_orderkey BETWEEN {first} AND {last}"
    world.request_delete("demo-range", where=where)
    return lambda: where


def delete_condition(world: World) -> Check:
    world.request_delete("demo-condition", where=CONDITION)
    return lambda: CONDITION


def delete_list(world: World) -> Check:
    orders = list(world.truth.orders(0.4, limit=LISTED_ORDERS))
    world.request_delete("demo-list", keys={"l_orderkey": orders})
    return lambda: f"{len(orders)} order keys in the message"


def late_file(world: World) -> Check:
    world.land(world.sources[-1:])
    before = world.open().version
    world.repeat_delete("demo-condition")

    def check() -> str:
        after = world.open().version
        spared = world.truth.count(CONDITION)
        if after != before:
            raise Mismatch(f"the repeated request made version {after}")
        if not spared:
            raise Mismatch("the late file holds no row that the request could have taken")
        return f"{spared:,} rows match the old request, came after it, and stay"

    return check


def back_in_time(world: World) -> Check:
    reader = ArrowReader()
    told = {version: reader.read(world.uri, version) for version in world.history}

    def check() -> str:
        for version, figures in told.items():
            wrong = figures.differences(world.history[version])
            if wrong:
                raise Mismatch(f"version {version} now has {', '.join(wrong)}")
        return f"versions {', '.join(map(str, told))}: each as it was"

    return check


def erase(world: World) -> Check:
    (order,) = world.truth.orders(0.6)
    where = f"l_orderkey = {order}"
    world.request_delete("demo-erase", where=where, mode="erase")
    return lambda: f"{where}; what is left of it goes with the garbage"


def rewrite(world: World) -> Check:
    before = world.state()
    world.run("rewrite")

    def check() -> str:
        after = world.state()
        if after.markers:
            raise Mismatch(f"{after.markers} delete markers are left")
        return f"{_times(before.markers, 'delete marker')} before, none now"

    return check


def compact(world: World) -> Check:
    before = world.state()
    world.run("compact")
    return lambda: f"{_times(before.files, 'file')} before, {world.state().files} now"


def collect_garbage(world: World) -> Check:
    table = world.open()
    table.set_properties(history__days=0, history__min_versions=KEPT_VERSIONS)
    before = world.state()
    time.sleep(TICK_SECONDS)
    world.run("collect_garbage", grace_days=0)
    return lambda: (
        f"{before.objects} objects before, {world.state().objects} now; a real table keeps what "
        "is younger than a week"
    )


def what_is_left(world: World) -> Check:
    table = world.open()
    kept = [v for v in world.history if table.snapshot.oldest_version <= v]
    gone = [v for v in world.history if v < table.snapshot.oldest_version]
    reader = ArrowReader()
    told = {version: reader.read(world.uri, version) for version in kept}

    def check() -> str:
        for version, figures in told.items():
            wrong = figures.differences(world.history[version])
            if wrong:
                raise Mismatch(f"version {version} now has {', '.join(wrong)}")
        for version in gone:
            try:
                inlay.open(world.uri, version=version)
            except VersionNotFound:
                continue
            raise Mismatch(f"version {version} expired and can still be opened")
        return (
            f"{', '.join(map(str, kept))} as they were; "
            f"{', '.join(map(str, gone)) or 'none'} expired and say so"
        )

    return check


def _times(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


STEPS: Sequence[Step] = (
    Step(
        "Files land",
        "Parquet files are dropped under ingest/lineitem/; the ingest function commits them",
        land,
    ),
    Step(
        "Events arrive again",
        "S3 and SQS deliver more than once: each event is sent twice more, in another order",
        tell_again,
    ),
    Step("Delete a range of keys", "a message to the delete queue; no data is read", delete_range),
    Step(
        "Delete by a condition", "any predicate, on any columns; no data is read", delete_condition
    ),
    Step("Delete a list of keys", "one marker for all of them; no data is read", delete_list),
    Step(
        "A late file, and a request that comes twice",
        "the last file lands, then the earlier request is delivered again",
        late_file,
    ),
    Step("Back in time", "every version so far is read again", back_in_time),
    Step("Erase an order", "readers stop seeing it in one commit, then its bytes go", erase),
    Step("Rewrite", "delete markers become absent rows", rewrite),
    Step("Compact", "small files are packed together", compact),
    Step(
        "Collect garbage", "old versions expire, unreachable objects are deleted", collect_garbage
    ),
    Step("Back in time again", "what was kept reads as before, what expired says so", what_is_left),
)

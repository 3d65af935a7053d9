"""The steps, in order: what is done, and what must hold afterwards besides the figures.

A step acts on the world and on its truth. `act` is what is timed and metered; it may return a check,
which runs afterwards and returns a remark for the reader.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

import inlay
from inlay.errors import VersionNotFound
from inlay.local.demo.readers import ArrowReader
from inlay.local.demo.world import Mismatch, World

Check = Callable[[], str]

CONDITION = "l_shipmode = 'AIR' AND l_discount >= 0.05 AND l_shipdate < DATE '1995-01-01'"
LAST_CONDITION = "l_quantity = 50"
RETURNED = "l_returnflag = 'R' AND l_shipdate < DATE '1993-01-01'"
LISTED_ORDERS = 500
# The store's clock has whole seconds; what is to be older must be older by one.
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


def send_events_again(world: World) -> Check:
    before = world.open().version
    for source in [*reversed(world.sources[:-1])] * 2:
        world.send_event_again(source)
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
    _check_versions(world, list(world.history))
    return lambda: f"versions {', '.join(map(str, world.history))}: each as it was"


def erase(world: World) -> Check:
    (order,) = world.truth.orders(0.6)
    where = f"l_orderkey = {order}"
    world.request_delete("demo-erase", where=where, mode="erase")
    world.erased = order
    return lambda: f"{where}; its last bytes go with the garbage"


def rewrite(world: World) -> Check:
    before = world.open_deletes()
    world.run("rewrite")

    def check() -> str:
        if world.open_deletes():
            raise Mismatch(f"{world.open_deletes()} delete markers are left")
        return f"{_times(before, 'delete marker')} before, none now"

    return check


def compact(world: World) -> Check:
    before = world.state()
    world.run("compact")
    return lambda: f"{_times(before.files, 'file')} before, {world.state().files} now"


def collect_garbage(world: World) -> Check:
    before = world.state()
    time.sleep(TICK_SECONDS)
    # Nobody else is at work, and the local S3 has one clock.
    world.run("collect_garbage", grace_days=0, life_seconds=0, clock_margin_seconds=0)

    def check() -> str:
        if world.open().snapshot.erasures or len(world.receipts()) != 1:
            raise Mismatch("the erasure did not end with a receipt")
        holders = world.holders()
        if holders:
            raise Mismatch(f"erased rows are still in {', '.join(holders)}")
        return (
            f"{before.objects} objects before, {world.state().objects} now; no object or object version "
            "holds the erased order, and its receipt is written"
        )

    return check


def look_back(world: World) -> Check:
    table = world.open()
    result = table.delete(LAST_CONDITION, mode="vector")
    world.truth.delete(LAST_CONDITION)

    def check() -> str:
        oldest = table.snapshot.oldest_version
        _check_versions(world, [v for v in world.history if v >= oldest])
        ended = [v for v in world.history if v < oldest]
        for version in ended:
            try:
                inlay.open(world.uri, version=version)
            except VersionNotFound:
                continue
            raise Mismatch(f"version {version} ended and can still be opened")
        errors = world.open().maintain.verify(depth="pages").errors
        if errors:
            raise Mismatch(f"`inlay verify` finds {'; '.join(str(e.message) for e in errors)}")
        return (
            f"{result.deleted_rows:,} rows marked; the version before is as it was; "
            f"{', '.join(map(str, ended))} ended with the erasure and say so; "
            "`inlay verify` has read every object and finds no error"
        )

    return check


def engines_write(world: World) -> Check:
    assert world.engines is not None
    deleted = world.truth.count(RETURNED)
    world.engines.write("duckdb", world.uri, f"DELETE FROM {{table}} WHERE {RETURNED}")
    world.truth.delete(RETURNED)
    orders = world.requests["demo-list"]["keys"]["l_orderkey"]
    rows = pa.concat_tables(world.truth.add_orders(orders, source) for source in world.sources[:-1])
    restored = f"{world.uri}-restored"
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        pq.write_table(rows, file.name)
        insert = f"INSERT INTO {{table}} SELECT * FROM read_parquet('{file.name}')"
        world.engines.write("duckdb", world.uri, insert)
        world.engines.write("pyiceberg", restored, file.name)

    def check() -> str:
        if inlay.open(restored).scan().to_arrow().to_pylist() != rows.to_pylist():
            raise Mismatch(f"{restored} does not hold what pyiceberg wrote")
        return (
            f"DuckDB deleted {deleted:,} rows and put back the {rows.num_rows:,} of step 5; "
            "pyiceberg made a table of them, which Inlay reads; no state but each table's pointer"
        )

    return check


def _check_versions(world: World, versions: Sequence[int]) -> None:
    for version in versions:
        figures = ArrowReader().read(world.uri, version)
        wrong = figures.differences(world.history[version])
        if wrong:
            raise Mismatch(f"version {version} now has {', '.join(wrong)}")


def _times(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


# Only where engines that know nothing of Inlay are installed.
ENGINES_WRITE = Step(
    "Engines write",
    "DuckDB deletes and inserts, pyiceberg creates a table, through the catalog",
    engines_write,
)
STEPS: Sequence[Step] = (
    Step(
        "Files land",
        "Parquet files are dropped under ingest/lineitem/; the ingest function commits them",
        land,
    ),
    Step(
        "Events arrive again",
        "S3 and SQS deliver more than once: each event is sent twice more, in another order",
        send_events_again,
    ),
    Step("Delete a range of keys", "a message to the delete queue; no data is read", delete_range),
    Step(
        "Delete by a condition", "any predicate, on any columns; no data is read", delete_condition
    ),
    Step("Delete a list of keys", "one marker for all of them; no data is read", delete_list),
    Step(
        "A delete sent again",
        "the last file lands, then the request of step 4 is delivered once more",
        late_file,
    ),
    Step("Back in time", "every version so far is read again", back_in_time),
    Step("Rewrite", "delete markers become absent rows", rewrite),
    ENGINES_WRITE,
    Step("Erase an order", "readers stop seeing it in one commit, then its bytes go", erase),
    Step("Compact", "small files are packed together", compact),
    Step(
        "Collect garbage",
        "unreachable objects are deleted: after a week on AWS, at once here",
        collect_garbage,
    ),
    Step(
        "Delete and look back",
        "by the library, as a bitmap of row positions; then the version before is read",
        look_back,
    ),
)

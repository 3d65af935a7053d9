"""Repairs and creations that stall, or die, at each of their requests, while everything else goes on.

One act after another runs to its end in the gap; then the stalled one goes on where it stood. Whatever
comes of it: repairs come to an end, and after them the table is whole, each version holds what it held when
it was made, and a row that was acknowledged is there once, but for what stood in a pointer alone that an
operator overwrote (docs/GUARANTEES.md, 1).
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache

import pyarrow as pa
import pytest
from tests.simulator.faults import FaultyStore, Killed, Sent
from tests.tiers import paired

from inlay.errors import InlayError
from inlay.format import keys
from inlay.format.codec import decode_snapshot
from inlay.ops import refs
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.context import Context
from inlay.ops.erase.request import advance_erasures, open_erasure
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.metadata.load import find_ref, load_pointer, load_version
from inlay.ops.read.scan import Scan
from inlay.ops.refs import merge, restore
from inlay.ops.schema.create import create
from inlay.ops.verify.repair import repair
from inlay.ops.verify.table import verify
from inlay.ops.write.append import append
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parse import parse_predicate
from inlay.plan.change import Request
from inlay.plan.metadata.state import State
from inlay.storage.base import Got
from inlay.storage.memory import MemoryStore

from .conftest import POINTER, ROOT, context

SCHEMA = pa.schema([("id", pa.int64())])
# Requests of the longest repair here, and more.
MOST_REQUESTS = 120
REPAIRS = 6


@dataclass
class Place:
    """A bucket, what was acknowledged, and what every version held when it was first seen."""

    versioned: bool
    store: MemoryStore = field(init=False)
    now_us: int = 1_780_000_000_000_000
    acknowledged: dict[int, str] = field(default_factory=dict)  # row → id of its table
    excused: set[int] = field(default_factory=set)
    at_risk: set[int] = field(default_factory=set)
    erased: set[int] = field(default_factory=set)
    rows_of: dict[str, list[int]] = field(default_factory=dict)  # of a commit
    tagged: dict[tuple[str, str], list[int]] = field(default_factory=dict)  # by table and name
    number: int = 0
    processes: int = 0

    def __post_init__(self) -> None:
        self.store = MemoryStore("b", now_us=self.tick)
        if self.versioned:
            self.store.enable_versioning()

    def copy(self) -> Place:
        """As it is now, to go on in another way."""
        other = copy.copy(self)
        region = self.store._region.copy(lambda: other.tick())
        other.store = MemoryStore("b", region=region)
        for name in ("acknowledged", "excused", "at_risk", "erased", "rows_of", "tagged"):
            setattr(other, name, copy.copy(getattr(self, name)))
        return other

    def tick(self) -> int:
        self.now_us += 1_000
        return self.now_us

    def context(self, store=None) -> Context:
        """A process of its own."""
        self.processes += 1
        return context(store or self.store, seed=self.processes)

    # -- what is there --------------------------------------------------------------------------

    def raw(self, key: str) -> bytes | None:
        found = self.store.get(key)
        return found.body if isinstance(found, Got) else None

    def archive(self, version: int) -> bytes | None:
        return self.raw(f"{ROOT}/{keys.archive_key(version)}")

    def archives(self) -> list[int]:
        prefix = f"{ROOT}/{keys.ARCHIVES}v"
        return sorted(int(o.key.removeprefix(prefix)[:8]) for o in self.store.list(prefix))

    def rows(self, snapshot) -> list[int]:
        found = Scan(self.context(), State(snapshot)).to_arrow()
        return sorted(found["id"].to_pylist())

    def note(self) -> None:
        """What the current version holds, if it is new."""
        snapshot = load_pointer(self.context()).snapshot
        held = self.rows(snapshot)
        assert self.rows_of.setdefault(snapshot.commit.id, held) == held
        # Where the bucket keeps versions a repair would have found them, before this commit.
        self.excused |= self.at_risk

    # -- actions, each run to its end ------------------------------------------------------------

    def append(self, base=None) -> None:
        self.number += 1
        row = self.number
        rows = pa.table({"id": pa.array([row], pa.int64())})
        done = append(self.context(), rows, base=base, request=Request.of(f"r{row}"))
        self.acknowledged[row] = done.loaded.snapshot.table_id
        self.note()

    def _excuse(self, kept: int) -> None:
        """The pointer is overwritten, and goes to `kept`: what stood in it alone is lost."""
        raw = self.raw(POINTER)
        if raw is None:
            return
        try:
            now = decode_snapshot(raw, key=POINTER)
        except InlayError:
            return
        if self.archive(now.version) != raw and now.version > kept:
            before = set(self.rows_of.get(self.commit_at(now.version - 1), []))
            lost = set(self.rows_of.get(now.commit.id, [])) - before
            if self.versioned:
                self.at_risk |= lost
            else:
                self.excused |= lost

    def commit_at(self, version: int) -> str:
        raw = self.archive(version)
        return "" if raw is None else decode_snapshot(raw, key="archive").commit.id

    def put_back(self, version: int) -> None:
        raw = self.archive(version)
        if raw is not None:
            self._excuse(version)
            self.store.put(POINTER, raw)

    def put_back_by(self, count: int) -> None:
        self.put_back(load_pointer(self.context()).snapshot.version - count)

    def lose(self) -> None:
        self._excuse(0)
        self.store.delete([POINTER])

    def cut(self) -> None:
        raw = self.raw(POINTER)
        if raw is not None:
            self._excuse(0)
            self.store.put(POINTER, raw[: len(raw) // 2])

    def remove(self) -> None:
        """Everything goes, as an operator removes a table; a bucket may keep versions."""
        self.store.delete([o.key for o in self.store.list(f"{ROOT}/")])
        self.acknowledged.clear()
        self.rows_of.clear()

    def create_again(self) -> None:
        self.remove()
        create(self.context(), SCHEMA)
        self.note()
        self.append()
        self.append()

    def collect(self) -> None:
        self.now_us += 3_600_000_000
        ctx = self.context()
        expire(ctx, days=0, min_versions=1)
        self.now_us += 3_600_000_000
        collect_garbage(ctx, grace_seconds=1, clock_margin_seconds=0)
        self.now_us += 3_600_000_000
        collect_garbage(ctx, grace_seconds=1, clock_margin_seconds=0)
        self.note()

    def erase(self) -> None:
        ctx = self.context()
        snapshot = load_pointer(ctx).snapshot
        row = min(self.rows(snapshot), default=0)
        schema = schema_from_arrow(SCHEMA)
        open_erasure(ctx, parse_predicate(f"id = {row}", schema))
        self.erased.add(row)
        self.acknowledged.pop(row, None)
        for _ in range(3):
            advance_erasures(ctx)
        self.note()

    def compact(self) -> None:
        compact(self.context())
        self.note()

    def merge(self) -> None:
        """A branch, an append to it, and its merge."""
        self.number += 1
        row = self.number
        ctx = self.context()
        branch = replace(ctx, branch=f"b{row}")
        table = load_pointer(ctx).snapshot
        refs.branch(ctx, f"b{row}", refs.source_of(ctx, table, table.version))
        append(branch, pa.table({"id": pa.array([row], pa.int64())}))
        self.note()
        done = merge(ctx, f"b{row}", Request.of(f"m{row}"))
        self.acknowledged[row] = done.loaded.snapshot.table_id
        self.note()

    def tag(self) -> None:
        """The oldest and the newest version that can be read."""
        self.number += 1
        ctx = self.context()
        table = load_pointer(ctx).snapshot
        for version in (table.oldest_version, table.version):
            name = f"t{self.number}-{version}"
            refs.tag(ctx, name, refs.source_of(ctx, table, version))
            held = self.rows(load_version(ctx, load_pointer(ctx).snapshot, version))
            self.tagged[table.table_id, name] = held
        self.note()

    def restore(self) -> None:
        """The version before."""
        ctx = self.context()
        table = load_pointer(ctx).snapshot
        version = max(table.version - 1, table.oldest_version)
        now, then = self.rows(table), self.rows(load_version(ctx, table, version))
        restore(ctx, refs.source_of(ctx, table, version))
        for row in set(now) - set(then):
            self.acknowledged.pop(row, None)
        self.note()

    def repair(self) -> None:
        repair(self.context(), dry_run=False)
        self.at_risk.clear()

    def mend(self) -> None:
        for _ in range(REPAIRS):
            try:
                done = repair(self.context(), dry_run=False)
            except InlayError:
                continue
            if not done.mends:
                return
        pytest.fail("repairs do not come to an end")

    def check(self) -> None:
        self.mend()
        found = verify(self.context(), depth="footers")
        assert not list(found.errors), found.errors
        current = load_pointer(self.context())
        held = self.rows(current.snapshot)
        assert max(Counter(held).values(), default=1) == 1, f"rows come twice: {held}"
        mine = {
            row for row, table in self.acknowledged.items() if table == current.snapshot.table_id
        }
        assert mine - set(held) <= self.excused, f"lost: {mine - set(held) - self.excused}"
        assert not set(held) & self.erased
        for version in range(current.snapshot.oldest_version, current.snapshot.version + 1):
            snapshot = load_version(self.context(), current.snapshot, version)
            rows = self.rows(snapshot)
            assert rows == self.rows_of.get(snapshot.commit.id, rows), f"version {version}"
        # Those of a version that an operator overwrote are gone; none is of other rows.
        for (table_id, name), rows in self.tagged.items():
            if table_id == current.snapshot.table_id and name in current.snapshot.refs:
                ref = find_ref(self.context(), current.snapshot, name)
                held = self.rows(load_version(self.context(), current.snapshot, ref.version))
                assert held == rows, f"tag {name}"
        # And it takes commits.
        self.append()
        assert self.number in self.rows(load_pointer(self.context()).snapshot)


# What the stalled one finds.
SITUATIONS: dict[str, Callable[[Place], None]] = {
    "gone": Place.lose,
    "back by one": lambda place: place.put_back_by(1),
    "back by three": lambda place: place.put_back_by(3),
    "cut": Place.cut,
}
# What others do in the gap.
GAPS: dict[str, Callable[[Place], None]] = {
    "an append": Place.append,
    "another repair": Place.repair,
    "a repair, and appends": lambda place: (place.repair(), place.append(), place.append()),
    "a collection": Place.collect,
    "a repair and a collection": lambda place: (place.repair(), place.append(), place.collect()),
    "a repair and an erasure": lambda place: (place.repair(), place.erase()),
    "the pointer is put back by one": lambda place: place.put_back_by(1),
    "the pointer is put to the first": lambda place: place.put_back(1),
    "the pointer is lost": Place.lose,
    "the pointer is cut": Place.cut,
    "a repair, and back again": lambda place: (
        place.repair(),
        place.append(),
        place.put_back(max(place.archives()[:-2], default=1)),
    ),
    "a repair, and lost again": lambda place: (place.repair(), place.append(), place.lose()),
    "the table is created again": Place.create_again,
    "a compaction": Place.compact,
    "a merge of a branch": Place.merge,
    "a repair and a merge": lambda place: (place.repair(), place.merge()),
    "tags, and back to one of them": lambda place: (
        place.tag(),
        place.append(),
        place.append(),
        place.put_back_by(2),
    ),
    "a repair, tags, and expired": lambda place: (place.repair(), place.tag(), place.collect()),
    "a repair and a restore": lambda place: (place.repair(), place.restore(), place.append()),
    "a restore, and back": lambda place: (place.restore(), place.put_back_by(1)),
}


@cache
def start(versioned: bool, situation: str) -> Place:
    place = Place(versioned)
    create(place.context(), SCHEMA)
    place.note()
    for _ in range(4):
        place.append()
    SITUATIONS[situation](place)
    return place


def stalled(
    place: Place,
    act: Callable[[Context], object],
    at: int,
    gap: Callable[[Place], object],
    end: str,
) -> bool:
    """Whether `act` came to its request `at`, before which it stalls; then it goes on, or is killed."""
    met = False

    def before(sent: Sent) -> None:
        nonlocal met
        if sent.number != at or met:
            return
        met = True
        with suppress(InlayError):  # refused, by type
            gap(place)
        if end == "killed":
            raise Killed

    with suppress(Killed, InlayError):
        act(place.context(FaultyStore(place.store, before=before)))
    return met


ENDS = ("resumed", "killed")
ACTS: dict[str, Callable[[Context], object]] = {
    "repair": lambda ctx: repair(ctx, dry_run=False),
    "create": lambda ctx: create(ctx, SCHEMA),
}


def stalls(situation: str, versioned: bool, gap: str, requests: range) -> int:
    """Repairs that stall at each of these requests, resumed and killed; how many did."""
    count = 0
    for end in ENDS:
        for at in requests:
            place = start(versioned, situation).copy()
            if not stalled(place, ACTS["repair"], at, GAPS[gap], end):
                break
            place.check()
            count += 1
        else:
            pytest.fail("a repair has no end")
    return count


@pytest.mark.parametrize(("situation", "versioned"), paired(list(SITUATIONS), [False, True]))
def test_a_repair_that_stalls_at_some_requests(situation, versioned):
    """Of all pairs of a request and an act one in 24, others for each act and each test."""
    for number, gap in enumerate(GAPS, start=5 * list(SITUATIONS).index(situation)):
        stalls(situation, versioned, gap, range(1 + number % 24, MOST_REQUESTS, 24))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("versioned", [False, True], ids=["plain", "versioned"])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_repair_that_stalls_at_any_request(situation, versioned):
    for gap in GAPS:
        assert stalls(situation, versioned, gap, range(1, MOST_REQUESTS)) > 2


@pytest.mark.parametrize("versioned", [False, True], ids=["plain", "versioned"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("deed", ["another creates", "and removes", "archives are left"])
def test_a_creation_that_stalls_at_any_request(deed, end, versioned):
    """Nothing is created over what others have created; what they removed is free again."""

    def gap(place: Place) -> None:
        place.create_again()
        if deed == "and removes":
            place.remove()
        if deed == "archives are left":
            place.store.delete([POINTER])

    for at in range(1, MOST_REQUESTS):
        place = Place(versioned)
        if not stalled(place, ACTS["create"], at, gap, end):
            break
        if deed == "archives are left" and end == "killed":
            place.excused |= {2}  # the newest stood in the pointer alone
        if place.raw(POINTER) is None and not place.archives():
            create(place.context(), SCHEMA)
        if deed == "archives are left" and end == "resumed":
            place.excused |= {1, 2}  # of a table that was begun again before anybody repaired it
        place.check()
    assert at > 2


@pytest.mark.parametrize("versioned", [False, True], ids=["plain", "versioned"])
def test_a_repair_of_a_sound_table_leaves_nothing_that_stops_its_writers(versioned):
    """What others commit between two of its requests is no sign that the pointer went back."""
    for at in range(1, MOST_REQUESTS):
        place = Place(versioned)
        create(place.context(), SCHEMA)
        for _ in range(3):
            place.append()
        if not stalled(
            place, ACTS["repair"], at, lambda place: (place.append(), place.append()), "resumed"
        ):
            break
        place.append()
        assert not list(verify(place.context(), depth="footers").errors)
    assert at > 2


@pytest.mark.parametrize(
    "versioned", [pytest.param(False, marks=pytest.mark.wide), True], ids=["plain", "versioned"]
)
def test_a_repair_that_loses_to_commits_leaves_no_history_that_the_next_goes_on_from(versioned):
    """An archive of another table is far beyond the pointer, so that others still commit. A repair passed
    over its number, archived itself and lost its swap; the next one took that archive for the table, and
    what had been committed was gone."""
    other = Place(versioned, processes=1_000)
    create(other.context(), SCHEMA)
    for _ in range(12):
        other.append()
    for at in range(1, MOST_REQUESTS):
        place = Place(versioned)
        create(place.context(), SCHEMA)
        for _ in range(3):
            place.append()
        place.store.put(f"{ROOT}/{keys.archive_key(11)}", other.archive(11))
        if not stalled(
            place, ACTS["repair"], at, lambda place: (place.append(), place.append()), "resumed"
        ):
            break
        place.check()
        assert not place.excused
    assert at > 2

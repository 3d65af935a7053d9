"""Requests that arrive when their sender has long gone on: each write of each operation, carried out by the
store after others have committed, expired, collected, repaired, or created another table at the place.

A write that is late changes no row and no version that is there. At most it leaves an archive under a
number that a table comes to: the next commit is refused then, and a repair passes the number.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache

import pytest
from tests.simulator.faults import Fate, FaultyStore, Request, Sent, once

from inlay.errors import ForeignArchives, InlayError, StoreUnavailable, TableNotFound
from inlay.format import keys
from inlay.ops.drop import drop
from inlay.ops.maintain.expire import expire
from inlay.ops.metadata.load import load_pointer, load_version
from inlay.ops.verify.repair import repair
from inlay.ops.verify.table import verify
from inlay.storage import write_once
from inlay.storage.base import Got
from inlay.storage.memory import MemoryRegion, MemoryStore

from .conftest import POINTER
from .test_replaced_under_way import HOUR_US, OPERATIONS, Place, collect


def nothing(place: Place) -> None:
    """The sender gave up just now."""


def others(place: Place) -> None:
    """Work, and all that is older goes."""
    for row in (60, 61, 62):
        place.append(row)
    expire(place.context(), days=0, min_versions=1)
    place.now_us += HOUR_US
    collect(place.context())
    place.now_us += HOUR_US
    collect(place.context())


def a_repair(place: Place) -> None:
    """The pointer is lost, and rebuilt."""
    place.append(60)
    place.append(61)
    place.store.delete([POINTER])
    repair(place.context(), dry_run=False)
    place.append(62)


def going_back(place: Place) -> None:
    """An operator puts the pointer back by three versions, and has it repaired."""
    for row in (60, 61, 62, 63):
        place.append(row)
    version = load_pointer(place.context()).snapshot.version - 3
    older = place.store.get(f"tables/t/{keys.archive_key(version)}")
    assert isinstance(older, Got)
    place.store.put(POINTER, older.body)
    repair(place.context(), dry_run=False)


def another_table(place: Place) -> None:
    place.replace()


SITUATIONS = (nothing, others, a_repair, going_back, another_table)
# The end of a table deletes its pointer, below.
LATE = {name: run for name, run in OPERATIONS.items() if name != "drop"}
QUICK = ("append", "delete", "compact", "collect")
# What a late delete may take (docs/GUARANTEES.md, 1): names that come again with another table.
NAMES_COME_AGAIN = frozenset({another_table})


def rows_of_versions(place: Place) -> dict[int, bytes]:
    """What is there of each version that can be opened: its snapshot."""
    ctx = place.context()
    now = load_pointer(ctx)
    found = {now.snapshot.version: now.raw}
    for version in range(now.snapshot.oldest_version, now.snapshot.version):
        got = place.store.get(f"tables/t/{keys.archive_key(version)}")
        assert isinstance(got, Got), version
        load_version(ctx, now.snapshot, version)
        found[version] = got.body
    return found


@cache
def made() -> tuple[Place, MemoryRegion]:
    place = Place()
    region = MemoryRegion(place.tick)
    place.store = MemoryStore("b", region=region)
    place.make(0)
    return place, region


def begun() -> Place:
    """A copy of a table."""
    first, region = made()
    place = Place()
    place.now_us, place.contexts = first.now_us, first.contexts
    place.store = MemoryStore("b", region=region.copy(place.tick))
    return place


def requests_of(name: str) -> list[Sent]:
    """Those that can be late."""
    place = begun()
    sent: list[Sent] = []

    def note(each: Sent) -> Fate:
        sent.append(each)
        return Fate.DONE

    with suppress(InlayError):
        LATE[name](place.context(FaultyStore(place.store, note, later=lambda request: None)))
    return [each for each in sent if Fate.LATE in each.possible]


def haunt(name: str, fate: Fate, number: int, situation: Callable[[Place], None]) -> None:
    place = begun()
    held: list[Request] = []
    plan = lambda sent: fate if sent.number == number else Fate.DONE  # noqa: E731
    try:
        LATE[name](place.context(FaultyStore(place.store, plan, later=held.append)))
    except InlayError:
        with suppress(InlayError):  # erasures are opened once
            LATE[name](place.context())
    assert len(held) == 1
    situation(place)
    rows, versions = place.rows(), rows_of_versions(place)
    held[0]()
    assert place.rows() == rows
    assert rows_of_versions(place) == versions
    for row in (70, 71):
        try:
            place.append(row)
        except ForeignArchives:
            repair(place.context(), dry_run=False)
            place.append(row)
    assert place.rows() == sorted([*rows, 70, 71])
    # A late archive may have the number of the very last version, or of the next: it is named here first.
    if found := verify(place.context(), depth="metadata").errors:
        assert {each.kind for each in found} <= {"archive_differs", "pointer_behind"}
        repair(place.context(), dry_run=False)
        assert verify(place.context(), depth="metadata").errors == ()
        assert place.rows() == sorted([*rows, 70, 71])


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.__name__)
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in LATE]
)
def test_a_write_that_arrives_late_changes_nothing_that_is_there(name, situation):
    for sent in requests_of(name):
        if sent.verb == "delete" and situation in NAMES_COME_AGAIN:
            continue
        for fate in {Fate.LATE, Fate.GHOST}.intersection(sent.possible):
            try:
                haunt(name, fate, sent.number, situation)
            except BaseException as error:
                error.add_note(f"{name}: {sent}, {fate.name}, {situation.__name__}")
                raise


def test_a_delete_of_the_pointer_that_arrives_late_costs_the_version_that_is_in_it():
    """The one request that may do so: of a drop, whose table was taken back meanwhile."""
    place = begun()
    held: list[Request] = []
    late = FaultyStore(place.store, once(Fate.LATE, verb="delete"), later=held.append)
    with pytest.raises(StoreUnavailable):
        drop(place.context(late))
    drop(place.context())
    repair(place.context(), dry_run=False)
    before = place.rows()
    place.append(60)
    place.append(61)
    held[0]()
    with pytest.raises(TableNotFound):
        place.rows()
    repair(place.context(), dry_run=False)
    assert place.rows() == sorted([*before, 60])


def test_without_its_condition_a_late_archive_is_found(monkeypatch):
    """What holds in the tests above is not for want of a look."""
    monkeypatch.setattr(write_once, "IF_ABSENT", None)

    def another_table_that_went_on(place: Place) -> None:
        place.replace()
        for row in (60, 61):
            place.append(row)

    archives = [sent for sent in requests_of("append") if keys.ARCHIVES in sent.key]
    with pytest.raises((AssertionError, InlayError)):
        haunt("append", Fate.LATE, archives[0].number, another_table_that_went_on)

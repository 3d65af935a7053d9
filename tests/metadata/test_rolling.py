"""How entries that a commit adds come into leaves, and which records of requests are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from inlay.format.codec import encode_snapshot
from inlay.format.entry import DataFile, Marker, Where
from inlay.format.predicate import Comparison, Literal
from inlay.format.schema import Primitive
from inlay.format.snapshot import Erasure, Ledger, Segment, Tier
from inlay.plan.change import AddFiles, Change, NeedSegments, Request
from inlay.plan.commit import apply as apply_module
from inlay.plan.commit import draft
from inlay.plan.metadata.state import CLOCK_SKEW_US, RequestRefused, look_up, open_tree

from .tables import Table

LEAF = 8


@pytest.fixture
def table() -> Iterator[Table]:
    """Nothing stays inline."""
    with (
        patch.object(apply_module._Files, "most", LEAF),
        patch.object(apply_module, "POINTER_TARGET_BYTES", 100),
        patch.object(apply_module, "INLINE_MIN_BYTES", 0),
    ):
        yield Table()


def leaves(table: Table) -> list[int]:
    state = table.load()
    return [s.live for s in open_tree(state.snapshot.files.segments, state.contents.nodes).leaves]


def test_few_new_files_join_those_of_earlier_commits(table: Table) -> None:
    table.append(table.files(1))
    table.append(table.files(LEAF // 2))
    assert leaves(table) == [1 + LEAF // 2]


def test_more_than_half_a_leaf_is_a_leaf_of_its_own(table: Table) -> None:
    """In the order of its keys, and not written again with what comes next."""
    table.append(table.files(1))
    table.append(table.files(LEAF // 2 + 1))
    assert sorted(leaves(table)) == [1, LEAF // 2 + 1]
    assert len(list(table.load().files())) == LEAF // 2 + 2


def test_so_are_the_records_of_many_new_requests(table: Table) -> None:
    """They are the same bytes whatever the base has."""
    with patch.object(apply_module._Records, "most", LEAF):
        table.append(table.files(1))
        table.append(table.files(LEAF // 2 + 1))
        tier = table.load().snapshot.ledger.records
        assert tier.inline == ()
        assert [s.live for s in tier.segments] == [LEAF // 2 + 1, 1]
        table.append(table.files(LEAF // 2))
    tier = table.load().snapshot.ledger.records
    assert [s.live for s in tier.segments] == [LEAF // 2 + 1, 1 + LEAF // 2]


def test_entries_stay_in_the_pointer_up_to_its_target_or_their_least() -> None:
    """The least counts from what the pointer is without them."""
    state = Table().load()
    files = tuple(replace(file, sequence=2) for file in Table().files(20))
    snapshot = replace(state.snapshot, version=2, files=Tier((), files))
    size = len(encode_snapshot(snapshot))
    bare = len(encode_snapshot(state.snapshot))
    change = Change(operation="append")
    for target, least, stays in (
        (size, 0, True),
        (size - 1, 0, False),
        (size - 1, size - bare, True),
        (size - 1, size - bare - 1, False),
        (1, size - bare, True),
    ):
        with (
            patch.object(apply_module, "POINTER_TARGET_BYTES", target),
            patch.object(apply_module, "INLINE_MIN_BYTES", least),
        ):
            fitted = apply_module.fit_pointer(snapshot, state, change, lambda data: "new")
        assert not isinstance(fitted, NeedSegments)
        after, written = fitted
        assert (after == snapshot, len(written)) == ((True, 0) if stays else (False, 1))
        assert len(encode_snapshot(after)) <= size


def test_records_are_kept_that_are_not_older_than_what_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(draft, "forgotten_before", lambda base: 50)
    monkeypatch.setattr(draft, "horizon", lambda base: 40)
    segments = tuple(
        Segment(id=f"{last}", count=1, size=1, first_us=1, last_us=last)
        for last in (49, 50, 51, None)
    )
    base = SimpleNamespace(ledger=Ledger(records=Tier(segments, ())))
    change = SimpleNamespace(request=None, events=(), objects=())
    planned: Any = SimpleNamespace(salt=None, base=base, change=change)
    found = draft.Draft._ledger(planned)
    assert [s.id for s in found.records.segments] == ["50", "51", "None"]
    assert found.horizon_us == 40


@pytest.mark.parametrize(
    ("made_us", "refused"), [(49, True), (50, False), (51, False), (None, False)]
)
def test_a_request_is_too_old_that_was_made_before_the_horizon(
    made_us: int | None, refused: bool
) -> None:
    state = Table().load()
    ledger = replace(state.snapshot.ledger, horizon_us=50)
    state = replace(state, snapshot=replace(state.snapshot, ledger=ledger))
    found = look_up(state, Request.of("a", time_us=made_us))
    assert isinstance(found, RequestRefused) is refused
    assert refused or found == frozenset()


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize(
    ("made_us", "sought"),
    [
        ([1_000], ["at", "open"]),
        ([1_001], ["open"]),
        ([999], ["before", "at", "open"]),
        ([1_001, 1_000], ["at", "open"]),
        ([1_001, None], ["before", "at", "open"]),
    ],
)
def test_a_request_is_sought_where_it_may_be_applied_if_its_clock_ran_ahead(
    made_us: list[int | None], sought: list[str], level: int
) -> None:
    """By a quarter of an hour: it is applied after it was made."""
    ages = {"before": -1, "at": 0, "open": None}
    segments = tuple(
        Segment(
            id=name,
            level=level,
            count=1,
            size=1,
            last_us=None if age is None else 1_000 - CLOCK_SKEW_US + age,
        )
        for name, age in ages.items()
    )
    state = Table().load()
    ledger = replace(state.snapshot.ledger, records=Tier(segments, ()))
    state = replace(state, snapshot=replace(state.snapshot, ledger=ledger))
    requests = [Request.of(f"{n}", time_us=time_us) for n, time_us in enumerate(made_us)]
    missing = look_up(state, None, requests)
    assert isinstance(missing, NeedSegments) and [s.id for s in missing.ledger] == sought
    older = look_up(state, replace(requests[0], may_be_older=True), requests[1:])
    assert isinstance(older, NeedSegments) and [s.id for s in older.ledger] == [*ages]


@pytest.mark.parametrize(("made_us", "hit"), [(99, True), (100, True), (101, False)])
def test_a_file_of_an_object_from_before_an_erasure_comes_with_its_delete(
    made_us: int, hit: bool
) -> None:
    """Dated in the second of the opening it counts as from before. Without a condition there is none."""
    state = Table().load()
    selects = Comparison(1, "=", Literal(Primitive("int64"), 7))
    erasures = tuple(
        Erasure(
            id=name, predicate=predicate, text="", phase="rewrite", opened_version=1, opened_us=100
        )
        for name, predicate in (("e", selects), ("done", None))
    )
    file = DataFile(key="data/a", size=9, footer_size=9, rows=5, row_groups=1, schema_id=1)
    added = AddFiles((file,), sources_us={"data/a": made_us})
    base = replace(state.snapshot, erasures=erasures)
    planned: Any = SimpleNamespace(base=base, change=Change(operation="ingest", updates=(added,)))
    expected = Marker(id="e:data/a", body=Where(selects), file="data/a", erasure="e")
    assert draft.Draft._late(planned) == ((expected,) if hit else ())

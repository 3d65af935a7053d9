"""Whatever rolls, gathers, dies or is clustered: the live entries are those of a plain dict."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.metadata.tables import Table

from inlay.ops.maintain.compact import cluster_metadata
from inlay.plan.commit import apply as apply_module
from inlay.plan.maintain import leaf_overlap
from inlay.plan.metadata import leaves as tiers


class LiveEntries(RuleBasedStateMachine):
    """A table of tiny leaves and nodes, and the dict that it must equal."""

    def __init__(self) -> None:
        super().__init__()
        self.smaller = [
            patch.object(apply_module._Files, "most", 6),
            patch.object(apply_module._Markers, "most", 4),
            patch.object(apply_module._Records, "most", 8),
            patch.object(tiers, "NODE_MAX_LEAVES", 5),
            patch.object(tiers, "GATHER_LEAVES", 2),
            patch.object(tiers, "HEAVY_DEAD_BYTES", 24),
            patch.object(apply_module, "POINTER_TARGET_BYTES", 1_500),
            patch.object(apply_module, "INLINE_MIN_BYTES", 300),
            patch.object(leaf_overlap, "DEPTH", 1),
            patch.object(leaf_overlap, "MAX_LEAVES", 4),
        ]
        for each in self.smaller:
            each.start()
        self.table = Table()
        self.files: dict[str, int] = {}  # key → version that added it
        self.markers: dict[str, str] = {}  # id → file
        self.events: dict[bytes, int] = {}

    def teardown(self) -> None:
        for each in self.smaller:
            each.stop()

    @rule(count=st.integers(1, 14), cold=st.booleans())
    def append(self, count: int, cold: bool) -> None:
        if cold:
            self.table.forget()
        files = self.table.files(count)
        version, events = self.table.append(files)
        self.files |= {f.key: version for f in files}
        self.events |= dict.fromkeys(events, version)

    @precondition(lambda self: self.files)
    @rule(data=st.data(), cold=st.booleans())
    def replace(self, data: st.DataObject, cold: bool) -> None:
        if cold:
            self.table.forget()
        gone = data.draw(st.sets(st.sampled_from(sorted(self.files)), min_size=1, max_size=8))
        files = self.table.files(1)
        version = self.table.replace(tuple(sorted(gone)), files)
        for key in gone:
            del self.files[key]
        self.files |= {f.key: version for f in files}
        self.markers = {i: f for i, f in self.markers.items() if f not in gone}

    @precondition(lambda self: self.files)
    @rule(data=st.data(), cold=st.booleans())
    def mark(self, data: st.DataObject, cold: bool) -> None:
        if cold:
            self.table.forget()
        marked = data.draw(st.lists(st.sampled_from(sorted(self.files)), min_size=1, max_size=6))
        self.markers |= dict(zip(self.table.mark(marked), marked, strict=True))

    @rule()
    def tidy(self) -> None:
        self.table.tidy()

    @rule()
    def cluster(self) -> None:
        self.table.forget()
        cluster_metadata(self.table.ctx)

    @invariant()
    def the_live_entries_are_those_of_the_model(self) -> None:
        state = self.table.load()
        assert {f.key: f.sequence for f in state.files()} == self.files
        assert {m.id: m.file for m in state.markers()} == self.markers
        assert {r.id: r.version for r in self.table.records()} == self.events
        assert state.snapshot.totals.files == len(self.files)

    @invariant()
    def references_say_what_is_under_them(self) -> None:
        assert list(self.table.unsound()) == []


TestLiveEntries = LiveEntries.TestCase
TestLiveEntries.settings = settings(
    deadline=None, max_examples=25, stateful_step_count=25, print_blob=True
)


@pytest.fixture
def small_leaves() -> Iterator[None]:
    with (
        patch.object(apply_module._Files, "most", 8),
        patch.object(tiers, "NODE_MAX_LEAVES", 16),
        patch.object(apply_module, "POINTER_TARGET_BYTES", 1_500),
        patch.object(apply_module, "INLINE_MIN_BYTES", 300),
    ):
        yield


def test_the_machine_gets_to_nodes(small_leaves: None) -> None:
    table = Table()
    for _ in range(60):
        table.append(table.files(4))
    tops = table.load().snapshot.files.segments
    assert any(s.level for s in tops) and len(tops) < 30

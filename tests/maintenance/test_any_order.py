"""Maintenance in any order changes no row of any version that may still be read."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.maintain.rewrite import rewrite

from .bench import DAY, Bench, id_below, id_is, new_bench


class AnyOrder(RuleBasedStateMachine):
    """Rows by version, as a plain model, against the table."""

    def __init__(self) -> None:
        super().__init__()
        self.bench: Bench = new_bench(properties=[("write.row_group_rows", 4)])
        self.live: list[int] = []
        self.history: dict[int, list[int]] = {}
        self._note()

    def _note(self) -> None:
        """Every version since the last look has the rows of now: one rule changes rows once."""
        version = self.bench.load().snapshot.version
        for missing in range(max(self.history, default=0) + 1, version + 1):
            self.history[missing] = sorted(self.live)

    @rule(rows=st.integers(1, 9))
    def append(self, rows: int) -> None:
        first = self.bench.next_id
        self.bench.append(rows)
        self.live += range(first, first + rows)
        self._note()

    @rule(data=st.data(), mode=st.sampled_from(["tombstone", "vector", "surgery", "rewrite"]))
    def delete(self, data: Any, mode: str) -> None:
        if not self.bench.next_id:
            return
        chosen = data.draw(st.sets(st.integers(0, self.bench.next_id - 1), min_size=1, max_size=5))
        self.bench.delete(id_is(*chosen), mode=mode)
        self.live = [i for i in self.live if i not in chosen]
        self._note()

    @rule(data=st.data())
    def delete_the_oldest(self, data: Any) -> None:
        limit = data.draw(st.integers(0, self.bench.next_id))
        self.bench.delete(id_below(limit))
        self.live = [i for i in self.live if i >= limit]
        self._note()

    @rule(strategy=st.sampled_from(["auto", "surgery", "rewrite"]))
    def rewrite(self, strategy: Any) -> None:
        rewrite(self.bench.ctx, strategy=strategy)
        assert list(self.bench.load().state.markers()) == []
        self._note()

    @rule(small=st.sampled_from([None, 0, 1 << 30]), full=st.sampled_from([None, 2_000]))
    def compact(self, small: int | None, full: int | None) -> None:
        compact(self.bench.ctx, small_bytes=small, target_bytes=full)
        self._note()

    @rule(days=st.integers(0, 4))
    def expire(self, days: int) -> None:
        expire(self.bench.ctx, days=days)
        self._note()

    @rule(days=st.sampled_from([0, 1, 3]))
    def collect(self, days: int) -> None:
        collect_garbage(self.bench.ctx, grace_seconds=days * DAY)
        self._note()

    @rule(days=st.integers(0, 3))
    def wait(self, days: int) -> None:
        self.bench.time.sleep(1 + days * DAY)

    @invariant()
    def every_version_reads_as_it_was(self) -> None:
        current = self.bench.load().snapshot
        assert sorted(self.bench.ids()) == sorted(self.live)
        for version in range(current.oldest_version, current.version + 1):
            assert sorted(self.bench.ids(version)) == self.history[version]

    def teardown(self) -> None:
        """At rest nothing is left but what the last version needs."""
        bench = self.bench
        rewrite(bench.ctx)
        expire(bench.ctx, days=0)
        for _ in range(2):
            bench.time.sleep(2)
            collect_garbage(bench.ctx, grace_seconds=0, clock_margin_seconds=0)
        assert sorted(bench.ids()) == sorted(self.live)
        state = bench.load().state
        assert set(bench.keys("data/")) == {f.key for f in state.files()}
        assert bench.keys("tombstone/") == []


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(deadline=None, max_examples=25, stateful_step_count=14)

"""Branches, tags, merges and restores against plain sets of rows."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from inlay.errors import MergeConflict
from inlay.table import Table

from .place import Place, rows

Rows = frozenset[tuple[int, int]]  # (id, mark): no two rows of a table are ever the same

names = st.sampled_from(["a", "b", "c"])
anywhere = st.sampled_from(["main", "a", "b", "c"])
modes = st.sampled_from(["tombstone", "vector", "surgery", "rewrite"])
remainders = st.tuples(st.integers(2, 4), st.integers(0, 3))


def rows_of(table: Table) -> Rows:
    found = table.scan().to_arrow().to_pylist()
    counted = Counter((r["id"], r["mark"]) for r in found)
    assert max(counted.values(), default=1) == 1, "a row is there twice"
    return frozenset(counted)


class Branches(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.place = Place()
        self.fresh = count(1)
        self.main: Rows = frozenset()
        self.branches: dict[str, Rows] = {}
        self.tags: dict[str, Rows] = {}
        self.bases: dict[str, Rows] = {}  # what a branch and main had in common; none: unknown
        self.rewrote: dict[str, set[str]] = {}  # by branch: who rewrote files since
        self.taken: dict[str, set[tuple[int, int]]] = {}  # what restores of main took since
        self.versions: dict[int, Rows] = {}
        self.handles: dict[str, Table] = {}
        self.append("main", 8)
        self.a_version_is_remembered()
        self.branch("a", None)

    # -- what is there -----------------------------------------------------------------------

    def of(self, name: str) -> Rows:
        return self.main if name == "main" else self.branches[name]

    def put(self, name: str, found: Rows) -> None:
        if name == "main":
            self.main = found
        else:
            self.branches[name] = found

    def table(self, name: str) -> Table | None:
        """A table object of that branch, often one that has not seen the last commits."""
        if name != "main" and name not in self.branches:
            return None
        if name not in self.handles:
            self.handles[name] = self.place.open(ref=name)
        return self.handles[name]

    def forget(self, name: str) -> None:
        for found in (self.branches, self.bases, self.rewrote, self.taken, self.handles):
            found.pop(name, None)

    def rewrites(self, name: str) -> None:
        for branch, who in self.rewrote.items():
            if name in ("main", branch):
                who.add(name)

    @invariant()
    def a_version_is_remembered(self) -> None:
        self.versions[self.place.open().version] = self.main

    def check(self) -> None:
        assert rows_of(self.place.open()) == self.main
        for name, found in self.branches.items():
            assert rows_of(self.place.open(ref=name)) == found, name
        for name, found in self.tags.items():
            assert rows_of(self.place.open(ref=name)) == found, name

    def teardown(self) -> None:
        if hasattr(self, "place"):
            self.check()
            found = self.place.open().maintain.verify(depth="pages")
            # A writer that lost a race leaves the head that it had written.
            assert {f.kind for f in found.findings} <= {"orphans"}, found.findings

    # -- rows --------------------------------------------------------------------------------

    @rule(name=anywhere, size=st.integers(1, 9))
    def append(self, name: str, size: int) -> None:
        table = self.table(name)
        if table is not None:
            ids = [next(self.fresh) for _ in range(size)]
            table.append(rows(ids))
            self.put(name, self.of(name) | {(i, 0) for i in ids})

    @rule(name=anywhere, which=remainders, mode=modes)
    def delete(self, name: str, which: tuple[int, int], mode: str) -> None:
        table = self.table(name)
        if table is not None:
            modulus, left = which
            listed = [i for i in range(100) if i % modulus == left % modulus]
            done = table.delete(f"id IN ({', '.join(map(str, listed))})", mode=mode)
            if mode in ("surgery", "rewrite") and done.committed:
                self.rewrites(name)
            self.put(name, frozenset(r for r in self.of(name) if r[0] not in listed))

    @rule(name=anywhere, below=st.integers(1, 60))
    def delete_range(self, name: str, below: int) -> None:
        table = self.table(name)
        if table is not None:
            table.delete(f"id < {below}")
            self.put(name, frozenset(r for r in self.of(name) if r[0] >= below))

    @rule(name=anywhere, which=st.integers(0, 60), mode=modes)
    def update(self, name: str, which: int, mode: str) -> None:
        table = self.table(name)
        if table is not None:
            mark = next(self.fresh)
            bounds = (which, which + 5)
            done = table.update(
                {"mark": str(mark)}, where=f"id BETWEEN {bounds[0]} AND {bounds[1]}", mode=mode
            )
            if mode in ("surgery", "rewrite") and done.committed:
                self.rewrites(name)
            hit = {r for r in self.of(name) if bounds[0] <= r[0] <= bounds[1]}
            self.put(name, self.of(name) - hit | {(i, mark) for i, _ in hit})

    @rule(name=anywhere, what=st.sampled_from(["compact", "rewrite"]))
    def maintain(self, name: str, what: str) -> None:
        table = self.table(name)
        if table is not None:
            getattr(table.maintain, what)()
            self.rewrites(name)

    # -- refs --------------------------------------------------------------------------------

    @rule(name=names, version=st.none() | st.integers(1, 40))
    def branch(self, name: str, version: int | None) -> None:
        if name in self.branches or name in self.tags:
            return
        main = self.place.open()
        if version is not None and not main.snapshot.oldest_version <= version <= main.version:
            return
        found = self.main if version is None else self.versions.get(version)
        if found is None:
            return
        self.handles[name] = main.refs.branch(name, at=version)
        self.branches[name] = self.bases[name] = found
        self.rewrote[name] = {"main"} if version is not None else set()
        self.taken[name] = set()

    @rule(name=names, of=anywhere)
    def tag(self, name: str, of: str) -> None:
        if name not in self.branches and name not in self.tags and self.table(of) is not None:
            self.place.open(ref=of).refs.tag(name)
            self.tags[name] = self.of(of)

    @rule(name=names)
    def drop(self, name: str) -> None:
        if name in self.branches or name in self.tags:
            self.place.open().refs.drop(name)
            self.forget(name)
            self.tags.pop(name, None)

    @rule(name=names, forward=st.booleans())
    def merge(self, name: str, forward: bool) -> None:
        if name not in self.branches:
            return
        main = self.place.open()
        try:
            done = main.refs.fast_forward(name) if forward else main.refs.merge(name)
        except MergeConflict:
            unknown = name not in self.bases
            assert forward or unknown or self.rewrote[name], "nothing stood in the way"
            return
        base, branch = self.bases[name], self.branches[name]
        if forward:
            assert branch == base or self.main == base
            merged = branch if branch != base else self.main
        else:
            merged = self.main - (base - branch) | (branch - base)
            # What a restore took back leaves neither side without a word.
            gone = self.taken.get(name, set()) & branch - merged
            assert done.note or not gone
        if not forward or branch != base:
            self.main = self.branches[name] = self.bases[name] = merged
        else:
            self.main = merged
        if self.branches[name] == self.main:
            self.bases[name] = self.main
            self.taken.pop(name, None)
        for other, who in self.rewrote.items():
            if other == name and self.branches[name] == self.main:
                who.clear()
            elif self.rewrote[name]:
                who.add("main")
        for other in self.rewrote:
            if other != name:
                self.rewrote[other].add("main")
        self.check()

    @rule(name=anywhere, of=anywhere, version=st.integers(1, 40), by_version=st.booleans())
    def restore(self, name: str, of: str, version: int, by_version: bool) -> None:
        table = self.table(name)
        main = self.place.open()
        if table is None:
            return
        if by_version:
            if not main.snapshot.oldest_version <= version <= main.version:
                return
            found = self.versions.get(version)
            if found is None:
                return
            table.refs.restore(version=version)
            of = ""
        else:
            there = of == "main" or of in self.branches or of in self.tags
            if not there or of == name:
                return
            found = self.tags[of] if of in self.tags else self.of(of)
            table.refs.restore(ref=of)
        refs = {r["name"]: r for r in self.place.open().inspect.refs().to_pylist()}
        if name == "main":
            for other in self.branches:
                self.taken.setdefault(other, set()).update(self.main - found)
        self.put(name, found)
        for other in self.branches:
            self.rewrote[other].add("main")
            if refs[other]["base"] is None:
                self.bases.pop(other, None)
            elif other in (name, of):
                self.bases[other] = found
                self.taken[other] = set()
        self.check()

    @rule()
    def expire_and_collect(self) -> None:
        self.place.time.sleep(100)
        self.handles.clear()  # no reader is that slow: what they would read is collected
        table = self.place.open()
        table.maintain.expire(days=0, min_versions=2)
        self.place.time.sleep(100)
        table.maintain.collect_garbage(grace=timedelta(seconds=50))
        oldest = self.place.open().snapshot.oldest_version
        self.versions = {v: r for v, r in self.versions.items() if v >= oldest}
        self.check()


TestBranches = Branches.TestCase
TestBranches.settings = settings(deadline=None, max_examples=15, stateful_step_count=25)

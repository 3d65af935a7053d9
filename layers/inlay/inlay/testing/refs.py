"""Refs in the model: what each tag and branch must hold, and what a merge or a restore makes of main.

Promise: as in `testing.model`, nothing is known of files or markers: rows alone, version by version. A
branch's requests are applied to the branch's rows; what a ref is made of, its rows are from then on; an
erasure takes its rows out of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from inlay.format.snapshot import Ref, Snapshot
from inlay.testing.model import Expected, Model, Rows, SnapshotDelete, Violation, delete

# Commits that give main the rows of something else.
INTO_MAIN = frozenset(("restore", "fast_forward", "merge_branch"))


@dataclass(slots=True)
class RefModel:
    """`rows` of each ref; `restoring` are the versions that somebody may make main's rows again."""

    model: Model
    rows: dict[str, Rows] = field(default_factory=dict)
    restoring: set[int] = field(default_factory=set)

    def copy(self, model: Model) -> RefModel:
        return RefModel(model, dict(self.rows), set(self.restoring))

    def main(self, before: Snapshot, snapshot: Snapshot, found: Rows) -> Expected:
        """What main must hold after a commit of `INTO_MAIN`."""
        if snapshot.commit.operation == "restore":
            candidates = [self._at(snapshot, version) for version in sorted(self.restoring)]
            if found not in candidates:
                raise Violation(f"version {snapshot.version} restores what nobody asked for")
            return Expected(found, found)
        name = next(n for n, r in snapshot.refs.items() if before.refs.get(n) not in (None, r))
        branch = self.rows[name]
        fork = before.refs[name].base
        base, main = self._at(snapshot, fork), self.model.rows_at[before.version]
        if snapshot.commit.operation == "fast_forward":
            if main != base:
                raise Violation(f"version {snapshot.version} forwards over rows that main had got")
            return Expected(branch, branch)
        added, removed = branch - base, base - branch
        # Main may have deleted a row as well, and have got an equal one since.
        surely = self.model.stable(fork, snapshot.version)
        return Expected(main - (removed & main) + added, main - (removed & surely) + added)

    def on_branch(self, snapshot: Snapshot, branch: str) -> None:
        """A commit on a branch: its request is applied there."""
        request = snapshot.commit.request
        if request is None:
            return
        intent = self.model.apply_once(request, snapshot.version)
        if isinstance(intent, SnapshotDelete):
            raise Violation(f"{request} was meant for main, and is on {branch}")
        self.rows[branch] = intent(self.rows[branch])

    def advance(self, before: Snapshot | None, snapshot: Snapshot) -> None:
        """Take over what `snapshot` says of its refs, main's rows being known."""
        self.rows = dict(self._after(before, snapshot))

    def _after(self, before: Snapshot | None, snapshot: Snapshot) -> Iterator[tuple[str, Rows]]:
        old = {} if before is None else before.refs
        opened = {e.id for e in snapshot.erasures}
        opened -= set() if before is None else {e.id for e in before.erasures}
        for name, ref in snapshot.refs.items():
            rows = self._source(old, name, ref, snapshot)
            for erasure in opened:
                rows = delete(self.model.erasing[erasure])(rows)
            yield name, rows

    def _source(self, old: Mapping[str, Ref], name: str, ref: Ref, snapshot: Snapshot) -> Rows:
        there = old.get(name)
        if ref.head is None and (there is None or there.head or there.version != ref.version):
            named = {r.version for r in old.values() if r.head is None} | {
                r.base for r in old.values()
            }
            if ref.version < snapshot.oldest_version and ref.version not in named:
                raise Violation(
                    f"{ref.kind} {name} is made of version {ref.version}, which expired"
                )
            return self._at(snapshot, ref.version)
        if there is not None:
            return self.rows[name]
        like = next(n for n, r in old.items() if r.head == ref.head)
        return self.rows[like]

    def _at(self, snapshot: Snapshot, version: int) -> Rows:
        """Rows of a version of main as they are seen now: without those of erasures opened since."""
        rows = self.model.rows_at[version]
        for erasure in snapshot.erasures:
            if erasure.opened_version > version:
                rows = delete(self.model.erasing[erasure.id])(rows)
        return rows

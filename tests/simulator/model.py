"""The model: what a table must hold, as a plain list of rows, version by version.

Promise: the model knows nothing of files, markers or segments. Each actor says beforehand, under its
request id, what its operation does to rows; whenever a version appears in the store, the model applies
what that version's commit claims to be, and the real table is read and compared. So the history is
linearizable in the order of versions, or the check says at which version it is not.

The same holds for refs: what each tag and branch must hold, and what a merge or a restore makes of main. A
branch's requests are applied to the branch's rows; what a ref is made of, its rows are from then on; an
erasure takes its rows out of all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inlay.format.snapshot import Ref, Snapshot

Row = tuple[Any, ...]
Rows = Counter[Row]
Intent = Callable[[Rows], Rows]


@dataclass(frozen=True, slots=True)
class Expected:
    """Rows a version must hold at least and at most. They are the same but for row deletes under
    snapshot isolation, which need not see rows that arrived after they had read."""

    least: Rows
    most: Rows

    def allows(self, found: Rows) -> bool:
        return self.least <= found <= self.most


@dataclass(frozen=True, slots=True)
class Replace:
    """The intent that takes rows away and puts others there, of which some may equal what was taken."""

    kept: Intent
    put: Intent

    def __call__(self, before: Rows) -> Rows:
        return self.kept(before) + self.put(before)


@dataclass(frozen=True, slots=True)
class SnapshotDelete:
    """A delete of what it read: `since` is the newest version when the request was first made."""

    matches: Callable[[Row], bool]
    since: int


# Operations that may not change a single row.
MAINTENANCE = frozenset(
    (
        "create",
        "rewrite",
        "compact",
        "expire",
        "collect_garbage",
        "set_properties",
        "erase",
        "repair",
    )
) | frozenset(("alter", "tag", "branch", "drop_ref", "set_hold"))


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class Model:
    """`rows_at[v]` are the live rows of version v; `intents` what each request id does."""

    intents: dict[str, Intent | SnapshotDelete] = field(default_factory=dict)
    unnamed: dict[str, Rows] = field(default_factory=dict)  # appends without a request id
    landing: dict[str, Rows] = field(default_factory=dict)  # event token → its rows
    rows_at: dict[int, Rows] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    erasing: dict[str, Callable[[Row], bool]] = field(default_factory=dict)  # by erasure id
    meant: dict[str, str] = field(default_factory=dict)  # table id, of requests sent to one table
    table_id: str = ""

    def copy(self) -> Model:
        return Model(
            dict(self.intents),
            dict(self.unnamed),
            dict(self.landing),
            dict(self.rows_at),
            dict(self.applied),
            dict(self.acknowledged),
            dict(self.erasing),
            self.meant,
            self.table_id,
        )

    def begin(self) -> None:
        """Another table, of which nothing is known. What was asked stays."""
        self.rows_at, self.applied, self.acknowledged = {}, {}, {}

    def go_on_from(self, other: Model, acknowledged: dict[str, int]) -> None:
        """The table is as another model has it; what was asked of it stays."""
        self.unnamed, self.rows_at = {**other.unnamed, **self.unnamed}, dict(other.rows_at)
        self.applied, self.acknowledged = dict(other.applied), acknowledged

    def intend(self, request: str, intent: Intent | SnapshotDelete) -> None:
        self.intents.setdefault(request, intent)

    def acknowledge(self, request: str, version: int) -> None:
        """The caller learned that its request is part of `version`."""
        known = self.acknowledged.setdefault(request, version)
        if known != version:
            raise Violation(f"{request} was acknowledged in version {known} and in {version}")

    def advance(
        self,
        version: int,
        operation: str,
        request: str | None,
        events: Mapping[str, Iterable[str]],
        added: Rows,
        together: Sequence[str] = (),
    ) -> Expected:
        """What `version` must hold, by what its commit claims. The caller then sets `rows_at`.
        `events` are those applied, each with the erasures that were opened after its object landed.
        `added` are the rows of the files it added: an append without a request id is known by them.
        `together` are the requests of an append that stands for several (`ops.commit.group`)."""
        before = self.rows_at.get(version - 1, Counter())
        if request is not None:
            intent = self.apply_once(request, version)
            if isinstance(intent, SnapshotDelete):
                return self._bounds(intent, before, version)
            after = intent(before)
            return Expected(after, after)
        after = before
        for token, erasures in events.items():
            if token in self.applied:
                raise Violation(f"event {token} was applied twice, again in version {version}")
            self.applied[token] = version
            rows = self.landing[token]
            for erasure in erasures:
                rows = delete(self.erasing[erasure])(rows)
            after = after + rows
        if together:
            for name in together:
                after = self._once(name, version)(after)
            return Expected(after, after)
        if operation == "append" and not events:
            return self._anonymous(version, before, added)
        if not events and operation not in MAINTENANCE:
            raise Violation(f"version {version} ({operation}) says of no request whose it is")
        return Expected(after, after)

    def apply_once(self, request: str, version: int) -> Intent | SnapshotDelete:
        """What a request does, which this version says it applied."""
        if request in self.applied:
            raise Violation(
                f"{request} was applied in version {self.applied[request]} and in {version}"
            )
        if request not in self.intents:
            raise Violation(f"version {version} names a request nobody made: {request}")
        if self.meant.get(request, self.table_id) != self.table_id:
            raise Violation(f"version {version} applies {request}, which was sent to another table")
        self.applied[request] = version
        return self.intents[request]

    def _once(self, name: str, version: int) -> Intent:
        intent = self.apply_once(name, version)
        assert not isinstance(intent, SnapshotDelete), "only appends are committed together"
        return intent

    def _anonymous(self, version: int, before: Rows, added: Rows) -> Expected:
        names = [n for n, rows in self.unnamed.items() if rows == added]
        if not names:
            raise Violation(f"version {version} appends rows that nobody sent, or sent before")
        del self.unnamed[names[0]]
        self.applied[names[0]] = version
        return Expected(before + added, before + added)

    def _bounds(self, intent: SnapshotDelete, before: Rows, version: int) -> Expected:
        stable = self.stable(intent.since, version)
        must_go = Counter({r: n for r, n in stable.items() if intent.matches(r)})
        return Expected(delete(intent.matches)(before), before - must_go)

    def stable(self, since: int, version: int) -> Rows:
        """Rows of each version from `since` to before `version` that none of these put there again."""
        found = self.rows_at.get(version - 1, Counter())
        for earlier in range(since, version):
            found = found & self.rows_at[earlier]
        for request, applied in self.applied.items():
            intent = self.intents.get(request)
            if since < applied < version and isinstance(intent, Replace):
                found = found - intent.put(self.rows_at[applied - 1])
        return found

    def check_acknowledged(self) -> None:
        for request, version in self.acknowledged.items():
            if self.applied.get(request) != version:
                raise Violation(
                    f"{request} was acknowledged in version {version}, "
                    f"and is found in {self.applied.get(request)}"
                )


def insert(rows: list[Row]) -> Intent:
    return lambda before: before + Counter(rows)


def delete(matches: Callable[[Row], bool]) -> Intent:
    return lambda before: Counter({r: n for r, n in before.items() if not matches(r)})


def update(matches: Callable[[Row], bool], change: Callable[[Row], Row]) -> Intent:
    def put(before: Rows) -> Rows:
        after: Rows = Counter()
        for row, n in before.items():
            if matches(row):
                after[change(row)] += n
        return after

    return Replace(delete(matches), put)


def upsert(rows: list[Row], key: Callable[[Row], Any]) -> Intent:
    replaced = {key(r) for r in rows}
    return Replace(delete(lambda r: key(r) in replaced), lambda _: Counter(rows))


def partial_upsert(rows: list[Row], key: Callable[[Row], Any]) -> Intent:
    """`rows` give the first columns; of the others the old rows of a key keep their own."""
    given = {key(r): r for r in rows}

    def put(before: Rows) -> Rows:
        after: Rows = Counter()
        for row, n in before.items():
            new = given.get(key(row))
            if new is not None:
                after[new + row[len(new) :]] += n
        width = max(map(len, before), default=0)
        found = {key(row) for row in before}
        for name, new in given.items():
            if name not in found:
                after[new + (None,) * (width - len(new))] += 1
        return after

    return Replace(delete(lambda row: key(row) in given), put)


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

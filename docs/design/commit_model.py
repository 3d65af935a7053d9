"""A model of commits, archives, garbage and operators, and a checker that visits every state of it.

This is a specification that runs. It is written from docs/FORMAT.md (sections 2, 10, 11, 12) and
docs/GUARANTEES.md and imports nothing of Inlay, so that the code, its simulator and this do not share a
mistake. `tests/simulation/test_commit_model.py` holds that every rule is needed.

Actors: a writer (append under a request id) whose swap may not arrive, land without an answer, or arrive
after it has read the pointer and gone on; a collector; an operator who puts an older pointer back, deletes
it, removes the other objects, makes another table there; a repair, of which two may be under way; an eraser
of all rows; a clock that passes an hour, with LastModified up to one behind Date. Each may end after any
step. Commits of the collector and the eraser are one step. Left out: rows, schemas, segments, branches and
the rewriting of files, which are inside a snapshot that a commit replaces whole; the removal of a table
while it is repaired, and its pointer put over that of another. Equal bytes have equal ETags, so a swap in
flight fits a pointer that was put back meanwhile: such a commit is real, and no other follows until a
repair, but those in flight in the same way.

    python docs/design/commit_model.py                  # the bounds of CI, about half a minute
    python docs/design/commit_model.py --large          # many minutes
    python docs/design/commit_model.py --walks 100000   # every actor and fault at once, at random
    python docs/design/commit_model.py --without compare_archive

A state is a tuple; a step is one request to the store, or its failure. Breadth first, so what is printed
for a broken invariant is a shortest way to it. `Reduced` visits one state for many, and says why none is
missed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple


class Rule(NamedTuple):
    """What fails without it. Some rules stand behind others: these are left out with them."""

    promise: str
    behind: tuple[str, ...] = ()


ONCE = "rows are there at most once"
THERE = "what was acknowledged is there"
SAME = "a version reads what was committed as it"
REAL = "no archive tells of a version that never was"
BACK = "a pointer that went back is not written to"
FILES = "a file that is needed is there"
ERASED = "nothing erased comes back"
MEANT = "what is meant for one table is in no other"

RULES = {
    "look_after_doubt": Rule(ONCE, ("ask_the_ledger",)),
    "ask_the_ledger": Rule(ONCE),
    "compare_archive": Rule(SAME),
    "look_for_successor": Rule(BACK),
    "compare_table_in_look": Rule(
        ONCE,
        ("create_on_clean_ground", "compare_archive", "look_for_successor", "ask_the_ledger"),
    ),
    "create_on_clean_ground": Rule(SAME, ("compare_archive", "look_for_successor")),
    "keep_to_the_table": Rule(MEANT),
    "repair_archives_first": Rule(REAL),
    "repair_commits_anew": Rule(REAL),
    "repair_on_condition": Rule(THERE),
    "repair_looks_again": Rule(REAL),
    "repair_goes_on": Rule(THERE),
    "repair_asks_what_follows": Rule(THERE),
    "repair_searches_below": Rule(THERE),
    "repair_passes_numbers": Rule(REAL),
    "repair_expires_what_it_passed": Rule(SAME),
    "repair_moves_boundary": Rule(FILES),
    "repair_knows_its_table": Rule(SAME),
    "archive_before_swap": Rule(SAME),
    "swap_on_condition": Rule(THERE),
    "refuse_old_uploads": Rule(FILES),
    "roots_after_boundary": Rule(FILES),
    "margin_of_clocks": Rule(FILES),
    "collect_nothing_when_back": Rule(FILES),
    "archive_boundary": Rule(FILES),
    "erasure_moves_boundary": Rule(ERASED),
}


class Snapshot(NamedTuple):
    """What the pointer or an archive holds. `lineage[n]` is the commit that made version n + 1 (SKIPPED: a
    number that a repair left out); a commit of a writer adds that writer's row, and its file. `boundary`:
    the garbage boundary. Equal snapshots are equal bytes, and have one ETag."""

    table: int
    lineage: tuple[str, ...]
    boundary: int = -1
    oldest: int = 1
    erased_at: int = -1

    @property
    def version(self) -> int:
        return len(self.lineage)

    @property
    def commit(self) -> str:
        return self.lineage[-1]


class Writer(NamedTuple):
    """An append under a request id: `at` is the next step. `file` and `date`: the upload and a time from
    before it. `table`: the one that it began on."""

    at: str = "load"
    base: Snapshot | None = None
    file: str = ""
    date: int = -1
    attempt: int = 0
    tries: int = 0
    landed: int = 0  # ghost: swaps of this writer that took effect
    stalled: bool = False  # ghost: its base was put back while it was about to swap
    table: int = 0
    taken: bool = False  # ghost: an operator took its row away, and no repair brought it back


class Repairer(NamedTuple):
    """`seen`: the pointer that it has read; `mended`: what it will put in its place."""

    at: str = "read"
    seen: Snapshot | None = None
    mended: Snapshot | None = None
    back: tuple[str, ...] = ()  # ghost: commits that must be there when it has ended
    looked: bool = False  # ghost: and the pointer was what it had read


class Collector(NamedTuple):
    at: str = "boundary"
    boundary: int = -1
    roots: frozenset[str] = frozenset()
    base: Snapshot | None = None  # its own commit


class State(NamedTuple):
    now: int
    pointer: Snapshot | None
    archives: tuple[tuple[int, Snapshot], ...]
    files: tuple[tuple[str, int], ...]  # with LastModified
    writers: tuple[Writer, ...]
    collectors: tuple[Collector, ...]
    operator: int = 0  # deeds left
    repairers: tuple[Repairer, ...] = ()
    crashes: int = 0  # left
    lost: int = 0  # answers that may still be lost
    touched: bool = False  # ghost: an operator has taken acknowledged versions away
    unmended: bool = False  # ghost: and nobody has repaired that
    erased: int = -1  # ghost: the time of the erasure that is closed
    # Swaps on their way: the base whose ETag they carry, what they write, whose they are, and whether the
    # base was put back meanwhile.
    late: frozenset[tuple[Snapshot, Snapshot, int, bool]] = frozenset()
    stalled: frozenset[str] = (
        frozenset()
    )  # ghost: commits on a base that was put back under a writer
    # ghost: the version after the pointer's was in the pointer alone when an operator overwrote it
    alone: bool = False
    creating: bool = False  # an operator has found the place empty
    tables: int = 1  # created so far
    removed: bool = False  # and no other was created since
    # ghost: commits of repairs that were overtaken between their look and their archive
    overtaken: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Bounds:
    name: str
    writers: int = 0
    collectors: int = 0
    attempts: int = 2
    crashes: int = 0
    lost: int = 0
    late: bool = False  # a swap may also arrive after its writer has looked
    operator: int = 0
    puts_back: bool = True  # the operator may put an older pointer back, not only delete it
    repairs: int = 0
    removes: bool = False  # the operator may end what a pointer was deleted of
    hours: int = 0  # the clock goes to this
    skew: int = 0  # LastModified may be so far behind Date
    erasure: bool = False
    commits_before: int = 0  # versions there are at the start, beyond the first
    left: int = 0  # the number of an archive that a former table has left


@dataclass
class Model:
    bounds: Bounds
    without: frozenset[str] = field(default_factory=frozenset)

    def has(self, rule: str) -> bool:
        return rule not in self.without

    def start(self) -> State:
        lineage = tuple(f"c{n}" for n in range(self.bounds.commits_before + 1))
        archives = tuple(
            (n, Snapshot(1, lineage[:n])) for n in range(1, self.bounds.commits_before + 1)
        )
        b = self.bounds
        if b.left:
            archives += ((b.left, Snapshot(0, ("former",) * b.left)),)
        return State(
            0,
            Snapshot(1, lineage),
            archives,
            (),
            (Writer(),) * b.writers,
            (Collector(),) * b.collectors,
            b.operator,
            (Repairer(),) * b.repairs,
            b.crashes,
            b.lost,
        )

    # -- steps --------------------------------------------------------------------------------

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        for n, writer in enumerate(s.writers):
            if writer.at in DONE:
                continue
            # Writers begin alike: they are numbered in the order in which they begin.
            if n and writer == Writer() and s.writers[n - 1] == Writer():
                break
            for what, after in self.write(s, n, writer):
                yield f"writer {n}: {what}", after
            if s.crashes and writer.at != "load":
                yield (
                    f"writer {n}: dies",
                    put(s, n, writer._replace(at="dead"))._replace(crashes=s.crashes - 1),
                )
        for n, collector in enumerate(s.collectors):
            if n and collector == Collector() and s.collectors[n - 1] == Collector():
                break
            for what, after in self.collect(s, n, collector):
                done = list(after.collectors)
                done[n] = COLLECTED[0]
                yield f"collector {n}: {what}", after._replace(collectors=tuple(done))
        if s.now < self.bounds.hours:
            yield "an hour passes", s._replace(now=s.now + 1)
        yield from self.operate(s)
        for message in s.late:
            base, mine, n, stalled = message
            rest = s._replace(late=s.late - {message})
            if s.pointer == base or not self.has("swap_on_condition"):
                yield f"writer {n}: a late swap lands", swapped(rest, n, mine, stalled)
        if self.bounds.erasure:
            yield from self.erase(s)

    def write(self, s: State, n: int, w: Writer) -> Iterator[tuple[str, State]]:
        """FORMAT section 10: load, upload, archive, swap, look."""
        match w.at:
            case "load":
                if s.pointer is None:
                    yield "finds no table", put(s, n, w._replace(at="error"))
                    return
                if w.table not in (0, s.pointer.table) and self.has("keep_to_the_table"):
                    yield "finds another table", put(s, n, w._replace(at="error"))
                    return
                known = w._replace(base=s.pointer, tries=0, table=w.table or s.pointer.table)
                applied = any(c.startswith(f"w{n}.") for c in s.pointer.lineage)
                if applied and self.has("ask_the_ledger"):
                    yield (
                        "finds its request in the ledger",
                        put(s, n, w._replace(at="acknowledged")),
                    )
                elif w.file:
                    yield "loads again", put(s, n, known._replace(at="plan"))
                else:
                    yield "loads", put(s, n, known._replace(at="upload", date=s.now))
            case "upload":
                name = f"w{n}.{w.attempt}"
                for behind in range(min(self.bounds.skew, s.now) + 1):
                    files = {**dict(s.files), name: s.now - behind}
                    yield (
                        f"uploads, dated {behind} back",
                        put(
                            s._replace(files=tuple(sorted(files.items()))),
                            n,
                            w._replace(at="plan", file=name),
                        ),
                    )
            case "plan":
                assert w.base is not None
                if self.has("refuse_old_uploads") and w.date < w.base.boundary:
                    yield "is too old: uploads again", put(s, n, self.again(w, file="", date=-1))
                elif self.has("archive_before_swap"):
                    yield from self.write(s, n, w._replace(at="archive"))
                else:
                    yield from self.write(s, n, w._replace(at="swap"))
            case "archive":
                assert w.base is not None
                there = dict(s.archives).get(w.base.version)
                if there is None:
                    yield "archives", put(archived(s, w.base), n, w._replace(at="swap"))
                elif not self.has("compare_archive"):
                    yield "believes an archive", put(s, n, w._replace(at="swap"))
                elif there != w.base:
                    yield "finds another archive", put(s, n, w._replace(at="doubt"))
                elif not self.has("look_for_successor"):
                    yield "finds its archive", put(s, n, w._replace(at="swap"))
                elif w.base.version + 1 in dict(s.archives):
                    yield "finds its archive and the next", put(s, n, w._replace(at="doubt"))
                else:
                    yield "finds its archive, and no next", put(s, n, w._replace(at="swap"))
            case "doubt":  # moved on, or archives of another history?
                if s.pointer == w.base:
                    yield "refuses foreign archives", put(s, n, w._replace(at="error"))
                elif s.pointer is None:
                    yield "finds no table", put(s, n, w._replace(at="error"))
                else:
                    yield "sees that the table moved on", put(s, n, self.again(w))
            case "swap":
                yield from self.swap(s, n, w)
            case "look":
                yield self.look(s, n, w)

    def swap(self, s: State, n: int, w: Writer) -> Iterator[tuple[str, State]]:
        assert w.base is not None
        mine = w.base._replace(lineage=(*w.base.lineage, f"{w.file}/{w.attempt}"))
        fits = s.pointer == w.base
        if fits or (not self.has("swap_on_condition") and s.pointer is not None):
            landed = swapped(s, n, mine, w.stalled)
            then = landed.writers[n]
            yield "swaps", put(landed, n, then._replace(at="acknowledged"))
            if s.lost:
                yield (
                    "swaps, and the answer is lost",
                    put(landed._replace(lost=s.lost - 1), n, then._replace(at="look")),
                )
        else:
            yield "is refused", put(s, n, w._replace(at="look"))
        if s.lost:
            fewer = s._replace(lost=s.lost - 1)
            yield "does not arrive", put(fewer, n, w._replace(at="look"))
            if self.bounds.late:
                sent = fewer.late | {(w.base, mine, n, w.stalled)}
                yield "arrives later", put(fewer._replace(late=sent), n, w._replace(at="look"))

    def look(self, s: State, n: int, w: Writer) -> tuple[str, State]:
        """Did my commit land? No answer of the swap is asked."""
        assert w.base is not None
        mine, version = f"{w.file}/{w.attempt}", w.base.version + 1
        seen = s.pointer
        if not self.has("look_after_doubt"):
            return "believes the refusal", put(s, n, self.again(w))
        if seen is None or seen.table != w.base.table or seen.version < w.base.version:
            return "finds another table", put(s, n, w._replace(at="error"))
        if seen.commit == w.base.commit:
            if w.tries:
                return "gives up", put(s, n, w._replace(at="unknown"))
            return "sees the base: swaps again", put(s, n, w._replace(at="swap", tries=1))
        if seen.version == w.base.version:
            return "finds another commit at its base", put(s, n, w._replace(at="error"))
        at = seen if seen.version == version else dict(s.archives).get(version)
        if at is None or (self.has("compare_table_in_look") and at.table != w.base.table):
            return "cannot know", put(s, n, w._replace(at="unknown"))
        if at.commit == mine:
            return "finds its commit", put(s, n, w._replace(at="acknowledged"))
        # An archive of its version that does not go back to its base is of another history.
        if self.has("compare_table_in_look") and seen.lineage[:version] != at.lineage:
            return "cannot know", put(s, n, w._replace(at="unknown"))
        return "has lost", put(s, n, self.again(w))

    def again(self, w: Writer, **more: object) -> Writer:
        if w.attempt + 1 >= self.bounds.attempts:
            return w._replace(at="contended")
        return w._replace(at="load", attempt=w.attempt + 1, stalled=False, **more)  # type: ignore[arg-type]

    def collect(self, s: State, n: int, c: Collector) -> Iterator[tuple[str, State]]:
        """Section 11. Its commit is one step: how commits race is what the writers are for."""
        if s.pointer is None:
            return
        name = f"b{n}"
        match c.at:
            case "boundary":
                if not self.has("roots_after_boundary"):
                    COLLECTED[0] = Collector("early", roots=reached(s))
                    yield "reads the roots", s
                    return
                found = self.commit(s, name, boundary=max(s.now, s.pointer.boundary))
                if found is not None:
                    at = "archive" if self.has("archive_boundary") else "roots"
                    COLLECTED[0] = Collector(at, s.now, base=found.pointer)
                    yield "commits a boundary", found
            case "archive":
                assert c.base is not None
                there = dict(s.archives).get(c.base.version)
                if there is None or there == c.base:
                    COLLECTED[0] = c._replace(at="roots")
                    yield "archives its version", archived(s, c.base)
                else:
                    COLLECTED[0] = c._replace(at="done")
                    yield "finds another archive of its version", s
            case "early":
                found = self.commit(s, name, boundary=max(s.now, s.pointer.boundary))
                if found is not None:
                    COLLECTED[0] = c._replace(at="delete", boundary=s.now)
                    yield "commits a boundary", found
            case "roots":
                if self.has("collect_nothing_when_back") and went_back(s, c):
                    COLLECTED[0] = c._replace(at="done")
                    yield "sees that the pointer went back", s
                    return
                COLLECTED[0] = c._replace(at="delete", roots=reached(s))
                yield "reads the roots", s
            case "delete":
                margin = self.bounds.skew if self.has("margin_of_clocks") else 0
                kept = tuple(
                    (name, modified)
                    for name, modified in s.files
                    if name in c.roots or not modified < c.boundary - margin
                )
                COLLECTED[0] = c._replace(at="done")
                yield "deletes", s._replace(files=kept)

    def normal(self, s: State) -> State:
        """The state that stands for this one."""
        return s

    def commit(self, s: State, name: str, **changes: object) -> State | None:
        """A whole commit at once, by somebody who has just read the pointer; None when it is refused."""
        base = s.pointer
        if base is None:
            return None
        there = dict(s.archives).get(base.version)
        after = dict(s.archives).get(base.version + 1)
        foreign = there is not None and (there != base or after is not None)
        if foreign and self.has("compare_archive") and self.has("look_for_successor"):
            return None
        held = s if there is not None else archived(s, base)
        new = base._replace(lineage=(*base.lineage, name), **changes)  # type: ignore[arg-type]
        return held._replace(pointer=new)

    def operate(self, s: State) -> Iterator[tuple[str, State]]:
        """An operator puts an older pointer back, by one version or more, or deletes the pointer, and then
        perhaps all that is left, or creates a table; and repairs."""
        if s.operator:
            rest = s._replace(operator=s.operator - 1, touched=True, unmended=True)
            if s.pointer is not None:
                for version, found in s.archives if self.bounds.puts_back else ():
                    if version < s.pointer.version and found.table == s.pointer.table:
                        yield f"operator: puts version {version} back", put_back(rest, found)
                yield "operator: deletes the pointer", taken_from(rest, None)
        if s.pointer is None and s.touched:
            # Nobody removes a table while somebody repairs it, or repairs what was removed.
            idle = all(each.at in ("read", "done") for each in s.repairers)
            if self.bounds.removes and idle and s.archives:
                removed = s._replace(archives=(), files=(), creating=False, removed=True)
                yield "operator: removes what is left", removed
            if s.creating or not self.has("create_on_clean_ground"):
                new = Snapshot(s.tables + 1, ("new",))
                there = s._replace(pointer=new, tables=new.table, creating=False, removed=False)
                there = there._replace(alone=False)
                yield "operator: creates a table", there._replace(unmended=not s.creating)
            elif not s.archives:
                yield "operator: finds the place empty", s._replace(creating=True)
        for n, repairer in enumerate(s.repairers):
            if n and repairer == Repairer() and s.repairers[n - 1] == Repairer():
                break
            if s.removed and repairer == Repairer():
                break
            for what, after, then in self.repair(s, n, repairer):
                repairers = (*s.repairers[:n], then, *s.repairers[n + 1 :])
                yield f"operator: repairs, {what}", after._replace(repairers=repairers)

    def repair(self, s: State, n: int, r: Repairer) -> Iterator[tuple[str, State, Repairer]]:
        """Section 10, 5: a commit of its own on the newest archive that follows on the pointer, or on the
        pointer; past the numbers that others have taken. It may end before each step."""
        ended = Repairer("done")
        match r.at:
            case "read":
                yield "reads the pointer", s, Repairer("list", s.pointer)
            case "list":
                mended = self.mended(s, n, r.seen)
                if mended is None:
                    yield "finds nothing to do", s, ended
                    return
                rules = Model(self.bounds).mended(s, n, r.seen)
                back = rules.lineage if rules is not None and self.without else ()
                yield "reads the archives", s, r._replace(at="look", mended=mended, back=back)
            case "look":
                if self.has("repair_looks_again") and s.pointer != r.seen:
                    yield "sees that the pointer moved", s, ended
                else:
                    looked = s.pointer == r.seen
                    yield "looks again", s, r._replace(at="archive", looked=looked)
            case "archive":
                assert r.mended is not None
                there = dict(s.archives).get(r.mended.version)
                if not self.has("repair_archives_first"):
                    yield "goes on", s, r._replace(at="put")
                elif there not in (None, r.mended) and self.has("repair_passes_numbers"):
                    yield "finds its number taken", s, ended
                else:
                    held = archived(s, r.mended)
                    if r.looked and s.pointer != r.seen:
                        held = held._replace(overtaken=s.overtaken | {r.mended.commit})
                    yield "archives its version", held, r._replace(at="put")
            case "put":
                assert r.mended is not None
                if s.pointer != r.seen and self.has("repair_on_condition"):
                    yield "is refused", s, ended
                    return
                there = frozenset(r.back or r.mended.lineage)
                writers = tuple(
                    w._replace(taken=w.taken and not rows_of(n, there))
                    for n, w in enumerate(s.writers)
                )
                mended = s._replace(pointer=r.mended, writers=writers, unmended=False)
                yield "writes the pointer", mended._replace(touched=True), ended

    def mended(self, s: State, n: int, now: Snapshot | None) -> Snapshot | None:
        """What a repair of this pointer makes of the archives; None where there is nothing to do, or
        nothing that needs no guess."""
        if not s.archives:
            return None
        version, newest = s.archives[-1]
        held = dict(s.archives)
        oldest, base = newest.oldest, newest
        if now is None:
            # Archives of two tables: nothing says which was lost.
            below = [found for v, found in s.archives if v < version]
            strange = any(
                not goes_back_to(newest, each)
                if each.version >= newest.oldest
                else each.table > newest.table
                for each in below
            )
            alone = version > newest.oldest and all(e.version < newest.oldest for e in below)
            if self.has("repair_knows_its_table") and (strange or alone):
                return None
        else:
            if version < now.version or newest == now:
                return None
            following = [
                found
                for v, found in s.archives
                if v > now.version
                and (not self.has("repair_asks_what_follows") or follows(found, now, held))
            ]
            if not self.has("repair_searches_below") and following[-1:] != [newest]:
                following = []
            base = following[-1] if following and self.has("repair_goes_on") else now
            if base != newest:
                passed = version if self.has("repair_passes_numbers") else base.version
                skipped = (SKIPPED,) * (passed - base.version)
                oldest = base.oldest
                if self.has("repair_expires_what_it_passed"):
                    oldest = passed + 1
                base = base._replace(lineage=base.lineage + skipped)
        boundary = s.now if self.has("repair_moves_boundary") else base.boundary
        if not self.has("repair_commits_anew"):
            return base
        return base._replace(
            lineage=(*base.lineage, f"repair{n}"), boundary=boundary, oldest=oldest
        )

    def erase(self, s: State) -> Iterator[tuple[str, State]]:
        """Section 12, of all rows that are there: opening it moves the boundary to now; the rewrite drops
        the rows; the collectors take the files."""
        p = s.pointer
        if p is None:
            return
        if p.erased_at < 0 and s.now > 0:
            moved = {"boundary": s.now} if self.has("erasure_moves_boundary") else {}
            opened = self.commit(s, "erasure", erased_at=s.now, **moved)
            if opened is not None:
                yield "eraser: opens", opened._replace(erased=s.now)


SKIPPED = "skipped"
DONE = frozenset({"acknowledged", "error", "unknown", "contended", "dead"})
# What a collector becomes by the step that was yielded last.
COLLECTED: list[Collector] = [Collector()]


def put(s: State, n: int, writer: Writer) -> State:
    if writer.at in DONE and writer.base is not None:
        writer = writer._replace(
            base=None, date=-1, tries=0, stalled=False
        )  # not looked at any more
    return s._replace(writers=(*s.writers[:n], writer, *s.writers[n + 1 :]))


def swapped(s: State, n: int, mine: Snapshot, stalled: bool) -> State:
    """A swap of writer n takes effect."""
    w = s.writers[n]
    writers = (*s.writers[:n], w._replace(landed=w.landed + 1), *s.writers[n + 1 :])
    landed = s._replace(pointer=mine, writers=writers)
    if not stalled:
        return landed
    # It may bring back the base of others, who were on their way when it had been swapped out.
    alone = s.alone or mine.version + 1 not in dict(s.archives)
    return came_back(landed, mine)._replace(stalled=s.stalled | {mine.commit}, alone=alone)


def put_back(s: State, found: Snapshot) -> State:
    """The bytes of an archive, over the pointer."""
    alone = s.alone or found.version + 1 not in dict(s.archives)
    return came_back(taken_from(s, found)._replace(alone=alone), found)


def taken_from(s: State, pointer: Snapshot | None) -> State:
    """By an operator, who writes over the pointer or deletes it."""
    before = frozenset(s.pointer.lineage if s.pointer is not None else ())
    gone = before - frozenset(pointer.lineage if pointer is not None else ())
    writers = tuple(w._replace(taken=w.taken or rows_of(n, gone)) for n, w in enumerate(s.writers))
    return s._replace(pointer=pointer, writers=writers)


def rows_of(n: int, commits: Iterable[str]) -> bool:
    return any(commit.startswith(f"w{n}.") for commit in commits)


def follows(found: Snapshot, now: Snapshot, held: dict[int, Snapshot]) -> bool:
    return goes_back_to(found, now) and held.get(now.version) in (None, now)


def goes_back_to(found: Snapshot, earlier: Snapshot) -> bool:
    return found.table == earlier.table and found.lineage[: earlier.version] == earlier.lineage


def came_back(s: State, found: Snapshot) -> State:
    """Who is about to swap these bytes out will find their ETag."""
    writers = tuple(
        w._replace(stalled=True) if w.base == found and w.at in ("swap", "look") else w
        for w in s.writers
    )
    late = frozenset((b, m, n, stalled or b == found) for b, m, n, stalled in s.late)
    return s._replace(writers=writers, late=late)


def archived(s: State, snapshot: Snapshot) -> State:
    held = dict(s.archives)
    held.setdefault(snapshot.version, snapshot)
    return s._replace(archives=tuple(sorted(held.items())))


def went_back(s: State, c: Collector) -> bool:
    """Whether a collector can see that the pointer went back behind its own commit, or others."""
    assert s.pointer is not None
    version = s.pointer.version
    newest = max((version for version, _ in s.archives), default=0)
    own = c.base if c.base is not None and c.base.version >= version else None
    return newest > version or own not in (None, s.pointer)


def file_of(commit: str) -> str | None:
    return commit.partition("/")[0] if "/" in commit else None


def files_of(snapshot: Snapshot) -> set[str]:
    return {found for commit in snapshot.lineage if (found := file_of(commit)) is not None}


def reached(s: State) -> frozenset[str]:
    return frozenset() if s.pointer is None else frozenset(files_of(s.pointer))


# -- what must hold in every state ----------------------------------------------------------------


def at_most_once(s: State, model: Model) -> bool:
    if s.pointer is None:
        return True
    rows = [commit[: commit.index(".")] for commit in s.pointer.lineage if "/" in commit]
    return len(rows) == len(set(rows))


def acknowledged_is_there(s: State, model: Model) -> bool:
    """And nothing is acknowledged that never landed."""
    for n, writer in enumerate(s.writers):
        if writer.at != "acknowledged":
            continue
        if not writer.landed:
            return False
        there = s.pointer is not None and rows_of(n, s.pointer.lineage)
        if not there and not writer.taken:
            return False
    return True


def versions_read_what_they_were(s: State, model: Model) -> bool:
    """Each version before the pointer's has its archive, and it is the one this pointer came from."""
    if s.pointer is None:
        return True
    held = dict(s.archives)
    for version in range(s.pointer.oldest, s.pointer.version):
        found = held.get(version)
        if found is None or found.table != s.pointer.table:
            return False
        if found.lineage != s.pointer.lineage[:version]:
            return False
    return True


def archives_were_versions(s: State, model: Model) -> bool:
    """The archive of the pointer's own version is the pointer: a feed would otherwise read versions that
    never were. (What an operator has done is undone by repair.)"""
    if s.pointer is None or s.unmended:
        return True
    found = dict(s.archives).get(s.pointer.version)
    if found is None or found.table != s.pointer.table:
        return True  # whoever reads an archive asks whose it is
    excused = s.pointer.commit in s.stalled or found.commit in s.overtaken
    return found == s.pointer or excused


def not_written_to_when_back(s: State, model: Model) -> bool:
    """No commit on a pointer that an operator put back while archives that follow are there, but for one:
    that of a writer who was about to swap when its base came back. Nobody commits on that one either. Of a
    version that stood in the pointer alone nothing is there that could follow."""
    p = s.pointer
    if not s.touched or s.alone or p is None or file_of(p.commit) is None:
        return True
    if p.commit in s.stalled:
        return True
    found = dict(s.archives).get(p.version)
    if found is None or found == p or found.table != p.table:
        return True
    return found.commit in s.overtaken


def needed_files_are_there(s: State, model: Model) -> bool:
    """But for those of a commit whose base came back: a collector may have run in between, of which its
    base says nothing."""
    if s.pointer is None:
        return True
    spared = {file_of(commit) for commit in s.stalled}
    return files_of(s.pointer) - spared <= {name for name, _ in s.files}


def erased_stays_erased(s: State, model: Model) -> bool:
    """No file that was uploaded before the erasure was opened is added after it."""
    p = s.pointer
    if p is None or "erasure" not in p.lineage:
        return True
    later = p.lineage[p.lineage.index("erasure") + 1 :]
    modified = dict(s.files)
    return all(
        modified.get(found, p.erased_at) >= p.erased_at - model.bounds.skew
        for commit in later
        if (found := file_of(commit)) is not None
    )


def each_in_its_table(s: State, model: Model) -> bool:
    """Who began on a table that was removed is in no other that was created in its place."""
    return s.pointer is None or all(
        w.table in (0, s.pointer.table) or not rows_of(n, s.pointer.lineage)
        for n, w in enumerate(s.writers)
    )


INVARIANTS: dict[str, Callable[[State, Model], bool]] = {
    ONCE: at_most_once,
    THERE: acknowledged_is_there,
    SAME: versions_read_what_they_were,
    REAL: archives_were_versions,
    BACK: not_written_to_when_back,
    FILES: needed_files_are_there,
    ERASED: erased_stays_erased,
    MEANT: each_in_its_table,
}


# -- one state for many ----------------------------------------------------------------------------

READS_THE_CLOCK = (": loads", ": commits a boundary", ": repairs, reads the archives")


class Reduced(Model):
    """The same promises over fewer states. Each state of `Model` that is not visited breaks no promise that
    one which is visited does not break. Not for an erasure, whose promise is about the time of an upload.
    Left out are

    - a crash: a search of all orders includes every state in which an actor takes no further step;
    - the time between a load and the upload, and dates of the upload except the oldest: only a deletion
      reads whether a file exists, or its LastModified, and one that exists or is dated earlier is deleted
      wherever the other is;
    - the time between reading the roots and deleting: what is deleted earlier is missed earlier;
    - the hour that passes while nobody reads the clock: it passes just before a load, a boundary, a repair;
    - the hours before the clock is past the skew: no file is older than a boundary then;
    - which writer, which collector: of states that differ only in numbers one is visited;
    - what an actor that has ended knew, files that no snapshot names any more, and the age of a file beyond
      the age that counts: nothing reads it again."""

    def start(self) -> State:
        # Before the clock has passed the skew, no file is old enough for anything.
        first = super().start()
        return first._replace(now=min(self.bounds.skew, self.bounds.hours), crashes=0)

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        for what, after in super().steps(s):
            if after.now == s.now:
                yield what, self.normal(after)
        for now in range(s.now + 1, self.bounds.hours + 1):
            later = s._replace(now=now)
            for what, after in super().steps(later):
                if after.now == now and any(each in what for each in READS_THE_CLOCK):
                    yield f"at {now}: {what}", self.normal(after)

    def write(self, s: State, n: int, w: Writer) -> Iterator[tuple[str, State]]:
        for what, after in super().write(s, n, w):
            then = after.writers[n]
            if then.at == "upload":  # at once, and dated back as far as it can be
                *_, (more, uploaded) = super().write(after, n, then)
                yield f"{what}, {more}", uploaded
            else:
                yield what, after

    def collect(self, s: State, n: int, c: Collector) -> Iterator[tuple[str, State]]:
        for what, after in super().collect(s, n, c):
            if COLLECTED[0].at == "delete":  # at once
                for more, deleted in super().collect(after, n, COLLECTED[0]):
                    yield f"{what}, {more}", deleted
            else:
                yield what, after

    def normal(self, s: State) -> State:
        """The state that stands for `s`: without what nothing will read, and its actors in one order."""
        writers = tuple(forgotten(w) for w in s.writers)
        collectors = tuple(Collector("done") if c.at == "done" else c for c in s.collectors)
        snapshots = [s.pointer, *(held for _, held in s.archives), *(w.base for w in writers)]
        snapshots += [c.base for c in collectors]
        snapshots += [each for r in s.repairers for each in (r.seen, r.mended)]
        snapshots += [each for base, mine, _, _ in s.late for each in (base, mine)]
        needed = {w.file for w in writers}
        for each in {each for each in snapshots if each is not None}:
            needed |= files_of(each)
        margin = self.bounds.skew if self.has("margin_of_clocks") else 0
        never = self.bounds.hours - margin  # modified then, it is never old enough to be deleted
        files = tuple((name, min(at, never)) for name, at in s.files if name in needed)
        plain = s._replace(writers=writers, collectors=collectors, files=files)
        places = [c for each in snapshots[: 1 + len(s.archives)] if each for c in each.lineage]

        def writer(n: int) -> tuple[object, ...]:
            w = writers[n]
            mine = tuple(i for i, c in enumerate(places) if c.startswith(f"w{n}."))
            base = (w.base.version, w.base.boundary) if w.base is not None else (0, 0)
            known = (w.at, w.attempt, w.tries, w.landed, w.stalled, w.date, w.file[2:], base)
            known += (w.table, w.taken)
            return (w == Writer(), known, mine, any(each[2] == n for each in s.late))

        def collector(n: int) -> tuple[object, ...]:
            c = collectors[n]
            mine = tuple(i for i, each in enumerate(places) if each == f"b{n}")
            return (c == Collector(), c.at, c.boundary, mine)

        order = tuple(sorted(range(len(writers)), key=writer))
        others = tuple(sorted(range(len(collectors)), key=collector))
        if order == tuple(range(len(writers))) and others == tuple(range(len(collectors))):
            return plain
        return renamed(plain, order, others)


def forgotten(w: Writer) -> Writer:
    if w.at == "acknowledged":
        return Writer("acknowledged", landed=min(1, w.landed), table=w.table, taken=w.taken)
    if w.at in DONE:
        return Writer("error", table=w.table)
    if w.at == "load":
        w = w._replace(base=None, tries=0)
    return w._replace(landed=min(1, w.landed))


Order = tuple[int, ...]


def renamed(s: State, writers: Order, collectors: Order) -> State:
    """The same with writer `writers[n]` as writer n, and collectors in the same way."""

    def snapshot(each: Snapshot | None) -> Snapshot | None:
        return each and snapshot_renamed(each, writers, collectors)

    def name(each: str) -> str:
        return name_renamed(each, writers, collectors)

    late = frozenset(
        (
            snapshot_renamed(base, writers, collectors),
            snapshot_renamed(mine, writers, collectors),
            writers.index(n),
            stalled,
        )
        for base, mine, n, stalled in s.late
    )
    moved = [s.writers[n] for n in writers]
    return s._replace(
        pointer=snapshot(s.pointer),
        archives=tuple((v, snapshot_renamed(held, writers, collectors)) for v, held in s.archives),
        files=tuple(sorted((name(each), at) for each, at in s.files)),
        writers=tuple(w._replace(base=snapshot(w.base), file=name(w.file)) for w in moved),
        collectors=tuple(
            c._replace(base=snapshot(c.base), roots=frozenset(map(name, c.roots)))
            for c in (s.collectors[n] for n in collectors)
        ),
        repairers=tuple(
            r._replace(
                seen=snapshot(r.seen), mended=snapshot(r.mended), back=tuple(map(name, r.back))
            )
            for r in s.repairers
        ),
        stalled=frozenset(map(name, s.stalled)),
        late=late,
    )


@cache
def snapshot_renamed(snapshot: Snapshot, writers: Order, collectors: Order) -> Snapshot:
    lineage = tuple(name_renamed(commit, writers, collectors) for commit in snapshot.lineage)
    return snapshot._replace(lineage=lineage)


@cache
def name_renamed(name: str, writers: Order, collectors: Order) -> str:
    """Of a file or a commit."""
    if name[:1] == "w":
        return f"w{writers.index(int(name[1]))}{name[2:]}"
    if name[:1] == "b":
        return f"b{collectors.index(int(name[1]))}{name[2:]}"
    return name


# -- the search -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    states: int
    seconds: float
    broken: str | None = None
    way: tuple[str, ...] = ()
    whole: bool = True  # every reachable state was visited


def check(
    model: Model, *, promises: Iterable[str] = tuple(INVARIANTS), most: int = 5_000_000
) -> Found:
    """Visit every state. Ends with the first in which a promise is broken, if there is one."""
    began = time.process_time()
    held = {name: INVARIANTS[name] for name in promises}
    first = model.start()
    # States by their hashes, of 64 bits, each with that of the state it was reached from: two of a million
    # states have one hash with a probability of 3 in 100 million.
    came: dict[int, int] = {hash(first): 0}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        for name, holds in held.items():
            if not holds(state, model):
                way = way_to(model, came, hash(state))
                return Found(len(came), time.process_time() - began, name, way)
        if len(came) > most:
            return Found(len(came), time.process_time() - began, whole=False)
        of = hash(state)
        for _, after in model.steps(state):
            seen = hash(after)
            if seen not in came:
                came[seen] = of
                queue.append(after)
    return Found(len(came), time.process_time() - began)


def walk(
    model: Model, seed: int, *, promises: Iterable[str] = tuple(INVARIANTS), most: int = 200
) -> tuple[str | None, tuple[str, ...]]:
    """One random way to where nobody can go on; the promise that was broken on it, and the way."""
    rng = random.Random(seed)
    held = {name: INVARIANTS[name] for name in promises}
    state, way = model.start(), list[str]()
    for _ in range(most):
        after = list(model.steps(state))
        if not after:
            break
        what, state = rng.choice(after)
        way.append(what)
        for name, holds in held.items():
            if not holds(state, model):
                return name, tuple(way)
    return None, tuple(way)


def way_to(model: Model, came: dict[int, int], end: int) -> tuple[str, ...]:
    """The steps to the state with this hash, walked again."""
    hashes = [end]
    while came[hashes[-1]]:
        hashes.append(came[hashes[-1]])
    state, way = model.start(), list[str]()
    for following in reversed(hashes[:-1]):
        what, state = next(step for step in model.steps(state) if hash(step[1]) == following)
        way.append(what)
    return tuple(way)


# CI visits these whole, state by state.
BOUNDS = (
    Bounds("three writers", writers=3, attempts=3, crashes=1, lost=1),
    Bounds("three writers, two lost answers", writers=3, attempts=2, crashes=0, lost=2, late=True),
    Bounds("operator", writers=2, attempts=2, lost=1, operator=1, repairs=1, commits_before=3),
    Bounds(
        "collection under an operator",
        writers=1,
        collectors=1,
        operator=1,
        repairs=1,
        hours=1,
        commits_before=1,
    ),
    Bounds("creation", writers=2, lost=1, operator=1, puts_back=False, commits_before=1),
    Bounds(
        "removal",
        writers=2,
        lost=1,
        operator=1,
        removes=True,
        puts_back=False,
        hours=1,
        commits_before=1,
    ),
    Bounds("repairs", writers=3, attempts=1, operator=1, repairs=1, commits_before=1),
    Bounds("a former table's archive", 2, attempts=1, operator=1, repairs=1, left=3),
    Bounds("two repairs", writers=1, operator=1, repairs=2, commits_before=2),
    Bounds(
        "removal and a repair",
        writers=1,
        operator=2,
        removes=True,
        repairs=1,
        hours=1,
        commits_before=2,
    ),
    Bounds("clocks", writers=1, collectors=2, attempts=2, crashes=1, hours=3, skew=1),
    Bounds("erasure", writers=1, collectors=1, attempts=2, hours=2, skew=1, erasure=True),
    Bounds("repairs and a collector", 2, 1, attempts=1, operator=1, repairs=1, commits_before=1),
    Bounds("late swaps", writers=2, lost=2, late=True, operator=1, repairs=1, commits_before=2),
)
EVERYTHING = Bounds(
    "everything",
    writers=3,
    collectors=2,
    crashes=1,
    lost=2,
    late=True,
    operator=2,
    repairs=2,
    removes=True,
    hours=2,
    skew=1,
    erasure=True,
    commits_before=2,
    left=9,
)
# That need more states than CI visits: `repair_moves_boundary` two writers, of whom one is let in when its
# base comes back, and a collection of what the other has uploaded.
RARE = {"repair_moves_boundary": "a boundary of another history"}
# Visited whole by `Reduced`.
WHOLE = (
    Bounds("all but the operator", writers=3, collectors=2, lost=1, hours=2, skew=1),
    Bounds(
        "all but a third writer and a second collector",
        writers=2,
        collectors=1,
        lost=1,
        operator=1,
        repairs=1,
        hours=2,
        skew=1,
        commits_before=1,
    ),
    Bounds(
        "operator, three writers",
        writers=3,
        lost=1,
        late=True,
        operator=1,
        repairs=1,
        commits_before=3,
    ),
    Bounds("a boundary of another history", 2, 1, operator=1, repairs=1, hours=1),
    Bounds("two deeds", writers=2, lost=1, late=True, operator=2, repairs=2, commits_before=3),
)
# Every actor at once: as far as `--most` goes, and beyond that by random walks.
STATED = Bounds(
    "three writers, two collectors, an operator",
    writers=3,
    collectors=2,
    lost=1,
    operator=1,
    repairs=1,
    hours=2,
    skew=1,
    commits_before=1,
)
# Of these, `Model` alone has the steps.
ERASING = Bounds("erasure of two", writers=2, collectors=1, hours=2, skew=1, erasure=True)


def left_out(rule: str) -> frozenset[str]:
    return frozenset({rule, *RULES[rule].behind})


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--large", action="store_true", help="the large bounds")
    parser.add_argument("--without", choices=sorted(RULES), help="leave a rule out")
    parser.add_argument("--most", type=int, default=5_000_000, help="states to visit of each")
    parser.add_argument(
        "--walks", type=int, default=0, help="random ways through everything at once"
    )
    options = parser.parse_args(arguments)
    without = left_out(options.without) if options.without else frozenset()
    broken = 0
    if options.walks:
        steps = 0
        for seed in range(options.walks):
            promise, way = walk(Model(EVERYTHING, without), seed)
            steps += len(way)
            if promise is not None:
                broken += 1
                print(f"  BROKEN: {promise} (walk {seed})", *way, sep="\n    ")
        print(f"{options.walks} random ways through everything: {steps} steps, {broken} broken")
        return 1 if broken else 0
    models: list[Model] = [Model(bounds, without) for bounds in BOUNDS]
    if options.large:
        models = [Reduced(bounds, without) for bounds in (*WHOLE, STATED)]
        models.append(Model(ERASING, without))
    for model in models:
        bounds, found = model.bounds, check(model, most=options.most)
        extent = "" if found.whole else ", not all"
        print(f"{bounds.name}: {found.states} states{extent}, {found.seconds:.1f} s", flush=True)
        if found.broken:
            broken += 1
            print(f"  BROKEN: {found.broken}")
            for step in found.way:
                print(f"    {step}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

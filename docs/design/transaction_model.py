"""A model of transactions over several tables, and a checker that visits every state of it.

A specification that runs, written from docs/FORMAT.md ("Transactions") alone: it imports nothing of Inlay.
What each table's commits, archives and garbage do by themselves is in commit_model.py; here a table is the
list of its commits, and a pointer is that list, prepared for a transaction or not.

    python docs/design/transaction_model.py                       # every bound, about a minute
    python docs/design/transaction_model.py --without moved_on    # prints the shortest way to the violation

A state is a tuple, a step is one request to the store, or its failure. Who stalls is who is not chosen, so
processes are suspended everywhere and for as long as others take. A deadline may pass at any moment, by
whoever's clock, for the rules rest on no clock; only `day`, which a decision is kept for, is one, and the
collector's may be ahead of the coordinator's (`skew`).
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

ATOMIC = "a transaction is in all of its tables or in none"
ONCE = "a request is applied at most once"
THERE = "what was acknowledged is there"
SAME = "a version, once readable, reads the same for ever"
GONE = "after the receipt of an erasure no frame holds what was there before it"
CUT = "who reads several tables sees no half of a transaction"

# Rule → the promise that breaks without it.
RULES = {
    "prepare_on_condition": (THERE, ATOMIC),  # If-Match on the base
    "wait_for_decision": (ATOMIC,),  # nobody swaps out a frame that nothing has decided
    "decide_if_absent": (ATOMIC,),  # If-None-Match on the decision
    "decide_when_all_are_prepared": (ATOMIC,),
    "read_lost_decision": (THERE,),  # an answer that was lost is read, not guessed
    "plan_on_resolved": (ATOMIC,),  # the next commit goes on from what the decision says
    "read_until_two_agree": (CUT,),
    "keep_while_prepared": (THERE, SAME),  # a decision, while a table holds its frame
    "moved_on": (ATOMIC,),  # … and while one is still what the transaction was planned on
    "half_of_the_time": (THERE,),  # … nor after half of that: clocks are not alike
    "erasure_is_a_commit": (GONE,),  # an aborted frame holds rows, though it counts for nothing
    "suspended_is_unknown": (THERE,),  # who decides after a day does not know what it has decided
}


class Pointer(NamedTuple):
    """Equal pointers are equal bytes: one ETag. `prepared` is the id of a transaction, `pending` the commit
    that it adds."""

    commits: tuple[str, ...] = ()
    prepared: str = ""
    pending: str = ""


class Decision(NamedTuple):
    committed: bool
    bases: tuple[int, ...]
    day: int


class Coordinator(NamedTuple):
    """`at`: load, prepare, decide, doubt (an answer was lost), or how it ended. `won`: tables prepared."""

    at: str = "load"
    tried: int = 0
    bases: tuple[Pointer, ...] = ()
    won: tuple[bool, ...] = ()
    day: int = 0


class Writer(NamedTuple):
    at: str = "load"
    base: Pointer = Pointer()


class Reader(NamedTuple):
    """`seen`: what was found of each table: its pointer, and the commits that it stood for."""

    round: int = 0
    seen: tuple[tuple[Pointer, tuple[str, ...]], ...] = ()
    before: tuple[tuple[Pointer, tuple[str, ...]], ...] = ()


class Collector(NamedTuple):
    """Has read the decision of `transaction`, and found that the first `asked` tables do not need it."""

    transaction: str = ""
    asked: int = 0


class State(NamedTuple):
    tables: tuple[Pointer, ...]
    decisions: tuple[tuple[str, Decision], ...] = ()
    coordinators: tuple[Coordinator, ...] = ()
    writers: tuple[Writer, ...] = ()
    reader: Reader | None = None
    collector: Collector | None = None
    eraser: Writer | None = None
    takers: int = 0
    day: int = 0
    late: tuple[tuple[int, Pointer, Pointer], ...] = ()  # swaps that arrive later
    faults: int = 0
    acknowledged: frozenset[str] = frozenset()  # ghost
    broken: str = ""  # ghost


class Bounds(NamedTuple):
    name: str
    tables: int = 2
    coordinators: int = 1
    writers: int = 0  # the n-th works on table n
    tries: int = 2
    reader: bool = False
    collector: bool = False
    takers: int = 0
    days: int = 0
    kept: int = 1  # days of a decision
    skew: int = 0  # days that the collector's clock is ahead
    eraser: bool = False  # works on table 0
    faults: int = 0  # answers that are lost, requests that are late, crashes


BOUNDS = (
    Bounds("a crash anywhere, and two writers", writers=2, faults=2),
    Bounds("two transactions", coordinators=2, writers=1, faults=1),
    Bounds("three tables", tables=3, writers=2, faults=1),
    Bounds("a reader of both", writers=2, reader=True, tries=1, faults=1),
    Bounds("decisions are deleted", writers=2, collector=True, days=1, tries=1),
    Bounds("decisions of two tries are deleted", writers=2, collector=True, days=1, faults=1),
    Bounds(
        "a collector whose clock is ahead",
        writers=2,
        collector=True,
        days=1,
        kept=2,
        skew=1,
        tries=1,
    ),
    Bounds("an erasure", writers=1, eraser=True, tries=1, faults=1),
    Bounds("tables that nobody else touches", takers=2, collector=True, days=1, faults=1),
)


class Model:
    def __init__(self, bounds: Bounds, without: frozenset[str] = frozenset()) -> None:
        self.bounds = bounds
        self.without = without

    def keeps(self, rule: str) -> bool:
        return rule not in self.without

    def start(self) -> State:
        b = self.bounds
        return State(
            tables=(Pointer(("first",)),) * b.tables,
            coordinators=(Coordinator(),) * b.coordinators,
            writers=(Writer(),) * b.writers,
            reader=Reader() if b.reader else None,
            collector=Collector() if b.collector else None,
            eraser=Writer() if b.eraser else None,
            takers=b.takers,
            faults=b.faults,
        )

    # -- what a pointer stands for ----------------------------------------------------------------

    def decision(self, s: State, pointer: Pointer) -> bool | None:
        found = dict(s.decisions).get(pointer.prepared)
        return None if found is None else found.committed

    def resolved(self, s: State, pointer: Pointer) -> tuple[str, ...]:
        if pointer.prepared and self.decision(s, pointer):
            return (*pointer.commits, pointer.pending)
        return pointer.commits

    # -- steps ------------------------------------------------------------------------------------

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        for n in range(len(s.coordinators)):
            yield from self.coordinate(s, n)
        for n in range(len(s.writers)):
            yield from self.write(s, n)
        if s.reader is not None:
            yield from self.read(s, s.reader)
        if s.collector is not None:
            yield from self.collect(s, s.collector)
        if s.eraser is not None:
            yield from self.erase(s, s.eraser)
        if s.takers:
            yield from self.take_back(s)
        if s.day < self.bounds.days:
            yield "a day passes", s._replace(day=s.day + 1)
        for sent in s.late:
            table, base, frame = sent
            left = tuple(each for each in s.late if each is not sent)
            arrived = s._replace(late=left)
            yield (
                f"a late prepare of table {table} arrives",
                self.put(arrived, table, base, frame)[0],
            )

    def put(
        self, s: State, table: int, base: Pointer, frame: Pointer, *, free: bool = False
    ) -> tuple[State, bool]:
        if s.tables[table] != base and not free:
            return s, False
        tables = list(s.tables)
        tables[table] = frame
        return s._replace(tables=tuple(tables)), True

    def decide(self, s: State, name: str, committed: bool, bases: tuple[int, ...]) -> State:
        known = dict(s.decisions)
        if name in known and (self.keeps("decide_if_absent") or not committed):
            return s
        known[name] = Decision(committed, bases, s.day)
        return s._replace(decisions=tuple(sorted(known.items())))

    def coordinate(self, s: State, n: int) -> Iterator[tuple[str, State]]:
        c = s.coordinators[n]
        who = f"coordinator {n}"

        def to(state: State, **changed: object) -> State:
            mine = list(state.coordinators)
            mine[n] = c._replace(**changed)  # type: ignore[arg-type]
            return state._replace(coordinators=tuple(mine))

        name = f"t{n}.{c.tried}"
        request = f"request {n}"
        if c.at in ("committed", "given up", "unknown", "dead"):
            return
        if s.faults and c.at != "load":
            yield f"{who} dies", to(s._replace(faults=s.faults - 1), at="dead")
        tables = s.tables
        match c.at:
            case "load":
                # Reads all, and settles what keeps it waiting; one step, for it holds nothing meanwhile.
                free = s
                for p in tables:
                    if p.prepared and self.decision(free, p) is None:
                        free = self.decide(free, p.prepared, False, self.bases_of(p, free))
                applied = request in self.resolved(free, tables[0])
                if applied:
                    yield (
                        f"{who} finds its request applied",
                        self.acknowledge(to(free, at="committed"), request),
                    )
                    return
                won = (False,) * len(tables)
                yield (
                    f"{who} reads the tables",
                    to(free, at="prepare", bases=tables, won=won, day=s.day),
                )
            case "prepare":
                for t in range(len(tables)):
                    if not c.won[t]:
                        yield from self.prepare(s, n, t, name, to)
                if all(c.won) or (any(c.won) and not self.keeps("decide_when_all_are_prepared")):
                    yield f"{who} goes on to decide", to(s, at="decide")
            case "decide":
                made = self.decide(s, name, True, tuple(len(p.commits) for p in c.bases))
                if s.faults:
                    yield (
                        f"{who} decides, unanswered",
                        to(made._replace(faults=s.faults - 1), at="doubt"),
                    )
                    yield (
                        f"{who} does not get to decide",
                        to(s._replace(faults=s.faults - 1), at="doubt"),
                    )
                yield f"{who} decides", self.end(made, n, name, request, to)
            case "doubt":
                if self.keeps("read_lost_decision"):
                    made = self.decide(s, name, True, tuple(len(p.commits) for p in c.bases))
                    yield f"{who} decides again", self.end(made, n, name, request, to)
                else:
                    yield (
                        f"{who} takes it for done",
                        self.acknowledge(to(s, at="committed"), request),
                    )
            case _:
                raise ValueError(c.at)

    def bases_of(self, pointer: Pointer, s: State) -> tuple[int, ...]:
        """Of the transaction that `pointer` is prepared for, as its frame names them."""
        n = int(pointer.prepared[1:].split(".")[0])
        return tuple(len(p.commits) for p in s.coordinators[n].bases) or (len(pointer.commits),)

    def prepare(
        self, s: State, n: int, t: int, name: str, to: object
    ) -> Iterator[tuple[str, State]]:
        c = s.coordinators[n]
        assert callable(to)
        base = c.bases[t]
        commits = self.resolved(s, base) if self.keeps("plan_on_resolved") else base.commits
        frame = Pointer(commits, name, f"request {n}")
        after, done = self.put(s, t, base, frame, free=not self.keeps("prepare_on_condition"))
        won = tuple(True if i == t else w for i, w in enumerate(c.won))
        what = f"coordinator {n} prepares table {t}"
        if done:
            yield what, to(after, won=won)
        else:
            # It gives up what it has prepared, and begins again under another id.
            bases = tuple(len(p.commits) for p in c.bases)
            aborted = self.decide(s, name, False, bases)
            again = c.tried + 1 < self.bounds.tries
            yield (
                f"{what}: too late",
                to(
                    aborted, at="load" if again else "given up", tried=c.tried + 1, bases=(), won=()
                ),
            )
        if s.faults:
            spent = s._replace(faults=s.faults - 1, late=(*s.late, (t, base, frame)))
            bases = tuple(len(p.commits) for p in c.bases)
            aborted = self.decide(spent, name, False, bases)
            yield f"{what}, late, and is given up", to(aborted, at="given up", bases=(), won=())

    def end(self, s: State, n: int, name: str, request: str, to: object) -> State:
        assert callable(to)
        c = s.coordinators[n]
        most = 1 if self.keeps("half_of_the_time") else self.bounds.kept
        if s.day - c.day >= most and self.keeps("suspended_is_unknown"):
            return to(s, at="unknown")  # type: ignore[no-any-return]
        if dict(s.decisions)[name].committed:
            return self.acknowledge(to(s, at="committed"), request)
        again = c.tried + 1 < self.bounds.tries
        return to(s, at="load" if again else "given up", tried=c.tried + 1, bases=(), won=())  # type: ignore[no-any-return]

    def acknowledge(self, s: State, what: str) -> State:
        return s._replace(acknowledged=s.acknowledged | {what})

    def write(self, s: State, n: int) -> Iterator[tuple[str, State]]:
        """A commit on table n alone."""
        w, pointer = s.writers[n], s.tables[n]

        def to(state: State, **changed: object) -> State:
            mine = list(state.writers)
            mine[n] = w._replace(**changed)  # type: ignore[arg-type]
            return state._replace(writers=tuple(mine))

        if w.at == "load":
            if (
                pointer.prepared
                and self.decision(s, pointer) is None
                and self.keeps("wait_for_decision")
            ):
                aborted = self.decide(s, pointer.prepared, False, self.bases_of(pointer, s))
                yield f"writer {n} aborts what keeps it waiting", aborted
                return
            yield f"writer {n} reads", to(s, at="swap", base=pointer)
        elif w.at == "swap":
            known = self.resolved(s, w.base) if self.keeps("plan_on_resolved") else w.base.commits
            after, done = self.put(s, n, w.base, Pointer((*known, f"writer {n}")))
            if done:
                yield (
                    f"writer {n} commits",
                    self.acknowledge(to(after, at="done"), f"writer {n}@{n}"),
                )
            else:
                yield f"writer {n} is too late", to(s, at="load")

    def read(self, s: State, r: Reader) -> Iterator[tuple[str, State]]:
        """One table after the other, from the first again until two rounds agree."""
        t = len(r.seen)
        pointer = s.tables[t]
        seen = (*r.seen, (pointer, self.resolved(s, pointer)))
        if len(seen) < len(s.tables):
            yield f"reader reads table {t}", s._replace(reader=r._replace(seen=seen))
            return
        if seen == r.before or not self.keeps("read_until_two_agree"):
            halves = {name for _, commits in seen for name in commits if name.startswith("request")}
            torn = any(name not in commits for name in halves for _, commits in seen)
            ended = s._replace(reader=None, broken=CUT if torn else s.broken)
            yield "reader has all", ended
        elif r.round < 3:
            yield "reader reads again", s._replace(reader=Reader(r.round + 1, (), seen))

    def collect(self, s: State, c: Collector) -> Iterator[tuple[str, State]]:
        """Deletes a decision that no table needs, a GET for each."""
        if not c.transaction:
            for name, found in s.decisions:
                if s.day + self.bounds.skew - found.day >= self.bounds.kept:
                    yield f"collector looks at {name}", s._replace(collector=Collector(name))
            return
        found = dict(s.decisions)[c.transaction]
        if c.asked == len(s.tables):
            left = tuple((n, d) for n, d in s.decisions if n != c.transaction)
            yield (
                f"collector deletes {c.transaction}",
                s._replace(decisions=left, collector=Collector()),
            )
            return
        pointer = s.tables[c.asked]
        held = pointer.prepared == c.transaction and self.keeps("keep_while_prepared")
        behind = len(self.resolved(s, pointer)) <= found.bases[c.asked] and self.keeps("moved_on")
        if held or behind:
            yield f"collector keeps {c.transaction}", s._replace(collector=None)
        else:
            yield "collector goes on", s._replace(collector=c._replace(asked=c.asked + 1))

    def erase(self, s: State, e: Writer) -> Iterator[tuple[str, State]]:
        """Of what table 0 has: opened by a commit, and ended by a receipt."""
        pointer = s.tables[0]
        decided = self.decision(s, pointer) if pointer.prepared else True
        if e.at == "load" and decided is None:
            aborted = self.decide(s, pointer.prepared, False, self.bases_of(pointer, s))
            yield "the erasure aborts what keeps it waiting", aborted
        elif e.at == "load" and decided is False and not self.keeps("erasure_is_a_commit"):
            yield "the erasure finds nothing to end", s._replace(eraser=Writer("receipt"))
        elif e.at == "load":
            yield "the erasure reads", s._replace(eraser=Writer("swap", pointer))
        elif e.at == "swap":
            known = self.resolved(s, e.base)
            after, done = self.put(s, 0, e.base, Pointer((*known, "erasure")))
            yield "the erasure is opened", after._replace(eraser=Writer("end" if done else "load"))
        elif e.at == "end":
            yield "the erasure has its receipt", s._replace(eraser=Writer("receipt"))

    def take_back(self, s: State) -> Iterator[tuple[str, State]]:
        """Maintenance of a table that is prepared, and aborted, and that nobody else touches."""
        for t, pointer in enumerate(s.tables):
            if pointer.prepared and self.decision(s, pointer) is False:
                mended = Pointer((*pointer.commits, "maintenance"))
                spent = s._replace(takers=s.takers - 1)
                yield f"table {t} is maintained", self.put(spent, t, pointer, mended)[0]

    # -- what must hold ---------------------------------------------------------------------------

    def fault(self, before: State, s: State) -> str:
        if s.broken:
            return s.broken
        now = [self.resolved(s, p) for p in s.tables]
        ended = s.eraser is not None and s.eraser.at == "receipt"
        if ended and "erasure" not in s.tables[0].commits:
            return GONE
        for n in range(len(s.coordinators)):
            name = f"request {n}"
            there = [name in commits for commits in now]
            if any(there) and not all(there):
                return ATOMIC
            if any(commits.count(name) > 1 for commits in now):
                return ONCE
            if name in s.acknowledged and not all(there):
                return THERE
        for name in s.acknowledged:
            if name.startswith("writer"):
                commit, _, table = name.partition("@")
                if commit not in now[int(table)]:
                    return THERE
        for pointer, commits in zip(before.tables, now, strict=True):
            was = self.resolved(before, pointer)
            if commits[: len(was)] != was:
                return SAME
        return ""


class Found(NamedTuple):
    states: int
    broken: str
    way: tuple[str, ...]


def check(model: Model, *, most: int = 3_000_000) -> Found:
    """Every state, breadth first, until a promise is broken."""
    start = model.start()
    came: dict[State, tuple[State, str] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        for what, after in model.steps(state):
            broken = model.fault(state, after)
            if broken:
                way = [what]
                at = state
                while (step := came[at]) is not None:
                    at = step[0]
                    way.append(step[1])
                return Found(len(came), broken, tuple(reversed(way)))
            if after not in came:
                came[after] = (state, what)
                waiting.append(after)
                if len(came) > most:
                    raise RuntimeError(f"{model.bounds.name}: more than {most} states")
    return Found(len(came), "", ())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--without", action="append", default=[], choices=sorted(RULES))
    arguments = parser.parse_args()
    failed = False
    for bounds in BOUNDS:
        found = check(Model(bounds, frozenset(arguments.without)))
        print(f"{bounds.name}: {found.states:,} states, {found.broken or 'every promise holds'}")
        for step in found.way:
            print(f"    {step}")
        failed = failed or bool(found.broken)
    return failed


if __name__ == "__main__":
    sys.exit(main())

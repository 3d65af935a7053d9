"""Interleavings: two operations at once, at every order of their requests.

::

    python -m tests.simulator.interleavings                              # all pairs
    python -m tests.simulator.interleavings --pairs "append × update"    # those whose name holds it
    python -m tests.simulator.interleavings --replay "append × update rewrite: 0011100"

Promise: of each pair every schedule with at most `preemptions` switches away from an operation that
could have gone on is run, exactly once; all schedules there are, where these are few. A schedule is
written as who goes next, at each request that both could make. After each of them the table holds what
the model says, version by version (so the outcome is that of one after the other), both were
acknowledged, `verify` finds nothing wrong, and whoever lost has uploaded data again only if the matrix
of docs/FORMAT.md, section 10, lets it.

No request fails here: `testing.simulation` and tests/simulation/test_every_request.py vary the fates of
single requests.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.simulator.fates import CALM
from tests.simulator.model import Violation
from tests.simulator.pairs import OPERATIONS, REDELIVERED, Operation, prepared
from tests.simulator.publishers import look_by_iceberg
from tests.simulator.scheduler import Actor, Scheduler, Stuck
from tests.simulator.simulation import memoized
from tests.simulator.stage import Simulation
from tests.simulator.transfers import TRANSFERS

from inlay.errors import InlayError
from inlay.ops.context import Context
from inlay.ops.verify.table import verify
from inlay.plan.change import Request

PREEMPTIONS = 2
# A pair with no more orders than this is run in all of them.
FULL = 300
# Operations that read what they write plan again a few times at most: beyond this they chase each other.
MAX_CHOICES = 400
TWICE = " twice"
BOTH = " × "


@dataclass(frozen=True, slots=True)
class Pair:
    """`name` is that of one operation, then of the other; `serializable` is the table's isolation."""

    name: str
    serializable: bool = False

    def __str__(self) -> str:
        return self.name + (" (serializable)" if self.serializable else "")

    @property
    def kinds(self) -> tuple[str, str]:
        if self.name.endswith(TWICE):
            return (self.name.removesuffix(TWICE),) * 2
        first, _, second = self.name.partition(BOTH)
        return first, second


class Interleaver(Scheduler):
    """Follows `prefix`, then lets whoever runs go on. `taken` is what was chosen, where there was a
    choice. Nobody sleeps: waiting is one more point where the other may go on."""

    def __init__(self, start_us: int, prefix: Sequence[int]) -> None:
        super().__init__(random.Random(0), start_us=start_us)
        self.prefix = prefix
        self.taken: list[int] = []

    def sleep(self, seconds: float) -> None:
        self.pause()

    def _choose(self) -> Actor | None:
        if len(self._busy) < 2:
            return self._busy[0] if self._busy else None
        if len(self.taken) >= MAX_CHOICES:
            raise Stuck("the two chase each other")
        at = len(self.taken)
        before = self.taken[-1] if self.taken else 0
        self.taken.append(self.prefix[at] if at < len(self.prefix) else before)
        return self._busy[self.taken[-1]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one schedule. `requests` and `uploads` are those of each of the two; `commits` how
    many versions there were."""

    taken: tuple[int, ...]
    requests: tuple[int, ...]
    uploads: tuple[int, ...]
    commits: int
    trace: tuple[str, ...]
    violation: str | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """A pair's table, and what its two do there."""

    sim: Simulation
    operations: tuple[Operation, Operation]
    requests: tuple[Request, Request]

    @classmethod
    def of(cls, pair: Pair) -> Start:
        sim = prepared(serializable=pair.serializable)
        first, second = pair.kinds
        one = OPERATIONS[first](sim, 0)
        if pair.name.endswith(TWICE):
            request = Request.of("both", body="both")
            return cls(sim, (one, one), (request, request))
        names = (f"{first} 1", f"{second} 2")
        other = OPERATIONS[second](sim, 1)
        requests = (Request.of(names[0], body=names[0]), Request.of(names[1], body=names[1]))
        return cls(sim, (one, other), requests)


def run(start: Start, prefix: Sequence[int], only: int | None = None) -> Outcome:
    """One schedule; `only` one of the two alone."""
    scheduler = Interleaver(start.sim.scheduler.now_us, prefix)
    sim = Simulation(1, CALM, start_from=start.sim, under=scheduler)
    before = sim.auditor.newest
    numbers = (0, 1) if only is None else (only,)
    names = ("first", "second")
    for number in numbers:
        operation, request = start.operations[number], start.requests[number]
        named = None
        if operation.intent is not None:
            named = request.text
            sim.model.intend(named, operation.intent)
        act = partial(sim.attempt, names[number], named, partial(_perform, operation, request))
        sim.spawn(names[number], act)
    violation = None
    try:
        scheduler.run()
        _check(sim, start, numbers)
    except (Violation, Stuck) as error:
        violation = f"{type(error).__name__}: {error}"
    except InlayError as error:
        violation = f"unexpected {type(error).__name__}: {error}"
    requests = Counter(line.partition(":")[0] for line in scheduler.trace)
    uploads = Counter(line.partition(":")[0] for line in scheduler.trace if _is_upload(line))
    return Outcome(
        tuple(scheduler.taken),
        tuple(requests[n] for n in names),
        tuple(uploads[n] for n in names),
        sim.auditor.newest - before,
        tuple(scheduler.trace),
        violation,
    )


def _perform(operation: Operation, request: Request, ctx: Context) -> object:
    return operation.run(ctx, request)


def _is_upload(line: str) -> bool:
    """A data or marker object written, or a landed one copied."""
    _, method, about = line.split(" ", 2)
    place = "/data/" in about or "/tombstone/" in about or about == "Location"
    return method in ("put", "copy") and place


def _check(sim: Simulation, start: Start, numbers: Sequence[int]) -> None:
    sim.model.check_acknowledged()
    for number in numbers:
        asked = start.requests[number].text
        if start.operations[number].intent is not None and asked not in sim.model.acknowledged:
            raise Violation(f"{asked} was not acknowledged")
    sim.auditor.check_reachable()
    look_by_iceberg(sim, sim.auditor.ctx)
    found = verify(sim.auditor.ctx)
    if found.errors:
        raise Violation(f"verify: {found.errors[0]}")


# -- all schedules of a pair ----------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """What the schedules of one pair showed. `alone` are the most uploads of each when it runs without
    the other, before it or after it."""

    pair: Pair
    full: bool = False
    schedules: int = 0
    most_uploads: list[int] = field(default_factory=lambda: [0, 0])
    alone: list[int] = field(default_factory=lambda: [0, 0])
    violations: list[tuple[str, str]] = field(default_factory=list)


def explore(pair: Pair, *, preemptions: int = PREEMPTIONS, full: int = FULL) -> Found:
    """Run every schedule of a pair, at most that many switches or, where there are few, all of them."""
    with memoized():
        start = Start.of(pair)
        found = Found(pair)
        alone = [run(start, (), only=number) for number in (0, 1)]
        lengths = [o.requests[number] for number, o in enumerate(alone)]
        found.full = math.comb(sum(lengths), lengths[0]) <= full
        # After the other it may have more to do than without it.
        for outcome in (*alone, run(start, ()), run(start, (1,))):
            found.alone = [max(pair) for pair in zip(found.alone, outcome.uploads, strict=True)]
        # Switches of a whole schedule: more than there are requests there cannot be.
        for outcome in schedules(start, MAX_CHOICES if found.full else preemptions):
            _note(found, start, outcome)
    return found


def schedules(start: Start, preemptions: int) -> Iterator[Outcome]:
    """Each schedule once: a prefix is followed, then nobody is interrupted; wherever the other could
    have gone on after it, a longer prefix begins."""
    left: list[tuple[int, ...]] = [(), (1,)]
    while left:
        prefix = left.pop()
        outcome = run(start, prefix)
        yield outcome
        if outcome.violation is not None:
            continue  # what came after it may be anything
        for at in range(max(1, len(prefix)), len(outcome.taken)):
            longer = (*outcome.taken[:at], 1 - outcome.taken[at])
            if switches(longer) <= preemptions:
                left.append(longer)


def switches(taken: Sequence[int]) -> int:
    return sum(a != b for a, b in itertools.pairwise(taken))


def _note(found: Found, start: Start, outcome: Outcome) -> None:
    found.schedules += 1
    violation = outcome.violation or _redone(found, start, outcome)
    if violation is not None:
        found.violations.append(("".join(map(str, outcome.taken)), violation))
    for number in (0, 1):
        most = max(found.most_uploads[number], outcome.uploads[number])
        found.most_uploads[number] = most


def _redone(found: Found, start: Start, outcome: Outcome) -> str | None:
    """Uploads beyond those that it makes before or after the other, where nothing made it plan
    again."""
    for number, operation in enumerate(start.operations):
        other = found.pair.kinds[1 - number]
        more = outcome.uploads[number] - found.alone[number]
        if more > 0 and other not in operation.redone_by:
            return f"{found.pair.kinds[number]} uploaded {more} objects again because of {other}"
    return None


def pairs() -> list[Pair]:
    operations = {**OPERATIONS, **TRANSFERS}
    names = [f"{a}{BOTH}{b}" for a, b in itertools.combinations_with_replacement(operations, 2)]
    names += [f"{name}{TWICE}" for name in REDELIVERED]
    found = [Pair(name) for name in names]
    # Isolation makes a difference to deletes that read.
    reading = ("delete rows", "delete surgery", "delete rewrite")
    found += [Pair(n, serializable=True) for n in names if any(r in n for r in reading)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.interleavings")
    parser.add_argument("--pairs", default="", help="only pairs whose name holds this")
    parser.add_argument("--preemptions", type=int, default=PREEMPTIONS)
    parser.add_argument("--full", type=int, default=FULL, help="orders up to which all are run")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--replay", help='one schedule, as "append × update rewrite: 0011"')
    options = parser.parse_args()
    if options.replay is not None:
        return _replay(options.replay)
    chosen = [p for p in pairs() if options.pairs in str(p)]
    started, total, bad = time.monotonic(), 0, 0
    work = partial(explore, preemptions=options.preemptions, full=options.full)
    gc.freeze()
    with multiprocessing.get_context("spawn").Pool(options.jobs, gc.freeze) as pool:
        for found in pool.imap_unordered(work, chosen):
            total += found.schedules
            bad += len(found.violations)
            how = "all orders" if found.full else f"at most {options.preemptions} switches"
            print(
                f"{found.pair!s:<48} {found.schedules:5} {how:<22} uploads alone {found.alone}, "
                f"at most {found.most_uploads}",
                flush=True,
            )
            for taken, violation in found.violations[:3]:
                print(f"  {violation}\n  --replay '{found.pair}: {taken}'", flush=True)
    seconds = time.monotonic() - started
    print(
        f"{len(chosen)} pairs, {total} schedules in {seconds:.0f} s "
        f"({total / seconds:.1f} a second), {bad} violations"
    )
    return 1 if bad else 0


def _replay(text: str) -> int:
    name, _, taken = text.rpartition(": ")
    serializable = name.endswith(" (serializable)")
    pair = Pair(name.removesuffix(" (serializable)"), serializable)
    with memoized():
        start = Start.of(pair)
        outcome = run(start, [int(c) for c in taken])
    print("\n".join(outcome.trace))
    print(outcome.violation or "every promise held")
    return 1 if outcome.violation else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Simulation: one seeded schedule of the real operations against every fate of every request.

::

    python -m tests.simulator.simulation --seeds 1000 --jobs 2   # random schedules
    python -m tests.simulator.simulation --seed 42 --trace   # replay one, print each request

Promise: the same seed replays exactly. The code that runs is the code that ships: `ops` on a store with
S3's rules; only time, randomness and threads are the simulator's (`testing.scheduler`).
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.simulator.cast import full_cast
from tests.simulator.engines import engines_cast
from tests.simulator.fates import Odds
from tests.simulator.historians import historians_cast
from tests.simulator.model import Violation
from tests.simulator.operators import operators_cast
from tests.simulator.publishers import publishers_cast
from tests.simulator.scheduler import Stuck
from tests.simulator.stage import Simulation

from inlay.cli.tables import watching
from inlay.errors import InlayError
from inlay.format import codec, leaves
from inlay.format.snapshot import POINTER_TARGET_BYTES
from inlay.plan.commit import apply as apply_module

# What a table's entries mean does not change as its schemas grow, so `types` is not part of the key.
PURE: tuple[Callable[..., Any], ...] = (
    codec.decode_snapshot,
    codec.decode_head,
    leaves.decode_files,
    leaves.decode_markers,
    leaves.decode_ledger,
    leaves.decode_references,
)


def _remembering(decode: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[bytes, Any] = {}

    def recall(data: bytes, **how: Any) -> Any:
        found = known.get(data)
        if found is None:
            found = known[data] = decode(data, **how)
        return found

    return recall


@contextmanager
def memoized() -> Iterator[None]:
    """The decoders of metadata, each with a memory of its own, wherever they were imported to. Promise:
    speed, and nothing else. What is remembered are pure functions of bytes with frozen results; the bytes
    themselves are fetched from the store each time, by every actor and by the auditor."""
    modules = [m for name, m in sys.modules.items() if name.startswith("inlay.")]
    with ExitStack() as stack:
        for decode in PURE:
            recall = _remembering(decode)
            for module in modules:
                if getattr(module, decode.__name__, None) is decode:
                    stack.enter_context(patch.object(module, decode.__name__, recall))
        yield


@dataclass(frozen=True, slots=True)
class Report:
    seed: int
    versions: int
    requests: int
    steps: int
    violation: str | None = None
    trace: tuple[str, ...] = ()

    @property
    def replay(self) -> str:
        """The command that does it again, request by request."""
        return f"python -m tests.simulator.simulation --seed {self.seed} --trace"


def run_schedule(
    seed: int,
    *,
    odds: Odds | None = None,
    cast: Callable[[Simulation], None] | None = None,
    behind_seconds: float = 0.0,
    trace: bool = False,
) -> Report:
    """One schedule. A violation is reported, not raised: the seed is what matters."""
    simulation = Simulation(seed, odds or Odds(), behind_seconds=behind_seconds)
    violation = None
    # Half of the tables keep next to nothing inline, so that segments roll and merge all the time.
    target = simulation.rng.choice([POINTER_TARGET_BYTES, 1_000])
    try:
        with (
            patch.object(apply_module, "POINTER_TARGET_BYTES", target),
            patch.object(apply_module, "INLINE_MIN_BYTES", 200),
            memoized(),
        ):
            simulation.start()
            (cast or _cast_of(seed))(simulation)
            simulation.scheduler.run()
            simulation.settle()
    except (Violation, Stuck) as error:
        violation = f"{type(error).__name__}: {error}"
    except InlayError as error:
        violation = f"unexpected {type(error).__name__}: {error}"
    return Report(
        seed,
        simulation.auditor.newest,
        simulation.world.requests,
        simulation.scheduler.steps,
        violation,
        tuple(simulation.scheduler.trace) if trace else (),
    )


def _cast_of(seed: int) -> Callable[[Simulation], None]:
    """The crowd of every fourth seed works on tags, branches, versions and columns as well; in that of
    every eighth an operator moves the pointer by hand; that of another eighth is shown to other engines,
    which write it, too, in half of them."""
    match seed % 8:
        case 4:
            return operators_cast
        case 2 | 6:
            return historians_cast
        case 1:
            return engines_cast if seed % 16 == 9 else publishers_cast
        case _:  # the other half
            return full_cast


def run_all(seeds: Iterable[int], *, jobs: int, seconds: float | None = None) -> Iterator[Report]:
    """Reports as they come in, in any order when there are several processes."""
    started = time.monotonic()
    gc.freeze()  # what was imported stays: it need not be searched for garbage in every schedule
    with ExitStack() as stack:
        reports: Iterator[Report]
        if jobs == 1:
            reports = map(run_schedule, seeds)
        else:
            # Spawned: a forked process would share pyarrow's threads, which are not there.
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(jobs, gc.freeze))
            reports = pool.imap_unordered(run_schedule, seeds)
        for report in reports:
            yield report
            if seconds is not None and time.monotonic() - started > seconds:
                return


def main() -> int:
    """Run schedules and print what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulator.simulation", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=200, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--seed", type=int, help="replay this one schedule")
    parser.add_argument("--trace", action="store_true", help="print every request")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    options = parser.parse_args()
    if options.seed is not None:
        report = run_schedule(options.seed, trace=options.trace)
        print("\n".join(report.trace))
        print(f"seed {report.seed}: {report.versions} versions, {report.requests} requests")
        print(report.violation or "every promise held")
        return 1 if report.violation else 0
    started = time.monotonic()
    done = Counter[str]()
    seeds = range(options.first, options.first + options.seeds)
    # Stopped by hand, it says what was run.
    with watching() as progress, suppress(KeyboardInterrupt):
        for report in run_all(seeds, jobs=options.jobs, seconds=options.seconds):
            done["schedules"] += 1
            done["requests"] += report.requests
            done["versions"] += report.versions
            progress("schedules", done["schedules"], len(seeds))
            if report.violation:
                done["violations"] += 1
                print(f"seed {report.seed}: {report.violation}")
                print(f"  {report.replay}", flush=True)
    seconds = time.monotonic() - started
    print(
        f"{done['schedules']} schedules, {done['versions']} versions, {done['requests']} requests in "
        f"{seconds:.1f} s: {done['schedules'] / seconds:.1f} schedules a second, "
        f"{done['violations']} violations"
    )
    return 1 if done["violations"] else 0


if __name__ == "__main__":
    raise SystemExit(main())

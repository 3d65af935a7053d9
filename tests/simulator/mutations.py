"""Mutations: which schedule shows each mistake that somebody could make (`testing.mistakes`).

Promise: the simulator catches each within `SEEDS` schedules of its scene (`testing.scenes`), `RARE_SEEDS`
where many things must come together, and the same scene without the mistake shows nothing. A mutation
that nobody catches is a defect of the simulator.

::

    python -m tests.simulator.mutations               # all of them: name, seed that caught it, what it said
    python -m tests.simulator.mutations --count 60    # how many of 60 schedules catch each
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

from tests.simulator.mistakes import MUTATIONS, RARE_SEEDS, SEEDS, applied
from tests.simulator.simulation import run_schedule


def violations(name: str, seeds: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Which of the seeds show the mistake, and what each says."""
    scene = MUTATIONS[name].scene
    with applied(name):
        for seed in seeds:
            report = run_schedule(
                seed, cast=scene.cast, odds=scene.odds, behind_seconds=scene.behind_seconds
            )
            if report.violation:
                yield seed, report.violation


def caught(name: str) -> tuple[int, str] | None:
    """A seed that shows the mistake, and what it says; None when none does that must."""
    mistake = MUTATIONS[name]
    known = () if mistake.first is None else (mistake.first,)
    return next(violations(name, chain(known, range(mistake.within))), None)


def _look_for(count: int | None, name: str) -> tuple[str, list[tuple[int, str]]]:
    if count is not None:
        return name, list(violations(name, range(count)))
    found = caught(name)
    return name, [] if found is None else [found]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.mutations")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--count", type=int, help="run so many schedules of each, and count")
    parser.add_argument("names", nargs="*", help="of mutations; all without")
    options = parser.parse_args()
    names = options.names or list(MUTATIONS)
    missed = 0
    with multiprocessing.get_context("spawn").Pool(options.jobs, gc.freeze) as pool:
        for name, found in pool.imap_unordered(partial(_look_for, options.count), names):
            missed += not found
            of = "" if options.count is None else f"{len(found):3} of {options.count}  "
            said = f"seed {found[0][0]:4}  {found[0][1][:90]}" if found else "NOT CAUGHT"
            print(f"{name:48} {of}{said}", flush=True)
    within = f"{SEEDS} schedules, the rare ones {RARE_SEEDS}"
    if options.count is not None:
        within = f"{options.count} schedules"
    print(f"{len(names) - missed} of {len(names)} mutations caught within {within}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

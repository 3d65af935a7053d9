"""Runs `commit_model.pml`, the second specification of commits, with spin: every state of its bounds.

    python docs/design/spin_model.py                            # every bound, all actors at once at the end
    python docs/design/spin_model.py --small                    # those that have each rule left out
    python docs/design/spin_model.py --without compare_archive  # prints a short way to the fault

Needs `spin` (Debian's package, which `.ci/get-spin` unpacks) and a C compiler. States are kept as hashes of
64 bits (spin's HC4): of n states one is taken for another with a probability of about n² / 2⁶⁵. Which state
stands for which others, and what was visited, is in commit_model.md.
"""

from __future__ import annotations

import argparse
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("commit_model.pml")
UNPACKED = SOURCE.parents[2] / ".tools/spin/usr/bin"
PROMISES = (
    "rows are there at most once",
    "what was acknowledged is there",
    "a version reads what was committed as it",
    "no archive tells of a version that never was",
    "a pointer that went back is not written to",
    "a file that is needed is there",
    "nothing erased comes back",
)
ONCE, THERE, SAME, REAL, BACK, FILES, ERASED = PROMISES
# Steps of the longest way: of all bounds below some 120.
MOST_DEPTH = 10_000
# All actors, and every step by itself: what the states for many are compared with.
PLAIN = ("ALL_ORDERS", "ALL_STEPS")


class Bounds(NamedTuple):
    """As `commit_model.pml` has them; `before`: versions at the start."""

    name: str
    writers: int = 1
    collectors: int = 0
    lost: int = 1
    late: int = 1
    deeds: int = 0
    repairs: int = 0
    erasures: int = 0
    hours: int = 1
    before: int = 2
    attempts: int = 2
    skew: int = 1
    put_back: int = 1
    # Of spin's hash table: 2 to the power of this, 8 bytes each.
    slots: int = 22


class Rule(NamedTuple):
    """What fails without it, and in which bounds. Some rules stand behind others: these are left out with
    them, and without those alone the promise must hold."""

    promise: str
    bounds: str
    behind: tuple[str, ...] = ()


SMALL = (
    Bounds("writers", writers=3, lost=2, hours=0),
    Bounds("operator", writers=2, deeds=1, repairs=1, hours=0, before=4),
    Bounds("creation", writers=2, deeds=1, put_back=0, hours=0, before=3),
    Bounds("collectors", writers=1, collectors=2, lost=0),
    Bounds("collection", writers=1, collectors=1, deeds=1, repairs=1),
    Bounds("erasure", writers=2, collectors=1, lost=0, erasures=1, before=1),
)
LARGE = (
    Bounds("two deeds, two repairs", writers=2, deeds=2, repairs=2, before=4),
    Bounds("an erasure among them", 2, 1, deeds=1, repairs=1, erasures=1, slots=25),
)
# With one attempt each: what a change must pass.
ONCE_EACH = Bounds(
    "everybody, with one attempt", 3, 2, deeds=1, repairs=1, late=0, attempts=1, slots=25
)
EVERYTHING = Bounds("everybody at once", 3, 2, deeds=1, repairs=1, slots=27)

RULES = {
    "look_after_doubt": Rule(ONCE, "writers", ("ask_the_ledger",)),
    "ask_the_ledger": Rule(ONCE, "operator"),
    "compare_archive": Rule(SAME, "operator"),
    "look_for_successor": Rule(BACK, "operator"),
    "compare_table_in_look": Rule(
        ONCE,
        "creation",
        ("create_on_clean_ground", "compare_archive", "look_for_successor", "ask_the_ledger"),
    ),
    "create_on_clean_ground": Rule(SAME, "creation", ("compare_archive", "look_for_successor")),
    "repair_archives_first": Rule(REAL, "operator"),
    "archive_before_swap": Rule(SAME, "writers"),
    "swap_on_condition": Rule(THERE, "writers"),
    "refuse_old_uploads": Rule(FILES, "collectors"),
    "roots_after_boundary": Rule(FILES, "collectors"),
    "margin_of_clocks": Rule(FILES, "collectors"),
    "collect_nothing_when_back": Rule(FILES, "collection"),
    "archive_boundary": Rule(FILES, "collection"),
    "erasure_moves_boundary": Rule(ERASED, "erasure"),
}


class Found(NamedTuple):
    """`whole`: every reachable state was visited. `seconds`: of CPU, the compiler's included."""

    states: int
    broken: str | None
    way: tuple[str, ...]
    whole: bool
    seconds: float
    megabytes: float


def left_out(rule: str) -> tuple[str, ...]:
    return (rule, *RULES[rule].behind)


def spin() -> str | None:
    """Of this machine, or the unpacked one."""
    return shutil.which("spin") or shutil.which("spin", path=UNPACKED)


def has_spin() -> bool:
    return spin() is not None and shutil.which("cc") is not None


def check(
    bounds: Bounds,
    *,
    without: Iterable[str] = (),
    promise: str | None = None,
    plain: bool = False,
    shortest: bool = False,
) -> Found:
    """Visit every state; ends at the first in which a promise, or the one that is named, is broken."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    numbers = {k.upper(): v for k, v in bounds._asdict().items() if k not in ("name", "slots")}
    numbers |= dict.fromkeys(without, 0)
    numbers |= {} if promise is None else {"ONLY": PROMISES.index(promise) + 1}
    numbers |= dict.fromkeys(PLAIN, 1) if plain else {}
    search = ["-DREACH"] if shortest else ["-DHC4"]
    with tempfile.TemporaryDirectory() as place:

        def run(*command: str) -> str:
            done = subprocess.run(command, cwd=place, text=True, capture_output=True, check=False)
            if done.returncode and command[0] != "./pan":
                raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
            return done.stdout

        shutil.copy(SOURCE, place)
        run(spin() or "spin", *(f"-D{k}={v}" for k, v in numbers.items()), "-a", SOURCE.name)
        flags = ("-O2", "-w", "-DSAFETY", "-DNOREDUCE", "-DVECTORSZ=1024", *search)
        run("cc", *flags, "-o", "pan", "pan.c")
        said = run(
            "./pan", "-E", f"-m{MOST_DEPTH}", f"-w{bounds.slots}", *(["-i"] if shortest else [])
        )
        states = re.search(r"^ *([\d.e+]+) states, stored", said, re.M)
        memory = re.search(r"^ *([\d.]+)\s+total actual memory usage", said, re.M)
        if states is None or memory is None:
            raise SystemExit(f"no figures in what the search has said:\n{said}")
        broken = re.search(r"^broken: (.*)$", said, re.M)
        way: list[str] = []
        if broken is not None:
            way = re.findall(r"^\s*(step: .*)$", run("./pan", "-r"), re.M)
        is_cut = "max search depth too small" in said or "out of memory" in said
        return Found(
            int(float(states[1])),
            broken[1] if broken else None,
            tuple(step.removeprefix("step: ") for step in way),
            broken is None and not is_cut and "errors: 0" in said,
            resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before,
            float(memory[1]),
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--small", action="store_true", help="the small bounds only")
    parser.add_argument("--without", choices=sorted(RULES), help="leave a rule out")
    options = parser.parse_args(arguments)
    if not has_spin():
        print("spin, or a C compiler, is not installed: nothing was checked", file=sys.stderr)
        return 2
    if options.without:
        promise, name, _ = RULES[options.without]
        bounds = next(each for each in SMALL if each.name == name)
        without = left_out(options.without)
        found = check(bounds, without=without, promise=promise, plain=True, shortest=True)
        print(f"{name}: {found.broken or 'holds'}", *found.way, sep="\n    ")
        return 1 if found.broken else 0
    broken = 0
    for bounds in SMALL if options.small else (*SMALL, ONCE_EACH, *LARGE, EVERYTHING):
        found = check(bounds)
        broken += not found.whole
        verdict = found.broken or ("every promise holds" if found.whole else "not visited whole")
        print(
            f"{bounds.name}: {found.states:,} states, {verdict} "
            f"({found.seconds:.1f} s of CPU, {found.megabytes:,.0f} MB)",
            flush=True,
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

"""`make mutants FILES="plan/scan.py …"`: changes one operator at a time and sees whether a test fails.

Of the mutants that at least `ENOUGH_TESTS` tests reach and that `equivalent.toml` does not list with a
reason, `LEAST` of 100 have to be killed. Chosen at random by `--seed`: the same seed, the same mutants.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from .operators import Live, Mutant, mutants_of, mutated, swap
from .reach import PACKAGE, ROOT, Reach, import_all, measure
from .session import ENDED, FAILED, HUNG, Fork, Forks, answers, start_session

LEAST = 95
ENOUGH_TESTS = 5
# The rooms that decide which rows are read, kept or deleted.
ROOMS = (
    "format/entry.py",
    "format/predicate.py",
    "format/values.py",
    "iceberg/manifest.py",
    "ops/commit/driver.py",
    "ops/read/top_n.py",
    "ops/write/delete.py",
    "ops/write/delete_rows.py",
    "ops/write/keyed_rows.py",
    "ops/write/old_rows.py",
    "ops/write/partial_upsert.py",
    "ops/write/recent_rows.py",
    "ops/write/update.py",
    "ops/write/upsert.py",
    "parquet/arrow/conform.py",
    "parquet/arrow/evaluate.py",
    "parquet/arrow/newest_rows.py",
    "parquet/read/deleted_rows.py",
    "parquet/read/selection.py",
    "parquet/read/statistics.py",
    "parquet/surgery/surgery.py",
    "plan/commit/apply.py",
    "plan/commit/conflicts.py",
    "plan/commit/draft.py",
    "plan/erasure.py",
    "plan/feed.py",
    "plan/merge.py",
    "plan/metadata/leaves.py",
    "plan/metadata/state.py",
    "plan/parts.py",
    "plan/positions.py",
    "plan/pruning/compared.py",
    "plan/pruning/literals.py",
    "plan/pruning/mentions.py",
    "plan/pruning/partitions.py",
    "plan/pruning/promise.py",
    "plan/pruning/prune.py",
    "plan/scan.py",
    "plan/surgery.py",
)
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
# Java, processes and other engines cost seconds a test, and reach no more of these rooms.
LEFT_OUT = ("--ignore=tests/spark", "--ignore=tests/local", "--ignore=tests/demo")
MARKED = "not slow and not functions and not spark"


def equivalents() -> dict[str, str]:
    """The reason, by a mutant's full name."""
    listed = tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])
    return {each["mutant"]: each["why"] for each in listed}


def chosen(sources: Mapping[str, str], number: int, seed: int, only: Sequence[str]) -> list[Mutant]:
    listed = equivalents()
    known = [
        mutant
        for file, source in sources.items()
        for mutant in mutants_of(file, source)
        if mutant.full_name not in listed and any(part in mutant.full_name for part in only)
    ]
    return random.Random(seed).sample(known, min(number, len(known)))


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.__stdout__, flush=True)


def try_mutants(forks: Forks, args: argparse.Namespace, sources: Mapping[str, str]) -> int:
    reach = Reach.load()
    import_all(sources)
    measure(forks, reach, sources, args.jobs, say)
    mutants = chosen({f: sources[f] for f in args.files}, args.number, args.seed, args.only)
    live = Live.found()
    gc.collect()
    gc.freeze()  # a fork that collects garbage looks at its own objects only
    tries: list[tuple[Mutant, dict[str, float], int]] = []
    few = 0
    for mutant in mutants:
        tests = reach.tests(mutant.file, mutant.function, mutant.statement)
        tests = {name: took for name, took in tests.items() if name in forks.items}
        if len(tests) < ENOUGH_TESTS:
            few += 1
            say(f"only {len(tests)} tests reach {mutant.full_name}")
            continue
        # Short tests first: most mutants end at the first few.
        ordered = sorted(tests, key=tests.__getitem__)
        taken, within = 0.0, {}
        for name in ordered:
            if taken + tests[name] > args.seconds and within:
                break
            taken += tests[name]
            within[name] = tests[name]
        tries.append((mutant, within, len(tests)))

    def start(mutant: Mutant, within: Mapping[str, float]) -> Fork:
        return Fork.start(forks, lambda: _tried(forks, live, mutant, sources[mutant.file], within))

    killed, alive, undecided = 0, [], []
    for is_last in (False, True):
        starts = [(each, partial(start, each[0], each[1])) for each in tries]
        tries = []
        for (mutant, within, of), answer in answers(starts, args.jobs):
            at = f"{mutant.full_name}  (line {mutant.line})"
            if answer.startswith(FAILED):
                raise RuntimeError(f"{mutant.full_name}: {answer.decode()}")
            if answer.startswith(HUNG):
                waits = answer.removeprefix(HUNG).decode()
                others = {name: took for name, took in within.items() if name != waits}
                if others and len(others) < len(within) and not is_last:
                    tries.append((mutant, others, of))  # it may wait for something of its own
                else:
                    undecided.append(mutant)
                    say(f"UNDECIDED {answer.decode()}: {at}")
            elif answer == b"survived":
                alive.append(mutant)
                say(f"SURVIVED {len(within)} of {of} tests: {at}")
            else:
                killed += 1
                how = f" ({answer.decode()})" if answer.startswith(ENDED) else ""
                say(f"killed{how} {mutant.full_name}")
    return _judged(killed, alive, undecided, few)


def _tried(
    forks: Forks, live: Live, mutant: Mutant, source: str, tests: Mapping[str, float]
) -> bytes:
    """In a fork. `tests`: the seconds that each takes."""
    path = str(PACKAGE / mutant.file)
    code = mutated(mutant, source, path)
    if not swap([code], live):
        raise LookupError("no function has this code")
    failed = forks.run([*tests], until_failure=True, took=tests)
    return b"killed" if failed else b"survived"


def _judged(killed: int, alive: Sequence[Mutant], undecided: Sequence[Mutant], few: int) -> int:
    """What hangs is neither killed nor alive: its test may have waited for something of its own."""
    total = killed + len(alive)
    if not total:
        say("no mutant that enough tests reach")
        return 1
    share = 100 * killed / total
    say(
        f"{killed} of {total} killed: {share:.0f} %; {len(undecided)} undecided; "
        f"{few} more are reached by too few tests"
    )
    for mutant in alive:
        print(f"  {mutant.full_name}", file=sys.__stdout__)
    for mutant in undecided:
        print(f"  undecided: {mutant.full_name}", file=sys.__stdout__)
    if share < LEAST:
        say(
            f"at least {LEAST} % have to be: write a test for each, or list it with the reason in "
            f"{EQUIVALENT.relative_to(ROOT)}"
        )
        return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--files", nargs="*", default=[], help="below layers/inlay/inlay")
    parser.add_argument("--number", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--only", nargs="*", default=[""], help="mutants whose name contains one of these"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=120,
        help="of CPU, of tests for a mutant, the shortest first",
    )
    parser.add_argument(
        "--short", action="store_true", help="tests of the short tier only: those of `make test`"
    )
    parser.add_argument(
        "--tests", nargs="*", default=["tests"], help="folders and files to choose tests from"
    )
    args = parser.parse_args()
    args.files = list(args.files) or list(ROOMS)
    unknown = [f for f in args.files if not (PACKAGE / f).is_file()]
    if unknown:
        parser.error(f"no file of the package: {', '.join(unknown)}")
    # Read before anything is imported: who edits meanwhile changes neither.
    sources = {f: (PACKAGE / f).read_text() for f in sorted({*ROOMS, *args.files})}
    return start_session(
        lambda forks: try_mutants(forks, args, sources),
        [*args.tests, *LEFT_OUT, "-m", f"{MARKED} and not wide" if args.short else MARKED],
    )


if __name__ == "__main__":
    sys.exit(main())

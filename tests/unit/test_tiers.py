"""The tiers: what `make test` leaves out is shown again by what it runs, and it stays within its budget."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests import cpu
from tests.simulator.mistakes import MUTATIONS
from tests.tiers import MIN_EXAMPLES, SEEDS, SHORT_SECONDS, Case, Tiers, covering

ROOT = Path(__file__).parents[2]
# Of one file in the short tier: beyond it, what it costs is for the wide tier.
FILE_SECONDS = 120
TIERS = Tiers.read()


def cases_of(test: str, **values: int) -> list[Case]:
    product = itertools.product(*(range(number) for number in values.values()))
    return [Case(test, dict(zip(values, chosen, strict=True))) for chosen in product]


@pytest.mark.parametrize("sizes", [(4,), (3, 5), (5, 3), (2, 3, 4), (3, 3, 3)])
def test_each_value_of_each_parameter_is_shown_in_few_cases(sizes):
    cases = cases_of("t", **{f"p{n}": size for n, size in enumerate(sizes)})
    kept = covering(cases)
    for n, size in enumerate(sizes):
        assert {cases[at].values[f"p{n}"] for at in kept} == set(range(size))
    assert max(sizes) <= len(kept) <= sum(sizes)


def test_a_list_of_cases_is_run_whole_and_a_product_is_not():
    alone, product = cases_of("a", x=9), cases_of("b", x=9, y=2)
    wide = TIERS.wide_among([*alone, *product])
    assert not wide & set(range(9))
    assert len(wide) == 9


def test_of_seeds_the_first_are_run_with_each_value():
    cases = [
        Case(case.test, case.values, seed) for seed in range(20) for case in cases_of("t", x=4)
    ]
    short = sorted(set(range(len(cases))) - TIERS.wide_among(cases))
    assert [cases[at].seed for at in short] == [0, 0, 0, 0, *range(1, SEEDS)]
    assert {cases[at].values["x"] for at in short[:4]} == set(range(4))


DRAWN = """
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

drawn = {"few": 0, "plain": 0, "many": 0, "machine": 0}

@given(st.integers())
@settings(max_examples=3)
def test_few(n): drawn["few"] += 1

@pytest.mark.parametrize("case", range(3))
@given(n=st.integers())
def test_plain(case, n): drawn["plain"] += 1

@pytest.mark.wide
@given(st.integers())
@settings(max_examples=50)
def test_many(n): drawn["many"] += 1

class Machine(RuleBasedStateMachine):
    @initialize()
    def begins(self): drawn["machine"] += 1

    @rule(n=st.integers())
    def goes_on(self, n): pass

TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=50, stateful_step_count=2)

def test_what_was_drawn(): assert drawn == WANTED
"""


@pytest.mark.parametrize(
    ("share", "drawn"), [("0.34", (3, 3 * 34, 50, 17)), ("0.02", (3, 3 * 4, 50, 4))]
)
def test_a_test_draws_a_share_of_its_examples_unless_it_is_wide(tmp_path, share, drawn):
    assert MIN_EXAMPLES == 4
    wanted = dict(zip(("few", "plain", "many", "machine"), drawn, strict=True))
    (tmp_path / "test_drawn.py").write_text(DRAWN.replace("WANTED", repr(wanted)))
    run = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--drawn", share, str(tmp_path)]
    run += [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--rootdir",
        str(tmp_path),
        "-c",
        "/dev/null",
    ]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_table_overrides_what_the_parameters_say():
    wide, whole = {"f.py": "another store", "g.py::t": "a process"}, {"f.py::w": "each a rule"}
    tiers = Tiers(wide, whole, {"engine": "another engine"})
    needs = Case("g.py::e", fixtures=frozenset({"tmp_path", "engine"}))
    cases = [
        Case("f.py::t"),
        *cases_of("f.py::w", x=2, y=2),
        Case("g.py::t"),
        Case("g.py::u"),
        needs,
    ]
    assert tiers.wide_among(cases) == {0, 5, 7}


@pytest.mark.parametrize("name", [*TIERS.wide, *TIERS.whole])
def test_what_the_table_names_is_there(name):
    file, _, test = name.partition("::")
    source = (ROOT / file).read_text()
    assert not test or f"def {test}(" in source
    assert {**TIERS.wide, **TIERS.whole}[name], "each has its reason"


def test_the_fixtures_that_the_table_names_are_there():
    conftests = [path.read_text() for path in ROOT.glob("tests/**/conftest.py")]
    assert [n for n in TIERS.fixtures if not any(f"def {n}(" in s for s in conftests)] == []


def test_the_short_tier_looks_for_every_mistake_of_the_registry():
    """By `tests/simulation/test_schedules.py`, a case for each."""
    test = "tests/simulation/test_schedules.py::test_a_broken_rule_is_caught"
    assert TIERS.wide_among([Case(test, {"name": name}) for name in MUTATIONS]) == set()


def test_the_short_tier_keeps_within_its_budget():
    """As `python -m tests.cpu` has measured it. What is too dear gets cheaper, or is wide."""
    short = {
        file: costs.get("short", 0) for file, costs in json.loads(cpu.KEPT.read_text()).items()
    }
    assert {file: seconds for file, seconds in short.items() if seconds > FILE_SECONDS} == {}
    assert sum(short.values()) <= SHORT_SECONDS


def test_costs_are_of_files_that_are_there():
    assert [file for file in json.loads(cpu.KEPT.read_text()) if not (ROOT / file).exists()] == []

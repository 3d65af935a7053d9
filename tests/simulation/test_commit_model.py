"""The specification that runs (docs/design/commit_model.py): it holds, and every rule of it is needed."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[2] / "docs/design/commit_model.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("commit_model", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["commit_model"] = module
    spec.loader.exec_module(module)
    return module


model = load()


def test_it_is_written_from_the_documents_and_not_from_the_code():
    lines = [line.split() for line in SOURCE.read_text().splitlines()]
    imported = [line[1] for line in lines if line[:1] in (["import"], ["from"]) and len(line) > 1]
    assert "typing" in imported
    assert not [name for name in imported if name.startswith("inlay")]


@pytest.mark.parametrize("bounds", model.BOUNDS, ids=lambda b: b.name)
def test_every_promise_holds_in_every_state(bounds):
    found = model.check(model.Model(bounds))
    assert (found.broken, found.way) == (None, ())
    assert found.whole
    assert found.states > 300


FREQUENT = [rule for rule in model.RULES if rule not in model.RARE]
NOT_REDUCED = "erasure_moves_boundary"


# The others are shown, in fewer states, by `test_one_state_for_many_breaks_where_all_of_them_break`.
@pytest.mark.parametrize(
    "rule",
    [r if r == NOT_REDUCED else pytest.param(r, marks=pytest.mark.slow) for r in FREQUENT],
)
def test_without_a_rule_its_promise_is_broken(rule):
    promise, behind = model.RULES[rule]

    def broken(bounds: object, without: frozenset[str]) -> bool:
        return bool(model.check(model.Model(bounds, without), promises=[promise]).broken)

    # It is the rule itself, not those that stand before it.
    assert any(
        broken(bounds, model.left_out(rule)) and not broken(bounds, frozenset(behind))
        for bounds in model.BOUNDS
    )


def test_random_ways_through_everything_at_once_break_nothing():
    ends = [model.walk(model.Model(model.EVERYTHING), seed) for seed in range(400)]
    assert [promise for promise, _ in ends if promise is not None] == []
    steps = " ".join(step for _, way in ends for step in way)
    seen = ("late swap lands", "puts version", "deletes the pointer", "removes what is left")
    seen += ("creates a table", "repairs, writes the pointer", "eraser: opens", "dies")
    assert [each for each in seen if each not in steps] == []


OPEN = [bounds for bounds in model.BOUNDS if not bounds.erasure]


@pytest.mark.parametrize("bounds", OPEN, ids=lambda b: b.name)
def test_one_state_for_many_holds_what_all_of_them_hold(bounds):
    found = model.check(model.Reduced(bounds))
    assert (found.broken, found.way) == (None, ())
    assert found.whole
    assert found.states > 100


# The bounds that are searched first: in these a rule is missed.
MISSED_IN = {
    **dict.fromkeys(
        ("look_after_doubt", "archive_before_swap", "swap_on_condition"), "three writers"
    ),
    **dict.fromkeys(
        (
            "create_on_clean_ground",
            "refuse_old_uploads",
            "roots_after_boundary",
            "collect_nothing_when_back",
            "archive_boundary",
        ),
        "collection under an operator",
    ),
    **dict.fromkeys(
        ("repair_asks_what_follows", "repair_searches_below", "repair_knows_its_table"),
        "a former table's archive",
    ),
    "ask_the_ledger": "late swaps",
    "keep_to_the_table": "removal",
    "margin_of_clocks": "clocks",
}


@cache
def breaks(bounds: object, without: frozenset[str], promise: str) -> bool:
    return bool(model.check(model.Reduced(bounds, without), promises=[promise]).broken)


@pytest.mark.parametrize("rule", [r for r in FREQUENT if r != NOT_REDUCED])
def test_one_state_for_many_breaks_where_all_of_them_break(rule):
    """What is left out of the states hides no mistake: each is found, by a way that can be walked again."""
    promise, behind = model.RULES[rule]
    without = model.left_out(rule)
    first = MISSED_IN.get(rule, "operator")
    for bounds in sorted(OPEN, key=lambda bounds: bounds.name != first):
        found = model.check(model.Reduced(bounds, without), promises=[promise])
        if not found.broken:
            continue
        if behind and breaks(bounds, frozenset(behind), promise):
            continue  # it is not the rule itself, but those that stand before it
        plain = model.check(model.Model(bounds, without), promises=[promise])
        assert plain.broken == found.broken == promise
        assert found.way
        return
    pytest.fail(f"without {rule} nothing breaks")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", model.RARE)
def test_without_a_rule_that_is_rarely_needed_its_promise_is_broken(rule):
    bounds = next(each for each in model.WHOLE if each.name == model.RARE[rule])
    promise = model.RULES[rule].promise
    found = model.check(model.Reduced(bounds, model.left_out(rule)), promises=[promise])
    assert found.broken == promise


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bounds", model.WHOLE, ids=lambda b: b.name)
def test_every_promise_holds_in_larger_bounds(bounds):
    found = model.check(model.Reduced(bounds))
    assert (found.broken, found.way) == (None, ())
    assert found.whole

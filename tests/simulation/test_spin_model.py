"""The second specification (docs/design/commit_model.pml), checked by spin: it holds, and every rule of it
is needed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[2] / "docs/design/spin_model.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spin_model", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["spin_model"] = module
    spec.loader.exec_module(module)
    return module


model = load()
pytestmark = pytest.mark.skipif(
    not model.has_spin(), reason="needs spin (Debian's package) and a C compiler"
)
BOUNDS = {bounds.name: bounds for bounds in model.SMALL}


@pytest.mark.parametrize("bounds", model.SMALL, ids=lambda b: b.name)
def test_every_promise_holds_in_every_state(bounds):
    found = model.check(bounds)
    assert (found.broken, found.way) == (None, ())
    assert found.whole
    plain = model.check(bounds, plain=True)
    assert plain.whole
    # One state stands for many, and not for all.
    assert 200 < found.states < plain.states


def test_every_promise_holds_with_everybody_at_once():
    """Three writers, two collectors, crashes, a lost answer, two clocks an hour apart, an operator and a
    repair: every state of them."""
    found = model.check(model.ONCE_EACH)
    assert (found.broken, found.way) == (None, ())
    assert found.whole
    assert found.states > 4_000_000


@pytest.mark.parametrize("rule", model.RULES)
def test_without_a_rule_its_promise_is_broken(rule):
    promise, name, behind = model.RULES[rule]
    found = model.check(BOUNDS[name], without=model.left_out(rule), promise=promise)
    assert found.broken == promise
    assert found.way
    # It is the rule itself, not those that stand before it.
    if behind:
        assert model.check(BOUNDS[name], without=behind, promise=promise).whole


@pytest.mark.parametrize("rule", model.RULES)
def test_every_state_by_itself_breaks_where_one_state_for_many_breaks(rule):
    promise, name, _ = model.RULES[rule]
    without = model.left_out(rule)
    assert model.check(BOUNDS[name], without=without, promise=promise, plain=True).broken == promise


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("bounds", (*model.LARGE, model.EVERYTHING), ids=lambda b: b.name)
def test_every_promise_holds_in_larger_bounds(bounds):
    found = model.check(bounds)
    assert (found.broken, found.way) == (None, ())
    assert found.whole

"""The specification of transactions that runs (docs/design/transaction_model.py)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[2] / "docs/design/transaction_model.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("transaction_model", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["transaction_model"] = module
    spec.loader.exec_module(module)
    return module


model = load()


def test_it_is_written_from_the_documents_and_not_from_the_code():
    assert "inlay" not in [
        line.split()[1].split(".")[0]
        for line in SOURCE.read_text().splitlines()
        if line.startswith(("import ", "from "))
    ]


@pytest.mark.parametrize("bounds", model.BOUNDS, ids=lambda b: b.name)
def test_every_promise_holds_in_every_state(bounds):
    found = model.check(model.Model(bounds))
    assert (found.broken, found.way) == ("", ())
    assert found.states > 100


@pytest.mark.parametrize("rule", model.RULES)
def test_without_a_rule_a_promise_that_it_holds_is_broken(rule):
    broken = {
        model.check(model.Model(bounds, frozenset([rule]))).broken
        for bounds in model.BOUNDS
        if bounds.name != "two transactions" or rule != "read_until_two_agree"
    }
    assert broken & set(model.RULES[rule])

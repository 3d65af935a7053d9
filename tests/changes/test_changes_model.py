"""Two ways to apply change streams (docs/HOW.md), as a model that runs (docs/design/changes_model.py)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[2] / "docs/design/changes_model.py"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("changes_model", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["changes_model"] = module
    spec.loader.exec_module(module)
    return module


MODEL = loaded()


@pytest.mark.parametrize("way", sorted(MODEL.WAYS))
def test_every_order_of_steps_gives_the_newest_record(way: str) -> None:
    for scene in MODEL.SCENES:
        states, path = MODEL.check(way, scene)
        assert path == [], (scene, path)
        assert states > 8


@pytest.mark.parametrize(
    ("way", "rule"), [(way, rule) for way, rules in MODEL.RULES.items() for rule in rules]
)
def test_every_rule_is_needed(way: str, rule: str) -> None:
    left_out = frozenset({rule})
    assert any(MODEL.check(way, scene, left_out)[1] for scene in MODEL.SCENES)

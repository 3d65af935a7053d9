"""Examples in docstrings give what they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import inlay

PACKAGE = Path(inlay.__file__).parent
MODULES = sorted(
    ".".join(("inlay", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if "    >>> " in path.read_text(encoding="utf-8")
)


def test_there_are_examples():
    assert len(MODULES) > 10


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_show(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    outcome = doctest.testmod(module)
    assert outcome.attempted
    assert not outcome.failed

"""Each mutation of the simulator finds what it replaces: a rename shows here, in a second."""

from __future__ import annotations

import ast
import dis
import inspect
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from tests.simulator import mistakes
from tests.simulator.mistakes import MUTATIONS, applied

import inlay

FILES = sorted(Path(mistakes.__file__).parent.glob("*.py"))
SOURCES = [path.read_text() for path in Path(inlay.__file__).parent.rglob("*.py")]


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_what_a_mistake_replaces_is_there(name: str) -> None:
    with applied(name):
        pass


class Recorder(ExitStack):
    """Notes what would be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[tuple[Any, str]] = []

    def enter_context(self, cm: Any) -> Any:
        self.replaced.append((cm.getter(), cm.attribute))


def functions_of(code: CodeType) -> Iterator[CodeType]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const
            yield from functions_of(const)


def globals_read_by(code: CodeType) -> set[str]:
    """Not `co_names`, which has the names of attributes too."""
    reads = ("LOAD_GLOBAL", "LOAD_NAME")
    return {i.argval for i in dis.get_instructions(code) if i.opname in reads}


def is_read_of_a_lazy(module: ModuleType, attribute: str) -> bool:
    """Whether another module reads it each time, of one that is imported when it is first used."""
    made, read = f'LazyModule("{module.__name__}")', f"{module.__name__.split('.')[-1]}.{attribute}"
    return any(made in text and re.search(rf"\b{read}\b", text) for text in SOURCES)


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_what_a_mistake_replaces_in_a_module_is_read_by_a_function_of_it(name: str) -> None:
    """A name that the functions of a module no longer read can be replaced, and nothing is broken."""
    recorder = Recorder()
    MUTATIONS[name].put_in(recorder)
    assert recorder.replaced
    for place, attribute in recorder.replaced:
        if inspect.ismodule(place):
            code = compile(inspect.getsource(place), place.__name__, "exec")
            is_read = any(attribute in globals_read_by(found) for found in functions_of(code))
            assert is_read or is_read_of_a_lazy(place, attribute), attribute


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_replacement_asks_for_the_original_not_for_itself(path: Path) -> None:
    """What stands in the place of `module.name` and calls `module.name` calls itself: `swap_in` returns the
    original."""
    tree = ast.parse(path.read_text())
    modules = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    replaced = {
        (modules.get(place.id), name.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "swap_in"
        for place, name in [node.args[1:3]]
        if isinstance(place, ast.Name) and isinstance(name, ast.Constant)
    }
    called = {
        (modules.get(node.func.value.id), node.func.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
    }
    assert not {each for each in replaced & called if each[0]}

"""The engine has a door, `inlay.engine`: guests import nothing of the rooms behind it."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from inlay import engine

ROOT = Path(__file__).parents[2]
# Guests, by their folders; each imports, besides the door, what runs around the library.
PACKAGE = "layers/inlay/inlay"
GUESTS = (
    "benchmarks",
    "functions",
    "pipelines",
    f"{PACKAGE}/functions",
    f"{PACKAGE}/local",
    f"{PACKAGE}/cli",
    f"{PACKAGE}/doctor",
    f"{PACKAGE}/spark",
)
OPEN = ("inlay", "inlay.engine", "inlay.errors", "inlay.progress")
AROUND = ("inlay.cli", "inlay.doctor", "inlay.functions", "inlay.local", "inlay.spark")
MOST_NAMES = 60


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """The modules and names that a file takes from behind the door."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            taken = [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            taken = [(alias.name, "") for alias in node.names]
        else:
            continue
        for module, name in taken:
            if module == "inlay" and (ROOT / PACKAGE / f"{name}.py").exists():
                module = f"inlay.{name}"
            inside = module.partition(".")[0] == "inlay"
            if inside and module not in OPEN and not module.startswith(AROUND):
                yield module, name


@pytest.mark.parametrize("guest", GUESTS)
def test_a_guest_comes_through_the_door(guest: str) -> None:
    files = sorted((ROOT / guest).rglob("*.py"))
    assert files
    assert [f"{path}: {taken}" for path in files for taken in imported(path)] == []


def private(path: Path, *, of_others: bool) -> set[str]:
    """The private attributes in a file: of what is there called `self` or `cls`, or of all else."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and re.fullmatch("_[a-z].*", node.attr)
        and (ast.unparse(node.value) not in ("self", "cls")) is of_others
    }


def test_no_guest_reaches_into_a_value_of_the_engine() -> None:
    around = tuple(ROOT / guest for guest in GUESTS)
    of_guests = {path for guest in around for path in guest.rglob("*.py")}
    kept = {
        name
        for path in (ROOT / PACKAGE).rglob("*.py")
        if path not in of_guests
        for name in private(path, of_others=False)
    }
    assert "_ctx" in kept
    taken = [
        f"{path}: {name}"
        for path in sorted(of_guests)
        for name in private(path, of_others=True) & kept - private(path, of_others=False)
    ]
    assert taken == []


def test_the_door_is_small_and_every_name_is_used_and_there() -> None:
    assert len(engine.NAMES) <= MOST_NAMES
    for name, home in engine.NAMES.items():
        assert getattr(engine, name) is getattr(import_module(home), name)
    used = {
        alias.name
        for guest in GUESTS
        for path in (ROOT / guest).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "inlay.engine"
        for alias in node.names
    }
    assert used == set(engine.NAMES)


def test_the_door_is_typed_as_it_is_opened() -> None:
    tree = ast.parse(Path(engine.__file__).read_text(encoding="utf-8"))
    [typed] = [node for node in tree.body if isinstance(node, ast.If)]
    declared = {
        alias.name: node.module
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert declared == dict(engine.NAMES)

"""No module imports another that imports it, also where an import is inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[2] / "layers" / "inlay"


def imports(node: ast.AST) -> Iterator[str]:
    """Names that are imported as the code runs: modules, and what is taken from modules."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield child.module or ""
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from imports(child)


def graph_of(texts: dict[str, str]) -> dict[str, set[str]]:
    """Module by module what it imports of the others; a package counts where nothing in it is named."""
    found = {}
    for module, text in texts.items():
        names = {name for name in imports(ast.parse(text)) if name in texts}
        packages = {name for name in names for other in names if other.startswith(f"{name}.")}
        found[module] = names - packages - {module}
    return found


def test_the_modules_of_the_library_form_no_circle() -> None:
    texts = {
        ".".join(path.relative_to(PACKAGES).with_suffix("").parts).removesuffix(".__init__"): (
            path.read_text()
        )
        for path in PACKAGES.rglob("*.py")
    }
    assert len(texts) > 200
    try:
        TopologicalSorter(graph_of(texts)).prepare()
    except CycleError as error:
        pytest.fail(" ← ".join(error.args[1]))


def test_a_circle_through_a_function_is_found() -> None:
    texts = {"a": "from b import c", "b": "def f():\n    import a"}
    with pytest.raises(CycleError):
        TopologicalSorter(graph_of(texts)).prepare()
    typed = {"a": "from b import c", "b": "if TYPE_CHECKING:\n    import a"}
    TopologicalSorter(graph_of(typed)).prepare()

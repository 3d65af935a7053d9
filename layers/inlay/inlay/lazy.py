"""Modules that are imported when they are first used."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Executor


def import_now(name: str) -> ModuleType:
    """The module `name`, as `importlib.import_module` gives it, in less time: nothing that modules make as
    they are imported is garbage, but so much that the collector looks for it several times, a tenth of what
    it takes to import Arrow and the reading of files."""
    if name in sys.modules or not gc.isenabled():
        return import_module(name)
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.enable()


def import_meanwhile(name: str, executor: Executor) -> None:
    """Begins to import a module by `executor`. Whoever uses it before it is there waits for it."""
    if name not in sys.modules:
        executor.submit(import_now, name)


class LazyModule:
    """Stands in for the module `name`, which the first access to an attribute imports."""

    __slots__ = ("_module", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            self._module = import_now(self._name)
        return getattr(self._module, attribute)

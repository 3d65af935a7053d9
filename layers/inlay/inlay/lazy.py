"""Modules that are imported when something of theirs is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    """Stands for the module `name`: every attribute is the module's, which is imported by the first."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)

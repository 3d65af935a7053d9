"""Mistakes: the protocol broken on purpose, one rule at a time (`testing.mutations` runs them)."""

from inlay.testing.mistakes import commits, garbage, history, rows
from inlay.testing.mistakes.registry import MUTATIONS, RARE_SEEDS, SEEDS, Mutation, applied

__all__ = [
    "MUTATIONS",
    "RARE_SEEDS",
    "SEEDS",
    "Mutation",
    "applied",
    "commits",
    "garbage",
    "history",
    "rows",
]

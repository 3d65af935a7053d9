"""Mistakes: the protocol broken on purpose, one rule at a time (`testing.mutations` runs them)."""

from tests.simulator.mistakes import catalog, commits, garbage, history, rows
from tests.simulator.mistakes.registry import MUTATIONS, RARE_SEEDS, SEEDS, Mutation, applied

__all__ = [
    "MUTATIONS",
    "RARE_SEEDS",
    "SEEDS",
    "Mutation",
    "applied",
    "catalog",
    "commits",
    "garbage",
    "history",
    "rows",
]

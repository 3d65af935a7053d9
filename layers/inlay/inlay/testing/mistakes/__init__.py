"""Mistakes: the protocol broken on purpose, one rule at a time (`testing.mutations` runs them)."""

from inlay.testing.mistakes import (
    commits,
    deletes,
    garbage,
    history,
    maintenance,
    operators,
    publishing,
)
from inlay.testing.mistakes.registry import MUTATIONS, RARE_SEEDS, SEEDS, Mutation, applied

__all__ = [
    "MUTATIONS",
    "RARE_SEEDS",
    "SEEDS",
    "Mutation",
    "applied",
    "commits",
    "deletes",
    "garbage",
    "history",
    "maintenance",
    "operators",
    "publishing",
]

"""Work in parts on many processes, for the one process that plans it and commits.

Promise: a task is a value that pickles and has all that it needs but the table's context, which each
process makes for itself. Who runs tasks (Spark's executors, say) knows nothing of what they do: planning,
deciding and committing stay with the operation that takes a `TaskRunner`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from inlay.ops.context import Context

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Task(Protocol[R_co]):
    """A part of an operation. What it returns pickles as well; an error that another try would meet again
    is in that, and any other is raised."""

    def run(self, ctx: Context) -> R_co: ...


class TaskRunner(Protocol):
    @property
    def slots(self) -> int:
        """Tasks that run at once."""
        ...

    def run(self, tasks: Sequence[Task[R]]) -> Sequence[R]:
        """What each task returns, in order. Raises what one raises, when it keeps failing."""
        ...

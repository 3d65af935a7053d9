"""What a mutation is, and how it is put in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.simulator.scenes import Scene

Break = Callable[[ExitStack], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A mistake, the scene that shows it, and within how many schedules. `first`: one that has shown it,
    where those before it take long."""

    put_in: Break
    scene: Scene
    within: int
    first: int | None = None


MUTATIONS: dict[str, Mutation] = {}
ANY = Scene()
# Schedules within which a mutation must be caught, and one that many things must come together for.
SEEDS = 40
RARE_SEEDS = 400


def mutation(
    scene: Scene = ANY, *, within: int = SEEDS, first: int | None = None
) -> Callable[[Break], Break]:
    """A mistake under the name of the function that makes it."""

    def register(put_in: Break) -> Break:
        MUTATIONS[put_in.__name__] = Mutation(put_in, scene, within, first)
        return put_in

    return register


def swap_in(stack: ExitStack, place: Any, name: str, replacement: Any) -> Any:
    """Put something in the place of what `place` has under a name. The original is returned."""
    original = getattr(place, name)
    stack.enter_context(patch.object(place, name, replacement))
    return original


@contextmanager
def applied(name: str) -> Iterator[None]:
    """The protocol with this mistake in it."""
    with ExitStack() as stack:
        MUTATIONS[name].put_in(stack)
        yield

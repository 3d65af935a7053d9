"""Each mutation of the simulator finds what it replaces: a rename shows here, in a second."""

from __future__ import annotations

import pytest

from inlay.testing.mistakes import MUTATIONS, applied


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_what_a_mistake_replaces_is_there(name: str) -> None:
    with applied(name):
        pass

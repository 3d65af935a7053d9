from __future__ import annotations

import pytest

from .people import People, new_people


@pytest.fixture
def people() -> People:
    return new_people()


@pytest.fixture(params=[False, True], ids=["unversioned", "versioned"])
def any_people(request: pytest.FixtureRequest) -> People:
    """The same with and without bucket versioning."""
    return new_people(versioned=request.param)

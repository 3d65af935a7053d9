from __future__ import annotations

import pytest

from .place import Place


@pytest.fixture
def place() -> Place:
    return Place()

from __future__ import annotations

import pytest

from .bench import Bench, new_bench


@pytest.fixture
def bench() -> Bench:
    return new_bench()

"""Arrow's functions over columns, loaded when the first of them is called.

They take as long to load as a request to S3: a process's first scan loads them while the ends of its files
are on their way.
"""

from __future__ import annotations

import sys
from concurrent.futures import Executor
from typing import Any, Final

from inlay.lazy import LazyModule, import_now

_NAME: Final = "pyarrow.compute"
pc: Any = LazyModule(_NAME)


def load_meanwhile(executor: Executor) -> None:
    """Begins to load them. Whoever calls one before they are there waits for them."""
    if _NAME not in sys.modules:
        executor.submit(import_now, _NAME)

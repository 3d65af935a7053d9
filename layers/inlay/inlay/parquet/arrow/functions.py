"""Arrow's functions over columns, loaded when the first of them is called.

They take as long to load as a request to S3: a process's first scan loads them while the ends of its files
are on their way.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from inlay.lazy import LazyModule, import_meanwhile

_NAME: Final = "pyarrow.compute"
pc: Any = LazyModule(_NAME)
load_meanwhile = partial(import_meanwhile, _NAME)

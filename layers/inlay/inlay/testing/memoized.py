"""Memory: what bytes mean is worked out once in a schedule.

Promise: speed, and nothing else. What is remembered are pure functions of bytes with frozen results;
the bytes themselves are fetched from the store each time, by every actor and by the auditor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from inlay.format import codec, leaves

# What a table's entries mean does not change as its schemas grow, so `types` is no part of the question.
PURE: tuple[Callable[..., Any], ...] = (
    codec.decode_snapshot,
    codec.decode_head,
    leaves.decode_files,
    leaves.decode_markers,
    leaves.decode_ledger,
    leaves.decode_references,
)


def _remembering(decode: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[bytes, Any] = {}

    def recall(data: bytes, **how: Any) -> Any:
        found = known.get(data)
        if found is None:
            found = known[data] = decode(data, **how)
        return found

    return recall


@contextmanager
def memoized() -> Iterator[None]:
    """The decoders of metadata, each with a memory of its own, wherever they were imported to."""
    modules = [m for name, m in sys.modules.items() if name.startswith("inlay.")]
    with ExitStack() as stack:
        for decode in PURE:
            recall = _remembering(decode)
            for module in modules:
                if getattr(module, decode.__name__, None) is decode:
                    stack.enter_context(patch.object(module, decode.__name__, recall))
        yield


__all__ = ["memoized"]

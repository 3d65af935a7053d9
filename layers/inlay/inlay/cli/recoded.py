"""Text files of any encoding as UTF-8.

Promise: a mark of UTF-16 at a file's start counts more than the default encoding; the mark of UTF-8 is left
for the reader.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable
from typing import Any

# Characters that are recoded at a time.
_CHUNK = 1 << 20


def as_utf8(opened: Callable[[], Any], encoding: str) -> Any:
    """The content that `opened` gives from the start each time, as bytes of UTF-8."""
    if codecs.lookup(encoding).name == "utf-8":
        with opened() as probe:
            if probe.read(2) not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                return opened()
        encoding = "utf-16"
    return _Recoded(opened(), encoding)


class _Recoded(io.RawIOBase):
    """Arrow's own recoding loses its place in UTF-16."""

    def __init__(self, source: Any, encoding: str) -> None:
        self._text = io.TextIOWrapper(source, encoding=encoding, newline="")
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        found = self.read(len(into))
        into[: len(found)] = found
        return len(found)

    def read(self, size: int = -1) -> bytes:
        if not self._left:
            self._left = self._text.read(_CHUNK).encode("utf-8")
        found = self._left if size < 0 else self._left[:size]
        self._left = self._left[len(found) :]
        return found

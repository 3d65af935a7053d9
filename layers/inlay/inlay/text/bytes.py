"""The bytes of a text as a reader takes them, decompressed and as UTF-8, and their errors in words.

Promise: a text that is cut short is an error, compressed or not, never fewer rows. A mark of UTF-16 at a
file's start counts more than the default encoding; the mark of UTF-8 is left for the reader.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from inlay.errors import UnreadableFile
from inlay.parquet.arrow.words import words_of
from inlay.text.format import TextFormat

# Read at a time.
CHUNK = 1 << 20
_MAGIC = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))


def compression_of(magic: bytes) -> str | None:
    """By the first bytes of the content."""
    return next((name for start, name in _MAGIC if magic.startswith(start)), None)


def decompressed(source: Any, magic: bytes) -> Any:
    """The content of an Arrow stream that begins with `magic`."""
    codec = compression_of(magic)
    return source if codec is None else pa.CompressedInputStream(source, codec)


@contextmanager
def reading(path: str, text: TextFormat) -> Iterator[None]:
    """Errors of a text become typed ones that name it."""
    # latin-1 reads any bytes, and Excel's euro sign as a control character.
    encoding = (
        f"Name its encoding: {text.options}encoding cp1252 for what Excel writes, latin-1 for older "
        "text"
    )
    try:
        yield
    except RecursionError:
        raise UnreadableFile(
            f"cannot read {path}: its values are nested too deeply",
            next_step="Flatten them, or write them as text",
        ) from None
    except UnicodeEncodeError as error:
        raise UnreadableFile(
            f"cannot read {path}: half of a surrogate pair is not a character",
            next_step="Mend the escapes \\ud800 to \\udfff in its texts",
        ) from error
    except UnicodeError as error:
        raise UnreadableFile(
            f"cannot read {path} as text: it is in another encoding", next_step=encoding
        ) from error
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and (error.errno or type(error) is not OSError):
            raise  # of the file, not of what is in it
        is_text = "UTF8" in str(error) or "UTF-8" in str(error)
        step = encoding if is_text else "Check that the file is what its name says"
        raise UnreadableFile(f"cannot read {path}: {words_of(error)}", next_step=step) from error


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
        taken = self.read(len(into))
        into[: len(taken)] = taken
        return len(taken)

    def read(self, size: int = -1) -> bytes:
        if not self._left:
            self._left = self._text.read(CHUNK).encode("utf-8")
        taken = self._left if size < 0 else self._left[:size]
        self._left = self._left[len(taken) :]
        return taken

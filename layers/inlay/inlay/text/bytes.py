"""The bytes of a text: decompressed, and what goes wrong with them in words.

Promise: a text that is cut short is an error, compressed or not, never fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from inlay.errors import UnreadableFile
from inlay.parquet.arrow.words import words_of
from inlay.text.delimited import TextFormat

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

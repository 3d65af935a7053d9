"""What free text says once a program has read it: is a value named in it, however it was written down?

Promise: `names_any` is True if a text is in the bytes as they are, or in what they stand for: with the
escapes of JSON (also escaped again) or of URLs resolved, as UTF-16, as hexadecimal digits, as Base64 of
either alphabet, and in any of these within Base64. Not found: compressed or encrypted text, and another
case or form of Unicode, which is another value.

The bytes are decoded, not the texts encoded: a thousand texts are searched at the price of one decoding.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Collection, Iterator
from functools import lru_cache
from urllib.parse import unquote_to_bytes

# JSON within JSON escapes the escapes.
_ESCAPE = re.compile(rb"\\+(?:u[0-9a-fA-F]{4}(?:\\+u[0-9a-fA-F]{4})*|[\"/])")
_UNIT = re.compile(rb"u([0-9a-fA-F]{4})")
# Shorter runs stand for fewer than four characters (`literals.MIN_TEXT`).
_HEX = re.compile(rb"(?:[0-9a-fA-F]{2}){4,}")
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{6,}")
_STANDARD = bytes.maketrans(b"-_", b"+/")
# Files of one writer have the same few pairs: of a thousand files each is decoded once.
_REMEMBERED = 16
_MAX_REMEMBERED_BYTES = 16 * 1024


def names_any(value: bytes, texts: Collection[str]) -> bool:
    """Whether a value contains one of `texts`.

    >>> names_any(b"mail=ada%40example.com", ["ada@example.com"])
    True
    >>> names_any("ada@example.com".encode("utf-16"), ["ada@example.com"])
    True
    >>> names_any(b"Ada@example.com", ["ada@example.com"])
    False
    """
    if not value or not texts:
        return False
    found = _remembered(value) if len(value) <= _MAX_REMEMBERED_BYTES else tuple(_readings(value))
    wanted = [text.encode("utf-8", "surrogatepass") for text in texts]
    return any(text in form for form in found for text in wanted)


@lru_cache(_REMEMBERED)
def _remembered(value: bytes) -> tuple[bytes, ...]:
    return tuple(_readings(value))


def _readings(value: bytes) -> Iterator[bytes]:
    for form in (value, *_decoded(value)):
        yield from spelled_out(form)
        yield from _narrowed(form)


def spelled_out(form: bytes) -> Iterator[bytes]:
    """A text as it is, and with the escapes of JSON, or of URLs, resolved."""
    yield form
    if b"\\" in form:
        yield _unescaped(form)
    if b"%" in form:
        yield unquote_to_bytes(form)


def _decoded(value: bytes) -> Iterator[bytes]:
    """What runs of digits stand for; each run apart from the others."""
    digits = b"\n".join(bytes.fromhex(run.decode()) for run in _HEX.findall(value))
    if digits:
        yield digits
    # What precedes the text may be Base64, too: any of four places may be the beginning of a group.
    runs = [run.translate(_STANDARD) for run in _BASE64.findall(value)]
    for skipped in range(4 if runs else 0):
        yield b"\n".join(_whole_groups(run[skipped:]) for run in runs)


def _whole_groups(run: bytes) -> bytes:
    # One digit over stands for no byte.
    run = run[:-1] if len(run) % 4 == 1 else run
    return b64decode(run + b"=" * (-len(run) % 4))


def _narrowed(form: bytes) -> Iterator[bytes]:
    """As UTF-16 in either order of bytes, beginning at either place."""
    for start in (0, 1):
        cut = form[start : len(form) - (len(form) - start) % 2]
        for order in ("utf-16-le", "utf-16-be"):
            yield cut.decode(order, "replace").encode("utf-8", "replace")


def _unescaped(data: bytes) -> bytes:
    """With JSON's escapes of characters, quotes and slashes replaced, wherever they are: what is around
    them need not be JSON."""

    def plain(found: re.Match[bytes]) -> bytes:
        units = b"".join(bytes.fromhex(u.decode()) for u in _UNIT.findall(found[0]))
        if not units:
            return found[0][-1:]
        return units.decode("utf-16-be", "surrogatepass").encode("utf-8", "surrogatepass")

    return _ESCAPE.sub(plain, data)

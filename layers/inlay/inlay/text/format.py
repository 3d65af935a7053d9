"""How a text file is written, as whoever gives it says: what its name and first bytes do not tell."""

from __future__ import annotations

from typing import Literal

from inlay.errors import InvalidRequest
from inlay.record import Record
from inlay.text.dates import ISO, DateFormats


class TextFormat(Record, kw_only=True):
    """How text files are written: `null` are texts that stand for NULL besides an empty field, `columns`
    the names of a CSV file's columns where it has no line of names, `format` the kind of file where its
    name does not say, `dates` how dates are read that are not ISO's. In advice, what says so begins with
    `options`."""

    null: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    delimiter: str | None = None
    encoding: str = "utf-8"
    format: str | None = None
    dates: DateFormats = ISO
    options: Literal["--", "ingest."] = "--"

    def check(self) -> None:
        """Raises `InvalidRequest`."""
        if self.delimiter is not None and not (
            len(self.delimiter) == 1 and self.delimiter.isascii()
        ):
            raise InvalidRequest(
                f"a delimiter is one ASCII character, not {self.delimiter[:20]!r}",
                next_step=f"A tab is named: {self.options}delimiter tab",
            )
        if self.delimiter in ('"', "\r", "\n"):
            raise InvalidRequest("quotes and line ends cannot be the delimiter")
        try:
            "".encode(self.encoding)  # some codecs are not of text
        except (LookupError, ValueError):
            raise InvalidRequest(
                f"there is no encoding {self.encoding[:50]!r}",
                next_step="For example utf-8, latin-1, cp1252 or utf-16",
            ) from None

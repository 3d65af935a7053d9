"""Dates and times in another form than ISO's, by a format as strptime's (`inlay.parse.date_format`).

Promise: a value is taken exactly or refused at its row: each is written anew in ISO's form and read as that
is, so that no 30th of February, 24th hour or day of the week that the date does not fall on passes. A
format for one column is the only one that its values may have; beside one for all columns, dates in ISO's
form are read as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidRequest
from inlay.format.schema import cut_at_equals, split_path
from inlay.record import Record
from inlay.text.refused import Misread
from inlay.text.types import from_texts

if TYPE_CHECKING:
    from inlay.parse import date_format as parse


class DateFormat(Record):
    """`alone`: whether values in ISO's form are refused."""

    form: parse.DateFormat
    alone: bool

    @classmethod
    def parse(cls, text: str, *, alone: bool) -> DateFormat:
        """Raises `InvalidRequest`."""
        from inlay.parse import date_format as parse  # a cold start seldom needs the formats

        return cls(parse.DateFormat.parse(text), alone)

    @property
    def text(self) -> str:
        return self.form.text

    def type_of(self, values: pa.ChunkedArray) -> pa.DataType | None:
        """The type of a column of these texts, where all are in this format. Raises Misread."""
        texts = pc.utf8_trim_whitespace(values)
        some = pc.and_(pc.is_valid(texts), pc.not_equal(texts, ""))
        if not self.alone:
            matches = pc.match_substring_regex(texts.filter(some), self.form.pattern)
            if not len(matches) or not pc.all(matches).as_py():
                return None
        kind: pa.DataType = pa.date32()
        if self.form.is_timed:
            kind = pa.timestamp("us", "UTC" if self.form.is_zoned else None)
        self.read(values.combine_chunks(), kind)
        return kind

    def read(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Texts as dates or timestamps. Raises Misread."""
        from inlay.parquet.arrow.date_text import in_iso, on_another_day

        texts = pc.utf8_trim_whitespace(values)
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
        matches = pc.match_substring_regex(texts, self.form.pattern)
        own, named = in_iso(texts, self.form)
        iso = own
        if pa.types.is_date(kind):  # exact where the time is midnight's
            iso = pc.replace_substring_regex(iso, r"^(.{10}) 00:00:00(\.0+)?$", r"\1")
        if self.alone:
            other = pc.indices_nonzero(pc.invert(matches))
            if len(other):
                raise Misread(other[0].as_py(), f"is not written as {self.text!r}")
        else:
            iso = pc.if_else(matches, iso, texts)
        try:
            made = from_texts(iso, kind)
        except Misread as error:
            raise Misread(error.row, f"{error.what} written as {self.text!r}") from None
        if named is not None and len(rows := pc.indices_nonzero(on_another_day(own, named))):
            raise Misread(rows[0].as_py(), "is on another day of the week")
        return made


class DateFormats(Record):
    """The formats of a file's columns: `general` of those of dates and timestamps that have none of their
    own."""

    general: DateFormat | None = None
    own: tuple[tuple[str, DateFormat], ...] = ()

    @classmethod
    def parse(cls, given: Sequence[str]) -> DateFormats:
        """`%Y/%m/%d`, or `at=%Y/%m/%d` for one column. Raises `InvalidRequest`."""
        general: DateFormat | None = None
        own: dict[str, DateFormat] = {}
        for text in given:
            said, equals, rest = cut_at_equals(text)
            if equals and ("%" not in said or said.lstrip().startswith('"')):
                path = split_path(said.strip()) or ()
                name = path[0] if len(path) == 1 else said.strip()
                if name in own:
                    raise InvalidRequest(f"column {name[:80]!r} has two formats of dates")
                own[name] = DateFormat.parse(rest, alone=True)
            elif general is not None:
                raise InvalidRequest(
                    "two formats of dates: which of them a value has would be a guess",
                    next_step="Name the column of each: --date-format at=%d.%m.%Y",
                )
            else:
                general = DateFormat.parse(text, alone=False)
        return cls(general, tuple(own.items()))

    def of(self, name: str) -> DateFormat | None:
        return dict(self.own).get(name, self.general)

    def reads(self, name: str, kind: pa.DataType) -> DateFormat | None:
        """The format in which a column of this type is read, if not in ISO's."""
        return self.of(name) if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else None

    def check(self, path: str, columns: pa.Schema) -> None:
        """Raises `InvalidRequest` for a format of a column that is none of dates."""
        for name, form in self.own:
            if name not in columns.names:
                raise InvalidRequest(
                    f"{path} has no column {name[:80]!r}, whose dates have a format"
                )
            if self.reads(name, columns.field(name).type) is None:
                raise InvalidRequest(
                    f"column {name[:80]!r} is {columns.field(name).type}, and has no dates to be read "
                    f"as {form.text!r}"
                )


ISO = DateFormats()

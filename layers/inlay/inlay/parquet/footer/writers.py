"""Writers of Parquet files, by what they say of themselves, and what some are known to have got wrong.

Promise: the one table of known faults (`FAULTS`), each with its source; whoever goes by what another
writer's footer states asks it. Where a version cannot be told, it is one with the fault. Faults of a
*field* of the footer, whatever its writer, are not here: Arrow leaves out `min` and `max` of types that
they order wrongly (PARQUET-686). Nor are those of leaves within lists, of which no statistics are used
(PARQUET-2067).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

from inlay.record import Record

# What is wrong: the least or greatest value, the number of NULLs, the size of column chunks, the levels by
# which lists begin and end.
Wrong = Literal["bounds", "nulls", "sizes", "levels"]
Version = tuple[int, ...]

_NAMED: Final = re.compile(
    r"(?P<name>.*?)(?:\s*\([^)]*\))?\s+(?:version\s+)?v?(?P<version>\d+(?:\.\d+)*)",
    re.IGNORECASE | re.DOTALL,
)
# What may follow a name that has no number.
_AFTER_NAME: Final = re.compile(r"\s+(?:version\b|\()")


class Writer(Record):
    """`name` in lower case, "" where the footer names none; `version` None where that cannot be told."""

    name: str
    version: Version | None = None

    @staticmethod
    def of(created_by: str | None) -> Writer:
        """
        >>> Writer.of("parquet-cpp-arrow version 4.0.1")
        Writer(name='parquet-cpp-arrow', version=(4, 0, 1))
        >>> Writer.of("Polars (python) version 2.1.0 (build 7f90)")
        Writer(name='polars', version=(2, 1, 0))
        """
        text = (created_by or "").strip()
        match = _NAMED.match(text)
        if match is None:
            return Writer(_AFTER_NAME.split(text.lower(), maxsplit=1)[0])
        # Longer than any version: a hostile footer is not a number of a million digits.
        parts = match["version"].split(".")[:4]
        version = None if any(len(p) > 9 for p in parts) else tuple(map(int, parts))
        return Writer(match["name"].strip().lower(), version)


class Stored(Record):
    """How a column is stored: its physical type, whether as a decimal or an unsigned integer, and whether
    the writer had it as a dictionary of Arrow's (None: not known)."""

    physical: str
    decimal: bool = False
    unsigned: bool = False
    dictionary: bool | None = False


class Fault(Record):
    """`wrong` of the columns that `of` says, in files of the writers whose name begins so, before a version
    (None: of every version so far)."""

    writer: str
    before: Version | None
    wrong: frozenset[Wrong]
    of: Callable[[Stored], bool]
    source: str

    def has(self, writer: Writer, what: Wrong) -> bool:
        if what not in self.wrong or not self._is(writer.name):
            return False
        return self.before is None or writer.version is None or writer.version < self.before

    def _is(self, name: str) -> bool:
        if self.writer in ("", "*"):
            return self.writer == "*" or name == ""
        # "parquet-cpp" is another writer than "parquet-cpp-arrow".
        return name == self.writer or (self.writer in _FAMILIES and name.startswith(self.writer))


# Names that are followed by more: a repository's path, a sentence.
_FAMILIES: Final = ("arrow2", "clickhouse", "polars", "github.com/")
_BOUNDS: Final = frozenset[Wrong](("bounds",))
_NULLS: Final = frozenset[Wrong](("nulls",))
_BOTH: Final = _BOUNDS | _NULLS


def _bytes(column: Stored) -> bool:
    return column.physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")


def _decimals(column: Stored) -> bool:
    return column.decimal and _bytes(column)


def _floats(column: Stored) -> bool:
    # Float16 is FIXED_LEN_BYTE_ARRAY, younger than these writers.
    return column.physical in ("FLOAT", "DOUBLE")


def _dictionaries(column: Stored) -> bool:
    return column.dictionary or (column.dictionary is None and column.physical == "BYTE_ARRAY")


def _any(column: Stored) -> bool:
    return True


FAULTS: Final = (
    # A reused buffer became the bound.
    Fault("parquet-mr", (1, 8, 0), _BOUNDS, _bytes, "PARQUET-251"),
    Fault("", None, _BOUNDS, _bytes, "PARQUET-251, PARQUET-297: such files name no writer"),
    # A NaN that came first stays the bound of its page, and its values are not merged.
    Fault("parquet-mr", (1, 10, 0), _BOUNDS, _floats, "PARQUET-1246"),
    Fault("parquet-cpp", (1, 5, 0), _BOUNDS, _floats, "PARQUET-1225"),
    Fault("impala", (2, 12, 0), _BOUNDS, _floats, "IMPALA-6527, named in PARQUET-1225"),
    Fault("github.com/", None, _BOUNDS, _floats, "parquet-go/parquet-go#459"),
    # Bytes of decimals compared without their sign, or as characters.
    Fault("parquet-cpp", None, _BOUNDS, _decimals, "PARQUET-1655, PARQUET-2003"),
    Fault("parquet-cpp-arrow", (4, 0, 0), _BOUNDS, _decimals, "PARQUET-1655, PARQUET-2003"),
    Fault(
        "parquet-rs",
        (14, 0, 0),
        _BOUNDS,
        lambda column: column.unsigned or _decimals(column),
        "apache/arrow-rs#1532",
    ),
    Fault(
        "parquet-rs",
        None,
        _BOUNDS,
        lambda column: column.decimal and column.physical == "BYTE_ARRAY",
        "apache/arrow-rs#10860, apache/arrow-rs#11073",
    ),
    Fault("polars", (2, 1, 0), _BOUNDS, _decimals, "pola-rs/polars#29347"),
    Fault("clickhouse", (25, 8), _BOUNDS, _decimals, "ClickHouse/ClickHouse#83754"),
    # Other orders.
    Fault("parquet-rs", (5, 2, 0), _BOUNDS, _bytes, "apache/arrow-rs#641"),
    Fault(
        "*",
        None,
        _BOUNDS,
        lambda column: column.physical == "INT96",
        "PARQUET-840, PARQUET-1065, apache/arrow-rs#7686, apache/parquet-format#583",
    ),
    # Of the dictionary, or of its first chunk, in place of the rows that use it.
    Fault("parquet-cpp", None, _BOTH, _dictionaries, "ARROW-11634, ARROW-12513, PARQUET-1783"),
    Fault(
        "parquet-cpp-arrow",
        (12, 0, 0),
        _BOTH,
        _dictionaries,
        "ARROW-11634, ARROW-12513, apache/arrow#15042, apache/arrow#34106",
    ),
    Fault("arrow2", None, _BOTH, _any, "pola-rs/polars#7842, jorgecarleitao/arrow2#1414"),
    Fault("parquet-go", None, _NULLS, _any, "fraugster/parquet-go#69"),
    # The header of the dictionary's page was not counted.
    Fault("parquet-mr", (1, 2, 9), frozenset(("sizes",)), _any, "PARQUET-816"),
    # An array of a fixed size that is NULL has as many entries as if it were not.
    Fault("duckdb", None, frozenset(("levels",)), _any, "duckdb/duckdb#24731"),
)


# Several engines go by the page indexes of these: one that is wrong would have been noticed. Of the faults
# that were, none misplaces a page of a column that is not nested. PARQUET-1364 and apache/arrow-rs#4459
# contradict the pages or the footer (then columns are read whole), apache/arrow-go#887 is of lists, and
# apache/parquet-java#3457 of the bounds of pages, which are believed in this library's own files alone.
_INDEXERS: Final = frozenset(("parquet-mr", "parquet-cpp-arrow", "parquet-rs", "duckdb", "polars"))


@lru_cache(16)  # asked for each column chunk
def has_known_indexes(created_by: str | None) -> bool:
    """Whether single pages are read where this writer's offset index says that rows are: it is not compared
    with pages that are not read.

    >>> has_known_indexes("parquet-mr version 1.17.0 (build 3a2f)"), has_known_indexes("mine 1.0")
    (True, False)
    """
    return Writer.of(created_by).name in _INDEXERS


def faults_of(writer: Writer, what: Wrong) -> tuple[Fault, ...]:
    """The known faults of a writer in `what`, of whichever columns."""
    return tuple(fault for fault in FAULTS if fault.has(writer, what))


def is_doubted(writer: Writer, what: Wrong, column: Stored) -> bool:
    """
    >>> is_doubted(Writer.of("parquet-mr version 1.7.0"), "bounds", Stored("BYTE_ARRAY"))
    True
    """
    return any(fault.of(column) for fault in faults_of(writer, what))

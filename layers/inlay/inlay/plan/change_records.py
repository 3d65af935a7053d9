"""Change records: which record of a key counts, and what the value of an operation means.

Promise: the result is the same for any cut of a stream into batches, any repetition, and any reordering
between records of different rank. A record is a row, or a delete, of a key, with an *order*: one or more
values that the producer counts up (a log position, a version, a time). Of the records of one key the one of
the greatest rank counts:

- orders are compared column by column from the first, NULL below every value, NaN above every value;
- of equal orders a delete is above a row, whichever arrived first;
- of equal ranks (two rows, or two deletes, of one order) the one that arrives later counts.

An operation is recognised by its exact value. Every value means one thing, or the batch is refused, with
the values and their numbers, and nothing of it is applied: a value that is not known ('delete ', '', NULL,
'truncate') may be a delete, and a delete that is taken for a row brings a person's data back.

Arrow and Spark evaluate the same rule on columns; this module says what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_args

from inlay.errors import InvalidRequest
from inlay.format.schema import Value
from inlay.format.values import is_nan
from inlay.record import Record, field, replace

# What a record does. "before": the row as it was before an update, of which the producer sends the new row
# in a record of its own; it says nothing that counts.
Meaning = Literal["row", "delete", "before"]


def deletes_row(meaning: Meaning) -> bool | None:
    """Whether a record deletes the row of its key, or gives it; None: neither."""
    match meaning:
        case "row":
            return False
        case "delete":
            return True
        case "before":
            return None


# The rank of a record: comparable with those of the same order columns.
Rank = tuple[Any, ...]

# Unknown values that a refusal names, if they can be operations: words up to this long.
NAMED_VALUES = 5
MAX_WORD = 20


def rank(order: Sequence[Value | None], *, is_delete: bool) -> Rank:
    """What `counts_over` compares.

    >>> rank([None], is_delete=True) < rank([-5], is_delete=False) < rank([-5], is_delete=True)
    True
    >>> rank([7, float("nan")], is_delete=False) > rank([7, float("inf")], is_delete=True)
    True
    """
    return (*map(_above_null, order), is_delete)


def _above_null(value: Value | None) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    return (2,) if is_nan(value) else (1, value)


def counts_over(later: Rank, earlier: Rank) -> bool:
    """Whether a record counts, and not one of the same key that arrived before it."""
    return later >= earlier


def newest(ranks: Iterable[Rank]) -> int | None:
    """The place of the record that counts, among all of one key in the order of their arrival.

    >>> newest([rank([3], is_delete=False), rank([3], is_delete=True), rank([3], is_delete=False)])
    1
    """
    best: tuple[Rank, int] | None = None
    for place, candidate in enumerate(ranks):
        if best is None or counts_over(candidate, best[0]):
            best = (candidate, place)
    return None if best is None else best[1]


# -- operations -----------------------------------------------------------------------------------


class Operations(Record):
    """What the values of a column mean, exactly as they are written.

    `column` is where the producer writes them, unless the caller names another. Values in `refused` are
    known, and cannot be applied: why. `flag`: a column which is true for the two halves of an update, a
    delete (of the row before it) and a row. `tombstones`: the column is the record's value, and NULL there
    is a delete; every other value is a row. `envelope`: the structs that hold the row before and after the
    change, where the producer's records come as they are; a column that they lack may be in one of
    `sources`. `optional`: where the column is not there, all records are rows. `left_out` is the text that
    stands for a value which the producer does not know. `echoes`: other columns that say the same.
    `tombstoned`: the producer may send a NULL behind a delete, which says nothing more. `absent`: what to
    do where the column is not there.
    """

    # What stands in place of the operation of a record in an envelope that cannot be applied.
    NO_ROW: ClassVar = "no row after"
    OTHER_KEY: ClassVar = "a change of the key"

    column: str
    rows: frozenset[str] = frozenset()
    deletes: frozenset[str] = frozenset()
    before: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    flag: str | None = None
    tombstones: bool = False
    envelope: tuple[str, str] | None = None
    sources: tuple[str, ...] = ()
    optional: bool = False
    left_out: str | None = None
    echoes: frozenset[str] = frozenset()
    tombstoned: bool = False
    absent: str = ""

    @staticmethod
    def of(
        given: str | Mapping[str, Iterable[str]] | Operations | None, *, column: str | None = None
    ) -> Operations:
        """Of the name of a preset, or of the known values: {"rows": ["I", "U"], "deletes": ["D"]}. None is
        `common`. Raises `InvalidRequest`."""
        operations: Operations | None
        match given:
            case None:
                operations = COMMON
            case Operations():
                operations = given
            case str():
                operations = PRESETS.get(given)
            case Mapping() if given.keys() <= {"rows", "deletes", "before"}:
                values = {name: _texts(name, texts) for name, texts in given.items()}
                rows, deletes, before = (
                    values.get(name, frozenset()) for name in ("rows", "deletes", "before")
                )
                operations = Operations("op", rows, deletes, before)
            case _:  # refused below
                operations = None
        if operations is None:
            raise InvalidRequest(
                f"operations cannot be {str(given)[:100]!r}",
                next_step=f"Name a producer ({', '.join(PRESETS)}), or the values: "
                '{"rows": ["I", "U"], "deletes": ["D"]}',
            )
        shared = operations.rows & operations.deletes | operations.before & (
            operations.rows | operations.deletes
        )
        if shared:
            raise InvalidRequest(f"operations with two meanings: {_listed(shared)}")
        return replace(operations, column=column) if column is not None else operations

    @staticmethod
    def meanings(*, deletes: bool) -> tuple[Meaning, ...]:
        """Those of records that delete a row, or that give one."""
        return tuple(meaning for meaning in get_args(Meaning) if deletes_row(meaning) is deletes)

    @property
    def columns(self) -> frozenset[str]:
        """Those that only say what a record does."""
        return frozenset(filter(None, (self.column, self.flag, *self.echoes)))

    def flat(
        self, record: Mapping[str, Any], columns: Iterable[str], keys: Sequence[str]
    ) -> dict[str, Any]:
        """A record as plain columns, as `parquet.arrow.change_order.unpacked` makes them of structs: beside
        its row these `columns` of the table. Raises `ValueError` for one without a row."""
        if self.column not in record:
            for what, names, others in _NO_CHANGES:
                if names <= record.keys() and (others or record.keys() <= _MOMENTS):
                    raise ValueError(f"is {what}, and no change of a row. {_APART}")
        elif isinstance(record.get(_ROWS), list | dict) and _ROWS not in columns:
            raise ValueError(
                f"has its rows in {_ROWS!r}, as those of Canal and Maxwell. Send each row as an object of "
                "its own, with its operation and order"
            )
        if self.envelope is None:
            return dict(record)
        if self.column not in record:
            raise ValueError(f"has no {self.column!r}, which says what a record does")
        before, after = (record.get(name) for name in self.envelope)
        row = after if after is not None else before
        if not isinstance(row, Mapping):
            why = self.refused.get(record[self.column])
            fault = "has no row before or after its change"
            raise ValueError(fault if why is None else f"{fault}. {why}")
        operation = record[self.column]
        if operation in self.rows:
            if after is None:
                operation = self.NO_ROW
            elif isinstance(before, Mapping):
                values = ((before.get(key), row.get(key)) for key in keys)
                if any(None not in (old, new) and old != new for old, new in values):
                    operation = self.OTHER_KEY
        fields = {self.column: operation, **row}
        beside = (record, *(record.get(name) for name in self.sources))
        for name in columns:
            place = next((one for one in beside if isinstance(one, Mapping) and name in one), None)
            if name not in fields and place is not None:
                fields[name] = place[name]
        return fields

    def meaning(self, value: str | None, *, flagged: bool = False) -> Meaning | None:
        """None: it is refused.

        >>> COMMON.meaning("DELETE"), COMMON.meaning("delete "), COMMON.meaning("t")
        ('delete', None, None)
        """
        if self.tombstones:
            return "delete" if value is None else "row"
        if value in self.deletes:
            return "before" if flagged else "delete"
        if value in self.before:
            return "before"
        return "row" if value in self.rows else None

    def refuse(self, unknown: Mapping[str | None, int], *, table: str | None = None) -> None:
        """Raises `InvalidRequest` for the values without a meaning, given with the number of records."""
        if not unknown:
            return
        counted = sorted(unknown.items(), key=lambda item: (-item[1], str(item[0])))
        values = ", ".join(
            f"{_shown(value)} in {count:,}" for value, count in counted[:NAMED_VALUES]
        )
        more = (
            f", and {len(counted) - NAMED_VALUES:,} others" if len(counted) > NAMED_VALUES else ""
        )
        reasons = [why for value, why in self.refused.items() if value in unknown]
        total = sum(unknown.values())
        known = f"Known are {_listed(self.rows | self.before)} (rows) and {_listed(self.deletes)} (deletes)"
        raise InvalidRequest(
            f"{total:,} change records have an operation that is not known: {values}{more}. "
            "Nothing of the batch was applied",
            next_step="; ".join([*reasons, known, "name other values, or take these records out"]),
            table=table,
        )

    def refuse_left_out(self, unknown: Mapping[str, int], *, table: str | None = None) -> None:
        """Raises `InvalidRequest` where rows have `left_out` for a value, given with their number by
        column: written, it would stand in place of the value that the table has."""
        for name, count in unknown.items():
            if count:
                raise InvalidRequest(
                    f"{count:,} change records do not know their value of {name!r}: the producer left it "
                    "out. Nothing of the batch was applied",
                    next_step="Let it send whole rows (of PostgreSQL: REPLICA IDENTITY FULL)",
                    table=table,
                )


def _shown(value: str | None) -> str:
    """Of a column that was taken for the operation by mistake, errors show no values of rows."""
    if value is None:
        return "NULL"
    is_word = len(value) <= MAX_WORD and value.replace(" ", "").replace("_", "").isalpha()
    return repr(value) if is_word or not value else f"a text of {len(value):,} characters"


def _listed(values: Iterable[str]) -> str:
    return ", ".join(repr(value) for value in sorted(values)) or "none"


# What Debezium sends beside changes, in topics of its own: what it is, names that it has, and whether it
# has others.
_MOMENTS = frozenset({"ts_ms", "ts_us", "ts_ns"})
_NO_CHANGES = (
    ("a heartbeat of Debezium", frozenset({"ts_ms"}), False),
    ("the boundary of a transaction", frozenset({"status", "id", "event_count"}), True),
    ("a change of a schema", frozenset({"databaseName", "ddl"}), True),
)
_APART = "Leave its topic out of what lands, or such records by ingest.bad_lines"
_ROWS = "data"

_NO_TRUNCATE = "To truncate, delete with the condition `TRUE` at this point of the stream"

DEBEZIUM = Operations(
    "op",
    rows=frozenset("cru"),
    deletes=frozenset("d"),
    refused={
        "t": _NO_TRUNCATE,
        "m": "'m' is a message of the log, and no row",
        Operations.NO_ROW: "A row that is written is in 'after'",
        Operations.OTHER_KEY: "Have it sent as a delete of the old key and a row of the new, as Debezium "
        "does for the key of its messages (message.key.columns)",
    },
    envelope=("before", "after"),
    sources=("source", "transaction"),
    left_out="__debezium_unavailable_value",
    tombstoned=True,
)
# After Debezium's ExtractNewRecordState with `delete.tombstone.handling.mode=rewrite`.
DEBEZIUM_FLAT = Operations(
    "__deleted",
    rows=frozenset({"false"}),
    deletes=frozenset({"true"}),
    left_out=DEBEZIUM.left_out,
    echoes=frozenset({"__op"}),
    tombstoned=True,
    absent="Set delete.tombstone.handling.mode=rewrite; with add.fields=op instead, say changes.op=__op "
    "and changes.operations=common",
)
DMS = Operations(
    "Op",
    rows=frozenset("IU"),
    deletes=frozenset("D"),
    absent="DMS leaves it out of a full load: set IncludeOpForFullLoad at its endpoint",
)
# A stream's update is a DELETE and an INSERT, both with METADATA$ISUPDATE.
SNOWFLAKE = Operations(
    "METADATA$ACTION",
    rows=frozenset({"INSERT"}),
    deletes=frozenset({"DELETE"}),
    flag="METADATA$ISUPDATE",
    echoes=frozenset({"METADATA$ROW_ID"}),
)
CANAL = Operations(
    "type",
    rows=frozenset({"INSERT", "UPDATE"}),
    deletes=frozenset({"DELETE"}),
    refused={"TRUNCATE": _NO_TRUNCATE},
)
# Delta's change data feed.
DELTA = Operations(
    "_change_type",
    rows=frozenset({"insert", "update_postimage"}),
    deletes=frozenset({"delete"}),
    before=frozenset({"update_preimage"}),
)
# Rows of Kafka Connect's sinks; flattened ones of Debezium may be deletes.
# Without `__deleted` a NULL is a delete that does not say of which key.
KAFKA_CONNECT = replace(DEBEZIUM_FLAT, optional=True, tombstoned=False)
KAFKA_TOMBSTONES = Operations("value", tombstones=True)


def _cased(*words: str) -> frozenset[str]:
    return frozenset(form for word in words for form in (word, word.upper(), word.capitalize()))


# Letters and words of which every producer that uses them means the same.
COMMON = Operations(
    "op",
    rows=DEBEZIUM.rows | DMS.rows | frozenset("i") | _cased("insert", "update", "upsert"),
    deletes=DEBEZIUM.deletes | DMS.deletes | _cased("delete"),
    refused={
        **{value: DEBEZIUM.refused[value] for value in "tm"},
        **dict.fromkeys(_cased("truncate"), _NO_TRUNCATE),
    },
)

PRESETS: Mapping[str, Operations] = MappingProxyType(
    {
        "common": COMMON,
        "debezium": DEBEZIUM,
        "debezium-flat": DEBEZIUM_FLAT,
        "dms": DMS,
        "snowflake": SNOWFLAKE,
        "canal": CANAL,
        "delta": DELTA,
        "kafka-connect": KAFKA_CONNECT,
        "kafka-tombstones": KAFKA_TOMBSTONES,
    }
)


def _texts(name: str, values: Iterable[str]) -> frozenset[str]:
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise InvalidRequest(
            f"the operations of {name} are not a list of texts",
            next_step='As in {"deletes": ["D"]}',
        )
    return frozenset(values)

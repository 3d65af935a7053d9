"""Records of Kafka Connect's JSON converter, whose schema may be beside them.

Promise: `{"schema": …, "payload": …}` is its payload, with the values that the schema describes as numbers
of days or of parts of a second, or as bytes of a decimal, in the forms in which `text.types` reads them
exactly. Without a schema they stay the numbers they are, which no column of dates takes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from inlay.errors import SchemaMismatch
from inlay.plan.change_records import Operations
from inlay.text.json_objects import plain_object

_EPOCH = datetime(1970, 1, 1)
_UNITS = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def _moment(unit: str) -> Callable[[int], str]:
    per_second = _UNITS[unit]

    def text(value: int) -> str:
        seconds, part = divmod(value, per_second)
        fraction = f"{part:0{len(str(per_second)) - 1}}"
        return f"{(_EPOCH + timedelta(seconds=seconds)).isoformat(sep=' ')}.{fraction}"

    return text


def _clock(unit: str) -> Callable[[int], str]:
    moment = _moment(unit)

    def text(value: int) -> str:
        if not 0 <= value < 86_400 * _UNITS[unit]:
            raise ValueError("has a time of day beyond a day")
        return moment(value).partition(" ")[2]

    return text


def _day(value: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=value)).isoformat()


_NUMBERS: Mapping[str, Callable[[int], str]] = {
    "io.debezium.time.Date": _day,
    "io.debezium.time.Timestamp": _moment("ms"),
    "io.debezium.time.MicroTimestamp": _moment("us"),
    "io.debezium.time.NanoTimestamp": _moment("ns"),
    "io.debezium.time.Time": _clock("ms"),
    "io.debezium.time.MicroTime": _clock("us"),
    "io.debezium.time.NanoTime": _clock("ns"),
    "org.apache.kafka.connect.data.Date": _day,
    "org.apache.kafka.connect.data.Timestamp": _moment("ms"),
    "org.apache.kafka.connect.data.Time": _clock("ms"),
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def payload_of(value: Any, columns: frozenset[str]) -> Any:
    """The record, of a table with these columns. Raises `ValueError` where its schema does not fit it."""
    if not isinstance(value, dict) or value.keys() != {"schema", "payload"}:
        return value
    if not columns.isdisjoint(value):
        return value
    try:
        return _described(value["payload"], value["schema"])
    except (AttributeError, TypeError, KeyError, OverflowError):
        raise ValueError("does not fit the schema beside it") from None


def _described(value: Any, schema: Any) -> Any:
    if value is None or schema is None:
        return value
    name = schema.get("name")
    if name in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError
        return _NUMBERS[name](value)
    if name == _DECIMAL:
        digits = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
        return _scaled(digits, int(schema["parameters"]["scale"]))
    match schema.get("type"):
        case "struct":
            kinds = {field["field"]: field for field in schema["fields"]}
            return {key: _described(item, kinds.get(key)) for key, item in value.items()}
        case "array":
            return [_described(item, schema["items"]) for item in value]
        case "bytes":
            return base64.b64decode(value, validate=True).hex()
        case _:  # as JSON writes it
            return value


def _scaled(digits: int, scale: int) -> str:
    if scale <= 0:
        return str(digits * 10**-scale)
    text = f"{abs(digits):0{scale + 1}}"
    return f"{'-' if digits < 0 else ''}{text[:-scale]}.{text[-scale:]}"


class RecordShape:
    """JSON values as change records of a table with these columns and keys, and the names in their rows."""

    def __init__(
        self, operations: Operations | None, columns: frozenset[str], keys: Sequence[str]
    ) -> None:
        self._operations = operations
        self._keys = keys
        self._columns = columns
        self._names: frozenset[str] | None = None
        self._uneven: str | None = None

    def __call__(self, value: Any) -> dict[str, Any] | None:
        """Raises `ValueError`."""
        payload, operations = payload_of(value, self._columns), self._operations
        if payload is None and operations is not None and operations.tombstoned:
            return None
        if payload is None and operations is not None and operations.optional:
            raise ValueError("is NULL, a delete that does not say of which key")
        record = plain_object(payload)
        if operations is not None:
            record = operations.flat(record, self._columns, self._keys)
        if (
            operations is None
            or operations.meaning(_text(record.get(operations.column))) != "delete"
        ):
            names = frozenset(record)
            if self._names is None:
                self._names = names
            elif self._names != names:
                self._uneven = sorted(self._names ^ names)[0]
        return record

    def check_even(self, name: str) -> None:
        """Raises `SchemaMismatch`."""
        if self._uneven is not None:
            raise SchemaMismatch(
                f"{name}: some rows lack {self._uneven[:80]!r}, which others have",
                next_step="Write null where NULL is meant, and rows of other columns into files of their "
                "own: a change keeps what all rows of its file lack",
            )


def _text(value: Any) -> str | None:
    return str(value).lower() if isinstance(value, bool) else value

"""Keys to delete are taken as rows are: a key of another type deletes nothing that nobody named."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InlayError, InvalidRequest, SchemaMismatch
from inlay.functions.requests import DeleteRequest

DAY = dt.datetime(2020, 1, 1)
VALUES: tuple[tuple[pa.DataType, Any], ...] = (
    (pa.int32(), 1),
    (pa.int64(), 1),
    (pa.uint8(), 1),
    (pa.float16(), 1.0),
    (pa.float32(), 1.0),
    (pa.float64(), 1.0),
    (pa.bool_(), True),
    (pa.string(), "1"),
    (pa.large_string(), "1"),
    (pa.string_view(), "1"),
    (pa.binary(), b"1111"),
    (pa.binary(4), b"1111"),
    (pa.decimal128(10, 2), Decimal("1.00")),
    (pa.decimal128(12, 4), Decimal("1.0000")),
    (pa.date32(), DAY.date()),
    (pa.date64(), DAY.date()),
    (pa.timestamp("s"), DAY),
    (pa.timestamp("us"), DAY),
    (pa.timestamp("ns"), DAY),
    (pa.timestamp("ms", "UTC"), DAY),
    (pa.timestamp("us", "Europe/Berlin"), DAY),
    (pa.time64("us"), dt.time(1)),
    (pa.duration("us"), dt.timedelta(seconds=1)),
)


def outcome(call: Any) -> str:
    try:
        call()
    except InlayError as error:
        return type(error).__name__
    return "done"


@pytest.mark.parametrize(("kind", "value"), VALUES[:-1], ids=lambda each: str(each))
def test_keys_are_taken_where_rows_are(kind: pa.DataType, value: Any) -> None:
    met = set()
    for n, (other, given) in enumerate(VALUES):
        t = inlay.create(f"memory://keys-{uuid.uuid4()}/t{n}", pa.schema([("k", kind)]))
        t.append(pa.table({"k": pa.array([value], kind)}))
        rows = pa.table({"k": pa.array([given], other)})
        deleted = outcome(lambda t=t, rows=rows: t.delete(keys=rows))
        left = t.refresh().scan().to_arrow().num_rows
        appended = outcome(lambda t=t, rows=rows: t.append(rows))
        assert deleted == appended, other
        assert left == (deleted != "done"), other
        met.add(deleted)
    assert {"done", "SchemaMismatch"} <= met


def test_parts_of_a_moment_do_not_make_a_key(tmp_path: Path) -> None:
    """Arrow casts a moment to its time of day, and to a wall clock of another zone."""
    t = inlay.create(tmp_path / "t", pa.schema([("at", pa.time64("us")), ("day", pa.date32())]))
    t.append(pa.table({"at": [dt.time(9)], "day": [DAY.date()]}))
    for keys in ({"at": [dt.datetime(2020, 5, 5, 9)]}, {"day": [DAY]}):
        with pytest.raises(SchemaMismatch):
            t.delete(keys=keys)
    assert t.refresh().scan().to_arrow().num_rows == 1


SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("n", pa.int64()),
        ("f", pa.float32()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("at", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
    ]
)


@pytest.mark.parametrize(
    ("column", "value", "meant"),
    [
        ("text", "7", "7"),
        ("n", 7, 7),
        ("n", "9007199254740993", 9007199254740993),
        ("n", 7.0, 7),
        ("f", 0.5, 0.5),
        ("b", True, True),
        ("d", "2020-01-01", DAY.date()),
        ("at", "2020-01-01T00:00:00", DAY),
        ("zoned", "2020-01-01T01:00:00+01:00", DAY.replace(tzinfo=dt.UTC)),
        ("price", 0.1, Decimal("0.10")),
        ("price", "0.10", Decimal("0.10")),
        ("price", 3, Decimal("3.00")),
        ("raw", "ab", b"ab"),
        ("text", None, None),
        ("text", 7, InvalidRequest),
        ("text", 7.5, InvalidRequest),
        ("text", True, InvalidRequest),
        ("n", True, InvalidRequest),
        ("n", 7.5, InvalidRequest),
        ("n", "seven", InvalidRequest),
        ("b", 2, InvalidRequest),
        ("b", "1", InvalidRequest),
        ("d", 18262, InvalidRequest),
        ("at", 1577836800, InvalidRequest),
        ("zoned", 1577836800.0, InvalidRequest),
        ("zoned", "2020-01-01T00:00:00", InvalidRequest),
        ("price", 0.125, InvalidRequest),
        ("raw", 7, InvalidRequest),
    ],
)
def test_keys_of_a_message_are_what_their_json_says(column: str, value: Any, meant: Any) -> None:
    asked = DeleteRequest.model_validate({"table": "t", "keys": {column: [value]}})
    if meant is InvalidRequest:
        with pytest.raises(InvalidRequest):
            asked.key_table(SCHEMA, ())
    else:
        assert asked.key_table(SCHEMA, ()).to_pydict() == {column: [meant]}

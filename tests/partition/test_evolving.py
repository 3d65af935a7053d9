"""Partition columns that are renamed, widened or dropped."""

from __future__ import annotations

import uuid
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InlayError

SCHEMA = pa.schema([("id", pa.int32()), ("d", pa.date32()), ("price", pa.decimal128(9, 2))])
FIRST = date(1969, 12, 25)


def rows(first: int, count: int, schema: pa.Schema = SCHEMA) -> pa.Table:
    ids = range(first, first + count)
    days = [FIRST + timedelta(days=n % 12) for n in ids]
    plain = pa.table({"id": ids, "d": days, "price": [n / 4 for n in ids]})
    return plain.rename_columns(schema.names).cast(schema)


def table(*partition_by: str) -> inlay.Table:
    t = inlay.create(f"memory://evolving/{uuid.uuid4().hex}", SCHEMA, partition_by=partition_by)
    t.append(rows(0, 48))
    return t


def ids(t: inlay.Table, where: str) -> list[int]:
    return sorted(t.scan(columns=["id"], where=where).to_arrow()["id"].to_pylist())


def test_a_partitioning_is_given_as_names_or_as_a_list_of_them() -> None:
    t = table("bucket(4, id)")
    for given, expected in (
        (("id", "month(d)"), ("id", "month(d)")),
        ((["id", "month(d)"],), ("id", "month(d)")),
        (("id",), ("id",)),
        (([],), ()),
        ((["id"],), ("id",)),
        ((), ()),
    ):
        t.set_partitioning(*given)
        assert t.partitioning == expected
    for mistake in ((["id"], "d"), (1,), (None,)):
        with pytest.raises(InlayError, match="partition_by"):
            t.set_partitioning(*mistake)


def test_a_partition_column_cannot_be_dropped_but_renamed() -> None:
    t = table("bucket(4, id)", "month(d)")
    with pytest.raises(InlayError, match="part of the partitioning"):
        t.alter(drop=["d"])
    t.alter(rename={"d": "day"})
    assert t.partitioning == ("bucket(4, id)", "month(day)")
    assert t.scan(where="day >= DATE '1970-01-01'").explain().files_read == 4
    t.set_partitioning("bucket(4, id)")
    t.alter(drop=["day"])
    assert ids(t, "id = 17") == [17]
    assert t.maintain.verify(depth="pages").findings == ()


@pytest.mark.parametrize(
    ("spec", "widen", "where", "found"),
    [
        ("bucket(8, id)", {"id": pa.int64()}, "id = 17", [17]),
        ("truncate(10, id)", {"id": pa.int64()}, "id = 17", [17]),
        ("id", {"id": pa.int64()}, "id = 17", [17]),
        ("bucket(8, price)", {"price": pa.decimal128(18, 2)}, "price = 4.25", [17]),
        ("truncate(100, price)", {"price": pa.decimal128(18, 4)}, "price = 4.25", [17]),
        (
            "day(d)",
            {"d": pa.timestamp("us")},
            "d = TIMESTAMP '1969-12-30 00:00:00'",
            [5, 17, 29, 41],
        ),
        ("d", {"d": pa.timestamp("us")}, "d = TIMESTAMP '1969-12-30 00:00:00'", [5, 17, 29, 41]),
    ],
)
def test_files_of_a_widened_partition_column_are_read_and_pruned(
    spec: str, widen: dict[str, Any], where: str, found: list[int]
) -> None:
    t = table(spec)
    t.alter(widen=widen)
    assert ids(t, where) == found
    assert t.scan(where=where).explain().files_read == 1
    t.append(rows(0, 48, t.schema))
    assert ids(t, where) == sorted(found * 2)
    assert t.scan(where=where).explain().files_read <= 2
    assert t.maintain.verify(depth="pages").findings == ()
    # Rewritten under the new schema, a file says nothing that is not so of its rows.
    t.delete("id < 3", mode="rewrite")
    assert ids(t, where) == sorted(found * 2)
    t.maintain.compact()
    assert ids(t, where) == sorted(found * 2)
    assert t.maintain.verify(depth="pages").findings == ()


def test_a_bucket_of_dates_does_not_follow_to_timestamps() -> None:
    t = table("bucket(4, d)")
    t.alter(widen={"d": pa.timestamp("us")})
    where = "d = TIMESTAMP '1969-12-30 00:00:00'"
    assert ids(t, where) == [5, 17, 29, 41]
    t.delete("id = 5", mode="rewrite")
    t.append(rows(100, 4, t.schema))
    assert ids(t, where) == [17, 29, 41, 101]
    assert t.maintain.verify(depth="pages").findings == ()
    assert datetime(1969, 12, 30) in t.scan(where=where).to_arrow()["d"].to_pylist()

"""How the keys of a delete are stored: by differences where that is small, and every value as it is."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import inlay
from inlay.format.entry import Keys, Where
from inlay.ops.write.delete import INLINE_KEYS

DICE = random.Random(37)
DAY, MOMENT = date(1, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
FIRST = [
    (pa.int8(), [-128, -1, 0, 127]),
    (pa.uint16(), [0, 1, 65_535]),
    (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
    (pa.uint64(), [0, 2**63, 2**64 - 1]),
    (pa.date32(), [DAY, date(1970, 1, 1), date(9999, 12, 31)]),
    (pa.time64("us"), [time.min, time.max]),
    (pa.timestamp("us", "UTC"), [MOMENT - timedelta(days=700_000), MOMENT]),
    (pa.string(), ["", "a", "aé", "z" * 3_000]),
    (pa.binary(), [b"", b"\x00", b"\xff" * 9]),
    (pa.float64(), [float("-inf"), 0.0, float("nan")]),
    (pa.decimal128(38, 2), [Decimal("-1.00"), Decimal(10) ** 35]),
    (pa.bool_(), [False, True]),
]


@pytest.mark.parametrize(("kind", "values"), FIRST, ids=lambda each: str(each)[:20])
def test_keys_of_every_type_delete_their_rows_alone(
    tmp_path: Path, kind: pa.DataType, values: list[object]
) -> None:
    rows = pa.table(
        {
            "k": pa.array([v for v in values for _ in range(4)], kind),
            "n": pa.array([2, -1, 2**31 - 1, -(2**31)] * len(values), pa.int32()),
            "t": ["b", "a", "b", ""] * len(values),
        }
    )
    table = inlay.create(tmp_path / "t", rows.schema)
    table.append(rows)
    chosen = sorted(DICE.sample(range(rows.num_rows), rows.num_rows // 2))
    table.delete(keys=rows.take(chosen))
    left = [n for n in range(rows.num_rows) if n not in chosen]
    found = table.scan().to_arrow()
    assert repr(found.to_pylist()) == repr(rows.take(left).to_pylist())


def test_scattered_keys_take_two_bytes_each(tmp_path: Path) -> None:
    """One row of sixty, as where 100,000 of six million go; plain and under zstd 3.6."""
    count = 20_000
    orders = sorted(DICE.sample(range(15 * count), count))
    lines = [DICE.randrange(1, 8) for _ in orders]
    keys = pa.table([pa.array(orders, pa.int64()), pa.array(lines, pa.int32())], names=["o", "l"])
    table = inlay.create(tmp_path / "t", keys.schema, primary_key=["o", "l"])
    table.append(keys)
    table.delete(keys=keys)
    [stored] = (tmp_path / "t").rglob("*.del")
    assert stored.stat().st_size < 2 * count


def test_as_many_keys_as_a_marker_lists_are_in_it_and_more_are_an_object() -> None:
    t = inlay.create("memory://key-files/listed", pa.schema([("k", pa.int64())]))
    t.append(pa.table({"k": range(3 * INLINE_KEYS)}))
    for first, number, body in ((0, INLINE_KEYS, Where), (INLINE_KEYS, INLINE_KEYS + 1, Keys)):
        t.delete(keys=pa.table({"k": range(first, first + number)}))
        *_, marker = inlay.open(t.uri).snapshot.markers.inline
        assert isinstance(marker.body, body)
    assert t.refresh().scan().to_arrow()["k"].to_pylist() == [
        *range(2 * INLINE_KEYS + 1, 3 * INLINE_KEYS)
    ]

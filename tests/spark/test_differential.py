"""Random tables, read in every way Spark has, again and again: each gives what `Table.scan` gives."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.spark import read, view

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NewTable = Callable[..., inlay.Table]

_CORNERS = [math.nan, -0.0, 0.0, math.inf, -math.inf, 1.5, -2.5]
# A column type, and how a value of it is drawn.
KINDS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "i": (pa.int32(), lambda c: c.choice([-(2**31), -1, 0, 1, 2, 7, 2**31 - 1])),
    "u": (pa.uint8(), lambda c: c.randrange(0, 256, 85)),
    "f": (pa.float64(), lambda c: c.choice(_CORNERS)),
    "g": (pa.float32(), lambda c: c.choice(_CORNERS)),
    "s": (pa.string(), lambda c: c.choice(["", "a", "ab", "a%", "é", "\U0001f600", "ZZ"])),
    "b": (pa.bool_(), lambda c: c.random() < 0.5),
    "m": (pa.decimal128(9, 2), lambda c: Decimal(c.randrange(-999, 999)).scaleb(-2)),
    "d": (pa.date32(), lambda c: date(2026, 1, 1) + timedelta(days=c.randrange(-3, 4))),
    "t": (
        pa.timestamp("us", "UTC"),
        lambda c: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=c.randrange(-30, 30)),
    ),
    "x": (pa.binary(), lambda c: c.choice([b"", b"\x00", b"ab", b"\xff"])),
    "l": (pa.list_(pa.int64()), lambda c: [c.randrange(3) for _ in range(c.randrange(3))]),
    "p": (
        pa.struct([("q", pa.int64()), ("r", pa.string())]),
        lambda c: {"q": c.randrange(5), "r": "z"},
    ),
}

# Conditions by the column they ask for, in SQL that Spark and the library take for the same.
CONDITIONS = {
    "id": ["id < 40", "id >= 95 AND id < 130", "id IN (1, 2, 77, 300)", "NOT (id > 20)"],
    "i": ["i IN (-1, 7)", "i > 0", "i IS NULL", "i <> 0 OR id < 5"],
    "f": ["f > 1", "f >= 0 AND f <= 0", "f IS NOT NULL", "NOT (f < 1)"],
    "s": ["s LIKE 'a%'", "s = ''", "s > 'a'", "s IN ('ZZ', 'ab')"],
    "m": ["m > 1.25", "m <= 0"],
    "d": ["d < DATE '2026-01-01'", "d = DATE '2026-01-02' OR d IS NULL"],
    "b": ["b", "NOT b"],
}


class Story:
    """A table that is written, deleted from and altered at random."""

    def __init__(self, new_table: NewTable, seed: int) -> None:
        self.chance = random.Random(seed)
        self.names = self.chance.sample(list(KINDS), self.chance.randrange(2, 7))
        fields = [pa.field("id", pa.int64(), nullable=False)]
        fields += [pa.field(name, KINDS[name][0]) for name in self.names]
        options: dict[str, Any] = {"properties": {"write.row_group_rows": 16}}
        if self.chance.random() < 0.7:
            options["primary_key"] = "id"
        if self.chance.random() < 0.4:
            options["partition_by"] = ["bucket(3, id)"]
        self.table = new_table(pa.schema(fields), **options)
        self.next = 0
        self.refs: list[str] = []
        self.append()

    def append(self) -> None:
        number = self.chance.randrange(1, 60)
        data: dict[str, list[Any]] = {"id": list(range(self.next, self.next + number))}
        self.next += number
        for name in self.names:
            draw = KINDS[name][1]
            data[name] = [
                None if self.chance.random() < 0.2 else draw(self.chance) for _ in range(number)
            ]
        schema = self.table.refresh().snapshot.schema
        known = {field.name for field in schema.fields}
        fields = [pa.field("id", pa.int64(), nullable=False)]
        fields += [pa.field(name, KINDS[name][0]) for name in self.names if name in known]
        rows = pa.schema(fields)
        self.table.append(pa.table({f.name: data[f.name] for f in rows}, schema=rows))

    def condition(self) -> str:
        columns = [name for name in ("id", *self.names) if name in CONDITIONS]
        return self.chance.choice(CONDITIONS[self.chance.choice(columns)])

    def step(self) -> None:
        what = self.chance.randrange(8)
        low = self.chance.randrange(self.next)
        if what <= 1:
            self.append()
        elif what == 2:
            self.table.delete(self.condition())
        elif what == 3:
            self.table.delete(self.condition(), mode="vector")
        elif what == 4:
            ids = pa.array(range(low, low + 2_500, 3), pa.int64())
            self.table.delete(keys=pa.table({"id": ids}))
        elif what == 5:
            self.table.delete(f"id BETWEEN {low} AND {low + 9}")
        elif what == 6:
            name = f"ref-{len(self.refs)}"
            self.table.tag(name)
            self.refs.append(name)
        elif "added" not in self.table.refresh().snapshot.schema.names:
            self.table.alter(add={"added": pa.string()})
        self.table.refresh()


def multiset(rows: pa.Table) -> Counter[str]:
    """Rows, whatever their order; all NaNs are equal, and zeros of both signs are."""
    return Counter(map(_shown, rows.to_pylist()))


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return repr({name: _shown(inner) for name, inner in value.items()})
    if isinstance(value, float) and value == 0:
        return "0.0"
    return str(value)


@pytest.mark.parametrize("seed", range(6))
def test_every_way_of_reading_gives_what_scan_gives(
    either_way: Any, new_table: NewTable, seed: int
) -> None:
    spark, story = either_way, Story(new_table, seed)
    table = story.table
    for _ in range(3):
        for _ in range(story.chance.randrange(1, 6)):
            story.step()
        names = table.snapshot.schema.names
        columns = story.chance.sample(names, story.chance.randrange(1, len(names) + 1))
        view(spark, "told", table.uri)
        source = spark.read.format("inlay").load(table.uri)
        native = read(spark, table.uri)
        assert multiset(native.toArrow()) == multiset(source.toArrow())
        assert multiset(source.toArrow()) == multiset(table.scan().to_arrow())
        # The same DataFrames, over and over.
        for _ in range(3):
            where = story.condition()
            expected = multiset(table.scan(columns=columns, where=where).to_arrow())
            ways = {
                "view": spark.table("told").where(where).select(*columns),
                "reused source": source.where(where).select(*columns),
                "reused read": native.where(where).select(*columns),
                "read": read(spark, table.uri, columns=columns, where=where),
                "python": read(spark, table.uri, columns=columns, where=where, native="never"),
            }
            for way, frame in ways.items():
                assert multiset(frame.toArrow()) == expected, (way, where, columns)
        assert source.count() == native.count() == table.count()
        version = story.chance.randrange(1, table.version + 1)
        past = inlay.open(table.uri, version=version)
        assert multiset(read(spark, table.uri, version=version).toArrow()) == multiset(
            past.scan().to_arrow()
        )
        for ref in story.refs[-1:]:
            held = inlay.open(table.uri, ref=ref).scan().to_arrow()
            asked = f"SELECT * FROM inlay('{table.uri}', ref => '{ref}')"
            assert multiset(spark.sql(asked).toArrow()) == multiset(held)

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

# Conditions by the kind of column they ask for, in SQL that Spark and the library take for the same.
CONDITIONS = {
    "id": ["{0} < 40", "{0} >= 95 AND {0} < 130", "{0} IN (1, 2, 77, 300)", "NOT ({0} > 20)"],
    "i": ["{0} IN (-1, 7)", "{0} > 0", "{0} IS NULL", "{0} <> 0 OR id < 5"],
    "f": ["{0} > 1", "{0} >= 0 AND {0} <= 0", "{0} IS NOT NULL", "NOT ({0} < 1)"],
    "s": ["{0} LIKE 'a%'", "{0} = ''", "{0} > 'a'", "{0} IN ('ZZ', 'ab')"],
    "m": ["{0} > 1.25", "{0} <= 0"],
    "d": ["{0} < DATE '2026-01-01'", "{0} = DATE '2026-01-02' OR {0} IS NULL"],
    "b": ["{0}", "NOT {0}"],
}
# How columns of a kind can be partitioned, and to which type one can be widened.
TRANSFORMS = {
    "id": ["bucket(3, {0})", "truncate(20, {0})"],
    "i": ["{0}", "bucket(2, {0})", "truncate(5, {0})"],
    "s": ["{0}", "truncate(1, {0})"],
    "m": ["truncate(50, {0})"],
    "b": ["{0}"],
    "d": ["month({0})", "{0}"],
    "t": ["day({0})", "hour({0})"],
}
WIDER = {"i": pa.int64(), "g": pa.float64(), "m": pa.decimal128(15, 2)}


class Story:
    """A table that is written, deleted from, altered, repartitioned, branched and restored at random."""

    def __init__(self, spark: Any, new_table: NewTable, seed: int) -> None:
        self.spark = spark
        self.chance = random.Random(seed)
        kinds = self.chance.sample(list(KINDS), self.chance.randrange(2, 7))
        fields = [pa.field("id", pa.int64(), nullable=False)]
        fields += [pa.field(name, KINDS[name][0]) for name in kinds]
        options: dict[str, Any] = {"properties": {"write.row_group_rows": 16}}
        if self.chance.random() < 0.7:
            options["primary_key"] = "id"
        if self.chance.random() < 0.4:
            options["partition_by"] = ["bucket(3, id)"]
        self.table = new_table(pa.schema(fields), **options)
        # What a column was when it came, by its id: it may be renamed, and go, and come back.
        self.kinds = {f.id: f.name for f in self.table.snapshot.schema.fields}
        self.next = 0
        self.refs: list[str] = []
        self.log: list[str] = []
        self.append(self.table)

    def columns(self) -> dict[str, str]:
        """The kinds of the columns there are now, by name."""
        return {f.name: self.kinds[f.id] for f in self.table.refresh().snapshot.schema.fields}

    def rows(self, ids: list[int]) -> pa.Table:
        types = self.table.schema
        data = {}
        for name, kind in self.columns().items():
            data[name] = ids if kind == "id" else [self.value(kind) for _ in ids]
        return pa.table(data, schema=pa.schema([types.field(name) for name in data]))

    def value(self, kind: str) -> Any:
        return None if self.chance.random() < 0.2 else KINDS[kind][1](self.chance)

    def append(self, to: inlay.Table) -> None:
        number = self.chance.randrange(1, 60)
        to.append(self.rows(list(range(self.next, self.next + number))))
        self.next += number

    def condition(self) -> str:
        asked = [(name, kind) for name, kind in self.columns().items() if kind in CONDITIONS]
        name, kind = self.chance.choice(asked)
        return self.chance.choice(CONDITIONS[kind]).format(name)

    def step(self) -> None:
        does = self.chance.choice(STEPS)
        self.log.append(does.__name__)
        does(self)
        self.table.refresh()


def add_rows(story: Story) -> None:
    story.append(story.table)


def add_rows_by_spark(story: Story) -> None:
    number = story.chance.randrange(1, 60)
    rows = story.rows(list(range(story.next, story.next + number)))
    story.next += number
    frame = story.spark.createDataFrame(rows)
    frame.write.format("inlay").mode("append").save(story.table.uri)


def delete_where(story: Story) -> None:
    mode = story.chance.choice([None, "tombstone", "vector", "rewrite", "surgery"])
    story.table.delete(story.condition(), mode=mode)


def delete_keys(story: Story) -> None:
    low = story.chance.randrange(story.next)
    story.table.delete(keys=pa.table({"id": pa.array(range(low, low + 2_500, 3), pa.int64())}))


def delete_range(story: Story) -> None:
    low = story.chance.randrange(story.next)
    story.table.delete(f"id BETWEEN {low} AND {low + 9}")


def update(story: Story) -> None:
    story.table.update({"id": "id + 100000"}, where=f"id = {story.chance.randrange(story.next)}")


def upsert(story: Story) -> None:
    low = story.chance.randrange(story.next)
    story.table.upsert(story.rows(list(range(low, low + 7))), on="id")


def tag(story: Story) -> None:
    name = f"ref-{len(story.refs)}"
    story.table.refs.tag(name)
    story.refs.append(name)


def alter(story: Story) -> None:
    columns = story.columns()
    others = [name for name, kind in columns.items() if kind != "id"]
    name = story.chance.choice(others) if others else None
    what = story.chance.randrange(5)
    if what == 0 or name is None:
        kind = story.chance.choice(list(KINDS))
        added = f"new{story.table.version}"
        story.table.alter(add={added: KINDS[kind][0]})
        ids = {f.name: f.id for f in story.table.refresh().snapshot.schema.fields}
        story.kinds[ids[added]] = kind
    elif what == 1 and len(others) > 1:
        # No partitions and no open deletes may need it.
        story.table.set_partitioning()
        story.table.refresh().maintain.rewrite()
        story.table.refresh().alter(drop=[name])
    elif what == 2:
        story.table.alter(rename={name: f"{name[:2]}{story.table.version}"})
    elif what == 3 and columns[name] in WIDER:
        story.table.alter(widen={name: WIDER[columns[name]]})
    else:
        story.table.alter(order=[name])


def partition(story: Story) -> None:
    choices = {name: TRANSFORMS[k] for name, k in story.columns().items() if k in TRANSFORMS}
    names = story.chance.sample(list(choices), min(len(choices), story.chance.randrange(3)))
    story.table.set_partitioning(*(story.chance.choice(choices[n]).format(n) for n in names))


def maintain(story: Story) -> None:
    if story.chance.random() < 0.5:
        story.table.maintain.settle()
    else:
        story.table.maintain.compact(small_bytes=1 << 30)


def branch(story: Story) -> None:
    name = f"branch-{story.table.version}"
    beside = story.table.refs.branch(name)
    story.append(beside)
    beside.refresh().delete(f"id < {story.chance.randrange(story.next)}", mode="vector")
    if story.chance.random() < 0.5:
        story.table.refresh().refs.merge(name)
    story.refs.append(name)


def restore(story: Story) -> None:
    story.table.refs.restore(version=story.chance.randrange(1, story.table.version + 1))


STEPS = [
    *[add_rows, delete_where, alter, partition] * 2,
    *[add_rows_by_spark, delete_keys, delete_range, update, upsert],
    *[tag, maintain, branch, restore],
]


def multiset(rows: pa.Table) -> Counter[str]:
    """Rows, whatever their order; all NaNs are equal, and zeros of both signs are."""
    return Counter(map(_shown, rows.to_pylist()))


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return repr({name: _shown(inner) for name, inner in value.items()})
    if isinstance(value, float) and value == 0:
        return "0.0"
    return str(value)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(6))
def test_every_way_of_reading_gives_what_scan_gives(
    either_way: Any, new_table: NewTable, seed: int
) -> None:
    spark, story = either_way, Story(either_way, new_table, seed)
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
                assert multiset(frame.toArrow()) == expected, (way, where, columns, story.log)
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

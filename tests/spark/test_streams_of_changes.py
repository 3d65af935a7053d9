"""Random change streams in Spark by composite keys of all types, cut, shuffled and repeated, by two streams
and a library's, beside maintenance and schema changes, against a model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import inlay
from inlay.errors import InlayError, InvalidRequest
from inlay.ops.write.recent_rows import RecentRows
from inlay.spark.maintenance import compact, materialize_deletes
from inlay.spark.merge import merge

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]
Row = dict[str, Any]

KOLKATA = timezone(timedelta(hours=5, minutes=30))
# Types of keys with the values drawn for them.
PARTS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["", "a", "A", "it's", "é\U0001f600", "line\nbreak", "\\", "%"]),
    (
        pa.timestamp("us", "UTC"),
        [
            datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
            datetime(2026, 3, 29, 1, 30, tzinfo=KOLKATA).astimezone(UTC),
            datetime(1890, 3, 4, 5, 6, 7, 89, tzinfo=UTC),
            datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
        ],
    ),
    (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
    (pa.date32(), [date(1, 1, 1), date(1582, 10, 10), date(2026, 1, 1), date.max]),
    (pa.decimal128(20, 3), [Decimal("-1.000"), Decimal("0.000"), Decimal("1" + "0" * 16 + ".000")]),
    (pa.timestamp("us"), [datetime(2026, 3, 29, 2, 30), datetime(1, 1, 2), datetime(2026, 1, 1)]),
    (pa.bool_(), [True, False]),
    (pa.binary(), [b"", b"\x00", b"\xff'", b"ab"]),
]
TIMES = [None, *(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=h) for h in range(6))]


def order_of(row: Row) -> tuple[tuple[bool, Any], ...]:
    return tuple((row[name] is not None, row[name] or 0) for name in ("at", "seq"))


class Model:
    """The rows of a table, by key, and the orders of remembered deletes."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys
        self.rows: dict[tuple[Any, ...], Row] = {}
        self.gone: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.columns: dict[str, Any] = {"v": None}  # with the defaults of new rows

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.keys)

    def apply(self, records: list[Row]) -> None:
        newest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for place, record in enumerate(records):
            rank = (order_of(record), record["op"] == "D", place)
            key = self.key(record)
            if key not in newest or newest[key][0] < rank:
                newest[key] = (rank, record)
        for key, ((order, is_delete, _), record) in newest.items():
            there = self.rows.get(key)
            if there is not None and order_of(there) > order:
                continue
            if is_delete:
                self.rows.pop(key, None)
                self.gone[key] = max(order, self.gone.get(key, order))
            elif key not in self.gone or self.gone[key] < order:
                row = {name: value for name, value in record.items() if name != "op"}
                self.rows[key] = {**self.columns, **(there or {}), **row}


def shown(rows: list[Row]) -> Counter[str]:
    # The zone of a time may be of another class.
    return Counter(
        str(
            sorted(
                (name, f"{value}" if isinstance(value, datetime) else value)
                for name, value in row.items()
            )
        )
        for row in rows
    )


def frame(spark: Any, records: list[Row], schema: pa.Schema) -> Any:
    kinds = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return spark.createDataFrame(pa.Table.from_pylist(records, schema), kinds)


class Play:
    def __init__(self, spark: Any, new_table: NewTable, seed: int) -> None:
        self.spark = spark
        self.chance = chance = random.Random(seed)
        parts = chance.sample(PARTS, chance.choice([1, 2, 2, 3]))
        self.parts = parts
        keys = [chance.choice([f"k{n}", f"a.k {n}", f"K`{n}"]) for n in range(len(parts))]
        self.model = Model(keys)
        self.schema = pa.schema(
            [
                *(pa.field(name, kind) for name, (kind, _) in zip(keys, parts, strict=True)),
                ("v", pa.string()),
                ("at", pa.timestamp("us", "UTC")),
                ("seq", pa.int32()),
            ]
        )
        options: Row = {}
        if chance.random() < 0.4:
            options["partition_by"] = [chance.choice(["v", "at"])]
        if chance.random() < 0.3:
            options["sort_by"] = ["at"]
        self.table = new_table(
            self.schema, primary_key=keys, properties={"schema.evolve": "add"}, **options
        )
        self.recent = [RecentRows(), None]
        self.sent: list[list[Row]] = []
        self.batches = 0
        self.story: list[Any] = [
            dict(zip(keys, map(str, self.schema.types), strict=False)),
            options,
        ]

    def record(self) -> Row:
        chance = self.chance
        row: Row = {
            name: chance.choice(values)
            for name, (_, values) in zip(self.model.keys, self.parts, strict=True)
        }
        row |= {"at": chance.choice(TIMES), "seq": chance.choice([None, 0, 1, 2])}
        row |= {"op": chance.choice("IUUD")}
        for name in self.model.columns:
            row[name] = None if row["op"] == "D" else f"{name}{chance.randrange(3)}"
        return row

    def batch(self) -> list[Row]:
        chance = self.chance
        if self.sent and chance.random() < 0.35:  # once more, otherwise cut and shuffled
            again = [row for old in chance.sample(self.sent, min(2, len(self.sent))) for row in old]
            chance.shuffle(again)
            return again[: chance.randrange(1, len(again) + 1)]
        rows = [self.record() for _ in range(chance.choice([1, 3, 8]))]
        self.sent.append(rows)
        return rows

    def stream(self) -> None:
        rows = self.batch()
        # Each batch has the columns of its rows, which may be those of before a change of the schema.
        names = set.intersection(*(set(row) for row in rows))
        if self.chance.random() < 0.2:
            names -= {"v"}
        rows = [{name: row[name] for name in row if name in names} for row in rows]
        fields = [
            *self.schema,
            *(pa.field(n, pa.string()) for n in ("w", "x")),
            ("op", pa.string()),
        ]
        schema = pa.schema([f for f in map(as_field, fields) if f.name in names])
        number = self.chance.randrange(3)
        self.batches += 1
        self.story.append((["first", "second", "library"][number], rows))
        if number == 2:
            given = pa.Table.from_pylist(rows, schema)
            self.table.refresh().apply_changes(given, order=["at", "seq"], op="op")
        else:
            # One partition: the order of arrival is that of the rows.
            merge(
                frame(self.spark, rows, schema).coalesce(1),
                self.table.uri,
                order=["at", "seq"],
                batch=(f"query {number}", self.batches),
                recent=self.recent[number],
            )
        self.model.apply(rows)

    def beside(self) -> None:
        table, chance = self.table.refresh(), self.chance
        small = chance.choice(table.inspect.files()["bytes"].to_pylist() or [1]) + 1
        action = chance.choice(
            ["compact", "spark compact", "materialize", "rewrite", "surgery", "vector", "tombstone",
             "erase", "restore", "add", "widen", "rename", "settle"]
        )  # fmt: skip
        self.story.append(action)
        match action:
            case "compact":
                table.maintain.compact(small_bytes=small)
            case "spark compact":
                compact(self.spark, table.uri, small_bytes=small)
            case "materialize":
                materialize_deletes(self.spark, table.uri)
            case "rewrite" | "surgery":
                table.maintain.rewrite(strategy=action)
            case "vector" | "tombstone" | "erase":
                table.delete("seq = 1 AND v = 'v1'", mode=action)
                self.model.rows = {
                    key: row
                    for key, row in self.model.rows.items()
                    if not (row["seq"] == 1 and row["v"] == "v1")
                }
            case "restore":
                table.refs.restore(version=table.version)
            case "add":
                for name in ("w", "x"):
                    if name not in self.model.columns:
                        default = f"default {name}" if name == "x" else None
                        defaults = {} if default is None else {name: default}
                        table.alter(add={name: pa.string()}, defaults=defaults)
                        self.model.columns[name] = default
                        for row in self.model.rows.values():
                            row[name] = default
                        break
            case "widen":
                place = self.schema.get_field_index("seq")
                if self.schema.field(place).type == pa.int32():
                    table.alter(widen={"seq": pa.int64()})
                    self.schema = self.schema.set(place, pa.field("seq", pa.int64()))
                for name in self.model.keys:
                    place = self.schema.get_field_index(name)
                    if self.schema.field(place).type == pa.int32():
                        table.refresh().alter(widen={name: pa.int64()})
                        self.schema = self.schema.set(place, pa.field(name, pa.int64()))
            case "settle":
                table.maintain.settle()
            case "rename":
                old = self.chance.choice(self.model.keys)
                self.rename(old, f"{old}+")

    def rename(self, old: str, new: str) -> None:
        self.table.refresh().alter(rename={old: f'"{new}"'})
        self.model.keys = [new if name == old else name for name in self.model.keys]

        def renamed(row: Row) -> Row:
            return {new if name == old else name: value for name, value in row.items()}

        self.model.rows = {key: renamed(row) for key, row in self.model.rows.items()}
        self.sent = [[renamed(row) for row in rows] for rows in self.sent]
        place = self.schema.get_field_index(old)
        self.schema = self.schema.set(place, self.schema.field(place).with_name(new))

    def check(self) -> None:
        found = self.table.refresh().scan().to_arrow().to_pylist()
        expected = list(self.model.rows.values())
        assert shown(found) == shown(expected), "\n".join(map(str, self.story))

    def refuse_null_keys(self) -> None:
        row = {**self.record(), self.chance.choice(self.model.keys): None}
        fields = [
            *self.schema,
            *(pa.field(n, pa.string()) for n in ("w", "x")),
            ("op", pa.string()),
        ]
        schema = pa.schema([f for f in map(as_field, fields) if f.name in row])
        before = self.table.refresh().version
        with pytest.raises(InvalidRequest, match="have no key"):
            merge(
                frame(self.spark, [self.record(), row], schema), self.table.uri, order=["at", "seq"]
            )
        with pytest.raises(InlayError):
            given = pa.Table.from_pylist([row], schema)
            self.table.apply_changes(given, order=["at", "seq"], op="op")
        assert self.table.refresh().version == before


def as_field(given: Any) -> pa.Field:
    return given if isinstance(given, pa.Field) else pa.field(*given)


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 40))]
)
def test_streams_by_keys_of_every_type_are_the_models(
    spark: Any, new_table: NewTable, seed: int
) -> None:
    play = Play(spark, new_table, seed)
    for _ in range(7):
        play.stream()
        play.check()
        if play.chance.random() < 0.7:
            play.beside()
            play.check()
    play.refuse_null_keys()

"""Random histories of tables of other shapes: many types, nested columns, odd names, few rows or none.

Same steps as `histories`; the columns, their names and the partitioning are drawn by the seed.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import inlay
from inlay.errors import InlayError
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parse.partitioning import partition_fields

from .histories import History

NAN = float("nan")
NOON = datetime(2024, 2, 29, 12)
OLD, FAR = datetime(1899, 12, 31, 23, 59, 59, 999000), datetime(2261, 1, 1)
# Values that are few, so that conditions and partitions meet again, with the extremes of each type.
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [-128, -1, 0, 127]),
    "int16": (pa.int16(), [-(2**15), 0, 7]),
    "int32": (pa.int32(), [-(2**31), -3, 0, 5, 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), -11, 0, 12, 2**63 - 1]),
    "uint8": (pa.uint8(), [0, 200, 255]),
    "uint16": (pa.uint16(), [0, 40_000, 65_535]),
    "float": (pa.float32(), [NAN, -0.0, 0.0, 0.5, -1.5, float("inf")]),
    "double": (pa.float64(), [NAN, -0.0, 0.0, 1e300, -1e-300, float("-inf")]),
    "decimal": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.00"), Decimal("1.05")]),
    "decimal18": (pa.decimal128(18, 6), [Decimal("-1.000001"), Decimal("123456789012.5")]),
    "decimal38": (pa.decimal128(38, 10), [Decimal("-1.5"), Decimal(10**28 - 1), Decimal(0)]),
    "string": (
        pa.string(),
        ["", "a", "ab", "é", "e\u0301", "\U0001f600x", "zz" * 40, "NULL", "a/b"],
    ),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff\xfe", b"ab"]),
    "fixed": (pa.binary(3), [b"abc", b"\x00\x01\xff"]),
    "date": (
        pa.date32(),
        [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)],
    ),
    "time": (pa.time64("us"), [time(0), time(23, 59, 59, 999999)]),
    "ts": (pa.timestamp("us"), [NOON, OLD, FAR, NOON + timedelta(microseconds=1)]),
    "tz": (pa.timestamp("us", tz="UTC"), [NOON.replace(tzinfo=UTC), OLD.replace(tzinfo=UTC)]),
}
# Some of them Iceberg does not have: the files that are there are written again.
WIDER = {
    pa.int8(): pa.int16(),
    pa.int16(): pa.int32(),
    pa.int32(): pa.int64(),
    pa.uint8(): pa.uint16(),
    pa.float32(): pa.float64(),
    pa.decimal128(9, 2): pa.decimal128(18, 2),
    pa.decimal128(18, 2): pa.decimal128(38, 10),
    pa.decimal128(18, 6): pa.decimal128(38, 10),
    pa.date32(): pa.timestamp("us"),
    pa.binary(3): pa.binary(),
}
# Names that need quoting, that are other things elsewhere, or that are not ASCII.
NAMES = (
    *(
        "a",
        "b",
        "A1",
        "order",
        "select",
        "from",
        "partition",
        "_x",
        "x y",
        "x-y",
        "1st",
        "p1_bucket_4",
    ),
    *(
        "größe",
        "日付",
        "\U0001f600",
        "it's",
        'q"q',
        "back`tick",
        "a/b",
        "a=b",
        "per%cent",
        "tab\tname",
    ),
    *("pos", "file_path", "file", "value", "key", "element", "null", "é", "ID2", "x" * 60),
)
TRANSFORMS = {
    "identity": "{0}",
    "bucket": "bucket({1}, {0})",
    "truncate": "truncate({1}, {0})",
    "year": "year({0})",
    "month": "month({0})",
    "day": "day({0})",
    "hour": "hour({0})",
}


class Shape(History):
    """A table of the columns that the seed draws."""

    def __init__(self, root: Path, seed: int, version: str = "v3") -> None:
        self.values: dict[str, list[Any]] = {}
        self.unused = list(NAMES)
        draw = random.Random(seed)
        draw.shuffle(self.unused)
        self.most = draw.choice([1, 2, 30, 120])
        self.widths = draw.choice([3, 3, 8, 20])
        self.version = version
        super().__init__(root, seed)
        self.steps = (*self.steps, self.delete_all, self.append_nothing, self.tag)

    def create(self) -> inlay.Table:
        fields = [pa.field("id", pa.int64()), *(self.field() for _ in range(self.widths))]
        self.drawn = pa.schema(fields)
        return inlay.create(
            f"file://{self.root}",
            self.drawn,
            primary_key="id",
            partition_by=self.spec(self.drawn),
            properties={
                "write.row_group_rows": self.random.choice(["1", "40"]),
                "publish.format": self.version,
            },
        )

    # -- columns ------------------------------------------------------------------------------

    def field(self) -> pa.Field:
        return pa.field(self.unused.pop(), self.kind(), nullable=self.random.random() < 0.8)

    def kind(self, depth: int = 0) -> pa.DataType:
        if depth < 2 and self.random.random() < 0.25:
            inner = self.kind(depth + 1)
            match self.random.randrange(3):
                case 0:
                    names = self.random.sample(["v", "w", "x y", "ü"], 2)
                    return pa.struct([(names[0], inner), (names[1], self.kind(depth + 1))])
                case 1:
                    return pa.list_(inner)
                case _:
                    return pa.map_(pa.string(), inner)
        return TYPES[self.random.choice(list(TYPES))][0]

    def spec(self, schema: pa.Schema) -> list[str]:
        """Up to two fields, by whatever transform fits."""
        found: list[str] = []
        table_schema = schema_from_arrow(schema)
        for _ in range(self.random.choice([0, 1, 1, 2])):
            text = self.random.choice(list(TRANSFORMS.values())).format(
                self.random.choice(schema.names), self.random.choice([1, 2, 5])
            )
            try:
                partition_fields([*found, text], table_schema)
            except InlayError:
                continue
            found.append(text)
        return found

    # -- rows ---------------------------------------------------------------------------------

    def rows(self, count: int | None = None) -> pa.Table:
        count = self.random.randint(1, self.most) if count is None else count
        first, self.next_id = self.next_id, self.next_id + count
        made = {
            field.name: pa.array(
                range(first, first + count)
                if field.name == "id"
                else [self.value(field.type, field.nullable) for _ in range(count)],
                field.type,
            )
            for field in self.table.schema
        }
        return pa.table(made, schema=self.table.schema)

    def value(self, kind: pa.DataType, nullable: bool) -> Any:
        pick = self.random
        if nullable and pick.random() < 0.15:
            return None
        if pa.types.is_struct(kind):
            return {f.name: self.value(f.type, f.nullable) for f in kind}
        if pa.types.is_map(kind):
            return [
                (k, self.value(kind.item_type, True))
                for k in pick.sample(["", "k", "ü"], pick.randrange(3))
            ]
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return [self.value(kind.value_type, True) for _ in range(pick.randrange(3))]
        for known, values in TYPES.values():
            if known == kind:
                return pick.choice(values)
        if pa.types.is_decimal(kind):
            return Decimal("1.05")
        raise AssertionError(kind)

    def ingest(self) -> None:
        """At times a file whose instants are in milliseconds."""
        rows = self.landed()
        if self.random.random() < 0.5:
            coarse = {pa.timestamp("us"): pa.timestamp("ms"), pa.time64("us"): pa.time32("ms")}
            for at, field in enumerate(rows.schema):
                if field.type in coarse:
                    kept = rows[field.name].cast(coarse[field.type], safe=False)
                    rows = rows.set_column(at, field.with_type(kept.type), kept)
        self.land(rows)

    def condition(self) -> str:
        low = self.random.randint(0, max(1, self.next_id))
        choices = [f"id BETWEEN {low} AND {low + self.random.randint(0, 40)}", f"id = {low}"]
        for field in self.table.schema:
            name = '"' + field.name.replace('"', '""') + '"'
            choices.append(f"{name} IS NULL")
            if pa.types.is_integer(field.type):
                choices.append(f"{name} > {self.random.randint(-5, 130)}")
            elif pa.types.is_string(field.type):
                choices.append(f"{name} IN ('a', 'é') OR {name} >= 'z'")
            elif pa.types.is_floating(field.type):
                choices.append(f"{name} = 0")
                choices.append(f"{name} > 0.25")
            elif pa.types.is_date(field.type):
                choices.append(f"{name} < DATE '1970-01-01'")
            elif pa.types.is_boolean(field.type):
                choices.append(f"{name} = true")
        return self.random.choice(choices)

    def update(self) -> None:
        names = [f.name for f in self.table.schema if f.nullable and f.name != "id"]
        if names:
            self.table.update({self.random.choice(names): "NULL"}, where=self.condition())

    # -- columns ------------------------------------------------------------------------------

    def add(self) -> None:
        made = self.field()
        if (
            self.random.random() < 0.4
            and self.version == "v3"
            and not pa.types.is_nested(made.type)
        ):
            default = self.value(made.type, False)
            made = pa.field(made.name, made.type, nullable=self.random.random() < 0.5)
            self.table.alter(add={made.name: made}, defaults={made.name: default})
        else:
            self.table.alter(add={made.name: made.type})

    def drop(self) -> None:
        names = [n for n in self.table.schema.names if n != "id"]
        if names:
            name = self.random.choice(names)
            self.table.alter(drop=[name])
            self.unused.insert(0, name)

    def rename(self) -> None:
        names = [n for n in self.table.schema.names if n != "id"]
        if names:
            old = self.random.choice(names)
            self.table.alter(rename={old: self.unused.pop()})
            self.unused.append(old)

    def widen(self) -> None:
        fields = [f for f in self.table.schema if f.type in WIDER]
        if fields:
            field = self.random.choice(fields)
            self.table.alter(widen={field.name: WIDER[field.type]})

    def partition(self) -> None:
        self.table.set_partitioning(*self.spec(self.table.schema))

    # -- more steps ---------------------------------------------------------------------------

    def delete_all(self) -> None:
        self.table.delete("id >= 0", mode=self.random.choice(["tombstone", "vector"]))

    def append_nothing(self) -> None:
        self.table.append(self.rows(0))

    def tag(self) -> None:
        self.table.refs.tag(f"t {self.table.version} é")

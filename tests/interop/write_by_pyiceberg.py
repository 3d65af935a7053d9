"""Writes Iceberg tables with pyiceberg, in a separate environment: run as a program.

`write_by_pyiceberg.py FOLDER SEED…`: a random history for each seed. Prints, as JSON lines, of each table
the metadata file that was newest after some of the steps, with the steps so far.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.expressions import And, EqualTo, GreaterThan, GreaterThanOrEqual, IsNull, LessThan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

DAY = date(2024, 1, 1)
ZERO = datetime(2024, 1, 1)
TRANSFORMS: tuple[tuple[str, Any], ...] = (
    ("id", BucketTransform(3)),
    ("id", TruncateTransform(50)),
    ("s", IdentityTransform()),
    ("s", TruncateTransform(1)),
    ("d", MonthTransform()),
    ("d", YearTransform()),
    ("t", DayTransform()),
    ("t", HourTransform()),
    ("n", BucketTransform(2)),
    ("a", IdentityTransform()),
)


class History:
    """One table and what may happen to it; the same seed makes the same history."""

    def __init__(self, catalog: Any, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.root = root / f"t{seed}"
        self.next_id = 0
        self.log: list[str] = []
        version = self.random.choice([1, 2, 2])
        columns = [
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "a", IntegerType(), required=False),
            NestedField(3, "s", StringType(), required=False, doc="a text"),
            NestedField(4, "d", DateType(), required=False),
            NestedField(5, "t", TimestampType(), required=False),
            NestedField(6, "n", DecimalType(9, 2), required=False),
            NestedField(7, "f", FloatType(), required=False),
            NestedField(
                8,
                "z",
                StructType(
                    NestedField(9, "x", IntegerType(), required=False),
                    NestedField(10, "y", StringType(), required=False),
                ),
                required=False,
            ),
            NestedField(11, "l", ListType(12, IntegerType(), False), required=False),
            NestedField(13, "m", MapType(14, StringType(), 15, LongType(), False), required=False),
            NestedField(16, "b", BooleanType(), required=False),
            NestedField(17, "w", TimestamptzType(), required=False),
            NestedField(18, "u", UUIDType(), required=False),
            NestedField(19, "k", BinaryType(), required=False),
            NestedField(20, "x4", FixedType(4), required=False),
            NestedField(21, "e", DoubleType(), required=False),
        ]
        ids = {f.name: f.field_id for f in columns}
        spec = []
        for n, (name, transform) in enumerate(
            self.random.sample(TRANSFORMS, self.random.choice([0, 0, 1, 2]))
        ):
            if ids[name] not in [p.source_id for p in spec]:
                spec.append(PartitionField(ids[name], 1000 + n, transform, f"p{n}"))
        self.table = catalog.create_table(
            f"db.t{seed}",
            Schema(*columns),
            location=f"file://{self.root}",
            partition_spec=PartitionSpec(*spec),
            properties={"format-version": str(version)},
        )
        self.log.append(f"v{version} {[str(p.transform) for p in spec]}")
        self.steps = (
            self.append,
            self.append,
            self.append,
            self.delete,
            self.delete,
            self.overwrite,
            self.add,
            self.drop,
            self.rename,
            self.widen,
            self.move,
            self.partition,
            self.add_files,
        )

    def step(self) -> None:
        todo = self.random.choice(self.steps)
        self.log.append(todo.__name__)
        try:
            todo()
        except Exception as error:  # what pyiceberg refuses is not a step
            self.log[-1] += f" ({type(error).__name__}: {str(error)[:60]})"
        self.table.refresh()

    def value(self, name: str, kind: pa.DataType, n: int) -> Any:
        pick = self.random
        if name == "id":
            return n
        if pick.random() < 0.1:
            return None
        if pa.types.is_struct(kind):
            return {f.name: self.value(f.name, f.type, n) for f in kind}
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return [pick.randint(0, 9) for _ in range(pick.randint(0, 3))]
        if pa.types.is_map(kind):
            return [(k, pick.randint(0, 9)) for k in pick.sample("abc", pick.randint(0, 2))]
        if pa.types.is_boolean(kind):
            return pick.random() < 0.5
        if pa.types.is_integer(kind):
            return pick.randint(-3, 3)
        if pa.types.is_floating(kind):
            return pick.choice([0.5, 1e9, float("nan")])
        if pa.types.is_decimal(kind):
            return Decimal(pick.randint(-999, 999)).scaleb(-2)
        if pa.types.is_date(kind):
            return DAY + timedelta(days=pick.randint(-40, 40))
        if pa.types.is_timestamp(kind):
            found = ZERO + timedelta(hours=pick.randint(-40, 40), microseconds=pick.randint(0, 9))
            return found if kind.tz is None else found.replace(tzinfo=UTC)
        if isinstance(kind, pa.BaseExtensionType):
            return UUID(int=pick.getrandbits(128)).bytes
        if pa.types.is_fixed_size_binary(kind):
            return pick.randbytes(kind.byte_width)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return pick.randbytes(2)
        return pick.choice(["", "ab", "abc", "é", "zz"])

    def rows(self, count: int | None = None) -> pa.Table:
        count = self.random.randint(1, 80) if count is None else count
        first, self.next_id = self.next_id, self.next_id + count
        schema = self.table.schema().as_arrow()
        arrays = []
        for field in schema:
            values = [self.value(field.name, field.type, n) for n in range(first, first + count)]
            kind = field.type
            if isinstance(kind, pa.BaseExtensionType):
                arrays.append(
                    pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
                )
            else:
                arrays.append(pa.array(values, kind))
        return pa.Table.from_arrays(arrays, schema=schema)

    def append(self) -> None:
        self.table.append(self.rows())

    def condition(self) -> Any:
        low = self.random.randint(0, max(1, self.next_id))
        names = self.table.schema().column_names
        choices = [And(GreaterThanOrEqual("id", low), LessThan("id", low + 30)), EqualTo("id", low)]
        if "s" in names:
            choices.append(IsNull("s"))
        if "a" in names:
            choices.append(GreaterThan("a", 2))
        return self.random.choice(choices)

    def delete(self) -> None:
        self.table.delete(self.condition())

    def overwrite(self) -> None:
        self.table.overwrite(self.rows(20), overwrite_filter=self.condition())

    def add(self) -> None:
        # Names come back: a column that was dropped must not.
        name = self.random.choice(["a", "s", "f", "v"])
        kind = self.random.choice([IntegerType(), StringType(), FloatType()])
        with self.table.update_schema() as update:
            if self.random.random() < 0.3:
                update.add_column(("z", name), kind)
            else:
                update.add_column(name, kind)

    def drop(self) -> None:
        with self.table.update_schema() as update:
            update.delete_column(self.random.choice(["a", "s", "f", "v", "z.x", "n", "l"]))

    def rename(self) -> None:
        with self.table.update_schema() as update:
            old, new = self.random.sample(["a", "s", "f", "v"], 2)
            update.rename_column(old, new)

    def widen(self) -> None:
        with self.table.update_schema() as update:
            name, kind = self.random.choice(
                [
                    ("a", LongType()),
                    ("f", DoubleType()),
                    ("n", DecimalType(12, 2)),
                    ("z.x", LongType()),
                ]
            )
            update.update_column(name, field_type=kind)

    def move(self) -> None:
        with self.table.update_schema() as update:
            update.move_first(self.random.choice(["s", "d", "z"]))

    def partition(self) -> None:
        with self.table.update_spec() as update:
            fields = self.table.spec().fields
            if fields and self.random.random() < 0.5:
                update.remove_field(fields[0].name)
            else:
                name, transform = self.random.choice(TRANSFORMS)
                update.add_field(name, transform, f"q{self.random.randint(0, 99)}")

    def add_files(self) -> None:
        """A file of another writer: without ids, under the names of now."""
        rows = self.rows(15)
        plain = pa.schema([f.remove_metadata() for f in rows.schema])
        path = self.root / "data" / f"added-{self.next_id}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        names = [n for n in rows.column_names if n not in ("z", "l", "m", "u")]
        plain = pa.schema([pa.field(n, plain.field(n).type) for n in names])
        pq.write_table(rows.select(names).cast(plain), path)
        self.table.add_files([f"file://{path}"])


def main() -> None:
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    catalog = InMemoryCatalog("c", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    for seed in map(int, sys.argv[2:]):
        history = History(catalog, folder, seed)
        for n in range(1, 13):
            history.step()
            if n % 6 == 0:
                print(json.dumps({"metadata": history.table.metadata_location, "log": history.log}))


if __name__ == "__main__":
    main()

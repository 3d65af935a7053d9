"""Spark with Iceberg Java, in a separate environment: run as a program.

`by_spark.py read OUT TABLE…`: the rows of each published table, found by its folder as Hadoop tables are.
`by_spark.py write OUT WAREHOUSE SEED…`: tables with random histories in a new warehouse, by Spark's SQL.
`by_spark.py sql OUT WAREHOUSE STATEMENT…`: statements, in which `w` is the warehouse as a Hadoop catalog.

OUT is a pickled list, for each table or statement: the rows as dicts of plain values, or why it is refused,
as text; for tables that were written, the metadata file with them.

The environment has pyspark 3.5 and `snowpark-connect-deps-iceberg`, a wheel that carries Iceberg's runtime
for it, but not the Jackson that the runtime brings along under a name of its own. Spark's own Jackson takes
its place: its classes are copied under that name.
"""

from __future__ import annotations

import pickle
import random
import struct
import sys
import tempfile
import zipfile
from collections.abc import Callable
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any

HERE = b"com/fasterxml/jackson"
THERE = b"org/apache/iceberg/shaded/com/fasterxml/jackson"
# Bytes behind the tag of a constant (The Java Virtual Machine Specification, 4.4); texts have tag 1.
CONSTANTS = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    9: 4,
    10: 4,
    11: 4,
    12: 4,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
}


def relocated(data: bytes) -> bytes:
    """A Java class with its own package and those it names under the other name."""
    (count,) = struct.unpack_from(">H", data, 8)
    out, at, n = bytearray(data[:10]), 10, 1
    while n < count:
        tag = data[at]
        if tag == 1:
            (length,) = struct.unpack_from(">H", data, at + 1)
            text = data[at + 3 : at + 3 + length].replace(HERE, THERE)
            text = text.replace(HERE.replace(b"/", b"."), THERE.replace(b"/", b"."))
            out += b"\x01" + struct.pack(">H", len(text)) + text
            at += 3 + length
        else:
            out += data[at : at + 1 + CONSTANTS[tag]]
            at += 1 + CONSTANTS[tag]
            n += tag in (5, 6)  # long and double take two places
        n += 1
    return bytes(out) + data[at:]


def shaded_jackson(target: Path, jars: Path) -> Path:
    with zipfile.ZipFile(target, "w") as out:
        for part in ("core", "databind", "annotations"):
            [jar] = jars.glob(f"jackson-{part}-[0-9]*.jar")
            if "asl" in jar.name:
                continue
            with zipfile.ZipFile(jar) as found:
                for name in found.namelist():
                    if name.startswith(HERE.decode()) and name.endswith(".class"):
                        out.writestr(
                            name.replace(HERE.decode(), THERE.decode()), relocated(found.read(name))
                        )
    return target


def session(folder: Path, warehouse: str) -> Any:
    import pyspark
    import snowpark_connect_deps_iceberg
    from pyspark.sql import SparkSession

    jars = Path(snowpark_connect_deps_iceberg.__file__).parent / "jars"
    [runtime] = jars.glob("iceberg-spark-runtime-3.5_2.12-*.jar")
    jackson = shaded_jackson(folder / "jackson.jar", Path(pyspark.__file__).parent / "jars")
    settings = {
        "spark.jars": f"{runtime},{jackson}",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.w": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.w.type": "hadoop",
        "spark.sql.catalog.w.warehouse": warehouse,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def rows_of(frame: Any) -> list[dict[str, Any]]:
    return [plain(row, frame.schema) for row in frame.collect()]


def plain(value: Any, kind: Any) -> Any:
    from pyspark.sql import types

    if value is None:
        return None
    match kind:
        case types.StructType():
            return {f.name: plain(value[n], f.dataType) for n, f in enumerate(kind.fields)}
        case types.ArrayType():
            return [plain(each, kind.elementType) for each in value]
        case types.MapType():
            return sorted(
                (plain(k, kind.keyType), plain(v, kind.valueType)) for k, v in value.items()
            )
        case types.BinaryType():
            return bytes(value)
        case types.TimestampType():
            return value.replace(tzinfo=UTC)
    return value


def read(spark: Any, folder: str) -> Any:
    return attempt(lambda: spark.read.format("iceberg").load(folder))


def attempt(work: Callable[[], Any]) -> Any:
    try:
        return rows_of(work())
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return text[:2_000]


# -- writing --------------------------------------------------------------------------------------

PARTITIONS = (
    *("", "bucket(3, id)", "truncate(2, s)", "days(t)", "s", "bucket(2, s), months(t)"),
    "f",  # NaN equals nothing, and is a partition; -0.0 equals 0.0, and is another
)


class Written:
    """One table and what may happen to it."""

    def __init__(self, spark: Any, seed: int) -> None:
        self.spark, self.random = spark, random.Random(seed)
        self.name = f"w.d.t{seed}"
        self.rows = 0
        self.columns = {"id": "bigint", "s": "string", "t": "timestamp", "n": "int", "f": "double"}
        by = self.random.choice(PARTITIONS)
        version = self.random.choice([2, 3, 3])
        modes = ", ".join(
            f"'write.{what}.mode'='merge-on-read'" for what in ("delete", "update", "merge")
        )
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        spark.sql(
            f"CREATE TABLE {self.name} ({columns}) USING iceberg "
            f"{f'PARTITIONED BY ({by})' if by else ''} "
            f"TBLPROPERTIES ('format-version'='{version}', {modes})"
        )
        self.steps: tuple[Callable[[], None], ...] = (
            *(self.insert, self.insert, self.delete, self.delete, self.update, self.merge),
            *(self.add, self.rename, self.widen, self.repartition, self.compact),
        )
        self.insert()
        for _ in range(10):
            self.random.choice(self.steps)()

    def sql(self, text: str) -> None:
        self.spark.sql(text)

    def insert(self) -> None:
        count = self.random.randint(1, 60)
        first, self.rows = self.rows, self.rows + count
        values = {
            "id": "id",
            "s": "IF(id % 7 = 0, NULL, CONCAT('s', id % 5))",
            "t": "timestamp_seconds(1700000000 + id * 40000)",
            "n": "CAST(id % 9 AS INT)",
            "f": "DOUBLE(ELT(1 + id % 5, 'NaN', '-0.0', '0.0', NULL, '0.5'))",
        }
        picked = ", ".join(values.get(name, f"CAST(id AS {kind})") for name, kind in self.now())
        self.sql(f"INSERT INTO {self.name} SELECT {picked} FROM range({first}, {self.rows})")

    def now(self) -> list[tuple[str, str]]:
        return list(self.columns.items())

    def condition(self) -> str:
        low = self.random.randint(0, max(1, self.rows))
        return self.random.choice(
            [f"id BETWEEN {low} AND {low + 15}", "s = 's3'", "s IS NULL", f"id % 11 = {low % 11}"]
        )

    def delete(self) -> None:
        self.sql(f"DELETE FROM {self.name} WHERE {self.condition()}")

    def update(self) -> None:
        self.sql(f"UPDATE {self.name} SET s = 'changed' WHERE {self.condition()}")

    def merge(self) -> None:
        low = self.random.randint(0, max(1, self.rows))
        self.sql(
            f"MERGE INTO {self.name} t USING (SELECT * FROM range({low}, {low + 9})) u ON t.id = u.id "
            "WHEN MATCHED AND u.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'merged'"
        )

    def add(self) -> None:
        name = f"c{len(self.columns)}"
        self.sql(f"ALTER TABLE {self.name} ADD COLUMN {name} double")
        self.columns[name] = "double"

    def rename(self) -> None:
        extra = [name for name in self.columns if name.startswith("c")]
        if extra:
            old, new = extra[0], f"{extra[0]}x"
            self.sql(f"ALTER TABLE {self.name} RENAME COLUMN {old} TO {new}")
            self.columns = {new if n == old else n: kind for n, kind in self.columns.items()}

    def widen(self) -> None:
        self.sql(f"ALTER TABLE {self.name} ALTER COLUMN n TYPE bigint")
        self.columns["n"] = "bigint"

    def repartition(self) -> None:
        self.sql(
            f"ALTER TABLE {self.name} ADD PARTITION FIELD bucket({self.random.randint(2, 9)}, n)"
        )

    def compact(self) -> None:
        self.sql(f"CALL w.system.rewrite_data_files(table => '{self.name[2:]}')")


def write(spark: Any, warehouse: str, seed: int) -> Any:
    made = Written(spark, seed)
    rows = rows_of(spark.table(made.name))
    [newest] = spark.sql(
        f"SELECT file FROM {made.name}.metadata_log_entries ORDER BY timestamp DESC LIMIT 1"
    ).collect()
    return rows, str(newest[0])


def main() -> None:
    what, out, *rest = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        warehouse = f"{folder}/w" if what == "read" else rest[0]
        spark = session(Path(folder), warehouse)
        try:
            match what:
                case "write":
                    found = [write(spark, warehouse, int(seed)) for seed in rest[1:]]
                case "sql":
                    found = [attempt(partial(spark.sql, text)) for text in rest[1:]]
                case _:
                    found = [read(spark, table) for table in rest]
        finally:
            spark.stop()
    Path(out).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main()

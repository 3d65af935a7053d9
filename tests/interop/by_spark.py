"""Spark with Iceberg Java, in a separate environment: run as a program.

`by_spark.py read OUT TABLE…`: the rows of each published table, found by its folder as Hadoop tables are.
`by_spark.py write OUT WAREHOUSE SEED…`: tables with random histories in a new warehouse, by Spark's SQL.
`by_spark.py sql OUT WAREHOUSE STATEMENT…`: statements, in which `w` is the warehouse as a Hadoop catalog.

`by_spark.py rest URI`: each line of input is a statement as JSON, in which `lake` is the REST catalog at
URI; each line of output is the answer, rows or a dictionary with the error.

OUT is a pickled list, for each table or statement: the rows as dicts of plain values, or why it is refused,
as text; for tables that were written, the metadata file with them.

The environment is that of `make iceberg-java`: pyspark 3.5 and `snowpark-connect-deps-iceberg`, a wheel
that carries Iceberg's runtime for it, but neither the Jackson nor the HTTP client that the runtime brings
along under names of its own. Spark's own Jackson takes the place of the one, and the client in
`bodo-iceberg-connector` of the other: their classes are copied under those names.
"""

from __future__ import annotations

import json
import pickle
import random
import struct
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

SHADED = b"org/apache/iceberg/shaded/"
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


def relocated(data: bytes, package: bytes) -> bytes:
    """A Java class with the names of `package` under Iceberg's own."""
    (count,) = struct.unpack_from(">H", data, 8)
    out, at, n = bytearray(data[:10]), 10, 1
    while n < count:
        tag = data[at]
        if tag == 1:
            (length,) = struct.unpack_from(">H", data, at + 1)
            text = data[at + 3 : at + 3 + length].replace(package, SHADED + package)
            dotted = package.replace(b"/", b".")
            text = text.replace(dotted, SHADED.replace(b"/", b".") + dotted)
            out += b"\x01" + struct.pack(">H", len(text)) + text
            at += 3 + length
        else:
            out += data[at : at + 1 + CONSTANTS[tag]]
            at += 1 + CONSTANTS[tag]
            n += tag in (5, 6)  # long and double take two places
        n += 1
    return bytes(out) + data[at:]


def shaded(target: Path, package: str, jars: Iterable[Path]) -> Path:
    with zipfile.ZipFile(target, "w") as out:
        for jar in jars:
            with zipfile.ZipFile(jar) as found:
                for name in found.namelist():
                    if name.startswith(package) and name.endswith(".class"):
                        moved = relocated(found.read(name), package.encode())
                        out.writestr(SHADED.decode() + name, moved)
    return target


def interface(name: str) -> bytes:
    """A Java class that is an interface without methods (The Java Virtual Machine Specification, 4.1)."""
    texts = [name.encode(), b"java/lang/Object"]
    constants = b"".join(
        b"\x07" + struct.pack(">H", 2 * n + 2) + b"\x01" + struct.pack(">H", len(text)) + text
        for n, text in enumerate(texts)
    )
    head = struct.pack(">IHHH", 0xCAFEBABE, 0, 52, 2 * len(texts) + 1)
    return head + constants + struct.pack(">HHHHHHH", 0x0601, 1, 3, 0, 0, 0, 0)


def jars_for(folder: Path) -> Iterator[Path]:
    import bodo_iceberg_connector
    import pyspark
    import snowpark_connect_deps_iceberg

    [runtime] = _beside(snowpark_connect_deps_iceberg).glob("iceberg-spark-runtime-3.5_2.12-*.jar")
    yield runtime
    spark = _beside(pyspark)
    jackson = [
        *spark.glob("jackson-core-2*.jar"),
        *spark.glob("jackson-databind-2*.jar"),
        *spark.glob("jackson-annotations-2*.jar"),
    ]
    yield shaded(folder / "jackson.jar", "com/fasterxml/jackson", jackson)
    client = (_beside(bodo_iceberg_connector) / "libs").glob("http*5-*.jar")
    http = shaded(folder / "http.jar", "org/apache/hc", client)
    # Of the next release of the client: Iceberg asks for it where TLS is configured.
    missing = SHADED.decode() + "org/apache/hc/client5/http/ssl/TlsSocketStrategy"
    with zipfile.ZipFile(http, "a") as jar:
        jar.writestr(f"{missing}.class", interface(missing))
    yield http


def _beside(package: Any) -> Path:
    return Path(package.__file__).parent / "jars"


def session(folder: Path, warehouse: str, more: Mapping[str, str] = MappingProxyType({})) -> Any:
    """`warehouse` is the URI of a REST catalog, or a folder; `more` are Spark's settings."""
    from pyspark.sql import SparkSession

    is_rest = warehouse.startswith("http")
    name = "lake" if is_rest else "w"
    catalog = {"type": "rest", "uri": warehouse} if is_rest else {}
    catalog = catalog or {"type": "hadoop", "warehouse": warehouse}
    settings = {
        "spark.jars": ",".join(map(str, jars_for(folder))),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{name}": "org.apache.iceberg.spark.SparkCatalog",
        **{f"spark.sql.catalog.{name}.{k}": v for k, v in catalog.items()},
        # A catalog keeps a table that it has loaded for half a minute.
        f"spark.sql.catalog.{name}.cache-enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **more,
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


def answer(spark: Any) -> None:
    for line in sys.stdin:
        found = attempt(partial(spark.sql, json.loads(line)))
        found = {"error": found} if isinstance(found, str) else found
        print(json.dumps(found, default=str), flush=True)


def main() -> None:
    what, out, *rest = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if what == "rest":
            answer(session(Path(folder), out))
            return
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

"""Every verb of docs/SPARK.md's table of releases, on the PySpark of the Python that runs this.

    python tests/sparks/verbs.py

Prints one JSON object: verb to "yes", or to the words of the refusal. Any other failure, and a row that is
wrong, end it. It needs no pytest: the environments of older releases have what a cluster has.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

LAYER = Path(__file__).parents[2] / "layers" / "inlay"
sys.path.insert(0, str(LAYER))
# Spark's Python processes find the package there.
os.environ["PYTHONPATH"] = str(LAYER)

import pyarrow as pa  # noqa: E402

import inlay  # noqa: E402
from inlay.spark import InlayTable, append, count, explain, local_session, read, sql, view  # noqa: E402
from inlay.spark.maintenance import compact, materialize_deletes  # noqa: E402
from inlay.spark.merge import merge  # noqa: E402
from inlay.spark.merge_sink import MergeSink  # noqa: E402

VERBS: dict[str, Callable[[Verbs], None]] = {}
Rows = dict[int, tuple[str | None, int | None]]


def verb(name: str) -> Callable[[Callable[[Verbs], None]], None]:
    def add(run: Callable[[Verbs], None]) -> None:
        VERBS[name] = run

    return add


class Verbs:
    """One table, its rows by key as they must be, and a session."""

    def __init__(self, folder: str) -> None:
        self.spark = local_session(app="verbs", settings={"spark.log.level": "OFF"})
        self.folder = f"file://{folder}"
        self.uri = f"{self.folder}/table"
        columns = [("name", pa.string()), ("seq", pa.int64())]
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *columns])
        inlay.create(self.uri, schema, primary_key="id")
        self.rows: Rows = {}

    def frame(self, *rows: tuple[Any, ...], columns: str = "id long, name string, seq long") -> Any:
        return self.spark.createDataFrame(list(rows), columns)

    def put(self, *rows: tuple[int, str | None, int | None]) -> Any:
        self.rows |= {key: (name, seq) for key, name, seq in rows}
        return self.frame(*rows)

    def check(self) -> None:
        found = inlay.open(self.uri).scan().to_arrow().to_pylist()
        assert len(found) == len(self.rows), (found, self.rows)
        assert {row["id"]: (row["name"], row["seq"]) for row in found} == self.rows

    def stream(self, name: str, start: Callable[[Any], Any]) -> None:
        """Runs a stream over a file of two new rows until its end."""
        number = 100 * (len(self.rows) + 1)
        rows = self.put((number, name, 9), (number + 1, None, 9))
        source = f"{self.folder}/{name}"
        rows.selectExpr("*", "'U' AS op").write.parquet(source)
        reader = self.spark.readStream.schema("id long, name string, seq long, op string")
        writer = reader.parquet(source).writeStream.trigger(availableNow=True)
        start(writer.option("checkpointLocation", f"{source}-c")).awaitTermination()


@verb("append")
def _(v: Verbs) -> None:
    append(v.put((1, "a", 1), (2, None, 1), (3, "c", None)), v.uri)
    append(v.put((4, "d", 1)), v.uri, native="never")


@verb('df.write.format("inlay")')
def _(v: Verbs) -> None:
    v.put((5, "e", 1)).write.format("inlay").mode("append").save(v.uri)


@verb("read, view, count")
def _(v: Verbs) -> None:
    view(v.spark, "people", v.uri)
    for native in ("auto", "never"):
        found = read(v.spark, v.uri, native=native).collect()
        assert {row[0]: (row[1], row[2]) for row in found} == v.rows
    assert v.spark.sql("SELECT count(*) FROM people").first()[0] == count(v.spark, v.uri) == 5


@verb('spark.read.format("inlay")')
def _(v: Verbs) -> None:
    source = v.spark.read.format("inlay")
    assert source.option("where", "id < 3").load(v.uri).count() == 2
    assert v.spark.read.format("inlay").option("table", "history").load(v.uri).count() == 4


@verb("the change feed, by batch")
def _(v: Verbs) -> None:
    feed = v.spark.read.format("inlay").option("changeFeed", "true").option("startVersion", 2)
    assert feed.load(v.uri).groupBy("_change_type").count().collect() == [("insert", 5)]


@verb("sql: UPDATE, DELETE, MERGE")
def _(v: Verbs) -> None:
    sql(v.spark, "UPDATE people SET name = :n WHERE id = 1", {"n": "it's"})
    sql(v.spark, "DELETE FROM people WHERE id IN (SELECT id FROM people WHERE name IS NULL)")
    sql(
        v.spark,
        "WITH c AS (SELECT explode(array(3L, 6L)) AS id, 'm' AS name, 2L AS seq) MERGE INTO people t "
        "USING c ON t.id = c.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )
    v.rows |= {1: ("it's", 1), 3: ("m", 2), 6: ("m", 2)}
    del v.rows[2]


@verb("sql: INSERT, CREATE TABLE AS, VERSION AS OF")
def _(v: Verbs) -> None:
    sql(v.spark, "INSERT INTO people (id, name) VALUES (7, DEFAULT)")
    sql(v.spark, "INSERT INTO people REPLACE WHERE id IN (7, 8) SELECT 8L, 'r', 3L")
    place = f"LOCATION '{v.folder}/other'"
    create = f"CREATE TABLE other USING inlay PARTITIONED BY (bucket(2, id)) {place}"
    sql(v.spark, f"{create} AS SELECT * FROM people")
    sql(v.spark, "INSERT OVERWRITE other SELECT * FROM people VERSION AS OF 2")
    assert sql(v.spark, "SELECT sum(id) FROM other").first()[0] == 6
    assert sql(v.spark, "DESCRIBE HISTORY people").count() > 5
    v.rows[8] = ("r", 3)


@verb("InlayTable")
def _(v: Verbs) -> None:
    InlayTable(v.spark, v.uri).update({"seq": "seq + 1"}, "id = 4")
    InlayTable(v.spark, v.uri).delete("id = 5")
    v.rows[4] = ("d", 2)
    del v.rows[5]
    # Deletes by position, which Spark's own reader applies.
    assert explain(v.spark, v.uri).source_files == 0
    assert {row[0]: (row[1], row[2]) for row in read(v.spark, v.uri).collect()} == v.rows


@verb("merge (change records)")
def _(v: Verbs) -> None:
    columns = "id long, name string, seq long, op string"
    records = v.frame((1, "z", 7, "U"), (3, None, 8, "D"), (4, "late", 1, "U"), columns=columns)
    merge(records, v.uri, order="seq")
    v.rows[1] = ("z", 7)
    del v.rows[3]


@verb("compact, materialize_deletes")
def _(v: Verbs) -> None:
    materialize_deletes(v.spark, v.uri)
    compact(v.spark, v.uri, small_bytes=1 << 30)


@verb("foreachBatch with append")
def _(v: Verbs) -> None:
    def save(batch: Any, number: int) -> None:
        append(batch.drop("op"), v.uri, request_id=f"batch {number}")

    v.stream("saved", lambda writer: writer.foreachBatch(save).start())


@verb("foreachBatch with MergeSink")
def _(v: Verbs) -> None:
    v.stream("merged", lambda writer: writer.foreachBatch(MergeSink(v.uri, order="seq")).start())


@verb('writeStream.format("inlay")')
def _(v: Verbs) -> None:
    rows = dict(v.rows)
    try:
        plain = "id long, name string, seq long"
        source = f"{v.folder}/sunk"
        v.put((9_000, "s", 9)).write.parquet(source)
        reader = v.spark.readStream.schema(plain).parquet(source)
        writer = reader.writeStream.format("inlay").trigger(availableNow=True)
        writer.option("checkpointLocation", f"{source}-c").start(v.uri).awaitTermination()
    except Exception:
        v.rows = rows
        raise


@verb('readStream.format("inlay")')
def _(v: Verbs) -> None:
    stream = v.spark.readStream.format("inlay").load(v.uri).writeStream.format("memory")
    stream.queryName("seen").trigger(availableNow=True).start().awaitTermination()
    assert v.spark.table("seen").count() == len(v.rows)


def main() -> None:
    told = {}
    with tempfile.TemporaryDirectory() as folder:
        v = Verbs(folder)
        for name, run in VERBS.items():
            print(name, file=sys.stderr, flush=True)
            try:
                run(v)
                told[name] = "yes"
            except Exception as error:
                words = str(error)
                if "needs PySpark" not in words:
                    raise
                told[name] = "from " + words.split("needs PySpark ")[1].split(" or newer")[0]
            v.check()
        v.spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main()

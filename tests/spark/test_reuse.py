"""A DataFrame is read as often as one likes, filtered in any way, and each query gets its own rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay

from .conftest import load, three_files

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

TEN = pa.table({"id": pa.array(range(10), pa.int64())})


def ids(frame: Any) -> list[int]:
    return sorted(row[0] for row in frame.select("id").collect())


def test_a_filter_of_one_query_is_not_of_the_next(either_way: Any, new_table: NewTable) -> None:
    frame = load(either_way, new_table(TEN))
    assert frame.where("id < 3").count() == 3
    assert frame.count() == 10
    assert ids(frame.where("id > 7")) == [8, 9]
    assert frame.count() == 10


def test_both_sides_of_a_union_and_of_a_self_join_get_their_rows(
    either_way: Any, new_table: NewTable
) -> None:
    frame = load(either_way, new_table(TEN))
    assert ids(frame.where("id < 2").union(frame.where("id > 7"))) == [0, 1, 8, 9]
    joined = frame.where("id < 5").alias("a").join(frame.where("id > 2").alias("b"), "id")
    assert ids(joined) == [3, 4]
    assert frame.where("id = 9").crossJoin(frame.where("id = 1").toDF("other")).count() == 1


def test_a_view_and_a_cached_frame_keep_all_rows(either_way: Any, new_table: NewTable) -> None:
    frame = load(either_way, new_table(TEN))
    frame.createOrReplaceTempView("reused")
    assert either_way.sql("SELECT count(*) FROM reused WHERE id < 4").first() == (4,)
    assert either_way.sql("SELECT count(*) FROM reused").first() == (10,)
    assert frame.where("id < 3").count() == 3
    cached = frame.cache()
    assert cached.where("id >= 8").count() == 2
    assert cached.count() == 10
    cached.unpersist()


def test_an_overwrite_from_a_frame_that_was_filtered_before_loses_nothing(
    either_way: Any, new_table: NewTable
) -> None:
    table = new_table(TEN)
    frame = load(either_way, table)
    assert frame.where("id = 3").count() == 1
    frame.selectExpr("id + 100 AS id").write.format("inlay").mode("overwrite").save(table.uri)
    assert ids(load(either_way, table)) == list(range(100, 110))


@pytest.mark.parametrize("seed", range(2))
def test_queries_in_any_order_give_what_each_gives_alone(
    either_way: Any, new_table: NewTable, seed: int
) -> None:
    """Filters with NaN, zeros of both signs, NULL and extremes, over and over on one DataFrame."""
    chance = random.Random(seed)
    corners = [math.nan, -0.0, 0.0, math.inf, -math.inf, None, 1.5, -1.5, 5e-324, 1.7e308]
    values = [chance.choice(corners) for _ in range(60)]
    schema = pa.schema([("id", pa.int64()), ("f", pa.float64())])
    table = new_table(schema, properties={"write.row_group_rows": 7})
    for start in (0, 20, 40):
        part = {"id": range(start, start + 20), "f": values[start : start + 20]}
        table.append(pa.table(part, schema=schema))
    frame = load(either_way, table)
    native = inlay.spark.read(either_way, table.uri)
    for _ in range(8):
        chosen = chance.sample(corners, chance.randrange(1, 4))
        condition, holds = chance.choice(
            [
                (f"f IN ({', '.join(map(_sql, chosen))})", lambda v, c=chosen: _among(v, c)),
                *(
                    (f"f {op} {_sql(chosen[0])}", lambda v, c=chosen, op=op: _holds(v, op, c[0]))
                    for op in ("=", "<", "<=", ">", ">=")
                ),
            ]
        )
        expected = [n for n, value in enumerate(values) if holds(value)]
        assert ids(frame.where(condition)) == expected, condition
        assert ids(native.where(condition)) == expected, condition
        where = inlay.spark.read(either_way, table.uri, where=_inlay(condition))
        assert ids(where) == expected, condition
    assert frame.count() == len(values)


def _sql(value: float | None) -> str:
    return "NULL" if value is None else f"double('{value}')"


def _inlay(condition: str) -> str:
    return condition.replace("double('", "DOUBLE '").replace("')", "'")


def _key(value: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(value) else (False, value)


def _among(value: float | None, chosen: list[float | None]) -> bool:
    return value is not None and any(c is not None and _key(c) == _key(value) for c in chosen)


def _holds(value: float | None, op: str, other: float | None) -> bool:
    if value is None or other is None:
        return False
    left, right = _key(value), _key(other)
    return {
        "=": left == right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


def test_names_are_found_in_any_case(either_way: Any, new_table: NewTable) -> None:
    table = three_files(new_table)
    assert load(either_way, table, columns="ID, Amount").columns == ["id", "amount"]
    assert inlay.spark.read(either_way, table.uri, columns=["NAME"], where="ID < 3").count() == 3
    asked = either_way.read.format("inlay").schema("ID bigint").load(table.uri)
    assert (asked.columns, asked.where("id < 5").count()) == (["ID"], 5)
    rows = either_way.createDataFrame([(7_000, "x")], "ID bigint, Name string")
    rows.write.format("inlay").mode("append").save(table.uri)
    [found] = table.refresh().scan(where="id = 7000").to_arrow().to_pylist()
    assert found == {"id": 7_000, "name": "x", "amount": None}


def test_a_table_of_the_catalog_is_refused_by_the_writer(
    spark: Any, new_table: NewTable, tmp_path: Path
) -> None:
    table = new_table(TEN)
    writer = spark.range(3).write.format("inlay").mode("append")
    with pytest.raises(Exception, match="Spark's catalog"):
        writer.saveAsTable("nowhere")
    with pytest.raises(Exception, match="Spark's catalog"):
        writer.option("path", table.uri).saveAsTable("nowhere")
    assert spark.sql("SHOW TABLES").where("tableName = 'nowhere'").count() == 0
    assert table.refresh().count() == 10

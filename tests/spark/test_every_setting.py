"""Each boolean setting of Spark SQL, flipped: what is read, written and merged stays the same."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.spark import InlayTable, append, read, view
from inlay.spark.merge import merge

from .conftest import load
from .test_settings import having

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

NewTable = Callable[..., inlay.Table]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.int32()),
        ("name", pa.string()),
        ("wall", pa.timestamp("us")),
        ("at", pa.timestamp("us", "UTC")),
        ("real", pa.float64()),
        ("day", pa.date32()),
        ("wide", pa.decimal128(38, 10)),
        ("many", pa.list_(pa.int64())),
        ("part", pa.struct([("q", pa.int64()), ("R s", pa.string())])),
        ("by", pa.map_(pa.string(), pa.int64())),
        ("raw", pa.binary()),
        ("a.b `c", pa.string()),
    ]
)
CORNERS = [math.nan, -0.0, 0.0, 1.5, None]
CONDITIONS = [
    "real > 1 OR name LIKE 'name 1%'",
    "real = 0",
    "at < TIMESTAMP '1510-01-01T00:00:00Z'",
    "wall >= TIMESTAMP '1515-01-01 00:00:00'",
    "day = DATE '1507-02-28'",
    "small IN (1, 2) AND NOT (id < 4)",
    "raw > X'0A'",
]
# How often the settings are shuffled and cut in two; each is flipped once a shuffle.
SHUFFLES = 2


def rows(start: int, number: int) -> pa.Table:
    ids = range(start, start + number)
    return pa.table(
        {
            "id": ids,
            "small": [n % 5 for n in ids],
            "name": [None if n % 7 == 0 else f"name {n % 3} " for n in ids],
            "wall": [dt.datetime(1500 + n, 1, 1, 3, 0, 0, 7) for n in ids],
            "at": [dt.datetime(1500 + n, 1, 1, 3, tzinfo=dt.UTC) for n in ids],
            "real": [CORNERS[n % 5] for n in ids],
            "day": [dt.date(1500 + n, 2, 28) for n in ids],
            "wide": [Decimal(10**27) + n for n in ids],
            "many": [None if n % 6 == 0 else [n] * (n % 3) for n in ids],
            "part": [None if n % 9 == 0 else {"q": n, "R s": "é"} for n in ids],
            "by": [None if n % 8 == 0 else [("k", n), ("", None)] for n in ids],
            "raw": [bytes([n, 0, 255]) for n in ids],
            "a.b `c": [f"{n}\U0001f600" for n in ids],
        },
        schema=SCHEMA,
    )


def shown(found: pa.Table) -> list[str]:
    return sorted(map(str, found.select(SCHEMA.names).cast(SCHEMA).to_pylist()))


def battery(spark: Any, base: inlay.Table, new_table: NewTable) -> dict[str, Any]:
    """What a session reads of `base`, and what it makes of tables that it writes it to."""
    found: dict[str, Any] = {
        "native": shown(read(spark, base.uri).toArrow()),
        "source": shown(load(spark, base).toArrow()),
    }
    for condition in CONDITIONS:
        kept = read(spark, base.uri, columns=["id"], where=condition).collect()
        found[condition] = sorted(row[0] for row in kept)
    view(spark, "flipped", base.uri)
    asked = "SELECT count(*), count(a.name) FROM flipped a JOIN flipped b USING (id)"
    found["view"] = tuple(spark.sql(asked).first())
    written = new_table(SCHEMA, primary_key="id")
    append(read(spark, base.uri), written.uri)
    found["append"] = shown(written.refresh().scan().to_arrow())
    cut = new_table(SCHEMA, partition_by=["small"])
    append(read(spark, base.uri), cut.uri)
    found["by the source"] = shown(cut.refresh().scan().to_arrow())
    values = {"name": "upper(name)", "small": "small + 1"}
    changed = InlayTable(spark, written.uri).update(values, "id < 10 AND real IS NOT NULL")
    found["update"] = changed.updated
    found["updated"] = shown(written.refresh().scan().to_arrow())
    moved = read(spark, base.uri, where="id >= 35")
    merged = (
        InlayTable(spark, written.uri)
        .alias("t")
        .merge(moved.withColumn("id", moved.id + 3).alias("s"), "t.id = s.id")
        .whenMatchedUpdate("s.small > 1", set={"name": "concat(s.name, '!')", "real": "s.real"})
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceDelete("t.id < 2")
        .execute()
    )
    found["merge"] = (merged.updated, merged.deleted, merged.inserted)
    found["merged"] = shown(written.refresh().scan().to_arrow())
    changes = read(spark, base.uri, where="id < 12")
    changes = changes.withColumn("small", changes.small + 5)
    changes = changes.selectExpr("*", "CASE WHEN id % 4 = 0 THEN 'D' ELSE 'U' END AS op")
    summary = merge(changes, written.uri, order="small")
    found["records"] = (summary.records, summary.keys, summary.late, summary.rows)
    found["after them"] = shown(written.refresh().scan().to_arrow())
    return found


@pytest.fixture
def base(new_table: NewTable) -> inlay.Table:
    table = new_table(rows(0, 20), primary_key="id")
    table.append(rows(20, 20))
    table.delete("id = 3", mode="vector")
    table.delete(keys=pa.table({"id": [21, 22]}))
    table.delete("name = 'name 2 ' AND id < 6")
    return table.refresh()


def flips(spark: Any) -> list[tuple[str, str]]:
    """Every setting that is true or false and may be set in a session, with the other value."""
    found = []
    for name, shown_as, *_ in sorted(spark.sql("SET -v").collect()):
        # Some are said to be another setting's.
        value = spark.conf.get(name) if shown_as.startswith("<value of") else shown_as
        if value in ("true", "false") and spark.conf.isModifiable(name):
            found.append((name, "false" if value == "true" else "true"))
    return found


def test_no_boolean_setting_changes_what_is_read_written_or_merged(
    spark: Any, new_table: NewTable, base: inlay.Table
) -> None:
    expected = battery(spark, base, new_table)
    assert expected["native"] == expected["source"] == shown(base.scan().to_arrow())
    assert expected["append"] == expected["by the source"] == expected["native"]

    def differs(flipped: Sequence[tuple[str, str]]) -> bool:
        with having(spark, dict(flipped)):
            try:
                return battery(spark, base, new_table) != expected
            except Exception:
                return True

    def culprits(flipped: Sequence[tuple[str, str]]) -> list[str]:
        if not differs(flipped):
            return []
        if len(flipped) == 1:
            return [flipped[0][0]]
        middle = len(flipped) // 2
        found = culprits(flipped[:middle]) + culprits(flipped[middle:])
        # Each half may be right by itself.
        return found or [" with ".join(name for name, _ in flipped)]

    every = flips(spark)
    assert len(every) > 100
    chance = random.Random(16)
    wrong: set[str] = set()
    for _ in range(SHUFFLES):
        chance.shuffle(every)
        middle = len(every) // 2
        wrong.update(culprits(every[:middle]), culprits(every[middle:]))
    assert not wrong

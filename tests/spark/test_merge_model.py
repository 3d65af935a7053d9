"""Random merges against a model in plain Python: keys of every type with their corners, NULL and NaN among
them, each kind of clause, sources with a key twice."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InvalidRequest
from inlay.spark import InlayTable

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]
Row = dict[str, Any]

# The type of the key, and the values that are drawn for it.
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [-(2**63), -1, 0, 1, 2, 3, 2**63 - 1, None]),
    "text": (pa.string(), ["", "a", "A", "ab", "é", "\U0001f600", " a", None]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff", b"ab", b"\x7f", None]),
    "wide": (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(0), None]),
    "fine": (
        pa.decimal128(38, 38),
        [Decimal(1).scaleb(-38), Decimal(0).scaleb(-38), Decimal("-0." + "9" * 38), None],
    ),
    "date": (pa.date32(), [date(1, 1, 1), date(1582, 10, 10), date(2026, 1, 1), date.max, None]),
    "instant": (
        pa.timestamp("us", "UTC"),
        [datetime(1, 1, 2, tzinfo=UTC), datetime(1890, 3, 4, 5, 6, 7, 89, tzinfo=UTC), None],
    ),
    "double": (pa.float64(), [math.nan, -0.0, 0.0, 1.5, math.inf, -math.inf, None]),
    "float": (pa.float32(), [math.nan, -0.0, 0.0, 1.5, math.inf, -math.inf, None]),
}


def is_equal(left: Any, right: Any) -> bool | None:
    """As Spark compares: NaN equals itself, and -0.0 equals 0.0."""
    if left is None or right is None:
        return None
    return bool(left == right or (left != left and right != right))


def is_over(left: int | None, right: int) -> bool | None:
    return None if left is None else left > right


Test = Callable[[Row, Row], bool | None]
# What is asked of a row of the table and one of the source, in SQL and as here.
JOINS: list[tuple[str, Test]] = [
    ("t.k = s.k", lambda t, s: is_equal(t["k"], s["k"])),
    ("t.k <=> s.k", lambda t, s: (t["k"] is s["k"] is None) or is_equal(t["k"], s["k"])),
    ("t.k = s.k AND t.n > 1", lambda t, s: is_equal(t["k"], s["k"]) and is_over(t["n"], 1)),
    ("s.k = t.k AND s.v = 'x'", lambda t, s: is_equal(t["k"], s["k"]) and is_equal(s["v"], "x")),
]
OF_SOURCE: list[tuple[str | None, Test]] = [
    (None, lambda t, s: True),
    ("s.n > 2", lambda t, s: is_over(s["n"], 2)),
    ("NOT (s.n > 2)", lambda t, s: None if s["n"] is None else s["n"] <= 2),
    ("s.v IS NULL", lambda t, s: s["v"] is None),
]
OF_TABLE: list[tuple[str | None, Test]] = [
    (None, lambda t, s: True),
    ("t.n > 2", lambda t, s: is_over(t["n"], 2)),
    ("t.v IN ('x', NULL)", lambda t, s: True if t["v"] == "x" else None),
    ("t.k IS NULL", lambda t, s: t["k"] is None),
]


@dataclass(frozen=True)
class Clause:
    kind: str
    action: str
    asked: str | None
    test: Test
    sql: dict[str, str] | None = None
    # The new row, from the table's and the source's.
    made: Callable[[Row, Row], Row] = field(default=lambda t, s: t)


def drawn(chance: random.Random) -> Clause:
    kind = chance.choice(["matched", "not matched", "not matched by source"])
    if kind == "not matched":
        asked, test = chance.choice(OF_SOURCE)
        if chance.random() < 0.5:
            return Clause(kind, "insert", asked, test, None, lambda t, s: dict(s))
        sql = {"k": "s.k", "v": "concat(s.v, '+')"}
        return Clause(
            kind,
            "insert",
            asked,
            test,
            sql,
            lambda t, s: {"k": s["k"], "v": s["v"] and s["v"] + "+", "n": None},
        )
    asked, test = chance.choice(OF_TABLE + (OF_SOURCE if kind == "matched" else []))
    if chance.random() < 0.4:
        return Clause(kind, "delete", asked, test)
    if kind == "matched" and chance.random() < 0.5:
        return Clause(kind, "update", asked, test, None, lambda t, s: dict(s))
    return Clause(kind, "update", asked, test, {"n": "t.n + 1"}, lambda t, s: {**t, "n": more(t)})


def more(row: Row) -> int | None:
    return None if row["n"] is None else row["n"] + 1


def merged(
    table: list[Row], source: list[Row], join: Test, clauses: Sequence[Clause]
) -> list[Row] | None:
    """What the table becomes; None where the merge is refused."""

    def first(kind: str, t: Row, s: Row) -> Clause | None:
        return next((c for c in clauses if c.kind == kind and c.test(t, s) is True), None)

    matched = [c for c in clauses if c.kind == "matched"]
    only_deletes = [(c.action, c.asked) for c in matched] == [("delete", None)]
    result: list[Row] = []
    for row in table:
        partners = [s for s in source if join(row, s) is True]
        if partners:
            found = [(c, s) for s in partners if (c := first("matched", row, s)) is not None]
        else:
            c = first("not matched by source", row, {})
            found = [] if c is None else [(c, {})]
        if len(found) > 1 and not only_deletes:
            return None
        if not found:
            result.append(row)
        elif found[0][0].action == "update":
            result.append(found[0][0].made(row, found[0][1]))
    for s in source:
        if not any(join(row, s) is True for row in table):
            c = first("not matched", {}, s)
            result += [] if c is None else [c.made({}, s)]
    return result


def shown(rows: list[Row]) -> Counter[str]:
    return Counter(str(sorted(row.items())) for row in rows)


def rows_of(chance: random.Random, values: list[Any], number: int) -> list[Row]:
    return [
        {
            "k": chance.choice(values),
            "v": chance.choice(["x", "y", None]),
            "n": chance.choice([None, 0, 1, 2, 3, 4]),
        }
        for _ in range(number)
    ]


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 60))]
)
def test_random_merges_are_those_of_the_model(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    from inlay.spark import dml

    chance = random.Random(seed)
    # Both ways to find the files that the source can hit.
    monkeypatch.setattr(dml, "KEYS_BYTES", chance.choice([0, 2**30]))
    # Both ways to join it.
    monkeypatch.setattr(dml, "LOOKUP_BYTES", [0, 2**30][seed % 2])
    kind, values = list(KEYS.values())[seed % len(KEYS)]
    schema = pa.schema([("k", kind), ("v", pa.string()), ("n", pa.int32())])
    table = new_table(schema, **({"partition_by": ["v"]} if chance.random() < 0.3 else {}))
    for _ in range(chance.randrange(1, 4)):
        few = chance.sample(values, chance.randrange(1, len(values)))  # so that bounds differ
        table.append(pa.Table.from_pylist(rows_of(chance, few, chance.randrange(1, 5)), schema))
    if chance.random() < 0.5:
        table.delete("n = 0", mode=chance.choice(["tombstone", "vector"]))
    for _ in range(2):
        before = table.refresh().scan().to_arrow().to_pylist()
        source = rows_of(chance, values, chance.randrange(0, 5))
        source = list({repr(s["k"]): s for s in source}.values()) if seed % 3 else source
        asked, join = chance.choice(JOINS)
        clauses = [drawn(chance) for _ in range(chance.randrange(1, 4))]
        given = spark.createDataFrame(pa.Table.from_pylist(source, schema)).alias("s")
        merge = InlayTable(spark, table.uri).alias("t").merge(given, asked)
        for c in clauses:
            every = {} if c.sql is None else {"values" if c.action == "insert" else "set": c.sql}
            name = "when" + c.kind.title().replace(" ", "") + c.action.title()
            name += "All" if c.sql is None and c.action != "delete" else ""
            merge = getattr(merge, name)(c.asked, **every)
        expected = merged(before, source, join, clauses)
        story = (asked, [(c.kind, c.action, c.asked, c.sql) for c in clauses], before, source)
        if expected is None:
            with pytest.raises(InvalidRequest, match="several rows of the source match"):
                merge.execute()
            expected = before
        else:
            merge.execute()
        assert shown(table.refresh().scan().to_arrow().to_pylist()) == shown(expected), story

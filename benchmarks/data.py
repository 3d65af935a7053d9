"""The rows that benchmarks are about, and what is asked of them: the same for every library.

TPC-H's lineitem (16 columns, sorted by order key as its generator makes it), events of many columns, and
rows of unusual shape. Every library's environment imports this: it needs Arrow and numpy alone.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SF1_ROWS = 6_001_215
KEY = ["l_orderkey", "l_linenumber"]
TWO = ["l_extendedprice", "l_shipmode"]
FILES = 20
# Of the table of thousands of columns.
WIDE_ROWS = 1_000
# Columns, condition, limit, and a column to order by, the greatest first.
Query = tuple[Sequence[str] | None, str | None, int | None, str | None]
SCHEMA = pa.schema(
    [
        *((f"l_{name}", pa.int64()) for name in ("orderkey", "partkey", "suppkey")),
        ("l_linenumber", pa.int32()),
        *(
            (f"l_{name}", pa.decimal128(15, 2))
            for name in ("quantity", "extendedprice", "discount", "tax")
        ),
        *((f"l_{name}", pa.string()) for name in ("returnflag", "linestatus")),
        *((f"l_{name}", pa.date32()) for name in ("shipdate", "commitdate", "receiptdate")),
        *((f"l_{name}", pa.string()) for name in ("shipinstruct", "shipmode", "comment")),
    ]
)
# Of the tables whose metadata and cost are counted.
ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("customer", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("amount", pa.decimal128(12, 2)),
        ("status", pa.string()),
        ("country", pa.string()),
        ("quantity", pa.int32()),
        ("note", pa.string()),
    ]
)


def lineitem(rows: int) -> pa.Table:
    """TPC-H's, by its generator; for a small table made up here, the same wherever it is made."""
    if rows < 100_000:
        return made_up(rows)
    return pq.read_table(generated(rows)).slice(0, rows).cast(SCHEMA)


def generated(rows: int) -> Path:
    """The file of at least these rows, made where it is not there."""
    scale = max(0.1, round(rows / SF1_ROWS + 0.005, 2))
    path = Path(tempfile.gettempdir()) / f"inlay-bench-{scale}" / "lineitem.parquet"
    if not path.exists():
        generator = Path(sys.executable).with_name("tpchgen-cli")
        command: list[str | Path] = [generator, "parquet", "-s", str(scale), "--tables=lineitem"]
        subprocess.run(
            [*command, f"--output-dir={path.parent}"], check=True, stdout=subprocess.DEVNULL
        )
    return path


def made_up(rows: int) -> pa.Table:
    dice = random.Random(1)
    day = date(1995, 1, 1)
    words = ["deposits", "furiously", "quickly", "requests", "accounts", "ironic", "final", "the"]
    columns: list[list[Any]] = [
        [n // 4 + 1 for n in range(rows)],
        [dice.randrange(1, 200_000) for _ in range(rows)],
        [dice.randrange(1, 10_000) for _ in range(rows)],
        [n % 4 + 1 for n in range(rows)],
        [Decimal(dice.randrange(1, 51)) for _ in range(rows)],
        [Decimal(dice.randrange(90_000, 10_000_000)) / 100 for _ in range(rows)],
        [Decimal(dice.randrange(11)) / 100 for _ in range(rows)],
        [Decimal(dice.randrange(9)) / 100 for _ in range(rows)],
        [dice.choice("ANR") for _ in range(rows)],
        [dice.choice("OF") for _ in range(rows)],
        *([day + timedelta(dice.randrange(2_500)) for _ in range(rows)] for _ in range(3)),
        [dice.choice(["COLLECT COD", "NONE", "TAKE BACK RETURN"]) for _ in range(rows)],
        [dice.choice(["AIR", "MAIL", "RAIL", "SHIP", "TRUCK"]) for _ in range(rows)],
        [" ".join(dice.choices(words, k=5)) + f" {n}" for n in range(rows)],
    ]
    arrays = [pa.array(v, f.type) for v, f in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


@dataclass(frozen=True)
class Asked:
    """The query table, as conditions that every library understands."""

    key: int
    until: int
    comment: str
    parts: int

    @staticmethod
    def of(data: pa.Table) -> Asked:
        middle = data.num_rows // 2
        key = data["l_orderkey"][middle].as_py()
        # .1 % of the rows; a condition that .02 % of all rows meet, wherever they are.
        last = data["l_orderkey"][min(data.num_rows - 1, middle + data.num_rows // 1000)].as_py()
        return Asked(key, last, data["l_comment"][middle].as_py(), 40)

    def queries(self) -> Mapping[str, Query]:
        between = f"l_orderkey >= {self.key} AND l_orderkey <= {self.until}"
        return {
            "point by key": (None, f"l_orderkey = {self.key}", None, None),
            "range of .1 %": (None, between, None, None),
            "2 of 16 columns": (TWO, None, None, None),
            "text absent": (None, "l_comment = 'no such comment'", None, None),
            "text present": (None, f"l_comment = '{self.comment}'", None, None),
            "scattered .02 %": (None, f"l_partkey < {self.parts}", None, None),
            "all": (None, None, None, None),
            "limit 10": (None, None, 10, None),
            "top 10": (None, None, 10, "l_extendedprice"),
        }


def parts(data: pa.Table, files: int) -> list[pa.Table]:
    step = -(-data.num_rows // files)
    return [data.slice(start, step) for start in range(0, data.num_rows, step)]


def uneven(data: pa.Table) -> list[pa.Table]:
    """Five sixths of the rows, and the rest in twenty parts."""
    large = data.num_rows * 5 // 6
    return [data.slice(0, large), *parts(data.slice(large), FILES)]


def wide_rows(columns: int) -> pa.Table:
    """A key, then integers, doubles, texts and booleans in turn."""
    dice = np.random.default_rng(1)
    made: dict[str, pa.Array] = {"id": pa.array(np.arange(WIDE_ROWS))}
    kinds: tuple[Callable[[], pa.Array], ...] = (
        lambda: pa.array(dice.integers(0, 1_000, WIDE_ROWS)),
        lambda: pa.array(dice.random(WIDE_ROWS)),
        lambda: pa.array([f"s{n}" for n in dice.integers(0, 100, WIDE_ROWS)]),
        lambda: pa.array(dice.integers(0, 2, WIDE_ROWS).astype(bool)),
    )
    for n in range(columns - 1):
        made[f"c{n}"] = kinds[n % len(kinds)]()
    return pa.table(made)


def tiny_rows(files: int) -> list[pa.Table]:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
    return [
        pa.table({"id": [n], "name": [f"n{n}"], "value": [n / 2]}, schema=schema)
        for n in range(files)
    ]


def events(rows: int, columns: int) -> pa.Table:
    """Keys, measures, a few categories and a text: what an event table looks like, and for wider ones
    the same kinds of columns over again."""
    dice = np.random.default_rng(7)
    words = np.array([f"word{n:04d}" for n in range(2_000)])
    texts = pa.array([" ".join(words[dice.integers(0, 2_000, 6)]) for _ in range(20_000)])
    verbs = pa.array(["view", "click", "buy", "return"])
    countries = pa.array(words[:200])

    def pick(values: pa.Array) -> pa.Array:
        return values.take(pa.array(dice.integers(0, len(values), rows, dtype=np.int32)))

    kinds: dict[str, Callable[[], pa.Array]] = {
        "id": lambda: pa.array(np.arange(rows, dtype=np.int64)),
        "user_id": lambda: pa.array(dice.integers(0, 1_000_000, rows)),
        "at": lambda: pa.array(
            dice.integers(1_600_000_000_000_000, 1_700_000_000_000_000, rows),
            pa.timestamp("us", "UTC"),
        ),
        "amount": lambda: pa.array(dice.normal(100, 30, rows)),
        "price": lambda: pa.array(dice.integers(0, 10**7, rows).astype(np.int32)),
        "kind": lambda: pick(verbs),
        "country": lambda: pick(countries),
        "token": lambda: _tokens(dice, rows),
        "text": lambda: pick(texts),
    }
    names = list(kinds)
    found = {}
    for at in range(columns):
        turn, kind = divmod(at, len(names))
        found[names[kind] + (str(turn) if turn else "")] = kinds[names[kind]]()
    return pa.table(found)


def _tokens(dice: np.random.Generator, rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(dice.bytes(16 * rows))])

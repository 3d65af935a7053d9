"""A second opinion: DuckDB selects the same rows, for what the two have in common."""

from __future__ import annotations

import math

import duckdb
import predicate_strategies as some
import pyarrow as pa
import pytest
from hypothesis import given, settings

from inlay.format.predicate import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Or,
)
from inlay.format.schema import Schema
from inlay.parquet.arrow.evaluate import columns_of, evaluate
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parse import parse_predicate

# DuckDB has no 256-bit decimals; its times and timestamps are microseconds or of fewer years.
SHARED = [
    kind
    for kind in some.TYPES
    if kind.name in ("bool", "float", "double", "string", "binary")
    or kind.is_integer
    or (kind.name == "decimal" and kind.precision <= 38)
]
SQL_TYPES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
}


@pytest.fixture(scope="module")
def connection():
    found = duckdb.connect()
    found.execute("SET threads = 1")
    yield found
    found.close()


def sql(node) -> str:
    match node:
        case Constant(value):
            return {True: "TRUE", False: "FALSE", None: "NULL::BOOLEAN"}[value]
        case Not(part):
            return f"(NOT {sql(part)})"
        case And(parts):
            return "(" + " AND ".join(map(sql, parts)) + ")"
        case Or(parts):
            return "(" + " OR ".join(map(sql, parts)) + ")"
        case IsNull(field_id):
            return f"(c{field_id} IS NULL)"
        case Comparison(field_id, op, literal):
            return f"(c{field_id} {op} {literal_sql(literal.type, literal.value)})"
        case In(field_id, kind, values):
            return f"(c{field_id} IN ({', '.join(literal_sql(kind, v) for v in values)}))"
        case Like(field_id, pattern):
            return f"(c{field_id} LIKE {quoted(pattern)} ESCAPE '\\')"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def literal_sql(kind, value) -> str:
    if kind.name == "binary":
        return quoted("".join(f"\\x{byte:02X}" for byte in value)) + "::BLOB"
    if kind.name == "decimal":
        return f"'{value:f}'::DECIMAL({kind.precision},{kind.scale})"
    if kind.is_float and not math.isfinite(value):
        text = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return f"'{text}'::{SQL_TYPES[kind.name]}"
    return f"{quoted(str(value))}::{SQL_TYPES[kind.name]}"


@given(some.tables(types=SHARED))
@settings(deadline=None, max_examples=120)
def test_duckdb_gives_each_row_the_same_result(connection, table):
    fields, rows, predicate = table
    if "\x00" in sql(predicate):
        return  # a NUL ends a statement's text
    rows = [row for row in rows if not any("\x00" in v for v in row.values() if isinstance(v, str))]
    data = pa.Table.from_batches([some.to_batch(fields, rows)])
    found = connection.execute(f"SELECT {sql(predicate)} FROM data").fetchall()
    columns = columns_of(Schema(0, tuple(fields)))
    expected = evaluate(predicate, data.combine_chunks().to_batches()[0], columns) if rows else []
    assert [row for (row,) in found] == [value.as_py() for value in expected]


ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, None], pa.int32()),
        "day": pa.array([0, 20_000, 20_454, None], pa.date32()),
        "moment": pa.array(
            [0, 1_767_225_600_000_000, 1_767_225_600_000_001, None], pa.timestamp("us")
        ),
        "seen": pa.array(
            [0, 1_767_225_600_000, 1_767_225_601_000, None], pa.timestamp("ms", "UTC")
        ),
        "price": pa.array([1.5, float("nan"), -0.0, None]),
        "name": pa.array(["a_b", "a\nb", "A%", None]),
    }
)


@pytest.mark.parametrize(
    "text",
    [
        "day >= DATE '2026-01-01'",
        "day < '2026-01-01'",
        "day > TIMESTAMP '2025-12-31 12:00:00'",
        "moment < TIMESTAMP '2026-01-01'",
        "moment = TIMESTAMP '2026-01-01 00:00:00.000001'",
        "moment BETWEEN '1969-01-01' AND '2026-01-01'",
        "seen = TIMESTAMPTZ '2026-01-01 00:00:00+00'",
        "seen < TIMESTAMPTZ '2026-01-01 01:00:01+01:00'",
        "id < 3000000000",
        "id IN (1, NULL)",
        "id NOT IN (1, NULL)",
        "id NOT IN (1, 2)",
        "id = 2.5 OR id > 2.5",
        "NOT (id = 1 AND price > 1)",
        "price > 1000 OR price = 0",
        "name LIKE 'a_b'",
        "name NOT LIKE '%b' AND name IS NOT NULL",
        "id BETWEEN 2 AND NULL OR id = 3",
        "id <> 1 AND NOT id IS NULL",
        "price <> 1.5",
    ],
)
def test_the_same_text_selects_the_same_rows(connection, text):
    connection.execute("SET TimeZone = 'UTC'")
    data = ROWS
    expected = [row for (row,) in connection.execute(f"SELECT {text} FROM data").fetchall()]
    schema = schema_from_arrow(data.schema)
    predicate = parse_predicate(text, schema)
    assert evaluate(predicate, data.to_batches()[0], columns_of(schema)).to_pylist() == expected

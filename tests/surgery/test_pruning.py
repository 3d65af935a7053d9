"""Statistics, page indexes and bloom filters of a new file never hide a row that is there.

DuckDB and DataFusion prune by them; what they count is compared with a scan of the model in memory.
A bound that is too narrow, a page location that is off or a filter at a wrong offset loses rows here,
while a plain read would still be right.
"""

from __future__ import annotations

import random
from pathlib import Path

import checker
import corpus
import duckdb
import engines
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import surgeon
from tests.tiers import in_short

from inlay.parquet.footer.footer import decode_footer

SOURCES = corpus.sources()
PRUNED = [
    "pyarrow",
    "pyarrow-v2-zstd-all",
    "pyarrow-v1-index-bloom-crc",
    "pyarrow-deltas-v2-index",
    "pyarrow-int96",
    "pyarrow-integer-decimals",
    "duckdb",
    "polars",
    "datafusion-bloom",
    "datafusion-truncated",
]
SHORT = {"pyarrow-v2-zstd-all", "duckdb", "datafusion-truncated"}


def literal(value: object, kind: pa.DataType) -> str | None:
    if value is None or pa.types.is_binary(kind):
        return None
    if pa.types.is_boolean(kind):
        return str(value).upper()
    if pa.types.is_integer(kind):
        return str(value)
    if pa.types.is_string(kind):
        return "'" + str(value).replace("'", "''") + "'"
    if pa.types.is_decimal(kind):
        return f"CAST('{value}' AS DECIMAL({kind.precision},{kind.scale}))"
    if pa.types.is_date(kind):
        return f"DATE '{value}'"
    if pa.types.is_floating(kind):
        return f"CAST('{value}' AS DOUBLE)" if value == value and abs(value) < 1e290 else None
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return f"TIMESTAMP '{value}'"
    return None


def conditions(table: pa.Table, dice: random.Random) -> list[str]:
    """Equality on values that are there and values that were, and ranges that end at them."""
    found = []
    for field in table.schema:
        values = [v for v in table[field.name].to_pylist() if literal(v, field.type) is not None]
        for value in dice.sample(values, min(3, len(values))):
            text = literal(value, field.type)
            found += [f'"{field.name}" = {text}', f'"{field.name}" >= {text}']
        if values and not pa.types.is_floating(field.type):
            low, high = (literal(end(values), field.type) for end in (min, max))
            found += [f'"{field.name}" <= {low}', f'"{field.name}" >= {high}']
        found.append(f'"{field.name}" IS NULL')
    return found


@pytest.mark.parametrize("name", in_short(PRUNED, SHORT))
def test_pruning_readers_find_every_row_that_is_left(name: str, tmp_path: Path) -> None:
    data = SOURCES[name]()
    old = pq.read_table(pa.BufferReader(data))
    footer = decode_footer(data, file_size=len(data))
    dice = random.Random(8)
    for pattern in ("odd rows of a middle group", "some rows of several groups"):
        edit = surgeon.patterns(data)[pattern]
        _, result = surgeon.operate(data, edit)
        path = tmp_path / "new.parquet"
        path.write_bytes(result)
        kept = surgeon.kept_rows(footer, edit)
        model = old.take(pa.array(kept))
        asked = conditions(old, dice)
        with duckdb.connect() as base:
            base.execute("SET TimeZone='UTC'")
            base.register("t", model)
            expected = [
                base.sql(f"SELECT count(*) FROM t WHERE {where}").fetchall()[0][0]
                for where in asked
            ]
        for engine, counts in engines.counts_where(path, asked).items():
            wrong = [
                (where, count, right)
                for where, count, right in zip(asked, counts, expected, strict=True)
                if count != right
            ]
            assert not wrong, (engine, pattern)


@pytest.mark.parametrize("name", ["pyarrow", "pyarrow-v1-index-bloom-crc", "datafusion-truncated"])
def test_statistics_of_an_edited_group_are_those_of_its_rows(name: str) -> None:
    data = SOURCES[name]()
    group, rows = 2, corpus.GROUP_ROWS
    edit: surgeon.Edit = {group: [at % 5 == 1 for at in range(rows)]}
    _, result = surgeon.operate(data, edit)
    file = pq.ParquetFile(pa.BufferReader(result))
    table = file.read_row_group(group)
    before = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(group)
    checked = 0
    for at in range(file.metadata.num_columns):
        was, now = (
            before.column(at).statistics,
            file.metadata.row_group(group).column(at).statistics,
        )
        column = table[at]
        assert (was is None) == (now is None), column
        if now is None:
            continue
        assert now.null_count == column.null_count
        bounded = now.has_min_max and was.has_min_max
        if (
            bounded
            and not pa.types.is_floating(column.type)
            and not pa.types.is_binary(column.type)
        ):
            ends = pc.min_max(column).as_py()
            assert (now.min, now.max) == (ends["min"], ends["max"]), file.schema.column(at).name
            checked += 1
    assert checked >= 8


def test_columns_whose_order_pyarrow_does_not_know_get_no_bounds() -> None:
    """INT96 and decimals of any length compare in ways of their own."""
    data = SOURCES["pyarrow-int96"]()
    _, result = surgeon.operate(data, surgeon.patterns(data)["odd rows of a middle group"])
    for group in checker.footer_of(result)[4]:
        for chunk in group[1]:
            if chunk[3][1] == 3:
                assert not {1, 2, 5, 6} & set(chunk[3].get(12, {}))
                assert 6 not in chunk
    if not corpus.FOREIGN.is_dir():
        pytest.skip("../shared/data/parquet-testing is not there")
    data = corpus.foreign()["byte_array_decimal"]()
    _, result = surgeon.operate(data, {0: [at % 2 == 0 for at in range(24)]})
    (group,) = checker.footer_of(result)[4]
    assert not {1, 2, 5, 6} & set(group[1][0][3].get(12, {}))

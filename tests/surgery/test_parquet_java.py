"""Files of parquet-java, through Spark: as a source of files to edit, and as a judge of the result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import checker
import engines
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import surgeon

from inlay.parquet.footer.footer import decode_footer

pytestmark = [pytest.mark.slow, pytest.mark.spark]
ROWS = 12_000
VARIANTS: dict[str, dict[str, str]] = {
    "default": {},
    "v2": {"parquet.writer.version": "v2"},
    "bloom": {
        "parquet.bloom.filter.enabled#id": "true",
        "parquet.bloom.filter.expected.ndv#id": "3000",
        "parquet.bloom.filter.enabled#text": "true",
        "parquet.bloom.filter.expected.ndv#text": "3000",
        "parquet.page.row.count.limit": "500",
    },
    "small pages, checksums": {
        "compression": "zstd",
        "parquet.page.size": "2000",
        "parquet.dictionary.page.size": "3000",
        "parquet.page.write-checksum.enabled": "true",
    },
    "legacy, INT96": {
        "spark.sql.parquet.writeLegacyFormat": "true",
        "spark.sql.parquet.outputTimestampType": "INT96",
    },
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    from inlay.spark import local_session

    session = local_session(app="surgery", master="local[1]")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def written(spark: Any, folder: Path, options: dict[str, str]) -> bytes:
    for name in ("spark.sql.parquet.writeLegacyFormat", "spark.sql.parquet.outputTimestampType"):
        if name in options:
            spark.conf.set(name, options[name])
        else:
            spark.conf.unset(name)
    rows = spark.range(0, ROWS, 1, 1).selectExpr(
        "id",
        "cast(id % 97 as int) as kind",
        "concat('name-', id % 13) as name",
        "case when id % 5 != 0 then cast(id as string) end as text",
        "array(id, null, id + 1) as numbers",
        "named_struct('a', id, 'b', 'x') as record",
        "map('k', id) as pairs",
        "cast(id - 6000 as decimal(20, 2)) as money",
        "cast(id % 999 - 500 as decimal(6, 1)) as small",
        "timestamp_seconds(id) as at",
        "date_add(date '2000-01-01', cast(id % 3000 as int)) as day",
        "encode(cast(id as string), 'utf-8') as raw",
        "id % 2 = 0 as flag",
        "cast(null as int) as nothing",
    )
    plain = {name: value for name, value in options.items() if not name.startswith("spark.")}
    writer = rows.write.option("parquet.block.size", "100000")
    for name, value in plain.items():
        writer = writer.option(name, value)
    writer.parquet(str(folder))
    (file,) = folder.glob("*.parquet")
    return file.read_bytes()


@pytest.mark.parametrize("name", VARIANTS)
def test_files_of_parquet_java_are_edited_and_read_by_it(
    name: str, spark: Any, tmp_path: Path
) -> None:
    data = written(spark, tmp_path / "old", VARIANTS[name])
    footer = decode_footer(data, file_size=len(data))
    assert footer.num_row_groups > 2
    assert checker.problems(data) == []
    before = pq.read_table(pa.BufferReader(data))
    for pattern, edit in surgeon.patterns(data).items():
        outcome, result = surgeon.operate(data, edit)
        if not isinstance(outcome, surgeon.Rewritten):
            continue
        assert checker.problems(result) == [], pattern
        kept = surgeon.kept_rows(footer, edit)
        path = tmp_path / "new.parquet"
        path.write_bytes(result)
        assert engines.same(engines.by_pyarrow(path), before.take(pa.array(kept))), pattern
        if pattern not in ("odd rows of a middle group", "some rows of several groups"):
            continue
        new = spark.read.parquet(str(path))
        assert sorted(row.id for row in new.select("id").collect()) == kept
        for at in (kept[3], kept[len(kept) // 2], kept[-1]):
            found = new.where(f"id = {at} and money = {at - 6000} and kind = {at % 97}").collect()
            assert [row.raw for row in found] == [str(at).encode()]
            assert new.where(f"text = '{at}'").count() == (at % 5 != 0)
            assert new.where(f"id = {at} and at = timestamp_seconds({at})").count() == 1

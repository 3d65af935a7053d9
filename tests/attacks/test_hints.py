"""Errors that hid their cause say it."""

from __future__ import annotations

import uuid
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import InvalidRequest, SchemaMismatch, VersionNotFound
from inlay.ops.write.ingest import Rejected

SCHEMA = pa.schema([("n", pa.int64())])


def a_table() -> inlay.Table:
    return inlay.create(f"memory://{uuid.uuid4().hex}/t", SCHEMA)


@pytest.mark.parametrize("adopt", [False, True])
def test_an_object_on_another_store_is_not_called_gone(tmp_path: Path, adopt: bool) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    [outcome] = a_table().ingest([(tmp_path / "a.parquet").as_uri()], adopt=adopt).outcomes
    assert isinstance(outcome, Rejected) and isinstance(outcome.error, InvalidRequest)
    assert "is on file://, the table on memory://" in str(outcome.error)


def test_a_time_before_the_table_says_in_which_zone_it_was_read() -> None:
    with pytest.raises(VersionNotFound, match="A time without a zone is UTC"):
        inlay.open(a_table().uri, as_of=datetime(2020, 1, 1))


def test_whole_numbers_that_pandas_has_as_doubles(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"n": [1, None]})
    with pytest.raises(SchemaMismatch, match=r"astype\(\{'n': 'Int64'\}\)"):
        a_table().append(frame)
    table = a_table()
    table.append(frame.astype({"n": "Int64"}))
    assert table.refresh().scan().to_arrow()["n"].to_pylist() == [1, None]
    with pytest.raises(SchemaMismatch) as refused:
        a_table().append(pa.table({"n": ["x"]}))
    assert "pandas" not in refused.value.next_step

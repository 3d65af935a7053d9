"""Landed times in a finer unit than the column's: exact or refused by name, as appended ones are."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay.errors import InlayError
from inlay.ops.write.ingest import Ingested, Rejected

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def landed(
    column: pa.Array, kind: pa.DataType, *, adopt: bool = False, **options: Any
) -> tuple[inlay.Table, Ingested | Rejected]:
    root = f"memory://{uuid.uuid4().hex}"
    made = inlay.create(f"{root}/t", pa.schema([("x", kind)]), **options)
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": column}), sink, row_group_size=2)
    made._ctx.store.put("in.parquet", sink.getvalue())
    [outcome] = made.ingest([f"{root}/in.parquet"], adopt=adopt).outcomes
    return made.refresh(), outcome  # type: ignore[return-value]


TIMES = st.lists(st.none() | st.integers(-(2**50), 2**50), min_size=1, max_size=6)


@given(TIMES, st.booleans(), st.sampled_from([None, "UTC"]))
def test_what_lands_is_what_would_be_appended(
    values: list[int | None], whole: bool, tz: str | None
) -> None:
    if whole:
        values = [None if v is None else v // 1_000 * 1_000 for v in values]
    column = pa.array(values, pa.timestamp("ns", tz))
    kind = pa.timestamp("us", tz)
    appended = inlay.create(f"memory://{uuid.uuid4().hex}/t", pa.schema([("x", kind)]))
    table, outcome = landed(column, kind)
    try:
        appended.append(pa.table({"x": column}))
    except InlayError:
        assert isinstance(outcome, Rejected)
        assert "'x'" in str(outcome.error)
        assert table.count() == 0
        return
    assert isinstance(outcome, Ingested)
    assert table.scan().to_arrow().equals(appended.refresh().scan().to_arrow())
    assert table.count(where="x IS NULL") == column.null_count


def test_nested_and_partitioned_times() -> None:
    stamps = pa.array([0, 86_400 * 10**9, None], pa.timestamp("ns"))
    table, outcome = landed(stamps, pa.timestamp("us"), partition_by=["day(x)"])
    assert isinstance(outcome, Ingested) and table.count() == 3
    assert table.count(where="x = TIMESTAMP '1970-01-02 00:00:00'") == 1
    nested = pa.StructArray.from_arrays([stamps], ["y"])
    table, outcome = landed(nested, pa.struct([("y", pa.timestamp("us"))]))
    assert isinstance(outcome, Ingested)
    found = table.scan().to_arrow()["x"].combine_chunks()
    assert found.field("y").equals(stamps.cast(pa.timestamp("us")))


def test_an_adopted_or_larger_one_is_refused_by_name() -> None:
    stamps = pa.array([1_000], pa.timestamp("ns"))
    for options in ({"adopt": True}, {"properties": {"ingest.split_bytes": "0"}}):
        _, outcome = landed(stamps, pa.timestamp("us"), **options)  # type: ignore[arg-type]
        assert isinstance(outcome, Rejected) and "'x' in a finer unit" in str(outcome.error)
    _, outcome = landed(pa.array([1], pa.timestamp("ns", "UTC")), pa.timestamp("us"))
    assert isinstance(outcome, Rejected), "an instant is no local time"


@pytest.mark.parametrize("unit", ["us", "ms"])
def test_files_of_pandas(unit: str) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": pd.to_datetime(["2026-01-31 12:00", None]).astype("datetime64[ns]")})
    column = pa.Table.from_pandas(frame)["x"].combine_chunks()
    assert column.type == pa.timestamp("ns")
    table, outcome = landed(column, pa.timestamp(unit))
    assert isinstance(outcome, Ingested)
    assert table.count(where="x = TIMESTAMP '2026-01-31 12:00:00'") == 1

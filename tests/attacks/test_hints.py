"""Errors that hid their cause say it."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import InvalidPredicate, InvalidRequest, SchemaMismatch, VersionNotFound
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


def damaged(kind: str) -> pa.Array:
    """Arrow's constructors do not look so far, and neither do its functions, which may crash."""
    if kind == "dictionary":
        indices = pa.array([0, 5, -3], pa.int8())
        return pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)
    view = struct.pack("<I4sII", 100, b"abcd", 7, 0)  # of a buffer that there is not
    return pa.Array.from_buffers(pa.string_view(), 3, [None, pa.py_buffer(view * 3)])


@pytest.mark.parametrize("kind", ["dictionary", "view"])
@pytest.mark.parametrize("within", ["", "struct", "list"])
def test_damaged_arrow_data_is_refused_by_column(kind: str, within: str) -> None:
    array = damaged(kind)
    if within == "struct":
        array = pa.StructArray.from_arrays([array], ["x"])
    if within == "list":
        array = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), array)
    data = pa.table({"id": [0, 1, 2], "v": array, "n": [0, 1, 2]})
    ways: dict[str, Callable[[inlay.Table], object]] = {
        "append": lambda t: t.append(data),
        "upsert": lambda t: t.upsert(data),
        "overwrite": lambda t: t.overwrite(data),
        "changes": lambda t: t.apply_changes(data, order="n"),
        "keys": lambda t: t.delete(keys=data.select(["v"])),
        "create": lambda t: inlay.create(f"memory://{uuid.uuid4().hex}/t", data),
    }
    if within:
        del ways["keys"]
    text = {"": pa.string(), "struct": pa.struct([("x", pa.string())])}
    schema = pa.schema(
        [("id", pa.int64()), ("v", text.get(within, pa.list_(pa.string()))), ("n", pa.int64())]
    )
    for name, way in ways.items():
        table = inlay.create(f"memory://{uuid.uuid4().hex}/t", schema, primary_key="id")
        with pytest.raises(SchemaMismatch, match="column 'v' of the data is not valid Arrow"):
            way(table)
        assert table.refresh().version == 1, name


@pytest.mark.parametrize(
    ("kind", "step"),
    [(pa.string(), "quotes"), (pa.int64(), "number"), (pa.timestamp("us"), "without a time zone")],
)
def test_a_moment_with_a_zone_is_refused_by_what_the_column_takes(
    kind: pa.DataType, step: str
) -> None:
    t = inlay.create(f"memory://{uuid.uuid4().hex}/t", pa.schema([("c", kind)]))
    with pytest.raises(InvalidPredicate) as refused:
        t.scan(where="c > now()")
    assert step in refused.value.next_step

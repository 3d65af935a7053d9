"""Keys as the format compares them, whatever Arrow does, and columns with the names of internal ones."""

from __future__ import annotations

import math
import struct
import uuid

import pyarrow as pa
import pytest

import inlay
from inlay.errors import SchemaMismatch

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]


def location() -> str:
    return f"memory://attacks/{uuid.uuid4().hex}"


def test_floats_that_are_equal_are_one_key() -> None:
    schema = pa.schema([("k", pa.float64()), ("v", pa.string())])
    t = inlay.create(location(), schema, primary_key="k")
    t.append(pa.table({"k": [math.nan, 0.0, -0.0, 1.0, None], "v": list("abcde")}, schema=schema))
    keys = [math.nan, OTHER_NAN, 0.0, -0.0, -0.0, 0.0]
    t.upsert(pa.table({"k": keys, "v": list("uvwxyz")}, schema=schema), on_duplicate="last")
    assert sorted(t.scan().to_arrow()["v"].to_pylist()) == ["d", "e", "v", "z"]


def test_floats_that_are_equal_are_one_key_beside_other_columns() -> None:
    schema = pa.schema([("a", pa.float32()), ("b", pa.string()), ("v", pa.int64())])
    t = inlay.create(location(), schema, primary_key=["a", "b"])
    rows = {"a": [-0.0, 0.0, 0.0, None, 1.0], "b": ["x", "x", "y", "x", None], "v": [1, 2, 3, 4, 5]}
    t.upsert(pa.table(rows, schema=schema), on_duplicate="last")
    assert sorted(t.scan().to_arrow()["v"].to_pylist()) == [2, 3, 4, 5]


@pytest.mark.parametrize("mode", ["tombstone", "vector", "surgery", "rewrite"])
@pytest.mark.parametrize("name", ["_pos", "_file", "__row", "row", "key0"])
def test_columns_may_have_the_names_used_inside(name: str, mode: str) -> None:
    schema = pa.schema([("id", pa.int64()), (name, pa.int64())])
    modes = {"update.mode": mode, "delete.mode": mode}
    t = inlay.create(location(), schema, primary_key="id", properties=modes)
    t.append(pa.table({"id": [1, 2, 3], name: [2, 0, 100]}, schema=schema))
    t.update({name: "7"}, where="id = 1")
    t.upsert(pa.table({"id": [2, 2, 9], name: [50, 51, 52]}, schema=schema), on_duplicate="last")
    t.delete("id = 3")
    t.maintain.rewrite()
    t.maintain.compact()
    found = t.scan().to_arrow()
    assert sorted(zip(found["id"].to_pylist(), found[name].to_pylist(), strict=True)) == [
        (1, 7),
        (2, 51),
        (9, 52),
    ]


def test_data_without_the_key_is_refused() -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    t = inlay.create(location(), schema, primary_key="id")
    with pytest.raises(SchemaMismatch, match="id"):
        t.upsert(pa.table({"v": ["x"]}))
    assert t.count() == 0


def test_keys_with_a_column_twice_are_refused() -> None:
    t = inlay.create(location(), pa.schema([("id", pa.int64())]), primary_key="id")
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(SchemaMismatch, match="twice"):
        t.delete(keys=twice)

"""Key-values of a file with values of its rows: kept by an edit, forgotten by an erasure."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import surgeon

from inlay.parquet.surgery.key_values import HUDI

ERASED = (13.377331, -71.828182)  # the westmost and southmost of all
ROWS = 40


def wkb(x: float, y: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, x, y)


def points() -> pa.Table:
    where = [ERASED if n == 17 else (20.0 + n, -10.0 + n) for n in range(ROWS)]
    return pa.table({"id": range(ROWS), "geometry": [wkb(*at) for at in where]})


def geo(**more: Any) -> dict[str, Any]:
    """As GeoPandas writes it, the area of use of the reference system included."""
    column = {
        "encoding": "WKB",
        "geometry_types": ["Point"],
        "crs": {
            "name": "Amersfoort / RD",
            "bbox": {"south_latitude": 50.75, "east_longitude": 7.22},
        },
        **more,
    }
    return {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}


def written(pairs: dict[str, str]) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, points().schema) as writer:
        writer.write_table(points(), row_group_size=10)
        writer.add_key_value_metadata(pairs)
    return sink.getvalue()


def edited(data: bytes) -> bytes:
    edit: surgeon.Edit = {1: [n != 7 for n in range(10)]}
    _, result = surgeon.operate(data, edit)
    assert pq.read_table(pa.BufferReader(result)).num_rows == ROWS - 1
    return result


def pairs_of(data: bytes) -> dict[bytes, bytes]:
    return dict(pq.read_metadata(pa.BufferReader(data)).metadata or {})


BBOX = [ERASED[0], ERASED[1], 59.0, 29.0]


def test_an_erasure_leaves_no_bounding_box_of_a_point_that_is_gone() -> None:
    data = written({"geo": json.dumps(geo(bbox=BBOX)), "mine": "stays"})
    result = edited(data)
    for number in ERASED:
        assert repr(number).encode() in data
        assert repr(number).encode() not in result
        assert struct.pack("<d", number) not in result
    assert json.loads(pairs_of(result)[b"geo"]) == geo()
    assert pairs_of(result)[b"mine"] == b"stays"


def test_a_description_without_bounds_is_kept_byte_for_byte() -> None:
    told = json.dumps(geo(edges="planar"), indent=3)
    assert pairs_of(edited(written({"geo": told})))[b"geo"] == told.encode()


@pytest.mark.parametrize(
    "told",
    [
        "{13.377331",
        "[13.377331]",
        '{"columns": [13.377331]}',
        '{"columns": {"geometry": 13.377331}}',
        "[" * 10_000 + "13.377331",
    ],
)
def test_a_description_that_nobody_can_read_goes_whole(told: str) -> None:
    assert b"13.377331" not in edited(written({"geo": told}))


def test_record_keys_of_hudi_go() -> None:
    pairs = {key.decode(): "alice@example.org" for key in HUDI}
    result = edited(written({**pairs, "hoodie_bloom_filter_type_code": "SIMPLE"}))
    assert b"alice" not in result
    assert pairs_of(result)[b"hoodie_bloom_filter_type_code"] == b"SIMPLE"


@pytest.mark.parametrize("within", [False, True])
def test_lists_of_the_values_of_a_column_go(within: bool) -> None:
    """Whatever is erased: a removed row may have had one of them."""
    attribute = {"ml_attr": {"type": "nominal", "vals": ["alice", "bob"]}, "comment": "kept?"}
    field: dict[str, Any] = {"name": "id", "type": "long", "metadata": attribute}
    if within:
        field = {"name": "s", "type": {"type": "struct", "fields": [field]}, "metadata": {"a": 1}}
    spark = "org.apache.spark.sql.parquet.row.metadata"
    told = {"type": "struct", "fields": [field]}
    result = edited(written({spark: json.dumps(told)}))
    assert b"alice" not in result
    left = json.loads(pairs_of(result)[spark.encode()])
    assert left["fields"][0]["name"] == field["name"]
    assert left["fields"][0]["metadata"] == ({"a": 1} if within else {})
    plain = json.dumps({"type": "struct", "fields": [{**field, "metadata": {"a": 1}}]})
    if not within:
        assert pairs_of(edited(written({spark: plain})))[spark.encode()] == plain.encode()

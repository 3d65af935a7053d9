"""Arrays of every type in every layout: whole, in slices and empty, in a dictionary, within others.

What a table takes comes back as it was, in its own type; what it does not take is refused when the table is
created.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.errors import UnsupportedType
from inlay.parquet.arrow import pieces

ROWS = 23

VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False, None],
    pa.int8(): [1, -1, None],
    pa.uint64(): [2**64 - 1, 0, None],
    pa.float16(): [1.5, None],
    pa.float32(): [1.5, None],
    pa.float64(): [float("inf"), -0.0, None],
    pa.decimal32(5, 2): [Decimal("1.20"), None],
    pa.decimal64(12, 2): [Decimal("1.20"), None],
    pa.decimal128(30, 2): [Decimal("1.20"), None],
    pa.decimal256(60, 2): [Decimal("1.20"), None],
    pa.date32(): [dt.date(2020, 1, 1), None],
    pa.date64(): [dt.date(2020, 1, 1), None],
    pa.time32("s"): [dt.time(1, 2, 3), None],
    pa.time64("ns"): [dt.time(1, 2, 3), None],
    pa.timestamp("us"): [dt.datetime(2020, 1, 1), None],
    pa.timestamp("ns", "Europe/Zurich"): [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None],
    **{kind: ["a" * 50, "", None] for kind in (pa.string(), pa.large_string(), pa.string_view())},
    **{kind: [b"a" * 50, b"", None] for kind in (pa.binary(), pa.large_binary(), pa.binary_view())},
    pa.binary(7): [b"1234567", None],
    pa.uuid(): [b"0123456789abcdef", None],
    pa.json_(): ['{"a":1}', None],
    pa.opaque(pa.large_string(), "t", "v"): ["q" * 40, None],
    pa.null(): [None],
    pa.duration("s"): [dt.timedelta(1)],
}
ENDS = [0, 0, 2, 3, 5, 9, 23]


def small(values: pa.Array) -> pa.Array:
    return pa.array([n % 3 for n in range(ROWS)], pa.int16())


def entries(values: pa.Array) -> pa.Array:
    return values.slice(2, 5)


def of_dictionary(values: pa.Array, *, ordered: bool = False) -> pa.Array:
    held = [v for v in dict.fromkeys(values.to_pylist()) if v is not None]
    distinct = pa.array(held, values.type)
    indices = [None if n % 5 == 0 or not held else n % len(held) for n in range(ROWS)]
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), distinct, ordered=ordered)


def list_of(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(ENDS, pa.int32()), values)


LAYOUTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "plain": lambda v: v,
    "dictionary": of_dictionary,
    "ordered dictionary": lambda v: of_dictionary(v, ordered=True),
    "list": list_of,
    "large list": lambda v: pa.LargeListArray.from_arrays(pa.array(ENDS, pa.int64()), v),
    "list view": lambda v: pa.ListViewArray.from_arrays(
        pa.array([0, 3, 3, 20], pa.int32()), pa.array([3, 5, 5, 3], pa.int32()), v
    ),
    "fixed-size list": lambda v: pa.FixedSizeListArray.from_arrays(v.slice(1, 22), 2),
    "struct": lambda v: pa.StructArray.from_arrays(
        [v, v], ["x", "y"], mask=pa.array([n % 7 == 0 for n in range(ROWS)])
    ),
    "map": lambda v: pa.MapArray.from_arrays(
        pa.array([0, 2, 2, 5, 23], pa.int32()), pa.array([f"k{n}" for n in range(ROWS)]), v
    ),
    "list of structs": lambda v: list_of(pa.StructArray.from_arrays([v], ["x"])),
    "list of lists": lambda v: pa.ListArray.from_arrays(
        pa.array([0, 1, 6], pa.int32()), list_of(v)
    ),
    "list of dictionaries": lambda v: list_of(pa.DictionaryArray.from_arrays(small(v), entries(v))),
    "dictionary of dictionaries": lambda v: pa.DictionaryArray.from_arrays(
        small(v),
        pa.DictionaryArray.from_arrays(pa.array([2, 1, 0], pa.int8()), entries(v)),
    ),
    "dictionary of lists": lambda v: pa.DictionaryArray.from_arrays(
        pa.array([n % 2 for n in range(ROWS)], pa.int16()), list_of(v)
    ),
    "run-end encoded": lambda v: pa.RunEndEncodedArray.from_arrays(
        pa.array([3, 9, 23], pa.int32()), v.slice(0, 3)
    ),
}


def made(kind: pa.DataType, layout: str) -> pa.Array:
    drawn = random.Random(1)
    plain = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    values = pa.array([drawn.choice(VALUES[kind]) for _ in range(ROWS)], plain)
    if plain is not kind:
        values = pa.ExtensionArray.from_storage(kind, values)
    return LAYOUTS[layout](values)


@pytest.mark.parametrize("bound", [pieces.PIECE_BYTES, 300], ids=["whole", "in pieces"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_taken_comes_back(layout: str, bound: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", bound)
    warnings.simplefilter("ignore")
    taken = 0
    for kind in VALUES:
        try:
            array = made(kind, layout)
        except (pa.ArrowException, TypeError, ValueError):
            continue  # Arrow has no such array
        rows = len(array)
        chunks = pa.chunked_array([array.slice(0, 3), array.slice(3, 0), array.slice(3)])
        data = pa.table({"id": pa.array(range(rows), pa.int64()), "v": chunks})
        uri = f"memory://layouts/{uuid.uuid4().hex}"
        try:
            table = inlay.create(uri, data.schema, primary_key=["id"])
        except UnsupportedType:
            continue
        table.append(data)
        table.upsert(data.slice(2, 5))
        table.append(data.slice(rows, 0))
        back = table.scan().to_arrow()
        assert back.schema.field("v").type == array.type, kind
        held = sorted(zip(back["id"].to_pylist(), map(str, back["v"].to_pylist()), strict=True))
        assert held == [(n, str(value)) for n, value in enumerate(array.to_pylist())], kind
        taken += 1
    refused_whole = layout in ("dictionary of lists", "run-end encoded")
    assert (taken == 0) if refused_whole else taken >= 12

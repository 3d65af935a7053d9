"""No error repeats a value of a row: errors go into logs, tickets and dead letters."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import InlayError
from inlay.storage.open import open_store

# Each is found in no message but as a value; the first digits, because a unit may add zeros.
NUMBER = 8_276_451_987_341_227_651
TOKENS = ("82764519", "8276451", "Zq7Mustermann", "4827-", "WnE3TXVzdGVybWFubg")
VALUES: dict[str, pa.Array] = {
    "int64": pa.array([NUMBER], pa.int64()),
    "uint64": pa.array([NUMBER * 2], pa.uint64()),
    "double": pa.array([8276451.5e300]),
    "decimal": pa.array([Decimal("82764519.8734")], pa.decimal128(20, 4)),
    "long decimal": pa.array([Decimal(82764519 * 10**30)], pa.decimal128(38, 0)),
    "string": pa.array(["Zq7Mustermann"]),
    "no text": pa.array([b"Zq7Mustermann\xff"]).view(pa.string()),
    "binary": pa.array([b"Zq7Mustermann\xff"]),
    "fixed": pa.array([b"Zq7Mustermann"], pa.binary(13)),
    "date": pa.array([1_043_500], pa.date32()),  # in the year 4827
    "date64": pa.array([1_043_500 * 86_400_000], pa.date64()),
    **{
        f"timestamp {unit}": pa.array([NUMBER], pa.timestamp(unit))
        for unit in ("s", "ms", "us", "ns")
    },
    "instant": pa.array([NUMBER], pa.timestamp("us", "UTC")),
    "time": pa.array([82_764_519_873], pa.time64("us")),
    "duration": pa.array([NUMBER], pa.duration("s")),
    "list": pa.array([[NUMBER, 1]]),
    "struct": pa.array([{"a": "Zq7Mustermann"}]),
    "map": pa.array([[("Zq7Mustermann", NUMBER)]], pa.map_(pa.string(), pa.int64())),
    "category": pa.array(["Zq7Mustermann"]).dictionary_encode(),
    "bool": pa.array([True]),
}
KINDS: list[pa.DataType] = [
    *(pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_()),
    *(pa.string(), pa.binary(), pa.binary(4), pa.date32(), pa.time32("ms"), pa.time64("ns")),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp("ns", "UTC"), pa.decimal128(9, 2), pa.decimal128(38, 30), pa.float16()),
    *(pa.list_(pa.int32()), pa.list_(pa.float32(), 2), pa.struct([("a", pa.int32())])),
    *(pa.map_(pa.string(), pa.int32()), pa.dictionary(pa.int8(), pa.int64())),
]


def said(error: BaseException) -> str:
    fields = error.fields() if isinstance(error, InlayError) else {}
    return f"{error} {fields}"


def refused(work: Callable[[], object]) -> bool:
    try:
        work()
    except InlayError as error:
        assert not any(token in said(error) for token in TOKENS), said(error)
        return True
    return False


@pytest.mark.parametrize("name", VALUES)
def test_no_write_repeats_a_value(name: str) -> None:
    values = VALUES[name]
    rows = pa.table({"id": [1], "v": values})
    met = 0
    for kind in KINDS:
        place = f"memory://attacks/{uuid.uuid4().hex}"
        t = inlay.create(place, pa.schema([("id", pa.int64()), ("v", kind)]), primary_key="id")
        writes = (t.append, t.upsert, lambda r, t=t: t.delete(keys=r.select(["v"])))
        met += sum(refused(lambda write=write: write(rows)) for write in writes)
        sink = io.BytesIO()
        try:
            pq.write_table(rows, sink)
        except pa.ArrowException:
            continue
        landing = f"memory://attacks/{uuid.uuid4().hex}.parquet"
        store, key = open_store(landing)
        store.put(key, sink.getvalue())
        landed = t.ingest([landing])
        for outcome in landed.outcomes:
            error = getattr(outcome, "error", None)
            assert error is None or not any(token in said(error) for token in TOKENS), said(error)
            met += error is not None
        refused(lambda t=t: t.scan().to_arrow())
    assert met > len(KINDS)

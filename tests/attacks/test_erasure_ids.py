"""Ids of erasures come from outside and become names of objects."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InvalidRequest

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize("long", ["é" * 256, "a" * 251, "x" * 1_000_000])
def test_an_id_too_long_for_a_receipt_is_refused_at_once(tmp_path: Path, long: str) -> None:
    t = inlay.create(tmp_path / "t", SCHEMA)
    t.append(pa.table({"id": [1, 2]}, schema=SCHEMA))
    with pytest.raises(InvalidRequest, match="receipt"):
        t.delete("id = 1", mode="erase", request_id=long)
    assert inlay.open(t.uri).version == 2


@pytest.mark.parametrize("odd", ["a" * 250, "../../../x", "é/%2e \n?#", "." * 3])
def test_garbage_is_collected_whatever_the_id(tmp_path: Path, odd: str) -> None:
    t = inlay.create(tmp_path / "t", SCHEMA)
    t.append(pa.table({"id": [1, 2]}, schema=SCHEMA))
    t.delete("id = 1", mode="erase", request_id=odd)
    t.maintain.rewrite()
    receipts: list[str] = []
    for _ in range(5):
        done = t.maintain.collect_garbage(
            grace=timedelta(0), life_seconds=0, clock_margin_seconds=0
        )
        receipts.extend(done.receipts)
    assert len(receipts) == 1
    assert not inlay.open(t.uri).snapshot.erasures
    inside = {each.parent for each in (tmp_path / "t" / "erasure").iterdir()}
    assert inside == {tmp_path / "t" / "erasure"}

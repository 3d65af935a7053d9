"""Conditions that look at no column: each has one result for all rows, whoever asks it."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import inlay
from inlay.errors import InvalidPredicate

NAMES = itertools.count()
NONE = ["1 = 2", "length('x') = 7", "upper('x') = 'Y'", "1 / 0 = 1", "lower(NULL) = 'a'"]
ALL = ["1 = 1", "length('x') = 1", "NOT (1 = 2)"]
BOTH = [*((text, 0) for text in NONE), *((text, 6) for text in ALL)]


def new_table() -> inlay.Table:
    t = inlay.create(f"memory://b/t{next(NAMES)}", pa.schema([("id", pa.int64())]))
    for start in (0, 3):
        t.append(pa.table({"id": range(start, start + 3)}))
    return t


@pytest.mark.parametrize(("text", "rows"), BOTH)
def test_a_read_gives_all_rows_or_none(text: str, rows: int) -> None:
    t = new_table()
    assert t.scan(where=text).to_arrow().num_rows == rows
    assert t.scan(where=text, limit=4).to_arrow().num_rows == min(rows, 4)
    assert t.scan(where=text, order_by="id", limit=4).to_arrow().num_rows == min(rows, 4)
    assert t.scan(where=f"({text}) AND id > 2").to_arrow().num_rows == rows // 2
    assert t.count(where=text) == rows


@pytest.mark.parametrize("value", [True, False])
def test_an_expression_of_pyarrow_too(value: bool) -> None:
    t = new_table()
    assert t.scan(where=pc.scalar(value)).to_arrow().num_rows == 6 * value
    assert t.count(where=pc.scalar(1) == pc.scalar(1 if value else 2)) == 6 * value


@pytest.mark.parametrize("mode", ["vector", "surgery", "rewrite"])
@pytest.mark.parametrize(("text", "rows"), BOTH)
def test_a_delete_takes_all_rows_or_none(text: str, rows: int, mode: str) -> None:
    t = new_table()
    assert t.delete(text, mode=mode).deleted_rows == rows  # type: ignore[arg-type]
    assert t.count() == t.scan().to_arrow().num_rows == 6 - rows


@pytest.mark.parametrize(("text", "rows"), BOTH)
def test_an_update_sets_all_rows_or_none(text: str, rows: int) -> None:
    t = new_table()
    t.update({"id": "id + 100"}, where=text)
    assert t.count(where="id >= 100") == rows


def test_what_fails_fails_by_type() -> None:
    t = new_table()
    for text in ("CAST('x' AS INT) = 1", "CAST(1e300 AS INT) = 1", "CAST('x' AS BOOLEAN)"):
        with pytest.raises(InvalidPredicate):
            t.scan(where=text).to_arrow()
        with pytest.raises(InvalidPredicate):
            t.delete(text, mode="vector")
    assert t.count() == 6

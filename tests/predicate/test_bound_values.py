"""Values that are bound to `?` and `:name`: they mean themselves, whatever they contain."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InlayError, InvalidPredicate, InvalidRequest

NUMBER = itertools.count()
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("mass", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("seen", pa.timestamp("us")),
        ("clock", pa.time64("us")),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
    ]
)
ROW: dict[str, Any] = {
    "id": 7,
    "name": "O'Hara' OR TRUE --",
    "mass": 0.1,
    "price": Decimal("3.50"),
    "day": date(1969, 12, 31),
    "at": datetime(2026, 1, 31, 12, 0, 0, 5, UTC),
    "seen": datetime(1900, 1, 1),
    "clock": time(1, 2, 3),
    "raw": b"\x00'",
    "flag": True,
}


def new_table(rows: list[dict]) -> inlay.Table:
    t = inlay.create(f"memory://bound-{next(NUMBER)}/t", SCHEMA, primary_key="id")
    t.append(pa.Table.from_pylist(rows, SCHEMA))
    return t


@pytest.mark.parametrize("name", ROW)
def test_a_value_finds_its_row_and_sets_it(name: str) -> None:
    t = new_table([ROW, dict.fromkeys(ROW) | {"id": 8}])
    assert t.count(where=f"{name} = ?", params=[ROW[name]]) == 1
    assert t.count(where=f"{name} IN :all", params={"all": [ROW[name]]}) == 1
    assert t.count(where=f"{name} = ? AND id > ?", params=(ROW[name], 7)) == 0
    if name != "id":
        value = inlay.lit(ROW[name]) if isinstance(ROW[name], str) else ROW[name]
        t.update({name: value}, where="id = ?", params=[8])
        assert t.count(where=f"{name} = ?", params=[ROW[name]]) == 2
        t.update({name: None}, where="TRUE")
        assert t.count(where=f"{name} IS NULL") == 2


@settings(deadline=None, max_examples=30)
@given(st.text(st.characters(codec="utf-8")))
def test_no_text_becomes_part_of_the_condition(text: str) -> None:
    t = new_table([ROW | {"name": text}, ROW | {"id": 8, "name": text + "x"}])
    assert t.scan(columns=["id"], where="name = :n", params={"n": text}).to_arrow()[
        "id"
    ].to_pylist() == [7]
    t.delete("name = ?", params=[text])
    assert t.scan().to_arrow()["id"].to_pylist() == [8]
    t.update(
        {"name": "concat(?, name)"}, where="name = :x || 'x'".replace(":x", "?"), params=["<", text]
    )
    assert t.scan().to_arrow()["name"].to_pylist() == ["<" + text + "x"]


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        (np.int64(7), 1),
        (np.float32(7.0), 1),
        (pa.scalar(7), 1),
        (7.0, 1),
        (7.5, 0),
        (Decimal(7), 1),
        (math.nan, 0),
        (math.inf, 0),
        (None, 0),
    ],
)
def test_numbers_of_other_libraries_are_numbers(value: Any, rows: int) -> None:
    assert new_table([ROW]).count(where="id = ?", params=[value]) == rows


@pytest.mark.parametrize(
    ("where", "params", "error"),
    [
        ("id = ?", None, "none is given"),
        ("id = ?", [], "none is given"),
        ("id = ?", [1, 2], "1 of 2 params are not used"),
        ("id = :a", {"a": 1, "b": 2}, "1 of 2 params are not used"),
        ("id = :a", {"b": 2}, "none is given"),
        ("id = :a", [1], "none is given"),
        ("id = ?", {"a": 1}, "none is given"),
        ("id = ?", "x", "params cannot be"),
        ("id = ?", [object()], "a value cannot be"),
        ("id IN ?", [[]], "not an empty one"),
        ("id IN ?", ["abc"], "a list of values"),
        ("id = ?", [[1]], "a value cannot be"),
        ("? = 1", [1], ""),
        ("name = '?'", [1], "1 of 1 params"),
        (None, [1], "values for"),
    ],
)
def test_what_cannot_be_bound_is_refused(where: Any, params: Any, error: str) -> None:
    t = new_table([ROW])
    if error:
        with pytest.raises((InvalidPredicate, InvalidRequest), match=error):
            t.count(where=where, params=params)
    else:
        assert t.count(where=where, params=params) == 1


def test_errors_show_no_value() -> None:
    t = new_table([ROW])
    for where, value in (("id = ?", "secret-7"), ("day = ?", "secret-7"), ("flag = ?", "secret-7")):
        with pytest.raises(InlayError) as refused:
            t.delete(where, params=[value])
        assert "secret" not in str(refused.value)


def test_another_value_is_another_request() -> None:
    t = new_table([ROW, ROW | {"id": 8}])
    t.delete("id % 100 = ?", params=[7], request_id="r")
    assert t.delete("id % 100 = ?", params=[7], request_id="r").applied_before
    with pytest.raises(InlayError, match="other"):
        t.delete("id % 100 = ?", params=[8], request_id="r")


def test_a_cast_is_no_name() -> None:
    assert new_table([ROW]).count(where="id::int = ?::int", params=["7"]) == 1


def test_the_mistake_that_the_page_shows() -> None:
    name = "x' OR 'a' = 'a"
    t = new_table([ROW, ROW | {"id": 8, "name": name}])
    assert t.count(where=f"name = '{name}'") == 2
    assert t.count(where="name = ?", params=[name]) == 1


@pytest.mark.parametrize("value", [3.25, "7", b"x", object(), [1], math.nan])
def test_a_value_that_its_column_cannot_hold_is_refused(value: Any) -> None:
    t = new_table([ROW])
    given = inlay.lit(value) if isinstance(value, str) else value
    with pytest.raises(InlayError):
        t.update({"id": given})
    assert t.count(where="id = 7") == 1


def test_a_moment_of_numpy_is_no_number_of_nanoseconds() -> None:
    at = np.datetime64("2026-01-31T12:30:00.000000001")
    schema = pa.schema([("at", pa.timestamp("ns")), ("id", pa.int64())])
    rows = pa.table({"at": pa.array([at]), "id": [int(at.astype("int64"))]}, schema)
    t = inlay.create(f"memory://bound-{next(NUMBER)}/t", rows)
    assert t.count(where="at = ?", params=[at]) == 1
    assert t.count(where="at = ?", params=[at.astype("datetime64[s]")]) == 0
    for value in (at, np.timedelta64(int(at.astype("int64")), "ns")):
        with pytest.raises((InvalidPredicate, InvalidRequest)):
            t.count(where="id = ?", params=[value])


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (pa.date32(), 2**31 - 1),
        (pa.date64(), 86_400_000 * 10**9),
        (pa.timestamp("us"), 2**63 - 1),
        (pa.timestamp("us", "Europe/Zurich"), 2**60),
        (pa.timestamp("ns", "UTC"), -(2**63)),
        (pa.time64("ns"), 1),
    ],
)
def test_times_of_arrow_that_python_lacks_are_bound_set_and_deleted(
    kind: pa.DataType, number: int
) -> None:
    number_type = pa.int32() if kind.bit_width == 32 else pa.int64()
    values = pa.array([number, None], number_type).cast(kind)
    t = inlay.create(
        f"memory://bound-{next(NUMBER)}/t", pa.table({"id": [1, 2], "at": values}), primary_key="id"
    )
    assert t.count(where="at = ?", params=[values[0]]) == 1
    t.update({"at": values[0]}, where="id % 2 = ?", params=[0], request_id="u")
    assert t.count(where="at IN ?", params=[[values[0]]]) == 2
    assert t.delete("at = ? AND id % 2 = 0", params=[values[0]], request_id="d").deleted_rows == 1
    for _ in range(2):
        done = t.delete(keys=pa.table({"at": values[:1]}), request_id="k")
    assert done.applied_before and t.count() == 0
    with pytest.raises(InlayError, match="another content"):
        t.delete(keys=pa.table({"at": values[1:]}), request_id="k")


_ELSEWHERE = """
import sys
import pyarrow as pa, inlay
at = pa.array([2_000], pa.int64()).cast(pa.timestamp("ns"))
print(inlay.open(sys.argv[1]).delete(keys=pa.table({"at": at}), request_id="k").applied_before)
"""


def test_keys_in_nanoseconds_are_one_request_with_pandas_and_without(tmp_path: Path) -> None:
    """A delete that a notebook began, and a function without pandas repeats."""
    pytest.importorskip("pandas")
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "pandas.py").write_text("raise ImportError\n")
    at = pa.array([5, 2_000], pa.int64()).cast(pa.timestamp("ns"))
    t = inlay.create(str(tmp_path / "t"), pa.table({"id": [1, 2], "at": at}))

    def repeated(first: str) -> str:
        command = [sys.executable, "-c", _ELSEWHERE, t.uri]
        env = os.environ | {"PYTHONPATH": first}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout

    without = str(tmp_path / "without")
    assert [repeated("").strip(), repeated(without).strip()] == ["False", "True"]

"""Twice the columns is twice the work: no operation looks through all columns for each of them."""

from __future__ import annotations

import sys
import uuid
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.ops.context import InlineExecutor

# Linear in the columns, a function is called up to twice as often; quadratic, four times.
AT_MOST = 3
FEW = 500
NARROW, WIDE = 60, 120
# Each twice the one before; then so is what it adds to that, but for longer numbers.
THOUSANDS = (625, 1_250, 2_500)
EVENLY = 2.1

Operation = Callable[[inlay.Table, pa.Table], object]


def rows_of(columns: int) -> pa.Table:
    values = {
        f"c{n}": [float(row % 7) if n % 2 else row % 5 for row in range(40)] for n in range(columns)
    }
    return pa.table({"id": list(range(40)), **values})


def table_of(data: pa.Table) -> inlay.Table:
    uri = f"memory://wide/{uuid.uuid4().hex}"
    context = inlay.connect(uri, executor=InlineExecutor())
    table = inlay.create(uri, data.schema, primary_key=["id"], context=context)
    table.append(data)
    return table


OPERATIONS: dict[str, Operation] = {
    "create": lambda t, d: table_of(d),
    "append": lambda t, d: t.append(d),
    "scan": lambda t, d: t.scan().to_arrow(),
    "scan of columns": lambda t, d: t.scan(columns=t.columns[::-1]).to_arrow(),
    "scan of rows": lambda t, d: t.scan(where=f"{t.columns[-1]} > 3 AND c2 = 2").to_arrow(),
    "upsert": lambda t, d: t.upsert(d.slice(5, 10)),
    "upsert of some columns": lambda t, d: t.upsert(d.slice(5, 10).drop_columns(["c3"])),
    "apply_changes": lambda t, d: t.apply_changes(d.slice(5, 10), order="c2"),
    "update": lambda t, d: t.update({"c1": "c1 + 1"}, where="id < 5"),
    "surgery": lambda t, d: t.delete("id < 3", mode="surgery"),
    "rewrite": lambda t, d: (t.delete("id < 3"), t.maintain.rewrite()),
    "compact": lambda t, d: (t.append(d), t.maintain.compact()),
    "alter": lambda t, d: t.alter(add={"z": pa.int8()}, drop=["c2"]),
    "changes": lambda t, d: t.changes(1).to_arrow(),
    "publish": lambda t, d: t.publish(),
    "verify": lambda t, d: t.maintain.verify(depth="pages"),
    "report": lambda t, d: t.inspect.report("c1 > 3"),
}


def calls(operation: Operation, table: inlay.Table, data: pa.Table, *, lines: bool) -> Counter[str]:
    """How often each function of the library is called; with `lines`, the lines that are run in it, so that
    each turn of a loop counts."""
    found: Counter[CodeType] = Counter()

    def seen(frame: FrameType, event: str, arg: object) -> Any:
        if "inlay" not in frame.f_code.co_filename:
            return None
        found[frame.f_code] += 1
        return seen if lines else None

    sys.settrace(seen)
    try:
        operation(table, data)
    finally:
        sys.settrace(None)
    named: Counter[str] = Counter()
    for code, count in found.items():
        named[f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"] += count
    return named


@pytest.mark.parametrize("name", OPERATIONS)
def test_work_grows_with_the_columns_and_not_with_their_square(name: str) -> None:
    found = []
    for columns in (NARROW + 1, NARROW, WIDE):  # first imports, and what is kept of them
        data = rows_of(columns)
        found.append(calls(OPERATIONS[name], table_of(data), data, lines=False))
    _, narrow, wide = found
    assert sum(wide.values()) > FEW
    grown = {k: (narrow[k], n) for k, n in wide.items() if n > max(FEW, AT_MOST * narrow[k])}
    assert grown == {}


@pytest.mark.wide
@pytest.mark.parametrize("name", OPERATIONS)
def test_thousands_of_columns_take_as_many_lines_and_bytes_for_each(name: str) -> None:
    lines, moved = [], []
    for columns in (NARROW, *THOUSANDS):
        data = rows_of(columns)
        table = table_of(data)
        before = table.usage
        lines.append(calls(OPERATIONS[name], table, data, lines=True).total())
        used = table.usage - before
        moved.append(used.bytes_up + used.bytes_down)
    for _, few, more, most in (lines, moved):
        assert most - more <= EVENLY * (more - few), (lines, moved)

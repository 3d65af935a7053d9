from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
import pytest

import inlay
from inlay.ops.metadata.decision import decide
from inlay.ops.transaction import Hold, Part, commit_parts

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table([[i for i, _ in pairs], [n for _, n in pairs]], schema=SCHEMA)


def content(table: inlay.Table) -> dict[int, int]:
    found = inlay.open(table.uri).scan().to_arrow().to_pylist()
    return {row["id"]: row["n"] for row in found}


@pytest.fixture
def tables() -> list[inlay.Table]:
    """Three tables, in the order of their ids: the first has the decisions."""
    place = f"memory://tx-{uuid4()}/tables"
    made = [inlay.create(f"{place}/{n}", SCHEMA, primary_key="id") for n in "abc"]
    for table in made:
        table.append(rows((1, 10), (2, 20)))
    return sorted(made, key=lambda t: t._ctx.table_id)


@pytest.fixture
def in_no_time(monkeypatch):
    """Nobody waits for a coordinator that is dead."""
    monkeypatch.setattr("inlay.ops.transaction.DEADLINE_SECONDS", 0)


class Died(BaseException):
    """The coordinator's process."""


def leave_prepared(tables, monkeypatch, *, decided: bool | None = None) -> None:
    """A transaction that adds row 3 to each table, whose process dies before it decides, or (`decided`)
    right after somebody has."""

    def stop(ctx, transaction, *, committed):
        if decided is not None:
            decide(ctx, transaction, committed=decided)
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr("inlay.ops.transaction.decide", stop)
        parts = []
        for table in tables:
            hold = Hold()
            from dataclasses import replace

            inlay.table.Table(replace(table._ctx, hold=hold), table._loaded).append(rows((3, 30)))
            parts.append(Part(table._ctx, hold.taken.base, hold.taken.change))
        with pytest.raises(Died):
            commit_parts(parts, None)

"""Partial upserts that race: each keeps the columns that it does not give, as they are when it commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.simulator.faults import FaultyStore, all_goes_well

from inlay.errors import ConcurrentChange
from inlay.ops.metadata.load import load_pointer
from inlay.ops.schema.create import create
from inlay.storage.memory import MemoryStore
from inlay.table import Table

from .conftest import POINTER, at, context

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())])


def table(store: Any) -> Table:
    """As another process opens it."""
    ctx = context(store)
    return Table(ctx, load_pointer(ctx))


@pytest.fixture
def store() -> MemoryStore:
    found = MemoryStore("b")
    create(context(found), SCHEMA, primary_key=["id"])
    table(found).append(pa.table({"id": [1, 2], "a": ["a1", "a2"], "b": ["b1", "b2"]}))
    return found


def rows(store: MemoryStore) -> list[tuple[Any, ...]]:
    found = table(store).scan().to_arrow().sort_by("id").to_pylist()
    return [tuple(row.values()) for row in found]


def racing(store: MemoryStore, do: Callable[[Table], object]) -> Table:
    """A table whose first commit is overtaken by `do`, just before its swap."""
    meanwhile = at("put", POINTER, lambda: do(table(store)))
    return table(FaultyStore(store, all_goes_well, before=meanwhile))


@pytest.mark.parametrize("key", [1, 3], ids=["a row that is there", "a new row"])
def test_two_partial_upserts_of_a_key_keep_each_others_column(store: MemoryStore, key: int) -> None:
    t = racing(store, lambda other: other.upsert(pa.table({"id": [key], "a": ["new"]})))
    t.upsert(pa.table({"id": [key], "b": ["mine"]}))
    assert (key, "new", "mine") in rows(store) and len(rows(store)) == (2 if key == 1 else 3)


def test_what_was_updated_or_deleted_meanwhile_is_read_again(store: MemoryStore) -> None:
    def others(other: Table) -> None:
        other.update({"a": "'up'"}, where="id = 1")
        other.delete("id = 2")

    racing(store, others).upsert(pa.table({"id": [1, 2], "b": ["x", "y"]}))
    assert rows(store) == [(1, "up", "x"), (2, None, "y")]


def test_a_change_of_other_keys_costs_no_second_reading(store: MemoryStore) -> None:
    more = pa.table({"id": [50], "a": ["z"], "b": ["z"]})
    racing(store, lambda other: other.append(more)).upsert(pa.table({"id": [1], "b": ["x"]}))
    assert rows(store) == [(1, "a1", "x"), (2, "a2", "b2"), (50, "z", "z")]


def test_a_column_that_was_added_meanwhile_keeps_its_values(store: MemoryStore) -> None:
    """All columns that the table knew are given: by the time of the commit they are not all."""
    stale, other = table(store), table(store)
    other.alter(add={"c": pa.string()})
    other.upsert(pa.table({"id": [1], "c": ["kept"]}))
    stale.upsert(pa.table({"id": [1, 9], "a": ["x", "n"], "b": ["y", "n"]}))
    assert rows(store) == [(1, "x", "y", "kept"), (2, "a2", "b2", None), (9, "n", "n", None)]


def test_a_field_that_was_added_meanwhile_is_not_lost(store: MemoryStore) -> None:
    """A struct is given whole or not at all: so the upsert is refused."""
    kind = pa.struct([("x", pa.int64())])
    table(store).alter(add={"s": kind})
    stale, other = table(store), table(store)
    other.alter(add={"s.y": pa.int64()})
    wide = pa.array([{"x": 1, "y": 2}], pa.struct([("x", pa.int64()), ("y", pa.int64())]))
    other.upsert(pa.table({"id": [1], "s": wide}))
    whole = {"id": [1], "a": ["x"], "b": ["y"], "s": pa.array([{"x": 5}], kind)}
    with pytest.raises(ConcurrentChange, match="schema was changed"):
        stale.upsert(pa.table(whole))
    assert rows(store)[0] == (1, "a1", "b1", {"x": 1, "y": 2})


def test_columns_that_were_renamed_or_moved_meanwhile_get_their_values(store: MemoryStore) -> None:
    stale, other = table(store), table(store)
    other.alter(rename={"b": "beta", "a": "b"})
    stale.upsert(pa.table({"id": [1], "a": ["x"], "b": ["y"]}))
    found = table(store).scan(where="id = 1").to_arrow().to_pylist()
    assert found == [{"id": 1, "b": "x", "beta": "y"}]


@pytest.mark.parametrize("given", [["a"], ["a", "b"]], ids=["some", "all"])
def test_a_table_opened_before_keeps_added_and_renamed_columns(
    store: MemoryStore, given: list[str]
) -> None:
    stale, other = table(store), table(store)
    other.alter(add={"c": pa.string()}, rename={"b": "beta", "a": "alpha"})
    other.upsert(pa.table({"id": [1], "c": ["kept"]}))
    stale.upsert(pa.table({"id": [1], **{name: ["x"] for name in given}}))
    assert rows(store)[0] == (1, "x", "x" if "b" in given else "b1", "kept")


def test_a_column_that_was_dropped_meanwhile_stays_dropped(store: MemoryStore) -> None:
    stale, other = table(store), table(store)
    other.alter(drop=["b"])
    stale.upsert(pa.table({"id": [1], "a": ["x"], "b": ["y"]}))
    assert rows(store)[0] == (1, "x")

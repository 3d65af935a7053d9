"""Texts that no store can hold, and those that take more bytes than characters."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InputError, InvalidPredicate
from inlay.format.entry import Keys
from inlay.ops.write.delete import MAX_PREDICATE_BYTES
from inlay.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
HALF = "\ud800"


@pytest.fixture
def table() -> Table:
    t = inlay.create(f"memory://attacks/{uuid.uuid4().hex}", SCHEMA, primary_key="id")
    t.append(pa.table({"id": [1, 2], "name": ["a", "\U0001f600" * 3000]}, schema=SCHEMA))
    return t


def test_half_a_surrogate_pair_is_refused_everywhere(table: Table) -> None:
    for attempt in (
        lambda: table.delete(f"id = 1 OR name > '{HALF}'"),
        lambda: table.delete(f"id = 1 OR name LIKE '{HALF}%'"),
        lambda: table.scan(where=f"name = '{HALF}'"),
        lambda: table.update({"name": f"'{HALF}'"}),
        lambda: table.set_properties(**{"my.owner": HALF}),
        lambda: inlay.open(f"memory://attacks/{HALF}"),
    ):
        with pytest.raises(InputError):
            attempt()
    assert inlay.open(table.uri).version == 2


def test_the_bound_of_a_marker_counts_bytes(table: Table) -> None:
    characters = MAX_PREDICATE_BYTES // 4
    with pytest.raises(InvalidPredicate, match="8192"):
        table.delete("id = 1 OR name = '" + "\U0001f600" * characters + "'")
    table.delete("id = 1 OR name = '" + "\U0001f600" * (characters - 50) + "'")
    assert table.count() == 1


def test_keys_too_long_for_the_pointer_go_into_an_object(table: Table) -> None:
    table.delete(keys={"name": ["\U0001f600" * 3000]})
    [marker] = table.inspect.entries()[1]
    assert isinstance(marker.body, Keys)
    assert table.scan().to_arrow()["id"].to_pylist() == [1]


def test_properties_stay_small(table: Table) -> None:
    with pytest.raises(InputError, match="1024"):
        table.set_properties(**{"my.notes": "x" * 1025})
    with pytest.raises(InputError, match="1024"):
        table.set_properties(**{"my." + "x" * 1025: "y"})
    table.set_properties(**{"my.notes": "x" * 1024})

"""Texts that no store can hold, and those that take more bytes than characters."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

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
        lambda: table.inspect.search([HALF]),
    ):
        with pytest.raises(InputError):
            attempt()
    assert inlay.open(table.uri).version == 2


# Of arguments that have no default, those with which a verb gets as far as the text.
USUAL = {
    "where": "id = 1",
    "set": {"name": "'x'"},
    "columns": ["id"],
    "name": "n",
    "order": "id",
    "fields": ["id"],
    "data": pa.table({"id": [1], "name": ["x"]}, schema=SCHEMA),
    "since_version": 1,
}


def with_half(annotation: str) -> Iterator[Any]:
    """Arguments of a parameter that takes text."""
    if "str" in annotation:
        if "Mapping" in annotation:
            yield from ({HALF: HALF}, {"name": HALF}, {HALF: "string"})
        if "Sequence" in annotation:
            yield [HALF]
        if annotation.startswith("str"):
            yield HALF


def test_half_a_surrogate_pair_in_any_argument_of_text_is_no_crash(table: Table) -> None:
    tried = 0
    for part in (table, table.refs, table.maintain, table.inspect):
        verbs = {n: f for n, f in inspect.getmembers(type(part), callable) if n[0] != "_"}
        for verb, function in verbs.items():
            signature = list(inspect.signature(function).parameters.values())[1:]
            parameters = [p for p in signature if p.kind != p.VAR_POSITIONAL]
            least = {p.name: USUAL.get(p.name, "x") for p in parameters if p.default is p.empty}
            for parameter in parameters:
                for value in with_half(str(parameter.annotation)):
                    tried += 1
                    with suppress(InputError):
                        getattr(part, verb)(**{**least, parameter.name: value})
    assert tried > 80


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

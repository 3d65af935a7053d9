"""Erased from files whose writers name a value where no row has it: categories, ENUMs, attributes."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay.ops.maintain.rewrite_file as rewriting
from inlay.format.predicate import Comparison, Literal, Predicate
from inlay.format.schema import Primitive
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.metadata.load import load_entries, load_pointer
from inlay.ops.schema.create import create
from inlay.plan.surgery.strategy import choose
from inlay.storage.base import Location
from inlay.storage.memory import MemoryStore

from ..maintenance.bench import Time
from ..surgery import checker, engines
from . import categories
from .oracle import Secret, find
from .people import People

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("email", pa.string())])
PERSON = categories.PERSON
# The pointer's bounds are the first 16 characters.
SECRETS = (Secret(PERSON), Secret(PERSON[:16]))


def table_of(*bodies: bytes, adopt: bool = False) -> People:
    time = Time()
    store = MemoryStore("b", now_us=time.now_us)
    ctx = Context(
        store=store,
        root="tables/people",
        uri="memory://b/tables/people",
        executor=InlineExecutor(),
        clock=time,
        random=random.Random(5),
    )
    people = People(time, store, ctx)
    create(people.ctx, SCHEMA)
    for n, body in enumerate(bodies):
        people.time.sleep(1)
        store.put(f"ingest/people/{n}.parquet", body)
        people.ingest(Location("memory", "b", f"ingest/people/{n}.parquet"), adopt=adopt)
    return people


def is_person(who: str = PERSON) -> Predicate:
    return Comparison(2, "=", Literal(Primitive("string"), who))


def objects(people: People) -> list[bytes]:
    loaded = load_pointer(people.ctx)
    files = load_entries(people.ctx, loaded.state).files()
    return [people.store.get(people.ctx.key(f.key)).body for f in files]


def emails(body: bytes) -> list[Any]:
    table = pq.read_table(io.BytesIO(body), columns=["id", "email"])
    return sorted(zip(table["id"].to_pylist(), table["email"].to_pylist(), strict=True))


def force(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are rewritten whole; these tests want both ways."""

    def chosen(*args: Any, **options: Any) -> Any:
        return choose(*args, **{**options, "strategy": way})

    monkeypatch.setattr(rewriting, "choose", chosen)


@pytest.mark.parametrize("way", ["surgery", "rewrite"])
@pytest.mark.parametrize("has_person", [True, False], ids=["a row", "no row"])
@pytest.mark.parametrize("name", [*categories.WRITERS, "attributes"])
def test_nothing_is_left_of_a_person_in_any_row_group(
    name: str, has_person: bool, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(way, monkeypatch)
    writer = categories.WRITERS.get(name, categories.with_attributes)
    body = writer(has_person)
    people = table_of(body)
    expected = [row for row in emails(body) if row[1] != PERSON]
    people.erase(is_person())
    result = people.finish()
    assert result.receipts
    assert find(people.store, *SECRETS) == []
    [left] = objects(people)
    assert emails(left) == expected
    assert checker.kinds(left) <= checker.kinds(body)
    path = tmp_path / "left.parquet"
    path.write_bytes(left)
    for reader in engines.READERS.values():
        found = reader(path)
        assert found.num_rows == len(expected)
        seen = sorted(str(value).strip("'") for value in found["email"].to_pylist())
        assert seen == sorted(str(value) for _, value in expected)

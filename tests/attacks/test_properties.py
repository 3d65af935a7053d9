"""Settings do what they say, whenever they are set."""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InvalidRequest, TableReplaced
from inlay.ops.data import layout_of
from inlay.ops.write.apply_changes import Rules
from inlay.plan.maintain.order import order_of
from inlay.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def location() -> str:
    return f"memory://attacks/{uuid.uuid4().hex}"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "name": [f"n{i}" for i in ids]}, schema=SCHEMA)


def test_statistics_follow_the_property() -> None:
    t = inlay.create(location(), SCHEMA, properties={"stats.columns": 1})
    for wanted, value in [(1, 1), (2, 2), (0, 0), (2, None)]:
        t.set_properties(stats__columns=value)
        t.append(rows(1))
        assert len(t.inspect.entries()[0][-1].stats) == wanted


def test_files_are_about_as_large_as_asked() -> None:
    t = inlay.create(location(), SCHEMA, properties={"write.target_file_bytes": 20_000})
    t.append(rows(*range(0, 10**8, 1000)))
    sizes = [f.size for f in t.inspect.entries()[0]]
    assert len(sizes) > 5
    assert max(sizes) < 60_000
    assert t.count() == 100_000


def test_a_mode_that_upsert_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="upsert"):
        inlay.create(location(), SCHEMA, properties={"upsert.mode": "vector"})


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.append(rows(1)),
        lambda t: t.delete("id = 5"),
        lambda t: t.delete("id = 99"),
        lambda t: t.delete("id = 5", mode="vector"),
        lambda t: t.update({"id": "7"}, where="id = 5"),
        lambda t: t.maintain.rewrite(),
        lambda t: t.refresh(),
    ],
    ids=["append", "delete", "delete nothing", "vector", "update", "rewrite", "refresh"],
)
def test_another_table_at_the_same_place_is_left_alone(
    tmp_path: Path, change: Callable[[Table], object]
) -> None:
    old = inlay.create(tmp_path / "t", SCHEMA)
    old.append(rows(1))
    shutil.rmtree(tmp_path / "t")
    inlay.create(tmp_path / "t", SCHEMA).append(rows(5, 6))
    with pytest.raises(TableReplaced):
        change(old)
    now = inlay.open(tmp_path / "t")
    assert (now.version, now.count()) == (2, 2)


TYPED = pa.schema([("id", pa.int64()), ("a, b", pa.string()), ("f", pa.float64())])


@pytest.mark.parametrize(
    ("name", "value", "step"),
    [
        ("write.bloom_filters", "nobody", "It takes: id, a, b"),
        ("write.bloom_filters", "id, ID", "Did you mean 'id'"),
        ("write.bloom_filters", "f", "It takes: id, a, b"),
        ("write.bloom_filters", "a, b", "It takes: id, a, b"),
        ("compact.columns", "id, nobody", "It takes: id, a, b, f"),
        ("changes.order", "id, lns", "It takes: id, a, b, f"),
    ],
)
def test_a_property_names_columns_of_the_table(name: str, value: str, step: str) -> None:
    for run in (
        lambda: inlay.create(location(), TYPED, properties={name: value}),
        lambda: inlay.create(location(), TYPED).set_properties(**{name: value}),
    ):
        with pytest.raises(InvalidRequest, match=name) as refused:
            run()
        assert step in refused.value.next_step
    for good in ('"a, b"', "id", '"a, b", id', "key", "none", ""):
        t = inlay.create(location(), TYPED, properties={name: good})
        t.set_properties(**{name: good})
    t.alter(drop=["id"])  # what a property names may go
    t.append(pa.table({"a, b": ["x"], "f": [1.0]}))


def test_what_a_delete_sets_is_a_boolean_or_a_time(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("gone", pa.bool_()), ("at", pa.timestamp("us"))])
    t = inlay.create(location(), schema, primary_key="id")
    for wrong in ("id", "nobody"):
        with pytest.raises(InvalidRequest, match="delete_to") as refused:
            t.set_properties(changes__delete_to=wrong)
        assert "gone, at" in refused.value.next_step
    for right in ("gone", "at", ""):
        t.set_properties(changes__delete_to=right)


def test_names_of_landing_columns_are_read_as_everywhere(tmp_path: Path) -> None:
    t = inlay.create(str(tmp_path / "t"), TYPED, properties={"ingest.formats": "parquet,csv"})
    t.set_properties(**{"ingest.columns": 'id, "a, b", f'})
    (tmp_path / "x.csv").write_text("1,text,2.5\n")
    [outcome] = t.ingest([(tmp_path / "x.csv").as_uri()]).outcomes
    assert type(outcome).__name__ == "Ingested", outcome
    assert t.refresh().scan().to_arrow().to_pylist() == [{"id": 1, "a, b": "text", "f": 2.5}]


@pytest.mark.parametrize("seed", range(20))
def test_a_property_finds_its_columns_whatever_they_are_called_now(seed: int) -> None:
    r = random.Random(seed)
    schema = pa.schema([(name, pa.int64()) for name in ("id", "a", "b, c")])
    schema = schema.append(pa.field("d", pa.timestamp("us")))
    named = ("compact.columns", "write.bloom_filters", "changes.order")
    properties = dict.fromkeys(named, 'a, "b, c"') | {"changes.delete_to": "d"}
    t = inlay.create(location(), schema, primary_key="id", properties=properties)
    t.refs.branch("dev")
    renamed = 0
    for _ in range(8):
        if r.random() < 0.3:
            t.refs.restore(version=r.randint(1, t.version))
        else:
            field = r.choice([f for f in t.snapshot.schema.fields if f.id > 1])
            t.alter(rename={f'"{field.name}"': f"new{renamed}"})
            renamed += 1
        for now in (t.refresh(), inlay.open(t.uri, ref="dev")):
            order = order_of(now.snapshot)
            assert order is not None and order.columns == (2, 3)
            assert layout_of(now.snapshot).bloom_columns == (2, 3)
            rules, names = Rules.of_table(now.snapshot), now.snapshot.schema.names
            assert (*rules.order, rules.delete_to) == names[1:]
        t.append(pa.table({n: [renamed] for n in t.snapshot.schema.names}, schema=t.schema))
        t.maintain.compact()
        t.refresh()
    # A copy knows no earlier names.
    copied = t.copy_to(location())
    names = copied.snapshot.schema.names
    assert Rules.of_table(copied.snapshot).order == names[1:3]
    t.refresh().set_properties(**{n: copied.snapshot.properties[n] for n in properties})
    copied.append(pa.table({n: [9] for n in names}, schema=copied.schema))
    copied.maintain.compact()

"""However a file, a key or a ref changes: what another writer says of the key hides no row from the key."""

from __future__ import annotations

import io
import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import (
    ConcurrentChange,
    InputError,
    MergeConflict,
    UnsupportedFile,
    UntrueStatistics,
)
from inlay.format.properties import Properties
from inlay.ops.read import compare_statistics
from inlay.parquet.footer.fields import Meta, Stats
from inlay.parquet.footer.footer import decode_footer, end_of_file
from inlay.plan.commit import conflicts

COLUMNS = ("a", "b", "c")
SCHEMA = pa.schema([(name, pa.int64()) for name in COLUMNS])
Row = tuple[int, int, int]


def table_of(rows: list[Row]) -> pa.Table:
    return pa.table(
        {name: [row[n] for row in rows] for n, name in enumerate(COLUMNS)}, schema=SCHEMA
    )


def lying(rows: list[Row], column: str) -> bytes:
    """A file whose footer says that all values of a column are 5,000, which none is."""
    sink = io.BytesIO()
    pq.write_table(table_of(rows), sink)
    return belied(sink.getvalue(), column)


def belied(body: bytes, column: str) -> bytes:
    footer = decode_footer(body, file_size=len(body))
    bound = (5_000).to_bytes(8, "little")
    for group in footer.row_groups:
        meta = group.column(COLUMNS.index(column)).meta
        meta[Meta.STATISTICS] = {Stats.NULLS: 0, Stats.MIN: bound, Stats.MAX: bound}
    return body[: footer.start] + end_of_file(footer.tree)


class Place:
    """A table, and a folder that files land in."""

    def __init__(self, key: str | tuple[str, ...] = (), **properties: str) -> None:
        self.root = f"memory://{uuid.uuid4().hex}"
        named = {f"ingest.{name}": value for name, value in properties.items()}
        inlay.create(f"{self.root}/t", SCHEMA, primary_key=key, properties=named)
        self.landed = 0

    def open(self, ref: str | None = None) -> inlay.Table:
        return inlay.open(f"{self.root}/t", ref=ref)

    def land(self, body: bytes) -> str:
        self.landed += 1
        name = f"in/{self.landed}.parquet"
        self.open()._ctx.store.put(name, body)
        return f"{self.root}/{name}"

    def take(self, rows: list[Row], column: str, ref: str | None = None, **options: Any) -> Any:
        source = self.land(lying(rows, column))
        [outcome] = self.open(ref).ingest([source], **options).outcomes
        return outcome

    def rows(self, ref: str | None = None) -> list[Row]:
        found = self.open(ref).scan().to_arrow()
        return sorted(zip(*(found[name].to_pylist() for name in COLUMNS), strict=True))

    def hidden(self, ref: str | None = None) -> list[tuple[str, int]]:
        """Values of the key that a look for them does not give all rows of."""
        table = self.open(ref)
        by_id = {field.id: field.name for field in table.snapshot.schema.fields}
        rows, found = self.rows(ref), []
        for name in (by_id[i] for i in table.snapshot.primary_key):
            values = [row[COLUMNS.index(name)] for row in rows]
            for value in set(values):
                if table.count(where=f"{name} = {value}") != values.count(value):
                    found.append((name, value))
        return found


def test_a_key_set_later_misses_no_row() -> None:
    for first in ((), "a"):
        place = Place(first)
        place.take([(1, 7, 0)], "b")
        before = place.open().version
        place.open().alter(primary_key="b")
        assert place.hidden() == []
        assert place.open().version == before + 2, "written again in a commit of its own"
        place.open().upsert(table_of([(9, 7, 0)]))
        assert place.rows() == [(9, 7, 0)]
        place.open().delete(keys={"b": [7]})
        assert place.rows() == []


def test_true_statistics_stay_as_they_are() -> None:
    place = Place("a")
    place.take([(1, 7, 0)], "c")
    [landed] = place.open().inspect.files().to_pylist()
    place.open().alter(primary_key=["a", "b"])
    assert [f["key"] for f in place.open().inspect.files().to_pylist()] == [landed["key"]]


def test_an_adopted_file_is_refused_by_name() -> None:
    place = Place("a")
    place.take([(1, 7, 0)], "b", adopt=True)
    with pytest.raises(UntrueStatistics, match="columns checked: b") as refused:
        place.open().alter(primary_key="b")
    assert "1.parquet" in refused.value.next_step and "inlay delete" in refused.value.next_step
    place.open().delete("TRUE", file=refused.value.key)
    place.open().maintain.compact()
    place.open().alter(primary_key="b")


def test_a_property_leaves_it_to_the_user() -> None:
    place = Place("a", check_statistics="none")
    place.take([(1, 7, 0)], "b", adopt=True)
    place.open().alter(primary_key="b")
    assert place.hidden() == [("b", 7)]


@pytest.mark.parametrize("key_first", [True, False])
def test_a_transaction_compares_as_a_commit_does(key_first: bool) -> None:
    place, other = Place("b" if key_first else "a"), Place("a")
    source = place.land(lying([(1, 7, 0)], "b"))
    with inlay.transaction() as tx:
        tx.ingest(place.open(), [source])
        tx.append(other.open(), table_of([(1, 1, 1)]))
    if not key_first:
        place.open().alter(primary_key="b")
    assert place.rows() == [(1, 7, 0)] and place.hidden() == []
    with inlay.transaction() as tx:
        tx.upsert(place.open(), table_of([(9, 7, 0)]))
        tx.append(other.open(), table_of([(2, 2, 2)]))
    assert place.rows() == [(9, 7, 0)]


def test_a_merge_compares_what_gets_the_key_of_the_other_side() -> None:
    for main_moves in (False, True):
        for lands_on in ("main", "branch"):
            place = Place("a")
            place.open().append(table_of([(1, 1, 1)]))
            place.open().refs.branch("other")
            keyed, plain = ("main", "other") if lands_on == "branch" else ("other", "main")
            place.open(None if keyed == "main" else keyed).alter(primary_key="b")
            at = None if plain == "main" else plain
            place.take([(2, 7, 0)], "b", at)
            if main_moves:
                place.open().append(table_of([(3, 3, 3)]))
            place.open().refs.merge("other")
            for ref in (None, "other"):
                assert place.open(ref).snapshot.primary_key == (2,)
                assert (2, 7, 0) in place.rows(ref)
                assert place.hidden(ref) == []


def test_a_merge_names_the_adopted_file_that_it_cannot_take() -> None:
    place = Place("a")
    place.open().append(table_of([(1, 1, 1)]))
    place.open().refs.branch("other").alter(primary_key="b")
    place.take([(2, 7, 0)], "b", adopt=True)
    with pytest.raises(UntrueStatistics, match="columns checked: b"):
        place.open().refs.merge("other")


@pytest.mark.parametrize("adopt", [False, True])
def test_a_file_that_was_checked_for_another_key_is_checked_again(
    adopt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key changes between the check of the file and its commit."""
    place = Place("a")
    source, once = place.land(lying([(2, 7, 0)], "b")), [True]
    checked = compare_statistics.denied_rows

    def then_altered(*args: Any, **options: Any) -> Any:
        found = checked(*args, **options)
        if once:
            once.clear()
            place.open().alter(primary_key="b")
        return found

    monkeypatch.setattr("inlay.ops.write.ingest.denied_rows", then_altered)
    [outcome] = place.open().ingest([source], adopt=adopt).outcomes
    assert not once
    assert isinstance(outcome, inlay.ops.write.ingest.Rejected) is adopt
    assert place.rows() == ([] if adopt else [(2, 7, 0)])
    assert place.hidden() == []


def test_a_file_that_comes_while_the_key_is_changed_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place("a")
    place.take([(1, 1, 0)], "c")
    once, checked = [True], compare_statistics.denied_rows

    def then_taken(*args: Any, **options: Any) -> Any:
        found = checked(*args, **options)
        if once:
            once.clear()
            place.take([(2, 7, 0)], "b")
        return found

    monkeypatch.setattr(compare_statistics, "denied_rows", then_taken)
    place.open().alter(primary_key="b")
    assert not once and place.hidden() == []
    assert place.rows() == [(1, 1, 0), (2, 7, 0)]


# -- every way, in any order ------------------------------------------------------------------------


def a_history(seed: int, steps: int = 14) -> Iterator[tuple[Place, str]]:
    """The place after each step, and which step that was."""
    rng = random.Random(seed)
    place = Place(rng.choice([(), "a", ("a", "b")]))
    place.open().append(table_of([(0, 0, 0), (1, 2, 3)]))
    stale: list[inlay.Table] = [place.open()]
    number = [10]

    def fresh(count: int = 2) -> list[Row]:
        number[0] += 10
        return [(number[0] + n, number[0] + 5 - n, rng.randrange(5)) for n in range(count)]

    def refs() -> list[str | None]:
        names = place.open().inspect.refs().to_pylist()
        return [None, *(r["name"] for r in names if r["name"] != "main" and r["kind"] == "branch")]

    def somewhere() -> inlay.Table:
        """On some branch, as it is or as it was a while ago."""
        old = rng.random() < 0.3
        return rng.choice(stale) if old else place.open(rng.choice(refs()))

    def a_key() -> Any:
        return rng.choice(["a", "b", "c", ("a", "b"), ("b", "c"), ("c",)])

    def ingest() -> None:
        source = place.land(lying(fresh(), rng.choice(COLUMNS)))
        somewhere().ingest([source], adopt=rng.random() < 0.3)

    def upsert() -> None:
        table = somewhere()
        rows = rng.sample(place.rows(), k=min(2, len(place.rows()))) + fresh(1)
        names = [f.name for f in table.snapshot.schema.fields]
        key = [names[i - 1] for i in table.snapshot.primary_key] or ["a"]
        table.upsert(table_of(rows), on=key, on_duplicate="last")

    def delete() -> None:
        rows = place.rows()
        if rows:
            value = rng.choice(rows)[0]
            mode = rng.choice(["tombstone", "vector", "surgery", "rewrite"])
            somewhere().delete(f"a = {value}", mode=mode)

    def branch() -> None:
        if len(refs()) < 3:
            somewhere().refs.branch(f"b{number[0]}")
            number[0] += 1

    def merge() -> None:
        names = [name for name in refs() if name]
        if names:
            place.open().refs.merge(rng.choice(names))

    def restore() -> None:
        names = [name for name in refs() if name]
        if names and rng.random() < 0.5:
            somewhere().refs.restore(ref=rng.choice(names))
        else:
            somewhere().refs.restore(version=rng.randint(2, place.open().version))

    acts: dict[str, Callable[[], object]] = {
        "ingest": ingest,
        "append": lambda: somewhere().append(table_of(fresh())),
        "upsert": upsert,
        "delete": delete,
        "alter": lambda: somewhere().alter(primary_key=a_key()),
        "branch": branch,
        "merge": merge,
        "restore": restore,
        "compact": lambda: somewhere().maintain.compact(small_bytes=1 << 20),
        "rewrite": lambda: somewhere().maintain.rewrite(
            strategy=rng.choice(["surgery", "rewrite"])
        ),
        "look": lambda: stale.append(place.open(rng.choice(refs()))),
    }
    weights = [4, 1, 2, 2, 4, 2, 3, 2, 1, 1, 1]
    for _ in range(steps):
        [name] = rng.choices([*acts], weights)
        with suppress(*REFUSALS):
            acts[name]()
        yield place, name


# What a history may be told: nothing was done then.
REFUSALS = (UnsupportedFile, MergeConflict, ConcurrentChange, InputError)


def broken_histories(seeds: Iterable[int]) -> Iterator[tuple[int, str, object]]:
    for seed in seeds:
        for place, name in a_history(seed):
            refs = [r["name"] for r in place.open().inspect.refs().to_pylist()]
            for ref in (None if r == "main" else r for r in refs):
                hidden = place.hidden(ref)
                if hidden:
                    yield seed, name, (ref, hidden)
                    break
            else:
                continue
            break


# Of these each of the last two needs what one of the comparisons is for.
SEEDS = (0, 1, 46, 52)


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(range(2, 12), marks=pytest.mark.wide)])
def test_no_history_hides_a_row_from_its_key(seeds: Iterable[int]) -> None:
    assert next(broken_histories(seeds), None) is None


@pytest.mark.parametrize(
    ("without", "seed"), [("altered", 1), ("merged", 52), ("added", 46), ("landed", 1)]
)
def test_the_histories_find_each_missing_comparison(
    without: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one of the places taken out that compare, a history shows it."""
    assert seed in SEEDS

    def nothing(*args: object) -> tuple[int, ...]:
        return ()

    match without:
        case "altered":
            monkeypatch.setattr("inlay.plan.schema_conflicts.uncompared", nothing)
        case "merged":
            monkeypatch.setattr("inlay.ops.diverged.uncompared", nothing)
        case "added":
            monkeypatch.setattr(conflicts, "uncompared", nothing)
        case _:
            monkeypatch.setattr("inlay.ops.write.ingest.compared_columns", nothing)
            monkeypatch.setattr(conflicts, "uncompared", nothing)
    assert next(broken_histories([seed]), None) is not None


def test_the_default_compares_the_key() -> None:
    assert Properties({}).text("ingest.check_statistics") == "key"

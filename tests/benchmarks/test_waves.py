"""Round trips of each operation, exactly (`tests.waves`), the requests they are of and their bytes: what
latency and bandwidth multiply, and what no machine's load changes. More of any is a change that is meant,
and said here; bytes are those of the locked pyarrow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock
from uuid import uuid4

import pyarrow as pa
import pytest
from tests.waves import same, trips

import inlay
from inlay.storage import memory

FILES = 8
ROWS = 40_000  # of a file: too large to come whole with its footer
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.int64()),
        *[(f"c{n}", pa.float64()) for n in range(6)],
        ("text", pa.string()),
    ]
)


def rows(first: int, number: int) -> pa.Table:
    ids, dice = range(first, first + number), random.Random(first)
    # In no order, and different in each row: nothing of it compresses to a chunk that comes whole.
    columns = {f"c{n}": [dice.random() for _ in ids] for n in range(6)}
    texts = [f"{dice.getrandbits(64):x}" for _ in ids]
    data = {"id": ids, "part": [i % 3 for i in ids], **columns, "text": texts}
    return pa.table(data, schema=SCHEMA)


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": ids})


@pytest.fixture(scope="module", autouse=True)
def own_region() -> Iterator[None]:
    """`same` sets the clock of all that is in memory: of these tests alone."""
    with mock.patch.object(memory, "PROCESS_REGION", memory.MemoryRegion()):
        yield


@pytest.fixture(scope="module")
def filled() -> dict[str, bytes]:
    """The objects of a table of `FILES` files, which each test has for itself."""
    uri = f"memory://waves-{uuid4().hex}/t"
    context = same(inlay.connect(uri))
    table = inlay.create(uri, SCHEMA, primary_key="id", sort_by=["id"], context=context)
    for n in range(FILES):
        table.append(rows(n * ROWS, ROWS))
    store = table._ctx.store
    return {info.key: store.get(info.key).body for info in store.list("")}


@pytest.fixture
def uri(filled: dict[str, bytes]) -> str:
    place = f"memory://waves-{uuid4().hex}/t"
    store = same(inlay.connect(place)).store
    for key, body in filled.items():
        store.put(key, body)
    return place


def opened(uri: str) -> inlay.Table:
    return inlay.open(uri, context=same(inlay.connect(uri)))


Act = Callable[[inlay.Table], object]
Counts = tuple[int, int, int, int]
# (waves, requests, bytes up, bytes down) of each on a table that was just opened: the pointer's are of it.
READS: dict[str, tuple[Counts, Act]] = {
    "count": ((1, 1, 0, 2104), lambda t: t.count()),
    "point by key: footer with index, pages": (
        (3, 10, 0, 300083),
        lambda t: t.scan(where=f"id = {ROWS // 2}").to_arrow(),
    ),
    "two columns": ((3, 25, 0, 2760426), lambda t: t.scan(columns=["id", "c5"]).to_arrow()),
    "all columns: each file whole": ((2, 9, 0, 17694766), lambda t: t.scan().to_arrow()),
    "few rows of every file, by a value in no order": (
        (4, 36, 0, 17152366),
        lambda t: t.scan(where="c0 < 0.0002").to_arrow(),
    ),
    "limit 10": ((3, 10, 0, 285150), lambda t: t.scan(limit=10).to_arrow()),
    "absent by key": ((1, 1, 0, 2104), lambda t: t.scan(where="id = -1").to_arrow()),
}


@pytest.mark.parametrize("name", READS)
def test_waves_of_reading(name: str, uri: str) -> None:
    expected, act = READS[name]
    with trips(uri) as asked:
        assert asked.counted(lambda: act(asked.open())) == expected


def test_a_count_under_a_list_of_keys_is_four_waves(uri: str) -> None:
    """Pointer, then the keys beside the ends of the files, then their key columns."""
    listed = list(range(0, FILES * ROWS, 60))
    opened(uri).delete(keys=keys(*listed))
    with trips(uri) as asked:
        counted: list[int] = []
        waves = asked.counted(lambda: counted.append(asked.open().count()))
    assert counted == [FILES * ROWS - len(listed)]
    assert waves == (3, 2 + 2 * FILES, 0, 354492)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        # Pointer, ends of the files; the pages that bounds promise most of, with all columns, by more
        # requests than threads; of a file with two of them the other columns are in a wave of their own.
        ("c3", (5, 53, 0, 3885721)),
        # Pointer, the end of the file whose bounds promise all ten, a page of each column.
        ("id", (3, 10, 0, 284740)),
    ],
)
def test_the_first_rows_of_an_order(column: str, expected: Counts, uri: str) -> None:
    with trips(uri) as asked:
        answers: list[Any] = []

        def act() -> None:
            answers.append(asked.open().scan(order_by=f"{column} DESC", limit=10).to_arrow())

        counts = asked.counted(act)
    everything = inlay.open(uri).scan(columns=[column]).to_arrow()[column].to_pylist()
    assert answers[0][column].to_pylist() == sorted(everything, reverse=True)[:10]
    assert counts == expected


# The same of each on a table that is open: its base is known.
WRITES: dict[str, tuple[Counts, Act]] = {
    "append: rows beside the archive, then the pointer": (
        (2, 3, 14863, 0),
        lambda t: t.append(rows(10**6, 100)),
    ),
    "append of 20,000 rows": ((2, 3, 1111830, 0), lambda t: t.append(rows(10**6, 20_000))),
    "upsert: rows and keys beside the archive": (
        (2, 4, 74676, 0),
        lambda t: t.upsert(rows(0, 1_000)),
    ),
    "upsert of a few": ((2, 3, 8917, 0), lambda t: t.upsert(rows(0, 10))),
    "delete by a range": ((2, 2, 4266, 0), lambda t: t.delete("id < 10")),
    "delete by a condition": ((2, 2, 4277, 0), lambda t: t.delete("part = 1 AND c1 > 0.5")),
    "delete of a few keys": ((2, 2, 4261, 0), lambda t: t.delete(keys=keys(1, 2, 3))),
    "delete of many keys: beside the archive": (
        (2, 3, 4878, 0),
        lambda t: t.delete(keys=keys(*range(1_000))),
    ),
    "update of a row: pointer, end of a file, pages, then as an append": (
        (5, 13, 8121, 285150),
        lambda t: t.update({"text": "'x'"}, where="id = 7"),
    ),
}


def check_waves(uri: str, expected: Counts, act: Act) -> inlay.Table:
    with trips(uri) as asked:
        table = asked.open()
        assert asked.counted(lambda: act(table)) == expected
    return table


@pytest.mark.parametrize("name", WRITES)
def test_waves_of_writing(name: str, uri: str) -> None:
    table = check_waves(uri, *WRITES[name])
    assert inlay.open(uri).version == table.version  # it is there for others


# What looks at the table again first, or goes on after its commit, begins and ends with the pointer.
MAINTENANCE: dict[str, tuple[Counts, Act]] = {
    "a row by vector: end of a file, pages, then archive and pointer": (
        (5, 5, 4251, 14137),
        lambda t: t.delete("id = 7", mode="vector"),
    ),
    "a row by surgery: then its row group, beside it a look at the object, the new one": (
        (7, 8, 2216611, 2226417),
        lambda t: t.delete("id = 7", mode="surgery"),
    ),
    "a row of each file by surgery: one file after the other": (
        (21, 43, 17696442, 18075497),
        lambda t: t.delete(f"id % {ROWS} = 7", mode="surgery"),
    ),
    "a row by rewriting its file": (
        (7, 7, 2216599, 2220871),
        lambda t: t.delete("id = 7", mode="rewrite"),
    ),
    "compact: each file whole, and the new one": (
        (6, 13, 17678298, 17696554),
        lambda t: t.maintain.compact(),
    ),
    "rewrite where nothing is to be done": ((1, 1, 0, 2104), lambda t: t.maintain.rewrite()),
    "expire": ((4, 4, 4191, 4191), lambda t: t.maintain.expire(days=0, min_versions=1)),
    "look for garbage": ((4, 11, 0, 13361), lambda t: t.maintain.collect_garbage()),
    "verify": ((5, 19, 0, 34713), lambda t: t.maintain.verify()),
}


@pytest.mark.parametrize("name", MAINTENANCE)
def test_waves_of_maintenance(name: str, uri: str) -> None:
    check_waves(uri, *MAINTENANCE[name])


def test_a_delete_is_materialised_in_nine_waves(uri: str) -> None:
    opened(uri).delete("id < 10")
    with trips(uri) as asked:
        table = asked.open()
        assert asked.counted(lambda: table.maintain.rewrite()) == (9, 9, 2216036, 2255494)


def test_a_table_is_made_in_four_waves() -> None:
    """Nothing is there: a look and a listing. Then the pointer, and whether the store keeps conditions."""
    place = f"memory://waves-{uuid4().hex}/t"
    with trips(place) as asked:
        made = asked.counted(lambda: inlay.create(place, SCHEMA, context=asked.context))
    assert made == (4, 4, 2022, 0)


def test_changes_are_compared_and_written_in_four_waves(uri: str) -> None:
    """Read: the end of the file, the key's pages. Then rows, keys and archive; then the pointer."""
    with trips(uri) as asked:
        table = asked.open()
        changes = asked.counted(lambda: table.apply_changes(rows(0, 100), order="c0"))
    assert changes == (5, 8, 15521, 51735)


def test_a_clock_counts_what_is_one_after_the_other(uri: str) -> None:
    """The clock itself: more requests than there are threads take as many waves more."""
    with trips(uri) as asked:
        ctx = asked.context
        names = [f"x{n}" for n in range(70)]
        assert asked.of(lambda: list(ctx.map(ctx.store.get, names))) == (3, 70)
        assert asked.of(lambda: [ctx.store.get(name) for name in names[:5]]) == (5, 5)

"""The first rows of an order: what is read for them, and how an order is asked for. That they are the
right ones: `test_rows_against_a_model`."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import InvalidPredicate, InvalidRequest
from inlay.format.entry import ColumnStats, Marker, Rows
from inlay.format.predicate import Comparison, Literal
from inlay.format.schema import Field, Primitive, Schema, Struct
from inlay.ops.cache import ObjectCache
from inlay.ops.read import top_n
from inlay.ops.read.top_n import OrderKey, first_rows, parse_order
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.read import decode
from inlay.parquet.read import reader as reader_module
from inlay.parquet.read.data_file import index_bytes
from inlay.parquet.read.reader import Ahead
from inlay.parquet.read.selection import Projection
from inlay.plan.pruning.promise import may_be_as_good, promised
from inlay.plan.pruning.prune import Evidence

ROWS, FILES = 40_000, 4
LONG, TEXT = Primitive("int64"), Primitive("string")


def part(n: int) -> pa.Table:
    dice = random.Random(n)
    return pa.table(
        {
            "id": pa.array(range(n * ROWS, (n + 1) * ROWS), pa.int64()),
            "price": pa.array([dice.randrange(10**9) for _ in range(ROWS)], pa.int64()),
            "word": [dice.randbytes(12).hex() for _ in range(ROWS)],
        }
    )


PARTS = [part(n) for n in range(FILES)]
WHOLE = pa.concat_tables(PARTS)
SCHEMA = schema_from_arrow(WHOLE.schema)


def top(
    lake: Any,
    files: Any,
    order: str,
    limit: int,
    columns: tuple[int, ...] = (1, 2, 3),
    tasks: Any = None,
) -> Any:
    projection = Projection(schema=SCHEMA, columns=columns)
    found = first_rows(
        lake.reader,
        tasks or lake.plan(files, SCHEMA).tasks,
        projection,
        parse_order(order, SCHEMA),
        limit,
        Evidence(SCHEMA),
    )
    return pa.Table.from_batches(list(found), schema=projection.result)


@pytest.fixture
def files(lake: Any) -> Any:
    found = [entry for rows in PARTS for entry in lake.write(rows)]
    lake.store.reads.clear()
    return found


def test_rows_that_lie_together_are_found_by_bounds(lake: Any, files: Any) -> None:
    found = top(lake, files, "id DESC", 3)
    assert found.equals(WHOLE.slice(FILES * ROWS - 3).take([2, 1, 0]))
    # The last file alone, and of the other columns one page.
    assert {read.key for read in lake.store.reads} == {f"tables/t/{files[-1].key}"}
    assert lake.store.bytes_read < files[-1].size / 2


@pytest.mark.parametrize("second", [(), (", id",)])
def test_of_scattered_rows_pages_are_read(lake: Any, files: Any, second: tuple[str, ...]) -> None:
    lake.cache = ObjectCache()
    found = top(lake, files, "price DESC" + "".join(second), 5)
    assert found.equals(WHOLE.sort_by([("price", "descending"), ("id", "ascending")]).slice(0, 5))
    assert lake.store.bytes_read < sum(f.size for f in files) / 2
    # The ends, then at once the pages that bounds promise most of, no more than rows: with all columns.
    verbs = [read.verb for read in lake.store.reads]
    assert verbs == sorted(verbs, reverse=True)
    assert (verbs.count("SUFFIX"), verbs.count("GET")) == (4, 9)


def test_what_is_as_good_and_in_later_files_is_not_read(lake: Any) -> None:
    """Each page has one row of the best value: the first of them are enough, unless another key decides."""
    prices = pa.array([9 if n % 5_000 == 7 else 1 for n in range(ROWS)], pa.int64())
    parts = [rows.set_column(1, "price", prices) for rows in PARTS]
    made = [entry for rows in parts for entry in lake.write(rows)]
    price, word = ("price", "descending"), ("word", "ascending")
    for order, keys, read in [
        ("price DESC", [price], made[:1]),
        ("price DESC, word", [price, word], made),
    ]:
        for limit in (1, 3, 8):
            lake.store.reads.clear()
            found = top(lake, made, order, limit)
            assert found.equals(pa.concat_tables(parts).sort_by(keys).slice(0, limit))
            read_of = {r.key for r in lake.store.reads if r.verb == "GET"}
            assert read_of == {f"tables/t/{file.key}" for file in read}


def test_a_file_with_deletes_promises_nothing_by_its_pages(lake: Any) -> None:
    """Its best rows are deleted: without promises of them the search is made once."""
    places = (0, 6_000, 12_000)
    prices = PARTS[0]["price"].to_pylist()
    for place in places:
        prices[place] = 10**10
    first = PARTS[0].set_column(1, "price", pa.array(prices, pa.int64()))
    made = [entry for rows in (first, *PARTS[1:]) for entry in lake.write(rows)]
    gone = Marker(id="1", body=Rows(places), file=made[0].key, sequence=1)
    tasks = lake.plan(made, SCHEMA, [gone]).tasks
    lake.store.reads.clear()
    found = top(lake, made, "price DESC", 3, columns=(2,), tasks=tasks)
    left = sorted(v for v in [*prices, *WHOLE["price"].to_pylist()[ROWS:]] if v < 10**10)
    assert found["price"].to_pylist() == left[-1:-4:-1]
    ends = [read.key for read in lake.store.reads if read.verb == "SUFFIX"]
    assert len(ends) == len(set(ends)) == FILES


def test_under_a_condition_the_first_file_bounds_the_others(lake: Any, files: Any) -> None:
    plan = lake.plan(files, SCHEMA, predicate=Comparison(3, ">=", Literal(TEXT, "8")))
    found = top(lake, files, "price DESC, id", 5, tasks=plan.tasks)
    rows = WHOLE.filter(pc.greater_equal(WHOLE["word"], "8"))
    expected = rows.sort_by([("price", "descending"), ("id", "ascending")])
    assert found.equals(expected.slice(0, 5))
    read = lake.store.reads
    assert {r.key for r in read} == {f"tables/t/{file.key}" for file in files}
    assert read[1].verb == "GET" and read[1].key == read[0].key


@pytest.mark.parametrize("order", ["price", "price DESC", "word", "word DESC"])
def test_what_bounds_promise_and_is_not_so_costs_reads_and_no_row(
    lake: Any, files: Any, order: str
) -> None:
    """Bounds that are wider than the values, stated as exact: of the files, and of all their pages."""
    wide = {
        2: ColumnStats(-(10**12), 10**12, 0, True, False),
        3: ColumnStats("", "z", 0, True, False),
    }
    for limit in (1, 3, 40):
        way = "descending" if order.endswith("DESC") else "ascending"
        expected = WHOLE.sort_by([(order.split()[0], way)]).slice(0, limit)
        lied = [replace(file, stats={**file.stats, **wide}) for file in files]
        assert top(lake, lied, order, limit).equals(expected)
        pages = mock.Mock(return_value=[(wide[2], 1)] * limit)
        with mock.patch.object(top_n, "bounds_within", pages):
            if "price" in order:
                assert top(lake, files, order, limit).equals(expected)


@pytest.mark.parametrize("order", ["price", "price DESC"])
def test_pages_that_promise_less_than_their_file_leave_out_no_other_file(
    lake: Any, files: Any, order: str
) -> None:
    """The bounds of one file are wider than its values, as after rows of it are gone."""
    way = "descending" if order.endswith("DESC") else "ascending"
    for n, file in enumerate(files):
        wide = {2: ColumnStats(-(10**12), 10**12, 0, True, False)}
        lied = [*files[:n], replace(file, stats={**file.stats, **wide}), *files[n + 1 :]]
        for limit in (1, 2, 5):
            expected = WHOLE.sort_by([("price", way)]).slice(0, limit)
            assert top(lake, lied, order, limit).equals(expected)


def test_the_end_of_each_file_is_read_once(lake: Any, files: Any) -> None:
    """With the page index, by which the other columns of the rows that are left are found: by bounds, and
    wave by wave."""
    for promised_rows in (top_n.PROMISED_ROWS, 0):
        lake.cache = ObjectCache()
        lake.store.reads.clear()
        with mock.patch.object(top_n, "PROMISED_ROWS", promised_rows):
            found = top(lake, files, "price", 5)
        assert found.num_rows == 5
        ends = [read for read in lake.store.reads if read.verb == "SUFFIX"]
        assert ends and len({read.key for read in ends}) == len(ends)
        with_index = {f.key: f.footer_size + index_bytes(f, SCHEMA) for f in files}
        assert all(read.bytes == with_index[read.key.rpartition("t/")[2]] for read in ends)


def test_bounds_of_pages_are_decoded_once(lake: Any, files: Any) -> None:
    """They promise the rows, and then say which pages hold these."""
    decoded = mock.Mock(wraps=decode.column_pages)
    with mock.patch.object(decode, "column_pages", decoded):
        found = top(lake, files, "price DESC", 3)
    assert found.num_rows == 3
    chunks = [(id(call.args[0]), call.args[1]) for call in decoded.mock_calls]
    assert len(chunks) == len(set(chunks)) > 1


def test_files_share_the_connections(lake: Any, files: Any) -> None:
    """In a search by what bounds promise, and in any other."""
    reading = mock.Mock(wraps=reader_module.reading_of)
    tasks = lake.plan(files, SCHEMA).tasks
    projection = Projection(schema=SCHEMA, columns=(2,))
    for parallel, of_each in ((1, 1), (FILES, 1), (3 * FILES - 1, 2), (3 * FILES, 3)):
        reader = replace(lake.reader, ahead=Ahead(parallel=parallel))
        order = parse_order("price DESC", SCHEMA)
        searches = (
            lambda r=reader, o=order: first_rows(r, tasks, projection, o, 5, Evidence(SCHEMA)),
            lambda r=reader: r.rows(tasks, projection),
            lambda r=reader: r.rows(iter(tasks[:1]), projection),
        )
        for search, expected in zip(searches, (of_each, of_each, parallel), strict=True):
            with mock.patch.object(reader_module, "reading_of", reading):
                list(search())
            assert {call.args[3] for call in reading.mock_calls} == {expected}
            reading.reset_mock()


def test_what_promises_too_little_is_searched_wave_by_wave(lake: Any, files: Any) -> None:
    """Of more files or pages than are looked at for so many rows, and of not one less."""
    limit, may_hold = 3, top_n._Bound.may_hold
    pages = 0

    def counted(*args: Any) -> bool:
        nonlocal pages
        held = may_hold(*args)
        pages += held
        return held

    with mock.patch.object(top_n._Bound, "may_hold", counted):
        top(lake, files, "price DESC", limit, columns=(2,))
    looked_at = len({read.key for read in lake.store.reads})
    for name, most in (("MORE_FILES", looked_at - limit), ("MORE_PAGES", pages - limit)):
        for more, waves in ((most, 0), (most - 1, 1)):
            in_waves = mock.Mock(wraps=top_n._waves)
            with mock.patch.object(top_n, name, more), mock.patch.object(top_n, "_waves", in_waves):
                assert top(lake, files, "price DESC", limit).num_rows == limit
            assert in_waves.call_count == waves


def test_equal_rows_are_not_read_with_all_columns(lake: Any) -> None:
    """Every page has the best value: the order's column is read, of the others the pages of the first."""
    rows = pa.table({"id": WHOLE["id"], "price": [1] * len(WHOLE), "word": WHOLE["word"]})
    file = [*lake.write(rows)]
    lake.store.reads.clear()
    assert top(lake, file, "price", 5).equals(rows.cast(WHOLE.schema).slice(0, 5))
    assert lake.store.bytes_read < sum(f.size for f in file) / 10


def test_columns_of_the_order_alone_are_read_once(lake: Any, files: Any) -> None:
    found = top(lake, files, "id", 2, columns=(1,))
    assert found.to_pylist() == [{"id": 0}, {"id": 1}]
    assert [read.verb for read in lake.store.reads] == ["SUFFIX", "GET"]


def test_more_rows_than_there_are(lake: Any, files: Any) -> None:
    found = top(lake, files[:1], "word", 10 * ROWS)
    assert found.equals(PARTS[0].sort_by("word"))


NAN = float("nan")
DAY, MOMENT = date(9999, 12, 31), datetime(1, 1, 1, tzinfo=UTC)
OF_TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [False, True]),
    (pa.int8(), [-3, 2, 5]),
    (pa.uint64(), [1, 2**63, 2**64 - 1]),
    (pa.float32(), [float("-inf"), 0.0, -0.0, 1.5, NAN]),
    (pa.decimal128(30, 3), [Decimal(-9), Decimal("1.5")]),
    (pa.date32(), [date(1, 1, 1), DAY]),
    (pa.time64("us"), [time(0), time(1, 2, 3)]),
    (pa.timestamp("us", "UTC"), [MOMENT, datetime(2020, 1, 1, tzinfo=UTC)]),
    (pa.string(), ["", "a", "z" * 50 + "x", "z" * 50 + "y", "é"]),
    (pa.binary(), [b"", b"a", b"\xff"]),
    (pa.binary(4), [b"aaaa", b"zzzz", b"\xff\x00\x00\x01"]),
]


@pytest.mark.parametrize(("kind", "ascending"), OF_TYPES, ids=lambda v: str(v)[:20])
def test_every_type_has_its_order(kind: pa.DataType, ascending: list[Any]) -> None:
    """Values are given in their order; equal ones (0.0 and -0.0) stay in that of the scan."""
    dice = random.Random(1)
    name = f"memory://top/{str(kind).replace('[', '-').replace(']', '').replace(', ', '-')}"
    table = inlay.create(name, pa.schema([("v", kind), ("n", pa.int64())]), exist_ok=True)
    ranks: list[int | None] = []
    for n in range(3):
        chosen = [dice.choice([None, *range(len(ascending))]) for _ in range(10)]
        values = [None if at is None else ascending[at] for at in chosen]
        table.append(pa.table({"v": pa.array(values, kind), "n": range(10 * n, 10 * n + 10)}))
        ranks += [1 if at == 2 and ascending[at] == 0 else at for at in chosen]
    nulls = [n for n, rank in enumerate(ranks) if rank is None]
    others = [n for n, rank in enumerate(ranks) if rank is not None]
    for way in ("ASC", "DESC"):
        others.sort()
        others.sort(key=lambda n: ranks[n] or 0, reverse=way == "DESC")
        for where, expected in (("FIRST", nulls + others), ("LAST", others + nulls)):
            for limit in (1, 11, 40):
                scan = table.scan(columns=["n"], order_by=f"v {way} NULLS {where}", limit=limit)
                assert scan.to_arrow()["n"].to_pylist() == expected[:limit]


NESTED = Schema(
    0,
    (
        Field(1, "Price", LONG),
        Field(2, "s", Struct((Field(3, "zip code", TEXT),))),
        Field(4, "a, b", LONG),
        Field(5, "id desc", LONG),
        Field(6, "id", LONG),
    ),
)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("price", [OrderKey(1, LONG)]),
        ("Price desc nulls first, id", [OrderKey(1, LONG, True, True), OrderKey(6, LONG)]),
        ('s."zip code" ASC NULLS LAST', [OrderKey(3, TEXT)]),
        ("a, b", [OrderKey(4, LONG)]),
        ('"a, b" DESC', [OrderKey(4, LONG, True)]),
        ("id desc", [OrderKey(5, LONG)]),
        (["id DESC", "a, b"], [OrderKey(6, LONG, True), OrderKey(4, LONG)]),
    ],
)
def test_an_order_is_written_as_in_sql(text: Any, keys: list[OrderKey]) -> None:
    assert list(parse_order(text, NESTED)) == keys


@pytest.mark.parametrize(
    "text", ["", [], ["id", "ID"], "s", "id NULLS", "pirce", "id UP", 3, [3], ["id", 3], [3, "id"]]
)
def test_another_order_is_refused(text: Any) -> None:
    with pytest.raises((InvalidRequest, InvalidPredicate)):
        parse_order(text, NESTED)


def files_read(lake: Any, parts: list[list[int | None]], order: str, limit: int = 1) -> list[int]:
    """The files that are opened for the first rows, each with these values, in the order of reading."""
    made = [
        lake.write(
            pa.table(
                {"id": range(len(v)), "price": pa.array(v, pa.int64()), "word": ["x"] * len(v)}
            )
        )
        for v in parts
    ]
    entries = [entry for [entry] in made]
    lake.store.reads.clear()
    found = top(lake, entries, order, limit, columns=(2,))
    assert found.num_rows == limit
    numbers = {entry.key: n for n, entry in enumerate(entries)}
    return list(
        dict.fromkeys(n for r in lake.store.reads for k, n in numbers.items() if r.key.endswith(k))
    )


def test_the_file_that_promises_most_is_read_first_and_others_not_at_all(lake: Any) -> None:
    assert files_read(lake, [[50, 60], [0, 100]], "price DESC") == [1]
    assert files_read(lake, [[40, 60], [30, 200]], "price") == [1]
    assert files_read(lake, [[50, 60], [0, 10]], "price DESC") == [0]
    assert files_read(lake, [[0, 1], [5, 6]], "price", limit=2) == [0]
    assert files_read(lake, [[0, 1], [5, 6]], "price", limit=3) == [0, 1]


def test_files_with_nulls_are_read_first_where_nulls_are_first(lake: Any) -> None:
    assert files_read(lake, [[0, 1], [5, None]], "price NULLS FIRST") == [1]
    assert files_read(lake, [[0, 1], [5, None]], "price DESC NULLS FIRST") == [1]
    assert files_read(lake, [[0, 1], [5, None]], "price") == [0]


def test_a_file_of_just_as_many_rows_bounds_the_others(lake: Any, files: Any) -> None:
    found = top(lake, files, "id DESC", ROWS)
    assert found.equals(PARTS[-1].take(list(range(ROWS - 1, -1, -1))))
    assert {read.key for read in lake.store.reads} == {f"tables/t/{files[-1].key}"}


def test_bounds_promise_as_much_where_nulls_are_first_and_there_are_none(
    lake: Any, files: Any
) -> None:
    def fetched(order: str) -> list[Any]:
        lake.cache = ObjectCache()
        lake.store.reads.clear()
        assert top(lake, files, order, 3).equals(
            WHOLE.sort_by([("price", "descending")]).slice(0, 3)
        )
        return sorted(map(repr, lake.store.reads))

    assert fetched("price DESC NULLS FIRST") == fetched("price DESC")


def test_a_quoted_name_is_taken_as_it_is_written() -> None:
    assert [k.field_id for k in parse_order("ID", NESTED)] == [
        k.field_id for k in parse_order('"id"', NESTED)
    ]
    with pytest.raises((InvalidRequest, InvalidPredicate)):
        parse_order('"ID"', NESTED)


def test_a_scan_takes_an_order() -> None:
    table = inlay.create(
        "memory://top/t", pa.schema([("id", pa.int64()), ("x", pa.float64())]), exist_ok=True
    )
    table.append(pa.table({"id": [1, 2, 3, 4], "x": [0.5, None, float("nan"), 2.0]}))
    scan = table.scan(columns=["id"], where="id <> 4", order_by="x DESC", limit=2)
    for asked in (scan, pickle.loads(pickle.dumps(scan))):
        assert asked.to_arrow().to_pylist() == [{"id": 3}, {"id": 1}]
    assert scan.explain().order_by == ("x DESC",) and "order    x DESC" in str(scan.explain())
    with pytest.raises(InvalidRequest, match="needs a limit"):
        table.scan(order_by="x")
    with pytest.raises(InvalidRequest, match="order_by cannot be a list"):
        table.scan(order_by=["x", 1], limit=1)
    assert table.scan(order_by="x", limit=0).to_arrow().num_rows == 0


@pytest.mark.parametrize("order", ["s", "s DESC", "s NULLS FIRST", "s DESC NULLS FIRST"])
@pytest.mark.parametrize("limit", [1, 2, 3, 9])
def test_text_that_is_not_utf_8_has_its_place_in_an_order(
    tmp_path: Any, order: str, limit: int
) -> None:
    """Files of other writers may hold such; its bytes are compared."""
    texts = [[b"b", b"\xff\xfe", b"a"], [None, b"\xfe", b"z"], [b"c", b"\xff"]]
    t = inlay.create(tmp_path / "t", pa.schema([("s", pa.string()), ("n", pa.int64())]))
    for n, part in enumerate(texts):
        column = pa.array(part, pa.binary()).view(pa.string())
        numbers = pa.array(range(n * 10, n * 10 + len(part)), pa.int64())
        pq.write_table(pa.table({"s": column, "n": numbers}), tmp_path / f"{n}.parquet")
    t.ingest([(tmp_path / f"{n}.parquet").as_uri() for n in range(len(texts))])
    rows = [(held, n * 10 + m) for n, part in enumerate(texts) for m, held in enumerate(part)]
    known = sorted((r for r in rows if r[0] is not None), reverse="DESC" in order)
    null = [row for row in rows if row[0] is None]
    expected = [n for _, n in (null + known if "FIRST" in order else known + null)][:limit]
    assert (
        t.scan(columns=["n"], order_by=order, limit=limit).to_arrow()["n"].to_pylist() == expected
    )


def test_what_bounds_promise() -> None:
    """One row at the better bound, of those that are exact; the others with a value at the worse one."""
    for descending in (True, False):
        span = ColumnStats(1, 9, 1, True, False), 4, 7
        way = {"descending": descending}
        best, worst = (9, 1) if descending else (1, 9)
        found = [promised([span], limit, **way) for limit in (1, 2, 3, 4)]
        assert found == [(best, 7), (worst, 7), (worst, 7), None]
        assert promised([(replace(span[0], exact=False), 4, 7)], 1, **way) is None
        judged = [
            may_be_as_good(span[0], value, better=better, **way)
            for value in (0, 1, 5, 9, 10)
            for better in (False, True)
        ]
        sure = [True] * 6 + [True, False] + [False] * 2
        flipped = [False] * 2 + [True, False] + [True] * 6
        assert judged == (sure if descending else flipped)
    unsure = ColumnStats(1.0, 9.0, 0, True, None)
    assert may_be_as_good(unsure, 20.0, descending=True)
    assert not may_be_as_good(unsure, 0.5, descending=False)
    assert promised([(unsure, 4, 0)], 2, descending=False) is None

"""A scan as its users see it: columns, filters, limits, counts, Arrow streams."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidPredicate, InvalidRequest
from inlay.format.entry import DataFile, Marker, Rows, Types, Where
from inlay.format.keys import segment_key
from inlay.format.leaves import encode_files
from inlay.format.predicate import Comparison, Literal
from inlay.format.schema import Primitive, Schema
from inlay.format.snapshot import Commit, Segment, Snapshot, Tier
from inlay.ops.context import Context
from inlay.ops.read.scan import Scan
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.read.decode import memory_pool
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import combined_stats

FILES, ROWS = 10, 1000
TABLE = pa.table(
    {
        "id": pa.array(range(FILES * ROWS), pa.int64()),
        "word": pa.array([f"w{n % 17}" if n % 13 else None for n in range(FILES * ROWS)]),
        "x": pa.array([n % 5 / 2 if n % 11 else math.nan for n in range(FILES * ROWS)]),
    }
)
SCHEMA = schema_from_arrow(TABLE.schema)
LONG = Primitive("int64")
NewScan = Callable[..., Scan]


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equal, where NaN is one too."""

    def plain(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("x")
        if at < 0:
            return table
        x = table.column(at)
        return table.set_column(at, "x", pc.if_else(pc.is_nan(x), pa.scalar(-1.0), x))

    return bool(plain(left).equals(plain(right)))


def snapshot(files: Any, markers: Any = (), schema: Schema = SCHEMA, **more: Any) -> Snapshot:
    return Snapshot(
        table_id="t",
        version=5,
        commit=Commit(id="c", operation="test"),
        schemas=(schema,),
        schema_id=schema.id,
        last_field_id=schema.max_id(),
        files=files if isinstance(files, Tier) else Tier(inline=tuple(files)),
        markers=Tier(inline=tuple(markers)),
        **more,
    )


@pytest.fixture
def ctx(lake: Any) -> Context:
    return Context(
        store=lake.store, root="tables/t", uri="memory://lake/tables/t", executor=lake.executor
    )


@pytest.fixture
def files(lake: Any, committed: Any) -> tuple[DataFile, ...]:
    found: list[DataFile] = []
    for n in range(FILES):
        found += lake.write(TABLE.slice(n * ROWS, ROWS), SCHEMA, row_group_rows=250)
    lake.store.reads.clear()
    return committed(found)  # type: ignore[no-any-return]


@pytest.fixture
def scan(ctx: Context, files: Any) -> NewScan:
    def new(markers: Any = (), **options: Any) -> Scan:
        return Scan(ctx, State(snapshot(files, markers)), **options)

    return new


def test_all_of_it_is_the_table(scan: NewScan) -> None:
    assert same(scan().to_arrow(), TABLE)


def test_columns_come_in_the_order_asked(scan: NewScan) -> None:
    assert same(scan(columns=["x", "id"]).to_arrow(), TABLE.select(["x", "id"]))


def test_where_is_sql(scan: NewScan) -> None:
    found = scan(where="id BETWEEN 1500 AND 1502 OR word = 'w3' AND id < 40").to_arrow()
    assert found["id"].to_pylist() == [3, 20, 37, 1500, 1501, 1502]


def test_where_is_an_expression(scan: NewScan) -> None:
    wanted = (pc.field("id") > 4990) & (pc.field("x") > 1) & pc.field("word").is_valid()
    found = scan(where=wanted, columns=["word"])
    assert same(found.to_arrow(), TABLE.filter(wanted).select(["word"]))
    explained = found.explain()
    assert (explained.files_read, explained.pruned) == (6, 4)


EXPRESSIONS = st.recursive(
    st.one_of(
        st.builds(lambda v: pc.field("id") < v, st.integers(-5, FILES * ROWS + 5)),
        st.builds(lambda v: pc.field("id") == v, st.integers(-5, FILES * ROWS + 5)),
        st.builds(lambda v: pc.field("x") != v, st.sampled_from([0.0, 1.0, 7.0])),
        st.builds(lambda v: pc.field("x") >= v, st.sampled_from([0.0, 2.0, 7.0])),
        st.builds(lambda v: pc.field("word").isin([v, "w1"]), st.sampled_from(["w3", "zz"])),
        st.just(pc.field("word").is_null()),
        st.just(pc.field("x").is_nan()),
        st.just(pc.field("word").is_valid()),
    ),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def shared(new_lake: Any) -> tuple[Context, list[DataFile]]:
    lake = new_lake()
    found: list[DataFile] = []
    for n in range(FILES):
        found += lake.write(TABLE.slice(n * ROWS, ROWS), SCHEMA, row_group_rows=250)
    return (
        Context(store=lake.store, root="tables/t", uri="memory://", executor=lake.executor),
        found,
    )


@settings(deadline=None, max_examples=40)
@given(expression=EXPRESSIONS)
def test_an_expression_selects_what_arrow_selects(shared: Any, expression: Any) -> None:
    ctx, files = shared
    scan = Scan(ctx, State(snapshot(files)), where=expression, columns=["id", "x"])
    expected = TABLE.filter(expression)
    assert scan.to_arrow()["id"].equals(expected["id"])
    assert scan.count() == expected.num_rows


def test_an_expression_of_another_type_than_its_column(lake: Any) -> None:
    """Arrow casts a bound to the type of a literal: what that does not hold proves nothing."""
    kind, most = pa.uint64(), 2**64 - 1
    data = pa.table({"u": pa.array([1, most, None], kind)})
    schema = schema_from_arrow(data.schema)
    ctx = Context(store=lake.store, root="tables/t", uri="memory://", executor=lake.executor)
    state = State(snapshot(lake.write(data, schema), schema=schema))

    def found(where: pc.Expression) -> list[Any]:
        return Scan(ctx, state, where=where).to_arrow()["u"].to_pylist()  # type: ignore[no-any-return]

    u = pc.field("u")
    for where in (u.isin([1]), u.isin([5]), u.isin(pa.array([most], kind)), u > pa.scalar(5, kind)):
        assert found(where) == data.filter(where)["u"].to_pylist()
    for where in (u > 5, pc.divide(u, pa.scalar(0, kind)) == u):
        with pytest.raises(pa.ArrowInvalid):
            data.filter(where)
        with pytest.raises(InvalidPredicate, match="on a row") as refused:
            found(where)
        assert str(most) not in str(refused.value)


@pytest.mark.parametrize(
    "nan", [pc.scalar(math.nan), pc.divide(pc.scalar(0.0), pc.scalar(0.0))], ids=str
)
def test_an_expression_with_nan(lake: Any, nan: pc.Expression) -> None:
    """Arrow's own simplification says of bounds beside NaN what is not so of the rows."""
    data = pa.table({"x": [0.5, 1.5], "id": [1, 2]})
    schema = schema_from_arrow(data.schema)
    ctx = Context(store=lake.store, root="tables/t", uri="memory://", executor=lake.executor)
    files = [f for n in range(2) for f in lake.write(data.slice(n, 1), schema)]
    files = [
        replace(f, stats={i: replace(s, has_nan=False) for i, s in f.stats.items()}) for f in files
    ]
    state = State(snapshot(files, schema=schema))
    x = pc.field("x")
    for asked in (x < nan, x <= nan, x > nan, x >= nan, x == nan, x != nan):
        for where in (asked, ~asked, asked | (pc.field("id") == 2)):
            found = Scan(ctx, state, where=where).to_arrow()["id"].to_pylist()
            assert found == data.filter(where)["id"].to_pylist(), str(where)


def test_hidden_columns_say_where_a_row_is(scan: NewScan, files: Any) -> None:
    found = scan(columns=["_pos", "id", "_file"], where="id IN (7, 2251)").to_arrow()
    assert found.column_names == ["_pos", "id", "_file"]
    assert found.to_pylist() == [
        {"_pos": 7, "id": 7, "_file": files[0].key},
        {"_pos": 251, "id": 2251, "_file": files[2].key},
    ]


@pytest.mark.parametrize("limit", [0, 1, 250, 999, 1000, 1001, 5000, 20_000])
def test_a_limit_gives_the_first_rows(scan: NewScan, limit: int) -> None:
    assert same(scan(limit=limit).to_arrow(), TABLE.slice(0, limit))
    assert scan(limit=limit).count() == min(limit, TABLE.num_rows)
    wanted = "x = 1"
    expected = TABLE.filter(pc.field("x") == 1).slice(0, limit)
    assert same(scan(limit=limit, where=wanted).to_arrow(), expected)


def test_a_limit_reads_no_more_files_than_it_needs(scan: NewScan, lake: Any) -> None:
    scan(limit=1500).to_arrow()
    assert len({r.key for r in lake.store.reads}) == 2
    lake.store.reads.clear()
    # With a delete it is unknown how many rows a file gives: start small.
    gone = Marker(id="m", body=Where(Comparison(1, "=", Literal(LONG, 5))), sequence=4)
    first = scan([gone], where="x = 1", limit=3).to_arrow()
    assert first.num_rows == 3
    assert len({r.key for r in lake.store.reads}) <= 3


def test_a_count_costs_nothing_without_deletes_and_filters(scan: NewScan, lake: Any) -> None:
    assert scan().count() == FILES * ROWS
    assert lake.store.reads == []


def test_a_count_reads_only_where_it_must(scan: NewScan, files: Any, lake: Any) -> None:
    gone = Marker(id="m", body=Rows((0, 1, 2)), file=files[4].key, sequence=4)
    assert scan([gone]).count() == FILES * ROWS - 3
    assert lake.store.reads == []  # metadata knows how many rows it deletes
    again = Marker(id="n", body=Rows((2, 3)), file=files[4].key, sequence=4)
    assert scan([gone, again]).count() == FILES * ROWS - 4
    assert {r.key for r in lake.store.reads} == {f"tables/t/{files[4].key}"}


def test_a_count_honours_filters(scan: NewScan) -> None:
    assert scan(where="word IS NULL").count() == TABLE["word"].null_count
    assert scan(where=pc.field("word").is_null()).count() == TABLE["word"].null_count


def test_nothing_is_read_before_rows_are_asked_for(scan: NewScan, lake: Any) -> None:
    found = scan(where="id > 10")
    found.explain()
    reader = found.to_reader()
    assert reader.schema.names == ["id", "word", "x"]
    assert lake.store.reads == []


def test_a_scan_can_be_read_twice(scan: NewScan) -> None:
    found = scan(where="id < 10")
    assert same(found.to_arrow(), found.to_arrow())


def test_an_empty_result_has_the_schema(scan: NewScan) -> None:
    found = scan(where="id < 0", columns=["word"]).to_arrow()
    assert found.num_rows == 0 and found.schema.names == ["word"]


def test_who_stops_early_reads_no_further(scan: NewScan, lake: Any, ctx: Context) -> None:
    reader = scan(read_ahead_bytes=1).to_reader()
    reader.read_next_batch()
    reader.close()
    del reader
    # Footers run ahead one file, data not at all.
    assert len({r.key for r in lake.store.reads}) <= 2


def test_others_take_the_scan_as_an_arrow_stream(scan: NewScan) -> None:
    found = scan(where="id < 100")
    assert same(pa.table(found), TABLE.slice(0, 100))
    assert pl.DataFrame(found)["id"].sum() == 4950
    connection = duckdb.connect()
    total = connection.execute("SELECT sum(id), count(word) FROM found").fetchone()
    assert total == (4950, TABLE.slice(0, 100)["word"].drop_null().length())


def test_pandas_and_polars(scan: NewScan) -> None:
    found = scan(where="id IN (1, 2)", columns=["id", "word"])
    assert found.to_polars().rows() == [(1, "w1"), (2, "w2")]
    assert found.to_pandas().values.tolist() == [[1, "w1"], [2, "w2"]]


def test_explain_shows_what_metadata_settles(scan: NewScan, lake: Any) -> None:
    old = Marker(id="m", body=Where(Comparison(1, "<", Literal(LONG, 2000))), sequence=4)
    explained = scan([old], where="id < 4000", columns=["word"], limit=9).explain()
    assert (explained.files, explained.pruned, explained.deleted) == (10, 6, 2)
    assert (explained.files_read, explained.rows, explained.markers) == (2, 2000, 0)
    text = str(explained)
    assert "2 of 10" in text and "id < 4000" in text and "word" in text and "9" in text
    assert lake.store.reads == []


def test_a_column_that_is_not_there_is_refused_at_once(scan: NewScan) -> None:
    with pytest.raises(InvalidRequest, match=r"no column 'nope'.*id, word, x"):
        scan(columns=["nope"])
    with pytest.raises(InvalidRequest, match="twice"):
        scan(columns=["id", "id"])
    with pytest.raises(InvalidRequest, match="at least one"):
        scan(columns=[])
    with pytest.raises(InvalidRequest, match="Give a list"):
        scan(columns="id")
    with pytest.raises(InvalidRequest, match="limit"):
        scan(limit=-1)


def test_a_filter_that_does_not_fit_is_refused_at_once(scan: NewScan) -> None:
    with pytest.raises(InvalidPredicate, match="nope"):
        scan(where="nope = 1")
    with pytest.raises(InvalidPredicate, match="nope"):
        scan(where=pc.field("nope") == 1)


def test_segments_that_cannot_match_are_not_loaded(
    ctx: Context, files: tuple[DataFile, ...], lake: Any
) -> None:
    segments = []
    for n, part in enumerate((files[:4], files[4:8])):
        body = encode_files(part, Types((SCHEMA,)))
        lake.put(segment_key(f"s{n}"), body)
        stats = combined_stats([(f.stats, f.rows) for f in part])
        rows = sum(f.rows for f in part)
        segments.append(
            Segment(
                id=f"s{n}",
                count=len(part),
                size=len(body),
                rows=rows,
                bytes=sum(f.size for f in part),
                stats=stats,
            )
        )
    tier = Tier(segments=tuple(segments), inline=files[8:])
    found = Scan(ctx, State(snapshot(tier)), where="id = 5001")
    lake.store.reads.clear()
    assert found.to_arrow()["id"].to_pylist() == [5001]
    read = {r.key for r in lake.store.reads}
    assert read == {"tables/t/manifest/segments/s1", f"tables/t/{files[5].key}"}
    assert (found.explain().files, found.explain().files_read) == (10, 1)
    everything = Scan(ctx, State(snapshot(tier)))
    assert same(everything.to_arrow(), TABLE)


def test_threads_and_a_tiny_budget_give_the_same(files: Any, lake: Any, threads: Any) -> None:
    ctx = Context(store=lake.store, root="tables/t", uri="memory://", executor=threads)
    for budget in (1, 100_000, 1 << 30):
        found = Scan(ctx, State(snapshot(files)), read_ahead_bytes=budget)
        assert same(found.to_arrow(), TABLE)


def test_rows_are_decoded_by_the_pool_that_was_chosen(monkeypatch: Any) -> None:
    """By the environment or the program; else by the system's."""
    before = pa.default_memory_pool()
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    try:
        pa.set_memory_pool(pa.mimalloc_memory_pool())
        assert memory_pool().backend_name == "system"
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
        assert memory_pool().backend_name == "mimalloc"
        monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL")
        pa.set_memory_pool(chosen := pa.proxy_memory_pool(pa.system_memory_pool()))
        name = f"memory://pool/{uuid.uuid4().hex}"
        table = inlay.create(name, pa.schema([("n", pa.int64())]))
        table.append(pa.table({"n": range(100_000)}))
        held = chosen.bytes_allocated()
        rows = table.scan().to_arrow()
        assert chosen.bytes_allocated() - held >= rows.nbytes
        del rows  # before their pool goes
        pa.set_memory_pool(before)
        # What is kept of rows that a condition drops some of, too: what was decoded is freed.
        kept = pa.proxy_memory_pool(pa.system_memory_pool())
        monkeypatch.setattr("inlay.parquet.read.decode.memory_pool", lambda: kept)
        rows = table.scan(where="n > 10").to_arrow()
        assert kept.bytes_allocated() >= rows.nbytes > 0
        del rows
    finally:
        pa.set_memory_pool(before)


def test_memory_is_bounded_by_the_budget(lake: Any, committed: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", pa.default_memory_pool().backend_name)
    groups, rows = 40, 100_000
    table = pa.table({"n": pa.array(range(groups * rows), pa.int64())})
    schema = schema_from_arrow(table.schema)
    files = committed(lake.write(table, schema, row_group_rows=rows, row_group_bytes=1 << 30))
    ctx = Context(store=lake.store, root="tables/t", uri="memory://", executor=lake.executor)
    state = State(snapshot(files, schema=schema))
    before, most, seen = pa.total_allocated_bytes(), 0, 0
    for batch in Scan(ctx, state, read_ahead_bytes=4 << 20).to_reader():
        most = max(most, pa.total_allocated_bytes() - before)
        seen += batch.num_rows
    assert seen == table.num_rows
    # All of it is 32 MB; a unit holds some row groups of 0.8 MB, stored and decoded.
    assert most < 12 << 20

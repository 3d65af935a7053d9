"""Pages and row groups that are not read: by page index, by Bloom filter, by both."""

from __future__ import annotations

import random
from itertools import combinations, pairwise, product
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.format.entry import ColumnStats, Keys, Marker, Where
from inlay.format.predicate import And, Comparison, In, Literal, Or
from inlay.format.schema import Field, Primitive, Schema, Struct
from inlay.parquet.arrow.expression import ExpressionFilter
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.footer.footer import RowGroup, decode_footer
from inlay.parquet.footer.pages import BLOOM_HEADER_BYTES, bloom_length
from inlay.parquet.read.selection import (
    MAX_ASKED,
    ColumnPages,
    PredicateFilter,
    Projection,
    bloom_block,
    candidates,
    narrowed,
    subschema,
    surely_false,
    top_columns,
)
from inlay.parquet.read.single_pages import Page
from inlay.plan.scan import FileTask

LONG, TEXT = Primitive("int64"), Primitive("string")
LONGS = Schema(0, (Field(1, "a", LONG), Field(2, "b", LONG)))
ROWS = 60_000
DICE = random.Random(9)
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "word": [f"{DICE.randrange(10**9):09d}-{n}" for n in range(ROWS)],
        "number": pa.array([DICE.randrange(10**12) for _ in range(ROWS)], pa.int64()),
        "far": [DICE.randbytes(8).hex() for _ in range(ROWS)],
    }
)
SCHEMA = schema_from_arrow(TABLE.schema)
ID, WORD, NUMBER = 1, 2, 3


@pytest.fixture
def file(lake: Any) -> Any:
    [entry] = lake.write(TABLE, bloom_columns=(WORD, NUMBER), row_group_rows=ROWS // 2)
    lake.store.reads.clear()
    return entry


def word(text: str) -> Comparison:
    return Comparison(WORD, "=", Literal(TEXT, text))


def test_a_filter_has_the_form_that_is_relied_on(lake: Any, file: Any) -> None:
    """A header, then a power of two of bytes; and it holds every value."""
    body = lake.body(file.key)
    footer = decode_footer(body, file_size=file.size)
    for group in range(2):
        rows = TABLE.slice(group * ROWS // 2, ROWS // 2)
        for ordinal, name, kind in ((1, "word", TEXT), (2, "number", LONG)):
            chunk = footer.row_groups[group].column(ordinal)
            at = chunk.bloom_offset
            header, bits = bloom_length(body[at : at + BLOOM_HEADER_BYTES])
            assert header + bits == chunk.bloom_length
            assert bits & (bits - 1) == 0
            for value in rows[name].slice(0, 500).to_pylist():
                block = bloom_block(footer, group, ordinal, kind, value)
                assert at + header <= block.place.start < at + header + bits
                assert not block.is_absent(body[block.place.start : block.place.end])
        assert footer.row_groups[group].column(0).bloom_offset is None


def test_an_absent_value_costs_a_block_of_each_filter(lake: Any, file: Any) -> None:
    found = lake.read([file], SCHEMA, predicate=word("500000000-no"))
    assert found.num_rows == 0
    tail, *blocks = lake.store.reads
    assert [r.bytes for r in blocks] == [32, 32]
    assert tail.bytes < 20 * file.footer_size
    present = TABLE["word"][7].as_py()
    lake.store.reads.clear()
    assert lake.read([file], SCHEMA, columns=["id"], predicate=word(present)).to_pylist() == [
        {"id": 7}
    ]
    both = Or((word(present), Comparison(NUMBER, "=", Literal(LONG, -1))))
    assert lake.read([file], SCHEMA, columns=["id"], predicate=both).to_pylist() == [{"id": 7}]
    many = In(NUMBER, LONG, tuple(sorted(TABLE["number"].slice(3, 3).to_pylist())))
    assert lake.read([file], SCHEMA, columns=["id"], predicate=many).num_rows == 3


def test_a_foreign_file_is_not_taken_at_its_word(lake: Any, file: Any) -> None:
    from dataclasses import replace

    landed = replace(file, event="landed")
    found = lake.read([landed], SCHEMA, columns=["id"], predicate=word("500000000-no"))
    assert found.num_rows == 0
    assert all(r.bytes != 32 for r in lake.store.reads)


@pytest.mark.parametrize("nan_at", [None, 3 * ROWS // 4])
def test_bounds_of_floats_leave_out_pages_of_a_file_that_has_no_nan(
    lake: Any, nan_at: int | None
) -> None:
    """Parquet says nothing of NaN, which is greater than every number; the entry says it of the file."""
    values = [float("nan") if n == nan_at else n / 3 for n in range(ROWS)]
    data = TABLE.append_column("x", pa.array(values))
    schema = schema_from_arrow(data.schema)
    [entry] = lake.write(data, schema, row_group_rows=ROWS // 2)
    lake.store.reads.clear()
    above = Comparison(5, ">", Literal(Primitive("double"), ROWS / 3 - 4))
    found = lake.read([entry], schema, columns=["id"], predicate=above)
    greatest = range(ROWS - 11, ROWS)
    assert found["id"].to_pylist() == [*([] if nan_at is None else [nan_at]), *greatest]
    [_, *pages] = lake.store.reads
    of_a_column = entry.size / len(schema.fields)
    assert (sum(read.bytes for read in pages) < of_a_column / 4) is (nan_at is None)


def test_filters_and_dictionaries_are_as_large_as_their_values(lake: Any) -> None:
    table = pa.table(
        {
            "few": [("a", "b", "c")[n % 3] for n in range(ROWS)],
            "many": TABLE["word"],
            "runs": pa.array([n // 40 for n in range(ROWS)], pa.int64()),
        }
    )
    [entry] = lake.write(table, bloom_columns=(1, 2, 3))
    footer = decode_footer(lake.body(entry.key), file_size=entry.size)
    few, many, runs = (footer.row_groups[0].column(n) for n in range(3))
    assert few.bloom_length < 100
    assert ROWS // 2 < many.bloom_length < 2 * ROWS
    # 1,500 values: a byte each would do, four are forgiven.
    assert 1_000 < runs.bloom_length < 6_000
    # A dictionary is written where it holds.
    assert [bool(c.meta.get(11 << 4 | 6)) for c in (few, many, runs)] == [True, False, True]


# -- which rows may be selected -------------------------------------------------------------------

VALUE = st.none() | st.integers(0, 9)


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_no_row_that_is_selected_is_left_out(data: Any) -> None:
    """Pages of two columns, cut differently, with what is known of each of them and of the whole."""
    rows = data.draw(st.lists(st.tuples(VALUE, VALUE), min_size=1, max_size=12))
    columns = {}
    for at, field_id in enumerate((1, 2)):
        if data.draw(st.booleans()):
            columns[field_id] = pages_of(data, [row[at] for row in rows])
    whole = {i: known([row[i - 1] for row in rows]) for i in (1, 2) if data.draw(st.booleans())}
    conditions = [
        Comparison(i, data.draw(st.sampled_from(["=", "<", ">", "!="])), Literal(LONG, value))
        for i, value in zip(
            (1, 2), data.draw(st.tuples(st.integers(0, 9), st.integers(0, 9))), strict=True
        )
    ]
    both = data.draw(st.sampled_from([And, Or]))(tuple(conditions))
    found = candidates([PredicateFilter(both)], columns, whole, rows=len(rows))
    inside = {n for start, end in found for n in range(start, end)}
    assert found == sorted(found) and all(a[1] < b[0] for a, b in pairwise(found))
    # The same condition as a pyarrow expression.
    compare = {"=": pc.equal, "!=": pc.not_equal, "<": pc.less, ">": pc.greater}
    one, other = (
        compare[c.op](pc.field("ab"[c.field_id - 1]), pc.scalar(c.literal.value))
        for c in conditions
    )
    expression = ExpressionFilter(one | other if isinstance(both, Or) else one & other, LONGS)
    by_arrow = candidates([expression], columns, whole, rows=len(rows))
    inside_by_arrow = {n for start, end in by_arrow for n in range(start, end)}
    for n, row in enumerate(rows):
        hits = [holds(c, row[c.field_id - 1]) for c in conditions]
        if any(hits) if isinstance(both, Or) else all(hits):
            assert n in inside and n in inside_by_arrow


def holds(condition: Comparison, value: int | None) -> bool:
    if value is None:
        return False
    literal: Any = condition.literal.value
    return {
        "=": value == literal,
        "!=": value != literal,
        "<": value < literal,
        ">": value > literal,
    }[condition.op]


def known(values: list[Any]) -> ColumnStats:
    there = [v for v in values if v is not None]
    return ColumnStats(
        min(there, default=None),
        max(there, default=None),
        values.count(None),
        has_nan=False,
        kind=LONG,
    )


def pages_of(data: Any, values: list[Any]) -> ColumnPages:
    cuts = data.draw(st.sets(st.integers(1, len(values)), max_size=4))
    bounds = sorted({0, len(values), *cuts})
    pairs = list(pairwise(bounds))
    pages = [Page(4, 9, start, end - start) for start, end in pairs]
    return ColumnPages(pages, [known(values[start:end]) for start, end in pairs])


@settings(deadline=None, max_examples=200)
@given(
    held=st.sets(st.integers(0, 3)),
    predicate=st.recursive(
        st.builds(lambda v: Comparison(1, "=", Literal(LONG, v)), st.integers(0, 3))
        | st.builds(lambda v: Comparison(1, "<", Literal(LONG, v)), st.integers(0, 3))
        | st.sets(st.integers(0, 3), min_size=1).map(lambda v: In(1, LONG, tuple(sorted(v)))),
        lambda inner: (
            st.lists(inner, min_size=2, max_size=3).map(lambda p: And(tuple(p)))
            | st.lists(inner, min_size=2, max_size=3).map(lambda p: Or(tuple(p)))
        ),
        max_leaves=4,
    ),
)
def test_a_group_is_ruled_out_exactly_if_no_row_of_its_values_is_selected(
    held: set[int], predicate: Any
) -> None:
    """A row of `held` may differ at each look: which values a filter holds is all that is known."""
    ruled_out = surely_false(predicate, lambda field_id, kind, value: value not in held)
    assert ruled_out is not may_select(predicate, held)


def may_select(predicate: Any, held: set[int]) -> bool:
    match predicate:
        case And(parts):
            return all(may_select(part, held) for part in parts)
        case Or(parts):
            return any(may_select(part, held) for part in parts)
        case In(_, _, values):
            return bool(held & set(values))
        case _:
            return predicate.op != "=" or predicate.literal.value in held


def test_so_many_values_are_asked_for_and_no_more() -> None:
    absent = Mock(return_value=True)
    for number, asked in ((MAX_ASKED, MAX_ASKED), (MAX_ASKED + 1, 0)):
        absent.reset_mock()
        assert surely_false(In(1, LONG, tuple(range(number))), absent) is (asked > 0)
        assert absent.call_count == asked


@pytest.mark.parametrize("groups", [8, 32])
def test_what_is_looked_up_in_a_footer_grows_with_the_row_groups_alone(
    new_lake: Any, groups: int, monkeypatch: Any
) -> None:
    """One row of each row group: as many looks for each, however many there are."""
    made = Mock(wraps=RowGroup)
    monkeypatch.setattr("inlay.parquet.footer.footer.RowGroup", made)
    rows = ROWS // groups * groups
    table = TABLE.slice(0, rows)
    lake = new_lake()
    [entry] = lake.write(table, row_group_rows=rows // groups)
    one_of_each = tuple(range(3, rows, rows // groups))
    made.reset_mock()
    read = lake.read([entry], SCHEMA, columns=["word"], predicate=In(ID, LONG, one_of_each))
    assert read["word"].equals(table["word"].take(list(one_of_each)))
    assert groups <= made.call_count <= 12 * groups


def cut(rows: int, at: tuple[int, ...], nulls: list[int | None]) -> ColumnPages:
    """Pages that begin at 0 and `at`; the bounds of each are its ordinal."""
    starts = [0, *at, rows]
    pages = [Page(0, 0, start, end - start) for start, end in pairwise(starts)]
    stats = [ColumnStats(n, n, nulls[n % len(nulls)]) for n in range(len(pages))]
    return ColumnPages(pages, stats)


@pytest.mark.parametrize("nulls", [[0, None], [1, 2], [2, 0], [3, 1]])
def test_a_group_is_judged_in_parts_that_are_of_one_page_of_each_column(
    nulls: list[int | None],
) -> None:
    """Of a part of a page only none or all are known to be NULL."""
    rows = 4
    of_group = ColumnStats(7, 9, 0)
    for at, also in product([c for n in range(4) for c in combinations((1, 2, 3), n)], repeat=2):
        columns = {1: cut(rows, at, nulls), 2: cut(rows, also, nulls[::-1])}
        starts = sorted({0, *at, *also, rows})
        for judged in product([False, True], repeat=len(starts) - 1):
            chosen = Mock(may_match=Mock(return_value=judged))
            every = Mock(may_match=lambda parts: [True] * len(parts))
            found = candidates([chosen, every], columns, {3: of_group}, rows=rows)
            [(parts,)] = (call.args for call in chosen.may_match.call_args_list)
            inside = {n for start, end in found for n in range(start, end)}
            ends = list(pairwise(starts))
            expected = [part for part, may in zip(ends, judged, strict=True) if may]
            assert inside == {n for start, end in expected for n in range(start, end)}
            assert all(one[1] < other[0] for one, other in pairwise(found)), "none touch"
        assert [n for _, n in parts] == [end - start for start, end in ends]
        for (known, size), (start, _) in zip(parts, ends, strict=True):
            assert known[3] is of_group
            for field_id, column in columns.items():
                n = max(n for n, page in enumerate(column.pages) if page.first_row <= start)
                page, stats = column.pages[n], column.stats[n]
                count = stats.null_count
                if count and size != page.rows:
                    count = size if count == page.rows else None
                assert known[field_id] == ColumnStats(n, n, count)


def test_what_a_group_has_of_nulls_its_parts_may_have() -> None:
    asked: list[Any] = []
    every = Mock(may_match=lambda parts: asked.append(parts) or [True] * len(parts))
    known = {3: ColumnStats(1, 2, 3), 4: ColumnStats(1, 2, None), 5: ColumnStats(1, 2, 0)}
    assert candidates([every], {1: cut(4, (2,), [0])}, known, rows=4) == [(0, 4)]
    for part, _ in asked[0]:
        assert [part[n].null_count for n in (3, 4, 5)] == [None, None, 0]
    assert candidates([], {}, rows=4) == [(0, 4)]


def test_structs_are_cut_to_what_is_looked_at() -> None:
    inner = Field(5, "inner", Struct((Field(6, "c", LONG), Field(7, "d", LONG))))
    struct = Field(2, "s", Struct((Field(3, "a", LONG), Field(4, "b", LONG), inner)))
    schema = Schema(0, (Field(1, "id", LONG), struct, Field(8, "z", LONG)))

    def left(*tasks: Any, columns: tuple[int, ...] = (1,), **options: Any) -> set[int]:
        projection = Projection(schema=schema, columns=columns, **options)
        return set(narrowed(projection, tasks).schema.fields_by_id)

    def task(**options: Any) -> FileTask:
        return FileTask(file=Mock(), schema=schema, **options)

    def at(field_id: int) -> Any:
        return Comparison(field_id, "=", Literal(LONG, 1))

    every = {1, 2, 3, 4, 5, 6, 7, 8}
    assert left() == every and left(columns=(2,)) == every, (
        "a struct of which nothing is used stays"
    )
    assert left(columns=(1, 2), fields=frozenset((1, 4))) == {1, 2, 4, 8}
    assert left(where=PredicateFilter(at(3))) == {1, 2, 3, 8}
    assert left(task(predicate=at(7))) == {1, 2, 5, 7, 8}
    assert left(task(predicate=at(5))) == {1, 2, 5, 6, 7, 8}
    by_where = Marker(id="m", body=Where(at(6)))
    by_keys = Marker(id="n", body=Keys((4,), "k", 1, 1, {}))
    assert left(task(markers=(by_where,)), task(only=(by_keys,))) == {1, 2, 4, 5, 6, 8}
    plain = Projection(schema=LONGS, columns=(1,))
    assert narrowed(plain, [task(predicate=at(1))]) is plain
    assert top_columns(schema, (7, 8)) == (2, 8) and top_columns(schema, (99,)) == ()
    assert [field.id for field in subschema(schema, (8, 1)).fields] == [8, 1]


@pytest.mark.parametrize(
    ("position", "file"), [(a, b) for a in (False, True) for b in (False, True)]
)
def test_a_result_has_its_columns_and_where_its_rows_are(position: bool, file: bool) -> None:
    projection = Projection(schema=LONGS, columns=(2, 1), position=position, file=file)
    more = ["_pos"] * position + ["_file"] * file
    assert projection.result.names == ["b", "a", *more]
    assert not any(field.metadata for field in projection.result), "ids are the table's own matter"
    assert not any(projection.result.field(name).nullable for name in more)

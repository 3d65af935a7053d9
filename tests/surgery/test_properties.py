"""Surgery over generated schemas, values, nesting, encodings and writer options."""

from __future__ import annotations

import datetime
import decimal
import io

import checker
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import surgeon
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from inlay.parquet.footer.footer import decode_footer
from inlay.plan.positions import PositionMap

BOUNDS = {
    pa.int8(): (-128, 127),
    pa.uint8(): (0, 255),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint64(): (0, 2**64 - 1),
}
LEAVES: dict[pa.DataType, st.SearchStrategy[object]] = {
    **{kind: st.integers(*bounds) for kind, bounds in BOUNDS.items()},
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.float16(): st.floats(width=16),
    pa.string(): st.text(st.characters(codec="utf-8"), max_size=12),
    pa.binary(): st.binary(max_size=12),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.decimal128(7, 3): st.integers(-(10**7) + 1, 10**7 - 1).map(
        lambda n: decimal.Decimal(n).scaleb(-3)
    ),
    pa.decimal128(38, 0): st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda n: decimal.Context(prec=40).create_decimal(n)
    ),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(min_value=datetime.datetime(1900, 1, 1)),
    pa.time64("us"): st.times(),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from(["a", "b", "cc"]),
    pa.null(): st.none(),
}
NAMES = st.sampled_from(["a", "b", "a.b", "", "list", "element", "Ü x", "key_value"])


@st.composite
def columns(draw: st.DrawFn, depth: int = 0) -> tuple[pa.DataType, st.SearchStrategy[object]]:
    """A type, and values of it, nulls among them."""
    shape = draw(st.integers(0, 5 if depth < 3 else 2))
    if shape <= 2:
        kind = draw(st.sampled_from(list(LEAVES)))
        return kind, st.none() | LEAVES[kind]
    if shape == 3:
        kind, values = draw(columns(depth + 1))
        return pa.list_(kind), st.none() | st.lists(values, max_size=3)
    if shape == 4:
        fields = draw(
            st.lists(
                st.tuples(NAMES, columns(depth + 1)),
                min_size=1,
                max_size=3,
                unique_by=lambda f: f[0],
            )
        )
        kind = pa.struct([(name, child) for name, (child, _) in fields])
        return kind, st.none() | st.fixed_dictionaries({name: v for name, (_, v) in fields})
    kind, values = draw(columns(depth + 1))
    pairs = st.lists(st.tuples(st.sampled_from("xyz"), values), max_size=3)
    return pa.map_(pa.string(), kind), st.none() | pairs


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 40))
    fields = draw(
        st.lists(st.tuples(NAMES, columns()), min_size=1, max_size=4, unique_by=lambda f: f[0])
    )
    arrays = []
    for _, (kind, values) in fields:
        base = draw(st.lists(values, min_size=rows, max_size=rows))
        arrays.append(pa.array(base, kind))
    return pa.table(arrays, names=[name for name, _ in fields])


OPTIONS = st.fixed_dictionaries(
    {
        "row_group_size": st.integers(1, 25),
        "compression": st.sampled_from(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        "use_dictionary": st.booleans(),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "version": st.sampled_from(["1.0", "2.4", "2.6"]),
        "write_page_index": st.booleans(),
        "write_page_checksum": st.booleans(),
        "write_statistics": st.booleans(),
        "store_schema": st.booleans(),
        "use_compliant_nested_type": st.booleans(),
        "data_page_size": st.sampled_from([16, 64, 1024**2]),
        "write_batch_size": st.sampled_from([2, 7, 1024]),
        "use_deprecated_int96_timestamps": st.booleans(),
        "store_decimal_as_integer": st.booleans(),
    }
)


def written(table: pa.Table, options: dict[str, object]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def rows_of(data: bytes) -> list[str]:
    """Every row as text, so that NaN equals NaN. Group by group: pyarrow cannot put the dictionaries
    of nested columns of several groups together."""
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    found: list[str] = []
    for group in range(file.num_row_groups):
        columns = [column.to_pylist() for column in file.read_row_group(group).columns]
        found += [repr(row) for row in zip(*columns, strict=True)]
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=tables(), options=OPTIONS, data=st.data())
def test_any_table_under_any_options_loses_exactly_the_chosen_rows(
    table: pa.Table, options: dict[str, object], data: st.DataObject
) -> None:
    loses_exactly_the_chosen_rows(table, options, data)


@pytest.mark.slow
@settings(max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=tables(), options=OPTIONS, data=st.data())
def test_many_tables_lose_exactly_the_chosen_rows(
    table: pa.Table, options: dict[str, object], data: st.DataObject
) -> None:
    loses_exactly_the_chosen_rows(table, options, data)


def loses_exactly_the_chosen_rows(
    table: pa.Table, options: dict[str, object], data: st.DataObject
) -> None:
    try:
        before = written(table, options)
        expected = rows_of(before)
    except (pa.ArrowException, OSError, ValueError):
        return  # pyarrow cannot write or read this combination itself
    if len(expected) != table.num_rows:
        return  # it reads some of its own one-value pages of lists as no rows
    known = checker.kinds(before)
    footer = decode_footer(before, file_size=len(before))
    edit: surgeon.Edit = {}
    for group in footer.row_groups:
        if data.draw(st.booleans()):
            rows = st.lists(st.booleans(), min_size=group.num_rows, max_size=group.num_rows)
            edit[group.ordinal] = data.draw(st.none() | rows)
    outcome, after = surgeon.operate(before, edit)
    kept = surgeon.kept_rows(footer, edit)
    if outcome is None:
        assert kept == [] or len(kept) == table.num_rows
        return
    fresh = [p for p in checker.problems(after) if p[0] not in known]
    assert fresh == []
    assert rows_of(after) == [expected[at] for at in kept]
    schemas = [pq.read_schema(pa.BufferReader(data)) for data in (before, after)]
    assert schemas[0].equals(schemas[1], check_metadata=True)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.booleans(), max_size=8), max_size=6), st.data())
def test_positions_map_to_where_the_rows_went(
    groups: list[list[bool]], data: st.DataObject
) -> None:
    named = {at: BitMap(i for i, k in enumerate(rows) if k) for at, rows in enumerate(groups)}
    untouched = {at for at, rows in enumerate(groups) if all(rows) and data.draw(st.booleans())}
    positions = PositionMap.of(
        [len(rows) for rows in groups], {at: k for at, k in named.items() if at not in untouched}
    )
    flat = [keep for rows in groups for keep in rows]
    kept = [at for at, keep in enumerate(flat) if keep]
    assert positions.old_rows == len(flat)
    assert positions.new_rows == len(kept)
    assert positions.map(range(len(flat))) == list(range(len(kept)))
    assert [at for at in range(len(flat)) if positions.one(at) is not None] == kept
    for outside in (-1, len(flat)):
        with pytest.raises(ValueError, match="position"):
            positions.one(outside)

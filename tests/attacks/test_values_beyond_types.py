"""Numbers that are no value of their column's type: Arrow and Parquet keep any, tables take none.

In the bounds of a file one of them would make a pointer that no reader accepts.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import SchemaMismatch
from inlay.ops.write.ingest import Ingested, Rejected
from inlay.parquet.footer.fields import Element, File
from inlay.parquet.footer.footer import decode_footer, end_of_file


def raw(kind: pa.DataType, *values: int | bytes | None) -> pa.Array:
    """Values by what is stored."""
    if pa.types.is_decimal(kind):
        return pa.array(values, pa.binary(16)).view(kind)
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


DAY_US = 86_400_000_000
SEVEN_DIGITS = (8_388_607).to_bytes(16, "little")  # in the three bytes of a decimal of five digits
NOT_VALUES: dict[str, tuple[pa.DataType, pa.Array]] = {
    "before midnight": (pa.time64("us"), raw(pa.time64("us"), 5, -1)),
    "24:00": (pa.time64("us"), raw(pa.time64("us"), 5, DAY_US)),
    "coarser": (pa.time64("us"), raw(pa.time32("ms"), 5, DAY_US // 1000)),
    "digits": (pa.decimal128(5, 2), raw(pa.decimal128(5, 2), bytes(16), SEVEN_DIGITS)),
    "many digits": (pa.decimal128(30, 2), raw(pa.decimal128(30, 2), bytes(16), b"\x7f" * 16)),
}
BEYOND: dict[str, tuple[pa.DataType, pa.Array]] = {
    "milliseconds": (pa.timestamp("us"), raw(pa.timestamp("ms"), 5, 2**62)),
    "early milliseconds": (pa.timestamp("us", "UTC"), raw(pa.timestamp("ms", "UTC"), 5, -(2**62))),
    "dates": (pa.timestamp("us"), raw(pa.date32(), 5, 2**30)),
}
SHAPES: dict[str, Any] = {
    "plain": (lambda kind: kind, lambda values: values),
    "struct": (
        lambda kind: pa.struct([("x", kind)]),
        lambda values: pa.StructArray.from_arrays([values], ["x"]),
    ),
    "list": (
        lambda kind: pa.list_(kind),
        lambda values: pa.ListArray.from_arrays(range(len(values) + 1), values),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("what", [*NOT_VALUES, *BEYOND])
def test_a_write_names_the_column(tmp_path: Path, what: str, shape: str) -> None:
    kind, values = {**NOT_VALUES, **BEYOND}[what]
    typed, shaped = SHAPES[shape]
    table = inlay.create(tmp_path / "t", pa.schema([("c", typed(kind))]))
    with pytest.raises(SchemaMismatch, match="column 'c"):
        table.append(pa.table({"c": shaped(values)}))
    assert inlay.open(table.uri).count() == 0
    assert table.append(pa.table({"c": shaped(values.slice(0, 1))})).committed


@pytest.mark.parametrize("what", NOT_VALUES)
def test_what_no_row_shows_is_not_asked_for(tmp_path: Path, what: str) -> None:
    kind, values = NOT_VALUES[what]
    _, data = values.buffers()
    hidden = pa.Array.from_buffers(values.type, 2, [pa.py_buffer(b"\x01"), data], null_count=1)
    table = inlay.create(tmp_path / "t", pa.schema([("c", kind)]))
    table.append(pa.table({"c": hidden}))
    assert inlay.open(table.uri).count() == 2


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("what", [*NOT_VALUES, *BEYOND])
def test_a_landed_file_is_refused_or_can_be_read(
    tmp_path: Path, what: str, shape: str, statistics: bool, adopt: bool
) -> None:
    kind, values = {**NOT_VALUES, **BEYOND}[what]
    typed, shaped = SHAPES[shape]
    table = inlay.create(tmp_path / "t", pa.schema([("c", typed(kind))]))
    good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    pq.write_table(pa.table({"c": shaped(values.slice(0, 1))}), good, write_statistics=statistics)
    try:
        pq.write_table(pa.table({"c": shaped(values)}), bad, write_statistics=statistics)
    except pa.ArrowInvalid:
        pytest.skip("pyarrow writes no decimal of more digits than its type has")
    first, second = table.ingest([bad, good], adopt=adopt).outcomes
    assert isinstance(second, Ingested)
    if what in BEYOND or (statistics and shape != "list"):
        # Statistics of lists are not kept, so nothing asks what is in them but a narrower type.
        assert isinstance(first, Rejected)
        assert "column 'c" in str(first.error) and first.error.next_step
    there = inlay.open(table.uri)
    assert there.scan().to_arrow().num_rows == there.count()


def test_an_update_beyond_a_float_is_no_infinity(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "c": pa.array([1.5, float("inf")], pa.float32())})
    table = inlay.create(tmp_path / "t", rows.schema)
    table.append(rows)
    with pytest.raises(SchemaMismatch, match="cannot hold"):
        table.update({"c": "c * 1e300"}, where="id = 1")
    table.update({"c": "c / 3"})
    assert table.scan().to_arrow()["c"].to_pylist() == [0.5, float("inf")]


BEYOND_DIGITS = pa.schema([("c", pa.decimal128(9, 2)), ("mail", pa.string())])


def beyond_digits(path: Path) -> Path:
    """A file with a decimal of more digits than its type, which pyarrow reads, and does not write."""
    values = pa.array([Decimal("0.01"), Decimal("10000000000.00"), None], pa.decimal128(18, 2))
    pq.write_table(
        pa.table({"c": values, "mail": ["ann@x", "bob@x", "zoe@x"]}),
        path,
        store_decimal_as_integer=True,
        store_schema=False,
        write_statistics=False,
    )
    body = path.read_bytes()
    footer = decode_footer(body, file_size=len(body))
    column = footer.tree[File.SCHEMA][1]
    column[Element.PRECISION] = 9
    column.pop(Element.LOGICAL)
    path.write_bytes(body[: footer.start] + end_of_file(footer.tree))
    return path


def test_a_row_leaves_a_file_beside_a_value_that_cannot_be_written_again(tmp_path: Path) -> None:
    """Erasures waited for ever."""
    table = inlay.create(tmp_path / "t", BEYOND_DIGITS)
    assert isinstance(table.ingest([beyond_digits(tmp_path / "x")]).outcomes[0], Ingested)
    table.delete("mail = 'zoe@x'")
    [named] = table.maintain.rewrite(strategy="rewrite").failures
    assert "cannot be written as Parquet" in str(named.error)
    table.delete("mail = 'zoe@x'", mode="erase")  # whose rows go in the way that a file allows
    done = table.refresh().maintain.rewrite()
    assert done.failures == () and done.removed_rows == 1
    left = inlay.open(table.uri)
    values = [Decimal("0.01"), Decimal("10000000000.00")]
    assert left.scan().to_arrow()["c"].to_pylist() == values
    [entry] = left.inspect.entries()[0]
    assert b"zoe" not in left._ctx.store.get(left._ctx.key(entry.key)).body


def test_files_are_packed_beside_one_that_cannot_be_written_again(tmp_path: Path) -> None:
    table = inlay.create(tmp_path / "t", BEYOND_DIGITS)
    good, honest = pa.table({"c": [Decimal("1.00")], "mail": ["x"]}), tmp_path / "honest.parquet"
    pq.write_table(good.cast(BEYOND_DIGITS), honest)
    for _ in range(2):
        table.append(good)
    table.ingest([beyond_digits(tmp_path / "x.parquet"), honest])
    before = table.refresh().scan().to_arrow().sort_by("mail").to_pylist()
    done = table.refresh().maintain.compact()
    [failure] = done.failures
    bad, packed = sorted(table.refresh().inspect.entries()[0], key=lambda f: not f.is_foreign)
    assert failure.key == bad.key and bad.rows == packed.rows == 3
    assert done.input_files == 3
    assert table.scan().to_arrow().sort_by("mail").to_pylist() == before

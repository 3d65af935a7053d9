"""The footer codec: nothing is lost, damage is refused by type, false sizes cost nothing."""

from __future__ import annotations

import gc
import io
import random
import struct
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.errors import InputError, UnreadableFile, UnsupportedFile
from inlay.parquet.footer import thrift
from inlay.parquet.footer.fields import Meta, OffsetIndex, PageLocation, Stats
from inlay.parquet.footer.footer import (
    MAX_FOOTER_BYTES,
    Footer,
    decode_footer,
    footer_length,
)
from inlay.parquet.footer.pages import move_pages, page_locations

FOREIGN = Path(__file__).parents[3] / "shared" / "data" / "parquet-testing"


def parquet(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def small() -> bytes:
    nested = pa.array([[1, 2], None, [], [3]] * 25, pa.list_(pa.int32()))
    table = pa.table({"id": range(100), "name": [f"n{i % 7}" for i in range(100)], "l": nested})
    return parquet(table, row_group_size=30, write_page_index=True)


def as_file(thrift_bytes: bytes) -> bytes:
    return b"PAR1" + thrift_bytes + len(thrift_bytes).to_bytes(4, "little") + b"PAR1"


def decode(data: bytes) -> Footer:
    return decode_footer(data, file_size=len(data))


def test_a_footer_comes_back_byte_for_byte() -> None:
    data = small()
    footer = decode(data)
    assert thrift.encode_struct(footer.tree) == data[footer.start : -8]


def test_footers_of_other_writers_come_back_byte_for_byte() -> None:
    if not FOREIGN.is_dir():
        pytest.skip("../shared/data/parquet-testing is not there")
    files = sorted(FOREIGN.glob("*.parquet"))
    assert files
    for path in files:
        data = path.read_bytes()
        footer = decode(data)
        assert thrift.encode_struct(footer.tree) == data[footer.start : -8], path.name
        expected = pq.ParquetFile(path).metadata
        levels = [(leaf.definition_level, leaf.repetition_level) for leaf in footer.leaves]
        columns = [expected.schema.column(at) for at in range(expected.num_columns)]
        assert levels == [(c.max_definition_level, c.max_repetition_level) for c in columns]
        assert [".".join(leaf.path) for leaf in footer.leaves] == [c.path for c in columns]


def test_views_say_what_pyarrow_says() -> None:
    data = small()
    footer, expected = decode(data), pq.ParquetFile(io.BytesIO(data)).metadata
    assert footer.num_rows == expected.num_rows
    assert footer.created_by == expected.created_by
    for group in footer.row_groups:
        theirs = expected.row_group(group.ordinal)
        assert (group.num_rows, group.total_byte_size) == (theirs.num_rows, theirs.total_byte_size)
        for leaf, chunk in zip(footer.leaves, group.columns, strict=True):
            other = theirs.column(leaf.index)
            assert chunk.type.name == other.physical_type
            assert chunk.codec.name == other.compression
            assert chunk.compressed_size == other.total_compressed_size
            assert chunk.num_values == other.num_values
            assert chunk.start == (other.dictionary_page_offset or other.data_page_offset)
            assert chunk.statistics is not None
            assert chunk.statistics[Stats.NULLS] == other.statistics.null_count
            assert chunk.column_index is not None and chunk.offset_index is not None


def test_the_tail_is_enough_and_half_a_footer_is_not() -> None:
    data = small()
    length = footer_length(data[-8:])
    assert decode_footer(data[-length:], file_size=len(data)).num_rows == 100
    with pytest.raises(UnreadableFile, match="bytes given"):
        decode_footer(data[-length + 1 :], file_size=len(data))


# -- unknown fields, by generated trees ------------------------------------------------------------


def double(value: float) -> bytes:
    return struct.pack("<d", value)


def text(value: bytes) -> bytes:
    return bytes([len(value)]) + value


I64 = st.integers(-(2**63), 2**63 - 1)
SCALARS = st.one_of(
    st.tuples(st.just(thrift.BOOL), st.booleans()),
    st.tuples(st.just(thrift.I8), st.integers(-128, 127)),
    st.tuples(st.sampled_from([thrift.I16, thrift.I32, thrift.I64]), I64),
    st.tuples(st.just(thrift.DOUBLE), st.floats(allow_nan=False).map(double)),
    st.tuples(st.just(thrift.BINARY), st.binary(max_size=200)),
    st.tuples(st.just(thrift.UUID), st.binary(min_size=16, max_size=16)),
)
LISTS = st.one_of(
    st.lists(I64, max_size=40).map(lambda v: thrift.Items(thrift.I64, v)),
    st.lists(st.sampled_from([0, 1, 2]), max_size=20).map(lambda v: thrift.Items(thrift.BOOL, v)),
    st.lists(st.binary(max_size=9), max_size=20).map(lambda v: thrift.Items(thrift.BINARY, v)),
    st.lists(st.floats(allow_nan=False).map(double), max_size=20).map(
        lambda v: thrift.Items(thrift.DOUBLE, v)
    ),
)
TEXTS = st.binary(max_size=9)
SETS = st.lists(TEXTS, max_size=14).map(
    lambda v: bytes([len(v) << 4 | thrift.BINARY]) + b"".join(map(text, v))
)
MAPS = st.dictionaries(TEXTS, SETS, max_size=5).map(
    lambda v: (
        bytes([len(v), thrift.BINARY << 4 | thrift.SET] if v else [0])
        + b"".join(text(key) + value for key, value in v.items())
    )
)


def structs(children: st.SearchStrategy[dict[int, object]]) -> st.SearchStrategy[dict[int, object]]:
    value = st.one_of(
        SCALARS,
        LISTS.map(lambda v: (thrift.LIST, v)),
        SETS.map(lambda v: (thrift.SET, v)),
        MAPS.map(lambda v: (thrift.MAP, v)),
        children.map(lambda v: (thrift.STRUCT, v)),
        st.lists(children, max_size=3).map(lambda v: (thrift.LIST, thrift.Items(thrift.STRUCT, v))),
    )
    fields = st.lists(st.tuples(st.integers(1, 32767), value), max_size=6)
    return fields.map(lambda pairs: {i << 4 | kind: v for i, (kind, v) in pairs})


TREES = st.recursive(st.just({}), structs, max_leaves=8)


def must_ascend(value: object) -> None:
    """Every struct in the tree has its fields in ascending order."""
    if isinstance(value, dict):
        assert list(value) == sorted(value)
        for inner in value.values():
            must_ascend(inner)
    elif isinstance(value, list):
        for inner in value:
            must_ascend(inner)


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_any_tree_survives_whatever_its_fields_are(tree: dict[int, object]) -> None:
    data = thrift.encode_struct(tree)
    decoded, end = thrift.decode_struct(data)
    assert end == len(data)
    assert decoded == tree
    must_ascend(decoded)
    assert thrift.encode_struct(decoded) == data


@settings(max_examples=150, deadline=None)
@given(TREES, st.integers(0, 5))
def test_what_stays_packed_is_written_back_and_can_be_unpacked(
    tree: dict[int, object], depth: int
) -> None:
    data = thrift.encode_struct(tree)
    decoded, end = thrift.decode_struct(data, unpack_depth=depth)
    assert end == len(data)
    assert thrift.encode_struct(decoded) == data
    assert unpacked(decoded) == tree


def unpacked(value: object, *, is_struct: bool = True) -> object:
    if is_struct:
        fields = thrift.unpack(value)  # type: ignore[arg-type]
        return {
            key: unpacked(found, is_struct=key & 15 == thrift.STRUCT)
            for key, found in fields.items()
        }
    if isinstance(value, thrift.Items) and value.element == thrift.STRUCT:
        return thrift.Items(thrift.STRUCT, (unpacked(item) for item in value))
    return value


@settings(max_examples=400, deadline=None)
@given(TREES, st.randoms(use_true_random=False))
def test_bytes_taken_for_a_plain_struct_are_one(
    tree: dict[int, object], dice: random.Random
) -> None:
    """The pattern that finds the end of a struct accepts nothing that decoding would not."""
    data = bytearray(thrift.encode_struct(tree)) + bytes(4)
    for _ in range(dice.randrange(3)):
        data[dice.randrange(len(data))] = dice.choice([0, 1, 4, 9, 24, 127, 128, 255])
    plain = thrift._PLAIN_STRUCT.match(bytes(data))
    if plain:
        assert thrift.decode_struct(bytes(data))[1] == plain.end()


HIGH = bytes(byte | 128 for byte in range(256))


def test_the_pattern_ends_where_decoding_ends() -> None:
    """Many small structs of nothing but what it takes, some of them damaged: `re` of Python 3.11.2 has
    ended possessive repeats elsewhere, in one of ten thousand."""
    dice = random.Random(5)

    def number() -> bytes:
        return dice.randbytes(dice.choice([0, 0, 1, 2, 4])).translate(HIGH) + bytes(
            [dice.randrange(128)]
        )

    def field() -> bytes:
        head = dice.randrange(1, 16) << 4
        match dice.randrange(4):
            case 0:
                return bytes([head | dice.choice(sorted(thrift.INTEGERS))]) + number()
            case 1:
                text = dice.randbytes(dice.randrange(20))
                return bytes([head | thrift.BINARY, len(text)]) + text
            case 2:
                return bytes([head | dice.choice([thrift.BOOL, thrift.FALSE])])
        items = [number() for _ in range(dice.randrange(15))]
        element = dice.choice(sorted(thrift.INTEGERS))
        return bytes([head | thrift.LIST, len(items) << 4 | element]) + b"".join(items)

    for _ in range(50_000):
        data = bytearray(b"".join(field() for _ in range(dice.randrange(9))))
        data += bytes(dice.random() < 0.9) + dice.randbytes(3)
        if dice.random() < 0.3:
            data[dice.randrange(len(data))] = dice.randrange(256)
        plain = thrift._PLAIN_STRUCT.match(bytes(data))
        if plain:
            assert thrift.decode_struct(bytes(data))[1] == plain.end()


def test_statistics_are_plain() -> None:
    """Or the pattern would find nothing to do."""
    footer = decode(small())
    for group in footer.row_groups:
        for chunk in group.columns:
            for key in (Meta.STATISTICS, Meta.SIZES):
                assert thrift._PLAIN_STRUCT.fullmatch(chunk.meta[key])


PAGES = st.lists(st.tuples(st.integers(4, 2**62), st.integers(0, 2**31 - 1), st.integers(0, 2**40)))


@given(PAGES, st.integers(-4, 2**31), st.booleans(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_pages_move_whatever_else_their_index_says(
    pages: list[tuple[int, int, int]], by: int, more: bool, odd: bool
) -> None:
    """`odd` locations have a field that the format does not define, and are decoded whole."""
    keys = (PageLocation.OFFSET, PageLocation.SIZE, PageLocation.FIRST_ROW)
    extra = {thrift.binary(9): b"later"} if odd else {}

    def encoded(by: int) -> bytes:
        listed = [
            {**dict(zip(keys, (at + by, size, row), strict=True)), **extra}
            for at, size, row in pages
        ]
        index = {OffsetIndex.PAGES: thrift.Items(thrift.STRUCT, listed)}
        text_bytes = {thrift.items(2): thrift.Items(thrift.I64, [7, 8])} if more else {}
        return thrift.encode_struct({**index, **text_bytes})

    assert move_pages(encoded(0), by) == encoded(by)
    assert page_locations(encoded(by)) == [(at + by, size, row) for at, size, row in pages]
    if pages:
        with pytest.raises(UnreadableFile, match="outside"):
            move_pages(encoded(0), by, within=(0, max(at for at, _, _ in pages)))
    assert move_pages(encoded(0) + b"behind", by) == encoded(by)
    for cut in range(len(encoded(0))):
        with pytest.raises(UnreadableFile, match="damaged"):
            move_pages(encoded(0)[:cut], by)


def test_fields_of_a_later_format_survive() -> None:
    data = small()
    footer = decode(data)
    footer.tree[thrift.nested(77)] = {thrift.binary(300): b"from the future"}
    footer.tree[thrift.items(4)][0][thrift.items(99)] = thrift.Items(
        thrift.DOUBLE, [double(1.5), double(-0.0)]
    )
    once = decode(as_file(thrift.encode_struct(footer.tree)))
    assert once.tree == footer.tree


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        (b"", UnreadableFile, "shorter"),
        (b"PAR1", UnreadableFile, "shorter"),
        (b"hello, world, not parquet", UnreadableFile, "PAR1"),
        (b"PAR1\x00\x00\x00\x00PAR1", UnreadableFile, "damaged"),
        (b"PAR1" + (500).to_bytes(4, "little") + b"PAR1", UnreadableFile, "500|508"),
        (b"PAR1" + b"\0" * 40 + b"\x10\0\0\0PARE", UnsupportedFile, "encrypted"),
        (
            b"PAR1" + (MAX_FOOTER_BYTES + 1).to_bytes(4, "little") + b"PAR1",
            UnsupportedFile,
            "more than",
        ),
        (b"PAR1" + b"\xff" * 4 + b"PAR1", UnsupportedFile, "more than"),
    ],
)
def test_what_is_no_footer_is_refused(data: bytes, error: type[InputError], says: str) -> None:
    with pytest.raises(error, match=says):
        decode(data)


@pytest.mark.parametrize("key", [thrift.nested(8), thrift.binary(9)])
def test_encrypted_and_signed_footers_are_refused(key: int) -> None:
    footer = decode(small())
    footer.tree[key] = {} if key & 15 == thrift.STRUCT else b"key"
    with pytest.raises(UnsupportedFile, match="encrypted or signed"):
        decode(as_file(thrift.encode_struct(footer.tree)))


@pytest.mark.parametrize("key", [thrift.items(2), thrift.i64(3), thrift.items(4)])
def test_a_footer_without_a_required_field_is_refused(key: int) -> None:
    footer = decode(small())
    del footer.tree[key]
    with pytest.raises(UnreadableFile, match="damaged: no "):
        decode(as_file(thrift.encode_struct(footer.tree)))


@pytest.mark.parametrize(
    "thrift_bytes",
    [
        b"\x19\xfc\xff\xff\xff\xff\x07",  # a list of two billion structs
        b"\x1b\xff\xff\xff\xff\x07\x55",  # a map of as many
        b"\x18\xff\xff\xff\xff\x0f",  # a string of 4 GiB
        b"\x1c" * 5000,  # five thousand structs deep
        b"\x19" * 5000,  # as many lists
        b"\x16" + b"\xff" * 50,  # a number without an end
        b"\x15\x02\x05\x02\x02\x00",  # the same field twice
        b"\x0f",  # no such wire type
    ],
)
def test_false_sizes_are_refused_at_once(thrift_bytes: bytes) -> None:
    started = time.process_time()
    with pytest.raises(UnreadableFile):
        decode(as_file(thrift_bytes))
    assert time.process_time() - started < 1


def test_a_bomb_of_empty_structs_stops_at_the_bound() -> None:
    count = thrift.MAX_CONTAINERS + 10
    bomb = bytearray(b"\x19\xfc")
    thrift.write_varint(bomb, count)
    bomb += bytes(count)
    with pytest.raises(thrift.ThriftError, match="more than"):
        thrift.decode_struct(bytes(bomb))
    assert gc.isenabled()


def test_collection_is_back_on_after_success_and_failure() -> None:
    decode(small())
    assert gc.isenabled()
    with pytest.raises(UnreadableFile):
        decode(as_file(b"\x0f"))
    assert gc.isenabled()


def test_flipped_and_cut_bytes_are_refused_or_read() -> None:
    """Whatever happens to the bytes: a typed refusal, or a footer whose views all answer."""
    data, dice = small(), random.Random(11)
    start = decode(data).start
    refused = 0
    for _ in range(1500):
        damaged = bytearray(data)
        if dice.random() < 0.2:
            at = dice.randrange(start, len(data) - 8)
            del damaged[at : at + dice.randrange(1, 40)]
        for _ in range(dice.choice([1, 1, 1, 4])):
            damaged[dice.randrange(start, len(damaged))] = dice.randrange(256)
        try:
            footer = decode(bytes(damaged))
        except InputError:
            refused += 1
            continue
        _ = footer.created_by, footer.num_rows, footer.schema
        for group in footer.row_groups:
            for chunk in group.columns:
                _ = chunk.path, chunk.type, chunk.codec, chunk.start, chunk.end, chunk.bloom_length
                _ = chunk.statistics and chunk.statistics.get(Stats.MIN)
    assert refused > 300

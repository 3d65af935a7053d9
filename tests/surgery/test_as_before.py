"""An edited row group is written as it was: codec, encodings, pages, checksums, indexes, filters and which
statistics there are, all of the rows that stay; and what pyarrow is asked for, case by case."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import checker
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import surgeon

from inlay.errors import UnreadableFile, UnsupportedFile
from inlay.format.schema import Primitive
from inlay.parquet.footer.bloom import BLOCK_BYTES, block_of, may_hold, plain_bytes, xxh64
from inlay.parquet.footer.fields import (
    Chunk,
    Codec,
    Converted,
    Element,
    Encoding,
    Logical,
    Meta,
    Physical,
    Stats,
)
from inlay.parquet.footer.footer import ColumnChunk, Footer, decode_footer, end_of_file
from inlay.parquet.footer.pages import PageProfile, profile_chunk
from inlay.parquet.footer.thrift import STRUCT, Items, Struct, binary, boolean
from inlay.parquet.read.single_column import Pages
from inlay.parquet.surgery.row_group import (
    _bloom_values,
    _encoding,
    _graft,
    _must_match,
    _ordering,
    _physical_schema,
    _write,
    _writer_options,
    is_unsigned,
    leaf_paths,
)

ROWS = 600
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "word": [f"word {n % 7}" for n in range(ROWS)],
        "real": pa.array([n / 8 for n in range(ROWS)], pa.float64()),
        "flag": [n % 3 == 0 for n in range(ROWS)],
        "some": pa.array([None if n % 5 == 0 else n for n in range(ROWS)], pa.int32()),
        "many": pa.array([[n, None] if n % 2 else [] for n in range(ROWS)], pa.list_(pa.int64())),
        "pair": pa.array([{"a": n, "b": str(n)} for n in range(ROWS)]),
    }
)
# Of the second of three groups.
KEEP = [n % 10 in (0, 3, 6) for n in range(200)]
KEPT = [200 + n for n, keep in enumerate(KEEP) if keep]


def written(table: pa.Table = TABLE, **options: Any) -> bytes:
    sink = io.BytesIO()
    options = {"row_group_size": 200, "compression": "zstd", **options}
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def footer_of(data: bytes) -> Footer:
    return decode_footer(data, file_size=len(data))


def with_footer(data: bytes, footer: Footer) -> bytes:
    return data[: footer.start] + end_of_file(footer.tree)


def edited(data: bytes) -> bytes:
    outcome, new = surgeon.operate(data, {1: KEEP})
    assert isinstance(outcome, surgeon.Rewritten)
    assert checker.problems(new) == []
    old, rows = pq.read_table(io.BytesIO(data)), pq.read_table(io.BytesIO(new))
    assert rows == old.take([*range(200), *KEPT, *range(400, ROWS)])
    return new


def profile(data: bytes, chunk: ColumnChunk) -> PageProfile:
    return profile_chunk(data[chunk.start : chunk.end], 0, chunk, flat_rows=None)


def shape(data: bytes, chunk: ColumnChunk) -> dict[str, Any]:
    """What a reader can see of how a chunk was written, whatever its rows."""
    pages = profile(data, chunk)
    return {
        "codec": chunk.codec,
        "encodings": set(pages.encodings),
        "dictionary": pages.dictionary_bytes is not None,
        "listed": set(chunk.meta[Meta.ENCODINGS]),
        "version 2": pages.version_2,
        "checksums": pages.checksums,
        "statistics": None if chunk.statistics is None else set(chunk.statistics),
        "filter": chunk.bloom_offset is not None,
        "column index": chunk.column_index is not None,
        "offset index": chunk.offset_index is not None,
        "fields": set(chunk.meta) - {Meta.KEY_VALUES},
    }


PAGED = {"data_page_size": 256, "write_batch_size": 16, "max_rows_per_page": 40}
WAYS: dict[str, dict[str, Any]] = {
    "as pyarrow writes": {},
    "with page indexes and checksums": {
        "write_page_index": True,
        "write_page_checksum": True,
        **PAGED,
    },
    "pages of version 2": {"data_page_version": "2.0", "compression": "gzip"},
    "without statistics and dictionaries": {"write_statistics": False, "use_dictionary": False},
    "statistics of two columns": {"write_statistics": ["id", "pair.b"], "use_dictionary": ["word"]},
    "format 1.0": {"version": "1.0", "compression": "none"},
    "other encodings": {
        "use_dictionary": ["pair.b"],
        "column_encoding": {
            "id": "DELTA_BINARY_PACKED",
            "word": "DELTA_BYTE_ARRAY",
            "real": "BYTE_STREAM_SPLIT",
            "flag": "RLE",
            "some": "PLAIN",
            "many.list.element": "DELTA_BINARY_PACKED",
            "pair.a": "BYTE_STREAM_SPLIT",
        },
    },
    "filters": {
        "bloom_filter_options": {
            "id": {"ndv": 200, "fpp": 0.01},
            "word": {"ndv": 200, "fpp": 0.01},
        },
    },
    "a codec each": {
        "compression": {"id": "snappy", "word": "none", "real": "brotli", "flag": "lz4"},
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_an_edited_group_has_the_shape_of_its_neighbours(way: str) -> None:
    data = written(**WAYS[way])
    new = edited(data)
    was, now = footer_of(data).row_groups[1], footer_of(new).row_groups[1]
    for old, chunk in zip(was.columns, now.columns, strict=True):
        assert shape(new, chunk) == shape(data, old), chunk.path
        assert chunk.meta[Meta.DATA_PAGE] > 0
        if chunk.bloom_length is not None and old.bloom_length is not None:
            assert chunk.bloom_length <= old.bloom_length
    metadata = pq.read_metadata(io.BytesIO(new)).row_group(1)
    kept = TABLE.take(KEPT).flatten().flatten()
    for n in range(metadata.num_columns):
        column = metadata.column(n)
        stats = column.statistics
        if stats is None or column.path_in_schema.startswith("many"):
            continue
        values = [v for v in kept[column.path_in_schema].to_pylist() if v is not None]
        assert (stats.min, stats.max) == (min(values), max(values))
        assert stats.null_count == len(KEPT) - len(values)


@pytest.mark.parametrize("rows", [20, 40])
def test_pages_are_about_as_long_as_they_were(rows: int) -> None:
    data = written(
        TABLE.select(["id", "word"]),
        write_page_index=True,
        max_rows_per_page=rows,
        write_batch_size=10,
        use_dictionary=False,
    )
    new = edited(data)
    for chunk in footer_of(new).row_groups[1].columns:
        pages = profile(new, chunk)
        assert pages.page_values == rows and pages.data_pages == -(-len(KEPT) // rows)


def test_lists_do_not_bound_the_rows_of_a_page() -> None:
    """What their pages count are values."""
    table = pa.table({"many": [[n] * 30 for n in range(ROWS)], "id": range(ROWS)})
    data = written(
        table, data_page_size=512, write_batch_size=8, use_dictionary=["many.list.element"]
    )
    [many, flat] = footer_of(data).row_groups[1].columns
    assert profile(data, many).data_pages > 1
    footer = footer_of(data)
    profiles = [profile(data, many), replace(profile(data, flat), data_pages=1)]
    options = _writer_options(footer, [many, flat], profiles, list(leaf_paths(table.schema)))
    assert options["max_rows_per_page"] == 20_000 and options["write_batch_size"] == 1024
    assert options["data_page_size"] == profiles[0].page_bytes


def test_pages_that_would_be_empty_are_avoided_by_longer_ones() -> None:
    data = written(TWO, write_page_index=True, use_dictionary=False, **PAGED)
    footer = footer_of(data)
    columns = footer.row_groups[1].columns
    profiles = [profile(data, chunk) for chunk in columns]
    longest = {}
    for share in (1, 2):
        mini = bytes(_write(footer, columns, profiles, TWO.slice(0, 200), share))
        longest[share] = profile(mini, footer_of(mini).row_groups[0].columns[0]).page_values
    assert longest == {1: 40, 2: 80}


def test_memory_is_asked_for_the_texts_of_the_touched_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = written()
    asked: list[tuple[tuple[str, ...], bytes]] = []

    def check(footer: Footer, rows: int, chunks: Sequence[Pages]) -> None:
        assert rows == 200
        asked.extend((each.leaf.path, bytes(each.body)) for each in chunks)

    monkeypatch.setattr("inlay.parquet.surgery.row_group.check_pages_fit", check)
    edited(data)
    texts = [c for c in footer_of(data).row_groups[1].columns if c.type is Physical.BYTE_ARRAY]
    assert asked == [(c.path, data[c.start : c.end]) for c in texts] and len(texts) == 2


# -- what the writer is asked for -----------------------------------------------------------------

PLAIN, DICTIONARY = int(Encoding.PLAIN), int(Encoding.RLE_DICTIONARY)
OLD_DICTIONARY, DELTA = int(Encoding.PLAIN_DICTIONARY), int(Encoding.DELTA_BINARY_PACKED)
Change = Callable[[Sequence[ColumnChunk]], list[ColumnChunk]]
ONE = PageProfile({PLAIN: 1}, None, False, False, 100, 10, 1, 0)


def options(
    table: pa.Table, profiles: list[PageProfile], change: Change | None = None, **how: Any
) -> dict[str, Any]:
    """For the second group of a file of `table`, whose pages are `profiles`."""
    data = written(table, **how)
    footer = footer_of(data)
    columns: Sequence[ColumnChunk] = footer.row_groups[1].columns
    if change is not None:
        columns = change(columns)
    return _writer_options(footer, columns, profiles, list(leaf_paths(table.schema)))


TWO = TABLE.select(["id", "some"])
MIB = 1024 * 1024
FIXED = Physical.FIXED_LEN_BYTE_ARRAY


def test_pages_reached_their_bound_only_where_there_are_several() -> None:
    many = replace(ONE, data_pages=2, page_bytes=700, page_values=70)
    more = replace(ONE, data_pages=3, page_bytes=500, page_values=90)
    found = options(TWO, [many, more])
    assert (found["data_page_size"], found["max_rows_per_page"]) == (700, 90)
    assert found["write_batch_size"] == 90
    found = options(TWO, [ONE, ONE])
    assert (found["data_page_size"], found["max_rows_per_page"]) == (MIB, 20_000)
    assert found["write_batch_size"] == 1024
    found = options(TWO, [replace(many, page_bytes=40 * MIB, page_values=5_000), ONE])
    assert (found["data_page_size"], found["max_rows_per_page"]) == (16 * MIB, 5_000)
    found = options(TWO, [replace(many, page_values=0), ONE])
    assert (found["max_rows_per_page"], found["write_batch_size"]) == (1, 1)


def test_a_dictionary_that_was_large_enough_still_is() -> None:
    large = replace(ONE, encodings={DICTIONARY: 1}, dictionary_bytes=3 * MIB)
    limit = "dictionary_pagesize_limit"
    assert options(TWO, [large, ONE])[limit] == 3 * MIB + 1024
    assert options(TWO, [replace(large, dictionary_bytes=None), ONE])[limit] == MIB
    assert options(TWO, [replace(large, dictionary_bytes=MIB - 1024), ONE])[limit] == MIB
    every = {DICTIONARY: 1, OLD_DICTIONARY: 1}
    assert options(TWO, [replace(large, encodings=every), ONE])[limit] == 3 * MIB + 1024
    # One that was full before the chunk's end says nothing of how large it may be.
    fell_back = replace(large, encodings={DICTIONARY: 3, PLAIN: 1})
    assert options(TWO, [fell_back, ONE])[limit] == MIB


def test_dictionary_pages_are_named_as_they_were() -> None:
    old, new = replace(ONE, encodings={OLD_DICTIONARY: 1}), replace(ONE, encodings={DICTIONARY: 1})
    assert options(TWO, [old, ONE])["version"] == "1.0"
    assert options(TWO, [old, new])["version"] == "2.6"
    assert options(TWO, [new, new])["version"] == options(TWO, [ONE, ONE])["version"] == "2.6"
    # Format 1.0 has no uint32; other unsigned integers it has.
    kinds = {"a": pa.array(range(ROWS), pa.uint32()), "b": TABLE["some"]}
    assert options(pa.table(kinds), [old, old])["version"] == "2.6"
    kinds["a"] = pa.array(range(ROWS), pa.uint64())
    assert options(pa.table(kinds), [old, old])["version"] == "1.0"


def test_the_newer_version_and_checksums_are_for_all_columns() -> None:
    found = options(TWO, [ONE, ONE])
    assert (found["data_page_version"], found["write_page_checksum"]) == ("1.0", False)
    found = options(TWO, [ONE, replace(ONE, version_2=True, checksums=True)])
    assert (found["data_page_version"], found["write_page_checksum"]) == ("2.0", True)


def test_dictionaries_encodings_codecs_are_each_columns() -> None:
    by_dictionary = replace(ONE, encodings={DICTIONARY: 1})
    found = options(TWO, [by_dictionary, ONE], compression={"id": "gzip", "some": "none"})
    assert found["use_dictionary"] == ["id"] and found["column_encoding"] == {"some": "PLAIN"}
    assert found["compression"] == {"id": "GZIP", "some": "NONE"}
    found = options(TWO, [by_dictionary, by_dictionary])
    assert found["use_dictionary"] == ["id", "some"] and found["column_encoding"] is None
    found = options(TWO, [ONE, replace(ONE, encodings={DELTA: 1})])
    assert found["use_dictionary"] is False
    assert found["column_encoding"] == {"id": "PLAIN", "some": "DELTA_BINARY_PACKED"}


def of(chunk: ColumnChunk, meta: Struct, tree: Struct | None = None) -> ColumnChunk:
    return ColumnChunk({**(chunk.tree if tree is None else tree), Chunk.META: meta}, meta)


def less(struct: Struct, fields: Sequence[int]) -> Struct:
    return {key: value for key, value in struct.items() if key not in fields}


def without(*, meta: Sequence[int] = (), chunk: Sequence[int] = ()) -> Change:
    """The first column without these fields of its metadata and of its chunk."""

    def change(columns: Sequence[ColumnChunk]) -> list[ColumnChunk]:
        first, *others = columns
        return [of(first, less(first.meta, meta), less(first.tree, chunk)), *others]

    return change


def test_statistics_indexes_and_filters_are_each_columns() -> None:
    indexed = {"write_page_index": True}
    assert options(TWO, [ONE, ONE], **indexed)["write_statistics"] == ["id", "some"]
    # Either of the two needs them computed.
    statistics = without(meta=[Meta.STATISTICS])
    assert options(TWO, [ONE, ONE], statistics, **indexed)["write_statistics"] == ["id", "some"]
    assert options(TWO, [ONE, ONE], statistics)["write_statistics"] == ["some"]
    index = without(chunk=[Chunk.COLUMN_INDEX])
    assert options(TWO, [ONE, ONE], index, **indexed)["write_statistics"] == ["id", "some"]
    neither = without(chunk=[Chunk.COLUMN_INDEX], meta=[Meta.STATISTICS])
    assert options(TWO, [ONE, ONE], neither, **indexed)["write_statistics"] == ["some"]
    assert options(TWO, [ONE, ONE], write_statistics=False)["write_statistics"] is False
    # Of one column is enough; what others had not is not grafted.
    pages = without(chunk=[Chunk.OFFSET_INDEX])
    assert options(TWO, [ONE, ONE], pages, **indexed)["write_page_index"] is True
    assert options(TWO, [ONE, ONE])["write_page_index"] is False
    assert options(TWO, [ONE, ONE])["bloom_filter_options"] is None
    filters = {"bloom_filter_options": {"some": {"ndv": 200, "fpp": 0.01}}}
    found = options(TWO, [ONE, ONE], **filters)["bloom_filter_options"]
    assert found == {"some": {"ndv": 200, "fpp": 0.01}}


def test_filters_of_booleans_go() -> None:
    def filtered(columns: Sequence[ColumnChunk]) -> list[ColumnChunk]:
        return [of(each, {**each.meta, Meta.BLOOM: 4}) for each in columns]

    found = options(TABLE.select(["flag", "id"]), [ONE, ONE], filtered)
    assert list(found["bloom_filter_options"]) == ["id"]
    found = options(TABLE.select(["flag"]), [ONE], filtered)
    assert found["bloom_filter_options"] is None


@pytest.mark.parametrize(
    ("kind", "encodings", "expected"),
    [
        (Physical.INT64, {}, None),
        (Physical.BOOLEAN, {}, Encoding.PLAIN),
        (Physical.INT64, {PLAIN: 1}, Encoding.PLAIN),
        (Physical.INT64, {DICTIONARY: 1}, None),
        (Physical.INT64, {OLD_DICTIONARY: 1}, None),
        (Physical.INT64, {DELTA: 1}, Encoding.DELTA_BINARY_PACKED),
        # The encoding of most pages; of none that does not fit the type or that nobody knows.
        (Physical.INT64, {PLAIN: 2, DELTA: 3}, Encoding.DELTA_BINARY_PACKED),
        (Physical.INT64, {PLAIN: 3, DELTA: 2}, Encoding.PLAIN),
        (Physical.DOUBLE, {DELTA: 3, PLAIN: 2}, Encoding.PLAIN),
        (Physical.DOUBLE, {DELTA: 3}, Encoding.PLAIN),
        (Physical.INT64, {4: 3}, Encoding.PLAIN),
        (Physical.INT64, {99: 3}, Encoding.PLAIN),
        # A full dictionary: pyarrow falls back to PLAIN by itself, to others it cannot.
        (Physical.INT64, {DICTIONARY: 1, PLAIN: 9}, None),
        (Physical.INT64, {DICTIONARY: 1, DELTA: 9}, Encoding.DELTA_BINARY_PACKED),
        (Physical.INT64, {DICTIONARY: 2, DELTA: 2}, None),
        (Physical.INT64, {DICTIONARY: 3, DELTA: 2}, None),
        (Physical.INT64, {DICTIONARY: 2, OLD_DICTIONARY: 2, DELTA: 3}, None),
        (Physical.DOUBLE, {DICTIONARY: 1, DELTA: 9}, None),
    ],
)
def test_values_are_written_in_the_encoding_of_most_pages(
    kind: Physical, encodings: dict[int, int], expected: Encoding | None
) -> None:
    pages = replace(ONE, encodings=encodings, data_pages=sum(encodings.values()))
    assert _encoding(kind, pages) is expected


@pytest.mark.parametrize(
    ("values", "length", "expected"),
    [
        (200, None, 200),
        (0, None, 1),
        (1, None, 1),
        # As many values as fill a filter of this size at 1 %: -n / ln(1 - 0.01 ** (1 / 8)) bytes each.
        (200, 1055, 200),
        (10_000, 1055, 784),
        (10_000, 2_080, 1_546),
        (10_000, 1, 1),
        (0, 1055, 1),
    ],
)
def test_a_filter_does_not_outgrow_the_old_one(
    values: int, length: int | None, expected: int
) -> None:
    chunk: Any = SimpleNamespace(num_values=values, bloom_length=length)
    assert _bloom_values(chunk) == expected


# -- what pyarrow reads and writes it as ----------------------------------------------------------


def decimals(length: int) -> pa.DataType:
    """The widest decimal that takes `length` bytes."""
    precision = len(str(2 ** (8 * length - 1))) - 1
    return pa.decimal128(precision, 0) if precision <= 38 else pa.decimal256(precision, 0)


KINDS = [
    pa.uint32(),
    pa.uint64(),
    pa.float16(),
    *(decimals(length) for length in range(1, 32)),
    pa.decimal256(76, 0),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_orders_the_statistics_is_annotated_as_pyarrow_does(kind: pa.DataType) -> None:
    data = written(pa.table({"x": pa.array([None, None], kind)}))
    [_, element] = footer_of(data).schema
    annotation = (Element.CONVERTED, Element.SCALE, Element.PRECISION, Element.LOGICAL)
    assert _ordering(element) == {key: element[key] for key in annotation if key in element}
    [_, view] = _physical_schema(footer_of(data))
    assert view == {**element, Element.NAME: b"f1"}


@pytest.mark.parametrize(
    "kind",
    [pa.int64(), pa.string(), pa.bool_(), pa.binary(5), pa.timestamp("us"), pa.float32()],
    ids=str,
)
def test_other_annotations_are_dropped(kind: pa.DataType) -> None:
    data = written(pa.table({"x": pa.array([None, None], kind)}))
    [_, element] = footer_of(data).schema
    assert _ordering(element) == {}
    [_, view] = _physical_schema(footer_of(data))
    stored = (Element.TYPE, Element.LENGTH, Element.REPETITION)
    assert view == {**{k: element[k] for k in stored if k in element}, Element.NAME: b"f1"}


def test_decimals_of_other_lengths_and_types_are_stored_as_what_they_are() -> None:
    decimal = {Element.CONVERTED: int(Converted.DECIMAL), Element.PRECISION: 9, Element.SCALE: 2}
    fixed = {**decimal, Element.TYPE: Physical.FIXED_LEN_BYTE_ARRAY}
    assert _ordering({**fixed, Element.LENGTH: 33}) == {}
    assert _ordering({**fixed, Element.LENGTH: 0}) == _ordering(fixed) == {}
    assert _ordering({**decimal, Element.TYPE: Physical.INT64, Element.LENGTH: 4}) == {}
    assert _ordering({Element.TYPE: Physical.FIXED_LEN_BYTE_ARRAY, Element.LENGTH: 4}) == {}
    assert _ordering({**fixed, Element.LENGTH: 4})[Element.PRECISION] == 9


def test_int96_is_twelve_bytes_and_a_group_has_no_type() -> None:
    schema = [
        {Element.NAME: b"root", Element.CHILDREN: 2},
        {Element.NAME: b"t", Element.TYPE: Physical.INT96, Element.REPETITION: 1},
        # Some writers give groups a type.
        {Element.NAME: b"g", Element.TYPE: Physical.BYTE_ARRAY, Element.CHILDREN: 1},
        {Element.NAME: b"x", Element.TYPE: Physical.INT32, Element.REPETITION: 0},
    ]
    footer: Any = SimpleNamespace(schema=schema)
    assert _physical_schema(footer) == [
        {Element.NAME: b"f0", Element.CHILDREN: 2},
        {
            Element.NAME: b"f1",
            Element.TYPE: Physical.FIXED_LEN_BYTE_ARRAY,
            Element.LENGTH: 12,
            Element.REPETITION: 1,
        },
        {Element.NAME: b"f2", Element.CHILDREN: 1},
        {Element.NAME: b"f3", Element.TYPE: Physical.INT32, Element.REPETITION: 0},
    ]
    endless: Any = SimpleNamespace(schema=[{Element.NAME: b"x", Element.TYPE: FIXED}])
    assert _physical_schema(endless)[0][Element.LENGTH] == 0  # not a length that it does not say


def test_what_is_unsigned_is_said_by_either_annotation() -> None:
    def integer(signed: object) -> dict[int, Any]:
        return {Element.LOGICAL: {Logical.INTEGER: {boolean(2): signed}}}

    assert is_unsigned(integer(False)) and not is_unsigned(integer(True))
    assert not is_unsigned({Element.LOGICAL: {Logical.INTEGER: {}}})
    # The newer one counts.
    old = {Element.CONVERTED: int(Converted.UINT_32)}
    assert is_unsigned(old) and not is_unsigned({**old, **integer(True)})
    # parquet.thrift: UINT_8 to UINT_64.
    unsigned = [n for n in range(30) if is_unsigned({Element.CONVERTED: n})]
    assert unsigned == [11, 12, 13, 14]
    assert not is_unsigned({})


def test_bounds_of_unsigned_integers_are_ordered_as_such() -> None:
    kinds = {"a": pa.uint32(), "b": pa.uint64()}
    top = {"a": 2**32 - 1, "b": 2**64 - 1}
    table = pa.table({n: pa.array([*range(ROWS - 1), top[n]], k) for n, k in kinds.items()})
    data = written(table)
    keep = [n in (3, 150, 199) for n in range(200)]
    _, new = surgeon.operate(data, {2: keep})
    group = pq.read_metadata(io.BytesIO(new)).row_group(2)
    for n, name in enumerate(kinds):
        stats = group.column(n).statistics
        assert (stats.min, stats.max) == (403, top[name])


def leaf(kind: Physical, *, length: int | None = None, levels: tuple[int, int] = (1, 0)) -> Any:
    definition, repetition = levels
    return SimpleNamespace(
        type=kind,
        type_length=length,
        definition_level=definition,
        repetition_level=repetition,
        path=("x",),
    )


@pytest.mark.parametrize(
    ("was", "now", "fits"),
    [
        (leaf(Physical.INT64), leaf(Physical.INT64), True),
        (leaf(Physical.INT64, length=8), leaf(Physical.INT64, length=None), True),
        (leaf(Physical.INT64), leaf(Physical.INT32), False),
        (leaf(FIXED, length=5), leaf(FIXED, length=5), True),
        (leaf(FIXED, length=5), leaf(FIXED, length=6), False),
        (leaf(Physical.INT96), leaf(FIXED, length=12), True),
        (leaf(Physical.INT96), leaf(FIXED, length=8), False),
        (leaf(Physical.INT96), leaf(Physical.INT96), False),
        (leaf(Physical.INT64), leaf(Physical.INT64, levels=(2, 0)), False),
        (leaf(Physical.INT64), leaf(Physical.INT64, levels=(1, 1)), False),
    ],
)
def test_new_chunks_have_the_types_and_levels_of_the_old_ones(
    was: Any, now: Any, fits: bool
) -> None:
    footer: Any = SimpleNamespace(num_row_groups=1, leaves=[now])
    if fits:
        _must_match([was], footer)
        return
    with pytest.raises(UnsupportedFile, match="another structure"):
        _must_match([was], footer)


@pytest.mark.parametrize(("groups", "columns"), [(2, 1), (0, 1), (1, 2), (1, 0)])
def test_new_chunks_are_one_group_of_as_many_columns(groups: int, columns: int) -> None:
    one = leaf(Physical.INT64)
    footer: Any = SimpleNamespace(num_row_groups=groups, leaves=[one] * columns)
    with pytest.raises(UnsupportedFile, match="another structure"):
        _must_match([one], footer)


# -- what the new footer says ---------------------------------------------------------------------

PAIRS = Items(STRUCT, [{binary(1): b"k", binary(2): b"v"}])


def test_an_edited_chunk_loses_its_own_pairs() -> None:
    data = written(TWO)
    footer = footer_of(data)
    for group in footer.row_groups:
        group.column(0).meta[Meta.KEY_VALUES] = PAIRS
    data = with_footer(data, footer)
    was = footer_of(data).row_groups[0].columns[0].meta[Meta.KEY_VALUES]
    untouched, edited_group, _ = footer_of(edited(data)).row_groups
    assert untouched.columns[0].meta[Meta.KEY_VALUES] == was
    assert not any(Meta.KEY_VALUES in chunk.meta for chunk in edited_group.columns)


def test_what_a_chunk_did_not_have_it_does_not_get() -> None:
    """Though pyarrow writes it, because a neighbour has it."""
    full = written(
        TWO,
        write_page_index=True,
        bloom_filter_options={"id": {"ndv": 200, "fpp": 0.01}, "some": {"ndv": 200, "fpp": 0.01}},
    )
    footer = footer_of(full)
    lacking = {
        "statistics": without(meta=[Meta.STATISTICS]),
        "encoding stats": without(meta=[Meta.ENCODING_STATS]),
        "sizes": without(meta=[Meta.SIZES]),
        "filter": without(meta=[Meta.BLOOM]),
        "column index": without(chunk=[Chunk.COLUMN_INDEX]),
        "offset index": without(chunk=[Chunk.OFFSET_INDEX]),
    }
    now = footer.row_groups[0].columns[0]
    mini = memoryview(full)

    def made(was: ColumnChunk, now: ColumnChunk) -> dict[str, bool]:
        chunk = _graft(was, now, mini)
        meta = chunk.tree[Chunk.META]
        assert chunk.tree[Chunk.FILE_OFFSET] == 0
        return {
            "statistics": Meta.STATISTICS in meta,
            "encoding stats": Meta.ENCODING_STATS in meta,
            "sizes": Meta.SIZES in meta,
            "filter": chunk.bloom is not None,
            "column index": chunk.column_index is not None,
            "offset index": chunk.offset_index is not None,
        }

    assert all(made(now, now).values())
    for name, change in lacking.items():
        [poorer] = change([now])
        gone = {name, "column index"} if name == "offset index" else {name}
        expected = {each: each not in gone for each in lacking}
        assert made(poorer, now) == expected
        assert made(now, poorer) == expected
        assert made(poorer, poorer) == expected


@pytest.mark.parametrize("dictionary", [True, False])
def test_a_chunk_points_at_its_dictionary_if_it_has_one(dictionary: bool) -> None:
    data = written(TWO, use_dictionary=dictionary)
    now = footer_of(data).row_groups[1].columns[1]
    meta = _graft(now, now, memoryview(data)).tree[Chunk.META]
    assert meta.get(Meta.DICTIONARY_PAGE) == (now.start if dictionary else None)
    assert meta[Meta.DATA_PAGE] == now.meta[Meta.DATA_PAGE]


def test_a_filter_finds_what_stays_and_not_what_went() -> None:
    data = written(
        TWO, bloom_filter_options={"id": {"ndv": 200, "fpp": 0.0001}}, write_statistics=False
    )
    new = edited(data)
    chunk = footer_of(new).row_groups[1].columns[0]
    at, length = chunk.bloom_offset, chunk.bloom_length
    assert at is not None and length is not None

    bits = 1 << (length.bit_length() - 1)
    body = new[at + length - bits : at + length]

    def holds(value: int) -> bool:
        raw = plain_bytes(Physical.INT64, Primitive("int64"), value)
        assert raw is not None
        hashed = xxh64(raw)
        start = block_of(hashed, bits // BLOCK_BYTES) * BLOCK_BYTES
        return may_hold(body[start : start + BLOCK_BYTES], hashed)

    assert all(holds(n) for n in KEPT)
    gone = [n for n in range(200, 400) if n not in KEPT]
    assert sum(holds(n) for n in gone) < len(gone) / 10


def test_damaged_pages_of_a_touched_group_are_found_by_their_checksums() -> None:
    data = written(TWO, write_page_checksum=True, compression="none", use_dictionary=False)
    chunk = footer_of(data).row_groups[1].columns[0]
    broken = bytearray(data)
    broken[chunk.end - 1] ^= 1
    with pytest.raises(UnreadableFile):
        surgeon.operate(bytes(broken), {1: KEEP})


def test_a_codec_that_pyarrow_writes_otherwise_is_named_as_it_writes_it() -> None:
    data = written(TWO, compression="lz4")
    [first, _] = footer_of(edited(data)).row_groups[1].columns
    assert first.codec is Codec.LZ4_RAW
    assert first.statistics is not None and Stats.MIN in first.statistics

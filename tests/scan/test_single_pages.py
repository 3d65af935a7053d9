"""Single pages are an optimisation: rows never depend on whether an index could be used."""

from __future__ import annotations

import io
import random
import zlib
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import inlay
from inlay.errors import UnreadableFile
from inlay.format.predicate import Comparison, In, Literal
from inlay.format.schema import Primitive
from inlay.ops.write.ingest import Ingested, Rejected
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.footer.fields import OffsetIndex, Page, PageLocation
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.footer.pages import (
    claimed_values,
    first_values,
    number_of_pages,
    page_header,
    page_locations,
)
from inlay.parquet.footer.thrift import (
    STRUCT,
    Items,
    ThriftError,
    decode_struct,
    encode_struct,
    i64,
)
from inlay.parquet.read import decode
from inlay.parquet.read.page_frames import Frames
from inlay.parquet.read.ranges import merge_ranges
from inlay.parquet.read.selection import Projection
from inlay.parquet.read.single_pages import false_indexes, pages_of

ROWS = 30_000
LONG = Primitive("int64")
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "word": pa.array([f"{n * 7919 % 99991:05d}-{n}" for n in range(ROWS)]),
    }
)
SCHEMA = schema_from_arrow(TABLE.schema)
WANTED = In(1, LONG, (5, 17_017, 29_999))
EXPECTED = [{"word": TABLE["word"][n].as_py()} for n in (5, 17_017, 29_999)]


def written(**options: Any) -> bytes:
    sink = io.BytesIO()
    options = {"use_dictionary": False, "max_rows_per_page": 1000, **options}
    pq.write_table(TABLE, sink, write_page_index=True, **options)
    return sink.getvalue()


def with_index(body: bytes, edit: Any) -> bytes:
    """The file with another offset index for `word`, of the same length."""
    chunk = decode_footer(body, file_size=len(body)).row_groups[0].column(1)
    start, end = chunk.offset_index
    tree, _ = decode_struct(body, start)
    edit(tree[OffsetIndex.PAGES])
    index = encode_struct(tree)
    assert len(index) == end - start
    return body[:start] + index + body[end:]


def later(pages: Any) -> None:
    pages[17][PageLocation.FIRST_ROW] += 1


def shifted(pages: Any) -> None:
    for page in pages:
        page[PageLocation.OFFSET] += 1


def shorter(pages: Any) -> None:
    pages[17][PageLocation.SIZE] -= 1


def unordered(pages: Any) -> None:
    pages[16], pages[17] = pages[17], pages[16]


def read(lake: Any, body: bytes) -> list[Any]:
    file = lake.adopt(body, SCHEMA)
    return lake.read([file], SCHEMA, columns=["word"], predicate=WANTED).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["zstd", "snappy", "none", "gzip", "lz4"])
def test_only_the_pages_of_wanted_rows_are_read(
    lake: Any, version: str, codec: str, monkeypatch: Any
) -> None:
    monkeypatch.setitem(merge_ranges.__kwdefaults__, "gap", 0)
    body = written(data_page_version=version, compression=codec)
    assert read(lake, body) == EXPECTED
    chunk = decode_footer(body, file_size=len(body)).row_groups[0].column(1)
    of_word = [r for r in lake.store.reads if chunk.start <= r.start < chunk.end]
    assert len(of_word) == 3
    assert sum(r.bytes for r in of_word) < chunk.compressed_size / 5


@pytest.mark.parametrize("edit", [later, shifted, shorter, unordered])
def test_a_false_index_changes_no_row(lake: Any, edit: Any) -> None:
    assert read(lake, with_index(written(), edit)) == EXPECTED


def moved(pages: Any) -> None:
    """All pages from the third on begin a row later: only the second and the last have other rows."""
    for page in pages[2:]:
        page[PageLocation.FIRST_ROW] += 1


@pytest.mark.parametrize(
    "says",
    [b"parquet-cpp-arrow version", b"parquet-cpp-other version", b"parquet-cpp-arrow-too 9.9"],
)
def test_indexes_of_writers_that_are_not_known_are_not_gone_by(lake: Any, says: bytes) -> None:
    known = b"parquet-cpp-arrow version"
    body = with_index(written(), moved).replace(known, says)
    lake.store.reads.clear()
    rows = lake.read(
        [lake.adopt(body, SCHEMA)], SCHEMA, columns=["word"], predicate=In(1, LONG, (17_017,))
    ).to_pylist()
    assert (rows == EXPECTED[1:2]) == (says != known)
    # Nor are they read: the footer, and the two columns.
    assert says == known or len(lake.store.reads) <= 3


def test_an_index_that_is_false_where_nobody_looked_is_found(tmp_path: Path) -> None:
    body = with_index(written(), moved)
    (tmp_path / "moved.parquet").write_bytes(body)
    source = (tmp_path / "moved.parquet").as_uri()
    table = inlay.create(str(tmp_path / "t"), TABLE.schema)
    table.ingest([source])
    [found] = table.refresh().maintain.verify(depth="pages").errors
    assert (found.kind, found.key) == ("page_index_wrong", table.inspect.files()["key"][0].as_py())
    assert "of word is of other rows" in found.message
    # Whole columns are right, so what the next step says helps.
    assert table.scan().to_arrow().equals(TABLE)
    careful = inlay.create(
        str(tmp_path / "careful"), TABLE.schema, properties={"ingest.check_pages": "yes"}
    )
    for adopt in (False, True):
        [outcome] = careful.ingest([source], adopt=adopt).outcomes
        assert isinstance(outcome, Rejected) and "page index" in str(outcome.error)
    (tmp_path / "moved.parquet").write_bytes(written())
    [outcome] = careful.ingest([source]).outcomes
    assert isinstance(outcome, Ingested)
    assert careful.refresh().maintain.verify(depth="pages").ok


@given(st.data())
def test_whatever_an_index_says_rows_are_right_or_it_is_found(new_lake: Any, data: Any) -> None:
    """First rows moved at any places, by which pages become longer, shorter or other ones."""

    def edit(pages: Any) -> None:
        for n in data.draw(st.lists(st.integers(1, len(pages) - 1), max_size=4)):
            by = data.draw(st.integers(-3, 3))
            for page in pages[n : n + data.draw(st.integers(1, len(pages)))]:
                page[PageLocation.FIRST_ROW] += by

    whole = written()
    try:
        body = with_index(whole, edit)
    except AssertionError:  # of another length
        reject()
    footer = decode_footer(body, file_size=len(body))
    found = list(false_indexes(footer, lambda place: body[place.start : place.end]))
    lake = new_lake()
    one = In(1, LONG, (17_017,))  # far from the pages in which a shift shows
    read = lake.read([lake.adopt(body, SCHEMA)], SCHEMA, columns=["word"], predicate=one)
    assert read.to_pylist() == EXPECTED[1:2] or found == ["word"]


@pytest.mark.parametrize("edit", [later, moved])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_false_indexes_are_those_of_other_rows(edit: Any, version: str) -> None:
    for body, names in (
        (written(data_page_version=version), []),
        (with_index(written(data_page_version=version), edit), ["word"]),
        (with_index(written(data_page_version=version), unordered), []),  # nobody goes by it
    ):
        footer = decode_footer(body, file_size=len(body))
        found = false_indexes(footer, lambda place, body=body: body[place.start : place.end])
        assert list(found) == names


@pytest.mark.parametrize("pages", [1, 14, 15, 300])
def test_locations_are_read_as_any_other_thrift(pages: int) -> None:
    body = written(max_rows_per_page=-(-ROWS // pages))
    chunk = decode_footer(body, file_size=len(body)).row_groups[0].column(1)
    index = body[slice(*chunk.offset_index)]
    tree, _ = decode_struct(index)
    keys = (PageLocation.OFFSET, PageLocation.SIZE, PageLocation.FIRST_ROW)
    expected = [tuple(page[key] for key in keys) for page in tree[OffsetIndex.PAGES]]
    assert len(expected) == pages and page_locations(index) == expected
    assert number_of_pages(index) == number_of_pages(index[:6]) == pages
    assert number_of_pages(b"") is number_of_pages(b"\x00") is None
    for page in tree[OffsetIndex.PAGES]:
        page[i64(9)] = 7  # a field of a later format
    assert page_locations(encode_struct(tree)) == expected
    for cut in range(0, len(index) - 1, 7):
        # Values of the last field may be cut off, locations may not.
        with suppress(ThriftError, KeyError):
            assert page_locations(index[:cut]) == expected


def test_columns_of_other_pages_are_read_by_themselves(lake: Any) -> None:
    """Pages of long texts end before those of numbers do."""
    wide = TABLE.append_column("n", pa.array([n * 3 for n in range(ROWS)], pa.int64()))
    wide = wide.append_column("long", pa.array([f"{n}" * (n % 90) for n in range(ROWS)]))
    schema = schema_from_arrow(wide.schema)
    sink = io.BytesIO()
    pq.write_table(
        wide,
        sink,
        write_page_index=True,
        use_dictionary=False,
        max_rows_per_page=1000,
        data_page_size=20_000,
        write_batch_size=10,
    )
    file = lake.adopt(sink.getvalue(), schema)
    found = lake.read([file], schema, columns=wide.column_names, predicate=WANTED)
    assert found.equals(wide.take([5, 17_017, 29_999]))


def test_a_damaged_page_is_an_error_all_the_same(lake: Any) -> None:
    body = bytearray(written(write_page_checksum=True))
    chunk = decode_footer(bytes(body), file_size=len(body)).row_groups[0].column(1)
    body[chunk.start + 300] ^= 1
    file = lake.adopt(bytes(body), SCHEMA)
    with pytest.raises(UnreadableFile, match=file.key):
        lake.read([file], SCHEMA, columns=["word"], predicate=WANTED)


def test_an_index_without_pages_is_none() -> None:
    """As parquet-rs 42.0.0 wrote them of columns of NULLs alone (apache/arrow-rs#4459)."""
    body = written()
    chunk = decode_footer(body, file_size=len(body)).row_groups[0].column(1)
    start, _ = chunk.offset_index or (0, 0)
    tree, _ = decode_struct(body, start)
    assert len(pages_of(encode_struct(tree), chunk, ROWS)) > 1
    empty = encode_struct({OffsetIndex.PAGES: Items(STRUCT, [])})
    assert pages_of(empty, chunk, ROWS) == ()


def test_repeated_and_nested_columns_are_read_whole(lake: Any) -> None:
    nested = pa.table(
        {
            "id": TABLE["id"],
            "tags": pa.array([[str(n)] * (n % 3) for n in range(ROWS)]),
            "s": pa.array([{"a": f"{n:020d}"} if n % 5 else None for n in range(ROWS)]),
        }
    )
    schema = schema_from_arrow(nested.schema)
    sink = io.BytesIO()
    pq.write_table(nested, sink, write_page_index=True, max_rows_per_page=500)
    file = lake.adopt(sink.getvalue(), schema)
    one = Comparison(1, "=", Literal(LONG, 17_017))
    found = lake.read([file], schema, columns=["s", "tags"], predicate=one)
    assert found.to_pylist() == nested.slice(17_017, 1).select(["s", "tags"]).to_pylist()


def test_of_a_chunk_that_is_fetched_whole_only_pages_with_rows_are_decoded(lake: Any) -> None:
    """Rows in 7 of 12 pages: with NULLs, texts with a dictionary and without, and a mask that is not of
    whole pages."""
    rows = 60_000
    dice = random.Random(1)
    word = [None if n % 7 == 0 else f"word {dice.randrange(40)}" for n in range(rows)]
    table = pa.table(
        {
            "k": pa.array([n * 7919 % rows for n in range(rows)], pa.int64()),
            "n": pa.array([None if n % 5 == 0 else n for n in range(rows)], pa.int64()),
            "word": word,
            "long": [w and f"{w}-{n * 7919:020}" for n, w in enumerate(word)],
        }
    )
    schema = schema_from_arrow(table.schema)
    files = list(lake.write(table))
    few = [page * 5_000 + row for page in (0, 1, 3, 4, 7, 8, 11) for row in (0, 35, 4_999)]
    keys = tuple(table["k"][n].as_py() for n in few)
    tasks = lake.plan(files, schema, predicate=In(1, LONG, keys)).tasks
    projection = Projection(schema=schema, columns=tuple(field.id for field in schema.fields))

    def asked(most: float) -> tuple[pa.Table, list[Any], list[int]]:
        lake.store.reads.clear()
        by_pages = mock.Mock(wraps=decode.read_pages)
        with (
            mock.patch.object(decode, "read_pages", by_pages),
            mock.patch("inlay.parquet.read.single_pages.MAX_DECODED_PART", most),
        ):
            read = list(lake.reader.rows(tasks, projection))
        pages = [len(column.pages) for call in by_pages.mock_calls for column in call.args[0]]
        return pa.Table.from_batches(read), list(lake.store.reads), pages

    of_pages, fetched, pages = asked(0.75)
    assert pages == [7, 7, 7]
    assert of_pages.equals(table.take(few).cast(projection.result))
    of_chunks, fetched_of_chunks, pages = asked(0.5)
    assert pages == []
    assert of_pages.equals(of_chunks)
    assert fetched == fetched_of_chunks


def test_columns_with_rows_in_most_pages_are_judged_by_one_of_them(lake: Any) -> None:
    """Those with as many pages, that is; one with more is looked at by itself, and read by pages."""
    rows = 60_000
    mixed = [n * 7919 % rows for n in range(rows)]
    words = {name: [f"{name}{n}" for n in mixed] for name in "abc"}
    table = pa.table({"k": mixed, "n": range(rows), **words, "long": [f"{n:0600}" for n in mixed]})
    schema = schema_from_arrow(table.schema)
    files = list(lake.write(table))
    few = range(3, rows, rows // 10)
    tasks = lake.plan(files, schema, predicate=In(1, LONG, tuple(mixed[n] for n in few))).tasks
    projection = Projection(schema=schema, columns=tuple(field.id for field in schema.fields))
    lake.store.reads.clear()
    looked_at = mock.Mock(wraps=decode.pages_of)
    with mock.patch.object(decode, "pages_of", looked_at):
        found = list(lake.reader.rows(tasks, projection))
    assert pa.Table.from_batches(found).equals(table.take(list(few)).cast(projection.result))
    assert looked_at.call_count == 2  # of `n` and of `long`
    assert lake.store.bytes_read < files[0].size


TYPES: dict[str, tuple[pa.DataType, list[str]]] = {
    "bool": (pa.bool_(), ["PLAIN", "RLE"]),
    "int": (pa.int32(), ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"]),
    "long": (pa.int64(), ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"]),
    "float": (pa.float64(), ["PLAIN", "BYTE_STREAM_SPLIT"]),
    "decimal": (pa.decimal128(20, 2), ["PLAIN", "BYTE_STREAM_SPLIT"]),
    "text": (pa.string(), ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]),
    "bytes": (pa.binary(), ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]),
}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("nulls", [0, 3, 1_500])
@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_pages_that_end_with_the_last_selected_row_give_the_same_values(
    lake: Any, version: str, nulls: int, checksums: bool, codec: str
) -> None:
    """Of every type and encoding: with NULLs, a page of these alone, and NaN; some dictionaries are given
    up in the midst of the chunk. Those of zstd are decompressed as one where all pages are cut."""
    rows, dice = 12_000, random.Random(nulls)
    numbers = [dice.choice([dice.randrange(50), dice.randrange(2**31)]) for _ in range(rows)]

    def value(n: int, kind: pa.DataType) -> Any:
        if nulls and (n % nulls == 0 or n // 1000 == 5):
            return None
        number = numbers[n]
        if pa.types.is_boolean(kind):
            return number % 3 == 0
        if pa.types.is_floating(kind):
            return float("nan") if number % 7 == 0 else number / 4
        if pa.types.is_decimal(kind):
            return Decimal(number) / 100
        if pa.types.is_string(kind):
            return "é" * (number % 9) + str(number)
        return str(number).encode() if pa.types.is_binary(kind) else number

    columns: dict[str, pa.Array] = {"id": pa.array([n * 7919 % rows for n in range(rows)])}
    encodings = {}
    for name, (kind, known) in TYPES.items():
        values = pa.array([value(n, kind) for n in range(rows)], kind)
        for encoding in [*known, "RLE_DICTIONARY"]:
            column = f"{name} {encoding}"
            columns[column] = values
            if encoding != "RLE_DICTIONARY":
                encodings[column] = encoding
    table = pa.table(columns)
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        write_page_index=True,
        max_rows_per_page=1000,
        data_page_version=version,
        use_dictionary=[name for name in columns if name.endswith("RLE_DICTIONARY")],
        dictionary_pagesize_limit=20_000,
        column_encoding=encodings,
        write_page_checksum=checksums,
        compression=codec,
    )
    schema = schema_from_arrow(table.schema)
    file = lake.adopt(sink.getvalue(), schema)
    few = [0, 999, 1000, 5_500, 7_001, 7_002, 10_998]
    keys = tuple(table["id"][n].as_py() for n in few)
    cut, crc = mock.Mock(wraps=first_values), mock.Mock(wraps=zlib.crc32)
    whole = mock.Mock(wraps=decode.ParquetReader)
    with (
        mock.patch("inlay.parquet.read.single_pages.first_values", cut),
        mock.patch("inlay.parquet.read.single_pages.MIN_FRAMES", 2),
        mock.patch("inlay.parquet.read.single_pages.ONE_FILE_BYTES", 0),
        mock.patch("inlay.parquet.read.page_frames.crc32", crc),
        mock.patch.object(decode, "ParquetReader", whole),
        mock.patch("inlay.parquet.read.single_pages.MIN_CHUNK_BYTES", 0),
        mock.patch("inlay.parquet.read.single_pages.MAX_DECODED_PART", 2),
    ):
        asked = lake.read([file], schema, columns=table.column_names, predicate=In(1, LONG, keys))
    expected = table.take(few)
    for name in table.column_names:  # NaN is itself here
        assert repr(asked[name].to_pylist()) == repr(expected[name].to_pylist()), name
    # Of each the pages with rows; of each dictionary one more.
    as_one = {
        name
        for name in columns
        if codec == "zstd" and version == "1.0" and name.endswith(("PLAIN", "RLE_DICTIONARY"))
    }
    assert cut.call_count == 5 * (len(columns) - 1 - len(as_one))
    # A dictionary comes first: it is compared before a page says that the column is none of these.
    dictionaries = codec == "zstd" and sum(
        name.endswith("RLE_DICTIONARY") and "bool" not in name for name in columns
    )
    assert crc.call_count == checksums * (5 * len(as_one) + dictionaries)
    assert whole.call_count == 1  # of the column that was looked at


def frames_of(body: bytes) -> tuple[Frames, list[tuple[memoryview, int]]]:
    """Nothing yet, and the pages of `word` with their rows."""
    footer = decode_footer(body, file_size=len(body))
    chunk = footer.row_groups[0].column(1)
    pages = pages_of(body[slice(*chunk.offset_index)], chunk, ROWS)
    return Frames(), [(memoryview(body)[page.start : page.end], page.rows) for page in pages]


def test_pages_that_are_decompressed_as_one_are_those_that_are_there() -> None:
    frames, pages = frames_of(written(compression="zstd", write_page_checksum=True))
    for page, rows in pages[3:6]:
        assert frames.add_values(page, rows, 7)
    chunk = bytes(memoryview(frames.decompressed(pa.default_memory_pool())))
    assert len(chunk) == frames.size
    at = 0
    for page, _ in pages[3:6]:
        header, at = page_header(chunk, at, len(chunk))
        old, begins = page_header(bytes(page), 0, len(page))
        size = header[Page.UNCOMPRESSED]
        assert size == header[Page.COMPRESSED] == old[Page.UNCOMPRESSED]
        assert claimed_values(header) == (7, claimed_values(old)[1]) and Page.CRC not in header
        assert chunk[at : at + size] == pa.decompress(page[begins:], size, "zstd", asbytes=True)
        at += size
    assert at == len(chunk)


def test_a_page_that_is_not_what_it_claims_is_not_decompressed() -> None:
    frames, pages = frames_of(written(compression="zstd", write_page_checksum=True))
    page, rows = pages[0]
    with pytest.raises(UnreadableFile, match="other rows"):
        frames.add_values(page, rows - 1, 7)
    for at in (len(page) - 1, len(page) // 2):
        damaged = bytearray(page)
        damaged[at] ^= 1
        with pytest.raises(UnreadableFile, match="checksum"):
            frames.add_values(memoryview(damaged), rows, 7)
    with pytest.raises(UnreadableFile, match="header"):
        frames.add_values(page[:200], rows, 7)
    assert not frames.add_dictionary(page) and frames.size == 0


def test_lengths_that_are_false_together_are_noticed() -> None:
    """Two pages, one of which claims a byte of the other's: as many in all."""
    frames, pages = frames_of(written(compression="zstd", write_page_checksum=False))
    for (page, rows), more in zip(pages[:2], (1, -1), strict=True):
        header, begins = page_header(bytes(page), 0, len(page))
        header[Page.UNCOMPRESSED] += more
        assert frames.add_values(memoryview(encode_struct(header) + page[begins:]), rows, rows)
    with pytest.raises(UnreadableFile, match="another length"):
        frames.decompressed(pa.default_memory_pool())


@pytest.mark.parametrize("codec", ["zstd", "snappy"])
def test_a_damaged_page_among_many_is_an_error_all_the_same(lake: Any, codec: str) -> None:
    body = bytearray(written(compression=codec, write_page_checksum=True))
    chunk = decode_footer(bytes(body), file_size=len(body)).row_groups[0].column(1)
    body[chunk.start + 300] ^= 1
    file = lake.adopt(bytes(body), SCHEMA)
    wanted = In(1, LONG, tuple(range(2, ROWS, 2_000)))
    with pytest.raises(UnreadableFile, match=file.key):
        lake.read([file], SCHEMA, columns=["word"], predicate=wanted)


def test_a_page_is_cut_where_its_first_values_stand_by_themselves() -> None:
    for encoding, version, kind, is_cut in (
        ("PLAIN", "1.0", pa.int64(), True),
        ("PLAIN", "1.0", pa.string(), True),
        (None, "1.0", pa.int64(), True),  # a dictionary
        ("DELTA_BINARY_PACKED", "1.0", pa.int64(), False),
        ("BYTE_STREAM_SPLIT", "1.0", pa.int64(), False),
        ("DELTA_BYTE_ARRAY", "1.0", pa.string(), False),
        ("PLAIN", "2.0", pa.int64(), False),
        (None, "2.0", pa.int64(), False),
    ):
        sink = io.BytesIO()
        options: dict[str, Any] = {"use_dictionary": True}
        if encoding is not None:
            options = {"use_dictionary": False, "column_encoding": encoding}
        values = pa.array([n % 9 for n in range(ROWS)]).cast(kind)
        pq.write_table(
            pa.table({"v": values}),
            sink,
            write_page_index=True,
            max_rows_per_page=1000,
            data_page_version=version,
            write_page_checksum=True,
            **options,
        )
        body = sink.getvalue()
        footer = decode_footer(body, file_size=len(body))
        chunk = footer.row_groups[0].column(0)
        [first, *_] = pages_of(body[slice(*chunk.offset_index)], chunk, ROWS)
        page = memoryview(body)[first.start : first.end]
        rows, pieces = first_values(page, 1000, 300)
        assert (rows == 300) is is_cut, (encoding, version, kind)
        header, begins = page_header(b"".join(pieces), 0, len(page))
        assert claimed_values(header)[0] == rows
        # The body is the same, and so is its checksum.
        whole, at = page_header(bytes(page), 0, len(page))
        assert b"".join(pieces)[begins:] == page[at:] and header[Page.CRC] == whole[Page.CRC]
        assert first_values(page, 1000, 1000) == (1000, [page])
        with pytest.raises(UnreadableFile, match="other rows"):
            first_values(page, 999, 300)

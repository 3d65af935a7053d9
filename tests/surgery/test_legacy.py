"""Layouts that no writer at hand makes any more, built here from files of today."""

from __future__ import annotations

import checker
import corpus
import engines
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import surgeon

from inlay.parquet.footer import thrift
from inlay.parquet.footer.fields import Chunk, Codec, File, Group, Meta, Page
from inlay.parquet.footer.footer import decode_footer, end_of_file

ROWS = corpus.GROUP_ROWS * 3


def table() -> pa.Table:
    return corpus.flat(ROWS).select(["id", "count", "name", "money", "double"])


def laid_out_anew(data: bytes, page: object, codec: Codec | None = None, magic: int = 4) -> bytes:
    """The file with `page(header, body)` in place of every page, its chunks one behind the other."""
    footer = decode_footer(data, file_size=len(data))
    body = bytearray(data[:magic])
    for group, tree in zip(footer.row_groups, footer.tree[File.GROUPS], strict=True):
        for chunk, column in zip(group.columns, tree[Group.COLUMNS], strict=True):
            meta = column[Chunk.META]
            at, end, start, first = chunk.start, chunk.end, len(body), None
            while at < end:
                header, behind = thrift.decode_struct(data, at)
                content = data[behind : behind + header[Page.COMPRESSED]]
                at = behind + header[Page.COMPRESSED]
                if header[Page.TYPE] != checker.DICTIONARY and first is None:
                    first = len(body)
                header, content = page(header, content)  # type: ignore[operator]
                body += thrift.encode_struct(header) + content
            meta[Meta.DATA_PAGE] = first
            if Meta.DICTIONARY_PAGE in meta:
                meta[Meta.DICTIONARY_PAGE] = start
            meta[Meta.COMPRESSED] = len(body) - start
            if codec is not None:
                meta[Meta.CODEC] = int(codec)
        columns = tree[Group.COLUMNS]
        tree[Group.COMPRESSED] = sum(c[Chunk.META][Meta.COMPRESSED] for c in columns)
        tree[Group.FILE_OFFSET] = checker._start(
            {key >> 4: value for key, value in columns[0][Chunk.META].items()}
        )
    return bytes(body) + end_of_file(footer.tree)


def judge(data: bytes) -> bytes:
    """Edit and drop groups, compare with the model; the result of the edit."""
    before = pq.read_table(pa.BufferReader(data))
    known = checker.kinds(data)
    edit: surgeon.Edit = {0: None, 1: [at % 3 > 0 for at in range(corpus.GROUP_ROWS)]}
    outcome, result = surgeon.operate(data, edit)
    assert isinstance(outcome, surgeon.Rewritten)
    kept = surgeon.kept_rows(decode_footer(data, file_size=len(data)), edit)
    assert checker.kinds(result) <= known
    after = pq.ParquetFile(pa.BufferReader(result), page_checksum_verification=True).read()
    assert engines.same(after, before.take(pa.array(kept)))
    return result


def test_hadoops_lz4_becomes_lz4_raw_and_the_footer_says_so() -> None:
    def framed(header: thrift.Struct, content: bytes) -> tuple[thrift.Struct, bytes]:
        packed = pa.compress(content, "lz4_raw", asbytes=True)
        sizes = len(content).to_bytes(4, "big") + len(packed).to_bytes(4, "big")
        content = sizes + packed
        return {**header, Page.COMPRESSED: len(content)}, content

    data = laid_out_anew(corpus.by_pyarrow(table(), compression="none"), framed, Codec.LZ4)
    assert pq.read_table(pa.BufferReader(data)).equals(table())
    result = judge(data)
    codecs = [{chunk[3][4] for chunk in group[1]} for group in checker.footer_of(result)[4]]
    assert codecs == [{Codec.LZ4_RAW}, {Codec.LZ4}]


@pytest.mark.parametrize("offset", [None, 0, 10**9])
def test_dictionary_offsets_that_say_nothing_are_not_believed(offset: int | None) -> None:
    """Writers leave the offset out or at 0 and let the data pages "begin" at the dictionary."""
    data = corpus.by_pyarrow(table())
    footer = decode_footer(data, file_size=len(data))
    for group in footer.tree[File.GROUPS]:
        for chunk in group[Group.COLUMNS]:
            meta = chunk[Chunk.META]
            if Meta.DICTIONARY_PAGE in meta:
                meta[Meta.DATA_PAGE] = meta.pop(Meta.DICTIONARY_PAGE)
                if offset is not None:
                    meta[Meta.DICTIONARY_PAGE] = offset
    judge(data[: footer.start] + end_of_file(footer.tree))


@pytest.mark.parametrize("convention", ["start", "end", "nonsense"])
def test_the_deprecated_file_offset_of_a_chunk_never_points_elsewhere(convention: str) -> None:
    data = corpus.by_pyarrow(table())
    footer = decode_footer(data, file_size=len(data))
    for group, tree in zip(footer.row_groups, footer.tree[File.GROUPS], strict=True):
        tree[Group.FILE_OFFSET] = 12345
        for chunk, column in zip(group.columns, tree[Group.COLUMNS], strict=True):
            column[Chunk.FILE_OFFSET] = {"start": chunk.start, "end": chunk.end}.get(convention, 7)
    _, result = surgeon.operate(
        data[: footer.start] + end_of_file(footer.tree),
        {0: None, 1: [at % 3 > 0 for at in range(corpus.GROUP_ROWS)]},
    )
    assert checker.problems(result) == []


def test_a_file_with_a_page_index_behind_every_group() -> None:
    """(D C O)…: the indexes move to the end, and nothing of the old places stays."""
    data = corpus.by_pyarrow(table(), write_page_index=True)
    footer = decode_footer(data, file_size=len(data))
    body = bytearray(b"PAR1")
    for group, tree in zip(footer.row_groups, footer.tree[File.GROUPS], strict=True):
        start = group.columns[0].start
        shift = len(body) - start
        body += data[start : group.columns[-1].end]
        tree[Group.FILE_OFFSET] = start + shift
        for chunk, column in zip(group.columns, tree[Group.COLUMNS], strict=True):
            meta = column[Chunk.META]
            column_index, offset_index = chunk.column_index, chunk.offset_index
            assert column_index is not None and offset_index is not None
            for key in (Meta.DATA_PAGE, Meta.DICTIONARY_PAGE):
                if key in meta:
                    meta[key] += shift
            column[Chunk.COLUMN_INDEX] = len(body)
            body += data[slice(*column_index)]
            pages, _ = thrift.decode_struct(data[slice(*offset_index)])
            for location in pages[thrift.items(1)]:
                location[thrift.i64(1)] += shift
            moved = thrift.encode_struct(pages)
            column[Chunk.OFFSET_INDEX], column[Chunk.OFFSET_INDEX_LENGTH] = len(body), len(moved)
            body += moved
    data = bytes(body) + end_of_file(footer.tree)
    assert checker.problems(data) == []
    result = judge(data)
    assert checker.gaps(result) == []

"""Damaged files end in a typed refusal or a right answer: never a wrong file, a hang or a huge bill."""

from __future__ import annotations

import io
import random
import resource
import time

import corpus
import engines
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import surgeon

from inlay.errors import InputError, UnreadableFile, UnsupportedFile
from inlay.parquet.footer import thrift
from inlay.parquet.footer.fields import Chunk, File, Group, Meta, Page
from inlay.parquet.footer.footer import Footer, decode_footer, end_of_file

SOURCES = corpus.sources()
FUZZED = [
    "pyarrow-v1-index-bloom-crc",
    "pyarrow-v2-zstd-all",
    "pyarrow-nested",
    "polars",
    "datafusion-bloom",
    "pyarrow-version-1",
]
# A group of the corpus takes some milliseconds and megabytes.
SECONDS, MEBIBYTES = 5.0, 600


def read_group(data: bytes, group: int) -> pa.Table | None:
    try:
        return pq.ParquetFile(io.BytesIO(data)).read_row_group(group)
    except Exception:
        return None


def attempt(name: str, data: bytes, edit: surgeon.Edit) -> bool:
    """Operate on damaged bytes and judge what came out; True if it was refused."""
    started = time.process_time()
    try:
        outcome, result = surgeon.operate(data, edit)
    except InputError:
        return True
    finally:
        assert time.process_time() - started < SECONDS
    if not isinstance(outcome, surgeon.Rewritten):
        return False
    new = -1
    for group in decode_footer(data, file_size=len(data)).row_groups:
        rows = edit.get(group.ordinal, [True] * group.num_rows)
        if not rows or not any(rows):
            continue
        new += 1
        before, after = read_group(data, group.ordinal), read_group(result, new)
        if before is None:
            continue
        assert after is not None, f"{name}: group {group.ordinal} was readable"
        assert engines.same(after, before.filter(pa.array(rows))), f"{name}: group {group.ordinal}"
    return False


def damaged(data: bytes, dice: random.Random, start: int) -> bytes:
    """Some bytes flipped, cut, doubled or overwritten, from `start` on."""
    body = bytearray(data)
    for _ in range(dice.choice([1, 1, 1, 2, 5])):
        at = dice.randrange(start, len(body) - 8)
        match dice.randrange(6):
            case 0 | 1 | 2:
                body[at] ^= 1 << dice.randrange(8)
            case 3:
                body[at] = dice.choice([0, 0xFF, 0x7F, 0x80, 0x1C, 0x19])
            case 4:
                end = at + dice.randrange(1, 20)
                body[at:end] = dice.randbytes(end - at)
            case _:
                end = min(at + dice.randrange(1, 30), len(body) - 8)
                del body[at:end]
    return bytes(body)


def fuzz(name: str, rounds: int, seed: int) -> None:
    data = SOURCES[name]()
    footer = decode_footer(data, file_size=len(data))
    dice = random.Random(seed)
    edit: surgeon.Edit = {0: [at % 4 > 0 for at in range(footer.row_groups[0].num_rows)], 2: None}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for number in range(rounds):
        # The footer, the index and the first group are what surgery reads; all else is copied.
        region = dice.choice([footer.start, footer.start, footer.start - 2_000, 4])
        bytes_ = damaged(data, dice, max(4, region))
        try:
            refused += attempt(name, bytes_, edit)
        except AssertionError as error:
            raise AssertionError(f"{name}, seed {seed}, round {number}: {error}") from error
    assert refused > rounds // 10
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
    assert grown < MEBIBYTES


@pytest.mark.parametrize("name", FUZZED)
def test_damaged_files_are_refused_or_answered_rightly(name: str) -> None:
    fuzz(name, 60, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("name", FUZZED)
def test_damaged_files_at_length(name: str, seed: int) -> None:
    fuzz(name, 1_000, seed)


@pytest.mark.parametrize("name", ["pyarrow", "datafusion-bloom"])
def test_a_file_cut_short_is_refused(name: str) -> None:
    data = SOURCES[name]()
    for length in [0, 1, 7, 8, 12, 100, len(data) // 2, len(data) - 9, len(data) - 1]:
        with pytest.raises(InputError):
            surgeon.operate(data[:length], {0: None})


def rebuilt(data: bytes, change: object) -> bytes:
    footer = decode_footer(data, file_size=len(data))
    change(footer)  # type: ignore[operator]
    return data[: footer.start] + end_of_file(footer.tree)


def chunk_of(footer: Footer, group: int, leaf: int) -> thrift.Struct:
    return footer.tree[File.GROUPS][group][Group.COLUMNS][leaf]


def overlapping(footer: Footer) -> None:
    chunk_of(footer, 0, 1)[Chunk.META][Meta.DATA_PAGE] -= 40


def beyond_the_end(footer: Footer) -> None:
    chunk_of(footer, 4, 17)[Chunk.META][Meta.COMPRESSED] += 10**6


def within_the_magic(footer: Footer) -> None:
    chunk_of(footer, 0, 0)[Chunk.META][Meta.COMPRESSED] = 0


def wrong_total(footer: Footer) -> None:
    footer.tree[File.ROWS] += 1


def wrong_values(footer: Footer) -> None:
    chunk_of(footer, 1, 3)[Chunk.META][Meta.VALUES] -= 1


def wrong_type(footer: Footer) -> None:
    chunk_of(footer, 1, 3)[Chunk.META][Meta.TYPE] = 6


def wrong_path(footer: Footer) -> None:
    chunk_of(footer, 1, 3)[Chunk.META][Meta.PATH][0] = b"other"


def fewer_columns(footer: Footer) -> None:
    footer.tree[File.GROUPS][1][Group.COLUMNS].pop()


def huge_rows(footer: Footer) -> None:
    group = footer.tree[File.GROUPS][1]
    footer.tree[File.ROWS] += 10**12 - group[Group.ROWS]
    group[Group.ROWS] = 10**12
    for chunk in group[Group.COLUMNS]:
        chunk[Chunk.META][Meta.VALUES] = 10**12


@pytest.mark.parametrize(
    "change",
    [
        overlapping,
        beyond_the_end,
        within_the_magic,
        wrong_total,
        wrong_values,
        wrong_type,
        wrong_path,
        fewer_columns,
        huge_rows,
    ],
)
def test_a_footer_that_contradicts_itself_is_refused(change: object) -> None:
    data = rebuilt(SOURCES["pyarrow"](), change)
    with pytest.raises(UnreadableFile):
        surgeon.operate(data, {1: [at > 0 for at in range(corpus.GROUP_ROWS)]})


def external(footer: Footer) -> None:
    chunk_of(footer, 1, 3)[Chunk.FILE_PATH] = b"elsewhere.parquet"


def encrypted_column(footer: Footer) -> None:
    chunk_of(footer, 1, 3)[Chunk.CRYPTO] = {}


def by_old_parquet_mr(footer: Footer) -> None:
    footer.tree[File.CREATED_BY] = b"parquet-mr version 1.2.8 (build x)"


def by_nobody_known(footer: Footer) -> None:
    footer.tree[File.SCHEMA][3][thrift.i32(3)] = 3  # the VECTOR repetition of a later format


@pytest.mark.parametrize("change", [external, encrypted_column, by_old_parquet_mr, by_nobody_known])
def test_what_surgery_cannot_do_is_refused_as_unsupported(change: object) -> None:
    data = rebuilt(SOURCES["pyarrow"](), change)
    with pytest.raises(UnsupportedFile):
        surgeon.operate(data, {1: [at > 0 for at in range(corpus.GROUP_ROWS)]})


def test_a_page_whose_checksum_is_wrong_is_not_written_again() -> None:
    data = bytearray(SOURCES["pyarrow-v1-index-bloom-crc"]())
    footer = decode_footer(bytes(data), file_size=len(data))
    chunk = footer.row_groups[0].column(9)
    data[chunk.end - 5] ^= 1
    with pytest.raises(UnreadableFile, match=r"checksum|CRC|crc"):
        surgeon.operate(bytes(data), {0: [at > 0 for at in range(corpus.GROUP_ROWS)]})


def test_pages_that_claim_more_than_their_chunk_are_refused_before_they_are_decoded() -> None:
    """Each page claims 40 MiB, which a decoder would take for it; the footer says a few KB in all."""
    data = corpus.by_pyarrow(
        pa.table({"id": range(400)}),
        use_dictionary=False,
        max_rows_per_page=40,
        row_group_size=400,
        write_statistics=False,
    )
    footer = decode_footer(data, file_size=len(data))
    [chunk] = footer.row_groups[0].columns
    at, pages = chunk.start, b""
    while at < chunk.end:
        header, at = thrift.decode_struct(data, at)
        body = data[at : at + header[Page.COMPRESSED]]
        at += len(body)
        pages += thrift.encode_struct({**header, Page.UNCOMPRESSED: 40 << 20}) + body
    chunk.meta[Meta.COMPRESSED] = len(pages)
    lying = b"PAR1" + pages + end_of_file(footer.tree)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UnreadableFile, match="claim to be larger"):
        surgeon.operate(lying, {0: [n > 0 for n in range(400)]})
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000

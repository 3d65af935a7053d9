"""After an erasing rewrite no byte of the new object discloses a removed row."""

from __future__ import annotations

import io
from collections.abc import Callable

import checker
import corpus
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import surgeon

from inlay.parquet.footer import thrift
from inlay.parquet.footer.fields import Chunk, File, Group, KeyValue, Meta
from inlay.parquet.footer.footer import decode_footer, end_of_file

# One for each place: smallest and largest of a column, in the middle, in lists and structs.
TOKENS = {
    "least": "!!first-of-all-7c1f",
    "most": "~~last-of-all-93ab",
    "within": "mmm-between-55d0",
    "listed": "item-in-a-list-e41c",
    "inside": "in-a-struct-1b77",
}
ROWS, GROUP_ROWS = 600, 120
VICTIMS = [130, 131, 199, 470]


def planted(spread: bool) -> pa.Table:
    def value(at: int, token: str) -> str:
        return TOKENS[token] if at in VICTIMS else f"p{at % (400 if spread else 9):05d}"

    struct = pa.struct([("s", pa.string())])
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "least": [value(at, "least") for at in range(ROWS)],
            "most": [value(at, "most") for at in range(ROWS)],
            "within": [value(at, "within") for at in range(ROWS)],
            "listed": pa.array(
                [[value(at, "listed"), "x"] for at in range(ROWS)], pa.list_(pa.string())
            ),
            "inside": pa.array([{"s": value(at, "inside")} for at in range(ROWS)], struct),
        }
    )


WRITERS: dict[str, Callable[[pa.Table], bytes]] = {
    "pyarrow": lambda t: corpus.by_pyarrow(
        t, write_page_index=True, max_rows_per_page=20,
        bloom_filter_options={"least": True, "within": {"ndv": 100, "fpp": 0.01}},
    ),
    "pyarrow-v2": lambda t: corpus.by_pyarrow(t, data_page_version="2.0", compression="zstd"),
    "pyarrow-deltas": lambda t: corpus.by_pyarrow(
        t, use_dictionary=False, compression="none",
        column_encoding={"least": "DELTA_BYTE_ARRAY", "most": "DELTA_LENGTH_BYTE_ARRAY"},
    ),
    "polars": lambda t: corpus.by_polars(t, statistics="full"),
    "datafusion": lambda t: corpus.by_datafusion(
        t, bloom_filter_on_write=True, bloom_filter_ndv=200, data_page_row_count_limit=30
    ),
    "duckdb": lambda t: corpus.by_duckdb(t, ", COMPRESSION uncompressed"),
}  # fmt: skip


def visible(data: bytes) -> bytes:
    """The bytes as they are, and every page and level run decompressed."""
    names = {0: None, 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
    found = [data]
    for group in checker.footer_of(data)[4]:
        for chunk in group[1]:
            meta = chunk[3]
            start = checker._start(meta)
            at, end = start, start + meta[7]
            while at < end:
                header, body = checker.thrift(data, at)
                page = data[body : body + header[3]]
                at = body + header[3]
                levels = header[8][5] + header[8][6] if 8 in header else 0
                codec = names[meta[4]]
                if codec and header.get(8, {}).get(7, True) and len(page) > levels:
                    page = pa.decompress(page[levels:], header[2] - levels, codec, asbytes=True)
                found.append(page)
    return b"".join(found)


def tokens_in(data: bytes) -> set[str]:
    """The tokens to be seen, also those cut short as bounds are, or by a common prefix."""
    text = visible(data)
    ends = {name: (token[:7].encode(), token[-9:].encode()) for name, token in TOKENS.items()}
    return {name for name, (head, tail) in ends.items() if head in text or tail in text}


@pytest.mark.parametrize("spread", [False, True], ids=["dictionary", "plain"])
@pytest.mark.parametrize("writer", WRITERS)
def test_planted_values_are_gone_from_every_byte(writer: str, spread: bool) -> None:
    data = WRITERS[writer](planted(spread))
    assert tokens_in(data) == set(TOKENS)
    footer = decode_footer(data, file_size=len(data))
    edit: surgeon.Edit = {}
    start = 0
    for group in footer.row_groups:
        hit = [at for at in VICTIMS if start <= at < start + group.num_rows]
        if hit:
            edit[group.ordinal] = [start + at not in hit for at in range(group.num_rows)]
        start += group.num_rows
    outcome, result = surgeon.operate(data, edit)
    assert isinstance(outcome, surgeon.Rewritten)
    assert outcome.footer.num_rows == ROWS - len(VICTIMS)
    assert tokens_in(result) == set()
    if len(footer.row_groups) > 1:
        _, result = surgeon.operate(data, dict.fromkeys(edit))
        assert tokens_in(result) == set()


def test_bloom_filters_forget_removed_values() -> None:
    """The new filter is, bit for bit, the one a file of only the kept rows gets."""
    data = WRITERS["pyarrow"](planted(True))

    def bits(data: bytes, group: int, leaf: int) -> bytes:
        meta = checker.footer_of(data)[4][group][1][leaf][3]
        header, body = checker.thrift(data, meta[14])
        return data[body : body + header[1]]

    edit: surgeon.Edit = {1: [at % 10 == 0 for at in range(GROUP_ROWS)]}
    _, result = surgeon.operate(data, edit)
    before, after = bits(data, 1, 3), bits(result, 1, 3)
    assert before != after
    kept = planted(True).slice(GROUP_ROWS, GROUP_ROWS).take(pa.array(range(0, GROUP_ROWS, 10)))
    alone = corpus.by_pyarrow(kept, bloom_filter_options={"within": {"ndv": 12, "fpp": 0.01}})
    assert after == bits(alone, 0, 3)


def with_gap(data: bytes, before_group: int, junk: bytes) -> bytes:
    """The file with `junk` in front of a row group: what a writer that appends leaves behind."""
    footer = decode_footer(data, file_size=len(data))
    at = footer.row_groups[before_group].column(0).start
    tree = footer.tree
    for group in tree[File.GROUPS][before_group:]:
        group[Group.FILE_OFFSET] = group[Group.FILE_OFFSET] + len(junk)
        for chunk in group[Group.COLUMNS]:
            for key in (Meta.DATA_PAGE, Meta.DICTIONARY_PAGE):
                if key in chunk[Chunk.META]:
                    chunk[Chunk.META][key] += len(junk)
    return data[:at] + junk + data[at : footer.start] + end_of_file(tree)


def test_bytes_behind_a_filter_of_unknown_length_are_cut_when_erasing() -> None:
    """Writers before parquet-format 2.10 do not record how long a filter is: its header does."""
    junk = b"a copy of " + TOKENS["most"].encode()
    plain = corpus.by_pyarrow(
        planted(True).select(["id", "most"]),
        write_page_index=True,
        bloom_filter_options={"id": {"ndv": 50, "fpp": 0.05}},
    )
    footer = decode_footer(plain, file_size=len(plain))
    at = min(group.column(0).column_index[0] for group in footer.row_groups)
    for group in footer.tree[File.GROUPS]:
        for chunk in group[Group.COLUMNS]:
            chunk[Chunk.META].pop(Meta.BLOOM_LENGTH, None)
            for key in (Chunk.COLUMN_INDEX, Chunk.OFFSET_INDEX):
                chunk[key] += len(junk)
    data = plain[:at] + junk + plain[at : footer.start] + end_of_file(footer.tree)
    assert checker.problems(data) == []
    assert len(checker.gaps(data)) == 1
    edit: surgeon.Edit = {1: [at > 0 for at in range(GROUP_ROWS)]}
    erased = edited(data, edit)
    assert junk in data and junk not in erased
    assert checker.problems(erased) == []


def edited(data: bytes, edit: surgeon.Edit) -> bytes:
    """The new object, which has the rows that stay."""
    _, result = surgeon.operate(data, edit)
    stay = surgeon.kept_rows(decode_footer(data, file_size=len(data)), edit)
    expected = pq.read_table(io.BytesIO(data)).take(pa.array(stay))
    assert pq.read_table(io.BytesIO(result)).equals(expected)
    return result


def old_footer(data: bytes) -> bytes:
    return data[decode_footer(data, file_size=len(data)).start :]


@pytest.mark.parametrize("gap_before", [1, 3])
def test_an_old_footer_between_row_groups_is_cut(gap_before: int) -> None:
    """It holds the bounds of every group, wherever it is; the edit is in group 4."""
    plain = corpus.by_pyarrow(planted(True).select(["id", "least"]))
    data = with_gap(plain, gap_before, old_footer(plain))
    assert checker.problems(data) == []
    edit: surgeon.Edit = {4: [at != 0 for at in range(GROUP_ROWS)]}
    assert checker.gaps(data) != []
    erased = edited(data, edit)
    assert checker.gaps(erased) == []
    assert checker.problems(erased) == []


def test_gaps_beside_a_removed_group_go() -> None:
    plain = corpus.by_pyarrow(planted(True).select(["id", "least"]))
    data = with_gap(plain, 3, b"a copy of column metadata")
    for edit in ({2: None}, {3: None}, {3: [at > 5 for at in range(GROUP_ROWS)]}):
        _, result = surgeon.operate(data, edit)
        assert checker.gaps(result) == [], edit
        assert checker.problems(result) == []


def test_key_values_of_an_edited_chunk_go() -> None:
    data = corpus.by_pyarrow(planted(False).select(["id"]))
    footer = decode_footer(data, file_size=len(data))
    pairs = thrift.Items(thrift.STRUCT, [{KeyValue.KEY: b"k", KeyValue.VALUE: b"v"}])
    for group in footer.tree[File.GROUPS]:
        meta = group[Group.COLUMNS][0][Chunk.META]
        meta[Meta.KEY_VALUES] = pairs
        meta[thrift.binary(99)] = b"made from all rows"
    data = data[: footer.start] + end_of_file(footer.tree)
    edit: surgeon.Edit = {1: [at > 0 for at in range(GROUP_ROWS)]}
    _, result = surgeon.operate(data, edit)
    metas = [group[1][0][3] for group in checker.footer_of(result)[4]]
    assert [8 in meta for meta in metas] == [True, False, True, True, True]
    assert [99 in meta for meta in metas] == [True, False, True, True, True]

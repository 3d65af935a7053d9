"""Every writer's files, every way to take rows out, read back by three engines and by the checker."""

from __future__ import annotations

import io
from pathlib import Path

import checker
import corpus
import engines
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import surgeon
from tests.tiers import in_short

from inlay.errors import InputError, UnreadableFile, UnsupportedFile
from inlay.parquet.footer.footer import ColumnChunk, decode_footer
from inlay.parquet.footer.pages import BLOOM_HEADER_BYTES, Part, bloom_length

SOURCES = corpus.sources()
FOREIGN = corpus.foreign()
# Of each way of Arrow to write, and of each other writer, one file; the others are in the wide tier.
SHORT = {
    "pyarrow",
    "pyarrow-v1-index-bloom-crc",
    "pyarrow-deltas-v2-index",
    "pyarrow-int96",
    "pyarrow-nested-v2-index",
    "pyarrow-fallback-index",
    "pyarrow-empty-groups",
    "duckdb-v2-zstd",
    "polars-nested",
    "datafusion-v2-delta",
}
# What the format forbids but these writers do; surgery leaves it in the groups it does not touch.
# Pages whose bytes do not have the checksum in their header: no row of them is believed.
DAMAGED = {"datapage_v1-corrupt-checksum": "CRC checksum verification failed"}
REFUSED = {"nation.dict-malformed": "column sizes that are too small"}


# fastparquet ends the process on DuckDB's DELTA_LENGTH_BYTE_ARRAY pages, as DuckDB wrote them.
CRASHES = {"fastparquet": {"duckdb-v2-zstd"}}


def read(reader: str, path: Path) -> pa.Table | None:
    try:
        return engines.READERS[reader](path)
    except Exception:  # an engine that cannot read the source cannot judge the result
        return None


def judge(tmp_path: Path, name: str, data: bytes) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    old.write_bytes(data)
    footer = decode_footer(data, file_size=len(data))
    readers = [reader for reader in engines.READERS if name not in CRASHES.get(reader, ())]
    before = {reader: read(reader, old) for reader in readers}
    known = checker.kinds(data)
    for name, edit in surgeon.patterns(data).items():
        kept = surgeon.kept_rows(footer, edit)
        if len(kept) in (0, footer.num_rows):
            continue  # the group that is to lose rows has none
        outcome, result = surgeon.operate(data, edit)
        assert isinstance(outcome, surgeon.Rewritten), name
        every = range(footer.num_rows)
        mapped = [outcome.positions.one(at) for at in every]
        assert [at for at in every if mapped[at] is not None] == kept, name
        assert [at for at in mapped if at is not None] == list(range(len(kept))), name
        assert (outcome.footer.num_rows, outcome.size) == (len(kept), len(result)), name
        assert {kind for kind, _ in checker.problems(result)} <= known, (
            name,
            checker.problems(result),
        )
        new.write_bytes(result)
        for reader, table in before.items():
            if table is not None and table.num_rows == footer.num_rows:
                assert engines.same(
                    engines.READERS[reader](new), table.take(pa.array(kept, pa.int64()))
                ), (name, reader)
        _must_stay_verbatim(data, result, edit)


def _must_stay_verbatim(old: bytes, new: bytes, edit: surgeon.Edit) -> None:
    """All that is not about rows and offsets is as it was."""
    before, after = checker.footer_of(old), checker.footer_of(new)
    for field in set(before) | set(after):
        if field not in (3, 4):
            assert before.get(field) == after.get(field), f"field {field} of the footer"
    footers = [decode_footer(data, file_size=len(data)) for data in (old, new)]
    left = [
        at
        for at, group in enumerate(before[4])
        if at not in edit or group[3] == 0 or any(edit[at] or ())
    ]
    assert len(left) == len(after[4])
    for now, was in enumerate(left):
        old_group, new_group = before[4][was], after[4][now]
        assert old_group.get(4) == new_group.get(4), "sorting columns"
        if was in edit and not all(edit[was] or ()):
            _must_look_alike(old, new, old_group, new_group)
            continue
        was_chunks, now_chunks = (
            footer.row_groups[at].columns for footer, at in zip(footers, (was, now), strict=True)
        )
        for was_chunk, now_chunk in zip(was_chunks, now_chunks, strict=True):
            before_parts, after_parts = _parts(old, was_chunk), _parts(new, now_chunk)
            assert before_parts.keys() == after_parts.keys()
            for part, body in before_parts.items():
                if part is not Part.OFFSET_INDEX:
                    assert body == after_parts[part], f"{part} of an untouched group"


def _parts(data: bytes, chunk: ColumnChunk) -> dict[Part, bytes]:
    """What the file holds of a column chunk."""
    bloom = chunk.bloom_offset
    if bloom is not None:
        bloom = bloom, bloom + sum(bloom_length(data[bloom : bloom + BLOOM_HEADER_BYTES]))
    places = {
        Part.DATA: (chunk.start, chunk.end) if chunk.compressed_size else None,
        Part.BLOOM: bloom,
        Part.COLUMN_INDEX: chunk.column_index,
        Part.OFFSET_INDEX: chunk.offset_index,
    }
    return {part: data[slice(*place)] for part, place in places.items() if place is not None}


def _must_look_alike(old_data: bytes, new_data: bytes, old: dict, new: dict) -> None:
    """An edited group kept codec, encodings, page version, checksums, indexes and filters."""
    for was, now in zip(old[1], new[1], strict=True):
        codec = {5: 7}.get(was[3][4], was[3][4])
        assert now[3][4] == codec
        assert (4 in was) == (4 in now), "offset index"
        if was[3][1] != 0:  # pyarrow makes no filters of booleans
            assert bool(was[3].get(14)) == bool(now[3].get(14)), "bloom filter"
        inexact = [flag for flag in (7, 8) if was[3].get(12, {}).get(flag) is False]
        assert not any(now[3].get(12, {}).get(flag) for flag in inexact), "bounds called exact"
        before, after = _writing(old_data, was[3]), _writing(new_data, now[3])
        assert before["version"] == after["version"]
        assert before["checksums"] == after["checksums"]
        if len(before["encodings"]) == 1:
            assert after["encodings"] == before["encodings"], was[3][3]
        else:
            assert after["encodings"] <= before["encodings"] | {0}, was[3][3]


def _writing(data: bytes, meta: dict) -> dict[str, object]:
    """How a chunk was written; both names of dictionary encoding are one."""
    start = checker._start(meta)
    pages = checker._pages(data, start, start + meta[7], "", checker.Report())
    pages = [page for page in pages if page["type"] != checker.DICTIONARY]
    return {
        "version": {page["type"] for page in pages},
        "checksums": {page["checksum"] for page in pages},
        "encodings": {8 if page["encoding"] == 2 else page["encoding"] for page in pages},
    }


@pytest.mark.parametrize("name", in_short(SOURCES, SHORT))
def test_rows_leave_and_all_else_stays(name: str, tmp_path: Path) -> None:
    judge(tmp_path, name, SOURCES[name]())


@pytest.mark.skipif(not FOREIGN, reason="../shared/data/parquet-testing is not there")
@pytest.mark.parametrize("name", FOREIGN or ["none"])
def test_files_of_other_writers_lose_rows_or_are_refused(name: str, tmp_path: Path) -> None:
    data = FOREIGN[name]()
    if name in DAMAGED:
        rows = pq.read_metadata(io.BytesIO(data)).row_group(0).num_rows
        with pytest.raises(UnreadableFile, match=DAMAGED[name]):
            surgeon.operate(data, {0: [False] + [True] * (rows - 1)})
        return
    if name in REFUSED:
        edit = {0: [False] + [True] * 24}
        with pytest.raises(UnsupportedFile, match=REFUSED[name]):
            surgeon.operate(data, edit)
        return
    judge(tmp_path, name, data)


def test_encrypted_files_are_refused(tmp_path: Path) -> None:
    data = bytearray(SOURCES["pyarrow"]())
    data[-4:] = b"PARE"
    with pytest.raises(InputError, match="encrypted"):
        surgeon.operate(bytes(data), {0: None})

"""Manifests as they are written and read back: whose snapshot an entry is of, and since when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.iceberg.avro import decode_avro
from inlay.iceberg.manifest import (
    ADDED,
    EXISTING,
    Entry,
    Manifest,
    decode_list,
    decode_manifest,
    encode_list,
    encode_manifest,
)
from inlay.iceberg.schema import UNPARTITIONED

SYNC = bytes(16)
NEW = Entry(path="new.parquet", size=10, rows=1)
OLD = Entry(path="old.parquet", size=20, rows=2, snapshot_id=3, sequence=2, first_row_id=7)
OLDER = Entry(path="older.parquet", size=30, rows=4, snapshot_id=5, sequence=1, first_row_id=9)


def manifest(entries: list[Entry], version: int = 9) -> tuple[bytes, Manifest]:
    return encode_manifest(
        entries,
        path="m.avro",
        spec=UNPARTITIONED,
        schema={"type": "struct", "schema-id": 0, "fields": []},
        content=0,
        version=version,
        snapshot_id=version,
        format_version=3,
        sync=SYNC,
    )


def test_new_entries_are_of_this_snapshot_and_others_keep_theirs() -> None:
    data, described = manifest([NEW, OLD, OLDER])
    records = {r["data_file"]["file_path"]: r for r in decode_avro(data).records}
    assert [r["status"] for r in records.values()] == [ADDED, EXISTING, EXISTING]
    assert [r["snapshot_id"] for r in records.values()] == [9, 3, 5]
    assert [r["sequence_number"] for r in records.values()] == [9, 2, 1]
    assert [r["file_sequence_number"] for r in records.values()] == [9, 2, 1]
    assert (described.added, described.added_rows) == (1, 1)
    assert (described.existing, described.existing_rows) == (2, 6)
    assert (described.snapshot_id, described.sequence) == (9, 9)
    read = {r.entry.path: r.entry for r in decode_manifest(data, described)}
    assert (read["old.parquet"].snapshot_id, read["old.parquet"].sequence) == (3, 2)
    assert (read["new.parquet"].snapshot_id, read["new.parquet"].sequence) == (9, 9)


@pytest.mark.parametrize(
    ("entries", "least"),
    [([NEW], 9), ([NEW, OLD], 2), ([OLDER, OLD], 1), ([OLD], 2), ([], 9)],
)
def test_the_least_sequence_is_that_of_the_oldest_entry(entries: list[Entry], least: int) -> None:
    """Readers skip manifests by it: above an entry's own, deletes would not be applied to it."""
    _, described = manifest(entries)
    assert described.min_sequence == least
    listed = encode_list(
        [described], version=9, snapshot_id=9, parent=8, first_row_id=0, format_version=3, sync=SYNC
    )
    assert decode_list(listed) == (described,)


def test_what_an_entry_does_not_say_it_inherits_and_0_is_said() -> None:
    data, described = manifest([OLD])
    other = replace(described, snapshot_id=77, sequence=66)
    [read] = decode_manifest(data, other)
    assert (read.entry.snapshot_id, read.entry.sequence) == (3, 2)

"""Manifests as they are written and read back: whose snapshot an entry is of, and since when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inlay.iceberg.avro import decode_avro, encode_avro
from inlay.iceberg.manifest import (
    ADDED,
    EXISTING,
    Entry,
    Manifest,
    _entry_schema,
    decode_list,
    decode_manifest,
    encode_list,
    encode_manifest,
)
from inlay.iceberg.schema import UNPARTITIONED, Bounds

SYNC = bytes(16)
NEW = Entry(path="new.parquet", size=10, rows=1)
OLD = Entry(path="old.parquet", size=20, rows=2, snapshot_id=3, sequence=2, first_row_id=7)
OLDER = Entry(path="older.parquet", size=30, rows=4, snapshot_id=5, sequence=1, first_row_id=9)


def manifest(entries: list[Entry], version: int = 9, content: int = 0) -> tuple[bytes, Manifest]:
    return encode_manifest(
        entries,
        path="m.avro",
        spec=UNPARTITIONED,
        schema={"type": "struct", "schema-id": 0, "fields": []},
        content=content,
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


@pytest.mark.parametrize("version", [2, 3])
def test_row_lineage_is_in_lists_from_version_3(version: int) -> None:
    _, described = manifest([NEW])
    data = encode_list(
        [replace(described, first_row_id=5)],
        version=9,
        snapshot_id=9,
        parent=None,
        first_row_id=5,
        format_version=version,
        sync=SYNC,
    )
    read = decode_avro(data)
    [record] = read.records
    # Readers pass over manifests that count nothing of what they look for.
    assert [record[f"{status}_files_count"] for status in ("added", "existing", "deleted")] == [
        1,
        0,
        0,
    ]
    assert [record[f"{status}_rows_count"] for status in ("added", "existing", "deleted")] == [
        1,
        0,
        0,
    ]
    assert [r.get("first_row_id") for r in read.records] == [5 if version == 3 else None]
    assert ("first_row_id" in read.records[0]) is (version == 3)
    assert read.metadata.get("first-row-id") == ("5" if version == 3 else None)


def test_a_list_of_version_1_begins_before_every_snapshot() -> None:
    """It has no sequence numbers: 0, by the specification."""
    fields = [("manifest_path", "string"), ("manifest_length", "long")]
    fields += [("partition_spec_id", "int"), ("added_snapshot_id", "long")]
    listed = [{"name": name, "type": kind, "field-id": n} for n, (name, kind) in enumerate(fields)]
    record = {"type": "record", "name": "manifest_file", "fields": listed}
    values = {"manifest_path": "m", "manifest_length": 1, "partition_spec_id": 0}
    data = encode_avro(record, [{**values, "added_snapshot_id": 7}], metadata={}, sync=SYNC)
    [found] = decode_list(data)
    assert (found.sequence, found.min_sequence, found.content, found.added) == (0, 0, 0, 0)


# Of Iceberg's specification: name → (field id, type, whether it may be absent).
ENTRY = {
    "status": (0, "int", False),
    "snapshot_id": (1, "long", True),
    "sequence_number": (3, "long", True),
    "file_sequence_number": (4, "long", True),
    "data_file": (2, "record", False),
}
DATA_FILE = {
    "content": (134, "int", False),
    "file_path": (100, "string", False),
    "file_format": (101, "string", False),
    "partition": (102, "record", False),
    "record_count": (103, "long", False),
    "file_size_in_bytes": (104, "long", False),
    "column_sizes": (108, (117, 118, "long"), True),
    "value_counts": (109, (119, 120, "long"), True),
    "null_value_counts": (110, (121, 122, "long"), True),
    "nan_value_counts": (137, (138, 139, "long"), True),
    "lower_bounds": (125, (126, 127, "bytes"), True),
    "upper_bounds": (128, (129, 130, "bytes"), True),
    "sort_order_id": (140, "int", True),
    "referenced_data_file": (143, "string", True),
}
VERSION_3 = {
    "first_row_id": (142, "long", True),
    "content_offset": (144, "long", True),
    "content_size_in_bytes": (145, "long", True),
}


def described(fields: Any) -> dict[str, Any]:
    found = {}
    for field in fields:
        kind, optional = field["type"], isinstance(field["type"], list)
        if optional:
            assert kind[0] == "null" and field["default"] is None
            [_, kind] = kind
        if isinstance(kind, dict) and kind["type"] == "array":
            key, value = kind["items"]["fields"]
            assert kind["logicalType"] == "map" and key["type"] == "int"
            kind = (key["field-id"], value["field-id"], value["type"])
        elif isinstance(kind, dict):
            kind = kind["type"]
        found[field["name"]] = (field["field-id"], kind, optional)
    return found


@pytest.mark.parametrize("version", [1, 2, 3])
def test_entries_have_the_fields_types_and_options_of_the_specification(version: int) -> None:
    entry = _entry_schema(UNPARTITIONED, version)["fields"]
    assert described(entry) == ENTRY
    [data_file] = (f["type"]["fields"] for f in entry if f["name"] == "data_file")
    assert described(data_file) == DATA_FILE | (VERSION_3 if version >= 3 else {})


def test_what_a_manifest_inherits_and_leaves_out() -> None:
    """First row ids go on from the list's by the rows of entries that have none; deletes have none."""
    data, listed = manifest([NEW, OLD, OLDER])
    tree = decode_avro(data)
    records = [
        {**r, "data_file": {**r["data_file"], "first_row_id": first}, "status": status}
        for r, first, status in zip(tree.records, (None, 7, None), (1, 0, 0), strict=True)
    ]
    gone = {**records[0], "status": 2}
    schema = _entry_schema(UNPARTITIONED, 3)
    again = encode_avro(schema, [gone, *records], metadata={}, sync=SYNC)
    read = decode_manifest(again, replace(listed, first_row_id=100))
    assert [r.entry.first_row_id for r in read] == [100, 7, 101]
    assert [r.entry.path for r in read] == ["new.parquet", "old.parquet", "older.parquet"]
    of_deletes = decode_manifest(again, replace(listed, first_row_id=100, content=1))
    assert [r.entry.first_row_id for r in of_deletes] == [None, 7, None]
    unknown = decode_manifest(again, replace(listed, first_row_id=None))
    assert [r.entry.first_row_id for r in unknown] == [None, 7, None]


def test_bounds_are_those_that_are_known_in_the_order_of_their_fields() -> None:
    """Values are counted where NULLs are. Where nothing is known a map is null, not empty."""
    known = {9: Bounds(lower=b"a", upper=b"z", nulls=0, nans=0), 2: Bounds(nulls=3), 4: Bounds()}
    data, _ = manifest([replace(NEW, rows=5, bounds=known), OLD])
    maps = {
        "value_counts": [(2, 5), (9, 5)],
        "null_value_counts": [(2, 3), (9, 0)],
        "nan_value_counts": [(9, 0)],
        "lower_bounds": [(9, b"a")],
        "upper_bounds": [(9, b"z")],
    }
    file, without = (r["data_file"] for r in decode_avro(data).records)
    for name, pairs in maps.items():
        assert [(pair["key"], pair["value"]) for pair in file[name]] == pairs
        assert without[name] is None
    assert file["column_sizes"] == []


@pytest.mark.parametrize(("content", "word"), [(0, "data"), (1, "deletes")])
def test_a_manifest_says_whether_it_is_of_data_or_of_deletes(content: int, word: str) -> None:
    vector = Entry(path="v.puffin", size=99, rows=1, content=content, offset=4, length=40)
    data, listed = manifest([vector], content=content)
    assert decode_avro(data).metadata["content"] == word
    assert listed.content == content
    [read] = decode_manifest(data, listed)
    assert (read.entry.content, read.entry.stored, NEW.stored) == (content, 40, 10)


@pytest.mark.parametrize(("parent", "text"), [(None, "null"), (8, "8")])
def test_a_list_names_its_parent(parent: int | None, text: str) -> None:
    data = encode_list(
        [], version=9, snapshot_id=9, parent=parent, first_row_id=0, format_version=3, sync=SYNC
    )
    assert decode_avro(data).metadata["parent-snapshot-id"] == text

"""The golden table whose files leave columns to their partitions: format version 2, as bytes on disk."""

from __future__ import annotations

import pytest
from tests.golden import from_the_page, make_folders
from tests.golden.make_v2 import objects

import inlay
from inlay.errors import NewerFormat
from inlay.format.codec import decode_frame, decode_snapshot, encode_snapshot
from inlay.format.keys import POINTER

ROOT = "tables/a"


def frames() -> dict[str, bytes]:
    found = make_folders.golden()
    return {k: body for k, body in found.items() if k.endswith((POINTER, ".json"))}


def test_it_is_read_as_it_is_and_nothing_is_written():
    store, time = make_folders.opened()
    assert make_folders.seen(store, time) == make_folders.expected()
    ctx = make_folders.context(store, time)
    table = inlay.open(ctx.uri, context=ctx)
    assert table.maintain.verify(depth="pages").findings == ()
    assert table.count(where="y = 2024") == 3
    assert table.count(where="y IS NULL AND region = '50%'") == 2
    assert objects(store) == make_folders.golden()


def test_its_snapshots_are_written_again_byte_for_byte():
    assert len(frames()) == 4
    for key, body in frames().items():
        assert encode_snapshot(decode_snapshot(body, key=key)) == body


def test_it_lives_on():
    store, time = make_folders.opened()
    ctx = make_folders.context(store, time)
    table = inlay.open(ctx.uri, context=ctx)
    before = table.scan().to_arrow().to_pylist()
    table.delete("y = 2023", mode="rewrite")
    table.maintain.compact()
    expected = [row for row in before if row["y"] != 2023]
    found = table.refresh().scan().to_arrow().to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert table.maintain.verify(depth="pages").findings == ()


def test_who_reads_by_the_page_sees_the_same():
    found = make_folders.golden()
    data, prepared = from_the_page.pointer(found, ROOT)
    assert prepared is None
    rows = from_the_page.rows(found, ROOT, data)
    assert rows == make_folders.expected()["rows"]


def test_who_knows_version_1_only_stops():
    """The rule of section 4, as a reader of version 1 has it, and as this library's code has it."""
    for key, body in frames().items():
        with pytest.raises(from_the_page.NewerVersion):
            from_the_page.frame(body, "snapshot", knows=1)
        with pytest.raises(NewerFormat, match="format version 2; this library reads up to 1"):
            decode_frame("snapshot", body, key=key, version=1)

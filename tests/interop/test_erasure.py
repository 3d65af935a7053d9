"""An erasure reaches what is published, and gives no receipt before."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import CorruptTable, Unpublishable
from inlay.iceberg.avro import decode_avro
from inlay.ops.erase.request import advance_erasures
from inlay.table import Table

from .iceberg_reader import read_table

SECRET = "tok-someone"
SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])


def forms(path: Path) -> Iterator[bytes]:
    """An object's bytes, as they are and as a reader would unpack them."""
    data = path.read_bytes()
    yield data
    if data[:2] == b"\x1f\x8b":
        yield zlib.decompress(data, 31)
    try:
        yield repr(decode_avro(data)).encode()
    except CorruptTable:
        return


def found(root: Path) -> list[str]:
    return sorted(
        str(p.relative_to(root))
        for p in root.rglob("*")
        if p.is_file() and any(SECRET.encode() in form for form in forms(p))
    )


def person(tmp_path: Path, *partition_by: str) -> Table:
    t = inlay.create(
        f"file://{tmp_path}/tables/t",
        SCHEMA,
        primary_key="id",
        partition_by=partition_by,
        properties={"publish.format": "v3", "write.compression": "none"},
    )
    t.append(pa.table({"id": [1, 2], "s": ["aa", "bb"]}))
    t.append(pa.table({"id": [3, 4], "s": [SECRET, "cc"]}))
    t.append(pa.table({"id": [5, 6], "s": [SECRET, SECRET]}))
    return t


def finish(t: Table) -> object:
    advance_erasures(t._ctx)
    t.refresh()
    return t.maintain.collect_garbage(grace=timedelta(0), life_seconds=0, clock_margin_seconds=0)


@pytest.mark.parametrize("partition_by", [(), ("s",), ("truncate(5, s)",)])
def test_no_byte_of_the_erased_values_is_left_in_any_object(
    tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    t = person(tmp_path, *partition_by)
    t.publish()
    t.delete("id = 4", mode="vector")
    t.publish()
    root = tmp_path / "tables/t"
    assert [p for p in found(root) if p.startswith("metadata/inlay-m-")], "bounds are there"
    t.delete(f"s = '{SECRET}'", mode="erase")
    done = finish(t)
    assert done.receipts, done.waiting  # type: ignore[attr-defined]
    assert found(root) == []
    published = read_table(
        f"file://{root}/metadata/v{(root / 'metadata/version-hint.text').read_text()}.metadata.json"
    )
    assert sorted(r["id"] for r in published) == [1, 2]
    assert t.refresh().count() == 2


def test_a_table_that_cannot_be_published_keeps_its_erasure_waiting_by_name(tmp_path: Path) -> None:
    t = person(tmp_path)
    t.publish()
    t.alter(add={"big": pa.uint64()})
    t.delete(f"s = '{SECRET}'", mode="erase")
    done = finish(t)
    assert not done.receipts  # type: ignore[attr-defined]
    [(_, waiting)] = done.waiting  # type: ignore[attr-defined]
    assert waiting.what == "published" and "'big'" in waiting.reason
    t.alter(drop=["big"])
    assert finish(t).receipts  # type: ignore[attr-defined]
    assert found(tmp_path / "tables/t") == []


def test_what_was_published_goes_with_an_erasure_once_it_is_withdrawn(tmp_path: Path) -> None:
    t = person(tmp_path)
    t.publish()
    t.set_properties(publish__format=None)
    t.delete(f"s = '{SECRET}'", mode="erase")
    assert finish(t).receipts  # type: ignore[attr-defined]
    assert found(tmp_path / "tables/t") == []
    assert not list((tmp_path / "tables/t" / "metadata").glob("*"))


def shown(t: Table) -> list[int]:
    """The ids that readers of Iceberg see."""
    t.publish()
    pointer = json.loads(Path(t.uri.removeprefix("file://"), "metadata/latest.json").read_text())
    return sorted(r["id"] for r in read_table(pointer["metadata-location"]))


def test_an_erasure_that_waits_for_landed_files_stops_no_publication(tmp_path: Path) -> None:
    t = person(tmp_path)
    assert shown(t) == [1, 2, 3, 4, 5, 6]
    landed = tmp_path / "ingest" / "t" / "hers.parquet"
    landed.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [7, 8], "s": [SECRET, "dd"]}), landed)
    os.utime(landed, (1, 1))
    t.delete(f"s = '{SECRET}'", mode="erase")
    # Nothing has rewritten its files yet.
    assert shown(t) == [1, 2, 4]
    [(_, waiting)] = finish(t).waiting  # type: ignore[attr-defined]
    assert (waiting.what, Path(waiting.name).name) == ("landing", landed.name)
    t.append(pa.table({"id": [9, 10], "s": [SECRET, "ee"]}))
    t.delete("id = 2", mode="tombstone")
    t.delete("id = 4", mode="vector")
    assert shown(t) == [1, 9, 10], "later rows are new rows"
    t.ingest([f"file://{landed}"])
    assert shown(t) == [1, 8, 9, 10] == sorted(t.refresh().scan().to_arrow()["id"].to_pylist())
    # The later delete by position is carried out in between, and what it leaves behind is collected.
    assert any(finish(t).receipts for _ in range(5))  # type: ignore[attr-defined]
    assert shown(t) == [1, 8, 9, 10]


def test_a_file_that_cannot_be_rewritten_for_an_erasure_is_named(tmp_path: Path) -> None:
    t = person(tmp_path)
    t.publish()
    t.delete(f"s = '{SECRET}'", mode="erase")
    key = t.snapshot.files.inline[1].key  # with a row that stays
    (tmp_path / "tables/t" / key).write_bytes(b"PAR1")
    with pytest.raises(Unpublishable, match=key):
        t.publish()

"""What is published equals the table, or is not published."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

import inlay
from inlay.errors import CorruptTable, InvalidRequest, Unpublishable
from inlay.format.entry import Vector
from inlay.format.puffin import encode_puffin
from inlay.iceberg.avro import decode_avro
from inlay.iceberg.manifest import Entry, decode_list, decode_manifest, encode_manifest
from inlay.iceberg.schema import UNPARTITIONED, Bounds
from inlay.ops import row_markers
from inlay.ops.publish import settle

from .conftest import ENGINES, as_multiset

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("d", pa.date32()),
        ("x", pa.float64()),
        ("dec", pa.decimal128(12, 2)),
        ("tags", pa.list_(pa.string())),
        ("pt", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)


def rows(first: int, last: int) -> pa.Table:
    at = range(first, last)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return pa.table(
        {
            "id": list(at),
            "name": [f"n{i % 7}" if i % 11 else None for i in at],
            "d": [date(2024, 1, 1) + timedelta(days=i % 90) for i in at],
            "x": [i / 3 if i % 13 else float("nan") for i in at],
            "dec": [Decimal(i) / 4 - 50 for i in at],
            "tags": [["t"] * (i % 3) for i in at],
            "pt": [{"a": i, "b": str(i)} if i % 5 else None for i in at],
            "m": [[("k", i)] for i in at],
            "ts": [start + timedelta(minutes=i) for i in at],
        },
        schema=SCHEMA,
    )


class Shop:
    def __init__(self, root: Path, *partition_by: str, schema: pa.Schema = SCHEMA, **more: str):
        self.root = root / "t"
        properties = {k.replace("__", "."): v for k, v in more.items()}
        self.table = inlay.create(
            f"file://{self.root}",
            schema,
            primary_key="id",
            partition_by=partition_by,
            properties=properties,
        )

    def pointer(self) -> Any:
        return json.loads((self.root / "metadata" / "latest.json").read_text())

    def manifests(self) -> list[Any]:
        current = self.pointer()["metadata"]["snapshots"][-1]
        path = current["manifest-list"].removeprefix("file://")
        return list(decode_list(Path(path).read_bytes()))

    def live(self) -> tuple[set[str], dict[str, int]]:
        """Data files, and data file → rows of its vector, by the manifests alone."""
        data: set[str] = set()
        deletes: dict[str, int] = {}
        for manifest in self.manifests():
            path = manifest.path.removeprefix("file://")
            for read in decode_manifest(Path(path).read_bytes(), manifest):
                if manifest.content:
                    deletes[read.entry.referenced or ""] = read.entry.rows
                else:
                    assert read.entry.path not in data, "a file twice"
                    data.add(read.entry.path)
        return data, deletes

    def agree(self) -> None:
        """The manifests name just the table's live files and vectors."""
        data, deletes = self.live()
        files, markers = self.table.refresh().inspect.entries()
        assert data == {self.table._ctx.location(f.key) for f in files}
        assert deletes == {
            self.table._ctx.location(m.file or ""): m.body.rows
            for m in markers
            if isinstance(m.body, Vector)
        }


@pytest.mark.parametrize("format", ["v3", "v2"])
def test_every_engine_reads_what_scan_reads(
    format: str, tmp_path: Path, read_by: Callable[[str, Path], pa.Table]
) -> None:
    shop = Shop(tmp_path, "month(d)", "bucket(4, id)")
    t = shop.table
    t.append(rows(0, 600))
    t.publish(format=format)
    t.append(rows(600, 900))
    t.delete("id < 150 OR x > 250")
    t.delete("name = 'n3'", mode="vector")
    t.update({"name": "'changed'"}, where="id BETWEEN 300 AND 310")
    result = t.publish()
    assert result.published and result.settled
    t.alter(rename={"name": "label"}, add={"extra": pa.field("extra", pa.int32())}, drop=["tags"])
    t.append(
        rows(900, 950)
        .drop(["tags"])
        .rename_columns([*("id", "label"), *SCHEMA.names[2:5], *SCHEMA.names[6:]])
    )
    t.maintain.compact()
    t.publish()
    shop.agree() if format == "v3" else None
    expected = as_multiset(t.refresh().scan().to_arrow())
    for engine in ENGINES:
        assert as_multiset(read_by(engine, shop.root)) == expected, engine


def test_landed_files_of_other_ids_and_reused_names_read_as_in_inlay(
    tmp_path: Path, read_by: Callable[[str, Path], pa.Table]
) -> None:
    flat = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
    shop = Shop(tmp_path, schema=flat)
    t = shop.table
    swapped = pa.schema(
        [
            pa.field(n, pa.int64(), True, {"PARQUET:field_id": str(i)})
            for n, i in (("id", 1), ("a", 3), ("b", 2))
        ]
    )
    pq.write_table(
        pa.table({"id": [1], "a": [10], "b": [20]}, schema=swapped), tmp_path / "1.parquet"
    )
    pq.write_table(pa.table({"id": [2], "a": [11], "b": [21]}), tmp_path / "2.parquet")
    t.ingest([f"file://{tmp_path}/1.parquet", f"file://{tmp_path}/2.parquet"])
    t.delete("id = 2", mode="vector")
    t.alter(drop=["a"])
    t.alter(add={"a": pa.int64()})
    t.append(pa.table({"id": [3], "a": [12], "b": [22]}))
    t.publish()
    expected = as_multiset(t.refresh().scan().to_arrow())
    assert len(expected) == 2
    for engine in ENGINES:
        assert as_multiset(read_by(engine, shop.root)) == expected, engine


def test_a_table_that_was_moved_is_published_where_it_is(
    tmp_path: Path, read_by: Callable[[str, Path], pa.Table]
) -> None:
    shop = Shop(tmp_path)
    shop.table.append(rows(0, 300))
    shop.table.delete("id < 100", mode="vector")
    shop.table.publish()
    moved = tmp_path / "moved"
    shop.root.rename(moved)
    t = inlay.open(f"file://{moved}")
    result = t.publish()
    assert result.published and result.settled == 1, "its vector names the old place"
    for engine in ENGINES:
        assert as_multiset(read_by(engine, moved)) == as_multiset(t.scan().to_arrow())


def test_vectors_that_share_an_object_are_written_apart(tmp_path: Path) -> None:
    """DuckDB 1.5 mixes them up."""
    shop = Shop(tmp_path)
    t = shop.table
    t.append(rows(0, 300))
    t.append(rows(300, 600))
    t.delete("id BETWEEN 200 AND 400", mode="vector")
    assert len({m.object_key for m in t.inspect.entries()[1]}) == 1
    assert t.publish().settled == 2
    assert len({m.object_key for m in t.inspect.entries()[1]}) == 2
    t.delete("id = 7 OR id = 500", mode="vector")
    assert t.publish().settled == 2, "a second vector of a file is made one with the first"
    shop.agree()


def test_publishing_twice_writes_nothing_and_a_new_commit_only_what_is_new(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    t = shop.table
    t.append(rows(0, 10))
    t.publish()
    before = t.usage
    assert not t.publish().published
    assert "put" not in (t.usage - before).requests
    t.append(rows(10, 20))
    before = t.usage
    t.publish()
    assert (t.usage - before).requests["put"] == 5, "manifest, list, metadata, pointer, hint"
    shop.agree()


def test_settling_a_delete_leaves_the_manifest_of_data_files(tmp_path: Path) -> None:
    t = Shop(tmp_path).table
    for n in range(3):
        t.append(rows(10 * n, 10 * n + 10))
    t.publish()
    t.delete("id = 15")
    done = t.publish()
    assert (done.settled, done.manifests, done.kept) == (1, 1, 1)


def test_a_snapshot_is_as_old_as_its_rows_though_they_are_settled_later(tmp_path: Path) -> None:
    """DuckDB reads the newest snapshot that is no younger than its query, which may ask for it first."""
    shop = Shop(tmp_path)
    t = shop.table
    t.append(rows(0, 9))
    t.publish()
    t.refs.branch("b")
    for delete in ("id = 1", "id = 2"):
        t.delete(delete, mode="tombstone")
        inlay.open(t.uri, ref="b").delete("id = 3", mode="tombstone")
        before, committed_us = t.refresh().version, t.snapshot.commit.time_us
        time.sleep(0.002)
        assert t.publish().settle_commits > 0
        shown = shop.pointer()["metadata"]
        [newest] = (
            s for s in shown["snapshots"] if s["snapshot-id"] == shown["current-snapshot-id"]
        )
        assert newest["timestamp-ms"] == committed_us // 1000
        assert newest["sequence-number"] == t.refresh().version > before


def test_row_ids_and_sequences_of_a_file_stay_as_they_were(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    t = shop.table
    lineage: dict[str, tuple[int, int | None]] = {}
    taken: set[int] = set()
    for n in range(60):
        t.append(rows(n, n + 3))
        t.publish()
        for manifest in shop.manifests():
            path = manifest.path.removeprefix("file://")
            for read in decode_manifest(Path(path).read_bytes(), manifest):
                entry = read.entry
                found = (entry.sequence, entry.first_row_id)
                assert lineage.setdefault(entry.path, found) == found
    for _, first in lineage.values():
        assert first is not None
        assert not taken & set(range(first, first + 3))
        taken |= set(range(first, first + 3))
    assert shop.pointer()["metadata"]["next-row-id"] == len(taken)
    shop.agree()


def test_what_cannot_be_shown_exactly_is_refused_by_name_and_the_last_publication_stays(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path)
    t = shop.table
    t.append(rows(0, 10))
    t.publish()
    before = shop.pointer()
    t.alter(add={"big": pa.uint64(), "nanos": pa.timestamp("ns")})
    with pytest.raises(Unpublishable, match=r"'big'.*unsigned.*'nanos'.*nanoseconds"):
        t.publish()
    assert shop.pointer() == before
    t.alter(drop=["big", "nanos"])
    t.publish()
    t.alter(add={"q": pa.field("q", pa.int32(), nullable=False)}, defaults={"q": 7})
    with pytest.raises(Unpublishable, match="'q' has a default"):
        t.publish(format="v2")
    assert t.publish(format="v3").published


@pytest.mark.parametrize("name", ["a#b", "a?b"])
def test_a_folder_that_engines_cannot_name_is_refused(tmp_path: Path, name: str) -> None:
    """pyiceberg and Polars parse its location as a URI, and look elsewhere."""
    shop = Shop(tmp_path / name)
    shop.table.append(rows(0, 10))
    with pytest.raises(Unpublishable, match=r"its folder has a # or \?"):
        shop.table.publish()
    assert not (shop.root / "metadata").exists()
    plain = Shop(tmp_path / "plain", schema=pa.schema([pa.field("id", pa.int64())]))
    id_field = pa.field("id", pa.int64(), True, {"PARQUET:field_id": "1"})
    theirs = tmp_path / name / "theirs.parquet"
    pq.write_table(pa.table({"id": [1]}, schema=pa.schema([id_field])), theirs)
    try:
        plain.table.ingest([f"file://{theirs}"], adopt=True)
    except InvalidRequest:
        return  # no such location is adopted at all
    with pytest.raises(Unpublishable, match=r"engines end a location at its #"):
        plain.table.publish()


def test_how_far_a_publication_is_behind_and_why(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    t = shop.table
    assert t.inspect.publication() is None
    t.append(rows(0, 10))
    t.publish()
    found = t.inspect.publication()
    assert found is not None and (found.version, found.behind, found.reasons) == (t.version, 0, ())
    t.append(rows(10, 20))
    t.alter(add={"big": pa.uint64()})
    found = t.inspect.publication()
    assert found is not None and found.behind == 2 and "'big'" in found.reasons[0]


def test_an_adopted_file_without_ids_keeps_its_table_from_being_published(tmp_path: Path) -> None:
    shop = Shop(tmp_path, schema=pa.schema([("id", pa.int64())]))
    pq.write_table(pa.table({"id": [1]}), tmp_path / "theirs.parquet")
    shop.table.ingest([f"file://{tmp_path}/theirs.parquet"], adopt=True)
    with pytest.raises(Unpublishable, match=r"theirs\.parquet: it is adopted"):
        shop.table.publish()


def test_a_damaged_pointer_stops_and_a_rebuild_starts_afresh(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    t = shop.table
    t.append(rows(0, 10))
    t.publish()
    pointer = shop.root / "metadata" / "latest.json"
    pointer.write_text(pointer.read_text()[:200])
    with pytest.raises(CorruptTable, match="--rebuild"):
        t.publish()
    assert t.publish(rebuild=True).published
    shop.agree()


def test_a_pointer_of_a_later_version_is_not_overwritten(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    t = shop.table
    t.append(rows(0, 10))
    t.publish()
    text = (shop.root / "metadata" / "latest.json").read_text()
    t.append(rows(10, 20))
    pointer = (shop.root / "_latest_manifest").read_bytes()
    t.append(rows(20, 30))
    t.publish()
    (shop.root / "_latest_manifest").write_bytes(pointer)
    with pytest.raises(Unpublishable, match="put back"):
        inlay.open(f"file://{shop.root}").publish()
    status = inlay.open(f"file://{shop.root}").inspect.publication()
    assert status is not None and status.behind == 0 and "put back" in status.reasons[0]
    assert (shop.root / "metadata" / "latest.json").read_text() != text


def put_back(shop: Shop, pointer: bytes) -> inlay.Table:
    """The table as it was, as from a backup: what came later is gone but for its publications."""
    (shop.root / "_latest_manifest").write_bytes(pointer)
    t = inlay.open(f"file://{shop.root}")
    for path in (shop.root / "manifest").iterdir():
        if path.name > f"v{t.version:08}":
            path.unlink()
    return t


def test_another_version_of_the_same_number_is_not_taken_for_the_published_one(
    tmp_path: Path,
) -> None:
    """The table was put back, and committed to again."""
    shop = Shop(tmp_path)
    shop.table.append(rows(0, 10))
    shop.table.publish()
    pointer = (shop.root / "_latest_manifest").read_bytes()
    shop.table.append(rows(10, 20))
    shop.table.publish()
    lost = shop.pointer()["metadata-location"]
    shop.table = put_back(shop, pointer)
    shop.table.append(rows(20, 35))
    with pytest.raises(Unpublishable, match=r"is another one in the table.*put back"):
        shop.table.publish()
    assert shop.pointer()["metadata-location"] == lost
    assert "put back" in str(shop.table.inspect.publication())
    shop.table.publish(rebuild=True)
    shop.agree()


def test_metadata_of_another_version_of_the_same_number_is_not_published(tmp_path: Path) -> None:
    """It was written by a publisher that was killed before its swap; then the table was put back."""
    shop = Shop(tmp_path)
    shop.table.append(rows(0, 10))
    shop.table.publish()
    pointer, published = (
        (shop.root / name).read_bytes() for name in ("_latest_manifest", "metadata/latest.json")
    )
    shop.table.append(rows(10, 20))
    shop.table.publish()
    (shop.root / "metadata" / "latest.json").write_bytes(published)  # it did not swap
    shop.table = put_back(shop, pointer)
    shop.table.append(rows(20, 35))
    shop.table.publish()
    shop.agree()


def test_metadata_that_an_earlier_table_left_behind_is_not_found_by_its_number(
    tmp_path: Path,
) -> None:
    """Readers of a folder go on from the hint to the next number."""
    shop = Shop(tmp_path)
    shop.table.append(rows(0, 10))
    pointer = (shop.root / "_latest_manifest").read_bytes()
    for n in range(3):
        shop.table.append(rows(10 * n, 10 * n + 10))
        shop.table.publish()
    folder = shop.root / "metadata"
    shop.table = put_back(shop, pointer)
    before = shop.pointer()
    with pytest.raises(Unpublishable, match="too young to say"):
        shop.table.publish(rebuild=True)
    assert shop.pointer() == before
    for path in folder.iterdir():
        os.utime(path, (path.stat().st_mtime - 120,) * 2)
    shop.table.publish(rebuild=True)
    version = int((folder / "version-hint.text").read_text())
    assert [p.name for p in folder.glob("v*") if p.name != "version-hint.text"] == [
        f"v{version}.metadata.json"
    ]
    shop.agree()


def test_metadata_of_another_table_goes_before_the_first_publication(tmp_path: Path) -> None:
    """However young it is; and a publisher that may not remove it publishes nothing."""
    shop = Shop(tmp_path)
    for n in range(3):
        shop.table.append(rows(10 * n, 10 * n + 10))
        shop.table.publish()
    folder = shop.root / "metadata"
    left = {p.name: p.read_bytes() for p in folder.glob("v*.metadata.json")}
    newer = max(left, key=lambda name: int(name[1:].partition(".")[0]))
    other = Shop(tmp_path / "other")
    other.table.append(rows(0, 10))
    (other.root / "metadata").mkdir(exist_ok=True)
    (other.root / "metadata" / newer).write_bytes(left[newer])
    other.table.publish()
    assert not (other.root / "metadata" / newer).exists()
    other.agree()


def test_lost_metadata_is_written_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    t = shop.table
    t.append(rows(0, 10))
    t.publish()
    for path in (shop.root / "metadata").glob("*.avro"):
        path.unlink()
    t.append(rows(10, 20))
    assert t.publish().published
    shop.agree()


def test_the_hint_leads_to_the_newest_metadata(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    t = shop.table
    for n in range(3):
        t.append(rows(n, n + 1))
        t.publish()
        hint = (shop.root / "metadata" / "version-hint.text").read_text()
        location = shop.pointer()["metadata-location"]
        assert location.endswith(f"/metadata/v{hint}.metadata.json")
        assert (
            json.loads(Path(location.removeprefix("file://")).read_text())
            == shop.pointer()["metadata"]
        )


def test_settling_changes_no_row_and_leaves_one_vector_for_each_file(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "bucket(3, id)")
    t = shop.table
    t.append(rows(0, 300))
    version = t.version
    t.delete("id < 40")
    t.delete("id > 290", mode="vector")
    t.delete("id = 77", mode="vector")
    before = as_multiset(t.scan().to_arrow())
    done = t.maintain.settle()
    assert done.files
    files, markers = t.inspect.entries()
    assert all(isinstance(m.body, Vector) for m in markers)
    assert len({m.file for m in markers}) == len(markers) <= len(files)
    assert as_multiset(t.scan().to_arrow()) == before
    changed = sum(batch.num_rows for batch in t.changes(version).to_reader())
    assert changed == 300 - len(before), "a settling is no change to who follows the table"
    assert t.maintain.verify(depth="pages").findings == ()
    assert t.maintain.settle().commits == 0


def test_a_table_with_more_open_deletes_than_a_commit_settles_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds that get on are not counted: others do not delete faster than that."""
    monkeypatch.setattr(settle, "COMMIT_FILES", 1)
    t = Shop(tmp_path).table
    for n in range(settle.MAX_ROUNDS + 3):
        t.append(rows(10 * n, 10 * n + 10))
    t.delete("id % 10 = 3")
    expected = as_multiset(t.scan().to_arrow())
    done = t.publish(format="v3")
    assert done.settled == done.settle_commits == settle.MAX_ROUNDS + 3
    assert as_multiset(t.refresh().scan().to_arrow()) == expected


def test_settling_one_delete_of_many_files_leaves_every_entry_as_it_was(tmp_path: Path) -> None:
    """What was hit and what turned out clean: neither has to be told apart from older files any more."""
    t = Shop(tmp_path).table
    for n in range(5):
        t.append(rows(10 * n, 10 * n + 10))
    before = t.inspect.entries()[0]
    version = t.version
    t.delete("id IN (3, 14, 15, 27) OR name = 'no such name'")
    done = t.maintain.settle()
    assert done.commits == 1
    assert t.refresh().inspect.entries()[0] == before
    assert all(isinstance(m.body, Vector) for m in t.inspect.entries()[1])
    assert sum(batch.num_rows for batch in t.changes(version).to_reader()) == 4
    t.refs.restore(version=version)
    t.delete("id = 3")
    t.maintain.compact()
    assert t.scan().to_arrow().num_rows == 49


def test_vectors_are_cut_into_objects_that_the_format_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_markers, "MAX_OBJECT_BYTES", 6_000)
    t = inlay.create(f"file://{tmp_path}/t", pa.schema([("id", pa.int64())]))
    for n in range(6):
        t.append(pa.table({"id": list(range(200 * n, 200 * n + 200))}))
    t.delete("id % 2 = 0", mode="vector")
    objects = {m.object_key for m in t.inspect.entries()[1]}
    assert len(objects) == 3
    assert all((tmp_path / "t" / key).stat().st_size <= 6_000 for key in objects if key)
    assert t.scan().to_arrow()["id"].to_pylist() == list(range(1, 1200, 2))


@given(
    st.lists(st.tuples(st.integers(0, 2**21), st.integers(1, 2**17), st.integers(1, 9)), max_size=5)
)
def test_a_vector_is_never_larger_than_expected(runs: list[tuple[int, int, int]]) -> None:
    positions = BitMap64()
    for start, length, step in runs:
        positions |= BitMap64(range(start, start + length, step))
    name = "s3://b/" + "é" * 100
    body, _ = encode_puffin([(name, positions)])
    assert len(body) <= row_markers._bytes_at_most(positions)


def test_garbage_collection_keeps_what_is_published_and_takes_the_rest(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    t = shop.table
    t.append(rows(0, 10))
    t.publish()
    t.append(rows(10, 20))
    t.publish()
    stray = shop.root / "metadata" / "inlay-m-stray.avro"
    stray.write_bytes(b"x")
    foreign = shop.root / "metadata" / "notes.txt"
    foreign.write_bytes(b"x")
    t.maintain.compact()
    t.maintain.expire(days=0)
    time.sleep(1.1)  # times of objects are whole seconds
    t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert not stray.exists() and foreign.exists()
    shop_files = {f"file://{p}" for p in shop.root.rglob("*.parquet")}
    data, _ = shop.live()
    assert data <= shop_files, "files of the published version are kept"


def test_avro_refuses_what_is_cut_short(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.table.append(rows(0, 10))
    shop.table.publish()
    [manifest] = shop.manifests()
    data = Path(manifest.path.removeprefix("file://")).read_bytes()
    whole = decode_avro(data)
    assert len(whole.records) == 1
    for cut in range(0, len(data), 97):
        with pytest.raises(CorruptTable):
            found = decode_avro(data[:cut])
            assert found == whole
            raise CorruptTable("cut behind the last block")


def test_statistics_are_in_one_order_whether_a_commit_has_them_at_hand_or_reads_them() -> None:
    """In the pointer they are in the order of columns, once read back in that of field ids."""

    def manifest(order: Sequence[int]) -> bytes:
        found = {n: Bounds(lower=bytes([n]), upper=bytes([n]), nulls=n, nans=0) for n in order}
        data, _ = encode_manifest(
            [Entry(path="a.parquet", size=1, rows=1, bounds=found)],
            path="m.avro",
            spec=UNPARTITIONED,
            schema={"schema-id": 0},
            content=0,
            version=1,
            snapshot_id=1,
            format_version=3,
            sync=bytes(16),
        )
        return data

    assert manifest([1, 18, 2]) == manifest([1, 2, 18])


def test_a_result_is_of_numbers_and_names(tmp_path: Path) -> None:
    """It is printed, logged and shown in notebooks: nothing of what was published is in it."""
    table = inlay.create(tmp_path / "t", pa.table({"id": [1]}))
    result = table.publish()
    assert all(isinstance(value, int | str) for value in asdict(result).values())
    assert "metadata-location" not in result._repr_html_()

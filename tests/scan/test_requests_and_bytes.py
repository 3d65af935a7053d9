"""What a scan asks of the store, request by request and byte by byte."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from inlay.errors import SnapshotGone, SourceChanged, UnreadableFile
from inlay.format.entry import DataFile, KeyRange, Keys, Marker, Rows, Vector, Where
from inlay.format.predicate import And, Comparison, In, Literal, Predicate
from inlay.format.schema import Primitive, Schema
from inlay.ops.cache import ObjectCache
from inlay.parquet.arrow.expression import ExpressionFilter
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.footer.fields import OffsetIndex, PageLocation
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.footer.thrift import decode_struct
from inlay.parquet.read.data_file import chunk_range, tail_bytes
from inlay.parquet.read.ranges import GAP_BYTES, SMALL_OBJECT_BYTES, Objects
from inlay.parquet.read.reader import Ahead, Reader
from inlay.parquet.read.selection import Projection
from inlay.plan.scan import FileTask
from inlay.storage.base import Location

LONG = Primitive("int64")
ROWS, GROUP = 120_000, 40_000


def noise(rows: int) -> pa.Array:
    """Strings that do not compress: a chunk of them is longer than any gap."""
    width = 16
    data = os.urandom(width * rows).hex()
    return pa.array([data[n * width : (n + 1) * width] for n in range(rows)])


TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "a": noise(ROWS),
        "b": noise(ROWS),
        "c": noise(ROWS),
        "flag": pa.array([n % 3 for n in range(ROWS)], pa.int64()),
    }
)
SCHEMA = schema_from_arrow(TABLE.schema)
ID, FLAG = 1, 5


@pytest.fixture
def file(lake: Any) -> DataFile:
    layout = {"row_group_rows": GROUP, "row_group_bytes": 1 << 30}
    [entry] = lake.write(TABLE, compression="none", **layout)
    assert entry.row_groups == 3 and entry.size > SMALL_OBJECT_BYTES
    lake.store.reads.clear()
    return entry  # type: ignore[no-any-return]


def equals(value: int) -> Comparison:
    return Comparison(ID, "=", Literal(LONG, value))


def chunks(lake: Any, file: DataFile, columns: list[str], groups: list[int]) -> dict[str, int]:
    """Bytes of the column chunks by name, from the file itself."""
    metadata = pq.read_metadata(pa.BufferReader(lake.body(file.key)))
    return {
        f"{name}{group}": chunk_range(
            metadata.row_group(group).column(TABLE.column_names.index(name))
        ).length
        for name in columns
        for group in groups
    }


def test_two_columns_cost_their_chunks_and_the_footer(lake: Any, file: DataFile) -> None:
    table = lake.read([file], SCHEMA, columns=["a", "c"])
    assert table.equals(TABLE.select(["a", "c"]))
    wanted = sum(chunks(lake, file, ["a", "c"], [0, 1, 2]).values())
    assert lake.store.bytes_read == wanted + file.footer_size
    # `b` is between them, and is far longer than a gap: each chunk is a separate request.
    assert min(chunks(lake, file, ["b"], [0, 1, 2]).values()) > GAP_BYTES
    assert len(lake.store.reads) == 1 + 6


def test_the_footer_is_the_first_request_and_exactly_as_long(lake: Any, file: DataFile) -> None:
    lake.read([file], SCHEMA, columns=["id"])
    first = lake.store.reads[0]
    assert (first.verb, first.bytes, first.end) == ("SUFFIX", file.footer_size, file.size)


def test_all_columns_come_with_the_footer(lake: Any, file: DataFile) -> None:
    """In one request, of a file up to the size of a unit; what is remembered of it is the footer."""
    objects = Objects(lake.store, "tables/t", ObjectCache())
    plan = lake.plan([file], SCHEMA)
    projection = Projection(schema=SCHEMA, columns=tuple(f.id for f in SCHEMA.fields))

    def read(**ahead: int) -> list[tuple[str, int]]:
        lake.store.reads.clear()
        found = Reader(objects, lake.executor, Ahead(**ahead)).rows(plan.tasks, projection)
        assert pa.Table.from_batches(found).equals(TABLE)
        return [(r.verb, r.bytes) for r in lake.store.reads]

    assert read() == [("SUFFIX", file.size)]
    assert objects.cache.held_bytes < file.size / 10
    body = chunks(lake, file, TABLE.column_names, [0, 1, 2])
    assert read() == [("GET", sum(body.values()))]
    objects = Objects(lake.store, "tables/t")
    # Not where row groups are read one by one, or fewer of them fit the budget.
    groups = [sum(v for name, v in body.items() if name.endswith(str(g))) for g in range(3)]
    one_by_one = [("SUFFIX", file.footer_size), *(("GET", size) for size in groups)]
    assert read(unit_bytes=0) == one_by_one
    assert read(budget_bytes=file.size) == one_by_one


def test_neighbouring_columns_share_a_request(lake: Any, file: DataFile) -> None:
    lake.read([file], SCHEMA, columns=["a", "b", "c"])
    wanted = [sum(chunks(lake, file, ["a", "b", "c"], [group]).values()) for group in range(3)]
    assert [r.bytes for r in lake.store.reads] == [file.footer_size, *wanted]


def tail(file: DataFile, predicate: Predicate) -> int:
    """What is fetched first of a file of which few rows may be wanted: footer and page index."""
    projection = Projection(schema=SCHEMA, columns=())
    return tail_bytes(FileTask(file=file, schema=SCHEMA, predicate=predicate), projection)


def first_page(lake: Any, file: DataFile, column: str, group: int) -> int:
    """Bytes of a chunk's dictionary and first page, which are adjacent, from its offset index."""
    body = lake.body(file.key)
    chunk = (
        decode_footer(body, file_size=file.size)
        .row_groups[group]
        .column(TABLE.column_names.index(column))
    )
    tree, _ = decode_struct(body, chunk.offset_index[0])
    return int(tree[OffsetIndex.PAGES][1][PageLocation.OFFSET]) - chunk.start


def test_a_point_lookup_reads_one_page_of_each_column_in_two_round_trips(
    lake: Any, file: DataFile
) -> None:
    table = lake.read([file], SCHEMA, columns=["id", "b"], predicate=equals(GROUP + 7))
    assert table.to_pylist() == [{"id": GROUP + 7, "b": TABLE["b"][GROUP + 7].as_py()}]
    read = [r.bytes for r in lake.store.reads]
    pages = [first_page(lake, file, name, 1) for name in ("id", "b")]
    assert read == [tail(file, equals(GROUP + 7)), *pages]
    assert tail(file, equals(GROUP + 7)) < 5 * file.footer_size
    size = chunks(lake, file, ["id", "b"], [1])
    assert sum(pages) < sum(size.values()) / 4
    lake.store.reads.clear()
    expression = ExpressionFilter(pc.field("id") == GROUP + 7, SCHEMA)
    assert lake.read([file], SCHEMA, columns=["id", "b"], where=expression).equals(table)
    assert [r.bytes for r in lake.store.reads] == read


def test_where_many_rows_survive_whole_columns_are_read(lake: Any, file: DataFile) -> None:
    # Every second row: there is no page without one.
    even = In(FLAG, LONG, (0, 2))
    table = lake.read([file], SCHEMA, columns=["b"], predicate=even)
    assert table.num_rows == ROWS * 2 // 3
    assert [r.bytes for r in lake.store.reads[-3:]] == [
        chunks(lake, file, ["b"], [group])[f"b{group}"] for group in range(3)
    ]


def test_a_file_that_cannot_match_costs_nothing(lake: Any, file: DataFile) -> None:
    assert lake.read([file], SCHEMA, predicate=equals(-1)).num_rows == 0
    assert lake.store.reads == []


def test_other_columns_are_read_only_where_rows_survive(lake: Any, file: DataFile) -> None:
    far_apart = In(ID, LONG, (3, 2 * GROUP + 3))  # `id` bounds rule the middle group out
    lake.read([file], SCHEMA, columns=["b"], predicate=far_apart)
    read = [r.bytes for r in lake.store.reads]
    pages = [first_page(lake, file, name, group) for group in (0, 2) for name in ("id", "b")]
    assert read == [tail(file, far_apart), *pages]
    lake.store.reads.clear()
    nothing = Comparison(FLAG, "=", Literal(LONG, 1))
    below = Comparison(ID, "<", Literal(LONG, 1))
    lake.read([file], SCHEMA, columns=["b"], predicate=And((nothing, below)))
    # Row 0 has flag 0: nothing survives. `b` comes along all the same, it is but a page.
    assert [r.bytes for r in lake.store.reads] == [
        tail(file, And((nothing, below))),
        first_page(lake, file, "id", 0),
        first_page(lake, file, "b", 0),
        first_page(lake, file, "flag", 0),
    ]


def test_columns_too_long_to_come_along_are_read_only_where_rows_survive(
    lake: Any, file: DataFile, monkeypatch: Any
) -> None:
    monkeypatch.setattr("inlay.parquet.read.decode.ALONG_BYTES", 1000)
    nothing = Comparison(FLAG, "=", Literal(LONG, 1))
    below = Comparison(ID, "<", Literal(LONG, 1))
    lake.read([file], SCHEMA, columns=["b"], predicate=And((nothing, below)))
    assert len(lake.store.reads) == 3
    lake.store.reads.clear()
    lake.read([file], SCHEMA, columns=["b"], predicate=below)
    assert [r.bytes for r in lake.store.reads][1:] == [
        first_page(lake, file, "id", 0),
        first_page(lake, file, "b", 0),
    ]


def test_a_limit_reads_the_first_pages(lake: Any, file: DataFile) -> None:
    plan = lake.plan([file], SCHEMA)
    projection = Projection(schema=SCHEMA, columns=(ID, 3), limit=5)
    first = next(iter(lake.reader.rows(plan.tasks, projection)))
    assert first.slice(0, 5).to_pylist() == TABLE.select(["id", "b"]).slice(0, 5).to_pylist()
    [task] = plan.tasks
    pages = [first_page(lake, file, name, 0) for name in ("id", "b")]
    assert [r.bytes for r in lake.store.reads][:3] == [tail_bytes(task, projection), *pages]


def test_a_filter_that_statistics_settle_costs_no_look(lake: Any, file: DataFile) -> None:
    from_second_group = Comparison(ID, ">=", Literal(LONG, GROUP))
    table = lake.read([file], SCHEMA, columns=["b"], predicate=from_second_group)
    assert table.num_rows == ROWS - GROUP
    size = chunks(lake, file, ["b"], [1, 2])
    assert lake.store.bytes_read == tail(file, from_second_group) + sum(size.values())


def test_deleted_row_groups_are_not_read(lake: Any, file: DataFile) -> None:
    gone = Marker(id="m", body=KeyRange(ID, None, 2 * GROUP - 1), sequence=9)
    table = lake.read([file], SCHEMA, [gone], columns=["b"])
    assert table.num_rows == GROUP
    size = chunks(lake, file, ["b"], [2])
    assert [r.bytes for r in lake.store.reads] == [file.footer_size, size["b2"]]


def test_positions_are_masked_without_reading_a_column_for_it(lake: Any, file: DataFile) -> None:
    marker = Marker(id="m", body=Rows((0, GROUP)), file=file.key, sequence=9)
    table = lake.read([file], SCHEMA, [marker], columns=["b"])
    assert table.num_rows == ROWS - 2
    wanted = sum(chunks(lake, file, ["b"], [0, 1, 2]).values())
    assert lake.store.bytes_read == file.footer_size + wanted


def test_a_vector_costs_its_own_bytes_in_the_round_trip_of_the_footer(
    lake: Any, file: DataFile
) -> None:
    from pyroaring import BitMap64

    rows = BitMap64(range(0, ROWS, 7))
    key, blobs = lake.puffin([("other", BitMap64(range(5000))), (file.key, rows)])
    body = Vector(key, blobs[1].offset, blobs[1].length, len(rows))
    table = lake.read([file], SCHEMA, [Marker(id="m", body=body, file=file.key)], columns=["id"])
    assert table.num_rows == ROWS - len(rows)
    vector = lake.store.reads[1]
    assert (vector.start, vector.bytes) == (blobs[1].offset, blobs[1].length)


def test_a_count_without_filter_reads_only_footers(lake: Any, file: DataFile) -> None:
    assert lake.read([file], SCHEMA, columns=[]) == ROWS
    assert lake.store.bytes_read == file.footer_size


def test_a_small_file_is_one_request(lake: Any) -> None:
    [small] = lake.write(TABLE.slice(0, 100))
    assert small.size <= SMALL_OBJECT_BYTES
    lake.store.reads.clear()
    assert lake.read([small], SCHEMA, predicate=equals(5)).num_rows == 1
    assert [(r.verb, r.bytes) for r in lake.store.reads] == [("SUFFIX", small.size)]


def test_footers_and_marker_objects_are_fetched_once(lake: Any, file: DataFile) -> None:
    from pyroaring import BitMap64

    key, blobs = lake.puffin([(file.key, BitMap64([1, 2, 3]))])
    body = Vector(key, blobs[0].offset, blobs[0].length, 3)
    plan = lake.plan([file], SCHEMA, [Marker(id="m", body=body, file=file.key)])
    objects = Objects(lake.store, "tables/t", ObjectCache())
    projection = Projection(schema=SCHEMA, columns=(ID,))
    for expected in (1 + 1 + 3, 3):
        lake.store.reads.clear()
        rows = sum(b.num_rows for b in Reader(objects, lake.executor).rows(plan.tasks, projection))
        assert rows == ROWS - 3
        assert len(lake.store.reads) == expected


def test_a_gone_file_is_named(lake: Any, file: DataFile) -> None:
    lake.store.delete([f"tables/t/{file.key}"])
    with pytest.raises(SnapshotGone, match=file.key):
        lake.read([file], SCHEMA)


def test_a_file_that_goes_while_it_is_read_is_named(lake: Any, file: DataFile) -> None:
    def drop_after_footer(key: str) -> None:
        if lake.store.reads:
            lake.store.delete([key])

    lake.store.before_read = drop_after_footer
    with pytest.raises(SnapshotGone, match=file.key):
        lake.read([file], SCHEMA, columns=["id"])


def test_a_file_that_changes_while_it_is_read_is_refused(lake: Any, file: DataFile) -> None:
    def change_after_footer(key: str) -> None:
        if lake.store.reads:
            lake.put(file.key, bytes(file.size))

    lake.store.before_read = change_after_footer
    with pytest.raises(SourceChanged, match=file.key):
        lake.read([file], SCHEMA, columns=["id"])


def test_an_adopted_file_is_pinned_to_its_content(lake: Any, file: DataFile) -> None:
    body = lake.body(file.key)
    elsewhere = lake.store.at("landing")
    written = elsewhere.put("ingest/t/a b.parquet", body)
    uri = Location("memory", "landing", "ingest/t/a b.parquet").uri
    adopted = replace(file, key=uri, adopted=True, etag=written.etag)
    assert lake.read([adopted], SCHEMA, columns=["id"]).num_rows == ROWS
    elsewhere.put("ingest/t/a b.parquet", body[:-1] + b"2")
    with pytest.raises(SourceChanged, match=r"a b\.parquet"):
        lake.read([adopted], SCHEMA, columns=["id"])


def test_a_damaged_page_is_an_error_that_names_the_file(lake: Any, file: DataFile) -> None:
    body = bytearray(lake.body(file.key))
    at = pq.read_metadata(pa.BufferReader(bytes(body))).row_group(1).column(2).data_page_offset
    body[at + 200 : at + 300] = bytes(100)
    lake.put(file.key, bytes(body))
    with pytest.raises(UnreadableFile, match=file.key):
        lake.read([file], SCHEMA, columns=["b"])
    assert lake.read([file], SCHEMA, columns=["a"]).num_rows == ROWS


def test_a_footer_that_contradicts_the_entry_is_refused(lake: Any, file: DataFile) -> None:
    with pytest.raises(UnreadableFile, match="120001"):
        lake.read([replace(file, rows=ROWS + 1)], SCHEMA)
    with pytest.raises(UnreadableFile, match=f"in {file.row_groups + 1}"):
        lake.read([replace(file, row_groups=file.row_groups + 1)], SCHEMA)


def test_a_missing_key_file_is_named(lake: Any, file: DataFile) -> None:
    marker = Marker(id="m", body=Keys((ID,), "tombstone/k.del", 10, 1), sequence=9)
    with pytest.raises(SnapshotGone, match=r"k\.del"):
        lake.read([file], SCHEMA, [marker])


def test_a_table_wide_delete_spares_files_committed_with_or_after_it(
    lake: Any, file: DataFile
) -> None:
    gone = Marker(id="m", body=Where(equals(5)), sequence=7)
    for sequence, rows in ((6, ROWS - 1), (7, ROWS), (8, ROWS)):
        found = lake.read([replace(file, sequence=sequence)], SCHEMA, [gone], columns=["id"])
        assert found.num_rows == rows


def test_many_files_are_read_in_order_by_threads(lake: Any, threads: Any) -> None:
    files = [lake.write(TABLE.slice(n * 1000, 1000), row_group_rows=300)[0] for n in range(20)]
    lake.executor = threads
    assert lake.read(files, SCHEMA).equals(TABLE.slice(0, 20_000))


def test_a_schema_id_of_the_entry_decides_what_its_names_mean(lake: Any) -> None:
    old = Schema(0, (SCHEMA.fields[0],))
    [written] = lake.write(TABLE.select(["id"]).slice(0, 3), old)
    renamed = Schema(1, (replace(old.fields[0], id=9), replace(old.fields[0], name="was_id")))
    found = lake.read([written], renamed, schemas=[old])
    assert found.to_pydict() == {"id": [None] * 3, "was_id": [0, 1, 2]}

"""Bytes at which a footer does not point: what appending writers left there is searched, and goes."""

from __future__ import annotations

import io
import struct

import pyarrow.parquet as pq
import pytest

import inlay.parquet.surgery.residue as residue
import inlay.plan.surgery as strategy
from inlay.format.predicate import Comparison, Like, Literal, Predicate
from inlay.format.schema import Primitive
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.parquet.footer.fields import Chunk, File, Group, Meta
from inlay.parquet.footer.footer import decode_footer, end_of_file
from inlay.parquet.footer.pages import find_gaps, read_layout
from inlay.parquet.footer.thrift import encode_struct

from .people import NAME, WHO, People, ids_with, is_named, is_who, rows
from .test_last_look import land
from .test_receipt import receipt
from .test_residue import search

NUMBER = struct.pack("<q", WHO)
OTHERS = tuple(range(20, 29))


def file_with(*ids: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows(list(ids)), sink, row_group_size=3, bloom_filter_options={"name": True})
    return sink.getvalue()


def with_gap(body: bytes, where: str, junk: bytes) -> bytes:
    """The same file with `junk` at a place that nothing points at."""
    footer = decode_footer(body, file_size=len(body))
    groups = footer.row_groups
    at = {
        "before all": 4,
        "between groups": groups[1].column(0).start,
        "within a group": groups[1].column(1).start,
        "before the filters": min(g.column(1).bloom_offset or 0 for g in groups),
        "before the footer": footer.start,
    }[where]
    for group in footer.tree[File.GROUPS]:
        if group.get(Group.FILE_OFFSET, 0) >= at:
            group[Group.FILE_OFFSET] += len(junk)
        for chunk in group[Group.COLUMNS]:
            for key in (Meta.DATA_PAGE, Meta.DICTIONARY_PAGE, Meta.BLOOM):
                if chunk[Chunk.META].get(key, 0) >= at:
                    chunk[Chunk.META][key] += len(junk)
    made = body[:at] + junk + body[at : footer.start] + end_of_file(footer.tree)
    pq.ParquetFile(io.BytesIO(made)).read()
    return made


PLACES = [
    "before all",
    "between groups",
    "within a group",
    "before the filters",
    "before the footer",
]


@pytest.fixture
def surgery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of small files."""
    monkeypatch.setattr(strategy, "SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(strategy, "rewrite_cost", lambda *_: strategy.Cost(10_000))


def bytes_with(people: People, junk: bytes) -> list[str]:
    bucket = people.store._bucket
    return [k for k, versions in bucket.versions.items() if any(junk in v.body for v in versions)]


@pytest.mark.usefixtures("surgery")
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("loses_rows", [False, True])
@pytest.mark.parametrize(
    ("junk", "predicate"),
    [
        (b"an old footer: " + NAME.encode() + b".", is_named()),
        (NAME.encode("utf-16-le"), Like(2, f"{NAME[:8]}%")),
        (b"bounds: " + NUMBER, is_who()),
        (b"as text " + str(WHO).encode(), is_who()),
    ],
    ids=["text", "utf-16", "number", "digits"],
)
def test_what_is_left_between_the_parts_of_a_file_goes(
    any_people: People, where: str, *, loses_rows: bool, junk: bytes, predicate: Predicate
) -> None:
    people = any_people
    ids = ids_with(*[WHO] * loses_rows, start=20, count=9)
    people.ingest(land(people, "a.parquet", with_gap(file_with(*ids), where, junk)))
    people.append(1, 2)
    assert bytes_with(people, junk)
    people.erase(predicate)
    assert people.finish().receipts
    assert bytes_with(people, junk) == []
    assert people.ids() == [1, 2, *OTHERS]
    assert receipt(people)["look"]["kept"] == []
    assert verify_receipt(people.ctx, "case-1").problems == ()
    foreign = [f for f in people.snapshot.files.inline if f.is_foreign]
    assert len(foreign) == 1
    made = people.store.get(people.ctx.key(foreign[0].key)).body
    assert pq.read_table(io.BytesIO(made)).equals(rows(list(OTHERS)))


@pytest.mark.usefixtures("surgery")
def test_a_gap_of_a_newer_file_is_named(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase(is_named())
    body = with_gap(file_with(*OTHERS), "within a group", NAME.encode())
    people.ingest(land(people, "new.parquet", with_gap(body, "before the footer", NAME.encode())))
    assert people.finish().receipts
    [entry] = [f for f in people.snapshot.files.inline if f.event is not None]
    assert sorted(receipt(people)["look"]["kept"]) == [
        ["file", entry.key, "gap"],
        ["file", entry.key, "gap of row group 1"],
    ]


@pytest.mark.usefixtures("surgery")
def test_a_gap_too_large_to_be_searched_goes_unread(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residue, "MAX_GAP_BYTES", 100)
    junk = b"packed " + bytes(100)
    people.ingest(land(people, "a.parquet", with_gap(file_with(*OTHERS), "between groups", junk)))
    people.erase(is_named())
    assert people.finish().receipts
    assert bytes_with(people, junk) == []
    assert people.ids() == [*OTHERS]


def test_padding_and_what_names_nobody_stays_where_it_is(people: People) -> None:
    padding = bytes([1]) * 50
    body = with_gap(file_with(*OTHERS), "between groups", padding + b"an index of mine")
    people.ingest(land(people, "a.parquet", body))
    [entry] = people.snapshot.files.inline
    # A number of equal bytes is in any padding.
    (filled,) = struct.unpack("<q", padding[:8])
    numbers = ((">", 10**6), ("=", filled))
    others = (Comparison(1, op, Literal(Primitive("int64"), n)) for op, n in numbers)
    for n, predicate in enumerate((is_named(), is_who(), *others)):
        people.erase(predicate, f"case-{n}")
        assert people.finish().receipts
    assert people.snapshot.files.inline[0].key == entry.key


def test_copies_of_column_metadata_are_not_asked_for() -> None:
    """Older versions of pyarrow leave one behind each chunk: a request for each of them would be as many as
    for all data. They say what the footer says."""
    body = file_with(*OTHERS)
    footer = decode_footer(body, file_size=len(body))
    chunk = footer.row_groups[1].column(0)
    copied = with_gap(body, "within a group", encode_struct(chunk.meta))
    footer = decode_footer(copied, file_size=len(copied))
    assert len(list(find_gaps(footer, read_layout(footer)))) == 1
    first = footer.tree[File.GROUPS][1][Group.COLUMNS][0]
    first[Chunk.FILE_OFFSET] = chunk.end
    assert list(find_gaps(footer, read_layout(footer))) == []
    assert search(copied, is_named()).residues == ()

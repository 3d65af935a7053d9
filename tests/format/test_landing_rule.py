"""What a landed object is: the table of conventions, and the examples of the page."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.landing_examples import EXAMPLES, rows

from inlay.format.landing import (
    CONVENTIONS,
    IGNORED,
    Convention,
    LandedKind,
    convention_of,
    landed_object,
)

# As producers name what they write; none of them has another meaning.
DATA = (
    "part-00000-5f-c000.snappy.parquet",
    "run/part-0.parquet",
    "day=2026-11-25/region=eu/0000_part_00.parquet",
    "firehose-1-2026-11-25-10-00-00-5f",
    "2026/11/25/10/inlay-1-2026-11-25-10-00-00-5f.parquet",
    "000000_0",
    "orders.PARQUET",
    "orders+0+0000000000.parquet",
    "LOAD00000001.parquet",
    "a.b/c d/é+1%.parquet",
    "export.tmp/orders.parquet",
    "manifest-of-goods.parquet",
    "success/ok.parquet",
    "tmp_orders/part-0.parquet",
    "beam-temp.parquet",
    "2026-deletes.parquet",
    "topics/orders+0+0000000000.snappy.parquet",
    "data_0_0_0.snappy.parquet",
    "orders.tmp_2/0.parquet",
    "results/orders_2026.parquet",
    "../orders.parquet",
    "data_0_0_0.snappy.parquet",
    "000000000000.parquet",
    "2026_11_25_1764064800_0.parquet",
    "part-00000-of-00010.parquet",
    "run-1764064800-part-r-00000.snappy.parquet",
    "orders.parquet.5",
    "orders.v2.parquet",
    "old/orders.parquet",
    "bak.parquet",
    "checkpoint/orders.parquet",
    "20261125_101010_00001_abcde-0a1b.parquet",
    "ducklake-019a5c1e-7d2f-7e30-b1a5-0c2d4e6f8a9b.parquet",
    "bucket-0/changelog-5f0c1a9e-7d2f-4e30-b1a5-0c2d4e6f8a9b-0.parquet",
    "run-AmazonS3_node17-3-part-block-0-r-00000-snappy.parquet",
    "orders-bulk-delete.parquet",
    "orders_distcpSplit_0.parquet",
    "Zoe\u0308/cafe\u0301%2B+ \n.parquet",
)


@pytest.mark.parametrize(("convention", "example"), EXAMPLES, ids=[e for _, e in EXAMPLES])
def test_each_example_is_of_its_convention(convention: Convention, example: str) -> None:
    assert convention_of(example) is convention
    assert convention_of(f"year=2026/{example}") is convention
    by_name = landed_object(example, size=100)
    assert by_name.is_ignored == (convention.kind in IGNORED)
    assert by_name.kind == (convention.kind if by_name.is_ignored else LandedKind.DATA)
    by_content = landed_object(example, size=100, head=b"junk", tail=b"junk")
    assert by_content.kind in (convention.kind, LandedKind.FOREIGN)


@pytest.mark.parametrize("path", DATA)
def test_what_producers_call_data_is_read(path: str) -> None:
    assert convention_of(path) is None
    assert landed_object(path, size=100).kind is LandedKind.DATA
    assert landed_object(path, size=0).kind is LandedKind.MARKER


def test_there_are_conventions_of_twenty_producers_and_more() -> None:
    producers = {p for c in CONVENTIONS for p in c.producer.replace(";", ",").split(",")}
    assert len(producers - {"everyone"}) >= 20
    assert len(EXAMPLES) >= 44


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), sink)
    return sink.getvalue()


BODIES = {
    "Parquet": (parquet(), LandedKind.DATA),
    "cut short": (parquet()[:-9], LandedKind.DAMAGED),
    "without its beginning": (parquet()[9:], LandedKind.DAMAGED),
    "encrypted": (b"PARE" + parquet()[4:-4] + b"PARE", LandedKind.DAMAGED),
    "text": (b"id;name\n1;ada\n", LandedKind.FOREIGN),
    "gzip": (b"\x1f\x8b\x08\x00rest", LandedKind.FOREIGN),
    "ORC": (b"ORC....ORC", LandedKind.FOREIGN),
    "Avro": (b"Obj\x01....", LandedKind.FOREIGN),
    "one byte": (b"x", LandedKind.FOREIGN),
}


@pytest.mark.parametrize("name", BODIES)
def test_what_is_read_is_judged_by_its_ends(name: str) -> None:
    body, kind = BODIES[name]
    for head, tail in ((body[:16], body[-16:]),):
        assert landed_object("orders", size=len(body), head=head, tail=tail).kind is kind
        # The name says what is missing, never that it is data.
        named = landed_object("orders.parquet", size=len(body), head=head, tail=tail).kind
        by_magic = kind is not LandedKind.FOREIGN or name in ("gzip", "ORC", "Avro")
        assert named is (kind if by_magic else LandedKind.DAMAGED)
        hidden = landed_object("_orders", size=len(body), head=head, tail=tail)
        assert hidden.kind is LandedKind.MARKER


@given(
    path=st.text(max_size=40),
    size=st.none() | st.integers(0, 10**13),
    head=st.none() | st.binary(max_size=16),
    tail=st.none() | st.binary(max_size=16),
)
def test_every_object_has_one_kind_and_what_its_name_excludes_no_content_admits(
    path: str, size: int | None, head: bytes | None, tail: bytes | None
) -> None:
    by_name = landed_object(path, size=size)
    found = landed_object(path, size=size, head=head, tail=tail)
    assert found.reason
    assert found.is_ignored == by_name.is_ignored
    if size == 0:
        assert found.is_ignored
    if found.kind is LandedKind.DATA and (head, tail) != (None, None):
        assert tail is not None and tail.endswith(b"PAR1")


def test_the_page_lists_every_convention_in_order_with_examples() -> None:
    listed = [tuple(row[:3]) for row in rows()]
    assert listed == [(c.kind.value, c.producer, c.what) for c in CONVENTIONS]
    assert {convention for convention, _ in EXAMPLES} == set(CONVENTIONS)

"""Landed objects that ingestion will never take: none keeps an erasure open, and the receipt lists them."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.landing_examples import EXAMPLES

from inlay.errors import InvalidRequest
from inlay.ops.commit.driver import commit
from inlay.ops.erase import landed_search
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.ops.erase.receipt import MAX_NAMED
from inlay.ops.erase.request import erase_status
from inlay.ops.erase.waive import waive_landed
from inlay.ops.schema.alter import alter, evolution_of
from inlay.ops.write.ingest import Duplicate, Ingested, Rejected
from inlay.plan.change import Change, SetProperties

from .oracle import Secret
from .people import NAME, WHO, People, ids_with, is_named, new_people, rows
from .test_foreign_statistics import with_bounds
from .test_last_look import land
from .test_receipt import receipt

ZONE = "ingest/people/"


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    # No byte of a value as it is.
    pq.write_table(table, sink, compression="gzip", write_statistics=False)
    return sink.getvalue()


def wider(*ids: int) -> bytes:
    """A file that the table refuses: it has a column more."""
    return parquet(rows(list(ids)).append_column("more", pa.array([1] * len(ids))))


def erased(people: People, **options: Any) -> dict[str, Any]:
    people.append(*ids_with(WHO))
    people.erase(is_named(), **options)
    assert people.finish().receipts
    return receipt(people)


@pytest.mark.parametrize("body", [b"", b"junk", f"mail of {NAME}".encode()], ids=repr)
def test_no_convention_of_a_producer_keeps_an_erasure_open(people: People, body: bytes) -> None:
    examples = [example for _, example in EXAMPLES]
    for example in examples:
        people.store.put(f"{ZONE}{example}", body)
    look = erased(people)["look"]
    assert sum(look["landed_searched"].values()) == len(examples)
    named = {row[0] for row in look["landed"] if row[2] == "names"}
    held = {f"{ZONE}{e}" for e in examples} if b"mail" in body else set()
    assert look["landed_count"] == len(held) and named <= held
    assert len(named) == min(MAX_NAMED, len(held))
    assert {o.key for o in people.store.list(ZONE)} == {f"{ZONE}{e}" for e in examples}


HOLDING = {
    "text": ("a.csv", f"id;name\n7;{NAME}\n".encode(), "its content"),
    "JSON": ("a.json", json.dumps({"name": NAME}).encode(), "its content"),
    "gzip": ("a.csv.gz", gzip.compress(f"1;{NAME}".encode(), mtime=0), "its content, decompressed"),
    "two members": (
        "a.gz",
        gzip.compress(b"x", mtime=0) + gzip.compress(NAME.encode(), mtime=0),
        "decompressed",
    ),
    "a refused file": ("a.parquet", wider(WHO, 1), "its rows"),
    "under a temporary name": ("a.parquet.tmp", parquet(rows([WHO])), "its rows"),
    "a damaged file": ("a.parquet", f"PAR1{NAME}".encode(), "its content"),
    "behind the first window": (
        "a.log",
        b"." * (landed_search._WINDOW_BYTES - 5) + NAME.encode(),
        "its content",
    ),
}


@pytest.mark.parametrize("how", HOLDING)
def test_what_names_the_person_is_listed_and_stays(people: People, how: str) -> None:
    name, body, where = HOLDING[how]
    people.store.put(f"{ZONE}{name}", body)
    people.store.put(f"{ZONE}other-{name}", body.replace(NAME.encode(), b"nobody"))
    [[key, kind, said, place]] = erased(people)["look"]["landed"][:1]
    assert (key, said) == (f"{ZONE}{name}", "names") and where in place
    assert people.store.get(f"{ZONE}{name}").body == body
    [line] = [n for n in verify_receipt(people.ctx, "case-1").named if f"{ZONE}{name} " in n]
    assert kind in line and "names what was erased" in line


def test_a_key_that_is_the_persons_name_is_withheld(people: People) -> None:
    people.store.put(f"{ZONE}{NAME}.csv", b"")
    [row] = erased(people)["look"]["landed"]
    assert NAME not in json.dumps(row) and row[2:] == ["names", "its key"]


def test_metadata_of_an_empty_object_is_searched(people: People) -> None:
    land(people, "_SUCCESS", b"", metadata={"of": NAME})
    [row] = erased(people)["look"]["landed"]
    assert row == [f"{ZONE}_SUCCESS", "marker", "names", "its metadata"]


@pytest.mark.parametrize(
    "body",
    [
        b"." * (landed_search.MAX_SEARCHED_BYTES + 1),
        gzip.compress(b"." * (landed_search.MAX_SEARCHED_BYTES + 1), mtime=0),
        gzip.compress(b"whole", mtime=0)[:-9],
        parquet(pa.table({"x": pa.nulls(landed_search._MAX_VALUES + 1)})),
        b"\x28\xb5\x2f\xfd" + bytes(20),
        gzip.compress(gzip.compress(NAME.encode(), mtime=0), mtime=0),
        gzip.compress(b"\x28\xb5\x2f\xfd" + bytes(20), mtime=0),
        b"ORC" + bytes(20),
        b"PK\x03\x04" + bytes(20),
        b"PARE" + bytes(20) + b"PARE",
    ],
    ids=[
        "long",
        "long once decompressed",
        "cut short",
        "many values",
        "zstd",
        "gzip twice",
        "zstd in gzip",
        "ORC",
        "ZIP",
        "encrypted",
    ],
)
def test_what_cannot_be_searched_to_its_end_is_listed_as_uncertain(
    people: People, body: bytes
) -> None:
    people.store.put(f"{ZONE}a.bin", body)
    [row] = erased(people)["look"]["landed"]
    assert row[2] == "perhaps"


def test_a_refused_file_does_not_come_in_after_the_receipt(people: People) -> None:
    """The table gets the column that it lacked, and the sweep sends the event again."""
    location = land(people, "a.parquet", wider(WHO, 100))
    clean = land(people, "b.parquet", wider(101))
    erased(people)
    schema = people.snapshot.schema
    alter(people.ctx, evolution_of(schema, add={"more": pa.int64()}))
    [outcome] = people.ingest(location).outcomes
    assert isinstance(outcome, Duplicate)
    [outcome] = people.ingest(clean).outcomes
    assert isinstance(outcome, Ingested)
    assert people.ids() == [*range(10), 101]


def test_a_file_that_is_refused_by_its_rows_does_not_hold_the_erasure(people: People) -> None:
    """Its statistics leave out the person's row, and it is too large to be written again."""
    commit(
        people.ctx, Change(operation="set", updates=(SetProperties({"ingest.split_bytes": "0"}),))
    )
    location = land(people, "lies.parquet", with_bounds(parquet(rows([1, WHO])), 1, 5))
    [outcome] = people.ingest(location).outcomes
    assert isinstance(outcome, Rejected)
    [row] = erased(people)["look"]["landed"]
    assert row == [location.key, "data", "names", "its rows"]


def test_a_pending_file_whose_folder_says_what_the_condition_selects_is_waited_for(
    people: People,
) -> None:
    commit(
        people.ctx, Change(operation="set", updates=(SetProperties({"ingest.folders": "text"}),))
    )
    people.append(*ids_with(WHO))
    body = parquet(rows([100, 101]).drop_columns(["name"]))
    location = land(people, f"name={NAME}/a.parquet", body)
    people.erase(is_named())
    assert people.finish().receipts == ()
    people.ingest(location)
    assert people.finish().receipts
    assert people.ids() == list(range(10))
    assert people.found(Secret(NAME)) == []


# -- waivers --------------------------------------------------------------------------------------


def test_an_operator_waives_a_pending_object_on_the_record(people: People) -> None:
    pending = people.land("pending.parquet", *ids_with(WHO, start=20))
    people.append(*ids_with(WHO))
    people.erase()
    assert people.finish().receipts == ()
    with pytest.raises(InvalidRequest, match="reason"):
        waive_landed(people.ctx, pending.key, reason=" ")
    assert waive_landed(people.ctx, pending.key, reason="decided by the DPO") == ("case-1",)
    assert not [w for e in erase_status(people.ctx) for w in e.waiting if "waits" in w.reason]
    assert people.finish().receipts
    body = receipt(people)
    assert [w["reason"] for w in body["waived"]] == ["decided by the DPO"]
    assert body["look"]["landed"] == [[pending.key, "data", "waived", "by an operator"]]
    # It stays, and no event brings her rows back.
    [outcome] = people.ingest(pending).outcomes
    assert isinstance(outcome, Duplicate)
    assert people.ids() == list(range(10))


def test_nothing_is_waived_that_is_not_waited_for(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase()
    with pytest.raises(InvalidRequest, match="no open erasure waits"):
        waive_landed(people.ctx, f"{ZONE}a.parquet", reason="because")


def test_in_a_shared_pass_each_receipt_has_its_own_findings(people: People) -> None:
    people.append(*ids_with(WHO))
    for name in (NAME, "name 1"):
        people.store.put(f"{ZONE}{len(name)}.csv", f"x;{name};y".encode())
    people.erase(is_named())
    people.erase(is_named("name 1"), "case-2")
    assert len(people.finish().receipts) == 2
    for request, name in (("case-1", NAME), ("case-2", "name 1")):
        [row] = receipt(people, request)["look"]["landed"]
        assert row[0] == f"{ZONE}{len(name)}.csv"


# -- a producer who wants to stop receipts --------------------------------------------------------

NAMES = st.sampled_from(
    ["a.parquet", "_SUCCESS", "x/", "a.parquet.tmp", "a.csv", "b", "a.parquet.gz", "manifest"]
)
JUNK = st.sampled_from(
    [
        b"",
        b"x",
        b"PAR1",
        b"PAR1PAR1",
        b"PARE",
        NAME.encode(),
        wider(WHO),
        wider(1),
        b"\x1f\x8b",
        b"{",
    ]
) | st.binary(max_size=64)


@settings(deadline=None, max_examples=25)
@given(puts=st.lists(st.tuples(NAMES, JUNK), max_size=6), versioned=st.booleans())
def test_no_put_of_junk_stops_a_receipt(puts: list[tuple[str, bytes]], versioned: bool) -> None:
    people = new_people(versioned=versioned)
    people.append(*ids_with(WHO))
    for name, body in puts:
        people.store.put(f"{ZONE}{name}", body)
    people.erase(is_named())
    assert people.finish().receipts
    assert people.ids() == list(range(10))


# -- everything at once ---------------------------------------------------------------------------

TOKENS = (Secret(NAME), Secret(WHO))


def jsonl(*ids: int) -> bytes:
    return "".join(f'{{"id": {i}, "name": "{NAME if i == WHO else i}"}}\n' for i in ids).encode()


PLANTED = {
    # what ingestion takes: gone with the erasure
    "taken/a.parquet": parquet(rows([WHO, 50])),
    "taken/b.jsonl": jsonl(WHO, 51),
    "taken/c.jsonl.gz": gzip.compress(jsonl(WHO, 52), mtime=0),
    "taken/d.csv": f"id,name\n{WHO},{NAME}\n53,x\n".encode(),
    # what it never takes: stays, and is named
    "_SUCCESS": NAME.encode(),
    "year=2026/": NAME.encode(),
    "a.parquet._COPYING_": parquet(rows([WHO])),
    "_delta_log/00000000000000000000.json": json.dumps({"add": NAME}).encode(),
    "a.avro": b"Obj\x01" + NAME.encode(),
    "a.parquet.gz": gzip.compress(parquet(rows([WHO])), mtime=0),
    "refused.parquet": wider(WHO, 1),
    "damaged.parquet": f"PAR1{NAME}".encode(),
    "refused.jsonl": jsonl(WHO) + b"{",
    "a.xml": f"<name>{NAME}</name>".encode(),
}


@pytest.mark.parametrize("versioned", [False, True])
def test_after_the_receipt_every_byte_of_her_is_in_an_object_that_it_names(versioned: bool) -> None:
    """Planted in every kind of landed object, beside the same of nobody, then searched byte by byte."""
    people = new_people(versioned=versioned)
    formats = {"ingest.formats": "parquet,csv,json"}
    commit(people.ctx, Change(operation="set", updates=(SetProperties(formats),)))
    people.append(*ids_with(WHO))
    for name, body in PLANTED.items():
        location = land(people, name, body)
        if name.startswith("taken/"):
            assert isinstance(people.ingest(location).outcomes[0], Ingested), name
    assert len(people.found(*TOKENS)) > len(PLANTED)
    people.erase(is_named())
    assert people.finish().receipts
    assert people.ids() == [*range(10), 50, 51, 52, 53]
    named = {row[0] for row in receipt(people)["look"]["landed"] if row[2] == "names"}
    assert named == {f"{ZONE}{name}" for name in PLANTED if not name.startswith("taken/")}
    left = {place.partition(" (")[0].partition("@")[0] for place in people.found(*TOKENS)}
    assert left <= named, left - named
    for version in people.store.list_versions(people.ctx.key("")):
        assert not any(place.startswith(version.key) for place in people.found(*TOKENS))


# -- keys of every spelling -----------------------------------------------------------------------

SPELLINGS = (
    "a\nb.parquet",
    "100%.parquet",
    "%2Fa%00.parquet",
    "a+b c.parquet",
    "caf\u00e9.parquet",
    "cafe\u0301.parquet",
    "\u202egnp.parquet",
    "/a.parquet",
    "a//b.parquet",
    "./../a.parquet",
    "\\a\\b.parquet",
    "*.parquet",
    f"{'d/' * 400}a.parquet",
    f"{'k' * 900}.parquet",
    "'; DROP TABLE people; --.parquet",
    '{"key": 1}.parquet',
)


def test_a_key_of_any_spelling_comes_in_once_and_goes_with_the_erasure() -> None:
    """No key keeps a receipt, is taken for another, or is left."""
    people = new_people(versioned=True)
    people.append(*ids_with(WHO))
    for n, spelling in enumerate(SPELLINGS):
        location = land(people, spelling, parquet(rows([WHO, 100 + n])))
        assert isinstance(people.ingest(location).outcomes[0], Ingested), spelling
        assert isinstance(people.ingest(location).outcomes[0], Duplicate), spelling
    people.erase(is_named())
    assert people.finish().receipts
    assert people.ids() == [*range(10), *range(100, 100 + len(SPELLINGS))]
    assert people.found(*TOKENS) == [] and [*people.store.list_versions(ZONE)] == []

"""What an erasure does not rewrite, because it is a name, is found and named; nothing else stays."""

from __future__ import annotations

import base64
import io
import json
from decimal import Decimal
from typing import Any
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
import inlay.plan.surgery as strategy
from inlay.format.predicate import Comparison, Like, Literal, Predicate
from inlay.format.schema import Primitive
from inlay.format.snapshot import Ref
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.ops.erase.last_look import WITHHELD
from inlay.ops.refs import branch
from inlay.plan.pruning.literals import texts_of
from inlay.plan.pruning.mentions import names_any
from inlay.storage.base import Location
from inlay.table import Table

from .oracle import Secret
from .people import NAME, WHO, People, ids_with, is_named, rows
from .test_receipt import receipt

BY_PATH = f"else/mail={NAME}/a.parquet"


def table(people: People) -> Table:
    return inlay.open(people.ctx.uri, context=people.ctx)


def adopt(people: People, key: str, *ids: int) -> None:
    people.time.sleep(1)
    sink = io.BytesIO()
    pq.write_table(rows(list(ids)), sink, row_group_size=4)
    people.store.put(key, sink.getvalue())
    people.ingest(Location("memory", "b", key), adopt=True)


def in_the_table(people: People, *secrets: Secret) -> list[str]:
    return [found for found in people.found(*secrets) if "else/" not in found.split(" (")[0]]


@pytest.fixture
def surgery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of small files."""
    monkeypatch.setattr(strategy, "SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(strategy, "rewrite_cost", lambda *_: strategy.Cost(10_000))


@pytest.mark.usefixtures("surgery")
@pytest.mark.parametrize("path", [BY_PATH, f"else/mail={quote(NAME + '@x')}/a.parquet"])
@pytest.mark.parametrize("tagged", [False, True])
def test_the_key_of_an_adopted_file_goes_with_the_rows_that_it_held(
    any_people: People, path: str, tagged: bool
) -> None:
    """Surgery left rows of it, and its output's entry named it as its origin."""
    people = any_people
    adopt(people, path, *ids_with(WHO, start=20))
    if tagged:
        branch(people.ctx, "before", Ref(kind="tag", version=people.snapshot.version))
    people.erase(is_named())
    assert people.finish().receipts
    assert in_the_table(people, Secret(NAME)) == []
    [entry] = people.snapshot.files.inline
    assert entry.is_foreign and entry.origin == ""
    assert people.ids() == list(range(20, 30))
    assert receipt(people)["look"]["kept"] == []
    # It is still read, changed, and compared with later versions like any other.
    version = people.snapshot.version
    people.delete(Comparison(1, "=", Literal(Primitive("int64"), 21)), mode="surgery")
    found = table(people).changes(version).to_arrow().to_pylist()
    assert [(each["_change_type"], each["id"]) for each in found] == [("delete", 21)]
    people.erase(Comparison(1, "=", Literal(Primitive("int64"), 22)), "case-2")
    assert people.finish().receipts
    assert people.ids() == [20, *range(23, 30)]


def test_a_key_that_the_table_uses_where_it_is_stays_and_is_named(people: People) -> None:
    people.append(*ids_with(WHO))
    adopt(people, BY_PATH, *range(20, 30))
    people.erase(is_named())
    assert people.finish().receipts
    kept = receipt(people)["look"]["kept"]
    assert kept == [["file", WITHHELD, "the key of an adopted file"]]
    held = {found.split("@")[0] for found in in_the_table(people, Secret(NAME))}
    assert not any("/erasure/" in key or "/evidence/" in key for key in held)


def test_a_list_names_no_file_that_is_not_the_tables(people: People) -> None:
    """A later erasure of somebody else could not take the key out of it."""
    people.append(*ids_with(WHO))
    adopt(people, "else/mail=Bob/a.parquet", *range(20, 30))
    people.erase()
    assert people.finish().receipts
    written = [o.key for o in people.store.list("tables/people/e")]
    assert len(written) > 3
    assert all(b"Bob" not in people.store.get(key).body for key in written)


@pytest.mark.parametrize("predicate", [is_named(), Like(2, f"{NAME}%"), is_named(f"{NAME}")])
def test_names_in_the_tables_own_metadata_are_named(people: People, predicate: Predicate) -> None:
    people.append(*ids_with(WHO))
    t = table(people)
    t.alter(add={f"of {NAME}": pa.string()})
    t.alter(comment={"city": f"as {NAME} had it"})
    t.set_properties(**{"my.owner": NAME, f"my.{NAME}": "1", "my.other": "Ada"})
    t.refs.branch(f"for-{NAME}")
    t.refs.tag(f"by-{NAME}")
    people.erase(predicate)
    assert people.finish().receipts
    assert sorted(receipt(people)["look"]["kept"]) == [
        ["branch", WITHHELD, "its name"],
        ["column", WITHHELD, "its name"],
        ["column", "city", "its comment"],
        ["property", WITHHELD, "of the table"],
        ["property", "my.owner", "of the table"],
        ["tag", WITHHELD, "its name"],
    ]
    held = {found.split("@")[0] for found in people.found(Secret(NAME))}
    assert held
    assert not any("/erasure/" in key or "/evidence/" in key for key in held)


def test_a_declared_type_that_is_called_by_a_value_is_named(people: People) -> None:
    """The table keeps what Arrow says of an extension type, Base64 and all."""
    people.append(*ids_with(WHO))
    table(people).alter(add={"more": pa.opaque(pa.string(), NAME, "somebody")})
    people.erase(is_named())
    assert people.finish().receipts
    assert receipt(people)["look"]["kept"] == [["property", "arrow.types", "of the table"]]


def test_what_somebody_puts_beside_receipts_holds_nothing_up_and_is_named(people: People) -> None:
    people.append(*ids_with(WHO))
    theirs = ["erasure/notes.txt", "evidence/99999999-look-x.json", "evidence/notes.json"]
    for key in theirs:
        people.store.put(f"tables/people/{key}", NAME.encode())
    people.erase(is_named())
    assert people.finish().receipts
    unknown = receipt(people)["unknown_objects"]
    assert sorted(key for key, *_ in unknown["objects"]) == theirs
    held = {found.split("@")[0] for found in people.found(Secret(NAME))}
    assert held == {f"tables/people/{key}" for key in theirs}
    assert verify_receipt(people.ctx, "case-1").problems == ()


def test_a_receipt_counts_those_of_other_erasures(people: People) -> None:
    people.append(*ids_with(WHO, 500))
    people.erase(Comparison(1, "=", Literal(Primitive("int64"), 500)), "case-0")
    assert people.finish().receipts
    assert receipt(people, "case-0")["older_receipts"] == 0
    people.erase()
    assert people.finish().receipts
    before = len(list(people.store.list("tables/people/evidence/")))
    counted = receipt(people)["older_receipts"]
    # Its receipt, its lists, and its pass, which is written after the receipt.
    mine = 2 + len([*receipt(people)["gone"], receipt(people)["left"], receipt(people)["look"]])
    assert counted == before + 2 - mine > 0
    assert any("were not searched" in line for line in verify_receipt(people.ctx, "case-1").named)


TEXT = "ädä+1@example.org"
RAW = TEXT.encode()


def spelled(body: bytes) -> dict[str, bytes]:
    found = {"Base64": base64.b64encode(body), "Base64 of URLs": base64.urlsafe_b64encode(body)}
    return found | {
        "Base64, unpadded": found["Base64"].rstrip(b"="),
        "Base64 within JSON": json.dumps({"a": [found["Base64"].decode()]}).encode(),
    }


SPELLED: dict[str, bytes] = {
    "as it is": RAW,
    "JSON": json.dumps(TEXT).encode(),
    "JSON in JSON": json.dumps(json.dumps({"a": TEXT})).encode(),
    "URL": quote(TEXT, safe="").encode(),
    "form": quote_plus(TEXT).encode(),
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-16, at an odd place": b"x" + TEXT.encode("utf-16-be"),
    "hexadecimal": b"\\x" + RAW.hex().encode(),
    "HEXADECIMAL": RAW.hex().upper().encode(),
    **{f"{how} at {n}": each for n in range(4) for how, each in spelled(b"\xfe" * n + RAW).items()},
    **{f"{how} of UTF-16": each for how, each in spelled(b"x" + TEXT.encode("utf-16-le")).items()},
    **{f"{how} of JSON": each for how, each in spelled(json.dumps(TEXT).encode()).items()},
}


@pytest.mark.parametrize("how", SPELLED)
def test_a_value_is_found_however_it_is_written(how: str) -> None:
    value = SPELLED[how]
    assert names_any(value, [TEXT])
    assert names_any(b"before " + value + b" after", [TEXT])
    assert not names_any(value, ["ada+1@example.org"])


def test_letters_without_latin_are_found_as_utf_16() -> None:
    assert names_any("Анна Каренина".encode("utf-16-be"), ["Каренина"])


@pytest.mark.usefixtures("surgery")
@pytest.mark.parametrize("how", ["URL", "UTF-16", "hexadecimal", "Base64 within JSON at 1"])
def test_a_pair_that_names_it_in_another_spelling_goes(people: People, how: str) -> None:
    sink = io.BytesIO()
    pairs: dict[Any, Any] = {"enc": SPELLED[how], "other": b"stays"}
    found = rows([1, 2, 3]).set_column(1, "name", pa.array(["a", TEXT, "c"]))
    pq.write_table(found.replace_schema_metadata(pairs), sink, row_group_size=1)
    people.store.put("ingest/people/x.parquet", sink.getvalue())
    people.time.sleep(1)
    people.ingest(Location("memory", "b", "ingest/people/x.parquet"))
    people.erase(is_named(TEXT))
    assert people.finish().receipts
    [entry] = people.snapshot.files.inline
    body = people.store.get(people.ctx.key(entry.key)).body
    assert set(pq.read_metadata(io.BytesIO(body)).metadata) == {b"other", b"ARROW:schema"}
    assert people.ids() == [1, 3]


def test_bytes_are_found_in_the_spellings_of_programs() -> None:
    raw = bytes(range(160, 176))
    texts = texts_of(Comparison(1, "=", Literal(Primitive("fixed", 16), raw)))
    for said in (
        "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
        "A0A1A2A3A4A5A6A7A8A9AAABACADAEAF",
        "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf",
        "{A0A1A2A3-A4A5-A6A7-A8A9-AAABACADAEAF}",
    ):
        assert names_any(said.encode(), texts)
    assert not names_any(b"a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeae", texts)


def test_long_decimals_are_found_with_and_without_their_zeros() -> None:
    value = Decimal("1234567890123456789012345678.0123456000")
    texts = texts_of(Comparison(1, "=", Literal(Primitive("decimal", 38, 10), value)))
    for said in (
        b"1234567890123456789012345678.0123456000",
        b"1234567890123456789012345678.0123456",
    ):
        assert names_any(b"x=" + said + b" ", texts)
    assert not names_any(b"x=1234567890123456789012345678.01 ", texts)


@pytest.mark.parametrize("by", ["rewrite", "surgery"])
def test_a_geoparquet_file_that_loses_rows_stays_one(
    people: People, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is written again; without the extremes of coordinates, which may have been hers. What
    another writer says of a file is searched by the next erasure, too."""
    if by == "surgery":
        monkeypatch.setattr(strategy, "SMALL_FILE_BYTES", 0)
        monkeypatch.setattr(strategy, "rewrite_cost", lambda *_: strategy.Cost(10_000))
    column = {"encoding": "WKB", "geometry_types": ["Point"], "bbox": [0, 0, WHO, 1]}
    geo = {"version": "1.1.0", "primary_column": "name", "columns": {"name": column}}
    sink = io.BytesIO()
    table = rows([*ids_with(WHO)]).replace_schema_metadata({"geo": json.dumps(geo)})
    pq.write_table(table, sink, row_group_size=3)
    people.time.sleep(1)
    people.store.put("ingest/people/geo.parquet", sink.getvalue())
    people.ingest(Location("memory", "b", "ingest/people/geo.parquet"))
    people.erase()
    assert people.finish().receipts
    [entry] = people.snapshot.files.inline
    written = pq.read_metadata(io.BytesIO(people.store.get(people.ctx.key(entry.key)).body))
    del column["bbox"]
    assert json.loads(written.metadata[b"geo"]) == geo
    assert entry.is_foreign and people.found() == []

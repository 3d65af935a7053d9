"""The bytes of transactions: frames of format version 2 as they are, and refused by who knows version 1."""

from __future__ import annotations

import pytest
from tests.transaction.conftest import leave_prepared

from inlay.errors import CorruptTable, NewerFormat
from inlay.format.codec import PREPARED, decode_frame, decode_snapshot, encode_frame
from inlay.format.transaction import (
    Decision,
    Participant,
    Prepared,
    Transaction,
    commit_id,
    decode_decision,
    decode_prepared,
    encode_decision,
    encode_prepared,
)

ID = "00000000-0000-4000-8000-000000000001"
TABLES = (
    Participant("00000000-0000-4000-8000-00000000000a", "s3://lake/tables/orders", 7),
    Participant("00000000-0000-4000-8000-00000000000b", "s3://lake/tables/stock", 3),
)
TRANSACTION = Transaction(
    id=ID,
    decision=f"s3://lake/tables/orders/transaction/{ID}.json",
    began_us=1_780_000_000_000_000,
    deadline_us=1_780_000_010_000_000,
    participants=TABLES,
)
BOTH = (
    '[["00000000-0000-4000-8000-00000000000a","s3://lake/tables/orders",7],'
    '["00000000-0000-4000-8000-00000000000b","s3://lake/tables/stock",3]]'
)
HEAD = (
    f'{{"inlay":2,"kind":"prepared","transaction":"{ID}",'
    f'"decision":"s3://lake/tables/orders/transaction/{ID}.json",'
    f'"began_us":1780000000000000,"deadline_us":1780000010000000,"tables":{BOTH}'
)
# Golden: never generated again.
GOLDEN = {
    "prepared": (
        Prepared(TRANSACTION, b"one", b"\x1f\x8btwo"),
        f'{HEAD},"current":"b25l","pending":"H4t0d28","digest":"1cd8d74f43a0b3b0"}}\n',
    ),
    "read": (
        Prepared(TRANSACTION, b"one", None),
        f'{HEAD},"current":"b25l","digest":"cfae723988a60624"}}\n',
    ),
}
DECISIONS = {
    True: f'{{"inlay":2,"kind":"decision","transaction":"{ID}","committed":true,"tables":{BOTH},'
    '"digest":"31ddf69248d6486e"}\n',
    False: f'{{"inlay":2,"kind":"decision","transaction":"{ID}","committed":false,"tables":{BOTH},'
    '"digest":"41b096c19db8d5e5"}\n',
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_prepared_frame_is_these_bytes(name):
    value, text = GOLDEN[name]
    assert encode_prepared(value) == text.encode()
    assert decode_prepared(text.encode(), key="k") == value
    assert text.encode().startswith(PREPARED)


@pytest.mark.parametrize("committed", [True, False])
def test_a_decision_is_these_bytes(committed):
    decision = Decision(ID, committed, TABLES)
    assert encode_decision(decision) == DECISIONS[committed].encode()
    assert decode_decision(DECISIONS[committed].encode(), key="k") == decision


def test_the_id_of_a_commit_says_which_transaction_made_it():
    assert commit_id(ID, TABLES[0].table_id) == "5438b749-9e50-4d7e-9284-24438e866047"


def test_what_the_table_is():
    prepared = GOLDEN["prepared"][0]
    assert prepared.resolved(False) == b"one"
    assert prepared.resolved(True) == b"\x1f\x8btwo"
    assert GOLDEN["read"][0].resolved(True) == b"one"


def test_one_who_knows_version_1_says_so():
    with pytest.raises(NewerFormat, match="format version 2; this library reads up to 1"):
        decode_frame("snapshot", GOLDEN["prepared"][1].encode(), key="_latest_manifest")


@pytest.mark.parametrize("cut", [1, 10, 100, 300])
def test_damage_is_refused(cut):
    data = GOLDEN["prepared"][1].encode()
    with pytest.raises(CorruptTable):
        decode_prepared(data[:-cut], key="k")
    with pytest.raises(CorruptTable):
        decode_prepared(data[: -cut - 20] + b"x" + data[-cut - 19 :], key="k")


@pytest.mark.parametrize(
    "decision", ["s3://lake/x", f"transaction/{ID}.json", "s3://lake/t/_latest_manifest"]
)
def test_a_decision_is_looked_for_and_written_at_no_other_name(decision):
    body = {"transaction": ID, "decision": decision, "began_us": 1, "deadline_us": 2}
    body |= {"tables": [], "current": "b25l"}
    data = encode_frame("prepared", body, plain_bytes=10_000, version=2)
    with pytest.raises(CorruptTable, match="not the name of a decision"):
        decode_prepared(data, key="k")


def test_later_parts_are_refused():
    body = {"transaction": ID, "committed": True, "tables": [], "more": 1}
    with pytest.raises(NewerFormat):
        decode_decision(encode_frame("decision", body, version=2), key="k")


def test_both_frames_are_those_of_version_1(tables, monkeypatch):
    a, b, _ = tables
    before = a._loaded.raw
    leave_prepared([a, b], monkeypatch, decided=True)
    data = a._ctx.store.get(a._ctx.key("_latest_manifest")).body
    prepared = decode_prepared(data, key="k")
    assert prepared.current == before
    assert decode_snapshot(prepared.pending, key="k").version == 3
    a.refresh()
    assert a._loaded.raw == prepared.pending
    a.append(a.scan().to_arrow().slice(0, 1))
    archive = a._ctx.store.get(a._ctx.key("manifest/v00000003.json")).body
    assert archive == prepared.pending
    # And version 1 again.
    assert a._ctx.store.get(a._ctx.key("_latest_manifest")).body == a._loaded.raw
    assert decode_snapshot(a._loaded.raw, key="k").version == 4

"""A request id belongs to one content."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import inlay
from inlay.errors import RequestReused
from inlay.format.entry import LedgerRecord
from inlay.format.properties import LEDGER_SALT
from inlay.plan.change import AlreadyApplied, Request, RequestRefused
from inlay.plan.metadata.state import look_up

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def table(request):
    return inlay.create(f"memory://bodies/{request.node.name}", SCHEMA, primary_key="id")


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.mark.parametrize("verb", ["append", "upsert"])
def test_a_reused_id_with_other_rows_is_refused_and_not_taken_for_a_repetition(table, verb):
    getattr(table, verb)(rows(1, 2), request_id="monday")
    with pytest.raises(RequestReused):
        getattr(table, verb)(rows(3), request_id="monday")
    assert table.count() == 2


def test_equal_rows_in_other_chunks_are_the_same_request(table):
    table.append(rows(1, 2), request_id="monday")
    again = table.append(pa.concat_tables([rows(1), rows(2)]), request_id="monday")
    assert not again.committed and table.count() == 2


def test_a_stream_repeats_what_was_a_table(table):
    table.append(rows(1, 2), request_id="monday")
    assert not table.append(rows(1, 2).to_reader(), request_id="monday").committed


def test_an_id_of_an_append_is_not_an_id_of_a_delete(table):
    table.append(rows(1, 2), request_id="monday")
    with pytest.raises(RequestReused):
        table.delete("id = 1", request_id="monday")


@pytest.mark.parametrize(
    ("version", "salt", "same", "other"),
    [
        (2, None, True, False),  # a library without salts wrote it: its digests can be compared
        (2, "salt:9:3", True, False),
        (3, "salt:9:3", True, True),  # had a salt that is lost: nothing can be compared
        (8, "salt:9:3", True, True),
        (9, "salt:9:3", True, False),
    ],
)
def test_contents_are_compared_by_the_salt_of_their_version(table, version, salt, same, other):
    asked, another = Request.of("r", body="x"), Request.of("r", body="y")
    state = table._loaded.state
    properties = {} if salt is None else {LEDGER_SALT: salt}
    ledger = state.snapshot.ledger
    record = LedgerRecord(asked.id, asked.body, version, 1)
    snapshot = replace(
        state.snapshot,
        version=10,
        properties=properties,
        ledger=replace(ledger, records=replace(ledger.records, inline=(record,))),
    )
    for request, applied in ((asked, same), (another, other)):
        found = look_up(replace(state, snapshot=snapshot), request)
        assert isinstance(found, AlreadyApplied if applied else RequestRefused)

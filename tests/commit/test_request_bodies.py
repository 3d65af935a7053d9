"""A request id belongs to one content."""

from __future__ import annotations

import pyarrow as pa
import pytest

import inlay
from inlay.errors import RequestReused

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

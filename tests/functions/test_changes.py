"""Records of change streams in messages to the delete queue."""

from __future__ import annotations

import json

import pyarrow as pa

import inlay

from .conftest import BUCKET, Functions, event, from_queue

URI = f"memory://{BUCKET}/tables/accounts"
KEYED = pa.schema([("id", pa.int64()), ("value", pa.string()), ("lsn", pa.int64())])


def test_a_message_of_changes_is_applied_once_where_the_table_says_how(
    functions: Functions,
) -> None:
    inlay.create(URI, KEYED, primary_key="id")
    functions.replay("delete.changes")
    assert functions.queues.errors == ["InvalidRequest"]
    t = inlay.open(URI)
    t.set_properties(**{"changes.order": "lsn", "changes.operations": "common"})
    functions.replay("delete.changes")
    functions.replay("delete.changes")
    t.refresh()
    assert t.scan().to_arrow().to_pylist() == [{"id": 1, "value": "b", "lsn": 3}]
    assert len(functions.queues.dead) == 1
    asked = json.loads(event("delete.changes")["Records"][0]["body"])
    functions.set_variable("INLAY_ERASE_QUEUE", "https://sqs/1/EraseQueue")
    functions.invoke("delete", from_queue(asked, queue="EraseQueue"))
    functions.invoke("delete", from_queue({**asked, "id": "x", "changes": [{"op": "t", "id": 1}]}))
    assert functions.queues.errors[1:] == ["NotAllowed", "InvalidRequest"]

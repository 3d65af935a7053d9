"""Messages that name several tables: one commit of all of them, or none."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.functions.conftest import ORDERS as ORDERS_FILE
from tests.functions.conftest import Functions, event
from tests.functions.test_delete import message

import inlay
from inlay.functions import deletes
from inlay.functions.tables import table_context

ORDERS = pq.read_table(pa.BufferReader(ORDERS_FILE))
ERASED = {"id": "case-7", "operations": [
    {"delete": "orders", "where": "customer_id = 7", "mode": "erase"},
    {"delete": "archive", "where": "customer_id = :c", "params": {"c": 7}, "mode": "erase"},
]}  # fmt: skip
MOVED = {"operations": [{"move": "orders", "to": "archive", "where": "customer_id = 7"}]}


def archive(**properties: str) -> inlay.Table:
    made = inlay.create("", ORDERS.schema, context=table_context("archive"), properties=properties)
    made.append(ORDERS)
    return made


def rows(name: str) -> int:
    return inlay.open("", context=table_context(name)).scan().count()


def erasures(name: str) -> list[str]:
    return [e.id for e in inlay.open("", context=table_context(name)).snapshot.erasures]


def from_queue(body: Any, name: str) -> Any:
    delivered: Any = message(body)
    delivered["Records"][0]["eventSourceARN"] = f"arn:aws:sqs:us-east-1:123456789012:{name}"
    return delivered


def test_a_person_is_erased_from_all_tables_that_a_message_names(functions: Functions) -> None:
    functions.fill_orders()
    archive()
    for _ in range(2):
        functions.invoke("delete", message(ERASED))
        assert functions.queues.errors == []
        assert (rows("orders"), rows("archive")) == (90, len(ORDERS) - 10)
        assert erasures("orders") == erasures("archive") == ["case-7"]
    asked = [json.loads(sent["MessageBody"]) for sent in functions.queues.sent]
    assert asked[:2] == [{"table": "archive"}, {"table": "orders"}]


def test_rows_are_moved_once(functions: Functions) -> None:
    functions.fill_orders()
    archive()
    before = rows("archive")
    for _ in range(2):
        functions.invoke("delete", message(MOVED))
        assert (rows("orders"), rows("archive")) == (90, before + 10)


REFUSED: dict[str, Any] = {
    "rows of the sender": [{"append": "orders", "rows": []}],
    "an update": [{"update": "orders", "set": {"amount": "0"}}],
    "a name that leaves the tables": [{"delete": "../orders", "where": "TRUE"}],
    "a name of a target that leaves them": [{"move": "orders", "to": "a/b", "where": "TRUE"}],
    "a mode of several commits": [{"delete": "orders", "where": "TRUE", "mode": "rewrite"}],
    "an unknown field": [{"delete": "orders", "where": "TRUE", "Mustermann": 1}],
    "no condition": [{"move": "orders", "to": "archive"}],
    "a table twice": [{"delete": "orders", "where": "order_id = 1"}] * 2,
    "no such table": [{"delete": "orders", "where": "TRUE"}, {"delete": "none", "where": "TRUE"}],
    "nothing": [],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_a_dead_letter_and_does_nothing(
    functions: Functions, name: str
) -> None:
    functions.fill_orders()
    archive()
    functions.invoke("delete", message({"operations": REFUSED[name]}))
    assert len(functions.queues.dead) == 1
    assert "Mustermann" not in str(functions.queues.errors)
    assert (rows("orders"), rows("archive")) == (100, len(ORDERS))


def test_what_reads_a_large_table_says_so(functions: Functions, monkeypatch) -> None:
    functions.fill_orders()
    archive()
    monkeypatch.setattr(deletes, "SMALL_TABLE_BYTES", 0)
    functions.invoke("delete", message(MOVED))
    assert functions.queues.errors == ["InvalidRequest"]
    functions.invoke("delete", message(ERASED))  # which reads nothing
    assert erasures("archive") == ["case-7"]


def test_only_the_erase_queue_may_erase_and_it_moves_nothing(
    functions: Functions, monkeypatch
) -> None:
    functions.fill_orders()
    archive()
    monkeypatch.setenv("INLAY_ERASE_QUEUE", "https://sqs.us-east-1.amazonaws.com/1/EraseQueue")
    functions.invoke("delete", from_queue(ERASED, "DeleteQueue"))
    functions.invoke("delete", from_queue(MOVED, "EraseQueue"))
    assert functions.queues.errors == ["NotAllowed", "NotAllowed"]
    assert erasures("orders") == []
    functions.invoke("delete", from_queue(ERASED, "EraseQueue"))
    assert erasures("orders") == erasures("archive") == ["case-7"]


@pytest.mark.parametrize("body", [ERASED, MOVED, {"table": "orders", **ERASED}])
def test_the_rewrite_queue_takes_none_of_it(functions: Functions, body: Any) -> None:
    functions.fill_orders()
    archive()
    [record] = event("rewrite.queue")["Records"]
    functions.invoke("rewrite", {"Records": [{**record, "body": json.dumps(body)}]})
    assert functions.queues.errors == ["InvalidRequest"]
    assert (rows("orders"), erasures("orders")) == (100, [])

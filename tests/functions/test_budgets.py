"""Time and bytes of an invocation: what is not begun comes again, and nothing is buried for it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.functions import deletes, ingest_arrivals
from inlay.functions.messages import TimeLeft, seconds_left
from inlay.functions.requests import MAX_HOPS, RewriteRequest
from inlay.functions.validation import read

from . import conftest
from .conftest import BUCKET, ORDERS, Functions, LambdaContext, event, few, fresh


class Running(LambdaContext):
    """An invocation whose time goes by with each look at the clock, `step` seconds of 300."""

    def __init__(self, step: float) -> None:
        self._left = (300 - step * n for n in itertools.count())

    def get_remaining_time_in_millis(self) -> int:  # type: ignore[override]
        return int(max(0.0, next(self._left)) * 1_000)


@pytest.mark.parametrize("seconds", [30, 300, 900])
def test_a_single_piece_of_work_has_to_finish_well_before_the_invocation_ends(seconds: int) -> None:
    class Context(LambdaContext):
        @staticmethod
        def get_remaining_time_in_millis() -> int:
            return seconds * 1_000

    # What is kept back is for the unit that was begun, and its commit.
    assert seconds / 2 <= seconds_left(Context()) <= seconds * 0.8


def batch(*bodies: Any, received: int = 1) -> dict[str, Any]:
    (record,) = event("delete.where")["Records"]
    attributes = {**record["attributes"], "ApproximateReceiveCount": str(received)}
    return {
        "Records": [
            {
                **record,
                "messageId": f"message-{at}",
                "receiptHandle": f"receipt-{at}",
                "attributes": attributes,
                "body": json.dumps(body),
            }
            for at, body in enumerate(bodies)
        ]
    }


def delete_of(order_id: int, **more: Any) -> dict[str, Any]:
    return {"table": "orders", "where": f"order_id = {order_id}", **more}


def rewrite_messages(functions: Functions) -> list[dict[str, Any]]:
    """What was sent to the rewrite queue, as its function receives it."""
    return [batch(json.loads(body)) for body in functions.queues.bodies("rewrite")]


@pytest.mark.parametrize("mode", ["rewrite", "surgery"])
def test_a_heavy_delete_goes_to_the_rewrite_function_and_delays_no_neighbour(
    functions: Functions, mode: str
) -> None:
    functions.fill_orders()
    sent = batch(delete_of(1, mode=mode), *(delete_of(n) for n in range(2, 11)))
    assert functions.invoke("delete", sent) == {"batchItemFailures": []}
    assert functions.rows() == 91
    assert functions.queues.dead == []
    [forwarded] = rewrite_messages(functions)
    assert functions.invoke("rewrite", forwarded) == {"batchItemFailures": []}
    assert functions.rows() == 90
    assert functions.queues.dead == []


def test_the_tables_own_heavy_mode_is_one_too(functions: Functions) -> None:
    functions.create_orders(**{"delete.mode": "rewrite"})
    functions.orders().append(pq.read_table(pa.BufferReader(ORDERS)))
    functions.invoke("delete", batch(delete_of(1)))
    [forwarded] = rewrite_messages(functions)
    functions.invoke("rewrite", forwarded)
    assert functions.rows() == 99
    assert functions.orders().inspect.tombstones().num_rows == 0


def test_a_condition_that_cannot_be_one_is_refused_before_it_is_forwarded(
    functions: Functions,
) -> None:
    """JSON's escapes make six bytes of a letter's two: the rewrite queue would not take the message, on no
    delivery of this one."""
    functions.fill_orders()
    sent = batch(delete_of(7))
    text = f"order_id = 5 OR status = '{'é' * 400_000}'"
    wanted = {"table": "orders", "where": text, "mode": "rewrite"}
    sent["Records"][0]["body"] = json.dumps(wanted, ensure_ascii=False)
    assert functions.invoke("delete", sent) == {"batchItemFailures": []}
    assert functions.queues.errors == ["InvalidPredicate"]
    # The longest that there can be is forwarded.
    emoji = "\U0001f600" * (64 * 1024 - 20)
    functions.invoke(
        "delete", batch(delete_of(7, id="long", mode="rewrite", where=f"status = '{emoji}'"))
    )
    assert [each["Records"][0]["messageId"] for each in rewrite_messages(functions)] == [
        "message-0"
    ]


def test_a_vector_delete_of_a_large_table_is_heavy(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions.fill_orders()
    functions.invoke("delete", batch(delete_of(1, mode="vector")))
    assert functions.rows() == 99
    monkeypatch.setattr(deletes, "SMALL_TABLE_BYTES", 100)
    functions.invoke("delete", batch(delete_of(2, mode="vector")))
    assert functions.rows() == 99
    assert len(rewrite_messages(functions)) == 1


def test_a_forwarded_delete_stays_one_request(functions: Functions) -> None:
    """Delivered and forwarded twice, it spares what was added after the first delivery."""
    functions.fill_orders()
    sent = batch({"table": "orders", "where": "customer_id = 7", "mode": "rewrite"})
    functions.invoke("delete", sent)
    functions.invoke("delete", sent)
    first, second = rewrite_messages(functions)
    functions.invoke("rewrite", first)
    functions.orders().append(pq.read_table(pa.BufferReader(ORDERS)))
    functions.invoke("rewrite", second)
    functions.invoke("rewrite", first)
    assert functions.rows() == 190
    assert functions.queues.dead == []


def test_what_time_does_not_allow_is_handed_back_and_never_buried(functions: Functions) -> None:
    functions.fill_orders()
    sent = batch(*(delete_of(n) for n in range(1, 11)))
    answer = functions.invoke("delete", sent, Running(step=40))
    left = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
    assert 0 < len(left) < 10
    assert functions.rows() == 90 + len(left)
    assert functions.queues.dead == []
    assert len(functions.queues.handed_back) == len(left)


def test_one_message_is_begun_however_little_time_there_is(functions: Functions) -> None:
    functions.fill_orders()
    answer = functions.invoke("delete", batch(delete_of(1), delete_of(2)), Running(step=1_000))
    assert len(answer["batchItemFailures"]) == 1
    assert functions.rows() == 99


def test_what_was_handed_back_most_often_has_the_first_turn(functions: Functions) -> None:
    functions.fill_orders()
    young, old = batch(delete_of(1))["Records"], batch(delete_of(2), received=4)["Records"]
    old[0]["messageId"] = "old"
    answer = functions.invoke("delete", {"Records": [*young, *old]}, Running(step=1_000))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "message-0"}]}


def landed(functions: Functions, count: int) -> dict[str, Any]:
    """`count` files of a partitioned table that span partitions, in one batch."""
    inlay.create(
        f"memory://{BUCKET}/tables/orders",
        pq.read_schema(pa.BufferReader(ORDERS)),
        partition_by=["bucket(8, customer_id)"],
    )
    return landed_files(functions, count)


def landed_files(functions: Functions, count: int) -> dict[str, Any]:
    (record,) = event("ingest.normal")["Records"]
    records = []
    for at in range(count):
        key = f"ingest/orders/{at}.parquet"
        etag = functions.store.put(key, few(10, 1_000 * at)).etag  # type: ignore[union-attr]
        news = json.loads(record["body"])
        news["Records"][0]["s3"]["object"] = {"key": key, "eTag": etag, "size": 1}
        records.append({**record, "messageId": str(at), "body": json.dumps(news)})
    return {"Records": records}


def only(sent: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    ids = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
    return {"Records": [each for each in sent["Records"] if each["messageId"] in ids]}


def test_files_that_are_cut_come_in_as_far_as_the_bytes_of_a_batch_go(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = landed(functions, 5)
    monkeypatch.setattr(ingest_arrivals, "CUT_BYTES", 2 * len(few(10, 0)) + 500)
    left, invocations = sent, 0
    while left["Records"]:
        left = only(left, functions.invoke("ingest", left))
        invocations += 1
        assert functions.rows() == 10 * (5 - len(left["Records"]))
    assert invocations == 3  # two, two, one
    assert functions.queues.sent == []
    functions.invoke("ingest", sent)
    assert functions.rows() == 50


def test_files_that_are_cut_come_in_as_far_as_the_time_goes(functions: Functions) -> None:
    sent = landed(functions, 4)
    answer = functions.invoke("ingest", sent, Running(step=1_000))
    assert len(answer["batchItemFailures"]) == 3
    assert functions.rows() == 10
    assert len(functions.queues.handed_back) == 3


def test_what_a_commit_brought_in_is_done_though_it_took_all_the_time(functions: Functions) -> None:
    """One commit takes all files that need no cutting; then there is no time left."""
    inlay.create(
        f"memory://{BUCKET}/tables/orders",
        pq.read_schema(pa.BufferReader(ORDERS)),
    )
    sent = landed_files(functions, 4)
    bad = {**sent["Records"][0], "messageId": "bad", "body": "no JSON"}
    answer = functions.invoke("ingest", {"Records": [*sent["Records"], bad]}, Running(step=1_000))
    assert answer["batchItemFailures"] == []
    assert functions.rows() == 40
    assert functions.queues.handed_back == []
    assert functions.queues.errors == ["InvalidRequest"]


def test_an_event_without_a_queue_is_for_its_sender_to_repeat(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = landed(functions, 2)
    monkeypatch.setattr(ingest_arrivals, "CUT_BYTES", 1)
    news = [json.loads(each["body"])["Records"][0] for each in sent["Records"]]
    with pytest.raises(Exception, match="budget"):
        functions.invoke("ingest", {"Records": news})
    assert functions.rows() == 10
    functions.invoke("ingest", {"Records": news[1:]})
    assert functions.rows() == 20


@settings(deadline=None, max_examples=20)
@given(
    step=st.sampled_from([1, 15, 40, 90, 400]),
    modes=st.lists(
        st.sampled_from([None, "tombstone", "vector", "surgery", "rewrite"]),
        min_size=1,
        max_size=8,
    ),
)
def test_every_request_of_any_batch_is_done_once_whatever_time_there_is(
    step: float, modes: list[str | None]
) -> None:
    with fresh() as functions:
        functions.fill_orders()
        left = batch(*(delete_of(n + 1, mode=mode) for n, mode in enumerate(modes)))
        while left["Records"]:
            left = only(left, functions.invoke("delete", left, Running(step)))
        for forwarded in rewrite_messages(functions):
            functions.invoke("rewrite", forwarded)
        assert functions.rows() == 100 - len(modes)
        assert functions.queues.dead == []


def test_hops_are_counted_and_end(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlay.plan.surgery.SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(conftest.LambdaContext, "get_remaining_time_in_millis", lambda _: 0)
    functions.create_orders(**{"write.row_group_rows": 20})
    functions.orders().append(pq.read_table(pa.BufferReader(ORDERS)))
    functions.orders().append(pq.read_table(pa.BufferReader(ORDERS)))
    functions.orders().delete("order_id IN (1, 30, 60, 90)")
    functions.invoke("rewrite", batch({"table": "orders"}))
    [told] = functions.queues.bodies("rewrite")
    assert json.loads(told) == {"table": "orders", "hops": 1}
    functions.queues.sent.clear()
    functions.invoke("rewrite", batch({"table": "orders", "hops": MAX_HOPS}))
    assert functions.queues.sent == []


@pytest.mark.parametrize("hops", [-1, MAX_HOPS + 1, 2**63, 10**400, 1.5, "many", None, True])
def test_a_hop_counter_that_overflows_is_refused(functions: Functions, hops: Any) -> None:
    functions.fill_orders()
    answer = functions.invoke("rewrite", batch({"table": "orders", "hops": hops}))
    assert answer == {"batchItemFailures": []}
    assert functions.queues.errors == ["InvalidRequest"]


def test_a_batch_of_erasures_is_one_hint_for_each_table(functions: Functions) -> None:
    functions.fill_orders()
    functions.invoke("delete", batch(*(delete_of(n, mode="erase") for n in range(1, 5))))
    assert functions.queues.bodies("rewrite") == ['{"table": "orders"}']


def test_time_left_keeps_some_back() -> None:
    assert TimeLeft(Running(step=0)).seconds() == 225
    assert TimeLeft(Running(step=0)).for_more()
    assert not TimeLeft(Running(step=280)).for_more()


def test_requests_know_how_far_they_may_hop() -> None:
    assert read(RewriteRequest, '{"table": "orders"}').hops == 0

"""The delete function on the events under `events/`."""

from __future__ import annotations

import json
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.format.properties import DELETE_MODES
from inlay.functions.dead_letters import Letter, as_sent_before
from inlay.functions.validation import Mode

from .conftest import ORDERS, Functions, event, fresh

CUSTOMER_7 = 10  # of the hundred orders


def test_a_message_may_name_every_mode_that_there_is() -> None:
    """A validator's type is written out: it cannot be made of the engine's."""
    assert set(get_args(Mode)) == {*DELETE_MODES, "erase"}


def test_where_hides_the_rows_it_is_true_for(functions: Functions) -> None:
    functions.fill_orders()
    assert functions.replay("delete.where") == {"batchItemFailures": []}
    assert functions.rows() == 100 - CUSTOMER_7
    assert functions.queues.sent == []


def test_keys_hide_their_rows(functions: Functions) -> None:
    functions.fill_orders()
    functions.replay("delete.keys")
    assert functions.rows() == 97


@pytest.mark.parametrize("mode", [None, "vector", "rewrite", "erase"])
@pytest.mark.parametrize("at", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
def test_a_time_that_is_none_in_utc_is_refused(
    functions: Functions, at: str, mode: str | None
) -> None:
    functions.fill_orders()
    asked = {"id": "1", "table": "orders", "where": "order_id = 1", "requested_at": at}
    asked |= {"mode": mode} if mode else {}
    assert functions.invoke("delete", message(asked)) == {"batchItemFailures": []}
    assert functions.queues.errors == ["InvalidRequest"]
    assert functions.rows() == 100


@pytest.mark.parametrize(
    "keys",
    [
        [1, 2, 3],
        {"order_id": [1, 2, 3]},
        {"order_id": ["1", "2", "3"]},
        [{"order_id": 1}, {"order_id": 2}, {"order_id": 3}],
        {"order_id": [1, 2, 3], "customer_id": [0, 1, 2]},
    ],
)
def test_keys_may_be_values_columns_or_rows(functions: Functions, keys: object) -> None:
    functions.fill_orders()
    functions.invoke("delete", message({"table": "orders", "keys": keys}))
    assert functions.queues.sent == []
    assert functions.rows() == 97


@pytest.mark.parametrize(
    "keys",
    [
        [{"order_id": 1}, {"order_id": 2, "customer_id": 99}],
        [{"order_id": 2, "customer_id": 99}, {"order_id": 1}],
        [{"customer_id": 7}, {"order_id": 2}],
        [{}],
        {},
    ],
)
def test_rows_of_keys_that_name_other_columns_are_refused(
    functions: Functions, keys: object
) -> None:
    functions.fill_orders()
    functions.invoke("delete", message({"table": "orders", "keys": keys}))
    assert len(functions.queues.dead) == 1
    assert functions.rows() == 100


@pytest.mark.parametrize(
    "body",
    [
        '{"table": "orders", "where": "order_id = 1", "where": "order_id = 2"}',
        '{"table": "orders", "keys": {"order_id": [1], "order_id": [2]}}',
        '{"table": "orders", "keys": {"amount": [0.12345678901234567890]}}',
        '{"table": "orders", "keys": {"order_id": [1.00000000000000000001]}}',
        '{"table": "orders", "keys": {"order_id": [1e400]}}',
        '{"table": "orders", "keys": {"amount": [NaN]}}',
    ],
)
def test_what_a_parser_of_json_would_drop_or_round_is_refused(
    functions: Functions, body: str
) -> None:
    functions.fill_orders()
    functions.invoke("delete", event_of(body))
    assert functions.queues.errors == ["InvalidRequest"]
    assert functions.queues.dead == [body]
    assert functions.rows() == 100
    # Sent again, it is what it was: written again it would be half of the request, and be carried out.
    letter = Letter(id="1", body=body, sent_us=0, reasons={}, receipt="")
    assert as_sent_before(letter) == body


def test_a_mode_chooses_the_marker(functions: Functions) -> None:
    functions.fill_orders()
    functions.invoke(
        "delete", message({"table": "orders", "where": "customer_id = 7", "mode": "vector"})
    )
    assert functions.rows() == 100 - CUSTOMER_7
    assert functions.orders().snapshot.commit.removed_rows == CUSTOMER_7


def test_two_deliveries_of_one_request_are_one_delete(functions: Functions) -> None:
    functions.fill_orders()
    functions.replay("delete.duplicate")
    version = functions.orders().version
    functions.replay("delete.duplicate")
    assert functions.orders().version == version


def test_a_redelivery_spares_rows_that_came_after_the_first(functions: Functions) -> None:
    functions.fill_orders()
    functions.replay("delete.where")  # without an id: the queue's message id counts
    functions.orders().append(pq.read_table(pa.BufferReader(ORDERS)))
    functions.replay("delete.where")
    assert functions.rows() == 200 - CUSTOMER_7
    assert functions.queues.sent == []


def test_an_id_with_another_body_is_refused(functions: Functions) -> None:
    functions.fill_orders()
    functions.invoke("delete", message({"id": "one", "table": "orders", "where": "order_id = 1"}))
    functions.invoke("delete", message({"id": "one", "table": "orders", "where": "order_id = 2"}))
    assert functions.queues.errors == ["RequestReused"]
    assert functions.rows() == 99


def test_each_malformed_request_is_buried_and_the_good_one_done(functions: Functions) -> None:
    functions.fill_orders()
    assert functions.replay("delete.malformed") == {"batchItemFailures": []}
    assert functions.queues.errors == [
        "InvalidRequest",  # not JSON
        "InvalidRequest",  # not an object
        "InvalidRequest",  # neither where nor keys
        "InvalidPredicate",  # no such column
        "InvalidPredicate",  # a text where a number belongs
        "InvalidPredicate",  # half a condition
        "InvalidRequest",  # a table's name that leaves tables/
        "InvalidRequest",  # an unknown mode
        "InvalidRequest",  # a misspelt field
    ]
    sent = [record["body"] for record in event("delete.malformed")["Records"]]
    assert functions.queues.dead == sent[:-1]
    assert functions.rows() == 99


def test_a_misspelt_mode_does_not_become_the_tables_own(functions: Functions) -> None:
    functions.fill_orders()
    functions.invoke(
        "delete", message({"table": "orders", "where": "customer_id = 7", "moed": "erase"})
    )
    assert functions.queues.errors == ["InvalidRequest"]
    assert functions.rows() == 100


def test_an_unknown_table_has_an_error_of_its_own(functions: Functions) -> None:
    functions.replay("delete.unknown_table")
    assert functions.queues.errors == ["TableNotFound"]


def test_a_request_of_a_megabyte_is_refused_and_its_letter_fits_the_queue(
    functions: Functions,
) -> None:
    functions.fill_orders()
    assert functions.replay("delete.one_megabyte") == {"batchItemFailures": []}
    assert len(functions.queues.dead) == 1
    assert functions.rows() == 100


def test_a_letter_that_fills_the_queues_limit_goes_without_attributes(
    functions: Functions,
) -> None:
    body = " " * (1_048_576 - 2) + "[]"
    functions.invoke("delete", event_of(body))
    (letter,) = functions.queues.sent
    assert letter["MessageBody"] == body
    assert letter["MessageAttributes"] == {}


@pytest.mark.parametrize(
    "keys", [["a secret"], {"order_id": ["a secret"]}, {"order_id": [1, "a secret"]}]
)
def test_refusals_do_not_repeat_values(functions: Functions, keys: object) -> None:
    functions.fill_orders()
    functions.invoke("delete", message({"table": "orders", "keys": keys}))
    (letter,) = functions.queues.sent
    assert "a secret" not in json.dumps(letter["MessageAttributes"])


def test_an_erasure_is_opened_and_the_rewrite_function_notified(
    functions: Functions, caplog: pytest.LogCaptureFixture
) -> None:
    functions.fill_orders()
    functions.replay("delete.erase")
    [note] = [vars(record)["note"] for record in caplog.records if "note" in vars(record)]
    assert "can no longer be read" in note, "what it ends, while it can still be kept by a tag"
    assert functions.rows() == 90
    (open_,) = functions.orders().snapshot.erasures
    assert open_.id == "erasure-4711"
    assert functions.queues.bodies("rewrite") == ['{"table": "orders"}']


def test_a_redelivered_erasure_notifies_the_rewrite_function_again(functions: Functions) -> None:
    functions.fill_orders()
    functions.replay("delete.erase")
    functions.replay("delete.erase")
    assert len(functions.orders().snapshot.erasures) == 1
    assert len(functions.queues.bodies("rewrite")) == 2
    assert functions.queues.dead == []


KEYS = [
    ([7], ["case-7"]),
    ({"order_id": [7]}, ["case-7"]),
    ({"order_id": [7, 10**9]}, ["case-7.1", "case-7.2"]),
    (
        [{"order_id": 7, "customer_id": 6}, {"order_id": 8, "customer_id": -1}],
        ["case-7.1", "case-7.2"],
    ),
]


@pytest.mark.parametrize(("keys", "ids"), KEYS, ids=str)
def test_each_key_gets_an_erasure_in_one_commit(
    functions: Functions, keys: object, ids: list[str]
) -> None:
    functions.fill_orders()
    before = functions.orders().version
    asked = {"table": "orders", "keys": keys, "mode": "erase", "id": "case-7"}
    for _ in range(2):  # SQS may deliver twice
        functions.invoke("delete", message(asked))
        assert functions.queues.errors == []
        assert functions.rows() == 99
        assert [e.id for e in functions.orders().snapshot.erasures] == ids
        assert functions.orders().version == before + 1
    # Under the same id another list is another request.
    functions.invoke("delete", message({**asked, "keys": {"order_id": [9]}}))
    assert functions.queues.errors == ["RequestReused"]
    assert functions.rows() == 99


@settings(deadline=None, max_examples=25)
@given(
    lists=st.lists(st.lists(st.integers(0, 120), min_size=1, max_size=5), min_size=1, max_size=4),
    deliveries=st.lists(st.integers(0, 3), max_size=12),
)
def test_each_key_is_erased_exactly_once_in_any_order_of_deliveries(
    lists: list[list[int]], deliveries: list[int]
) -> None:
    with fresh() as functions:
        functions.fill_orders()
        before = functions.orders().version
        asked = [
            message({"table": "orders", "keys": keys, "mode": "erase", "id": f"case-{n}"})
            for n, keys in enumerate(lists)
        ]
        for n in [*deliveries, *range(len(asked))]:
            if n < len(asked):
                functions.invoke("delete", asked[n])
        assert functions.queues.errors == []
        ids = [
            f"case-{n}.{at}" if len(keys) > 1 else f"case-{n}"
            for n, keys in enumerate(lists)
            for at in range(1, len(keys) + 1)
        ]
        table = functions.orders()
        assert sorted(erasure.id for erasure in table.snapshot.erasures) == sorted(ids)
        assert table.version == before + len(asked)
        gone = {key for keys in lists for key in keys} & set(range(1, 101))
        assert functions.rows() == 100 - len(gone)


@pytest.mark.parametrize("keys", [[None], [], [7, None], [*range(10**9, 10**9 + 1_001)]])
def test_an_erasure_of_no_key_or_of_too_many_is_refused(
    functions: Functions, keys: list[object]
) -> None:
    functions.fill_orders()
    functions.invoke("delete", message({"table": "orders", "keys": keys, "mode": "erase"}))
    assert functions.queues.errors == ["InvalidRequest"]
    assert functions.orders().snapshot.erasures == ()


MANY = [*range(10**9, 10**9 + 3_000), 7]


def test_an_erasure_by_a_list_of_thousands_is_several_and_repeating_it_opens_none_twice(
    functions: Functions,
) -> None:
    functions.fill_orders()
    where = f"order_id IN ({str(MANY)[1:-1]})"
    asked = message({"table": "orders", "where": where, "mode": "erase", "id": "case-7"})
    functions.invoke("delete", asked)
    ids = [e.id for e in functions.orders().snapshot.erasures]
    assert ids == [f"case-7.{n}" for n in range(1, len(ids) + 1)]
    assert 1 < len(ids) <= 16
    assert functions.rows() == 99
    functions.invoke("delete", asked)
    assert [e.id for e in functions.orders().snapshot.erasures] == ids
    assert functions.queues.errors == []


def test_what_is_too_long_for_an_erasure_is_told_by_its_length(functions: Functions) -> None:
    functions.fill_orders()
    for count in (60_000, 15_000):
        keys = list(range(10**9, 10**9 + count))
        functions.invoke("delete", message({"table": "orders", "keys": keys, "mode": "erase"}))
    long = " AND ".join(f"order_id <> {n}" for n in range(10**9, 10**9 + 1_500))
    functions.invoke("delete", message({"table": "orders", "where": long, "mode": "erase"}))
    assert functions.queues.errors == [*["InvalidRequest"] * 2, "InvalidPredicate"]
    said = [m["MessageAttributes"]["InlayReason"]["StringValue"] for m in functions.queues.sent]
    assert [each.count("bytes") for each in said] == [2, 2, 1]
    steps = [m["MessageAttributes"]["InlayNextStep"]["StringValue"] for m in functions.queues.sent]
    assert all("several requests" in step for step in steps[:2])
    assert "list of values" in steps[2]


def message(body: object) -> object:
    return event_of(json.dumps(body))


def event_of(body: str) -> object:
    delivered = event("delete.where")
    delivered["Records"][0]["body"] = body
    return delivered

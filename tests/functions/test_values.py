"""What a sender writes never reaches a log, a metric or the reason of a dead letter."""

from __future__ import annotations

import datetime as dt
import io
import json
import traceback
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidRequest, StoreUnavailable
from inlay.functions import observe
from inlay.functions.validation import check_table_name

from .conftest import BUCKET, Functions, event, fresh
from .test_budgets import batch

TOKEN = "Zq7Mustermann"


def everything_said(functions: Functions, log: io.StringIO) -> str:
    """Everything that left the functions but the messages' own bodies."""
    attributes = [each.get("MessageAttributes", {}) for each in functions.queues.sent]
    return log.getvalue() + json.dumps(attributes)


@pytest.mark.parametrize(
    "where",
    [
        f"{TOKEN} Name = 1",
        f"'{TOKEN}' = ",
        f"{TOKEN}",
        f"order_id = {TOKEN}",
        f"order_id = '{TOKEN}'",
        f"order_id = 1 AND {TOKEN}(order_id)",
        f"status LIKE '{TOKEN}' ESCAPE '{TOKEN}'",
        f"order_id = 1 -- {TOKEN}",
        f'"{TOKEN}" IS NULL',
        f"TIMESTAMP '{TOKEN}' > order_id",
        f"order_id = 12{TOKEN}",
    ],
)
@pytest.mark.parametrize("mode", [None, "erase", "vector"])
def test_no_word_of_a_condition_is_logged(
    functions: Functions, log: io.StringIO, where: str, mode: str | None
) -> None:
    functions.fill_orders()
    functions.invoke("delete", batch({"table": "orders", "where": where, "mode": mode}))
    assert functions.queues.errors in (["InvalidPredicate"], ["InvalidRequest"])
    assert TOKEN not in everything_said(functions, log)


@pytest.mark.parametrize(
    "body",
    [
        {"table": TOKEN + " and others", "where": "order_id = 1"},
        {"table": "orders", "keys": {TOKEN: [1]}},
        {"table": "orders", "keys": [{TOKEN: 1}]},
        {"table": "orders", "keys": {"order_id": [TOKEN]}},
        {"table": "orders", "keys": {TOKEN: {TOKEN: TOKEN}}},
        {"table": "orders", "where": "order_id = 1", TOKEN: 1},
        {"table": "orders", "where": "order_id = 1", "mode": TOKEN},
        {"table": "orders", "where": "order_id = 1", "requested_at": TOKEN},
        {"table": "orders", "where": {TOKEN: TOKEN}},
        {"table": "orders", "where": "order_id = 1", "id": {TOKEN: 1}},
        [TOKEN],
        TOKEN,
    ],
)
def test_no_word_of_a_request_is_logged(functions: Functions, log: io.StringIO, body: Any) -> None:
    functions.fill_orders()
    functions.invoke("delete", batch(body))
    assert len(functions.queues.dead) == 1
    assert TOKEN not in everything_said(functions, log)


def test_a_reused_id_is_not_logged(functions: Functions, log: io.StringIO) -> None:
    functions.fill_orders()
    for order in (1, 2):
        functions.invoke(
            "delete", batch({"id": TOKEN, "table": "orders", "where": f"order_id = {order}"})
        )
    assert functions.queues.errors == ["RequestReused"]
    assert TOKEN not in everything_said(functions, log)


def test_no_word_of_a_direct_invocation_is_logged(functions: Functions, log: io.StringIO) -> None:
    functions.fill_orders()
    for function in ("compact", "collect_garbage", "rewrite"):
        for asked in ({"table": f"{TOKEN} x"}, {"table": {TOKEN: 1}}, {"dry_run": TOKEN}):
            with pytest.raises(InvalidRequest) as failed:
                functions.invoke(function, asked)
            assert TOKEN not in "".join(traceback.format_exception(failed.value))
    assert TOKEN not in everything_said(functions, log)


def test_the_rewrite_queues_condition_is_not_logged(functions: Functions, log: io.StringIO) -> None:
    functions.fill_orders()
    functions.invoke("rewrite", batch({"table": "orders", "where": f"{TOKEN} = 1"}))
    functions.invoke("rewrite", batch({"table": "orders", "delete": {TOKEN: 1}}))
    assert functions.queues.errors == ["InvalidPredicate", "InvalidRequest"]
    assert TOKEN not in everything_said(functions, log)


@pytest.mark.parametrize(
    ("values", "written"),
    [
        # 4 March 1512, and ends in 512 nanoseconds.
        ([dt.date(1512, 3, 4)], {"org.apache.spark.legacyDateTime": ""}),
        ([dt.datetime(1512, 3, 4, tzinfo=dt.UTC)], {"org.apache.spark.legacyDateTime": ""}),
        ([1_707_048_000_151_234_512], {}),
        (["Zq7Mustermann"], {}),
    ],
)
def test_no_value_of_a_landed_file_is_logged(
    functions: Functions, log: io.StringIO, values: list[Any], written: dict[str, str]
) -> None:
    kind = {dt.date: pa.date32()}.get(type(values[0]), pa.timestamp("us", "UTC"))
    inlay.create(f"memory://{BUCKET}/tables/orders", pa.schema([("at", kind)]))
    held = pa.array(values, pa.timestamp("ns") if isinstance(values[0], int) else None)
    rows = pa.table({"at": held}).replace_schema_metadata(written)
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, use_deprecated_int96_timestamps=isinstance(values[0], int))
    functions.land(body=sink.getvalue().to_pybytes())
    sent = json.dumps(event("ingest.normal")).replace("a481becd5170bb71a007d15066ae30c0", "")
    functions.invoke("ingest", json.loads(sent.replace(r"\\\"eTag\\\": \\\"\\\", ", "")))
    assert functions.queues.dead
    said = everything_said(functions, log)
    assert "at" in said and not any(word in said for word in ("1512", "151234512", "Zq7"))


def test_the_place_is_named(functions: Functions) -> None:
    functions.fill_orders()
    functions.invoke("delete", batch({"table": "orders", "where": f"order_id = {TOKEN}"}))
    [letter] = functions.queues.sent
    assert "character 12" in letter["MessageAttributes"]["InlayReason"]["StringValue"]


WORDS = st.sampled_from(
    [
        *(TOKEN, f"'{TOKEN}'", f'"{TOKEN}"', "order_id", "status", "=", "<", "AND", "NOT", "("),
        *(")", "IN", "LIKE", "IS", "NULL", "1", "1.5e3", "DATE", "CAST", "AS", ",", "%", "'", "--"),
    ]
)


@settings(deadline=None, max_examples=60)
@given(words=st.lists(WORDS, max_size=8), mode=st.sampled_from([None, "erase", "surgery"]))
def test_no_token_of_any_text_is_logged(words: list[str], mode: str | None) -> None:
    with fresh() as functions, pytest.MonkeyPatch.context() as patch:
        log = io.StringIO()
        patch.setattr(observe.logger.registered_handler, "stream", log)
        functions.fill_orders()
        asked = {"table": "orders", "where": " ".join(words) or " ", "mode": mode}
        functions.invoke("delete", batch(asked))
        assert TOKEN not in everything_said(functions, log)


def test_a_name_that_cannot_be_a_tables_is_not_repeated() -> None:
    with pytest.raises(InvalidRequest) as failed:
        check_table_name(f"{TOKEN}!")
    assert TOKEN not in str(failed.value)


# -- metrics --------------------------------------------------------------------------------------


def metrics(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    lines = capsys.readouterr().out.splitlines()
    return [found for found in map(json.loads, lines) if "_aws" in found]


def names(told: dict[str, Any]) -> set[str]:
    [directive] = told["_aws"]["CloudWatchMetrics"]
    return {each["Name"] for each in directive["Metrics"]}


def test_metrics_are_by_function_and_never_zero(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    functions.fill_orders()
    functions.replay("delete.where")
    functions.replay("compact.schedule")
    found = metrics(capsys)
    assert found
    for each in found:
        [directive] = each["_aws"]["CloudWatchMetrics"]
        assert directive["Dimensions"] == [["service"]]
        assert all(each[name] != [0] and each[name] != [0.0] for name in names(each))


def test_metrics_by_table_are_a_choice_and_only_of_tables_there_are(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    functions.set_variable("INLAY_TABLE_METRICS", "true")
    functions.fill_orders()
    functions.replay("delete.where")
    functions.replay("delete.unknown_table")
    functions.replay("delete.malformed")
    tables = {each.get("table") for each in metrics(capsys)}
    assert tables == {"orders", None}


def test_an_idle_round_costs_no_metric_by_table(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing to do is read from the pointer: one request, and one metric of the function for it."""
    functions.fill_orders()
    functions.replay("rewrite.schedule")
    assert {name for each in metrics(capsys) for name in names(each)} == {"Rounds"}


def test_events_stay_readable() -> None:
    assert event("delete.where")["Records"]


class Denied(Exception):
    """As botocore raises what a service answers."""

    response: ClassVar = {
        "Error": {"Code": "AccessDenied", "Message": f"{TOKEN} may not sqs:SendMessage"}
    }


@pytest.mark.parametrize(
    ("failure", "named"),
    [
        (Denied(), "AccessDenied"),
        (ConnectionError(TOKEN), "ConnectionError"),
        (type("Odd", (Exception,), {"response": {"Error": {"Code": TOKEN + " 1"}}})(), "Odd"),
    ],
)
def test_what_a_service_refuses_is_named_by_its_code(
    functions: Functions,
    log: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    named: str,
) -> None:
    functions.fill_orders()
    functions.orders().delete(where="order_id = 1")

    def refuse(*_: Any, **__: Any) -> None:
        raise failure

    monkeypatch.setattr(functions.queues, "send_message", refuse)
    with pytest.raises(StoreUnavailable, match=f"refuses a request: {named}") as raised:
        functions.replay("rewrite.schedule")
    assert TOKEN not in str(raised.value)

    functions.replay("delete.malformed")  # its message stays: the dead letters cannot be reached
    assert functions.queues.sent == []
    assert named in log.getvalue() and TOKEN not in log.getvalue()


def test_a_secret_that_cannot_be_read_is_named_by_the_code(
    functions: Functions, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The erasure waits, its message is taken again, and the log says what for."""
    functions.fill_orders()
    functions.orders().delete(where="order_id = 1", mode="erase")

    class Secrets:
        def get_secret_value(self, **_: str) -> None:
            raise Denied

    functions.set_variable("INLAY_ERASURE_KEY", "")
    functions.set_variable("INLAY_ERASURE_KEY_SECRET", "secret")
    monkeypatch.setattr("boto3.client", lambda _: Secrets())
    with pytest.raises(StoreUnavailable, match="the receipts' secret cannot be read: AccessDenied"):
        functions.replay("collect_garbage.one_table")
    assert TOKEN not in log.getvalue()

"""Erasures by a file of keys: read once, deleted, and named by its digest in the receipt of each key."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .conftest import BUCKET, Functions, event, from_queue

KEY = "keys/leavers.csv"
BODY = b"order_id\n1\n2\n3\n"


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"order_id": [1, 2, 3]}), sink)
    return sink.getvalue()


def asked(**changed: Any) -> dict[str, Any]:
    body = json.loads(event("delete.keys_from")["Records"][0]["body"])
    return {**body, "keys_from": body["keys_from"].replace("s3://", "memory://"), **changed}


def send(functions: Functions, **changed: Any) -> None:
    functions.invoke("delete", from_queue(asked(**changed), queue="EraseQueue"))


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
@pytest.mark.parametrize("versioned", [False, True])
def test_each_key_of_a_file_gets_a_receipt_that_names_the_file(
    functions: Functions, form: str, versioned: bool
) -> None:
    functions.fill_orders()
    if versioned:
        functions.store.enable_versioning()
    body = {
        "csv": BODY,
        "json": b'[{"order_id": 1}, {"order_id": 2}, {"order_id": 3}]',
        "parquet": parquet(),
    }[form]
    key = f"keys/leavers.{form}"
    functions.store.put(key, body)
    before = functions.orders().version
    for _ in range(2):  # SQS may deliver twice
        send(functions, keys_from=f"memory://{BUCKET}/{key}")
    assert functions.queues.dead == []
    table = functions.orders()
    assert table.version == before + 1
    assert functions.rows() == 97
    digest = hashlib.sha256(body).hexdigest()
    names = [f"leavers-2026-11-{digest}.{n}" for n in (1, 2, 3)]
    assert sorted(erasure.id for erasure in table.snapshot.erasures) == names
    assert list(functions.store.list_versions("keys/")) == []
    functions.replay("rewrite.queue")
    receipts: list[str] = []
    for _ in range(8):
        functions.clock.pass_days(0.05)
        functions.round("collect_garbage.erasures")
        receipts = [o.key for o in functions.store.list("tables/orders/erasure/")]
        if len(receipts) >= 3:
            break
    assert all(any(name in key for key in receipts) for name in names), receipts


def test_a_file_that_was_put_there_later_is_not_deleted_by_a_repetition(
    functions: Functions,
) -> None:
    functions.fill_orders()
    functions.store.put(KEY, BODY)
    send(functions)
    functions.store.put(KEY, b"order_id\n9\n")
    send(functions)
    assert [o.key for o in functions.store.list("keys/")] == [KEY]
    assert functions.rows() == 97


def test_a_try_that_ended_before_it_deleted_the_file_is_finished_by_the_next(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions.fill_orders()
    functions.store.put(KEY, BODY)
    from inlay.ops.erase import key_files

    with monkeypatch.context() as broken:
        broken.setattr(key_files, "_delete", lambda ctx, file: None)
        send(functions)
    assert [o.key for o in functions.store.list("keys/")] == [KEY]
    send(functions)
    assert list(functions.store.list("keys/")) == []
    assert len(functions.orders().snapshot.erasures) == 3


@pytest.mark.parametrize(
    ("changed", "body"),
    [
        ({}, None),
        ({}, b"nobody\n1\n"),
        ({}, b"order_id\nx\n"),
        ({}, b"order_id\n1\n\n" + b" " * 2**20),
        ({"keys_from": f"memory://{BUCKET}/tables/orders/_latest_manifest"}, BODY),
        ({"keys_from": f"memory://other/{KEY}"}, BODY),
        ({"mode": "tombstone"}, BODY),
        ({"where": "order_id = 1"}, BODY),
    ],
)
def test_what_is_no_file_of_keys_erases_nothing_and_stays(
    functions: Functions, changed: dict[str, Any], body: bytes | None
) -> None:
    functions.fill_orders()
    if body is not None:
        functions.store.put(KEY, body)
    send(functions, **changed)
    assert len(functions.queues.dead) == 1
    assert functions.rows() == 100
    assert len(list(functions.store.list("keys/"))) == (body is not None)
    assert functions.orders().version == 2

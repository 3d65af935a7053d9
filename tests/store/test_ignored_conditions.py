"""A store that ignores the condition of a swap gets no table: racing writers would lose rows there."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest
from tests.simulator.fault_proxy import FaultProxy
from tests.simulator.faults import Fate, FaultyStore

import inlay
from inlay.errors import TableNotFound, UnsupportedStore
from inlay.local.s3server import AwsProcess
from inlay.ops.context import Context, InlineExecutor
from inlay.storage.base import IfMatch, Missing
from inlay.storage.memory import MemoryStore
from inlay.storage.s3 import S3Store
from inlay.storage.s3_errors import of_answer

SCHEMA = pa.schema([("id", pa.int64())])


class Heedless(MemoryStore):
    """Swaps whatever the ETag."""

    def put(self, key: str, body: Any, *, condition: Any = None, **more: Any) -> Any:
        kept = None if isinstance(condition, IfMatch) else condition
        return super().put(key, body, condition=kept, **more)


def on(store: Any) -> Context:
    return Context(store=store, root="t", uri="memory://b/t", executor=InlineExecutor())


def create(store: Any) -> inlay.Table:
    return inlay.create("memory://b/t", SCHEMA, context=on(store))


def test_no_table_is_left():
    store = Heedless("b")
    for _ in range(2):
        with pytest.raises(UnsupportedStore, match=r"ignores If-Match.*No table is left"):
            create(store)
        assert not list(store.list(""))


def test_a_table_that_cannot_be_taken_away_is_named():
    class Kept(Heedless):
        def delete(self, keys: Any) -> Any:
            return list(keys)

    with pytest.raises(UnsupportedStore, match=r"still there: delete t/_latest_manifest"):
        create(Kept("b"))


def test_a_store_without_that_request_is_refused_and_what_is_left_is_named():
    class Swift(MemoryStore):
        """Its S3 API has `If-None-Match: *`, and answers each `If-Match` of a PUT with 501."""

        def put(self, key: str, body: Any, *, condition: Any = None, **more: Any) -> Any:
            if isinstance(condition, IfMatch):
                raise of_answer(501, "NotImplemented", "Conditional object PUTs …", "b", key)
            return super().put(key, body, condition=condition, **more)

    store = Swift("b")
    with pytest.raises(UnsupportedStore, match=r"no commit can be made.*NotImplemented") as caught:
        create(store)
    assert "delete t/_latest_manifest" in caught.value.next_step
    assert [each.key for each in store.list("")] == ["t/_latest_manifest"]


@pytest.mark.parametrize("fate", [Fate.UNSENT, Fate.LOST, Fate.TWICE, Fate.RESENT, Fate.RACE])
def test_an_answer_that_says_nothing_is_not_held_against_the_store(fate: Fate):
    met = []

    def plan(sent: Any) -> Fate:
        if sent.verb == "put" and len(met) < 2:
            met.append(sent)
            if len(met) == 2:
                return fate
        return Fate.DONE

    table = create(FaultyStore(MemoryStore("b"), plan))
    assert len(met) == 2
    table.append(pa.table({"id": [1]}))
    assert table.scan().to_arrow()["id"].to_pylist() == [1]


def test_a_table_removed_meanwhile_stays_removed():
    class Removing(MemoryStore):
        def put(self, key: str, body: Any, *, condition: Any = None, **more: Any) -> Any:
            if isinstance(condition, IfMatch):
                self.delete([key])
            return super().put(key, body, condition=condition, **more)

    store = Removing("b")
    create(store)
    assert isinstance(store.head("t/_latest_manifest"), Missing)


def test_over_the_wire(embedded_aws: AwsProcess, monkeypatch: pytest.MonkeyPatch):
    for name, value in embedded_aws.env().items():
        monkeypatch.setenv(name, value)
    store = S3Store(f"heedless-{uuid.uuid4().hex}")
    store.client.create_bucket(Bucket=store.bucket)
    uri = f"s3://{store.bucket}/t"
    with FaultProxy(embedded_aws.endpoint_url, dropped=("if-match",)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint_url)
        with pytest.raises(UnsupportedStore, match="ignores If-Match"):
            inlay.create(uri, SCHEMA)
        with pytest.raises(TableNotFound):
            inlay.open(uri)
    assert not list(store.list(""))

"""Landing files that are overwritten, deleted or reported twice: each content counts once, or the loss is
reported."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulator.cloudwatch import ALARM, OK, Metrics, alarms_of, state

import inlay
from inlay.errors import AccessDenied
from inlay.storage.memory import MemoryStore

from .conftest import BUCKET, EVENTS, KEY, ORDERS, Functions, event, few, fresh, landing_message


def test_an_overwritten_file_keeps_its_rows_where_the_bucket_keeps_versions(
    functions: Functions,
) -> None:
    functions.create_orders()
    functions.store.enable_versioning()
    first, second = landing_message(functions, ORDERS), landing_message(functions, few(10))
    functions.invoke("ingest", first)
    functions.invoke("ingest", second)
    functions.invoke("ingest", first)
    assert functions.rows() == 110
    assert functions.queues.sent == []


def test_an_overwritten_file_of_a_partitioned_table_is_cut_at_its_version(
    functions: Functions,
) -> None:
    inlay.create(
        f"memory://{BUCKET}/tables/orders",
        pq.read_schema(pa.BufferReader(ORDERS)),
        partition_by=["bucket(4, customer_id)"],
    )
    functions.store.enable_versioning()
    first, second = landing_message(functions, ORDERS), landing_message(functions, few(10))
    functions.invoke("ingest", first)
    functions.invoke("ingest", second)
    assert functions.rows() == 110


def test_without_versions_what_was_overwritten_is_said_to_be_superseded(
    functions: Functions, log: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    functions.create_orders()
    first, second = landing_message(functions, ORDERS), landing_message(functions, few(10))
    functions.invoke("ingest", first)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    [line] = [each for each in lines if each.get("message") == "Superseded"]
    assert (line["level"], line["table"], line["key"]) == ("WARNING", "orders", KEY)
    metrics = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(each.get("Superseded", [0])[0] for each in metrics) == 1
    functions.invoke("ingest", second)
    assert functions.rows() == 10


def test_a_version_that_is_gone_is_a_dead_letter(functions: Functions) -> None:
    functions.create_orders()
    functions.store.enable_versioning()
    first, _ = landing_message(functions, ORDERS), landing_message(functions, few(10))
    oldest = list(functions.store.list_versions(KEY))[-1]
    functions.store.delete_versions([(KEY, oldest.version_id)])
    functions.invoke("ingest", first)
    assert functions.queues.errors == ["ObjectGone"]


def test_an_event_of_another_bucket_is_refused(functions: Functions) -> None:
    functions.create_orders()
    functions.store.at("somebody-elses").put(KEY, ORDERS)
    batch = event("ingest.normal")
    body = batch["Records"][0]["body"].replace(BUCKET, "somebody-elses")
    batch["Records"][0]["body"] = body
    functions.invoke("ingest", batch)
    assert functions.queues.errors == ["InvalidRequest"]
    assert functions.rows() == 0


@dataclass
class Landing:
    """What producers do in the landing zone, and what has to come of it.

    A content is what lands under a key: a version where the bucket keeps them, else what is there. It comes
    in once, however often it is told of, when it is handled while its key has an object. One that was
    deleted before was taken back; without versions, one that was overwritten before is superseded."""

    functions: Functions
    versioned: bool
    told: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)  # key, content, event
    now: dict[str, int] = field(default_factory=dict)  # the content that each key shows
    rows_of: list[int] = field(default_factory=list)
    taken: set[tuple[str, int]] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)  # keys that the store does not hand over

    def put(self, name: str, content: int) -> None:
        key = f"ingest/orders/{name}.parquet"
        body = few(self.rows_of[content], 1_000 * content)
        self.told.append((key, content, landing_message(self.functions, body, key)))
        self.now[key] = content

    def write(self, name: str, count: int) -> None:
        self.rows_of.append(count)
        self.put(name, len(self.rows_of) - 1)

    def copy(self, name: str, to: str) -> None:
        """Also what a rename begins with."""
        key = f"ingest/orders/{name}.parquet"
        content = None if key in self.closed else self.now.get(key)
        # Onto itself S3 refuses it; the same content again is the same, without versions.
        if content is not None and name != to:
            self.put(to, content)

    def delete(self, name: str) -> None:
        key = f"ingest/orders/{name}.parquet"
        self.functions.store.delete([key])
        self.now.pop(key, None)

    def hear(self, at: int) -> None:
        if not self.told:
            return
        key, content, batch = self.told[at % len(self.told)]
        self.functions.invoke("ingest", batch)
        if self.comes_in(key, content):
            self.taken.add(self.identity(at % len(self.told)))

    def identity(self, at: int) -> tuple[str, int]:
        key, content, _ = self.told[at]
        return (key, at) if self.versioned else (key, content)

    def sweep(self) -> None:
        self.functions.clock.pass_days(0.1)
        sweep(self.functions)
        deliver(self.functions)
        for at, (key, content, _) in enumerate(self.told):
            if self.comes_in(key, content):
                self.taken.add(self.identity(at))

    def comes_in(self, key: str, content: int) -> bool:
        is_there = key in self.now and (self.versioned or self.now[key] == content)
        return is_there and key not in self.closed

    def close(self, name: str) -> None:
        """Its role, key or storage class."""
        self.closed.add(f"ingest/orders/{name}.parquet")

    def give(self, name: str) -> None:
        self.closed.discard(f"ingest/orders/{name}.parquet")

    def expected(self) -> int:
        contents = {self.identity(at): content for at, (_, content, _) in enumerate(self.told)}
        return sum(self.rows_of[contents[each]] for each in self.taken)


def denying(patch: pytest.MonkeyPatch, closed: set[str]) -> None:
    for name in ("get", "get_suffix", "head", "copy"):
        real = getattr(MemoryStore, name)

        def call(store: MemoryStore, at: Any, *rest: Any, _real: Any = real, **named: Any) -> Any:
            if getattr(at, "key", at) in closed:
                raise AccessDenied("S3 answered 403 AccessDenied")
            return _real(store, at, *rest, **named)

        patch.setattr(MemoryStore, name, call)


_NAMES = st.sampled_from(
    ["a", "b", "upload-5f3a"]
)  # no convention says that one of them is temporary
_STEPS = st.one_of(
    st.tuples(st.just("write"), _NAMES, st.integers(1, 4)),
    st.tuples(st.just("copy"), _NAMES, _NAMES),
    st.tuples(st.just("delete"), _NAMES),
    st.tuples(st.just("close"), _NAMES),
    st.tuples(st.just("give"), _NAMES),
    st.tuples(st.just("hear"), st.integers(0, 9)),
    st.tuples(st.just("sweep")),
)


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(_STEPS, min_size=1, max_size=12),
    late=st.lists(st.integers(0, 9), max_size=12),
    versioned=st.booleans(),
)
def test_each_content_counts_once_in_any_order_of_writes_copies_deletes_and_events(
    steps: list[tuple[Any, ...]], late: list[int], versioned: bool
) -> None:
    with fresh() as functions, pytest.MonkeyPatch.context() as patch:
        functions.create_orders()
        if versioned:
            functions.store.enable_versioning()
        landing = Landing(functions, versioned)
        denying(patch, landing.closed)
        for name, *given_ in steps:
            getattr(landing, name)(*given_)
            assert functions.rows() == landing.expected(), name
        for at in [*late, *range(len(landing.told)), *reversed(range(len(landing.told)))]:
            landing.hear(at)
        # Each letter names what was denied; what can be read again comes in.
        assert set(functions.queues.errors) <= {"AccessDenied"}
        letters = len(functions.queues.dead)
        landing.closed.clear()
        landing.sweep()
        assert functions.rows() == landing.expected()
        assert len(functions.queues.sent) == letters


TEMPORARY = (
    "orders.parquet._COPYING_",
    "orders.parquet.filepart",
    "orders.parquet.tmp",
    "_temporary/0/orders.parquet",
    "upload-5f3a",  # no convention: s3fs.mv, aws s3 mv
)


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("name", TEMPORARY)
def test_a_file_under_a_temporary_name_counts_once_under_its_last(
    functions: Functions, name: str, versioned: bool
) -> None:
    """Written, copied to the final name, deleted under the first: then the events arrive."""
    functions.create_orders()
    if versioned:
        functions.store.enable_versioning()
    first = landing_message(functions, ORDERS, f"ingest/orders/{name}")
    last = landing_message(functions, ORDERS, "ingest/orders/orders.parquet")
    functions.store.delete([f"ingest/orders/{name}"])
    for batch in (first, last, first):
        functions.invoke("ingest", batch)
    assert functions.rows() == 100
    assert functions.queues.sent == []


def test_what_was_taken_back_is_counted(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    functions.create_orders()
    batch = landing_message(functions, ORDERS, "ingest/orders/a.parquet")
    functions.store.delete(["ingest/orders/a.parquet"])
    functions.invoke("ingest", batch)
    metrics = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(each.get("TakenBack", [0])[0] for each in metrics) == 1


def test_what_was_uploaded_again_after_it_was_deleted_counts(functions: Functions) -> None:
    functions.create_orders()
    functions.store.enable_versioning()
    first = landing_message(functions, ORDERS)
    functions.store.delete([KEY])
    second = landing_message(functions, few(10))
    functions.invoke("ingest", second)
    functions.invoke("ingest", first)  # no longer taken back: its key has an object again
    assert functions.rows() == 110


# -- what no event told of ------------------------------------------------------------------------


def sweep(functions: Functions) -> dict[str, Any]:
    functions.set_variable("INLAY_INGEST_QUEUE", "ingest")
    found: dict[str, Any] = functions.invoke("collect_garbage", {"landing_only": True})
    names = [json.loads(body)["table"] for body in functions.queues.bodies("landing-rounds")]
    functions.queues.sent = [m for m in functions.queues.sent if m["QueueUrl"] != "landing-rounds"]
    assert found["sent"] == len(names)
    asked = {"landing_only": True}
    return {
        name: functions.invoke("collect_garbage", {"table": name, **asked})[name]["landing"]
        for name in names
    }


def deliver(functions: Functions) -> None:
    """What was sent to the ingest queue arrives."""
    (record,) = event("ingest.normal")["Records"]
    bodies = functions.queues.bodies("ingest")
    functions.queues.sent = [m for m in functions.queues.sent if m["QueueUrl"] != "ingest"]
    for body in bodies:
        functions.invoke("ingest", {"Records": [{**record, "body": body}]})


@pytest.mark.parametrize("versioned", [False, True])
def test_a_file_whose_event_was_lost_is_ingested_by_the_sweep(
    functions: Functions, versioned: bool
) -> None:
    functions.create_orders()
    if versioned:
        functions.store.enable_versioning()
    heard = landing_message(functions, ORDERS, "ingest/orders/heard é+.parquet")
    functions.invoke("ingest", heard)
    landing_message(functions, few(10), "ingest/orders/lost é+1%.parquet")
    landing_message(functions, few(5, 7_000), "ingest/orders/_temporary/x.parquet")
    landing_message(functions, b"no Parquet", "ingest/orders/bad.parquet")
    still = {"rejected": 1, "ignored": 1}
    assert sweep(functions) == {"orders": {"ingested": 1, "pending": 1, **still, "sent": 0}}
    functions.clock.pass_days(0.1)
    assert sweep(functions)["orders"]["sent"] == 1
    deliver(functions)
    functions.invoke("ingest", heard)
    assert functions.rows() == 110
    assert functions.queues.dead == []
    assert sweep(functions) == {"orders": {"ingested": 2, **still, "sent": 0}}


def test_an_overwritten_version_whose_event_was_lost_is_found(functions: Functions) -> None:
    functions.create_orders()
    functions.store.enable_versioning()
    landing_message(functions, ORDERS)
    second = landing_message(functions, few(10))
    functions.invoke("ingest", second)
    functions.clock.pass_days(0.1)
    assert sweep(functions)["orders"] == {"ingested": 1, "pending": 1, "sent": 1}
    deliver(functions)
    assert functions.rows() == 110


def test_the_age_of_what_is_pending_is_a_metric(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    functions.create_orders()
    functions.set_variable("POWERTOOLS_METRICS_NAMESPACE", "Inlay/local")
    alarm = alarms_of(EVENTS.parent / "template.yaml", stack="local")["LandingAgeAlarm"]
    lost = landing_message(functions, ORDERS)
    functions.clock.pass_days(0.5)

    def swept(at: float) -> tuple[list[Any], str]:
        sweep(functions)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        metrics = Metrics()
        for line in lines:
            metrics.put_embedded(line, at)
        return lines, state(alarm, metrics, at)

    lines, red = swept(0.0)
    [age] = [each["OldestPendingSeconds"][0] for each in lines if "OldestPendingSeconds" in each]
    assert 43_000 < age < 43_500 and red == ALARM
    functions.invoke("ingest", lost)
    assert swept(3600.0)[1] == OK

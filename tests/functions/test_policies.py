"""Each function may do what it does, and nothing else: its requests, recorded, against the template."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.format.codec import decode_frame
from inlay.functions import glue, messages, settings, tables
from inlay.parquet.write import writer
from inlay.plan.maintain import compaction
from inlay.storage.base import MIN_PART_BYTES
from inlay.storage.memory import MemoryStore

from .conftest import (
    BUCKET,
    EVENTS,
    ORDERS,
    Functions,
    LambdaContext,
    event,
    few,
    fresh,
    landing_message,
)
from .policies import KEY_ARN, Guard, guarded, load, policies
from .test_budgets import batch

ADOPTED = "lake"
ADOPTED_KEY_ARN = "arn:aws:kms:us-east-1:210987654321:key/lake"
# What the event source mapping does with the function's role, not the function.
POLLING = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}
ROUNDS = {
    "rewrite": "RewriteRoundQueue",
    "compact": "CompactRoundQueue",
    "publish": "PublishRoundQueue",
    "collect_garbage": "CollectGarbageRoundQueue",
}
QUEUES = {
    "dead-letters": {
        "ingest": "IngestDeadLetters",
        "delete": "DeleteDeadLetters",
        "rewrite": "RewriteDeadLetters",
        "publish": "PublishDeadLetters",
        "compact": "RoundDeadLetters",
        "collect_garbage": "RoundDeadLetters",
    },
    **{f"https://sqs/{queue}": queue for queue in ROUNDS.values()},
    "round-dead-letters": "RoundDeadLetters",
    "erase-dead-letters": "EraseDeadLetters",
    "rewrite": "RewriteQueue",
    "handover": "HandoverQueue",
    "ingest": "IngestQueue",
    "source": {"ingest": "IngestQueue", "delete": "DeleteQueue", "publish": "PublishQueue"},
    "https://sqs/EraseQueue": "EraseQueue",
    "https://sqs/EraseRoundQueue": "EraseRoundQueue",
    "https://sqs/LandingRoundQueue": "LandingRoundQueue",
}


class GlueErrors:
    class EntityNotFoundException(Exception):
        pass

    class AlreadyExistsException(Exception):
        pass

    class ConcurrentModificationException(Exception):
        pass


class Actor:
    """Runs the functions as themselves; the test itself is bound by no policy."""

    def __init__(self, functions: Functions, guard: Guard, patch: pytest.MonkeyPatch) -> None:
        self.functions, self.guard = functions, guard
        patch.setattr(tables, "store", lambda: guarded(functions.store, guard))
        self.queues = functions.queues
        patch.setattr(messages, "sqs", lambda: self)
        key = settings.erasure_key

        def erasure_key() -> bytes:
            self._sqs("secretsmanager:GetSecretValue", "ErasureKey")
            return key()

        patch.setattr(settings, "erasure_key", erasure_key)
        self.exceptions = GlueErrors
        self.glue: dict[str, Any] = {}
        patch.setattr(glue, "client", lambda: self)

    # Glue asks for the catalog, the database and the table (AWS: "Glue resource ARNs").
    def _glue(self, action: str, name: str) -> None:
        for resource in ("catalog", "database/lake", f"table/lake/{name}"):
            self.guard.ask(f"glue:{action}", f"arn:aws:glue:us-east-1:123456789012:{resource}")

    def get_table(self, **asked: Any) -> Any:
        self._glue("GetTable", asked["Name"])
        if asked["Name"] not in self.glue:
            raise GlueErrors.EntityNotFoundException
        return {"Table": {**self.glue[asked["Name"]], "VersionId": "0"}}

    def create_table(self, **asked: Any) -> None:
        name = asked["TableInput"]["Name"]
        self._glue("CreateTable", name)
        self.glue[name] = asked["TableInput"]

    def update_table(self, **asked: Any) -> None:
        name = asked["TableInput"]["Name"]
        self._glue("UpdateTable", name)
        self.glue[name] = asked["TableInput"]

    def _sqs(self, action: str, resource: str) -> None:
        self.guard.ask(action, resource)

    def _queue(self, action: str, url: str) -> None:
        named = QUEUES[url]
        name = named if isinstance(named, str) else named[self.guard.acting]
        self._sqs(action, f"arn:aws:sqs:us-east-1:123456789012:{name}")

    def send_message(self, **message: Any) -> None:
        self._queue("sqs:SendMessage", message["QueueUrl"])
        self.queues.send_message(**message)

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        self._queue("sqs:SendMessage", request["QueueUrl"])
        return self.queues.send_message_batch(**request)

    def get_queue_attributes(self, **request: Any) -> dict[str, Any]:
        self._queue("sqs:GetQueueAttributes", request["QueueUrl"])
        return self.queues.get_queue_attributes(**request)

    def change_message_visibility_batch(self, **request: Any) -> None:
        self._queue("sqs:ChangeMessageVisibility", request["QueueUrl"])
        self.queues.change_message_visibility_batch(**request)

    def round(self, function: str, asked: Any = None) -> None:
        """A schedule, and every table it sends."""
        self(function, asked or {})
        kinds = {"landing_only": "Landing", "erasures_only": "Erase"}
        own = next((f"{kinds[name]}RoundQueue" for name in asked or {}), ROUNDS[function])
        url = f"https://sqs/{own}"
        bodies = [json.loads(body) for body in self.queues.bodies(url)]
        self.queues.sent = [each for each in self.queues.sent if each["QueueUrl"] != url]
        for body in [*bodies, {"table": "gone"}]:
            self(function, from_queue(batch(body), own))

    def __call__(self, function: str, what: Any, context: Any = None) -> Any:
        if isinstance(what, dict) and "Records" in what:
            arns = [r.get("eventSourceARN") for r in what["Records"] if isinstance(r, dict)]
            if arn := next(filter(None, arns), None):
                for action in POLLING:
                    self.guard.acting = function
                    self._sqs(action, arn)
        self.guard.acting = function
        self.functions.set_variable("INLAY_ROUND_QUEUE", f"https://sqs/{ROUNDS.get(function)}")
        for kind in ("Erase", "Landing"):
            name = f"INLAY_{kind.upper()}_ROUND_QUEUE"
            self.functions.set_variable(name, f"https://sqs/{kind}RoundQueue")
        try:
            return self.functions.invoke(function, what, context)
        finally:
            self.guard.acting = ""

    def failing(self, function: str, what: Any) -> None:
        """Run a function while no part of an upload is taken."""
        self.guard.failing_parts = True
        with suppress(Exception):
            self(function, what)
        self.guard.failing_parts = False

    def sent(self, queue: str) -> Iterator[dict[str, Any]]:
        """What was sent to a queue, as its function receives it; the queue is then empty."""
        bodies = self.queues.bodies(queue)
        self.queues.sent.clear()
        for body in bodies:
            yield from_queue(batch(json.loads(body)), "RewriteQueue")


NAMES = itertools.count()


def from_queue(sent: dict[str, Any], queue: str) -> dict[str, Any]:
    for record in sent["Records"]:
        record["messageId"] = f"message-{next(NAMES)}"
        record["eventSourceARN"] = f"arn:aws:sqs:us-east-1:123456789012:{queue}"
    return sent


@pytest.fixture
def actor(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> Actor:
    return _actor(functions, monkeypatch)


def _actor(functions: Functions, monkeypatch: pytest.MonkeyPatch, *, bare: bool = False) -> Actor:
    """`bare`: without keys of one's own and without Glue, as deployed by default."""
    own = {"KmsKeyArn": KEY_ARN, "AdoptKmsKeys": ADOPTED_KEY_ARN, "GlueDatabase": "lake"}
    more = {} if bare else own
    keys = {} if bare else {BUCKET: KEY_ARN, ADOPTED: ADOPTED_KEY_ARN}
    template = load(AdoptFrom=f"arn:aws:s3:::{ADOPTED}/raw/*", Catalog="true", **more)
    for name, value in {
        "INLAY_ADOPT_FROM": f"arn:aws:s3:::{ADOPTED}/raw/*",
        "INLAY_ERASE_QUEUE": "https://sqs/EraseQueue",
        "INLAY_ERASE_DEAD_LETTERS": "erase-dead-letters",
        "INLAY_INGEST_QUEUE": "ingest",
        "INLAY_ROUND_DEAD_LETTERS": "round-dead-letters",
        "INLAY_GLUE_DATABASE": more.get("GlueDatabase", ""),
    }.items():
        functions.set_variable(name, value)
    return Actor(functions, Guard(policies(template), keys=keys), monkeypatch)


class Late(LambdaContext):
    """An invocation that has no time but for its first message."""

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 0


def large(rows: int = 60_000) -> bytes:
    """Orders of several row groups of more than 5 MiB: surgery copies what it leaves."""
    import numpy as np

    sample = pq.read_table(pa.BufferReader(ORDERS))
    taken = sample.take(np.arange(rows) % sample.num_rows)
    ids = pa.array(range(rows), sample.schema.field("order_id").type)
    taken = taken.set_column(taken.schema.get_field_index("order_id"), "order_id", ids)
    noise = np.random.default_rng(1).integers(0, 255, (rows, 400), dtype=np.uint8)
    at = taken.schema.get_field_index("status")
    words = pa.array([each.tobytes().hex() for each in noise])
    taken = taken.set_column(at, "status", words.cast(taken.schema.field("status").type))
    sink = io.BytesIO()
    pq.write_table(taken, sink, row_group_size=rows // 3, compression=None)
    return sink.getvalue()


def schema() -> pa.Schema:
    return pq.read_schema(pa.BufferReader(ORDERS))


def tour(actor: Actor, *, versioned: bool) -> None:
    """Every event of `events/` and every operation that a function carries out."""
    functions = actor.functions
    if versioned:
        functions.store.enable_versioning()
    functions.create_orders()
    functions.land()
    functions.store.put(
        "ingest/orders/tagged.parquet", few(5), headers={"Tagging": "owner=somebody"}
    )
    for path in sorted(EVENTS.glob("*.*.json")):
        function = path.stem.split(".")[0]
        if function == "handover":  # a Spark job's
            continue
        sent = event(path.stem)
        if "mixed" not in path.stem and "aws:sqs" in str(sent):
            kind = "RoundQueue" if ".round" in path.stem else "Queue"
            named = "".join(map(str.capitalize, function.split("_")))
            sent = from_queue(sent, f"{named}{kind}")
        try:
            actor(function, sent)
        except Exception as error:
            said = str(error)
            if "newer" in path.stem:  # left in the queue
                assert "All records failed" in said
                continue
            assert "not a valid table name" in said or "function URL" in said, (path.stem, error)
        functions.queues.sent = [m for m in functions.queues.sent if "Round" not in m["QueueUrl"]]
        functions.clock.pass_days(0.01)
    # Versions, tags, retries, the erase queue, what is handed back or forwarded.
    first = from_queue(landing_message(functions, few(7, 3_000)), "IngestQueue")
    landing_message(functions, few(8, 4_000))
    actor("ingest", first)
    functions.store.put("ingest/orders/t.parquet", few(3, 9_000), headers={"Tagging": "a=b"})
    version = next(iter(functions.store.list_versions("ingest/orders/t.parquet"))).version_id
    for named in (version, None):
        news = json.loads(first["Records"][0]["body"])
        news["Records"][0]["s3"]["object"] = {"key": "ingest/orders/t.parquet"}
        if named:
            news["Records"][0]["s3"]["object"]["versionId"] = named
        actor("ingest", from_queue(batch(news), "IngestQueue"))
    two = [json.loads(first["Records"][0]["body"]) for _ in range(2)]
    two[1]["Records"][0]["s3"]["object"] = {"key": "ingest/other/x.parquet", "eTag": "x"}
    actor("ingest", from_queue(batch(*two), "IngestQueue"), Late())
    deletes = [{"table": "orders", "where": f"order_id = {n}"} for n in range(4, 8)]
    actor("delete", from_queue(batch(*deletes), "DeleteQueue"), Late())
    erase = {"table": "orders", "where": "customer_id = 3", "mode": "erase"}
    actor("delete", from_queue(batch(erase, erase), "EraseQueue"), Late())
    actor("delete", from_queue(batch({**erase, "where": "?"}), "EraseQueue"))
    for mode in ("vector", "surgery", "rewrite", "erase"):
        actor("delete", from_queue(batch({**erase, "mode": mode}), "DeleteQueue"))
    # Keys in an object of their own.
    keys = {"table": "orders", "keys": {"order_id": list(range(50_000, 60_000))}}
    actor("delete", from_queue(batch(keys), "DeleteQueue"))
    for sent in list(actor.sent("rewrite")):
        actor("rewrite", sent)
    # A large table with files adopted elsewhere: surgery copies ranges and carries tags over.
    body = large()
    functions.store.at(ADOPTED).put("raw/big.parquet", body, headers={"Tagging": "a=b"})
    functions.store.put("ingest/large/big.parquet", body)
    table = inlay.create(f"memory://{BUCKET}/tables/large", schema())
    table.ingest([f"memory://{BUCKET}/ingest/large/big.parquet"])
    [own] = table.inspect.files()["key"].to_pylist()
    functions.store.put(f"tables/large/{own}", body, headers={"Tagging": "a=b"})
    table.ingest([f"memory://{ADOPTED}/raw/big.parquet"], adopt=True)
    for mode, order in (("vector", 50_001), ("surgery", 40_001)):
        asked = {"table": "large", "where": f"order_id = {order}", "mode": mode}
        actor("delete", from_queue(batch(asked), "DeleteQueue"))
        for sent in list(actor.sent("rewrite")):
            actor("rewrite", sent)
    table.refresh().delete("order_id = 20001")
    actor.failing("rewrite", {"table": "large"})
    # Work that time does not allow is sent again.
    actor("rewrite", from_queue(batch({"table": "large"}), "RewriteQueue"), Late())
    actor.round("rewrite")
    # A record of a text that is refused is listed beside it.
    takes = {"ingest.formats": "parquet,csv", "ingest.bad_lines": 1}
    inlay.create(
        f"memory://{BUCKET}/tables/texts", pa.schema([("id", pa.int64())]), properties=takes
    )
    actor("ingest", landing_message(functions, b"id\n1\nx\n", "ingest/texts/a.csv"))
    # A file of keys is read and deleted.
    functions.store.put("keys/leavers.csv", b"order_id\n90\n91\n")
    leavers = {
        "table": "orders",
        "mode": "erase",
        "keys_from": f"memory://{BUCKET}/keys/leavers.csv",
    }
    actor("delete", from_queue(batch(leavers), "EraseQueue"))
    # Uploads that break off are aborted.
    inlay.create(
        f"memory://{BUCKET}/tables/parts",
        schema(),
        partition_by=["bucket(2, customer_id)"],
        properties={"compact.small_file_bytes": str(2**30)},
    )
    sent = landing_message(functions, body, "ingest/parts/big.parquet")
    actor.failing("ingest", from_queue(sent, "IngestQueue"))
    actor("ingest", from_queue(sent, "IngestQueue"))
    functions.store.at(ADOPTED).put("raw/small.parquet", ORDERS)
    parts = inlay.open(f"memory://{BUCKET}/tables/parts")
    parts.append(pq.read_table(pa.BufferReader(few(10))))
    plain = inlay.create(f"memory://{BUCKET}/tables/plain", schema())
    plain.ingest([f"memory://{ADOPTED}/raw/small.parquet"], adopt=True)
    plain.append(pq.read_table(pa.BufferReader(ORDERS)))  # as large: they are packed together
    packs = inlay.create(f"memory://{BUCKET}/tables/packs", schema())
    for _ in range(5):
        packs.append(pq.read_table(pa.BufferReader(large(8_000))))
    actor.failing("compact", {"table": "packs"})
    actor.round("compact")
    # A table that is shown to other engines: its files get field ids, in parts.
    shown = inlay.create(f"memory://{BUCKET}/tables/shown", schema())
    shown.ingest([f"memory://{BUCKET}/ingest/large/big.parquet"])
    shown.set_properties(**{"publish.format": "v3"})
    # What a table of the same name left behind, which had more versions.
    earlier = inlay.create(f"memory://{ADOPTED}/tables/shown", schema())
    for start in range(3):
        earlier.append(pq.read_table(pa.BufferReader(few(3, start))))
    later = f"metadata/v{earlier.publish(format='v3').version}.metadata.json"
    body = functions.store.at(ADOPTED).get(f"tables/shown/{later}").body
    functions.store.put(f"tables/shown/{later}", body)
    actor.failing("publish", {"table": "shown"})
    # One whose adopted file has to be looked at.
    theirs = inlay.create(f"memory://{BUCKET}/tables/theirs", schema())
    theirs.ingest([f"memory://{ADOPTED}/raw/small.parquet"], adopt=True)
    theirs.set_properties(**{"publish.format": "v3"})
    actor.round("publish")
    actor("catalog", event("catalog.tables"))
    shown.append(pq.read_table(pa.BufferReader(few(3, 600_000))))
    pointers = [json.loads(r["body"]) for r in event("publish.pointer")["Records"] * 2]
    actor("publish", from_queue(batch(*pointers), "PublishQueue"), Late())
    actor.round("publish")
    # A backlog that no invocation has the time for goes to Spark.
    properties = {"compact.handover_bytes": "1"}
    many = inlay.create(f"memory://{BUCKET}/tables/many", schema(), properties=properties)
    for start in range(5):
        many.append(pq.read_table(pa.BufferReader(few(10, 80_000 + 100 * start))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "SECONDS_PER_MIB", 1e9)
        actor("compact", {"table": "many"})
    # Erasures to their end, with the contents of the landing zone, including unfinished uploads.
    for root in ("ingest/orders/slow.parquet", "tables/orders/data/2020/01/01/00/slow.parquet"):
        functions.store.create_multipart(root)
    functions.store.put("tables/orders/data/2020/01/01/00/orphan.parquet", ORDERS)
    look_everywhere(actor)
    functions.clock.pass_days(1)
    actor("delete", from_queue(batch({**erase, "where": "customer_id = 5"}), "EraseQueue"))
    functions.store.put("ingest/orders/lost.parquet", few(2, 70_000))
    functions.clock.pass_days(0.1)
    actor.round("collect_garbage", {"landing_only": True})
    for sent in functions.queues.bodies("ingest"):
        actor("ingest", from_queue(batch(json.loads(sent)), "IngestQueue"))
    functions.queues.sent.clear()
    for _ in range(6):
        functions.clock.pass_days(4)
        actor.round("rewrite")
        actor.round("collect_garbage")
        actor.round("collect_garbage", {"erasures_only": True})


def look_everywhere(actor: Actor) -> None:
    """A table with tagged files (its own, adopted ones, one that was not ingested yet), and an erasure that
    concerns no row of them."""
    functions = actor.functions
    theirs = f"memory://{ADOPTED}/raw/tagged.parquet"
    functions.store.at(ADOPTED).put("raw/tagged.parquet", ORDERS, headers={"Tagging": "a=b"})
    table = inlay.create(f"memory://{BUCKET}/tables/tagged", schema())
    functions.store.put("ingest/tagged/own.parquet", few(5))
    table.ingest([f"memory://{BUCKET}/ingest/tagged/own.parquet"])
    [own] = table.inspect.files()["key"].to_pylist()
    # As a library of old copied them.
    functions.store.put(f"tables/tagged/{own}", few(5), headers={"Tagging": "a=b"})
    table.ingest([theirs], adopt=True)
    functions.store.put("ingest/tagged/next.parquet", few(5), headers={"Tagging": "a=b"})
    functions.clock.pass_days(0.1)
    asked = {"table": "tagged", "where": "status = 'nobody'", "mode": "erase", "id": "case-1"}
    actor("delete", from_queue(batch(asked), "EraseQueue"))
    # Before the file that landed is found and ingested.
    actor.round("rewrite")
    actor.round("collect_garbage", {"erasures_only": True})


def test_the_last_look_of_a_deployed_erasure_opens_every_file_and_reads_their_tags(
    actor: Actor,
) -> None:
    look_everywhere(actor)
    for _ in range(3):
        actor.functions.clock.pass_days(1)
        actor.round("collect_garbage")
    key = "tables/tagged/erasure/case-1.json"
    look = decode_frame("erasure", actor.functions.store.get(key).body, key=key)["look"]
    assert (look["files"], look["unsearched"]) == (2, 0)
    assert look["perhaps"] == []
    assert actor.guard.denied == []


@pytest.mark.parametrize("bare", [False, pytest.param(True, marks=pytest.mark.wide)])
def test_the_policies_allow_what_the_functions_do_and_nothing_else(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, bare: bool
) -> None:
    actor = _actor(functions, monkeypatch, bare=bare)
    monkeypatch.setattr("inlay.plan.surgery.SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(writer, "PUT_BYTES", MIN_PART_BYTES)
    monkeypatch.setattr(writer, "PART_BYTES", MIN_PART_BYTES)
    tour(actor, versioned=True)
    with fresh() as unversioned:
        again = _actor(unversioned, monkeypatch, bare=bare)
        again.guard.used = actor.guard.used
        tour(again, versioned=False)
        assert again.guard.denied == []
    assert actor.guard.denied == []
    assert sorted(actor.guard.unused()) == [], "allowed, and never asked for"
    assert "AccessDenied" not in actor.queues.errors


def test_a_file_adopted_from_elsewhere_is_refused_by_name_and_fails_no_round(
    actor: Actor,
) -> None:
    functions = actor.functions
    functions.create_orders()
    functions.store.at("elsewhere").put("theirs/x.parquet", ORDERS)
    orders = functions.orders()
    orders.append(pq.read_table(pa.BufferReader(few(10))))
    orders.ingest(["memory://elsewhere/theirs/x.parquet"], adopt=True)
    orders.delete("customer_id = 7")
    assert actor("rewrite", {"table": "orders"})["orders"]["rewrite"]["failures"] == 1
    actor.round("compact")
    asked = {"table": "orders", "where": "order_id = 1", "mode": "vector"}
    actor("delete", from_queue(batch(asked), "DeleteQueue"))
    assert functions.queues.errors == ["NotGranted"]
    [letter] = [each for each in functions.queues.sent if each["QueueUrl"] == "dead-letters"]
    assert "AdoptFrom" in letter["MessageAttributes"]["InlayNextStep"]["StringValue"]
    # Nor is it a fault of publishing: the table is one that cannot be published.
    orders.refresh().set_properties(**{"publish.format": "v3"})
    found = actor("publish", {"table": "orders"})["orders"]
    assert "a location this deployment may not read" in found["unpublishable"]
    assert actor.guard.denied == []


def test_a_place_to_adopt_from_is_understood_as_iam_does(functions: Functions) -> None:
    """IAM's patterns have * and ?, and no classes in brackets."""
    functions.set_variable("INLAY_ADOPT_FROM", "arn:aws:s3:::lake/[raw]/*, arn:aws:s3:::lake/a?/*")
    patterns = settings.adopt_from() or ()

    def granted(name: str) -> bool:
        return any(fnmatchcase(name, each) for each in patterns)

    assert granted("lake/[raw]/x.parquet") and granted("lake/ab/x.parquet")
    assert not granted("lake/r/x.parquet") and not granted("lake/a/x.parquet")


def test_an_adopted_file_that_is_gone_fails_by_itself_though_s3_says_forbidden(
    actor: Actor,
) -> None:
    """Without ListBucket on the other bucket, which nobody grants for this, a missing object is a 403."""
    functions = actor.functions
    functions.create_orders()
    lake = functions.store.at(ADOPTED)
    lake.put("raw/x.parquet", ORDERS)
    orders = functions.orders()
    orders.append(pq.read_table(pa.BufferReader(few(10))))
    orders.ingest([f"memory://{ADOPTED}/raw/x.parquet"], adopt=True)
    orders.delete("customer_id = 7")
    lake.delete(["raw/x.parquet"])
    # The table's other file is rewritten all the same.
    rewritten = actor("rewrite", {"table": "orders"})["orders"]["rewrite"]
    assert (rewritten["files"], rewritten["failures"]) == (1, 1)
    actor.round("compact")
    asked = {"table": "orders", "where": "order_id = 1", "mode": "vector"}
    actor("delete", from_queue(batch(asked), "DeleteQueue"))
    assert functions.queues.errors == ["NotGranted"]
    [letter] = [each for each in functions.queues.sent if each["QueueUrl"] == "dead-letters"]
    said = {n: v["StringValue"] for n, v in letter["MessageAttributes"].items()}
    assert "is gone, or may not be read" in said["InlayReason"]
    assert all(cause in said["InlayNextStep"] for cause in ("If it is lost", "AdoptKmsKeys"))
    assert said["InlayKey"].endswith("lake/raw/x.parquet")
    # No message for each commit: the table is one that cannot be published.
    orders.refresh().set_properties(**{"publish.format": "v3"})
    found = actor("publish", {"table": "orders"})["orders"]
    assert "is gone, or may not be read" in found["unpublishable"]
    assert {action for _, action, _ in actor.guard.denied} == {"s3:ListBucket"}


def test_only_the_erase_queue_may_erase(functions: Functions) -> None:
    functions.fill_orders()
    functions.set_variable("INLAY_ERASE_QUEUE", "https://sqs/EraseQueue")
    functions.set_variable("INLAY_ERASE_DEAD_LETTERS", "erase-dead-letters")
    erase = {"table": "orders", "where": "customer_id = 7", "mode": "erase"}
    functions.invoke("delete", from_queue(batch(erase), "DeleteQueue"))
    functions.invoke("delete", from_queue(batch(erase), "NotTheEraseQueue"))
    assert functions.queues.errors == ["NotAllowed", "NotAllowed"]
    assert functions.rows() == 100
    functions.invoke("delete", from_queue(batch({**erase, "where": "?"}), "EraseQueue"))
    assert len(functions.queues.bodies("erase-dead-letters")) == 1
    functions.invoke("delete", from_queue(batch(erase), "EraseQueue"))
    assert functions.rows() == 90
    functions.set_variable("INLAY_ERASE_FROM_DELETE_QUEUE", "true")
    functions.invoke(
        "delete", from_queue(batch({**erase, "where": "customer_id = 8"}), "DeleteQueue")
    )
    assert functions.rows() == 80


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"ExistingBucket": "ours", "Prefix": "lake/"},
        {"KmsKeyArn": KEY_ARN, "Versioned": "false"},
        {"SubnetIds": "subnet-1,subnet-2", "SecurityGroupIds": "sg-1", "Architecture": "arm64"},
        {"PermissionsBoundary": "arn:aws:iam::123456789012:policy/bound"},
        {"AdoptFrom": "arn:aws:s3:::a/*,arn:aws:s3:::b/*", "AlarmEmail": "a@example.com"},
        {"AdoptFrom": "arn:aws:s3:::a/*", "AdoptKmsKeys": f"{ADOPTED_KEY_ARN},{ADOPTED_KEY_ARN}2"},
        {"GlueDatabase": "lake", "Catalog": "true"},
        {"CompletionBus": "arn:aws:events:us-east-1:123456789012:event-bus/done"},
    ],
)
def test_no_grant_goes_beyond_the_deployment_whatever_its_parameters(
    parameters: dict[str, str],
) -> None:
    template = load(**parameters)
    prefix = parameters.get("Prefix", "")
    bucket = parameters.get("ExistingBucket", BUCKET)
    allowed = {f"arn:aws:s3:::{bucket}", KEY_ARN, "ErasureKey"}
    allowed |= {f"arn:aws:s3:::{bucket}/{prefix}{zone}/*" for zone in ("tables", "ingest", "keys")}
    allowed.add(f"arn:aws:s3:::{bucket}/{prefix}ingest/*/_refused/*")
    published = ("latest.json", "v*.metadata.json")
    allowed |= {f"arn:aws:s3:::{bucket}/{prefix}tables/*/metadata/{name}" for name in published}
    if "GlueDatabase" in parameters:
        glue_arn = "arn:aws:glue:us-east-1:123456789012:"
        allowed |= {glue_arn + each for each in ("catalog", "database/lake", "table/lake/*")}
    for name in ("AdoptFrom", "AdoptKmsKeys", "CompletionBus"):
        allowed |= set(filter(None, parameters.get(name, "").split(",")))
    for grants in policies(template).values():
        for grant in grants:
            assert "*" not in grant.action
            assert grant.resource in allowed or grant.resource.startswith(
                "arn:aws:sqs:us-east-1:123456789012:"
            ), grant
            if grant.action in ("s3:ListBucket", "s3:ListBucketVersions"):
                [(_, key, patterns)] = grant.conditions
                assert key == "s3:prefix"
                assert all(each.startswith(prefix) for each in patterns)
            else:
                assert grant.conditions == ()  # of no other action here S3 knows the prefix
    assert ("Bucket" in template["Resources"]) == ("ExistingBucket" not in parameters)


def test_a_prefix_is_where_tables_and_landing_zone_are(functions: Functions) -> None:
    functions.set_variable("INLAY_PREFIX", "lake/")
    inlay.create(f"memory://{BUCKET}/lake/tables/orders", pq.read_schema(pa.BufferReader(ORDERS)))
    functions.invoke("ingest", landing_message(functions, ORDERS, "lake/ingest/orders/a.parquet"))
    table = inlay.open(f"memory://{BUCKET}/lake/tables/orders")
    assert table.count() == 100
    functions.invoke("ingest", landing_message(functions, ORDERS))
    assert functions.queues.errors == ["InvalidRequest"]
    table.append(pq.read_table(pa.BufferReader(ORDERS)))
    assert set(functions.round("compact.schedule")) == {"orders"}


def test_memory_store_has_what_the_guard_needs() -> None:
    assert issubclass(type(guarded(MemoryStore(BUCKET), Guard({}))), MemoryStore)

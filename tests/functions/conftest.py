"""The functions in this process, on a memory bucket, with queues that only record."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.functions import messages, observe, tables
from inlay.storage import memory

ROOT = Path(__file__).parents[2]
EVENTS = ROOT / "events"
BUCKET = "inlay-123456789012-us-east-1"
ORDERS = (EVENTS / "orders.parquet").read_bytes()
KEY = "ingest/orders/orders.parquet"


@dataclass
class Queues:
    """Stands for SQS: keeps what was sent, and refuses what SQS would refuse."""

    sent: list[dict[str, Any]] = field(default_factory=list)
    broken: bool = False
    handed_back: list[str] = field(default_factory=list)

    def send_message(self, **message: Any) -> None:
        if self.broken:
            raise ConnectionError("no route to SQS")
        attributes = message.get("MessageAttributes", {})
        size = len(message["MessageBody"].encode()) + sum(
            len(name) + len(value["DataType"]) + len(value["StringValue"].encode())
            for name, value in attributes.items()
        )
        assert size <= 1_048_576, "SQS takes one mebibyte, attributes included"
        assert len(attributes) <= 10, "SQS takes ten attributes"
        assert all(value["StringValue"] for value in attributes.values()), "SQS wants values"
        self.sent.append(message)

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        assert 0 < len(request["Entries"]) <= 10, "SQS takes ten entries"
        for each in request["Entries"]:
            self.send_message(QueueUrl=request["QueueUrl"], MessageBody=each["MessageBody"])
        return {"Successful": request["Entries"]}

    def get_queue_attributes(self, **request: Any) -> dict[str, Any]:
        [name] = request["AttributeNames"]
        return {"Attributes": {name: str(len(self.bodies(request["QueueUrl"])))}}

    def change_message_visibility_batch(self, **request: Any) -> None:
        assert len(request["Entries"]) <= 10, "SQS takes ten entries"
        self.handed_back += [each["ReceiptHandle"] for each in request["Entries"]]

    def bodies(self, queue: str) -> list[str]:
        return [each["MessageBody"] for each in self.sent if each["QueueUrl"] == queue]

    @property
    def dead(self) -> list[str]:
        return self.bodies("dead-letters")

    @property
    def errors(self) -> list[str]:
        """The classes of the errors that the dead letters name."""
        return [
            each["MessageAttributes"].get("InlayError", {}).get("StringValue", "")
            for each in self.sent
            if each["QueueUrl"] == "dead-letters"
        ]


@dataclass
class Clock:
    """The store's: the real one, set forward."""

    ahead_us: int = 0

    def now_us(self) -> int:
        return memory.system_now_us() + self.ahead_us

    def pass_days(self, days: float) -> None:
        self.ahead_us += int(days * 86_400_000_000)


class LambdaContext:
    function_name = "test"
    memory_limit_in_mb = 128
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:test"
    aws_request_id = "00000000-0000-4000-8000-000000000000"

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 900_000


@dataclass
class Functions:
    """`invoke` runs a function's handler on an event, as Lambda would."""

    queues: Queues
    store: memory.MemoryStore
    clock: Clock
    set_variable: Callable[[str, str], None]

    def invoke(self, function: str, event: Any, context: Any = None) -> Any:
        self.set_variable("POWERTOOLS_SERVICE_NAME", function)
        given = context or LambdaContext()
        return load_handler(function).handler(json.loads(json.dumps(event)), given)

    def replay(self, name: str) -> Any:
        return self.invoke(name.split(".")[0], event(name))

    def round(self, name: str) -> dict[str, Any]:
        """A schedule's event, and what it sent done: what the function answers of each table."""
        self.replay(name)
        sent = [json.loads(body) for queue in ROUNDS for body in self.queues.bodies(queue)]
        self.queues.sent = [each for each in self.queues.sent if each["QueueUrl"] not in ROUNDS]
        function = name.split(".")[0]
        found: dict[str, Any] = {}
        for body in sent:
            found |= self.invoke(function, body)
        return found

    def land(self, key: str = KEY, body: bytes = ORDERS) -> None:
        self.store.put(key, body)

    def create_orders(self, **properties: object) -> inlay.Table:
        return inlay.create(
            f"memory://{BUCKET}/tables/orders",
            pq.read_schema(pa.BufferReader(ORDERS)),
            primary_key="order_id",
            properties=properties,
        )

    def orders(self) -> inlay.Table:
        return inlay.open(f"memory://{BUCKET}/tables/orders")

    def fill_orders(self) -> None:
        """The table with the hundred orders of `events/orders.parquet`."""
        self.create_orders().append(pq.read_table(pa.BufferReader(ORDERS)))

    def rows(self) -> int:
        return self.orders().scan().to_arrow().num_rows


def event(name: str) -> Any:
    return json.loads((EVENTS / f"{name}.json").read_text())


def from_queue(*bodies: Any, queue: str = "RoundQueue") -> dict[str, Any]:
    """Messages as SQS delivers them to a function."""
    (record,) = event("rewrite.queue")["Records"]
    arn = f"arn:aws:sqs:us-east-1:123456789012:{queue}"
    return {
        "Records": [
            {**record, "messageId": f"m{at}", "eventSourceARN": arn, "body": json.dumps(body)}
            for at, body in enumerate(bodies)
        ]
    }


def load_handler(function: str) -> Any:
    """`functions/<function>/handler.py`, imported under a unique name."""
    name = f"inlay_function_{function}"
    if name not in sys.modules:
        path = ROOT / "functions" / function / "handler.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


# The cached one, also while a test puts another in its place.
_STORE = tables.store


@contextmanager
def fresh() -> Iterator[Functions]:
    """The functions on a bucket and queues of their own."""
    clock = Clock()
    region = memory.MemoryRegion(clock.now_us)
    queues = Queues()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "PROCESS_REGION", region)
        patch.setattr(messages, "sqs", lambda: queues)
        for name, value in VARIABLES.items():
            patch.setenv(name, value)
        _STORE.cache_clear()
        yield Functions(queues, memory.MemoryStore(BUCKET, region=region), clock, patch.setenv)
    _STORE.cache_clear()


def few(count: int, start: int = 1_000) -> bytes:
    """A Parquet file of the first orders of the sample, under other ids."""
    orders = pq.read_table(pa.BufferReader(ORDERS)).slice(0, count)
    ids = pa.array(range(start, start + count), orders.schema.field("order_id").type)
    orders = orders.set_column(orders.schema.get_field_index("order_id"), "order_id", ids)
    sink = io.BytesIO()
    pq.write_table(orders, sink)
    return sink.getvalue()


def landing_message(functions: Functions, body: bytes, key: str = KEY) -> dict[str, Any]:
    """Puts `body` into the landing zone, and returns the queue's message about it as S3 writes it."""
    written = functions.store.put(key, body)
    assert isinstance(written, memory.Written)
    batch = event("ingest.normal")
    notification = json.loads(batch["Records"][0]["body"])
    notification["Records"][0]["s3"]["object"] = {
        "key": quote_plus(key),
        "size": len(body),
        "eTag": written.etag,
        **({"versionId": written.version_id} if written.version_id else {}),
    }
    batch["Records"][0]["body"] = json.dumps(notification)
    batch["Records"][0]["messageId"] = f"message-of-{written.version_id or written.etag}"
    return batch


@pytest.fixture
def functions() -> Iterator[Functions]:
    with fresh() as made:
        yield made


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What the functions' logger writes."""
    stream = io.StringIO()
    monkeypatch.setattr(observe.logger.registered_handler, "stream", stream)
    return stream


ROUNDS = ("rounds", "erase-rounds", "landing-rounds")
VARIABLES = {
    "INLAY_BUCKET": f"memory://{BUCKET}",
    "INLAY_DEAD_LETTERS": "dead-letters",
    "INLAY_REWRITE_QUEUE": "rewrite",
    "INLAY_SOURCE_QUEUE": "source",
    "INLAY_HANDOVER_QUEUE": "handover",
    "INLAY_ROUND_QUEUE": ROUNDS[0],
    "INLAY_ERASE_ROUND_QUEUE": ROUNDS[1],
    "INLAY_LANDING_ROUND_QUEUE": ROUNDS[2],
    "INLAY_GRACE_DAYS": "7",
    "INLAY_ERASURE_KEY": "a key for tests",
    "POWERTOOLS_TRACE_DISABLED": "true",
    "POWERTOOLS_METRICS_NAMESPACE": "Inlay",
}

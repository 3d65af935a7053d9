"""The policies for people: what a page gives an operator or a reader to do, and what they may.

`docs/OPERATE.md` names the operator's commands; each must run with `OperatorPolicy` alone, as each that
only reads with `ReaderPolicy`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import inlay
import inlay.table
from inlay.cli.app import app
from inlay.local.template import decided, read_body
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import MeteredStore

from .conftest import BUCKET, EVENTS, Functions, fresh
from .policies import ACCOUNT, REGION, Guard, grants_of, guarded, load
from .test_policies import ADOPTED, ADOPTED_KEY_ARN, KEY_ARN

TABLE = f"memory://{BUCKET}/tables/people"
READING = (
    f"show {TABLE}",
    f"history {TABLE}",
    f"scan {TABLE}",
    f"files {TABLE}",
    f"inspect {TABLE}",
    f"tombstones {TABLE}",
    f"refs {TABLE}",
    f"partitions {TABLE}",
    f"explain {TABLE}",
    f"compact {TABLE} --dry-run",
    f"expire {TABLE} --dry-run",
    f"tables memory://{BUCKET}/tables",
)
OPERATING = (
    *READING,
    f"landing {TABLE}",
    f"erase-status {TABLE}",
    f"erase-status {TABLE} --verify done",
    f"verify {TABLE}",
    f"verify {TABLE} --depth pages",
    f"repair {TABLE}",
    f"gc {TABLE} --dry-run",
)


@dataclass
class Person:
    """Runs `inlay …` with the grants of one policy."""

    guard: Guard

    def __call__(self, command: str, code: int = 0) -> str:
        self.guard.acting = "person"
        try:
            result = CliRunner().invoke(app, command.split(), catch_exceptions=False)
        finally:
            self.guard.acting = ""
        assert self.guard.denied == []
        assert result.exit_code == code, result.stderr
        return result.stdout


Make = Callable[[str, bool], Person]


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Make:
    """`(policy, bare)` → somebody with that policy; `bare`: of a stack without keys or adopted places."""

    def make(policy: str, bare: bool) -> Person:
        own = {
            "KmsKeyArn": KEY_ARN,
            "AdoptKmsKeys": ADOPTED_KEY_ARN,
            "AdoptFrom": f"arn:aws:s3:::{ADOPTED}/raw/*",
        }
        template = load(**({} if bare else own))
        document = template["Resources"][policy]["Properties"]["PolicyDocument"]
        grants = tuple(g for g in grants_of(document["Statement"]) if of_the_store(g.action))
        keys: Mapping[str, str] = {} if bare else {BUCKET: KEY_ARN, ADOPTED: ADOPTED_KEY_ARN}
        guard = Guard({"person": grants}, keys=keys)
        connect = inlay.table.connect

        def as_person(*given: Any, **more: Any) -> Any:
            made = connect(*given, **more)
            assert isinstance(made.store, MeteredStore)
            assert isinstance(made.store.inner, MemoryStore)
            return replace(made, store=MeteredStore(guarded(made.store.inner, guard)))

        monkeypatch.setattr(inlay.table, "connect", as_person)
        return Person(guard)

    return make


def of_the_store(action: str) -> bool:
    return action.startswith("s3:") or action == "kms:Decrypt"


def parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    return sink.getvalue()


def fill(functions: Functions, *, versioned: bool, adopting: bool) -> None:
    """A table with landed and adopted files, deletes, uploads under way, and two erasures: one ended."""
    if versioned:
        functions.store.enable_versioning()
    table = inlay.create(TABLE, pa.schema([("id", pa.int64()), ("mail", pa.string())]))
    for at in range(3):
        table.append(
            pa.table({"id": [2 * at, 2 * at + 1], "mail": [f"u{2 * at}", f"u{2 * at + 1}"]})
        )
    if adopting:
        elsewhere = functions.store.at(ADOPTED)
        elsewhere.put("raw/a.parquet", parquet(pa.table({"id": [90], "mail": ["u90"]})))
        table.ingest([f"memory://{ADOPTED}/raw/a.parquet"], adopt=True)
    table.delete(where="id = 1")
    table.delete(where="id = 2", mode="vector")
    table.delete(where="mail = 'u3'", mode="erase", request_id="done")
    table.maintain.rewrite()
    for _ in range(2):
        table.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0, life_seconds=0)
    landed = parquet(pa.table({"id": [7], "mail": ["x"]}))
    functions.store.put("ingest/people/one.parquet", landed, headers={"Tagging": "a=b"})
    functions.store.create_multipart("ingest/people/two.parquet")
    functions.store.create_multipart("tables/people/data/three.parquet")
    table.delete(where="mail = 'u4'", mode="erase", request_id="open")


@pytest.mark.parametrize("bare", [False, pytest.param(True, marks=pytest.mark.wide)])
def test_an_operator_may_do_what_the_page_says_and_nothing_else(person: Make, bare: bool) -> None:
    operator = person("OperatorPolicy", bare)
    for versioned in (True, False):
        with fresh() as functions:
            fill(functions, versioned=versioned, adopting=not bare)
            for command in OPERATING:
                operator(command)
            functions.store.put("tables/people/_latest_manifest", b"damaged")
            operator(f"verify {TABLE}", 70)
            operator(f"repair {TABLE}")
    assert sorted(operator.guard.unused()) == []


@pytest.mark.parametrize("bare", [False, pytest.param(True, marks=pytest.mark.wide)])
def test_a_reader_may_read_and_nothing_else(functions: Functions, person: Make, bare: bool) -> None:
    fill(functions, versioned=True, adopting=not bare)
    reader = person("ReaderPolicy", bare)
    for command in READING:
        reader(command)
    assert sorted(reader.guard.unused()) == []


class Sqs:
    """SQS with one letter, as far as the caller may ask it. A queue's URL is its name here."""

    def __init__(self, guard: Guard) -> None:
        self.guard, self.is_read = guard, False

    def _ask(self, action: str, url: str) -> None:
        self.guard.ask(f"sqs:{action}", f"arn:aws:sqs:{REGION}:{ACCOUNT}:{url}")

    def receive_message(self, **asked: Any) -> dict[str, Any]:
        self._ask("ReceiveMessage", asked["QueueUrl"])
        body = json.dumps({"id": "1", "table": "people", "where": "id = 1"})
        found = [] if self.is_read else [{"MessageId": "1", "Body": body, "ReceiptHandle": "r"}]
        self.is_read = True
        return {"Messages": found}

    def change_message_visibility(self, **asked: Any) -> None:
        self._ask("ChangeMessageVisibility", asked["QueueUrl"])

    def send_message(self, **asked: Any) -> None:
        self._ask("SendMessage", asked["QueueUrl"])

    def delete_message(self, **asked: Any) -> None:
        self._ask("DeleteMessage", asked["QueueUrl"])

    def list_dead_letter_source_queues(self, **asked: Any) -> dict[str, Any]:
        self._ask("ListDeadLetterSourceQueues", asked["QueueUrl"])
        return {"queueUrls": [asked["QueueUrl"].replace("DeadLetters", "Queue")]}


@pytest.mark.parametrize("queue", ["Ingest", "Delete", "Erase", "Rewrite", "Handover", "Publish"])
def test_an_operator_may_do_with_letters_what_the_page_says(
    monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    document = load()["Resources"]["OperatorPolicy"]["Properties"]["PolicyDocument"]
    grants = tuple(grants_of(document["Statement"]))
    guard = Guard({"person": tuple(g for g in grants if g.action.startswith("sqs:"))})
    monkeypatch.setattr(boto3, "client", lambda *_, **__: Sqs(guard))
    for command in ("list", "show", "redrive --all", "drop --all"):
        how, *options = command.split()
        Person(guard)(" ".join(["dlq", how, f"{queue}DeadLetters", *options]))
    # No command asks for attributes; the console does, to show how many letters wait.
    own = f":{queue}DeadLetters"
    unused = {action for _, action, resource in guard.unused() if resource.endswith(own)}
    assert unused == {"sqs:GetQueueAttributes"}


def test_people_use_the_key_through_the_services_of_their_work_only() -> None:
    own = {"KmsKeyArn": KEY_ARN, "AdoptKmsKeys": ADOPTED_KEY_ARN}
    template = load(**own, AdoptFrom=f"arn:aws:s3:::{ADOPTED}/raw/*")["Resources"]
    wanted = {
        "ProducerPolicy": {"s3.*", "sqs.*"},
        "TableProducerPolicy": {"s3.*"},
        "EraserPolicy": {"sqs.*"},
        "ReaderPolicy": {"s3.*"},
        "OperatorPolicy": {"s3.*", "sqs.*"},
    }
    for policy, services in wanted.items():
        document = template[policy]["Properties"]["PolicyDocument"]
        keys = [g for g in grants_of(document["Statement"]) if g.action.startswith("kms:")]
        assert keys
        for grant in keys:
            ((how, key, named),) = grant.conditions
            assert (how, key) == ("StringLike", "kms:ViaService")
            assert set(named) == (services if grant.resource == KEY_ARN else {"s3.*"}), policy


def test_a_producer_of_one_table_may_put_files_of_that_table_alone() -> None:
    document = load()["Resources"]["TableProducerPolicy"]["Properties"]["PolicyDocument"]
    statement = document["Statement"][0]
    # `${!…}` is how a template writes IAM's own variables.
    assert statement["Resource"].endswith("/ingest/${!aws:PrincipalTag/inlay-table}/*")
    assert set(statement["Action"]) == {"s3:PutObject", "s3:AbortMultipartUpload"}


def test_only_the_rules_that_a_parameter_names_may_send_events_of_buckets() -> None:
    """Also those that pass on the events of another account's bucket; without the parameter none may."""
    rules = [
        "arn:aws:events:eu-west-1:123456789012:rule/own",
        "arn:aws:events:eu-west-1:1:rule/b/r",
    ]
    body = read_body(EVENTS.parent / "template.yaml")
    known = {name: str(each.get("Default", "")) for name, each in body["Parameters"].items()}

    def senders(given: str) -> list[Any]:
        found = decided(body, {**known, "EventBridgeRules": given})["Resources"]
        statements = found["IngestQueuePolicy"]["Properties"]["PolicyDocument"]["Statement"]
        return [
            each
            for each in statements
            if each.get("Principal") == {"Service": "events.amazonaws.com"}
        ]

    (one,) = senders(",".join(rules))
    assert one["Condition"] == {"ArnEquals": {"aws:SourceArn": rules}}
    assert one["Action"] == "sqs:SendMessage"
    assert one["Resource"] == {"Fn::GetAtt": "IngestQueue.Arn"}
    assert senders("") == []

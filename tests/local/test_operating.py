"""`inlay dlq` and `inlay landing` on a running stack, as an operator uses them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import inlay
from inlay.cli.app import app
from inlay.functions.dead_letters import Letter, as_sent_before, read_letters
from inlay.local.cli import LetterWatch
from inlay.local.s3server import AwsProcess
from inlay.local.stack import environment

ROOT = Path(__file__).parents[2]
ORDERS = (ROOT / "events" / "orders.parquet").read_bytes()
OWN = (
    "id table mode requested_at hops left_bytes delete where keys Records s3 object key Mustermann"
)
NAMES = st.sampled_from(OWN.split())
pytestmark = pytest.mark.functions


class Queue:
    """A queue with dead letters, in which some wait."""

    def __init__(self, sqs: Any, name: str) -> None:
        self.sqs = sqs
        self.dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=self.dead, AttributeNames=["QueueArn"])
        redrive = {
            "deadLetterTargetArn": arn["Attributes"]["QueueArn"],
            "maxReceiveCount": 1,
        }
        self.url = sqs.create_queue(
            QueueName=name, Attributes={"RedrivePolicy": json.dumps(redrive)}
        )["QueueUrl"]

    def bury(self, body: Any, **reasons: str) -> str:
        sent = self.sqs.send_message(
            QueueUrl=self.dead,
            MessageBody=body if isinstance(body, str) else json.dumps(body),
            MessageAttributes={
                f"Inlay{name}": {"DataType": "String", "StringValue": value}
                for name, value in reasons.items()
            },
        )
        return str(sent["MessageId"])

    def waiting(self, url: str) -> list[str]:
        got = self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)
        return [message["Body"] for message in got.get("Messages", [])]


@pytest.fixture
def aws() -> Iterator[AwsProcess]:
    with AwsProcess() as running, environment(running.env()):
        yield running


@pytest.fixture
def queue(aws: AwsProcess) -> Queue:
    return Queue(boto3.client("sqs", endpoint_url=aws.endpoint_url), "deletes")


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["dlq", *arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_letters_are_shown_without_values_unless_asked(queue: Queue) -> None:
    queue.bury(
        {"id": "case-7", "table": "people", "where": "name = 'Mustermann'", "mode": "erase"},
        Error="InvalidPredicate",
        Reason="the condition does not parse",
    )
    queue.bury("Mustermann, not JSON")
    for asked in (["list"], ["show"], ["list", "--json"]):
        told = run(asked[0], queue.dead, *asked[1:])
        assert "InvalidPredicate" in told
        assert "Mustermann" not in told
    assert "people" in run("show", queue.dead)
    assert "Mustermann" in run("show", queue.dead, "--values")
    assert len(queue.waiting(queue.dead)) == 2


def test_what_is_sent_again_stays_the_request_it_was(queue: Queue) -> None:
    queue.bury(
        {"table": "people", "keys": [1]}, MessageId="first", SentMicroseconds="1795176000000000"
    )
    queue.bury({"id": "case-7", "table": "people", "where": "id = 1"})
    queue.bury({"Records": [{"s3": {"object": {"key": "ingest/people/a.parquet"}}}]})
    run("redrive", queue.dead, "--all")
    assert queue.waiting(queue.dead) == []
    sent = [json.loads(body) for body in queue.waiting(queue.url)]
    assert {
        "table": "people",
        "keys": [1],
        "id": "first",
        "requested_at": "2026-11-20T12:00:00+00:00",
    } in sent
    assert {"id": "case-7", "table": "people", "where": "id = 1"} in sent
    assert len(sent) == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just("Mustermann in Bern"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(said=JSON | st.dictionaries(NAMES, JSON, max_size=6))
@example(said={"Records": None})
@example(said={"Records": [{"s3": {"object": {"key": 1}}}], "delete": 5})
@example(said={"table": ["Mustermann in Bern"], "mode": "Mustermann in Bern"})
def test_any_letter_is_shown_without_values(said: Any) -> None:
    """One that no function takes must not keep the others from being looked at."""
    letter = Letter(id="l", body=json.dumps(said), sent_us=0, reasons={}, receipt="")
    shown = {
        name: value for name, value in letter.about.items() if name not in ("request", "objects")
    }
    assert "Mustermann" not in json.dumps(shown)
    assert as_sent_before(letter)


def test_a_letter_is_listed_by_the_id_that_drop_takes(queue: Queue) -> None:
    """Not by that of the request in it."""
    id_ = queue.bury({"id": "case-7", "table": "people", "where": "TRUE"})
    queue.bury({"Records": None})
    listed = [
        json.loads(line) for line in run("list", queue.dead, "--json").splitlines() if "{" in line
    ]
    [first] = [each for each in listed if "request" in each]
    assert (first["id"], first["request"]) == (id_, "case-7")
    run("drop", queue.dead, "--id", id_)
    assert [json.loads(body) for body in queue.waiting(queue.dead)] == [{"Records": None}]


def test_local_up_says_each_letter_once_without_values(queue: Queue) -> None:
    said: list[str] = []
    watch = LetterWatch(queue.sqs, {"DeleteDeadLetters": queue.dead}, said.append)
    watch.look()
    assert said == []
    erase = queue.bury(
        {"id": "case-7", "table": "people", "where": "name = 'Mustermann'", "mode": "erase"},
        Error="InvalidPredicate",
        Reason="the condition does not parse",
    )
    watch.look()
    watch.look(anyway=True)
    assert said == [
        "dead letter in DeleteDeadLetters: erase request for people: InvalidPredicate: the condition "
        f"does not parse\n  inlay dlq show {queue.dead} --id {erase}"
    ]
    assert "people" in run("show", queue.dead, "--id", erase)  # at once: the look hides nothing
    run("drop", queue.dead, "--id", erase)
    # As many as before, and another one: the look that asks anyway finds it.
    landed = queue.bury(
        {"Records": [{"s3": {"object": {"key": "ingest/people/%1B%5B2Ja+b.parquet"}}}]}
    )
    watch.look(anyway=True)
    assert said[1].splitlines()[0] == (
        "dead letter in DeleteDeadLetters: landed file ingest/people/\\x1b[2Ja b.parquet: it failed every "
        "time; the function's log says why"
    )
    assert landed in said[1]
    for _ in range(12):
        queue.bury("Mustermann, not JSON")
    watch.look()
    assert len(said) == 2 + 10 + 1
    assert "2 more" in said[-1]
    assert "Mustermann" not in "".join(said)


def test_a_letter_whose_id_is_null_stays_the_request_it_was() -> None:
    said = {"id": None, "requested_at": None, "table": "people", "where": "id = 1"}
    reasons = {"MessageId": "first", "SentMicroseconds": "1795176000000000"}
    letter = Letter(id="l", body=json.dumps(said), sent_us=7, reasons=reasons, receipt="")
    again = json.loads(as_sent_before(letter))
    assert (again["id"], again["requested_at"]) == ("first", "2026-11-20T12:00:00+00:00")


def test_a_letter_of_a_messages_whole_length_can_be_sent_again() -> None:
    """Written with JSON's escapes it would have three times the bytes, and SQS would refuse it for ever."""
    said = {"table": "people", "keys": ["Иванова " * 60_000, "no character: \uffff"]}
    body = json.dumps(said, ensure_ascii=False).replace("\uffff", "\\uffff")
    again = as_sent_before(Letter("1", body, 1_000_000, {}, ""))
    assert len(again.encode()) < len(body.encode()) + 200 < 1_048_576
    assert "\uffff" not in again  # SQS takes XML's characters
    assert {**json.loads(again), "id": 0, "requested_at": 0} == {**said, "id": 0, "requested_at": 0}


def test_a_listing_that_outlasts_its_minute_ends(queue: Queue) -> None:
    """Letters become visible again while the rest is read: without an end it went round for ever."""

    class Endless:
        def __init__(self) -> None:
            self.at = 0

        def receive_message(self, **_: Any) -> dict[str, Any]:
            found = [(self.at + n) % 95 for n in range(10)]
            self.at += 10
            letters = [{"MessageId": str(n), "Body": "{}", "ReceiptHandle": str(n)} for n in found]
            return {"Messages": letters}

    assert len(list(read_letters(Endless(), "url"))) == 95  # type: ignore[arg-type]


def test_one_letter_is_dropped_and_the_others_stay(queue: Queue) -> None:
    dropped = queue.bury({"table": "one", "where": "TRUE"})
    queue.bury({"table": "two", "where": "TRUE"})
    run("drop", queue.dead, "--id", dropped)
    assert [json.loads(body)["table"] for body in queue.waiting(queue.dead)] == ["two"]


def test_nothing_is_done_to_letters_that_were_not_named(queue: Queue) -> None:
    queue.bury({"table": "one", "where": "TRUE"})
    for action in ("drop", "redrive"):
        run(action, queue.dead, code=2)
        run(action, queue.dead, "--id", "no-such-letter", code=2)
    assert len(queue.waiting(queue.dead)) == 1


def test_more_letters_than_one_request_takes_are_all_seen(queue: Queue) -> None:
    for number in range(25):
        queue.bury({"table": f"t{number}", "where": "TRUE"})
    assert len(run("list", queue.dead, "--json").splitlines()) >= 25
    run("redrive", queue.dead, "--all")
    assert "0 letters" in run("list", queue.dead)


def test_landing_lists_states_with_reasons(aws: AwsProcess) -> None:
    s3 = boto3.client("s3", endpoint_url=aws.endpoint_url)
    s3.create_bucket(Bucket="lake")
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = inlay.create("s3://lake/tables/orders", pq.read_schema(pa.BufferReader(ORDERS)))
    for name, body in {"in": ORDERS, "lost": ORDERS, "bad": b"no Parquet", "_SUCCESS": b""}.items():
        s3.put_object(Bucket="lake", Key=f"ingest/orders/{name}", Body=body)
    table.ingest(["s3://lake/ingest/orders/in"])
    result = CliRunner().invoke(app, ["landing", "s3://lake/tables/orders", "--json"])
    found = {
        each["key"].rpartition("/")[2]: each for each in map(json.loads, result.stdout.splitlines())
    }
    assert {name: each["state"] for name, each in found.items()} == {
        "in": "ingested",
        "lost": "pending",
        "bad": "rejected",
        "_SUCCESS": "ignored",
    }
    assert "of a job" in found["_SUCCESS"]["reason"]
    assert "UnreadableFile" in found["bad"]["reason"]
    pending = CliRunner().invoke(
        app, ["landing", "s3://lake/tables/orders", "--state", "pending", "--json"]
    )
    assert len(pending.stdout.splitlines()) == 1

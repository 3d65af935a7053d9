"""Each alarm fires when what it is for happens on the local AWS, and not before, and says when it is over.

CloudWatch is `tests/simulator/cloudwatch.py`: it reads metric, dimensions, statistic and threshold from the
template. Two alarms are fired where the store's clock can be set: `LandingAgeAlarm` in
tests/functions/test_landing.py, `ErasureAgeAlarm` in tests/functions/test_maintenance.py.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.simulator.cloudwatch import ALARM, NO_DATA, OK, Metrics, alarms_of, state

import inlay
from inlay.local.event_sources import scheduled_event
from inlay.local.runtime import FunctionPool
from inlay.local.runtime_api import Failed, Returned
from inlay.local.s3server import AwsProcess
from inlay.local.stack import LocalOptions, LocalStack, environment
from inlay.local.template import load_template

pytestmark = pytest.mark.functions
ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "template.yaml"
ALARMS = alarms_of(TEMPLATE, stack="local", Catalog="true")
HOUR, DAY = 3_600.0, 86_400.0
FIRED_ELSEWHERE = {"LandingAgeAlarm", "ErasureAgeAlarm"}
FIRED: set[str] = set()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    options = LocalOptions(
        template=TEMPLATE,
        schedules=False,
        retry_seconds=0,
        processes=1,
        home=tmp_path_factory.mktemp("alarms"),
    )
    with LocalStack(options) as running:
        yield running


def look_at_queues(
    stack: LocalStack, metrics: Metrics, at: float, *, only: str = "", prefix: str = ""
) -> None:
    """What SQS tells CloudWatch, at a time that may be yet to come. A look is a receive."""
    for queue in stack.template.queues:
        if only not in ("", queue.logical_id):
            continue
        url = stack.queue_url(queue.logical_id)
        counted = stack.sqs.get_queue_attributes(
            QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"]
        )["Attributes"]["ApproximateNumberOfMessages"]
        of = {"QueueName": f"{prefix}{queue.logical_id}"}
        metrics.put("AWS/SQS", "ApproximateNumberOfMessagesVisible", of, at, float(counted))
        messages = stack.sqs.receive_message(
            QueueUrl=url, VisibilityTimeout=0, MessageSystemAttributeNames=["SentTimestamp"]
        ).get("Messages", [])
        sent = [float(each["Attributes"]["SentTimestamp"]) / 1000 for each in messages]
        oldest = at - min(sent) if sent else 0.0
        metrics.put("AWS/SQS", "ApproximateAgeOfOldestMessage", of, at, oldest)


def look_at_logs(stack: LocalStack, metrics: Metrics, at: float) -> None:
    for log in stack.options.home.glob("*.log"):
        for line in log.read_text().splitlines():
            if line.startswith("{") and '"_aws"' in line:
                metrics.put_embedded(json.loads(line), at)


def fires(name: str, metrics: Metrics, now: float, expected: str = ALARM) -> None:
    assert state(ALARMS[name], metrics, now) == expected, name
    FIRED.add(name)


def test_no_alarm_is_red_on_a_fresh_stack_and_each_tells_its_end(stack: LocalStack) -> None:
    metrics = Metrics()
    look_at_queues(stack, metrics, 0.0)
    for name, alarm in ALARMS.items():
        assert state(alarm, Metrics(), 0.0) in (OK, NO_DATA), name
        assert state(alarm, metrics, 0.0) in (OK, NO_DATA), name
        assert alarm["AlarmActions"] == alarm["OKActions"] == ["AlarmTopic"]


def test_alarms_of_rounds_tell_when_rounds_stop(stack: LocalStack) -> None:
    for schedule in stack.template.schedules:
        answer = stack.invoke(schedule.function, scheduled_event(schedule, stack.region))
        assert isinstance(answer, Returned), answer
    metrics = Metrics()
    look_at_logs(stack, metrics, 0.0)
    rounds = [name for name in ALARMS if name.endswith("RoundsAlarm")]
    assert len(rounds) == len(stack.template.schedules)
    for name in rounds:
        later = 6 * DAY if ALARMS[name]["Period"] == DAY else 6 * HOUR
        assert state(ALARMS[name], metrics, 0.0) == OK
        fires(name, metrics, later, NO_DATA)
        assert ALARMS[name]["InsufficientDataActions"] == ["AlarmTopic"]


def test_new_letters_ring_once_and_old_ones_before_they_are_lost(stack: LocalStack) -> None:
    begun, metrics = time.time(), Metrics()
    for ago in (900, 600, 300):
        look_at_queues(stack, metrics, begun - ago)
    stack.s3.put_object(Bucket=stack.bucket, Key="ingest/orders/text.parquet", Body=b"text")
    for queue in ("DeleteQueue", "EraseQueue", "RewriteQueue", "PublishQueue", "CompactRoundQueue"):
        stack.send(queue, "not JSON")
    stack.send("HandoverQueue", {"table": "orders"})
    for _ in range(6):  # a Spark job that fails each time
        stack.sqs.receive_message(QueueUrl=stack.queue_url("HandoverQueue"), VisibilityTimeout=0)
    stack.drain()
    look_at_queues(stack, metrics, begun)
    letters = [name for name in ALARMS if name.endswith("DeadLettersAlarm")]
    assert len(letters) == len(stack.dead_letter_queues())
    for name in letters:
        assert state(ALARMS[name], metrics, begun - 300) == OK
        fires(name, metrics, begun)
    for later in (300, 600, 900):
        look_at_queues(stack, metrics, begun + later)
    assert {state(ALARMS[name], metrics, begun + 900) for name in letters} == {OK}
    # Old letters hide no new one.
    stack.send("DeleteQueue", "not JSON either")
    stack.drain()
    look_at_queues(stack, metrics, begun + 1200)
    fires("DeleteDeadLettersAlarm", metrics, begun + 1200)

    look_at_queues(stack, metrics, begun + 10 * DAY)
    assert state(ALARMS["LettersExpireAlarm"], metrics, begun + 10 * DAY) == OK
    look_at_queues(stack, metrics, begun + 11.1 * DAY)
    fires("LettersExpireAlarm", metrics, begun + 11.1 * DAY)


def test_messages_that_nobody_takes_ring_by_their_age(stack: LocalStack) -> None:
    """The event sources are off. The last test on this stack."""
    stack._event_sources.stop_taking()
    ages = {"IngestQueue": HOUR / 2, "DeleteQueue": HOUR / 2, "EraseQueue": HOUR / 2}
    ages["RewriteQueue"] = 6 * HOUR
    for queue in ages:
        stack.send(queue, {"table": "orders"})
    sent = time.time()
    for queue, seconds in ages.items():
        name = queue.replace("Queue", "AgeAlarm")
        metrics = Metrics()
        look_at_queues(stack, metrics, sent + seconds - 60, only=queue)
        assert state(ALARMS[name], metrics, sent + seconds - 60) == OK
        look_at_queues(stack, metrics, sent + seconds + 60, only=queue)
        fires(name, metrics, sent + seconds + 60)


def test_functions_that_end_before_they_answer_ring(tmp_path: Path) -> None:
    """A release whose code does not load: Lambda counts an error for each invocation."""
    (tmp_path / "handler.py").write_text("import a_module_that_the_layer_lacks\n")
    template = load_template(TEMPLATE, {"Catalog": "true"})
    metrics = Metrics()
    with contextlib.ExitStack() as running:
        for function in template.functions:
            broken = replace(function, code=tmp_path)
            log = tmp_path / f"{function.name}.log"
            pool = running.enter_context(FunctionPool(broken, environment={}, log=log, size=1))
            of = {"FunctionName": function.logical_id}
            name = function.logical_id.replace("Function", "ErrorsAlarm")
            periods = ALARMS[name]["Period"]
            assert state(ALARMS[name], metrics, 0.0) == OK
            for at in range(ALARMS[name].get("DatapointsToAlarm", 1)):
                answer = pool.invoke({})
                assert isinstance(answer, Failed)
                metrics.put("AWS/Lambda", "Errors", of, at * periods, 1.0)
            fires(name, metrics, float(at * periods))
    # The local AWS has no bound of concurrency: what Lambda writes when it refuses to run a function.
    for at in range(3):
        for function in template.functions:
            of = {"FunctionName": function.logical_id}
            value = float(function.name == "compact")
            metrics.put("AWS/Lambda", "Throttles", of, at * 300.0, value)
    fires("ThrottlesAlarm", metrics, 600.0)


def named_by_stack(value: Any, name: str) -> Any:
    """With the names that CloudFormation gives: the template gives none, so they begin with the stack's."""
    match value:
        case {"Name": ("QueueName" | "FunctionName") as kind, "Value": str(of)}:
            return {"Name": kind, "Value": f"{name}-{of}"}
        case dict():
            return {key: named_by_stack(each, name) for key, each in value.items()}
        case list():
            return [named_by_stack(each, name) for each in value]
        case _:
            return value


def test_of_two_stacks_in_one_account_each_rings_for_itself(tmp_path: Path) -> None:
    """Both over one S3, in one CloudWatch: the rounds of one do not hide that the other's stopped, its
    letters ring its own alarms, and its work is not the other's."""
    metrics = Metrics()
    with AwsProcess(["s3"]) as aws, environment(aws.env()), contextlib.ExitStack() as running:

        def started(name: str) -> LocalStack:
            options = LocalOptions(
                template=TEMPLATE,
                parameters={"AWS::StackName": name, "BucketPrefix": name, "AutoCreate": "true"},
                endpoint_url=aws.endpoint_url,
                schedules=False,
                retry_seconds=0,
                processes=1,
                home=tmp_path / name,
            )
            return running.enter_context(LocalStack(options))

        stacks = {name: started(name) for name in ("dev", "prod")}
        body = (ROOT / "events" / "orders.parquet").read_bytes()
        for name, stack in stacks.items():
            key = f"ingest/{name}s/a.parquet"
            stack.s3.put_object(Bucket=stack.bucket, Key=key, Body=body)
            stack.drain()
            look_at_queues(stack, metrics, -300.0, prefix=f"{name}-")
        for schedule in stacks["dev"].template.schedules:
            answer = stacks["dev"].invoke(
                schedule.function, scheduled_event(schedule, stacks["dev"].region)
            )
            assert isinstance(answer, Returned), answer
        stacks["dev"].send("DeleteQueue", "not JSON")
        stacks["dev"].send("DeleteQueue", {"table": "prods", "where": "order_id > 0"})
        stacks["dev"].drain()
        for name, stack in stacks.items():
            look_at_logs(stack, metrics, 0.0)
            look_at_queues(stack, metrics, 0.0, prefix=f"{name}-")
            metrics.put(
                "AWS/Lambda", "Errors", {"FunctionName": f"{name}-CompactFunction"}, 0.0, 0.0
            )
        states = {
            name: {
                alarm: state(named_by_stack(said, name), metrics, 0.0)
                for alarm, said in alarms_of(TEMPLATE, stack=name).items()
            }
            for name in stacks
        }
        rounds = {name for name in states["dev"] if name.endswith("RoundsAlarm")}
        assert rounds and {states["dev"][name] for name in rounds} == {OK}
        assert {states["prod"][name] for name in rounds} == {NO_DATA}, "dev's rounds are not prod's"
        assert {n for n, each in states["dev"].items() if each == ALARM} == {
            "DeleteDeadLettersAlarm"
        }
        assert not {n for n, each in states["prod"].items() if each == ALARM}
        for name, stack in stacks.items():
            listed = stack.s3.list_objects_v2(Bucket=stack.bucket, Prefix="tables/", Delimiter="/")
            assert [each["Prefix"] for each in listed["CommonPrefixes"]] == [f"tables/{name}s/"]
            with environment(stack.environment):
                assert inlay.open(stack.table_uri(f"{name}s")).count() == 100


def test_each_alarm_was_fired() -> None:
    """The last test of this file."""
    if not FIRED:
        pytest.skip("alone, it has nothing to look at")
    assert set(ALARMS) - FIRED == FIRED_ELSEWHERE

"""Events mutated at random: nothing but typed outcomes, and a sound message beside them is always done.

Every file of `events/` is a seed. A mutation changes one to three places of it, also inside the JSON texts
that SQS and EventBridge wrap: other types, extreme numbers, broken escapes, foreign and very long texts,
missing and repeated members.
"""

from __future__ import annotations

import copy
import io
import json
import random
from typing import Any

import pytest

from inlay.errors import InlayError
from inlay.functions.observe import InternalFailure

from .conftest import EVENTS, Functions, LambdaContext, event, fresh
from .test_values import everything_said

SEEDS = sorted(
    path.stem
    for path in EVENTS.glob("*.json")
    if path.stem not in ("env", "completion")
    and not path.stem.startswith(("handover", "delete.one_megabyte"))
)
TOKEN = "Zq7Mustermann"
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    10**30,
    -(10**400),
    1.5,
    1e308,
    "",
    " ",
    "\x00",
    "\ud800",
    "é\u202e𝕏",
    "%",
    "%ZZ",
    "%2e%2e%2f",
    "../../etc/passwd",
    "tables/orders/_latest_manifest",
    "ingest//orders/x.parquet",
    "ingest/orders/../x.parquet",
    "a" * 5_000,
    "null",
    "{}",
    "[" * 5_000,
    '{"a":' * 2_000,
    TOKEN,
    f"order_id = '{TOKEN}'",
    [],
    [None],
    [[]],
    {},
    {"": None},
    {"table": {"table": TOKEN}},
    "2026-99-99T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "9999999999999999999999",
    "NaN",
    "Infinity",
]


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every member and element, also inside texts that are JSON."""
    found = [path] if path else []
    if isinstance(node, dict):
        for name, value in node.items():
            found += places(value, (*path, name))
    elif isinstance(node, list):
        for at, value in enumerate(node):
            found += places(value, (*path, at))
    elif (inner := unwrapped(node)) is not None:
        found += places(inner, (*path, "\x00json"))
    return [each for each in found if each]


def unwrapped(text: Any) -> Any:
    if not isinstance(text, str) or text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def changed(node: Any, path: tuple[Any, ...], rng: random.Random, odd: list[Any]) -> Any:
    """`node` with what stands at `path` replaced, removed or repeated."""
    if not path:
        return rng.choice(odd)
    first, *rest = path
    if first == "\x00json":
        return json.dumps(changed(unwrapped(node), tuple(rest), rng, odd))
    node = copy.copy(node)
    if not rest and (kind := rng.random()) < 0.25:
        if kind < 0.15 or isinstance(node, dict):
            del node[first]
        else:
            node.insert(first, node[first])
        return node
    node[first] = changed(node[first], tuple(rest), rng, odd)
    return node


def mutated(name: str, rng: random.Random) -> Any:
    found = event(name)
    for _ in range(rng.choice((1, 1, 2, 3))):
        where = places(found)
        if not where:
            break
        path = rng.choice(where)
        # Names of tables and objects, and a message's own attributes, are logged; values never are.
        named = path[-1] in ("table", "key", "name", "object", "detail", "s3", "bucket", "message")
        enveloped = named or ("where" not in path and "keys" not in path and path[0] == "Records")
        odd = [each for each in ODD if TOKEN not in str(each)] if enveloped else ODD
        found = changed(found, path, rng, odd)
    return found


def beside_a_sound_message(function: str, sent: Any) -> Any:
    """The records of `sent` after a sound one; None where `sent` is not a batch of messages."""
    if not isinstance(sent, dict) or not isinstance(sent.get("Records"), list):
        return None
    seed = {"ingest": "ingest.normal", "delete": "delete.where", "rewrite": "rewrite.queue"}
    if function not in seed:
        return None
    before = event(seed[function])["Records"][0]
    return {**sent, "Records": [{**before, "messageId": "sound"}, *sent["Records"]]}


def run(functions: Functions, function: str, sent: Any) -> Any:
    try:
        return functions.invoke(function, sent, LambdaContext())
    except InlayError as error:
        return error
    except Exception as error:
        if type(error).__name__ == "BatchProcessingError":
            return error
        raise


@pytest.mark.parametrize("seed", range(12))
def test_no_event_ends_in_anything_but_a_typed_outcome(seed: int, log: io.StringIO) -> None:
    rng = random.Random(seed)
    with fresh() as functions:
        functions.create_orders(**{"publish.format": "v3"})
        functions.land()
        functions.replay("ingest.normal")
        for _ in range(12):
            name = rng.choice(SEEDS)
            function = name.split(".")[0]
            sent = mutated(name, rng)
            log.truncate(0)
            log.seek(0)
            functions.queues.sent.clear()
            batch = beside_a_sound_message(function, sent)
            shown = f"{name} as {json.dumps(sent)[:3_000]}"
            try:
                answer = run(functions, function, sent if batch is None else batch)
            except InternalFailure as error:
                pytest.fail(f"{error}: {shown}\n{log.getvalue()[-3_000:]}")
            assert "InternalFailure" not in log.getvalue(), shown
            assert TOKEN not in everything_said(functions, log), shown
            if batch is not None and isinstance(answer, dict):
                again = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
                assert "sound" not in again, shown
        functions.orders().maintain.verify()


S3_TEST = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Time": "2026-11-20T12:00:00.000Z"}


def wrapped(body: str, rng: random.Random) -> str:
    """As another service would hand a message on: SNS, EventBridge, S3 trying a queue out, nothing."""
    match rng.randrange(6):
        case 0:
            return json.dumps(
                {"Type": "Notification", "TopicArn": "arn:aws:sns:x", "Message": body}
            )
        case 1:
            inner = json.dumps({"Type": "Notification", "Message": body})
            return json.dumps({"Type": "Notification", "Message": inner})
        case 2:
            return json.dumps(
                {"source": "aws.s3", "detail-type": "Object Created", "detail": unwrapped(body)}
            )
        case 3:
            return json.dumps({**S3_TEST, "Bucket": "inlay-123456789012-us-east-1"})
        case 4:
            return json.dumps([unwrapped(body)])
        case _:
            return body


@pytest.mark.parametrize("seed", range(8))
def test_records_of_other_functions_and_services_harm_no_neighbour(
    seed: int, log: io.StringIO
) -> None:
    rng = random.Random(f"spliced {seed}")
    sent = [event(name) for name in SEEDS]
    records = [each for one in sent if isinstance(one, dict) for each in one.get("Records") or ()]
    with fresh() as functions:
        functions.create_orders(**{"publish.format": "v3"})
        functions.land()
        functions.replay("ingest.normal")
        for _ in range(12):
            function = rng.choice(("ingest", "delete", "rewrite"))
            those = [copy.deepcopy(rng.choice(records)) for _ in range(rng.randint(1, 4))]
            for at, each in enumerate(those):
                if isinstance(each, dict):
                    each["messageId"] = f"spliced-{at}"
                    if isinstance(each.get("body"), str):
                        each["body"] = wrapped(each["body"], rng)
            batch = beside_a_sound_message(function, {"Records": those})
            log.truncate(0)
            log.seek(0)
            shown = f"{function}: {json.dumps(those)[:3_000]}"
            try:
                answer = run(functions, function, batch)
            except InternalFailure as error:
                pytest.fail(f"{error}: {shown}\n{log.getvalue()[-3_000:]}")
            assert "InternalFailure" not in log.getvalue(), shown
            if isinstance(answer, dict):
                again = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
                assert "sound" not in again, shown
        functions.orders().maintain.verify()

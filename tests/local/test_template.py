"""What the local AWS reads out of `template.yaml`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inlay.errors import InvalidRequest
from inlay.local.template import Template, load_template, rate_seconds, read_body

ROOT = Path(__file__).parents[2]
FUNCTIONS = {"ingest", "delete", "rewrite", "compact", "collect_garbage", "publish"}


@pytest.fixture(scope="module")
def template() -> Template:
    return load_template(ROOT / "template.yaml")


def test_every_function_has_its_folder_and_its_verb_as_service_name(template: Template) -> None:
    assert {each.name for each in template.functions} == FUNCTIONS
    for function in template.functions:
        assert (function.code / "handler.py").is_file()
        assert function.environment["POWERTOOLS_SERVICE_NAME"] == function.name


def test_every_source_queue_has_dead_letters_and_waits_out_its_function(
    template: Template,
) -> None:
    queues = {each.logical_id: each for each in template.queues}
    functions = {each.name: each for each in template.functions}
    assert {each.function for each in template.sources} == FUNCTIONS
    for source in template.sources:
        queue = queues[source.queue]
        assert queue.dead_letters in queues
        assert queue.max_receives >= 3
        assert source.partial_failures
        # AWS advises six times the function's timeout: retries of a throttled invocation fit in.
        assert queue.visibility_seconds >= 6 * functions[source.function].timeout_seconds


def test_only_the_landing_zone_and_pointers_raise_events(template: Template) -> None:
    assert [(each.prefix, each.suffix) for each in template.bucket.notifications] == [
        ("ingest/", ""),
        ("tables/", "/_latest_manifest"),
    ]


def test_maintenance_runs_by_schedule(template: Template) -> None:
    assert {each.function for each in template.schedules} == {
        "rewrite",
        "compact",
        "collect_garbage",
        "publish",
    }


def test_whoever_is_scheduled_sends_itself_its_tables(template: Template) -> None:
    """Each table of a round has its own invocation."""
    for name in {each.function for each in template.schedules}:
        [function] = [each for each in template.functions if each.name == name]
        own = [v["Ref"] for n, v in function.environment.items() if n.endswith("ROUND_QUEUE")]
        # A round waits for the last one of its kind alone: each schedule has a queue.
        assert (
            len(set(own)) == len(own) == len([s for s in template.schedules if s.function == name])
        )
        for queue in own:
            [source] = [each for each in template.sources if each.queue == queue]
            assert (source.function, source.batch_size) == (name, 1)
        letters = [function.environment.get(f"INLAY_{kind}DEAD_LETTERS") for kind in ("ROUND_", "")]
        assert {"Ref": "RoundDeadLetters"} in letters


def test_what_takes_batches_can_hand_them_back(template: Template) -> None:
    """A source of more than one message has its queue in the function's environment."""
    for source in template.sources:
        [function] = [each for each in template.functions if each.name == source.function]
        named = {str(value) for name, value in function.environment.items() if "QUEUE" in name}
        assert source.batch_size == 1 or any(source.queue in each for each in named)


def test_environments_resolve_to_what_was_created(template: Template) -> None:
    created = {queue.logical_id: f"http://queues/{queue.logical_id}" for queue in template.queues}
    created |= {"Bucket": "the-bucket", "ErasureKey": "the-key", "ReceiptKey": "another"}
    for function in template.functions:
        variables = template.environment(function, created)
        assert variables["INLAY_BUCKET"] == "the-bucket"
        assert not any("{" in value and value != "{}" for value in variables.values())


def test_parameters_can_be_overridden_but_not_invented() -> None:
    path = ROOT / "template.yaml"
    template = load_template(path, {"BucketPrefix": "mine"})
    assert template.bucket.name == "mine-123456789012-us-east-1"
    with pytest.raises(InvalidRequest, match="no parameter BuketPrefix"):
        load_template(path, {"BuketPrefix": "mine"})


def test_two_stacks_of_an_account_meet_in_nothing() -> None:
    """What has no name of its own is named after its stack. The bucket, which has one, is named by a
    parameter, and a second stack with the same is refused; metrics are in a namespace of the stack's."""
    body = read_body(ROOT / "template.yaml")
    named = {
        (logical_id, name)
        for logical_id, resource in body["Resources"].items()
        for name in resource["Properties"]
        if re.fullmatch(r"Name|\w+Name", name) and name not in ("FunctionName", "MetricName")
    }
    assert named == {("Bucket", "BucketName")}
    namespaces = [
        resource["Properties"]["Namespace"]
        for resource in body["Resources"].values()
        if "Namespace" in resource["Properties"]
    ]
    own = {"Fn::Sub": "Inlay/${AWS::StackName}"}
    assert {str(each) for each in namespaces} == {"AWS/Lambda", "AWS/SQS", str(own)}
    shared = body["Globals"]["Function"]["Environment"]["Variables"]
    assert shared["POWERTOOLS_METRICS_NAMESPACE"] == own
    # Metrics of AWS are of one queue or function, or of all of the account: that alarm says so.
    everywhere = [
        logical_id
        for logical_id, resource in body["Resources"].items()
        if str(resource["Properties"].get("Namespace", "")).startswith("AWS/")
        and not resource["Properties"].get("Dimensions")
    ]
    assert everywhere == []


def test_only_collect_garbage_may_delete_objects_of_tables() -> None:
    """What publish, a catalog that writes and a reader of key files may delete is in
    tests/functions/test_policies.py."""
    body = read_body(ROOT / "template.yaml")
    may_delete = {
        logical_id
        for logical_id, resource in body["Resources"].items()
        if "s3:DeleteObject" in str(resource)
    }
    may_do_anything = {
        logical_id
        for logical_id, resource in body["Resources"].items()
        if "'s3:*'" in str(resource) or "'*'" in str(resource.get("Properties", {}).get("Policies"))
    }
    others = {"PublishFunction", "CatalogWritesPolicy", "DeleteFunction"}
    assert may_delete == {"CollectGarbageFunction", *others}
    assert may_do_anything == {"BucketPolicy"}  # which only denies


def test_rates_are_seconds_and_other_schedules_are_refused() -> None:
    assert rate_seconds("rate(1 minute)") == 60
    assert rate_seconds("rate(15 minutes)") == 900
    assert rate_seconds("rate(2 days)") == 172_800
    with pytest.raises(InvalidRequest, match="cron"):
        rate_seconds("cron(0 12 * * ? *)")

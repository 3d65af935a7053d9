"""What a stack must be beside its bucket: functions that may do their work and are run, and somebody who is
told when they do not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from inlay.doctor.finding import Deployment, Finding, Severity

# Of simulated policies: what each function does all day. tests/functions/test_policies.py has the whole.
_READS = ("s3:GetObject", "s3:PutObject")
_MORE = {"CollectGarbageFunction": ("s3:DeleteObject", "s3:DeleteObjectVersion")}
# The least that schedules, people and the catalog need beside the queues.
_BESIDE_QUEUES = 6
_QUIET_HOURS = 3
_DEAD_LETTERS = "DeadLetters"


def functions(at: Deployment) -> Iterator[str]:
    """The logical ids of the stack's functions."""
    return (name for name in sorted(at.resources) if name.endswith("Function"))


def roles(at: Deployment) -> Iterator[Finding]:
    """What the functions' roles may do, as IAM simulates it with their boundaries."""
    iam = at.clients("iam")
    partition = "aws-cn" if at.region.startswith("cn-") else "aws"
    some_object = f"arn:{partition}:s3:::{at.bucket}/{at.tables}any/data/any.parquet"
    for name in functions(at):
        role = at.resources.get(f"{name}Role")
        if role is None or name == "CatalogFunction":
            continue
        arn = iam.get_role(RoleName=role)["Role"]["Arn"]
        answer = iam.simulate_principal_policy(
            PolicySourceArn=arn,
            ActionNames=[*_READS, *_MORE.get(name, ())],
            ResourceArns=[some_object],
        )
        for result in answer["EvaluationResults"]:
            if result["EvalDecision"] != "allowed":
                yield Finding(
                    "roles",
                    Severity.ERROR,
                    f"{name} may not {result['EvalActionName']} under {at.tables}: "
                    f"{result['EvalDecision']}",
                    f"aws iam list-attached-role-policies --role-name {role}; deploy again: "
                    f"sam deploy --stack-name {at.stack}",
                )


def concurrency(at: Deployment) -> Iterator[Finding]:
    aws = at.clients("lambda")
    has = aws.get_account_settings()["AccountLimit"]["UnreservedConcurrentExecutions"]
    asked = _BESIDE_QUEUES + sum(
        source.get("ScalingConfig", {}).get("MaximumConcurrency", 0) for source in _sources(at)
    )
    if asked > has:
        yield Finding(
            "concurrency",
            Severity.ERROR,
            f"the stack asks for {asked} functions at once, the account has {has}: the rest is throttled",
            "aws service-quotas request-service-quota-increase --service-code lambda "
            "--quota-code L-B99A9384 --desired-value 1000, or lower MaxIngest and RoundConcurrency to 2: "
            f"sam deploy --stack-name {at.stack}",
        )


def sources(at: Deployment) -> Iterator[Finding]:
    for source in _sources(at):
        if source["State"] not in ("Enabled", "Enabling", "Updating", "Creating"):
            queue = source["EventSourceArn"].rpartition(":")[2]
            yield Finding(
                "event sources",
                Severity.ERROR,
                f"messages of {queue} are not taken: its event source is {source['State']}",
                f"aws lambda update-event-source-mapping --uuid {source['UUID']} --enabled",
            )


def _sources(at: Deployment) -> list[Any]:
    """Of functions, or of their aliases: an ARN goes on with the alias."""
    pages = at.clients("lambda").get_paginator("list_event_source_mappings")
    names = {at.resources[name] for name in functions(at)}
    return [
        source
        for page in pages.paginate()
        for source in page["EventSourceMappings"]
        if source["FunctionArn"].split(":")[6] in names
    ]


# What a version keeps.
_KEPT = ("CodeSha256", "Layers", "Environment", "MemorySize", "Timeout", "VpcConfig", "KMSKeyArn")


def aliases(at: Deployment) -> Iterator[Finding]:
    """Aliases that functions are called by (docs/DEPLOY.md, Gradual upgrades) show what was deployed."""
    ask = at.clients("lambda").get_function_configuration
    for name in functions(at):
        alias = at.resources.get(f"{name}Aliaslive")
        if alias is None:
            continue
        live, newest = ask(FunctionName=alias), ask(FunctionName=at.resources[name])
        if changed := [field for field in _KEPT if live.get(field) != newest.get(field)]:
            yield Finding(
                "aliases",
                Severity.ERROR,
                f"{name} is called as it was before: what was deployed since differs in "
                f"{', '.join(changed)}",
                "a build makes new versions: make deploy GRADUAL=1; after a rollback, of what works",
            )


def schedules(at: Deployment) -> Iterator[Finding]:
    events = at.clients("events")
    rules = [name for name in at.resources if name.endswith(_SCHEDULES) and "Function" in name]
    for name in sorted(rules):
        rule = at.resources[name]
        if events.describe_rule(Name=rule)["State"] == "DISABLED":
            yield Finding(
                "schedules",
                Severity.ERROR,
                f"the schedule {name} is off: no round begins",
                f"aws events enable-rule --name {rule}",
            )


# As SAM names the rules of a function's events.
_SCHEDULES = ("FunctionSchedule", "FunctionErasures", "FunctionLanding")


def letters(at: Deployment) -> Iterator[Finding]:
    sqs = at.clients("sqs")
    for name in sorted(at.resources):
        if not name.endswith(_DEAD_LETTERS):
            continue
        url = at.resources[name]
        attributes = sqs.get_queue_attributes(
            QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"]
        )["Attributes"]
        waiting = int(attributes["ApproximateNumberOfMessages"])
        if waiting:
            yield Finding(
                "dead letters",
                Severity.WARNING,
                f"{waiting} wait in {name}",
                f"inlay dlq list {url}",
            )


def alarms(at: Deployment) -> Iterator[Finding]:
    runbook = at.parameters.get("Runbook", "docs/OPERATE.md")
    pages = at.clients("cloudwatch").get_paginator("describe_alarms")
    own = {physical: name for name, physical in at.resources.items() if name.endswith("Alarm")}
    for page in pages.paginate(StateValue="ALARM"):
        for alarm in page.get("MetricAlarms", []):
            if alarm["AlarmName"] in own:
                name = own[alarm["AlarmName"]]
                yield Finding(
                    "alarms", Severity.WARNING, f"{name} is red", f"Read {runbook}#{name.lower()}"
                )
    topic = at.outputs.get("AlarmTopic")
    if topic is not None:
        told = at.clients("sns").list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
        if not any(subscription["SubscriptionArn"].startswith("arn:") for subscription in told):
            yield Finding(
                "alarms",
                Severity.WARNING,
                "nobody is told of alarms: the topic has no confirmed subscription",
                f"aws sns subscribe --topic-arn {topic} --protocol email --notification-endpoint YOU",
            )


def metrics(at: Deployment) -> Iterator[Finding]:
    """The landing sweep runs each hour, whatever there is to do, and says so."""
    end = datetime.fromtimestamp(at.now, UTC)
    statistics = at.clients("cloudwatch").get_metric_statistics(
        Namespace=f"Inlay/{at.stack}",
        MetricName="LandingRounds",
        Dimensions=[{"Name": "service", "Value": "collect_garbage"}],
        StartTime=end - timedelta(hours=_QUIET_HOURS),
        EndTime=end,
        Period=3600,
        Statistics=["Sum"],
    )
    if not statistics["Datapoints"]:
        yield Finding(
            "metrics",
            Severity.WARNING,
            f"no round of the landing sweep wrote a metric in {_QUIET_HOURS} hours: the stack is younger, "
            "its schedules are off, or its functions fail",
            f"aws logs tail {at.resources.get('Logs', 'LOG-GROUP')} --since {_QUIET_HOURS}h",
        )

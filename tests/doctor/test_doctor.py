"""`inlay doctor` on a stack of moto's, made of what the template says: sound as it is deployed, then with
one ailment at a time."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws
from typer.testing import CliRunner

from inlay.cli.app import app
from inlay.doctor import examine as examining
from inlay.doctor import stack
from inlay.doctor.bucket import refused_kind
from inlay.doctor.examine import OF_A_BUCKET, OF_A_STACK, examine
from inlay.doctor.finding import Examined, Finding, Severity
from inlay.errors import InvalidRequest
from inlay.local.template import decided, read_body

ROOT = Path(__file__).parents[2]
REGION = "eu-west-1"
BUCKET = "inlay-123456789012-eu-west-1"
BODY = read_body(ROOT / "template.yaml")
PARAMETERS = {name: str(each.get("Default", "")) for name, each in BODY["Parameters"].items()}
RESOURCES = decided(BODY, PARAMETERS)["Resources"]
FUNCTIONS = sorted(n for n, r in RESOURCES.items() if r["Type"] == "AWS::Serverless::Function")
READS = re.compile(r"^(Get|List|Describe|Head|Simulate)[A-Z]")


def stack_body() -> dict[str, Any]:
    """What moto can make of the template: all that the doctor asks about but the bucket."""
    made: dict[str, Any] = {
        name: {"Type": r["Type"], "Properties": {}}
        for name, r in RESOURCES.items()
        if r["Type"] in ("AWS::SQS::Queue", "AWS::SNS::Topic")
    }
    for name in FUNCTIONS:
        made[f"{name}Role"] = {
            "Type": "AWS::IAM::Role",
            "Properties": {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": []}},
        }
        made[name] = {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Code": {"ZipFile": "def handler(event, context): pass"},
                "Handler": "index.handler",
                "Role": {"Fn::GetAtt": [f"{name}Role", "Arn"]},
                "Runtime": "python3.13",
            },
        }
        for event in RESOURCES[name]["Properties"].get("Events", {}):
            made[f"{name}{event}"] = {
                "Type": "AWS::Events::Rule",
                "Properties": {"ScheduleExpression": "rate(1 hour)", "State": "ENABLED"},
            }
    outputs: dict[str, Any] = {
        "Bucket": {"Value": BUCKET},
        "AlarmTopic": {"Value": {"Ref": "AlarmTopic"}},
        "IngestQueueArn": {"Value": {"Fn::GetAtt": ["IngestQueue", "Arn"]}},
        "PublishQueueArn": {"Value": {"Fn::GetAtt": ["PublishQueue", "Arn"]}},
    }
    parameters = {n: {"Type": "String", "Default": v} for n, v in PARAMETERS.items()}
    return {"Resources": made, "Outputs": outputs, "Parameters": parameters}


class Aws:
    """moto's clients, with what moto has not: simulated policies, who pays, the account's concurrency."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.concurrency = 1000
        self.payer = "BucketOwner"
        self.denied: set[str] = set()
        self.may_not: set[str] = set()
        self.known: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        if service not in self.known:
            made = boto3.client(service, region_name=REGION)  # type: ignore[call-overload]
            made.meta.events.register("provide-client-params", self._note)
            if service == "lambda":
                limit = {"AccountLimit": {"UnreservedConcurrentExecutions": self.concurrency}}
                made.get_account_settings = lambda: limit
            if service == "s3":
                made.get_bucket_request_payment = lambda Bucket: {"Payer": self.payer}  # noqa: N803
            if service == "iam":
                made.simulate_principal_policy = self._simulate
            self.known[service] = made
        return self.known[service]

    def _note(self, model: Any, **_: Any) -> None:
        self.asked.append(model.name)
        if model.name in self.may_not:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": ""}}, model.name)

    def _simulate(self, *, ActionNames: list[str], **_: Any) -> Any:  # noqa: N803
        return {
            "EvaluationResults": [
                {
                    "EvalActionName": each,
                    "EvalDecision": "implicitDeny" if each in self.denied else "allowed",
                }
                for each in ActionNames
            ]
        }

    def examine(self, target: str = "inlay", **options: Any) -> Examined:
        given = {"now": time.time(), **options}
        return examine(target, clients=self.client, region=REGION, **given)

    def url(self, queue: str) -> str:
        found = self.client("cloudformation").describe_stack_resource(
            StackName="inlay", LogicalResourceId=queue
        )
        return str(found["StackResourceDetail"]["PhysicalResourceId"])


def lifecycle() -> list[dict[str, Any]]:
    """The template's rules, as S3's API has them."""
    rules = []
    for each in RESOURCES["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]:
        prefix = each["Prefix"]["Fn::Sub"] if isinstance(each["Prefix"], dict) else each["Prefix"]
        rule = {"ID": each["Id"], "Status": each["Status"]}
        rule["Filter"] = {"Prefix": prefix.replace("${Prefix}", "")}
        if "ExpirationInDays" in each:
            rule["Expiration"] = {"Days": int(each["ExpirationInDays"])}
        if "ExpiredObjectDeleteMarker" in each:
            rule["Expiration"] = {"ExpiredObjectDeleteMarker": True}
        for name, days in (
            ("NoncurrentVersionExpiration", "NoncurrentDays"),
            ("AbortIncompleteMultipartUpload", "DaysAfterInitiation"),
        ):
            if name in each:
                rule[name] = {days: int(each[name][days])}
        rules.append(rule)
    return rules


def notifications(aws: Aws) -> dict[str, Any]:
    outputs = aws.client("cloudformation").describe_stacks(StackName="inlay")["Stacks"][0][
        "Outputs"
    ]
    arns = {each["OutputKey"]: each["OutputValue"] for each in outputs}

    def configured(queue: str, **filters: str) -> dict[str, Any]:
        rules = [{"Name": name, "Value": value} for name, value in filters.items()]
        return {
            "QueueArn": arns[queue],
            "Events": ["s3:ObjectCreated:*"],
            "Filter": {"Key": {"FilterRules": rules}},
        }

    return {
        "QueueConfigurations": [
            configured("IngestQueueArn", prefix="ingest/"),
            configured("PublishQueueArn", prefix="tables/", suffix="/_latest_manifest"),
        ]
    }


def make_bucket(aws: Aws, *, retention: Any = None, **options: Any) -> None:
    s3 = aws.client("s3")
    where = {"LocationConstraint": REGION}
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration=where, **options)
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    if retention:
        lock = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": retention}}
        s3.put_object_lock_configuration(Bucket=BUCKET, ObjectLockConfiguration=lock)
    # Before the policy: moto reads no conditions.
    s3.put_object(Bucket=BUCKET, Key="tables/people/_latest_manifest", Body=b"{}")
    rules = {"Rules": lifecycle()}
    s3.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration=rules)
    s3.put_bucket_notification_configuration(
        Bucket=BUCKET, NotificationConfiguration=notifications(aws)
    )
    s3.put_bucket_encryption(
        Bucket=BUCKET,
        ServerSideEncryptionConfiguration={
            "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
        },
    )
    statements = RESOURCES["BucketPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    denied = [
        {**each, "Resource": f"arn:aws:s3:::{BUCKET}/*"}
        for each in statements
        if each["Action"] == "s3:PutObject"
    ]
    policy = {"Version": "2012-10-17", "Statement": denied}
    s3.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(policy))


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_SQS", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        made = Aws()
        cloudformation = made.client("cloudformation")
        cloudformation.create_stack(StackName="inlay", TemplateBody=json.dumps(stack_body()))
        make_bucket(made)
        for resource in RESOURCES.values():
            if resource["Type"] == "AWS::Lambda::EventSourceMapping":
                said = resource["Properties"]
                queue = said["EventSourceArn"]["Fn::GetAtt"].split(".")[0]
                url = made.url(queue)
                arn = made.client("sqs").get_queue_attributes(
                    QueueUrl=url, AttributeNames=["QueueArn"]
                )["Attributes"]["QueueArn"]
                made.client("lambda").create_event_source_mapping(
                    FunctionName=made.url(said["FunctionName"]["Ref"]),
                    EventSourceArn=arn,
                    ScalingConfig={
                        "MaximumConcurrency": int(said["ScalingConfig"]["MaximumConcurrency"])
                    },
                )
        topic = made.url("AlarmTopic")
        made.client("sns").subscribe(TopicArn=topic, Protocol="email", Endpoint="a@example.com")
        made.client("cloudwatch").put_metric_data(
            Namespace="Inlay/inlay",
            MetricData=[
                {
                    "MetricName": "LandingRounds",
                    "Dimensions": [{"Name": "service", "Value": "collect_garbage"}],
                    "Value": 1,
                    "Timestamp": datetime.now(UTC) - timedelta(minutes=10),
                }
            ],
        )
        made.asked.clear()
        yield made


def test_what_the_template_deploys_is_sound_and_nothing_is_written(aws: Aws) -> None:
    found = aws.examine()
    assert found.findings == () and found.ok
    assert list(found.sound) == [each.name for each in (*OF_A_BUCKET, *OF_A_STACK)]
    assert [each for each in aws.asked if not READS.match(each)] == []


def rule(*, prefix: str, **said: Any) -> Callable[[Aws], None]:
    """Adds a lifecycle rule."""

    def ail(aws: Aws) -> None:
        added = {"ID": "added", "Status": "Enabled", "Filter": {"Prefix": prefix}, **said}
        aws.client("s3").put_bucket_lifecycle_configuration(
            Bucket=BUCKET, LifecycleConfiguration={"Rules": [*lifecycle(), added]}
        )

    return ail


def s3(name: str, **said: Any) -> Callable[[Aws], None]:
    return lambda aws: getattr(aws.client("s3"), name)(Bucket=BUCKET, **said)


def encrypt(key: bool) -> Callable[[Aws], None]:
    default = {"SSEAlgorithm": "aws:kms"}
    if key:
        default["KMSMasterKeyID"] = "arn:aws:kms:eu-west-1:123456789012:key/other"
    made = {"ApplyServerSideEncryptionByDefault": default, "BucketKeyEnabled": key}
    return s3("put_bucket_encryption", ServerSideEncryptionConfiguration={"Rules": [made]})


def few(aws: Aws) -> None:
    aws.concurrency = 10


def ask_requesters(aws: Aws) -> None:
    aws.payer = "Requester"


def deny(aws: Aws) -> None:
    aws.denied.add("s3:DeleteObjectVersion")


def disable_source(aws: Aws) -> None:
    (found,) = [
        each
        for each in aws.client("lambda").list_event_source_mappings()["EventSourceMappings"]
        if each["EventSourceArn"].split(":")[-1] in aws.url("EraseQueue")
    ]
    aws.client("lambda").update_event_source_mapping(UUID=found["UUID"], Enabled=False)


def disable_rule(aws: Aws) -> None:
    aws.client("events").disable_rule(Name=aws.url("CollectGarbageFunctionErasures"))


def put_letter(aws: Aws) -> None:
    aws.client("sqs").send_message(QueueUrl=aws.url("EraseDeadLetters"), MessageBody="{}")


def unsubscribe(aws: Aws) -> None:
    sns = aws.client("sns")
    for each in sns.list_subscriptions()["Subscriptions"]:
        sns.unsubscribe(SubscriptionArn=each["SubscriptionArn"])


def no_tables(aws: Aws) -> None:
    aws.may_not.add("ListObjectsV2")


E, W = Severity.ERROR, Severity.WARNING
AILMENTS: dict[str, tuple[Callable[[Aws], Any], str, Severity, str]] = {
    "no versions": (
        s3("put_bucket_versioning", VersioningConfiguration={"Status": "Suspended"}),
        "versions",
        W,
        "put-bucket-versioning",
    ),
    "no lifecycle": (s3("delete_bucket_lifecycle"), "lifecycle", W, "DEPLOY"),
    "tables expire": (rule(prefix="", Expiration={"Days": 400}), "lifecycle", E, "added"),
    "files go cold": (
        rule(prefix="tables/", Transitions=[{"Days": 90, "StorageClass": "GLACIER"}]),
        "lifecycle",
        E,
        "added",
    ),
    "landed files expire": (
        rule(prefix="ingest/", Expiration={"Days": 7}),
        "lifecycle",
        E,
        "added",
    ),
    "overwritten ones expire": (
        rule(prefix="ingest/a/", NoncurrentVersionExpiration={"NoncurrentDays": 1}),
        "lifecycle",
        E,
        "added",
    ),
    "another key": (encrypt(True), "encryption", E, "KmsKeyArn=arn:aws:kms"),
    "no bucket key": (encrypt(False), "encryption", W, "BucketKeyEnabled"),
    "keys of producers": (s3("delete_bucket_policy"), "unreadable files", W, "put-bucket-policy"),
    "requester pays": (ask_requesters, "requester pays", E, "put-bucket-request-payment"),
    "no events": (
        s3("put_bucket_notification_configuration", NotificationConfiguration={}),
        "notifications",
        E,
        "put-bucket-notification-configuration",
    ),
    "a new account": (few, "concurrency", E, "service-quotas"),
    "a role that lost a right": (deny, "roles", E, "Role"),
    "a source that is off": (disable_source, "event sources", E, "--enabled"),
    "a schedule that is off": (disable_rule, "schedules", E, "enable-rule"),
    "a letter": (put_letter, "dead letters", W, "inlay dlq list"),
    "nobody is told": (unsubscribe, "alarms", W, "sns subscribe"),
    "no right to read": (no_tables, "rights", E, "s3:ListBucket"),
}


def ail_with(aws: Aws, name: str) -> None:
    AILMENTS[name][0](aws)
    if name == "a new account":
        aws.known.pop("lambda", None)


def first_of_each(aws: Aws) -> dict[str, Finding]:
    return {each.check: each for each in reversed(aws.examine().findings)}


def test_ailments_at_once_are_each_named_with_the_command_that_mends_them(aws: Aws) -> None:
    """One of each check; then the others, each of which takes the place of the one before."""
    first = {check: name for name, (_, check, _, _) in reversed(AILMENTS.items())}
    del first["rights"]
    for name in first.values():
        ail_with(aws, name)
    found = first_of_each(aws)
    assert found.keys() == first.keys()
    for name in [*first.values(), *(AILMENTS.keys() - {*first.values()})]:
        _, check, severity, mend = AILMENTS[name]
        if name not in first.values():
            ail_with(aws, name)
            found = first_of_each(aws)
        assert found[check].severity is severity and mend in found[check].mend


# Each alone, to see that nothing else is said.
@pytest.mark.wide
@pytest.mark.parametrize("name", AILMENTS)
def test_an_ailment_is_named_with_the_command_that_mends_it(aws: Aws, name: str) -> None:
    _, check, severity, mend = AILMENTS[name]
    ail_with(aws, name)
    found = aws.examine()
    assert {each.check for each in found.findings} == {check}
    assert found.findings[0].severity is severity and mend in found.findings[0].mend
    assert found.ok is (severity is W)
    assert check not in found.sound


@pytest.mark.parametrize(
    "other", [{"MemorySize": 512}, {"Environment": {"Variables": {"A": "1"}}}, {"Layers": []}]
)
def test_an_alias_that_shows_an_earlier_configuration_is_told(other: dict[str, Any]) -> None:
    """What SAM leaves when only a parameter's value was changed."""
    newest = {"MemorySize": 256, "CodeSha256": "x", "RevisionId": "2", "Layers": [{"Arn": "2"}]}
    live = {**newest, "RevisionId": "1"}
    resources = {"IngestFunction": "function", "IngestFunctionAliaslive": "function:live"}
    for shown, expected in ((live, []), ({**live, **other}, [*other])):
        configurations = {"function:live": shown, "function": newest}
        client = SimpleNamespace(
            get_function_configuration=lambda FunctionName, of=configurations: of[FunctionName]  # noqa: N803
        )
        at: Any = SimpleNamespace(clients=lambda _, of=client: of, resources=resources)
        found = list(stack.aliases(at))
        assert [each.what.rpartition(" in ")[2] for each in found] == expected


def test_a_clock_that_is_off_a_quiet_stack_and_another_region_are_told(aws: Aws) -> None:
    (skewed,) = aws.examine(now=time.time() + 600).findings
    ahead = re.search(r"clock is (\d+) s ahead", skewed.what)
    # The server's date is of whole seconds, and later than `now` by what the examination took.
    assert skewed.check == "clocks" and ahead is not None and 300 < int(ahead[1]) <= 601
    assert skewed.mend == "sudo timedatectl set-ntp true"
    quiet = {each.check: each.mend for each in aws.examine(now=time.time() + 5 * 3600).findings}
    assert quiet.keys() == {"clocks", "metrics"} and "aws " in quiet["metrics"]
    (moved,) = examine(BUCKET, clients=aws.client, region="us-east-1", now=time.time()).findings
    assert moved.check == "region" and "AWS_REGION=eu-west-1" in moved.mend


def test_locked_objects_are_told_by_how_long_they_keep_erasures_open(aws: Aws) -> None:
    client = aws.client("s3")
    for retention, severity, said in (
        (None, W, "can be locked"),
        ({"Mode": "COMPLIANCE", "Days": 30}, E, "30 days (COMPLIANCE)"),
    ):
        for each in client.list_object_versions(Bucket=BUCKET)["Versions"]:
            client.delete_object(Bucket=BUCKET, Key=each["Key"], VersionId=each["VersionId"])
        client.delete_bucket(Bucket=BUCKET)
        make_bucket(aws, retention=retention, ObjectLockEnabledForBucket=True)
        (found,) = aws.examine().findings
        assert (found.check, found.severity) == ("object lock", severity)
        assert said in found.what
    assert "put-object-lock-configuration" in found.mend


def test_other_kinds_of_buckets_are_refused_by_name_here_and_at_deployment() -> None:
    pattern = BODY["Parameters"]["ExistingBucket"]["AllowedPattern"]
    for name, served in (
        ("lake", True),
        ("my.lake-2", True),
        ("lake--usw2-az1--x-s3", False),
        ("lake-metadata-s3alias", False),
        ("lake--ol-s3", False),
        ("mfzwi23gnjvgw.mrap", False),
        ("arn:aws:s3:eu-west-1:123456789012:accesspoint/lake", False),
    ):
        assert (refused_kind(name) is None) is served
        assert bool(re.fullmatch(pattern, name)) is served
        if not served:
            asked = Aws()  # nothing answers
            found = asked.examine(f"s3://{name}")
            assert not found.ok and name in found.findings[0].what and asked.asked == []


def test_what_may_not_be_looked_at_is_not_sound(aws: Aws) -> None:
    aws.may_not = {"GetBucketVersioning", "ListEventSourceMappings"}
    found = aws.examine()
    assert [(each.check, each.severity) for each in found.findings] == [
        (name, Severity.UNKNOWN) for name in ("versions", "concurrency", "event sources")
    ]
    assert not found.ok and "s3:GetBucketVersioning" in found.findings[0].mend


def test_the_doctors_policy_is_what_its_checks_need() -> None:
    statements = RESOURCES["DoctorPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    allowed = {
        action
        for each in statements
        for action in ([each["Action"]] if isinstance(each["Action"], str) else each["Action"])
    }
    needed = {need for check in (*OF_A_BUCKET, *OF_A_STACK) for need in check.needs.split(", ")}
    assert allowed == needed | {
        "cloudformation:DescribeStacks",
        "cloudformation:ListStackResources",
    }


def test_neither_stack_nor_bucket_is_an_error_and_another_stack_too(aws: Aws) -> None:
    with pytest.raises(InvalidRequest, match="no stack and no bucket"):
        aws.examine("nothing-here")
    other = {"Resources": {"Q": {"Type": "AWS::SQS::Queue"}}}
    aws.client("cloudformation").create_stack(StackName="other", TemplateBody=json.dumps(other))
    with pytest.raises(InvalidRequest, match="none of Inlay"):
        aws.examine("other")


def test_the_command_ends_with_its_code_and_json_has_the_same(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        examining, "examine_here", lambda target, prefix: aws.examine(target, prefix=prefix)
    )
    run = CliRunner()
    assert run.invoke(app, ["doctor", "inlay"]).exit_code == 0
    alone = json.loads(run.invoke(app, ["doctor", BUCKET, "--json"]).stdout)
    assert alone["ok"] and alone["stack"] is None and alone["findings"] == []
    few(aws)
    aws.known.pop("lambda")
    done = run.invoke(app, ["doctor", "inlay"])
    assert done.exit_code == 70 and "error   concurrency" in done.stdout
    assert "mend: aws service-quotas request-service-quota-increase" in done.stdout
    told = json.loads(run.invoke(app, ["doctor", "inlay", "--json"]).stdout)
    assert not told["ok"] and [each["check"] for each in told["findings"]] == ["concurrency"]


@pytest.mark.parametrize("command", [["doctor", "inlay"], ["dlq", "list", "https://sqs/1/q"]])
def test_without_a_region_the_same_again_does_not_help(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str]
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 70 and "region" in done.stderr


def test_of_a_bucket_named_as_one_no_stack_is_asked(aws: Aws) -> None:
    """Where S3 is all that there is, as on a developer's machine."""
    aws.asked.clear()
    assert aws.examine(f"s3://{BUCKET}").stack is None
    assert "DescribeStacks" not in aws.asked

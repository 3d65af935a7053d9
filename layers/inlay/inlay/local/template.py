"""Reads what the local AWS needs out of `template.yaml`.

Promise: queues, event sources, schedules, environments and the bucket's notifications come from the
template alone and mean what CloudFormation means by them. Only what the template uses is understood
(`Ref`, `Fn::GetAtt`, `Fn::Sub`, `Fn::Join`, conditions); anything else raises `InvalidRequest` by name,
so that the template and the local AWS cannot drift apart silently.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from inlay.errors import InvalidRequest

ACCOUNT = "123456789012"

# What an intrinsic function reads as: {"Ref": "Bucket"}, {"Fn::GetAtt": "Queue.Arn"} …
Intrinsic = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Queue:
    """`dead_letters` is the logical id of the queue that messages go to after `max_receives`."""

    logical_id: str
    visibility_seconds: int
    retention_seconds: int
    dead_letters: str | None
    max_receives: int


@dataclass(frozen=True, slots=True)
class Function:
    """A Lambda function; `name` is its folder's, `environment` may hold intrinsics."""

    logical_id: str
    name: str
    code: Path
    handler: str
    timeout_seconds: int
    memory_mb: int
    environment: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EventSource:
    """An event source mapping: batches from `queue` (a logical id) to `function` (a name)."""

    function: str
    queue: str
    batch_size: int
    window_seconds: int
    max_concurrency: int
    partial_failures: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """`function` (a name) runs every `every_seconds`, with `input` as its event if that is given."""

    function: str
    every_seconds: float
    input: str | None = None


@dataclass(frozen=True, slots=True)
class Notification:
    """The bucket notifies `queue` (a logical id) of objects that appear under `prefix`, with keys that
    end in `suffix`."""

    queue: str
    events: tuple[str, ...]
    prefix: str
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Bucket:
    """`existing`: it is there already (parameter ExistingBucket), and nothing of it is changed; its
    notifications are then what its owner is asked to set (docs/DEPLOY.md)."""

    logical_id: str
    name: str
    versioned: bool
    notifications: tuple[Notification, ...]
    existing: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    path: Path
    parameters: Mapping[str, str]
    bucket: Bucket
    queues: tuple[Queue, ...]
    functions: tuple[Function, ...]
    sources: tuple[EventSource, ...]
    schedules: tuple[Schedule, ...]

    def environment(self, function: Function, created: Mapping[str, str]) -> dict[str, str]:
        """The function's variables, with `created` saying what `Ref` of each resource gives."""
        values = {**self.parameters, **created}
        return {name: _text(value, values) for name, value in function.environment.items()}


def find_template() -> Path:
    """`template.yaml`: `INLAY_TEMPLATE`, else upwards from the working directory, else upwards from this
    file, else what was installed with the package."""
    named = os.environ.get("INLAY_TEMPLATE")
    if named:
        return Path(named)
    here = Path(__file__).parent
    for place in (Path.cwd(), here, here / "deployment"):
        for folder in (place, *place.parents):
            if (folder / "template.yaml").is_file() and (folder / "functions").is_dir():
                return folder / "template.yaml"
    raise InvalidRequest(
        "no template.yaml found here or above",
        next_step="Run this in a checkout of Inlay, or name the file in INLAY_TEMPLATE",
    )


STACK_NAME = "AWS::StackName"


def load_template(path: Path, overrides: Mapping[str, str] | None = None) -> Template:
    """Read `path`; `overrides` are parameter values, as `sam deploy --parameter-overrides` takes, and the
    stack's name, as `AWS::StackName`."""
    body = read_body(path)
    known = {name: str(spec.get("Default", "")) for name, spec in body["Parameters"].items()}
    for name in overrides or {}:
        if name not in known and name != STACK_NAME:
            raise InvalidRequest(
                f"{path.name} has no parameter {name}",
                next_step=f"Use one of {', '.join(sorted(known))}",
            )
    parameters = {
        "AWS::AccountId": ACCOUNT,
        "AWS::Region": os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or "us-east-1",
        "AWS::Partition": "aws",
        STACK_NAME: "local",
        **known,
        **(overrides or {}),
    }
    return _Reader(path, body, decided(body, parameters), parameters).read()


def read_body(path: Path) -> dict[str, Any]:
    """The template as written, short forms as long ones: `!Ref x` is {"Ref": "x"}."""
    body: dict[str, Any] = yaml.load(path.read_text(), Loader=_Loader)
    return body


def decided(body: Mapping[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    """The template with its conditions decided by `parameters`: `Fn::If` is what it gives, resources and
    outputs whose condition is false are not there, and lists given by a parameter are lists."""
    lists = {
        name
        for name, spec in body.get("Parameters", {}).items()
        if spec.get("Type") == "CommaDelimitedList"
    }
    decider = _Decider(body.get("Conditions", {}), parameters, lists)
    decided_body = dict(body)
    for section in ("Resources", "Outputs"):
        decided_body[section] = {
            name: decider.value(item)
            for name, item in body.get(section, {}).items()
            if "Condition" not in item or decider.holds(item["Condition"])
        }
    decided_body["Globals"] = decider.value(body.get("Globals", {}))
    return decided_body


_NOTHING = object()


@dataclass(frozen=True, slots=True)
class _Decider:
    conditions: Mapping[str, Any]
    parameters: Mapping[str, str]
    lists: set[str]

    def holds(self, condition: Any) -> bool:
        """Whether a condition, by its name or as an expression, is true."""
        if isinstance(condition, str):
            return self.holds(self.conditions[condition])
        ((how, given),) = condition.items()
        match how:
            case "Condition":
                return self.holds(given)
            case "Fn::Equals":
                one, other = map(self.value, given)
                return bool(one == other)
            case "Fn::Not":
                return not self.holds(given[0])
            case "Fn::And":
                return all(map(self.holds, given))
            case "Fn::Or":
                return any(map(self.holds, given))
            case _:
                raise InvalidRequest(f"cannot follow the condition {how} in the template")

    def value(self, value: Any) -> Any:
        if isinstance(value, list):
            values = [self.value(item) for item in value]
            return [item for item in values if item is not _NOTHING]
        if not isinstance(value, dict):
            return value
        match value:
            case {"Fn::If": [condition, then, otherwise]}:
                return self.value(then if self.holds(condition) else otherwise)
            case {"Ref": "AWS::NoValue"}:
                return _NOTHING
            case {"Ref": str(name)} if name in self.lists:
                return [part.strip() for part in self.parameters[name].split(",") if part.strip()]
            case {"Ref": str(name)} if name in self.parameters:
                return self.parameters[name]
            case {"Fn::Join": [separator, given]}:
                return str(separator).join(
                    _text(item, self.parameters) for item in self.value(given)
                )
            case {"Fn::Sub": [text, names]}:
                return {"Fn::Sub": [text, self.value(names)]}
            case _:  # any other function, or a mapping
                decided = {name: self.value(item) for name, item in value.items()}
                return {name: item for name, item in decided.items() if item is not _NOTHING}


# `rate(5 minutes)`: the only form of schedule the template uses.
_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}


def rate_seconds(expression: str) -> float:
    """The seconds between two runs of a `rate(…)` schedule."""
    match = _RATE.fullmatch(expression)
    if match is None:
        raise InvalidRequest(
            f"cannot follow the schedule {expression!r} locally",
            next_step="Use rate(<n> minutes|hours|days)",
        )
    return int(match[1]) * _SECONDS[match[2]]


@dataclass(frozen=True, slots=True)
class _Reader:
    path: Path
    whole: Mapping[str, Any]
    body: Mapping[str, Any]
    parameters: Mapping[str, str]
    _functions: dict[str, Function] = field(default_factory=dict)

    def read(self) -> Template:
        for logical_id, properties in self._resources("AWS::Serverless::Function"):
            self._functions[logical_id] = self._function(logical_id, properties)
        return Template(
            path=self.path,
            parameters=self.parameters,
            bucket=self._bucket(),
            queues=tuple(self._queue(*queue) for queue in self._resources("AWS::SQS::Queue")),
            functions=tuple(self._functions.values()),
            sources=tuple(
                self._source(properties)
                for _, properties in self._resources("AWS::Lambda::EventSourceMapping")
            ),
            schedules=tuple(self._schedules()),
        )

    def _resources(self, kind: str) -> list[tuple[str, Mapping[str, Any]]]:
        return [
            (logical_id, resource.get("Properties", {}))
            for logical_id, resource in self.body["Resources"].items()
            if resource["Type"] == kind
        ]

    def _function(self, logical_id: str, own: Mapping[str, Any]) -> Function:
        shared = self.body.get("Globals", {}).get("Function", {})
        both = {**shared, **own}
        code = self.path.parent / both["CodeUri"]
        return Function(
            logical_id=logical_id,
            name=code.name,
            code=code,
            handler=both["Handler"],
            timeout_seconds=int(both.get("Timeout", 3)),
            memory_mb=int(both.get("MemorySize", 128)),
            environment={**_variables(shared), **_variables(own)},
        )

    def _queue(self, logical_id: str, properties: Mapping[str, Any]) -> Queue:
        redrive = properties.get("RedrivePolicy")
        return Queue(
            logical_id=logical_id,
            visibility_seconds=int(properties.get("VisibilityTimeout", 30)),
            retention_seconds=int(properties.get("MessageRetentionPeriod", 345_600)),
            dead_letters=_referred(redrive["deadLetterTargetArn"]) if redrive else None,
            max_receives=int(redrive["maxReceiveCount"]) if redrive else 0,
        )

    def _source(self, properties: Mapping[str, Any]) -> EventSource:
        return EventSource(
            function=self._functions[_referred(properties["FunctionName"])].name,
            queue=_referred(properties["EventSourceArn"]),
            batch_size=int(properties.get("BatchSize", 10)),
            window_seconds=int(properties.get("MaximumBatchingWindowInSeconds", 0)),
            max_concurrency=int(
                properties.get("ScalingConfig", {}).get("MaximumConcurrency", 1_000)
            ),
            partial_failures="ReportBatchItemFailures"
            in properties.get("FunctionResponseTypes", ()),
        )

    def _schedules(self) -> list[Schedule]:
        return [
            Schedule(
                function=self._functions[logical_id].name,
                every_seconds=rate_seconds(_text(event["Properties"]["Schedule"], self.parameters)),
                input=event["Properties"].get("Input"),
            )
            for logical_id, properties in self._resources("AWS::Serverless::Function")
            for event in properties.get("Events", {}).values()
            if event["Type"] == "Schedule"
        ]

    def _bucket(self) -> Bucket:
        existing = self.parameters.get("ExistingBucket", "")
        made = decided(self.whole, {**self.parameters, "ExistingBucket": ""})["Resources"]
        [(logical_id, properties)] = [
            (name, resource["Properties"])
            for name, resource in made.items()
            if resource["Type"] == "AWS::S3::Bucket"
        ]
        configured = properties.get("NotificationConfiguration", {}).get("QueueConfigurations", ())
        return Bucket(
            logical_id=logical_id,
            name=existing or _text(properties["BucketName"], self.parameters),
            versioned=properties.get("VersioningConfiguration", {}).get("Status") == "Enabled",
            existing=bool(existing),
            notifications=tuple(
                Notification(
                    queue=_referred(notification["Queue"]),
                    events=(notification["Event"],),
                    **{
                        rule["Name"]: _text(rule["Value"], self.parameters)
                        for rule in notification["Filter"]["S3Key"]["Rules"]
                    },
                )
                for notification in configured
            ),
        )


def _variables(function: Mapping[str, Any]) -> Mapping[str, Any]:
    variables: Mapping[str, Any] = function.get("Environment", {}).get("Variables", {})
    return variables


def _referred(value: Intrinsic) -> str:
    """The logical id that a `Ref` or `Fn::GetAtt` points at."""
    if "Ref" in value:
        return str(value["Ref"])
    if "Fn::GetAtt" in value:
        return str(value["Fn::GetAtt"]).split(".")[0]
    raise InvalidRequest(f"cannot follow {value!r} in the template")


_PLACEHOLDER = re.compile(r"\$\{([^}]+)\}")


def _text(value: Any, values: Mapping[str, str]) -> str:
    """A template value as text, with `values` standing for what names give."""
    if not isinstance(value, dict):
        return str(value)
    if "Ref" in value:
        return _named(value["Ref"], values)
    if "Fn::GetAtt" in value:
        return _named(_referred(value), values)
    if "Fn::Sub" in value:
        said = value["Fn::Sub"]
        text, own = said if isinstance(said, list) else (said, {})
        names = {**values, **{name: _text(own_text, values) for name, own_text in own.items()}}
        return _PLACEHOLDER.sub(lambda placeholder: _named(placeholder[1], names), text)
    raise InvalidRequest(f"cannot resolve {value!r} in the template")


def _named(name: str, values: Mapping[str, str]) -> str:
    if name not in values:
        raise InvalidRequest(f"the local AWS has nothing that is called {name} in the template")
    return values[name]


# With libyaml, which most installations of PyYAML have, ten times as fast.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML with CloudFormation's short forms: `!Ref x` reads as {"Ref": "x"}."""


def _short_form(name: str) -> Callable[[yaml.Loader, yaml.Node], Intrinsic]:
    def construct(loader: yaml.Loader, node: yaml.Node) -> Intrinsic:
        if isinstance(node, yaml.ScalarNode):
            return {name: loader.construct_scalar(node)}
        if isinstance(node, yaml.SequenceNode):
            return {name: loader.construct_sequence(node, deep=True)}
        raise InvalidRequest(f"cannot read {name} in the template")

    return construct


for _tag in ("Ref", "Condition", "Sub", "GetAtt", "Not", "Equals", "And", "Or", "If", "Join"):
    _form = _tag if _tag in ("Ref", "Condition") else f"Fn::{_tag}"
    _Loader.add_constructor(f"!{_tag}", _short_form(_form))

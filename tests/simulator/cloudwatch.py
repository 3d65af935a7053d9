"""CloudWatch as far as the template's alarms use it: metrics by periods, expressions, states of an alarm.

Promise: an alarm is evaluated as the template says it: metric name, dimensions, statistic, period,
threshold and what missing data means. What the template does not use raises `KeyError`.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inlay.local.template import decided, read_body

ALARM, OK, NO_DATA = "ALARM", "OK", "INSUFFICIENT_DATA"
_STATISTICS: Mapping[str, Callable[[list[float]], float]] = {"Sum": sum, "Maximum": max}
_OPERATORS = {"GreaterThanThreshold": operator.gt, "LessThanThreshold": operator.lt}
# How many periods beyond its own an alarm looks back for data, where some is missing.
_LOOK_BACK = 2
Values = list[float | None]


@dataclass
class Metrics:
    """Values by namespace, name, dimensions and time."""

    values: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[tuple[float, float]]] = field(
        default_factory=dict
    )

    def put(
        self, namespace: str, name: str, dimensions: Mapping[str, str], at: float, value: float
    ) -> None:
        key = (namespace, name, tuple(sorted(dimensions.items())))
        self.values.setdefault(key, []).append((at, value))

    def put_embedded(self, line: Mapping[str, Any], at: float) -> None:
        """A log line in the embedded metric format."""
        for directive in line["_aws"]["CloudWatchMetrics"]:
            for names in directive["Dimensions"]:
                dimensions = {name: line[name] for name in names}
                for metric in directive["Metrics"]:
                    values = line[metric["Name"]]
                    for value in values if isinstance(values, list) else [values]:
                        self.put(directive["Namespace"], metric["Name"], dimensions, at, value)

    def periods(
        self, metric: Mapping[str, Any], stat: str, seconds: int, count: int, now: float
    ) -> Values:
        """The last `count` periods up to `now`, the oldest first."""
        dimensions = {each["Name"]: each["Value"] for each in metric["Dimensions"]}
        key = (metric["Namespace"], metric["MetricName"], tuple(sorted(dimensions.items())))
        found: Values = []
        for back in range(count, 0, -1):
            begin, end = now - back * seconds, now - (back - 1) * seconds
            inside = [value for at, value in self.values.get(key, []) if begin < at <= end]
            found.append(_STATISTICS[stat](inside) if inside else None)
        return found


def state(alarm: Mapping[str, Any], metrics: Metrics, now: float) -> str:
    """The state of an alarm whose references are resolved."""
    wanted = alarm["EvaluationPeriods"]
    values = _values(alarm, metrics, wanted + _LOOK_BACK, now)
    recent = values[-wanted:]
    if all(each is None for each in values):
        recent = []
    elif any(each is None for each in recent):
        # Data points further back stand in for missing ones, the newest first.
        present = [each for each in values if each is not None][-wanted:]
        recent = list(present)
    if not recent:
        return {"notBreaching": OK, "missing": NO_DATA}[alarm["TreatMissingData"]]
    breaches = _OPERATORS[alarm["ComparisonOperator"]]
    threshold = float(alarm["Threshold"])
    breaching = sum(breaches(each, threshold) for each in recent if each is not None)
    return ALARM if breaching >= alarm.get("DatapointsToAlarm", wanted) else OK


def _values(alarm: Mapping[str, Any], metrics: Metrics, count: int, now: float) -> Values:
    if "Metrics" not in alarm:
        return metrics.periods(alarm, alarm["Statistic"], alarm["Period"], count, now)
    named: dict[str, Values] = {}
    expression = None
    for each in alarm["Metrics"]:
        if "Expression" in each:
            assert each.get("ReturnData", True) and expression is None
            expression = each["Expression"]
            continue
        said = each["MetricStat"]
        assert each["ReturnData"] is False
        # One more than is asked for: DIFF needs the one before.
        named[each["Id"]] = metrics.periods(
            said["Metric"], said["Stat"], said["Period"], count + 1, now
        )
    assert expression is not None
    return _Expression(expression, named, count + 1).value()[-count:]


@dataclass
class _Expression:
    """`DIFF(FILL(a, 0))`, `MAX([FILL(a, 0), …])`, `FILL(a, 0) + …`."""

    text: str
    named: Mapping[str, Values]
    count: int

    def value(self) -> Values:
        names: Mapping[str, Any] = {
            "FILL": lambda a, by: [by if each is None else each for each in a],
            "DIFF": lambda a: [None, *(y - x for x, y in itertools.pairwise(a))],
            "MAX": lambda lists: [max(each) for each in zip(*lists, strict=True)],
            **self.named,
        }
        summands = re.split(r" \+ ", self.text)
        found: Sequence[Values] = [
            eval(each, {"__builtins__": {}}, dict(names)) for each in summands
        ]
        if len(found) == 1:
            return found[0]
        return [
            sum(each for each in column if each is not None) for column in zip(*found, strict=True)
        ]


def alarms_of(path: Path, *, stack: str, **parameters: str) -> dict[str, dict[str, Any]]:
    """The alarms by logical id; queues and functions are named by theirs, as on the local AWS."""
    body = read_body(path)
    known = {name: str(each.get("Default", "")) for name, each in body["Parameters"].items()}
    resources = decided(body, {**known, "AWS::StackName": stack, **parameters})["Resources"]
    return {
        name: _resolved(each["Properties"], stack)
        for name, each in resources.items()
        if each["Type"] == "AWS::CloudWatch::Alarm"
    }


def _resolved(value: Any, stack: str) -> Any:
    match value:
        case list():
            return [_resolved(each, stack) for each in value]
        case {"Fn::Sub": str(text)}:
            return text.replace("${AWS::StackName}", stack)
        case {"Ref": str(name)}:
            return name
        case {"Fn::GetAtt": str(name)}:
            return name.removesuffix(".QueueName")
        case dict():
            return {name: _resolved(each, stack) for name, each in value.items()}
        case _:
            return value

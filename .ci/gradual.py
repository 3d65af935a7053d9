"""Let an upgrade shift gradually: the template that `sam build` made, with an alias for each function.

    .tools/sam/bin/python .ci/gradual.py .aws-sam/build/template.yaml

What calls a function then calls its alias `live`, which CodeDeploy moves to the new version as the
parameter `Deployment` says, and moves back when that version fails. Each build has versions of its own:
left to itself SAM publishes one when the text of a function's properties is another, and that is the same
when only the value of a parameter is, so that a change of `LogLevel` or `Memory` would never arrive.
"""

from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path
from typing import Any

from samcli.yamlhelper import yaml_dump, yaml_parse

ALIAS = "live"
SHIFTS = [
    *(f"Canary10Percent{each}Minutes" for each in (5, 10, 15, 30)),
    *(f"Linear10PercentEvery{each}" for each in ("1Minute", "2Minutes", "3Minutes", "10Minutes")),
    "AllAtOnce",
]


def gradual(body: dict[str, Any], build: str) -> dict[str, Any]:
    resources = body["Resources"]
    functions = {n for n, r in resources.items() if r["Type"] == "AWS::Serverless::Function"}
    for resource in resources.values():
        if resource["Type"] in ("AWS::Lambda::EventSourceMapping", "AWS::IAM::ManagedPolicy"):
            resource["Properties"] = _by_alias(resource["Properties"], functions)
    for name in sorted(functions):
        resources[name]["Properties"] |= {
            "AutoPublishAlias": ALIAS,
            "AutoPublishCodeSha256": build,
            "DeploymentPreference": {
                "Type": {"Ref": "Deployment"},
                "Role": {"Fn::GetAtt": ["DeploymentRole", "Arn"]},
                "PassthroughCondition": True,
                "Alarms": [{"Ref": f"{name}ShiftAlarm"}],
            },
        }
        resources[f"{name}ShiftAlarm"] = _alarm(name, resources[name].get("Condition"))
    resources["DeploymentRole"] = _role()
    body["Parameters"]["Deployment"] = {
        "Type": "String",
        "Default": SHIFTS[0],
        "AllowedValues": SHIFTS,
        "Description": "How calls move to the new version of each function; back at once when it fails",
    }
    return body


def _by_alias(value: Any, functions: set[str]) -> Any:
    match value:
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), "Arn"]} if name in functions:
            return {"Ref": f"{name}.Alias"}
        case dict():
            return {name: _by_alias(each, functions) for name, each in value.items()}
        case list():
            return [_by_alias(each, functions) for each in value]
    return value


def _alarm(function: str, condition: str | None) -> dict[str, Any]:
    """Of the new version alone: errors of the one that it replaces must not stop what mends them."""
    said = f"The newest version of {function} fails: calls go back to the one before. "
    version = {"Fn::GetAtt": [f"{function}.Version", "Version"]}
    alarm = {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "AlarmDescription": {"Fn::Sub": said + "${Runbook}#shiftalarm"},
            "AlarmActions": [{"Ref": "AlarmTopic"}],
            "OKActions": [{"Ref": "AlarmTopic"}],
            "Namespace": "AWS/Lambda",
            "MetricName": "Errors",
            "Dimensions": [
                {"Name": "FunctionName", "Value": {"Ref": function}},
                {"Name": "Resource", "Value": {"Fn::Sub": "${" + function + "}:" + ALIAS}},
                {"Name": "ExecutedVersion", "Value": version},
            ],
            "Statistic": "Sum",
            "Period": 60,
            "EvaluationPeriods": 1,
            "ComparisonOperator": "GreaterThanThreshold",
            "Threshold": 0,
            "TreatMissingData": "notBreaching",
        },
    }
    return alarm if condition is None else {**alarm, "Condition": condition}


def _role() -> dict[str, Any]:
    """SAM's own would have no boundary, and could invoke every function."""
    policy = "arn:${AWS::Partition}:iam::aws:policy/service-role/AWSCodeDeployRoleForLambdaLimited"
    trust = {
        "Effect": "Allow",
        "Action": "sts:AssumeRole",
        "Principal": {"Service": "codedeploy.amazonaws.com"},
    }
    boundary = ["HasBoundary", {"Ref": "PermissionsBoundary"}, {"Ref": "AWS::NoValue"}]
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]},
            "PermissionsBoundary": {"Fn::If": boundary},
            "ManagedPolicyArns": [{"Fn::Sub": policy}],
        },
    }


def main() -> None:
    path = Path(sys.argv[1])
    body = yaml_parse(path.read_text())
    if "Deployment" in body["Parameters"]:
        raise SystemExit(f"{path} has aliases already: build again first")
    # No more than these ten are in the names of versions.
    made = gradual(body, secrets.token_hex(5))
    path.write_text(yaml_dump(json.loads(json.dumps(made))))


if __name__ == "__main__":
    main()

"""The template whose upgrades shift gradually (`make build GRADUAL=1`): what calls functions, when there is
a new version of one, and what takes it back.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from inlay.local.template import read_body

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".tools" / "sam" / "bin"
FUNCTIONS = [
    name
    for name, each in read_body(ROOT / "template.yaml")["Resources"].items()
    if each["Type"] == "AWS::Serverless::Function"
]
# As CloudFormation's transform does it.
TRANSLATE = """
import boto3, copy, json, sys
from samcli.yamlhelper import yaml_parse
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator

template = yaml_parse(open(sys.argv[1]).read())
session = boto3.Session(region_name="us-east-1")
for name, resource in template["Resources"].items():
    if resource["Type"] == "AWS::Serverless::Function":
        resource["Properties"]["CodeUri"] = f"s3://built/{name}"
    elif resource["Type"] == "AWS::Serverless::LayerVersion":
        resource["Properties"]["ContentUri"] = "s3://built/layer"
made = [Translator({}, Parser(), boto_session=session).translate(copy.deepcopy(template), values)
        for values in json.load(sys.stdin)]
json.dump(made, sys.stdout)
"""


def built(into: Path) -> Path:
    if not BIN.exists():
        pytest.skip("needs `make tools`")
    path = into / "template.yaml"
    path.write_text((ROOT / "template.yaml").read_text())
    subprocess.run([BIN / "python", ROOT / ".ci" / "gradual.py", path], check=True)
    return path


def translated(path: Path, *chosen: Mapping[str, str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [BIN / "python", "-c", TRANSLATE, path],
        input=json.dumps(chosen),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    made: list[dict[str, Any]] = json.loads(done.stdout)
    return made


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    [made] = translated(built(tmp_path_factory.mktemp("built")), {})
    return made


def versions(template: Mapping[str, Any]) -> dict[str, str]:
    """Of each function, what its alias shows."""
    resources = template["Resources"]
    return {
        name: resources[f"{name}Aliaslive"]["Properties"]["FunctionVersion"]["Fn::GetAtt"][0]
        for name in FUNCTIONS
    }


def test_everything_that_calls_a_function_calls_its_alias(template: dict[str, Any]) -> None:
    resources = template["Resources"]
    aliases = {f"{name}Aliaslive" for name in FUNCTIONS}
    called = set()
    for each in resources.values():
        said = each["Properties"]
        match each["Type"]:
            case "AWS::Lambda::EventSourceMapping" | "AWS::Lambda::Permission":
                called.add(said["FunctionName"]["Ref"])
            case "AWS::Events::Rule":
                called |= {target["Arn"]["Ref"] for target in said["Targets"]}
            case "AWS::Lambda::Url":
                called.add(said["TargetFunctionArn"]["Ref"])
            case "AWS::Lambda::EventInvokeConfig":
                assert said["Qualifier"] == "live"
    assert called == aliases
    people = json.dumps([r for r in resources.values() if r["Type"] == "AWS::IAM::ManagedPolicy"])
    assert not {name for name in FUNCTIONS if f'"{name}"' in people}
    # Nobody invokes the delete function by hand.
    assert {each for each in aliases if each in people} == aliases - {"DeleteFunctionAliaslive"}


def test_a_version_that_fails_is_taken_back(template: dict[str, Any]) -> None:
    resources = template["Resources"]
    for name in FUNCTIONS:
        policy = resources[f"{name}Aliaslive"]["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]
        group = resources[policy["DeploymentGroupName"]["Ref"]]
        [alarm] = group["Properties"]["AlarmConfiguration"]["Alarms"]
        assert group["Properties"]["AlarmConfiguration"]["Enabled"] is True
        rollback = group["Properties"]["AutoRollbackConfiguration"]
        assert rollback["Enabled"] and "DEPLOYMENT_STOP_ON_ALARM" in rollback["Events"]
        assert group["Properties"]["ServiceRoleArn"] == {"Fn::GetAtt": ["DeploymentRole", "Arn"]}
        watched = resources[alarm["Name"]["Ref"]]
        # Errors of the version before do not stop the one that mends them.
        assert {each["Name"]: each["Value"] for each in watched["Properties"]["Dimensions"]} == {
            "FunctionName": {"Ref": name},
            "Resource": {"Fn::Sub": f"${{{name}}}:live"},
            "ExecutedVersion": {"Fn::GetAtt": [versions(template)[name], "Version"]},
        }
        same = {each.get("Condition") for each in (resources[name], group, watched)}
        assert len(same) == 1
    assert "PermissionsBoundary" in resources["DeploymentRole"]["Properties"]
    assert "CodeDeployServiceRole" not in resources


def test_each_build_is_a_new_version_of_each_function(tmp_path: Path) -> None:
    """Also where nothing but the value of a parameter is another, which SAM does not see."""
    made = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        one, other = translated(built(folder), {}, {"LogLevel": "DEBUG", "Memory": "2048"})
        assert versions(one) == versions(other)
        made.append(one)
    first, second = made
    for name in FUNCTIONS:
        assert versions(first)[name] != versions(second)[name]
        # Lambda publishes no version of a function that is as it was.
        described = [each["Resources"][name]["Properties"]["Description"] for each in made]
        assert described[0] != described[1]


def test_the_parameter_says_how_calls_shift(template: dict[str, Any], tmp_path: Path) -> None:
    allowed = template["Parameters"]["Deployment"]["AllowedValues"]
    assert "AllAtOnce" in allowed and len(set(allowed)) == 9
    made = translated(built(tmp_path), *({"Deployment": how} for how in allowed))
    for how, each in zip(allowed, made, strict=True):
        group = each["Resources"]["IngestFunctionDeploymentGroup"]["Properties"]
        # A name that SAM does not know would be taken for a configuration of the account's own.
        assert group["DeploymentConfigName"] == {
            "Fn::Sub": ["CodeDeployDefault.Lambda${ConfigName}", {"ConfigName": how}]
        }


def test_it_is_a_valid_template_and_made_once(tmp_path: Path) -> None:
    path = built(tmp_path)
    for folder in ("functions", "layers"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    command = ["validate", "--lint", "--region", "us-east-1", "--template", str(path)]
    done = subprocess.run([BIN / "sam", *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    again = subprocess.run(
        [BIN / "python", ROOT / ".ci" / "gradual.py", path], capture_output=True, text=True
    )
    assert again.returncode == 1 and "build again first" in again.stderr

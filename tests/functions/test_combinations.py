"""The template under every combination of the parameters that its conditions ask for.

CloudFormation checks references when a stack is made, not before: one that is left when its resource's
condition is off would fail for whoever first deploys that combination.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest

from inlay.local.template import decided, read_body

from .conftest import ROOT

pytestmark = pytest.mark.functions

# Parameters that decide conditions, with a value each beside the default.
OTHERWISE = {
    "AlarmEmail": "data@example.com",
    "ExistingBucket": "lake",
    "Versioned": "false",
    "KmsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/1",
    "GlueDatabase": "lake",
    "Catalog": "readwrite",
    "CatalogCredentials": "true",
    "PermissionsBoundary": "arn:aws:iam::123456789012:policy/boundary",
    "AdoptFrom": "arn:aws:s3:::lake/raw/*,arn:aws:s3:::lake/old/*",
    "AdoptKmsKeys": "arn:aws:kms:us-east-1:123456789012:key/2",
    "SubnetIds": "subnet-1,subnet-2",
    "SecurityGroupIds": "sg-1",
    "EventBridgeRules": "arn:aws:events:us-east-1:123456789012:rule/landed",
    "SignReceipts": "false",
    "CompletionBus": "arn:aws:events:us-east-1:123456789012:event-bus/done",
    "ReceiptCopies": "audit/inlay",
}
BODY = read_body(ROOT / "template.yaml")
DEFAULTS = {name: str(spec.get("Default", "")) for name, spec in BODY["Parameters"].items()}
_IN_TEXT = re.compile(r"\$\{([^!}][^}]*)\}")


def references(value: Any) -> Iterator[str]:
    """The logical ids, parameters and pseudo parameters that a value refers to."""
    match value:
        case {"Ref": str(name)}:
            yield name
        case {"Fn::GetAtt": str(path)}:
            yield path.partition(".")[0]
        case {"Fn::Sub": [str(text), own]}:
            yield from {name.partition(".")[0] for name in _IN_TEXT.findall(text)} - own.keys()
            yield from references(own)
        case {"Fn::Sub": str(text)}:
            yield from (name.partition(".")[0] for name in _IN_TEXT.findall(text))
        case dict():
            for each in value.values():
                yield from references(each)
        case list():
            for each in value:
                yield from references(each)


def made(resources: Mapping[str, Any]) -> set[str]:
    """What there is to refer to: the resources, and those that SAM makes of them."""
    found = set(resources)
    for name, each in resources.items():
        if each["Type"] == "AWS::Serverless::Function":
            found.add(f"{name}Role")
            if "FunctionUrlConfig" in each["Properties"]:
                found.add(f"{name}Url")
    return found


def dangling(template: Mapping[str, Any]) -> set[tuple[str, str]]:
    """References to what is not there: who refers, and to what."""
    resources = template["Resources"]
    there = made(resources) | template.get("Parameters", {}).keys()
    refer = {**resources, **template.get("Outputs", {}), "Globals": template.get("Globals", {})}
    found = set()
    for name, each in refer.items():
        after = each.get("DependsOn", [])
        for other in [*references(each), *([after] if isinstance(after, str) else after)]:
            if other not in there and not other.startswith("AWS::"):
                found.add((name, other))
    return found


def hollow(template: Mapping[str, Any]) -> set[str]:
    """Resources with a policy's statement that allows, denies or names nothing: IAM refuses it."""
    found = set()

    def look(name: str, value: Any) -> None:
        if isinstance(value, dict):
            whereupon = value.get("Resource") or value.get("Principal")  # of whom a role trusts
            if "Effect" in value and not (value.get("Action") and whereupon):
                found.add(name)
            if "Statement" in value and not value["Statement"]:
                found.add(name)
            for each in value.values():
                look(name, each)
        elif isinstance(value, list):
            for each in value:
                look(name, each)

    for name, each in template["Resources"].items():
        look(name, each)
    return found


def under(chosen: Mapping[str, str]) -> dict[str, Any]:
    return decided(BODY, {**DEFAULTS, **chosen})


def test_every_parameter_of_a_condition_has_two_values_here() -> None:
    asked = {name for name in references(BODY["Conditions"]) if not name.startswith("AWS::")}
    assert asked == OTHERWISE.keys()
    assert not {name for name, value in OTHERWISE.items() if value == DEFAULTS[name]}
    # Each condition is decided both ways by one parameter of its own, the others given or not.
    there = {name for name, each in BODY["Resources"].items() if "Condition" in each}
    alone = [{p: v} for p, v in [("Versioned", "true"), *OTHERWISE.items()]]
    without = [{p: v for p, v in OTHERWISE.items() if p != left} for left in OTHERWISE]
    made = [under(chosen)["Resources"].keys() for chosen in (*alone, OTHERWISE, *without)]
    for name in there:
        assert {name in resources for resources in made} == {True, False}, name


@pytest.mark.parametrize("most", [2, pytest.param(3, marks=pytest.mark.wide)])
def test_what_is_left_in_a_combination_of_parameters_refers_to_what_is_there(most: int) -> None:
    """Each parameter may be given or not; at most so many differ from the rest: two cover all that two of
    them decide together, three that in every surrounding of one more, without the thousands of others."""
    names = list(OTHERWISE)
    wrong: dict[tuple[str, ...], Any] = {}
    for given in product((False, True), repeat=len(names)):
        if min(sum(given), len(given) - sum(given)) > most:
            continue
        chosen = tuple(name for name, is_given in zip(names, given, strict=True) if is_given)
        template = under({name: OTHERWISE[name] for name in chosen})
        found = (dangling(template), hollow(template))
        if found != (set(), set()):
            wrong[chosen] = found
    # The smallest says most.
    assert not wrong, min(wrong.items(), key=lambda each: len(each[0]))


def test_a_reference_to_what_is_not_there_is_found() -> None:
    template = {
        "Parameters": {"Name": {}},
        "Resources": {
            "Queue": {
                "Type": "Q",
                "A": {"Fn::Sub": "${AWS::Region} ${!Literal} ${Name} ${Gone.Arn}"},
            },
            "After": {"Type": "Q", "DependsOn": "Absent"},
            "Asks": {
                "Type": "Q",
                "A": [{"Fn::Sub": ["${Own} ${Missing}", {"Own": {"Ref": "Lost"}}]}],
            },
            "Takes": {"Type": "Q", "A": {"Fn::GetAtt": "Nobody.Arn"}},
            "Empty": {
                "Type": "P",
                "Statement": [{"Effect": "Allow", "Action": "a", "Resource": []}],
            },
        },
        "Outputs": {"Out": {"Value": {"Ref": "Nowhere"}}},
    }
    assert dangling(template) == {
        ("Queue", "Gone"),
        ("After", "Absent"),
        ("Asks", "Missing"),
        ("Asks", "Lost"),
        ("Takes", "Nobody"),
        ("Out", "Nowhere"),
    }
    assert hollow(template) == {"Empty"}


def test_functions_are_in_the_vpc_or_the_stack_is_refused() -> None:
    """Security groups without subnets must not silently run the functions outside: Lambda refuses one
    without the other."""
    for chosen in (("SubnetIds",), ("SecurityGroupIds",), ("SubnetIds", "SecurityGroupIds")):
        template = under({name: OTHERWISE[name] for name in chosen})
        assert "VpcConfig" in template["Globals"]["Function"], chosen
    assert "VpcConfig" not in under({})["Globals"]["Function"]


def test_keys_of_adopted_objects_are_granted_with_the_objects_only() -> None:
    keys = OTHERWISE["AdoptKmsKeys"]
    alone = under({"AdoptKmsKeys": keys})
    assert keys not in str(alone["Resources"])
    both = under({name: OTHERWISE[name] for name in ("AdoptFrom", "AdoptKmsKeys")})
    assert keys in str(both["Resources"]["AdoptedPolicy"])
    assert keys in str(both["Resources"]["ReaderPolicy"])

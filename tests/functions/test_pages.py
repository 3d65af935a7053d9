"""What an operator follows: each alarm has its entry, each threat its test, each parameter its line."""

from __future__ import annotations

import re

from inlay.local.template import read_body

from .conftest import ROOT

BODY = read_body(ROOT / "template.yaml")


def test_every_alarm_links_to_its_entry_in_the_runbook() -> None:
    page = (ROOT / "docs" / "OPERATE.md").read_text()
    entries = set(re.findall(r"^### (\w+)$", page, re.MULTILINE))
    alarms = {n: r for n, r in BODY["Resources"].items() if r["Type"] == "AWS::CloudWatch::Alarm"}
    assert entries == alarms.keys()
    for name, alarm in alarms.items():
        said = alarm["Properties"]["AlarmDescription"]["Fn::Sub"]
        assert said.endswith(f"${{Runbook}}#{name.lower()}")


def test_the_runbook_quotes_what_is_there() -> None:
    """Whoever looks for a log line, an error or a metric finds it as the page has it."""
    page = (ROOT / "docs" / "OPERATE.md").read_text()
    code = "".join(
        path.read_text()
        for folder in ("layers/inlay/inlay", "functions")
        for path in (ROOT / folder).rglob("*.py")
    )
    assert {line for line in re.findall(r'"([^"\n]+)"', page) if f'"{line}"' not in code} == set()
    own = {*BODY["Parameters"], *BODY["Resources"], *BODY["Outputs"], "REPORT", "Inlay"}
    named = set(re.findall(r"`([A-Z]\w+)`", page)) - own
    assert {name for name in named if not re.search(rf"\b{name}\b", code)} == set()
    for command in set(re.findall(r"python -m (\w+\.\w+)", page)):
        assert (ROOT / f"{command.replace('.', '/')}.py").is_file()


def test_every_threat_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "SECURITY.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 20
    there = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name in named if f"def {name}(" not in there} == set()
    for line in re.findall(r"^\| .*\|$", page, re.MULTILINE)[1:]:
        assert "`test_" in line or line.startswith("|---"), line


def test_every_parameter_is_documented() -> None:
    pages = "".join((ROOT / name).read_text() for name in ("README.md", "docs/DEPLOY.md"))
    assert {name for name in BODY["Parameters"] if f"`{name}`" not in pages} == set()


def test_every_queue_and_policy_is_an_output() -> None:
    kinds = ("AWS::SQS::Queue", "AWS::SNS::Topic")
    made = {name for name, each in BODY["Resources"].items() if each["Type"] in kinds}
    assert made <= BODY["Outputs"].keys()

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
    # That of gradual upgrades is made at the build (.ci/gradual.py).
    assert "${Runbook}#shiftalarm" in (ROOT / ".ci" / "gradual.py").read_text()
    assert entries == alarms.keys() | {"ShiftAlarm"}
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


ALARMS = {n: r["Properties"] for n, r in BODY["Resources"].items() if r["Type"].endswith("::Alarm")}


def test_each_alarm_tells_of_its_end_and_none_is_red_on_a_new_stack() -> None:
    for name, alarm in ALARMS.items():
        assert alarm["AlarmActions"] == alarm["OKActions"] == [{"Ref": "AlarmTopic"}], name
        if alarm["TreatMissingData"] == "missing":  # rounds: told when they had begun before
            assert alarm["InsufficientDataActions"] == [{"Ref": "AlarmTopic"}], name
        else:
            assert alarm["TreatMissingData"] == "notBreaching", name


def test_two_stacks_of_an_account_have_metrics_of_their_own() -> None:
    own = {"Fn::Sub": "Inlay/${AWS::StackName}"}
    said = [a["Namespace"] for a in ALARMS.values() if "Namespace" in a]
    ours = [each for each in said if not str(each).startswith("AWS/")]
    assert len(ours) == 8
    assert all(each == own for each in ours)
    variables = BODY["Globals"]["Function"]["Environment"]["Variables"]
    assert variables["POWERTOOLS_METRICS_NAMESPACE"] == own
    shown = BODY["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    assert shown.count("Inlay/${AWS::StackName}") == shown.count("SEARCH(") == 3


def test_letters_that_wait_do_not_hide_new_ones() -> None:
    """An alarm above a number of letters stays red for as long as the first is there, and tells nobody
    of the next."""
    of_letters = {n: a for n, a in ALARMS.items() if n.endswith("DeadLettersAlarm")}
    queues = {n for n in BODY["Resources"] if n.endswith("DeadLetters")}
    watched = set()
    for alarm in of_letters.values():
        waiting, more = alarm["Metrics"]
        assert more["Expression"] == f"DIFF(FILL({waiting['Id']}, 0))"
        [dimension] = waiting["MetricStat"]["Metric"]["Dimensions"]
        watched.add(dimension["Value"]["Fn::GetAtt"].removesuffix(".QueueName"))
    assert watched == queues
    ages = [
        m["MetricStat"]["Metric"]["Dimensions"] for m in ALARMS["LettersExpireAlarm"]["Metrics"][1:]
    ]
    assert {d["Value"]["Fn::GetAtt"].removesuffix(".QueueName") for [d] in ages} == queues


def test_throttles_of_every_function_that_is_always_there_are_watched() -> None:
    functions = {
        n
        for n, r in BODY["Resources"].items()
        if r["Type"] == "AWS::Serverless::Function" and "Condition" not in r
    }
    found = [
        m["MetricStat"]["Metric"]["Dimensions"] for m in ALARMS["ThrottlesAlarm"]["Metrics"][1:]
    ]
    assert {d["Value"]["Ref"] for [d] in found} == functions

"""What `make release` publishes is what `sam deploy` deploys."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import inlay
from inlay.local.template import read_body

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".tools" / "sam" / "bin" / "python"
TEMPLATE = f"inlay-{inlay.__version__}.template.json"


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not PYTHON.exists():
        pytest.skip("needs `make tools`")
    into = tmp_path_factory.mktemp("release")
    layer = into / "built"
    layer.mkdir()
    (layer / "sbom.json").write_bytes((ROOT / "layers" / "inlay" / "sbom.json").read_bytes())
    subprocess.run([PYTHON, ROOT / ".ci" / "release.py", into, f"arm64={layer}"], check=True)
    return into


def long_form(value: Any) -> Any:
    """`Fn::GetAtt: A.b` as a list, as CloudFormation writes it."""
    if isinstance(value, list):
        return [long_form(each) for each in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("Fn::GetAtt"), str):
        return {"Fn::GetAtt": value["Fn::GetAtt"].split(".", 1)}
    return {name: long_form(each) for name, each in value.items()}


def test_the_released_template_needs_no_transform_and_loses_nothing(released: Path) -> None:
    plain = json.loads((released / TEMPLATE).read_text())
    source = long_form(read_body(ROOT / "template.yaml"))
    assert "Transform" not in plain and "Globals" not in plain
    assert "AWS::Serverless" not in json.dumps(
        [each["Type"] for each in plain["Resources"].values()]
    )
    given = plain["Parameters"]
    assert given.pop("LayerBucket").keys() >= {"AllowedPattern"} and given.pop("LayerPrefix")
    assert given == source["Parameters"] and plain["Conditions"] == source["Conditions"]
    assert plain.get("Rules") == source.get("Rules")
    (layer,) = [
        n for n, r in plain["Resources"].items() if r["Type"] == "AWS::Lambda::LayerVersion"
    ]
    content = plain["Resources"][layer]["Properties"]["Content"]
    assert content["S3Key"]["Fn::Sub"] == (
        "${LayerPrefix}inlay-layer-" + inlay.__version__ + "-${Architecture}.zip"
    )
    shared = source["Globals"]["Function"]["Environment"]["Variables"]
    for name, resource in source["Resources"].items():
        said = resource.get("Properties")
        if resource["Type"] == "AWS::Serverless::Function":
            made = plain["Resources"][name]["Properties"]
            code = (ROOT / said["CodeUri"] / "handler.py").read_text()
            assert (made["Code"], made["Handler"]) == ({"ZipFile": code}, "index.handler")
            assert made["Layers"] == [{"Ref": layer}]
            assert made["MemorySize"] == said.get("MemorySize", {"Ref": "Memory"})
            variables = {**shared, **said["Environment"]["Variables"]}
            assert made["Environment"]["Variables"] == variables
            for event in said.get("Events", {}).values():
                rules = [r for r in plain["Resources"].values() if r["Type"] == "AWS::Events::Rule"]
                assert event["Properties"]["Schedule"] in [
                    r["Properties"]["ScheduleExpression"] for r in rules
                ]
        elif resource["Type"] != "AWS::Serverless::LayerVersion":
            assert plain["Resources"][name]["Properties"] == said, name


def test_a_release_is_the_same_when_it_is_made_again(released: Path, tmp_path: Path) -> None:
    layer = released / "built"
    subprocess.run([PYTHON, ROOT / ".ci" / "release.py", tmp_path, f"arm64={layer}"], check=True)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {TEMPLATE, f"inlay-layer-{inlay.__version__}-arm64.zip", "samconfig.toml"}
    assert all((released / n).read_bytes() == (tmp_path / n).read_bytes() for n in names)
    settings = tomllib.loads((tmp_path / "samconfig.toml").read_text())
    environments = [settings[name]["deploy"]["parameters"] for name in ("default", "dev", "prod")]
    assert {each["template_file"] for each in environments} == {TEMPLATE}


def test_the_sbom_in_the_layer_lists_its_pins() -> None:
    folder = ROOT / "layers" / "inlay"
    bom = json.loads((folder / "sbom.json").read_text())
    assert bom["metadata"]["component"]["version"] == inlay.__version__, "run `make layer-lock`"
    pins = (folder / "requirements.txt").read_text().split()
    assert [f"{each['name']}=={each['version']}" for each in bom["components"]] == pins
    hashed = (folder / "requirements.hashes").read_text()
    for each in bom["components"]:
        for distribution in each["externalReferences"]:
            assert distribution["hashes"][0]["content"] in hashed, "run `make layer-lock`"
    assert "serialNumber" not in bom and "timestamp" not in bom["metadata"]

"""Make a release of what `sam build` built: the layers as zip files, a template that plain CloudFormation
deploys, and `samconfig.toml`. Runs in the SAM CLI's environment, whose translator makes the template.

    .tools/sam/bin/python .ci/release.py DIRECTORY x86_64=BUILT/InlayLayer arm64=BUILT/InlayLayer

The template holds the functions' code (a file each) and no transform, so that CloudFormation, Terraform and
CDK take it as it is. Only the layer is beside it: in a bucket that the parameter LayerBucket names. All of
it is the same whenever it is made of the same sources.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import boto3
from samcli.yamlhelper import yaml_parse
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from sbom import version

ROOT = Path(__file__).parents[1]
# The earliest that a zip file can say; a real one would differ each time.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def layer_name(architecture: str) -> str:
    return f"inlay-layer-{version()}-{architecture}.zip"


def write_layer(folder: Path, to: Path) -> None:
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _NO_TIME)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())


def plain_template() -> dict[str, Any]:
    body = yaml_parse((ROOT / "template.yaml").read_text())
    parameters = body["Parameters"]
    parameters["LayerBucket"] = {
        "Type": "String",
        "AllowedPattern": "[a-z0-9][a-z0-9.-]{2,62}",
        "Description": "A bucket of this region that holds the layers' zip files of this release",
    }
    parameters["LayerPrefix"] = {
        "Type": "String",
        "Default": "",
        "AllowedPattern": "([A-Za-z0-9._-]+/)*",
        "Description": "Where in that bucket, such as inlay/; at its root when empty",
    }
    for resource in body["Resources"].values():
        properties = resource["Properties"]
        if resource["Type"] == "AWS::Serverless::Function":
            code = ROOT / properties.pop("CodeUri") / "handler.py"
            properties["InlineCode"] = code.read_text()
            properties["Handler"] = "index.handler"
        elif resource["Type"] == "AWS::Serverless::LayerVersion":
            key = "${LayerPrefix}" + layer_name("${Architecture}")
            properties["ContentUri"] = {
                "Bucket": {"Ref": "LayerBucket"},
                "Key": {"Fn::Sub": key},
            }
    body["Globals"]["Function"].pop("Handler")
    # The translator would put a parameter's default in place of the parameter.
    defaults = {n: each.pop("Default") for n, each in parameters.items() if "Default" in each}
    session = boto3.Session(region_name="us-east-1")
    plain: dict[str, Any] = Translator({}, Parser(), boto_session=session).translate(body, {})
    for name, default in defaults.items():
        plain["Parameters"][name]["Default"] = default
    return plain


def main() -> None:
    into = Path(sys.argv[1])
    into.mkdir(parents=True, exist_ok=True)
    for architecture, _, folder in (each.partition("=") for each in sys.argv[2:]):
        write_layer(Path(folder), into / layer_name(architecture))
    template = f"inlay-{version()}.template.json"
    (into / template).write_text(json.dumps(plain_template(), indent=1) + "\n")
    said = (ROOT / "samconfig.toml").read_text()
    head, _, _ = said.partition("# On `inlay local up")
    _, _, others = said.partition("[dev.deploy.parameters]")
    config = f"{head}[dev.deploy.parameters]{others}"
    named = config.replace("resolve_s3 =", f'template_file = "{template}"\nresolve_s3 =')
    (into / "samconfig.toml").write_text(named)


if __name__ == "__main__":
    main()

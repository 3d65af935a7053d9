"""Write the components that uv exported as CycloneDX, the same for the same lock file: no time, no serial
number.

    uv export --format cyclonedx1.5 … | python .ci/sbom.py [REQUIREMENTS] > FILE

With REQUIREMENTS (`name==version` a line), only those: the layer has no boto3, which Lambda brings.
Distributions are named by package URL and hash, and only those for the platforms of the layer, or for any.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_WHEEL = re.compile(
    r"(-py3-none-any|-(cp313-cp313|cp3\d+-abi3)-manylinux[^-]*_(x86_64|aarch64))\.whl$"
)


def version() -> str:
    source = (ROOT / "layers" / "inlay" / "inlay" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "([^"]+)"', source, re.MULTILINE)
    if found is None:
        raise SystemExit("inlay/__init__.py says no version")
    return found[1]


def component(exported: dict[str, Any]) -> dict[str, Any]:
    purl = exported["purl"]
    distributions = [
        {
            "type": "distribution",
            "url": f"{purl}?file_name={each['url'].rpartition('/')[2]}",
            "hashes": each["hashes"],
        }
        for each in exported.get("externalReferences", [])
        if _WHEEL.search(each["url"])
    ]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": exported["name"],
        "version": exported["version"],
        **licence(exported["name"]),
        "purl": purl,
        **({"externalReferences": distributions} if distributions else {}),
    }


def licence(name: str) -> dict[str, Any]:
    """As the package itself says it, if it does by an SPDX expression."""
    try:
        said = metadata.metadata(name).get("License-Expression")
    except metadata.PackageNotFoundError:
        said = None
    return {"licenses": [{"expression": said}]} if said else {}


def main() -> None:
    exported = json.load(sys.stdin)
    components = exported["components"]
    if len(sys.argv) > 1:
        named = {line.partition("==")[0] for line in Path(sys.argv[1]).read_text().split()}
        components = [each for each in components if each["name"] in named]
    purls = {each["bom-ref"]: each["purl"] for each in components}
    root = f"pkg:pypi/inlay-tables@{version()}"
    purls[exported["metadata"]["component"]["bom-ref"]] = root
    needs = [
        {
            "ref": purls[each["ref"]],
            "dependsOn": sorted(purls[n] for n in each.get("dependsOn", []) if n in purls),
        }
        for each in exported["dependencies"]
        if each["ref"] in purls
    ]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": root,
                "name": "inlay-tables",
                "version": version(),
                "licenses": [{"expression": "Apache-2.0"}],
                "purl": root,
            }
        },
        "components": sorted(map(component, components), key=lambda each: each["name"]),
        "dependencies": sorted(needs, key=lambda each: each["ref"]),
    }
    print(json.dumps(bom, indent=1))


if __name__ == "__main__":
    main()

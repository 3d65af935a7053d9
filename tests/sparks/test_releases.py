"""The table of releases in docs/SPARK.md is what `verbs.py` says on each of them (`make test-sparks`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERBS = Path(__file__).with_name("verbs.py")
RELEASES = ("4.0", "4.1", "4.2", "4.3")
# A session and its queries; longer and it hangs.
SECONDS = 1800


def documented() -> dict[str, dict[str, str]]:
    """What docs/SPARK.md says of each release, by verb."""
    lines = (ROOT / "docs" / "SPARK.md").read_text(encoding="utf-8").splitlines()
    start = lines.index("| verb | " + " | ".join(RELEASES) + " |")
    said: dict[str, dict[str, str]] = {release: {} for release in RELEASES}
    for line in lines[start + 2 :]:
        if not line.startswith("| "):
            break
        verb, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for release, cell in zip(RELEASES, cells, strict=True):
            said[release][verb.replace("`", "")] = cell
    return said


def python_of(release: str) -> Path | None:
    """The Python that has this release; None where `make sparks` has not installed it."""
    import pyspark

    if pyspark.__version__.startswith(f"{release}."):
        return Path(sys.executable)
    found = ROOT / ".tools" / f"spark{release.replace('.', '')}" / "bin" / "python"
    return found if found.exists() else None


@pytest.mark.slow
@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("release", RELEASES)
def test_a_release_does_what_the_page_says(release: str) -> None:
    python = python_of(release)
    if python is None:
        pytest.skip(f"no PySpark {release}: make sparks")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SPARK_"))}
    done = subprocess.run(
        [python, VERBS], capture_output=True, text=True, env=environment, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    page = documented()[release]
    others = page.pop("all others")
    assert page.keys() <= told.keys()
    assert {verb: page.get(verb, others) for verb in told} == told


def test_the_page_says_it_of_every_release_and_verb() -> None:
    by_release = documented()
    assert len({tuple(said) for said in by_release.values()}) == 1
    assert set(by_release["4.3"].values()) == {"yes"}

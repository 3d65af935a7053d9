"""CPU that a function's import takes: the part of a cold start that is ours. Printed by `make build`.

    python benchmarks/cold_start.py --layer .aws-sam/build/InlayLayer/python --runs 7

Each import is a process of its own; the interpreter's start is not counted. With Python 3.13, which Lambda
runs, it is that of the built layer; with another that of this environment's packages, which is more.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAMBDA = (3, 13)
SCRIPT = """
import os
before = os.times()
import handler
after = os.times()
print(after.user + after.system - before.user - before.system)
"""


def seconds(function: Path, packages: str) -> float:
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{packages}{os.pathsep}{function}",
        "POWERTOOLS_SERVICE_NAME": function.name,
        "POWERTOOLS_METRICS_NAMESPACE": "Inlay",
    }
    command = [sys.executable, "-c", SCRIPT]
    return float(subprocess.run(command, env=env, capture_output=True, check=True).stdout)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--layer", type=Path, default=ROOT / ".aws-sam/build/InlayLayer/python")
    asked.add_argument("--runs", type=int, default=7)
    given = asked.parse_args()
    ours = sys.version_info[:2] == LAMBDA and given.layer.is_dir()
    packages = str(given.layer) if ours else str(ROOT / "layers/inlay")
    of = (
        "the layer"
        if ours
        else f"this environment, Python {sys.version_info[0]}.{sys.version_info[1]}"
    )
    print(f"CPU of imports, seconds, of {of} (least and median of {given.runs})")
    for handler in sorted(ROOT.glob("functions/*/handler.py")):
        found = [seconds(handler.parent, packages) for _ in range(given.runs)]
        print(f"  {handler.parent.name:16} {min(found):.2f}  {statistics.median(found):.2f}")


if __name__ == "__main__":
    main()

"""A process that may have 400 MB more meets bombs: each is refused by type, and nothing is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inlay.errors import NeedsMemory, UnsupportedFile

from . import bombs

CHILD = Path(__file__).parent / "bomb_child.py"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bombs")
    for name, make in bombs.BOMBS.items():
        (folder / name).write_bytes(make())
    (folder / "harmless").write_bytes(bombs.by_dictionary(rows=3))
    return folder


def run(operation: str, *paths: Path) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, str(CHILD), operation, *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


# Who looks for distinct texts holds each once, of columns in lists all, and reads no column without a
# dictionary; what by its own footer is too large to be cut is kept whole.
SPARED = {
    "ingest": [name for name in bombs.BOMBS if not name.startswith("lists")],
    "search": bombs.BOMBS,
    "split": [name for name in bombs.BOMBS if "," not in name and name != "prefixes"],
}


@pytest.mark.parametrize(
    "operation", ["scan", "ingest", "split", "search", "whole rewrite", "surgery"]
)
def test_what_is_large_once_decoded_is_refused_before_memory_is_taken(
    operation: str, files: Path
) -> None:
    found = run(operation, *(files / name for name in [*bombs.BOMBS, "harmless"]))
    assert found.pop("harmless") == "done"
    expected = {
        name: "done" if name in SPARED.get(operation, ()) else "UnsupportedFile" for name in found
    }
    if operation == "surgery":  # it holds pages to their footer
        expected["pages, lying"] = "UnreadableFile"
    # `NeedsMemory` is an `UnsupportedFile` that another machine may read.
    assert issubclass(NeedsMemory, UnsupportedFile)
    found = {n: "UnsupportedFile" if k == "NeedsMemory" else k for n, k in found.items()}
    assert found == expected

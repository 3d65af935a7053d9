"""Completion as a shell does it: installed as docs/CLI.md says, then asked by bash itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
ASKED = """
source "$HOME/.bashrc"
complete -p inlay
for line in "$@"; do
    COMP_WORDS=($line) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    case "$line" in *' ') COMP_WORDS+=("") COMP_CWORD=$((COMP_CWORD + 1)) ;; esac
    _inlay_completion inlay
    echo "${COMPREPLY[@]}"
done
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where completion is installed."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    found = tmp_path_factory.mktemp("home")
    in_bash(found, "inlay --install-completion")
    return found


def run(home: Path, *command: str) -> str:
    env = {"HOME": str(home), "PATH": f"{BIN}:{os.defpath}", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def in_bash(home: Path, line: str) -> str:
    """The shell that asks is the one whose completion is meant. (bash becomes its last command.)"""
    return run(home, "bash", "-c", f"{line}; true")


def asked(home: Path, *lines: str) -> list[str]:
    """What bash offers after each line that was typed."""
    said, *found = run(home, "bash", "-c", ASKED, "bash", *lines).splitlines()
    assert said.startswith("complete ") and said.endswith(" -F _inlay_completion inlay")
    return found


def test_verbs_and_options_are_completed(home: Path) -> None:
    found = asked(home, "inlay comp", "inlay dlq re", "inlay scan --wh", "inlay scan t --colu")
    assert found == ["compact", "redrive", "--where", "--columns"]


def test_a_table_is_left_to_the_shell(home: Path) -> None:
    """bash completes names of files where nothing is offered (`complete -o default`)."""
    assert asked(home, "inlay scan ./da", "inlay sc") == ["", "schema scan"]


def test_the_module_installs_the_completion_of_the_command(home: Path) -> None:
    shown = in_bash(home, f"{sys.executable} -m inlay --show-completion")
    assert shown == in_bash(home, "inlay --show-completion")
    assert "complete" in shown

"""Completion as a shell does it: installed as docs/CLI.md says, then asked by bash itself."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
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


def test_zsh_completes_from_the_first_tab(tmp_path: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("there is no zsh")
    run(tmp_path, "zsh", "-c", "inlay --install-completion; true")
    env = {"HOME": str(tmp_path), "PATH": f"{BIN}:{os.defpath}", "LC_ALL": "C.UTF-8"}
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe("zsh", ["zsh", "-i"], env | {"TERM": "dumb", "PS1": "ready> "})
    try:
        assert "ready> " in shown(terminal, "ready> ")
        os.write(terminal, b"inlay comp\t")
        assert "compact" in shown(terminal, "compact")
        os.write(terminal, b"\x15inlay scan --wh\t")
        assert "--where" in shown(terminal, "--where")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def shown(terminal: int, wanted: str) -> str:
    """What a terminal shows until it shows `wanted`; less where that does not come."""
    found, ends = "", time.monotonic() + 60
    while wanted not in found and time.monotonic() < ends:
        if select.select([terminal], [], [], 1)[0]:
            found += os.read(terminal, 65536).decode(errors="replace")
    return found


def test_fish_completes(tmp_path: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("there is no fish")
    (tmp_path / "data.csv").touch()
    run(tmp_path, "fish", "-c", "inlay --install-completion; true")
    for line, wanted in (
        ("inlay comp", "compact"),
        ("inlay scan --wh", "--where"),
        (f"inlay append t {tmp_path}/da", f"{tmp_path}/data.csv"),
    ):
        offered = run(tmp_path, "fish", "-c", f"complete -C '{line}'")
        assert [each.split("\t")[0] for each in offered.splitlines()] == [wanted]

"""`inlay --help` teaches: every command is documented and shows examples that work."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from tests.cli.conftest import Run

from inlay.cli.app import app, keep
from inlay.cli.command import MEANT

PAGE = Path(__file__).parents[2] / "docs" / "CLI.md"
COMMANDS = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
EXAMPLE = re.compile(r"^\s*(inlay .*)$", re.MULTILINE)


def examples(text: str) -> list[str]:
    return [line.replace("\\[", "[") for line in EXAMPLE.findall(text)]


def check_parses(line: str) -> None:
    """A usage error is one: nothing is run."""
    words = shlex.split(line)[1:]
    command = COMMANDS[words[0]]
    command.make_context(words[0], words[1:], resilient_parsing=False)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_an_example_that_parses(name: str) -> None:
    found = examples(COMMANDS[name].epilog or "")
    assert found, f"`inlay {name} --help` shows no example"
    for line in found:
        assert line.split()[1] == name
        check_parses(line)


@pytest.mark.parametrize("name", sorted(n for n, c in COMMANDS.items() if not c.hidden))
def test_every_command_is_documented(name: str) -> None:
    assert re.search(rf"`inlay {name}\b|^inlay {name}\b", PAGE.read_text(), re.MULTILINE), (
        f"docs/CLI.md does not mention `inlay {name}`"
    )


def test_every_documented_command_line_parses() -> None:
    blocks = re.findall(r"```(?:sh|bash)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in examples(block.replace("\\\n", " "))]
    assert lines
    for line in lines:
        check_parses(line.partition("  #")[0])


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_says_what_it_does(name: str) -> None:
    silent = [
        parameter.name
        for parameter in COMMANDS[name].params
        if not getattr(parameter, "help", None) and name != "local"
    ]
    assert silent == []


def test_help_loads_neither_arrow_nor_boto3() -> None:
    script = (
        "import sys; sys.argv = ['inlay', '--help']\n"
        "from inlay.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'pyarrow', 'boto3', 'botocore', 'moto', 'pyspark'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Mutable columnar tables" in done.stdout


def test_without_the_extra_the_entry_point_says_how_to_get_it() -> None:
    script = "import sys; sys.modules['typer'] = None\nfrom inlay.cli import main\nmain()\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'inlay-tables[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_local_extra_other_commands_work_and_local_says_how_to_get_it(
    inlay: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import inlay.local.stack as stack

    def missing(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'moto'", name="moto")

    monkeypatch.setattr(stack.LocalStack, "start", missing)
    ran = inlay("local", "up", code=2)
    assert "pip install 'inlay-tables[local]'" in ran.err
    assert "moto" in ran.err


@pytest.mark.parametrize("asked", ["--help", "-h"])
def test_local_help_is_that_of_the_local_commands(inlay: Run, asked: str) -> None:
    pages = [inlay("local", *verb, asked).out for verb in ([], ["up"], ["demo"])]
    assert "up" in pages[0] and "demo" in pages[0]
    assert "--endpoint-url" in pages[1] and "--scale" in pages[2]
    kinds = re.compile(r"<(bool|str|int|float|path)")
    assert [page for page in pages if kinds.search(page)] == []


def test_the_version_is_that_of_the_package(inlay: Run) -> None:
    from importlib.metadata import version

    assert inlay("--version").out.strip() == version("inlay-tables")


@pytest.mark.parametrize(
    "command", [["--help"], ["scan", "--help"], ["scan", "t"], ["inspect", "t"]]
)
@pytest.mark.parametrize("mode", ["0", "1"])
def test_nothing_ends_in_a_traceback_where_only_ascii_is_spoken(
    inlay: Run, tmp_path: Path, command: list[str], mode: str
) -> None:
    inlay("create", "t", "--schema", "id bigint, name string")
    (tmp_path / "a.csv").write_text("id,name\n1,Zoë 🐍\n")
    inlay("append", "t", "a.csv")
    plain = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PYTHONUTF8": mode, "PYTHONCOERCECLOCALE": "0"}
    plain["PYTHONPATH"] = ":".join(path for path in sys.path if path)
    done = subprocess.run([sys.executable, "-m", "inlay", *command], env=plain, capture_output=True)
    assert done.returncode == 0, done.stderr
    if command == ["scan", "t"]:
        assert done.stdout.decode("utf-8") == "id,name\n1,Zoë 🐍\n"


@pytest.mark.parametrize("word", sorted(MEANT))
def test_what_other_tools_call_a_command_leads_to_it(inlay: Run, word: str) -> None:
    meant = MEANT[word].split()
    assert word not in COMMANDS and meant[0] in COMMANDS
    said = " ".join(inlay(word, "./people", code=2).err.replace("│", " ").split())
    assert f"It is: inlay {MEANT[word]}" in said
    # What follows is taken by the command.
    check_parses(f"inlay {MEANT[word]}".replace(" N", " 1"))


@pytest.mark.parametrize(("asked", "made"), [("scan", 1), ("--help", None), ("scann", None)])
def test_only_the_command_that_is_asked_for_is_made(monkeypatch, asked, made):
    every = list(app.registered_commands)
    monkeypatch.setattr(app, "registered_commands", every)
    keep(asked)
    assert len(app.registered_commands) == (made or len(every))
    assert {command.name for command in app.registered_commands} >= {asked} & {"scan"}

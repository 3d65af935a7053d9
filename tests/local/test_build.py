"""`sam build` makes what AWS takes."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import boto3
import pytest

from inlay.local.template import load_template

ROOT = Path(__file__).parents[2]
SAM = ROOT / ".tools" / "sam" / "bin" / "sam"
UV = ROOT / ".tools" / "uv" / "bin" / "uv"
# AWS: a function and its layers, unzipped.
LIMIT_BYTES = 262_144_000


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("build"), "x86_64")


def build(into: Path, architecture: str) -> Path:
    """As a user of SAM types it: nothing says where uv is."""
    if not (SAM.exists() and UV.exists()):
        pytest.skip("needs `make setup`")
    subprocess.run(
        [
            *(SAM, "build", "--template", ROOT / "template.yaml", "--build-dir", into),
            *("--cache-dir", into / "cache", "--parameter-overrides"),
            f"Architecture={architecture}",
        ],
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if name != "UV"},
            "ARCHITECTURE": architecture,
            "SAM_CLI_TELEMETRY": "0",
        },
        check=True,
        capture_output=True,
    )
    return into / "InlayLayer"


@pytest.mark.slow
def test_the_layer_leaves_room_for_every_function(layer: Path) -> None:
    largest = max(size(folder) for folder in (ROOT / "functions").iterdir() if folder.is_dir())
    assert size(layer) < LIMIT_BYTES - largest
    # Cold starts unpack all of it.
    assert size(layer) <= 100_000_000


@pytest.mark.slow
def test_pip_makes_the_same_layer_as_uv_byte_for_byte(layer: Path, tmp_path: Path) -> None:
    """So `sam build` needs no uv, and a released layer can be built again and compared."""
    source = tmp_path / "source"
    shutil.copytree(ROOT / "layers" / "inlay", source)
    made = tmp_path / "made"
    subprocess.run(
        ["make", "build-InlayLayer", "UV=", f"ARTIFACTS_DIR={made}"],
        cwd=source,
        check=True,
        capture_output=True,
    )

    def content(of: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(of)): hashlib.sha256(path.read_bytes()).digest()
            for path in of.rglob("*")
            if path.is_file()
        }

    assert content(made) == content(layer)


@pytest.mark.slow
def test_the_layer_is_compiled_and_says_whose_it_is(layer: Path) -> None:
    assert (layer / "LICENSE").exists() and (layer / "NOTICE").exists()
    notice = (layer / "NOTICE").read_text().replace("_", "-")
    for found in (layer / "python").glob("*.dist-info"):
        assert found.name.split("-")[0].replace("_", "-") in notice
    if any(_runs(found) for found in _pythons()):
        sources = list((layer / "python" / "inlay").rglob("*.py"))
        compiled = list((layer / "python" / "inlay").rglob("*.cpython-313.pyc"))
        assert len(compiled) == len(sources)


@pytest.mark.slow
def test_every_handler_loads_from_the_layer_on_lambdas_python(layer: Path) -> None:
    python = next((found for found in _pythons() if _runs(found)), None)
    if python is None:
        pytest.skip("there is no Python 3.13 here")
    # Lambda's runtime brings boto3; pure Python, so the one installed here will do.
    runtime = Path(boto3.__file__).parents[1]
    script = f"""
import importlib.util, sys
sys.path[:0] = [{str(layer / "python")!r}]
sys.path.append({str(runtime)!r})
for name in ("ingest", "delete", "rewrite", "compact", "collect_garbage", "publish", "catalog"):
    path = {str(ROOT / "functions")!r} + "/" + name + "/handler.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
import inlay, pyarrow
assert inlay.__file__.startswith({str(layer)!r}), inlay.__file__
assert pyarrow.__file__.startswith({str(layer)!r}), pyarrow.__file__
"""
    subprocess.run([python, "-I", "-c", script], check=True)


def test_the_layer_keeps_the_modules_of_pyarrow_that_are_imported() -> None:
    """By what its Makefile deletes: only a run on Lambda's Python would tell."""
    recipe = (ROOT / "layers" / "inlay" / "Makefile").read_text()
    compiled = set(re.findall(r'"\$\(ARROW\)"/_(\w+)\*', recipe))
    [listed] = re.findall(r'foreach unused,([a-z ]+),"\$\(ARROW\)/\$\(unused\)\.py"', recipe)
    gone = compiled | set(listed.split())
    assert {"dataset", "json", "flight"} <= gone
    used: set[str] = set()
    guests = ("cli", "doctor", "local", "spark", "embedded_s3")
    for path in [*(ROOT / "layers/inlay/inlay").rglob("*.py"), *(ROOT / "functions").rglob("*.py")]:
        if set(path.parts) & set(guests):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.ImportFrom(module="pyarrow", names=names):
                    used |= {each.name for each in names}
                case ast.ImportFrom(module=str(name)) if name.startswith("pyarrow."):
                    used.add(name.split(".")[1])
                case ast.Import(names=names):
                    used |= {n.name.split(".")[1] for n in names if n.name.startswith("pyarrow.")}
                case _:
                    pass
    assert {"csv", "parquet", "compute"} <= used
    # Datasets and expressions of pyarrow are what users of the library hand in or ask for.
    assert used & gone == {"dataset"}


@pytest.mark.slow
def test_an_arm64_layer_is_of_arm64_throughout_and_as_small(layer: Path, tmp_path: Path) -> None:
    """Its libraries are stripped by a strip that reads them; this machine's own would refuse."""
    built = build(tmp_path, "arm64")
    libraries = [path for path in built.rglob("*.so*") if path.is_file()]
    assert len(libraries) > 10
    for path in libraries:
        head = path.read_bytes()[:20]
        assert head[:4] == b"\x7fELF"
        assert int.from_bytes(head[18:20], "little") == 183, path  # EM_AARCH64
    if shutil.which("aarch64-linux-gnu-strip") or shutil.which("llvm-strip"):
        assert size(built) <= 100_000_000

    def names(of: Path) -> set[str]:
        found = {each.name for each in (of / "python").iterdir()}
        return {re.sub("(x86_64|aarch64)-linux-gnu", "linux", name) for name in found}

    assert names(built) == names(layer)


@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_what_is_deployed_is_of_the_architecture_that_was_built(
    tmp_path: Path, architecture: str
) -> None:
    """`sam deploy` takes the built template's default for a parameter that nobody gives."""
    said = subprocess.run(
        ["make", "-n", "build", f"ARCHITECTURE={architecture}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (step,) = [line for line in said.splitlines() if line.startswith("sed ")]
    built = tmp_path / ".aws-sam" / "build" / "template.yaml"
    built.parent.mkdir(parents=True)
    shutil.copy(ROOT / "template.yaml", built)
    subprocess.run(step, shell=True, cwd=tmp_path, check=True)
    source, found = load_template(ROOT / "template.yaml"), load_template(built)
    assert found.parameters == {**source.parameters, "Architecture": architecture}


@pytest.mark.parametrize("pinned", sorted((ROOT / ".ci").glob("*-requirements.txt")), ids=str)
def test_every_pinned_file_of_ours_has_hashes(pinned: Path) -> None:
    lines = pinned.read_text().replace("\\\n", " ").splitlines()
    packages = [line for line in lines if line and not line.lstrip().startswith("#")]
    assert packages and all("--hash=sha256:" in line for line in packages)


def test_the_layers_pins_are_those_of_the_lock_file() -> None:
    locked = (ROOT / "uv.lock").read_text()
    for line in (ROOT / "layers" / "inlay" / "requirements.txt").read_text().splitlines():
        name, _, version = line.partition("==")
        pinned = f'name = "{name}"\nversion = "{version}"'
        assert pinned in locked, f"{line} is not in uv.lock; run `make layer-lock`"


def test_the_layer_installs_what_is_pinned_by_hash() -> None:
    folder = ROOT / "layers" / "inlay"
    hashed = (folder / "requirements.hashes").read_text().replace("\\\n", " ").splitlines()
    pinned = (folder / "requirements.txt").read_text().splitlines()
    assert [line.split()[0] for line in hashed] == pinned, "run `make layer-lock`"
    assert all("--hash=sha256:" in line for line in hashed)
    assert "--require-hashes --requirement requirements.hashes" in (folder / "Makefile").read_text()


def _pythons() -> list[str]:
    named = [shutil.which("python3.13") or ""]
    pyenv = Path.home() / ".pyenv" / "versions"
    return [each for each in named if each] + [
        str(found) for found in sorted(pyenv.glob("3.13.*/bin/python3.13"))
    ]


def _runs(python: str) -> bool:
    done = subprocess.run([python, "-c", ""], capture_output=True, check=False)
    return done.returncode == 0

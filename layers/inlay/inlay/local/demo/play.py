"""The demo on TPC-H lineitem, made on this machine: every step, its cost, and the check that follows it."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console

from inlay.errors import InvalidRequest
from inlay.local.demo.figures import Figures, Meter
from inlay.local.demo.readers import (
    ArrowReader,
    DuckReader,
    EngineReader,
    Engines,
    Reader,
    SparkReader,
    engines_python,
    spark_installed,
)
from inlay.local.demo.show import (
    NEXT,
    Played,
    make_console,
    print_answers,
    print_failed,
    print_opening,
    print_played,
    print_summary,
    print_title,
)
from inlay.local.demo.steps import ENGINES_WRITE, STEPS, Step
from inlay.local.demo.world import Mismatch, Truth, World
from inlay.local.stack import LocalOptions, LocalStack, environment

# Uncompressed bytes of a row group: several in each file even at a small scale, so that surgery has
# something to leave alone.
ROW_GROUP_BYTES = 2_000_000


def generate_lineitem(folder: Path, *, scale: float, files: int) -> Sequence[Path]:
    """Lineitem at a TPC-H scale (1 is six million rows) as `files` Parquet files in `folder`."""
    command = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or shutil.which(
        "tpchgen-cli"
    )
    if command is None:
        raise InvalidRequest(
            "the demo needs tpchgen-cli, which is not installed",
            next_step="pip install tpchgen-cli",
        )
    made = subprocess.run(
        [
            command,
            "parquet",
            *("--scale-factor", str(scale)),
            *("--tables", "lineitem", "--parts", str(files)),
            *("--row-group-bytes", str(ROW_GROUP_BYTES)),
            *("--output-dir", str(folder), "--quiet"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise InvalidRequest(
            f"tpchgen-cli failed: {made.stderr.strip()[-300:]}",
            next_step="Give a scale above 0, such as 0.1, and enough free disk",
        )
    return [folder / "lineitem" / f"lineitem.{n}.parquet" for n in range(1, files + 1)]


TABLE = "lineitem"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """`files` land, the last of them late; `spark` False leaves Spark out."""

    scale: float = 0.1
    files: int = 4
    endpoint_url: str | None = None
    spark: bool = True
    template: Path | None = None
    home: Path = Path(".inlay/demo")


def play(options: DemoOptions, *, steps: Sequence[Step] | None = None) -> bool:
    """Play the demo; False when an answer was wrong."""
    console = make_console()
    started = time.monotonic()
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory(prefix="inlay-demo-")))
        with console.status("generating TPC-H lineitem"):
            sources = generate_lineitem(folder, scale=options.scale, files=options.files)
        with console.status("starting S3, SQS and the functions"):
            stack = open_.enter_context(_stack(options))
            readers = _readers(options, console, open_)
            engines = _engines(options, stack, console, open_)
            outside = () if engines is None else _outside(engines)
            # Another server keeps the tables of earlier runs.
            name = TABLE if options.endpoint_url is None else f"{TABLE}-{secrets.token_hex(4)}"
            world = World(stack, name, Truth(sources[0]), sources, engines=engines)
            world.create()
        if steps is None:
            steps = [step for step in STEPS if engines or step is not ENGINES_WRITE]
        print_opening(
            console,
            rows=sum(pq.read_metadata(source).num_rows for source in sources),
            files=len(sources),
            size=sum(source.stat().st_size for source in sources),
            where=world.uri,
        )
        meter = Meter(None if options.endpoint_url else stack.aws)
        played: list[Played] = []
        for number, step in enumerate(steps, start=1):
            print_title(console, number, step)
            try:
                with console.status("    working"):
                    played.append(_play_step(step, world, readers, outside, meter))
            except Mismatch as problem:
                print_failed(
                    console, str(problem), [*world.dead_letters(), f"logs: {options.home}"]
                )
                return False
            print_played(console, played[-1])
        print_summary(console, played, time.monotonic() - started)
        print_answers(console, played)
    console.print(NEXT)
    return True


@contextmanager
def _stack(options: DemoOptions) -> Iterator[LocalStack]:
    local = LocalOptions(
        template=options.template,
        endpoint_url=options.endpoint_url,
        # The demo runs maintenance itself, so that each step can be seen.
        schedules=False,
        home=options.home,
    )
    with LocalStack(local) as stack, environment(stack.environment):
        yield stack


def _readers(options: DemoOptions, console: Console, open_: ExitStack) -> Sequence[Reader]:
    readers: list[Reader] = [ArrowReader(), DuckReader()]
    if options.spark and spark_installed():
        spark = SparkReader(options.home / "spark.log")
        open_.callback(spark.close)
        readers.append(spark)
    elif options.spark:
        console.print(
            "Spark is left out: pyspark is not installed (pip install 'inlay-tables[spark]')"
        )
    return readers


def _engines(
    options: DemoOptions, stack: LocalStack, console: Console, open_: ExitStack
) -> Engines | None:
    """Those that read what is published, and write, where they are installed."""
    python = engines_python(stack.template.path)
    if python is None:
        console.print(
            "Engines that read and write Iceberg are left out: `make engines` installs them"
        )
        return None
    engines = Engines(python, f"s3://{stack.bucket}/tables", options.home / "engines.log")
    open_.callback(engines.close)
    return engines


def _outside(engines: Engines) -> Sequence[EngineReader]:
    return (
        EngineReader(engines, "duckdb", "DuckDB by Iceberg"),
        EngineReader(engines, "pyiceberg", "pyiceberg"),
    )


def _play_step(
    step: Step,
    world: World,
    readers: Sequence[Reader],
    engines: Sequence[EngineReader],
    meter: Meter,
) -> Played:
    meter.mark()
    began = time.monotonic()
    check = step.act(world)
    seconds, cost = time.monotonic() - began, meter.since_mark(but="publish")
    remark = check() if check is not None else ""
    letters = world.dead_letters()
    if letters:
        raise Mismatch(f"messages went to the dead letters: {'; '.join(letters)}")
    if world.published:
        world.await_publication()
    publishing = meter.since_mark(only="publish") if world.published else None
    state, expected = world.state(), world.truth.figures()
    for reader in readers:
        _compare(reader.name, reader.read(world.uri, state.version), expected)
    world.history[state.version] = expected
    answers = {reader.name: reader.read(world.uri) for reader in engines}
    for name, answer in answers.items():
        _check_version(world, name, answer.version, state.version)
        _compare(name, answer.figures, world.history[answer.version])
    return Played(
        step,
        seconds,
        cost,
        state,
        expected,
        tuple(reader.name for reader in readers),
        remark,
        publishing,
        answers,
    )


def _check_version(world: World, name: str, seen: int, newest: int) -> None:
    """Engines see the newest version; while an erasure rewrites files, the last one before it."""
    erasing = any(erasure.predicate is not None for erasure in world.open().snapshot.erasures)
    if seen != newest and not (erasing and seen in world.history):
        raise Mismatch(f"{name} reads version {seen} instead of {newest}")


def _compare(name: str, figures: Figures, expected: Figures) -> None:
    wrong = figures.differences(expected)
    if wrong:
        raise Mismatch(f"{name} reads {', '.join(wrong)}")

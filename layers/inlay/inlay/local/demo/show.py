"""What the demo prints: a block for each step, then a table of all; plain where nobody looks."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from inlay import Usage
from inlay.cli.values import counted, size_text
from inlay.local.demo.figures import Figures
from inlay.local.demo.readers import Answer
from inlay.local.demo.steps import Step
from inlay.local.demo.world import State

# Operations by what S3 bills them as.
_VERBS = {
    "GetObject": "GET",
    "PutObject": "PUT",
    "HeadObject": "HEAD",
    "CopyObject": "COPY",
    "UploadPart": "PUT",
    "UploadPartCopy": "COPY",
    "CreateMultipartUpload": "POST",
    "CompleteMultipartUpload": "POST",
    "ListObjectsV2": "LIST",
    "ListObjectVersions": "LIST",
    "ListMultipartUploads": "LIST",
    "DeleteObjects": "DELETE",
}
_PLAIN_WIDTH = 200


@dataclass(frozen=True, slots=True)
class Played:
    """A step that was played, with all there is to show of it; `publishing` is what the publish function
    asked for, which `cost` leaves out; `answers` by the name of an engine."""

    step: Step
    seconds: float
    cost: Usage | None
    state: State
    figures: Figures
    readers: tuple[str, ...]
    remark: str = ""
    publishing: Usage | None = None
    answers: Mapping[str, Answer] = field(default_factory=dict)


def make_console() -> Console:
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=_PLAIN_WIDTH, no_color=True)


def print_opening(console: Console, *, rows: int, files: int, size: int, where: str) -> None:
    console.print()
    console.print(Text("Inlay, end to end", "bold"))
    console.print(
        f"TPC-H lineitem: {counted(rows, 'row')} in {counted(files, 'Parquet file')}, "
        f"{size_text(size)}; table {where}"
    )


def print_title(console: Console, number: int, step: Step) -> None:
    console.print()
    console.print(Text.assemble((f"{number:>2}  ", "bold cyan"), (step.title, "bold")))
    _say(console, Text(step.about, "dim"))


def print_played(console: Console, played: Played) -> None:
    state, figures = played.state, played.figures
    if played.remark:
        _say(console, Text(played.remark))
    _say(
        console,
        Text(
            f"version {state.version}: {counted(figures.rows, 'row')}, "
            f"{counted(state.files, 'file')}, {size_text(state.bytes)}, "
            f"{counted(state.markers, 'delete marker')}"
        ),
    )
    _say(console, Text(f"{cost_text(played.cost)} in {played.seconds:.1f} s", "dim"))
    if played.publishing is not None and played.publishing.total:
        _say(console, Text(f"to publish it: {cost_text(played.publishing)}", "dim"))
    agreed = Text()
    for name in played.readers:
        agreed.append("✓", "green").append(f" {name}  ")
    for name, answer in played.answers.items():
        late = "" if answer.version == state.version else f" (version {answer.version})"
        agreed.append("✓", "green").append(f" {name}{late}  ")
    agreed.append(f"quantity {figures.quantity:,}, price {figures.price:,}")
    _say(console, agreed)


def _say(console: Console, text: Text) -> None:
    """Under a step's title, also where the line is broken."""
    console.print(Padding(text, (0, 0, 0, 4), expand=False))


def cost_text(cost: Usage | None) -> str:
    """Requests by kind and bytes, as the server counted them."""
    if cost is None:
        return "done (requests are counted on the embedded S3 only)"
    verbs: Counter[str] = Counter()
    for name, number in cost.requests.items():
        verbs[_VERBS.get(name, name)] += number
    kinds = ", ".join(f"{number} {verb}" for verb, number in verbs.most_common())
    up, down = size_text(cost.bytes_up), size_text(cost.bytes_down)
    return f"{counted(cost.total, 'request')}{f' ({kinds})' if kinds else ''}, {up} up, {down} down"


def print_failed(console: Console, problem: str, hints: Sequence[str]) -> None:
    _say(console, Text.assemble(("✗ ", "bold red"), (problem, "red")))
    for hint in hints:
        _say(console, Text(f"  {hint}", "dim"))


def print_summary(console: Console, played: Sequence[Played], seconds: float) -> None:
    # Fits 80 columns at scale 1.
    grid = _grid("v", "rows", "files", "req", "up", "down", "s")
    for step in played:
        spent = ("·", "·", "·")
        if step.cost is not None:
            up, down = size_text(step.cost.bytes_up), size_text(step.cost.bytes_down)
            spent = (f"{step.cost.total:,}", up, down)
        grid.add_row(
            step.step.title,
            str(step.state.version),
            f"{step.figures.rows:,}",
            str(step.state.files),
            *spent,
            f"{step.seconds:.1f}",
        )
    console.print()
    console.print(grid)
    console.print(
        Text.assemble(
            ("All answers agree", "bold green"),
            f" with DuckDB on the source files, after each of {len(played)} steps, in {seconds:.0f} s.",
        )
    )


def print_answers(console: Console, played: Sequence[Played]) -> None:
    """What engines that do not know Inlay read after each step, through a catalog."""
    names = list(played[0].answers) if played else []
    if not names:
        return
    grid = _grid("Inlay rows", *names, "equal", "requests")
    for step in played:
        versions = {answer.version for answer in step.answers.values()} - {step.state.version}
        equal = f"to version {min(versions)}" if versions else "yes"
        rows = (f"{answer.figures.rows:,}" for answer in step.answers.values())
        asked = "·" if step.publishing is None else f"{step.publishing.total:,}"
        grid.add_row(step.step.title, f"{step.figures.rows:,}", *rows, equal, asked)
    console.print("The same files as an Apache Iceberg table, and what publishing it asked S3 for:")
    console.print(grid)
    console.print(
        "While an erasure waits for its files to be rewritten, engines read the version before it.",
        style="dim",
    )


def _grid(*columns: str) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    grid.add_column("step", no_wrap=True)
    for name in columns:
        grid.add_column(name, justify="right", no_wrap=True)
    return grid


NEXT = """
[bold]What to try next[/bold]
  inlay local up                      the same servers and functions, kept running
  inlay local demo --scale 1          ten times the rows
  inlay create ./people --schema "id bigint not null, name string"
  inlay append ./people your.csv      a table in a folder, without a server
  inlay --help                        every verb, with examples
  README.md                           the library, deletes, Spark, how to deploy"""

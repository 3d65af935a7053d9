"""`inlay local …`: the local AWS and the demo, from the command line.

While it runs, it prints what becomes a dead letter. Promise: each letter is printed once, within a few
seconds, without the values in it (`functions.dead_letters` decides what is shown, as for
`inlay dlq`), and stays where it is: it is hidden from others for no longer than reading takes.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.table import Table

from inlay.cli.command import Verb, Verbs
from inlay.cli.values import to_text
from inlay.errors import StoreUnavailable
from inlay.functions.dead_letters import Letter, read_letters, release

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

    from inlay.local.stack import LocalStack


def demo(
    scale: Annotated[
        float,
        typer.Option(min=0.001, envvar="SCALE", help="TPC-H scale: 1 is six million rows."),
    ] = 0.1,
    files: Annotated[int, typer.Option(min=2, help="Parquet files that land.")] = 4,
    endpoint_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Keep bucket and table on this S3 server instead of the embedded one.",
        ),
    ] = None,
    spark: Annotated[bool, typer.Option(help="Read with Spark after every step.")] = True,
) -> None:
    """Run the whole product on this machine and check every answer.

    Exits with 1 at the first wrong one.
    """
    # Imported here: it brings moto, DuckDB and pyarrow, which the other commands do not need.
    from inlay.cli.failures import failing_well
    from inlay.local.demo.play import DemoOptions, play

    with failing_well(as_json=False):
        right = play(DemoOptions(scale=scale, files=files, endpoint_url=endpoint_url, spark=spark))
    raise typer.Exit(0 if right else 1)


_LOOK_SECONDS = 2.0
# The queues count their letters; others may have come in place of as many that went.
_LOOKS_ANYWAY = 5
# More at once are counted: a thousand bad files must not bury the first one's reason.
_SAID_AT_ONCE = 10
_REMEMBERED = 10_000


@dataclass(eq=False)
class LetterWatch:
    """Prints each new letter of `queues` (URLs by name) by `say`. Ends with the `with` block."""

    sqs: SQSClient
    queues: Mapping[str, str]
    say: Callable[[str], None]
    _seen: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _counts: dict[str, int] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> LetterWatch:
        self._thread = threading.Thread(target=self._follow, name="letter-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def look(self, *, anyway: bool = False) -> None:
        """Print what has come since the last look, where a queue's count has changed, or `anyway`."""
        for name, url in self.queues.items():
            count = self._waiting(url)
            if count and (anyway or count != self._counts.get(name)):
                self._read(name, url)
            self._counts[name] = count

    def _follow(self) -> None:
        looks = 0
        while not self._stopping.wait(_LOOK_SECONDS):
            looks += 1
            # The server may be stopping: there is a next look, or an end.
            with contextlib.suppress(BotoCoreError, ClientError):
                self.look(anyway=looks % _LOOKS_ANYWAY == 0)

    def _waiting(self, url: str) -> int:
        answer = self.sqs.get_queue_attributes(
            QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"]
        )
        return int(answer["Attributes"].get("ApproximateNumberOfMessages", 0))

    def _read(self, name: str, url: str) -> None:
        letters: list[Letter] = []
        try:
            # The embedded SQS finds all that there is at once.
            letters.extend(read_letters(self.sqs, url, wait_seconds=0))
        finally:
            release(self.sqs, url, letters)
        new = [letter for letter in letters if letter.id not in self._seen]
        self._seen.extend(letter.id for letter in new)
        for letter in new[:_SAID_AT_ONCE]:
            self.say(f"{line(name, letter)}\n  inlay dlq show {url} --id {letter.id}")
        if len(new) > _SAID_AT_ONCE:
            more = len(new) - _SAID_AT_ONCE
            self.say(f"dead letters in {name}: {more} more\n  inlay dlq list {url}")


def line(queue: str, letter: Letter) -> str:
    """The queue, the kind of message, its table or its files, and why it is there."""
    about, why = letter.about, letter.why
    table = about.get("table") or letter.reasons.get("Table")
    objects = about.get("objects", [])
    if objects:
        kind = "landed file " + ", ".join(objects[:3]) + (" …" if len(objects) > 3 else "")
    elif "mode" in about:
        kind = f"{about['mode']} request"
    else:
        kind = "request" if table else "message"
    of = f" for {table}" if table else ""
    error = f"{why['error']}: " if why["error"] else ""
    # A message may hold anything, also what a terminal would obey.
    return to_text(f"dead letter in {queue}: {kind}{of}: {error}{why['reason']}")


app = typer.Typer(
    name="local",
    help="Run S3, SQS and the functions on this machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def local() -> None:
    """Run S3, SQS and the functions on this machine."""


@app.command(cls=Verb)
def up(
    endpoint_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Keep the tables on this S3 server instead of the embedded one."
        ),
    ] = None,
    auto_create: Annotated[
        bool,
        typer.Option(
            help="The first file under ingest/<table>/ creates the table; as the parameter AutoCreate of "
            "the template, off unless said."
        ),
    ] = False,
    speed: Annotated[
        float,
        typer.Option(
            min=1,
            help="Run schedules this many times as often, each no sooner than its last run has ended. "
            "What they do takes as long as ever, and days (grace, expiry), the quarter of an hour after "
            "which a landed file counts as lost, batching windows and retries keep their length.",
        ),
    ] = 1.0,
    port: Annotated[int, typer.Option(help="Of S3 and SQS; 0 takes a free one.")] = 4566,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Where S3 and SQS listen. 0.0.0.0 lets containers reach them (`make sam-local`), and "
            "whoever is on this machine's networks: they ask for no credentials.",
        ),
    ] = "127.0.0.1",
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Keep what S3 holds in this directory; else it is gone afterwards.",
        ),
    ] = None,
    latency_ms: Annotated[
        float, typer.Option(min=0, help="Make each S3 request take so much longer.")
    ] = 0.0,
    processes: Annotated[int, typer.Option(min=1, help="Processes of each function.")] = 2,
    grace_days: Annotated[
        int, typer.Option(min=0, help="Days that garbage collection keeps unused objects.")
    ] = 7,
) -> None:
    """Start everything, print where it is, and keep it running until Ctrl-C."""
    # Imported here: it brings moto, which the other commands do not need.
    from inlay.local.stack import LocalOptions, LocalStack

    options = LocalOptions(
        parameters={
            "AutoCreate": "true" if auto_create else "false",
            "GraceDays": str(grace_days),
        },
        endpoint_url=endpoint_url,
        processes=processes,
        schedule_speed=speed,
        port=port,
        host=host,
        data_dir=data_dir,
        latency_ms=latency_ms,
    )
    console = Console()
    stopped = _stopped_by_signals()
    with console.status("starting"):
        stack = LocalStack(options).start()
    try:
        _say_where(console, stack, Path(options.home), auto_create=auto_create)
        kept = "is gone then" if data_dir is None else f"stays in {data_dir.resolve()}"
        holds = f"; what the embedded S3 holds {kept}" if endpoint_url is None else ""
        console.print(f"\nCtrl-C stops it{holds}.", soft_wrap=True)
        queues = {name: stack.queue_url(name) for name in stack.dead_letter_queues()}

        def say(what: str) -> None:
            console.print(what, markup=False, highlight=False, soft_wrap=True)

        with LetterWatch(stack.sqs, queues, say):
            stopped.wait()
    finally:
        stack.stop(lambda part: console.print(f"stopping {part}"))


def _stopped_by_signals() -> threading.Event:
    stopped = threading.Event()

    def stop(number: int, frame: object) -> None:
        stopped.set()
        signal.signal(number, signal.SIG_DFL)  # a second one waits for nothing

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return stopped


def _say_where(console: Console, stack: LocalStack, home: Path, *, auto_create: bool) -> None:
    """Where what runs is, and what another terminal has to export."""
    from inlay.local.s3server import LOG_PATH

    table = Table(show_header=False, box=None)
    table.add_row("S3", stack.endpoint_url)
    table.add_row("SQS", stack.sqs_endpoint_url)
    table.add_row("drop files at", f"s3://{stack.bucket}/ingest/<table>/")
    if not auto_create:
        table.add_row("", "a table is created first: inlay create …, or start with --auto-create")
    table.add_row("tables are at", f"s3://{stack.bucket}/tables/<table>")
    table.add_row("delete queue", stack.queue_url("DeleteQueue"))
    table.add_row("erase queue", stack.queue_url("EraseQueue"))
    for queue in stack.dead_letter_queues():
        table.add_row("dead letters", stack.queue_url(queue))
    table.add_row("requests seen", f"{stack.sqs_endpoint_url}{LOG_PATH}")
    table.add_row("logs", f"{home.resolve()}/<function>.log")
    console.print(table)
    console.print("\nIn another terminal:")
    for name, value in stack.environment.items():
        console.print(f"  export {name}={value}", highlight=False, soft_wrap=True)
    console.print(
        f"\nand then, say:\n  inlay history s3://{stack.bucket}/tables/<table>",
        highlight=False,
        soft_wrap=True,
    )


app.command(cls=Verb)(demo)


def run(arguments: Sequence[str]) -> None:
    """Run `inlay local …`. What S3 or SQS would not do is raised as an InlayError."""
    try:
        app(list(arguments), prog_name="inlay local")
    except (BotoCoreError, ClientError) as error:
        raise StoreUnavailable(
            f"the S3 server refuses a request: {error}",
            next_step="Check that it runs at the --endpoint-url, and the credentials",
        ) from error

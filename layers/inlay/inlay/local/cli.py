"""`inlay local …`: the local AWS from the command line."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from inlay.cli.command import Verb, Verbs
from inlay.errors import StoreUnavailable
from inlay.local.demo.command import demo

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
        float, typer.Option(min=1, help="Run schedules this many times as often.")
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
    from inlay.local.aws_app import LOG_PATH
    from inlay.local.letter_watch import LetterWatch
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
    stopped = threading.Event()

    def stop(number: int, frame: object) -> None:
        stopped.set()
        signal.signal(number, signal.SIG_DFL)  # a second one waits for nothing

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with console.status("starting"):
        stack = LocalStack(options).start()
    try:
        table = Table(show_header=False, box=None)
        table.add_row("S3", stack.endpoint_url)
        table.add_row("SQS", stack.sqs_endpoint_url)
        table.add_row("drop files at", f"s3://{stack.bucket}/ingest/<table>/")
        if not auto_create:
            table.add_row(
                "", "a table is created first: inlay create …, or start with --auto-create"
            )
        table.add_row("tables are at", f"s3://{stack.bucket}/tables/<table>")
        table.add_row("delete queue", stack.queue_url("DeleteQueue"))
        table.add_row("erase queue", stack.queue_url("EraseQueue"))
        for queue in stack.dead_letter_queues():
            table.add_row("dead letters", stack.queue_url(queue))
        table.add_row("what was asked", f"{stack.sqs_endpoint_url}{LOG_PATH}")
        table.add_row("logs", f"{Path(options.home).resolve()}/<function>.log")
        console.print(table)
        console.print("\nIn another terminal:")
        for name, value in stack.environment.items():
            console.print(f"  export {name}={value}", highlight=False, soft_wrap=True)
        console.print(
            f"\nand then, say:\n  inlay history s3://{stack.bucket}/tables/<table>",
            highlight=False,
            soft_wrap=True,
        )
        kept = "is gone then" if data_dir is None else f"stays in {data_dir.resolve()}"
        if endpoint_url is None:
            console.print(f"\nCtrl-C stops it; what the embedded S3 holds {kept}.", soft_wrap=True)
        else:
            console.print("\nCtrl-C stops it.")
        queues = {name: stack.queue_url(name) for name in stack.dead_letter_queues()}

        def say(what: str) -> None:
            console.print(what, markup=False, highlight=False, soft_wrap=True)

        with LetterWatch(stack.sqs, queues, say):
            stopped.wait()
    finally:
        stack.stop(lambda part: console.print(f"stopping {part}"))


app.command(cls=Verb)(demo)


def run(arguments: Sequence[str]) -> None:
    """Run `inlay local …`. What S3 or SQS would not do is raised as an InlayError."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        app(list(arguments), prog_name="inlay local")
    except (BotoCoreError, ClientError) as error:
        raise StoreUnavailable(
            f"the S3 server does not do as asked: {error}",
            next_step="Check that it runs at the --endpoint-url, and the credentials",
        ) from error

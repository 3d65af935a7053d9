"""`inlay local …`: the local AWS, loaded only when it is asked for.

Promise: the other commands work without the `local` extra; without it, this one says how to install it.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from inlay.cli.command import app
from inlay.cli.failures import failing_well
from inlay.errors import InvalidRequest

# Everything after `local` belongs to the other tree, --help included.
_PASS_ON = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
    "allow_interspersed_args": False,
}


@app.command(
    name="local",
    context_settings=_PASS_ON,
    rich_help_panel="Try it",
    epilog="[bold]Examples[/bold]\n  inlay local demo\n  inlay local up",
)
def local(
    context: typer.Context,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="up|demo …")] = None,
) -> None:
    """Run S3, SQS and the functions on this machine: `up` to try things, `demo` to watch."""
    with failing_well(as_json=False):
        try:
            from inlay.local.cli import run

            if not {"--help", "-h"} & set(arguments or ["--help"]):
                check_extra()
            run(arguments or ["--help"])
        except ModuleNotFoundError as error:
            raise missing(error) from error


def check_extra() -> None:
    """Raises `ModuleNotFoundError` for a package that only the processes import that are started."""
    for name in ("moto", "awslambdaric", "duckdb", "yaml", "aws_lambda_powertools"):
        if name not in sys.modules and find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def missing(error: ModuleNotFoundError) -> InvalidRequest:
    """The error for a missing package of the extra; a missing module of Inlay itself is a bug."""
    if (error.name or "").partition(".")[0] == "inlay":
        raise error
    return InvalidRequest(
        f"`inlay local` needs {error.name}, which is not installed in {sys.prefix}",
        next_step="pip install 'inlay-tables[local]'",
    )

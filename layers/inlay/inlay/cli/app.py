"""The command tree: which verbs there are, in the order in which `inlay --help` shows them."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from inlay.cli import (
    checking,
    columns,
    comparing,
    deployment,
    doctor,
    erasing,
    inspecting,
    local,
    maintenance,
    pricing,
    reading,
    refs,
    serving,
    transactions,
    writing,
)
from inlay.cli.command import app, reflowed

__all__ = ["app", "keep"]


def _print_version(asked: bool) -> None:
    if asked:
        from inlay import __version__

        typer.echo(__version__)
        raise typer.Exit


_HELP = """Mutable columnar tables on plain S3.

TABLE is where the table is: s3://bucket/tables/name, gs://bucket/name, az://container/name, file:///path
or a local path. Settings come from the standard environment of each: for S3 AWS_ENDPOINT_URL_S3, region,
credentials.
"""


@app.callback(help=reflowed(_HELP))
def inlay(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """The options before the verb."""


# zsh loads the script on the first Tab, as the function that is to complete; Typer's only defines one, so
# that the first Tab of every session did nothing.
_ZSH = """
if [[ ${funcstack[1]} = _%(prog_name)s ]]; then %(complete_func)s "$@"; fi
"""
with suppress(ImportError, AttributeError, KeyError):
    from typer import _completion_shared

    _completion_shared._completion_scripts["zsh"] += _ZSH


# Each module of verbs as it comes in `inlay --help`.
_ORDER = [
    module.__name__
    for module in (
        writing,
        transactions,
        columns,
        reading,
        refs,
        inspecting,
        erasing,
        comparing,
        pricing,
        maintenance,
        deployment,
        doctor,
        checking,
        serving,
        local,
    )
]
app.registered_commands.sort(key=lambda command: _ORDER.index(str(command.callback.__module__)))


def keep(name: str) -> None:
    """Leaves this command alone, if there is one of that name: Typer makes all that it has before it runs
    one, which takes longer than reading a pointer."""
    named = [command for command in app.registered_commands if command.name == name]
    app.registered_commands = named or app.registered_commands

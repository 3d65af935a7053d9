"""How a function becomes a command: with examples in its help, and with errors that help."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from inlay.cli.failures import failing_well


@dataclass(frozen=True, slots=True)
class Example:
    """A command line that works, and what it is for."""

    command: str
    about: str


class Verb(TyperCommand):
    """A command whose help does not mention Python's types."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [_plain(parameter) for parameter in super().get_params(ctx)]


# What other tools call it, and what to type here.
MEANT = {
    **dict.fromkeys(("ls", "list"), "tables PLACE"),
    **dict.fromkeys(("head", "cat", "select", "query", "sql", "export", "read"), "scan TABLE"),
    **dict.fromkeys(("insert", "load", "import", "write"), "append TABLE FILE"),
    **dict.fromkeys(("describe", "info", "stat"), "show TABLE"),
    **dict.fromkeys(("log", "snapshots", "versions"), "history TABLE"),
    **dict.fromkeys(("rollback", "revert", "undo"), "restore TABLE --version N"),
    **dict.fromkeys(("vacuum", "clean"), "gc TABLE"),
    "optimize": "compact TABLE",
    **dict.fromkeys(("rm", "remove"), "drop TABLE"),
    "undrop": "repair TABLE",
    **dict.fromkeys(("erase", "forget", "purge"), "delete TABLE --where CONDITION --mode erase"),
    **dict.fromkeys(("cp", "mv", "move", "backup"), "copy TABLE --into PLACE"),
    **dict.fromkeys(("rename", "add-column", "drop-column"), "alter TABLE"),
    "fsck": "verify TABLE",
    "replace": "overwrite TABLE FILE",
}


class Verbs(TyperGroup):
    """The same of the options before the verb."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in MEANT and args[0] not in self.commands:
            ctx.fail(f"No such command {args[0]!r}. It is: inlay {MEANT[args[0]]}")
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        return [_plain(parameter) for parameter in super().get_params(ctx)]


app = typer.Typer(
    name="inlay",
    no_args_is_help=True,
    rich_markup_mode="rich",
    # A traceback is for bugs; an InlayError never shows one.
    pretty_exceptions_enable=False,
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def verb(
    panel: str, *examples: Example, name: str | None = None, hidden: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a function as a command. Its docstring is the help; `examples` end it."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**options: Any) -> None:
            with failing_well(as_json=bool(options.get("as_json")), arguments=options):
                function(**options)

        app.command(
            name=name or function.__name__.replace("_", "-"),
            help=reflowed(function.__doc__ or ""),
            epilog=_examples(examples),
            rich_help_panel=panel,
            hidden=hidden,
            cls=Verb,
        )(run)
        return function

    return register


def _plain(parameter: Any) -> Any:
    if parameter.param_type_name == "argument":
        parameter.display_type = lambda ctx: None
    elif getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    elif parameter.metavar is None:
        number = parameter.type_descriptor.annotation in (int, float)
        parameter.metavar = "N" if number else "NAME"
    return parameter


def reflowed(doc: str) -> str:
    """A docstring with each paragraph on one line: the terminal breaks it."""
    return "\n\n".join(
        " ".join(paragraph.split()) for paragraph in inspect.cleandoc(doc).split("\n\n")
    )


def _examples(examples: tuple[Example, ...]) -> str:
    lines = [
        f"  [dim]# {escape(example.about)}[/dim]\n  {escape('inlay ' + example.command)}"
        for example in examples
    ]
    return "[bold]Examples[/bold]\n" + "\n".join(lines)

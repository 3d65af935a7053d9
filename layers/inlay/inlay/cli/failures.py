"""Errors on the command line.

Promise: an InlayError becomes a few red lines on stderr, or one JSON object with `--json`, and an exit
code by its kind; never a traceback.

===== =======================================================================================
code  meaning
===== =======================================================================================
2     the input is wrong: the message says what to change
75    try again later, or look what has changed and try again (EX_TEMPFAIL)
70    an operator should look: store, metadata, clocks or permissions are wrong (EX_SOFTWARE)
===== =======================================================================================
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

import typer
from rich.console import Console
from rich.text import Text

from inlay.errors import ErrorKind, InlayError, InvalidPredicate, InvalidRequest

EXIT_CODES = {ErrorKind.INPUT: 2, ErrorKind.RETRY: 75, ErrorKind.REBASE: 75, ErrorKind.PAGE: 70}


@contextmanager
def failing_well(*, as_json: bool, arguments: Iterable[str] = ()) -> Iterator[None]:
    """Turn an InlayError into what a person or a program can use, and an exit. `arguments` are the
    command's own, as the library calls them."""
    try:
        with _printing():
            yield
    except InlayError as error:
        error.message = _as_options(error.message, arguments)
        error.next_step = _as_options(error.next_step, arguments)
        if as_json:
            print(json.dumps(error.fields(), ensure_ascii=False), file=sys.stderr)
        else:
            Console(stderr=True, highlight=False).print(error_text(error), soft_wrap=True)
        raise typer.Exit(EXIT_CODES[error.kind]) from None


@contextmanager
def ending_well() -> Iterator[None]:
    """Around the whole command line: what no verb prints, such as help, fails well too, and the library's
    warnings are lines of words."""
    warnings.showwarning = _note
    try:
        with failing_well(as_json=False):
            try:
                yield
            finally:
                sys.stdout.flush()
    except BrokenPipeError:
        _give_up(sys.stdout)
        sys.exit(1)
    except typer.Exit as done:
        sys.exit(done.exit_code)


@contextmanager
def _printing() -> Iterator[None]:
    """What the stores raise is typed: an OSError names the file or program that a verb opens, or
    is of what was printed. A reader that went away (a pipe to `head`) is not an error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:
            raise InvalidRequest(
                f"cannot open {error.filename}: {error.strerror}",
                next_step="Check that it is there, and that you may read or run it",
            ) from error
        _give_up(sys.stdout)
        raise InvalidRequest(
            f"cannot write the output: {error.strerror or error}",
            next_step="Check the space left, or write elsewhere",
        ) from error


def _note(message: Warning | str, *_place: object, **_more: object) -> None:
    text = Text("note:  ", "bold").append(str(message), "not bold")
    Console(stderr=True, highlight=False).print(text, soft_wrap=True)


def _give_up(stream: TextIO) -> None:
    """What is buffered is not tried again at the end of the process."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def error_text(error: InlayError) -> Text:
    """The message, the place in the text it is about, and the next step."""
    text = Text()
    text.append("error: ", "bold red")
    text.append(error.message, "red")
    about = [
        f"{name} {value}"
        for name, value in (
            ("table", error.table),
            ("object", error.key),
            ("version", error.version),
        )
        if value is not None and str(value) not in error.message
    ]
    if about:
        text.append(f" ({', '.join(about)})", "red")
    if isinstance(error, InvalidPredicate) and error.text and error.position is not None:
        line, caret = str(error).rsplit("\n", 2)[1:]
        text.append(f"\n{line}\n")
        text.append(caret, "bold red")
    if error.next_step:
        text.append("\nnext:  ", "bold")
        text.append(error.next_step)
    return text


def _as_options(text: str, arguments: Iterable[str]) -> str:
    """The library names arguments, `where=`; what was typed is `--where`."""
    for name in arguments:
        option = f"--{name.replace('_', '-')}"
        text = re.sub(rf"(?<![\w.\"'-]){name}=[\"']([\w-]+)[\"']", rf"{option} \1", text)
        text = re.sub(rf"(?<![\w.\"'-]){name}=(?![\w=])", option, text)
    return text

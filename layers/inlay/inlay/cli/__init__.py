"""The command line `inlay`: the library's verbs, for people and (`--json`) for programs.

Promise: what a command says to a program is on stdout and nothing else is; problems are on stderr with
the next step, and the exit code tells who has to act (`inlay.cli.failures`). Commands load what they
need when they run, so that `inlay --help` answers at once.
"""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """The entry point."""
    try:
        _run()
    except KeyboardInterrupt:  # before a verb begins, while its modules are loaded
        sys.exit(130)


def _run() -> None:
    try:
        from inlay.cli.app import app
        from inlay.cli.failures import ending_well
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        sys.exit("The command line needs two more packages: pip install 'inlay-tables[cli]'")
    # A stream that the shell closed (>&-) is None.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        _speak_unicode(stream)
    with ending_well():
        app()


def _speak_unicode(stream: object) -> None:
    """Under LC_ALL=C a stream may take ASCII only. What programs read is UTF-8 then, never changed; a
    terminal is shown question marks instead of a traceback."""
    if not isinstance(stream, io.TextIOWrapper):
        return
    try:
        "·…█é".encode(stream.encoding)
    except UnicodeEncodeError:
        if stream.isatty():
            stream.reconfigure(errors="replace")
        else:
            stream.reconfigure(encoding="utf-8")

"""The command line `inlay`: the library's verbs, for people and (`--json`) for programs.

Promise: what a command says to a program is on stdout and nothing else is; problems are on stderr with
the next step, and the exit code says who has to act (`inlay.cli.failures`). Commands load what they
need when they run, so that `inlay --help` answers at once.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import traceback
from contextlib import suppress
from typing import NoReturn


def main() -> NoReturn:
    """The entry point. It ends the process itself: while an interpreter is torn down, a thread of Arrow's
    that still holds something of Python's aborts the process, after the work and with another exit code."""
    code: object = 0
    try:
        _run()
    except KeyboardInterrupt:  # before a verb begins, while its modules are loaded
        code = 130
    except SystemExit as done:
        code = done.code or 0
    except Exception:
        traceback.print_exc()
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _run() -> None:
    try:
        from inlay.cli.app import app, keep
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
    keep("".join(sys.argv[1:2]))
    with ending_well():
        app(prog_name="inlay")  # of `python -m inlay`, too: completion is for this name


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

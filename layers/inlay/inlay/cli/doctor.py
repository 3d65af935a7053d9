"""`inlay doctor`: what is wrong with a deployment, and the command that mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from inlay.cli.command import Example, verb
from inlay.cli.failures import EXIT_CODES
from inlay.cli.options import AsJson
from inlay.cli.output import console, print_record
from inlay.cli.values import counted
from inlay.errors import ErrorKind

if TYPE_CHECKING:
    from inlay.doctor.finding import Examined

PANEL = "Operate"
_STYLES = {"error": "bold red", "unknown": "bold yellow", "warning": "yellow"}


@verb(
    PANEL,
    Example("doctor inlay", "the stack of that name, and its bucket"),
    Example("doctor s3://my-lake --prefix lake/ --json", "a bucket alone, for a program"),
)
def doctor(
    target: Annotated[
        str,
        typer.Argument(metavar="STACK|BUCKET", help="The stack's name, or a bucket's (s3://NAME)."),
    ],
    prefix: Annotated[
        str,
        typer.Option("--prefix", help="Where tables/ is in a bucket that is named alone."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Examine a deployment: what is wrong, and the command that mends it.

    Looks at rights, versions, lifecycle, encryption, object lock, notifications, clocks, region,
    concurrency, schedules, dead letters, alarms and metrics. Reads only. Ends with code 70 when there are
    errors, or checks that it may not make; warnings end with 0.
    """
    from inlay.doctor.examine import examine_here

    examined = examine_here(target, prefix=prefix and f"{prefix.strip('/')}/")
    if as_json:
        print_record(_record(examined), as_json=True)
    else:
        _show(examined)
    if not examined.ok:
        raise typer.Exit(EXIT_CODES[ErrorKind.PAGE])


def _record(examined: Examined) -> dict[str, Any]:
    return {
        "ok": examined.ok,
        "target": examined.target,
        "stack": examined.stack,
        "bucket": examined.bucket,
        "sound": list(examined.sound),
        "findings": [
            {"check": f.check, "severity": f.severity.value, "what": f.what, "mend": f.mend}
            for f in examined.findings
        ],
    }


def _show(examined: Examined) -> None:
    for finding in examined.findings:
        severity = finding.severity.value
        line = Text(severity.ljust(8), _STYLES[severity])
        line.append(f"{finding.check}  ", "bold").append(finding.what)
        console().print(line, soft_wrap=True)
        console().print(Text(f"        mend: {finding.mend}", "dim"), soft_wrap=True)
    sound = ", ".join(examined.sound) or "nothing"
    console().print(f"{counted(len(examined.findings), 'finding')}; sound: {sound}", soft_wrap=True)

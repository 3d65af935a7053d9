"""Verbs that look for damage and mend it: verify and repair. They open tables that nothing else can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from inlay.cli.command import Example, verb
from inlay.cli.failures import EXIT_CODES
from inlay.cli.options import AsJson, TableUri
from inlay.cli.output import console, plain, print_record
from inlay.cli.tables import connected
from inlay.cli.values import counted, size_text
from inlay.errors import ErrorKind

if TYPE_CHECKING:
    from inlay import Finding, Repaired, Verified

PANEL = "Maintain"
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


@verb(
    PANEL,
    Example("verify ./people", "metadata, footers and delete markers"),
    Example("verify ./people --depth pages --json", "every row, for a program"),
)
def verify(
    table: TableUri,
    depth: Annotated[
        str,
        typer.Option(
            "--depth",
            help="metadata (and a listing), footers (of files and delete markers) or pages (all rows).",
        ),
    ] = "footers",
    max_versions: Annotated[
        int, typer.Option("--max-versions", min=1, help="Look at the newest so many versions.")
    ] = 10_000,
    as_json: AsJson = False,
) -> None:
    """Check a whole table: pointer, archives, segments, files, statistics, delete markers, orphans.

    Says of each object what is wrong and what to do. Reads only. Ends with code 70 when there are
    errors; warnings and notes end with 0.
    """
    import inlay

    with connected(table) as context:
        result = inlay.verify(table, depth=depth, max_versions=max_versions, context=context)
    if as_json:
        findings = [_facts(f) for f in result.findings]
        print_record({"ok": result.ok, **plain(result), "findings": findings}, as_json=True)
    else:
        _print_verified(table, result)
    if not result.ok:
        raise typer.Exit(EXIT_CODES[ErrorKind.PAGE])


@verb(
    PANEL,
    Example("repair ./people", "what would be mended, and what would be lost"),
    Example("repair ./people --apply", "mend it"),
)
def repair(
    table: TableUri,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write. Without it nothing is written: a dry run.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Mend what can be mended safely: a lost or damaged pointer, archives, totals, dangling markers.

    Says first what would be done and what would be lost; `--apply` does it. Deletes nothing. Ends with
    code 70 when errors are left that it cannot mend.
    """
    import inlay

    with connected(table) as context:
        result = inlay.repair(table, dry_run=not apply, context=context)
    if as_json:
        refused = [_facts(f) for f in result.refused]
        print_record({"ok": result.ok, **plain(result), "refused": refused}, as_json=True)
    else:
        _print_repaired(table, result)
    if not result.ok:
        raise typer.Exit(EXIT_CODES[ErrorKind.PAGE])


def _facts(finding: Finding) -> dict[str, Any]:
    return {
        "severity": finding.severity.value,
        "kind": finding.kind,
        "key": finding.key,
        "message": finding.message,
        "next_step": finding.next_step,
    }


def _print_verified(table: str, result: Verified) -> None:
    out = console()
    _print_findings(result.findings)
    looked = [
        counted(result.versions, "version"),
        counted(result.segments, "segment"),
        f"{counted(result.files, 'file')} of {size_text(result.bytes)}",
        counted(result.markers, "delete marker"),
    ]
    if result.version:
        head = f"{table} at version {result.version}: looked at {', '.join(looked)}, depth {result.depth}"
        out.print(Text(head), soft_wrap=True)
    errors = sum(n for kind, n in result.counts.items() if kind in {f.kind for f in result.errors})
    out.print(
        Text(f"{counted(errors, 'error')}", "bold red")
        if errors
        else Text("no errors", "bold green")
    )


def _print_repaired(table: str, result: Repaired) -> None:
    out = console()
    verb = "would" if result.dry_run else "did"
    for mend in result.mends:
        out.print(Text(f"{verb} {mend.what}"), soft_wrap=True)
        out.print(Text(f"      for {mend.kind} of {mend.key}", "dim"), soft_wrap=True)
        if mend.lost:
            out.print(Text(f"lost  {mend.lost}", "yellow"), soft_wrap=True)
    _print_findings(result.refused)
    if not result.mends and not result.refused:
        out.print(Text(f"{table}: nothing to mend"))
    elif result.mends and result.dry_run:
        out.print(Text("nothing was written: repeat with --apply"))
    elif result.mends:
        out.print(Text(f"{table} is at version {result.version}"))


def _print_findings(findings: tuple[Finding, ...]) -> None:
    out = console()
    for finding in findings:
        line = Text(finding.severity.value.ljust(8), _STYLES[finding.severity.value])
        line.append(f"{finding.kind}  ", "bold")
        line.append(f"{finding.key}: {finding.message}" if finding.key else finding.message)
        out.print(line, soft_wrap=True)
        out.print(Text(f"        next: {finding.next_step}", "dim"), soft_wrap=True)

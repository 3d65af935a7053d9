"""Verbs about erasures: erase-status, receipt, erasures.

A receipt is shown on one page, as text or HTML, from its own members and the chain it is in: for the person
who asked and the officer who answers. It has nothing of another request, because the receipt has not.
"""

from __future__ import annotations

import csv
import html
import os
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlay.cli.command import Example, verb
from inlay.cli.options import AsJson, Param, TableUri, bound_values
from inlay.cli.output import console, plain, print_lines, print_record
from inlay.cli.tables import opened
from inlay.cli.values import counted, size_text, time_text
from inlay.errors import InvalidRequest

if TYPE_CHECKING:
    from inlay import ReceiptCheck

PANEL = "Look"
# Of an erasure: a person reads the first, a program gets all.
_WAITING_SHOWN = 20
_DAY_US = 86_400 * 1_000_000


@verb(
    PANEL,
    Example("erase-status ./people", "what is still being erased"),
    Example("erase-status ./people --verify case-7", "whether a receipt still holds"),
    Example(
        'erase-status ./people --verify case-7 --where "id = 7" --public-key inlay.pem',
        "the same, looked for again, and the signature checked",
    ),
)
def erase_status(
    table: TableUri,
    verify: Annotated[
        str | None,
        typer.Option(
            "--verify",
            metavar="RECEIPT",
            help="Hold a receipt to the bucket instead: the erasure's id, or the receipt's key.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help="With --verify: what was to be erased. It is compared with the receipt, and looked for "
            "again in everything that is there now.",
        ),
    ] = None,
    param: Param = None,
    as_asked: Annotated[
        str | None,
        typer.Option(
            "--as-asked",
            metavar="CONDITION",
            help="With --where: its text as `inlay erase-status` showed it, if a column was renamed since.",
        ),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            metavar="FILE",
            help="With --where: the HMAC key of the receipts (else INLAY_ERASURE_KEY).",
        ),
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option(
            "--public-key",
            metavar="FILE",
            help="With --verify: the public key, in PEM, that the receipts have to be signed with.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the erasures that are under way: their phase, and what each waits for.

    An erasure ends with a receipt under erasure/ in the table; then it is no longer listed. `inlay
    rewrite` and `inlay gc` take it on, as the functions do on their schedules.
    """
    if verify is not None:
        if where is None and (param is not None or as_asked is not None):
            option = "--as-asked" if param is None else "--param"
            raise InvalidRequest(f"{option} needs --where", next_step="Add the condition")
        _verify_receipt(table, verify, where, param, as_asked, key_file, public_key, as_json)
        return
    if where is not None or param is not None or public_key is not None:
        raise InvalidRequest(
            "--where, --param and --public-key are for checking a receipt",
            next_step="Name it: --verify ID",
        )
    with opened(table) as t:
        open_, now_us = t.inspect.erasures(), t.read_us
    if as_json:
        print_lines(
            {
                **plain(erasure),
                "opened": time_text(erasure.opened_us),
                "open_days": round((now_us - erasure.opened_us) / _DAY_US, 2),
            }
            for erasure in open_
        )
        return
    out = console()
    out.print(f"{counted(len(open_), 'erasure')} under way")
    for erasure in open_:
        out.print()
        facts = {
            "id": erasure.id,
            "phase": erasure.phase,
            "where": erasure.text or "forgotten: no file holds such a row",
            "opened": f"{time_text(erasure.opened_us)}, version {erasure.opened_version}",
            "open for": f"{(now_us - erasure.opened_us) / _DAY_US:.1f} days",
            "so far": f"{counted(erasure.objects, 'object')} rewritten, "
            f"{counted(erasure.rows, 'row')} removed",
        }
        kinds = Counter(w.what for w in erasure.waiting)
        if kinds:
            facts["waits for"] = ", ".join(f"{count:,} of {kind}" for kind, count in kinds.items())
        print_record(facts, as_json=False)
        for w in erasure.waiting[:_WAITING_SHOWN]:
            out.print(f"  {w.what}  {w.name}: {w.reason}", markup=False, soft_wrap=True)
        if (more := len(erasure.waiting) - _WAITING_SHOWN) > 0:
            out.print(f"  and {more:,} more: --json has all", markup=False)


def _verify_receipt(
    table: str,
    name: str,
    where: str | None,
    param: list[str] | None,
    as_asked: str | None,
    key_file: Path | None,
    public_key: Path | None,
    as_json: bool,
) -> None:
    """Ends with 1 when the bucket contradicts the receipt."""
    given = os.environ.get("INLAY_ERASURE_KEY")
    key = key_file.read_bytes().rstrip(b"\r\n") if key_file else given.encode() if given else None
    with opened(table) as there:
        checked = there.inspect.check_receipt(
            name,
            where,
            params=bound_values(param, where),
            as_asked=as_asked,
            key=key,
            public_key=None if public_key is None else public_key.read_bytes(),
        )
    if as_json:
        print_lines([plain(checked)])
    else:
        place = (
            "none: from before receipts had numbers" if checked.number is None else checked.number
        )
        facts = {
            "receipt": checked.id,
            "number": place,
            "signed": checked.signed,
            "objects deleted": f"{counted(checked.still_gone, 'version')}, still gone",
            "objects left": f"{checked.unchanged:,} unchanged, {checked.deleted_since:,} deleted since",
            "newer objects": counted(checked.came_since, "version"),
        }
        if checked.rows is not None:
            facts["rows now"] = f"{checked.rows:,} that the condition selects"
        print_record(facts, as_json=False)
        out = console()
        for line in checked.named:
            out.print(f"  {line}", markup=False, highlight=False)
        for problem in checked.problems:
            out.print(f"! {problem}", markup=False, highlight=False)
        verdict = (
            "the bucket contradicts this receipt" if checked.problems else "nothing contradicts it"
        )
        out.print(verdict, markup=False, highlight=False)
    if checked.problems:
        raise typer.Exit(1)


def _rows_with(columns: list[Any] | None) -> dict[str, str]:
    """What the search of all columns of text found, where it was asked for."""
    if columns is None:
        return {}
    shown = [f"{rows:,} in {column} ({counted(files, 'file')})" for column, rows, files in columns]
    return {"the texts, in rows": "; ".join(shown) or "nowhere in this table"}


def _day(time_us: int) -> str:
    return f"{datetime.fromtimestamp(time_us // 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


# -- one receipt ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    facts: Mapping[str, str]
    lines: tuple[str, ...] = ()


@verb(
    PANEL,
    Example("receipt ./people case-7", "what was erased, when, what is left and why"),
    Example("receipt ./people case-7 --html case-7.html", "the same as a page to hand over"),
)
def receipt(
    table: TableUri,
    name: Annotated[str, typer.Argument(metavar="ID", help="The erasure's id.")],
    page: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write it as a page that needs nothing else."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the receipt of an erasure on one page, for the person who asked or the officer who answers.

    Only what the receipt itself says, and its place in the chain; `inlay erase-status --verify` checks it.
    """
    with opened(table) as t:
        body = t.inspect.receipt(name)
        check = t.inspect.check_receipt(name)
    if as_json:
        print_lines([body])
    elif page is not None:
        page.write_text(_as_html(f"Receipt of erasure {body['id']}", _sections(body, check)))
        console().print(f"wrote {page}", markup=False)
    else:
        out = console()
        for section in _sections(body, check):
            out.print(f"\n{section.title}", style="bold", markup=False)
            print_record({f"  {k}": v for k, v in section.facts.items()}, as_json=False)
            for line in section.lines:
                out.print(f"  {line}", markup=False, soft_wrap=True)


def _sections(body: Mapping[str, Any], check: ReceiptCheck) -> list[_Section]:
    look = body["look"]
    digest = body["predicate_hmac_sha256"]
    asked = {
        "request": body["id"],
        "table": f"{body['table']} (its id)",
        "what": "the rows that a condition selects, and its values beside rows"
        + (f"; the condition is on {', '.join(look['columns'])}" if look else ""),
        "digest": "none: no HMAC key was set"
        if digest is None
        else f"{digest} (HMAC-SHA256, key {body.get('predicate_key') or 'unknown'})",
    }
    when = {
        "asked": f"{_day(body['opened_us'])}: from then on no reader saw the rows",
        "last byte gone": f"{_day(body['ended_us'])}, "
        f"{timedelta(seconds=(body['ended_us'] - body['opened_us']) // 1_000_000)} later",
    }
    went = {
        "rows": f"{body['removed_rows']:,}, from {counted(body['rewritten_objects'], 'object')}",
        "objects deleted": f"{body['deleted_objects']:,} (of all that the step served)",
        "older versions": f"those before version {body['oldest_version']} have ended",
    }
    looked = (
        {}
        if look is None
        else {
            "files": f"{look['files']:,}: {look['judged_by_rows']:,} by their rows, "
            f"{look['judged_by_own_bounds']:,} by bounds that Inlay wrote, {look['newer']:,} newer",
            "when": _day(look["looked_us"]),
            "not searched": f"{look['unsearched']:,}",
            **_rows_with(look.get("rows_with")),
            "cost": f"{counted(look['requests'], 'request')}, {size_text(look['bytes'])}",
        }
    )
    number = "none: from before receipts were numbered" if check.number is None else check.number
    proof = {
        "number": f"{number}",
        "signed": check.signed,
        "check it": f"inlay erase-status TABLE --verify {body['id']} --where CONDITION "
        "--key-file HMAC.key --public-key PUBLIC.pem",
    }
    stays = tuple(check.named) or ("nothing that this receipt would have to name",)
    problems = tuple(f"! {problem}" for problem in check.problems)
    return [
        _Section("What was asked", asked),
        _Section("When", when),
        _Section("What was looked at", looked),
        _Section("What went", went),
        _Section("What is left, or out of reach, and why", {}, stays),
        _Section("Who vouches for it, and how to check", proof, problems),
    ]


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}
body{color:#1b1f24;background:#fff}
h1{font-size:1.5rem;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:1.6rem 0 .4rem;border-bottom:1px solid #d0d7de}
dl{display:grid;grid-template-columns:9rem 1fr;gap:.2rem 1rem;margin:0}
dt{color:#57606a}
dd,li{margin:0;overflow-wrap:anywhere}
ul{margin:.2rem 0;padding-left:1.2rem}
@media print{body{margin:0}}
@media (prefers-color-scheme:dark){
body{color:#e6edf3;background:#0d1117}dt{color:#8b949e}h2{border-color:#30363d}}
"""


def _as_html(title: str, sections: list[_Section]) -> str:
    """A page without script; nothing in it is taken for markup."""
    parts = []
    for section in sections:
        facts = "".join(
            f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in section.facts.items()
        )
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in section.lines)
        parts.append(
            f"<h2>{html.escape(section.title)}</h2>"
            + (f"<dl>{facts}</dl>" if facts else "")
            + (f"<ul>{lines}</ul>" if lines else "")
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{html.escape(title)}</h1>{''.join(parts)}</body></html>\n"
    )


# -- the register ---------------------------------------------------------------------------------

_REGISTER = ("id", "state", "opened", "due", "ended", "days", "overdue", "rows", "number")


@verb(
    PANEL,
    Example("erasures ./people", "all requests, open and ended, with their deadlines"),
    Example("erasures ./people --csv", "the register, for a spreadsheet"),
)
def erasures(
    table: TableUri,
    days: Annotated[
        int,
        typer.Option("--days", min=1, help="Until when a request has to be carried out."),
    ] = 30,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with a head.")] = False,
    as_json: AsJson = False,
) -> None:
    """List every erasure of a table: those under way, and those that have a receipt. One GET each.

    The law gives a month (GDPR, Article 12(3)); --days sets another time.
    """
    with opened(table) as t:
        now_us = t.read_us
        rows: list[dict[str, Any]] = [
            {"id": e.id, "state": e.phase, "opened_us": e.opened_us, "rows": e.rows}
            for e in t.inspect.erasures(landing="")
        ]
        receipts, unread = t.inspect.receipts()
        rows += [
            {
                "id": body["id"],
                "state": "ended",
                "opened_us": body["opened_us"],
                "ended_us": body["ended_us"],
                "rows": body["removed_rows"],
                "number": body.get("number"),
            }
            for body in receipts
        ]
    for key in unread:
        typer.echo(f"{key} is no receipt, and is not listed", err=True)
    listed = [_entry(row, now_us, days) for row in sorted(rows, key=lambda r: r["opened_us"])]
    if as_csv:
        writer = csv.DictWriter(sys.stdout, _REGISTER, lineterminator="\n")
        writer.writeheader()
        writer.writerows(listed)
    elif as_json:
        print_lines(listed)
    else:
        open_ = sum(entry["state"] != "ended" for entry in listed)
        late = sum(entry["overdue"] for entry in listed)
        out = console()
        out.print(
            f"{counted(len(listed), 'erasure')}: {open_:,} under way, {late:,} overdue",
            markup=False,
        )
        for entry in listed:
            ended = f"ended {entry['ended']}" if entry["ended"] else f"due {entry['due']}"
            mark = "! " if entry["overdue"] else "  "
            out.print(
                f"{mark}{entry['id']}  {entry['state']}  opened {entry['opened']}, {ended}",
                markup=False,
                soft_wrap=True,
            )


def _entry(row: Mapping[str, Any], now_us: int, days: int) -> dict[str, Any]:
    opened_us, ended_us = row["opened_us"], row.get("ended_us")
    due_us = opened_us + days * _DAY_US
    taken_us = (ended_us or now_us) - opened_us
    return {
        "id": row["id"],
        "state": row["state"],
        "opened": time_text(opened_us),
        "due": time_text(due_us),
        "ended": None if ended_us is None else time_text(ended_us),
        "days": round(taken_us / _DAY_US, 2),
        "overdue": (ended_us or now_us) > due_us,
        "rows": row["rows"],
        "number": row.get("number"),
    }


# -- the search before a request ------------------------------------------------------------------


@verb(
    PANEL,
    Example("subject search ./people --text ada@example.org", "every place that has her address"),
    Example(
        "subject search ./people --text ada@example.org --text 'Ada Lovelace' --ignore-case",
        "several texts in one pass",
    ),
)
def subject(
    action: Annotated[str, typer.Argument(metavar="search", help="What to do: search.")],
    table: TableUri,
    text: Annotated[
        list[str], typer.Option("--text", metavar="TEXT", help="What to look for, within texts.")
    ],
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", help="Ada finds ADA, in rows.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find every row, column and file that has a text, before or after an erasure.

    All columns of text are read once, nested ones, bytes and dropped columns too, whatever deletes hide;
    and what is beside rows: dictionaries, key-values, metadata, names.
    """
    if action != "search":
        raise InvalidRequest(
            f"inlay subject cannot {action!r}", next_step="inlay subject search TABLE …"
        )
    with opened(table) as t:
        report = t.inspect.search(text, ignore_case=ignore_case)
    if as_json:
        print_lines([{**plain(rows), "text": text[rows.text]} for rows in report.rows])
        print_lines([{"elsewhere": place.as_json} for place in report.elsewhere])
    else:
        out = console()
        out.print(
            f"{counted(report.files, 'file')} searched at version {report.version}", markup=False
        )
        for (which, column), rows in sorted(report.by_column().items()):
            files = {f.file for f in report.rows if (f.text, f.column) == (which, column)}
            out.print(
                f"{text[which]!r}: {counted(rows, 'row')} in {column}, {counted(len(files), 'file')}",
                markup=False,
                soft_wrap=True,
            )
        for place in report.elsewhere:
            out.print(f"beside rows: {' '.join(place.as_json)}", markup=False, soft_wrap=True)
        if report.is_nowhere:
            out.print("nowhere in this table", markup=False)

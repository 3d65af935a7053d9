"""Verbs that keep a table in shape: rewrite, compact, expire, gc (or collect-garbage)."""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, cast

import typer

from inlay.cli.command import Example, verb
from inlay.cli.options import AsJson, Branch, TableUri, Where
from inlay.cli.output import note, print_record, print_rows, print_run
from inlay.cli.tables import connected, opened
from inlay.cli.values import counted, size_text
from inlay.errors import InvalidRequest

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(?P<count>[0-9]{1,6})(?P<unit>[smhdw])")


def parse_duration(text: str) -> timedelta:
    """
    >>> parse_duration("7d")
    datetime.timedelta(days=7)
    >>> parse_duration("0")
    datetime.timedelta(0)
    """
    if text == "0":
        return timedelta(0)
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            f"{text[:40]!r} is not a duration", next_step="Write it as 30s, 15m, 12h, 7d, 2w or 0"
        )
    return timedelta(**{_UNITS[match["unit"]]: int(match["count"])})


PANEL = "Maintain"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
MaxBytes = Annotated[
    int | None, typer.Option("--max-bytes", min=1, help="Read at most this much; the rest is left.")
]
Deadline = Annotated[
    str | None,
    typer.Option("--deadline", metavar="DURATION", help="Begin nothing new after this long."),
]


@verb("Look", Example("tables s3://lake/tables", "their URIs"))
def tables(
    prefix: Annotated[
        str,
        typer.Argument(
            metavar="PREFIX", help="s3://bucket/prefix or a folder.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """List the tables below a prefix, folders within folders too, three levels deep."""
    import inlay

    with connected(prefix) as context:
        uris = inlay.tables(prefix, context=context)
    print_rows([{"table": uri} for uri in uris], as_json=as_json, empty="no tables")


@verb(
    PANEL,
    Example("drop ./people --dry-run", "how much would go, and when"),
    Example("drop ./people --yes", "hidden now; the same command after a week deletes it"),
    Example("drop ./people --grace 0d --yes", "at once"),
)
def drop(
    table: TableUri,
    grace: Annotated[
        str,
        typer.Option(
            "--grace", metavar="DURATION", help="How long its objects stay, and it can be repaired."
        ),
    ] = "7d",
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Drop a table: nobody can open it any more; the same command after the grace deletes its objects.

    Until then `inlay repair --apply` brings it back. A legal hold or an erasure under way refuses. Receipts
    of erasures stay, and so does every object under the prefix that is not the table's.
    """
    import inlay

    after = parse_duration(grace)
    with connected(table) as context:
        look = inlay.drop(table, grace=after, dry_run=True, context=context)
        if not dry_run and not yes:
            what = f"{counted(look.objects, 'object')}, {size_text(look.bytes)}"
            if not sys.stdin.isatty():
                raise InvalidRequest(
                    f"{table} was not dropped: {what}", next_step="Say --yes, or look by --dry-run"
                )
            typer.confirm(f"Drop {look.table} ({what})?", abort=True)
        done = look if dry_run else inlay.drop(table, grace=after, context=context)
    due = datetime.fromtimestamp(done.due_us / 1_000_000, UTC).isoformat(timespec="seconds")
    record = {
        "table": done.table,
        "objects": done.objects,
        "bytes": done.bytes,
        "kept": len(done.kept),
        "deleted": done.deleted,
        "due": due,
        "dry_run": done.dry_run,
    }
    print_record(record, as_json=as_json)
    if not as_json and not done.deleted:
        note(
            f"its objects are deleted by `inlay drop` after {due}; until then `inlay repair` helps"
        )


@verb(
    PANEL,
    Example("rewrite ./people", "all deletes"),
    Example("rewrite ./people --dry-run", "what would be done to which file, and why"),
    Example("rewrite ./people --explain", "and what every other way would cost"),
)
def rewrite(
    table: TableUri,
    where: Where = None,
    strategy: Annotated[
        str,
        typer.Option("--strategy", help="auto, surgery (of row groups) or rewrite (whole files)."),
    ] = "auto",
    max_bytes: MaxBytes = None,
    deadline: Deadline = None,
    dry_run: DryRun = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Show for each file what every way would cost, and do nothing."
        ),
    ] = False,
    ref: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Take deleted rows out of the files, by row-group surgery where that is cheapest.

    Open erasures are taken on, too: their rows go from every file that may hold them.
    """
    import inlay

    with connected(table) as context:
        t = inlay.open(table, ref=ref, context=context)
        dry_run = dry_run or explain
        result = t.maintain.rewrite(
            where=where,
            strategy=cast("Any", strategy),
            max_bytes=max_bytes,
            deadline_seconds=_seconds(deadline),
            dry_run=dry_run,
        )
    print_run(t, "rewrite", result, as_json=as_json, explain=explain)
    if t.snapshot.erasures and not dry_run:
        note("erasures are under way: `inlay erase-status` says what they wait for")


@verb(
    PANEL,
    Example("compact ./people", "everything worth doing"),
    Example("compact ./people --deadline 10m --max-bytes 2000000000", "within a budget"),
)
def compact(
    table: TableUri,
    max_bytes: MaxBytes = None,
    deadline: Deadline = None,
    dry_run: DryRun = False,
    ref: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Pack small files together and fold deletes into them."""
    with opened(table, ref=ref) as t:
        result = t.maintain.compact(
            max_bytes=max_bytes, deadline_seconds=_seconds(deadline), dry_run=dry_run
        )
    print_run(t, "compact", result, as_json=as_json)


@verb(
    PANEL,
    Example("expire ./people --older-than 7d --min-versions 10", "keep a week, and ten at least"),
)
def expire(
    table: TableUri,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="DURATION",
            help="Versions superseded longer ago than this; else the table's history.days.",
        ),
    ] = None,
    min_versions: Annotated[
        int | None,
        typer.Option(
            "--min-versions", min=1, help="Keep at least this many; else history.min_versions."
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """End time travel to old versions. Their objects go with the next `inlay gc` after the grace."""
    days = None if older_than is None else parse_duration(older_than) / timedelta(days=1)
    with opened(table) as t:
        result = t.maintain.expire(days=days, min_versions=min_versions, dry_run=dry_run)
    print_run(t, "expire", result, as_json=as_json)


@verb(
    PANEL,
    Example("collect-garbage ./people", "the same as `inlay gc`"),
    name="collect-garbage",
    hidden=True,
)
@verb(
    PANEL,
    Example("gc ./people --dry-run", "what would be deleted"),
    Example("gc ./people --grace 2d", "keep what is younger than two days"),
)
def gc(
    table: TableUri,
    grace: Annotated[
        str | None,
        typer.Option(
            "--grace",
            metavar="DURATION",
            help="Keep what is younger. Must outlast every reader and writer; else gc.grace_days.",
        ),
    ] = None,
    life: Annotated[
        str | None,
        typer.Option(
            "--life",
            metavar="DURATION",
            help="The longest one read or write takes, which erasures wait for; else 15m.",
        ),
    ] = None,
    clock_margin: Annotated[
        str | None,
        typer.Option(
            "--clock-margin",
            metavar="DURATION",
            help="How far LastModified may be behind Date; else 60s. 0 where both are one clock.",
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete objects that nothing can reach any more, and bring erasures to their end.

    For the receipts of erasures, INLAY_ERASURE_KEY is the key of the digest of what was asked, and
    INLAY_RECEIPT_KEY_FILE a private key (P-256, PEM) that signs them. INLAY_RECEIPT_COPIES is where copies
    go under S3 Object Lock (s3://BUCKET/PREFIX), with INLAY_RECEIPT_COPIES_MODE (GOVERNANCE or COMPLIANCE)
    and INLAY_RECEIPT_COPIES_DAYS (3650).
    """
    with opened(table) as t:
        key = os.environ.get("INLAY_ERASURE_KEY")
        options: dict[str, Any] = {"hmac_key": key.encode()} if key else {}
        if signing_key := os.environ.get("INLAY_RECEIPT_KEY_FILE"):
            from inlay.engine import KeyFile

            options["signer"] = KeyFile.read(signing_key)
        if copies := os.environ.get("INLAY_RECEIPT_COPIES"):
            from inlay.engine import LockedCopies

            mode, days = (
                os.environ.get(f"INLAY_RECEIPT_COPIES_{name}") for name in ("MODE", "DAYS")
            )
            options["copies"] = LockedCopies.of_text(copies, mode, days)
        if life is not None:
            options["life_seconds"] = _seconds(life)
        if clock_margin is not None:
            options["clock_margin_seconds"] = _seconds(clock_margin)
        result = t.maintain.collect_garbage(
            grace=None if grace is None else parse_duration(grace), dry_run=dry_run, **options
        )
    print_run(t, "collect_garbage", result, as_json=as_json)


@verb(
    PANEL,
    Example("publish ./people", "as an Iceberg table, from now on"),
    Example("publish ./people --format v2", "for engines without deletion vectors"),
    Example("publish ./people --rebuild", "start afresh, whatever is published"),
    Example("publish ./people --take-over", "with what another engine committed by path"),
)
def publish(
    table: TableUri,
    format: Annotated[
        str | None,
        typer.Option("--format", help="v3 or v2 of Apache Iceberg; kept as the property."),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Start afresh, whatever is published.")
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="First commit what another engine has committed by path."),
    ] = False,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Take the published table away instead.")
    ] = False,
    glue: Annotated[
        str | None,
        typer.Option(
            "--glue",
            metavar="DATABASE.TABLE",
            help="Register it in the AWS Glue catalog, for Athena.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest version to engines that read Apache Iceberg, by metadata beside the table.

    They read the same data files and deletion vectors. Deletes are settled into vectors first. What cannot
    be shown exactly is not published, and the last publication stays.
    """
    import inlay

    with connected(table) as context:
        t = inlay.open(table, context=context)
        if withdraw:
            t.maintain.withdraw()
            note("withdrawn: `inlay gc` deletes what is left")
            return
        database, dot, name = (glue or "").partition(".")
        if glue is not None and not (database and dot and name):
            raise InvalidRequest("--glue takes DATABASE.TABLE")
        result = t.publish(format=format, rebuild=rebuild, take_over=take_over)
        if glue is not None:
            from inlay.engine import PUBLISHED_POINTER
            from inlay.functions.glue import client, register

            answer = context.get(PUBLISHED_POINTER)
            assert answer is not None
            changed = register(client(), database, name, answer.body, back=rebuild)
            note(f"{'registered' if changed else 'already registered'} as {glue}")
    print_run(t, "publish", result, as_json=as_json)


@verb(
    PANEL,
    Example("hand-over ./people", "published; nothing here changes it from now on"),
    Example("hand-over ./people --take-back", "it is a table of Inlay again"),
)
def hand_over(
    table: TableUri,
    take_back: Annotated[
        bool, typer.Option("--take-back", help="End the hand-over instead.")
    ] = False,
    discard: Annotated[
        bool,
        typer.Option(
            "--discard", help="With --take-back: give up what others have written here meanwhile."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Give a table to another Iceberg catalog: publish it, and leave it alone from then on.

    Register the metadata file that is printed there. Writes, maintenance, erasures and garbage collection
    refuse by name, or they would delete what that catalog adds; reads go on, of what was handed over.
    """
    import inlay

    if discard and not take_back:
        raise InvalidRequest("--discard is for --take-back")
    with connected(table) as context:
        t = inlay.open(table, context=context)
        if take_back:
            back = t.maintain.take_back(discard=discard)
            print_record(
                {"table": table, "version": back.version, "others": back.others}, as_json=as_json
            )
            return
        done = t.maintain.hand_over()
    record = {
        "table": table,
        "version": done.version,
        "published": done.published,
        "format": done.format,
        "metadata": done.metadata,
    }
    print_record(record, as_json=as_json)


def _seconds(duration: str | None) -> float | None:
    return None if duration is None else parse_duration(duration).total_seconds()

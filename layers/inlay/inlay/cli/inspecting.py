"""Verbs that look at a table's state: show, inspect, files, tombstones.

The page of `inlay inspect --html` is one file that needs nothing else. Promise: whatever a table, a column
or a value is called, the page shows it as text and never runs it. The report is embedded as JSON without
any `<`; the script builds text nodes only, and the page's content security policy allows only this script
and no requests.
"""

from __future__ import annotations

import base64
import hashlib
import html
import sys
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlay.cli.command import Example, verb
from inlay.cli.options import AsJson, AsOf, Ref, TableUri, Version, Where
from inlay.cli.output import console, print_record, print_rows
from inlay.cli.tables import opened
from inlay.cli.values import size_text, time_text
from inlay.engine import to_line

if TYPE_CHECKING:
    from inlay import Report, Table
    from inlay.engine import Primitive


_ASSETS = resources.files("inlay.cli") / "assets"


def page_of(report: Report) -> str:
    """The report as HTML."""
    script = (_ASSETS / "inspect.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    parts = {
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "title": html.escape(str(report.table["uri"])),
        "style": (_ASSETS / "inspect.css").read_text("utf-8"),
        "data": as_script(asdict(report)),
        "script": script,
    }
    # One pass: what is put in is not looked at again.
    template = (_ASSETS / "inspect.html").read_text("utf-8")
    pieces = template.split("%%")
    return "".join(parts[p] if at % 2 else p for at, p in enumerate(pieces))


def as_script(value: object) -> str:
    """JSON that may stand in a script element: nothing in it ends the element or opens a comment."""
    text = to_line(value, ascii_only=True)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


PANEL = "Look"
# What people are shown, the most wanted first: what does not fit the terminal is left out.
_FILES = ("key", "rows", "bytes", "range", "row_groups", "sequence")
_TOMBSTONES = ("kind", "where", "rows", "sequence", "file", "erasure", "id")


@verb(PANEL, Example("show s3://lake/tables/people", "the newest version"))
def show(
    table: TableUri,
    version: Version = None,
    as_of: AsOf = None,
    ref: Ref = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of a table: version, size, delete markers, columns, properties."""
    with opened(table, version=version, as_of=as_of, ref=ref) as t:
        facts = _facts(t)
    if as_json:
        print_record(facts, as_json=True)
        return
    out = console()
    columns, properties = facts.pop("columns"), facts.pop("properties")
    facts["bytes"] = f"{facts['bytes']:,} ({size_text(facts['bytes'])})"
    for name in ("primary_key", "sort_by", "partition_by"):
        facts[name] = ", ".join(facts[name]) or None
    facts["refs"] = ", ".join(facts["refs"]) or None
    if "transaction" in facts:
        pending = facts["transaction"]
        named = ", ".join(pending["tables"])
        facts["transaction"] = f"open since {time_text(pending['began_us'])}: {named}"
    print_record({name.replace("_", " "): value for name, value in facts.items()}, as_json=False)
    out.print("\n[bold]columns[/bold]")
    print_record(
        {c["name"]: c["type"] + ("" if c["nullable"] else " not null") for c in columns},
        as_json=False,
    )
    out.print("\n[bold]properties[/bold]")
    print_record(properties, as_json=False)


def _published(table: Table) -> dict[str, Any]:
    """What other engines see of the table."""
    status = table.inspect.publication()
    if status is None:
        return {}
    facts: dict[str, Any] = {"published_version": status.version, "published_behind": status.behind}
    return facts | ({"not_published_because": "; ".join(status.reasons)} if status.reasons else {})


def arrow_types(table: Table) -> list[str]:
    """The Arrow types of the columns, as Arrow writes them. Of plain columns they are known without it."""
    from inlay.engine import Primitive

    kinds = [f.type for f in table.snapshot.schema.fields if isinstance(f.type, Primitive)]
    if "arrow.types" in table.snapshot.properties or len(kinds) < len(table.columns):
        return [str(field.type) for field in table.schema]
    return [_arrow_type(kind) for kind in kinds]


def _arrow_type(kind: Primitive) -> str:
    match kind.name:
        case "decimal":
            bits = 128 if kind.precision <= 38 else 256
            return f"decimal{bits}({kind.precision}, {kind.scale})"
        case "fixed":
            return f"fixed_size_binary[{kind.precision}]"
        case "date":
            return "date32[day]"
        case "time":
            return f"time{32 if kind.unit == 'ms' else 64}[{kind.unit}]"
        case "timestamp":
            return f"timestamp[{kind.unit}]"
        case "timestamptz":
            return f"timestamp[{kind.unit}, tz=UTC]"
        case _:  # the names are Arrow's
            return kind.name


def _facts(table: Table) -> dict[str, Any]:
    snapshot = table.snapshot
    names = {field.id: field.name for field in snapshot.schema.fields}
    prepared = table.inspect.transaction()
    return {
        **({} if prepared is None else {"transaction": prepared}),
        "table": table.uri,
        "id": snapshot.table_id,
        "version": snapshot.version,
        "oldest_version": snapshot.oldest_version,
        "committed": time_text(snapshot.commit.time_us),
        "operation": snapshot.commit.operation,
        "files": snapshot.totals.files,
        "rows_in_files": snapshot.totals.rows,
        "bytes": snapshot.totals.bytes,
        "delete_markers": snapshot.totals.markers,
        "open_erasures": len(snapshot.erasures),
        **_published(table),
        "primary_key": [names.get(i, str(i)) for i in snapshot.primary_key],
        "sort_by": [names.get(i, str(i)) for i in snapshot.sort_by],
        "partition_by": list(table.partitioning),
        "refs": sorted(snapshot.refs),
        "columns": [
            {"name": f.name, "type": kind, "nullable": f.nullable}
            for f, kind in zip(snapshot.schema.fields, arrow_types(table), strict=True)
        ],
        "properties": table.inspect.properties(),
    }


@verb(
    PANEL,
    Example("inspect ./people", "its tree"),
    Example('inspect ./people --where "id = 7"', "with what a query would read, and why"),
    Example("inspect ./people --html people.html", "as a page for the browser"),
)
def inspect(
    table: TableUri,
    where: Where = None,
    html: Annotated[
        str | None,
        typer.Option(
            "--html", metavar="FILE", help="Write one self-contained page instead; - is stdout."
        ),
    ] = None,
    version: Version = None,
    as_of: AsOf = None,
    ref: Ref = None,
    as_json: AsJson = False,
) -> None:
    """Show what a table is made of: history, files, deletes, metadata, and what maintenance would gain.

    With --where also what that query would read, and why. All of it from metadata; no data is read.
    """
    with opened(table, version=version, as_of=as_of, ref=ref) as t:
        report = t.inspect.report(where)
    if html is not None:
        page = page_of(report)
        if html == "-":
            sys.stdout.write(page)
            return
        Path(html).write_text(page, encoding="utf-8")
        print_record({"output": html, "bytes": len(page)}, as_json=as_json)
    elif as_json:
        print_record(asdict(report), as_json=True)
    else:
        from inlay.cli.tree import tree_of

        console().print(tree_of(report))


@verb(
    PANEL,
    Example("files ./people", "the newest version's"),
    Example("files ./people --version 3", "those of an earlier one"),
)
def files(
    table: TableUri,
    version: Version = None,
    as_of: AsOf = None,
    ref: Ref = None,
    as_json: AsJson = False,
) -> None:
    """List the data files, with the range of their first column of statistics."""
    with opened(table, version=version, as_of=as_of, ref=ref) as t:
        rows = t.inspect.files()
    if not as_json:
        import pyarrow as pa

        rows = rows.append_column(
            "range", pa.array([_range(b) for b in rows["bounds"].to_pylist()], pa.string())
        )
    print_rows(rows, as_json=as_json, columns=_FILES, empty="no data files")


def _range(bounds: list[dict[str, Any]] | None) -> str | None:
    if not bounds or bounds[0]["lower"] is None:
        return None
    return f"{bounds[0]['column']} {bounds[0]['lower']} … {bounds[0]['upper']}"


@verb(PANEL, Example("tombstones ./people", "what is deleted but not yet gone"))
def tombstones(
    table: TableUri,
    version: Version = None,
    as_of: AsOf = None,
    ref: Ref = None,
    as_json: AsJson = False,
) -> None:
    """List the delete markers that readers apply; `inlay rewrite` turns them into absent rows."""
    with opened(table, version=version, as_of=as_of, ref=ref) as t:
        rows = t.inspect.tombstones()
    print_rows(rows, as_json=as_json, columns=_TOMBSTONES, empty="no delete markers")

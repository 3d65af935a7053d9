"""The tree of one table, as `inlay inspect` prints it for a person.

Promise: a screen or two, however large the table is; names and values are shown as text, never as markup
or control characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.text import Text
from rich.tree import Tree

from inlay.cli.values import counted, size_text, to_text

if TYPE_CHECKING:
    from inlay import Report

# Lines of one list.
MOST = 6
# Characters of the longest bar.
BAR = 24


def tree_of(report: Report) -> Tree:
    """The report as a tree."""
    facts = report.table
    root = Tree(Text.assemble((to_text(facts["uri"]), "bold"), f"  version {facts['version']}"))
    for finding in report.findings:
        line = _add(root, ("› ", "cyan"), (to_text(finding.what), "bold"))
        if finding.why:
            _add(line, to_text(finding.why))
        if finding.command:
            command = finding.command.replace("TABLE", str(facts["uri"]))
            _add(line, ("next: ", "dim"), (to_text(command), "cyan"))
    _versions(root, report)
    _columns(root, report)
    _files(root, report)
    _deletes(root, report)
    _metadata(root, report)
    if report.query is not None:
        _query(root, report)
    _maintenance(root, report)
    return root


def _versions(root: Tree, report: Report) -> None:
    facts = report.table
    branch = _head(
        root, "history", f"versions {facts['oldest_version']} to {facts['newest_version']}"
    )
    for version in report.versions[:MOST]:
        what: list[str] = [str(version["operation"])]
        if version["added_rows"]:
            what.append(f"+{version['added_rows']:,} rows")
        if version["deleted_rows"] is None:
            what.append("- rows nobody counted")
        elif version["deleted_rows"]:
            what.append(f"-{version['deleted_rows']:,} rows")
        if version["request"]:
            what.append(f"request {to_text(version['request'])[:60]}")
        if version["message"]:
            what.append(f"“{to_text(version['message'])[:60]}”")
        when = str(version["time"])[:19]
        _add(branch, f"{version['version']:>6}  ", (when, "dim"), f"  {', '.join(what)}")
    _more(branch, len(report.versions) - MOST)


def _columns(root: Tree, report: Report) -> None:
    facts: Any = report.table
    columns = facts["columns"]
    branch = _head(root, "columns", str(len(columns)))
    shown = ", ".join(f"{to_text(c['name'])} {c['type']}" for c in columns[: 4 * MOST])
    _add(branch, shown + (" …" if len(columns) > 4 * MOST else ""))
    for name in ("primary_key", "sort_by", "partition_by"):
        if facts[name]:
            said = ", ".join(map(to_text, facts[name]))
            _add(branch, (f"{name.replace('_', ' ')} ", "dim"), said)
    if facts["refs"]:
        said = ", ".join(
            f"{to_text(r['name'])} ({r['kind']} of {r['version']})" for r in facts["refs"]
        )
        _add(branch, ("refs ", "dim"), said)


def _files(root: Tree, report: Report) -> None:
    facts: Any = report.table
    branch = _head(
        root,
        "data files",
        f"{facts['files']:,}, {size_text(facts['bytes'])}, "
        f"{'' if report.live_rows_counted else 'at most '}{counted(report.live_rows, 'row')}; "
        f"stored are {facts['rows']:,}, of these {report.deleted_rows:,} surely deleted",
    )
    most = max((b.files for b in report.sizes), default=1)
    for size in report.sizes:
        bar = "█" * max(1 if size.files else 0, round(BAR * size.files / most))
        label = f"{size_text(size.least):>9} …  "
        _add(branch, (label, "dim"), (f"{bar:<{BAR}} ", "blue"), f"{size.files:,}")
    for axis in report.axes:
        _add(
            branch,
            ("along ", "dim"),
            (to_text(axis.column), "bold"),
            f": a lookup opens {axis.mean_depth:,.1f} files, at most {max(axis.depth):,}",
        )
    if report.partitions:
        inner = _add(branch, ("partitions", "dim"))
        for part in report.partitions[:MOST]:
            files, size_ = (
                counted(int(str(part["files"])), "file"),
                size_text(int(str(part["bytes"]))),
            )
            _add(inner, to_text(part["partition"]), (f"  {files}, {size_}", "dim"))
        _more(inner, len(report.partitions) - MOST + report.partitions_left)


def _deletes(root: Tree, report: Report) -> None:
    facts: Any = report.table
    branch = _head(
        root,
        "deletes to apply",
        f"{counted(facts['markers'], 'marker')}, on {counted(report.marked_files, 'file')}",
    )
    shown: Sequence[Any] = report.markers[:MOST]
    for marker in shown:
        name = marker["where"]
        if marker.get("count"):
            name = f"{counted(marker['count'], 'marker')} of single files"
        hit = f"  {counted(marker['files_hit'], 'file')}, {size_text(marker['bytes_hit'])}"
        _add(branch, (f"{marker['kind']} ", "dim"), to_text(name)[:120], (hit, "dim"))
    _more(branch, len(report.markers) - MOST + report.markers_left)


def _metadata(root: Tree, report: Report) -> None:
    segments: Sequence[Any] = report.segments
    branch = _head(root, "metadata", "the snapshot, and segments")
    for tier, of_tier in groupby(segments, key=lambda s: s["tier"]):
        runs = list(of_tier)
        inline = sum(s["entries"] for s in runs if s["id"] is None)
        stored = [s for s in runs if s["id"] is not None]
        leaves = [s for s in stored if not s["level"]]
        nodes = len(stored) - len(leaves)
        said = f"{counted(inline, 'entry', 'entries')} inline"
        if leaves:
            size = size_text(sum(s["object_bytes"] for s in stored))
            dead = sum(s["dead"] for s in leaves)
            entries = counted(sum(s["entries"] for s in leaves), "entry", "entries")
            said += f"; {counted(len(leaves), 'segment')} of {entries} ({dead:,} dead), {size}"
        if nodes:
            said += f", under {counted(nodes, 'node')}"
        _add(branch, (f"{tier:<8}", "dim"), said)


def _query(root: Tree, report: Report) -> None:
    query = report.query
    assert query is not None
    branch = _head(root, "query", to_text(query.where))
    _add(
        branch,
        (f"reads {query.read:,} of {query.files:,} files", "bold"),
        f": {query.pruned:,} cannot match, {query.deleted:,} are deleted whole",
    )
    rows, deletes = counted(query.rows, "row"), counted(query.deletes, "delete")
    _add(branch, f"at most {rows} and {size_text(query.bytes)}, under {deletes}")
    for part in query.conditions:
        _add(
            branch,
            to_text(part.text)[:120],
            (f"  spares {part.spares:,}: {to_text(part.why)}", "dim"),
        )


def _maintenance(root: Tree, report: Report) -> None:
    care = report.maintenance
    branch = _head(root, "maintenance", "what `inlay compact` would do")
    for work in care.works:
        said = f"{counted(work.units, 'unit')}: {counted(work.files, 'file')} become {work.files_after:,}"
        _add(branch, (f"{work.kind:<8}", "dim"), f"{said}, reading {size_text(work.bytes)}")
    took = timedelta(seconds=max(1, round(care.seconds)))
    if care.works:
        after = f"{counted(care.files, 'file')} become {care.files_after:,}, in about {took} of one worker"
        _add(branch, (after, "bold"))
    if care.query_files is not None and care.works:
        now, then = care.query_files
        _add(branch, f"the query would read {then:,} files, not {now:,}")
    if not care.works:
        _add(branch, "no file is worth rewriting")


# -- lines ----------------------------------------------------------------------------------------


def _head(root: Tree, name: str, about: str) -> Tree:
    return _add(root, (name, "bold"), (f"  {about}", "dim"))


def _add(branch: Tree, *parts: str | tuple[str, str]) -> Tree:
    """A line below a branch, of plain parts and of such with a style."""
    return branch.add(Text.assemble(*parts))


def _more(branch: Tree, number: int) -> None:
    if number > 0:
        _add(branch, (f"… {number:,} more", "dim"))

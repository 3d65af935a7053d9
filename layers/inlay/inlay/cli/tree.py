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
    from inlay.ops.inspect.report import Report

# Lines of one list.
MOST = 6
# Characters of the longest bar.
BAR = 24


def tree_of(report: Report) -> Tree:
    """The report as a tree."""
    facts = report.table
    root = Tree(_line((_text(facts["uri"]), "bold"), (f"  version {facts['version']}", "")))
    for finding in report.findings:
        line = root.add(_line(("› ", "cyan"), (_text(finding.what), "bold")))
        if finding.why:
            line.add(_line((_text(finding.why), "")))
        if finding.command:
            command = finding.command.replace("TABLE", str(facts["uri"]))
            line.add(_line(("next: ", "dim"), (_text(command), "cyan")))
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
    branch = root.add(
        _head("history", f"versions {facts['oldest_version']} to {facts['newest_version']}")
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
            what.append(f"request {_text(version['request'])[:60]}")
        if version["message"]:
            what.append(f"“{_text(version['message'])[:60]}”")
        when = str(version["time"])[:19]
        branch.add(
            _line((f"{version['version']:>6}  ", ""), (when, "dim"), (f"  {', '.join(what)}", ""))
        )
    _more(branch, len(report.versions) - MOST)


def _columns(root: Tree, report: Report) -> None:
    facts: Any = report.table
    columns = facts["columns"]
    branch = root.add(_head("columns", str(len(columns))))
    shown = ", ".join(f"{_text(c['name'])} {c['type']}" for c in columns[: 4 * MOST])
    branch.add(_line((shown + (" …" if len(columns) > 4 * MOST else ""), "")))
    for name in ("primary_key", "sort_by", "partition_by"):
        if facts[name]:
            said = ", ".join(map(_text, facts[name]))
            branch.add(_line((f"{name.replace('_', ' ')} ", "dim"), (said, "")))
    if facts["refs"]:
        said = ", ".join(
            f"{_text(r['name'])} ({r['kind']} of {r['version']})" for r in facts["refs"]
        )
        branch.add(_line(("refs ", "dim"), (said, "")))


def _files(root: Tree, report: Report) -> None:
    facts: Any = report.table
    branch = root.add(
        _head(
            "data files",
            f"{facts['files']:,}, {size_text(facts['bytes'])}, {counted(facts['rows'], 'row')}, "
            f"of these {report.deleted_rows:,} surely deleted",
        )
    )
    most = max((b.files for b in report.sizes), default=1)
    for size in report.sizes:
        bar = "█" * max(1 if size.files else 0, round(BAR * size.files / most))
        label = f"{size_text(size.least):>9} …  "
        branch.add(_line((label, "dim"), (f"{bar:<{BAR}} ", "blue"), (f"{size.files:,}", "")))
    for axis in report.axes:
        branch.add(
            _line(
                ("along ", "dim"),
                (_text(axis.column), "bold"),
                (f": a lookup opens {axis.mean_depth:,.1f} files, at most {max(axis.depth):,}", ""),
            )
        )
    if report.partitions:
        inner = branch.add(_line(("partitions", "dim")))
        for part in report.partitions[:MOST]:
            files, size_ = (
                counted(int(str(part["files"])), "file"),
                size_text(int(str(part["bytes"]))),
            )
            inner.add(_line((_text(part["partition"]), ""), (f"  {files}, {size_}", "dim")))
        _more(inner, len(report.partitions) - MOST + report.partitions_left)


def _deletes(root: Tree, report: Report) -> None:
    facts: Any = report.table
    branch = root.add(
        _head(
            "deletes to apply",
            f"{counted(facts['markers'], 'marker')}, on {counted(report.marked_files, 'file')}",
        )
    )
    shown: Sequence[Any] = report.markers[:MOST]
    for marker in shown:
        name = marker["where"]
        if marker.get("count"):
            name = f"{counted(marker['count'], 'marker')} of single files"
        hit = f"  {counted(marker['files_hit'], 'file')}, {size_text(marker['bytes_hit'])}"
        branch.add(_line((f"{marker['kind']} ", "dim"), (_text(name)[:120], ""), (hit, "dim")))
    _more(branch, len(report.markers) - MOST + report.markers_left)


def _metadata(root: Tree, report: Report) -> None:
    segments: Sequence[Any] = report.segments
    branch = root.add(_head("metadata", "the snapshot, and segments"))
    for tier, found in groupby(segments, key=lambda s: s["tier"]):
        runs = list(found)
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
        branch.add(_line((f"{tier:<8}", "dim"), (said, "")))


def _query(root: Tree, report: Report) -> None:
    query = report.query
    assert query is not None
    branch = root.add(_head("query", _text(query.where)))
    branch.add(
        _line(
            (f"reads {query.read:,} of {query.files:,} files", "bold"),
            (f": {query.pruned:,} cannot match, {query.deleted:,} are deleted whole", ""),
        )
    )
    rows, deletes = counted(query.rows, "row"), counted(query.deletes, "delete")
    branch.add(_line((f"at most {rows} and {size_text(query.bytes)}, under {deletes}", "")))
    for part in query.conditions:
        branch.add(
            _line(
                (_text(part.text)[:120], ""),
                (f"  spares {part.spares:,}: {_text(part.why)}", "dim"),
            )
        )


def _maintenance(root: Tree, report: Report) -> None:
    care = report.maintenance
    branch = root.add(_head("maintenance", "what `inlay compact` would do"))
    for work in care.works:
        said = f"{counted(work.units, 'unit')}: {counted(work.files, 'file')} become {work.files_after:,}"
        branch.add(
            _line((f"{work.kind:<8}", "dim"), (f"{said}, reading {size_text(work.bytes)}", ""))
        )
    took = timedelta(seconds=max(1, round(care.seconds)))
    if care.works:
        after = f"{counted(care.files, 'file')} become {care.files_after:,}, in about {took} of one worker"
        branch.add(_line((after, "bold")))
    if care.query_files is not None and care.works:
        now, then = care.query_files
        branch.add(_line((f"the query would read {then:,} files, not {now:,}", "")))
    if not care.works:
        branch.add(_line(("no file is worth rewriting", "")))


# -- lines ----------------------------------------------------------------------------------------


def _head(name: str, about: str) -> Text:
    return _line((name, "bold"), (f"  {about}", "dim"))


def _line(*parts: tuple[str, str]) -> Text:
    return Text.assemble(*parts)


def _more(branch: Tree, left: int) -> None:
    if left > 0:
        branch.add(_line((f"… {left:,} more", "dim")))


def _text(value: object) -> str:
    return to_text(value)

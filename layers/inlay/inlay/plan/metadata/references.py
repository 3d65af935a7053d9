"""References: whether an object is the one that its reference describes.

Promise: a segment, head or archive that was replaced by another, or written by hand, is detected as far as
its reference describes it: its size and sums, and the schemas and specs that its entries name. A digest
inside the object does not help: it is correct for whatever object this is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inlay.format.content import Content
from inlay.format.entry import DataFile
from inlay.format.file_entries import FileEntries
from inlay.format.snapshot import HeadObject, Segment, Snapshot
from inlay.plan.change import SegmentKind


def segment_fault(
    table: Snapshot, kind: SegmentKind, segment: Segment, entries: Sequence[Any], size: int
) -> str:
    """What contradicts the reference to a segment; empty when nothing does."""
    held = sum(leaf.count for leaf in entries) if kind == "nodes" else len(entries)
    if held != segment.count:
        return f"holds {held} entries, its reference says {segment.count}"
    if size != segment.size:
        return f"has {size} bytes, its reference says {segment.size}"
    if kind == "nodes" and any(leaf.level >= segment.level for leaf in entries):
        return "refers to nodes like itself"
    if kind == "files":
        sums = sum(_column(entries, "rows")), sum(_column(entries, "size"))
    elif kind == "nodes":
        sums = sum(s.rows for s in entries), sum(s.bytes for s in entries)
    else:
        sums = segment.rows, segment.bytes
    if sums != (segment.rows, segment.bytes):
        return f"holds {sums[0]} rows in {sums[1]} bytes, its reference says otherwise"
    return _unknown(table, entries) if kind == "files" else ""


def head_fault(table: Snapshot, head: HeadObject, content: Content, size: int) -> str:
    """What contradicts the reference to the head of a branch or tag."""
    if size != head.size:
        return f"has {size} bytes, its reference says {head.size}"
    if content.version > table.version:
        return f"is of version {content.version}, and the table at {table.version}"
    if all(s.id != content.schema_id for s in table.schemas):
        return f"names schema {content.schema_id}, which the table does not have"
    if all(s.id != content.spec_id for s in table.specs):
        return f"names partition spec {content.spec_id}, which the table does not have"
    return _unknown(table, content.files.inline)


def _column(entries: Sequence[DataFile], name: str) -> Sequence[int]:
    if isinstance(entries, FileEntries):
        return entries.column(name)
    return [getattr(entry, name) for entry in entries]


def _unknown(table: Snapshot, entries: Sequence[DataFile]) -> str:
    schemas, specs = {s.id for s in table.schemas}, {s.id for s in table.specs}
    if isinstance(entries, FileEntries):
        named = set(entries.column("schema")), {spec or 0 for spec in entries.column("spec")}
        if named[0] <= schemas and named[1] <= specs:
            return ""
    for entry in entries:
        if entry.schema_id not in schemas:
            return f"names schema {entry.schema_id} for {entry.key}, which the table does not have"
        if entry.spec_id not in specs:
            return f"names spec {entry.spec_id} for {entry.key}, which the table does not have"
    return ""

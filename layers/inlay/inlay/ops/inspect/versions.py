"""The versions of a table that can still be read, as plain values: what `history` shows.

Promise: one GET a version; the archive of a version has everything about it. Imports no Arrow: who lists
versions for a person does not wait for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from inlay.format.snapshot import Snapshot, note_of
from inlay.ops.context import Context
from inlay.ops.metadata.load import load_seen, load_version

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def newest(current: Snapshot, limit: int) -> range:
    """The newest `limit` versions that can still be opened, newest first."""
    oldest = max(current.oldest_version, current.version - limit + 1)
    return range(current.version, oldest - 1, -1)


def version_records(ctx: Context, current: Snapshot, *, limit: int) -> list[dict[str, Any]]:
    """What `history` has of the newest versions, the time as Python has it, the metadata as a dict."""
    return [
        version_row(snapshot, refs)
        | {
            "time": _EPOCH + timedelta(microseconds=snapshot.commit.time_us),
            "metadata": dict(note_of(snapshot).metadata),
        }
        for snapshot, refs in load_versions(ctx, current, newest(current, limit))
    ]


def load_versions(
    ctx: Context, current: Snapshot, versions: Iterable[int]
) -> Iterator[tuple[Snapshot, Sequence[str]]]:
    """Each version, and the refs that name it."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, ref in sorted(current.refs.items()):
        names[ref.version].append(name)

    def load(version: int) -> Snapshot:
        # A branch's own totals from its beginning, main's before that.
        snapshot = load_version(ctx, current, version)
        return load_seen(ctx, current, version) if ctx.branch in snapshot.refs else snapshot

    return ((snapshot, names[snapshot.version]) for snapshot in ctx.map(load, versions))


def version_row(snapshot: Snapshot, refs: Sequence[str]) -> dict[str, Any]:
    commit, totals, note = snapshot.commit, snapshot.totals, note_of(snapshot)
    return {
        "version": snapshot.version,
        "time": commit.time_us,
        "operation": commit.operation,
        "request": commit.request,
        "message": note.message,
        "metadata": list(note.metadata.items()) or None,
        "branch": commit.branch,
        "refs": refs,
        "added_rows": commit.added_rows,
        "deleted_rows": commit.removed_rows,
        "added_files": commit.added_files,
        "removed_files": commit.removed_files,
        "added_bytes": commit.added_bytes,
        "added_markers": commit.added_markers,
        "removed_markers": commit.removed_markers,
        "files": totals.files,
        "physical_rows": totals.rows,
        "bytes": totals.bytes,
        "markers": totals.markers,
        "commit_id": commit.id,
    }

"""History: the versions of a table that can still be read, and what each changed.

Promise: one GET a version; the archive of a version has everything about it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pyarrow as pa

from inlay.errors import InvalidRequest
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.ops.inspect.columns import COUNT, TIME, Row, columns, table_of
from inlay.ops.inspect.versions import load_versions, newest, version_row
from inlay.ops.metadata.load import load_seen

HISTORY = columns(
    ("version", COUNT, "version number"),
    ("time", TIME, "commit time, by the store's clock"),
    ("operation", pa.string(), "what made it"),
    ("request", pa.string(), "id of the request or event that asked for it, if one was given"),
    ("message", pa.string(), "what its author said of it"),
    ("metadata", pa.map_(pa.string(), pa.string()), "names and texts that its author gave it"),
    ("branch", pa.string(), "branch whose content it changed; null: main"),
    ("refs", pa.list_(pa.string()), "tags and branches that name it"),
    ("added_rows", COUNT, "rows it added"),
    ("deleted_rows", COUNT, "rows it deleted; null: nobody counted them"),
    ("added_files", COUNT, "data files it added"),
    ("removed_files", COUNT, "data files it dropped or replaced"),
    ("added_bytes", COUNT, "bytes of the data files it added"),
    ("added_markers", COUNT, "delete markers it added"),
    ("removed_markers", COUNT, "delete markers it dropped"),
    ("files", COUNT, "data files it has"),
    ("physical_rows", COUNT, "rows stored in them, deleted ones included"),
    ("bytes", COUNT, "bytes of its data files"),
    ("markers", COUNT, "delete markers it has"),
    ("commit_id", pa.string(), "commit id, unique for ever"),
)

_MORE_COLUMNS = columns(
    ("schema_id", COUNT, "its schema"),
    ("spec_id", COUNT, "its partition spec"),
    ("file_segments", COUNT, "segments of file entries it refers to"),
    ("marker_segments", COUNT, "segments of delete markers it refers to"),
    ("ledger_segments", COUNT, "segments of ledger records it refers to"),
    ("inline_entries", COUNT, "entries of all three kinds in the snapshot itself"),
    ("erasures", COUNT, "erasures that were under way"),
)
SNAPSHOTS = pa.schema([*HISTORY, *_MORE_COLUMNS])

DIFFERENCES = columns(
    ("operation", pa.string(), "what was done"),
    ("versions", COUNT, "how many versions did it"),
    ("added_rows", COUNT, "rows added"),
    ("deleted_rows", COUNT, "rows deleted; null: one of the deletes was not counted"),
    ("added_files", COUNT, "data files added"),
    ("removed_files", COUNT, "data files dropped or replaced"),
    ("added_bytes", COUNT, "bytes of the data files added"),
    ("removed_bytes", COUNT, "bytes of the data files dropped or replaced"),
    ("added_markers", COUNT, "delete markers added"),
    ("removed_markers", COUNT, "delete markers dropped"),
)


def differences(ctx: Context, current: Snapshot, since: int, to: int) -> pa.Table:
    """What happened after version `since`, up to and including `to`: one row for each operation, in the
    order of their first commits. One GET a version. Raises `VersionNotFound`, `InvalidRequest`."""
    if since > to:
        raise InvalidRequest(
            f"version {since} is not before version {to}", next_step="Give the older one first"
        )
    # The newest first: a version that does not exist yet is reported before an expired one.
    newest_first = range(to, since - 1, -1)
    loaded = list(ctx.map(lambda version: load_seen(ctx, current, version), newest_first))[::-1]
    steps: dict[str, list[tuple[Snapshot, Snapshot]]] = defaultdict(list)
    for before, after in pairwise(loaded):
        if after.commit.branch == ctx.branch:  # other branches' commits did not change this content
            steps[after.commit.operation].append((before, after))
    return table_of(DIFFERENCES, (_difference(name, step) for name, step in steps.items()))


def _difference(operation: str, steps: Sequence[tuple[Snapshot, Snapshot]]) -> Row:
    """The commits of one operation between two versions: each with the snapshot before it."""
    made = [after.commit for _, after in steps]
    return {
        "operation": operation,
        "versions": len(made),
        "added_rows": _total(c.added_rows for c in made),
        "deleted_rows": _total(c.removed_rows for c in made),
        "added_files": sum(c.added_files for c in made),
        "removed_files": sum(c.removed_files for c in made),
        "added_bytes": sum(c.added_bytes for c in made),
        "removed_bytes": sum(
            max(0, before.totals.bytes + after.commit.added_bytes - after.totals.bytes)
            for before, after in steps
        ),
        "added_markers": sum(c.added_markers for c in made),
        "removed_markers": sum(c.removed_markers for c in made),
    }


def _total(counts: Iterable[int | None]) -> int | None:
    """None where one of them is unknown."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def history(ctx: Context, current: Snapshot, *, limit: int) -> pa.Table:
    """The newest `limit` versions that can still be opened, newest first."""
    snapshots_loaded = load_versions(ctx, current, newest(current, limit))
    return table_of(HISTORY, (version_row(*loaded) for loaded in snapshots_loaded))


def snapshots(ctx: Context, current: Snapshot) -> pa.Table:
    """Every version that can still be opened, newest first, including those that only a ref holds."""
    held = {ref.version for ref in current.refs.values()}
    kept = set(range(current.oldest_version, current.version + 1))
    snapshots_loaded = load_versions(ctx, current, sorted(kept | held, reverse=True))
    return table_of(SNAPSHOTS, (version_row(s, refs) | _more(s) for s, refs in snapshots_loaded))


def _more(snapshot: Snapshot) -> dict[str, int]:
    records = snapshot.ledger.records
    return {
        "schema_id": snapshot.schema_id,
        "spec_id": snapshot.spec_id,
        "file_segments": len(snapshot.files.segments),
        "marker_segments": len(snapshot.markers.segments),
        "ledger_segments": len(records.segments),
        "inline_entries": sum(
            map(len, (snapshot.files.inline, snapshot.markers.inline, records.inline))
        ),
        "erasures": len(snapshot.erasures),
    }

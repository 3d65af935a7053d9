"""History: the versions of a table that can still be read, and what each changed.

Promise: one GET a version; the archive of a version has everything about it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from inlay.errors import InvalidRequest
from inlay.format.snapshot import Snapshot, note_of
from inlay.ops.context import Context
from inlay.ops.inspect.columns import TIME, Column, table_of
from inlay.ops.metadata.load import load_seen, load_version

_COUNT = pa.int64()


@dataclass(frozen=True, slots=True)
class _Version:
    snapshot: Snapshot
    refs: tuple[str, ...]


HISTORY: tuple[Column[_Version], ...] = (
    Column("version", _COUNT, "version number", lambda v: v.snapshot.version),
    Column("time", TIME, "commit time, by the store's clock", lambda v: v.snapshot.commit.time_us),
    Column("operation", pa.string(), "what made it", lambda v: v.snapshot.commit.operation),
    Column(
        "request",
        pa.string(),
        "id of the request or event that asked for it, if one was given",
        lambda v: v.snapshot.commit.request,
    ),
    Column(
        "message",
        pa.string(),
        "what its author said of it",
        lambda v: note_of(v.snapshot).message,
    ),
    Column(
        "metadata",
        pa.map_(pa.string(), pa.string()),
        "names and texts that its author gave it",
        lambda v: list(note_of(v.snapshot).metadata.items()) or None,
    ),
    Column(
        "branch",
        pa.string(),
        "branch whose content it changed; null: main",
        lambda v: v.snapshot.commit.branch,
    ),
    Column("refs", pa.list_(pa.string()), "tags and branches that name it", lambda v: v.refs),
    Column("added_rows", _COUNT, "rows it added", lambda v: v.snapshot.commit.added_rows),
    Column(
        "deleted_rows",
        _COUNT,
        "rows it deleted; null: nobody counted them",
        lambda v: v.snapshot.commit.removed_rows,
    ),
    Column("added_files", _COUNT, "data files it added", lambda v: v.snapshot.commit.added_files),
    Column(
        "removed_files",
        _COUNT,
        "data files it dropped or replaced",
        lambda v: v.snapshot.commit.removed_files,
    ),
    Column(
        "added_bytes",
        _COUNT,
        "bytes of the data files it added",
        lambda v: v.snapshot.commit.added_bytes,
    ),
    Column(
        "added_markers",
        _COUNT,
        "delete markers it added",
        lambda v: v.snapshot.commit.added_markers,
    ),
    Column(
        "removed_markers",
        _COUNT,
        "delete markers it dropped",
        lambda v: v.snapshot.commit.removed_markers,
    ),
    Column("files", _COUNT, "data files it has", lambda v: v.snapshot.totals.files),
    Column(
        "physical_rows",
        _COUNT,
        "rows stored in them, deleted ones included",
        lambda v: v.snapshot.totals.rows,
    ),
    Column("bytes", _COUNT, "bytes of its data files", lambda v: v.snapshot.totals.bytes),
    Column("markers", _COUNT, "delete markers it has", lambda v: v.snapshot.totals.markers),
    Column("commit_id", pa.string(), "commit id, unique for ever", lambda v: v.snapshot.commit.id),
)

SNAPSHOTS: tuple[Column[_Version], ...] = (
    *HISTORY,
    Column("schema_id", _COUNT, "its schema", lambda v: v.snapshot.schema_id),
    Column("spec_id", _COUNT, "its partition spec", lambda v: v.snapshot.spec_id),
    Column(
        "file_segments",
        _COUNT,
        "segments of file entries it refers to",
        lambda v: len(v.snapshot.files.segments),
    ),
    Column(
        "marker_segments",
        _COUNT,
        "segments of delete markers it refers to",
        lambda v: len(v.snapshot.markers.segments),
    ),
    Column(
        "ledger_segments",
        _COUNT,
        "segments of ledger records it refers to",
        lambda v: len(v.snapshot.ledger.records.segments),
    ),
    Column(
        "inline_entries",
        _COUNT,
        "entries of all three kinds in the snapshot itself",
        lambda v: (
            len(v.snapshot.files.inline)
            + len(v.snapshot.markers.inline)
            + len(v.snapshot.ledger.records.inline)
        ),
    ),
    Column("erasures", _COUNT, "erasures that were under way", lambda v: len(v.snapshot.erasures)),
)


@dataclass(frozen=True, slots=True)
class _Done:
    """The commits of one operation between two versions: each with the snapshot before it."""

    operation: str
    steps: Sequence[tuple[Snapshot, Snapshot]]

    def total(self, count: Callable[[Snapshot, Snapshot], int | None]) -> int | None:
        """None where one of them is unknown."""
        found = [count(before, after) for before, after in self.steps]
        return None if None in found else sum(n for n in found if n is not None)


DIFFERENCES: tuple[Column[_Done], ...] = (
    Column("operation", pa.string(), "what was done", lambda d: d.operation),
    Column("versions", _COUNT, "how many versions did it", lambda d: len(d.steps)),
    Column("added_rows", _COUNT, "rows added", lambda d: d.total(lambda _, v: v.commit.added_rows)),
    Column(
        "deleted_rows",
        _COUNT,
        "rows deleted; null: one of the deletes was not counted",
        lambda d: d.total(lambda _, v: v.commit.removed_rows),
    ),
    Column(
        "added_files",
        _COUNT,
        "data files added",
        lambda d: d.total(lambda _, v: v.commit.added_files),
    ),
    Column(
        "removed_files",
        _COUNT,
        "data files dropped or replaced",
        lambda d: d.total(lambda _, v: v.commit.removed_files),
    ),
    Column(
        "added_bytes",
        _COUNT,
        "bytes of the data files added",
        lambda d: d.total(lambda _, v: v.commit.added_bytes),
    ),
    Column(
        "removed_bytes",
        _COUNT,
        "bytes of the data files dropped or replaced",
        lambda d: d.total(
            lambda before, v: max(0, before.totals.bytes + v.commit.added_bytes - v.totals.bytes)
        ),
    ),
    Column(
        "added_markers",
        _COUNT,
        "delete markers added",
        lambda d: d.total(lambda _, v: v.commit.added_markers),
    ),
    Column(
        "removed_markers",
        _COUNT,
        "delete markers dropped",
        lambda d: d.total(lambda _, v: v.commit.removed_markers),
    ),
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
    return table_of(DIFFERENCES, (_Done(name, found) for name, found in steps.items()))


def history(ctx: Context, current: Snapshot, *, limit: int) -> pa.Table:
    """The newest `limit` versions that can still be opened, newest first."""
    oldest = max(current.oldest_version, current.version - limit + 1)
    return table_of(HISTORY, _load(ctx, current, range(current.version, oldest - 1, -1)))


def as_records(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows of `history` or `snapshots` as plain values, the metadata of each as a dict."""
    return [{**each, "metadata": dict(each["metadata"] or ())} for each in rows.to_pylist()]


def snapshots(ctx: Context, current: Snapshot) -> pa.Table:
    """Every version that can still be opened, newest first, including those that only a ref holds."""
    held = {ref.version for ref in current.refs.values()}
    kept = set(range(current.oldest_version, current.version + 1))
    return table_of(SNAPSHOTS, _load(ctx, current, sorted(kept | held, reverse=True)))


def _load(ctx: Context, current: Snapshot, versions: Iterable[int]) -> list[_Version]:
    names = _names(current)

    def load(version: int) -> Snapshot:
        # A branch's own totals from its beginning, main's before that.
        found = load_version(ctx, current, version)
        return load_seen(ctx, current, version) if ctx.branch in found.refs else found

    return [_Version(found, names.get(found.version, ())) for found in ctx.map(load, versions)]


def _names(current: Snapshot) -> Mapping[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = defaultdict(tuple)
    for name, ref in sorted(current.refs.items()):
        found[ref.version] += (name,)
    return found

"""The rows of an engine's commit: what its snapshot changes, as files and deletes of Inlay.

Promise: the change makes of the table's rows what Iceberg's own readers return of the engine's snapshot, or
is refused by name. It is the difference of two manifest *lists*, of what the engine began on and of what it
wrote: manifests in both are skipped, and the live entries of the others, old against new, are what was
added and removed; so merged manifests, replaced tables and several snapshots in one commit are understood
alike. Nothing that a manifest says of a file's rows is trusted: each new file is looked at as an adopted
one is (`ops.adopt`), and becomes the table's own where it lies; one that cannot be read as it is, or that
some engine would misread, is written again, and one whose footer is not the table's gets a copy that is.

Deletes by position become vectors, deletes by equal keys become markers by key. A delete may only go with
its file, or where another one covers it. The requests: two lists, the manifests in one of them only, and
for commits with deletes all manifests of data files; then those of adoption for each new file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap64

from inlay.errors import InvalidRequest, UnsupportedTable
from inlay.format import keys
from inlay.format.entry import DataFile, Marker
from inlay.format.keys import ObjectKind, classify
from inlay.format.snapshot import PartitionSpec, Segment, Snapshot
from inlay.iceberg.manifest import DATA, EQUALITY_DELETES, Manifest
from inlay.iceberg.schema import ends_early
from inlay.iceberg.source import SourceFile, SourceTable
from inlay.ops.adopt.adopt import Seen, as_own, look_at_all, written_again
from inlay.ops.adopt.foreign import Foreign, Naming, Sources
from inlay.ops.adopt.iceberg import (
    Deletes,
    entries_of,
    files_by_path,
    foreign_file,
    read_list,
)
from inlay.ops.context import Context
from inlay.ops.data import vector_markers
from inlay.ops.metadata.load import LoadedTable, load_segments
from inlay.ops.publish.files import Verdict, check_files
from inlay.ops.publish.settle import stamped_copy
from inlay.ops.write.keyed_rows import markers_of_keys
from inlay.plan.change import NeedSegments, Request
from inlay.plan.maintain.roots import CLOCK_MARGIN_SECONDS
from inlay.plan.metadata.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a snapshot has and its base has not, and the other way round. `live` are all its data files, by
    path; they are known only where deletes were added or removed."""

    added: tuple[SourceFile, ...] = ()
    removed: tuple[SourceFile, ...] = ()
    added_deletes: tuple[SourceFile, ...] = ()
    removed_deletes: tuple[SourceFile, ...] = ()
    live: Mapping[str, SourceFile] | None = None

    @property
    def is_append(self) -> bool:
        return not (self.removed or self.added_deletes or self.removed_deletes)


def difference(
    sources: Sources, table: SourceTable, before: str | None, after: str | None
) -> Difference:
    """Between the manifest lists at these paths; None is a table without rows."""
    old = () if before is None else read_list(sources, before)
    new = () if after is None else read_list(sources, after)
    shared = {m.path for m in old} & {m.path for m in new}

    def entries(manifests: Sequence[Manifest], *, data: bool) -> dict[object, SourceFile]:
        chosen = [m for m in manifests if m.path not in shared and (m.content == DATA) == data]
        found: dict[object, SourceFile] = {}
        for entry in entries_of(sources, table, chosen):
            name = (entry.path, entry.offset, entry.referenced)
            if name in found:
                raise UnsupportedTable(
                    f"the snapshot names {entry.path[:200]} twice",
                    next_step="Nothing was committed. Commit it once",
                )
            found[name] = entry
        return found

    def without(
        many: dict[object, SourceFile], others: Mapping[object, SourceFile]
    ) -> list[SourceFile]:
        return [entry for name, entry in many.items() if name not in others]

    old_data, new_data = entries(old, data=True), entries(new, data=True)
    old_deletes, new_deletes = entries(old, data=False), entries(new, data=False)
    found = Difference(
        added=tuple(without(new_data, old_data)),
        removed=tuple(without(old_data, new_data)),
        added_deletes=tuple(without(new_deletes, old_deletes)),
        removed_deletes=tuple(without(old_deletes, new_deletes)),
    )
    if not (found.added_deletes or found.removed_deletes):
        return found
    listed = [m for m in new if m.content == DATA]
    return replace(found, live=files_by_path(list(entries_of(sources, table, listed))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The same in Inlay's terms. `objects` are what the engine has written, each of which comes once;
    `sources_us` is when that was, by the key of the file that was made of it."""

    files: tuple[DataFile, ...]
    objects: tuple[Request, ...]
    removed: tuple[str, ...]
    markers: tuple[Marker, ...]
    sources_us: Mapping[str, int]


def rows_of(sources: Sources, table: SourceTable, base: LoadedTable, found: Difference) -> Rows:
    """`base` has the columns and the partitioning that the commit makes. Raises `UnsupportedTable`,
    `CorruptTable`, and what adoption raises of a file."""
    snapshot = base.snapshot
    files_by_path(found.added)
    for file in (*found.added, *found.added_deletes):
        if classify(_key(sources, file.path)) is not ObjectKind.DATA:
            raise InvalidRequest(
                f"the commit has a file outside of {keys.DATA}: {file.path[:200]}",
                next_step="Nothing was committed. Leave out write.data.path and the like: what lies "
                "elsewhere is neither collected nor erased",
            )
    spec_ids = _spec_ids(table, snapshot)
    foreign = Foreign(
        kind="Iceberg",
        version=str(table.snapshot_id),
        schema=snapshot.schema,
        last_field_id=snapshot.last_field_id,
        naming=Naming(True, table.names, last_id=table.last_field_id),
        files=tuple(foreign_file(sources, f, table, spec_ids) for f in found.added),
        specs=snapshot.specs,
        spec_id=snapshot.spec_id,
    )
    looked = look_at_all(sources, foreign, snapshot, copy=True)
    own = [None if s.again else _own(sources, base, s) for s in looked]
    # What a publication would have to change is changed now: the engine's commit is one.
    verdicts = check_files(sources.ctx, snapshot, [entry for entry in own if entry is not None])
    entries: list[DataFile] = []
    sources_us: dict[str, int] = {}
    for seen, entry in zip(looked, own, strict=True):
        verdict = Verdict() if entry is None else verdicts.get(entry.key, Verdict())
        for made in _made(sources, foreign, base, seen, entry, verdict):
            sources_us[made.key] = seen.modified_us
            entries.append(made)
    _check_new(sources.ctx, base, [e for e in own if e is not None], sources_us)
    return Rows(
        files=tuple(e for e in entries if e.rows),
        objects=tuple(seen.request for seen in looked),
        removed=tuple(_key(sources, f.path) for f in found.removed if f.rows),
        markers=tuple(_markers(sources, table, base, found)),
        sources_us=sources_us,
    )


def _spec_ids(table: SourceTable, snapshot: Snapshot) -> dict[int, int]:
    """Which of the table's specs each of the metadata's is; 0, where it is none, says nothing of a file."""

    def same(spec: PartitionSpec, fields: object) -> bool:
        return [(f.source, f.transform) for f in spec.fields] == fields

    found: dict[int, int] = {}
    for source in table.specs.values():
        fields = [(f.source, f.transform) for f in source.fields or ()]
        found[source.id] = next((s.id for s in snapshot.specs if same(s, fields)), 0)
    return found


def _own(sources: Sources, base: LoadedTable, seen: Seen) -> DataFile | None:
    """The file's entry, where it lies, under the schema that has its columns' names; None without one."""
    named = [s.id for s in base.snapshot.schemas if s.fields == seen.fields]
    if not named:
        return None
    current = base.snapshot.schema_id
    schema_id = current if current in named else named[-1]
    return replace(as_own(sources, seen.entry), schema_id=schema_id)


def _made(
    sources: Sources,
    foreign: Foreign,
    base: LoadedTable,
    seen: Seen,
    entry: DataFile | None,
    verdict: Verdict,
) -> tuple[DataFile, ...]:
    """The files that the table gets of one."""
    if verdict.reason:
        raise UnsupportedTable(
            f"a data file cannot be published: {verdict.reason}",
            next_step="Nothing was committed. Write its rows in another way, or by Inlay",
            key=seen.uri,
        )
    if entry is None or verdict.repack or ends_early(entry.key):
        return written_again(sources, foreign, base, seen)
    if verdict.stamp:
        output, _ = stamped_copy(sources.ctx, base, entry)
        return (replace(output, origin=None),)
    return (entry,)


def _check_new(
    ctx: Context, base: LoadedTable, own: Sequence[DataFile], sources_us: Mapping[str, int]
) -> None:
    """That no file is in the table already: its rows would be there twice. A leaf that is older than a file
    does not have it, so next to nothing is read for files that were written just now."""
    names = {entry.key for entry in own}
    margin_us = int(CLOCK_MARGIN_SECONDS * 1_000_000)
    oldest_us = min(sources_us.values(), default=0) - margin_us
    versions = (version for version, us in base.snapshot.time_index if us < oldest_us)
    before = max(versions, default=0)

    def may_have(segments: Sequence[Segment]) -> list[bool]:
        return [each.level > 0 or (each.sequence or 0) > before for each in segments]

    state = base.state
    while names and (missing := state.missing_files(may_have)):
        state = load_segments(ctx, state, NeedSegments(files=missing))
    for key in sorted(names & state.loaded_file_keys()):
        raise InvalidRequest(
            f"the commit adds {key[:200]}, which the table has already",
            next_step="Nothing was committed. Commit it once",
        )


def _key(sources: Sources, path: str) -> str:
    """The key of a data file in Inlay's entries, by its path in a manifest."""
    uri, root = sources.uri(path), f"{sources.root.uri.rstrip('/')}/"
    return uri.removeprefix(root)


# -- deletes --------------------------------------------------------------------------------------


def _markers(
    sources: Sources, table: SourceTable, base: LoadedTable, found: Difference
) -> Iterator[Marker]:
    if found.live is None:
        return
    ctx = sources.ctx
    applied = Deletes(sources, table, dict(found.live))
    by_key = [d for d in found.added_deletes if d.content == EQUALITY_DELETES]
    new = applied.positions(d for d in found.added_deletes if d.content != EQUALITY_DELETES)
    _check_covered(applied, found, new)
    added = {f.path for f in found.added}
    fresh = {sources.uri(path) for path in added}
    if any(uri in fresh for uri in new):
        raise UnsupportedTable(
            "the commit deletes by position rows of files that it adds",
            next_step="Write the files without those rows",
        )
    yield from vector_markers(ctx, base, {_key(sources, uri): rows for uri, rows in new.items()})
    older = {sources.uri(path) for path in found.live if path not in added}
    for delete in applied.keys(by_key):
        hit = set(delete.files) - fresh
        for marker in markers_of_keys(ctx, base, delete.keys, nulls="equal"):
            if hit == older:
                yield marker  # of the whole table: it cannot hit what comes with it or later
                continue
            for uri in sorted(hit):
                yield replace(marker, id=ctx.new_id(), file=_key(sources, uri))


def _check_covered(applied: Deletes, found: Difference, new: Mapping[str, BitMap64]) -> None:
    """That no row comes back: a delete goes with its file, or another one has its positions."""
    # What was published before has vectors and positions only.
    gone = applied.positions(found.removed_deletes)
    for uri, rows in gone.items():
        if not rows <= new.get(uri, BitMap64()):
            raise InvalidRequest(
                f"the commit takes back deletes of {uri}: deleted rows would be shown again",
                next_step="Restore an earlier version (`inlay restore`), or write the rows again",
            )


def planned_base(base: LoadedTable, snapshot: Snapshot) -> LoadedTable:
    """`base` with the columns and the partitioning of `snapshot`, to look at files by."""
    return replace(base, state=State(snapshot))

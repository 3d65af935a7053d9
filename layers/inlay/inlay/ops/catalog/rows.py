"""The rows of an engine's commit: what its snapshot changes, as files and deletes of Inlay.

Promise: the change makes of the table's rows what Iceberg's own readers return of the engine's snapshot, or
is refused by name. It is the difference of two manifest *lists*, of what the engine began on and of what it
wrote: manifests in both are skipped, and the live entries of the others, old against new, are what was
added and removed; so merged manifests, replaced tables and several snapshots in one commit are understood
alike. Nothing that a manifest says of a file's rows is trusted: each new file is looked at as an adopted
one is (`ops.adopt`), and becomes the table's own where it lies; one that cannot be read as it is, or that
some engine would misread, is written again, and one whose footer is not the table's gets a copy that is.

Deletes by position become the one vector of their file, which takes the place of the one that it had, so
that nothing is left to settle before the commit is published; deletes by equal keys become markers by key.
Both may be of files of the same commit: Flink brings a row and its deletion together. A delete may only go
with its file, or where another one covers it. The requests: two lists, the manifests in one of them only,
and for commits with deletes all manifests of data files, and the vectors of the files that they hit; then
those of adoption for each new file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyroaring import BitMap64

from inlay.errors import InvalidRequest, UnsupportedTable
from inlay.format import keys
from inlay.format.entry import DataFile, Marker, Vector
from inlay.format.keys import ObjectKind, classify
from inlay.format.snapshot import PartitionSpec, Segment, Snapshot
from inlay.iceberg.manifest import DATA, EQUALITY_DELETES, Manifest
from inlay.iceberg.schema import ends_early
from inlay.iceberg.source import SourceFile, SourceTable
from inlay.ops.adopt.adopt import Seen, as_own, look_at_all, written_again
from inlay.ops.adopt.foreign import Foreign, KeyDelete, Naming, Sources
from inlay.ops.adopt.iceberg import (
    Deletes,
    entries_of,
    files_by_path,
    foreign_file,
    read_list,
)
from inlay.ops.context import Context
from inlay.ops.metadata.find_file import load_file
from inlay.ops.metadata.load import LoadedTable, load_segments
from inlay.ops.publish.files import Verdict, check_files
from inlay.ops.publish.settle import stamped_copy
from inlay.ops.row_markers import puffin_markers, vector_markers
from inlay.ops.write.keyed_rows import markers_of_keys
from inlay.parquet.read.deleted_rows import load_vector
from inlay.plan.change import NeedSegments, Request, Unit
from inlay.plan.maintain.roots import CLOCK_MARGIN_SECONDS
from inlay.plan.metadata.state import State
from inlay.record import Record, field, replace


class Difference(Record, kw_only=True):
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
        by_place: dict[object, SourceFile] = {}
        for entry in entries_of(sources, table, chosen):
            name = (entry.path, entry.offset, entry.referenced)
            if name in by_place:
                raise UnsupportedTable(
                    f"the snapshot names {entry.path[:200]} twice",
                    next_step="Nothing was committed. Commit it once",
                )
            by_place[name] = entry
        return by_place

    def without(
        many: dict[object, SourceFile], others: Mapping[object, SourceFile]
    ) -> list[SourceFile]:
        return [entry for name, entry in many.items() if name not in others]

    old_data, new_data = entries(old, data=True), entries(new, data=True)
    old_deletes, new_deletes = entries(old, data=False), entries(new, data=False)
    changes = Difference(
        added=tuple(without(new_data, old_data)),
        removed=tuple(without(old_data, new_data)),
        added_deletes=tuple(without(new_deletes, old_deletes)),
        removed_deletes=tuple(without(old_deletes, new_deletes)),
    )
    if not (changes.added_deletes or changes.removed_deletes):
        return changes
    listed = [m for m in new if m.content == DATA]
    return replace(changes, live=files_by_path(list(entries_of(sources, table, listed))))


class Rows(Record, kw_only=True):
    """The same in Inlay's terms. `objects` are what the engine has written, each of which comes once;
    `sources_us` is when that was, by the key of the file that was made of it; `units` give files that are
    in the table their vectors."""

    files: tuple[DataFile, ...]
    objects: tuple[Request, ...]
    removed: tuple[str, ...]
    markers: tuple[Marker, ...]
    units: tuple[Unit, ...]
    sources_us: Mapping[str, int]


def rows_of(sources: Sources, table: SourceTable, base: LoadedTable, changes: Difference) -> Rows:
    """`base` has the columns and the partitioning that the commit makes. Raises `UnsupportedTable`,
    `CorruptTable`, and what adoption raises of a file."""
    snapshot = base.snapshot
    files_by_path(changes.added)
    for file in (*changes.added, *changes.added_deletes):
        if classify(_key(sources, file.path)) is not ObjectKind.DATA:
            raise InvalidRequest(
                f"the commit has a file outside of {keys.DATA}: {file.path[:200]}",
                next_step="Nothing was committed. Leave out write.data.path and the like: what lies "
                "elsewhere is neither collected nor erased",
            )
    spec_ids = _spec_ids(table, snapshot)
    deletes = _deletes(sources, table, changes)
    foreign = Foreign(
        kind="Iceberg",
        version=str(table.snapshot_id),
        schema=snapshot.schema,
        last_field_id=snapshot.last_field_id,
        naming=Naming(True, table.names, last_id=table.last_field_id),
        files=tuple(foreign_file(sources, f, table, spec_ids) for f in changes.added),
        specs=snapshot.specs,
        spec_id=snapshot.spec_id,
        positions=deletes.positions,
    )
    looked = look_at_all(sources, foreign, snapshot, copy=True)
    own = [None if s.again else _own(sources, base, s) for s in looked]
    # What a publication would have to change is changed now: the engine's commit is one.
    verdicts = check_files(sources.ctx, snapshot, [entry for entry in own if entry is not None])
    entries: list[DataFile] = []
    sources_us: dict[str, int] = {}
    made_of: dict[str, tuple[DataFile, ...]] = {}
    positions: dict[str, BitMap64] = {}
    for seen, entry in zip(looked, own, strict=True):
        verdict = Verdict() if entry is None else verdicts.get(entry.key, Verdict())
        kept = _kept(sources, base, seen, entry, verdict)
        # A file that is written again comes without the rows that are deleted.
        made = written_again(sources, foreign, base, seen) if kept is None else (kept,)
        if kept is not None and seen.uri in deletes.positions:
            positions[kept.key] = deletes.positions[seen.uri]
        made_of[seen.uri] = made
        entries += made
        sources_us |= {file.key: seen.modified_us for file in made}
    _check_new(sources.ctx, base, [e for e in own if e is not None], sources_us)
    fresh = tuple(vector_markers(sources.ctx, base, positions))
    return Rows(
        files=tuple(e for e in entries if e.rows),
        objects=tuple(seen.request for seen in looked),
        removed=tuple(_key(sources, f.path) for f in changes.removed if f.rows),
        markers=(*fresh, *_markers_by_key(sources, base, deletes, made_of)),
        units=_units(sources, base, deletes, made_of),
        sources_us=sources_us,
    )


def _spec_ids(table: SourceTable, snapshot: Snapshot) -> dict[int, int]:
    """Which of the table's specs each of the metadata's is; 0, where it is none, says nothing of a file."""

    def same(spec: PartitionSpec, fields: object) -> bool:
        return [(f.source, f.transform) for f in spec.fields] == fields

    ids: dict[int, int] = {}
    for source in table.specs.values():
        fields = [(f.source, f.transform) for f in source.fields or ()]
        ids[source.id] = next((s.id for s in snapshot.specs if same(s, fields)), 0)
    return ids


def _own(sources: Sources, base: LoadedTable, seen: Seen) -> DataFile | None:
    """The file's entry, where it lies, under the schema that has its columns' names; None without one."""
    named = [s.id for s in base.snapshot.schemas if s.fields == seen.fields]
    if not named:
        return None
    current = base.snapshot.schema_id
    schema_id = current if current in named else named[-1]
    return replace(as_own(sources, seen.entry), schema_id=schema_id)


def _kept(
    sources: Sources, base: LoadedTable, seen: Seen, entry: DataFile | None, verdict: Verdict
) -> DataFile | None:
    """The file that the table gets of one, with the same rows in the same places; None where it is to be
    written again."""
    if verdict.reason:
        raise UnsupportedTable(
            f"a data file cannot be published: {verdict.reason}",
            next_step="Nothing was committed. Write its rows in another way, or by Inlay",
            key=seen.uri,
        )
    if entry is None or verdict.repack or ends_early(entry.key):
        return None
    if verdict.stamp:
        output, _ = stamped_copy(sources.ctx, base, entry)
        return replace(output, origin=None)
    return entry


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
        return [segment.level > 0 or (segment.sequence or 0) > before for segment in segments]

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


class _Deletes(Record):
    """`positions` by URI of the data file, with those of the vectors `covered`, (object, place) each;
    `older` are the files that were there before the commit."""

    positions: Mapping[str, BitMap64] = field(default_factory=dict)
    covered: frozenset[tuple[str, int | None]] = frozenset()
    by_key: tuple[KeyDelete, ...] = ()
    older: frozenset[str] = frozenset()


def _deletes(sources: Sources, table: SourceTable, changes: Difference) -> _Deletes:
    """What the commit deletes. Raises `InvalidRequest` where a row would come back: a delete goes with its
    file, or another one has its positions."""
    if changes.live is None:
        return _Deletes()
    applied = Deletes(sources, table, dict(changes.live))
    by_key = [d for d in changes.added_deletes if d.content == EQUALITY_DELETES]
    positions = applied.positions(d for d in changes.added_deletes if d.content != EQUALITY_DELETES)
    # What was published before has vectors and positions only.
    for uri, rows in applied.positions(changes.removed_deletes).items():
        if not rows <= positions.get(uri, BitMap64()):
            raise InvalidRequest(
                f"the commit takes back deletes of {uri}: deleted rows would be shown again",
                next_step="Restore an earlier version (`inlay restore`), or write the rows again",
            )
    added = {f.path for f in changes.added}
    older = frozenset(sources.uri(path) for path in changes.live if path not in added)
    covered = frozenset((sources.uri(d.path), d.offset) for d in changes.removed_deletes)
    return _Deletes(positions, covered, tuple(applied.keys(by_key)), older)


def _markers_by_key(
    sources: Sources,
    base: LoadedTable,
    deletes: _Deletes,
    made_of: Mapping[str, tuple[DataFile, ...]],
) -> Iterator[Marker]:
    ctx = sources.ctx
    for delete in deletes.by_key:
        files = [
            key
            for uri in sorted(delete.files)
            for key in ([m.key for m in made_of[uri]] if uri in made_of else [_key(sources, uri)])
        ]
        for marker in markers_of_keys(ctx, base, delete.keys, nulls="equal"):
            if set(delete.files) == deletes.older:
                yield marker  # of the whole table: it cannot hit what comes with it or later
            else:
                yield from (replace(marker, id=ctx.new_id(), file=key) for key in files)


def _units(
    sources: Sources,
    base: LoadedTable,
    deletes: _Deletes,
    made_of: Mapping[str, tuple[DataFile, ...]],
) -> tuple[Unit, ...]:
    """Each file that is in the table, with one vector in place of those that it had: of all rows that are
    deleted in it by position."""
    ctx = sources.ctx
    positions = {
        _key(sources, uri): rows for uri, rows in deletes.positions.items() if uri not in made_of
    }
    if not positions:
        return ()
    state = base.state
    for key in positions:
        state = load_file(ctx, state, key)
    files = {f.key: f for f in state.loaded_files() if f.key in positions}
    before: dict[str, list[str]] = {key: [] for key in positions}
    for marker in state.markers():
        if marker.file not in files or not isinstance(marker.body, Vector):
            continue
        before[marker.file].append(marker.id)
        if (ctx.location(marker.body.key), marker.body.offset) not in deletes.covered:
            rows = load_vector(ctx.objects, marker.body, files[marker.file].rows)
            positions[marker.file] = positions[marker.file] | rows
    vectors = {m.file: m for m in puffin_markers(ctx, base, positions)}
    return tuple(
        Unit(
            (key,),
            (file,),
            base.snapshot.version,
            applied=frozenset(before[key]),
            carried=(vectors[key],),
        )
        for key, file in files.items()
    )


def planned_base(base: LoadedTable, snapshot: Snapshot) -> LoadedTable:
    """`base` with the columns and the partitioning of `snapshot`, to look at files by."""
    return replace(base, state=State(snapshot))

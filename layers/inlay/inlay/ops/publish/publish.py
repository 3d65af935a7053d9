"""Publish: the newest snapshot as an Iceberg table, for engines that do not know Inlay.

Promise: what is published equals the table at one version, row by row, or is not published: `Unpublishable`
names the obstacle, and the last good publication stays. A publication never goes back; racing and killed
publishers do no harm. The cost depends on what changed since the last publication.

1. settle     every delete becomes one vector for its file, files get the table's field ids; files that
              engines would misread are rewritten
2. manifests  of the groups of leaves that changed (`iceberg.grouping`), in parallel
3. list       one for the snapshot
4. metadata   `metadata/v<version>.metadata.json`
5. swap       the published pointer, If-Match: the only object that changes
6. hint       `metadata/version-hint.text`, for readers that follow paths, unless they are refused

Objects are written once under random names, so a lost swap leaves garbage but no damage. Metadata that
Inlay did not write, a commit by path of another engine, is never overwritten (`ForeignCommit`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any

from inlay.errors import (
    CorruptTable,
    InlayError,
    KeyTaken,
    OutcomeUnknown,
    SnapshotGone,
    Unpublishable,
    VersionNotFound,
)
from inlay.format import keys
from inlay.format.entry import DataFile, Marker, Vector
from inlay.format.partition import parse_transform
from inlay.format.properties import iceberg_properties
from inlay.format.snapshot import Snapshot, noted_versions
from inlay.iceberg.grouping import Group, groups_of, leaves_of_a_group
from inlay.iceberg.manifest import (
    POSITION_DELETES,
    Entry,
    Manifest,
    encode_list,
    encode_manifest,
)
from inlay.iceberg.metadata import (
    MAX_SNAPSHOTS,
    VERSION_HINT,
    Publication,
    Published,
    PublishedRef,
    decode_pointer,
    encode_pointer,
    engines_id,
    id_of_a_head,
    removed_ids,
    size_of,
    summary_of_a_branch,
    table_metadata,
    totals,
)
from inlay.iceberg.schema import (
    Bounds,
    Spec,
    Specs,
    bounds_of,
    ends_early,
    iceberg_type,
    refusals,
    schema_to_iceberg,
    specs_to_iceberg,
)
from inlay.notebook import Shown
from inlay.ops.commit.driver import decided
from inlay.ops.context import Context
from inlay.ops.metadata.find_file import load_file
from inlay.ops.metadata.load import (
    LoadedTable,
    load_again,
    load_entries,
    load_leaves,
    load_nodes,
    load_pointer,
    load_version,
    on_branch,
    read_main,
)
from inlay.ops.metadata.publication import (
    Found,
    Hint,
    hint_of,
    is_of,
    load_hint,
    load_metadata,
    load_publication,
    put_back,
    read_list,
    read_manifest,
    refuse_foreign,
    relative,
)
from inlay.ops.publish.files import check_files, puffin_sizes, write_position_deletes
from inlay.ops.publish.settle import (
    REWRITE_BYTES,
    asks_for_rows,
    is_concerned,
    is_settled,
    settle,
)
from inlay.plan.maintain.roots import CLOCK_MARGIN_SECONDS
from inlay.plan.metadata.state import State, live_entries
from inlay.plan.pruning.partitions import value_in
from inlay.plan.pruning.prune import Evidence
from inlay.record import LATER, Mutable, Record, field, replace
from inlay.storage.base import Got, Head, IfMatch, Missing, Refused, Written

# Others may commit and publish meanwhile: each round starts on the newest version.
MAX_ROUNDS = 8
# A publisher that takes longer gives up before it swaps: what it wrote may be collected by then.
MAX_SECONDS = 3_600.0
# Up to this many entries of files with vectors are looked up one by one.
FEW = 4


class PublishResult(Record, Shown, kw_only=True):
    """`version` is now published; `published` is False if it already was. `behind` versions have been
    committed since. `settled` files were settled first. `manifests` were written, `kept` reused."""

    version: int
    published: bool
    format: str
    behind: int = 0
    settled: int = 0
    settle_commits: int = 0
    files: int = 0
    manifests: int = 0
    kept: int = 0
    bytes: int = 0


class _Unfit(Record):
    """What settling has to correct before the snapshot can be published: files without the table's field
    ids, files with vectors that others do not find, files that others would misread."""

    stamp: frozenset[str] = frozenset()
    rewrite_vectors: frozenset[str] = frozenset()
    repack: frozenset[str] = frozenset()


def publish(
    ctx: Context,
    *,
    rebuild: bool = False,
    look_into_files: bool = True,
    base: LoadedTable | None = None,
) -> PublishResult:
    """Publishes the newest snapshot of main as its property `publish.format` says. `rebuild` starts from
    scratch, whatever is published. `look_into_files` False assumes that new files have the table's field
    ids. `base` is main as it was read a moment ago: one request less.

    Raises `Unpublishable`; `CorruptTable` for a damaged pointer, unless `rebuild`.
    """
    return publish_with_pointer(ctx, rebuild=rebuild, look_into_files=look_into_files, base=base)[0]


def publish_with_pointer(
    ctx: Context,
    *,
    rebuild: bool = False,
    look_into_files: bool = True,
    base: LoadedTable | None = None,
    seen: Found | None = None,
) -> tuple[PublishResult, bytes | None]:
    """`publish`, and the published pointer where it was written now. `seen` is the pointer as it was read a
    moment ago: one request less."""
    ctx = replace(ctx, branch=None)
    started = ctx.clock.monotonic()
    loaded = decided(ctx, base or load_pointer(ctx))
    ctx = replace(ctx, table_id=loaded.snapshot.table_id)
    loaded.refuse_handed_over(ctx)
    settled = commits = 0
    # The version whose rows are those since `rows_us`: what settles them here changes none.
    rows_version = rows_us = 0
    for _ in range(MAX_ROUNDS):
        # Before the pointer is swapped: whoever moves the hint meanwhile is found by its ETag.
        hint = load_hint(ctx)
        last, seen = seen or _found(ctx, rebuild=rebuild), None
        if last.publication is not None and last.publication.version > loaded.snapshot.version:
            # Others have committed and published since the table was read; or it was put back.
            loaded = decided(ctx, load_again(ctx, loaded))
        _check(ctx, loaded.snapshot, last.publication, rebuild=rebuild)
        if not rebuild and is_current(ctx, loaded.snapshot, last.publication):
            assert last.publication is not None
            refuse_foreign(ctx, last.publication, hint, look_ahead=False)
            _write_hint(ctx, last.publication, hint)
            return _result(loaded.snapshot, False, settled, commits), None
        # The next number need not be looked at where it is written, which finds what is there.
        version = loaded.snapshot.version
        follows = last.publication is not None and last.publication.version + 1 == version
        refuse_foreign(ctx, last.publication, hint, look_ahead=not follows)
        previous = None if rebuild else last.publication
        if previous is not None and not follows:
            previous = _with_named(ctx, loaded, previous, look_into_files)
        if version != rows_version:
            rows_version, rows_us = version, loaded.snapshot.commit.time_us
        attempt = _Attempt(ctx, loaded, previous, look_into_files, rows_us)
        unfit = attempt.prepare()
        if unfit is not None:
            loaded, count, times = _made_fit(attempt, unfit)
            if not unfit.repack:
                loaded = decided(ctx, load_again(ctx, loaded))
            settled, commits = settled + count, commits + times
            rows_version += times
            continue
        branches = attempt.branches()
        made = [
            _made_fit(branch, unfit)
            for branch in branches
            if isinstance(branch, _Attempt) and (unfit := branch.prepare()) is not None
        ]
        if made:
            times = sum(times for *_, times in made)
            settled, commits = settled + sum(files for _, files, _ in made), commits + times
            rows_version += times
            loaded = decided(ctx, load_pointer(ctx))
            continue
        if rebuild or last.publication is None:
            _drop_later_metadata(ctx, loaded)
        metadata, location = attempt.write(branches, rebuild=rebuild)
        if ctx.clock.monotonic() - started > MAX_SECONDS:
            raise Unpublishable("publishing took too long to be safe", table=ctx.uri)
        pointer = encode_pointer(metadata, location)
        if _swap(ctx, last, pointer):
            now = decided(ctx, load_again(ctx, replace(loaded, state=attempt.state)))
            moved, before = now.snapshot.boundary, loaded.snapshot.boundary
            # An erasure moved it in the version that was loaded, perhaps in the same second.
            if moved.version != before.version and (moved.time_us or 0) > loaded.date_us:
                # A collector began meanwhile: it may not have seen this publication and may have deleted
                # its objects as garbage. From now on it sees it: repeat, with new objects.
                loaded, rebuild = now, True
                continue
            _write_hint(ctx, decode_pointer(pointer), hint)
            counts = {"files": attempt.files, "manifests": attempt.written, "kept": attempt.kept}
            counts["bytes"] = attempt.bytes
            return _result(loaded.snapshot, True, settled, commits, **counts), pointer
        loaded = decided(ctx, load_again(ctx, replace(loaded, state=attempt.state)))
    raise Unpublishable(
        "others keep publishing or committing", next_step="Try again later", table=ctx.uri
    )


def _with_named(
    ctx: Context, loaded: LoadedTable, publication: Publication, look_into_files: bool
) -> Publication:
    """`publication` with the versions since then that engines committed, and whose snapshots they look for
    by the names that they gave: who made the next commit may be the first to publish. One whose deletes or
    files would have to be settled first is part of the next snapshot, like any version; so is every one
    while an erasure is open, whose rows they may have."""
    snapshot = loaded.snapshot
    if publication.table_id != snapshot.table_id or snapshot.erasures:
        return publication
    for version in noted_versions(snapshot):
        if not publication.version < version < snapshot.version:
            continue
        try:
            state = State(load_version(ctx, snapshot, version), loaded.state.contents)
            attempt = _Attempt(ctx, replace(loaded, state=state), publication, look_into_files)
            gone = removed_ids(attempt.snapshot) - {publication.current_id}
            kept = [s for s in publication.snapshots if s.id not in gone]
            if engines_id(attempt.snapshot) is None or not attempt.continues(publication):
                publication = replace(publication, snapshots=tuple(kept))
            elif attempt.prepare() is None:
                named, next_row_id = attempt.write_snapshot(publication.next_row_id)
                publication = attempt.after(publication, (*kept, named), next_row_id)
        except (CorruptTable, SnapshotGone, Unpublishable, VersionNotFound):
            continue  # it has expired, or could not be published
    return publication


def _made_fit(attempt: _Attempt, unfit: _Unfit) -> tuple[LoadedTable, int, int]:
    """What is to be published, corrected, how many files of it, by how many commits."""
    ctx, loaded = attempt.ctx, attempt.loaded
    if unfit.repack:
        return _repacked(ctx, loaded, unfit.repack)
    done = settle(ctx, loaded, stamp=unfit.stamp, rewrite_vectors=unfit.rewrite_vectors)
    return done.loaded, done.files, done.commits


def _repacked(
    ctx: Context, loaded: LoadedTable, keys: Collection[str]
) -> tuple[LoadedTable, int, int]:
    """The table with these files rewritten, how many, by how many commits."""
    from inlay.ops.maintain.compact import repack  # rare: files of unusual writers

    run = repack(ctx, loaded, keys, max_bytes=REWRITE_BYTES)
    if run.failures:
        failure = run.failures[0]
        raise Unpublishable(f"{failure.key}: {failure.error.message}", table=ctx.uri)
    if run.left:
        raise Unpublishable(
            f"{run.left} files ({run.left_bytes:,} bytes) are stored in a way that other engines misread",
            next_step=f"Publish again: each time rewrites some {REWRITE_BYTES:,} bytes of them",
            table=ctx.uri,
        )
    return run.loaded, len(run.done), run.commits


def _result(
    snapshot: Snapshot, published: bool, settled: int, commits: int, **counts: int
) -> PublishResult:
    return PublishResult(
        version=snapshot.version,
        published=published,
        format=snapshot.settings.text("publish.format"),
        settled=settled,
        settle_commits=commits,
        **counts,
    )


def _found(ctx: Context, *, rebuild: bool) -> Found:
    try:
        return load_publication(ctx)
    except CorruptTable:
        if not rebuild:
            raise
    answer = ctx.store.head(ctx.key(keys.PUBLISHED_POINTER))
    if isinstance(answer, Missing):
        return Found(None, None, answer.date_us)
    return Found(None, answer.info.etag, answer.date_us)


def _check(
    ctx: Context, snapshot: Snapshot, publication: Publication | None, *, rebuild: bool
) -> None:
    version = _format_version(snapshot)
    if not version:
        raise Unpublishable(
            "the table is not set to be published",
            next_step="Set its property publish.format to v3 or v2",
            table=ctx.uri,
        )
    reasons = refusals(snapshot.schema, format_version=version)
    if ends_early(_root(ctx)):
        reasons = (*reasons, "its folder has a # or ? in its name, where engines end a location")
    if reasons:
        raise Unpublishable("; ".join(reasons), table=ctx.uri, version=snapshot.version)
    if publication is None or rebuild:
        return
    reason = put_back(publication, snapshot)
    if reason:
        raise Unpublishable(
            reason,
            next_step="`inlay publish --rebuild` publishes the table as it is",
            table=ctx.uri,
        )


def _format_version(snapshot: Snapshot) -> int:
    chosen = snapshot.settings.text("publish.format")
    return {"v3": 3, "v2": 2}.get(chosen, 0)


def is_published_whole(ctx: Context, snapshot: Snapshot) -> bool:
    """Whether what is published is this snapshot, as its property says; False for a damaged pointer."""
    try:
        return is_current(ctx, snapshot, load_publication(ctx).publication)
    except CorruptTable:
        return False


def is_current(ctx: Context, snapshot: Snapshot, publication: Publication | None) -> bool:
    return (
        publication is not None
        and publication.table_id == snapshot.table_id
        and publication.version == snapshot.version
        and is_of(publication, snapshot)
        and publication.format_version == _format_version(snapshot)
        and publication.root == _root(ctx)
    )


def _root(ctx: Context) -> str:
    return ctx.location("").rstrip("/")


def _retyped(snapshot: Snapshot) -> list[tuple[int, str]]:
    """The columns whose type was another one in some version, with the type that they have now."""
    types: dict[int, set[str]] = {}
    for schema in snapshot.schemas:
        for field_id, kind in schema.types.items():
            types.setdefault(field_id, set()).add(str(iceberg_type(kind)))
    now = {i: str(iceberg_type(kind)) for i, kind in snapshot.schema.types.items()}
    return sorted((i, now.get(i, "")) for i, kinds in types.items() if len(kinds) > 1)


def _digest(value: object) -> str:
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def _fingerprint(ctx: Context, snapshot: Snapshot, specs: Specs) -> str:
    """What every manifest depends on besides its entries. When it changes, all are rewritten."""
    return _digest(
        [
            "2",
            snapshot.table_id,
            _format_version(snapshot),
            _root(ctx),
            [s.to_json() for s in specs.by_id.values()],
            _retyped(snapshot),
        ]
    )


# -- one attempt ----------------------------------------------------------------------------------


class _Attempt(Mutable):
    """The publication of one snapshot: what is reused from the last one, and what is new."""

    ctx: Context
    loaded: LoadedTable
    previous: Publication | None
    look_into_files: bool
    # Since when the rows are these; None: since the version was committed. DuckDB reads the newest snapshot
    # that is no younger than its query, for which this publisher may just have settled them.
    rows_us: int | None = None
    files: int = 0
    written: int = 0
    kept: int = 0
    bytes: int = 0
    of_a_group: int = 1
    state: State = LATER
    specs: Specs = LATER
    fingerprint: str = LATER
    types: str = LATER
    _manifests: dict[str, list[Manifest]] = field(default_factory=dict)  # of the last one, by group
    _known: dict[str, Entry] = field(default_factory=dict)  # entries of groups that changed
    _data: list[tuple[Group, list[DataFile]]] = field(default_factory=list)
    _deletes: list[tuple[Group, list[tuple[Marker, DataFile]]]] = field(default_factory=list)
    _groups: tuple[tuple[Group, ...], tuple[Group, ...]] = ((), ())
    _sizes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        snapshot = self.loaded.snapshot
        self.state = self.loaded.state
        self.specs = specs_to_iceberg(snapshot.specs, snapshot.schema)
        self.fingerprint = _fingerprint(self.ctx, snapshot, self.specs)
        self.types = _digest(_retyped(snapshot))
        if self.previous is not None and self.previous.table_id != snapshot.table_id:
            self.previous = None

    @property
    def snapshot(self) -> Snapshot:
        return self.loaded.snapshot

    @property
    def snapshot_id(self) -> int:
        """The version, or what the engine that committed it calls it: unless a snapshot has the name, for
        a note may say anything."""
        version = self.snapshot.version
        own = engines_id(self.snapshot, self.ctx.branch)
        others = self._published()
        head = self.head
        if head is not None:
            before = next((s.id for s in others if s.head == head), None)
            taken = any(own in (s.id, s.version) for s in others)
            return before or (id_of_a_head(head) if own is None or taken else own)
        taken = any(own in (s.id, s.version) and s.version != version for s in others)
        return version if own is None or taken else own

    @property
    def head(self) -> str | None:
        """Of a branch: the object with its content."""
        if self.ctx.branch is None:
            return None
        head = self.loaded.pointer.refs[self.ctx.branch].head
        assert head is not None
        return head.id

    def _published(self) -> tuple[Published, ...]:
        """The snapshots of the last publication."""
        previous = self.previous
        return () if previous is None else (*previous.snapshots, *previous.branches)

    @property
    def parent(self) -> int | None:
        """The published snapshot that this one follows."""
        if self.previous is None:
            return None
        if self.ctx.branch is None:
            return self.previous.current.id
        ref = self.loaded.pointer.refs[self.ctx.branch]
        of_main = (s.id for s in self.previous.snapshots if s.version == ref.base)
        of_branch = (
            s.id
            for s in self.previous.branches
            if s.branch == self.ctx.branch and s.head != self.head and s.version >= ref.since
        )
        return next(chain(of_branch, of_main), None)

    @property
    def format_version(self) -> int:
        return _format_version(self.snapshot)

    def branches(self) -> tuple[Published | _Attempt, ...]:
        """Of each branch with a content of its own: the snapshot that is published already, or one to
        publish. A branch with other columns than main is left out: engines read branches by the columns of
        main."""
        snapshot, previous = self.snapshot, self.previous
        if previous is not None and not self.continues(previous):
            previous = None
        asked = max((e.opened_version for e in snapshot.erasures if e.predicate), default=0)
        of_name = {s.branch: s for s in previous.branches} if previous else {}
        of_head = {s.head: s for s in of_name.values()}
        heads: dict[str, Published | _Attempt] = {}
        for name, ref in snapshot.refs.items():
            if not ref.is_branch or ref.head is None or ref.head.id in heads:
                continue
            known = of_head.get(ref.head.id)
            if known is not None and known.version >= asked:
                if known.schema_id == snapshot.schema_id:
                    heads[ref.head.id] = known
                continue
            at = replace(self.ctx, branch=name)
            view = on_branch(at, self.loaded)
            if view.snapshot.schema_id != snapshot.schema_id:
                continue
            basis = previous
            if previous is not None and name in of_name:
                basis = replace(previous, current_id=of_name[name].id)
            heads[ref.head.id] = _Attempt(at, view, basis, self.look_into_files)
        return tuple(heads.values())

    def continues(self, previous: Publication) -> bool:
        """Whether older snapshots of the last publication are published again."""
        return previous.format_version == self.format_version and previous.root == _root(self.ctx)

    def after(
        self, previous: Publication, snapshots: tuple[Published, ...], next_row_id: int
    ) -> Publication:
        """`previous` as it would be with this snapshot, the last of `snapshots`, upon it."""
        return replace(
            previous,
            version=self.snapshot.version,
            current_id=snapshots[-1].id,
            snapshots=snapshots,
            schemas=(*previous.schemas, self._schema()),
            specs=tuple(s.to_json() for s in self.specs.by_id.values()),
            next_row_id=next_row_id,
            fingerprint=self.fingerprint,
            types=self.types,
            leaves_of_a_group=self.of_a_group,
        )

    # -- what is there ------------------------------------------------------------------------

    def prepare(self) -> _Unfit | None:
        """Loads what is new; returns what has to be settled first, if anything."""
        self.state = load_entries(self.ctx, self.state, files=False)
        markers = list(self.state.markers())
        if not is_settled(markers):
            return _Unfit()
        if asks_for_rows(self.snapshot):
            self.state = load_entries(self.ctx, self.state)
            if is_concerned(self.state):
                return _Unfit()
        self.state = load_nodes(self.ctx, self.state)
        snapshot = self.snapshot
        leaves = self.state.open_files().leaves
        before = self.previous.leaves_of_a_group if self.previous is not None else None
        self.of_a_group = leaves_of_a_group(len(leaves), before)
        data = groups_of(
            leaves, [f.key for f in snapshot.files.inline], self.fingerprint, self.of_a_group
        )
        deletes = groups_of(
            self.state.open_markers().leaves,
            [f"{m.id}:{m.file}" for m in snapshot.markers.inline],
            self.fingerprint + "d",
            self.of_a_group,
        )
        self._groups = (data, deletes)
        self._take_over({g.digest for g in (*data, *deletes)})
        new = [g for g in data if g.digest not in self._manifests]
        self.state = load_leaves(self.ctx, self.state, (s for g in new for s in g.leaves))
        self._data += [(group, list(self._entries(group))) for group in new]
        unfit = self._judge_files()
        if unfit is not None:
            return unfit
        return self._prepare_deletes([g for g in deletes if g.digest not in self._manifests])

    def _entries(self, group: Group) -> Iterator[DataFile]:
        if not group.leaves:
            yield from self.snapshot.files.inline
        for leaf in group.leaves:
            for _, entry in live_entries(leaf, self.state.contents.files[leaf.id]):
                yield entry

    def _markers(self, group: Group) -> Iterator[Marker]:
        if not group.leaves:
            yield from self.snapshot.markers.inline
        for leaf in group.leaves:
            for _, marker in live_entries(leaf, self.state.contents.markers[leaf.id]):
                yield marker

    def _take_over(self, digests: set[str]) -> None:
        """Reuses manifests of the last publication by their group, and loads the entries of the others.
        Without a usable last publication everything is rewritten: correctness does not depend on it."""
        previous = self.previous
        if previous is None:
            return
        try:
            listed = read_list(self.ctx, previous, previous.current)
            old = [m for m in listed if _group_of(m) not in digests]
            reads = self.ctx.map(lambda m: read_manifest(self.ctx, previous, m), old)
            known = {_known_as(r.entry): r.entry for entries in reads for r in entries}
        except (SnapshotGone, CorruptTable):
            self.previous = None
            return
        if previous.fingerprint == self.fingerprint:
            for manifest in listed:
                if _group_of(manifest) in digests:
                    self._manifests.setdefault(_group_of(manifest), []).append(manifest)
        self._known = known

    def _judge_files(self) -> _Unfit | None:
        if not self.look_into_files:
            return None
        new = [f for _, entries in self._data for f in entries if f.rows and not self._passed(f)]
        verdicts = check_files(self.ctx, self.snapshot, new)
        lacking = {f.key: self._lacks(f) for _, entries in self._data for f in entries if f.rows}
        reasons = {key: why for key, why in lacking.items() if why}
        reasons |= {k: v.reason for k, v in verdicts.items() if v.reason}
        if reasons:
            shown = "; ".join(f"{key}: {why}" for key, why in sorted(reasons.items())[:5])
            more = f" (and {len(reasons) - 5} more)" if len(reasons) > 5 else ""
            raise Unpublishable(shown + more, table=self.ctx.uri, version=self.snapshot.version)
        repack = frozenset(k for k, v in verdicts.items() if v.repack)
        if repack:
            return _Unfit(repack=repack)
        stamp = frozenset(k for k, v in verdicts.items() if v.stamp)
        return _Unfit(stamp=stamp) if stamp else None

    def _lacks(self, file: DataFile) -> str:
        """Why engines would miss a column that only the file's partition has; empty where they read it
        there (Iceberg's specification, "Column Projection"), or there is none."""
        recorded = self.snapshot.schema_by_id(file.schema_id)
        if not recorded.in_partition:
            return ""
        columns = self._spec_of(file).columns
        said = {c.source for c in columns if c.transform == parse_transform("identity")}
        for column in self.snapshot.schema.fields:
            was = recorded.in_partition.get(column.id)
            hidden = was is not None and (
                column.id not in said
                # Some readers take the default where a partition is NULL.
                or (column.default is not None and value_in(was, file.partition) is None)
            )
            if hidden:
                return (
                    f"column {column.name!r} is only in its partition, where engines would not find it: "
                    "adopt its table with copy"
                )
        return ""

    def _passed(self, file: DataFile) -> bool:
        """Whether the file passed for the last publication, and its columns have the same types now."""
        if self.ctx.location(file.key) not in self._known:
            return False
        if self.previous is not None and self.previous.types == self.types:
            return True
        recorded = self.snapshot.schema_by_id(file.schema_id).types
        return all(recorded.get(i, now) == now for i, now in self.snapshot.schema.types.items())

    def _prepare_deletes(self, groups: Sequence[Group]) -> _Unfit | None:
        of_group = [(g, list(self._markers(g))) for g in groups]
        markers = [m for _, markers_of in of_group for m in markers_of]
        live = self._files_of([m.file for m in markers if m.file is not None])
        new = [
            m for m in markers if m.file in live and _vector_text(self.ctx, m) not in self._known
        ]
        self._sizes = (
            puffin_sizes(self.ctx, new) if self.look_into_files else {m.id: 1 for m in new}
        )
        rewrite = frozenset(m.file for m in new if m.id not in self._sizes and m.file is not None)
        if rewrite:
            return _Unfit(rewrite_vectors=rewrite)
        self._deletes = [
            (g, [(m, live[m.file]) for m in markers_of if m.file is not None and m.file in live])
            for g, markers_of in of_group
        ]
        return None

    def _files_of(self, names: Sequence[str]) -> Mapping[str, DataFile]:
        """The live entries of these files."""
        if names and len(names) <= FEW:
            for name in names:
                self.state = load_file(self.ctx, self.state, name)
        elif names:
            at_hand = self.state.loaded_file_keys()
            if any(n not in at_hand for n in names):
                self.state = load_entries(self.ctx, self.state)
        keys = set(names)
        return {f.key: f for f in self.state.loaded_files() if f.key in keys}

    # -- what is written ----------------------------------------------------------------------

    def write(
        self, branches: Sequence[Published | _Attempt], *, rebuild: bool
    ) -> tuple[Mapping[str, object], str]:
        """Writes manifests, lists and metadata; returns the metadata and its location."""
        next_row_id = self.previous.next_row_id if self.previous is not None else 0
        published: list[Published] = []
        for branch in branches:
            if isinstance(branch, _Attempt):
                branch, next_row_id = branch.write_snapshot(next_row_id)
            published.append(branch)
        current, next_row_id = self.write_snapshot(next_row_id)
        metadata = self._metadata(current, published, next_row_id)
        return self._write_metadata(metadata, rebuild=rebuild)

    def _schema(self) -> dict[str, Any]:
        return schema_to_iceberg(
            self.snapshot.schema,
            format_version=self.format_version,
            primary_key=self.snapshot.primary_key,
        )

    def write_snapshot(self, next_row_id: int) -> tuple[Published, int]:
        """Writes manifests and list; returns the snapshot, and the first row id after it."""
        version = self.snapshot.version
        first_row_id = next_row_id
        jobs: list[tuple[str, Spec, int, list[Entry], int]] = []
        for group, files in self._data:
            for spec, entries in self._data_entries(files):
                start = next_row_id
                placed: list[Entry] = []
                for entry in entries:
                    if self.format_version >= 3 and entry.first_row_id is None:
                        entry = replace(entry, first_row_id=next_row_id)
                        next_row_id += entry.rows
                    placed.append(entry)
                jobs.append((group.digest, spec, 0, placed, start))
                self.files += sum(1 for e in placed if not e.snapshot_id)
        for group, pairs in self._deletes:
            for spec, entries in self._delete_entries(pairs):
                jobs.append((group.digest, spec, 1, entries, 0))
        schema = self._schema()

        def put(job: tuple[str, Spec, int, list[Entry], int]) -> Manifest:
            digest, spec, content, entries, start = job
            name = f"{'d' if content else 'm'}-{digest}-{spec.id}-{self.ctx.new_id()}.avro"
            key = keys.published_key(name)
            data, manifest = encode_manifest(
                entries,
                path=self.ctx.location(key),
                spec=spec,
                schema=schema,
                content=content,
                version=version,
                snapshot_id=self.snapshot_id,
                format_version=self.format_version,
                sync=_sync(name),
            )
            self.ctx.write_once(key, data)
            first = start if self.format_version >= 3 and not content else None
            return replace(manifest, first_row_id=first)

        new: dict[str, list[Manifest]] = {}
        for job, manifest in zip(jobs, self.ctx.map(put, jobs), strict=True):
            new.setdefault(job[0], []).append(manifest)
            self.written += 1
            self.bytes += manifest.size
        manifests = [
            m
            for groups in self._groups
            for g in groups
            for m in new.get(g.digest, self._manifests.get(g.digest, ()))
        ]
        self.kept = len(manifests) - self.written
        sizes = sum(e.stored for *_, entries, _ in jobs for e in entries)
        listing = self._write_list(manifests, first_row_id)
        name, head = self.ctx.branch, self.head
        own = {} if name is None or head is None else summary_of_a_branch(name, head)
        current = Published(
            version=version,
            id=self.snapshot_id,
            time_us=self.rows_us or self.snapshot.commit.time_us,
            manifest_list=listing,
            schema_id=self.snapshot.schema_id,
            parent=self.parent,
            first_row_id=first_row_id,
            added_rows=next_row_id - first_row_id,
            summary={
                "operation": self._operation(),
                "inlay.operation": self.snapshot.commit.operation,
                **totals(manifests, self._total_size(sizes)),
                **own,
            },
        )
        return current, next_row_id

    def _total_size(self, new: int) -> int | None:
        """The bytes of all that is published: those of the last publication, without the manifests that are
        not in this one, and `new` ones. None: the last one does not say its own."""
        if self.previous is None:
            return new
        before = size_of(self.previous.current)
        return (
            None if before is None else before - sum(e.stored for e in self._known.values()) + new
        )

    def _operation(self) -> str:
        """Iceberg's name for the operation since the last publication."""
        if self.previous is None:
            return "append"
        gone = sum(not e.content for e in self._known.values()) > sum(
            1 for _, files in self._data for f in files if self.ctx.location(f.key) in self._known
        )
        return "overwrite" if gone or self._deletes else "append"

    def _data_entries(self, files: Iterable[DataFile]) -> Iterator[tuple[Spec, list[Entry]]]:
        evidence = Evidence.of_snapshot(self.snapshot)
        current = self.snapshot.schema.types
        by_spec: dict[int, list[Entry]] = {}
        for file in files:
            if not file.rows:
                continue
            bounds: dict[int, Bounds] = {}
            for field_id in file.stats:
                stats = evidence.column(file, field_id)
                if stats is not None and field_id in current:
                    bounds[field_id] = bounds_of(current[field_id], stats)
            spec = self._spec_of(file)
            path = self.ctx.location(file.key)
            entry = Entry(
                path=path,
                size=file.size,
                rows=file.rows,
                partition=file.partition if spec.columns else (),
                bounds=bounds,
            )
            by_spec.setdefault(spec.id, []).append(self._as_known(path, entry))
        for spec_id, entries in by_spec.items():
            yield self.specs.by_id[spec_id], entries

    def _delete_entries(
        self, pairs: Iterable[tuple[Marker, DataFile]]
    ) -> Iterator[tuple[Spec, list[Entry]]]:
        by_spec: dict[int, list[Entry]] = {}
        writes: list[tuple[int, Marker, DataFile, Entry]] = []
        for marker, file in pairs:
            vector = marker.body
            assert isinstance(vector, Vector)
            spec = self._spec_of(file)
            entry = Entry(
                path=self.ctx.location(vector.key),
                size=self._sizes.get(marker.id, 0),
                rows=vector.rows,
                content=POSITION_DELETES,
                file_format="PUFFIN",
                partition=file.partition if spec.columns else (),
                referenced=self.ctx.location(file.key),
                offset=vector.offset,
                length=vector.length,
            )
            known = self._known.get(_vector_text(self.ctx, marker))
            if known is not None:
                entry = replace(
                    entry,
                    size=known.size,
                    snapshot_id=known.snapshot_id,
                    sequence=known.sequence,
                )
            writes.append((spec.id, marker, file, entry))
        entries: Iterable[Entry] = (entry for *_, entry in writes)
        if self.format_version < 3:
            entries = self.ctx.map(
                lambda w: write_position_deletes(self.ctx, w[1], w[2], w[3], self._known), writes
            )
        for (spec_id, *_), entry in zip(writes, entries, strict=True):
            by_spec.setdefault(spec_id, []).append(entry)
        for spec_id, entries in by_spec.items():
            yield self.specs.by_id[spec_id], entries

    def _spec_of(self, file: DataFile) -> Spec:
        recorded = self.snapshot.schema_by_id(file.schema_id).fields_by_id
        return self.specs.of(file.spec_id, file.partition, recorded)

    def _as_known(self, path: str, entry: Entry) -> Entry:
        known = self._known.get(path)
        if known is None:
            return entry
        return replace(
            entry,
            snapshot_id=known.snapshot_id,
            sequence=known.sequence,
            first_row_id=known.first_row_id if self.format_version >= 3 else None,
        )

    def _write_list(self, manifests: Sequence[Manifest], first_row_id: int) -> str:
        version = self.snapshot.version
        name = f"l-{version}-{self.ctx.new_id()}.avro"
        data = encode_list(
            manifests,
            version=version,
            snapshot_id=self.snapshot_id,
            parent=self.parent,
            first_row_id=first_row_id,
            format_version=self.format_version,
            sync=_sync(name),
        )
        key = keys.published_key(name)
        self.ctx.write_once(key, data)
        self.bytes += len(data)
        return self.ctx.location(key)

    def _metadata(
        self, current: Published, branches: Sequence[Published], next_row_id: int
    ) -> dict[str, object]:
        snapshot = self.snapshot
        older: tuple[Published, ...] = ()
        previous = self.previous
        if previous is not None and self.continues(previous):
            removed = removed_ids(snapshot)
            kept = [
                s
                for s in previous.snapshots
                if snapshot.oldest_version <= s.version < snapshot.version and s.id not in removed
            ]
            tagged = {r.version for r in snapshot.refs.values() if r.head is None}
            older = tuple(
                s
                for n, s in enumerate(kept)
                if n > len(kept) - MAX_SNAPSHOTS or s.version in tagged
            )
        snapshots = (*older, current)
        ids = {s.version: s.id for s in snapshots}
        heads = {s.head: s.id for s in branches}
        refs = {
            name: PublishedRef(ref.kind, shown)
            for name, ref in snapshot.refs.items()
            if (shown := ids.get(ref.version) if ref.head is None else heads.get(ref.head.id))
            and (ref.head is None or ref.is_branch)
        }
        used = {s.schema_id for s in snapshots} - {snapshot.schema_id}
        history = [s for s in (previous.schemas if previous else ()) if s["schema-id"] in used]
        # Manifests of older snapshots may be of a spec that is not published any more; one of a column that
        # was dropped cannot be bound to the schema, and readers refuse the table.
        columns = snapshot.schema.fields_by_id
        specs = [
            spec
            for spec in (previous.specs if previous and older else ())
            if spec["spec-id"] not in self.specs.by_id
            and all(f["source-id"] in columns for f in spec["fields"])
        ]
        is_hinted = snapshot.settings.text("publish.version_hint") == "yes"
        no_hint = {} if is_hinted else {VERSION_HINT: "no"}
        return table_metadata(
            table_id=snapshot.table_id,
            root=_root(self.ctx),
            format_version=self.format_version,
            snapshots=snapshots,
            schemas=[*history, self._schema()],
            schema_id=snapshot.schema_id,
            last_field_id=snapshot.last_field_id,
            specs=self.specs,
            older_specs=specs,
            spec_id=snapshot.spec_id,
            refs=refs,
            branches=branches,
            next_row_id=next_row_id,
            properties={
                **iceberg_properties(snapshot.properties),
                # What other versions of the table need is no orphan: cleaners that know only Iceberg's
                # metadata refuse (Iceberg Java) where this is said.
                "gc.enabled": "false",
                "inlay.fingerprint": self.fingerprint,
                "inlay.types": self.types,
                "inlay.commit": snapshot.commit.id,
                "inlay.leaves-of-a-group": str(self.of_a_group),
                **no_hint,
            },
        )

    def _write_metadata(
        self, metadata: dict[str, object], *, rebuild: bool
    ) -> tuple[Mapping[str, object], str]:
        """The metadata of a version has one name. If another publisher wrote it, that object is used if it
        is whole: two of the same version differ in names of objects only."""
        key = keys.published_metadata_key(self.snapshot.version)
        location = self.ctx.location(key)
        data = json.dumps(metadata, separators=(",", ":"), ensure_ascii=False).encode()
        self.bytes += len(data)
        if not rebuild:
            try:
                self.ctx.write_once(key, data)
                return metadata, location
            except KeyTaken:
                other = self._other(key, location)
            if other is not None:
                return other, location
        # What is there was left behind by a crash, or by a table that was removed. If our own table was
        # removed, its successor may have published this version number: look at the object, then check the
        # pointer, and overwrite only the object that was seen. What another engine wrote stays.
        there = self.ctx.store.head(self.ctx.key(key))
        if isinstance(there, Head):
            load_metadata(self.ctx, self.snapshot.version)
        read_main(self.ctx)
        try:
            self.ctx.write_once(
                key, data, over=there.info.etag if isinstance(there, Head) else None
            )
        except KeyTaken as error:
            raise Unpublishable(
                f"another publisher has written {key}",
                next_step="Publish again",
                table=self.ctx.uri,
            ) from error
        return metadata, location

    def _other(self, key: str, location: str) -> Mapping[str, object] | None:
        answer = self.ctx.store.get(self.ctx.key(key))
        if isinstance(answer, Missing | Refused):
            return None
        try:
            metadata: Mapping[str, object] = json.loads(answer.body)
            other = decode_pointer(encode_pointer(metadata, location))
            listed = read_list(self.ctx, other, other.current)
        except (ValueError, InlayError):
            return None
        fits = (
            other.version == self.snapshot.version
            and other.table_id == self.snapshot.table_id
            and other.fingerprint == self.fingerprint
            and is_of(other, self.snapshot)
            and min(s.version for s in other.snapshots) >= self.snapshot.oldest_version
            and all(
                not isinstance(
                    self.ctx.store.head(self.ctx.key(relative(self.ctx, other, m.path))), Missing
                )
                for m in listed
            )
        )
        return metadata if fits else None


def _group_of(manifest: Manifest) -> str:
    """The digest of a manifest's group, from its name."""
    parts = manifest.path.rsplit("/", 1)[-1].split("-")
    return parts[2] if len(parts) > 3 else ""


def _vector_text(ctx: Context, marker: Marker) -> str:
    assert isinstance(marker.body, Vector) and marker.file is not None
    return f"{ctx.location(marker.body.key)}#{marker.body.offset}#{ctx.location(marker.file)}"


def _known_as(entry: Entry) -> str:
    return entry.path if entry.offset is None else f"{entry.path}#{entry.offset}#{entry.referenced}"


def _sync(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=16).digest()


# -- the pointer and the hint ---------------------------------------------------------------------


def _swap(ctx: Context, over: Found, body: bytes) -> bool:
    """Whether the pointer is this publication now. The answer of the PUT is not trusted: it is read
    back."""
    failure: InlayError | None = None
    try:
        if over.etag is None:
            ctx.write_once(keys.PUBLISHED_POINTER, body)
            return True
        pointer = ctx.key(keys.PUBLISHED_POINTER)
        if isinstance(ctx.store.put(pointer, body, condition=IfMatch(over.etag)), Written):
            return True
    except KeyTaken:
        return False
    except InlayError as error:
        failure = error
    now = ctx.store.get(ctx.key(keys.PUBLISHED_POINTER))
    if not isinstance(now, Missing | Refused) and now.body == body:
        return True
    if failure is not None and not isinstance(failure, OutcomeUnknown):
        raise failure
    return False


def _write_hint(ctx: Context, published: Publication, hint: Hint) -> None:
    """Never goes back: `hint` was read before `published` was, so a delayed publisher finds that a newer
    one has moved it. A damaged hint is replaced, that of a commit by path is not."""
    for _ in range(MAX_ROUNDS):
        text = hint_of(published)
        if hint.text == text:
            return
        body = text.encode()
        if hint.etag is None:
            try:
                ctx.write_once(keys.VERSION_HINT, body)
                return
            except KeyTaken:
                pass
        else:
            swap = IfMatch(hint.etag)
            if isinstance(ctx.store.put(ctx.key(keys.VERSION_HINT), body, condition=swap), Written):
                return
        hint = load_hint(ctx)
        newest = load_publication(ctx).publication
        if newest is None:
            return
        published = newest
        refuse_foreign(ctx, newest, hint, look_ahead=False)


def _drop_later_metadata(ctx: Context, loaded: LoadedTable) -> None:
    """Readers of a folder look for a newer metadata file than the hint names (Iceberg's
    `HadoopTableOperations`). Removes those of an earlier table, and of this one before it was put back:
    these are older than the version that is published now, which a racing publisher's is not. Before
    anything is published: one that cannot be removed, or judged, keeps the table from it."""
    folder = ctx.key(keys.published_metadata_key(0)).rpartition("/")[0]
    later = []
    for info in ctx.store.list(f"{folder}/v"):
        version = keys.published_version(keys.PUBLISHED + info.key.rpartition("/")[2])
        if version is None or version <= loaded.snapshot.version:
            continue
        age_us = loaded.date_us - info.modified_us
        if age_us < int(CLOCK_MARGIN_SECONDS * 1_000_000) and _may_be_of_this_table(
            ctx, info.key, loaded
        ):
            if age_us <= 0:
                continue  # a racing publisher's
            # LastModified may be behind the store's clock: it may be either.
            raise Unpublishable(
                f"{info.key} is of a later version, and too young to say whether of one that was lost",
                next_step=f"Publish again in {CLOCK_MARGIN_SECONDS:.0f} seconds",
                table=ctx.uri,
            )
        load_metadata(ctx, version)  # that of another engine stays
        later.append(info.key)
    failures = ctx.store.delete(later) if later else ()
    if failures:
        raise Unpublishable(
            f"{failures[0].key} is of an earlier table, where readers of the folder find it, and cannot be "
            f"removed: {failures[0].reason}",
            next_step="Delete it, or publish as someone who may delete objects",
            table=ctx.uri,
        )


def _may_be_of_this_table(ctx: Context, key: str, loaded: LoadedTable) -> bool:
    """Whether a metadata file names this table, or cannot be read."""
    answer = ctx.store.get(key)
    if not isinstance(answer, Got):
        return False
    try:
        return bool(json.loads(answer.body)["table-uuid"] == loaded.snapshot.table_id)
    except (ValueError, KeyError, TypeError, RecursionError):
        return True


def withdraw(ctx: Context) -> bool:
    """Removes the published table: pointer and hint first, the rest is then garbage. Returns whether there
    was one. Set `publish.format` to none first, or the next publication restores it."""
    names = [keys.PUBLISHED_POINTER, keys.VERSION_HINT]
    there = [n for n in names if not isinstance(ctx.store.head(ctx.key(n)), Missing)]
    failures = ctx.store.delete([ctx.key(n) for n in there])
    if failures:
        raise Unpublishable(f"it cannot be withdrawn: {failures[0].reason}", table=ctx.uri)
    return bool(there)

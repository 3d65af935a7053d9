"""One POST of an engine, one swap: the commit of an Iceberg client as a commit of the table.

Promise: what a request asks for is in the table exactly once, whatever the client repeats: a request whose
snapshot or idempotency key was applied before is answered by the table as it is now, before a requirement
is looked at. An append is committed on whatever the table is by then; everything else holds on the version
that the engine has seen, or is refused (`ConcurrentChange`), and the engine begins again. What the request
asks for and Inlay has no place for is refused by name, with nothing done.

1. ledger        was it applied?
2. publication   of the newest version: what requirements are compared with
3. difference    of metadata, and of the manifest lists (`ops.catalog.rows`): a change
4. swap          one commit, the linearization point
5. publication   of that version, which is the answer

A failure after 4 is `OutcomeUnknown`, never a refusal: the next request publishes. The engine's id of its
snapshot is in the note of the version, so that what is published has it (`iceberg.metadata.engines_id`).
Properties of Iceberg's are kept under `iceberg.`; statistics files are ignored.

While an erasure is in progress, or for a type that cannot be published, the table is read only to engines
(`Unpublishable`).
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from inlay.errors import (
    ConcurrentChange,
    CorruptTable,
    InlayError,
    InvalidRequest,
    NotGranted,
    OutcomeUnknown,
    RefNotFound,
    SchemaMismatch,
    StaleUpload,
    TableExists,
    TableNotFound,
    Unpublishable,
    UnreadableFile,
    UnsupportedFile,
    UnsupportedTable,
)
from inlay.format import keys
from inlay.format.properties import ICEBERG, check_properties
from inlay.format.schema import Schema
from inlay.format.snapshot import Ref, Snapshot
from inlay.iceberg.commit import (
    CommitRequest,
    apply_updates,
    created_metadata,
    empty_metadata,
    of_the_request,
    unmet,
)
from inlay.iceberg.metadata import HEAD, MAIN, decode_pointer, engines_note
from inlay.iceberg.schema import ends_early, refusals
from inlay.iceberg.source import SourceTable, read_metadata
from inlay.ops.adopt.adopt import found_table
from inlay.ops.adopt.foreign import Sources
from inlay.ops.adopt.iceberg import foreign_of
from inlay.ops.cache import ObjectCache
from inlay.ops.catalog.keys import without_new_keys
from inlay.ops.catalog.rows import difference, planned_base, rows_of
from inlay.ops.commit.driver import Committed, Conflicted, Skipped, already_applied, commit
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_content, load_pointer, on_branch
from inlay.ops.metadata.publication import Found, load_metadata
from inlay.ops.publish.publish import is_current, publish, publish_with_pointer
from inlay.ops.refs import named_ref, new_ref, restoring
from inlay.ops.schema.alter import checked
from inlay.ops.schema.create import check_free
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    AlterSchema,
    Change,
    RemoveFiles,
    ReplaceFiles,
    Request,
    Requirement,
    Retained,
    SameMain,
    SameSchema,
    SetPartitioning,
    SetProperties,
    SetRefs,
    Update,
)
from inlay.plan.maintain.roots import CLOCK_MARGIN_SECONDS
from inlay.plan.metadata.state import State
from inlay.plan.pruning.compared import compared_columns
from inlay.plan.pruning.partitions import repartitioned
from inlay.plan.refs import check_name, ref_view
from inlay.plan.schema_conflicts import altered, evolved
from inlay.plan.schema_evolution import evolution_between
from inlay.record import Record, replace
from inlay.storage.base import Got, Location, Missing, ObjectStore, Refused
from inlay.storage.wrapped import WrappedStore

# Native writers may commit and publish meanwhile; each round begins with the newest version.
MAX_ROUNDS = 8
OPERATION = "engine"
KEPT_BYTES = 16 * 1024 * 1024
_WRITTEN_ONCE = (".avro", ".parquet")
# Properties of what is published that are the publisher's.
_PUBLISHERS = ("inlay.", "gc.enabled")
_FORMATS = {2: "v2", 3: "v3"}
# What adoption raises of what it cannot take.
_OF_A_SOURCE = (
    *(CorruptTable, NotGranted, SchemaMismatch),
    *(UnreadableFile, UnsupportedFile, UnsupportedTable),
)


# -- tables ---------------------------------------------------------------------------------------


def load(ctx: Context) -> bytes:
    """The answer to loadTable: what is published, which is the newest version where that can be. Raises
    `TableNotFound` for one that is not there or cannot be published at all."""
    loaded = load_pointer(ctx)
    published = published_now(ctx)
    if published is not None and is_current(ctx, loaded.snapshot, published.found.publication):
        return published.body
    with suppress(InlayError):  # the last good publication is shown
        publish(ctx, base=loaded)
    return _answer(ctx)


def stage(ctx: Context, asked: Any) -> bytes:
    """The metadata of a table that a commit will create: nothing of it is kept here. Raises
    `InvalidRequest`, `TableExists`."""
    check_free(ctx, is_begun=True)
    metadata = created_metadata(asked, ctx.location(""), ctx.new_id())
    if ctx.store.scheme == "file":
        # Engines that write to a disk expect the table's folders to be there; buckets have none.
        for folder in ("metadata", "data"):
            ctx.store.put(staged := ctx.key(f"{folder}/_staged"), b"")
            ctx.store.delete([staged])
    return json.dumps({"metadata": metadata, "config": {}}).encode()


def create(ctx: Context, asked: Any, idempotency_key: str | None = None) -> bytes:
    """Creates an empty table, and returns the answer to loadTable."""
    metadata = created_metadata(asked, ctx.location(""), ctx.new_id())
    return _create(ctx, metadata, keyed(idempotency_key, asked))


def refuse_open_erasure(loaded: LoadedTable) -> None:
    for erasure in loaded.pointer.erasures:
        if erasure.predicate is not None:
            raise Unpublishable(
                f"the erasure {erasure.id!r} is still in progress: engines can read, and not write",
                next_step="Commit again once the erasure's files are rewritten (inlay rewrite) and its "
                "predicate is forgotten (inlay gc); the functions do both",
                version=loaded.pointer.version,
            )


class ReadOnce(WrappedStore):
    """The store of one request, which reads what an engine has written to judge it, and again to publish
    it. What never changes under its name is asked for once."""

    def __init__(self, inner: ObjectStore, kept: ObjectCache | None = None) -> None:
        super().__init__(inner)
        self._kept = kept or ObjectCache(KEPT_BYTES)

    def at(self, bucket: str) -> ReadOnce:
        return ReadOnce(self.inner.at(bucket), self._kept)

    def get(self, key: str, **options: Any) -> Got | Missing | Refused:
        is_whole = all(option is None for option in options.values())
        return (self._whole(key) if is_whole else None) or super().get(key, **options)

    def get_suffix(
        self, key: str, length: int, *, version_id: str | None = None, **options: Any
    ) -> Got | Missing:
        known = self._known(key) if version_id is None else None
        if known is not None and len(known.body) >= min(length, known.size):
            return replace(known, body=known.body[-length:])
        answer = super().get_suffix(key, length, version_id=version_id, **options)
        if isinstance(answer, Got) and version_id is None and key.endswith(_WRITTEN_ONCE):
            self._kept.put(f"{self.bucket}/{key}", answer, len(answer.body))
        return answer

    def _whole(self, key: str) -> Got | None:
        answer = self._known(key)
        return answer if answer is not None and len(answer.body) == answer.size else None

    def _known(self, key: str) -> Got | None:
        """The object, or its end."""
        answer: Got | None = self._kept.get(f"{self.bucket}/{key}")
        return answer


def commit_table(ctx: Context, request: CommitRequest) -> bytes:
    """Commits the request, and returns the answer to loadTable. Raises `ConcurrentChange` where a
    requirement does not hold, `InvalidRequest` and others for what cannot be served, `StaleUpload`,
    `OutcomeUnknown`."""
    ctx = replace(ctx, branch=None, store=ReadOnce(ctx.store))
    named = name_of(request)
    if request.creates:
        metadata = apply_updates(empty_metadata(ctx.location("")), request.updates)
        return _create(ctx, metadata, named)
    head = request.head
    branch = None if head is None or head[0] == MAIN else head[0]
    at = replace(ctx, branch=branch)
    reason = "others keep committing to the table"
    can_publish = False
    for _ in range(MAX_ROUNDS):
        loaded = load_pointer(ctx)
        ctx = replace(ctx, table_id=loaded.snapshot.table_id)
        loaded, before = already_applied(ctx, loaded, named)
        if before is not None:
            return published_after(ctx, loaded)
        refuse_open_erasure(loaded)
        published = published_now(ctx)
        current = published is not None and is_current(
            ctx, loaded.snapshot, published.found.publication
        )
        if published is not None and published.is_of_an_engine(request.snapshot_id):
            return published_after(ctx, loaded)  # applied longer ago than the ledger remembers
        # Others may commit as fast as it is published. It was published a moment ago: an append goes on.
        enough = current or (
            published is not None and can_publish and branch is None and published.shows(loaded)
        )
        if published is None or not enough:
            publish(ctx, base=loaded)
            can_publish = True
            continue
        shown, asked, made = published.metadata, request, None
        if branch is None or branch in loaded.snapshot.refs:
            base = on_branch(at, loaded)
        else:
            shown, asked, made, base = _with_branch(ctx, branch, loaded, shown, request)
        change = planned(at, base, shown, asked)
        if not current and (change is None or not is_append_alone(change)):
            publish(ctx, base=loaded)
            continue
        if change is None:
            return published.body
        if made is not None:
            kept = [Retained(replace(r, since=0)) for r in made.refs.values() if r is not None]
            change = replace(
                change, updates=(made, *change.updates), requires=(*change.requires, *kept)
            )
        try:
            outcome = committed(at, replace(change, request=named), base)
        except RefNotFound:  # others committed first, and the branch is not there: nothing was done
            if made is None:
                raise
            continue
        if not isinstance(outcome, Conflicted):
            return published_after(ctx, on_branch(ctx, outcome.loaded), published.found)
        reason = outcome.conflict.reason
        if _is_strict(change):
            break
    raise ConcurrentChange(reason, table=ctx.uri)


def committed(ctx: Context, change: Change, base: LoadedTable) -> Committed | Skipped | Conflicted:
    with of_late_files(ctx.uri):
        return commit(ctx, change, base=base)


@contextmanager
def of_late_files(table: str | None = None) -> Iterator[None]:
    """`StaleUpload` of files that an engine has written, in its words: they cannot be uploaded again.
    `table` is named where the error names none."""
    try:
        yield
    except StaleUpload as error:
        raise InvalidRequest(
            "files of this commit were written before the table's garbage boundary: the job took "
            "longer than its grace period",
            next_step="Run the job again; `gc.grace_days` is the grace period",
            table=error.table or table,
        ) from error


@contextmanager
def _as_an_engine_wrote_it(table: str) -> Iterator[None]:
    """What cannot be taken of a commit, in its words: adoption, which looks at what an engine has written,
    speaks of a source to be adopted again. Of this table's own metadata it says what it is."""
    try:
        yield
    except _OF_A_SOURCE as error:
        is_own = isinstance(error, CorruptTable) and keys.ARCHIVES in (error.key or "")
        if is_own or error.next_step.startswith(("Nothing was committed", "Write the file")):
            raise
        raise InvalidRequest(
            error.message,
            next_step="Nothing was committed. Do it by other statements (DELETE and INSERT in place of "
            "UPDATE, copy-on-write in place of merge-on-read), or by another engine",
            table=table,
            key=error.key,
        ) from error


def name_of(request: CommitRequest) -> Request | None:
    """The request's name in the ledger: the snapshot's id, which a client that repeats itself repeats."""
    if request.snapshot_id is not None:
        return Request.named(f"iceberg snapshot {request.snapshot_id}", None)
    return keyed(request.idempotency_key, [request.requirements, request.updates])


def keyed(idempotency_key: str | None, asked: object) -> Request | None:
    """The name of a request that has a key, if it has one. A key that is used again for something else is
    refused, and not answered as if it were done."""
    if idempotency_key is None:
        return None
    return Request.named(f"iceberg {idempotency_key}", json.dumps(asked, sort_keys=True))


class NotPublished(OutcomeUnknown):
    """It is committed, and what is published is an earlier version."""


def published_after(ctx: Context, loaded: LoadedTable, seen: Found | None = None) -> bytes:
    """The answer once the commit is made: it is never refused any more."""
    try:
        _, pointer = publish_with_pointer(ctx, base=loaded, seen=seen)
        return pointer or _answer(ctx)
    except InlayError as error:
        raise NotPublished(
            f"committed by version {loaded.snapshot.version}, and not published: {error.message}",
            next_step="Load the table: that publishes it",
            table=ctx.uri,
        ) from error


class PublishedNow(Record):
    """The published pointer, as it is answered and as it is read."""

    body: bytes
    found: Found

    @property
    def version(self) -> int:
        assert self.found.publication is not None
        return self.found.publication.version

    def shows(self, loaded: LoadedTable) -> bool:
        """Whether it is an earlier version of the table with the same columns: enough for an append, which
        would otherwise have to wait for a moment in which nobody commits."""
        publication, now = self.found.publication, loaded.snapshot
        assert publication is not None
        return (
            publication.table_id == now.table_id
            and publication.version <= now.version
            and self.metadata["current-schema-id"] == now.schema_id
        )

    def is_of_an_engine(self, snapshot_id: int | None) -> bool:
        """Whether a snapshot that is shown has this id from the engine that committed it: the others have
        the numbers of their versions."""
        if str(snapshot_id).encode() not in self.body:  # nearly always: no need to parse it
            return False
        snapshots = self.metadata["snapshots"]
        return any(s["snapshot-id"] == snapshot_id != s["sequence-number"] for s in snapshots)

    @property
    def metadata(self) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = json.loads(self.body)["metadata"]
        return metadata


def published_now(ctx: Context) -> PublishedNow | None:
    got = ctx.store.get(ctx.key(keys.PUBLISHED_POINTER))
    if not isinstance(got, Got):
        return None
    return PublishedNow(got.body, Found(decode_pointer(got.body), got.etag, got.date_us))


def _answer(ctx: Context) -> bytes:
    published = published_now(ctx)
    if published is None:
        raise TableNotFound(f"no table is published at {ctx.uri}", table=ctx.uri)
    return published.body


def _create(ctx: Context, metadata: Mapping[str, Any], named: Request | None) -> bytes:
    uuid = str(metadata.get("table-uuid") or ctx.new_id())
    try:
        date_us = check_free(ctx, is_begun=True)
    except TableExists:
        loaded = load_pointer(ctx)
        _, before = already_applied(ctx, loaded, named)
        if before is not None or (named is None and loaded.snapshot.table_id == uuid):
            return published_after(ctx, loaded)
        raise
    sources = _sources(ctx)
    table = _source(metadata)
    properties = _properties_of(metadata)
    foreign = foreign_of(sources, table)
    naming = replace(foreign.naming, last_id=table.last_field_id)
    foreign = replace(foreign, naming=naming)
    _check_publishable(ctx, foreign.schema, metadata)
    if of_the_request(partial(_is_ordered, metadata)):
        raise InvalidRequest(
            "a table with a sort order is not created by an engine",
            next_step="Create it without, or by `inlay create --sort-by`",
            table=ctx.uri,
        )
    done = found_table(
        sources, foreign, properties, date_us=date_us, own=True, table_id=uuid, request=named
    )
    return published_after(ctx, done.loaded)


def _sources(ctx: Context) -> Sources:
    """The objects that an engine may name: those under the table's own root."""
    root = Location(ctx.store.scheme, ctx.store.bucket, ctx.root)
    return Sources(ctx, root, (glob.escape(f"{root.bucket}/{root.key}".rstrip("/")) + "/*",))


def _source(metadata: Mapping[str, Any]) -> SourceTable:
    """Of what a request makes of the table: what is wrong with it is wrong with the request."""
    try:
        return read_metadata(json.dumps(metadata).encode())
    except CorruptTable as error:
        raise InvalidRequest(
            error.message, next_step="Nothing was committed. Correct the request"
        ) from error


def _properties_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    given = {k: v for k, v in metadata["properties"].items() if k != "format-version"}
    _check_theirs(given)
    # Who made it through a catalog reads it there: a request less for each commit.
    own = {"publish.format": _publish_format(metadata), "publish.version_hint": "no"}
    return check_properties(own | {f"{ICEBERG}{k}": v for k, v in given.items()})


def _publish_format(metadata: Mapping[str, Any]) -> str:
    version = metadata["format-version"]
    if version not in _FORMATS:
        raise InvalidRequest(f"format version {version} is not 2 or 3")
    return _FORMATS[version]


def _check_theirs(names: Mapping[str, object]) -> None:
    for name in names:
        if name.startswith(_PUBLISHERS):
            raise InvalidRequest(
                f"property {name[:80]!r} is Inlay's own",
                next_step="`inlay set` sets properties of the table",
            )


# -- the change -----------------------------------------------------------------------------------


def planned(
    ctx: Context, base: LoadedTable, published: Mapping[str, Any], request: CommitRequest
) -> Change | None:
    """What the request asks for, on the version that is published; None where that is nothing."""
    name = ctx.ref
    reason = unmet(request.requirements, published, moved=(name,))
    if reason:
        raise ConcurrentChange(reason, table=ctx.uri, version=base.snapshot.version)
    after = apply_updates(published, request.updates)
    source = _source(after)
    updates, snapshot = _columns_and_partitions(ctx, base, published, after, source)
    _check_publishable(ctx, snapshot.schema, after)
    properties = of_the_request(partial(_set_properties, published, after))
    if properties is not None:
        updates.append(properties)
    if of_the_request(partial(_is_ordered, after)):
        raise InvalidRequest(
            "the sort order of a table is not changed by an engine",
            next_step="Create the table with `sort_by`",
            table=ctx.uri,
        )
    refs = _refs(base.pointer, published, after, written=ctx.branch)
    if refs is not None:
        updates.append(refs)
    sources = _sources(ctx)
    head = of_the_request(partial(_head, published, after, name))
    if updates and (isinstance(head, int) or ctx.branch is not None):
        raise InvalidRequest(
            f"a commit changes {name[:80]!r}, and something else of the table",
            next_step="Make two commits of it",
            table=ctx.uri,
        )
    if isinstance(head, int):
        restored = _shown(base.pointer, published, head)
        reason = unmet(request.requirements, published)
        if reason or restored is None:
            reason = reason or f"snapshot {head} is no longer kept"
            raise ConcurrentChange(reason, table=ctx.uri, version=base.snapshot.version)
        return restoring(ctx, base.pointer, restored)
    removed = {s["snapshot-id"] for s in published["snapshots"]} - {
        s["snapshot-id"] for s in after["snapshots"]
    }
    changes, strict = None, refs is not None
    if head is not None:
        # A table that is replaced has no parent, and all that there is goes.
        before = head.began_on or head.replaced
        if head.gone is not None:
            before = _list_that_was_published(ctx, base.snapshot.table_id, *head.gone)
        with _as_an_engine_wrote_it(ctx.uri):
            changes = difference(sources, source, before, head.manifest_list)
        is_append = changes.is_append and head.operations == {"append"}
        strict = strict or not is_append or (head.began_on is None and head.gone is None)
        if strict and head.gone is not None:
            raise _not_published(head.gone[0])
    if strict or updates or changes is None:  # all but an append alone
        reason = unmet(request.requirements, published)
        if reason:
            raise ConcurrentChange(reason, table=ctx.uri, version=base.snapshot.version)
    requires: tuple[Requirement, ...] = ()
    objects: tuple[Request, ...] = ()
    uploaded_us = None
    if changes is not None:
        of = replace(sources, ctx=replace(ctx, table_id=base.snapshot.table_id))
        with _as_an_engine_wrote_it(ctx.uri):
            rows = rows_of(of, source, planned_base(base, snapshot), changes)
        compared = frozenset(compared_columns(snapshot))
        updates.append(AddFiles(rows.files, rows.sources_us, compared))
        # A branch has what is picked of another one, and of main.
        objects = rows.objects if ctx.branch is None else ()
        updates.append(AddMarkers(rows.markers))
        updates.append(RemoveFiles(rows.removed))
        updates.append(ReplaceFiles(rows.units, whole=True))
        margin_us = int(CLOCK_MARGIN_SECONDS * 1_000_000)
        oldest = min((us - margin_us for us in rows.sources_us.values()), default=base.date_us)
        uploaded_us = min(oldest, base.date_us)
        if strict:
            requires = (SameMain(base.snapshot.changed),)
        elif not any(isinstance(update, AlterSchema) for update in updates):
            assert head is not None
            added = without_new_keys(ctx, base, rows.files, head.since)
            requires = (SameSchema(base.snapshot.schema_id), *added)
    if refs is not None:
        made = [r for r in refs.refs.values() if r is not None]
        requires = (*requires, *(Retained(replace(r, since=0)) for r in made))
    if removed:
        updates.append(SetRefs({}, {}))  # its note says which, and this makes it a commit
    if not updates:
        return None
    return Change(
        operation=OPERATION,
        updates=tuple(updates),
        requires=requires,
        objects=objects,
        uploaded_us=uploaded_us,
        deleted_rows=None if strict else 0,
        note=engines_note(None if head is None else head.id, removed),
    )


def _columns_and_partitions(
    ctx: Context,
    base: LoadedTable,
    published: Mapping[str, Any],
    after: Mapping[str, Any],
    source: SourceTable,
) -> tuple[list[Update], Snapshot]:
    """The changes of these, and the snapshot with them."""
    updates: list[Update] = []
    snapshot = base.snapshot
    partitioning = edit = None
    if after["default-spec-id"] != published["default-spec-id"]:
        partitioning = _partitioning(snapshot, source)
    if partitioning is not None:
        # First: a table that is replaced has no columns any more that it was partitioned by.
        updates.append(partitioning)
        snapshot = repartitioned(snapshot, partitioning)
    if after["current-schema-id"] != published["current-schema-id"]:
        edit = _schema_edit(ctx, snapshot, source)
    if edit is not None:
        state = replace(base.state, snapshot=snapshot)
        edit = checked(ctx, replace(base, state=state), edit)
        updates.append(edit)
        snapshot = altered(snapshot, evolved(snapshot, edit), edit)
    return updates, snapshot


def _check_publishable(ctx: Context, schema: Schema, after: Mapping[str, Any]) -> None:
    """Before it is committed: afterwards the engine could not load its own table any more."""
    reasons = refusals(schema, format_version=after["format-version"])
    if ends_early(ctx.location("")):
        reasons = (*reasons, "its folder has a # or ? in its name, where engines end a location")
    if reasons:
        raise InvalidRequest(
            "; ".join(reasons),
            next_step="Nothing was committed. Engines would not be shown such a table",
            table=ctx.uri,
        )


def is_append_alone(change: Change) -> bool:
    """Files are added, and nothing else changes."""
    kinds = (AddFiles, AddMarkers, RemoveFiles, ReplaceFiles)
    return not _is_strict(change) and all(isinstance(u, kinds) for u in change.updates)


def _is_strict(change: Change) -> bool:
    return any(isinstance(r, SameMain) for r in change.requires)


class _Head(Record):
    """A branch after the commit, where that is a new snapshot: its id, its manifest list (None: it has no
    rows), what Iceberg calls the operations that led there; and the manifest list of the snapshot that the
    engine `began_on`, None where it replaces whatever there is. `gone`: what it began on is no longer
    shown; its id, and the sequence number of the metadata that the engine has seen. `since`: the version
    whose rows the engine has read."""

    id: int | None
    manifest_list: str | None
    operations: frozenset[str]
    began_on: str | None
    replaced: str
    gone: tuple[int, int] | None = None
    since: int = 0


def _with_branch(
    ctx: Context,
    name: str,
    loaded: LoadedTable,
    published: Mapping[str, Any],
    request: CommitRequest,
) -> tuple[Mapping[str, Any], CommitRequest, SetRefs, LoadedTable]:
    """What is published, the request and its base as if the branch were there, on the snapshot that the
    engine began on; and what makes it, in the same commit."""
    table = loaded.pointer
    reason = unmet(request.requirements, published)
    if reason:
        raise ConcurrentChange(reason, table=ctx.uri, version=table.version)
    after = apply_updates(published, request.updates)
    at = after["refs"][name]["snapshot-id"]
    known = {s["snapshot-id"] for s in published["snapshots"]}
    brought = {s["snapshot-id"]: s for s in after["snapshots"] if s["snapshot-id"] not in known}
    while at in brought:
        at = brought.pop(at).get("parent-snapshot-id")
    source = _shown(table, published, at)
    if source is None:
        raise _not_published(at)
    made = new_ref(ctx, table, name, source, named_ref("branch", source))
    assert made is not None
    # A handle of an earlier branch of this name has not read this one.
    view = ref_view(table, load_content(ctx, table, source), table.version + 1)
    shown = {**published["refs"], name: {"type": "branch", "snapshot-id": at}}
    asked = tuple(r for r in request.requirements if r.get("ref") != name)
    return (
        {**published, "refs": shown},
        replace(request, requirements=asked),
        made,
        replace(loaded, state=State(view), own=table),
    )


def _shown(table: Snapshot, published: Mapping[str, Any], snapshot_id: object) -> Ref | None:
    """What a published snapshot is of the table."""
    for snapshot in published["snapshots"]:
        if snapshot["snapshot-id"] == snapshot_id:
            head = snapshot.get("summary", {}).get(HEAD)
            if head is None:
                return Ref(kind="tag", version=snapshot["sequence-number"])
            refs = table.refs.values()
            return next((r for r in refs if r.head is not None and r.head.id == head), None)
    return None


def _refs(
    table: Snapshot,
    published: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    written: str | None,
) -> SetRefs | None:
    """The tags and branches that a request makes, moves and drops, but for the branch that is `written`."""
    old, new = published["refs"], after["refs"]
    refs: dict[str, Ref | None] = {}
    for name in sorted({*old, *new} - {MAIN, written}):
        if old.get(name) == new.get(name):
            continue
        there = table.refs.get(name)
        if there is not None and (name not in old or there.hold):
            why = "is under a legal hold" if there.hold else "is there, and not published"
            raise InvalidRequest(
                f"the {there.kind} {name[:80]!r} {why}", next_step="`inlay refs` lists them"
            )
        refs[name] = None
        if name in new:
            check_name(name)
            source = _shown(table, published, new[name]["snapshot-id"])
            if source is None:
                raise ConcurrentChange(f"snapshot {new[name]['snapshot-id']} is no longer kept")
            refs[name] = named_ref(new[name]["type"], source)
    return SetRefs(refs, {name: table.refs.get(name) for name in refs}) if refs else None


def _head(published: Mapping[str, Any], after: Mapping[str, Any], name: str) -> _Head | int | None:
    """The branch after the commit: a new snapshot, the id of one that is published, or None where it stays
    as it is."""
    head = after["refs"].get(name, {}).get("snapshot-id")
    known = {s["snapshot-id"]: s for s in published["snapshots"]}
    current = published["refs"][name]["snapshot-id"]
    if head == current:
        return None
    if head is None:  # a table that is replaced by an empty one
        return _Head(None, None, frozenset(), None, known[current]["manifest-list"])
    if head in known:
        return int(head)
    brought = {s["snapshot-id"]: s for s in after["snapshots"] if s["snapshot-id"] not in known}
    new = brought[head]
    operations: set[str] = set()
    at: int | None = head
    sequence = 0
    for _ in brought:
        if at not in brought:
            break
        operations.add(str(brought[at].get("summary", {}).get("operation")))
        sequence = int(brought[at].get("sequence-number", 0)) - 1
        begun = brought[at].get("parent-snapshot-id")
        at = None if begun == -1 else begun
    return _Head(
        head,
        new["manifest-list"],
        frozenset(operations),
        known[at]["manifest-list"] if at in known else None,
        known[current]["manifest-list"],
        None if at is None or at in known else (int(at), sequence),
        int(known[at]["sequence-number"]) if at in known else sequence,
    )


def _list_that_was_published(ctx: Context, table_id: str, snapshot_id: int, version: int) -> str:
    """The manifest list of a snapshot that a version's metadata shows, and today's no longer: others have
    published often since. One GET."""
    metadata = load_metadata(ctx, version) if version > 0 else None
    if metadata is not None and metadata["table-uuid"] == table_id:
        for snapshot in metadata["snapshots"]:
            if snapshot["snapshot-id"] == snapshot_id:
                return str(snapshot["manifest-list"])
    raise _not_published(snapshot_id)


def _not_published(snapshot_id: object) -> ConcurrentChange:
    return ConcurrentChange(f"snapshot {snapshot_id}, which the commit began on, is not published")


def _set_properties(published: Mapping[str, Any], after: Mapping[str, Any]) -> SetProperties | None:
    old, new = published["properties"], after["properties"]
    changed = {k: new.get(k) for k in {*old, *new} if old.get(k) != new.get(k)}
    _check_theirs(changed)
    properties: dict[str, str | None] = {f"{ICEBERG}{k}": v for k, v in sorted(changed.items())}
    if after["format-version"] != published["format-version"]:
        properties["publish.format"] = _publish_format(after)
    if not properties:
        return None
    check_properties({k: v for k, v in properties.items() if v is not None})
    return SetProperties(properties)


def _partitioning(snapshot: Snapshot, source: SourceTable) -> SetPartitioning | None:
    spec = source.specs[source.spec_id]
    if spec.fields is None:
        raise InvalidRequest(
            f"the table cannot be partitioned so: {spec.reason}",
            next_step="Partition it by identity, bucket, truncate, year, month, day or hour of columns",
        )
    if spec.fields == snapshot.spec.fields:
        return None
    return SetPartitioning(planned_on=snapshot.spec_id, fields=spec.fields)


def _is_ordered(metadata: Mapping[str, Any]) -> bool:
    """Whether the metadata has a sort order. What is published has none."""
    order = metadata["default-sort-order-id"]
    return any(o["fields"] for o in metadata["sort-orders"] if o["order-id"] == order)


# -- columns --------------------------------------------------------------------------------------


def _schema_edit(ctx: Context, snapshot: Snapshot, source: SourceTable) -> AlterSchema | None:
    """The change of columns that a request makes; None for none. Raises `InvalidRequest` for what the
    evolution of a schema cannot be."""
    schema = source.schema
    key = tuple(f.name for i in source.key if (f := schema.by_id(i)) is not None)
    evolution = evolution_between(snapshot.schema, schema)
    if source.key != snapshot.primary_key:
        evolution = replace(evolution, key=key)
    edit = AlterSchema(snapshot.schema_id, evolution)
    made = evolved(snapshot, edit)
    if made.fields != schema.fields:
        raise InvalidRequest(
            "the new columns are not those that Inlay would make: " + _unlike(made, schema),
            next_step="Change the schema in smaller steps, or by `inlay alter`",
            table=ctx.uri,
        )
    if made.fields == snapshot.schema.fields and source.key == snapshot.primary_key:
        return None
    return edit


def _unlike(made: Schema, schema: Schema) -> str:
    have = {f.id: (path, f) for path, f in made.walk()}
    for path, field in schema.walk():
        if field.id not in have:
            return f"{'.'.join(path)!r} has field id {field.id}"
        if have[field.id][1] != field:
            return f"{'.'.join(path)!r} differs"
    return "their order differs"

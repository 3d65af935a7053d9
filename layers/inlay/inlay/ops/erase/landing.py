"""The landing zone in an erasure: what has to be erased there, and what is deleted.

Promise: of contents uploaded before the erasure was opened, those that were ingested are deleted, and so
are those that their owner deleted, overwritten ones without a version id, and unfinished uploads: nothing
of them can enter the table any more. An overwritten version can, by its event. A file that the table
adopted where it landed stays for as long as it is live. A content that was not ingested yet is left for
ingestion, which marks its rows (`plan.commit.draft`); until then the erasure waits for it, if it holds any
of the rows, or names their values beside its rows. Nothing is ever rewritten in place: that would raise an
event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from inlay.errors import ErrorKind, InlayError
from inlay.format.predicate import Predicate
from inlay.format.snapshot import Erasure
from inlay.ops.cache import ObjectCache
from inlay.ops.commit.driver import known_requests
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.erase.last_look import said_of_object
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.refs import each_content
from inlay.ops.write.append import IngestSource
from inlay.parquet.read.ranges import Objects
from inlay.parquet.read.reader import open_file, read_positions
from inlay.parquet.read.selection import Wanted
from inlay.parquet.surgery.residue import find_residue
from inlay.plan.erasure import Waiting
from inlay.plan.pruning.literals import any_of, texts_of
from inlay.plan.pruning.mentions import Mentions, names_any
from inlay.plan.scan import FileTask
from inlay.storage.base import NULL_VERSION, DeleteFailure, Location, Missing, ObjectVersion, Upload

_HOLDS_ROWS = "it holds rows of the erasure and was not ingested yet: ingest it, or delete it"
_NAMES = (
    "it names what is erased, beside its rows, and was not ingested yet: ingest it, or delete it"
)
# Not a reason to wait.
_PERHAPS = "it may name what is erased"


@dataclass(frozen=True, slots=True)
class Landing:
    """Objects in the landing zone from before an erasure: `dead` and `ingested` versions can be deleted;
    `waiting` says why the others must wait; `perhaps` are versions that may name erased rows and are
    kept."""

    dead: tuple[ObjectVersion, ...] = ()
    uploads: tuple[Upload, ...] = ()
    ingested: tuple[ObjectVersion, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    perhaps: tuple[ObjectVersion, ...] = ()


def check_landing(
    ctx: Context, loaded: LoadedTable, erasures: Sequence[Erasure], prefix: str
) -> dict[str, Landing]:
    """The objects under `prefix` that concern each erasure; listed and read once for all of them. Objects
    that the ledger does not know are decided by what they hold, which needs the predicates: one with rows
    of any of the erasures, or their values beside its rows, keeps each that was opened after its upload."""
    newest_us = max(e.opened_us for e in erasures)
    # Live data files where they landed, on any branch.
    here = f"{ctx.store.scheme}://{ctx.store.bucket}/"
    files = (f for _, each in each_content(ctx, loaded) for f in each.state.files())
    ours = {f.key.removeprefix(here) for f in files if f.adopted}
    # Uploads before objects: one that ends meanwhile, whose object is dated by its beginning, is in either.
    uploads = [u for u in ctx.store.list_uploads(prefix) if u.started_us <= newest_us]
    old = [
        v
        for v in ctx.store.list_versions(prefix)
        if v.modified_us <= newest_us and not (v.is_latest and v.key in ours)
    ]
    taken_back = {v.key for v in old if v.marker and v.is_latest}
    # What was overwritten without a version id cannot be reached by its event any more.
    dead = {
        v
        for v in old
        if v.marker or v.key in taken_back or (not v.is_latest and v.version_id == NULL_VERSION)
    }
    contents = [v for v in old if v not in dead]
    known = _known(ctx, loaded, contents)
    ingested = [v for v in contents if v in known]
    waiting: list[tuple[ObjectVersion, Waiting]] = []
    perhaps: list[ObjectVersion] = []
    asked = tuple(e.predicate for e in erasures if e.predicate is not None)
    if asked:
        predicate = any_of(asked)
        pending = [v for v in contents if v not in known]
        judged = ctx.map(lambda version: _judge(ctx, loaded, version, predicate), pending)
        for version, reason in zip(pending, judged, strict=True):
            # Contents older than the ledger were ingested long ago, or are refused for good.
            forgotten = version.modified_us < loaded.snapshot.ledger.horizon_us
            if reason in (_HOLDS_ROWS, _NAMES) and forgotten:
                ingested.append(version)
            elif reason == _PERHAPS:
                perhaps.append(version)
            elif reason is not None:
                which = "" if version.is_latest else f" (its version {version.version_id})"
                waiting.append((version, Waiting("landing", version.key, reason + which)))

    def of(erasure: Erasure) -> Landing:
        opened_us = erasure.opened_us
        return Landing(
            dead=tuple(v for v in old if v in dead and v.modified_us <= opened_us),
            uploads=tuple(u for u in uploads if u.started_us <= opened_us),
            ingested=tuple(v for v in ingested if v.modified_us <= opened_us),
            waiting=tuple(w for v, w in waiting if v.modified_us <= opened_us),
            perhaps=tuple(v for v in perhaps if v.modified_us <= opened_us),
        )

    return {erasure.id: of(erasure) for erasure in erasures}


def clear_landing(ctx: Context, found: Iterable[Landing]) -> tuple[int, tuple[DeleteFailure, ...]]:
    """Deletes what can be deleted, versions for good: how many, and what failed. Where a name keeps no
    versions it is looked at again first: minutes may have passed since the listing, and what was put there
    meanwhile is not known."""
    each = tuple(found)
    listed = list({(v.key, v.version_id): v for f in each for v in (*f.dead, *f.ingested)}.values())
    same = ctx.map(lambda version: _is_still_there(ctx, version), listed)
    gone = [(v.key, v.version_id) for v, kept in zip(listed, same, strict=True) if kept]
    failures = tuple(ctx.store.delete_versions(gone)) if gone else ()
    for upload in {u: None for f in each for u in f.uploads}:
        ctx.store.abort_multipart(upload.key, upload.upload_id)
    return len(gone) - len(failures), failures


def what_ended_meanwhile(found: Landing) -> Iterator[Waiting]:
    """What a second check found, after the uploads of the first were aborted: one may have ended before."""
    yield from found.waiting
    for version in (*found.dead, *found.ingested):
        yield Waiting("landing", version.key, "it landed meanwhile")
    for upload in found.uploads:
        yield Waiting("landing", upload.key, "its upload is still under way")


def _is_still_there(ctx: Context, version: ObjectVersion) -> bool:
    """Whether the name and version id still stand for the content that was listed."""
    if version.version_id != NULL_VERSION or version.marker:
        return True
    head = ctx.store.head(version.key)
    if isinstance(head, Missing):
        return True  # deleted, or hidden by a marker
    is_versioned = head.info.version_id not in (None, NULL_VERSION)
    return is_versioned or head.info.etag == version.etag


def _known(
    ctx: Context, loaded: LoadedTable, versions: Sequence[ObjectVersion]
) -> set[ObjectVersion]:
    """The contents that were ingested, as far as the ledger remembers. An event names a content by its ETag
    or, where the bucket keeps versions, by its version id."""
    by_request: dict[bytes, ObjectVersion] = {}
    asked = []
    for version in versions:
        location = Location(ctx.store.scheme, ctx.store.bucket, version.key)
        names = [IngestSource(location, version_id=version.version_id)]
        if version.is_latest:  # an ETag alone identifies the current content
            names.append(IngestSource(location, etag=version.etag))
        for source in names:
            by_request[source.request.id] = version
            asked.append(source.request)
    _, known = known_requests(ctx, loaded, asked)
    return {by_request[request] for request in known}


def _judge(
    ctx: Context, loaded: LoadedTable, version: ObjectVersion, predicate: Predicate
) -> str | None:
    """Why a content keeps the erasure waiting; None when it holds no row of it, and nothing names one;
    `_PERHAPS` where that is uncertain."""
    from inlay.ops.write.ingest import inspect_source  # only where something has landed

    location = Location(ctx.store.scheme, ctx.store.bucket, version.key)
    version_id = None if version.version_id == NULL_VERSION else version.version_id
    source = IngestSource(location, etag=version.etag or None, version_id=version_id)
    try:
        entry = inspect_source(ctx, source, loaded.snapshot)
        if entry is None:
            return "it changed while it was read"
        task = FileTask(
            file=replace(entry, key=location.uri, etag=version.etag or None, adopted=True),
            schema=loaded.snapshot.schema,
            predicate=predicate,
        )
        # This runs in a task of the executor: waiting for other tasks of it could block for ever.
        versions = {} if version_id is None else {location.uri: version_id}
        # A cache of its own: it knows objects by name, and a name may have many versions here.
        objects = Objects(ctx.store, ctx.root, ObjectCache(), versions=versions)
        inline = InlineExecutor()
        schema = loaded.snapshot.schema
        if entry.rows and any(True for _ in read_positions(objects, [task], schema, inline)):
            return _HOLDS_ROWS
        searched = find_residue(
            open_file(objects, task, Wanted(schema=schema, columns=()), inline), predicate, inline
        )
        texts, mentions = texts_of(predicate), Mentions.of(predicate)
        outside, unread = said_of_object(objects.source(location.uri))
        said = [text for *_, text in outside]
        if any(r.certain for r in searched.residues) or any(names_any(t, texts) for t in said):
            return _NAMES
        unsure = searched.residues or searched.perhaps or unread
        return _PERHAPS if unsure or any(map(mentions.may_select, said)) else None
    except InlayError as error:
        if error.kind is ErrorKind.RETRY:
            raise
        return f"it cannot be read ({error.message}): replace or delete it"

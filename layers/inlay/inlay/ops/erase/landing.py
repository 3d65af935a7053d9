"""Landing: what an erasure has to know of the landing zone, and what it clears there.

Promise: of objects uploaded before the erasure was opened, those that were ingested are deleted, and so
are contents that were overwritten and uploads that were never finished: nothing of them can enter the
table any more. A file that the table adopted where it landed stays for as long as it is live. An object
that was not ingested yet is left for ingestion, which marks its rows
(`plan.commit.draft`); until then it is what the erasure waits for, if it holds any. Nothing is ever
rewritten
in place: that would raise an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from inlay.errors import InlayError, Kind
from inlay.format.predicate import Or, Predicate
from inlay.format.snapshot import Erasure
from inlay.ops.commit.idempotency import known_requests
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.metadata.load import Loaded
from inlay.ops.refs.refs import each_content
from inlay.ops.write.ingest import Source, inspect_source
from inlay.parquet.read.reader import read_positions
from inlay.plan.erasure import Waiting
from inlay.plan.scan.scan import FileTask
from inlay.storage.base import DeleteFailure, Location, ObjectInfo, ObjectVersion, Upload

_HOLDS_ROWS = "it holds rows of the erasure and was not ingested yet: ingest it, or delete it"


@dataclass(frozen=True, slots=True)
class Landing:
    """What lies in the landing zone from before an erasure: `dead` versions and `ingested` ones can go,
    `waiting` tells of the others that hold rows."""

    dead: tuple[ObjectVersion, ...] = ()
    uploads: tuple[Upload, ...] = ()
    ingested: tuple[ObjectVersion, ...] = ()
    waiting: tuple[Waiting, ...] = ()

    @property
    def clear(self) -> bool:
        return not (self.dead or self.uploads or self.ingested or self.waiting)


@dataclass(frozen=True, slots=True)
class Cleared:
    deleted: int = 0
    failures: tuple[DeleteFailure, ...] = field(default=())


def look_at_landing(
    ctx: Context, loaded: Loaded, erasures: Sequence[Erasure], prefix: str
) -> dict[str, Landing]:
    """What of the objects under `prefix` concerns each erasure; listed and read once for all of them.
    Objects that the ledger does not know are judged by their rows, which takes the predicates: one that
    holds rows of any of the erasures keeps each that was opened after it came."""
    newest_us = max(e.opened_us for e in erasures)
    ours = _adopted(ctx, loaded)
    old = [
        v
        for v in ctx.store.list_versions(prefix)
        if v.modified_us <= newest_us and not (v.is_latest and v.key in ours)
    ]
    uploads = [u for u in ctx.store.list_uploads(prefix) if u.started_us <= newest_us]
    live = {v.key: v for v in old if v.is_latest and not v.marker}
    infos = [o for o in ctx.store.list(prefix) if o.key in live] if live else []
    known = _known(ctx, loaded, infos, live)
    ingested = [live[i.key] for i in infos if i.key in known]
    waiting: dict[str, Waiting] = {}
    asked = tuple(e.predicate for e in erasures if e.predicate is not None)
    if asked:
        predicate = asked[0] if len(asked) == 1 else Or(asked)
        pending = [i for i in infos if i.key not in known]
        judged = ctx.map(lambda info: _judge(ctx, loaded, info, predicate), pending)
        for info, reason in zip(pending, judged, strict=True):
            # What is older than the ledger was ingested long since, or is refused for good.
            forgotten = info.modified_us < loaded.snapshot.ledger.horizon_us
            if reason == _HOLDS_ROWS and forgotten:
                ingested.append(live[info.key])
            elif reason is not None:
                waiting[info.key] = Waiting("landing", info.key, reason)
    # A version whose place another content, or a deletion, has taken: no event leads to it.
    dead = [v for v in old if v.marker or not v.is_latest]

    def of(erasure: Erasure) -> Landing:
        opened_us = erasure.opened_us
        return Landing(
            dead=tuple(v for v in dead if v.modified_us <= opened_us),
            uploads=tuple(u for u in uploads if u.started_us <= opened_us),
            ingested=tuple(v for v in ingested if v.modified_us <= opened_us),
            waiting=tuple(w for k, w in waiting.items() if live[k].modified_us <= opened_us),
        )

    return {erasure.id: of(erasure) for erasure in erasures}


def clear_landing(ctx: Context, found: Iterable[Landing]) -> Cleared:
    """Delete what can go, versions for good."""
    each = tuple(found)
    gone = list({(v.key, v.version_id): None for f in each for v in (*f.dead, *f.ingested)})
    failures = tuple(ctx.store.delete_versions(gone)) if gone else ()
    for upload in {u: None for f in each for u in f.uploads}:
        ctx.store.abort_multipart(upload.key, upload.upload_id)
    return Cleared(len(gone) - len(failures), failures)


def _adopted(ctx: Context, loaded: Loaded) -> set[str]:
    """Keys of this bucket that are live data files where they landed, on any branch."""
    here = f"{ctx.store.scheme}://{ctx.store.bucket}/"
    return {
        f.key.removeprefix(here)
        for _, each in each_content(ctx, loaded)
        for f in each.state.files()
        if f.adopted
    }


def _known(
    ctx: Context, loaded: Loaded, infos: Sequence[ObjectInfo], live: dict[str, ObjectVersion]
) -> set[str]:
    """Keys whose content was ingested, as far as the ledger remembers. An event names a content by its
    ETag or, where the bucket keeps versions, by its version id."""
    by_request: dict[bytes, str] = {}
    asked = []
    for info in infos:
        location = Location(ctx.store.scheme, ctx.store.bucket, info.key)
        version_id = live[info.key].version_id
        for source in (Source(location, etag=info.etag), Source(location, version_id=version_id)):
            by_request[source.request.id] = info.key
            asked.append(source.request)
    _, known = known_requests(ctx, loaded, asked)
    return {by_request[request] for request in known}


def _judge(ctx: Context, loaded: Loaded, info: ObjectInfo, predicate: Predicate) -> str | None:
    """Why an object keeps the erasure waiting; None when it holds no row of it."""
    location = Location(ctx.store.scheme, ctx.store.bucket, info.key)
    try:
        entry = inspect_source(ctx, Source(location, etag=info.etag), loaded.snapshot)
        if entry is None:
            return "it changed while it was looked at"
        if not entry.rows:
            return None
        task = FileTask(
            file=replace(entry, key=location.uri, etag=info.etag),
            schema=loaded.snapshot.schema,
            predicate=predicate,
        )
        # This runs in a task of the executor: waiting for others of its tasks could last for ever.
        found = read_positions(ctx.objects, [task], loaded.snapshot.schema, InlineExecutor())
        return _HOLDS_ROWS if any(True for _ in found) else None
    except InlayError as error:
        if error.kind is Kind.RETRY:
            raise
        return f"it cannot be read ({error.message}): replace or delete it"

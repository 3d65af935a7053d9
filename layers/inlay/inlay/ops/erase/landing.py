"""The landing zone in an erasure: what has to be erased there, and what is deleted.

Promise: of contents uploaded before the erasure was opened, those that were ingested are deleted, and so
are those that their owner deleted, overwritten ones without a version id, and unfinished uploads: nothing
of them can enter the table any more. An overwritten version can, by its event. A file that the table
adopted where it landed stays for as long as it is live. A content that was not ingested yet is left for
ingestion, which marks its rows (`plan.commit.draft`); until then the erasure waits for it, if it holds any
of the rows or names their values. Nothing is ever rewritten in place: that would raise an event.

What ingestion will never take (`format.landing`: markers, files under a temporary name, other formats,
damaged or refused files) stays, and the receipt lists it. An operator may waive an object that is waited
for, by its name; the receipt lists that, too. `ops.erase.landed_content` judges what a content holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, assert_never

from inlay.format.snapshot import Erasure
from inlay.lazy import LazyModule
from inlay.ops.commit.driver import known_requests
from inlay.ops.context import Context
from inlay.ops.erase.last_look import Landing, NeverTaken
from inlay.ops.erase.receipt import Lists, waived_content
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.refs import each_content
from inlay.ops.write.append import IngestSource
from inlay.plan.change import Request
from inlay.plan.erasure import Waiting
from inlay.storage.base import NULL_VERSION, DeleteFailure, Location, Missing, ObjectVersion

if TYPE_CHECKING:
    from inlay.format import landing as conventions
    from inlay.ops.erase.landed_content import Judged
else:  # where nothing lands no name is compared with them
    conventions = LazyModule("inlay.format.landing")


def check_landing(
    ctx: Context, loaded: LoadedTable, erasures: Sequence[Erasure], prefix: str
) -> dict[str, Landing]:
    """The objects under `prefix` that concern each erasure; listed and read once for all of them. Objects
    that the ledger does not know are decided by what they hold, which needs the predicates: one with rows
    of any of the erasures, or their values beside its rows, keeps each that was opened after its upload."""
    newest_us = max(e.opened_us for e in erasures)
    # Live data files where they landed, on any branch.
    bucket_uri = f"{ctx.store.scheme}://{ctx.store.bucket}/"
    files = (f for _, content in each_content(ctx, loaded) for f in content.state.files())
    ours = {f.key.removeprefix(bucket_uri) for f in files if f.adopted}
    # Uploads before objects: one that ends meanwhile, whose object is dated by its beginning, is in either.
    uploads = [u for u in ctx.store.list_uploads(prefix) if u.started_us <= newest_us]
    old: list[ObjectVersion] = []
    taken_back: set[str] = set()  # also since the opening: its event brings nothing in any more
    for v in ctx.store.list_versions(prefix):
        if v.marker and v.is_latest and v.key not in ours:
            taken_back.add(v.key)
        if _is_from(v, newest_us) and not (v.is_latest and v.key in ours):
            old.append(v)
    # What was overwritten without a version id cannot be reached by its event any more.
    dead = {
        v
        for v in old
        if v.marker or v.key in taken_back or (not v.is_latest and v.version_id == NULL_VERSION)
    }
    contents = [v for v in old if v not in dead]
    known = _known(ctx, loaded, contents)
    pending = [v for v in contents if v not in known]
    predicates = {e.id: e.predicate for e in erasures if e.predicate is not None}

    holds: Mapping[ObjectVersion, Judged] = {}
    if predicates and pending:
        from inlay.ops.erase.landed_content import judge_contents  # only where something has landed

        holds = judge_contents(ctx, loaded, prefix, pending, predicates)
    # What is older than the ledger was ingested long ago.
    horizon_us = loaded.snapshot.ledger.horizon_us
    forgotten = {v for v, by in holds.items() if by.is_of_erasure and v.modified_us < horizon_us}
    ingested = [*(v for v in contents if v in known), *(v for v in pending if v in forgotten)]
    waiting = {v: by.waits for v, by in holds.items() if by.waits and v not in forgotten}
    waivers = Lists(ctx).waivers(erasures) if waiting else {}

    def of(erasure: Erasure) -> Landing:
        opened_us = erasure.opened_us

        def older(versions: Iterable[ObjectVersion]) -> tuple[ObjectVersion, ...]:
            return tuple(v for v in versions if v.modified_us <= opened_us)

        waived = waivers.get(erasure.id, frozenset())
        excused = [v for v in older(waiting) if waived_content(v) in waived]
        others = (by.others[erasure.id] for by in holds.values() if by.others is not None)
        return Landing(
            dead=older(v for v in old if v in dead),
            uploads=tuple(u for u in uploads if u.started_us <= opened_us),
            ingested=older(ingested),
            waiting=tuple(
                Waiting(
                    "landing",
                    v.key,
                    waiting[v] + ("" if v.is_latest else f" (its version {v.version_id})"),
                )
                for v in older(waiting)
                if v not in excused
            ),
            perhaps=older(v for v, by in holds.items() if by.perhaps),
            others=(
                *(o for o in others if _is_from(o.version, opened_us)),
                *(
                    NeverTaken(v, conventions.LandedKind.DATA, "waived", "by an operator")
                    for v in excused
                ),
            ),
        )

    return {erasure.id: of(erasure) for erasure in erasures}


def _is_from(version: ObjectVersion, opened_us: int) -> bool:
    """Whether the content is from before an erasure. What was refused of one may be listed later."""
    return version.modified_us <= opened_us or (
        not version.marker and conventions.lists_refused(version.key)
    )


def clear_landing(
    ctx: Context, landings: Iterable[Landing]
) -> tuple[int, tuple[DeleteFailure, ...]]:
    """Deletes what can be deleted, versions for good: how many, and what failed. Where a name keeps no
    versions it is looked at again first: minutes may have passed since the listing, and what was put there
    meanwhile is not known."""
    landings = tuple(landings)
    doomed = (version for f in landings for version in (*f.dead, *f.ingested))
    listed = list({(v.key, v.version_id): v for v in doomed}.values())
    listed_again = list(ctx.map(lambda version: _as_listed(ctx, version), listed))
    gone = [
        (v.key, v.version_id) for v, by in zip(listed, listed_again, strict=True) if by == "version"
    ]
    same = [(v.key, v.etag) for v, by in zip(listed, listed_again, strict=True) if by == "content"]
    failures = tuple(ctx.store.delete_versions(gone)) if gone else ()
    failures += tuple(ctx.store.delete_unchanged(same)) if same else ()
    for upload in {u: None for f in landings for u in f.uploads}:
        ctx.store.abort_multipart(upload.key, upload.upload_id)
    return len(gone) + len(same) - len(failures), failures


def what_ended_meanwhile(landing: Landing) -> Iterator[Waiting]:
    """What a second check found, after the uploads of the first were aborted: one may have ended before."""
    yield from landing.waiting
    for version in (*landing.dead, *landing.ingested):
        yield Waiting("landing", version.key, "it landed meanwhile")
    for upload in landing.uploads:
        yield Waiting("landing", upload.key, "its upload is still under way")


def _as_listed(ctx: Context, version: ObjectVersion) -> str | None:
    """By what the content that was listed can be deleted: its "version", or, where the bucket keeps none,
    its "content"; None where it was overwritten."""
    if version.version_id != NULL_VERSION or version.marker:
        return "version"
    head = ctx.store.head(version.key)
    if isinstance(head, Missing):
        return "version"  # deleted, or hidden by a marker
    if head.info.version_id is None:
        return "content" if head.info.etag == version.etag else None
    is_same = head.info.version_id != NULL_VERSION or head.info.etag == version.etag
    return "version" if is_same else None


def shut_out(ctx: Context, landings: Iterable[Landing]) -> tuple[Request, ...]:
    """The events of data that stays though it may hold what is erased, refused or waived. With the
    predicate nothing would mark its rows any more: the ledger remembers these events, so that none
    brings them in after all, whatever the table's schema becomes."""
    kept = {o.version: None for landing in landings for o in landing.others if _could_come_in(o)}
    return tuple(request for version in kept for request in _requests_of(ctx, version))


def _could_come_in(other: NeverTaken) -> bool:
    """Also texts: the table may take them one day (`ingest.formats`)."""
    kinds = conventions.LandedKind
    match other.kind:
        case kinds.DATA:
            could = True
        case kinds.FOREIGN:
            could = conventions.text_kind(other.version.key, conventions.TEXT_FORMATS) is not None
        case kinds.TEMPORARY | kinds.MARKER | kinds.DAMAGED:
            could = False
        case _:
            assert_never(other.kind)
    return could and other.said != "nothing"


def _requests_of(ctx: Context, version: ObjectVersion) -> list[Request]:
    """The names under which events refer to a content."""
    location = Location(ctx.store.scheme, ctx.store.bucket, version.key)
    names = [IngestSource(location, version_id=version.version_id)]
    if version.is_latest:  # an ETag alone identifies the current content
        names.append(IngestSource(location, etag=version.etag))
    return [source.request for source in names]


def _known(
    ctx: Context, loaded: LoadedTable, versions: Sequence[ObjectVersion]
) -> set[ObjectVersion]:
    """The contents that were ingested, as far as the ledger remembers. An event names a content by its ETag
    or, where the bucket keeps versions, by its version id."""
    by_request: dict[bytes, ObjectVersion] = {}
    asked = []
    for version in versions:
        for request in _requests_of(ctx, version):
            by_request[request.id] = version
            asked.append(request)
    _, known = known_requests(ctx, loaded, asked)
    return {by_request[request] for request in known}

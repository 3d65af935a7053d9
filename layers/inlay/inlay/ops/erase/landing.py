"""The landing zone in an erasure: what has to be erased there, and what is deleted.

Promise: of contents uploaded before the erasure was opened, those that were ingested are deleted, and so
are those that their owner deleted, overwritten ones without a version id, and unfinished uploads: nothing
of them can enter the table any more. An overwritten version can, by its event. A file that the table
adopted where it landed stays for as long as it is live. A content that was not ingested yet is left for
ingestion, which marks its rows (`plan.commit.draft`); until then the erasure waits for it, if it holds any
of the rows, or names their values beside its rows; CSV and JSON are read as ingestion reads them. Nothing
is ever rewritten in place: that would raise an event.

What ingestion will never take (`format.landing`: markers, files under a temporary name, other formats,
damaged or refused files) keeps no erasure waiting, whoever put it there: it is searched as it is
(`ops.erase.landed_search`), stays, and the receipt lists it. An operator may waive an object that is
waited for, by its name; the receipt lists that, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from inlay.errors import ErrorKind, InlayError
from inlay.format.landing import (
    TEXT_FORMATS,
    LandedKind,
    landed_object,
    lists_refused,
    text_kind,
)
from inlay.format.predicate import Predicate, field_ids
from inlay.format.snapshot import Erasure
from inlay.ops.cache import ObjectCache
from inlay.ops.commit.driver import known_requests
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.erase.landed_search import search_never_taken
from inlay.ops.erase.last_look import Landing, NeverTaken, Said, said_of_object
from inlay.ops.erase.receipt import Lists, waived_content
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.refs import each_content
from inlay.ops.write.append import IngestSource
from inlay.parquet.arrow.evaluate import columns_of, evaluate
from inlay.parquet.read.ranges import Objects
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection
from inlay.parquet.surgery.residue import find_residue
from inlay.plan.change import Request
from inlay.plan.erasure import Waiting
from inlay.plan.pruning.literals import any_of, texts_of
from inlay.plan.pruning.mentions import Mentions, names_any
from inlay.plan.scan import FileTask
from inlay.storage.base import NULL_VERSION, DeleteFailure, Location, Missing, ObjectVersion

if TYPE_CHECKING:
    from inlay.ops.write.ingest import InspectedRecords

_HOLDS_ROWS = "it holds rows of the erasure and was not ingested yet: ingest it, or delete it"
_MAY_HOLD_ROWS = (
    "by its folders it may hold rows of the erasure, and was not ingested yet: "
    "ingest it, or delete it"
)
_NAMES = (
    "it names what is erased, beside its rows, and was not ingested yet: ingest it, or delete it"
)


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a content that was not ingested holds: `waits` says why the erasure waits for it, if it does;
    `perhaps` that it may name what is erased; `others`, by erasure, that ingestion will never take it."""

    waits: str | None = None
    perhaps: bool = False
    others: Mapping[str, NeverTaken] | None = None

    @property
    def is_of_erasure(self) -> bool:
        """Whether it waits for what the content holds, not for a look at it."""
        return self.waits in (_HOLDS_ROWS, _MAY_HOLD_ROWS, _NAMES)


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
    old = [
        v
        for v in ctx.store.list_versions(prefix)
        if _is_from(v, newest_us) and not (v.is_latest and v.key in ours)
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
    pending = [v for v in contents if v not in known]
    predicates = {e.id: e.predicate for e in erasures if e.predicate is not None}

    def judged(version: ObjectVersion) -> _Judged:
        try:
            return _judged(ctx, loaded, prefix, version, predicates)
        except InlayError as error:
            if error.kind is ErrorKind.RETRY:
                raise
            # The role, the storage class, the store: what it holds is unknown.
            return _Judged(waits=f"it cannot be read ({error.message}): replace or delete it")

    holds = dict(zip(pending, ctx.map(judged, pending), strict=True)) if predicates else {}
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
                Waiting("landing", v.key, waiting[v] + _which(v))
                for v in older(waiting)
                if v not in excused
            ),
            perhaps=older(v for v, by in holds.items() if by.perhaps),
            others=(
                *(o for o in others if _is_from(o.version, opened_us)),
                *(NeverTaken(v, LandedKind.DATA, "waived", "by an operator") for v in excused),
            ),
        )

    return {erasure.id: of(erasure) for erasure in erasures}


def _which(version: ObjectVersion) -> str:
    return "" if version.is_latest else f" (its version {version.version_id})"


def _is_from(version: ObjectVersion, opened_us: int) -> bool:
    """Whether the content is from before an erasure. What was refused of one may be listed later."""
    return version.modified_us <= opened_us or (not version.marker and lists_refused(version.key))


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
    is_text = text_kind(other.version.key, TEXT_FORMATS) is not None
    is_data = other.kind is LandedKind.DATA or (other.kind is LandedKind.FOREIGN and is_text)
    return is_data and other.said != "nothing"


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


def _judged(
    ctx: Context,
    loaded: LoadedTable,
    prefix: str,
    version: ObjectVersion,
    predicates: Mapping[str, Predicate],
) -> _Judged:
    """What a content that was not ingested means for the erasures."""
    # Only where something has landed.
    from inlay.ops.write.ingest import InspectedRecords, identify, inspect_rows, inspect_source

    location = Location(ctx.store.scheme, ctx.store.bucket, version.key)
    version_id = None if version.version_id == NULL_VERSION else version.version_id
    source = IngestSource(location, etag=version.etag or None, version_id=version_id)
    # This runs in a task of the executor: waiting for other tasks of it could block for ever.
    versions = {} if version_id is None else {location.uri: version_id}
    # A cache of its own: it knows objects by name, and a name may have many versions here.
    objects = Objects(ctx.store, ctx.root, ObjectCache(), versions=versions)
    path = version.key[len(prefix) :]
    by_name = landed_object(path, size=version.size)

    def never_taken(kind: LandedKind) -> _Judged:
        return _Judged(others=search_never_taken(objects, location, version, kind, predicates))

    if by_name.is_ignored:
        return never_taken(by_name.kind)
    try:
        inspected = inspect_source(ctx, source, loaded.snapshot)
    except InlayError as error:
        if error.kind in (ErrorKind.RETRY, ErrorKind.PAGE):
            raise
        return never_taken(identify(ctx, source.content, path, loaded.snapshot).kind)
    if inspected is None:
        return _Judged(waits="it changed while it was read")
    if isinstance(inspected, InspectedRecords):
        try:
            return _judge_records(objects, loaded, inspected, location, version, predicates)
        except InlayError as error:
            if error.kind is not ErrorKind.INPUT:
                raise
        return never_taken(LandedKind.DATA)  # refused by what is in it: no event will bring it in

    def judge(predicate: Predicate) -> _Judged:
        task = FileTask(
            file=replace(
                inspected.entry, key=location.uri, etag=version.etag or None, adopted=True
            ),
            schema=loaded.snapshot.schema,
            predicate=predicate,
        )
        return _judge_data(objects, loaded, task, location, predicate)

    judged = judge(any_of(list(predicates.values())))
    # Its folders say what its rows will have there, whatever the condition selects by it.
    if any(inspected.folders & field_ids(predicate) for predicate in predicates.values()):
        judged = _Judged(waits=_MAY_HOLD_ROWS)
    if judged.waits is None or inspect_rows(ctx, source, loaded.snapshot) is None:
        return judged
    # Refused by its rows: no event will bring it in.
    refused = {name: _refused_by_rows(version, judge(predicates[name])) for name in predicates}
    return _Judged(others=refused)


def _refused_by_rows(version: ObjectVersion, judged: _Judged) -> NeverTaken:
    verdict: Said = "names" if judged.waits else "perhaps" if judged.perhaps else "nothing"
    where = "its rows" if judged.waits == _HOLDS_ROWS else "beside its rows"
    return NeverTaken(version, LandedKind.DATA, verdict, "" if verdict == "nothing" else where)


def _judge_data(
    objects: Objects, loaded: LoadedTable, task: FileTask, location: Location, predicate: Predicate
) -> _Judged:
    inline, schema = InlineExecutor(), loaded.snapshot.schema
    if task.file.rows and any(True for _ in Reader(objects, inline).positions([task], schema)):
        return _Judged(waits=_HOLDS_ROWS)
    searched = find_residue(
        Reader(objects, inline).open(task, Projection(schema=schema, columns=())), predicate, inline
    )
    texts, mentions = texts_of(predicate), Mentions.of(predicate)
    outside, unread = said_of_object(objects.source(location.uri))
    said = [text for *_, text in outside]
    if any(r.certain for r in searched.residues) or any(names_any(t, texts) for t in said):
        return _Judged(waits=_NAMES)
    unsure = searched.residues or searched.perhaps or unread
    return _Judged(perhaps=bool(unsure or any(map(mentions.may_select, said))))


def _judge_records(
    objects: Objects,
    loaded: LoadedTable,
    inspected: InspectedRecords,
    location: Location,
    version: ObjectVersion,
    predicates: Mapping[str, Predicate],
) -> _Judged:
    """By its rows as ingestion would have them, to the last: it is refused for any of them. Raises what it
    is refused for. Then by all it says: what would be refused one by one, or is the row before a change,
    ingestion does not mark. It is waited for: the first is listed then, and what was ingested deleted."""
    predicate = any_of(list(predicates.values()))
    columns = columns_of(loaded.snapshot.schema)
    rows = inspected.rows()
    holds = [evaluate(predicate, batch, columns).true_count > 0 for batch in rows.batches]
    if any(holds):
        return _Judged(waits=_HOLDS_ROWS)
    texts, mentions = texts_of(predicate), Mentions.of(predicate)
    for one in rows.refused.listed if rows.refused is not None else ():
        record = json.dumps(one.record, default=str, ensure_ascii=False)
        text = record.encode("utf-8", "surrogatepass")
        if names_any(text, texts) or mentions.may_select(text):
            return _Judged(waits=_NAMES)
    searched = search_never_taken(objects, location, version, LandedKind.DATA, predicates).values()
    if any(outcome.said == "names" for outcome in searched):
        return _Judged(waits=_NAMES)
    return _Judged(perhaps=any(outcome.said == "perhaps" for outcome in searched))

"""The landing zone of a table, compared with its ledger.

Promise: every content that an event can still name is reported once, with its state and what it is
(`format.landing`); nothing is changed. S3 may lose or delay an event: contents that are pending for long
need another notification.

========= ===========================================================================================
state     means
========= ===========================================================================================
ingested  its rows are in the table, or were
pending   it can be ingested, but no event of it was processed yet
rejected  it can never be ingested as it is; `reason` says why
forgotten older than the ledger reaches back: it is no longer known whether it was ingested
ignored   no data, by its name or because it is empty; `reason` says what it is
========= ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from inlay.errors import InlayError, InvalidRequest, UnreadableFile
from inlay.format.landing import LandedKind, landed_object
from inlay.ops.commit.driver import known_requests
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.write.append import IngestSource
from inlay.ops.write.ingest import identify, inspect_rows, inspect_source
from inlay.plan.erasure import landing_zone
from inlay.record import Record, replace
from inlay.storage.base import NULL_VERSION, Location, ObjectVersion

State = Literal["ingested", "pending", "rejected", "forgotten", "ignored"]

# Contents looked up in the ledger together: one page of a listing.
_PAGE = 1_000


class Landed(Record):
    """One content in the landing zone. `version_id` None where the bucket keeps no versions."""

    key: str
    version_id: str | None
    etag: str
    size: int
    modified_us: int
    state: State
    kind: LandedKind = LandedKind.DATA
    reason: str = ""


def landed(ctx: Context, loaded: LoadedTable, prefix: str | None) -> Iterator[Landed]:
    """Every content under `prefix` (by default where the table's files land), in key order, newest first
    for one key. The footers of pending ones are read, to find those that can never be ingested."""
    prefix = landing_zone(ctx.root, prefix or None)
    if prefix is None:
        raise InvalidRequest(
            "the table is not under tables/, so nothing says where its files land",
            next_step="Name it: --prefix ingest/<table>/",
            table=ctx.uri,
        )
    page: list[ObjectVersion] = []
    for version in _contents(ctx, prefix):
        page.append(version)
        if len(page) == _PAGE:
            loaded, states = _states(ctx, loaded, prefix, page)
            yield from states
            page = []
    yield from _states(ctx, loaded, prefix, page)[1]


def _contents(ctx: Context, prefix: str) -> Iterator[ObjectVersion]:
    """Contents that an event can name: current ones, and versions of overwritten ones."""
    taken_back = ""
    for version in ctx.store.list_versions(prefix):
        if version.marker:
            if version.is_latest:
                taken_back = version.key  # its owner deleted it: its versions follow
            continue
        reachable = version.is_latest or version.version_id != NULL_VERSION
        if reachable and version.key != taken_back:
            yield version


def _states(
    ctx: Context, loaded: LoadedTable, prefix: str, page: Sequence[ObjectVersion]
) -> tuple[LoadedTable, list[Landed]]:
    sources = [_source(ctx, version) for version in page]
    requests = [name.request for names in sources for name in names]
    loaded, known = known_requests(ctx, loaded, requests)

    def state(item: tuple[ObjectVersion, Sequence[IngestSource]]) -> Landed:
        version, names = item
        source = names[0]
        about = (version.key, source.version_id, version.etag, version.size, version.modified_us)
        listed = Landed(*about, "ingested")
        if any(name.request.id in known for name in names):
            return listed
        by_name = landed_object(version.key[len(prefix) :], size=version.size)
        if by_name.is_ignored:
            return replace(listed, state="ignored", kind=by_name.kind, reason=by_name.reason)
        if version.modified_us < loaded.snapshot.ledger.horizon_us:
            return replace(listed, state="forgotten")
        try:
            inspect_source(ctx, source, loaded.snapshot)
            refused = inspect_rows(ctx, source, loaded.snapshot)
            if refused is not None:
                raise refused
        except InlayError as error:
            if error.kind.is_retried:
                raise
            kind = listed.kind
            if isinstance(error, UnreadableFile):
                path = version.key[len(prefix) :]
                kind = identify(ctx, source.content, path, loaded.snapshot).kind
            reason = f"{type(error).__name__}: {error.message}"
            return replace(listed, state="rejected", kind=kind, reason=reason)
        return replace(listed, state="pending")

    return loaded, list(ctx.map(state, list(zip(page, sources, strict=True))))


def _source(ctx: Context, version: ObjectVersion) -> Sequence[IngestSource]:
    """The names under which events refer to a content: its version id, or its ETag."""
    location = Location(ctx.store.scheme, ctx.store.bucket, version.key)
    by_etag = IngestSource(location, etag=version.etag or None)
    if version.version_id == NULL_VERSION:
        return (by_etag,)
    by_version = IngestSource(location, etag=version.etag or None, version_id=version.version_id)
    return (by_version, by_etag) if version.is_latest else (by_version,)

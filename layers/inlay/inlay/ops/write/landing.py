"""The landing zone of a table, compared with its ledger.

Promise: every content that an event can still name is reported once, with its state; nothing is changed. S3
may lose or delay an event: contents that are pending for long need another notification.

========= ===========================================================================================
state     means
========= ===========================================================================================
ingested  its rows are in the table, or were
pending   it can be ingested, but no event of it was processed yet
rejected  it can never be ingested as it is; `reason` says why
forgotten older than the ledger reaches back: it is no longer known whether it was ingested
========= ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from inlay.errors import ErrorKind, InlayError
from inlay.ops.commit.driver import known_requests
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.write.append import IngestSource
from inlay.ops.write.ingest import inspect_source
from inlay.storage.base import NULL_VERSION, Location, ObjectVersion

State = Literal["ingested", "pending", "rejected", "forgotten"]

# Contents looked up in the ledger together: one page of a listing.
_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Landed:
    """One content in the landing zone. `version_id` None where the bucket keeps no versions."""

    key: str
    version_id: str | None
    etag: str
    size: int
    modified_us: int
    state: State
    reason: str = ""


def is_data(path: str) -> bool:
    """Whether a landed object is meant as data. Spark and Hadoop write `_SUCCESS`, `_temporary/…` and
    `.crc` files beside theirs."""
    parts = path.split("/")
    hidden = any(part[:1] in ("_", ".") and part not in (".", "..") for part in parts)
    return parts[-1] != "" and not hidden


def landed(ctx: Context, loaded: LoadedTable, prefix: str) -> Iterator[Landed]:
    """Every content under `prefix`, in key order, newest first for one key. The footers of pending ones are
    read, to find those that can never be ingested."""
    page: list[ObjectVersion] = []
    for version in _contents(ctx, prefix):
        page.append(version)
        if len(page) == _PAGE:
            loaded, found = _states(ctx, loaded, page)
            yield from found
            page = []
    yield from _states(ctx, loaded, page)[1]


def _contents(ctx: Context, prefix: str) -> Iterator[ObjectVersion]:
    """Contents that an event can name: current ones, and versions of overwritten ones."""
    taken_back = ""
    for version in ctx.store.list_versions(prefix):
        if version.marker:
            if version.is_latest:
                taken_back = version.key  # its owner deleted it: its versions follow
            continue
        reachable = version.is_latest or version.version_id != NULL_VERSION
        if reachable and version.key != taken_back and is_data(version.key[len(prefix) :]):
            yield version


def _states(
    ctx: Context, loaded: LoadedTable, page: Sequence[ObjectVersion]
) -> tuple[LoadedTable, list[Landed]]:
    sources = [_source(ctx, version) for version in page]
    asked = [name.request for names in sources for name in names]
    loaded, known = known_requests(ctx, loaded, asked)

    def state(item: tuple[ObjectVersion, Sequence[IngestSource]]) -> Landed:
        version, names = item
        source = names[0]
        about = (version.key, source.version_id, version.etag, version.size, version.modified_us)
        found = Landed(*about, "ingested")
        if any(name.request.id in known for name in names):
            return found
        if version.modified_us < loaded.snapshot.ledger.horizon_us:
            return replace(found, state="forgotten")
        try:
            inspect_source(ctx, source, loaded.snapshot)
        except InlayError as error:
            if error.kind in (ErrorKind.RETRY, ErrorKind.REBASE):
                raise
            reason = f"{type(error).__name__}: {error.message}"
            return replace(found, state="rejected", reason=reason)
        return replace(found, state="pending")

    return loaded, list(ctx.map(state, list(zip(page, sources, strict=True))))


def _source(ctx: Context, version: ObjectVersion) -> Sequence[IngestSource]:
    """The names under which events refer to a content: its version id, or its ETag."""
    location = Location(ctx.store.scheme, ctx.store.bucket, version.key)
    by_etag = IngestSource(location, etag=version.etag or None)
    if version.version_id == NULL_VERSION:
        return (by_etag,)
    by_version = IngestSource(location, etag=version.etag or None, version_id=version.version_id)
    return (by_version, by_etag) if version.is_latest else (by_version,)

"""The published pointer, and what can be read through it.

Promise: `load_publication` reads the pointer to a table's Iceberg metadata; `find_reachable` finds
every object that a reader with the pointer may still open, and the versions of the table that it reads,
or an error stops the caller: nothing may be deleted on partial knowledge of that.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.errors import CorruptTable, SnapshotGone
from inlay.format import keys
from inlay.format.snapshot import Snapshot
from inlay.iceberg.manifest import Manifest, Read, decode_list, decode_manifest
from inlay.iceberg.metadata import Publication, Published, decode_pointer
from inlay.ops.context import Context
from inlay.storage.base import Missing, Refused


@dataclass(frozen=True, slots=True)
class Found:
    """The published pointer as read; `publication` None: there is none. `date_us` is the store's clock."""

    publication: Publication | None
    etag: str | None
    date_us: int


def load_publication(ctx: Context) -> Found:
    """One GET. Raises `CorruptTable` for a pointer that is damaged."""
    answer = ctx.store.get(ctx.key(keys.PUBLISHED_POINTER))
    if isinstance(answer, Missing):
        return Found(None, None, answer.date_us)
    assert not isinstance(answer, Refused)
    try:
        found = decode_pointer(answer.body)
    except CorruptTable as error:
        raise error.about(table=ctx.uri, key=ctx.key(keys.PUBLISHED_POINTER)) from None
    return Found(found, answer.etag, answer.date_us)


def is_of(publication: Publication, snapshot: Snapshot) -> bool:
    """Whether what is published under the number of this version of the same table is this version."""
    return publication.commit in ("", snapshot.commit.id)


def put_back(publication: Publication, snapshot: Snapshot) -> str:
    """Why what is published is no earlier state of the table; empty if it is, or is another table's."""
    if publication.table_id != snapshot.table_id or publication.version < snapshot.version:
        return ""
    if publication.version == snapshot.version and is_of(publication, snapshot):
        return ""
    same = publication.version == snapshot.version
    what = "is another one in the table" if same else "the table has not reached"
    return (
        f"version {publication.version} is published, which {what}: the table or the published pointer was "
        "put back"
    )


def relative(ctx: Context, publication: Publication, uri: str) -> str:
    """The key, relative to the table root, of a full URI in a publication. The URIs of a table that was
    moved name its earlier location: the objects have moved with it."""
    for root in (publication.root, ctx.location("").rstrip("/")):
        if uri.startswith(f"{root}/"):
            return uri[len(root) + 1 :]
    return uri


def read_list(ctx: Context, publication: Publication, snapshot: Published) -> tuple[Manifest, ...]:
    return decode_list(_get(ctx, publication, snapshot.manifest_list))


def read_manifest(ctx: Context, publication: Publication, manifest: Manifest) -> tuple[Read, ...]:
    return decode_manifest(_get(ctx, publication, manifest.path), manifest)


def _get(ctx: Context, publication: Publication, uri: str) -> bytes:
    name = relative(ctx, publication, uri)
    answer = ctx.store.get(ctx.key(name))
    if isinstance(answer, Missing | Refused):
        raise SnapshotGone("an object of the published table is gone", table=ctx.uri, key=name)
    return answer.body


@dataclass(frozen=True, slots=True)
class Reached:
    """`versions` of the table and `objects` under its root that a reader of the publication needs."""

    versions: frozenset[int] = frozenset()
    objects: frozenset[str] = frozenset()


def find_reachable(ctx: Context) -> Reached:
    """What the current publication keeps. Objects that are gone keep nothing: readers already miss them. It
    is unknown what a damaged pointer keeps, so everything that was ever published is kept."""
    try:
        publication = load_publication(ctx).publication
    except CorruptTable:
        prefix = ctx.key("")
        every = ctx.store.list(prefix + keys.PUBLISHED)
        return Reached(objects=frozenset(o.key[len(prefix) :] for o in every))
    if publication is None:
        return Reached()
    objects = {
        keys.PUBLISHED_POINTER,
        keys.VERSION_HINT,
        relative(ctx, publication, publication.location),
    }
    manifests: dict[str, Manifest] = {}

    def listed(snapshot: Published) -> tuple[Manifest, ...]:
        try:
            return read_list(ctx, publication, snapshot)
        except SnapshotGone:
            return ()

    for snapshot, found in zip(
        publication.snapshots, ctx.map(listed, publication.snapshots), strict=True
    ):
        objects.add(relative(ctx, publication, snapshot.manifest_list))
        manifests |= {m.path: m for m in found}
    objects |= {relative(ctx, publication, path) for path in manifests}
    if publication.format_version < 3:
        # Position deletes are objects of the publication itself.
        def deletes(manifest: Manifest) -> tuple[Read, ...]:
            try:
                return read_manifest(ctx, publication, manifest)
            except SnapshotGone:
                return ()

        for entries in ctx.map(deletes, [m for m in manifests.values() if m.content]):
            objects |= {relative(ctx, publication, r.entry.path) for r in entries}
    return Reached(frozenset(s.version for s in publication.snapshots), frozenset(objects))

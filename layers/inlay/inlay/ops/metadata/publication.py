"""The published pointer, and what can be read through it.

Promise: `load_publication` reads the pointer to a table's Iceberg metadata; `find_reachable` finds
every object that a reader with the pointer may still open, and the versions of the table that it reads,
or an error stops the caller: nothing may be deleted on partial knowledge of that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from inlay.errors import CorruptTable, ForeignCommit, SnapshotGone
from inlay.format import keys
from inlay.format.snapshot import Snapshot
from inlay.iceberg.manifest import Manifest, Read, decode_list, decode_manifest
from inlay.iceberg.metadata import Publication, Published, decode_pointer, is_publication
from inlay.ops.context import Context
from inlay.record import Record
from inlay.storage.base import Got, Missing, Refused


class Found(Record):
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
        pointer = decode_pointer(answer.body)
    except CorruptTable as error:
        raise error.about(table=ctx.uri, key=ctx.key(keys.PUBLISHED_POINTER)) from None
    return Found(pointer, answer.etag, answer.date_us)


# The hint of a table whose folder is not for engines to open (`publish.version_hint`): those that follow
# hints fail on it, and name it. It is an object, so that no delayed publisher writes a version there.
NO_HINT = "none-ask-the-catalog"


class Hint(Record):
    """The version hint as read; `text` empty: there is none. `version` None: it names none."""

    text: str
    etag: str | None

    @property
    def version(self) -> int | None:
        text = self.text
        is_number = text.isascii() and text.isdigit() and len(text) <= keys.MAX_VERSION_DIGITS
        return int(text) if is_number else None


def load_hint(ctx: Context) -> Hint:
    """One GET."""
    answer = ctx.store.get(ctx.key(keys.VERSION_HINT))
    if not isinstance(answer, Got):
        return Hint("", None)
    return Hint(answer.body.strip().decode("ascii", "replace"), answer.etag)


def hint_of(publication: Publication) -> str:
    """What the hint says once this is published."""
    return str(publication.version) if publication.has_hint else NO_HINT


def load_metadata(ctx: Context, version: int) -> Any:
    """The table metadata under the name of `version`, as JSON; None if there is none. Raises
    `ForeignCommit` for what Inlay did not publish. One GET."""
    metadata = _metadata(ctx, version)
    if metadata is not None and not is_publication(metadata, version):
        raise _foreign(ctx, version, "is not what was published" + _lets_clean(metadata))
    return metadata


def foreign_metadata(ctx: Context, version: int) -> Mapping[str, Any] | None:
    """What another engine wrote under the name of `version`; None if there is none, or it is Inlay's own.
    Raises `ForeignCommit` where it cannot be read. One GET."""
    metadata = _metadata(ctx, version)
    if metadata is None or is_publication(metadata, version):
        return None
    if not isinstance(metadata, dict):
        raise _foreign(ctx, version, "cannot be read")
    return metadata


def _metadata(ctx: Context, version: int) -> Any:
    """None: there is nothing; False: it is no JSON."""
    answer = ctx.store.get(ctx.key(keys.published_metadata_key(version)))
    if not isinstance(answer, Got):
        return None
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return False


def _lets_clean(metadata: Any) -> str:
    match metadata:
        case {"properties": {"gc.enabled": "false"}}:
            return ""
        case {"properties": dict()}:
            return (
                ", and does not say gc.enabled=false: what Iceberg's cleaners have deleted since, `inlay "
                "verify` finds"
            )
        case _:  # whatever JSON says
            return ""


def _foreign(ctx: Context, version: int, what: str) -> ForeignCommit:
    key = keys.published_metadata_key(version)
    return ForeignCommit(
        f"another engine has committed to this table by its path: {key} {what}",
        table=ctx.uri,
        key=ctx.key(key),
    )


def refuse_foreign(
    ctx: Context, publication: Publication | None, hint: Hint, *, look_ahead: bool
) -> None:
    """Raises `ForeignCommit` for a commit by path upon what is published: the hint names it, or
    (`look_ahead`) it has the next number. A GET for each that is looked at: none for a hint that is right.

    Engines also commit by path (Iceberg's Hadoop catalog): they write the metadata file after the newest
    one and move the version hint. Such a commit is noticed before it is overwritten, passed over or
    collected (`refuse_foreign`), unless its hint was lost and its number is not the next one.
    """
    newest = None if publication is None else publication.version
    doubtful = {hint.version} - {newest, None}
    if look_ahead and newest is not None:
        doubtful.add(newest + 1)
    for version in doubtful:
        if version is not None:
            load_metadata(ctx, version)


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


class Reached(Record):
    """`versions` of the table and `objects` under its root that a reader of the publication needs."""

    versions: frozenset[int] = frozenset()
    objects: frozenset[str] = frozenset()


def find_reachable(ctx: Context) -> Reached:
    """What the current publication keeps. Objects that are gone keep nothing: readers already miss them. It
    is unknown what a damaged pointer keeps, so everything that was ever published is kept. Raises
    `ForeignCommit`: what was committed upon it is unknown, too."""
    try:
        publication = load_publication(ctx).publication
    except CorruptTable:
        every = ctx.store.list(ctx.key(keys.PUBLISHED))
        return Reached(objects=frozenset(ctx.relative(o.key) for o in every))
    if publication is None:
        return Reached()
    refuse_foreign(ctx, publication, load_hint(ctx), look_ahead=True)
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

    snapshots = (*publication.snapshots, *publication.branches)
    for snapshot, listing in zip(snapshots, ctx.map(listed, snapshots), strict=True):
        objects.add(relative(ctx, publication, snapshot.manifest_list))
        manifests |= {m.path: m for m in listing}
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

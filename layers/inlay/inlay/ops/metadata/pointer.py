"""Reading a pointer or archives that may be broken.

Promise: damage is returned as a value that describes it; only what decodes as a whole is used. What a later
version of the format wrote is not damage: `NewerFormat` is raised.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.errors import CorruptTable
from inlay.format import keys
from inlay.format.codec import decode_snapshot
from inlay.format.keys import archive_version
from inlay.format.snapshot import Snapshot, with_open_times
from inlay.ops.context import Context
from inlay.ops.metadata.load import check_same_table, schemas_of
from inlay.storage.base import Missing, Refused


@dataclass(frozen=True, slots=True)
class Pointer:
    """A sound pointer, with open times filled in."""

    snapshot: Snapshot
    raw: bytes
    etag: str
    date_us: int


@dataclass(frozen=True, slots=True)
class BrokenPointer:
    """`etag` and `raw` of the existing bytes; None when there are none."""

    etag: str | None
    raw: bytes
    reason: str
    newest_archive: int | None
    date_us: int


def read_pointer(ctx: Context) -> Pointer | BrokenPointer:
    """The pointer, or what is wrong with it. Raises `NewerFormat`: what a later version wrote
    is sound; `TableReplaced` when it is not of the context's table."""
    answer = ctx.store.get(ctx.key(keys.POINTER))
    if isinstance(answer, Missing | Refused):
        newest = newest_archive(ctx)
        return BrokenPointer(None, b"", "the pointer does not exist", newest, answer.date_us)
    try:
        stored = decode_snapshot(answer.body, key=keys.POINTER, apart=schemas_of(ctx))
    except CorruptTable as error:
        newest = newest_archive(ctx)
        return BrokenPointer(answer.etag, answer.body, error.message, newest, answer.date_us)
    check_same_table(ctx, stored)
    snapshot = with_open_times(stored, answer.date_us)
    return Pointer(snapshot, answer.body, answer.etag, answer.date_us)


def newest_archive(ctx: Context) -> int | None:
    """The highest version that has an archive object, by a listing."""
    return max(archived_versions(ctx), default=None)


def archived_versions(ctx: Context) -> list[int]:
    """All versions that have an archive object, in order."""
    prefix = ctx.key(keys.ARCHIVES + "v")
    root = len(ctx.key(""))
    versions = (archive_version(info.key[root:]) for info in ctx.store.list(prefix))
    return sorted(v for v in versions if v is not None)


def check_archive(ctx: Context, data: bytes, version: int, table_id: str) -> Snapshot | str:
    """The snapshot in the archive of `version`, or why these bytes are not it."""
    try:
        snapshot = decode_snapshot(data, key=keys.archive_key(version), apart=schemas_of(ctx))
    except CorruptTable as error:
        return error.message
    if snapshot.version != version:
        return f"holds version {snapshot.version}"
    if snapshot.table_id != table_id:
        return "belongs to another table"
    return snapshot

"""Server-side copies of Parquet files that stay as they are."""

from __future__ import annotations

from inlay.ops.context import Context
from inlay.storage.base import MAX_COPY_BYTES, ByteRange, Location
from inlay.storage.write_once import Multipart, Stored, copy_once

# Parts of a copy over 5 GiB: 1 GiB each, so that the largest object S3 holds takes 5,120 parts.
PART_BYTES = 1024 * 1024 * 1024


def copy_object(ctx: Context, source: Location, key: str, *, size: int, etag: str) -> Stored:
    """Server-side copy to a key that nobody else writes (its name is random).

    Raises `ObjectGone` when the source is gone, `SourceChanged` when it is no longer what `etag` says.

    The copy has exactly the bytes that were checked (pinned by ETag) or is not made; and nothing but the
    bytes: user metadata and tags of the original may name rows, and no rewrite would search them.
    """
    if size <= MAX_COPY_BYTES or not ctx.store.copies_ranges:
        return copy_once(ctx.store, source, key, size=size, etag=etag, before_retry=ctx.back_off)
    upload = Multipart(
        ctx.store, key, ctx.executor, in_flight=ctx.parallel, before_retry=ctx.back_off
    )
    try:
        for start in range(0, size, PART_BYTES):
            upload.copy(source, ByteRange(start, min(start + PART_BYTES, size)), etag)
        return upload.finish(size)
    except BaseException:
        upload.abort()
        raise

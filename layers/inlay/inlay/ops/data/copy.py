"""Copy: copies an object on the server, without downloading it.

Promise: the copy has exactly the bytes that were checked (pinned by ETag) or is not made; and nothing but
the bytes: user metadata and tags of the original may name rows, and no rewrite would search them.
"""

from __future__ import annotations

from inlay.errors import StoreUnavailable
from inlay.ops.context import Context
from inlay.storage.base import (
    MAX_COPY_BYTES,
    ByteRange,
    Head,
    Location,
    Missing,
    Part,
    Refused,
    Written,
)

# Parts of a copy over 5 GiB: 1 GiB each, so that the largest object S3 holds takes 5,120 parts.
PART_BYTES = 1024 * 1024 * 1024
MAX_TRIES = 4


def copy_object(
    ctx: Context, source: Location, key: str, *, size: int, etag: str
) -> Written | Refused | Missing:
    """Server-side copy to a key that nobody else writes (its name is random).

    `Missing` when the source is gone, `Refused("exists")` when it is no longer what `etag` says.
    """
    if size > MAX_COPY_BYTES:
        return _copy_in_parts(ctx, source, key, size=size, etag=etag)
    for attempt in range(1, MAX_TRIES + 1):
        try:
            return ctx.store.copy(source, key, if_source_match=etag, bare=True)
        except StoreUnavailable:
            # Repeated: the key is ours alone, so a copy that had landed is overwritten with the same bytes.
            if attempt == MAX_TRIES:
                raise
            ctx.clock.sleep(ctx.random.uniform(0, 0.1 * 2**attempt))
    raise StoreUnavailable(f"cannot copy {source.uri}", key=source.key)


def _copy_in_parts(
    ctx: Context, source: Location, key: str, *, size: int, etag: str
) -> Written | Refused | Missing:
    upload = ctx.store.create_multipart(key)

    def copy_part(number: int) -> Part | Refused | Missing:
        start = (number - 1) * PART_BYTES
        return ctx.store.upload_part_copy(
            key,
            upload,
            number,
            source=source,
            byte_range=ByteRange(start, min(start + PART_BYTES, size)),
            if_source_match=etag,
        )

    try:
        parts: list[Part] = []
        for answer in ctx.map(copy_part, range(1, -(-size // PART_BYTES) + 1)):
            if not isinstance(answer, Part):
                ctx.store.abort_multipart(key, upload)
                return answer
            parts.append(answer)
        done = ctx.store.complete_multipart(key, upload, parts)
    except BaseException:
        ctx.store.abort_multipart(key, upload)
        raise
    if isinstance(done, Written):
        return done
    # NoSuchUpload: an earlier Complete may have landed and its answer been lost. Check.
    landed = ctx.store.head(key)
    if isinstance(landed, Head) and landed.info.size == size:
        return Written(landed.info.etag, landed.date_us)
    raise StoreUnavailable(f"the upload of {key} no longer exists", key=key)

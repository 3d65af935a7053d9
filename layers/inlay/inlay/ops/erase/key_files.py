"""Files of keys for erasures: an object that names many people, so that no message has to.

Promise: a file is read once, and deleted, with the version that was read, when its erasures are open; what
is refused keeps its file. Each key gets an erasure of its own, all in one commit, and its receipt names the
file by its SHA-256: the ids are `ID-<digest>.1`, `ID-<digest>.2` … Only files under `keys/`, beside the
tables, are read: a sender of messages could have any other object read, and deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.errors import InvalidRequest, StoreUnavailable
from inlay.format.landing import TEXT_FORMATS, text_kind
from inlay.format.snapshot import Snapshot
from inlay.ops.commit.driver import Committed, Skipped, WriteResult, already_applied, write_result
from inlay.ops.context import Context
from inlay.ops.erase.request import open_each
from inlay.ops.erase.several import conditions_of_keys
from inlay.ops.metadata.load import load_pointer
from inlay.ops.write.content import Content
from inlay.ops.write.landed_text import LandedText
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.plan.change import Request
from inlay.record import Record, replace
from inlay.storage.base import NULL_VERSION, ByteRange, Got, Location
from inlay.text.bytes import reading
from inlay.text.format import TextFormat

KEYS = "keys/"
# The conditions of one request may take a quarter of it (`ops.erase.request`).
MAX_KEY_BYTES = 2**20


class KeyFile(Record):
    location: Location
    body: bytes
    version_id: str | None

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


def erase_from_file(ctx: Context, uri: str, request: Request, *, prefix: str) -> WriteResult:
    """Opens an erasure for each key of the file, which is under `prefix` and `keys/`, and deletes the file.
    Repeating it opens none twice."""
    outcome = _open(ctx, uri, f"{prefix}{KEYS}", request)
    return write_result("erase", outcome, ctx.usage)


def _open(ctx: Context, uri: str, folder: str, request: Request) -> Committed | Skipped:
    loaded, before = already_applied(ctx, load_pointer(ctx), request)
    file = _fetched(ctx, uri, folder)
    if before is not None:
        # The first try may have ended before it deleted the file; another one may be there since.
        if file is not None:
            prefix = f"{request.text}-{file.digest}."
            if any(erasure.id.startswith(prefix) for erasure in loaded.snapshot.erasures):
                _delete(ctx, file)
        return before
    if file is None:
        raise InvalidRequest(
            "the file of keys is not there",
            next_step="Put it there first, and send the message then",
        )
    file_request = replace(request, text=f"{request.text}-{file.digest}")
    keys = _keys(ctx, file, loaded.snapshot)
    conditions = conditions_of_keys(loaded.snapshot.schema, keys, file_request)
    outcome = open_each(ctx, conditions, base=loaded, request=request)
    _delete(ctx, file)
    return outcome


def _fetched(ctx: Context, uri: str, folder: str) -> KeyFile | None:
    place = f"{ctx.store.scheme}://{ctx.store.bucket}/{folder}"
    if not uri.startswith(place) or uri == place:
        raise InvalidRequest(
            "keys_from is not a file of keys of this deployment", next_step=f"Put it under {place}"
        )
    key = uri.removeprefix(f"{ctx.store.scheme}://{ctx.store.bucket}/")
    answer = ctx.store.get(key, byte_range=ByteRange(0, MAX_KEY_BYTES + 1))
    if not isinstance(answer, Got):
        return None
    if answer.size > MAX_KEY_BYTES:
        raise InvalidRequest(
            f"the file of keys has {answer.size:,} bytes, and one request may take {MAX_KEY_BYTES:,}",
            next_step="Cut it into several, with a message each",
        )
    return KeyFile(
        Location(ctx.store.scheme, ctx.store.bucket, key), answer.body, answer.version_id
    )


def _keys(ctx: Context, file: KeyFile, snapshot: Snapshot) -> pa.Table:
    """The keys in the types of the table's columns, which the file names."""
    kinds = schema_to_arrow(snapshot.schema, with_ids=False)
    name = "the file of keys"
    content = Content(ctx.store, file.location, "", len(file.body), file.body)
    kind = text_kind(content.name, TEXT_FORMATS)
    with reading(name, TextFormat(options="ingest.")):
        if kind is None:
            table = pq.read_table(pa.BufferReader(file.body))
        else:
            plain = replace(snapshot, properties={})  # those of landing files are not meant
            texts = LandedText(content, kind).file(plain, limit=0)
            _check_names(texts.names, kinds)
            table = texts.reader(kinds).read_all()
        _check_names(table.column_names, kinds)
        return table.cast(pa.schema([kinds.field(name) for name in table.column_names]))


def _check_names(names: Sequence[str], kinds: pa.Schema) -> None:
    for position, name in enumerate(names, 1):
        if name not in kinds.names:
            raise InvalidRequest(
                f"column {position} of the file of keys is not one of the table",
                next_step=f"The columns are: {', '.join(kinds.names)[:500]}",
            )


def _delete(ctx: Context, file: KeyFile) -> None:
    version = file.version_id or NULL_VERSION
    if ctx.store.delete_versions([(file.location.key, version)]):
        raise StoreUnavailable("the file of keys could not be deleted")  # its erasures are open

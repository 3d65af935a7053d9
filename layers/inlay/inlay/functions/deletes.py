"""Delete requests on tables: from a checked request to its outcome, logged and counted.

Promise: a request is applied once by its id, whichever function runs it. Constant-time deletes, and reads
of small tables, run at once; a request that has to read or rewrite a large table is separated, so that it
can run in another function and delays no other message.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlay.errors import InlayError
from inlay.format.properties import Properties
from inlay.format.snapshot import Snapshot
from inlay.functions.observe import report_write
from inlay.functions.requests import DeleteRequest
from inlay.functions.tables import table_context
from inlay.ops.commit.driver import Committed, Skipped, write_result
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.ops.write.delete import delete, delete_keys
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parse import parse_predicate
from inlay.plan.change import Request
from inlay.storage.wrapped import usage_of

# A `vector` delete reads the filter's columns of files that may match. For tables up to this size that
# takes at most some 6 s of CPU (46 MiB of Parquet a second and core), so ten of a batch fit one invocation.
SMALL_TABLE_BYTES = 256 * 2**20


def apply_delete(asked: DeleteRequest, request: Request, *, heavy: bool) -> bool:
    """Runs a request and reports it. Without `heavy`, a request that has to read a large table or to
    rewrite files is not run, and False is returned. Errors say whether it is retried or refused."""
    ctx = table_context(asked.table)
    try:
        base = load_pointer(ctx)
        if not heavy and is_heavy(asked, base.snapshot):
            # An invalid condition is refused here: it may be too long for the other queue's messages.
            parse_predicate(asked.where or "", base.snapshot.schema)
            return False
        outcomes = _apply(ctx, asked, request, base)
    except InlayError as error:
        raise error.about(table=ctx.uri) from None
    operation = "erase" if asked.mode == "erase" else "delete"
    for done in outcomes:
        report_write(asked.table, write_result(operation, done, usage_of(ctx.store)))
    return True


def is_heavy(asked: DeleteRequest, snapshot: Snapshot) -> bool:
    """Whether a request takes time that grows with the table. Keys and erasures only write markers."""
    if asked.where is None:
        return False
    match asked.mode or Properties(snapshot.properties).text("delete.mode"):
        case "tombstone" | "erase":
            return False
        case "vector":
            return snapshot.totals.bytes > SMALL_TABLE_BYTES
        case _:  # surgery and rewrite read files; so may a mode to come
            return True


def _apply(
    ctx: Context, asked: DeleteRequest, request: Request, base: LoadedTable
) -> Sequence[Committed | Skipped]:
    if asked.keys_from is not None:
        from inlay.functions.key_files import open_from_file  # rare, and many modules

        return (open_from_file(ctx, asked.keys_from, base, request),)
    keys = None
    if asked.where is None:
        schema = schema_to_arrow(base.snapshot.schema, with_ids=False)
        key_ids = base.snapshot.primary_key
        names = [field.name for field in base.snapshot.schema.fields if field.id in key_ids]
        keys = asked.key_table(schema, names)
    if asked.mode == "erase":
        # A rare request, and many modules.
        from inlay.ops.erase.request import condition_of_keys, open_erasures

        predicate = (
            parse_predicate(asked.where or "", base.snapshot.schema)
            if keys is None
            else condition_of_keys(base.snapshot.schema, keys)
        )
        return open_erasures(ctx, predicate, request=request)
    if keys is not None:
        return (delete_keys(ctx, keys, base=base, request=request),)
    predicate = parse_predicate(asked.where or "", base.snapshot.schema)
    return (delete(ctx, predicate, mode=asked.mode, base=base, request=request),)

"""Delete requests on tables: from a checked request to its outcome, logged and counted.

Promise: a request is applied once by its id, whichever function runs it. Constant-time deletes, and reads
of small tables, run at once; a request that has to read or rewrite a large table is separated, so that it
can run in another function and delays no other message.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from inlay import WriteResult
from inlay.engine import Request, delete_requested
from inlay.errors import InlayError, InvalidRequest
from inlay.functions import settings
from inlay.functions.observe import report_write
from inlay.functions.requests import DeleteRequest, OperationsRequest
from inlay.functions.tables import table_context

if TYPE_CHECKING:
    from inlay import Table

# A `vector` delete reads the filter's columns of files that may match. For tables up to this size that
# takes at most some 6 s of CPU (46 MiB of Parquet a second and core), so ten of a batch fit one invocation.
SMALL_TABLE_BYTES = 256 * 2**20


def apply_delete(asked: DeleteRequest, request: Request, *, heavy: bool) -> bool:
    """Runs a request and reports it. Without `heavy`, a request that has to read a large table or to
    rewrite files is not run, and False is returned. Errors say whether it is retried or refused."""
    ctx = table_context(asked.table)
    try:
        results: Sequence[WriteResult] | None
        if asked.keys_from is not None:
            from inlay.engine import erase_from_file  # rare, and many modules

            results = [erase_from_file(ctx, asked.keys_from, request, prefix=settings.prefix())]
        else:
            results = delete_requested(
                ctx,
                asked.key_table if asked.where is None else asked.where,
                mode=asked.mode,
                request=request,
                read_bytes=inf if heavy else SMALL_TABLE_BYTES,
            )
    except InlayError as error:
        raise error.about(table=ctx.uri) from None
    for result in results or ():
        report_write(asked.table, result)
    return results is not None


def apply_operations(asked: OperationsRequest, request_id: str, time_us: int) -> None:
    """Runs them as one commit, and reports each. Raises `InvalidRequest` for what would read a large table:
    there is nobody to forward it to, for its tables are changed together."""
    import inlay

    def opened(name: str) -> Table:
        table = inlay.open("", context=table_context(name))
        mode = table.snapshot.settings.text("delete.mode")
        reads = name in asked.read or any(
            each.get("mode", mode) not in ("tombstone", "erase")
            for each in asked.operations
            if each.get("delete") == name
        )
        if reads and table.snapshot.totals.bytes > SMALL_TABLE_BYTES:
            raise InvalidRequest(
                "a request of several tables has to read one that is too large for a function",
                next_step="Run it by `inlay commit`, or send deletes of one table each",
                table=name,
            )
        return table

    with inlay.transaction(request_id=request_id, requested_us=time_us) as tx:
        tx.run(asked.operations, open=opened)
    for uri, result in tx.by_table.items():
        report_write(uri.rpartition("/")[2], result)

"""Records of change streams that come in messages, applied to their table.

Promise: a message is applied once by its id, whole, as a landed file of these records in JSON would be. How
they are read is said by the table alone (`changes.order` …): who may only delete can change rows of no
table whose owner did not set it.
"""

from __future__ import annotations

import json

from inlay.engine import Request
from inlay.errors import InlayError
from inlay.functions.observe import report_write
from inlay.functions.requests import ChangesRequest
from inlay.functions.tables import table_context


def apply_records(asked: ChangesRequest, request: Request) -> None:
    """Applies and reports them. Errors say whether the message is retried or refused."""
    from inlay.engine import apply_message  # the delete function seldom needs it

    ctx = table_context(asked.table)
    try:
        done = apply_message(ctx, json.dumps(asked.changes).encode(), request)
    except InlayError as error:
        raise error.about(table=ctx.uri) from None
    report_write(asked.table, done)

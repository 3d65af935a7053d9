"""Records of change streams that come in messages, applied to their table.

Promise: a message is applied once by its id, whole, as a landed file of these records in JSON would be. How
they are read is said by the table alone (`changes.order` …): who may only delete can change rows of no
table whose owner did not set it.
"""

from __future__ import annotations

import json

from inlay.errors import InlayError
from inlay.functions.observe import report_write
from inlay.functions.requests import ChangesRequest
from inlay.functions.tables import table_context
from inlay.ops.commit.driver import write_result
from inlay.ops.metadata.load import load_pointer
from inlay.ops.write.content import Content
from inlay.plan.change import Request
from inlay.storage.base import Location
from inlay.storage.wrapped import usage_of


def apply_records(asked: ChangesRequest, request: Request) -> None:
    """Applies and reports them. Errors say whether the message is retried or refused."""
    from inlay.ops.write.landed_changes import apply_content  # the delete function seldom needs it

    ctx = table_context(asked.table)
    body = json.dumps(asked.changes).encode()
    place = Location(ctx.store.scheme, ctx.store.bucket, "the message")
    content = Content(ctx.store, place, "", len(body), body)
    try:
        done = apply_content(ctx, content, "json", load_pointer(ctx), request)
    except InlayError as error:
        raise error.about(table=ctx.uri) from None
    report_write(asked.table, write_result("apply_changes", done.outcome, usage_of(ctx.store)))

"""Delete requests become markers in one commit each: readers stop seeing the rows at once.

An erasure is opened the same way; the rewrite function is then told, and takes the rows out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from inlay.errors import InlayError
from inlay.format.snapshot import Snapshot
from inlay.functions.messages import process, sent_time_us, tell_rewrite
from inlay.functions.observe import observed, tell_write
from inlay.functions.requests import DeleteRequest, read_delete
from inlay.functions.tables import table_context, usage_of
from inlay.ops.commit.driver import Committed, Skipped
from inlay.ops.context import Context
from inlay.ops.erase.request import open_erasure
from inlay.ops.metadata.load import load_pointer
from inlay.ops.result import write_result
from inlay.ops.write.delete import delete, delete_keys
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parse import parse_predicate
from inlay.plan.change import Request


@observed
def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    return process(event, context, delete_message)


def delete_message(record: SQSRecord) -> None:
    asked = read_delete(record.body)
    ctx = table_context(asked.table)
    # A redelivered message has the id and the sent time of the first delivery.
    request = Request.of(
        asked.id or record.message_id,
        body=asked.body,
        time_us=asked.time_us(sent_time_us(record)),
    )
    try:
        done = _delete(ctx, asked, request)
    except InlayError as error:
        raise error.about(table=ctx.uri) from None
    operation = "erase" if asked.mode == "erase" else "delete"
    tell_write(asked.table, write_result(operation, done, usage_of(ctx)))
    if asked.mode == "erase":
        # Also after a redelivery: the first delivery may have ended just before this line.
        tell_rewrite(asked.table)


def _delete(ctx: Context, asked: DeleteRequest, request: Request) -> Committed | Skipped:
    base = load_pointer(ctx)
    if asked.where is None:
        schema = schema_to_arrow(base.snapshot.schema, with_ids=False)
        keys = asked.key_table(schema, _primary_key(base.snapshot))
        return delete_keys(ctx, keys, base=base, request=request)
    predicate = parse_predicate(asked.where, base.snapshot.schema)
    if asked.mode == "erase":
        return open_erasure(ctx, predicate, base=base, request=request)
    return delete(ctx, predicate, mode=asked.mode, base=base, request=request)


def _primary_key(snapshot: Snapshot) -> tuple[str, ...]:
    names = {field.id: field.name for field in snapshot.schema.fields}
    return tuple(names[field_id] for field_id in snapshot.primary_key)

"""Delete requests become markers, in one commit each: readers stop seeing the rows at once. Records of
change streams are applied, where the table says how. A message that names several tables is one commit of
all of them.

An erasure is opened the same way; the rewrite function is then notified, and removes the rows. A request
whose mode has to read or rewrite much is forwarded to the rewrite function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from inlay.errors import NotAllowed
from inlay.functions import settings
from inlay.functions.changes import apply_records
from inlay.functions.deletes import apply_delete, apply_operations
from inlay.functions.messages import (
    forward_delete,
    messages_of,
    notify_rewrite,
    process,
    sent_time_us,
)
from inlay.functions.observe import observed
from inlay.functions.requests import ChangesRequest, DeleteRequest, OperationsRequest
from inlay.functions.validation import has_field, read


@observed
def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    erased: set[str] = set()

    def message(record: SQSRecord) -> None:
        if has_field(record.body, "changes"):
            changes_message(record)
        elif has_field(record.body, "operations"):
            operations_message(record, erased)
        else:
            delete_message(record, erased)

    answer = process(messages_of(event), context, message)
    # One hint for each table, even after a redelivery: the first delivery may have ended just before.
    for table in sorted(erased):
        notify_rewrite(table)
    return answer


def changes_message(record: SQSRecord) -> None:
    asked = read(ChangesRequest, record.body)
    if settings.is_erase_queue(record.event_source_arn):
        raise NotAllowed("changes are not accepted from the queue for erasures", table=asked.table)
    request_id = asked.id or record.message_id
    apply_records(asked, asked.request(request_id, asked.time_us(sent_time_us(record))))


def operations_message(record: SQSRecord, erased: set[str]) -> None:
    asked = read(OperationsRequest, record.body)
    if asked.erased and not settings.may_erase(record.event_source_arn):
        raise NotAllowed("erasures are not accepted from this queue", table=min(asked.erased))
    if asked.read and settings.is_erase_queue(record.event_source_arn):
        raise NotAllowed("the queue for erasures moves no rows", table=min(asked.read))
    apply_operations(asked, asked.id or record.message_id, asked.time_us(sent_time_us(record)))
    erased |= asked.erased


def delete_message(record: SQSRecord, erased: set[str]) -> None:
    asked = read(DeleteRequest, record.body)
    if asked.mode == "erase" and not settings.may_erase(record.event_source_arn):
        raise NotAllowed("erasures are not accepted from this queue", table=asked.table)
    # A redelivered message has the id and the sent time of the first delivery.
    request_id = asked.id or record.message_id
    time_us = asked.time_us(sent_time_us(record))
    request = asked.request(request_id, time_us)
    if not apply_delete(asked, request, heavy=False):
        forward_delete(asked.table, asked.forwarded(request_id, time_us))
    elif asked.mode == "erase":
        erased.add(asked.table)

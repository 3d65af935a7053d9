"""Events of what is finished, for EventBridge: nobody has to poll a table or a prefix for receipts.

Promise: where the deployment names a bus, every content that came in is told at least once, under an id
that is the same each time; elsewhere nothing is sent. The message of a content is done when EventBridge has
taken the event: until then it comes again, and ends in the dead letters, which tell when they are sent
again. A receipt is told when it is written and by the daily collections of the next two days, whatever came
of the earlier tries. What EventBridge refuses is logged and counted, and undoes nothing.

::

    {"source": "inlay", "detail-type": "Inlay Content Ingested", "resources": ["s3://…/tables/orders"],
     "detail": {"id": "…", "table": "orders", "uri": "s3://…/ingest/orders/a.parquet", …}}
    {"source": "inlay", "detail-type": "Inlay Erasure Finished", …
     "detail": {"id": "…", "table": "orders", "receipt": "s3://…/tables/orders/erasure/case-7.json"}}
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, assert_never

from inlay.functions import settings
from inlay.functions.observe import count, logger

if TYPE_CHECKING:
    from inlay.engine import Context, SourceOutcome

# EventBridge: entries of one request.
_PUT_ENTRIES = 10
# Tries of one request, by the SDK: what it tells of was done, and the function has other work.
_ATTEMPTS = 4

# What a daily collection announces again: one may fail.
_AGAIN_US = 2 * 86_400 * 1_000_000

CONTENT = "Inlay Content Ingested"
ERASURE = "Inlay Erasure Finished"


@cache
def events() -> Any:
    """The process's client of EventBridge, created when first needed."""
    import boto3
    from botocore.config import Config

    config = Config(retries={"mode": "standard", "total_max_attempts": _ATTEMPTS})
    return boto3.client("events", region_name=os.environ.get("AWS_REGION"), config=config)


def announce_contents(
    table: str, ctx: Context, outcomes: Sequence[SourceOutcome], version: int
) -> frozenset[int]:
    """Contents whose rows are in the table, by its `version`; of one that was there before only that.
    Returns the positions of those that EventBridge did not take."""
    if settings.completion_bus() is None:
        return frozenset()
    details: dict[int, Mapping[str, Any]] = {}
    for position, outcome in enumerate(outcomes):
        told: Mapping[str, Any]
        match outcome.state:
            case "ingested":
                listed = {} if outcome.refused_key is None else {"refused_in": outcome.refused_key}
                told = {
                    "repeated": False,
                    "rows": outcome.rows,
                    "refused": outcome.refused,
                    **listed,
                }
            case "duplicate":
                told = {"repeated": True}
            case "superseded" | "takenback" | "rejected" | "retry" | "deferred":
                continue  # no rows of these are in the table
            case _:
                assert_never(outcome)
        source = outcome.source
        details[position] = {
            "id": _id_of(f"{ctx.uri} {source.identity}"),
            "table": table,
            "uri": source.location.uri,
            "version_id": source.version_id,
            "etag": source.etag,
            "table_version": version,
            **told,
        }
    refused = _put(table, ctx, CONTENT, [*details.values()])
    return frozenset(position for position, detail in details.items() if detail["id"] in refused)


def announce_receipts(
    table: str, ctx: Context, receipts: Iterable[str], *, now_us: int, again: bool
) -> None:
    """Receipts, by their keys under the table's root; with `again` those of the last days, too."""
    if settings.completion_bus() is None:
        return
    keys = dict.fromkeys(receipts)
    if again:
        from inlay.engine import receipts_since  # the ingest function has none

        keys |= dict.fromkeys(receipts_since(ctx, now_us - _AGAIN_US))
    uris = [f"{ctx.uri}/{key}" for key in keys]
    _put(
        table,
        ctx,
        ERASURE,
        [{"id": _id_of(uri), "table": table, "receipt": uri} for uri in uris],
    )


def _id_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _put(table: str, ctx: Context, kind: str, details: Sequence[Mapping[str, Any]]) -> set[str]:
    """The ids that were refused."""
    bus = settings.completion_bus()
    untold: set[str] = set()
    for start in range(0, len(details), _PUT_ENTRIES):
        some = details[start : start + _PUT_ENTRIES]
        entries = [
            {
                "Source": "inlay",
                "DetailType": kind,
                "Resources": [ctx.uri],
                "Detail": json.dumps(detail),
                "EventBusName": bus,
            }
            for detail in some
        ]
        try:
            answer = events().put_events(Entries=entries)
            refused = [
                (detail["id"], entry["ErrorCode"])
                for detail, entry in zip(some, answer["Entries"], strict=True)
                if entry.get("ErrorCode")
            ]
        except Exception as error:  # whatever it is, what it tells of stands
            refused = [(detail["id"], type(error).__name__) for detail in some]
        for name, why in refused:
            logger.error("EventNotSent", table=table, kind=kind, id=name, error=why)
        if refused:
            count(table, {"EventsNotSent": len(refused)})
        untold |= {name for name, _ in refused}
    return untold

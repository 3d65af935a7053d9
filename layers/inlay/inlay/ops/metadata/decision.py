"""The object that decides a transaction over several tables: read by whoever meets a table that is prepared
for one, created by whoever decides.

Promise: of all who decide, exactly one does, whatever becomes of the answers: the object is created under
`If-None-Match`, and read where the answer leaves that open.
"""

from __future__ import annotations

from inlay.errors import CorruptTable, KeyTaken
from inlay.format.transaction import Decision, Transaction, decode_decision, encode_decision
from inlay.ops.context import Context
from inlay.storage.base import Got, ObjectStore
from inlay.storage.open import named_location
from inlay.storage.write_once import Stored, write_once

# Of a decision in the cache of objects.
_BYTES = 64


def find_decision(ctx: Context, transaction: Transaction) -> bool | None:
    """Whether the transaction is committed; None while nobody has decided. One GET, none once known."""
    known: bool | None = ctx.cache.get(transaction.decision)
    if known is not None:
        return known
    store, key = _place(ctx, transaction)
    answer = store.get(key)
    if not isinstance(answer, Got):
        return None
    decision = decode_decision(answer.body, key=transaction.decision)
    if decision.transaction_id != transaction.id:
        raise CorruptTable(
            f"{transaction.decision} is of another transaction",
            table=ctx.uri,
            key=transaction.decision,
        )
    ctx.cache.put(transaction.decision, decision.committed, _BYTES)
    return decision.committed


def decide(ctx: Context, transaction: Transaction, *, committed: bool) -> Stored | None:
    """Decides it so; None where the opposite was decided before. Raises `StoreUnavailable` when it is not
    known whether this has decided."""
    store, key = _place(ctx, transaction)
    body = encode_decision(Decision(transaction.id, committed, transaction.participants))
    try:
        return write_once(store, key, body, before_retry=ctx.back_off)
    except KeyTaken:
        decision = find_decision(ctx, transaction)
        if decision is (not committed):
            return None
        raise


def _place(ctx: Context, transaction: Transaction) -> tuple[ObjectStore, str]:
    location = named_location(transaction.decision)
    if location.scheme != ctx.store.scheme:
        raise CorruptTable(
            f"the table is prepared for a transaction that {transaction.decision} decides, in another "
            "store than the table: it was copied while the transaction was open",
            table=ctx.uri,
            key=transaction.decision,
            next_step="Copy the table again once it is no longer prepared: any commit on it ends that",
        )
    return ctx.store_at(location.bucket), location.key

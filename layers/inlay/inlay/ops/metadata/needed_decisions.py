"""Decisions of transactions that a table may still need: garbage collection deletes the others.

Promise: a decision is kept while a table is prepared for it or is still what the transaction was planned
on, and for a day after it was made, so that a process that was suspended finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inlay.errors import InlayError
from inlay.format import keys
from inlay.format.transaction import Participant, decode_decision
from inlay.ops.context import Context
from inlay.ops.metadata.load import resolved
from inlay.ops.metadata.lost_decision import context_of
from inlay.storage.base import Got


def needed_decisions(
    ctx: Context, decisions: Sequence[str], *, dropped: bool = False
) -> Iterator[str]:
    """Of the decisions at these keys, relative to the table, those that a table may still need: one that is
    prepared for it, that is still what it was planned on, or of which neither is known. `dropped`: not this
    table."""
    mine = ctx.location("").rstrip("/") if dropped else None
    for key in decisions:
        try:
            answer = ctx.store.get(ctx.key(key))
            if not isinstance(answer, Got):
                continue
            participants = decode_decision(answer.body, key=key).participants
            others = [p for p in participants if p.uri != mine]
            if all(_is_final(ctx, key, other) for other in others):
                continue
        except InlayError:
            pass
        yield key


def _is_final(ctx: Context, key: str, participant: Participant) -> bool:
    its = context_of(ctx, participant)
    answer = its.store.get(its.key(keys.POINTER))
    if not isinstance(answer, Got):
        return not any(True for _ in its.store.list(its.key(keys.ARCHIVES)))
    loaded = resolved(its, answer)
    if loaded.pointer.table_id != participant.table_id:
        return True
    is_prepared = loaded.transaction is not None and key == keys.decision_key(loaded.transaction.id)
    return not is_prepared and loaded.pointer.version > participant.version

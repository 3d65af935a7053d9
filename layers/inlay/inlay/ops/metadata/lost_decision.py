"""A decision that somebody has deleted by hand, while a table still needs it.

Promise: where one of the other tables has gone on from the transaction, it is known that it was committed,
and nobody takes it for one that never was. Where none has gone on nothing in the store tells a decision
that was deleted from one that was not made yet: then it never was, on all of them alike.
"""

from __future__ import annotations

from contextlib import suppress

from inlay.errors import CorruptTable, InlayError
from inlay.format import keys
from inlay.format.transaction import Participant, Transaction, commit_id
from inlay.ops.cache import ObjectCache
from inlay.ops.context import Context, Shared
from inlay.ops.metadata.decision import find_decision
from inlay.ops.metadata.load import find_version, read_main, resolved
from inlay.record import replace
from inlay.storage.base import Got
from inlay.storage.open import named_location


def context_of(ctx: Context, participant: Participant) -> Context:
    """The same process, on another table of a transaction."""
    place = named_location(participant.uri)
    return replace(
        ctx,
        store=ctx.store_at(place.bucket),
        root=place.key,
        uri=participant.uri,
        cache=ObjectCache(),
        shared=Shared(),
        branch=None,
        table_id=None,
    )


def gone_on(ctx: Context, transaction: Transaction) -> Participant | None:
    """A table that has the transaction's version, though there is no decision: at most two GETs each."""
    for participant in transaction.participants:
        with suppress(InlayError):  # of one that cannot be read nothing is known
            if _has_gone_on(context_of(ctx, participant), transaction, participant):
                return participant if _is_lost(ctx, transaction) else None
    return None


def _has_gone_on(ctx: Context, transaction: Transaction, participant: Participant) -> bool:
    answer = ctx.store.get(ctx.key(keys.POINTER))
    if not isinstance(answer, Got):
        return False
    now, after = resolved(ctx, answer).pointer, participant.version + 1
    if now.table_id != participant.table_id or now.version < after:
        return False
    snapshot = now if now.version == after else find_version(ctx, after)
    own_commit = commit_id(transaction.id, participant.table_id)
    return snapshot is not None and snapshot.commit.id == own_commit


def _is_lost(ctx: Context, transaction: Transaction) -> bool:
    """Not when it was made, and perhaps not needed any more, since this process has looked for it."""
    if find_decision(ctx, transaction) is not None:
        return False
    now = read_main(replace(ctx, branch=None))
    return now.undecided and now.transaction is not None and now.transaction.id == transaction.id


def check_not_lost(ctx: Context, transaction: Transaction) -> None:
    """Before it is aborted, and before its tables are shown together. Raises `CorruptTable`."""
    participant = gone_on(ctx, transaction)
    if participant is not None:
        raise CorruptTable(
            f"the decision of a transaction over {len(transaction.participants)} tables is gone: "
            f"{participant.uri} has its version {participant.version + 1}, "
            f"{ctx.uri} is still prepared for it",
            table=ctx.uri,
            key=transaction.decision,
            next_step=f"`inlay repair {ctx.uri} --apply` writes it again, as committed",
        )

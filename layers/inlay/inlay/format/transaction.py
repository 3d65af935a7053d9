"""A transaction over several tables: the frame in the pointer of a table that is prepared for one, and the
object that decides it, to bytes and back (docs/FORMAT.md, section 14).

Promise: a prepared frame holds both frames of version 1 byte for byte, the one that it replaced and the one
that takes its place if the transaction is committed, so that an archive of either has the bytes that it
would have without a transaction. Libraries that know version 1 only refuse the frame (`NewerFormat`).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any
from uuid import UUID

from inlay.errors import CorruptTable
from inlay.format.codec import MAX_FRAME_BYTES, decode_frame, encode_frame, guarded
from inlay.format.keys import decision_key
from inlay.format.values import as_count, as_text, bytes_from_text, bytes_to_text
from inlay.record import Record

# The format version of what is here.
VERSION = 2


class Participant(Record):
    """`version` of the table with this id, at `uri`, is what the transaction was planned on."""

    table_id: str
    uri: str
    version: int


class Transaction(Record):
    """`decision` is where the object that decides it is, or will be, as a URI. From `deadline_us` on, by
    the store's clock, anybody who is kept waiting may decide that it is aborted."""

    id: str
    decision: str
    began_us: int
    deadline_us: int
    participants: tuple[Participant, ...]


def commit_id(transaction_id: str, table_id: str) -> str:
    """Of the version that the transaction gives the table: whoever sees it there knows what was decided."""
    message = f"{transaction_id}/{table_id}".encode()
    return str(UUID(bytes=blake2b(message, digest_size=16).digest(), version=4))


class Prepared(Record):
    """What the pointer of a participant holds: `current` is the frame that was there, `pending` the next
    version's; None where the table is only read."""

    transaction: Transaction
    current: bytes
    pending: bytes | None

    def resolved(self, committed: bool) -> bytes:
        """The frame of the table's version, once it is known whether the transaction is committed."""
        return self.pending if committed and self.pending is not None else self.current


class Decision(Record):
    """Whoever creates the object has decided."""

    transaction_id: str
    committed: bool
    participants: tuple[Participant, ...]


def encode_prepared(prepared: Prepared) -> bytes:
    transaction = prepared.transaction
    body: dict[str, Any] = {
        "transaction": transaction.id,
        "decision": transaction.decision,
        "began_us": transaction.began_us,
        "deadline_us": transaction.deadline_us,
        "tables": _participants_to_json(transaction.participants),
        "current": bytes_to_text(prepared.current),
    }
    if prepared.pending is not None:
        body["pending"] = bytes_to_text(prepared.pending)
    return encode_frame("prepared", body, plain_bytes=MAX_FRAME_BYTES, version=VERSION)


def decode_prepared(data: bytes, *, key: str) -> Prepared:
    body = decode_frame("prepared", data, key=key, parts=_PARTS, version=VERSION)
    return guarded(key, lambda: _prepared_from_json(body))


def encode_decision(decision: Decision) -> bytes:
    """Equal for all who decide the same: one who finds it there has decided it as well."""
    body = {
        "transaction": decision.transaction_id,
        "committed": decision.committed,
        "tables": _participants_to_json(decision.participants),
    }
    return encode_frame("decision", body, plain_bytes=MAX_FRAME_BYTES, version=VERSION)


def decode_decision(data: bytes, *, key: str) -> Decision:
    parts = ("transaction", "committed", "tables")
    body = decode_frame("decision", data, key=key, parts=parts, version=VERSION)
    return guarded(key, lambda: _decision_from_json(body))


_PARTS = frozenset(
    ("transaction", "decision", "began_us", "deadline_us", "tables", "current", "pending")
)


def _prepared_from_json(body: Mapping[str, Any]) -> Prepared:
    transaction = Transaction(
        id=as_text(body["transaction"]),
        decision=as_text(body["decision"]),
        began_us=as_count(body["began_us"]),
        deadline_us=as_count(body["deadline_us"]),
        participants=_participants_from_json(body["tables"]),
    )
    # Whoever is kept waiting writes there: to no other name than that of a decision.
    if "://" not in transaction.decision or not transaction.decision.endswith(
        "/" + decision_key(transaction.id)
    ):
        raise CorruptTable(f"{transaction.decision[:200]} is not the name of a decision")
    pending = body.get("pending")
    return Prepared(
        transaction=transaction,
        current=bytes_from_text(body["current"]),
        pending=None if pending is None else bytes_from_text(pending),
    )


def _decision_from_json(body: Mapping[str, Any]) -> Decision:
    if not isinstance(body["committed"], bool):
        raise CorruptTable("a decision is neither true nor false")
    return Decision(
        transaction_id=as_text(body["transaction"]),
        committed=body["committed"],
        participants=_participants_from_json(body["tables"]),
    )


def _participants_to_json(participants: tuple[Participant, ...]) -> list[list[Any]]:
    return [[p.table_id, p.uri, p.version] for p in participants]


def _participants_from_json(bodies: Any) -> tuple[Participant, ...]:
    return tuple(Participant(as_text(i), as_text(u), as_count(v)) for i, u, v in bodies)

"""Signatures on passes of erasures, in DSSE envelopes, and their check offline.

Promise: an envelope that `checked` accepts was signed with the private half of the given key, over exactly
the statement that comes back. Who signs is given by the caller: a `Signer` may be a KMS key
(`functions.signing`), whose private half nobody has, or a file (`ops.erase.p256`). One signature serves all
receipts of a pass (`plan.receipt_chain`).

The algorithm is ECDSA on P-256 with SHA-256, as KMS has it (`ECDSA_SHA_256`: DER). The format is the Dead
Simple Signing Envelope, version 1 (secure-systems-lab/dsse): what is signed names the type of the payload,
so that a signature made for something else is never taken for one of a pass.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from inlay.plan.receipt_chain import STATEMENT_TYPE

if TYPE_CHECKING:
    from inlay.ops.erase.p256 import PublicKey


class Signer(Protocol):
    """Signs with a private key. `key_id` says to a reader which public key to check with; it is no
    evidence."""

    @property
    def key_id(self) -> str: ...

    def sign(self, message: bytes) -> bytes:
        """The signature of the message: ECDSA on P-256 over its SHA-256, in DER."""
        ...


def to_sign(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding.

    >>> to_sign(b"{}")
    b'DSSEv1 39 application/vnd.inlay.erasure-pass+json 2 {}'
    """
    kind = STATEMENT_TYPE.encode("ascii")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def envelope_of(statement: bytes, signer: Signer) -> dict[str, Any]:
    signature = signer.sign(to_sign(statement))
    return {
        "payload": base64.b64encode(statement).decode("ascii"),
        "payloadType": STATEMENT_TYPE,
        "signatures": [
            {"keyid": signer.key_id, "sig": base64.b64encode(signature).decode("ascii")}
        ],
    }


def signed_by(envelope: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The ids of the keys that an envelope says it was signed with."""
    try:
        return tuple(str(s["keyid"]) for s in envelope["signatures"]) if envelope else ()
    except (KeyError, TypeError):
        return ()


def is_signed(statement: bytes, envelope: Mapping[str, Any] | None, key: PublicKey) -> bool:
    """Whether an envelope has a signature with `key` of exactly this statement."""
    try:
        if envelope is None or envelope["payloadType"] != STATEMENT_TYPE:
            return False
        if base64.b64decode(envelope["payload"], validate=True) != statement:
            return False
        signatures = [base64.b64decode(s["sig"], validate=True) for s in envelope["signatures"]]
    except (KeyError, TypeError, ValueError):
        return False
    return any(key.has_signed(to_sign(statement), signature) for signature in signatures)

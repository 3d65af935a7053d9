"""Signatures on passes of erasures, in DSSE envelopes, and their check offline.

Promise: an envelope that `checked` accepts was signed with the private half of the given key, over exactly
the statement that comes back. Who signs is given by the caller: a `Signer` may be a KMS key
(`functions.signing`), whose private half nobody has, or a key file (`KeyFile`). One signature serves all
receipts of a pass (`plan.receipt_chain`).

The algorithm is ECDSA on P-256 with SHA-256, as KMS has it (`ECDSA_SHA_256`: DER). The format is the Dead
Simple Signing Envelope, version 1 (secure-systems-lab/dsse): what is signed names the type of the payload,
so that a signature made for something else is never taken for one of a pass. Needs the package
`cryptography`, which only signs and checks; everything else works without it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from inlay.errors import InvalidRequest
from inlay.plan.receipt_chain import STATEMENT_TYPE


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


class PublicKey:
    """A public key, from PEM text. Raises `InvalidRequest` where that is no P-256 key. `key_id` is made of
    the key itself: what an envelope says of who signed it is not signed."""

    def __init__(self, pem: bytes) -> None:
        serialization, ec = _library()
        key = _on_p256(lambda: serialization.load_pem_public_key(pem), ec.EllipticCurvePublicKey)
        if key is None:
            raise InvalidRequest(
                "that is not a public key on the curve P-256, as PEM",
                next_step="`openssl ec -in key.pem -pubout` and `aws kms get-public-key` give it",
            )
        self._key = key
        self.key_id = _fingerprint(key)

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes

        _, ec = _library()
        try:
            self._key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True


class KeyFile:
    """Signs with a private key in PEM, where there is no KMS. Keep it out of the bucket, and away from
    whoever may write it: a signature proves no more than who has the key."""

    def __init__(self, pem: bytes) -> None:
        serialization, ec = _library()
        key = _on_p256(
            lambda: serialization.load_pem_private_key(pem, password=None),
            ec.EllipticCurvePrivateKey,
        )
        if key is None:
            raise InvalidRequest(
                "that is not a private key on the curve P-256, as PEM without a password",
                next_step="`openssl ecparam -name prime256v1 -genkey -noout -out key.pem` makes one",
            )
        self._key = key
        self.key_id = _fingerprint(key.public_key())

    @classmethod
    def read(cls, path: str) -> KeyFile:
        return cls(Path(path).read_bytes())

    def sign(self, message: bytes) -> bytes:
        from cryptography.hazmat.primitives import hashes

        _, ec = _library()
        signature: bytes = self._key.sign(message, ec.ECDSA(hashes.SHA256()))
        return signature


def _fingerprint(key: Any) -> str:
    serialization, _ = _library()
    public = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return f"sha256:{sha256(public).hexdigest()}"


def _on_p256(load: Callable[[], Any], kind: Any) -> Any | None:
    """The key that `load` reads; None where that is no key, of another kind, or on another curve."""
    from cryptography.exceptions import UnsupportedAlgorithm

    _, ec = _library()
    try:
        key = load()
    except (TypeError, ValueError, UnsupportedAlgorithm):  # that: a curve that it does not know
        return None
    return key if isinstance(key, kind) and isinstance(key.curve, ec.SECP256R1) else None


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ModuleNotFoundError:
        raise InvalidRequest(
            "signatures need the package `cryptography`",
            next_step="pip install 'inlay-tables[receipts]'",
        ) from None
    return serialization, ec

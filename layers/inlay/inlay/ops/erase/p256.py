"""Keys on the curve P-256, by the package `cryptography`: that of a file signs, a public one checks.

Everything else works without that package.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from inlay.errors import InvalidRequest


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

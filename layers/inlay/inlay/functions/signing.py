"""Signatures by AWS KMS: the private half of the key never leaves it, and only the function that ends
erasures may use it (`template.yaml`, ReceiptKey)."""

from __future__ import annotations

from inlay.errors import StoreUnavailable
from inlay.functions.verdict import code_of


class KmsKey:
    """An asymmetric KMS key of spec ECC_NIST_P256, by its ARN."""

    def __init__(self, arn: str) -> None:
        self._arn = arn

    @property
    def key_id(self) -> str:
        return self._arn

    def sign(self, message: bytes) -> bytes:
        """One request. Raises `StoreUnavailable`: the erasure stays open, and the next round signs it."""
        import boto3

        try:
            answer = boto3.client("kms").sign(
                KeyId=self._arn,
                Message=message,  # at most 4 KiB: of a pass of any size it has one root
                MessageType="RAW",
                SigningAlgorithm="ECDSA_SHA_256",
            )
        except Exception as failure:
            raise StoreUnavailable(
                f"the receipts' key {self._arn} did not sign: {code_of(failure)}",
                next_step="Is the key enabled, and may this function's role use it (kms:Sign)?",
            ) from failure
        signature: bytes = answer["Signature"]
        return signature
